"""PartitionQueue: the batches of one partition that have no outcome yet, in order.

The queue decides which batch is sent next, and how the response to a batch affects the later
batches. The queue sends nothing and has no timer: sender.py sends the batches, and queue_timers.py
calls the queue at the end of a linger, a pause or a delivery timeout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.core.error_base import KafkaError, broker_text, copy_error
from aiokq.core.types import TopicPartition
from aiokq.fastpath.produce import SendQueue
from aiokq.producer.batch_split import halves, number_halves, records_by_error
from aiokq.producer.final_errors import final_error, timed_out
from aiokq.producer.idempotence import Sequences
from aiokq.producer.produce_errors import Outcome, means_not_written, outcome_of
from aiokq.producer.queue_owner import NEVER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiokq.connection.backoff import Backoff
    from aiokq.fastpath.produce import Batch, QueuedBatch
    from aiokq.producer.queue_owner import (
        QueueLimits,
        QueueOutcomes,
        QueueOwner,
        QueueSenders,
        SendGate,
    )

__all__ = ["PartitionQueue"]

_NEEDS_EPOCH: Final = frozenset({Outcome.OUT_OF_ORDER, Outcome.FENCED, Outcome.FORGOTTEN})
"""The outcomes after which a producer may need a new epoch or producer id.

