"""RecordCodecs: decompresses batches and converts legacy batches for ``aiokq.fastpath.consume``."""

from __future__ import annotations

from typing import Final

from aiokq.records import compression, legacy
from aiokq.records.header import Checksum
from aiokq.records.record import DEFAULT_LIMIT


class RecordCodecs:
    """Decompresses and converts batches; implements ``aiokq.fastpath.consume.Codecs``.

    Args:
        crc32c: computes the CRC of converted batches. With None, the CRC is 0.
        limit: maximum decompressed size of a legacy wrapper, in bytes.
    """

    __slots__ = ("_crc32c", "_limit")

    def __init__(self, crc32c: Checksum | None = None, *, limit: int = DEFAULT_LIMIT) -> None:
        self._crc32c: Final = crc32c
        self._limit: Final = limit

    def decompress(self, codec: int, data: memoryview, limit: int) -> bytes:
        """Return the decompressed ``data`` of a v2 batch; see ``compression.decompress``."""
        return compression.decompress(codec, data, limit)

    def upconvert(self, data: memoryview) -> bytes:
        """Return v0/v1 entries as one v2 batch; see ``legacy.upconvert``."""
        return legacy.upconvert(data, crc32c=self._crc32c, limit=self._limit)
