"""The types of columns.py and of the extension compiled from it."""

from __future__ import annotations

from typing import TypeAlias, final

import pyarrow  # type: ignore[import-untyped]

from aiokq.core.types import Buffer

Nullable: TypeAlias = tuple[Buffer | None, Buffer]
"""(validity bits or None, numbers)."""

SentBinary: TypeAlias = tuple[Buffer | None, Buffer, Buffer]

SentHeaders: TypeAlias = tuple[Buffer | None, Buffer, Buffer, Buffer, Buffer | None, Buffer, Buffer]
"""The layout of HeadersColumn, with any buffers."""

@final
class RecordColumns:
    def __init__(
        self,
        count: int,
        *,
        value: SentBinary,
        key: SentBinary | None = None,
        headers: SentHeaders | None = None,
        timestamp: Nullable | None = None,
        partition: Nullable | None = None,
    ) -> None: ...
    @classmethod
    def from_arrow(cls, batch: pyarrow.RecordBatch) -> RecordColumns: ...
    @property
    def count(self) -> int: ...
    def __len__(self) -> int: ...
    def record(
        self, index: int
    ) -> tuple[
        bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int | None, int | None
    ]: ...
    def size(self, index: int) -> int: ...
    def rows_by_partition(self) -> dict[int | None, memoryview]: ...
    def fitting(
        self, rows: Buffer | None, max_bytes: int, *, max_rows: int | None = None, overhead: int = 0
    ) -> tuple[int, int]: ...
