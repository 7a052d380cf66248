"""The outcomes of records: Delivery, Deliveries, and the waits for them.

    deliveries                  RecordMetadata, Delivery, Wait (one `await`), Wakes
    deliveries of many records  Deliveries, the result of send_many() and send_columns()
    type slots                  the C functions that a compiled `await` calls directly (am_send)

Tests: tests/unit/fastpath/test_delivery.py, test_deliveries.py.
"""

# Hot path, measured by benchmarks/micro/core.py. Functions are long, to avoid calls per record.
# ruff: noqa: SIM110

from __future__ import annotations

import asyncio
import operator
from contextvars import copy_context

from aiokq.core.errors import DeliveryFailed, copy_error
from aiokq.core.types import TopicPartition

try:
    from aiokq.fastpath import cython_names as cython
except ImportError:  # never raised: `import cython` is only for the Cython compiler
    import cython

if cython.compiled:
    from cython.cimports.aiokq.fastpath._shared import require_loop
    from cython.cimports.aiokq.fastpath.native import (
        AIOKQ_SOURCE_HASH,
        PyBytes_AS_STRING,
        PyBytes_FromStringAndSize,
        PyContext_Enter,
        PyContext_Exit,
        memcpy,
    )
    from cython.cimports.aiokq.fastpath.produce._accumulator import Accumulator
    from cython.cimports.aiokq.fastpath.produce._batch import Batch
    from cython.cimports.aiokq.fastpath.produce._columns import bit, int64_at
    from cython.cimports.aiokq.fastpath.produce.states import (
        DELIVERED,
        FAILED,
        MOVED,
        WAIT_CALLBACK,
        WAIT_CANCELLED,
        WAIT_LEFT,
        WAIT_NEW,
        WAIT_SUSPENDED,
        WAIT_WOKEN,
    )
    from cython.cimports.aiokq.fastpath.produce.waiting import (
        aiokq_patch_delivery,
        aiokq_patch_wait,
        aiokq_patch_wait_all,
    )

    from aiokq.fastpath._shared import int_of, thrown
else:
    from aiokq.fastpath.produce.columns import bit, int64_at
    from aiokq.fastpath.produce.states import (
        DELIVERED,
        FAILED,
        MOVED,
        WAIT_CALLBACK,
        WAIT_CANCELLED,
        WAIT_LEFT,
        WAIT_NEW,
        WAIT_SUSPENDED,
        WAIT_WOKEN,
    )
    from aiokq.fastpath.shared import int_of, require_loop, thrown

__all__ = ["Deliveries", "Delivery", "RecordMetadata"]


# ---------------------------------------------------------------- deliveries


@cython.final
@cython.no_gc
@cython.freelist(1024)
@cython.cclass
class RecordMetadata:
    """The partition, offset and timestamp of an acknowledged record.

    Attributes:
        topic: name of the topic.
        partition: number of the partition.
        offset: offset in the partition; -1 if the broker did not return it, as with acks=0.
        timestamp_ms: the record's own timestamp, or the log append time if the topic uses
            LogAppendTime; milliseconds since 1970.
    """

    __slots__ = ("offset", "partition", "timestamp_ms", "topic")

    def __init__(self, topic, partition, offset, timestamp_ms):
        self.topic = topic
        self.partition = int_of(partition, "partition", 32)
        self.offset = int_of(offset, "offset", 64)
        self.timestamp_ms = int_of(timestamp_ms, "timestamp_ms", 64)

    def _values(self):
        return (self.topic, self.partition, self.offset, self.timestamp_ms)

    def __eq__(self, other):
        if not isinstance(other, RecordMetadata):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self):
        return hash(self._values())

    def __repr__(self):
        return (
            f"RecordMetadata(topic={self.topic!r}, partition={self.partition}, "
            f"offset={self.offset}, timestamp_ms={self.timestamp_ms})"
        )

    def __reduce__(self):
        from aiokq.fastpath import restore_metadata

        return restore_metadata, self._values()


