"""Reading of a metadata log: its state, its torn tail, and bytes that are refused."""

from __future__ import annotations

import uuid

import pytest

from aiokq.broker.metadata.image.record_codec import encode_metadata_record
from aiokq.broker.metadata.image.records import partition_record
from aiokq.broker.metadata.log.snapshot_file import SnapshotId, snapshot_path, write_snapshot
from aiokq.core.errors import KafkaStorage
from aiokq.fastpath import crc32c
from aiokq.records.header import read_header
from aiokq.records.record import RawRecord, encode_batch
from aiokq.wire.cluster_metadata_records import FeatureLevelRecord, TopicRecord
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.metadata.metadata_logs import (
    DIRECTORY,
    LEVEL,
    config,
    memory,
    opened,
    read,
    topic,
)

SECOND = TopicRecord(name="t0", topic_id=uuid.UUID(int=77))
SEGMENT = f"{DIRECTORY}/{0:020d}.log"


@pytest.fixture
def files() -> MemoryFiles:
    """A log with a leader's first batches and three topics, whose process was killed."""
    made = memory()
    log = opened(made)
    for number in range(3):
        log.append(*topic(number))
    made.crash()
    return made


def batches(data: bytes) -> list[int]:
    """Return the position of each batch."""
    positions, position = [], 0
    while position < len(data):
        positions.append(position)
        position += read_header(data, position).size
    return positions


def replaced(files: MemoryFiles, data: bytes) -> None:
    files.write_atomic(SEGMENT, data)


def add(files: MemoryFiles, value: bytes) -> None:
    """Append a batch with one record to the segment."""
    state = read(files)
    record = RawRecord(state.end_offset, 5, None, value)
    batch = encode_batch(
        [record], crc32c=crc32c, base_offset=state.end_offset, leader_epoch=state.epoch
    )
    replaced(files, files.read_bytes(SEGMENT) + batch)


def test_a_log_is_read_to_its_end(files: MemoryFiles) -> None:
    """Control records take offsets, and name the voters."""
    state = read(files)
    assert set(state.image.topics) == {"t0", "t1", "t2"}
    assert (state.start_offset, state.end_offset, state.epoch) == (0, 8, 1)
    assert state.timestamp_ms == 1000
    assert state.leader_voters == (3,)
    assert state.torn is None
    assert state.bytes_after_snapshot == files.stat_size(SEGMENT)


def test_a_log_cut_at_any_byte_of_its_last_batch_has_a_torn_tail(files: MemoryFiles) -> None:
    """A kill or a power cut in an append leaves it; nothing in it was acknowledged."""
    data = files.read_bytes(SEGMENT)
    last = batches(data)[-1]
    for end in range(last + 1, len(data)):
        replaced(files, data[:end])
        state = read(files)
        assert state.torn is not None
        assert (state.torn.position, state.torn.size) == (last, end - last)
        assert set(state.image.topics) == {"t0", "t1"}
        log = opened(files)
        log.append(*topic(9))
        log.close(clean=False)
        assert set(read(files).image.topics) == {"t0", "t1", "t9"}


@pytest.mark.parametrize("tail", [b"\x00" * 4096, b"garbage bytes", b"\xff" * 100])
def test_bytes_after_the_last_batch_are_a_torn_tail(files: MemoryFiles, tail: bytes) -> None:
    """A file system may leave zeros or old blocks at the end of a file that was being extended."""
    replaced(files, files.read_bytes(SEGMENT) + tail)
    state = read(files)
    assert state.torn is not None
    assert state.torn.size == len(tail)
    assert len(state.image.topics) == 3


def test_a_flipped_bit_before_the_last_batch_is_refused(files: MemoryFiles) -> None:
    """Apache Kafka drops every record from there on, without a word."""
    data = bytearray(files.read_bytes(SEGMENT))
    *_, second, last = batches(data)
    intact = list(read(files).image.records())
    for position in range(second, last):
        data[position] ^= 0x10
        replaced(files, bytes(data))
        with pytest.raises(KafkaStorage, match=r"damaged|cannot be applied") as refused:
            read(files)
        assert "restore the file from a copy" in refused.value.message
        assert "nothing was changed" in refused.value.message
        assert files.read_bytes(SEGMENT) == data
        data[position] ^= 0x10
    replaced(files, bytes(data))
    assert list(read(files).image.records()) == intact


