"""Complaints of users of other clients about groups, commits and shutdown: one test for each.

The letters at the beginning of docstrings name trackers: AK aiokafka, KP kafka-python, CF
confluent-kafka, LR librdkafka.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from aiokq import wire
from aiokq.broker.dispatch import Dispatcher
from aiokq.client.cluster import Cluster
from aiokq.core.types import TopicPartition
from aiokq.wire.fetch import FetchRequest
from aiokq.wire.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from aiokq.wire.heartbeat import HeartbeatRequest
from aiokq.wire.join_group import JoinGroupRequest
from aiokq.wire.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from aiokq.wire.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from tests.peers.scripted import Call, ScriptedCluster, ScriptedTopic, Silence
from tests.sim.group_world import PROTOCOLS, World, numbers, read, simulate, until
from tests.sim.harness.simulation import Simulation, run

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SCRIPTED = "10.0.9.1"
both = pytest.mark.parametrize("protocol", PROTOCOLS)


class Traffic:
    """The requests that brokers of this process received, oldest first."""

    def __init__(self) -> None:
        self.seen: list[wire.Request[wire.Response]] = []

    def of(self, kind: type[wire.Request[Any]]) -> list[Any]:
        return [request for request in self.seen if isinstance(request, kind)]


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Traffic:
    """Record the requests that the simulated broker receives."""
    log = Traffic()
    handle = Dispatcher.handle

    async def watched(self: Dispatcher, context: Any, frame: memoryview) -> Any:
        _, request = wire.decode_request(frame)
        log.seen.append(request)
        return await handle(self, context, frame)

    monkeypatch.setattr(Dispatcher, "handle", watched)
    return log


# Joining


def test_one_join_offers_all_assignors(traffic: Traffic) -> None:
    """AK: a JoinGroup was sent for each assignor in turn, and each caused a rebalance."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        strategy = ["roundrobin", "range", "sticky"]
        async with w.member("t", partition_assignment_strategy=strategy) as c:
            await until(lambda: len(c.assignment()) == 2)
            assert c.group_metadata().generation == 1
        joins = traffic.of(JoinGroupRequest)
        assert [[p.name for p in join.protocols] for join in joins] == [strategy] * 2
        assert [bool(join.member_id) for join in joins] == [False, True], "KIP-394, and no more"

    simulate(body)


