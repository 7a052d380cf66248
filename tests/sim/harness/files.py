"""MemoryFiles: an implementation of core.files.Files in memory, which can lose unsynced writes.

Content: each file has written and durable content; a power cut discards the difference, or only
some of its pages if a random source is given. Names: creations, renames and removals are entries
of a journal that sync_dir() commits; a power cut keeps a prefix of the uncommitted entries, as
journaling file systems do. A crash of the process alone loses only open files and locks.
"""

from __future__ import annotations

import errno
import functools
import os
import posixpath
import random as random_module
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from aiokq.core.files import Path
from aiokq.core.types import Buffer

PAGE = 4096
FAR = 1 << 62


@dataclass(slots=True, eq=False)
class Inode:
    """A file's content."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    modified_ms: int = 0
    mode: int = 0o644
    cold: list[tuple[int, int]] = field(default_factory=list)
    """Ranges that are on the disk and not in the page cache."""

    def cold_from(self, position: int) -> int:
        """Return the first position of a cold range at or after `position`."""
        starts = [max(start, position) for start, end in self.cold if end > position]
        return min(starts, default=FAR)

    def sync(self) -> None:
        self.durable = bytes(self.content)

    def power_cut(self, random: random_module.Random | None) -> None:
        """Restore the durable content; `random` keeps some of the pages written since."""
        if random is None or bytes(self.content) == self.durable:
            self.content[:] = self.durable
            return
        sizes = (len(self.durable), len(self.content))
        survived = bytearray(random.choice(sizes))
        for start in range(0, len(survived), PAGE):
            old, new = (
                bytes(page[start : start + PAGE]).ljust(PAGE, b"\0")
                for page in (self.durable, self.content)
            )
            survived[start : start + PAGE] = (new if random.random() < 0.5 else old)[
                : len(survived) - start
            ]
        self.content[:] = survived
        self.durable = bytes(survived)


@dataclass(slots=True, eq=False)
class Directory:
    """A directory's names; the journal has the durable ones."""

    entries: dict[str, Inode | Directory] = field(default_factory=dict)
    durable: dict[str, Inode | Directory] = field(default_factory=dict)


Node = Inode | Directory
Change = tuple[Directory, str, "Node | None"]


@dataclass(slots=True)
class Fault:
    """An injected failure; see MemoryFiles.fail()."""

    operation: str
    error: int
    matches: Callable[[str], bool]
    times: int | None
    written: int


class MemoryFile:
    """An open file of MemoryFiles."""

    def __init__(self, files: MemoryFiles, path: str, inode: Inode, writable: bool) -> None:
        self._files = files
        self._path = path
        self._inode = inode
        self._writable = writable
        self._closed = False
        self._life = files.life

    @property
    def path(self) -> str:
        return self._path

    @property
    def closed(self) -> bool:
        return self._closed

    def pread(self, length: int, position: int) -> bytes:
        self._check("pread")
        self._files._wait_for(self._path, self._inode, position, length)
        return bytes(self._inode.content[position : position + length])

    def pread_cached(self, length: int, position: int) -> bytes:
        self._check("pread_cached")
        end = min(position + length, self._inode.cold_from(position))
        return bytes(self._inode.content[position:end])

    def preadinto(self, buffer: bytearray | memoryview, position: int) -> int:
        self._check("preadinto")
        view = memoryview(buffer).cast("B")
        self._files._wait_for(self._path, self._inode, position, len(view))
        data = self._inode.content[position : position + len(view)]
        view[: len(data)] = data
        return len(data)

    def cached(self, length: int, position: int) -> bool:
        return self._inode.cold_from(position) >= position + length

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        self._check_writable()
        data = b"".join(bytes(memoryview(b).cast("B")) for b in buffers)
        fault = self._files._take_fault("pwritev", self._path)
        if fault is not None:
            self._write(data[: fault.written], position)
            raise _error(fault.error, self._path)
        room = self._files._room()
        if room is not None:
            grows = position + len(data) - len(self._inode.content)
            if grows > room:
                self._write(data[: max(0, len(data) - (grows - room))], position)
                raise _error(errno.ENOSPC, self._path)
        self._write(data, position)
        return len(data)

    def truncate(self, size: int) -> None:
        self._check_writable()
        self._check("truncate")
        content = self._inode.content
        if size < len(content):
            del content[size:]
        else:
            content.extend(bytes(size - len(content)))
        self._touch()

    def sync(self) -> None:
        self._check("sync")
        self._inode.sync()

    def size(self) -> int:
        self._check("size")
        return len(self._inode.content)

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        self._closed = True

    def _write(self, data: bytes, position: int) -> None:
        if not data:
            return
        content = self._inode.content
        if position > len(content):
            content.extend(bytes(position - len(content)))
        content[position : position + len(data)] = data
        self._touch()

    def _touch(self) -> None:
        self._inode.modified_ms = self._files.now_ms()

    def _check(self, operation: str) -> None:
        if self._closed or self._life != self._files.life:
            raise _error(errno.EBADF, self._path)
        fault = self._files._take_fault(operation, self._path)
        if fault is not None:
            raise _error(fault.error, self._path)

    def _check_writable(self) -> None:
        if self._closed or self._life != self._files.life or not self._writable:
            raise _error(errno.EBADF, self._path)


