"""A node continues the metadata log that Apache Kafka or an earlier start left, or begins one."""

from __future__ import annotations

import json
import logging
import random
import uuid

import pytest

from aiokq.broker.metadata.controller.registration import feature_records
from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.broker.metadata.log.bootstrap_checkpoint import (
    read_bootstrap_checkpoint,
    write_bootstrap_checkpoint,
)
from aiokq.broker.metadata.log.metadata_reader import MetadataReader, MetadataState
from aiokq.broker.metadata.log.quorum_state import read_quorum_state
from aiokq.broker.snapshot import take_snapshot
from aiokq.core.errors import KafkaStorage
from aiokq.fastpath import crc32c
from aiokq.records.header import iter_headers
from aiokq.wire.cluster_metadata_records import (
    BeginTransactionRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
)
from aiokq.wire.principal_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    UserScramCredentialRecord,
)
from aiokq.wire.registration_records import RegisterBrokerRecord
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.harness import Broker, batch, offsets
from tests.unit.broker.metadata.kafka_log import (
    DIRECTORY,
    HERE,
    LEVEL,
    NODE,
    ORDERS,
    OTHER,
    KafkaLog,
    config,
    partition,
    topic,
)
from tests.unit.broker.metadata.metadata_logs import read
from tests.unit.broker.metadata.quorum_logs import quorum_of_three

MARKER = "/data/.kafka_cleanshutdown"


@pytest.fixture
def log() -> KafkaLog:
    """A directory of Kafka with a topic of two partitions, after a clean shutdown."""
    made = KafkaLog(MemoryFiles())
    made.lead(1)
    made.append(LEVEL, topic(), partition(0), partition(1, epoch=4), config("retention.ms", "5000"))
    made.make_partition("orders-0", ORDERS, b"a", b"b")
    made.make_partition("orders-1", ORDERS)
    made.files.write_atomic(MARKER, b'{"version":0,"brokerEpoch":12}')
    return made


def all_files(files: MemoryFiles, path: str = "/data") -> dict[str, bytes]:
    """Return the content of each file in a directory, except for the lock and the marker."""
    found: dict[str, bytes] = {}
    for name in files.listdir(path):
        inside = f"{path}/{name}"
        if files.is_dir(inside):
            found |= all_files(files, inside)
        elif name not in (".lock", ".kafka_cleanshutdown"):
            found[inside] = files.read_bytes(inside)
    return found


def written(log: KafkaLog) -> bytes:
    """Return the bytes of all segments of the metadata log."""
    names = (name for name in log.files.listdir(DIRECTORY) if name.endswith(".log"))
    return b"".join(log.files.read_bytes(f"{DIRECTORY}/{name}") for name in sorted(names))


def epochs(broker: Broker, name: str = "orders") -> list[int]:
    return [one.leader_epoch for one in broker.node.topics.get(name).partitions]


def read_in(files: MemoryFiles, path: str) -> MetadataState:
    """Return the content of the metadata log in a log directory."""
    return MetadataReader(files, f"{path}/__cluster_metadata-0", crc32c).read()


def image_of(files: MemoryFiles) -> MetadataImage:
    return read(files).image


# The log that Kafka left


async def test_kafkas_topics_are_there(log: KafkaLog) -> None:
    """Topics keep ids, configs and records, the node its ids; Kafka's log is continued."""
    before = written(log)
    async with Broker(log.files) as broker:
        assert (broker.node.node_id, broker.node.cluster_id) == (NODE, "kafkas")
        orders = broker.node.topics.get("orders")
        assert orders is not None
        assert orders.topic_id == ORDERS
        assert orders.configs == {"retention.ms": "5000"}
        assert [one.log.log_end_offset for one in orders.partitions] == [2, 0]
        assert (await broker.produce("orders", batch(1))).base_offset == 2
        assert len(broker.node.topics) == 1
    after = written(log)
    assert after[: len(before)] == before
    assert len(after) > len(before)
    first, second, *_ = list(iter_headers(memoryview(after)[len(before) :]))
    assert (first.is_control, first.leader_epoch) == (True, 2)
    assert (second.is_control, second.leader_epoch) == (False, 2)


async def test_each_start_has_a_higher_epoch_of_the_quorum(log: KafkaLog) -> None:
    """After a kill, too: the epoch is in quorum-state before the first record."""
    for epoch in (2, 3, 4):
        broker = Broker(log.files)
        await broker.node.open()
        state = read_quorum_state(log.files, DIRECTORY)
        assert (state.epoch, state.leader_id) == (epoch, NODE)
        assert broker.node.storage.metadata.epoch == epoch
        log.files.crash()


