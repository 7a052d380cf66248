"""Memory leaks of the core.

The garbage collector does not track deliveries and records, so reference counts must free them.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from aiokq.core.errors import KafkaError
from tests import cores

Make = Callable[..., object]


def growth(work: Callable[[], None], rounds: int = 5) -> int:
    """Return the bytes that `work` leaves behind per round, once caches are warm."""
    for _ in range(3):
        work()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(rounds):
            work()
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) // rounds
    finally:
        tracemalloc.stop()


def test_deliveries_and_records_are_invisible_to_the_collector(
    core: SimpleNamespace, bench: Make, encode: Make, cursor: Make
) -> None:
    """Half a million pending deliveries must not cost a single collection."""
    if not core.COMPILED:
        pytest.skip("Python objects with slots are tracked")
    delivery = bench().append("t", b"v")
    (record,) = cursor(encode([(b"k", b"v")]))
    assert not gc.is_tracked(delivery)
    assert not gc.is_tracked(record)
    assert sys.getsizeof(delivery) <= 48


def test_producing_leaves_nothing_behind(bench: Make) -> None:
    """Append, stamp, acknowledge or fail, retrieve the outcome."""
    made = bench(4)

    def work() -> None:
        deliveries = [made.append("t", b"x" * 50, b"k%d" % n) for n in range(500)]
        made.accumulator.append_many("t", [(b"k%d" % n, b"v") for n in range(500)])
        for n, batch in enumerate(made.opened):
            batch.stamp()
            if n % 3:
                batch.complete(0)
            else:
                batch.fail(KafkaError("x"))
        for delivery in deliveries:
            delivery.exception()
        made.opened.clear()
        made.owner.full.clear()
        for slot in made.route.slots:
            slot.take_open()

    assert growth(work) < 10_000
    assert made.accumulator.used_bytes == 0


def test_waiting_leaves_nothing_behind(bench: Make) -> None:
    """Tasks, callbacks and cancelled waits: the cycle through a batch ends with the batch."""
    made = bench(2)

    async def wait_for(delivery: object) -> object:
        return await delivery

    async def main() -> None:
        deliveries = [made.append("t", b"x", b"k%d" % n) for n in range(100)]
        tasks = [asyncio.create_task(wait_for(d)) for d in deliveries]
        for delivery in deliveries:
            delivery.add_done_callback(lambda d: None)
        await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()
        await asyncio.sleep(0)
        for n, batch in enumerate(made.opened):
            if n % 2:
                batch.complete(0)
            else:
                batch.fail(KafkaError("x"))
        made.opened.clear()
        await asyncio.gather(*tasks, return_exceptions=True)

    def work() -> None:
        made.accumulator.loop = None
        asyncio.run(main())

    assert growth(work) < 10_000


def test_splitting_and_moving_leave_nothing_behind(bench: Make) -> None:
    """Forwarded deliveries release their former batch."""
    made = bench(0)

    def work() -> None:
        deliveries = [made.append("new", b"v%d" % n, b"k%d" % n) for n in range(100)]
        made.accumulator.set_route("new", 2, [0, 1], lambda slot: made.owner)
        for batch in made.opened:
            for part in cores.split(made.accumulator, batch):
                part.complete(0)
        made.opened.clear()
        assert all(d.result().offset >= 0 for d in deliveries)
        made.accumulator.forget_route("new")

    assert growth(work) < 10_000
    assert made.accumulator.used_bytes == 0


def test_reading_leaves_nothing_behind(encode: Make, cursor: Make) -> None:
    """Records, columns, compressed batches, and cursors dropped before their end."""
    records = [(b"k%d" % n, b"v" * n, [("h", b"x")], n) for n in range(100)]
    data = encode(records) + encode(records, base_offset=100, codec=3)

    def work() -> None:
        assert len(list(cursor(data))) == 200
        next(cursor(data))
        cursor(data).take(150)
        cursor(data).columns()
        broken = cursor(data[:500] + b"\0" + data[501:])
        with pytest.raises(Exception, match="CORRUPT"):
            broken.take(500)

    assert growth(work) < 10_000


async def test_streaming_leaves_nothing_behind(
    core: SimpleNamespace, encode: Make, cursor: Make
) -> None:
    """One StopIteration is reused on 3.12 and later; none may accumulate."""
    data = encode([(None, b"v")] * 100)

    class Source:
        def __init__(self) -> None:
            self.left = 3

        def next_cursor(self) -> object:
            self.left -= 1
            if self.left < 0:
                raise StopAsyncIteration
            return cursor(data)

        def wait(self) -> asyncio.Future[None]:
            raise AssertionError("not reached")

    async def work() -> None:
        count = 0
        async for _ in core.RecordStream(Source()):
            count += 1
        assert count == 300

    for _ in range(3):
        await work()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(5):
        await work()
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after - before < 10_000


def test_argument_errors_leave_nothing_behind(bench: Make) -> None:
    """Exceptions from C must not keep references."""
    made = bench(1)
    value = b"x" * 100_000

    def work() -> None:
        for arguments in ({"partition": 7}, {"timestamp_ms": -1}, {"key": "s"}, {"headers": [1]}):
            with pytest.raises((TypeError, ValueError, KafkaError)):
                made.append("t", value, **arguments)

    before = sys.getrefcount(value)
    assert growth(work) < 10_000
    assert sys.getrefcount(value) == before
