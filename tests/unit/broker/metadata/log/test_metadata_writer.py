"""A new metadata log with a given image: complete or absent, and continued by the next start."""

from __future__ import annotations

import contextlib
import errno
import random
import uuid

import pytest

from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.broker.metadata.log.metadata_writer import write_metadata_log
from aiokq.broker.metadata.log.quorum_state import read_quorum_state
from aiokq.broker.metadata.log.snapshot_file import SnapshotId
from aiokq.fastpath import crc32c
from aiokq.wire.quorum_records import VotersRecord, VotersRecordVoter
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.metadata.metadata_logs import DIRECTORY, LEVEL, NODE, memory, opened, read
from tests.unit.broker.metadata.metadata_logs import topic as topic_records

OPERATIONS = ("mkdirs", "open", "pwritev", "sync", "chmod", "rename", "sync_dir", "write_atomic")


def image() -> MetadataImage:
    made = MetadataImage()
    for record in (LEVEL, *topic_records(1), *topic_records(2)):
        made.replay(record)
    return made


def write(files: MemoryFiles, voters: VotersRecord | None = None) -> None:
    write_metadata_log(
        files,
        "/data",
        image(),
        snapshot=SnapshotId(40, 7),
        node_id=NODE,
        voters=voters,
        timestamp_ms=5,
        temporary_id=uuid.UUID(int=9),
        crc32c=crc32c,
    )


def test_the_next_start_continues_the_log() -> None:
    """It leads a later epoch, and its first record follows the snapshot."""
    files = memory()
    write(files)
    files.power_cut()
    state = read(files)
    assert list(state.image.records()) == list(image().records())
    assert (state.start_offset, state.end_offset, state.epoch) == (40, 40, 7)
    log = opened(files)
    assert (log.epoch, log.start_offset, log.end_offset) == (8, 40, 41)
    log.append(*topic_records(3))
    for seed in range(10):
        files.power_cut(random.Random(seed))
        assert set(read(files).image.topics) == {"t1", "t2", "t3"}


def test_voters_are_in_the_snapshot_with_kraft_version_1() -> None:
    """They are in no other file then."""
    files = memory()
    voters = VotersRecord(
        voters=[VotersRecordVoter(voter_id=NODE, voter_directory_id=uuid.UUID(int=1001))]
    )
    write(files, voters)
    state = read(files)
    assert (state.kraft_version, state.voters) == (1, voters)
    quorum = read_quorum_state(files, DIRECTORY)
    assert quorum is not None
    assert (quorum.data_version, quorum.voters) == (1, ())


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("seed", range(4))
def test_a_failure_at_any_operation_leaves_all_or_nothing(operation: str, seed: int) -> None:
    """What is left has the name of a deleted log, and is removed by the next start."""
    for number in range(4):
        files = memory()
        calls = [0]

        def is_due(_: str, calls: list[int] = calls, number: int = number) -> bool:
            calls[0] += 1
            return calls[0] == number + 1

        files.fail(operation, errno.EIO, matches=is_due)
        with contextlib.suppress(OSError):
            write(files)
        files.heal()
        files.power_cut(random.Random(seed))
        names = set(files.listdir("/data"))
        assert all(name.endswith("-delete") or name == "__cluster_metadata-0" for name in names)
        if "__cluster_metadata-0" in names:
            assert set(read(files).image.topics) == {"t1", "t2"}
