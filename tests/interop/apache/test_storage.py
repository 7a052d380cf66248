"""`aiokq storage` beside Apache Kafka: directories that one formats or adopts, the other opens."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

import aiokq
from aiokq.broker.log.uuid_text import format_uuid
from aiokq.broker.metadata.log.cluster_metadata_log import LogLimits
from aiokq.broker.metadata.stopped_broker.formatting import FormatOptions, format_directories
from aiokq.fastpath import crc32c
from aiokq.wire.quorum_records import VotersRecordEndpoint
from tests.interop.apache.support import create_topic, eventually
from tests.peers.apache_kafka import ApacheKafka, run_tool, why_absent
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.metadata.quorum_logs import quorum_of_three
from tests.unit.broker.metadata.stopped_broker.test_adoption import run as adopt
from tests.unit.broker.metadata.stopped_broker.test_log_repair import log_of, spoil
from tests.unit.broker.metadata.stopped_broker.test_log_repair import run as repair

pytestmark = pytest.mark.kafka

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


@pytest.fixture(autouse=True)
def apache_is_there():
    reason = why_absent()
    if reason is not None:
        pytest.skip(f"APACHE KAFKA IS NOT TESTED: {reason}")


def aiokq_storage(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "aiokq", "storage", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Dynamic(ApacheKafka):
    """A cluster whose voters are in the metadata log."""

    def configuration(self, node: int) -> str:
        servers = ",".join(f"127.0.0.1:{port}" for port in self.controller_ports.values())
        lines = super().configuration(node).splitlines(keepends=True)
        lines = [line for line in lines if not line.startswith("controller.quorum.voters")]
        return "".join([*lines, f"controller.quorum.bootstrap.servers={servers}\n"])

    def format(self) -> None:
        controllers = ",".join(
            f"{node}@127.0.0.1:{port}:{directory_id(node)}"
            for node, port in self.controller_ports.items()
        )
        for node in self.ports:
            path = self._properties_path(node)
            path.write_text(self.configuration(node))
            arguments = ("format", "-t", CLUSTER, "-c", str(path), "-I", controllers)
            done = run_tool("kafka.tools.StorageTool", *arguments)
            assert done.returncode == 0, done.stderr


def directory_id(node: int) -> str:
    return format_uuid(uuid.UUID(int=1 << 100 | node))


class FormattedHere(ApacheKafka):
    """A node whose directory aiokq has formatted."""

    options: tuple[str, ...] = ()

    def configuration(self, node: int) -> str:
        lines = super().configuration(node).splitlines(keepends=True)
        # aiokq refuses the settings of a broker that it cannot honor.
        return "".join(line for line in lines if not line.startswith("replica.selector.class"))

    def format(self) -> None:
        path = self._properties_path(1)
        path.write_text(self.configuration(1))
        aiokq_storage("format", "-c", path, "-t", CLUSTER, *self.options)


class FormattedDynamic(FormattedHere, Dynamic):
    """The same with the voter in the log."""


@pytest.mark.parametrize("kind", [FormattedHere, FormattedDynamic])
async def test_kafka_starts_on_a_formatted_directory(kind, tmp_path: Path) -> None:
    """Its tool finds nothing wrong, in the same words as ours; its broker serves topics."""
    apache = kind(tmp_path)
    apache.options = (
        *("--add-scram", "SCRAM-SHA-256=[name=alice,password=alice-secret]"),
        *("--release-version", "4.1"),
    )
    try:
        apache.start()
        properties = str(tmp_path / "node-1.properties")
        theirs = run_tool("kafka.tools.StorageTool", "info", "-c", properties)
        assert theirs.returncode == 0
        assert theirs.stdout == aiokq_storage("info", "-c", properties)
        await create_topic(apache, "orders", 2)
        async with aiokq.Admin(apache.bootstrap_servers) as admin:
            features = await admin.describe_features()
            assert features.finalized_features["metadata.version"].max_version_level == 27
            cluster = await admin.describe_cluster()
            assert cluster.cluster_id == CLUSTER
        users = run_tool(
            "kafka.admin.ConfigCommand",
            *("--bootstrap-server", apache.bootstrap_servers),
            *("--describe", "--entity-type", "users"),
        )
        assert "'alice' are SCRAM-SHA-256=iterations=4096" in users.stdout
    finally:
        apache.stop()


class Joined(Dynamic):
    """A node of Kafka, and a second one whose directory aiokq has formatted without voters."""

    def format(self) -> None:
        for node in self.ports:
            path = self._properties_path(node)
            path.write_text(self.configuration(node))
        (own, other) = map(self._properties_path, self.ports)
        arguments = ("format", "-t", CLUSTER, "-c", str(own), "-s", "-r", "4.0")
        assert run_tool("kafka.tools.StorageTool", *arguments).returncode == 0
        aiokq_storage("format", "-c", other, "-t", CLUSTER, "--no-initial-controllers")

    def configuration(self, node: int) -> str:
        servers = f"controller.quorum.bootstrap.servers=127.0.0.1:{self.controller_ports[1]}\n"
        text = super().configuration(node)
        return re.sub(r"controller\.quorum\.bootstrap\.servers=.*\n", servers, text)


def refused(path: Path) -> str:
    """Return what the broker says that refuses a directory, and changes nothing in it."""
    before = {one: one.read_bytes() for one in path.rglob("*") if one.is_file()}
    done = subprocess.run(
        [sys.executable, "-m", "aiokq", "broker", "--data-dir", str(path), "--port", "0"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    after = {one: one.read_bytes() for one in path.rglob("*") if one.is_file()}
    assert {**before, path / ".lock": b""} == after
    return done.stderr


async def test_a_node_without_voters_joins_kafka_and_is_refused_here(tmp_path: Path) -> None:
    """Before and after Kafka has used the directory; Kafka's own formats are refused, too."""
    apache = Joined(tmp_path, 2)
    try:
        apache.format()
        path = tmp_path / "node-2"
        assert "names no voter" in refused(path)
        for node in apache.ports:
            apache.start_node(node)
        server = ("--bootstrap-server", apache.bootstrap_servers)

        async def node_is(role: str) -> None:
            described = run_tool("MetadataQuorumCommand", *server, "describe", "--replication")
            assert role in described.stdout

        await eventually(lambda: node_is("Observer"), 60)
        properties = ("--command-config", str(tmp_path / "node-2.properties"))
        run_tool("MetadataQuorumCommand", *properties, *server, "add-controller")
        await eventually(lambda: node_is("Follower"), 60)
    finally:
        apache.stop()
    assert re.search("belongs to a quorum with the voters 1 .*, 2 ", refused(path))


