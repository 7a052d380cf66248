"""Groups that change their protocol: responses to members, and records in the log.

The same requests are sent to `aiokq broker` and to Apache Kafka, one at a time. The responses and
the records in `__consumer_offsets` are compared, with ids, times and hashes replaced.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import aiokq
from aiokq.assign.model import Assignment, Subscription
from aiokq.assign.protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from aiokq.broker.coordinator.group.coordinator import OFFSETS_TOPIC
from aiokq.broker.coordinator.group.record_types import decode_record
from aiokq.broker.coordinator.key_hash import partition_by_hash
from aiokq.cluster.targets import Coordinator, CoordinatorKind
from aiokq.core.types import TopicPartition
from aiokq.wire import consumer_group_heartbeat as modern
from aiokq.wire.consumer_group_describe import ConsumerGroupDescribeRequest
from aiokq.wire.describe_groups import DescribeGroupsRequest
from aiokq.wire.heartbeat import HeartbeatRequest
from aiokq.wire.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from aiokq.wire.leave_group import LeaveGroupRequest, MemberIdentity
from aiokq.wire.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aiokq.wire.struct import Struct
from aiokq.wire.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.interop.apache.support import eventually
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.broker_process import broker_process

pytestmark = pytest.mark.kafka

PARTITIONS = 4
NEWEST_COMMIT = 9
"""The last OffsetCommit version without topic ids."""
COORDINATOR_NOT_THERE = (14, 15, 16)
"""Errors of a coordinator whose topic is being created."""
UNSTABLE = {"metadata_hash", "commit_timestamp", "current_state_timestamp", "client_host"}


class Script:
    """The requests to one broker, and their outcomes by name of the step."""

    def __init__(self, client: aiokq.Cluster, topic: str, topic_id: Any) -> None:
        self.client = client
        self.topic = topic
        self.topic_id = topic_id
        self.group = ""
        self.answers: list[tuple[str, Any]] = []
        self._names: dict[str, str] = {}

    def named(self, member_id: str) -> str:
        """Return a stable name for a member id: its number in order of appearance."""
        return self._names.setdefault(member_id, f"member {len(self._names)}") if member_id else ""

    async def ask(self, request: Any, newest: int | None = None) -> Any:
        async def once() -> Any:
            answer = await self.client._engine.router.request(
                lambda version: request,
                type(request),
                Coordinator(CoordinatorKind.GROUP, self.group),
                timeout=20,
                newest=newest,
            )
            assert getattr(answer, "error_code", 0) not in COORDINATOR_NOT_THERE
            return answer

        return await eventually(once)

    def note(self, step: str, *answer: Any) -> None:
        self.answers.append((f"{self.group[:1]}: {step}", answer))

    async def join(
        self,
        step: str,
        member_id: str = "",
        *,
        instance: str | None = None,
        topics: Sequence[str] | None = None,
        protocol: str = "range",
        protocol_type: str = "consumer",
    ) -> Any:
        metadata = encode_subscription(Subscription(tuple(topics or [self.topic])))
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=protocol, metadata=metadata)],
        )
        answer = await self.ask(request)
        if answer.error_code == 79 and not member_id:
            self.note(f"{step}, first", 79, bool(answer.member_id))
            request.member_id = answer.member_id
            answer = await self.ask(request)
        self.note(
            step,
            answer.error_code,
            answer.generation_id,
            answer.protocol_type,
            answer.protocol_name,
            self.named(answer.leader),
            self.named(answer.member_id),
            [self.named(one.member_id) for one in answer.members],
        )
        return answer

    async def sync(
        self,
        step: str,
        member_id: str,
        generation: int,
        given: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str = "consumer",
    ) -> list[int]:
        answer = await self.ask(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance,
                protocol_type=protocol_type,
                protocol_name="range",
                assignments=[
                    SyncGroupRequestAssignment(member_id=one, assignment=assignment)
                    for one, assignment in (given or {}).items()
                ],
            )
        )
        parts = [tp.partition for tp in decode_assignment(answer.assignment).partitions]
        self.note(step, answer.error_code, answer.protocol_type, answer.protocol_name, parts)
        return parts

    async def beat(
        self, step: str, member_id: str, generation: int, *, instance: str | None = None
    ) -> None:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        self.note(step, (await self.ask(request)).error_code)

    async def modern(
        self,
        step: str,
        member_id: str,
        epoch: int,
        owned: Sequence[int] | None = None,
        *,
        instance: str | None = None,
    ) -> Any:
        request = modern.ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=member_id, member_epoch=epoch, instance_id=instance
        )
        if epoch == 0:
            request.rebalance_timeout_ms = 30_000
            request.subscribed_topic_names = [self.topic]
            request.topic_partitions = []
        if owned is not None:
            request.topic_partitions = [
                modern.ConsumerGroupHeartbeatTopicPartitions(
                    topic_id=self.topic_id, partitions=list(owned)
                )
            ]
        answer = await self.ask(request)
        given = answer.assignment
        parts = given and [sorted(topic.partitions) for topic in given.topic_partitions]
        message = (answer.error_message or "").replace(self.group, "GROUP")
        self.note(step, answer.error_code, message, answer.member_epoch, parts)
        return answer

    async def commit(self, step: str, member_id: str, epoch: int) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
        topic = OffsetCommitRequestTopic(name=self.topic, partitions=[partition])
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=[topic],
        )
        answer = await self.ask(request, newest=NEWEST_COMMIT)
        self.note(step, answer.topics[0].partitions[0].error_code)

    async def describe(self, step: str) -> None:
        """Describe the group with both APIs, one of which does not know it."""
        old = (await self.ask(DescribeGroupsRequest(groups=[self.group]))).groups[0]
        members = sorted(self.named(one.member_id) for one in old.members)
        self.note(f"{step}, classic", old.error_code, old.group_state, old.protocol_data, members)
        new = (await self.ask(ConsumerGroupDescribeRequest(group_ids=[self.group]))).groups[0]
        shown = sorted(
            (
                self.named(one.member_id),
                one.member_type,
                one.member_epoch,
                one.instance_id,
                one.subscribed_topic_names,
                [sorted(topic.partitions) for topic in one.assignment.topic_partitions],
                [sorted(topic.partitions) for topic in one.target_assignment.topic_partitions],
            )
            for one in new.members
        )
        state = (new.error_code, new.group_state, new.group_epoch, new.assignment_epoch)
        self.note(f"{step}, modern", *state, shown)

    def all_partitions(self, user_data: bytes | None = None) -> bytes:
        whole = tuple(TopicPartition(self.topic, n) for n in range(PARTITIONS))
        return encode_assignment(Assignment(whole, user_data))

    async def coordinator_knows_topic(self) -> None:
        """Wait until the coordinator knows the topic, which takes Apache Kafka a moment."""
        for number in itertools.count():
            self.group = f"first-{self.topic}-{number}"
            answer = await self.modern("first", "first", 0)
            await self.modern("first", "first", -1)
            if answer.assignment is not None and answer.assignment.topic_partitions:
                break
        self.answers.clear()

    # The log

    async def log(self) -> list[Any]:
        """Return the group's records except offsets; runs of one type are sorted by key."""
        found = []
        tp = TopicPartition(OFFSETS_TOPIC, partition_by_hash(self.group, 4))
        async with aiokq.Consumer(
            bootstrap_servers=self.client._engine.settings.bootstrap_servers
        ) as consumer:
            consumer.assign([tp])
            await consumer.seek_to_beginning()
            end = (await consumer.end_offsets([tp]))[tp]
            while await consumer.position(tp) < end:
                for batch in (await consumer.getmany(timeout=1)).values():
                    found += [(one.key, one.value) for one in batch]
        shown = []
        for key, value in found:
            record = decode_record(key, value)
            assert record is not None
            name = type(record.key).__name__
            if name.startswith(("ConsumerGroup", "GroupMetadata")) and self.group in str(record):
                shown.append((name, self._plain(record.key), self._plain(record.value)))
        return [
            one
            for _, run in itertools.groupby(shown, key=lambda one: (one[0], one[2] is None))
            for one in sorted(run, key=str)
        ]

    def _plain(self, value: Any, name: str = "") -> Any:
        if isinstance(value, Struct):
            return {
                field: self._plain(getattr(value, field), field)
                for field in sorted(value.__dataclass_fields__)
                if field not in UNSTABLE
            }
        if isinstance(value, list):
            plain = [self._plain(one, name) for one in value]
            # Kafka orders members by a hash map, which also decides who leads.
            return sorted(plain, key=str) if name == "members" else plain
        if name == "leader":
            return bool(value)
        if name in ("metadata", "subscription") and value:
            return decode_subscription(value)
        if name == "assignment":
            return decode_assignment(value)
        if value == self.group:
            return "GROUP"
        if value == self.topic_id:
            return "TOPIC"
        return self.named(value) if name == "member_id" and value else value


