"""The queue report: the numbers of messages without an outcome, by topic and state.

new + batch + send_wait + ack_wait + dead_letter is the number of messages in flight, because the
pool's counts are one snapshot, and messages taken from the pool are in the engine or in dead
letters. Tests: tests/unit/gateway/test_queues.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from json.encoder import encode_basestring_ascii as quoted
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aiokq.fastpath.gateway import PoolCounts
    from aiokq.gateway.engine import InEngine

__all__ = ["Queues", "TopicQueue", "queues"]


class TopicQueue(NamedTuple):
    """Messages of one topic without outcome.

    Attributes:
        batch: messages in the pool.
        send_wait: messages in the engine that are not in flight to a broker.
        ack_wait: messages that are sent but not acknowledged.
        dead_letter: messages whose dead letters are not written yet.
    """

    topic: str
    batch: int
    send_wait: int
    ack_wait: int
    dead_letter: int = 0


class Queues(NamedTuple):
    """All messages without outcome.

    Attributes:
        new: messages whose topic is not known to exist yet, and those that wait in the spool.
        topics: the topics with messages.
        dead_letter: messages whose dead letters are not written yet, including those of topics that
            do not exist.
    """

    new: int
    topics: list[TopicQueue]
    dead_letter: int = 0

    @property
    def in_flight(self) -> int:
        """Number of messages in all states."""
        return self.new + sum(self.totals()) + self.dead_letter

    def totals(self) -> tuple[int, int, int]:
        """Return the sums of batch, send_wait and ack_wait over all topics."""
        return (
            sum(topic.batch for topic in self.topics),
            sum(topic.send_wait for topic in self.topics),
            sum(topic.ack_wait for topic in self.topics),
        )

    def json(self) -> str:
        """Return the members of the JSON report as text: faster than a dict per topic."""
        rows = ", ".join(
            f'{{"topic": {quoted(topic)}, "batch": {batch}, "send_wait": {send_wait}, '
            f'"ack_wait": {ack_wait}, "dead_letter": {dead_letter}}}'
            for topic, batch, send_wait, ack_wait, dead_letter in self.topics
        )
        return f'"sending": [{rows}], "new": {self.new}, "dead_letter": {self.dead_letter}'

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report as text."""
        for topic in self.topics:
            yield (
                f"batch: {topic.batch:10}  send_wait: {topic.send_wait:10}  "
                f"ack_wait: {topic.ack_wait:10}  dead_letter: {topic.dead_letter:10}  "
                f"topic: [{topic.topic}]"
            )
        if self.topics:
            yield ""
        batch, send_wait, ack_wait = self.totals()
        yield f"{self.new:10} total new"
        yield f"{batch:10} total batch"
        yield f"{send_wait:10} total send_wait"
        yield f"{ack_wait:10} total ack_wait"
        yield f"{self.dead_letter:10} total dead_letter"
        yield (
            f"{self.in_flight:10} "
            "total (all states: new + batch + send_wait + ack_wait + dead_letter)"
        )


def queues(
    counts: PoolCounts,
    names: Mapping[int, str],
    engine: Mapping[str, InEngine],
    letters: int = 0,
    letters_of: Mapping[str, int] = MappingProxyType({}),
) -> Queues:
    """Return the queues.

    Args:
        counts: a snapshot of the pool with topics, made after the last message was taken.
        names: the names of registered topics, by slot.
        engine: the messages that the engine holds, by topic.
        letters: messages whose dead letters are not written yet.
        letters_of: `letters` by name of each topic that exists or existed.
    """
    topics: list[TopicQueue] = []
    elsewhere = counts.held - letters
    seen = set()
    for slot, name in names.items():
        core = counts.topics.get(slot)
        batch = 0 if core is None else core.held
        own = engine.get(name)
        send_wait, ack_wait = (0, 0) if own is None else (own.waiting, own.sent)
        seen.add(name)
        dead = letters_of.get(name, 0)
        if batch or send_wait or ack_wait or dead:
            topics.append(TopicQueue(name, batch, send_wait, ack_wait, dead))
            elsewhere -= batch + send_wait + ack_wait
    for name in {**engine, **letters_of}:
        if name not in seen:  # the topic was deleted
            waiting, sent = engine.get(name, (0, 0))
            topics.append(TopicQueue(name, 0, waiting, sent, letters_of.get(name, 0)))
            elsewhere -= waiting + sent
    topics.sort()
    return Queues(max(0, elsewhere), topics, letters)
