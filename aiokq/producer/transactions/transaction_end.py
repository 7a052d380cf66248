"""TransactionEnd: commits and aborts the transactions of one producer.

The end of a transaction continues if its caller is cancelled. If a commit fails or does not succeed
by its deadline, and the coordinator cannot have carried it out, the transaction is aborted. The
caller of the commit gets an error at the deadline at the latest, even if the abort is not finished.

Source: KIP-98, KIP-890, Kafka ``TransactionManager.java``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

from aiokq.core.errors import Closed, KafkaError, RequestTimeout, UnknownProducerId, copy_error
from aiokq.producer.transactions import refusals
from aiokq.producer.transactions.error_kinds import ErrorKind, kind_of
from aiokq.producer.transactions.phases import Phase
from aiokq.producer.transactions.transaction import TransactionOutcome
from aiokq.producer.transactions.transaction_state import DEAD_ENDS

if TYPE_CHECKING:
    from aiokq.core.counters import CounterBy
    from aiokq.producer.transactions.epochs import Epochs
    from aiokq.producer.transactions.partition_additions import PartitionAdditions
    from aiokq.producer.transactions.sent_offsets import GroupOffsets, SentOffsets
    from aiokq.producer.transactions.transaction_requests import TransactionRequests
    from aiokq.producer.transactions.transaction_state import TransactionState

__all__ = ["Ending", "TransactionEnd"]


class Ending:
    """The end of one transaction, which several calls may await; `await` raises its error, if any.

    Each waiter has a future of its own, because a waiter of a future behind `asyncio.shield` would
    continue one turn of the event loop later.

    Attributes:
        done: whether `set` was called.
    """

    __slots__ = ("_error", "_waiters", "done")

    def __init__(self) -> None:
        self.done = False
        self._error: KafkaError | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def set(self, error: KafkaError | None) -> None:
        """Wake all waiters; `await` raises `error` if it is not None."""
        self._error = error
        self.done = True
        for waiter in self._waiters:
            if not waiter.done():  # done if the waiting task was cancelled
                waiter.set_result(None)

    async def wait(self) -> None:
        """Wait until `set` is called."""
        await self._future()

    def _future(self) -> asyncio.Future[None]:
        """Return a new future that ends when `set` is called."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.done:
            waiter.set_result(None)
        else:
            self._waiters.append(waiter)
        return waiter

    def __await__(self) -> Generator[Any, None, None]:
        if not self.done:
            yield from self._future()
        if self._error is not None:
            raise copy_error(self._error) from self._error.__cause__


