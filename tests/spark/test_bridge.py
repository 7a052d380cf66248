"""The bridge on a classic session: calls, cancellation, handlers and frames."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import aiokq
from aiokq.spark import bridge
from aiokq.spark.blocking_calls import THREADS
from tests.peers.broker_process import BrokerProcess
from tests.spark.streams import PATIENCE
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


def slow_rows(spark: SparkSession, seconds: float) -> DataFrame:
    from pyspark.sql.functions import udf

    def wait(number: int) -> int:
        time.sleep(seconds)
        return number

    return spark.range(2, numPartitions=1).select(udf(wait, "long")("id").alias("id"))


def active_jobs(spark: SparkSession) -> list[int]:
    return list(spark.sparkContext.statusTracker().getActiveJobsIds())


async def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  Spark sets no event
            await asyncio.sleep(0.05)


def bridge_threads() -> int:
    return sum(thread.name.startswith("aiokq-spark") for thread in threading.enumerate())


async def test_the_loop_runs_on_while_spark_works(spark: SparkSession):
    """A web server must not stand still while a query runs."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    rows = await bridge.collect(slow_rows(spark, 0.5))
    ticking.cancel()
    assert [row.id for row in rows] == [0, 1]
    assert ticks > 30


def test_it_works_under_one_loop_after_another(spark: SparkSession):
    """Nothing that is kept may belong to a closed loop."""
    for _ in range(3):
        assert [row.id for row in asyncio.run(bridge.collect(spark.range(2)))] == [0, 1]
        assert asyncio.run(bridge.to_arrow(spark.range(2))).to_pydict() == {"id": [0, 1]}


@pytest.mark.parametrize(
    "way", [bridge.collect, pytest.param(bridge.to_arrow, marks=pytest.mark.full)]
)
async def test_cancelling_the_wait_cancels_the_job(
    spark: SparkSession, way: Callable[[DataFrame], Any]
):
    """A disconnected client must not keep the cluster busy for an hour."""
    waiting = asyncio.create_task(way(slow_rows(spark, 300)))
    await until(lambda: bool(active_jobs(spark)))
    began = time.monotonic()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert time.monotonic() - began < 100
    await until(lambda: not active_jobs(spark))
    # The next call of the same thread is not affected.
    assert len(await way(spark.range(3))) == 3


async def test_a_timeout_cancels_the_job_and_nobody_elses(spark: SparkSession):
    """Other jobs of the session must continue."""
    other = asyncio.create_task(bridge.collect(slow_rows(spark, 2)))
    await until(lambda: bool(active_jobs(spark)))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await bridge.collect(slow_rows(spark, 300))
    assert [row.id for row in await other] == [0, 1]


async def test_calls_that_wait_for_a_thread_are_cancelled_before_they_run(spark: SparkSession):
    """A cancelled call must not run later, and the number of threads is bounded."""
    gate = threading.Event()
    busy = [asyncio.create_task(bridge.call(spark, gate.wait)) for _ in range(THREADS)]
    called: list[int] = []
    late = asyncio.create_task(bridge.call(spark, called.append, 1))
    await asyncio.sleep(0.1)
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    gate.set()
    await asyncio.gather(*busy)
    await bridge.collect(spark.range(1))
    assert not called
    assert bridge_threads() <= THREADS + 1


async def test_what_spark_raises_is_raised(spark: SparkSession):
    """An error must neither become a hang nor reach another caller."""
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        await bridge.collect(spark.sql("select 1 / id from range(1)"))


async def test_a_call_leaves_nothing_to_the_next_one_of_its_thread(spark: SparkSession):
    """Regression: threads are reused, and jobs ran in the scheduler pool of the previous call."""
    context = spark.sparkContext
    names = ("spark.scheduler.pool", "spark.job.tags", "spark.job.description")

    def work() -> list[str | None]:
        before = [context.getLocalProperty(name) for name in names]
        context.setLocalProperty("spark.scheduler.pool", "slow")
        context.addJobTag("mine")
        context.setJobDescription("a long one")
        return before

    for _ in range(3):
        pool, tags, description = await bridge.call(spark, work)
        assert (pool, description) == (None, None)
        assert tags is not None
        assert "mine" not in tags