def test_a_flipped_bit_in_the_last_batch_costs_at_most_that_batch(files: MemoryFiles) -> None:
    """It cannot be told from an append that a power cut left incomplete."""
    data = bytearray(files.read_bytes(SEGMENT))
    last = batches(data)[-1]
    for position in range(last, len(data)):
        data[position] ^= 0x10
        replaced(files, bytes(data))
        try:
            state = read(files)
        except KafkaStorage:
            assert position < last + 8 or last + 12 <= position < last + 16  # offset or epoch
        else:
            assert state.torn is not None
            assert set(state.image.topics) == {"t0", "t1"}
        data[position] ^= 0x10


def test_a_missing_segment_is_refused(files: MemoryFiles) -> None:
    """Its records would be missing without a trace."""
    log = opened(files)
    log._log.roll(1000)
    log.append(*topic(5))
    log.close()
    replaced(files, b"")
    with pytest.raises(KafkaStorage, match="offsets 0-8 are missing"):
        read(files)


def test_the_newest_snapshot_stands_for_what_was_before(files: MemoryFiles) -> None:
    """Older segments and snapshots are not read; a snapshot may end inside a segment."""
    log = opened(files)
    older = log.snapshot()
    log.append(*topic(5))
    newest = log.snapshot()
    log.append(*topic(6))
    log.close(clean=False)
    files.corrupt(snapshot_path(DIRECTORY, older), 100)
    state = read(files)
    assert set(state.image.topics) == {"t0", "t1", "t2", "t5", "t6"}
    assert state.snapshot == newest
    segments = sorted(
        f"{DIRECTORY}/{name}" for name in files.listdir(DIRECTORY) if name.endswith(".log")
    )
    assert len(segments) > 1
    files.write_atomic(segments[0], b"".join(map(files.read_bytes, segments)))
    for name in segments[1:]:
        files.remove(name)
    assert list(read(files).image.records()) == list(state.image.records())
    files.remove(segments[0])
    assert set(read(files).image.topics) == {"t0", "t1", "t2", "t5"}


def test_a_snapshot_is_read_though_nobody_may_write_to_it(files: MemoryFiles) -> None:
    """Kafka's snapshots have mode 0400; opened for writing too, they were readable to root only."""
    log = opened(files)
    log.snapshot()
    log.close()
    [name] = [name for name in files.listdir(DIRECTORY) if name.endswith(".checkpoint")]
    files.chmod(f"{DIRECTORY}/{name}", 0o400)
    assert set(read(files).image.topics) == {"t0", "t1", "t2"}


def test_a_sector_that_a_power_cut_left_unwritten_is_torn(files: MemoryFiles) -> None:
    """The first append of an epoch has two batches; the second may reach the disk alone."""
    log = opened(files)
    record = config(1)
    for _ in range(2):  # the second time, the log ends 40 bytes before the end of a sector
        size = len(files.read_bytes(SEGMENT))
        log.append(record)
        left = -(2 * len(files.read_bytes(SEGMENT)) - size) % 512
        record.value = "v" * (500 + left - 40)
    log.close(clean=False)
    before = files.read_bytes(SEGMENT)
    assert len(before) % 512 == 512 - 40
    log = opened(files, lead=False)
    log.lead(topic(6))
    log.close(clean=False)
    began = files.read_bytes(SEGMENT)[len(before) :]
    replaced(files, before + bytes(40) + began[40:])
    state = read(files)
    assert state.torn is not None
    assert (state.torn.position, state.torn.size) == (len(before), len(began))
    assert "t6" not in state.image.topics
    replaced(files, before + bytes(39) + b"?" + began[40:])
    with pytest.raises(KafkaStorage, match="is damaged at byte"):
        read(files)
    replaced(files, before + began)
    add(files, encode_metadata_record(topic(7)[0]))  # the first append was synced before this one
    after = files.read_bytes(SEGMENT)
    replaced(files, before + bytes(40) + after[len(before) + 40 :])
    with pytest.raises(KafkaStorage, match="is damaged at byte"):
        read(files)


