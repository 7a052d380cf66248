"""Quotas on `aiokq broker` and on Apache Kafka: Kafka's tools, and the rates that clients get."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

import pytest

from aiokq import Admin, ClientQuotaEntity, Cluster
from aiokq.wire import ApiVersionsRequest, encode_request
from tests.peers.apache_kafka import ApacheKafka, run_tool, why_absent
from tests.peers.broker_process import BrokerProcess, broker_process

REASON = why_absent()
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
    pytest.mark.timeout(600),  # a start of Java may take many seconds
]

WINDOW = 11.0
MEASURED = 3 * WINDOW
"""Three windows: a client that sends as fast as it may sends most of it when a window begins, and a
time that is no multiple of it would have one such moment more or less, on both brokers.
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker_process(tmp_path_factory.mktemp("broker"), "--profile", "dev") as running:
        yield running


def configs(broker: BrokerProcess, *arguments: str, code: int = 0) -> str:
    """Run kafka-configs; return its output."""
    done = run_tool(
        "kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap_servers, *arguments
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


CLIENT = ("--entity-type", "clients", "--entity-name", "app")
ADDRESS = ("--entity-type", "ips", "--entity-name", "10.1.2.3")


def test_kafka_configs_sets_describes_and_removes_quotas(broker: BrokerProcess) -> None:
    """Of clients, clients of users and addresses, and their defaults, as on Apache Kafka."""
    rates = "producer_byte_rate=1048576,request_percentage=50.5"
    set_ = configs(broker, "--alter", *CLIENT, "--add-config", rates)
    assert "Completed updating config for client app." in set_
    default = ("--entity-type", "clients", "--entity-default")
    configs(broker, "--alter", *default, "--add-config", "consumer_byte_rate=2048")
    users = ("--entity-type", "users", "--entity-name", "alice")
    configs(
        broker, "--alter", *users, *CLIENT, "--add-config", "controller_mutation_rate=0.5"
    )  # fmt: skip
    configs(broker, "--alter", *ADDRESS, "--add-config", "connection_creation_rate=7")

    described = configs(broker, "--describe", *CLIENT)
    assert "Quota configs for client-id 'app' are" in described
    assert "producer_byte_rate=1048576.0" in described
    assert "request_percentage=50.5" in described
    described = configs(broker, "--describe", "--entity-type", "clients")
    assert re.search(r"default client-id are consumer_byte_rate=2048\.0", described)
    described = configs(broker, "--describe", *ADDRESS)
    assert "connection_creation_rate=7.0" in described
    described = configs(broker, "--describe", *users, *CLIENT)
    assert "controller_mutation_rate=0.5" in described

    refused = configs(
        broker, "--alter", *CLIENT, "--add-config", "producer_byte_rate=0", code=1
    )  # fmt: skip
    assert "Quota producer_byte_rate must be greater than 0" in refused
    configs(broker, "--alter", *CLIENT, "--delete-config", "producer_byte_rate,request_percentage")
    assert "producer_byte_rate" not in configs(broker, "--describe", *CLIENT)
    configs(broker, "--alter", *ADDRESS, "--delete-config", "connection_creation_rate")


PRODUCED = CONSUMED = 500_000
PARTITIONS = 2.0
CONNECTIONS = 20


@contextlib.asynccontextmanager
async def limited(admin: Admin, entity: ClientQuotaEntity, key: str, rate: float) -> (
    AsyncIterator[None]
):  # fmt: skip
    await admin.alter_client_quotas({entity: {key: rate}}, raise_errors=True)
    try:
        yield
    finally:
        await admin.alter_client_quotas({entity: {key: None}}, raise_errors=True)


class Meter:
    """What arrived in the three windows after the first one."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.total = 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def over(self) -> bool:
        return self.seconds >= WINDOW + MEASURED

    def count(self, n: int) -> None:
        if WINDOW <= self.seconds < WINDOW + MEASURED:
            self.total += n

    @property
    def rate(self) -> float:
        return self.total / MEASURED


class Measured(NamedTuple):
    """Rates after the first window, and how long another client waited for an answer."""

    produced: float
    consumed: float
    created: float
    wait: float


async def measured(servers: str, topic: str) -> Measured:
    """Return what clients with quotas get of a broker."""
    async with Admin(servers) as admin, contextlib.AsyncExitStack() as quotas:
        await admin.create_topics([topic, f"{topic}-read", f"{topic}-other"], raise_errors=True)
        async with Cluster(servers) as cluster, cluster.producer() as producer:
            for _ in range(60):
                for _ in range(1000):
                    producer.send_nowait(f"{topic}-read", b"x" * 1000)
                await producer.flush()
        for key, rate in (
            ("producer_byte_rate", PRODUCED),
            ("consumer_byte_rate", CONSUMED),
            ("controller_mutation_rate", PARTITIONS),
        ):
            entity = ClientQuotaEntity(client_id=f"{topic}-{key}")
            await quotas.enter_async_context(limited(admin, entity, key, rate))
        produced, consumed, created = Meter(), Meter(), Meter()
        waits: list[float] = []

        async def produce() -> None:
            async with (
                Cluster(servers, client_id=f"{topic}-producer_byte_rate") as cluster,
                cluster.producer(acks=1, enable_idempotence=False) as producer,
            ):
                while not produced.over:
                    deliveries = [producer.send_nowait(topic, b"x" * 1000) for _ in range(20)]
                    for delivery in deliveries:
                        await delivery
                        produced.count(1010)

        async def consume() -> None:
            async with (
                Cluster(servers, client_id=f"{topic}-consumer_byte_rate") as cluster,
                cluster.consumer(f"{topic}-read", auto_offset_reset="earliest") as consumer,
            ):
                async for _ in consumer:
                    consumed.count(1010)
                    if consumed.over:
                        break

        async def create() -> None:
            async with Admin(servers, client_id=f"{topic}-controller_mutation_rate") as changing:
                n = 0
                while not created.over:
                    done = await changing.create_topics(f"{topic}-{n}", timeout=20)
                    if done.ok:
                        created.count(1)  # one partition
                        n += 1

        async def other() -> None:
            async with (
                Cluster(servers, client_id=f"{topic}-other") as cluster,
                cluster.producer(linger_ms=0) as producer,
            ):
                while not produced.over:
                    began = time.monotonic()
                    await producer.send(f"{topic}-other", b"x")
                    waits.append(time.monotonic() - began)
                    await asyncio.sleep(0.1)

        await asyncio.gather(produce(), consume(), create(), other())
        return Measured(produced.rate, consumed.rate, created.rate, sorted(waits)[len(waits) // 2])


async def test_bytes_and_partitions_keep_to_their_rates_as_on_apache_kafka(
    broker: BrokerProcess, apache: ApacheKafka, topic: str
) -> None:
    """Within 10 % after the first window, of the quotas and of each other; others do not wait."""
    ours, theirs = await asyncio.gather(
        measured(broker.bootstrap_servers, topic), measured(apache.bootstrap_servers, topic)
    )
    for found in (ours, theirs):
        assert found.produced == pytest.approx(PRODUCED, rel=0.1)
        assert found.consumed == pytest.approx(CONSUMED, rel=0.1)
        assert found.created == pytest.approx(PARTITIONS, rel=0.1)
    assert ours[:3] == pytest.approx(theirs[:3], rel=0.1)
    assert ours.wait < 0.1


async def opened_connections(servers: str) -> float:
    """Return the rate at which new connections of this machine are accepted."""
    host, _, port = servers.partition(",")[0].rpartition(":")
    frame = b"".join(
        map(bytes, encode_request(ApiVersionsRequest(), version=0, correlation_id=1, client_id="c"))
    )
    async with Admin(servers) as admin:
        await admin.describe_cluster()
        entity = ClientQuotaEntity(ip="127.0.0.1")
        async with limited(admin, entity, "connection_creation_rate", CONNECTIONS):
            opened = Meter()

            async def connect() -> None:
                while not opened.over:
                    with contextlib.suppress(OSError, EOFError):
                        reader, writer = await asyncio.open_connection(host, int(port))
                        try:
                            writer.write(frame)
                            await reader.readexactly(4)
                            opened.count(1)
                        finally:
                            writer.close()
                    await asyncio.sleep(0.2)

            await asyncio.gather(*(connect() for _ in range(20)))
            return opened.rate


async def test_new_connections_keep_to_their_rate_as_on_apache_kafka(
    broker: BrokerProcess, apache: ApacheKafka
) -> None:
    """Within 10 % after the first window, of the quota and of each other."""
    ours, theirs = await asyncio.gather(
        opened_connections(broker.bootstrap_servers), opened_connections(apache.bootstrap_servers)
    )
    assert ours == pytest.approx(CONNECTIONS, rel=0.1)
    assert theirs == pytest.approx(CONNECTIONS, rel=0.1)
    assert ours == pytest.approx(theirs, rel=0.1)
