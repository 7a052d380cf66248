"""Batch: a memory block of records, its header, its outcome, and its share of buffer_memory.

    batches                     Batch
    slots                       Slot: the open batch of a partition
    memory                      blocks, and a batch's share of buffer_memory
    the end of a batch          outcomes, and callbacks
    decoding of records         for a move or a split

Tests: tests/unit/fastpath/test_batch.py, test_memory.py.
"""

# Hot path, measured by benchmarks/micro/core.py. Functions are long, to avoid calls per record.

from __future__ import annotations

import struct

from aiokq.core.errors import KafkaError

try:
    from aiokq.fastpath import cython_names as cython
except ImportError:  # never raised: `import cython` is only for the Cython compiler
    import cython

if cython.compiled:
    from cython.cimports.aiokq.fastpath.native import (
        AIOKQ_SOURCE_HASH,
        CRC_COVERS,
        HEADER_SIZE,
        Py_REFCNT,
        PyBytes_AS_STRING,
        PyBytes_FromStringAndSize,
        PyBytes_GET_SIZE,
        memcpy,
    )
    from cython.cimports.aiokq.fastpath.produce._accumulator import Accumulator
    from cython.cimports.aiokq.fastpath.produce._deliveries import (
        Deliveries,
        Delivery,
        Wait,
        Wakes,
        forget_counts,
        observe,
        observe_many,
        records_by_batch,
        rejoin,
    )
    from cython.cimports.aiokq.fastpath.produce.states import (
        DELIVERED,
        FAILED,
        MOVED,
        OPEN,
        SEALED,
        WAIT_CALLBACK,
        WAIT_SUSPENDED,
    )

    from aiokq.fastpath._shared import crc32c, read_varint
else:
    from aiokq.fastpath.produce.deliveries import (
        Deliveries,
        Delivery,
        Wait,
        Wakes,
        forget_counts,
        observe,
        observe_many,
        records_by_batch,
        rejoin,
    )
    from aiokq.fastpath.produce.states import (
        DELIVERED,
        FAILED,
        MOVED,
        OPEN,
        SEALED,
        WAIT_CALLBACK,
        WAIT_SUSPENDED,
    )
    from aiokq.fastpath.pure import CRC_COVERS, HEADER_SIZE
    from aiokq.fastpath.shared import crc32c, read_varint

__all__ = ["Batch", "Slot"]


_BEFORE_CRC = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, CRC
_AFTER_CRC = struct.Struct(">hiqqqhii")


# ---------------------------------------------------------------- batches


