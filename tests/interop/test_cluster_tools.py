"""Kafka's tools for the quorum, features, dynamic settings and brokers on `aiokq broker`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.apache_kafka import ApacheKafka, run_tool, why_absent
from tests.peers.broker_process import BrokerProcess, broker_process

REASON = why_absent()
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]

CONTROLLER = (
    "--set", "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:9093",
    "--set", "controller.listener.names=CONTROLLER",
    "--set", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "--set", "log.cleaner.threads=2",
)  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker_process(
        tmp_path_factory.mktemp("broker"), "--profile", "dev", *CONTROLLER
    ) as running:
        yield running


def tool(broker: BrokerProcess, name: str, *arguments: str, code: int = 0) -> str:
    """Run a tool to its end; return its output."""
    done = run_tool(name, "--bootstrap-server", broker.bootstrap_servers, *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def configs(broker: BrokerProcess, *arguments: str, code: int = 0) -> str:
    return tool(
        broker, "kafka.admin.ConfigCommand", "--entity-type", "brokers", *arguments, code=code
    )


def features(broker: BrokerProcess) -> dict[str, str]:
    """Return the finalized level of each feature."""
    described = tool(broker, "FeatureCommand", "describe")
    found = re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", described)
    return dict(found)


def test_the_quorum_tool_describes_the_node(broker: BrokerProcess) -> None:
    """Both views: the state of the quorum, and its replicas."""
    status = tool(broker, "MetadataQuorumCommand", "describe", "--status")
    assert re.search(r"LeaderId:\s+0\b", status)
    assert re.search(r"LeaderEpoch:\s+1\b", status)
    assert re.search(r"MaxFollowerLag:\s+0\b", status)
    assert re.search(r'CurrentVoters:.*"id": 0', status)
    assert '"CONTROLLER://127.0.0.1:9093"' in status
    [_, row] = tool(broker, "MetadataQuorumCommand", "describe", "--replication").splitlines()[:2]
    assert row.split()[0] == "0"
    assert row.split()[-1] == "Leader"


def test_the_feature_tool_describes_and_changes_levels(broker: BrokerProcess) -> None:
    """Upgrades and downgrades, also by names of metadata.version, and Kafka's refusals."""
    assert features(broker) == {
        "eligible.leader.replicas.version": "1",
        "group.version": "1",
        "kraft.version": "0",
        "metadata.version": "4.0-IV3",
        "transaction.version": "2",
    }
    tool(broker, "FeatureCommand", "upgrade", "--metadata", "4.1-IV1")
    assert features(broker)["metadata.version"] == "4.1-IV1"
    looked = tool(broker, "FeatureCommand", "downgrade", "--metadata", "4.0-IV3", "--dry-run")
    assert "can be downgraded" in looked
    tool(broker, "FeatureCommand", "downgrade", "--metadata", "4.0-IV3")
    tool(broker, "FeatureCommand", "downgrade", "--feature", "group.version=0")
    assert features(broker)["group.version"] == "0"
    tool(broker, "FeatureCommand", "upgrade", "--feature", "group.version=1")
    tool(broker, "FeatureCommand", "downgrade", "--feature", "transaction.version=1")
    assert features(broker)["transaction.version"] == "1"
    tool(broker, "FeatureCommand", "upgrade", "--feature", "transaction.version=2")
    refused = tool(broker, "FeatureCommand", "upgrade", "--feature", "share.version=1", code=1)
    assert "Local controller 0 does not support this feature" in refused
    refused = tool(broker, "FeatureCommand", "downgrade", "--metadata", "3.9-IV0", code=1)
    assert "might delete metadata information" in refused


def test_the_feature_tool_changes_all_features_to_those_of_a_release(tmp_path: Path) -> None:
    """On a broker without a listener for controllers, which can have kraft.version 1, too."""
    with broker_process(tmp_path, "--profile", "dev") as running:

        def to_release(operation: str, *arguments: str, code: int = 0) -> str:
            release = (operation, "--release-version", *arguments)
            return tool(running, "FeatureCommand", *release, code=code)

        new = features(running)
        # Kafka's tool names all features of the release, and the broker changes all or none.
        refused = to_release("upgrade", "4.2", code=1)
        assert "Could not upgrade metadata.version to 29." in refused
        assert re.search(
            r"Invalid update version 1 for feature (share|streams)\.version\. "
            "Local controller 0 does not support this feature",
            refused,
        )
        refused = to_release("downgrade", "4.0", code=1)
        assert "feature kraft.version. Can't downgrade to a newer version" in refused
        assert "can be upgraded to 27" in to_release("upgrade", "4.1", "--dry-run")
        assert features(running) == new
        to_release("upgrade", "4.1")
        raised = {**new, "metadata.version": "4.1-IV1", "kraft.version": "1"}
        assert features(running) == raised
        tool(running, "FeatureCommand", "upgrade", "--feature", "metadata.version=29")
        assert "share.version was downgraded to 0" in to_release("downgrade", "4.1")
        assert features(running) == raised
        to_release("downgrade", "4.0")
        lowered = {
            **raised,
            "metadata.version": "4.0-IV3",
            "eligible.leader.replicas.version": "0",
        }
        assert features(running) == lowered
        running.stop()
        running.start()
        to_release("upgrade", "4.0")
        assert features(running) == lowered
        status = tool(running, "MetadataQuorumCommand", "describe", "--status")
        assert re.search(r'CurrentVoters:.*"id": 0', status)


