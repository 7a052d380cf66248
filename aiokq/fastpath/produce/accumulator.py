"""Accumulator: appends records to the batch of their partition, within buffer_memory.

To follow a record that is sent, start at Accumulator.append.

    the accumulator             Accumulator: append(), append_many(), append_columns(), routes
    placement of records        the route, partition and batch of a record
    encoding of records         into the memory block of the batch
    memory of batches           opening, enlarging and closing a batch
    appends of many records     append_many() and append_columns()

Tests: tests/unit/fastpath/test_accumulator.py, tests/property/test_core_parity.py.
"""

# Hot path, measured by benchmarks/micro/core.py. Functions are long, to avoid calls per record.
# ruff: noqa: SIM108

from __future__ import annotations

import time

from aiokq.core.clock import SystemClock
from aiokq.core.errors import BufferFull, Closed, KafkaError, RecordTooLarge, copy_error
from aiokq.fastpath.produce.refusals import check_topic, no_partition

try:
    from aiokq.fastpath import cython_names as cython
except ImportError:  # never raised: `import cython` is only for the Cython compiler
    import cython

if cython.compiled:
    from cython.cimports.aiokq.fastpath._shared import require_loop
    from cython.cimports.aiokq.fastpath.native import (
        AIOKQ_SOURCE_HASH,
        HEADER_SIZE,
        PyBytes_AS_STRING,
        PyBytes_GET_SIZE,
        PyUnicode_AsUTF8AndSize,
        aiokq_murmur2,
        aiokq_now_ms,
        aiokq_put_varint,
        memcpy,
    )
    from cython.cimports.aiokq.fastpath.native import aiokq_varint_size as varint_size
    from cython.cimports.aiokq.fastpath.produce._arguments import (
        as_bytes,
        check_records,
        checked_partition,
        checked_timestamp,
        plain_headers,
        record_parts,
        size_of_headers,
    )
    from cython.cimports.aiokq.fastpath.produce._batch import (
        Batch,
        Slot,
        blank_batch,
        detach,
        failed_batch,
        give_up,
        notify_refused,
        refused_by,
        report_bug,
        report_memory_freed,
        set_block,
    )
    from cython.cimports.aiokq.fastpath.produce._columns import (
        RecordColumns,
        bit,
        int32_at,
        int64_at,
        row_headers_size,
    )
    from cython.cimports.aiokq.fastpath.produce._deliveries import (
        Deliveries,
        Delivery,
        new_deliveries,
        new_delivery,
        settle,
    )
    from cython.cimports.aiokq.fastpath.produce._routes import Route, next_sticky
    from cython.cimports.aiokq.fastpath.produce.states import (
        MIN_CHUNK,
        NUMBERS,
        OPEN,
        RECORD_OVERHEAD,
    )

    from aiokq.fastpath._shared import NO_GUARD, partition_for_key
else:
    from aiokq.fastpath.produce.arguments import (
        as_bytes,
        check_records,
        checked_partition,
        checked_timestamp,
        headers_bytes,
        plain_headers,
        record_parts,
    )
    from aiokq.fastpath.produce.batch import (
        Batch,
        Slot,
        blank_batch,
        detach,
        failed_batch,
        give_up,
        notify_refused,
        refused_by,
        report_bug,
        report_memory_freed,
        set_block,
    )
    from aiokq.fastpath.produce.columns import (
        RecordColumns,
        bit,
        int32_at,
        int64_at,
        row_headers_size,
    )
    from aiokq.fastpath.produce.deliveries import (
        Deliveries,
        Delivery,
        new_deliveries,
        new_delivery,
        settle,
    )
    from aiokq.fastpath.produce.routes import Route, next_sticky
    from aiokq.fastpath.produce.states import MIN_CHUNK, NUMBERS, OPEN, RECORD_OVERHEAD
    from aiokq.fastpath.pure import DELTA as _DELTA
    from aiokq.fastpath.pure import HEADER_SIZE, varint_size
    from aiokq.fastpath.pure import SMALL as _SMALL
    from aiokq.fastpath.pure import VARINT as _VARINT
    from aiokq.fastpath.shared import NO_GUARD, partition_for_key, require_loop

__all__ = ["Accumulator"]


