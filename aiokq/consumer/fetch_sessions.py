"""Owns a fetch session with one broker: what it was told, and what it has to be told next.

Sans-IO: the fetcher says what it wants, asks for a plan, and reports how the request went.

Source: KIP-227, Kafka's FetchSessionHandler.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from aiokq.core.types import TopicPartition
from aiokq.wire.fetch import FetchPartition, FetchTopic, ForgottenTopic

if TYPE_CHECKING:
    from aiokq.consumer.positions import PartitionState

__all__ = ["Ask", "FetchSession", "Plan", "fetch_topics", "forgotten_topics"]

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_LAST_EPOCH: Final = 2**31 - 1

SESSION_ID_NOT_FOUND: Final = 70


class Ask(NamedTuple):
    """What is asked of one partition, and for whom."""

    offset: int
    leader_epoch: int
    last_fetched_epoch: int
    max_bytes: int
    topic_id: UUID
    generation: int
    state: PartitionState

    def same(self, other: Ask) -> bool:
        """Whether a broker need not be told of the difference."""
        return self[:5] == other[:5]


class Plan(NamedTuple):
    """One request: which session, what is new or changed, and what to forget."""

    session_id: int
    epoch: int
    full: bool
    asks: list[tuple[TopicPartition, Ask]]
    forgotten: list[tuple[TopicPartition, UUID]]


class FetchSession:
    """The client's end of a session.

    Attributes:
        wanted: what shall be fetched; what was changed last comes last, and so has its turn last.
        sent: what the broker was told, by the request in flight or the last one.
    """

    def __init__(self) -> None:
        self.session_id = 0
        self.wanted: dict[TopicPartition, Ask] = {}
        self.sent: dict[TopicPartition, Ask] = {}
        self._epoch = INITIAL_EPOCH
        self._changed: dict[TopicPartition, None] = {}
        self._by_ids = False
        self._full = True

    def want(self, tp: TopicPartition, ask: Ask) -> None:
        """Fetch this from now on."""
        before = self.wanted.pop(tp, None)
        self.wanted[tp] = ask
        if (
            before is None
            or not before.same(ask)
            or before.generation != ask.generation
            # Taken away and given back meanwhile: what comes is for the new one.
            or before.state is not ask.state
        ):
            self._changed[tp] = None

    def drop(self, tp: TopicPartition) -> None:
        """Fetch that no more."""
        if self.wanted.pop(tp, None) is not None:
            self._changed[tp] = None

    def next(self, *, by_ids: bool, sessions: bool) -> Plan:
        """The next request.

        Args:
            by_ids: topics are named by their ids (version 13 on).
            sessions: the broker has them (version 7 on).
        """
        wanted = self.wanted
        self._full = not sessions or self._epoch == INITIAL_EPOCH or by_ids != self._by_ids
        self._by_ids = by_ids
        changed, self._changed = self._changed, {}
        if self._full:
            self._epoch = INITIAL_EPOCH
            self.sent = dict(wanted)
            epoch = INITIAL_EPOCH if sessions else FINAL_EPOCH
            # With the id of an earlier session its place is taken over.
            return Plan(self.session_id if sessions else 0, epoch, True, list(wanted.items()), [])
        asks: list[tuple[TopicPartition, Ask]] = []
        forgotten: list[tuple[TopicPartition, UUID]] = []
        sent = self.sent
        for tp in changed:
            ask, known = wanted.get(tp), sent.get(tp)
            if ask is None:
                if known is not None:
                    del sent[tp]
                    forgotten.append((tp, known.topic_id))
                continue
            if known is None or not known.same(ask):
                if known is not None and by_ids and known.topic_id != ask.topic_id:
                    forgotten.append((tp, known.topic_id))
                asks.append((tp, ask))
            sent[tp] = ask
        return Plan(self.session_id, self._epoch, False, asks, forgotten)

    def accept(self, session_id: int) -> None:
        """The request was answered without an error for the whole of it."""
        if self._full:
            self.session_id = session_id
            self._epoch = INITIAL_EPOCH + 1 if session_id else INITIAL_EPOCH
        elif session_id == self.session_id:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        else:
            # 0: the broker gave the session up, to make room for others.
            self.session_id = session_id
            self._epoch = INITIAL_EPOCH

    def reject(self, error_code: int) -> None:
        """The whole request was refused: begin a new session, in place of the old one if any."""
        self._epoch = INITIAL_EPOCH
        if error_code == SESSION_ID_NOT_FOUND:
            self.session_id = 0

    def lost(self) -> None:
        """No answer: how much of the request the broker knows cannot be told."""
        self._epoch = INITIAL_EPOCH

    def close(self) -> Plan | None:
        """The request that ends the session; None if there is none."""
        if not self.session_id:
            return None
        plan = Plan(self.session_id, FINAL_EPOCH, True, [], [])
        self.session_id = 0
        self._epoch = INITIAL_EPOCH
        return plan


def fetch_topics(asks: Iterable[tuple[TopicPartition, Ask]], *, epochs: bool) -> list[FetchTopic]:
    """Asks as a request has them; the order of topics is that of their first partitions.

    Args:
        epochs: the version has room for the last fetched epoch.
    """
    topics: dict[str, FetchTopic] = {}
    for tp, ask in asks:
        topic = topics.get(tp.topic)
        if topic is None:
            topic = topics[tp.topic] = FetchTopic(
                topic=tp.topic, topic_id=ask.topic_id, partitions=[]
            )
        topic.partitions.append(
            FetchPartition(
                partition=tp.partition,
                current_leader_epoch=ask.leader_epoch,
                fetch_offset=ask.offset,
                last_fetched_epoch=ask.last_fetched_epoch if epochs else -1,
                partition_max_bytes=ask.max_bytes,
            )
        )
    return list(topics.values())


def forgotten_topics(forgotten: Iterable[tuple[TopicPartition, UUID]]) -> list[ForgottenTopic]:
    """What to forget, as a request has it."""
    topics: dict[tuple[str, UUID], ForgottenTopic] = {}
    for tp, topic_id in forgotten:
        topic = topics.get((tp.topic, topic_id))
        if topic is None:
            topic = topics[tp.topic, topic_id] = ForgottenTopic(
                topic=tp.topic, topic_id=topic_id, partitions=[]
            )
        topic.partitions.append(tp.partition)
    return list(topics.values())
