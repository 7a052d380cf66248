"""process(): records that fail are isolated, retried, written to a dead-letter topic, or raised."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aiokq.client.process.handler_limit import MAX_SUSPENSIONS
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.events import DeadLettered, ProcessAborted
from aiokq.core.errors import ConfigError, RequestTimeout
from aiokq.errors import RecordTooLarge
from aiokq.fastpath.produce import Outgoing
from aiokq.producer.producer import Producer
from tests.sim.process_world import ProcessWorld, copy, simulate

GUARANTEES = ("exactly_once", "at_least_once")
LANES = [(1, "partition"), (4, "partition"), (4, "key")]


def failing(bad: dict[int, int], calls: list[int]) -> Any:
    """Return a handler that raises for these numbers as often as said."""

    async def handler(record: Any) -> Outgoing:
        number = int(record.value)
        calls.append(number)
        await asyncio.sleep(0.001)
        if bad.get(number, 0) > 0:
            bad[number] -= 1
            raise ValueError(f"secret payload {number}")
        return copy(record)

    return handler


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize(("concurrency", "order_by"), LANES)
def test_a_record_that_fails_is_handled_again_after_a_pause(
    concurrency: int, order_by: str, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The third call succeeds; nothing is lost or doubled, and no log has the payload."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(2)
        await world.produce("in", range(60), 2)
        calls: list[int] = []
        program = world.program(
            failing({20: 2, 33: 1}, calls),
            guarantee=guarantee,
            concurrency=concurrency,
            order_by=order_by,
            retries=2,
        )
        await asyncio.sleep(15)
        report = await program.end()
        assert (report.records, report.dead_letters) == (60, 0)
        assert calls.count(20) >= 3
        assert program.cluster.counters.process_retries == 3
        if guarantee == "exactly_once" or order_by == "partition":
            assert await world.copies() == list(range(60))
        else:
            assert sorted(set(await world.copies())) == list(range(60))
        assert await world.committed("in", 2) == [30, 30]

    simulate(body)
    assert "handler failed and is called again" in caplog.text
    assert "secret" not in caplog.text


def test_the_pauses_of_a_retry_do_not_hold_the_other_partitions_back() -> None:
    """A record that fails for a minute: the transaction timeout does not matter to it."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(2)
        calls: list[int] = []
        program = world.program(
            failing({10: 60}, calls),
            retries=100,
            retry_backoff_ms=1_000,
            retry_backoff_max_ms=1_000,
        )
        await world.produce("in", range(60), 2)
        await asyncio.sleep(20)
        assert await world.committed("in", 2) == [5, 30]
        await asyncio.sleep(60)
        report = await program.end()
        assert (report.records, report.aborts) == (60, 0)
        assert report.commits < 20
        assert await world.copies() == list(range(60))

    simulate(body)


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize(("concurrency", "order_by"), LANES)
def test_a_record_that_keeps_failing_is_written_to_the_dead_letter_topic(
    concurrency: int, order_by: str, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its letter says why and whence; the records around it are handled."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(2, "dead")
        await world.produce("in", range(60), 2)
        program = world.program(
            failing({20: 9, 33: 9}, []),
            guarantee=guarantee,
            concurrency=concurrency,
            order_by=order_by,
            retries=1,
            dead_letter_topic="dead",
        )
        events = program.cluster.events()
        await asyncio.sleep(15)
        report = await program.end()
        assert (report.records, report.dead_letters) == (60, 2)
        assert program.cluster.counters.process_dead_letters == 2
        assert sorted(set(await world.copies())) == sorted(set(range(60)) - {20, 33})
        if guarantee == "exactly_once":
            assert len(await world.copies()) == 58
        letters = {int(letter.value): dict(letter.headers) for letter in await world.values("dead")}
        assert letters == {
            20: {"aiokq.source": b"in-0@10", "aiokq.error": b"ValueError: secret payload 20"},
            33: {"aiokq.source": b"in-1@16", "aiokq.error": b"ValueError: secret payload 33"},
        }
        assert await world.committed("in", 2) == [30, 30]
        seen = [event async for event in events if isinstance(event, DeadLettered)]
        assert sorted((e.partition, e.offset, e.error) for e in seen) == [
            (0, 10, "ValueError"),
            (1, 16, "ValueError"),
        ]

    simulate(body)
    assert "dead-letter" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize(("concurrency", "order_by"), LANES)
def test_without_a_dead_letter_topic_the_error_is_raised_and_says_where(
    concurrency: int, order_by: str, guarantee: str
) -> None:
    """The records before it are committed, it and those after it are not."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(60), 1)
        calls: list[int] = []
        program = world.program(
            failing({20: 9}, calls),
            guarantee=guarantee,
            concurrency=concurrency,
            order_by=order_by,
            retries=1,
        )
        with pytest.raises(ValueError, match="payload 20") as caught:
            await program.task
        assert caught.value.__notes__ == ["raised for in-0@20"]
        assert calls.count(20) >= 2
        assert await world.committed("in", 1) == [20]
        if guarantee == "exactly_once":
            assert await world.copies() == list(range(20))
        second = world.program()
        await asyncio.sleep(10)
        await second.end()
        assert sorted(set(await world.copies())) == list(range(60))

    simulate(body)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_failing_batch_is_written_to_the_dead_letter_topic_as_a_whole(guarantee: str) -> None:
    """A handler of batches cannot say which record it failed for."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1, "dead")
        await world.produce("in", range(30), 1)

        def handler(batch: Any) -> list[Outgoing]:
            if any(record.value == b"12" for record in batch):
                raise ValueError("12")
            return [copy(record) for record in batch]

        program = world.program(
            handler, guarantee=guarantee, batch=True, retries=1, dead_letter_topic="dead"
        )
        await asyncio.sleep(10)
        report = await program.end()
        dead = await world.copies("dead")
        assert 12 in dead
        assert report.dead_letters == len(dead)
        assert sorted(dead + await world.copies()) == list(range(30))

    simulate(body)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (Outgoing("out", "text"), "TypeError"),
        (Outgoing("out", b"x" * 3_000_000), "RecordTooLarge"),
        (Outgoing("out", b"v", partition=7), "UnknownTopicOrPartition"),
        (Outgoing("bad topic!", b"v"), "InvalidTopic"),
        (b"bytes", "TypeError"),
        ([b"bytes"], "TypeError"),
        (42, "TypeError"),
    ],
    ids=str,
)
def test_a_result_that_cannot_be_sent_is_a_failure_of_its_record(bad: Any, error: str) -> None:
    """Results of the same record that were accepted before are not committed either."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1, "dead")
        await world.produce("in", range(30), 1)

        def handler(record: Any) -> Any:
            if record.value == b"12":
                return [copy(record), bad] if isinstance(bad, Outgoing) else bad
            return copy(record)

        program = world.program(handler, retries=3, dead_letter_topic="dead")
        await asyncio.sleep(10)
        report = await program.end()
        assert (report.records, report.dead_letters) == (30, 1)
        assert await world.copies() == sorted(set(range(30)) - {12})
        (letter,) = await world.values("dead")
        assert letter.value == b"12"
        assert dict(letter.headers)["aiokq.error"].decode().startswith(error)

    simulate(body)


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("dead", ["dead", None])
def test_no_line_says_that_no_records_are_processed_again(
    concurrency: int, dead: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: a TypeError of a result followed a line with "records=0".

    The first record has no other record in its transaction; the error is raised, or logged with
    the dead letter.
    """

    async def body(world: ProcessWorld) -> None:
        await world.topics(1, "dead")
        await world.produce("in", range(4), 1)
        program = world.program(
            lambda record: 42 if record.value == b"0" else copy(record),
            dead_letter_topic=dead,
            concurrency=concurrency,
        )
        if dead is None:
            with pytest.raises(TypeError, match=r"a handler returns None.*not int") as caught:
                await program.task
            assert caught.value.__notes__ == ["raised for in-0@0"]
            return
        await asyncio.sleep(10)
        report = await program.end()
        assert (report.records, report.aborts, report.dead_letters) == (4, 1, 1)

    simulate(body)
    lines = [r.getMessage() for r in caplog.records if r.name == "aiokq.client"]
    if dead is None:
        assert lines == []
    else:
        [line] = lines
        assert line.startswith("record is sent to the dead-letter topic: record=in-0@0")


