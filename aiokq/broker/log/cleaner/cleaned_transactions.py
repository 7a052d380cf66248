"""The transactions that are open at the current position of a cleaning pass.

The first cleaning that reads an aborted transaction removes its records but keeps the abort marker,
because a consumer that has begun to read the transaction needs the marker. A later cleaning, which
finds no batches of the transaction, sets the delete horizon of the marker.

Source: Kafka ``CleanedTransactionMetadata``. Tests: ``tests/unit/broker/log/test_cleaner.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokq.broker.log.transaction_index import AbortedTransaction
from aiokq.records.control import ControlType

if TYPE_CHECKING:
    from aiokq.records.header import BatchHeader

__all__ = ["CleanedTransactions"]


class CleanedTransactions:
    """The transactions of one pass over a log.

    Each transactional and control batch is passed to ``is_aborted`` or ``is_needless`` once, in the
    order of the log, because both methods change this state.

    Args:
        aborted: all aborted transactions with records in the segments of the pass.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = deque(sorted(aborted, key=lambda found: found.first_offset))
        # The transactions that are open at the current position, by producer id. `_committed` has
        # those that will be committed. `_aborted` has those that will be aborted, each with a flag
        # that is true if the pass has seen a batch of the transaction.
        self._committed: set[int] = set()
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._kept: list[AbortedTransaction] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the next data batch of the pass belongs to an aborted transaction."""
        self._begin_until(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = found[0], True
        return True

    def is_needless(self, header: BatchHeader, kind: int | None) -> bool:
        """Whether the pass has seen no batch of the transaction that this marker ends.

        Args:
            header: the header of the next control batch of the pass.
            kind: type of the control record; None for an empty batch, for which the result is
                always True.
        """
        self._begin_until(header.last_offset)
        if kind is None:
            return True
        if kind == ControlType.ABORT:
            found = self._aborted.pop(header.producer_id, None)
            if found is None or not found[1]:
                return True
            self._kept.append(found[0])
            return False
        if kind == ControlType.COMMIT:
            if header.producer_id not in self._committed:
                return True
            self._committed.remove(header.producer_id)
        return False

    def take_kept(self) -> list[AbortedTransaction]:
        """Return the aborted transactions whose markers were kept since the last call.

        The caller adds them to the transaction index.
        """
        kept, self._kept = self._kept, []
        return kept

    def _begin_until(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            transaction = self._coming.popleft()
            self._aborted.setdefault(transaction.producer_id, (transaction, False))
