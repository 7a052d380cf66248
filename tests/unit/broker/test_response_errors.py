"""The error codes of responses are found in every struct, and counted in one place."""

from __future__ import annotations

import struct

import pytest

from aiokq import wire
from aiokq.broker.response_errors import count_errors, count_errors_in_steps, error_codes
from aiokq.connection.request_context import CloseConnection
from aiokq.core.counters import CounterBy
from tests.unit.broker.harness import Broker, batch


def test_codes_are_found_at_every_depth() -> None:
    """0 is no error; an array may be null."""
    response = wire.FetchResponse(
        error_code=70,
        responses=[
            wire.FetchableTopicResponse(
                topic="t",
                partitions=[
                    wire.FetchPartitionData(partition_index=index, error_code=code)
                    for index, code in enumerate((0, 3, 1))
                ],
            )
        ],
    )
    assert error_codes(response) == [70, 3, 1]
    created = wire.CreatableTopicResult(name="t", topic_config_error_code=29)
    assert error_codes(wire.CreateTopicsResponse(topics=[created])) == [29]
    assert error_codes(wire.MetadataResponse(brokers=[], topics=None)) == []


def test_the_codes_of_a_long_response_are_counted_in_steps() -> None:
    response = wire.FetchResponse(
        error_code=70,
        responses=[
            wire.FetchableTopicResponse(
                topic=f"t{number}",
                partitions=[wire.FetchPartitionData(partition_index=0, error_code=number % 4)],
            )
            for number in range(1000)
        ],
    )
    at_once, in_steps = CounterBy(), CounterBy()
    count_errors(at_once, response)
    assert sum(1 for _ in count_errors_in_steps(in_steps, response)) > 1000 // 64
    assert at_once == in_steps
    assert sum(in_steps.values()) == 751
    one = wire.FindCoordinatorResponse(error_code=15)
    assert not list(count_errors_in_steps(in_steps, one))
    assert in_steps["COORDINATOR_NOT_AVAILABLE"] == 1
    list(count_errors_in_steps(in_steps, wire.MetadataResponse(brokers=[], topics=None)))


async def test_an_error_that_a_coordinator_puts_into_its_response_is_counted() -> None:
    """Regression: only errors that were raised to the handler were counted."""
    async with Broker() as broker:
        errors = broker.node.counters.errors
        await broker.create("t")
        assert errors == {}
        asked = wire.MetadataRequest(
            topics=[wire.MetadataRequestTopic(name="absent")], allow_auto_topic_creation=False
        )
        await broker.ask(asked, 12)
        assert errors == {"UNKNOWN_TOPIC_OR_PARTITION": 1}
        errors.clear()
        await broker.create("__consumer_offsets")
        join = wire.JoinGroupRequest(
            group_id="g",
            member_id="unknown",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[wire.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        response = await broker.ask(join, 9)
        assert response.error_code == 25
        assert errors == {"UNKNOWN_MEMBER_ID": 1}


async def test_an_unknown_version_of_api_versions_is_counted() -> None:
    """Newer clients begin with a version that this broker does not have."""
    async with Broker() as broker:
        frame = struct.pack(">hhihB", 18, 99, 1, -1, 0)
        assert await broker.frame(frame) is not None
        assert broker.node.counters.errors == {"UNSUPPORTED_VERSION": 1}


async def test_an_error_of_produce_is_counted_once_with_and_without_an_answer() -> None:
    """With acks=0 there is no answer: the connection is closed."""
    async with Broker() as broker:
        errors, data = broker.node.counters.errors, batch(1)
        assert (await broker.produce("absent", data)).error_code == 3
        assert errors == {"UNKNOWN_TOPIC_OR_PARTITION": 1}
        with pytest.raises(CloseConnection):
            await broker.produce("absent", data, acks=0)
        assert errors == {"UNKNOWN_TOPIC_OR_PARTITION": 2}