def test_records_are_fetched_again_when_the_waiting_fetch_ends() -> None:
    """The guide says so, and that `fetch_max_wait_ms` shortens it; nothing else is written."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1, "dead")
        await world.produce("in", range(10), 1)
        now = asyncio.get_running_loop().time
        calls: list[tuple[bytes, float]] = []

        def handler(record: Any) -> Any:
            calls.append((record.value, now()))
            return 42 if record.value == b"5" else copy(record)

        settings = {"fetch_max_wait_ms": 20}
        program = world.program(handler, dead_letter_topic="dead", consumer=settings)
        await asyncio.sleep(5)
        await program.end()
        [failed] = [at for value, at in calls if value == b"5"]
        again = next(at for _, at in calls if at > failed)
        assert again - failed < 0.05

    simulate(body)


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("dead", ["dead", None])
def test_only_the_record_is_isolated_whose_result_the_broker_refuses(
    guarantee: str, dead: str | None
) -> None:
    """The broker refuses a whole batch for one record; each of them is tried alone."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1, "dead")
        await world.broker_config("out", "max.message.bytes", "5000")

        def handler(record: Any) -> Outgoing:
            size = 6_000 if record.value == b"12" else 10
            return Outgoing("out", record.value + b" " * size, partition=0)

        await world.produce("in", range(30), 1)
        program = world.program(handler, guarantee=guarantee, dead_letter_topic=dead)
        if dead is None:
            with pytest.raises(RecordTooLarge):
                await program.task
            assert await world.committed("in", 1) == [12]
            return
        events = program.cluster.events()
        await asyncio.sleep(30)
        report = await program.end()
        assert (report.records, report.dead_letters) == (30, 1)
        assert report.aborts >= 1
        found = await world.copies()
        assert sorted(set(found)) == sorted(set(range(30)) - {12})
        if guarantee == "exactly_once":
            assert len(found) == 29
        assert await world.copies("dead") == [12]
        seen = [event async for event in events if isinstance(event, ProcessAborted)]
        assert seen
        assert seen[-1].group_id == "g"

    simulate(body)


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("by", ["client", "broker"])
def test_refused_results_cost_no_pauses(guarantee: str, by: str) -> None:
    """Regression: each one held all partitions back for `retry_backoff_ms` or more.

    A pause is for failures that a later attempt may not have; a refused result is not sent again.
    """

    async def body(world: ProcessWorld) -> None:
        await world.topics(1, "dead")
        await world.broker_config("out", "max.message.bytes", "5000")
        began = asyncio.get_running_loop().time()
        done: list[float] = []

        def handler(record: Any) -> Outgoing:
            if record.value == b"39":
                done.append(asyncio.get_running_loop().time() - began)
            if by == "client":
                return Outgoing("out", "no bytes")  # type: ignore[arg-type]
            return Outgoing("out", record.value + b" " * 6_000)

        await world.produce("in", range(40), 1)
        program = world.program(
            handler,
            guarantee=guarantee,
            dead_letter_topic="dead",
            retry_backoff_ms=1_000,
            # A fetch that waits for records delays the one from the committed offset.
            consumer={"fetch_max_wait_ms": 20},
        )
        await asyncio.sleep(120)
        report = await program.end()
        assert (report.records, report.dead_letters) == (40, 40)
        assert done[-1] < 10
        assert sorted(await world.copies("dead")) == list(range(40))

    simulate(body)


