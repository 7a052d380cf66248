"""Owns access to files, so that a simulation can have its own disk; no file format.

All calls are synchronous: they are for the page cache. A call that may really wait for the
disk (`sync`, a cold read) belongs behind Offload. Failures are OSError, as the system raised
them. Tests: tests/unit/core/test_files.py, which also holds the simulation's disk to this.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from aiokq.core.descriptor_reserve import PROCESS
from aiokq.core.frozen import frozen
from aiokq.core.locks import FileLock
from aiokq.core.types import Buffer

Path: TypeAlias = "str | os.PathLike[str]"

IOV_MAX = os.sysconf("SC_IOV_MAX") if hasattr(os, "sysconf") else 16
"""Most buffers one pwritev takes."""

_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_SAMPLE_BYTES = 128 * 1024
"""Linux reads ahead by so much: what it dropped or never read is rarely smaller."""

_WHOLE_BYTES = 16 * 1024
"""To read so much takes less time than two samples of it."""

_LOAD_BYTES = 256 * 1024


class File(Protocol):
    """One open file, read and written at positions."""

    @property
    def path(self) -> str: ...

    @property
    def closed(self) -> bool: ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes from `position`; fewer only at the end of the file."""
        ...

    def preadinto(self, buffer: bytearray | memoryview, position: int) -> int:
        """Fills `buffer` from `position`; how many bytes, fewer only at the end of the file."""
        ...

    def pread_cached(self, length: int, position: int) -> bytes | bytearray:
        """As `pread`, but only what is in memory: without waiting for the disk.

        Where the system cannot tell, it waits.
        """
        ...

    def cached(self, length: int, position: int) -> bool:
        """Whether these bytes can be read without waiting for the disk.

        A guess from samples; True where the system cannot tell.
        """
        ...

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        """Writes all of `buffers` at `position`; how many bytes.

        When it raises, a part may have been written: truncate back to what was there.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cuts, or extends with zeros, to `size` bytes."""
        ...

    def sync(self) -> None:
        """Returns once the content, and the size needed to read it, would survive a power cut."""
        ...

    def size(self) -> int:
        """In bytes."""
        ...

    def fileno(self) -> int | None:
        """For os.sendfile; None where there is no descriptor."""
        ...

    def close(self) -> None:
        """Once is enough, twice is harmless."""
        ...


class Lock(Protocol):
    """A held lock file."""

    def release(self) -> None:
        """Once is enough, twice is harmless."""
        ...


class Files(Protocol):
    """A file system."""

    def open(
        self, path: Path, *, create: bool = False, exclusive: bool = False, writable: bool = True
    ) -> File:
        """Opens for reading and, if `writable`, writing.

        Args:
            create: make it if it is missing.
            exclusive: make it, and raise FileExistsError if it is there.
        """
        ...

    def listdir(self, path: Path) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def mkdirs(self, path: Path) -> None:
        """Makes a directory and its parents; those that exist are left."""
        ...

    def exists(self, path: Path) -> bool: ...

    def is_dir(self, path: Path) -> bool: ...

    def remove(self, path: Path) -> None: ...

    def remove_tree(self, path: Path) -> None:
        """A directory with all in it, or a file."""
        ...

    def rename(self, src: Path, dst: Path) -> None:
        """Atomic; a file at `dst` is replaced. Durable after sync_dir of the parents."""
        ...

    def link(self, src: Path, dst: Path) -> None:
        """Gives a file a second name. Raises OSError where that cannot be, as between disks."""
        ...

    def sync_dir(self, path: Path) -> None:
        """Makes the names in a directory durable."""
        ...

    def lock(self, path: Path) -> Lock:
        """Locks a file, which is made if missing, against every process and this one.

        Raises:
            BlockingIOError: someone holds it.
        """
        ...

    def read_bytes(self, path: Path) -> bytes: ...

    def write_atomic(self, path: Path, data: Buffer) -> None:
        """Replaces a file so that after any crash either the old or the new one is there, whole.

        Durable when it returns.
        """
        ...

    def stat_size(self, path: Path) -> int:
        """In bytes."""
        ...

    def modified_ms(self, path: Path) -> int:
        """Time of the last write, milliseconds since the epoch."""
        ...

    def disk_usage(self, path: Path) -> tuple[int, int]:
        """Bytes of the disk that `path` is on, and how many of them may still be used."""
        ...

    def set_modified_ms(self, path: Path, timestamp_ms: int) -> None:
        """What `modified_ms` says from now on: a copy is as old as its original."""
        ...


@frozen
class FileRange:
    """Bytes of an open file, sent without being read where the transport can."""

    file: File
    position: int
    length: int

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """The bytes. Raises EOFError if the file ends before."""
        data = self.file.pread(self.length, self.position)
        if len(data) != self.length:
            raise EOFError(
                f"{self.file.path}: {self.length} bytes at {self.position} expected, "
                f"{len(data)} there"
            )
        return data

    def cached(self) -> bool:
        """Whether they can be read without waiting for the disk: see `File.cached`."""
        return self.file.cached(self.length, self.position)

    def load(self) -> None:
        """Have the bytes read into the system's cache: may wait for the disk. Raises OSError."""
        end = self.position + self.length
        for position in range(self.position, end, _LOAD_BYTES):
            self.file.pread(min(_LOAD_BYTES, end - position), position)


