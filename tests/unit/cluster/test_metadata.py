"""Lookups in the metadata snapshot."""

from __future__ import annotations

from uuid import UUID

from aiokq.cluster.metadata import (
    BrokerInfo,
    ClusterMetadata,
    PartitionInfo,
    TopicInfo,
    frozen_map,
)
from aiokq.core.errors import UnknownTopicOrPartition
from aiokq.core.types import TopicPartition

TOPIC = TopicInfo(
    "t", UUID(int=1), False, frozen_map({0: PartitionInfo(0, 1, 5), 1: PartitionInfo(1)})
)
METADATA = ClusterMetadata(
    topics=frozen_map({"t": TOPIC}), topic_names=frozen_map({UUID(int=1): "t"})
)


def test_lookups_of_known_topics_and_partitions():
    """Plain tuples are accepted as partitions."""
    assert METADATA.topic("t") is TOPIC
    assert METADATA.topic_by_id(UUID(int=1)) is TOPIC
    assert METADATA.leader(TopicPartition("t", 0)) == 1
    assert METADATA.leader_epoch(TopicPartition("t", 0)) == 5
    assert METADATA.partition(("t", 1)) == PartitionInfo(1)  # type: ignore[arg-type]
    assert TOPIC.leaderless == (1,)


def test_lookups_of_unknown_topics_and_partitions():
    """Callers in hot paths must not need to catch exceptions."""
    for tp in (TopicPartition("t", 9), TopicPartition("nope", 0)):
        assert METADATA.partition(tp) is None
        assert METADATA.leader(tp) == METADATA.leader_epoch(tp) == -1
    assert METADATA.topic("nope") is None
    assert METADATA.topic_by_id(UUID(int=2)) is None


def test_the_error_of_a_doubted_topic_is_typed():
    """The error code comes from the latest Metadata response."""
    assert TOPIC.error is None
    assert isinstance(TopicInfo("t", error_code=3).error, UnknownTopicOrPartition)


def test_addresses_bracket_ipv6():
    """Users read these addresses and copy them."""
    assert BrokerInfo(1, "host", 9092).address == "host:9092"
    assert BrokerInfo(1, "::1", 9092).address == "[::1]:9092"
