"""The metadata log of a sole voter: epochs, appends, snapshots, and what kills and disks leave."""

from __future__ import annotations

import errno
import itertools
import random
import uuid
from collections.abc import Callable

import pytest

from aiokq.broker.metadata.image.records import TOPIC_CONFIG
from aiokq.broker.metadata.log import metadata_batches
from aiokq.broker.metadata.log.cluster_metadata_log import ClusterMetadataLog, LogLimits
from aiokq.broker.metadata.log.quorum_state import (
    QuorumState,
    read_quorum_state,
    write_quorum_state,
)
from aiokq.broker.metadata.log.snapshot_file import list_snapshots, snapshot_path
from aiokq.broker.metadata.log.voters import only_voter
from aiokq.core.errors import KafkaStorage
from aiokq.records.header import iter_headers
from aiokq.wire.cluster_metadata_records import ConfigRecord, NoOpRecord, RemoveTopicRecord
from aiokq.wire.quorum_records import KRaftVersionRecord
from tests.sim.harness.files import MemoryFile, MemoryFiles
from tests.unit.broker.log.test_cleaner_crash import Crash, MortalFiles
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


def large(count: int) -> list[ConfigRecord]:
    """Return records of 30 kB; 279 of them fit in a batch."""
    return [
        ConfigRecord(
            resource_type=TOPIC_CONFIG, resource_name="t0", name=f"n{number}", value="v" * 30_000
        )
        for number in range(count)
    ]


def call_number(wanted: int) -> Callable[[str], bool]:
    """Return a function for ``MemoryFiles.fail`` that is true for the call with this number."""
    calls = itertools.count(1)
    return lambda path: next(calls) == wanted


def cutting_sync(
    files: MemoryFiles, ends_at: int | None, seed: int
) -> Callable[[MemoryFile], None]:
    """Return a ``sync`` that cuts the power instead at the call with the number ``ends_at``."""
    calls = itertools.count(1)
    sync = MemoryFile.sync

    def sync_or_cut(file: MemoryFile) -> None:
        if next(calls) == ends_at:
            files.power_cut(random.Random(seed))
        sync(file)

    return sync_or_cut


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
    """kraft.version 1: the control records are in a batch of their own, which is synced first."""
    voters = only_voter(NODE, uuid.UUID(int=7001), [])
    change = KRaftVersionRecord(k_raft_version=1), voters, NoOpRecord(), *topic(1)
    log = opened(files)
    before = log.end_offset
    syncs: list[str] = []
    files.fail("sync", matches=lambda path: bool(syncs.append(path)))
    assert log.append(*change) == before + 5
    assert len(syncs) == 2
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


def syncs_of(files: MemoryFiles, action: Callable[[], object]) -> list[str]:
    """Return the paths that are synced during a call."""
    synced: list[str] = []
    for operation in ("sync", "sync_dir"):
        files.fail(operation, matches=lambda path: bool(synced.append(path)))
    action()
    files.heal()
    return synced


def test_a_restart_after_a_clean_stop_syncs_only_the_log(files: MemoryFiles) -> None:
    """The other starts sync quorum-state and its name first."""
    log = opened(files)
    log.append(*topic(0))
    log.close()
    whole = [f"{DIRECTORY}/quorum-state.tmp", DIRECTORY, f"{DIRECTORY}/{0:020d}.log"]
    starts: list[ClusterMetadataLog] = []
    for _ in range(15):  # up to an epoch of two digits
        assert syncs_of(files, lambda: starts.append(opened(files, clean=True))) == whole[2:]
        starts[-1].close()
    assert syncs_of(files, lambda: opened(files, clean=False)) == whole
    # Apache Kafka writes the file without padding.
    write_quorum_state(files, DIRECTORY, read_quorum_state(files, DIRECTORY))
    assert syncs_of(files, lambda: opened(files, clean=True)) == whole
    assert syncs_of(files, lambda: opened(files, clean=True)) == whole[2:]


def test_a_state_that_cannot_be_overwritten_is_replaced(files: MemoryFiles) -> None:
    """A write that fails may leave a part of the new state in the file."""
    opened(files).close()
    for written in (0, 1, 60, 100):
        files.fail("pwritev", matches=lambda path: path.endswith("quorum-state"), written=written)
        log = opened(files, clean=True)
        assert read_quorum_state(files, DIRECTORY) == QuorumState(log.epoch, NODE, voters=(NODE,))
        log.close()


def test_the_name_of_a_segment_that_the_start_creates_is_synced(files: MemoryFiles) -> None:
    """The snapshot stands for the log before it, whose files were removed by hand."""
    log = opened(files)
    log.append(*topic(0))
    log.snapshot()
    log.close()
    for name in files.listdir(DIRECTORY):
        if name.endswith(".log"):
            files.remove(f"{DIRECTORY}/{name}")
    opened(files, clean=True).append(*topic(1))
    files.power_cut()
    assert set(read(files).image.topics) == {"t0", "t1"}


