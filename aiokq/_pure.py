"""Owns how the uncompiled core encodes, decodes and checksums: tables and slices for C's loops.

_core.py imports it only where it runs uncompiled, and stays the owner of every class. Flat on
purpose, like what it stands in for. Tests: tests/property/test_core_parity.py holds both alike.
"""

# hot: benchmarks/micro/core.py, column "pure".

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from aiokq.core.types import Buffer

Checksum: TypeAlias = Callable[[Buffer, int], int]
Pairs: TypeAlias = Sequence[tuple[str, bytes | None]]

# ---------------------------------------------------------------- varints


def zigzag_bytes(value: int) -> bytes:
    """`value` as a zigzag varint."""
    bits = (value << 1) ^ (value >> 63)
    out = bytearray()
    while bits >= 0x80:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    out.append(bits)
    return bytes(out)


class Varints(dict[int, bytes]):
    """Varints by value: small numbers are looked up, the rest worked out each time."""

    __slots__ = ()

    def __missing__(self, value: int) -> bytes:
        return zigzag_bytes(value)


VARINT = Varints((n, zigzag_bytes(n)) for n in range(-512, 8192))
SMALL = [zigzag_bytes(n) for n in range(8192)]  # by index: half the time of a dict
DELTA = [b"\0" + zigzag_bytes(n) for n in range(8192)]  # attributes and timestamp delta


def _long_varint(data: bytes, at: int, most: int) -> tuple[int, int]:
    """The bits of a varint of any length, `most` bits at most, and where it ends."""
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


# ---------------------------------------------------------------- CRC-32C


def _rows() -> Iterator[int]:
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        yield n


_CRC_TABLE = tuple(_rows())


def crc32c_table(data: Buffer, value: int = 0) -> int:
    """Byte by byte: right everywhere, and hundreds of times slower than the others."""
    crc = value ^ 0xFFFFFFFF
    table = _CRC_TABLE
    for byte in memoryview(data).cast("B"):
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def crc32c_package() -> Checksum:
    """PyPI's crc32c."""
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
    """The matrix that moves a CRC on over `length` zero bytes."""
    power = [0x82F63B78] + [1 << n for n in range(31)]  # one bit
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
    """cramjam comes with python-snappy; its snappy frames carry a masked CRC-32C per 64 KiB."""
    from cramjam import snappy

    block_size = 65536
    over_block = _zeros(block_size)
    # By byte of the CRC, as table-driven CRCs do.
    shift = [[_times(over_block, n << 8 * byte) for n in range(256)] for byte in range(4)]

    def of_block(block: Buffer) -> int:
        # A frame begins with a 10-byte identifier; then type, 24-bit length, CRC.
        frame = bytes(snappy.compress(bytes(block)))
        crc = int.from_bytes(frame[14:18], "little") - 0xA282EAD8 & 0xFFFFFFFF
        return (crc << 15 | crc >> 17) & 0xFFFFFFFF

    def crc32c(data: Buffer, value: int = 0) -> int:
        view = memoryview(data).cast("B")
        # The odd piece first: the others then move the CRC on by the same length.
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
    """The fastest CRC-32C that can be imported and knows the right answer."""
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

# ---------------------------------------------------------------- headers


def headers_bytes(
    headers: Iterable[Any], plain: Callable[[Iterable[Any]], Pairs], names: dict[Any, bytes]
) -> bytes:
    """A record's headers, their count first.

    Args:
        headers: pairs as the caller gave them.
        plain: makes plain pairs of them, or raises what is wrong with them.
        names: header names as they are encoded, filled here: few, and always the same.
    """
    if type(headers) is not list and type(headers) is not tuple:
        headers = plain(headers)
    parts = [VARINT[len(headers)]]
    for header in headers:
        if type(header) is not tuple or len(header) != 2:
            return headers_bytes(plain(headers), plain, names)
        name, value = header
        if type(name) is not str:
            return headers_bytes(plain(headers), plain, names)
        encoded = names.get(name)
        if encoded is None:
            encoded = name.encode()
            encoded = VARINT[len(encoded)] + encoded
            if len(names) >= 1024:
                names.clear()
            names[name] = encoded
        parts.append(encoded)
        if type(value) is bytes:
            parts.append(VARINT[len(value)])
            parts.append(value)
        elif value is None:
            parts.append(b"\x01")
        else:
            return headers_bytes(plain(headers), plain, names)
    return b"".join(parts)


def _decode_headers(data: bytes, at: int, end: int, count: int) -> Pairs:
    out: list[tuple[str, bytes | None]] = []
    try:
        for _ in range(count):
            bits, at = _long_varint(data, at, 32)
            size = bits >> 1
            if bits & 1 or size > end - at:
                raise IndexError
            name = data[at : at + size].decode("utf-8", "replace")
            bits, at = _long_varint(data, at + size, 32)
            size = bits >> 1
            if bits & 1:
                out.append((name, None))
            elif size > end - at:
                raise IndexError
            else:
                out.append((name, data[at : at + size]))
                at += size
        if at != end:
            raise IndexError
    except IndexError:
        raise ValueError("a malformed header") from None
    return tuple(out)


# ---------------------------------------------------------------- records


