"""A shard with a log of bytes and a manual clock, in place of the runtime and its event loop."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from aiokq.broker.config.settings import broker_settings
from aiokq.broker.coordinator.group.classic.group import ClassicGroup
from aiokq.broker.coordinator.group.group import Caller
from aiokq.broker.coordinator.group.record_types import decode_record, encode_record
from aiokq.broker.coordinator.group.shard import GroupShard
from aiokq.broker.coordinator.outcome import Outcome
from aiokq.broker.coordinator.record import CoordinatorRecord
from aiokq.broker.coordinator.shard import NO_PRODUCER
from aiokq.broker.coordinator.timers import Instant, Timers
from aiokq.core.errors import BrokerError, NotCoordinator
from aiokq.wire.codec import encode_prefixed
from aiokq.wire.consumer_protocol import ConsumerProtocolSubscription
from aiokq.wire.fields import ZERO_UUID
from aiokq.wire.heartbeat import HeartbeatRequest
from aiokq.wire.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from aiokq.wire.leave_group import LeaveGroupRequest, MemberIdentity
from aiokq.wire.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aiokq.wire.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from aiokq.wire.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from aiokq.wire.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.unit.broker.coordinator.group.consumer.consumer_harness import Topics

START_MS = 1_700_000_000_000


def subscription(*topics: str) -> bytes:
    """Return an encoded subscription as consumers send it to assignors."""
    return encode_prefixed(ConsumerProtocolSubscription(topics=list(topics)), 1)


class Answer:
    """The response to a request, as soon as there is one."""

    def __init__(self, response: object = None) -> None:
        self.response = response

    @property
    def waits(self) -> bool:
        return self.response is None

    @property
    def code(self) -> int | str:
        """The error code; "waits" as long as there is no response."""
        return "waits" if self.response is None else self.response.error_code

    def __getattr__(self, name: str):
        return getattr(self.response, name)


class ShardWorld:
    """One shard, with settings by Kafka's names; the initial rebalance delay defaults to 0."""

    def __init__(self, topics: Mapping[str, int] | None = None, **settings: object) -> None:
        settings.setdefault("group_initial_rebalance_delay_ms", 0)
        self.settings = broker_settings(settings)
        self.topics = Topics(**(topics or {"t": 4, "u": 2}))
        self.random = random.Random(5)
        self.now = 1000.0
        self.log: list[tuple[bytes, bytes | None]] = []
        self.refuse_writes: BrokerError | None = None
        self._open()

    def _open(self) -> None:
        self.timers = Timers()
        self.shard = GroupShard(
            settings=self.settings, timers=self.timers, topics=self.topics, rng=self.random
        )

    @property
    def instant(self) -> Instant:
        return Instant(self.now, START_MS + int(self.now * 1000))

    # The runtime's part

    def apply(self, outcome: Outcome) -> None:
        """Append and replay records, then complete the request. Raises the log's error."""
        failure = self.refuse_writes if outcome.records else None
        if failure is None:
            for record in outcome.records:
                key, value = encode_record(record)
                offset = len(self.log)
                self.log.append((key, value))
                assert decode_record(key, value) == record
                if outcome.replay:
                    self.shard.replay(record, offset=offset)
        if outcome.on_written is not None:
            outcome.on_written(failure)
        if failure is not None:
            raise failure

    def ask(self, operation: Callable[[], Outcome]) -> Answer:
        """Return an outcome's response; an error becomes a response with its code."""
        answer = Answer()
        try:
            outcome = operation()
            try:
                self.apply(outcome)
            except BrokerError:
                if outcome.deferred is None or not outcome.deferred.done:
                    raise
        except BrokerError as error:
            return Answer(_Refusal(error))
        if outcome.deferred is None:
            answer.response = outcome.response
        else:
            outcome.deferred.on_complete(lambda response: setattr(answer, "response", response))
        self.run_timers()
        return answer

    def run_timers(self) -> None:
        while (due := self.timers.take_due(self.now)) is not None:
            outcome = due[1](self.instant)
            if outcome is not None:
                self.apply(outcome)

    def pass_time(self, seconds: float) -> None:
        """Advance the clock, and run every timer at its deadline."""
        end = self.now + seconds
        while (at := self.timers.next_at) is not None and at <= end:
            self.now = max(self.now, at)
            self.run_timers()
        self.now = end

    def restart(self) -> None:
        """Replay the log in a new coordinator."""
        self.shard.unloaded()
        self._open()
        for offset, (key, value) in enumerate(self.log):
            record = decode_record(key, value)
            assert record is not None
            self.shard.replay(record, offset=offset, producer_id=NO_PRODUCER)
        self.shard.loaded(self.instant)

    def records(self) -> list[CoordinatorRecord]:
        """The decoded log."""
        return [decode_record(key, value) for key, value in self.log]

    # Requests

    def group(self, group_id: str = "g") -> ClassicGroup:
        group = self.shard.groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    @property
    def state(self) -> str:
        return self.group().state_name

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        version: int = 9,
        protocols: Mapping[str, bytes] | Sequence[str] = ("range",),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        client: str = "c",
        topics: Sequence[str] = ("t",),
    ) -> Answer:
        if not isinstance(protocols, Mapping):
            protocols = dict.fromkeys(protocols, subscription(*topics))
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols.items()
            ],
        )
        caller = Caller(client, "/10.0.0.9", version, frozenset)
        return self.ask(lambda: self.shard.join(request, caller, self.instant))

    def enter(self, **options: object) -> Answer:
        """Join as current clients do: once for the member id, and again with it."""
        first = self.join(**options)
        if first.code != 79:
            return first
        return self.join(first.member_id, **options)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = None,
        group: str = "g",
    ) -> Answer:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=assignment)
                for member, assignment in (assignments or {}).items()
            ],
        )
        return self.ask(lambda: self.shard.sync(request, self.instant))

    def heartbeat(
        self, member_id: str, generation: int, *, instance: str | None = None, group: str = "g"
    ) -> Answer:
        request = HeartbeatRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        return self.ask(lambda: self.shard.heartbeat(request, self.instant))

    def leave(self, *members: tuple[str, str | None], group: str = "g") -> Answer:
        request = LeaveGroupRequest(
            group_id=group,
            members=[
                MemberIdentity(member_id=member_id, group_instance_id=instance)
                for member_id, instance in members
            ],
        )
        return self.ask(lambda: self.shard.leave(request, self.instant))

    def commit(
        self,
        offsets: Mapping[tuple[str, int], int],
        *,
        group: str = "g",
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str = "",
        retention_ms: int = -1,
        version: int = 9,
    ) -> Answer:
        """Commit; the response's code is the first partition's unless the whole request failed."""
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member_id,
            generation_id_or_member_epoch=generation,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=self.topics.id(topic),
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )
        answer = self.ask(lambda: self.shard.commit_offsets(request, version, self.instant))
        if not isinstance(answer.response, _Refusal):
            codes = [one.error_code for topic in answer.topics for one in topic.partitions]
            answer = Answer(_Codes(codes))
        return answer

    def committed(self, group: str = "g", *, require_stable: bool = False) -> dict:
        """Return every committed offset of the group."""
        answer = self.shard.fetch_offsets(
            OffsetFetchRequestGroup(group_id=group, topics=None), require_stable=require_stable
        )
        return {
            (topic.name, one.partition_index): one.error_code or one.committed_offset
            for topic in answer.topics
            for one in topic.partitions
        }

    def fetch(self, *asked: tuple[str, int], group: str = "g", require_stable: bool = False):
        """Return (offset, metadata, error code) of single partitions."""
        answer = self.shard.fetch_offsets(
            OffsetFetchRequestGroup(
                group_id=group,
                topics=[
                    OffsetFetchRequestTopics(
                        name=topic,
                        topic_id=found.topic_id
                        if (found := self.topics.topic(topic))
                        else ZERO_UUID,
                        partition_indexes=[partition],
                    )
                    for topic, partition in asked
                ],
            ),
            require_stable=require_stable,
        )
        return [
            (one.committed_offset, one.metadata, one.error_code)
            for topic in answer.topics
            for one in topic.partitions
        ]

    def delete_offsets(self, *asked: tuple[str, int], group: str = "g") -> Answer:
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
                )
                for topic, partition in asked
            ],
        )
        answer = self.ask(lambda: self.shard.delete_offsets(request))
        if isinstance(answer.response, _Refusal):
            return answer
        return Answer(
            _Codes([one.error_code for topic in answer.topics for one in topic.partitions])
        )

    def delete_group(self, group: str = "g") -> Answer:
        return self.ask(lambda: self.shard.delete_group(group))

    # Sequences of requests

    def stable(self, members: int = 1, **options: object) -> list[JoinGroupResponse]:
        """Form a group of assigned members; return their join responses, leader first."""
        joins = [self.enter(client=f"c{number}", **options) for number in range(members)]
        if members > 1:  # later members have made the first ones rebalance
            generation = max(self.group().generation, 1)
            joins = [
                self.join(member_id, client=f"c{number}", **options)
                if not joins[number].waits
                else joins[number]
                for number, member_id in enumerate(list(self.group().roster.members))
            ]
            assert self.group().generation > generation
        assert [join.code for join in joins] == [0] * members
        joins.sort(key=lambda join: join.member_id != join.leader)
        assigned = {join.member_id: join.member_id.encode() for join in joins}
        syncs = [
            self.sync(
                join.member_id,
                join.generation_id,
                assigned if number == 0 else None,
                protocol_type=None,
            )
            for number, join in enumerate(joins)
        ]
        assert [sync.code for sync in syncs] == [0] * members
        assert [sync.assignment for sync in syncs] == list(assigned.values())
        assert self.state == "Stable"
        return [join.response for join in joins]


class _Refusal:
    def __init__(self, error: BrokerError) -> None:
        self.error_code = error.code
        self.error = error


class _Codes:
    def __init__(self, codes: list[int]) -> None:
        self.codes = codes
        self.error_code = codes[0] if codes else 0


DISK_FULL = NotCoordinator("the disk is full")
"""The runtime's error for a failed append."""
