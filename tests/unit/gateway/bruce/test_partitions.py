"""The choice of brokers and partitions."""

from __future__ import annotations

from array import array
from collections import Counter
from random import Random

from aiokq import ClusterMetadata
from aiokq.cluster.metadata import BrokerInfo, PartitionInfo, TopicInfo
from aiokq.gateway.bruce.partitions import PartitionMap, TopicPartitions


def metadata(*brokers: int, **topics: list[int]) -> ClusterMetadata:
    """Return a snapshot with the leaders of each topic's partitions."""
    return ClusterMetadata(
        brokers={node: BrokerInfo(node, "host", 9092) for node in brokers},
        topics={
            name: TopicInfo(
                name,
                partitions={n: PartitionInfo(n, leader) for n, leader in enumerate(leaders)},
            )
            for name, leaders in topics.items()
        },
    )


def test_point_19_brokers_get_batches_by_the_partitions_they_lead() -> None:
    """3 and 7 of 10 partitions: exactly 30 and 70 of 100 batches, in a shuffled order."""
    leaders = (1, 1, 1, 2, 2, 2, 2, 2, 2, 2)
    partitions = TopicPartitions(leaders, Random(1))

    first = [partitions.next_broker() for _ in range(10)]
    assert Counter(first) == {1: 3, 2: 7}
    assert [partitions.next_broker() for _ in range(90)] == first * 9
    assert first != sorted(first)
    assert first != [TopicPartitions(leaders, Random(2)).next_broker() for _ in range(10)]


def test_partitions_of_a_broker_take_turns_in_ascending_order() -> None:
    """The example of the seed: P1, P3 and P4 of P1 to P5."""
    partitions = TopicPartitions((9, 1, 2, 1, 1, 2), Random(1))

    assert [partitions.next_partition(1) for _ in range(7)] == [1, 3, 4, 1, 3, 4, 1]
    assert [partitions.next_partition(2) for _ in range(3)] == [2, 5, 2]
    assert partitions.next_partition(7) is None


def test_messages_are_spread_as_single_batches_would_be() -> None:
    """Each message of a combined topic has its own broker; their order per broker is kept."""
    leaders = (1, 2, 2, 3, 2)
    one_by_one = TopicPartitions(leaders, Random(4))
    together = TopicPartitions(leaders, Random(4))
    for count in (1, 3, 12, 1, 100, 7):
        rows = array("i", range(10, 10 + count))
        expected: dict[int, list[int]] = {}
        for row in rows:
            expected.setdefault(one_by_one.next_broker(), []).append(row)
        found = together.spread(memoryview(rows))
        assert {broker: list(each) for broker, each in found.items()} == expected


def test_a_partition_without_a_known_leader_is_not_usable() -> None:
    """No leader, or a leader that the snapshot does not list."""
    found = PartitionMap(metadata(1, 2, t=[1, -1, 7, 2], none=[-1, 7]), Random(1))

    topic = found.topic("t")
    assert topic is not None
    assert (topic.leaders, topic.usable) == ((1, -1, -1, 2), b"\1\0\0\1")
    assert topic.any_usable
    without = found.topic("none")
    assert without is not None
    assert not without.any_usable
    assert found.topic("missing") is None


def test_only_other_leaders_of_topics_in_use_make_a_difference() -> None:
    """Identical metadata, and topics that are new or not in use, restart nothing."""
    found = PartitionMap(metadata(1, 2, t=[1, 2], u=[1]), Random(1))
    topic = found.topic("t")

    assert not found.differs(metadata(1, 2, 3, t=[1, 2], u=[2], new=[1]))
    assert found.differs(metadata(1, 2, t=[2, 2]))
    assert found.differs(metadata(1, t=[1, 2]))
    assert found.differs(metadata(1, 2, t=[1, 2, 1]))
    assert not found.differs(metadata(1, 2))  # not used for long
    assert found.differs(ClusterMetadata(topic_errors={"t": 3}))
    found.extend(metadata(1, 2, t=[2, 2], new=[1]))
    assert found.topic("t") is topic
    assert found.topic("new") is not None
