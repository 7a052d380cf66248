"""The metadata log of a sole voter: epochs, appends, snapshots, and what kills and disks leave."""

from __future__ import annotations

import errno
import random
import uuid

import pytest

from aiokq.broker.metadata.cluster_metadata_log import LogLimits
from aiokq.broker.metadata.quorum_state import QuorumState, read_quorum_state
from aiokq.broker.metadata.records import TOPIC_CONFIG
from aiokq.broker.metadata.snapshot_file import list_snapshots
from aiokq.broker.metadata.voters import only_voter
from aiokq.core.errors import KafkaStorage
from aiokq.wire.cluster_metadata_records import ConfigRecord, NoOpRecord, RemoveTopicRecord
from aiokq.wire.quorum_records import KRaftVersionRecord
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.metadata.metadata_logs import (
    DIRECTORY,
    LEVEL,
    NODE,
    config,
    memory,
    opened,
    read,
    topic,
)


@pytest.fixture
def files() -> MemoryFiles:
    return memory()


def test_each_start_leads_a_new_epoch(files: MemoryFiles) -> None:
    """The state of the quorum is durable before the first record of the epoch."""
    for epoch in (1, 2, 3):
        log = opened(files, lead=False)
        assert log.epoch == epoch
        assert read_quorum_state(files, DIRECTORY) == QuorumState(epoch, NODE, voters=(NODE,))
        assert read(files).epoch == epoch - 1, "nothing is appended yet"
        log.lead([LEVEL] if epoch == 1 else [])
        log.close()
        state = read(files)
        assert (state.epoch, state.leader_voters) == (epoch, (NODE,))
    assert state.end_offset == 4


def test_an_epoch_that_only_the_file_has_is_not_led_again(files: MemoryFiles) -> None:
    """A kill between the file and the first record leaves it."""
    opened(files, lead=False)
    files.crash()
    assert opened(files).epoch == 2


def test_appended_records_are_there_after_any_kill(files: MemoryFiles) -> None:
    """An append returns when its records are durable; a power cut leaves a prefix."""
    log = opened(files)
    for number in range(5):
        assert log.append(*topic(number)) == 2 + 2 * (number + 1)
    expected = list(log.image.records())
    for seed in range(20):
        files.power_cut(random.Random(seed))
        state = read(files)
        assert list(state.image.records()) == expected
        log = opened(files)
        assert log.end_offset == state.end_offset + 1
    log.close()
    assert list(read(files).image.records()) == expected


def test_voters_move_into_the_log(files: MemoryFiles) -> None:
    """kraft.version 1: the control records are in a batch of their own, in the same write."""
    voters = only_voter(NODE, uuid.UUID(int=7001), [])
    change = KRaftVersionRecord(k_raft_version=1), voters, NoOpRecord(), *topic(1)
    log = opened(files)
    before = log.end_offset
    syncs: list[str] = []
    files.fail("sync", matches=lambda path: bool(syncs.append(path)))
    assert log.append(*change) == before + 5
    assert len(syncs) == 1
    assert (log.kraft_version, log.image.topics.keys()) == (1, {"t1"})
    assert log.append(*topic(2)) == before + 7
    log.snapshot()
    log.close()
    state = read(files)
    assert (state.kraft_version, state.voters) == (1, voters)
    log = opened(files)
    state = read(files)
    assert (state.kraft_version, state.voters) == (1, voters)
    assert read_quorum_state(files, DIRECTORY) == QuorumState(2, NODE, data_version=1)


def test_a_kill_leaves_voters_in_the_log_or_not(files: MemoryFiles) -> None:
    """A part of the write may be on the disk; each such log can be continued."""
    log = opened(files)
    path = f"{DIRECTORY}/00000000000000000000.log"
    start = len(files.read_bytes(path))
    log.append(
        KRaftVersionRecord(k_raft_version=1),
        only_voter(NODE, uuid.UUID(int=7001), []),
        NoOpRecord(),
    )
    files.crash()
    whole = files.read_bytes(path)
    found = set()
    for size in range(start, len(whole) + 1):
        file = files.open(path)
        file.truncate(0)
        file.pwritev([whole[:size]], 0)
        file.close()
        state = read(files)
        found.add((state.kraft_version, state.voters is not None))
        assert opened(files, lead=False).kraft_version == state.kraft_version
        files.crash()
    assert found == {(0, False), (1, True)}


