"""Opens the directory of a spool: locks it, and finds the messages without an outcome.

A torn frame at the end of the newest segment is cut off, because its messages were not accepted.
The reader handles other damage, and counts the messages that it cannot read. Files of an unknown
version are refused. Tests: tests/unit/gateway/test_spool.py.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import re
from typing import Final, NamedTuple

from aiokq.errors import ConfigError
from aiokq.fastpath.gateway import (
    SPOOL_HEADER_BYTES,
    SPOOL_VERSION,
    spool_frames,
    spool_version,
)
from aiokq.gateway.spool.reading import LEAST_MESSAGE, next_frame
from aiokq.gateway.spool.segment import Segment, done_path, sync_directory

__all__ = ["Opened", "open_spool"]

logger = logging.getLogger("aiokq.gateway")

_NAME: Final = re.compile(r"([0-9]{20})\.(spool|done)")
CHUNK: Final = 1024 * 1024
LARGEST_BASE: Final = 2**62


class Opened(NamedTuple):
    """A locked directory.

    Attributes:
        lock_fd: closing it releases the lock.
        segments: the first segment with a message that has no outcome, and those after it.
        sequence: number of the next message.
        stored_bytes: size of the segments.
        unfinished: number of messages without an outcome.
    """

    lock_fd: int
    segments: list[Segment]
    sequence: int
    stored_bytes: int
    unfinished: int


def open_spool(directory: str, *, sync: bool) -> Opened:
    """Lock a directory and read it; create it if only its last part is missing.

    Waits for the disk.

    Args:
        sync: whether to sync the stored messages to disk. The earlier process may have been killed
            before it synced them.

    Raises:
        ConfigError: there is no such directory, another gateway uses it, it cannot be read or
            written, or it was written by another version.
    """
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700)
            if sync:
                _sync_parent(directory)
        lock_fd = _locked(directory)
    except OSError as error:
        raise ConfigError(f"[spool] path {directory}: {error.strerror}") from error
    try:
        opened = _read(directory, lock_fd)
        if sync:
            _sync_stored(directory, opened.segments)
        return opened
    except OSError as error:
        os.close(lock_fd)
        raise ConfigError(f"[spool] {error.filename or directory}: {error.strerror}") from error
    except BaseException:
        os.close(lock_fd)
        raise


def _sync_parent(directory: str) -> None:
    try:
        sync_directory(os.path.dirname(os.path.abspath(directory)))
    except PermissionError:  # the parent may be writable and not readable
        logger.warning("the name of the spool cannot be synced to disk: path=%s", directory)


def _sync_stored(directory: str, segments: list[Segment]) -> None:
    """Sync the segments and their names.

    An error is only logged, because the messages can still be delivered.
    """
    try:
        for segment in segments:
            fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)
        sync_directory(directory)
    except OSError as error:
        logger.error("the stored messages cannot be synced to disk: error=%s", error)


def _locked(directory: str) -> int:
    lock_fd = os.open(f"{directory}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock_fd, 0)
        os.pwrite(lock_fd, b"%d\n" % os.getpid(), 0)
    except BlockingIOError:
        owner = os.pread(lock_fd, 20, 0).decode("ascii", "replace").strip()
        os.close(lock_fd)
        raise ConfigError(
            f"[spool] path {directory}: another gateway uses it (process {owner or 'unknown'})"
        ) from None
    except BaseException:
        os.close(lock_fd)
        raise
    return lock_fd


def _read(directory: str, lock_fd: int) -> Opened:
    bases: list[int] = []
    done: set[int] = set()
    for name in os.listdir(directory):
        found = _NAME.fullmatch(name)
        if found is not None and int(found[1]) > LARGEST_BASE:
            raise ConfigError(f"[spool] {directory}/{name}: this is no file of a spool")
        if found is not None:
            if found[2] == "spool":
                bases.append(int(found[1]))
            else:
                done.add(int(found[1]))
    bases.sort()
    for base in done - set(bases):
        os.unlink(done_path(directory, base))  # the segment was deleted
    segments: list[Segment] = []
    sequence = 0
    stored = unfinished = 0
    for index, base in enumerate(bases):
        following = bases[index + 1] if index + 1 < len(bases) else None
        segment = Segment(directory, base)
        size = os.stat(segment.path).st_size
        _check_version(segment, size)
        noted = segment.load_done()
        if following is None:
            size, end = _cut_tail(segment, size)
        else:
            end = noted if base < noted <= following else following
            # The name of the next segment may be wrong, so the file's size limits the end, too: no
            # message is smaller than LEAST_MESSAGE.
            end = min(end, base + size // LEAST_MESSAGE)
        segment.settle_end(size, end)
        segment.close()
        sequence = max(sequence, end)
        # A finished segment that follows an unfinished one is not deleted here, because its name
        # may be all that shows where the unfinished one ends. A `Change` deletes it after writing
        # this end. An empty newest segment is deleted here, because the writer may create a file of
        # the same name.
        if segment.left <= 0 and (not segments or (following is None and end == base)):
            segment.remove()
            continue
        segments.append(segment)
        stored += size
        unfinished += segment.left
    return Opened(lock_fd, segments, sequence, stored, unfinished)


def _check_version(segment: Segment, size: int) -> None:
    segment.size = size
    version = spool_version(segment.read(SPOOL_HEADER_BYTES, 0))
    if version == -1:
        # The damage is only logged, because frames have their own checksums and sequences.
        if size > SPOOL_HEADER_BYTES:
            logger.error("the header of a segment of the spool is damaged: file=%s", segment.path)
    elif version != SPOOL_VERSION:
        raise ConfigError(
            f"[spool] {segment.path} has version {version}, and this gateway knows version "
            f"{SPOOL_VERSION}: deliver it with the version that wrote it, or move it away"
        )


def _cut_tail(segment: Segment, size: int) -> tuple[int, int]:
    """Truncate the newest segment after its last valid frame; return its size and end."""
    segment.size = size
    end = segment.base
    position = good = SPOOL_HEADER_BYTES
    while position < size:
        data = segment.read(CHUNK, position)
        frames = spool_frames(data)
        if frames:
            end = max(end, frames[-1].sequence + frames[-1].messages)
            position = good = position + frames[-1].end
            continue
        found = next_frame(segment, position, end)
        if found is None:
            break
        end = found.sequence + found.messages
        position = good = found.end
    if good < size:
        logger.warning(
            "a torn end of the spool is cut off: file=%s bytes=%s", segment.path, size - good
        )
        try:
            os.truncate(segment.path, good)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EIO):
                raise
            logger.error("the torn end of the spool cannot be cut off: error=%s", error)
    return good, end
