"""Epochs of the batches of a metadata log: wrong ones are noticed, and no log that is right."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiokq.broker.log.leader_epochs import EpochEntry
from aiokq.broker.metadata.image.record_codec import encode_metadata_record
from aiokq.broker.metadata.log.metadata_reader import MetadataDamaged
from aiokq.broker.metadata.log.quorum_state import QuorumState, write_quorum_state
from aiokq.broker.metadata.log.snapshot_file import SnapshotId, snapshot_path, write_snapshot
from aiokq.fastpath import crc32c
from aiokq.records.header import read_header
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.metadata.metadata_logs import (
    DIRECTORY,
    LEVEL,
    NODE,
    memory,
    opened,
    read,
    topic,
)

SEGMENT = f"{DIRECTORY}/{0:020d}.log"
EPOCHS = f"{DIRECTORY}/leader-epoch-checkpoint"


def three_epochs() -> MemoryFiles:
    """Return a log of three epochs, whose last process was killed; batches of two records."""
    files = memory()
    for number in range(3):
        log = opened(files)
        log.append(*topic(number))
        if number < 2:
            log.close()
    files.crash()
    return files


def starts(files: MemoryFiles) -> list[int]:
    """Return the position of each batch."""
    data, positions, position = files.read_bytes(SEGMENT), [], 0
    while position < len(data):
        positions.append(position)
        position += read_header(data, position).size
    return positions


def each_flip(files: MemoryFiles, check: Callable[[int, int], None]) -> None:
    """Call ``check`` with the number of the batch, and the epoch that it has after the flip."""
    data = bytearray(files.read_bytes(SEGMENT))
    for number, start in enumerate(starts(files)):
        for bit in range(32):
            at = start + 12 + bit // 8
            data[at] ^= 1 << bit % 8
            files.write_atomic(SEGMENT, bytes(data))
            check(number, read_header(data, start).leader_epoch)
            data[at] ^= 1 << bit % 8
    files.write_atomic(SEGMENT, bytes(data))


def test_each_flipped_bit_of_an_epoch_is_noticed_at_its_batch() -> None:
    """No checksum covers the epoch, so a wrong one was taken for the epoch of the quorum."""
    files = three_epochs()
    offsets = [read_header(files.read_bytes(SEGMENT), at).base_offset for at in starts(files)]

    def check(number: int, epoch: int) -> None:
        with pytest.raises(MetadataDamaged, match=f"epoch {epoch}") as refused:
            read(files)
        assert refused.value.offset == offsets[number]
        assert refused.value.epoch is not None

    each_flip(files, check)
    assert read(files).epochs == [EpochEntry(1, 0), EpochEntry(2, 4), EpochEntry(3, 7)]


def test_each_flipped_bit_is_noticed_without_the_checkpoint() -> None:
    """The batches beside it contradict it; only which of two is wrong may stay open."""
    files = three_epochs()
    files.remove(EPOCHS)

    def check(number: int, epoch: int) -> None:
        with pytest.raises(MetadataDamaged, match="epoch"):
            read(files)

    each_flip(files, check)


def test_a_last_batch_that_begins_an_epoch_is_compared_with_both_files() -> None:
    """Kafka's leader may be killed after its first batch; no batch follows that contradicts it."""
    files = three_epochs()
    data = files.read_bytes(SEGMENT)
    files.write_atomic(SEGMENT, data[: starts(files)[-1]])
    assert read(files).epoch == 3
    last = len(starts(files)) - 1

    def check(number: int, epoch: int) -> None:
        with pytest.raises(MetadataDamaged, match="epoch") as refused:
            read(files)
        if number == last:
            assert refused.value.epoch == 3

    each_flip(files, check)


@pytest.mark.parametrize("quorum", [None, 2, 3])
def test_a_checkpoint_that_is_old_or_wrong_refuses_no_log(quorum: int | None) -> None:
    """A power cut may leave an older one; Kafka writes the file again at each start."""
    files = three_epochs()
    files.remove(f"{DIRECTORY}/quorum-state")
    if quorum is not None:
        write_quorum_state(files, DIRECTORY, QuorumState(quorum, NODE, voters=(NODE,)))
    for text in ("0\n1\n1 0\n", "0\n2\n1 0\n2 4\n", "0\n3\n1 0\n2 4\n9 7\n", "0\n1\n7 1\n", "x"):
        files.write_atomic(EPOCHS, text.encode())
        assert read(files).epoch == 3


def test_a_checkpoint_that_contradicts_the_log_is_written_again() -> None:
    """Kafka rebuilds the file at each start; a clean start of aiokq takes it as it is."""
    files = three_epochs()
    log = opened(files)
    log.close()
    right = files.read_bytes(EPOCHS)
    for at in range(len(right)):
        for bit in range(8):
            data = bytearray(right)
            data[at] ^= 1 << bit
            files.write_atomic(EPOCHS, bytes(data))
            log = opened(files, clean=True, lead=False)
            log.close()
            assert files.read_bytes(EPOCHS) == right


def test_the_epoch_of_a_snapshot_is_that_of_its_last_record() -> None:
    """A segment that the snapshot covers in part is read from its beginning."""
    files = three_epochs()
    end, epoch = 7, 2  # before the third epoch
    write_snapshot(
        files,
        snapshot_path(DIRECTORY, SnapshotId(end, epoch)),
        map(encode_metadata_record, [LEVEL, *topic(0), *topic(1)]),
        epoch=epoch,
        timestamp_ms=0,
        last_contained_ms=0,
        crc32c=crc32c,
    )
    assert set(read(files).image.topics) == {"t0", "t1", "t2"}

    def check(number: int, epoch: int) -> None:
        with pytest.raises(MetadataDamaged, match="epoch"):
            read(files)

    each_flip(files, check)


@pytest.mark.parametrize("lacks", ["the snapshots before", "nothing"])
def test_a_log_that_begins_after_a_snapshot_continues_its_epoch(lacks: str) -> None:
    """The segment with the beginning of the epoch was removed."""
    files = memory()
    log = opened(files)
    log.append(*topic(0))
    log.snapshot()
    log.append(*topic(1))
    log.snapshot()
    log.append(*topic(2))
    log.close(clean=False)
    names = files.listdir(DIRECTORY)
    if lacks != "nothing":
        for name in sorted(one for one in names if one.endswith(".checkpoint"))[:-1]:
            files.remove(f"{DIRECTORY}/{name}")
    newest = max(name for name in names if name.endswith(".log"))
    path = f"{DIRECTORY}/{newest}"
    assert read(files).epoch == 1
    data = bytearray(files.read_bytes(path))
    for bit in range(32):
        data[12 + bit // 8] ^= 1 << bit % 8
        files.write_atomic(path, bytes(data))
        with pytest.raises(MetadataDamaged, match="epoch"):
            read(files)
        data[12 + bit // 8] ^= 1 << bit % 8