async def dynamic(s: Script) -> None:
    """A classic member is joined by one of the consumer protocol, and is then alone again."""
    a = (await s.join("join")).member_id
    await s.sync("sync", a, 1, {a: s.all_partitions()})
    await s.modern("upgrade", "modern", 0)
    await s.beat("to be joined", a, 1)
    await s.sync("too late", a, 1)
    await s.describe("upgraded")
    joined = await s.join("join again", a)
    await s.sync("half", a, joined.generation_id)
    await s.beat("settled", a, joined.generation_id)
    await s.beat("no classic member", "modern", joined.generation_id)
    answer = await s.modern("the other half", "modern", 2, [])
    await s.describe("settled")
    await s.commit("committed", a, joined.generation_id)
    await s.commit("illegal generation", a, joined.generation_id + 1)
    await s.commit("stale epoch", "modern", answer.member_epoch + 1)
    await s.join("nothing in common", protocol="roundrobin")
    await s.join("no consumer", protocol_type="connect")
    await s.beat("illegal generation", a, joined.generation_id + 1)
    await s.beat("unknown", "nobody", joined.generation_id)
    await s.modern("downgrade", "modern", -1)
    await s.describe("downgraded")
    await s.beat("to be joined once more", a, joined.generation_id)
    joined = await s.join("leads", a)
    await s.sync("leads", a, joined.generation_id, {a: s.all_partitions()})
    await s.describe("alone")
    left = await s.ask(LeaveGroupRequest(group_id=s.group, members=[MemberIdentity(member_id=a)]))
    s.note("left", left.error_code, [one.error_code for one in left.members])


