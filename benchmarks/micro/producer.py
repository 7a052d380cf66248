"""CPU time of records and batches between `send` and the socket, and back.

    python -m benchmarks.micro.producer [--loop asyncio|uvloop] [--profile] [ROW ...]

The broker is a process of its own that acknowledges everything, so the CPU time is the client's
alone: nanoseconds per record, microseconds per batch. In "batches" rows each record is a batch:
batches of one partition, each in a request of its own, and of a hundred partitions, which share
requests. --profile prints a profile of the Python code, once per row.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import time
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from typing import Any

import aiokq
from aiokq import wire
from aiokq.connection.network import system_environment
from aiokq.connection.server import RequestContext, Server
from aiokq.core.counters import BrokerCounters
from benchmarks.contenders.measure import Load
from benchmarks.contenders.produce_aiokq import SHAPES

PARTITIONS = {"four": 4, "one": 1, "hundred": 100}
VERSIONS = {0: 9, 3: 12, 18: 4, 22: 4}
"""The highest version that the broker supports, by API key (Produce, Metadata, ApiVersions and
InitProducerId).
"""


class Acknowledger:
    """A broker that has all topics and acknowledges everything."""

    def __init__(self) -> None:
        self.port = 0

    async def handle(
        self, context: RequestContext, frame: memoryview
    ) -> Sequence[wire.Fragment] | None:
        header, request = wire.decode_request(frame)
        response: wire.Response
        if isinstance(request, wire.ProduceRequest):
            if request.acks == 0:
                return None
            response = wire.ProduceResponse(
                responses=[
                    wire.TopicProduceResponse(
                        name=topic.name,
                        partition_responses=[
                            wire.PartitionProduceResponse(index=part.index, base_offset=0)
                            for part in topic.partition_data
                        ],
                    )
                    for topic in request.topic_data
                ]
            )
        elif isinstance(request, wire.MetadataRequest):
            response = self._metadata()
        elif isinstance(request, wire.InitProducerIdRequest):
            response = wire.InitProducerIdResponse(producer_id=1, producer_epoch=0)
        else:
            response = wire.ApiVersionsResponse(
                api_keys=[
                    wire.ApiVersion(api_key=key, min_version=0, max_version=version)
                    for key, version in VERSIONS.items()
                ]
            )
        return wire.encode_response(
            response, version=header.api_version, correlation_id=header.correlation_id
        )

    def _metadata(self) -> wire.MetadataResponse:
        topics = [
            wire.MetadataResponseTopic(
                name=name,
                partitions=[
                    wire.MetadataResponsePartition(
                        partition_index=n, leader_id=1, replica_nodes=[1], isr_nodes=[1]
                    )
                    for n in range(count)
                ],
            )
            for name, count in PARTITIONS.items()
        ]
        broker = wire.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)
        return wire.MetadataResponse(brokers=[broker], controller_id=1, topics=topics)


def serve(pipe: Pipe) -> None:
    """Run the broker's process: send its port, and end when asked to."""

    async def main() -> None:
        environment = system_environment()
        broker = Acknowledger()
        server = Server(
            environment.network,
            "127.0.0.1",
            0,
            broker,
            clock=environment.clock,
            counters=BrokerCounters(),
        )
        await server.start()
        broker.port = server.port
        pipe.send(server.port)
        told = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(pipe.fileno(), told.set_result, None)
        await told
        asyncio.get_running_loop().remove_reader(pipe.fileno())
        await server.close()

    asyncio.run(main())


async def one_by_one(producer: aiokq.Producer, load: Load, count: int) -> None:
    """Send one record per round trip."""
    value, keys = load.value, load.keys
    for index in range(count):
        await producer.send(load.topic, value, keys[index % len(keys)])


async def batches(producer: aiokq.Producer, load: Load, count: int) -> None:
    """Send a batch per record, with a thousand in flight."""
    value, partitions = load.value, PARTITIONS[load.topic]
    for start in range(0, count, 1_000):
        deliveries = [
            producer.send_nowait(load.topic, value, None, index % partitions)
            for index in range(start, start + 1_000)
        ]
        for delivery in deliveries:
            await delivery


Shape = Callable[[aiokq.Producer, Load, int], Awaitable[None]]

ROWS: dict[str, tuple[Shape, str, int, dict[str, Any]]] = {
    "enqueue": (SHAPES["enqueue"], "four", 1_000_000, {}),
    "send_nowait": (SHAPES["send_nowait"], "four", 1_000_000, {}),
    "send_many": (SHAPES["send_many"], "four", 1_000_000, {}),
    "tasks": (SHAPES["tasks"], "four", 200_000, {}),
    "one by one": (one_by_one, "four", 5_000, {}),
    "batches, requests of 1": (batches, "one", 20_000, {"batch_size": 0}),
    "batches, requests of 100": (batches, "hundred", 50_000, {"batch_size": 0}),
}


async def measure(port: int, row: str, *, profile: bool) -> None:
    """Measure one row in this process."""
    shape, topic, count, options = ROWS[row]
    load = Load("", topic, count, 100, 131_072, 5, "all", True, True, "", "", None, None)
    async with aiokq.Producer(f"127.0.0.1:{port}", **options) as producer:
        await shape(producer, load, count // 10)
        counters = producer._engine.counters
        sent, requests = counters.batches_sent, counters.requests["Produce"]
        profiler = cProfile.Profile()
        if profile:
            profiler.enable()
        started, cpu = time.perf_counter(), time.process_time()
        await shape(producer, load, count)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        profiler.disable()
        sent, requests = counters.batches_sent - sent, counters.requests["Produce"] - requests
    print(
        f"{row:26} {count / seconds:10,.0f} records/s  CPU: {cpu / count * 1e9:7,.0f} ns/record"
        f" {cpu / sent * 1e6:7.1f} us/batch {cpu / requests * 1e6:8.1f} us/request"
        f"  ({count / sent:.0f} records/batch, {sent / requests:.1f} batches/request)",
        flush=True,
    )
    if profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--loop", default="uvloop", choices=["uvloop", "asyncio"])
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    loop_factory = None
    if arguments.loop == "uvloop":
        import uvloop

        loop_factory = uvloop.new_event_loop
    context = get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,))
    process.start()
    port = ours.recv()
    try:
        for row in arguments.rows or ROWS:
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                runner.run(measure(port, row, profile=arguments.profile))
    finally:
        ours.send("stop")
        process.join()


if __name__ == "__main__":
    main()
