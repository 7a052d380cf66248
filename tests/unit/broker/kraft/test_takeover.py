"""A node on a directory of Apache Kafka: what it serves, and what it leaves unchanged."""

from __future__ import annotations

import logging
import uuid

import pytest

from aiokq.broker.log.partition_metadata import read_partition_metadata
from aiokq.core.errors import KafkaStorage
from aiokq.wire.cluster_metadata_records import (
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
from tests.unit.broker.harness import Broker, batch
from tests.unit.broker.kraft.kafka_log import (
    DIRECTORY,
    NODE,
    ORDERS,
    OTHER,
    KafkaLog,
    config,
    partition,
    topic,
)


@pytest.fixture
def log() -> KafkaLog:
    """A directory of Kafka with a topic of two partitions."""
    made = KafkaLog(MemoryFiles())
    made.lead(1)
    made.append(topic(), partition(0), partition(1, epoch=4), config("retention.ms", "5000"))
    made.make_partition("orders-0", ORDERS, b"a", b"b")
    made.make_partition("orders-1", ORDERS)
    return made


def kafkas_files(log: KafkaLog) -> dict[str, bytes]:
    names = log.files.listdir(DIRECTORY)
    return {name: log.files.read_bytes(f"{DIRECTORY}/{name}") for name in names}


def names(log: KafkaLog, ending: str) -> list[str]:
    return sorted(name for name in log.files.listdir("/data") if name.endswith(ending))


async def test_kafkas_topics_are_there(log: KafkaLog, caplog) -> None:
    """Topics keep ids, configs and records, the node its ids; Kafka's own files are unchanged."""
    before = kafkas_files(log)
    with caplog.at_level(logging.WARNING):
        async with Broker(log.files) as broker:
            assert (broker.node.node_id, broker.node.cluster_id) == (NODE, "kafkas")
            orders = broker.node.topics.get("orders")
            assert orders is not None
            assert orders.topic_id == ORDERS
            assert orders.configs == {"retention.ms": "5000"}
            assert [one.log.log_end_offset for one in orders.partitions] == [2, 0]
            assert (await broker.produce("orders", batch(1))).base_offset == 2
            assert len(broker.node.topics) == 1
    assert kafkas_files(log) == before
    [line] = [one.message for one in caplog.records if "taken over" in one.message]
    assert "cluster=kafkas node=3 topics=1 partitions=2" in line
    caplog.clear()
    async with Broker(log.files) as broker:
        assert len(broker.node.topics) == 1
    assert "taken over" not in caplog.text  # it is logged once only


async def test_epochs_are_those_that_kafka_gives_next(log: KafkaLog) -> None:
    """Leader epochs continue where Kafka's end, and a kill does not increase them further.

    Clients ignore metadata with an older epoch than they know. With more epochs here Kafka's would
    be older when Kafka gets the directory back.
    """
    log.append(PartitionChangeRecord(partition_id=0, topic_id=ORDERS, leader=-1))
    for _ in range(3):
        broker = Broker(log.files)
        await broker.node.open()
        orders = broker.node.topics.get("orders")
        assert [one.leader_epoch for one in orders.partitions] == [2, 4]
        log.files.crash()
    async with Broker(log.files) as broker:
        grown = broker.node.topics.get("orders")
        await broker.node.metadata.create_partitions(grown, 3)
        assert grown.partitions[2].leader_epoch == 0
        made = await broker.create("here")
        assert made is not None


async def test_a_setting_changed_here_keeps_kafkas_epochs(log: KafkaLog) -> None:
    """With a new epoch after a kill, Kafka could later assign the same epoch to another leader."""
    broker = Broker(log.files)
    await broker.node.open()
    orders = broker.node.topics.get("orders")
    before = [one.leader_epoch for one in orders.partitions]
    await broker.node.metadata.alter_topic_configs(orders, lambda _: {"retention.ms": "6000"})
    log.files.crash()
    broker = Broker(log.files)
    await broker.node.open()
    orders = broker.node.topics.get("orders")
    assert orders.configs == {"retention.ms": "6000"}
    assert [one.leader_epoch for one in orders.partitions] == before


async def test_producer_ids_are_none_that_kafka_gives(log: KafkaLog) -> None:
    """With an id of Kafka's, a producer's records would be taken for another's duplicates."""
    log.append(ProducerIdsRecord(next_producer_id=5000))
    async with Broker(log.files) as broker:
        assert await broker.node.producer_ids.next() == 1 << 48
    log.append(ProducerIdsRecord(next_producer_id=6000))
    async with Broker(log.files) as broker:
        assert await broker.node.producer_ids.next() > 1 << 48


async def test_dynamic_settings_of_the_broker_become_the_topics(log: KafkaLog, caplog) -> None:
    """Without them records would be deleted that Kafka keeps.

    Values equal to Kafka's defaults are not stored, and unsupported configs are dropped with a log
    line.
    """
    log.append(
        config("log.retention.hours", "2", "", 4),
        config("log.segment.bytes", "2000000", "3", 4),
        config("min.insync.replicas", "1", "", 4),
        config("remote.storage.enable", "true"),
        config("segment.bytes", "100"),
        topic("other", OTHER),
        partition(0, OTHER),
    )
    async with Broker(log.files) as broker:
        assert broker.node.topics.get("other").configs == {
            "retention.ms": "7200000",
            "segment.bytes": "2000000",
        }
        assert broker.node.topics.get("orders").configs == {"retention.ms": "5000"}
    assert "remote.storage.enable" in caplog.text


async def test_settings_of_groups_are_taken_over(log: KafkaLog) -> None:
    """They change again when Kafka's change."""
    log.append(
        config("consumer.session.timeout.ms", "50000", "workers", 32),
        config("share.session.timeout.ms", "1", "workers", 32),
    )
    async with Broker(log.files) as broker:
        image = broker.node.storage.metadata_image()
        assert image.group_configs() == {"workers": {"consumer.session.timeout.ms": "50000"}}
    log.append(config("consumer.session.timeout.ms", None, "workers", 32))
    async with Broker(log.files) as broker:
        assert broker.node.storage.metadata_image().group_configs() == {}


async def test_partitions_of_other_nodes_are_offline(log: KafkaLog) -> None:
    """An empty log in their place would look as if all records were lost."""
    log.append(partition(2, replicas=[7, 8], leader=7))
    for retention in ("6000", "7000"):
        async with Broker(log.files) as broker:
            orders = broker.node.topics.get("orders")
            assert [one.is_online for one in orders.partitions] == [True, True, False]
            with pytest.raises(KafkaStorage, match="on another node"):
                orders.partitions[2].log  # noqa: B018
            wanted = {"retention.ms": retention}
            await broker.node.metadata.alter_topic_configs(orders, lambda _: wanted)  # noqa: B023
    assert not log.files.exists("/data/orders-2")


async def test_partitions_of_a_directory_that_was_not_named_are_offline(log: KafkaLog) -> None:
    """If they were recreated here, they would exist twice once that directory is named.

    Once it is named, they are served.
    """
    here, there = uuid.UUID("00000000-0000-4000-8000-000000000001"), uuid.UUID(int=1000)
    third, fourth = partition(2), partition(3)
    third.directories, fourth.directories = [there], [here]
    log.append(third, fourth)
    for _ in range(2):
        async with Broker(log.files) as broker:
            orders = broker.node.topics.get("orders")
            assert [one.is_online for one in orders.partitions] == [True, True, False, True]
    log.make_partition("orders-2", ORDERS, b"x")
    async with Broker(log.files) as broker:
        assert broker.node.topics.partition("orders", 2).log.log_end_offset == 1


async def test_what_kafka_changed_meanwhile_counts(log: KafkaLog) -> None:
    """Kafka deleted, altered and created topics since; topics created here are kept."""
    log.append(topic("other", OTHER), partition(0, OTHER))
    async with Broker(log.files) as broker:
        await broker.create("here")
        await broker.produce("here", batch(3))
        await broker.node.metadata.create_partitions(broker.node.topics.get("orders"), 4)
        here = broker.node.topics.get("here").topic_id
    # Kafka renames directories of topics that it does not know.
    log.files.rename("/data/here-0", f"/data/here-0.{'a' * 32}-stray")
    log.files.rename("/data/orders-3", f"/data/orders-3.{'b' * 32}-stray")
    log.lead(2)
    log.append(RemoveTopicRecord(topic_id=OTHER), config("retention.ms", "6000"), epoch=2)
    log.files.remove_tree("/data/other-0")
    async with Broker(log.files) as broker:
        assert {one.name for one in broker.node.topics} == {"orders", "here"}
        assert broker.node.topics.get("orders").configs == {"retention.ms": "6000"}
        assert len(broker.node.topics.get("orders").partitions) == 4
        assert broker.node.topics.get("here").topic_id == here
        assert broker.node.topics.partition("here", 0).log.log_end_offset == 3
    assert names(log, "-stray") == []


async def test_a_topic_deleted_here_stays_deleted(log: KafkaLog) -> None:
    """This holds as long as Kafka has not had the directory again."""
    async with Broker(log.files) as broker:
        await broker.node.metadata.delete_topic(broker.node.topics.get("orders"))
    async with Broker(log.files) as broker:
        assert len(broker.node.topics) == 0


async def test_metadata_that_is_moved_away_binds_no_longer(log: KafkaLog) -> None:
    """A kill then begins new leader epochs, as in any other directory of aiokq."""
    async with Broker(log.files):
        pass
    log.files.remove_tree(DIRECTORY)
    broker = Broker(log.files)
    await broker.node.open()
    assert broker.node.topics.get("orders").configs == {"retention.ms": "5000"}
    log.files.crash()
    async with Broker(log.files) as broker:
        orders = broker.node.topics.get("orders")
        assert [one.leader_epoch for one in orders.partitions] == [2, 5]


def damage(log: KafkaLog, how: str) -> None:
    """Make the metadata such that the node must not start with it."""
    log.append(config("retention.ms", "6000"))
    path = log.snapshot(topic(), partition(0), partition(1))
    snapshot = log.files.read_bytes(path)
    match how:
        case "torn snapshot":
            log.files.write_atomic(path, snapshot[:-1])
        case "flipped bit in the snapshot":
            log.files.write_atomic(path, snapshot[:-20] + b"?" + snapshot[-19:])
        case "contradiction in the snapshot":
            log.snapshot(topic(), topic(), epoch=2)
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
        ("contradiction in the snapshot", r"snapshot \S+6-\S+2\.checkpoint, .*exists already"),
        ("flipped bit in the log", r"\.log is damaged at byte \d+ .* offset 1 on are at stake"),
        ("missing segment", "offsets 6-15 are missing"),
        ("unknown type", "unknown type 50, written by a newer Kafka .* at offset 6"),
        ("unknown version", "RegisterBrokerRecord of unknown version.* at offset 6"),
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
    damage(log, how)
    marker = "/data/.kafka_cleanshutdown"
    log.files.write_atomic(marker, b'{"version": 0, "brokerEpoch": 12}')
    before = kafkas_files(log)
    served = "/data/aiokq-metadata.log"
    told = log.files.read_bytes(served) if known else None
    for _ in range(2):
        with pytest.raises(KafkaStorage, match=words) as refused:
            async with Broker(log.files):
                pass
        assert f"If you move {DIRECTORY} away" in refused.value.message
        assert "serves the topics that it finds" in refused.value.message
    assert kafkas_files(log) == before
    assert log.files.read_bytes(marker) == b'{"version": 0, "brokerEpoch": 12}'
    assert names(log, "-stray") == []
    if known:
        assert log.files.read_bytes(served) == told


@pytest.mark.parametrize("tail", [b"\0" * 100, b"\0\0\0\0\0\0\0\5\0\0\0\x50...", b"\xff" * 70])
async def test_what_a_kill_left_at_the_end_of_the_metadata_is_ignored(
    log: KafkaLog, tail: bytes, caplog
) -> None:
    """Kafka cuts it off; aiokq leaves it in place for Kafka to find."""
    log.write(tail)
    before = kafkas_files(log)
    for _ in range(2):
        async with Broker(log.files) as broker:
            assert broker.node.topics.get("orders").configs == {"retention.ms": "5000"}
    assert kafkas_files(log) == before
    [line] = [one.message for one in caplog.records if "incomplete end" in one.message]
    assert f"bytes={len(tail)} offset=5" in line
    assert caplog.text.count("taken over") == 1


async def test_metadata_in_two_directories_is_for_the_user(log: KafkaLog) -> None:
    """A directory without segments and snapshots in it is none."""
    there = DIRECTORY.replace("/data", "/more")
    log.files.mkdirs(there)
    async with Broker(log.files, directories=["/data", "/more"]) as broker:
        assert broker.node.topics.get("orders").topic_id == ORDERS
    log.files.write_atomic(f"{there}/{0:020d}.log", b"")
    with pytest.raises(KafkaStorage, match=r"two log directories.*metadata\.log\.dir"):
        async with Broker(log.files, directories=["/data", "/more"]):
            pass


async def test_what_is_not_enforced_is_counted(log: KafkaLog, caplog) -> None:
    """A user must not rely on an ACL that was taken over and has no effect."""
    acls = [AccessControlEntryRecord(id=uuid.UUID(int=number)) for number in (1, 2, 3)]
    log.append(
        *acls,
        RemoveAccessControlEntryRecord(id=acls[1].id),
        UserScramCredentialRecord(name="u", mechanism=1),
        RegisterBrokerRecord(broker_id=NODE),
    )
    async with Broker(log.files):
        pass
    assert "NOT enforced here: 2 ACLs, 1 SCRAM credentials" in caplog.text


async def test_kafka_finds_the_broker_epoch_that_it_left(log: KafkaLog) -> None:
    """With another epoch Kafka would take its last shutdown for unclean."""
    marker = "/data/.kafka_cleanshutdown"
    log.files.write_atomic(marker, b'{"version":0,"brokerEpoch":12}')
    for _ in range(2):
        async with Broker(log.files):
            assert not log.files.exists(marker)
        assert b'"brokerEpoch": 12' in log.files.read_bytes(marker)


# Without metadata


@pytest.fixture
def orphans(log: KafkaLog) -> KafkaLog:
    """The same directory without Kafka's metadata."""
    log.files.remove_tree(DIRECTORY)
    return log


async def test_without_metadata_topics_are_what_lies_there(orphans: KafkaLog, caplog) -> None:
    """Topics get the ids in their directories, and configs that cannot delete a record."""
    orphans.make_partition("old-2", None, b"x")
    orphans.files.mkdirs("/data/backup-2024")
    for _ in range(2):
        async with Broker(orphans.files, **{"log.retention.ms": 1}) as broker:
            orders, old = (broker.node.topics.get(name) for name in ("orders", "old"))
            assert orders.topic_id == ORDERS
            assert read_partition_metadata(orphans.files, "/data/old-2") == old.topic_id
            assert [one.is_online for one in old.partitions] == [False, False, True]
            for found in (orders, old):
                assert found.configs == {"cleanup.policy": ""}
                assert found.config.cleanup_policy == ()
            assert orders.partitions[0].log.log_end_offset == 2
            assert broker.node.topics.get("backup") is None
    [line] = [one.message for one in caplog.records if "no metadata" in one.message]
    assert "topics=2 partitions=3" in line
    assert names(orphans, "-stray") == []


async def test_the_user_may_say_what_goes(orphans: KafkaLog) -> None:
    """An empty cleanup.policy can be changed like any other config."""
    async with Broker(orphans.files) as broker:
        orders = broker.node.topics.get("orders")
        await broker.node.metadata.alter_topic_configs(orders, lambda _: {})
        assert orders.config.cleanup_policy == ("delete",)


async def test_partitions_of_two_topics_of_a_name_are_for_the_user(orphans: KafkaLog) -> None:
    """Otherwise records of one topic would be served as the other's."""
    orphans.make_partition("orders-2", OTHER)
    with pytest.raises(KafkaStorage, match=r"different topic ids in partition\.metadata"):
        async with Broker(orphans.files):
            pass
    assert orphans.files.is_dir("/data/orders-2")


async def test_a_copied_partition_with_the_topic_id_of_another_topic_is_refused(
    orphans: KafkaLog,
) -> None:
    """One topic id cannot name two topics: one of them would be set aside after the start."""
    orphans.make_partition("copy-0", ORDERS, b"x")
    with pytest.raises(KafkaStorage, match=r"copy-0 and .*orders-0 have the same topic id"):
        async with Broker(orphans.files):
            pass
    assert names(orphans, "-stray") == []
    orphans.files.remove("/data/copy-0/partition.metadata")
    async with Broker(orphans.files) as broker:
        orders, copy = (broker.node.topics.get(name) for name in ("orders", "copy"))
        assert orders.topic_id == ORDERS != copy.topic_id
        assert copy.partitions[0].log.log_end_offset == 1
