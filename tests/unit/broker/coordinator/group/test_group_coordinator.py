"""The group coordinator of a node: loading, failover, disk failures, timers on the loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import uuid

import pytest

from aiokq import wire
from aiokq.broker.coordinator.group.coordinator import OFFSETS_TOPIC
from aiokq.broker.coordinator.outcome import Outcome
from aiokq.broker.coordinator.record import CoordinatorRecord
from aiokq.broker.coordinator.shard import TransactionalProducer
from aiokq.broker.coordinator.shard_context import ShardState
from aiokq.broker.coordinator.shard_load import RECORDS_PER_TURN
from aiokq.broker.coordinator.shard_log import ShardLog
from aiokq.core.background import FAIL_ON_BUGS
from aiokq.core.errors import KafkaError, KafkaStorage, UnknownServer
from aiokq.core.log_lines import TEXT_BURST
from aiokq.fastpath import crc32c
from aiokq.records.control import ControlType, EndTransactionMarker
from aiokq.records.header import read_header
from aiokq.records.record import RawRecord, encode_batch
from aiokq.wire.group_records import OffsetCommitKey
from tests.sim.harness.simulation import Simulation, run
from tests.unit.broker.coordinator.group.shard_harness import subscription
from tests.unit.broker.harness import Broker


class GroupBroker(Broker):
    """A node, with the requests of a group member."""

    def __init__(self, files=None, **settings) -> None:
        settings.setdefault("profile", "dev")
        super().__init__(files, **settings)
        self.failures: list[BaseException] = []
        self.node._fail = self.failures.append

    async def __aexit__(self, *exc_info):
        await super().__aexit__(*exc_info)
        assert [error for error in self.failures if not isinstance(error, KafkaStorage)] == []

    async def find(self, group="g", version=4):
        response = await self.ask(
            wire.FindCoordinatorRequest(coordinator_keys=[group], key_type=0), version
        )
        return response.coordinators[0]

    async def join(self, member_id="", version=9, group="g", protocol="range", **options):
        options = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, **options}
        return await self.ask(
            wire.JoinGroupRequest(
                group_id=group,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[
                    wire.JoinGroupRequestProtocol(name=protocol, metadata=subscription("t"))
                ],
                **options,
            ),
            version,
        )

    async def sync(self, member_id, generation, version=5, group="g"):
        return await self.ask(
            wire.SyncGroupRequest(
                group_id=group,
                member_id=member_id,
                generation_id=generation,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    wire.SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")
                ],
            ),
            version,
        )

    async def heartbeat(self, member_id, generation, group="g"):
        response = await self.ask(
            wire.HeartbeatRequest(group_id=group, member_id=member_id, generation_id=generation), 4
        )
        return response.error_code

    async def commit(self, offset, *, group="g", partition=0, version=9, **options):
        topic = options.pop("topic", "t")
        named = {"topic_id": topic} if isinstance(topic, uuid.UUID) else {"name": topic}
        response = await self.ask(
            wire.OffsetCommitRequest(
                group_id=group,
                topics=[
                    wire.OffsetCommitRequestTopic(
                        partitions=[
                            wire.OffsetCommitRequestPartition(
                                partition_index=partition,
                                committed_offset=offset,
                                committed_metadata="",
                            )
                        ],
                        **named,
                    )
                ],
                **options,
            ),
            version,
        )
        return response.topics[0].partitions[0].error_code

    async def committed(self, group="g", version=9):
        response = await self.ask(
            wire.OffsetFetchRequest(
                groups=[wire.OffsetFetchRequestGroup(group_id=group, topics=None)]
            ),
            version,
        )
        [found] = response.groups
        if found.error_code:
            return found.error_code
        return {
            (topic.name or topic.topic_id, one.partition_index): one.committed_offset
            for topic in found.topics
            for one in topic.partitions
        }


async def until_loaded(broker, group="g"):
    """Wait until the group is loaded; return the number of loop iterations."""
    for turns in range(10_000):
        if await broker.committed(group) != 14:
            return turns
        await asyncio.sleep(0)
    raise AssertionError("still loading")


async def test_the_first_question_makes_the_offsets_topic():
    """It is internal and compacted, with the configured partitions, and no client can create it."""
    async with GroupBroker(profile="kafka", offsets_topic_num_partitions=7) as broker:
        assert broker.node.topics.get(OFFSETS_TOPIC) is None
        found = await asyncio.gather(*(broker.find(f"g{n}") for n in range(5)))
        assert {(one.error_code, one.node_id, one.host) for one in found} == {(0, 0, "127.0.0.1")}
        topic = broker.node.topics.get(OFFSETS_TOPIC)
        assert (len(topic.partitions), topic.is_internal) == (7, True)
        assert topic.configs["cleanup.policy"] == "compact"
        assert topic.configs["segment.bytes"] == "104857600"


async def test_find_coordinator_of_every_version():
    """Old versions have one key and no type; a transactional id creates its topic."""
    async with GroupBroker(transaction_state_log_num_partitions=1) as broker:
        for version in range(4):
            response = await broker.ask(wire.FindCoordinatorRequest(key="g"), version)
            assert (response.error_code, response.node_id) == (0, 0)
        for version in range(1, 4):
            response = await broker.ask(wire.FindCoordinatorRequest(key="x", key_type=1), version)
            assert (response.error_code, response.node_id) == (0, 0)
        for version in range(4, 7):
            request = wire.FindCoordinatorRequest(coordinator_keys=["a", "b"], key_type=0)
            response = await broker.ask(request, version)
            assert [(one.key, one.error_code) for one in response.coordinators] == [
                ("a", 0),
                ("b", 0),
            ]
            request = wire.FindCoordinatorRequest(coordinator_keys=["a"], key_type=2)
            [share] = (await broker.ask(request, version)).coordinators
            assert share.error_code == 42


async def test_a_request_before_anybody_asked_for_the_coordinator():
    """NOT_COORDINATOR makes the client send FindCoordinator, which creates the topic."""
    async with GroupBroker() as broker:
        assert await broker.commit(1) == 3
        await broker.create("t")
        assert await broker.commit(1) == 16
        assert (await broker.join()).error_code == 16
        assert await broker.committed() == 16
        assert (await broker.ask(wire.ListGroupsRequest(), 5)).groups == []


async def test_offsets_and_members_are_there_after_a_kill():
    """Acknowledged changes are in the log, so the next process has them and continues."""
    killed = GroupBroker()
    await killed.node.open()
    await killed.create("t", 2)
    await killed.find()
    member = await killed.join((await killed.join()).member_id)
    assert (await killed.sync(member.member_id, 1)).assignment == b"all"
    committed = await killed.commit(5, member_id=member.member_id, generation_id_or_member_epoch=1)
    assert committed == 0
    killed.node.group_coordinator.stop()
    killed.files.crash()
    async with GroupBroker(killed.files) as broker:
        await until_loaded(broker)
        assert await broker.committed() == {("t", 0): 5}
        assert await broker.heartbeat(member.member_id, 1) == 0
        assert await broker.heartbeat(member.member_id, 2) == 22
    with contextlib.suppress(KafkaError):
        await killed.node.close()  # another node uses its files now


async def test_loading_leaves_the_loop_its_turns():
    """Loading a hundred thousand offsets must not delay produce and fetch for seconds."""
    count = 20 * RECORDS_PER_TURN
    broker = GroupBroker()
    async with broker:
        await broker.create("t")
        await broker.find()
        for number in range(count):
            await broker.commit(number)
    again = GroupBroker(broker.files)
    async with again:
        assert await until_loaded(again) >= 20
        assert await again.committed() == {("t", 0): count - 1}


async def test_a_session_ends_by_the_loops_clock():
    """A timer of the loop ends the session without any request."""
    async with GroupBroker(group_min_session_timeout_ms=1) as broker:
        await broker.find()
        member = await broker.join((await broker.join()).member_id, session_timeout_ms=20)
        assert member.error_code == 0
        for _ in range(200):
            described = await broker.ask(wire.DescribeGroupsRequest(groups=["g"]), 6)
            if described.groups[0].group_state == "Empty":
                break
            await asyncio.sleep(0.001)
        assert described.groups[0].group_state == "Empty"


async def test_closing_answers_who_waits():
    """A join may wait for minutes; the broker stops at once, and the client retries."""
    async with GroupBroker() as broker:
        await broker.find()
        first = await broker.join((await broker.join()).member_id)
        await broker.sync(first.member_id, 1)
        pending = (await broker.join()).member_id
        waiting = asyncio.gather(broker.join(pending))
        await asyncio.sleep(0)
        broker.node.group_coordinator.stop()
        [answer] = await waiting
        assert answer.error_code == 16
        assert (await broker.join()).error_code == 15
        assert (await broker.find()).error_code == 15


async def test_a_full_disk_refuses_changes_and_loses_nothing():
    """NOT_COORDINATOR as in Kafka, with no change in memory; later commits succeed again."""
    async with GroupBroker() as broker:
        await broker.create("t")
        await broker.find()
        assert await broker.commit(5) == 0
        broker.files.fail("pwritev", errno.ENOSPC, times=None)
        assert await broker.commit(6) == 16
        assert (await broker.join(group="new")).error_code == 15
        files = broker.files
    files.heal()
    async with GroupBroker(files) as broker:
        await until_loaded(broker)
        assert await broker.committed() == {("t", 0): 5}
        assert await broker.commit(7) == 0
        assert await broker.committed() == {("t", 0): 7}


async def test_a_log_that_is_offline_has_no_coordinator():
    """COORDINATOR_NOT_AVAILABLE until the broker restarts.

    Offset requests get NOT_COORDINATOR, because old consumers know no other error.
    """
    broker = GroupBroker()
    await broker.node.open()
    try:
        await broker.create("t")
        await broker.find()
        await broker.commit(5)
        log = broker.node.topics.partition(OFFSETS_TOPIC, 0).log
        broker.files.fail("pwritev", written=10)
        assert await broker.commit(6) == 16
        assert log.failed
        assert await broker.commit(6) == 15
        assert (await broker.join()).error_code == 15
        assert await broker.committed() == 16
        assert (await broker.find()).error_code == 15
        assert (await broker.ask(wire.ListGroupsRequest(), 5)).error_code == 15
    finally:
        await broker.node.close()


async def test_a_deleted_topic_takes_its_offsets_along():
    """A new topic of the same name begins without offsets, also in the log."""
    broker = GroupBroker()
    async with broker:
        await broker.create("t", 2)
        await broker.create("u")
        await broker.find()
        for topic in ("t", "u"):
            await broker.commit(5, topic=topic)
        await broker.ask(wire.DeleteTopicsRequest(topics=[wire.DeleteTopicState(name="t")]), 6)
        assert await broker.committed() == {("u", 0): 5}
    again = GroupBroker(broker.files)
    async with again:
        await until_loaded(again)
        assert await again.committed() == {("u", 0): 5}


async def test_offsets_by_topic_id():
    """Version 10 has topic ids instead of names; unknown ids get UNKNOWN_TOPIC_ID."""
    async with GroupBroker() as broker:
        topic_id = await broker.create("t")
        await broker.find()
        assert await broker.commit(5, topic=topic_id, version=10) == 0
        assert await broker.commit(5, topic=uuid.uuid4(), version=10) == 100
        assert await broker.commit(5, topic=topic_id, partition=1, version=10) == 3
        assert await broker.committed(version=10) == {(topic_id, 0): 5}
        unknown = uuid.uuid4()
        response = await broker.ask(
            wire.OffsetFetchRequest(
                groups=[
                    wire.OffsetFetchRequestGroup(
                        group_id="g",
                        topics=[
                            wire.OffsetFetchRequestTopics(topic_id=one, partition_indexes=[0])
                            for one in (topic_id, unknown)
                        ],
                    )
                ]
            ),
            10,
        )
        found = {
            topic.topic_id: (one.committed_offset, one.error_code)
            for topic in response.groups[0].topics
            for one in topic.partitions
        }
        assert found == {topic_id: (5, 0), unknown: (-1, 100)}


@pytest.mark.parametrize("version", range(1, 8))
async def test_offsets_of_one_group_by_old_versions(version):
    """Errors are per partition in version 1 and for the whole group from version 2 on."""
    async with GroupBroker() as broker:
        await broker.create("t")

        async def fetch(topics):
            return await broker.ask(wire.OffsetFetchRequest(group_id="g", topics=topics), version)

        asked = [wire.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
        response = await fetch(asked)
        if version == 1:
            [topic] = response.topics
            assert [one.error_code for one in topic.partitions] == [16, 16]
        else:
            assert response.error_code == 16
        await broker.find()
        await broker.commit(5)
        response = await fetch(asked)
        [topic] = response.topics
        assert [(one.committed_offset, one.metadata) for one in topic.partitions] == [
            (5, ""),
            (-1, ""),
        ]
        if version >= 2:
            response = await fetch(None)
            assert [topic.name for topic in response.topics] == ["t"]


@pytest.mark.parametrize("version", range(10))
async def test_a_group_forms_by_every_version_of_its_requests(version):
    """The versions range from clients without member ids to current ones."""
    async with GroupBroker() as broker:
        await broker.find()
        member = await broker.join(version=version)
        if version >= 4:
            assert member.error_code == 79
            member = await broker.join(member.member_id, version=version)
        assert (member.error_code, member.generation_id, member.leader) == (0, 1, member.member_id)
        synced = await broker.sync(member.member_id, 1, version=min(version, 5))
        assert (synced.error_code, synced.assignment) == (0, b"all")
        assert await broker.heartbeat(member.member_id, 1) == 0
        leave = min(version, 5)
        if leave < 3:
            request = wire.LeaveGroupRequest(group_id="g", member_id=member.member_id)
        else:
            request = wire.LeaveGroupRequest(
                group_id="g", members=[wire.MemberIdentity(member_id=member.member_id)]
            )
        assert (await broker.ask(request, leave)).error_code == 0
        again = await broker.ask(request, leave)
        codes = [one.error_code for one in again.members] if leave >= 3 else [again.error_code]
        assert codes == [25]


async def test_what_no_group_can_be():
    """INVALID_GROUP_ID for an empty name, INVALID_SESSION_TIMEOUT outside the limits."""
    async with GroupBroker(profile="kafka", offsets_topic_num_partitions=1) as broker:
        await broker.find()
        assert (await broker.join(group="")).error_code == 24
        assert (await broker.join(session_timeout_ms=5_999)).error_code == 26
        assert (await broker.join(session_timeout_ms=1_800_001)).error_code == 26
        assert await broker.heartbeat("m", 1, group="") == 24
        assert (await broker.sync("m", 1, group="")).error_code == 24
        response = await broker.ask(wire.ConsumerGroupDescribeRequest(group_ids=["", "x"]), 1)
        assert [group.error_code for group in response.groups] == [24, 69]
        # offsets may be committed for the empty name, as in Kafka
        await broker.create("t")
        assert await broker.commit(1, group="") == 0


async def test_groups_are_administered():
    """ListGroups, DescribeGroups, DeleteGroups and OffsetDelete as encoded requests."""
    async with GroupBroker() as broker:
        await broker.create("t")
        await broker.find()
        member = await broker.join((await broker.join()).member_id)
        await broker.sync(member.member_id, 1)
        await broker.commit(1, group="simple")
        for version in range(6):
            listed = await broker.ask(wire.ListGroupsRequest(), version)
            assert [group.group_id for group in listed.groups] == ["g", "simple"]
        for version in range(7):
            request = wire.DescribeGroupsRequest(
                groups=["g", "none"], include_authorized_operations=version >= 3
            )
            known, unknown = (await broker.ask(request, version)).groups
            assert (known.group_state, unknown.group_state) == ("Stable", "Dead")
            assert unknown.error_code == (69 if version == 6 else 0)
            assert (known.authorized_operations > 0) == (version >= 3)
        for version in range(3):
            request = wire.DeleteGroupsRequest(groups_names=["g", "none"])
            response = await broker.ask(request, version)
            assert [one.error_code for one in response.results] == [68, 69]
        request = wire.OffsetDeleteRequest(
            group_id="simple",
            topics=[
                wire.OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[wire.OffsetDeleteRequestPartition(partition_index=0)],
                )
                for name in ("t", "none")
            ],
        )
        response = await broker.ask(request, 0)
        assert {topic.name: topic.partitions[0].error_code for topic in response.topics} == {
            "t": 0,
            "none": 3,
        }
        assert await broker.committed("simple") == {}
        response = await broker.ask(wire.DeleteGroupsRequest(groups_names=["simple"]), 2)
        assert response.results[0].error_code == 0


async def test_offsets_of_partitions_that_do_not_exist_are_not_deleted():
    """Regression: the response had no error, where Kafka names the partitions that do not exist."""
    async with GroupBroker() as broker:
        await broker.create("t")
        await broker.find()
        await broker.commit(1, group="simple")
        numbers = [wire.OffsetDeleteRequestPartition(partition_index=n) for n in (0, 7)]
        for group, code in (("simple", 0), ("none", 69)):
            topic = wire.OffsetDeleteRequestTopic(name="t", partitions=numbers)
            request = wire.OffsetDeleteRequest(group_id=group, topics=[topic])
            response = await broker.ask(request, 0)
            assert response.error_code == code
            if not code:
                [deleted] = response.topics
                codes = {one.partition_index: one.error_code for one in deleted.partitions}
                assert codes == {0: 0, 7: 3}
        assert await broker.committed("simple") == {}


async def test_a_record_that_cannot_be_read_costs_no_more_than_itself(caplog):
    """The record may be damaged or of a newer broker; the other groups are loaded."""
    broker = GroupBroker()
    async with broker:
        await broker.create("t")
        await broker.find()
        await broker.commit(5)
        partition = broker.node.topics.partition(OFFSETS_TOPIC, 0)
        for key, value in ((b"\x00\x01\x00\x09x", b"?"), (b"\x00\x63??", b"?")):
            data = memoryview(encode_batch([RawRecord(0, 1, key, value)], crc32c=crc32c))
            partition.append(data, [read_header(data)], now_ms=1)
        await broker.commit(6, group="h")
    again = GroupBroker(broker.files)
    async with again:
        await until_loaded(again)
        assert await again.committed("g") == {("t", 0): 5}
        assert await again.committed("h") == {("t", 0): 6}
        assert [
            record.levelname for record in caplog.records if "unreadable record" in record.message
        ]


def consumer_heartbeat(member_id="m", epoch=0, group="g"):
    joins = epoch == 0
    return wire.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=10_000 if joins else -1,
        subscribed_topic_names=["t"] if joins else None,
        topic_partitions=[] if joins else None,
    )


async def test_the_timeouts_of_a_group_hold_from_the_next_heartbeat_on():
    """A running group gets a longer timeout without a restart."""
    async with GroupBroker() as broker:
        await broker.create("t", 2)
        await broker.find()
        joined = await broker.ask(consumer_heartbeat(), 1)
        assert joined.heartbeat_interval_ms == 100
        settings = {
            "consumer.session.timeout.ms": "50000",
            "consumer.heartbeat.interval.ms": "7000",
        }
        await broker.node.metadata.alter_group_configs("g", lambda _: settings)
        told = await broker.ask(consumer_heartbeat(epoch=joined.member_epoch), 1)
        assert told.heartbeat_interval_ms == 7000
        timers = broker.node.group_coordinator._contexts[0].timers
        left = timers.deadline(("session", "g", "m")) - broker.clock.monotonic()
        assert left == pytest.approx(50, abs=1)
        other = await broker.ask(consumer_heartbeat(group="other"), 1)
        assert other.heartbeat_interval_ms == 100


async def test_groups_members_rebalances_and_commits_are_counted():
    """Operators want the number of groups, and the groups that rebalance all the time."""
    async with GroupBroker() as broker:
        await broker.create("t", 2)
        await broker.find()
        first = await broker.join()
        joined = await broker.join(first.member_id)
        await broker.sync(joined.member_id, joined.generation_id)
        await broker.ask(consumer_heartbeat("a", group="modern"), 1)
        await broker.ask(consumer_heartbeat("b", group="modern"), 1)
        await broker.commit(5, group="simple")
        await broker.commit(6, group="simple", partition=7)
        counters = broker.node.counters
        assert counters.groups.read() == {
            ("classic", "Stable"): 1,
            ("consumer", "Reconciling"): 1,
            ("classic", "Empty"): 1,
        }
        assert counters.group_members.read() == {("classic",): 1, ("consumer",): 2}
        assert counters.group_rebalances == {"classic": 1, "consumer": 2}
        assert counters.offsets_committed == 1


def test_a_commit_that_too_few_replicas_have_gets_15_at_once_or_after_its_timeout():
    """At once with fewer than min.insync.replicas in sync, else after offsets.commit.timeout.ms."""

    async def main(world: Simulation) -> None:
        async with GroupBroker(
            offsets_commit_timeout_ms=700, min_insync_replicas=2, offsets_topic_num_partitions=1
        ) as broker:
            await broker.create("t")
            await broker.find()
            partition = broker.node.topics.partition(OFFSETS_TOPIC, 0)
            partition.change_replicas((0, 7), (0, 7))
            loop = asyncio.get_running_loop()
            began = loop.time()
            assert await broker.commit(5) == 15
            assert loop.time() - began == pytest.approx(0.7)
            partition.change_isr((0,))
            end = partition.log.log_end_offset
            assert await broker.commit(6) == 15
            assert loop.time() - began == pytest.approx(0.7)
            assert partition.log.log_end_offset == end

    run(1, main)


async def test_records_without_a_form_in_the_log_are_a_failure_like_any_other():
    """Regression: the group was not notified, and kept the state as if they had been written."""
    async with GroupBroker() as broker:
        await broker.find()
        told = []
        record = CoordinatorRecord(
            OffsetCommitKey(group="g" * 40_000, topic="t", partition=0), None
        )
        outcome = Outcome([record], response=1, on_written=told.append)
        with pytest.raises(UnknownServer):
            await broker.node.group_coordinator.write("g", lambda shard, instant: outcome)
        assert [error.code for error in told] == [-1]


def offset_commit(group, offset):
    """Return an operation that commits an offset, as TxnOffsetCommit would."""
    request = wire.OffsetCommitRequest(
        group_id=group,
        topics=[
            wire.OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    wire.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset, committed_metadata=""
                    )
                ],
            )
        ],
    )
    return lambda shard, instant: shard.commit_offsets(request, 9, instant)


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
@pytest.mark.parametrize("restarted", [False, True])
async def test_offsets_of_a_transaction_count_by_its_marker(kind, restarted):
    """Before the marker a fetch gets the old offset, or UNSTABLE_OFFSET_COMMIT on request."""
    producer = TransactionalProducer(7, 0)
    broker = GroupBroker()
    async with broker:
        await broker.create("t")
        await broker.find()
        await broker.commit(5)
        await broker.node.group_coordinator.write("g", offset_commit("g", 8), producer=producer)
        files = broker.files
        if not restarted:
            await check_transaction(broker, producer, kind)
    if restarted:
        async with GroupBroker(files) as broker:
            await until_loaded(broker)
            await check_transaction(broker, producer, kind)
    async with GroupBroker(files) as broker:
        await until_loaded(broker)
        assert await stable_offset(broker) == (8 if kind is ControlType.COMMIT else 5, 0)


async def stable_offset(broker):
    """Return offset and error code as a client with `require_stable` gets them."""
    response = await broker.ask(
        wire.OffsetFetchRequest(
            groups=[wire.OffsetFetchRequestGroup(group_id="g", topics=None)], require_stable=True
        ),
        9,
    )
    [one] = response.groups[0].topics[0].partitions
    return one.committed_offset, one.error_code


async def check_transaction(broker, producer, kind):
    assert await broker.committed() == {("t", 0): 5}
    assert await stable_offset(broker) == (-1, 88)
    marker = EndTransactionMarker(kind, 0)
    await broker.node.group_coordinator.append_marker(0, producer, marker, 0).committed()
    assert await stable_offset(broker) == (8 if kind is ControlType.COMMIT else 5, 0)


async def test_a_group_goes_on_where_its_coordinator_is_elected_again():
    """Waiting members get an error and find the coordinator; members and offsets are kept."""
    async with GroupBroker() as broker:
        await broker.create("t")
        await broker.find()
        member = await broker.join((await broker.join()).member_id)
        await broker.sync(member.member_id, 1)
        await broker.commit(5, member_id=member.member_id, generation_id_or_member_epoch=1)
        waiting = asyncio.ensure_future(broker.join((await broker.join()).member_id))
        await asyncio.sleep(0)
        partition = broker.node.topics.partition(OFFSETS_TOPIC, 0)
        broker.node.group_coordinator.resigned(partition)
        assert (await waiting).error_code == 16
        assert await broker.heartbeat(member.member_id, 1) == 16
        partition.leader_epoch += 1
        broker.node.group_coordinator.elected(partition)
        await until_loaded(broker)
        assert await broker.heartbeat(member.member_id, 1) == 0
        assert await broker.committed() == {("t", 0): 5}


async def test_a_group_that_is_made_while_its_coordinator_resigns_is_not_made():
    """The member has to find the new coordinator, whose log has nothing of the group."""
    async with GroupBroker() as broker:
        await broker.find()
        coordinator = broker.node.group_coordinator
        partition = broker.node.topics.partition(OFFSETS_TOPIC, 0)
        append = ShardLog.append

        def resigns_first(log, *args, **options):
            coordinator.resigned(partition)
            partition.leader_epoch += 1
            return append(log, *args, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ShardLog, "append", resigns_first)
            assert (await broker.join()).error_code == 16
        coordinator.elected(partition)
        await until_loaded(broker)
        assert (await broker.ask(wire.ListGroupsRequest(), 5)).groups == []


async def test_a_load_that_outlives_its_topic_gives_nothing_to_the_next_one():
    """The load reads deleted files: it may neither stop the broker nor restore old groups."""
    broker = GroupBroker()
    async with broker:
        await broker.create("t")
        await broker.find()
        for number in range(20 * RECORDS_PER_TURN):
            await broker.commit(number)
    again = GroupBroker(broker.files)
    async with again:
        for _ in range(5):
            await asyncio.sleep(0)
        request = wire.DeleteTopicsRequest(
            topics=[wire.DeleteTopicState(name=OFFSETS_TOPIC)], timeout_ms=1000
        )
        [result] = (await again.ask(request, 6)).responses
        assert result.error_code == 0
        for _ in range(200):
            await asyncio.sleep(0)
        assert again.failures == []
        assert (await again.find()).error_code == 0
        assert await again.commit(7) == 0
        assert await again.committed() == {("t", 0): 7}


def test_partitions_that_could_not_be_loaded_for_a_moment_are_loaded_a_second_later(monkeypatch):
    """Retries are per partition: fifty failures at the same time do not add up to a long pause."""
    replay, failed = ShardLog.replay, set()

    async def fails_once(self, shard):
        if self not in failed:
            failed.add(self)
            raise OSError(errno.EMFILE, "Too many open files")
        return await replay(self, shard)

    async def main(world: Simulation) -> None:
        async with GroupBroker(offsets_topic_num_partitions=50) as broker:
            await broker.find()
        monkeypatch.setattr(ShardLog, "is_empty", False)
        monkeypatch.setattr(ShardLog, "replay", fails_once)
        async with GroupBroker(broker.files, offsets_topic_num_partitions=50) as again:
            await asyncio.sleep(0.5)
            contexts = again.node.group_coordinator._contexts.values()
            assert {context.state for context in contexts} == {ShardState.FAILED}
            assert len(failed) == 50
            await asyncio.sleep(1)
            assert {context.state for context in contexts} == {ShardState.ACTIVE}

    run(1, main)


def test_a_timer_that_fails_waits_for_its_own_failures(monkeypatch):
    """Retries are per timer: a timer's result does not change the pause of another one."""
    monkeypatch.delenv(FAIL_ON_BUGS)

    async def main(world: Simulation) -> None:
        loop = asyncio.get_running_loop()
        runs = {"broken": [], "once": [], "sound": []}

        async with GroupBroker() as broker:
            await broker.find()
            context = broker.node.group_coordinator._contexts[0]
            begin = loop.time()

            def run_timer(key, instant):
                runs[key].append(round(loop.time() - begin))
                if key == "sound":
                    set_timer(key, 1)
                elif key == "broken" or len(runs[key]) == 1:
                    raise ZeroDivisionError

            def set_timer(key, seconds):
                context.timers.schedule(
                    key, broker.clock.monotonic() + seconds, functools.partial(run_timer, key)
                )
                context.schedule_wakeup()

            set_timer("broken", 0)
            set_timer("sound", 1)
            await asyncio.sleep(20.2)
            set_timer("once", 0)
            await asyncio.sleep(20)
        assert runs["broken"] == [0, 1, 3, 7, 15, 31]
        assert runs["once"] == [20, 21]
        assert runs["sound"] == list(range(1, 41))

    run(1, main)


async def test_a_member_cannot_fill_the_log_with_lines_about_its_group(caplog):
    """Each of these requests has a line."""
    caplog.set_level(logging.INFO, "aiokq.broker.coordinator")
    async with GroupBroker() as broker:
        await broker.find()
        for number in range(TEXT_BURST + 50):
            member = f"m{number}"
            for epoch in (0, -1):
                response = await broker.ask(
                    wire.ConsumerGroupHeartbeatRequest(
                        group_id="g",
                        member_id=member,
                        member_epoch=epoch,
                        rebalance_timeout_ms=1000 if epoch == 0 else -1,
                        subscribed_topic_names=["t"] if epoch == 0 else None,
                        topic_partitions=[] if epoch == 0 else None,
                    ),
                    1,
                )
                assert response.error_code == 0
        joins = [line for line in caplog.messages if line.startswith("member joins:")]
        assert TEXT_BURST <= len(joins) <= TEXT_BURST + 40
    assert logging.getLogger("aiokq.broker.coordinator").filters == []
