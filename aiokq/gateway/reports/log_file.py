"""`LogFile`: a log file that is rotated by size, with a limit on the total size of old files.

A full file is renamed to PATH.<milliseconds since 1970>. Lines that cannot be written, because the
disk is full or read-only, are dropped and counted; the file is opened again a second later. Tests:
tests/unit/gateway/test_log_file.py.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

__all__ = ["LogFile"]

logger = logging.getLogger("aiokq.gateway")

RETRY_SECONDS: Final = 1.0
WRITE_BYTES: Final = 256 * 1024
"""Number of bytes at which the collected lines are written, even if more lines follow."""

MODE: Final = 0o640


class LogFile:
    """Appends lines. All methods are called in one thread. Only `archived` raises OSError.

    Args:
        max_file_bytes: size at which the file is rotated.
        max_archive_bytes: largest total size of the old files; the oldest are deleted.
        now_ms: returns the current time in milliseconds since 1970.
        monotonic: returns monotonic seconds.

    Attributes:
        written: number of lines written.
        dropped: number of lines that could not be written.
        rotations: number of rotations.
        error: the error of the last write; None if it succeeded.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        max_file_bytes: int,
        max_archive_bytes: int,
        now_ms: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = Path(path)
        self._max_file_bytes = max_file_bytes
        self._max_archive_bytes = max_archive_bytes
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._fd = -1
        self._size = 0
        self._retry_at = 0.0
        self.written = 0
        self.dropped = 0
        self.rotations = 0
        self.error: str | None = None

    def append(self, lines: Iterable[bytes]) -> None:
        """Write lines, each of which ends with a line feed."""
        collected: list[bytes] = []
        size = 0
        for line in lines:
            if collected and (
                size >= WRITE_BYTES or self._size + size + len(line) > self._max_file_bytes
            ):
                self._write(collected)
                collected, size = [], 0
            collected.append(line)
            size += len(line)
        if collected:
            self._write(collected)

    def prune(self) -> None:
        """Delete the oldest old files until at most `max_archive_bytes` of them are left."""
        try:
            old = sorted(self.archived(), key=lambda path: int(path.suffix[1:]), reverse=True)
        except OSError as error:
            self._failed(error, 0)
            return
        kept = 0
        for path in old:
            try:
                kept += path.stat().st_size
                if kept > self._max_archive_bytes:
                    path.unlink()
            except FileNotFoundError:
                continue
            except OSError as error:
                self._failed(error, 0)
                return

    def archived(self) -> list[Path]:
        """Return the old files.

        Raises:
            OSError: the directory cannot be read.
        """
        prefix = self.path.name + "."
        return [
            path
            for path in self.path.parent.iterdir()
            if path.name.startswith(prefix) and path.name[len(prefix) :].isdecimal()
        ]

    def truncate(self) -> None:
        """Empty the file, if there is one."""
        try:
            if self._fd >= 0:
                os.ftruncate(self._fd, 0)
                self._size = 0
            else:
                os.truncate(self.path, 0)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._failed(error, 0)

    def close(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1

    def _write(self, lines: list[bytes]) -> None:
        data = b"".join(lines)
        try:
            if not self._opened():
                self.dropped += len(lines)
                return
            if self._size and self._size + len(data) > self._max_file_bytes:
                self._rotate()
            done = 0
            while done < len(data):
                done += os.write(self._fd, data[done:] if done else data)
        except OSError as error:
            self._failed(error, len(lines))
            return
        self._size += len(data)
        self.written += len(lines)
        if self.error is not None:
            logger.info("lines are written again: file=%s", self.path)
            self.error = None

    def _opened(self) -> bool:
        """Open the file if it is not open; return False during the pause after an error."""
        if self._fd >= 0:
            return True
        if self._monotonic() < self._retry_at:
            return False
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self.path, flags, MODE)
        self._size = os.fstat(self._fd).st_size
        self.prune()
        return True

    def _rotate(self) -> None:
        stamp = self._now_ms()
        while (target := Path(f"{self.path}.{stamp}")).exists():
            stamp += 1
        os.rename(self.path, target)
        self.close()
        self._retry_at = 0.0
        self.rotations += 1
        self._opened()

    def _failed(self, error: OSError, lines: int) -> None:
        self.dropped += lines
        if self.error is None:
            logger.error("lines cannot be written: file=%s error=%s", self.path, error.strerror)
        self.error = error.strerror or str(error)
        if lines and self._fd >= 0:
            # Remove a line that was written in part, so that the next line does not continue it.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
            self.close()
        self._retry_at = self._monotonic() + RETRY_SECONDS
