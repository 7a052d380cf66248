"""Members that crash, stall, are not read, or close without a coordinator; broker restarts."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from aiokq.cluster.events import Lost
from aiokq.core.errors import CommitFailed, ConfigError, KafkaError, MaxPollExceeded
from aiokq.core.types import TopicFilter, TopicPartition
from tests.sim.group_world import FAST, PROTOCOLS, World, numbers, read, simulate, until

T0 = TopicPartition("t", 0)
both = pytest.mark.parametrize("protocol", PROTOCOLS)


@both
def test_a_dead_member_is_replaced_within_its_session_timeout(protocol: str) -> None:
    """Uncommitted records of the dead member are read again, and no record is skipped."""

    async def body(w: World) -> None:
        await w.topic("t", 4)
        await w.produce("t", range(40), 4)
        got: dict[int, int] = defaultdict(int)

        async def work(c: Any) -> None:
            async for record in c:
                got[int(record.value)] += 1
                await asyncio.sleep(0.2)

        c, d = (w.member("t", protocol=protocol) for _ in range(2))
        await c.start()
        await d.start()
        tasks = [asyncio.create_task(work(x)) for x in (c, d)]
        await asyncio.sleep(3)
        w.network.partition(w.hosts[c])
        tasks[0].cancel()
        began = w.world.loop.time()
        await until(lambda: len(d.assignment()) == 4)
        assert w.world.loop.time() - began < 12
        await until(lambda: len(got) == 40)
        await d.close()
        await c.close(timeout=1)
        await asyncio.wait(tasks)

    simulate(body)


@both
def test_a_coordinator_that_restarts_keeps_its_group(protocol: str) -> None:
    """Offsets and membership are restored from the log; no record is skipped."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        await w.produce("t", range(20), 2)
        got: list[int] = []

        async def work(c: Any) -> None:
            async for record in c:
                got.append(int(record.value))
                await asyncio.sleep(0.3)

        async with (
            w.member("t", protocol=protocol) as c,
            w.member("t", protocol=protocol) as d,
        ):
            tasks = [asyncio.create_task(work(x)) for x in (c, d)]
            await asyncio.sleep(2)
            w.broker.kill()
            await asyncio.sleep(2)
            await w.broker.start()
            await until(lambda: len(set(got)) == 20, 120)
            await until(lambda: sorted(map(len, (c.assignment(), d.assignment()))) == [1, 1], 120)
            await w.produce("t", range(20, 30), 2)
            await until(lambda: len(set(got)) == 30, 120)
            for task in tasks:
                task.cancel()

    simulate(body)


@both
def test_a_member_that_is_not_read_leaves_and_comes_back(protocol: str) -> None:
    """After max.poll.interval.ms the partitions of a program that hangs move to another member."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        await w.produce("t", range(40), 2)
        lost: list[TopicPartition] = []
        c = w.member("t", protocol=protocol, max_poll_interval_ms=20_000, on_lost=lost.extend)
        async with c:
            events = c._engine.events()
            iterator = aiter(c)
            await anext(iterator)
            await until(lambda: not c.assignment(), 40)
            assert len(lost) == 2
            assert not c.health().ok
            await until(lambda: c.health().group.state == "out")  # type: ignore[union-attr]
            # health() gives the reason, because neither the broker nor the network has failed.
            assert "max_poll_interval_ms" in str(c.health().group.error)  # type: ignore[union-attr]
            async with w.member("t", protocol=protocol) as other:
                assert len(await read(other, 10)) == 10
            assert len(await read(c, 10)) == 10
            assert len(c.assignment()) == 2
            async with asyncio.timeout(1):
                async for event in events:
                    if isinstance(event, Lost):
                        assert isinstance(event.error, MaxPollExceeded)
                        break
            assert c.health().group.error is None  # type: ignore[union-attr]

    simulate(body)


@both
def test_reading_while_the_member_is_leaving_makes_it_rejoin(protocol: str) -> None:
    """A read that began before the member had left was ignored and waited for ever."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(4), 1)
        losing = asyncio.Event()

        async def lost(partitions: Any) -> None:
            losing.set()
            await asyncio.sleep(2)

        c = w.member("t", protocol=protocol, max_poll_interval_ms=10_000, on_lost=lost)
        async with c:
            await read(c, 1)
            await asyncio.wait_for(losing.wait(), 30)
            assert len(await read(c, 3, 60)) == 3

    simulate(body)


