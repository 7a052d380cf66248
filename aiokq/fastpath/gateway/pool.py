"""Pool and Taken: the memory of the gateway, which inputs fill and the event loop empties.

This is the compiled form: the work is in pool.h, which inputs also call, without Python's lock.
Uncompiled, the module has the classes of pure_pool.py. Tests:
tests/unit/fastpath/test_gateway_pool.py, tests/property/test_gateway_parity.py.
"""

# Hot path, measured by benchmarks/micro/gateway.py. Nothing in this file runs once per message,
# except Taken.message().

from __future__ import annotations

import operator
import os

try:
    from aiokq.fastpath import cython_names as cython
except ImportError:  # never raised: `import cython` is only for the Cython compiler
    import cython

from aiokq.fastpath.gateway import values
from aiokq.fastpath.gateway.values import (
    LONGEST_TOPIC,
    REASONS,
    Message,
    PoolCounts,
    Refused,
    Sample,
    TopicCounts,
)

if cython.compiled:
    from cython.cimports.aiokq.fastpath.gateway.pool import (
        AIOKQ_BAD_TOPIC,
        AIOKQ_DISCARD,
        AIOKQ_FRESH,
        AIOKQ_MESSAGE_OVERHEAD,
        AIOKQ_NEVER,
        AIOKQ_READY,
        AIOKQ_SAMPLES,
        AIOKQ_TOPIC_BYTES,
        AIOKQ_TOPIC_OVERHEAD,
        AIOKQ_TRANSPORTS,
        AIOKQ_WAIT,
        aiokq_batch_ends,
        aiokq_due,
        aiokq_end_unresolved,
        aiokq_feed,
        aiokq_fill_headers,
        aiokq_fill_offsets,
        aiokq_fill_partitions,
        aiokq_fill_times,
        aiokq_find,
        aiokq_finish_segments,
        aiokq_fresh,
        aiokq_key_start,
        aiokq_limit,
        aiokq_mark_due,
        aiokq_memory_freed,
        aiokq_new_window,
        aiokq_pool,
        aiokq_pool_clear,
        aiokq_pool_free,
        aiokq_pool_lock,
        aiokq_pool_make,
        aiokq_pool_now,
        aiokq_pool_unlock,
        aiokq_press,
        aiokq_press_if_full,
        aiokq_refused,
        aiokq_report,
        aiokq_report_topic,
        aiokq_report_topics,
        aiokq_resolve,
        aiokq_rest_if_empty,
        aiokq_ring,
        aiokq_ring_clear,
        aiokq_ring_copy,
        aiokq_ring_of,
        aiokq_row,
        aiokq_row_at,
        aiokq_sample_topic,
        aiokq_segment,
        aiokq_segment_hold,
        aiokq_segment_release,
        aiokq_segment_select,
        aiokq_slot,
        aiokq_slot_free,
        aiokq_slot_new,
        aiokq_slot_of,
        aiokq_span,
        aiokq_survey,
        aiokq_survey_rows,
        aiokq_table_remove,
        aiokq_take,
        aiokq_take_fresh,
        aiokq_take_ready,
        aiokq_take_refused,
        aiokq_take_unresolved,
        aiokq_topic_hash,
        aiokq_value_start,
    )
    from cython.cimports.aiokq.fastpath.native import (
        AIOKQ_SOURCE_HASH,
        Py_buffer,
        PyBUF_SIMPLE,
        PyBuffer_FillInfo,
        PyBuffer_Release,
        PyBytes_AS_STRING,
        PyBytes_FromStringAndSize,
        PyBytes_GET_SIZE,
        PyMem_Free,
        PyMem_Malloc,
        PyObject_GetBuffer,
        int32_t,
        int64_t,
    )
    from cython.cimports.posix.unistd import getpid

__all__ = [*values.__all__, "Pool", "Taken"]

_LATEST = values.NEVER // 1000
_REASON_COUNT = len(REASONS)


@cython.final
@cython.cclass
class Block:
    """The keys or the values of messages that were taken: a buffer that refers to their segment."""

    def __dealloc__(self):
        if self.segment != cython.NULL:
            aiokq_segment_release(self.segment)

    def __getbuffer__(self, buffer: cython.pointer(Py_buffer), flags: cython.int):
        PyBuffer_FillInfo(buffer, self, self.base, self.size, 1, flags)


