"""Trying several nodes until the first success, and running requests concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aiokq.cluster.concurrently import concurrently
from aiokq.cluster.first_answer import Attempt, NoAnswer, first_answer
from aiokq.core.errors import AuthenticationFailed, Closed, ConnectionLost, KafkaError
from aiokq.core.supervisor import Supervisor
from tests.unit.cluster.scripted import ScriptedCluster, simulate


def after(seconds: float, outcome: str | KafkaError) -> Callable[[], Awaitable[str]]:
    async def ask() -> str:
        await asyncio.sleep(seconds)
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    return ask


def now() -> float:
    return asyncio.get_running_loop().time()


def test_the_next_starts_when_one_fails_or_is_slow():
    """After a failure the next attempt starts at once, otherwise after the stagger delay."""

    async def main(cluster: ScriptedCluster) -> None:
        async with Supervisor("test") as supervisor:
            attempts = [
                Attempt("refuses", after(0.1, ConnectionLost("no"))),
                Attempt("silent", after(100, "late")),
                Attempt("answers", after(0.1, "first")),
                Attempt("not asked", after(0, "never")),
            ]
            assert await first_answer(supervisor, attempts, stagger=0.5) == "first"
            assert now() == pytest.approx(0.7)

    simulate(main)


def test_all_failures_are_reported():
    """Each failure is reported with its name when it happens, in order of failure."""

    async def main(cluster: ScriptedCluster) -> None:
        async with Supervisor("test") as supervisor:
            attempts = [
                Attempt("slow", after(2, ConnectionLost("a"))),
                Attempt("quick", after(0.1, ConnectionLost("b"))),
            ]
            told: list[tuple[str, float]] = []
            with pytest.raises(NoAnswer) as caught:
                await first_answer(
                    supervisor,
                    attempts,
                    stagger=0.5,
                    on_failure=lambda name, error: told.append((name, round(now(), 1))),
                )
            assert list(caught.value.failures) == ["quick", "slow"]
            assert told == [("quick", 0.6), ("slow", 2.0)]
            with pytest.raises(NoAnswer):
                await first_answer(supervisor, [], stagger=1)

    simulate(main)


def test_an_authentication_failure_ends_all_attempts():
    """The other brokers have the same users, so further attempts cannot succeed."""

    async def main(cluster: ScriptedCluster) -> None:
        async with Supervisor("test") as supervisor:
            asked: list[str] = []

            async def other() -> str:
                asked.append("other")
                return "other"

            attempts = [
                Attempt("refuses", after(0.1, AuthenticationFailed("wrong"))),
                Attempt("other", other),
            ]
            with pytest.raises(NoAnswer):
                await first_answer(supervisor, attempts, stagger=0.5)
            assert not asked

    simulate(main)


def test_the_losers_are_cancelled():
    """Attempts left running would hold connections and tasks."""

    async def main(cluster: ScriptedCluster) -> None:
        async with Supervisor("test") as supervisor:
            attempts = [Attempt("silent", after(100, "x")), Attempt("answers", after(0, "y"))]
            await first_answer(supervisor, attempts, stagger=0.1)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) == 2, "this one and the supervisor's"

    simulate(main)


def test_concurrently_gives_each_outcome():
    """One error does not hide the other results."""

    async def main(cluster: ScriptedCluster) -> None:
        async with Supervisor("test") as supervisor:
            error = ConnectionLost("no")
            outcomes = await concurrently(
                supervisor, [after(1, "a")(), after(2, error)(), after(2, "c")()], name="test"
            )
            assert outcomes == ["a", error, "c"]
            assert now() == 2
            assert await concurrently(supervisor, [], name="test") == []

    simulate(main)


def test_concurrently_leaves_nothing_behind():
    """After a cancellation, or with a closed supervisor, no task and no coroutine is left."""

    async def main(cluster: ScriptedCluster) -> None:
        supervisor = Supervisor("test")
        await supervisor.start()
        waiting = asyncio.create_task(
            concurrently(supervisor, [after(9, "a")(), after(9, "b")()], name="test")
        )
        await asyncio.sleep(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.sleep(0)
        await supervisor.close()
        with pytest.raises(Closed):
            await concurrently(supervisor, [after(9, "a")(), after(9, "b")()], name="test")
        assert now() == 1

    simulate(main)
