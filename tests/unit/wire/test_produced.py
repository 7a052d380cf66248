"""The prepared response to a Produce request without errors, compared with the codec's bytes."""

from __future__ import annotations

import uuid

import pytest

from aiokq import wire
from aiokq.wire.produced import encode_appended

TOPIC_ID = uuid.UUID(int=(1 << 127) + 5)


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize(
    "topics",
    [
        [],
        [("t", [])],
        [("t", [(0, 12, 0)])],
        [("orders" * 40, [(7, 2**62, 2**40), (2**31 - 1, 0, 3)]), ("b", [(1, 5, 5)])],
        [("many", [(n, n * n, n) for n in range(200)])],
    ],
    ids=["nothing", "no partition", "one", "two topics", "many partitions"],
)
def test_it_is_what_the_codec_makes(version, topics) -> None:
    """With a wrong byte every producer of that version would close the connection."""
    response = wire.ProduceResponse(
        responses=[
            wire.TopicProduceResponse(
                partition_responses=[
                    wire.PartitionProduceResponse(
                        index=index,
                        error_code=0,
                        base_offset=base_offset,
                        log_start_offset=log_start_offset,
                    )
                    for index, base_offset, log_start_offset in appended
                ],
                **({"topic_id": TOPIC_ID} if version >= 13 else {"name": name}),
            )
            for name, appended in topics
        ]
    )
    fragments = wire.encode_response(response, version=version, correlation_id=2**31 - 1)
    named = [(TOPIC_ID.bytes if version >= 13 else name, each) for name, each in topics]
    assert encode_appended(version, 2**31 - 1, named) == b"".join(map(bytes, fragments))
