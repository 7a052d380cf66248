"""Holdings: how many messages of each topic the engine `bruce` holds, and for how many it has room.

Tests: tests/unit/gateway/bruce/test_holdings.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.gateway.engine import InEngine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokq.fastpath.gateway import Taken
    from aiokq.gateway.bruce.chunk import Chunk
    from aiokq.gateway.engine import TopicState

__all__ = ["Holdings"]

LEAST_ROOM: Final = 64 * 1024
"""Bytes for which a topic has room as long as the engine holds none of its messages."""

MOST_ROOM: Final = 1024 * 1024
"""Largest number of bytes that the engine takes over at once."""


class _Held:
    __slots__ = ("bytes", "sent", "waiting")

    def __init__(self) -> None:
        self.bytes = 0
        self.sent = 0
        self.waiting = 0


class Holdings:
    """Counts the messages in the engine by topic, and limits their memory.

    The limit is on the memory that messages use beside the pool: they are copied into columns and
    requests. A topic may hold as much as is left of it, so that a topic that cannot be delivered
    leaves room for the others.

    Args:
        max_bytes: the limit.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._topics: dict[TopicState, _Held] = {}
        self._refused: dict[TopicState, None] = {}
        self.bytes = 0

    def room(self, topic: TopicState) -> int:
        """Return how many bytes of a topic the engine takes now; 0 for none."""
        held = self._topics.get(topic)
        own = 0 if held is None else held.bytes
        left = self._max_bytes - self.bytes - own
        if left >= LEAST_ROOM:
            return min(left, MOST_ROOM)
        if own == 0 and self.bytes < self._max_bytes + self._max_bytes // 2:
            return LEAST_ROOM
        self._refused[topic] = None
        return 0

    def with_room_again(self) -> list[TopicState]:
        """Return the topics that were refused and have room now, longest refused first."""
        refused, self._refused = self._refused, {}
        return [topic for topic in refused if self.room(topic)]

    def accepted(self, topic: TopicState, taken: Taken) -> None:
        """Note messages that the engine took over; they wait."""
        held = self._topics.get(topic)
        if held is None:
            held = self._topics[topic] = _Held()
        held.waiting += taken.count
        held.bytes += taken.charge
        self.bytes += taken.charge

    def sent(self, chunk: Chunk) -> None:
        """Note that messages that waited are in flight."""
        held = self._topics[chunk.load.topic]
        held.waiting -= len(chunk)
        held.sent += len(chunk)

    def queued(self, chunk: Chunk) -> None:
        """Note that messages in flight wait again."""
        held = self._topics[chunk.load.topic]
        held.sent -= len(chunk)
        held.waiting += len(chunk)

    def ended(self, chunk: Chunk, charge: int, *, in_flight: bool) -> None:
        """Note that messages have their outcome, with which `charge` bytes become free."""
        topic = chunk.load.topic
        held = self._topics[topic]
        if in_flight:
            held.sent -= len(chunk)
        else:
            held.waiting -= len(chunk)
        held.bytes -= charge
        self.bytes -= charge
        if not held.waiting and not held.sent:
            del self._topics[topic]

    def counts(self) -> Mapping[str, InEngine]:
        """Return the numbers of messages by topic; topics without messages are left out."""
        found: dict[str, InEngine] = {}
        for topic, held in self._topics.items():
            # A topic that was deleted and created again is here twice for a while.
            waiting, sent = found.get(topic.name, (0, 0))
            found[topic.name] = InEngine(waiting + held.waiting, sent + held.sent)
        return found

    def __bool__(self) -> bool:
        return bool(self._topics)
