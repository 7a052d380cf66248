"""Recovery of open transactions after an unclean shutdown; `lost_transactions` decides each case.

The logs of a partition and of `__transaction_state` are separate files, and either may lose its
last records in a power cut. Without a comparison, a transaction that one log lost might stay open
in the partition forever, or end in some of its partitions only. Until a producer's open transaction
is compared, the producer's transactional batches get NOT_ENOUGH_REPLICAS, and the producer retries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Final, Protocol

from aiokq.broker.coordinator.shard import TransactionalProducer
from aiokq.core.errors import BrokerError

if TYPE_CHECKING:
    from aiokq.broker.coordinator.transaction.completion import MarkerLog
    from aiokq.broker.coordinator.transaction.lost_transactions import Found, Verdict
    from aiokq.broker.coordinator.transaction.transaction_metadata import TransactionMetadata
    from aiokq.broker.log.producer_state import ProducerEntry
    from aiokq.broker.replica.partition import Partition
    from aiokq.core.background import BackgroundWork
    from aiokq.core.counters import CounterBy
    from aiokq.core.types import TopicPartition

__all__ = ["TransactionRecovery"]

logger = logging.getLogger("aiokq.broker.coordinator")

RETRY_SECONDS: Final = 0.1
"""Pause before partitions that could not be compared are compared again."""

PRODUCERS_PER_TURN: Final = 256
"""The number of producers compared before other tasks run."""

_TASK: Final = "recover transactions"


class _Coordinator(Protocol):
    """The methods of the transaction coordinator that the recovery calls."""

    def find(self, producer_id: int) -> Found | None: ...

    def find_current(self, producer_id: int) -> TransactionMetadata | None: ...

    async def restore_partition(
        self, found: TransactionMetadata, partition: TopicPartition
    ) -> bool: ...

    async def abandon(
        self, found: TransactionMetadata, partition: TopicPartition, seen_epoch: int
    ) -> bool: ...

    async def restore_epoch(self, found: TransactionMetadata, seen_epoch: int) -> bool: ...


class TransactionRecovery:
    """A `LeadershipListener` that compares uncleanly closed logs with the transaction coordinator.

    Args:
        was_clean: returns whether the log of a partition was closed cleanly.
        coordinator: the transaction coordinator, whose transactions are compared with those in the
            partitions.
        own_topic: the topic of the coordinator, which contains no transactional batches.
        markers: writes the markers.
        spawn: runs a coroutine in the background, until the node is closed.
        background: reports bugs, and determines the pause before the next attempt.
        counter: counts the verdicts.
    """

    def __init__(
        self,
        *,
        was_clean: Callable[[TopicPartition], bool],
        coordinator: _Coordinator,
        own_topic: str,
        markers: MarkerLog,
        spawn: Callable[[Coroutine[object, None, None], str], asyncio.Task[None]],
        background: BackgroundWork,
        counter: CounterBy,
    ) -> None:
        self._was_clean = was_clean
        self._coordinator = coordinator
        self._own_topic = own_topic
        self._markers = markers
        self._spawn = spawn
        self._background = background
        self._counter = counter
        self._pending: dict[Partition, None] = {}
        self._task: asyncio.Task[None] | None = None

    def elected(self, partition: Partition) -> None:
        """Begin to compare a partition's open transactions with those of the coordinator.

        Nothing is compared if the log was closed cleanly or has had no transaction, or if the
        partition belongs to `__transaction_state`.
        """
        if partition.topic.name == self._own_topic or self._was_clean(partition.name):
            return
        producers = partition.log.producers
        producers.distrust_open_transactions()
        if not any(each.coordinator_epoch >= 0 for each in producers) and not producers.unverified:
            return  # no producer in the log has had a transaction
        self._pending[partition] = None
        if self._task is None:
            self._task = self._spawn(self._run(), _TASK)

    def resigned(self, partition: Partition) -> None:
        """End the comparison of a partition; `elected` begins a new one."""
        self._pending.pop(partition, None)

    async def finished(self, timeout: float) -> None:
        """Wait until all partitions are compared, at most `timeout` seconds."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout)

    async def _run(self) -> None:
        task = self._background.task(_TASK)
        pause = 0.0
        while self._pending:
            await asyncio.sleep(pause)
            pause = RETRY_SECONDS
            for partition in list(self._pending):
                try:
                    finished = await self._compare(partition)
                except BrokerError as error:
                    # A shard is being loaded, or a log cannot be written now.
                    logger.debug("partition=%s is compared later: %s", partition.name, error)
                except Exception as error:  # noqa: BLE001 - other partitions are still compared
                    pause = max(pause, task.failed(error))
                else:
                    if finished:
                        self._pending.pop(partition, None)
        self._task = None

    async def _compare(self, partition: Partition) -> bool:
        """Compare a partition's open transactions; return whether the comparison has ended.

        Raises:
            BrokerError: the coordinator is not available, or a log cannot be written.
        """
        from aiokq.broker.coordinator.transaction.lost_transactions import compare

        producers = partition.log.producers
        for entry in producers.unverified:
            if partition not in self._pending:
                return True
            found = self._coordinator.find(entry.producer_id)
            verdict = compare(entry, partition.name, found)
            offset, epoch = entry.transaction_first_offset, entry.producer_epoch
            if await self._act(partition, entry, verdict, found):
                self._tell(partition, verdict, entry.producer_id, epoch, offset, found)
        return not producers.unverified and await self._restore_epochs(partition)

    async def _restore_epochs(self, partition: Partition) -> bool:
        """Write newer epochs of a partition to the coordinator; return whether all were written.

        If the coordinator kept an older epoch, it might return that epoch to a producer, and the
        partition would refuse the producer's batches.

        Raises:
            BrokerError: the coordinator is not available, or its log cannot be written.
        """
        finished = True
        for number, entry in enumerate(list(partition.log.producers)):
            if number % PRODUCERS_PER_TURN == PRODUCERS_PER_TURN - 1:
                await asyncio.sleep(0)
            if entry.coordinator_epoch < 0 or entry.transaction_first_offset is not None:
                continue
            found = self._coordinator.find_current(entry.producer_id)
            epoch = entry.producer_epoch
            if found is None or epoch <= found.producer_epoch:
                continue
            if not await self._coordinator.restore_epoch(found, epoch):
                finished = False
                continue
            logger.warning(
                "epoch restored after an unclean shutdown: transactional_id=%s producer_id=%d "
                "epoch=%d lost_epoch=%d partition=%s",
                found.transactional_id,
                entry.producer_id,
                found.producer_epoch,
                epoch,
                partition.name,
            )
        return finished

    async def _act(
        self,
        partition: Partition,
        entry: ProducerEntry,
        verdict: Verdict,
        found: Found | None,
    ) -> bool:
        """Carry out a verdict; return False if the coordinator's state has changed meanwhile.

        Raises:
            BrokerError: the coordinator or the partition cannot be written.
        """
        from aiokq.broker.coordinator.transaction.lost_transactions import Verdict
        from aiokq.broker.coordinator.transaction.transaction_metadata import LAST_EPOCH

        name, epoch = partition.name, entry.producer_epoch
        if verdict is Verdict.INCOMPLETE:
            assert found is not None
            if not await self._coordinator.restore_partition(found.metadata, name):
                return False
        if verdict in (Verdict.ONGOING, Verdict.INCOMPLETE):
            partition.log.producers.verified(entry.producer_id)
            return True
        if (
            verdict is Verdict.UNKNOWN
            and found is not None
            and max(epoch, found.metadata.producer_epoch) <= LAST_EPOCH
        ):
            # The coordinator writes the marker, with an epoch that fences the producer.
            if not await self._coordinator.abandon(found.metadata, name, epoch):
                return False
            partition.log.producers.verified(entry.producer_id)
            return True
        await self._end(name, entry, verdict, found)
        return True

    async def _end(
        self,
        partition: TopicPartition,
        entry: ProducerEntry,
        verdict: Verdict,
        found: Found | None,
    ) -> None:
        """Write the marker of a transaction that the coordinator will not end.

        Raises:
            BrokerError: the marker was not written, or was not committed.
        """
        from aiokq.broker.coordinator.transaction.lost_transactions import Verdict
        from aiokq.records.control import ControlType, EndTransactionMarker
        from aiokq.records.header import EPOCH_BUMP_VERSION

        epoch, version, coordinator_epoch = entry.producer_epoch, 0, entry.coordinator_epoch
        if found is not None:
            coordinator_epoch = max(coordinator_epoch, found.coordinator_epoch)
            if verdict in (Verdict.COMMITTED, Verdict.ABORTED):
                version = found.metadata.client_version
            if found.metadata.producer_id == entry.producer_id:
                epoch = max(epoch, found.metadata.producer_epoch)
            elif version >= EPOCH_BUMP_VERSION:
                epoch += 1  # the end bumped the epoch, then replaced the producer id
        kind = ControlType.COMMIT if verdict is Verdict.COMMITTED else ControlType.ABORT
        written = self._markers.write(
            partition,
            TransactionalProducer(entry.producer_id, epoch),
            EndTransactionMarker(kind, coordinator_epoch),
            version,
        )
        if written is not None:
            await written.committed()

    def _tell(
        self,
        partition: Partition,
        verdict: Verdict,
        producer_id: int,
        epoch: int,
        first_offset: int | None,
        found: Found | None,
    ) -> None:
        """Log and count a verdict."""
        self._counter[verdict.value] += 1
        logger.log(
            logging.INFO if verdict.value == "ongoing" else logging.WARNING,
            "open transaction after an unclean shutdown: verdict=%s partition=%s producer_id=%d "
            "epoch=%d first_offset=%s transactional_id=%s",
            verdict.value,
            partition.name,
            producer_id,
            epoch,
            first_offset,
            None if found is None else found.metadata.transactional_id,
        )
