"""Functions that the handlers of groups share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.coordinator.group.group import Caller
from aiokq.broker.metadata.image.features import GROUP_VERSION
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import InvalidGroupId, UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiokq.broker.handlers.areas import Quorum
    from aiokq.broker.handlers.call import Call

__all__ = ["check_consumer_groups", "check_group_id", "subscriber_of"]


def subscriber_of(call: Call) -> Caller:
    """Return the sender of a request as a `Caller` with a `describable` function.

    The function selects the topics that the sender may describe. A regular expression subscribes
    only to these topics.
    """

    def describable(topics: frozenset[str]) -> Collection[str]:
        return call.permitted(Operation.DESCRIBE, ResourceType.TOPIC, topics)

    return Caller(call.client_id or "", f"/{call.connection.peer_host}", call.version, describable)


def check_group_id(group_id: str) -> None:
    """Check that a group id is not empty.

    OffsetCommit and OffsetFetch accept an empty group id, as in Kafka.

    Raises:
        InvalidGroupId: the id is empty.
    """
    if not group_id:
        raise InvalidGroupId("the group id is empty")


def check_consumer_groups(quorum: Quorum) -> None:
    """Check that the consumer protocol (KIP-848) is enabled in the cluster.

    Raises:
        UnsupportedVersion: the feature ``group.version`` is off.
    """
    if GROUP_VERSION not in quorum.features().levels:
        raise UnsupportedVersion()
