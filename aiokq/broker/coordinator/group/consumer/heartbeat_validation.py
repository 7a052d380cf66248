"""Validation of ConsumerGroupHeartbeat requests, before any group is looked up.

Source: Kafka ``GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid`` (4.2).
"""

from __future__ import annotations

from collections.abc import Collection

from aiokq.assign.server import SERVER_ASSIGNORS
from aiokq.broker.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
)
from aiokq.core.errors import InvalidRequest, UnsupportedAssignor
from aiokq.wire.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

__all__ = ["check_heartbeat"]

CLIENT_MADE_MEMBER_ID_SINCE = 1
"""The first version in which the client generates its member id (KIP-1082)."""


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest,
    version: int,
    assignors: Collection[str] = SERVER_ASSIGNORS,
) -> None:
    """Refuse an invalid request, with Kafka's messages.

    Raises:
        InvalidRequest: a field is missing, blank, or not permitted in this request.
        UnsupportedAssignor: the request names an assignor that the broker does not have.
    """
    epoch = request.member_epoch
    if version >= CLIENT_MADE_MEMBER_ID_SINCE or epoch > 0 or epoch == LEAVE_EPOCH:
        _not_blank(request.member_id, "MemberId can't be empty.")
    _not_blank(request.group_id, "GroupId can't be empty.")
    _not_blank(request.instance_id, "InstanceId can't be empty.")
    _not_blank(request.rack_id, "RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
        # An empty list of names or an empty expression is valid: the member subscribes to nothing.
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise InvalidRequest(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    elif epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            raise InvalidRequest("InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise InvalidRequest("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise UnsupportedAssignor(
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(assignors)}."
        )


def _not_blank(value: str | None, message: str) -> None:
    if value is not None and not value.strip():
        raise InvalidRequest(message)
