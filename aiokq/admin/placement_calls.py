"""PlacementCalls: the methods of Admin on leaders and replicas of partitions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from aiokq.admin import placement
from aiokq.admin.placement import (
    ElectionType,
    LeaderElected,
    PartitionReassigned,
    Reassignment,
)
from aiokq.admin.results import Results
from aiokq.cluster.engine import ClusterEngine
from aiokq.core.arguments import list_argument, mapping_argument
from aiokq.core.types import TopicPartition

__all__ = ["PlacementCalls"]

P = TypeVar("P", bound=tuple[str, int])


class PlacementCalls(ABC):
    """Methods of `Admin` on leaders and replicas of partitions; requests go to the controller.

    Results, ``timeout`` and errors are as described in `Admin`.
    """

    @abstractmethod
    def _check(self, timeout: float | None) -> ClusterEngine:
        """Return the engine; raise Closed or WrongLoop if the object cannot be used."""

    async def elect_leaders(
        self,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        election_type: ElectionType = "preferred",
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[TopicPartition, LeaderElected]:
        """Elect leaders of partitions.

        Args:
            partitions: partitions; None for all partitions of the cluster, in which case the
                results omit partitions that needed no election.
            election_type: "preferred" elects the first replica if it is in sync; "unclean" elects
                any live replica of a partition without a leader, and loses the records that this
                replica lacks (Kafka 2.4).

        Returns:
            Results by partition; errors are ElectionNotNeeded, PreferredLeaderNotAvailable,
            EligibleLeadersNotAvailable, UnknownTopicOrPartition ...
        """
        wanted = None
        if partitions is not None:
            given = list_argument(partitions, "partitions", "[('orders', 0)]")
            wanted = [TopicPartition.of(tp) for tp in given]
        results = await placement.elect_leaders(
            self._check(timeout), wanted, election_type=election_type, timeout=timeout
        )
        return results.raise_for_errors() if raise_errors else results

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[P, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[TopicPartition, PartitionReassigned]:
        """Move partitions to other brokers (Kafka 2.4).

        Records are copied after the call returns. `list_partition_reassignments` shows the
        reassignments in progress.

        Args:
            reassignments: the new replicas of each partition as broker ids, preferred leader first;
                None cancels a reassignment in progress.
            allow_replication_factor_change: False refuses a different number of replicas
                (Kafka 4.1).

        Returns:
            Results by partition; errors are InvalidReplicaAssignment, NoReassignmentInProgress,
            InvalidReplicationFactor, UnknownTopicOrPartition ...
        """
        given = mapping_argument(reassignments, "reassignments", "{('orders', 0): [1, 2]}")
        results = await placement.alter_partition_reassignments(
            self._check(timeout),
            {TopicPartition.of(tp): brokers for tp, brokers in given.items()},
            allow_replication_factor_change=allow_replication_factor_change,
            timeout=timeout,
        )
        return results.raise_for_errors() if raise_errors else results

    async def list_partition_reassignments(
        self,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, Reassignment]:
        """Return the reassignments in progress (Kafka 2.4).

        Args:
            partitions: partitions to ask about; None for all partitions of the cluster.
        """
        wanted = None
        if partitions is not None:
            given = list_argument(partitions, "partitions", "[('orders', 0)]")
            wanted = [TopicPartition.of(tp) for tp in given]
        return await placement.list_partition_reassignments(
            self._check(timeout), wanted, timeout=timeout
        )
