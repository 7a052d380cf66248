"""Owns the types of stream.py, and of what is compiled from it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, final

from aiokq.fastpath.consume.cursor import Cursor, Record
from aiokq.fastpath.shared import LoopGuard

class CursorSource(Protocol):
    """What a RecordStream asks for cursors."""

    def next_cursor(self) -> Cursor | None:
        """The next cursor, or None if none is there now; StopAsyncIteration ends the stream."""
        ...
    def wait(self) -> Awaitable[object]:
        """Done when next_cursor() may have one; a new awaitable each time."""
        ...

@final
class RecordStream:
    def __init__(self, source: CursorSource, guard: LoopGuard | None = None) -> None: ...
    @property
    def cursor(self) -> Cursor | None: ...
    @property
    def in_hand(self) -> bool: ...
    def __aiter__(self) -> RecordStream: ...
    def __anext__(self) -> Awaitable[Record]: ...
    def next_nowait(self) -> Record | None: ...
    def detach(self) -> None: ...
