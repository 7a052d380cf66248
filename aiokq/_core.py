"""Owns what happens once per record: encoding, partitioning, deliveries, decoding, CRC-32C.

It knows no cluster, settings, tasks or sockets; everything around it is Python that runs once
per batch. One source, two lives: compiled as `aiokq._compiled` (the C types stand in
_compiled.pxd, the C it calls in _native.h), or imported as it is, `aiokq._core`, where the
`else` of `if cython.compiled` does the same with tables and slices. `aiokq.fastpath` chooses.

Order of the file: numbers and checksums; Delivery and what waits for it; Batch; Slot and Route;
Deliveries; Accumulator; Record; Cursor; Columns; RecordStream.

Tests: tests/unit/fastpath/ (each on both builds), tests/property/test_core_parity.py.
Benchmark: benchmarks/micro/core.py.
"""

# hot: benchmarks/micro/core.py. Flat on purpose: a call per record is what it avoids.
# ruff: noqa: SIM108, PLW0603

from __future__ import annotations

import asyncio
import re
import struct
import time
from contextvars import copy_context

from aiokq.core.clock import SystemClock
from aiokq.core.errors import (
    BufferFull,
    Closed,
    DeliveryFailed,
    InvalidTopic,
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
        PyBytes_AS_STRING,
        PyBytes_FromStringAndSize,
        PyBytes_GET_SIZE,
        PyContext_Enter,
        PyContext_Exit,
        PyMem_Free,
        PyMem_Malloc,
        PyUnicode_AsUTF8AndSize,
        Py_REFCNT,
        aiokq_crc32c,
        aiokq_crc32c_setup,
        aiokq_murmur2,
        aiokq_now_ms,
        aiokq_patch_delivery,
        aiokq_patch_wait,
        aiokq_patch_wait_all,
        aiokq_put_varint,
        aiokq_varint_size,
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

COMPILED: bool = bool(cython.compiled)

_BEFORE_CRC = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, CRC
_AFTER_CRC = struct.Struct(">hiqqqhii")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1
_POOLED_BYTES = 4 * 1024 * 1024


# ---------------------------------------------------------------- numbers and checksums

if not cython.compiled:

    def _zigzag_bytes(value: int) -> bytes:
        """`value` as a zigzag varint."""
        bits = (value << 1) ^ (value >> 63)
        out = bytearray()
        while bits >= 0x80:
            out.append(bits & 0x7F | 0x80)
            bits >>= 7
        out.append(bits)
        return bytes(out)

    class _Varints(dict):  # type: ignore[type-arg]
        """Varints by value: small numbers are looked up, the rest worked out each time."""

        __slots__ = ()

        def __missing__(self, value: int) -> bytes:
            return _zigzag_bytes(value)

    _VARINT = _Varints((n, _zigzag_bytes(n)) for n in range(-512, 8192))

    def _load_crc32c():
        """The fastest CRC-32C that can be imported and knows the right answer."""
        for load in (_crc32c_package, _crc32c_cramjam):
            try:
                function = load()
                if (
                    function(b"123456789") == 0xE3069283
                    and function(b"6789", function(b"12345")) == 0xE3069283
                ):
                    return function
            except (ImportError, AttributeError, ValueError, TypeError):
                continue
        return _crc32c_table

    def _crc32c_package():
        """PyPI's crc32c."""
        from crc32c import crc32c as function

        return function

    def _crc32c_cramjam():
        """cramjam comes with python-snappy: its snappy frames carry a masked CRC-32C per 64 KiB."""
        from cramjam import snappy

        def function(data, value=0):
            # A frame starts with a 10-byte identifier; then per block: type, 24-bit length, CRC.
            view = memoryview(data)
            for start in range(0, len(view), 65536):
                block = bytes(view[start : start + 65536])
                frame = bytes(snappy.compress(block))
                masked = int.from_bytes(frame[14:18], "little")
                crc = (masked - 0xA282EAD8) & 0xFFFFFFFF
                crc = (crc << 15 | crc >> 17) & 0xFFFFFFFF
                value = _crc32c_combine(value, crc, len(block))
            return value

        return function

    def _crc32c_combine(first, second, length):
        """The CRC of two pieces from the CRC of each: the first shifted over the second's bytes."""
        if first == 0:
            return second
        even = [0] * 32
        odd = [0x82F63B78] + [1 << n for n in range(31)]

        def times(matrix, vector):
            total = 0
            for row in matrix:
                if not vector:
                    break
                if vector & 1:
                    total ^= row
                vector >>= 1
            return total

        even = [times(odd, row) for row in odd]
        odd = [times(even, row) for row in even]
        while length:
            even = [times(odd, row) for row in odd]
            if length & 1:
                first = times(even, first)
            length >>= 1
            odd, even = even, odd
        return first ^ second

    def _crc32c_rows():
        for n in range(256):
            for _ in range(8):
                n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
            yield n

    _CRC_TABLE = tuple(_crc32c_rows())

    def _crc32c_table(data, value=0):
        """Byte by byte: right everywhere, and thousands of times slower."""
        crc = value ^ 0xFFFFFFFF
        table = _CRC_TABLE
        for byte in memoryview(data).cast("B"):
            crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
        return crc ^ 0xFFFFFFFF

    _crc32c = _load_crc32c()


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

    __slots__ = ("topic", "partition", "offset", "timestamp_ms")

    def __init__(self, topic, partition, offset, timestamp_ms):
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = timestamp_ms

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
        WAIT_CANCELLED as _CANCELLED,
        WAIT_LEFT as _LEFT,
        WAIT_NEW as _NEW,
        WAIT_SUSPENDED as _SUSPENDED,
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
        "delivery",
        "loop",
        "callback",
        "context",
        "message",
        "state",
        "_asyncio_future_blocking",
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
    wait.delivery = delivery
    wait.loop = _loop_of(delivery.batch)
    wait.callback = None
    wait.context = None
    wait.message = None
    wait.state = _NEW
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
    if freed and accumulator.queued and accumulator.on_room is not None:
        accumulator.on_room()
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
        block = PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, batch.base), batch.wire_size
        )
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
    if freed > 0 and accumulator.queued and accumulator.on_room is not None:
        accumulator.on_room()
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
            name = data[at : at + length].decode()
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
    route.sticky_bytes = HEADER_SIZE
    if route.available:
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
        AIOKQ_MIX_1 as _MIX_1,
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
        "explicit",
        "filled",
        "index_block",
        "indexes",
        "mark",
        "ordinal_block",
        "ordinals",
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
        at = index.__index__()
        if at < 0:
            at += self.filled
        if not 0 <= at < self.filled:
            raise IndexError("there are not so many deliveries")
        return _delivery_at(self, at)

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
    many.filled = 0
    many.awaited = 0
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
    if many.explicit is not None and at in many.explicit:
        timestamp = many.explicit[at]
    return _delivery(many.batches[many.ordinals[at]], many.indexes[at], timestamp)


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
    plain: cython.bint = many.explicit is None
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