class MemoryLock:
    """A held lock of MemoryFiles."""

    def __init__(self, files: MemoryFiles, inode: Inode) -> None:
        self._files = files
        self._inode = inode
        self._life = files.life

    def release(self) -> None:
        if self._life == self._files.life:
            self._files._locked.pop(self._inode, None)
        self._life = -1


class MemoryFiles:
    """A disk in memory; see the module docstring.

    Args:
        now_ms: returns the modification times.
        capacity: bytes that fit on the disk; a larger write is cut short and raises ENOSPC.
    """

    def __init__(
        self, *, now_ms: Callable[[], int] = lambda: 0, capacity: int | None = None
    ) -> None:
        self.now_ms = now_ms
        self.capacity = capacity
        self.life = 0
        """Increased by each crash: files opened before it belong to a process that has ended."""
        self.may_wait = True
        """Whether reading from the disk is allowed here: off the loop, or before the loop runs."""
        self.waits: list[str] = []
        """The files whose cold ranges were read."""
        self.stalls: list[str] = []
        """The files whose cold ranges were read where `may_wait` was false."""
        self.stays_cold = False
        """Whether cold ranges stay cold after they are read."""
        self._root = Directory()
        self._journal: list[list[Change]] = []
        self._locked: dict[Inode, None] = {}
        self._faults: list[Fault] = []

    # -- called by tests --------------------------------------------------------------------

    def fail(
        self,
        operation: str,
        error: int = errno.EIO,
        *,
        matches: Callable[[str], bool] = lambda path: True,
        times: int | None = 1,
        written: int = 0,
    ) -> Fault:
        """Make the next calls of `operation` (a method's name) raise OSError(error).

        Args:
            matches: selects the paths.
            times: number of failures; None for all until heal().
            written: the number of bytes that a pwritev writes before it fails.
        """
        fault = Fault(operation, error, matches, times, written)
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """Remove all faults."""
        self._faults.clear()

    def copy(self) -> MemoryFiles:
        """Return a disk in the same state, as if the process here had ended at this moment."""
        made = MemoryFiles(now_ms=self.now_ms, capacity=self.capacity)
        twins: dict[Node, Node] = {}
        made._root = _twin(self._root, twins)
        made._journal = [
            [
                (_twin(directory, twins), name, None if node is None else _twin(node, twins))
                for directory, name, node in changes
            ]
            for changes in self._journal
        ]
        return made

    def chill(self, path: Path, start: int = 0, end: int = FAR, *, stays: bool = False) -> None:
        """Evict these bytes from the page cache, until they are read.

        Args:
            stays: evict them again after each read.
        """
        self._file(_normal(path)).cold.append((start, end))
        self.stays_cold = stays

    def chill_all(self, path: Path, *, stays: bool = False) -> None:
        """Call `chill` for all files below a directory."""
        stack: list[Node] = [self._directory(_normal(path))]
        while stack:
            node = stack.pop()
            if isinstance(node, Directory):
                stack.extend(node.entries.values())
            else:
                node.cold.append((0, FAR))
        self.stays_cold = stays

    def crash(self) -> None:
        """End the process: its files are closed and its locks released; all content is kept."""
        self.life += 1
        self._locked.clear()

    def power_cut(
        self, random: random_module.Random | None = None, *, ordered: bool = True
    ) -> None:
        """Cut the machine's power: unsynced data is lost, or only some of it with `random`.

        Args:
            ordered: keep a prefix of the changes of names; otherwise any subset, as in POSIX.
        """
        self.crash()
        kept = self._journal[: random.randint(0, len(self._journal))] if random is not None else []
        if random is not None and not ordered:
            kept = [changes for changes in self._journal if random.random() < 0.5]
        for changes in kept:
            _apply(changes)
        self._journal.clear()
        seen: dict[Inode, None] = {}
        stack = [self._root]
        while stack:
            directory = stack.pop()
            directory.entries = dict(directory.durable)
            for node in directory.entries.values():
                if isinstance(node, Directory):
                    stack.append(node)
                elif node not in seen:
                    seen[node] = None
                    node.power_cut(random)

    def corrupt(self, path: Path, position: int, mask: int = 0xFF) -> None:
        """Flip bits of one byte, durably."""
        inode = self._file(_normal(path))
        inode.content[position] ^= mask
        inode.sync()

    def names(self, path: Path) -> list[str]:
        """Return the paths of all files below a directory."""
        found: list[str] = []
        stack: list[tuple[str, Node]] = [(_normal(path), self._directory(_normal(path)))]
        while stack:
            name, node = stack.pop()
            if isinstance(node, Directory):
                stack.extend((f"{name}/{last}", each) for last, each in node.entries.items())
            else:
                found.append(name)
        return sorted(found)

    def contents(self, path: Path) -> dict[str, bytes]:
        """Return the content of all files below a directory, without operations that could fail.

        The names of directories end with a slash, and have no content.
        """
        found: dict[str, bytes] = {}
        stack: list[tuple[str, Node]] = [(_normal(path), self._directory(_normal(path)))]
        while stack:
            name, node = stack.pop()
            if isinstance(node, Directory):
                found[f"{name}/"] = b""
                stack.extend((f"{name}/{last}", each) for last, each in node.entries.items())
            else:
                found[name] = bytes(node.content)
        return found

    def used(self) -> int:
        """Bytes in all files that have a name."""
        total = 0
        stack: list[Node] = [self._root]
        while stack:
            node = stack.pop()
            if isinstance(node, Directory):
                stack.extend(node.entries.values())
            else:
                total += len(node.content)
        return total

    # -- core.files.Files ------------------------------------------------------------------

    def private(self) -> MemoryFiles:
        return self

    def open(
        self, path: Path, *, create: bool = False, exclusive: bool = False, writable: bool = True
    ) -> MemoryFile:
        name = _normal(path)
        self._check("open", name)
        parent, last = self._parent(name)
        node = parent.entries.get(last)
        if node is None:
            if not (create or exclusive):
                raise _error(errno.ENOENT, name)
            node = Inode(modified_ms=self.now_ms())
            self._change((parent, last, node))
        elif exclusive:
            raise _error(errno.EEXIST, name)
        if isinstance(node, Directory):
            raise _error(errno.EISDIR, name)
        if writable and not node.mode & 0o200:
            raise _error(errno.EACCES, name)
        return MemoryFile(self, name, node, writable)

    def listdir(self, path: Path) -> list[str]:
        self._check("listdir", _normal(path))
        return sorted(self._directory(_normal(path)).entries)

    def mkdirs(self, path: Path) -> None:
        name = _normal(path)
        self._check("mkdirs", name)
        directory = self._root
        for part in _parts(name):
            node = directory.entries.get(part)
            if node is None:
                node = Directory()
                self._change((directory, part, node))
            if not isinstance(node, Directory):
                raise _error(errno.EEXIST, name)
            directory = node

    def exists(self, path: Path) -> bool:
        return self._lookup(_normal(path)) is not None

    def is_dir(self, path: Path) -> bool:
        return isinstance(self._lookup(_normal(path)), Directory)

    def real_path(self, path: Path) -> str:
        return _normal(path)

    def remove(self, path: Path) -> None:
        name = _normal(path)
        self._check("remove", name)
        self._file(name)
        parent, last = self._parent(name)
        self._change((parent, last, None))

    def remove_tree(self, path: Path) -> None:
        name = _normal(path)
        self._check("remove_tree", name)
        if self._lookup(name) is None:
            raise _error(errno.ENOENT, name)
        parent, last = self._parent(name)
        self._change((parent, last, None))

    def rename(self, src: Path, dst: Path) -> None:
        old, new = _normal(src), _normal(dst)
        self._check("rename", old)
        node = self._lookup(old)
        if node is None:
            raise _error(errno.ENOENT, old)
        target = self._lookup(new)
        if isinstance(target, Directory):
            if not isinstance(node, Directory):
                raise _error(errno.EISDIR, new)
            if target.entries:
                raise _error(errno.ENOTEMPTY, new)
        elif target is not None and isinstance(node, Directory):
            raise _error(errno.ENOTDIR, new)
        from_parent, from_name = self._parent(old)
        to_parent, to_name = self._parent(new)
        self._change((from_parent, from_name, None), (to_parent, to_name, node))

    def link(self, src: Path, dst: Path) -> None:
        old, new = _normal(src), _normal(dst)
        self._check("link", old)
        inode = self._file(old)
        if self._lookup(new) is not None:
            raise _error(errno.EEXIST, new)
        parent, last = self._parent(new)
        self._change((parent, last, inode))

    def sync_dir(self, path: Path) -> None:
        name = _normal(path)
        self._check("sync_dir", name)
        directory = self._directory(name)
        rest = []
        for changes in self._journal:
            # Parent directories are committed too, because the names depend on them.
            if any(changed is directory or node is directory for changed, _, node in changes):
                _apply(changes)
            else:
                rest.append(changes)
        self._journal = rest

    def lock(self, path: Path) -> MemoryLock:
        name = _normal(path)
        file = self.open(name, create=True)
        if file._inode in self._locked:
            raise _error(errno.EAGAIN, name)
        self._locked[file._inode] = None
        return MemoryLock(self, file._inode)

    def read_bytes(self, path: Path) -> bytes:
        name = _normal(path)
        self._check("read_bytes", name)
        self._wait_for(name, self._file(name), 0, FAR)
        return bytes(self._file(name).content)

    def write_atomic(self, path: Path, data: Buffer) -> None:
        name = _normal(path)
        self._check("write_atomic", name)
        file = self.open(name + ".tmp", create=True)
        file.truncate(0)
        file.pwritev([data], 0)
        file.sync()
        file.close()
        self.rename(name + ".tmp", name)
        self.sync_dir(posixpath.dirname(name))

    def stat_size(self, path: Path) -> int:
        return len(self._file(_normal(path)).content)

    def modified_ms(self, path: Path) -> int:
        return self._file(_normal(path)).modified_ms

    def disk_usage(self, path: Path) -> tuple[int, int]:
        self._check("disk_usage", _normal(path))
        total = 1 << 40 if self.capacity is None else self.capacity
        return total, max(0, total - self.used())

    def chmod(self, path: Path, mode: int) -> None:
        self._check("chmod", _normal(path))
        self._file(_normal(path)).mode = mode

    def set_modified_ms(self, path: Path, timestamp_ms: int) -> None:
        self._file(_normal(path)).modified_ms = timestamp_ms

    # -- inside ----------------------------------------------------------------------------

    def _wait_for(self, path: str, inode: Inode, position: int, length: int) -> None:
        """Read the cold part of a range from the disk."""
        end = position + length
        if inode.cold_from(position) >= min(end, len(inode.content)):
            return
        self.waits.append(path)
        if not self.may_wait:
            self.stalls.append(f"{path} from {position} on")
            raise AssertionError(f"the loop waits for the disk: {self.stalls[-1]}")
        if not self.stays_cold:
            rest = [(start, min(stop, position)) for start, stop in inode.cold]
            rest += [(max(start, end), stop) for start, stop in inode.cold]
            inode.cold = [(start, stop) for start, stop in rest if start < stop]

    def _room(self) -> int | None:
        return None if self.capacity is None else max(0, self.capacity - self.used())

    def _take_fault(self, operation: str, path: str) -> Fault | None:
        for fault in self._faults:
            if fault.operation == operation and fault.matches(path):
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times == 0:
                        self._faults.remove(fault)
                return fault
        return None

    def _check(self, operation: str, path: str) -> None:
        fault = self._take_fault(operation, path)
        if fault is not None:
            raise _error(fault.error, path)

    def _change(self, *changes: Change) -> None:
        for directory, name, node in changes:
            if node is None:
                directory.entries.pop(name, None)
            else:
                directory.entries[name] = node
        self._journal.append(list(changes))

    def _lookup(self, path: str) -> Node | None:
        node: Node = self._root
        for part in _parts(path):
            if not isinstance(node, Directory) or part not in node.entries:
                return None
            node = node.entries[part]
        return node

    def _directory(self, path: str) -> Directory:
        node = self._lookup(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        if not isinstance(node, Directory):
            raise _error(errno.ENOTDIR, path)
        return node

    def _file(self, path: str) -> Inode:
        node = self._lookup(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        if not isinstance(node, Inode):
            raise _error(errno.EISDIR, path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, last = posixpath.split(path)
        if not last:
            raise _error(errno.EBUSY, path)
        return self._directory(parent), last


class ProgramFiles:
    """The disk as one program sees it; detached from the program when its machine crashes.

    Tasks of a killed program run until they are cancelled. Meanwhile they must not rename, remove
    or open files, which may already belong to the next program.
    """

    def __init__(self, files: MemoryFiles) -> None:
        self._files = files
        self._life = files.life

    def private(self) -> ProgramFiles:
        return self

    def __getattr__(self, name: str) -> Any:
        if self._life != self._files.life:
            raise _error(errno.EIO, name)
        return getattr(self._files, name)


def _apply(changes: list[Change]) -> None:
    for directory, name, node in changes:
        if node is None:
            directory.durable.pop(name, None)
        else:
            directory.durable[name] = node


N = TypeVar("N", Inode, Directory)


def _twin(node: N, twins: dict[Node, Node]) -> N:
    """Return the copy of a file or a directory; a node with several names is copied once.

    copy.deepcopy() takes ten times as long, and tests copy a disk before each of its operations.
    """
    found = twins.get(node)
    if found is None:
        if isinstance(node, Inode):
            found = twins[node] = Inode(
                bytearray(node.content), node.durable, node.modified_ms, node.mode, [*node.cold]
            )
        else:
            found = twins[node] = made = Directory()
            made.entries = {name: _twin(each, twins) for name, each in node.entries.items()}
            made.durable = {name: _twin(each, twins) for name, each in node.durable.items()}
    assert isinstance(found, type(node))
    return found


@functools.lru_cache(4096)
def _normal(path: Path) -> str:
    return posixpath.normpath(posixpath.join("/", os.fspath(path)))


@functools.lru_cache(4096)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
