"""Groups on aiokq's broker: killed coordinators, silent members, lost responses, slow handlers."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import aiokq
from aiokq.assign.model import Assignment, Subscription, Topology
from aiokq.assign.range import RangeAssignor
from tests.fault import group_scenarios as scenarios
from tests.fault.group_scenarios import member, partitions, prepared, until
from tests.fault.proxy import FaultProxy
from tests.peers.broker_process import BrokerProcess, broker_process
from tests.peers.ports import free_ports

SESSION_MS = 1_000
PROTOCOLS = ("classic", "consumer")
both = pytest.mark.parametrize("protocol", PROTOCOLS)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker_process(tmp_path_factory.mktemp("broker"), "--profile", "dev") as broker:
        yield broker.bootstrap_servers


async def test_a_silent_member_is_evicted(servers: str) -> None:
    """It is removed when its session expires, and no earlier."""
    await scenarios.a_silent_member_is_evicted(servers, SESSION_MS)


async def test_a_pending_member_is_evicted(servers: str) -> None:
    """It got a member id and never joined with it."""
    await scenarios.a_pending_member_is_evicted(servers, SESSION_MS)


async def test_a_member_that_is_late_in_a_rebalance_is_removed(servers: str) -> None:
    """Heartbeats alone do not keep a member in the group."""
    await scenarios.a_member_that_is_late_in_a_rebalance_is_removed(servers)


@both
async def test_a_static_member_bounces_unnoticed(servers: str, protocol: str) -> None:
    """KIP-345, and static membership in KIP-848."""
    await scenarios.a_static_member_bounces_unnoticed(servers, protocol)


async def test_the_first_of_two_with_one_instance_id_is_fenced(servers: str) -> None:
    """Two processes have the same configuration."""
    await scenarios.the_first_of_two_with_one_instance_id_is_fenced(servers)


async def test_an_instance_id_in_use_is_not_released(servers: str) -> None:
    """KIP-848 rejects the second member instead."""
    await scenarios.an_instance_id_in_use_is_not_released(servers)


@both
async def test_a_stale_generation_commits_nothing(servers: str, protocol: str) -> None:
    """Such commits come from zombies."""
    await scenarios.a_stale_generation_commits_nothing(servers, protocol)


async def test_a_lost_heartbeat_reply_is_made_up_for(servers: str) -> None:
    """This is the coordinator's part."""
    await scenarios.a_lost_heartbeat_reply_is_made_up_for(servers)


async def test_a_slow_revoker_shares_nothing(servers: str) -> None:
    """KIP-848 guarantees this."""
    await scenarios.a_slow_revoker_shares_nothing(servers)


# Members of aiokq behind a bad network


@contextlib.asynccontextmanager
async def behind_a_proxy(tmp_path: Path) -> AsyncIterator[tuple[str, FaultProxy]]:
    """A broker that advertises the address of a proxy; yields that address and the proxy."""
    [port] = free_ports(1)
    async with FaultProxy("127.0.0.1", port) as proxy:
        arguments = ("--profile", "dev", "--advertise", f"127.0.0.1:{proxy.port}")
        broker = BrokerProcess(tmp_path, *arguments, port=port)
        await asyncio.to_thread(broker.start)
        try:
            yield f"127.0.0.1:{proxy.port}", proxy
        finally:
            await asyncio.to_thread(broker.stop)


@both
async def test_replies_lost_in_a_rebalance_are_made_up_for(tmp_path: Path, protocol: str) -> None:
    """All connections are cut over and over while members join."""
    async with behind_a_proxy(tmp_path) as (servers, proxy):
        topic = await prepared(servers, 4, records=100)
        received: set[int] = set()
        options = {"group_protocol": protocol}

        async def work(consumer: aiokq.Consumer) -> None:
            async for record in consumer:
                received.add(int(record.value or b""))

        async with contextlib.AsyncExitStack() as stack:
            members = []
            tasks = []
            for _ in range(3):
                consumer = await stack.enter_async_context(member(servers, topic, **options))
                members.append(consumer)
                tasks.append(asyncio.get_running_loop().create_task(work(consumer)))
                for _ in range(4):
                    await asyncio.sleep(0.07)
                    proxy.cut()
            await until(lambda: sorted(len(partitions(m)) for m in members) == [1, 1, 2])
            owned = [partition for m in members for partition in partitions(m)]
            assert sorted(owned) == [0, 1, 2, 3]
            await until(lambda: received == set(range(100)))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


