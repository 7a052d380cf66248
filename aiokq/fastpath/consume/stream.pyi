"""The types of stream.py and of the extension compiled from it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, final

from aiokq.fastpath.consume.cursor import Cursor, Record
from aiokq.fastpath.shared import LoopGuard

class CursorSource(Protocol):
    """Provides a RecordStream with cursors."""

    def next_cursor(self) -> Cursor | None:
        """Return the next cursor; None if there is none now. StopAsyncIteration ends the stream."""
        ...
    def wait(self) -> Awaitable[object]:
        """Return a new awaitable, done when next_cursor() may return a cursor."""
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
