"""A consumer of a scripted cluster in virtual time: forms of reading, positions, pause and seek."""

from __future__ import annotations

import asyncio
import inspect
import re
from typing import Any

import pytest

from aiokq import wire
from aiokq.consumer.consumer import Consumer
from aiokq.core.errors import Closed, ConfigError, InvalidTopic, NoOffsetForPartition
from aiokq.core.types import TopicFilter, TopicPartition
from tests.sim.consumer_world import consumer, read, simulate, values

T0 = TopicPartition("orders", 0)
T1 = TopicPartition("orders", 1)


def test_a_subscriber_gets_every_record_with_its_offset() -> None:
    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, b"a", b"b")
        async with consumer(world, kafka, "orders") as c:
            first, second = await read(c, 2)
            assert (first.topic, first.partition, first.offset) == ("orders", 0, 0)
            assert (second.value, second.timestamp_ms) == (b"b", 1001)
            assert c.assignment() == {T0}
            assert c.subscription() == {"orders"}
            assert c.health().ok

    simulate(body)


def test_records_of_each_partition_come_in_order() -> None:
    """Kafka guarantees the order within a partition."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 2, 1])
        for n in range(30):
            kafka.append("orders", n % 3, b"%d" % n)
        async with consumer(world, kafka, "orders") as c:
            records = await read(c, 30)
        for partition in range(3):
            mine = [int(r.value) for r in records if r.partition == partition]
            assert mine == list(range(partition, 30, 3))

    simulate(body, nodes=2)


def test_after_break_another_loop_continues_with_the_next_record() -> None:
    """Leaving a loop must not lose the records that were fetched ahead."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, *(b"%d" % n for n in range(10)))
        async with consumer(world, kafka, "orders") as c:
            seen = values(await read(c, 3))
            assert await c.position(T0) == 3
            seen += values(await read(c, 7))
            assert seen == [b"%d" % n for n in range(10)]
        assert len([r for _, r, _ in kafka.requests if r.session_epoch == 0]) == 1

    simulate(body)


def test_a_cancelled_wait_loses_nothing() -> None:
    """Cancelling confluent-kafka's poll lost 6 of 20 messages."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])

        async def feed() -> None:
            for n in range(20):
                await asyncio.sleep(0.37)
                kafka.append("orders", 0, b"%d" % n)

        feeding = asyncio.create_task(feed())
        seen = []
        async with consumer(world, kafka, "orders") as c:
            while len(seen) < 20:
                try:
                    async with asyncio.timeout(0.11):
                        async for record in c:
                            seen.append(record.value)
                            break
                except TimeoutError:
                    pass
                try:
                    seen.append((await asyncio.wait_for(c.getone(), 0.05)).value)
                except TimeoutError:
                    pass
                try:
                    async with asyncio.timeout(0.05):
                        async for batch in c.batches():
                            seen += values(batch)
                            break
                except TimeoutError:
                    pass
        assert seen == [b"%d" % n for n in range(20)]
        await feeding

    simulate(body)


def test_a_second_concurrent_reader_is_refused() -> None:
    """Two tasks would share the records at random without noticing it."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with consumer(world, kafka, "orders") as c:
            first = asyncio.create_task(read(c, 1))
            await asyncio.sleep(1)
            with pytest.raises(RuntimeError):
                await read(c, 1)
            with pytest.raises(RuntimeError):
                await c.getmany(timeout=1)
            kafka.append("orders", 0, b"x")
            assert values(await first) == [b"x"]
            waiting = asyncio.create_task(c.getmany(timeout=5))
            await asyncio.sleep(0.1)
            with pytest.raises(RuntimeError):
                await c.getmany(timeout=1)
            with pytest.raises(RuntimeError):
                await anext(c.batches())
            with pytest.raises(RuntimeError):
                await c.getone()
            assert await waiting == {}

    simulate(body)