async def _waits_for_a_cancelled_task() -> None:
    task = asyncio.ensure_future(asyncio.sleep(3600))
    asyncio.get_running_loop().call_soon(task.cancel)
    await task


async def _waits_for_a_cancelled_future() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@pytest.mark.parametrize("wait", [_waits_for_a_cancelled_task, _waits_for_a_cancelled_future])
@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize(("concurrency", "order_by"), LANES)
def test_a_handler_whose_wait_is_cancelled_has_failed(
    concurrency: int, order_by: str, guarantee: str, wait: Any
) -> None:
    """Nobody has cancelled the call: the record is not skipped, and the call goes on."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(2, "dead")
        cancelled = {5: 1, 12: 9}

        async def handler(record: Any) -> Outgoing:
            await asyncio.sleep(0.001)
            number = int(record.value)
            if cancelled.get(number, 0) > 0:
                cancelled[number] -= 1
                await wait()
            return copy(record)

        await world.produce("in", range(30), 2)
        program = world.program(
            handler,
            guarantee=guarantee,
            concurrency=concurrency,
            order_by=order_by,
            retries=2,
            dead_letter_topic="dead",
        )
        await asyncio.sleep(15)
        report = await program.end()
        assert (report.records, report.dead_letters) == (30, 1)
        assert sorted(set(await world.copies())) == sorted(set(range(30)) - {12})
        (letter,) = await world.values("dead")
        error = dict(letter.headers)["aiokq.error"]
        assert error == b"RuntimeError: the handler raised CancelledError"
        assert await world.committed("in", 2) == [15, 15]

    simulate(body)


def test_a_handler_that_raises_cancelled_error_itself_has_failed() -> None:
    """As `task.result()` of a cancelled task does."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(3), 1)

        def handler(record: Any) -> Outgoing:
            raise asyncio.CancelledError

        for concurrency in (1, 2):
            program = world.program(handler, concurrency=concurrency)
            with pytest.raises(RuntimeError, match="the handler raised CancelledError"):
                await program.task
        assert await world.committed("in", 1) in ([None], [0], [-1])

    simulate(body)


