"""LogDirectory: ids, lock, clean shutdowns, kills, deletions, and I/O errors."""

from __future__ import annotations

import errno
import random
import uuid

import pytest

from aiokq.broker.log import file_names
from aiokq.broker.log.directory import LogDirectory
from aiokq.broker.log.partition_directories import PartitionDirectories
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.broker.log.partition_metadata import write_partition_metadata
from aiokq.broker.log.producer_state import Origin
from aiokq.core.errors import ConfigError, KafkaStorage
from aiokq.core.files import OsFiles, Path
from aiokq.core.types import TopicPartition
from aiokq.fastpath import crc32c
from aiokq.records.control import ControlType, EndTransactionMarker, encode_marker
from aiokq.records.header import TRANSACTIONAL_MASK
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.samples import NOW_MS, TP, append, batch, config, values
from tests.unit.broker.log.test_recovery import log_reads

PATH = "/data"
ONE = len(batch(b"old"))
PRODUCER = {"producer_id": 9, "producer_epoch": 0}
"""Bytes of a small batch; used as segment.bytes it makes a segment of each."""
TOPIC_ID = uuid.UUID("78e51061-7311-48a3-820b-3d847ed4d57b")


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def open_directory(files: MemoryFiles, **options: object) -> LogDirectory:
    options.setdefault("now", lambda: 0.0)
    directory = LogDirectory.open(files, PATH, crc32c=crc32c, random=random.Random(1), **options)
    directory.begin()
    return directory


def partition(directory: LogDirectory, tp: TopicPartition = TP, **settings: object) -> PartitionLog:
    return directory.open_partition(tp, TOPIC_ID, config(**settings), now_ms=NOW_MS)


def test_a_new_directory_gets_ids_and_keeps_them(files: MemoryFiles) -> None:
    """Clients remember the cluster id: a restart must not look like another cluster."""
    directory = open_directory(files)
    first = directory.properties
    assert first.node_id == 0
    assert len(first.cluster_id) == 22
    assert not directory.clean
    directory.close()
    again = open_directory(files)
    assert again.properties == first
    assert again.clean


def test_another_nodes_directory_is_refused(files: MemoryFiles) -> None:
    """Two nodes that alternate on a directory would each take the other's records for its own."""
    open_directory(files, node_id=4, cluster_id="mine").close()
    with pytest.raises(ConfigError, match="belongs to node 4, not 5"):
        open_directory(files, node_id=5)
    with pytest.raises(ConfigError, match="belongs to cluster mine"):
        open_directory(files, cluster_id="other")
    assert open_directory(files, node_id=4).properties.cluster_id == "mine"  # the lock was released


def test_a_directory_in_use_is_refused_with_what_to_do(files: MemoryFiles) -> None:
    """Two brokers appending to one file destroy it."""
    first = open_directory(files)
    with pytest.raises(KafkaStorage, match=r"in use.*stop the other broker") as caught:
        open_directory(files)
    assert caught.value.code == 56
    first.close()
    first.close()
    open_directory(files)


@pytest.mark.parametrize("operation", ["mkdirs", "open", "read_bytes"])
def test_a_directory_that_cannot_be_used_is_refused_with_what_to_do(
    files: MemoryFiles, operation: str
) -> None:
    """It is read-only, full, or another user's."""
    open_directory(files).close()
    files.fail(operation, errno.EACCES)
    with pytest.raises(KafkaStorage, match="make the directory writable"):
        open_directory(files)
    open_directory(files)


def test_the_clean_marker_is_gone_while_the_broker_runs(files: MemoryFiles) -> None:
    """A crash after a start from a clean shutdown is an unclean shutdown (KAFKA-10471)."""
    marker = f"{PATH}/{file_names.CLEAN_SHUTDOWN}"
    directory = open_directory(files)
    directory.close()
    assert files.read_bytes(marker) == b'{"version": 0, "brokerEpoch": -1}'
    again = open_directory(files)
    assert not files.exists(marker)
    again.close(clean=False)
    assert not files.exists(marker)
    assert not open_directory(files).clean


