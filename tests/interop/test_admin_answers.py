"""Other clients' admin tools get the same responses as from Apache Kafka, except listed ones.

Java's Admin and kafka-python's admin CLI run each of their operations against `aiokq broker` and
against Apache Kafka with one node. `admin_differences.txt` has a line for each item in which the
responses differ, under the reason for it. A difference that is not listed fails the test, and so
does a listed one that no longer exists.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.peers.admin_answers import differences, read_answers
from tests.peers.apache_kafka import ROOT, ApacheKafka, java_command
from tests.peers.broker_process import broker_process

LIST = Path(__file__).with_name("admin_differences.txt")
PROGRAM = ROOT / "tests" / "peers" / "JavaAdmin.java"
NODE_ID = "1"
SAME = (
    "broker.rack=rack-1",
    "offsets.topic.num.partitions=4",
    "offsets.topic.replication.factor=1",
    "transaction.state.log.min.isr=1",
    "transaction.state.log.num.partitions=4",
    "transaction.state.log.replication.factor=1",
    "group.initial.rebalance.delay.ms=0",
    "max.request.partition.size.limit=20",
    "log.cleaner.backoff.ms=200",
    "controller.listener.names=CONTROLLER",
    "inter.broker.listener.name=PLAINTEXT",
)
"""The settings that were given to Apache Kafka."""

pytestmark = pytest.mark.kafka


class Peer(NamedTuple):
    """Apache Kafka or `aiokq broker`, as a peer of the admin tools."""

    bootstrap_servers: str
    log_dir: str


@pytest.fixture(scope="module")
def kafka(apache: ApacheKafka) -> Peer:
    return Peer(apache.bootstrap_servers, str(apache.directory / "node-1"))


@pytest.fixture(scope="module")
def aiokq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    data_dir = tmp_path_factory.mktemp("broker")
    settings = [word for setting in SAME for word in ("--set", setting)]
    with broker_process(data_dir, "--node-id", NODE_ID, *settings) as running:
        yield Peer(running.bootstrap_servers, str(running.data_dir))


def listed(client: str, parts: tuple[str, ...]) -> list[str]:
    """Return the lines of the list for these parts of a client's operations."""
    wanted = tuple(f"{client} {part}/" for part in parts)
    return [line for line in LIST.read_text().splitlines() if line.startswith(wanted)]


def check(client: str, parts: tuple[str, ...], programs: dict[Peer, list[str]]) -> None:
    """Run a program against both brokers, and compare the differences with the list."""

    def run(peer: Peer) -> dict[tuple[str, str], object]:
        done = subprocess.run(programs[peer], cwd=ROOT, capture_output=True, text=True, timeout=110)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return read_answers(done.stdout, paths={peer.log_dir: "LOG_DIR"})

    with ThreadPoolExecutor(2) as pool:
        kafka, aiokq = pool.map(run, programs)
    assert kafka.keys() == aiokq.keys()
    assert {part for part, _ in kafka} >= set(parts)
    wanted = tuple(f"{part}/" for part in parts)
    found = [f"{client} {line}" for line in differences(kafka, aiokq) if line.startswith(wanted)]
    known = listed(client, parts)
    assert len(known) == len(set(known))
    new, gone = set(found) - set(known), set(known) - set(found)
    assert not new, "not in the list:\n" + "\n".join(line for line in found if line in new)
    assert not gone, "no longer so:\n" + "\n".join(line for line in known if line in gone)


def java(peer: Peer, prefix: str, parts: tuple[str, ...]) -> list[str]:
    return java_command(str(PROGRAM), peer.bootstrap_servers, NODE_ID, prefix, *parts)


def test_javas_admin_is_answered_as_by_kafka(kafka: Peer, aiokq: Peer) -> None:
    """Topics, partitions, configs and the cluster, with the same errors for the same mistakes."""
    parts = ("topics", "configs", "partitions", "cluster")
    check("java", parts, {peer: java(peer, "adm-", parts) for peer in (kafka, aiokq)})


@pytest.mark.full
def test_javas_admin_is_answered_about_groups_as_by_kafka(kafka: Peer, aiokq: Peer) -> None:
    """The groups have live members of both protocols, static ones too."""
    programs = {peer: java(peer, "groups-", ("topics", "groups")) for peer in (kafka, aiokq)}
    check("java", ("groups",), programs)


def test_kafka_pythons_admin_cli_is_answered_as_by_kafka(kafka: Peer, aiokq: Peer) -> None:
    """All of its commands, with `configs` and `cluster api-versions` to compare what exists."""

    def program(peer: Peer) -> list[str]:
        arguments = (peer.bootstrap_servers, NODE_ID, "kp-", peer.log_dir)
        return [sys.executable, "-m", "tests.peers.kafka_python_admin", *arguments]

    check("kafka-python", ("all",), {peer: program(peer) for peer in (kafka, aiokq)})


def test_each_difference_in_the_list_has_a_reason() -> None:
    """Every line of the list is under a heading with the reason."""
    reason = None
    for line in LIST.read_text().splitlines():
        if line.startswith("# "):
            reason = line
        elif not line:
            reason = None
        else:
            assert reason is not None, line
            assert line.startswith(("java ", "kafka-python ")), line
            assert " | " in line, line
