"""Kafka's compression codecs: ids, levels, compression, and decompression with a size limit.

The libraries for snappy, lz4 and zstd are imported on first use.

Source: KIP-390 (levels), Kafka ``common/compress/*.java``, KAFKA-3160 (lz4 header checksum).
Tests: ``tests/unit/records/test_compression.py``.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, NoReturn

from aiokq.core.errors import ConfigError, CorruptRecord, RecordTooLarge, UnsupportedCompressionType
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.types import Buffer

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4


class LevelRange(NamedTuple):
    """The levels that a codec accepts, and its default level."""

    minimum: int
    maximum: int
    default: int


CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
LEVELS: Final = {
    GZIP: LevelRange(1, 9, -1),
    LZ4: LevelRange(1, 17, 9),
    ZSTD: LevelRange(-131072, 22, 3),
}
"""Kafka's ranges of levels. ``compression.gzip.level`` may also be -1, the default of zlib."""

_BLOCK: Final = 64 * 1024
_GZIP_STEP: Final = 256
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK: Final = 32 * 1024  # the block size of Java's SnappyOutputStream
_LZ4_MAGIC: Final = 0x184D2204
_LENGTH: Final = struct.Struct(">i")


def codec_id(name: str) -> int:
    """Return the id of a ``compression.type``: none, gzip, snappy, lz4 or zstd.

    Raises:
        ConfigError: there is no such codec.
    """
    try:
        return CODEC_NAMES.index(name)
    except ValueError:
        known = ", ".join(CODEC_NAMES)
        raise ConfigError(f"unknown compression type {name!r}; one of {known}") from None


def check_level(codec: int, level: int) -> int:
    """Return ``level`` if the codec accepts it.

    Args:
        codec: id of a known codec.

    Raises:
        ConfigError: the level is outside Kafka's range, or the codec has no levels.
    """
    levels = LEVELS.get(codec)
    if levels is None:
        raise ConfigError(f"{CODEC_NAMES[codec]} has no compression level")
    if level != levels.default and not levels.minimum <= level <= levels.maximum:
        raise ConfigError(
            f"{CODEC_NAMES[codec]} level {level} is outside {levels.minimum}..{levels.maximum}"
        )
    return level


def compress(codec: int, data: Buffer, level: int | None = None, *, magic: int = 2) -> bytes:
    """Return ``data`` compressed with Kafka's codec ``codec``.

    Args:
        codec: 0 none, 1 gzip, 2 snappy (xerial framing), 3 lz4 (frame of independent 64 KiB
            blocks), 4 zstd.
        level: a level in the codec's range of ``LEVELS``; None for the codec's default.
        magic: magic of the batch; with 0, the lz4 header has the wrong checksum that old Kafka
            clients require.

    Raises:
        UnsupportedCompressionType: the codec id is unknown, or zstd is used with a magic below 2.
        ConfigError: the level is outside the codec's range, or the codec has no levels.
    """
    if codec == NONE:
        return bytes(data)
    if not GZIP <= codec <= ZSTD or (codec == ZSTD and magic < 2):
        raise _unsupported(codec, magic)
    if level is not None:
        check_level(codec, level)
    if codec == GZIP:
        gzip = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return gzip.compress(data) + gzip.flush()
    if codec == SNAPPY:
        return _snappy_compress(data)
    if codec == LZ4:
        return _lz4_compress(data, level, magic)
    import zstandard

    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def decompress(codec: int, data: Buffer, limit: int, *, magic: int = 2) -> bytes:
    """Return ``data`` decompressed, if the result has at most ``limit`` bytes.

    Decompression stops at the limit, so that a small hostile batch cannot fill the memory.

    Args:
        codec: codec id, see ``compress``; 0 returns the bytes unchanged.
        limit: maximum size of the result, in bytes.
        magic: magic of the batch; with 0, a wrong lz4 header checksum is also accepted.

    Raises:
        CorruptRecord: the data is malformed or truncated.
        RecordTooLarge: the content is larger than ``limit``.
        UnsupportedCompressionType: the codec id is unknown, or zstd is used with a magic below 2.
    """
    if codec == NONE:
        if len(data) > limit:
            _too_large(codec, limit)
        return bytes(data)
    if codec == GZIP:
        return _gzip_decompress(data, limit)
    if codec == SNAPPY:
        return _snappy_decompress(memoryview(data), limit)
    if codec == LZ4:
        return _lz4_decompress(data, limit, magic)
    if codec == ZSTD and magic >= 2:
        return _zstd_decompress(data, limit)
    raise _unsupported(codec, magic)


