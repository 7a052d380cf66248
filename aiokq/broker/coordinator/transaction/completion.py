"""Completion of prepared transactions: writes their markers, then records their completion.

EndTxn, InitProducerId, a timeout or a repair prepares a transaction. A load may also find a
transaction in a prepared state. The response to EndTxn is sent before the markers are written, so
that the client does not wait for them. The markers are written immediately after the response,
before the broker handles a request that the client sends after the response. If a write has to wait
for a sync or for other replicas, or fails, a task completes the transaction.

Source: Kafka ``TransactionMarkerChannelManager.scala``,
``TransactionMarkerRequestCompletionHandler.scala``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Final, Protocol

from aiokq.broker.coordinator.transaction.states import TransactionState
from aiokq.core.errors import (
    BrokerError,
    InvalidProducerEpoch,
    TransactionCoordinatorFenced,
)
from aiokq.records.control import ControlType, EndTransactionMarker

if TYPE_CHECKING:
    from aiokq.broker.coordinator.outcome import Outcome
    from aiokq.broker.coordinator.shard import TransactionalProducer
    from aiokq.broker.coordinator.timers import Instant
    from aiokq.broker.coordinator.transaction.shard import PreparedTransaction, TransactionShard
    from aiokq.core.background import BackgroundWork
    from aiokq.core.types import TopicPartition

__all__ = ["MarkerLog", "TransactionCompletion", "TransactionLog", "WrittenMarker"]

logger = logging.getLogger("aiokq.broker.coordinator")

FIRST_RETRY_SECONDS: Final = 0.1
LONGEST_RETRY_SECONDS: Final = 1.0
"""The first and the longest pause, in seconds, before failed writes of markers are repeated.