async def test_after_a_clean_stop_epochs_do_not_change(log: KafkaLog) -> None:
    """Partitions without a leader get one, and with it a new epoch."""
    log.append(PartitionChangeRecord(partition_id=0, topic_id=ORDERS, leader=-1))
    for _ in range(3):
        async with Broker(log.files) as broker:
            assert epochs(broker) == [2, 4]
    async with Broker(log.files) as broker:
        grown = broker.node.topics.get("orders")
        await broker.node.metadata.create_partitions(grown, 3)
        assert epochs(broker) == [2, 4, 0]


async def test_after_a_kill_each_partition_has_a_new_epoch(log: KafkaLog) -> None:
    """Kafka's controller elects the leader anew after an unclean shutdown, too.

    A power cut may have lost records and their epochs (*Non-obvious* 26).
    """
    log.files.remove(MARKER)
    for start in range(1, 4):
        broker = Broker(log.files)
        await broker.node.open()
        assert epochs(broker) == [start, 4 + start]
        states = image_of(log.files).topics["orders"].partitions
        assert [one.leader_epoch for one in states] == epochs(broker)
        await broker.node.metadata.alter_topic_configs(
            broker.node.topics.get("orders"), lambda _: {"retention.ms": "6000"}
        )
        log.files.crash()


async def test_a_power_cut_that_loses_records_and_their_epochs_begins_new_epochs() -> None:
    """Readers of the lost records know their epoch: it must not have other records."""
    files = MemoryFiles()
    async with Broker(files) as broker:
        await broker.create("t")
    seen = 0
    for start in range(3):
        broker = Broker(files)
        await broker.node.open()
        assert epochs(broker, "t") == [start]
        assert (await broker.produce("t", batch(3))).base_offset == 0
        data = await broker.fetch_one("t", 0, 0)
        assert [header.leader_epoch for header in iter_headers(data.records)] == [start]
        seen += 1
        files.power_cut()
        if files.exists("/data/t-0/leader-epoch-checkpoint"):
            files.remove("/data/t-0/leader-epoch-checkpoint")
    assert seen == 3


async def test_producer_ids_continue(log: KafkaLog) -> None:
    """With an id of Kafka's, a producer's records would be taken for another's duplicates."""
    registered = RegisterBrokerRecord(
        broker_id=NODE, incarnation_id=uuid.UUID(int=7), broker_epoch=12
    )
    log.append(registered, ProducerIdsRecord(broker_id=NODE, next_producer_id=5000))
    async with Broker(log.files) as broker:
        assert await broker.node.producer_ids.next() == 5000
    log.reopen()
    log.lead(3)
    log.append(ProducerIdsRecord(broker_id=NODE, next_producer_id=9000))
    async with Broker(log.files) as broker:
        assert await broker.node.producer_ids.next() == 9000


async def test_settings_that_are_unknown_or_invalid_here_are_kept(log: KafkaLog, caplog) -> None:
    """They have no effect here, and Kafka finds them again, also after a change of others."""
    log.append(
        config("remote.storage.enable", "true"),
        topic("other", OTHER),
        config("segment.bytes", "100", "other"),
        config("share.session.timeout.ms", "1", "workers", 32),
        config("consumer.session.timeout.ms", "50000", "workers", 32),
        config("log.retention.hours", "2", "", 4),
        config("no.such.setting", "x", "3", 4),
    )
    caplog.set_level(logging.INFO)
    async with Broker(log.files) as broker:
        orders = broker.node.topics.get("orders")
        assert orders.configs == {"retention.ms": "5000"}
        assert broker.node.topics.get("other").configs == {}
        assert broker.node.group_configs.session_timeout_ms("workers") == 50_000
        await broker.node.metadata.alter_topic_configs(
            orders, lambda present: {**present, "retention.ms": "6000"}
        )
        await broker.node.metadata.alter_group_configs("workers", lambda present: present)
        broker.node.storage.metadata.snapshot()
    assert "remote.storage.enable" in caplog.text
    image = image_of(log.files)
    assert image.topic_configs("orders") == {
        "retention.ms": "6000",
        "remote.storage.enable": "true",
    }
    assert image.topic_configs("other") == {"segment.bytes": "100"}
    assert image.group_configs()["workers"] == {
        "share.session.timeout.ms": "1",
        "consumer.session.timeout.ms": "50000",
    }
    assert image.configs[4, ""] == {"log.retention.hours": "2"}
    assert image.configs[4, "3"] == {"no.such.setting": "x"}