@cython.final
@cython.cclass
class Batch:
    """A batch of records of one partition, which the accumulator creates and fills.

    Attributes:
        topic: name of the topic.
        partition: number of the partition; -1 while the topic's metadata is unknown.
        slot: the Slot that the batch belongs to.
        count: number of records.
        created: time of the first append, in seconds of the monotonic clock.
        max_timestamp_ms: the largest timestamp of the records.
        error: the error with which the batch failed, or None.
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
        raise TypeError("batches are created by the accumulator")

    @property
    def size(self):
        """The size of the batch before compression, header included, in bytes."""
        return self.pos

    @property
    def sealed(self):
        """Whether seal() was called or the batch is done. A full batch may still be unsealed."""
        return self.state != OPEN

    @property
    def done(self):
        """Whether every record was delivered, has failed, or moved to another batch."""
        return self.state in (DELIVERED, FAILED, MOVED)

    @property
    def waiters(self):
        """The number of waits and done-callbacks for the outcomes of the records."""
        return self.live

    @property
    def awaited(self):
        """Whether there are at least as many waits and done-callbacks as records.

        A wait for a Deliveries object counts once for each of its records in this batch.
        """
        wait: Wait
        many: Deliveries
        if self.many is None:
            return self.live >= self.count
        total: cython.longlong = self.live
        for wait in self.waiting or ():
            if wait.whole and wait.state == WAIT_SUSPENDED:
                total -= 1  # a wait for Deliveries: counted below, once per record
        for many in set(self.many):
            if many.awaited > 0:
                total += records_by_batch(many).get(self, 0)
        return total >= self.count

    @property
    def unobserved(self):
        """The number of failed records whose error no caller has received or awaited.

        A done-callback of the record's Delivery counts as a caller that awaits it.
        """
        if self.state != FAILED:
            return 0
        return self.count - self.observed_count

    @property
    def reserved_bytes(self):
        """The bytes of buffer_memory that the batch holds."""
        return self.reserved

    @property
    def data(self):
        """The bytes of the last stamp(); empty before a stamp(), and when the batch is done."""
        return self.view if self.view is not None else memoryview(b"")

    def payload(self):
        """Return the uncompressed records, read-only, as the input of a codec.

        Raises:
            ValueError: the batch was compressed or is done, so the records are freed.
        """
        if self.block is None or self.codec != 0:
            raise ValueError("the uncompressed records are freed")
        return memoryview(self.block).toreadonly()[HEADER_SIZE : self.pos]

    def seal(self, codec=0, compressed=None):
        """Close the batch to appends; if `compressed` is given, it replaces the records.

        Args:
            codec: Kafka's id of the codec, 0 for none.
            compressed: the compressed payload().

        Raises:
            RuntimeError: the batch is sealed or done already.
            ValueError: a codec without compressed bytes, compressed bytes without a codec, or a
                codec that is not from 0 to 7.
        """
        if self.state != OPEN:
            raise RuntimeError("the batch is already sealed")
        if (codec == 0) != (compressed is None) or not 0 <= codec <= 7:
            raise ValueError("codec must be 1 to 7 with compressed bytes, and 0 without")
        detach(self)
        self.state = SEALED
        self.wire_size = self.pos
        if compressed is not None:
            _replace_records(self, codec, bytes(compressed))

    def stamp(self, producer_id=-1, producer_epoch=-1, base_sequence=-1, *, transactional=False):
        """Return the finished batch with header and checksum; seal it if it is open.

        Stamping again with the same numbers returns the same memory. Other numbers (after an epoch
        bump) change only producer id, epoch, sequence and checksum, in a copy: an earlier request
        may still hold the old bytes.

        Raises:
            RuntimeError: the batch is done.
        """
        if self.state == OPEN:
            self.seal()
        if self.state != SEALED:
            raise RuntimeError("the batch is already completed or failed")
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
        """Complete all records as delivered: free the memory, then wake the waiters.

        Args:
            base_offset: the first record's offset, -1 if unknown (acks=0).
            log_append_time_ms: the timestamp that the broker gave the records, -1 if the records
                keep their own timestamps.

        Returns:
            False if the batch was done before: its outcome does not change.
        """
        if self.state not in (OPEN, SEALED):
            return False
        self.base_offset = base_offset
        self.append_time = log_append_time_ms
        _finish(self, DELIVERED)
        return True

    def fail(self, error):
        """Fail all records: free the memory, then wake the waiters.

        Returns:
            False if the batch was done before: its outcome does not change.
        """
        wait: Wait
        if self.state not in (OPEN, SEALED):
            return False
        self.error = error
        waiting = self.waiting
        many = self.many
        _finish(self, FAILED)
        # The waiters will see the error; flush() need not report it again.
        for wait in waiting or ():
            if wait.state == WAIT_SUSPENDED or wait.state == WAIT_CALLBACK:
                observe(self, wait.delivery.index)
        for deliveries in many or ():
            observe_many(deliveries, self)
        return True

    def forward(self, targets):
        """End the batch, whose records moved: redirect each Delivery to the target at its index.

        Args:
            targets: a Delivery of another batch for each record.

        Raises:
            ValueError: the number of targets is not the number of records.
            RuntimeError: the batch is done.
        """
        wait: Wait
        target: Delivery
        batch: Batch
        moved: list = list(targets)
        if len(moved) != self.count:
            raise ValueError(f"{len(moved)} targets for {self.count} records")
        if self.state not in (OPEN, SEALED):
            raise RuntimeError("the batch is already completed or failed")
        waiting = self.waiting
        many = self.many
        self.waiting = None
        self.targets = moved
        self.live = 0
        _finish(self, MOVED)
        for wait in waiting or ():
            if wait.state == WAIT_SUSPENDED or wait.state == WAIT_CALLBACK:
                rejoin(wait)
        if many is not None:
            for deliveries in many:
                forget_counts(deliveries)
            for target in moved:
                batch = target.batch
                if batch.many is None:
                    batch.many = list(many)
                elif batch.many[len(batch.many) - 1] is not many[len(many) - 1]:
                    batch.many.extend(many)

    def records(self, payload=None):
        """Return a `(key, value, headers, timestamp_ms)` tuple per record, for a move or a split.

        Args:
            payload: the uncompressed records, required if the batch was compressed.

        Raises:
            ValueError: the records are freed, and `payload` is None.
        """
        data: bytes = bytes(self.payload() if payload is None else payload)
        return _decode_records(data, self.count, self.base_timestamp)

    def __len__(self):
        return self.count

    def __repr__(self):
        state = ("open", "sealed", "delivered", "failed", "moved")[self.state]
        return f"<Batch {self.topic}-{self.partition} {self.count} records {state}>"


@cython.cfunc
def blank_batch(accumulator: Accumulator, topic: object, partition: cython.int) -> Batch:
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
def failed_batch(
    accumulator: Accumulator, topic: object, partition: cython.int, error: object
) -> Batch:
    """Return an empty failed batch, for records that fail when their topic's metadata arrives."""
    batch: Batch = blank_batch(accumulator, topic, partition)
    batch.state = FAILED
    batch.error = error
    return batch


# ---------------------------------------------------------------- slots


@cython.final
@cython.cclass
class Slot:
    """The accumulator's entry for one partition, with the open batch.

    Attributes:
        topic: name of the topic.
        partition: number of the partition.
        batch: the open batch, or None.
        owner: the SlotOwner. Its `batch_opened(batch)` is called after the first record of a batch,
            and its `batch_full(batch)` when the accumulator closes a full batch.
    """

    __slots__ = ("batch", "hint", "owner", "partition", "topic")

    def __init__(self, topic, partition, owner=None):
        self.topic = topic
        self.partition = partition
        self.owner = owner
        self.batch = None
        self.hint = 0

    def take_open(self):
        """Remove the open batch from the slot and return it; None if there is none."""
        batch: Batch = self.batch
        if batch is not None:
            detach(batch)
        return batch

    def __repr__(self):
        return f"<Slot {self.topic}-{self.partition}>"