@cython.cfunc
def _metadata(batch: Batch, index: cython.longlong, timestamp: cython.longlong) -> RecordMetadata:
    """Return the RecordMetadata of record `index` of an acknowledged batch."""
    meta: RecordMetadata = RecordMetadata.__new__(RecordMetadata)
    meta.topic = batch.topic
    meta.partition = batch.partition
    meta.offset = batch.base_offset + index if batch.base_offset >= 0 else -1
    meta.timestamp_ms = batch.append_time if batch.append_time >= 0 else timestamp
    return meta


@cython.final
@cython.no_gc
@cython.freelist(4096)
@cython.cclass
class Delivery:
    """The outcome of one record, available now or later; may be awaited more than once.

    A Delivery is awaitable and has a future's methods for the outcome and for callbacks, but it is
    not an asyncio future and cannot be cancelled: if a wait is cancelled or times out, only that
    wait ends. The accumulator creates the deliveries.
    """

    # Deliveries are not tracked by the garbage collector: this saves memory (16 of 64 bytes per
    # instance), and half a million pending deliveries do not slow down a collection. A reference
    # cycle (batch, waiter, delivery) is broken when the batch ends, and closing the producer ends
    # every batch.
    __slots__ = ("batch", "index", "timestamp")

    def __init__(self):
        raise TypeError("deliveries come from send_nowait() and enqueue()")

    def done(self):
        """Return whether the record was acknowledged or has failed."""
        return settle(self).state in (DELIVERED, FAILED)

    def cancelled(self):
        """Return False: an accepted record cannot be cancelled."""
        return False

    def result(self):
        """Return the RecordMetadata.

        Raises:
            asyncio.InvalidStateError: there is no outcome yet.
            KafkaError: the record was not delivered; each call raises its own copy.
        """
        return _outcome(self)

    def exception(self):
        """Return the error of a record that was not delivered; None if the record was delivered.

        Raises:
            asyncio.InvalidStateError: there is no outcome yet.
        """
        batch: Batch = settle(self)
        if batch.state == DELIVERED:
            return None
        if batch.state != FAILED:
            raise asyncio.InvalidStateError("the record is neither acknowledged nor failed")
        observe(batch, self.index)
        return copy_error(batch.error)

    def add_done_callback(self, fn, *, context=None):
        """Let the loop call `fn(self)` when the outcome is known.

        A failure then counts as seen by a caller: flush() does not report it again.
        """
        batch: Batch = settle(self)
        require_loop(batch.accumulator.guard)
        loop = _loop_of(batch)
        if batch.state == DELIVERED or batch.state == FAILED:
            observe(batch, self.index)
            loop.call_soon(fn, self, context=context)
            return
        _join(batch, _callback(self, fn, context, loop))

    def remove_done_callback(self, fn):
        """Remove every callback that is equal to `fn`; return their number."""
        batch: Batch = settle(self)
        removed: cython.int = 0
        wait: Wait
        require_loop(batch.accumulator.guard)
        if batch.waiting is None:
            return 0
        for wait in list(batch.waiting):
            if (
                wait.state == WAIT_CALLBACK
                and wait.delivery.index == self.index
                and wait.callback == fn
            ):
                _leave(wait)
                removed += 1
        return removed

    @property
    def topic(self):
        """The record's topic."""
        return settle(self).topic

    @property
    def partition(self):
        """The record's partition; -1 while the topic's metadata is unknown."""
        return settle(self).partition

    @property
    def offset(self):
        """The record's offset, as result().offset."""
        meta: RecordMetadata = _outcome(self)
        return meta.offset

    @property
    def timestamp_ms(self):
        """The record's timestamp; with LogAppendTime it changes when the record is acknowledged."""
        batch: Batch = settle(self)
        return batch.append_time if batch.append_time >= 0 else self.timestamp

    def __await__(self):
        batch: Batch = settle(self)
        if batch.state == DELIVERED or batch.state == FAILED:
            return self
        return _waiter(self)

    # Called by `yield from`, with which asyncio waits for an awaitable that it wraps in a task.
    def __iter__(self):
        return self.__await__()

    # Called by `await` only if __await__ returned self, that is, if the outcome is known.
    def __next__(self):
        raise StopIteration(_outcome(self))

    def __repr__(self):
        batch: Batch = settle(self)
        if batch.state == DELIVERED:
            return f"<Delivery {_metadata(batch, self.index, self.timestamp)!r}>"
        if batch.state == FAILED:
            return f"<Delivery to {batch.topic}-{batch.partition} failed: {batch.error!r}>"
        return f"<Delivery to {batch.topic}-{batch.partition} pending>"


