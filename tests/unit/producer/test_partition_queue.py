"""PartitionQueue without a producer: which batch is sent, and what follows from each answer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from aiokq.connection.backoff import Backoff
from aiokq.core.errors import ConnectionLost, KafkaError, RequestTimeout, error_for
from aiokq.fastpath.produce import Accumulator, Batch, QueuedBatch, Slot
from aiokq.producer.batch_split import regroup
from aiokq.producer.idempotence import ProducerIdentity, Sequences
from aiokq.producer.partition_queue import PartitionQueue
from aiokq.producer.queue_owner import QueueLimits


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def timestamp_ms(self) -> int:
        return int(self.now * 1000)


@dataclass
class Notes:
    """Records the calls of the queue, as its owner, its senders and the receiver of outcomes."""

    accumulator: Accumulator
    hurried: bool = False
    delivered_: list[tuple[QueuedBatch, int]] = field(default_factory=list)
    failed_: list[tuple[QueuedBatch, KafkaError]] = field(default_factory=list)
    scheduled: list[float] = field(default_factory=list)
    moved_: int = 0
    ids_needed: int = 0

    def opened(self, queue: PartitionQueue, batch: Batch) -> None: ...

    def ready(self, queue: PartitionQueue) -> None: ...

    def schedule(self, queue: PartitionQueue, when: float) -> None:
        self.scheduled.append(when)

    def seal(self, queued: QueuedBatch) -> bool:
        queued.batch.seal()
        queued.sealed = True
        queued.size = queued.batch.size
        return True

    def producer_id_needed(self) -> None:
        self.ids_needed += 1

    def delivered(self, queued: QueuedBatch, base_offset: int, log_append_time_ms: int) -> None:
        self.delivered_.append((queued, base_offset))
        queued.batch.complete(base_offset, log_append_time_ms)

    def failed(self, queued: QueuedBatch, error: KafkaError) -> None:
        self.failed_.append((queued, error))
        queued.batch.fail(error)

    def retrying(self, queued: QueuedBatch, error: KafkaError) -> None: ...

    def moved(self, queue: PartitionQueue, error: KafkaError) -> None:
        self.moved_ += 1

    def regroup(self, queued: QueuedBatch, groups: Sequence[Sequence[int]]) -> list[QueuedBatch]:
        parts = regroup(self.accumulator, queued.batch, 0, groups)
        return [QueuedBatch(queued.queue, part, queued.deadline) for part in parts]


class World:
    """One partition of one topic, led by node 1."""

    def __init__(self, *, idempotent: bool = True, **limits: float) -> None:
        self.clock = Clock()
        self.accumulator = Accumulator(
            batch_size=200, buffer_memory=1_000_000, max_record_bytes=100_000, clock=self.clock
        )
        self.notes = Notes(self.accumulator)
        self.identity = ProducerIdentity()
        if idempotent:
            self.identity.requested()
            self.identity.issued(1000, 0)
        self.limits = QueueLimits(**limits)  # type: ignore[arg-type]
        self.queue = PartitionQueue(
            "orders",
            0,
            self.notes,
            self.notes,
            self.notes,
            self.limits,
            Backoff(0.1, 1.0, random.Random(1)),
            Sequences(self.identity) if idempotent else None,
        )
        self.accumulator.set_route("orders", 1, [0], self._own)
        self.queue.leader_moved(1, 0, self.clock.now)

    def _own(self, slot: Slot) -> PartitionQueue:
        self.queue.slot = slot
        return self.queue

    def fill(self, batches: int) -> None:
        """Append that many closed batches of four records each."""
        for _ in range(batches):
            for _ in range(4):
                self.accumulator.append("orders", b"v")
            assert self.queue.slot is not None
            batch = self.queue.slot.take_open()
            assert batch is not None
            self.queue.batch_full(batch)

    def send(self) -> QueuedBatch | None:
        queued = self.queue.peek(self.clock.now)
        if queued is not None:
            self.queue.launch(queued, self.queue.leader)
        return queued

    def send_all(self) -> list[QueuedBatch]:
        sent = []
        while (queued := self.send()) is not None:
            sent.append(queued)
        return sent

    def answer(self, queued: QueuedBatch, offset: int = 0) -> None:
        self.queue.answered(queued, queued.attempts, offset, -1)

    def refuse(self, queued: QueuedBatch, error: int | KafkaError) -> None:
        if isinstance(error, int):
            error = error_for(error)
        self.queue.refused(queued, queued.attempts, error, self.clock.now)

    def run_in(self) -> None:
        """Let the broker confirm the epoch, so that several batches may be in flight."""
        self.fill(1)
        (first,) = self.send_all()
        self.answer(first)

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds


def base_sequences(batches: list[QueuedBatch]) -> list[int]:
    return [b.stamp.base_sequence for b in batches if b.stamp is not None]


def test_a_fresh_epoch_has_one_batch_in_flight_then_five() -> None:
    """A broker that does not know the producer would accept the second batch without the first."""
    world = World()
    world.fill(8)
    (first,) = world.send_all()
    world.answer(first)
    assert len(world.send_all()) == 5


def test_an_open_batch_goes_only_when_it_is_ripe() -> None:
    """It lingers, unless the producer sends without lingering."""
    world = World(linger=5.0)
    world.accumulator.append("orders", b"v")
    assert world.send() is None
    world.pass_time(5.0)
    assert world.send() is not None
    world.accumulator.append("orders", b"v")
    world.answer(world.queue.batches[0])
    assert world.send() is None
    world.notes.hurried = True
    assert world.send() is not None


def test_a_refused_batch_ends_the_round_until_all_of_it_is_answered() -> None:
    """If it were sent again earlier, it could be written behind its successors."""
    world = World()
    world.run_in()
    world.fill(4)
    first, second, third, fourth = world.send_all()
    world.refuse(first, 19)
    world.pass_time(10)
    assert world.send() is None
    world.refuse(second, 45)
    assert world.send() is None
    world.refuse(third, 45)
    world.refuse(fourth, 45)
    again = world.send_all()
    assert again == [first]  # alone, because it may make the others fail again and again
    world.answer(first)
    assert world.send_all() == [second]
    world.answer(second)
    world.answer(world.send_all()[0])


def test_the_same_numbers_are_sent_again() -> None:
    """A broker recognizes a duplicate only by its sequence numbers."""
    world = World()
    world.run_in()
    world.fill(2)
    first, second = world.send_all()
    before = (first.stamp, second.stamp)
    world.refuse(first, ConnectionLost("gone"))
    world.refuse(second, ConnectionLost("gone"))
    world.pass_time(10)
    assert world.send_all() == [first]
    assert (first.stamp, second.stamp) == before
    assert world.notes.moved_ == 2


def test_a_retry_waits_for_its_pause_and_somebody_is_told_when_it_is_over() -> None:
    """A batch that comes during the pause must not be forgotten."""
    world = World()
    world.run_in()
    world.fill(1)
    (first,) = world.send_all()
    world.refuse(first, 19)
    assert world.send() is None
    assert min(t for t in world.notes.scheduled if t > world.clock.now) == world.queue.retry_at
    world.pass_time(1)
    assert world.send() is first


def test_an_open_batch_is_not_forgotten_in_the_pause_of_one_that_expired() -> None:
    """Nothing else waits in the queue, and its linger ends within the pause."""
    world = World(delivery_timeout=10.0, linger=0.01)
    world.run_in()
    world.fill(1)
    (first,) = world.send_all()
    world.pass_time(9.99)
    world.refuse(first, 19)
    world.pass_time(0.01)
    world.queue.on_time(world.clock.now)
    assert not world.queue.batches
    world.accumulator.append("orders", b"v")
    world.pass_time(0.02)
    assert world.clock.now < world.queue.retry_at
    world.notes.scheduled.clear()
    world.queue.on_time(world.clock.now)
    assert world.notes.scheduled == [world.queue.retry_at]


def test_a_change_of_leader_moves_the_cursor_and_nothing_else() -> None:
    """With sequence numbers the old leader's answers are not awaited; late ones still count."""
    world = World()
    world.run_in()
    world.fill(3)
    first, second, third = world.send_all()
    world.queue.leader_moved(2, 1, world.clock.now)
    assert world.send_all() == [first, second, third][:1]
    assert first.node_id == 2
    world.queue.answered(second, 1, 20, -1)  # the old leader, after all
    world.queue.refused(third, 1, error_for(6), world.clock.now)  # no longer relevant
    world.answer(first, 10)
    assert [queued for queued, _ in world.notes.delivered_[1:]] == [second, first]
    assert world.send_all() == [third]