def test_members_join_no_more_than_once_for_each_rebalance(traffic: Traffic) -> None:
    """Each join makes all other members join again, so an unnecessary one causes a storm."""

    async def body(w: World) -> None:
        await w.topic("t", 4)
        members = []
        for count in range(1, 5):
            members.append(w.member("t"))
            await members[-1].start()
            await until(
                lambda count=count: (
                    all(len(m.assignment()) == 4 // count for m in members)
                    if 4 % count == 0
                    else sum(len(m.assignment()) for m in members) == 4
                    and all(m.assignment() for m in members)
                )
            )
        await asyncio.sleep(60)
        generations = {m.group_metadata().generation for m in members}
        assert generations == {4}
        # Each member joins twice on its own behalf, and once for each later member.
        assert len(traffic.of(JoinGroupRequest)) == 4 * 2 + 3 + 2 + 1
        for m in members:
            await m.close()

    simulate(body)


def shared(members: list[Any]) -> bool:
    """Return whether each of the four partitions has one owner and each member owns some."""
    sizes = [len(m.assignment()) for m in members]
    return all(sizes) and sum(sizes) == 4


def test_cooperative_members_join_twice_only_if_partitions_move(traffic: Traffic) -> None:
    """KIP-429: a second join follows only if a member gives up partitions."""

    async def body(w: World) -> None:
        await w.topic("t", 4)
        strategy = "cooperative-sticky"
        async with w.member("t", partition_assignment_strategy=strategy) as c:
            await until(lambda: len(c.assignment()) == 4)
            async with w.member("t", partition_assignment_strategy=strategy) as d:
                await until(lambda: len(c.assignment()) == len(d.assignment()) == 2)
                await asyncio.sleep(60)
                assert c.group_metadata().generation == 3
                assert len(traffic.of(JoinGroupRequest)) == 2 + 1 + 2 + 2

    simulate(body)


def test_a_join_waits_for_the_rebalance_not_for_the_request_timeout(traffic: Traffic) -> None:
    """AK: a join timed out after 40 s, while other members had five minutes to join."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        options: Any = {"request_timeout_ms": 5_000, "rebalance_timeout_ms": 300_000}

        async def slow(partitions: Any) -> None:
            await asyncio.sleep(80)

        async with w.member("t", on_revoked=slow, **options) as c:
            await until(lambda: len(c.assignment()) == 2)
            traffic.seen.clear()
            began = w.world.loop.time()
            async with w.member("t", **options) as d:
                await until(lambda: len(d.assignment()) == 1, 120)
                assert w.world.loop.time() - began >= 80
                by_newcomer = [j for j in traffic.of(JoinGroupRequest) if not j.member_id]
                assert len(by_newcomer) == 1
                assert len(traffic.of(JoinGroupRequest)) == 3, "two of the newcomer, one of the old"
                await until(lambda: len(c.assignment()) == 1)
            await c.close(timeout=1)

    simulate(body)


def test_a_join_without_a_response_times_out() -> None:
    """A coordinator that hangs is abandoned after the rebalance timeout and a margin."""

    async def main(world: Simulation) -> None:
        async with ScriptedCluster(
            2, environment=world.environment(SCRIPTED), host=SCRIPTED
        ) as kafka:
            kafka.topics["t"] = ScriptedTopic(leaders=[1])
            kafka.on(FindCoordinatorRequest, coordinated_by({"g": 1}))
            kafka.on(JoinGroupRequest, Silence())
            cluster = Cluster(kafka.bootstrap_servers, _environment=world.environment("10.0.0.7"))
            async with cluster:
                consumer = cluster.consumer(
                    "t",
                    group_id="g",
                    rebalance_timeout_ms=60_000,
                    session_timeout_ms=6_000,
                    heartbeat_interval_ms=1_000,
                )
                await consumer.start()
                seen = kafka[1].seen
                await until(lambda: len(joins(seen)) >= 2, 120)
                first, second = joins(seen)[:2]
                assert 65 <= second - first <= 70
                await consumer.close(timeout=1)

    run(1, main, limit=600)


def joins(seen: list[Any]) -> list[float]:
    """Return the times of the JoinGroup requests."""
    return [each.at for each in seen if isinstance(each.request, JoinGroupRequest)]


def coordinated_by(nodes: dict[str, int]) -> Any:
    """Respond to FindCoordinator with `nodes`; other keys get no response."""

    def answer(request: Any, call: Call) -> FindCoordinatorResponse:
        cluster = call.node.cluster
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(
                    key=key, node_id=nodes[key], host=cluster.host, port=cluster[nodes[key]].port
                )
                for key in request.coordinator_keys
            ]
        )

    return answer


# Commits


def test_each_group_uses_its_own_coordinator() -> None:
    """AK cached one coordinator: offsets of group B were sent to group A's and refused."""

    def fetched(request: Any, call: Call) -> OffsetFetchResponse:
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id=g.group_id) for g in request.groups]
        )

    def committed(request: Any, call: Call) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(partition_index=p.partition_index)
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    async def main(world: Simulation) -> None:
        async with ScriptedCluster(
            3, environment=world.environment(SCRIPTED), host=SCRIPTED
        ) as kafka:
            kafka.topics["t"] = ScriptedTopic(leaders=[3])
            nodes = {"a": 1, "b": 2}
            kafka.on(FindCoordinatorRequest, coordinated_by(nodes))
            kafka.on(OffsetFetchRequest, fetched)
            kafka.on(OffsetCommitRequest, committed)
            kafka.on(FetchRequest, Silence())
            cluster = Cluster(kafka.bootstrap_servers, _environment=world.environment("10.0.0.7"))
            async with cluster:
                for round_ in range(3):
                    for group in nodes:
                        consumer = cluster.consumer(group_id=group, enable_auto_commit=False)
                        async with consumer:
                            assert await consumer.committed(T0) is None
                            await consumer.commit({T0: round_})
            for group, node_id in nodes.items():
                node = kafka[node_id]
                commits = node.seen_of(OffsetCommitRequest)
                assert [commit.group_id for commit in commits] == [group] * 3
                asked = [g.group_id for r in node.seen_of(OffsetFetchRequest) for g in r.groups]
                assert set(asked) == {group}
            assert not kafka[3].seen_of(OffsetCommitRequest)

    run(1, main, limit=600)