def test_a_restart_syncs_at_most_three_times(files: MemoryFiles) -> None:
    """Two syncs for quorum-state (the file and its name), and one for the log."""
    log = opened(files)
    log.append(*topic(0))
    log.close()
    synced: list[str] = []
    for operation in ("sync", "sync_dir"):
        files.fail(operation, matches=lambda path: bool(synced.append(path)))
    opened(files, clean=True)
    assert synced == [
        f"{DIRECTORY}/quorum-state.tmp",
        DIRECTORY,
        f"{DIRECTORY}/{0:020d}.log",
    ]


def test_a_snapshot_stands_for_the_log_before_it(files: MemoryFiles) -> None:
    """The log begins at the older of the two snapshots that are kept."""
    log = opened(files)
    ends = []
    for number in range(4):
        log.append(*topic(number))
        ends.append(log.snapshot())
    assert list_snapshots(files, DIRECTORY) == ends[-2:]
    assert log.start_offset == ends[-2].end_offset
    log.append(RemoveTopicRecord(topic_id=uuid.UUID(int=1001)))
    expected = list(log.image.records())
    for seed in (None, 1, 2):
        files.power_cut(None if seed is None else random.Random(seed))
        assert list(read(files).image.records()) == expected
        opened(files)
    log = opened(files)
    assert log.start_offset <= ends[-2].end_offset, "a power cut may bring removed segments back"
    assert set(log.image.topics) == {"t0", "t2", "t3"}


def test_the_size_of_the_log_is_bounded(files: MemoryFiles) -> None:
    """Whatever is appended: snapshots are written by size, and older parts are removed."""
    limits = LogLimits(snapshot_bytes=20_000, segment_bytes=1 << 20, kept_snapshots=1)
    log = opened(files, limits=limits)
    log.append(*topic(0))
    for number in range(1000):
        log.append(config(number))
    sizes = {name: files.stat_size(f"{DIRECTORY}/{name}") for name in files.listdir(DIRECTORY)}
    assert sum(sizes.values()) < 60_000, sizes
    assert len(list_snapshots(files, DIRECTORY)) == 1
    log.close()
    state = read(files)
    assert state.image.topic_configs("t0") == {"a": f"{999:0500}"}
    assert opened(files, clean=True).image.topic_configs("t0") == {"a": f"{999:0500}"}


def test_a_clean_stop_writes_a_snapshot_only_of_a_log_that_has_grown(files: MemoryFiles) -> None:
    """Small logs are read faster than snapshots are written."""
    limits = LogLimits(closing_bytes=2000)
    log = opened(files, limits=limits)
    log.append(*topic(0))
    log.close()
    assert not list_snapshots(files, DIRECTORY)
    log = opened(files, limits=limits)
    for number in range(5):
        log.append(config(number))
    log.close()
    assert len(list_snapshots(files, DIRECTORY)) == 1


@pytest.mark.parametrize("operation", ["open", "pwritev", "sync", "rename", "sync_dir", "chmod"])
def test_a_snapshot_that_fails_harms_nothing(files: MemoryFiles, operation: str) -> None:
    """It is tried again after more records."""
    limits = LogLimits(snapshot_bytes=4000)
    log = opened(files, limits=limits)
    log.append(*topic(0))
    files.fail(operation, errno.ENOSPC, matches=lambda path: "checkpoint" in path, times=None)
    for number in range(20):
        log.append(config(number))
    assert not list_snapshots(files, DIRECTORY) or operation == "sync_dir"
    files.heal()
    for number in range(20):
        log.append(config(number))
    assert list_snapshots(files, DIRECTORY)
    files.power_cut()
    assert read(files).image.topic_configs("t0") == {"a": f"{19:0500}"}


@pytest.mark.parametrize("written", [0, 1, 60, 200])
@pytest.mark.parametrize("operation", ["pwritev", "sync"])
def test_an_append_that_fails_is_in_no_image(
    files: MemoryFiles, operation: str, written: int
) -> None:
    """The directory goes offline, and the next start has what was acknowledged."""
    log = opened(files)
    log.append(*topic(0))
    files.fail(operation, errno.ENOSPC, matches=lambda path: path.endswith(".log"), written=written)
    with pytest.raises(KafkaStorage):
        log.append(*topic(1))
    assert set(log.image.topics) == {"t0"}
    with pytest.raises(KafkaStorage):
        log.append(*topic(2))
    files.heal()
    files.power_cut()
    assert "t0" in read(files).image.topics
    assert "t2" not in read(files).image.topics