@pytest.mark.parametrize("clean", [True, False])
def test_records_survive_stops_of_both_kinds(files: MemoryFiles, clean: bool) -> None:
    """After SIGKILL all acknowledged batches are in the page cache."""
    directory = open_directory(files)
    log = partition(directory)
    append(log, batch(b"a", b"b"))
    if clean:
        directory.close()
    files.crash()
    directory = open_directory(files)
    assert directory.clean is clean
    assert directory.on_disk.partitions() == {TP: TOPIC_ID}
    assert values(partition(directory)) == [(0, b"a"), (1, b"b")]
    assert directory.size_bytes > 0
    assert list(directory.logs) == [TP]


def test_a_clean_stop_survives_a_power_cut(files: MemoryFiles) -> None:
    """The marker says that everything is durable, which must be true before the marker is."""
    directory = open_directory(files)
    log = partition(directory, segment_bytes=200)
    for index in range(5):
        append(log, batch(b"%d" % index))
    directory.close()
    files.power_cut()
    directory = open_directory(files)
    assert directory.clean
    assert [value for _, value in values(partition(directory))] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_clean_stop_keeps_a_transaction_index_that_a_flush_has_not_created(
    files: MemoryFiles,
) -> None:
    """The flush of an older segment syncs the names before the first entry creates the file.

    Without the file, aborted records would be read as committed.
    """
    directory = open_directory(files)
    log = partition(directory, segment_bytes=2 * ONE)
    for index in range(3):
        append(log, batch(b"%d" % index))
    append(log, batch(b"t", base_sequence=0, attributes=TRANSACTIONAL_MASK, **PRODUCER))
    marker = EndTransactionMarker(ControlType.ABORT, 1)
    append(
        log,
        encode_marker(marker, timestamp_ms=NOW_MS, crc32c=crc32c, **PRODUCER),
        origin=Origin.COORDINATOR,
    )
    flush = log.begin_flush(log.segments[-1].base_offset)
    assert flush is not None
    flush.sync(files)
    log.end_flush(flush)
    directory.close()
    files.power_cut()
    names = files.listdir(f"{PATH}/{TP}")
    assert [name for name in names if name.endswith(file_names.TXN_INDEX)]


def test_after_a_clean_stop_nothing_is_scanned(files: MemoryFiles) -> None:
    """The marker lets a thousand partitions open in seconds."""
    directory = open_directory(files)
    settings = {"segment_bytes": 100 * ONE, "index_interval_bytes": 0}
    log = partition(directory, **settings)
    for _ in range(150):
        append(log, batch(b"old"))
    directory.close()
    before = log_reads(files)
    partition(open_directory(files), **settings)
    assert log_reads(files) - before < 3 * ONE


def test_a_power_cut_after_a_start_does_not_bring_the_marker_back(files: MemoryFiles) -> None:
    """The marker would cover later writes, of which half may be lost."""
    open_directory(files).close()
    assert open_directory(files).clean
    files.power_cut()
    assert not open_directory(files).clean


def test_deleted_records_stay_deleted_where_a_power_cut_brings_their_segments_back(
    files: MemoryFiles,
) -> None:
    """The renames are not synced, so the checkpoint has to contain the new start."""
    directory = open_directory(files)
    log = partition(directory, segment_bytes=ONE)
    for _ in range(5):
        append(log, batch(b"old"))
    directory.close()
    directory = open_directory(files)
    log = partition(directory, segment_bytes=ONE)
    log.delete_records(3)
    assert log.segments[0].base_offset == 3
    directory.write_log_starts()
    files.power_cut()
    log = partition(open_directory(files), segment_bytes=ONE)
    assert (log.segments[0].base_offset, log.log_start_offset) == (0, 3)


def test_checkpoints_are_left_for_kafka(files: MemoryFiles) -> None:
    """A Kafka broker started on the directory reads where each log ends."""
    directory = open_directory(files)
    append(partition(directory), batch(b"a", b"b"))
    directory.close()
    for name in (file_names.RECOVERY_POINTS, file_names.HIGH_WATERMARKS):
        assert files.read_bytes(f"{PATH}/{name}") == b"0\n1\norders 0 2\n"
    assert files.read_bytes(f"{PATH}/{file_names.LOG_STARTS}") == b"0\n0\n"


