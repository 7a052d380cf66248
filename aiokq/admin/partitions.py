"""Implements `Admin.create_partitions`, which adds partitions to topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiokq.admin.results import Results, results_of
from aiokq.admin.retrying import per_item, timeout_ms
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.targets import CONTROLLER
from aiokq.core import limits
from aiokq.core.arguments import list_argument, str_argument
from aiokq.core.errors import KafkaError, error_for
from aiokq.core.frozen import frozen
from aiokq.wire.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)

__all__ = ["NewPartitions", "PartitionsCreated", "create_partitions"]


@frozen
class NewPartitions:
    """The number of partitions that a topic is to have.

    Args:
        total_count: total number of partitions, including existing partitions.
        assignments: brokers of each new partition, preferred leader first; chosen by the
            controller if not given.

    Raises:
        ValueError, TypeError: an argument is out of range, or not of the expected type.
    """

    total_count: int
    assignments: Sequence[Sequence[int]] | None = None

    def __post_init__(self) -> None:
        limits.count(self.total_count, "total_count")
        for nodes in list_argument(self.assignments or (), "assignments", "[[1, 2], [2, 3]]"):
            for node in list_argument(nodes, "assignments of a partition", "[1, 2]"):
                limits.count(node, "assignments", 0)


@frozen
class PartitionsCreated:
    """The result of adding partitions to one topic."""

    topic: str
    total_count: int
    error: KafkaError | None = None


async def create_partitions(
    engine: ClusterEngine,
    topics: Mapping[str, int | NewPartitions],
    *,
    validate_only: bool,
    timeout: float | None,
) -> Results[str, PartitionsCreated]:
    """Implement `Admin.create_partitions`."""
    wanted = {
        str_argument(name, "topic_partitions"): value
        if isinstance(value, NewPartitions)
        else NewPartitions(value)
        for name, value in topics.items()
    }

    async def attempt(
        left: Mapping[str, NewPartitions], remaining: float
    ) -> dict[str, PartitionsCreated | KafkaError]:
        request = CreatePartitionsRequest(
            topics=[_wire(name, new) for name, new in left.items()],
            timeout_ms=timeout_ms(engine, remaining),
            validate_only=validate_only,
        )
        response = await engine.request(request, node=CONTROLLER, timeout=remaining)
        return {
            answer.name: error_for(
                answer.error_code,
                answer.error_message,
                api="CreatePartitions",
                topic_partition=answer.name,
            )
            if answer.error_code
            else PartitionsCreated(answer.name, wanted[answer.name].total_count)
            for answer in response.results
            if answer.name in wanted
        }

    outcomes = await per_item(engine, wanted, attempt, api="CreatePartitions", timeout=timeout)
    return results_of(
        outcomes, lambda name, error: PartitionsCreated(name, wanted[name].total_count, error)
    )


def _wire(name: str, new: NewPartitions) -> CreatePartitionsTopic:
    assignments = None
    if new.assignments is not None:
        assignments = [CreatePartitionsAssignment(broker_ids=list(ids)) for ids in new.assignments]
    return CreatePartitionsTopic(name=name, count=new.total_count, assignments=assignments)
