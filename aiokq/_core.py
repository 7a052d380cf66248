"""Owns what happens once per record: encoding, partitioning, deliveries, decoding, CRC-32C.

It knows no cluster, settings, tasks or sockets; everything around it is Python that runs once
per batch. One source, two lives: compiled as `aiokq._compiled` (the C types stand in
_compiled.pxd, the C it calls in _native.h), or imported as it is, `aiokq._core`, where the
`else` of `if cython.compiled` does the same with tables and slices. `aiokq.fastpath` chooses.

Contents; each part has a line of dashes with its name, and a class is followed by the C functions
that only it needs:

    numbers and checksums       crc32c, murmur2, partition_for_key
    whose loop it is            LoopGuard: other loops and threads are refused, by one comparison
    deliveries                  RecordMetadata, Delivery, what waits for one (_Wait), who is woken
    batches                     Batch: the block of records, its header, its outcome, forwarding
    slots and routes            Slot: the open batch of a partition; Route: the slots of a topic
    many deliveries at once     Deliveries, what send_many() gives
    columns to send             RecordColumns: Arrow's buffers, what append_columns() takes
    the accumulator             Accumulator: append(), and room, partition, encoding under it
    records                     Record
    the cursor                  Cursor: batches entered, checked, decompressed, records decoded
    columns                     Columns: the same bytes as Arrow's buffers
    compaction                  OffsetMap, KeptBatches: the log cleaner's loops
    produced batches            read_produced: what a broker is sent, read and checked
    streaming                   RecordStream: `async for` over cursors
    type slots                  what a compiled `await` and `async for` call directly (am_send)
    at import                   the slots are patched in

To follow a record that is sent, start at Accumulator.append; one that is read, at Cursor.__next__.
Why this is one file: docs/adr/0005-compiled-core.md.

Tests: tests/unit/fastpath/ (each on both builds), tests/property/test_core_parity.py.
Benchmark: benchmarks/micro/core.py.
"""

# hot: benchmarks/micro/core.py. Flat on purpose: a call per record is what it avoids.
# ruff: noqa: SIM108, SIM110

from __future__ import annotations

import asyncio
import operator
import re
import struct
import sys
import time
from contextvars import copy_context

from aiokq.core.clock import SystemClock
from aiokq.core.errors import (
    BufferFull,
    Closed,
    CorruptRecord,
    DeliveryFailed,
    InvalidTopic,
    KafkaError,
    RecordTooLarge,
    UnknownTopicOrPartition,
    copy_error,
)
from aiokq.core.types import TopicPartition

try:
    from aiokq import _cython as cython
except ImportError:  # never: the compiler looks for this name, and finds it here
    import cython

if cython.compiled:
    from cython.cimports.aiokq._native import (
        AIOKQ_SOURCE_HASH,
        CRC_COVERS,
        DELIVERED,
        FAILED,
        HEADER_SIZE,
        MIN_CHUNK,
        MOVED,
        NUMBERS,
        OPEN,
        RECORD_OVERHEAD,
        SEALED,
        Py_buffer,
        Py_REFCNT,
        PyBUF_SIMPLE,
        PyBuffer_Release,
        PyBytes_AS_STRING,
        PyBytes_FromStringAndSize,
        PyBytes_GET_SIZE,
        PyContext_Enter,
        PyContext_Exit,
        PyLong_AsLongLongAndOverflow,
        PyMem_Free,
        PyMem_Malloc,
        PyObject_GetBuffer,
        PyUnicode_AsUTF8AndSize,
        PyUnicode_DecodeUTF8,
        aiokq_add,
        aiokq_crc32c,
        aiokq_crc32c_setup,
        aiokq_elements,
        aiokq_i16,
        aiokq_i32,
        aiokq_i64,
        aiokq_indexing,
        aiokq_int16,
        aiokq_int32,
        aiokq_is_ascii,
        aiokq_keep,
        aiokq_length,
        aiokq_loop_hook,
        aiokq_map_free,
        aiokq_map_get,
        aiokq_map_index,
        aiokq_map_make,
        aiokq_map_put,
        aiokq_marks_free,
        aiokq_micros,
        aiokq_murmur2,
        aiokq_no_tags,
        aiokq_note,
        aiokq_now_ms,
        aiokq_ordinary,
        aiokq_parse_header,
        aiokq_parse_record,
        aiokq_pass,
        aiokq_patch_delivery,
        aiokq_patch_stream,
        aiokq_patch_stream_wait,
        aiokq_patch_wait,
        aiokq_patch_wait_all,
        aiokq_put_varint,
        aiokq_record,
        aiokq_request,
        aiokq_stays_empty,
        aiokq_u32,
        aiokq_varint_size,
        int32_t,
        int64_t,
        memcpy,
    )
else:
    # What has become of a batch: still filled, closed to appends, acknowledged, given up, or
    # its records moved to other batches.
    OPEN, SEALED, DELIVERED, FAILED, MOVED = range(5)
    # Bytes: a v2 batch's header; where its checksum begins to cover; what a partition's first
    # batch starts with (it doubles up to batch_size); what a record takes at most beside key,
    # value and headers; its length, timestamp delta and offset delta at most.
    HEADER_SIZE, CRC_COVERS, MIN_CHUNK, RECORD_OVERHEAD, NUMBERS = 61, 21, 1024, 36, 20

    from aiokq import _pure, _pure_compaction, _pure_produced

    _crc32c, _VARINT, _SMALL, _DELTA = _pure.crc32c, _pure.VARINT, _pure.SMALL, _pure.DELTA

COMPILED: bool = bool(cython.compiled)

_BEFORE_CRC = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, CRC
_AFTER_CRC = struct.Struct(">hiqqqhii")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1
_POOLED_BYTES = 4 * 1024 * 1024


# ---------------------------------------------------------------- numbers and checksums


def crc32c(data, value=0):
    """CRC-32C (Castagnoli) of `data`, going on from `value`.

    Args:
        data: any contiguous buffer.
        value: the CRC of what came before.
    """
    if cython.compiled:
        view: cython.const[cython.uchar][::1] = memoryview(data).cast("B")
        start: cython.uint = value
        if view.shape[0] == 0:
            return value
        return aiokq_crc32c(start, cython.address(view[0]), view.shape[0])
    else:
        return _crc32c(data, value)


def murmur2(key):
    """Java's murmur2 of a key, as an unsigned 32-bit number.

    Source: org.apache.kafka.common.utils.Utils.murmur2.
    """
    data: bytes = bytes(key)
    if cython.compiled:
        return aiokq_murmur2(
            cython.cast(cython.p_uchar, PyBytes_AS_STRING(data)), PyBytes_GET_SIZE(data)
        )
    else:
        length = len(data)
        m = 0x5BD1E995
        h = 0x9747B28C ^ length
        words = length >> 2
        for k in struct.unpack_from(f"<{words}I", data):
            k = k * m & 0xFFFFFFFF
            k ^= k >> 24
            h = (h * m & 0xFFFFFFFF) ^ (k * m & 0xFFFFFFFF)
        tail = data[words << 2 :]
        if tail:
            h = (h ^ int.from_bytes(tail, "little")) * m & 0xFFFFFFFF
        h ^= h >> 13
        h = h * m & 0xFFFFFFFF
        return h ^ h >> 15


def partition_for_key(key, partitions):
    """The partition Java's default partitioner gives `key` in a topic of `partitions`."""
    if partitions <= 0:
        raise ValueError("a topic has at least one partition")
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def _int_of(value, name, bits):
    """The number, if it is an int of so many bits: what is kept in C, in both builds."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is an int, not {value!r}")
    if value.bit_length() >= bits and value != -(1 << bits - 1):
        raise ValueError(f"{name}={value}: it is from -2**{bits - 1} to 2**{bits - 1} - 1")
    return value


# ---------------------------------------------------------------- whose loop it is


@cython.final
@cython.cclass
class LoopGuard:
    """Refuses the use of something on another event loop than its own, or in another thread.

    While a loop runs, its thread has a hook for asynchronous generators that is a method of that
    loop. One comparison with the hook seen last thus tells loop and thread; asking asyncio for the
    running loop takes as long as taking a record.

    Args:
        check: called where the hook is another one; raises if this is not the loop of its own.
            None refuses nothing.
    """

    __slots__ = ("check", "hook")

    def __init__(self, check=None):
        self.check = check
        self.hook = None

    def require(self):
        """Raises what `check` does, if this is not the place."""
        _require(self)

    def forget(self):
        """Asks `check` anew: this may be another process."""
        self.hook = None


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _require(guard: LoopGuard) -> cython.int:
    if cython.compiled and cython.cast(cython.p_void, guard.hook) == aiokq_loop_hook():
        return 0
    return _look_closer(guard)


@cython.cfunc
@cython.exceptval(-1)
def _look_closer(guard: LoopGuard) -> cython.int:
    if guard.check is None:
        return 0
    hook = sys.get_asyncgen_hooks().firstiter
    if hook is None or hook is not guard.hook:
        guard.check()
        # A hook that somebody else has set, another loop among them, says nothing about this loop.
        own = getattr(hook, "__self__", None)
        guard.hook = hook if own is asyncio.get_running_loop() else None
    return 0


_NO_GUARD = LoopGuard()


# ---------------------------------------------------------------- deliveries


@cython.final
@cython.no_gc
@cython.freelist(1024)
@cython.cclass
class RecordMetadata:
    """Where a record was written.

    Attributes:
        topic: the topic.
        partition: the partition's number.
        offset: in the partition; -1 where no broker was asked to answer (acks=0).
        timestamp_ms: the record's own, or the log's append time where the topic has it so.
    """

    __slots__ = ("offset", "partition", "timestamp_ms", "topic")

    def __init__(self, topic, partition, offset, timestamp_ms):
        self.topic = topic
        self.partition = _int_of(partition, "partition", 32)
        self.offset = _int_of(offset, "offset", 64)
        self.timestamp_ms = _int_of(timestamp_ms, "timestamp_ms", 64)

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
    """The outcome of record `index` of an acknowledged batch."""
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
    """The outcome of one record, now or later: await it as often as you like.

    It is awaitable and has the methods of a future, but is no asyncio future: a wait that is
    cancelled or timed out ends that wait only. Made by the accumulator, never by hand.
    """

    # Not tracked by the garbage collector: 48 bytes, and half a million pending ones cost no
    # collection. The cycles it can be part of (batch, waiter, delivery) end when its batch
    # does, and closing a producer ends every batch.
    __slots__ = ("batch", "index", "timestamp")

    def __init__(self):
        raise TypeError("deliveries come from send_nowait() and enqueue()")

    def done(self):
        """Whether the record was acknowledged or given up."""
        return _settle(self).state in (DELIVERED, FAILED)

    def cancelled(self):
        """Always False: an accepted record cannot be taken back."""
        return False

    def result(self):
        """The RecordMetadata.

        Raises:
            asyncio.InvalidStateError: not known yet.
            KafkaError: why the record was not delivered; each call raises its own copy.
        """
        return _outcome(self)

    def exception(self):
        """Why the record was not delivered, or None if it was.

        Raises:
            asyncio.InvalidStateError: not known yet.
        """
        batch: Batch = _settle(self)
        if batch.state == DELIVERED:
            return None
        if batch.state != FAILED:
            raise asyncio.InvalidStateError("the record is neither acknowledged nor given up")
        _observe(batch, self.index)
        return copy_error(batch.error)

    def add_done_callback(self, fn, *, context=None):
        """Has the loop call `fn(self)` once the outcome is known."""
        batch: Batch = _settle(self)
        _require(batch.accumulator.guard)
        loop = _loop_of(batch)
        if batch.state == DELIVERED or batch.state == FAILED:
            _observe(batch, self.index)
            loop.call_soon(fn, self, context=context)
            return
        _join(batch, _callback(self, fn, context, loop))

    def remove_done_callback(self, fn):
        """Takes back every add_done_callback(fn); returns how many there were."""
        batch: Batch = _settle(self)
        removed: cython.int = 0
        wait: _Wait
        _require(batch.accumulator.guard)
        if batch.waiting is None:
            return 0
        for wait in list(batch.waiting):
            if (
                wait.state == _CALLBACK
                and wait.delivery.index == self.index
                and wait.callback == fn
            ):
                _leave(wait)
                removed += 1
        return removed

    @property
    def topic(self):
        """The record's topic."""
        return _settle(self).topic

    @property
    def partition(self):
        """The record's partition; -1 while the topic's metadata is unknown."""
        return _settle(self).partition

    @property
    def offset(self):
        """The record's offset, as result().offset."""
        meta: RecordMetadata = _outcome(self)
        return meta.offset

    @property
    def timestamp_ms(self):
        """The record's timestamp: its own until the log's append time is known."""
        batch: Batch = _settle(self)
        return batch.append_time if batch.append_time >= 0 else self.timestamp

    def __await__(self):
        batch: Batch = _settle(self)
        if batch.state == DELIVERED or batch.state == FAILED:
            return self
        return _waiter(self)

    # `yield from` asks for it, as asyncio does with what it wraps in a task.
    def __iter__(self):
        return self.__await__()

    # Called by the loop only where __await__ returned self: the outcome is known.
    def __next__(self):
        raise StopIteration(_outcome(self))

    def __repr__(self):
        batch: Batch = _settle(self)
        if batch.state == DELIVERED:
            return f"<Delivery {_metadata(batch, self.index, self.timestamp)!r}>"
        if batch.state == FAILED:
            return f"<Delivery to {batch.topic}-{batch.partition} failed: {batch.error!r}>"
        return f"<Delivery to {batch.topic}-{batch.partition} pending>"


@cython.cfunc
def _delivery(batch: Batch, index: cython.uint, timestamp: cython.longlong) -> Delivery:
    delivery: Delivery = Delivery.__new__(Delivery)
    delivery.batch = batch
    delivery.index = index
    delivery.timestamp = timestamp
    return delivery


@cython.cfunc
def _settle(delivery: Delivery) -> Batch:
    """The batch that holds the record now: follows moves and splits, and remembers them."""
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
    batch: Batch = _settle(delivery)
    if batch.state == DELIVERED:
        return _metadata(batch, delivery.index, delivery.timestamp)
    if batch.state != FAILED:
        raise asyncio.InvalidStateError("the record is neither acknowledged nor given up")
    _observe(batch, delivery.index)
    raise copy_error(batch.error)


@cython.cfunc
def _observe(batch: Batch, index: cython.Py_ssize_t) -> object:
    """Somebody saw that record `index` failed."""
    if batch.state != FAILED:
        return None
    if batch.observed is None:
        batch.observed = bytearray(batch.count)
    seen: bytearray = batch.observed
    if not seen[index]:
        seen[index] = 1
        batch.observed_count += 1
    return None


# What a _Wait is: an `await` not yet suspended, one that is, one whose outcome is known or that
# was cancelled (its task is woken), one that nobody waits for any more, or a done-callback.
if cython.compiled:
    from cython.cimports.aiokq._native import (
        WAIT_CALLBACK as _CALLBACK,
    )
    from cython.cimports.aiokq._native import (
        WAIT_CANCELLED as _CANCELLED,
    )
    from cython.cimports.aiokq._native import (
        WAIT_LEFT as _LEFT,
    )
    from cython.cimports.aiokq._native import (
        WAIT_NEW as _NEW,
    )
    from cython.cimports.aiokq._native import (
        WAIT_SUSPENDED as _SUSPENDED,
    )
    from cython.cimports.aiokq._native import (
        WAIT_WOKEN as _WOKEN,
    )
else:
    _NEW, _SUSPENDED, _WOKEN, _CANCELLED, _LEFT, _CALLBACK = range(6)


@cython.final
@cython.freelist(256)
@cython.cclass
class _Wait:
    """One wait for a delivery: the iterator behind `await`, and the future its task suspends on.

    One object per pending `await`, so that cancelling a wait ends this wait and no other.
    asyncio takes anything with `_asyncio_future_blocking` and these methods for a future.
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
        raise TypeError("made by awaiting a delivery")

    # The iterator's half, called by `await`.

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
        raise _as_exception(kind, value, traceback)

    def close(self):
        _leave(self)

    # The future's half, called by the task.

    def get_loop(self):
        return self.loop

    def add_done_callback(self, fn, *, context=None):
        self.callback = fn
        self.context = context if context is not None else copy_context()
        if self.state != _SUSPENDED:
            _wake_soon(self)

    def remove_done_callback(self, fn):
        if self.callback is None:
            return 0
        self.callback = None
        return 1

    def cancel(self, msg=None):
        if self.state != _SUSPENDED:
            return False
        fn = self.callback
        _leave(self)
        self.callback = fn
        self.state = _CANCELLED
        self.message = msg
        _wake_soon(self)
        return True

    def cancelled(self):
        return self.state == _CANCELLED

    def done(self):
        return self.state != _SUSPENDED

    # The task asks only to learn whether to throw; the value is made in __next__.
    def result(self):
        if self.state == _CANCELLED:
            if self.message is None:
                raise asyncio.CancelledError
            raise asyncio.CancelledError(self.message)
        if self.state == _SUSPENDED:
            raise asyncio.InvalidStateError("the record is neither acknowledged nor given up")

    def exception(self):
        self.result()


def _as_exception(kind, value, traceback):
    """The exception that the old three-argument throw() means."""
    if isinstance(kind, BaseException):
        error = kind
    elif isinstance(value, BaseException):
        error = value
    else:
        error = kind() if value is None else kind(value)
    return error.with_traceback(traceback) if traceback is not None else error


@cython.cfunc
def _loop_of(batch: Batch) -> object:
    """The loop that waiters are woken on: the first one that anybody waited on."""
    accumulator: Accumulator = batch.accumulator
    if accumulator.loop is None:
        accumulator.loop = asyncio.get_running_loop()
    return accumulator.loop


@cython.cfunc
def _waiter(delivery: Delivery) -> _Wait:
    wait: _Wait = _Wait.__new__(_Wait)
    _require(delivery.batch.accumulator.guard)
    wait.delivery = delivery
    wait.loop = _loop_of(delivery.batch)
    wait.callback = None
    wait.context = None
    wait.message = None
    wait.state = _NEW
    wait.whole = False
    wait._asyncio_future_blocking = False
    return wait


@cython.cfunc
def _callback(delivery: Delivery, fn: object, context: object, loop: object) -> _Wait:
    wait: _Wait = _waiter(delivery)
    wait.callback = fn
    wait.context = context if context is not None else copy_context()
    wait.state = _CALLBACK
    return wait


@cython.cfunc
@cython.exceptval(check=False)
def _suspend(wait: _Wait) -> cython.bint:
    """Joins the batch's waiters if the outcome is not known yet; says whether it did."""
    batch: Batch = _settle(wait.delivery)
    if batch.state == DELIVERED or batch.state == FAILED:
        wait.state = _WOKEN
        return False
    wait.state = _SUSPENDED
    wait._asyncio_future_blocking = True
    _join(batch, wait)
    return True


@cython.cfunc
def _may_resume(wait: _Wait) -> object:
    if wait.state == _SUSPENDED or wait.state == _LEFT:
        raise RuntimeError("await was not used with this wait")
    return None


@cython.cfunc
def _wait_step(wait: _Wait) -> object:
    """One step of `await delivery`: the wait itself to suspend on, else the outcome."""
    if wait.state == _NEW:
        if _suspend(wait):
            return wait
    else:
        _may_resume(wait)
    return _outcome(wait.delivery)


@cython.cfunc
def _wake_soon(wait: _Wait) -> object:
    """Has the loop wake the task behind a wait that ended by itself."""
    fn = wait.callback
    wait.callback = None
    if fn is not None:
        wait.loop.call_soon(fn, wait, context=wait.context)
    return None


@cython.cfunc
def _join(batch: Batch, wait: _Wait) -> object:
    if batch.waiting is None:
        batch.waiting = []
    batch.waiting.append(wait)
    batch.live += 1
    return None


@cython.cfunc
def _leave(wait: _Wait) -> object:
    """Nobody waits here any more. Its place in the batch's list goes when enough are empty."""
    batch: Batch
    other: _Wait
    if wait.state == _SUSPENDED or wait.state == _CALLBACK:
        wait.state = _LEFT
        wait.callback = None
        batch = _settle(wait.delivery)
        if batch.state == DELIVERED or batch.state == FAILED:
            return None
        batch.live -= 1
        if batch.waiting is not None and len(batch.waiting) > 2 * batch.live + 16:
            kept = []
            for other in batch.waiting:
                if other.state == _SUSPENDED or other.state == _CALLBACK:
                    kept.append(other)
            batch.waiting = kept
    return None


@cython.final
@cython.cclass
class _Wakes:
    """What the loop calls once after a batch ended: wakes each of its waiters, in order.

    One loop callback for all of them, each run in its own context: a callback per waiter
    would cost more than the wake itself.
    """

    __slots__ = ("loop", "next", "waiting")

    def __init__(self, loop, waiting):
        self.loop = loop
        self.waiting = waiting
        self.next = 0

    def __call__(self):
        wait: _Wait
        while self.next < len(self.waiting):
            wait = self.waiting[self.next]
            self.next += 1
            if wait.state == _SUSPENDED:
                wait.state = _WOKEN
                argument = wait
            elif wait.state == _CALLBACK:
                wait.state = _LEFT
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


# ---------------------------------------------------------------- batches


