"""Implements the calls of the admin client that elect leaders and reassign partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from aiokq.admin.results import Results, results_of
from aiokq.admin.retrying import per_item, repeated, timeout_ms
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.targets import CONTROLLER
from aiokq.core import limits
from aiokq.core.arguments import list_argument
from aiokq.core.errors import (
    ConfigError,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    KafkaError,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
    error_for,
    raise_for,
)
from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition
from aiokq.wire.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from aiokq.wire.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicPartitions,
)
from aiokq.wire.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

__all__ = [
    "ElectionType",
    "LeaderElected",
    "PartitionReassigned",
    "Reassignment",
    "alter_partition_reassignments",
    "elect_leaders",
    "list_partition_reassignments",
]

ElectionType: TypeAlias = Literal["preferred", "unclean"]

_KINDS: Final[Mapping[str, int]] = {"preferred": 0, "unclean": 1}

_ANSWERS: Final = (
    UnknownTopicOrPartition,
    ElectionNotNeeded,
    PreferredLeaderNotAvailable,
    EligibleLeadersNotAvailable,
)
"""Final outcomes of an election, although Kafka marks their codes as retriable."""


@frozen
class LeaderElected:
    """The result of one partition's election.

    Attributes:
        error: ElectionNotNeeded if the partition needed no election.
    """

    partition: TopicPartition
    error: KafkaError | None = None


@frozen
class PartitionReassigned:
    """The result for one partition whose reassignment was started or cancelled."""

    partition: TopicPartition
    error: KafkaError | None = None


@frozen
class Reassignment:
    """A reassignment in progress.

    Attributes:
        replicas: current replicas, including replicas that are being added or removed.
    """

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


async def elect_leaders(
    engine: ClusterEngine,
    partitions: Iterable[TopicPartition] | None,
    *,
    election_type: ElectionType,
    timeout: float | None,
) -> Results[TopicPartition, LeaderElected]:
    """Implement `Admin.elect_leaders`."""
    kind = _KINDS.get(election_type) if isinstance(election_type, str) else None
    if kind is None:
        raise ConfigError(
            f"election_type must be one of {', '.join(_KINDS)}, not {election_type!r}"
        )

    async def ask(
        wanted: Iterable[TopicPartition] | None, remaining: float
    ) -> dict[TopicPartition, LeaderElected | KafkaError]:
        request = ElectLeadersRequest(
            election_type=kind,
            topic_partitions=None
            if wanted is None
            else [
                ElectLeadersTopicPartitions(topic=topic, partitions=indexes)
                for topic, indexes in _by_topic(wanted).items()
            ],
            timeout_ms=timeout_ms(engine, remaining),
        )
        response = await engine.request(request, node=CONTROLLER, timeout=remaining)
        raise_for(response.error_code, api="ElectLeaders")
        return _elected(response)

    if partitions is None:
        found = await repeated(
            engine, lambda remaining: ask(None, remaining), api="ElectLeaders", timeout=timeout
        )
    else:
        items = dict.fromkeys(partitions)
        found = await per_item(
            engine, items, ask, api="ElectLeaders", timeout=timeout, final=_ANSWERS
        )
    return results_of(found, LeaderElected)


def _elected(
    response: ElectLeadersResponse,
) -> dict[TopicPartition, LeaderElected | KafkaError]:
    found: dict[TopicPartition, LeaderElected | KafkaError] = {}
    for topic in response.replica_election_results:
        for answer in topic.partition_result:
            tp = TopicPartition(topic.topic, answer.partition_id)
            error = _error(answer.error_code, answer.error_message, "ElectLeaders", tp)
            found[tp] = error or LeaderElected(tp)
    return found


async def alter_partition_reassignments(
    engine: ClusterEngine,
    reassignments: Mapping[TopicPartition, Sequence[int] | None],
    *,
    allow_replication_factor_change: bool,
    timeout: float | None,
) -> Results[TopicPartition, PartitionReassigned]:
    """Implement `Admin.alter_partition_reassignments`."""
    wanted = {
        tp: None
        if brokers is None
        else [
            limits.count(node, "reassignments", 0)
            for node in list_argument(brokers, f"reassignments of {tp}", "[1, 2]")
        ]
        for tp, brokers in reassignments.items()
    }

    async def attempt(
        left: Mapping[TopicPartition, list[int] | None], remaining: float
    ) -> dict[TopicPartition, PartitionReassigned | KafkaError]:
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=timeout_ms(engine, remaining),
            allow_replication_factor_change=allow_replication_factor_change,
            topics=[
                ReassignableTopic(
                    name=topic,
                    partitions=[
                        ReassignablePartition(
                            partition_index=index, replicas=_ids(left, topic, index)
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in _by_topic(left).items()
            ],
        )
        response = await engine.request(request, node=CONTROLLER, timeout=remaining)
        raise_for(response.error_code, response.error_message, api="AlterPartitionReassignments")
        found: dict[TopicPartition, PartitionReassigned | KafkaError] = {}
        for topic in response.responses:
            for answer in topic.partitions:
                tp = TopicPartition(topic.name, answer.partition_index)
                error = _error(
                    answer.error_code, answer.error_message, "AlterPartitionReassignments", tp
                )
                found[tp] = error or PartitionReassigned(tp)
        return found

    outcomes = await per_item(
        engine, wanted, attempt, api="AlterPartitionReassignments", timeout=timeout
    )
    return results_of(outcomes, PartitionReassigned)


async def list_partition_reassignments(
    engine: ClusterEngine,
    partitions: Iterable[TopicPartition] | None,
    *,
    timeout: float | None,
) -> dict[TopicPartition, Reassignment]:
    """Implement `Admin.list_partition_reassignments`."""
    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=topic, partition_indexes=indexes)
            for topic, indexes in _by_topic(partitions).items()
        ]

    async def ask(remaining: float) -> dict[TopicPartition, Reassignment]:
        request = ListPartitionReassignmentsRequest(
            timeout_ms=timeout_ms(engine, remaining), topics=topics
        )
        response = await engine.request(request, node=CONTROLLER, timeout=remaining)
        raise_for(response.error_code, response.error_message, api="ListPartitionReassignments")
        return {
            TopicPartition(topic.name, ongoing.partition_index): Reassignment(
                tuple(ongoing.replicas),
                tuple(ongoing.adding_replicas),
                tuple(ongoing.removing_replicas),
            )
            for topic in response.topics
            for ongoing in topic.partitions
        }

    return await repeated(engine, ask, api="ListPartitionReassignments", timeout=timeout)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for topic, index in dict.fromkeys(partitions):
        found[topic].append(index)
    return found


def _ids(
    wanted: Mapping[TopicPartition, list[int] | None], topic: str, index: int
) -> list[int] | None:
    return wanted[TopicPartition(topic, index)]


def _error(code: int, message: str | None, api: str, tp: TopicPartition) -> KafkaError | None:
    return error_for(code, message, api=api, topic_partition=tp) if code else None
