"""aiokq's codecs and batches with those of kafka-python and aiokafka, in both directions."""

from __future__ import annotations

import os
import warnings
from types import ModuleType

import pytest

from aiokq.records.compression import compress, decompress
from aiokq.records.header import read_header, verify_crc
from aiokq.records.legacy import Message, decode_message_set, encode_message_set
from aiokq.records.record import RawRecord, encode_batch, iter_records
from tests.unit.records.samples import crc32c

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # their warnings on newer Pythons
    import aiokafka.codec
    import aiokafka.record.default_records
    import aiokafka.record.legacy_records
    import kafka.codec
    import kafka.record.default_records
    import kafka.record.legacy_records

LIMIT = 4 * 1024 * 1024
CODECS = {0: None, 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
RECORDS = [
    RawRecord(0, 1_700_000_000_000, b"key", b"value", [("a", b"b"), ("c", None)]),
    RawRecord(1, 1_700_000_000_003, None, b"v" * 5000, []),
    RawRecord(2, 1_699_999_999_999, b"k", None, []),
]
PEERS = [kafka, aiokafka]
NAMES = ["kafka-python", "aiokafka"]


@pytest.mark.parametrize("peer", PEERS, ids=NAMES)
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_codecs_understand_each_other(codec: int, peer: ModuleType) -> None:
    """With framing of its own, aiokq would exclude every other client."""
    encode = getattr(peer.codec, f"{CODECS[codec]}_encode")
    decode = getattr(peer.codec, f"{CODECS[codec]}_decode")
    for data in (b"abcdefgh" * 50_000, os.urandom(200_000)):
        assert bytes(decode(compress(codec, data))) == data
        assert decompress(codec, encode(data), LIMIT) == data


@pytest.mark.parametrize("peer", PEERS, ids=NAMES)
@pytest.mark.parametrize("codec", CODECS)
def test_their_batches_are_read(codec: int, peer: ModuleType) -> None:
    """Their builders differ in levels, deltas and empty headers."""
    builder = peer.record.default_records.DefaultRecordBatchBuilder(
        2, codec, False, -1, -1, -1, 1_000_000
    )
    for record in RECORDS:
        builder.append(
            record.offset,
            timestamp=record.timestamp_ms,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
    batch = bytes(builder.build())
    header = read_header(batch)
    assert verify_crc(batch, header, crc32c)
    assert header.codec == codec
    assert header.max_timestamp_ms == 1_700_000_000_003
    assert list(iter_records(batch, header)) == RECORDS


@pytest.mark.parametrize("peer", PEERS, ids=NAMES)
@pytest.mark.parametrize("codec", CODECS)
def test_they_read_our_batches(codec: int, peer: ModuleType) -> None:
    """They must read batches that the broker's log converts or writes itself."""
    batch = peer.record.default_records.DefaultRecordBatch(
        encode_batch(RECORDS, crc32c=crc32c, codec=codec)
    )
    assert batch.validate_crc()
    read = [RawRecord(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch]
    assert read == RECORDS


@pytest.mark.parametrize("peer", PEERS, ids=NAMES)
@pytest.mark.parametrize(
    ("magic", "codec"),
    # lz4 in magic 0: aiokafka has none, and test_golden.py tests Java's
    [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)],
)
def test_legacy_sets_go_both_ways(magic: int, codec: int, peer: ModuleType) -> None:
    """The formats before 0.11, as these clients build and read them."""
    messages = [Message(r.offset, r.timestamp_ms if magic else -1, r.key, r.value) for r in RECORDS]
    builder = peer.record.legacy_records.LegacyRecordBatchBuilder(magic, codec, 1_000_000)
    for message in messages:
        builder.append(
            message.offset,
            timestamp=message.timestamp_ms if magic else None,
            key=message.key,
            value=message.value,
        )
    theirs = bytes(builder.build())
    if codec:
        # clients leave the wrapper's offset to the broker, which writes the last one
        theirs = (2).to_bytes(8, "big") + theirs[8:]
    assert list(decode_message_set(theirs)) == messages

    ours = encode_message_set(messages, magic, codec)
    read: list[tuple[int, int, bytes | None, bytes | None]] = []
    position = 0
    while position < len(ours):
        size = 12 + int.from_bytes(ours[position + 8 : position + 12], "big")
        batch = peer.record.legacy_records.LegacyRecordBatch(
            bytearray(ours[position : position + size]), magic
        )
        assert batch.validate_crc()
        read += [
            (r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value) for r in batch
        ]
        position += size
    assert read == [message[:4] for message in messages]
