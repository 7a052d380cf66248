"""A shard with one consumer-protocol group: topics in a dictionary, a log of bytes, a clock."""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Iterable, Mapping
from typing import TypeVar

from aiokq.broker.config.settings import broker_settings
from aiokq.broker.coordinator.group.classic.group import ClassicGroup
from aiokq.broker.coordinator.group.consumer.context import ConsumerContext
from aiokq.broker.coordinator.group.consumer.group import ConsumerGroup
from aiokq.broker.coordinator.group.consumer.heartbeat_validation import check_heartbeat
from aiokq.broker.coordinator.group.consumer.regex import RegexCompiler
from aiokq.broker.coordinator.group.group import Caller
from aiokq.broker.coordinator.group.migration.downgrade import OnlineDowngrades
from aiokq.broker.coordinator.group.record_types import decode_record, encode_record
from aiokq.broker.coordinator.group.topic_view import ViewedTopic
from aiokq.broker.coordinator.outcome import Outcome
from aiokq.broker.coordinator.record import CoordinatorRecord
from aiokq.broker.coordinator.timers import Instant, Timers
from aiokq.core.errors import GroupIdNotFound, InvalidRegularExpression
from aiokq.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)

R = TypeVar("R")

Names = Mapping[str, Iterable[int]]
"""Partitions by topic name."""


