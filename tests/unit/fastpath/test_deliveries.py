"""Deliveries and append_many: many records in one call, with outcomes in input order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aiokq.core.errors import DeliveryFailed, NotLeaderOrFollower, RecordTooLarge
from aiokq.core.types import TopicPartition
from tests import cores

Make = Callable[..., object]


async def wait_for(deliveries: object) -> object:
    return await deliveries


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_outcomes_come_in_input_order(bench: Make) -> None:
    """The records are in several partitions, whose batches are acknowledged in any order."""
    made = bench(4, batch_size=500)
    records = [(b"key-%d" % (n % 13), b"value-%d" % n) for n in range(300)]
    deliveries, consumed = made.accumulator.append_many("t", records)
    assert consumed == len(deliveries) == 300
    assert not deliveries.done()
    where: dict[tuple[int, int], int] = {}
    next_offset = [0] * 4
    for batch in made.opened:
        for _, value, _, _ in batch.records():
            where[batch.partition, next_offset[batch.partition]] = int(value[6:])
            next_offset[batch.partition] += 1
    next_offset = [0] * 4
    ends = []
    for batch in made.opened:
        ends.append((batch, next_offset[batch.partition]))
        next_offset[batch.partition] += len(batch)
    for batch, offset in reversed(ends):
        batch.complete(offset)
    metas = await deliveries
    assert [where[m.partition, m.offset] for m in metas] == list(range(300))
    assert deliveries.done()
    assert [d.result() for d in deliveries[:]] == metas
    assert deliveries[-1].result() == metas[299]
    assert await deliveries == metas
    with pytest.raises(IndexError):
        deliveries[300]


def test_headers_that_can_be_read_once_are_refused(bench: Make) -> None:
    """They are checked before the first record is accepted, so nothing would be left to send."""
    made = bench()
    headers = (pair for pair in [("h", b"v")])
    with pytest.raises(TypeError, match="headers of record 1 can be read only once"):
        made.accumulator.append_many("t", [(None, b"v", [("h", b"v")]), (None, b"v", headers)])
    assert made.accumulator.used_bytes == 0


async def test_every_form_of_record_is_taken(bench: Make) -> None:
    """(key, value), with headers, with a timestamp; bytes-like objects or None."""
    made = bench()
    records = [
        (b"k", b"v"),
        (None, bytearray(b"v")),
        (memoryview(b"k"), None, [("h", b"x")]),
        (None, b"v", None, 7),
        (None, b"v", {"h": None}, None),
    ]
    deliveries, _ = made.accumulator.append_many("t", tuple(records))
    (batch,) = made.opened
    now = deliveries[0].timestamp_ms
    assert batch.records() == [
        (b"k", b"v", [], now),
        (None, b"v", [], now),
        (b"k", None, [("h", b"x")], now),
        (None, b"v", [], 7),
        (None, b"v", [("h", None)], now),
    ]
    batch.complete(0)
    assert [m.timestamp_ms for m in await deliveries] == [now, now, now, 7, now]


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ((b"k", "v"), TypeError),
        (("k", b"v"), TypeError),
        ((b"k",), TypeError),
        ([b"k", b"v"], TypeError),
        (None, TypeError),
        ((b"k", b"v", None, 5, 6), TypeError),
        ((b"k", b"v", ["h"]), TypeError),
        ((b"k", b"v", None, -5), ValueError),
        ((b"k", b"v" * 2_000_000), RecordTooLarge),
    ],
)
def test_a_bad_record_refuses_them_all(bench: Make, bad: object, error: type[Exception]) -> None:
    """Callers could not handle an argument error after half of the records were accepted."""
    made = bench()
    with pytest.raises(error):
        made.accumulator.append_many("t", [(b"k", b"v")] * 10 + [bad])
    assert made.opened == []
    assert made.accumulator.used_bytes == 0


def test_a_bad_partition_refuses_them_all(bench: Make) -> None:
    """A single record is rejected in the same way."""
    made = bench()
    with pytest.raises(ValueError, match="numbered from 0"):
        made.accumulator.append_many("t", [(b"k", b"v")], -1)
    with pytest.raises(TypeError, match="list or a tuple"):
        made.accumulator.append_many("t", iter([(b"k", b"v")]))


async def test_when_room_runs_out_the_rest_can_follow(bench: Make) -> None:
    """The coroutine waits for memory and continues with the same Deliveries."""
    made = bench(batch_size=1000, buffer_memory=3000, max_record_bytes=3000)
    records = [(None, b"%090d" % n, None, n + 1) for n in range(100)]
    deliveries, consumed = made.accumulator.append_many("t", records)
    assert 0 < consumed == len(deliveries) < 100
    rounds = 0
    offset = 0
    while consumed < 100:
        for batch in made.opened:
            if not batch.done:
                offset += len(batch) if batch.complete(offset) else 0
        again, consumed = made.accumulator.append_many(
            "t", records, start=consumed, into=deliveries
        )
        assert again is deliveries
        rounds += 1
    assert rounds > 2
    for batch in made.opened:
        if not batch.done:
            offset += len(batch) if batch.complete(offset) else 0
    metas = await deliveries
    assert [m.offset for m in metas] == list(range(100))
    assert [m.timestamp_ms for m in metas] == list(range(1, 101))


def test_going_on_with_other_records_is_refused(bench: Make) -> None:
    """The first call has sized the memory for the outcomes."""
    made = bench()
    records = [(None, b"v")] * 3
    deliveries, consumed = made.accumulator.append_many("t", records)
    for start, other in ((consumed, records * 5), (0, records), (-1, records), (9, records)):
        with pytest.raises(ValueError, match="do not continue the previous call"):
            made.accumulator.append_many("t", other, start=start, into=deliveries)
    with pytest.raises(ValueError, match="requires"):
        made.accumulator.append_many("t", records, start=1)


async def test_one_error_lists_every_outcome(bench: Make) -> None:
    """A caller that sent a thousand records learns which of them to send again."""
    made = bench(3)
    deliveries, _ = made.accumulator.append_many("t", [(None, b"v")], 0)
    deliveries, _ = made.accumulator.append_many("t", [(b"key-%d" % n, b"v") for n in range(30)])
    partitions = [deliveries[n].partition for n in range(30)]
    for batch in made.opened:
        if batch.partition == 1:
            batch.fail(NotLeaderOrFollower("moved"))
        else:
            batch.complete(0)
    with pytest.raises(DeliveryFailed) as caught:
        await deliveries
    error = caught.value
    assert error.count == partitions.count(1)
    assert [e is not None for e in error.errors] == [p == 1 for p in partitions]
    assert {type(e) for e in error.errors if e} == {NotLeaderOrFollower}
    assert list(error.topic_partitions) == [TopicPartition("t", 1)]
    assert all(batch.unobserved == 0 for batch in made.opened)


async def test_who_awaits_them_all_has_seen_each_failure(bench: Make) -> None:
    """Also those of later batches, so that flush() does not report them again."""
    made = bench(2)
    made.append("t", b"other", partition=1)
    deliveries, _ = made.accumulator.append_many("t", [(None, b"v")] * 3, 0)
    more, _ = made.accumulator.append_many("t", [(None, b"v")] * 3, 1)
    task = asyncio.create_task(wait_for(more))
    also = asyncio.create_task(wait_for(deliveries))
    await turn()
    one, zero = made.opened
    one.fail(NotLeaderOrFollower("x"))
    zero.fail(NotLeaderOrFollower("x"))
    assert (zero.unobserved, one.unobserved) == (0, 1)
    for waiting in (task, also):
        with pytest.raises(DeliveryFailed):
            await waiting


async def test_a_wait_for_all_can_be_cancelled_and_repeated(bench: Make) -> None:
    """Cancellation ends only the wait."""
    made = bench(2)
    deliveries, _ = made.accumulator.append_many("t", [(b"%d" % n, b"v") for n in range(20)])
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(deliveries, 0.001)
    task = asyncio.create_task(wait_for(deliveries))
    await turn()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [b.waiters for b in made.opened] == [0, 0]
    task = asyncio.create_task(wait_for(deliveries))
    await turn()
    for batch in reversed(made.opened):
        batch.complete(0)
    assert len(await task) == 20
    assert len((await asyncio.gather(deliveries))[0]) == 20


async def test_a_wait_for_all_counts_for_each_of_its_records(bench: Make) -> None:
    """Regression: it counted as a wait for one record, so the others lingered."""
    made = bench(2)
    single = made.accumulator.append("t", b"v", None, 0)
    deliveries, _ = made.accumulator.append_many("t", [(None, b"v")] * 4, 0)
    more, _ = made.accumulator.append_many("t", [(None, b"v")], 0)
    [batch] = made.opened
    assert not batch.awaited
    waits = [asyncio.create_task(wait_for(deliveries)) for _ in range(3)]
    await turn()
    assert not batch.awaited
    one = asyncio.create_task(wait_for(single))
    await turn()
    assert not batch.awaited
    other = asyncio.create_task(wait_for(more))
    await turn()
    assert batch.awaited
    first, second = cores.split(made.accumulator, batch)
    assert first.awaited
    assert second.awaited
    for task in waits:
        task.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
    assert not (first.awaited and second.awaited)
    second.complete(5)
    first.complete(0)
    assert len(await other) == 1
    await one
    assert len(await deliveries) == 4


async def test_a_wait_for_all_follows_a_split(bench: Make) -> None:
    """The records have moved; the outcomes are still in input order."""
    made = bench()
    deliveries, _ = made.accumulator.append_many("t", [(None, b"v", None, n) for n in range(10)])
    task = asyncio.create_task(wait_for(deliveries))
    await turn()
    first, second = cores.split(made.accumulator, made.opened[0])
    second.complete(50)
    await turn()
    assert not task.done()
    first.complete(0)
    metas = await task
    assert [m.offset for m in metas] == [0, 1, 2, 3, 4, 50, 51, 52, 53, 54]
    assert [m.timestamp_ms for m in metas] == list(range(10))


async def test_no_records_are_done_at_once(bench: Make) -> None:
    """An empty list is valid."""
    deliveries, consumed = bench().accumulator.append_many("t", [])
    assert (len(deliveries), consumed, deliveries.done()) == (0, 0, True)
    assert await deliveries == []


async def test_records_for_an_unknown_topic_wait(bench: Make) -> None:
    """send_many() may be called before the metadata is known."""
    made = bench(0)
    deliveries, consumed = made.accumulator.append_many("n", [(b"k%d" % n, b"v") for n in range(9)])
    assert consumed == 9
    task = asyncio.create_task(wait_for(deliveries))
    await turn()
    made.accumulator.set_route("n", 2, [0, 1], lambda slot: made.owner)
    for batch in made.opened:
        batch.complete(0)
    assert {m.partition for m in await task} == {0, 1}
