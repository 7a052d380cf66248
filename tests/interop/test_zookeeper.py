"""Offsets that old consumers left in a live ZooKeeper become commits in Kafka."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import aiokq
from tests.peers.ports import free_ports

pytestmark = pytest.mark.full

LIBS = Path(__file__).resolve().parents[2] / ".cache" / "kafka" / "zookeeper"
SECONDS = 30


def wait_for(port: int) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "ZooKeeper does not start"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of a ZooKeeper that only these tests use."""
    if shutil.which("java") is None or not (LIBS / ".complete").exists():
        pytest.skip("ZOOKEEPER IS NOT TESTED: run `make kafka`")
    (port,) = free_ports(1)
    command = [
        "java",
        "-Xmx128M",
        "-XX:TieredStopAtLevel=1",
        "-Dzookeeper.admin.enableServer=false",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        "-cp",
        f"{LIBS}/*",
        "org.apache.zookeeper.server.ZooKeeperServerMain",
        str(port),
        str(tmp_path_factory.mktemp("zookeeper")),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(port)
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.fixture
def tree(zookeeper: str) -> Any:
    """A client that creates nodes in the ZooKeeper."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts=zookeeper)
    client.start(timeout=SECONDS)
    yield client
    client.stop()
    client.close()


def imported(kafka: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "aiokq", "groups", "import-zookeeper", *arguments, "-b", kafka],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


async def test_offsets_of_a_live_zookeeper_are_imported(zookeeper: str, tree: Any) -> None:
    """The offsets are below a chroot, as in many clusters; other nodes are not touched."""
    root = "/kafka/consumers"
    for path, value in {
        f"{root}/billing/offsets/orders/0": b"3",
        f"{root}/billing/offsets/orders/1": b"0",
        f"{root}/billing/ids/billing_host-1": b"{}",
        f"{root}/billing/owners/orders/0": b"billing_host-1-0",
        f"{root}/audit/offsets/orders/0": b"none",
        f"{root}/empty": b"",
    }.items():
        tree.create(path, value, makepath=True)
    async with aiokq.EmbeddedCluster() as kafka:
        servers = kafka.bootstrap_servers
        async with aiokq.Admin(servers) as admin, aiokq.Producer(servers) as producer:
            await admin.create_topics("orders", num_partitions=2)
            for _ in range(5):
                await producer.send("orders", b"v", partition=0)
            tried = await asyncio.to_thread(
                imported, servers, "--zookeeper", f"{zookeeper}/kafka", "--json"
            )
            assert [each["committed"] for each in json.loads(tried.stdout)] == [False, False]
            done = await asyncio.to_thread(
                imported, servers, "--zookeeper", f"{zookeeper}/kafka", "--execute"
            )
            assert done.returncode == 1
            assert "/consumers/audit/offsets/orders/0: 'none' is not an offset" in done.stderr
            listed = await admin.list_group_offsets("billing", raise_errors=True)
            assert {tp.partition: o.offset for tp, o in listed["billing"].offsets.items() if o} == {
                0: 3,
                1: 0,
            }


def test_a_zookeeper_that_does_not_answer_is_one_line() -> None:
    """The address is wrong, or the ZooKeeper was shut down long ago."""
    (port,) = free_ports(1)
    from aiokq.admin.zookeeper import read_zookeeper
    from aiokq.errors import ConnectionLost

    with pytest.raises(ConnectionLost, match=f"no ZooKeeper answers at 127.0.0.1:{port}"):
        read_zookeeper(f"127.0.0.1:{port}", timeout=1)
