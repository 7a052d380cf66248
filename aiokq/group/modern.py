"""Membership by the consumer protocol (KIP-848): one heartbeat that says and brings everything.

The broker assigns; this member gives up what its assignment lacks, takes what is new, and says
what it has. Owns what this member says next and what it owns. Sans-IO: see `machine.Membership`.

Source: Kafka's `AbstractMembershipManager` and `ConsumerHeartbeatRequestManager`; KIP-848, KIP-1082
(member ids made by the client).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from aiokq.core.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    KafkaError,
    UnknownMemberId,
    UnreleasedInstanceId,
    error_for,
)
from aiokq.core.types import GroupMetadata, TopicPartition
from aiokq.group.actions import GiveUp, NeedNames, Take
from aiokq.group.machine import Membership
from aiokq.group.membership import MemberConfig, MemberState
from aiokq.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from aiokq.wire.struct import Response

if TYPE_CHECKING:
    from aiokq.connection.backoff import Backoff

__all__ = ["ModernMember"]

logger = logging.getLogger("aiokq.group")

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_FOR_A_WHILE_EPOCH: Final = -2
"""A static member that will be back within its session timeout."""

SESSION_SLACK: Final = 5.0
"""Seconds beyond the session timeout until a broker must have noticed that a member is gone."""

EXPELLED: Final = frozenset((FencedMemberEpoch.code, UnknownMemberId.code))


class ModernMember(Membership):
    """One member of a group of the consumer protocol.

    Args:
        member_id: of this process for good, unless the broker answers with another. Heartbeat
            version 0 has the broker name who has no id, and takes a member's own as well, which
            Java's consumer sends since KIP-1082: only who knows its id from the start can leave
            while it joins.
        backoff: between attempts that failed.
    """

    def __init__(self, config: MemberConfig, member_id: str, backoff: Backoff) -> None:
        super().__init__(config, backoff)
        self._member_id = member_id
        self._epoch = JOIN_EPOCH
        self._regex: str | None = None
        self._assigned: Mapping[UUID, frozenset[int]] = {}
        self._names: dict[UUID, str] = {}
        self._ids: dict[str, UUID] = {}
        self._said_topics: tuple[frozenset[str], str | None] | None = None
        self._acknowledged = True
        self._claim_unheard = False
        self._joined = False
        self._refused_since: float | None = None
        self._interval = config.heartbeat_interval

    @property
    def group_metadata(self) -> GroupMetadata:
        config = self._config
        epoch = self._epoch if self._epoch > JOIN_EPOCH else -1
        return GroupMetadata(config.group_id, epoch, self._member_id, config.instance_id)

    # -- what is wanted

    def subscribe(self, topics: frozenset[str], now: float, *, regex: str | None = None) -> None:
        """Read these topics, and those that match.

        Args:
            regex: in RE2's syntax, evaluated by the broker (heartbeat version 1).
        """
        self._wants_out = False
        self._topics, self._regex = topics, regex
        if self.state is MemberState.OUT:
            self._not_before = self._next_heartbeat = now
            self.state = MemberState.JOINING

    # -- what comes back

    def received(self, ticket: int, response: Response, now: float) -> None:
        """The answer to the `Ask` of that ticket."""
        if not self._answers(ticket):
            return
        if not isinstance(response, ConsumerGroupHeartbeatResponse):
            raise TypeError(f"{type(response).__name__} answers nothing a member asks")
        if self.state is MemberState.LEAVING:
            self._left(now)
        elif response.error_code:
            self._refused(response, now)
        else:
            self._beaten(response, now)

    def handled(self, now: float) -> None:
        """The last `GiveUp`, `Take` or `Lose` is done."""
        if self.busy:
            self._acknowledged = False
        super().handled(now)

    def named(self, names: Mapping[UUID, str], now: float) -> None:
        """The names of topics that were asked for by `NeedNames`, or of some of them."""
        self._names.update(names)
        self._ids.update((name, topic_id) for topic_id, name in names.items())
        if self._handling is None and self.state in (MemberState.STABLE, MemberState.SETTLING):
            self._reconcile()

    # -- what to do

    def wake_at(self) -> float | None:
        """When to poll again without an input; None if only an input can change anything."""
        if self._asking or not self._beating:
            return None
        return self._not_before if self._news else max(self._not_before, self._next_heartbeat)

    @property
    def _beating(self) -> bool:
        if self.state in (MemberState.OUT, MemberState.FAILED):
            return False
        # Expelled: it does not come back before the user has been told what it lost.
        return self.state is not MemberState.PREPARING or self._epoch > JOIN_EPOCH

    @property
    def _news(self) -> bool:
        """There is something to say that does not wait for the next heartbeat."""
        return (
            self.state in (MemberState.JOINING, MemberState.LEAVING)
            or self._said_topics != (self._topics, self._regex)
            or (not self._acknowledged and self._handling is None)
        )

    def _ask_next(self, now: float) -> None:
        if not self._beating or (now < self._next_heartbeat and not self._news):
            return
        config = self._config
        if self.state is MemberState.LEAVING:
            static = config.instance_id is not None
            heartbeat = ConsumerGroupHeartbeatRequest(
                group_id=config.group_id,
                member_id=self._member_id,
                member_epoch=LEAVE_FOR_A_WHILE_EPOCH if static else LEAVE_EPOCH,
                instance_id=config.instance_id,
            )
        else:
            heartbeat = self._heartbeat()
        self._next_heartbeat = now + self._interval
        self._ask(ConsumerGroupHeartbeatRequest, lambda version: heartbeat, config.request_timeout)

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """What the broker does not know yet, as far as that is known; null says "as before"."""
        config = self._config
        heartbeat = ConsumerGroupHeartbeatRequest(
            group_id=config.group_id,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=config.instance_id,
        )
        subscription = (self._topics, self._regex)
        everything = self._epoch == JOIN_EPOCH or self._said_topics is None
        if everything:
            heartbeat.rack_id = config.rack
            heartbeat.rebalance_timeout_ms = round(config.rebalance_timeout * 1000)
            heartbeat.server_assignor = config.remote_assignor
        if everything or subscription != self._said_topics:
            heartbeat.subscribed_topic_names = sorted(self._topics)
            # "" takes back a regex that was said before; null would leave it.
            said_regex = None if self._said_topics is None else self._said_topics[1]
            heartbeat.subscribed_topic_regex = self._regex or ("" if said_regex else None)
            self._said_topics = subscription
        if everything or not self._acknowledged:
            heartbeat.topic_partitions = self._by_topic_id(self._claimed)
            self._acknowledged = self._handling is None
            self._claim_unheard = True
        return heartbeat

    @property
    def _claimed(self) -> frozenset[TopicPartition]:
        """What the broker must not give to others: also what is just being taken."""
        taking = self._handling
        return self.owned | taking.partitions if isinstance(taking, Take) else self.owned

    def _by_topic_id(
        self, partitions: Iterable[TopicPartition]
    ) -> list[ConsumerGroupHeartbeatTopicPartitions]:
        topics: dict[UUID, list[int]] = defaultdict(list)
        for topic, number in sorted(partitions):
            topics[self._ids[topic]].append(number)
        return [
            ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in topics.items()
        ]

    # -- answers

    def _beaten(self, response: ConsumerGroupHeartbeatResponse, now: float) -> None:
        self._backoff.reset()
        self._refused_since = None
        self._claim_unheard = False
        self.heartbeat_at = now
        self.error = None
        self._interval = response.heartbeat_interval_ms / 1000
        self._next_heartbeat = now + self._interval
        self._epoch = response.member_epoch
        if self.state is MemberState.PREPARING:
            return  # it is on its way out: what it is assigned now does not count
        if response.member_id:
            self._member_id = response.member_id
        if self.state is MemberState.JOINING:
            logger.info(
                "joined: group=%s member=%s epoch=%d",
                self._config.group_id,
                self._member_id,
                response.member_epoch,
            )
            self.state = MemberState.STABLE
            self._joined = True
        if response.assignment is not None:
            self._assigned = {
                topic.topic_id: frozenset(topic.partitions)
                for topic in response.assignment.topic_partitions
            }
            self._acknowledged = False
        if self._handling is None:
            self._reconcile()

    def _refused(self, response: ConsumerGroupHeartbeatResponse, now: float) -> None:
        error = error_for(response.error_code, response.error_message, api="ConsumerGroupHeartbeat")
        if response.error_code in EXPELLED or (
            # While it was silent the group became a classic one, or was deleted.
            isinstance(error, GroupIdNotFound) and self._epoch > JOIN_EPOCH
        ):
            self._expelled(error, now)
        elif error.retriable or (
            isinstance(error, UnreleasedInstanceId) and self._predecessor_may_live(now)
        ):
            self._unanswered(error, now)
        else:
            self._refuse(error)

    def _predecessor_may_live(self, now: float) -> bool:
        """A static member that was killed keeps its place for a session: its successor waits.

        Kafka's own consumer gives up here; a service that is restarted would not come up.
        """
        if self._epoch != JOIN_EPOCH:
            return False
        if self._refused_since is None:
            self._refused_since = now
            logger.warning(
                "waits for its place: group=%s instance=%s at_most=%.3gs",
                self._config.group_id,
                self._config.instance_id,
                self._config.session_timeout + SESSION_SLACK,
            )
        return now - self._refused_since < self._config.session_timeout + SESSION_SLACK

    # -- its ways

    def _reconcile(self) -> None:
        """From what it has to what it should have: first give up, then take, then say so.

        Nothing is taken while the broker has not answered what this member last claimed: by that
        claim it may have given to others what the assignment that is known here still has.
        """
        unknown = self._assigned.keys() - self._names.keys()
        if unknown:
            self._actions.append(NeedNames(frozenset(unknown)))
        assigned = frozenset(
            TopicPartition(self._names[topic_id], number)
            for topic_id, numbers in self._assigned.items()
            if topic_id in self._names
            for number in numbers
        )
        going = self.owned - assigned
        coming = assigned - self.owned
        self.state = MemberState.SETTLING
        if going:
            self._handle(GiveUp(going))
        elif (coming or (self._joined and not unknown)) and not self._claim_unheard:
            self._joined = False  # the first assignment is told even if it is empty
            self._handle(Take(coming))
        else:
            self.state = MemberState.STABLE

    def _stay(self, now: float) -> None:
        if self.state is MemberState.PREPARING:
            self.state = MemberState.JOINING
            # What was assigned on the way out was not listened to: who says everything is told.
            self._said_topics = None
            self._next_heartbeat = now
        else:
            self._reconcile()

    def _say_goodbye(self, now: float) -> None:
        if self._epoch > JOIN_EPOCH or self.state is MemberState.JOINING:
            # What is in flight may have brought the epoch of the last commits, and was
            # listened to until now. The goodbye does not wait for it.
            self._disregard()
            self.state = MemberState.LEAVING
        else:
            self._left(now)

    def _left(self, now: float) -> None:
        self._say_all_anew()
        self.heartbeat_at = None
        self.state = MemberState.OUT
        if not self._wants_out:
            self.subscribe(self._topics, now, regex=self._regex)

    def _forget(self, error: KafkaError) -> None:
        self._say_all_anew()

    def _say_all_anew(self) -> None:
        """What the coordinator knew of this member is void."""
        self._epoch = JOIN_EPOCH
        self._assigned = {}
        self._acknowledged = True
        self._claim_unheard = False
        self._joined = False
        self._said_topics = None

    def _unanswered(self, error: KafkaError, now: float) -> None:
        # Whether the last one arrived is not known: the next one says everything.
        self._said_topics = None
        self._next_heartbeat = now
        self._pause(now, error)
