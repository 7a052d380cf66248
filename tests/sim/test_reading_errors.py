"""An unreadable record or batch affects only itself, in all forms of reading."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from typing import Any, NamedTuple

import pytest

from tests.sim.group_world import PROTOCOLS, World, until
from tests.sim.group_world import read as read_group
from tests.sim.group_world import simulate as simulate_group
from tests.sim.reading_model import DAMAGES, END, NOTHING, OVER, Log
from tests.sim.reading_world import MODES, OTHER, T0, Pair, simulate

POISON = 3
SINGLE = ("async for", "async for again", "getone", "getmany")
BATCHES = ("for in batch", "same iterator", "same batch again", "records", "to_arrow")
ERRORS = ("value", "key", "panic", *DAMAGES)
WAYS = ("on", "seek", "close", "exception", "crash")


class Counts(NamedTuple):
    """The offsets that may be committed after the first error.

    Attributes:
        work: with automatic commits: the first offset that is not finished.
        acked: after everything but the error was acknowledged.
        handed: with commit(): the end of what was delivered, including the error if it counts.
    """

    work: int
    acked: int
    handed: int


def counts(form: str, error: str) -> Counts:
    """Return the counts that docs/reference/unreadable-records.md tells, not those of the model."""
    if error == "crc":
        return Counts(2, 2, 2)  # found by the next request, in no batch
    if error in DAMAGES:
        at = {"decompress": 2, "truncated": 4}[error]
        if form in SINGLE:
            return Counts(at, at, at)
        return Counts(0, 0, 0) if form in ("records", "to_arrow") else Counts(0, at, at)
    if form in SINGLE:
        return Counts(POISON, POISON, POISON + 1)
    if form == "to_arrow":
        return Counts(END, END, END)  # to_arrow does not deserialize
    return Counts(0, 0, 0) if form == "records" else Counts(0, POISON + 1, POISON + 1)


async def read(pair: Pair, form: str) -> Any:
    """Read until an error, or until nothing is left; return the last result."""
    while True:
        if form == "async for":
            outcome = await pair.step("on")
        elif form == "async for again":
            outcome = await pair.step("again")
        elif form == "getone":
            outcome = await pair.step("one")
        elif form == "getmany":
            outcome = await pair.step("many", 100)
        else:
            outcome = await pair.step("next_batch")
            if outcome[0] == "batch":
                outcome = await read_batch(pair, form)
        if outcome[0] in ("poison", "corrupt") or outcome == NOTHING:
            return outcome


async def read_batch(pair: Pair, form: str) -> Any:
    if form == "records":
        return await pair.step("records")
    if form == "to_arrow":
        return await pair.step("arrow")
    while True:
        outcome = await pair.step("record")
        if outcome == OVER or outcome[0] in ("poison", "corrupt"):
            return outcome


async def read_on(pair: Pair, form: str) -> None:
    """Read until nothing is left, continuing after errors; acknowledge records and errors."""
    if form == "same batch again":
        await pair.step("iterate")
    if form in ("same batch again", "same iterator"):
        await read_batch(pair, form)
    await acknowledge(pair)
    while await read(pair, form) != NOTHING:
        await acknowledge(pair)
    await acknowledge(pair)


async def acknowledge(pair: Pair, *, errors: bool = True) -> None:
    """Acknowledge all that was delivered."""
    raised = [error[1] for error in pair.errors]
    for place, (_, what) in enumerate(pair.given):
        if errors or what not in raised:
            await pair.step("ack", place)


async def first_commits(pair: Pair, expected: Counts) -> int | None:
    """Check the commits after the first error, before further reads; return the last one."""
    offsets = pair.store.offsets
    if pair.mode == "manual":
        await pair.step("commit")
        assert offsets[0] == expected.handed
    elif pair.mode == "auto":
        await pair.step("wait")
        assert offsets[0] == expected.work
    elif pair.mode == "explicit":
        await pair.step("wait")
        assert offsets[0] == 0
        await acknowledge(pair, errors=False)
        await pair.step("wait")
        assert offsets[0] == expected.acked
    else:
        await pair.step("wait")
    return offsets.get(0)


CASES = [
    *itertools.product(["consumer"], SINGLE + BATCHES, ERRORS, MODES),
    *itertools.product(["stream"], ["async for", "getone", *BATCHES], ERRORS, MODES),
]


@pytest.mark.parametrize(("source", "form", "error", "mode"), CASES)
def test_each_form_of_reading_continues_after_each_error_in_each_way(
    source: str, form: str, error: str, mode: str
) -> None:
    """This is the table of docs/reference/unreadable-records.md. A batch with a record that failed
    to deserialize used to be committed as a whole, and its remaining records were never delivered.
    """
    damage = DAMAGES.get(error)
    log = Log(frozenset() if damage else frozenset({POISON}), damage)
    at, beyond = (damage.offset, damage.beyond) if damage else (POISON, POISON + 1)
    good = set(log.good())
    raw = form == "to_arrow" and not damage  # to_arrow does not deserialize, so there is no error
    expected = counts(form, error)

    async def body(pair: Pair, way: str) -> None:
        outcome = await read(pair, form)
        assert (outcome[0] == "nothing") is raw
        before = await first_commits(pair, expected)
        if way == "on":
            await read_on(pair, form)
            assert pair.seen - log.poison == {n for n in good if not damage or n < damage.offset}
            assert len(pair.errors) == (0 if raw else 1), "each is raised once"
            await others_go_on(pair)
            await pair.step("wait")
            await pair.step("commit")
            if mode != "none":
                assert pair.committed == (damage.offset if damage else END)
            await pair.close(normal=True)
        elif way == "seek":
            await pair.step("seek", beyond)
            assert await read(pair, form) == NOTHING
            assert pair.seen >= {n for n in good if n >= beyond}
            await pair.step("wait")
            last = {"auto": END, "explicit": beyond}.get(mode, before)
            assert pair.store.offsets.get(0) == last
            await pair.step("seek", at)
            assert (await read(pair, form))[0] == ("nothing" if raw else outcome[0])
            assert len(pair.errors) == (0 if raw else 2), "once for each time that it is read"
            await read_on(pair, form)
            await pair.close(normal=True)
        else:
            if way == "crash":
                await pair.crash()
            else:
                await pair.close(normal=way == "close")
            finished = mode == "auto" and way == "close"
            assert pair.store.offsets.get(0) == (expected.handed if finished else before)
            left = await pair.successor()
            if mode == "auto" and not raw:
                assert pair.seen | left >= good, "nothing is lost"

    for way in WAYS:
        simulate(
            lambda pair, way=way: body(pair, way),  # type: ignore[misc]
            log,
            mode=mode,
            form=source,
            part=error if error in ("key", "panic") else "value",
        )


async def others_go_on(pair: Pair) -> None:
    """Check that a partition that waits for a seek() does not delay others."""
    pair.kafka.append("t", 1, b"100", b"101")
    if pair.form == "stream":
        return  # the partition belongs to the other stream
    for offset in range(2):
        record = await pair.consumer.getone()
        assert (record.partition, record.offset) == (OTHER.partition, offset)
        pair.model.ask()
        if pair.mode == "explicit":
            pair.consumer.ack(record)


def poisoned(data: bytes) -> int:
    """Deserialize all numbers except 3."""
    if data == b"3":
        raise ValueError("poison")
    return int(data)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("form", ["record", "batch"])
def test_a_rebalance_waits_for_a_record_whose_error_is_being_handled(
    form: str, protocol: str
) -> None:
    """The next owner continues after that record, with the rest of the batch."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.topic("other", 1)
        await w.produce("t", range(6), 1)
        options: dict[str, Any] = {"protocol": protocol, "value_deserializer": poisoned}
        async with w.member("t", **options) as c:
            await until(lambda: c.assignment())
            await asyncio.sleep(2)
            seen: list[int] = []

            async def work() -> None:
                if form == "record":
                    async for record in c:
                        seen.append(record.offset)
                async for batch in c.batches():
                    for record in batch:
                        seen.append(record.offset)

            with pytest.raises(ValueError):
                await work()
            assert seen == [0, 1, 2]
            # Called outside this task, because this task would finish nothing while it waits.
            asyncio.get_running_loop().call_soon(c.subscribe, ["other"])
            await asyncio.sleep(6)
            assert await w.committed("t", 1) == [3 if form == "record" else 0], "it is in work"
            reading = asyncio.create_task(c.getone())  # finishes the record
            async with w.member("t", **options) as other:
                assert [record.offset for record in await read_group(other, 2)] == [4, 5]
            reading.cancel()
        assert await w.committed("t", 1) == [6]

    simulate_group(body)


