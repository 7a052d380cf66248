"""Creating, deleting, listing and describing topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Final
from uuid import UUID

from aiokq.admin.results import Results, results_of
from aiokq.admin.retrying import per_item, repeated, timeout_ms
from aiokq.cluster.denials import name_denial
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.metadata import ZERO_ID, TopicInfo, frozen_map
from aiokq.cluster.metadata_messages import metadata_received, metadata_request
from aiokq.cluster.reducer_inputs import MetadataReceived
from aiokq.cluster.targets import ANY, CONTROLLER
from aiokq.core import limits
from aiokq.core.arguments import list_argument, mapping_argument, str_argument
from aiokq.core.config_text import config_text
from aiokq.core.errors import (
    ConfigError,
    KafkaError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    error_for,
)
from aiokq.core.frozen import frozen
from aiokq.wire.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from aiokq.wire.delete_topics import DeleteTopicsRequest, DeleteTopicState
from aiokq.wire.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsTopicRequest,
)
from aiokq.wire.metadata import MetadataRequest

__all__ = [
    "NewTopic",
    "PartitionDescription",
    "TopicCreated",
    "TopicDeleted",
    "TopicDescription",
    "TopicListing",
    "create_topics",
    "delete_topics",
    "describe_topics",
    "list_topics",
]

DEFAULTS_SINCE = 4
"""First CreateTopics version in which -1 stands for the broker's defaults (KIP-464)."""

IDS_SINCE = 6
"""First DeleteTopics version with topic ids."""

PAGE = 2000
"""Partitions per page of a description: Kafka's default max.request.partition.size.limit."""


BROKERS_DEFAULT: Final = -1


@frozen
class NewTopic:
    """A topic to create.

    Args:
        name: name of the topic.
        num_partitions: number of partitions; -1 for the broker's ``num.partitions``.
        replication_factor: replicas of each partition; -1 for the broker's
            ``default.replication.factor``.
        assignments: the brokers of each partition, preferred leader first; excludes
            `num_partitions` and `replication_factor`.
        configs: topic configs by Kafka's names (``retention.ms``).

    Raises:
        ValueError, TypeError: an argument is out of range, or not of the expected type.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str | int | float | bool | None] | None = None

    def __post_init__(self) -> None:
        if self.num_partitions != BROKERS_DEFAULT:
            limits.count(self.num_partitions, "num_partitions")
        if self.replication_factor != BROKERS_DEFAULT:
            limits.whole(self.replication_factor, "replication_factor", 1, limits.INT16_MAX)
        assignments = mapping_argument(self.assignments or {}, "assignments", "{0: [1, 2]}")
        for partition, nodes in assignments.items():
            limits.partition(partition, "partition of assignments")
            for node in list_argument(nodes, f"assignments of {partition}", "[1, 2]"):
                limits.count(node, "node of assignments", 0)
        configs = mapping_argument(self.configs or {}, "configs", "{'cleanup.policy': 'compact'}")
        for key, value in configs.items():
            str_argument(key, "configs")
            config_text(value)


@frozen
class TopicCreated:
    """The result of creating one topic. A number is -1 if the broker did not return it."""

    name: str
    topic_id: UUID = ZERO_ID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = field(default_factory=frozen_map)
    error: KafkaError | None = None


@frozen
class TopicDeleted:
    """The result of deleting one topic."""

    name: str
    topic_id: UUID = ZERO_ID
    error: KafkaError | None = None


@frozen
class TopicListing:
    """A topic in a listing."""

    name: str
    topic_id: UUID
    internal: bool
    partitions: int


@frozen
class PartitionDescription:
    """A partition with the node ids of its leader (-1 for none) and replicas.

    ``eligible_leaders`` are replicas outside the ISR that may lead without data loss (KIP-966);
    empty if the broker does not return them.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    eligible_leaders: tuple[int, ...] = ()


@frozen
class TopicDescription:
    """A topic with its partitions, in order."""

    name: str
    topic_id: UUID = ZERO_ID
    internal: bool = False
    partitions: tuple[PartitionDescription, ...] = ()
    error: KafkaError | None = None


