"""`Budget`: limits the bytes of messages that an engine holds.

Tests: tests/unit/gateway/test_budget.py.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiokq.gateway.engine import TopicState
    from aiokq.gateway.settings import GatewaySettings

__all__ = ["Budget", "budget_bytes"]

LEAST_ROOM: Final = 64 * 1024
"""The smallest result of `Budget.room` other than 0.

A topic of which the engine holds no message has this room even above the limit, as long as the
bytes of all messages together are less than one and a half times the limit.
"""

MOST_ROOM: Final = 1024 * 1024
"""Largest number of bytes that the engine takes over at once; a single message may be larger."""

LEAST_BUDGET: Final = 4 * 1024 * 1024
MOST_BUDGET: Final = 32 * 1024 * 1024


def budget_bytes(settings: GatewaySettings) -> int:
    """Return the largest number of bytes of messages that an engine may hold.

    This is an eighth of the pool, within limits, but never less than the largest message. It is at
    most the whole pool: otherwise, incomplete batches in the engine `bruce` could fill the pool
    before the engine refuses messages and completes the batches.
    """
    most = settings.pool.max_bytes
    largest = max([one.limit for one in settings.inputs], default=0)
    return min(max(min(MOST_BUDGET, most // 8), LEAST_BUDGET, largest), most)


class Budget:
    """Limits the memory of the messages that an engine holds outside the pool.

    A topic may hold at most as many bytes as are free. So a few blocked topics may hold much each,
    but there is always room for other topics.

    Args:
        max_bytes: the limit; topics without messages in the engine may exceed it by half.
        on_room: called by `offer` with each topic that has room again.

    Attributes:
        bytes: bytes of all messages.
    """

    def __init__(self, max_bytes: int, on_room: Callable[[TopicState], None]) -> None:
        self._max_bytes = max_bytes
        self._on_room = on_room
        self._own: dict[TopicState, int] = {}
        self._refused: dict[TopicState, int] = {}
        """The bytes of each topic for which `room` returned 0, until `offer` calls `on_room`."""
        self._least: list[tuple[int, int, TopicState]] = []
        """A heap of the entries of `_refused`. An entry is outdated unless `_refused` has the same
        number of bytes for its topic."""
        self._numbers = itertools.count()
        self.bytes = 0

    def room(self, topic: TopicState) -> int:
        """Return the number of bytes of a topic's messages that the engine can take now.

        If the result is 0, a later `offer` calls `on_room` with the topic.
        """
        own = self._own.get(topic, 0)
        if not self._has_room(own):
            if topic not in self._refused:
                self._refuse(topic, own)
            return 0
        return max(LEAST_ROOM, min(self._max_bytes - self.bytes - own, MOST_ROOM))

    @property
    def refuses(self) -> bool:
        """Whether messages of a topic wait for room."""
        return bool(self._refused)

    def add(self, topic: TopicState, size: int) -> None:
        """Count messages that the engine has taken."""
        self._own[topic] = self._own.get(topic, 0) + size
        self.bytes += size

    def remove(self, topic: TopicState, size: int) -> None:
        """Stop counting messages whose memory was freed."""
        own = self._own[topic] - size
        self.bytes -= size
        if own:
            self._own[topic] = own
        else:
            del self._own[topic]
        if size and topic in self._refused:
            self._refuse(topic, own)

    def adopt(self, other: Budget) -> None:
        """Take over the counts of another budget, which then has none."""
        for topic, size in other._own.items():
            self.add(topic, size)
        other._own.clear()
        other._refused.clear()
        other._least.clear()
        other.bytes = 0

    def offer(self) -> None:
        """Call `on_room` with the topics that have room again, smallest holdings first."""
        while self._least:
            own, _, topic = self._least[0]
            if self._refused.get(topic) == own:
                if not self._has_room(own):
                    return
                heapq.heappop(self._least)
                del self._refused[topic]
                self._on_room(topic)
            else:
                heapq.heappop(self._least)

    def _has_room(self, own: int) -> bool:
        """Whether a topic that holds `own` bytes may hold more."""
        if self._max_bytes - self.bytes - own >= LEAST_ROOM:
            return True
        return own == 0 and self.bytes < self._max_bytes + self._max_bytes // 2

    def _refuse(self, topic: TopicState, own: int) -> None:
        self._refused[topic] = own
        if len(self._least) > 2 * len(self._refused) + 64:
            self._least = [(size, next(self._numbers), one) for one, size in self._refused.items()]
            heapq.heapify(self._least)
        else:
            heapq.heappush(self._least, (own, next(self._numbers), topic))