def test_without_numbers_the_old_leader_s_answer_is_awaited() -> None:
    """A batch sent to both leaders could be written twice."""
    world = World(idempotent=False)
    world.fill(3)
    (first,) = world.send_all()  # one batch in flight, because no sequence numbers keep the order
    world.queue.leader_moved(2, 1, world.clock.now)
    assert world.send() is None
    world.refuse(first, 6)
    world.pass_time(10)
    assert world.send() is first


@pytest.mark.parametrize("limits", [{"required_acks": 0}, {"retries": 0}])
def test_several_may_be_in_flight_where_nothing_is_sent_again(limits: dict[str, float]) -> None:
    """Without retries the order cannot change."""
    world = World(idempotent=False, **limits)
    world.fill(7)
    assert len(world.send_all()) == 5


def test_a_failed_batch_leaves_a_gap_that_a_new_epoch_closes() -> None:
    """The batches after it are renumbered when all of them have outcomes."""
    world = World()
    world.run_in()
    world.fill(3)
    first, second, third = world.send_all()
    world.refuse(first, 29)
    world.refuse(second, 45)
    assert world.send() is None
    world.refuse(third, 45)
    assert world.send() is second
    assert second.stamp == (1000, 1, 0)
    world.answer(second)
    assert world.send() is third
    assert base_sequences([third]) == [second.batch.count]
    (failed,) = world.notes.failed_
    assert failed[0] is first
    assert not failed[1].may_have_been_written