def test_deleted_records_stay_deleted(files: MemoryFiles) -> None:
    """DeleteRecords was acknowledged, so neither a restart nor a kill may restore the records."""
    directory = open_directory(files)
    log = partition(directory)
    append(log, batch(b"a", b"b", b"c"))
    log.delete_records(2)
    directory.write_log_starts()
    files.crash()
    log = partition(open_directory(files))
    assert log.log_start_offset == 2


def test_a_deleted_partition_is_gone_at_once_and_its_files_later(files: MemoryFiles) -> None:
    """The name can be reused while responses are still sent from the old files."""
    directory = open_directory(files)
    log = partition(directory)
    append(log, batch(b"old"))
    fragment = log.read(0, 1000).fragments[0]
    directory.delete_partition(TP)
    assert TP not in directory.logs
    assert directory.on_disk.partitions() == {}
    with pytest.raises(KafkaStorage):
        append(log, batch())
    assert len(fragment.read()) == len(fragment)
    new = partition(directory)
    assert values(new) == []
    append(new, batch(b"new"))
    assert [n for n in files.listdir(PATH) if n.endswith("-delete")]
    directory.purge()
    assert not [n for n in files.listdir(PATH) if n.endswith("-delete")]
    assert values(new) == [(0, b"new")]
    assert len(fragment.read()) == len(fragment)  # a slow client takes longer than the delay


