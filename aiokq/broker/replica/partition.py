"""The replica of one partition on this node: leadership, in-sync replicas and high watermark.

The log stores records. It keeps the high watermark as a number that bounds reads, deletion and
compaction. Only this module advances the high watermark of a partition's log, with one exception: a
log that is emptied and restarted at a new offset sets its high watermark to that offset (ADR 9).

Source: Kafka ``Partition.scala``. Tests: ``tests/unit/broker/replica/test_partition.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.log.follower_append import UnexpectedAppendOffset
from aiokq.broker.log.producer_state import Origin
from aiokq.broker.replica.commits import ALL, Commits
from aiokq.core.errors import (
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    PolicyViolation,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiokq.broker.log.appending import Appendable
    from aiokq.broker.log.config import LogConfig
    from aiokq.broker.log.partition_log import AppendResult, PartitionLog
    from aiokq.broker.replica.served_topic import ServedTopic
    from aiokq.core.errors import BrokerError
    from aiokq.core.offload import Offload
    from aiokq.records.header import BatchHeader

__all__ = ["Partition", "check_leader_epoch"]

CONSUMER: Final = -1
DEBUGGING_CONSUMER: Final = -2
"""The replica id in the fetches of a consumer that may read beyond the high watermark; other
consumers send ``CONSUMER``.
"""

HIGH_WATERMARK: Final = -1
"""The offset in a DeleteRecords request that stands for the high watermark."""

NO_LEADER: Final = -1
NO_EPOCH: Final = -1
NO_OFFSET: Final = -1


class Partition:
    """The replica of one partition.

    Attributes:
        leader: node id of the leader; -1 if there is none, or if the log of this node's replica is
            not open.
        leader_epoch: the leader epoch, which grows with each new leader; -1 if it is not known yet.
        replicas: node ids in order of preference.
        isr: node ids of the in-sync replicas; changed by ``change_isr``.
        min_isr: number of in-sync replicas needed to commit: ``min.insync.replicas``, but at most
            the number of replicas.
        offline_replicas: node ids of the replicas whose log cannot be used.
        is_recovering: whether the log is not open yet and may need recovery; False if the log
            cannot be opened.
        unavailable: the error that requests get; None while this node leads the partition and has
            its log.
        commits: the appends that are not committed, and the requests that wait for their commit.
        high_watermark_listeners: called after the high watermark has passed an append of this node
            as leader, with the number of bytes that became visible.
    """

    __slots__ = (
        "_commits_alone",
        "_log",
        "_replica_ends",
        "commits",
        "high_watermark_listeners",
        "index",
        "is_recovering",
        "isr",
        "leader",
        "leader_epoch",
        "min_isr",
        "offline_replicas",
        "replicas",
        "topic",
        "unavailable",
    )

    def __init__(
        self, topic: ServedTopic, index: int, replicas: tuple[int, ...], unavailable: BrokerError
    ) -> None:
        self.topic = topic
        self.index = index
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.replicas = self.isr = replicas
        self.offline_replicas: tuple[int, ...] = ()
        self.is_recovering = False
        self.unavailable: BrokerError | None = unavailable
        self._log: PartitionLog | None = None
        self.high_watermark_listeners: list[Callable[[int], None]] = []
        # The log end offset of each follower, by node id: the offset of the follower's last fetch.
        self._replica_ends: dict[int, int] = {}
        self.commits = Commits(self)
        self._settings_changed()

    @classmethod
    def offline(
        cls, topic: ServedTopic, index: int, replicas: tuple[int, ...], error: BrokerError
    ) -> Partition:
        """Return a partition whose log is in a directory that has failed."""
        partition = cls(topic, index, replicas, error)
        partition.leader_epoch = 0
        partition.take_offline(error)
        return partition

    @classmethod
    def unopened(cls, topic: ServedTopic, index: int, replicas: tuple[int, ...]) -> Partition:
        """Return a partition whose log is not open yet and may need recovery."""
        error = NotLeaderOrFollower(f"{topic.name}-{index} is being recovered")
        partition = cls(topic, index, replicas, error)
        partition.is_recovering = True
        return partition

    def bring_online(self, log: PartitionLog, leader: int, leader_epoch: int) -> None:
        """Serve the partition from ``log``, as its leader."""
        self._take_log(log, leader, leader_epoch)
        self.unavailable = None
        self._settings_changed()
        self.advance_high_watermark()
        self.commits.wake()

    def follow(self, log: PartitionLog, leader: int, leader_epoch: int) -> None:
        """Keep ``log`` as the replica of a partition that another node leads.

        Requests of clients, including pending requests, fail with NotLeaderOrFollower. The log
        stays open for `append_as_follower`.
        """
        self._take_log(log, leader, leader_epoch)
        self.unavailable = NotLeaderOrFollower(f"{self.name} is led by node {leader}")
        self._settings_changed()
        self.commits.wake()

    def leave(self, leader: int, leader_epoch: int) -> None:
        """End the replica of the partition on this node; the caller deletes the log."""
        self._log = None
        self.is_recovering = False
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.offline_replicas = ()
        self.unavailable = NotLeaderOrFollower(f"{self.name} has no replica on this node")
        self._settings_changed()
        self.commits.wake()

    def delete(self) -> None:
        """End the replica because the topic is deleted; the caller deletes the log.

        All requests, including pending requests, fail with UnknownTopicOrPartition, because no
        other node serves the partition.

        Source: Kafka's `ReplicaManager.getPartitionOrError`.
        """
        self._log = None
        self.is_recovering = False
        self.unavailable = UnknownTopicOrPartition(f"{self.name} was deleted")
        self.commits.wake()

    def take_offline(self, error: BrokerError) -> None:
        """Stop serving the partition until it has a log again; ``log`` raises ``error``.

        The in-sync replicas do not change, because without unclean leader election a replica that
        was removed from the in-sync replicas could never lead again.
        """
        self._log = None
        self.is_recovering = False
        self.unavailable = error
        self.leader = NO_LEADER
        self.offline_replicas = self.replicas
        self._settings_changed()
        self.commits.wake()

    def _take_log(self, log: PartitionLog, leader: int, leader_epoch: int) -> None:
        self._log = log
        self.is_recovering = False
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.offline_replicas = ()
        self._replica_ends.clear()
        self.commits.pending = None
        log.replica = self

    @property
    def is_online(self) -> bool:
        """Whether this node leads the partition, and has its log."""
        return self.unavailable is None

    @property
    def log(self) -> PartitionLog:
        """The log, for requests to the leader.

        Raises:
            KafkaStorage: the log cannot be used.
            NotLeaderOrFollower: this node does not lead the partition, or its log is not open yet.
            UnknownTopicOrPartition: the topic was deleted.
        """
        if self._log is None or self.unavailable is not None:
            raise self._refusal()
        return self._log

    @property
    def local_log(self) -> PartitionLog | None:
        """The log that this node has as leader or follower; None if it has none."""
        return self._log

    def _refusal(self) -> BrokerError:
        assert self.unavailable is not None
        return type(self.unavailable)(self.unavailable.message, topic_partition=self.name)

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic.name, self.index)

    def configure(self, config: LogConfig) -> None:
        """Apply changed topic settings."""
        self._settings_changed()
        if self._log is not None:
            self._log.update_config(config)
        if self.is_online:
            self.advance_high_watermark()

    def change_replicas(self, replicas: tuple[int, ...], isr: tuple[int, ...]) -> None:
        self.replicas = replicas
        self.change_isr(isr)

    def change_isr(self, isr: tuple[int, ...]) -> None:
        self.isr = isr
        self._settings_changed()
        if self.is_online:
            self.advance_high_watermark()
        self.commits.wake()  # acks=all checks the number of in-sync replicas again

    def replica_fetched(self, replica_id: int, offset: int) -> None:
        """Store a follower's fetch offset as the log end offset of its replica.

        Source: Kafka's `Partition.updateFollowerFetchState`.
        """
        if replica_id in self.replicas and replica_id != self.leader:
            self._replica_ends[replica_id] = offset
            self.advance_high_watermark()

    def _settings_changed(self) -> None:
        self.min_isr = min(self.topic.config.min_insync_replicas, len(self.replicas))
        # True if an append is committed as soon as the leader's flush policy allows it, without any
        # fetch of a follower. With replication factor 1, this is true whenever this node leads.
        self._commits_alone = self.isr == (self.leader,) and self.min_isr <= 1

    @property
    def high_watermark(self) -> int:
        """The offset before which all records are committed; consumers read up to it."""
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which a consumer with ``read_committed`` reads.

        See ``ReadableLog.last_stable_offset``.
        """
        return self.log.last_stable_offset

    def advance_high_watermark(self) -> None:
        """Advance the high watermark to the lowest log end offset of the in-sync replicas.

        The leader counts with the offset up to which its flush policy allows acknowledgements,
        which may be below its log end offset. The high watermark does not change while fewer than
        ``min_isr`` replicas are in sync. This method never lowers the high watermark.

        Source: Kafka's `Partition.maybeIncrementLeaderHW`.
        """
        if len(self.isr) < self.min_isr:
            return
        log = self.log
        end = log.flush_policy_end
        for replica in self.isr:
            if replica != self.leader:
                end = min(end, self._replica_ends.get(replica, NO_OFFSET))
        if end <= log.high_watermark:
            return
        log.high_watermark = end
        size = self.commits.advanced(end)
        if size:
            for listener in self.high_watermark_listeners:
                listener(size)
        self.commits.wake()

    def commits_late(self, acks: int) -> bool:
        """Whether the acknowledgement of an append with these ``acks`` may have to wait."""
        # Hot path, measured by benchmarks/micro/produce.py. `log` is not used, because a property
        # costs a call.
        log = self._log
        if log is None or self.unavailable is not None:
            raise self._refusal()
        if log.durability.may_wait:
            return True
        return acks == ALL and (not self._commits_alone or bool(self.commits.pending))

    def log_in(self, leader_epoch: int) -> PartitionLog:
        """Return the log, for work that belongs to the leadership of ``leader_epoch``.

        Raises:
            NotLeaderOrFollower: this node does not lead the partition in this epoch.
            KafkaStorage: the log cannot be used.
            UnknownTopicOrPartition: the topic was deleted.
        """
        log = self.log
        self.check_epoch(leader_epoch)
        return log

    def check_epoch(self, leader_epoch: int) -> None:
        """Check that the leadership of ``leader_epoch`` is not over.

        Raises:
            NotLeaderOrFollower: another epoch has begun, perhaps with this node as leader again.
        """
        if self.leader_epoch != leader_epoch:
            raise NotLeaderOrFollower(
                f"leader epoch {leader_epoch} of {self.name} has ended: the current one is "
                f"{self.leader_epoch}"
            )

    def log_changed(self) -> None:
        """Handle a change of the log; see ``LogListener.log_changed``."""
        if self.is_online:
            self.commits.truncated(self.log.log_end_offset)
            self.advance_high_watermark()
        self.commits.wake()

    def visible_end(self, replica_id: int, read_committed: bool) -> int:
        """Return the offset up to which a consumer or a replica may read the log.

        Raises:
            KafkaStorage: the log cannot be used.
            NotLeaderOrFollower: this node does not lead the partition, or the partition has no
                replica on node `replica_id`.
            UnknownTopicOrPartition: the topic was deleted.
        """
        if replica_id == CONSUMER:
            log = self.log
            return log.last_stable_offset if read_committed else log.high_watermark
        if replica_id == DEBUGGING_CONSUMER or replica_id in self.replicas:
            return self.log.log_end_offset
        raise NotLeaderOrFollower(f"node {replica_id} is not a replica of {self.name}")

    def append(
        self,
        records: memoryview,
        headers: Sequence[BatchHeader],
        *,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
    ) -> AppendResult:
        """Append batches that ``admit`` or ``admit_own`` accepted.

        On return the batches are in the log, but are not necessarily committed. The errors of
        ``log`` and of `PartitionLog.append` are raised.
        """
        prepared = self.log.prepare(records, headers, now_ms=now_ms, origin=origin)
        return self.append_prepared(prepared)

    def append_prepared(self, prepared: Appendable) -> AppendResult:
        """Append batches that were checked before; see `PartitionLog.append_prepared`."""
        # Hot path, measured by benchmarks/raw_load.py.
        log = self._log
        if log is None or self.unavailable is not None:
            raise self._refusal()
        result = log.append_prepared(prepared, leader_epoch=self.leader_epoch)
        if result.duplicate:
            return result
        end = result.last_offset + 1
        if self._commits_alone and not log.durability.may_wait and not self.commits.pending:
            log.high_watermark = end
            for listener in self.high_watermark_listeners:
                listener(prepared.size)
        else:
            self.commits.appended(end, prepared.size)
            self.advance_high_watermark()
        return result

    async def append_as_follower(
        self,
        data: memoryview,
        headers: Sequence[BatchHeader],
        *,
        leader_epoch: int,
        offload: Offload,
        now_ms: int,
    ) -> int:
        """Append batches that were fetched from the leader; return the new log end offset.

        After DeleteRecords the log start offset of the leader may lie inside a batch. If a follower
        without records fetches from this offset, it receives the whole batch. In that case, its log
        is restarted at the first offset of the batch. Every other batch that begins below the log
        end offset is refused, because the follower first has to truncate its log by leader epoch.

        Args:
            leader_epoch: leader epoch of the leader that sent the batches.
            offload: runs the reads and writes of files off the loop.

        Raises:
            UnexpectedAppendOffset, CorruptRecord: see `PartitionLog.append_as_follower`.
            NotLeaderOrFollower: this node leads the partition, or has no replica of it, or has not
                opened its log yet.
            KafkaStorage: the log cannot be used, or see `PartitionLog.append_as_follower`.
            UnknownTopicOrPartition: the topic was deleted.
            FencedLeaderEpoch: ``leader_epoch`` is older than the partition's leader epoch here.
            UnknownLeaderEpoch: ``leader_epoch`` is newer than the partition's leader epoch here.

        Source: Kafka's `Partition.appendRecordsToFollowerOrFutureReplica`.
        """
        log = self._followed_log(leader_epoch)
        try:
            return log.append_as_follower(data, headers, leader_epoch=leader_epoch, now_ms=now_ms)
        except UnexpectedAppendOffset as error:
            end_offset = log.log_end_offset
            is_empty = log.log_start_offset == end_offset
            if not is_empty or not error.first_offset < end_offset <= error.last_offset:
                raise
            first_offset = error.first_offset
        await log.start_at(first_offset, offload, now_ms=now_ms)
        log = self._followed_log(leader_epoch)
        return log.append_as_follower(data, headers, leader_epoch=leader_epoch, now_ms=now_ms)

    def _followed_log(self, leader_epoch: int) -> PartitionLog:
        """Return the log, for batches that the leader of `leader_epoch` sent."""
        if self._log is None:
            raise self._refusal()
        if self.is_online:
            raise NotLeaderOrFollower(f"{self.name} is led by this node")
        if leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch()
        if leader_epoch > self.leader_epoch:
            raise UnknownLeaderEpoch()
        return self._log

    def delete_records(self, offset: int) -> int:
        """Delete the records before an offset; return the log start offset afterwards.

        An offset below the log start offset changes nothing.

        Args:
            offset: the first offset to keep; -1 for the high watermark.

        Raises:
            KafkaStorage, NotLeaderOrFollower, UnknownTopicOrPartition: see `log` and
                `PartitionLog.delete_records`.
            PolicyViolation: the topic's ``cleanup.policy`` is compact, without delete.
            OffsetOutOfRange: ``offset`` is less than -1, or above the high watermark.

        Source: Kafka's `Partition.deleteRecordsOnLeader`.
        """
        log = self.log
        if self.topic.config.only_compacted:  # an empty cleanup.policy permits DeleteRecords
            raise PolicyViolation(f"cleanup.policy of {self.topic.name} does not include delete")
        if offset == HIGH_WATERMARK:
            offset = log.high_watermark
        if offset < 0:
            raise OffsetOutOfRange(f"offset {offset} is negative", topic_partition=self.name)
        return log.delete_records(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the newest epoch in the log that is not above `epoch`, and its end offset.

        The log end offset is the end offset of the newest epoch in the log, and of the partition's
        leader epoch. If `epoch` is before all epochs in the log, returns `epoch` and the offset at
        which the oldest epoch in the log begins. Returns (-1, -1) if `epoch` is -1, or if it is
        after all epochs in the log and is not the partition's leader epoch.

        Source: Kafka's `LeaderEpochFileCache.endOffsetFor`.
        """
        log = self.log
        if epoch == NO_EPOCH:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.leader_epoch:
            return epoch, log.log_end_offset
        return log.end_offset_for_epoch(epoch)


def check_leader_epoch(partition: Partition, epoch: int) -> None:
    """Check that a client's leader epoch equals the partition's.

    Epoch -1 is not checked, and no epoch is checked if this node does not serve the partition.

    Raises:
        FencedLeaderEpoch: the client's epoch is older; the client must refresh its metadata.
        UnknownLeaderEpoch: the client's epoch is newer; the client must retry later.
    """
    if epoch == NO_EPOCH or epoch == partition.leader_epoch or not partition.is_online:
        return  # if this node does not serve the partition, the access to its log raises the error
    if epoch < partition.leader_epoch:
        raise FencedLeaderEpoch()
    raise UnknownLeaderEpoch()
