"""How a call of process() ends: by SIGTERM, and when nobody answers whether it has committed."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from aiokq.admin.client import Admin
from aiokq.broker.embedded import EmbeddedCluster
from aiokq.client.cluster import Cluster
from aiokq.core.errors import CommitOutcomeUnknown
from aiokq.producer.producer import Producer
from aiokq.producer.transactions.transaction_requests import TransactionRequests
from tests.sim.group_world import until
from tests.sim.process_world import ProcessWorld, copy, settled, simulate
from tests.sim.test_whole_system import SERVERS


@pytest.mark.parametrize("after", [0.0, 0.0005, 0.001])
def test_a_commit_that_nobody_answers_ends_the_call_and_the_next_one_goes_on(
    after: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker disappears during an EndTxn that is not answered by then, and for max_block_ms."""
    end = TransactionRequests.end

    async def body(world: ProcessWorld) -> None:
        async def cut(requests: TransactionRequests, *arguments: Any, **options: Any) -> Any:
            cuts = asyncio.get_running_loop().call_later(
                after, world.network.partition, program.host
            )
            try:
                return await end(requests, *arguments, **options)
            finally:
                cuts.cancel()

        await world.topics(1)
        await world.produce("in", range(300), 1)
        program = world.program(max_records=20, producer_settings={"max_block_ms": 3_000})
        monkeypatch.setattr(TransactionRequests, "end", cut)
        with pytest.raises(CommitOutcomeUnknown):
            await program.task
        monkeypatch.undo()
        world.network.heal()
        second = world.program()
        await asyncio.sleep(30)
        await second.end()
        assert await world.copies() == list(range(300))
        assert await world.committed("in", 1) == [300]

    simulate(body)


def test_an_outage_is_waited_for_although_it_is_longer_than_max_block_ms() -> None:
    """An abort that nobody answers is repeated; only a commit may have an unknown outcome."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(30), 1)

        cuts: list[int] = []

        def handler(record: Any) -> Any:
            if record.value == b"19" and not cuts:
                cuts.append(1)
                world.network.partition(program.host)
                asyncio.get_running_loop().call_later(20, world.network.heal)
            return copy(record)

        program = world.program(
            handler,
            max_records=20,
            transaction_timeout_ms=120_000,
            producer_settings={"max_block_ms": 3_000},
        )
        await asyncio.sleep(15)
        assert not program.task.done()
        await asyncio.sleep(60)
        report = await program.end()
        assert report.aborts >= 1
        assert await world.copies() == list(range(30))

    simulate(body)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_an_outage_longer_than_the_transaction_timeout_is_waited_for(level: int) -> None:
    """The coordinator aborts the transaction and fences its producer: another one goes on."""

    async def body(world: ProcessWorld) -> None:
        if level < 2:
            await world.level(level)
        await world.topics(1)
        await world.produce("in", range(30), 1)
        cuts: list[int] = []

        async def handler(record: Any) -> Any:
            await asyncio.sleep(0.05)  # so that the coordinator learns of the transaction
            if record.value == b"19" and not cuts:
                cuts.append(1)
                world.network.partition(program.host)
                asyncio.get_running_loop().call_later(25, world.network.heal)
            return copy(record)

        program = world.program(
            handler,
            max_records=20,
            commit_interval_ms=5_000,
            consumer={"session_timeout_ms": 60_000},
            producer_settings={"max_block_ms": 3_000},
        )
        await asyncio.sleep(120)
        report = await program.end()
        assert report.records == 30
        assert report.aborts >= 1
        assert await world.copies() == list(range(30))
        assert await world.committed("in", 1) == [30]

    simulate(body)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_commit_after_the_transaction_timeout_is_repeated_by_another_producer(
    level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator says INVALID_TXN_STATE, because it has aborted: this ended the call."""
    end = TransactionRequests.end
    delays = [15.0]

    async def late(requests: TransactionRequests, *arguments: Any, **options: Any) -> Any:
        if delays:
            await asyncio.sleep(delays.pop())
        return await end(requests, *arguments, **options)

    async def body(world: ProcessWorld) -> None:
        if level < 2:
            await world.level(level)
        await world.topics(1)
        await world.produce("in", range(30), 1)
        monkeypatch.setattr(TransactionRequests, "end", late)
        program = world.program(max_records=20, consumer={"session_timeout_ms": 60_000})
        await asyncio.sleep(60)
        report = await program.end()
        assert report.records == 30
        assert report.aborts == 1
        assert await world.copies() == list(range(30))
        assert await world.committed("in", 1) == [30]

    simulate(body)


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("later", [0.0, 0.3])
def test_a_call_ends_at_once_if_all_tasks_of_its_loop_are_cancelled(
    later: float, reverse: bool, concurrency: int
) -> None:
    """As asyncio.run does after KeyboardInterrupt: nothing is left that could send or leave.

    Regression: closing the clients took a minute, or the call never ended.
    """

    async def body(world: ProcessWorld) -> None:
        await world.topics(2)
        await world.produce("in", range(1_000), 2)

        async def handler(record: Any) -> Any:
            await asyncio.sleep(0.001)
            return copy(record)

        program = world.program(
            handler, max_records=100, commit_interval_ms=50, concurrency=concurrency
        )
        await until(lambda: program.cluster.counters.process_commits or program.task.done())
        await asyncio.sleep(later)
        clients = ("cluster ", "consumer ", "producer ", "process: ")
        tasks = [task for task in asyncio.all_tasks() if task.get_name().startswith(clients)]
        tasks = [program.task, *sorted(tasks, key=lambda task: task.get_name())]
        before = world.world.loop.time()
        for task in reversed(tasks) if reverse else tasks:
            task.cancel()
        await settled([program.task])
        assert program.task.cancelled()
        assert world.world.loop.time() - before < 0.1
        second = world.program()
        await asyncio.sleep(25)
        await second.end()
        assert await world.copies() == list(range(1_000))

    simulate(body)