async def test_partitions_of_other_nodes_are_offline(log: KafkaLog) -> None:
    """An empty log in their place would look as if all records were lost."""
    log.append(partition(2, replicas=[7, 8], leader=7))
    for retention in ("6000", "7000"):
        async with Broker(log.files) as broker:
            orders = broker.node.topics.get("orders")
            assert [one.is_online for one in orders.partitions] == [True, True, False]
            assert (await broker.produce("orders", batch(), partition=2)).error_code == 6
            wanted = {"retention.ms": retention}
            await broker.node.metadata.alter_topic_configs(orders, lambda _: wanted)  # noqa: B023
    assert not log.files.exists("/data/orders-2")
    state = image_of(log.files).topics["orders"].partitions[2]
    assert (state.replicas, state.leader) == ((7, 8), 7)


async def test_partitions_of_a_directory_that_was_not_named_are_offline(log: KafkaLog) -> None:
    """If they were recreated here, they would exist twice once that directory is named.

    Once it is named, they are served. Until then, a partition that is not in its directory may
    have been moved to the missing one.
    """
    log.append(partition(2, directory=uuid.UUID(int=1000)), partition(3))
    for _ in range(2):
        async with Broker(log.files) as broker:
            orders = broker.node.topics.get("orders")
            assert [one.is_online for one in orders.partitions] == [True, True, False, False]
    log.make_partition("orders-2", ORDERS, b"x")
    async with Broker(log.files) as broker:
        assert broker.node.topics.partition("orders", 2).log.log_end_offset == 1
    assert image_of(log.files).topics["orders"].partitions[2].directories == (HERE,)


async def test_what_kafka_changed_meanwhile_counts(log: KafkaLog) -> None:
    """Kafka deleted and altered topics since; topics created here are kept."""
    log.append(topic("other", OTHER), partition(0, OTHER))
    async with Broker(log.files) as broker:
        await broker.create("here")
        await broker.produce("here", batch(3))
        await broker.node.metadata.create_partitions(broker.node.topics.get("orders"), 4)
        here = broker.node.topics.get("here").topic_id
    log.reopen()
    log.lead(3)
    log.append(RemoveTopicRecord(topic_id=OTHER), config("retention.ms", "6000"))
    async with Broker(log.files) as broker:
        assert {one.name for one in broker.node.topics} == {"orders", "here"}
        assert broker.node.topics.get("orders").configs == {"retention.ms": "6000"}
        assert len(broker.node.topics.get("orders").partitions) == 4
        assert broker.node.topics.get("here").topic_id == here
        assert broker.node.topics.partition("here", 0).log.log_end_offset == 3


async def test_a_topic_deleted_here_stays_deleted(log: KafkaLog) -> None:
    """Its record is in Kafka's log."""
    async with Broker(log.files) as broker:
        await broker.node.metadata.delete_topic(broker.node.topics.get("orders"))
    async with Broker(log.files) as broker:
        assert len(broker.node.topics) == 0


async def test_metadata_that_is_moved_away_binds_no_longer(log: KafkaLog) -> None:
    """The topics are what lies there, with epochs that no reader has seen."""
    broker = Broker(log.files)
    await broker.node.open()
    await broker.produce("orders", batch(1))
    log.files.crash()
    broker = Broker(log.files)
    await broker.node.open()
    await broker.produce("orders", batch(1))
    before = epochs(broker)
    log.files.crash()
    log.files.remove_tree(DIRECTORY)
    async with Broker(log.files) as broker:
        assert broker.node.topics.get("orders").configs == {"cleanup.policy": ""}
        assert all(new > old for new, old in zip(epochs(broker), before, strict=True))


