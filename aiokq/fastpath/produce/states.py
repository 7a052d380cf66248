"""Owns the numbers of the produce unit where it runs uncompiled; states.pxd has the same in C."""

from __future__ import annotations

from typing import Final

OPEN, SEALED, DELIVERED, FAILED, MOVED = range(5)
"""What has become of a batch: still filled, closed to appends, acknowledged, given up, or its
records moved to other batches."""

WAIT_NEW, WAIT_SUSPENDED, WAIT_WOKEN, WAIT_CANCELLED, WAIT_LEFT, WAIT_CALLBACK = range(6)
"""What a wait is: an `await` not yet suspended, a suspended one, one whose outcome is known, a
cancelled one (its task is woken), one that its task has left, or a done-callback."""

MIN_CHUNK: Final = 1024
"""Bytes that a partition's first batch starts with; it doubles up to batch_size."""

RECORD_OVERHEAD: Final = 36
"""Bytes that a record takes at most beside key, value and headers."""

NUMBERS: Final = 20
"""Bytes that a record's length, timestamp delta and offset delta take at most."""