async def static(s: Script) -> None:
    """A static member changes its protocol twice, beside a member that stays classic."""
    one = (await s.join("one", instance="one")).member_id
    await s.sync("one", one, 1, {one: s.all_partitions()}, instance="one")
    joined = await s.modern("two", "two", 0, instance="two")
    again = await s.join("one again", one, instance="one")
    await s.sync("one again", one, again.generation_id, instance="one")
    await s.modern("two has its part", "two", joined.member_epoch, [], instance="two")
    await s.modern("held", "other", 0, instance="two")
    back = await s.join("two is back", instance="two")
    await s.describe("downgraded")
    await s.sync("two is back", back.member_id, back.generation_id, instance="two")
    await s.beat("one stays", one, again.generation_id, instance="one")
    await s.modern("fenced", "two", joined.member_epoch, [], instance="two")
    await s.modern("two once more", "two", 0, instance="two")
    await s.beat("fenced", back.member_id, back.generation_id, instance="two")
    await s.describe("upgraded")


async def refused(s: Script) -> None:
    """The metadata of the assignor has more fields than Kafka's."""
    a = (await s.join("join")).member_id
    await s.sync("sync", a, 1, {a: s.all_partitions(b"more")})
    await s.modern("custom assignor", "modern", 0)
    await s.modern("no member", "modern", 7)
    await s.beat("goes on", a, 1)


async def other(s: Script) -> None:
    """A group whose protocol type is not consumer."""
    a = (await s.join("join", protocol_type="connect")).member_id
    await s.sync("sync", a, 1, {a: b""}, protocol_type="connect")
    await s.modern("no consumers", "modern", 0)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    same = ("offsets.topic.num.partitions=4", "group.initial.rebalance.delay.ms=0")
    settings = [f"--set={setting}" for setting in same]
    with broker_process(tmp_path_factory.mktemp("broker"), *settings) as running:
        yield running.bootstrap_servers


async def topic_id_of(admin: aiokq.Admin, topic: str) -> Any:
    """Return the topic's id as soon as the broker knows the topic."""
    return (await admin.describe_topics(topic, raise_errors=True))[topic].topic_id


@pytest.mark.parametrize("story", [dynamic, static, refused, other])
async def test_members_and_the_log_are_told_the_same(
    ours: str, apache: ApacheKafka, story: Any
) -> None:
    """Both brokers agree in every step and record."""
    told, logged = [], []
    for servers in (ours, apache.bootstrap_servers):
        topic, group = f"migrates-{story.__name__}", f"{story.__name__}-group"
        async with aiokq.Admin(servers) as admin, aiokq.Cluster(servers) as client:
            await admin.create_topics(topic, num_partitions=PARTITIONS, raise_errors=True)
            topic_id = await eventually(functools.partial(topic_id_of, admin, topic))
            script = Script(client, topic, topic_id)
            await script.coordinator_knows_topic()
            script.group = group
            await story(script)
            told.append(script.answers)
            logged.append(await script.log())
    assert told[0] == told[1]
    assert logged[0] == logged[1]
