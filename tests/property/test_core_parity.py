"""The compiled and the pure core behave the same: bytes, positions, errors, outcomes.

Behaviour must not depend on whether a compiler was available at installation.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiokq.core.errors import CorruptRecord, KafkaError, NotLeaderOrFollower
from aiokq.fastpath.pure import crc32c_table
from aiokq.records import compression
from aiokq.records.codecs import RecordCodecs
from tests import cores

compiled, pure = cores.core("compiled"), cores.core("pure")
CORES = (compiled, pure)
CODECS = RecordCodecs()
# More examples than in the profile, because of the damaged batches; torture multiplies them too.
quick = settings(suppress_health_check=list(HealthCheck))
thorough = settings(
    max_examples=5 * settings.default.max_examples, suppress_health_check=list(HealthCheck)
)

payloads = st.one_of(
    st.none(), st.binary(max_size=40), st.integers(60, 700).map(lambda size: bytes(size))
)
headers = st.one_of(
    st.none(),
    st.lists(
        st.tuples(st.text(max_size=70), st.one_of(st.none(), st.binary(max_size=80))), max_size=3
    ),
)
timestamps = st.one_of(st.none(), st.integers(0, 10_000), st.integers(0, 2**63 - 1))


def outcome(work: Callable[[], Any]) -> Any:
    """Return the result of a call, or the error it raises."""
    try:
        return work()
    except Exception as error:
        return type(error).__name__, str(error)


@given(st.binary(max_size=4000), st.integers(0, 2**32 - 1))
@quick
def test_checksums_agree(data: bytes, value: int) -> None:
    """CRC-32C with any start value, and murmur2 of any key."""
    assert compiled.crc32c(data, value) == pure.crc32c(data, value) == crc32c_table(data, value)
    assert compiled.murmur2(data) == pure.murmur2(data)
    assert compiled.partition_for_key(data, 97) == pure.partition_for_key(data, 97)


def columns_of(accumulator: type, rows: list[Any]) -> Any:
    """Return rows of (key, value, headers, microseconds, partition) as RecordColumns."""
    (core,) = (core for core in CORES if core.Accumulator is accumulator)

    def bits(column: list[Any]) -> bytes:
        number = sum((item is not None) << at for at, item in enumerate(column))
        return number.to_bytes(len(column) // 8 + 1, "little")

    def binary(column: list[Any]) -> tuple[bytes, bytes, bytes]:
        ends = [0, *itertools.accumulate(len(item or b"") for item in column)]
        return bits(column), struct.pack(f"={len(ends)}i", *ends), b"".join(filter(None, column))

    keys, values, heads, times, partitions = zip(*rows, strict=True) if rows else ((),) * 5
    pairs = [pair for head in heads for pair in head or ()]
    ends = [0, *itertools.accumulate(len(head or ()) for head in heads)]
    _, name_offsets, names = binary([name.encode() for name, _ in pairs])
    return core.RecordColumns(
        len(rows),
        value=binary(values),
        key=binary(keys) if any(keys) else None,
        headers=(
            bits(heads),
            struct.pack(f"={len(ends)}i", *ends),
            *(name_offsets, names, *binary([value for _, value in pairs])),
        ),
        timestamp=(bits(times), struct.pack(f"={len(times)}q", *(t or 0 for t in times))),
        partition=(bits(partitions), struct.pack(f"={len(rows)}i", *(p or 0 for p in partitions))),
    )


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def monotonic(self) -> float:
        return self.now / 1000

    def timestamp_ms(self) -> int:
        self.now += 1
        return self.now


class Side:
    """The accumulator of one core, driven step by step; `log` has everything that is observable."""

    def __init__(self, core: SimpleNamespace, options: dict[str, Any]) -> None:
        self.log: list[Any] = []
        self.batches: list[Any] = []
        self.deliveries: list[Any] = []
        self.many: list[Any] = []
        self.loop = asyncio.new_event_loop()
        self.accumulator = core.Accumulator(
            clock=Clock(),
            on_unknown_topic=lambda topic: self.log.append(("unknown", topic)),
            on_memory_freed=lambda: self.log.append(("room", self.accumulator.used_bytes)),
            **options,
        )
        self.accumulator.loop = self.loop
        self.accumulator.set_route("t", 3, [0, 1, 2], lambda slot: self)

    def batch_opened(self, batch: Any) -> None:
        self.batches.append(batch)
        self.log.append(("opened", batch.topic, batch.partition, batch.created))

    def batch_full(self, batch: Any) -> None:
        self.log.append(("full", self.batches.index(batch), batch.count))

    def pick(self, things: list[Any], n: int) -> Any:
        return things[n % len(things)] if things else None

    def step(self, name: str, *arguments: Any) -> None:
        self.log.append((name, outcome(lambda: getattr(self, name)(*arguments))))
        self.log.append((self.accumulator.used_bytes, self.accumulator.waiting))

    def append(self, topic: str, value: Any, key: Any, partition: Any, at: Any, heads: Any) -> Any:
        delivery = self.accumulator.append(topic, value, key, partition, at, heads)
        self.deliveries.append(delivery)
        return delivery.partition, delivery.timestamp_ms

    def append_many(self, topic: str, records: list[Any], partition: Any) -> Any:
        deliveries, consumed = self.accumulator.append_many(topic, records, partition)
        if consumed == len(records):
            self.many.append(deliveries)
        self.deliveries.extend(deliveries[:])
        return consumed, [d.partition for d in deliveries[:]]

    def append_columns(self, topic: str, rows: list[Any], waited: bool) -> Any:
        columns = columns_of(type(self.accumulator), rows)
        deliveries, consumed = self.accumulator.append_columns(topic, columns, waited=waited)
        self.deliveries.extend(deliveries[:])
        return consumed, [(d.partition, d.timestamp_ms) for d in deliveries[:]]

    def callback(self, n: int) -> None:
        delivery = self.pick(self.deliveries, n)
        if delivery is not None:
            delivery.add_done_callback(
                lambda d: self.log.append(("called", d.done(), type(d.exception()).__name__))
            )

    def stamp(self, n: int, producer_id: int) -> Any:
        batch = self.pick(self.batches, n)
        return batch and bytes(batch.stamp(producer_id, 1, 2))

    def seal(self, n: int, codec: int) -> Any:
        batch = self.pick(self.batches, n)
        if batch is not None:
            payload = bytes(batch.payload())
            batch.seal(codec, compression.compress(codec, payload) if codec else None)
        return batch and bytes(batch.stamp())

    def complete(self, n: int, offset: int) -> Any:
        batch = self.pick(self.batches, n)
        return batch and (batch.complete(offset), batch.waiters)

    def fail(self, n: int) -> Any:
        batch = self.pick(self.batches, n)
        return batch and (batch.fail(NotLeaderOrFollower("moved")), batch.unobserved)

    def split(self, n: int) -> Any:
        batch = self.pick(self.batches, n)
        if batch is not None:
            parts = cores.split(self.accumulator, batch)
            self.batches.extend(parts)
            return [(part.count, part.size) for part in parts]
        return None

    def take(self, n: int) -> Any:
        route = self.accumulator.route("t")
        batch = route.slots[n % len(route.slots)].take_open()
        return batch and (batch.count, batch.size, batch.records())

    def route(self, partitions: int, available: list[int]) -> None:
        self.accumulator.set_route("t", partitions, available, lambda slot: self)

    def resolve(self) -> None:
        self.accumulator.set_route("new", 2, [0, 1], lambda slot: self)

    def forget(self, topic: str) -> None:
        self.accumulator.forget_route(topic)

    def fail_pending(self) -> int:
        return self.accumulator.fail_pending("new", KafkaError("gone"))

    def wait(self, count: int) -> None:
        self.accumulator.waiting = count

    def turn(self) -> None:
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def ask_all(self) -> Any:
        def result(delivery: Any) -> Any:
            meta = delivery.result()
            return meta.topic, meta.partition, meta.offset, meta.timestamp_ms

        def results(many: Any) -> Any:
            async def gather() -> Any:
                return [(m.partition, m.offset, m.timestamp_ms) for m in await many]

            return self.loop.run_until_complete(gather()) if many.done() else "pending"

        return (
            [outcome(lambda d=d: result(d)) for d in self.deliveries],
            [outcome(lambda m=m: results(m)) for m in self.many],
            [(b.done, b.sealed, b.count, b.size, b.unobserved, b.waiters) for b in self.batches],
            [(b.count, b.size, b.records()) for b in self.accumulator.pending("new")],
        )

    def finish(self) -> None:
        self.step("ask_all")
        for batch in self.batches:
            batch.fail(KafkaError("closed"))
        for topic in ("t", "new"):
            self.accumulator.fail_pending(topic, KafkaError("closed"))
        self.step("turn")
        self.step("ask_all")
        self.loop.close()


topics = st.sampled_from(["t", "t", "t", "new"])
partitions = st.one_of(st.none(), st.integers(-1, 4))
number = st.integers(0, 50)
record = st.one_of(
    st.tuples(payloads, payloads),
    st.tuples(payloads, payloads, headers),
    st.tuples(payloads, payloads, headers, timestamps),
)
steps = st.one_of(
    st.tuples(st.just("append"), topics, payloads, payloads, partitions, timestamps, headers),
    st.tuples(st.just("append"), topics, payloads, payloads, st.none(), st.none(), st.none()),
    st.tuples(
        st.just("append_columns"),
        topics,
        st.lists(
            st.tuples(
                payloads,
                payloads,
                headers,
                st.one_of(st.none(), st.integers(0, 2**63 - 1)),
                st.one_of(st.none(), st.integers(-1, 4)),
            ),
            max_size=12,
        ),
        st.booleans(),
    ),
    st.tuples(st.just("append_many"), topics, st.lists(record, max_size=12), partitions),
    st.tuples(st.just("callback"), number),
    st.tuples(st.just("stamp"), number, st.integers(-1, 9)),
    st.tuples(st.just("seal"), number, st.sampled_from([0, 1, 4])),
    st.tuples(st.just("complete"), number, st.integers(-1, 99)),
    st.tuples(st.just("fail"), number),
    st.tuples(st.just("split"), number),
    st.tuples(st.just("take"), number),
    st.tuples(st.just("route"), st.integers(1, 6), st.lists(st.integers(0, 7), max_size=4)),
    st.tuples(st.just("resolve")),
    st.tuples(st.just("forget"), st.sampled_from(["t", "new"])),
    st.tuples(st.just("fail_pending")),
    st.tuples(st.just("wait"), st.integers(0, 1)),
    st.tuples(st.just("turn")),
)


@given(
    st.lists(steps, max_size=40),
    st.sampled_from([200, 1000, 20_000]),
    st.sampled_from([3000, 20_000]),
    st.integers(0, 2**64 - 1),
    st.booleans(),
)
@thorough
def test_accumulators_agree(
    plan: list[tuple[Any, ...]], batch_size: int, memory: int, seed: int, ignore_keys: bool
) -> None:
    """The same calls give the same bytes, errors, free memory, notifications and outcomes."""
    options = {
        "batch_size": batch_size,
        "buffer_memory": memory,
        "max_record_bytes": 5000,
        "seed": seed,
        "ignore_keys": ignore_keys,
    }
    sides = [Side(core, options) for core in CORES]
    for name, *arguments in plan:
        for side in sides:
            side.step(name, *arguments)
        assert sides[0].log == sides[1].log
    for side in sides:
        side.finish()
    assert sides[0].log == sides[1].log
    assert [side.accumulator.used_bytes for side in sides] == [0, 0]


def seen(record: Any) -> tuple[Any, ...]:
    return (
        record.offset,
        record.timestamp_ms,
        record.timestamp_type,
        record.key,
        record.value,
        record.headers,
        record.leader_epoch,
    )


def state(cursor: Any) -> tuple[Any, ...]:
    return (
        cursor.position,
        cursor.handed,
        cursor.last_handed_offset,
        cursor.leader_epoch,
        cursor.bytes_left,
        cursor.partial_batch_bytes,
        cursor.exhausted,
    )


def read(core: SimpleNamespace, data: bytes, plan: list[Any], options: dict[str, Any]) -> list[Any]:
    """Return everything observable of a cursor while `plan` is executed."""
    cursor = core.Cursor("t", 0, data, codecs=CODECS, max_batch_bytes=1 << 20, **options)
    log: list[Any] = [state(cursor)]

    def step(name: str, count: int) -> Any:
        if name == "next":
            return seen(next(cursor))
        if name == "take":
            return [seen(r) for r in cursor.take(count)]
        if name == "batch":
            return [seen(r) for r in cursor.next_batch()]
        if name == "skip":
            return cursor.skip_batch()
        columns = cursor.columns()
        parts: list[Any] = [columns.count]
        for name in ("key", "value", "headers"):
            column = getattr(columns, name)
            # The bits after the last row are undefined.
            parts.append([part if part is None else bytes(part) for part in column][1:])
            rows = columns.count
            if column[0] is not None:
                parts.append([column[0][n >> 3] >> (n & 7) & 1 for n in range(rows)])
        parts += [bytes(columns.offset), bytes(columns.timestamp), bytes(columns.timestamp_type)]
        return parts

    for name, count in plan:
        try:
            log.append(step(name, count))
        except StopIteration:
            log.append("end")
        except CorruptRecord as error:
            log.append(str(error))
            if count % 3 == 0:
                cursor.skip_batch()
        log.append(state(cursor))
    return log


reads = st.lists(
    st.tuples(
        st.sampled_from(["next", "next", "take", "batch", "skip", "columns"]), st.integers(0, 9)
    ),
    max_size=12,
)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """Draw batches as a log may contain them, most of them undamaged."""
    out = bytearray()
    offset = draw(st.integers(0, 20))
    for _ in range(draw(st.integers(0, 4))):
        accumulator = compiled.Accumulator(
            batch_size=1 << 20, buffer_memory=1 << 22, max_record_bytes=1 << 20
        )
        slots: list[Any] = []
        accumulator.set_route("t", 1, [0], lambda slot: slots.append(slot))  # noqa: B023
        records = draw(st.lists(record, min_size=1, max_size=6))
        accumulator.append_many("t", records)
        batch = slots[0].take_open()
        codec = draw(st.sampled_from([0, 0, 1, 3]))
        if codec:
            batch.seal(codec, compression.compress(codec, bytes(batch.payload())))
        data = bytearray(
            batch.stamp(draw(st.integers(1, 2)), 0, 0, transactional=draw(st.booleans()))
        )
        struct.pack_into(">q", data, 0, offset)
        flags = draw(st.sampled_from([0, 0, 0, 8, 0x20]))
        data[22] |= flags
        gap = draw(st.sampled_from([0, 0, 0, 3]))
        struct.pack_into(">i", data, 23, batch.count - 1 + gap)
        offset += batch.count + gap
        out += checked(data)
    return bytes(out)


def checked(batch: bytearray) -> bytearray:
    batch[17:21] = compiled.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return batch


@given(
    batches(),
    reads,
    st.integers(0, 30),
    st.one_of(st.none(), st.integers(0, 40)),
    st.one_of(st.none(), st.lists(st.tuples(st.integers(1, 2), st.integers(0, 30)), max_size=3)),
    st.integers(0, 100),
)
@thorough
def test_cursors_agree(
    data: bytes,
    plan: list[Any],
    start: int,
    stop: int | None,
    aborted: list[tuple[int, int]] | None,
    cut: int,
) -> None:
    """Records, columns, positions and remaining bytes agree for any start and stop offset."""
    options = {"start_offset": start, "stop_offset": stop, "aborted": aborted}
    data = data[: len(data) - cut] if cut < 40 else data
    one, two = (read(core, data, plan, options) for core in CORES)
    assert one == two


@given(
    batches(),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=6),
    reads,
    st.integers(0, 30),
    st.one_of(st.none(), st.integers(0, 40)),
    st.booleans(),
)
@thorough
def test_damaged_batches_are_refused_alike(
    data: bytes,
    damage: list[tuple[int, int]],
    plan: list[Any],
    start: int,
    stop: int | None,
    crc: bool,
) -> None:
    """With bytes changed anywhere, both return the same records, then raise CorruptRecord."""
    broken = bytearray(data)
    for at, byte in damage:
        if broken:
            broken[at % len(broken)] = byte
    options = {"start_offset": start, "stop_offset": stop, "check_crcs": crc}
    one, two = (read(core, bytes(broken), plan, options) for core in CORES)
    assert one == two


@given(st.binary(max_size=200), reads, st.integers(0, 5))
@quick
def test_garbage_is_refused_alike(data: bytes, plan: list[Any], start: int) -> None:
    """The bytes need not even begin like a batch."""
    one, two = (read(core, data, plan, {"start_offset": start}) for core in CORES)
    assert one == two
