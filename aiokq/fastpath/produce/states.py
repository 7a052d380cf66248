"""The constants of the produce unit, uncompiled; states.pxd has the same in C."""

from __future__ import annotations

from typing import Final

OPEN, SEALED, DELIVERED, FAILED, MOVED = range(5)
"""The states of a batch.

In this order: it accepts records; it is closed to appends; it was acknowledged; it has failed; its
records moved to other batches.
"""

WAIT_NEW, WAIT_SUSPENDED, WAIT_WOKEN, WAIT_CANCELLED, WAIT_LEFT, WAIT_CALLBACK = range(6)
"""The states of a wait.

In this order: an `await` that has not suspended yet; that is suspended; whose outcome is known;
that was cancelled, and its task is being woken; that its task has left; or a done-callback.
"""

MIN_CHUNK: Final = 1024
"""Initial size of a partition's first batch in memory, in bytes; it doubles up to batch_size."""

RECORD_OVERHEAD: Final = 36
"""The most bytes that a record takes besides its key, value and headers."""

NUMBERS: Final = 20
"""The most bytes that a record's length, timestamp delta and offset delta take."""
