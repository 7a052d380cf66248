"""The types of columns.py and of the extension compiled from it."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, final

import pyarrow  # type: ignore[import-untyped]

COLUMN_NAMES: Final[tuple[str, ...]]

ColumnName: TypeAlias = Literal[
    "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"
]

BinaryColumn: TypeAlias = tuple[memoryview | None, memoryview, memoryview]
"""(validity bits or None, int32 offsets, bytes)."""

HeadersColumn: TypeAlias = tuple[
    memoryview | None,
    memoryview,
    memoryview,
    memoryview,
    memoryview | None,
    memoryview,
    memoryview,
]

@final
class Columns:
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def key(self) -> BinaryColumn | None: ...
    @property
    def value(self) -> BinaryColumn | None: ...
    @property
    def offset(self) -> memoryview | None: ...
    @property
    def timestamp(self) -> memoryview | None: ...
    @property
    def timestamp_type(self) -> memoryview | None: ...
    @property
    def headers(self) -> HeadersColumn | None: ...
    def __len__(self) -> int: ...
    def to_arrow(self) -> pyarrow.RecordBatch: ...