# The coordinator dies during a rebalance


class Deadly(RangeAssignor):
    """An assignor that kills the broker once, while other members wait for the assignment."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__()
        self._broker: BrokerProcess | None = broker
        self.killed = asyncio.Event()

    def assign(
        self, topology: Topology, members: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        if len(members) > 1 and self._broker is not None:
            broker, self._broker = self._broker, None
            broker.stop(signal.SIGKILL)
            self.killed.set()
        return super().assign(topology, members)


@contextlib.asynccontextmanager
async def own_broker(directory: Path) -> AsyncIterator[BrokerProcess]:
    """A broker that keeps its port over restarts."""
    [port] = free_ports(1)
    broker = BrokerProcess(directory, "--profile", "dev", port=port)
    await asyncio.to_thread(broker.start)
    try:
        yield broker
    finally:
        await asyncio.to_thread(broker.stop)


async def whole_again(topic: str, *members: aiokq.Consumer) -> None:
    """Check that the members share the partitions, resume at the committed offsets, and commit."""
    await until(lambda: [len(partitions(m)) for m in members] == [1, 1])
    assert partitions(members[0]) | partitions(members[1]) == {0, 1}
    for each in members:
        (tp,) = each.assignment()
        assert await each.position(tp) == 3
        await each.commit({tp: 4})
        assert await each.committed(tp) == 4


async def read_three(consumer: aiokq.Consumer, topic: str) -> None:
    """Commit three records of each partition as if they had been processed."""
    offsets = {aiokq.TopicPartition(topic, p): 3 for p in range(2)}
    await until(lambda: partitions(consumer) == {0, 1})
    await consumer.commit(offsets)


async def test_the_coordinator_dies_while_members_join(tmp_path: Path) -> None:
    """SIGKILL while one member still revokes partitions and the other waits in JoinGroup."""
    async with own_broker(tmp_path) as broker:
        servers = broker.bootstrap_servers
        topic = await prepared(servers, records=20)
        revoking, go_on = asyncio.Event(), asyncio.Event()

        async def revoked(tps: object) -> None:
            revoking.set()
            await go_on.wait()

        options = {"enable_auto_commit": False, "partition_assignment_strategy": ["range"]}
        first = member(servers, topic, on_revoked=revoked, **options)
        async with first:
            await read_three(first, topic)
            async with member(servers, topic, **options) as second:
                await asyncio.wait_for(revoking.wait(), 10)
                await asyncio.to_thread(broker.stop, signal.SIGKILL)
                go_on.set()
                await asyncio.sleep(0.3)
                await asyncio.to_thread(broker.start)
                await whole_again(topic, first, second)


async def test_the_coordinator_dies_while_members_sync(tmp_path: Path) -> None:
    """SIGKILL while the leader assigns and the other member waits in SyncGroup."""
    async with own_broker(tmp_path) as broker:
        servers = broker.bootstrap_servers
        topic = await prepared(servers, records=20)
        assignor = Deadly(broker)
        options = {"enable_auto_commit": False}
        strategy: list[Any] = [assignor]
        async with member(
            servers, topic, partition_assignment_strategy=strategy, **options
        ) as first:
            await read_three(first, topic)
            async with member(
                servers, topic, partition_assignment_strategy=["range"], **options
            ) as second:
                await asyncio.wait_for(assignor.killed.wait(), 10)
                await asyncio.to_thread(broker.start)
                await whole_again(topic, first, second)


async def test_the_coordinator_dies_while_a_member_of_the_consumer_protocol_revokes(
    tmp_path: Path,
) -> None:
    """KIP-848 has neither join nor sync; what was agreed before the kill holds after it."""
    async with own_broker(tmp_path) as broker:
        servers = broker.bootstrap_servers
        topic = await prepared(servers, records=20)
        revoking, go_on = asyncio.Event(), asyncio.Event()

        async def revoked(tps: object) -> None:
            revoking.set()
            await go_on.wait()

        options = {"enable_auto_commit": False, "group_protocol": "consumer"}
        first = member(servers, topic, on_revoked=revoked, **options)
        async with first:
            await read_three(first, topic)
            async with member(servers, topic, **options) as second:
                await asyncio.wait_for(revoking.wait(), 10)
                await asyncio.to_thread(broker.stop, signal.SIGKILL)
                await asyncio.to_thread(broker.start)
                await asyncio.sleep(0.5)
                assert partitions(second) == set()
                go_on.set()
                await until(lambda: len(partitions(second)) == 1)
                await until(lambda: len(partitions(first)) == 1)
                assert partitions(first) | partitions(second) == {0, 1}
                (tp,) = second.assignment()
                assert await second.position(tp) == 3


# User code that blocks the loop


async def blocked(servers: str, *, session_ms: int, block_seconds: float) -> None:
    """Block past the session timeout; the member is notified of the loss, rejoins and reads on."""
    topic = await prepared(servers, 1, records=5)
    lost: list[object] = []
    order: list[int] = []
    blocking = member(
        servers,
        topic,
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=max(100, session_ms // 15),
        loop_stall_ms=500,
        on_lost=lost.extend,
    )
    async with blocking:
        async with asyncio.timeout(block_seconds + 60):
            async for record in blocking:
                order.append(record.offset)
                if len(order) == 3:
                    time.sleep(block_seconds)  # noqa: ASYNC251  the fault
                # Buffered records are handed over before the next heartbeat reports the loss.
                await asyncio.sleep(0.3)
                if lost and record.offset == 4:
                    break
        assert len(lost) == 1
        stalled = blocking.health().stalled
        assert stalled is not None
        assert stalled.stalled_ms >= block_seconds * 900
        assert "time.sleep(block_seconds)" in stalled.stack
        # At least once: uncommitted records are delivered again, in order and without gaps.
        assert set(order) == set(range(5))
        again = order.index(0, 1)
        assert order == [*range(again), *range(5)]
        await blocking.commit()
        assert await blocking.committed((topic, 0)) == 5


async def test_a_handler_that_blocks_past_the_session_timeout(servers: str) -> None:
    """kafka-python #2070 and #1896: the member notices, names the blocking code, and reads on."""
    await blocked(servers, session_ms=SESSION_MS, block_seconds=2.0)


