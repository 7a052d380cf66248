"""A single timer for all deadlines of a connection."""

from __future__ import annotations

import asyncio

from aiokq.connection.lazy_timer import LazyTimer
from tests.sim.harness.simulation import Simulation, run


def test_the_timer_fires_at_the_earliest_time_and_then_at_the_next() -> None:
    """Requests with later deadlines share the timer; an earlier deadline moves it."""

    async def main(world: Simulation) -> list[float]:
        fired: list[float] = []

        def check(now: float) -> float | None:
            fired.append(now)
            return 8.0 if len(fired) == 1 else None

        timer = LazyTimer(world.loop, check)
        timer.arm(5.0)
        timer.arm(9.0)
        timer.arm(3.0)
        await asyncio.sleep(20)
        return fired

    assert run(1, main).value == [3.0, 8.0]


def test_a_cancelled_timer_does_not_fire_until_armed_again() -> None:
    """A closed connection must not leave a timer behind."""

    async def main(world: Simulation) -> list[float]:
        fired: list[float] = []
        timer = LazyTimer(world.loop, lambda now: fired.append(now))
        timer.arm(1.0)
        timer.cancel()
        await asyncio.sleep(2)
        assert fired == []
        timer.arm(4.0)
        await asyncio.sleep(5)
        return fired

    assert run(1, main).value == [4.0]
