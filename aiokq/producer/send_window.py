"""SendWindow: the batches of a partition in order, and which of them are in flight."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokq.producer.queued_batch import QueuedBatch

__all__ = ["SendWindow"]


class SendWindow:
    """`batches[:cursor]` were handed to a connection in this round, the others wait.

    A refused batch spoils the round: nothing more is sent until all of it is answered, then the
    next one begins at the head. So order is kept, and a change of leader is no more than that.

    Attributes:
        batches: oldest first, each until its end is known.
        in_flight: attempts whose answer is due.
    """

    __slots__ = ("_cursor", "_draining", "batches", "in_flight")

    def __init__(self) -> None:
        self.batches: deque[QueuedBatch] = deque()
        self.in_flight = 0
        self._cursor = 0
        self._draining = False

    @property
    def draining(self) -> bool:
        """Whether nothing may join before what is in flight is answered."""
        return self._draining and self.in_flight > 0

    @property
    def next(self) -> QueuedBatch | None:
        """The first batch that waits."""
        return self.batches[self._cursor] if self._cursor < len(self.batches) else None

    def launched(self, queued: QueuedBatch) -> None:
        """A batch is handed to a connection."""
        queued.in_flight = True
        self.in_flight += 1
        if self.next is queued:
            self._cursor += 1
        else:
            self._draining = True  # a probe out of turn

    def answered(self, queued: QueuedBatch) -> None:
        """The answer of its attempt is here, or waited for no more."""
        queued.in_flight = False
        self.in_flight -= 1

    def drain(self) -> None:
        """No more is sent in this round."""
        self._draining = True

    def restart_if_drained(self) -> None:
        """A spoilt round is over when nothing is in flight."""
        if self._draining and not self.in_flight:
            self._draining = False
            self._cursor = 0

    def restart(self) -> None:
        """All that waits is sent again from the head."""
        self._cursor = 0

    def remove(self, queued: QueuedBatch) -> None:
        """A batch is done."""
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
        """A batch is done, as others take its place, which wait."""
        place = self.batches.index(queued)
        self.remove(queued)
        for part in reversed(parts):
            self.batches.insert(place, part)
        self._cursor = min(self._cursor, place)

    def clear(self) -> None:
        """All batches are done."""
        for queued in self.batches:
            queued.done = True
        self.batches.clear()
        self._cursor = self.in_flight = 0
