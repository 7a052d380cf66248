"""Batches of records for Produce requests: right ones, damaged ones, and bombs.

Most damaged batches have a right checksum, because a wrong one ends their examination.
"""

from __future__ import annotations

import struct
from random import Random

from aiokq.fastpath import crc32c
from aiokq.records.legacy import encode_message_set
from aiokq.records.record import RawRecord, encode_batch

CRC_AT = 17
CRC_FROM = 21
COUNT_AT = 57
CODECS = (0, 0, 1, 2, 3, 4)
HUGE_VARINTS = (b"\xff\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\x0f", b"\xff" * 10, b"\x01", b"\x80")


def any_records(random: Random) -> bytes:
    """Return what a Produce request may have as records of a partition."""
    kind = random.random()
    if kind < 0.04:
        return b""
    if kind < 0.08:
        return random.randbytes(random.randrange(200))
    if kind < 0.16:
        magic = random.randrange(2)
        data = encode_message_set(_records(random), magic, random.choice((0, 1, 2, 3)))
        return _cut(random, data)
    batch = _batch(random)
    if kind < 0.5:
        return batch
    if kind < 0.75:
        return _damaged(random, batch)
    if kind < 0.85:
        return b"".join(_batch(random) for _ in range(random.randint(2, 4)))
    return _cut(random, batch)


def _records(random: Random) -> list[RawRecord]:
    count = random.choice([1, 1, 2, 5, 40])
    size = random.choice([0, 1, 10, 100, 2000])
    return [
        RawRecord(
            n,
            random.choice([0, 1, 1_700_000_000_000, -1, 2**62]) if random.random() < 0.1 else 1,
            random.choice([None, b"", b"key"]),
            random.choice([None, b"v" * size]),
            [("h", b"x"), ("", None)] if random.random() < 0.2 else [],
        )
        for n in range(count)
    ]


def _batch(random: Random) -> bytes:
    changes: dict[str, int] = {}
    if random.random() < 0.3:
        changes = {
            "producer_id": random.choice([0, 1, 2**62]),
            "producer_epoch": random.choice([0, 1, 2**15 - 1]),
            "base_sequence": random.choice([0, 1, 2**31 - 1]),
        }
    if random.random() < 0.1:
        changes["attributes"] = random.choice([0x10, 0x20, 0x30, 0x40, 0x7F00])
    if random.random() < 0.03:  # a bomb: a megabyte or more from a few bytes
        bomb = [RawRecord(0, 1, None, bytes(random.choice([1 << 20, 4 << 20])))]
        return encode_batch(bomb, crc32c=crc32c, codec=random.choice((1, 2, 3, 4)))
    return encode_batch(_records(random), crc32c=crc32c, codec=random.choice(CODECS), **changes)


def _damaged(random: Random, batch: bytes) -> bytes:
    data = bytearray(batch)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(CRC_FROM, len(data))
        match random.randrange(4):
            case 0:
                data[at] = random.randrange(256)
            case 1:
                piece = random.choice(HUGE_VARINTS)
                data[at : at + len(piece)] = piece
            case 2:
                struct.pack_into(">i", data, COUNT_AT, random.choice([-1, 0, 2, 2**31 - 1]))
            case 3:
                del data[at : at + random.randint(1, 5)]
                data = data.ljust(CRC_FROM + 40, b"\0")
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, CRC_AT, crc32c(bytes(data[CRC_FROM:])))
    if random.random() < 0.1:
        data[16] = random.randrange(256)  # the magic
    return bytes(data)


def _cut(random: Random, data: bytes) -> bytes:
    return data[: random.randrange(len(data) + 1)] if random.random() < 0.3 else data
