"""The gateway's spool in Python, for builds without the compiled core; see spool.h.

A segment is a file `<base sequence, 20 digits>.spool`: a header, then frames. All numbers are
big-endian.

    header  magic "AIOKQSPL", version (uint16), zero (uint16), CRC-32C of the rest (uint32),
            base sequence (int64), creation time in ms (int64)
    frame   magic "aKqF", bytes of its messages (uint32), CRC-32C of the rest of the frame (uint32),
            number of messages (uint32), sequence of the first one (int64), arrival in ms (int64),
            then the messages as they were sent, one after the other

Tests: tests/unit/fastpath/test_gateway_spool.py runs both implementations.
"""

# Hot path, measured by benchmarks/micro/gateway.py with the pure core.

from __future__ import annotations

import errno
import os
import struct
import threading
import time
from typing import Final

from aiokq.core.types import Buffer
from aiokq.fastpath import crc32c
from aiokq.fastpath.gateway.values import (
    SPOOL_ERROR,
    SPOOL_FULL,
    SPOOL_VERSION,
    SpoolCounts,
    SpoolFrame,
    SpoolProgress,
)

MAGIC: Final = b"AIOKQSPL"
FRAME_MAGIC: Final = b"aKqF"
HEADER: Final = struct.Struct(">8sHHIqq")
FRAME: Final = struct.Struct(">4sIIIqq")
CHECKED: Final = 12
"""Position of the first byte of a frame that its CRC covers.

The CRC of a segment's header covers the bytes from 16, the position of the base sequence.
"""

FRAME_BYTES: Final = 64 * 1024
"""Approximate size in bytes of the frames into which the messages of one append are divided.

Damage to a byte loses one frame.
"""

RETRY_SECONDS: Final = (0.05, 2.0)
"""Shortest and longest time between two attempts after a failure."""

FULL_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def spool_header(base: int, created_ms: int) -> bytes:
    """Return the header of a segment."""
    tail = struct.pack(">qq", base, created_ms)
    return HEADER.pack(MAGIC, SPOOL_VERSION, 0, crc32c(tail), base, created_ms)


def spool_version(header: Buffer) -> int:
    """Return the version in the header of a segment; -1 if the header is not valid."""
    if len(header) < HEADER.size:
        return -1
    magic, version, _, crc, *_ = HEADER.unpack_from(header)
    if magic != MAGIC:
        return -1
    if version == SPOOL_VERSION and crc32c(bytes(header[16:32])) != crc:
        return -1
    return int(version)


def spool_frames(data: Buffer, position: int = 0) -> list[SpoolFrame]:
    """Return the frames from `position` on, up to the first incomplete or damaged frame."""
    view = memoryview(data).cast("B")
    found: list[SpoolFrame] = []
    while position + FRAME.size <= len(view):
        magic, size, crc, messages, sequence, arrival = FRAME.unpack_from(view, position)
        begin = position + FRAME.size
        end = begin + size
        if magic != FRAME_MAGIC or end > len(view):
            break
        if crc32c(view[position + CHECKED : end]) != crc:
            break
        found.append(SpoolFrame(begin, end, sequence, messages, arrival))
        position = end
    return found


def spool_mark(done: bytearray, base: int, sequences: memoryview) -> int:
    """Set the bits of `sequences`, counted from `base`; return how many bits were newly set.

    Raises:
        IndexError: `done` has no bit for a sequence.
    """
    count = 0
    for sequence in sequences:
        index = sequence - base
        if index < 0:
            raise IndexError("sequence out of range")
        bit = 1 << (index & 7)
        if not done[index >> 3] & bit:
            done[index >> 3] |= bit
            count += 1
    return count