@pytest.mark.parametrize("way", ["records", "batches", "deserialized"])
def test_a_loop_that_another_task_has_taken_over_is_refused(way: str) -> None:
    """While records were buffered, both loops continued, each with a random share."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1] * 20)
        for n in range(2000):
            kafka.append("orders", n % 20, b"%d" % n)
        options = {"value_deserializer": bytes} if way == "deserialized" else {}
        async with consumer(world, kafka, "orders", **options) as c:
            await asyncio.sleep(2)

            async def loop() -> list[bytes]:
                seen: list[bytes] = []
                try:
                    async with asyncio.timeout(5):
                        if way == "batches":
                            async for batch in c.batches():
                                seen += values(batch)
                                await asyncio.sleep(0)
                        else:
                            async for record in c:
                                seen.append(record.value)
                                await asyncio.sleep(0)
                except RuntimeError:
                    refused.append(asyncio.current_task())
                except TimeoutError:
                    pass
                return seen

            refused: list[Any] = []
            first = asyncio.create_task(loop())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            second = asyncio.create_task(loop())
            both = await first + await second
            assert len(refused) == 1
            assert sorted(map(int, both)) == list(range(2000)), "nothing is lost, nothing doubled"
            assert len(refused[0].result()) <= 400, "a few chunks at most"

    simulate(body)


def test_tasks_may_read_one_after_the_other() -> None:
    """A loop that was left does not count as a reader, even if its task continues."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1] * 4)
        for n in range(40):
            kafka.append("orders", n % 4, b"%d" % n)
        async with consumer(world, kafka, "orders") as c:
            seen = await read(c, 3)
            seen += await asyncio.create_task(read(c, 15))
            seen += await read(c, 3)
            seen.append(await asyncio.wait_for(anext(c), 1))
            async for record in c:
                seen.append(record)
                seen.append(await anext(c))
                seen.append(await asyncio.create_task(c.getone()))
                if len(seen) == 34:
                    break
            iterator = aiter(c)
            seen += await asyncio.create_task(read(c, 2))
            while len(seen) < 40:
                seen.append(await asyncio.wait_for(anext(iterator), 1))
            assert sorted(int(r.value) for r in seen) == list(range(40))

    simulate(body)


def test_seek_while_iterating_takes_effect_before_the_next_record() -> None:
    """Records fetched ahead of a seek are discarded."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, *(b"%d" % n for n in range(100)))
        async with consumer(world, kafka, "orders") as c:
            seen = []
            async for record in c:
                seen.append(record.offset)
                if record.offset == 5:
                    c.seek(T0, 90)
                if record.offset == 99:
                    break
            assert seen == [0, 1, 2, 3, 4, 5, *range(90, 100)]

    simulate(body)


def test_the_response_to_a_fetch_before_a_seek_is_discarded() -> None:
    """The fetch in flight used the position before the seek."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, *(b"%d" % n for n in range(10)))
        kafka.delays[1] = 1.0
        async with consumer(world, kafka, "orders") as c:
            await asyncio.sleep(0.5)  # the first fetch is in flight
            c.seek(T0, 7)
            assert [r.offset for r in await read(c, 3)] == [7, 8, 9]

    simulate(body)


def test_a_paused_partition_keeps_what_was_fetched_and_is_not_fetched_again() -> None:
    """aiokafka drops the buffer at a pause and fetches the records again."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        for n in range(10):
            kafka.append("orders", 0, b"0-%d" % n)
            kafka.append("orders", 1, b"1-%d" % n)
        async with consumer(world, kafka, "orders") as c:
            seen = []
            async for record in c:
                seen.append(record)
                if len(seen) == 4:
                    paused = record.partition
                    c.pause((record.topic, record.partition))
                if len(seen) == 14:
                    break
            assert all(r.partition != paused for r in seen[4:])
            assert c.paused() == {("orders", paused)}
            assert await c.getmany(timeout=1) == {}
            asked = len([f for f in kafka.fetched if f.partition == paused])
            await asyncio.sleep(5)
            assert len([f for f in kafka.fetched if f.partition == paused]) <= asked
            offsets = {f.asked.fetch_offset for f in kafka.fetched if f.partition == paused}
            c.resume(("orders", paused))
            rest = await read(c, 6)
            assert [r.offset for r in rest] == list(range(4, 10))
            again = {f.asked.fetch_offset for f in kafka.fetched if f.partition == paused}
            assert again - offsets <= {10}, "what was buffered was fetched again"

    simulate(body)


def test_assign_while_iterating_takes_effect_before_the_next_record() -> None:
    """Partitions that stay assigned keep their positions; the others deliver no more records."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        for n in range(10):
            kafka.append("orders", 0, b"0-%d" % n)
            kafka.append("orders", 1, b"1-%d" % n)
        async with consumer(world, kafka) as c:
            c.assign([T0, ("orders", 1)])
            seen = []
            async for record in c:
                seen.append(record)
                if len(seen) == 3:
                    other = 1 - record.partition
                    c.assign([("orders", other)])
                if len(seen) == 13:
                    break
            assert {r.partition for r in seen[3:]} == {other}
            assert c.assignment() == {("orders", other)}

    simulate(body)