_MAX_INT32 = 2**31 - 1
_POOLED_BYTES = 4 * 1024 * 1024
_NO_TOPIC = object()


# ---------------------------------------------------------------- the accumulator


@cython.final
@cython.cclass
class Accumulator:
    """Appends records to the open batch of their partition, and counts the bytes of all batches.

    Args:
        batch_size: maximum size of a batch of several records, in bytes. A larger record gets a
            batch of its own.
        buffer_memory: maximum bytes of all batches that are not done. An append that would exceed
            it is refused.
        max_record_bytes: maximum size of a batch with a single record, in bytes (max.request.size).
        clock: the clock for timestamps and the ages of batches. For None and SystemClock, the core
            reads the system's clock itself.
        on_unknown_topic: called with the topic when its first record begins to wait for the
            topic's metadata.
        on_memory_freed: called when a batch has freed memory while `waiting` is above 0.
        on_refused: called with a batch that failed in the core because of a bug, or because the
            topic does not have the requested partition.
        on_bug: called with the name of the callback or step that raised an exception because of a
            bug, and with the exception; returns the error with which the records concerned fail.
            Without `on_bug`, they fail with the exception itself.
        choose: called with a topic when the partition for records without a key changes; returns
            the new partition, or -1 for a random choice among the available partitions.
        seed: seed of the random choice of a partition for records without a key.
        ignore_keys: whether to partition records with a key like records without a key
            (partitioner.ignore.keys).
        guard: guard of the loop on which records must be appended and deliveries awaited; any
            loop by default.

    Attributes:
        used_bytes: bytes of buffer_memory in use.
        waiting: number of calls that wait for memory. While it is above 0, append() refuses
            records.
        refusal: the error with which records are refused, see `refuse`; None if they are accepted.
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
        "on_memory_freed",
        "on_refused",
        "on_unknown_topic",
        "pool",
        "pool_limit",
        "queued",
        "random",
        "refusal",
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
        on_memory_freed=None,
        on_refused=None,
        on_bug=None,
        choose=None,
        seed=0,
        ignore_keys=False,
        guard=None,
    ):
        if batch_size < 0 or buffer_memory <= 0 or max_record_bytes <= 0:
            raise ValueError("batch_size, buffer_memory and max_record_bytes are sizes in bytes")
        # max_record_bytes is limited by buffer_memory and by int32, Kafka's type of sizes, so that
        # one comparison checks all three limits. No batch is larger than max_record_bytes.
        self.max_record_bytes = min(max_record_bytes, buffer_memory, _MAX_INT32 - 64)
        self.batch_size = min(max(batch_size, HEADER_SIZE + 1), self.max_record_bytes)
        self.buffer_memory = buffer_memory
        self.clock = None if clock is None or type(clock) is SystemClock else clock
        self.on_unknown_topic = on_unknown_topic
        self.on_memory_freed = on_memory_freed
        self.on_refused = on_refused
        self.on_bug = on_bug
        self.choose = choose
        self.random = seed & (2**64 - 1)
        self.ignore_keys = ignore_keys
        self.guard = NO_GUARD if guard is None else guard
        self.routes = {}
        self.last_topic = _NO_TOPIC
        self.last_route = None
        self.loop = None
        self.used = 0
        self.queued = 0
        self.closed = False
        self.refusal = None
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

    def has_memory(self, size):
        """Return whether buffer_memory has space for a new batch with a record of `size` bytes.

        `size` counts key, value and headers. Calls that already wait for memory (the attribute
        `waiting`) are not considered.
        """
        return self.used + HEADER_SIZE + RECORD_OVERHEAD + size <= self.buffer_memory

    def append(self, topic, value, key=None, partition=None, timestamp_ms=None, headers=None):
        """Append a record. In a producer without hooks, this method is `producer.send_nowait`.

        Args:
            topic: the topic's name.
            value: the record's value, copied; None is a tombstone.
            key: determines the partition, as in Java's client. Records without a key go to one
                partition until batch_size bytes of them were appended, then to another.
            partition: number of the partition; overrides the key.
            timestamp_ms: milliseconds since 1970; the time of the call by default.
            headers: (name, value) pairs.

        Returns:
            The record's Delivery.

        Raises:
            BufferFull: buffer_memory has no space for the record, or other calls wait for memory.
            RecordTooLarge: no batch can hold the record.
            UnknownTopicOrPartition: the topic has no such partition.
            InvalidTopic: `topic` is not a valid topic name.
            Closed: the accumulator was closed.
            KafkaError: the error passed to `refuse`.
            TypeError: a topic that is not str, a key or value that is not bytes-like, a number
                that is not an int, or headers that are not pairs.
            ValueError: a partition or timestamp that is negative or too large.
            others: the error of the guard's check, or a KafkaError with which a callback refused
                the record.
        """
        require_loop(self.guard)
        if self.queued:
            _check_accepts(self)
            raise BufferFull("other calls wait for buffer_memory: await enqueue()")
        if not cython.compiled and topic is self.last_topic and partition is None:
            if timestamp_ms is not None:
                timestamp = checked_timestamp(timestamp_ms)
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
        """Append a record for a caller that has waited for memory and was granted it.

        Unlike append(), this method checks neither the guard nor whether other calls wait for
        memory. It raises BufferFull only if the memory does not suffice.
        """
        return _append(self, topic, value, key, partition, timestamp_ms, headers)

    def append_many(self, topic, records, partition=None, *, start=0, into=None, waited=False):
        """Append records until memory runs out.

        Args:
            topic: the topic's name.
            records: a list or tuple of `(key, value)`, `(key, value, headers)` or
                `(key, value, headers, timestamp_ms)`.
            partition: the partition of all records; None to choose it per record.
            start: index of the first record to append.
            into: the Deliveries of an earlier call with the same `records`.
            waited: whether memory was granted to this call. If not, nothing is appended while other
                calls wait for memory.

        Returns:
            The Deliveries and the index of the first record not accepted; `len(records)` if all
            were accepted.

        Raises:
            The errors of append(), except BufferFull and those of the guard. The first call finds
                an invalid record before it accepts any record.
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
                raise ValueError("`start` requires `into`")
            check_records(records, partition, route, route.partitions, self.max_record_bytes)
            many = new_deliveries(total, now_ms(self))
        else:
            many = into
            if not 0 <= start <= total or total - start > many.capacity - many.filled:
                raise ValueError("`start` and `records` do not continue the previous call")
        now = many.timestamp  # time of the call, as in Java: waiting for memory does not change it
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
                    key, value, headers, timestamp = record_parts(record)
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
        """Append the rows of columns until memory runs out.

        Args:
            topic: the topic's name.
            columns: RecordColumns.
            start: index of the first row to append.
            into: the Deliveries of an earlier call with the same `columns`.
            waited: whether memory was granted to this call. If not, nothing is appended while other
                calls wait for memory.

        Returns:
            The Deliveries and the index of the first row not accepted; `len(columns)` if all were
            accepted.

        Raises:
            The errors of append(), except BufferFull and those of the guard. The first call finds
                an invalid row before it accepts any row.
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
                raise ValueError("`start` requires `into`")
            if 0 < route.partitions <= rows.top_partition:
                raise no_partition(route, rows.top_partition)
            if HEADER_SIZE + RECORD_OVERHEAD + rows.largest_size > self.max_record_bytes:
                raise RecordTooLarge(
                    f"record {rows.largest} has {rows.largest_size} bytes, more than the "
                    f"{self.max_record_bytes} that max_request_size and buffer_memory allow"
                )
            many = new_deliveries(rows.count, now_ms(self))
            many.time_bits = rows.time_bits
            many.times = rows.times
        else:
            many = into
            if not 0 <= n <= rows.count or rows.count - n > many.capacity - many.filled:
                raise ValueError("`start` and `columns` do not continue the previous call")
        if self.queued and not waited:
            return many, n
        try:
            while n < rows.count:
                batch = _place_row(self, route, rows, n, many.timestamp)
                _note(many, batch, batch.count - 1)
                n += 1
        except BufferFull:
            pass  # the caller waits for memory and continues at n
        return many, n

    def route(self, topic):
        return self.routes.get(topic)

    def set_route(self, topic, partitions, available, owner_factory):
        """Set the topic's partitions, and return its Route.

        Called when the partitions become known, grow in number, or change leaders.

        Records that waited for the metadata are appended to their partitions, in order.

        Args:
            topic: the topic.
            partitions: number of partitions.
            available: the partitions that have a leader.
            owner_factory: called with each new Slot; returns the owner of the slot.

        Raises:
            ValueError: `partitions` is not positive.
            Closed: the accumulator was closed, and the topic has no Route yet.
        """
        if partitions <= 0:
            raise ValueError("a topic has at least one partition")
        # After close(), this call is allowed only for a topic that has a Route, because the records
        # that wait for the topic must be delivered.
        route: Route = self.routes.get(topic)
        slot: Slot
        if route is None:
            if self.closed:
                raise Closed("the producer is closed")
            route = _new_route(self, topic)
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
            next_sticky(self, route)
        self.resolve_pending(topic)
        return route

    def forget_route(self, topic):
        """Forget the topic's metadata, so that new records wait until set_route() is called again.

        Open batches stay in the slots of their partitions.
        """
        route: Route = self.routes.get(topic)
        if route is not None:
            route.partitions = 0
            route.available = ()
            route.sticky = None
            route.cache = {}

    def pending(self, topic):
        """Return the batches of records that wait for the topic's metadata, oldest first."""
        route: Route = self.routes.get(topic)
        return tuple(route.pending) if route is not None else ()

    def resolve_pending(self, topic):
        """Append the records that waited for the topic's metadata; return their number.

        The records may exceed buffer_memory, because they were accepted already. The number
        includes records that failed because the topic does not have their partition.
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
            except Exception as error:  # noqa: BLE001  reported to the owner
                # The error ends only this batch: the loop moves the other batches.
                give_up(batch, "resolve_pending", error)
            else:
                moved += batch.count
        return moved

    def fail_pending(self, topic, error):
        """Fail the records that wait for the topic's metadata; return their number."""
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
        """Return a new batch of `records`. It does not become the open batch of `slot`.

        The batch may exceed buffer_memory.

        Args:
            slot: the Slot that provides topic and partition of the batch.
            records: `(key, value, headers, timestamp_ms)` tuples.
            created: monotonic seconds of the first append; the time of the call by default.

        Returns:
            The batch and a Delivery per record.

        Raises:
            RecordTooLarge: the records do not fit into one batch.
            ValueError: there are no records.
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
                    raise RecordTooLarge(
                        f"these records do not fit into a batch of {self.max_record_bytes} bytes"
                    )
                deliveries.append(new_delivery(batch, batch.count - 1, timestamp))
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

    def release(self, batch):
        """Subtract the bytes of a batch from `used_bytes` before the batch is done.

        Calls `on_memory_freed` if calls wait for memory.
        """
        held: Batch = batch
        freed = held.reserved
        held.reserved = 0
        self.used -= freed
        if freed and self.queued:
            report_memory_freed(self)

    def refuse(self, error):
        """Refuse further records with copies of `error`; accept records if `error` is None."""
        self.refusal = error
        self.last_topic = _NO_TOPIC  # so that append() looks the route up, and finds the error

    def check_accepts(self):
        """Raise the error with which a record would be refused now; do nothing if there is none."""
        _check_accepts(self)

    def close(self):
        """Refuse further records; accepted records stay until their batch is done."""
        self.closed = True
        self.last_topic = _NO_TOPIC


@cython.cfunc
@cython.inline
def now_ms(accumulator: Accumulator) -> cython.longlong:
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


# ---------------------------------------------------------------- placement of records


@cython.cfunc
def _check_accepts(accumulator: Accumulator):
    if accumulator.closed:
        raise Closed("the producer is closed")
    if accumulator.refusal is not None:
        raise copy_error(accumulator.refusal)


@cython.cfunc
def _new_route(accumulator: Accumulator, topic: object) -> Route:
    """Return the route of a topic that is new, or whose name is of a subclass of str."""
    check_topic(topic)
    name: str = str(topic)
    route: Route = accumulator.routes.get(name)
    if route is None:
        route = Route(name, accumulator)
        accumulator.routes[name] = route
    return route


@cython.cfunc
def _find_route(accumulator: Accumulator, topic: object) -> Route:
    """Return the topic's route, created if necessary, and cache it for the next call."""
    _check_accepts(accumulator)
    route: Route
    found = accumulator.routes.get(topic) if type(topic) is str else None
    if found is None:
        route = _new_route(accumulator, topic)
        topic = route.topic
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
        timestamp = now_ms(accumulator)
    else:
        timestamp = checked_timestamp(timestamp_ms)
    batch = _place(accumulator, route, value, key, partition, timestamp, headers, -1.0, False)
    return new_delivery(batch, batch.count - 1, timestamp)


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
    """Append a record to the open batch of its partition; return that batch."""
    slot: Slot
    batch: Batch
    at: cython.Py_ssize_t
    number: cython.Py_ssize_t
    if value is not None and type(value) is not bytes:
        value = as_bytes(value, "value")
    if key is not None and type(key) is not bytes:
        key = as_bytes(key, "key")
    if partition is not None:
        number = checked_partition(partition)
        if route.partitions == 0:
            batch = _put_pending(accumulator, route, value, key, timestamp, headers)
            if batch.wanted is None:
                batch.wanted = {}
            batch.wanted[batch.count - 1] = number
            return batch
        if number >= route.partitions:
            raise no_partition(route, partition)
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
"""Maximum number of keys per topic whose partition the pure core caches."""


