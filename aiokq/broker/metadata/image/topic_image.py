"""A topic in the metadata image: its partitions, each an immutable tuple.

Most partitions of a node differ only in their number, so partitions of equal state share one tuple.

Source: Kafka ``TopicImage.java``, ``PartitionRegistration.java``.
Tests: ``tests/unit/broker/metadata/image/test_image.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Final

from aiokq.broker.log.meta_properties import RESERVED_DIRECTORY_IDS
from aiokq.core.errors import CorruptRecord
from aiokq.core.named_tuple import NamedTuple
from aiokq.wire.cluster_metadata_records import PartitionChangeRecord, PartitionRecord

__all__ = [
    "NO_LEADER",
    "NO_LEADER_CHANGE",
    "RECOVERING",
    "PartitionImage",
    "TopicImage",
]

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
"""The leader in a ``PartitionChangeRecord`` that leaves leader and leader epoch unchanged."""

IN_ORDER: Final = 1 << 16
"""Number of partitions of a topic that Kafka writes in the order of their numbers."""

RECOVERING: Final = 1
"""The recovery state of a partition whose leader was elected uncleanly."""

LOST: Final = uuid.UUID(int=2)
"""The directory.id of a replica whose log directory does not exist any more."""

UNCHANGED_STATE: Final = -1
"""The recovery state in a ``PartitionChangeRecord`` that leaves the state unchanged."""


class PartitionImage(NamedTuple):
    """The state of a partition.

    Attributes:
        replicas: node ids, in order of preference.
        isr: node ids of the in-sync replicas.
        leader: node id of the leader, or -1.
        leader_epoch: grows by one with each record that names a leader.
        partition_epoch: grows by one with each change of the partition.
        directories: the log directory of each replica; empty if the records do not name any.
        removing, adding: node ids of the replicas that a reassignment removes or adds.
        leader_recovery_state: 1 from an unclean election until the leader has recovered, else 0.
        elr: eligible leader replicas (KIP-966), which may lead although they are not in sync.
        last_known_elr: the last leader, if the partition has no leader (KIP-966); may be empty.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int = 0
    directories: tuple[uuid.UUID, ...] = ()
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @classmethod
    def of(cls, record: PartitionRecord) -> PartitionImage:
        """Return the state of the partition that a record creates."""
        return cls(
            tuple(record.replicas),
            tuple(record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            tuple(record.directories),
            tuple(record.removing_replicas),
            tuple(record.adding_replicas),
            record.leader_recovery_state,
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
        )

    def changed_by(self, record: PartitionChangeRecord) -> PartitionImage:
        """Return the state after a change; fields that the record leaves unset do not change.

        Source: Kafka's ``PartitionRegistration.merge``.
        """
        names_leader = record.leader != NO_LEADER_CHANGE
        state = record.leader_recovery_state
        return PartitionImage(
            _changed(self.replicas, record.replicas),
            _changed(self.isr, record.isr),
            record.leader if names_leader else self.leader,
            self.leader_epoch + names_leader,
            self.partition_epoch + 1,
            self.directories if record.directories is None else tuple(record.directories),
            _changed(self.removing, record.removing_replicas),
            _changed(self.adding, record.adding_replicas),
            self.leader_recovery_state if state == UNCHANGED_STATE else state,
            _changed(self.elr, record.eligible_leader_replicas),
            _changed(self.last_known_elr, record.last_known_elr),
        )

    def without_elr(self) -> PartitionImage:
        """Return the state after a ``ClearElrRecord``."""
        if not self.elr and not self.last_known_elr:
            return self
        return self._replace(elr=(), last_known_elr=(), partition_epoch=self.partition_epoch + 1)

    def record(self, topic_id: uuid.UUID, index: int) -> PartitionRecord:
        """Return the record that creates a partition in this state."""
        return PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing),
            adding_replicas=list(self.adding),
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=list(self.directories),
            eligible_leader_replicas=list(self.elr) or None,
            last_known_elr=list(self.last_known_elr) or None,
        )

    def directory_of(self, node_id: int) -> uuid.UUID | None:
        """Return the id of the directory that has a node's replica.

        The result is None if the directory is not recorded, was not chosen yet, or is lost.
        """
        if len(self.directories) != len(self.replicas) or node_id not in self.replicas:
            return None
        found = self.directories[self.replicas.index(node_id)]
        return found if found.int >= RESERVED_DIRECTORY_IDS else None

    def is_online(self, node_id: int, online_directories: Collection[uuid.UUID]) -> bool:
        """Whether the directory of a node's replica is online, or was not chosen or recorded yet.

        Args:
            online_directories: ids of the node's log directories that are online.
        """
        for replica, directory in zip(self.replicas, self.directories, strict=False):
            if replica == node_id:
                if directory.int < RESERVED_DIRECTORY_IDS:
                    return directory != LOST
                return directory in online_directories
        return True  # the metadata names no directories


def _changed(known: tuple[int, ...], given: list[int] | None) -> tuple[int, ...]:
    return known if given is None else tuple(given)


class TopicImage:
    """A topic, without its settings, which are in ``MetadataImage.configs``.

    Attributes:
        partitions: the partitions, in the order of their numbers.
    """

    __slots__ = ("_early", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: uuid.UUID) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: list[PartitionImage] = []
        self._early: dict[int, PartitionImage] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether a partition exists for each number below the highest partition number."""
        return self._early is None

    def set_partition(self, index: int, partition: PartitionImage) -> None:
        """Add a partition, or replace one.

        Kafka writes the partitions of a topic in the order of Java's HashMap: numbers up to 65,535
        are in order, and higher ones may come before lower ones. A partition that comes too early
        is added to ``partitions`` once all partitions with lower numbers are there.

        Raises:
            CorruptRecord: a partition with a lower number, up to 65,535, is missing.
        """
        partitions = self.partitions
        if index == len(partitions):
            partitions.append(partition)
            if self._early is not None:
                self._add_early(self._early)
        elif index > len(partitions) >= IN_ORDER:
            if self._early is None:
                self._early = {}
            self._early[index] = partition
        elif 0 <= index < len(partitions):
            partitions[index] = partition
        else:
            raise CorruptRecord(
                f"record of partition {index}, but the topic has only {len(partitions)} partitions"
            )

    def _add_early(self, early: dict[int, PartitionImage]) -> None:
        while (partition := early.pop(len(self.partitions), None)) is not None:
            self.partitions.append(partition)
        if not early:
            self._early = None

    def partition(self, index: int) -> PartitionImage:
        """Return a partition.

        Raises:
            CorruptRecord: the partition does not exist.
        """
        if not 0 <= index < len(self.partitions):
            raise CorruptRecord(f"change of partition {index}, which does not exist")
        return self.partitions[index]

    def copy(self) -> TopicImage:
        """Return an independent copy."""
        topic = TopicImage(self.name, self.topic_id)
        topic.partitions = list(self.partitions)
        topic._early = None if self._early is None else dict(self._early)
        return topic
