"""aiokq.broker.maintenance: a node's periodic jobs, in virtual time."""

from __future__ import annotations

import asyncio
import errno
import itertools

import pytest

from aiokq.broker.maintenance import Job, Maintenance
from aiokq.core.background import FAIL_ON_BUGS, BackgroundWork
from aiokq.core.counters import BrokerCounters
from aiokq.core.errors import KafkaStorage
from aiokq.core.supervisor import State, Supervisor
from tests.sim.harness.simulation import Simulation, run


def background(counters: BrokerCounters | None = None) -> BackgroundWork:
    return BackgroundWork(counters or BrokerCounters(), asyncio.get_running_loop().time)


def test_a_job_runs_once_per_interval_and_first_after_half_a_minute_at_most():
    """The first retention check comes after 30 s, not after the interval of five minutes."""

    async def main(world: Simulation) -> None:
        loop = asyncio.get_running_loop()
        ran: list[float] = []
        began = loop.time()

        async def note() -> None:
            ran.append(round(loop.time() - began, 3))

        async with Supervisor("test") as supervisor:
            Maintenance(supervisor, background()).start([Job("note", lambda: 300_000, note)])
            await asyncio.sleep(700)
        assert ran == [30, 330, 630]

    run(1, main)


def test_a_changed_interval_counts_from_the_next_run_on():
    """The interval is read before each wait."""

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
            Maintenance(supervisor, background()).start([Job("note", lambda: interval_ms, note)])
            await asyncio.sleep(12)
        assert ran == [1, 6, 11]

    run(1, main)


def test_a_job_ends_when_it_is_no_longer_wanted_and_may_start_again():
    """The number of cleaner threads may change; none must run twice."""

    async def main(world: Simulation) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        ran: list[tuple[str, float]] = []
        threads = 2

        def job(number: int) -> Job:
            async def note() -> None:
                ran.append((f"cleaner {number}", round(loop.time() - began, 3)))

            return Job(f"cleaner {number}", lambda: 1000, note, lambda: number < threads)

        async with Supervisor("test") as supervisor:
            maintenance = Maintenance(supervisor, background())
            maintenance.start([job(0), job(1)])
            maintenance.start([job(0), job(1)])
            await asyncio.sleep(1.5)
            threads = 1
            await asyncio.sleep(1)
            threads = 2
            maintenance.start([job(0), job(1)])
            await asyncio.sleep(1.2)
        assert ran == [
            ("cleaner 0", 1),
            ("cleaner 1", 1),
            ("cleaner 0", 2),
            ("cleaner 0", 3),
            ("cleaner 1", 3.5),
        ]

    run(1, main)


def test_a_job_that_fails_is_logged_counted_and_tried_again_with_backoff(
    caplog: pytest.LogCaptureFixture,
):
    """A failed job is retried with backoff.

    A checkpoint that cannot be written now may be written in a minute, and a module that cannot be
    imported for want of descriptors may be imported when some are free.
    """

    async def main(world: Simulation) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        ran: list[float] = []
        counters = BrokerCounters()
        errors = [KafkaStorage("no room"), OSError(errno.EMFILE, "Too many open files")] * 5

        async def refuse() -> None:
            ran.append(round(loop.time() - began, 3))
            if errors:
                raise errors.pop(0)

        async with Supervisor("test") as supervisor:
            Maintenance(supervisor, background(counters)).start(
                [Job("refused", lambda: 1000, refuse)]
            )
            await asyncio.sleep(305.5)
            assert supervisor.state is State.OPEN
        pauses = [after - before for before, after in itertools.pairwise(ran)]
        assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 1]
        assert counters.background_failures == {"refused": 10}

    run(1, main)
    assert "task='refused' error=no room times=1" in caplog.text
    assert "Too many open files" in caplog.text
    assert "Traceback" not in caplog.text


def test_a_job_that_fails_is_not_tried_sooner_than_it_would_have_run():
    """Compaction until the disk is full takes long, so it is not retried each second."""

    async def main(world: Simulation) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        ran: list[float] = []

        async def refuse() -> None:
            ran.append(round(loop.time() - began, 3))
            raise KafkaStorage("no room")

        async with Supervisor("test") as supervisor:
            Maintenance(supervisor, background()).start([Job("refused", lambda: 15_000, refuse)])
            await asyncio.sleep(120)
        assert ran == [15, 30, 45, 60, 75, 91]

    run(1, main)


def test_a_bug_in_a_job_is_logged_with_its_place_and_the_node_goes_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """A bug in the cleaner must not stop the broker."""
    monkeypatch.delenv(FAIL_ON_BUGS)

    async def main(world: Simulation) -> None:
        counters = BrokerCounters()

        async def bug() -> None:
            raise ZeroDivisionError

        async with Supervisor("test") as supervisor:
            Maintenance(supervisor, background(counters)).start([Job("bug", lambda: 1000, bug)])
            await asyncio.sleep(600)
            assert supervisor.state is State.OPEN
        assert counters.background_failures["bug"] > 10

    run(1, main)
    lines = [r for r in caplog.records if r.levelname == "ERROR"]
    assert 3 < len(lines) < 20
    assert "in bug" in caplog.text


def test_a_bug_in_a_job_fails_the_node_where_tests_run():
    """Endless retries would hide it."""

    async def main(world: Simulation) -> None:
        failures: list[BaseException] = []

        async def bug() -> None:
            raise ZeroDivisionError

        supervisor = Supervisor("test")
        await supervisor.start()
        work = BackgroundWork(BrokerCounters(), world.clock.monotonic, fatal=failures.append)
        Maintenance(supervisor, work).start([Job("bug", lambda: 1000, bug)])
        await asyncio.sleep(2)
        assert [type(failure) for failure in failures] == [ZeroDivisionError]
        assert supervisor.state is State.FAILED
        await supervisor.close()

    run(1, main)