if not cython.compiled:

    def _put_plain(accumulator, route, value, key, timestamp, headers):
        """Combine _place() and _put() for the common case: bytes that fit into an open batch.

        Returns the batch, or None to leave the record to _place().
        """
        if type(value) is not bytes:
            return None
        if headers is not None and type(headers) is not list and type(headers) is not tuple:
            return None  # a generator can be read only once: leave it to _place()
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
        heads = headers_bytes(headers) if headers else b"\0"
        tail = b"".join((_DELTA[delta], _SMALL[count], encoded, _SMALL[size], value, heads))
        if len(tail) >= 8192:
            return None
        record = _SMALL[len(tail)] + tail
        need = len(record)
        if batch.pos + need > batch.capacity:
            return None
        if keyless:
            # The same check as in _batch_for(). NUMBERS is the largest size of the varints of
            # length and deltas.
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
        except BaseException as error:  # noqa: BLE001  raised, or reported to the owner
            # The callback has not requested the metadata, so the next record must call it again.
            route.pending = []
            refused_by(batch, "on_unknown_topic", error)
    return batch


@cython.cfunc
def _move_pending(accumulator: Accumulator, route: Route, batch: Batch) -> object:
    """Append the records of a batch to their partitions, now that the topic's metadata is known.

    Afterwards, each record has an outcome or is in a batch that will have one.
    """
    there: Batch
    # Decoding comes first: if it raises, the batch is unchanged, and resolve_pending() fails it.
    records = batch.records()
    wanted = batch.wanted
    created = batch.created
    refused = {}
    targets = []
    # The batch's own memory is not counted while its records take memory in other batches, so that
    # no record is counted twice. It is counted again before the batch ends, which frees it.
    lent = batch.reserved
    accumulator.used -= lent
    try:
        for n, (key, value, headers, timestamp) in enumerate(records):
            partition = wanted.get(n) if wanted is not None else None
            if partition is not None and partition >= route.partitions:
                error = no_partition(route, partition)
                there = _refused_one(accumulator, refused, partition, route, partition, error)
            else:
                try:
                    there = _place(
                        accumulator, route, value, key, partition, timestamp, headers, created, True
                    )
                except Exception as failure:  # noqa: BLE001  reported to the owner
                    error = failure
                    if not isinstance(error, KafkaError):
                        error = report_bug(accumulator, "resolve_pending", error)
                    there = _refused_one(
                        accumulator, refused, type(failure), route, partition, error
                    )
            targets.append(new_delivery(there, there.count - 1, timestamp))
    finally:
        accumulator.used += lent
    batch.forward(targets)
    for there in refused.values():
        notify_refused(there)
    return None


