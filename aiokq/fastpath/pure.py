"""Varints and CRC-32C for the pure core.

Varints are looked up in tables. The CRC-32C is computed by a compiled package, crc32c or cramjam;
if neither is usable, byte by byte with a table.

Tests: tests/unit/fastpath/test_checksums.py, tests/property/test_core_parity.py.
"""

# Hot path, measured by benchmarks/micro/core.py (column "pure").

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from aiokq.core.types import Buffer

Checksum: TypeAlias = Callable[[Buffer, int], int]

HEADER_SIZE: Final = 61
"""Size of the header of a v2 batch, in bytes."""

CRC_COVERS: Final = 21
"""Position of the first byte of a v2 batch that its checksum covers."""


def zigzag_bytes(value: int) -> bytes:
    """Return `value` as a zigzag varint."""
    bits = (value << 1) ^ (value >> 63)
    out = bytearray()
    while bits >= 0x80:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    out.append(bits)
    return bytes(out)


class Varints(dict[int, bytes]):
    """Zigzag varints by value; a value that is not in the dict is computed at each lookup."""

    __slots__ = ()

    def __missing__(self, value: int) -> bytes:
        return zigzag_bytes(value)


VARINT = Varints((n, zigzag_bytes(n)) for n in range(-512, 8192))
SMALL = [zigzag_bytes(n) for n in range(8192)]  # a list lookup takes half the time of a dict lookup
DELTA = [b"\0" + zigzag_bytes(n) for n in range(8192)]  # attributes (0), timestamp delta


def varint_size(value: int) -> int:
    return len(VARINT[value])


def long_varint(data: bytes, at: int, most: int) -> tuple[int, int]:
    """Return a varint of at most `most` bits, still zigzag-encoded, and the position after it.

    Raises:
        IndexError: the varint is too long, or `data` ends within it.
    """
    bits = shift = 0
    while True:
        byte = data[at]
        at += 1
        if shift >= most or (shift == 63 and byte > 1):
            raise IndexError("a varint too long")
        bits |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if most == 32 and bits > 0xFFFFFFFF:
        raise IndexError("a varint too long")
    return bits, at


def _rows() -> Iterator[int]:
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        yield n


_CRC_TABLE = tuple(_rows())


def _octets(data: Buffer) -> memoryview:
    """Return a view of the bytes of `data`.

    Raises:
        BufferError: the buffer is not C-contiguous.
    """
    view = memoryview(data)
    if not view.c_contiguous:
        raise BufferError("memoryview: underlying buffer is not C-contiguous")
    return view.cast("B")


def crc32c_table(data: Buffer, value: int = 0) -> int:
    """Compute the CRC-32C byte by byte, hundreds of times slower than a package written in C."""
    crc = value ^ 0xFFFFFFFF
    table = _CRC_TABLE
    for byte in _octets(data):
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def crc32c_package() -> Checksum:
    """Return the function of the PyPI package crc32c."""
    from crc32c import crc32c

    return crc32c


def _times(matrix: Sequence[int], vector: int) -> int:
    total = 0
    for row in matrix:
        if not vector:
            break
        if vector & 1:
            total ^= row
        vector >>= 1
    return total


def _zeros(length: int) -> list[int]:
    """Return the matrix that advances a CRC over `length` zero bytes."""
    power = [0x82F63B78] + [1 << n for n in range(31)]  # the matrix for one zero bit
    for _ in range(3):
        power = [_times(power, row) for row in power]
    out = [1 << n for n in range(32)]
    while length:
        if length & 1:
            out = [_times(power, row) for row in out]
        length >>= 1
        if length:
            power = [_times(power, row) for row in power]
    return out


def crc32c_cramjam() -> Checksum:
    """Return a CRC-32C function based on cramjam, whose snappy frames have a CRC-32C per 64 KiB."""
    from cramjam import snappy

    block_size = 65536
    over_block = _zeros(block_size)
    # One table per byte of the CRC, as in table-driven CRCs.
    shift = [[_times(over_block, n << 8 * byte) for n in range(256)] for byte in range(4)]

    def of_block(block: Buffer) -> int:
        # A frame begins with a 10-byte identifier, a chunk type, a 24-bit length and a masked CRC.
        frame = bytes(snappy.compress(bytes(block)))
        crc = int.from_bytes(frame[14:18], "little") - 0xA282EAD8 & 0xFFFFFFFF
        return (crc << 15 | crc >> 17) & 0xFFFFFFFF

    def crc32c(data: Buffer, value: int = 0) -> int:
        view = _octets(data)
        # The incomplete block comes first, so that each later block advances the CRC by the same
        # length.
        at = len(view) % block_size
        if at:
            first = of_block(view[:at])
            value = _times(_zeros(at), value) ^ first if value else first
        for start in range(at, len(view), block_size):
            value = (
                shift[0][value & 0xFF]
                ^ shift[1][value >> 8 & 0xFF]
                ^ shift[2][value >> 16 & 0xFF]
                ^ shift[3][value >> 24]
                ^ of_block(view[start : start + block_size])
            )
        return value

    return crc32c


def _load_crc32c() -> Checksum:
    """Return the fastest CRC-32C function that can be imported and passes a check."""
    for load in (crc32c_package, crc32c_cramjam):
        try:
            function = load()
            if (
                function(b"123456789", 0) == 0xE3069283
                and function(b"6789", function(b"12345", 0)) == 0xE3069283
            ):
                return function
        except (ImportError, AttributeError, ValueError, TypeError):
            continue
    return crc32c_table


crc32c = _load_crc32c()
