"""Cluster.produce against a broker that answers anything: typed errors, and nothing hangs."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aiokq import BatchBuilder, Cluster, ProduceResult, wire
from aiokq.core.errors import (
    BrokerError,
    ConnectionLost,
    KafkaError,
    NotLeaderOrFollower,
    ProtocolError,
    RequestTimeout,
)
from tests.peers.scripted import Call, Delay, Raw
from tests.sim.harness.simulation import Simulation
from tests.sim.producer_world import CLIENT, Kafka, simulate

SECONDS = 3.0


def with_cluster(
    body: Callable[[Cluster, Kafka], Coroutine[Any, Any, Any]], *, limit: float = 3600.0
) -> None:
    async def main(world: Simulation, kafka: Kafka) -> None:
        kafka.topic("t", [1, 1, 1])
        kafka.topic("u", [1])
        environment = world.environment(CLIENT)
        async with Cluster(
            kafka.bootstrap_servers,
            _environment=environment,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=10,
        ) as cluster:
            await cluster.refresh("t", "u")
            await body(cluster, kafka)

    simulate(main, limit=limit)


def batch_of(cluster: Cluster, *values: bytes) -> BatchBuilder:
    batch = cluster.create_batch()
    for value in values:
        assert batch.append(value, timestamp_ms=5)
    return batch


async def sent(cluster: Cluster) -> dict[tuple[str, int], ProduceResult]:
    """Send one record to each of two partitions; a KafkaError may be raised, nothing else."""
    batches = {("t", 0): batch_of(cluster, b"a"), ("t", 1): batch_of(cluster, b"b")}
    return await cluster.produce(batches, node=1, timeout=SECONDS)


async def works(cluster: Cluster, kafka: Kafka) -> None:
    """Check that the next request is sent and answered, on a new connection if need be."""
    async with asyncio.timeout(60):
        while True:
            try:
                results = await sent(cluster)
            except (ConnectionLost, ProtocolError):  # what the old connection still had
                await asyncio.sleep(0.05)
                continue
            assert [result.error for result in results.values()] == [None, None]
            return


def frame(response: wire.ProduceResponse, call: Call) -> bytes:
    """Return a response as it is sent, its size included."""
    parts = wire.encode_response(
        response, version=call.version, correlation_id=call.header.correlation_id
    )
    return b"".join(bytes(part) for part in parts)


def sound(call: Call, request: Any) -> wire.ProduceResponse:
    """Return the answer of a broker that has appended all batches at offset 7."""
    return wire.ProduceResponse(
        responses=[
            wire.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    wire.PartitionProduceResponse(index=part.index, error_code=0, base_offset=7)
                    for part in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def sized(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def test_an_answer_that_is_truncated_at_each_byte_is_a_protocol_error() -> None:
    """The frame is whole, its contents end too early: the broker may have appended the batch."""

    async def body(cluster: Cluster, kafka: Kafka) -> None:
        length = 200
        at = 4  # the correlation id is there
        while at < length:

            def cut(request: Any, call: Call, at: int = at) -> Raw:
                nonlocal length
                whole = frame(sound(call, request), call)[4:]
                length = len(whole)
                return Raw(sized(whole[:at]))

            kafka[1].script(wire.ProduceRequest, cut)
            with pytest.raises(KafkaError) as raised:
                await sent(cluster)
            assert isinstance(raised.value, ProtocolError | ConnectionLost), at
            assert raised.value.may_have_been_written, at
            await works(cluster, kafka)
            at += 1

    with_cluster(body)


def test_an_answer_that_ends_inside_its_frame_ends_with_the_timeout() -> None:
    """The rest never comes."""

    async def body(cluster: Cluster, kafka: Kafka) -> None:
        for at in (1, 3, 4, 7, 8, 20):

            def cut(request: Any, call: Call, at: int = at) -> Raw:
                return Raw(frame(sound(call, request), call)[:at])

            kafka[1].script(wire.ProduceRequest, cut)
            began = asyncio.get_running_loop().time()
            with pytest.raises(KafkaError) as raised:
                await sent(cluster)
            assert isinstance(raised.value, RequestTimeout | ConnectionLost)
            assert raised.value.may_have_been_written
            assert asyncio.get_running_loop().time() - began <= SECONDS + 0.1
            await works(cluster, kafka)

    with_cluster(body)


@pytest.mark.parametrize("seed", range(5))
def test_answers_with_changed_bytes_are_results_or_typed_errors(seed: int) -> None:
    """Counts, lengths, tags and correlation ids that are wrong."""

    async def body(cluster: Cluster, kafka: Kafka) -> None:
        source = random.Random(seed)
        for _ in range(150):

            def changed(request: Any, call: Call) -> Raw:
                whole = bytearray(frame(sound(call, request), call)[4:])
                for _ in range(source.randrange(1, 4)):
                    whole[source.randrange(len(whole))] = source.choice(
                        (0, 1, 0x7F, 0x80, 0xFF, source.randrange(256))
                    )
                return Raw(sized(bytes(whole)))

            kafka[1].script(wire.ProduceRequest, changed)
            try:
                results = await sent(cluster)
            except RequestTimeout:
                return  # a throttle time of weeks, perhaps: the connection obeys it
            except KafkaError:
                await works(cluster, kafka)
                continue
            assert set(results) == {("t", 0), ("t", 1)}
            for result in results.values():
                assert result.error is None or isinstance(result.error, KafkaError)

    with_cluster(body)


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 3, 2**31 - 1])
def test_frames_of_impossible_sizes_end_the_connection(size: int) -> None:
    async def body(cluster: Cluster, kafka: Kafka) -> None:
        kafka[1].script(wire.ProduceRequest, Raw(struct.pack(">i", size) + bytes(64)))
        with pytest.raises(KafkaError) as raised:
            await sent(cluster)
        assert isinstance(raised.value, ConnectionLost | ProtocolError | RequestTimeout)
        assert raised.value.may_have_been_written
        await works(cluster, kafka)

    with_cluster(body)


def test_partitions_that_are_missing_or_were_not_asked_for() -> None:
    """A partition without an answer has an error of its own; the others have their results."""

    async def body(cluster: Cluster, kafka: Kafka) -> None:
        def others(request: Any, call: Call) -> wire.ProduceResponse:
            answer = sound(call, request)
            (topic,) = answer.responses
            parts = topic.partition_responses
            parts[0].index = 2_000_000_000  # instead of 0
            parts.append(wire.PartitionProduceResponse(index=-1, error_code=6, base_offset=-1))
            answer.responses.append(
                wire.TopicProduceResponse(
                    name="never-heard-of-it",
                    partition_responses=[wire.PartitionProduceResponse(index=0, error_code=0)],
                )
            )
            return answer

        def nothing(request: Any, call: Call) -> wire.ProduceResponse:
            return wire.ProduceResponse(responses=[])

        kafka[1].script(wire.ProduceRequest, others, nothing)
        results = await sent(cluster)
        missing = results["t", 0].error
        assert isinstance(missing, ProtocolError)
        assert missing.may_have_been_written
        assert missing.topic_partition == ("t", 0)
        assert results["t", 1] == ProduceResult(None, 7, -1, -1, {})
        for result in (await sent(cluster)).values():
            assert isinstance(result.error, ProtocolError)
        await works(cluster, kafka)

    with_cluster(body)


@pytest.mark.parametrize("code", [-1, -2, -32768, 32767, 999, 133])
def test_codes_that_nobody_knows_are_broker_errors(code: int) -> None:
    async def body(cluster: Cluster, kafka: Kafka) -> None:
        def unknown(request: Any, call: Call) -> wire.ProduceResponse:
            answer = sound(call, request)
            answer.responses[0].partition_responses[0].error_code = code
            answer.responses[0].partition_responses[0].error_message = "\0\ud7ff" * 1000
            return answer

        kafka[1].script(wire.ProduceRequest, unknown)
        results = await sent(cluster)
        error = results["t", 0].error
        assert isinstance(error, BrokerError)
        assert error.code == code
        assert results["t", 0].base_offset == -1
        assert results["t", 1].error is None
        await works(cluster, kafka)

    with_cluster(body)


def test_a_hundred_thousand_record_errors_of_a_batch_of_one_record() -> None:
    """Indexes outside of the batch, and texts of any length, are handed over as they are."""

    async def body(cluster: Cluster, kafka: Kafka) -> None:
        def many(request: Any, call: Call) -> wire.ProduceResponse:
            answer = sound(call, request)
            part = answer.responses[0].partition_responses[0]
            part.error_code = 87
            part.record_errors = [
                wire.BatchIndexAndErrorMessage(
                    batch_index=n - 50_000, batch_index_error_message="x" * (n % 50)
                )
                for n in range(100_000)
            ]
            return answer

        kafka[1].script(wire.ProduceRequest, many)
        results = await sent(cluster)
        assert len(results["t", 0].record_errors) == 100_000
        assert results["t", 1].error is None
        await works(cluster, kafka)

    with_cluster(body)


def test_a_new_leader_that_does_not_exist_is_no_harm() -> None:
    """KIP-951 names a leader; its node is missing, or is at an address of nonsense."""

    async def body(cluster: Cluster, kafka: Kafka) -> None:
        for endpoints in (
            [],
            [wire.ProduceNodeEndpoint(node_id=77, host="", port=-5, rack=None)],
            [wire.ProduceNodeEndpoint(node_id=77, host="\0" * 300, port=70_000, rack="")],
        ):

            def moved(
                request: Any, call: Call, endpoints: list[Any] = endpoints
            ) -> wire.ProduceResponse:
                answer = sound(call, request)
                part = answer.responses[0].partition_responses[0]
                part.error_code = 6
                part.current_leader = wire.ProduceLeaderIdAndEpoch(leader_id=77, leader_epoch=9)
                answer.node_endpoints = list(endpoints)
                return answer

            kafka[1].script(wire.ProduceRequest, moved)
            results = await sent(cluster)
            assert isinstance(results["t", 0].error, NotLeaderOrFollower)
            with pytest.raises(KafkaError):
                async with asyncio.timeout(60):
                    await cluster.produce(
                        {("u", 0): batch_of(cluster, b"x")}, node=77, timeout=SECONDS
                    )
            await cluster.refresh("t", timeout=30)
            await works(cluster, kafka)

    with_cluster(body)


def test_an_answer_to_another_request_is_none() -> None:
    """A wrong correlation id ends the connection, with all requests that wait on it."""

    async def body(cluster: Cluster, kafka: Kafka) -> None:
        def other(request: Any, call: Call) -> Raw:
            whole = bytearray(frame(sound(call, request), call))
            whole[4:8] = struct.pack(">i", call.header.correlation_id + 1)
            return Raw(bytes(whole))

        kafka[1].script(wire.ProduceRequest, other)
        outcomes = await asyncio.gather(sent(cluster), sent(cluster), return_exceptions=True)
        assert all(isinstance(one, ConnectionLost | ProtocolError) for one in outcomes)
        await works(cluster, kafka)

    with_cluster(body)


def test_an_answer_after_the_timeout_belongs_to_nobody() -> None:
    """The caller has its error; the next caller gets its own answer, not the late one."""

    async def body(cluster: Cluster, kafka: Kafka) -> None:
        def refused(request: Any, call: Call) -> Delay:
            answer = sound(call, request)
            for part in answer.responses[0].partition_responses:
                part.error_code = 29
            return Delay(SECONDS + 1, answer)

        kafka[1].script(wire.ProduceRequest, refused)
        with pytest.raises(RequestTimeout) as raised:
            await sent(cluster)
        assert raised.value.may_have_been_written
        await works(cluster, kafka)

    with_cluster(body)