@cython.cfunc
def _refused_one(
    accumulator: Accumulator,
    refused: dict,
    why: object,
    route: Route,
    partition: object,
    error: object,
) -> Batch:
    """Add a record to the failed batch of all records that are refused for the same reason."""
    batch: Batch = refused.get(why)
    if batch is None:
        batch = failed_batch(
            accumulator, route.topic, -1 if partition is None else partition, error
        )
        refused[why] = batch
    batch.count += 1
    return batch


# ---------------------------------------------------------------- encoding of records


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
    """Encode a record into the slot's open batch, or into a new batch if the open batch is full.

    If `slot` was chosen as the sticky partition, `keyless` is the topic's Route, and the sticky
    partition may change before the record is encoded. Otherwise `keyless` is None.
    """
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
            headers_size = size_of_headers(headers)
            if headers_size < 0:
                headers = plain_headers(headers)
                headers_size = size_of_headers(headers)
        rest = 1 + headers_size + varint_size(key_size) + varint_size(value_size)
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
                headers_bytes(headers) if headers else b"\0",
            )
        )
        rest = 1 + len(tail)
    batch = _batch_for(accumulator, slot, keyless, rest, timestamp, created, force)
    delta = timestamp - batch.base_timestamp
    if cython.compiled:
        body = rest + varint_size(delta) + varint_size(batch.count)
        need = body + varint_size(body)
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
def _added(
    accumulator: Accumulator,
    batch: Batch,
    keyless: Route | None,
    need: cython.Py_ssize_t,
    timestamp: cython.longlong,
) -> object:
    """Count a record of `need` bytes that was written into the batch."""
    batch.pos += need
    batch.count += 1
    if timestamp > batch.max_timestamp_ms:
        batch.max_timestamp_ms = timestamp
    if keyless is not None:
        keyless.sticky_bytes += need
    if batch.count == 1:
        _begun(accumulator, batch)
    return None


