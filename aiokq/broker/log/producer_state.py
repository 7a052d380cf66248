"""The state of a partition's idempotent producers, used to detect sequence gaps and duplicates.

The state of a producer id is its epoch, its last five batches and its open transaction. The checks
are Kafka's; the ``Origin`` of an append determines which checks apply.

Source: Kafka ``ProducerStateManager.java``, ``ProducerAppendInfo.java``, KIP-98, KIP-360.
Tests: ``tests/unit/broker/log/test_producer_state.py``.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from aiokq.broker.log.transaction_index import AbortedTransaction
from aiokq.core.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from aiokq.core.named_tuple import NamedTuple
from aiokq.records.control import ControlType, EndTransactionMarker
from aiokq.records.header import (
    EPOCH_BUMP_VERSION,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    add_sequence,
)

BATCHES_REMEMBERED: Final = 5
"""Batches remembered per producer, to recognize retries: as many as may be in flight."""

COMPLETED_KEPT: Final = 64
"""``limit_completed`` begins to forget completed transactions when this many are kept."""

NO_OFFSET: Final = -1
_SEQUENCE_MAX: Final = 2**31 - 1


class Origin(enum.Enum):
    """The origin of an append; determines which checks apply."""

    CLIENT = "client"
    """A producer: all checks apply."""

    COORDINATOR = "coordinator"
    """A coordinator or the metadata log of this node: epochs are checked, sequences are not."""

    REPLICATION = "replication"
    """A leader that has checked the batches: only transaction markers are checked again."""


class BatchMetadata(NamedTuple):
    """A remembered batch of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_offset(self) -> int:
        """Offset of the first record."""
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        """Sequence of the first record."""
        return add_sequence(self.last_sequence, -self.offset_delta)


class ProducerEntry:
    """The state of one producer id.

    Attributes:
        last_seen_ms: when this broker last appended a batch of the producer, or loaded the entry.
        last_marker_ms: timestamp of the producer's last marker; -1 if it is not known. It is known
            from a snapshot only if no batch followed the marker.
        transaction_first_offset: first offset of the open transaction; None if there is none.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "last_marker_ms",
        "last_seen_ms",
        "last_timestamp_ms",
        "producer_epoch",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int, producer_epoch: int = NO_PRODUCER_EPOCH) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.batches: deque[BatchMetadata] = deque(maxlen=BATCHES_REMEMBERED)
        self.coordinator_epoch = -1
        self.transaction_first_offset: int | None = None
        self.last_timestamp_ms = -1
        self.last_marker_ms = -1
        self.last_seen_ms = 0

    @property
    def last_sequence(self) -> int:
        """The last sequence of the newest batch; -1 if none is remembered."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the remembered batch with the same epoch and sequences; None if there is none."""
        if header.producer_epoch != self.producer_epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                return batch
        return None


