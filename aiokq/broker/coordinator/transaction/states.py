"""The states of a transactional id, and the transitions between them.

Source: KIP-98, KIP-890, Kafka ``TransactionState.java``.
"""

from __future__ import annotations

import enum
from typing import Final

__all__ = ["LEGAL_MOVES", "PREPARED_STATES", "TransactionState"]


class TransactionState(enum.IntEnum):
    """The state of a transactional id, with Kafka's numbers."""

    EMPTY = 0
    """The producer is initialized and has no transaction."""

    ONGOING = 1
    """A transaction has partitions, and is neither committed nor aborted."""

    PREPARE_COMMIT = 2
    """The transaction is committed; its markers are being written."""

    PREPARE_ABORT = 3
    """The transaction is aborted; its markers are being written."""

    COMPLETE_COMMIT = 4
    """The last transaction is committed, and all its markers are written."""

    COMPLETE_ABORT = 5
    """The last transaction is aborted, and all its markers are written."""

    @property
    def kafka_name(self) -> str:
        """The name in DescribeTransactions and ListTransactions, such as ``PrepareCommit``."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided, and markers may be missing."""
        return self in PREPARED_STATES

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open or prepared; only an idle transactional id expires."""
        return self in _IDLE


_S: Final = TransactionState

PREPARED_STATES: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
_IDLE: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})

LEGAL_MOVES: Final = {
    _S.EMPTY: _IDLE,
    _S.ONGOING: _IDLE | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    # A producer may abort without an open transaction, because it cannot find out whether the
    # broker has begun the transaction (KIP-890).
    _S.PREPARE_ABORT: _IDLE | {_S.ONGOING},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
}
"""The states from which each state may be reached. Kafka's state Dead is a tombstone here. Kafka
never writes its state PrepareEpochFence; here it is part of the transition to PREPARE_ABORT."""
