"""Owns RecordCodecs, what the compiled core is handed to open compressed and legacy batches."""

from __future__ import annotations

from typing import Final

from aiokq.records import compression, legacy
from aiokq.records.header import Checksum
from aiokq.records.record import DEFAULT_LIMIT


class RecordCodecs:
    """Implements ``aiokq.fastpath.consume.Codecs``.

    Args:
        crc32c: given, upconverted batches carry a right CRC; else 0, as the legacy CRC-32 was
            verified on the way.
        limit: the most bytes a legacy wrapper may decompress to.
    """

    __slots__ = ("_crc32c", "_limit")

    def __init__(self, crc32c: Checksum | None = None, *, limit: int = DEFAULT_LIMIT) -> None:
        self._crc32c: Final = crc32c
        self._limit: Final = limit

    def decompress(self, codec: int, data: memoryview, limit: int) -> bytes:
        """``data`` of a v2 batch, decompressed; see ``compression.decompress``."""
        return compression.decompress(codec, data, limit)

    def upconvert(self, data: memoryview) -> bytes:
        """v0/v1 entries as one v2 batch; see ``legacy.upconvert``."""
        return legacy.upconvert(data, crc32c=self._crc32c, limit=self._limit)
