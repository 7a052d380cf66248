"""Owns what a cleaning knows of transactions while it goes through a log from its beginning.

Records of an aborted transaction go at once. Its marker stays as long as a batch of it was seen,
since a reader that began before must still be told; after that it gets a delete horizon.

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
    """One pass over a log.

    Args:
        aborted: all transactions with records in the pass that were aborted.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = deque(sorted(aborted, key=lambda found: found.first_offset))
        # transactions that are open where the pass is, by producer id; of the aborted ones also
        # whether a batch was seen
        self._committed: set[int] = set()
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._kept: list[AbortedTransaction] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """The pass comes to a data batch: whether it is of a transaction that was aborted."""
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
        """The pass comes to a marker: whether no batch of its transaction is left.

        Args:
            kind: of the control record; None if the batch is empty.
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
        """Those whose markers the pass kept since the last call: they stay in the index."""
        kept, self._kept = self._kept, []
        return kept

    def _begin_until(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            transaction = self._coming.popleft()
            self._aborted.setdefault(transaction.producer_id, (transaction, False))
