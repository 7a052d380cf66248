"""Kafka's kafka-acls manages the ACLs of `aiokq broker`, and the broker enforces them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

import aiokq
from aiokq import errors
from tests.peers.apache_kafka import run_tool, why_absent
from tests.peers.broker_process import BrokerProcess, broker_process

REASON = why_absent()
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]

SETTINGS = (
    "--set", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "--set", "allow.everyone.if.no.acl.found=true",
)  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("broker")
    with broker_process(directory, "--profile", "dev", *SETTINGS) as running:
        yield running


def kafka_acls(broker: BrokerProcess, *arguments: str) -> str:
    done = run_tool("AclCommand", "--bootstrap-server", broker.bootstrap_servers, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def aiokq_acls(broker: BrokerProcess) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "aiokq", "acls", "list", "-b", broker.bootstrap_servers],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


async def send(broker: BrokerProcess) -> None:
    async with (
        aiokq.Cluster(broker.bootstrap_servers) as cluster,
        cluster.producer() as producer,
    ):
        await producer.send("guarded", b"value")


async def test_kafka_acls_adds_lists_and_removes(broker: BrokerProcess) -> None:
    """What it writes counts at once, and `aiokq acls` shows the same ACLs."""
    async with aiokq.Admin(broker.bootstrap_servers) as admin:
        await admin.create_topics("guarded", raise_errors=True)
    who = ("--allow-principal", "User:alice", "--allow-principal", "User:ANONYMOUS")
    added = kafka_acls(broker, "--add", *who, "--operation", "Describe", "--topic", "guarded")
    assert "operation=DESCRIBE, permissionType=ALLOW" in added
    kafka_acls(
        broker, "--add", "--deny-principal", "User:bob", "--deny-host", "192.0.2.7",
        "--operation", "Write", "--topic", "gua", "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    kafka_acls(
        broker, "--add", "--allow-principal", "User:carol", "--consumer", "--topic", "orders",
        "--group", "billing",
    )  # fmt: skip
    with pytest.raises(errors.TopicAuthorization):
        await send(broker)
    listed = kafka_acls(broker, "--list", "--topic", "guarded", "--resource-pattern-type", "match")
    assert "(principal=User:bob, host=192.0.2.7, operation=WRITE, permissionType=DENY)" in listed
    assert "(principal=User:alice, host=*, operation=DESCRIBE, permissionType=ALLOW)" in listed
    assert "carol" not in listed
    assert set(aiokq_acls(broker)) == {
        "User:alice Allow Describe Topic:guarded",
        "User:ANONYMOUS Allow Describe Topic:guarded",
        "User:bob Deny Write Topic:gua* from 192.0.2.7",
        "User:carol Allow Read Group:billing",
        "User:carol Allow Read Topic:orders",
        "User:carol Allow Describe Topic:orders",
    }
    kafka_acls(
        broker, "--remove", "--force", "--topic", "guarded", "--resource-pattern-type", "match"
    )
    await send(broker)