@pytest.mark.parametrize("ordered", [True, False])
def test_a_power_cut_at_any_step_of_a_clean_restart_loses_nothing(ordered: bool) -> None:
    """No epoch has the records of two starts, although quorum-state is not synced."""
    for ends_at, seed in itertools.product(range(100), range(4)):
        files = MortalFiles()
        files.mkdirs("/data")
        files.sync_dir("/")
        log = opened(files)
        log.append(*topic(0))
        log.close()
        rng = random.Random(seed)
        files.ends_at, files.done = ends_at, 0
        acknowledged = {"t0"}
        try:
            log = opened(files, clean=True)
            log.append(*topic(1))
            acknowledged.add("t1")
        except Crash:
            pass
        files.ends_at = None
        files.power_cut(rng, ordered=ordered)
        assert read_quorum_state(files, DIRECTORY).epoch in (1, 2)
        for number in (2, 3):
            log = opened(files)
            log.append(*topic(number))
            acknowledged.add(f"t{number}")
            files.power_cut(rng, ordered=ordered)
            state = read(files)
            assert acknowledged <= set(state.image.topics)
            assert state.epoch == log.epoch
        led = epochs_led(files)
        assert led == sorted(set(led))
        if "t1" in acknowledged:
            break
    assert ends_at > 10


def epochs_led(files: MemoryFiles) -> list[int]:
    """Return the epochs of the control batches, in the order of the log."""
    data = b"".join(
        files.read_bytes(f"{DIRECTORY}/{name}")
        for name in files.listdir(DIRECTORY)
        if name.endswith(".log")
    )
    return [one.leader_epoch for one in iter_headers(data) if one.is_control]


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
        if log.is_snapshot_due:
            log.snapshot()
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
    """It stays due, and the log keeps all records until then."""
    limits = LogLimits(snapshot_bytes=4000)
    log = opened(files, limits=limits)
    log.append(*topic(0))
    files.fail(
        operation,
        errno.ENOSPC,
        matches=lambda path: "checkpoint" in path or (operation, path) == ("sync_dir", DIRECTORY),
        times=None,
    )
    for number in range(20):
        log.append(config(number))
        if log.is_snapshot_due:
            with pytest.raises(OSError, match="No space left"):
                log.snapshot()
    assert log.is_snapshot_due
    assert log.start_offset == 0
    assert not list_snapshots(files, DIRECTORY) or operation == "sync_dir"
    assert not [name for name in files.listdir(DIRECTORY) if name.endswith(".part")]
    files.heal()
    log.snapshot()
    assert not log.is_snapshot_due
    assert list_snapshots(files, DIRECTORY)
    files.power_cut()
    assert read(files).image.topic_configs("t0") == {"a": f"{19:0500}"}


@pytest.mark.parametrize("step", ["roll", "name of the new segment", "removal"])
def test_what_fails_after_a_snapshot_harms_nothing(step: str) -> None:
    """The snapshot is there, and so are the records that are appended next, after a power cut."""
    for seed in range(20):
        files = memory()
        log = opened(files)
        log.append(*topic(0))
        for number in range(3):
            log.append(config(number))
            log.snapshot()
        log.append(config(3), config(4))
        end = f"{log.end_offset:020d}"
        operation, matches = {
            "roll": ("open", f"{DIRECTORY}/{end}.log".__eq__),
            "name of the new segment": ("sync_dir", call_number(2)),
            "removal": ("remove", call_number(1)),
        }[step]
        fault = files.fail(operation, errno.EMFILE, matches=matches, times=2)
        with pytest.raises((OSError, KafkaStorage)):
            log.snapshot()
        assert fault.times == 1
        files.heal()
        log.append(config(5))
        files.power_cut(random.Random(seed))
        state = read(files)
        assert state.image.topic_configs("t0") == {"a": f"{5:0500}"}
        assert state.snapshot is not None
        assert state.snapshot.end_offset == int(end)
        log = opened(files)
        log.append(config(6))
        log.snapshot()
        assert read(files).image.topic_configs("t0") == {"a": f"{6:0500}"}


def test_the_first_snapshot_removes_nothing(files: MemoryFiles) -> None:
    """Kafka removes segments when it has two snapshots; until then, one would be the only copy."""
    log = opened(files)
    log.append(*topic(0))
    expected = list(log.image.records())
    first = log.snapshot()
    assert log.start_offset == 0
    log.append(config(1))
    log.close()
    files.remove(snapshot_path(DIRECTORY, first))
    assert list(read(files).image.records())[: len(expected)] == expected
    files = memory()
    log = opened(files)
    first = log.snapshot()
    log.append(*topic(0))
    log.snapshot()
    assert log.start_offset == first.end_offset, "a second snapshot is enough"


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


