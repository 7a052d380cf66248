"""Owns the types of produced.py, and of what is compiled from it."""

from __future__ import annotations

from typing import TypeAlias

ProducedBatch: TypeAlias = tuple[int, memoryview, tuple[int, ...]]
"""Partition, bytes and the 13 fields of the header."""

def read_produced(
    frame: memoryview,
) -> tuple[int, int, int, list[tuple[str | bytes, list[ProducedBatch]]]] | None: ...
