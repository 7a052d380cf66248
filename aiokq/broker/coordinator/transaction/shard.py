"""The shard of the transaction coordinator: the transactional ids of one partition.

It decides and replays, and starts the timers of open transactions. Producer ids are handed in,
because reserving them takes time; markers are written by `completion`, which learns of prepared
transactions by a callback.

Source: KIP-98, KIP-360, KIP-588, KIP-890, Kafka ``TransactionCoordinator.scala``,
``TransactionStateManager.scala``.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, TypeVar

from aiokq.broker.coordinator.outcome import Deferred, Outcome
from aiokq.broker.coordinator.shard import NO_PRODUCER, TransactionalProducer
from aiokq.broker.coordinator.transaction.loading import TransactionLoad
from aiokq.broker.coordinator.transaction.record_types import (
    decode_metadata,
    record_of,
    tombstone,
)
from aiokq.broker.coordinator.transaction.states import TransactionState
from aiokq.broker.coordinator.transaction.transaction_metadata import (
    EPOCH_BUMP_VERSION,
    LAST_EPOCH,
    TransactionMetadata,
)
from aiokq.core.errors import (
    BrokerError,
    ConcurrentTransactions,
    InvalidPidMapping,
    InvalidTxnState,
    ProducerFenced,
    TransactionAbortable,
)
from aiokq.core.named_tuple import NamedTuple
from aiokq.records.header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from aiokq.broker.coordinator.record import CoordinatorRecord
    from aiokq.broker.coordinator.timers import Instant, Timers
    from aiokq.core.errors import ProtocolError
    from aiokq.core.types import TopicPartition

__all__ = ["NeedsProducerId", "PreparedTransaction", "ShardLimits", "TransactionShard"]

logger = logging.getLogger("aiokq.broker.coordinator")

R = TypeVar("R")

EXPIRED_PER_TURN: Final = 256
"""Transactional ids that are removed before other tasks run."""

_EXPIRY: Final = ("expiry",)
"""The key of the expiry timer; the other timers have transactional ids as keys."""


class NeedsProducerId(Exception):
    """An operation needs a producer id; the caller reserves one and runs the operation again."""


class PreparedTransaction(NamedTuple):
    """A transaction whose outcome is in the log, so that its markers are to be written."""

    metadata: TransactionMetadata
    coordinator_epoch: int
    end_offset: int
    """The markers may be written when the records before this offset are committed."""


class ShardLimits(NamedTuple):
    """The settings that a shard applies."""

    expiration_ms: int
    """``transactional.id.expiration.ms``"""
    expiry_interval_ms: int
    """``transaction.remove.expired.transaction.cleanup.interval.ms``"""


class TransactionShard:
    """A `Shard`: the transactional ids of one partition.

    Methods that handle requests return an `Outcome`. They raise the `BrokerError` that the client
    gets, or `NeedsProducerId`.

    Args:
        coordinator_epoch: the leader epoch of the partition, which goes into the markers.
        version: returns the finalized level of ``transaction.version``.
        prepared: called when a transaction is prepared, while its record is replayed. It must not
            write.

    Attributes:
        transactions: the metadata by transactional id; read only.
    """

    def __init__(
        self,
        timers: Timers,
        coordinator_epoch: int,
        *,
        limits: ShardLimits,
        version: Callable[[], int],
        prepared: Callable[[PreparedTransaction], None],
    ) -> None:
        self.transactions: dict[str, TransactionMetadata] = {}
        self.coordinator_epoch = coordinator_epoch
        self._timers = timers
        self._limits = limits
        self._version = version
        self._prepared = prepared
        self._ids: dict[int, str] = {}
        self._end_offset = 0
        self._active = False
        self._completions: dict[str, Deferred[bool]] = {}
        """The responses that wait for the markers of prepared transactions."""
        self._ended: dict[str, bytes] = {}
        """The encoded value of the last transaction of each id that ended before the load."""

    def __len__(self) -> int:
        return len(self.transactions)

    # --- InitProducerId

    def initialize(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: TransactionalProducer | None,
        spare_id: int | None,
        instant: Instant,
    ) -> Outcome[TransactionalProducer]:
        """Give a producer its id and epoch, which fences earlier producers of the id.

        An open transaction is aborted, and the producer asks again.

        Args:
            expected: the id and epoch that the producer has; None for a new producer.
            spare_id: a new producer id, if the caller has reserved one.

        Returns:
            The producer; `NO_PRODUCER_ID` with epoch -1 if a transaction is being aborted first.

        Raises:
            NeedsProducerId: ``spare_id`` is None, and one is needed.
            ConcurrentTransactions: the markers of the last transaction are still being written.
            ProducerFenced: ``expected`` is an earlier producer.
        """
        now_ms = instant.timestamp_ms
        current = self.transactions.get(transactional_id)
        if current is None:
            producer_id = _needed(spare_id)
            current = TransactionMetadata.new(transactional_id, producer_id, timeout_ms, now_ms)
        elif current.state.is_prepared:
            raise ConcurrentTransactions()
        elif expected is not None and not _may_be_current(expected, current):
            raise ProducerFenced(f"{transactional_id} has another producer now")
        if current.state is TransactionState.ONGOING:
            fenced = current.fenced(self._version(), now_ms)
            return self._decide(fenced, TransactionalProducer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH))
        expected_epoch = None if expected is None else expected.producer_epoch
        known: tuple[int | None, ...] = (None, current.producer_epoch)
        if current.producer_epoch > LAST_EPOCH:  # an epoch that only fences, given to nobody
            known = (*known, current.last_epoch)
        if current.is_epoch_exhausted and expected_epoch in known:
            after = current.id_rotated(
                _needed(spare_id),
                timeout_ms,
                keep_last_epoch=expected is not None,
                now_ms=now_ms,
            )
        else:
            after = current.epoch_bumped(timeout_ms, expected_epoch, now_ms)
        return self._decide(after, after.producer)

    # --- AddPartitionsToTxn, AddOffsetsToTxn, Produce and TxnOffsetCommit

    def add_partitions(
        self,
        transactional_id: str,
        producer: TransactionalProducer,
        partitions: Collection[TopicPartition],
        client_version: int,
        instant: Instant,
    ) -> Outcome[bool]:
        """Add partitions to the transaction; the first ones begin it.

        Args:
            client_version: the ``transaction.version`` that the request implies.

        Returns:
            True.

        Raises:
            InvalidPidMapping, ProducerFenced, ConcurrentTransactions: see `_checked`.
        """
        current = self._checked(transactional_id, producer)
        if current.state is TransactionState.ONGOING and current.partitions.issuperset(partitions):
            return Outcome(response=True)
        after = current.partitions_added(partitions, client_version, instant.timestamp_ms)
        if current.state.is_idle:
            self._watch(after, instant)
        return self._decide(after, True)

    def verify(
        self,
        transactional_id: str,
        producer: TransactionalProducer,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, BrokerError | None]:
        """Return for each partition None if it is in the transaction, else TRANSACTION_ABORTABLE.

        Raises:
            InvalidPidMapping, ProducerFenced, ConcurrentTransactions: see `_checked`.
        """
        current = self._checked(transactional_id, producer)
        return {
            tp: None
            if tp in current.partitions
            else TransactionAbortable(f"{tp} is not in the transaction of {transactional_id}")
            for tp in partitions
        }

    def _checked(
        self, transactional_id: str, producer: TransactionalProducer
    ) -> TransactionMetadata:
        """Return the metadata of an id, if this is its producer and no marker is missing.

        Raises:
            InvalidPidMapping: the transactional id has another producer id, or none.
            ProducerFenced: the producer id has another epoch.
            ConcurrentTransactions: the markers of the last transaction are still being written.
        """
        prepared = self.transactions.get(transactional_id)
        if prepared is not None and prepared.state.is_prepared:
            # First, because the producer may have its next id already, which is current only when
            # all markers are written.
            raise ConcurrentTransactions()
        current = self._known(transactional_id, producer.producer_id)
        if current.producer_epoch != producer.producer_epoch:
            raise _fenced(producer, current)
        return current

    def _known(self, transactional_id: str, producer_id: int) -> TransactionMetadata:
        current = self.transactions.get(transactional_id)
        if current is None:
            raise InvalidPidMapping(f"{transactional_id} has no producer id")
        if current.producer_id != producer_id:
            raise InvalidPidMapping(
                f"the producer id of {transactional_id} is {current.producer_id}, not {producer_id}"
            )
        return current

    # --- EndTxn

    def end(
        self,
        transactional_id: str,
        producer: TransactionalProducer,
        *,
        committed: bool,
        client_version: int,
        spare_id: int | None,
        instant: Instant,
    ) -> Outcome[TransactionalProducer]:
        """Decide a transaction; the markers follow.

        Returns:
            The id and epoch of the producer's next transaction.

        Raises:
            NeedsProducerId: ``spare_id`` is None, and the epochs of the producer are used up.
            InvalidPidMapping: the transactional id has another producer id, or none.
            ProducerFenced: the producer id has another epoch.
            ConcurrentTransactions: the transaction was decided in this way, and its markers are
                being written.
            InvalidTxnState: there is no transaction, or it was decided in the other way.
        """
        if client_version < EPOCH_BUMP_VERSION:
            return self._end_without_bump(transactional_id, producer, committed, instant)
        return self._end_with_bump(
            transactional_id, producer, committed, client_version, spare_id, instant
        )

    def _end_without_bump(
        self,
        transactional_id: str,
        producer: TransactionalProducer,
        committed: bool,
        instant: Instant,
    ) -> Outcome[TransactionalProducer]:
        current = self._known(transactional_id, producer.producer_id)
        if current.producer_epoch != producer.producer_epoch:
            raise _fenced(producer, current)
        if current.state is TransactionState.ONGOING:
            after = current.prepared(
                committed=committed,
                client_version=0,
                next_producer_id=NO_PRODUCER_ID,
                now_ms=instant.timestamp_ms,
            )
            return self._decide(after, after.producer)
        if current.state in _outcomes(committed):
            if current.state.is_prepared:
                raise ConcurrentTransactions()
            return Outcome(response=current.producer)
        raise _wrong_state(current, committed)

    def _end_with_bump(
        self,
        transactional_id: str,
        producer: TransactionalProducer,
        committed: bool,
        client_version: int,
        spare_id: int | None,
        instant: Instant,
    ) -> Outcome[TransactionalProducer]:
        """End a transaction of version 2, where a repeated request is told by its epoch.

        The epoch of a repeated request is the one before the current one. Without a transaction,
        an abort bumps the epoch: the producer does not know whether a batch began the transaction,
        and a batch that arrives late must not begin it.
        """
        current = self.transactions.get(transactional_id)
        if current is None:
            raise InvalidPidMapping(f"{transactional_id} has no producer id")
        state = current.state
        after_rotation = (
            current.previous_producer_id == producer.producer_id
            and current.producer_id != producer.producer_id
            and producer.producer_epoch == LAST_EPOCH
            and current.producer_epoch == 0
        )
        if state.is_prepared and (
            producer == current.producer or producer.producer_id == current.next_producer_id
        ):
            raise ConcurrentTransactions()  # the producer's next transaction, which began early
        if current.producer_id != producer.producer_id and not after_rotation:
            raise InvalidPidMapping(
                f"the producer id of {transactional_id} is {current.producer_id}, not "
                f"{producer.producer_id}"
            )
        decided = state not in (TransactionState.EMPTY, TransactionState.ONGOING)
        repeated = decided and (
            after_rotation or current.producer_epoch == producer.producer_epoch + 1
        )
        is_current = not after_rotation and current.producer_epoch == producer.producer_epoch
        if not repeated and (not is_current or state.is_prepared):
            raise _fenced(producer, current)
        if repeated:
            if state not in _outcomes(committed):
                raise _wrong_state(current, committed)
            if state.is_prepared:
                raise ConcurrentTransactions()
            if current.producer_epoch > LAST_EPOCH:
                # The transaction timed out, and this epoch fenced its producer, which has noticed
                # by aborting. No producer gets the epoch: the next one could not be fenced.
                after = current.id_replaced(_needed(spare_id), instant.timestamp_ms)
                return self._decide(after, after.producer)
            return Outcome(response=current.producer)
        if state is not TransactionState.ONGOING and committed:
            raise _wrong_state(current, committed)
        next_id = _needed(spare_id) if current.is_epoch_exhausted else NO_PRODUCER_ID
        after = current.prepared(
            committed=committed,
            client_version=client_version,
            next_producer_id=next_id,
            now_ms=instant.timestamp_ms,
        )
        return self._decide(after, after.completed(instant.timestamp_ms).producer)

    def complete(self, prepared: TransactionMetadata, instant: Instant) -> Outcome[bool]:
        """Note that all markers of a prepared transaction are written.

        Returns:
            Whether the transaction was still prepared.
        """
        current = self.transactions.get(prepared.transactional_id)
        if current != prepared:
            return Outcome(response=False)
        return self._decide(current.completed(instant.timestamp_ms), True)

    def completion(self, transactional_id: str) -> Outcome[bool]:
        """Wait until the markers of a prepared transaction are written; write nothing.

        Returns:
            True; at once if the transaction is not prepared.
        """
        current = self.transactions.get(transactional_id)
        if current is None or not current.state.is_prepared:
            return Outcome(response=True)
        deferred = self._completions.get(transactional_id)
        if deferred is None:
            deferred = self._completions[transactional_id] = Deferred()
        return Outcome(deferred=deferred)

    def _decide(self, metadata: TransactionMetadata, response: R) -> Outcome[R]:
        """Return the outcome that writes the metadata."""
        return Outcome([record_of(metadata)], response)

    # --- after an unclean shutdown

    def restore_partition(
        self, found: TransactionMetadata, partition: TopicPartition, instant: Instant
    ) -> Outcome[bool]:
        """Add a partition, with records of the transaction, that this shard has lost.

        Args:
            found: the metadata by which this was decided.

        Returns:
            Whether the metadata was still current.
        """
        current = self.transactions.get(found.transactional_id)
        if current != found:
            return Outcome(response=False)
        after = current.partitions_added((partition,), current.client_version, instant.timestamp_ms)
        return self._decide(after, True)

    def abandon(
        self,
        found: TransactionMetadata,
        partition: TopicPartition,
        seen_epoch: int,
        instant: Instant,
    ) -> Outcome[bool]:
        """Abort a transaction that a partition has and this shard has lost; fence its producer.

        Args:
            found: the metadata by which this was decided.
            seen_epoch: the epoch of the producer in the partition.

        Returns:
            Whether the metadata was still current.
        """
        current = self.transactions.get(found.transactional_id)
        if current != found:
            return Outcome(response=False)
        after = current.abandoned((partition,), seen_epoch, self._version(), instant.timestamp_ms)
        return self._decide(after, True)

    def restore_epoch(
        self, found: TransactionMetadata, seen_epoch: int, instant: Instant
    ) -> Outcome[bool]:
        """Take over an epoch that a partition has and this shard has lost.

        An open transaction is aborted: it has an earlier epoch, so that its end is lost, too.

        Args:
            found: the metadata by which this was decided.

        Returns:
            Whether the metadata was still current, and was not prepared.
        """
        current = self.transactions.get(found.transactional_id)
        if current != found or current.state.is_prepared:
            return Outcome(response=False)
        now_ms = instant.timestamp_ms
        if current.state is TransactionState.ONGOING and seen_epoch <= LAST_EPOCH:
            after = current.abandoned((), seen_epoch, self._version(), now_ms)
        elif current.state is TransactionState.ONGOING:
            return Outcome(response=False)
        else:
            after = current.epoch_restored(seen_epoch, now_ms)
        return self._decide(after, True)

    # --- time

    def _watch(self, transaction: TransactionMetadata, instant: Instant) -> None:
        """Have an open transaction aborted at its deadline."""
        remaining = (transaction.deadline_ms - instant.timestamp_ms) / 1000
        self._timers.schedule(
            transaction.transactional_id,
            instant.now + max(remaining, 0.0),
            functools.partial(self._time_out, transaction.transactional_id, transaction.started_ms),
        )

    def _time_out(
        self, transactional_id: str, started_ms: int, instant: Instant
    ) -> Outcome[None] | None:
        current = self.transactions.get(transactional_id)
        if (
            current is None
            or current.state is not TransactionState.ONGOING
            or current.started_ms != started_ms
        ):
            return None
        logger.info(
            "transaction timed out and is aborted: transactional_id=%s producer_id=%d epoch=%d "
            "timeout_ms=%d",
            transactional_id,
            current.producer_id,
            current.producer_epoch,
            current.timeout_ms,
        )
        return Outcome([record_of(current.fenced(self._version(), instant.timestamp_ms))])

    def _expire(self, instant: Instant) -> Outcome[None] | None:
        """Remove transactional ids that were idle for long; a part of them at a time."""
        oldest_ms = instant.timestamp_ms - self._limits.expiration_ms
        expired: list[str] = []
        for transactional_id, metadata in self.transactions.items():
            if metadata.state.is_idle and metadata.updated_ms <= oldest_ms:
                expired.append(transactional_id)
                if len(expired) == EXPIRED_PER_TURN:
                    break
        more = len(expired) == EXPIRED_PER_TURN
        self._schedule_expiry(instant, 0.0 if more else self._limits.expiry_interval_ms / 1000)
        if not expired:
            return None
        return Outcome([tombstone(each) for each in expired], atomic=False)

    def _schedule_expiry(self, instant: Instant, seconds: float) -> None:
        self._timers.schedule(_EXPIRY, instant.now + seconds, self._expire)

    # --- lookup

    def by_producer(self, producer_id: int) -> TransactionMetadata | None:
        """Return the metadata whose current producer id this is; None if there is none."""
        transactional_id = self._ids.get(producer_id)
        return None if transactional_id is None else self.transactions[transactional_id]

    def ended_partitions(self, transactional_id: str) -> frozenset[TopicPartition] | None:
        """Return the partitions of the last transaction, if it ended before the load; else None."""
        encoded = self._ended.get(transactional_id)
        return None if encoded is None else decode_metadata(transactional_id, encoded).partitions

    def by_previous_producer(self, producer_id: int) -> TransactionMetadata | None:
        """Return the metadata whose producer id this was until its last transition."""
        for metadata in self.transactions.values():
            if metadata.previous_producer_id == producer_id:
                return metadata
        return None

    # --- calls of the runtime

    def replay(
        self, record: CoordinatorRecord, *, offset: int, producer_id: int = NO_PRODUCER
    ) -> None:
        """Apply a record of the log; report a transaction that is prepared by it."""
        transactional_id, metadata = record
        assert isinstance(transactional_id, str)
        self._end_offset = offset + 1
        before = self.transactions.pop(transactional_id, None)
        if before is not None:
            self._ids.pop(before.producer_id, None)
        self._ended.pop(transactional_id, None)
        if metadata is None:
            self._timers.cancel(transactional_id)
            return
        assert isinstance(metadata, TransactionMetadata)
        self.transactions[transactional_id] = metadata
        self._ids[metadata.producer_id] = transactional_id
        if metadata.state is not TransactionState.ONGOING:
            self._timers.cancel(transactional_id)
        if not metadata.state.is_prepared:
            waiting = self._completions.pop(transactional_id, None)
            if waiting is not None:
                waiting.complete(True)
        elif self._active:
            self._report(metadata)

    def load(self, unreadable: Callable[[int, ProtocolError], None]) -> TransactionLoad:
        """Begin to load the log; see `Shard`."""
        return TransactionLoad(self, unreadable)

    def restore(self, metadata: TransactionMetadata, prepared: bytes | None) -> None:
        """Add a transactional id, while the log is loaded.

        Args:
            metadata: the content of the last record of the id.
            prepared: the last value before it that was prepared; None if there is none.
        """
        self.transactions[metadata.transactional_id] = metadata
        self._ids[metadata.producer_id] = metadata.transactional_id
        if prepared is not None:
            self._ended[metadata.transactional_id] = prepared

    def restored(self, end_offset: int) -> None:
        """Note the offset after the last record of the log that was loaded."""
        self._end_offset = end_offset

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Do nothing: no transaction writes to this log."""

    def loaded(self, instant: Instant) -> None:
        """Start the timers; report the transactions whose markers may be missing."""
        self._active = True
        for metadata in self.transactions.values():
            if metadata.state is TransactionState.ONGOING:
                self._watch(metadata, instant)
            elif metadata.state.is_prepared:
                self._report(metadata)
        self._schedule_expiry(instant, self._limits.expiry_interval_ms / 1000)

    def unloaded(self) -> None:
        """Report nothing any more; the runtime runs no timer of this shard."""
        self._active = False

    def _report(self, metadata: TransactionMetadata) -> None:
        self._prepared(PreparedTransaction(metadata, self.coordinator_epoch, self._end_offset))


def _needed(spare_id: int | None) -> int:
    if spare_id is None:
        raise NeedsProducerId
    return spare_id


def _may_be_current(expected: TransactionalProducer, current: TransactionMetadata) -> bool:
    """Whether a producer that asks for a new epoch may be the current one (KIP-360).

    It may be the producer before a change of the producer id, whose response was lost.
    """
    return expected.producer_id == current.producer_id or (
        expected.producer_id == current.previous_producer_id
        and expected.producer_epoch >= LAST_EPOCH
    )


def _outcomes(committed: bool) -> tuple[TransactionState, TransactionState]:
    """Return the states after a commit or an abort."""
    if committed:
        return TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT
    return TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT


def _fenced(producer: TransactionalProducer, current: TransactionMetadata) -> ProducerFenced:
    return ProducerFenced(
        f"the epoch of {current.transactional_id} is {current.producer_epoch}, not "
        f"{producer.producer_epoch}"
    )


def _wrong_state(current: TransactionMetadata, committed: bool) -> InvalidTxnState:
    verb = "commit" if committed else "abort"
    return InvalidTxnState(
        f"cannot {verb} the transaction of {current.transactional_id}: its state is "
        f"{current.state.kafka_name}"
    )
