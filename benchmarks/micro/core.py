"""CPU time of a record in the core, compiled and pure: `python benchmarks/micro/core.py`.

Nanoseconds per record (process time), the best of several interleaved rounds: 100-byte values,
10-byte keys, four partitions, 128 KiB batches. There is no network and no client: acknowledging is
`batch.complete()`. The empty loop is not subtracted; it is a row of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from array import array
from collections.abc import Awaitable, Callable, Iterator
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

from aiokq.fastpath.loading import load
from aiokq.fastpath.units import UNITS
from aiokq.records import compression
from aiokq.records.codecs import RecordCodecs

VALUE = b"x" * 100
HEADERS = [("trace", b"0123456789abcdef"), ("kind", b"order")]
CODECS = RecordCodecs()
now = time.process_time


class Owner:
    """Keeps the batches, and acknowledges them in place of a sender."""

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def batch_opened(self, batch: Any) -> None:
        self.batches.append(batch)

    def batch_full(self, batch: Any) -> None:
        """Do nothing: `acknowledge` takes all batches."""

    def acknowledge(self) -> None:
        for batch in self.batches:
            batch.stamp()
            batch.complete(0)
        self.batches.clear()


class Source:
    """A record source of one cursor."""

    def __init__(self, cursor: Any) -> None:
        self.cursors = [cursor]

    def next_cursor(self) -> Any:
        if not self.cursors:
            raise StopAsyncIteration
        return self.cursors.pop()

    def wait(self) -> Awaitable[None]:
        raise AssertionError("there is always a record or the end")


def accumulator(core: SimpleNamespace, partitions: int = 4) -> tuple[Any, Owner]:
    made = core.Accumulator(
        batch_size=128 * 1024, buffer_memory=256 << 20, max_record_bytes=1 << 20
    )
    owner = Owner()
    made.set_route("t", partitions, range(partitions), lambda slot: owner)
    return made, owner


def as_columns(core: SimpleNamespace, records: list[tuple[bytes, bytes]]) -> Any:
    """Return records as columns; all keys have one length, and so have all values."""

    def binary(column: list[bytes]) -> tuple[None, array[int], bytes]:
        size = len(column[0])
        return None, array("i", range(0, size * len(column) + 1, size)), b"".join(column)

    keys, values = zip(*records, strict=True)
    return core.RecordColumns(len(records), key=binary([*keys]), value=binary([*values]))


def produce(core: SimpleNamespace, count: int) -> Iterator[tuple[str, float]]:
    """Yield the rows of the table with their seconds, for `count` records each."""
    keys = [b"key%07d" % (n % 1000) for n in range(count)]
    chunks = [[(key, VALUE) for key in keys[n : n + 1000]] for n in range(0, count, 1000)]
    made, owner = accumulator(core)
    append = made.append

    def timed(work: Callable[[], object]) -> float:
        began = now()
        work()
        owner.acknowledge()
        return now() - began

    def loop() -> None:
        for _ in keys:
            pass

    def keyed() -> None:
        for key in keys:
            append("t", VALUE, key)

    def keywords() -> None:
        for key in keys:
            append("t", VALUE, key=key)

    def keyless() -> None:
        for _ in keys:
            append("t", VALUE)

    def with_headers() -> None:
        for key in keys:
            append("t", VALUE, key, None, None, HEADERS)

    def many() -> None:
        for chunk in chunks:
            made.append_many("t", chunk)

    columns = [as_columns(core, chunk) for chunk in chunks]

    def columnar() -> None:
        for chunk in columns:
            made.append_columns("t", chunk)

    keyed()
    owner.acknowledge()
    yield "empty loop", timed(loop)
    yield "append keyed", timed(keyed)
    yield "append keyed, keywords", timed(keywords)
    yield "append keyless", timed(keyless)
    yield "append keyed, 2 headers", timed(with_headers)
    yield "append_many, 1000 each", timed(many)
    yield "append_columns, 1000 each", timed(columnar)

    async def window() -> None:
        for n in range(0, count, 1000):
            waiting = [append("t", VALUE, key) for key in keys[n : n + 1000]]
            owner.acknowledge()
            for delivery in waiting:
                await delivery

    async def many_awaited() -> None:
        for chunk in chunks:
            deliveries, _ = made.append_many("t", chunk)
            owner.acknowledge()
            await deliveries

    async def task(own: list[bytes]) -> None:
        for key in own:
            await append("t", VALUE, key)

    async def tasks() -> None:
        waiting = [asyncio.ensure_future(task(keys[n::1000])) for n in range(1000)]
        while not waiting[-1].done():
            await asyncio.sleep(0)
            owner.acknowledge()
        await asyncio.gather(*waiting)

    for name, main in (
        ("append + await in a window", window),
        ("append_many + await", many_awaited),
        ("1000 tasks awaiting each", tasks),
    ):
        made.loop = None
        began = now()
        asyncio.run(main())
        yield name, now() - began


def consume(core: SimpleNamespace, data: bytes, count: int) -> Iterator[tuple[str, float]]:
    def cursor() -> Any:
        return core.Cursor("t", 0, data, start_offset=0, codecs=CODECS)

    def records() -> None:
        for _ in cursor():
            pass

    def values() -> None:
        for record in cursor():
            record.value  # noqa: B018

    def batches() -> None:
        reading = cursor()
        while batch := reading.next_batch():
            for record in batch:
                record.value  # noqa: B018

    def columns() -> None:
        cursor().columns(["key", "value", "offset", "timestamp"])

    def arrow() -> None:
        cursor().columns().to_arrow()

    async def stream() -> float:
        began = now()
        async for record in core.RecordStream(Source(cursor())):
            record.value  # noqa: B018
        return now() - began

    for name, work in (
        ("for record", records),
        ("for record: .value", values),
        ("next_batch, .value", batches),
        ("columns", columns),
        ("columns to Arrow, all 8", arrow),
    ):
        began = now()
        work()
        yield name, now() - began
    yield "async for: .value", asyncio.run(stream())


def log(core: SimpleNamespace, size: int, codec: int = 0) -> tuple[bytes, int]:
    """Return about `size` bytes of batches, and their number of records."""
    made, owner = accumulator(core, 1)
    count = size // 120
    for n in range(count):
        made.append("t", VALUE, b"key%07d" % n)
    out = b""
    offset = 0
    for batch in owner.batches:
        if codec:
            batch.seal(codec, compression.compress(codec, bytes(batch.payload())))
        data = bytearray(batch.stamp())
        data[:8] = offset.to_bytes(8, "big")
        offset += batch.count
        out += data
    return out, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cores = {}
    for label, compiled in (("compiled", True), ("pure", False)):
        if compiled and find_spec("aiokq.fastpath._shared") is None:
            print("the compiled core is not built", file=sys.stderr)
            continue
        units = [load(unit, compiled) for unit in UNITS]
        cores[label] = SimpleNamespace(
            **{name: given for unit in units for name, given in unit.items()}
        )
    table: dict[str, dict[str, float]] = {}

    def note(row: str, label: str, seconds: float, count: int) -> None:
        best = table.setdefault(row, {})
        best[label] = min(best.get(label, 1e9), seconds / count * 1e9)

    data, held = log(next(iter(cores.values())), 1 << 20)
    small, few = log(next(iter(cores.values())), 64 << 10)
    for _ in range(options.rounds):
        for label, core in cores.items():
            for row, seconds in produce(core, options.records):
                note(row, label, seconds, options.records)
            for row, seconds in consume(core, data, held):
                note(f"{row} (1 MiB)", label, seconds, held)
            for row, seconds in consume(core, small, few):
                note(f"{row} (64 KiB)", label, seconds, few)
            began = now()
            for _ in range(20):
                core.crc32c(data)
            note("crc32c, per 1,000 bytes", label, (now() - began) / 20, len(data) // 1000)
    if options.json:
        print(json.dumps(table, indent=2))
        return
    print(f"{'ns of CPU per record':32}" + "".join(f"{label:>12}" for label in cores))
    for row, best in table.items():
        print(f"{row:32}" + "".join(f"{best[label]:12.0f}" for label in cores))


if __name__ == "__main__":
    main()