def test_getmany_returns_lists_by_partition_within_its_timeout() -> None:
    """For programs in the style of poll(timeout)."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        async with consumer(world, kafka, "orders", max_poll_records=3) as c:
            start = world.loop.time()
            assert await c.getmany() == {}
            assert world.loop.time() == start
            assert await c.getmany(timeout=2.0) == {}
            assert world.loop.time() == pytest.approx(start + 2.0)
            kafka.append("orders", 0, b"a", b"b", b"c", b"d")
            kafka.append("orders", 1, b"e")
            got = await c.getmany(timeout=1)
            assert sum(map(len, got.values())) == 3
            await asyncio.sleep(1)
            got = await c.getmany(T1, timeout=1)
            assert set(got) <= {T1}
            rest = await c.getmany(max_records=100, timeout=1)
            everything = sum(map(len, got.values())) + sum(map(len, rest.values()))
            assert everything == 2
            with pytest.raises(ConfigError):
                await c.getmany(max_records=0)

    simulate(body)


def test_getone_of_a_partition_keeps_the_positions_of_the_others() -> None:
    """getone(*partitions) is meant for reading some partitions first."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        kafka.append("orders", 0, b"a", b"b")
        kafka.append("orders", 1, b"c")
        async with consumer(world, kafka, "orders") as c:
            assert (await c.getone(T1)).value == b"c"
            assert await c.position(T0) == 0
            waiting = asyncio.create_task(c.getone(T1))
            await asyncio.sleep(1)
            assert not waiting.done()
            kafka.append("orders", 1, b"d")
            assert (await waiting).value == b"d"
            assert values(await read(c, 2)) == [b"a", b"b"]

    simulate(body)


def test_a_delivered_batch_moves_the_position_to_its_end() -> None:
    """With batches() the position advances by whole batches."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, *(b"%d" % n for n in range(5)))
        kafka.append("orders", 0, *(b"%d" % n for n in range(5, 8)))
        async with consumer(world, kafka, "orders") as c:
            assert values(await read(c, 2)) == [b"0", b"1"]
            async for batch in c.batches():
                assert (batch.topic, batch.partition, batch.base_offset) == ("orders", 0, 2)
                assert len(batch) == 6
                assert values(batch) == [b"%d" % n for n in range(2, 8)]
                assert values(batch) == values(batch.records), "iterating again decodes again"
                assert batch[0].offset == 2
                assert batch.next_offset == 8 == await c.position(T0)
                arrow = batch.to_arrow(columns=["offset", "value"])
                assert arrow.column("offset").to_pylist() == list(range(2, 8))
                assert arrow.schema.names == ["offset", "value"]
                break
            kafka.append("orders", 0, b"8")
            assert values(await read(c, 1)) == [b"8"]

    simulate(body)


def test_positions_lag_and_end_offsets_are_available() -> None:
    """Dashboards need them."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, *(b"%d" % n for n in range(10)), timestamp_ms=5_000)
        kafka.log("orders").log_start = 2
        async with consumer(world, kafka, "orders") as c:
            assert c.lag(T0) is None
            assert c.highwater(T0) is None
            assert await c.position(T0) == 2
            await read(c, 3)
            assert (c.lag(T0), c.highwater(T0), c.last_stable_offset(T0)) == (5, 10, 10)
            assert c.last_poll_timestamp(T0) == world.clock.timestamp_ms()
            assert await c.beginning_offsets([T0]) == {T0: 2}
            assert await c.end_offsets([("orders", 0)]) == {T0: 10}
            found = await c.offsets_for_times({T0: 5_004})
            assert found[T0] is not None
            assert (found[T0].offset, found[T0].timestamp_ms) == (4, 5_004)
            assert await c.offsets_for_times({T0: 9_000}) == {T0: None}
            assert c.partitions_for_topic("orders") == {0}
            kafka.topic("other", [1])
            assert await c.topics() == {"orders", "other"}
            assert (await c.getone()).offset == 5
            await c.seek_to_beginning()
            assert await c.position(T0) == 2
            await c.seek_to_end(T0)
            assert await c.position(T0) == 10

    simulate(body)