@cython.final
@cython.cclass
class Batch:
    """Records of one partition that travel together; made and filled by the accumulator.

    Attributes:
        topic: the topic.
        partition: its number; -1 while the topic's metadata is unknown.
        slot: where it was filled.
        count: records in it.
        created: monotonic seconds of its first append.
        max_timestamp_ms: the latest record's timestamp.
        error: why it failed, or None.
    """

    __slots__ = (
        "accumulator",
        "append_time",
        "base_offset",
        "base_timestamp",
        "block",
        "capacity",
        "codec",
        "count",
        "created",
        "error",
        "live",
        "many",
        "mark",
        "max_timestamp_ms",
        "observed",
        "observed_count",
        "ordinal",
        "partition",
        "pos",
        "reserved",
        "slot",
        "stamped",
        "state",
        "targets",
        "topic",
        "view",
        "waiting",
        "wanted",
        "wire_size",
    )

    def __init__(self):
        raise TypeError("batches are made by the accumulator")

    @property
    def size(self):
        """Bytes of the batch, header included, before compression."""
        return self.pos

    @property
    def sealed(self):
        """Whether no more records can be added."""
        return self.state != OPEN

    @property
    def done(self):
        """Whether every record has its outcome, or moved to another batch."""
        return self.state in (DELIVERED, FAILED, MOVED)

    @property
    def waiters(self):
        """How many waits and callbacks hang on its outcome."""
        return self.live

    @property
    def awaited(self):
        """Whether as many wait as it has records; who awaits Deliveries waits for all of them."""
        wait: _Wait
        many: Deliveries
        if self.many is None:
            return self.live >= self.count
        total: cython.longlong = self.live
        for wait in self.waiting or ():
            if wait.whole and wait.state == _SUSPENDED:
                total -= 1  # it is one of these, on the first record that is not known yet
        for many in set(self.many):
            if many.awaited > 0:
                total += _counts(many).get(self, 0)
        return total >= self.count

    @property
    def unobserved(self):
        """How many of its records failed without anybody having seen or awaited it."""
        if self.state != FAILED:
            return 0
        return self.count - self.observed_count

    @property
    def reserved_bytes(self):
        """Bytes of buffer_memory it holds."""
        return self.reserved

    @property
    def data(self):
        """The bytes last stamped, read-only; empty before that and once the batch is done."""
        return self.view if self.view is not None else memoryview(b"")

    def payload(self):
        """The records as they were encoded, uncompressed: what a codec compresses. Read-only.

        Raises:
            ValueError: the batch was compressed, or is done: they are gone.
        """
        if self.block is None or self.codec != 0:
            raise ValueError("the uncompressed records are gone")
        return memoryview(self.block).toreadonly()[HEADER_SIZE : self.pos]

    def seal(self, codec=0, compressed=None):
        """Closes the batch to appends; `compressed` takes the place of the records.

        Args:
            codec: Kafka's number of the codec, 0 for none.
            compressed: what the codec made of payload().

        Raises:
            RuntimeError: it is sealed already.
            ValueError: a codec without its bytes, or bytes without their codec.
        """
        if self.state != OPEN:
            raise RuntimeError("the batch is sealed already")
        if (codec == 0) != (compressed is None) or not 0 <= codec <= 7:
            raise ValueError("a codec from 1 to 7 comes with compressed bytes, 0 without")
        _detach(self)
        self.state = SEALED
        self.wire_size = self.pos
        if compressed is not None:
            _replace_records(self, codec, bytes(compressed))

    def stamp(self, producer_id=-1, producer_epoch=-1, base_sequence=-1, *, transactional=False):
        """The finished batch: header written, checksum computed. Seals it if it is open.

        Stamping again with the same numbers returns the same memory. With others (after an
        epoch bump) the producer id, epoch, sequence and checksum change, nothing else, in a
        copy: an earlier request may still hold the old bytes.

        Raises:
            RuntimeError: the batch is done.
        """
        if self.state == OPEN:
            self.seal()
        if self.state != SEALED:
            raise RuntimeError("the batch is done")
        attributes = self.codec | (0x10 if transactional else 0)
        covered = _AFTER_CRC.pack(
            attributes,
            self.count - 1,
            self.base_timestamp,
            self.max_timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            self.count,
        )
        if covered != self.stamped:
            if self.view is not None:
                _copy_block(self)
            _write(self, CRC_COVERS, covered)
            crc = crc32c(memoryview(self.block)[CRC_COVERS : self.wire_size])
            _write(self, 0, _BEFORE_CRC.pack(0, self.wire_size - 12, -1, 2, crc))
            self.stamped = covered
            self.view = memoryview(self.block).toreadonly()[: self.wire_size]
        return self.view

    def complete(self, base_offset, log_append_time_ms=-1):
        """Every record was acknowledged: frees the memory, then wakes who waits.

        Args:
            base_offset: the first record's offset, -1 if no broker was asked (acks=0).
            log_append_time_ms: what the topic replaces the timestamps with, -1 if it does not.

        Returns:
            False if the batch was done before: its outcome stands.
        """
        if self.state not in (OPEN, SEALED):
            return False
        self.base_offset = base_offset
        self.append_time = log_append_time_ms
        _finish(self, DELIVERED)
        return True

    def fail(self, error):
        """No record will be delivered: frees the memory, then wakes who waits.

        Returns:
            False if the batch was done before: its outcome stands.
        """
        wait: _Wait
        if self.state not in (OPEN, SEALED):
            return False
        self.error = error
        waiting = self.waiting
        many = self.many
        _finish(self, FAILED)
        # Who waits will see it; flush() need not report it again.
        for wait in waiting or ():
            if wait.state == _SUSPENDED or wait.state == _CALLBACK:
                _observe(self, wait.delivery.index)
        for deliveries in many or ():
            _observe_many(deliveries, self)
        return True

    def forward(self, targets):
        """The records moved: each delivery follows the one in `targets` at its index.

        Raises:
            ValueError: not one target per record.
        """
        wait: _Wait
        target: Delivery
        batch: Batch
        moved: list = list(targets)
        if len(moved) != self.count:
            raise ValueError(f"{len(moved)} targets for {self.count} records")
        if self.state not in (OPEN, SEALED):
            raise RuntimeError("the batch is done")
        waiting = self.waiting
        many = self.many
        self.waiting = None
        self.targets = moved
        self.live = 0
        _finish(self, MOVED)
        for wait in waiting or ():
            if wait.state == _SUSPENDED or wait.state == _CALLBACK:
                _rejoin(wait)
        if many is not None:
            for deliveries in many:
                _forget_counts(deliveries)
            for target in moved:
                batch = target.batch
                if batch.many is None:
                    batch.many = list(many)
                elif batch.many[len(batch.many) - 1] is not many[len(many) - 1]:
                    batch.many.extend(many)

    def records(self, payload=None):
        """The records as `(key, value, headers, timestamp_ms)`, for a split.

        Args:
            payload: the uncompressed records, needed if the batch was compressed.
        """
        data: bytes = bytes(self.payload() if payload is None else payload)
        return _decode_records(data, self.count, self.base_timestamp)

    def __len__(self):
        return self.count

    def __repr__(self):
        state = ("open", "sealed", "delivered", "failed", "moved")[self.state]
        return f"<Batch {self.topic}-{self.partition} {self.count} records {state}>"


@cython.cfunc
def _detach(batch: Batch) -> object:
    """Takes the batch out of its slot if it is the open one there."""
    slot: Slot = batch.slot
    if slot.batch is batch:
        slot.batch = None
        slot.hint = batch.pos + (batch.pos >> 2)
    return None


@cython.cfunc
def _finish(batch: Batch, state: cython.int) -> object:
    """Ends the batch: memory first, so that room is free before any waiter runs."""
    accumulator: Accumulator = batch.accumulator
    waiting = batch.waiting
    live = batch.live
    _detach(batch)
    batch.state = state
    batch.view = None
    batch.waiting = None
    batch.live = 0
    batch.many = None
    batch.wanted = None
    _recycle(batch)
    freed = batch.reserved
    batch.reserved = 0
    accumulator.used -= freed
    if freed and accumulator.queued:
        _tell_room(accumulator)
    if live and state != MOVED:
        accumulator.loop.call_soon(_Wakes(accumulator.loop, waiting))
    return None


@cython.cfunc
def _rejoin(wait: _Wait) -> object:
    """Waits on in the batch that its record moved to, which may be done already."""
    batch: Batch = _settle(wait.delivery)
    if batch.state == DELIVERED or batch.state == FAILED:
        _observe(batch, wait.delivery.index)
        wait.loop.call_soon(_Wakes(wait.loop, [wait]))
    else:
        _join(batch, wait)
    return None


@cython.cfunc
def _recycle(batch: Batch) -> object:
    """Gives the memory back; full-size blocks that nobody else holds are used again."""
    if cython.compiled:
        accumulator: Accumulator = batch.accumulator
        block = batch.block
        batch.block = None
        batch.base = cython.NULL
        if (
            block is not None
            and PyBytes_GET_SIZE(block) == accumulator.batch_size
            and len(accumulator.pool) < accumulator.pool_limit
            and Py_REFCNT(block) == 1
        ):
            accumulator.pool.append(block)
    else:
        batch.block = None
    return None


@cython.cfunc
def _set_block(batch: Batch, capacity: cython.Py_ssize_t) -> object:
    """Memory for `capacity` bytes, what is written so far kept."""
    if cython.compiled:
        accumulator: Accumulator = batch.accumulator
        base: cython.p_uchar
        if capacity == accumulator.block_size and accumulator.pool:
            block = accumulator.pool.pop()
        else:
            block = PyBytes_FromStringAndSize(cython.NULL, capacity)
        base = cython.cast(cython.p_uchar, PyBytes_AS_STRING(block))
        if batch.base != cython.NULL:
            memcpy(base, batch.base, batch.pos)
        batch.block = block
        batch.base = base
    elif batch.block is None:
        batch.block = bytearray(HEADER_SIZE)
    batch.capacity = capacity
    return None


@cython.cfunc
def _copy_block(batch: Batch) -> object:
    """Own bytes to write to, where a view of the old ones may be in a transport."""
    if cython.compiled:
        block = PyBytes_FromStringAndSize(cython.cast(cython.p_char, batch.base), batch.wire_size)
        batch.block = block
        batch.base = cython.cast(cython.p_uchar, PyBytes_AS_STRING(block))
    else:
        batch.block = bytearray(batch.block)
    return None


