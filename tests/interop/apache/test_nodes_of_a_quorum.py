"""The directories of three nodes of Apache Kafka: each is refused, and can be adopted.

Were aiokq to append to one of them, the other nodes could later elect a leader without its records.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.apache import rounds
from tests.interop.apache.directories import (
    Rows,
    commit,
    committed,
    complaints,
    copy,
    files_of,
    produce,
    read,
)
from tests.interop.apache.rounds import DYNAMIC, STATIC
from tests.peers.apache_kafka import ApacheKafka, random_id, run_tool, why_absent
from tests.peers.broker_process import broker_process
from tests.peers.other_clients import PATIENCE

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.build_independent,
    pytest.mark.full,
    pytest.mark.timeout(400),  # four starts of Apache Kafka, three formats and an adoption
    pytest.mark.skipif(why_absent() is not None, reason=str(why_absent())),
]

METADATA = "__cluster_metadata-0"
NODES = (1, 2, 3)
ALONE = 2
"""The only replica of the topic "single"."""


class DynamicKafka(ApacheKafka):
    """Nodes whose voters are in the metadata log."""

    def configuration(self, node: int) -> str:
        text = super().configuration(node)
        voters = re.compile(r"controller\.quorum\.voters=.*")
        servers = ",".join(f"127.0.0.1:{port}" for port in self.controller_ports.values())
        return voters.sub(f"controller.quorum.bootstrap.servers={servers}", text)

    def format(self) -> None:
        voters = ",".join(
            f"{node}@127.0.0.1:{port}:{random_id()}" for node, port in self.controller_ports.items()
        )
        cluster_id = random_id()
        for node in self.ports:
            path = self._properties_path(node)
            path.write_text(self.configuration(node))
            arguments = ("-t", cluster_id, "-c", str(path), "--initial-controllers", voters)
            done = run_tool("kafka.tools.StorageTool", "format", *arguments)
            assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module", params=[STATIC, DYNAMIC])
def quorum(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ApacheKafka, Rows]]:
    """Three killed nodes with the same records, and these records."""
    make = DynamicKafka if request.param == DYNAMIC else ApacheKafka
    apache = make(tmp_path_factory.mktemp("quorum"), 3, **rounds.ACCESS)
    try:
        apache.start()
        bootstrap = apache.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        new = [
            NewTopic("codecs", 2, 3, config={"min.insync.replicas": "3"}),
            NewTopic("single", 1, replica_assignment=[[ALONE]]),
        ]
        for future in admin.create_topics(new).values():
            future.result(PATIENCE)
        for _ in range(3):
            produce(bootstrap, "codecs", 20, codec="lz4")
        produce(bootstrap, "single", 5)
        commit(bootstrap, "workers", "codecs", {0: 3, 1: 4})
        turn = rounds.Turn("aiokq", 1)
        rounds.change_acls(bootstrap, turn)
        asyncio.run(rounds.change_users(bootstrap, turn))
        asyncio.run(rounds.change_quotas(bootstrap, turn))
        asyncio.run(rounds.change_of_kafka(bootstrap, turn))
        rows = read(bootstrap, {"codecs": 2, "single": 1})
        for node in NODES:
            apache.pause_node(node)
        for node in NODES:
            apache.stop_node(node, signal.SIGKILL)
        yield apache, rows
    finally:
        apache.stop()


@pytest.mark.parametrize("node", NODES)
def test_a_node_is_refused_until_its_directory_is_adopted(
    quorum: tuple[ApacheKafka, Rows], node: int, tmp_path: Path
) -> None:
    apache, rows = quorum
    data = tmp_path / "data"
    copy(apache.directory / f"node-{node}", data)
    before = files_of(data / METADATA)
    said = rounds.facts(rounds.state(data))
    assert {
        "AccessControlEntry User:alice-1 shared 3",
        "UserScramCredential alice-1 1",
        "ClientQuota consumer_byte_rate [('user', 'carol')]",
        "Config 4 1 num.io.threads",
        "Config 2 codecs min.insync.replicas",
    } <= said.keys()
    command = [sys.executable, "-m", "aiokq", "broker", "--data-dir", str(data), "--port", "0"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1, refused.stderr
    words = rf"belongs to a quorum with the voters 1\b.*2\b.*3\b.*and this node is {node}\b"
    assert re.search(words, refused.stderr), refused.stderr
    assert "aiokq storage adopt" in refused.stderr
    assert files_of(data / METADATA) == before

    adopt = [sys.executable, "-m", "aiokq", "storage", "adopt", str(data), "--json"]
    told = json.loads(subprocess.run(adopt, capture_output=True, text=True, check=True).stdout)
    assert (told["node_id"], told["voters_before"]) == (node, [1, 2, 3])
    assert files_of(data / f"{METADATA}.before-adoption-stray") == before
    says = rounds.facts(rounds.state(data))
    changed = {name for name in {*said, *says} if said.get(name) != says.get(name)}
    assert all(name.startswith("Partition ") for name in changed), changed
    others = [one for one in NODES if one != node]
    assert told["unregistered"] == others
    assert told["on_other_nodes"] == (
        [] if node == ALONE else [{"topic": "single", "partition": 0}]
    )
    wanted = {place: found for place, found in rows.items() if node == ALONE or "codecs" in place}
    topics = {"codecs": 2, **({"single": 1} if node == ALONE else {})}
    with broker_process(data) as running:
        bootstrap = running.bootstrap_servers
        assert running.info["node_id"] == node
        assert read(bootstrap, topics) == wanted
        assert committed(bootstrap, "workers", "codecs", 2) == [3, 4]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        found = admin.list_topics(timeout=PATIENCE)
        assert set(found.topics) == {"codecs", "single", "__consumer_offsets"}
        assert found.topics["single"].partitions[0].leader == (node if node == ALONE else -1)
        admin.create_topics([NewTopic("here", 1, 1)])["here"].result(PATIENCE)
        produce(bootstrap, "here", 5)
        assert running.stop() == 0

    (tmp_path / "kafka").mkdir()
    alone = ApacheKafka(tmp_path / "kafka")
    controller = f"127.0.0.1:{alone.controller_ports[1]}"
    alone.properties |= {"node.id": str(node), "log.dirs": str(data)}
    text = alone.configuration(1)
    voters = f"controller.quorum.voters=1@{controller}"
    assert voters in text
    text = text.replace(
        voters,
        f"controller.quorum.bootstrap.servers={controller}"
        if isinstance(apache, DynamicKafka)
        else f"controller.quorum.voters={node}@{controller}",
    )
    (tmp_path / "kafka" / "node-1.properties").write_text(text)
    try:
        alone.start_node(1)
        assert read(alone.bootstrap_servers, topics) == wanted
        assert len(read(alone.bootstrap_servers, {"here": 1})["here", 0]) == 5
        alone.stop_node(1)
    finally:
        alone.stop()
    assert complaints(alone) == []
