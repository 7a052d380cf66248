"""File, Files and FileRange: file access that a simulation can replace by its own disk.

All calls are synchronous, because most of them only use the page cache. Run calls that may wait for
the disk (`sync`, a cold read) through Offload. Failures are raised as the system's OSError.
Tests: tests/unit/core/test_files.py, which also tests the simulated disk.
"""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Sequence
from typing import ClassVar, Final, Protocol, Self, TypeAlias

from aiokq.core.descriptor_reserve import PROCESS
from aiokq.core.frozen import frozen
from aiokq.core.locks import FileLock
from aiokq.core.regular_files import open_regular
from aiokq.core.types import Buffer

Path: TypeAlias = "str | os.PathLike[str]"

IOV_MAX = os.sysconf("SC_IOV_MAX") if hasattr(os, "sysconf") else 16
"""Maximum number of buffers of one pwritev call."""

OWNER_ONLY: Final = 0o600
"""Permissions of a file that only its owner may read and write."""

_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_SAMPLE_BYTES = 128 * 1024
"""Distance in bytes between the samples of `OsFile.cached`.

The distance equals Linux's default read-ahead. An uncached part of a file is rarely smaller than
the read-ahead, so a sample usually falls into each uncached part.
"""

_WHOLE_BYTES = 16 * 1024
"""Size in bytes up to which `OsFile.cached` reads the whole range, which is faster than samples."""

_LOAD_BYTES = 256 * 1024


class File(Protocol):
    """An open file, read and written at explicit positions."""

    @property
    def path(self) -> str: ...

    @property
    def closed(self) -> bool: ...

    def pread(self, length: int, position: int) -> bytes:
        """Return up to `length` bytes at `position`; fewer only at the end of the file."""
        ...

    def preadinto(self, buffer: bytearray | memoryview, position: int) -> int:
        """Fill `buffer`, except at the end of the file; return the number of bytes read."""
        ...

    def pread_cached(self, length: int, position: int) -> bytes | bytearray:
        """Return what `pread` would return, up to the first byte that is not in the page cache.

        Waits for the disk on systems that do not report what is cached.
        """
        ...

    def cached(self, length: int, position: int) -> bool:
        """Return whether the `length` bytes at `position` can be read without waiting for the disk.

        The result is an estimate from samples. It is True on systems that do not report what is
        cached.
        """
        ...

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write all of `buffers` at `position`; return the number of bytes written.

        If the call fails, some bytes may have been written: truncate the file to its previous size.
        """
        ...

    def truncate(self, size: int) -> None:
        """Shorten the file to `size` bytes, or extend it with zeros."""
        ...

    def sync(self) -> None:
        """Write the content and the size of the file to the disk; wait until both are durable."""
        ...

    def size(self) -> int:
        """Return the size in bytes."""
        ...

    def fileno(self) -> int | None:
        """Return the descriptor for os.sendfile; None for a file without one."""
        ...

    def close(self) -> None:
        """Close the file. May be called twice."""
        ...


class Lock(Protocol):
    """A held lock on a file."""

    def release(self) -> None:
        """Release the lock. May be called twice."""
        ...


class Files(Protocol):
    """A file system."""

    def private(self) -> Files:
        """Return this file system with permissions that let only the owner read new files.

        The returned object creates files with these permissions. Existing files keep theirs.
        """
        ...

    def open(
        self, path: Path, *, create: bool = False, exclusive: bool = False, writable: bool = True
    ) -> File:
        """Open a file for reading and, if `writable`, for writing.

        Args:
            create: create the file if it does not exist.
            exclusive: create the file; raise FileExistsError if it exists.

        Raises:
            NotRegularFile, IsADirectoryError: `path` is a FIFO, socket, device or directory.
        """
        ...

    def listdir(self, path: Path) -> list[str]:
        """Return the sorted names in a directory."""
        ...

    def mkdirs(self, path: Path) -> None:
        """Create a directory and its parents; existing directories are kept."""
        ...

    def exists(self, path: Path) -> bool: ...

    def is_dir(self, path: Path) -> bool: ...

    def real_path(self, path: Path) -> str:
        """Return the absolute path without symbolic links; `path` need not exist."""
        ...

    def remove(self, path: Path) -> None: ...

    def remove_tree(self, path: Path) -> None:
        """Remove a file, or a directory with its content."""
        ...

    def rename(self, src: Path, dst: Path) -> None:
        """Rename atomically, replacing a file at `dst`. Durable after sync_dir() of the parents."""
        ...

    def link(self, src: Path, dst: Path) -> None:
        """Create `dst` as a hard link to `src`. Raises OSError, for example across file systems."""
        ...

    def sync_dir(self, path: Path) -> None:
        """Make the names in a directory durable."""
        ...

    def lock(self, path: Path) -> Lock:
        """Take an exclusive lock on a file; create the file if it is missing.

        The lock excludes other processes and further calls in this process.

        Raises:
            BlockingIOError: the file is already locked.
        """
        ...

    def read_bytes(self, path: Path) -> bytes: ...

    def write_atomic(self, path: Path, data: Buffer) -> None:
        """Replace a file atomically: a crash leaves either the old or the new content, never a mix.

        The new content is durable when the call returns.
        """
        ...

    def stat_size(self, path: Path) -> int:
        """Return the size of a file in bytes."""
        ...

    def modified_ms(self, path: Path) -> int:
        """Return the time of a file's last write in milliseconds since 1970."""
        ...

    def disk_usage(self, path: Path) -> tuple[int, int]:
        """Return the size of the disk of `path` and the space available on it, both in bytes."""
        ...

    def chmod(self, path: Path, mode: int) -> None:
        """Set the permissions of a file. With 0o400, for example, only root may write to it."""
        ...

    def set_modified_ms(self, path: Path, timestamp_ms: int) -> None:
        """Set the time of the last write, so that a copy can keep the time of its original."""
        ...


