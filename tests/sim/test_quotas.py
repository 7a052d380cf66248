"""Clients with quotas on a virtual clock: they keep to their rates, and others are not affected."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager

import pytest

import aiokq
from aiokq import wire
from aiokq.broker.config.listeners import Listeners
from aiokq.broker.config.settings import broker_settings
from aiokq.broker.metadata.controller.quota_changes import QuotaChange
from aiokq.broker.node import BrokerNode
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.connection.principal import Principal
from aiokq.connection.request_context import RequestContext
from aiokq.core.environment import Address
from tests.sim.harness.loop import SimClock, SimLoop
from tests.sim.harness.simulation import Simulation, run
from tests.sim.test_gate import PORT, Client, encoded
from tests.unit.broker.harness import batch

BROKER, PEER, OTHER = "10.0.0.1", "10.0.0.2", "10.0.0.3"
WINDOW = 11.0
MEASURED = 3 * WINDOW
"""Three windows: a client that sends as fast as it may sends most of it when a window begins, and a
time that is no multiple of it would have one such moment more or less.
"""


@asynccontextmanager
async def broker(world: Simulation, **settings: object) -> AsyncIterator[BrokerNode]:
    node = BrokerNode(
        broker_settings({"offsets_topic_num_partitions": 1, **settings}, profile="dev"),
        world.environment(BROKER),
        data_dir="/data",
        listeners=Listeners.plaintext(BROKER, PORT),
    )
    await node.start()
    try:
        yield node
    finally:
        await node.close()


async def limit(
    node: BrokerNode, values: Mapping[str, float | None], *entity: tuple[str, str | None]
) -> None:
    change = QuotaChange(entity, list(values.items()))
    assert await node._quotas.alter([change], validate_only=False) == [None]


async def connect(world: Simulation, host: str = PEER) -> Client:
    _, client = await world.network.at(host).connect(Client, Address(BROKER, PORT))
    return client


class Asking:
    """A client that sends its next request as soon as the last one is answered."""

    def __init__(self, client: Client, client_id: str) -> None:
        self.client = client
        self.client_id = client_id
        self.asked = 0

    async def ask(self, request: wire.Request[wire.Response], version: int) -> tuple[float, bytes]:
        """Return the time of the response, and its frame."""
        fragments = wire.encode_request(
            request, version=version, correlation_id=self.asked, client_id=self.client_id
        )
        self.asked += 1
        self.client.transport.write(b"".join(map(bytes, fragments)))
        answers = await self.client.receive(self.asked)
        return answers[-1]


def produce(size: int) -> wire.ProduceRequest:
    return wire.ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            wire.TopicProduceData(
                name="t",
                partition_data=[
                    wire.PartitionProduceData(index=0, records=batch(1, value=b"x" * size))
                ],
            )
        ],
    )


@pytest.mark.parametrize("size", [3_000, 20_000])
def test_produced_bytes_keep_to_their_rate(size: int) -> None:
    """Within 10 % after the first window; a client without a quota is not delayed."""
    rate = 100_000

    async def main(world: Simulation) -> None:
        async with broker(world) as node:
            await node.metadata.create_topic_if_allowed("t", allowed=True)
            await limit(node, {"producer_byte_rate": float(rate)}, ("client-id", "slow"))
            loop = asyncio.get_running_loop()
            slow = Asking(await connect(world), "slow")
            fast = Asking(await connect(world), "fast")
            began = loop.time()
            counted: list[tuple[float, int]] = []

            async def go() -> None:
                while loop.time() < began + WINDOW + MEASURED + 10:
                    at, _ = await slow.ask(produce(size), 9)
                    counted.append((at - began, size + 120))

            task = asyncio.create_task(go())
            for _ in range(100):
                before = loop.time()
                await fast.ask(produce(size), 9)
                assert loop.time() - before < 0.5
                await asyncio.sleep(0.1)
            await task
            sent = sum(n for at, n in counted if WINDOW <= at < WINDOW + MEASURED)
            assert sent / MEASURED == pytest.approx(rate, rel=0.1)
            assert node.counters.throttled["producer_byte_rate"] > 0

    run(1, main)


def test_a_producer_that_wants_no_answers_keeps_to_its_rate() -> None:
    """With acks=0 there is no response that could tell it to wait; the broker reads no further."""
    rate = 50_000

    async def main(world: Simulation) -> None:
        async with broker(world) as node:
            await node.metadata.create_topic_if_allowed("t", allowed=True)
            await limit(node, {"producer_byte_rate": float(rate)}, ("client-id", "slow"))
            loop = asyncio.get_running_loop()
            client = await connect(world)
            request = produce(10_000)
            request.acks = 0
            fragments = wire.encode_request(request, version=9, correlation_id=1, client_id="slow")
            frame = b"".join(map(bytes, fragments))
            partition = node.topics.partition("t", 0)
            assert partition is not None

            async def send() -> None:
                while True:
                    client.transport.write(frame)
                    await asyncio.sleep(0.01)  # twenty times the rate

            began = loop.time()
            task = asyncio.create_task(send())
            await asyncio.sleep(WINDOW)
            before = partition.log.log_end_offset
            await asyncio.sleep(began + WINDOW + MEASURED - loop.time())
            stored = partition.log.log_end_offset - before
            task.cancel()
            assert stored * len(frame) / MEASURED == pytest.approx(rate, rel=0.1)
            assert node.counters.throttled["producer_byte_rate"] > 0

    run(1, main)


def test_a_consumer_of_aiokq_keeps_to_its_rate_and_reports_it() -> None:
    """It gets all records in order, waits as told, and emits `Throttled`."""
    rate = 50_000

    async def main(world: Simulation) -> None:
        async with broker(world) as node:
            await node.metadata.create_topic_if_allowed("t", allowed=True)
            writer = Asking(await connect(world), "writer")
            for _ in range(400):
                await writer.ask(produce(10_000), 9)
            await limit(node, {"consumer_byte_rate": float(rate)}, ("client-id", "slow"))
            loop = asyncio.get_running_loop()
            began = loop.time()
            arrived: list[tuple[float, int]] = []
            async with aiokq.Cluster(
                f"{BROKER}:{PORT}", client_id="slow", _environment=world.environment(PEER)
            ) as cluster:
                throttled = []

                async def watch() -> None:
                    async for event in cluster.events():
                        if isinstance(event, aiokq.Throttled):
                            throttled.append(event)

                watching = asyncio.create_task(watch())
                async with cluster.consumer("t", auto_offset_reset="earliest") as consumer:
                    offsets = itertools.count()
                    async for message in consumer:
                        assert message.offset == next(offsets)
                        arrived.append((loop.time() - began, len(message.value)))
                        if arrived[-1][0] > WINDOW + MEASURED + 5:
                            break
                watching.cancel()
            received = sum(n for at, n in arrived if WINDOW <= at < WINDOW + MEASURED)
            assert received / MEASURED == pytest.approx(rate, rel=0.1)
            assert throttled
            assert node.counters.throttled["consumer_byte_rate"] > 0

    run(1, main)


def test_created_partitions_keep_to_their_rate() -> None:
    """A client that repeats what was refused creates as many as permitted, within 10 %."""
    rate = 2.0

    async def main(world: Simulation) -> None:
        async with broker(world) as node:
            await limit(node, {"controller_mutation_rate": rate}, ("client-id", "slow"))
            loop = asyncio.get_running_loop()
            slow = Asking(await connect(world), "slow")
            began = loop.time()
            created: list[tuple[float, int]] = []
            names = itertools.count()
            name = next(names)
            while loop.time() < began + WINDOW + MEASURED:
                topic = wire.CreatableTopic(name=f"t{name}", num_partitions=5, replication_factor=1)
                at, frame = await slow.ask(wire.CreateTopicsRequest(topics=[topic]), 7)
                _, response = wire.decode_response(wire.CreateTopicsResponse, frame, 7)
                if response.topics[0].error_code == 0:
                    created.append((at - began, 5))
                    name = next(names)
                else:
                    assert response.topics[0].error_code == 89
                    assert response.throttle_time_ms > 0
            burst = sum(n for at, n in created if at < WINDOW)
            later = sum(n for at, n in created if at >= WINDOW)
            assert burst >= rate * 11
            assert later / MEASURED == pytest.approx(rate, rel=0.1)

    run(1, main)


@pytest.mark.parametrize("by", ["address", "node", "listener"])
def test_new_connections_keep_to_their_rate(by: str) -> None:
    """Whatever limits them; connections from another address are not affected by a quota."""
    rate = 10
    settings: dict[str, object] = {
        "address": {},
        "node": {"max.connection.creation.rate": rate},
        "listener": {"listener.name.plaintext.max.connection.creation.rate": rate},
    }[by]

    async def main(world: Simulation) -> None:
        async with broker(world, **settings) as node:
            if by == "address":
                quota = {"connection_creation_rate": float(rate)}
                await limit(node, quota, ("ip", PEER))
            loop = asyncio.get_running_loop()
            began = loop.time()
            accepted: list[float] = []
            while loop.time() < began + WINDOW + MEASURED + 1:
                before = node.counters.connections_accepted
                client = await connect(world, PEER)
                await asyncio.sleep(0.02)
                if node.counters.connections_accepted > before:
                    accepted.append(loop.time() - began)
                client.transport.close()
            counted = sum(WINDOW <= at < WINDOW + MEASURED for at in accepted)
            assert counted / MEASURED == pytest.approx(rate, rel=0.1)
            assert node.counters.connections_refused > 0
            if by == "address":
                other = await connect(world, OTHER)
                assert await Asking(other, "c").ask(wire.ApiVersionsRequest(), 0)

    run(1, main)


def test_a_changed_limit_of_new_connections_holds_at_once() -> None:
    """The setting can change while the broker runs."""

    async def main(world: Simulation) -> None:
        async with broker(world) as node:
            await node.metadata.alter_broker_configs(
                "",
                lambda present: {**present, "max.connection.creation.rate": "1"},
                named=["max.connection.creation.rate"],
            )
            for _ in range(30):
                await connect(world)
            await asyncio.sleep(0.1)
            assert node.counters.connections_accepted == 10
            assert node.counters.connections_refused == 20

    run(1, main)


async def connect_as(world: Simulation, node: BrokerNode, user: str) -> Client:
    """Return a connection whose client has logged in, as far as the broker knows."""
    [opened] = node.servers._opened
    before = set(opened.server._connections)
    client = await connect(world)
    [accepted] = set(opened.server._connections) - before
    accepted.context.session.principal = Principal.user(user)
    return client


def throttle_ms(frame: bytes) -> int:
    """Return the throttle time of a response to Produce, version 9."""
    _, response = wire.decode_response(wire.ProduceResponse, frame, 9)
    assert response.responses[0].partition_responses[0].error_code == 0
    return response.throttle_time_ms


def test_a_user_and_client_over_its_quota_is_muted_and_others_are_not() -> None:
    """Scenario 39: the response has the throttle time, for which nothing is read from the client.

    The throttle time is that which Apache Kafka 4.2 gave for 700 kB at 50,000 bytes per second.
    Another connection of the same user and client id is read, and throttled in turn.
    """

    async def main(world: Simulation) -> None:
        async with broker(world) as node:
            await node.metadata.create_topic_if_allowed("t", allowed=True)
            pair = (("user", "alice"), ("client-id", "app"))
            await limit(node, {"producer_byte_rate": 50_000.0}, *pair)
            loop = asyncio.get_running_loop()
            muted, second = [
                Asking(await connect_as(world, node, "alice"), "app") for _ in range(2)
            ]
            others = [
                Asking(await connect_as(world, node, user), client_id)
                for user, client_id in (("alice", "other"), ("bob", "app"), ("bob", "other"))
            ]
            wires = world.network.connections(port=PORT)

            began = loop.time()
            at, frame = await muted.ask(produce(700_000), 9)
            assert at - began < 0.1
            told = throttle_ms(frame)
            assert told == pytest.approx(4000, abs=10)
            waiting = asyncio.create_task(muted.ask(produce(1), 9))
            await asyncio.sleep(0.1)
            assert [wire.server.is_reading() for wire in wires] == [False, True, True, True, True]

            at, frame = await second.ask(produce(1), 9)
            assert at - began < 0.3
            assert 0 < throttle_ms(frame) <= told
            while loop.time() < began + told / 1000 - 0.1:
                for other in others:
                    before = loop.time()
                    at, frame = await other.ask(produce(3_000), 9)
                    assert at - before < 0.05
                    assert throttle_ms(frame) == 0
            assert [wire.server.is_reading() for wire in wires] == [False, False, True, True, True]
            assert not waiting.done()
            at, _ = await waiting
            assert at - began == pytest.approx(told / 1000, abs=0.1)

    run(1, main)


class WorkingClock(SimClock):
    """A clock of a machine whose CPU time is counted, not measured.

    Attributes:
        worked: CPU seconds of the work that requests took.
    """

    POLL = 20e-6
    """CPU seconds of an iteration of the loop, besides the work in it."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self.worked = 0.0

    def work(self, seconds: float) -> None:
        """Use CPU time, for as long as it takes."""
        self.worked += seconds
        self._loop.work(seconds)

    def thread_time(self) -> float:
        return self.worked + self._loop.iterations * self.POLL