def test_a_file_that_cannot_be_removed_keeps_no_other(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is logged, and the next start removes the files; no request waits for it."""
    directory = open_directory(files)
    logs = [partition(directory, TopicPartition(name, 0), segment_bytes=ONE) for name in "ab"]
    for log in logs:
        for _ in range(3):
            append(log, batch(b"old"))
        log.delete_records(2)
    files.fail("remove", errno.EIO, matches=lambda path: "/a-0/" in path and "0.log.d" in path)
    with caplog.at_level("WARNING"):
        directory.purge()
    left = [
        f"{name}/{file}"
        for name in ("a-0", "b-0")
        for file in files.listdir(f"{PATH}/{name}")
        if file.endswith(file_names.DELETED)
    ]
    assert left[0] == f"a-0/{0:020d}.index.deleted"
    assert {path[:24] for path in left} == {f"a-0/{0:020d}"}
    assert "a-0" in caplog.text
    directory.close()
    partition(open_directory(files), TopicPartition("a", 0))
    assert not files.exists(f"{PATH}/{left[0]}")


def test_half_deleted_directories_go_at_the_next_start(files: MemoryFiles) -> None:
    """The process was killed between rename and removal."""
    directory = open_directory(files)
    append(partition(directory), batch())
    directory.delete_partition(TP)
    files.crash()
    directory = open_directory(files)
    assert not [n for n in files.listdir(PATH) if n.endswith("-delete")]
    directory.delete_partition(TP)  # it does not exist: nothing to do


def test_records_of_another_topic_of_that_name_are_not_served(files: MemoryFiles) -> None:
    """The process was killed after a deletion was recorded and before it was carried out."""
    directory = open_directory(files)
    append(partition(directory), batch(b"old"))
    directory.close()
    directory = open_directory(files)
    other = uuid.UUID(int=5)
    log = directory.open_partition(TP, other, config(), now_ms=NOW_MS)
    assert values(log) == []
    [stray] = [name for name in files.listdir(PATH) if name.endswith("-stray")]
    assert files.stat_size(f"{PATH}/{stray}/{0:020d}.log")
    assert directory.on_disk.partitions() == {TP: other}
    directory.close()
    assert open_directory(files).on_disk.partitions() == {TP: other}


@pytest.mark.parametrize("content", [b"", b"\0" * 40])
def test_a_topic_id_that_a_power_cut_took_is_written_again(
    files: MemoryFiles, content: bytes
) -> None:
    """Regression: each start logged a complaint, and a new topic would have got the records."""
    append(partition(open_directory(files)), batch(b"old"))
    files.crash()
    files.write_atomic(f"{PATH}/{TP}/{file_names.PARTITION_METADATA}", content)
    assert values(partition(open_directory(files))) == [(0, b"old")]
    files.crash()
    assert open_directory(files).on_disk.partitions() == {TP: TOPIC_ID}


def test_a_log_that_cannot_be_closed_leaves_no_clean_marker(files: MemoryFiles) -> None:
    """With the marker the next start would trust records that were never synced."""
    directory = open_directory(files)
    for name in ("a", "b"):
        append(partition(directory, TopicPartition(name, 0)), batch(b"x"))
    files.fail("sync", errno.EIO, matches=lambda path: "/a-0/" in path)
    with pytest.raises(KafkaStorage):
        directory.close()
    again = open_directory(files)
    assert not again.clean
    for name in ("a", "b"):
        assert values(partition(again, TopicPartition(name, 0))) == [(0, b"x")]


def test_a_partition_that_cannot_be_opened_is_a_storage_error(files: MemoryFiles) -> None:
    """The partition gets KAFKA_STORAGE_ERROR, and the broker continues."""
    directory = open_directory(files)
    files.fail("open", errno.ENOSPC)
    with pytest.raises(KafkaStorage, match=r"cannot be created: No space .* then creates it"):
        partition(directory)
    assert directory.disk.failure is None
    partition(directory)


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_with_records_that_cannot_be_opened_on_a_full_disk_takes_it_offline(
    files: MemoryFiles, clean: bool
) -> None:
    """Only the creation of a log may be repeated without a restart."""
    directory = open_directory(files)
    append(partition(directory), batch(b"x"))
    if clean:
        directory.close()
    files.crash()
    files.remove(f"/data/orders-0/{file_names.PARTITION_METADATA}")
    directory = open_directory(files)
    files.fail("pwritev", errno.ENOSPC)
    with pytest.raises(KafkaStorage, match=r"cannot be opened: No space .* start the broker again"):
        partition(directory)
    assert directory.disk.failure is not None
    assert files.exists("/data/orders-0/00000000000000000000.log")


def test_the_directory_of_another_topic_is_kept_if_there_is_no_space(files: MemoryFiles) -> None:
    """A creation that fails removes only files of its own."""
    directory = open_directory(files)
    append(partition(directory), batch(b"x"))
    directory.close()
    files.crash()
    directory = open_directory(files)
    files.fail("rename", errno.ENOSPC)
    other = uuid.UUID(int=7)
    with pytest.raises(KafkaStorage, match="No space"):
        directory.load_partition(TP, other, config(), now_ms=NOW_MS, is_new=True)
    files.fail("open", errno.ENOSPC)
    with pytest.raises(KafkaStorage, match="cannot be created"):
        directory.load_partition(TP, other, config(), now_ms=NOW_MS, is_new=True)
    assert directory.disk.failure is None
    [kept] = [name for name in files.listdir("/data") if name.endswith("-stray")]
    assert files.stat_size(f"/data/{kept}/00000000000000000000.log") == len(batch(b"x"))
    directory.load_partition(TP, other, config(), now_ms=NOW_MS, is_new=True)


@pytest.mark.parametrize("killed_at", ["after the deletion", "after the creation", "later"])
def test_a_topic_made_anew_has_nothing_of_the_old_ones_checkpoints(
    files: MemoryFiles, killed_at: str
) -> None:
    """The old topic's log start would hide acknowledged records of the new one after a kill."""
    directory = open_directory(files)
    log = partition(directory, segment_bytes=ONE)
    for _ in range(6):
        append(log, batch(b"old"))
    log.delete_records(4)
    directory.write_log_starts()
    directory.close()
    directory = open_directory(files)
    partition(directory)
    directory.delete_partition(TP)
    if killed_at == "after the deletion":
        files.crash()
        directory = open_directory(files)
    log = partition(directory, segment_bytes=ONE)
    if killed_at == "after the creation":
        files.crash()
        directory = open_directory(files)
        log = partition(directory, segment_bytes=ONE)
    for index in range(6):
        append(log, batch(b"%03d" % index))
    files.crash()
    # the old recovery point must not cover any of its segments
    path = file_names.segment_file(f"{PATH}/{TP}", 2, file_names.LOG)
    files.corrupt(path, 66)
    log = partition(open_directory(files))
    assert values(log) == [(0, b"000"), (1, b"001")]


def test_a_topic_made_anew_has_no_high_watermark_of_the_old_one(files: MemoryFiles) -> None:
    """Apache Kafka, started on the directory after a kill, would read beyond the log end."""
    directory = open_directory(files)
    append(partition(directory), batch(b"old"))
    directory.note_high_watermarks()
    directory.checkpoints.high_watermarks.write()
    directory.delete_partition(TP)
    files.crash()
    directory = open_directory(files)
    partition(directory)
    directory.checkpoints.high_watermarks.write()
    assert directory.checkpoints.high_watermarks.get(TP) is None


def test_a_clean_stop_forgets_the_log_starts_of_deleted_partitions(files: MemoryFiles) -> None:
    """Each DeleteRecords writes all log starts, so stale ones would make it slower and slower."""
    directory = open_directory(files)
    for index in range(3):
        tp = TopicPartition("gone", index)
        log = partition(directory, tp)
        append(log, batch(b"old"))
        log.delete_records(1)
        directory.write_log_starts()
        directory.delete_partition(tp)
    directory.close()
    assert files.read_bytes(f"{PATH}/{file_names.LOG_STARTS}") == b"0\n0\n"


def test_a_clean_stop_forgets_what_was_compacted_of_deleted_partitions(files: MemoryFiles) -> None:
    """With a topic per test or day the checkpoint would grow for ever, and each run writes it."""
    directory = open_directory(files)
    for topic in ("gone", "here"):
        partition(directory, TopicPartition(topic, 0))
        directory.checkpoints.cleaned_offsets.note(TopicPartition(topic, 0), 5)
    directory.checkpoints.cleaned_offsets.write()
    directory.delete_partition(TopicPartition("gone", 0))
    directory.close()
    assert files.read_bytes(f"{PATH}/{file_names.CLEANED_OFFSETS}") == b"0\n1\nhere 0 5\n"


def test_checkpoints_of_partitions_that_are_not_open_stay(files: MemoryFiles) -> None:
    """While one log is loaded, DeleteRecords on another must not restore its records."""
    directory = open_directory(files)
    for name in ("a", "b"):
        log = partition(directory, TopicPartition(name, 0))
        append(log, batch(b"x", b"y"))
        log.delete_records(1)
    directory.close()
    directory = open_directory(files)
    partition(directory, TopicPartition("a", 0)).delete_records(2)
    directory.write_log_starts()
    files.crash()
    directory = open_directory(files)
    assert partition(directory, TopicPartition("a", 0)).log_start_offset == 2
    assert partition(directory, TopicPartition("b", 0)).log_start_offset == 1


def test_a_recovery_point_behind_a_cut_vouches_for_nothing(files: MemoryFiles) -> None:
    """Segments written after a truncation are below the old recovery point but not synced."""
    directory = open_directory(files)
    log = partition(directory)
    for _ in range(6):
        append(log, batch(b"old"))
    directory.close()
    directory = open_directory(files)
    files.crash()
    size = files.stat_size(file_names.segment_file(f"{PATH}/{TP}", 0, file_names.LOG)) // 6
    files.corrupt(file_names.segment_file(f"{PATH}/{TP}", 0, file_names.LOG), size + 66)
    directory = open_directory(files)
    log = partition(directory, segment_bytes=ONE)
    assert log.log_end_offset == 1
    for index in range(5):
        append(log, batch(b"%03d" % index))
    files.crash()
    files.corrupt(file_names.segment_file(f"{PATH}/{TP}", 2, file_names.LOG), 66)
    assert values(partition(open_directory(files))) == [(0, b"old"), (1, b"000")]


def test_what_takes_the_place_of_compacted_records_that_were_cut_off_is_compacted(
    files: MemoryFiles,
) -> None:
    """Such records would count as compacted for ever; a crash may follow at once."""
    directory = open_directory(files)
    log = partition(directory)
    for _ in range(6):
        append(log, batch(b"old"))
    directory.checkpoints.cleaned_offsets.note(TP, 5)
    directory.checkpoints.cleaned_offsets.write()
    files.crash()
    size = files.stat_size(file_names.segment_file(f"{PATH}/{TP}", 0, file_names.LOG)) // 6
    files.corrupt(file_names.segment_file(f"{PATH}/{TP}", 0, file_names.LOG), size + 66)
    directory = open_directory(files)
    assert partition(directory).log_end_offset == 1
    assert directory.checkpoints.cleaned_offsets.get(TP) == 1
    files.crash()
    assert open_directory(files).checkpoints.cleaned_offsets.get(TP) == 1


def test_a_stop_is_clean_without_a_log_that_was_deleted_before_its_recovery(
    files: MemoryFiles,
) -> None:
    """Regression: after the deletion of a damaged topic each start recovered all other logs."""
    append(partition(open_directory(files)), batch(b"0"))
    files.crash()
    directory = open_directory(files)
    files.fail("pread", errno.EMFILE)
    with pytest.raises(KafkaStorage):
        partition(directory)
    directory.delete_partition(TP)
    directory.close()
    assert open_directory(files).clean


@pytest.mark.parametrize(
    ("is_kafkas", "cleanup_policy", "hole"),
    [
        (False, ("delete",), True),
        (False, ("compact",), True),  # aiokq's cleaner leaves no gaps
        (False, (), False),  # a directory of unknown history
        (True, ("delete",), True),
        (True, ("compact",), False),
    ],
)
def test_what_a_gap_between_segments_is_depends_on_who_compacted(
    files: MemoryFiles, is_kafkas: bool, cleanup_policy: tuple[str, ...], hole: bool
) -> None:
    """Apache Kafka's cleaner leaves gaps; a power cut leaves holes."""
    log = partition(open_directory(files), segment_bytes=len(batch()))
    for _ in range(3):
        append(log, batch())
    files.crash()
    files.remove(file_names.segment_file(log.directory, 1, file_names.LOG))
    log = open_directory(files).load_partition(
        TP, TOPIC_ID, config(cleanup_policy=cleanup_policy), now_ms=NOW_MS, is_kafkas=is_kafkas
    )
    assert [offset for offset, _ in values(log)] == ([0] if hole else [0, 2])


def test_a_log_that_cannot_be_closed_does_not_keep_the_others_from_closing(
    files: MemoryFiles,
) -> None:
    """The lock must be released and the other logs synced, whatever happens to one log."""
    directory = open_directory(files)
    for name in ("a", "b"):
        append(partition(directory, TopicPartition(name, 0)), batch(b"x"))
    directory.close()
    directory = open_directory(files)
    for name in ("a", "b"):
        partition(directory, TopicPartition(name, 0))
    append(directory.logs[TopicPartition("b", 0)], batch(b"y"))
    directory.logs[TopicPartition("a", 0)].delete_records(1)
    files.fail("sync_dir", matches=lambda path: path == f"{PATH}/a-0")
    with pytest.raises(KafkaStorage):
        directory.close()
    directory = open_directory(files)  # the lock was released
    assert not directory.clean
    assert values(partition(directory, TopicPartition("b", 0))) == [(0, b"x"), (1, b"y")]


def test_log_starts_that_cannot_be_written_are_a_storage_error(files: MemoryFiles) -> None:
    """DeleteRecords must then fail with KAFKA_STORAGE_ERROR."""
    directory = open_directory(files)
    log = partition(directory)
    append(log, batch(b"x"))
    log.delete_records(1)
    files.fail("write_atomic", errno.ENOSPC)
    with pytest.raises(KafkaStorage, match="No space left"):
        directory.write_log_starts()


def test_a_log_that_could_not_be_recovered_is_recovered_at_the_next_start(
    files: MemoryFiles,
) -> None:
    """A log may fail to be recovered for want of descriptors, which is no failure of the disk.

    Regression: the next stop counted as clean, and records damaged by a power cut were served.
    """
    directory = open_directory(files)
    log = partition(directory)
    for index in range(3):
        append(log, batch(b"%d" % index))
    files.crash()
    files.corrupt(file_names.segment_file(f"{PATH}/{TP}", 0, file_names.LOG), ONE + 66)
    directory = open_directory(files)
    files.fail("open", errno.EMFILE, matches=lambda path: path.endswith(file_names.LOG))
    with pytest.raises(KafkaStorage, match="Too many open files"):
        partition(directory)
    directory.close()
    directory = open_directory(files)
    assert not directory.clean
    assert values(partition(directory)) == [(0, b"0")]


def test_a_log_whose_epoch_could_not_begin_is_recovered_at_the_next_start(
    files: MemoryFiles,
) -> None:
    """A log that was never served was not synced, so the shutdown is not clean."""
    append(partition(open_directory(files)), batch(b"old"))
    files.crash()
    directory = open_directory(files)
    files.fail("open", errno.EMFILE, matches=lambda path: file_names.LEADER_EPOCHS in path)
    with pytest.raises(KafkaStorage, match="Too many open files"):
        directory.load_partition(TP, TOPIC_ID, config(), now_ms=NOW_MS).assign_epoch(7)
    assert TP not in directory.logs
    directory.close()
    assert not open_directory(files).clean


def test_a_log_that_could_not_be_opened_keeps_its_start(files: MemoryFiles) -> None:
    """Otherwise its deleted records would be back after the next start."""
    directory = open_directory(files)
    log = partition(directory)
    append(log, batch(b"x", b"y"))
    log.delete_records(1)
    directory.close()
    directory = open_directory(files)
    files.fail("read_bytes", errno.EMFILE, matches=lambda path: f"/{TP}/" in path)
    with pytest.raises(KafkaStorage, match="Too many open files"):
        partition(directory)
    directory.close()
    directory = open_directory(files)
    assert directory.clean
    assert partition(directory).log_start_offset == 1


def test_foreign_files_are_left_alone(files: MemoryFiles) -> None:
    """Kafka's own __cluster_metadata, and whatever users put there."""
    files.mkdirs(f"{PATH}/lost+found")
    files.write_atomic(f"{PATH}/notes.txt", b"mine")
    directory = open_directory(files)
    assert directory.on_disk.partitions() == {}
    directory.close()
    assert files.read_bytes(f"{PATH}/notes.txt") == b"mine"


class CountingFiles(OsFiles):
    """The disk, with the number of files that were read or looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def read_bytes(self, path: Path) -> bytes:
        self.calls += 1
        return super().read_bytes(path)

    def exists(self, path: Path) -> bool:
        self.calls += 1
        return super().exists(path)

    def is_dir(self, path: Path) -> bool:
        self.calls += 1
        return super().is_dir(path)


def test_a_partition_is_listed_with_one_read(tmp_path) -> None:
    """A start lists every partition before it accepts connections."""
    files = CountingFiles()
    for index in range(5):
        (tmp_path / f"t-{index}").mkdir()
        write_partition_metadata(files, f"{tmp_path}/t-{index}", TOPIC_ID)
    (tmp_path / "t-5").mkdir()  # without its topic id
    (tmp_path / "t-6").write_bytes(b"not a directory")
    files.calls = 0
    ids = [TOPIC_ID] * 5 + [None]
    expected = {TopicPartition("t", index): topic_id for index, topic_id in enumerate(ids)}
    assert PartitionDirectories(files, str(tmp_path)).partitions() == expected
    assert files.calls == 5 + 2 * 3


def test_it_works_on_a_real_disk(tmp_path) -> None:
    """The disk in memory could differ from a real one."""
    files = OsFiles()
    path = str(tmp_path / "new" / "data")
    source = random.Random(1)
    directory = LogDirectory.open(files, path, crc32c=crc32c, random=source, now=lambda: 0.0)
    directory.begin()
    log = partition(directory, segment_bytes=300)
    for index in range(8):
        append(log, batch(b"%d" % index))
    with pytest.raises(KafkaStorage, match="in use"):
        LogDirectory.open(files, path, crc32c=crc32c, random=source, now=lambda: 0.0)
    directory.close()
    directory = LogDirectory.open(files, path, crc32c=crc32c, random=source, now=lambda: 0.0)
    directory.begin()
    assert directory.clean
    log = partition(directory)
    assert [offset for offset, _ in values(log)] == list(range(8))
    directory.close(clean=False)
    directory = LogDirectory.open(files, path, crc32c=crc32c, random=source, now=lambda: 0.0)
    directory.begin()
    assert not directory.clean
    assert [offset for offset, _ in values(partition(directory))] == list(range(8))
    directory.delete_partition(TP)
    directory.close()
    assert sorted(p.name for p in (tmp_path / "new" / "data").iterdir() if p.is_dir()) == []