def test_our_command_changes_features_to_those_of_a_release(
    broker: BrokerProcess, apache: ApacheKafka
) -> None:
    """Features that the cluster lacks are left out; Apache Kafka lacks none."""
    command = (sys.executable, "-m", "aiokq", "cluster", "features", "--json")
    for servers, left_out in {
        broker.bootstrap_servers: ["share.version", "streams.version"],
        apache.bootstrap_servers: [],
    }.items():
        asked = (*command, "--release-version", "4.2", "-b", servers)
        done = subprocess.run(asked, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert document["left_out"] == left_out
        assert len(document["features"]) == 7 - len(left_out)


def test_a_downgrade_to_a_release_does_not_raise_kraft_version(apache: ApacheKafka) -> None:
    """Apache Kafka, too, refuses it as a whole while kraft.version is 0."""
    servers = ("--bootstrap-server", apache.bootstrap_servers)
    asked = ("downgrade", "--release-version", "4.1", "--dry-run")
    done = run_tool("FeatureCommand", *servers, *asked)
    assert done.returncode == 1
    assert "feature kraft.version. Can't downgrade to a newer version" in done.stdout + done.stderr


@pytest.mark.full
def test_the_config_tool_sets_describes_and_removes_dynamic_settings(
    broker: BrokerProcess,
) -> None:
    """For the node and for all brokers; what is read at the start is refused as in Kafka."""
    default, own = ("--entity-default",), ("--entity-name", "0")
    configs(broker, *default, "--alter", "--add-config", "log.retention.ms=5000")
    configs(broker, *own, "--alter", "--add-config", "log.retention.ms=7000,log.cleaner.threads=3")
    described = configs(broker, *default, "--describe")
    assert "log.retention.ms=5000" in described
    assert "min.insync.replicas=1" in described
    described = configs(broker, *own, "--describe")
    assert (
        "log.retention.ms=7000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:"
        "log.retention.ms=7000, DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=5000, "
        "DEFAULT_CONFIG:log.retention.hours=168}"
    ) in described
    assert (
        "synonyms={DYNAMIC_BROKER_CONFIG:log.cleaner.threads=3, "
        "STATIC_BROKER_CONFIG:log.cleaner.threads=2, DEFAULT_CONFIG:log.cleaner.threads=1}"
    ) in described
    tool(broker, "TopicCommand", "--create", "--topic", "inherits")
    of_topic = tool(
        broker, "kafka.admin.ConfigCommand", "--entity-type", "topics",
        "--entity-name", "inherits", "--describe", "--all",
    )  # fmt: skip
    assert "retention.ms=7000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG" in of_topic
    configs(broker, *own, "--alter", "--delete-config", "log.retention.ms,log.cleaner.threads")
    configs(broker, *default, "--alter", "--delete-config", "log.retention.ms")
    assert "log.retention.ms" not in configs(broker, *own, "--describe")
    for name in ("num.io.threads", "num.partitions"):
        refused = configs(broker, *own, "--alter", "--add-config", f"{name}=5", code=1)
        assert f"Cannot update these configs dynamically: Set({name})" in refused
    refused = configs(broker, *own, "--alter", "--add-config", "min.insync.replicas=2", code=1)
    assert "Broker-level min.insync.replicas cannot be altered while ELR is enabled" in refused


def test_the_cluster_tool_unregisters_only_what_is_registered(broker: BrokerProcess) -> None:
    """Error 102, and the reason why the node itself stays."""
    bootstrap = ("--bootstrap-server", broker.bootstrap_servers)
    for broker_id, reason in {
        7: "Broker ID 7 is not currently registered",
        0: "Broker 0 is this node, which is running",
    }.items():
        done = run_tool("ClusterTool", "unregister", *bootstrap, "--id", str(broker_id))
        assert done.returncode == 1
        assert reason in done.stdout + done.stderr


@pytest.mark.full
def test_voters_move_into_the_log(tmp_path: Path) -> None:
    """kraft.version 1, which the next start finds."""
    with broker_process(tmp_path, "--profile", "dev", *CONTROLLER) as running:
        tool(running, "FeatureCommand", "upgrade", "--feature", "kraft.version=1")
        assert features(running)["kraft.version"] == "1"
        running.stop()
        running.start()
        assert features(running)["kraft.version"] == "1"
        status = tool(running, "MetadataQuorumCommand", "describe", "--status")
        directory = re.search(r"directory\.id=(\S+)", (tmp_path / "meta.properties").read_text())
        assert directory is not None
        assert f'"directoryId": "{directory[1]}"' in status