@cython.cfunc
def _begun(accumulator: Accumulator, batch: Batch) -> object:
    """Report a batch's first record to its owner; close the batch if that record fills it.

    A separate function, because _added() is only inlined if it is short.
    """
    if batch.slot.owner is not None:
        try:
            batch.slot.owner.batch_opened(batch)
        except BaseException as error:  # noqa: BLE001  raised, or reported to the owner
            refused_by(batch, "batch_opened", error)
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
    """Append a row of columns, as _place() appends a record.

    The compiled core creates no Python objects for the row if the topic's metadata is known.
    """
    if cython.compiled and route.partitions:
        slot: Slot
        first: cython.Py_ssize_t
        if columns.partitions is not None and bit(columns.partition_bits, n):
            first = int32_at(columns.partitions, n)
            if first >= route.partitions:
                raise no_partition(route, first)
            slot = route.slots[first]
            return _put_row(accumulator, slot, None, columns, n, now, False)
        if columns.keys is not None and bit(columns.key_bits, n) and not accumulator.ignore_keys:
            first = int32_at(columns.key_offsets, n)
            first = (
                aiokq_murmur2(
                    columns.keys.base + first, int32_at(columns.key_offsets, n + 1) - first
                )
                & 0x7FFFFFFF
            ) % cython.cast(cython.uint, route.partitions)
            slot = route.slots[first]
            return _put_row(accumulator, slot, None, columns, n, now, False)
        return _put_row(accumulator, route.sticky, route, columns, n, now, False)
    key_, value_, headers, time_ms, partition = columns.record(n)
    if time_ms is None:
        time_ms = now
    if not cython.compiled and partition is None:
        there = _put_plain(accumulator, route, value_, key_, time_ms, headers)
        if there is not None:
            return there
    return _place(accumulator, route, value_, key_, partition, time_ms, headers, -1.0, False)


