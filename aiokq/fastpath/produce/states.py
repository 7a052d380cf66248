"""The constants of the produce unit for the pure core; states.pxd has the same ones in C."""

from __future__ import annotations

from typing import Final

OPEN, SEALED, DELIVERED, FAILED, MOVED = range(5)
"""The states of a batch.

In this order: the batch accepts records; it is closed to appends; it was acknowledged; it has
failed; its records moved to other batches.
"""

WAIT_NEW, WAIT_SUSPENDED, WAIT_WOKEN, WAIT_CANCELLED, WAIT_LEFT, WAIT_CALLBACK = range(6)
"""The states of a wait.

In this order: the `await` has not suspended yet; it is suspended; the outcome is known; the wait
was cancelled, and its task is being woken; the wait ended without an outcome, or its callback was
called. WAIT_CALLBACK is the state of a done-callback that was not called yet.
"""

MIN_CHUNK: Final = 1024
"""Minimum memory of a new batch in bytes, if batch_size and the free memory allow it.

A growing batch doubles its memory, up to batch_size.
"""

RECORD_OVERHEAD: Final = 36
"""Maximum number of bytes that a record takes besides its key, value and headers."""

NUMBERS: Final = 20
"""Maximum number of bytes that a record's length, timestamp delta and offset delta take."""