Without transactions, an idempotent producer bumps its epoch or requests a new id by itself.
"""


class PartitionQueue(SendQueue):
    """Queue of the batches of one partition.

    `SendQueue` has the methods that are called once per batch. The batches are in a SendWindow:
    after a refused batch, no batch is sent until all batches in flight are answered.

    Without idempotence, a retry could change the order of the batches. Therefore a partition
    without idempotence has at most one batch in flight, unless `retries` or `acks` is 0.

    Args:
        sequences: the sequence numbers of the partition; None without idempotence.
        gate: decides whether batches may be sent; None without transactions.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # `SendQueue` does not know these types
        sequences: Sequences | None
        _backoff: Backoff
        _gate: SendGate | None
        _limits: QueueLimits
        _outcomes: QueueOutcomes
        _owner: QueueOwner
        _senders: QueueSenders

    def __init__(
        self,
        topic: str,
        partition: int,
        owner: QueueOwner,
        senders: QueueSenders,
        outcomes: QueueOutcomes,
        limits: QueueLimits,
        backoff: Backoff,
        sequences: Sequences | None,
        gate: SendGate | None = None,
    ) -> None:
        super().__init__(
            topic, partition, owner, senders, outcomes, limits, backoff, sequences, gate
        )

    def __repr__(self) -> str:
        return (
            f"<PartitionQueue {self.topic}-{self.partition}: {len(self._window.batches)} batches>"
        )

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def batches(self) -> Sequence[QueuedBatch]:
        """The closed batches, oldest first.

        A batch is removed when it is delivered or has failed. A batch that expires in flight fails
        immediately, but is removed only when its last attempt has ended.
        """
        return self._window.batches

    @property
    def trouble(self) -> KafkaError | None:
        """The error that delays the oldest batch: `blocked_by`, or else the batch's last error.

        None if there is no such error.
        """
        if self.blocked_by is not None:
            return self.blocked_by
        return self._window.batches[0].error if self._window.batches else None

    @property
    def waiting(self) -> int:
        """The number of batches that are not in flight, including the open batch."""
        window = self._window
        return len(window.batches) - window.in_flight + (self._open() is not None)

    def batch_full(self, batch: Batch) -> None:
        """Append a batch that is full, and offer the queue to its sender."""
        self._append(batch)
        self._senders.ready(self)

    def cut(self) -> None:
        """Close the open batch, if there is one, and offer the queue to its sender."""
        if self._open() is not None:
            self._append(self._take())
            self._senders.ready(self)

    def put(self, batch: Batch) -> None:
        """Append the open batch, if any, then `batch`, and offer the queue to its sender."""
        if self._open() is not None:
            self._append(self._take())
        self._append(batch)
        self._owner.schedule(self, batch.created + self._limits.delivery_timeout)
        self._senders.ready(self)

    def refused(
        self,
        queued: QueuedBatch,
        attempt: int,
        error: KafkaError,
        now: float,
        bad_records: Mapping[int, str | None] | None = None,
    ) -> None:
        """Handle a failed attempt: retry, split or fail the batch.

        Args:
            attempt: number of the attempt; failures of earlier attempts, for example after a leader
                change, are ignored.
            bad_records: error message by index of each record that the broker rejected (KIP-467).
        """
        if queued.done or attempt != queued.attempts or not queued.in_flight:
            return
        self._window.answered(queued)
        self._window.drain()
        queued.error = error
        outcome = outcome_of(error)
        if outcome is Outcome.OUT_OF_ORDER and queued.stamp is not None:
            # The broker looks for duplicates before it checks the order, so no earlier attempt of
            # this batch is in the log. If the batch is torn (a part of a split batch that may have
            # been written), its records may still be in the log, as a part of the split batch.
            queued.uncertain = queued.torn
        elif not means_not_written(error):
            queued.uncertain = True
        if queued.expired:
            self._window.remove(queued)
            self._break_off(queued)
        else:
            self._act(queued, outcome, error, now, bad_records or {})
        self._window.restart_if_drained()

    def on_time(self, now: float) -> None:
        """Fail expired batches, offer the queue if a batch is ready, and schedule the next call."""
        timeout = self._limits.delivery_timeout
        batches = self._window.batches
        batch = self._open()
        if batch is None and not batches:  # the usual case: the batch that lingered was sent
            return
        if batches and batches[0].deadline <= now:
            for queued in list(batches):
                if queued.deadline > now:
                    break
                if not queued.expired:
                    self._expire(queued)
        if batch is not None and batch.created + timeout <= now:
            self._expire(self._append(self._take()))
        self.offer_if_ripe(now)
        self.reschedule(now)

    def reschedule(self, now: float) -> None:
        """Schedule `on_time` for the next end of a linger, a pause or a delivery timeout."""
        when = NEVER
        batch = self._open()
        if batch is not None:
            ripe = batch.created + self._limits.linger
            when = ripe if ripe > now else batch.created + self._limits.delivery_timeout
        for queued in self._window.batches:
            if not queued.expired:
                when = min(when, queued.deadline)
                break
        if self.retry_at > now and (self._window.batches or batch is not None):
            when = min(when, self.retry_at)
        if when < NEVER:
            self._owner.schedule(self, when)

    def leader_moved(self, leader: int, leader_epoch: int, now: float) -> None:
        """Set the leader and its epoch; a leader of -1 means that the partition has no leader.

        Unless `leader` is -1, the call ends the pause and clears `blocked_by`. With idempotence,
        batches that are in flight to another broker are then sent again to this leader, in order.
        """
        self.leader = leader
        self.leader_epoch = leader_epoch
        if leader < 0:
            return
        self.retry_at = 0.0
        self.blocked_by = None
        if self.sequences is not None:
            # The new leader recognizes duplicates by their sequence numbers, so the queue need not
            # wait for the old leader's responses. Without sequence numbers, the queue has to wait.
            for queued in list(self._window.batches):
                if queued.in_flight and queued.node_id != leader:
                    self._window.answered(queued)
                    self._window.drain()
                    queued.uncertain = True
                    if queued.expired:  # the batch has failed already: nothing to retry
                        self._window.remove(queued)
                        self._break_off(queued)
            self._window.restart_if_drained()
        self.offer_if_ripe(now)

    def take_all(self) -> list[QueuedBatch]:
        """Remove and return all batches without an outcome; the caller fails them."""
        if self._open() is not None:
            self._append(self._take())
        left = [queued for queued in self._window.batches if not queued.expired]
        self._window.clear()
        return left

    def fail_unsent(self, error: KafkaError) -> None:
        """Fail, with `error`, the batches that are not in flight."""
        if self._open() is not None:
            self._append(self._take())
        for queued in [q for q in self._window.batches if not q.in_flight and not q.expired]:
            self._fail(queued, error)

    def give_up(self, queued: QueuedBatch, error: KafkaError) -> None:
        """Fail a batch, in flight or not, because of an internal error."""
        written = queued.uncertain or queued.in_flight
        if queued.in_flight:
            self._window.answered(queued)
            self._window.drain()
        if not queued.done:
            self._window.remove(queued)
            self._break_off(queued)
        self._window.restart_if_drained()
        own = final_error(queued, error)
        own.may_have_been_written = written
        self._outcomes.failed(queued, own)
        # A sender may be calling this method. Therefore the timer, and not this method, offers the
        # later batches.
        self._owner.schedule(self, queued.batch.created)

    def give_up_all(self, error: KafkaError) -> None:
        """Fail all batches after an internal error."""
        if self._open() is not None:
            self._append(self._take())
        for queued in list(self._window.batches):
            self.give_up(queued, error)

    def forget(self, batch: Batch) -> None:
        """Remove a batch that has failed already, or mark it as expired if it is in flight."""
        for queued in self._window.batches:
            if queued.batch is batch:
                if queued.in_flight:
                    queued.expired = True
                else:
                    self._window.remove(queued)
                    self._break_off(queued)
                return

    def _act(
        self,
        queued: QueuedBatch,
        outcome: Outcome,
        error: KafkaError,
        now: float,
        bad_records: Mapping[int, str | None],
    ) -> None:
        sequences = self.sequences if queued.stamp is not None else None
        if outcome is Outcome.RETRY or outcome is Outcome.MOVED:
            self._again(queued, error, now)
            if outcome is Outcome.MOVED:
                self._senders.moved(self, error)
        elif self._gate is not None and outcome in _NEEDS_EPOCH and not self._follows(queued):
            # The batch may need another epoch, which a transactional producer gets only from the
            # coordinator after an abort. Therefore the batch fails.
            self._fail(queued, error)
        elif outcome is Outcome.OUT_OF_ORDER and sequences is not None:
            assert queued.stamp is not None
            disputed = sequences.is_next(queued.stamp)
            if queued.torn and (disputed or sequences.broken):
                self._fail(queued, error)
            elif disputed:
                # All earlier batches are acknowledged, but the broker still misses a sequence.
                sequences.break_off()
                self._again(queued, error, now)
            else:
                self._outcomes.retrying(queued, error)  # an earlier batch will be retried first
        elif outcome in (Outcome.FENCED, Outcome.FORGOTTEN) and sequences is not None:
            if queued.uncertain:
                self._fail(queued, error)
            else:
                self._again(queued, error, now)
            sequences.break_off(fenced=outcome is Outcome.FENCED)
        elif outcome is Outcome.TOO_LARGE and queued.batch.count > 1:
            self._halve(queued)
        elif outcome is Outcome.BAD_RECORDS and bad_records and not queued.uncertain:
            self._sort_out(queued, error, bad_records)
        else:
            self._fail(queued, error)

    def _follows(self, queued: QueuedBatch) -> bool:
        """Return whether an earlier batch is not acknowledged, but may be acknowledged later.

        If so, the refusal of `queued` may mean only that the earlier batch is missing.
        """
        sequences = self.sequences
        return (
            sequences is not None
            and queued.stamp is not None
            and not sequences.broken
            and not sequences.is_next(queued.stamp)
        )

    def _again(self, queued: QueuedBatch, error: KafkaError, now: float) -> None:
        if queued.attempts > self._limits.retries:
            self._fail(queued, error)
            return
        if self._gate is not None and (refusal := self._gate.refusal) is not None:
            self._fail(queued, refusal)
            return
        if now >= self.retry_at:  # one pause for all batches that fail together
            self.retry_at = now + self._backoff.next()
            self._owner.schedule(self, self.retry_at)
        self.blocked_by = error
        self._outcomes.retrying(queued, error)

    def _halve(self, queued: QueuedBatch) -> None:
        number_halves(queued, self._replace(queued, halves(queued.batch.count)))

    def _sort_out(
        self, queued: QueuedBatch, error: KafkaError, bad_records: Mapping[int, str | None]
    ) -> None:
        by_message, good = records_by_error(queued.batch.count, bad_records)
        if not by_message:  # all indexes are beyond the end of the batch
            self._fail(queued, error)
            return
        parts = self._replace(queued, [*by_message.values(), *([good] if good else [])])
        for message, part in zip(by_message, parts, strict=False):
            own = copy_error(error)
            own.names_record = True
            if message:
                own.args = (broker_text(message),)
            part.attempts = queued.attempts
            self._fail(part, own)
        self._break_off(queued)

    def _replace(self, queued: QueuedBatch, groups: Sequence[Sequence[int]]) -> list[QueuedBatch]:
        parts = self._owner.regroup(queued, groups)
        self._window.replace(queued, parts)
        return parts

    def _fail(self, queued: QueuedBatch, error: KafkaError) -> None:
        self._window.remove(queued)
        self._break_off(queued)
        self._outcomes.failed(queued, final_error(queued, error))

    def _expire(self, queued: QueuedBatch) -> None:
        uncertain = queued.uncertain or queued.in_flight
        cause = queued.error or self.blocked_by
        error = timed_out(cause, self._limits.delivery_timeout, led=self.leader >= 0)
        if queued.in_flight:
            queued.expired = True  # the response will show whether its sequence numbers were used
        else:
            self._window.remove(queued)
            self._break_off(queued)
        own = final_error(queued, error)
        own.may_have_been_written = uncertain
        self._outcomes.failed(queued, own)

    def _break_off(self, queued: QueuedBatch) -> None:
        """Break the sequences if `queued` has sequence numbers of the current epoch.

        Called for a batch that will not be acknowledged. A batch that expired in flight may have
        the epoch of an earlier transaction.
        """
        sequences = self.sequences
        if (
            sequences is not None
            and queued.stamp is not None
            and sequences.is_current(queued.stamp)
        ):
            sequences.break_off()
            if self._gate is not None:
                self._gate.sequence_lost()

    def _resolve(self, sequences: Sequences) -> QueuedBatch | None:
        """Resolve broken sequences when no batch is in flight.

        A batch that may have been written has to be sent again unchanged, to learn from the
        response whether the broker has the batch. If certainly no batch was written, numbering
        continues as described for `Sequences`.

        Returns:
            The first batch that may have been written; None if all were certainly not written.
        """
        numbered = False
        for queued in self._window.batches:
            if queued.stamp is not None:
                if queued.uncertain:
                    return queued
                numbered = True
        if self._gate is not None:
            # Only the coordinator gives a transactional producer another epoch, so the numbers
            # continue. If a batch failed, the transaction can only be aborted. If the topic was
            # recreated, the result depends on `transaction.version`: below 2, the new log accepts
            # any first sequence number. From 2 on, the log refuses the batch, and the transaction
            # is aborted.
            sequences.resume()
        elif numbered or not sequences.mend():
            sequences.renumber()
            for queued in self._window.batches:
                queued.stamp = None
        self._window.restart()
        return None

    def _limit(self) -> int:
        if self._single:
            return 1
        sequences = self.sequences
        if sequences is not None and sequences.fresh:
            return 1
        batches = self._window.batches
        if batches and sequences is not None:
            head = batches[0]
            if head.attempts > 1 or (head.attempts and not head.in_flight):
                return 1  # a retried batch is sent alone, so that no later batch fails with it
        return self._limits.max_in_flight

    def _open(self) -> Batch | None:
        return None if self.slot is None else self.slot.batch
