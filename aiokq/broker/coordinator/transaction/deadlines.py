"""The timers of a shard: they abort open transactions and remove idle transactional ids.

Source: Kafka ``TransactionCoordinator.scala``, ``TransactionStateManager.scala``.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.outcome import Outcome
from aiokq.broker.coordinator.transaction.record_types import record_of, tombstone
from aiokq.broker.coordinator.transaction.states import TransactionState
from aiokq.broker.coordinator.transaction.transitions import Cause
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiokq.broker.coordinator.timers import Instant, Timers
    from aiokq.broker.coordinator.transaction.transaction_metadata import TransactionMetadata
    from aiokq.broker.coordinator.transaction.transitions import Transitions

__all__ = ["Deadlines", "ShardLimits"]

logger = logging.getLogger("aiokq.broker.coordinator")

EXPIRED_PER_TURN: Final = 256
"""The maximum number of transactional ids removed before other tasks run."""

_EXPIRY: Final = ("expiry",)
"""The key of the expiry timer; the other timers have transactional ids as keys."""


class ShardLimits(NamedTuple):
    """The settings that a shard applies."""

    expiration_ms: int
    """The setting ``transactional.id.expiration.ms``."""
    expiry_interval_ms: int
    """The setting ``transaction.remove.expired.transaction.cleanup.interval.ms``."""


class Deadlines:
    """The timers of one shard.

    Args:
        transactions: the metadata by transactional id, which only the shard changes.
        version: returns the finalized level of ``transaction.version``.
        transitions: counts the transactions that time out.
    """

    def __init__(
        self,
        timers: Timers,
        transactions: Mapping[str, TransactionMetadata],
        limits: ShardLimits,
        version: Callable[[], int],
        transitions: Transitions,
    ) -> None:
        self._timers = timers
        self._transactions = transactions
        self._limits = limits
        self._version = version
        self._transitions = transitions

    def begin(self, instant: Instant) -> None:
        """Start the timers of all open transactions, and the expiry timer."""
        for metadata in self._transactions.values():
            if metadata.state is TransactionState.ONGOING:
                self.watch(metadata, instant)
        self._schedule_expiry(instant, self._limits.expiry_interval_ms / 1000)

    def watch(self, transaction: TransactionMetadata, instant: Instant) -> None:
        """Schedule the abort of an open transaction at its deadline."""
        remaining = (transaction.deadline_ms - instant.timestamp_ms) / 1000
        self._timers.schedule(
            transaction.transactional_id,
            instant.now + max(remaining, 0.0),
            functools.partial(self._time_out, transaction.transactional_id, transaction.started_ms),
        )

    def forget(self, transactional_id: str) -> None:
        """Cancel the abort, if one is scheduled."""
        self._timers.cancel(transactional_id)

    def _time_out(
        self, transactional_id: str, started_ms: int, instant: Instant
    ) -> Outcome[None] | None:
        current = self._transactions.get(transactional_id)
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
        after = current.fenced(self._version(), instant.timestamp_ms)
        return self._transitions.ended(Outcome([record_of(after)]), Cause.TIMEOUT)

    def _expire(self, instant: Instant) -> Outcome[None] | None:
        """Remove up to `EXPIRED_PER_TURN` of the transactional ids that were idle for too long."""
        oldest_ms = instant.timestamp_ms - self._limits.expiration_ms
        expired: list[str] = []
        for transactional_id, metadata in self._transactions.items():
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
