"""CallerQuotas: answers of a user's function, kept, and renewed while no request waits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest

from aiokq.broker.security.quotas import caller_quotas
from aiokq.broker.security.quotas.caller_quotas import CallerQuotas, QuotaCallable
from aiokq.connection.request_context import RequestContext

KEY = "producer_byte_rate"


class World:
    def __init__(self, quota: QuotaCallable) -> None:
        self.now = 0.0
        self.tasks: list[asyncio.Task[None]] = []
        self.quotas = CallerQuotas(quota, lambda: self.now, self.spawn)
        self.connection = RequestContext(1, "", "", "")

    def spawn(self, work: Coroutine[object, None, None], name: str) -> None:
        self.tasks.append(asyncio.create_task(work, name=name))

    def limit(self, client_id: str = "c") -> float | None:
        return self.quotas.limit(self.connection, client_id, KEY)

    async def settled(self) -> None:
        while self.tasks:
            await self.tasks.pop()


async def test_a_function_is_asked_once_a_second_at_most() -> None:
    """At first in the request, later beside it."""
    asked = []

    def quota(principal: str, client_id: str, key: str) -> float:
        asked.append((principal, client_id, key))
        return float(len(asked))

    world = World(quota)
    assert [world.limit() for _ in range(100)] == [1.0] * 100
    world.now = 1.0
    assert world.limit() == 1.0
    assert len(asked) == 1
    await world.settled()
    assert world.limit() == 2.0
    assert set(asked) == {("User:ANONYMOUS", "c", KEY)}


async def test_a_coroutine_function_never_delays_a_request() -> None:
    """A new client has no quota until the answer is there."""
    answer = asyncio.get_running_loop().create_future()

    async def quota(principal: str, client_id: str, key: str) -> float | None:
        return await answer  # type: ignore[no-any-return]

    world = World(quota)
    assert world.limit() is None
    await asyncio.sleep(0)
    assert world.limit() is None
    assert len(world.tasks) == 1
    answer.set_result(7)
    await world.settled()
    assert world.limit() == 7.0


async def test_an_object_with_a_coroutine_method_and_a_function_that_returns_one_are_awaited() -> (
    None
):
    """Both are ways to write an asynchronous function."""

    class Quota:
        async def __call__(self, principal: str, client_id: str, key: str) -> float:
            return 3.0

    made = Quota()
    for quota in (made, lambda *question: made(*question)):
        world = World(quota)
        assert world.limit() is None
        await world.settled()
        assert world.limit() == 3.0


@pytest.mark.parametrize("wrong", [-1, 0, float("nan"), float("inf"), True, "5", RuntimeError()])
async def test_a_wrong_answer_leaves_the_last_one_in_effect(
    wrong: object, caplog: pytest.LogCaptureFixture
) -> None:
    """A failing function must neither stop clients nor let them loose; the log says why."""
    answers: list[object] = [5, wrong, None]

    def quota(principal: str, client_id: str, key: str) -> float:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    world = World(quota)
    assert world.limit() == 5.0
    world.now = 1.0
    world.limit()
    await world.settled()
    assert world.limit() == 5.0
    assert "quota function failed: principal=User:ANONYMOUS client_id=c" in caplog.text
    world.now = 2.0
    world.limit()
    await world.settled()
    assert world.limit() is None


async def test_a_function_that_hangs_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Several answers are awaited at once, each for a limited time."""
    monkeypatch.setattr(caller_quotas, "ANSWER_SECONDS", 0.05)

    async def quota(principal: str, client_id: str, key: str) -> float:
        if client_id == "hangs":
            await asyncio.Event().wait()
        return 1.0

    world = World(quota)
    world.limit("hangs")
    world.limit("works")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert world.limit("works") == 1.0
    await world.settled()
    assert world.limit("hangs") is None
    assert "TimeoutError" in caplog.text


async def test_many_clients_are_asked_for_by_few_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the number of answers that are kept is bounded."""
    monkeypatch.setattr(caller_quotas, "MOST", 50)

    async def quota(principal: str, client_id: str, key: str) -> float:
        await asyncio.sleep(0)
        return float(client_id)

    world = World(quota)
    for n in range(1, 200):
        world.limit(str(n))
    assert len(world.tasks) == caller_quotas.AT_ONCE
    assert len(world.quotas._answers) == 50
    await world.settled()
    assert world.limit("199") == 199.0
