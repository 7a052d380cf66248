"""Inspection of log directories: the content of each file, and reports of damage."""

from __future__ import annotations

import struct

import pytest

from aiokq.broker.inspection.contents import contents
from aiokq.broker.inspection.findings import Severity
from aiokq.broker.inspection.places import LogFile, files_at
from aiokq.broker.inspection.verifying import Report, verify
from aiokq.broker.log import file_names
from aiokq.broker.log.checkpoint_file import write_offsets
from aiokq.core.types import TopicPartition
from aiokq.fastpath import crc32c
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.harness import NOW_MS, Broker, batch

FIRST = "/data/t-0/00000000000000000000"
SECOND = "/data/t-0/00000000000000000003"


async def directory(*, clean: bool = True) -> MemoryFiles:
    """One partition of two segments: three batches of one record, then of three, two and two."""
    broker = Broker()
    async with broker:
        await broker.create("t", index_interval_bytes=1)
        sequence = 0
        for count in (1, 1, 1, 3, 2, 2):
            if count == 3:
                broker.node.topics.partition("t", 0).log.roll(NOW_MS)
            known = {"producer_id": 4, "producer_epoch": 0, "base_sequence": sequence}
            assert (await broker.produce("t", batch(count, **known))).error_code == 0
            sequence += count
        if not clean:
            broker.files.crash()
            broker.node._storage = None
    if not clean and broker.files.exists("/data/.kafka_cleanshutdown"):
        broker.files.remove("/data/.kafka_cleanshutdown")
    return broker.files


def check(files: MemoryFiles, path: str = "/data", *, deep: bool = False) -> Report:
    """Verify the directory, and check that the verification writes nothing."""
    for operation in ("pwritev", "truncate", "rename", "remove", "mkdirs", "write_atomic", "lock"):
        files.fail(operation, times=None)
    try:
        return verify(files, path, crc32c=crc32c, deep=deep)
    finally:
        files.heal()


def found(report: Report) -> list[tuple[str, str, int | None]]:
    return [
        (finding.severity.value, finding.path.removeprefix("/data/"), finding.position)
        for finding in report.findings
    ]


async def test_a_sound_directory_has_nothing_to_complain_about():
    """False reports of damage make users ignore true ones."""
    files = await directory()
    report = check(files, deep=True)
    assert (found(report), report.sound, report.clean) == ([], True, True)
    metadata, partition = report.partitions
    assert (metadata.path, metadata.partition) == ("/data/__cluster_metadata-0", None)
    assert (partition.partition, partition.start, partition.end) == (TopicPartition("t", 0), 0, 10)
    assert (len(partition.segments), partition.batches) == (2, 6)
    alone = check(files, "/data/t-0")
    assert (alone.sound, alone.clean, alone.partitions[0].end) == (True, True, 10)


async def test_what_a_recovery_kept_aside_is_looked_into_by_its_name():
    """Files that a recovery set aside are shown if their path is given, with later sound batches.

    For a whole directory such files are only named, because they are no longer part of the log.
    """
    files = await directory()
    kept = f"{FIRST}.log{file_names.CORRUPT}0"
    files.corrupt(f"{FIRST}.log", 16)
    files.rename(f"{FIRST}.log", kept)
    [file] = files_at(files, kept)
    damage, *sound = contents(files, file, crc32c)
    assert damage["error"] == "unknown magic 253"
    assert [one["base_offset"] for one in sound] == [1, 2]
    assert LogFile(kept, "leftover") in [*files_at(files, "/data")]


async def test_a_running_brokers_directory_is_no_damage():
    """Its newest indexes are in memory, and an append may be written only in part."""
    broker = Broker()
    async with broker:
        await broker.create("t")
        await broker.produce("t", batch(2))
        await broker.produce("t", batch(2))
        assert found(check(broker.files)) == []
        path = broker.node.topics.partition("t", 0).log.segments[0].path(file_names.LOG)
        size = broker.files.stat_size(path)
        file = broker.files.open(path)
        file.pwritev([batch(9)[:70]], size)
        report = check(broker.files)
        file.truncate(size)
        # offset 0 in place of 4 cannot be a torn append to this log, so it is an error
        assert [one[2] for one in found(report)] == [size]


