"""Repair of damaged metadata logs: what is kept, what is lost, and where the removed bytes are."""

from __future__ import annotations

import contextlib
import errno
import random

import pytest

from aiokq.broker.log.meta_properties import MetaProperties
from aiokq.broker.log.uuid_text import format_uuid
from aiokq.broker.metadata.log.cluster_metadata_log import LogLimits
from aiokq.broker.metadata.log.metadata_reader import MetadataDamaged
from aiokq.broker.metadata.log.snapshot_file import list_snapshots, snapshot_path, write_snapshot
from aiokq.broker.metadata.stopped_broker.log_repair import Repair, repair_log
from aiokq.core.errors import ConfigError, KafkaError, KafkaStorage
from aiokq.fastpath import crc32c
from aiokq.records.header import read_header
from aiokq.wire.cluster_metadata_records import PartitionRecord, TopicRecord
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.metadata.metadata_logs import (
    DIRECTORY,
    NODE,
    config,
    memory,
    opened,
    read,
    topic,
)
from tests.unit.broker.metadata.quorum_logs import DIR_OF_NODE, kill_after, quorum_of_three

SEGMENT = f"{DIRECTORY}/{0:020d}.log"
NEVER = 10**9


@pytest.fixture
def files() -> MemoryFiles:
    return log_of(4)


def log_of(topics: int, limits: LogLimits | None = None) -> MemoryFiles:
    """Return a disk with a log of topics, each in a batch of two records, from offset 2 on."""
    made = memory()
    ids = MetaProperties("c", NODE, format_uuid(DIR_OF_NODE))
    made.write_atomic("/data/meta.properties", ids.encode())
    log = opened(made, limits=limits)
    for number in range(topics):
        log.append(*topic(number))
        if log.is_snapshot_due:
            log.snapshot()
    log.close(clean=False)
    return made


def run(files: MemoryFiles, *, execute: bool = True, others_lost: bool = False) -> Repair:
    return repair_log(files, "/data", execute=execute, others_lost=others_lost, crc32c=crc32c)


def batches(files: MemoryFiles, path: str = SEGMENT) -> list[int]:
    """Return the position of each batch."""
    data, positions, position = files.read_bytes(path), [], 0
    while position < len(data):
        positions.append(position)
        position += read_header(data, position).size
    return positions


def spoil(files: MemoryFiles, number: int, path: str = SEGMENT) -> int:
    """Flip a bit in the records of a batch; return its position."""
    position = batches(files, path)[number]
    files.corrupt(path, position + 70, 0x10)
    return position


def content(files: MemoryFiles, directory: str = DIRECTORY) -> dict[str, bytes]:
    return {name: files.read_bytes(f"{directory}/{name}") for name in files.listdir(directory)}


def continues(files: MemoryFiles, topics: set[str], *, clean: bool = False) -> None:
    """Check that the broker continues the log, and that it has these topics."""
    assert set(read(files).image.topics) == topics
    log = opened(files, clean=clean)
    log.append(*topic(90))
    log.close()
    log = opened(files, clean=True)
    log.append(*topic(91))
    files.power_cut()
    assert set(read(files).image.topics) == topics | {"t90", "t91"}


def test_a_sound_log_needs_no_repair(files: MemoryFiles) -> None:
    """The torn tail is no damage: the next start cuts it off."""
    files.write_atomic(SEGMENT, files.read_bytes(SEGMENT) + b"torn")
    before = content(files)
    assert run(files) == Repair(end_offset=10, topics=4)
    assert content(files) == before


@pytest.mark.parametrize("clean", [False, True])
def test_the_log_is_cut_at_a_bad_batch(files: MemoryFiles, clean: bool) -> None:
    """The sound records after it are shown, and those of the batch itself that can be decoded."""
    position = spoil(files, 3)
    before = content(files)
    with pytest.raises(MetadataDamaged, match="run aiokq log repair"):
        read(files)
    planned = run(files, execute=False)
    assert content(files) == before
    assert (planned.path, planned.position, planned.offset) == (SEGMENT, position, 4)
    assert (planned.end_offset, planned.topics, planned.loses) == (4, 1, True)
    assert [one.offset for one in planned.lost] == [4, 5, 6, 7, 8, 9]
    assert [one.offset for one in planned.lost if not one.is_sound] == [4, 5]
    assert isinstance(planned.lost[1].record, PartitionRecord)
    lost = [one.record.name for one in planned.lost if isinstance(one.record, TopicRecord)]
    assert lost == ["t2", "t3"]
    done = run(files)
    assert done.kept == (f"{SEGMENT}.corrupt-{position}",)
    assert files.read_bytes(done.kept[0]) == before[f"{0:020d}.log"][position:]
    assert files.read_bytes(SEGMENT) == before[f"{0:020d}.log"][:position]
    files.power_cut()
    continues(files, {"t0"}, clean=clean)
    assert files.exists(done.kept[0])


