"""Cluster.produce: one Produce request without retries, against a scripted cluster."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aiokq import Cluster, ProduceResult, TopicPartition, wire
from aiokq.core.errors import (
    Closed,
    ConfigError,
    ConnectionLost,
    InvalidRecord,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    RequestTimeout,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
)
from aiokq.fastpath.produce import RecordColumns
from tests.sim.harness.simulation import Simulation
from tests.sim.producer_world import CLIENT, Close, Kafka, Silence, simulate, times


def with_cluster(
    body: Callable[[Cluster, Kafka], Coroutine[Any, Any, Any]], *, nodes: int = 1, **options: Any
) -> None:
    """Run `body` with a Cluster whose metadata has the topic "t", led by node 1."""

    async def main(world: Simulation, kafka: Kafka) -> None:
        kafka.topic("t", [1, 1, min(2, nodes)])
        environment = world.environment(CLIENT)
        async with Cluster(kafka.bootstrap_servers, _environment=environment, **options) as cluster:
            await cluster.refresh("t")
            await body(cluster, kafka)

    simulate(main, nodes=nodes)


def batch_of(cluster: Cluster, *values: bytes, **options: Any) -> Any:
    batch = cluster.create_batch(**options)
    for value in values:
        assert batch.append(value, timestamp_ms=5)
    return batch


def columns_of(*values: bytes, partitions: list[int] | None = None) -> RecordColumns:
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value))
    return RecordColumns(
        len(values),
        value=(None, struct.pack(f"={len(offsets)}i", *offsets), b"".join(values)),
        partition=None
        if partitions is None
        else (None, struct.pack(f"={len(partitions)}i", *partitions)),
    )


def test_each_partition_has_its_result() -> None:
    """One request for several partitions, of which one is refused; nothing is sent again."""

    async def body(cluster: Cluster, kafka: Kafka) -> None:
        kafka.faults.append(times(1, 29, when=lambda a: a.partition == 1))
        batches = {
            ("t", 0): batch_of(cluster, b"a", b"b"),
            TopicPartition("t", 1): batch_of(cluster, b"c"),
        }
        results = await cluster.produce(batches, node=1)

        assert results["t", 0] == ProduceResult(None, 0, -1, -1, {})
        refused = results["t", 1].error
        assert refused is not None
        assert (refused.name, refused.node) == ("TOPIC_AUTHORIZATION_FAILED", 1)  # type: ignore[attr-defined]
        assert refused.topic_partition == ("t", 1)
        assert kafka.values("t") == [b"a", b"b"]
        assert len(kafka.attempts) == 2
        assert {attempt.header.producer_id for attempt in kafka.attempts} == {-1}

        again = await cluster.produce(batches, node=("t", 0))
        assert again["t", 0].base_offset == 2
        assert kafka.values("t") == [b"a", b"b", b"a", b"b", b"c"]

    with_cluster(body)


def test_rows_of_columns_go_to_their_partitions() -> None:
    """Whole columns are split by partition, in order, until the batch is full."""

    async def body(cluster: Cluster, kafka: Kafka) -> None:
        values = [b"%03d" % n for n in range(300)]
        columns = columns_of(*values, partitions=[n % 2 for n in range(300)])
        rows = columns.rows_by_partition()
        batches = {}
        for partition, numbers in rows.items():
            assert partition is not None
            batch = batches["t", partition] = cluster.create_batch(compression_type="snappy")
            assert batch.append(b"first")
            assert batch.append_columns(columns, numbers) == 150
        assert await cluster.produce(batches, node=1)
        assert kafka.log("t", 0).values == [b"first", *values[::2]]
        assert kafka.log("t", 1).values == [b"first", *values[1::2]]

        small = cluster.create_batch(max_bytes=61 + 10 * (36 + 3))
        assert small.append_columns(columns) == 10
        assert (len(small), small.size()) == (10, 61 + 390)
        assert [record[1] for record in small.records] == values[:10]
        assert small.append_columns(columns) == 0
        assert not small.append(b"more")

    with_cluster(body)


def test_record_errors_name_the_records() -> None:
    """With KIP-467 the broker names the records because of which it refuses the batch."""

    async def body(cluster: Cluster, kafka: Kafka) -> None:
        said = wire.PartitionProduceResponse(
            error_code=87,
            base_offset=-1,
            error_message="bad records",
            log_start_offset=7,
            record_errors=[
                wire.BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key"),
                wire.BatchIndexAndErrorMessage(batch_index=2),
            ],
        )
        kafka.faults.append(times(1, said))
        results = await cluster.produce({("t", 0): batch_of(cluster, b"a", b"b", b"c")}, node=1)
        result = results["t", 0]
        assert isinstance(result.error, InvalidRecord)
        assert result.error.message == "bad records"
        assert result.record_errors == {1: "no key", 2: None}
        assert result.log_start_offset == 7

    with_cluster(body)


def test_requests_to_a_broker_keep_the_order_of_the_calls() -> None:
    """Several requests are in flight; a long compression does not let later calls overtake."""

    async def body(cluster: Cluster, kafka: Kafka) -> None:
        kafka.delays[1] = 0.01
        noise = random.Random(1).randbytes(400_000)
        calls = []
        for n in range(6):
            batch = batch_of(
                cluster,
                b"%d" % n + (noise if n == 0 else b""),
                compression_type="zstd" if n % 2 == 0 else "none",
            )
            calls.append(asyncio.ensure_future(cluster.produce({("t", 0): batch}, node=1)))
        results = await asyncio.gather(*calls)
        assert [result["t", 0].base_offset for result in results] == list(range(6))
        assert [value[:1] for value in kafka.log("t").values if value] == [
            b"%d" % n for n in range(6)
        ]

    with_cluster(body)


def test_a_batch_that_compresses_badly_is_sent_uncompressed() -> None:
    """compression_max_ratio compares the compressed records with the records."""

    async def body(cluster: Cluster, kafka: Kafka) -> None:
        noise = random.Random(1).randbytes(1000)
        for value, ratio, codec in (
            (noise, 0.75, 0),
            (noise, None, 1),
            (b"a" * 1000, 0.75, 1),
        ):
            batch = batch_of(cluster, value, compression_type="gzip", compression_max_ratio=ratio)
            await cluster.produce({("t", 0): batch}, node=1)
            assert kafka.log("t").batches[-1].codec == codec

    with_cluster(body)


def test_acks_0_has_no_results() -> None:
    """The call returns when the request is written."""

    async def body(cluster: Cluster, kafka: Kafka) -> None:
        assert await cluster.produce({("t", 0): batch_of(cluster, b"a")}, node=1, acks=0) == {}
        await cluster.produce({("t", 0): batch_of(cluster, b"b")}, node=1, acks=1)
        assert kafka.values("t") == [b"a", b"b"]

    with_cluster(body)


def test_a_lost_connection_is_raised() -> None:
    """The error tells that the batch may be in the log; nothing is sent again."""

    async def body(cluster: Cluster, kafka: Kafka) -> None:
        kafka.after_append.append(times(1, Close()))
        with pytest.raises(ConnectionLost) as caught:
            await cluster.produce({("t", 0): batch_of(cluster, b"a")}, node=1)
        assert caught.value.may_have_been_written
        await asyncio.sleep(5)
        assert kafka.values("t") == [b"a"]
        results = await cluster.produce({("t", 0): batch_of(cluster, b"b")}, node=1)
        assert results["t", 0].base_offset == 1

    with_cluster(body)


def test_no_response_is_a_timeout() -> None:
    """The broker gets timeout_ms, and the call ends after timeout seconds."""

    async def body(cluster: Cluster, kafka: Kafka) -> None:
        kafka.faults.append(times(1, Silence()))
        loop = asyncio.get_running_loop()
        start = loop.time()
        with pytest.raises(RequestTimeout, match=r"no response within 2\.5 s") as caught:
            await cluster.produce(
                {("t", 0): batch_of(cluster, b"a")}, node=1, timeout=2.5, timeout_ms=100
            )
        assert loop.time() - start == pytest.approx(2.5)
        assert caught.value.may_have_been_written

    with_cluster(body)


def test_a_moved_leader_is_told_and_learned() -> None:
    """With KIP-951 the refusal names the new leader, and `metadata` has it at once."""

    async def body(cluster: Cluster, kafka: Kafka) -> None:
        kafka.hints = True
        kafka.topics["t"].move(0, 2)
        batch = batch_of(cluster, b"a")
        results = await cluster.produce({("t", 0): batch}, node=1)
        assert isinstance(results["t", 0].error, NotLeaderOrFollower)
        results = await cluster.produce({("t", 0): batch}, node=("t", 0))
        assert results["t", 0].error is None
        assert [attempt.node_id for attempt in kafka.attempts] == [1, 2]

    with_cluster(body, nodes=2)


def test_a_topic_that_is_not_in_the_metadata_is_sent_by_name() -> None:
    """Produce 13 needs the id of the topic, so an earlier version is used."""

    async def body(cluster: Cluster, kafka: Kafka) -> None:
        kafka.topic("u", [1])
        results = await cluster.produce({("u", 0): batch_of(cluster, b"a")}, node=1)
        assert results["u", 0].error is None
        await cluster.produce({("t", 0): batch_of(cluster, b"a")}, node=1)
        assert [attempt.version for attempt in kafka.attempts] == [12, 13]

    with_cluster(body)


def test_wrong_calls_are_refused() -> None:
    """Nothing is sent."""

    async def body(cluster: Cluster, kafka: Kafka) -> None:
        batch = batch_of(cluster, b"a")
        one = {("t", 0): batch}
        produce: Any = cluster.produce
        with pytest.raises(ConfigError, match="there is no batch"):
            await produce({}, node=1)
        with pytest.raises(ConfigError, match="the batch of t-0 is empty"):
            await produce({("t", 0): cluster.create_batch()}, node=1)
        with pytest.raises(TypeError, match="not a BatchBuilder"):
            await produce({("t", 0): b"a"}, node=1)
        with pytest.raises(TypeError, match="is not a partition"):
            await produce({"t": batch}, node=1)
        with pytest.raises(ConfigError, match="acks must be 0, 1, -1 or 'all', not 2"):
            await produce(one, node=1, acks=2)
        with pytest.raises(TypeError):
            await produce(one, node="any")
        with pytest.raises(ConnectionLost, match="the cluster lists no broker 9"):
            await produce(one, node=9)
        with pytest.raises(UnknownTopicOrPartition, match=r"refresh\('u'\)"):
            await produce(one, node=("u", 0))
        kafka.topics["t"].leaders[0] = -1
        await cluster.refresh("t")
        with pytest.raises(LeaderNotAvailable):
            await produce(one, node=("t", 0))
        with pytest.raises(ConfigError, match="unknown compression type 'brotli'"):
            cluster.create_batch(compression_type="brotli")
        with pytest.raises(ConfigError, match="snappy has no compression level"):
            cluster.create_batch(compression_type="snappy", compression_level=1)
        with pytest.raises(ConfigError, match="compression_max_ratio=-1"):
            cluster.create_batch(compression_max_ratio=-1)
        assert not kafka.attempts
        await cluster.close()
        with pytest.raises(Closed):
            await produce(one, node=1)

    with_cluster(body)


def test_a_broker_too_old_for_zstd_is_not_asked() -> None:
    """zstd needs Produce 7."""

    async def body(cluster: Cluster, kafka: Kafka) -> None:
        kafka[1].versions[wire.ProduceRequest.API_KEY] = (3, 6)
        with pytest.raises(UnsupportedCompressionType, match="zstd needs Produce version 7"):
            await cluster.produce(
                {("t", 0): batch_of(cluster, b"a", compression_type="zstd")}, node=1
            )
        assert not kafka.attempts

    with_cluster(body)
