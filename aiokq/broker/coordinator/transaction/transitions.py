"""`Transitions`: counts and logs the decisions of the transaction coordinator.

A transition whose record could not be appended has no effect and is not counted.
"""

from __future__ import annotations

import enum
import functools
import logging
from typing import TYPE_CHECKING, TypeVar

from aiokq.broker.coordinator.transaction.states import TransactionState

if TYPE_CHECKING:
    from aiokq.broker.coordinator.outcome import Outcome
    from aiokq.broker.coordinator.transaction.transaction_metadata import TransactionMetadata
    from aiokq.core.counters import BrokerCounters
    from aiokq.core.errors import KafkaError

__all__ = ["Cause", "Transitions"]

logger = logging.getLogger("aiokq.broker.coordinator")

R = TypeVar("R")


class Cause(enum.Enum):
    """The cause of the end of a transaction."""

    COMMIT = "commit"
    """EndTxn with a commit."""

    ABORT = "abort"
    """EndTxn with an abort."""

    TIMEOUT = "timeout"
    """The transaction timeout of the producer."""

    INIT_PRODUCER_ID = "init_producer_id"
    """InitProducerId, from a producer or from an administrator who terminates the transaction."""

    RECOVERY = "recovery"
    """A repair after an unclean shutdown."""


class Transitions:
    """Counts and logs the transitions of the shards of one node."""

    def __init__(self, counters: BrokerCounters) -> None:
        self._counters = counters

    def ended(self, outcome: Outcome[R], cause: Cause) -> Outcome[R]:
        """Count a transaction as ended when the outcome is written."""
        outcome.on_written = functools.partial(self._ended, cause)
        return outcome

    def initialized(
        self, outcome: Outcome[R], before: TransactionMetadata | None, *, named: bool
    ) -> Outcome[R]:
        """Count the transaction that InitProducerId aborts, or else the producer that it fences.

        Nothing is counted if the outcome is not written.

        Args:
            before: the metadata before the request; None for a new transactional id.
            named: whether the request has a producer id and epoch. Such a request comes from the
                current producer, and fences no other producer.
        """
        if before is None:
            return outcome
        if before.state is TransactionState.ONGOING:
            outcome.on_written = functools.partial(self._aborted, before)
        elif not named:
            outcome.on_written = functools.partial(self._fenced, before)
        return outcome

    # --- called with the result of the append

    def _ended(self, cause: Cause, error: KafkaError | None) -> None:
        if error is None:
            self._counters.transactions_ended[cause.value] += 1

    def _aborted(self, before: TransactionMetadata, error: KafkaError | None) -> None:
        if error is not None:
            return
        self._ended(Cause.INIT_PRODUCER_ID, None)
        logger.info(
            "transaction is aborted by InitProducerId: transactional_id=%s producer_id=%d epoch=%d",
            before.transactional_id,
            before.producer_id,
            before.producer_epoch,
        )

    def _fenced(self, before: TransactionMetadata, error: KafkaError | None) -> None:
        if error is not None:
            return
        self._counters.producers_fenced += 1
        logger.info(
            "producer is fenced by a new one: transactional_id=%s producer_id=%d epoch=%d",
            before.transactional_id,
            before.producer_id,
            before.producer_epoch,
        )
