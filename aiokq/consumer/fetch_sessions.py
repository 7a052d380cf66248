"""FetchSession: the client's side of a fetch session with one broker.

Sans-IO: the fetcher sets the wanted partitions, gets a plan of the next request, and reports the
outcome of that request.

Source: KIP-227, Kafka's FetchSessionHandler.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from aiokq.core.named_tuple import NamedTuple
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
    """The fetch of one partition, and the state of the partition."""

    offset: int
    leader_epoch: int
    last_fetched_epoch: int
    max_bytes: int
    topic_id: UUID
    generation: int
    state: PartitionState

    def same(self, other: Ask) -> bool:
        """Whether both fetches send the same values; `generation` and `state` are not sent."""
        return self[:5] == other[:5]


class Plan(NamedTuple):
    """The session of one request, its new and changed partitions, and the partitions to forget."""

    session_id: int
    epoch: int
    full: bool
    asks: list[tuple[TopicPartition, Ask]]
    forgotten: list[tuple[TopicPartition, UUID]]


class FetchSession:
    """The client's side of a fetch session with one broker (KIP-227).

    Attributes:
        wanted: the partitions to fetch, in the order in which a full request lists them; the
            partition that was passed to `want` most recently is the last.
        sent: the partitions of the broker's session after the latest request.
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
        """Fetch this partition from now on."""
        before = self.wanted.pop(tp, None)
        self.wanted[tp] = ask
        if (
            before is None
            or not before.same(ask)
            or before.generation != ask.generation
            # If the partition was revoked and assigned again, the response must go to the new
            # state.
            or before.state is not ask.state
        ):
            self._changed[tp] = None

    def drop(self, tp: TopicPartition) -> None:
        """Stop fetching this partition."""
        if self.wanted.pop(tp, None) is not None:
            self._changed[tp] = None

    def next(self, *, by_ids: bool, sessions: bool) -> Plan:
        """Return the plan of the next request.

        Args:
            by_ids: whether topics are identified by id (version 13 and higher).
            sessions: whether the broker supports sessions (version 7 and higher).
        """
        wanted = self.wanted
        self._full = not sessions or self._epoch == INITIAL_EPOCH or by_ids != self._by_ids
        self._by_ids = by_ids
        changed, self._changed = self._changed, {}
        if self._full:
            self._epoch = INITIAL_EPOCH
            self.sent = dict(wanted)
            epoch = INITIAL_EPOCH if sessions else FINAL_EPOCH
            # The id of the earlier session lets the broker replace that session.
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
        """Handle a response without a top-level error."""
        if self._full:
            self.session_id = session_id
            self._epoch = INITIAL_EPOCH + 1 if session_id else INITIAL_EPOCH
        elif session_id == self.session_id:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        else:
            # The id is 0: the broker has closed the session. (If the broker evicts a session, the
            # next request of the session fails with FETCH_SESSION_ID_NOT_FOUND.)
            self.session_id = session_id
            self._epoch = INITIAL_EPOCH

    def reject(self, error_code: int) -> None:
        """Handle a top-level error: start a new session, which replaces the old session if any."""
        self._epoch = INITIAL_EPOCH
        if error_code == SESSION_ID_NOT_FOUND:
            self.session_id = 0

    def lost(self) -> None:
        """Start a new session with the next request."""
        self._epoch = INITIAL_EPOCH

    def close(self) -> Plan | None:
        """Return the plan of the request that ends the session; None if there is no session."""
        if not self.session_id:
            return None
        plan = Plan(self.session_id, FINAL_EPOCH, True, [], [])
        self.session_id = 0
        self._epoch = INITIAL_EPOCH
        return plan


def fetch_topics(asks: Iterable[tuple[TopicPartition, Ask]], *, epochs: bool) -> list[FetchTopic]:
    """Return the topics of a request, in the order of their first partitions.

    Args:
        epochs: whether the version has the field LastFetchedEpoch.
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
    topics: dict[tuple[str, UUID], ForgottenTopic] = {}
    for tp, topic_id in forgotten:
        topic = topics.get((tp.topic, topic_id))
        if topic is None:
            topic = topics[tp.topic, topic_id] = ForgottenTopic(
                topic=tp.topic, topic_id=topic_id, partitions=[]
            )
        topic.partitions.append(tp.partition)
    return list(topics.values())