@both
def test_a_member_that_waits_for_records_stays(protocol: str) -> None:
    """The topic is idle, but the reader does not hang."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        async with w.member("t", protocol=protocol, max_poll_interval_ms=5_000) as c:
            waiting = asyncio.create_task(c.getone())
            await asyncio.sleep(60)
            assert c.health().ok
            assert c.health().group.state == "stable"  # type: ignore[union-attr]
            await w.produce("t", range(1), 1)
            await waiting

    simulate(body)


@both
def test_closing_ends_in_time_although_the_coordinator_is_gone(protocol: str) -> None:
    """AK 659, 773, 1013; LR 3740: closing hangs."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(5), 1)
        c = w.member("t", protocol=protocol)
        await c.start()
        await read(c, 3)
        w.broker.fall_silent()
        began = w.world.loop.time()
        await c.close(timeout=6)
        assert w.world.loop.time() - began <= 12

    simulate(body)


@both
def test_closing_waits_for_the_work_of_other_tasks(protocol: str) -> None:
    """The handler of a stream finishes its record, and the record is committed."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        await w.produce("t", range(2), 2)
        done: list[int] = []

        async def work(stream: Any) -> None:
            async for record in stream:
                await asyncio.sleep(5)
                done.append(int(record.value))

        c = w.member("t", protocol=protocol)
        await c.start()
        tasks = [asyncio.create_task(work(stream)) for stream in c.streams(2)]
        await asyncio.sleep(4)
        await c.close()
        assert sorted(done) == [0, 1]
        await asyncio.gather(*tasks)
        assert await w.committed("t", 2) == [1, 1]

    simulate(body)


@both
def test_closing_stops_waiting_for_a_record_that_takes_too_long(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the step that took too long; another member receives the record again."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(2), 1)
        finished: list[int] = []

        async def work() -> None:
            async for record in c:
                if record.value == b"1":
                    await asyncio.sleep(600)
                finished.append(record.offset)

        c = w.member("t", protocol=protocol)
        await c.start()
        task = asyncio.create_task(work())
        await until(lambda: finished == [0])
        began = w.world.loop.time()
        await c.close(timeout=8)
        assert w.world.loop.time() - began <= 8
        task.cancel()
        await asyncio.wait([task])
        assert "no longer waiting: group=g step=unfinished records waited=" in caplog.text
        assert await w.committed("t", 1) == [1]

    simulate(body)


@both
def test_streams_keep_order_across_rebalances(protocol: str) -> None:
    """A partition belongs to exactly one stream, also after it was revoked and assigned again."""

    async def body(w: World) -> None:
        await w.topic("t", 6)
        got: dict[int, list[int]] = defaultdict(list)

        async def work(stream: Any) -> None:
            async for record in stream:
                got[record.partition].append(record.offset)
                await asyncio.sleep(0.05)

        c = w.member("t", protocol=protocol)
        await c.start()
        tasks = [asyncio.create_task(work(stream)) for stream in c.streams(3)]
        producing = asyncio.create_task(w.produce("t", range(600), 6))
        await asyncio.sleep(2)
        other = w.member("t", protocol=protocol)
        await other.start()
        await until(lambda: len(other.assignment()) == 3)
        await asyncio.sleep(1)
        await other.close()
        await producing
        await until(lambda: sum(map(len, got.values())) == 600, 120)
        assert all(offsets == list(range(100)) for offsets in got.values())
        await c.close()
        await asyncio.gather(*tasks)

    simulate(body)


@both
def test_a_pattern_subscription_adds_new_topics(protocol: str) -> None:
    """New topics that match are read from their beginning."""

    async def body(w: World) -> None:
        await w.topic("orders-a", 1)
        await w.topic("bills", 1)
        await w.produce("orders-a", range(3), 1)
        options: Any = {"protocol": protocol, "metadata_max_age_ms": 3_000}
        async with w.member(TopicFilter("orders-.*", "orders-x"), **options) as c:
            assert numbers(await read(c, 3)) == [0, 1, 2]
            await w.topic("orders-b", 1)
            await w.topic("orders-x", 1)
            await w.produce("orders-b", range(3, 6), 1)
            assert numbers(await read(c, 3)) == [3, 4, 5]
            assert c.subscription() == {"orders-a", "orders-b"}

    simulate(body)


def test_a_regex_is_evaluated_by_the_broker() -> None:
    """With KIP-848 the consumer learns the topics from its assignment."""
    pytest.importorskip("re2")

    async def body(w: World) -> None:
        await w.topic("orders-a", 1)
        await w.produce("orders-a", range(3), 1)
        c = w.member(protocol="consumer")
        c.subscribe(regex="orders-.*")
        async with c:
            assert numbers(await read(c, 3)) == [0, 1, 2]
            assert c.subscription() == {"orders-a"}

    simulate(body)


def test_a_server_side_regex_needs_the_consumer_protocol() -> None:
    """Members of the classic protocol subscribe to topic names only."""

    async def body(w: World) -> None:
        with pytest.raises(ConfigError, match="group_protocol='consumer'"):
            w.member().subscribe(regex="a.*")

    simulate(body)


@both
def test_changing_the_subscription_changes_the_assignment(protocol: str) -> None:
    """Partitions of the old topic are revoked in order before those of the new one are assigned."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.topic("u", 1)
        await w.produce("t", range(3), 1)
        await w.produce("u", range(10, 13), 1)
        async with w.member("t", protocol=protocol) as c:
            await read(c, 3)
            c.subscribe("u")
            assert numbers(await read(c, 3)) == [10, 11, 12]
            assert c.assignment() == {("u", 0)}
            assert await w.committed("t", 1) == [3]
            c.unsubscribe()
            await until(lambda: not c.assignment())
            await until(lambda: c.health().group.state == "out")  # type: ignore[union-attr]
            c.subscribe(["t", "u"])
            await until(lambda: len(c.assignment()) == 2)

    simulate(body)