def test_a_batch_read_in_a_thread_is_finished_up_to_the_threads_position() -> None:
    """Positions are taken from the iteration, whichever thread it runs in."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(6), 1)
        async with w.member("t", value_deserializer=poisoned) as c:
            await until(lambda: c.assignment())
            await asyncio.sleep(2)
            batches = c.batches()
            batch = await anext(batches)
            seen: list[int] = []

            def work(batch: Any) -> None:
                with contextlib.suppress(ValueError):
                    for record in batch:
                        seen.append(record.offset)

            thread = threading.Thread(target=work, args=(batch,))
            thread.start()
            thread.join()
            assert await c.position(T0) == batch.next_offset == 4
            rest = await anext(batches)
            work(rest)
            work(batch)
            assert (seen, len(batch)) == ([0, 1, 2, 4, 5], 4), "what was taken back is not there"

    simulate_group(body)


def test_records_that_a_late_worker_has_not_read_are_not_committed() -> None:
    """The next batch was delivered meanwhile; the worker continues with its own batch."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(6), 1)
        options: dict[str, Any] = {"value_deserializer": poisoned, "ack_mode": "explicit"}
        async with w.member("t", **options) as c:
            await until(lambda: c.assignment())
            await asyncio.sleep(2)
            batches = c.batches()
            first = await anext(batches)
            await w.produce("t", range(6, 8), 1)
            second = await anext(batches)
            c.ack(second)
            seen: list[int] = []
            for _ in range(2):
                with contextlib.suppress(ValueError):
                    for record in first:
                        seen.append(record.offset)
                c.ack(first)
                await c.commit()
                assert await w.committed("t", 1) == [4 if len(seen) == 3 else 8]
            assert seen == [0, 1, 2, 4, 5]

    simulate_group(body)


