"""The uncommitted appends of one partition, and the requests that wait for their commit.

``Partition`` advances the high watermark, and then wakes the requests that wait here.

Source: Kafka ``DelayedProduce.scala``, ``Partition.checkEnoughReplicasReachOffset``.
Tests: ``tests/unit/broker/replica/test_commits.py``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from aiokq.core.errors import NotEnoughReplicasAfterAppend, RequestTimeout

if TYPE_CHECKING:
    from aiokq.broker.log.partition_log import PartitionLog
    from aiokq.core.types import TopicPartition

__all__ = ["ALL", "COMMIT_TIMEOUT", "LEADER", "Commits"]

ALL: Final = -1
"""acks=all: the response to a Produce request is sent when its records are committed."""

LEADER: Final = 1
"""acks=1: the response is sent when the leader's flush policy allows it."""

COMMIT_TIMEOUT: Final = 30.0
"""The maximum number of seconds for which WriteTxnMarkers waits for the commit of its markers.

The transaction coordinator waits at most as long for the commit of its records. Source: Kafka's
default of ``request.timeout.ms``.
"""


class CommittingPartition(Protocol):
    """The part of a partition that its commits use."""

    @property
    def name(self) -> TopicPartition: ...
    @property
    def isr(self) -> tuple[int, ...]: ...
    @property
    def min_isr(self) -> int: ...
    @property
    def log(self) -> PartitionLog: ...

    def log_in(self, leader_epoch: int) -> PartitionLog: ...
    def check_epoch(self, leader_epoch: int) -> None: ...


class Commits:
    """The uncommitted appends of a partition's leader, and the requests that wait for commits.

    Attributes:
        pending: end offset and size in bytes of each append that is not committed, oldest first.
            None before the first such append, because most partitions never need the deque.
    """

    __slots__ = ("_partition", "_waiters", "pending")

    def __init__(self, partition: CommittingPartition) -> None:
        self._partition = partition
        self._waiters: dict[asyncio.Future[None], None] = {}  # in order of arrival
        self.pending: deque[tuple[int, int]] | None = None

    def appended(self, end_offset: int, size: int) -> None:
        """Add an append that is not committed yet."""
        if self.pending is None:
            self.pending = deque()
        self.pending.append((end_offset, size))

    def advanced(self, high_watermark: int) -> int:
        """Remove the appends that are committed now; return their total size in bytes."""
        size = 0
        while self.pending and self.pending[0][0] <= high_watermark:
            size += self.pending.popleft()[1]
        return size

    def truncated(self, log_end_offset: int) -> None:
        """Remove the appends that are not in the log any more."""
        while self.pending and self.pending[-1][0] > log_end_offset:
            self.pending.pop()

    async def acknowledged(
        self, offset: int, acks: int, leader_epoch: int, deadline: float | None = None
    ) -> None:
        """Wait until an append that ends before ``offset`` may be acknowledged.

        With any acks, wait until the leader's flush policy allows the acknowledgement. With
        acks=all, also wait until the records are committed, but not beyond ``deadline``. The wait
        for the flush policy has no timeout: in Kafka the flush is part of the append, and the
        timeout begins after the append.

        Args:
            leader_epoch: the leader epoch of the append. In a later epoch, another leader may have
                written other records at these offsets.
            deadline: the loop's time at which the wait for the commit ends; None waits without
                limit.

        Raises:
            RequestTimeout: acks=all, and the records are not committed at the deadline. They stay
                in the log and may be committed later.
            NotEnoughReplicasAfterAppend: the records are committed, but fewer than ``min_isr``
                replicas are in sync now.
            KafkaStorage: the disk failed or the log was closed; the records may still be in the log
                after a restart.
            NotLeaderOrFollower: the leadership of ``leader_epoch`` has ended; the records may be
                lost.
            UnknownTopicOrPartition: the topic was deleted.
        """
        partition = self._partition
        log = partition.log_in(leader_epoch)
        while log.flush_policy_end < offset:
            await self._changed(log, leader_epoch)
        if acks != ALL:
            return
        await self._committed(log, offset, leader_epoch, deadline)
        if len(partition.isr) < partition.min_isr:
            raise NotEnoughReplicasAfterAppend(
                f"in-sync replicas: {len(partition.isr)}, needed: {partition.min_isr}"
            )

    async def committed(
        self, offset: int, leader_epoch: int, deadline: float | None = None
    ) -> None:
        """Wait until the records before ``offset`` are committed.

        Args:
            leader_epoch, deadline: see ``acknowledged``.

        Raises:
            RequestTimeout, KafkaStorage, NotLeaderOrFollower, UnknownTopicOrPartition: see
                ``acknowledged``.
        """
        log = self._partition.log_in(leader_epoch)
        await self._committed(log, offset, leader_epoch, deadline)

    async def _committed(
        self, log: PartitionLog, offset: int, leader_epoch: int, deadline: float | None
    ) -> None:
        if log.high_watermark >= offset:
            return
        try:
            async with asyncio.timeout_at(deadline):
                while log.high_watermark < offset:
                    await self._changed(log, leader_epoch)
        except TimeoutError:
            # The commit and the deadline may fall into one iteration of the loop.
            self._partition.check_epoch(leader_epoch)
            if log.high_watermark >= offset:
                return
            name = self._partition.name
            raise RequestTimeout(
                f"{name} is committed up to offset {log.high_watermark}, not {offset}"
            ) from None

    async def _changed(self, log: PartitionLog, leader_epoch: int) -> None:
        """Wait until the high watermark, the in-sync replicas or the log have changed.

        Raises:
            KafkaStorage: the log cannot be written any more, or the partition went offline.
            NotLeaderOrFollower: the leadership of ``leader_epoch`` has ended.
            UnknownTopicOrPartition: the topic was deleted.
        """
        partition = self._partition
        partition.log  # noqa: B018 - raises the error if this node no longer leads the partition
        log.check_usable()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:  # do not keep a waiter that timed out or was cancelled
            self._waiters.pop(waiter, None)
        # Between the wake-up and this line, the node may have resigned and been elected again.
        partition.check_epoch(leader_epoch)

    def wake(self) -> None:
        """Wake all waiters, which check their condition again."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
