"""Quotas of users that have logged in by SASL, as a client of aiokq meets them."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from aiokq import (
    Admin,
    ClientQuotaEntity,
    Cluster,
    EmbeddedCluster,
    QuotaName,
    Throttled,
)

MECHANISMS = itertools.cycle(["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
USERS = {name: f"{name}-secret" for name in ("admin", "bob", *(f"user-{n}" for n in range(8)))}
DEFAULT = QuotaName.DEFAULT
SIZE = 30_000
"""Bytes of a record, of which a client sends one; without the 100 to 150 bytes around it."""


def levels(user: str, client_id: str) -> list[ClientQuotaEntity]:
    """Return Kafka's eight levels for a client, the first one with precedence."""
    return [
        ClientQuotaEntity(user=user, client_id=client_id),
        ClientQuotaEntity(user=user, client_id=DEFAULT),
        ClientQuotaEntity(user=user),
        ClientQuotaEntity(user=DEFAULT, client_id=client_id),
        ClientQuotaEntity(user=DEFAULT, client_id=DEFAULT),
        ClientQuotaEntity(user=DEFAULT),
        ClientQuotaEntity(client_id=client_id),
        ClientQuotaEntity(client_id=DEFAULT),
    ]


def rate_for(seconds: float) -> float:
    """Return the rate at which one record is throttled for some seconds, in whole bytes."""
    return float(int(SIZE / (10 + seconds)))


async def throttled(client: dict[str, str], *, client_id: str) -> tuple[float, float]:
    """Send a record; return the throttle time by the event and by the metric, in seconds."""
    async with Cluster(**client, client_id=client_id) as cluster:
        events = cluster.events()
        async with cluster.producer(linger_ms=0) as producer:
            await producer.send("t", b"x" * SIZE)
            async with asyncio.timeout(10):
                async for event in events:
                    if isinstance(event, Throttled):
                        counted = cluster.counters.throttle_seconds
                        return event.throttle_ms / 1000, counted
    raise AssertionError


async def test_the_eight_levels_hold_for_users_that_have_logged_in() -> None:
    """Each user has the quota of its first level, whatever the later ones say."""
    async with EmbeddedCluster(users=USERS) as kafka:
        client = kafka.client_settings("admin")
        async with Admin(**client) as admin:
            await admin.create_topics("t", raise_errors=True)
            for first in range(8):
                user, client_id = f"user-{first}", f"client-{first}"
                entities = levels(user, client_id)
                seconds = [0.3 + 0.2 * level for level in range(8)]
                await admin.alter_client_quotas(
                    {
                        entity: {"producer_byte_rate": rate_for(seconds[level])}
                        for level, entity in enumerate(entities)
                        if level >= first
                    },
                    raise_errors=True,
                )
                login = kafka.client_settings(user, mechanism=next(MECHANISMS))
                told, counted = await throttled(login, client_id=client_id)
                assert told == pytest.approx(seconds[first], abs=0.09)
                assert counted == pytest.approx(told, abs=0.01)
                await admin.alter_client_quotas(
                    {entity: {"producer_byte_rate": None} for entity in entities[first:]},
                    raise_errors=True,
                )
            assert kafka.node.gate.quotas is None
        assert kafka.node.counters.throttled["producer_byte_rate"] == 8


async def test_all_clients_of_a_user_share_its_quota_and_no_other_user_does() -> None:
    """Also those that have logged in by another mechanism."""
    async with EmbeddedCluster(users=USERS) as kafka:
        async with Admin(**kafka.client_settings("admin")) as admin:
            await admin.create_topics("t", raise_errors=True)
            await admin.alter_client_quotas(
                {
                    ClientQuotaEntity(user="user-1"): {"producer_byte_rate": 3_300.0},
                    ClientQuotaEntity(user=DEFAULT): {"producer_byte_rate": rate_for(-9)},
                },
                raise_errors=True,
            )
        told = []
        for n, mechanism in enumerate(("PLAIN", "SCRAM-SHA-256")):
            login = kafka.client_settings("user-1", mechanism=mechanism)
            async with (
                Cluster(**login, client_id=f"c{n}") as cluster,
                cluster.producer(linger_ms=0) as producer,
            ):
                await producer.send("t", b"x" * SIZE)
                told.append(cluster.counters.throttle_seconds)
        assert told[0] == 0  # 33,000 bytes in ten seconds are permitted
        assert told[1] > 1
        login = kafka.client_settings("bob")
        async with (
            Cluster(**login) as cluster,
            cluster.producer(linger_ms=0) as producer,
        ):
            await producer.send("t", b"x" * SIZE)
            assert cluster.counters.throttle_seconds == 0  # the default is 300,000 bytes


