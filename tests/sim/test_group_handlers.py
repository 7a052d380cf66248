"""Rebalance handlers and events: when user code is called, and what it may do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokq.cluster.events import Assigned, Lost, Revoked
from aiokq.consumer.consumer import Consumer
from aiokq.core.errors import ConfigError, RequestTimeout
from aiokq.core.types import TopicPartition
from tests.sim.group_world import PROTOCOLS, World, numbers, read, simulate, until

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
both = pytest.mark.parametrize("protocol", PROTOCOLS)


@both
def test_a_seek_in_on_assigned_takes_effect(protocol: str) -> None:
    """Users with offsets in a database seek there; no record before the position may arrive."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        await w.produce("t", range(20), 2)

        async def seek(partitions: frozenset[TopicPartition]) -> None:
            for tp in partitions:
                await asyncio.sleep(0.5)
                assert await c.position(tp) == 0
                c.seek(tp, 8)

        c = w.member("t", protocol=protocol, on_assigned=seek)
        async with c:
            assert numbers(await read(c, 4)) == [16, 17, 18, 19]

    simulate(body)


@both
def test_a_commit_in_on_revoked_succeeds_and_the_next_owner_continues_there(protocol: str) -> None:
    """KP 2179: in other clients some commits during a rebalance fail."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        await w.produce("t", range(20), 2)
        calls: list[tuple[str, list[TopicPartition]]] = []

        async def revoked(partitions: frozenset[TopicPartition]) -> None:
            await c.commit(dict.fromkeys(partitions, 7))
            calls.append(("revoked", sorted(partitions)))

        c = w.member(
            "t",
            protocol=protocol,
            enable_auto_commit=False,
            on_assigned=lambda tps: calls.append(("assigned", sorted(tps))),
            on_revoked=revoked,
        )
        async with c:
            await read(c, 20)
            waiting = asyncio.create_task(read(c, 1, 300))
            async with w.member("t", protocol=protocol) as other:
                await until(lambda: len(other.assignment()) == 1)
                (tp,) = other.assignment()
                assert await other.position(tp) == 7
                await until(lambda: len(c.assignment()) == 1)
                expected = [("assigned", [T0, T1])]
                if protocol == "classic":  # eager: both revoked, one assigned
                    expected += [("revoked", [T0, T1]), ("assigned", sorted(c.assignment()))]
                else:
                    expected += [("revoked", [tp])]
                await asyncio.sleep(3)
                assert [call for call in calls if call[1]] == expected
            waiting.cancel()

    simulate(body)


@both
def test_a_commit_in_on_revoked_succeeds_while_the_consumer_closes(protocol: str) -> None:
    """It is the last opportunity to commit what was processed."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(3), 1)
        raised: list[Exception] = []

        async def revoked(partitions: Any) -> None:
            try:
                await c.commit({T0: await c.position(T0)})
            except Exception as error:
                raised.append(error)

        c = w.member("t", protocol=protocol, enable_auto_commit=False, on_revoked=revoked)
        async with c:
            await read(c, 2)
        assert not raised
        assert await w.committed("t", 1) == [2]

    simulate(body)


@both
def test_a_record_being_processed_is_finished_before_its_partition_is_revoked(
    protocol: str,
) -> None:
    """Otherwise the next owner would process the record at the same time."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(3), 1)
        log: list[str] = []

        async def slow() -> None:
            async for record in c:
                log.append(f"begin {int(record.value)}")
                await asyncio.sleep(12)
                log.append(f"end {int(record.value)}")

        def revoked(partitions: Any) -> None:
            log.append("revoked")

        # Range assigns the only partition to the member with the smallest id: the static one.
        c = w.member("t", protocol=protocol, on_revoked=revoked, max_poll_interval_ms=60_000)
        async with c:
            working = asyncio.create_task(slow())
            await until(lambda: log)
            await asyncio.sleep(1)
            c.unsubscribe()
            await until(lambda: "revoked" in log)
            assert log == ["begin 0", "end 0", "revoked"]
            assert (await w.committed("t", 1))[0] == 1
            working.cancel()

    simulate(body)


@both
def test_an_exception_of_a_handler_is_raised_only_in_the_reader(protocol: str) -> None:
    """A failing handler must not end the membership, and must not go unnoticed."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(3), 1)

        async def broken(partitions: Any) -> None:
            if partitions:  # the first assignment of the consumer protocol is empty
                raise LookupError("no table")

        async with w.member("t", protocol=protocol, on_assigned=broken) as c:
            with pytest.raises(LookupError, match="no table"):
                await read(c, 1)
            assert numbers(await read(c, 3)) == [0, 1, 2]
            health = c.health()
            assert health.ok
            assert health.group is not None
            assert health.group.joined

    simulate(body)


