"""process(): records are handled and their results written, in each form of handler and result."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from aiokq.admin.client import Admin
from aiokq.client.cluster import Cluster
from aiokq.core.errors import ConfigError
from aiokq.core.types import TopicPartition
from aiokq.fastpath.produce import Outgoing
from aiokq.producer.producer import Producer
from tests.sim.group_world import PROTOCOLS, until
from tests.sim.process_world import ProcessWorld, copy, simulate
from tests.sim.test_whole_system import SERVERS

GUARANTEES = ("exactly_once", "at_least_once")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_each_record_is_copied_once_and_its_offset_committed(guarantee: str, protocol: str) -> None:
    """The plain case: nothing fails."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(2)
        await world.produce("in", range(500), 2)
        program = world.program(guarantee=guarantee, protocol=protocol)
        await asyncio.sleep(10)
        report = await program.end()
        assert await world.copies() == list(range(500))
        assert await world.committed("in", 2) == [250, 250]
        assert (report.records, report.outputs, report.aborts) == (500, 500, 0)
        counters = program.cluster.counters
        assert counters.process_records == 500
        assert counters.process_commits == report.commits > 0
        assert counters.process_aborts == counters.process_dead_letters == 0

    simulate(body)


def test_a_transaction_ends_by_the_number_of_records() -> None:
    """Bounded transactions bound what is done again after an abort."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(100), 1)
        program = world.program(max_records=10, commit_interval_ms=7_000)
        await asyncio.sleep(5)  # less than the interval
        assert await world.copies() == list(range(100))
        assert (await program.end()).commits == 10

    simulate(body)


def test_a_transaction_ends_by_time_although_handlers_are_slow() -> None:
    """All records that were read need 40 s, the transaction may take 8 s: it ends after 1 s."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(200), 1)

        async def slow(record: Any) -> Outgoing:
            await asyncio.sleep(0.2)
            return copy(record)

        program = world.program(slow, commit_interval_ms=1_000)
        await asyncio.sleep(2.5)
        (committed,) = await world.committed("in", 1)
        assert committed is not None
        assert 4 <= committed <= 30
        await asyncio.sleep(60)
        report = await program.end()
        assert (report.records, report.aborts) == (200, 0)
        assert 30 <= report.commits <= 60
        assert await world.copies() == list(range(200))

    simulate(body)


async def _async_copy(record: Any) -> Outgoing:
    await asyncio.sleep(0.001)
    return copy(record)


def _list(record: Any) -> list[Outgoing]:
    return [copy(record), Outgoing("second", record.value)]


def _tuple(record: Any) -> tuple[Outgoing, ...]:
    return (copy(record), Outgoing("second", record.value))


async def _async_list(record: Any) -> list[Outgoing]:
    return _list(record)


async def _async_iterator(record: Any) -> Any:
    yield copy(record)
    await asyncio.sleep(0.001)
    yield Outgoing("second", record.value)