class ProducerState:
    """The producers of one partition.

    Attributes:
        map_end_offset: the offset up to which the log's batches are included in this state.
    """

    __slots__ = ("_completed", "_entries", "_forget_at", "_open", "_unverified", "map_end_offset")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        # first offset of each open transaction, by producer id; a dict of its own, because every
        # fetch needs the lowest of these offsets
        self._open: dict[int, int] = {}
        # completed transactions as (first offset, offset of the marker), kept until the high
        # watermark has passed the marker
        self._completed: list[tuple[int, int]] = []
        self._forget_at = COMPLETED_KEPT
        # producers whose open transactions were not compared with the coordinator yet
        self._unverified: set[int] = set()
        self.map_end_offset = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def get(self, producer_id: int) -> ProducerEntry | None:
        """Return the entry of a producer id; None if it is unknown."""
        return self._entries.get(producer_id)

    def has_open_transaction(self, producer_id: int) -> bool:
        """Whether a producer has an open transaction in the partition, in any epoch."""
        return producer_id in self._open

    def in_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a producer has an open transaction in the partition, in this epoch.

        An unverified transaction does not count; see ``distrust_open_transactions``.
        """
        # Hot path, measured by benchmarks/raw_load.py.
        if producer_id not in self._open or producer_id in self._unverified:
            return False
        return self._entries[producer_id].producer_epoch == producer_epoch

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Check that no newer epoch of a producer has written to the partition.

        Raises:
            InvalidProducerEpoch: a newer epoch has written to the partition.
        """
        entry = self._entries.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            raise _old_epoch(producer_id, producer_epoch, entry.producer_epoch)

    @property
    def unverified(self) -> list[ProducerEntry]:
        """The producers whose open transactions are to be compared with the coordinator."""
        return [self._entries[producer_id] for producer_id in sorted(self._unverified)]

    def distrust_open_transactions(self) -> None:
        """Mark all open transactions as unverified, because the coordinator may have lost them."""
        self._unverified = set(self._open)

    def is_unverified(self, producer_id: int) -> bool:
        """Whether a producer has an unverified transaction; see ``distrust_open_transactions``."""
        return producer_id in self._unverified

    def verified(self, producer_id: int) -> None:
        """Mark a producer's open transaction as verified: the coordinator knows it."""
        self._unverified.discard(producer_id)

    def check_start(self, header: BatchHeader) -> None:
        """Check that a batch may be the first batch of a transaction, with transaction version 2.

        If no batch of the producer is known, the sequence must be 0. Each transaction has a new
        epoch, which begins with sequence 0. A higher sequence means that an earlier batch of the
        transaction has not arrived yet.

        Raises:
            OutOfOrderSequence: no batch of the producer is known, and this batch does not begin
                with sequence 0.
        """
        entry = self._entries.get(header.producer_id)
        if header.base_sequence != 0 and (entry is None or not entry.batches):
            raise OutOfOrderSequence(
                f"producer {header.producer_id} begins its transaction with sequence "
                f"{header.base_sequence}, not 0"
            )

    def check(self, headers: Iterable[BatchHeader], origin: Origin) -> BatchMetadata | None:
        """Check that the batches of one append may be appended.

        Returns:
            The earlier batch that this append repeats; None if the append is new.

        Raises:
            InvalidProducerEpoch: a newer epoch of the producer has written to the partition.
            OutOfOrderSequence: a sequence does not follow the producer's last sequence, or a new
                epoch does not begin with sequence 0.
            InvalidTxnState: the producer has an open transaction, and a batch is not transactional.
        """
        seen: dict[int, BatchHeader] = {}  # the last batch of each producer in this append
        for header in headers:
            producer_id = header.producer_id
            if producer_id <= NO_PRODUCER_ID:
                continue
            entry = self._entries.get(producer_id)
            if origin is Origin.CLIENT and entry is not None:
                duplicate = entry.duplicate_of(header)
                if duplicate is not None:
                    return duplicate
            before = seen.get(producer_id) if seen else None
            if before is not None:
                self._check_batch(header, before.producer_epoch, before.last_sequence, origin)
            elif entry is not None:
                self._check_batch(header, entry.producer_epoch, entry.last_sequence, origin)
            else:
                self._check_batch(header, NO_PRODUCER_EPOCH, NO_SEQUENCE, origin)
            seen[producer_id] = header
        return None

    def _check_batch(
        self, header: BatchHeader, epoch: int, last_sequence: int, origin: Origin
    ) -> None:
        if origin is Origin.REPLICATION:
            return
        if header.producer_epoch < epoch:
            raise _old_epoch(header.producer_id, header.producer_epoch, epoch)
        if origin is not Origin.CLIENT or epoch == NO_PRODUCER_EPOCH:
            # Only the sequences of clients are checked. An unknown producer may start with any
            # sequence, because it may have expired, or its records may have been deleted.
            return
        first = header.base_sequence
        if header.producer_epoch != epoch:
            if first != 0:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} begins epoch {header.producer_epoch} with"
                    f" sequence {first}, not 0"
                )
        elif first != last_sequence + 1 and not (first == 0 and last_sequence == _SEQUENCE_MAX):
            raise OutOfOrderSequence(
                f"sequence {first} of producer {header.producer_id} does not follow the "
                f"producer's last sequence {last_sequence}"
            )
        if header.producer_id in self._open and not header.is_transactional:
            raise InvalidTxnState(
                f"producer {header.producer_id} has an open transaction, and the batch is not part "
                "of it"
            )

    def update(self, header: BatchHeader, now_ms: int) -> None:
        """Apply an appended data batch of a producer; ``header`` has its offsets in the log."""
        entry = self._entry(header.producer_id)
        if header.producer_epoch != entry.producer_epoch:
            entry.batches.clear()
            entry.producer_epoch = header.producer_epoch
        entry.batches.append(
            BatchMetadata(
                header.last_sequence,
                header.last_offset,
                header.last_offset_delta,
                header.max_timestamp_ms,
            )
        )
        entry.last_timestamp_ms = header.max_timestamp_ms
        entry.last_seen_ms = now_ms
        if header.is_transactional and entry.transaction_first_offset is None:
            entry.transaction_first_offset = header.base_offset
            self._open[header.producer_id] = header.base_offset

    def check_marker(
        self, header: BatchHeader, marker: EndTransactionMarker, transaction_version: int = 0
    ) -> None:
        """Check that a transaction marker may be appended.

        From transaction version 2 on, the producer epoch of a marker is one higher than the epoch
        of the transaction's batches. A marker with the epoch of the open transaction is therefore a
        delayed marker of the previous transaction. If no transaction is open, a marker with the
        current epoch is accepted, because it only repeats the last marker (KAFKA-19999).

        Args:
            transaction_version: the transaction version (KIP-890) with which the transaction ended.

        Raises:
            InvalidProducerEpoch: the marker's producer epoch is older than the current epoch, or
                the marker belongs to an earlier transaction than the open one.
            TransactionCoordinatorFenced: the marker has an older coordinator epoch than the
                producer's last marker.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return
        if header.producer_epoch < entry.producer_epoch:
            raise InvalidProducerEpoch(
                f"marker with epoch {header.producer_epoch} of producer {header.producer_id}, "
                f"whose current epoch is {entry.producer_epoch}"
            )
        if (
            transaction_version >= EPOCH_BUMP_VERSION
            and header.producer_epoch == entry.producer_epoch
            and entry.transaction_first_offset is not None
        ):
            raise InvalidProducerEpoch(
                f"marker with epoch {header.producer_epoch} of producer {header.producer_id}, "
                "whose transaction has this epoch, too"
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"marker of coordinator epoch {marker.coordinator_epoch}, but a marker of epoch "
                f"{entry.coordinator_epoch} was written before"
            )

    def end_transaction(
        self, header: BatchHeader, marker: EndTransactionMarker, now_ms: int
    ) -> AbortedTransaction | None:
        """Apply an appended marker; return the transaction if it was aborted and has records."""
        entry = self._entry(header.producer_id)
        if header.producer_epoch != entry.producer_epoch:
            entry.batches.clear()
            entry.producer_epoch = header.producer_epoch
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp_ms = entry.last_marker_ms = header.max_timestamp_ms
        entry.last_seen_ms = now_ms
        first, entry.transaction_first_offset = entry.transaction_first_offset, None
        self._open.pop(header.producer_id, None)
        self._unverified.discard(header.producer_id)
        if first is None:
            return None
        self._completed.append((first, header.last_offset))
        if marker.type is ControlType.COMMIT:
            return None
        stable = min(self._open.values(), default=header.next_offset)
        return AbortedTransaction(header.producer_id, first, header.last_offset, stable)

    def _entry(self, producer_id: int) -> ProducerEntry:
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id)
        return entry

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of the oldest open transaction; None if none is open.

        A transaction counts as open until its end marker is below the high watermark, and is then
        forgotten.
        """
        self._forget_completed(high_watermark)
        if not self._open and not self._completed:
            return None
        return min([*self._open.values(), *(first for first, _ in self._completed)])

    def limit_completed(self, high_watermark: int) -> None:
        """Forget completed transactions with markers below the high watermark, if there are many.

        Called for each appended marker. ``first_unstable_offset`` forgets them, too, but may never
        be called for a partition that is not read.
        """
        if len(self._completed) >= self._forget_at:
            self._forget_completed(high_watermark)
            self._forget_at = max(COMPLETED_KEPT, 2 * len(self._completed))

    def _forget_completed(self, high_watermark: int) -> None:
        if self._completed:
            self._completed = [done for done in self._completed if done[1] >= high_watermark]

    def put(self, entry: ProducerEntry) -> None:
        """Add an entry, for example from a snapshot."""
        self._entries[entry.producer_id] = entry
        if entry.transaction_first_offset is None:
            if entry.coordinator_epoch >= 0:  # a transactional producer: its last batch is a marker
                entry.last_marker_ms = entry.last_timestamp_ms
        else:
            self._open[entry.producer_id] = entry.transaction_first_offset

    def inherit(self, before: ProducerState, end_offset: int) -> None:
        """Copy facts from ``before``, the state before a truncation.

        These facts are not on disk: the time when each producer was last seen, the completed
        transactions whose markers may be uncommitted, and the producers whose batches before
        ``end_offset`` were compacted away.
        """
        for old in before:
            batches = [batch for batch in old.batches if batch.last_offset < end_offset]
            if batches and old.producer_id not in self._entries:
                entry = ProducerEntry(old.producer_id, old.producer_epoch)
                entry.batches.extend(batches)
                entry.coordinator_epoch = old.coordinator_epoch
                entry.last_timestamp_ms = batches[-1].timestamp_ms
                self.put(entry)
        for entry in self:
            known = before.get(entry.producer_id)
            if known is not None:
                entry.last_seen_ms = known.last_seen_ms
        kept = {done for done in before._completed if done[1] < end_offset}
        self._completed = sorted(kept.union(self._completed))

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers that were idle for ``expiration_ms``; return their number.

        Producers with an open transaction are kept.
        """
        gone = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.transaction_first_offset is None
            and now_ms - entry.last_seen_ms >= expiration_ms
        ]
        for producer_id in gone:
            del self._entries[producer_id]
        return len(gone)


def _old_epoch(producer_id: int, epoch: int, last: int) -> InvalidProducerEpoch:
    return InvalidProducerEpoch(
        f"epoch {epoch} of producer {producer_id} is older than the producer's last epoch {last}"
    )
