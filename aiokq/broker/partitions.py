"""One partition as this node serves it: its log, who leads it, what of it is visible to whom.

Owns leadership and visibility; the bytes are `log.partition_log`'s, the topic is `topics`'.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from aiokq.broker.log.producer_state import Origin
from aiokq.core.errors import FencedLeaderEpoch, NotLeaderOrFollower, UnknownLeaderEpoch
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokq.broker.log.appending import Appendable
    from aiokq.broker.log.partition_log import AppendResult, PartitionLog
    from aiokq.broker.topics import Topic
    from aiokq.core.errors import BrokerError
    from aiokq.records.header import BatchHeader

__all__ = ["LeadershipListener", "Partition", "check_leader_epoch"]

CONSUMER: Final = -1
DEBUGGING_CONSUMER: Final = -2
"""A consumer that may read beyond the high watermark, by the protocol's convention."""

NO_LEADER: Final = -1
NO_EPOCH: Final = -1
NO_OFFSET: Final = -1


class Partition:
    """One partition of a topic.

    Attributes:
        log: its records. Where they cannot be had, to ask for it raises ``unavailable``.
        leader: -1 while nobody can serve it.
        leader_epoch: grows with each leader, and when this node starts after it was killed.
        replicas: node ids in order of preference; `isr` those that are in sync.
        offline_replicas: those of them that cannot be read, as their directory failed.
        unavailable: why there is no log; None mostly.
    """

    __slots__ = (
        "index",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "offline_replicas",
        "replicas",
        "topic",
        "unavailable",
    )

    def __init__(
        self,
        topic: Topic,
        index: int,
        log: PartitionLog,
        leader: int,
        leader_epoch: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
    ) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.replicas = replicas
        self.isr = isr
        self.offline_replicas: tuple[int, ...] = ()
        self.unavailable: BrokerError | None = None

    @classmethod
    def offline(
        cls, topic: Topic, index: int, replicas: tuple[int, ...], error: BrokerError
    ) -> Partition:
        """One whose log is in a directory that cannot be used."""
        partition = cls.__new__(cls)
        partition.topic = topic
        partition.index = index
        partition.leader_epoch = 0
        partition.replicas = partition.isr = replicas
        partition.take_offline(error)
        return partition

    @classmethod
    def unopened(cls, topic: Topic, index: int, replicas: tuple[int, ...]) -> Partition:
        """One whose log is not open yet: it may have to be recovered first."""
        error = NotLeaderOrFollower(f"{topic.name}-{index} is being recovered")
        partition = cls.offline(topic, index, replicas, error)
        partition.leader_epoch = NO_EPOCH
        partition.offline_replicas = ()
        return partition

    def bring_online(self, log: PartitionLog, leader: int, leader_epoch: int) -> None:
        """It has its log now, and a leader."""
        self.log = log
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.offline_replicas = ()
        self.unavailable = None

    @property
    def is_recovering(self) -> bool:
        """Whether its log is not there yet."""
        return isinstance(self.unavailable, NotLeaderOrFollower)

    def take_offline(self, error: BrokerError) -> None:
        """Nobody leads it, and whoever asks for its log is told this, until the node restarts.

        The in-sync replicas stay what they are, as in Kafka: who else could lead it?
        """
        with contextlib.suppress(AttributeError):  # it had none
            del self.log
        self.unavailable = error
        self.leader = NO_LEADER
        self.offline_replicas = self.replicas

    @property
    def is_online(self) -> bool:
        """Whether it has a log."""
        return self.unavailable is None

    def __getattr__(self, name: str) -> NoReturn:
        """Only asked where there is none: the log of an available partition costs no check."""
        if name == "log" and self.unavailable is not None:
            raise type(self.unavailable)(self.unavailable.message, topic_partition=self.name)
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic.name, self.index)

    def visible_end(self, replica_id: int, read_committed: bool) -> int:
        """The offset up to which a reader sees the log.

        Raises:
            NotLeaderOrFollower: `replica_id` is no replica of this partition.
        """
        if replica_id == CONSUMER:
            log = self.log
            return log.last_stable_offset if read_committed else log.high_watermark
        if replica_id == DEBUGGING_CONSUMER or replica_id in self.replicas:
            return self.log.log_end_offset
        raise NotLeaderOrFollower(f"node {replica_id} is no replica of {self.name}")

    def append(
        self,
        records: memoryview,
        headers: Sequence[BatchHeader],
        *,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
    ) -> AppendResult:
        """Append a producer's batches, or those of a coordinator of this node.

        Awaits nothing: see `PartitionLog.append` for what it refuses, and for who sees the records.
        """
        return self.log.append(
            records, headers, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin
        )

    def append_prepared(self, prepared: Appendable) -> AppendResult:
        """Append batches that were looked through elsewhere; see `PartitionLog.append_prepared`."""
        return self.log.append_prepared(prepared, leader_epoch=self.leader_epoch)

    def delete_records(self, offset: int) -> int:
        """Hide the records before an offset; the new log start offset."""
        return self.log.delete_records(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above `epoch` and where it ends; (-1, -1) if that is not known.

        Source: Kafka's `LeaderEpochFileCache.endOffsetFor`.
        """
        log = self.log
        if epoch == NO_EPOCH:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.leader_epoch:
            return epoch, log.log_end_offset
        return log.end_offset_for_epoch(epoch)


class LeadershipListener(Protocol):
    """Who acts for the partitions that this node leads, as a coordinator does for its topic's.

    Called on the node's loop, and must not block: before a partition's first request is answered,
    and again for all of them when the node starts.

    Source: Kafka's `GroupCoordinator.onElection`, `onResignation`.
    """

    def elected(self, partition: Partition) -> None:
        """This node leads the partition from now on, with its `leader_epoch`."""

    def resigned(self, partition: Partition) -> None:
        """It does not lead it any more: it was deleted, or its directory failed. Its log takes no
        more appends."""


def check_leader_epoch(partition: Partition, epoch: int) -> None:
    """Fence a client whose metadata is older or newer than ours; -1 is not checked.

    Raises:
        FencedLeaderEpoch: the client's epoch is older: it must refresh its metadata.
        UnknownLeaderEpoch: it is newer: the client must ask again later.
    """
    if epoch == NO_EPOCH or epoch == partition.leader_epoch or not partition.is_online:
        return  # offline, it says so when its log is asked for
    if epoch < partition.leader_epoch:
        raise FencedLeaderEpoch()
    raise UnknownLeaderEpoch()
