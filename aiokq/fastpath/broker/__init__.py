"""Reads Produce requests and compacts batches for the broker, compiled or in pure Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.fastpath import COMPILED
from aiokq.fastpath.loading import load

if TYPE_CHECKING:
    from aiokq.fastpath.broker.compaction import (
        OFFSET_MAP_ENTRY,
        WALK_CORRUPT,
        WALK_END,
        WALK_FULL,
        WALK_HORIZON,
        WALK_KEEP_ALL,
        WALK_ONE,
        WALK_OTHER,
        WALK_TRUSTED,
        KeptBatches,
        OffsetMap,
    )
    from aiokq.fastpath.broker.produced import ProducedBatch as ProducedBatch
    from aiokq.fastpath.broker.produced import read_produced
else:
    globals().update(load("broker", COMPILED))

__all__ = [
    "KeptBatches",
    "OFFSET_MAP_ENTRY",
    "OffsetMap",
    "WALK_CORRUPT",
    "WALK_END",
    "WALK_FULL",
    "WALK_HORIZON",
    "WALK_KEEP_ALL",
    "WALK_ONE",
    "WALK_OTHER",
    "WALK_TRUSTED",
    "read_produced",
]
