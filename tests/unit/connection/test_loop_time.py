"""LoopTime counts the steps of a coroutine, and not the time for which it waits."""

from __future__ import annotations

import asyncio

import pytest

from aiokq.connection.loop_time import LoopTime, Timed


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_waiting_costs_nothing() -> None:
    """Three steps of two seconds; between them, the loop is free for others."""
    clock = Clock()
    loop_time = LoopTime(clock)

    async def work() -> str:
        for _ in range(2):
            clock.seconds += 2
            await asyncio.sleep(0)
        clock.seconds += 2
        return "done"

    async def other() -> None:
        clock.seconds += 100
        await asyncio.sleep(0)
        clock.seconds += 100

    async def main() -> None:
        task = asyncio.create_task(other())
        assert await Timed(work(), loop_time) == "done"
        await task

    asyncio.run(main())
    assert loop_time.take() == 6
    assert loop_time.take() == 0


def test_the_step_in_progress_counts_up_to_now() -> None:
    """A request asks for its own time while it is handled; the rest counts for the next one."""
    clock = Clock()
    loop_time = LoopTime(clock)
    taken = []

    async def work() -> None:
        clock.seconds += 1
        taken.append(loop_time.take())
        clock.seconds += 3

    asyncio.run(_run(Timed(work(), loop_time)))
    taken.append(loop_time.take())
    assert taken == [1, 3]


def test_errors_and_cancellations_reach_the_coroutine() -> None:
    """The wrapper must not change what a handler sees, and the time until the error counts."""
    clock = Clock()
    loop_time = LoopTime(clock)
    seen = []

    async def fails() -> None:
        clock.seconds += 1
        await asyncio.sleep(0)
        raise ValueError("own")

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(0)  # a cancelled coroutine may still wait
            clock.seconds += 1
            raise

    async def main() -> None:
        with pytest.raises(ValueError, match="own"):
            await Timed(fails(), loop_time)
        task = asyncio.create_task(_run(Timed(waits(), loop_time)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert seen == ["cancelled"]
    assert loop_time.take() == 2


def test_an_end_without_a_beginning_is_ignored() -> None:
    """Counting may begin between the two calls of a transport."""
    loop_time = LoopTime(Clock())
    loop_time.end()
    assert loop_time.take() == 0


async def _run(timed: Timed[None]) -> None:
    await timed