@both
def test_a_commit_during_a_rebalance_succeeds(protocol: str) -> None:
    """KP 2179: the commit raised, although the member still owned the partition."""

    async def body(w: World) -> None:
        await w.topic("t", 6)
        await w.produce("t", range(60), 6)
        options: dict[str, Any] = {"protocol": protocol, "enable_auto_commit": False}
        if protocol == "classic":
            options["partition_assignment_strategy"] = "cooperative-sticky"
        rebalancing = asyncio.Event()

        async def slow(partitions: Any) -> None:
            if partitions:
                rebalancing.set()
                await asyncio.sleep(20)

        async with (
            w.member("t", on_revoked=slow, **options) as c,
            w.member("t", on_revoked=slow, **options) as d,
        ):
            await until(lambda: len(c.assignment()) == len(d.assignment()) == 3, 120)
            rebalancing.clear()
            async with w.member("t", **options) as newcomer:
                await rebalancing.wait()
                done = 0
                for n in range(1, 11):
                    for each in (c, d):
                        async with asyncio.timeout(60):
                            await each.commit({min(each.assignment()): n})
                        done += 1
                    await asyncio.sleep(1.5)
                assert done == 20
                await until(lambda: len(newcomer.assignment()) == 2, 120)

    simulate(body)


# Reading


async def ended(task: asyncio.Task[None]) -> None:
    """Cancel `task` and wait for its end."""
    task.cancel()
    await asyncio.wait([task])


@both
@pytest.mark.parametrize("way", ["getmany", "batches", "stream"])
def test_reads_cancelled_while_the_group_rebalances_lose_nothing(protocol: str, way: str) -> None:
    """CF lost 6 of 20 records; here all forms of reading are used while a member comes and goes."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        got: Counter[int] = Counter()

        async def some(c: Any) -> None:
            if way == "getmany":
                for records in (await c.getmany(timeout=1)).values():
                    got.update(int(record.value) for record in records)
            elif way == "batches":
                batch = await anext(aiter(c.batches()))
                got.update(int(record.value) for record in batch)
            else:
                record = await c.getone()
                got[int(record.value)] += 1

        async def work(c: Any) -> None:
            while True:
                try:
                    async with asyncio.timeout(0.004):
                        await some(c)
                except TimeoutError:
                    await asyncio.sleep(0.001)

        async with w.member("t", protocol=protocol) as c:
            tasks = [asyncio.create_task(work(c))]
            producing = asyncio.create_task(w.produce("t", range(300), 2))
            await asyncio.sleep(1)
            d = w.member("t", protocol=protocol)
            await d.start()
            tasks.append(asyncio.create_task(work(d)))
            await until(lambda: len(d.assignment()) == 1)
            await asyncio.sleep(1)
            await ended(tasks.pop())
            await d.close()
            await producing
            await until(lambda: len(got) == 300, 60)
            await ended(tasks.pop())

    simulate(body)


@both
def test_slow_user_code_does_not_end_the_membership(traffic: Traffic, protocol: str) -> None:
    """KP 2070, 1896: heartbeats depended on poll(). Here a record may take ten session timeouts."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(3), 1)
        lost: list[Any] = []
        async with w.member("t", protocol=protocol, on_lost=lost.extend) as c:
            generation = None
            async for record in c:
                generation = generation or c.group_metadata().generation
                began = len(heartbeats(traffic))
                await asyncio.sleep(60)
                assert 55 <= len(heartbeats(traffic)) - began <= 70
                health = c.health()
                assert health.group is not None
                assert health.group.heartbeat_ago is not None
                assert health.group.heartbeat_ago <= 2
                if record.offset == 2:
                    break
            assert c.group_metadata().generation == generation
            assert not lost

    simulate(body)