def test_a_closed_log_takes_nothing(files: MemoryFiles) -> None:
    """Closing may be repeated, and a late append gets an error."""
    log = opened(files)
    log.close()
    log.close()
    with pytest.raises(KafkaStorage, match="closed"):
        log.append(*topic(0))


def test_large_appends_are_divided_into_batches_that_kafka_reads(files: MemoryFiles) -> None:
    """Kafka refuses a batch of more than 8 MiB."""
    log = opened(files)
    log.append(*topic(0))
    records = [
        ConfigRecord(
            resource_type=TOPIC_CONFIG, resource_name="t0", name=f"n{number}", value="v" * 30_000
        )
        for number in range(600)
    ]
    log.append(*records)
    log.close()
    state = read(files)
    assert len(state.image.topic_configs("t0")) == 600
    assert state.end_offset == log.end_offset


def test_a_snapshot_beyond_the_end_of_the_log_replaces_the_log(files: MemoryFiles) -> None:
    """Records appended at offsets that the snapshot covers would be skipped by the next start."""
    log = opened(files)
    log.append(*topic(0))
    end = log.end_offset
    log.append(*topic(1))
    before = files.read_bytes(f"{DIRECTORY}/{0:020d}.log")
    snapshot = log.snapshot()
    log.close()
    for name in files.listdir(DIRECTORY):
        if name.startswith(f"{snapshot.end_offset:020d}.") or name.endswith(".snapshot"):
            files.remove(f"{DIRECTORY}/{name}")
    files.write_atomic(f"{DIRECTORY}/{0:020d}.log", before[: len(before) // 2])
    state = read(files)
    assert state.end_offset == snapshot.end_offset > end
    log = opened(files)
    log.append(*topic(2))
    assert log.start_offset == snapshot.end_offset
    files.power_cut()
    assert set(read(files).image.topics) == {"t0", "t1", "t2"}


def test_a_refused_start_changes_nothing(files: MemoryFiles) -> None:
    """The state of the quorum is read before the torn tail is cut off."""
    opened(files).close()
    path = f"{DIRECTORY}/{0:020d}.log"
    files.write_atomic(path, files.read_bytes(path) + b"torn")
    files.write_atomic(f"{DIRECTORY}/quorum-state", b"{}")
    with pytest.raises(KafkaStorage, match="quorum-state cannot be read"):
        opened(files)
    assert files.read_bytes(path).endswith(b"torn")


@pytest.mark.parametrize("clean", [True, False])
def test_a_closed_log_is_closed_although_its_last_snapshot_fails(
    files: MemoryFiles, clean: bool
) -> None:
    """Open files would keep the directory in use."""
    log = opened(files, limits=LogLimits(closing_bytes=1))
    log.append(*topic(0))
    files.fail("open", errno.EMFILE, matches=lambda path: f"{log.end_offset:020d}" in path)
    log.close(clean)
    files.heal()
    with pytest.raises(KafkaStorage, match="closed"):
        log.append(*topic(1))
    assert set(read(files).image.topics) == {"t0"}


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO])
def test_nothing_is_appended_after_records_that_could_not_be_synced(
    files: MemoryFiles, error: int
) -> None:
    """The next start may find them: a repeated creation would then exist twice."""
    log = opened(files)
    files.fail("sync", error, matches=lambda path: path.endswith(".log"))
    with pytest.raises(KafkaStorage):
        log.append(*topic(0))
    assert not log.image.topics
    with pytest.raises(KafkaStorage):
        log.append(*topic(0))
    log.close(clean=False)
    assert set(read(files).image.topics) <= {"t0"}
    opened(files)


def test_an_append_that_wrote_nothing_may_be_repeated(files: MemoryFiles) -> None:
    """A lack of descriptors passes."""
    log = opened(files)
    log._log.roll(1000)
    files.fail("pwritev", errno.EMFILE, matches=lambda path: path.endswith(".log"))
    with pytest.raises(KafkaStorage):
        log.append(*topic(0))
    log.append(*topic(0))
    assert set(read(files).image.topics) == {"t0"}
