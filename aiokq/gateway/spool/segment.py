"""`Segment`: a file with messages, and a second file with their outcomes.

`aiokq.fastpath.gateway.SpoolWriter` writes the messages in the inputs' threads. The file
`<base>.done` has 16 bytes for the sequence after the last message (zero while it is not known), and
then a bit per message. It is written without fsync: messages whose outcomes are lost are delivered
again. `Change` syncs it only before the next segment is deleted. Tests:
tests/unit/gateway/test_spool.py.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Final, NamedTuple

from aiokq.fastpath.gateway import SPOOL_HEADER_BYTES, spool_mark

__all__ = ["Outcomes", "Segment", "done_path", "segment_path", "sync_directory"]

DONE_HEADER_BYTES: Final = 16


def segment_path(directory: str, base: int) -> str:
    return f"{directory}/{base:020d}.spool"


def done_path(directory: str, base: int) -> str:
    return f"{directory}/{base:020d}.done"


class Outcomes(NamedTuple):
    """Outcomes to add to a segment's file of outcomes. Any thread may write them.

    Attributes:
        begin: index of the first byte of `bits`.
        bits: a bit per message, 1 if the message is finished.
        end: the sequence after the last message; None if the file has it, or if the segment may get
            more messages.
    """

    path: str
    begin: int
    bits: bytes
    end: int | None

    def write(self, *, sync: bool) -> None:
        """Write the outcomes to the file, and with `sync` to the disk.

        Raises:
            OSError: the file cannot be written.
        """
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _write(fd, self.bits, DONE_HEADER_BYTES + self.begin)
            if self.end is not None:
                _write(fd, self.end.to_bytes(8, "big") + bytes(8), 0)
            if sync:
                os.fdatasync(fd)
        finally:
            os.close(fd)


def sync_directory(path: str) -> None:
    """Write the names in a directory to the disk.

    Raises:
        OSError: the directory cannot be synced.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write(fd: int, data: bytes, position: int) -> None:
    if data and os.pwrite(fd, data, position) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Segment:
    """A file with the messages `base` to `end` - 1.

    Attributes:
        base: sequence of the first message.
        end: the sequence after the last message.
        size: number of valid bytes of the file.
        sealed: whether no more messages will be appended.
        damaged: whether some of its messages cannot be read.
    """

    __slots__ = (
        "_changed",
        "_directory",
        "_done",
        "_end_noted",
        "_fd",
        "_finished",
        "base",
        "damaged",
        "end",
        "sealed",
        "size",
    )

    def __init__(self, directory: str, base: int) -> None:
        self._directory = directory
        self.base = base
        self.end = base
        self.size = SPOOL_HEADER_BYTES
        self.sealed = False
        self.damaged = False
        self._fd = -1
        self._done = bytearray()
        self._finished = 0
        self._changed: tuple[int, int] | None = None
        self._end_noted = False

    @property
    def path(self) -> str:
        return segment_path(self._directory, self.base)

    @property
    def directory(self) -> str:
        return self._directory

    @property
    def left(self) -> int:
        """Number of messages without an outcome."""
        return self.end - self.base - self._finished

    @property
    def changed(self) -> bool:
        """Whether there are outcomes that are not yet written."""
        return self._changed is not None

    def extend(self, size: int, end: int, *, sealed: bool) -> None:
        """Set size and end after messages were appended."""
        self.size, self.end, self.sealed = size, end, sealed
        missing = (end - self.base + 7 >> 3) - len(self._done)
        if missing > 0:
            self._done.extend(bytes(missing))

    def load_done(self) -> int:
        """Read the file of outcomes; return the segment's `end` from it, or 0 if the file lacks it.

        Raises:
            OSError: the file cannot be read.
        """
        try:
            with open(done_path(self._directory, self.base), "rb") as file:
                stored = file.read()
        except FileNotFoundError:
            return 0
        if len(stored) < DONE_HEADER_BYTES:
            return 0
        self._done = bytearray(stored[DONE_HEADER_BYTES:])
        return int.from_bytes(stored[:8], "big")

    def settle_end(self, size: int, end: int) -> None:
        """Set size and end of a segment of an earlier process, and seal it.

        Call `load_done` first.
        """
        count = end - self.base
        del self._done[count + 7 >> 3 :]
        if count & 7 and len(self._done) == count + 7 >> 3:
            self._done[-1] &= (1 << (count & 7)) - 1
        self._finished = int.from_bytes(self._done, "big").bit_count()
        self.extend(size, end, sealed=True)

    # ------------------------------------------------------------ messages

    def read(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes at a position, but no bytes after `self.size`.

        Raises:
            OSError: the file cannot be read.
        """
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(self._fd, max(0, min(size, self.size - position)), position)

    def is_finished(self, sequence: int) -> bool:
        index = sequence - self.base
        return bool(self._done[index >> 3] >> (index & 7) & 1)

    def finished_in(self, first: int, end: int) -> int:
        """Return the number of finished messages from `first` to `end` - 1."""
        if not self._finished:
            return 0
        low, high = first - self.base, end - self.base
        bits = int.from_bytes(self._done[low >> 3 : high + 7 >> 3], "little") >> (low & 7)
        return (bits & ((1 << high - low) - 1)).bit_count()

    def finish_range(self, first: int, end: int) -> int:
        """Mark messages `first` to `end` - 1 as finished; return how many were unfinished."""
        low, high = first - self.base, end - self.base
        begin, stop = low >> 3, high + 7 >> 3
        before = int.from_bytes(self._done[begin:stop], "little")
        after = before | ((1 << high - low) - 1) << (low & 7)
        self._done[begin:stop] = after.to_bytes(stop - begin, "little")
        return self._note(after.bit_count() - before.bit_count(), begin, stop)

    def finish(self, sequences: memoryview) -> int:
        """Mark messages of this segment as finished; return how many were unfinished."""
        low, high = min(sequences) - self.base, max(sequences) - self.base
        count = spool_mark(self._done, self.base, sequences)
        return self._note(count, low >> 3, (high >> 3) + 1)

    def _note(self, count: int, begin: int, stop: int) -> int:
        self._finished += count
        if self._changed is not None:
            begin, stop = min(begin, self._changed[0]), max(stop, self._changed[1])
        self._changed = begin, stop
        return count

    # ------------------------------------------------------------ files

    def take_outcomes(self) -> Outcomes:
        """Return the unwritten outcomes, and treat them as written."""
        begin, stop = (0, 0) if self._changed is None else self._changed
        end = self.end if self.sealed and not self._end_noted else None
        self._changed = None
        self._end_noted = self._end_noted or end is not None
        path = done_path(self._directory, self.base)
        return Outcomes(path, begin, bytes(self._done[begin:stop]), end)

    def not_written(self, outcomes: Outcomes) -> None:
        """Treat taken outcomes as unwritten again, after a failed write."""
        if outcomes.bits:
            self._note(0, outcomes.begin, outcomes.begin + len(outcomes.bits))
        if outcomes.end is not None:
            self._end_noted = False

    def empty(self) -> None:
        """Free the blocks of a segment whose messages are all finished. Any thread.

        The file is kept, without content, because its name shows where the segment before it ends.
        A damaged segment is not changed.

        Raises:
            OSError: the file cannot be truncated.
        """
        if not self.damaged:
            os.truncate(self.path, 0)

    def remove(self) -> None:
        """Delete the files; keep a damaged segment under another name. Any thread.

        Raises:
            OSError: a file cannot be deleted; a later call deletes it.
        """
        self.close()
        with contextlib.suppress(FileNotFoundError):
            if self.damaged:
                os.rename(self.path, f"{self.path.removesuffix('.spool')}.damaged")
            else:
                os.unlink(self.path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(done_path(self._directory, self.base))

    def copy(self) -> Segment:
        """Return a copy of the segment for reads in another thread: its file and current size."""
        copied = Segment(self._directory, self.base)
        copied.size = self.size
        return copied

    def close(self) -> None:
        """Close the file. The next read opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def __repr__(self) -> str:
        return f"<Segment {self.base}..{self.end} left={self.left}>"
