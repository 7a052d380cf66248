"""Cursor: iterates over the records of fetched bytes, in order.

To follow the reading of a record, start at Cursor.__next__.

    records                     Record
    the cursor                  Cursor
    batches                     opening, checking, decompressing and leaving a batch
    decoding of records         the records of the open batch

Tests: tests/unit/fastpath/test_cursor.py, tests/property/test_core_parity.py.
"""

# Hot path, measured by benchmarks/micro/core.py. Functions are long, to avoid calls per record.

from __future__ import annotations

import struct

from aiokq.core.errors import CorruptRecord, copy_error
from aiokq.core.types import TopicPartition

try:
    from aiokq.fastpath import cython_names as cython
except ImportError:  # never raised: `import cython` is only for the Cython compiler
    import cython

if cython.compiled:
    from cython.cimports.aiokq.fastpath.checksums import aiokq_crc32c, aiokq_crc32c_setup
    from cython.cimports.aiokq.fastpath.consume._columns import columns_of
    from cython.cimports.aiokq.fastpath.native import (
        AIOKQ_SOURCE_HASH,
        CRC_COVERS,
        HEADER_SIZE,
        Py_buffer,
        PyBUF_SIMPLE,
        PyBuffer_Release,
        PyBytes_AS_STRING,
        PyBytes_FromStringAndSize,
        PyBytes_GET_SIZE,
        PyMem_Free,
        PyMem_Malloc,
        PyObject_GetBuffer,
        PyUnicode_DecodeUTF8,
        aiokq_add,
        aiokq_i16,
        aiokq_i32,
        aiokq_i64,
        aiokq_u32,
        int64_t,
    )
    from cython.cimports.aiokq.fastpath.records import (
        aiokq_parse_header,
        aiokq_parse_record,
        aiokq_record,
    )

    from aiokq.fastpath._shared import int_of, read_varint
else:
    from aiokq.fastpath.consume import pure
    from aiokq.fastpath.pure import CRC_COVERS, HEADER_SIZE
    from aiokq.fastpath.pure import crc32c as _crc32c
    from aiokq.fastpath.shared import int_of, read_varint

__all__ = ["Cursor", "Record"]


_MAX_INT64 = 2**63 - 1
_BATCH = struct.Struct(">qiibIhiqqqhii")


if cython.compiled:
    from cython.cimports.aiokq.fastpath.native import AIOKQ_TOP_OFFSET as _TOP_OFFSET
else:
    _TOP_OFFSET = 2**63 - 2**32 - 1


# ---------------------------------------------------------------- records


@cython.final
@cython.no_gc
@cython.freelist(1024)
@cython.cclass
class Record:
    """A record as received.

    Attributes:
        topic: the topic.
        partition: the partition number.
        offset: the offset in the partition.
        timestamp_ms: milliseconds since 1970; -1 if the record has no timestamp.
        timestamp_type: 0 if the producer set the timestamp (CreateTime), 1 if the log set it
            (LogAppendTime), -1 if there is none (NoTimestampType, in records of format 0).
        key: bytes or None.
        value: bytes; None for a tombstone.
        headers: (name, value) pairs; () if there are none.
        leader_epoch: leader epoch of the record's batch; -1 if unknown.
    """

    # Records are not tracked by the garbage collector: strings, bytes and numbers form no cycles.
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
        self.partition = int_of(partition, "partition", 32)
        self.offset = int_of(offset, "offset", 64)
        self.timestamp_ms = int_of(timestamp_ms, "timestamp_ms", 64)
        self.timestamp_type = int_of(timestamp_type, "timestamp_type", 32)
        self.key = key
        self.value = value
        self.headers = tuple(headers)
        self.leader_epoch = int_of(leader_epoch, "leader_epoch", 32)

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
    """Return the repr of a payload, truncated so that a logged record stays short."""
    if data is None or len(data) <= _SHORT:
        return repr(data)
    return f"{data[:_SHORT]!r}+{len(data) - _SHORT}"


_SHORT = 32


# ---------------------------------------------------------------- the cursor