def test_only_methods_that_wait_are_coroutine_functions() -> None:
    """The same methods are coroutine functions as in aiokafka."""
    waits = (
        "start close getone getmany position beginning_offsets end_offsets offsets_for_times "
        "seek_to_beginning seek_to_end seek_to_committed commit committed topics"
    )
    does_not = (
        "subscribe unsubscribe subscription assign assignment seek pause paused resume highwater "
        "last_stable_offset last_poll_timestamp partitions_for_topic lag streams batches health"
    )
    for name in waits.split():
        assert inspect.iscoroutinefunction(getattr(Consumer, name)), name
    for name in does_not.split():
        assert not inspect.iscoroutinefunction(getattr(Consumer, name)), name
    theirs = pytest.importorskip("aiokafka").AIOKafkaConsumer
    for name in {*waits.split(), *does_not.split()} & set(dir(theirs)):
        expected = inspect.iscoroutinefunction(getattr(theirs, name))
        assert inspect.iscoroutinefunction(getattr(Consumer, name)) == expected, name
    missing = {name for name in dir(theirs) if not name.startswith("_")} - set(dir(Consumer))
    assert missing == {"stop"}, "which is close() here"


def test_the_partitions_of_a_topic_come_from_cached_metadata() -> None:
    """aiokafka's users call it without await; awaiting the result was a TypeError."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        async with consumer(world, kafka, metadata_max_age_ms=5_000) as c:
            assert c.partitions_for_topic("orders") is None
            await asyncio.sleep(0.5)
            assert c.partitions_for_topic("orders") == {0, 1}, "the question asked for it"
            assert c.partitions_for_topic("nosuch") is None
            await asyncio.sleep(20)
            assert c.partitions_for_topic("nosuch") is None
            kafka.topics["orders"].leaders.append(1)
            await asyncio.sleep(6)
            assert c.partitions_for_topic("orders") == {0, 1, 2}, "it is kept current"
            asked = [
                topic.name
                for request in kafka[1].seen_of(wire.MetadataRequest)
                for topic in request.topics or ()
            ]
            assert asked.count("nosuch") < 5, "nobody waits for it"
            assert not c.assignment()
            with pytest.raises(InvalidTopic):
                c.partitions_for_topic("no such")
        with pytest.raises(Closed):
            c.partitions_for_topic("orders")

    simulate(body)


def test_commits_without_a_group_are_refused_with_an_explanation() -> None:
    """An AttributeError would not explain the mistake."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with consumer(world, kafka, "orders") as c:
            for call in (
                lambda: c.commit(),
                lambda: c.commit({T0: 5}),
                lambda: c.committed(T0),
                lambda: c.seek_to_committed(),
            ):
                with pytest.raises(ConfigError, match=r"needs a group.*set group_id"):
                    await call()
        with pytest.raises(Closed):
            await c.commit()

    simulate(body)