@cython.cfunc
def detach(batch: Batch) -> object:
    """Remove the batch from its slot if it is the slot's open batch."""
    slot: Slot = batch.slot
    if slot.batch is batch:
        slot.batch = None
        slot.hint = batch.pos + (batch.pos >> 2)
    return None


# ---------------------------------------------------------------- memory


@cython.cfunc
def _recycle(batch: Batch) -> object:
    """Free the block, or keep it in the pool.

    The pool keeps up to `pool_limit` blocks that have `block_size` bytes and no other references.
    """
    if cython.compiled:
        accumulator: Accumulator = batch.accumulator
        block = batch.block
        batch.block = None
        batch.base = cython.NULL
        if (
            block is not None
            and PyBytes_GET_SIZE(block) == accumulator.block_size
            and len(accumulator.pool) < accumulator.pool_limit
            and Py_REFCNT(block) == 1
        ):
            accumulator.pool.append(block)
    else:
        batch.block = None
    return None


@cython.cfunc
def set_block(batch: Batch, capacity: cython.Py_ssize_t) -> object:
    """Move the content of the batch to a memory block of `capacity` bytes."""
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
    """Copy the block before a write, because a transport may have a view of the old block."""
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
    """Replace the records with the compressed records, which begin behind the header."""
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
        report_memory_freed(accumulator)
    return None


# ---------------------------------------------------------------- the end of a batch


@cython.cfunc
def _finish(batch: Batch, state: cython.int) -> object:
    """End the batch: free its memory first, so that it is available before any waiter runs."""
    accumulator: Accumulator = batch.accumulator
    waiting = batch.waiting
    live = batch.live
    detach(batch)
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
        report_memory_freed(accumulator)
    if live and state != MOVED:
        accumulator.loop.call_soon(Wakes(accumulator.loop, waiting))
    return None


@cython.cfunc
def report_bug(accumulator: Accumulator, where: object, error: object) -> object:
    """Pass an exception of a callback to `on_bug`; return the error with which the records fail."""
    if accumulator.on_bug is None:
        return error
    try:
        return accumulator.on_bug(where, error)
    except Exception:  # noqa: BLE001  the records need an outcome nevertheless
        return error


@cython.cfunc
def refused_by(batch: Batch, where: object, error: object) -> object:
    """End a batch of one record, because a callback raised `error` for it.

    A KafkaError refuses the record and is raised again. An exception that does not derive from
    Exception, such as KeyboardInterrupt, is raised again, too. Any other exception is a bug: the
    record is accepted and fails.
    """
    if isinstance(error, KafkaError) or not isinstance(error, Exception):
        batch.fail(error)
        raise error
    give_up(batch, where, error)
    return None


@cython.cfunc
def give_up(batch: Batch, where: object, error: object) -> object:
    """Fail a batch because of a bug, and report both the bug and the batch."""
    batch.fail(report_bug(batch.accumulator, where, error))
    notify_refused(batch)
    return None


@cython.cfunc
def notify_refused(batch: Batch) -> object:
    accumulator: Accumulator = batch.accumulator
    if accumulator.on_refused is not None:
        try:
            accumulator.on_refused(batch)
        except Exception as error:  # noqa: BLE001  reported to the owner
            report_bug(accumulator, "on_refused", error)
    return None


@cython.cfunc
def report_memory_freed(accumulator: Accumulator) -> object:
    """Call `on_memory_freed`; an exception must not keep the batch from ending."""
    if accumulator.on_memory_freed is not None:
        try:
            accumulator.on_memory_freed()
        except Exception as error:  # noqa: BLE001  reported to the owner
            report_bug(accumulator, "on_memory_freed", error)
    return None


# ---------------------------------------------------------------- decoding of records


def _decode_records(data, count, base_timestamp):
    """Decode records without checks, because the accumulator encoded them."""
    out = []
    at = 0
    for _ in range(count):
        _, at = read_varint(data, at)
        delta, at = read_varint(data, at + 1)
        _, at = read_varint(data, at)
        fields = []
        for _ in range(2):
            length, at = read_varint(data, at)
            if length < 0:
                fields.append(None)
            else:
                fields.append(data[at : at + length])
                at += length
        names, at = read_varint(data, at)
        headers = []
        for _ in range(names):
            length, at = read_varint(data, at)
            # RecordColumns may have names that are not UTF-8. Such a name must not prevent the move
            # of its record to another batch.
            name = data[at : at + length].decode(errors="replace")
            at += length
            length, at = read_varint(data, at)
            if length < 0:
                headers.append((name, None))
            else:
                headers.append((name, data[at : at + length]))
                at += length
        out.append((fields[0], fields[1], headers, base_timestamp + delta))
    return out


# ---------------------------------------------------------------- module initialization

if cython.compiled:
    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