The pause doubles after each failure, because a partition may be unavailable for long, and many
producers may have a prepared transaction in the partition.
"""

_TASK: Final = "transaction markers"


class WrittenMarker(Protocol):
    """A transaction marker that was appended to the log of a partition."""

    @property
    def is_committed(self) -> bool:
        """Whether the marker is committed."""
        ...

    async def committed(self) -> None:
        """Wait until the marker is committed.

        Raises:
            BrokerError: the leadership of the partition ended before the commit, or the wait took
                too long.
        """
        ...


class MarkerLog(Protocol):
    """Writes transaction markers to the logs of partitions."""

    def write(
        self,
        partition: TopicPartition,
        producer: TransactionalProducer,
        marker: EndTransactionMarker,
        transaction_version: int,
    ) -> WrittenMarker | None:
        """Append a marker; return None if the partition does not exist.

        Raises:
            InvalidProducerEpoch, TransactionCoordinatorFenced: a newer epoch of the producer or of
                the coordinator has written to the partition.
            BrokerError: the partition cannot be written now.
        """
        ...

    def is_open(self, partition: TopicPartition, producer_id: int) -> bool:
        """Whether a producer has an open transaction in a partition that this node leads."""
        ...


class TransactionLog(Protocol):
    """The part of the coordinator runtime that writes to `__transaction_state`."""

    def leads(self, key: str, shard: TransactionShard) -> bool: ...

    def is_committed(self, key: str, end_offset: int, shard: TransactionShard) -> bool: ...

    async def committed(self, key: str, end_offset: int, shard: TransactionShard) -> None: ...

    def append(
        self,
        key: str,
        operation: Callable[[TransactionShard, Instant], Outcome[bool]],
        *,
        shard: TransactionShard,
    ) -> bool: ...


class TransactionCompletion:
    """The prepared transactions of one node, until their markers are written.

    Args:
        transactions: the coordinator's own log.
        markers: writes the markers.
        spawn: runs a coroutine in the background, until the coordinator is closed.
        background: reports bugs, and determines the pause before the next attempt.
    """

    def __init__(
        self,
        transactions: TransactionLog,
        markers: MarkerLog,
        *,
        spawn: Callable[[Coroutine[object, None, None], str], object],
        background: BackgroundWork,
    ) -> None:
        self._transactions = transactions
        self._markers = markers
        self._spawn = spawn
        self._background = background
        self._prepared: deque[PreparedTransaction] = deque()
        self._handle: asyncio.Handle | None = None

    def prepared(self, transaction: PreparedTransaction) -> None:
        """Have `run` complete a transaction, at most two iterations of the event loop later.

        Called when the record that prepares the transaction is replayed, or at the end of a load.
        The delay lets the connection send the response to EndTxn first. Requests that arrive in the
        second iteration are handled after `run`.
        """
        self._prepared.append(transaction)
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_soon(self._run_next)

    def _run_next(self) -> None:
        self._handle = asyncio.get_running_loop().call_soon(self.run)

    def close(self) -> None:
        """Drop the transactions that wait for `run`; the next load reports them again."""
        self._prepared.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def run(self) -> None:
        """Complete the transactions that were prepared since the last call.

        Transactions that cannot be completed without waiting are completed by tasks.
        """
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        while self._prepared:
            work = _Completion(self._prepared.popleft(), self._transactions, self._markers)
            try:
                finished = work.try_now()
            except Exception as error:  # noqa: BLE001 - other transactions are still completed
                self._background.task(_TASK).failed(error)
                finished = False
            if not finished:
                self._spawn(self._finish(work), f"complete {work.transactional_id}")

    async def _finish(self, work: _Completion) -> None:
        task = self._background.task(_TASK)
        while True:
            try:
                await work.finish()
                return
            except Exception as error:  # noqa: BLE001 - the transaction must not hang
                await asyncio.sleep(task.failed(error))


class _Completion:
    """The completion of one prepared transaction."""

    def __init__(
        self, transaction: PreparedTransaction, transactions: TransactionLog, markers: MarkerLog
    ) -> None:
        self._metadata, self._shard, self._end_offset = transaction
        self._transactions = transactions
        self._markers = markers
        self._pending: dict[TopicPartition, WrittenMarker | None]
        self._pending = dict.fromkeys(sorted(self._metadata.partitions))
        """The uncommitted markers by partition; None for a marker that is not written yet."""
        self._refused: set[TopicPartition] = set()
        """The partitions for which a refused marker was logged."""

    @property
    def transactional_id(self) -> str:
        return self._metadata.transactional_id

    def try_now(self) -> bool:
        """Complete the transaction without waiting; return False if it is not completed."""
        log, key = self._transactions, self.transactional_id
        try:
            if not log.is_committed(key, self._end_offset, self._shard):
                return False
            self._write_markers()
            if any(marker is None or not marker.is_committed for marker in self._pending.values()):
                return False
            self._record()
        except BrokerError:
            return False
        return True

    async def finish(self) -> None:
        """Complete the transaction; wait and retry as long as this leadership lasts.

        If the leadership ends first, the next coordinator loads the transaction in its prepared
        state, and writes all its markers again.
        """
        log, key, shard = self._transactions, self.transactional_id, self._shard
        pause = FIRST_RETRY_SECONDS
        while log.leads(key, shard):
            try:
                await log.committed(key, self._end_offset, shard)
                self._write_markers()
                await self._markers_committed()
                if not self._pending:
                    self._record()
                    return
            except BrokerError as error:
                # The coordinator's own log cannot be written now, for example because its disk is
                # full, or this leadership has ended.
                logger.debug(
                    "transaction is not completed yet: transactional_id=%s error=%s", key, error
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_RETRY_SECONDS)

    def _write_markers(self) -> None:
        """Write the markers that are not written yet, in each partition that can be written now."""
        metadata = self._metadata
        committed = metadata.state is TransactionState.PREPARE_COMMIT
        kind = ControlType.COMMIT if committed else ControlType.ABORT
        marker = EndTransactionMarker(kind, self._shard.coordinator_epoch)
        for partition, written in list(self._pending.items()):
            if written is not None:
                continue
            try:
                appended = self._markers.write(
                    partition, metadata.producer, marker, metadata.client_version
                )
            except TransactionCoordinatorFenced as error:
                if self._markers.is_open(partition, metadata.producer_id):
                    # An administrator wrote a marker with a larger coordinator epoch. The
                    # transaction is not complete while it is open in a partition.
                    if partition not in self._refused:
                        self._refused.add(partition)
                        logger.error(
                            "transaction marker is refused, and the transaction stays open until "
                            "it is aborted with a larger coordinator epoch: partition=%s "
                            "transactional_id=%s error=%s",
                            partition,
                            metadata.transactional_id,
                            error,
                        )
                    continue
                appended = None
            except InvalidProducerEpoch as error:
                # A later batch or marker of the producer is in the partition, so this transaction
                # is not open there any more.
                logger.warning(
                    "transaction marker is not needed: partition=%s transactional_id=%s error=%s",
                    partition,
                    metadata.transactional_id,
                    error,
                )
                appended = None
            except BrokerError as error:
                logger.debug("transaction marker: partition=%s error=%s", partition, error)
                continue
            if appended is None:
                del self._pending[partition]
            else:
                self._pending[partition] = appended

    async def _markers_committed(self) -> None:
        """Wait until the written markers are committed; a lost marker counts as not written."""
        for partition, marker in list(self._pending.items()):
            if marker is None:
                continue
            try:
                await marker.committed()
            except BrokerError:
                self._pending[partition] = None
            else:
                del self._pending[partition]

    def _record(self) -> None:
        """Record that all markers are written."""
        prepared = self._metadata
        self._transactions.append(
            self.transactional_id,
            lambda shard, instant: shard.complete(prepared, instant),
            shard=self._shard,
        )