async def test_a_directory_of_kafka_without_its_node_among_the_voters_is_refused(
    tmp_path: Path,
) -> None:
    """Kafka's node would wait to be added to the quorum of the others."""
    apache = Dynamic(tmp_path, 2)
    tool = "kafka.tools.StorageTool"
    path = tmp_path / "node-2.properties"
    path.write_text(apache.configuration(2))
    arguments = ("format", "-t", CLUSTER, "-c", str(path))
    other = f"1@127.0.0.1:{apache.controller_ports[1]}:{directory_id(1)}"
    assert run_tool(tool, *arguments, "-I", other).returncode == 0
    assert "belongs to a quorum with the voters 1 (" in refused(tmp_path / "node-2")


@pytest.mark.parametrize("kind", [ApacheKafka, Dynamic])
async def test_kafka_continues_alone_after_an_adoption(kind, tmp_path: Path) -> None:
    """Records on this node are there, and it accepts others; Kafka ignores the old log."""
    apache = kind(tmp_path, 3)
    try:
        apache.start()
        everywhere = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}
        await create_topic(apache, "kept", assignments=everywhere)
        await create_topic(apache, "split", assignments={0: [1], 1: [2], 2: [3]})
        async with (
            aiokq.Cluster(apache.bootstrap_servers) as cluster,
            cluster.producer() as producer,
        ):
            for number in range(30):
                await producer.send("kept", str(number).encode(), partition=number % 3)
    finally:
        apache.stop()  # killed together: after a clean stop node 1 would not be in sync
    data = tmp_path / "node-1"
    told = aiokq_storage("adopt", data)
    assert "the voters were 1, 2, 3" in told
    assert "split  1,2" in told
    alone = kind(tmp_path, 1)
    path = tmp_path / "node-1.properties"
    path.write_text(alone.configuration(1))
    try:
        alone.start_node(1)
        async with aiokq.Admin(alone.bootstrap_servers) as admin:

            async def led() -> None:
                described = await admin.describe_topics(["kept", "split"], raise_errors=True)
                kept, split = described["kept"].partitions, described["split"].partitions
                assert [(one.leader, one.replicas, one.isr) for one in kept] == [
                    (1, (1,), (1,))
                ] * 3
                assert [one.leader for one in split] == [1, -1, -1]

            await eventually(led)
            quorum = await admin.describe_metadata_quorum()
            assert [one.replica_id for one in quorum.voters] == [1]
        async with aiokq.Cluster(alone.bootstrap_servers) as cluster:
            async with cluster.producer() as producer:
                await producer.send("kept", b"30", partition=0)
            found = []
            async with cluster.consumer("kept", auto_offset_reset="earliest") as consumer:
                async for record in consumer:
                    found.append(int(record.value))
                    if len(found) == 31:
                        break
        assert sorted(found) == list(range(31))
        assert (data / "__cluster_metadata-0.before-adoption-stray").is_dir()
    finally:
        alone.stop()