async def test_a_flipped_bit_is_found_at_its_batch_with_what_lies_behind():
    """The report has its position, and the records that a recovery would cut off."""
    files = await directory()
    headers = [
        entry["position"] for entry in contents(files, LogFile(f"{FIRST}.log", "log", 0), crc32c)
    ]
    files.corrupt(f"{FIRST}.log", headers[1] + 65)
    report = check(files)
    assert not report.sound
    assert found(report)[0] == ("error", f"t-0/{0:020d}.log", headers[1])
    message = report.findings[0].message
    assert "CRC mismatch" in message
    assert "valid batches up to offset 2 after the invalid one" in message


@pytest.mark.parametrize("clean", [True, False])
async def test_a_torn_tail_is_damage_only_where_nobody_can_have_left_it(clean):
    """After a kill the next start removes the tail; after a clean shutdown it is damage."""
    files = await directory(clean=clean)
    size = files.stat_size(f"{SECOND}.log")
    torn = bytearray(batch(2)[:75])
    struct.pack_into(">q", torn, 0, 10)
    file = files.open(f"{SECOND}.log")
    file.pwritev([torn], size)
    report = check(files)
    assert ("error" if clean else "warning", f"t-0/{3:020d}.log", size) in found(report)
    assert report.sound is not clean


async def test_index_entries_that_lie_are_found_one_by_one():
    """An index entry that points past a record hides it from every reader."""
    files = await directory()
    file = files.open(f"{FIRST}.index")
    data = bytearray(file.pread(1000, 0))
    assert len(data) == 16  # entries of the second and third of three batches
    struct.pack_into(">iI", data, 0, 1, struct.unpack_from(">iI", data, 0)[1] + 1)
    file.pwritev([data], 0)
    assert found(check(files)) == [("error", f"t-0/{0:020d}.index", 0)]
    struct.pack_into(">iI", data, 0, 0, struct.unpack_from(">iI", data, 0)[1] - 1)
    file.pwritev([data], 0)
    assert found(check(files)) == [("error", f"t-0/{0:020d}.index", 0)]  # it must not be 1
    file.pwritev([b"abc"], 16)
    assert ("warning", f"t-0/{0:020d}.index", 16) in found(check(files))


async def test_a_time_index_that_is_too_early_hides_records_from_searches():
    """offsets_for_times would start after the record that it looks for."""
    files = await directory()
    file = files.open(f"{SECOND}.timeindex")
    data = bytearray(file.pread(1000, 0))
    timestamp, offset = struct.unpack_from(">qi", data, len(data) - 12)
    struct.pack_into(">qi", data, len(data) - 12, timestamp - 1, offset)
    file.pwritev([data], 0)
    assert found(check(files)) == [("error", f"t-0/{3:020d}.timeindex", len(data) - 12)]


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
async def test_an_index_of_nothing_but_zeros_is_an_empty_one(suffix):
    """Apache Kafka preallocates its indexes before they have entries."""
    files = await directory()
    file = files.open(f"{SECOND}.{suffix}")
    file.truncate(0)
    file.truncate(12 * 8 * 100)
    assert found(check(files)) == []


async def test_what_a_start_mends_is_a_warning():
    """A missing index, snapshot or epoch file loses no record."""
    files = await directory()
    files.remove(f"{FIRST}.index")
    files.remove("/data/t-0/leader-epoch-checkpoint")
    files.corrupt(f"/data/t-0/{10:020d}.snapshot", 8)
    files.open(f"{FIRST}.log.swap", create=True).close()
    report = check(files)
    assert report.sound
    assert {(kind, path) for kind, path, _ in found(report)} == {
        ("warning", f"t-0/{0:020d}.index"),
        ("warning", f"t-0/{10:020d}.snapshot"),
        ("warning", f"t-0/{0:020d}.log.swap"),
    }


async def test_records_that_were_deleted_have_no_epoch_any_more():
    """After DeleteRecords within a segment, its first batches are before all epochs."""
    broker = Broker()
    async with broker:
        await broker.create("t")
        await broker.produce("t", batch(2))
        await broker.produce("t", batch(2))
        broker.node.topics.partition("t", 0).log.delete_records(3)
    assert found(check(broker.files)) == []


