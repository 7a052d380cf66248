"""`Transitions`: metrics and log lines of what the coordinator decides; it decides nothing.

A transition is counted when its record is in the log. One whose record could not be appended did
not happen, and its request or timer is repeated.
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
    """What ended a transaction."""

    COMMIT = "commit"
    """EndTxn."""

    ABORT = "abort"
    """EndTxn."""

    TIMEOUT = "timeout"
    """The transaction timeout of the producer."""

    INIT_PRODUCER_ID = "init_producer_id"
    """InitProducerId for the transactional id, also by an administrator who terminates it."""

    RECOVERY = "recovery"
    """A repair after a power cut."""


class Transitions:
    """Counts and logs the transitions of the shards of one node."""

    def __init__(self, counters: BrokerCounters) -> None:
        self._counters = counters

    def ended(self, outcome: Outcome[R], cause: Cause) -> Outcome[R]:
        """Count a transaction as ended once the outcome is written."""
        outcome.on_written = functools.partial(self._ended, cause)
        return outcome

    def initialized(
        self, outcome: Outcome[R], before: TransactionMetadata | None, *, named: bool
    ) -> Outcome[R]:
        """Count what InitProducerId does to an earlier producer, once the outcome is written.

        Args:
            before: the metadata before the request; None for a new transactional id.
            named: whether the request names the current producer, which then fences nobody.
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
