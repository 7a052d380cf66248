"""The check of a log's producer state: producer snapshots and aborted transactions.

The log is replayed and compared with its ``.snapshot`` files. A difference is an error only if the
batches prove that the snapshot is wrong. A correct snapshot may have more or fewer batches than the
log, because producers expire and compaction removes batches. With a wrong snapshot the broker could
append a retried batch twice, refuse valid batches, or forget open transactions.

Source: Kafka ``ProducerStateManager.java``, ``LogCleaner`` (which batches it keeps).
Tests: ``tests/unit/broker/inspection/test_inspection_producers.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokq.broker.inspection.findings import Finding, Severity
from aiokq.broker.log.producer_state import NO_OFFSET, ProducerEntry, ProducerState
from aiokq.core.errors import CorruptRecord
from aiokq.core.named_tuple import NamedTuple
from aiokq.records.control import read_marker
from aiokq.records.header import BatchHeader

if TYPE_CHECKING:
    from aiokq.broker.log.transaction_index import AbortedTransaction
    from aiokq.core.files import File

__all__ = ["ProducerCheck", "Snapshot"]


class Snapshot(NamedTuple):
    """A readable snapshot file: the producer state before ``offset``."""

    offset: int
    path: str
    entries: list[ProducerEntry]


class _Claim(NamedTuple):
    """The data of a snapshot about one batch of the log.

    A snapshot names the last batches of each producer, and the first batch of each open
    transaction.

    Attributes:
        offset: the last offset of the batch; for the first batch of a transaction, the first
            offset of the batch.
        last_sequence: the last sequence number of the batch; None for the first batch of a
            transaction.
    """

    offset: int
    producer_id: int
    producer_epoch: int
    last_sequence: int | None


class _Trace(NamedTuple):
    """The newest batch or marker of a producer."""

    offset: int
    timestamp_ms: int


class ProducerCheck:
    """Replays one log, and compares the producer state with each snapshot at its offset."""

    def __init__(self, snapshots: Iterable[Snapshot]) -> None:
        self.findings: list[Finding] = []
        self._snapshots = sorted(snapshots)
        self._compared = 0
        self._claims = _claims(self._snapshots)
        self._claimed = 0
        self._state = ProducerState()
        self._traces: dict[int, _Trace] = {}
        self._stopped = False

    def stop(self) -> None:
        """Stop the comparison: batches are missing, so later batches prove nothing."""
        self._stopped = True

    def batch(self, file: File, position: int, header: BatchHeader) -> AbortedTransaction | None:
        """Replay a batch; if it is an abort marker, return the transaction that it aborts.

        Returns None for any other batch, for an unreadable marker, and if the log has no records of
        the transaction. After `stop`, the result is always None.
        """
        if self._stopped:
            return None
        self.reached(header.base_offset)
        self._compare_claims(header)
        if not header.has_producer_id:
            return None
        self._traces[header.producer_id] = _Trace(header.last_offset, header.max_timestamp_ms)
        if not header.is_control:
            self._state.update(header, 0)
            return None
        try:
            marker = read_marker(file.pread(header.size, position), header)
        except CorruptRecord:
            return None  # `SegmentCheck` reports the corrupt marker if the records are checked
        return None if marker is None else self._state.end_transaction(header, marker, 0)

    def reached(self, offset: int) -> None:
        """Compare the snapshots up to ``offset``; all batches before it were replayed."""
        while not self._stopped and self._compared < len(self._snapshots):
            snapshot = self._snapshots[self._compared]
            if snapshot.offset > offset:
                return
            self._compared += 1
            self._compare(snapshot)

    def _compare_claims(self, header: BatchHeader) -> None:
        claims = self._claims
        while self._claimed < len(claims) and claims[self._claimed][0].offset <= header.last_offset:
            claim, path = claims[self._claimed]
            self._claimed += 1
            if claim.offset >= header.base_offset and not _is_of(header, claim):
                self._error(path, f"{_said(claim)}, but the log has {_found(header)}")

    def _compare(self, snapshot: Snapshot) -> None:
        known = {entry.producer_id: entry for entry in snapshot.entries}
        oldest = self._oldest_that_is_remembered(known)
        for entry in self._state:
            remembered = known.get(entry.producer_id)
            if remembered is not None:
                self._compare_entries(snapshot.path, entry, remembered)
            elif entry.transaction_first_offset is not None:
                self._error(
                    snapshot.path,
                    f"lacks producer {entry.producer_id}, which has a transaction open since "
                    f"offset {entry.transaction_first_offset}",
                )
            elif oldest is not None and _is_newer(self._traces[entry.producer_id], oldest):
                # This is only a warning, because the clock may have been set back between the two
                # batches.
                self._warn(
                    snapshot.path,
                    f"lacks producer {entry.producer_id}, whose last batch {_at(entry)} is newer "
                    "than those of other producers in the snapshot: a retry of that batch would "
                    "be appended twice",
                )

    def _compare_entries(self, path: str, entry: ProducerEntry, said: ProducerEntry) -> None:
        last = entry.batches[-1].last_offset if entry.batches else NO_OFFSET
        last_said = said.batches[-1].last_offset if said.batches else NO_OFFSET
        if (entry.producer_epoch, last) > (said.producer_epoch, last_said):
            self._error(
                path,
                f"has producer {entry.producer_id} with epoch {said.producer_epoch} {_at(said)}, "
                f"but in the log the producer has epoch {entry.producer_epoch} {_at(entry)}",
            )
        first, first_said = entry.transaction_first_offset, said.transaction_first_offset
        if first is not None and (first_said is None or first_said > first):
            transaction = (
                "no open transaction"
                if first_said is None
                else f"a transaction open since offset {first_said}"
            )
            self._error(
                path,
                f"has producer {entry.producer_id} with {transaction}, but in the log a "
                f"transaction of the producer is open since offset {first}",
            )

    def _oldest_that_is_remembered(self, known: dict[int, ProducerEntry]) -> _Trace | None:
        """Return the oldest trace among a snapshot's producers without an open transaction.

        The producer of this trace had not expired, so no producer with a newer trace had expired.
        The result is None if none of the snapshot's producers without an open transaction has a
        batch in the log.
        """
        traces = [
            self._traces[producer_id]
            for producer_id, entry in known.items()
            if producer_id in self._traces and entry.transaction_first_offset is None
        ]
        return min(traces, default=None)

    def _error(self, path: str, message: str) -> None:
        self.findings.append(Finding(Severity.ERROR, path, None, message))

    def _warn(self, path: str, message: str) -> None:
        self.findings.append(Finding(Severity.WARNING, path, None, message))


def _claims(snapshots: Iterable[Snapshot]) -> list[tuple[_Claim, str]]:
    """Return the distinct claims, sorted by offset, each with the path of its first snapshot."""
    found: dict[_Claim, str] = {}
    for snapshot in snapshots:
        for entry in snapshot.entries:
            producer_id, epoch = entry.producer_id, entry.producer_epoch
            for batch in entry.batches:
                claim = _Claim(batch.last_offset, producer_id, epoch, batch.last_sequence)
                found.setdefault(claim, snapshot.path)
            if entry.transaction_first_offset is not None:
                claim = _Claim(entry.transaction_first_offset, producer_id, epoch, None)
                found.setdefault(claim, snapshot.path)
    return sorted(found.items(), key=lambda item: item[0].offset)


def _is_of(header: BatchHeader, claim: _Claim) -> bool:
    if header.is_control or header.producer_id != claim.producer_id:
        return False
    if claim.last_sequence is None:
        # The epoch is not compared: the batch has an older epoch if the producer was fenced later.
        return header.is_transactional and header.base_offset == claim.offset
    return (header.last_offset, header.producer_epoch, header.last_sequence) == (
        claim.offset,
        claim.producer_epoch,
        claim.last_sequence,
    )


def _is_newer(one: _Trace, other: _Trace) -> bool:
    """Whether `one` has a higher offset than `other`, and a timestamp that is not lower."""
    return one.offset > other.offset and one.timestamp_ms >= other.timestamp_ms


def _said(claim: _Claim) -> str:
    if claim.last_sequence is None:
        return (
            f"says that producer {claim.producer_id} begins a transaction at offset {claim.offset}"
        )
    return (
        f"says that producer {claim.producer_id} ends a batch at offset {claim.offset} with "
        f"epoch {claim.producer_epoch}, sequence {claim.last_sequence}"
    )


def _found(header: BatchHeader) -> str:
    offsets = f"the batch {header.base_offset}..{header.last_offset}"
    if header.is_control:
        return f"{offsets} of control records"
    if not header.has_producer_id:
        return f"{offsets} without a producer id"
    return (
        f"{offsets} of producer {header.producer_id} with epoch {header.producer_epoch},"
        f" sequence {header.last_sequence}"
    )


def _at(entry: ProducerEntry) -> str:
    return f"at offset {entry.batches[-1].last_offset}" if entry.batches else "without a batch"