@cython.final
@cython.cclass
class Cursor:
    """An iterator over the records of one partition's fetched bytes, in order.

    Batches are checked and decompressed when they are reached, and records are created when
    requested. Keys and values are copies: no record keeps the fetched bytes alive. Control batches
    are skipped, and with read_committed also aborted records. A truncated last batch is ignored.

    Args:
        topic: the topic.
        partition: the partition number.
        data: batches as the broker sent them.
        start_offset: the first offset to return; a batch may begin before it.
        stop_offset: the offset at which to stop; None for the end of the data.
        codecs: decompresses and converts batches.
        check_crcs: whether to verify the CRC-32C of each batch.
        aborted: (producer_id, first_offset) pairs of aborted transactions, for read_committed; None
            to return the records of aborted transactions, too.
        max_batch_bytes: the maximum decompressed size of a batch.

    Attributes:
        position: offset of the next record; changes when a record is returned or skipped.
        handed: the number of returned records.
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
                raise RuntimeError("the cursor is already initialized")
            # The Py_buffer is allocated separately, which hides its reference from the garbage
            # collector. Otherwise the collector would clear the memoryview of a cursor that a
            # traceback refers to, and CPython cannot release the buffer of a cleared memoryview.
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
        """Bytes of the batches that are not opened yet, including a truncated last batch."""
        return self.size - self.at

    @property
    def partial_batch_bytes(self):
        """Full size of the truncated last batch in bytes; 17 if unknown.

        The value is 0 before the cursor reaches that batch, and if no batch is truncated.
        """
        return self.partial

    @property
    def exhausted(self):
        """Whether the cursor has reached the end of the data or the stop offset."""
        return self.ended

    @property
    def raised(self):
        """The error that was raised for the open or the next batch; None if none was raised.

        Until this batch is skipped, iteration is at its end, and other methods raise the error
        again.
        """
        return None if self.deferred else self.error

    @property
    def last_handed_offset(self):
        """Offset of the last returned record; -1 before the first record."""
        return self.last_offset

    @property
    def leader_epoch(self):
        """Leader epoch of the last returned record; -1 if unknown."""
        return self.last_epoch

    def __iter__(self):
        return self

    def __next__(self):
        if not cython.compiled and len(self.ready) > 1:
            return pop_ready(self)
        if self.error is not None and not self.deferred:
            raise StopIteration  # the iterator ended when it raised the error
        record = next_record(self)
        if record is None:
            raise StopIteration
        return record

    def next_batch(self):
        """Return the remaining records of the open batch, or else the records of the next batch.

        Returns:
            A list; [] at the end.

        Raises:
            CorruptRecord: the next record or batch is corrupt. Records before it are returned by an
                earlier call.
        """
        if self.remaining == 0 and not open_next(self):
            return []
        return take_records(self, self.remaining)

    def take(self, limit):
        """Return at most `limit` records as a list; [] at the end.

        Raises:
            CorruptRecord: the next record or batch is corrupt. Records before it are returned by an
                earlier call.
        """
        out: list = []
        while len(out) < limit:
            try:
                if self.remaining == 0 and not open_next(self):
                    break
                out += take_records(self, limit - len(out))
            except CorruptRecord:
                if out:
                    self.deferred = True  # the next call raises the error
                    break
                raise
        return out

    def more(self):
        """Return whether there is another record; open the next batch if necessary.

        Raises:
            CorruptRecord: the next record or batch is corrupt.
        """
        if self.remaining == 0 and not open_next(self):
            return False
        return next_record(_fork(self, self.stop)) is not None

    def fork(self, stop_offset=None):
        """Return another cursor at the same position; both cursors use the open batch's bytes.

        Args:
            stop_offset: the offset at which to stop, if it is before the stop offset of this
                cursor.
        """
        return _fork(self, self.stop if stop_offset is None else min(stop_offset, self.stop))

    def skip_batch(self):
        """Skip the open batch, or else the next batch, which may be corrupt."""
        corrupt: cython.bint = self.error is not None
        self.error = None
        self.deferred = False
        if self.opened:
            leave_batch(self)
        elif not self.ended:
            _skip_unread(self, corrupt)

    def columns(self, names=None, max_bytes=None):
        """Return the remaining records as Columns.

        The columns end before a corrupt record or batch, after `max_bytes`, and before a batch with
        which a column could exceed 2 GiB. Call again until `exhausted` is true.

        Args:
            names: the columns; all by default; see COLUMN_NAMES.
            max_bytes: open no further batch after this many decompressed bytes of records; no limit
                by default.

        Raises:
            CorruptRecord: the next record or batch is corrupt. Records before it are returned by an
                earlier call.
            ValueError: there is no such column.
        """
        if cython.compiled:
            return columns_of(self, names, max_bytes)
        else:
            # Imported here, because the module `columns` imports this module.
            from aiokq.fastpath.consume import columns

            return columns.columns_of(self, names, max_bytes)

    def __repr__(self):
        return f"<Cursor {self.topic}-{self.partition} position={self.position}>"


@cython.cfunc
def _offset_behind(cursor: Cursor) -> object:
    """Return the offset after the open batch, or else the offset after the next batch.

    The offset after the next batch is computed from the header of that batch. The result is None if
    that header is invalid, or if the next batch is a converted legacy batch.
    """
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
def raise_corrupt(cursor: Cursor, what: object, cause: object) -> object:
    """Store and raise a CorruptRecord; later calls raise it again until the batch is skipped.

    Args:
        what: the defect, as the first words of the message.
    """
    behind: object = _offset_behind(cursor)
    if behind is None:
        skip = "the offset of the next batch is unknown: seek() to a later offset"
    else:
        skip = f"seek(({cursor.topic!r}, {cursor.partition}), {behind}) skips this batch"
    error = CorruptRecord(
        f"{what}, in the batch at or after offset {cursor.position} of "
        f"{cursor.topic}-{cursor.partition}; {skip}",
        topic_partition=TopicPartition(cursor.topic, cursor.partition),
    )
    error.__cause__ = cause
    cursor.error = error
    # With `remaining` at 0, a stream requests the next cursor from its source.
    cursor.remaining = 0
    raise copy_error(error)


@cython.cfunc
def _fork(cursor: Cursor, stop: cython.longlong) -> Cursor:
    """Implement Cursor.fork; `stop` is not after the cursor's own stop offset."""
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
def next_record(cursor: Cursor) -> object:
    """Return the next record; None at the end."""
    record: object
    while True:
        if cursor.remaining == 0 and not open_next(cursor):
            return None
        record = _hand_over(cursor)
        if record is not None:
            return record