@cython.cfunc
def new_delivery(batch: Batch, index: cython.uint, timestamp: cython.longlong) -> Delivery:
    delivery: Delivery = Delivery.__new__(Delivery)
    delivery.batch = batch
    delivery.index = index
    delivery.timestamp = timestamp
    return delivery


@cython.cfunc
def settle(delivery: Delivery) -> Batch:
    """Return the batch that holds the record, after any moves and splits; the result is cached."""
    batch: Batch = delivery.batch
    target: Delivery
    while batch.state == MOVED:
        target = batch.targets[delivery.index]
        delivery.batch = target.batch
        delivery.index = target.index
        batch = delivery.batch
    return batch


@cython.cfunc
def _outcome(delivery: Delivery) -> RecordMetadata:
    batch: Batch = settle(delivery)
    if batch.state == DELIVERED:
        return _metadata(batch, delivery.index, delivery.timestamp)
    if batch.state != FAILED:
        raise asyncio.InvalidStateError("the record is neither acknowledged nor failed")
    observe(batch, delivery.index)
    raise copy_error(batch.error)


@cython.cfunc
def observe(batch: Batch, index: cython.Py_ssize_t) -> object:
    """Mark the failure of record `index` as seen by a caller."""
    if batch.state != FAILED:
        return None
    if batch.observed is None:
        batch.observed = bytearray(batch.count)
    seen: bytearray = batch.observed
    if not seen[index]:
        seen[index] = 1
        batch.observed_count += 1
    return None


@cython.final
@cython.freelist(256)
@cython.cclass
class Wait:
    """One wait for a delivery: the iterator behind `await`, and the future its task suspends on.

    There is one object per pending `await`, so that cancelling one wait does not end the others. A
    done-callback of a delivery is a Wait too. asyncio accepts any object with
    `_asyncio_future_blocking` and these methods as a future.
    """

    __slots__ = (
        "_asyncio_future_blocking",
        "callback",
        "context",
        "delivery",
        "loop",
        "message",
        "state",
        "whole",
    )

    def __init__(self):
        raise TypeError("objects of this class are created by awaiting a delivery")

    # The methods of an iterator, called by `await`.

    def __iter__(self):
        return self

    def __next__(self):
        value = _wait_step(self)
        if value is self:
            return value
        raise StopIteration(value)

    def send(self, value):
        return self.__next__()

    def throw(self, kind, value=None, traceback=None):
        _leave(self)
        raise thrown(kind, value, traceback)

    def close(self):
        _leave(self)

    # The methods of a future, called by the task.

    def get_loop(self):
        return self.loop

    def add_done_callback(self, fn, *, context=None):
        self.callback = fn
        self.context = context if context is not None else copy_context()
        if self.state != WAIT_SUSPENDED:
            _wake_soon(self)

    def remove_done_callback(self, fn):
        if self.callback is None:
            return 0
        self.callback = None
        return 1

    def cancel(self, msg=None):
        if self.state != WAIT_SUSPENDED:
            return False
        fn = self.callback
        _leave(self)
        self.callback = fn
        self.state = WAIT_CANCELLED
        self.message = msg
        _wake_soon(self)
        return True

    def cancelled(self):
        return self.state == WAIT_CANCELLED

    def done(self):
        return self.state != WAIT_SUSPENDED

    # The task calls result() to get an error that it throws into its coroutine. If there is no
    # error, the task ignores the result, and __next__ returns the value.
    def result(self):
        if self.state == WAIT_CANCELLED:
            if self.message is None:
                raise asyncio.CancelledError
            raise asyncio.CancelledError(self.message)
        if self.state == WAIT_SUSPENDED:
            raise asyncio.InvalidStateError("the record is neither acknowledged nor failed")

    def exception(self):
        self.result()