def damage(log: KafkaLog, how: str) -> None:
    """Make the metadata such that the node must not start with it."""
    log.append(config("retention.ms", "6000"))
    path = log.snapshot(LEVEL, topic(), partition(0), partition(1))
    snapshot = log.files.read_bytes(path)
    match how:
        case "torn snapshot":
            log.files.write_atomic(path, snapshot[:-1])
        case "flipped bit in the snapshot":
            log.files.write_atomic(path, snapshot[:-20] + b"?" + snapshot[-19:])
        case "contradiction in the snapshot":
            log.snapshot(LEVEL, topic(), topic(), epoch=log.epoch + 1)
        case "flipped bit in the log":
            log.files.remove(path)
            data = log.files.read_bytes(log.path)
            log.files.write_atomic(log.path, data[:150] + b"?" + data[151:])
        case "missing segment":
            log.end += 10
            log.roll()
            log.append(topic("late", OTHER))
        case "unknown type":
            log.append(b"\x01\x32\x00...")
        case "unknown version":
            log.append(b"\x01\x00\x09...")
        case "unknown metadata.version":
            log.append(FeatureLevelRecord(name="metadata.version", feature_level=31))
        case "contradiction":
            log.append(topic())


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("torn snapshot", r"\.checkpoint is corrupt at byte"),
        ("flipped bit in the snapshot", r"\.checkpoint is corrupt at byte"),
        ("contradiction in the snapshot", r"snapshot \S+[24]\.checkpoint, .*exists already"),
        ("flipped bit in the log", r"\.log is damaged at byte \d+ .* offset [17] on are at stake"),
        ("missing segment", r"offsets \d+-\d+ are missing"),
        ("unknown type", r"unknown type 50, written by a newer Kafka .* at offset \d+"),
        ("unknown version", r"RegisterBrokerRecord of unknown version.* at offset \d+"),
        ("unknown metadata.version", r"metadata\.version 31"),
        ("contradiction", "topic 'orders' exists already"),
    ],
)
@pytest.mark.parametrize("known", [False, True])
async def test_metadata_that_cannot_be_understood_refuses_the_start(
    log: KafkaLog, how: str, words: str, known: bool
) -> None:
    """Regression: unknown records, and all records after a damaged batch, were skipped silently.

    With a part of the topics, the others would be set aside, and quotas or ACLs would be forgotten.
    """
    if known:
        async with Broker(log.files):
            pass
        log.reopen()
        log.lead(3)
    damage(log, how)
    log.files.write_atomic(MARKER, b'{"version": 0, "brokerEpoch": 12}')
    before = all_files(log.files)
    for _ in range(2):
        with pytest.raises(KafkaStorage, match=words):
            async with Broker(log.files):
                pass
    assert all_files(log.files) == before
    assert log.files.read_bytes(MARKER) == b'{"version": 0, "brokerEpoch": 12}'


@pytest.mark.parametrize("tail", [b"\0" * 100, b"\0\0\0\0\0\0\0\5\0\0\0\x50...", b"\xff" * 70])
async def test_what_a_kill_left_at_the_end_of_the_metadata_is_cut_off(
    log: KafkaLog, tail: bytes, caplog
) -> None:
    """As in Kafka; the log line says what."""
    end = len(log.files.read_bytes(log.path))
    log.write(tail)
    for _ in range(2):
        async with Broker(log.files) as broker:
            assert broker.node.topics.get("orders").configs == {"retention.ms": "5000"}
    [line] = [one.message for one in caplog.records if "incomplete end" in one.message]
    assert f"position={end} bytes={len(tail)} offset=6" in line


async def test_metadata_in_two_directories_is_for_the_user(log: KafkaLog) -> None:
    """A directory without segments and snapshots in it is none."""
    there = DIRECTORY.replace("/data", "/more")
    log.files.mkdirs(there)
    async with Broker(log.files, directories=["/data", "/more"]) as broker:
        assert broker.node.topics.get("orders").topic_id == ORDERS
    log.files.write_atomic(f"{there}/{0:020d}.log", b"")
    before = all_files(log.files)
    for order in (["/data", "/more"], ["/more", "/data"]):
        with pytest.raises(KafkaStorage, match=r"set metadata\.log\.dir="):
            async with Broker(log.files, directories=order):
                pass
    assert all_files(log.files) == before


@pytest.mark.parametrize("kraft_version", [0, 1])
async def test_the_log_of_a_quorum_with_other_voters_is_refused(kraft_version: int) -> None:
    """The other voters would not know the records of this node."""
    files = quorum_of_three(kraft_version)
    before = all_files(files)
    with pytest.raises(KafkaStorage, match=r"voters 1.*run aiokq storage adopt"):
        await Broker(files).node.open()
    assert all_files(files) == before


