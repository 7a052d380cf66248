"""A scripted Kafka cluster in memory and virtual time, for unit tests of the client.

The brokers respond from a small model (topics, leaders) or through handlers that a test sets. A
test can make each broker refuse connections, ignore connection attempts, stop responding, or speak
another protocol.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, TypeVar

from aiokq import wire
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.values import ClusterValues
from aiokq.core.environment import Address, Environment
from aiokq.core.files import OsFiles
from aiokq.core.offload import InlineOffload
from tests.sim.harness.loop import SimClock, SimLoop

T = TypeVar("T")

LATENCY = 0.001
"""Virtual seconds from a request to its response."""

Handler = Callable[["ScriptedBroker", Any, int], Any]


class Mood(Enum):
    """How a broker treats connections and requests."""

    UP = auto()
    REFUSING = auto()
    BLACK_HOLE = auto()
    """Connection attempts are never answered."""
    SILENT = auto()
    """Accepts connections and requests, but never responds."""
    NOT_KAFKA = auto()
    """Responds to everything with HTTP."""
    CLOSING = auto()
    """Accepts connections and closes each at its first request, like a proxy without a backend."""


@dataclass
class ScriptedPartition:
    leader: int
    leader_epoch: int = 0


@dataclass
class ScriptedTopic:
    partitions: list[ScriptedPartition]
    topic_id: uuid.UUID = field(
        default_factory=lambda: uuid.uuid5(uuid.NAMESPACE_OID, str(next(_ids)))
    )
    error_code: int = 0


_ids = iter(range(1, 1_000_000))


@dataclass
class Served:
    """One request that a broker received."""

    time: float
    node_id: int
    request: Any
    version: int


class ScriptedBroker:
    """One broker of the scripted cluster."""

    def __init__(self, cluster: ScriptedCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.host = f"broker{node_id}"
        self.port = 9092
        self.mood = Mood.UP
        self.listed = True
        self.transports: list[_Transport] = []
        self.connections = 0

    def die(self, mood: Mood = Mood.REFUSING) -> None:
        """Close all connections of the broker and handle new ones according to `mood`."""
        self.mood = mood
        for transport in list(self.transports):
            transport.lose(ConnectionResetError("Connection reset by peer"))

    def fence(self, mood: Mood = Mood.REFUSING) -> None:
        """Let the broker die and remove it from the other brokers' metadata."""
        self.listed = False
        self.die(mood)

    def revive(self) -> None:
        self.mood = Mood.UP
        self.listed = True