class TransactionEnd:
    """Commits and aborts the transactions of one producer, one after the other.

    Args:
        max_block: seconds that a commit, or an abort, may take.
        spawn: starts a task that belongs to the producer.
        counts: the metric of transactions by outcome.

    Attributes:
        now: the end in progress; None if no transaction is being ended.
    """

    def __init__(
        self,
        state: TransactionState,
        epochs: Epochs,
        requests: TransactionRequests,
        additions: PartitionAdditions,
        offsets: SentOffsets,
        max_block: float,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        counts: CounterBy,
    ) -> None:
        self._state = state
        self._epochs = epochs
        self._requests = requests
        self._additions = additions
        self._offsets = offsets
        self._max_block = max_block
        self._spawn = spawn
        self._counts = counts
        self.now: Ending | None = None
        self._commit_lost = False
        """Whether a failed commit request may have committed the current transaction."""
        self._commit_sent = False
        """Whether a commit request for the current transaction was created."""
        self._deadline = 0.0
        """Loop time in seconds at which a call of commit gets an error, if it has no result yet."""
        self._hurried = False
        """Whether a commit has called `hurry`, so that `relax` must be called."""
        self._next: asyncio.Future[GroupOffsets | None] | None = None
        """The future that the task of `_run_each` awaits until the next `begin` sets its result.

        None while the task ends a transaction, or if there is no task.
        """

    def reset(self) -> None:
        """Forget the commit requests of the last transaction."""
        self._commit_lost = self._commit_sent = False

    def begin(self, committed: bool, offsets: GroupOffsets | None = None) -> Ending:
        """Begin to commit or abort the current transaction.

        Args:
            offsets: sent as part of the transaction before it is committed.

        Raises:
            Closed: the producer was closed.
        """
        state = self._state
        state.commits = committed
        self._deadline = asyncio.get_running_loop().time() + self._max_block
        commit = False
        if not state.is_finished:  # a finished producer awaits only its batches in flight
            if state.phase is Phase.UNKNOWN and committed:
                state.cause = None  # the cause was that the last commit was not answered
            # A failed transaction is aborted instead of committed, and the caller gets the cause.
            commit = committed and state.phase is not Phase.FAILED
            state.move(Phase.COMMITTING if commit else Phase.ABORTING)
            state.delivery.accept(refusals.being_ended(commits=committed))
        ending = self.now = Ending()
        try:
            if commit:
                # `hurry` is called here, not by the task: it sends the batches at once, so that the
                # broker can append them before the task runs.
                self._hurried = True
                state.delivery.hurry()
            if self._next is not None and not self._next.done():
                self._next.set_result(offsets)
            else:
                self._spawn(self._run_each(offsets), f"ends of {state.transactional_id}")
        except BaseException:
            self.now = None
            self._relax()
            raise
        return ending

    def abandon(self) -> None:
        """Complete the end in progress with an error, because the producer is closed.

        A transaction that is not being ended counts as aborted.
        """
        state = self._state
        if self._next is not None:
            self._next.cancel()  # so that `begin` starts no end any more
        if self.now is not None:
            self._interrupt(Closed("the producer was closed"))
        elif state.current is not None and state.current.outcome_now is None:
            self._note(TransactionOutcome.ABORTED)

    async def _run_each(self, offsets: GroupOffsets | None) -> None:
        """End a transaction, then each later one: a new task for each would take longer.

        Args:
            offsets: see `begin`, for the first transaction.
        """
        loop = asyncio.get_running_loop()
        while True:
            await self._run(offsets)
            self._next = loop.create_future()
            try:
                offsets = await self._next
            except asyncio.CancelledError:
                if self.now is not None:  # cancelled between `begin` and this step
                    self._relax()
                    self._interrupt(Closed("the producer was closed"))
                raise
            finally:
                self._next = None

    async def _run(self, offsets: GroupOffsets | None) -> None:
        """End the transaction, and complete the `Ending`."""
        try:
            outcome, error = await self._end(offsets)
        except BaseException as bug:
            if self.now is not None:
                cause = Closed(f"the producer failed: {bug!r}")
                cause.__cause__ = bug
                self._interrupt(cause)
            raise
        finally:
            self._relax()
        if self.now is not None:
            self._settle_end(outcome, error)

    def _relax(self) -> None:
        if self._hurried:
            self._hurried = False
            self._state.delivery.relax()

    def _interrupt(self, cause: KafkaError) -> None:
        """Complete the end in progress with an error, because the producer will not finish it."""
        commits = self._state.phase is Phase.COMMITTING
        if self._commit_lost or (commits and self._commit_sent):
            self._settle_end(TransactionOutcome.UNKNOWN, refusals.unknown(cause))
        else:
            self._settle_end(TransactionOutcome.ABORTED, refusals.aborted(cause))

    def _settle_end(self, outcome: TransactionOutcome, error: KafkaError | None) -> None:
        state = self._state
        ending, self.now = self.now, None
        assert ending is not None
        self._note(outcome)
        if state.phase is Phase.READY:
            state.delivery.accept(refusals.outside())
        elif state.phase is Phase.UNKNOWN:
            state.delivery.accept(state.not_ended())
        state.delivery.forget_failures()
        ending.set(error)

    def _note(self, outcome: TransactionOutcome) -> None:
        """Store and count the outcome of the current transaction."""
        current = self._state.current
        assert current is not None
        if current.outcome_now is not outcome:
            current.outcome_now = outcome
            self._counts[outcome.value] += 1

    async def _end(
        self, offsets: GroupOffsets | None
    ) -> tuple[TransactionOutcome, KafkaError | None]:
        """End the transaction; return its outcome, and the error for the caller or None."""
        state = self._state
        if state.phase is Phase.COMMITTING:
            overlap = state.bumps_epochs and self._offsets.may_overlap
            if offsets is not None and overlap:
                await self._offsets.send(offsets, self._deadline)
            await self._settle()
            if offsets is not None and not overlap and state.cause is None:
                await self._offsets.send(offsets, self._deadline)
            if state.cause is None:
                return await self._commit()
            if state.phase is Phase.COMMITTING:
                state.move(Phase.ABORTING)
        return await self._abort()

    async def _settle(self) -> None:
        """Wait until records, offsets and partitions are part of the transaction.

        The wait ends early if the transaction can no longer be committed. If the wait reaches the
        deadline of the commit, the transaction can only be aborted.
        """
        state = self._state
        while state.cause is None and not (
            state.delivery.is_settled and not self._offsets and not self._additions.in_progress
        ):
            if not await state.progress(self._deadline) and state.cause is None:
                state.fail(
                    RequestTimeout(
                        "the records and offsets of the transaction were not acknowledged within "
                        "max_block_ms"
                    )
                )

    async def _commit(self) -> tuple[TransactionOutcome, KafkaError | None]:
        state = self._state
        timeout = self._deadline - asyncio.get_running_loop().time()
        try:
            await self._request(committed=True, timeout=timeout)
        except KafkaError as error:
            if state.cause is not None and not self._commit_lost:  # the commit was forbidden
                state.move(Phase.ABORTING)
                return await self._abort()
            if isinstance(error, UnknownProducerId):
                self._epochs.need()
            kind = kind_of("EndTxn", error)
            if kind not in DEAD_ENDS:
                state.cause = error
                if kind is ErrorKind.ABORT or not self._commit_lost:
                    state.move(Phase.ABORTING)
                    return await self._abort()
                state.move(Phase.UNKNOWN)
                return TransactionOutcome.UNKNOWN, refusals.unknown(error)
            finished = state.finish(error)
            if self._commit_lost:  # an earlier request may have committed
                return TransactionOutcome.UNKNOWN, refusals.unknown(error)
            return TransactionOutcome.ABORTED, finished
        state.move(Phase.READY)
        return TransactionOutcome.COMMITTED, None

    async def _abort(self) -> tuple[TransactionOutcome, KafkaError | None]:
        if not self._state.commits:
            return await self._request_abort()
        loop = asyncio.get_running_loop()
        late = loop.call_at(self._deadline, self._tell_aborted)
        try:
            return await self._request_abort()
        finally:
            late.cancel()

    def _tell_aborted(self) -> None:
        """Complete a commit with an error at its deadline; the abort continues."""
        state, told = self._state, self.now
        if told is None:  # the producer was closed
            return
        state.commits = False
        self._note(self._outcome_without_commit())
        if not state.is_finished:
            state.delivery.accept(refusals.being_ended(commits=False))
        state.delivery.forget_failures()
        self.now = Ending()
        told.set(self._refusal_of_commit())

    def _refusal_of_commit(self) -> KafkaError:
        """Return the error of a commit whose transaction is aborted instead."""
        state = self._state
        assert state.cause is not None
        if self._commit_lost:
            return refusals.unknown(state.cause)
        if state.is_finished:
            return refusals.finished(state.cause, state.transactional_id)
        return refusals.not_committed(state.cause)

    async def _request_abort(self) -> tuple[TransactionOutcome, KafkaError | None]:
        state = self._state
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._max_block
        refusal = refusals.aborted(state.cause)
        try:
            # A batch in flight must not reach the broker after the abort.
            async with asyncio.timeout_at(deadline):
                if not state.is_finished:
                    state.delivery.fail_unsent(refusal)
                await self._offsets.answered()
                await state.delivery.answered()
                await self._additions.settled()
            if not state.is_finished:
                await self._request(committed=False, timeout=deadline - loop.time())
        except (KafkaError, TimeoutError) as failure:
            error = failure
            if not isinstance(error, KafkaError):
                error = RequestTimeout("records in flight were not answered within max_block_ms")
            # As in Java, an abortable error of an abort is fatal.
            if kind_of("EndTxn", error) in (*DEAD_ENDS, ErrorKind.ABORT):
                state.finish(error)
            elif not state.is_finished:
                state.cause = state.cause or error
                state.move(Phase.UNKNOWN)
                if state.commits:
                    state.commits = False
                    error = self._refusal_of_commit()
                return self._outcome_without_commit(), error
        if state.is_finished:
            return self._outcome_without_commit(), self._refusal_of_commit()
        state.move(Phase.READY)
        if not state.commits:
            return TransactionOutcome.ABORTED, None
        assert state.cause is not None
        return TransactionOutcome.ABORTED, refusals.not_committed(state.cause)

    def _outcome_without_commit(self) -> TransactionOutcome:
        """Return the outcome of a transaction for which no further commit is requested."""
        return TransactionOutcome.UNKNOWN if self._commit_lost else TransactionOutcome.ABORTED

    async def _request(self, *, committed: bool, timeout: float) -> None:
        """Send EndTxn if the transaction has `started`, and use the returned epoch.

        Otherwise, request a new epoch if a lost request may have begun the transaction.

        Raises:
            KafkaError: see `CoordinatorRequests.send`.
        """
        epochs = self._epochs
        if self._state.started:
            epochs.ended(
                await self._requests.end(
                    epochs.producer,
                    committed=committed,
                    bumps=self._state.bumps_epochs,
                    timeout=timeout,
                    on_lost=self._end_lost,
                    attempting=self._check_attempt,
                )
            )
        elif epochs.addition_lost:
            await epochs.bump(timeout)

    def _check_attempt(self) -> None:
        """Check, before each attempt of EndTxn, that the request may be sent.

        Raises:
            TransactionAborted: the commit was forbidden before it could have been carried out.
        """
        state = self._state
        if state.phase is Phase.COMMITTING and state.cause is not None and not self._commit_lost:
            raise refusals.aborted(state.cause)
        self._commit_sent = self._commit_sent or state.phase is Phase.COMMITTING

    def _end_lost(self) -> None:
        """Record that the coordinator may have carried out an EndTxn request that failed."""
        self._commit_lost = self._commit_lost or self._state.phase is Phase.COMMITTING
        # Below `transaction.version` 2, that request could end the next transaction.
        self._epochs.need()