@cython.final
@cython.cclass
class Taken:
    """Messages of one topic, in the order of arrival. Their memory stays charged until release().

    Attributes:
        count: number of messages.
        charge: bytes of the pool that the messages use.
        size: bytes of the keys and values.
        slot: the slot of the topic; -1 if the topic was not registered.
        oldest_ms: the smallest of the timestamps and arrival times.
    """

    def __init__(self):
        raise TypeError("messages are taken by Pool.take()")

    def __dealloc__(self):
        if self.segment != cython.NULL:
            aiokq_segment_release(self.segment)

    def __len__(self):
        return self.end - self.first

    @cython.cfunc
    def _check(self):
        if self.segment == cython.NULL:
            raise TypeError("messages are taken by Pool.take()")

    @property
    def count(self):
        return self.end - self.first

    @property
    def size(self):
        self._check()
        return aiokq_span(self.segment, self.first, self.end)

    @property
    def charge(self):
        self._check()
        return (
            aiokq_span(self.segment, self.first, self.end)
            + (self.end - self.first) * AIOKQ_MESSAGE_OVERHEAD
        )

    @property
    def oldest_ms(self):
        self._check()
        found = cython.declare(aiokq_survey)
        aiokq_survey_rows(
            self.segment, self.first, self.end, -AIOKQ_NEVER - 1, AIOKQ_NEVER, cython.address(found)
        )
        return found.oldest

    @cython.cfunc
    def _row(self, index):
        index = operator.index(index)
        if not 0 <= index < self.end - self.first:
            raise IndexError("message index out of range")
        return self.first + cython.cast(int64_t, index)

    def message(self, index):
        """Return one message; for reports and dead letters, not for deliveries."""
        n: int64_t = self._row(index)
        row: cython.pointer(aiokq_row) = aiokq_row_at(self.segment, n)
        key: int64_t = aiokq_key_start(self.segment, n)
        value: int64_t = aiokq_value_start(self.segment, n)
        return Message(
            b""
            if row.key_end == key
            else PyBytes_FromStringAndSize(
                cython.cast(cython.p_char, self.segment.keys + key), row.key_end - key
            ),
            PyBytes_FromStringAndSize(
                cython.cast(cython.p_char, self.segment.data + value), row.value_end - value
            ),
            row.timestamp,
            row.arrival,
            row.partition_key if row.keyed else None,
            row.sequence,
        )

    def timestamps(self):
        """Return the smallest and the largest timestamp that the clients gave."""
        self._check()
        found = cython.declare(aiokq_survey)
        aiokq_survey_rows(
            self.segment, self.first, self.end, -AIOKQ_NEVER - 1, AIOKQ_NEVER, cython.address(found)
        )
        return found.earliest, found.latest

    def sequences(self, rows=None):
        """Return the sequences of the messages, or of `rows`, as a memoryview of int64."""
        if rows is None:
            return self._all_sequences()
        self._check()
        n: cython.Py_ssize_t
        wanted = list(rows)
        count: cython.Py_ssize_t = len(wanted)
        if count == 0:
            return memoryview(b"")
        stored: bytes = PyBytes_FromStringAndSize(cython.NULL, 8 * count)
        out: cython.pointer(int64_t) = cython.cast(
            cython.pointer(int64_t), PyBytes_AS_STRING(stored)
        )
        for n in range(count):
            out[n] = aiokq_row_at(self.segment, self._row(wanted[n])).sequence
        return memoryview(stored).cast("q")

    def _all_sequences(self):
        self._check()
        n: int64_t
        count: int64_t = self.end - self.first
        if count == 0:
            return memoryview(b"")
        stored: bytes = PyBytes_FromStringAndSize(cython.NULL, 8 * count)
        out: cython.pointer(int64_t) = cython.cast(
            cython.pointer(int64_t), PyBytes_AS_STRING(stored)
        )
        for n in range(count):
            out[n] = aiokq_row_at(self.segment, self.first + n).sequence
        return memoryview(stored).cast("q")

    def select(self, rows):
        """Return a copy of some of the messages, by index; the copy is not charged."""
        self._check()
        n: cython.Py_ssize_t
        wanted = list(rows)
        count: cython.Py_ssize_t = len(wanted)
        stored: bytes = PyBytes_FromStringAndSize(cython.NULL, 8 * count)
        out: cython.pointer(int64_t) = cython.cast(
            cython.pointer(int64_t), PyBytes_AS_STRING(stored)
        )
        for n in range(count):
            out[n] = self._row(wanted[n]) - self.first
        made: cython.pointer(aiokq_segment) = aiokq_segment_select(
            self.segment, self.first, out, count
        )
        if made == cython.NULL:
            raise MemoryError
        return _taken(made, 0, count, self.slot)

    def batches(self, messages, size):
        """Divide the messages into batches, and return the index after each batch.

        Args:
            messages: maximum number of messages of a batch; 0 for no limit.
            size: maximum bytes of the keys and values of a batch, except for a single larger
                message; 0 for no limit.
        """
        self._check()
        n: int64_t
        made: int64_t
        most: int64_t = messages
        most_bytes: int64_t = size
        count: int64_t = self.end - self.first
        stored: bytes = PyBytes_FromStringAndSize(cython.NULL, 16 * count + 8)
        ends: cython.pointer(int64_t) = cython.cast(
            cython.pointer(int64_t), PyBytes_AS_STRING(stored)
        )
        made = aiokq_batch_ends(self.segment, self.first, self.end, most, most_bytes, ends)
        found = []
        for n in range(made):
            found.append(ends[n])
        return found

    def columns(
        self,
        *,
        partitions=0,
        usable=None,
        null_keys=False,
        null_values=False,
        earliest_ms=0,
        latest_ms=_LATEST,
        header=b"aiokq.timestamp",
    ):
        """Return the arguments of RecordColumns except the count. Keys and values are not copied.

        Args:
            partitions: number of partitions of the topic, for messages with a partition key.
            usable: a byte for each partition, 0 if the partition is not usable: its messages go to
                the next usable partition, or keep their partition if no partition is usable. None
                if all partitions are usable.
            null_keys, null_values: whether empty keys and values become null.
            earliest_ms, latest_ms: a timestamp outside of this range is replaced by the time of
                arrival, and kept in a header.
            header: name of this header.

        Raises:
            ValueError: `usable` does not have one byte for each partition.
        """
        self._check()
        earliest: int64_t = max(earliest_ms, 0)
        latest: int64_t = min(latest_ms, _LATEST)
        all_partitions: cython.uint = partitions
        count: int64_t = self.end - self.first
        found = cython.declare(aiokq_survey)
        choice: cython.p_uchar = cython.NULL
        aiokq_survey_rows(
            self.segment, self.first, self.end, earliest, latest, cython.address(found)
        )
        if usable is not None:
            usable = bytes(usable)
            if len(usable) != partitions:
                raise ValueError(f"usable: {len(usable)} bytes for {partitions} partitions")
            choice = cython.cast(cython.p_uchar, PyBytes_AS_STRING(usable))
        given = {"value": self._column(False, null_values and found.empty_values > 0)}
        if found.empty_keys < count or not null_keys:
            given["key"] = self._column(True, null_keys and found.empty_keys > 0)
        times: bytes = PyBytes_FromStringAndSize(cython.NULL, 8 * count)
        aiokq_fill_times(
            self.segment,
            self.first,
            self.end,
            earliest,
            latest,
            cython.cast(cython.pointer(int64_t), PyBytes_AS_STRING(times)),
        )
        given["timestamp"] = None, times
        if found.replaced:
            given["headers"] = self._header_column(
                header, earliest, latest, found.replaced, found.text_bytes
            )
        if all_partitions > 0 and found.keyed:
            bits: bytes = PyBytes_FromStringAndSize(cython.NULL, (count + 7) // 8)
            numbers: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * count)
            aiokq_fill_partitions(
                self.segment,
                self.first,
                self.end,
                all_partitions,
                choice,
                cython.cast(cython.pointer(int32_t), PyBytes_AS_STRING(numbers)),
                cython.cast(cython.p_uchar, PyBytes_AS_STRING(bits)),
            )
            given["partition"] = bits, numbers
        return given

    @cython.cfunc
    def _block(self, keys: cython.bint) -> Block:
        block: Block = Block.__new__(Block)
        start: int64_t
        if keys:
            start = aiokq_key_start(self.segment, self.first)
            block.base = self.segment.keys + start
            block.size = aiokq_key_start(self.segment, self.end) - start
        else:
            start = aiokq_value_start(self.segment, self.first)
            block.base = self.segment.data + start
            block.size = aiokq_value_start(self.segment, self.end) - start
        aiokq_segment_hold(self.segment)
        block.segment = self.segment
        return block

    @cython.cfunc
    def _column(self, keys: cython.bint, nulls: cython.bint):
        count: int64_t = self.end - self.first
        offsets: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * (count + 1))
        bits: bytes = None
        out: cython.p_uchar = cython.NULL
        if nulls:
            bits = PyBytes_FromStringAndSize(cython.NULL, (count + 7) // 8)
            out = cython.cast(cython.p_uchar, PyBytes_AS_STRING(bits))
        aiokq_fill_offsets(
            self.segment,
            self.first,
            self.end,
            keys,
            cython.cast(cython.pointer(int32_t), PyBytes_AS_STRING(offsets)),
            out,
        )
        block: Block = self._block(keys)
        return bits, offsets, memoryview(block) if block.size else b""

    @cython.cfunc
    def _header_column(
        self, name: object, earliest: int64_t, latest: int64_t, count: int64_t, size: int64_t
    ):
        rows: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * (self.end - self.first + 1))
        offsets: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * (count + 1))
        texts: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
        aiokq_fill_headers(
            self.segment,
            self.first,
            self.end,
            earliest,
            latest,
            cython.cast(cython.pointer(int32_t), PyBytes_AS_STRING(rows)),
            cython.cast(cython.pointer(int32_t), PyBytes_AS_STRING(offsets)),
            PyBytes_AS_STRING(texts),
        )
        names: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * (count + 1))
        starts: cython.pointer(int32_t) = cython.cast(
            cython.pointer(int32_t), PyBytes_AS_STRING(names)
        )
        n: int64_t
        length: int64_t = len(name)
        for n in range(count + 1):
            starts[n] = n * length
        return None, rows, names, bytes(name) * count, None, offsets, texts


