"""A gateway in front of brokers with TLS and logins, and after a reload with other ones."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import aiokq
from aiokq.gateway import Gateway
from aiokq.gateway.accounting import Snapshot
from tests.fault.gateway_support import (
    LIMIT,
    cross_checked,
    directory,
    discarded,
    message,
    values_of,
)
from tests.fault.test_secure_broker import broker, client, values

pytest.importorskip("cryptography")

ENGINES = ("producer", "bruce")
OPTIONS = """
[delivery]
engine = "{engine}"
shutdown_max_delay_ms = 3000
{quick}
[[inputs]]
type = "unix_datagram"
path = "{path}/datagram"
[http]
port = 0
"""
QUICK = {"producer": "", "bruce": "pause_initial_ms = 100\nmin_pause_ms = 50"}


class Running:
    """A gateway with a file."""

    def __init__(self, path: Path, engine: str, delivery: str = "") -> None:
        self.path = path
        self.file = path / "gateway.toml"
        quick = f"{QUICK[engine]}\n{delivery}"
        self._options = OPTIONS.format(path=path, engine=engine, quick=quick)
        self.gateway: Gateway

    def write(self, kafka: Mapping[str, Any]) -> None:
        lines = [f"{name} = {json.dumps(value)}" for name, value in kafka.items()]
        self.file.write_text("\n".join(("[kafka]", *lines, self._options)))

    async def send(self, *messages: bytes) -> None:
        def run() -> None:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
                opened.connect(f"{self.path}/datagram")
                for one in messages:
                    opened.send(one)

        await asyncio.to_thread(run)

    async def settled(self, received: int) -> Snapshot:
        async with asyncio.timeout(LIMIT):
            while True:
                snapshot = cross_checked(self.gateway)
                if snapshot.total.received >= received and not snapshot.total.in_flight:
                    return snapshot
                await asyncio.sleep(0.01)


@asynccontextmanager
async def running(
    path: Path, engine: str, kafka: Mapping[str, Any], delivery: str = ""
) -> AsyncIterator[Running]:
    made = Running(path, engine, delivery)
    made.write(kafka)
    made.gateway = Gateway(made.file)
    async with made.gateway:
        yield made


@pytest.mark.parametrize("engine", ENGINES)
async def test_messages_are_delivered_over_tls_with_a_login(engine: str, tmp_path: Path) -> None:
    """The settings are those of the file that `aiokq broker --secure` makes for clients."""
    with broker(tmp_path / "secure") as secure, directory() as path:
        given = values(secure.client_file)
        assert given["security.protocol"] == "SASL_SSL"
        async with client(secure.client_file) as cluster, cluster.admin() as admin:
            await admin.create_topics([aiokq.NewTopic("orders", 1)])
            kafka = {name.replace(".", "_"): value for name, value in given.items()}
            async with running(path, engine, kafka) as r:
                await r.send(*(message("orders", b"%d" % n) for n in range(100)))
                snapshot = await r.settled(100)
                assert snapshot.total.acked == 100
            async with cluster.consumer("orders", auto_offset_reset="earliest") as consumer:
                async with asyncio.timeout(LIMIT):
                    found = [(await consumer.getone()).value for _ in range(100)]
            assert found == [b"%d" % n for n in range(100)]


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_reload_with_the_new_password_delivers_what_waits(engine: str) -> None:
    """The password was changed. All messages of known topics were discarded as `error_ack`; and a
    reload was refused, because messages were under way that the old password cannot deliver.
    """
    with directory() as path:
        data = path / "data"
        async with AsyncExitStack() as stack:
            async with aiokq.EmbeddedCluster(users={"gateway": "old"}, data_dir=data) as kafka:
                old: dict[str, Any] = kafka.client_settings("gateway")
                port = int(kafka.bootstrap_servers.rpartition(":")[2])
                topics = [aiokq.NewTopic("orders", 2), aiokq.NewTopic("other", 1)]
                async with aiokq.Cluster(**old) as cluster, cluster.admin() as admin:
                    await admin.create_topics(topics)
                r = await stack.enter_async_context(running(path, engine, old))
                await r.send(message("orders", b"0", partition_key=0), message("other", b"0"))
                await r.settled(2)
            users = {"gateway": "new"}
            async with aiokq.EmbeddedCluster(users=users, data_dir=data, port=port) as kafka:
                for n in range(1, 100):
                    await r.send(message("orders", b"%d" % n, partition_key=0))
                    await r.send(message("other", b"%d" % n))
                    await asyncio.sleep(0.02)
                snapshot = cross_checked(r.gateway)
                assert discarded(snapshot) == {}
                assert snapshot.total.in_flight == 198
                assert r.gateway.problems().warnings
                new: dict[str, Any] = kafka.client_settings("gateway")
                r.write(new)
                assert await r.gateway.reload() == ["kafka"]
                snapshot = await r.settled(200)
                assert snapshot.total.acked == 200
                assert r.gateway.problems().warnings == []
                async with aiokq.Cluster(**new) as cluster:
                    for topic in ("orders", "other"):
                        found = list(dict.fromkeys(await values_in(cluster, topic, 0)))
                        if engine == "bruce":  # it promises no order
                            found.sort(key=lambda value: int(value or b"-1"))
                        assert found == [b"%d" % n for n in range(100)]


async def values_in(cluster: aiokq.Cluster, topic: str, partition: int) -> list[bytes | None]:
    await cluster.refresh(topic)
    found: list[bytes | None] = []
    async for batch in cluster.read((topic, partition)):
        found += values_of(batch)
    return found


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("before", "after"), [(6, 2), (2, 6)])
async def test_partitions_are_those_of_the_new_brokers(
    engine: str, before: int, after: int
) -> None:
    """A reload with other brokers, on which the topic has another number of partitions.

    Messages for partitions that do not exist there were discarded as `bad_topic`, and the others
    had the partition that the old number gives them.
    """
    with directory() as path:
        async with aiokq.EmbeddedCluster() as first, aiokq.EmbeddedCluster() as second:
            for kafka, partitions in ((first, before), (second, after)):
                async with aiokq.Admin(kafka.bootstrap_servers) as admin:
                    await admin.create_topics([aiokq.NewTopic("orders", partitions)])
            servers = first.bootstrap_servers
            async with running(path, engine, {"bootstrap_servers": servers}) as r:
                await r.send(*(message("orders", b"a", partition_key=n) for n in range(6)))
                await r.settled(6)
                r.write({"bootstrap_servers": second.bootstrap_servers})
                assert await r.gateway.reload() == ["kafka"]
                await r.send(*(message("orders", b"%d" % n, partition_key=n) for n in range(12)))
                snapshot = await r.settled(18)
                assert (snapshot.total.acked, discarded(snapshot)) == (18, {})
            async with aiokq.Cluster(second.bootstrap_servers) as cluster:
                for partition in range(after):
                    found = await values_in(cluster, "orders", partition)
                    assert found == [b"%d" % n for n in range(partition, 12, after)]


@pytest.mark.parametrize("way", ["metadata", "create_topics"])
@pytest.mark.parametrize("engine", ENGINES)
async def test_topics_are_created_on_the_new_brokers(engine: str, way: str) -> None:
    """A reload with brokers that lack a topic: its messages were discarded as `bad_topic`, although
    the file says that topics are created.
    """
    create = f'autocreate = true\nautocreate_with = "{way}"'
    with directory() as path:
        async with aiokq.EmbeddedCluster() as first, aiokq.EmbeddedCluster() as second:
            servers = {"bootstrap_servers": first.bootstrap_servers}
            async with running(path, engine, servers, create) as r:
                await r.send(message("orders", b"old"))
                await r.settled(1)
                r.write({"bootstrap_servers": second.bootstrap_servers})
                assert await r.gateway.reload() == ["kafka"]
                sent = [b"%d" % n for n in range(20)]
                await r.send(*(message("orders", value) for value in sent))
                snapshot = await r.settled(21)
                assert (snapshot.total.acked, discarded(snapshot)) == (21, {})
            async with aiokq.Cluster(second.bootstrap_servers) as cluster:
                assert sorted(await values_in(cluster, "orders", 0)) == sorted(sent)
