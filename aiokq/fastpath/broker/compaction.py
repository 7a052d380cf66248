"""OffsetMap and KeptBatches: the parts of the log cleaner that run for each record.

Tests: tests/unit/fastpath/test_compaction.py.
"""

# Hot path, measured by benchmarks/log_compaction.py.

from __future__ import annotations

import struct

try:
    from aiokq.fastpath import cython_names as cython
except ImportError:  # never raised: `import cython` is only for the Cython compiler
    import cython

if cython.compiled:
    from cython.cimports.aiokq.fastpath.broker.cleaner import (
        aiokq_indexing,
        aiokq_keep,
        aiokq_map_free,
        aiokq_map_get,
        aiokq_map_index,
        aiokq_map_make,
        aiokq_map_put,
        aiokq_marks_free,
        aiokq_note,
        aiokq_stays_empty,
    )
    from cython.cimports.aiokq.fastpath.checksums import aiokq_crc32c_setup
    from cython.cimports.aiokq.fastpath.native import (
        AIOKQ_SOURCE_HASH,
        Py_buffer,
        PyBUF_SIMPLE,
        PyBuffer_Release,
        PyBytes_AS_STRING,
        PyBytes_FromStringAndSize,
        PyBytes_GET_SIZE,
        PyObject_GetBuffer,
        int64_t,
        memcpy,
    )
else:
    from aiokq.fastpath.broker import pure_compaction

__all__ = [
    "KeptBatches",
    "OFFSET_MAP_ENTRY",
    "OffsetMap",
    "WALK_CORRUPT",
    "WALK_END",
    "WALK_FULL",
    "WALK_HORIZON",
    "WALK_KEEP_ALL",
    "WALK_ONE",
    "WALK_OTHER",
    "WALK_TRUSTED",
]


# The reasons for the end of a pass over batches.
# WALK_END: no complete batch is left, or the flag WALK_ONE was given.
# WALK_OTHER: the caller must handle the next batch, which is compressed, transactional, a control
# batch or of another magic.
# WALK_FULL: the map or the block is full.
# WALK_CORRUPT: the next batch contradicts its header.
WALK_END, WALK_OTHER, WALK_FULL, WALK_CORRUPT = 0, 1, 2, 3


# The flags of a pass.
# WALK_ONE: read one batch, whatever its attributes; its records must not be compressed.
# WALK_TRUSTED: do not verify the CRC-32C again.
# WALK_KEEP_ALL: keep all records.
# WALK_HORIZON: set a delete horizon even if no kept record is a tombstone. Without the flag, only
# batches that keep tombstones get one. A delete horizon is never changed.
WALK_ONE, WALK_TRUSTED, WALK_KEEP_ALL, WALK_HORIZON = 1, 2, 4, 8


_NOTES = 4096
OFFSET_MAP_ENTRY: int = 24 if cython.compiled else 192
"""Bytes of memory that one key takes in an OffsetMap; an estimate in the pure core."""


