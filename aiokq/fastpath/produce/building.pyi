"""The types of building.py and of the extension compiled from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from aiokq.core.types import Buffer
from aiokq.fastpath.produce.accumulator import Accumulator
from aiokq.fastpath.produce.batch import Batch, PlainHeaders, Slot
from aiokq.fastpath.produce.columns import RecordColumns

BuiltPart: TypeAlias = (
    tuple[bytes | None, bytes | None, PlainHeaders, int | None]
    | tuple[RecordColumns, Buffer | None]
)
"""(key, value, headers, timestamp_ms), or rows of columns: (columns, int32 indexes or None)."""

def build_batch(
    accumulator: Accumulator,
    slot: Slot,
    parts: Iterable[BuiltPart],
    timestamp_ms: int,
    size: int = 0,
) -> Batch: ...
