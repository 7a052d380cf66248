"""CPU time of compression and messages: `python -m benchmarks.micro.codecs`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from aiokq.records.compression import CODEC_NAMES, codec_id, compress, decompress
from aiokq.wire import (
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    decode_response,
    encode_request,
    encode_response,
)
from aiokq.wire.fetch import FetchableTopicResponse, FetchPartitionData
from aiokq.wire.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokq.wire.produce import PartitionProduceData, TopicProduceData
from benchmarks.frames import joined

BATCH_BYTES = 131_072


def payload() -> tuple[bytes, int]:
    """Return 128 KiB of JSON records, like those of services, and their number."""
    rows: list[bytes] = []
    size = 0
    while size < BATCH_BYTES:
        number = len(rows)
        order = {"order": number, "customer": f"c-{number % 977}", "amount": number * 7 % 10_000}
        rows.append(json.dumps({**order, "status": "placed", "currency": "EUR"}).encode())
        size += len(rows[-1])
    return b"".join(rows), len(rows)


def best(work: Callable[[], object], repeats: int) -> float:
    """Return the CPU seconds of one call, the best of five rounds."""
    least = float("inf")
    for _ in range(5):
        started = time.process_time()
        for _ in range(repeats):
            work()
        least = min(least, (time.process_time() - started) / repeats)
    return least


def measure_codecs() -> list[tuple[str, float, float, float]]:
    """Return codec, ns per record to compress, ns per record to decompress, and ratio."""
    data, count = payload()
    rows = []
    for name in CODEC_NAMES:
        if name == "none":
            continue
        codec = codec_id(name)
        packed = compress(codec, data)
        view = memoryview(packed)
        repeats = 20 if name == "gzip" else 100
        rows.append(
            (
                name,
                1e9 * best(lambda c=codec: compress(c, data), repeats) / count,  # type: ignore[misc]
                1e9 * best(lambda c=codec, v=view: decompress(c, v, 1 << 24), repeats) / count,  # type: ignore[misc]
                len(data) / len(packed),
            )
        )
    return rows


def measure_messages() -> list[tuple[str, float]]:
    """Return the name of each message and operation with its microseconds."""
    metadata = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=n, host=f"b{n}", port=9092) for n in range(3)],
        topics=[
            MetadataResponseTopic(
                name=f"topic-{number}",
                partitions=[
                    MetadataResponsePartition(
                        partition_index=p,
                        leader_id=p % 3,
                        replica_nodes=[0, 1, 2],
                        isr_nodes=[0, 1],
                    )
                    for p in range(12)
                ],
            )
            for number in range(100)
        ],
    )
    metadata_frame = memoryview(joined(encode_response(metadata, version=12, correlation_id=1)))[4:]
    produce = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name="orders",
                partition_data=[
                    PartitionProduceData(index=p, records=bytes(16_384)) for p in range(4)
                ],
            )
        ],
    )
    fetch = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic="orders",
                partitions=[
                    FetchPartitionData(partition_index=p, records=bytes(65_536)) for p in range(4)
                ],
            )
        ]
    )
    fetch_frame = memoryview(joined(encode_response(fetch, version=12, correlation_id=1)))[4:]

    def decode(cls: type[MetadataRequest] | type[FetchRequest], frame: memoryview) -> None:
        decode_response(cls.RESPONSE, frame, 12)

    def encode() -> None:
        encode_request(produce, version=9, correlation_id=1, client_id="bench")

    return [
        (
            "Metadata v12, 100 topics of 12 partitions, decode",
            1e6 * best(lambda: decode(MetadataRequest, metadata_frame), 20),
        ),
        ("Produce v9, 4 batches of 16 KiB, encode", 1e6 * best(encode, 5_000)),
        (
            "Fetch v12, 4 partitions of 64 KiB, decode",
            1e6 * best(lambda: decode(FetchRequest, fetch_frame), 5_000),
        ),
    ]


def main() -> None:
    for name, packing, unpacking, ratio in measure_codecs():
        print(f"{name:8} {packing:8.0f} ns {unpacking:8.0f} ns a record, {ratio:.1f} : 1")
    for name, microseconds in measure_messages():
        print(f"{name}: {microseconds:.1f} us")


if __name__ == "__main__":
    main()
