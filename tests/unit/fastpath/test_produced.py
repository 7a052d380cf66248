"""read_produced: both builds accept only ordinary requests, and never read beyond the frame."""

from __future__ import annotations

import random
import struct
import uuid

import pytest

from aiokq import wire
from aiokq.fastpath import crc32c
from aiokq.records import compression
from aiokq.records.header import BatchHeader, read_header
from aiokq.records.record import RawRecord, encode_batch
from tests.cores import cores

CORES = cores()
VERSIONS = range(3, 14)
TOPIC_ID = uuid.UUID(int=77)

pytestmark = pytest.mark.parametrize(
    "core", CORES, ids=["compiled" if core.COMPILED else "pure" for core in CORES]
)


def batch(count=2, **header):  # type: ignore[no-untyped-def]
    records = [RawRecord(n, 1000 + n, b"k", b"v" * n) for n in range(count)]
    return encode_batch(records, crc32c=crc32c, **header)


def frame(version, parts, *, name="orders", client_id="c", acks=-1, **options):  # type: ignore[no-untyped-def]
    named = {"topic_id": TOPIC_ID} if version >= 13 else {"name": name}
    data = [wire.PartitionProduceData(index=index, records=records) for index, records in parts]
    request = wire.ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[wire.TopicProduceData(partition_data=data, **named)],
        **options,
    )
    fragments = wire.encode_request(request, version=version, correlation_id=9, client_id=client_id)
    return bytearray(b"".join(bytes(fragment) for fragment in fragments)[4:])


def read(core, data):  # type: ignore[no-untyped-def]
    return core.read_produced(memoryview(data))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("client_id", [None, "", "some client"])
def test_an_ordinary_request_is_read_whole(core, version, client_id) -> None:
    """Strings, arrays and tagged fields changed in version 9; names became ids in version 13."""
    parts = [(3, batch()), (0, batch(5, producer_id=7, producer_epoch=1, base_sequence=40))]
    data = frame(version, parts, client_id=client_id, acks=1)
    found = read(core, data)
    assert found[:4] == (version, 9, None, 1)
    [(topic, batches)] = found[4]
    assert topic == (TOPIC_ID.bytes if version >= 13 else "orders")
    assert [(index, bytes(records)) for index, records, _ in batches] == parts
    for (_, records), (_, view, fields) in zip(parts, batches, strict=True):
        assert BatchHeader(*fields) == read_header(records)
        assert view.obj is data  # a view: nothing is copied


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_behind_a_request_is_skipped(core, version) -> None:
    """Kafka ignores such bytes, which some clients send."""
    data = frame(version, [(0, batch())])
    assert read(core, data + b"abc") == read(core, data)


@pytest.mark.parametrize("codec", range(5))
def test_codecs_are_ordinary(core, codec) -> None:
    """Batches with any codec are stored unchanged; zstd since version 7."""
    data = batch(50, codec=codec)
    assert read(core, frame(7, [(0, data)])) is not None
    assert (read(core, frame(6, [(0, data)])) is None) == (codec == compression.ZSTD)


def test_no_topics_and_no_partitions_are_ordinary(core) -> None:
    """A request with nothing to append is valid."""
    assert read(core, frame(7, [])) == (7, 9, None, -1, [("orders", [])])
    empty = wire.encode_request(
        wire.ProduceRequest(acks=1, timeout_ms=1), version=9, correlation_id=1, client_id=None
    )
    assert read(core, bytearray(b"".join(map(bytes, empty))[4:])) == (9, 1, None, 1, [])


@pytest.mark.parametrize("version", [3, 9, 13])
def test_a_request_of_many_parts_is_another_one(core, version) -> None:
    """A frame of 4 MB may have a million topics and partitions, which would take seconds."""
    data = batch(1)
    most = 1024 - 1  # the topic counts as well
    assert len(read(core, frame(version, [(n, data) for n in range(most)]))[4][0][1]) == most
    assert read(core, frame(version, [(n, data) for n in range(most + 1)])) is None
    for count in (1024, 1025):
        named = {"topic_id": TOPIC_ID} if version >= 13 else {"name": "t"}
        topics = [wire.TopicProduceData(partition_data=[], **named)] * count
        request = wire.ProduceRequest(acks=1, timeout_ms=1, topic_data=topics)
        parts = wire.encode_request(request, version=version, correlation_id=1, client_id=None)
        found = read(core, bytearray(b"".join(map(bytes, parts))[4:]))
        assert (found is not None) == (count == 1024)


def with_crc(data: bytes) -> bytes:
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def patched(position, layout, value, data=None):  # type: ignore[no-untyped-def]
    data, size = data or batch(), struct.calcsize(layout)
    return with_crc(data[:position] + struct.pack(layout, value) + data[position + size :])


OTHER_BATCHES = {
    "none": None,
    "empty": b"",
    "a header's start": batch()[:60],
    "a header": batch()[:61],
    "a header's start with its length": patched(8, ">i", 48, batch()[:60]),
    "a header with its length": patched(8, ">i", 49, batch()[:61]),
    "two": batch() + batch(),
    "cut": batch()[:-1],
    "more behind it": batch() + b"\0",
    "another magic": patched(16, ">b", 1),
    "an offset": patched(0, ">q", 1),
    "a longer length": patched(8, ">i", 1000),
    "a negative length": patched(8, ">i", -1),
    "an unknown codec": patched(21, ">h", 5),
    "LogAppendTime": patched(21, ">h", 8),
    "transactional without a transactional id": patched(21, ">h", 16),
    "control": patched(21, ">h", 32),
    "a negative delta": patched(23, ">i", -1),
    "another count": patched(57, ">i", 3),
    "no count": patched(57, ">i", 0),
    "no records": patched(57, ">i", 0, patched(23, ">i", -1)),
    "the largest delta": patched(23, ">i", 2**31 - 1),
    "a producer without a sequence": patched(43, ">q", 5),
    "the first producer without a sequence": patched(43, ">q", 0),
    "a wrong CRC": batch()[:-1] + b"\x7f",
}


