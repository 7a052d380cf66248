"""aiokq.connection.turn: how much work a node does before it yields to other tasks."""

from __future__ import annotations

import asyncio

import pytest

from aiokq.connection import turn as module
from aiokq.connection.turn import REQUESTS_PER_TURN, STEPS_PER_LOOK, Pace, Turn, at_once


async def test_requests_beyond_the_limit_wait_for_the_next_iteration():
    """The number of calls that count the requests makes no difference."""
    turn = Turn()
    assert not turn.spend(1)
    assert not turn.spend(REQUESTS_PER_TURN - 1)
    assert turn.spend(1)
    await turn.next()
    assert not turn.spend(REQUESTS_PER_TURN - 1), "the request that waited is counted here"
    assert turn.spend(1)


async def test_a_thousand_clients_with_one_request_each_begin_the_limit_in_each_iteration():
    """All requests beyond the limit were handled in the second iteration, uncounted.

    They begin in the order in which they arrived, also before those that arrive later.
    """
    turn = Turn()
    began: list[int] = []
    each: list[int] = []

    async def client(number: int) -> None:
        if turn.spend(1):
            await turn.next()
        began.append(number)

    clients = [asyncio.ensure_future(client(number)) for number in range(1000)]
    while len(began) < 1500:
        before = len(began)
        await asyncio.sleep(0)
        each.append(len(began) - before)
        if len(each) == 5:
            clients += [asyncio.ensure_future(client(number)) for number in range(1000, 1500)]
    await asyncio.gather(*clients)
    assert began == list(range(1500))
    assert each[:-1] == [REQUESTS_PER_TURN] * (1500 // REQUESTS_PER_TURN)


async def test_a_client_that_disconnects_while_it_waits_takes_no_place():
    """Its task is cancelled."""
    turn = Turn()
    assert turn.spend(REQUESTS_PER_TURN + 1)
    waiting = [asyncio.ensure_future(turn.next()) for _ in range(3 * REQUESTS_PER_TURN)]
    await asyncio.sleep(0)
    for task in waiting[REQUESTS_PER_TURN : 2 * REQUESTS_PER_TURN]:
        task.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert all(task.done() for task in waiting)


async def test_work_that_continues_counts_as_a_request_and_leaves_the_turn_usable():
    """Downloads yield by their bytes, perhaps while the node has no request at all."""
    turn = Turn()
    share = turn.share(1)
    for _ in range(3 * REQUESTS_PER_TURN):
        await share.next()
    many = [asyncio.ensure_future(turn.share(1).next()) for _ in range(2 * REQUESTS_PER_TURN)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sum(task.done() for task in many) == REQUESTS_PER_TURN
    assert turn.spend(1)
    await asyncio.gather(*many)
    await asyncio.sleep(0)
    assert not turn.spend(REQUESTS_PER_TURN)


async def test_each_loop_iteration_starts_a_new_turn():
    """Requests of an earlier iteration of the loop do not count."""
    turn = Turn()
    for _ in range(10):
        assert not turn.spend(REQUESTS_PER_TURN)
        await asyncio.sleep(0)


async def test_a_request_may_exceed_the_limit_at_no_cost_to_the_next_turn():
    """A request with a thousand batches counts as many requests, but is not split."""
    turn = Turn()
    assert turn.spend(10 * REQUESTS_PER_TURN)
    await turn.next()
    assert not turn.spend(1)


async def test_a_share_is_used_up_by_its_own_bytes_only():
    """Each connection, request and response has its own limit."""
    turn = Turn()
    one, other = turn.share(100), turn.share(100)
    assert not one.spend(0, 99)
    assert not other.spend(0, 99)
    assert one.spend(0, 1)
    await one.next()
    assert not one.spend(0, 99)
    one.renew()
    assert not one.spend(0, 99)


async def test_requests_of_a_share_count_for_the_node():
    """All shares of a node use the same turn, and wait when it is used up."""
    turn = Turn()
    assert not turn.share(100).spend(REQUESTS_PER_TURN, 1)
    assert turn.spend(1)
    assert turn.share(100).spend(1, 1)
    assert not turn.share(100).spend(0, 1)


async def test_next_lets_other_tasks_run():
    turn = Turn()
    ran = []
    asyncio.get_running_loop().call_soon(ran.append, "node")
    await turn.next()
    assert ran == ["node"]
    asyncio.get_running_loop().call_soon(ran.append, "share")
    await turn.share(1).next()
    assert ran == ["node", "share"]


async def test_a_few_steps_need_no_further_turn(monkeypatch):
    """The clock is not even read."""
    monkeypatch.setattr(module, "SECONDS_PER_TURN", 0.0)
    pace = Pace(Turn())
    assert not any(pace.spend() for _ in range(STEPS_PER_LOOK - 1))
    assert pace.spend()


async def test_a_long_request_works_for_a_time_in_each_turn(monkeypatch):
    loop = asyncio.get_running_loop()
    now = loop.time()
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: now, raising=False)
    pace = Pace(Turn())
    turns = 0
    for _ in range(10_000):
        now += 1e-5
        if pace.spend():
            turns += 1
            await pace.next()
    expected = 10_000 * 1e-5 / module.SECONDS_PER_TURN
    assert expected * 0.8 <= turns <= expected
    monkeypatch.setattr(loop, "time", real, raising=False)


async def test_one_long_request_works_in_each_iteration(monkeypatch):
    """However many there are, the loop is held for the time of one."""
    monkeypatch.setattr(module, "SECONDS_PER_TURN", 0.0)
    turn = Turn()
    works: list[int] = []

    async def work(number: int) -> None:
        pace = Pace(turn)
        for _ in range(10):
            pace.spend(STEPS_PER_LOOK)
            await pace.next()
            works.append(number)

    tasks = [asyncio.ensure_future(work(number)) for number in range(5)]
    while not all(task.done() for task in tasks):
        before = len(works)
        await asyncio.sleep(0)
        assert len(works) <= before + 1
    assert works == [0, 1, 2, 3, 4] * 10, "in turn"


async def test_a_long_request_that_is_cancelled_takes_no_place():
    turn = Turn()
    waiting = [asyncio.ensure_future(turn.next_of_long()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    waiting[1].cancel()
    await asyncio.wait_for(waiting[2], 5)
    await asyncio.wait_for(turn.next_of_long(), 5)


async def test_a_turn_of_a_long_request_counts_as_several_requests(monkeypatch):
    """Many new long requests do not all work in one iteration."""
    monkeypatch.setattr(module, "SECONDS_PER_TURN", 0.0)
    turn = Turn()

    async def begin() -> None:
        pace = Pace(turn)
        pace.spend(STEPS_PER_LOOK)
        await pace.next()

    tasks = [asyncio.ensure_future(begin()) for _ in range(3)]
    await asyncio.sleep(0)
    assert turn.spend(REQUESTS_PER_TURN - 3 * module.REQUESTS_PER_LONG_TURN + 1)
    await asyncio.gather(*tasks)


async def test_work_in_steps_returns_its_result(monkeypatch):
    monkeypatch.setattr(module, "SECONDS_PER_TURN", 0.0)

    def work(count):
        for _ in range(count):
            yield
        return count

    pace = Pace(Turn())
    assert await pace.run(work(5)) == 5
    assert pace.steps == 5 * STEPS_PER_LOOK
    assert at_once(work(5)) == 5

    def fails():
        yield
        raise LookupError

    with pytest.raises(LookupError):
        await pace.run(fails())
