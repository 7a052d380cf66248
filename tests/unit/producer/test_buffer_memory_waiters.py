"""BufferMemoryWaiters: the order in which waiters get memory."""

from __future__ import annotations

import asyncio

import pytest

from aiokq.core.errors import BufferFull, Closed
from aiokq.producer.buffer_memory_waiters import BufferMemoryWaiters
from tests.sim.harness.simulation import Simulation, run


class Memory:
    """The accumulator's memory, as BufferMemoryWaiters sees it."""

    def __init__(self, free: int, timeout: float = 10.0) -> None:
        self.free = free
        self.waiting = 0
        self.room = BufferMemoryWaiters(lambda size: size <= self.free, self.set_waiting, timeout)
        self.taken: list[int] = []

    def set_waiting(self, count: int) -> None:
        self.waiting = count

    def take(self, size: int) -> int:
        if size > self.free:
            raise BufferFull
        self.free -= size
        self.taken.append(size)
        return size

    async def wait(self, size: int) -> int:
        return await self.room.take(size, lambda: self.take(size))

    def give(self, size: int) -> None:
        self.free += size
        self.room.freed()


def test_the_first_in_line_is_served_first_even_if_a_later_one_would_fit() -> None:
    """A large record must not starve behind small ones."""

    async def body(world: Simulation) -> None:
        memory = Memory(0)
        large = asyncio.create_task(memory.wait(100))
        small = asyncio.create_task(memory.wait(1))
        await asyncio.sleep(0)
        assert memory.waiting == 2
        memory.give(50)
        await asyncio.sleep(0.1)
        assert not small.done()
        memory.give(60)
        await asyncio.gather(large, small)
        assert memory.taken == [100, 1]
        assert memory.waiting == 0

    run(1, body)


def test_granted_room_is_reserved_until_the_waiter_runs() -> None:
    """Two grants in one call must not reserve the same bytes."""

    async def body(world: Simulation) -> None:
        memory = Memory(0)
        tasks = [asyncio.create_task(memory.wait(10)) for _ in range(4)]
        await asyncio.sleep(0)
        memory.give(20)
        await asyncio.sleep(0.1)
        assert [task.done() for task in tasks] == [True, True, False, False]
        memory.give(20)
        await asyncio.gather(*tasks)

    run(1, body)


def test_a_waiter_cancelled_between_grant_and_run_gives_the_room_to_the_next() -> None:
    """Otherwise the memory stays reserved, and all later waiters hang."""

    async def body(world: Simulation) -> None:
        memory = Memory(0)
        first = asyncio.create_task(memory.wait(10))
        second = asyncio.create_task(memory.wait(10))
        await asyncio.sleep(0)
        memory.give(10)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await second == 10
        assert memory.taken == [10]
        assert memory.waiting == 0

    run(1, body)


def test_a_waiter_cancelled_in_line_lets_the_next_one_forward() -> None:
    """The cancelled waiter was first and needed more memory than was free."""

    async def body(world: Simulation) -> None:
        memory = Memory(5)
        large = asyncio.create_task(memory.wait(100))
        small = asyncio.create_task(memory.wait(5))
        await asyncio.sleep(0.1)
        assert not small.done()
        large.cancel()
        await asyncio.sleep(0.1)
        assert small.done()

    run(1, body)


def test_room_that_does_not_suffice_after_all_keeps_the_place_in_front() -> None:
    """Memory is taken in chunks: a grant is an estimate."""

    async def body(world: Simulation) -> None:
        memory = Memory(0)
        tries = []

        def fussy() -> int:
            tries.append(memory.free)
            if memory.free < 30:
                raise BufferFull
            return memory.take(10)

        first = asyncio.create_task(memory.room.take(10, fussy))
        second = asyncio.create_task(memory.wait(1))
        await asyncio.sleep(0)
        memory.give(10)
        await asyncio.sleep(0.1)
        assert not second.done()
        memory.give(20)
        assert await first == 10
        assert await second == 1
        assert tries == [10, 30]

    run(1, body)


def test_nobody_waits_longer_than_max_block_ms() -> None:
    """The timeout counts from the first wait, not from the last attempt."""

    async def body(world: Simulation) -> None:
        memory = Memory(0, timeout=2.0)
        with pytest.raises(BufferFull, match="max_block_ms=2000"):
            await memory.wait(10)
        assert world.loop.time() == pytest.approx(2.0)
        assert memory.waiting == 0

    run(1, body)


def test_the_end_sends_everybody_away() -> None:
    """After close() no memory is granted, so waiters must fail."""

    async def body(world: Simulation) -> None:
        memory = Memory(0)
        tasks = [asyncio.create_task(memory.wait(10)) for _ in range(3)]
        await asyncio.sleep(0)
        memory.room.fail(Closed("closed"))
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [Closed] * 3
        assert memory.waiting == 0

    run(1, body)


def test_an_error_of_the_append_frees_the_place() -> None:
    """A record that is refused for another reason must not block later waiters."""

    async def body(world: Simulation) -> None:
        memory = Memory(0)

        def broken() -> int:
            raise ValueError("bad record")

        first = asyncio.create_task(memory.room.take(10, broken))
        second = asyncio.create_task(memory.wait(10))
        await asyncio.sleep(0)
        memory.give(10)
        with pytest.raises(ValueError, match="bad record"):
            await first
        assert await second == 10

    run(1, body)


def test_nobody_overtakes_one_whose_room_turned_out_too_small() -> None:
    """Three were granted, the first took more than its size, and the third passed the second."""

    async def body(world: Simulation) -> None:
        memory = Memory(0)
        order: list[str] = []

        async def wait(name: str, size: int, takes: int) -> None:
            def append() -> None:
                memory.take(takes)
                order.append(name)

            await memory.room.take(size, append)

        tasks = [
            asyncio.create_task(wait(*arguments))
            for arguments in (("first", 100, 150), ("second", 100, 100), ("third", 10, 10))
        ]
        await asyncio.sleep(0)
        memory.give(210)
        await asyncio.sleep(0.1)
        assert order == ["first"]
        assert memory.waiting == 2
        memory.give(150)
        await asyncio.gather(*tasks)
        assert order == ["first", "second", "third"]
        assert memory.waiting == 0

    run(1, body)