def decode_batch(cursor: Any, count: int, kind: Any) -> tuple[list[Any], str | None]:
    """The records of the cursor's open batch, last one first, and the error after them.

    All at once: a call per record would cost as much as decoding it. Every read may run over
    the record's end; what counts is that it ends where it says. None stands for a record at or
    beyond the stop offset.

    Args:
        cursor: a Cursor whose batch was just opened.
        count: how many records its header says there are.
        kind: the class Record.
    """
    data = cursor.inner
    limit = len(data)
    topic = cursor.topic
    partition = cursor.partition
    base_offset = cursor.base_offset
    last_delta = cursor.last_delta
    base_timestamp = cursor.base_timestamp
    time_type = cursor.time_type
    append_time = time_type == 1
    epoch = cursor.epoch
    stop = cursor.stop
    next_offset = cursor.position
    skipping = base_offset < next_offset
    far = not -_FAR < base_timestamp < _FAR
    new = kind.__new__
    out: list[Any] = []
    at = 0
    error = None
    try:
        while count:
            # A number of one or two bytes is read in place; `bits` is before un-zigzag.
            bits = data[at]
            if bits < 0x80:
                at += 1
            elif (more := data[at + 1]) < 0x80:
                bits += (more << 7) - 0x80
                at += 2
            else:
                bits, at = _long_varint(data, at, 32)
            end = at + (bits >> 1)
            if bits & 1 or not bits or end > limit:
                raise ValueError("a malformed record")
            bits = data[at + 1]  # past the attributes
            wide = far
            if bits < 0x80:
                at += 2
            else:
                bits, at = _long_varint(data, at + 1, 64)
                wide = True
            delta = -(bits >> 1) - 1 if bits & 1 else bits >> 1
            bits = data[at]
            if bits < 0x80:
                at += 1
            elif (more := data[at + 1]) < 0x80:
                bits += (more << 7) - 0x80
                at += 2
            else:
                bits, at = _long_varint(data, at, 32)
            offset = -(bits >> 1) - 1 if bits & 1 else bits >> 1
            bits = data[at]
            if bits < 0x80:
                at += 1
            else:
                bits, at = _long_varint(data, at, 32)
            if bits & 1:
                key = None
            else:
                start = at
                at += bits >> 1
                key = data[start:at]
            bits = data[at]
            if bits < 0x80:
                at += 1
            elif (more := data[at + 1]) < 0x80:
                bits += (more << 7) - 0x80
                at += 2
            else:
                bits, at = _long_varint(data, at, 32)
            if bits & 1:
                value = None
            else:
                start = at
                at += bits >> 1
                value = data[start:at]
            size = data[at]
            at += 1
            if size:
                bits, at = _long_varint(data, at - 1, 32)
                size = -(bits >> 1) - 1 if bits & 1 else bits >> 1
            if at > end or not 0 <= size <= (end - at) // 2 or (size == 0 and at != end):
                raise ValueError("a malformed record")
            count -= 1
            offset += base_offset
            if offset < next_offset:
                if not skipping:
                    raise ValueError("record offsets that do not rise")
                at = end
                continue
            skipping = False
            if offset - base_offset > last_delta:
                raise ValueError("record offsets that do not rise")
            if offset >= stop:
                out.append(None)
                break
            if count == 0 and end != limit:
                raise ValueError("bytes after the last record")
            record = new(kind)
            record.headers = _decode_headers(data, at, end, size) if size else ()
            at = end
            record.topic = topic
            record.partition = partition
            record.offset = offset
            record.timestamp_type = time_type
            if append_time:
                record.timestamp_ms = base_timestamp
            else:
                delta += base_timestamp
                if wide:
                    delta = (delta + 2**63) % 2**64 - 2**63
                record.timestamp_ms = delta
            record.key = key
            record.value = value
            record.leader_epoch = epoch
            out.append(record)
            next_offset = offset + 1
    except (IndexError, ValueError) as problem:
        error = str(problem) if isinstance(problem, ValueError) else "a malformed record"
    out.reverse()
    return out, error


_FAR = 2**62

# ---------------------------------------------------------------- columns


def packed(code: str, numbers: Sequence[int]) -> memoryview:
    """Numbers as Arrow has them."""
    return memoryview(struct.pack(f"<{len(numbers)}{code}", *numbers))


def _bits(present: Sequence[bool]) -> memoryview | None:
    """Arrow's validity bits, least significant first; None if all are there."""
    if all(present):
        return None
    bits = bytearray((len(present) + 7) // 8)
    for n, there in enumerate(present):
        if there:
            bits[n >> 3] |= 1 << (n & 7)
    return memoryview(bytes(bits))


def binary_column(
    values: Sequence[bytes | None],
) -> tuple[memoryview | None, memoryview, memoryview]:
    """Validity bits, offsets and bytes."""
    offsets = [0]
    total = 0
    for value in values:
        if value is not None:
            total += len(value)
        offsets.append(total)
    return (
        _bits([value is not None for value in values]),
        packed("i", offsets),
        memoryview(b"".join([value for value in values if value])),
    )


def headers_column(rows: Sequence[Pairs]) -> tuple[memoryview | None, ...]:
    """Rows of (name, value) pairs as a list of structs; a row without any is null."""
    offsets = [0]
    names: list[bytes | None] = []
    values: list[bytes | None] = []
    for row in rows:
        for name, value in row:
            names.append(name.encode())
            values.append(value)
        offsets.append(len(names))
    _, name_offsets, name_data = binary_column(names)
    return (
        _bits([bool(row) for row in rows]),
        packed("i", offsets),
        name_offsets,
        name_data,
        *binary_column(values),
    )
