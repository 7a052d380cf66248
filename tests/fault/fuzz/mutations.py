"""Damage to encoded bytes: flipped bits, cuts, lies about lengths, repetitions."""

from __future__ import annotations

import struct
from random import Random

PIECES = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x7f\xff",
    b"\xff\xff",
    b"\x80\x00",
    b"\x00\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",  # the largest varint
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",  # a varint without an end
    b"\x80\x80\x80\x80\x00",  # a zero in five bytes
    b"\x02\x00\x7f\x00\x7f",  # tagged fields
)
SIZES = (0, 1, 3, 4, 8, 2**31 - 1, -1, -(2**31), 100 << 20, 10 << 20, 524_289, 1 << 16)


def damaged(random: Random, data: bytes, most: int = 4) -> bytes:
    """Return bytes with one to `most` changes; the result may be empty."""
    changed = bytearray(data)
    for _ in range(random.randint(1, most)):
        if not changed:
            break
        at = random.randrange(len(changed))
        match random.randrange(8):
            case 0:
                changed[at] ^= 1 << random.randrange(8)
            case 1:
                changed[at] = random.randrange(256)
            case 2:
                piece = random.choice(PIECES)
                changed[at : at + len(piece)] = piece
            case 3:
                changed[at:at] = random.choice(PIECES)
            case 4:
                del changed[at : at + random.choice([1, 2, 4, 30])]
            case 5:
                del changed[at:]
            case 6:
                end = at + random.choice([1, 4, 16, 64])
                changed[at:at] = changed[at:end] * random.choice([1, 2, 20])
            case 7:
                changed += random.randbytes(random.choice([1, 4, 100]))
    return bytes(changed)


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def lying(random: Random, payload: bytes) -> bytes:
    """Return a frame whose size is not that of its payload."""
    size = random.choice([*SIZES, len(payload) - 1, len(payload) + 1, len(payload) * 2])
    return struct.pack(">i", size) + payload


def pieces(random: Random, data: bytes, most: int = 6) -> list[bytes]:
    """Return the data in a few pieces."""
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.randrange(most)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
