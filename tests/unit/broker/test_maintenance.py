"""aiokq.broker.maintenance: a node's periodic jobs, in imagined time."""

from __future__ import annotations

import asyncio

import pytest

from aiokq.broker.maintenance import Job, Maintenance
from aiokq.core.errors import KafkaStorage
from aiokq.core.supervisor import Supervisor
from tests.sim.harness.simulation import Simulation, run


def test_a_job_runs_once_per_interval_and_first_after_half_a_minute_at_most():
    """A start has other things to do, but retention of five minutes is not looked at so late."""

    async def main(world: Simulation) -> None:
        loop = asyncio.get_running_loop()
        ran: list[float] = []
        began = loop.time()

        async def note() -> None:
            ran.append(round(loop.time() - began, 3))

        async with Supervisor("test") as supervisor:
            Maintenance(supervisor).start([Job("note", lambda: 300_000, note)])
            await asyncio.sleep(700)
        assert ran == [30, 330, 630]

    run(1, main)


def test_a_changed_interval_counts_from_the_next_run_on():
    """A setting may change while the node runs."""

    async def main(world: Simulation) -> None:
        loop = asyncio.get_running_loop()
        ran: list[float] = []
        interval_ms = 1000
        began = loop.time()

        async def note() -> None:
            nonlocal interval_ms
            ran.append(round(loop.time() - began, 3))
            interval_ms = 5000

        async with Supervisor("test") as supervisor:
            Maintenance(supervisor).start([Job("note", lambda: interval_ms, note)])
            await asyncio.sleep(12)
        assert ran == [1, 6, 11]

    run(1, main)


def test_a_job_that_the_disk_refuses_is_logged_and_runs_again(
    caplog: pytest.LogCaptureFixture,
):
    """A checkpoint that cannot be written now may be written in a minute."""

    async def main(world: Simulation) -> None:
        ran = 0

        async def refuse() -> None:
            nonlocal ran
            ran += 1
            raise KafkaStorage("no room")

        async with Supervisor("test") as supervisor:
            Maintenance(supervisor).start([Job("refused", lambda: 1000, refuse)])
            await asyncio.sleep(3.5)
        assert ran == 3

    run(1, main)
    assert "job failed: job='refused' error=no room" in caplog.text


def test_a_job_with_a_bug_fails_the_node_and_is_not_hidden():
    """An error nobody expected is not repeated every minute without anybody noticing."""

    async def main(world: Simulation) -> None:
        failures: list[BaseException] = []

        async def bug() -> None:
            raise ZeroDivisionError

        supervisor = Supervisor("test", on_failure=failures.append)
        await supervisor.start()
        Maintenance(supervisor).start([Job("bug", lambda: 1000, bug)])
        await asyncio.sleep(2)
        assert [type(failure) for failure in failures] == [ZeroDivisionError]
        await supervisor.close()

    run(1, main)