@pytest.mark.parametrize("number", range(2, 5))
def test_a_flipped_bit_at_any_byte(number: int) -> None:
    """Every damage that is refused can be repaired, and what is before it is kept."""
    files = log_of(4)
    first, after = (*batches(files), files.stat_size(SEGMENT))[number : number + 2]
    data = files.read_bytes(SEGMENT)
    for position in range(first, after):
        files.write_atomic(SEGMENT, data)
        files.corrupt(SEGMENT, position, 0x10)
        try:
            read(files)
        except KafkaStorage:
            run(files)
            assert set(read(files).image.topics) >= {f"t{one}" for one in range(number - 2)}


def test_a_batch_that_contradicts_earlier_ones_is_cut_off(files: MemoryFiles) -> None:
    """Its checksum is right, so its records can be shown."""
    data = files.read_bytes(SEGMENT)
    starts = [*batches(files), len(data)]
    again = bytearray(data[starts[2] : starts[3]])  # the first topic
    again[:8] = (10).to_bytes(8, "big")
    files.write_atomic(SEGMENT, data + again + data[:0])
    with pytest.raises(KafkaStorage, match="exists already"):
        read(files)
    done = run(files)
    assert (done.offset, done.end_offset, len(done.lost)) == (10, 10, 2)
    continues(files, {"t0", "t1", "t2", "t3"})


