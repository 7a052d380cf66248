"""A node without sockets: frames go directly to its dispatcher, and its disk is in memory."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Iterable

from aiokq import wire
from aiokq.broker.config.listeners import configured_listeners
from aiokq.broker.config.settings import broker_settings
from aiokq.broker.node import BrokerNode
from aiokq.connection.request_context import RequestContext
from aiokq.core.environment import Environment
from aiokq.core.files import FileRange
from aiokq.core.offload import InlineOffload
from aiokq.fastpath import crc32c
from aiokq.records.header import iter_headers
from aiokq.records.record import RawRecord, encode_batch, iter_records
from tests.sim.harness.files import MemoryFiles

NOW_MS = 1_700_000_000_000


class LoopClock:
    """The loop's monotonic time, with a calendar time that tests set."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def timestamp_ms(self) -> int:
        return self.now_ms

    def thread_time(self) -> float:
        return self.monotonic()


async def until(condition: Callable[[], object]) -> None:
    """Run the loop until `condition` holds, however slow the machine is."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  files have no event for this
            await asyncio.sleep(0.001)


class OffTheLoop(InlineOffload):
    """An executor whose work may wait for the disk, as no other code of a running broker may."""

    def __init__(self, files: MemoryFiles) -> None:
        super().__init__()
        self._files = files

    async def run(self, fn, *args):
        files, before = self._files, self._files.may_wait
        files.may_wait = True
        try:
            if self._closed:
                return await super().run(fn, *args)
            return fn(*args)
        finally:
            files.may_wait = before


class NoNetwork:
    """A network without sockets: every use fails."""


class Broker:
    """A node, with the requests of a client."""

    def __init__(self, files: MemoryFiles | None = None, **settings: object) -> None:
        self.clock = LoopClock()
        self.files = files or MemoryFiles(now_ms=self.clock.timestamp_ms)
        profile = str(settings.pop("profile", "kafka"))
        directories = settings.pop("directories", "/data")
        source = random.Random(settings.pop("seed", 1))
        environment = Environment(
            self.clock,
            source,
            NoNetwork(),
            self.files,
            OffTheLoop(self.files),
            secure_random=source,
        )
        parsed = broker_settings(settings, profile=profile)
        self.node = BrokerNode(
            parsed,
            environment,
            data_dir=directories,
            listeners=configured_listeners(parsed, port=None if parsed.listeners else 0),
        )
        self.client = RequestContext(1, "127.0.0.1:5000", "127.0.0.1", "PLAINTEXT")

    async def __aenter__(self) -> Broker:
        await self.node.open()
        self.files.may_wait = False
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        try:
            await self.node.close()
        finally:
            self.files.may_wait = True
        assert self.files.stalls == []

    async def frame(self, frame: bytes, client: RequestContext | None = None) -> bytes | None:
        """Return the response frame to a request frame, both without their sizes."""
        fragments = await self.node.dispatcher.handle(
            client or self.client, memoryview(bytearray(frame))
        )
        if fragments is None:
            return None
        # If tests evict data again right after each read, the loop has to wait for the disk here.
        before, self.files.may_wait = self.files.may_wait, self.files.stays_cold
        answer = b"".join(f.read() if isinstance(f, FileRange) else bytes(f) for f in fragments)
        self.files.may_wait = before
        assert int.from_bytes(answer[:4], "big") == len(answer) - 4
        return answer[4:]

    async def ask(self, request, version, *, client_id="test", client=None):
        """Return the response to a request, through encoded frames."""
        fragments = wire.encode_request(
            request, version=version, correlation_id=7, client_id=client_id
        )
        frame = b"".join(bytes(f) for f in fragments)[4:]
        answer = await self.frame(frame, client)
        if answer is None:
            return None
        correlation_id, response = wire.decode_response(type(request).RESPONSE, answer, version)
        assert correlation_id == 7
        return response

    async def create(self, topic: str, partitions: int = 1, **configs: object) -> uuid.UUID:
        """Create a topic; return its id."""
        response = await self.ask(
            wire.CreateTopicsRequest(
                topics=[
                    wire.CreatableTopic(
                        name=topic,
                        num_partitions=partitions,
                        replication_factor=1,
                        configs=[
                            wire.CreatableTopicConfig(name=name.replace("_", "."), value=str(value))
                            for name, value in configs.items()
                        ],
                    )
                ]
            ),
            7,
        )
        [result] = response.topics
        assert result.error_code == 0, result.error_message
        return result.topic_id

    async def produce(self, topic, data, *, partition=0, version=9, acks=-1, **options):
        """Send one partition's records; return its result."""
        client_id = options.pop("client_id", "test")
        named = {"topic_id": topic} if isinstance(topic, uuid.UUID) else {"name": topic}
        request = wire.ProduceRequest(
            acks=acks,
            timeout_ms=options.pop("timeout_ms", 30_000),
            topic_data=[
                wire.TopicProduceData(
                    partition_data=[wire.PartitionProduceData(index=partition, records=data)],
                    **named,
                )
            ],
            **options,
        )
        response = await self.ask(request, version, client_id=client_id)
        if response is None:
            return None
        [answered] = response.responses
        [result] = answered.partition_responses
        return result

    async def fetch(self, *asked, version=12, client=None, **options):
        """Fetch each (topic, partition, offset[, max bytes[, fields]]); return the response."""
        options = {"max_wait_ms": 0, "min_bytes": 1, **options}
        topics = []
        for topic, partition, offset, *limit in asked:
            named = {"topic_id": topic} if isinstance(topic, uuid.UUID) else {"topic": topic}
            topics.append(
                wire.FetchTopic(
                    partitions=[
                        wire.FetchPartition(
                            partition=partition,
                            fetch_offset=offset,
                            partition_max_bytes=limit[0] if limit else 1_000_000,
                            **(limit[1] if len(limit) > 1 else {}),
                        )
                    ],
                    **named,
                )
            )
        return await self.ask(wire.FetchRequest(topics=topics, **options), version, client=client)

    async def fetch_one(self, *asked, version=12, **options):
        """Fetch one partition; return its part of the response."""
        response = await self.fetch(asked, version=version, **options)
        assert response.error_code == 0
        [topic] = response.responses
        [data] = topic.partitions
        return data


def watch_offload(broker: Broker) -> list[object]:
    """Return a list to which all work for the executor is added from now on."""
    inline = broker.node.environment.offload.run
    moved: list[object] = []

    async def run(fn, *args):
        moved.append(fn)
        return await inline(fn, *args)

    broker.node.environment.offload.run = run
    return moved


def batch(count: int = 1, *, key=b"k", value=b"v", timestamp_ms=NOW_MS, **header) -> bytes:
    """Return a batch as a producer sends it."""
    return encode_batch(
        [RawRecord(n, timestamp_ms + n, key, value) for n in range(count)],
        crc32c=crc32c,
        **header,
    )


def offsets(data: Iterable[int] | bytes | memoryview | None) -> list[int]:
    """Return the offsets of all records in fetched bytes."""
    found = []
    position = 0
    view = memoryview(data or b"")
    for header in iter_headers(view):
        found += [record.offset for record in iter_records(view[position:], header)]
        position += header.size
    return found
