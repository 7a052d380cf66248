"""Checks of the number and the placement of a topic's partitions and replicas.

Source: Kafka ``ReplicationControlManager.createTopic``, ``createPartitions``.
Tests: ``tests/unit/broker/metadata/controller/test_topic_layout.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from aiokq.core.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    PolicyViolation,
)
from aiokq.core.frozen import frozen
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    import uuid

    from aiokq.broker.config.settings import BrokerSettings

__all__ = ["CreatedTopic", "TopicLayouts", "TopicSpec", "check_replicas"]

MAX_PARTITIONS: Final = 10_000
"""Maximum number of partitions that one request can create in a topic.

Kafka applies this limit to the sum over all topics of a request.
"""


class TopicSpec(NamedTuple):
    """A topic to create. A field that is None leaves the choice to the broker."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str | None] = MappingProxyType({})


@frozen
class CreatedTopic:
    """A topic that was created, or would be created by a validated request.

    Attributes:
        topic_id: the id of the topic; zero for a request that was only validated.
        configs: the topic's own settings.
    """

    name: str
    topic_id: uuid.UUID
    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]


class TopicLayouts:
    """Checks the layouts of topics in a cluster of one node, which has all replicas."""

    def __init__(self, settings: BrokerSettings, node_id: int) -> None:
        self._settings = settings
        self._node_id = node_id

    def of(self, spec: TopicSpec) -> tuple[int, int]:
        """Return the numbers of partitions and replicas of a topic to create.

        Raises:
            BrokerError: InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment,
                PolicyViolation.
        """
        if spec.assignments is not None:
            for brokers in spec.assignments.values():
                check_replicas(brokers, self._node_id)
            if sorted(spec.assignments) != list(range(len(spec.assignments))):
                raise InvalidReplicaAssignment(
                    "partitions should be a consecutive 0-based integer sequence"
                )
            count, factor = len(spec.assignments), 1
        else:
            count = self._settings.num_partitions if spec.partitions is None else spec.partitions
            factor = (
                self._settings.default_replication_factor
                if spec.replication_factor is None
                else spec.replication_factor
            )
        if factor < 1:
            raise InvalidReplicationFactor(
                "Replication factor must be larger than 0, or -1 to use the default value."
            )
        if count < 1:
            raise InvalidPartitions(
                "Number of partitions was set to an invalid non-positive value."
            )
        if count > MAX_PARTITIONS:
            raise PolicyViolation(f"at most {MAX_PARTITIONS} partitions per request, not {count}")
        if factor > 1:
            raise InvalidReplicationFactor(
                f"Unable to replicate the partition {factor} time(s): The target replication "
                f"factor of {factor} cannot be reached because only 1 broker(s) are registered."
            )
        return count, factor

    def check_growth(
        self, name: str, present: int, count: int, assignments: Sequence[Sequence[int]] | None
    ) -> None:
        """Check that a topic with ``present`` partitions may grow to ``count``.

        Args:
            assignments: the replicas of each new partition; None lets the node choose.

        Raises:
            BrokerError: InvalidPartitions, InvalidReplicaAssignment, PolicyViolation.
        """
        if count == present:
            raise InvalidPartitions(f"Topic already has {present} partition(s).")
        if count < present:
            raise InvalidPartitions(
                f"The topic {name} currently has {present} partition(s); {count} would not be an "
                "increase."
            )
        if count - present > MAX_PARTITIONS:
            raise PolicyViolation(f"at most {MAX_PARTITIONS} partitions per request")
        if assignments is not None:
            if len(assignments) != count - present:
                raise InvalidReplicaAssignment(
                    f"Attempted to add {count - present} additional partition(s), but only "
                    f"{len(assignments)} assignment(s) were specified."
                )
            for brokers in assignments:
                check_replicas(brokers, self._node_id)


def check_replicas(brokers: Sequence[int], node_id: int) -> None:
    """Check that this node is the only replica of a partition.

    Raises:
        InvalidReplicaAssignment: the list is empty, names another node, or names this node twice.
    """
    if not brokers:
        raise InvalidReplicaAssignment(
            "The manual partition assignment includes an empty replica list."
        )
    previous: int | None = None
    for broker in sorted(brokers):
        if broker != node_id:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes broker {broker}, but no such broker is "
                "registered."
            )
        if broker == previous:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes the broker {broker} more than once."
            )
        previous = broker
