"""aiokq.core.descriptor_reserve: which connection is closed when descriptors are missing."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from aiokq.core.descriptor_reserve import DescriptorReserve
from aiokq.core.descriptors import Descriptors


class Count(Descriptors):
    """Reports `missing` missing descriptors until the test changes `short`."""

    def __init__(self, missing: int) -> None:
        super().__init__()
        self.short = missing

    def missing(self) -> int:
        return self.short


class DescriptorHolder:
    """Connections by the time since which they are idle; a closed one keeps its descriptor."""

    def __init__(self, *idle: float, busy: int = 0) -> None:
        self.idle = list(idle)
        self.busy = busy
        self.closed: list[float] = []

    @property
    def leaving(self) -> int:
        return len(self.closed)

    def idle_since(self, behind: int) -> float | None:
        return self.idle[behind] if behind < len(self.idle) else None

    def make_room(self) -> bool:
        if not self.idle:
            return False
        if self.busy:  # a request arrived meanwhile
            self.busy -= 1
            return False
        self.closed.append(self.idle.pop(0))
        return True


@contextmanager
def loop_in_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def on(
    loop: asyncio.AbstractEventLoop, reserve: DescriptorReserve, holder: DescriptorHolder
) -> None:
    async def add() -> None:
        reserve.add(holder)

    asyncio.run_coroutine_threadsafe(add(), loop).result(10)


def turn(loop: asyncio.AbstractEventLoop) -> None:
    """Wait until the loop has run its ready callbacks and the callbacks that those scheduled."""
    for _ in range(2):
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(10)


async def test_the_connection_that_is_idle_longest_on_any_server_is_closed() -> None:
    """A server without idle connections gets the descriptor of another server's connection."""
    reserve = DescriptorReserve(Count(0))
    first, second, third = (
        DescriptorHolder(2.0, 3.0),
        DescriptorHolder(1.0, 4.0),
        DescriptorHolder(),
    )
    for holder in (first, second, third):
        reserve.add(holder)
    assert [reserve.make_room() for _ in range(5)] == [True] * 4 + [False]
    assert (first.closed, second.closed) == ([2.0, 3.0], [1.0, 4.0])


async def test_no_more_connections_are_closed_than_descriptors_are_missing() -> None:
    """The descriptor of an aborted connection is free one iteration of the loop later."""
    count = Count(3)
    reserve = DescriptorReserve(count)
    holders = [DescriptorHolder(1.0, 2.0, 3.0) for _ in range(3)]
    for holder in holders:
        reserve.add(holder)
    for _ in range(4):
        reserve.taken()
    assert sum(len(holder.closed) for holder in holders) == 3
    assert reserve.missing() == 0
    count.short = 4  # one more file
    reserve.taken()
    assert sum(len(holder.closed) for holder in holders) == 4


async def test_a_server_whose_connections_are_all_busy_is_skipped() -> None:
    """On the same loop the next server is tried at once."""
    reserve = DescriptorReserve(Count(0))
    at_work, other = DescriptorHolder(1.0, busy=9), DescriptorHolder(2.0)
    reserve.add(at_work)
    reserve.add(other)
    assert reserve.make_room()
    assert other.closed == [2.0]


def test_a_connection_of_another_loop_is_closed_on_that_loop() -> None:
    """Connections about to be closed count as free descriptors and are not requested twice."""
    count = Count(3)
    reserve = DescriptorReserve(count)
    holder = DescriptorHolder(1.0, 2.0)
    with loop_in_thread() as loop:
        on(loop, reserve, holder)
        held = threading.Event()
        loop.call_soon_threadsafe(held.wait)
        reserve.restore()
        try:
            assert (holder.closed, reserve.missing()) == ([], 1)
            assert not reserve.make_room()  # all idle connections are being closed
        finally:
            held.set()
        turn(loop)
        assert (holder.closed, reserve.missing()) == ([1.0, 2.0], 1)


def test_if_the_connection_on_another_loop_is_busy_the_next_server_is_asked() -> None:
    """No server is asked twice, because all of them may be busy."""
    reserve = DescriptorReserve(Count(0))
    first, second = DescriptorHolder(1.0, busy=1), DescriptorHolder(2.0)
    with loop_in_thread() as one, loop_in_thread() as two:
        on(one, reserve, first)
        on(two, reserve, second)
        assert reserve.make_room()
        turn(one)
        turn(two)
        assert (first.closed, second.closed) == ([], [2.0])
        first.busy = 1
        assert reserve.make_room()
        turn(one)
        assert first.closed == []
        assert reserve.make_room()
        turn(one)
        assert first.closed == [1.0]


def test_a_server_whose_loop_was_closed_is_skipped() -> None:
    """The server was not removed from the reserve; the reserve must not keep it alive either."""
    reserve = DescriptorReserve(Count(0))
    stale, alive = DescriptorHolder(1.0), DescriptorHolder(2.0)
    with loop_in_thread() as gone:
        on(gone, reserve, stale)
    with loop_in_thread() as loop:
        on(loop, reserve, alive)
        assert reserve.make_room()
        turn(loop)
        assert (stale.closed, alive.closed) == ([], [2.0])
    seen = weakref.ref(stale)
    del stale
    gc.collect()
    assert seen() is None


