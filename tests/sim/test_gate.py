"""A node that denies or throttles pipelined requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from aiokq import wire
from aiokq.broker.config.listeners import Listeners
from aiokq.broker.config.settings import broker_settings
from aiokq.broker.handlers import APIS
from aiokq.broker.node import BrokerNode
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.connection.framing import FrameReader
from aiokq.connection.request_context import RequestContext
from aiokq.core.environment import Address
from aiokq.core.errors import TopicAuthorization
from tests.sim.harness.simulation import Simulation, run
from tests.unit.broker.every_request import every_request
from tests.unit.broker.harness import batch

BROKER, CLIENT, PORT = "broker", "client", 9092


class Denying:
    """Denies everything."""

    asks_caller = False

    def authorize(
        self,
        connection: RequestContext,
        operation: Operation,
        resource_type: ResourceType,
        names: Collection[str],
    ) -> Collection[str]:
        return ()

    def authorize_any(
        self, connection: RequestContext, operation: Operation, resource_type: ResourceType
    ) -> bool:
        return False

    def operations(self, connection: RequestContext, resource_type: ResourceType, name: str) -> int:
        return 0


class Slow:
    """Throttles each request by ten seconds."""

    def throttle_ms(
        self,
        connection: RequestContext,
        api_key: int,
        client_id: str | None,
        nbytes: int,
        *,
        answered: bool,
        in_login: bool,
    ) -> int:
        return 10_000

    def fetch_bytes(self, connection: RequestContext, client_id: str | None) -> int:
        return 2**31 - 1

    def fetched(self, connection: RequestContext, client_id: str | None, nbytes: int) -> int:
        return 0

    def mutations(
        self, connection: RequestContext, client_id: str | None, *, is_strict: bool
    ) -> None:
        return None


class Client(asyncio.BufferedProtocol):
    """Sends frames and collects the responses with their arrival times."""

    def __init__(self) -> None:
        self.reader = FrameReader()
        self.answers: list[tuple[float, bytes]] = []
        self.got = asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        now = asyncio.get_running_loop().time()
        self.answers += [(now, bytes(frame)) for frame in self.reader.buffer_updated(nbytes)]
        self.got.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.got.set()

    async def receive(self, count: int) -> list[tuple[float, bytes]]:
        async with asyncio.timeout(3600):
            while len(self.answers) < count:
                self.got.clear()
                await self.got.wait()
        return self.answers


@asynccontextmanager
async def broker(world: Simulation) -> AsyncIterator[tuple[BrokerNode, Client]]:
    node = BrokerNode(
        broker_settings({"offsets_topic_num_partitions": 1}, profile="dev"),
        world.environment(BROKER),
        data_dir="/data",
        listeners=Listeners.plaintext(BROKER, PORT),
    )
    await node.start()
    try:
        network = world.network.at(CLIENT)
        _, client = await network.connect(Client, Address(BROKER, PORT))
        yield node, client
    finally:
        await node.close()


def encoded(request: wire.Request[wire.Response], version: int, number: int) -> bytes:
    fragments = wire.encode_request(
        request, version=version, correlation_id=number, client_id="client"
    )
    return b"".join(map(bytes, fragments))


def test_pipelined_denied_requests_are_answered_in_order_and_change_nothing() -> None:
    """One write has all APIs and versions; Produce requests with acks=-1 or 1 are ordinary."""

    async def main(world: Simulation) -> None:
        async with broker(world) as (node, client):
            await node.metadata.create_topic_if_allowed("secret", allowed=True)
            topic = node.topics.get("secret")
            assert topic is not None
            node.gate.authorizer = Denying()
            frames = [
                encoded(request, version, 1000 * key + version)
                for key, api in APIS.items()
                for version in range(3 if key == 0 else api.min_version, api.max_version + 1)
                for request in every_request(
                    key, version, ["secret"], {"secret": topic.topic_id}, "g"
                )
            ]
            client.transport.write(b"".join(frames))
            answers = await client.receive(len(frames))
            sent = [int.from_bytes(frame[8:12], "big") for frame in frames]
            assert [int.from_bytes(answer[:4], "big") for _, answer in answers] == sent
            [partition] = topic.partitions
            assert partition.log.log_end_offset == 0
            assert [one.name for one in node.topics.sorted()] == ["secret"]
            assert node.topics.get("secret") is topic
            assert node.counters.batches_appended == node.counters.offsets_committed == 0
            assert not node.group_coordinator.active_shards()

    run(1, main)


def test_pipelined_produce_requests_are_refused_once_denied() -> None:
    """The requests after the change of permissions have already been received."""

    async def main(world: Simulation) -> None:
        async with broker(world) as (node, client):
            await node.metadata.create_topic_if_allowed("secret", allowed=True)
            request = every_request(0, 9, ["secret"], {}, "g")[0]
            client.transport.write(b"".join(encoded(request, 9, n) for n in range(5)))
            await client.receive(5)
            node.gate.authorizer = Denying()
            client.transport.write(b"".join(encoded(request, 9, n) for n in range(5, 10)))
            answers = await client.receive(10)
            errors = []
            for _, answer in answers:
                _, response = wire.decode_response(wire.ProduceResponse, answer, 9)
                errors.append(response.responses[0].partition_responses[0].error_code)
            assert errors == [0] * 5 + [TopicAuthorization.code] * 5
            partition = node.topics.partition("secret", 0)
            assert partition is not None
            assert partition.log.log_end_offset == 5

    run(1, main)


def test_a_throttled_client_gets_its_response_and_its_next_request_waits() -> None:
    """KIP-219: the response has the throttle time, during which no further request is handled."""

    async def main(world: Simulation) -> None:
        async with broker(world) as (node, client):
            await node.metadata.create_topic_if_allowed("t", allowed=True)
            node.gate.quotas = Slow()
            began = asyncio.get_running_loop().time()
            produce = every_request(0, 9, ["t"], {}, "g")[0]
            quiet = wire.ProduceRequest(
                acks=0,
                timeout_ms=1000,
                topic_data=[
                    wire.TopicProduceData(
                        name="t",
                        partition_data=[wire.PartitionProduceData(index=0, records=batch())],
                    )
                ],
            )
            versions = wire.ApiVersionsRequest()
            client.transport.write(
                encoded(produce, 9, 0)
                + encoded(quiet, 9, 1)
                + encoded(versions, 0, 2)
                + encoded(versions, 1, 3)
            )
            answers = await client.receive(3)
            waited = [round(at - began) // 10 for at, _ in answers]
            assert waited == [0, 2, 3]
            _, response = wire.decode_response(wire.ProduceResponse, answers[0][1], 9)
            assert response.throttle_time_ms == 10_000

    run(1, main)