def test_a_flipped_bit_in_an_epoch_costs_no_record() -> None:
    """The batches beside it tell the right epoch, so the batch need not be cut off."""
    files = log_of(2)
    for number in (2, 3):
        opened(files).append(*topic(number))
    files.crash()
    sound = files.read_bytes(SEGMENT)
    intact = list(read(files).image.records())
    for start in batches(files):
        for bit in range(32):
            data = bytearray(sound)
            data[start + 12 + bit // 8] ^= 1 << bit % 8
            files.write_atomic(SEGMENT, bytes(data))
            with pytest.raises(MetadataDamaged, match="epoch"):
                read(files)
            planned = run(files, execute=False)
            assert files.read_bytes(SEGMENT) == data
            done = run(files)
            assert (planned.loses, done.loses, done.lost, done.kept) == (False, False, (), ())
            assert [one.offset for one in done.corrected] == [read_header(sound, start).base_offset]
            assert files.read_bytes(SEGMENT) == sound
            assert list(read(files).image.records()) == intact
    files.power_cut()
    continues(files, {"t0", "t1", "t2", "t3"})


def test_a_wrong_epoch_in_the_part_that_is_cut_off_stays(files: MemoryFiles) -> None:
    """The removed bytes are kept as they were."""
    *_, last = batches(files)
    files.corrupt(SEGMENT, last + 15, 0x04)
    position = spoil(files, 3)
    before = files.read_bytes(SEGMENT)
    done = run(files)
    assert (done.corrected, done.loses) == ((), True)
    assert files.read_bytes(done.kept[0]) == before[position:]


def test_wrong_epochs_beside_a_bad_batch_that_a_snapshot_has() -> None:
    """Those in the rest of the segment are corrected, too."""
    files = inside_a_segment(after=2)
    before = list(read(files).image.records())
    *_, last = batches(files)
    spoil(files, 3)
    files.corrupt(SEGMENT, last + 15, 0x04)
    done = run(files)
    assert (done.loses, [one.offset for one in done.corrected]) == (False, [8])
    assert list(read(files).image.records()) == before
    continues(files, {"t0", "t1", "t2", "t3"})


def test_later_segments_are_set_aside() -> None:
    """Their records follow missing ones."""
    files = log_of(6, LogLimits(segment_bytes=300))
    names = [name for name in files.listdir(DIRECTORY) if name.endswith(".log")]
    assert len(names) > 3
    first, second, *later = names
    spoil(files, 0, f"{DIRECTORY}/{second}")
    before = content(files)
    done = run(files)
    assert done.end_offset == int(second[:20])
    assert done.set_aside == (second, *later)
    assert {path.rpartition("/")[2] for path in done.kept} == {
        f"{name}.corrupt-0" for name in (second, *later)
    }
    for name in (second, *later):
        assert files.read_bytes(f"{DIRECTORY}/{name}.corrupt-0") == before[name]
    assert files.read_bytes(f"{DIRECTORY}/{first}") == before[first]
    continues(files, {f"t{n}" for n in range(done.topics)})


def test_a_missing_segment() -> None:
    """The records of the segments after it cannot be applied."""
    files = log_of(6, LogLimits(segment_bytes=300))
    names = [name for name in files.listdir(DIRECTORY) if name.endswith(".log")]
    files.remove(f"{DIRECTORY}/{names[1]}")
    done = run(files)
    assert (done.reason, done.loses) == (
        f"offsets {int(names[1][:20])}-{int(names[2][:20]) - 1} are missing",
        True,
    )
    assert done.set_aside == tuple(names[2:])
    continues(files, {f"t{n}" for n in range(done.topics)})


# --- snapshots


def with_snapshots() -> MemoryFiles:
    """Return a log with two snapshots, which the log begins before."""
    files = memory()
    ids = MetaProperties("c", NODE, format_uuid(DIR_OF_NODE))
    files.write_atomic("/data/meta.properties", ids.encode())
    log = opened(files, limits=LogLimits(kept_snapshots=2))
    for number in range(6):
        log.append(*topic(number))
        if number in (1, 3):
            log.snapshot()
    log.append(config(1))
    log.close(clean=False)
    return files


def test_a_bad_snapshot_is_set_aside_if_the_log_has_its_records() -> None:
    """Nothing is lost."""
    files = with_snapshots()
    before = list(read(files).image.records())
    _, newest = list_snapshots(files, DIRECTORY)
    path = snapshot_path(DIRECTORY, newest)
    files.corrupt(path, files.stat_size(path) // 2)
    done = run(files)
    assert (done.path, done.loses, done.lost) == (path, False, ())
    assert done.kept == (f"{path}.corrupt-0",)
    assert list(read(files).image.records()) == before
    continues(files, {f"t{n}" for n in range(6)})


def test_a_bad_snapshot_whose_records_are_nowhere_else() -> None:
    """The log that follows it is lost, and the older snapshot is left."""
    files = with_snapshots()
    older, newest = list_snapshots(files, DIRECTORY)
    path = snapshot_path(DIRECTORY, newest)
    files.corrupt(path, files.stat_size(path) // 2)
    files.remove(f"{DIRECTORY}/{older.end_offset:020d}.log")
    done = run(files)
    assert (done.end_offset, done.loses) == (older.end_offset, True)
    unknown, *lost = done.lost
    assert (unknown.offset, unknown.last_offset) == (older.end_offset, newest.end_offset - 1)
    assert (unknown.record, unknown.is_sound) == (None, False)
    assert [one.offset for one in lost] == list(range(newest.end_offset, newest.end_offset + 5))
    continues(files, {"t0", "t1"})


def test_no_metadata_is_left() -> None:
    """The only snapshot is damaged, and the log does not begin with its first record."""
    files = with_snapshots()
    for one in list_snapshots(files, DIRECTORY):
        path = snapshot_path(DIRECTORY, one)
        files.corrupt(path, files.stat_size(path) // 2)
    before = content(files)
    with pytest.raises(KafkaStorage, match="no metadata is left"):
        run(files)
    assert content(files) == before
    files = log_of(4)
    spoil(files, 0)
    with pytest.raises(KafkaStorage, match="no metadata is left"):
        run(files)


def inside_a_segment(topics: int = 4, after: int = 1) -> MemoryFiles:
    """Return a log with a snapshot inside a segment, as Kafka has it, before the last records."""
    files = log_of(topics)
    add_snapshot(files, topics, after)
    return files


def add_snapshot(files: MemoryFiles, topics: int, after: int) -> str:
    """Write a snapshot without the last topics into a log of topics; return its path."""
    at = read(files)
    end = at.end_offset - 2 * after
    short = log_of(topics - after)
    image = read(short).image
    from aiokq.broker.metadata.image.record_codec import encode_metadata_record, record_version
    from aiokq.broker.metadata.log.snapshot_file import SnapshotId

    path = snapshot_path(DIRECTORY, SnapshotId(end, at.epoch))
    write_snapshot(
        files,
        path,
        [encode_metadata_record(one, record_version(one, 25)) for one in image.records()],
        epoch=at.epoch,
        timestamp_ms=0,
        last_contained_ms=0,
        crc32c=crc32c,
    )
    return path


def test_of_two_bad_snapshots_the_newest_is_described() -> None:
    """It is read first.

    Regression: path was that of the oldest, but position, offset and reason those of the newest.
    """
    files = log_of(4)
    older, newest = (add_snapshot(files, 4, after) for after in (2, 1))
    before = list(read(files).image.records())
    files.corrupt(older, files.stat_size(older) // 2)
    files.write_atomic(newest, files.read_bytes(newest)[:-10])
    with pytest.raises(MetadataDamaged) as damage:
        read(files)
    assert newest in damage.value.message
    done = run(files)
    assert (done.path, done.position, done.offset) == (newest, 0, 0)
    assert done.reason == damage.value.reason
    assert done.set_aside == tuple(one.rpartition("/")[2] for one in (older, newest))
    assert done.kept == (f"{older}.corrupt-0", f"{newest}.corrupt-0")
    assert list(read(files).image.records()) == before


def test_a_bad_batch_before_the_snapshot_costs_nothing() -> None:
    """Kafka would drop the records after the snapshot, too."""
    files = inside_a_segment(after=2)
    before = list(read(files).image.records())
    spoil(files, 3)
    old = files.read_bytes(SEGMENT)
    done = run(files)
    assert (done.offset, done.end_offset, done.loses, done.lost) == (4, 10, False, ())
    assert done.kept == (f"{SEGMENT}.corrupt-0",)
    assert files.read_bytes(done.kept[0]) == old
    assert list(read(files).image.records()) == before
    files.power_cut()
    continues(files, {"t0", "t1", "t2", "t3"})


def test_bad_batches_before_and_after_the_snapshot() -> None:
    """Only what follows the second one is lost."""
    files = inside_a_segment(topics=6, after=3)
    spoil(files, 3)
    spoil(files, 6)
    done = run(files)
    assert (done.end_offset, done.loses, done.topics) == (10, True, 4)
    continues(files, {"t0", "t1", "t2", "t3"})


def test_only_the_snapshot_is_left() -> None:
    """The log ends in a bad batch before it, or the batch after it is bad."""
    for bad in ((3, 4), (3, 5)):
        files = inside_a_segment(topics=4, after=1)
        for number in bad:
            spoil(files, number)
        run(files)
        topics = set(read(files).image.topics)
        assert topics >= {"t0", "t1", "t2"}
        continues(files, topics)


def test_a_damaged_segment_that_a_snapshot_has_replaced() -> None:
    """The broker would set it aside at its next unclean start; the records are in the snapshot."""
    files = with_snapshots()
    assert run(files) == Repair(end_offset=read(files).end_offset, topics=6)
    first, *_ = (name for name in files.listdir(DIRECTORY) if name.endswith(".log"))
    path = f"{DIRECTORY}/{first}"
    spoil(files, 0, path)
    before = content(files)
    planned = run(files, execute=False)
    assert (planned.path, planned.loses, planned.set_aside) == (path, False, (first,))
    assert content(files) == before
    assert run(files).kept == (f"{path}.corrupt-0",)
    assert files.read_bytes(f"{path}.corrupt-0") == before[first]
    continues(files, {f"t{n}" for n in range(6)})


# --- refusals and kills


def test_a_log_of_several_voters_is_repaired_only_by_request() -> None:
    """Its other voters have the records, and one that forgets them is a danger."""
    files = quorum_of_three(0)
    data = files.read_bytes(SEGMENT)
    extra = len(data)
    files.write_atomic(SEGMENT, data + data[batches(files)[1] :])  # the offsets are wrong
    before = content(files)
    with pytest.raises(KafkaStorage, match=r"voters 1, 2, 3.*--others-lost"):
        run(files)
    assert content(files) == before
    done = run(files, others_lost=True)
    assert done.position == extra
    assert read(files).leader_voters == (1, 2, 3)


def test_other_directories_are_refused(files: MemoryFiles) -> None:
    """A running broker would go on at its own end of the log."""
    lock = files.lock("/data/.lock")
    with pytest.raises(KafkaStorage, match="in use"):
        run(files)
    lock.release()
    files.remove_tree(DIRECTORY)
    with pytest.raises(ConfigError, match="has no metadata log"):
        run(files)


def test_a_file_system_without_links() -> None:
    """The damaged segment is copied."""
    files = inside_a_segment(after=2)
    spoil(files, 3)
    old = files.read_bytes(SEGMENT)
    files.fail("link", errno.EPERM, times=None)
    assert run(files).kept == (f"{SEGMENT}.corrupt-0",)
    assert files.read_bytes(f"{SEGMENT}.corrupt-0") == old
    continues(files, {"t0", "t1", "t2", "t3"})


@pytest.mark.parametrize("case", ["cut", "rest"])
def test_a_full_disk_leaves_the_log_as_it_is(case: str) -> None:
    """The removed bytes cannot be kept, so none are removed."""
    files = CASES[case]()
    files.fail("link", errno.ENOSPC, times=None)
    before = content(files)
    files.capacity = files.used() + 10
    with pytest.raises(KafkaStorage, match="cannot be used"):
        run(files)
    assert {name: data for name, data in content(files).items() if name in before} == before
    files.capacity = None
    run(files)
    continues(files, set(read(files).image.topics))


CASES = {
    "epoch": lambda: wrong_epoch(log_of(4)),
    "cut": lambda: spoiled(log_of(4), 3),
    "segments": lambda: spoiled_segment(),
    "rest": lambda: spoiled(inside_a_segment(after=2), 3),
    "both": lambda: spoiled(inside_a_segment(topics=6, after=3), 3, 6),
    "snapshot": lambda: spoiled_snapshot(),
}


def spoiled(files: MemoryFiles, *numbers: int) -> MemoryFiles:
    for number in numbers:
        spoil(files, number)
    return files


def wrong_epoch(files: MemoryFiles) -> MemoryFiles:
    files.corrupt(SEGMENT, batches(files)[3] + 15, 0x04)
    return files


def spoiled_segment() -> MemoryFiles:
    files = log_of(6, LogLimits(segment_bytes=300))
    names = [name for name in files.listdir(DIRECTORY) if name.endswith(".log")]
    spoil(files, 0, f"{DIRECTORY}/{names[1]}")
    return files


def spoiled_snapshot() -> MemoryFiles:
    files = with_snapshots()
    older, newest = list_snapshots(files, DIRECTORY)
    path = snapshot_path(DIRECTORY, newest)
    files.corrupt(path, files.stat_size(path) // 2)
    files.remove(f"{DIRECTORY}/{older.end_offset:020d}.log")
    files.sync_dir(DIRECTORY)
    return files


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("end", ["kill", "power cut", "power cut, names in any order"])
def test_a_kill_at_any_operation_can_be_repaired_again(case: str, end: str) -> None:
    """No state in between loses more, and the removed bytes are kept in each."""
    files = CASES[case]()
    old = content(files)
    run(files)
    expected = list(read(files).image.records())
    bytes_kept = removed(old, files)
    count = kill_after(counted := CASES[case](), NEVER)
    run(counted)
    assert count[0] > 5
    for number in range(count[0]):
        files = CASES[case]()
        kill_after(files, number)
        with contextlib.suppress(KafkaError, OSError):
            run(files)
        files.heal()
        if end == "kill":
            files.crash()
        else:
            files.power_cut(random.Random(number), ordered=end == "power cut")
        run(files)
        assert list(read(files).image.records()) == expected
        files.power_cut()
        assert list(read(files).image.records()) == expected
        assert removed(old, files) >= bytes_kept
        continues(files, {one.name for one in read(files).image.topics.values()})


def removed(old: dict[str, bytes], files: MemoryFiles) -> set[bytes]:
    """Return the contents of the files in which removed bytes are kept."""
    return {data for name, data in content(files).items() if ".corrupt-" in name}
