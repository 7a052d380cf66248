"""One shard during one leadership of its partition: its state, its writes and its timers.

When the leadership ends, the context is closed for good. A later leadership gets a new context with
a new shard, so work that was begun under one leadership cannot take effect under the next.

Source: Kafka ``CoordinatorRuntime.CoordinatorContext``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from aiokq.broker.coordinator.append_errors import coordinator_error
from aiokq.broker.coordinator.shard import Shard
from aiokq.broker.coordinator.timers import Action, Instant, Timers
from aiokq.core.errors import (
    BrokerError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    CorruptRecord,
    KafkaStorage,
    NotCoordinator,
    NotEnoughReplicas,
    ProtocolError,
    UnknownTopicOrPartition,
)
from aiokq.core.frozen import frozen
from aiokq.records.control import ControlType

if TYPE_CHECKING:
    from collections.abc import Hashable

    from aiokq.broker.coordinator.definition import ShardFactory
    from aiokq.broker.coordinator.outcome import Deferred, Outcome
    from aiokq.broker.coordinator.shard import TransactionalProducer
    from aiokq.broker.coordinator.shard_log import ShardLog
    from aiokq.core.background import BackgroundTask, BackgroundWork
    from aiokq.core.clock import Clock
    from aiokq.records.control import EndTransactionMarker

__all__ = ["ShardContext", "ShardState"]

logger = logging.getLogger("aiokq.broker.coordinator")

S = TypeVar("S", bound=Shard)
R = TypeVar("R")

TIMERS_PER_TURN: Final = 64
"""The maximum number of timers run in one event loop iteration.

