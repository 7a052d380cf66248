"""The constants of the produce unit, uncompiled; states.pxd has the same in C."""

from __future__ import annotations

from typing import Final

OPEN, SEALED, DELIVERED, FAILED, MOVED = range(5)
"""The states of a batch: accepts records, closed to appends, acknowledged, failed, or its records
moved to other batches.
"""

WAIT_NEW, WAIT_SUSPENDED, WAIT_WOKEN, WAIT_CANCELLED, WAIT_LEFT, WAIT_CALLBACK = range(6)
"""The states of a wait: an `await` that has not suspended yet, that is suspended, whose outcome is
known, that was cancelled (its task is woken), or that its task has left; or a done-callback.
"""

MIN_CHUNK: Final = 1024
"""Size of a partition's first batch, in bytes; it doubles up to batch_size."""

RECORD_OVERHEAD: Final = 36
"""The most bytes that a record takes besides its key, value and headers."""

NUMBERS: Final = 20
"""The most bytes that a record's length, timestamp delta and offset delta take."""
