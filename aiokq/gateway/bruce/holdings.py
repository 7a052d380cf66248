"""Holdings: how many messages of each topic the engine `bruce` holds, waiting and in flight.

Tests: tests/unit/gateway/bruce/test_holdings.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.gateway.engine import InEngine
from aiokq.gateway.load import LOAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokq.fastpath.gateway import Taken
    from aiokq.gateway.bruce.chunk import Chunk
    from aiokq.gateway.budget import Budget
    from aiokq.gateway.engine import TopicState

__all__ = ["Holdings"]


class _Held:
    __slots__ = ("sent", "waiting")

    def __init__(self) -> None:
        self.sent = 0
        self.waiting = 0


class Holdings:
    """Counts the messages in the engine by topic, and their bytes against the budget."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._topics: dict[TopicState, _Held] = {}

    def accepted(self, topic: TopicState, taken: Taken) -> None:
        """Count accepted messages as waiting."""
        held = self._topics.get(topic)
        if held is None:
            held = self._topics[topic] = _Held()
        held.waiting += taken.count
        self._budget.add(topic, taken.charge + LOAD_BYTES)

    def adopt(self, other: Holdings) -> None:
        """Take over the counts of another engine, which has no messages in flight."""
        self._budget.adopt(other._budget)
        self._topics.update(other._topics)
        other._topics = {}

    def sent(self, chunk: Chunk) -> None:
        """Count waiting messages as in flight."""
        held = self._topics[chunk.load.topic]
        held.waiting -= len(chunk)
        held.sent += len(chunk)

    def queued(self, chunk: Chunk) -> None:
        """Count messages in flight as waiting again."""
        held = self._topics[chunk.load.topic]
        held.sent -= len(chunk)
        held.waiting += len(chunk)

    def ended(self, chunk: Chunk, charge: int, *, in_flight: bool) -> None:
        """Stop counting messages that have an outcome, and free `charge` bytes."""
        topic = chunk.load.topic
        held = self._topics[topic]
        if in_flight:
            held.sent -= len(chunk)
        else:
            held.waiting -= len(chunk)
        self._budget.remove(topic, charge)
        if not held.waiting and not held.sent:
            del self._topics[topic]

    def counts(self) -> Mapping[str, InEngine]:
        """Return the numbers of messages by topic; topics without messages are left out."""
        found: dict[str, InEngine] = {}
        for topic, held in self._topics.items():
            # A topic that was deleted and created again has two entries for a while.
            waiting, sent = found.get(topic.name, (0, 0))
            found[topic.name] = InEngine(waiting + held.waiting, sent + held.sent)
        return found

    def __bool__(self) -> bool:
        return bool(self._topics)