@cython.cfunc
@cython.inline
def _put_row(
    accumulator: Accumulator,
    slot: Slot,
    keyless: Route | None,
    columns: RecordColumns,
    n: cython.Py_ssize_t,
    now: cython.longlong,
    force: cython.bint,
) -> Batch:
    """Encode a row of columns into a batch of the slot, as _put() encodes a record."""
    if cython.compiled:
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
        if columns.keys is not None and bit(columns.key_bits, n):
            first = int32_at(columns.key_offsets, n)
            key = columns.keys.base + first
            key_size = int32_at(columns.key_offsets, n + 1) - first
        if bit(columns.value_bits, n):
            first = int32_at(columns.value_offsets, n)
            value = columns.values.base + first
            value_size = int32_at(columns.value_offsets, n + 1) - first
        if columns.row_offsets is not None and bit(columns.row_bits, n):
            headers_size = row_headers_size(columns, n)
        if columns.times is not None and bit(columns.time_bits, n):
            timestamp = int64_at(columns.times, n) // 1000
        rest = 1 + headers_size + varint_size(key_size) + varint_size(value_size)
        rest += max(key_size, 0) + max(value_size, 0)
        batch = _batch_for(accumulator, slot, keyless, rest, timestamp, -1.0, force)
        body = rest + varint_size(timestamp - batch.base_timestamp)
        body += varint_size(batch.count)
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
        _added(accumulator, batch, keyless, body + varint_size(body), timestamp)
        return batch
    else:
        key, value, headers, time_ms, _ = columns.record(n)
        if time_ms is None:
            time_ms = now
        return _put(accumulator, slot, keyless, value, key, time_ms, headers, -1.0, force)


