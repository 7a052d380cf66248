"""Certificates and sessions are renewed, and connections lost, while all kinds of clients work.

The broker's listener has TLS with certificates of clients, and SCRAM with sessions of two seconds.
Both ends' certificates are replaced all the time, and connections are aborted at random. No record
may be lost, doubled or out of order, no transaction torn, and no committed offset go back.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

import aiokq
from aiokq.broker.gate import Gate
from aiokq.connection.tls import tls_contexts
from aiokq.core.errors import ConnectionLost
from tests.peers.pki import Pki

USERS = {name: f"{name}-secret" for name in ("writer", "transactor", "reader", "admin")}
PARTITIONS = 4
IN_TRANSACTION = 8

PRODUCE, FETCH, COMMIT, HEARTBEAT, SASL_HANDSHAKE, END_TXN, DESCRIBE = 0, 1, 8, 12, 17, 26, 32

KINDS = {
    ("User:writer", PRODUCE): "a producer",
    ("User:transactor", PRODUCE): "a transactional producer",
    ("User:transactor", END_TXN): "the transaction coordinator",
    ("User:reader", FETCH): "fetches",
    ("User:reader", COMMIT): "commits",
    ("User:reader", HEARTBEAT): "the group coordinator",
    ("User:admin", DESCRIBE): "an administrator",
}
"""Each kind of connection, by its principal and one of its requests."""


class Watched:
    """What the broker sees: which connections logged in again, and went on with which requests."""

    def __init__(self) -> None:
        self.connections: dict[tuple[str, int], set[int]] = defaultdict(set)
        self.renewed: dict[tuple[str, int], int] = defaultdict(int)
        self._again: dict[int, set[int]] = {}

    def admit(self, connection_id: int, principal: str, api: int) -> None:
        if api == SASL_HANDSHAKE and principal != "User:ANONYMOUS":
            self._again[connection_id] = set()
            return
        self.connections[principal, api].add(connection_id)
        seen = self._again.get(connection_id)
        if seen is not None and api not in seen:
            seen.add(api)
            self.renewed[principal, api] += 1


class Files:
    """Stores of both ends that are replaced while they are in use."""

    def __init__(self, directory: Path) -> None:
        self.pki = Pki()
        self.node, self.client = directory / "node.pem", directory / "client.pem"
        self.authority = directory / "ca.pem"
        self.authority.write_text(self.pki.trusted)
        self.renewals = 0
        self.renew()

    def renew(self) -> None:
        """Replace both certificates; the file of one is half written for a moment."""
        node = self.pki.issue("node", "localhost", "127.0.0.1")
        client = self.pki.issue("client", "client.example")
        self.node.write_text(node.key)
        self.client.write_text(client.key + client.chain)
        self.node.write_text(node.key + node.chain)
        self.renewals += 1

    def broker_settings(self) -> dict[str, object]:
        listener = "listener.name.sasl_ssl"
        return {
            "listeners": "SASL_SSL://127.0.0.1:0",
            "inter.broker.listener.name": "SASL_SSL",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
            "connections.max.reauth.ms": "2000",
            "num.partitions": str(PARTITIONS),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.node),
            f"{listener}.ssl.truststore.type": "PEM",
            f"{listener}.ssl.truststore.location": str(self.authority),
            f"{listener}.ssl.client.auth": "required",
        }

    def client_settings(self, kafka: aiokq.EmbeddedCluster, user: str) -> dict[str, str]:
        return {
            "bootstrap_servers": kafka.bootstrap_servers,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": user,
            "sasl_plain_password": USERS[user],
            "ssl_cafile": str(self.authority),
            "ssl_certfile": str(self.client),
        }


class InOrder:
    """Checks that the numbers of each partition come in order, each once."""

    def __init__(self) -> None:
        self.count = 0
        self._next: dict[int, int] = {}

    def add(self, record: aiokq.Record) -> None:
        number = int(record.value)  # type: ignore[arg-type]
        assert number % PARTITIONS == record.partition
        expected = self._next.get(record.partition, record.partition)
        assert number == expected, f"{number} instead of {expected}: {record.topic_partition}"
        self._next[record.partition] = expected + PARTITIONS
        self.count += 1


async def write(producer: aiokq.Producer, running: Callable[[], bool]) -> int:
    """Send as much as the memory takes; return the number of records."""
    number = 0
    deliveries: list[aiokq.Delivery] = []
    while running():
        for _ in range(100):
            deliveries.append(
                await producer.enqueue("plain", b"%d" % number, partition=number % PARTITIONS)
            )
            number += 1
        if len(deliveries) >= 5_000:
            for each in deliveries:
                await each
            deliveries = []
        await asyncio.sleep(0)
    for each in deliveries:
        await each
    return number


async def transact(producer: aiokq.Producer, running: Callable[[], bool]) -> tuple[int, int]:
    """Commit transactions, and abort some; return the numbers of records and of transactions."""
    number = transactions = 0
    while running():
        transactions += 1
        begun = await producer.begin_transaction()
        try:
            for each in range(number, number + IN_TRANSACTION):
                await producer.send("txn", b"%d" % each, partition=each % PARTITIONS)
            if transactions % 7 == 0:
                await producer.abort_transaction()
                continue
            await producer.commit_transaction()
        except aiokq.errors.TransactionAborted:
            pass
        if await begun.outcome() is aiokq.TransactionOutcome.COMMITTED:
            number += IN_TRANSACTION
    return number, transactions


async def read(consumer: aiokq.Consumer, checked: InOrder, until: Callable[[], int | None]) -> None:
    """Read until the number of records that `until` returns have been read."""
    while (wanted := until()) is None or checked.count < wanted:
        try:
            async with asyncio.timeout(0.2):
                async for record in consumer:
                    checked.add(record)
        except TimeoutError:
            pass


async def administer(admin: aiokq.Admin, running: Callable[[], bool]) -> int:
    """Describe and change settings; return the number of rounds."""
    rounds = 0
    while running():
        rounds += 1
        value = str(1_000_000 + rounds)
        await admin.alter_configs({"plain": {"max.message.bytes": value}}, raise_errors=True)
        resource = aiokq.ConfigResource(aiokq.ConfigResourceType.TOPIC, "plain")
        described = await admin.describe_configs(resource)
        assert described[resource].entries["max.message.bytes"].value == value
        await asyncio.sleep(0.02)
    return rounds


@pytest.mark.parametrize(
    "seconds",
    [10.0, pytest.param(600.0, marks=[pytest.mark.torture, pytest.mark.timeout(900)])],
)
async def test_nothing_is_lost_while_everything_is_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(tls_contexts, "CHECK_SECONDS", 0.05)
    files, watched, chance = Files(tmp_path), Watched(), random.Random(18)

    class Watching(Gate):
        __slots__ = ()

        def admit(self, connection, api_and_version, nbytes):  # type: ignore[no-untyped-def]
            principal = str(connection.session.principal)
            watched.admit(connection.connection_id, principal, api_and_version >> 16)
            return super().admit(connection, api_and_version, nbytes)

    async with (
        aiokq.EmbeddedCluster(users=USERS, settings=files.broker_settings()) as kafka,
        AsyncExitStack() as stack,
    ):
        kafka.node.gate.__class__ = Watching
        counters = kafka.node.counters
        server = kafka.node.servers._opened[0].server
        tls = server.security.tls
        assert tls is not None
        clusters = {
            user: await stack.enter_async_context(
                aiokq.Cluster(**files.client_settings(kafka, user))  # type: ignore[arg-type]
            )
            for user in USERS
        }
        admin = await stack.enter_async_context(clusters["admin"].admin())
        await admin.create_topics(["plain", "txn"], raise_errors=True)
        writer = await stack.enter_async_context(
            clusters["writer"].producer(enable_idempotence=True, buffer_memory=4_000_000)
        )
        transactor = await stack.enter_async_context(
            clusters["transactor"].producer(transactional_id="t", linger_ms=0)
        )
        plain = await stack.enter_async_context(
            clusters["reader"].consumer(
                "plain",
                group_id="g",
                group_protocol="classic",
                auto_offset_reset="earliest",
                auto_commit_interval_ms=100,
                heartbeat_interval_ms=100,
            )
        )
        committed = await stack.enter_async_context(
            clusters["reader"].consumer(
                "txn", auto_offset_reset="earliest", isolation_level="read_committed"
            )
        )
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        aborted = 0
        contexts: list[object] = []

        def running() -> bool:
            return loop.time() < end

        async def disturb() -> None:
            nonlocal aborted
            while running():
                await asyncio.sleep(0.25)
                files.renew()
                await asyncio.sleep(0.15)
                if tls.context not in contexts:
                    contexts.append(tls.context)
                if chance.random() < 0.7:
                    victim = chance.choice(list(server._connections))
                    victim.transport.fail(ConnectionLost("aborted by the test"))
                    aborted += 1

        of_plain, of_txn = InOrder(), InOrder()
        async with asyncio.TaskGroup() as group:
            tasks = {
                "plain": group.create_task(write(writer, running)),
                "txn": group.create_task(transact(transactor, running)),
                "admin": group.create_task(administer(admin, running)),
            }
            group.create_task(disturb())

            def total(name: str) -> int | None:
                task = tasks[name]
                if not task.done() or task.cancelled() or task.exception():
                    return None
                result = task.result()
                return result[0] if isinstance(result, tuple) else result

            group.create_task(read(plain, of_plain, lambda: total("plain")))
            group.create_task(read(committed, of_txn, lambda: total("txn")))
        totals = {name: total(name) or 0 for name in tasks}
        await plain.commit()
        offsets = [
            await plain.committed(aiokq.TopicPartition("plain", number))
            for number in range(PARTITIONS)
        ]
    assert (of_plain.count, of_txn.count) == (totals["plain"], totals["txn"])
    assert sum(offset or 0 for offset in offsets) == totals["plain"]
    assert all(count > 20 for count in totals.values()), totals
    assert len(contexts) > seconds / 2, "the listener did not take up its certificates"
    assert aborted >= seconds / 2
    assert counters.failed_logins == {}
    missing = {kind for key, kind in KINDS.items() if not watched.renewed[key]}
    assert not missing, f"no session of {missing} was renewed and used afterwards"
    reconnected = {kind for key, kind in KINDS.items() if len(watched.connections[key]) > 1}
    assert len(reconnected) >= 3, reconnected
