"""Log directories that move from Apache Kafka to this broker and back lose nothing.

One run of Apache Kafka writes everything that a directory can hold. Every test has a copy of it, as
a clean shutdown or SIGKILL left it.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from aiokq.broker.inspection.findings import Severity
from aiokq.broker.inspection.verifying import verify
from aiokq.core.files import OsFiles
from aiokq.core.properties import parse_properties
from aiokq.fastpath import crc32c
from tests.interop.apache import directories
from tests.interop.apache.directories import (
    COMMITTED,
    LOG_START,
    TOPICS,
    Rows,
    commit,
    committed,
    complaints,
    copy,
    fill,
    go_on,
    paused_copy,
    produce,
    read,
    started_on,
)
from tests.peers.apache_kafka import ApacheKafka, apache_kafka, run_tool, why_absent
from tests.peers.broker_process import BrokerProcess, broker_process
from tests.peers.other_clients import PATIENCE

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.build_independent,
    pytest.mark.skipif(why_absent() is not None, reason=str(why_absent())),
]

COUNTS = {name: topic.num_partitions for name, topic in TOPICS.items()}
METADATA = "__cluster_metadata-0"
SETTINGS = {
    "offsets_topic_num_partitions": "50",
    "log_cleaner_backoff_ms": "200",
    "log_initial_task_delay_ms": "500",
}


class Written(NamedTuple):
    """The directories that Apache Kafka wrote, and the records that it served from them.

    Attributes:
        directories: by kind of shutdown, the directory that it left.
    """

    directories: dict[str, Path]
    uncommitted: Rows
    committed: Rows
    cluster_id: str


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The directory after SIGKILL and after a clean shutdown."""
    path = tmp_path_factory.mktemp("written")
    with apache_kafka(**SETTINGS) as apache:
        fill(apache)
        rows = read(apache.bootstrap_servers, COUNTS)
        stable = read(apache.bootstrap_servers, COUNTS, "read_committed")
        paused_copy(apache, path / "killed")
        apache.stop_node(1)
        copy(apache.directory / "node-1", path / "clean")
    ids = parse_properties((path / "clean" / "meta.properties").read_text())
    places = {how: path / how for how in ("clean", "killed")}
    return Written(places, rows, stable, ids["cluster.id"])


