"""Checkpoints: offsets by partition, written only if they changed, and never out of order."""

from __future__ import annotations

import errno

import pytest

from aiokq.broker.log import file_names
from aiokq.broker.log.checkpoints import Checkpoints
from aiokq.core.types import TopicPartition
from tests.sim.harness.files import MemoryFiles

A, B = TopicPartition("a", 0), TopicPartition("b", 7)
STARTS = f"/data/{file_names.LOG_STARTS}"


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.mkdirs("/data")
    return files


def test_what_is_written_is_read_again(files: MemoryFiles) -> None:
    """Each checkpoint has its own file; a restart loads all of them."""
    checkpoints = Checkpoints(files, "/data")
    for number, checkpoint in enumerate(
        (
            checkpoints.log_starts,
            checkpoints.recovery_points,
            checkpoints.high_watermarks,
            checkpoints.cleaned_offsets,
        )
    ):
        checkpoint.note(A, number)
        checkpoint.note(B, 10)
        checkpoint.write()
    again = Checkpoints(files, "/data")
    assert [
        again.log_starts.get(A),
        again.recovery_points.get(A),
        again.high_watermarks.get(A),
        again.cleaned_offsets.get(A),
    ] == [0, 1, 2, 3]
    assert files.read_bytes(STARTS) == b"0\n2\na 0 0\nb 7 10\n"


def test_what_the_file_says_is_not_written_again(files: MemoryFiles) -> None:
    """That would be a needless sync each minute, and another failure on a full disk."""
    starts = Checkpoints(files, "/data").log_starts
    assert starts.is_blank
    starts.note(A, 5)
    starts.write()
    fault = files.fail("write_atomic", errno.ENOSPC)
    starts.note(A, 5)
    starts.write()
    again = Checkpoints(files, "/data").log_starts
    again.write()
    assert fault.times == 1
    again.note(A, 6)
    with pytest.raises(OSError, match="space"):
        again.write()
    again.write()  # after a failure the content of the file is unknown, so it is rewritten
    assert files.read_bytes(STARTS) == b"0\n1\na 0 6\n"


def test_a_malformed_checkpoint_is_one_without_offsets(files: MemoryFiles) -> None:
    """Recovery then reads more, which is better than a failed start."""
    files.write_atomic(STARTS, b"0\n2\na 0 1\n")
    starts = Checkpoints(files, "/data").log_starts
    assert starts.get(A) is None
    starts.note(B, 1)
    starts.write()
    assert files.read_bytes(STARTS) == b"0\n1\nb 7 1\n"


def test_partitions_that_are_gone_are_forgotten(files: MemoryFiles) -> None:
    """A later partition of the same name has other offsets."""
    starts = Checkpoints(files, "/data").log_starts
    starts.note(A, 1)
    starts.note(B, 2)
    starts.forget(A)
    starts.forget(A)
    starts.keep([A])
    assert starts.get(B) is None
    starts.write()
    assert files.read_bytes(STARTS) == b"0\n0\n"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("failing", [0, 1, 2])
def test_offsets_that_a_failed_write_left_in_a_file_are_removed_by_the_next_call(
    files: MemoryFiles, number: int, failing: int
) -> None:
    """The creation of a log is repeated; an old log start would hide its records after a kill."""
    checkpoints = Checkpoints(files, "/data")
    durable = checkpoints.cleaned_offsets, checkpoints.log_starts, checkpoints.recovery_points
    for checkpoint in durable:
        checkpoint.note(A, 4)
        checkpoint.write()
    path = durable[failing].path
    files.fail("write_atomic", number, matches=lambda name: name == path)
    with pytest.raises(OSError, match=r"space|files"):
        checkpoints.forget(A)
    assert not durable[failing].is_blank  # the file must be written, although it gets no offset
    checkpoints.forget(A)
    files.crash()
    again = Checkpoints(files, "/data")
    for checkpoint in (again.cleaned_offsets, again.log_starts, again.recovery_points):
        assert checkpoint.get(A) is None


def test_a_partition_without_offsets_is_forgotten_without_a_write(files: MemoryFiles) -> None:
    """The creation of a topic with a thousand partitions must not write three thousand files."""
    checkpoints = Checkpoints(files, "/data")
    checkpoints.log_starts.note(B, 1)
    checkpoints.log_starts.write()
    fault = files.fail("write_atomic", errno.EIO)
    checkpoints.forget(A)
    assert fault.times == 1


def test_nothing_is_written_once_the_directory_is_let_go(files: MemoryFiles) -> None:
    """Another process may own it by then."""
    checkpoints = Checkpoints(files, "/data")
    checkpoints.log_starts.note(A, 1)
    with checkpoints.lock:
        checkpoints.closed = True
    checkpoints.log_starts.write()
    assert not files.exists(STARTS)
