"""TransactionState: the phase of a transactional producer, and the error that limits it.

The error is the reason why the transaction can only be aborted, or the producer can only be closed.
The module sends no requests; refusals.py creates the errors that callers get.

Source: Kafka ``TransactionManager.java``.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from aiokq.connection.lazy_timer import LazyTimer
from aiokq.core.errors import Closed, ConfigError, KafkaError
from aiokq.producer.transactions import refusals
from aiokq.producer.transactions.error_kinds import ErrorKind, kind_of
from aiokq.producer.transactions.phases import MOVES, Phase
from aiokq.records.header import EPOCH_BUMP_VERSION

if TYPE_CHECKING:
    from aiokq.producer.transactions.record_delivery import RecordDelivery
    from aiokq.producer.transactions.transaction import Transaction

__all__ = ["DEAD_ENDS", "TransactionState"]

logger = logging.getLogger("aiokq.producer")

DEAD_ENDS: Final = (ErrorKind.FINISHED, ErrorKind.INVALID)
"""The kinds of errors after which the producer can only be closed."""


class TransactionState:
    """The state of one transactional producer.

    Attributes:
        phase: the phase of the producer.
        current: the transaction that is open or being ended, else the last transaction; None before
            the first.
        delivery: accepts, sends and fails the records of the producer.
        cause: the error because of which the transaction can only be aborted, the producer can only
            be closed, or the outcome is unknown; None if there is none.
        version: the level of `transaction.version` that the current transaction uses.
        started: whether the coordinator may know of the current transaction.
        commits: whether the last call to end the transaction was a commit. The value becomes False
            if the transaction is aborted instead, and the commit raises its error before the abort
            has succeeded.
        closed: whether the producer is closed or being closed.
    """

    def __init__(self, transactional_id: str, delivery: RecordDelivery) -> None:
        self.transactional_id = transactional_id
        self.phase = Phase.NEW
        self.current: Transaction | None = None
        self.delivery = delivery
        self.cause: KafkaError | None = None
        self.version = 0
        self.started = False
        self.commits = False
        self.closed = False
        self._progress: asyncio.Future[bool] | None = None
        self._deadline = 0.0
        """The loop's time at which the wait in `_progress` ends."""
        self._late: LazyTimer | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the producer can only be closed."""
        return self.phase is Phase.FINISHED

    @property
    def bumps_epochs(self) -> bool:
        """Whether the end of the current transaction bumps the epoch."""
        return self.version >= EPOCH_BUMP_VERSION

    @property
    def refusal(self) -> KafkaError | None:
        """The error that unsent batches fail with; None if batches may be sent."""
        # Hot path, once per batch; measured by benchmarks/micro/producer.py.
        if self.cause is None and (self.phase is Phase.OPEN or self.phase is Phase.COMMITTING):
            return None
        if self.is_finished:
            assert self.cause is not None
            return refusals.finished(self.cause, self.transactional_id)
        return refusals.aborted(self.cause)

    def move(self, to: Phase) -> None:
        """Enter another phase."""
        assert to in MOVES[self.phase], f"{self.phase.name} to {to.name}"
        self.phase = to

    def refused(self, api: str, error: KafkaError) -> KafkaError:
        """Process an error of an API, and return the error for the caller.

        After some errors, the producer can only be closed; after others, the transaction can only
        be aborted.
        """
        if kind_of(api, error) in DEAD_ENDS:
            return self.finish(error)
        self.fail(error)
        return refusals.aborted(self.cause)

    def fail(self, cause: KafkaError) -> None:
        """Store the reason why the current transaction can only be aborted.

        Does nothing unless a transaction is open, has failed or is being ended.
        """
        if self.phase not in (Phase.OPEN, Phase.FAILED, Phase.COMMITTING, Phase.ABORTING):
            return
        if self.cause is None:
            self.cause = cause
        if self.phase is Phase.OPEN:
            self.move(Phase.FAILED)
            self.delivery.accept(refusals.aborted(self.cause))
        self._fail_unsent_soon()

    def finish(self, cause: KafkaError) -> KafkaError:
        """Store the reason why the producer can only be closed; return the error for callers."""
        if not self.is_finished:
            self.cause = cause
            self.move(Phase.FINISHED)
            self.delivery.accept(refusals.finished(cause, self.transactional_id))
            self._fail_unsent_soon()
            logger.error(
                "transactional producer can only be closed: transactional_id=%s error=%s",
                self.transactional_id,
                cause,
            )
        assert self.cause is not None
        return refusals.finished(self.cause, self.transactional_id)

    def _fail_unsent_soon(self) -> None:
        """In the next iteration of the event loop, fail the unsent records and call `advanced`.

        The records do not fail at once, because the caller may be a queue that is failing a batch.
        """
        transaction = self.current

        def fail() -> None:
            if self.current is transaction and (refusal := self.refusal) is not None:
                self.delivery.fail_unsent(refusal)
                self.advanced()

        asyncio.get_running_loop().call_soon(fail)

    async def progress(self, deadline: float) -> bool:
        """Wait until `advanced` is called; return False if `deadline` (loop time) comes first."""
        loop = asyncio.get_running_loop()
        self._progress = loop.create_future()
        self._deadline = deadline
        # Each commit waits here, and a timer for each wait would take longer.
        if self._late is None:
            self._late = LazyTimer(loop, self._check_deadline)
        self._late.arm(deadline)
        try:
            return await self._progress
        finally:
            self._progress = None

    def stop(self) -> None:
        """Stop the timer, because the producer is closed."""
        if self._late is not None:
            self._late.cancel()

    def advanced(self) -> None:
        """End the wait of `progress`: records, offsets or partitions were accepted or failed."""
        self._end_wait(True)

    def _check_deadline(self, now: float) -> float | None:
        if self._progress is None:
            return None
        if now < self._deadline:
            return self._deadline
        self._end_wait(False)
        return None

    def _end_wait(self, advanced: bool) -> None:
        if self._progress is not None and not self._progress.done():
            self._progress.set_result(advanced)

    def check_not_closed(self) -> None:
        """Raise Closed if the producer is closed or being closed."""
        if self.closed:
            raise Closed("this producer is closed: create a new one")

    def check_usable(self) -> None:
        """Raise an error if the producer is closed or finished, or in the phase UNKNOWN."""
        self.check_not_closed()
        if self.phase is Phase.FINISHED:
            assert self.cause is not None
            raise refusals.finished(self.cause, self.transactional_id)
        if self.phase is Phase.UNKNOWN:
            raise self.not_ended()

    def check_open(self, transaction: Transaction) -> None:
        """Raise an error if offsets cannot be added to this transaction."""
        self.check_usable()
        if transaction is not self.current:
            raise ConfigError("the transaction is not open")
        if self.phase is Phase.FAILED:
            raise refusals.aborted(self.cause)
        if self.phase is not Phase.OPEN:
            raise ConfigError("the transaction is not open")

    def not_ended(self) -> KafkaError:
        """Return the error for the phase UNKNOWN: the end of the transaction was not answered."""
        assert self.cause is not None
        refused = refusals.unknown if self.commits else refusals.not_aborted_yet
        return refused(self.cause)

    def nothing_to_end(self) -> KafkaError:
        """Return the error of a commit or abort that is not possible."""
        if self.phase is Phase.UNKNOWN:
            return self.not_ended()
        if self.phase is Phase.FINISHED:
            assert self.cause is not None
            return refusals.finished(self.cause, self.transactional_id)
        return ConfigError("there is no open transaction: begin one first")

    def is_over(self, committed: bool) -> bool:
        """Return whether no transaction is left to commit (if `committed`) or to abort (if not)."""
        if self.phase is Phase.FINISHED:
            return self.current is None or self.current.outcome_now is not None
        if self.phase is Phase.UNKNOWN:
            return self.commits is not committed
        return self.phase in (Phase.NEW, Phase.READY, Phase.BEGINNING)