@pytest.mark.parametrize("what", OTHER_BATCHES)
@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_one_other_batch_makes_it_another_request(core, version, what) -> None:
    """At any position; the general path has to find the error."""
    other = OTHER_BATCHES[what]
    assert read(core, frame(version, [(0, other)])) is None
    assert read(core, frame(version, [(0, batch()), (1, other)])) is None
    assert read(core, frame(version, [(0, other), (1, batch())])) is None


@pytest.mark.parametrize("version", [3, 9])
def test_other_requests(core, version) -> None:
    """Unknown acks and non-ASCII names are rare or wrong."""
    parts = [(0, batch())]
    assert read(core, frame(version, parts)) is not None
    assert read(core, frame(version, parts, transactional_id="ä")) is None
    assert read(core, frame(version, parts, acks=2)) is None
    assert read(core, frame(version, parts, acks=-2)) is None
    assert read(core, frame(version, parts, name="bestellungen-ä")) is None
    assert read(core, frame(version, parts, client_id="ä")) is None
    other_api = frame(version, parts)
    other_api[1] = 1
    assert read(core, other_api) is None
    for other_version in (-1, 2, 14):
        data = frame(version, parts)
        data[2:4] = struct.pack(">h", other_version)
        assert read(core, data) is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transactional_id", ["", "t", "a-long-transactional-id" * 10])
def test_transactional_batches_need_a_transactional_id(core, version, transactional_id) -> None:
    """A request with one may also have batches that are not transactional."""
    inside = batch(3, attributes=16, producer_id=7, producer_epoch=1, base_sequence=0)
    parts = [(0, inside), (1, batch())]
    found = read(core, frame(version, parts, transactional_id=transactional_id))
    assert found[:4] == (version, 9, transactional_id, -1)
    assert [(index, bytes(records)) for index, records, _ in found[4][0][1]] == parts
    assert [BatchHeader(*fields).is_transactional for *_, fields in found[4][0][1]] == [True, False]
    assert read(core, frame(version, parts)) is None
    for attributes in (16 | 8, 16 | 32):  # LogAppendTime, control
        other = batch(3, attributes=attributes, producer_id=7, producer_epoch=1, base_sequence=0)
        assert read(core, frame(version, [(0, other)], transactional_id="t")) is None


@pytest.mark.parametrize("last", [0, 1, 15, 16, 127])
@pytest.mark.parametrize("continued", range(8))
def test_varints_have_32_bits(core, continued, last) -> None:
    """At any encoded length; larger values are rejected as by the codec, without excess shifts."""
    data = frame(9, [(0, batch())])
    null = 12  # the position of the null transactional id
    assert data[null] == 0
    data[null : null + 1] = b"\x80" * continued + bytes([last])
    found = read(core, data)
    empty = last == 1 and continued == 0  # the transactional id ""; longer ones are not there
    assert (found is not None) == (empty or (last == 0 and continued < 5))
    if found is not None and not empty:
        assert found == read(core, frame(9, [(0, batch())]))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_is_cut_is_another_one(core, version) -> None:
    """At each byte, and nothing after the frame is read."""
    data = frame(version, [(0, batch()), (1, batch())])
    for size in range(len(data)):
        assert read(core, data[:size]) is None


@pytest.mark.parametrize("position", range(10, 60))
def test_hostile_sizes_end_with_the_frame(core, position) -> None:
    """Counts and sizes of two billion, null and negative ones, at any position."""
    for version in (8, 9):
        for hostile in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\xff" * 9):
            data = frame(version, [(0, batch())])
            data[position : position + len(hostile)] = hostile
            read(core, data)  # returns, and allocates nothing for missing data


def test_damaged_requests_are_read_as_the_codec_reads_them(core) -> None:
    """Of thousands of requests with changed bytes, all accepted ones must match the codec."""
    rng = random.Random(11)
    for _ in range(10_000 // len(CORES)):
        version = rng.choice(VERSIONS)
        parts = [(n, batch(rng.randrange(1, 4))) for n in range(rng.randrange(3))]
        transactional_id = rng.choice([None, "", "t"])
        client_id = rng.choice([None, "x"])
        data = frame(version, parts, client_id=client_id, transactional_id=transactional_id)
        for _ in range(rng.randrange(3)):
            position = rng.randrange(len(data))
            data[position] = rng.choice([0, 1, 127, 128, 255, data[position] ^ 1])
        found = read(core, data)
        assert found == read(CORES[0], data)
        if found is not None:
            header, request = wire.decode_request(data)
            named = (
                (each.topic_id.bytes if version >= 13 else each.name, each.partition_data)
                for each in request.topic_data
            )
            decoded = [
                (name, [(part.index, bytes(part.records)) for part in parts])
                for name, parts in named
            ]
            start = header.api_version, header.correlation_id, request.transactional_id
            assert found[:4] == (*start, request.acks)
            assert decoded == [
                (name, [(index, bytes(records)) for index, records, _ in batches])
                for name, batches in found[4]
            ]