def _unsupported(codec: int, magic: int) -> UnsupportedCompressionType:
    return UnsupportedCompressionType(f"compression codec {codec} in a batch of magic {magic}")


def _too_large(codec: int, limit: int) -> NoReturn:
    raise RecordTooLarge(f"{CODEC_NAMES[codec]} content is larger than {limit} bytes")


def _corrupt(codec: int, detail: object) -> CorruptRecord:
    return CorruptRecord(f"{CODEC_NAMES[codec]} content is malformed: {detail}")


# gzip: one or several members, as java.util.zip.GZIPInputStream reads them


def _gzip_decompress(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = []
    position, left = 0, limit
    try:
        while True:
            member = zlib.decompressobj(31)
            # At the end of a member, zlib copies the rest of its input. The steps begin small and
            # become larger, so that these copies stay small if there are many small members.
            step = _GZIP_STEP
            while not member.eof:
                piece = view[position : position + step]
                if not piece:
                    raise _corrupt(GZIP, "cut short")
                # A byte beyond the limit shows that the content is too large.
                part = member.decompress(piece, left + 1)
                if len(part) > left:
                    _too_large(GZIP, limit)
                parts.append(part)
                left -= len(part)
                position += len(piece) - len(member.unused_data)
                step *= 4
            if bytes(view[position : position + 2]) != b"\x1f\x8b":
                return b"".join(parts)
    except zlib.error as error:
        raise _corrupt(GZIP, error) from error


# snappy: a xerial stream (Java), or one raw block (librdkafka and some other clients)


def _snappy_compress(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    out = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        out.append(_LENGTH.pack(len(block)))
        out.append(block)
    return b"".join(out)


def _snappy_decompress(data: memoryview, limit: int) -> bytes:
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return _snappy_block(data, limit, limit)
    if len(data) < len(_XERIAL_HEADER):
        raise _corrupt(SNAPPY, "cut short")
    parts: list[bytes] = []
    position, left = len(_XERIAL_HEADER), limit
    while position < len(data):
        if bytes(data[position : position + 8]) == _XERIAL_MAGIC:  # streams may be concatenated
            position += len(_XERIAL_HEADER)
            continue
        if position + 4 > len(data):
            raise _corrupt(SNAPPY, "cut short")
        (length,) = _LENGTH.unpack_from(data, position)
        position += 4
        if length < 0 or position + length > len(data):
            raise _corrupt(SNAPPY, f"block of {length} bytes with {len(data) - position} left")
        block = _snappy_block(data[position : position + length], left, limit)
        parts.append(block)
        left -= len(block)
        position += length
    return b"".join(parts)


def _snappy_block(block: memoryview, left: int, limit: int) -> bytes:
    """Decompress one raw snappy block; the size in its varint preamble is checked first."""
    size = shift = 0
    for position in range(5):
        if position >= len(block):
            raise _corrupt(SNAPPY, "block without a length")
        byte = block[position]
        size |= (byte & 0x7F) << shift
        if not byte & 0x80:
            break
        shift += 7
    else:
        raise _corrupt(SNAPPY, "block length is not a varint")
    if size > left:
        _too_large(SNAPPY, limit)
    import cramjam

    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _corrupt(SNAPPY, error) from error


# lz4: one frame of independent blocks


def _lz4_compress(data: Buffer, level: int | None, magic: int) -> bytes:
    import lz4.frame  # type: ignore[import-untyped]  # has no stubs

    # Java uses the fast compressor for its default level 9, and the high-compression compressor for
    # every other level. The high-compression levels of the C library are 3 to 12.
    fast = level is None or level == LEVELS[LZ4].default
    frame: bytes = lz4.frame.compress(
        data,
        compression_level=0 if fast else min(max(level or 0, 3), 12),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    if magic == 0:
        # Kafka 0.8 included the frame's magic number in the header checksum. Its consumers require
        # that checksum.
        return frame[:6] + bytes((_xxh32_byte(frame[:6]),)) + frame[7:]
    return frame


def _lz4_decompress(data: Buffer, limit: int, magic: int) -> bytes:
    import lz4.frame

    if magic == 0:
        data = _lz4_with_right_checksum(data)
    frame = lz4.frame.LZ4FrameDecompressor()
    parts: list[bytes] = []
    left = limit
    pending: Buffer | None = data
    try:
        # Each call of the library allocates `max_length` bytes. Several calls with a small length
        # avoid allocating the whole limit.
        step = max(_BLOCK, 4 * len(data))
        while not frame.eof:
            part = frame.decompress(pending, max_length=min(step, left + 1))
            if len(part) > left:
                _too_large(LZ4, limit)
            if not part and not frame.eof:
                raise _corrupt(LZ4, "cut short")
            parts.append(part)
            left -= len(part)
            pending = b""
    except (RuntimeError, EOFError) as error:
        raise _corrupt(LZ4, error) from error
    return b"".join(parts)


def _lz4_with_right_checksum(data: Buffer) -> bytes:
    """Return the frame of a magic-0 message with the header checksum that the library expects.

    The header checksum of Kafka 0.8 also includes the frame's magic number.
    """
    frame = bytearray(data)
    if len(frame) < 7 or int.from_bytes(frame[:4], "little") != _LZ4_MAGIC:
        raise _corrupt(LZ4, "no frame")
    flags = frame[4]
    end = 6 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    if end >= len(frame):
        raise _corrupt(LZ4, "cut short")
    frame[end] = _xxh32_byte(frame[4:end])
    return bytes(frame)


def _xxh32_byte(data: Buffer) -> int:
    """Return the lz4 header checksum of up to 15 bytes: the second byte of xxHash32 (seed 0)."""
    mask = 0xFFFFFFFF
    h = (374761393 + len(data)) & mask
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        lane = int.from_bytes(data[position : position + 4], "little")
        h = (h + lane * 3266489917) & mask
        h = (((h << 17) | (h >> 15)) * 668265263) & mask
    for byte in data[whole:]:
        h = (h + byte * 374761393) & mask
        h = (((h << 11) | (h >> 21)) & mask) * 2654435761 & mask
    h = ((h ^ (h >> 15)) * 2246822519) & mask
    h = ((h ^ (h >> 13)) * 3266489917) & mask
    return ((h ^ (h >> 16)) >> 8) & 0xFF


# zstd: one or several frames; streaming writers (Java) omit the content size in the frame header


def _zstd_decompress(data: Buffer, limit: int) -> bytes:
    import zstandard

    view = memoryview(data)
    decompressor = zstandard.ZstdDecompressor()
    parts: list[bytes] = []
    position, left = 0, limit
    try:
        while position < len(view) or not parts:
            size, bound, exact = _zstd_frame(view[position:])
            if exact and bound > left:
                _too_large(ZSTD, limit)
            frame = view[position : position + size]
            try:
                part = decompressor.decompress(frame, max_output_size=max(1, min(bound, left)))
            except zstandard.ZstdError:
                if bound > left:  # a complete, valid frame fails only if its content is too large
                    _too_large(ZSTD, limit)
                raise
            parts.append(part)
            left -= len(part)
            position += size
    except zstandard.ZstdError as error:
        raise _corrupt(ZSTD, error) from error
    return part if len(parts) == 1 else b"".join(parts)


def _zstd_frame(data: memoryview) -> tuple[int, int, bool]:
    """Measure the first frame in `data`, without decompressing it.

    Returns:
        Three values: the frame's size in bytes; an upper bound of its content's size in bytes; and
        whether the bound is the exact size.

    The library reports the same error for a truncated frame and for content larger than the limit.
    The headers of the frame's blocks distinguish the two cases. Source: RFC 8878 section 3.1.1.
    """
    import zstandard

    header = zstandard.get_frame_parameters(data)
    position = zstandard.frame_header_size(data)
    largest = min(header.window_size, 128 * 1024)
    bound = last = 0
    while not last:
        if position + 3 > len(data):
            raise _corrupt(ZSTD, "cut short")
        block = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        # The content of a raw or repeated-byte block has `size` bytes. A compressed block does not
        # state the size of its content; the format limits it to `largest`.
        bound += largest if kind == 2 else size
        position += 3 + (1 if kind == 1 else size)
    position += 4 if header.has_checksum else 0
    if position > len(data):
        raise _corrupt(ZSTD, "cut short")
    if header.content_size != zstandard.CONTENTSIZE_UNKNOWN:
        return position, header.content_size, True
    return position, bound, False
