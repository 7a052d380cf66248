"""The description of one group for ConsumerGroupDescribe.

Source: Kafka ``ConsumerGroup.asDescribedGroup`` (4.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiokq.assign.server_model import Partitions
from aiokq.broker.coordinator.group.consumer.image import GroupImage
from aiokq.broker.coordinator.group.consumer.records import sorted_partitions
from aiokq.broker.coordinator.group.consumer.target_assignment import preferred_assignor
from aiokq.broker.coordinator.group.topic_view import TopicView
from aiokq.wire.consumer_group_describe import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribedGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeTopicPartitions,
)

__all__ = ["describe_group"]

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1
"""The type of a member that uses the consumer protocol (KIP-1099); other members have the type
`CLASSIC_MEMBER`.
"""


def describe_group(
    image: GroupImage, topics: TopicView, assignors: Mapping[str, object]
) -> ConsumerGroupDescribedGroup:
    """Return state, epochs and members, without partitions of topics that no longer exist."""
    return ConsumerGroupDescribedGroup(
        group_id=image.group_id,
        group_state=image.state_name,
        group_epoch=image.epoch,
        assignment_epoch=image.assignment_epoch,
        assignor_name=preferred_assignor(image.members.values(), assignors),
        members=[
            ConsumerGroupDescribeMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                member_epoch=member.member_epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.topic_names),
                subscribed_topic_regex=member.topic_regex,
                assignment=_assignment(member.assigned, topics),
                target_assignment=_assignment(image.target(member.member_id), topics),
                member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
            )
            for member in image.members.values()
        ],
    )


def _assignment(partitions: Partitions, topics: TopicView) -> ConsumerGroupDescribeAssignment:
    shown = []
    for topic_id, numbers in sorted_partitions(partitions):
        topic = topics.by_id(topic_id)
        if topic is not None:
            shown.append(
                ConsumerGroupDescribeTopicPartitions(
                    topic_id=topic_id, topic_name=topic.name, partitions=numbers
                )
            )
    return ConsumerGroupDescribeAssignment(topic_partitions=shown)
