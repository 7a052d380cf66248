"""Lines of standard input, from pipes, files and memory."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiokq.cli.input_lines import read_lines
from aiokq.core.errors import RecordTooLarge


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A pipe as standard input; returns its end for writing."""
    reading, writing = os.pipe()
    with open(reading, encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        yield writing


async def everything(max_bytes: int = 1000) -> list[bytes]:
    return [line async for lines in read_lines(max_bytes) for line in lines]


async def test_lines_come_as_they_are_written(pipe: int):
    """A user who types must not wait for 64 KiB of input before records are sent."""
    reader = read_lines(1000)
    os.write(pipe, b"one\ntw")
    assert await anext(reader) == [b"one"]
    os.write(pipe, b"o\r\nthree")
    assert await anext(reader) == [b"two"]
    os.close(pipe)
    assert await anext(reader) == [b"three"]
    with pytest.raises(StopAsyncIteration):
        await anext(reader)


async def test_waiting_for_input_can_be_cancelled(pipe: int):
    """Ctrl-C while no input comes; later input is not read."""
    reader = read_lines(1000)
    step = asyncio.ensure_future(anext(reader))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    os.write(pipe, b"x\n")
    os.close(pipe)
    assert await everything() == [b"x"]


@pytest.mark.parametrize(("content", "lines"), [(b"line\n" * 50_000, 50_000), (None, 0)])
async def test_a_file_is_read_though_it_cannot_be_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, lines: int
):
    """epoll rejects regular files and /dev/null."""
    path = Path(os.devnull)
    if content is not None:
        path = tmp_path / "lines"
        path.write_bytes(content)
    with path.open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert await everything() == [b"line"] * lines


async def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch):
    """`aiokq produce t < /dev/zero` must not use up the memory."""
    data = io.BytesIO(b"fine\n" + bytes(10_000_000))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(data))
    with pytest.raises(RecordTooLarge, match="line 2"):
        await everything(100_000)
    assert data.tell() < 1_000_000


async def test_lines_before_one_that_is_too_long_are_yielded(monkeypatch: pytest.MonkeyPatch):
    """All complete lines are produced before the error, also those of the same read."""
    data = io.BytesIO(b"one\ntwo\n" + bytes(200))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(data))
    reader = read_lines(100)
    assert await anext(reader) == [b"one", b"two"]
    with pytest.raises(RecordTooLarge, match="line 3"):
        await anext(reader)


async def test_the_longest_line_is_taken(monkeypatch: pytest.MonkeyPatch):
    """A line of exactly the limit is no error."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x" * 1000)))
    assert await everything(1000) == [b"x" * 1000]