@cython.cfunc
def take_records(cursor: Cursor, limit: cython.Py_ssize_t) -> list:
    """Return at most `limit` records of the open batch; fewer before a corrupt record."""
    out: list = []
    record: object
    if not cython.compiled and len(cursor.ready) > 1:
        # Take all records at once, except the last record of the batch. _hand_over() takes
        # the last record, and then leaves the batch.
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
def end_cursor(cursor: Cursor) -> object:
    cursor.ended = True
    cursor.opened = False
    cursor.remaining = 0
    cursor.inner = None
    return None


@cython.cfunc
def move_up_to(cursor: Cursor, offset: cython.longlong) -> object:
    """Move the position forward to `offset`, but not beyond the stop offset."""
    offset = min(offset, cursor.stop)
    if offset > cursor.position:
        cursor.position = offset
    return None


# ---------------------------------------------------------------- batches


@cython.cfunc
def leave_batch(cursor: Cursor) -> object:
    """Leave the open batch and move the position to the offset after the batch.

    The last returned record does not determine that offset: compaction may have removed records.
    """
    cursor.opened = False
    cursor.remaining = 0
    cursor.inner = None
    if not cython.compiled:
        cursor.ready = ()
        cursor.ready_error = None
    move_up_to(cursor, cursor.next_offset)
    return None


@cython.cfunc
@cython.exceptval(-1, check=False)
def open_next(cursor: Cursor) -> cython.int:
    """Leave the open batch, and open the next one that has a record to return.

    Returns 1, or 0 at the end. A record that cannot be decoded counts as a record to return.

    Raises:
        CorruptRecord: the next batch is corrupt, or was corrupt before and was not skipped.
    """
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
        leave_batch(cursor)
    while not cursor.ended:
        if cursor.position >= cursor.stop:
            end_cursor(cursor)
            return 0
        # Read on in the converted legacy batch if there is one, else in the fetched bytes.
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
            end_cursor(cursor)
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
                raise_corrupt(cursor, "a converted batch in a legacy format", None)
            if length < 14:
                raise_corrupt(cursor, f"an invalid message size of {length} bytes", None)
            if total > left:
                cursor.partial = total
                end_cursor(cursor)
                return 0
            _open_legacy(cursor)
            continue
        if magic > 2:
            raise_corrupt(cursor, f"an unsupported magic of {magic}", None)
        if length < 49:
            raise_corrupt(cursor, f"an invalid batch size of {total} bytes", None)
        if total > left:
            cursor.partial = total
            end_cursor(cursor)
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
            raise_corrupt(
                cursor,
                f"an invalid base offset of {base_offset}, or last offset delta of {last_delta}",
                None,
            )
        next_offset = base_offset + last_delta + 1
        if base_offset >= cursor.stop:
            move_up_to(cursor, cursor.stop)
            end_cursor(cursor)
            return 0
        if next_offset > cursor.position:
            if cursor.check_crcs and cursor.sub is None:
                if cython.compiled:
                    if aiokq_crc32c(0, p + CRC_COVERS, total - CRC_COVERS) != crc:
                        raise_corrupt(cursor, "a wrong CRC-32C", None)
                elif _crc32c(region[at + CRC_COVERS : at + total]) != crc:
                    raise_corrupt(cursor, "a wrong CRC-32C", None)
            if count < 0 or count > last_delta + 1:
                raise_corrupt(
                    cursor, f"a record count of {count} for {last_delta + 1} offsets", None
                )
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
            # The marker that ends an aborted transaction may be before the position. It must be
            # read, because later records of the same producer are not aborted.
            _hidden(cursor, at, total, attributes, producer_id, base_offset, last_delta)
        if cursor.sub is not None:
            cursor.sub_at = at + total
        else:
            cursor.at = at + total
        if cursor.opened:
            if base_offset < cursor.position and not _skip_below(cursor):
                leave_batch(cursor)
                continue
            return 1
        move_up_to(cursor, next_offset)
    return 0