@cython.cfunc
def _put_row_headers(at: cython.p_uchar, columns: RecordColumns, n: cython.Py_ssize_t) -> object:
    if cython.compiled:
        item: cython.Py_ssize_t
        start: cython.Py_ssize_t
        length: cython.Py_ssize_t
        first: cython.Py_ssize_t = int32_at(columns.row_offsets, n)
        end: cython.Py_ssize_t = int32_at(columns.row_offsets, n + 1)
        at = aiokq_put_varint(at, end - first)
        for item in range(first, end):
            start = int32_at(columns.name_offsets, item)
            length = int32_at(columns.name_offsets, item + 1) - start
            at = aiokq_put_varint(at, length)
            memcpy(at, columns.names.base + start, length)
            at += length
            if bit(columns.text_bits, item):
                start = int32_at(columns.text_offsets, item)
                length = int32_at(columns.text_offsets, item + 1) - start
                at = aiokq_put_varint(at, length)
                memcpy(at, columns.texts.base + start, length)
                at += length
            else:
                at[0] = 1
                at += 1
    return None


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


# ---------------------------------------------------------------- memory of batches


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
    """Return a batch with memory for the record: the open batch of the slot, or a new one.

    An open batch without space for the record is closed. If `keyless` is not None, the sticky
    partition may change.

    `rest` is the size of the record without the varints of its length, timestamp delta and offset
    delta. `timestamp` becomes the base timestamp of a new batch, and `created` its creation time in
    seconds of the monotonic clock; the current time if `created` is negative.

    Raises:
        BufferFull: `force` is false and buffer_memory does not suffice.
        RecordTooLarge: no batch can hold the record.
    """
    batch: Batch
    body: cython.Py_ssize_t
    need: cython.Py_ssize_t
    delta: cython.longlong
    if keyless is not None and keyless.sticky_bytes + rest + NUMBERS > accumulator.batch_size:
        slot = _switch(accumulator, keyless, rest)
    batch = slot.batch
    if batch is not None:
        delta = timestamp - batch.base_timestamp
        body = rest + varint_size(delta) + varint_size(batch.count)
        need = body + varint_size(body)
        if batch.pos + need <= batch.capacity or _grow(accumulator, batch, need, force):
            return batch
        _check_size(accumulator, rest)
        _close(slot, batch)
    return _open(accumulator, slot, rest, timestamp, created, force)


@cython.cfunc
def _switch(accumulator: Accumulator, route: Route, rest: cython.Py_ssize_t) -> Slot:
    """Choose the next partition for records without a key.

    Closes the open batch of the previous partition if it has no space for the record.
    """
    slot: Slot = route.sticky
    batch: Batch = slot.batch
    # The size is checked first, because a record that is refused must not close a batch.
    _check_size(accumulator, rest)
    if batch is not None and batch.pos + rest + NUMBERS > accumulator.batch_size:
        _close(slot, batch)
    return next_sticky(accumulator, route)