def _bad_partition(route: Route, partition):
    """The error for an explicit partition that the topic does not have."""
    if not isinstance(partition, int):
        return TypeError(f"a partition is an int, not {type(partition).__name__}")
    if partition < 0:
        return ValueError(f"partition {partition}: partitions are numbered from 0")
    return UnknownTopicOrPartition(
        f"topic {route.topic!r} has {route.partitions} partitions, numbered from 0",
        topic_partition=TopicPartition(route.topic, partition),
    )


def _bad_timestamp(timestamp_ms):
    if not isinstance(timestamp_ms, int):
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
        seed: of the choice among partitions for records without a key.
        ignore_keys: partition records with a key like those without one
            (partitioner.ignore.keys).

    Attributes:
        used_bytes: bytes of buffer_memory taken.
        waiting: how many callers queue for room; while there are any, append() refuses.
        loop: the event loop that deliveries are awaited on; set at the first wait.
    """

    __slots__ = (
        "batch_size",
        "block_size",
        "buffer_memory",
        "clock",
        "closed",
        "ignore_keys",
        "last_route",
        "last_topic",
        "loop",
        "max_record_bytes",
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
        seed=0,
        ignore_keys=False,
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
        self.random = seed & (2**64 - 1)
        self.ignore_keys = ignore_keys
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
        """
        if self.queued:
            raise BufferFull("others wait for room in buffer_memory: await enqueue()")
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
            _check_records(self, route, records, partition)
            many = _deliveries(total, _now_ms(self))
        else:
            many = into
        now = many.timestamp  # of the call, as in Java: waiting for room does not change it
        consumed = start
        if self.queued and not waited:
            return many, consumed
        if cython.compiled:
            consumed = _append_each(self, route, records, partition, start, many, now)
        else:
            for n in range(start, total):
                key, value, headers, timestamp = _parts(records[n])
                if timestamp is None:
                    timestamp = now
                if timestamp != many.timestamp:
                    if many.explicit is None:
                        many.explicit = {}
                    many.explicit[n] = timestamp
                try:
                    batch = _place(
                        self, route, value, key, partition, timestamp, headers, -1.0, False
                    )
                except BufferFull:
                    break
                _note(many, batch, batch.count - 1)
                consumed = n + 1
        return many, consumed

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
        route: Route = _find_route(self, topic)
        slot: Slot
        while len(route.slots) < partitions:
            slot = Slot(route.topic, len(route.slots))
            slot.owner = owner_factory(slot)
            route.slots.append(slot)
        route.partitions = partitions
        route.available = tuple(n for n in available if 0 <= n < partitions)
        route.cache = {}
        slot = route.sticky
        if slot is None or (
            slot.partition not in route.available if route.available else slot.partition >= partitions
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
        there: Batch
        moved: cython.Py_ssize_t = 0
        if route is None or route.partitions == 0 or not route.pending:
            return 0
        batches = route.pending
        route.pending = []
        route.pending_slot.batch = None
        for batch in batches:
            if batch.state != OPEN:
                continue
            created = batch.created
            wanted = batch.wanted
            records = batch.records()
            targets = []
            # Their memory is free before they take it again elsewhere: never counted twice.
            self.used -= batch.reserved
            batch.reserved = 0
            for n, (key, value, headers, timestamp) in enumerate(records):
                partition = wanted.get(n) if wanted is not None else None
                if partition is not None and partition >= route.partitions:
                    there = _failed_batch(self, route, partition)
                else:
                    there = _place(
                        self, route, value, key, partition, timestamp, headers, created, True
                    )
                targets.append(_delivery(there, there.count - 1, timestamp))
            batch.forward(targets)
            moved += len(targets)
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
        if freed and self.queued and self.on_room is not None:
            self.on_room()

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
def _checked_timestamp(timestamp_ms: object) -> cython.longlong:
    if not isinstance(timestamp_ms, int) or not 0 <= timestamp_ms <= _MAX_INT64:
        raise _bad_timestamp(timestamp_ms)
    return timestamp_ms


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
    if value is not None and type(value) is not bytes:
        value = _as_bytes(value, "value")
    if key is not None and type(key) is not bytes:
        key = _as_bytes(key, "key")
    if partition is not None:
        if not isinstance(partition, int) or partition < 0:
            raise _bad_partition(route, partition)
        if route.partitions == 0:
            batch = _put_pending(accumulator, route, value, key, timestamp, headers)
            if batch.wanted is None:
                batch.wanted = {}
            batch.wanted[batch.count - 1] = partition
            return batch
        if partition >= route.partitions:
            raise _bad_partition(route, partition)
        slot = route.slots[partition]
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
            slot = route.cache.get(key)
            if slot is None:
                slot = route.slots[partition_for_key(key, route.partitions)]
                if len(route.cache) >= _CACHED_KEYS:
                    route.cache.clear()
                route.cache[key] = slot
    else:
        return _put(
            accumulator, route.sticky, route, value, key, timestamp, headers, created, force
        )
    return _put(accumulator, slot, None, value, key, timestamp, headers, created, force)


_CACHED_KEYS = 16384


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
        accumulator.on_unknown_topic(route.topic)
    return batch


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
    opened: cython.bint = False
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
    if keyless is not None and keyless.sticky_bytes + rest + NUMBERS > accumulator.batch_size:
        slot = _switch(accumulator, keyless, rest)
    batch = slot.batch
    if batch is not None:
        delta = timestamp - batch.base_timestamp
        if cython.compiled:
            body = rest + aiokq_varint_size(delta) + aiokq_varint_size(batch.count)
            need = body + aiokq_varint_size(body)
        else:
            numbers = _VARINT[delta] + _VARINT[batch.count]
            body = rest + len(numbers)
            length = _VARINT[body]
            need = body + len(length)
        if batch.pos + need > batch.capacity and not _grow(accumulator, batch, need, force):
            _check_size(accumulator, rest)
            _close(slot, batch)
            batch = None
    if batch is None:
        batch = _open(accumulator, slot, rest, timestamp, created, force)
        opened = True
        delta = 0
        body = rest + 2
        if cython.compiled:
            need = body + aiokq_varint_size(body)
        else:
            numbers = b"\0\0"
            length = _VARINT[body]
            need = body + len(length)
    if cython.compiled:
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
        batch.block += b"".join((length, b"\0", numbers, tail))
    batch.pos += need
    batch.count += 1
    if timestamp > batch.max_timestamp_ms:
        batch.max_timestamp_ms = timestamp
    if keyless is not None:
        keyless.sticky_bytes += need
    if opened:
        if slot.owner is not None:
            slot.owner.batch_opened(batch)
        if batch.pos >= accumulator.batch_size:
            _close(slot, batch)
    return batch



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

    def _headers_bytes(headers):
        plain = _plain_headers(headers)
        parts = [_VARINT[len(plain)]]
        for name, value in plain:
            encoded = name.encode()
            parts.append(_VARINT[len(encoded)])
            parts.append(encoded)
            if value is None:
                parts.append(b"\x01")
            else:
                parts.append(_VARINT[len(value)])
                parts.append(value)
        return b"".join(parts)


@cython.cfunc
def _switch(accumulator: Accumulator, route: Route, rest: cython.Py_ssize_t) -> Slot:
    """The next partition for records without a key; closes the batch it leaves if that is full."""
    slot: Slot = route.sticky
    batch: Batch = slot.batch
    if batch is not None and batch.pos + rest + NUMBERS > accumulator.batch_size:
        _close(slot, batch)
    return _next_sticky(accumulator, route)


@cython.cfunc
def _close(slot: Slot, batch: Batch) -> object:
    """The batch takes no more records; its owner sends it without waiting for linger."""
    _detach(batch)
    if slot.owner is not None:
        slot.owner.batch_full(batch)
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
def _failed_batch(accumulator: Accumulator, route: Route, partition: object) -> Batch:
    """A batch of one record for a partition that turned out not to exist."""
    batch: Batch = _blank_batch(accumulator, route.topic, -1)
    batch.count = 1
    batch.state = FAILED
    batch.error = _bad_partition(route, partition)
    return batch


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
    if partition is not None and (
        not isinstance(partition, int)
        or partition < 0
        or 0 < route.partitions <= partition
    ):
        raise _bad_partition(route, partition)
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


# ---------------------------------------------------------------- at import

if cython.compiled:
    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
    aiokq_crc32c_setup()
    aiokq_patch_delivery(Delivery, _delivery_slot)
    aiokq_patch_wait(_Wait, _wait_slot)
    aiokq_patch_wait_all(_WaitAll, _wait_all_slot)
else:
    SOURCE_HASH = ""