@frozen
class FileRange:
    """A range of an open file. A transport may send the range with sendfile."""

    file: File
    position: int
    length: int

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """Return the bytes. Raises EOFError if the file is too short."""
        data = self.file.pread(self.length, self.position)
        if len(data) != self.length:
            raise EOFError(
                f"{self.file.path}: {self.length} bytes at {self.position} expected, "
                f"{len(data)} there"
            )
        return data

    def cached(self) -> bool:
        """Return whether the range can be read without waiting for the disk; see `File.cached`."""
        return self.file.cached(self.length, self.position)

    def load(self) -> None:
        """Read the range into the page cache; may wait for the disk. Raises OSError."""
        end = self.position + self.length
        for position in range(self.position, end, _LOAD_BYTES):
            self.file.pread(min(_LOAD_BYTES, end - position), position)


class OsFile:
    """A file of the operating system; closed when it is garbage-collected, at the latest."""

    __slots__ = ("_fd", "_path", "_tells")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path
        self._tells = bool(_NOWAIT)  # whether the system reports what is cached

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
        # One call returns at most 2 GiB, or less after a signal; only b"" means the end of the
        # file.
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
        # Hot path, measured by benchmarks/raw_load.py.
        if not self._tells:
            return self.pread(length, position)
        buffer = bytearray(length)
        try:
            got = os.preadv(self._fd, (buffer,), position, _NOWAIT)
        except BlockingIOError:
            return b""
        except OSError as error:
            # EOPNOTSUPP: this file system does not support RWF_NOWAIT. Any other error is raised by
            # `pread`, if it persists.
            self._tells = error.errno != errno.EOPNOTSUPP
            return self.pread(length, position)
        if got < length:
            del buffer[got:]
        return buffer

    def cached(self, length: int, position: int) -> bool:
        # Hot path, measured by benchmarks/raw_load.py. A preadv of 16 KiB takes 1.1 µs, which is
        # less than two samples take: a preadv of 1 byte takes 0.6 µs.
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
        for buffer in buffers:  # hot path, measured by benchmarks/micro/produce.py
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
            # A short write means a nearly full disk, a signal or the 2 GiB limit; the next call
            # raises the error if there is one.
            skip = os.pwritev(self._fd, views[first : first + IOV_MAX], position + written)
            written += skip

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        # fdatasync writes data and size, but not the times, which a log does not need.
        getattr(os, "fdatasync", os.fsync)(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def fileno(self) -> int | None:
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    # Closes a shared file after its last user has dropped it, and a file that an error left open.
    __del__ = close

    def __repr__(self) -> str:
        return f"<OsFile {self._path}{' closed' if self.closed else ''}>"


class OsFiles:
    """The file system of the operating system."""

    __slots__ = ("_mode",)

    file_type: ClassVar[type[OsFile]] = OsFile
    """The class of opened files."""

    def __init__(self) -> None:
        self._mode = 0o644

    def private(self) -> Self:
        files = copy.copy(self)
        files._mode = OWNER_ONLY
        return files

    def open(
        self, path: Path, *, create: bool = False, exclusive: bool = False, writable: bool = True
    ) -> OsFile:
        flags = os.O_RDWR if writable else os.O_RDONLY
        if exclusive:
            flags |= os.O_CREAT | os.O_EXCL
        elif create:
            flags |= os.O_CREAT
        file = self.file_type(open_regular(path, flags, self._mode)[0], os.fspath(path))
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

    def real_path(self, path: Path) -> str:
        return os.path.realpath(os.fspath(path))

    def remove(self, path: Path) -> None:
        os.remove(path)

    def remove_tree(self, path: Path) -> None:
        if os.path.isdir(path) and not os.path.islink(path):
            import shutil  # imported here: it loads compression modules, which delays a start

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
        descriptor, status = open_regular(path, os.O_RDONLY)
        try:
            size = status.st_size + 1  # one extra byte, to detect that the file has grown
            data = os.read(descriptor, size)
            if len(data) < size - 1 or len(data) == size:  # a short read, or the file grows
                parts = [data]
                while data := os.read(descriptor, _LOAD_BYTES):
                    parts.append(data)
                data = b"".join(parts)
            return data
        finally:
            os.close(descriptor)

    def write_atomic(self, path: Path, data: Buffer) -> None:
        path = os.fspath(path)
        # Kafka's suffix. A broker removes such files from the directory of a log when it opens the
        # log; elsewhere the next write replaces them.
        temporary = path + ".tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        file = self.file_type(open_regular(temporary, flags, self._mode)[0], temporary)
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

    def chmod(self, path: Path, mode: int) -> None:
        os.chmod(path, mode)

    def set_modified_ms(self, path: Path, timestamp_ms: int) -> None:
        os.utime(path, ns=(timestamp_ms * 1_000_000, timestamp_ms * 1_000_000))