@cython.cfunc
def _loop_of(batch: Batch) -> object:
    """Return the loop on which waiters are woken; the accumulator's first wait sets the loop."""
    accumulator: Accumulator = batch.accumulator
    if accumulator.loop is None:
        accumulator.loop = asyncio.get_running_loop()
    return accumulator.loop


@cython.cfunc
def _waiter(delivery: Delivery) -> Wait:
    wait: Wait = Wait.__new__(Wait)
    require_loop(delivery.batch.accumulator.guard)
    wait.delivery = delivery
    wait.loop = _loop_of(delivery.batch)
    wait.callback = None
    wait.context = None
    wait.message = None
    wait.state = WAIT_NEW
    wait.whole = False
    wait._asyncio_future_blocking = False
    return wait


@cython.cfunc
def _callback(delivery: Delivery, fn: object, context: object, loop: object) -> Wait:
    wait: Wait = _waiter(delivery)
    wait.callback = fn
    wait.context = context if context is not None else copy_context()
    wait.state = WAIT_CALLBACK
    return wait


@cython.cfunc
@cython.exceptval(check=False)
def _suspend(wait: Wait) -> cython.bint:
    """Add the wait to the batch's waiters and return True; return False if the outcome is known."""
    batch: Batch = settle(wait.delivery)
    if batch.state == DELIVERED or batch.state == FAILED:
        wait.state = WAIT_WOKEN
        return False
    wait.state = WAIT_SUSPENDED
    wait._asyncio_future_blocking = True
    _join(batch, wait)
    return True


@cython.cfunc
def _may_resume(wait: Wait) -> object:
    if wait.state == WAIT_SUSPENDED or wait.state == WAIT_LEFT:
        raise RuntimeError("await was not used with this wait")
    return None


@cython.cfunc
def _wait_step(wait: Wait) -> object:
    """Take one step of `await delivery`: return the wait to suspend on, or the outcome if known."""
    if wait.state == WAIT_NEW:
        if _suspend(wait):
            return wait
    else:
        _may_resume(wait)
    return _outcome(wait.delivery)


@cython.cfunc
def _wake_soon(wait: Wait) -> object:
    """Schedule the callback of a wait that is not suspended; the callback wakes the task."""
    fn = wait.callback
    wait.callback = None
    if fn is not None:
        wait.loop.call_soon(fn, wait, context=wait.context)
    return None


@cython.cfunc
def _join(batch: Batch, wait: Wait) -> object:
    if batch.waiting is None:
        batch.waiting = []
    batch.waiting.append(wait)
    batch.live += 1
    return None


@cython.cfunc
def _leave(wait: Wait) -> object:
    """End a wait.

    Ended waits stay in the batch's list of waits until there are many; then the list is rebuilt.
    """
    batch: Batch
    other: Wait
    if wait.state == WAIT_SUSPENDED or wait.state == WAIT_CALLBACK:
        wait.state = WAIT_LEFT
        wait.callback = None
        batch = settle(wait.delivery)
        if batch.state == DELIVERED or batch.state == FAILED:
            return None
        batch.live -= 1
        if batch.waiting is not None and len(batch.waiting) > 2 * batch.live + 16:
            kept = []
            for other in batch.waiting:
                if other.state == WAIT_SUSPENDED or other.state == WAIT_CALLBACK:
                    kept.append(other)
            batch.waiting = kept
    return None