async def create_topics(
    engine: ClusterEngine,
    topics: Iterable[NewTopic],
    *,
    validate_only: bool,
    timeout: float | None,
) -> Results[str, TopicCreated]:
    """Implement `Admin.create_topics`."""
    wanted = _by_name(topics)

    async def attempt(
        left: Mapping[str, NewTopic], remaining: float
    ) -> dict[str, TopicCreated | KafkaError]:
        def request(version: int) -> CreateTopicsRequest:
            if version < DEFAULTS_SINCE and any(_uses_defaults(topic) for topic in left.values()):
                raise UnsupportedVersion(
                    "the broker is older than 2.4: set num_partitions and replication_factor",
                    api="CreateTopics",
                )
            return CreateTopicsRequest(
                topics=[_creatable(topic) for topic in left.values()],
                timeout_ms=timeout_ms(engine, remaining),
                validate_only=validate_only,
            )

        response = await engine.router.request(
            request, CreateTopicsRequest, CONTROLLER, timeout=remaining
        )
        return {topic.name: _created(topic) for topic in response.topics}

    outcomes = await per_item(engine, wanted, attempt, api="CreateTopics", timeout=timeout)
    return results_of(outcomes, lambda name, error: TopicCreated(name, error=error))


def _by_name(topics: Iterable[NewTopic]) -> dict[str, NewTopic]:
    wanted: dict[str, NewTopic] = {}
    for topic in topics:
        if not isinstance(topic, NewTopic) or not isinstance(topic.name, str):
            raise TypeError(f"a new topic must be a name or a NewTopic, not {topic!r}")
        if topic.name in wanted:
            raise ConfigError(f"topic {topic.name!r} is given twice")
        if topic.assignments is not None and (
            topic.num_partitions != -1 or topic.replication_factor != -1
        ):
            raise ConfigError(
                f"topic {topic.name!r}: assignments set the number of partitions and replicas; "
                "omit num_partitions and replication_factor"
            )
        wanted[topic.name] = topic
    return wanted


def _uses_defaults(topic: NewTopic) -> bool:
    return topic.assignments is None and -1 in (topic.num_partitions, topic.replication_factor)


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in (topic.assignments or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=config_text(value))
            for name, value in (topic.configs or {}).items()
        ],
    )


def _created(topic: CreatableTopicResult) -> TopicCreated | KafkaError:
    if topic.error_code:
        return error_for(
            topic.error_code, topic.error_message, api="CreateTopics", topic_partition=topic.name
        )
    return TopicCreated(
        topic.name,
        topic.topic_id,
        topic.num_partitions,
        topic.replication_factor,
        frozen_map((config.name, config.value) for config in topic.configs or []),
    )


async def delete_topics(
    engine: ClusterEngine, topics: Sequence[str | UUID], *, timeout: float | None
) -> Results[str | UUID, TopicDeleted]:
    """Implement `Admin.delete_topics`."""
    for topic in topics:
        if not isinstance(topic, str | UUID):
            raise TypeError(f"topics must be names (str) or topic ids (UUID), not {topic!r}")
    wanted = dict.fromkeys(topics, True)
    by_id = any(isinstance(topic, UUID) for topic in wanted)

    async def attempt(
        left: Mapping[str | UUID, bool], remaining: float
    ) -> dict[str | UUID, TopicDeleted | KafkaError]:
        def request(version: int) -> DeleteTopicsRequest:
            if by_id and version < IDS_SINCE:
                raise UnsupportedVersion(
                    "the broker is older than 2.8: delete topics by name", api="DeleteTopics"
                )
            if version < IDS_SINCE:
                return DeleteTopicsRequest(
                    topic_names=[str(topic) for topic in left],
                    timeout_ms=timeout_ms(engine, remaining),
                )
            return DeleteTopicsRequest(
                topics=[
                    DeleteTopicState(topic_id=topic)
                    if isinstance(topic, UUID)
                    else DeleteTopicState(name=topic)
                    for topic in left
                ],
                timeout_ms=timeout_ms(engine, remaining),
            )

        response = await engine.router.request(
            request, DeleteTopicsRequest, CONTROLLER, timeout=remaining
        )
        outcomes: dict[str | UUID, TopicDeleted | KafkaError] = {}
        for answer in response.responses:
            # The id is checked first, because an answer about an id may also have the name.
            item = answer.topic_id if answer.topic_id in left else (answer.name or "")
            if answer.error_code:
                outcomes[item] = error_for(
                    answer.error_code,
                    answer.error_message,
                    api="DeleteTopics",
                    topic_partition=str(item),
                )
            else:
                outcomes[item] = TopicDeleted(answer.name or "", answer.topic_id)
        return outcomes

    outcomes = await per_item(engine, wanted, attempt, api="DeleteTopics", timeout=timeout)
    results = {}
    for item, outcome in outcomes.items():
        if isinstance(outcome, KafkaError):
            outcome = (
                TopicDeleted("", item, outcome)
                if isinstance(item, UUID)
                else TopicDeleted(item, error=outcome)
            )
        results[item] = outcome
    return Results(results)