def test_kafka_decodes_what_is_written_here(tmp_path: Path) -> None:
    """Its tool prints the records of logs and snapshots as `aiokq log dump` does."""
    whole = log_of(6, LogLimits(segment_bytes=1000, snapshot_bytes=500))
    adopted = quorum_of_three(1)
    adopt(adopted)
    broken = log_of(4)
    spoil(broken, 3)
    repair(broken)
    formatted = MemoryFiles()
    format_directories(
        formatted,
        FormatOptions(
            node_id=3,
            cluster_id=CLUSTER,
            directories=("/data",),
            standalone=VotersRecordEndpoint(name="CONTROLLER", host="::1", port=9093),
            scram=("SCRAM-SHA-512=[name=größe,password=secret]",),
        ),
        random=random.Random(1),
        timestamp_ms=9,
        crc32c=crc32c,
    )
    for number, files in enumerate((whole, adopted, broken, formatted)):
        write_out(files, "/data", tmp_path / str(number))
    paths = sorted(
        str(path)
        for path in tmp_path.rglob("*")
        if path.suffix in (".log", ".checkpoint") and "stray" not in str(path)
    )
    assert len(paths) == 7  # the segment before the first snapshot is kept, too
    theirs = run_tool(
        "kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", ",".join(paths)
    )
    assert theirs.returncode == 0, theirs.stderr
    ours = ""
    for path in paths:
        done = subprocess.run(
            [sys.executable, "-m", "aiokq", "log", "dump", "--records", path],
            capture_output=True,
            text=True,
            check=True,
        )
        ours += done.stdout
    assert decoded(theirs.stdout) == decoded(ours)
    assert len(decoded(ours)) > 40


def write_out(files: MemoryFiles, directory: str, path: Path) -> None:
    path.mkdir(parents=True)
    for name in files.listdir(directory):
        inner = f"{directory}/{name}"
        if files.is_dir(inner):
            write_out(files, inner, path / name)
        else:
            (path / name).write_bytes(files.read_bytes(inner))


def decoded(text: str) -> list[tuple[str, str]]:
    """Return path, offset and content of each record in the output of a dump."""
    found = []
    path = ""
    for line in text.splitlines():
        if line.startswith("Dumping "):
            path = line
        match = re.match(r"\| offset: (\d+) .* headerKeys: \[\] (\w+):? (\{.*)", line)
        if match is not None:
            found.append((f"{path} {match[1]} {match[2]}", match[3]))
        else:
            assert not line.startswith("|"), line
    return found
