"""A directory with dynamic settings, features and voters moves between aiokq and Apache Kafka."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.apache.directories import started_on
from tests.peers.apache_kafka import ApacheKafka, run_tool, why_absent
from tests.peers.broker_process import broker_process

REASON = why_absent()
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.full,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]


class Cluster:
    """The same directory under either make."""

    def __init__(self, path: Path) -> None:
        (path / "kafka").mkdir()
        self.apache = ApacheKafka(path / "kafka")
        port = self.apache.controller_ports[1]
        self.apache.properties |= {"controller.quorum.voters": f"1@127.0.0.1:{port}"}
        self.data = path / "data"
        self.bootstrap = ""
        self._settings = (
            f"listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        )

    @contextlib.contextmanager
    def ours(self, *, controllers: bool = True) -> Iterator[None]:
        settings = self._settings if controllers else ()
        words = [word for setting in settings for word in ("--set", setting)]
        with broker_process(self.data, "--node-id", "1", *words) as running:
            self.bootstrap = running.bootstrap_servers
            yield

    @contextlib.contextmanager
    def kafkas(self) -> Iterator[None]:
        try:
            started_on(self.apache, self.data)
            self.bootstrap = self.apache.bootstrap_servers
            yield
            self.apache.stop_node(1)
        finally:
            self.apache.stop()
        shutil.move(self.apache.directory / "node-1", self.data)

    def tool(self, name: str, *arguments: str, code: int = 0) -> str:
        done = run_tool(name, "--bootstrap-server", self.bootstrap, *arguments)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stdout + done.stderr

    def alter(self, *arguments: str) -> None:
        self.tool("kafka.admin.ConfigCommand", "--alter", "--entity-type", "brokers", *arguments)

    def settings(self, *entity: str) -> dict[str, str]:
        """Return the dynamic settings of the node itself, or with `--entity-default` of all."""
        said = self.tool(
            "kafka.admin.ConfigCommand", "--describe", "--entity-type", "brokers", *entity
        )
        return dict(re.findall(r"^  (\S+?)=(\S*) sensitive", said, re.MULTILINE))

    def features(self) -> dict[str, str]:
        said = self.tool("FeatureCommand", "describe")
        return dict(re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", said))


DEFAULT, OWN = ("--entity-default",), ("--entity-name", "1")


def test_nothing_is_lost_and_nothing_changes_but_what_is_asked(tmp_path: Path) -> None:
    """Settings that one make does not use are there again under the other."""
    cluster = Cluster(tmp_path)
    with cluster.ours():
        cluster.alter(*DEFAULT, "--add-config", "log.retention.ms=5000,message.max.bytes=9000")
        cluster.alter(*OWN, "--add-config", "log.retention.ms=7000")
        cluster.tool("FeatureCommand", "upgrade", "--metadata", "4.1-IV1")
        cluster.tool("FeatureCommand", "upgrade", "--feature", "kraft.version=1")
    of_all = {"log.retention.ms": "5000", "message.max.bytes": "9000", "min.insync.replicas": "1"}
    ours = {
        "eligible.leader.replicas.version": "1",
        "group.version": "1",
        "kraft.version": "1",
        "metadata.version": "4.1-IV1",
        "transaction.version": "2",
    }
    with cluster.kafkas():
        assert cluster.settings(*DEFAULT) == of_all
        assert cluster.settings(*OWN) == {"log.retention.ms": "7000"}
        assert cluster.features().items() >= ours.items()
        cluster.alter(*DEFAULT, "--add-config", "num.io.threads=9,log.roll.ms=8000")
        cluster.alter(*DEFAULT, "--delete-config", "message.max.bytes")
        cluster.alter(*OWN, "--delete-config", "log.retention.ms")
        cluster.tool("FeatureCommand", "downgrade", "--feature", "group.version=0")
        cluster.tool("FeatureCommand", "upgrade", "--feature", "share.version=1")
    of_all = {
        "log.retention.ms": "5000",
        "log.roll.ms": "8000",
        "min.insync.replicas": "1",
        "num.io.threads": "9",
    }
    with cluster.ours():
        assert cluster.settings(*DEFAULT) == of_all
        assert cluster.settings(*OWN) == {}
        assert cluster.features() == {**ours, "group.version": "0"}
        cluster.alter(*DEFAULT, "--delete-config", "log.roll.ms")
    with cluster.kafkas():
        assert cluster.settings(*DEFAULT) == {
            name: value for name, value in of_all.items() if name != "log.roll.ms"
        }
        assert cluster.features().items() >= {"share.version": "1", "group.version": "0"}.items()
        status = cluster.tool("MetadataQuorumCommand", "describe", "--status")
        assert re.search(r"LeaderId:\s+1\b", status)


def test_the_features_of_a_release_move(tmp_path: Path) -> None:
    """Either make raises them; aiokq has no listener for controllers, and Kafka names its own."""
    cluster = Cluster(tmp_path)
    upgrade, downgrade = (
        ("FeatureCommand", way, "--release-version") for way in ("upgrade", "downgrade")
    )
    with cluster.ours(controllers=False):
        cluster.tool(*upgrade, "4.1")
        raised = cluster.features()
        assert (raised["metadata.version"], raised["kraft.version"]) == ("4.1-IV1", "1")
    with cluster.kafkas():
        assert cluster.features() == {**raised, "share.version": "0", "streams.version": "0"}
        status = cluster.tool("MetadataQuorumCommand", "describe", "--status")
        own = f"CONTROLLER://127.0.0.1:{cluster.apache.controller_ports[1]}"
        assert re.search(rf'CurrentVoters:.*"id": 1.*"{own}"', status)
        cluster.tool(*upgrade, "4.2")
    with cluster.ours(controllers=False):
        cluster.tool(*upgrade, "4.2")
        assert cluster.features() == {**raised, "metadata.version": "4.2-IV1"}
        refused = cluster.tool(*downgrade, "4.1", code=1)
        assert "and keeps the level 1 that Apache Kafka has set" in refused
        assert cluster.features() == {**raised, "metadata.version": "4.2-IV1"}
    with cluster.kafkas():
        levels = cluster.features()
        assert (levels["share.version"], levels["streams.version"]) == ("1", "1")
        cluster.tool(*downgrade, "4.1")
    with cluster.ours(controllers=False):
        cluster.tool(*downgrade, "4.1")
        assert cluster.features() == raised