def heartbeats(traffic: Traffic) -> list[Any]:
    return traffic.of(HeartbeatRequest) or traffic.of(wire.ConsumerGroupHeartbeatRequest)


@both
def test_after_rebalances_no_partition_is_stuck_or_fetched_in_a_hot_loop(
    traffic: Traffic, protocol: str
) -> None:
    """KP e300a6ff, 3.0.3: fetches of an older generation blocked partitions or looped."""

    async def body(w: World) -> None:
        await w.topic("t", 6)
        got: set[int] = set()

        async def work(c: Any) -> None:
            async for record in c:
                got.add(int(record.value))

        async def more() -> None:
            """Produce to every partition and wait until all records are read."""
            expected = len(got) + 30
            await w.produce("t", range(len(got), expected), 6)
            await until(lambda: len(got) == expected)

        async with w.member("t", protocol=protocol) as c:
            working = asyncio.create_task(work(c))
            for _ in range(6):
                other = w.member("t", protocol=protocol)
                await other.start()
                beside = asyncio.create_task(work(other))
                await until(lambda other=other: len(other.assignment()) == 3)
                await more()
                await other.close()
                await beside
                await until(lambda: len(c.assignment()) == 6)
                await more()
                assert all(p.error is None for p in c.health().partitions.values())
            traffic.seen.clear()
            await asyncio.sleep(30)
            assert len(traffic.of(FetchRequest)) <= 30 / 0.5 + 5, "one waits half a second"
            working.cancel()

    simulate(body)


@both
def test_only_revoked_partitions_pause(protocol: str) -> None:
    """AK 335: all reading stopped while a listener ran."""

    async def body(w: World) -> None:
        await w.topic("t", 4)
        options: dict[str, Any] = {"protocol": protocol}
        if protocol == "classic":
            options["partition_assignment_strategy"] = "cooperative-sticky"
        going: set[int] = set()
        revoking, go_on = asyncio.Event(), asyncio.Event()

        async def slow(partitions: Any) -> None:
            if partitions:
                going.update(tp.partition for tp in partitions)
                revoking.set()
                await go_on.wait()

        async with w.member("t", on_revoked=slow, **options) as c:
            got: Counter[int] = Counter()

            async def work() -> None:
                async for record in c:
                    got[record.partition] += 1

            working = asyncio.create_task(work())
            await until(lambda: len(c.assignment()) == 4)
            async with w.member("t", **options) as d:
                await revoking.wait()
                await w.produce("t", range(40), 4)
                kept = set(range(4)) - going
                assert len(kept) == len(going) == 2
                await until(lambda: all(got[p] == 10 for p in kept), 5)
                assert not any(got[p] for p in going)
                go_on.set()
                await until(lambda: len(d.assignment()) == 2)
                assert len(await read(d, 20)) == 20
            await ended(working)

    simulate(body)