def test_a_batch_that_may_have_been_written_is_asked_about_before_anything_is_renumbered() -> None:
    """It keeps its numbers until the broker says that it was not written."""
    world = World()
    world.run_in()
    world.fill(3)
    first, second, third = world.send_all()
    world.refuse(first, 29)
    world.refuse(second, ConnectionLost("gone"))
    world.refuse(third, ConnectionLost("gone"))
    world.pass_time(10)
    old = second.stamp
    assert world.send_all() == [second]
    assert second.stamp == old
    world.refuse(second, 45)
    world.pass_time(10)
    assert world.send_all() == [third]
    world.answer(third)  # a duplicate: it had been written
    assert world.send_all() == [second]
    assert second.stamp == (1000, 1, 0)


def test_halves_of_a_large_batch_use_its_numbers() -> None:
    """The batches after them keep their numbers."""
    world = World()
    world.run_in()
    world.fill(2)
    large, behind = world.send_all()
    count, start = large.batch.count, large.stamp.base_sequence  # type: ignore[union-attr]
    world.refuse(large, 10)
    world.refuse(behind, 45)
    halves = list(world.queue.batches)[:2]
    assert sum(half.batch.count for half in halves) == count
    assert base_sequences(halves) == [start, start + halves[0].batch.count]
    assert world.queue.batches[2] is behind


