"""Starting, failing and closing a consumer at any time: nothing hangs, and nothing is left open."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokq.client.cluster import Cluster
from aiokq.core.errors import AuthenticationFailed, Closed, ConfigError, TopicAuthorization
from tests.sim.consumer_world import CLIENT, consumer, read, simulate, values


@pytest.mark.parametrize("own", [True, False], ids=["own cluster", "shared cluster"])
def test_closing_at_any_time_during_the_start_leaves_nothing_open(own: bool) -> None:
    """A service that is stopped while starting must leave no connection and no task."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with Cluster(
            kafka.bootstrap_servers, _environment=world.environment(CLIENT)
        ) as cluster:
            before = asyncio.all_tasks()
            for turns in range(40):
                c = consumer(world, kafka, "orders") if own else cluster.consumer("orders")
                starting = asyncio.create_task(c.start())
                for _ in range(turns):
                    await asyncio.sleep(0 if turns < 20 else 0.0005)
                async with asyncio.timeout(20):
                    await c.close()
                    outcome = (await asyncio.gather(starting, return_exceptions=True))[0]
                assert outcome is None or isinstance(outcome, Closed), outcome
                with pytest.raises(Closed):
                    await c.start()
                await asyncio.sleep(0.1)
                left = asyncio.all_tasks() - before
                left = {task for task in left if "consumer" in task.get_name()}
                assert not left, (turns, left)

    simulate(body)


@pytest.mark.parametrize("own", [True, False], ids=["own cluster", "shared cluster"])
def test_cancelling_the_start_at_any_time_leaves_nothing_open(own: bool) -> None:
    """As `wait_for(consumer.start(), 1)` does at its timeout."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with Cluster(
            kafka.bootstrap_servers, _environment=world.environment(CLIENT)
        ) as cluster:
            before = asyncio.all_tasks()
            for turns in range(40):
                c = consumer(world, kafka, "orders") if own else cluster.consumer("orders")
                starting = asyncio.create_task(c.start())
                for _ in range(turns):
                    await asyncio.sleep(0 if turns < 20 else 0.0005)
                starting.cancel()
                async with asyncio.timeout(20):
                    await asyncio.gather(starting, return_exceptions=True)
                    if not starting.cancelled():
                        await c.close()
                await asyncio.sleep(0.1)
                left = asyncio.all_tasks() - before
                left = {task for task in left if "consumer" in task.get_name()}
                assert not left, (turns, left)

    simulate(body)


def test_a_call_during_the_start_says_so() -> None:
    """Regression: the error said that the consumer is closed."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        c = consumer(world, kafka, "orders")
        starting = asyncio.create_task(c.start())
        await asyncio.sleep(0)
        with pytest.raises(Closed, match="still being started"):
            await c.position(("orders", 0))
        await starting
        assert await c.position(("orders", 0)) == 0
        await c.close()
        with pytest.raises(Closed, match="is closed"):
            await c.position(("orders", 0))

    simulate(body)


def test_after_a_bug_every_call_fails_and_the_cluster_continues() -> None:
    """position() ran into its timeout, and the cluster kept calling the failed consumer and
    holding its connections.
    """

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        kafka.append("orders", 0, b"a")
        async with Cluster(
            kafka.bootstrap_servers,
            metadata_max_age_ms=2_000,
            _environment=world.environment(CLIENT),
        ) as cluster:
            well = cluster.consumer("orders", auto_offset_reset="earliest")
            await well.start()
            await asyncio.sleep(1)
            connections = kafka[1].connections
            c = cluster.consumer("orders")
            await c.start()
            await asyncio.sleep(1)
            assert kafka[1].connections == connections + 1

            def explode(*args: object) -> bool:
                raise ZeroDivisionError("a bug")

            c._pipeline.fetcher.received = explode  # type: ignore[method-assign]
            kafka.append("orders", 1, b"x")
            await asyncio.sleep(1)
            for call in (
                lambda: c.position(("orders", 0)),
                lambda: c.seek_to_end(),
                lambda: c.end_offsets([("orders", 0)]),
                lambda: c.getone(),
                lambda: c.getmany(timeout=1),
            ):
                start = world.loop.time()
                with pytest.raises(Closed, match="a bug"):
                    await call()
                assert world.loop.time() == start
            with pytest.raises(Closed, match="a bug"):
                c.seek(("orders", 0), 0)
            # Changes of topics no longer affect the failed consumer.
            kafka.topics["orders"].leaders.append(1)
            await asyncio.sleep(5)
            assert len(well.assignment()) == 3
            assert set(values(await read(well, 2))) == {b"a", b"x"}
            await c.close()
            await asyncio.sleep(1)
            assert kafka[1].connections == connections
            await well.close()

    simulate(body)