class ScriptedCluster:
    """The model from which all brokers respond.

    Attributes:
        handlers: per request class, a function ``(broker, request, version) -> response``; no
            response is sent if the function returns None.
        limits: the newest version to advertise, per request class.
        served: all requests received, in order.
    """

    def __init__(self, loop: SimLoop, brokers: int = 3) -> None:
        self.loop = loop
        self.brokers = {n: ScriptedBroker(self, n) for n in range(1, brokers + 1)}
        self.topics: dict[str, ScriptedTopic] = {}
        self.controller_id = 1
        self.cluster_id = "scripted"
        self.handlers: dict[type, Handler] = {}
        self.limits: dict[type, int] = {}
        self.missing: set[type] = set()
        self.served: list[Served] = []
        self.mistakes: list[BaseException] = []
        self.latency = LATENCY
        self.environment = Environment(
            clock=SimClock(loop),
            random=random.Random(7),
            network=ScriptedNetwork(self),
            files=OsFiles(),
            offload=InlineOffload(),
        )

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{b.host}:{b.port}" for b in self.brokers.values())

    def add_broker(self, node_id: int) -> ScriptedBroker:
        broker = self.brokers[node_id] = ScriptedBroker(self, node_id)
        return broker

    def add_topic(self, name: str, leaders: list[int], *, epoch: int = 0) -> ScriptedTopic:
        topic = self.topics[name] = ScriptedTopic([ScriptedPartition(n, epoch) for n in leaders])
        return topic

    def move(self, name: str, partition: int, leader: int) -> None:
        info = self.topics[name].partitions[partition]
        info.leader = leader
        info.leader_epoch += 1

    def requests(self, cls: type[T], *, since: float = 0.0) -> list[T]:
        return [s.request for s in self.served if isinstance(s.request, cls) and s.time >= since]

    def answer(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        self.served.append(Served(self.loop.time(), broker.node_id, request, version))
        handler = self.handlers.get(type(request))
        if handler is not None:
            return handler(broker, request, version)
        if isinstance(request, wire.ApiVersionsRequest):
            return self.api_versions()
        if isinstance(request, wire.MetadataRequest):
            return self.metadata(request)
        if isinstance(request, wire.InitProducerIdRequest):
            return wire.InitProducerIdResponse(producer_id=7, producer_epoch=0)
        raise AssertionError(f"the script has no answer to {request}")

    def api_versions(self) -> wire.ApiVersionsResponse:
        keys = []
        for key in wire.API_NAMES:
            cls = wire.api(key)
            if cls not in self.missing:
                newest = min(cls.MAX_VERSION, self.limits.get(cls, cls.MAX_VERSION))
                keys.append(
                    wire.ApiVersion(api_key=key, min_version=cls.MIN_VERSION, max_version=newest)
                )
        return wire.ApiVersionsResponse(api_keys=keys)

    def metadata(self, request: wire.MetadataRequest) -> wire.MetadataResponse:
        names = (
            sorted(self.topics)
            if request.topics is None
            else [str(topic.name) for topic in request.topics]
        )
        return wire.MetadataResponse(
            brokers=[
                wire.MetadataResponseBroker(node_id=b.node_id, host=b.host, port=b.port)
                for b in self.brokers.values()
                if b.listed
            ],
            cluster_id=self.cluster_id,
            controller_id=self.controller_id,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> wire.MetadataResponseTopic:
        topic = self.topics.get(name)
        if topic is None:
            return wire.MetadataResponseTopic(error_code=3, name=name)
        if topic.error_code:
            return wire.MetadataResponseTopic(error_code=topic.error_code, name=name)
        return wire.MetadataResponseTopic(
            name=name,
            topic_id=topic.topic_id,
            partitions=[
                wire.MetadataResponsePartition(
                    error_code=0 if p.leader >= 0 else 5,
                    partition_index=n,
                    leader_id=p.leader,
                    leader_epoch=p.leader_epoch,
                    replica_nodes=[max(p.leader, 0)],
                    isr_nodes=[max(p.leader, 0)],
                )
                for n, p in enumerate(topic.partitions)
            ],
        )


class ScriptedNetwork:
    """A core.environment.Network whose peers are the scripted brokers."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self._cluster = cluster
        self.unknown_hosts: set[str] = set()

    async def resolve(self, host: str, port: int) -> list[Address]:
        if host in self.unknown_hosts:
            raise OSError(f"unknown host {host!r}")
        return [Address(host, port)]

    async def connect(
        self,
        factory: Callable[[], Any],
        address: Address,
        *,
        ssl: Any = None,
        server_hostname: str | None = None,
    ) -> tuple[Any, Any]:
        broker = next(
            (
                b
                for b in self._cluster.brokers.values()
                if (b.host, b.port) == (address.host, address.port)
            ),
            None,
        )
        if broker is not None and broker.mood is Mood.BLACK_HOLE:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(self._cluster.latency)
        if broker is None or broker.mood is Mood.REFUSING:
            raise ConnectionRefusedError(111, "Connection refused")
        protocol = factory()
        transport = _Transport(broker, protocol, address)
        broker.transports.append(transport)
        broker.connections += 1
        protocol.connection_made(transport)
        return transport, protocol

    async def listen(self, *args: Any, **keywords: Any) -> Any:
        raise AssertionError("the client listens to nothing")


class _Transport(asyncio.Transport):
    """The client's end of a connection to a scripted broker; responses arrive in order."""

    def __init__(self, broker: ScriptedBroker, protocol: Any, address: Address) -> None:
        super().__init__({"peername": (address.host, address.port)})
        self._broker = broker
        self._protocol = protocol
        self._buffer = bytearray()
        self._closing = False
        self._queue: asyncio.Queue[memoryview] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        self._worker = loop.create_task(self._serve(), name=f"broker {broker.node_id}")
        self._worker.add_done_callback(self._served)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def write(self, data: Any) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < 4 + size:
                return
            self._queue.put_nowait(memoryview(bytes(self._buffer[4 : 4 + size])))
            del self._buffer[: 4 + size]

    def writelines(self, parts: Any) -> None:
        for part in parts:
            self.write(part)

    def close(self) -> None:
        self.lose(None)

    def abort(self) -> None:
        self.lose(None)

    def lose(self, error: Exception | None) -> None:
        if self._closing:
            return
        self._closing = True
        self._worker.cancel()
        if self in self._broker.transports:
            self._broker.transports.remove(self)
        asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)

    def _served(self, worker: asyncio.Task[None]) -> None:
        # A bug in a test's handler must not look like a broker that does not respond.
        if not worker.cancelled() and (error := worker.exception()) is not None:
            self._broker.cluster.mistakes.append(error)
            self.lose(None)

    async def _serve(self) -> None:
        cluster = self._broker.cluster
        while True:
            frame = await self._queue.get()
            await asyncio.sleep(cluster.latency)
            if self._broker.mood is Mood.SILENT:
                continue
            if self._broker.mood is Mood.NOT_KAFKA:
                self._receive(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                continue
            if self._broker.mood is Mood.CLOSING:
                self.lose(None)
                return
            header, request = wire.decode_request(frame)
            response = cluster.answer(self._broker, request, header.api_version)
            if isinstance(response, Awaitable):
                response = await response
            if response is None:
                continue
            parts = wire.encode_response(
                response, version=header.api_version, correlation_id=header.correlation_id
            )
            self._receive(b"".join(bytes(part) for part in parts))

    def _receive(self, data: bytes) -> None:
        position = 0
        while position < len(data) and not self._closing:
            buffer = self._protocol.get_buffer(len(data) - position)
            count = min(len(buffer), len(data) - position)
            buffer[:count] = data[position : position + count]
            position += count
            self._protocol.buffer_updated(count)


def make_engine(cluster: ScriptedCluster, **overrides: object) -> ClusterEngine:
    """Return an engine whose bootstrap addresses are those of all current brokers."""
    values = {"bootstrap_servers": cluster.bootstrap_servers} | overrides
    return ClusterEngine(ClusterValues.given(values), cluster.environment)


def simulate(main: Callable[[ScriptedCluster], Coroutine[Any, Any, T]], *, brokers: int = 3) -> T:
    """Run `main` against a scripted cluster in virtual time and fail on any unhandled error."""
    loop = SimLoop(limit=3600)
    cluster = ScriptedCluster(loop, brokers)
    try:
        result = loop.run_until_complete(main(cluster))
        assert not loop.errors, loop.errors
        return result
    finally:
        for mistake in cluster.mistakes:
            raise mistake
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.close()