def test_halves_of_a_batch_that_may_have_been_written_whole_are_never_renumbered() -> None:
    """A broker would reject them as out of order although they may be written."""
    world = World()
    world.run_in()
    world.fill(1)
    (large,) = world.send_all()
    world.refuse(large, ConnectionLost("gone"))
    world.pass_time(10)
    assert world.send() is large
    world.refuse(large, 10)
    first, second = world.queue.batches
    assert world.send() is first
    world.refuse(first, 45)
    (failed,) = world.notes.failed_
    assert failed[0] is first
    assert failed[1].may_have_been_written
    world.pass_time(10)
    assert world.send() is second
    world.refuse(second, 45)
    assert len(world.notes.failed_) == 2


def test_halves_without_numbers_may_have_been_written_if_the_whole_batch_may() -> None:
    """Regression: without idempotence their errors said that they were certainly not written."""
    world = World(idempotent=False)
    world.fill(1)
    whole = world.send()
    assert whole is not None
    world.refuse(whole, ConnectionLost("gone"))
    world.pass_time(10)
    assert world.send() is whole
    world.refuse(whole, 10)
    first = world.send()
    assert first is not None
    world.refuse(first, 87)
    ((_, error),) = world.notes.failed_
    assert error.may_have_been_written


def test_a_deadline_fails_what_waits_and_what_is_in_flight() -> None:
    """delivery_timeout counts from the first append."""
    world = World(delivery_timeout=10.0)
    world.run_in()
    world.fill(2)
    first, second = world.send_all()
    world.refuse(second, 19)
    world.pass_time(10)
    world.queue.on_time(world.clock.now)
    assert [queued for queued, _ in world.notes.failed_] == [first, second]
    in_flight, waiting = (error for _, error in world.notes.failed_)
    assert isinstance(in_flight, RequestTimeout)
    assert in_flight.may_have_been_written
    assert not waiting.may_have_been_written
    assert list(world.queue.batches) == [first]  # its response tells whether its numbers were used
    world.answer(first)
    assert not world.queue.batches
    assert len(world.notes.delivered_) == 1


def test_a_batch_that_expired_in_flight_does_not_follow_the_leader() -> None:
    """Its records have failed, so it is removed, and a new epoch begins after it."""
    world = World(delivery_timeout=10.0)
    world.run_in()
    world.fill(1)
    (first,) = world.send_all()
    world.pass_time(10)
    world.queue.on_time(world.clock.now)
    world.fill(1)
    world.queue.leader_moved(2, 1, world.clock.now)
    (second,) = world.send_all()
    assert second is not first
    assert second.stamp == (1000, 1, 0)
    world.queue.answered(first, 1, 7, -1)  # too late to have an effect
    world.answer(second)
    assert not world.queue.batches


def test_an_open_batch_expires_too() -> None:
    """The partition has no leader, so the batch is never sent."""
    world = World(delivery_timeout=10.0)
    world.queue.leader_moved(-1, -1, world.clock.now)
    delivery = world.accumulator.append("orders", b"v")
    world.pass_time(10)
    world.queue.on_time(world.clock.now)
    assert "no leader" in str(delivery.exception())


def test_retries_are_counted() -> None:
    """retries=1: one more attempt, then the error."""
    world = World(idempotent=False, retries=1)
    world.fill(1)
    (first,) = world.send_all()
    world.refuse(first, 19)
    world.pass_time(10)
    assert world.send() is first
    world.refuse(first, 19)
    assert [queued for queued, _ in world.notes.failed_] == [first]


def test_nothing_is_sent_without_a_producer_id() -> None:
    """The id is requested, and the batch waits without numbers."""
    world = World()
    world.identity.discard(1000)
    world.fill(1)
    assert world.send() is None
    assert world.notes.ids_needed == 1
    assert world.queue.batches[0].stamp is None


def test_everything_can_be_taken_out_at_the_end() -> None:
    """Open, waiting and in flight; later answers are ignored."""
    world = World()
    world.run_in()
    world.fill(2)
    sent = world.send_all()
    world.accumulator.append("orders", b"open")
    left = world.queue.take_all()
    assert len(left) == 3
    world.answer(sent[0])
    world.refuse(sent[1], 6)
    assert len(world.notes.delivered_) == 1