async def test_what_is_not_enforced_is_counted(log: KafkaLog, caplog) -> None:
    """A user must not rely on an ACL that has no effect; it is kept for Kafka."""
    acls = [AccessControlEntryRecord(id=uuid.UUID(int=number)) for number in (1, 2, 3)]
    log.append(
        *acls,
        RemoveAccessControlEntryRecord(id=acls[1].id),
        UserScramCredentialRecord(name="u", mechanism=1),
        ConfigRecord(resource_type=16, resource_name="m", name="interval.ms", value="100"),
        FeatureLevelRecord(name="share.version", feature_level=1),
    )
    async with Broker(log.files) as broker:
        broker.node.storage.metadata.snapshot()
    held = "1 client metrics subscriptions, share.version=1"
    assert f"NOT enforced here: {held}" in caplog.text
    assert "NOT enforced here: 2 ACLs; set authorizer.class.name" in caplog.text
    image = image_of(log.files)
    assert image.principals.counts() == {"ACLs": 2, "SCRAM credentials": 1}
    assert image.features["share.version"] == 1


async def test_kafka_finds_the_broker_epoch_of_the_last_registration(log: KafkaLog) -> None:
    """With another epoch Kafka would take its last shutdown for unclean."""
    seen = []
    for _ in range(2):
        async with Broker(log.files):
            assert not log.files.exists(MARKER)
        epoch = json.loads(log.files.read_bytes(MARKER))["brokerEpoch"]
        assert image_of(log.files).brokers[NODE].broker_epoch == epoch
        seen.append(epoch)
    assert seen[0] < seen[1]


async def test_a_transaction_that_a_leader_left_open_is_aborted(log: KafkaLog) -> None:
    """Its records have no effect, and later ones have."""
    log.append(BeginTransactionRecord(name="x"), topic("half", OTHER))
    async with Broker(log.files) as broker:
        assert broker.node.topics.get("half") is None
        await broker.create("whole")
    assert set(image_of(log.files).topics) == {"orders", "whole"}


async def test_partitions_that_another_node_led_wait_for_a_change(log: KafkaLog) -> None:
    """This node leads only what it may lead without a loss."""
    log.append(partition(2, replicas=[NODE, 7], leader=7))
    async with Broker(log.files) as broker:
        assert (await broker.produce("orders", batch(), partition=2)).error_code == 6
        assert broker.node.topics.partition("orders", 2).local_log is not None


# Whether Kafka has written to the logs


async def test_a_node_knows_for_good_whether_kafka_has_used_its_logs(log: KafkaLog) -> None:
    """Kafka's compaction leaves gaps in a log, which then are no loss of records."""
    for _ in range(3):
        async with Broker(log.files) as broker:
            assert broker.node.storage.by_kafka
        log.files.remove("/data/aiokq-node.json")


@pytest.mark.parametrize("end", ["crash", "power_cut"])
async def test_logs_that_only_aiokq_has_written_are_known_after_any_end(end: str) -> None:
    """Otherwise a power cut's hole in a compacted log would pass for a gap, from then on.

    The registration in the metadata log tells, which is durable, also in a snapshot.
    """
    files = MemoryFiles()
    for _ in range(3):
        broker = Broker(files)
        await broker.node.open()
        assert not broker.node.storage.by_kafka
        if broker.node.topics.get("t") is None:
            await broker.create("t")
        await take_snapshot(broker.node, "/copy")
        getattr(files, end)()
        if files.exists("/data/aiokq-node.json"):
            files.remove("/data/aiokq-node.json")
        async with Broker(files, directories="/copy") as copy:
            assert not copy.node.storage.by_kafka
        files.remove_tree("/copy")


async def test_a_registration_that_was_not_made_here_is_kafkas() -> None:
    """Kafka registers the broker under a random incarnation id."""
    async with Broker() as broker:
        await broker.create("t")
        metadata = broker.node.storage.metadata
        registered = metadata.image.brokers[0]
        kafkas = RegisterBrokerRecord(
            broker_id=0,
            incarnation_id=uuid.uuid4(),
            broker_epoch=metadata.end_offset,
            log_dirs=registered.log_dirs,
        )
        metadata.append(kafkas)
    async with Broker(broker.files) as again:
        assert again.node.storage.by_kafka


# New directories


async def test_a_new_directory_is_formatted_like_kafkas() -> None:
    """One voter, kraft.version 0, and the features of a new directory."""
    async with Broker() as broker:
        files = broker.files
        image = broker.node.storage.metadata.image
        assert image.features == {
            "metadata.version": 25,
            "group.version": 1,
            "transaction.version": 2,
            "eligible.leader.replicas.version": 1,
        }
        assert image.configs[4, ""] == {"min.insync.replicas": "1"}
        [registered] = image.brokers.values()
        assert (registered.broker_id, registered.fenced) == (0, False)
        [directory] = broker.node.storage.directories.all
        assert registered.log_dirs == [directory.directory_id]
        assert list(image.controllers) == [0]
    state = read_quorum_state(files, DIRECTORY)
    assert (state.epoch, state.leader_id, state.voters, state.data_version) == (1, 0, (0,), 0)
    records = read_bootstrap_checkpoint(files, "/data", crc32c)
    assert {one.name: one.feature_level for one in records} == image.features


