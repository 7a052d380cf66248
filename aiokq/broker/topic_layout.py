"""Owns what a topic may be made of: how many partitions and replicas somebody asks for, and where.

Checks only; makes nothing, and knows neither the registry nor a disk.

Source: Kafka ``ReplicationControlManager.createTopic``, ``createPartitions``.
Tests: ``tests/unit/broker/test_topic_layout.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokq.core.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    PolicyViolation,
)

if TYPE_CHECKING:
    import uuid

    from aiokq.broker.settings import BrokerSettings

__all__ = ["CreatedTopic", "TopicLayouts", "TopicSpec"]

MAX_PARTITIONS: Final = 10_000
"""Most partitions that one request makes, as in Kafka: more is refused with 44."""


class TopicSpec(NamedTuple):
    """What somebody wants to be created; None takes the broker's default."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str | None] = MappingProxyType({})


class CreatedTopic(NamedTuple):
    """What was created, or would have been."""

    name: str
    topic_id: uuid.UUID
    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]


class TopicLayouts:
    """The layouts that topics of one node can have: all replicas are its own."""

    def __init__(self, settings: BrokerSettings, node_id: int) -> None:
        self._settings = settings
        self._node_id = node_id

    def of(self, spec: TopicSpec) -> tuple[int, int]:
        """The counts of partitions and replicas that a spec means.

        Raises:
            BrokerError: InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment,
                PolicyViolation.
        """
        if spec.assignments is not None:
            if sorted(spec.assignments) != list(range(len(spec.assignments))):
                raise InvalidReplicaAssignment("assigned partitions must be numbered from 0 on")
            count = len(spec.assignments)
            factor = self._check_assignments(list(spec.assignments.values()))
        else:
            count = self._settings.num_partitions if spec.partitions is None else spec.partitions
            factor = (
                self._settings.default_replication_factor
                if spec.replication_factor is None
                else spec.replication_factor
            )
        if count < 1:
            raise InvalidPartitions(f"a topic has at least one partition, not {count}")
        if count > MAX_PARTITIONS:
            raise PolicyViolation(f"at most {MAX_PARTITIONS} partitions per request, not {count}")
        if factor < 1:
            raise InvalidReplicationFactor(f"a partition has at least one replica, not {factor}")
        if factor > 1:
            raise InvalidReplicationFactor(
                f"replication factor {factor} needs {factor} live brokers, there is 1"
            )
        return count, factor

    def check_growth(
        self, name: str, present: int, count: int, assignments: Sequence[Sequence[int]] | None
    ) -> None:
        """Whether a topic of ``present`` partitions may have ``count``.

        Args:
            assignments: the brokers of each new one; None leaves that to the node.

        Raises:
            BrokerError: InvalidPartitions, InvalidReplicaAssignment, PolicyViolation.
        """
        if count == present:
            raise InvalidPartitions(f"{name} has {present} partitions already")
        if count < present:
            raise InvalidPartitions(
                f"{name} has {present} partitions: they can only become more, not {count}"
            )
        if count - present > MAX_PARTITIONS:
            raise PolicyViolation(f"at most {MAX_PARTITIONS} partitions per request")
        if assignments is not None:
            if len(assignments) != count - present:
                raise InvalidReplicaAssignment(
                    f"{len(assignments)} assignments for {count - present} new partitions"
                )
            self._check_assignments(assignments)

    def _check_assignments(self, assignments: Sequence[Sequence[int]]) -> int:
        """Each partition has distinct live replicas, all the same number of them: that number."""
        for brokers in assignments:
            if not brokers or len(set(brokers)) != len(brokers):
                raise InvalidReplicaAssignment(
                    f"replicas {list(brokers)} are none, or not distinct"
                )
            if len(brokers) != len(assignments[0]):
                raise InvalidReplicaAssignment("every partition must have as many replicas")
            unknown = [broker for broker in brokers if broker != self._node_id]
            if unknown:
                raise InvalidReplicaAssignment(f"there is no live broker {unknown[0]}")
        return len(assignments[0]) if assignments else 1
