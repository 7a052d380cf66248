"""A scripted Kafka: nodes on real connections of aiokq.connection, with responses by the test.

It shows what a single broker cannot: leader changes, KIP-392, KIP-320, errors, delays, silence.

    async with ScriptedCluster(nodes=3, environment=environment) as kafka:
        kafka.topics["orders"] = ScriptedTopic(leaders=[1, 2])
        kafka[1].on(ProduceRequest, lambda request, call: ProduceResponse(...))
        kafka[1].script(ProduceRequest, Close(), Delay(2.0, ProduceResponse(...)))
        ...
        assert [seen.request for seen in kafka[1].seen_of(ProduceRequest)] == ...

An answer is a response, `Delay`, `Close`, `Silence`, `Raw`, or `None` for no response. A handler is
a function of (request, call) that returns an answer, or an awaitable of one. Scripted answers are
used first, one per request. ApiVersions and Metadata are answered from `node.versions` and
`kafka.topics` unless the test sets its own handler.
"""

from __future__ import annotations

import asyncio
import inspect
import ssl as ssl_module
import uuid
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from aiokq import wire
from aiokq.connection.network import system_environment
from aiokq.connection.server import CloseConnection, RequestContext, Server, ServerLimits
from aiokq.connection.server_security import PLAINTEXT_SERVER, ServerSecurity
from aiokq.connection.tls.tls_contexts import TlsContexts
from aiokq.core.counters import BrokerCounters
from aiokq.core.environment import Environment

R = TypeVar("R", bound=wire.Response)
Q = TypeVar("Q", bound="wire.Request[wire.Response]")

UNSUPPORTED_VERSION = 35
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
UNKNOWN_TOPIC_ID = 100


@dataclass(frozen=True)
class Delay:
    """Respond after a delay, during which the connection handles no other request."""

    seconds: float
    answer: Answer


@dataclass(frozen=True)
class Close:
    """Close the connection instead of answering."""


@dataclass(frozen=True)
class Silence:
    """Never respond; the connection stays open until the client closes it."""


@dataclass(frozen=True)
class Raw:
    """Send these bytes unchanged: wrong sizes, wrong correlation ids, other protocols."""

    data: bytes


Answer: TypeAlias = "wire.Response | Delay | Close | Silence | Raw | None"


@dataclass(frozen=True)
class Seen:
    """One received request."""

    request: wire.Request[wire.Response]
    version: int
    client_id: str | None
    connection_id: int
    at: float
    """The loop's time when the request was received."""


@dataclass
class Call:
    """The parts of a request that a handler gets besides its content."""

    node: ScriptedNode
    header: wire.RequestHeader
    context: RequestContext

    @property
    def version(self) -> int:
        return self.header.api_version


Handler: TypeAlias = "Callable[[wire.Request[wire.Response], Call], Answer | Awaitable[Answer]]"


@dataclass
class ScriptedTopic:
    """The state of a topic in Metadata responses.

    Attributes:
        leaders: leader of each partition; -1 for none.
        epochs: leader epoch of each partition; 0 by default.
        replicas: replicas of all partitions; all nodes by default.
    """

    leaders: list[int]
    epochs: list[int] = field(default_factory=list)
    replicas: list[int] | None = None
    topic_id: uuid.UUID = field(default_factory=uuid.uuid4)
    internal: bool = False

    def epoch(self, partition: int) -> int:
        return self.epochs[partition] if partition < len(self.epochs) else 0

    def move(self, partition: int, leader: int) -> None:
        """Elect another leader, in a higher leader epoch."""
        self.epochs = [self.epoch(p) for p in range(len(self.leaders))]
        self.epochs[partition] += 1
        self.leaders[partition] = leader