async def test_a_throttled_client_waits_as_long_as_it_was_told() -> None:
    """Its next record is sent when the time is over, and not refused or lost."""
    async with EmbeddedCluster(users=USERS) as kafka:
        async with Admin(**kafka.client_settings("admin")) as admin:
            await admin.create_topics("t", raise_errors=True)
            entity = ClientQuotaEntity(user="bob")
            await admin.alter_client_quotas(
                {entity: {"producer_byte_rate": rate_for(1)}}, raise_errors=True
            )
        loop = asyncio.get_running_loop()
        async with (
            Cluster(**kafka.client_settings("bob")) as cluster,
            cluster.producer(linger_ms=0) as producer,
        ):
            await producer.send("t", b"x" * SIZE)
            began = loop.time()
            assert (await producer.send("t", b"y")).offset == 1
            assert 0.8 < loop.time() - began < 10


async def test_a_consumer_is_throttled_as_its_user() -> None:
    """It is told to wait, after what its quota permits at once; another user's consumer is not."""
    async with EmbeddedCluster(users=USERS) as kafka:
        async with Admin(**kafka.client_settings("admin")) as admin:
            await admin.create_topics("t", raise_errors=True)
            entity = ClientQuotaEntity(user="bob", client_id="reader")
            await admin.alter_client_quotas(
                {entity: {"consumer_byte_rate": 5_000.0}}, raise_errors=True
            )
        async with (
            Cluster(**kafka.client_settings("admin")) as cluster,
            cluster.producer(linger_ms=0) as producer,
        ):
            for _ in range(24):
                await producer.send("t", b"x" * 10_000)

        def reader(user: str) -> Cluster:
            return Cluster(**kafka.client_settings(user), client_id="reader")

        async with (
            asyncio.timeout(30),
            reader("user-1") as cluster,
            cluster.consumer("t", auto_offset_reset="earliest") as consumer,
        ):
            async for record in consumer:
                if record.offset == 23:
                    break
            assert cluster.counters.throttle_seconds == 0
        async with (
            asyncio.timeout(30),
            reader("bob") as cluster,
            cluster.consumer("t", auto_offset_reset="earliest") as consumer,
        ):
            events = cluster.events()
            async for record in consumer:
                if record.offset == 3:  # of 50,000 bytes
                    break
            async for event in events:
                if isinstance(event, Throttled):
                    break
            assert cluster.counters.throttle_seconds > 0
        assert kafka.node.counters.throttled["consumer_byte_rate"] >= 1


async def test_a_throttled_client_that_has_left_holds_no_connection() -> None:
    """Nothing is read from it, perhaps for days, so the broker looks whether it is still there."""

    def quota(principal: str, client_id: str, key: str) -> float | None:
        return 0.01 if key == "producer_byte_rate" else None

    async with EmbeddedCluster(quota=quota) as kafka:
        await kafka.create_topic("t")
        assert kafka.node is not None
        [opened] = kafka.node.servers._opened
        server, loop = opened.server, asyncio.get_running_loop()

        async def remaining() -> int:
            for connection in list(server._connections):
                connection.check(loop.time() + server.limits.read_stall + 1)
            await asyncio.sleep(0.2)
            return server.connections

        async with Cluster(kafka.bootstrap_servers) as cluster:
            async with cluster.producer(linger_ms=0) as producer:
                await producer.send("t", b"x")
            assert await remaining() >= 1
        await asyncio.sleep(0.2)
        assert server.connections == 1  # the throttled one
        assert await remaining() == 0


async def test_what_a_throttled_client_sent_before_it_left_is_not_lost() -> None:
    """With acks=0 it is not told to wait, and ends when the system has taken its records.

    Regression: the broker closed the connection a minute later, and the unread records were gone.
    """

    def quota(principal: str, client_id: str, key: str) -> float | None:
        return 0.01 if key == "producer_byte_rate" else None

    async with EmbeddedCluster(quota=quota) as kafka:
        await kafka.create_topic("t")
        assert kafka.node is not None
        [opened] = kafka.node.servers._opened
        server, loop = opened.server, asyncio.get_running_loop()
        topic = kafka.node.topics.get("t")
        assert topic is not None
        partition = topic.partition(0)
        assert partition is not None
        async with (
            Cluster(kafka.bootstrap_servers) as cluster,
            cluster.producer(acks=0, enable_idempotence=False, linger_ms=0) as producer,
        ):
            for _ in range(40):
                await producer.send("t", bytes(1000))  # the system has room for all of them
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.2)
        assert server.connections == 1
        assert partition.log.log_end_offset < 40
        [connection] = server._connections
        connection.check(loop.time() + server.limits.read_stall + 1)
        async with asyncio.timeout(10):
            while server.connections:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
        assert partition.log.log_end_offset == 40