def test_numbers_that_the_protocol_cannot_carry_are_refused() -> None:
    """They would end the task that encodes the request, and thereby the consumer."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, b"a")
        async with consumer(world, kafka) as c:
            c.assign([T0])
            with pytest.raises(ConfigError):
                c.seek(T0, 2**63)
            with pytest.raises(ValueError, match="partition"):
                c.assign([("orders", 2**31)])
            for time_ms in (2**63, -1):
                with pytest.raises(ConfigError, match="1970"):
                    await c.offsets_for_times({T0: time_ms})
            with pytest.raises(TypeError):
                await c.offsets_for_times({T0: 1.5})  # type: ignore[dict-item]
            assert values(await read(c, 1)) == [b"a"]

    simulate(body)


def test_the_start_position_follows_the_reset_policy() -> None:
    """The policies are earliest, latest, a duration, and none, which raises."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        now = world.clock.timestamp_ms()
        for n in range(10):
            kafka.append("orders", 0, b"%d" % n, timestamp_ms=now - 10_000 + n * 1_000)

        async def start(policy: str) -> int:
            async with consumer(world, kafka, auto_offset_reset=policy) as c:
                c.assign([T0])
                return await c.position(T0)

        assert await start("earliest") == 0
        assert await start("latest") == 10
        assert await start("by_duration:PT5.5S") == 5
        assert await start("by_duration:PT0.0S") == 10
        async with consumer(world, kafka, auto_offset_reset="none") as c:
            c.assign([T0])
            with pytest.raises(NoOffsetForPartition):
                await c.position(T0)
            with pytest.raises(NoOffsetForPartition):
                await read(c, 1)
            c.seek(T0, 9)
            assert values(await read(c, 1)) == [b"9"]

    simulate(body)


def test_closing_ends_the_loops_and_fails_the_calls() -> None:
    """No reader may wait for ever, and a second close() does nothing."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        c = consumer(world, kafka, "orders")
        await c.start()
        await c.start()
        loop = asyncio.create_task(read(c, 1))
        await asyncio.sleep(1)
        await asyncio.gather(c.close(), c.close())
        assert await loop == [], "the loop ended as if there were no more"
        for call in (lambda: c.getone(), lambda: c.getmany(), lambda: c.position(T0)):
            with pytest.raises(Closed):
                await call()
        with pytest.raises(Closed):
            async for _ in c:
                pass
        with pytest.raises(Closed):
            await c.start()
        await asyncio.sleep(1)
        assert kafka[1].connections == 0
        assert not kafka.sessions, "the session was closed as well"

    simulate(body)


def test_a_waiting_getone_raises_closed() -> None:
    """A call for one record cannot return None."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        c = consumer(world, kafka, "orders")
        await c.start()
        waiting = asyncio.create_task(c.getone())
        positions = asyncio.create_task(c.getmany(timeout=100))
        await asyncio.sleep(1)
        await c.close()
        with pytest.raises(Closed):
            await waiting
        with pytest.raises((Closed, RuntimeError)):
            await positions

    simulate(body)