class Laborious:
    """Permits everything; each decision takes CPU time."""

    asks_caller = False

    def __init__(self, clock: WorkingClock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds

    def authorize(
        self,
        connection: RequestContext,
        operation: Operation,
        resource_type: ResourceType,
        names: Collection[str],
    ) -> Collection[str]:
        self._clock.work(self._seconds)
        return names

    def authorize_any(
        self, connection: RequestContext, operation: Operation, resource_type: ResourceType
    ) -> bool:
        return True

    def operations(self, connection: RequestContext, resource_type: ResourceType, name: str) -> int:
        return 0


@pytest.mark.parametrize("milliseconds", [1, 20])
@pytest.mark.parametrize(("connections", "pipelined"), [(1, 1), (5, 5)])
def test_a_client_gets_ten_percent_of_the_loop(
    milliseconds: float, connections: int, pipelined: int
) -> None:
    """10 +/- 2 % of a thread, with all that the loop does besides; another client does not wait.

    `tests/fault/test_request_quota.py` measures the CPU time of a process.
    """

    async def main(world: Simulation) -> None:
        clock = world.clock = WorkingClock(world.loop)
        async with broker(world) as node:
            await node.metadata.create_topic_if_allowed("t", allowed=True)
            node.gate.authorizer = Laborious(clock, milliseconds / 1000)
            await limit(node, {"request_percentage": 10.0}, ("client-id", "client"))
            loop = asyncio.get_running_loop()
            asked = wire.MetadataRequest(topics=[wire.MetadataRequestTopic(name="t")])

            frame = encoded(asked, 9, 1)

            async def hammer(client: Client) -> None:
                client.transport.write(frame * pipelined)
                for answered in itertools.count(1):
                    await client.receive(answered)
                    client.transport.write(frame)

            tasks = [asyncio.create_task(hammer(await connect(world))) for _ in range(connections)]
            other = Asking(await connect(world), "other")
            await asyncio.sleep(WINDOW)
            began, used, waits = loop.time(), clock.thread_time(), []
            while loop.time() < began + MEASURED:
                before = loop.time()
                at, _ = await other.ask(wire.ApiVersionsRequest(), 0)
                waits.append(at - before)
                await asyncio.sleep(0.1)
            share = (clock.thread_time() - used) / (loop.time() - began)
            for task in tasks:
                task.cancel()
            assert share == pytest.approx(0.10, abs=0.02)
            assert sorted(waits)[len(waits) // 2] < 0.05
            assert node.counters.throttled["request_percentage"] > 0

    run(1, main)
