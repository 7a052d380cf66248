"""Quotas of users that have logged in by SASL: other clients are throttled, and say so.

Java's clients are in `test_quotas.py` and `test_sasl_on_broker.py`; aiokafka has no metric of
throttle times.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from aiokq import Admin, ClientQuotaEntity, EmbeddedCluster, QuotaName

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # kafka-python leaves sockets open, which a later test would be blamed for.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

USERS = {name: f"{name}-secret" for name in ("admin", "alice", "bob", "carol", "dave")}
SIZE = 30_000
RATE = 2_500.0
"""At this rate, a record of `SIZE` bytes is throttled for two seconds."""


@pytest.fixture
def kafka() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(users=USERS) as running:
        yield running


def set_quota(kafka: EmbeddedCluster, entity: ClientQuotaEntity, **values: float | None) -> None:
    async def main() -> None:
        async with Admin(**kafka.client_settings("admin")) as admin:
            await admin.alter_client_quotas({entity: values}, raise_errors=True)

    asyncio.run(main())


def librdkafka(server: str, user: str, client_id: str) -> float:
    """Send a record; return the throttle time that the client reports, in seconds."""
    from confluent_kafka import Producer

    told: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": server,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": user,
            "sasl.password": USERS[user],
            "client.id": client_id,
            "linger.ms": 0,
            "throttle_cb": lambda event: told.append(event.throttle_time),
        }
    )
    producer.produce("t", b"x" * SIZE)
    assert producer.flush(10) == 0
    deadline = time.monotonic() + 3
    while not told and time.monotonic() < deadline:
        producer.poll(0.1)
    return told[0] if told else 0.0


def kafka_python(server: str, user: str, client_id: str) -> float:
    """Send a record; return the throttle time that the client's metrics show, in seconds."""
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=server,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=user,
        sasl_plain_password=USERS[user],
        client_id=client_id,
    )
    try:
        producer.send("t", b"x" * SIZE).get(10)
        metrics = producer.metrics()["producer-metrics"]
        found = metrics["throttle-time-max"]
        return 0.0 if found != found or found < 0 else found / 1000
    finally:
        producer.close()


@pytest.mark.parametrize("client", [librdkafka, kafka_python])
def test_a_client_is_throttled_as_its_user_and_reports_it(
    kafka: EmbeddedCluster, client: Callable[[str, str, str], float]
) -> None:
    """The user's own quota, that of its client id before it, and the default for other users."""
    server = kafka.bootstrap_servers
    set_quota(kafka, ClientQuotaEntity(user="alice"), producer_byte_rate=RATE)
    assert client(server, "bob", "app") == 0
    assert client(server, "alice", "app") == pytest.approx(2, abs=0.2)
    assert kafka.node.counters.throttled["producer_byte_rate"] >= 1

    both = ClientQuotaEntity(user="carol", client_id="app")
    set_quota(kafka, ClientQuotaEntity(user="carol"), producer_byte_rate=1e9)
    set_quota(kafka, both, producer_byte_rate=RATE)
    assert client(server, "carol", "other") == 0
    assert client(server, "carol", "app") == pytest.approx(2, abs=0.2)

    set_quota(kafka, ClientQuotaEntity(user=QuotaName.DEFAULT), producer_byte_rate=RATE)
    assert client(server, "dave", "app") == pytest.approx(2, abs=0.2)
