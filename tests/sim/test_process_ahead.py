"""process() handles further records while a transaction is being committed."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from aiokq.admin.client import Admin
from aiokq.client.process.processor import HELD_BYTES
from aiokq.fastpath.produce import Outgoing
from aiokq.producer.transactions.transaction_end import TransactionEnd
from aiokq.producer.transactions.transaction_requests import TransactionRequests
from tests.sim.group_world import until
from tests.sim.process_world import ProcessWorld, copy, simulate
from tests.sim.test_whole_system import SERVERS


class Calls(Counter[int]):
    """Counts the calls of a handler that copies records, by the number in the record."""

    def __call__(self, record: Any) -> Outgoing:
        self[int(record.value)] += 1
        return copy(record)


@pytest.fixture
def delivered(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """An event that the commit of a transaction waits for before its records count as delivered."""
    event = asyncio.Event()
    settle = TransactionEnd._settle

    async def settle_late(end: TransactionEnd) -> None:
        await event.wait()
        await settle(end)

    monkeypatch.setattr(TransactionEnd, "_settle", settle_late)
    return event


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """An event that the producer waits for before it processes the answer to EndTxn."""
    event = asyncio.Event()
    end = TransactionRequests.end

    async def end_late(*args: Any, **options: Any) -> Any:
        answer = await end(*args, **options)
        await event.wait()
        return answer

    monkeypatch.setattr(TransactionRequests, "end", end_late)
    return event


async def lose_partitions(world: ProcessWorld) -> None:
    """Remove the members of the group, which join again."""
    async with Admin(SERVERS, _environment=world.world.environment("10.0.0.8")) as admin:
        await admin.remove_members("g", None)


def test_one_transaction_is_handled_while_another_is_committed(delivered: asyncio.Event) -> None:
    """Not more: their results wait in memory."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(40), 1)
        calls = Calls()
        program = world.program(calls, max_records=10)
        await until(lambda: len(calls) == 20)
        await asyncio.sleep(5)
        assert len(calls) == 20
        delivered.set()
        await until(lambda: len(calls) == 40)
        await asyncio.sleep(5)
        report = await program.end()
        assert (report.records, report.outputs, report.commits) == (40, 40, 4)
        assert await world.copies() == list(range(40))
        assert set(calls.values()) == {1}

    simulate(body)


def test_the_results_of_a_transaction_that_is_committed_alone_are_sent_at_once() -> None:
    """The records handled meanwhile do not wait for more records, only for their commit."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(15), 1)
        program = world.program(max_records=10, commit_interval_ms=5_000)
        await asyncio.sleep(6)
        values = await world.copies(isolation_level="read_uncommitted")
        assert values == list(range(15))
        assert (await program.end()).commits == 2

    simulate(body)


def test_a_commit_that_fails_discards_what_was_handled_meanwhile(delivered: asyncio.Event) -> None:
    """Both transactions are handled again, from the committed offsets on."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(20), 1)
        calls = Calls()
        program = world.program(calls, max_records=10)
        await until(lambda: len(calls) == 20)
        await lose_partitions(world)
        await asyncio.sleep(3)
        delivered.set()
        await asyncio.sleep(20)
        assert set(calls.values()) == {2}
        report = await program.end()
        assert (report.records, report.outputs, report.aborts) == (20, 20, 1)
        assert await world.copies() == list(range(20))
        assert await world.committed("in", 1) == [20]

    simulate(body)


def test_a_loss_after_the_commit_discards_what_was_handled_meanwhile(
    answered: asyncio.Event,
) -> None:
    """The commit that the coordinator has carried out counts."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(20), 1)
        calls = Calls()
        program = world.program(calls, max_records=10)
        await until(lambda: len(calls) == 20)
        await asyncio.sleep(1)
        await lose_partitions(world)
        await asyncio.sleep(3)
        answered.set()
        await asyncio.sleep(20)
        assert calls == Counter(dict.fromkeys(range(10), 1) | dict.fromkeys(range(10, 20), 2))
        report = await program.end()
        assert (report.records, report.outputs, report.aborts) == (20, 20, 1)
        assert await world.copies() == list(range(20))
        assert await world.committed("in", 1) == [20]

    simulate(body)


def test_a_stop_commits_what_was_handled_meanwhile(delivered: asyncio.Event) -> None:
    """The call ends after both commits."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(40), 1)
        calls = Calls()
        program = world.program(calls, max_records=10)
        await until(lambda: len(calls) == 20)
        program.stop.set()
        await asyncio.sleep(1)
        delivered.set()
        report = await program.end()
        assert (report.records, report.commits) == (20, 2)
        assert len(calls) == 20
        assert await world.committed("in", 1) == [20]

    simulate(body)


@pytest.mark.parametrize("bad", [b"x" * 2_000_000, b"not an Outgoing"], ids=["large", "type"])
def test_a_held_result_that_is_refused_is_a_failure_of_its_record(
    delivered: asyncio.Event, bad: bytes
) -> None:
    """The commit in progress is not affected, and the other records are handled again."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1, "dead")
        await world.produce("in", range(20), 1)
        calls = Calls()

        def handler(record: Any) -> Any:
            copied = calls(record)
            if record.value == b"15":
                return Outgoing("out", bad) if len(bad) > 100 else bad
            return copied

        program = world.program(handler, max_records=10, dead_letter_topic="dead")
        await until(lambda: 15 in calls)
        await asyncio.sleep(1)
        delivered.set()
        await asyncio.sleep(20)
        report = await program.end()
        assert (report.records, report.outputs, report.dead_letters) == (20, 20, 1)
        assert report.aborts == 1
        assert all(calls[number] == 1 for number in range(10))
        assert await world.copies() == [n for n in range(20) if n != 15]
        assert await world.copies("dead") == [15]

    simulate(body)


def test_a_commit_may_take_longer_than_the_handlers_of_a_transaction(
    answered: asyncio.Event,
) -> None:
    """The limit of the handlers does not include the time for which their results were held."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(20), 1)
        calls = Calls()

        async def handler(record: Any) -> Outgoing:
            await asyncio.sleep(0.06)
            return calls(record)

        program = world.program(handler, max_records=10)
        await until(lambda: len(calls) > 3)
        await asyncio.sleep(12)
        assert len(calls) < 10
        answered.set()
        await until(lambda: len(calls) == 20)
        await asyncio.sleep(5)
        report = await program.end()
        assert (report.records, report.aborts) == (20, 0)
        assert await world.copies() == list(range(20))

    simulate(body)


def test_results_are_held_up_to_a_size(delivered: asyncio.Event) -> None:
    """A commit that takes long must not fill the memory."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(300), 1)
        calls = Calls()
        size = 50_000

        def handler(record: Any) -> Any:
            calls(record)
            return Outgoing("out", record.value.rjust(size))

        program = world.program(handler, max_records=100)
        await until(lambda: len(calls) > 100)
        await asyncio.sleep(5)
        assert len(calls) <= 100 + HELD_BYTES // size + 8
        delivered.set()
        await until(lambda: len(calls) == 300)
        await asyncio.sleep(5)
        assert (await program.end()).outputs == 300
        assert await world.copies() == list(range(300))

    simulate(body)
