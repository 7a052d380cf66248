"""Producer, embedded broker and consumer together in virtual time, with random faults."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import Any

import pytest

from aiokq.broker.embedded import EmbeddedCluster
from aiokq.client.cluster import Cluster
from aiokq.consumer.consumer import Consumer
from aiokq.core.errors import Closed, WrongLoop
from aiokq.core.types import TopicPartition
from aiokq.producer.producer import Producer
from tests.sim.consumer_world import consumer, read, simulate
from tests.sim.harness.simulation import run

RECORDS = 400


@pytest.mark.parametrize("seed", range(8))
def test_every_record_is_read_once_and_in_order_despite_cuts_and_cancellations(seed: int) -> None:
    """Connections are cut, waits cancelled, partitions paused, and forms of reading mixed."""

    async def main(world: Any) -> None:
        random = world.random
        async with EmbeddedCluster(environment=world.environment()) as kafka:
            await kafka.create_topic("t", 3)
            servers = kafka.bootstrap_servers
            port = int(servers.rsplit(":", 1)[1])
            sent: dict[int, list[bytes]] = {p: [] for p in range(3)}
            got: dict[int, list[bytes]] = {p: [] for p in range(3)}

            async def produce() -> None:
                async with Producer(servers, _environment=world.environment()) as producer:
                    for n in range(RECORDS):
                        partition = random.randrange(3)
                        value = b"%d" % n
                        sent[partition].append(value)
                        await producer.enqueue("t", value, partition=partition)
                        if random.random() < 0.1:
                            await asyncio.sleep(random.random() * 0.3)

            async def cut() -> None:
                while True:
                    await asyncio.sleep(random.random() * 2)
                    for connection in world.network.connections("127.0.0.1", port):
                        if random.random() < 0.3:
                            connection.cut()

            def take(record: Any) -> None:
                got[record.partition].append(record.value)

            async def read_somehow(c: Consumer) -> None:
                match random.randrange(5):
                    case 0:
                        async for record in c:
                            take(record)
                            if random.random() < 0.1:
                                break
                            if random.random() < 0.05:
                                c.pause((record.topic, record.partition))
                    case 1:
                        take(await c.getone())
                    case 2:
                        for records in (await c.getmany(timeout=0.2, max_records=7)).values():
                            for record in records:
                                take(record)
                    case 3:
                        async for batch in c.batches():
                            for record in batch:
                                take(record)
                            break
                    case 4:
                        tp = random.choice(sorted(c.assignment()))
                        c.seek(tp, await c.position(tp))

            async with Consumer(
                "t",
                bootstrap_servers=servers,
                auto_offset_reset="earliest",
                queued_max_bytes=2_000,
                max_partition_fetch_bytes=300,
                _environment=world.environment(),
            ) as c:
                tasks = [asyncio.create_task(produce()), asyncio.create_task(cut())]
                async with asyncio.timeout(600):
                    while not tasks[0].done() or sum(map(len, got.values())) < RECORDS:
                        try:
                            async with asyncio.timeout(random.random()):
                                await read_somehow(c)
                        except TimeoutError:
                            pass
                        c.resume(*c.paused())
                tasks[1].cancel()
                await tasks[0]
                assert await c.getmany(timeout=2) == {}
            assert got == sent

    run(seed, main)


def test_the_same_seed_gives_the_same_run() -> None:
    """Otherwise a failure that a seed found could not be reproduced."""

    async def main(world: Any) -> list[tuple[int, float]]:
        async with EmbeddedCluster(environment=world.environment()) as kafka:
            await kafka.create_topic("t", 2)
            async with Cluster(
                kafka.bootstrap_servers, _environment=world.environment()
            ) as cluster:
                async with cluster.producer() as producer:
                    for n in range(50):
                        await producer.send("t", b"%d" % n)
                async with cluster.consumer("t", auto_offset_reset="earliest") as c:
                    return [(r.offset, world.loop.time()) for r in await read(c, 50)]

    first, second = run(7, main), run(7, main)
    assert first.value == second.value
    assert list(map(str, first.trace.events)) == list(map(str, second.trace.events))


def test_consumers_of_one_cluster_have_fetch_connections_of_their_own() -> None:
    """A broker responds in order per connection, so a waiting fetch would delay the others."""

    async def main(world: Any) -> None:
        async with EmbeddedCluster(environment=world.environment()) as kafka:
            await kafka.create_topic("t", 1)
            async with Cluster(
                kafka.bootstrap_servers, _environment=world.environment()
            ) as cluster:
                consumers = [cluster.consumer("t", fetch_max_wait_ms=30_000) for _ in range(2)]
                for c in consumers:
                    await c.start()
                await asyncio.sleep(1)
                start = world.loop.time()
                async with cluster.producer() as producer:
                    await producer.send("t", b"x")
                assert world.loop.time() - start < 1
                assert [(await c.getone()).value for c in consumers] == [b"x", b"x"]
            with pytest.raises(Closed):
                await consumers[0].getone()

    run(1, main)


def test_a_bug_in_a_background_task_reaches_the_reader() -> None:
    """In other clients the task dies and the reader waits for ever."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        c = consumer(world, kafka, "orders")
        await c.start()
        waiting = asyncio.create_task(read(c, 1))
        await asyncio.sleep(1)

        def explode(*args: object) -> bool:
            raise ZeroDivisionError("a bug")

        c._pipeline.fetcher.received = explode  # type: ignore[method-assign]
        kafka.append("orders", 0, b"x")
        with pytest.raises(Closed, match="a bug"):
            await waiting
        with pytest.raises(Closed):
            await c.getone()
        assert not c.health().ok
        await c.close()

    simulate(body)