def test_closing_is_bounded_in_time_when_the_broker_does_not_respond() -> None:
    """Hanging shutdowns are a common complaint about other clients."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, b"x")
        c = consumer(world, kafka, "orders")
        await c.start()
        await read(c, 1)
        kafka.delays[1] = 10_000.0
        await asyncio.sleep(1)
        start = world.loop.time()
        await c.close()
        assert world.loop.time() - start < 5

    simulate(body, limit=20_000)


def test_reading_without_a_subscription_is_refused() -> None:
    """An iteration without a subscription would wait for ever without a message."""

    async def body(world: Any, kafka: Any) -> None:
        c = consumer(world, kafka)
        with pytest.raises(Closed):
            aiter(c)
        async with c:
            with pytest.raises(ConfigError, match="subscribe"):
                aiter(c)
            with pytest.raises(ConfigError, match="not assigned"):
                c.seek(T0, 1)
            c.assign([])
            assert await c.getmany() == {}

    simulate(body)


def test_common_mistakes_are_refused_with_the_fix() -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers='localhost:9092'"):
        Consumer("localhost:9092")
    for setting in (
        {"enable_auto_commit": True},
        {"group_instance_id": "a"},
        {"session_timeout_ms": 10_000},
    ):
        with pytest.raises(ConfigError, match="set group_id"):
            Consumer("orders", **setting)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="auto_offset_reset"):
        Consumer("orders", auto_offset_reset="smallest")
    with pytest.raises(TypeError, match=re.escape("Consumer('a', 'b')")):
        Consumer(["orders", "bills"])  # type: ignore[arg-type]

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with consumer(world, kafka) as c:
            c.assign([T0])
            with pytest.raises(TypeError, match="seek_to_beginning"):
                c.seek(T0, "earliest")  # type: ignore[arg-type]
            with pytest.raises(ConfigError):
                c.seek(T0, -1)
            with pytest.raises(TypeError, match="a list"):
                c.assign(T0)  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match="unsubscribe"):
                c.subscribe("orders")

    simulate(body)


def test_a_topic_filter_includes_and_excludes_topics() -> None:
    """It replaces createMessageStreamsByFilter, with a whitelist and a blacklist."""

    async def body(world: Any, kafka: Any) -> None:
        for name in ("orders.eu", "orders.us", "orders.test", "other"):
            kafka.topic(name, [1])
            kafka.append(name, 0, name.encode())
        async with consumer(world, kafka, TopicFilter(r"orders\..*", r".*\.test")) as c:
            assert set(values(await read(c, 2))) == {b"orders.eu", b"orders.us"}
            assert c.subscription() == {"orders.eu", "orders.us"}
            c.subscribe(pattern="other")
            assert values(await read(c, 1)) == [b"other"]
            assert c.assignment() == {("other", 0)}
            c.unsubscribe()
            assert c.assignment() == frozenset()

    simulate(body)


def test_deserializers_create_the_values_and_nulls_stay_none() -> None:
    """The error of a poisoned record names its offset, and later records can still be read."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, b"1", None, b"poison", b"4")
        async with consumer(world, kafka, "orders", value_deserializer=int) as c:
            assert values(await read(c, 2)) == [1, None]
            with pytest.raises(ValueError) as raised:
                await read(c, 1)
            assert "offset 2 of orders-0" in raised.value.__notes__[0]
            record = await c.getone()
            assert (record.value, record.offset, record.topic) == (4, 3, "orders")

    simulate(body)


def test_a_poisoned_record_loses_no_other_record_of_the_same_call() -> None:
    """`getmany` returns the records before the error, and the next calls those after it."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        kafka.append("orders", 0, b"1", b"2", b"poison", b"4")
        kafka.append("orders", 1, b"5", b"poison")
        seen: list[Any] = []
        poisoned: list[str] = []
        async with consumer(world, kafka, "orders", value_deserializer=int) as c:
            await asyncio.sleep(5)
            while len(seen) + len(poisoned) < 6:
                try:
                    got = await c.getmany(timeout=10)
                except ValueError as error:
                    poisoned += error.__notes__
                else:
                    assert got, "nothing is left"
                    seen += [value for records in got.values() for value in values(records)]
            assert sorted(seen) == [1, 2, 4, 5]
            assert ["offset 2 of orders-0" in note for note in sorted(poisoned)].count(True) == 1
            assert len(poisoned) == 2
            assert await c.getmany() == {}
            c.seek(T0, 2)
            with pytest.raises(ValueError):
                await asyncio.wait_for(c.getone(T0), 10)
            assert (await c.getone(T0)).value == 4

    simulate(body)


def test_anext_works_on_the_consumer_itself() -> None:
    """aiokafka's consumers are iterators, and programs rely on that."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, b"a", b"b")
        async with consumer(world, kafka, "orders") as c:
            assert (await anext(c)).value == b"a"
            assert (await asyncio.wait_for(anext(c), 5)).value == b"b"
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(c), 5)
        with pytest.raises(Closed):
            anext(c)

    simulate(body)


def test_a_busy_reader_lets_other_tasks_run() -> None:
    """`async for` over buffered records never suspends, so the stream itself has to yield."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1] * 10)
        for partition in range(10):
            kafka.append("orders", partition, *(bytes(10_000) for _ in range(10)))
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1
            if turns < 50:
                asyncio.get_running_loop().call_soon(turn)

        async with consumer(world, kafka, "orders") as c:
            await asyncio.sleep(5)
            assert c.health().buffered_bytes > 1_000_000, "all of it is there"
            turn()
            await read(c, 100)
        assert turns > 3

    simulate(body)
