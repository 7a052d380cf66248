"""TopicLayouts: valid numbers of partitions and replicas, and valid assignments."""

from __future__ import annotations

import pytest

from aiokq.broker.config.settings import broker_settings
from aiokq.broker.metadata.controller.topic_layout import MAX_PARTITIONS, TopicLayouts, TopicSpec
from aiokq.core.errors import (
    BrokerError,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    PolicyViolation,
)

LAYOUTS = TopicLayouts(broker_settings({"num.partitions": "3"}), node_id=7)


@pytest.mark.parametrize(
    ("spec", "layout"),
    [
        (TopicSpec("t"), (3, 1)),
        (TopicSpec("t", partitions=5, replication_factor=1), (5, 1)),
        (TopicSpec("t", assignments={1: [7], 0: [7]}), (2, 1)),
        (TopicSpec("t", partitions=MAX_PARTITIONS), (MAX_PARTITIONS, 1)),
    ],
)
def test_what_is_left_out_is_the_brokers_default(spec: TopicSpec, layout: tuple[int, int]) -> None:
    """-1 in a request stands for the broker's default; an assignment determines both numbers."""
    assert LAYOUTS.of(spec) == layout


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (TopicSpec("t", partitions=0), InvalidPartitions),
        (TopicSpec("t", assignments={}), InvalidPartitions),
        (TopicSpec("t", partitions=MAX_PARTITIONS + 1), PolicyViolation),
        (TopicSpec("t", replication_factor=0), InvalidReplicationFactor),
        (TopicSpec("t", replication_factor=2), InvalidReplicationFactor),
        (TopicSpec("t", assignments={1: [7]}), InvalidReplicaAssignment),
        (TopicSpec("t", assignments={0: []}), InvalidReplicaAssignment),
        (TopicSpec("t", assignments={0: [7, 7]}), InvalidReplicaAssignment),
        (TopicSpec("t", assignments={0: [8]}), InvalidReplicaAssignment),
        (TopicSpec("t", assignments={0: [7], 1: [7, 8]}), InvalidReplicaAssignment),
    ],
)
def test_what_cannot_be_is_refused_by_its_own_code(
    spec: TopicSpec, error: type[BrokerError]
) -> None:
    """Tools tell users what to change by the error code, so different mistakes differ in it."""
    with pytest.raises(error):
        LAYOUTS.of(spec)


def test_partitions_only_become_more() -> None:
    """Fewer partitions would lose records, and the same number is most often a mistake."""
    LAYOUTS.check_growth("t", 3, 5, [[7], [7]])
    LAYOUTS.check_growth("t", 3, 4, None)
    for count in (2, 3):
        with pytest.raises(InvalidPartitions):
            LAYOUTS.check_growth("t", 3, count, None)
    with pytest.raises(PolicyViolation):
        LAYOUTS.check_growth("t", 1, MAX_PARTITIONS + 2, None)
    with pytest.raises(InvalidReplicaAssignment):
        LAYOUTS.check_growth("t", 3, 5, [[7]])
