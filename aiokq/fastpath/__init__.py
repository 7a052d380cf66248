"""The code that runs once per record, compiled or pure Python; see docs/adr/0008-compiled-units.md.

    aiokq.fastpath              shared by all units: checksums, LoopGuard (shared.py)
    aiokq.fastpath.produce      Accumulator, Batch, Delivery, Outgoing, RecordColumns
    aiokq.fastpath.consume      Cursor, Record, Columns, RecordStream
    aiokq.fastpath.broker       OffsetMap, KeptBatches, read_produced
    aiokq.fastpath.gateway      Pool, Taken, Intake, SpoolWriter

A unit is loaded when it is imported, and no unit loads another. Each unit exports the classes of
its compiled or of its pure parts; this module chooses once, for all units. `AIOKQ_PURE=1` forces
the pure core, `AIOKQ_REQUIRE_COMPILED=1` makes a missing compiled core an ImportError. With
neither, a missing compiled core causes one RuntimeWarning per process. Without this warning, a user
would not notice a failed compilation, because pip hides the output of setup.py.

Tests: tests/unit/test_fastpath.py, tests/unit/fastpath/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.fastpath.loading import choose, load

COMPILED, MISSING = choose()
"""COMPILED: whether the compiled core is in use. MISSING: why it is not in use, and the remedy.

MISSING is None if the compiled core is in use, or if AIOKQ_PURE=1 requested the pure core.
"""

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aiokq.core.types import Buffer
    from aiokq.fastpath.consume import Record
    from aiokq.fastpath.produce import Outgoing, RecordMetadata
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
    """Return whether the compiled core was built from other sources than those in this package.

    False for the pure core, and if the sources are not installed.
    """
    if not COMPILED:
        return False
    # Imported here, because at the top the import would delay a broker's start by milliseconds.
    from pathlib import Path

    from aiokq.fastpath.units import source_hash

    now = source_hash(Path(__file__).parent.parent)
    return now not in ("", SOURCE_HASH)


def restore_metadata(topic: str, partition: int, offset: int, timestamp_ms: int) -> RecordMetadata:
    """Unpickle a RecordMetadata that either core pickled."""
    from aiokq.fastpath.produce import RecordMetadata

    return RecordMetadata(topic, partition, offset, timestamp_ms)


def restore_outgoing(
    topic: str,
    value: object,
    key: object,
    headers: Sequence[tuple[str, Buffer | None]] | None,
    partition: int | None,
    timestamp_ms: int | None,
) -> Outgoing:
    """Unpickle an Outgoing that either core pickled."""
    from aiokq.fastpath.produce import Outgoing

    return Outgoing(topic, value, key, headers, partition, timestamp_ms)


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
    """Unpickle a Record that either core pickled."""
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
    "restore_outgoing",
    "restore_record",
    "stale",
]
