"""Topics made of the partitions that are found in log directories without any metadata."""

from __future__ import annotations

import pytest

from aiokq.broker.log.partition_metadata import read_partition_metadata
from aiokq.core.errors import KafkaStorage
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.harness import Broker
from tests.unit.broker.metadata.kafka_log import DIRECTORY, ORDERS, OTHER, KafkaLog
from tests.unit.broker.metadata.metadata_logs import read


def names(log: KafkaLog, ending: str) -> list[str]:
    return sorted(name for name in log.files.listdir("/data") if name.endswith(ending))


@pytest.fixture
def orphans() -> KafkaLog:
    """A directory of Kafka with a topic of two partitions, without Kafka's metadata."""
    made = KafkaLog(MemoryFiles())
    made.make_partition("orders-0", ORDERS, b"a", b"b")
    made.make_partition("orders-1", ORDERS)
    made.files.remove_tree(DIRECTORY)
    return made


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


async def test_they_are_recorded_at_the_first_start_only(orphans: KafkaLog) -> None:
    """With the epochs in their directories, and the directory that they are in."""
    orphans.files.write_atomic("/data/orders-0/leader-epoch-checkpoint", b"0\n1\n6 0\n")
    async with Broker(orphans.files):
        pass
    first, second = read(orphans.files).image.topics["orders"].partitions
    assert (first.leader, first.leader_epoch) == (3, 7)  # the stop was unclean
    assert (second.leader, second.leader_epoch) == (3, 1)
    assert {str(first.directories[0]), str(second.directories[0])} == {
        "00000000-0000-4000-8000-000000000001"
    }
    orphans.make_partition("late-0", OTHER, b"x")
    async with Broker(orphans.files) as broker:
        assert [topic.name for topic in broker.node.topics] == ["orders"]
    assert len(names(orphans, "-stray")) == 1


async def test_partitions_of_two_directories_are_one_topic(orphans: KafkaLog) -> None:
    """Directories without ids get them, and are recorded with their partitions."""
    orphans.files.mkdirs("/more")
    orphans.files.rename("/data/orders-1", "/more/orders-1")
    for _ in range(2):
        async with Broker(orphans.files, directories=["/data", "/more"]) as broker:
            assert all(one.is_online for one in broker.node.topics.get("orders").partitions)
            more = broker.node.storage.directories.all[1].directory_id
    assert read(orphans.files).image.topics["orders"].partitions[1].directories == (more,)