@pytest.mark.parametrize("rolled_by", ["append", "snapshot"])
def test_records_in_a_segment_whose_name_was_not_synced_survive(rolled_by: str) -> None:
    """Regression: only the call that had rolled the log synced the name of the new segment."""
    for seed in range(30):
        files = memory()
        log = opened(files)
        log.append(*topic(0))
        if rolled_by == "append":
            log._log.roll(1000)
            files.fail("pwritev", errno.EMFILE, matches=lambda path: path.endswith(".log"))
            with pytest.raises(KafkaStorage):
                log.append(*topic(1))
        else:
            files.fail("sync_dir", matches=call_number(2))
            with pytest.raises(OSError, match="Input/output"):
                log.snapshot()
            assert len(log._log.segments) == 2
        log.append(*topic(1))
        files.power_cut(random.Random(seed))
        assert set(read(files).image.topics) == {"t0", "t1"}


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.EIO])
@pytest.mark.parametrize("operation", ["sync", "sync_dir"])
def test_a_log_that_could_not_be_synced_takes_its_directory_offline(
    files: MemoryFiles, operation: str, error: int
) -> None:
    """Whatever the error: the node would live on and refuse every change."""
    log = opened(files, limits=LogLimits(closing_bytes=1))
    log._log.roll(1000)
    reported: list[KafkaStorage] = []
    log._disk.listener = reported.append
    files.fail(operation, error, matches=lambda path: path.startswith(DIRECTORY))
    with pytest.raises(KafkaStorage):
        log.append(*topic(0))
    files.heal()
    assert reported == [log._disk.failure]
    assert "log directory /data is offline until the broker restarts" in reported[0].message
    assert "start the broker again" in reported[0].message
    for refused in (lambda: log.append(*topic(0)), log.copy_image, log.snapshot):
        with pytest.raises(KafkaStorage, match="could not be synced"):
            refused()
    with pytest.raises(KafkaStorage, match="is offline"):
        log.close()
    assert not list_snapshots(files, DIRECTORY), "it would lack records that the log may have"
    assert set(read(files).image.topics) <= {"t0"}


@pytest.mark.parametrize("ends_at", [1, 2, 3, None])
def test_a_power_cut_during_an_append_of_several_batches_leaves_the_first_ones(
    monkeypatch: pytest.MonkeyPatch, ends_at: int | None
) -> None:
    """Regression: a later batch was there without an earlier one, and each start was refused.

    Args:
        ends_at: the sync during which the power fails; None for a cut after the append.
    """
    monkeypatch.setattr(metadata_batches, "MAX_BATCH_BYTES", 70_000)
    found = set()
    for seed in range(20):
        files = memory()
        log = opened(files)
        log.append(*topic(0))
        with monkeypatch.context() as patched:
            patched.setattr(MemoryFile, "sync", cutting_sync(files, ends_at, seed))
            if ends_at is None:
                log.append(*large(6))
                files.power_cut(random.Random(seed))
            else:
                with pytest.raises(KafkaStorage):
                    log.append(*large(6))
        found.add(len(read(files).image.topic_configs("t0")))
        opened(files)
    assert found <= ({6} if ends_at is None else {2 * ends_at - 2, 2 * ends_at})


def test_voters_move_into_the_log_or_not_at_a_power_cut() -> None:
    """The data batch never reaches the disk without the control batch before it."""
    voters = only_voter(NODE, uuid.UUID(int=7001), [])
    for seed in range(60):
        files = memory()
        log = opened(files)
        log.append(*topic(0))
        while len(files.read_bytes(f"{DIRECTORY}/{0:020d}.log")) % 4096 < 3500:
            log.append(config(0))
        files.fail("sync", matches=lambda path: path.endswith(".log"))
        with pytest.raises(KafkaStorage):
            log.append(KRaftVersionRecord(k_raft_version=1), voters, *topic(1))
        files.power_cut(random.Random(seed))
        state = read(files)
        assert (state.kraft_version, "t1" in state.image.topics) in ((0, False), (1, False))
        opened(files)


def test_records_that_do_not_fit_in_a_segment_are_appended(files: MemoryFiles) -> None:
    """Regression: a large node whose segments are as small as may be could not start."""
    limits = LogLimits(segment_bytes=8 * 1024 * 1024)
    log = opened(files, limits=limits)
    log.append(*topic(0), *large(400))
    log.close()
    log = opened(files, lead=False, limits=limits)
    log.lead(large(800)[400:])
    assert len(log._log.segments) > 2
    for seed in range(3):
        files.power_cut(random.Random(seed))
        assert len(read(files).image.topic_configs("t0")) == 800
    assert opened(files, limits=limits).end_offset == log.end_offset + 1


def test_a_first_append_that_exceeds_a_segment_only_with_the_control_batch(
    files: MemoryFiles,
) -> None:
    """The two batches are then written to two segments."""
    log = opened(files)
    log.append(*topic(0))
    log.close()
    log = opened(files, lead=False, limits=LogLimits(segment_bytes=680))
    log.lead([config(1)])
    files.power_cut()
    assert read(files).image.topic_configs("t0") == {"a": f"{1:0500}"}