def test_a_restarted_static_member_keeps_its_partitions_without_a_rebalance() -> None:
    """KIP-345: the replaced instance is fenced, and its error says so."""

    async def body(w: World) -> None:
        await w.topic("t", 4)
        options: Any = {"session_timeout_ms": 30_000}
        c = w.member("t", group_instance_id="a", **options)
        d = w.member("t", group_instance_id="b", **options)
        async with c, d:
            await until(lambda: (len(c.assignment()), len(d.assignment())) == (2, 2))
            generation = d.group_metadata().generation
            mine = c.assignment()
            await c.close()
            async with w.member("t", group_instance_id="a", **options) as again:
                await until(lambda: again.assignment() == mine)
                assert d.group_metadata().generation == generation
                async with w.member("t", group_instance_id="a", **options) as thief:
                    await until(lambda: thief.assignment() == mine)
                    with pytest.raises(KafkaError, match="instance"):
                        await again.getone()
                    with pytest.raises((KafkaError, CommitFailed)):
                        await again.commit({T0: 1})

    simulate(body)


@both
def test_auto_uses_the_protocol_of_the_group(protocol: str) -> None:
    """If a classic group may not be upgraded, the broker returns 69 (GROUP_ID_NOT_FOUND), and
    the member joins by the classic protocol.
    """

    async def body(w: World) -> None:
        await w.topic("t", 2)
        async with w.member("t", protocol=protocol) as c:
            await until(lambda: len(c.assignment()) == 2)
            async with w.member("t", protocol="auto") as d:
                await until(lambda: len(d.assignment()) == 1)
                await until(lambda: len(c.assignment()) == 1)

    simulate(body, settings={"group.consumer.migration.policy": "disabled"})


@both
def test_cancelled_reads_lose_nothing(protocol: str) -> None:
    """confluent-kafka lost 6 of 20 records."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        got: list[int] = []
        async with w.member("t", protocol=protocol) as c:
            producing = asyncio.create_task(w.produce("t", range(50), 2))
            async with asyncio.timeout(120):
                while len(got) < 50:
                    try:
                        record = await asyncio.wait_for(c.getone(), 0.003)
                    except TimeoutError:
                        continue
                    got.append(int(record.value))
            await producing
        assert sorted(got) == list(range(50))
        assert sum(filter(None, await w.committed("t", 2))) == 50

    simulate(body)


@pytest.mark.parametrize("normal", [True, False])
def test_unacknowledged_records_do_not_delay_closing(normal: bool) -> None:
    """The loop that received them has ended, but close() waited a third of its timeout for them."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(3), 1)
        c = w.member("t", ack_mode="explicit")
        await c.start()
        c.ack((await read(c, 3))[0])
        began = w.world.loop.time()
        if normal:
            await c.close(timeout=9)
        else:
            try:
                raise LookupError
            except LookupError:
                await c.close(timeout=9)
        assert w.world.loop.time() - began < 1
        assert await w.committed("t", 1) == [1]

    simulate(body)