@cython.cfunc
def rejoin(wait: Wait) -> object:
    """Continue a wait in the batch to which its record moved; that batch may be done already."""
    batch: Batch = settle(wait.delivery)
    if batch.state == DELIVERED or batch.state == FAILED:
        observe(batch, wait.delivery.index)
        wait.loop.call_soon(Wakes(wait.loop, [wait]))
    else:
        _join(batch, wait)
    return None


@cython.final
@cython.cclass
class Wakes:
    """The loop callback that wakes all waiters of a batch, in order, after the batch ended.

    A loop callback per waiter would take longer than the wake-up itself. The callback of each
    waiter runs in that waiter's context.
    """

    __slots__ = ("loop", "next", "waiting")

    def __init__(self, loop, waiting):
        self.loop = loop
        self.waiting = waiting
        self.next = 0

    def __call__(self):
        wait: Wait
        while self.next < len(self.waiting):
            wait = self.waiting[self.next]
            self.next += 1
            if wait.state == WAIT_SUSPENDED:
                wait.state = WAIT_WOKEN
                argument = wait
            elif wait.state == WAIT_CALLBACK:
                wait.state = WAIT_LEFT
                argument = wait.delivery
            else:
                continue
            fn = wait.callback
            wait.callback = None
            try:
                if cython.compiled:
                    PyContext_Enter(wait.context)
                    try:
                        fn(argument)
                    finally:
                        PyContext_Exit(wait.context)
                else:
                    wait.context.run(fn, argument)
            except (SystemExit, KeyboardInterrupt):
                self.loop.call_soon(self)
                raise
            except BaseException as error:  # noqa: BLE001  as the loop does with its callbacks
                self.loop.call_exception_handler(
                    {"message": f"Exception in callback {fn!r}", "exception": error}
                )


# ---------------------------------------------------------------- deliveries of many records


_marks = 0


@cython.final
@cython.cclass
class Deliveries:
    """The outcomes of one send_many or send_columns, in input order; one `await` waits for all.

    Awaiting the object returns a list of RecordMetadata. If a record failed, the `await` raises
    DeliveryFailed, whose `errors` has an entry per record: its error, or None if it was delivered.
    """

    __slots__ = (
        "awaited",
        "batches",
        "capacity",
        "counted",
        "counts",
        "explicit",
        "filled",
        "index_block",
        "indexes",
        "mark",
        "ordinal_block",
        "ordinals",
        "time_bits",
        "times",
        "timestamp",
    )

    def __init__(self):
        raise TypeError("deliveries come from send_many()")

    def __len__(self):
        return self.filled

    def __getitem__(self, index):
        at: cython.Py_ssize_t
        if isinstance(index, slice):
            return [self[n] for n in range(*index.indices(self.filled))]
        index = operator.index(index)
        if not -self.filled <= index < self.filled:
            raise IndexError("index out of range of the deliveries")
        at = index
        return delivery_at(self, at + self.filled if at < 0 else at)

    def done(self):
        """Return whether the outcome of every record is known."""
        n: cython.Py_ssize_t
        for n in range(self.filled):
            if not _known(_batch_at(self, n)):
                return False
        return True

    def __await__(self):
        wait: _WaitAll = _WaitAll.__new__(_WaitAll)
        wait.deliveries = self
        wait.at = 0
        wait.wait = None
        wait.joined = False
        return wait

    def __repr__(self):
        return f"<Deliveries of {self.filled} records>"


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _known(batch: Batch) -> cython.bint:
    return batch.state == DELIVERED or batch.state == FAILED


