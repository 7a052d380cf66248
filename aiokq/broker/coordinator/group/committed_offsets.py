"""The committed offsets of a shard's groups, and the pending offsets of open transactions.

Source: Kafka ``OffsetMetadataManager.java``; KIP-98, KIP-211, KIP-447.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.record import CoordinatorRecord
from aiokq.broker.coordinator.shard import NO_PRODUCER
from aiokq.core.named_tuple import NamedTuple
from aiokq.wire.fields import ZERO_UUID
from aiokq.wire.group_records import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

if TYPE_CHECKING:
    from aiokq.core.types import TopicPartition

__all__ = ["CommittedOffset", "OffsetStore", "offset_record"]

NEVER: Final = -1


class CommittedOffset(NamedTuple):
    """The committed offset of a group in a partition."""

    offset: int
    leader_epoch: int
    """The leader epoch of the last consumed record; -1 if the client gave none."""
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    """The time at which the offset expires; -1 if `offsets.retention.minutes` applies."""
    topic_id: uuid.UUID
    """The id of the topic at the time of the commit; zero if unknown."""
    record_offset: int
    """The log offset of the commit's record; -1 before the record is appended."""

    def is_of(self, topic_id: uuid.UUID) -> bool:
        """Whether the commit was for this topic, not for an earlier topic of the same name.

        True if one of the ids is unknown.
        """
        return topic_id == self.topic_id or ZERO_UUID in (topic_id, self.topic_id)


_GroupPartition = tuple[str, str, int]
"""Group, topic and partition."""