@pytest.fixture(params=[pytest.param("clean", marks=pytest.mark.full), "killed"])
def taken(request: pytest.FixtureRequest, written: Written, tmp_path: Path) -> Path:
    """A copy of one of the directories."""
    copy(written.directories[request.param], tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def broker(taken: Path) -> Iterator[BrokerProcess]:
    """aiokq's broker on the directory, without settings for its ids."""
    with broker_process(taken, "--set", "log.retention.check.interval.ms=200") as running:
        yield running


def records(rows: Rows) -> Rows:
    """Leave out the compacted topic, because Kafka's cleaner may run once more before shutdown."""
    return {place: found for place, found in rows.items() if place[0] != "compacted"}


def newest(rows: Rows) -> dict[bytes | None, bytes | None]:
    """The last value of each key of the compacted topic."""
    return {row.key: row.value for row in rows["compacted", 0]}


def configs(bootstrap: str, topic: str) -> dict[str, str]:
    """Return the configs that were set for a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    [future] = admin.describe_configs([resource]).values()
    given = future.result(PATIENCE)
    return {name: entry.value for name, entry in given.items() if entry.source == 1}


def topics(bootstrap: str) -> dict[str, int]:
    """Return all topics with their partition counts."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=PATIENCE)
    return {name: len(topic.partitions) for name, topic in found.topics.items()}


def test_everything_apache_kafka_wrote_is_served(
    broker: BrokerProcess, written: Written, taken: Path
) -> None:
    """Topics, configs, complete records, groups, and the node's and the cluster's ids."""
    bootstrap = broker.bootstrap_servers
    assert (broker.info["node_id"], broker.info["cluster_id"]) == (1, written.cluster_id)
    internal = {"__consumer_offsets": 50, "__transaction_state": 4}
    assert topics(bootstrap) == COUNTS | internal
    for name, topic in TOPICS.items():
        assert configs(bootstrap, name) == (topic.config or {})
    rows = read(bootstrap, COUNTS)
    assert records(rows) == records(written.uncommitted)
    assert newest(rows) == newest(written.uncommitted)
    assert rows["cut", 0][0].offset == LOG_START
    stable = read(bootstrap, COUNTS, "read_committed")
    assert records(stable) == records(written.committed)
    values = [row.value for row in stable["transactions", 0]]
    assert values == [b"%d.%d" % (turn, number) for turn in range(5) for number in range(4)]
    assert [row.key for row in stable["unfinished", 0]] == [b"before"]
    assert not list(taken.glob("*-stray"))

    assert committed(bootstrap, "workers", "codecs", 2) == [COMMITTED, COMMITTED + 1]
    left = sum(len(rows["codecs", number]) - COMMITTED - number for number in range(2))
    places = go_on(bootstrap, "workers", "codecs", left)
    assert min(offset for number, offset in places if number == 0) == COMMITTED
    assert min(offset for number, offset in places if number == 1) == COMMITTED + 1
    ends = [rows["codecs", number][-1].offset + 1 for number in range(2)]
    assert sorted(produce(bootstrap, "codecs", 2)) == [(0, ends[0]), (1, ends[1])]


@pytest.mark.full
def test_what_apache_kafka_wrote_is_found_sound(taken: Path) -> None:
    """`aiokq log verify` must find no damage in a sound log.

    The log has aborted transactions, compacted segments and snapshots of expired producers.
    """
    report = verify(OsFiles(), str(taken), crc32c=crc32c, deep=True)
    assert report.clean is (taken / ".kafka_cleanshutdown").exists()
    assert [one for one in report.findings if one.severity is Severity.ERROR] == []
    assert [one for one in report.findings if one.path.endswith(".snapshot")] == []
    assert {str(one.partition) for one in report.partitions} >= {"compacted-0", "transactions-0"}


def test_without_kafkas_metadata_nothing_is_deleted(written: Written, tmp_path: Path) -> None:
    """The topics are those found on disk; only the user knows which of them may be deleted."""
    data = tmp_path / "data"
    copy(written.directories["clean"], data)
    before = {
        path: path.read_bytes()
        for path in data.glob("*-*/0*.log")
        if path.parent.name != METADATA and not path.parent.name.endswith("-delete")
    }
    for path in (data / METADATA).iterdir():
        path.unlink()
    (data / METADATA).rmdir()
    # Settings with which retention and compaction would delete everything they may.
    now = ("retention.ms=1", "retention.bytes=0", "cleaner.backoff.ms=100", "roll.ms=1")
    eager = [f"log.{one}" for one in (*now, "retention.check.interval.ms=100")]
    arguments = [part for one in eager for part in ("--set", one)]
    for _ in range(2):
        with broker_process(data, *arguments) as running:
            bootstrap = running.bootstrap_servers
            assert running.info["cluster_id"] == written.cluster_id
            assert topics(bootstrap).items() >= COUNTS.items()
            assert configs(bootstrap, "cut") == {"cleanup.policy": ""}
            rows = read(bootstrap, COUNTS)
            assert records(rows) == records(written.uncommitted)
            assert committed(bootstrap, "workers", "codecs", 2) == [COMMITTED, COMMITTED + 1]
    assert all(path.read_bytes().startswith(content) for path, content in before.items())


def served_by_kafka(apache: ApacheKafka) -> tuple[Rows, Rows]:
    bootstrap = apache.bootstrap_servers
    return read(bootstrap, COUNTS), read(bootstrap, COUNTS, "read_committed")


@pytest.mark.full
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_apache_kafka_goes_on_where_we_stopped(
    taken: Path, written: Written, tmp_path: Path, end: str
) -> None:
    """It finds topics, records and commits made here, with matching offsets and epochs."""
    with broker_process(taken) as running:
        bootstrap = running.bootstrap_servers
        for codec in directories.CODECS:
            produce(bootstrap, "codecs", 10, codec=codec)
        go_on(bootstrap, "workers", "codecs", 60)
        commit(bootstrap, "ours", "cut", {0: 13})
        left = committed(bootstrap, "workers", "codecs", 2)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        [future] = admin.create_topics([NewTopic("here", 1, 1)]).values()
        future.result(PATIENCE)
        produce(bootstrap, "here", 3)
        ours = read(bootstrap, COUNTS), read(bootstrap, COUNTS, "read_committed")
        running.stop(signal.SIGKILL if end == "killed" else signal.SIGTERM)
    (tmp_path / "kafka").mkdir()
    apache = ApacheKafka(tmp_path / "kafka", **SETTINGS)
    try:
        started_on(apache, taken)
        bootstrap = apache.bootstrap_servers
        theirs = served_by_kafka(apache)
        assert [records(rows) for rows in theirs] == [records(rows) for rows in ours]
        assert newest(theirs[0]) == newest(ours[0])
        assert committed(bootstrap, "workers", "codecs", 2) == left
        assert committed(bootstrap, "ours", "cut", 1) == [13]
        rest = sum(
            row.offset >= left[number] for number in (0, 1) for row in theirs[0]["codecs", number]
        )
        assert len(go_on(bootstrap, "workers", "codecs", rest)) == rest
        produce(bootstrap, "codecs", 10)
        assert len(read(bootstrap, {"here": 1})["here", 0]) == 3
        last = read(bootstrap, COUNTS)
        apache.stop_node(1)
    finally:
        apache.stop()
    assert complaints(apache) == []
    assert not list((apache.directory / "node-1").glob("*-stray"))
    with broker_process(apache.directory / "node-1") as running:
        assert records(read(running.bootstrap_servers, COUNTS)) == records(last)
        assert len(read(running.bootstrap_servers, {"here": 1})["here", 0]) == 3


def dump(*arguments: str) -> str:
    done = run_tool("kafka.tools.DumpLogSegments", *arguments)
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip(), done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rows]:
    """A directory written by aiokq with topics and groups, and the records served from it."""
    path = tmp_path_factory.mktemp("ours") / "data"
    with broker_process(path, "--set", "log.segment.bytes=1048576") as running:
        bootstrap = running.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        new = [TOPICS["codecs"], TOPICS["cut"], TOPICS["empty"]]
        for future in admin.create_topics(new).values():
            future.result(PATIENCE)
        for codec in directories.CODECS * 2:
            produce(bootstrap, "codecs", 400, codec=codec)
        produce(bootstrap, "cut", 20)
        commit(bootstrap, "workers", "codecs", {0: COMMITTED, 1: COMMITTED + 1})
        rows = read(bootstrap, {"codecs": 2, "cut": 1, "empty": 7})
    return path, rows


