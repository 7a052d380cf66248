"""aiokq.broker.log.file_deletion: when files of deleted segments are removed, in virtual time."""

from __future__ import annotations

import asyncio
import functools

import pytest

from aiokq.broker.log.file_deletion import FileDeletion
from aiokq.core.background import FAIL_ON_BUGS
from aiokq.core.counters import BrokerCounters
from aiokq.core.offload import InlineOffload
from aiokq.core.supervisor import State, Supervisor
from tests.sim.harness.simulation import Simulation, run
from tests.unit.broker.harness import Broker, batch
from tests.unit.broker.log.samples import NOW_MS
from tests.unit.broker.test_maintenance import background


def test_each_removal_has_its_own_delay_and_a_stop_waits_for_none():
    """The delay of one topic must not delay other removals, or a stop."""

    async def main(world: Simulation) -> None:
        gone: list[str] = []
        async with Supervisor("test") as supervisor:
            deletion = FileDeletion(InlineOffload(), supervisor, background())
            deletion.later(
                [(1000, lambda: gone.append("second")), (3_600_000, lambda: gone.append("hour"))]
            )
            await asyncio.sleep(0.9)
            assert (gone, len(deletion)) == ([], 2)
            await asyncio.sleep(0.2)
            assert (gone, len(deletion)) == (["second"], 1)
            await deletion.close()
            assert gone == ["second", "hour"]
            await deletion.close()

    run(1, main)


def test_a_removal_that_fails_is_tried_again_and_keeps_no_other_from_going(
    monkeypatch: pytest.MonkeyPatch,
):
    """A removal that raises must not stop the node or other removals."""
    monkeypatch.delenv(FAIL_ON_BUGS)

    async def main(world: Simulation) -> None:
        gone: list[str] = []
        tries = 0

        def fails_twice() -> None:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise ZeroDivisionError
            gone.append("first")

        counters = BrokerCounters()
        async with Supervisor("test") as supervisor:
            deletion = FileDeletion(InlineOffload(), supervisor, background(counters))
            deletion.later([(0, fails_twice), (0, lambda: gone.append("second"))])
            deletion.hurry()
            await asyncio.sleep(0.5)
            assert gone == ["second"]
            await asyncio.sleep(3)
            assert gone == ["second", "first"]
            assert counters.background_failures == {"remove deleted files": 2}
            assert supervisor.state is State.OPEN

    run(1, main)


def test_a_removal_that_fails_does_not_keep_a_stop_waiting(monkeypatch: pytest.MonkeyPatch):
    """The next start removes the remaining files."""
    monkeypatch.delenv(FAIL_ON_BUGS)

    async def main(world: Simulation) -> None:
        def fails() -> None:
            raise ZeroDivisionError

        async with Supervisor("test") as supervisor:
            deletion = FileDeletion(InlineOffload(), supervisor, background())
            deletion.later([(1000, fails)])
            await deletion.close()
            assert len(deletion) == 0

    run(1, main)


def deleted_files(broker: Broker) -> list[str]:
    return [name for name in broker.files.listdir("/data/t-0") if name.endswith(".deleted")]


def test_segments_stay_as_long_as_their_topic_says():
    """file.delete.delay.ms is a topic's setting: time to undo a mistake by hand."""

    async def main(world: Simulation) -> None:
        async with Broker() as broker:
            await broker.create("t", file_delete_delay_ms=5000)
            await broker.produce("t", batch())
            log = broker.node.topics.partition("t", 0).log
            log.roll(NOW_MS)
            log.delete_records(1)
            broker.node.purge_later()
            await asyncio.sleep(4.9)
            assert deleted_files(broker)
            await asyncio.sleep(0.2)
            assert not deleted_files(broker)

    run(1, main)


def test_a_partitions_directory_stays_as_long_as_the_broker_says():
    """The delay of a deleted topic is no longer known."""

    async def main(world: Simulation) -> None:
        async with Broker(**{"log.segment.delete.delay.ms": 2000}) as broker:
            await broker.create("t", file_delete_delay_ms=5_000_000)
            await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
            await asyncio.sleep(1.9)
            assert [n for n in broker.files.listdir("/data") if n.endswith("-delete")]
            await asyncio.sleep(0.2)
            assert not [n for n in broker.files.listdir("/data") if n.endswith("-delete")]

    run(1, main)


def test_a_stop_leaves_nothing_deleted_behind():
    """Otherwise the next start would find and report the file."""

    async def main(world: Simulation) -> None:
        broker = Broker()
        async with broker:
            await broker.create("t", file_delete_delay_ms=5_000_000)
            await broker.produce("t", batch())
            log = broker.node.topics.partition("t", 0).log
            log.roll(NOW_MS)
            log.delete_records(1)
            broker.node.purge_later()
        assert not deleted_files(broker)

    run(1, main)


def test_one_removal_that_passes_by_itself_does_not_wait_for_others_that_fail(
    monkeypatch: pytest.MonkeyPatch,
):
    """Fifty removals fail without a free descriptor; each is retried after one second."""
    monkeypatch.delenv(FAIL_ON_BUGS)

    async def main(world: Simulation) -> None:
        gone: list[int] = []
        tried: set[int] = set()

        def remove(number: int) -> None:
            if number not in tried:
                tried.add(number)
                raise OSError(24, "Too many open files")
            gone.append(number)

        async with Supervisor("test") as supervisor:
            deletion = FileDeletion(InlineOffload(), supervisor, background())
            deletion.later([(0, functools.partial(remove, number)) for number in range(50)])
            await asyncio.sleep(0.5)
            assert len(tried) == 50
            await asyncio.sleep(1)
            assert sorted(gone) == list(range(50))

    run(1, main)


async def test_a_topic_deleted_while_the_node_closes_leaves_no_file_and_no_timer():
    """Regression: the files were scheduled after the deletions had been stopped, so that a timer
    of a closed node was left in the user's loop.
    """
    broker = Broker()
    await broker.node.open()
    await broker.create("t", 3)
    deletion = asyncio.ensure_future(broker.node.metadata.delete_topic(broker.node.topics.get("t")))
    await asyncio.sleep(0)
    file_deletion = broker.node._deletion
    await broker.node.close()
    await deletion
    assert [name for name in broker.files.listdir("/data") if name.startswith("t-")] == []
    assert len(file_deletion) == 0