@pytest.mark.parametrize("way", ["records", "position"])
def test_a_bug_in_the_cluster_reaches_its_consumers(way: str) -> None:
    """The cluster's connections and metadata are gone, so a reader would wait for ever."""

    async def explode() -> None:
        raise ZeroDivisionError("a bug")

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, -1])
        async with consumer(world, kafka, "orders") as c:
            waiting = asyncio.create_task(
                c.getone() if way == "records" else c.position(("orders", 1))
            )
            await asyncio.sleep(1)
            assert not waiting.done()
            c._engine.spawn(explode(), "explode")
            with pytest.raises(Closed, match="a bug"):
                await asyncio.wait_for(waiting, 1)
            with pytest.raises(Closed, match="a bug"):
                await c.getone()
            assert not c.health().ok

    simulate(body)


def test_pending_errors_of_a_closed_stream_are_raised_by_another_stream() -> None:
    """They were lost, and the partition stopped without an error."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        denied = {1}
        kafka.faults.append(lambda f: TopicAuthorization.code if f.partition in denied else None)
        async with consumer(world, kafka, "orders", auto_offset_reset="earliest") as c:
            await asyncio.sleep(3)
            denied.clear()
            await asyncio.sleep(3)
            first, second = c.streams(2)
            assert second.assignment() == {("orders", 1)}
            with pytest.raises(TopicAuthorization):
                await asyncio.wait_for(second.getone(), 5)
            denied.add(1)
            await asyncio.sleep(3)
            second.close()
            denied.clear()
            with pytest.raises(TopicAuthorization):
                await asyncio.wait_for(first.getone(), 5)
            denied.add(0)
            await asyncio.sleep(3)
            first.close()
            denied.clear()
            with pytest.raises(TopicAuthorization):
                await asyncio.wait_for(c.getone(), 5)

    simulate(body)


def test_a_pattern_retries_a_failed_listing_of_topics() -> None:
    """The topics were listed only once; after a failure the consumer never read anything."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("logs.a", [1])
        kafka.append("logs.a", 0, b"a")
        async with consumer(world, kafka) as c:
            refresh = c._engine.refresh
            failures = 3
            moments: list[float] = []

            async def failing(topics: Any = None) -> None:
                nonlocal failures
                if topics is None and failures:
                    failures -= 1
                    moments.append(world.loop.time())
                    raise AuthenticationFailed("not now")
                await refresh(topics)

            c._engine.refresh = failing  # type: ignore[method-assign]
            c.subscribe(pattern=r"logs\..*")
            with pytest.raises(AuthenticationFailed):
                await c.getone()
            while True:
                try:
                    assert (await asyncio.wait_for(c.getone(), 10)).value == b"a"
                    break
                except AuthenticationFailed:
                    pass
            await asyncio.sleep(5)
            assert not failures
            assert moments[1] - moments[0] > 0.05, "not in a hot loop"
            assert c._pipeline.discovery._listed

    simulate(body)


def test_subscribe_and_assign_may_be_called_before_the_start() -> None:
    """subscribe() could be called before the start, but assign() raised "not started"."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        kafka.append("orders", 1, b"v")
        c = consumer(world, kafka)
        c.assign([("orders", 0)])
        c.assign([("orders", 1), ("orders", 1)])
        with pytest.raises(ConfigError, match="unsubscribe"):
            c.subscribe("orders")
        async with c:
            assert c.assignment() == {("orders", 1)}
            assert (await c.getone()).value == b"v"
        with pytest.raises(Closed):
            c.assign([("orders", 0)])
        c = consumer(world, kafka)
        c.assign([("orders", 0)])
        c.unsubscribe()
        c.subscribe("orders")
        async with c:
            assert c.assignment() == {("orders", 0), ("orders", 1)}

    simulate(body)


def test_the_error_of_a_consumer_names_its_closed_cluster() -> None:
    """ "This consumer is closed" was misleading, because only its cluster had been closed."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with Cluster(
            kafka.bootstrap_servers, _environment=world.environment(CLIENT)
        ) as cluster:
            c, own = cluster.consumer("orders"), cluster.consumer("orders")
            await c.start()
            await own.start()
            waiting = asyncio.create_task(c.getone())
            await asyncio.sleep(0.1)
            await own.close()
            with pytest.raises(Closed, match="this consumer is closed"):
                await own.getone()
        for call in (lambda: waiting, c.getone, c.getmany, c.topics, c.start):
            with pytest.raises(Closed, match="the Cluster of this consumer is closed"):
                await call()

    simulate(body)
