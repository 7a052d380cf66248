"""`Strangers`: what connections before their login may use of the event loop."""

from __future__ import annotations

import asyncio

import pytest

from aiokq.connection.strangers import (
    IDLE_SHARE,
    LONGEST_STEP,
    MOST_SECONDS_PER_TURN,
    QUIET_SECONDS,
    SECONDS_PER_TURN,
    SHARE,
    UNSEEN_SECONDS,
    Strangers,
)
from aiokq.connection.turn import Turn


class World:
    """A loop whose thread works as long as the test says."""

    def __init__(self) -> None:
        self.now = 100.0
        self.turn = Turn()
        self.strangers = Strangers(self.turn, lambda: self.now)
        self.done = 0

    def work(self, seconds: float) -> None:
        self.now += seconds

    def step(self, seconds: float = SECONDS_PER_TURN / 2) -> None:
        self.done += 1
        self.work(seconds)

    def request(self, seconds: float = 0.001) -> None:
        self.turn.spend(1)
        self.work(seconds)


async def test_without_clients_steps_use_a_time_in_each_iteration() -> None:
    """Between them the loop looks for what has arrived."""
    world = World()
    assert [world.strangers.do(world.step) for _ in range(9)] == [True] * 2 + [False] * 7
    done = [world.done]
    for _ in range(4):
        await asyncio.sleep(0)
        done.append(world.done)
    assert done == [2, 4, 6, 8, 9]


async def test_beside_clients_all_steps_have_a_share_of_the_time() -> None:
    """However many there are."""
    world = World()
    for _ in range(10_000):
        world.strangers.do(world.step)
    began, before = world.now, world.done
    for _ in range(2000):
        world.request()
        await asyncio.sleep(0)
    used = (world.done - before) * SECONDS_PER_TURN / 2
    assert used == pytest.approx((world.now - began) * SHARE, rel=0.05)


async def test_a_step_that_took_long_is_made_up_for() -> None:
    """The steps after it wait until clients have had their part."""
    world = World()
    world.strangers.do(lambda: world.step(0.0015))
    world.strangers.do(world.step)
    for _ in range(15):
        world.request()
        await asyncio.sleep(0)
    assert world.done == 1
    for _ in range(15):
        world.request()
        await asyncio.sleep(0)
    assert world.done == 2


async def test_a_step_that_another_process_interrupts_counts_for_a_limited_time() -> None:
    """The clock goes on meanwhile."""
    world = World()
    world.strangers.do(lambda: world.step(10.0))
    world.strangers.do(world.step)
    for _ in range(int(2 * LONGEST_STEP / SHARE / 0.001)):
        world.request()
        await asyncio.sleep(0)
    assert world.done == 2


async def test_when_clients_are_quiet_no_debt_is_left() -> None:
    """An idle loop makes nobody wait."""
    world = World()
    world.request()
    world.strangers.do(lambda: world.step(1.0))
    world.strangers.do(world.step)
    world.request()
    await asyncio.sleep(0)
    assert world.done == 1
    world.work(QUIET_SECONDS)
    await asyncio.sleep(0)
    assert world.done == 2


async def test_between_requests_steps_have_a_larger_share_of_the_time() -> None:
    """A client that waits for each answer is delayed by few of them."""
    world = World()
    for _ in range(10_000):
        world.strangers.do(world.step)
    began, before = world.now, world.done
    for _ in range(500):
        world.request(0.0)
        await asyncio.sleep(0)
        for _ in range(5):
            world.work(0.0001)
            await asyncio.sleep(0)
    used = (world.done - before) * SECONDS_PER_TURN / 2
    assert used == pytest.approx((world.now - began) * IDLE_SHARE, rel=0.1)


async def test_time_that_was_not_used_is_not_saved_up() -> None:
    """After an hour of work for clients, strangers do not get six minutes at once."""
    world = World()
    world.strangers.do(world.step)
    await asyncio.sleep(0)
    world.request(3600.0)
    while world.strangers.do(world.step):
        pass
    assert (world.done - 1) * SECONDS_PER_TURN / 2 == pytest.approx(MOST_SECONDS_PER_TURN, rel=0.2)


async def test_an_accept_counts_what_the_system_does_for_a_connection_too() -> None:
    """Its reads, and its end; as long as clients send requests."""
    world = World()
    for requests in (0, 1):
        world.turn.spend(requests)
        world.work(1.0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        count = 0
        while count < 100 and world.strangers.begin():
            count += 1
            world.strangers.end(is_new=True)
        expected = MOST_SECONDS_PER_TURN / UNSEEN_SECONDS if requests else 100
        assert count == pytest.approx(expected, abs=1)


async def test_a_long_step_may_end_the_turn() -> None:
    """Of TLS handshakes, one is computed in an iteration."""
    world = World()
    world.strangers.do(world.strangers.end_turn)
    assert not world.strangers.begin()
    await asyncio.sleep(0)
    assert world.strangers.begin()


async def test_steps_that_wait_come_before_new_ones() -> None:
    """Connections that were accepted are finished before others are accepted."""
    world = World()
    order = []
    world.strangers.do(lambda: world.step(0.001))
    world.strangers.do(lambda: order.append("first"))
    assert not world.strangers.begin()
    world.strangers.do_later(lambda: order.append("second"))
    await asyncio.sleep(0)
    assert order == ["first", "second"]


async def test_a_step_that_fails_delays_no_other() -> None:
    """Its error is reported by the loop."""
    world = World()
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(context["exception"])
    )
    failure = RuntimeError("a bug")

    def fail() -> None:
        raise failure

    with pytest.raises(RuntimeError, match="a bug"):
        world.strangers.do(fail)
    world.strangers.do_later(fail)
    world.strangers.do_later(world.step)
    for _ in range(3):
        await asyncio.sleep(0)
    assert (world.done, reported) == (1, [failure])


async def test_a_step_begins_in_any_case_if_the_clock_stands_still() -> None:
    """As in a simulation."""
    world = World()
    for _ in range(1000):
        world.turn.spend(1)
        assert world.strangers.do(lambda: world.step(0.0))
        await asyncio.sleep(0)
