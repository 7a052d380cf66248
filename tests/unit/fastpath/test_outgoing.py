"""Outgoing, and HandlerResults: handlers are called for many items, and their results appended."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from aiokq.core.errors import NotLeaderOrFollower, RecordTooLarge
from tests import cores
from tests.unit.fastpath.conftest import FixedClock

Make = Callable[..., Any]


def never() -> bool:
    return False


def values(made: Any) -> list[bytes]:
    """Return the values that were appended, by batch."""
    return [value for batch in made.opened for _, value, _, _ in batch.records()]


class Loop:
    """HandlerResults of a core, with the items 0 to 9."""

    def __init__(self, core: SimpleNamespace, made: Any, *, direct: bool = True) -> None:
        self.core = core
        self.results = core.HandlerResults(made.accumulator, direct)
        self.items = list(range(10))

    def copy(self, item: int) -> Any:
        return self.core.Outgoing("t", b"%d" % item, b"k")

    def handle(self, handler: Any, start: int = 0, stop: int = 10, **given: Any) -> Any:
        options = {"seconds": 60.0, "ended": never} | given
        return self.results.handle(
            handler, self.items, start, stop, options["seconds"], options["ended"]
        )


@pytest.fixture
def loop(core: SimpleNamespace, bench: Make) -> Make:
    """A factory: loop(direct=True, **settings) returns a Loop and its Bench."""

    def make(*, direct: bool = True, **settings: Any) -> Any:
        made = bench(**settings)
        return Loop(core, made, direct=direct), made

    return make


def test_an_outgoing_is_a_value(core: SimpleNamespace) -> None:
    """It is compared, hashed, printed and matched by its fields, and survives a pickle."""
    one = core.Outgoing("t", b"v", b"k", [("h", b"1")], partition=2, timestamp_ms=3)
    assert (one.topic, one.value, one.key) == ("t", b"v", b"k")
    assert (one.headers, one.partition, one.timestamp_ms) == ([("h", b"1")], 2, 3)
    assert one == core.Outgoing("t", b"v", b"k", [("h", b"1")], 2, 3)
    assert one != core.Outgoing("t", b"v")
    assert one != ("t", b"v", b"k", [("h", b"1")], 2, 3)
    assert hash(core.Outgoing("t", b"v")) == hash(core.Outgoing("t", b"v"))
    assert repr(one) == (
        "Outgoing(topic='t', value=b'v', key=b'k', headers=[('h', b'1')], partition=2, "
        "timestamp_ms=3)"
    )
    match one:
        case core.Outgoing("t", value):
            assert value == b"v"
        case _:
            pytest.fail("not matched")
    again = pickle.loads(pickle.dumps(one))
    assert (again.topic, again.headers, again.timestamp_ms) == ("t", [("h", b"1")], 3)


def test_the_results_of_all_items_are_appended_in_order(loop: Make) -> None:
    """None, one, a list, and the results of coroutines that never wait."""
    made, there = loop()

    async def later(item: int) -> Any:
        return [made.copy(item), made.copy(item + 200)]

    def handler(item: int) -> Any:
        if item % 4 == 0:
            return None
        if item % 4 == 1:
            return made.copy(item)
        return later(item) if item % 4 == 2 else [made.copy(item), made.copy(item + 100)]

    assert made.handle(handler) == (10, None, None)
    expected = [1, 2, 202, 3, 103, 5, 6, 206, 7, 107, 9]
    assert [int(value) for value in values(there)] == expected
    assert len(made.results) == len(expected)


@pytest.mark.parametrize(
    "error", [ValueError("x"), StopIteration(1), asyncio.CancelledError()], ids=repr
)
def test_an_error_of_the_handler_is_returned_with_its_item(
    loop: Make, error: BaseException
) -> None:
    """The items before it are done, and those behind it are not begun.

    The caller knows whether a CancelledError is its own cancellation.
    """
    made, there = loop()
    seen = []

    def handler(item: int) -> Any:
        seen.append(item)
        if item == 3:
            raise error
        return made.copy(item)

    assert made.handle(handler, 1) == (3, None, error)
    assert seen == [1, 2, 3]
    assert values(there) == [b"1", b"2"]


def test_an_error_of_a_coroutine_is_returned_with_its_item(loop: Make) -> None:
    """As the error of a function is."""
    made, _ = loop()

    async def handler(item: int) -> Any:
        raise ValueError(item)

    reached, rest, error = made.handle(handler, 4)
    assert (reached, rest) == (4, None)
    assert isinstance(error, ValueError)
    assert error.args == (4,)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_of_the_handler_is_raised(loop: Make, kind: type[BaseException]) -> None:
    """It concerns whoever runs the handler, not the item."""
    made, _ = loop()

    def handler(item: int) -> Any:
        raise kind

    with pytest.raises(kind):
        made.handle(handler)


async def test_a_coroutine_that_waits_is_continued_by_an_await(loop: Make) -> None:
    """It goes on where it waited: for a future, for a turn of the loop, for a callback."""
    made, _ = loop()
    future = asyncio.get_running_loop().create_future()
    steps = []

    async def handler(item: int) -> Any:
        steps.append("begun")
        steps.append(await future)
        await asyncio.sleep(0)
        try:
            await asyncio.wait_for(asyncio.get_running_loop().create_future(), 0)
        except TimeoutError:
            steps.append("timeout")
        return made.copy(item)

    reached, rest, error = made.handle(handler, 2)
    assert (reached, error, steps) == (2, None, ["begun"])
    asyncio.get_running_loop().call_soon(future.set_result, "answer")
    assert await rest == made.copy(2)
    assert steps == ["begun", "answer", "timeout"]


async def test_a_coroutine_that_waits_is_cancelled_where_it_waits(loop: Make) -> None:
    """Its cleanup runs, and what it returns afterwards counts."""
    made, _ = loop()
    steps = []

    async def handler(item: int) -> Any:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            steps.append("cancelled")
            await asyncio.sleep(0)
            steps.append("cleaned up")
            raise

    async def run() -> Any:
        _, rest, _ = made.handle(handler)
        return await rest

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["cancelled", "cleaned up"]


async def test_a_coroutine_that_waits_is_closed_with_its_wait(loop: Make) -> None:
    """As when a loop ends, and its tasks are collected."""
    made, _ = loop()
    steps = []

    async def handler(item: int) -> Any:
        try:
            await asyncio.sleep(3600)
        finally:
            steps.append("closed")

    _, rest, _ = made.handle(handler)
    waiting = rest.__await__()
    next(waiting)
    waiting.close()
    assert steps == ["closed"]


@pytest.mark.parametrize("result", [("a", "b"), object(), iter(())], ids=["tuple", "other", "iter"])
def test_any_other_result_is_left_to_the_caller(loop: Make, result: Any) -> None:
    """An iterator may take long, and what is no result is refused there."""
    made, _ = loop()
    assert made.handle(lambda item: result, 5) == (5, result, None)


def test_the_rest_of_a_list_is_returned_from_the_first_result_that_has_to_wait(loop: Make) -> None:
    """The results before it are appended, and the handler is not called again."""
    made, there = loop(batch_size=4_000, buffer_memory=5_000, max_record_bytes=5_000)

    def handler(item: int) -> Any:
        return [made.core.Outgoing("t", bytes(1_000)) for _ in range(2)]

    reached, rest, error = made.handle(handler)
    assert (reached, len(rest), error) == (1, 1, None)
    assert len(made.results) == len(values(there)) == 3
    assert made.results.append(2, rest, 0) == 0
    there.opened[0].seal(0)
    there.opened[0].complete(0)
    assert made.results.append(2, rest, 0) == 1


def test_nothing_is_appended_while_other_calls_wait_for_memory(loop: Make) -> None:
    """They would never get any."""
    made, there = loop()
    there.accumulator.waiting = 1
    assert made.handle(made.copy) == (0, [made.copy(0)], None)
    assert values(there) == []


@pytest.mark.parametrize("bad", ["refused", "text", "topic", "time", "object"])
def test_a_result_that_is_refused_is_left_to_the_caller(loop: Make, bad: str) -> None:
    """Sent again, it is refused with the same error."""
    made, there = loop()
    result = made.copy(1)
    if bad == "refused":
        there.accumulator.refuse(RecordTooLarge("x"))
    elif bad == "text":
        result = made.core.Outgoing("t", "text")
    elif bad == "topic":
        result = made.core.Outgoing("no such topic!", b"v")
    elif bad == "time":
        result = made.core.Outgoing("t", b"v", timestamp_ms=-2)
    else:
        result = b"no result"
    reached, rest, error = made.handle(lambda item: [made.copy(0), result])
    assert (reached, error) == (0, None)
    assert rest == ([made.copy(0), result] if bad == "refused" else [result])


def test_headers_that_can_be_read_once_are_left_to_the_caller(loop: Make) -> None:
    """If they were read and the buffer was full, they would be lost."""
    made, _ = loop()
    result = made.core.Outgoing("t", b"v", headers=iter([("h", b"1")]))
    assert made.handle(lambda item: result) == (0, [result], None)


def test_results_are_left_to_the_caller_if_they_have_to_be_serialized(loop: Make) -> None:
    """The handler is called nevertheless."""
    made, there = loop(direct=False)
    assert made.handle(lambda item: made.copy(item) if item == 4 else None) == (
        4,
        [made.copy(4)],
        None,
    )
    made.results.add(4, there.accumulator.append("t", b"4"))
    assert len(made.results) == 1


def test_no_further_item_is_handled_when_the_time_is_over_or_the_end_has_come(
    core: SimpleNamespace, bench: Make
) -> None:
    """But one is always handled, so that there is progress."""
    clock = FixedClock()
    made = Loop(core, bench(clock=clock))

    def handler(item: int) -> Any:
        clock.now += 400
        return made.copy(item)

    assert made.handle(handler, seconds=1.0) == (3, None, None)
    assert made.handle(handler, 3, seconds=-1.0) == (4, None, None)
    calls = iter([False, True])
    assert made.handle(handler, 4, ended=lambda: next(calls)) == (6, None, None)
    assert made.handle(handler, 6, 6) == (6, None, None)
    assert made.handle(made.copy, 1, ended=lambda: True) == (8, None, None)
    with pytest.raises(ValueError, match="range"):
        made.handle(handler, 6, 11)


def test_held_results_are_appended_by_release(core: SimpleNamespace, bench: Make) -> None:
    """In order, and those that follow at once; until then, the accumulator may refuse records."""
    there = bench()
    made = Loop(core, there)
    made.results = core.HandlerResults(there.accumulator, True, True)
    there.accumulator.refuse(RecordTooLarge("x"))
    assert made.handle(made.copy, 0, 3) == (3, None, None)
    assert made.results.append(3, [made.copy(3)], 0) == 1
    assert (len(made.results), values(there)) == (0, [])
    assert made.results.held_bytes == 4 * (1024 + 1)
    there.accumulator.refuse(None)
    assert made.results.release() == []
    assert made.handle(made.copy, 4, 5) == (5, None, None)
    assert values(there) == [b"0", b"1", b"2", b"3", b"4"]
    assert (len(made.results), made.results.held_bytes) == (5, 0)


def test_release_leaves_the_results_from_the_first_that_is_refused_to_the_caller(
    core: SimpleNamespace, bench: Make
) -> None:
    """So that their order is kept."""
    there = bench()
    made = Loop(core, there)
    made.results = core.HandlerResults(there.accumulator, True, True)
    text = made.core.Outgoing("t", "text")
    assert made.handle(lambda item: text if item == 1 else made.copy(item), 0, 3)[0] == 3
    assert made.results.release() == [(1, text), (2, made.copy(2))]
    assert values(there) == [b"0"]


@pytest.mark.parametrize("broken", ["ended", "clock"])
def test_a_bug_in_what_is_asked_after_an_item_loses_no_result(
    core: SimpleNamespace, bench: Make, broken: str
) -> None:
    """The error is raised; what was appended keeps its item, and the next call works."""
    clock = FixedClock()
    there = bench(clock=clock)
    made = Loop(core, there)
    bugs = [ZeroDivisionError()]

    def fails() -> bool:
        if bugs and len(made.results) >= 2:
            raise bugs.pop()
        return False

    class Broken(FixedClock):
        def monotonic(self) -> float:
            fails()
            return 0.0

    if broken == "clock":
        made = Loop(core, there := bench(clock=Broken()))
    with pytest.raises(ZeroDivisionError):
        made.handle(made.copy, ended=fails if broken == "ended" else never)
    assert 2 <= len(made.results) < 10
    assert values(there) == [b"%d" % n for n in range(len(made.results))]
    start = len(made.results)
    assert made.handle(made.copy, start) == (10, None, None)
    assert values(there) == [b"%d" % n for n in range(10)]


def test_a_record_gets_the_time_at_which_its_handler_returned(
    core: SimpleNamespace, bench: Make
) -> None:
    """Unless the result has a time of its own."""
    clock = FixedClock(1_000)
    there = bench(clock=clock)
    made = Loop(core, there)

    def handler(item: int) -> Any:
        clock.now += 100
        return core.Outgoing("t", b"", timestamp_ms=77 if item == 1 else None)

    made.handle(handler, 0, 3)
    times = [time for batch in there.opened for *_, time in batch.records()]
    assert times == [1_100, 77, 1_300]


def test_the_items_whose_results_failed_are_found(loop: Make) -> None:
    """Also behind splits, and with more results than there was space for at first."""
    made, there = loop(partitions=2, batch_size=1 << 20, buffer_memory=1 << 24)
    made.items = list(range(3_000))
    assert made.handle(
        lambda item: made.core.Outgoing("t", b"%d" % item, partition=item % 2), 0, 3_000
    ) == (3_000, None, None)
    assert made.results.failures() == []
    first, second = there.opened
    first.seal(0)
    first.complete(0)
    assert made.results.failures() == []
    second.seal(0)
    failed, kept = cores.split(there.accumulator, second)
    assert made.results.failures() == []
    failed.fail(NotLeaderOrFollower("x"))
    found = made.results.failures()
    assert [item for item, _ in found] == list(range(1, failed.count * 2, 2))
    assert {type(error) for _, error in found} == {NotLeaderOrFollower}
    assert failed.unobserved == 0
    kept.seal(0)
    kept.complete(0)
    assert len(made.results.failures()) == failed.count