@cython.cfunc
def _close(slot: Slot, batch: Batch) -> object:
    """Close a batch to appends; its owner sends it without lingering."""
    detach(batch)
    if slot.owner is not None:
        try:
            slot.owner.batch_full(batch)
        except Exception as error:  # noqa: BLE001  reported to the owner
            # The batch's records were accepted already, so they fail. The error is not raised,
            # because it does not concern the record that is being appended.
            give_up(batch, "batch_full", error)
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
    """Make space for `need` bytes in a batch; return False if the batch would exceed batch_size.

    Raises:
        BufferFull: `force` is false and buffer_memory does not suffice.
    """
    wanted: cython.Py_ssize_t = batch.pos + need
    capacity: cython.Py_ssize_t
    free: cython.Py_ssize_t
    if wanted > accumulator.batch_size:
        return False
    capacity = min(max(2 * batch.capacity, wanted), accumulator.batch_size)
    free = accumulator.buffer_memory - accumulator.used
    if capacity - batch.capacity > free:
        # Too little memory is free to double the batch: enlarge it by at most MIN_CHUNK, or by as
        # much as the record needs.
        capacity = min(max(wanted, batch.capacity + min(free, MIN_CHUNK)), accumulator.batch_size)
        if capacity - batch.capacity > free and not force:
            raise BufferFull
    accumulator.used += capacity - batch.capacity
    batch.reserved += capacity - batch.capacity
    set_block(batch, capacity)
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
    """Open a batch in the slot, with memory for the first record at least.

    If enough memory is free, or if `force` is true, the size of the slot's last batch determines
    the size of the block. Otherwise the block has memory for the first record only.

    Raises:
        RecordTooLarge: no batch can hold the record.
        BufferFull: `force` is false and buffer_memory does not suffice.
    """
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
    batch: Batch = blank_batch(accumulator, slot.topic, slot.partition)
    batch.slot = slot
    batch.created = _monotonic(accumulator) if created < 0 else created
    batch.base_timestamp = timestamp
    batch.max_timestamp_ms = timestamp
    accumulator.used += capacity
    batch.reserved = capacity
    set_block(batch, capacity)
    slot.batch = batch
    return batch


# ---------------------------------------------------------------- appends of many records


@cython.cfunc
def put_apart(
    accumulator: Accumulator,
    slot: Slot,
    value: object,
    key: object,
    timestamp: cython.longlong,
    headers: object,
) -> Batch:
    """Encode a record for building.py, even if buffer_memory is exceeded; return its batch."""
    return _put(accumulator, slot, None, value, key, timestamp, headers, -1.0, True)


@cython.cfunc
def put_row_apart(
    accumulator: Accumulator,
    slot: Slot,
    columns: RecordColumns,
    n: cython.Py_ssize_t,
    now: cython.longlong,
) -> Batch:
    """Encode a row for building.py, even if buffer_memory is exceeded; return its batch."""
    return _put_row(accumulator, slot, None, columns, n, now, True)


@cython.cfunc
def append_noted(
    accumulator: Accumulator,
    topic: object,
    value: object,
    key: object,
    partition: object,
    timestamp: cython.longlong,
    headers: object,
    many: Deliveries,
) -> object:
    """Append a record, and store its delivery as the next delivery of `many`.

    Like append_waited(), this function checks neither the guard nor whether calls wait for memory.
    """
    route: Route
    batch: Batch
    if topic is accumulator.last_topic:
        route = accumulator.last_route
    else:
        route = _find_route(accumulator, topic)
    if not cython.compiled and partition is None:
        batch = _put_plain(accumulator, route, value, key, timestamp, headers)
        if batch is not None:
            _note(many, batch, batch.count - 1)
            return None
    batch = _place(accumulator, route, value, key, partition, timestamp, headers, -1.0, False)
    _note(many, batch, batch.count - 1)
    return None


@cython.cfunc
def note_delivery(many: Deliveries, delivery: Delivery) -> object:
    """Store a delivery as the next delivery of `many`."""
    batch: Batch = settle(delivery)
    _note(many, batch, delivery.index)
    return None


@cython.cfunc
@cython.inline
def _note(many: Deliveries, batch: Batch, index: cython.uint) -> object:
    """Store in `many` that its next record is record `index` of `batch`."""
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
                    timestamp = checked_timestamp(record[3])
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
        pass  # the caller waits for memory and continues at n
    return n


# ---------------------------------------------------------------- module initialization

if cython.compiled:
    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