class Topics:
    """A `TopicView` that tests change."""

    def __init__(self, **partitions: int) -> None:
        self._topics: dict[str, ViewedTopic] = {}
        self._random = random.Random(7)
        self.version = 0
        for name, count in partitions.items():
            self.create(name, count)

    def create(self, name: str, partitions: int) -> uuid.UUID:
        """Create a topic, or recreate a deleted one with a new id."""
        topic_id = uuid.UUID(bytes=self._random.randbytes(16))
        self._topics[name] = ViewedTopic(name, topic_id, partitions)
        self.version += 1
        return topic_id

    def grow(self, name: str, partitions: int) -> None:
        self._topics[name] = self._topics[name]._replace(partitions=partitions)
        self.version += 1

    def delete(self, name: str) -> None:
        del self._topics[name]
        self.version += 1

    def topic(self, name: str) -> ViewedTopic | None:
        return self._topics.get(name)

    def by_id(self, topic_id: uuid.UUID) -> ViewedTopic | None:
        return next((found for found in self._topics.values() if found.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self._topics)

    def id(self, name: str) -> uuid.UUID:
        return self._topics[name].topic_id


def compile_python(regex: str):
    """Compile with Python's engine instead of RE2, which may not be installed."""
    try:
        return re.compile(regex).fullmatch
    except re.error as error:
        raise InvalidRegularExpression(
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
        ) from None


class World:
    """One group `g`, its log, and the time."""

    def __init__(
        self,
        *,
        settings: Mapping[str, object] | None = None,
        compile_regex: RegexCompiler = compile_python,
        **topics: int,
    ) -> None:
        self.topics = Topics(**topics)
        self.settings = broker_settings(settings)
        self.now = 100.0
        self.log: list[tuple[bytes, bytes | None]] = []
        self._compile_regex = compile_regex
        self.written: list[CoordinatorRecord] = []
        """The records of the last call."""
        self.reload()

    @property
    def instant(self) -> Instant:
        return Instant(self.now, 1_700_000_000_000 + int(self.now * 1000))

    def reload(self, *, compacted: bool = False) -> None:
        """Load the group from the log's bytes, as a node does that takes over."""
        self.timers = Timers()
        self.context = ConsumerContext(
            self.settings,
            self.timers,
            self.topics,
            random.Random(3),
            OnlineDowngrades(self.settings, self.topics, self.classic_group),
            compile_regex=self._compile_regex,
        )
        self.group = ConsumerGroup("g", self.context)
        if compacted:
            last = {key: position for position, (key, _) in enumerate(self.log)}
            self.log = [
                (key, value)
                for position, (key, value) in enumerate(self.log)
                if last[key] == position and value is not None
            ]
        for key, value in self.log:
            record = decode_record(key, value)
            assert record is not None
            self.group.replay(record)
        self.group.loaded(self.instant)

    @staticmethod
    def classic_group(group_id: str) -> ClassicGroup:
        """Fail, because no group changes its type here; `test_migration` tests that."""
        raise AssertionError(group_id)

    def take(self, outcome: Outcome[R]) -> None:
        """Handle an outcome as the runtime does."""
        self.write(outcome.records)
        if outcome.on_written is not None:
            outcome.on_written(None)

    def write(self, records: list[CoordinatorRecord]) -> None:
        """Encode the records, append them to the log and replay them."""
        self.written = records
        for record in records:
            key, value = encode_record(record)
            self.log.append((key, value))
            decoded = decode_record(key, value)
            assert decoded == record
            self.group.replay(decoded)

    def send(
        self, request: ConsumerGroupHeartbeatRequest, *, version: int = 1, client_id: str = "c"
    ) -> ConsumerGroupHeartbeatResponse:
        """Handle a request as the shard does. Raises BrokerError."""
        check_heartbeat(request, version)
        if self.group.image.epoch == 0 and request.member_epoch != 0:
            raise GroupIdNotFound("Group g not found.")
        outcome = self.group.heartbeat(
            request, Caller(client_id, "/127.0.0.1", version, frozenset), self.instant
        )
        self.take(outcome)
        assert outcome.response is not None
        return outcome.response

    def advance(self, seconds: float) -> None:
        """Let time pass, and run each timer at its deadline."""
        end = self.now + seconds
        while (at := self.timers.next_at) is not None and at <= end:
            self.now = max(self.now, at)
            while (due := self.timers.take_due(self.now)) is not None:
                outcome = due[1](self.instant)
                if outcome is not None:
                    self.take(outcome)
        self.now = end

    # Shorthands

    def partitions(self, names: Names | None) -> list[ConsumerGroupHeartbeatTopicPartitions] | None:
        if names is None:
            return None
        return [
            ConsumerGroupHeartbeatTopicPartitions(
                topic_id=self.topics.id(name), partitions=sorted(numbers)
            )
            for name, numbers in names.items()
        ]

    def join(
        self,
        member_id: str,
        *topics: str,
        regex: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = 10_000,
        rack: str | None = None,
        version: int = 1,
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a full request with epoch 0."""
        return self.send(
            ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id=member_id,
                member_epoch=0,
                instance_id=instance,
                rack_id=rack,
                rebalance_timeout_ms=rebalance_timeout_ms,
                subscribed_topic_names=list(topics),
                subscribed_topic_regex=regex,
                server_assignor=assignor,
                topic_partitions=[],
            ),
            version=version,
        )

    def beat(
        self,
        member_id: str,
        epoch: int,
        owned: Names | None = None,
        *,
        topics: Iterable[str] | None = None,
        regex: str | None = None,
        instance: str | None = None,
        rebalance_timeout_ms: int = -1,
        assignor: str | None = None,
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a request of a member with the given changes."""
        return self.send(
            ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id=member_id,
                member_epoch=epoch,
                instance_id=instance,
                rebalance_timeout_ms=rebalance_timeout_ms,
                subscribed_topic_names=None if topics is None else list(topics),
                subscribed_topic_regex=regex,
                server_assignor=assignor,
                topic_partitions=self.partitions(owned),
            )
        )

    def leave(
        self, member_id: str, *, instance: str | None = None, for_good: bool = True
    ) -> ConsumerGroupHeartbeatResponse:
        """Leave with epoch -1, or with -2 to return as a static member."""
        return self.beat(member_id, -1 if for_good else -2, instance=instance)

    def assigned(self, response: ConsumerGroupHeartbeatResponse) -> dict[str, set[int]] | None:
        """Return a response's assignment by topic name; None if it has none."""
        if response.assignment is None:
            return None
        shown: dict[str, set[int]] = {}
        for part in response.assignment.topic_partitions:
            topic = self.topics.by_id(part.topic_id)
            shown["?" if topic is None else topic.name] = set(part.partitions)
        return shown

    def owners(self) -> dict[tuple[uuid.UUID, int], str]:
        """Return the owner of each partition by the members' states; fails if there are two."""
        owners: dict[tuple[uuid.UUID, int], str] = {}
        for member in self.group.image.members.values():
            for partitions in (member.assigned, member.pending_revocation):
                for topic_id, numbers in partitions.items():
                    for number in numbers:
                        assert (topic_id, number) not in owners, "owned twice"
                        owners[topic_id, number] = member.member_id
        return owners
