"""CPU time of fetches in the consumer, per fetch and per record.

    python -m benchmarks.micro.consumer

There is no connection: the fetcher gets a prepared response. A fetch consists of the selection of
partitions, the building and encoding of the request, and the decoding and handling of the response.
In the rows with "yes" under "read", it also includes the delivery of the records to the reader. The
second table shows the delivery of records that are buffered already.
"""

from __future__ import annotations

import asyncio
import time
import uuid

from aiokq import wire
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.loop_binding import LoopBinding
from aiokq.cluster.values import ClusterValues
from aiokq.consumer.broker_fetcher import BrokerFetcher
from aiokq.consumer.fetch_pipeline import FetchPipeline
from aiokq.consumer.positions import Start
from aiokq.consumer.reader import BatchStream
from aiokq.consumer.subscription import Subscription
from aiokq.consumer.values import ConsumerValues
from aiokq.core.supervisor import Supervisor
from aiokq.core.types import TopicPartition
from aiokq.fastpath import crc32c
from aiokq.records.record import RawRecord, encode_batch
from aiokq.wire.fetch import FetchRequest, FetchResponse
from benchmarks.frames import joined

ROUNDS = 300
TOPIC_ID = uuid.UUID(int=1)
VERSION = 17


def chunk(records: int, batches: int) -> tuple[bytes, int]:
    """Return batches of 100-byte values, and their number of records."""
    out = b""
    for n in range(batches):
        out += encode_batch(
            [RawRecord(n * records + i, 1, b"key-000001", b"v" * 100) for i in range(records)],
            crc32c=crc32c,
            leader_epoch=0,
        )
    return out, records * batches


async def run(partitions: int, records: int, batches: int, *, read: bool) -> tuple[float, float]:
    """Return (microseconds per fetch, nanoseconds per record); records are read or dropped."""
    settings = ConsumerValues.given(
        {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": 10**9}
    )
    engine = ClusterEngine(ClusterValues.given({"bootstrap_servers": "nowhere:1"}))
    binding = LoopBinding("the benchmark")
    binding.bind()
    pipeline = FetchPipeline(settings, engine, Subscription(), Supervisor("benchmark"), binding)
    loop = BrokerFetcher(0, pipeline.fetcher, settings)
    states = []
    for number in range(partitions):
        state = pipeline._assigned(TopicPartition("topic", number), Start.POLICY)
        state.topic_id = TOPIC_ID
        state.node = 0
        loop.add(state)
        states.append(state)
    pipeline.fetcher._loops[0] = loop, None  # type: ignore[assignment]
    pipeline.fetcher._route = lambda state: 0  # type: ignore[method-assign]
    data, count = chunk(records, batches)
    response = wire.FetchResponse(
        session_id=1,
        responses=[
            wire.FetchableTopicResponse(
                topic_id=TOPIC_ID,
                partitions=[
                    wire.FetchPartitionData(
                        partition_index=n,
                        error_code=0,
                        high_watermark=10**9,
                        last_stable_offset=10**9,
                        log_start_offset=0,
                        records=data,
                    )
                    for n in range(partitions)
                ],
            )
        ],
    )
    frame = joined(wire.encode_response(response, version=VERSION, correlation_id=1))[4:]
    source = pipeline.sources.main
    used = 0.0
    for _ in range(ROUNDS):
        for state in states:
            state.jump(0)
            loop.touch(state.tp)
        started = time.process_time()
        loop._look(0.0)
        plan = loop.session.next(by_ids=True, sessions=True)
        request: FetchRequest = loop._request(plan, 500, VERSION)
        wire.encode_request(request, version=VERSION, correlation_id=1, client_id="benchmark")
        _, answer = wire.decode_response(FetchResponse, memoryview(frame), VERSION)
        loop.session.accept(1)
        pipeline.fetcher.received(0, loop.session.sent, answer)
        if read:
            stream = source.stream
            while True:
                while stream.next_nowait() is not None:
                    pass
                if not source.turn_due:
                    break
                await source.wait()
        used += time.process_time() - started
        for state in states:
            source.drop(state)
    return used / ROUNDS * 1e6, used / ROUNDS / (count * partitions) * 1e9


async def hand_over(form: str, *, deserialized: bool) -> float:
    """Return the nanoseconds per record to read 32,000 buffered records in a loop."""
    extra = {"value_deserializer": len} if deserialized else {}
    settings = ConsumerValues.given({"auto_offset_reset": "earliest", **extra})
    engine = ClusterEngine(ClusterValues.given({"bootstrap_servers": "nowhere:1"}))
    binding = LoopBinding("the benchmark")
    binding.bind()
    pipeline = FetchPipeline(settings, engine, Subscription(), Supervisor("benchmark"), binding)
    pipeline.fetcher.stop()
    state = pipeline._assigned(TopicPartition("topic", 0), Start.POLICY)
    reader = pipeline.reader(pipeline.sources.main)
    data, count = chunk(1_000, 8)
    best = float("inf")
    for _ in range(ROUNDS // 10):
        state.jump(0)
        for _ in range(4):
            frame = pipeline.buffers.frame(len(data))
            state.chunks.append(
                pipeline.buffers.chunk(frame, "topic", 0, memoryview(data), 0, count, None)
            )
            state.queued_bytes += len(data)
        state.fetch_offset = count
        pipeline.sources.main.arrived(state)
        left = 4 * count
        started = time.process_time()
        if form == "records":
            async for _ in reader.stream():
                left -= 1
                if not left:
                    break
        else:
            async for batch in BatchStream(reader):
                for _ in batch:
                    left -= 1
                if not left:
                    break
        best = min(best, time.process_time() - started)
        pipeline.sources.main.drop(state)
    return best / (4 * count) * 1e9


async def main() -> None:
    print(f"{'partitions':>10} {'records each':>13} {'read':>5} {'us/fetch':>9} {'ns/record':>10}")
    for partitions, records, batches in ((1, 1_000, 8), (4, 1_000, 8), (4, 10, 1), (200, 1, 1)):
        for read in (False, True):
            per_fetch, per_record = await run(partitions, records, batches, read=read)
            print(
                f"{partitions:>10} {records * batches:>13} {'yes' if read else 'no':>5} "
                f"{per_fetch:>9.1f} {per_record:>10.1f}"
            )
    print(f"\n{'handed over':>12} {'deserialized':>13} {'ns/record':>10}")
    for form in ("records", "batches"):
        for deserialized in (False, True):
            cost = await hand_over(form, deserialized=deserialized)
            print(f"{form:>12} {'yes' if deserialized else 'no':>13} {cost:>10.1f}")


if __name__ == "__main__":
    asyncio.run(main())
