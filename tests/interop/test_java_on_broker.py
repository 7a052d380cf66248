"""Apache Kafka's own tools and clients against `aiokq broker`."""

from __future__ import annotations

import json
import re

import pytest

from tests.peers.apache_kafka import run_tool, why_absent
from tests.peers.broker_process import broker_process

REASON = why_absent()
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with broker_process(tmp_path_factory.mktemp("broker"), "--profile", "dev") as running:
        yield running


def tool(broker, name: str, *arguments: str) -> str:
    """Run a tool to its end; what it printed."""
    done = run_tool(name, "--bootstrap-server", broker.bootstrap_servers, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_topic_command_creates_grows_describes_and_deletes(broker):
    """AdminClient 4.2: CreateTopics, DescribeTopicPartitions, DescribeConfigs, CreatePartitions."""
    created = tool(
        broker, "TopicCommand", "--create", "--topic", "jt", "--partitions", "3",
        "--config", "retention.ms=100000",
    )  # fmt: skip
    assert "Created topic jt." in created
    tool(broker, "TopicCommand", "--alter", "--topic", "jt", "--partitions", "5")
    described = tool(broker, "TopicCommand", "--describe", "--topic", "jt")
    assert "PartitionCount: 5" in described
    assert "retention.ms=100000" in described
    assert "Leader: 0" in described
    assert "jt" in tool(broker, "TopicCommand", "--list").split()
    tool(broker, "TopicCommand", "--delete", "--topic", "jt")
    assert "jt" not in tool(broker, "TopicCommand", "--list").split()


def test_the_config_command_alters_and_describes(broker):
    """IncrementalAlterConfigs, and every value's synonyms."""
    tool(broker, "TopicCommand", "--create", "--topic", "jc")
    entity = ("--entity-type", "topics", "--entity-name", "jc")
    tool(broker, "kafka.admin.ConfigCommand", *entity, "--alter", "--add-config", "retention.ms=5")
    described = tool(broker, "kafka.admin.ConfigCommand", *entity, "--describe")
    assert "retention.ms=5" in described
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=5" in described
    brokers = ("--entity-type", "brokers", "--entity-name", "0")
    described = tool(broker, "kafka.admin.ConfigCommand", *brokers, "--describe", "--all")
    assert "num.partitions=1" in described


def test_the_verifiable_producer_and_the_console_consumer(broker):
    """Each value acknowledged with its offset, then read back from one partition."""
    produced = tool(
        broker, "VerifiableProducer", "--topic", "jv", "--max-messages", "50", "--acks", "-1"
    )
    events = [json.loads(line) for line in produced.splitlines()]
    offsets = [e["offset"] for e in events if e["name"] == "producer_send_success"]
    assert offsets == list(range(50))
    consumed = tool(
        broker, "consumer.ConsoleConsumer", "--topic", "jv", "--partition", "0",
        "--offset", "earliest", "--max-messages", "50", "--timeout-ms", "15000",
    )  # fmt: skip
    assert consumed.split() == [str(n) for n in range(50)]
    assert "jv:0:50" in tool(broker, "GetOffsetShell", "--topic", "jv")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_producer_performance_with_every_codec_and_idempotence(broker, codec):
    """Java's default: idempotent, acks=all; what it wrote is checked by its own dump tool."""
    topic = f"jp-{codec}"
    printed = tool(
        broker, "ProducerPerformance", "--topic", topic, "--num-records", "2000",
        "--record-size", "500", "--throughput", "-1",
        "--command-property", f"compression.type={codec}",
    )  # fmt: skip
    assert "2000 records sent" in printed
    batches = broker.batches(topic)
    assert sum(batch.count for batch in batches) == 2000
    assert all(batch.producer_id >= 0 for batch in batches)
    log = broker.data_dir / f"{topic}-0" / "00000000000000000000.log"
    dumped = run_tool("kafka.tools.DumpLogSegments", "--files", str(log), "--deep-iteration")
    headers = re.findall(r"compresscodec: (\w+) .* isvalid: (\w+)", dumped.stdout)
    assert len(headers) == len(batches)
    assert set(headers) == {(codec, "true")}