@cython.final
@cython.cclass
class OffsetMap:
    """The last offset of each key in a part of a log.

    The compiled core allocates all memory when the map is created.

    A key is represented by a 128-bit hash that depends on a secret (Kafka uses MD5). If the map is
    full and takes a gigabyte, the chance that any two of its keys have the same hash is about
    2**-78.

    Args:
        slots: number of slots of OFFSET_MAP_ENTRY bytes; at least 2.
        most: maximum number of keys, limited to `slots` - 1. Lookups are slow in a map that is
            nearly full.
        secret: 16 random bytes.

    Raises:
        ValueError: `slots` is less than 2, `most` is less than 1, or `secret` is not 16 bytes long.
        MemoryError: the compiled core cannot allocate the slots.
    """

    __slots__ = ("closed", "entries", "latest_offset", "most", "secret")

    def __init__(self, slots, most, secret):
        self.secret = bytes(secret)
        if len(self.secret) != 16 or slots < 2 or most < 1:
            raise ValueError("an offset map needs 2 slots, 1 key and a secret of 16 bytes")
        self.latest_offset = -1
        self.closed = False
        if cython.compiled:
            if self.map.slots != cython.NULL:
                raise RuntimeError("the offset map is already initialized")
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
        """Free the memory. The compiled core releases the GIL. A second call does nothing.

        Neither the map nor a KeptBatches that uses it may be used afterwards.
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
        """Set the last offset of a key; return False if the key is new and the map is full."""
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
            digest = pure_compaction.hashed(self.secret, data)
            if digest not in self.entries and len(self.entries) >= self.most:
                return False
            self.entries[digest] = offset
            return True

    def get(self, key):
        """Return the last offset of a key; -1 if the map does not have it."""
        self._check_open()
        data: bytes = bytes(key)
        if cython.compiled:
            return aiokq_map_get(
                cython.address(self.map),
                cython.cast(cython.p_uchar, PyBytes_AS_STRING(data)),
                PyBytes_GET_SIZE(data),
            )
        else:
            return self.entries.get(pure_compaction.hashed(self.secret, data), -1)

    def index(self, data, at, start_offset, flags=0):
        """Add the keys of the batches that begin at byte `at` of `data`.

        Afterwards, the keys of all records from `start_offset` to `latest_offset` are in the map;
        after WALK_FULL or WALK_CORRUPT, keys of later records may be in it, too. The compiled core
        releases the GIL.

        Args:
            start_offset: records before this offset are not added.
            flags: WALK_ONE, WALK_TRUSTED.

        Returns:
            The position at which the pass ended, the reason (WALK_END to WALK_CORRUPT), and the
            number of records read.
        """
        self._check_open()
        if cython.compiled:
            view = memoryview(data).cast("B")
            buffer = cython.declare(Py_buffer)
            walk = cython.declare(aiokq_indexing)
            start: cython.longlong = start_offset
            asked: cython.int = flags
            state: cython.int = 0
            walk.at = at
            walk.latest = self.latest_offset
            walk.records = 0
            PyObject_GetBuffer(view, cython.address(buffer), PyBUF_SIMPLE)
            try:
                if walk.at < 0 or walk.at > buffer.len:
                    raise ValueError("`at` is outside the data")
                with cython.nogil:
                    state = aiokq_map_index(
                        cython.address(self.map),
                        cython.cast(cython.p_uchar, buffer.buf),
                        buffer.len,
                        start,
                        asked,
                        cython.address(walk),
                    )
            finally:
                PyBuffer_Release(cython.address(buffer))
            self.latest_offset = walk.latest
            return walk.at, state, walk.records
        else:
            return pure_compaction.index(self, bytes(data), at, start_offset, flags)


@cython.final
@cython.cclass
class KeptBatches:
    """Collects the records that compaction keeps, in a block that the caller writes to a file.

    Args:
        offsets: the last offset of each key, as an OffsetMap.
        now_ms: milliseconds since 1970. Tombstones whose delete horizon has passed are removed.
        horizon_ms: delete horizon for batches that keep tombstones but have no delete horizon yet.
        upper_offset: the batch that ends right before this offset is kept, even if no record of it
            is kept.
        producers: last offset of each active producer. A producer's batch that ends with its last
            offset is kept, even if no record of it is kept.
        index_interval_bytes: bytes between two index entries.
        room: initial size of the block, in bytes.

    Attributes:
        read, kept, keyless: numbers of records that keep() has read, kept, and removed for lack of
            a key, in all segments.
        batches: number of batches kept, in all segments.
        max_timestamp_ms, max_timestamp_offset: the largest timestamp of the segment's kept batches,
            and the last offset of the batch that has it; -1 and the segment's base offset if
            there is no timestamp.
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
        """Empty the block, and start a new segment at file position 0."""
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
        """Read the batches that begin at byte `at` of `data`, and add the records that are kept.

        The compiled core releases the GIL.

        Args:
            flags: WALK_ONE, WALK_TRUSTED, WALK_KEEP_ALL, WALK_HORIZON.

        Returns:
            The position at which the pass ended, and the reason (WALK_END to WALK_CORRUPT). After
            WALK_FULL, the caller clears the block, or reserves a larger one if the block is empty.

        Source: Kafka's MemoryRecords.filterTo, LogCleaner.
        """
        self.map._check_open()
        if cython.compiled:
            view = memoryview(data).cast("B")
            buffer = cython.declare(Py_buffer)
            asked: cython.int = flags
            state: cython.int = 0
            c = cython.address(self.keeping)
            c.at = at
            c.latest = self.map.latest_offset
            PyObject_GetBuffer(view, cython.address(buffer), PyBUF_SIMPLE)
            try:
                if c.at < 0 or c.at > buffer.len:
                    raise ValueError("`at` is outside the data")
                with cython.nogil:
                    state = aiokq_keep(
                        c, cython.cast(cython.p_uchar, buffer.buf), buffer.len, asked
                    )
            finally:
                PyBuffer_Release(cython.address(buffer))
            return c.at, state
        else:
            return pure_compaction.keep(self, bytes(data), at, flags)

    def put(self, batch, last_offset, max_timestamp_ms):
        """Add a complete batch as it is; return False if the block has no space for it."""
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
        """Return whether the batch that ends with `last_offset` is kept even if it has no records.

        This holds for the batch before `upper_offset` and for the last batch of an active producer.
        """
        if cython.compiled:
            return bool(aiokq_stays_empty(cython.address(self.keeping), producer_id, last_offset))
        else:
            return last_offset + 1 == self.upper or (
                producer_id >= 0 and self.producers.get(producer_id) == last_offset
            )

    def reserve(self, room):
        """Enlarge the empty block to at least `room` bytes."""
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
        """Return the bytes in the block; valid until clear()."""
        if cython.compiled:
            return memoryview(self.block)[: self.keeping.used]
        else:
            return bytes(self.block)

    def clear(self):
        """Empty the block, which the caller has written, and return the index entries for it.

        An entry is (last offset and file position of a batch, largest timestamp so far, last offset
        of the batch with that timestamp), for the offset index and the time index.
        """
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


# ---------------------------------------------------------------- module initialization

if cython.compiled:
    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
    aiokq_crc32c_setup()
