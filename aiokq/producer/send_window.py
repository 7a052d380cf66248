"""SendWindow: the batches of a partition in order, and which of them are in flight."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokq.producer.queued_batch import QueuedBatch

__all__ = ["SendWindow"]


class SendWindow:
    """The batches of a partition, with a cursor between sent and unsent batches of a window.

    The batches before the cursor were sent in the current window. A refused batch ends the window:
    no batch is sent until every batch in flight is answered. After that, the next window begins at
    the first batch. This keeps the order, also when the leader changes.

    Attributes:
        batches: the batches that are in the queue, oldest first.
        in_flight: number of batches in flight.
    """

    __slots__ = ("_cursor", "_draining", "batches", "in_flight")

    def __init__(self) -> None:
        self.batches: deque[QueuedBatch] = deque()
        self.in_flight = 0
        self._cursor = 0
        self._draining = False

    @property
    def draining(self) -> bool:
        """Whether sending has to wait until all batches in flight are answered."""
        return self._draining and self.in_flight > 0

    @property
    def next(self) -> QueuedBatch | None:
        """The first batch that was not sent in this window; None if all were sent."""
        return self.batches[self._cursor] if self._cursor < len(self.batches) else None

    def launched(self, queued: QueuedBatch) -> None:
        """Mark a batch as in flight."""
        queued.in_flight = True
        self.in_flight += 1
        cursor, batches = self._cursor, self.batches
        if cursor < len(batches) and batches[cursor] is queued:
            self._cursor = cursor + 1
        else:
            self._draining = True  # a batch is sent out of order to learn whether it was written

    def answered(self, queued: QueuedBatch) -> None:
        """Mark a batch as not in flight: it was answered, or its answer does not matter."""
        queued.in_flight = False
        self.in_flight -= 1

    def drain(self) -> None:
        """End the window: no batch is sent until every batch in flight is answered."""
        self._draining = True

    def restart_if_drained(self) -> None:
        """Begin a new window if the current window was ended and no batch is in flight."""
        if self._draining and not self.in_flight:
            self._draining = False
            self._cursor = 0

    def restart(self) -> None:
        """Begin again with the first batch; called when no batch is in flight."""
        self._cursor = 0

    def remove(self, queued: QueuedBatch) -> None:
        """Mark a batch as done and remove it."""
        queued.done = True
        batches = self.batches
        if batches and batches[0] is queued:
            batches.popleft()
            if self._cursor:
                self._cursor -= 1
            return
        for index, other in enumerate(batches):
            if other is queued:
                del batches[index]
                if index < self._cursor:
                    self._cursor -= 1
                return

    def replace(self, queued: QueuedBatch, parts: Sequence[QueuedBatch]) -> None:
        """Replace a batch with its parts, which were not sent yet."""
        place = self.batches.index(queued)
        self.remove(queued)
        for part in reversed(parts):
            self.batches.insert(place, part)
        self._cursor = min(self._cursor, place)

    def clear(self) -> None:
        """Mark all batches as done and remove them; none of them counts as in flight."""
        for queued in self.batches:
            queued.done = True
        self.batches.clear()
        self._cursor = self.in_flight = 0
