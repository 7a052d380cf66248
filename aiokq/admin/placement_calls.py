"""PlacementCalls: Admin's methods on who leads partitions and which brokers have them."""

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
    """What an `Admin` does with the leaders and the replicas of partitions.

    The controller is asked. What is said in `Admin` about results, ``timeout`` and errors holds
    here.
    """

    @abstractmethod
    def _check(self, timeout: float | None) -> ClusterEngine:
        """The engine, if this may be used here and now."""

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
            partitions: None for all of the cluster. The answer then has those only for which there
                was something to elect.
            election_type: "preferred" makes the first replica lead, if it is in sync; "unclean"
                makes any live replica lead a partition that has no leader, and loses the records
                that it lacks (Kafka 2.4).

        Returns:
            By partition; the error is ElectionNotNeeded, PreferredLeaderNotAvailable,
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
        """Put partitions on other brokers (Kafka 2.4).

        The records are copied after this returns: `list_partition_reassignments` has what is under
        way.

        Args:
            reassignments: by partition the ids of its brokers afterwards, the preferred leader
                first; None cancels what is under way.
            allow_replication_factor_change: False refuses a number of replicas other than the
                present one (Kafka 4.1).

        Returns:
            By partition; the error is InvalidReplicaAssignment, NoReassignmentInProgress,
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
        """Partitions that are on their way to other brokers (Kafka 2.4).

        Args:
            partitions: to ask about; None for all of the cluster.
        """
        wanted = None
        if partitions is not None:
            given = list_argument(partitions, "partitions", "[('orders', 0)]")
            wanted = [TopicPartition.of(tp) for tp in given]
        return await placement.list_partition_reassignments(
            self._check(timeout), wanted, timeout=timeout
        )
