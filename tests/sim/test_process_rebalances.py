"""process() in a group: what a rebalance hands over is committed before, or not at all."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import Any

import pytest

from aiokq.admin.client import Admin
from aiokq.core.errors import ProducerFenced
from aiokq.producer.delivery_engine import DeliveryEngine
from aiokq.producer.producer import Producer
from aiokq.producer.transactions.transaction_state import TransactionState
from tests.sim.group_world import PROTOCOLS, until
from tests.sim.process_world import ProcessWorld, copy, settled, simulate
from tests.sim.test_whole_system import SERVERS

SEEDS = int(os.environ.get("AIOKQ_PROCESS_SEEDS", "12"))

GROUPS: list[tuple[str, dict[str, Any]]] = [
    ("classic", {}),
    ("classic", {"partition_assignment_strategy": "cooperative-sticky"}),
    ("consumer", {}),
]
IDS = ["eager", "cooperative", "consumer"]


@pytest.mark.parametrize(("protocol", "consumer"), GROUPS, ids=IDS)
def test_a_transaction_ends_before_partitions_are_handed_over(
    protocol: str, consumer: dict[str, Any]
) -> None:
    """It would last 7 s; the second member goes on at once, at the offsets of the first."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(4)

        async def slow(record: Any) -> Any:
            await asyncio.sleep(0.01)
            return copy(record)

        options: dict[str, Any] = {
            "protocol": protocol,
            "consumer": consumer,
            "commit_interval_ms": 7_000,
        }
        first = world.program(slow, **options)
        await asyncio.sleep(5)
        await world.produce("in", range(400), 4)
        await asyncio.sleep(1)
        second = world.program(slow, **options)
        await asyncio.sleep(30)
        reports = [await first.end(), await second.end()]
        assert sum(report.records for report in reports) == 400
        assert all(report.aborts == 0 for report in reports)
        assert await world.copies() == list(range(400))
        assert await world.committed("in", 4) == [100] * 4

    simulate(body)


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize(("protocol", "consumer"), GROUPS, ids=IDS)
def test_nothing_of_a_lost_partition_is_committed(
    protocol: str, consumer: dict[str, Any], guarantee: str
) -> None:
    """The first member is silent for so long that the second one takes over its records."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(2)
        await world.produce("in", range(20), 2)
        cancelled: list[bytes] = []
        gate = asyncio.Event()

        async def stuck(record: Any) -> Any:
            try:
                await gate.wait()
            except asyncio.CancelledError:
                cancelled.append(record.value)
                raise
            return copy(record)

        first = world.program(
            stuck,
            protocol=protocol,
            consumer=consumer,
            guarantee=guarantee,
            concurrency=2,
            transaction_timeout_ms=120_000,
        )
        await asyncio.sleep(4)
        world.network.partition(first.host)
        second = world.program(protocol=protocol, consumer=consumer, guarantee=guarantee)
        await asyncio.sleep(30)
        world.network.heal()
        await asyncio.sleep(30)
        assert cancelled  # half-done handlers are cancelled
        gate.set()
        await asyncio.sleep(10)
        await first.end()
        await second.end()
        assert await world.copies() == list(range(20))
        assert await world.committed("in", 2) == [10, 10]

    simulate(body)


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize(("protocol", "consumer"), GROUPS, ids=IDS)
def test_a_commit_that_waits_when_partitions_are_lost_is_not_carried_out(
    protocol: str, consumer: dict[str, Any], guarantee: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offsets were accepted and results are still on their way: on_lost comes first."""
    delivered = asyncio.Event()
    is_settled, progress, flush = (
        DeliveryEngine.is_settled.fget,
        TransactionState.progress,
        Producer.flush,
    )
    assert is_settled is not None

    def settled_late(engine: DeliveryEngine) -> bool:
        return delivered.is_set() and is_settled(engine)

    async def progress_late(state: TransactionState, deadline: float) -> bool:
        if delivered.is_set():
            return await progress(state, deadline)
        return await delivered.wait()

    async def flush_late(producer: Producer) -> None:
        await delivered.wait()
        await flush(producer)

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(10), 1)
        monkeypatch.setattr(DeliveryEngine, "is_settled", property(settled_late))
        monkeypatch.setattr(TransactionState, "progress", progress_late)
        monkeypatch.setattr(Producer, "flush", flush_late)
        calls: Counter[bytes] = Counter()

        def handler(record: Any) -> Any:
            calls[record.value] += 1
            return copy(record)

        program = world.program(handler, protocol=protocol, consumer=consumer, guarantee=guarantee)
        await until(lambda: len(calls) == 10)
        await asyncio.sleep(1)
        async with Admin(SERVERS, _environment=world.world.environment("10.0.0.8")) as admin:
            await admin.remove_members("g", None)
        await asyncio.sleep(3)
        delivered.set()
        await asyncio.sleep(20)
        assert set(calls.values()) == {2}, "what was handled before the loss was committed"
        report = await program.end()
        assert report.aborts == 1
        assert report.records == 10
        copies = await world.copies()
        assert copies == list(range(10)) or guarantee == "at_least_once"
        assert await world.committed("in", 1) == [10]

    simulate(body)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_after_an_abort_positions_return_to_the_committed_offsets(protocol: str) -> None:
    """The coordinator aborts a transaction that takes too long; its records are handled again."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(2)
        calls: Counter[int] = Counter()
        failed = False

        async def handler(record: Any) -> Any:
            nonlocal failed
            calls[int(record.value)] += 1
            if record.value == b"30" and not failed:
                failed = True
                world.network.partition(program.host)
                asyncio.get_running_loop().call_later(11, world.network.heal)
            return copy(record)

        await world.produce("in", range(60), 2)
        program = world.program(handler, protocol=protocol, max_records=10)
        await asyncio.sleep(60)
        report = await program.end()
        assert report.records == 60
        assert report.aborts >= 1
        assert max(calls.values()) <= 3
        assert await world.copies() == list(range(60))
        assert await world.committed("in", 2) == [30, 30]

    simulate(body)


def test_a_group_without_offsets_reads_an_aborted_record_again_although_it_starts_at_the_end() -> (
    None
):
    """auto_offset_reset=latest must not skip what was read and not committed."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        calls = 0

        def handler(record: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 3:
                return b"this cannot be sent"
            return copy(record)

        program = world.program(
            handler, consumer={"auto_offset_reset": "latest"}, dead_letter_topic="out"
        )
        await asyncio.sleep(6)
        await world.produce("in", range(5), 1)
        await asyncio.sleep(10)
        report = await program.end()
        assert report.aborts == 1
        assert await world.copies() == list(range(5))

    simulate(body)


def test_a_call_with_the_same_instance_id_fences_the_one_before() -> None:
    """The fenced call ends with ProducerFenced or the fencing of its member; nothing is doubled."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(50), 1)
        first = world.program(group_instance_id="a", commit_interval_ms=5_000)
        await asyncio.sleep(3)
        second = world.program(group_instance_id="a")
        await asyncio.sleep(20)
        assert first.task.done()
        with pytest.raises(Exception, match=r"(?i)fenced|group_instance_id|transactional id"):
            await first.task
        await second.end()
        assert await world.copies() == list(range(50))

    simulate(body)


def test_a_fenced_producer_ends_the_call() -> None:
    """Another producer was started with its transactional id."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        program = world.program(producer_settings={"transactional_id": "t"})
        await asyncio.sleep(3)
        async with Producer(
            SERVERS, transactional_id="t", _environment=world.world.environment("10.0.6.1")
        ):
            await world.produce("in", range(50), 1)
            with pytest.raises(ProducerFenced):
                await program.task
        assert await world.copies() == []
        assert await world.committed("in", 1) == [None]

    simulate(body)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_exactly_the_input_comes_out_whatever_is_killed(seed: int) -> None:
    """Members and the broker are killed, cut off, stopped, cancelled and started at random."""

    async def body(world: ProcessWorld) -> None:
        random = world.random
        partitions = 3
        await world.topics(partitions)
        total = 300
        programs: list[Any] = []
        ended: list[Any] = []

        async def handler(record: Any) -> Any:
            if random.random() < 0.3:
                await asyncio.sleep(random.random() * 0.1)
            if random.random() < 0.003:
                raise ValueError("a random failure")
            return copy(record)

        def start() -> None:
            protocol, consumer = GROUPS[seed % 3]
            programs.append(
                world.program(
                    handler,
                    protocol=protocol,
                    consumer=consumer,
                    concurrency=random.choice([1, 4]),
                    order_by=random.choice(["partition", "key"]),
                    commit_interval_ms=random.choice([0, 100, 1_000]),
                    max_records=random.choice([1, 20, 1_000]),
                    retries=50,
                    transaction_timeout_ms=5_000,
                )
            )

        for _ in range(3):
            start()
        writing = asyncio.get_running_loop().create_task(
            world.produce("in", range(total), partitions)
        )
        await writing
        for _ in range(random.randrange(4, 9)):
            await asyncio.sleep(random.random() * 3)
            victim = random.choice(programs)
            match random.choice(["kill", "stop", "cancel", "cut", "broker", "isolate"]):
                case "kill":
                    programs.remove(victim)
                    victim.kill()
                    ended.append(victim)
                    start()
                case "stop":
                    programs.remove(victim)
                    victim.stop.set()
                    ended.append(victim)
                    start()
                case "cancel":
                    programs.remove(victim)
                    victim.task.cancel()
                    ended.append(victim)
                    start()
                case "cut":
                    for connection in world.network.connections("10.0.0.1", 9092):
                        if random.random() < 0.5:
                            connection.cut()
                case "broker":
                    world.broker.kill()
                    await asyncio.sleep(random.random() * 3)
                    await world.broker.start()
                case "isolate":
                    world.network.partition(victim.host)
                    await asyncio.sleep(random.random() * 12)
                    world.network.heal()
            for program in list(programs):
                if program.task.done():  # unknown outcome, or fenced by its own timeout
                    programs.remove(program)
                    ended.append(program)
                    start()
        async with asyncio.timeout(600):
            while (
                None in (offsets := await world.committed("in", partitions))
                or sum(offset or 0 for offset in offsets) < total
            ):
                await asyncio.sleep(5)
                for program in list(programs):
                    if program.task.done():
                        programs.remove(program)
                        ended.append(program)
                        start()
        for program in programs:
            program.stop.set()
        await settled(program.task for program in programs + ended)
        assert await world.copies() == list(range(total))

    simulate(body, seed=seed)


@pytest.mark.parametrize("at", range(0, 60, 4))
def test_a_call_that_is_cancelled_anywhere_leaves_what_it_had_not_committed(at: int) -> None:
    """Cancelled at its n-th step: the next call copies the rest, once each."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(2)
        await world.produce("in", range(40), 2)
        program = world.program(max_records=7, commit_interval_ms=50, concurrency=1 + at % 2)
        await until(lambda: program.cluster.counters.process_commits or program.task.done())
        for _ in range(at):
            await asyncio.sleep(0)
        program.task.cancel()
        await settled([program.task])
        second = world.program()
        await asyncio.sleep(25)
        await second.end()
        assert await world.copies() == list(range(40))
        assert await world.committed("in", 2) == [20, 20]

    simulate(body)