async def test_chunks_are_the_rows_in_order(spark: SparkSession):
    """No rows are lost between chunks."""
    frame = spark.range(0, 25, numPartitions=3)
    chunks = [[row.id for row in chunk] async for chunk in bridge.chunks(frame, 10)]
    assert [len(chunk) for chunk in chunks] == [10, 10, 5]
    assert [row for chunk in chunks for row in chunk] == list(range(25))
    with pytest.raises(aiokq.ConfigError):
        await anext(bridge.chunks(frame, 0))


async def test_chunks_may_be_left_early_and_cancelled(spark: SparkSession):
    """The job of an abandoned iterator must end."""
    frame = spark.range(0, 10_000, numPartitions=2)
    chunks = bridge.chunks(frame, 10)
    assert len(await anext(chunks)) == 10
    await chunks.aclose()  # type: ignore[attr-defined]
    await until(lambda: not active_jobs(spark))

    slow = bridge.chunks(slow_rows(spark, 300), 1)
    waiting = asyncio.create_task(anext(slow))  # type: ignore[arg-type]
    await until(lambda: bool(active_jobs(spark)))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await until(lambda: not active_jobs(spark))


# -- streams


def rates(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "3").load()


def start(frame: DataFrame, handler: Callable[[DataFrame, int], None]) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(handler)
    return writer.trigger(processingTime="100 milliseconds").start()


async def test_batches_are_handled_on_the_running_loop(spark: SparkSession):
    """The handler can use the application's clients, which are bound to the running loop."""
    here = asyncio.get_running_loop()
    seen: list[tuple[int, int, bool]] = []
    enough = asyncio.Event()

    async def handle(frame: DataFrame, batch: int) -> None:
        rows = await bridge.collect(frame)
        seen.append((batch, len(rows), asyncio.get_running_loop() is here))
        if len(seen) == 3:
            enough.set()

    query = await bridge.call(spark, start, rates(spark), bridge.foreach_batch(handle, loop=here))
    try:
        async with asyncio.timeout(PATIENCE):
            await enough.wait()
        assert not await bridge.await_termination(query, 0.2)
    finally:
        await bridge.call(spark, query.stop)
    assert await bridge.await_termination(query, PATIENCE)
    assert seen[:3] == [(0, 3, True), (1, 3, True), (2, 3, True)]


def test_batches_are_handled_on_one_loop_that_lives_on(spark: SparkSession):
    """Loop and clients are not created for each batch."""
    loops: list[asyncio.AbstractEventLoop] = []
    enough = threading.Event()

    async def handle(frame: DataFrame, batch: int) -> None:
        loops.append(asyncio.get_running_loop())
        if len(loops) == 3:
            enough.set()

    query = start(rates(spark), bridge.foreach_batch(handle))
    try:
        assert enough.wait(PATIENCE)
    finally:
        query.stop()
    assert len(set(loops)) == 1
    assert loops[0].is_running()


async def test_a_handler_that_fails_ends_the_query(spark: SparkSession):
    """A batch that was not handled must not count as done."""

    async def handle(frame: DataFrame, batch: int) -> None:
        raise ValueError(f"not batch {batch}")

    query = await bridge.call(spark, start, rates(spark), bridge.foreach_batch(handle))
    with pytest.raises(PySparkException, match="not batch 0"):
        await bridge.await_termination(query, PATIENCE)


def test_a_loop_that_ended_before_the_query_fails_it(spark: SparkSession):
    """The stream must not hang in a stopped loop."""

    async def handle(frame: DataFrame, batch: int) -> None:
        pass

    async def begin() -> StreamingQuery:
        handler = bridge.foreach_batch(handle, loop=asyncio.get_running_loop())
        writer = rates(spark).writeStream.foreachBatch(handler)
        return await bridge.call(spark, writer.trigger(processingTime="2 seconds").start)

    query = asyncio.run(begin())
    with pytest.raises(PySparkException, match="ended before the query"):
        asyncio.run(bridge.await_termination(query, PATIENCE))


