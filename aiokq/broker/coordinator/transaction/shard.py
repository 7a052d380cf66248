"""The shard of the transaction coordinator: the transactional ids of one partition.

`initialization` decides about InitProducerId, and `ends` decides about EndTxn. The caller reserves
producer ids, because a shard cannot wait. A callback reports prepared transactions to `completion`,
which writes their markers.

Source: KIP-98, KIP-360, KIP-588, KIP-890, Kafka ``TransactionCoordinator.scala``,
``TransactionStateManager.scala``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeVar

from aiokq.broker.coordinator.outcome import Deferred, Outcome
from aiokq.broker.coordinator.shard import NO_PRODUCER, TransactionalProducer
from aiokq.broker.coordinator.transaction.deadlines import Deadlines, ShardLimits
from aiokq.broker.coordinator.transaction.decisions import fenced, known
from aiokq.broker.coordinator.transaction.ends import ended
from aiokq.broker.coordinator.transaction.initialization import initialized
from aiokq.broker.coordinator.transaction.loading import TransactionLoad
from aiokq.broker.coordinator.transaction.record_types import (
    decode_metadata,
    record_of,
)
from aiokq.broker.coordinator.transaction.states import TransactionState
from aiokq.broker.coordinator.transaction.transaction_metadata import (
    TransactionMetadata,
)
from aiokq.broker.coordinator.transaction.transitions import Cause
from aiokq.core.errors import (
    BrokerError,
    ConcurrentTransactions,
    TransactionAbortable,
)
from aiokq.core.named_tuple import NamedTuple
from aiokq.records.header import NO_PRODUCER_ID

if TYPE_CHECKING:
    from aiokq.broker.coordinator.record import CoordinatorRecord
    from aiokq.broker.coordinator.timers import Instant, Timers
    from aiokq.broker.coordinator.transaction.transitions import Transitions
    from aiokq.core.errors import ProtocolError
    from aiokq.core.types import TopicPartition

__all__ = ["PreparedTransaction", "TransactionShard"]

logger = logging.getLogger("aiokq.broker.coordinator")

R = TypeVar("R")


class PreparedTransaction(NamedTuple):
    """A transaction whose outcome is in the log, and whose markers have to be written."""

    metadata: TransactionMetadata
    shard: TransactionShard
    """The shard that has the transaction; each leadership of a partition has a new shard."""
    end_offset: int
    """The markers may be written when the records before this offset are committed."""


class TransactionShard:
    """A `Shard`: the transactional ids of one partition.

    A method that refuses a request raises a `BrokerError`. A method that needs a new producer id
    raises `NeedsProducerId`.

    Args:
        coordinator_epoch: the leader epoch of the partition, which goes into the markers.
        version: returns the finalized level of ``transaction.version``.
        prepared: called when the record that prepares a transaction is replayed, and after a load
            for each transaction that is prepared. The callback must not write.
        transitions: counts and logs the decisions of the shard.

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
        transitions: Transitions,
    ) -> None:
        self.transactions: dict[str, TransactionMetadata] = {}
        self.coordinator_epoch = coordinator_epoch
        self._deadlines = Deadlines(timers, self.transactions, limits, version, transitions)
        self._version = version
        self._prepared = prepared
        self._transitions = transitions
        self._ids: dict[int, str] = {}
        """The transactional id of each producer id."""
        self._previous_ids: dict[int, str] = {}
        """The transactional id of each producer id that was replaced by the last transition."""
        self._end_offset = 0
        self._active = False
        self._completions: dict[str, Deferred[bool]] = {}
        """The responses that wait for the markers of prepared transactions."""
        self._ended: dict[str, bytes] = {}
        """The encoded value of the record that prepared the last transaction, by transactional id.

        Only for transactions that ended before the load; see `ended_partitions`.
        """

    def __len__(self) -> int:
        return len(self.transactions)

    def initialize(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: TransactionalProducer | None,
        spare_id: int | None,
        instant: Instant,
    ) -> Outcome[TransactionalProducer]:
        """Return a producer id and epoch for a transactional id, and fence earlier producers.

        If a transaction is open, it is aborted, and the caller calls again afterwards.

        Args:
            expected: the id and epoch that the producer has; None for a new producer.
            spare_id: a new producer id, if the caller has reserved one.

        Returns:
            The producer; `NO_PRODUCER_ID` with epoch -1 if a transaction is being aborted first.

        Raises:
            NeedsProducerId: ``spare_id`` is None, and a new producer id is needed.
            ConcurrentTransactions: the markers of the last transaction are still being written.
            ProducerFenced: ``expected`` is an earlier producer.
        """
        before = self.transactions.get(transactional_id)
        decision = initialized(
            before,
            transactional_id,
            expected,
            timeout_ms=timeout_ms,
            server_version=self._version(),
            spare_id=spare_id,
            now_ms=instant.timestamp_ms,
        )
        return self._transitions.initialized(
            _outcome(*decision), before, named=expected is not None
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer: TransactionalProducer,
        partitions: Collection[TopicPartition],
        client_version: int,
        instant: Instant,
    ) -> Outcome[bool]:
        """Add partitions to the transaction; the first partitions begin the transaction.

        Args:
            client_version: the ``transaction.version`` that the request implies.

        Returns:
            The outcome, whose response is always True.

        Raises:
            ConcurrentTransactions: the markers of the last transaction are still being written.
            InvalidPidMapping, ProducerFenced: see `_checked`.
        """
        found = self.transactions.get(transactional_id)
        if found is not None and found.state.is_prepared:
            # Check this first: the producer may already use its next producer id, which becomes
            # current only when all markers are written.
            raise ConcurrentTransactions()
        current = self._checked(transactional_id, producer)
        if current.state is TransactionState.ONGOING and current.partitions.issuperset(partitions):
            return Outcome(response=True)
        after = current.partitions_added(partitions, client_version, instant.timestamp_ms)
        if current.state.is_idle:
            self._deadlines.watch(after, instant)
        return _outcome(after, True)

    def verify(
        self,
        transactional_id: str,
        producer: TransactionalProducer,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, BrokerError | None]:
        """Return for each partition None if it is in the transaction, else TRANSACTION_ABORTABLE.

        Raises:
            InvalidPidMapping, ProducerFenced: see `_checked`.
            ConcurrentTransactions: the markers of the last transaction are still being written.
        """
        current = self._checked(transactional_id, producer)
        if current.state.is_prepared:
            raise ConcurrentTransactions()
        return {
            tp: None
            if tp in current.partitions
            else TransactionAbortable(f"{tp} is not in the transaction of {transactional_id}")
            for tp in partitions
        }

    def _checked(
        self, transactional_id: str, producer: TransactionalProducer
    ) -> TransactionMetadata:
        """Return a transactional id's metadata, if it has this producer.

        Raises:
            InvalidPidMapping: the transactional id has another producer id, or none.
            ProducerFenced: the producer id has another epoch.
        """
        current = known(
            self.transactions.get(transactional_id), transactional_id, producer.producer_id
        )
        if current.producer_epoch != producer.producer_epoch:
            raise fenced(producer, current)
        return current

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
        """Commit or abort a transaction; its markers are written later.

        Returns:
            The id and epoch of the producer's next transaction.

        Raises:
            NeedsProducerId: ``spare_id`` is None, and the epochs of the producer are used up.
            InvalidPidMapping: the transactional id has another producer id, or none.
            ProducerFenced: the producer id has another epoch.
            ConcurrentTransactions: the request repeats the end of a transaction whose markers are
                being written, or ends the transaction after it.
            InvalidTxnState: no transaction is open, or the opposite decision was made. From
                ``transaction.version`` 2 on, an abort needs no open transaction.
        """
        before = self.transactions.get(transactional_id)
        decision = ended(
            before,
            transactional_id,
            producer,
            committed=committed,
            client_version=client_version,
            spare_id=spare_id,
            now_ms=instant.timestamp_ms,
        )
        outcome = _outcome(*decision)
        # Only the end of an open transaction is counted. Without one, the request is a repetition,
        # or an abort that ends nothing.
        if before is not None and before.state is TransactionState.ONGOING:
            self._transitions.ended(outcome, Cause.COMMIT if committed else Cause.ABORT)
        return outcome

    def complete(self, prepared: TransactionMetadata, instant: Instant) -> Outcome[bool]:
        """Record that all markers of a prepared transaction are written.

        Returns:
            Whether the transaction was still prepared.
        """
        current = self.transactions.get(prepared.transactional_id)
        if current != prepared:
            return Outcome(response=False)
        return _outcome(current.completed(instant.timestamp_ms), True)

    def completion(self, transactional_id: str) -> Outcome[bool]:
        """Return an outcome that completes when the markers of a prepared transaction are written.

        Returns:
            An outcome without records and with the response True. If a transaction is prepared, the
            response is deferred.
        """
        current = self.transactions.get(transactional_id)
        if current is None or not current.state.is_prepared:
            return Outcome(response=True)
        deferred = self._completions.get(transactional_id)
        if deferred is None:
            deferred = self._completions[transactional_id] = Deferred()
        return Outcome(deferred=deferred)

    def repair(
        self,
        found: TransactionMetadata,
        repaired: Callable[[TransactionMetadata, int, int], TransactionMetadata | None],
        instant: Instant,
    ) -> Outcome[bool]:
        """Write the metadata that a repair returns.

        Args:
            found: the metadata for which the repair was chosen.
            repaired: the repair, from the module `repairs`; called with the metadata, the level of
                ``transaction.version`` and the time in milliseconds.

        Returns:
            Whether the metadata was still current, and the repair applies to it.
        """
        if self.transactions.get(found.transactional_id) != found:
            return Outcome(response=False)
        after = repaired(found, self._version(), instant.timestamp_ms)
        outcome = _outcome(after, after is not None)
        if after is not None and after.state.is_prepared:
            self._transitions.ended(outcome, Cause.RECOVERY)
        return outcome

    def by_producer(self, producer_id: int) -> TransactionMetadata | None:
        """Return the metadata whose current producer id is `producer_id`; None if there is none."""
        transactional_id = self._ids.get(producer_id)
        return None if transactional_id is None else self.transactions[transactional_id]

    def ended_partitions(self, transactional_id: str) -> frozenset[TopicPartition] | None:
        """Return the partitions of the last transaction that ended before the load.

        None if there is no such transaction, or if a record of the transactional id was replayed
        after the load.
        """
        encoded = self._ended.get(transactional_id)
        return None if encoded is None else decode_metadata(transactional_id, encoded).partitions

    def by_previous_producer(self, producer_id: int) -> TransactionMetadata | None:
        """Return the metadata that had this producer id before its last transition, or None."""
        transactional_id = self._previous_ids.get(producer_id)
        return None if transactional_id is None else self.transactions[transactional_id]

    def replay(
        self, record: CoordinatorRecord, *, offset: int, producer_id: int = NO_PRODUCER
    ) -> None:
        """Apply a record of the log; report a transaction that the record prepares."""
        transactional_id, metadata = record
        assert isinstance(transactional_id, str)
        self._end_offset = offset + 1
        before = self.transactions.pop(transactional_id, None)
        if before is not None:
            self._ids.pop(before.producer_id, None)
            if self._previous_ids:
                self._previous_ids.pop(before.previous_producer_id, None)
        self._ended.pop(transactional_id, None)
        if metadata is None:
            self._deadlines.forget(transactional_id)
            return
        assert isinstance(metadata, TransactionMetadata)
        self.transactions[transactional_id] = metadata
        self._note_ids(metadata)
        if metadata.state is not TransactionState.ONGOING:
            self._deadlines.forget(transactional_id)
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
            metadata: the content of the last record of the transactional id.
            prepared: the encoded value of the newest earlier record whose state is prepared; None
                if there is no such record.
        """
        self.transactions[metadata.transactional_id] = metadata
        self._note_ids(metadata)
        if prepared is not None:
            self._ended[metadata.transactional_id] = prepared

    def _note_ids(self, metadata: TransactionMetadata) -> None:
        producer_id, previous = metadata.producer_id, metadata.previous_producer_id
        self._ids[producer_id] = metadata.transactional_id
        if previous != producer_id and previous != NO_PRODUCER_ID:
            self._previous_ids[previous] = metadata.transactional_id

    def restored(self, end_offset: int) -> None:
        """Store the offset after the last record of the log that was loaded."""
        self._end_offset = end_offset

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Do nothing: no transaction writes to this log."""

    def loaded(self, instant: Instant) -> None:
        """Start the timers; report the transactions whose markers may be missing."""
        self._active = True
        self._deadlines.begin(instant)
        for metadata in self.transactions.values():
            if metadata.state.is_prepared:
                self._report(metadata)

    def unloaded(self) -> None:
        """Stop reporting prepared transactions; the runtime runs no timers of a closed shard."""
        self._active = False

    def _report(self, metadata: TransactionMetadata) -> None:
        self._prepared(PreparedTransaction(metadata, self, self._end_offset))


def _outcome(after: TransactionMetadata | None, response: R) -> Outcome[R]:
    """Return an outcome that writes metadata; if `after` is None, it writes nothing."""
    return Outcome([] if after is None else [record_of(after)], response)