class OffsetStore:
    """The offsets of all groups of one shard. Only `replay` and `end_transaction` change it."""

    def __init__(self) -> None:
        self._offsets: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._pending: dict[int, dict[_GroupPartition, CommittedOffset]] = {}
        self._writers: dict[str, dict[tuple[str, int], set[int]]] = {}
        # One object per topic id: 100,000 equal objects would slow down garbage collection.
        self._topic_ids: dict[uuid.UUID, uuid.UUID] = {}

    def get(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        return self._offsets.get(group, {}).get(topic, {}).get(partition)

    def topics_of(self, group: str) -> Iterator[tuple[str, dict[int, CommittedOffset]]]:
        """Yield the topics of a group with their offsets by partition."""
        return iter(self._offsets.get(group, {}).items())

    def has_offsets(self, group: str) -> bool:
        """Whether the group has committed offsets, or pending offsets in an open transaction."""
        return group in self._offsets or group in self._writers

    def is_unstable(self, group: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has a pending offset for the partition (KIP-447)."""
        return (topic, partition) in self._writers.get(group, ())

    def __len__(self) -> int:
        return sum(len(ps) for topics in self._offsets.values() for ps in topics.values())

    def tombstones(self, group: str) -> list[CoordinatorRecord]:
        """Return the records that remove all offsets of a group, including pending offsets."""
        places = {(topic, p): None for topic, ps in self.topics_of(group) for p in ps}
        places.update(dict.fromkeys(self._writers.get(group, ())))
        return [_tombstone(group, topic, partition) for topic, partition in places]

    def tombstone(self, group: str, topic: str, partition: int) -> CoordinatorRecord | None:
        """Return the record that removes the committed and pending offsets of a partition.

        None if there are no such offsets.
        """
        if self.get(group, topic, partition) is None and not self.is_unstable(
            group, topic, partition
        ):
            return None
        return _tombstone(group, topic, partition)

    def tombstones_of_partitions(
        self, partitions: Iterable[TopicPartition]
    ) -> list[CoordinatorRecord]:
        """Return the records that remove the committed and pending offsets of partitions."""
        gone: dict[str, set[int]] = {}
        for topic, partition in partitions:
            gone.setdefault(topic, set()).add(partition)
        places: dict[_GroupPartition, None] = {}
        for group, topics in self._offsets.items():
            for topic in gone.keys() & topics.keys():
                for partition in sorted(gone[topic] & topics[topic].keys()):
                    places[group, topic, partition] = None
        for group, writers in self._writers.items():
            for topic, partition in writers:
                if partition in gone.get(topic, ()):
                    places[group, topic, partition] = None
        return [_tombstone(*place) for place in places]

    def expired(
        self,
        group: str,
        base_ms: int | None,
        retention_ms: int,
        now_ms: int,
        is_kept: Callable[[str], bool],
    ) -> tuple[list[CoordinatorRecord], bool]:
        """Return the records that remove expired offsets, and whether no offset then remains.

        Pending offsets of open transactions do not expire, and count as remaining.

        Args:
            base_ms: the time from which retention counts; None to count from each commit's time.
            is_kept: returns whether the offsets of a topic are kept, because members subscribe to
                the topic.
        """
        records = []
        all_expire = group not in self._writers
        for topic, partitions in self.topics_of(group):
            if is_kept(topic):
                all_expire = False
                continue
            for partition, committed in partitions.items():
                if committed.expire_timestamp_ms != NEVER:
                    expires_ms = committed.expire_timestamp_ms
                else:
                    since_ms = committed.commit_timestamp_ms if base_ms is None else base_ms
                    expires_ms = since_ms + retention_ms
                if now_ms >= expires_ms and not self.is_unstable(group, topic, partition):
                    records.append(_tombstone(group, topic, partition))
                else:
                    all_expire = False
        return records, all_expire

    def replay(
        self,
        key: OffsetCommitKey | LegacyOffsetCommitKey,
        value: OffsetCommitValue | LegacyOffsetCommitValue | None,
        *,
        offset: int,
        producer_id: int = NO_PRODUCER,
    ) -> None:
        """Apply a record of the log.

        Args:
            offset: the record's offset.
            producer_id: the producer whose transaction contains the record; `NO_PRODUCER` for a
                record outside a transaction. A commit in a transaction is pending until the
                transaction ends.
        """
        place = (key.group, key.topic, key.partition)
        if value is None:
            self._remove(place)
            return
        committed = self._committed(value, offset)
        if producer_id == NO_PRODUCER:
            self._put(place, committed)
            return
        self._pending.setdefault(producer_id, {})[place] = committed
        writers = self._writers.setdefault(key.group, {})
        writers.setdefault((key.topic, key.partition), set()).add(producer_id)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Commit or drop the pending offsets of a producer's transaction."""
        for place, offset in self._pending.pop(producer_id, {}).items():
            self._close_writer(place, producer_id)
            if committed:
                present = self.get(*place)
                # A commit outside the transaction takes precedence if its record is later in the
                # log.
                if present is None or offset.record_offset > present.record_offset:
                    self._put(place, offset)

    def _committed(
        self, value: OffsetCommitValue | LegacyOffsetCommitValue, record_offset: int
    ) -> CommittedOffset:
        if isinstance(value, LegacyOffsetCommitValue):
            value = OffsetCommitValue(
                offset=value.offset,
                metadata=value.metadata,
                commit_timestamp=value.commit_timestamp,
            )
        return CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            self._topic_ids.setdefault(value.topic_id, value.topic_id),
            record_offset,
        )

    def _put(self, place: _GroupPartition, committed: CommittedOffset) -> None:
        group, topic, partition = place
        self._offsets.setdefault(group, {}).setdefault(topic, {})[partition] = committed

    def _remove(self, place: _GroupPartition) -> None:
        group, topic, partition = place
        for producer_id in list(self._writers.get(group, {}).get((topic, partition), ())):
            self._pending[producer_id].pop(place, None)
            self._close_writer(place, producer_id)
        topics = self._offsets.get(group)
        partitions = None if topics is None else topics.get(topic)
        if topics is None or partitions is None:
            return
        partitions.pop(partition, None)
        if not partitions:
            del topics[topic]
            if not topics:
                del self._offsets[group]

    def _close_writer(self, place: _GroupPartition, producer_id: int) -> None:
        group, topic, partition = place
        writers = self._writers[group]
        of_partition = writers[topic, partition]
        of_partition.discard(producer_id)
        if not of_partition:
            del writers[topic, partition]
            if not writers:
                del self._writers[group]


def offset_record(
    group: str, topic: str, partition: int, committed: CommittedOffset
) -> CoordinatorRecord:
    """Return the record that commits an offset."""
    return CoordinatorRecord(
        OffsetCommitKey(group=group, topic=topic, partition=partition),
        OffsetCommitValue(
            offset=committed.offset,
            leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            commit_timestamp=committed.commit_timestamp_ms,
            expire_timestamp=committed.expire_timestamp_ms,
            topic_id=committed.topic_id,
        ),
    )


def _tombstone(group: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group=group, topic=topic, partition=partition), None)
