"""Records for topics that are not known yet: what they wait for, and their results."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from aiokq.core.errors import DeliveryFailed, KafkaError, UnknownTopicOrPartition, WrongLoop
from aiokq.core.types import TopicPartition
from aiokq.producer.interceptors import BatchInfo, Interceptor, ProducerRecord
from tests.sim.producer_world import producer, simulate


def test_flush_raises_for_a_missing_partition_of_a_topic_learned_later() -> None:
    """The record was accepted before the topic was known, and its failure was not reported."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka) as p:
            for _ in range(3):
                p.send_nowait("orders", b"v", partition=7)
            p.send_nowait("orders", b"good", partition=0)
            with pytest.raises(DeliveryFailed) as caught:
                await p.flush()
            assert caught.value.count == 3
            assert caught.value.topic_partitions == (TopicPartition("orders", 7),)
            assert isinstance(caught.value.errors[0], UnknownTopicOrPartition)
            await p.flush()
            report = await p.close()
        assert (report.delivered, report.failed, report.unsent) == (1, 3, 0)

    simulate(body)


def test_an_awaited_failure_is_not_raised_again() -> None:
    """The caller that awaits the record has received its error."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, batch_size=128) as p:
            deliveries = [p.send_nowait("orders", b"v" * 50, partition=7) for _ in range(5)]
            for delivery in deliveries:
                with pytest.raises(UnknownTopicOrPartition):
                    await delivery
            await p.flush()
            report = await p.close()
        assert report.failed == 5

    simulate(body)


def test_interceptors_are_called_for_records_that_never_reached_a_queue() -> None:
    """on_error was not called for records of a missing topic."""

    class Ear(Interceptor):
        def __init__(self) -> None:
            self.heard: list[tuple[str, int, int]] = []

        def on_error(self, batch: BatchInfo, error: KafkaError) -> None:
            self.heard.append((batch.topic, batch.count, batch.attempt))

    async def body(world: Any, kafka: Any) -> None:
        ear = Ear()
        options = {"max_block_ms": 500, "allow_auto_create_topics": False}
        async with producer(world, kafka, interceptors=(ear,), **options) as p:
            with pytest.raises(UnknownTopicOrPartition):
                await p.send("missing", b"v")
        assert ear.heard == [("missing", 1, 0)]

    simulate(body)


def test_a_refused_first_record_does_not_prevent_the_topic_lookup() -> None:
    """A refused record of another thread was left behind, so the topic was never looked up."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka) as p:
            errors: list[BaseException] = []

            def other() -> None:
                try:
                    asyncio.run(p.enqueue("orders", b"theirs"))
                except WrongLoop as error:
                    errors.append(error)

            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            assert len(errors) == 1
            async with asyncio.timeout(5):
                await p.send("orders", b"mine")
        assert kafka.values("orders") == [b"mine"]

    simulate(body)


def test_interceptors_run_once_for_a_record_that_waits_for_metadata() -> None:
    """A custom partitioner needs metadata; interceptors ran before the wait and again after it."""

    class Counting(Interceptor):
        calls = 0

        def on_enqueue(self, record: ProducerRecord) -> ProducerRecord:
            self.calls += 1
            return record

    class Last:
        def partition(
            self, topic: str, key: Any, value: Any, partitions: Any, available: Any
        ) -> int:
            return int(partitions[-1])

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        counting = Counting()
        async with producer(world, kafka, interceptors=(counting,), partitioner=Last()) as p:
            meta = await p.send("orders", b"v")
            assert meta.partition == 1
            with pytest.raises(UnknownTopicOrPartition, match="use enqueue"):
                p.send_nowait("other", b"v")
        assert counting.calls == 2

    simulate(body)


@pytest.mark.parametrize("hooks", [True, False])
def test_a_new_partition_is_found_by_all_calls_that_can_wait(hooks: bool) -> None:
    """The metadata is older than the partition; interceptors run once per record."""

    class Counting(Interceptor):
        calls = 0

        def on_enqueue(self, record: ProducerRecord) -> ProducerRecord:
            self.calls += 1
            return record

    async def body(world: Any, kafka: Any) -> None:
        topic = kafka.topic("orders", [1])
        counting = Counting()
        options = {"interceptors": (counting,)} if hooks else {}
        async with producer(world, kafka, **options) as p:
            await p.send("orders", b"0")
            topic.leaders.append(1)
            with pytest.raises(UnknownTopicOrPartition):
                p.send_nowait("orders", b"refused", partition=1)
            assert (await p.send("orders", b"1", partition=1)).partition == 1
            topic.leaders.append(1)
            metas = await (await p.send_many("orders", [(None, b"2"), (None, b"3")], partition=2))
            assert [meta.partition for meta in metas] == [2, 2]
            for way in (p.send("orders", b"v", partition=9), p.enqueue("orders", b"v", None, 9)):
                with pytest.raises(UnknownTopicOrPartition, match="no partition 9: it has 3"):
                    await way
            with pytest.raises(UnknownTopicOrPartition, match="no partition 9"):
                await p.send_many("orders", [(None, b"v")], partition=9)
        assert kafka.values("orders") == [b"0", b"1", b"2", b"3"]
        assert counting.calls == (8 if hooks else 0)

    simulate(body)


def test_idle_topics_are_not_refreshed_for_ever() -> None:
    """With a topic per customer and day, each Metadata request named all topics ever used."""

    async def body(world: Any, kafka: Any) -> None:
        options = {"metadata_max_idle_ms": 10_000, "metadata_max_age_ms": 5_000}
        for n in range(5):
            kafka.topic(f"day-{n}", [1])
        async with producer(world, kafka, **options) as p:
            for n in range(5):
                await p.send(f"day-{n}", b"first")
            for _ in range(10):
                await asyncio.sleep(4)
                await p.send("day-4", b"more")
            assert set(p._engine.metadata.topics) == {"day-4"}
            # The sequence numbers continue, because the broker would refuse a producer that
            # restarts at 0.
            assert (await p.send("day-0", b"second")).offset == 1
        assert kafka.values("day-0") == [b"first", b"second"]

    simulate(body)


def test_looking_up_a_topic_does_not_end_the_backoff_of_its_partitions() -> None:
    """send_batch and partitions_for treated every partition as moved, so that failed batches
    were retried at once, a hundred times per second.
    """

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.faults.append(lambda attempt: 19 if attempt.at < 5 else None)
        async with producer(world, kafka) as p:
            delivery = await p.enqueue("orders", b"v")
            while not delivery.done():
                await p.partitions_for("orders")
                await asyncio.sleep(0.01)
            assert (await delivery).offset == 0
        assert len(kafka.attempts) < 20  # retries after 0.1, 0.2, 0.4, 0.8 and 1 s

    simulate(body)
