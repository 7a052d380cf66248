"""Builds OffsetCommit and OffsetFetch requests, and parses their responses.

Shared by group members and the admin client, which route the requests and retry them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from aiokq.cluster.metadata import ZERO_ID
from aiokq.core.errors import KafkaError, UnknownTopicOrPartition, UnsupportedVersion, error_for
from aiokq.core.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from aiokq.wire.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from aiokq.wire.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

__all__ = [
    "NEWEST_WITH_NAMES",
    "SEVERAL_GROUPS_SINCE",
    "FetchedOffsets",
    "commit_errors",
    "commit_request",
    "fetch_request",
    "fetched_offsets",
]

NEWEST_WITH_NAMES: Final = 9
"""The last OffsetCommit and OffsetFetch version with topic names; later versions have topic ids.

Source: KIP-848.
"""

ALL_TOPICS_SINCE: Final = 2
"""The first OffsetFetch version that can request all topics of a group."""

REQUIRE_STABLE_SINCE: Final = 7
"""The first OffsetFetch version with the field ``require_stable``."""

SEVERAL_GROUPS_SINCE: Final = 8
"""The first OffsetFetch version that can request the offsets of several groups."""

_NO_IDS: Final[Mapping[str, UUID]] = {}
_NO_IDS_OF_PARTITIONS: Final[Mapping[TopicPartition, UUID]] = {}
_NO_NAMES: Final[Mapping[UUID, str]] = {}


@dataclass(slots=True)
class FetchedOffsets:
    """The committed offsets of one group, from one response.

    Attributes:
        offsets: the committed offset of each partition that has no error; None if no offset is
            committed.
        errors: the errors of single partitions.
        error: the error of the request for the group; None if the request succeeded.
    """

    offsets: dict[TopicPartition, OffsetAndMetadata | None] = field(default_factory=dict)
    errors: dict[TopicPartition, KafkaError] = field(default_factory=dict)
    error: KafkaError | None = None


def commit_request(
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    member: GroupMetadata | None = None,
    topic_ids: Mapping[TopicPartition, UUID] = _NO_IDS_OF_PARTITIONS,
) -> OffsetCommitRequest:
    """Return the request that commits offsets of a group.

    Args:
        member: the committing member; None to commit from outside the group, which the
            coordinator accepts only while the group is empty.
        topic_ids: ids of the topics; required from version 10 on.
    """
    topics: dict[tuple[str, UUID], list[OffsetCommitRequestPartition]] = defaultdict(list)
    for tp, offset in offsets.items():
        epoch = offset.leader_epoch
        topics[tp.topic, topic_ids.get(tp, ZERO_ID)].append(
            OffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=-1 if epoch is None else epoch,
                committed_metadata=offset.metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=partitions)
            for (name, topic_id), partitions in topics.items()
        ],
    )
    if member is not None:
        request.generation_id_or_member_epoch = member.generation
        request.member_id = member.member_id
        request.group_instance_id = member.group_instance_id
    return request


def commit_errors(
    response: OffsetCommitResponse,
    asked: Iterable[TopicPartition],
    *,
    names: Mapping[UUID, str] = _NO_NAMES,
) -> dict[TopicPartition, KafkaError | None]:
    """Return the error of each partition; None if its offset was committed.

    The offset of a partition that is missing from the response was not committed.

    Args:
        names: topic names by id.
    """
    wanted = set(asked)
    errors: dict[TopicPartition, KafkaError | None] = {}
    for topic in response.topics:
        name = topic.name or names.get(topic.topic_id, "")
        for partition in topic.partitions:
            tp = TopicPartition(name, partition.partition_index)
            if tp in wanted:
                code = partition.error_code
                errors[tp] = (
                    error_for(code, topic_partition=tp, api="OffsetCommit") if code else None
                )
    for tp in wanted - errors.keys():
        errors[tp] = UnknownTopicOrPartition(
            "the response does not have the partition", topic_partition=tp, api="OffsetCommit"
        )
    return errors


def fetch_request(
    version: int,
    groups: Mapping[str, Iterable[TopicPartition] | None],
    *,
    require_stable: bool,
    member: GroupMetadata | None = None,
    topic_ids: Mapping[str, UUID] = _NO_IDS,
) -> OffsetFetchRequest:
    """Return the request for committed offsets of groups.

    Args:
        version: the negotiated version. Below `SEVERAL_GROUPS_SINCE`, ``groups`` must have exactly
            one item.
        groups: the partitions of each group; None for all partitions that have committed offsets.
        require_stable: whether a partition with an uncommitted offset of an open transaction gets
            an error instead of an offset (KIP-447). Not sent below version 7.
        member: the requesting member; the coordinator checks it only in a group of the consumer
            protocol. Not sent below version 9.
        topic_ids: topic ids by name; required from version 10 on.

    Raises:
        UnsupportedVersion: the broker is too old to return all offsets of a group.
    """
    if version < SEVERAL_GROUPS_SINCE:
        ((group_id, partitions),) = groups.items()
        if partitions is None and version < ALL_TOPICS_SINCE:
            raise UnsupportedVersion(
                "the broker is older than 0.10.2 and cannot list all offsets of a group: name "
                "the partitions",
                api="OffsetFetch",
            )
        return OffsetFetchRequest(
            group_id=group_id,
            topics=None
            if partitions is None
            else [
                OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
                for name, numbers in _by_topic(partitions)
            ],
            require_stable=require_stable and version >= REQUIRE_STABLE_SINCE,
        )
    asked = []
    for group_id, partitions in groups.items():
        topics = None
        if partitions is not None:
            topics = [
                OffsetFetchRequestTopics(
                    name=name, topic_id=topic_ids.get(name, ZERO_ID), partition_indexes=numbers
                )
                for name, numbers in _by_topic(partitions)
            ]
        group = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
        if member is not None and member.member_id:
            group.member_id, group.member_epoch = member.member_id, member.generation
        asked.append(group)
    return OffsetFetchRequest(groups=asked, require_stable=require_stable)


def fetched_offsets(
    response: OffsetFetchResponse,
    asked: Iterable[str],
    *,
    names: Mapping[UUID, str] = _NO_NAMES,
) -> dict[str, FetchedOffsets]:
    """Return the offsets of each group in the response.

    Args:
        asked: the requested groups; responses before version 8 do not name their only group.
        names: topic names by id.
    """
    found: dict[str, FetchedOffsets] = {}
    groups = {group.group_id: group for group in response.groups}
    for group_id in asked:
        if (group := groups.get(group_id)) is not None:
            answers = _of_group(
                (topic.name or names.get(topic.topic_id, ""), topic.partitions)
                for topic in group.topics
            )
            found[group_id] = _fetched(group.error_code, answers)
        elif not groups:
            answers = _of_group((topic.name, topic.partitions) for topic in response.topics)
            found[group_id] = _fetched(response.error_code, answers)
    return found


_Answer = OffsetFetchResponsePartition | OffsetFetchResponsePartitions


def _of_group(
    topics: Iterable[
        tuple[str, list[OffsetFetchResponsePartition] | list[OffsetFetchResponsePartitions]]
    ],
) -> Iterator[tuple[TopicPartition, _Answer]]:
    for name, partitions in topics:
        for partition in partitions:
            yield TopicPartition(name, partition.partition_index), partition


def _fetched(code: int, answers: Iterable[tuple[TopicPartition, _Answer]]) -> FetchedOffsets:
    if code:
        return FetchedOffsets(error=error_for(code, api="OffsetFetch"))
    fetched = FetchedOffsets()
    for tp, answer in answers:
        if answer.error_code:
            fetched.errors[tp] = error_for(answer.error_code, topic_partition=tp, api="OffsetFetch")
        elif answer.committed_offset < 0:
            fetched.offsets[tp] = None
        else:
            epoch = answer.committed_leader_epoch
            fetched.offsets[tp] = OffsetAndMetadata(
                answer.committed_offset, answer.metadata or "", None if epoch < 0 else epoch
            )
    return fetched


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        topics[topic].append(number)
    return list(topics.items())