@pytest.mark.parametrize("error", [ValueError, TimeoutError, RequestTimeout])
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_record_that_does_not_deserialize_is_isolated(
    guarantee: str, error: type[Exception]
) -> None:
    """Its letter has the bytes as received, whatever serializer the results have."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1, "dead")
        await world.produce("in", range(30), 1)
        once = [7]

        def number(data: bytes) -> int:
            if data == b"12" or (data == b"7" and once and once.pop()):
                raise error("no number")
            return int(data)

        program = world.program(
            lambda record: Outgoing("out", record.value, record.key, partition=0),
            guarantee=guarantee,
            retries=1,
            dead_letter_topic="dead",
            consumer={"value_deserializer": number},
            producer_settings={"value_serializer": lambda value: b"%d" % value},
        )
        await asyncio.sleep(15)
        report = await program.end()
        assert (report.records, report.dead_letters) == (30, 1)
        assert sorted(set(await world.copies())) == sorted(set(range(30)) - {12})
        (letter,) = await world.values("dead")
        assert letter.value == b"12"
        assert dict(letter.headers)["aiokq.error"].startswith(error.__name__.encode())
        assert await world.committed("in", 1) == [30]

    simulate(body)


def test_an_error_that_no_header_can_hold_does_not_end_the_call() -> None:
    """A lone surrogate is not UTF-8; a long text would make the letter too large."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1, "dead")
        await world.produce("in", range(2), 1)

        def handler(record: Any) -> Outgoing:
            raise ValueError("\ud800" if record.value == b"0" else "x" * 3_000_000)

        program = world.program(handler, dead_letter_topic="dead")
        await asyncio.sleep(10)
        await program.end()
        errors = [dict(letter.headers)["aiokq.error"] for letter in await world.values("dead")]
        assert errors == [b"ValueError: \\ud800", (b"ValueError: " + b"x" * 2_000)[:1024]]

    simulate(body)


def test_batches_are_not_deserialized() -> None:
    async def body(world: ProcessWorld) -> None:
        with pytest.raises(ConfigError, match="deserialize in the handler"):
            await world.program(batch=True, consumer={"key_deserializer": int}).task

    simulate(body)


