"""`aiokq storage format`, `info` and `random-uuid`: options and output of `kafka-storage`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import aiokq
from aiokq.broker.log.uuid_text import parse_uuid
from aiokq.broker.metadata.log.bootstrap_checkpoint import read_bootstrap_checkpoint
from aiokq.broker.metadata.log.snapshot_file import SnapshotReader
from aiokq.core.files import OsFiles
from aiokq.fastpath import crc32c
from aiokq.wire.cluster_metadata_records import FeatureLevelRecord
from aiokq.wire.principal_records import UserScramCredentialRecord

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
DIRECTORY = "JEXY6aqzQY-32P5TStzaFg"
VOTERS = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
LISTENERS = "PLAINTEXT://localhost:9092,CONTROLLER://:9095"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A `server.properties` of Kafka with a dynamic quorum and two directories."""
    return properties(tmp_path, "controller.quorum.bootstrap.servers=localhost:9095")


def properties(tmp_path: Path, *lines: str, **settings: str) -> Path:
    given = {
        "process.roles": "broker,controller",
        "node.id": "5",
        "listeners": LISTENERS,
        "controller.listener.names": "CONTROLLER",
        "log.dirs": f"{tmp_path}/b,{tmp_path}/a",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    path = tmp_path / "server.properties"
    path.write_text("\n".join([*(f"{name}={value}" for name, value in given.items()), *lines]))
    return path


def voters(path: Path) -> list[tuple[int, str, str, int, int]]:
    with SnapshotReader(OsFiles(), str(path / VOTERS), 0, crc32c) as reader:
        assert reader.voters is not None
        return [
            (one.voter_id, point.name, point.host, point.port, one.voter_directory_id.int)
            for one in reader.voters.voters
            for point in one.endpoints
        ]


def levels(path: Path) -> dict[str, int]:
    records = read_bootstrap_checkpoint(OsFiles(), str(path), crc32c) or []
    return {one.name: one.feature_level for one in records if isinstance(one, FeatureLevelRecord)}


def test_a_dynamic_quorum_is_formatted_and_shown(alone, config: Path, tmp_path: Path) -> None:
    """Bootstrap servers without voters make this node the only voter, as --standalone does."""
    config.with_name("c").mkdir()
    run = alone("storage", "info", "-c", str(config), servers=None)
    assert run.code == 1
    assert run.lines == [
        "Found problems:",
        f"  {tmp_path}/a does not exist",
        f"  {tmp_path}/b does not exist",
        "",
    ]
    run = alone("storage", "format", "-c", str(config), "-t", CLUSTER, servers=None)
    assert run.code == 0
    assert run.lines == [
        "Bootstrap metadata: metadata.version=25, eligible.leader.replicas.version=1, "
        "group.version=1, kraft.version=1, transaction.version=2",
        f"Formatting data directory {tmp_path}/a with metadata.version 4.0-IV3.",
        f"Formatting dynamic metadata voter directory {tmp_path}/b with metadata.version 4.0-IV3.",
    ]
    assert [one[:4] for one in voters(tmp_path / "b")] == [(5, "CONTROLLER", "localhost", 9095)]
    assert not (tmp_path / "a" / "__cluster_metadata-0").exists()
    run = alone("storage", "info", "-c", str(config), servers=None)
    assert run.code == 0
    assert run.lines[:3] == ["Found log directories:", f"  {tmp_path}/a", f"  {tmp_path}/b"]
    assert run.lines[4].startswith(f"Found metadata: {{cluster.id={CLUSTER}, directory.id=")
    assert run.lines[4].endswith(", node.id=5, version=1}")


def test_formatted_directories_are_kept(alone, config: Path, tmp_path: Path) -> None:
    """Nothing is written to them, with --ignore-formatted and without."""
    arguments = ("storage", "format", "-c", str(config), "-t", CLUSTER)
    assert alone(*arguments, servers=None).code == 0
    before = (tmp_path / "b" / "meta.properties").read_bytes()
    refused = alone(*arguments, servers=None)
    assert (refused.code, "is already formatted" in refused.complaint) == (1, True)
    again = alone(*arguments, "-g", servers=None)
    assert (again.code, again.lines) == (
        0,
        ["All of the log directories are already formatted."],
    )
    (tmp_path / "a" / "meta.properties").unlink()
    told = alone(*arguments, "--ignore-formatted", "--json", servers=None).json
    assert (told["formatted"], told["kept"]) == ([f"{tmp_path}/a"], [f"{tmp_path}/b"])
    assert (tmp_path / "b" / "meta.properties").read_bytes() == before


def test_static_voters_features_and_users(alone, tmp_path: Path) -> None:
    """The level of each feature and the credentials are in the first records."""
    config = properties(tmp_path, "controller.quorum.voters=5@localhost:9095")
    run = alone(
        *("storage", "format", "--config", str(config), "--cluster-id", CLUSTER),
        *("--release-version", "4.2", "-f", "share.version=1", "-f", "group.version=0"),
        *("-S", "SCRAM-SHA-256=[name=alice,password=alice-secret]"),
        servers=None,
    )
    assert run.code == 0, run.err
    assert run.lines[-1] == (
        f"Formatting metadata directory {tmp_path}/b with metadata.version 4.2-IV1."
    )
    assert levels(tmp_path / "b") == {
        "metadata.version": 29,
        "eligible.leader.replicas.version": 1,
        "share.version": 1,
        "transaction.version": 2,
    }
    records = read_bootstrap_checkpoint(OsFiles(), str(tmp_path / "b"), crc32c) or []
    assert [one.name for one in records if isinstance(one, UserScramCredentialRecord)] == ["alice"]
    assert not (tmp_path / "b" / "__cluster_metadata-0").exists()


def test_options_without_a_file(alone, tmp_path: Path) -> None:
    """A node that `aiokq broker --data-dir` runs needs no properties."""
    path = tmp_path / "data"
    arguments = ("-t", CLUSTER, "--data-dir", str(path), "--node-id", "7", "--standalone")
    assert alone("storage", "format", *arguments, servers=None).code == 0
    assert [one[:4] for one in voters(path)] == [(7, "CONTROLLER", "localhost", 9093)]
    info = alone("storage", "info", "--data-dir", str(path), "--json", servers=None).json
    assert info["metadata"]["node.id"] == "7"
    assert info["problems"] == []


@pytest.mark.parametrize("level", [0, 1, 2])
def test_transactions_work_at_the_level_of_the_format(alone, level: int, tmp_path: Path) -> None:
    """Below 2 the producer keeps its epoch from one transaction to the next (KIP-890)."""
    path = tmp_path / "data"
    arguments = ("-t", CLUSTER, "--data-dir", str(path), "--node-id", "0", "--standalone")
    feature = ("--feature", f"transaction.version={level}")
    done = alone("storage", "format", *arguments, *feature, servers=None)
    assert done.code == 0, done.err

    async def main() -> tuple[list[tuple[int, int]], list[bytes | None]]:
        async with (
            aiokq.EmbeddedCluster(data_dir=path) as kafka,
            aiokq.Cluster(kafka.bootstrap_servers) as cluster,
        ):
            assert kafka.node.storage.publisher.features.get("transaction.version", 0) == level
            await kafka.create_topic("orders")
            coordinator = kafka.node.transaction_coordinator
            found = []
            async with cluster.producer(transactional_id="tx") as producer:
                for value in (b"1", b"2", None, b"3"):
                    transaction = await producer.begin_transaction()
                    await producer.send("orders", value or b"aborted")
                    if value is None:
                        await producer.abort_transaction()
                    else:
                        await producer.commit_transaction()
                        assert (await transaction.outcome()).name == "COMMITTED"
                    metadata = coordinator.describe("tx")
                    found.append((metadata.client_version, metadata.producer_epoch))
            async with cluster.consumer(
                "orders", auto_offset_reset="earliest", isolation_level="read_committed"
            ) as reader:
                values = [(await asyncio.wait_for(anext(reader), 10)).value for _ in range(3)]
        return found, values

    ends, values = asyncio.run(main())
    first = ends[0][1]
    assert ends == [(2, first + n) if level == 2 else (0, first) for n in range(4)]
    assert values == [b"1", b"2", b"3"]


def test_the_named_controller_must_be_this_node(alone, config: Path, tmp_path: Path) -> None:
    """The directory gets the id that the option gives; another voter is refused."""
    arguments = ("storage", "format", "-c", str(config), "-t", CLUSTER, "--initial-controllers")
    for given, words in (
        (f"5@h:1:{DIRECTORY},6@h:2:{DIRECTORY}", "6@h:2"),
        (f"6@h:2:{DIRECTORY}", "this node has the id 5"),
        (f"5@h:1:{DIRECTORY},5@h:2:{DIRECTORY}", "5@h:2"),
        ("5@h:1", "write ID@HOST:PORT:DIRECTORY_ID"),
        ("", "write ID@HOST:PORT:DIRECTORY_ID"),
        ("5@h:1:AAAAAAAAAAAAAAAAAAAAAQ", "not the id of a directory"),
        ("5@h:1:short", "not the id of a directory"),
        (f"5@h:65536:{DIRECTORY}", "above 65535"),
        (f"5@h:{'9' * 5000}:{DIRECTORY}", "above 65535"),
        (f"{'9' * 5000}@h:1:{DIRECTORY}", "this node has the id 5"),
    ):
        refused = alone(*arguments, given, servers=None)
        assert (refused.code, words in refused.complaint) == (1, True), refused.err
    assert not (tmp_path / "b").exists()
    assert alone(*arguments, f"5@[::1]:9095:{DIRECTORY}", servers=None).code == 0
    assert voters(tmp_path / "b") == [(5, "CONTROLLER", "::1", 9095, parse_uuid(DIRECTORY).int)]


@pytest.mark.usefixtures("own_process_state")
def test_directories_without_voters(alone, tmp_path: Path) -> None:
    """They are for a node of Kafka, so the settings may name other nodes."""
    config = properties(
        tmp_path,
        "controller.quorum.bootstrap.servers=other:9095",
        "authorizer.class.name=org.example.Authorizer",
    )
    arguments = ("storage", "format", "-c", str(config), "-t", CLUSTER)
    assert alone(*arguments, servers=None).code == 1
    assert alone(*arguments, "-N", servers=None).code == 0
    assert levels(tmp_path / "b")["metadata.version"] == 25
    assert [one.name for one in (tmp_path / "b" / "__cluster_metadata-0").iterdir()] == [
        "quorum-state"
    ]
    assert alone("storage", "info", "-c", str(config), servers=None).code == 0
    refused = alone("storage", "adopt", str(tmp_path / "b"), servers=None)
    assert refused.code == 1
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    refused = alone("broker", "--data-dir", str(tmp_path / "b"), "--port", "0", servers=None)
    assert (refused.code, "names no voter" in refused.complaint) == (1, True), refused.err
    files[tmp_path / "b" / ".lock"] = b""
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


@pytest.mark.parametrize("flag", ["-s", "-N", f"-I5@localhost:9095:{DIRECTORY}"])
def test_static_voters_exclude_a_dynamic_quorum(alone, tmp_path: Path, flag: str) -> None:
    """Kafka would ignore the voters in the log."""
    config = properties(tmp_path, "controller.quorum.voters=5@localhost:9095")
    refused = alone("storage", "format", "-c", str(config), "-t", CLUSTER, flag, servers=None)
    assert (refused.code, "controller.quorum.voters is set" in refused.complaint) == (1, True)


def test_wrong_usage(alone, config: Path, tmp_path: Path) -> None:
    """Each message says what to write."""
    base = ("storage", "format", "-c", str(config), "-t", CLUSTER)
    for arguments, code, words in (
        ((*base, "-s", "-N"), 2, "only one of them"),
        ((*base, "-f", "group.version"), 2, "--feature needs NAME=LEVEL"),
        ((*base, "-f", "group.version=x"), 2, "must be a whole number"),
        ((*base, "-f", "foo.version=1"), 1, "unknown feature 'foo.version'"),
        ((*base, "-r", "3.2"), 1, "unknown release version"),
        ((*base[:4], "-t", ""), 1, "the cluster id is empty"),
        (("storage", "format", "-t", CLUSTER), 1, "no log directory is named"),
        (("storage", "info"), 1, "no log directory is named"),
        (("storage", "info", "-c", str(tmp_path / "none")), 1, "No such file"),
        ((*base, "--set", "process.roles=broker"), 1, "both broker and controller"),
        ((*base, "--set", "no.such.setting=1"), 1, "no.such.setting"),
    ):
        refused = alone(*arguments, servers=None)
        assert (refused.code, words in refused.complaint) == (code, True), refused.err
    assert not (tmp_path / "b").exists()


def test_random_ids(alone) -> None:
    """They are ids in Kafka's form, different each time, and none looks like an option."""
    found = {alone("storage", "random-uuid", servers=None).lines[0] for _ in range(20)}
    assert len(found) == 20
    assert all(len(one) == 22 and not one.startswith("-") and parse_uuid(one) for one in found)