@cython.cfunc
def _taken(
    segment: cython.pointer(aiokq_segment), first: int64_t, end: int64_t, slot: cython.Py_ssize_t
) -> Taken:
    """Return a Taken, which takes over the reference to the segment."""
    taken: Taken = Taken.__new__(Taken)
    taken.segment = segment
    taken.first = first
    taken.end = end
    taken.slot = slot
    return taken


@cython.final
@cython.cclass
class Pool:
    """The memory of a gateway: the messages that were received and not delivered yet.

    Args:
        max_bytes: limit in bytes. A message counts with its key, its value and MESSAGE_OVERHEAD, an
            unregistered topic with its name and TOPIC_OVERHEAD, and an incomplete message of a
            stream with its memory.
        wake_fd: an eventfd, or the writing end of a pipe; when messages become due, 8 bytes are
            written, but only once until the next `due()`. The same is written when a topic is new,
            when a message may become due before the time that `due()` returned, when `refused()`
            has a message, when the pool is nearly full, when memory is freed for which a call of
            `feed` or `press` waits, and when the thread of an input ends by itself. -1 to write
            nothing.
        topic_share: the messages of a topic that were not taken may use this many times as much as
            is free. A topic with none may use all that is free. 0 for no limit.
        sample_bytes: number of bytes of a sample.
        max_topic_names: maximum number of unregistered topics; fewer if half of `max_bytes` is too
            little for their names. A further topic replaces the oldest topic with few messages, of
            the sender with the most topics; the messages are discarded as BAD_TOPIC. If the 8
            oldest topics of this sender all have many messages (more than 64 messages, or more than
            16 KiB), no topic is replaced, and the new message is discarded as BAD_TOPIC.
        refused_bytes: size of the queue of `refused()`, in addition to `max_bytes`.
        refused_reasons: the reasons for which messages are put into this queue.
        refused_whole: reasons in `refused_reasons` whose messages are kept whole, as far as
            `limit_whole` allows and there is room. They are charged, and held until `release()`.
            The next two limits do not apply to them. Messages for which there is no room, or that
            exceed `limit_whole`, count as discarded; with `refused_prefix`, they are queued like
            messages of other reasons.
        refused_prefix: number of bytes of each key and value that the queue keeps; -1 for all.
        refused_per_s: number of messages that the queue takes per second; 0 for any number.
        spooled: whether `finished()` names the messages that the pool discards.

    Raises:
        ValueError: `max_bytes` is less than 1, or a number is negative.
    """

    MESSAGE_OVERHEAD = AIOKQ_MESSAGE_OVERHEAD if cython.compiled else 0
    TOPIC_OVERHEAD = AIOKQ_TOPIC_OVERHEAD if cython.compiled else 0

    def __init__(
        self,
        max_bytes,
        *,
        wake_fd=-1,
        topic_share=0,
        sample_bytes=256,
        max_topic_names=65536,
        refused_bytes=0,
        refused_reasons=(),
        refused_whole=(),
        refused_prefix=-1,
        refused_per_s=0,
        spooled=False,
    ):
        if self.pool != cython.NULL:
            raise RuntimeError("the pool is already initialized")
        least = min(topic_share, sample_bytes, max_topic_names, refused_bytes, refused_per_s)
        if max_bytes < 1 or least < 0:
            raise ValueError("max_bytes is at least 1, and no number is negative")
        fd: cython.int = wake_fd
        most: int64_t = max_bytes
        seed: cython.ulonglong = int.from_bytes(os.urandom(8), "little")
        pool: cython.pointer(aiokq_pool) = cython.cast(
            cython.pointer(aiokq_pool), PyMem_Malloc(cython.sizeof(aiokq_pool))
        )
        if pool == cython.NULL:
            raise MemoryError
        if not aiokq_pool_make(pool, most, fd, seed):
            PyMem_Free(pool)
            raise MemoryError
        self.pool = pool
        self.pid = getpid()
        pool.topic_share = topic_share
        pool.sample_bytes = sample_bytes
        pool.max_names = values.most_names(max_topic_names, max_bytes)
        pool.refused_bytes = refused_bytes
        pool.refused_prefix = refused_prefix
        pool.refused_rate = refused_per_s
        pool.spooled = bool(spooled)
        pool.refused_reasons = _mask(refused_reasons)
        pool.refused_whole = _mask(refused_whole)

    def __dealloc__(self):
        # A forked child leaves the memory alone: an input of the parent may have held the mutex.
        if self.pool != cython.NULL and getpid() == self.pid:
            aiokq_pool_free(self.pool)
            PyMem_Free(self.pool)

    @property
    def max_bytes(self):
        if self.pool == cython.NULL:
            raise RuntimeError("the pool is not initialized")
        return self.pool.max_bytes

    @cython.cfunc
    def _check(self):
        if self.pool == cython.NULL or getpid() != self.pid:
            raise RuntimeError("the pool belongs to the process that created it")

    @cython.cfunc
    def _check_open(self):
        self._check()
        if self.pool.closed:
            raise RuntimeError("the pool is closed")

    @cython.cfunc
    def _find(self, number):
        """Lock the pool and find a registered slot. The pool is not locked after an error."""
        self._check_open()
        wanted: int64_t = number
        aiokq_pool_lock(self.pool)
        self.found = aiokq_slot_of(self.pool, wanted)
        if self.found == cython.NULL:
            aiokq_pool_unlock(self.pool)
            raise ValueError(f"slot {number} is not in use")

    @cython.cfunc
    def _find_unresolved(self, topic):
        """Lock the pool and find the slot of a topic that is not registered.

        If there is none, `found` is NULL, and the pool is not locked.
        """
        self._check_open()
        name: bytes = _topic_bytes(topic)
        at: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(name))
        size: cython.Py_ssize_t = PyBytes_GET_SIZE(name)
        aiokq_pool_lock(self.pool)
        self.found = aiokq_find(self.pool, aiokq_topic_hash(self.pool.seed, at, size), at, size)
        if self.found == cython.NULL or self.found.registered:
            aiokq_pool_unlock(self.pool)
            self.found = cython.NULL

    @cython.cfunc
    def _limit(self, slot: cython.pointer(aiokq_slot), limits: object):
        numbers = cython.declare(int64_t[6])
        n: cython.Py_ssize_t
        for n in range(6):
            numbers[n] = limits[n]
        aiokq_limit(self.pool, slot, numbers)

    # ------------------------------------------------------------ topics

    def register(
        self,
        topic,
        *,
        batch_messages=0,
        batch_bytes=0,
        batch_ms=-1,
        max_message_bytes=-1,
        rate_interval_ms=0,
        rate_max_messages=-1,
    ):
        """Give a topic a slot and limits, which also apply to the messages that it already holds.

        0 (`batch_messages`, `batch_bytes`, `rate_interval_ms`) or -1 (the others) means no limit.
        Without a limit for batches, messages are due at once. If the topic is already registered,
        it keeps its slot and gets the new limits.

        Returns:
            The number of the slot.

        Raises:
            MemoryError: there is no memory for the slot.
            RuntimeError: the pool is closed, or belongs to another process.
            ValueError: a limit is out of range, or the topic has more than 32,767 bytes.
        """
        self._check_open()
        limits = _numbers(
            batch_messages,
            batch_bytes,
            batch_ms,
            max_message_bytes,
            rate_interval_ms,
            rate_max_messages,
        )
        name: bytes = _topic_bytes(topic)
        at: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(name))
        size: cython.Py_ssize_t = PyBytes_GET_SIZE(name)
        hashed: cython.uint = aiokq_topic_hash(self.pool.seed, at, size)
        number: cython.int = -1
        aiokq_pool_lock(self.pool)
        slot: cython.pointer(aiokq_slot) = aiokq_find(self.pool, hashed, at, size)
        if slot == cython.NULL:
            slot = aiokq_slot_new(self.pool, hashed, at, size)
        if slot != cython.NULL:
            number = slot.number
            self._limit(slot, limits)
            if not slot.registered:
                aiokq_resolve(self.pool, slot)
        held: int64_t = self.pool.held
        aiokq_pool_unlock(self.pool)
        aiokq_rest_if_empty(self.pool, held)
        if number < 0:
            raise MemoryError
        return number

    def configure(
        self,
        slot,
        *,
        batch_messages=0,
        batch_bytes=0,
        batch_ms=-1,
        max_message_bytes=-1,
        rate_interval_ms=0,
        rate_max_messages=-1,
    ):
        """Set all limits of a slot.

        If a limit of batches changed, all messages of the slot become due.

        Raises:
            ValueError: the slot is not in use, or a limit is out of range.
        """
        limits = _numbers(
            batch_messages,
            batch_bytes,
            batch_ms,
            max_message_bytes,
            rate_interval_ms,
            rate_max_messages,
        )
        self._find(slot)
        found: cython.pointer(aiokq_slot) = self.found
        self._limit(found, limits)
        aiokq_pool_unlock(self.pool)

    def forget(self, slot):
        """Make the topic of a slot unregistered.

        The messages that the slot holds are due; `take()` frees the slot when it returns None.

        Raises:
            ValueError: the slot is not in use.
        """
        self._find(slot)
        found: cython.pointer(aiokq_slot) = self.found
        aiokq_table_remove(self.pool, found)
        aiokq_mark_due(self.pool, found, found.held)
        aiokq_pool_unlock(self.pool)

    def unresolved(self, limit=1000):
        """Return topics that are not registered, with the number of their messages.

        A topic is returned by only one call.
        """
        self._check_open()
        # Objects are created while the mutex is not held: their creation may start the garbage
        # collector, and inputs that need the mutex would wait until it has ended.
        copies = cython.declare(aiokq_fresh[AIOKQ_FRESH])
        n: cython.int
        made: cython.int = AIOKQ_FRESH
        left: int64_t = limit
        names = []
        while made == AIOKQ_FRESH and left > 0:
            aiokq_pool_lock(self.pool)
            made = aiokq_take_fresh(self.pool, copies, min(left, AIOKQ_FRESH))
            aiokq_pool_unlock(self.pool)
            left -= made
            for n in range(made):
                topic: cython.p_char = cython.cast(cython.p_char, copies[n].topic)
                names.append((PyBytes_FromStringAndSize(topic, copies[n].size), copies[n].held))
        return names

    def waits(self, topic):
        """Return whether messages wait for a topic to be registered."""
        self._find_unresolved(topic)
        if self.found == cython.NULL:
            return False
        aiokq_pool_unlock(self.pool)
        return True

    def discard_unresolved(self, topic, reason):
        """Discard the messages of an unregistered topic; return their number."""
        if not 0 <= reason < _REASON_COUNT:
            raise ValueError(f"reason {reason}: not an index of REASONS")
        index: cython.int = reason
        count: int64_t
        mono: int64_t = 0
        wall: int64_t = 0
        self._find_unresolved(topic)
        slot: cython.pointer(aiokq_slot) = self.found
        if slot == cython.NULL:
            return 0
        count = slot.held
        aiokq_pool_now(self.pool, cython.address(mono), cython.address(wall))
        aiokq_sample_topic(self.pool, slot.topic, slot.topic_size, wall)
        self.pool.used -= slot.held_bytes
        self.pool.held -= count
        self.pool.discarded[index] += count
        aiokq_end_unresolved(self.pool, slot)
        segments: cython.pointer(aiokq_segment) = slot.head
        slot.head = cython.NULL  # `segments` may be the whole pool: free it without the mutex
        aiokq_slot_free(self.pool, slot)
        held: int64_t = self.pool.held
        aiokq_pool_unlock(self.pool)
        aiokq_rest_if_empty(self.pool, held)
        aiokq_finish_segments(self.pool, segments)
        return count

    def take_unresolved(self, topic):
        """Take messages of an unregistered topic; call again until the result is None."""
        first: int64_t = 0
        end: int64_t = 0
        mono: int64_t = 0
        wall: int64_t = 0
        self._find_unresolved(topic)
        slot: cython.pointer(aiokq_slot) = self.found
        if slot == cython.NULL:
            return None
        aiokq_pool_now(self.pool, cython.address(mono), cython.address(wall))
        aiokq_sample_topic(self.pool, slot.topic, slot.topic_size, wall)
        segment: cython.pointer(aiokq_segment) = aiokq_take_unresolved(
            self.pool, slot, cython.address(first), cython.address(end)
        )
        aiokq_pool_unlock(self.pool)
        return _taken(segment, first, end, -1)

    # ------------------------------------------------------------ batches

    def due(self):
        """Return the slots that became due, and the milliseconds until another may become due.

        A slot is returned once when some of its messages become due, and again only after `take()`
        has taken all due messages. Messages are due when a limit of their batch is reached, and all
        messages are due after `press()`. The milliseconds are above 0; they are None if no limit of
        time (`batch_ms`) makes a message due. The next event after this call writes to `wake_fd`
        again.

        Raises:
            RuntimeError: the pool is closed, or belongs to another process.
        """
        self._check_open()
        numbers = cython.declare(int32_t[AIOKQ_READY])
        ready = []
        n: cython.int
        made: cython.int
        mono: int64_t = 0
        wall: int64_t = 0
        deadline: int64_t
        aiokq_pool_lock(self.pool)
        aiokq_pool_now(self.pool, cython.address(mono), cython.address(wall))
        deadline = aiokq_due(self.pool, mono)
        made = aiokq_take_ready(self.pool, numbers, AIOKQ_READY)
        aiokq_pool_unlock(self.pool)
        while made:
            for n in range(made):
                ready.append(numbers[n])
            if made < AIOKQ_READY:
                break
            aiokq_pool_lock(self.pool)
            made = aiokq_take_ready(self.pool, numbers, AIOKQ_READY)
            aiokq_pool_unlock(self.pool)
        return ready, None if deadline == AIOKQ_NEVER else deadline - mono

    def take(self, slot, *, flush=False, max_bytes=0):
        """Take the first messages that are due; None if there are none.

        Args:
            flush: make all messages of the slot due.
            max_bytes: maximum charge of the returned messages in bytes; a single message may exceed
                it. The remaining messages stay due. 0 for no limit.

        Raises:
            ValueError: the slot is not in use.
        """
        most: int64_t = max_bytes
        first: int64_t = 0
        end: int64_t = 0
        self._find(slot)
        found: cython.pointer(aiokq_slot) = self.found
        number: cython.Py_ssize_t = found.number
        if flush:
            aiokq_mark_due(self.pool, found, found.held)
        segment: cython.pointer(aiokq_segment) = aiokq_take(
            self.pool, found, most, cython.address(first), cython.address(end)
        )
        if segment == cython.NULL and not found.known:
            aiokq_slot_free(self.pool, found)
        aiokq_pool_unlock(self.pool)
        if segment == cython.NULL:
            return None
        return _taken(segment, first, end, number)

    def limit_whole(self, per_s):
        """Limit the messages that the queue of `refused()` keeps whole (`refused_whole`).

        Args:
            per_s: number of messages per second, 0 for any number. After a second without messages,
                `per_s` messages may come at once. Messages above this rate are cut to
                `refused_prefix`; without it, they are discarded.

        Raises:
            ValueError: `per_s` is negative.
        """
        self._check_open()
        rate: int64_t = per_s
        if rate < 0:
            raise ValueError(f"per_s is {per_s}, and must not be negative")
        aiokq_pool_lock(self.pool)
        self.pool.whole_rate = rate
        self.pool.whole_next = 0
        aiokq_pool_unlock(self.pool)

    def press(self):
        """Make all messages due at the next `due()`, because the caller waits for room.

        The pool does that itself when a message has no room. It does it earlier when an eighth or
        less of the pool is free, and messages that wait for their batches use at least as much.

        When memory is freed, `wake_fd` is written. After `feed` has stopped for lack of room,
        it is written without this call.

        Returns:
            The bytes of the pool in use.
        """
        self._check_open()
        aiokq_pool_lock(self.pool)
        aiokq_press(self.pool)
        self.pool.starved = 1
        used: int64_t = self.pool.used
        aiokq_pool_unlock(self.pool)
        return used

    def charge(self, size):
        """Charge `size` more bytes, until they are released.

        They are for messages that were taken, or for memory that a topic uses outside the pool.

        Raises:
            ValueError: `size` is negative.
        """
        self._check_open()
        more: int64_t = size
        if more < 0:
            raise ValueError(f"size is {size}, and must not be negative")
        aiokq_pool_lock(self.pool)
        self.pool.used += more
        aiokq_press_if_full(self.pool)
        aiokq_pool_unlock(self.pool)

    def release(self, messages, charge):
        """Free the memory of messages that were taken and whose outcome is known.

        Raises:
            ValueError: a number is negative, `messages` is more than the messages that are taken,
                or `charge` is more than the bytes in use.
        """
        self._check()
        count: int64_t = messages
        size: int64_t = charge
        aiokq_pool_lock(self.pool)
        sound: cython.bint = 0 <= count <= self.pool.taken and 0 <= size <= self.pool.used
        if sound:
            self.pool.taken -= count
            self.pool.held -= count
            self.pool.used -= size
            aiokq_memory_freed(self.pool)
        held: int64_t = self.pool.held
        aiokq_pool_unlock(self.pool)
        aiokq_rest_if_empty(self.pool, held)
        if not sound:
            raise ValueError(f"{messages} messages of {charge} bytes were not taken")

    # ------------------------------------------------------------ reports

    def counts(self, *, topics=False, new_window=False):
        """Return one snapshot of all counts.

        Args:
            topics: also return the counts of each registered topic, and of each other topic of
                which messages were discarded.
            new_window: forget the smallest and largest timestamps of discards afterwards.
        """
        self._check()
        n: cython.Py_ssize_t
        made: cython.int = 0
        room: cython.int = 0
        name_room: cython.int = 0
        pool = cython.declare(aiokq_pool)
        if topics:
            room = self.pool.slot_count - self.pool.free_count - self.pool.names + 64
            room, name_room = max(room, 64), 64
        while True:
            stored: bytes = PyBytes_FromStringAndSize(
                cython.NULL, room * cython.sizeof(aiokq_report)
            )
            names: bytes = PyBytes_FromStringAndSize(cython.NULL, name_room * AIOKQ_TOPIC_BYTES)
            reports: cython.pointer(aiokq_report) = cython.cast(
                cython.pointer(aiokq_report), PyBytes_AS_STRING(stored)
            )
            aiokq_pool_lock(self.pool)
            pool = self.pool[0]
            if topics:
                made = aiokq_report_topics(
                    self.pool,
                    reports,
                    room,
                    cython.cast(cython.p_uchar, PyBytes_AS_STRING(names)),
                    name_room,
                )
            if made >= 0:
                break
            aiokq_pool_unlock(self.pool)
            room, name_room = 2 * room, 4 * name_room
        if new_window:
            aiokq_new_window(self.pool)
        aiokq_pool_unlock(self.pool)
        discarded = []
        for n in range(_REASON_COUNT):
            discarded.append(pool.discarded[n])
        versions = {}
        for n in range(pool.versions):
            versions[pool.version[n]] = pool.version_count[n]
        by_slot = {}
        for n in range(made):
            by_slot[reports[n].number] = _topic_counts(cython.address(reports[n]))
        return PoolCounts(
            pool.received,
            pool.received_bytes,
            pool.replayed,
            pool.held,
            pool.taken,
            pool.used,
            pool.partial,
            pool.unresolved,
            pool.names,
            pool.refused_lost,
            tuple(discarded),
            versions,
            by_slot,
        )

    def used_bytes(self):
        """Return the bytes of the pool in use, as `counts` does."""
        self._check()
        aiokq_pool_lock(self.pool)
        used: int64_t = self.pool.used
        aiokq_pool_unlock(self.pool)
        return used

    def counts_of(self, slot):
        """Return the counts of one topic.

        Raises:
            ValueError: the slot is not in use.
        """
        report = cython.declare(aiokq_report)
        self._find(slot)
        aiokq_report_topic(self.found, cython.address(report))
        aiokq_pool_unlock(self.pool)
        return _topic_counts(cython.address(report))

    def samples(self, *, clear=False):
        """Return the last samples of each reason and transport, grouped by reason and transport.

        Each group is in the order of the discards.
        """
        self._check()
        found = []
        reason: cython.int
        transport: cython.int
        clears: cython.bint = clear
        for reason in range(AIOKQ_BAD_TOPIC):
            for transport in range(AIOKQ_TRANSPORTS):
                _add_samples(self.pool, reason, transport, clears, found)
        _add_samples(self.pool, AIOKQ_BAD_TOPIC, AIOKQ_TRANSPORTS - 1, clears, found)
        return found

    def refused(self):
        """Remove and return the queued refused messages.

        The caller decides the outcome of those with a charge, and then calls `release`.
        """
        self._check()
        found = []
        aiokq_pool_lock(self.pool)
        entry: cython.pointer(aiokq_refused) = aiokq_take_refused(self.pool)
        aiokq_pool_unlock(self.pool)
        while entry != cython.NULL:
            found.append(_refused(entry))
            after: cython.pointer(aiokq_refused) = entry.next
            _free(entry)
            entry = after
        return found

    # ------------------------------------------------------------ messages

    def finished(self):
        """Return the sequences of fed messages that the pool discarded since the last call.

        A pool that is not `spooled` returns none.
        """
        self._check()
        found: cython.pointer(int64_t)
        count: int64_t
        aiokq_pool_lock(self.pool)
        found = self.pool.finished
        count = self.pool.finished_count
        self.pool.finished = cython.NULL
        self.pool.finished_count = self.pool.finished_room = 0
        aiokq_pool_unlock(self.pool)
        if count == 0:
            return memoryview(b"")
        try:
            stored = PyBytes_FromStringAndSize(cython.cast(cython.p_char, found), count * 8)
        finally:
            _free(found)
        return memoryview(stored).cast("q")

    def feed(
        self,
        data,
        *,
        sequence=-1,
        replayed=False,
        stop_when_full=False,
        max_message_bytes=0x7FFFFFFF,
        arrival_ms=-1,
    ):
        """Store consecutive messages as an input does, without Python's lock.

        Args:
            sequence: sequence of the first message; the next messages get the next sequences. -1
                for sequences in the order of arrival.
            replayed: whether the messages were received by another process before.
            stop_when_full: stop before a message for which there is no room, and before the first
                message of another topic if the number of unregistered topics is at its limit.
            max_message_bytes: largest size of a message, without its 4-byte size field.
            arrival_ms: time at which the messages arrived; -1 for now.

        Returns:
            The number of bytes of the messages that were stored or discarded. After an impossible
                size, the rest cannot be read: it counts as one malformed message, and the result
                includes all bytes.
        """
        self._check_open()
        buffer = cython.declare(Py_buffer)
        first: int64_t = sequence
        again: cython.int = bool(replayed)
        when_full: cython.int = AIOKQ_WAIT if stop_when_full else AIOKQ_DISCARD
        limit: int64_t = max_message_bytes
        arrival: int64_t = arrival_ms
        read: int64_t = 0
        PyObject_GetBuffer(data, cython.address(buffer), PyBUF_SIMPLE)
        try:
            with cython.nogil:
                read = aiokq_feed(
                    self.pool,
                    cython.cast(cython.p_uchar, buffer.buf),
                    buffer.len,
                    first,
                    again,
                    when_full,
                    limit,
                    arrival,
                )
        finally:
            PyBuffer_Release(cython.address(buffer))
        return read

    def close(self):
        """Free all messages; the counts stay. The inputs must be stopped before.

        A second call, or a call in a forked child, does nothing.
        """
        if getpid() != self.pid:
            return
        aiokq_pool_lock(self.pool)
        if not self.pool.closed:
            self.pool.closed = 1
            aiokq_pool_clear(self.pool)
            aiokq_memory_freed(self.pool)
        aiokq_pool_unlock(self.pool)

    def set_clock(self, monotonic_ms, wall_ms):
        """Fix the time of the pool; for tests."""
        self._check_open()
        mono: int64_t = monotonic_ms
        wall: int64_t = wall_ms
        aiokq_pool_lock(self.pool)
        self.pool.fixed_clock = 1
        self.pool.fixed_mono = mono
        self.pool.fixed_wall = wall
        aiokq_pool_unlock(self.pool)


