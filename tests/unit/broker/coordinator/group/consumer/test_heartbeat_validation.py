"""Malformed heartbeats are rejected with Kafka's messages before a group sees them."""

from __future__ import annotations

import uuid

import pytest

from aiokq.broker.coordinator.group.consumer.heartbeat_validation import check_heartbeat
from aiokq.core.errors import BrokerError, InvalidRequest, UnsupportedAssignor
from aiokq.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
)


def request(**changed: object) -> ConsumerGroupHeartbeatRequest:
    """Return a valid join with the given fields changed."""
    fields: dict[str, object] = {
        "group_id": "g",
        "member_id": "a",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["orders"],
        "topic_partitions": [],
    }
    return ConsumerGroupHeartbeatRequest(**{**fields, **changed})


OWNED = [ConsumerGroupHeartbeatTopicPartitions(topic_id=uuid.UUID(int=1), partitions=[0])]


@pytest.mark.parametrize(
    ("version", "changed", "error", "message"),
    [
        (1, {"member_id": ""}, InvalidRequest, "MemberId can't be empty."),
        (1, {"member_id": "  "}, InvalidRequest, "MemberId can't be empty."),
        (0, {"member_id": "", "member_epoch": 1}, InvalidRequest, "MemberId can't be empty."),
        (0, {"member_id": "", "member_epoch": -1}, InvalidRequest, "MemberId can't be empty."),
        (1, {"group_id": ""}, InvalidRequest, "GroupId can't be empty."),
        (1, {"instance_id": ""}, InvalidRequest, "InstanceId can't be empty."),
        (1, {"rack_id": " "}, InvalidRequest, "RackId can't be empty."),
        (
            1,
            {"rebalance_timeout_ms": -1},
            InvalidRequest,
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (
            1,
            {"topic_partitions": None},
            InvalidRequest,
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            1,
            {"topic_partitions": OWNED},
            InvalidRequest,
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            1,
            {"subscribed_topic_names": None},
            InvalidRequest,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining.",
        ),
        (1, {"member_epoch": -2}, InvalidRequest, "InstanceId can't be null."),
        (1, {"member_epoch": -3}, InvalidRequest, "MemberEpoch is invalid."),
        (
            1,
            {"server_assignor": "sticky"},
            UnsupportedAssignor,
            "ServerAssignor sticky is not supported. Supported assignors: uniform, range.",
        ),
    ],
)
def test_a_malformed_heartbeat_is_refused(
    version: int, changed: dict[str, object], error: type[BrokerError], message: str
) -> None:
    """The messages are for authors of clients."""
    with pytest.raises(error) as raised:
        check_heartbeat(request(**changed), version)
    assert raised.value.message == message


@pytest.mark.parametrize(
    ("version", "changed"),
    [
        (1, {}),
        (0, {"member_id": ""}),
        (1, {"subscribed_topic_names": []}),
        (1, {"subscribed_topic_names": None, "subscribed_topic_regex": ""}),
        (1, {"server_assignor": "range"}),
        (1, {"member_epoch": 3, "rebalance_timeout_ms": -1, "topic_partitions": OWNED}),
        (1, {"member_epoch": -1}),
        (1, {"member_epoch": -2, "instance_id": "i"}),
    ],
)
def test_a_sound_heartbeat_passes(version: int, changed: dict[str, object]) -> None:
    """Requests as Java, librdkafka and aiokq send them."""
    check_heartbeat(request(**changed), version)
