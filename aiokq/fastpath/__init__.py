"""What runs once per record, compiled or in pure Python; see docs/adr/0008-compiled-units.md.

    aiokq.fastpath              what every unit needs: checksums, LoopGuard (shared.py)
    aiokq.fastpath.produce      Accumulator, Batch, Delivery, RecordColumns
    aiokq.fastpath.consume      Cursor, Record, Columns, RecordStream
    aiokq.fastpath.broker       OffsetMap, KeptBatches, read_produced

A unit loads when it is imported, and no unit loads another. Each gives the classes of its compiled
parts or of its pure ones: here it is decided which, once and for all units. `AIOKQ_PURE=1` forces
the pure core, `AIOKQ_REQUIRE_COMPILED=1` makes the absence of the compiled one an ImportError. With
neither, its absence is a RuntimeWarning, once in a process: pip hides what setup.py says, and
nobody would know why everything is slow.

Tests: tests/unit/test_fastpath.py, tests/unit/fastpath/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.fastpath.loading import choose, load

COMPILED, MISSING = choose()
"""Whether the compiled core is in use; why it is not there, and what to do, though nobody asked for
the pure one."""

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiokq.fastpath.consume import Record
    from aiokq.fastpath.produce import RecordMetadata
    from aiokq.fastpath.shared import (
        SOURCE_HASH,
        LoopGuard,
        crc32c,
        murmur2,
        partition_for_key,
    )
else:
    globals().update(load("", COMPILED))


def stale() -> bool:
    """Whether the compiled core in use was built from other sources than those beside it."""
    if not COMPILED:
        return False
    # Not at the top: it costs a broker's start milliseconds.
    from pathlib import Path

    from aiokq.fastpath.units import source_hash

    now = source_hash(Path(__file__).parent.parent)
    return now not in ("", SOURCE_HASH)


def restore_metadata(topic: str, partition: int, offset: int, timestamp_ms: int) -> RecordMetadata:
    """Unpickles a RecordMetadata, whichever core made it."""
    from aiokq.fastpath.produce import RecordMetadata

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
    from aiokq.fastpath.consume import Record

    return Record(
        topic, partition, offset, timestamp_ms, timestamp_type, key, value, headers, leader_epoch
    )


__all__ = [
    "COMPILED",
    "LoopGuard",
    "MISSING",
    "SOURCE_HASH",
    "crc32c",
    "murmur2",
    "partition_for_key",
    "restore_metadata",
    "restore_record",
    "stale",
]
