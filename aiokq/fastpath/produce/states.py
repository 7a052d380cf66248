"""The constants of the produce unit for the pure core; states.pxd has the same constants in C."""

from __future__ import annotations

from typing import Final

OPEN, SEALED, DELIVERED, FAILED, MOVED = range(5)
"""The states of a batch.

OPEN: it accepts records. SEALED: it is closed to appends. DELIVERED: it was acknowledged. FAILED:
its records were not delivered. MOVED: its records moved to other batches.
"""

WAIT_NEW, WAIT_SUSPENDED, WAIT_WOKEN, WAIT_CANCELLED, WAIT_LEFT, WAIT_CALLBACK = range(6)
"""The states of a wait, which is an `await` or a done-callback.

WAIT_NEW: the `await` has not suspended yet. WAIT_SUSPENDED: it is suspended. WAIT_WOKEN: the
outcome is known. WAIT_CANCELLED: it was cancelled, and its task is being woken. WAIT_LEFT: it ended
without an outcome, or the done-callback was called. WAIT_CALLBACK: the done-callback was not called
yet.
"""

MIN_CHUNK: Final = 1024
"""Minimum memory of a new batch in bytes, if batch_size and the free memory allow it.

A growing batch doubles its memory, up to batch_size.
"""

RECORD_OVERHEAD: Final = 36
"""Maximum number of bytes that a record takes besides its key, value and headers."""

NUMBERS: Final = 20
"""Maximum number of bytes that a record's length, timestamp delta and offset delta take."""