@pytest.mark.torture
@pytest.mark.timeout(200)
async def test_a_handler_that_blocks_for_65_seconds(servers: str) -> None:
    """The same with Kafka's default session timeout of 45 s."""
    await blocked(servers, session_ms=45_000, block_seconds=65.0)


def slowly(record: aiokq.Record) -> int:
    """Return the record's offset after two session timeouts."""
    time.sleep(2 * SESSION_MS / 1000)
    return record.offset


@both
async def test_blocking_work_in_a_thread_keeps_the_member(servers: str, protocol: str) -> None:
    """The recommended way for handlers that block: heartbeats continue meanwhile."""
    topic = await prepared(servers, 1, records=2)
    lost: list[object] = []
    options: dict[str, Any] = {"group_protocol": protocol}
    if protocol == "classic":
        options["session_timeout_ms"] = SESSION_MS
    async with member(servers, topic, on_lost=lost.extend, **options) as consumer:
        await until(lambda: partitions(consumer) == {0})
        generation = consumer.group_metadata().generation
        offsets = []
        async for record in consumer:
            offsets.append(await aiokq.run_blocking(slowly, record))
            if len(offsets) == 2:
                break
        assert offsets == [0, 1]
        assert lost == []
        assert consumer.group_metadata().generation == generation
        assert consumer.health().stalled is None