def _generator(record: Any) -> Any:
    yield from _list(record)


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize(
    ("handler", "fans_out"),
    [
        (copy, False),
        (_async_copy, False),
        (_list, True),
        (_tuple, True),
        (_async_list, True),
        (_async_iterator, True),
        (_generator, True),
        (lambda record: None, None),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_handler_returns_none_one_or_several_results(
    handler: Any, fans_out: bool | None, concurrency: int
) -> None:
    """Sync and async, as a list and as an async iterator, to one topic and to several."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(2, "second")
        await world.produce("in", range(40), 2)
        program = world.program(handler, concurrency=concurrency)
        await asyncio.sleep(5)
        report = await program.end()
        assert report.records == 40
        assert await world.copies() == ([] if fans_out is None else list(range(40)))
        assert await world.copies("second") == (list(range(40)) if fans_out else [])
        assert await world.committed("in", 2) == [20, 20]

    simulate(body)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_handler_takes_batches(concurrency: int) -> None:
    """With batch=True, sync and side by side."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(3)
        sizes: list[int] = []

        async def handler(batch: Any) -> list[Outgoing]:
            sizes.append(len(batch))
            await asyncio.sleep(0.01)
            return [copy(record) for record in batch]

        await world.produce("in", range(300), 3)
        program = world.program(handler, batch=True, concurrency=concurrency)
        await asyncio.sleep(5)
        report = await program.end()
        assert report.records == sum(sizes) == 300
        assert len(sizes) < 300
        assert await world.copies() == list(range(300))
        assert await world.committed("in", 3) == [100, 100, 100]

    simulate(body)


def test_key_headers_partition_and_timestamp_of_a_result_are_written() -> None:
    """They are the arguments of `send`."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(3)

        at = world.world.clock.timestamp_ms() - 12_345

        def handler(record: Any) -> Outgoing:
            return Outgoing("out", b"v", b"k", headers=[("h", b"1")], partition=2, timestamp_ms=at)

        await world.produce("in", [1], 1)
        program = world.program(handler)
        await asyncio.sleep(5)
        await program.end()
        (found,) = await world.values()
        assert (found.key, found.value, found.partition) == (b"k", b"v", 2)
        assert found.timestamp_ms == at
        assert [tuple(header) for header in found.headers] == [("h", b"1")]

    simulate(body)


@pytest.mark.parametrize("order_by", ["partition", "key"])
def test_order_is_kept_and_other_lanes_run_side_by_side(order_by: str) -> None:
    """Records of a partition, or of a key, never overlap and come in order; others overlap."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(4)
        running: dict[Any, int] = {}
        seen: dict[Any, list[int]] = {}
        most = 0

        async def handler(record: Any) -> Outgoing:
            nonlocal most
            lane = record.partition if order_by == "partition" else record.key
            assert not running.get(lane)
            running[lane] = 1
            most = max(most, sum(running.values()))
            seen.setdefault(lane, []).append(int(record.value))
            await asyncio.sleep(world.random.random() * 0.02)
            running[lane] = 0
            return copy(record)

        environment = world.world.environment("10.0.0.9")
        async with Producer(SERVERS, _environment=environment) as producer:
            for n in range(400):
                key = b"k%d" % (n % 12)
                await producer.enqueue("in", b"%d" % n, key=key, partition=n % 4)
        program = world.program(handler, concurrency=6, order_by=order_by)
        await asyncio.sleep(30)
        report = await program.end()
        assert (report.records, report.aborts) == (400, 0)
        assert most == (4 if order_by == "partition" else 6)
        assert all(numbers == sorted(numbers) for numbers in seen.values())
        assert len(seen) == (4 if order_by == "partition" else 12)
        assert await world.copies() == list(range(400))

    simulate(body)


def test_one_hot_key_neither_stalls_nor_reorders_the_commits() -> None:
    """All records but a few have the same key: the time of a transaction still bounds it."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)

        async def handler(record: Any) -> Outgoing:
            await asyncio.sleep(0.05)
            return Outgoing("out", record.value, b"hot")

        await world.produce("in", range(200), 1)
        program = world.program(
            lambda record: handler(record), concurrency=4, order_by="key", commit_interval_ms=500
        )
        await asyncio.sleep(20)
        report = await program.end()
        assert (report.records, report.aborts) == (200, 0)
        assert await world.copies() == list(range(200))

    simulate(body)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_full_buffer_holds_the_handlers_back(guarantee: str) -> None:
    """Results that have no room in buffer_memory wait; nothing fails."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)

        def handler(record: Any) -> list[Outgoing]:
            return [Outgoing("out", record.value + b" " * 1_000)] * 5

        await world.produce("in", range(100), 1)
        program = world.program(
            handler,
            guarantee=guarantee,
            producer_settings={"buffer_memory": 10_000, "batch_size": 4_000},
        )
        await asyncio.sleep(10)
        report = await program.end()
        assert (report.records, report.outputs, report.aborts) == (100, 500, 0)
        assert len(await world.values()) == 500

    simulate(body)


def test_a_stopped_call_commits_what_was_handled_and_leaves_the_rest() -> None:
    """The next call goes on where it ended, with no record twice."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(2)
        calls = itertools.count(1)
        program: Any = None

        async def handler(record: Any) -> Outgoing:
            await asyncio.sleep(0.01)
            if next(calls) == 37:
                program.stop.set()
            return copy(record)

        await world.produce("in", range(100), 2)
        program = world.program(handler, commit_interval_ms=5_000)
        report = await program.task
        assert report.records == 37
        assert report.commits >= 1
        assert len(await world.copies()) == 37
        second = world.program()
        await asyncio.sleep(5)
        assert (await second.end()).records == 63
        assert await world.copies() == list(range(100))

    simulate(body)


def test_a_call_that_waits_for_records_stops_at_once() -> None:
    """It does not wait for the end of its wait for records."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        program = world.program()
        await asyncio.sleep(5.1)
        before = world.world.loop.time()
        program.stop.set()
        await until(lambda: program.task.done())
        assert world.world.loop.time() - before < 0.3

    simulate(body)


def test_the_results_go_to_another_cluster() -> None:
    """output= takes at_least_once only, because a transaction spans one cluster."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(50), 1)
        async with Cluster(
            SERVERS, client_id="other", _environment=world.world.environment("10.0.5.1")
        ) as output:
            program = world.program(output=output, guarantee="at_least_once")
            await asyncio.sleep(5)
            await program.end()
            assert output.counters.records_sent == 50
            assert program.cluster.counters.records_sent == 0
            assert await world.copies() == list(range(50))
            with pytest.raises(ConfigError, match="at_least_once"):
                await world.program(output=output).task

    simulate(body)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"guarantee": "twice"}, "exactly_once, at_least_once"),
        ({"order_by": "topic"}, "partition, key"),
        ({"concurrency": 0}, "concurrency"),
        ({"max_records": 0}, "max_records"),
        ({"retries": -1}, "retries"),
        ({"group_id": ""}, "group_id"),
        ({"commit_interval_ms": 8_000}, "leaves no time"),
        ({"batch": True, "concurrency": 2, "order_by": "key"}, "batch=False"),
        ({"topics": ()}, "at least one topic"),
        ({"consumer": {"enable_auto_commit": True}}, "enable_auto_commit"),
        ({"consumer": {"ack_mode": "explicit"}}, "ack_mode"),
        ({"consumer": {"group_id": "x"}}, "group_id"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_starts(
    options: dict[str, Any], text: str
) -> None:
    """A ConfigError says what is wrong."""

    async def body(world: ProcessWorld) -> None:
        with pytest.raises(ConfigError, match=text):
            await world.program(**options).task

    simulate(body)


def test_a_handler_that_is_no_function_is_refused() -> None:
    """At the call, not at the first record."""

    async def body(world: ProcessWorld) -> None:
        with pytest.raises(TypeError, match="callable"):
            await world.program(b"handler").task

    simulate(body)


def test_the_transactional_id_is_the_group_and_the_instance_id_or_random() -> None:
    """So a restarted static member fences its predecessor, and members never fence each other."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(3), 1)
        programs = [
            world.program(group_instance_id="a"),
            world.program(group_id="other"),
            world.program(group_id="other"),
        ]
        await asyncio.sleep(5)
        ids = sorted(
            str(name) for program in programs for name in program.cluster._engine._transactional_ids
        )
        for program in programs:
            await program.end()
        assert ids[0] == "g-a"
        assert len(set(ids)) == 3
        assert all(name.startswith("other-") and len(name) == 22 for name in ids[1:])

    simulate(body)


def test_positions_pass_the_end_of_a_transaction_so_that_lag_is_0_at_rest() -> None:
    """The input is itself written in transactions, whose markers come after the last record."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1, "mid")
        await world.produce("in", range(10), 1)
        first = world.program(lambda record: Outgoing("mid", record.value))
        second = world.program(topics="mid", group_id="second")
        await asyncio.sleep(10)
        async with world.reader("mid") as reader:
            end = (await reader.end_offsets([("mid", 0)]))[TopicPartition("mid", 0)]
        assert end > 10
        assert await world.committed("mid", 1, "second") == [end]
        await first.end()
        await second.end()
        assert await world.copies() == list(range(10))

    simulate(body)


@pytest.mark.parametrize("levels", [(0,), (1,), (2, 1, 2)], ids=str)
def test_each_level_of_transaction_version_will_do_and_may_change(levels: tuple[int, ...]) -> None:
    """Connections are made again after each change, which tell the level."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(2)
        program: Any = None
        for n, level in enumerate(levels):
            if level < 2 or n:
                await world.level(level)
            if program is None:
                program = world.program(concurrency=2, max_records=7)
            else:
                for connection in world.network.connections("10.0.0.1", 9092):
                    connection.cut()
            await world.produce("in", range(100 * n, 100 * n + 100), 2)
            await asyncio.sleep(10)
        report = await program.end()
        assert report.records == 100 * len(levels)
        assert await world.copies() == list(range(100 * len(levels)))
        assert await world.committed("in", 2) == [50 * len(levels)] * 2

    simulate(body)


@pytest.mark.parametrize("isolation", [None, "read_uncommitted"])
def test_the_source_is_read_committed_unless_told_otherwise(isolation: str | None) -> None:
    """What another transaction aborted is no input."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        environment = world.world.environment("10.0.0.9")
        async with Producer(SERVERS, transactional_id="in", _environment=environment) as source:
            await source.begin_transaction()
            await source.send("in", b"1", partition=0)
            await source.abort_transaction()
            async with source.transaction():
                await source.send("in", b"2", partition=0)
        given = {} if isolation is None else {"isolation_level": isolation}
        program = world.program(consumer=given)
        await asyncio.sleep(5)
        await program.end()
        assert await world.copies() == ([2] if isolation is None else [1, 2])

    simulate(body)


def test_after_a_crash_readers_wait_for_ten_seconds_at_most() -> None:
    """The transaction timeout is that of Kafka Streams, not the minute of a producer."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(5), 1)
        stuck = asyncio.Event()

        async def handler(record: Any) -> Any:
            if record.value == b"4":
                stuck.set()
                await asyncio.sleep(3600)
            return copy(record)

        program = world.program(handler, max_records=100)
        await stuck.wait()
        await asyncio.sleep(1)
        environment = world.world.environment("10.0.0.8")
        async with Admin(SERVERS, _environment=environment) as admin:
            (name,) = await admin.list_transactions()
            described = (await admin.describe_transactions([name]))[name]
        assert described.state == "Ongoing"
        assert described.transaction_timeout_ms == 10_000
        program.kill()
        await world.produce("out", [99], 1)
        crashed = asyncio.get_running_loop().time()
        async with world.reader("out") as reader:
            record = await reader.getone()
        assert record.value == b"99"
        # The coordinator looks for late transactions every 10 s.
        assert asyncio.get_running_loop().time() - crashed <= 20

    simulate(body)