@pytest.mark.full
def test_apache_kafkas_tool_reads_our_groups_and_indexes(ours: tuple[Path, Rows]) -> None:
    """Kafka's decoder knows every record that aiokq wrote to __consumer_offsets."""
    path, _ = ours
    offsets = [p for p in path.glob("__consumer_offsets-*/*.log") if p.stat().st_size]
    out = dump("--offsets-decoder", "--files", ",".join(map(str, offsets)))
    said = [
        json.loads(line.partition("key: ")[2].partition(" payload: ")[0])
        for line in out.splitlines()
        if line.startswith("|")
    ]
    assert {"workers"} == {key["data"]["group"] for key in said if "group" in key["data"]}
    assert "isvalid: false" not in out
    files = ",".join(str(p) for p in sorted(path.glob("codecs-*/*index")))
    out = dump("--index-sanity-check", "--files", files)
    assert out.count("passed sanity check") == len(files.split(","))
    logs = ",".join(str(p) for p in sorted(path.glob("codecs-*/*.log")))
    out = dump("--deep-iteration", "--print-data-log", "--files", logs)
    assert "isvalid: false" not in out
    assert not [text for text in ("Mismatch", "mismatch", "out of order") if text in out]


@pytest.mark.full
def test_apache_kafka_starts_on_a_directory_of_ours(
    ours: tuple[Path, Rows], tmp_path: Path
) -> None:
    """Kafka finds topics, ids, configs, records and groups; aiokq then takes it back."""
    source, rows = ours
    data = tmp_path / "data"
    copy(source, data)
    counts = {"codecs": 2, "cut": 1, "empty": 7}
    (tmp_path / "kafka").mkdir()
    apache = ApacheKafka(tmp_path / "kafka", **SETTINGS)
    apache.properties |= {
        "node.id": "0",
        "controller.quorum.voters": f"0@127.0.0.1:{apache.controller_ports[1]}",
    }
    try:
        started_on(apache, data)
        bootstrap = apache.bootstrap_servers
        assert topics(bootstrap).items() >= counts.items()
        assert configs(bootstrap, "codecs") == TOPICS["codecs"].config
        assert read(bootstrap, counts) == rows
        assert committed(bootstrap, "workers", "codecs", 2) == [COMMITTED, COMMITTED + 1]
        produce(bootstrap, "codecs", 10, codec="zstd")
        last = read(bootstrap, counts)
        released = run_tool(
            "FeatureCommand", "--bootstrap-server", bootstrap, "upgrade", "--release-version", "4.2"
        )
        assert released.returncode == 0, released.stdout + released.stderr
        apache.stop_node(1)
    finally:
        apache.stop()
    assert complaints(apache, "Upgrading metadata.version") == []
    with broker_process(apache.directory / "node-1") as running:
        assert read(running.bootstrap_servers, counts) == last
        assert committed(running.bootstrap_servers, "workers", "codecs", 2) == [
            COMMITTED,
            COMMITTED + 1,
        ]