async def test_with_bootstrap_servers_the_voter_is_in_the_log() -> None:
    """As with kafka-storage format --standalone; a later start continues it."""
    settings = {
        "controller_quorum_bootstrap_servers": "localhost:9093",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller_listener_names": "CONTROLLER",
    }
    files = MemoryFiles()
    for _ in range(2):
        async with Broker(files, **settings) as broker:
            await broker.node.producer_ids.next()
            [directory] = broker.node.storage.directories.all
        state = read(files)
        assert state.kraft_version == 1
        [voter] = state.voters.voters
        assert (voter.voter_id, voter.voter_directory_id) == (0, directory.directory_id)
    assert files.exists(f"{DIRECTORY}/{0:020d}-{0:010d}.checkpoint")


async def test_the_features_of_a_formatted_directory_count(log: KafkaLog) -> None:
    """`kafka-storage format --release-version` has chosen them."""
    files = log.files
    files.remove_tree(DIRECTORY)
    for name in ("orders-0", "orders-1"):
        files.remove_tree(f"/data/{name}")
    write_bootstrap_checkpoint(
        files,
        "/data",
        feature_records([("metadata.version", 21), ("kraft.version", 0)]),
        timestamp_ms=0,
        crc32c=crc32c,
    )
    async with Broker(files) as broker:
        await broker.create("t")
        assert broker.node.storage.metadata.image.features == {"metadata.version": 21}
    assert image_of(files).topics["t"].partitions[0].leader == NODE


@pytest.mark.parametrize("directories", [("/a",), ("/a", "/b"), ("/a", "/b", "/c")])
async def test_a_clean_start_writes_no_partition_record_and_syncs_little(
    directories: tuple[str, ...],
) -> None:
    """It syncs the metadata log, and the removal of each clean shutdown marker.

    With up to two log directories, there are at most three syncs. Each directory needs its own: it
    may be a disk of its own, and records that are not synced may be appended in it next.
    """
    files = MemoryFiles()
    async with Broker(files, directories=directories) as broker:
        await broker.create("t", 5)
    end = read_in(files, "/a").end_offset
    syncs: list[str] = []
    taken = files._take_fault

    def noted(operation: str, path: str):
        if operation in ("sync", "sync_dir"):
            syncs.append(path)
        return taken(operation, path)

    files._take_fault = noted
    async with Broker(files, directories=directories) as broker:
        await broker.fetch_one("t", 0, 0)
        files._take_fault = taken
    assert syncs == [f"/a/__cluster_metadata-0/{0:020d}.log", *directories]
    # LeaderChange and the registrations of controller and broker; the fencing of the broker
    assert read_in(files, "/a").end_offset == end + 4


async def test_a_power_cut_after_a_clean_start_leaves_no_marker() -> None:
    """The next start checks the records that were appended without a sync, in each directory."""
    for seed in range(8):
        files = MemoryFiles()
        async with Broker(files, directories=("/a", "/b")) as broker:
            await broker.create("t", 4)
        for _ in range(2):
            broker = Broker(files, directories=("/a", "/b"))
            await broker.node.open()
            for index in range(4):
                await broker.produce("t", batch(3), partition=index)
            files.power_cut(random.Random(seed), ordered=False)
            assert not files.exists("/a/.kafka_cleanshutdown")
            assert not files.exists("/b/.kafka_cleanshutdown")
        async with Broker(files, directories=("/a", "/b")) as broker:
            assert {one.clean for one in broker.node.storage.directories.all} == {False}
            assert epochs(broker, "t") == [2] * 4


async def test_the_directory_of_the_log_may_hold_records_of_a_dropped_snapshot() -> None:
    """A start after a snapshot reads it and continues, with everything in place."""
    files = MemoryFiles()
    async with Broker(files) as broker:
        await broker.create("t", 2)
        await broker.produce("t", batch(3))
        for number in range(3):
            await broker.create(f"t{number}")
            broker.node.storage.metadata.snapshot()
    async with Broker(files) as broker:
        assert offsets((await broker.fetch_one("t", 0, 0)).records) == [0, 1, 2]
        assert broker.node.storage.metadata.start_offset > 0