@both
def test_a_handler_that_does_not_end_is_cancelled(protocol: str) -> None:
    """AK 335: the group must not wait for ever for one member's handler; heartbeats continue."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        cancelled: list[float] = []

        async def stuck(partitions: Any) -> None:
            try:
                await asyncio.sleep(10_000)
            except asyncio.CancelledError:
                cancelled.append(w.world.loop.time())
                raise

        c = w.member("t", protocol=protocol, on_revoked=stuck, rebalance_timeout_ms=30_000)
        async with c:
            waiting = asyncio.create_task(c.getone())
            await until(lambda: len(c.assignment()) == 2)
            async with w.member("t", protocol=protocol, rebalance_timeout_ms=30_000) as other:
                began = w.world.loop.time()
                await until(lambda: len(other.assignment()) == 1)
                assert 9 <= w.world.loop.time() - began <= 20
                assert len(cancelled) == 1
                with pytest.raises(RequestTimeout, match="on_revoked"):
                    await waiting

    simulate(body)


@both
def test_each_rebalance_step_has_one_event(protocol: str) -> None:
    """Dashboards count the events."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        options: Any = {"protocol": protocol}
        if protocol == "classic":
            options["partition_assignment_strategy"] = "cooperative-sticky"
        seen: list[Any] = []
        async with w.member("t", **options) as c:
            events = c._engine.events()

            async def watch() -> None:
                async for event in events:
                    if isinstance(event, Assigned | Revoked | Lost):
                        seen.append(event)

            watching = asyncio.create_task(watch())
            reading = asyncio.create_task(c.getone())
            await until(lambda: len(c.assignment()) == 2)
            async with w.member("t", **options) as other:
                waiting = asyncio.create_task(other.getone())
                await until(lambda: len(other.assignment()) == 1)
                await asyncio.sleep(5)
                waiting.cancel()
            await until(lambda: len(c.assignment()) == 2)
            await asyncio.sleep(5)
            reading.cancel()
        await asyncio.sleep(1)
        watching.cancel()
        told = [(type(e).__name__, len(e.partitions), len(e.assignment)) for e in seen]
        assert told == [
            ("Assigned", 2, 2),
            ("Revoked", 1, 1),
            ("Assigned", 1, 2),
            ("Revoked", 2, 0),
        ]
        assert {e.group_id for e in seen} == {"g"}
        assert len({e.member_id for e in seen}) == 1

    simulate(body)


@both
def test_lost_partitions_are_reported_by_on_lost(protocol: str) -> None:
    """A member that was disconnected for too long must not commit over its successor's offsets."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(3), 1)
        calls: list[str] = []

        c = w.member(
            "t",
            protocol=protocol,
            on_assigned=lambda tps: tps and calls.append("assigned"),
            on_revoked=lambda tps: calls.append("revoked"),
            on_lost=lambda tps: calls.append("lost"),
        )
        async with c:
            await read(c, 3)
            waiting = asyncio.create_task(c.getone())
            w.network.partition(w.hosts[c])
            async with w.member("t", protocol=protocol) as other:
                await until(lambda: len(other.assignment()) == 1)
                w.network.heal()
                await until(lambda: "lost" in calls)
                assert calls[:2] == ["assigned", "lost"]
                assert "revoked" not in calls
            waiting.cancel()

    simulate(body)


def test_without_on_lost_on_revoked_is_called_as_in_java() -> None:
    """Java's onPartitionsLost calls onPartitionsRevoked unless it is overridden."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        calls: list[str] = []
        c = w.member("t", on_revoked=lambda tps: calls.append("revoked"))
        async with c:
            waiting = asyncio.create_task(c.getone())
            await until(lambda: len(c.assignment()) == 1)
            w.network.partition(w.hosts[c])
            await asyncio.sleep(20)
            w.network.heal()
            await until(lambda: "revoked" in calls)
            waiting.cancel()

    simulate(body)


def test_handlers_without_a_group_are_refused() -> None:
    """The handlers would never be called."""
    with pytest.raises(ConfigError, match="set group_id"):
        Consumer("t", bootstrap_servers="a:1", on_assigned=print)
    with pytest.raises(TypeError, match="on_lost"):
        Consumer("t", bootstrap_servers="a:1", group_id="g", on_lost=5)


@both
@pytest.mark.parametrize("raised", [GeneratorExit, asyncio.CancelledError, LookupError])
def test_an_exception_of_a_handler_reaches_the_reader_and_the_member_continues(
    protocol: str, raised: type[BaseException]
) -> None:
    """A GeneratorExit ended the member silently; leaving then took the whole close timeout."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(4), 1)

        async def broken(partitions: frozenset[TopicPartition]) -> None:
            raise raised

        c = w.member("t", protocol=protocol, on_assigned=broken)
        async with c:
            with pytest.raises((RuntimeError, LookupError)) as caught:
                await read(c, 1)
            assert raised in (type(caught.value), type(caught.value.__cause__))
            assert numbers(await read(c, 4)) == [0, 1, 2, 3]
            closing = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - closing < 5

    simulate(body)
