"""`TransactionMetadata`: one transactional id, its producer and its transaction, immutable.

Each transition is a method that returns the metadata after it.

Source: KIP-98, KIP-360, KIP-890, Kafka ``TransactionMetadata.java``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.shard import TransactionalProducer
from aiokq.broker.coordinator.transaction.states import LEGAL_MOVES, TransactionState
from aiokq.core.errors import ProducerFenced
from aiokq.core.named_tuple import NamedTuple
from aiokq.records.header import EPOCH_BUMP_VERSION, NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from aiokq.core.types import TopicPartition

__all__ = ["LAST_EPOCH", "TransactionMetadata"]

LAST_EPOCH: Final = 2**15 - 2
"""The last epoch that a producer gets. The next epoch is reserved to fence that producer."""

NO_TIME: Final = -1


class TransactionMetadata(NamedTuple):
    """A transactional id, its producer and its transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    """The partitions of the open or prepared transaction; empty if there is none."""
    started_ms: int
    """When the last transaction began; -1 if none has begun since InitProducerId or a repair."""
    updated_ms: int
    """When the last record of the transactional id was written."""
    client_version: int = 0
    """The ``transaction.version`` of the transaction; from 2 on, its end bumps the epoch."""
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last transition."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id after the prepared transaction, if `producer_id` has no further epoch."""
    last_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before the last bump, which a repeated request still has; not in the log."""

    @classmethod
    def new(
        cls, transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int
    ) -> TransactionMetadata:
        """Return the metadata of a new transactional id, before its first epoch is chosen.

        Metadata without an epoch is never written to the log.
        """
        return cls(
            transactional_id,
            producer_id,
            NO_PRODUCER_EPOCH,
            timeout_ms,
            TransactionState.EMPTY,
            frozenset(),
            NO_TIME,
            now_ms,
        )

    @property
    def producer(self) -> TransactionalProducer:
        """The current producer id and epoch."""
        return TransactionalProducer(self.producer_id, self.producer_epoch)

    @property
    def next_producer(self) -> TransactionalProducer:
        """The producer id and epoch after the prepared transaction."""
        if self.client_version >= EPOCH_BUMP_VERSION and self.next_producer_id != NO_PRODUCER_ID:
            return TransactionalProducer(self.next_producer_id, 0)
        return self.producer

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the producer id has no further epoch for a producer."""
        return self.producer_epoch >= LAST_EPOCH

    @property
    def deadline_ms(self) -> int:
        """The time at which the coordinator aborts the transaction if it is still open."""
        return self.started_ms + self.timeout_ms

    def epoch_bumped(
        self, timeout_ms: int, expected_epoch: int | None, now_ms: int
    ) -> TransactionMetadata:
        """Return the metadata after InitProducerId, with the next epoch.

        A repeated request does not bump the epoch again.

        Args:
            expected_epoch: the epoch that the producer has; None for a producer without an epoch.

        Raises:
            ProducerFenced: ``expected_epoch`` is neither the current epoch nor `last_epoch`.
        """
        bumped = self.producer_epoch + 1
        if expected_epoch is None:
            # A later request with the previous epoch is from an earlier producer, not a repetition.
            epoch, last_epoch = bumped, NO_PRODUCER_EPOCH
        elif self.producer_epoch in (NO_PRODUCER_EPOCH, expected_epoch):
            epoch, last_epoch = bumped, self.producer_epoch
        elif expected_epoch == self.last_epoch:
            epoch, last_epoch = self.producer_epoch, self.last_epoch  # a repeated request
        else:
            raise ProducerFenced(
                f"epoch {expected_epoch} of {self.transactional_id} is neither its epoch "
                f"{self.producer_epoch} nor the one before"
            )
        return self._moved(
            TransactionState.EMPTY,
            now_ms,
            producer_epoch=epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=NO_TIME,
        )

    def id_rotated(
        self, producer_id: int, timeout_ms: int, *, keep_last_epoch: bool, now_ms: int
    ) -> TransactionMetadata:
        """Return the metadata after InitProducerId, with a new producer id and epoch 0.

        Args:
            keep_last_epoch: whether to keep the present epoch as `last_epoch`, by which a
                repetition of the request is recognized. True if the request had this epoch.
        """
        return self._moved(
            TransactionState.EMPTY,
            now_ms,
            producer_id=producer_id,
            producer_epoch=0,
            last_epoch=self.producer_epoch if keep_last_epoch else NO_PRODUCER_EPOCH,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=NO_TIME,
        )

    def id_replaced(self, producer_id: int, now_ms: int) -> TransactionMetadata:
        """Return the metadata with a new producer id and epoch 0, after a complete transaction."""
        assert self.state.is_idle
        return self._replace(
            producer_id=producer_id,
            producer_epoch=0,
            previous_producer_id=self.producer_id,
            updated_ms=max(now_ms, self.updated_ms),
        )

    def partitions_added(
        self, partitions: Iterable[TopicPartition], client_version: int, now_ms: int
    ) -> TransactionMetadata:
        """Return the metadata with partitions added; this begins a transaction if none is open."""
        return self._moved(
            TransactionState.ONGOING,
            now_ms,
            partitions=self.partitions.union(partitions),
            started_ms=now_ms if self.state.is_idle else self.started_ms,
            client_version=client_version,
        )

    def prepared(
        self, *, committed: bool, client_version: int, next_producer_id: int, now_ms: int
    ) -> TransactionMetadata:
        """Return the metadata after the decision to commit or to abort.

        Args:
            client_version: the ``transaction.version`` of the end; from `EPOCH_BUMP_VERSION` on,
                the epoch is bumped, and the markers have the new epoch.
            next_producer_id: the producer id after the transaction, if the epochs of the current
                producer id are used up; else `NO_PRODUCER_ID`.
        """
        bumps = client_version >= EPOCH_BUMP_VERSION
        assert not bumps or self.producer_epoch <= LAST_EPOCH
        return self._moved(
            TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT,
            now_ms,
            started_ms=now_ms if self.state.is_idle else self.started_ms,
            client_version=client_version,
            next_producer_id=next_producer_id,
            producer_epoch=self.producer_epoch + 1 if bumps else None,
            last_epoch=self.producer_epoch if bumps else None,
        )

    def fenced(self, server_version: int, now_ms: int) -> TransactionMetadata:
        """Return the metadata after the coordinator has decided to abort the transaction.

        The epoch is bumped, which fences the producer.
        """
        if server_version >= EPOCH_BUMP_VERSION:
            return self.prepared(
                committed=False,
                client_version=server_version,
                next_producer_id=NO_PRODUCER_ID,
                now_ms=now_ms,
            )
        return self._replace(
            producer_epoch=self.producer_epoch + 1, last_epoch=NO_PRODUCER_EPOCH
        ).prepared(
            committed=False, client_version=0, next_producer_id=NO_PRODUCER_ID, now_ms=now_ms
        )

    def abandoned(
        self,
        partitions: Iterable[TopicPartition],
        seen_epoch: int,
        server_version: int,
        now_ms: int,
    ) -> TransactionMetadata:
        """Return the metadata after a repair that aborts the transaction.

        Args:
            partitions: partitions to add to the transaction.
            seen_epoch: the producer's epoch in a partition; the new epoch is later than this epoch
                and fences the producer.
        """
        return self._replace(
            producer_epoch=max(self.producer_epoch, seen_epoch),
            partitions=self.partitions.union(partitions),
        ).fenced(server_version, now_ms)

    def epoch_restored(self, seen_epoch: int, now_ms: int) -> TransactionMetadata:
        """Return the metadata after a repair that sets the epoch, with no open transaction.

        Args:
            seen_epoch: the producer's epoch in a partition. The coordinator's log has lost the
                record with this epoch. After the repair, the producer with this epoch may continue.
        """
        return self._moved(
            TransactionState.EMPTY,
            now_ms,
            producer_epoch=seen_epoch,
            last_epoch=NO_PRODUCER_EPOCH,
            started_ms=NO_TIME,
        )

    def completed(self, now_ms: int) -> TransactionMetadata:
        """Return the metadata after all markers were written."""
        after = self.next_producer
        return self._moved(
            TransactionState.COMPLETE_COMMIT
            if self.state is TransactionState.PREPARE_COMMIT
            else TransactionState.COMPLETE_ABORT,
            now_ms,
            partitions=frozenset(),
            next_producer_id=NO_PRODUCER_ID,
            # `last_epoch` stays: a client that missed the response to EndTxn still has this epoch.
            producer_id=after.producer_id,
            producer_epoch=after.producer_epoch,
        )

    def _moved(
        self,
        state: TransactionState,
        now_ms: int,
        *,
        producer_id: int | None = None,
        producer_epoch: int | None = None,
        timeout_ms: int | None = None,
        partitions: frozenset[TopicPartition] | None = None,
        started_ms: int | None = None,
        client_version: int | None = None,
        next_producer_id: int | None = None,
        last_epoch: int | None = None,
    ) -> TransactionMetadata:
        """Return the metadata in another state; a field whose argument is None stays."""
        # Hot path, measured by benchmarks/micro/transactions.py. `_replace` takes twice as long.
        assert self.state in LEGAL_MOVES[state], f"{self.state.name} to {state.name}"
        return TransactionMetadata(
            self.transactional_id,
            self.producer_id if producer_id is None else producer_id,
            self.producer_epoch if producer_epoch is None else producer_epoch,
            self.timeout_ms if timeout_ms is None else timeout_ms,
            state,
            self.partitions if partitions is None else partitions,
            self.started_ms if started_ms is None else started_ms,
            # A clock that was set back must not make the metadata look older than it is.
            max(now_ms, self.updated_ms),
            self.client_version if client_version is None else client_version,
            self.producer_id,
            self.next_producer_id if next_producer_id is None else next_producer_id,
            self.last_epoch if last_epoch is None else last_epoch,
        )