@cython.cfunc
def _write(batch: Batch, at: cython.Py_ssize_t, data: bytes) -> object:
    if cython.compiled:
        memcpy(batch.base + at, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    else:
        batch.block[at : at + len(data)] = data
    return None


@cython.cfunc
def _replace_records(batch: Batch, codec: cython.int, compressed: bytes) -> object:
    """The compressed records in place of the others, with room for the header before them."""
    accumulator: Accumulator = batch.accumulator
    size: cython.Py_ssize_t = HEADER_SIZE + len(compressed)
    _recycle(batch)
    if cython.compiled:
        block = PyBytes_FromStringAndSize(cython.NULL, size)
        batch.block = block
        batch.base = cython.cast(cython.p_uchar, PyBytes_AS_STRING(block))
        memcpy(
            batch.base + HEADER_SIZE, PyBytes_AS_STRING(compressed), PyBytes_GET_SIZE(compressed)
        )
    else:
        batch.block = bytearray(HEADER_SIZE) + compressed
    batch.codec = codec
    batch.wire_size = size
    freed = batch.reserved - size
    accumulator.used -= freed
    batch.reserved = size
    if freed > 0 and accumulator.queued:
        _tell_room(accumulator)
    return None


def _read_varint(data, at):
    bits = shift = 0
    while True:
        byte = data[at]
        at += 1
        bits |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (bits >> 1) ^ -(bits & 1), at
        shift += 7
        if shift > 63:
            raise IndexError("a varint too long")


def _decode_records(data, count, base_timestamp):
    """Records encoded here, so unchecked: once per move or split, never on the way out."""
    out = []
    at = 0
    for _ in range(count):
        _, at = _read_varint(data, at)
        delta, at = _read_varint(data, at + 1)
        _, at = _read_varint(data, at)
        fields = []
        for _ in range(2):
            length, at = _read_varint(data, at)
            if length < 0:
                fields.append(None)
            else:
                fields.append(data[at : at + length])
                at += length
        names, at = _read_varint(data, at)
        headers = []
        for _ in range(names):
            length, at = _read_varint(data, at)
            # Columns may have names that are no UTF-8; they are read back so, too.
            name = data[at : at + length].decode(errors="replace")
            at += length
            length, at = _read_varint(data, at)
            if length < 0:
                headers.append((name, None))
            else:
                headers.append((name, data[at : at + length]))
                at += length
        out.append((fields[0], fields[1], headers, base_timestamp + delta))
    return out


# ---------------------------------------------------------------- slots and routes


@cython.final
@cython.cclass
class Slot:
    """Where the records of one partition gather.

    Attributes:
        topic: the topic.
        partition: its number.
        batch: the batch being filled, or None.
        owner: told by `batch_opened(batch)` after a batch got its first record, and by
            `batch_full(batch)` when no more will be added.
    """

    __slots__ = ("batch", "hint", "owner", "partition", "topic")

    def __init__(self, topic, partition, owner=None):
        self.topic = topic
        self.partition = partition
        self.owner = owner
        self.batch = None
        self.hint = 0

    def take_open(self):
        """Detaches the batch being filled and returns it; None if there is none."""
        batch: Batch = self.batch
        if batch is not None:
            _detach(batch)
        return batch

    def __repr__(self):
        return f"<Slot {self.topic}-{self.partition}>"


@cython.final
@cython.cclass
class Route:
    """How the records of one topic find their partition.

    Attributes:
        topic: the topic.
        slots: one per partition.
        partitions: how many the topic has; 0 while its metadata is unknown.
        available: the partitions that have a leader.
        pending: batches of records that wait for the metadata, oldest first.
    """

    __slots__ = (
        "accumulator",
        "available",
        "cache",
        "partitions",
        "pending",
        "pending_slot",
        "slots",
        "sticky",
        "sticky_bytes",
        "topic",
    )

    def __init__(self, topic, accumulator):
        self.topic = topic
        self.accumulator = accumulator
        self.slots = []
        self.partitions = 0
        self.available = ()
        self.pending = []
        self.pending_slot = Slot(topic, -1, self)
        self.sticky = None
        self.sticky_bytes = 0
        self.cache = {}

    def batch_opened(self, batch):
        """A batch of records without a partition began."""
        self.pending.append(batch)

    def batch_full(self, batch):
        """Nothing to do: it waits for the metadata like the rest."""


@cython.cfunc
def _next_sticky(accumulator: Accumulator, route: Route) -> Slot:
    """Picks the partition of the next batch_size bytes of records without a key (KIP-794)."""
    chosen: cython.Py_ssize_t = -1
    route.sticky_bytes = HEADER_SIZE
    if accumulator.choose is not None:
        try:
            chosen = accumulator.choose(route.topic)
        except Exception as error:  # noqa: BLE001  told to the owner
            _bug(accumulator, "choose", error)
    if 0 <= chosen < route.partitions:
        route.sticky = route.slots[chosen]
    elif route.available:
        route.sticky = route.slots[route.available[_below(accumulator, len(route.available))]]
    else:
        route.sticky = route.slots[_below(accumulator, route.partitions)]
    return route.sticky


@cython.cfunc
@cython.exceptval(check=False)
def _below(accumulator: Accumulator, limit: cython.uint) -> cython.uint:
    """A number from 0 to limit - 1, uniform; splitmix64, the same sequence in both builds."""
    if cython.compiled:
        z: cython.ulonglong
        accumulator.random = accumulator.random + _GOLDEN
        z = accumulator.random
        z = (z ^ (z >> 30)) * _MIX_1
        z = (z ^ (z >> 27)) * _MIX_2
        z = z ^ (z >> 31)
        return cython.cast(cython.uint, ((z >> 32) * limit) >> 32)
    else:
        accumulator.random = accumulator.random + _GOLDEN & _MASK_64
        z = accumulator.random
        z = (z ^ z >> 30) * _MIX_1 & _MASK_64
        z = (z ^ z >> 27) * _MIX_2 & _MASK_64
        z ^= z >> 31
        return (z >> 32) * limit >> 32


if cython.compiled:
    # From C: a literal this large would be a Python int, and every step a call.
    from cython.cimports.aiokq._native import (
        AIOKQ_GOLDEN as _GOLDEN,
    )
    from cython.cimports.aiokq._native import (
        AIOKQ_MIX_1 as _MIX_1,
    )
    from cython.cimports.aiokq._native import (
        AIOKQ_MIX_2 as _MIX_2,
    )
else:
    _GOLDEN = 0x9E3779B97F4A7C15
    _MIX_1 = 0xBF58476D1CE4E5B9
    _MIX_2 = 0x94D049BB133111EB
    _MASK_64 = 2**64 - 1


# ---------------------------------------------------------------- many deliveries at once

_marks = 0


@cython.final
@cython.cclass
class Deliveries:
    """The outcomes of one send_many, in input order: `len`, indexing, and await for all.

    Awaiting gives a list of RecordMetadata. If any record failed it raises DeliveryFailed,
    whose `errors` has an entry per record, None where it was delivered.
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
            raise IndexError("there are not so many deliveries")
        at = index
        return _delivery_at(self, at + self.filled if at < 0 else at)

    def done(self):
        """Whether the outcome of every record is known."""
        n: cython.Py_ssize_t
        for n in range(self.filled):
            if not _known(_settle(_delivery_at(self, n))):
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
def _deliveries(length: cython.Py_ssize_t, timestamp: cython.longlong) -> Deliveries:
    """An empty Deliveries with room for `length` records."""
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
        many.ordinals = cython.cast(
            cython.p_uint, cython.cast(cython.p_void, PyBytes_AS_STRING(many.ordinal_block))
        )
        many.indexes = cython.cast(
            cython.p_uint, cython.cast(cython.p_void, PyBytes_AS_STRING(many.index_block))
        )
    else:
        many.ordinals = []
        many.indexes = []
    return many


@cython.cfunc
@cython.inline
def _note(many: Deliveries, batch: Batch, index: cython.uint) -> object:
    """The next record went to `batch`."""
    if batch.mark != many.mark:
        batch.mark = many.mark
        batch.ordinal = len(many.batches)
        many.batches.append(batch)
        if batch.many is None:
            batch.many = []
        batch.many.append(many)
    if cython.compiled:
        many.ordinals[many.filled] = batch.ordinal
        many.indexes[many.filled] = index
    else:
        many.ordinals.append(batch.ordinal)
        many.indexes.append(index)
    many.filled += 1
    return None


@cython.cfunc
def _delivery_at(many: Deliveries, at: cython.Py_ssize_t) -> Delivery:
    timestamp: cython.longlong = many.timestamp
    if many.times is not None:
        if _bit(many.time_bits, at):
            timestamp = _int64_at(many.times, at) // 1000
    elif many.explicit is not None and at in many.explicit:
        timestamp = many.explicit[at]
    return _delivery(many.batches[many.ordinals[at]], many.indexes[at], timestamp)


@cython.cfunc
def _counts(many: Deliveries) -> dict:
    """How many of its records each batch has. Counted when asked for, and kept: nobody asks while
    batches are full, and then nothing is counted."""
    n: cython.Py_ssize_t
    batch: Batch
    if many.counts is None or many.counted != many.filled:
        counts: dict = {}
        for n in range(many.filled):
            batch = many.batches[many.ordinals[n]]
            if batch.state == MOVED:
                batch = _settle(_delivery_at(many, n))
            counts[batch] = counts.get(batch, 0) + 1
        many.counts = counts
        many.counted = many.filled
    return many.counts


@cython.cfunc
def _forget_counts(many: Deliveries) -> object:
    """Records of its went to other batches."""
    many.counts = None
    return None


@cython.cfunc
def _observe_many(many: Deliveries, batch: Batch) -> object:
    """Whoever awaits `many` will see which of its records failed with `batch`."""
    n: cython.Py_ssize_t
    delivery: Delivery
    if many.awaited > 0:
        for n in range(many.filled):
            delivery = _delivery_at(many, n)
            if _settle(delivery) is batch:
                _observe(batch, delivery.index)
    return None


@cython.cfunc
def _all_outcomes(many: Deliveries) -> list:
    """A RecordMetadata per record, or DeliveryFailed with an outcome per record."""
    n: cython.Py_ssize_t
    batch: Batch
    delivery: Delivery
    out: list = []
    plain: cython.bint = many.explicit is None and many.times is None
    for n in range(many.filled):
        batch = many.batches[many.ordinals[n]]
        if batch.state == DELIVERED and plain:
            out.append(_metadata(batch, many.indexes[n], many.timestamp))
            continue
        delivery = _delivery_at(many, n)
        batch = _settle(delivery)
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
        delivery = _delivery_at(many, n)
        batch = _settle(delivery)
        if batch.state == DELIVERED:
            errors.append(None)
            continue
        _observe(batch, delivery.index)
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
        raise TypeError("made by awaiting deliveries")

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
        raise _as_exception(kind, value, traceback)

    def close(self):
        _leave_all(self)


@cython.cfunc
def _wait_all_step(self: _WaitAll) -> object:
    """The wait to suspend on, kept in `self.wait`; else the outcomes, and that is None."""
    many: Deliveries = self.deliveries
    delivery: Delivery
    if self.wait is not None:
        _may_resume(self.wait)
        self.wait = None
    elif self.joined:
        raise RuntimeError("await was not used with this wait")
    while self.at < many.filled:
        delivery = _delivery_at(many, self.at)
        if not _known(_settle(delivery)):
            self.wait = _waiter(delivery)
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


# ---------------------------------------------------------------- columns to send


@cython.final
@cython.cclass
class _Part:
    """A buffer of RecordColumns, held for as long as it is read; nobody writes into it."""

    __slots__ = ("data", "size")

    def __dealloc__(self):
        if cython.compiled and self.buffer != cython.NULL:
            PyBuffer_Release(self.buffer)
            PyMem_Free(self.buffer)


@cython.cfunc
def _part(data: object, size: cython.longlong, what: object) -> _Part:
    """A copy of the first `size` bytes of what is checked once and trusted from then on.

    Even of a view that cannot be written to the memory may: toreadonly() makes such ones.
    """
    view = memoryview(data).cast("B")
    if len(view) < size:
        raise ValueError(f"{what}: {len(view)} bytes, and {size} are needed")
    if type(view.obj) is not bytes:
        view = memoryview(bytes(view[:size]))
    return _held(view)


@cython.cfunc
def _contents(data: object) -> _Part:
    """Holds bytes that become keys, values, names: of whatever content, nothing goes by them."""
    view = memoryview(data).cast("B")
    return _held(view if view.readonly else memoryview(bytes(view)))


@cython.cfunc
def _held(view: object) -> _Part:
    part: _Part = _Part.__new__(_Part)
    part.data = view
    part.size = len(view)
    if cython.compiled:
        # In memory of its own, as a Cursor's and for the same reason.
        held: cython.pointer(Py_buffer) = cython.cast(
            cython.pointer(Py_buffer), PyMem_Malloc(cython.sizeof(Py_buffer))
        )
        if held == cython.NULL:
            raise MemoryError
        try:
            PyObject_GetBuffer(view, held, PyBUF_SIMPLE)
        except BaseException:
            PyMem_Free(held)
            raise
        part.buffer = held
        part.base = cython.cast(cython.p_uchar, held.buf)
    return part


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _bit(part: _Part | None, n: cython.Py_ssize_t) -> cython.bint:
    """Whether row `n` has a value; all have where there are no bits."""
    if part is None:
        return True
    if cython.compiled:
        return (part.base[n >> 3] >> (n & 7)) & 1
    else:
        return part.data[n >> 3] >> (n & 7) & 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int32_at(part: _Part, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    if cython.compiled:
        value: int32_t = 0
        memcpy(cython.address(value), part.base + 4 * n, 4)
        return value
    else:
        return _INT32.unpack_from(part.data, 4 * n)[0]


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int64_at(part: _Part, n: cython.Py_ssize_t) -> cython.longlong:
    if cython.compiled:
        value: int64_t = 0
        memcpy(cython.address(value), part.base + 8 * n, 8)
        return value
    else:
        return _INT64.unpack_from(part.data, 8 * n)[0]


@cython.final
@cython.cclass
class RecordColumns:
    """Records as columns, in Arrow's memory layout: what `Producer.send_columns` takes.

    A column of texts or bytes is (validity bits or None, int32 offsets, bytes); `Columns` has the
    same. Contents (keys, values, names) are referred to, but for buffers that may be written to,
    which are copied; so is all that is checked here: bits, offsets, numbers. A row is read for the
    last time when it is accepted: memory under a read-only view is left alone until then.

    Args:
        count: rows.
        value: the values; a null is a tombstone.
        key: the keys, if there are any.
        headers: (validity bits or None, int32 row offsets, int32 name offsets, names, validity
            bits of the values or None, int32 value offsets, values).
        timestamp: (validity bits or None, int64), microseconds since 1970; what is finer than a
            millisecond is cut off. Where there is none it is the time of sending.
        partition: (validity bits or None, int32); where there is none the key picks it.

    Raises:
        ValueError: buffers too short, offsets that do not rise, a negative partition or timestamp.
        TypeError: not buffers.
    """

    __slots__ = (
        "count",
        "key_bits",
        "key_offsets",
        "keys",
        "largest",
        "largest_size",
        "name_offsets",
        "names",
        "partition_bits",
        "partitions",
        "row_bits",
        "row_offsets",
        "text_bits",
        "text_offsets",
        "texts",
        "time_bits",
        "times",
        "top_partition",
        "value_bits",
        "value_offsets",
        "values",
    )

    def __init__(self, count, *, value, key=None, headers=None, timestamp=None, partition=None):
        items: cython.Py_ssize_t
        # What is larger no offsets of 32 bits are for; and sizes of buffers do not overflow.
        if not isinstance(count, int) or isinstance(count, bool):
            raise TypeError(f"count is an int, not {type(count).__name__}")
        if not 0 <= count < 1 << 31:
            raise ValueError(f"count {count}: there are from 0 to 2**31 - 1 rows")
        self.count = count
        self.key_bits = self.key_offsets = self.keys = None
        self.row_bits = self.row_offsets = self.name_offsets = self.names = None
        self.text_bits = self.text_offsets = self.texts = None
        self.time_bits = self.times = self.partition_bits = self.partitions = None
        self.value_bits, self.value_offsets, self.values = _binary_parts(value, count, "value")
        if key is not None:
            self.key_bits, self.key_offsets, self.keys = _binary_parts(key, count, "key")
        if headers is not None:
            bits, offsets, name_offsets, names, text_bits, text_offsets, texts = headers
            self.row_bits = _bits_part(bits, count, "headers")
            self.row_offsets = _part(offsets, 4 * (count + 1), "headers")
            items = _int32_at(self.row_offsets, count)
            _check_offsets(self.row_offsets, count, items, "headers")
            _, self.name_offsets, self.names = _binary_parts(
                (None, name_offsets, names), items, "names of headers"
            )
            self.text_bits, self.text_offsets, self.texts = _binary_parts(
                (text_bits, text_offsets, texts), items, "values of headers"
            )
        if timestamp is not None:
            bits, data = timestamp
            self.time_bits = _bits_part(bits, count, "timestamp")
            self.times = _part(data, 8 * count, "timestamp")
        if partition is not None:
            bits, data = partition
            self.partition_bits = _bits_part(bits, count, "partition")
            self.partitions = _part(data, 4 * count, "partition")
        _look_over(self)

    @classmethod
    def from_arrow(cls, batch):
        """The columns key, value, headers, timestamp and partition of a pyarrow.RecordBatch.

        Others are left out, so that a batch may be sent as `to_arrow()` gave it.

        Raises:
            ValueError: there is no column `value`, or as the class.
            TypeError: a column of another type, or a header without a name.
        """
        from aiokq._arrow import record_columns

        return record_columns(cls, batch)

    def __len__(self):
        return self.count

    def record(self, index):
        """A row as (key, value, headers, timestamp_ms, partition), None for what it has not."""
        n: cython.Py_ssize_t
        index = operator.index(index)
        if not 0 <= index < self.count:
            raise IndexError("there are not so many rows")
        n = index
        headers = None
        if self.row_offsets is not None and _bit(self.row_bits, n):
            items = range(_int32_at(self.row_offsets, n), _int32_at(self.row_offsets, n + 1))
            headers = [_header_at(self, item) for item in items]
        key = value = timestamp = partition = None
        if self.keys is not None and _bit(self.key_bits, n):
            key = _slice(self.key_offsets, self.keys, n)
        if _bit(self.value_bits, n):
            value = _slice(self.value_offsets, self.values, n)
        if self.times is not None and _bit(self.time_bits, n):
            timestamp = _int64_at(self.times, n) // 1000
        if self.partitions is not None and _bit(self.partition_bits, n):
            partition = _int32_at(self.partitions, n)
        return key, value, headers, timestamp, partition

    def size(self, index):
        """Bytes of key, value and headers of a row, as `Accumulator.room` counts them."""
        index = operator.index(index)
        if not 0 <= index < self.count:
            raise IndexError("there are not so many rows")
        return _row_size(self, index)

    def __repr__(self):
        return f"<RecordColumns of {self.count} records>"


_INT32 = struct.Struct("=i")
_INT64 = struct.Struct("=q")


@cython.cfunc
def _bits_part(bits: object, count: cython.longlong, what: object) -> _Part:
    return None if bits is None else _part(bits, (count + 7) // 8, what)


@cython.cfunc
def _binary_parts(column: object, count: cython.longlong, what: object) -> tuple:
    bits, offsets, data = column
    starts: _Part = _part(offsets, 4 * (count + 1), what)
    body: _Part = _contents(b"" if data is None else data)
    _check_offsets(starts, count, body.size, what)
    return _bits_part(bits, count, what), starts, body


@cython.cfunc
def _check_offsets(
    part: _Part, count: cython.Py_ssize_t, limit: cython.Py_ssize_t, what: object
) -> object:
    n: cython.Py_ssize_t
    at: cython.Py_ssize_t
    last: cython.Py_ssize_t = 0
    for n in range(count + 1):
        at = _int32_at(part, n)
        if at < last or at > limit:
            raise ValueError(f"{what}: offset {n} is {at}, it is from {last} to {limit}")
        last = at
    return None


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _span(offsets: _Part, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    return _int32_at(offsets, n + 1) - _int32_at(offsets, n)


@cython.cfunc
def _slice(offsets: _Part, data: _Part, n: cython.Py_ssize_t) -> bytes:
    return bytes(data.data[_int32_at(offsets, n) : _int32_at(offsets, n + 1)])


@cython.cfunc
def _header_at(columns: RecordColumns, item: cython.Py_ssize_t) -> tuple:
    # As a name is read that is no UTF-8. An error here would come when rows are taken already.
    name = str(_slice(columns.name_offsets, columns.names, item), "utf-8", "replace")
    if not _bit(columns.text_bits, item):
        return name, None
    return name, _slice(columns.text_offsets, columns.texts, item)


@cython.cfunc
def _look_over(columns: RecordColumns) -> object:
    """What one look at all rows tells: the largest, the highest partition, what is out of range."""
    n: cython.Py_ssize_t
    size: cython.Py_ssize_t
    partition: cython.Py_ssize_t
    micros: cython.longlong
    columns.largest = 0
    columns.largest_size = 0
    columns.top_partition = -1
    for n in range(columns.count):
        size = _row_size(columns, n)
        if size > columns.largest_size:
            columns.largest = n
            columns.largest_size = size
        if columns.partitions is not None and _bit(columns.partition_bits, n):
            partition = _int32_at(columns.partitions, n)
            if partition < 0:
                raise ValueError(f"partition {partition}: partitions are numbered from 0")
            columns.top_partition = max(columns.top_partition, partition)
        if columns.times is not None and _bit(columns.time_bits, n):
            micros = _int64_at(columns.times, n)
            if micros < 0:
                raise ValueError(
                    f"timestamp of record {n}: {micros} microseconds since 1970, it is from 0"
                )
    return None


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _row_size(columns: RecordColumns, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t = 0
    if columns.keys is not None and _bit(columns.key_bits, n):
        size += _span(columns.key_offsets, n)
    if _bit(columns.value_bits, n):
        size += _span(columns.value_offsets, n)
    if columns.row_offsets is not None and _bit(columns.row_bits, n):
        size += _row_headers_size(columns, n)
    return size


@cython.cfunc
@cython.exceptval(check=False)
def _row_headers_size(columns: RecordColumns, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Bytes of a row's headers as they are in a record."""
    item: cython.Py_ssize_t
    length: cython.Py_ssize_t
    first: cython.Py_ssize_t = _int32_at(columns.row_offsets, n)
    end: cython.Py_ssize_t = _int32_at(columns.row_offsets, n + 1)
    size: cython.Py_ssize_t = _varint_size(end - first)
    for item in range(first, end):
        length = _span(columns.name_offsets, item)
        size += length + _varint_size(length)
        if _bit(columns.text_bits, item):
            length = _span(columns.text_offsets, item)
            size += length + _varint_size(length)
        else:
            size += 1
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint_size(value: cython.longlong) -> cython.Py_ssize_t:
    if cython.compiled:
        return aiokq_varint_size(value)
    else:
        return len(_VARINT[value])


# ---------------------------------------------------------------- the accumulator


def _as_bytes(value, what):
    """A copy of a bytes-like key or value; the errors say what to write instead."""
    if isinstance(value, str):
        raise TypeError(f"a {what} is bytes, not str: encode it: {what}.encode()")
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, memoryview):
        return value.tobytes()
    raise TypeError(
        f"a {what} is bytes, bytearray, memoryview or None, not {type(value).__name__}: "
        "serialize it first"
    )


def _plain_headers(headers):
    """Headers as a list of (str, bytes | None) tuples; the errors say what to write instead."""
    out = []
    if isinstance(headers, dict):
        headers = headers.items()
    for header in headers:
        if isinstance(header, (str, bytes)):
            raise TypeError("headers are (name, value) pairs: headers=[('name', b'value')]")
        name, value = header
        if not isinstance(name, str):
            raise TypeError(f"a header's name is str, not {type(name).__name__}")
        out.append((name, None if value is None else _as_bytes(value, "header value")))
    return out


def _bad_partition(partition):
    """The error for an explicit partition that no topic can have."""
    if not isinstance(partition, int) or isinstance(partition, bool):
        return TypeError(f"a partition is an int, not {type(partition).__name__}")
    return ValueError(f"partition {partition}: partitions are numbered from 0 to 2**31 - 1")


def _no_partition(route: Route, partition):
    """The error for an explicit partition that the topic does not have."""
    return UnknownTopicOrPartition(
        f"topic {route.topic!r} has {route.partitions} partitions, numbered from 0",
        topic_partition=TopicPartition(route.topic, partition),
    )


def _bad_timestamp(timestamp_ms):
    if not isinstance(timestamp_ms, int) or isinstance(timestamp_ms, bool):
        return TypeError(f"timestamp_ms is an int, not {type(timestamp_ms).__name__}")
    return ValueError(
        f"timestamp_ms {timestamp_ms}: it is milliseconds since 1970, from 0 to 2**63 - 1"
    )


def _check_topic(topic):
    if not isinstance(topic, str):
        raise TypeError(f"a topic is str, not {type(topic).__name__}")
    if _TOPIC.fullmatch(topic) is None or topic in (".", ".."):
        if re.fullmatch(r"[^\s:]+:\d+", topic):
            raise InvalidTopic(
                f"{topic!r} is an address, not a topic: the first argument is the topic's name, "
                "addresses go to bootstrap_servers",
                topic_partition=topic,
            )
        raise InvalidTopic(
            f"{topic!r} is no topic name: 1 to 249 of a-z A-Z 0-9 . _ -", topic_partition=topic
        )