class ScriptedNode:
    """One broker of a scripted cluster.

    Attributes:
        node_id: its id.
        seen: all received requests, oldest first.
        versions: (oldest, newest) by API key for ApiVersions; by default all that aiokq knows.
        names_range: whether the error for an unsupported ApiVersions version includes the supported
            range, as since Kafka 2.4.
        rack: the rack in Metadata.
    """

    def __init__(self, cluster: ScriptedCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.seen: list[Seen] = []
        self.versions: dict[int, tuple[int, int]] = {
            key: (wire.api(key).MIN_VERSION, wire.api(key).MAX_VERSION) for key in wire.API_NAMES
        }
        self.names_range = True
        self.rack: str | None = None
        self.counters = BrokerCounters(name=str(node_id))
        self._handlers: dict[int, Handler] = {
            wire.ApiVersionsRequest.API_KEY: self._api_versions,
            wire.MetadataRequest.API_KEY: self._metadata,
        }
        self._scripts: defaultdict[int, deque[Answer | Handler]] = defaultdict(deque)
        self._server: Server | None = None
        self._port = 0

    @property
    def port(self) -> int:
        return self._port

    @property
    def up(self) -> bool:
        return self._server is not None

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return 0 if self._server is None else self._server.connections

    def on(self, request_class: type[wire.Request[R]], handler: Handler | Answer) -> None:
        """Answer all requests of an API with `handler`."""
        self._handlers[request_class.API_KEY] = _as_handler(handler)

    def script(self, request_class: type[wire.Request[R]], *answers: Answer | Handler) -> None:
        """Answer the next requests of an API with `answers`, one each; later requests as before."""
        self._scripts[request_class.API_KEY].extend(answers)

    def scripted(self, request_class: type[wire.Request[R]]) -> int:
        """Return how many scripted answers are left."""
        return len(self._scripts[request_class.API_KEY])

    def seen_of(self, request_class: type[Q]) -> list[Q]:
        """The requests of one API, oldest first."""
        return [seen.request for seen in self.seen if isinstance(seen.request, request_class)]

    async def start(self) -> None:
        """Listen; after `stop`, on the same port again."""
        cluster = self.cluster
        server = Server(
            cluster.environment.network,
            cluster.host,
            self._port,
            self,
            clock=cluster.environment.clock,
            counters=self.counters,
            limits=cluster.limits,
            security=(
                PLAINTEXT_SERVER
                if cluster.ssl is None
                else ServerSecurity(tls=TlsContexts.fixed(cluster.ssl))
            ),
        )
        await server.start()
        self._server = server
        self._port = server.port

    async def stop(self) -> None:
        """Go down at once: close all connections and stop listening."""
        server, self._server = self._server, None
        if server is not None:
            await server.close(drain=0)

    async def handle(
        self, context: RequestContext, frame: memoryview
    ) -> Sequence[wire.Fragment] | None:
        """Handle a request for the Server as scripted."""
        header = wire.decode_request_header(frame)
        oldest, newest = self.versions.get(header.api_key, (0, -1))
        if not oldest <= header.api_version <= newest:
            if header.api_key == wire.ApiVersionsRequest.API_KEY:
                return self._refuse_api_versions(header)
            raise CloseConnection(f"{header} is not supported")
        _, request = wire.decode_request(frame)
        loop = asyncio.get_running_loop()
        self.seen.append(
            Seen(request, header.api_version, header.client_id, context.connection_id, loop.time())
        )
        script = self._scripts[header.api_key]
        chosen: Answer | Handler = (
            script.popleft() if script else self._handlers.get(header.api_key, Close())
        )
        answer = _as_handler(chosen)(request, Call(self, header, context))
        if inspect.isawaitable(answer):
            answer = await answer
        return await self._encode(answer, header, context)

    async def _encode(
        self, answer: Answer, header: wire.RequestHeader, context: RequestContext
    ) -> Sequence[wire.Fragment] | None:
        while isinstance(answer, Delay):
            await asyncio.sleep(answer.seconds)
            answer = answer.answer
        if isinstance(answer, Close):
            raise CloseConnection("scripted")
        if isinstance(answer, Silence):
            gone = asyncio.Event()
            context.on_disconnect(gone.set)
            await gone.wait()
            return None
        if isinstance(answer, Raw):
            return [answer.data]
        if answer is None:
            return None
        return wire.encode_response(
            answer, version=header.api_version, correlation_id=header.correlation_id
        )

    def _api_versions(self, request: wire.Request[wire.Response], call: Call) -> Answer:
        return wire.ApiVersionsResponse(
            api_keys=[
                wire.ApiVersion(api_key=key, min_version=oldest, max_version=newest)
                for key, (oldest, newest) in sorted(self.versions.items())
            ]
        )

    def _refuse_api_versions(self, header: wire.RequestHeader) -> Sequence[wire.Fragment]:
        oldest, newest = self.versions[header.api_key]
        own = wire.ApiVersion(api_key=header.api_key, min_version=oldest, max_version=newest)
        refusal = wire.ApiVersionsResponse(
            error_code=UNSUPPORTED_VERSION, api_keys=[own] if self.names_range else []
        )
        return wire.encode_response(refusal, version=0, correlation_id=header.correlation_id)

    def _metadata(self, request: wire.Request[wire.Response], call: Call) -> Answer:
        assert isinstance(request, wire.MetadataRequest)
        return self.cluster.metadata(request)


class ScriptedCluster:
    """Several scripted nodes that share their metadata.

    Attributes:
        topics: topics in Metadata responses; tests may change them at any time.
        controller_id: as in Metadata.
        nodes: nodes by id, from 1.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        environment: Environment | None = None,
        host: str = "127.0.0.1",
        limits: ServerLimits | None = None,
        ssl: ssl_module.SSLContext | None = None,
    ) -> None:
        self.ssl = ssl
        self.environment = environment or system_environment()
        self.host = host
        self.limits = limits
        self.topics: dict[str, ScriptedTopic] = {}
        self.cluster_id = "scripted"
        self.nodes = {node_id: ScriptedNode(self, node_id) for node_id in range(1, nodes + 1)}
        self.controller_id = 1

    def __getitem__(self, node_id: int) -> ScriptedNode:
        return self.nodes[node_id]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{self.host}:{node.port}" for node in self.nodes.values())

    def on(self, request_class: type[wire.Request[R]], handler: Handler | Answer) -> None:
        """Answer an API with `handler` on all nodes."""
        for node in self.nodes.values():
            node.on(request_class, handler)

    async def __aenter__(self) -> ScriptedCluster:
        for node in self.nodes.values():
            await node.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for node in self.nodes.values():
            await node.stop()

    def metadata(self, request: wire.MetadataRequest) -> wire.MetadataResponse:
        """Return the Metadata response with the running nodes and the requested topics."""
        ids = {topic.topic_id: name for name, topic in self.topics.items()}
        answers = []
        if request.topics is None:
            answers = [self._topic(name, topic) for name, topic in self.topics.items()]
        else:
            for asked in request.topics:
                by_id = asked.name is None
                name = ids.get(asked.topic_id) if by_id else asked.name
                topic = self.topics.get(name) if name is not None else None
                if topic is None or name is None:
                    code = UNKNOWN_TOPIC_ID if by_id else UNKNOWN_TOPIC_OR_PARTITION
                    answers.append(
                        wire.MetadataResponseTopic(
                            error_code=code, name=asked.name, topic_id=asked.topic_id
                        )
                    )
                else:
                    answers.append(self._topic(name, topic))
        return wire.MetadataResponse(
            brokers=[
                wire.MetadataResponseBroker(
                    node_id=node.node_id, host=self.host, port=node.port, rack=node.rack
                )
                for node in self.nodes.values()
                if node.up
            ],
            cluster_id=self.cluster_id,
            controller_id=self.controller_id,
            topics=answers,
        )

    def _topic(self, name: str, topic: ScriptedTopic) -> wire.MetadataResponseTopic:
        replicas = list(self.nodes) if topic.replicas is None else topic.replicas
        return wire.MetadataResponseTopic(
            name=name,
            topic_id=topic.topic_id,
            is_internal=topic.internal,
            partitions=[
                wire.MetadataResponsePartition(
                    error_code=LEADER_NOT_AVAILABLE if leader < 0 else 0,
                    partition_index=partition,
                    leader_id=leader,
                    leader_epoch=topic.epoch(partition),
                    replica_nodes=list(replicas),
                    isr_nodes=list(replicas),
                    offline_replicas=[n for n in replicas if not self.nodes[n].up],
                )
                for partition, leader in enumerate(topic.leaders)
            ],
        )


def _as_handler(answer: Handler | Answer) -> Handler:
    if callable(answer):
        return answer
    return lambda request, call: answer