def _topic_bytes(topic):
    """Return a topic as bytes."""
    name = bytes(memoryview(topic))
    if len(name) > LONGEST_TOPIC:
        raise ValueError(f"the topic has {len(name)} bytes; at most {LONGEST_TOPIC} are possible")
    return name


def _mask(reasons):
    """Return the bits of reasons."""
    mask = 0
    for reason in reasons:
        if not 0 <= reason < _REASON_COUNT:
            raise ValueError(f"reason {reason}: not an index of REASONS")
        mask |= 1 << reason
    return mask


def _numbers(*limits):
    """Return the limits of a slot; all are 64-bit integers."""
    values.check_limits(*limits)
    return limits


@cython.cfunc
def _topic_counts(report: cython.pointer(aiokq_report)) -> object:
    numbers: cython.pointer(int64_t) = report.numbers
    return TopicCounts(
        PyBytes_FromStringAndSize(cython.cast(cython.p_char, report.topic), report.topic_size),
        numbers[0],
        numbers[1],
        numbers[2],
        numbers[3],
        numbers[4],
        numbers[5],
        numbers[6],
        numbers[7],
        numbers[8],
    )


@cython.cfunc
def _add_samples(
    pool: cython.pointer(aiokq_pool),
    reason: cython.int,
    transport: cython.int,
    clears: cython.bint,
    found: list,
) -> object:
    n: cython.int
    at: cython.int
    copy = cython.declare(aiokq_ring)
    stored: bytes = PyBytes_FromStringAndSize(cython.NULL, AIOKQ_SAMPLES * pool.sample_bytes)
    ring: cython.pointer(aiokq_ring) = aiokq_ring_of(pool, reason, transport)
    aiokq_pool_lock(pool)
    aiokq_ring_copy(
        pool,
        ring,
        cython.address(copy),
        cython.cast(cython.p_uchar, PyBytes_AS_STRING(stored)),
    )
    if clears:
        aiokq_ring_clear(ring)
    aiokq_pool_unlock(pool)
    for n in range(copy.count):
        at = (copy.oldest + n) % AIOKQ_SAMPLES
        data = b""
        if copy.kept[at].size > 0:
            data = PyBytes_FromStringAndSize(
                cython.cast(cython.p_char, copy.data + at * pool.sample_bytes), copy.kept[at].size
            )
        found.append(Sample(reason, transport, copy.kept[at].arrival, data))
    return None


@cython.cfunc
def _refused(entry: cython.pointer(aiokq_refused)) -> object:
    topic: cython.p_char = cython.cast(cython.p_char, entry.data)
    key: cython.p_char = topic + entry.topic_size
    return Refused(
        entry.reason,
        entry.transport,
        PyBytes_FromStringAndSize(topic, entry.topic_size),
        PyBytes_FromStringAndSize(key, entry.key_size),
        PyBytes_FromStringAndSize(key + entry.key_size, entry.value_size),
        entry.timestamp,
        entry.arrival,
        entry.partition_key if entry.keyed else None,
        entry.sequence,
        entry.charge,
    )


# ---------------------------------------------------------------- module initialization

if cython.compiled:
    from cython.cimports.libc.stdlib import free as _free

    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
else:
    from aiokq.fastpath.gateway.pure_pool import Pool, Taken

for _name in values.__all__:
    globals()[_name] = getattr(values, _name)
