"""SpoolWriter, and functions that read a spool's files.

This is the compiled form: the work is in spool.h, which inputs also call, without Python's lock.
If the module is not compiled, it exports what pure_spool.py defines. Tests:
tests/unit/fastpath/test_gateway_spool.py.
"""

# Hot path, measured by benchmarks/micro/gateway.py. Nothing in this file runs once per message.

from __future__ import annotations

import os

try:
    from aiokq.fastpath import cython_names as cython
except ImportError:  # never raised: `import cython` is only for the Cython compiler
    import cython

from aiokq.fastpath.gateway.values import (
    SPOOL_VERSION,
    SpoolCounts,
    SpoolFrame,
    SpoolProgress,
)

if cython.compiled:
    from cython.cimports.aiokq.fastpath.checksums import aiokq_crc32c, aiokq_crc32c_setup
    from cython.cimports.aiokq.fastpath.gateway.spool import (
        AIOKQ_SPOOL_FRAME,
        AIOKQ_SPOOL_FRAME_BYTES,
        aiokq_piece,
        aiokq_sealed,
        aiokq_spool,
        aiokq_spool_append,
        aiokq_spool_close,
        aiokq_spool_flush,
        aiokq_spool_frame,
        aiokq_spool_free,
        aiokq_spool_freed,
        aiokq_spool_interrupt,
        aiokq_spool_lock,
        aiokq_spool_make,
        aiokq_spool_mark,
        aiokq_spool_progress,
        aiokq_spool_unlock,
        aiokq_spool_wait,
    )
    from cython.cimports.aiokq.fastpath.native import (
        AIOKQ_SOURCE_HASH,
        Py_buffer,
        PyBUF_SIMPLE,
        PyBuffer_Release,
        PyMem_Free,
        PyMem_Malloc,
        PyObject_GetBuffer,
        aiokq_i64,
        aiokq_u32,
        int64_t,
        uint32_t,
    )
    from cython.cimports.libc.stdlib import free, realloc
    from cython.cimports.posix.unistd import getpid

__all__ = ["SpoolWriter", "spool_frames", "spool_mark", "spool_version"]

_MODES = ("never", "interval", "each")

if cython.compiled:

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _checksum(
        crc: uint32_t, at: cython.pointer(cython.const[cython.uchar]), size: cython.size_t
    ) -> uint32_t:
        return aiokq_crc32c(crc, at, size)


def spool_version(header):
    """Return the version in the header of a segment; -1 if the header is not valid."""
    buffer = cython.declare(Py_buffer)
    at: cython.p_uchar
    version: cython.int = -1
    PyObject_GetBuffer(header, cython.address(buffer), PyBUF_SIMPLE)
    try:
        at = cython.cast(cython.p_uchar, buffer.buf)
        if buffer.len >= 32 and at[:8] == b"AIOKQSPL":
            version = at[8] << 8 | at[9]
            if version == SPOOL_VERSION and aiokq_crc32c(0, at + 16, 16) != aiokq_u32(at + 12):
                version = -1
    finally:
        PyBuffer_Release(cython.address(buffer))
    return version


def spool_frames(data, position=0):
    """Return the frames from `position` on, up to the first incomplete or damaged frame."""
    buffer = cython.declare(Py_buffer)
    at: cython.p_uchar
    place: int64_t = position
    size: int64_t
    found = []
    PyObject_GetBuffer(data, cython.address(buffer), PyBUF_SIMPLE)
    try:
        while 0 <= place < buffer.len:
            at = cython.cast(cython.p_uchar, buffer.buf) + place
            size = aiokq_spool_frame(at, buffer.len - place, _checksum)
            if size == 0:
                break
            found.append(
                SpoolFrame(
                    place + AIOKQ_SPOOL_FRAME,
                    place + size,
                    aiokq_i64(at + 16),
                    aiokq_u32(at + 12),
                    aiokq_i64(at + 24),
                )
            )
            place += size
    finally:
        PyBuffer_Release(cython.address(buffer))
    return found


