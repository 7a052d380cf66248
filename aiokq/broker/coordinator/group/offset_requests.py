"""Handles OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete for the groups of one shard.

This module does not check that topics exist. Its callers in `handlers` refuse unknown topics.
Unknown names in OffsetFetch are permitted, because committed offsets may outlive their topic.

Source: Kafka ``OffsetMetadataManager.java``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.group.committed_offsets import NEVER, CommittedOffset, offset_record
from aiokq.broker.coordinator.outcome import Outcome
from aiokq.core.errors import GroupSubscribedToTopic, OffsetMetadataTooLarge, UnstableOffsetCommit
from aiokq.wire.fields import ZERO_UUID
from aiokq.wire.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from aiokq.wire.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from aiokq.wire.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from aiokq.wire.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    import uuid

    from aiokq.broker.coordinator.group.committed_offsets import OffsetStore
    from aiokq.broker.coordinator.group.group import Group
    from aiokq.broker.coordinator.group.topic_view import TopicView
    from aiokq.broker.coordinator.timers import Instant
    from aiokq.wire.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition
    from aiokq.wire.offset_delete import OffsetDeleteRequest
    from aiokq.wire.offset_fetch import OffsetFetchRequestGroup
    from aiokq.wire.txn_offset_commit import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestPartition,
    )

__all__ = ["commit", "commit_transactional", "delete", "fetch"]

NO_OFFSET: Final = -1
LONG_MAX: Final = 2**63 - 1


def commit(
    request: OffsetCommitRequest, *, metadata_max_bytes: int, instant: Instant
) -> Outcome[OffsetCommitResponse]:
    """Commit offsets; an offset with too much metadata gets OFFSET_METADATA_TOO_LARGE."""
    retention_ms = request.retention_time_ms
    expires_ms = NEVER
    if retention_ms != -1:
        expires_ms = min(instant.timestamp_ms + retention_ms, LONG_MAX)
    response = OffsetCommitResponse()
    records = []
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            metadata = partition.committed_metadata or ""
            code = 0
            if len(metadata) > metadata_max_bytes:
                code = OffsetMetadataTooLarge.code
            else:
                committed = _committed(partition, topic.topic_id, instant, expires_ms)
                records.append(
                    offset_record(
                        request.group_id, topic.name, partition.partition_index, committed
                    )
                )
            answers.append(
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=code
                )
            )
        response.topics.append(
            OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)
        )
    return Outcome(records, response)


def commit_transactional(
    request: TxnOffsetCommitRequest, *, metadata_max_bytes: int, instant: Instant
) -> Outcome[TxnOffsetCommitResponse]:
    """Commit offsets as part of a transaction; partitions get the same errors as from `commit`."""
    response = TxnOffsetCommitResponse()
    records = []
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            index = partition.partition_index
            code = 0
            if len(partition.committed_metadata or "") > metadata_max_bytes:
                code = OffsetMetadataTooLarge.code
            else:
                committed = _committed(partition, ZERO_UUID, instant, NEVER)
                records.append(offset_record(request.group_id, topic.name, index, committed))
            answers.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=code))
        response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers))
    return Outcome(records, response)


def _committed(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    topic_id: uuid.UUID,
    instant: Instant,
    expires_ms: int,
) -> CommittedOffset:
    return CommittedOffset(
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
        instant.timestamp_ms,
        expires_ms,
        # the record version that has an expiry time has no topic id
        topic_id if expires_ms == NEVER else ZERO_UUID,
        record_offset=NO_OFFSET,
    )


def fetch(
    store: OffsetStore,
    topics: TopicView,
    request: OffsetFetchRequestGroup,
    *,
    exists: bool,
    require_stable: bool,
) -> OffsetFetchResponseGroup:
    """Return the requested offsets of a group, or all its offsets if `request.topics` is None.

    A requested partition without a committed offset gets the offset -1.

    Args:
        exists: whether the group exists; if False, no committed offset is returned.
        require_stable: whether partitions with a pending offset of an open transaction get
            UNSTABLE_OFFSET_COMMIT.
    """
    group_id = request.group_id
    answers = []
    if request.topics is not None:
        asked = [(topic.name, topic.topic_id, topic.partition_indexes) for topic in request.topics]
    else:
        asked = [
            (name, _id_of(topics, name), list(offsets))
            for name, offsets in store.topics_of(group_id)
        ]
    for name, topic_id, indexes in asked:
        partitions = []
        for index in indexes:
            unstable = require_stable and store.is_unstable(group_id, name, index)
            offset = store.get(group_id, name, index) if exists and not unstable else None
            if offset is not None and not offset.is_of(topic_id):
                offset = None  # committed for an earlier topic of this name
            if offset is not None or request.topics is not None or unstable:
                partitions.append(_fetched(index, offset, unstable))
        if partitions or request.topics is not None:
            answers.append(
                OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions)
            )
    return OffsetFetchResponseGroup(group_id=group_id, topics=answers)


def _id_of(topics: TopicView, name: str) -> uuid.UUID:
    topic = topics.topic(name)
    return ZERO_UUID if topic is None else topic.topic_id


def _fetched(
    index: int, offset: CommittedOffset | None, unstable: bool
) -> OffsetFetchResponsePartitions:
    if offset is None:
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=NO_OFFSET,
            metadata="",
            error_code=UnstableOffsetCommit.code if unstable else 0,
        )
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )


def delete(
    store: OffsetStore, group: Group, request: OffsetDeleteRequest
) -> Outcome[OffsetDeleteResponse]:
    """Remove offsets of a group; a topic with subscribers gets GROUP_SUBSCRIBED_TO_TOPIC.

    Raises:
        GroupNotEmpty, GroupIdNotFound: as from `Group.validate_offset_delete`.
    """
    group.validate_offset_delete()
    response = OffsetDeleteResponse()
    records = []
    for topic in request.topics:
        code = GroupSubscribedToTopic.code if group.is_subscribed_to(topic.name) else 0
        answers = []
        for partition in topic.partitions:
            index = partition.partition_index
            answers.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
            tombstone = None if code else store.tombstone(request.group_id, topic.name, index)
            if tombstone is not None:
                records.append(tombstone)
        response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
    return Outcome(records, response)