def test_the_time_of_the_begin_is_not_that_of_the_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A begin may wait for the coordinator, up to max_block_ms."""
    begin = Producer.begin_transaction

    async def late(producer: Producer) -> Any:
        await asyncio.sleep(9)
        return await begin(producer)

    monkeypatch.setattr(Producer, "begin_transaction", late)

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(30), 1)
        program = world.program()
        await asyncio.sleep(60)
        report = await program.end()
        assert (report.records, report.aborts) == (30, 0)

    simulate(body)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_handler_that_outlives_the_transaction_gets_a_clear_error(concurrency: int) -> None:
    """It says which setting to raise; nothing of the transaction is committed."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        cancelled: list[int] = []

        async def handler(record: Any) -> Outgoing:
            if record.value == b"3":
                try:
                    await asyncio.sleep(3600)
                finally:
                    cancelled.append(3)
            return copy(record)

        await world.produce("in", range(5), 1)
        program = world.program(handler, concurrency=concurrency, max_records=3)
        with pytest.raises(RequestTimeout, match="80% of transaction_timeout_ms=10000: raise it"):
            await program.task
        assert cancelled == [3]
        assert await world.copies() == [0, 1, 2]
        assert await world.committed("in", 1) == [3]

    simulate(body)


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("blocked", [8.5, 11.0], ids=["in time", "too late"])
def test_a_handler_that_blocks_the_loop_gets_the_same_error(
    concurrency: int, blocked: float
) -> None:
    """Nothing can cancel it: the refused commit would be the first sign of it."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)

        def handler(record: Any) -> Outgoing:
            if record.value == b"3":
                asyncio.get_running_loop()._now += blocked  # type: ignore[attr-defined]
            return copy(record)

        await world.produce("in", range(5), 1)
        program = world.program(
            handler,
            concurrency=concurrency,
            max_records=3,
            consumer={"session_timeout_ms": 60_000},
        )
        with pytest.raises(RequestTimeout, match="80% of transaction_timeout_ms=10000: raise it"):
            await program.task
        assert await world.copies() == [0, 1, 2]
        assert await world.committed("in", 1) == [3]

    simulate(body)


def test_a_suspension_excuses_a_handler_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that holds the GIL looks like a suspension, and would be called forever."""
    monkeypatch.setattr(ClusterEngine, "suspended", lambda engine, seconds: seconds)

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        calls: list[bytes] = []

        async def handler(record: Any) -> Outgoing:
            if record.value in (b"3", b"6"):
                calls.append(record.value)
                if record.value == b"6" or len(calls) <= MAX_SUSPENSIONS:
                    await asyncio.sleep(3600)
            return copy(record)

        await world.produce("in", range(10), 1)
        # With one handler at a time, records are also handled while a transaction is committed.
        program = world.program(handler, max_records=2, concurrency=2)
        with pytest.raises(RequestTimeout, match="do less in the handler"):
            await program.task
        assert calls == [b"3"] * (MAX_SUSPENSIONS + 1) + [b"6"] * (MAX_SUSPENSIONS + 1)
        assert await world.copies() == [0, 1, 2, 3, 4, 5]

    simulate(body)


def test_results_for_a_topic_that_does_not_exist_get_a_clear_error() -> None:
    """The handlers are not to blame."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(5), 1)
        program = world.program(lambda record: Outgoing("missing", b"v"))
        with pytest.raises(Exception, match="missing"):
            await program.task
        assert await world.committed("in", 1) == [None]

    simulate(body, settings={"auto.create.topics.enable": "false"})


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_an_error_of_the_handler_that_is_a_cancellation_or_exit_is_raised(guarantee: str) -> None:
    """KeyboardInterrupt and the like are no failures of a record."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(5), 1)

        class Stop(BaseException):
            pass

        def handler(record: Any) -> Outgoing:
            raise Stop

        with pytest.raises(Stop):
            await world.program(handler, guarantee=guarantee, dead_letter_topic="dead").task
        assert await world.committed("in", 1) == [None]

    simulate(body)


def test_a_handler_may_raise_timeout_error() -> None:
    """It is not mistaken for the timeout of the transaction."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(5), 1)

        async def handler(record: Any) -> Outgoing:
            raise TimeoutError("mine")

        with pytest.raises(TimeoutError, match="mine"):
            await world.program(handler).task

    simulate(body)


def test_logs_of_process_never_have_payloads(caplog: pytest.LogCaptureFixture) -> None:
    """Errors of handlers often quote what they choked on."""
    caplog.set_level(logging.DEBUG, logger="aiokq.client")

    async def body(world: ProcessWorld) -> None:
        await world.topics(1, "dead")
        await world.produce("in", range(5), 1)
        program = world.program(failing({1: 1, 2: 9}, []), retries=2, dead_letter_topic="dead")
        await asyncio.sleep(10)
        await program.end()

    simulate(body)
    assert "secret" not in caplog.text
