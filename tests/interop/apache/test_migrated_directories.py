"""Apache Kafka serves the directories that aiokq has migrated from its version 0.1.0."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.golden.directories import contents
from tests.golden.directories.contents import Json
from tests.interop.apache.directories import complaints
from tests.peers.apache_kafka import ApacheKafka, why_absent
from tests.peers.broker_process import broker_process

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.build_independent,
    pytest.mark.skipif(why_absent() is not None, reason=str(why_absent())),
]

SMOKE = "killed"
LEFT_OUT = "two-missing"
"""Apache Kafka makes the partitions of a missing directory again, empty."""

HARMLESS = ("log.cleaner.enable", "Loaded stray log")


def without_leadership(served: Json) -> Json:
    """Leave out the leader epochs, which Kafka raises when it leads again."""
    topics = {
        name: {
            **topic,
            "partitions": [
                {key: value for key, value in one.items() if key != "leader_epoch"}
                for one in topic["partitions"]
            ],
        }
        for name, topic in served["topics"].items()
    }
    return {**served, "topics": topics}


def kafka_on(root: Path, paths: list[Path], name: str) -> ApacheKafka:
    """Return a node of Apache Kafka on log directories, not started."""
    root.mkdir()
    apache = ApacheKafka(root)
    [node_id] = contents.expected(name)["served"]["node_ids"]
    controller = f"127.0.0.1:{apache.controller_ports[1]}"
    apache.properties |= {
        **contents.SETTINGS,
        "log.dirs": ",".join(map(str, paths)),
        "node.id": str(node_id),
        "controller.quorum.voters": f"{node_id}@{controller}",
    }
    text = apache.configuration(1)
    if name == "kafka-standalone":
        text = text.replace(
            f"controller.quorum.voters={node_id}@", "controller.quorum.bootstrap.servers="
        )
    (root / "node-1.properties").write_text(text)
    return apache


@pytest.mark.parametrize(
    "name",
    [
        name if name == SMOKE else pytest.param(name, marks=pytest.mark.full)
        for name in contents.NAMES
        if name != LEFT_OUT
    ],
)
def test_apache_kafka_reads_a_migrated_directory(name: str, tmp_path: Path) -> None:
    """Topics with ids, settings and records, and groups with their commits."""
    expected = contents.expected(name)
    paths = contents.unpack(name, tmp_path)
    arguments = (*contents.ARGUMENTS, *contents.more_directories(paths))
    with broker_process(paths[0], *arguments) as broker:
        assert broker.stop() == 0
    apache = kafka_on(tmp_path / "kafka", paths, name)
    try:
        apache.start_node(1)
        found = asyncio.run(contents.served(apache.bootstrap_servers))
        apache.stop_node(1)
    finally:
        apache.stop()
    assert without_leadership(found) == without_leadership(expected["served"])
    assert complaints(apache, *HARMLESS) == []