@cython.cfunc
def _view(cursor: Cursor, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> object:
    """Return the bytes from `at` to `end` of the converted batch, or else of the source."""
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
    """Return whether to skip a batch: a control batch, or a batch of an aborted transaction.

    Updates the ids of the producers whose current transaction is aborted.

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
    """Return whether a control batch aborts a transaction: the key of its record has type 0."""
    payload: bytes = _decompressed(cursor, at, total, attributes)
    try:
        _, place = read_varint(payload, 0)
        _, place = read_varint(payload, place + 1)
        _, place = read_varint(payload, place)
        size, place = read_varint(payload, place)
        if size < 4 or place + 4 > len(payload):
            raise IndexError
        return payload[place + 2] == 0 and payload[place + 3] == 0
    except IndexError:
        raise_corrupt(cursor, "a control batch without a type", None)


@cython.cfunc
def _decompressed(
    cursor: Cursor, at: cython.Py_ssize_t, total: cython.Py_ssize_t, attributes: cython.int
) -> bytes:
    """Return a copy of the records of a batch, decompressed if necessary."""
    view = _view(cursor, at + HEADER_SIZE, at + total)
    if attributes & 7 == 0:
        return bytes(view)
    try:
        return bytes(cursor.codecs.decompress(attributes & 7, view, cursor.max_batch_bytes))
    except Exception as error:  # noqa: BLE001  a codec may fail in any way on hostile bytes
        raise_corrupt(cursor, f"records cannot be decompressed ({error})", error)


@cython.cfunc
def _open_batch(
    cursor: Cursor,
    at: cython.Py_ssize_t,
    total: cython.Py_ssize_t,
    attributes: cython.int,
    count: cython.longlong,
) -> object:
    """Set the pointers to the batch's records, after decompression if necessary."""
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
    """Convert the next entries of one magic, 0 or 1, to one v2 batch.

    Entries with LogAppendTime are converted one at a time, because a v2 batch has one log append
    time for all records. A v2 batch cannot express that entries of magic 0 have no time, so the
    cursor's `untimed` is set for them.
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
        raise_corrupt(cursor, f"legacy messages cannot be read ({error})", error)
    cursor.sub_at = 0
    cursor.at = end
    return None


@cython.cfunc
def _skip_unread(cursor: Cursor, corrupt: cython.bint) -> object:
    """Skip the next batch by the size and offsets in its header, if these are plausible."""
    if cursor.sub is not None:
        cursor.sub = None
        return None
    head = bytes(cursor.source[cursor.at : cursor.at + HEADER_SIZE])
    size: cython.longlong = 0
    if len(head) >= 27:
        size = 12 + int.from_bytes(head[8:12], "big", signed=True)
    if size < 26 or size > cursor.size - cursor.at:
        # The batch is incomplete or its length is wrong, so the next batch cannot be found.
        if corrupt:
            move_up_to(cursor, cursor.position + 1)
        end_cursor(cursor)
        return None
    base_offset = int.from_bytes(head[:8], "big", signed=True)
    last_delta = int.from_bytes(head[23:27], "big", signed=True) if head[16] >= 2 else 0
    if base_offset < 0 or last_delta < 0 or base_offset > _TOP_OFFSET:
        move_up_to(cursor, cursor.position + 1)
    else:
        move_up_to(cursor, base_offset + last_delta + 1)
    cursor.at += size
    return None


@cython.cfunc
@cython.exceptval(-1, check=False)
def _skip_below(cursor: Cursor) -> cython.int:
    """Skip records of the open batch before the position; return whether a record remains."""
    if cython.compiled:
        fields = cython.declare(aiokq_record)
        while cursor.remaining > 0:
            if not aiokq_parse_record(cursor.record, cursor.record_end, cython.address(fields)):
                return 1  # _hand_over() will raise the error
            if cursor.base_offset + fields.offset_delta >= cursor.position:
                return 1
            cursor.record = fields.end
            cursor.remaining -= 1
        return 0
    else:
        # _decode_batch() did not decode the records before the position.
        return cursor.remaining > 0


# ---------------------------------------------------------------- decoding of records


@cython.cfunc
def _bad_record(cursor: Cursor, what: object) -> object:
    """Raise CorruptRecord, unless all records up to the stop offset were returned."""
    if cursor.position < cursor.stop:
        raise_corrupt(cursor, what, None)
    end_cursor(cursor)
    return None


@cython.cfunc
def _hand_over(cursor: Cursor) -> object:
    """Return the next record of the open batch; None if the stop offset is reached.

    Raises:
        CorruptRecord: the record cannot be decoded, and the position is before the stop offset.
    """
    if cython.compiled:
        fields = cython.declare(aiokq_record)
        offset: cython.longlong
        record: Record
        if not aiokq_parse_record(cursor.record, cursor.record_end, cython.address(fields)):
            return _bad_record(cursor, "a malformed record")
        offset = cursor.base_offset + fields.offset_delta
        if offset < cursor.position or fields.offset_delta > cursor.last_delta:
            return _bad_record(cursor, "record offsets are not increasing")
        if offset >= cursor.stop:
            move_up_to(cursor, cursor.stop)
            end_cursor(cursor)
            return None
        if cursor.remaining == 1 and fields.end != cursor.record_end:
            raise_corrupt(cursor, "bytes after the last record", None)
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
            leave_batch(cursor)
        else:
            cursor.position = offset + 1
        return record
    else:
        if not cursor.ready:
            return _bad_record(cursor, cursor.ready_error)
        record = cursor.ready.pop()
        if record is None:
            move_up_to(cursor, cursor.stop)
            end_cursor(cursor)
            return None
        cursor.remaining -= 1
        cursor.handed += 1
        cursor.last_offset = record.offset
        cursor.last_epoch = cursor.epoch
        if cursor.remaining == 0:
            leave_batch(cursor)
        else:
            cursor.position = record.offset + 1
        return record


@cython.cfunc
def _read_headers(cursor: Cursor, fields: cython.pointer(aiokq_record)) -> tuple:
    """Return the headers of a record as (name, value) pairs.

    Invalid UTF-8 in names is replaced, as in Java.
    """
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
                raise_corrupt(cursor, "a malformed header", None)
            text = PyUnicode_DecodeUTF8(cython.cast(cython.p_char, name), name_size, b"replace")
            if value_size < 0:
                out.append((text, None))
            else:
                data = PyBytes_FromStringAndSize(cython.cast(cython.p_char, value), value_size)
                out.append((text, data))
        if at != fields.end:
            raise_corrupt(cursor, "a malformed header", None)
        return tuple(out)
    return ()


if not cython.compiled:

    def _decode_batch(cursor, count):
        """Decode the batch's records into `ready`, in reverse order.

        `ready_error` is the error that follows the records; None if there is none.
        """
        cursor.ready, cursor.ready_error = pure.decode_batch(cursor, count, Record)
        cursor.remaining = len(cursor.ready) + (cursor.ready_error is not None)

    def _share_ready(cursor, twin):
        """Share decoded records with a fork, which may have an earlier stop offset."""
        ready, error, beyond = list(cursor.ready), cursor.ready_error, 0
        while beyond < len(ready) and (ready[beyond] is None or ready[beyond].offset >= twin.stop):
            beyond += 1
        if beyond:
            ready[:beyond] = [None]
            error = None
        twin.ready, twin.ready_error = ready, error
        twin.remaining = 0 if cursor.error is not None else len(ready) + (error is not None)

    def pop_ready(cursor):
        """Return the next ready record, as _hand_over() does; more than one must be ready."""
        record = cursor.ready.pop()
        offset = record.offset
        cursor.remaining -= 1
        cursor.handed += 1
        cursor.last_offset = offset
        cursor.last_epoch = cursor.epoch
        cursor.position = offset + 1
        return record


# ---------------------------------------------------------------- module initialization

if cython.compiled:
    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
    aiokq_crc32c_setup()
