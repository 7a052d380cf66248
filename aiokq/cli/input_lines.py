"""Lines of standard input: reading them without blocking the loop, and splitting them."""

from __future__ import annotations

import asyncio
import io
import os
import stat
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from aiokq.core.errors import RecordTooLarge

__all__ = ["LineFormat", "read_lines"]

CHUNK: Final = 64 * 1024


@dataclass(frozen=True)
class LineFormat:
    """The format of an input line, which contains a value, or a key and a value.

    Attributes:
        separator: text between key and value; None if lines have no key.
        null: text that stands for a null key or value; None if there is no such text.
    """

    separator: bytes | None
    null: bytes | None

    def record(self, line: bytes) -> tuple[bytes | None, bytes | None]:
        """Return the key and the value of a line.

        Raises:
            ValueError: the line has no separator.
        """
        key: bytes | None = None
        value: bytes | None = line
        if self.separator is not None:
            before, found, after = line.partition(self.separator)
            if not found:
                raise ValueError("the line has no key separator")
            key, value = before, after
        if self.null is not None:
            key = None if key == self.null else key
            value = None if value == self.null else value
        return key, value


async def read_lines(max_bytes: int) -> AsyncIterator[list[bytes]]:
    """Yield the lines of standard input without their line ends, in portions as they arrive.

    Args:
        max_bytes: maximum length of a line whose end has not arrived, so that memory is bounded.

    Raises:
        RecordTooLarge: more than `max_bytes` arrived without a line end; raised after all
            preceding lines were yielded.
    """
    rest = b""
    count = 0
    async for chunk in _chunks(sys.stdin.buffer):
        *lines, rest = (rest + chunk).split(b"\n")
        count += len(lines)
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
        if len(rest) > max_bytes:
            raise RecordTooLarge(
                f"line {count + 1} is longer than max_request_size={max_bytes} bytes"
            )
    if rest:
        yield [rest.removesuffix(b"\r")]


async def _chunks(stream: BinaryIO) -> AsyncIterator[bytes]:
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:  # standard input was replaced by an object in memory
        while data := stream.read(CHUNK):
            yield data
        return
    # Bypass Python's buffer, because buffered data would not make the descriptor readable.
    waits = _may_block(descriptor)
    while True:
        if waits:
            await _readable(descriptor)
        data = os.read(descriptor, CHUNK)
        if not data:
            return
        yield data
        if not waits:
            await asyncio.sleep(0)  # reading a file never waits: let other tasks run


def _may_block(descriptor: int) -> bool:
    """Return whether reading may block; files never block, and the loop cannot watch them."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, wake)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