@cython.cfunc
def new_deliveries(length: cython.Py_ssize_t, timestamp: cython.longlong) -> Deliveries:
    """Return an empty Deliveries with space for `length` records."""
    global _marks
    many: Deliveries = Deliveries.__new__(Deliveries)
    _marks += 1
    many.mark = _marks
    many.batches = []
    many.explicit = None
    many.time_bits = None
    many.times = None
    many.filled = 0
    many.capacity = length
    many.awaited = 0
    many.counted = 0
    many.counts = None
    many.timestamp = timestamp
    if cython.compiled:
        many.ordinal_block = PyBytes_FromStringAndSize(cython.NULL, 4 * length)
        many.index_block = PyBytes_FromStringAndSize(cython.NULL, 4 * length)
        _set_blocks(many)
    else:
        many.ordinals = []
        many.indexes = []
    return many


@cython.cfunc
def enlarge(many: Deliveries) -> object:
    """Double the space of a Deliveries that is full."""
    many.capacity *= 2
    if cython.compiled:
        ordinals = PyBytes_FromStringAndSize(cython.NULL, 4 * many.capacity)
        indexes = PyBytes_FromStringAndSize(cython.NULL, 4 * many.capacity)
        memcpy(PyBytes_AS_STRING(ordinals), many.ordinals, 4 * many.filled)
        memcpy(PyBytes_AS_STRING(indexes), many.indexes, 4 * many.filled)
        many.ordinal_block = ordinals
        many.index_block = indexes
        _set_blocks(many)
    return None


@cython.cfunc
def _set_blocks(many: Deliveries) -> object:
    if cython.compiled:
        many.ordinals = cython.cast(
            cython.p_uint, cython.cast(cython.p_void, PyBytes_AS_STRING(many.ordinal_block))
        )
        many.indexes = cython.cast(
            cython.p_uint, cython.cast(cython.p_void, PyBytes_AS_STRING(many.index_block))
        )
    return None


@cython.cfunc
def _timestamp_at(many: Deliveries, at: cython.Py_ssize_t) -> cython.longlong:
    if many.times is not None:
        if bit(many.time_bits, at):
            return int64_at(many.times, at) // 1000
    elif many.explicit is not None and at in many.explicit:
        return many.explicit[at]
    return many.timestamp


@cython.cfunc
def delivery_at(many: Deliveries, at: cython.Py_ssize_t) -> Delivery:
    return new_delivery(many.batches[many.ordinals[at]], many.indexes[at], _timestamp_at(many, at))


@cython.cfunc
def _batch_at(many: Deliveries, at: cython.Py_ssize_t) -> Batch:
    """Return the batch that holds record `at`, after any moves and splits."""
    batch: Batch = many.batches[many.ordinals[at]]
    return settle(delivery_at(many, at)) if batch.state == MOVED else batch


@cython.cfunc
def records_by_batch(many: Deliveries) -> dict:
    """Return the number of records of `many` in each batch.

    The counts are cached until records are added or move to other batches.
    """
    n: cython.Py_ssize_t
    batch: Batch
    if many.counts is None or many.counted != many.filled:
        counts: dict = {}
        for n in range(many.filled):
            batch = _batch_at(many, n)
            counts[batch] = counts.get(batch, 0) + 1
        many.counts = counts
        many.counted = many.filled
    return many.counts


@cython.cfunc
def forget_counts(many: Deliveries) -> object:
    """Discard the counts of records_by_batch(), because records moved to other batches."""
    many.counts = None
    return None


@cython.cfunc
def observe_many(many: Deliveries, batch: Batch) -> object:
    """Mark the failed records of `many` in `batch` as seen, if a task awaits `many`."""
    n: cython.Py_ssize_t
    delivery: Delivery
    if many.awaited > 0:
        for n in range(many.filled):
            delivery = delivery_at(many, n)
            if settle(delivery) is batch:
                observe(batch, delivery.index)
    return None


