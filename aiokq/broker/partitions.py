"""One partition as this node serves it: its log, who leads it, what of it is visible to whom.

Owns leadership and visibility; the bytes are `log.partition_log`'s, the topic is `topics`'.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from aiokq.broker.log.producer_state import Origin
from aiokq.core.errors import FencedLeaderEpoch, NotLeaderOrFollower, UnknownLeaderEpoch
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokq.broker.log.appending import PreparedAppend
    from aiokq.broker.log.partition_log import AppendResult, PartitionLog
    from aiokq.broker.log.results import LogRead
    from aiokq.broker.topics import Topic
    from aiokq.records.header import BatchHeader

__all__ = ["LeadershipListener", "Partition", "check_leader_epoch"]

CONSUMER: Final = -1
DEBUGGING_CONSUMER: Final = -2
"""A consumer that may read beyond the high watermark, by the protocol's convention."""

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1


@dataclass(slots=True, eq=False)
class Partition:
    """One partition of a topic.

    Attributes:
        leader_epoch: grows with each leader, and when this node starts after it was killed.
        replicas: node ids in order of preference; `isr` those that are in sync.
    """

    topic: Topic
    index: int
    log: PartitionLog
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

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

        Awaits nothing: the offsets it returns are committed and visible. See
        `PartitionLog.append` for what it refuses.
        """
        return self.log.append(
            records, headers, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin
        )

    def append_prepared(self, prepared: PreparedAppend) -> AppendResult:
        """Append batches that were looked through elsewhere; see `PartitionLog.append_prepared`."""
        return self.log.append_prepared(prepared, leader_epoch=self.leader_epoch)

    def replay(self) -> LogRead:
        """All committed batches that are there now, to be read with `log.walk.read_batches`.

        Reads nothing itself: the walk belongs in an executor, and touches files only, so that the
        partition may be appended to meanwhile. From `high_watermark` of the answer on, the caller
        has seen nothing.
        """
        return self.log.read(self.log.log_start_offset, sys.maxsize)

    def delete_records(self, offset: int) -> int:
        """Hide the records before an offset; the new log start offset."""
        return self.log.delete_records(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above `epoch` and where it ends; (-1, -1) if that is not known.

        Source: Kafka's `LeaderEpochFileCache.endOffsetFor`.
        """
        if epoch == NO_EPOCH:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.leader_epoch:
            return epoch, self.log.log_end_offset
        return self.log.end_offset_for_epoch(epoch)


class LeadershipListener(Protocol):
    """Who acts for the partitions that this node leads, as a coordinator does for its topic's.

    Called on the node's loop, and must not block: before a partition's first request is answered,
    and again for all of them when the node starts.

    Source: Kafka's `GroupCoordinator.onElection`, `onResignation`.
    """

    def elected(self, partition: Partition) -> None:
        """This node leads the partition from now on, with its `leader_epoch`."""

    def resigned(self, partition: Partition) -> None:
        """It does not lead it any more: it was deleted. Its log takes no more appends."""


def check_leader_epoch(partition: Partition, epoch: int) -> None:
    """Fence a client whose metadata is older or newer than ours; -1 is not checked.

    Raises:
        FencedLeaderEpoch: the client's epoch is older: it must refresh its metadata.
        UnknownLeaderEpoch: it is newer: the client must ask again later.
    """
    if epoch == NO_EPOCH or epoch == partition.leader_epoch:
        return
    if epoch < partition.leader_epoch:
        raise FencedLeaderEpoch()
    raise UnknownLeaderEpoch()