async def test_records_that_were_durable_and_are_gone_are_an_error():
    """Records before the recovery point are durable, so no crash can lose them."""
    files = await directory()
    files.open(f"{SECOND}.log").truncate(0)
    report = check(files)
    assert ("error", "recovery-point-offset-checkpoint", None) in found(report)
    assert not report.sound


async def test_partitions_nobody_knows_and_topics_without_them_are_told():
    """The next start sets such a directory aside, which users want to know before."""
    files = await directory()
    files.rename("/data/t-0", "/data/other-3")
    write_offsets(files, "/data/replication-offset-checkpoint", {})
    messages = [finding.message for finding in check(files).findings]
    assert any("no topic has this partition" in message for message in messages)
    assert any("topic t has no directory here for partition 0" in one for one in messages)
    assert any("t-0 has an offset, but no directory" in one for one in messages)


async def test_a_directory_that_is_only_named_like_a_partition_is_ignored():
    """A start ignores it, so the report must not say that it is set aside."""
    files = await directory()
    files.mkdirs("/data/backup-20261122")
    report = check(files)
    assert found(report) == []
    assert [str(one.partition) for one in report.partitions if one.partition] == ["t-0"]
    assert len(report.partitions) == 2  # with the metadata log


async def test_records_that_cannot_be_read_are_found_by_reading_them():
    """A producer may send a batch with a valid checksum and invalid records."""
    files = await directory()
    broken = bytearray(batch(1))
    struct.pack_into(">i", broken, 57, 5)  # it claims five records and has one
    struct.pack_into(">q", broken, 0, 10)
    struct.pack_into(">I", broken, 17, crc32c(bytes(broken[21:])))
    size = files.stat_size(f"{SECOND}.log")
    files.open(f"{SECOND}.log").pwritev([broken], size)
    assert found(check(files)) == []
    [error] = [one for one in check(files, deep=True).findings if one.severity is Severity.ERROR]
    assert error.position == size


async def test_every_file_is_shown():
    """Shows for a directory what kafka-dump-log shows for a single file."""
    files = await directory()
    shown = {
        file.path.removeprefix("/data/"): list(contents(files, file, crc32c, records=True))
        for file in files_at(files, "/data")
    }
    assert list(shown)[:2] == ["bootstrap.checkpoint", "log-start-offset-checkpoint"]
    entries = shown[f"t-0/{3:020d}.log"]
    batches = [entry for entry in entries if "base_offset" in entry]
    assert [(one["base_offset"], one["count"], one["is_valid"]) for one in batches] == [
        (3, 3, True),
        (6, 2, True),
        (8, 2, True),
    ]
    records = [entry for entry in entries if "key_size" in entry]
    assert [one["offset"] for one in records] == [3, 4, 5, 6, 7, 8, 9]
    assert records[0]["payload"] == b"v"
    assert shown[f"t-0/{0:020d}.index"][0]["offset"] == 1
    assert shown[f"t-0/{10:020d}.snapshot"][0]["producer_id"] == 4
    assert shown["t-0/leader-epoch-checkpoint"] == [{"epoch": 0, "start_offset": 0}]
    assert shown["recovery-point-offset-checkpoint"][-1]["offset"] == 10
    metadata = shown[f"__cluster_metadata-0/{0:020d}.log"]
    [topic] = [one for one in metadata if "TOPIC_RECORD" in str(one)]
    assert "'name': 't'" in str(topic)
    [state] = shown["__cluster_metadata-0/quorum-state"]
    assert (state["leader_id"], state["leader_epoch"]) == (0, 1)
    assert not any("error" in entry for entries in shown.values() for entry in entries)


async def test_what_cannot_be_read_hides_nothing_that_can():
    """After a damaged length the other content is shown, without reading two gigabytes."""
    files = await directory()
    files.corrupt(f"{FIRST}.log", 8, 0x7F)
    entry, *behind = contents(files, LogFile(f"{FIRST}.log", "log", 0), crc32c)
    assert (entry["position"], "bytes with" in str(entry["error"])) == (0, True)
    assert [one["base_offset"] for one in behind] == [1, 2]
    assert behind[0]["position"] == entry["bytes"]
    files.open("/data/t-0/leader-epoch-checkpoint").pwritev([b"7"], 0)
    [entry] = contents(files, LogFile("/data/t-0/leader-epoch-checkpoint", "epochs"), crc32c)
    assert entry == {"error": "version '7', expected 0"}