async def test_sigterm_ends_the_call_after_the_records_that_are_being_handled() -> None:
    """As the programs of a service are ended; a handler of the program itself is left alone."""
    before = signal.getsignal(signal.SIGTERM)
    async with EmbeddedCluster() as kafka, Cluster(kafka.bootstrap_servers) as cluster:
        async with cluster.producer() as producer:
            for n in range(10):
                await producer.send("in", b"%d" % n, partition=0)

        async def handler(record: Any) -> Any:
            if record.value == b"4":
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.sleep(0.05)
            return copy(record)

        report = await cluster.process("in", handler, group_id="g")
        assert report.records == 5
        assert signal.getsignal(signal.SIGTERM) is before is signal.SIG_DFL
        stop = asyncio.Event()
        rest = await cluster.process("in", _until(9, stop), group_id="g", stop=stop)
        assert rest.records == 5


async def test_sigterm_ends_each_call_of_the_loop() -> None:
    async with EmbeddedCluster() as kafka, Cluster(kafka.bootstrap_servers) as cluster:
        async with cluster.producer() as producer:
            for topic in ("a", "b"):
                await producer.send(topic, b"1")
        seen: list[str] = []

        def handler(record: Any) -> None:
            seen.append(record.topic)
            if len(seen) == 2:
                os.kill(os.getpid(), signal.SIGTERM)

        async with asyncio.timeout(20):
            reports = await asyncio.gather(
                *(cluster.process(topic, handler, group_id=topic) for topic in ("a", "b"))
            )
        assert [report.records for report in reports] == [1, 1]
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_cancelled_call_starts_no_other_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its producer was fenced, and the coordinator does not answer the next one."""
    start = Producer.start
    starts: list[Producer] = []

    async def started(producer: Producer) -> None:
        if producer.settings.transactional_id is not None:
            starts.append(producer)
            if len(starts) > 1:
                await asyncio.sleep(3600)
        await start(producer)

    monkeypatch.setattr(Producer, "start", started)

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(5), 1)
        program = world.program()
        await asyncio.sleep(5)
        async with Admin(SERVERS, _environment=world.world.environment("10.0.0.8")) as admin:
            transactional_ids = list(await admin.list_transactions())
            await admin.fence_producers(transactional_ids)
        await world.produce("in", range(5), 1)
        await until(lambda: len(starts) == 2)
        began = asyncio.get_running_loop().time()
        program.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await program.task
        assert len(starts) == 2
        assert asyncio.get_running_loop().time() - began < 1

    simulate(body)


def _until(last: int, stop: asyncio.Event) -> Any:
    def handler(record: Any) -> Any:
        if int(record.value) == last:
            stop.set()
        return copy(record)

    return handler
