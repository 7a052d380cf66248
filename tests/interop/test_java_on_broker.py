"""Apache Kafka's own tools and clients against `aiokq broker`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.peers.apache_kafka import java_command, run_tool, why_absent
from tests.peers.broker_process import BrokerProcess, broker_process

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
    """Run a tool to its end; return its output."""
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
    """IncrementalAlterConfigs, and the synonyms of every value."""
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
    """Each value is acknowledged with its offset, then read back from one partition."""
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
    """Java's defaults: idempotent and acks=all; its own dump tool checks what it wrote."""
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


@pytest.mark.full
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_console_producer_and_consumer_with_every_codec(broker, codec):
    """Keys, values and offsets arrive, and the log has the chosen codec."""
    topic = f"jl-{codec}"
    lines = [f"key {n}:value {n} " + "x" * 100 for n in range(40)]
    done = run_tool(
        "ConsoleProducer", "--bootstrap-server", broker.bootstrap_servers, "--topic", topic,
        "--compression-codec", codec,
        "--reader-property", "parse.key=true", "--reader-property", "key.separator=:",
        stdin="".join(f"{line}\n" for line in lines),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    consumed = tool(
        broker, "consumer.ConsoleConsumer", "--topic", topic, "--partition", "0",
        "--offset", "earliest", "--max-messages", "40", "--timeout-ms", "15000",
        "--formatter-property", "print.key=true", "--formatter-property", "key.separator=:",
        "--formatter-property", "print.offset=true",
    )  # fmt: skip
    assert consumed.splitlines() == [f"Offset:{n}:{line}" for n, line in enumerate(lines)]
    names = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
    assert {names[batch.codec] for batch in broker.batches(topic)} == {codec}


@pytest.mark.full
def test_records_are_deleted_and_offsets_told(broker, tmp_path):
    """kafka-delete-records, and kafka-get-offsets for each kind of offset."""
    tool(broker, "VerifiableProducer", "--topic", "jd", "--max-messages", "10", "--acks", "-1")
    wanted = tmp_path / "delete.json"
    partition = {"topic": "jd", "partition": 0, "offset": 4}
    wanted.write_text(json.dumps({"partitions": [partition], "version": 1}))
    deleted = tool(broker, "DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert re.search(r"partition: jd-0\s+low_watermark: 4", deleted)
    for which, offset in (("earliest", 4), ("latest", 10)):
        told = tool(broker, "GetOffsetShell", "--topic", "jd", "--time", which)
        assert told.split() == [f"jd:0:{offset}"]
    partition["offset"] = 400
    wanted.write_text(json.dumps({"partitions": [partition], "version": 1}))
    refused = tool(broker, "DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert "OffsetOutOfRange" in refused


@pytest.mark.full
def test_the_cluster_and_its_versions_are_told(broker):
    """kafka-broker-api-versions lists every usable version, kafka-cluster the node."""
    versions = tool(broker, "BrokerApiVersionsCommand")
    assert "Produce(0): 0 to 13 [usable: 13]" in versions
    assert "Fetch(1): 4 to 18 [usable: 18]" in versions
    ends = ("--bootstrap-server", broker.bootstrap_servers)
    told = run_tool("ClusterTool", "cluster-id", *ends)
    stored = (broker.data_dir / "meta.properties").read_text()
    assert told.stdout.split()[-1] in stored
    listed = run_tool("ClusterTool", "list-endpoints", *ends)
    assert re.search(r"0 +127\.0\.0\.1 +\d+ .*unfenced +broker", listed.stdout)


@pytest.mark.full
def test_the_log_directories_and_their_partitions_are_described(broker):
    """kafka-log-dirs names the directory, and each partition with its size."""
    tool(broker, "VerifiableProducer", "--topic", "jl", "--max-messages", "10", "--acks", "-1")
    described = tool(broker, "LogDirsCommand", "--describe", "--topic-list", "jl")
    [node] = json.loads(described.splitlines()[-1])["brokers"]
    assert node["broker"] == 0
    [directory] = node["logDirs"]
    assert (directory["logDir"], directory["error"]) == (str(broker.data_dir), None)
    [log] = broker.data_dir.glob("jl-0/*.log")
    [partition] = directory["partitions"]
    assert partition == {
        "partition": "jl-0",
        "size": log.stat().st_size,
        "offsetLag": 0,
        "isFuture": False,
    }


def verifiable_producer_over_kills(
    broker: BrokerProcess, properties: Path, settings: tuple[str, ...]
) -> tuple[dict[int, tuple[str, int]], dict[int, tuple[str, int]]]:
    """Kill the broker under a producer; return the acknowledged records and the log's, by offset.

    A record is a pair of key and value.
    """
    configs = [word for setting in settings for word in ("--config", setting)]
    tool(broker, "TopicCommand", "--create", "--topic", "kills", *configs)
    acknowledged: dict[int, tuple[str, int]] = {}
    producer = subprocess.Popen(
        java_command(
            "org.apache.kafka.tools.VerifiableProducer",
            *("--bootstrap-server", broker.bootstrap_servers, "--topic", "kills"),
            *("--throughput", "400", "--acks", "-1", "--command-config", str(properties)),
            *("--repeating-keys", "10"),
        ),
        stdout=subprocess.PIPE,
        text=True,
    )

    def note(line: str) -> None:
        event = json.loads(line)
        assert event["name"] != "producer_send_error", event
        if event["name"] == "producer_send_success":
            acknowledged[event["offset"]] = (event["key"], int(event["value"]))

    try:
        assert producer.stdout is not None
        kills = 0
        for line in producer.stdout:
            note(line)
            if len(acknowledged) >= 400 * (kills + 1):
                if kills == 3:
                    break
                kills += 1
                broker.stop(signal.SIGKILL)
                broker.start()
        producer.terminate()
        for line in producer.stdout:  # records in flight are sent to their end
            note(line)
        producer.wait(30)
        consumed = tool(
            broker, "consumer.ConsoleConsumer", "--topic", "kills", "--partition", "0",
            "--offset", "earliest", "--timeout-ms", "8000",
            "--formatter-property", "print.key=true", "--formatter-property", "print.offset=true",
        )  # fmt: skip
    finally:
        producer.kill()
        producer.wait()
        producer.stdout.close()
    logged: dict[int, tuple[str, int]] = {}
    for line in consumed.splitlines():
        offset, key, value = line.split("\t")
        assert int(offset.removeprefix("Offset:")) not in logged
        logged[int(offset.removeprefix("Offset:"))] = (key, int(value))
    assert kills == 3
    return acknowledged, logged


@pytest.mark.full
@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("flush.messages=1",),
        ("segment.ms=300", "flush.ms=100"),
        ("cleanup.policy=compact,delete", "segment.ms=300", "min.cleanable.dirty.ratio=0.01"),
    ],
    ids=["defaults", "every record flushed", "small segments", "compact,delete"],
)
def test_the_verifiable_producer_survives_three_kills_of_the_broker(tmp_path, settings):
    """SIGKILL during its stream: each acknowledged record exists once, at its offset.

    In a compacted log this holds for records that no later record of the same key replaced.
    """
    properties = tmp_path / "producer.properties"
    properties.write_text("retries=2147483647\ndelivery.timeout.ms=60000\nlinger.ms=2\n")
    compacted = any("compact" in setting for setting in settings)
    arguments = ("--profile", "dev", "--set", "log.cleaner.backoff.ms=100")
    with broker_process(tmp_path / "data", *arguments) as broker:
        broker.port = int(broker.bootstrap_servers.rpartition(":")[2])
        acknowledged, logged = verifiable_producer_over_kills(broker, properties, settings)
    segments = sorted((tmp_path / "data" / "kills-0").glob("*.log"))
    values = [value for _, value in logged.values()]
    if not compacted:
        assert {offset: logged[offset] for offset in acknowledged} == acknowledged
        assert values == list(range(len(logged)))
        assert list(logged) == values
    else:
        assert values == sorted(set(values))
        assert all(logged[o] == content for o, content in acknowledged.items() if o in logged)
        newest = {key: offset for offset, (key, _) in logged.items()}
        assert all(newest[key] >= offset for offset, (key, _) in acknowledged.items())
        assert len(logged) < len(acknowledged), "nothing was compacted"
    if any("segment" in setting for setting in settings):
        assert segments[-1].name != f"{0:020d}.log", "nothing was rolled"
