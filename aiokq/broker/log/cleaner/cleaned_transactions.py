"""Transactions during a cleaning, which reads a log from its beginning.

Records of an aborted transaction are removed at once. Its marker is kept while batches of the
transaction were seen, because a reader that began before needs it; afterwards the marker gets a
delete horizon.

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

    Args:
        aborted: all aborted transactions with records in the pass.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = deque(sorted(aborted, key=lambda found: found.first_offset))
        # transactions that are open at the current position, by producer id; for aborted ones also
        # whether a batch was seen
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
        """Whether no batch of the transaction is left that the next marker of the pass ends.

        Args:
            kind: type of the control record; None if the batch is empty.
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
        """Return the transactions, for the index, whose markers were kept since the last call."""
        kept, self._kept = self._kept, []
        return kept

    def _begin_until(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            transaction = self._coming.popleft()
            self._aborted.setdefault(transaction.producer_id, (transaction, False))
