"""RecordStream: the iterator behind `async for`, over the records of several cursors.

Tests: tests/unit/fastpath/test_stream.py.
"""

# Hot path, measured by benchmarks/micro/core.py. Functions are long, to avoid calls per record.

from __future__ import annotations

try:
    from aiokq.fastpath import cython_names as cython
except ImportError:  # never raised: `import cython` is only for the Cython compiler
    import cython

if cython.compiled:
    from cython.cimports.aiokq.fastpath._shared import require_loop
    from cython.cimports.aiokq.fastpath.consume._cursor import Cursor, next_record
    from cython.cimports.aiokq.fastpath.consume.waiting import (
        aiokq_patch_stream,
        aiokq_patch_stream_wait,
    )
    from cython.cimports.aiokq.fastpath.native import AIOKQ_SOURCE_HASH

    from aiokq.fastpath._shared import NO_GUARD, thrown
else:
    from aiokq.fastpath.consume.cursor import Cursor, next_record, pop_ready
    from aiokq.fastpath.shared import NO_GUARD, require_loop, thrown

__all__ = ["RecordStream"]


@cython.final
@cython.cclass
class RecordStream:
    """The iterator of `async for record in ...`: the records of one cursor after another.

    Args:
        source: a CursorSource. Its `next_cursor()` reads the position of the previous cursor, and
            returns the next cursor, or None if there is none now; it may raise StopAsyncIteration.
            Its `wait()` returns a new awaitable, which is done when next_cursor() may return a
            cursor.
        guard: guard of the loop on which records must be read; any loop by default.

    Attributes:
        cursor: the cursor from which records are taken, or None.
        in_hand: whether a record was returned and the next record was not requested yet.
    """

    # Returning an available record takes three slot calls and creates no object except the record:
    # __anext__ and __await__ return the stream itself, whose am_send (Python 3.11) or tp_iternext
    # (later) returns the record. Only an `await` that may suspend creates another object, a
    # _StreamWait, which can be cancelled.
    __slots__ = ("busy", "cursor", "guard", "in_hand", "source")

    def __init__(self, source, guard=None):
        self.source = source
        self.guard = NO_GUARD if guard is None else guard
        self.cursor = None
        self.in_hand = False
        self.busy = False

    def __aiter__(self):
        return self

    def __anext__(self):
        require_loop(self.guard)
        self.in_hand = False
        return self

    def __await__(self):
        # A second waiter is refused at its first step, because `async for` would turn an exception
        # of __await__ into a TypeError.
        cursor: Cursor = self.cursor
        if not self.busy and cursor is not None and cursor.remaining > 0 and not cursor.bounded:
            return self
        wait: _StreamWait = _StreamWait.__new__(_StreamWait)
        wait.stream = self
        wait.inner = None
        return wait

    def __iter__(self):
        return self.__await__()

    def __next__(self):
        raise StopIteration(_stream_step(self))

    def next_nowait(self):
        """Return the next record if one is available, else None.

        Raises:
            RuntimeError: another task waits for the next record.
            CorruptRecord: as in iteration over the cursor.
            others: the error of the guard's check, or of the source's next_cursor(), for example
                StopAsyncIteration.
        """
        require_loop(self.guard)
        if self.busy:
            raise RuntimeError("another task waits for this stream's next record")
        self.in_hand = False
        return _stream_next(self)

    def detach(self):
        """Release the cursor for a seek or a pause; the source provides the next cursor."""
        self.cursor = None

    def __repr__(self):
        return f"<RecordStream cursor={self.cursor!r}>"


@cython.cfunc
def _stream_next(stream: RecordStream) -> object:
    """Return the next available record, from this cursor or a later one; None if there is none."""
    record: object
    while True:
        # A cursor that has raised an error is not read further: the source handles the error.
        if stream.cursor is not None and (stream.cursor.error is None or stream.cursor.deferred):
            record = next_record(stream.cursor)
            if record is not None:
                stream.in_hand = True
                return record
        stream.cursor = stream.source.next_cursor()
        if stream.cursor is None:
            return None


@cython.cfunc
def _stream_step(stream: RecordStream) -> object:
    record: object = next_record(stream.cursor) if stream.cursor is not None else None
    if record is None:
        raise RuntimeError("the record was taken after __await__() was called")
    stream.in_hand = True
    return record


@cython.final
@cython.cclass
class _StreamWait:
    """The iterator behind one `await` of a stream; it may suspend until a record is available."""

    __slots__ = ("inner", "stream")

    def __init__(self):
        raise TypeError("objects of this class are created by awaiting a stream")

    def __iter__(self):
        return self

    def __next__(self):
        value = _stream_wait_step(self)
        if self.inner is not None:
            return value
        raise StopIteration(value)

    def send(self, value):
        return self.__next__()

    def throw(self, kind, value=None, traceback=None):
        error = thrown(kind, value, traceback)
        _leave_stream(self, error)
        raise error

    def close(self):
        _leave_stream(self, None)


@cython.cfunc
def _stream_wait_step(self: _StreamWait) -> object:
    """Return the record; or the object to suspend on, in which case `self.inner` is set."""
    stream: RecordStream = self.stream
    record: object
    while True:
        if self.inner is None:
            if stream.busy:
                raise RuntimeError("another task waits for this stream's next record")
            record = _stream_next(stream)
            if record is not None:
                return record
            self.inner = stream.source.wait().__await__()
            stream.busy = True
        try:
            return next(self.inner)
        except StopIteration:
            self.inner = None
            stream.busy = False
        except BaseException:
            self.inner = None
            stream.busy = False
            raise


@cython.cfunc
def _leave_stream(self: _StreamWait, error: object) -> object:
    """End a wait that is cancelled or closed. No record was taken for the wait, so none is lost."""
    inner = self.inner
    if inner is not None:
        self.inner = None
        self.stream.busy = False
        try:
            if error is None or not hasattr(inner, "throw"):
                close = getattr(inner, "close", None)
                if close is not None:
                    close()
            else:
                inner.throw(error)
        except BaseException as raised:
            if raised is not error and not isinstance(raised, StopIteration):
                raise
    return None


if not cython.compiled:

    async def _anext(self):
        """Implement `__anext__` of the pure core: a coroutine is faster than an awaitable."""
        require_loop(self.guard)
        self.in_hand = False
        if not self.busy and (cursor := self.cursor) is not None and len(cursor.ready) > 1:
            self.in_hand = True
            return pop_ready(cursor)
        while True:
            if self.busy:
                raise RuntimeError("another task waits for this stream's next record")
            record = _stream_next(self)
            if record is not None:
                return record
            self.busy = True
            try:
                await self.source.wait()
            finally:
                self.busy = False

    RecordStream.__anext__ = _anext


@cython.cfunc
def _stream_slot(self: object, yielded: cython.p_int) -> object:
    return _stream_step(cython.cast(RecordStream, self))


@cython.cfunc
def _stream_wait_slot(self: object, yielded: cython.p_int) -> object:
    wait: _StreamWait = self
    value = _stream_wait_step(wait)
    if wait.inner is not None:
        yielded[0] = 1
    return value


# ---------------------------------------------------------------- module initialization

if cython.compiled:
    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
    aiokq_patch_stream(RecordStream, _stream_slot)
    aiokq_patch_stream_wait(_StreamWait, _stream_wait_slot)
