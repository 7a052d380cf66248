"""The bytes that members of a classic consumer group exchange through their coordinator.

This module converts the values of `model` to these bytes and back, in the schemas of Kafka's
`ConsumerProtocol`. In a classic group, the broker passes the bytes on unchanged. In a group of the
consumer protocol, the broker reads the bytes of classic members, and writes bytes for them.

Source: Kafka's `ConsumerProtocol`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from aiokq.assign.model import Assignment, Subscription
from aiokq.core.errors import ProtocolError
from aiokq.core.types import TopicPartition
from aiokq.wire.codec import decode_prefixed, encode_prefixed
from aiokq.wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)

__all__ = [
    "PROTOCOL_TYPE",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
    "version_of",
]

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of consumer groups; Kafka Connect, for example, uses another type."""

SUBSCRIPTION_VERSION: Final = ConsumerProtocolSubscription.MAX_VERSION
ASSIGNMENT_VERSION: Final = ConsumerProtocolAssignment.MAX_VERSION


def encode_subscription(subscription: Subscription) -> bytes:
    """Return a member's metadata for JoinGroup.

    The instance id is left out, because JoinGroup has a field for it.
    """
    return encode_prefixed(
        ConsumerProtocolSubscription(
            topics=sorted(subscription.topics),
            user_data=subscription.user_data,
            owned_partitions=[
                ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=numbers)
                for topic, numbers in _by_topic(subscription.owned)
            ],
            generation_id=subscription.generation,
            rack_id=subscription.rack,
        ),
        SUBSCRIPTION_VERSION,
    )


def decode_subscription(data: bytes, group_instance_id: str | None = None) -> Subscription:
    """Return a member's subscription, decoded from bytes of any version.

    A newer version is read as the latest known version. Trailing bytes are skipped, as in Java:
    some members write more fields than their version has.

    Raises:
        ProtocolError: the bytes are not a valid subscription.
    """
    found = decode_prefixed(ConsumerProtocolSubscription, data, exact=False)
    return Subscription(
        topics=tuple(found.topics),
        owned=tuple(
            TopicPartition(owned.topic, number)
            for owned in found.owned_partitions
            for number in owned.partitions
        ),
        generation=found.generation_id,
        rack=found.rack_id,
        group_instance_id=group_instance_id,
        user_data=None if found.user_data is None else bytes(found.user_data),
    )


def version_of(data: bytes) -> int:
    """Return the version of an encoded subscription, at most `ASSIGNMENT_VERSION`.

    Raises:
        ProtocolError: the bytes do not begin with a version, or the version is negative.
    """
    if len(data) < 2 or (version := int.from_bytes(data[:2], "big", signed=True)) < 0:
        raise ProtocolError("no version before the schema", api="ConsumerProtocol", offset=0)
    return min(version, ASSIGNMENT_VERSION)


def encode_assignment(assignment: Assignment, version: int = ASSIGNMENT_VERSION) -> bytes:
    """Return one member's assignment for SyncGroup."""
    return encode_prefixed(
        ConsumerProtocolAssignment(
            assigned_partitions=[
                ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=numbers)
                for topic, numbers in _by_topic(assignment.partitions)
            ],
            user_data=assignment.user_data,
        ),
        version,
    )


def decode_assignment(data: bytes) -> Assignment:
    """Return a decoded assignment; empty bytes are an empty assignment, as in Java.

    Raises:
        ProtocolError: the bytes are not a valid assignment.
    """
    if not data:
        return Assignment(())
    found = decode_prefixed(ConsumerProtocolAssignment, data, exact=False)
    return Assignment(
        partitions=tuple(
            TopicPartition(assigned.topic, number)
            for assigned in found.assigned_partitions
            for number in assigned.partitions
        ),
        user_data=None if found.user_data is None else bytes(found.user_data),
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        topics[topic].append(number)
    return sorted(topics.items())