The limit matters when the process was paused, because all timers may then be due together.
"""

RETRY_SECONDS: Final = 0.5
"""Seconds after which a timer runs again if its records could not be written, as in Kafka."""


class ShardState(Enum):
    """The states of a shard; only an active shard accepts requests."""

    LOADING = "the log of the partition is being replayed"
    ACTIVE = "the shard accepts requests"
    FAILED = "the log of the partition cannot be read"
    CLOSED = "the node no longer leads the partition in this leader epoch"


# Hot path, measured by benchmarks/micro/groups.py. The attribute lookup `ShardState.ACTIVE` takes
# 0.1 us.
_ACTIVE: Final = ShardState.ACTIVE
_CLOSED: Final = ShardState.CLOSED


@frozen
class _Retry:
    """The action of a failed timer, with the backoff of its failures.

    Scheduling the timer's key again replaces this action and so resets the backoff.
    """

    action: Action
    task: BackgroundTask

    def __call__(self, instant: Instant) -> Outcome[None] | None:
        return self.action(instant)


class ShardContext(Generic[S]):
    """One shard during one leadership. Used from the node's loop only.

    Args:
        noun: the plural noun for the shard's entries; see `CoordinatorDefinition.noun`.

    Attributes:
        shard: the shard; `shard` and `timers` are replaced when a failed load is retried.
        log: the log of the shard's partition.
        state: decides whether the shard accepts requests.
    """

    def __init__(
        self,
        log: ShardLog,
        factory: ShardFactory[S],
        noun: str,
        clock: Clock,
        background: BackgroundWork,
    ) -> None:
        self.log = log
        self.state = ShardState.LOADING
        self._factory = factory
        self._noun = noun
        self._clock = clock
        self._background = background
        self._reset()
        self._wakeup: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        self._answers: set[asyncio.Future[object]] = set()

    def _reset(self) -> None:
        self.timers = Timers()
        self.shard = self._factory.new_shard(self.timers, self.log.leader_epoch)

    @property
    def leader_epoch(self) -> int:
        """The leader epoch in which this node leads the partition."""
        return self.log.leader_epoch

    @property
    def is_active(self) -> bool:
        return self.state is ShardState.ACTIVE

    @property
    def is_unusable(self) -> bool:
        """Whether the shard's log could not be read, or is offline."""
        return self.state is ShardState.FAILED or self.log.is_offline

    def check_active(self) -> None:
        """Refuse a request that the shard cannot serve.

        Raises:
            CoordinatorLoadInProgress: the shard is being loaded.
            CoordinatorNotAvailable: the shard's log cannot be read or written.
            NotCoordinator: the leadership is over.
        """
        if self.state is _ACTIVE and not self.log.is_offline:
            return
        if self.state is ShardState.LOADING:
            raise CoordinatorLoadInProgress()
        if self.state is ShardState.CLOSED:
            raise NotCoordinator()
        raise CoordinatorNotAvailable(f"{self.log.name} is offline")

    def check_open(self) -> None:
        """Check that the leadership is not over.

        Raises:
            NotCoordinator: the leadership is over.
        """
        if self.state is ShardState.CLOSED:
            raise NotCoordinator()

    def instant(self) -> Instant:
        """Return the current time on both clocks."""
        return Instant(self._clock.monotonic(), self._clock.timestamp_ms())

    async def load(self) -> None:
        """Replay the log, then accept requests; retry after an error.

        The load is not retried if the log is damaged or offline.
        """
        noun = self._noun
        task = self._background.task(f"load {noun}")
        while True:
            began = self._clock.monotonic()
            try:
                records = await self.log.replay(self.shard)
                if self.state is not ShardState.LOADING:
                    return
                self.activate()
                break
            except Exception as error:  # noqa: BLE001 - other shards are still loaded
                if self.state is ShardState.CLOSED:
                    return
                self.state = ShardState.FAILED
                if isinstance(error, CorruptRecord | EOFError) or self.log.is_offline:
                    logger.error(
                        "%s cannot be loaded: partition=%s: %s", noun, self.log.name, error
                    )
                    return
                await asyncio.sleep(task.failed(error))
            if self.state is ShardState.CLOSED:
                return
            self._reset()
            self.state = ShardState.LOADING
        logger.info(
            "%s loaded: partition=%s records=%d %s=%d seconds=%.3f",
            noun,
            self.log.name,
            records,
            noun,
            len(self.shard),
            self._clock.monotonic() - began,
        )

    def activate(self) -> None:
        """Accept requests, after the log has been replayed."""
        self.state = ShardState.ACTIVE
        self.shard.loaded(self.instant())
        self.schedule_wakeup()

    def close(self) -> None:
        """End the leadership: pending requests fail with NOT_COORDINATOR."""
        was_active = self.state is ShardState.ACTIVE
        self.state = ShardState.CLOSED
        if self._wakeup is not None:
            self._wakeup.cancel()
            self._wakeup = None
        try:
            if was_active:
                self.shard.unloaded()
        finally:
            for answer in list(self._answers):
                if not answer.done():
                    answer.set_exception(NotCoordinator())

    def write(
        self,
        operation: Callable[[S, Instant], Outcome[R]],
        producer: TransactionalProducer | None = None,
    ) -> tuple[Outcome[R], int | None]:
        """Run an operation, append its records, and replay the records.

        The method does not await, so that no other operation sees an intermediate state of the
        shard.

        Returns:
            The outcome, and the log end offset after its records. The offset is None if the outcome
            has no records, or if they were not appended and `Outcome.on_written` has set the
            response.

        Raises:
            BrokerError: the operation failed; or its records were not appended, and no response is
                set.
        """
        instant = self.instant()
        try:
            outcome = operation(self.shard, instant)
            try:
                self._apply(outcome, instant, producer)
            except BrokerError:
                if outcome.deferred is None or not outcome.deferred.done:
                    raise
                return outcome, None
        finally:
            self.schedule_wakeup()
        return outcome, self.log.end_offset if outcome.records else None

    async def answer(self, outcome: Outcome[R], end_offset: int | None) -> R:
        """Wait until a write's records are committed and its response is set; return the response.

        Raises:
            CoordinatorNotAvailable, NotCoordinator: see `committed`.
        """
        if end_offset is not None and not self.log.is_committed(end_offset):
            await self.committed(end_offset)
        deferred = outcome.deferred
        if deferred is None:
            return outcome.response  # type: ignore[return-value]  # None only if R permits it
        return await self._deferred(deferred)

    async def committed(self, end_offset: int) -> None:
        """Wait until the records before an offset are committed under this leadership.

        Raises:
            CoordinatorNotAvailable: the other in-sync replicas have not fetched the records in
                time. The records may be committed later.
            NotCoordinator: the records could not be synced to disk, the leadership ended, or the
                partition was deleted.
        """
        try:
            await self.log.committed(end_offset)
        except UnknownTopicOrPartition as error:
            raise NotCoordinator(str(error)) from error
        except BrokerError as error:
            raise coordinator_error(error) from error
        self.check_open()

    async def _deferred(self, deferred: Deferred[R]) -> R:
        if deferred.done:
            return deferred.value  # type: ignore[return-value]  # the value is set once done
        self.check_open()
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        def give(response: R) -> None:
            if not answer.done():  # done if the request was cancelled or the context was closed
                answer.set_result(response)

        deferred.on_complete(give)
        self._answers.add(answer)  # type: ignore[arg-type]  # futures are invariant
        try:
            return await answer
        finally:
            self._answers.discard(answer)

    def end_transaction(
        self,
        producer: TransactionalProducer,
        marker: EndTransactionMarker,
        transaction_version: int,
    ) -> int:
        """Append the marker that ends a transaction in this partition, and apply it to the shard.

        Returns:
            The log end offset after the marker.

        Raises:
            BrokerError: the marker was not appended.
        """
        instant = self.instant()
        try:
            self.log.append_marker(
                producer, marker, transaction_version, now_ms=instant.timestamp_ms
            )
            committed = marker.type is ControlType.COMMIT
            self.shard.end_transaction(producer.producer_id, committed=committed)
        except BrokerError as error:
            raise coordinator_error(error) from error
        finally:
            self.schedule_wakeup()
        return self.log.end_offset

    def _apply(
        self,
        outcome: Outcome[R],
        instant: Instant,
        producer: TransactionalProducer | None = None,
    ) -> None:
        """Append an outcome's records, replay them, and call `on_written` with the result.

        Raises:
            BrokerError: the records were not appended; see `coordinator_error`.
        """
        failure: BrokerError | None = None
        try:
            if self.state is _CLOSED:
                raise NotCoordinator()  # the operation itself ended the leadership
            if outcome.records:
                self._append(outcome, instant, producer)
        except (BrokerError, ProtocolError) as error:
            failure = coordinator_error(error)
            # Do not log a warning for each append that fails with one of these two errors. The log
            # reports I/O errors itself, once for all failed appends. With too few in-sync replicas,
            # all appends fail until enough replicas are in sync.
            quiet = isinstance(error, KafkaStorage | NotEnoughReplicas)
            level = logging.DEBUG if quiet else logging.WARNING
            if outcome.records:
                logger.log(
                    level,
                    "records were not written: partition=%s records=%d error=%s",
                    self.log.name,
                    len(outcome.records),
                    error,
                )
        if outcome.on_written is not None:
            outcome.on_written(failure)
        if failure is not None:
            raise failure

    def _append(
        self, outcome: Outcome[R], instant: Instant, producer: TransactionalProducer | None
    ) -> None:
        appended = self.log.append(
            outcome.records,
            atomic=outcome.atomic,
            now_ms=instant.timestamp_ms,
            producer=producer,
        )
        if producer is not None:
            producer_id = producer.producer_id
            for offset, record in appended:
                self.shard.replay(record, offset=offset, producer_id=producer_id)
        else:
            replay = outcome.replay
            for offset, record in appended:
                if replay:
                    self.shard.replay(record, offset=offset)

    def schedule_wakeup(self) -> None:
        """Schedule `_run_timers` for the first deadline, if the shard is active and has timers."""
        at = self.timers.next_at
        if self._wakeup is not None:
            if at is not None and self._wakes_at <= at:
                return  # the pending wakeup is early enough
            self._wakeup.cancel()
            self._wakeup = None
        if at is not None and self.state is ShardState.ACTIVE:
            delay = max(at - self._clock.monotonic(), 0.0)
            self._wakes_at = at
            self._wakeup = asyncio.get_running_loop().call_later(delay, self._run_timers)

    def _run_timers(self) -> None:
        self._wakeup = None
        instant = self.instant()
        try:
            for _ in range(TIMERS_PER_TURN):
                due = self.timers.take_due(instant.now)
                if due is None:
                    break
                self._run_timer(*due, instant)
        finally:
            self.schedule_wakeup()  # a bug in one timer must not stop other timers

    def _run_timer(self, key: Hashable, action: Action, instant: Instant) -> None:
        retry_in: float | None = None
        task: BackgroundTask | None = None
        if isinstance(action, _Retry):
            task, action = action.task, action.action
        again: Action = action
        try:
            outcome = action(instant)
            try:
                if outcome is not None:
                    self._apply(outcome, instant)
            except BrokerError:
                # The append failed. Run the timer again, unless the action itself has changed the
                # state.
                retry_in = RETRY_SECONDS if outcome is not None and outcome.replay else None
        except Exception as error:  # noqa: BLE001 - other timers still run
            task = task or self._background.task(f"timers of {self._noun}")
            retry_in = task.failed(error)
            again = _Retry(action, task)
        if retry_in is not None and key not in self.timers:
            self.timers.schedule(key, instant.now + retry_in, again)