@cython.final
@cython.cclass
class Accumulator:
    """Takes records, one call each, into the batch of their partition; owns buffer_memory.

    Args:
        batch_size: bytes a batch grows to. A larger record gets a batch of its own.
        buffer_memory: bytes of all batches that are not done.
        max_record_bytes: the largest batch a single record may make (max.request.size).
        clock: None or the system's for the clock in C, else asked for every record.
        on_unknown_topic: called with the topic when a record for a topic without metadata
            begins to wait.
        on_room: called when memory was freed while `waiting` is above 0.
        on_refused: called with a batch that failed here: its records waited for the metadata of
            their topic, and then named a partition that it does not have, or a bug ended it.
        on_bug: called with the name of what the core had called, and an exception that must not
            leave it; returns the error for the records it concerns, else they have that itself.
        choose: called with a topic when another partition's turn for records without a key
            begins; returns the partition, or -1 for a uniform choice among the available ones.
        seed: of the choice among partitions for records without a key.
        ignore_keys: partition records with a key like those without one
            (partitioner.ignore.keys).
        guard: of the loop that records are taken on, and deliveries awaited; anywhere by default.

    Attributes:
        used_bytes: bytes of buffer_memory taken.
        waiting: how many callers queue for room; while there are any, append() refuses.
        loop: the event loop that deliveries are awaited on; set at the first wait.
    """

    __slots__ = (
        "batch_size",
        "block_size",
        "buffer_memory",
        "choose",
        "clock",
        "closed",
        "guard",
        "ignore_keys",
        "last_route",
        "last_topic",
        "loop",
        "max_record_bytes",
        "on_bug",
        "on_refused",
        "on_room",
        "on_unknown_topic",
        "pool",
        "pool_limit",
        "queued",
        "random",
        "routes",
        "used",
    )

    def __init__(
        self,
        *,
        batch_size,
        buffer_memory,
        max_record_bytes,
        clock=None,
        on_unknown_topic=None,
        on_room=None,
        on_refused=None,
        on_bug=None,
        choose=None,
        seed=0,
        ignore_keys=False,
        guard=None,
    ):
        if batch_size < 0 or buffer_memory <= 0 or max_record_bytes <= 0:
            raise ValueError("batch_size, buffer_memory and max_record_bytes are sizes in bytes")
        # A batch never outgrows what a single record may make, so one compare checks both; nor
        # int32, the type of Kafka's sizes.
        self.max_record_bytes = min(max_record_bytes, buffer_memory, _MAX_INT32 - 64)
        self.batch_size = min(max(batch_size, HEADER_SIZE + 1), self.max_record_bytes)
        self.buffer_memory = buffer_memory
        self.clock = None if clock is None or type(clock) is SystemClock else clock
        self.on_unknown_topic = on_unknown_topic
        self.on_room = on_room
        self.on_refused = on_refused
        self.on_bug = on_bug
        self.choose = choose
        self.random = seed & (2**64 - 1)
        self.ignore_keys = ignore_keys
        self.guard = _NO_GUARD if guard is None else guard
        self.routes = {}
        self.last_topic = _NO_TOPIC
        self.last_route = None
        self.loop = None
        self.used = 0
        self.queued = 0
        self.closed = False
        self.pool = []
        self.block_size = self.batch_size
        self.pool_limit = min(_POOLED_BYTES, buffer_memory // 4) // self.batch_size

    @property
    def used_bytes(self):
        return self.used

    @property
    def waiting(self):
        return self.queued

    @waiting.setter
    def waiting(self, count):
        self.queued = count

    def room(self, size):
        """Whether a record of `size` bytes (key, value and headers) fits, in a new batch if
        it must. Waiters do not count: whoever asks is the next of them."""
        return self.used + HEADER_SIZE + RECORD_OVERHEAD + size <= self.buffer_memory

    def append(self, topic, value, key=None, partition=None, timestamp_ms=None, headers=None):
        """Accepts a record: `producer.send_nowait`.

        Args:
            topic: the topic's name.
            value: the record's value, copied; None is a tombstone.
            key: picks the partition, as in Java's client; None spreads evenly.
            partition: the partition, past all choosing.
            timestamp_ms: milliseconds since 1970; now by default.
            headers: (name, value) pairs.

        Returns:
            The record's Delivery.

        Raises:
            BufferFull: no room, or others wait for room.
            RecordTooLarge: no batch can hold it.
            UnknownTopicOrPartition: the topic has no such partition.
            InvalidTopic: `topic` is no topic's name.
            Closed: the accumulator was closed.
            TypeError: a key or value that is not bytes-like.
            ValueError: a negative partition or timestamp.
            others: what the guard's check raises, before anything else.
        """
        _require(self.guard)
        if self.queued:
            raise BufferFull("others wait for room in buffer_memory: await enqueue()")
        if not cython.compiled and topic is self.last_topic and partition is None:
            if timestamp_ms is not None:
                timestamp = _checked_timestamp(timestamp_ms)
            elif self.clock is None:
                timestamp = time.time_ns() // 1_000_000
            else:
                timestamp = timestamp_ms = self.clock.timestamp_ms()
            batch = _put_plain(self, self.last_route, value, key, timestamp, headers)
            if batch is not None:
                delivery = Delivery.__new__(Delivery)
                delivery.batch = batch
                delivery.index = batch.count - 1
                delivery.timestamp = timestamp
                return delivery
        return _append(self, topic, value, key, partition, timestamp_ms, headers)

    def append_waited(
        self, topic, value, key=None, partition=None, timestamp_ms=None, headers=None
    ):
        """append() for the waiter that was granted room: those behind it do not bar it."""
        return _append(self, topic, value, key, partition, timestamp_ms, headers)

    def append_many(self, topic, records, partition=None, *, start=0, into=None, waited=False):
        """Accepts records until room runs out.

        Args:
            topic: the topic's name.
            records: a list or tuple of `(key, value)`, `(key, value, headers)` or
                `(key, value, headers, timestamp_ms)`.
            partition: for all of them.
            start: where in `records` to go on.
            into: the Deliveries of an earlier call with the same `records`.
            waited: the caller was granted room; others that wait do not bar it.

        Returns:
            The Deliveries and the index of the first record not accepted, `len(records)` if
            all were.

        Raises:
            What append() does but BufferFull; then none of this call's records was accepted.
        """
        many: Deliveries
        batch: Batch
        consumed: cython.Py_ssize_t
        total: cython.Py_ssize_t
        now: cython.longlong
        if type(records) is not list and type(records) is not tuple:
            raise TypeError("records is a list or a tuple of (key, value) tuples")
        total = len(records)
        route: Route = _find_route(self, topic)
        if into is None:
            if start:
                raise ValueError("`start` goes with `into`")
            _check_records(self, route, records, partition)
            many = _deliveries(total, _now_ms(self))
        else:
            many = into
            if not 0 <= start <= total or total - start > many.capacity - many.filled:
                raise ValueError("`start` and `records` are not those of the call before")
        now = many.timestamp  # of the call, as in Java: waiting for room does not change it
        consumed = start
        if self.queued and not waited:
            return many, consumed
        if cython.compiled:
            consumed = _append_each(self, route, records, partition, start, many, now)
        else:
            for n in range(start, total):
                record = records[n]
                batch = None
                if len(record) == 2:
                    key, value = record
                    headers = None
                    timestamp = now
                    if partition is None:
                        batch = _put_plain(self, route, value, key, now, None)
                else:
                    key, value, headers, timestamp = _parts(record)
                    if timestamp is None:
                        timestamp = now
                    if timestamp != now:
                        if many.explicit is None:
                            many.explicit = {}
                        many.explicit[n] = timestamp
                if batch is None:
                    try:
                        batch = _place(
                            self, route, value, key, partition, timestamp, headers, -1.0, False
                        )
                    except BufferFull:
                        break
                if batch.mark == many.mark:
                    many.ordinals.append(batch.ordinal)
                    many.indexes.append(batch.count - 1)
                    many.filled += 1
                else:
                    _note(many, batch, batch.count - 1)
                consumed = n + 1
        return many, consumed

    def append_columns(self, topic, columns, *, start=0, into=None, waited=False):
        """Accepts the rows of columns until room runs out.

        Args:
            topic: the topic's name.
            columns: RecordColumns.
            start: the row to go on with.
            into: the Deliveries of an earlier call with the same `columns`.
            waited: the caller was granted room; others that wait do not bar it.

        Returns:
            The Deliveries and the first row not accepted, `len(columns)` if all were.

        Raises:
            What append() does but BufferFull; then none of this call's rows was accepted.
        """
        rows: RecordColumns
        many: Deliveries
        batch: Batch
        n: cython.Py_ssize_t = start
        if type(columns) is not RecordColumns:
            raise TypeError("columns are RecordColumns")
        rows = columns
        route: Route = _find_route(self, topic)
        if into is None:
            if start:
                raise ValueError("`start` goes with `into`")
            if 0 < route.partitions <= rows.top_partition:
                raise _no_partition(route, rows.top_partition)
            if HEADER_SIZE + RECORD_OVERHEAD + rows.largest_size > self.max_record_bytes:
                raise RecordTooLarge(
                    f"record {rows.largest} has {rows.largest_size} bytes, more than the "
                    f"{self.max_record_bytes} that max_request_size and buffer_memory allow"
                )
            many = _deliveries(rows.count, _now_ms(self))
            many.time_bits = rows.time_bits
            many.times = rows.times
        else:
            many = into
            if not 0 <= n <= rows.count or rows.count - n > many.capacity - many.filled:
                raise ValueError("`start` and `columns` are not those of the call before")
        if self.queued and not waited:
            return many, n
        try:
            while n < rows.count:
                batch = _place_row(self, route, rows, n, many.timestamp)
                _note(many, batch, batch.count - 1)
                n += 1
        except BufferFull:
            pass  # the caller waits for room and goes on from n
        return many, n

    def route(self, topic):
        """The topic's Route, or None."""
        return self.routes.get(topic)

    def set_route(self, topic, partitions, available, owner_factory):
        """The topic's partitions are known, have grown, or have other leaders.

        Records that waited for it are placed, in order.

        Args:
            topic: the topic.
            partitions: how many it has.
            available: those that have a leader.
            owner_factory: called with each new Slot; returns its owner.
        """
        if partitions <= 0:
            raise ValueError("a topic has at least one partition")
        # Also after close(): what waits for the topic was accepted, and is to be delivered.
        route: Route = self.routes.get(topic)
        slot: Slot
        if route is None:
            route = _find_route(self, topic)
        while len(route.slots) < partitions:
            slot = Slot(route.topic, len(route.slots))
            slot.owner = owner_factory(slot)
            route.slots.append(slot)
        route.partitions = partitions
        route.available = tuple(n for n in available if 0 <= n < partitions)
        route.cache = {}
        slot = route.sticky
        if slot is None or (
            slot.partition not in route.available
            if route.available
            else slot.partition >= partitions
        ):
            _next_sticky(self, route)
        self.resolve_pending(topic)
        return route

    def forget_route(self, topic):
        """The topic's metadata is gone: records wait again. Open batches stay with their owners."""
        route: Route = self.routes.get(topic)
        if route is not None:
            route.partitions = 0
            route.available = ()
            route.sticky = None
            route.cache = {}

    def pending(self, topic):
        """The batches of records that wait for the topic's metadata, oldest first."""
        route: Route = self.routes.get(topic)
        return tuple(route.pending) if route is not None else ()

    def resolve_pending(self, topic):
        """Places the records that waited for the topic's metadata; returns how many.

        They move past buffer_memory if they must: they were accepted already.
        """
        route: Route = self.routes.get(topic)
        batch: Batch
        moved: cython.Py_ssize_t = 0
        if route is None or route.partitions == 0 or not route.pending:
            return 0
        batches = route.pending
        route.pending = []
        route.pending_slot.batch = None
        for batch in batches:
            if batch.state != OPEN:
                continue
            try:
                _move_pending(self, route, batch)
            except Exception as error:  # noqa: BLE001  told to the owner
                # Those behind it are placed all the same.
                _give_up(batch, "resolve_pending", error)
            else:
                moved += batch.count
        return moved

    def fail_pending(self, topic, error):
        """Gives up the records that wait for the topic's metadata; returns how many."""
        route: Route = self.routes.get(topic)
        batch: Batch
        failed: cython.Py_ssize_t = 0
        if route is None:
            return 0
        batches = route.pending
        route.pending = []
        route.pending_slot.batch = None
        for batch in batches:
            if batch.fail(error):
                failed += batch.count
        return failed

    def new_batch(self, slot, records, created=None):
        """A sealed-to-appends batch of its own, outside the slot's queue; past buffer_memory.

        Args:
            slot: whose topic and partition it is for.
            records: `(key, value, headers, timestamp_ms)` tuples.
            created: monotonic seconds of the first append, now by default.

        Returns:
            The batch and a Delivery per record.
        """
        apart: Slot = Slot(slot.topic, slot.partition)
        batch: Batch = None
        there: Batch
        deliveries = []
        limit = self.batch_size
        began: cython.double = _monotonic(self) if created is None else created
        try:
            self.batch_size = self.max_record_bytes
            for key, value, headers, timestamp in records:
                there = _put(self, apart, None, value, key, timestamp, headers, began, True)
                if batch is None:
                    batch = there
                elif there is not batch:
                    there.fail(Closed("never sent"))
                    raise RecordTooLarge(f"no batch of {limit} bytes holds these records")
                deliveries.append(_delivery(batch, batch.count - 1, timestamp))
        except BaseException as error:
            if batch is not None:
                batch.fail(error)
            raise
        finally:
            self.batch_size = limit
        if batch is None:
            raise ValueError("a batch has at least one record")
        apart.batch = None
        batch.slot = slot
        return batch, deliveries

    def split(self, batch, payload=None, parts=2):
        """Smaller batches with the records of one that was too large; deliveries follow.

        Args:
            batch: a batch that is not done; it is afterwards.
            payload: its uncompressed records, needed if it was compressed.
            parts: how many batches to make of it.

        Raises:
            ValueError: it has one record: it cannot be split.
        """
        old: Batch = batch
        if old.count < 2:
            raise ValueError("a batch of one record cannot be split")
        records = old.records(payload)
        self.used -= old.reserved
        old.reserved = 0
        step = -(-len(records) // parts)
        out = []
        targets = []
        for at in range(0, len(records), step):
            part, deliveries = self.new_batch(old.slot, records[at : at + step], old.created)
            out.append(part)
            targets.extend(deliveries)
        old.forward(targets)
        return out

    def release(self, batch):
        """Gives back the memory a batch still holds; complete(), fail() and forward() do it."""
        held: Batch = batch
        freed = held.reserved
        held.reserved = 0
        self.used -= freed
        if freed and self.queued:
            _tell_room(self)

    def close(self):
        """Refuses records from now on. What was accepted stays until its batch is done."""
        self.closed = True
        self.last_topic = _NO_TOPIC


_NO_TOPIC = object()


@cython.cfunc
@cython.inline
def _now_ms(accumulator: Accumulator) -> cython.longlong:
    if accumulator.clock is not None:
        return accumulator.clock.timestamp_ms()
    if cython.compiled:
        return aiokq_now_ms()
    else:
        return time.time_ns() // 1_000_000


@cython.cfunc
def _monotonic(accumulator: Accumulator) -> cython.double:
    if accumulator.clock is not None:
        return accumulator.clock.monotonic()
    return time.monotonic()


@cython.cfunc
def _find_route(accumulator: Accumulator, topic: object) -> Route:
    """The topic's route, a new one if it has none; the last one asked for is remembered."""
    if accumulator.closed:
        raise Closed("the producer is closed")
    route: Route
    found = accumulator.routes.get(topic) if type(topic) is str else None
    if found is None:
        _check_topic(topic)
        topic = str(topic)
        route = accumulator.routes.get(topic)
        if route is None:
            route = Route(topic, accumulator)
            accumulator.routes[topic] = route
    else:
        route = found
    accumulator.last_topic = topic
    accumulator.last_route = route
    return route


@cython.cfunc
def _append(
    accumulator: Accumulator,
    topic: object,
    value: object,
    key: object,
    partition: object,
    timestamp_ms: object,
    headers: object,
) -> Delivery:
    route: Route
    batch: Batch
    timestamp: cython.longlong
    if topic is accumulator.last_topic:
        route = accumulator.last_route
    else:
        route = _find_route(accumulator, topic)
    if timestamp_ms is None:
        timestamp = _now_ms(accumulator)
    else:
        timestamp = _checked_timestamp(timestamp_ms)
    batch = _place(accumulator, route, value, key, partition, timestamp, headers, -1.0, False)
    return _delivery(batch, batch.count - 1, timestamp)


@cython.cfunc
@cython.exceptval(-2)
def _checked_timestamp(timestamp_ms: object) -> cython.longlong:
    """An explicit timestamp as a number, from 0 to the largest int64."""
    number: cython.longlong = _small(timestamp_ms)
    if number < 0:
        raise _bad_timestamp(timestamp_ms)
    return number


@cython.cfunc
@cython.exceptval(-2)
def _checked_partition(partition: object) -> cython.longlong:
    """An explicit partition as a number, from 0 to the largest int32."""
    number: cython.longlong = _small(partition)
    if number < 0 or number > _MAX_INT32:
        raise _bad_partition(partition)
    return number


@cython.cfunc
@cython.inline
@cython.exceptval(-2)
def _small(value: object) -> cython.longlong:
    """The number, if it is an int from 0 to the largest int64; else -1."""
    if not isinstance(value, int) or isinstance(value, bool):
        return -1
    if cython.compiled:
        overflow: cython.int = 0
        number: cython.longlong = PyLong_AsLongLongAndOverflow(value, cython.address(overflow))
        return number if number >= 0 else -1  # beyond int64 it is -1, too
    else:
        return value if 0 <= value <= _MAX_INT64 else -1


@cython.cfunc
def _place(
    accumulator: Accumulator,
    route: Route,
    value: object,
    key: object,
    partition: object,
    timestamp: cython.longlong,
    headers: object,
    created: cython.double,
    force: cython.bint,
) -> Batch:
    """Puts a record into the open batch of its partition; returns that batch, it is the last."""
    slot: Slot
    batch: Batch
    at: cython.Py_ssize_t
    number: cython.Py_ssize_t
    if value is not None and type(value) is not bytes:
        value = _as_bytes(value, "value")
    if key is not None and type(key) is not bytes:
        key = _as_bytes(key, "key")
    if partition is not None:
        number = _checked_partition(partition)
        if route.partitions == 0:
            batch = _put_pending(accumulator, route, value, key, timestamp, headers)
            if batch.wanted is None:
                batch.wanted = {}
            batch.wanted[batch.count - 1] = number
            return batch
        if number >= route.partitions:
            raise _no_partition(route, partition)
        slot = route.slots[number]
    elif route.partitions == 0:
        return _put_pending(accumulator, route, value, key, timestamp, headers)
    elif key is not None and not accumulator.ignore_keys:
        if cython.compiled:
            at = (
                aiokq_murmur2(
                    cython.cast(cython.p_uchar, PyBytes_AS_STRING(key)), PyBytes_GET_SIZE(key)
                )
                & 0x7FFFFFFF
            ) % cython.cast(cython.uint, route.partitions)
            slot = route.slots[at]
        else:
            found = route.cache.get(key)
            if found is None:
                found = (
                    route.slots[partition_for_key(key, route.partitions)],
                    _VARINT[len(key)] + key,
                )
                if len(route.cache) >= _CACHED_KEYS:
                    route.cache.clear()
                route.cache[key] = found
            slot = found[0]
    else:
        return _put(
            accumulator, route.sticky, route, value, key, timestamp, headers, created, force
        )
    return _put(accumulator, slot, None, value, key, timestamp, headers, created, force)


_CACHED_KEYS = 16384
"""Keys per topic whose partition is remembered where murmur2 is not compiled."""


if not cython.compiled:

    def _put_plain(accumulator, route, value, key, timestamp, headers):
        """_place() and _put() in one for the common case: bytes, and room in an open batch.

        Returns the batch; None leaves the record to _place().
        """
        if type(value) is not bytes:
            return None
        if headers is not None and type(headers) is not list and type(headers) is not tuple:
            return None  # read once: a generator would be empty for _place()
        if type(key) is bytes and not accumulator.ignore_keys:
            found = route.cache.get(key)
            if found is None:
                return None
            slot, encoded = found
            keyless = False
        elif key is None and route.partitions:
            slot = route.sticky
            encoded = b"\x01"
            keyless = True
        else:
            return None
        batch = slot.batch
        if batch is None:
            return None
        delta = timestamp - batch.base_timestamp
        count = batch.count
        size = len(value)
        if not 0 <= delta < 8192 or count >= 8192 or size >= 8192:
            return None
        heads = _headers_bytes(headers) if headers else b"\0"
        tail = b"".join((_DELTA[delta], _SMALL[count], encoded, _SMALL[size], value, heads))
        if len(tail) >= 8192:
            return None
        record = _SMALL[len(tail)] + tail
        need = len(record)
        if batch.pos + need > batch.capacity:
            return None
        if keyless:
            # As _put() does, with the numbers at their longest.
            rest = 2 + len(_SMALL[size]) + size + len(heads)
            if route.sticky_bytes + rest + NUMBERS > accumulator.batch_size:
                return None
            route.sticky_bytes += need
        batch.block += record
        batch.pos += need
        batch.count = count + 1
        if timestamp > batch.max_timestamp_ms:
            batch.max_timestamp_ms = timestamp
        return batch


@cython.cfunc
def _put_pending(
    accumulator: Accumulator,
    route: Route,
    value: object,
    key: object,
    timestamp: cython.longlong,
    headers: object,
) -> Batch:
    first: cython.bint = not route.pending
    batch: Batch = _put(
        accumulator, route.pending_slot, None, value, key, timestamp, headers, -1.0, False
    )
    if first and accumulator.on_unknown_topic is not None:
        try:
            accumulator.on_unknown_topic(route.topic)
        except BaseException as error:  # noqa: BLE001  raised, or told to the owner
            # Nobody looks for the topic: the next record asks again.
            route.pending = []
            _refused_by(batch, "on_unknown_topic", error)
    return batch


@cython.cfunc
def _move_pending(accumulator: Accumulator, route: Route, batch: Batch) -> object:
    """Places the records of a batch that waited for the topic; each has an outcome after that, or
    a batch that will have one."""
    there: Batch
    # Before anything is changed: what fails here fails the batch as it is.
    records = batch.records()
    wanted = batch.wanted
    created = batch.created
    refused = {}
    targets = []
    # Their memory is free before they take it again elsewhere: never counted twice.
    accumulator.used -= batch.reserved
    batch.reserved = 0
    for n, (key, value, headers, timestamp) in enumerate(records):
        partition = wanted.get(n) if wanted is not None else None
        if partition is not None and partition >= route.partitions:
            error = _no_partition(route, partition)
            there = _refused_one(accumulator, refused, partition, route, partition, error)
        else:
            try:
                there = _place(
                    accumulator, route, value, key, partition, timestamp, headers, created, True
                )
            except Exception as failure:  # noqa: BLE001  told to the owner
                error = failure
                if not isinstance(error, KafkaError):
                    error = _bug(accumulator, "resolve_pending", error)
                there = _refused_one(accumulator, refused, type(failure), route, partition, error)
        targets.append(_delivery(there, there.count - 1, timestamp))
    batch.forward(targets)
    for there in refused.values():
        _tell_refused(there)
    return None


@cython.cfunc
def _put(
    accumulator: Accumulator,
    slot: Slot,
    keyless: Route | None,
    value: object,
    key: object,
    timestamp: cython.longlong,
    headers: object,
    created: cython.double,
    force: cython.bint,
) -> Batch:
    """Encodes a record into the slot's open batch, or into a new one where that is full."""
    batch: Batch
    rest: cython.Py_ssize_t
    body: cython.Py_ssize_t
    need: cython.Py_ssize_t
    delta: cython.longlong
    if cython.compiled:
        at: cython.p_uchar
        key_size: cython.Py_ssize_t = -1
        value_size: cython.Py_ssize_t = -1
        headers_size: cython.Py_ssize_t = 1
        if key is not None:
            key_size = PyBytes_GET_SIZE(key)
        if value is not None:
            value_size = PyBytes_GET_SIZE(value)
        if headers is not None:
            headers_size = _headers_size(headers)
            if headers_size < 0:
                headers = _plain_headers(headers)
                headers_size = _headers_size(headers)
        rest = 1 + headers_size + aiokq_varint_size(key_size) + aiokq_varint_size(value_size)
        if key_size > 0:
            rest += key_size
        if value_size > 0:
            rest += value_size
    else:
        tail = b"".join(
            (
                b"\x01" if key is None else _VARINT[len(key)],
                key or b"",
                b"\x01" if value is None else _VARINT[len(value)],
                value or b"",
                _headers_bytes(headers) if headers else b"\0",
            )
        )
        rest = 1 + len(tail)
    batch = _batch_for(accumulator, slot, keyless, rest, timestamp, created, force)
    delta = timestamp - batch.base_timestamp
    if cython.compiled:
        body = rest + aiokq_varint_size(delta) + aiokq_varint_size(batch.count)
        need = body + aiokq_varint_size(body)
        at = aiokq_put_varint(batch.base + batch.pos, body)
        at[0] = 0
        at = aiokq_put_varint(at + 1, delta)
        at = aiokq_put_varint(at, batch.count)
        at = aiokq_put_varint(at, key_size)
        if key_size > 0:
            memcpy(at, PyBytes_AS_STRING(key), key_size)
            at += key_size
        at = aiokq_put_varint(at, value_size)
        if value_size > 0:
            memcpy(at, PyBytes_AS_STRING(value), value_size)
            at += value_size
        if headers_size == 1:
            at[0] = 0
        else:
            _put_headers(at, headers)
    else:
        numbers = _VARINT[delta] + _VARINT[batch.count]
        body = rest + len(numbers)
        length = _VARINT[body]
        need = body + len(length)
        batch.block += b"".join((length, b"\0", numbers, tail))
    _added(accumulator, batch, keyless, need, timestamp)
    return batch


@cython.cfunc
@cython.inline
def _batch_for(
    accumulator: Accumulator,
    slot: Slot,
    keyless: Route | None,
    rest: cython.Py_ssize_t,
    timestamp: cython.longlong,
    created: cython.double,
    force: cython.bint,
) -> Batch:
    """The batch that has room for a record of `rest` bytes beside its numbers; a new one has no
    record yet, and has this one's time."""
    batch: Batch
    body: cython.Py_ssize_t
    need: cython.Py_ssize_t
    delta: cython.longlong
    if keyless is not None and keyless.sticky_bytes + rest + NUMBERS > accumulator.batch_size:
        slot = _switch(accumulator, keyless, rest)
    batch = slot.batch
    if batch is not None:
        delta = timestamp - batch.base_timestamp
        body = rest + _varint_size(delta) + _varint_size(batch.count)
        need = body + _varint_size(body)
        if batch.pos + need <= batch.capacity or _grow(accumulator, batch, need, force):
            return batch
        _check_size(accumulator, rest)
        _close(slot, batch)
    return _open(accumulator, slot, rest, timestamp, created, force)


@cython.cfunc
@cython.inline
def _added(
    accumulator: Accumulator,
    batch: Batch,
    keyless: Route | None,
    need: cython.Py_ssize_t,
    timestamp: cython.longlong,
) -> object:
    """A record of `need` bytes stands in the batch."""
    batch.pos += need
    batch.count += 1
    if timestamp > batch.max_timestamp_ms:
        batch.max_timestamp_ms = timestamp
    if keyless is not None:
        keyless.sticky_bytes += need
    if batch.count == 1:
        if batch.slot.owner is not None:
            try:
                batch.slot.owner.batch_opened(batch)
            except BaseException as error:  # noqa: BLE001  raised, or told to the owner
                _refused_by(batch, "batch_opened", error)
        if batch.pos >= accumulator.batch_size and batch.state == OPEN:
            _close(batch.slot, batch)
    return None


@cython.cfunc
def _place_row(
    accumulator: Accumulator,
    route: Route,
    columns: RecordColumns,
    n: cython.Py_ssize_t,
    now: cython.longlong,
) -> Batch:
    """_place() for a row of columns: straight from their bytes where the topic is known."""
    if cython.compiled and route.partitions:
        slot: Slot = route.sticky
        keyless: Route = route
        batch: Batch
        key: cython.p_uchar = cython.NULL
        value: cython.p_uchar = cython.NULL
        at: cython.p_uchar
        key_size: cython.Py_ssize_t = -1
        value_size: cython.Py_ssize_t = -1
        headers_size: cython.Py_ssize_t = 1
        first: cython.Py_ssize_t
        rest: cython.Py_ssize_t
        body: cython.Py_ssize_t
        timestamp: cython.longlong = now
        if columns.keys is not None and _bit(columns.key_bits, n):
            first = _int32_at(columns.key_offsets, n)
            key = columns.keys.base + first
            key_size = _int32_at(columns.key_offsets, n + 1) - first
        if _bit(columns.value_bits, n):
            first = _int32_at(columns.value_offsets, n)
            value = columns.values.base + first
            value_size = _int32_at(columns.value_offsets, n + 1) - first
        if columns.row_offsets is not None and _bit(columns.row_bits, n):
            headers_size = _row_headers_size(columns, n)
        if columns.times is not None and _bit(columns.time_bits, n):
            timestamp = _int64_at(columns.times, n) // 1000
        if columns.partitions is not None and _bit(columns.partition_bits, n):
            first = _int32_at(columns.partitions, n)
            if first >= route.partitions:
                raise _no_partition(route, first)
            slot = route.slots[first]
            keyless = None
        elif key_size >= 0 and not accumulator.ignore_keys:
            first = (aiokq_murmur2(key, key_size) & 0x7FFFFFFF) % cython.cast(
                cython.uint, route.partitions
            )
            slot = route.slots[first]
            keyless = None
        rest = 1 + headers_size + aiokq_varint_size(key_size) + aiokq_varint_size(value_size)
        rest += max(key_size, 0) + max(value_size, 0)
        batch = _batch_for(accumulator, slot, keyless, rest, timestamp, -1.0, False)
        body = rest + aiokq_varint_size(timestamp - batch.base_timestamp)
        body += aiokq_varint_size(batch.count)
        at = aiokq_put_varint(batch.base + batch.pos, body)
        at[0] = 0
        at = aiokq_put_varint(at + 1, timestamp - batch.base_timestamp)
        at = aiokq_put_varint(at, batch.count)
        at = aiokq_put_varint(at, key_size)
        if key_size > 0:
            memcpy(at, key, key_size)
            at += key_size
        at = aiokq_put_varint(at, value_size)
        if value_size > 0:
            memcpy(at, value, value_size)
            at += value_size
        if headers_size == 1:
            at[0] = 0
        else:
            _put_row_headers(at, columns, n)
        _added(accumulator, batch, keyless, body + aiokq_varint_size(body), timestamp)
        return batch
    key_, value_, headers, time_ms, partition = columns.record(n)
    if time_ms is None:
        time_ms = now
    if not cython.compiled and partition is None:
        there = _put_plain(accumulator, route, value_, key_, time_ms, headers)
        if there is not None:
            return there
    return _place(accumulator, route, value_, key_, partition, time_ms, headers, -1.0, False)


@cython.cfunc
def _put_row_headers(at: cython.p_uchar, columns: RecordColumns, n: cython.Py_ssize_t) -> object:
    if cython.compiled:
        item: cython.Py_ssize_t
        start: cython.Py_ssize_t
        length: cython.Py_ssize_t
        first: cython.Py_ssize_t = _int32_at(columns.row_offsets, n)
        end: cython.Py_ssize_t = _int32_at(columns.row_offsets, n + 1)
        at = aiokq_put_varint(at, end - first)
        for item in range(first, end):
            start = _int32_at(columns.name_offsets, item)
            length = _int32_at(columns.name_offsets, item + 1) - start
            at = aiokq_put_varint(at, length)
            memcpy(at, columns.names.base + start, length)
            at += length
            if _bit(columns.text_bits, item):
                start = _int32_at(columns.text_offsets, item)
                length = _int32_at(columns.text_offsets, item + 1) - start
                at = aiokq_put_varint(at, length)
                memcpy(at, columns.texts.base + start, length)
                at += length
            else:
                at[0] = 1
                at += 1
    return None


@cython.cfunc
def _headers_size(headers: object) -> cython.Py_ssize_t:
    """Bytes of the headers as they are; -1 if they are not plain tuples of str and bytes."""
    if cython.compiled:
        size: cython.Py_ssize_t
        length: cython.Py_ssize_t = 0
        pair: tuple
        if type(headers) is not list and type(headers) is not tuple:
            return -1
        size = aiokq_varint_size(len(headers))
        for header in headers:
            if type(header) is not tuple:
                return -1
            pair = header
            if len(pair) != 2:
                return -1
            name = pair[0]
            value = pair[1]
            if type(name) is not str:
                return -1
            PyUnicode_AsUTF8AndSize(name, cython.address(length))
            size += length + aiokq_varint_size(length)
            if value is None:
                size += 1
            elif type(value) is bytes:
                size += PyBytes_GET_SIZE(value) + aiokq_varint_size(PyBytes_GET_SIZE(value))
            else:
                return -1
        return size
    else:
        return len(_headers_bytes(headers))


@cython.cfunc
def _put_headers(at: cython.p_uchar, headers: object) -> object:
    if cython.compiled:
        length: cython.Py_ssize_t = 0
        text: cython.p_const_char
        pair: tuple
        at = aiokq_put_varint(at, len(headers))
        for header in headers:
            pair = header
            text = PyUnicode_AsUTF8AndSize(pair[0], cython.address(length))
            at = aiokq_put_varint(at, length)
            memcpy(at, text, length)
            at += length
            value = pair[1]
            if value is None:
                at[0] = 1
                at += 1
            else:
                length = PyBytes_GET_SIZE(value)
                at = aiokq_put_varint(at, length)
                memcpy(at, PyBytes_AS_STRING(value), length)
                at += length
    return None


if not cython.compiled:
    _NAMES: dict = {}

    def _headers_bytes(headers):
        return _pure.headers_bytes(headers, _plain_headers, _NAMES)


@cython.cfunc
def _switch(accumulator: Accumulator, route: Route, rest: cython.Py_ssize_t) -> Slot:
    """The next partition for records without a key; closes the batch it leaves if that is full."""
    slot: Slot = route.sticky
    batch: Batch = slot.batch
    _check_size(accumulator, rest)  # before anything is closed for a record that is refused
    if batch is not None and batch.pos + rest + NUMBERS > accumulator.batch_size:
        _close(slot, batch)
    return _next_sticky(accumulator, route)


@cython.cfunc
def _close(slot: Slot, batch: Batch) -> object:
    """The batch takes no more records; its owner sends it without waiting for linger."""
    _detach(batch)
    if slot.owner is not None:
        try:
            slot.owner.batch_full(batch)
        except Exception as error:  # noqa: BLE001  told to the owner
            # Its records were accepted; that which comes now is not concerned.
            _give_up(batch, "batch_full", error)
    return None


@cython.cfunc
def _check_size(accumulator: Accumulator, rest: cython.Py_ssize_t) -> object:
    if HEADER_SIZE + rest + 7 > accumulator.max_record_bytes:
        raise RecordTooLarge(
            f"the record makes a batch of {HEADER_SIZE + rest + 7} bytes, more than the "
            f"{accumulator.max_record_bytes} that max_request_size and buffer_memory allow"
        )
    return None


@cython.cfunc
def _grow(
    accumulator: Accumulator, batch: Batch, need: cython.Py_ssize_t, force: cython.bint
) -> cython.bint:
    """Makes room for `need` more bytes; False if the batch would outgrow batch_size."""
    wanted: cython.Py_ssize_t = batch.pos + need
    capacity: cython.Py_ssize_t
    free: cython.Py_ssize_t
    if wanted > accumulator.batch_size:
        return False
    capacity = min(max(2 * batch.capacity, wanted), accumulator.batch_size)
    free = accumulator.buffer_memory - accumulator.used
    if capacity - batch.capacity > free:
        # Little is left: take what the record needs, not twice the batch.
        capacity = min(max(wanted, batch.capacity + min(free, MIN_CHUNK)), accumulator.batch_size)
        if capacity - batch.capacity > free and not force:
            raise BufferFull
    accumulator.used += capacity - batch.capacity
    batch.reserved += capacity - batch.capacity
    _set_block(batch, capacity)
    return True


@cython.cfunc
def _open(
    accumulator: Accumulator,
    slot: Slot,
    rest: cython.Py_ssize_t,
    timestamp: cython.longlong,
    created: cython.double,
    force: cython.bint,
) -> Batch:
    """A new batch in the slot, with room for a first record; as large as the last one was."""
    first: cython.Py_ssize_t
    capacity: cython.Py_ssize_t
    free: cython.Py_ssize_t
    _check_size(accumulator, rest)
    first = HEADER_SIZE + rest + 7
    capacity = max(first, min(max(slot.hint, MIN_CHUNK), accumulator.batch_size))
    free = accumulator.buffer_memory - accumulator.used
    if capacity > free and not force:
        capacity = first
        if capacity > free:
            raise BufferFull
    batch: Batch = _blank_batch(accumulator, slot.topic, slot.partition)
    batch.slot = slot
    batch.created = _monotonic(accumulator) if created < 0 else created
    batch.base_timestamp = timestamp
    batch.max_timestamp_ms = timestamp
    accumulator.used += capacity
    batch.reserved = capacity
    _set_block(batch, capacity)
    slot.batch = batch
    return batch


@cython.cfunc
def _blank_batch(accumulator: Accumulator, topic: object, partition: cython.int) -> Batch:
    batch: Batch = Batch.__new__(Batch)
    batch.accumulator = accumulator
    batch.append_time = -1
    batch.base_offset = -1
    batch.base_timestamp = 0
    batch.block = None
    batch.capacity = 0
    batch.codec = 0
    batch.count = 0
    batch.created = 0.0
    batch.error = None
    batch.live = 0
    batch.many = None
    batch.mark = 0
    batch.max_timestamp_ms = 0
    batch.observed = None
    batch.observed_count = 0
    batch.ordinal = 0
    batch.partition = partition
    batch.pos = HEADER_SIZE
    batch.reserved = 0
    batch.slot = None
    batch.stamped = None
    batch.state = OPEN
    batch.targets = None
    batch.topic = topic
    batch.view = None
    batch.waiting = None
    batch.wanted = None
    batch.wire_size = 0
    if cython.compiled:
        batch.base = cython.NULL
    return batch


@cython.cfunc
def _failed_batch(
    accumulator: Accumulator, topic: object, partition: cython.int, error: object
) -> Batch:
    """A batch, empty as yet, for records that waited for their topic, and fail now that it is
    known."""
    batch: Batch = _blank_batch(accumulator, topic, partition)
    batch.state = FAILED
    batch.error = error
    return batch


@cython.cfunc
def _refused_one(
    accumulator: Accumulator,
    refused: dict,
    why: object,
    route: Route,
    partition: object,
    error: object,
) -> Batch:
    """The failed batch for all records that are refused for the same reason, with one more."""
    batch: Batch = refused.get(why)
    if batch is None:
        batch = _failed_batch(
            accumulator, route.topic, -1 if partition is None else partition, error
        )
        refused[why] = batch
    batch.count += 1
    return batch


@cython.cfunc
def _bug(accumulator: Accumulator, where: object, error: object) -> object:
    """Something that the core called failed, and must not: the error for those it concerns."""
    if accumulator.on_bug is None:
        return error
    try:
        return accumulator.on_bug(where, error)
    except Exception:  # noqa: BLE001  the records need an outcome all the same
        return error


@cython.cfunc
def _refused_by(batch: Batch, where: object, error: object) -> object:
    """The owner could not take a batch of one record. A KafkaError says why the record is not
    accepted; after a bug it is, and fails."""
    if isinstance(error, KafkaError) or not isinstance(error, Exception):
        batch.fail(error)
        raise error
    _give_up(batch, where, error)
    return None


@cython.cfunc
def _give_up(batch: Batch, where: object, error: object) -> object:
    """A batch fails by a bug in what the core called."""
    batch.fail(_bug(batch.accumulator, where, error))
    _tell_refused(batch)
    return None


@cython.cfunc
def _tell_refused(batch: Batch) -> object:
    accumulator: Accumulator = batch.accumulator
    if accumulator.on_refused is not None:
        try:
            accumulator.on_refused(batch)
        except Exception as error:  # noqa: BLE001  told to the owner
            _bug(accumulator, "on_refused", error)
    return None


@cython.cfunc
def _tell_room(accumulator: Accumulator) -> object:
    """There is room. What fails here must not keep a batch from its end, which freed it."""
    if accumulator.on_room is not None:
        try:
            accumulator.on_room()
        except Exception as error:  # noqa: BLE001  told to the owner
            _bug(accumulator, "on_room", error)
    return None


def _parts(record):
    """A send_many record as (key, value, headers, timestamp_ms)."""
    length = len(record)
    if length == 2:
        return record[0], record[1], None, None
    if length == 3:
        return record[0], record[1], record[2], None
    return record


@cython.cfunc
def _append_each(
    accumulator: Accumulator,
    route: Route,
    records: object,
    partition: object,
    start: cython.Py_ssize_t,
    many: Deliveries,
    now: cython.longlong,
) -> cython.Py_ssize_t:
    n: cython.Py_ssize_t = start
    timestamp: cython.longlong
    record: tuple
    batch: Batch
    total: cython.Py_ssize_t = len(records)
    try:
        while n < total:
            record = records[n]
            if len(record) < 2:
                raise TypeError("a record is a tuple of at least (key, value)")
            timestamp = now
            headers = None
            if len(record) > 2:
                headers = record[2]
                if len(record) > 3 and record[3] is not None:
                    timestamp = _checked_timestamp(record[3])
                    if timestamp != many.timestamp:
                        if many.explicit is None:
                            many.explicit = {}
                        many.explicit[n] = timestamp
            batch = _place(
                accumulator, route, record[1], record[0], partition, timestamp, headers, -1.0, False
            )
            _note(many, batch, batch.count - 1)
            n += 1
    except BufferFull:
        pass  # the caller waits for room and goes on from n
    return n


@cython.cfunc
def _check_records(
    accumulator: Accumulator, route: Route, records: object, partition: object
) -> object:
    """Raises for the first record that append() would refuse, before any is accepted."""
    n: cython.Py_ssize_t
    size: cython.Py_ssize_t
    record: tuple
    if partition is not None and 0 < route.partitions <= _checked_partition(partition):
        raise _no_partition(route, partition)
    if not cython.compiled:
        bound = accumulator.max_record_bytes - HEADER_SIZE - RECORD_OVERHEAD
        for record in records:
            if (
                type(record) is not tuple
                or len(record) != 2
                or type(record[0]) is not bytes
                or type(record[1]) is not bytes
                or len(record[0]) + len(record[1]) > bound
            ):
                break
        else:
            return None
    for n in range(len(records)):
        if type(records[n]) is not tuple or not 2 <= len(records[n]) <= 4:
            raise TypeError(
                f"record {n} is not a tuple of (key, value), (key, value, headers) or "
                "(key, value, headers, timestamp_ms)"
            )
        record = records[n]
        size = 0
        for m in range(2):
            part = record[m]
            if type(part) is bytes:
                size += len(part)
            elif part is not None:
                size += len(_as_bytes(part, "value" if m else "key"))
        if len(record) > 2:
            if record[2]:
                headers = _plain_headers(record[2])
                size += _headers_size(headers)
            if len(record) > 3 and record[3] is not None:
                _checked_timestamp(record[3])
        if HEADER_SIZE + RECORD_OVERHEAD + size > accumulator.max_record_bytes:
            raise RecordTooLarge(
                f"record {n} has {size} bytes, more than the {accumulator.max_record_bytes} "
                "that max_request_size and buffer_memory allow"
            )
    return None


# ---------------------------------------------------------------- records


@cython.final
@cython.no_gc
@cython.freelist(1024)
@cython.cclass
class Record:
    """A record as it was read.

    Attributes:
        topic: the topic.
        partition: the partition's number.
        offset: in the partition.
        timestamp_ms: milliseconds since 1970, -1 if the record has none.
        timestamp_type: 0 = set by the producer (CreateTime), 1 = by the log (LogAppendTime),
            -1 = none (NoTimestampType): records of format 0 have no time.
        key: bytes or None.
        value: bytes; None is a tombstone.
        headers: (name, value) pairs, () if there are none.
        leader_epoch: of its batch, -1 if unknown.
    """

    # Not tracked by the garbage collector: strings, bytes and numbers make no cycle.
    __slots__ = (
        "headers",
        "key",
        "leader_epoch",
        "offset",
        "partition",
        "timestamp_ms",
        "timestamp_type",
        "topic",
        "value",
    )

    def __init__(
        self,
        topic,
        partition,
        offset,
        timestamp_ms,
        timestamp_type=0,
        key=None,
        value=None,
        headers=(),
        leader_epoch=-1,
    ):
        self.topic = topic
        self.partition = _int_of(partition, "partition", 32)
        self.offset = _int_of(offset, "offset", 64)
        self.timestamp_ms = _int_of(timestamp_ms, "timestamp_ms", 64)
        self.timestamp_type = _int_of(timestamp_type, "timestamp_type", 32)
        self.key = key
        self.value = value
        self.headers = tuple(headers)
        self.leader_epoch = _int_of(leader_epoch, "leader_epoch", 32)

    def _values(self):
        return (
            self.topic,
            self.partition,
            self.offset,
            self.timestamp_ms,
            self.timestamp_type,
            self.key,
            self.value,
            self.headers,
            self.leader_epoch,
        )

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        mine: Record = self
        return mine._values() == other._values()

    def __hash__(self):
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self):
        headers = f", headers={len(self.headers)}" if self.headers else ""
        return (
            f"Record({self.topic}-{self.partition} offset={self.offset}, "
            f"timestamp_ms={self.timestamp_ms}, key={_short(self.key)}, "
            f"value={_short(self.value)}{headers})"
        )

    def __reduce__(self):
        from aiokq.fastpath import restore_record

        return restore_record, self._values()


def _short(data):
    """A payload's repr, cut: a record in a log line is not to flood it."""
    if data is None or len(data) <= _SHORT:
        return repr(data)
    return f"{data[:_SHORT]!r}+{len(data) - _SHORT}"


_SHORT = 32


# ---------------------------------------------------------------- the cursor


@cython.final
@cython.cclass
class Cursor:
    """Hands over the records of one partition's fetched bytes, one by one, in order.

    Batches are checked and decompressed when their turn comes, records made when asked for.
    Keys and values are copies: no record keeps the fetched bytes alive. Control batches and
    what read_committed hides are passed over; a last batch that is cut short is ignored.

    Args:
        topic: the topic.
        partition: its number.
        data: batches as the broker sent them.
        start_offset: the first offset to hand over; a batch may begin before it.
        stop_offset: where to end, if anywhere.
        codecs: opens compressed and legacy batches.
        check_crcs: verify each batch's CRC-32C.
        aborted: (producer_id, first_offset) of aborted transactions, for read_committed; None
            hands over all records.
        max_batch_bytes: the most bytes a compressed batch may become.

    Attributes:
        position: offset of the next record; moves exactly when a record is handed over, and
            over what is passed over.
        handed: records handed over.
    """

    __slots__ = (
        "aborted",
        "aborted_ids",
        "at",
        "base",
        "base_offset",
        "base_timestamp",
        "bounded",
        "check_crcs",
        "codecs",
        "count",
        "deferred",
        "ended",
        "epoch",
        "error",
        "handed",
        "inner",
        "last_delta",
        "last_epoch",
        "last_offset",
        "max_batch_bytes",
        "next_offset",
        "opened",
        "opened_bytes",
        "partial",
        "partition",
        "position",
        "ready",
        "ready_error",
        "record",
        "record_end",
        "remaining",
        "size",
        "source",
        "stop",
        "sub",
        "sub_at",
        "time_type",
        "topic",
        "untimed",
    )

    def __init__(
        self,
        topic,
        partition,
        data,
        *,
        start_offset,
        stop_offset=None,
        codecs,
        check_crcs=True,
        aborted=None,
        max_batch_bytes=128 * 1024 * 1024,
    ):
        self.topic = topic
        self.partition = partition
        self.codecs = codecs
        self.check_crcs = check_crcs
        self.aborted = None
        if aborted is not None:
            self.aborted = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self.aborted_ids = set()
        self.max_batch_bytes = max_batch_bytes
        self.position = start_offset
        self.stop = _MAX_INT64 if stop_offset is None else stop_offset
        self.handed = 0
        self.last_offset = -1
        self.last_epoch = -1
        self.at = 0
        self.sub = None
        self.sub_at = 0
        self.untimed = False
        self.inner = None
        self.remaining = 0
        self.opened = False
        self.opened_bytes = 0
        self.bounded = False
        self.ended = False
        self.partial = 0
        self.error = None
        self.deferred = False
        self.source = memoryview(data).cast("B")
        if cython.compiled:
            if self.buffer != cython.NULL:
                raise RuntimeError("a cursor is made once")
            # In memory of its own, where the garbage collector does not see the reference: it
            # would clear the memoryview of a cursor that hangs on a traceback, and CPython
            # cannot release the buffer of a cleared memoryview.
            held: cython.pointer(Py_buffer) = cython.cast(
                cython.pointer(Py_buffer), PyMem_Malloc(cython.sizeof(Py_buffer))
            )
            if held == cython.NULL:
                raise MemoryError
            try:
                PyObject_GetBuffer(self.source, held, PyBUF_SIMPLE)
            except BaseException:
                PyMem_Free(held)
                raise
            self.buffer = held
            self.base = cython.cast(cython.p_uchar, held.buf)
            self.size = held.len
        else:
            self.size = len(self.source)
            self.ready = ()
            self.ready_error = None

    def __dealloc__(self):
        if cython.compiled and self.buffer != cython.NULL:
            PyBuffer_Release(self.buffer)
            PyMem_Free(self.buffer)

    @property
    def bytes_left(self):
        """Bytes of the batches not opened yet, a last incomplete one included."""
        return self.size - self.at

    @property
    def partial_batch_bytes(self):
        """What the batch cut short at the end takes in whole; 0 if none was met yet."""
        return self.partial

    @property
    def exhausted(self):
        """Whether the end was reached: known once a record was asked for in vain."""
        return self.ended

    @property
    def raised(self):
        """What was raised for the batch that comes next; None while there is none.

        Until that is skipped, iteration has ended and the methods raise it again."""
        return None if self.deferred else self.error

    @property
    def last_handed_offset(self):
        """Offset of the record handed over last, -1 before the first."""
        return self.last_offset

    @property
    def leader_epoch(self):
        """Leader epoch of the record handed over last, -1 if unknown."""
        return self.last_epoch

    def __iter__(self):
        return self

    def __next__(self):
        if not cython.compiled and len(self.ready) > 1:
            return _pop_ready(self)
        if self.error is not None and not self.deferred:
            raise StopIteration  # it was raised, which ends an iterator
        record = _next_record(self)
        if record is None:
            raise StopIteration
        return record

    def next_batch(self):
        """The rest of the current batch, or the next one, as a list; [] at the end.

        Raises:
            CorruptRecord: as iteration does, once what stands before it was handed over.
        """
        if self.remaining == 0 and not _open_next(self):
            return []
        return _take(self, self.remaining)

    def take(self, limit):
        """At most `limit` records as a list; [] at the end.

        Raises:
            CorruptRecord: as iteration does, once what stands before it was handed over.
        """
        out: list = []
        while len(out) < limit:
            try:
                if self.remaining == 0 and not _open_next(self):
                    break
                out += _take(self, limit - len(out))
            except CorruptRecord:
                if out:
                    self.deferred = True  # raised by the next call
                    break
                raise
        return out

    def more(self):
        """Whether there is another record; the batch that comes next is opened for that.

        Raises:
            CorruptRecord: as iteration does.
        """
        if self.remaining == 0 and not _open_next(self):
            return False
        return _next_record(_fork(self, self.stop)) is not None

    def fork(self, stop_offset=None):
        """Another cursor that goes on from here, and shares the bytes that are decompressed.

        Args:
            stop_offset: where it ends, if that is before this one does.
        """
        return _fork(self, self.stop if stop_offset is None else min(stop_offset, self.stop))

    def skip_batch(self):
        """Passes over the current batch, or the one that CorruptRecord was raised for."""
        corrupt: cython.bint = self.error is not None
        self.error = None
        self.deferred = False
        if self.opened:
            _leave_batch(self)
        elif not self.ended:
            _skip_unread(self, corrupt)

    def columns(self, names=None, max_bytes=None):
        """Hands over all records that are left as columns; see Columns.

        Fewer where a corrupt batch or more than 2 GiB of a column is next: until `exhausted`
        another call gives the rest.

        Args:
            names: the columns wanted, all by default; see COLUMN_NAMES.
            max_bytes: open no further batch once those that were have so many bytes of records,
                decompressed; no limit by default.

        Raises:
            CorruptRecord: as iteration does, once what stands before it was handed over.
            ValueError: no such column.
        """
        return _columns(self, names, max_bytes)

    def __repr__(self):
        return f"<Cursor {self.topic}-{self.partition} position={self.position}>"


_BATCH = struct.Struct(">qiibIhiqqqhii")


@cython.cfunc
def _offset_behind(cursor: Cursor) -> object:
    """The offset behind the batch at the head, by its header; None if that makes no sense."""
    if cursor.opened:
        return cursor.next_offset
    head = b"" if cursor.sub is not None else bytes(cursor.source[cursor.at : cursor.at + 27])
    if len(head) < 27 or 12 + int.from_bytes(head[8:12], "big", signed=True) < 26:
        return None
    base_offset = int.from_bytes(head[:8], "big", signed=True)
    last_delta = int.from_bytes(head[23:27], "big", signed=True) if head[16] >= 2 else 0
    if base_offset < 0 or last_delta < 0 or base_offset > _TOP_OFFSET:
        return None
    return max(base_offset + last_delta, int(cursor.position)) + 1


@cython.cfunc
def _corrupt(cursor: Cursor, what: object, cause: object) -> object:
    """Remembers and raises: the batch stays corrupt however often it is asked for."""
    behind: object = _offset_behind(cursor)
    if behind is None:
        skip = "where the next one begins cannot be told: seek() to a later offset"
    else:
        skip = f"seek(({cursor.topic!r}, {cursor.partition}), {behind}) goes on behind it"
    error = CorruptRecord(
        f"{what}, in the batch at or after offset {cursor.position} of "
        f"{cursor.topic}-{cursor.partition}; {skip}",
        topic_partition=TopicPartition(cursor.topic, cursor.partition),
    )
    error.__cause__ = cause
    cursor.error = error
    # Nothing more is there: a stream asks its source what to do about it.
    cursor.remaining = 0
    raise copy_error(error)


@cython.cfunc
def _fork(cursor: Cursor, stop: cython.longlong) -> Cursor:
    """See Cursor.fork; `stop` is not behind where the cursor stops."""
    twin: Cursor = Cursor(
        cursor.topic,
        cursor.partition,
        cursor.source,
        start_offset=cursor.position,
        stop_offset=stop,
        codecs=cursor.codecs,
        check_crcs=cursor.check_crcs,
        max_batch_bytes=cursor.max_batch_bytes,
    )
    if cursor.aborted is not None:
        twin.aborted = list(cursor.aborted)
        twin.aborted_ids = set(cursor.aborted_ids)
    twin.handed = cursor.handed
    twin.last_offset = cursor.last_offset
    twin.last_epoch = cursor.last_epoch
    twin.at = cursor.at
    twin.sub = cursor.sub
    twin.sub_at = cursor.sub_at
    twin.untimed = cursor.untimed
    twin.ended = cursor.ended
    twin.partial = cursor.partial
    twin.error = cursor.error
    twin.deferred = cursor.deferred
    if not cursor.opened:
        return twin
    twin.opened = True
    twin.inner = cursor.inner
    twin.opened_bytes = cursor.opened_bytes
    twin.remaining = cursor.remaining
    twin.base_offset = cursor.base_offset
    twin.last_delta = cursor.last_delta
    twin.next_offset = cursor.next_offset
    twin.time_type = cursor.time_type
    twin.base_timestamp = cursor.base_timestamp
    twin.epoch = cursor.epoch
    twin.bounded = cursor.next_offset > stop
    if cython.compiled:
        twin.record = cursor.record
        twin.record_end = cursor.record_end
    else:
        _share_ready(cursor, twin)
    return twin


@cython.cfunc
def _next_record(cursor: Cursor) -> object:
    """The next record, handed over; None at the end."""
    record: object
    while True:
        if cursor.remaining == 0 and not _open_next(cursor):
            return None
        record = _hand_over(cursor)
        if record is not None:
            return record


@cython.cfunc
def _take(cursor: Cursor, limit: cython.Py_ssize_t) -> list:
    """Up to `limit` records of the open batch; a corrupt one is met by the next call."""
    out: list = []
    record: object
    if not cython.compiled and len(cursor.ready) > 1:
        # All but the last one at once; _hand_over() sees to what comes with that.
        first = max(len(cursor.ready) - limit, 1)
        out = cursor.ready[first:]
        del cursor.ready[first:]
        out.reverse()
        cursor.remaining -= len(out)
        cursor.handed += len(out)
        cursor.last_epoch = cursor.epoch
        cursor.last_offset = out[-1].offset
        cursor.position = cursor.last_offset + 1
    while cursor.remaining > 0 and len(out) < limit:
        try:
            record = _hand_over(cursor)
        except CorruptRecord:
            if out:
                cursor.deferred = True
                break
            raise
        if record is not None:
            out.append(record)
    return out


@cython.cfunc
def _end(cursor: Cursor) -> object:
    cursor.ended = True
    cursor.opened = False
    cursor.remaining = 0
    cursor.inner = None
    return None


@cython.cfunc
def _pass(cursor: Cursor, offset: cython.longlong) -> object:
    """The position moves up to `offset`, not past where to stop, never back."""
    offset = min(offset, cursor.stop)
    if offset > cursor.position:
        cursor.position = offset
    return None


@cython.cfunc
def _leave_batch(cursor: Cursor) -> object:
    """Done with the open batch: compaction may have emptied its end, so the position jumps."""
    cursor.opened = False
    cursor.remaining = 0
    cursor.inner = None
    if not cython.compiled:
        cursor.ready = ()
        cursor.ready_error = None
    _pass(cursor, cursor.next_offset)
    return None


@cython.cfunc
@cython.exceptval(-1, check=False)
def _open_next(cursor: Cursor) -> cython.int:
    """Opens the next batch that has a record to hand over: 0 if there is none."""
    at: cython.Py_ssize_t
    left: cython.Py_ssize_t
    total: cython.Py_ssize_t
    base_offset: cython.longlong
    next_offset: cython.longlong
    base_timestamp: cython.longlong
    max_timestamp: cython.longlong
    producer_id: cython.longlong
    length: cython.longlong
    epoch: cython.int
    magic: cython.int
    attributes: cython.int
    last_delta: cython.longlong
    count: cython.longlong
    crc: cython.uint
    hidden: cython.int
    if cython.compiled:
        p: cython.pointer(cython.const[cython.uchar])
    if cursor.error is not None:
        cursor.deferred = False
        raise copy_error(cursor.error)
    if cursor.opened:
        _leave_batch(cursor)
    while not cursor.ended:
        if cursor.position >= cursor.stop:
            _end(cursor)
            return 0
        # An upconverted legacy entry is read like the rest, from memory of its own.
        if cursor.sub is not None:
            at = cursor.sub_at
            left = len(cursor.sub) - at
            if left == 0:
                cursor.sub = None
                continue
        else:
            at = cursor.at
            left = cursor.size - at
        if left < 17:
            cursor.partial = 17 if left else 0
            _end(cursor)
            return 0
        if cython.compiled:
            if cursor.sub is not None:
                p = cython.cast(cython.p_uchar, PyBytes_AS_STRING(cursor.sub)) + at
            else:
                p = cursor.base + at
            magic = p[16]
            length = aiokq_i32(p + 8)
        else:
            region = cursor.source if cursor.sub is None else cursor.sub
            magic = region[at + 16]
            length = int.from_bytes(region[at + 8 : at + 12], "big", signed=True)
        total = 12 + length
        if magic < 2:
            if cursor.sub is not None:
                _corrupt(cursor, "upconverted to a legacy batch", None)
            if length < 14:
                _corrupt(cursor, f"a legacy entry of {length} bytes", None)
            if total > left:
                cursor.partial = total
                _end(cursor)
                return 0
            _open_legacy(cursor)
            continue
        if magic > 2:
            _corrupt(cursor, f"a batch of magic {magic}", None)
        if length < 49:
            _corrupt(cursor, f"a batch of {total} bytes", None)
        if total > left:
            cursor.partial = total
            _end(cursor)
            return 0
        if cython.compiled:
            base_offset = aiokq_i64(p)
            epoch = aiokq_i32(p + 12)
            crc = aiokq_u32(p + 17)
            attributes = aiokq_i16(p + 21)
            last_delta = aiokq_i32(p + 23)
            base_timestamp = aiokq_i64(p + 27)
            max_timestamp = aiokq_i64(p + 35)
            producer_id = aiokq_i64(p + 43)
            count = aiokq_i32(p + 57)
        else:
            (
                base_offset,
                _,
                epoch,
                _,
                crc,
                attributes,
                last_delta,
                base_timestamp,
                max_timestamp,
                producer_id,
                _,
                _,
                count,
            ) = _BATCH.unpack_from(region, at)
        if base_offset < 0 or last_delta < 0 or base_offset > _TOP_OFFSET:
            _corrupt(cursor, f"a batch at offset {base_offset} with {last_delta} more", None)
        next_offset = base_offset + last_delta + 1
        if base_offset >= cursor.stop:
            _pass(cursor, cursor.stop)
            _end(cursor)
            return 0
        if next_offset > cursor.position:
            if cursor.check_crcs and cursor.sub is None:
                if cython.compiled:
                    if aiokq_crc32c(0, p + CRC_COVERS, total - CRC_COVERS) != crc:
                        _corrupt(cursor, "a wrong CRC-32C", None)
                elif _crc32c(region[at + CRC_COVERS : at + total]) != crc:
                    _corrupt(cursor, "a wrong CRC-32C", None)
            # The header can be trusted from here on: skip_batch() goes by it.
            if count < 0 or count > last_delta + 1:
                _corrupt(cursor, f"a batch of {count} records over {last_delta + 1} offsets", None)
            hidden = _hidden(cursor, at, total, attributes, producer_id, base_offset, last_delta)
            if not hidden and count > 0:
                _open_batch(cursor, at, total, attributes, count)
                cursor.base_offset = base_offset
                cursor.last_delta = last_delta
                cursor.next_offset = next_offset
                if attributes & 8:
                    cursor.time_type = 1
                    cursor.base_timestamp = max_timestamp
                else:
                    cursor.time_type = -1 if cursor.sub is not None and cursor.untimed else 0
                    cursor.base_timestamp = base_timestamp
                cursor.epoch = epoch
                cursor.bounded = next_offset > cursor.stop
                cursor.opened = True
                cursor.remaining = count
                if not cython.compiled:
                    _decode_batch(cursor, count)
        elif cursor.aborted is not None:
            # A cursor may begin amid batches: a transaction that ended before must not hide what
            # its producer wrote later.
            _hidden(cursor, at, total, attributes, producer_id, base_offset, last_delta)
        if cursor.sub is not None:
            cursor.sub_at = at + total
        else:
            cursor.at = at + total
        if cursor.opened:
            if base_offset < cursor.position and not _skip_below(cursor):
                _leave_batch(cursor)
                continue
            return 1
        _pass(cursor, next_offset)
    return 0


if cython.compiled:
    from cython.cimports.aiokq._native import AIOKQ_TOP_OFFSET as _TOP_OFFSET
else:
    _TOP_OFFSET = 2**63 - 2**32 - 1


@cython.cfunc
def _view(cursor: Cursor, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> object:
    """The bytes from `at` to `end` of what is being read."""
    if cursor.sub is not None:
        return memoryview(cursor.sub)[at:end]
    return cursor.source[at:end]


@cython.cfunc
@cython.exceptval(-1, check=False)
def _hidden(
    cursor: Cursor,
    at: cython.Py_ssize_t,
    total: cython.Py_ssize_t,
    attributes: cython.int,
    producer_id: cython.longlong,
    base_offset: cython.longlong,
    last_delta: cython.longlong,
) -> cython.int:
    """Whether a batch is passed over: a control batch, or of an aborted transaction.

    Source: Kafka's CompletedFetch.nextFetchedRecord.
    """
    if cursor.aborted is not None:
        while cursor.aborted and cursor.aborted[len(cursor.aborted) - 1][0] <= (
            base_offset + last_delta
        ):
            cursor.aborted_ids.add(cursor.aborted.pop()[1])
    if attributes & 0x20:
        if (
            cursor.aborted is not None
            and producer_id in cursor.aborted_ids
            and _is_abort_marker(cursor, at, total, attributes)
        ):
            cursor.aborted_ids.discard(producer_id)
        return 1
    return (
        cursor.aborted is not None
        and (attributes & 0x10) != 0
        and producer_id in cursor.aborted_ids
    )


@cython.cfunc
def _is_abort_marker(
    cursor: Cursor,
    at: cython.Py_ssize_t,
    total: cython.Py_ssize_t,
    attributes: cython.int,
) -> object:
    """Whether a control batch ends a transaction by abort: the type in its record's key is 0."""
    payload: bytes = _decompressed(cursor, at, total, attributes)
    try:
        _, place = _read_varint(payload, 0)
        _, place = _read_varint(payload, place + 1)
        _, place = _read_varint(payload, place)
        size, place = _read_varint(payload, place)
        if size < 4 or place + 4 > len(payload):
            raise IndexError
        return payload[place + 2] == 0 and payload[place + 3] == 0
    except IndexError:
        _corrupt(cursor, "a control batch without a type", None)


@cython.cfunc
def _decompressed(
    cursor: Cursor, at: cython.Py_ssize_t, total: cython.Py_ssize_t, attributes: cython.int
) -> bytes:
    """The records of a batch as bytes of their own."""
    view = _view(cursor, at + HEADER_SIZE, at + total)
    if attributes & 7 == 0:
        return bytes(view)
    try:
        return bytes(cursor.codecs.decompress(attributes & 7, view, cursor.max_batch_bytes))
    except Exception as error:  # noqa: BLE001  a codec may fail in any way on hostile bytes
        _corrupt(cursor, f"records that do not decompress ({error})", error)


@cython.cfunc
def _open_batch(
    cursor: Cursor,
    at: cython.Py_ssize_t,
    total: cython.Py_ssize_t,
    attributes: cython.int,
    count: cython.longlong,
) -> object:
    """Points at the batch's records, decompressed if they were compressed."""
    if cython.compiled:
        payload: bytes
        if attributes & 7 == 0 and cursor.sub is None:
            cursor.inner = None
            cursor.record = cursor.base + at + HEADER_SIZE
            cursor.record_end = cursor.base + at + total
            cursor.opened_bytes = total - HEADER_SIZE
        else:
            payload = _decompressed(cursor, at, total, attributes)
            cursor.inner = payload
            cursor.record = cython.cast(cython.p_uchar, PyBytes_AS_STRING(payload))
            cursor.record_end = cursor.record + PyBytes_GET_SIZE(payload)
            cursor.opened_bytes = PyBytes_GET_SIZE(payload)
    else:
        cursor.inner = _decompressed(cursor, at, total, attributes)
        cursor.opened_bytes = len(cursor.inner)
    return None


@cython.cfunc
def _open_legacy(cursor: Cursor) -> object:
    """Has the next entries of one magic, 0 or 1, made into one v2 batch.

    One entry at a time where the log set the time, which a v2 batch has once for all records.
    That those of magic 0 have no time it does not say at all: the cursor does.
    """
    start: cython.Py_ssize_t = cursor.at
    end: cython.Py_ssize_t = start
    size: cython.Py_ssize_t
    while cursor.size - end >= 18:
        header = bytes(cursor.source[end : end + 18])
        size = 12 + int.from_bytes(header[8:12], "big", signed=True)
        stamped = header[16] == 1 and header[17] & 8
        if header[16] >= 2 or size < 26 or size > cursor.size - end:
            break
        if end == start:
            cursor.untimed = header[16] == 0
        elif stamped or (header[16] == 0) != cursor.untimed:
            break
        end += size
        if stamped:
            break
    try:
        cursor.sub = bytes(cursor.codecs.upconvert(cursor.source[start:end]))
    except Exception as error:  # noqa: BLE001  a codec may fail in any way on hostile bytes
        _corrupt(cursor, f"legacy messages that cannot be read ({error})", error)
    cursor.sub_at = 0
    cursor.at = end
    return None


@cython.cfunc
def _skip_unread(cursor: Cursor, corrupt: cython.bint) -> object:
    """Passes over the batch at the head, by its header, if that makes sense."""
    if cursor.sub is not None:
        cursor.sub = None
        return None
    head = bytes(cursor.source[cursor.at : cursor.at + HEADER_SIZE])
    size: cython.longlong = 0
    if len(head) >= 27:
        size = 12 + int.from_bytes(head[8:12], "big", signed=True)
    if size < 26 or size > cursor.size - cursor.at:
        # Nothing whole is there; or its length is wrong, and what follows cannot be found.
        if corrupt:
            _pass(cursor, cursor.position + 1)
        _end(cursor)
        return None
    base_offset = int.from_bytes(head[:8], "big", signed=True)
    last_delta = int.from_bytes(head[23:27], "big", signed=True) if head[16] >= 2 else 0
    if base_offset < 0 or last_delta < 0 or base_offset > _TOP_OFFSET:
        _pass(cursor, cursor.position + 1)
    else:
        _pass(cursor, base_offset + last_delta + 1)
    cursor.at += size
    return None


@cython.cfunc
@cython.exceptval(-1, check=False)
def _skip_below(cursor: Cursor) -> cython.int:
    """Passes over the records below the position, so that the next one can be handed over."""
    if cython.compiled:
        fields = cython.declare(aiokq_record)
        while cursor.remaining > 0:
            if not aiokq_parse_record(cursor.record, cursor.record_end, cython.address(fields)):
                return 1  # _hand_over() raises for it
            if cursor.base_offset + fields.offset_delta >= cursor.position:
                return 1
            cursor.record = fields.end
            cursor.remaining -= 1
        return 0
    else:
        return cursor.remaining > 0  # _decode_batch() left them out


@cython.cfunc
def _bad_record(cursor: Cursor, what: object) -> object:
    """A record cannot be read: that is an error, unless all that is wanted was handed over."""
    if cursor.position < cursor.stop:
        _corrupt(cursor, what, None)
    _end(cursor)
    return None


@cython.cfunc
def _hand_over(cursor: Cursor) -> object:
    """The next record of the open batch; None where it lies beyond the stop offset."""
    if cython.compiled:
        fields = cython.declare(aiokq_record)
        offset: cython.longlong
        record: Record
        if not aiokq_parse_record(cursor.record, cursor.record_end, cython.address(fields)):
            return _bad_record(cursor, "a malformed record")
        offset = cursor.base_offset + fields.offset_delta
        if offset < cursor.position or fields.offset_delta > cursor.last_delta:
            return _bad_record(cursor, "record offsets that do not rise")
        if offset >= cursor.stop:
            _pass(cursor, cursor.stop)
            _end(cursor)
            return None
        if cursor.remaining == 1 and fields.end != cursor.record_end:
            _corrupt(cursor, "bytes after the last record", None)
        record = Record.__new__(Record)
        record.topic = cursor.topic
        record.partition = cursor.partition
        record.offset = offset
        record.timestamp_type = cursor.time_type
        if cursor.time_type == 1:
            record.timestamp_ms = cursor.base_timestamp
        else:
            record.timestamp_ms = aiokq_add(cursor.base_timestamp, fields.timestamp_delta)
        record.leader_epoch = cursor.epoch
        if fields.key_size < 0:
            record.key = None
        else:
            record.key = PyBytes_FromStringAndSize(
                cython.cast(cython.p_char, fields.key), fields.key_size
            )
        if fields.value_size < 0:
            record.value = None
        else:
            record.value = PyBytes_FromStringAndSize(
                cython.cast(cython.p_char, fields.value), fields.value_size
            )
        if fields.header_count == 0:
            record.headers = ()
        else:
            record.headers = _read_headers(cursor, cython.address(fields))
        cursor.record = fields.end
        cursor.remaining -= 1
        cursor.handed += 1
        cursor.last_offset = offset
        cursor.last_epoch = cursor.epoch
        if cursor.remaining == 0:
            _leave_batch(cursor)
        else:
            cursor.position = offset + 1
        return record
    else:
        if not cursor.ready:
            return _bad_record(cursor, cursor.ready_error)
        record = cursor.ready.pop()
        if record is None:
            _pass(cursor, cursor.stop)
            _end(cursor)
            return None
        cursor.remaining -= 1
        cursor.handed += 1
        cursor.last_offset = record.offset
        cursor.last_epoch = cursor.epoch
        if cursor.remaining == 0:
            _leave_batch(cursor)
        else:
            cursor.position = record.offset + 1
        return record


@cython.cfunc
def _read_headers(cursor: Cursor, fields: cython.pointer(aiokq_record)) -> tuple:
    """The headers of a record, as (name, value) pairs; names as Java reads them."""
    if cython.compiled:
        out: list = []
        at: cython.pointer(cython.const[cython.uchar]) = fields.headers
        name: cython.pointer(cython.const[cython.uchar]) = cython.NULL
        value: cython.pointer(cython.const[cython.uchar]) = cython.NULL
        name_size: int64_t = 0
        value_size: int64_t = 0
        _: cython.longlong
        for _ in range(fields.header_count):
            at = aiokq_parse_header(
                at,
                fields.end,
                cython.address(name),
                cython.address(name_size),
                cython.address(value),
                cython.address(value_size),
            )
            if at == cython.NULL:
                _corrupt(cursor, "a malformed header", None)
            text = PyUnicode_DecodeUTF8(cython.cast(cython.p_char, name), name_size, b"replace")
            if value_size < 0:
                out.append((text, None))
            else:
                data = PyBytes_FromStringAndSize(cython.cast(cython.p_char, value), value_size)
                out.append((text, data))
        if at != fields.end:
            _corrupt(cursor, "a malformed header", None)
        return tuple(out)
    return ()


if not cython.compiled:

    def _decode_batch(cursor, count):
        """The batch's records into `ready`, last one first, and the error after them."""
        cursor.ready, cursor.ready_error = _pure.decode_batch(cursor, count, Record)
        cursor.remaining = len(cursor.ready) + (cursor.ready_error is not None)

    def _share_ready(cursor, twin):
        """What is decoded, for a fork, which may stop before."""
        ready, error, beyond = list(cursor.ready), cursor.ready_error, 0
        while beyond < len(ready) and (ready[beyond] is None or ready[beyond].offset >= twin.stop):
            beyond += 1
        if beyond:
            ready[:beyond] = [None]
            error = None
        twin.ready, twin.ready_error = ready, error
        twin.remaining = 0 if cursor.error is not None else len(ready) + (error is not None)

    def _pop_ready(cursor):
        """_hand_over() where more than one record is ready: nothing else can happen."""
        record = cursor.ready.pop()
        offset = record.offset
        cursor.remaining -= 1
        cursor.handed += 1
        cursor.last_offset = offset
        cursor.last_epoch = cursor.epoch
        cursor.position = offset + 1
        return record


# ---------------------------------------------------------------- columns


COLUMN_NAMES = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)
"""The columns of Spark's Kafka source, in its order."""


@cython.final
@cython.cclass
class Columns:
    """Records of one partition as columns, in Arrow's memory layout.

    Attributes:
        topic: of all rows.
        partition: of all rows.
        count: rows.
        names: the columns that were asked for.
        key: (validity bits or None, int32 offsets, bytes).
        value: as `key`.
        offset: int64.
        timestamp: int64, microseconds since 1970, as Spark has it.
        timestamp_type: int32.
        headers: (validity bits or None, int32 row offsets, int32 name offsets, names, validity
            bits of the values or None, int32 value offsets, values); a row without is null.
    """

    __slots__ = (
        "count",
        "headers",
        "key",
        "names",
        "offset",
        "partition",
        "timestamp",
        "timestamp_type",
        "topic",
        "value",
    )

    def __init__(self, topic, partition, names):
        self.topic = topic
        self.partition = partition
        self.names = names
        self.count = 0
        self.key = None
        self.value = None
        self.offset = None
        self.timestamp = None
        self.timestamp_type = None
        self.headers = None

    def __len__(self):
        return self.count

    def to_arrow(self):
        """A pyarrow.RecordBatch in the shape of Spark's Kafka source; needs pyarrow.

        The buffers are handed over as they are.
        """
        from aiokq._arrow import record_batch

        return record_batch(self)


def _check_names(names):
    if names is None:
        return COLUMN_NAMES
    chosen = tuple(names)
    for name in chosen:
        if name not in COLUMN_NAMES:
            raise ValueError(f"no column {name!r}: there are {', '.join(COLUMN_NAMES)}")
    return chosen


@cython.cfunc
def _columns(cursor: Cursor, names: object, max_bytes: object) -> Columns:
    columns: Columns = Columns(cursor.topic, cursor.partition, _check_names(names))
    most: cython.longlong = _MAX_INT64 if max_bytes is None else max_bytes
    if cython.compiled:
        return _native_columns(cursor, columns, most)
    else:
        return _listed_columns(cursor, columns, most)


@cython.final
@cython.cclass
class _Buffer:
    """Memory that grows, with bytes as its block so that Arrow can keep it alive."""

    __slots__ = ("base", "block", "capacity")


@cython.cfunc
def _buffer() -> _Buffer:
    buffer: _Buffer = _Buffer.__new__(_Buffer)
    if cython.compiled:
        buffer.block = None
        buffer.base = cython.NULL
        buffer.capacity = 0
    return buffer


@cython.cfunc
def _reserve(buffer: _Buffer, used: cython.Py_ssize_t, extra: cython.Py_ssize_t) -> object:
    """Makes room for `extra` bytes after the first `used`."""
    if cython.compiled:
        base: cython.p_uchar
        capacity: cython.Py_ssize_t = used + extra
        if buffer.block is None or capacity > buffer.capacity:
            if buffer.block is not None:
                capacity = max(capacity, 2 * buffer.capacity)
            block = PyBytes_FromStringAndSize(cython.NULL, capacity)
            base = cython.cast(cython.p_uchar, PyBytes_AS_STRING(block))
            if used:
                memcpy(base, buffer.base, used)
            buffer.block = block
            buffer.base = base
            buffer.capacity = capacity
    return None


@cython.cfunc
def _filled(buffer: _Buffer, used: cython.Py_ssize_t) -> object:
    return memoryview(buffer.block if buffer.block is not None else b"")[:used]


@cython.cfunc
def _native_columns(cursor: Cursor, columns: Columns, max_bytes: cython.longlong) -> Columns:
    """Straight from the batches' bytes: no object per record."""
    if cython.compiled:
        fields = cython.declare(aiokq_record)
        at: cython.pointer(cython.const[cython.uchar])
        name: cython.pointer(cython.const[cython.uchar]) = cython.NULL
        text: cython.pointer(cython.const[cython.uchar]) = cython.NULL
        name_size: int64_t = 0
        text_size: int64_t = 0
        _: cython.longlong
        offset: cython.longlong
        timestamp: cython.longlong
        payload: cython.Py_ssize_t
        ahead: cython.Py_ssize_t
        most: cython.Py_ssize_t
        taken: cython.longlong = 0
        rows: cython.Py_ssize_t = 0
        items: cython.Py_ssize_t = 0
        key_used: cython.Py_ssize_t = 0
        value_used: cython.Py_ssize_t = 0
        name_used: cython.Py_ssize_t = 0
        text_used: cython.Py_ssize_t = 0
        key_nulls: cython.Py_ssize_t = 0
        value_nulls: cython.Py_ssize_t = 0
        row_nulls: cython.Py_ssize_t = 0
        text_nulls: cython.Py_ssize_t = 0
        want_key: cython.bint = "key" in columns.names
        want_value: cython.bint = "value" in columns.names
        want_headers: cython.bint = "headers" in columns.names
        want_offset: cython.bint = "offset" in columns.names
        want_timestamp: cython.bint = "timestamp" in columns.names
        want_type: cython.bint = "timestampType" in columns.names
        problem: object = None
        other: bytes
        key_bits: _Buffer = _buffer()
        key_offsets: _Buffer = _buffer()
        keys: _Buffer = _buffer()
        value_bits: _Buffer = _buffer()
        value_offsets: _Buffer = _buffer()
        values: _Buffer = _buffer()
        offsets: _Buffer = _buffer()
        timestamps: _Buffer = _buffer()
        types: _Buffer = _buffer()
        row_bits: _Buffer = _buffer()
        row_offsets: _Buffer = _buffer()
        name_offsets: _Buffer = _buffer()
        names: _Buffer = _buffer()
        text_bits: _Buffer = _buffer()
        text_offsets: _Buffer = _buffer()
        texts: _Buffer = _buffer()
        while problem is None:
            if rows > 0 and taken >= max_bytes:
                break
            try:
                if cursor.remaining == 0 and not _open_next(cursor):
                    break
            except CorruptRecord:
                if rows == 0:
                    raise
                cursor.deferred = True
                break
            taken += cursor.opened_bytes
            payload = cursor.record_end - cursor.record
            # What is left uncompressed bounds what it can hold: one allocation, mostly.
            ahead = payload + (cursor.size - cursor.at)
            if rows > 0 and (
                key_used + payload > _MAX_INT32
                or value_used + payload > _MAX_INT32
                or text_used + payload > _MAX_INT32
                # A byte of a name that is no UTF-8 becomes three.
                or name_used + 3 * payload > _MAX_INT32
                or rows + cursor.remaining >= _MAX_INT32
            ):
                break
            # A count that lies must cost no memory: a record has seven bytes at least.
            most = min(cursor.remaining, payload // 7)
            if want_key:
                _reserve(keys, key_used, ahead)
                _reserve(key_offsets, 4 * rows, 4 * (most + 1))
                _reserve(key_bits, (rows + 7) >> 3, (most >> 3) + 2)
            if want_value:
                _reserve(values, value_used, ahead)
                _reserve(value_offsets, 4 * rows, 4 * (most + 1))
                _reserve(value_bits, (rows + 7) >> 3, (most >> 3) + 2)
            if want_offset:
                _reserve(offsets, 8 * rows, 8 * most)
            if want_timestamp:
                _reserve(timestamps, 8 * rows, 8 * most)
            if want_type:
                _reserve(types, 4 * rows, 4 * most)
            if want_headers:
                _reserve(row_offsets, 4 * rows, 4 * (most + 1))
                _reserve(row_bits, (rows + 7) >> 3, (most >> 3) + 2)
            while cursor.remaining > 0:
                if not aiokq_parse_record(cursor.record, cursor.record_end, cython.address(fields)):
                    problem = "a malformed record"
                    break
                offset = cursor.base_offset + fields.offset_delta
                if offset < cursor.position or fields.offset_delta > cursor.last_delta:
                    problem = "record offsets that do not rise"
                    break
                if offset >= cursor.stop:
                    _pass(cursor, cursor.stop)
                    _end(cursor)
                    break
                if cursor.remaining == 1 and fields.end != cursor.record_end:
                    problem = "bytes after the last record"
                    break
                if fields.header_count > 0:
                    at = fields.headers
                    for _ in range(fields.header_count):
                        at = aiokq_parse_header(
                            at,
                            fields.end,
                            cython.address(name),
                            cython.address(name_size),
                            cython.address(text),
                            cython.address(text_size),
                        )
                        if at == cython.NULL:
                            break
                    if at != fields.end:
                        problem = "a malformed header"
                        break
                if want_key:
                    _put_int32(key_offsets.base, rows, key_used)
                    if fields.key_size < 0:
                        key_nulls += 1
                        _put_bit(key_bits.base, rows, 0)
                    else:
                        _put_bit(key_bits.base, rows, 1)
                        memcpy(keys.base + key_used, fields.key, fields.key_size)
                        key_used += fields.key_size
                if want_value:
                    _put_int32(value_offsets.base, rows, value_used)
                    if fields.value_size < 0:
                        value_nulls += 1
                        _put_bit(value_bits.base, rows, 0)
                    else:
                        _put_bit(value_bits.base, rows, 1)
                        memcpy(values.base + value_used, fields.value, fields.value_size)
                        value_used += fields.value_size
                if want_offset:
                    _put_int64(offsets.base, rows, offset)
                if want_timestamp:
                    if cursor.time_type == 1:
                        timestamp = cursor.base_timestamp
                    else:
                        timestamp = aiokq_add(cursor.base_timestamp, fields.timestamp_delta)
                    _put_int64(timestamps.base, rows, aiokq_micros(timestamp))
                if want_type:
                    _put_int32(types.base, rows, cursor.time_type)
                if want_headers:
                    _put_int32(row_offsets.base, rows, items)
                    if fields.header_count == 0:
                        row_nulls += 1
                        _put_bit(row_bits.base, rows, 0)
                    else:
                        _put_bit(row_bits.base, rows, 1)
                        payload = fields.end - fields.headers
                        _reserve(names, name_used, payload)
                        _reserve(texts, text_used, payload)
                        _reserve(name_offsets, 4 * items, 4 * (fields.header_count + 1))
                        _reserve(text_offsets, 4 * items, 4 * (fields.header_count + 1))
                        _reserve(text_bits, (items + 7) >> 3, (fields.header_count >> 3) + 2)
                        at = fields.headers
                        for _ in range(fields.header_count):
                            at = aiokq_parse_header(
                                at,
                                fields.end,
                                cython.address(name),
                                cython.address(name_size),
                                cython.address(text),
                                cython.address(text_size),
                            )
                            _put_int32(name_offsets.base, items, name_used)
                            _put_int32(text_offsets.base, items, text_used)
                            if aiokq_is_ascii(name, name_size):
                                memcpy(names.base + name_used, name, name_size)
                                name_used += name_size
                            else:
                                # Arrow's strings are UTF-8: as a Record has it, not as it came.
                                other = PyUnicode_DecodeUTF8(
                                    cython.cast(cython.p_char, name), name_size, b"replace"
                                ).encode()
                                _reserve(names, name_used, PyBytes_GET_SIZE(other) + payload)
                                memcpy(
                                    names.base + name_used,
                                    PyBytes_AS_STRING(other),
                                    PyBytes_GET_SIZE(other),
                                )
                                name_used += PyBytes_GET_SIZE(other)
                            if text_size < 0:
                                text_nulls += 1
                                _put_bit(text_bits.base, items, 0)
                            else:
                                _put_bit(text_bits.base, items, 1)
                                memcpy(texts.base + text_used, text, text_size)
                                text_used += text_size
                            items += 1
                rows += 1
                cursor.record = fields.end
                cursor.remaining -= 1
                cursor.handed += 1
                cursor.last_offset = offset
                cursor.last_epoch = cursor.epoch
                cursor.position = offset + 1
            if problem is not None and cursor.position >= cursor.stop:
                problem = None  # as _bad_record() has it
                _end(cursor)
            if cursor.remaining == 0 and cursor.opened:
                _leave_batch(cursor)
        if problem is not None and rows == 0:
            _corrupt(cursor, problem, None)
        columns.count = rows
        if want_key:
            columns.key = _binary_views(key_bits, key_nulls, key_offsets, rows, keys, key_used)
        if want_value:
            columns.value = _binary_views(
                value_bits, value_nulls, value_offsets, rows, values, value_used
            )
        if want_offset:
            columns.offset = _filled(offsets, 8 * rows)
        if want_timestamp:
            columns.timestamp = _filled(timestamps, 8 * rows)
        if want_type:
            columns.timestamp_type = _filled(types, 4 * rows)
        if want_headers:
            _reserve(row_offsets, 4 * rows, 4)
            _put_int32(row_offsets.base, rows, items)
            columns.headers = (
                _filled(row_bits, (rows + 7) >> 3) if row_nulls else None,
                _filled(row_offsets, 4 * (rows + 1)),
                *_binary_views(text_bits, 0, name_offsets, items, names, name_used)[1:],
                *_binary_views(text_bits, text_nulls, text_offsets, items, texts, text_used),
            )
    return columns


@cython.cfunc
def _binary_views(
    bits: _Buffer,
    nulls: cython.Py_ssize_t,
    offsets: _Buffer,
    rows: cython.Py_ssize_t,
    data: _Buffer,
    used: cython.Py_ssize_t,
) -> tuple:
    """A column of bytes as Arrow lays it out; the last offset closes the last row."""
    if cython.compiled:
        _reserve(offsets, 4 * rows, 4)
        _put_int32(offsets.base, rows, used)
    return (
        _filled(bits, (rows + 7) >> 3) if nulls else None,
        _filled(offsets, 4 * (rows + 1)),
        _filled(data, used),
    )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_int32(
    base: cython.p_uchar, at: cython.Py_ssize_t, value: cython.Py_ssize_t
) -> cython.void:
    if cython.compiled:
        cython.cast(cython.pointer(int32_t), cython.cast(cython.p_void, base))[at] = value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_int64(base: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong) -> cython.void:
    if cython.compiled:
        cython.cast(cython.pointer(int64_t), cython.cast(cython.p_void, base))[at] = value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_bit(base: cython.p_uchar, at: cython.Py_ssize_t, value: cython.uchar) -> cython.void:
    """Sets bit `at`; each byte is begun afresh at its first bit."""
    if cython.compiled:
        if at & 7 == 0:
            base[at >> 3] = value
        else:
            base[at >> 3] |= value << (at & 7)


if not cython.compiled:

    def _listed_columns(cursor, columns, max_bytes):
        """From records, by way of lists: right, and no faster than reading them."""
        records = []
        held = taken = 0
        while not records or taken < max_bytes:
            try:
                if cursor.remaining == 0 and not _open_next(cursor):
                    break
                taken += cursor.opened_bytes
                # A byte of a name that is no UTF-8 becomes three.
                held += 3 * len(cursor.inner)
                if records and held > _MAX_INT32:
                    break
                records += _take(cursor, cursor.remaining)
            except CorruptRecord:
                if not records:
                    raise
                cursor.deferred = True
                break
        columns.count = len(records)
        names = columns.names
        if "key" in names:
            columns.key = _pure.binary_column([record.key for record in records])
        if "value" in names:
            columns.value = _pure.binary_column([record.value for record in records])
        if "offset" in names:
            columns.offset = _pure.packed("q", [record.offset for record in records])
        if "timestamp" in names:
            columns.timestamp = _pure.packed(
                "q",
                [(record.timestamp_ms * 1000 + 2**63) % 2**64 - 2**63 for record in records],
            )
        if "timestampType" in names:
            columns.timestamp_type = _pure.packed(
                "i", [record.timestamp_type for record in records]
            )
        if "headers" in names:
            columns.headers = _pure.headers_column([record.headers for record in records])
        return columns


# ---------------------------------------------------------------- compaction

# Why a walk over batches ended: no whole batch is left; the next one is the caller's to handle
# (another magic, compressed, of a transaction, a marker); no room; it is not what its header says.
WALK_END, WALK_OTHER, WALK_FULL, WALK_CORRUPT = 0, 1, 2, 3

# What is asked of a walk: one batch, whatever its attributes, whose records are not compressed;
# its CRC-32C was looked at before; its records all stay; it gets a delete horizon if it has none.
WALK_ONE, WALK_TRUSTED, WALK_KEEP_ALL, WALK_HORIZON = 1, 2, 4, 8

_NOTES = 4096

OFFSET_MAP_ENTRY: int = 24 if cython.compiled else 192
"""Bytes that a key takes in an OffsetMap."""


@cython.final
@cython.cclass
class OffsetMap:
    """The last offset of each key in a part of a log, in memory that is given from the start.

    A key is stood in for by a hash of 128 bits under a secret, as in Kafka by one of MD5: two
    keys are taken for one with a chance of 2**-90 among as many as fit a gigabyte.

    Args:
        slots: room, of OFFSET_MAP_ENTRY bytes each; at least 2.
        most: how many keys may be in it; fewer than `slots`, or lookups would become slow.
        secret: 16 random bytes.
    """

    __slots__ = ("closed", "entries", "latest_offset", "most", "secret")

    def __init__(self, slots, most, secret):
        self.secret = bytes(secret)
        if len(self.secret) != 16 or slots < 2 or most < 1:
            raise ValueError("an offset map has two slots, one key and 16 bytes of a secret")
        self.latest_offset = -1
        self.closed = False
        if cython.compiled:
            if self.map.slots != cython.NULL:
                raise RuntimeError("an offset map is made once")
            self.map.secret[0] = int.from_bytes(self.secret[:8], "little")
            self.map.secret[1] = int.from_bytes(self.secret[8:], "little")
            if not aiokq_map_make(cython.address(self.map), slots, most):
                raise MemoryError
        else:
            self.entries = {}
            self.most = min(most, slots - 1)

    def __dealloc__(self):
        if cython.compiled:
            aiokq_map_free(cython.address(self.map))

    def __len__(self):
        if cython.compiled:
            return self.map.used
        else:
            return len(self.entries)

    def close(self):
        """Gives the memory back, which takes long; others may run meanwhile. Twice is harmless.

        Nothing else is to be asked of it afterwards, nor of what keeps batches by it.
        """
        if cython.compiled:
            self.map.used = 0
            with cython.nogil:
                aiokq_map_free(cython.address(self.map))
        else:
            self.entries = {}
        self.closed = True

    @cython.cfunc
    def _check_open(self):
        if self.closed:
            raise RuntimeError("the offset map is closed")

    def put(self, key, offset):
        """Notes where a key is last; False if it is new and there is no room."""
        self._check_open()
        data: bytes = bytes(key)
        if cython.compiled:
            return bool(
                aiokq_map_put(
                    cython.address(self.map),
                    cython.cast(cython.p_uchar, PyBytes_AS_STRING(data)),
                    PyBytes_GET_SIZE(data),
                    offset,
                )
            )
        else:
            digest = _pure_compaction.hashed(self.secret, data)
            if digest not in self.entries and len(self.entries) >= self.most:
                return False
            self.entries[digest] = offset
            return True

    def get(self, key):
        """The last offset of a key, -1 if it is not there."""
        self._check_open()
        data: bytes = bytes(key)
        if cython.compiled:
            return aiokq_map_get(
                cython.address(self.map),
                cython.cast(cython.p_uchar, PyBytes_AS_STRING(data)),
                PyBytes_GET_SIZE(data),
            )
        else:
            return self.entries.get(_pure_compaction.hashed(self.secret, data), -1)

    def index(self, data, at, start_offset, flags=0):
        """Notes the keys of the batches from byte `at` of `data` on; others may run meanwhile.

        `latest_offset` then says up to where the log is in the map.

        Args:
            start_offset: records before it are left out.
            flags: WALK_ONE, WALK_TRUSTED.

        Returns:
            Where it ended, why, and how many records were looked at.
        """
        self._check_open()
        if cython.compiled:
            view: cython.const[cython.uchar][::1] = memoryview(data).cast("B")
            walk = cython.declare(aiokq_indexing)
            size: cython.Py_ssize_t = view.shape[0]
            start: cython.longlong = start_offset
            asked: cython.int = flags
            state: cython.int = 0
            walk.at = at
            walk.latest = self.latest_offset
            walk.records = 0
            if walk.at < 0 or walk.at > size:
                raise ValueError("no byte of the data")
            if size:
                with cython.nogil:
                    state = aiokq_map_index(
                        cython.address(self.map),
                        cython.address(view[0]),
                        size,
                        start,
                        asked,
                        cython.address(walk),
                    )
            self.latest_offset = walk.latest
            return walk.at, state, walk.records
        else:
            return _pure_compaction.index(self, bytes(data), at, start_offset, flags)


@cython.final
@cython.cclass
class KeptBatches:
    """What stays of batches that are compacted, in a block of memory that the caller writes away.

    Args:
        offsets: the map that says which record of a key is the last.
        now_ms: the time; tombstones go whose horizon is not later.
        horizon_ms: the delete horizon of a batch that has tombstones for the first time.
        upper_offset: the batch that ends before it stays, if without records.
        producers: of live producers the last offset they wrote: that batch stays, too.
        index_interval_bytes: between two notes, as in an index.
        room: bytes of the block, at first.

    Attributes:
        read, kept, keyless: records looked at, kept, and dropped since they have no key.
        batches: that were put into the block.
        max_timestamp_ms, max_timestamp_offset: the largest of the segment; -1 at first.
    """

    __slots__ = (
        "batches", "block", "horizon", "interval", "kept", "keyless", "map",
        "max_timestamp_ms", "max_timestamp_offset", "notes", "now", "position", "producers",
        "read", "room", "unnoted", "upper", "used",
    )  # fmt: skip

    def __init__(
        self, offsets, *, now_ms, horizon_ms, upper_offset, producers, index_interval_bytes, room
    ):
        self.map = offsets
        if cython.compiled:
            c = cython.address(self.keeping)
            pairs = [number for pair in sorted(producers.items()) for number in pair]
            self.producers = struct.pack(f"={len(pairs)}q", *pairs)
            c.producers = cython.cast(cython.pointer(int64_t), PyBytes_AS_STRING(self.producers))
            c.producer_count = len(pairs) // 2
            c.map = cython.address(self.map.map)
            c.now = now_ms
            c.horizon = horizon_ms
            c.upper = upper_offset
            c.interval = index_interval_bytes
            self.note_block = PyBytes_FromStringAndSize(cython.NULL, _NOTES * 32)
            c.notes = cython.cast(cython.pointer(int64_t), PyBytes_AS_STRING(self.note_block))
            c.note_room = _NOTES
            c.max_timestamp = c.max_offset = -1
            self.block = None
            self.reserve(room)
        else:
            self.producers = dict(producers)
            self.now, self.horizon, self.upper = now_ms, horizon_ms, upper_offset
            self.interval, self.room = index_interval_bytes, room
            self.block = bytearray()
            self.notes = []
            self.used = self.position = self.unnoted = self.read = self.kept = self.keyless = 0
            self.batches = 0
            self.max_timestamp_ms = self.max_timestamp_offset = -1

    def __dealloc__(self):
        if cython.compiled:
            aiokq_marks_free(cython.address(self.keeping))

    def begin_segment(self, base_offset):
        """What comes from now on goes into a new segment; the block is empty."""
        self.clear()
        if cython.compiled:
            c = cython.address(self.keeping)
            c.position = c.unnoted = 0
            c.max_timestamp = -1
            c.max_offset = base_offset
        else:
            self.position = self.unnoted = 0
            self.max_timestamp_ms, self.max_timestamp_offset = -1, base_offset

    def keep(self, data, at, flags=0):
        """Puts what stays of the batches from byte `at` of `data` on; others may run meanwhile.

        Args:
            flags: WALK_ONE, WALK_TRUSTED, WALK_KEEP_ALL, WALK_HORIZON.

        Returns:
            Where it ended, and why; after WALK_FULL, clear the block, or reserve a larger one if
            it is empty.

        Source: Kafka's MemoryRecords.filterTo, LogCleaner.
        """
        self.map._check_open()
        if cython.compiled:
            view: cython.const[cython.uchar][::1] = memoryview(data).cast("B")
            size: cython.Py_ssize_t = view.shape[0]
            asked: cython.int = flags
            state: cython.int = 0
            c = cython.address(self.keeping)
            c.at = at
            c.latest = self.map.latest_offset
            if c.at < 0 or c.at > size:
                raise ValueError("no byte of the data")
            if size:
                with cython.nogil:
                    state = aiokq_keep(c, cython.address(view[0]), size, asked)
            return c.at, state
        else:
            return _pure_compaction.keep(self, bytes(data), at, flags)

    def put(self, batch, last_offset, max_timestamp_ms):
        """Puts a whole batch that was made elsewhere; False if there is no room."""
        data: bytes = bytes(batch)
        if cython.compiled:
            c = cython.address(self.keeping)
            size: cython.Py_ssize_t = PyBytes_GET_SIZE(data)
            if size > c.room - c.used or c.note_count >= c.note_room:
                return False
            memcpy(c.out + c.used, PyBytes_AS_STRING(data), size)
            aiokq_note(c, last_offset, size, max_timestamp_ms)
            return True
        else:
            if self.used and self.used + len(data) > self.room:
                return False
            if max_timestamp_ms > self.max_timestamp_ms:
                self.max_timestamp_ms, self.max_timestamp_offset = max_timestamp_ms, last_offset
            if self.unnoted > self.interval:
                self.notes.append(
                    (
                        last_offset,
                        self.position + self.used,
                        self.max_timestamp_ms,
                        self.max_timestamp_offset,
                    )
                )
                self.unnoted = 0
            self.unnoted += len(data)
            self.used += len(data)
            self.batches += 1
            self.block += data
            return True

    def stays_empty(self, producer_id, last_offset):
        """Whether a batch stays that has no record any more."""
        if cython.compiled:
            return bool(aiokq_stays_empty(cython.address(self.keeping), producer_id, last_offset))
        else:
            return last_offset + 1 == self.upper or (
                producer_id >= 0 and self.producers.get(producer_id) == last_offset
            )

    def reserve(self, room):
        """Makes the block, which is empty, this large at least."""
        if cython.compiled:
            c = cython.address(self.keeping)
            if c.used:
                raise RuntimeError("the block is not empty")
            if room > c.room:
                self.block = PyBytes_FromStringAndSize(cython.NULL, room)
                c.out = cython.cast(cython.p_uchar, PyBytes_AS_STRING(self.block))
                c.room = room
        else:
            self.room = max(self.room, room)

    def filled(self):
        """The bytes in the block; they are others after clear()."""
        if cython.compiled:
            return memoryview(self.block)[: self.keeping.used]
        else:
            return bytes(self.block)

    def clear(self):
        """The block was written away; gives the notes: (last offset, position, largest time so
        far, last offset of the batch that has it), an entry of both indexes."""
        if cython.compiled:
            c = cython.address(self.keeping)
            notes = []
            n: cython.Py_ssize_t
            for n in range(c.note_count):
                notes.append(
                    (c.notes[4 * n], c.notes[4 * n + 1], c.notes[4 * n + 2], c.notes[4 * n + 3])
                )
            c.note_count = 0
            c.position += c.used
            c.used = 0
            return notes
        else:
            notes, self.notes = self.notes, []
            self.position += self.used
            self.used = 0
            self.block.clear()
            return notes

    if cython.compiled:

        @property
        def used(self):
            return self.keeping.used

        @property
        def room(self):
            return self.keeping.room

        @property
        def position(self):
            return self.keeping.position

        @property
        def read(self):
            return self.keeping.read

        @property
        def kept(self):
            return self.keeping.kept

        @property
        def keyless(self):
            return self.keeping.keyless

        @property
        def batches(self):
            return self.keeping.batches

        @property
        def max_timestamp_ms(self):
            return self.keeping.max_timestamp

        @property
        def max_timestamp_offset(self):
            return self.keeping.max_offset


# ---------------------------------------------------------------- produced batches


def read_produced(frame):
    """An ordinary Produce request, its batches checked; None for any other.

    Ordinary is what producers send but for mistakes and transactions: version 3 to 13, topics and
    partitions no more than 1024 in all, each partition with one batch of format 2 that a broker may
    store as it came, as far as the batch itself says. Who gets None decodes the request, and finds
    out what is the matter with it.

    Args:
        frame: a Produce request, its header included; records are given as views of it.

    Returns:
        Version, correlation id, acks, and of each topic its name (its id from version 13 on, 16
        bytes) and partitions: index, bytes and the 13 fields of the header of the batch.
    """
    if cython.compiled:
        buffer = cython.declare(Py_buffer)
        PyObject_GetBuffer(frame, cython.address(buffer), PyBUF_SIMPLE)
        try:
            return _read_produced(frame, cython.address(buffer))
        finally:
            PyBuffer_Release(cython.address(buffer))
    else:
        return _pure_produced.read(frame)


if cython.compiled:

    @cython.cfunc
    def _read_produced(frame: object, buffer: cython.pointer(Py_buffer)) -> object:
        request = cython.declare(aiokq_request)
        r: cython.pointer(aiokq_request) = cython.address(request)
        start: cython.pointer(cython.const[cython.uchar]) = cython.cast(
            cython.pointer(cython.const[cython.uchar]), buffer.buf
        )
        text: cython.pointer(cython.const[cython.uchar])
        size: int64_t
        r.at, r.end, r.flexible, r.bad, r.parts = start, start + buffer.len, False, False, 0
        api: cython.int = aiokq_int16(r)
        version: cython.int = aiokq_int16(r)
        correlation_id: cython.int = aiokq_int32(r)
        size = aiokq_int16(r)
        if r.bad or api != 0 or version < 3 or version > 13 or size < -1:
            return None
        if size > 0:
            text = aiokq_pass(r, size)
            if r.bad or not aiokq_is_ascii(text, size):
                return None
        r.flexible = version >= 9
        aiokq_no_tags(r)
        if aiokq_length(r, 2) != -1:  # of the transactional id
            return None
        acks: cython.int = aiokq_int16(r)
        aiokq_int32(r)  # its timeout
        topics_left: int64_t = aiokq_elements(r)
        if r.bad or acks < -1 or acks > 1:
            return None
        topics: list = []
        topic: object
        while topics_left > 0:
            topics_left -= 1
            size = 16 if version >= 13 else aiokq_length(r, 2)
            text = aiokq_pass(r, size)
            if r.bad:
                return None
            if version >= 13:
                topic = cython.cast(cython.p_char, text)[:16]
            elif aiokq_is_ascii(text, size):
                topic = PyUnicode_DecodeUTF8(cython.cast(cython.p_char, text), size, cython.NULL)
            else:
                return None
            partitions: object = _read_partitions(frame, start, r, version)
            if partitions is None:
                return None
            aiokq_no_tags(r)
            topics.append((topic, partitions))
        aiokq_no_tags(r)
        if r.bad:
            return None
        return version, correlation_id, acks, topics

    @cython.cfunc
    def _read_partitions(
        frame: object,
        start: cython.pointer(cython.const[cython.uchar]),
        r: cython.pointer(aiokq_request),
        version: cython.int,
    ) -> object:
        batch: cython.pointer(cython.const[cython.uchar])
        newest_codec: cython.int = 4 if version >= 7 else 3  # zstd
        left: int64_t = aiokq_elements(r)
        if r.bad:
            return None
        partitions: list = []
        while left > 0:
            left -= 1
            index: int32_t = aiokq_int32(r)
            size: int64_t = aiokq_length(r, 4)
            batch = aiokq_pass(r, size)
            if r.bad or not aiokq_ordinary(batch, size, newest_codec):
                return None
            aiokq_no_tags(r)
            header = (
                0,
                aiokq_i32(batch + 8),
                aiokq_i32(batch + 12),
                2,
                aiokq_u32(batch + 17),
                aiokq_i16(batch + 21),
                aiokq_i32(batch + 23),
                aiokq_i64(batch + 27),
                aiokq_i64(batch + 35),
                aiokq_i64(batch + 43),
                aiokq_i16(batch + 51),
                aiokq_i32(batch + 53),
                aiokq_i32(batch + 57),
            )
            partitions.append((index, frame[batch - start : batch - start + size], header))
        return partitions


# ---------------------------------------------------------------- streaming


@cython.final
@cython.cclass
class RecordStream:
    """What `async for record in ...` iterates: records of one cursor after another.

    Args:
        source: asked for cursors. `next_cursor()` returns the next Cursor or None (and is
            where the last one's position is taken); it may raise StopAsyncIteration. `wait()`
            returns an awaitable, a new one each time, for when there may be one again.

    Attributes:
        cursor: the cursor that records are taken from, or None.
        in_hand: a record was handed over and the next one was not asked for yet.
    """

    # A record that is there costs three slot calls and no object: __anext__ and __await__
    # return the stream itself, whose am_send (3.11) or tp_iternext hands the record over. Only
    # a wait that may have to suspend makes an object, _StreamWait, which can be cancelled.
    __slots__ = ("busy", "cursor", "guard", "in_hand", "source")

    def __init__(self, source, guard=None):
        self.source = source
        self.guard = _NO_GUARD if guard is None else guard
        self.cursor = None
        self.in_hand = False
        self.busy = False

    def __aiter__(self):
        return self

    def __anext__(self):
        _require(self.guard)
        self.in_hand = False
        return self

    def __await__(self):
        # A second waiter is refused at its first step: what __await__ raises, `async for` turns
        # into a TypeError.
        cursor: Cursor = self.cursor
        if not self.busy and cursor is not None and cursor.remaining > 0 and not cursor.bounded:
            return self
        wait: _StreamWait = _StreamWait.__new__(_StreamWait)
        wait.stream = self
        wait.inner = None
        return wait

    def __iter__(self):
        return self.__await__()

    def __next__(self):
        raise StopIteration(_stream_step(self))

    def next_nowait(self):
        """The next record if one is there; None otherwise."""
        _require(self.guard)
        if self.busy:
            raise RuntimeError("another task waits for this stream's next record")
        self.in_hand = False
        return _stream_next(self)

    def detach(self):
        """Lets go of the cursor, for a seek or a pause: the next record is asked of the source."""
        self.cursor = None

    def __repr__(self):
        return f"<RecordStream cursor={self.cursor!r}>"


@cython.cfunc
def _stream_next(stream: RecordStream) -> object:
    """The next record that is there, from this cursor or the next; None if there is none."""
    record: object
    while True:
        # A cursor that has raised is not asked again: its source knows what to do about it.
        if stream.cursor is not None and (stream.cursor.error is None or stream.cursor.deferred):
            record = _next_record(stream.cursor)
            if record is not None:
                stream.in_hand = True
                return record
        stream.cursor = stream.source.next_cursor()
        if stream.cursor is None:
            return None


@cython.cfunc
def _stream_step(stream: RecordStream) -> object:
    record: object = _next_record(stream.cursor) if stream.cursor is not None else None
    if record is None:
        raise RuntimeError("the record was taken between __await__ and the await")
    stream.in_hand = True
    return record


@cython.final
@cython.cclass
class _StreamWait:
    """One wait for the next record that may suspend; the iterator behind that `await`."""

    __slots__ = ("inner", "stream")

    def __init__(self):
        raise TypeError("made by awaiting a stream")

    def __iter__(self):
        return self

    def __next__(self):
        value = _stream_wait_step(self)
        if self.inner is not None:
            return value
        raise StopIteration(value)

    def send(self, value):
        return self.__next__()

    def throw(self, kind, value=None, traceback=None):
        error = _as_exception(kind, value, traceback)
        _leave_stream(self, error)
        raise error

    def close(self):
        _leave_stream(self, None)


@cython.cfunc
def _stream_wait_step(self: _StreamWait) -> object:
    """What to suspend on, while `self.inner` is set; else the record."""
    stream: RecordStream = self.stream
    record: object
    while True:
        if self.inner is None:
            if stream.busy:
                raise RuntimeError("another task waits for this stream's next record")
            record = _stream_next(stream)
            if record is not None:
                return record
            self.inner = stream.source.wait().__await__()
            stream.busy = True
        try:
            return next(self.inner)
        except StopIteration:
            self.inner = None
            stream.busy = False
        except BaseException:
            self.inner = None
            stream.busy = False
            raise


@cython.cfunc
def _leave_stream(self: _StreamWait, error: object) -> object:
    """The wait was cancelled: nothing was taken for it, so nothing is lost."""
    inner = self.inner
    if inner is not None:
        self.inner = None
        self.stream.busy = False
        try:
            if error is None or not hasattr(inner, "throw"):
                close = getattr(inner, "close", None)
                if close is not None:
                    close()
            else:
                inner.throw(error)
        except BaseException as raised:
            if raised is not error and not isinstance(raised, StopIteration):
                raise
    return None


if not cython.compiled:

    async def _anext(self):
        """As the slots do it, in one coroutine: cheaper than three Python calls."""
        _require(self.guard)
        self.in_hand = False
        if not self.busy and (cursor := self.cursor) is not None and len(cursor.ready) > 1:
            self.in_hand = True
            return _pop_ready(cursor)
        while True:
            if self.busy:
                raise RuntimeError("another task waits for this stream's next record")
            record = _stream_next(self)
            if record is not None:
                return record
            self.busy = True
            try:
                await self.source.wait()
            finally:
                self.busy = False

    RecordStream.__anext__ = _anext


# ---------------------------------------------------------------- type slots


@cython.cfunc
def _delivery_slot(self: object, yielded: cython.p_int) -> object:
    return _outcome(cython.cast(Delivery, self))


@cython.cfunc
def _wait_slot(self: object, yielded: cython.p_int) -> object:
    value = _wait_step(cython.cast(_Wait, self))
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


@cython.cfunc
def _stream_slot(self: object, yielded: cython.p_int) -> object:
    return _stream_step(cython.cast(RecordStream, self))


@cython.cfunc
def _stream_wait_slot(self: object, yielded: cython.p_int) -> object:
    wait: _StreamWait = self
    value = _stream_wait_step(wait)
    if wait.inner is not None:
        yielded[0] = 1
    return value


# ---------------------------------------------------------------- at import

if cython.compiled:
    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
    aiokq_crc32c_setup()
    aiokq_patch_delivery(Delivery, _delivery_slot)
    aiokq_patch_wait(_Wait, _wait_slot)
    aiokq_patch_wait_all(_WaitAll, _wait_all_slot)
    aiokq_patch_stream(RecordStream, _stream_slot)
    aiokq_patch_stream_wait(_StreamWait, _stream_wait_slot)
else:
    SOURCE_HASH = ""