@pytest.mark.parametrize("left", [9, 12, 15, 16, 40, 61, 84])
def test_the_first_append_of_an_epoch_may_lose_the_sector_after_a_boundary(
    files: MemoryFiles, left: int
) -> None:
    """The control batch then has a header, whole or in part, and a wrong checksum."""
    log = opened(files)
    record = config(1)
    record.value = "v" * 1000
    size = len(files.read_bytes(SEGMENT))
    log.append(record)
    after = len(files.read_bytes(SEGMENT))
    record.value = "v" * (1000 + -(2 * after - size + left) % 512)
    log.append(record)
    assert (len(files.read_bytes(SEGMENT)) + left) % 512 == 0
    log.close(clean=False)
    before = files.read_bytes(SEGMENT)
    log = opened(files, lead=False)
    log.lead([*topic(6), *(config(2) for _ in range(10))])
    log.close(clean=False)
    began = bytearray(files.read_bytes(SEGMENT)[len(before) :])
    began[left : left + 512] = bytes(512)
    replaced(files, before + bytes(began))
    state = read(files)
    assert state.torn is not None
    assert state.torn.position == len(before)
    assert "t6" not in state.image.topics


def test_a_snapshot_that_is_damaged_is_refused(files: MemoryFiles) -> None:
    """The log before it may be gone."""
    log = opened(files)
    snapshot = log.snapshot()
    log.close()
    path = f"{DIRECTORY}/{snapshot.end_offset:020d}-{snapshot.epoch:010d}.checkpoint"
    files.corrupt(path, 100)
    with pytest.raises(KafkaStorage, match=r"\.checkpoint is corrupt at byte"):
        read(files)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"\x01\x63\x00\x00", "unknown type 99"),
        (b"\x01\x02\x07\x00", "unknown version"),
        (
            encode_metadata_record(TopicRecord(name="t0", topic_id=uuid.UUID(int=77))),
            "exists already",
        ),
        (b"\x01\x02\x00", "malformed TopicRecord"),
        (
            encode_metadata_record(FeatureLevelRecord(name=LEVEL.name, feature_level=31)),
            "metadata.version 31",
        ),
    ],
)
def test_records_that_cannot_be_understood_are_refused(
    files: MemoryFiles, value: bytes, words: str
) -> None:
    """A newer Kafka wrote them, or a bug; going on would lose or misread metadata."""
    add(files, value)
    before = files.read_bytes(SEGMENT)
    with pytest.raises(KafkaStorage, match=words) as refused:
        read(files)
    assert "nothing was changed" in refused.value.message
    assert files.read_bytes(SEGMENT) == before


def test_an_epoch_that_goes_back_is_refused(files: MemoryFiles) -> None:
    """No checksum covers the epoch of a batch."""
    opened(files).close()
    data = bytearray(files.read_bytes(SEGMENT))
    last = batches(data)[-1]
    data[last + 15] = 0
    replaced(files, bytes(data))
    with pytest.raises(KafkaStorage, match="epoch 0, which a leader begins, after epoch 1"):
        read(files)


@pytest.mark.parametrize("lacks", [False, True])
def test_a_snapshot_of_more_partitions_than_65536(lacks: bool) -> None:
    """In Kafka's snapshots partition 65537 comes before 65536; partitions are kept by number."""
    first, topic_id = 1 << 16, uuid.UUID(int=77)
    numbers = [*range(first), first + 1, *([] if lacks else [first])]
    records = [
        LEVEL,
        TopicRecord(name="t", topic_id=topic_id),
        *(partition_record(topic_id, number, 0, directory=None) for number in numbers),
    ]
    files = memory()
    files.mkdirs(DIRECTORY)
    write_snapshot(
        files,
        snapshot_path(DIRECTORY, SnapshotId(9, 1)),
        map(encode_metadata_record, records),
        epoch=1,
        timestamp_ms=0,
        last_contained_ms=0,
        crc32c=crc32c,
    )
    if lacks:
        with pytest.raises(KafkaStorage, match="lacks partition 65536 of topic t"):
            read(files)
    else:
        assert len(read(files).image.topics["t"].partitions) == first + 2