def test_a_handler_gets_a_client_that_lives_on(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str
):
    """Batches share one connection, and the client belongs to the handler's loop."""
    topics.create(topic)
    clusters: list[int] = []
    enough = threading.Event()

    async def handle(frame: DataFrame, batch: int, cluster: aiokq.Cluster) -> None:
        clusters.append(id(cluster))
        async with cluster.producer() as producer:
            await producer.send(topic, b"batch %d" % batch)
        if len(clusters) == 3:
            enough.set()

    settings = {"bootstrap.servers": broker.bootstrap_servers}
    query = start(rates(spark), bridge.foreach_batch_with_client(handle, settings))
    try:
        assert enough.wait(PATIENCE)
    finally:
        query.stop()
    assert len(set(clusters)) == 1

    async def values(cluster: aiokq.Cluster) -> list[bytes | None]:
        async with cluster.consumer(topic, auto_offset_reset="earliest") as consumer:
            return [(await consumer.getone()).value for _ in range(3)]

    assert topics.run(values) == [b"batch 0", b"batch 1", b"batch 2"]


# -- records


async def test_records_become_frames(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str
):
    """The rows are those that format("aiokq") reads from the same topic."""
    await asyncio.to_thread(topics.create, topic, 2)
    await asyncio.to_thread(topics.fill, topic, 50, 2)
    parts: list[bridge.RecordsFrame] = []
    got: list[tuple[Any, ...]] = []
    async with aiokq.Consumer(
        topic, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        async for part in bridge.frames(spark, consumer.batches(), max_wait=0.3):
            parts.append(part)
            got += [tuple(row) for row in await bridge.collect(part.frame)]
            if len(got) == 100:
                break
    assert sum(part.rows for part in parts) == 100
    assert (
        parts[-1].offsets.items()
        <= {
            aiokq.TopicPartition(topic, 0): 50,
            aiokq.TopicPartition(topic, 1): 50,
        }.items()
    )
    read = (
        spark.read.format("aiokq")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", topic)
        .load()
    )
    assert parts[0].frame.dtypes == read.dtypes
    assert sorted(got) == sorted(tuple(row) for row in await bridge.collect(read))


async def test_a_frame_of_batches_has_the_columns_asked_for(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str
):
    """Only the requested columns are decoded."""
    await asyncio.to_thread(topics.create, topic)
    await asyncio.to_thread(topics.send, topic, [b"a", b"b"])
    async with aiokq.Consumer(
        topic, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        batches = [await anext(consumer.batches())]
        while sum(map(len, batches)) < 2:
            batches.append(await anext(consumer.batches()))
    frame = await bridge.frame_of(spark, batches, columns=["value", "offset"])
    assert [tuple(row) for row in await bridge.collect(frame)] == [(b"a", 0), (b"b", 1)]
    with pytest.raises(aiokq.ConfigError):
        await bridge.frame_of(spark, [])


@pytest.mark.full
def test_no_thread_is_left(spark: SparkSession, tmp_path: Path):
    """Repeated calls of asyncio.run must not accumulate threads."""
    asyncio.run(bridge.collect(spark.range(1)))
    before = threading.active_count()
    for number in range(5):
        write = spark.range(3).write.parquet
        asyncio.run(bridge.call(spark, write, os.fspath(tmp_path / str(number))))
        with pytest.raises(TimeoutError):
            asyncio.run(asyncio.wait_for(bridge.collect(slow_rows(spark, 300)), 0.3))
    assert bridge_threads() <= THREADS + 1
    assert threading.active_count() <= before + 2 * THREADS


async def test_handlers_say_which_batch_was_cancelled(spark: SparkSession):
    """A cancelled handler must not look like a finished batch."""

    async def handle(frame: DataFrame, batch: int) -> None:
        raise asyncio.CancelledError

    handler = bridge.foreach_batch(handle, loop=asyncio.get_running_loop())
    with pytest.raises(RuntimeError, match="batch 7 was cancelled"):
        await asyncio.to_thread(partial(handler, spark.range(1), 7))
