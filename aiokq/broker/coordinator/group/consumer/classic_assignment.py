"""Conversion of classic members' partitions between topic ids and topic names.

Source: Kafka ``GroupMetadataManager.java``, ``ConsumerProtocol.java`` (4.2).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokq.assign.model import Assignment
from aiokq.assign.protocol import encode_assignment, version_of
from aiokq.broker.coordinator.group.consumer.records import sorted_partitions
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from aiokq.assign.server_model import Partitions
    from aiokq.broker.coordinator.group.topic_view import TopicView

__all__ = ["assignment_bytes", "partitions_by_id"]


def partitions_by_id(partitions: Iterable[TopicPartition], topics: TopicView) -> Partitions:
    """Return partitions by topic id, without the partitions of topics that no longer exist."""
    found: dict[uuid.UUID, frozenset[int]] = {}
    for name, number in partitions:
        topic = topics.topic(name)
        if topic is not None:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | {number}
    return found


def assignment_bytes(partitions: Partitions, topics: TopicView, subscription: bytes) -> bytes:
    """Return an encoded `ConsumerProtocolAssignment`, in the version of the member's subscription.

    Topics that no longer exist are left out.

    Raises:
        ProtocolError: `subscription` is not a valid subscription.
    """
    named = []
    for topic_id, numbers in sorted_partitions(partitions):
        topic = topics.by_id(topic_id)
        if topic is not None:
            named += [TopicPartition(topic.name, number) for number in numbers]
    return encode_assignment(Assignment(tuple(named)), version_of(subscription))