def _frames_of(data: memoryview, sequence: int, arrival_ms: int) -> tuple[list[Buffer], int]:
    """Return messages as frames, in parts to write, and the number of messages."""
    parts: list[Buffer] = []
    total = at = 0
    while at < len(data):
        begin, messages = at, 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 4], "big")
            if size < 4 or at + size > len(data):
                raise ValueError("not whole messages")
            if messages and at + size - begin > FRAME_BYTES:
                break
            at += size
            messages += 1
        tail = struct.pack(">Iqq", messages, sequence + total, arrival_ms)
        crc = crc32c(data[begin:at], crc32c(tail))
        parts.append(struct.pack(">4sII", FRAME_MAGIC, at - begin, crc) + tail)
        parts.append(data[begin:at])
        total += messages
    return parts, total


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
        directory: str,
        *,
        sequence: int = 0,
        stored_bytes: int = 0,
        max_bytes: int,
        segment_bytes: int,
        fsync: str = "never",
        wake_fd: int = -1,
    ) -> None:
        if fsync not in ("never", "interval", "each"):
            raise ValueError(f"fsync {fsync!r}: not never, interval or each")
        if max_bytes < 1 or segment_bytes < 1 or sequence < 0 or stored_bytes < 0:
            raise ValueError("a number is out of range")
        self._directory = directory
        self._sequence = sequence
        self._stored = stored_bytes
        self._max_bytes = max_bytes
        self._segment_bytes = segment_bytes
        self._fsync = fsync
        self._wake_fd = wake_fd
        self._woken = False
        self._pid = os.getpid()
        self._writing = threading.Lock()  # held during writes
        self._lock = threading.Lock()  # guards all fields, and is not held during a write
        self._changed = threading.Condition(self._lock)
        self._fd = -1
        self._base = -1
        self._end = 0
        self._sealed: list[tuple[int, int, int]] = []
        self._unsynced: list[int] = []
        self._dirty = self._named = False
        self._failure = -1
        self._errno = self._sync_errno = 0
        self._pause = 0.0
        self._retry_at = 0.0
        self._appended = self._appended_bytes = self._failures = 0
        self._closed = False

    # ------------------------------------------------------------ for inputs

    def append(self, data: Buffer, arrival_ms: int, *, force: bool = False) -> int:
        """Append whole messages; return -1 if they are accepted, else the reason of the refusal.

        Args:
            arrival_ms: time at which the messages arrived, which is stored with them.
            force: append beyond `max_bytes`, if the disk has room.

        Raises:
            RuntimeError: the writer was created by another process, such as the parent of a fork.
            ValueError: `data` are not whole messages.
        """
        view = memoryview(data).cast("B")
        if os.getpid() != self._pid:
            raise RuntimeError("the spool belongs to the process that created it")
        with self._writing:
            with self._lock:
                if self._closed:
                    return SPOOL_ERROR
                if self._failure >= 0 and time.monotonic() < self._retry_at:
                    return self._failure
            parts, messages = _frames_of(view, self._sequence, arrival_ms)
            size = sum(len(part) for part in parts)
            if not messages:
                return -1
            with self._lock:
                roll = self._fd < 0 or (
                    self._end + size > self._segment_bytes and self._end > HEADER.size
                )
                need = size + (HEADER.size if roll else 0)
                full = self._stored + need > self._max_bytes and not force
                # Only a finished segment can be deleted. To avoid many small segments, a segment
                # that is less than half full is finished only if these messages would not fit even
                # after all other segments are deleted.
                if (
                    full
                    and self._end > HEADER.size
                    and (
                        2 * self._end >= self._segment_bytes
                        or self._end + size + HEADER.size > self._max_bytes
                    )
                ):
                    self._seal()
                wakes = full and bool(self._sealed) and not self._woken
                self._woken = self._woken or wakes
            if full:
                if wakes:
                    self._wake()
                return SPOOL_FULL
            try:
                if roll:
                    self._begin_segment()
                self._write(parts, size)
            except OSError as error:
                with self._lock:
                    return self._failed(error)
            with self._lock:
                self._failure, self._errno, self._pause = -1, 0, 0.0
                self._end += size
                self._stored += size
                self._sequence += messages
                self._appended += messages
                self._appended_bytes += len(view)
                self._dirty = True
                wakes, self._woken = not self._woken, True
        if wakes:
            self._wake()
        return -1

    def _wake(self) -> None:
        if self._wake_fd >= 0:
            try:
                os.write(self._wake_fd, _ONE)
            except OSError:
                pass  # the loop has closed the eventfd

    def wait(self, size: int) -> bool:
        """Wait a limited time until an append of `size` bytes may succeed.

        Return False if it never can, or if the writer is closed.
        """
        with self._lock:
            if not self.fits(size) or self._closed:
                return False
            pause = RETRY_SECONDS[0]
            if self._failure >= 0:
                pause = max(self._retry_at - time.monotonic(), 0.001)
            self._changed.wait(pause)
            return True

    def fits(self, size: int) -> bool:
        """Return whether messages of `size` bytes fit into the spool when it is empty."""
        frames = 2 * size // FRAME_BYTES + 2  # at most, and one to spare
        return size + frames * FRAME.size + HEADER.size <= self._max_bytes

    def full(self) -> bool:
        """Return whether the segments are as large as they may be."""
        with self._lock:
            return self._stored >= self._max_bytes

    def interrupt(self) -> None:
        """End all calls of `wait`."""
        with self._lock:
            self._changed.notify_all()

    # ------------------------------------------------------------ for the event loop

    def progress(self) -> SpoolProgress:
        """Return the progress of the appends; each finished segment is reported once."""
        with self._lock:
            self._woken = False
            sealed, self._sealed = self._sealed, []
            return SpoolProgress(tuple(sealed), self._base, self._end, self._sequence)

    def freed(self, size: int) -> None:
        """Record that a segment of `size` bytes was deleted."""
        with self._lock:
            self._stored -= size
            self._changed.notify_all()

    def sync(self) -> int:
        """Sync the appended messages, and wait for the disk; return 0 or the errno."""
        with self._lock:
            if not self._dirty and not self._unsynced:
                return 0
            fds, self._unsynced = self._unsynced, []
            if self._dirty and self._fd >= 0:
                try:
                    fds.append(os.dup(self._fd))
                except OSError as error:
                    self._unsynced = fds
                    self._sync_errno = error.errno or errno.EIO
                    self._failures += 1
                    return self._sync_errno
            base, named = self._base, self._named
            self._dirty = self._named = False
        failed = 0
        for fd in fds:
            try:
                os.fdatasync(fd)
            except OSError as error:
                failed = error.errno or errno.EIO
            os.close(fd)
        if named:
            try:
                self._sync_directory()
            except OSError as error:
                failed = error.errno or errno.EIO
        if not failed:
            with self._lock:
                self._sync_errno = 0
            return 0
        with self._writing, self._lock:
            self._sync_errno = failed
            # The system may consider the pages as written. Later messages go to another file.
            self._failures += 1
            self._dirty = True
            self._named = self._named or named
            if self._base == base:
                self._seal()
        return failed

    def counts(self) -> SpoolCounts:
        """Return one snapshot of the counts."""
        with self._lock:
            return SpoolCounts(
                self._appended,
                self._appended_bytes,
                self._sequence,
                self._stored,
                self._failures,
                self._errno or self._sync_errno,
            )

    def close(self) -> None:
        """Close the files; later appends fail. May be called twice."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._closed = True
            self._changed.notify_all()
        with self._writing, self._lock:
            for fd in (self._fd, *self._unsynced):
                if fd >= 0:
                    os.close(fd)
            self._fd = -1
            self._unsynced = []

    # ------------------------------------------------------------ internal, under `_writing`

    def _begin_segment(self) -> None:
        """Begin a segment; finish the old segment only when the new one exists."""
        path = f"{self._directory}/{self._sequence:020d}.spool"
        # An existing file of this name has no accepted messages.
        fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            header = spool_header(self._sequence, time.time_ns() // 1_000_000)
            if os.pwrite(fd, header, 0) != len(header):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self._fsync == "each":
                self._sync_directory()
        except BaseException:
            os.close(fd)
            try:
                os.unlink(path)
            except OSError:
                pass  # the file has no messages, and the next start removes it
            raise
        with self._lock:
            self._seal()
            self._fd, self._base, self._end = fd, self._sequence, HEADER.size
            self._stored += HEADER.size
            self._named = True

    def _seal(self) -> None:
        """Finish the current segment, under the lock; the next append begins another one."""
        if self._fd < 0:
            return
        if self._end > HEADER.size:
            self._sealed.append((self._base, self._end, self._sequence))
        else:
            self._stored -= HEADER.size
        if self._fsync == "interval":
            self._unsynced.append(self._fd)
        else:
            os.close(self._fd)
        self._fd, self._base, self._end = -1, -1, 0

    def _write(self, parts: list[Buffer], size: int) -> None:
        """Write all parts at the end of the segment, or none."""
        try:
            at, written = self._end, 0
            data = b"".join(parts)
            while written < size:
                # A short write means a nearly full disk; the next call raises the error.
                one = os.pwrite(self._fd, data[written:] if written else data, at + written)
                if not one:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                written += one
            if self._fsync == "each":
                os.fdatasync(self._fd)
        except OSError:
            synced = self._fsync == "each" and written == size
            try:
                os.ftruncate(self._fd, self._end)
            except OSError:
                synced = True
            if synced:
                # After a failed fsync the system may consider the pages as written, so this file
                # gets no further messages; bytes after its end are not read.
                with self._lock:
                    self._failures += 1
                    self._seal()
            raise

    def _failed(self, error: OSError) -> int:
        self._errno = error.errno or errno.EIO
        self._failure = SPOOL_FULL if self._errno in FULL_ERRORS else SPOOL_ERROR
        self._pause = min(2 * self._pause or RETRY_SECONDS[0], RETRY_SECONDS[1])
        self._retry_at = time.monotonic() + self._pause
        return self._failure

    def _sync_directory(self) -> None:
        fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


_ONE: Final = (1).to_bytes(8, "little")
