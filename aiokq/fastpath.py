"""Owns the choice between the compiled core and the pure one; every other module imports this.

`AIOKQ_PURE=1` forces the pure core, `AIOKQ_REQUIRE_COMPILED=1` makes its absence an ImportError.
With neither, a missing compiled core is a RuntimeWarning, once in a process: pip hides what
setup.py says, and nobody would know why everything is slow.

Type checkers read _core.pyi for both. Tests: tests/unit/test_fastpath.py, tests/unit/fastpath/.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

MISSING: tuple[str, str] | None = None
"""Why there is no compiled core, and what to do, though nobody asked for the pure one."""

if TYPE_CHECKING:
    _pure = True
else:
    _pure = os.environ.get("AIOKQ_PURE") == "1"
    if not _pure:
        try:
            import aiokq._compiled  # noqa: F401
        except ImportError as error:
            if os.environ.get("AIOKQ_REQUIRE_COMPILED") == "1":
                raise
            from aiokq._missing_core import reason_and_remedy

            _pure = True
            MISSING = reason_and_remedy(error)
            warnings.warn(
                f"aiokq runs without its compiled core, several times slower: {MISSING[0]}. "
                f"{MISSING[1]}, or set AIOKQ_PURE=1 if this is wanted",
                RuntimeWarning,
                stacklevel=1,
            )

if TYPE_CHECKING or _pure:
    from aiokq._core import (
        COLUMN_NAMES,
        COMPILED,
        OFFSET_MAP_ENTRY,
        SOURCE_HASH,
        WALK_CORRUPT,
        WALK_END,
        WALK_FULL,
        WALK_HORIZON,
        WALK_KEEP_ALL,
        WALK_ONE,
        WALK_OTHER,
        WALK_TRUSTED,
        Accumulator,
        Batch,
        Columns,
        Cursor,
        Deliveries,
        Delivery,
        KeptBatches,
        LoopGuard,
        OffsetMap,
        Record,
        RecordColumns,
        RecordMetadata,
        RecordStream,
        Route,
        Slot,
        crc32c,
        murmur2,
        partition_for_key,
        read_produced,
    )
else:
    from aiokq._compiled import (
        COLUMN_NAMES,
        COMPILED,
        OFFSET_MAP_ENTRY,
        SOURCE_HASH,
        WALK_CORRUPT,
        WALK_END,
        WALK_FULL,
        WALK_HORIZON,
        WALK_KEEP_ALL,
        WALK_ONE,
        WALK_OTHER,
        WALK_TRUSTED,
        Accumulator,
        Batch,
        Columns,
        Cursor,
        Deliveries,
        Delivery,
        KeptBatches,
        LoopGuard,
        OffsetMap,
        Record,
        RecordColumns,
        RecordMetadata,
        RecordStream,
        Route,
        Slot,
        crc32c,
        murmur2,
        partition_for_key,
        read_produced,
    )

if TYPE_CHECKING:
    from collections.abc import Iterable

    # Protocols: they have no life at run time.
    from aiokq._core import Codecs as Codecs
    from aiokq._core import CursorSource as CursorSource
    from aiokq._core import PlainRecord as PlainRecord
    from aiokq._core import ProducedBatch as ProducedBatch
    from aiokq._core import RecordTuple as RecordTuple
    from aiokq._core import SlotOwner as SlotOwner


def stale() -> bool:
    """Whether the compiled core in use was built from other sources than those beside it."""
    if not COMPILED:
        return False
    # Not at the top: both cost a broker's start milliseconds.
    from pathlib import Path

    from aiokq._source_hash import source_hash

    now = source_hash(Path(__file__).parent)
    return now not in ("", SOURCE_HASH)


def restore_metadata(topic: str, partition: int, offset: int, timestamp_ms: int) -> RecordMetadata:
    """Unpickles a RecordMetadata, whichever core made it."""
    return RecordMetadata(topic, partition, offset, timestamp_ms)


def restore_record(
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    timestamp_type: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
    leader_epoch: int,
) -> Record:
    """Unpickles a Record, whichever core made it."""
    return Record(
        topic, partition, offset, timestamp_ms, timestamp_type, key, value, headers, leader_epoch
    )


__all__ = [
    "Accumulator",
    "Batch",
    "COLUMN_NAMES",
    "COMPILED",
    "Columns",
    "Cursor",
    "Deliveries",
    "Delivery",
    "KeptBatches",
    "LoopGuard",
    "OFFSET_MAP_ENTRY",
    "OffsetMap",
    "Record",
    "RecordColumns",
    "RecordMetadata",
    "RecordStream",
    "Route",
    "SOURCE_HASH",
    "Slot",
    "WALK_CORRUPT",
    "WALK_END",
    "WALK_FULL",
    "WALK_HORIZON",
    "WALK_KEEP_ALL",
    "WALK_ONE",
    "WALK_OTHER",
    "WALK_TRUSTED",
    "crc32c",
    "murmur2",
    "partition_for_key",
    "read_produced",
    "restore_metadata",
    "restore_record",
    "stale",
]