async def list_topics(
    engine: ClusterEngine, *, internal: bool, timeout: float | None
) -> dict[str, TopicListing]:
    """Implement `Admin.list_topics`."""
    received = await repeated(
        engine, partial(_metadata, engine, None), api="Metadata", timeout=timeout
    )
    return {
        topic.name: TopicListing(topic.name, topic.topic_id, topic.internal, len(topic.partitions))
        for topic in sorted(received.topics, key=lambda topic: topic.name)
        if internal or not topic.internal
    }


async def describe_topics(
    engine: ClusterEngine, topics: Iterable[str] | None, *, timeout: float | None
) -> Results[str, TopicDescription]:
    """Implement `Admin.describe_topics`."""
    names = None if topics is None else frozenset(topics)
    if names is not None and not names:
        return Results({})

    async def ask(remaining: float) -> dict[str, TopicDescription]:
        deadline = engine.now() + remaining
        try:
            return await _describe_in_pages(engine, names, deadline)
        except UnsupportedVersion:
            received = await _metadata(engine, names, deadline - engine.now())
            return {topic.name: _described(topic) for topic in received.topics}

    described = await repeated(engine, ask, api="DescribeTopicPartitions", timeout=timeout)
    for each in described.values():
        if each.error is not None:
            name_denial(engine, each.error)
    order = sorted(described if names is None else names)
    return Results({name: described.get(name) or _left_out(name) for name in order})


def _left_out(name: str) -> TopicDescription:
    """Return a description whose error says that the response does not have the topic."""
    error = UnknownTopicOrPartition("the response does not have the topic", topic_partition=name)
    return TopicDescription(name, error=error)


async def _describe_in_pages(
    engine: ClusterEngine, names: frozenset[str] | None, deadline: float
) -> dict[str, TopicDescription]:
    # An empty list of topics means all topics.
    asked = [DescribeTopicPartitionsTopicRequest(name=name) for name in sorted(names or ())]
    described: dict[str, TopicDescription] = {}
    cursor: Cursor | None = None
    while True:
        response: DescribeTopicPartitionsResponse = await engine.request(
            DescribeTopicPartitionsRequest(
                topics=asked, response_partition_limit=PAGE, cursor=cursor
            ),
            node=ANY,
            timeout=deadline - engine.now(),
        )
        for topic in response.topics:
            name = topic.name or ""
            page = tuple(_described_partition(p) for p in topic.partitions)
            before = described.get(name)
            if before is not None and not topic.error_code:
                described[name] = replace(before, partitions=before.partitions + page)
                continue
            error = None
            if topic.error_code:
                error = error_for(
                    topic.error_code, api="DescribeTopicPartitions", topic_partition=name
                )
            described[name] = TopicDescription(name, topic.topic_id, topic.is_internal, page, error)
        cursor = response.next_cursor
        if cursor is None:
            return described


def _described_partition(p: DescribeTopicPartitionsResponsePartition) -> PartitionDescription:
    return PartitionDescription(
        p.partition_index,
        p.leader_id,
        p.leader_epoch,
        tuple(p.replica_nodes),
        tuple(p.isr_nodes),
        tuple(p.offline_replicas),
        tuple(p.eligible_leader_replicas or ()),
    )


def _described(topic: TopicInfo) -> TopicDescription:
    return TopicDescription(
        topic.name,
        topic.topic_id,
        topic.internal,
        tuple(
            PartitionDescription(
                p.partition, p.leader, p.leader_epoch, p.replicas, p.isr, p.offline
            )
            for p in topic.partitions.values()
        ),
        topic.error,
    )


async def _metadata(
    engine: ClusterEngine, names: frozenset[str] | None, timeout: float
) -> MetadataReceived:
    """Request metadata from a broker, because the cached metadata may lack new topics."""
    response = await engine.router.request(
        lambda version: metadata_request(names, create=False, version=version),
        MetadataRequest,
        ANY,
        timeout=timeout,
    )
    return metadata_received(response, complete=names is None)