@both
def test_a_handler_may_use_its_consumer(protocol: str) -> None:
    """KP 1985, 2459; AK 335: a lock was held during the listener, so each call in it blocked."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        await w.produce("t", range(20), 2)
        used: list[str] = []

        async def use(partitions: Any) -> None:
            for tp in partitions:
                await c.position(tp)
                await c.committed(tp)
                await c.end_offsets([tp])
                c.health()
                used.append("in a handler")

        options: dict[str, Any] = {"protocol": protocol, "enable_auto_commit": False}
        c = w.member("t", on_assigned=use, on_revoked=use, **options)
        async with c:
            began = w.world.loop.time()
            assert len(await read(c, 20)) == 20
            waiting = asyncio.create_task(c.getone())
            async with w.member("t", protocol=protocol) as d:
                await until(lambda: len(c.assignment()) == len(d.assignment()) == 1)
                assert len(used) >= 3
                assert w.world.loop.time() - began <= 10
            await ended(waiting)

    simulate(body)


@both
def test_a_member_without_a_coordinator_reports_it_and_recovers(protocol: str) -> None:
    """AK 1154, 1037; KP 1552; LR 2722: consumers read nothing for hours but seemed healthy."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(5), 1)
        async with w.member("t", protocol=protocol, request_timeout_ms=2_000) as c:
            assert len(await read(c, 5)) == 5
            await asyncio.sleep(5)
            assert c.health().ok
            w.network.partition(w.hosts[c])
            began = w.world.loop.time()
            waiting = asyncio.create_task(c.getone())
            await until(lambda: not c.health().ok, 30)
            await asyncio.sleep(30)
            health = c.health()
            assert not health.ok
            assert any(broker.error for broker in health.brokers.values())
            assert health.group is not None
            if protocol == "classic":
                assert not health.group.joined, "its session is over"
            assert health.group.heartbeat_ago is not None
            assert health.group.heartbeat_ago >= 25
            w.network.heal()
            await until(lambda: c.health().ok, 60)
            assert w.world.loop.time() - began <= 120
            await w.produce("t", range(5, 6), 1)
            record = await asyncio.wait_for(waiting, 60)
            assert int(record.value) in range(6)

    simulate(body)


# Shutdown

BOUND = 3 + 1
"""Seconds: the timeout of close(), plus the time to close sockets."""


async def closed(w: World, c: Any) -> float:
    """Close the consumer and return how many seconds it took."""
    began = w.world.loop.time()
    await c.close(timeout=3)
    return w.world.loop.time() - began


@both
@pytest.mark.parametrize("moment", ["never reached", "in a rebalance", "with work to commit"])
def test_closing_without_a_coordinator_is_bounded_in_time(protocol: str, moment: str) -> None:
    """AK 659, 773, 1013; CF 107, 1573, 1667; LR 3740: closing hangs."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        await w.produce("t", range(10), 2)
        c = w.member("t", protocol=protocol)
        if moment == "never reached":
            await c.start()
            w.broker.fall_silent()
        elif moment == "in a rebalance":
            await c.start()
            await until(lambda: len(c.assignment()) == 2)
            other = w.member("t", protocol=protocol)
            await other.start()
            w.broker.fall_silent()
            assert await closed(w, other) <= BOUND
        else:
            await c.start()
            assert numbers(await read(c, 10)) == list(range(10))
            w.broker.fall_silent()
        assert await closed(w, c) <= BOUND
        assert await closed(w, c) == 0, "a second time is nothing"

    simulate(body)


@both
def test_a_cancelled_close_leaves_nothing_open(protocol: str) -> None:
    """AK 647, 583: stop() raised CancelledError, and tasks continued to run."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(5), 1)
        before = asyncio.all_tasks()
        c = w.member("t", protocol=protocol)
        await c.start()
        await read(c, 3)
        w.broker.fall_silent()
        silent = asyncio.all_tasks()
        closing = asyncio.create_task(c.close(timeout=20))
        await asyncio.sleep(0.5)
        closing.cancel()
        await asyncio.wait([closing])
        await c.close(timeout=1)
        await asyncio.sleep(5)
        left = {t for t in asyncio.all_tasks() - before if not t.done()}
        assert not left & silent
        assert not left

    simulate(body)