@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration, asyncio.CancelledError])
@pytest.mark.parametrize("form", ["record", "many", "batch", "records"])
def test_exceptions_of_a_deserializer_that_would_end_loops_or_tasks_do_not(
    form: str, kind: type[BaseException]
) -> None:
    """A StopIteration raised by a deserializer was taken for the end of the batch."""

    def broken(data: bytes) -> Any:
        if data == b"3":
            raise kind
        return int(data)

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(6), 1)
        async with w.member("t", group_id=None, value_deserializer=broken) as c:
            await asyncio.sleep(2)
            if form == "record":
                reading: Any = read_group(c, 6)
            elif form == "many":
                await c.getmany(timeout=1)
                reading = c.getmany(timeout=1)
            else:
                batch = await anext(aiter(c.batches()))
                with pytest.raises(RuntimeError, match=f"a deserializer raised {kind.__name__}"):
                    list(batch) if form == "batch" else batch.records
                return
            with pytest.raises(RuntimeError, match=f"a deserializer raised {kind.__name__}"):
                await reading

    simulate_group(body)


class SetInStoneError(Exception):
    """An exception that refuses attributes, as those of extension modules may do."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} is read-only")


@pytest.mark.parametrize("kind", [StopIteration, SetInStoneError])
@pytest.mark.parametrize("form", ["one", "named", "many", "for"])
def test_an_exception_of_a_deserializer_is_raised_even_if_it_refuses_attributes(
    form: str, kind: type[Exception]
) -> None:
    """`getmany()` raised the AttributeError caused by the attempt to set an attribute."""

    def broken(data: bytes) -> Any:
        if data == b"0":
            raise kind
        return int(data)

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(3), 1)
        async with w.member("t", group_id=None, value_deserializer=broken) as c:
            await asyncio.sleep(2)

            async def read() -> list[int]:
                if form == "one":
                    return [(await c.getone()).offset]
                if form == "named":
                    return [(await c.getone(*c.assignment())).offset]
                if form == "many":
                    (records,) = (await c.getmany(timeout=1)).values()
                    return [record.offset for record in records]
                return [record.offset for record in await read_group(c, 1)]

            raised = RuntimeError if kind is StopIteration else kind
            with pytest.raises(raised) as caught:
                await read()
            assert caught.value.record.offset == 0  # type: ignore[attr-defined]
            assert (await read())[0] == 1

    simulate_group(body)


@pytest.mark.parametrize("at", [b"0", b"3"])
@pytest.mark.parametrize("mode", ["auto", "explicit"])
def test_after_an_interrupt_in_a_deserializer_undelivered_records_are_not_committed(
    mode: str, at: bytes
) -> None:
    """`getmany` may have taken other records by then, which it can neither return nor count."""
    interrupts = [KeyboardInterrupt]

    def interrupted(data: bytes) -> int:
        if data == at and interrupts:
            raise interrupts.pop()
        return int(data)

    async def body(w: World) -> None:
        await w.topic("t", 2)
        await w.produce("t", range(8), 2)
        options: dict[str, Any] = {"value_deserializer": interrupted}
        if mode == "explicit":
            options["ack_mode"] = mode
        async with w.member("t", **options) as c:
            await until(lambda: c.assignment())
            await asyncio.sleep(2)
            with pytest.raises(KeyboardInterrupt):
                await c.getmany(timeout=1)
            assert sum([await c.position(tp) for tp in c.assignment()]) == 0
            await c.commit()
            assert await w.committed("t", 2) in ([0, 0], [-1, -1])
            seen: list[int] = []
            while len(seen) < 8:
                for records in (await c.getmany(timeout=1)).values():
                    seen += [record.value for record in records]
                    for record in records:
                        c.ack(record) if mode == "explicit" else None
            assert sorted(seen) == list(range(8))
        assert sum(await w.committed("t", 2)) == 8

    simulate_group(body)