@cython.cfunc
def _all_outcomes(many: Deliveries) -> list:
    """Return a RecordMetadata per record, or raise DeliveryFailed if a record failed."""
    n: cython.Py_ssize_t
    batch: Batch
    delivery: Delivery
    out: list = []
    for n in range(many.filled):
        batch = many.batches[many.ordinals[n]]
        if batch.state == DELIVERED:
            out.append(_metadata(batch, many.indexes[n], _timestamp_at(many, n)))
            continue
        delivery = delivery_at(many, n)
        batch = settle(delivery)
        if batch.state == FAILED:
            raise _many_failed(many)
        out.append(_metadata(batch, delivery.index, delivery.timestamp))
    return out


@cython.cfunc
def _many_failed(many: Deliveries) -> object:
    n: cython.Py_ssize_t
    delivery: Delivery
    batch: Batch
    errors: list = []
    copies: dict = {}
    places: dict = {}
    failed: cython.Py_ssize_t = 0
    for n in range(many.filled):
        delivery = delivery_at(many, n)
        batch = settle(delivery)
        if batch.state == DELIVERED:
            errors.append(None)
            continue
        observe(batch, delivery.index)
        if id(batch) not in copies:
            copies[id(batch)] = copy_error(batch.error)
            places[TopicPartition(batch.topic, batch.partition)] = None
        errors.append(copies[id(batch)])
        failed += 1
    return DeliveryFailed(failed, errors, list(places))


@cython.final
@cython.cclass
class _WaitAll:
    """The iterator behind `await deliveries`: waits for one unfinished batch after another."""

    __slots__ = ("at", "deliveries", "joined", "wait")

    def __init__(self):
        raise TypeError("objects of this class are created by awaiting deliveries")

    def __iter__(self):
        return self

    def __next__(self):
        value = _wait_all_step(self)
        if self.wait is not None:
            return value
        raise StopIteration(value)

    def send(self, value):
        return self.__next__()

    def throw(self, kind, value=None, traceback=None):
        _leave_all(self)
        raise thrown(kind, value, traceback)

    def close(self):
        _leave_all(self)


@cython.cfunc
def _wait_all_step(self: _WaitAll) -> object:
    """Return the wait to suspend on; or the outcomes, in which case `self.wait` is None."""
    many: Deliveries = self.deliveries
    if self.wait is not None:
        _may_resume(self.wait)
        self.wait = None
    elif self.joined:
        raise RuntimeError("await was not used with this wait")
    while self.at < many.filled:
        if not _known(_batch_at(many, self.at)):
            self.wait = _waiter(delivery_at(many, self.at))
            self.wait.whole = True
            _suspend(self.wait)
            if not self.joined:
                self.joined = True
                many.awaited += 1
            return self.wait
        self.at += 1
    if self.joined:
        self.joined = False
        many.awaited -= 1
    return _all_outcomes(many)


@cython.cfunc
def _leave_all(self: _WaitAll) -> object:
    if self.wait is not None:
        _leave(self.wait)
        self.wait = None
    if self.joined:
        self.joined = False
        self.deliveries.awaited -= 1
    return None


# ---------------------------------------------------------------- type slots


@cython.cfunc
def _delivery_slot(self: object, yielded: cython.p_int) -> object:
    return _outcome(cython.cast(Delivery, self))


@cython.cfunc
def _wait_slot(self: object, yielded: cython.p_int) -> object:
    value = _wait_step(cython.cast(Wait, self))
    if value is self:
        yielded[0] = 1
    return value


@cython.cfunc
def _wait_all_slot(self: object, yielded: cython.p_int) -> object:
    wait: _WaitAll = self
    value = _wait_all_step(wait)
    if wait.wait is not None:
        yielded[0] = 1
    return value


# ---------------------------------------------------------------- module initialization

if cython.compiled:
    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
    aiokq_patch_delivery(Delivery, _delivery_slot)
    aiokq_patch_wait(Wait, _wait_slot)
    aiokq_patch_wait_all(_WaitAll, _wait_all_slot)
