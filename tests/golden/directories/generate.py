"""Write the golden log directories: directories whose metadata log is `aiokq-metadata.log`.

    make kafka && python -m tests.golden.directories.generate [SET...]

Later versions have another metadata log and migrate such directories at their first start. These
are the inputs of the tests of that migration. This program runs only with a version that still
writes `aiokq-metadata.log`: the directories in the tree were written by the broker of commit
ca83c27b. It needs Java 17, the jars in `.cache/kafka`, GNU tar and xz. `contents` describes the
JSON files.

All directories are written under `/tmp/aiokq-golden`, because a node with several log directories
records their paths. A broker that was killed was ended by SIGKILL.

- `plain`: filled by `fill`, then stopped cleanly. Topics: `orders` (configs; records in every
  codec, with keys and headers; records deleted before an offset), `table` (compacted), `grown`
  (1 partition, then 3), `altered` (configs changed and removed), `rolled` (several segments),
  `empty`, `again` (deleted and created again), and `gone`, which was deleted. Groups: `classic` and
  `modern` (one member of each protocol, which left), `manual` (commits with metadata and a leader
  epoch), and `deleted`. Group configs of `modern` and of `absent`, which is no group.
- `plain-handed-over`: `plain` after `aiokq log hand-over`, which adds `bootstrap.checkpoint`.
- `snapshot`: what `EmbeddedCluster.snapshot` writes of a running broker after `fill`. Its metadata
  log is compacted.
- `two`: two log directories `a` and `b`, with partitions of most topics in both; stopped cleanly.
- `two-behind`: `two` after a start with `a` alone, in which a topic was created and changed. The
  metadata log in `b` is a prefix of the one in `a`.
- `two-apart`: `two-behind` after a start with `b` alone, in which the topic `only-b` was created.
  Each copy of the metadata log has appends that the other lacks; `a` has more.
- `two-missing`: `a` of `two-behind`. The metadata log knows `b`, and the partitions in `b` are
  offline.
- `two-forgotten`: `two-missing` after `aiokq log forget-missing`. The next start creates the
  partitions that were in `b` again, empty, with leader epochs that were never used.
- `killed`: filled by `fill` and killed; then started again, which counted an unclean start, and
  killed while records were written, topics were created, and `modern` had a member.
- `killed-torn`: `killed` with half a line appended to the metadata log, and the beginning of a
  batch appended to the log of `orders-0`, as a power cut may leave them.
- `kafka-killed`: formatted by Apache Kafka 4.2 with `controller.quorum.voters` (`kraft.version` 0),
  filled by `fill` and `fill_more_of_kafka`, and killed; then changed by aiokq and stopped cleanly.
- `kafka`: the same directory without the changes by aiokq: started again by Apache Kafka, changed,
  and stopped cleanly; then changed by aiokq and stopped cleanly.
- `kafka-twice`: `kafka`, changed by Apache Kafka again, then by aiokq, each stopped cleanly.
  Apache Kafka set the logs of aiokq's topic `here` aside, and aiokq took them back; of `empty-3`,
  which both created, the one by aiokq is still set aside.
- `kafka-standalone`: formatted by Apache Kafka 4.2 with `--standalone` (`kraft.version` 1), filled
  by `fill` and stopped cleanly; then changed by aiokq and stopped cleanly.

Every `__cluster_metadata-0` that Apache Kafka wrote has several snapshots of the metadata.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

import aiokq
from aiokq.admin.config_types import ConfigResource, ConfigResourceType
from aiokq.admin.topics import NewTopic
from aiokq.broker.metadata.metadata_log import METADATA_LOG
from aiokq.core.types import OffsetAndMetadata
from tests.golden.directories import contents
from tests.golden.directories.contents import ARGUMENTS, HERE, SETTINGS, Json
from tests.peers.apache_kafka import ROOT, ApacheKafka, run_tool
from tests.peers.broker_process import BrokerProcess

WORK = Path("/tmp/aiokq-golden")
"""Where the directories are written; their metadata logs contain such paths."""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BASE_TIME = 1_700_000_000_000
CENTURY = "3155760000000"

SMALL = {
    "offsets.topic.num.partitions": "4",
    "log.index.size.max.bytes": "4096",
}
KAFKA_SETTINGS = {
    name.replace(".", "_"): value
    for name, value in {
        **SETTINGS,
        **SMALL,
        "metadata.log.max.record.bytes.between.snapshots": "2000",
    }.items()
}
WRITING = (*ARGUMENTS, *(part for item in SMALL.items() for part in ("--set", "=".join(item))))

TOPICS = (
    NewTopic("orders", 3, 1, configs={"retention.ms": CENTURY, "max.message.bytes": "70000"}),
    NewTopic("table", 1, 1, configs={"cleanup.policy": "compact", "segment.bytes": "1048576"}),
    NewTopic("grown", 1, 1),
    NewTopic("altered", 1, 1, configs={"retention.bytes": "1000000", "flush.messages": "10"}),
    NewTopic("rolled", 1, 1, configs={"segment.ms": "1000"}),
    NewTopic("empty", 2, 1),
    NewTopic("again", 2, 1),
    NewTopic("gone", 1, 1),
)

# --- what the brokers are given


async def fill(bootstrap: str) -> None:
    """Write everything that a log directory can hold; aiokq and Apache Kafka accept it."""
    async with aiokq.Admin(bootstrap) as admin:
        await admin.create_topics(TOPICS, raise_errors=True)
        for codec in CODECS:
            await produce(bootstrap, "orders", 9, partitions=3, codec=codec)
        await produce(bootstrap, "table", 12, keys=4)
        await produce(bootstrap, "grown", 3)
        await admin.create_partitions({"grown": 3}, raise_errors=True)
        await produce(bootstrap, "grown", 6, partitions=3)
        await produce(bootstrap, "altered", 2)
        await produce(bootstrap, "rolled", 8, apart_ms=600)
        await produce(bootstrap, "again", 5, partitions=2)
        await produce(bootstrap, "gone", 2)
        await admin.alter_configs(
            {"altered": {"retention.bytes": "2000000", "flush.messages": None, "segment.ms": 9000}},
            raise_errors=True,
        )
        await admin.delete_topics(["gone", "again"], raise_errors=True)
        await created(admin, NewTopic("again", 1, 1, configs={"min.insync.replicas": "1"}))
        await produce(bootstrap, "again", 2)
        await admin.delete_records({("orders", 1): 4}, raise_errors=True)
        group = ConfigResource(ConfigResourceType.GROUP, "modern")
        absent = ConfigResource(ConfigResourceType.GROUP, "absent")
        await admin.alter_configs(
            {
                group: {
                    "consumer.session.timeout.ms": "50000",
                    "consumer.heartbeat.interval.ms": "6000",
                },
                absent: {"consumer.session.timeout.ms": "55000"},
            },
            raise_errors=True,
        )
        for name, protocol in (("classic", "classic"), ("modern", "consumer")):
            async with aiokq.Consumer(
                bootstrap_servers=bootstrap,
                group_id=name,
                group_protocol=protocol,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            ) as consumer:
                consumer.subscribe(["orders", "grown"])
                for _ in range(20):
                    await consumer.getone()
                await consumer.commit()
        await admin.alter_group_offsets(
            "manual",
            {
                aiokq.TopicPartition("orders", 0): OffsetAndMetadata(2, "two", 0),
                aiokq.TopicPartition("table", 0): OffsetAndMetadata(7, ""),
            },
            raise_errors=True,
        )
        await admin.alter_group_offsets("deleted", {("orders", 0): 1}, raise_errors=True)
        await admin.delete_groups(["deleted"], raise_errors=True)


async def created(admin: aiokq.Admin, topic: NewTopic) -> None:
    """Create a topic as soon as an older one of the name is gone."""
    while True:
        result = (await admin.create_topics(topic))[topic.name]
        if result.error is None:
            return
        assert type(result.error).__name__ == "TopicExists", result.error
        await asyncio.sleep(0.1)


async def change(bootstrap: str, topic: str) -> None:
    """Change a filled directory: a new topic, partitions, settings, records, commits."""
    async with aiokq.Admin(bootstrap) as admin:
        await admin.create_topics(
            NewTopic(topic, 2, 1, configs={"retention.ms": CENTURY}), raise_errors=True
        )
        count = len((await admin.describe_topics("empty"))["empty"].partitions) + 1
        await admin.create_partitions({"empty": count}, raise_errors=True)
        await admin.alter_configs({"rolled": {"segment.ms": f"20{count}"}}, raise_errors=True)
        await produce(bootstrap, topic, 4, partitions=2, codec="lz4")
        await produce(bootstrap, "orders", 3, partitions=3)
        await admin.alter_group_offsets(
            "manual", {("orders", 1): 4 + count, (topic, 0): 1}, raise_errors=True
        )


async def produce(
    bootstrap: str,
    topic: str,
    count: int,
    *,
    partitions: int = 1,
    keys: int = 0,
    codec: str = "none",
    apart_ms: int = 10,
) -> None:
    """Write records as an idempotent producer, some without a value or headers.

    Args:
        keys: number of keys; 0 also writes records without a key, which `table` refuses.
    """
    async with aiokq.Producer(
        bootstrap, enable_idempotence=True, compression_type=codec
    ) as producer:
        deliveries = [
            await producer.enqueue(
                topic,
                None if number % 11 == 10 else f"{codec} {number} ".encode() * 9,
                key=f"key {number % (keys or 7)}".encode() if keys or number % 5 < 4 else None,
                partition=number % partitions,
                timestamp_ms=BASE_TIME + number * apart_ms,
                headers=[("codec", codec.encode()), ("none", None)] if number % 3 else None,
            )
            for number in range(count)
        ]
        for delivery in deliveries:
            await delivery


def fill_more_of_kafka(apache: ApacheKafka) -> None:
    """Write what only Apache Kafka has: transactions, a user, a quota, dynamic settings."""
    bootstrap = apache.bootstrap_servers
    for ending in ("commit_transaction", "abort_transaction"):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": ending}
        )
        producer.init_transactions(contents.PATIENCE)
        producer.begin_transaction()
        for number in range(3):
            producer.produce(
                "altered", f"{ending} {number}".encode(), timestamp=BASE_TIME, partition=0
            )
        getattr(producer, ending)(contents.PATIENCE)
    credentials = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    user = UserScramCredentialUpsertion("alice", credentials, b"secret", b"salt")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.alter_user_scram_credentials([user]).values():
        future.result(contents.PATIENCE)
    for entity in (
        ("users", "alice", "producer_byte_rate=1048576"),
        ("brokers", "1", "message.max.bytes=2000000"),
    ):
        kind, name, setting = entity
        arguments = ("--entity-type", kind, "--entity-name", name, "--add-config", setting)
        done = run_tool(
            "kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, "--alter", *arguments
        )
        assert done.returncode == 0, done.stderr


# --- brokers


@contextmanager
def broker(*paths: Path) -> Iterator[BrokerProcess]:
    """Run a broker on log directories while the block runs; it must stop cleanly."""
    running = BrokerProcess(paths[0], *contents.more_directories(paths), *WRITING)
    running.start()
    try:
        yield running
    except BaseException:
        running.stop(signal.SIGKILL)
        raise
    assert running.stop() == 0


def run_on(paths: tuple[Path, ...], step: Callable[[str], Coroutine[object, object, None]]) -> None:
    """Run a coroutine function with the address of a broker on log directories."""
    with broker(*paths) as running:
        asyncio.run(step(running.bootstrap_servers))


def aiokq_log(*arguments: str | Path) -> None:
    """Run `aiokq log`."""
    subprocess.run([sys.executable, "-m", "aiokq", "log", *map(str, arguments)], check=True)


# --- the directories


def write_plain() -> None:
    """Write `plain` and `plain-handed-over`."""
    path = fresh("plain") / "data"
    run_on((path,), fill)
    save("plain", path)
    aiokq_log("hand-over", path)
    assert (path / "bootstrap.checkpoint").exists()
    save("plain-handed-over", path)


def write_snapshot() -> None:
    """Write `snapshot`."""
    directory = fresh("snapshot")

    async def take() -> None:
        async with aiokq.EmbeddedCluster(
            data_dir=directory / "source", profile="kafka", settings=SETTINGS | SMALL
        ) as cluster:
            await fill(cluster.bootstrap_servers)
            await cluster.snapshot(directory / "data")

    asyncio.run(take())
    save("snapshot", directory / "data")
    records = contents.expected("snapshot")["metadata"]["data"]["records"]
    assert records["appends"] == 1, records


def write_two() -> None:
    """Write `two`, `two-behind`, `two-apart`, `two-missing` and `two-forgotten`."""
    directory = fresh("two")
    a, b = directory / "a", directory / "b"
    run_on((a, b), fill)
    for topic in ("orders", "__consumer_offsets"):
        assert list(a.glob(f"{topic}-*")), topic
        assert list(b.glob(f"{topic}-*")), topic
    save("two", a, b)

    async def create(bootstrap: str, name: str, more: int) -> None:
        async with aiokq.Admin(bootstrap) as admin:
            await admin.create_topics(NewTopic(name, 1, 1), raise_errors=True)
            for _ in range(more):
                await admin.alter_configs({name: {"retention.ms": CENTURY}}, raise_errors=True)
                await admin.alter_configs({name: {"retention.ms": None}}, raise_errors=True)
        await produce(bootstrap, name, 2)

    run_on((a,), lambda bootstrap: create(bootstrap, "only-a", 3))
    before, after = (contents.metadata(path)["appends"] for path in (b, a))
    assert before < after
    assert (a / METADATA_LOG).read_bytes().startswith((b / METADATA_LOG).read_bytes())
    save("two-behind", a, b)
    kept = directory / "kept"
    shutil.copytree(a, kept)
    save("two-missing", a)
    aiokq_log("forget-missing", "--execute", a)
    save("two-forgotten", a)
    shutil.rmtree(a)
    kept.rename(a)
    run_on((b,), lambda bootstrap: create(bootstrap, "only-b", 0))
    assert contents.metadata(b)["appends"] < contents.metadata(a)["appends"]
    save("two-apart", a, b)


def write_killed() -> None:
    """Write `killed` and `killed-torn`."""
    path = fresh("killed") / "data"
    first = BrokerProcess(path, *WRITING)
    first.start()
    asyncio.run(fill(first.bootstrap_servers))
    first.stop(signal.SIGKILL)
    second = BrokerProcess(path, *WRITING)
    second.start()
    acknowledged = asyncio.run(kill_while_writing(second))
    assert not contents.is_clean(path)
    save("killed", path)
    found = contents.expected("killed")
    for topic, rows in acknowledged.items():
        [partition] = found["served"]["topics"][topic]["partitions"]
        assert {tuple(row[3:5]) for row in partition["records"]} >= rows, topic
    assert found["metadata"]["data"]["unclean_starts"] == 1

    log = path / METADATA_LOG
    whole = log.read_bytes()
    last = whole.rstrip(b"\n").rpartition(b"\n")[2]
    log.write_bytes(whole + last[: len(last) // 2])
    [segment] = (path / "orders-0").glob("*.log")
    batch = segment.read_bytes().rstrip(b"\0")
    segment.write_bytes(batch + batch[: 61 + 20])
    save("killed-torn", path)
    torn = contents.expected("killed-torn")
    assert torn["metadata"]["data"]["size"] > torn["metadata"]["data"]["valid"]
    assert torn["served"] == found["served"]


async def kill_while_writing(running: BrokerProcess) -> dict[str, set[tuple[str, str]]]:
    """Kill a broker while records are written, topics created, and members are in groups.

    Returns:
        Key and value of the acknowledged records, by topic.
    """
    bootstrap = running.bootstrap_servers
    acknowledged: dict[str, set[tuple[str, str]]] = {"table": set(), "altered": set()}
    enough, joined = asyncio.Event(), asyncio.Event()

    async def write(topic: str) -> None:
        async with aiokq.Producer(bootstrap, delivery_timeout_ms=1000) as producer:
            for number in range(1_000_000):
                key, value = f"{topic} {number}", f"killed {number} " * 4
                await producer.send(
                    topic, value.encode(), key=key.encode(), timestamp_ms=BASE_TIME + number
                )
                acknowledged[topic].add((key, value))
                if number == 40:
                    enough.set()

    async def create() -> None:
        async with aiokq.Admin(bootstrap) as admin:
            for number in range(1_000_000):
                await admin.create_topics(NewTopic(f"new-{number}", 1, 1), raise_errors=True)
                await asyncio.sleep(0.05)

    async def consume() -> None:
        async with aiokq.Consumer(
            bootstrap_servers=bootstrap, group_id="modern", group_protocol="consumer"
        ) as consumer:
            consumer.subscribe(["orders", "grown"], on_assigned=lambda *_: joined.set())
            await asyncio.Event().wait()

    tasks = [
        asyncio.create_task(one) for one in (write("table"), write("altered"), create(), consume())
    ]
    await joined.wait()
    await enough.wait()
    assert running.process is not None
    running.process.kill()
    await asyncio.sleep(2)
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError, aiokq.KafkaError):
            await task
    running.stop()
    return acknowledged


def write_kafka() -> None:
    """Write `kafka-killed`, `kafka` and `kafka-twice`."""
    directory = fresh("kafka")
    apache = ApacheKafka(directory, **KAFKA_SETTINGS)
    data = directory / "node-1"
    try:
        apache.start()
        asyncio.run(fill(apache.bootstrap_servers))
        fill_more_of_kafka(apache)
        apache.stop_node(1, signal.SIGKILL)
        killed = copy(data, directory / "killed" / "data")
        run_on((killed,), lambda bootstrap: change(bootstrap, "here"))
        save("kafka-killed", killed)

        apache.start_node(1)
        asyncio.run(change(apache.bootstrap_servers, "there"))
        apache.stop_node(1)
        clean = copy(data, directory / "clean" / "data")
        run_on((clean,), lambda bootstrap: change(bootstrap, "here"))
        save("kafka", clean)

        shutil.rmtree(data)
        clean.rename(data)
        apache.start_node(1)
        asyncio.run(change(apache.bootstrap_servers, "back"))
        apache.stop_node(1)
        twice = copy(data, directory / "twice" / "data")
        run_on((twice,), lambda bootstrap: change(bootstrap, "finally"))
        save("kafka-twice", twice)
    finally:
        apache.stop()


class Standalone(ApacheKafka):
    """A node of Apache Kafka that keeps the voters of its quorum in its metadata log."""

    def configuration(self, node: int) -> str:
        return (
            super()
            .configuration(node)
            .replace(f"controller.quorum.voters={node}@", "controller.quorum.bootstrap.servers=")
        )

    def format(self) -> None:
        path = self.directory / "node-1.properties"
        path.write_text(self.configuration(1))
        arguments = ("format", "--standalone", "-t", "aiokq-golden-standal0w", "-c", str(path))
        done = run_tool("kafka.tools.StorageTool", *arguments)
        assert done.returncode == 0, done.stderr


def write_kafka_standalone() -> None:
    """Write `kafka-standalone`."""
    directory = fresh("kafka-standalone")
    apache = Standalone(directory, **KAFKA_SETTINGS)
    try:
        apache.start()
        asyncio.run(fill(apache.bootstrap_servers))
        apache.stop_node(1)
        data = copy(directory / "node-1", directory / "data")
        run_on((data,), lambda bootstrap: change(bootstrap, "here"))
        save("kafka-standalone", data)
    finally:
        apache.stop()


WRITERS = {
    "plain": write_plain,
    "snapshot": write_snapshot,
    "two": write_two,
    "killed": write_killed,
    "kafka": write_kafka,
    "kafka-standalone": write_kafka_standalone,
}

# --- files


def fresh(name: str) -> Path:
    """Return an empty directory."""
    directory = WORK / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def copy(source: Path, target: Path) -> Path:
    """Copy a log directory with its holes, without its lock."""
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)
    (target / ".lock").unlink(missing_ok=True)
    return target


def save(name: str, *paths: Path) -> None:
    """Pack log directories as a golden directory, with what a broker on a copy of them finds."""
    assert name in contents.NAMES, name
    check_neutral(paths)
    parent = paths[0].parent
    archive = HERE / f"{name}.tar.xz"
    subprocess.run(
        [
            *("tar", "--sparse", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"),
            *("--exclude=.lock", "-C", str(parent), "-cJf", str(archive)),
            *(path.name for path in paths),
        ],
        check=True,
    )
    found: Json = {
        "log_dirs": [path.name for path in paths],
        "clean": {path.name: contents.is_clean(path) for path in paths},
        "metadata": {path.name: contents.metadata(path) for path in paths},
    }
    found["next_producer_id"] = max(one["next_producer_id"] for one in found["metadata"].values())
    target = WORK / "opened" / name
    shutil.rmtree(target, ignore_errors=True)
    copies = [copy(path, target / path.name) for path in paths]
    offline = offline_partitions(found["metadata"], copies)
    with broker(*copies) as running:
        found["served"] = asyncio.run(contents.served(running.bootstrap_servers, offline))
        found["batches"] = contents.batches(copies)
    text = as_text(found)
    (HERE / f"{name}.json").write_text(text)
    print(f"{name}: {archive.stat().st_size} bytes, and {len(text)} bytes of JSON")


def as_text(found: Json) -> str:
    """Return the JSON of a golden directory, with each innermost list on a line."""
    text = json.dumps(found, indent=1, sort_keys=True)
    return re.sub(r"\[[^][{}]*\]", lambda match: re.sub(r"\n *", " ", match[0]), text) + "\n"


def offline_partitions(found: Json, paths: list[Path]) -> set[str]:
    """Return the partitions that a missing log directory has."""
    newest = max(found.values(), key=lambda one: one["appends"])
    if len(newest["directories"]) <= len(paths):
        return set()
    here = {path.name for directory in paths for path in directory.iterdir()}
    return {
        f"{name}-{index}"
        for name, topic in newest["topics"].items()
        for index in range(topic["partitions"])
    } - here


def check_neutral(paths: tuple[Path, ...]) -> None:
    """Refuse directories that contain a path or the name of this machine."""
    words = [str(one).encode() for one in (ROOT, Path.home(), socket.gethostname()) if str(one)]
    for path in paths:
        for file in path.rglob("*"):
            if file.is_file():
                data = file.read_bytes()
                assert not [word for word in words if word in data], file


def main() -> None:
    for name in sys.argv[1:] or WRITERS:
        WRITERS[name]()
    shutil.rmtree(WORK)


if __name__ == "__main__":
    main()