def test_use_on_another_loop_is_refused_with_an_explanation() -> None:
    """Spark drivers call asyncio.run several times."""
    kept: list[Consumer] = []

    async def first(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        c = consumer(world, kafka, "orders")
        await c.start()
        await c.close()
        open_one = consumer(world, kafka, "orders")
        await open_one.start()
        kept.append(open_one)
        world.loop.call_soon(lambda: None)
        await open_one.close()

    simulate(first)

    async def second() -> None:
        with pytest.raises((WrongLoop, Closed)):
            await kept[0].getone()
        with pytest.raises((WrongLoop, Closed)):
            await kept[0].start()

    asyncio.run(second())


def test_a_consumer_left_open_warns() -> None:
    """Its connections and tasks would be hard to explain."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        c = consumer(world, kafka, "orders")
        await c.start()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            c.__del__()
        assert any(w.category is ResourceWarning and "close()" in str(w.message) for w in caught)
        await c.close()
        gc.collect()

    simulate(body)


def test_metrics_have_the_records_read_and_the_lag() -> None:
    """They are computed on demand, and nothing is counted per record."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, *(b"%d" % n for n in range(10)))
        async with consumer(world, kafka, "orders") as c:
            await read(c, 4)
            counters = c._engine.counters
            assert counters.fetch_lag.read() == {("orders", "0"): 6}
            assert counters.read_ahead_bytes.read() > 0
            assert counters.records_received.read() == 4, "in the middle of what was fetched"
            await read(c, 6)
            assert counters.records_received.read() == 10
            assert await c.getmany(timeout=1) == {}
            assert counters.records_received.read() == 10
            assert counters.batches_received == 1
            assert counters.record_bytes_received > 100
        assert counters.records_received.read() == 10
        assert counters.fetch_lag.read() == {}
        assert counters.read_ahead_bytes.read() == 0

    simulate(body)


def test_positions_are_kept_for_the_partitions_that_stay_assigned() -> None:
    """assign() with an additional partition must not restart the others."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        kafka.append("orders", 0, b"a", b"b")
        kafka.append("orders", 1, b"c")
        async with consumer(world, kafka) as c:
            c.assign([("orders", 0)])
            await read(c, 1)
            c.assign([("orders", 0), ("orders", 1)])
            assert await c.position(TopicPartition("orders", 0)) == 1
            assert {r.value for r in await read(c, 2)} == {b"b", b"c"}

    simulate(body)
