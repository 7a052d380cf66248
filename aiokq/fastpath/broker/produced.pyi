"""The types of produced.py and of the extension compiled from it."""

from __future__ import annotations

from typing import TypeAlias

ProducedBatch: TypeAlias = tuple[int, memoryview, tuple[int, ...]]
"""(partition, bytes, the 13 fields of the header)."""

def read_produced(
    frame: memoryview,
) -> tuple[int, int, str | None, int, list[tuple[str | bytes, list[ProducedBatch]]]] | None: ...