class OsFile:
    """A descriptor of the operating system, closed at the latest when nobody refers to it."""

    __slots__ = ("_fd", "_path", "_tells")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path
        self._tells = bool(_NOWAIT)  # the system tells what is in memory

    @property
    def path(self) -> str:
        return self._path

    @property
    def closed(self) -> bool:
        return self._fd < 0

    def pread(self, length: int, position: int) -> bytes:
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        # One call gives at most 2 GiB, and a signal may end it early: only b"" is the end.
        parts = [data]
        got = len(data)
        while got < length and (data := os.pread(self._fd, length - got, position + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def preadinto(self, buffer: bytearray | memoryview, position: int) -> int:
        view = memoryview(buffer).cast("B")
        got = 0
        while got < len(view) and (n := os.preadv(self._fd, [view[got:]], position + got)):
            got += n
        return got

    def pread_cached(self, length: int, position: int) -> bytes | bytearray:
        # hot: benchmarks/raw_load.py; one call, as `pread`.
        if not self._tells:
            return self.pread(length, position)
        buffer = bytearray(length)
        try:
            got = os.preadv(self._fd, (buffer,), position, _NOWAIT)
        except BlockingIOError:
            return b""
        except OSError as error:
            # this file system cannot tell; what else is wrong, a read says better
            self._tells = error.errno != errno.EOPNOTSUPP
            return self.pread(length, position)
        if got < length:
            del buffer[got:]
        return buffer

    def cached(self, length: int, position: int) -> bool:
        # hot: benchmarks/raw_load.py; a call takes 0.6 µs, 16 KiB in one 0.5 more.
        if not length or not self._tells:
            return True
        fd, buffer = self._fd, (bytearray(1),)
        try:
            if length <= _WHOLE_BYTES:
                return os.preadv(fd, (bytearray(length),), position, _NOWAIT) == length
            for sample in range(position, position + length, _SAMPLE_BYTES):
                os.preadv(fd, buffer, sample, _NOWAIT)
            os.preadv(fd, buffer, position + length - 1, _NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            self._tells = error.errno != errno.EOPNOTSUPP
            return True
        return True

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        total = 0
        for buffer in buffers:  # hot: benchmarks/micro/produce.py
            total += buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)
        if len(buffers) <= IOV_MAX:
            written = os.pwritev(self._fd, buffers, position)
            if written == total:
                return total
        else:
            written = 0
        views = [memoryview(b).cast("B") for b in buffers]
        first = 0
        skip = written
        while True:
            while first < len(views) and skip >= len(views[first]):
                skip -= len(views[first])
                first += 1
            if first == len(views):
                return total
            if skip:
                views[first] = views[first][skip:]
            # A short write means a nearly full disk, a signal or the 2 GiB limit; the next
            # call tells which, and raises where it must.
            skip = os.pwritev(self._fd, views[first : first + IOV_MAX], position + written)
            written += skip

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        # fdatasync leaves out times, but not the size, which is all a log needs.
        getattr(os, "fdatasync", os.fsync)(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def fileno(self) -> int | None:
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    # Whoever shares a file cannot know who uses it last; and no error path leaks a descriptor.
    __del__ = close

    def __repr__(self) -> str:
        return f"<OsFile {self._path}{' closed' if self.closed else ''}>"


class OsFiles:
    """The operating system's files."""

    __slots__ = ()

    def open(
        self, path: Path, *, create: bool = False, exclusive: bool = False, writable: bool = True
    ) -> OsFile:
        flags = (os.O_RDWR if writable else os.O_RDONLY) | getattr(os, "O_CLOEXEC", 0)
        if exclusive:
            flags |= os.O_CREAT | os.O_EXCL
        elif create:
            flags |= os.O_CREAT
        file = OsFile(os.open(path, flags, 0o644), os.fspath(path))
        PROCESS.taken()
        return file

    def listdir(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def mkdirs(self, path: Path) -> None:
        os.makedirs(path, exist_ok=True)

    def exists(self, path: Path) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: Path) -> bool:
        return os.path.isdir(path)

    def remove(self, path: Path) -> None:
        os.remove(path)

    def remove_tree(self, path: Path) -> None:
        if os.path.isdir(path) and not os.path.islink(path):
            import shutil  # it brings compression along, for which no start should wait

            shutil.rmtree(path)
        else:
            os.remove(path)

    def rename(self, src: Path, dst: Path) -> None:
        os.replace(src, dst)

    def link(self, src: Path, dst: Path) -> None:
        os.link(src, dst)

    def sync_dir(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: Path) -> Lock:
        return FileLock.acquire(os.fspath(path))

    def read_bytes(self, path: Path) -> bytes:
        with open(path, "rb", buffering=0) as file:  # at once: a buffer costs two calls more
            return file.readall()

    def write_atomic(self, path: Path, data: Buffer) -> None:
        path = os.fspath(path)
        temporary = path + ".tmp"  # as Kafka names them: its log loader removes stray ones
        file = OsFile(
            os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644),
            temporary,
        )
        try:
            file.pwritev([data], 0)
            file.sync()
        finally:
            file.close()
        os.replace(temporary, path)
        self.sync_dir(os.path.dirname(path) or ".")

    def stat_size(self, path: Path) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: Path) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def disk_usage(self, path: Path) -> tuple[int, int]:
        import shutil

        usage = shutil.disk_usage(path)
        return usage.total, usage.free

    def set_modified_ms(self, path: Path, timestamp_ms: int) -> None:
        os.utime(path, ns=(timestamp_ms * 1_000_000, timestamp_ms * 1_000_000))