def spool_mark(done, base, sequences):
    """Set the bits of `sequences`, counted from `base`; return how many bits were newly set.

    Raises:
        IndexError: `done` has no bit for a sequence.
    """
    target = cython.declare(Py_buffer)
    given = cython.declare(Py_buffer)
    first: int64_t = base
    count: int64_t
    PyObject_GetBuffer(done, cython.address(target), PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(sequences, cython.address(given), PyBUF_SIMPLE)
        try:
            count = aiokq_spool_mark(
                cython.cast(cython.p_uchar, target.buf),
                target.len,
                first,
                cython.cast(cython.pointer(int64_t), given.buf),
                given.len // 8,
            )
        finally:
            PyBuffer_Release(cython.address(given))
    finally:
        PyBuffer_Release(cython.address(target))
    if count < 0:
        raise IndexError("sequence out of range")
    return count


@cython.final
@cython.cclass
class SpoolWriter:
    """Appends messages to the segments of a spool. Any thread may call all methods.

    Args:
        directory: an existing directory, which the caller has locked.
        sequence: the sequence of the first message.
        stored_bytes: total size of the existing segments.
        max_bytes: maximum total size of the segments; `freed` reports deleted segments.
        segment_bytes: size at which a new segment is begun.
        fsync: "never", "interval" (the owner calls `sync`), or "each": each append is synced before
            it is accepted.
        wake_fd: an eventfd; -1 for none. After each `progress` it is written at most once: when an
            append is accepted, or when an append is refused for lack of room while `progress` has
            finished segments to report.
    """

    def __init__(
        self,
        directory,
        *,
        sequence=0,
        stored_bytes=0,
        max_bytes,
        segment_bytes,
        fsync="never",
        wake_fd=-1,
    ):
        if self.spool != cython.NULL:
            raise RuntimeError("the writer is already initialized")
        if fsync not in _MODES:
            raise ValueError(f"fsync {fsync!r}: not never, interval or each")
        if max_bytes < 1 or segment_bytes < 1 or sequence < 0 or stored_bytes < 0:
            raise ValueError("a number is out of range")
        path: bytes = os.fsencode(directory)
        fd: cython.int = wake_fd
        spool: cython.pointer(aiokq_spool) = cython.cast(
            cython.pointer(aiokq_spool), PyMem_Malloc(cython.sizeof(aiokq_spool))
        )
        if spool == cython.NULL:
            raise MemoryError
        if not aiokq_spool_make(spool, path, _checksum):
            PyMem_Free(spool)
            raise MemoryError
        self.spool = spool
        self.pid = getpid()
        spool.sequence = sequence
        spool.stored = stored_bytes
        spool.max_bytes = max_bytes
        spool.segment_bytes = segment_bytes
        spool.sync = _MODES.index(fsync)
        spool.wake_fd = fd

    def __dealloc__(self):
        # A forked child leaves the memory alone: a thread of the parent may have held the mutex.
        if self.spool != cython.NULL and getpid() == self.pid:
            aiokq_spool_free(self.spool)
            PyMem_Free(self.spool)

    @cython.cfunc
    def _check(self):
        if self.spool == cython.NULL or getpid() != self.pid:
            raise RuntimeError("the spool belongs to the process that created it")

    def append(self, data, arrival_ms, *, force=False):
        """Append whole messages; return -1 if they are accepted, else the reason of the refusal.

        Args:
            arrival_ms: time at which the messages arrived, which is stored with them.
            force: append beyond `max_bytes`, if the disk has room.

        Raises:
            RuntimeError: the writer was created by another process, such as the parent of a fork.
            ValueError: `data` are not whole messages.
        """
        self._check()
        buffer = cython.declare(Py_buffer)
        arrival: int64_t = arrival_ms
        beyond: cython.int = bool(force)
        pieces: cython.pointer(aiokq_piece) = cython.NULL
        moved: cython.pointer(aiokq_piece)
        count: cython.int = 0
        room: cython.int = 0
        at: int64_t = 0
        own: int64_t
        reason: cython.int
        start: cython.p_uchar
        PyObject_GetBuffer(data, cython.address(buffer), PyBUF_SIMPLE)
        try:
            start = cython.cast(cython.p_uchar, buffer.buf)
            while at < buffer.len:
                own = aiokq_u32(start + at) if at + 4 <= buffer.len else 0
                if own < 4 or at + own > buffer.len:
                    raise ValueError("not whole messages")
                if count and pieces[count - 1].size + own <= AIOKQ_SPOOL_FRAME_BYTES:
                    pieces[count - 1].size += own
                    pieces[count - 1].messages += 1
                else:
                    if count == room:
                        room = 2 * room + 4
                        moved = cython.cast(
                            cython.pointer(aiokq_piece),
                            realloc(pieces, room * cython.sizeof(aiokq_piece)),
                        )
                        if moved == cython.NULL:
                            raise MemoryError
                        pieces = moved
                    pieces[count].at = start + at
                    pieces[count].size = own
                    pieces[count].messages = 1
                    count += 1
                at += own
            with cython.nogil:
                reason = aiokq_spool_append(self.spool, pieces, count, arrival, beyond)
        finally:
            free(pieces)
            PyBuffer_Release(cython.address(buffer))
        return reason

    def wait(self, size):
        """Wait a limited time until an append of `size` bytes may succeed.

        Return False if it never can, or if the writer is closed.
        """
        self._check()
        wanted: int64_t = size
        may: cython.int
        with cython.nogil:
            may = aiokq_spool_wait(self.spool, wanted, 2 * wanted // AIOKQ_SPOOL_FRAME_BYTES + 1)
        return bool(may)

    def interrupt(self):
        """End all calls of `wait`."""
        self._check()
        aiokq_spool_interrupt(self.spool)

    def progress(self):
        """Return the progress of the appends; each finished segment is reported once."""
        self._check()
        count: cython.int = 0
        now = cython.declare(aiokq_sealed)
        sealed: cython.pointer(aiokq_sealed)
        with cython.nogil:
            sealed = aiokq_spool_progress(self.spool, cython.address(count), cython.address(now))
        if sealed == cython.NULL:
            raise MemoryError
        try:
            finished = []
            for n in range(count):
                finished.append((sealed[n].base, sealed[n].end, sealed[n].sequence))
        finally:
            free(sealed)
        return SpoolProgress(tuple(finished), now.base, now.end, now.sequence)

    def freed(self, size):
        """Record that a segment of `size` bytes was deleted."""
        self._check()
        count: int64_t = size
        with cython.nogil:
            aiokq_spool_freed(self.spool, count)

    def sync(self):
        """Sync the appended messages, and wait for the disk; return 0 or the errno."""
        self._check()
        error: cython.int
        with cython.nogil:
            error = aiokq_spool_flush(self.spool)
        return error

    def counts(self):
        """Return one snapshot of the counts."""
        self._check()
        spool: cython.pointer(aiokq_spool) = self.spool
        appended: int64_t
        appended_bytes: int64_t
        sequence: int64_t
        stored: int64_t
        failures: int64_t
        error: cython.int
        with cython.nogil:
            aiokq_spool_lock(spool)
        appended, appended_bytes = spool.appended, spool.appended_bytes
        sequence, stored, failures = spool.sequence, spool.stored, spool.failures
        error = spool.error if spool.error else spool.sync_error
        aiokq_spool_unlock(spool)
        return SpoolCounts(appended, appended_bytes, sequence, stored, failures, error)

    def close(self):
        """Close the files; later appends fail. May be called twice."""
        if self.spool != cython.NULL and getpid() == self.pid:
            with cython.nogil:
                aiokq_spool_close(self.spool)


# ---------------------------------------------------------------- module initialization

if cython.compiled:
    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
    aiokq_crc32c_setup()
else:
    from aiokq.fastpath.gateway.pure_spool import (
        SpoolWriter,
        spool_frames,
        spool_mark,
        spool_version,
    )
