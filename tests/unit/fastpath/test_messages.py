"""produce_body and read_answers against the general codec, on both cores."""

from __future__ import annotations

import random
import uuid
from types import SimpleNamespace

import pytest

from aiokq.wire import encode_bytes
from aiokq.wire.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceLeaderIdAndEpoch,
    ProduceNodeEndpoint,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

VERSIONS = range(9, 14)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transactional_id", [None, "", "zähler"])
def test_a_body_is_that_of_the_codec(
    core: SimpleNamespace, version: int, transactional_id: str | None
) -> None:
    """Batches around the sizes from which they are passed by reference, or have a longer length."""
    random.seed(version)
    for count in (0, 1, 3, 130):
        topics = []
        for topic in range(min(count, 3)):
            sizes = [random.choice([0, 62, 126, 127, 1023, 1024, 20_000]) for _ in range(count)]
            batches = [
                (random.randrange(2**31), memoryview(random.randbytes(size))) for size in sizes
            ]
            topics.append((f"topic-{topic}", uuid.UUID(int=topic + 1), batches))
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(
                    name=name,
                    topic_id=topic_id,
                    partition_data=[
                        PartitionProduceData(index=index, records=records)
                        for index, records in batches
                    ],
                )
                for name, topic_id, batches in topics
            ],
        )
        body = core.produce_body(
            version,
            transactional_id,
            -1,
            30_000,
            [(name, topic_id.bytes, batches) for name, topic_id, batches in topics],
        )
        assert type(body[0]) is bytes
        assert b"".join(body) == encode_bytes(request, version)
        long = [data for _, _, batches in topics for _, data in batches if len(data) >= 1024]
        assert [part for part in body if isinstance(part, memoryview)] == long


def test_a_long_string_is_left_to_the_codec(core: SimpleNamespace) -> None:
    assert core.produce_body(12, "x" * 32_768, 1, 1, []) is None
    assert core.produce_body(12, None, 1, 1, [("x" * 32_768, bytes(16), [])]) is None
    assert core.produce_body(13, "x" * 32_767, 1, 1, [("x" * 32_768, bytes(16), [])]) is not None


def response(*, topics: int = 2, partitions: int = 3) -> ProduceResponse:
    """A response in which every batch was appended."""
    return ProduceResponse(
        throttle_time_ms=7,
        responses=[
            TopicProduceResponse(
                name=f"topic-{topic}",
                topic_id=uuid.UUID(int=topic + 1),
                partition_responses=[
                    PartitionProduceResponse(
                        index=index,
                        error_code=0,
                        base_offset=2**40 + index,
                        log_append_time_ms=index - 1,
                        log_start_offset=5,
                    )
                    for index in range(partitions)
                ],
            )
            for topic in range(topics)
        ],
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_are_those_of_the_codec(core: SimpleNamespace, version: int) -> None:
    expected = [
        (
            uuid.UUID(int=topic + 1).bytes if version >= 13 else f"topic-{topic}",
            index,
            2**40 + index,
            index - 1,
        )
        for topic in range(2)
        for index in range(3)
    ]
    data = b"head" + encode_bytes(response(), version) + b"behind"
    assert core.read_answers(memoryview(data), 4, version) == (7, expected)
    none = encode_bytes(response(topics=0), version)
    assert core.read_answers(none, 0, version) == (7, [])


@pytest.mark.parametrize("version", VERSIONS)
def test_every_other_response_is_left_to_the_codec(core: SimpleNamespace, version: int) -> None:
    """Refused batches, tagged fields, lengths of several bytes, and every truncated response."""
    changed = [response(topics=1, partitions=127), response(topics=127, partitions=1)]
    for change in (
        {"error_code": 7},
        {"error_message": "why"},
        {"record_errors": [BatchIndexAndErrorMessage(batch_index=0)]},
        *([{"current_leader": ProduceLeaderIdAndEpoch(leader_id=1)}] if version >= 10 else []),
    ):
        other = response()
        for name, value in change.items():
            setattr(other.responses[1].partition_responses[2], name, value)
        changed.append(other)
    for tagged in (response(), response()):
        changed.append(tagged)
    changed[-1].unknown_tags = {9: b"x"}
    changed[-2].responses[0].unknown_tags = {9: b"x"}
    if version >= 10:
        changed.append(response())
        changed[-1].node_endpoints = [ProduceNodeEndpoint(node_id=1, host="h", port=1)]
    for each in changed:
        assert core.read_answers(encode_bytes(each, version), 0, version) is None
    whole = encode_bytes(response(), version)
    for size in range(len(whole)):
        assert core.read_answers(whole[:size], 0, version) is None