@both
def test_closing_ends_a_rebalance_that_waits_for_unfinished_records(protocol: str) -> None:
    """The records are no longer acknowledged: close() took 30 s, and the others waited."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        await w.produce("t", range(8), 2)
        c = w.member("t", protocol=protocol, ack_mode="explicit")
        await c.start()
        await read(c, 8)
        other = w.member("t", protocol=protocol)
        joining = asyncio.create_task(other.start())
        await asyncio.sleep(8)
        began = w.world.loop.time()
        await c.close()
        assert w.world.loop.time() - began < 1
        await joining
        await until(lambda: len(other.assignment()) == 2, 20)
        await other.close()

    simulate(body)


@pytest.mark.parametrize("moment", ["taking", "giving up"])
def test_unsubscribing_and_subscribing_in_one_rebalance_continues_reading(moment: str) -> None:
    """Partitions that stayed assigned delivered no more records, without an error."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        await w.topic("u", 1)
        handling = asyncio.Event()

        async def slow(partitions: Any) -> None:
            handling.set()
            await asyncio.sleep(3)

        c = w.member("t", "u", protocol="consumer")
        async with c:
            await until(lambda: len(c.assignment()) == 3)
            if moment == "taking":
                c.subscribe(["t"])
                await until(lambda: len(c.assignment()) == 2)
                c.subscribe(["t", "u"], on_assigned=slow)
            else:
                c.subscribe(["t"], on_revoked=slow)
            await asyncio.wait_for(handling.wait(), 30)
            c.unsubscribe()
            await asyncio.sleep(1)
            c.subscribe(["t"])
            await asyncio.sleep(10)
            await w.produce("t", range(8), 2)
            assert numbers(await read(c, 8)) == list(range(8))

    simulate(body)


def test_health_reports_a_stalled_loop() -> None:
    """KP 2070: blocking code delayed heartbeats, and no message said so."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        async with w.member("t") as c:
            await until(lambda: c.assignment())
            assert c.health().stalled is None
            c._engine._stalls.stalled(7.5, "handler.py:12 in crunch")
            stalled = c.health().stalled
            assert stalled is not None
            assert (stalled.stalled_ms, stalled.stack) == (7500, "handler.py:12 in crunch")

    simulate(body)


def test_an_error_that_ends_membership_is_raised_each_time_reading_starts() -> None:
    """The error is raised and the join retried, because the cause may have been removed."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        # The timeout is below the broker's minimum: INVALID_SESSION_TIMEOUT is not retriable.
        c = w.member("t", session_timeout_ms=900, heartbeat_interval_ms=300)
        async with c:
            for _ in range(2):
                with pytest.raises(KafkaError, match="INVALID_SESSION_TIMEOUT"):
                    await c.getone()
                group = c.health().group
                assert group is not None
                assert group.state == "failed"

    simulate(body)


def test_the_error_for_a_group_that_cannot_be_upgraded_names_the_setting() -> None:
    """The error said that the group id did not exist, although the group had members."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        async with w.member("t") as c:
            await until(lambda: c.assignment())
            async with w.member("t", protocol="consumer") as d:
                with pytest.raises(
                    KafkaError, match=r"GROUP_ID_NOT_FOUND.*group_protocol='auto' or 'classic'"
                ):
                    await d.getone()
            async with w.member("t", protocol="auto") as d:
                await until(lambda: d.assignment())

    simulate(body, settings={"group.consumer.migration.policy": "disabled"})


def test_a_member_that_fell_back_to_classic_follows_its_group_to_consumer() -> None:
    """While the member was disconnected, the classic members left and the group was recreated.
    The error then advised the setting that was already in effect.
    """

    async def body(w: World) -> None:
        await w.topic("t", 2)
        c = w.member("t")
        await c.start()
        await until(lambda: c.assignment())
        async with w.member("t", protocol="auto", **FAST) as d:
            await until(lambda: len(d.assignment()) == 1)
            await c.close()
            await until(lambda: len(d.assignment()) == 2)
            w.network.partition(w.hosts[d])
            await asyncio.sleep(10)
            async with w.member("t", protocol="consumer") as e:
                await until(lambda: len(e.assignment()) == 2)
                w.network.heal()
                await until(lambda: len(d.assignment()) == 1)
                assert len(e.assignment()) == 1
                assert d.health().ok

    simulate(body, settings={"group.consumer.migration.policy": "disabled"})
