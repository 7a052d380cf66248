"""Router: partitions that can be used, and limits of topics as arguments for the pool."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import aiokq
from aiokq import PartitionInfo, TopicInfo
from aiokq.fastpath.gateway import Pool
from aiokq.gateway import GatewaySettings
from aiokq.gateway.accounting import Accounting
from aiokq.gateway.engine import TopicState
from aiokq.gateway.router import NO_LIMIT_MS, Router, _set_limits, _set_partitions
from aiokq.wire import DescribeConfigsResourceResult, DescribeConfigsResult


def router(settings: GatewaySettings | None = None, metadata: object = None) -> Router:
    pool = Pool(1_000_000)
    cluster: Any = SimpleNamespace(metadata=metadata)
    return Router(
        cluster,
        pool,
        Accounting(pool),
        settings or GatewaySettings(),
        max_message_bytes=1_000_000,
        spawn=lambda coro, name: coro.close(),
        on_topic=lambda topic: None,
    )


def topic(settings: GatewaySettings | None = None) -> TopicState:
    return TopicState("orders", (settings or GatewaySettings()).of_topic("orders"))


def test_only_the_partition_without_a_leader_is_skipped_and_the_count_stays():
    """Otherwise an outage would move all keys to other partitions."""
    one = topic()
    _set_partitions(one, {0: 5, 1: -1, 2: 7})
    assert (one.partitions, one.usable) == (3, b"\1\0\1")
    _set_partitions(one, {0: 5, 1: 5, 2: 7})
    assert (one.partitions, one.usable) == (3, None)
    _set_partitions(one, {0: -1, 1: -1})
    assert (one.partitions, one.usable) == (2, None)  # no better choice than the key's own


def test_metadata_of_the_cluster_replaces_that_of_the_lookup():
    """The Cluster follows the leaders of topics that are written to."""
    parts = {0: PartitionInfo(0, leader=1), 1: PartitionInfo(1, leader=-1)}
    info = TopicInfo("orders", partitions=parts)
    metadata = aiokq.ClusterMetadata(topics={"orders": info})
    one = topic()
    routes = router(metadata=metadata)
    routes.update(one)
    assert (one.partitions, one.usable, one.seen) == (2, b"\1\0", info)


def test_limits_of_a_topic_are_those_of_kafka_and_of_the_configuration():
    """The smallest size counts; a compressed batch may be smaller than its messages."""
    plain, packed = GatewaySettings(), GatewaySettings.checked({"compression": {"type": "zstd"}})
    for settings, expected in ((plain, 10_000 - 68), (packed, 1_000_000)):
        one = topic(settings)
        one.max_batch_bytes = 10_000
        limits = router(settings)._limits(one)
        assert limits["max_message_bytes"] == expected
        assert (limits["batch_ms"], limits["batch_bytes"]) == (10, 131072)
    own = GatewaySettings.checked(
        {
            "batching": {"mode": "off"},
            "rate_limit": {"interval_ms": 10, "max_messages": 3},
            "topics": {"orders": {"max_message_bytes": 100}},
        }
    )
    limits = router(own)._limits(topic(own))
    assert limits == {"max_message_bytes": 100, "rate_interval_ms": 10, "rate_max_messages": 3}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("3600000", "1000", (3_600_000, 1000)),
        (str(2**63 - 1), str(NO_LIMIT_MS), (None, None)),
        ("x", None, (None, None)),
    ],
)
def test_limits_of_timestamps(
    before: str, after: str | None, expected: tuple[int | None, int | None]
):
    """Kafka's default is the largest long, which means no limit."""
    one = topic()
    values = {
        "max.message.bytes": "1048588",
        "message.timestamp.before.max.ms": before,
        "message.timestamp.after.max.ms": after,
    }
    configs = [
        DescribeConfigsResourceResult(name=name, value=value) for name, value in values.items()
    ]
    _set_limits(one, DescribeConfigsResult(resource_name="orders", configs=configs))
    assert (one.earliest_ms, one.latest_ms) == expected
    assert one.max_batch_bytes == 1_048_588