async def test_removed_servers_and_servers_of_the_parent_process_are_not_asked() -> None:
    """The fork may have happened while a thread held the lock."""
    reserve = DescriptorReserve(Count(1))
    first, second = DescriptorHolder(1.0), DescriptorHolder(2.0)
    reserve.add(first)
    reserve.add(second)
    reserve.remove(first)
    reserve.remove(first)
    assert reserve.make_room()
    assert not reserve.make_room()
    reserve.add(first)
    with reserve._guard:
        await asyncio.to_thread(reserve.forget)
        await asyncio.to_thread(reserve.taken)
    assert (first.closed, second.closed) == ([], [2.0])
    await asyncio.to_thread(reserve.remove, first)


@pytest.fixture
def hasty() -> Iterator[None]:
    """Switch threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
def test_no_server_is_lost_when_several_threads_add_servers() -> None:
    """Each thread runs its own event loop."""
    for _ in range(20):
        reserve = DescriptorReserve(Count(0))
        holders = [DescriptorHolder(1.0) for _ in range(8)]
        barrier = threading.Barrier(8)

        async def add(
            holder: DescriptorHolder,
            reserve: DescriptorReserve = reserve,
            barrier: threading.Barrier = barrier,
        ) -> None:
            barrier.wait(10)
            reserve.add(holder)

        threads = [threading.Thread(target=asyncio.run, args=(add(holder),)) for holder in holders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(reserve._members) == 8


@pytest.mark.usefixtures("hasty")
def test_several_threads_that_open_files_close_no_more_than_are_missing() -> None:
    """All threads check the reserve at the same time."""
    with loop_in_thread() as loop:
        for _ in range(20):
            reserve = DescriptorReserve(Count(3))
            holder = DescriptorHolder(*range(100))
            on(loop, reserve, holder)
            barrier = threading.Barrier(4)

            def take(
                reserve: DescriptorReserve = reserve, barrier: threading.Barrier = barrier
            ) -> None:
                barrier.wait(10)
                reserve.taken()

            threads = [threading.Thread(target=take) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            turn(loop)
            assert len(holder.closed) <= 3
            reserve.taken()
            turn(loop)
            assert len(holder.closed) == 3


def test_a_loop_that_does_not_run_is_not_asked() -> None:
    """The reserve counted on its connections and closed no others; files used all descriptors."""
    stopped, other = DescriptorHolder(1.0, 2.0), DescriptorHolder(5.0, 6.0)
    reserve = DescriptorReserve(Count(1))
    loop = asyncio.new_event_loop()
    try:

        async def add() -> None:
            reserve.add(stopped)

        loop.run_until_complete(add())
        with loop_in_thread() as running:
            on(running, reserve, other)
            assert reserve.missing() == 1
            reserve.restore()
            turn(running)
            assert (stopped.closed, other.closed) == ([], [5.0])
        stopped.closed = [0.5]  # aborted, but the loop stopped before the socket was closed
        assert reserve.missing() == 1
    finally:
        loop.close()


def test_a_server_that_fails_to_close_a_connection_is_not_counted_on() -> None:
    """Its connections were counted as being closed for ever."""

    class Broken(DescriptorHolder):
        def make_room(self) -> bool:
            raise ZeroDivisionError

    broken, other = Broken(1.0), DescriptorHolder(5.0)
    reserve = DescriptorReserve(Count(1))
    told: list[object] = []
    with loop_in_thread() as loop:
        loop.call_soon_threadsafe(loop.set_exception_handler, lambda _, what: told.append(what))
        on(loop, reserve, broken)
        on(loop, reserve, other)
        reserve.restore()
        turn(loop)
        assert other.closed == [5.0]
        assert len(told) == 1
        assert reserve.missing() == 0
        other.closed.clear()
        assert reserve.missing() == 1


class Files:
    """A cache of open files."""

    def __init__(self, reserve: DescriptorReserve, files: int) -> None:
        self.files = files
        reserve.add_cache(self)

    def give_up(self) -> bool:
        if not self.files:
            return False
        self.files -= 1
        return True


async def test_cached_files_are_closed_before_connections() -> None:
    """Reopening a file takes microseconds, but a client that is disconnected has to reconnect."""
    count = Count(0)
    reserve = DescriptorReserve(count)
    first, second, holder = Files(reserve, 2), Files(reserve, 2), DescriptorHolder(1.0, 2.0)
    reserve.add(holder)
    for _ in range(5):
        assert reserve.make_room()
    assert (first.files, second.files, holder.closed) == (0, 0, [1.0])


def test_cached_files_are_closed_if_there_are_no_connections() -> None:
    """Logs are opened before the broker listens."""
    reserve = DescriptorReserve(Count(2))
    files = Files(reserve, 5)
    reserve.taken()
    assert files.files == 3


def test_a_cache_is_not_kept_alive_and_not_used_in_a_forked_child() -> None:
    """A process may start and stop many embedded brokers."""
    reserve = DescriptorReserve(Count(1))
    files = Files(reserve, 1)
    seen = weakref.ref(files)
    del files
    gc.collect()
    assert seen() is None
    assert not reserve.make_room()
    files = Files(reserve, 3)
    reserve.forget()
    assert not reserve.make_room()
    assert files.files == 3
