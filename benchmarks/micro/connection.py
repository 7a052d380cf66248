"""Round trips and bulk transfer of the connection layer over loopback, between two processes.

    python -m benchmarks.micro.connection [asyncio|uvloop ...]

Rows: small requests, sequential and pipelined; frames of 1 MB received by the client, from memory,
from files by sendfile, and from files by read and write; frames of 1 MB received by the server.
CPU time is that of the named process, in seconds per GB or microseconds per request.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe

from aiokq import wire
from aiokq.connection.network import system_environment
from aiokq.connection.node import Node, Purpose
from aiokq.connection.options import ConnectionOptions
from aiokq.connection.responses import ResponseWriter
from aiokq.connection.server import RequestContext, Server
from aiokq.core.counters import BrokerCounters, ClientCounters
from aiokq.core.files import FileRange
from aiokq.core.supervisor import Supervisor

MB = 1_000_000
ROUND_TRIPS = 10_000
BULK_FRAMES = 1_500


class Answers:
    """A broker that answers ApiVersions, Metadata and Produce, and answers Fetch with 1 MB."""

    def __init__(self, mode: str, path: str) -> None:
        self._mode = mode
        self._memory = bytes(MB)
        self._file = system_environment().files.open(path)

    async def handle(
        self, context: RequestContext, frame: memoryview
    ) -> Sequence[wire.Fragment] | None:
        header = wire.decode_request_header(frame)
        response: wire.Response
        if header.api_key == wire.ApiVersionsRequest.API_KEY:
            response = wire.ApiVersionsResponse(
                api_keys=[
                    wire.ApiVersion(api_key=key, min_version=0, max_version=version)
                    for key, version in ((0, 9), (1, 12), (3, 12), (18, 4))
                ]
            )
        elif header.api_key == wire.FetchRequest.API_KEY:
            records: wire.Records = self._memory
            if self._mode != "memory":
                records = FileRange(self._file, 0, MB)
            data = wire.FetchPartitionData(partition_index=0, records=records)
            response = wire.FetchResponse(
                responses=[wire.FetchableTopicResponse(topic="t", partitions=[data])]
            )
        elif header.api_key == wire.ProduceRequest.API_KEY:
            response = wire.ProduceResponse()
        else:
            response = wire.MetadataResponse()
        return wire.encode_response(
            response, version=header.api_version, correlation_id=header.correlation_id
        )


def serve(loop_factory: Callable[[], asyncio.AbstractEventLoop], mode: str, pipe: Pipe) -> None:
    """Run the server's process: send its port, then its CPU time on request."""
    if mode == "pread":
        ResponseWriter._descriptor = lambda self: None  # type: ignore[method-assign]

    async def main() -> None:
        environment = system_environment()
        with tempfile.NamedTemporaryFile() as file:
            file.write(os.urandom(MB))
            file.flush()
            server = Server(
                environment.network,
                "127.0.0.1",
                0,
                Answers(mode, file.name),
                clock=environment.clock,
                counters=BrokerCounters(),
            )
            await server.start()
            pipe.send(server.port)
            loop = asyncio.get_running_loop()
            done = loop.create_future()

            def asked() -> None:
                if pipe.recv() == "stop":
                    done.set_result(None)
                else:
                    pipe.send(time.process_time())

            loop.add_reader(pipe.fileno(), asked)
            await done
            loop.remove_reader(pipe.fileno())
            await server.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


async def measure(port: int, mode: str, pipe: Pipe, label: str) -> None:
    """Measure and print all rows of one mode, in the client's process."""

    def server_cpu() -> float:
        pipe.send("cpu")
        seconds: float = pipe.recv()
        return seconds

    environment = system_environment()
    options = ConnectionOptions()
    async with Supervisor("benchmark") as supervisor:
        node = Node(
            1,
            "127.0.0.1",
            port,
            options=options,
            environment=environment,
            supervisor=supervisor,
            counters=ClientCounters(),
        )
        connection = await node.connection(Purpose.CONTROL)

        async def one_by_one() -> int:
            for _ in range(ROUND_TRIPS):
                await connection.request(wire.MetadataRequest())
            return ROUND_TRIPS

        async def pipelined() -> int:
            for _ in range(ROUND_TRIPS // 50):
                futures = [connection.send(wire.MetadataRequest()) for _ in range(50)]
                for future in futures:
                    await future
            return ROUND_TRIPS

        topic = wire.FetchTopic(topic="t", partitions=[wire.FetchPartition(partition=0)])
        fetch = wire.FetchRequest(topics=[topic])

        async def receive() -> int:
            ahead = connection.send(fetch)
            for _ in range(BULK_FRAMES - 1):
                following = connection.send(fetch)
                await ahead
                ahead = following
            await ahead
            return BULK_FRAMES

        data = wire.PartitionProduceData(index=0, records=bytes(MB))
        produce = wire.ProduceRequest(
            acks=1, topic_data=[wire.TopicProduceData(name="t", partition_data=[data])]
        )

        async def send() -> int:
            ahead = connection.send(produce)
            for _ in range(BULK_FRAMES - 1):
                await connection.drain()
                following = connection.send(produce)
                await ahead
                ahead = following
            await ahead
            return BULK_FRAMES

        jobs = [("receive 1 MB frames", receive)]
        if mode == "memory":
            jobs = [
                ("round trips", one_by_one),
                ("round trips, 50 in flight", pipelined),
                *jobs,
                ("send 1 MB frames", send),
            ]
        for name, job in jobs:
            await job()
            started, client, server = time.perf_counter(), time.process_time(), server_cpu()
            count = await job()
            seconds = time.perf_counter() - started
            client, server = time.process_time() - client, server_cpu() - server
            if job in (receive, send):
                gigabytes = count * MB / 1e9
                rate = f"{gigabytes / seconds:8.2f} GB/s"
                cpu = f"CPU s/GB: client {client / gigabytes:.2f}, server {server / gigabytes:.2f}"
            else:
                rate = f"{count / seconds:8.0f} /s  "
                cpu = (
                    f"CPU us: client {client / count * 1e6:.1f}, server {server / count * 1e6:.1f}"
                )
            print(f"{label:8} {mode:9} {name:26} {rate}  {cpu}", flush=True)
        await node.close()


def main(loops: Sequence[str]) -> None:
    """Run all rows on each loop."""
    for label in loops:
        loop_factory: Callable[[], asyncio.AbstractEventLoop]
        if label == "uvloop":
            import uvloop

            loop_factory = uvloop.new_event_loop
        else:
            loop_factory = asyncio.new_event_loop
        for mode in ("memory", "sendfile", "pread"):
            context = get_context("fork")
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(loop_factory, mode, theirs))
            process.start()
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                runner.run(measure(ours.recv(), mode, ours, label))
            ours.send("stop")
            process.join()


if __name__ == "__main__":
    main(sys.argv[1:] or ["asyncio", "uvloop"])
