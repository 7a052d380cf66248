"""Accumulator: partitions of records, memory, and rejected records."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from aiokq.core.errors import (
    BufferFull,
    Closed,
    InvalidTopic,
    KafkaError,
    RecordTooLarge,
    UnknownTopicOrPartition,
)

Make = Callable[..., object]


def test_a_key_goes_where_java_puts_it(bench: Make, core: SimpleNamespace) -> None:
    """Other clients look for a key in the same partition."""
    made = bench(5)
    for n in range(200):
        key = b"key-%d" % n
        delivery = made.append("t", b"v", key)
        assert delivery.partition == core.partition_for_key(key, 5)


def test_an_explicit_partition_overrules_the_key(bench: Make) -> None:
    """An explicit choice has precedence."""
    made = bench(4)
    assert [made.append("t", b"v", b"k", n).partition for n in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("length", [True, False])
def test_records_without_a_key_stay_until_a_batch_is_full(bench: Make, length: bool) -> None:
    """KIP-794: using one partition at a time gives full batches instead of many small ones."""
    made = bench(8, batch_size=2000)
    placed = [made.append("t", b"x" * (50 + n % 7 * length)).partition for n in range(2000)]
    assert len(made.owner.full) >= 50
    assert all(batch.size > 1850 for batch in made.owner.full)
    runs = [len(batch) for batch in made.owner.full]
    assert min(runs) >= 20
    assert set(placed) == set(range(8))


def test_records_without_a_key_spread_evenly(bench: Make) -> None:
    """Without a uniform choice one partition would grow faster than the others."""
    made = bench(4, batch_size=300, buffer_memory=1 << 24)
    counts = Counter(made.append("t", b"x" * 50).partition for _ in range(20_000))
    assert set(counts) == {0, 1, 2, 3}
    assert max(counts.values()) < 1.2 * min(counts.values())


def test_records_without_a_key_avoid_partitions_without_a_leader(bench: Make) -> None:
    """Records that can be sent at once must not wait for a broker that is down."""
    made = bench(4, batch_size=300)
    made.accumulator.set_route("t", 4, [1, 3], lambda slot: made.owner)
    assert {made.append("t", b"x" * 50).partition for _ in range(500)} == {1, 3}
    made.accumulator.set_route("t", 4, [], lambda slot: made.owner)
    assert len({made.append("t", b"x" * 50).partition for _ in range(500)}) == 4


def test_the_sticky_partition_is_left_when_it_loses_its_leader(bench: Make) -> None:
    """Records without a key move on at once, not after batch_size bytes."""
    made = bench(4)
    at = made.append("t", b"v").partition
    made.accumulator.set_route("t", 4, [n for n in range(4) if n != at], lambda slot: made.owner)
    assert made.append("t", b"v").partition != at


def test_the_same_seed_makes_the_same_choices(bench: Make) -> None:
    """A simulation with a seed is repeatable."""
    first, second, other = (bench(16, batch_size=200, seed=seed) for seed in (7, 7, 8))
    runs = [
        [b.append("t", b"x" * 90).partition for _ in range(200)] for b in (first, second, other)
    ]
    assert runs[0] == runs[1] != runs[2]


def test_ignore_keys_partitions_keyed_records_like_the_others(bench: Make) -> None:
    """With partitioner.ignore.keys a key has no effect on the partition."""
    made = bench(8, ignore_keys=True)
    assert len({made.append("t", b"v", b"k%d" % n).partition for n in range(50)}) == 1


def test_a_grown_topic_uses_its_new_partitions(bench: Make, core: SimpleNamespace) -> None:
    """After PartitionsAdded the partition of a key follows the new count, as in Java."""
    made = bench(1)
    made.append("t", b"v", b"a")
    slots = list(made.route.slots)
    made.accumulator.set_route("t", 6, range(6), lambda slot: made.owner)
    assert list(made.route.slots)[:1] == slots
    for n in range(50):
        key = b"%d" % n
        assert made.append("t", b"v", key).partition == core.partition_for_key(key, 6)


def test_the_timestamp_is_now_unless_one_is_given(bench: Make) -> None:
    """It is CreateTime in milliseconds, and never earlier than a time taken before the call."""
    made = bench()
    before = time.time_ns() // 1_000_000
    now = made.append("t", b"v").timestamp_ms
    assert before <= now <= time.time_ns() // 1_000_000
    assert made.append("t", b"v", timestamp_ms=0).timestamp_ms == 0
    assert made.append("t", b"v", timestamp_ms=2**63 - 1).timestamp_ms == 2**63 - 1


def test_a_handed_in_clock_is_asked_for_every_record(bench: Make, clock: object) -> None:
    """In a simulation the clock is the simulation's."""
    made = bench(clock=clock)
    assert made.append("t", b"v").timestamp_ms == 1_700_000_000_000
    clock.now += 5
    assert made.append("t", b"v").timestamp_ms == 1_700_000_000_005
    assert made.opened[0].created == 1_700_000_000.0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_keys_and_values_are_copied(bench: Make, kind: type) -> None:
    """The caller may reuse its buffer as soon as append() returns."""
    made = bench()
    value = bytearray(b"value")
    made.append("t", kind(value), kind(b"key"))
    made.append("t", memoryview(value)[1:3], headers=[("h", memoryview(b"xy"))])
    value[:] = b"VALUE"
    assert [r[:3] for r in made.opened[0].records()] == [
        (b"key", b"value", []),
        (None, b"al", [("h", b"xy")]),
    ]


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"value": "text"}, TypeError, r"encode it: value\.encode\(\)"),
        ({"value": b"", "key": "text"}, TypeError, r"encode it: key\.encode\(\)"),
        ({"value": 7}, TypeError, "serialize it first"),
        ({"value": b"", "partition": -1}, ValueError, "numbered from 0"),
        ({"value": b"", "partition": 3}, UnknownTopicOrPartition, "3 partitions"),
        ({"value": b"", "partition": "1"}, TypeError, "a partition is an int"),
        ({"value": b"", "timestamp_ms": -1}, ValueError, "milliseconds"),
        ({"value": b"", "timestamp_ms": 2**63}, ValueError, "milliseconds"),
        ({"value": b"", "timestamp_ms": 1.5}, TypeError, "timestamp_ms is an int"),
        ({"value": b"", "headers": ["ab"]}, TypeError, "pairs, .*, not 'ab'"),
        ({"value": b"", "headers": 5}, TypeError, "pairs, .*, not 5"),
        ({"value": b"", "headers": [5]}, TypeError, "pairs, .*, not 5"),
        (
            {"value": b"", "headers": [("n", b"v", 3)]},
            TypeError,
            r"pairs, .*, not \('n', b'v', 3\)",
        ),
        ({"value": b"", "headers": [(b"n", b"v")]}, TypeError, "header's name is str"),
        ({"value": b"", "headers": [("n", "v")]}, TypeError, "encode it"),
        ({"value": b"", "topic": 5}, TypeError, "a topic is str"),
        ({"value": b"", "topic": "localhost:9092"}, InvalidTopic, "bootstrap_servers"),
        ({"value": b"", "topic": "a b"}, InvalidTopic, "1 to 249"),
        ({"value": b"", "topic": ".."}, InvalidTopic, "1 to 249"),
    ],
)
def test_a_wrong_argument_is_refused_with_the_fix(
    bench: Make, arguments: dict[str, object], error: type[Exception], says: str
) -> None:
    """The message says what to write instead, and no record is accepted."""
    made = bench(3)
    with pytest.raises(error, match=says):
        made.append(**{"topic": "t", **arguments})
    assert made.accumulator.used_bytes == 0
    assert made.opened == []


def test_headers_of_every_form_are_encoded(bench: Make) -> None:
    """Lists, tuples, mappings and generators of pairs; null values; non-ASCII names."""
    made = bench()
    forms = [
        [("a", b"1"), ("b", None)],
        (("ü", b"2"),),
        {"c": b"3"},
        (pair for pair in [("d", bytearray(b"4"))]),
        [["e", b"5"]],
        [],
        [("", b"")],
        [("n" * 300, b"v" * 300)],
    ]
    for headers in forms:
        made.append("t", b"v", headers=headers)
    assert [record[2] for record in made.opened[0].records()] == [
        [("a", b"1"), ("b", None)],
        [("ü", b"2")],
        [("c", b"3")],
        [("d", b"4")],
        [("e", b"5")],
        [],
        [("", b"")],
        [("n" * 300, b"v" * 300)],
    ]


def test_headers_that_can_be_read_once_survive_a_new_batch(bench: Make) -> None:
    """A generator must not be consumed by the batch that had no room."""
    made = bench(batch_size=300)
    for _ in range(20):
        made.append("t", b"x" * 50, b"k", headers=(pair for pair in [("h", b"v" * 20)]))
    assert len(made.opened) > 5
    assert {len(r[2]) for batch in made.opened for r in batch.records()} == {1}


def test_a_full_batch_is_reported_once_and_another_opened(bench: Make) -> None:
    """The owner is called per batch, never per record."""
    made = bench(batch_size=1000)
    for _ in range(100):
        made.append("t", b"x" * 90)
    assert len(made.opened) == len(made.owner.full) + 1 == 12
    assert [len(b) for b in made.owner.full] == [9] * 11
    assert all(batch.size <= 1000 for batch in made.opened)


def test_a_record_above_batch_size_gets_a_batch_of_its_own(bench: Make) -> None:
    """batch_size limits batching, not the size of a record."""
    made = bench(batch_size=1000)
    made.append("t", b"small")
    made.append("t", b"x" * 5000)
    made.append("t", b"small")
    assert [len(b) for b in made.opened] == [1, 1, 1]
    assert made.owner.full == made.opened[:2]
    assert made.opened[1].size > 5000


def test_a_record_above_max_record_bytes_is_refused_at_once(bench: Make) -> None:
    """No broker would accept it, and the open batch is not affected."""
    made = bench(batch_size=1000, max_record_bytes=2000)
    made.append("t", b"x")
    with pytest.raises(RecordTooLarge, match="max_request_size"):
        made.append("t", b"x" * 2000)
    made.append("t", b"x")
    assert [len(b) for b in made.opened] == [2]
    assert made.owner.full == []


def test_max_record_bytes_below_batch_size_bounds_batches_too(bench: Make) -> None:
    """A request must be able to hold the batch."""
    made = bench(batch_size=100_000, max_record_bytes=500)
    for _ in range(20):
        made.append("t", b"x" * 100)
    assert all(batch.size <= 500 for batch in made.opened)
    with pytest.raises(RecordTooLarge):
        made.append("t", b"x" * 500)


def test_memory_is_reserved_in_chunks_that_grow(bench: Make) -> None:
    """10,000 partitions with a record each fit into 32 MiB, although batch_size is 128 KiB."""
    made = bench(10_000, batch_size=131_072, buffer_memory=32 << 20)
    for partition in range(10_000):
        made.append("t", b"x" * 100, partition=partition)
    assert made.accumulator.used_bytes == 10_000 * 1024


def test_a_partition_that_filled_its_last_batch_starts_the_next_one_large(bench: Make) -> None:
    """Doubling from the initial size each time would copy every byte twice."""
    made = bench(batch_size=16_384)
    for _ in range(400):
        made.append("t", b"x" * 100)
    assert made.opened[0].reserved_bytes == 16_384
    assert made.opened[1].reserved_bytes == 16_384


def test_no_room_is_an_error_that_changes_nothing(bench: Make) -> None:
    """send_nowait() raises, and accepted records are kept."""
    made = bench(batch_size=2048, buffer_memory=4096, max_record_bytes=4096)
    accepted = 0
    with pytest.raises(BufferFull):  # noqa: PT012
        for _ in range(1000):
            made.append("t", b"x" * 100)
            accepted += 1
    assert sum(len(b) for b in made.opened) == accepted > 30
    assert made.accumulator.used_bytes <= 4096


def test_memory_is_used_to_the_last_chunk(bench: Make) -> None:
    """If twice the batch's size is not free, only what the record needs is reserved."""
    made = bench(batch_size=4096, buffer_memory=4096 + 600, max_record_bytes=4096)
    for _ in range(33):
        made.append("t", b"x" * 110)
    assert made.append("t", b"x" * 400) is not None


def test_memory_is_free_before_anybody_is_told(bench: Make) -> None:
    """on_memory_freed() is called when memory is free, before waiters of the batch wake."""
    made = bench()
    made.append("t", b"v")
    seen: list[int] = []
    made.accumulator.on_memory_freed = lambda: seen.append(made.accumulator.used_bytes)
    made.opened[0].complete(0)
    assert seen == []  # no record is waiting for memory
    made.append("t", b"v")
    made.accumulator.waiting = 2
    made.opened[1].complete(1)
    assert seen == [0]
    assert made.accumulator.waiting == 2


def test_while_others_wait_for_room_append_refuses(bench: Make) -> None:
    """send_nowait() must not overtake records that wait for memory in enqueue()."""
    made = bench()
    made.accumulator.waiting = 1
    with pytest.raises(BufferFull, match="other calls wait"):
        made.append("t", b"v")
    assert made.accumulator.append_many("t", [(None, b"v")])[1] == 0
    assert made.accumulator.append_waited("t", b"v").partition == 0
    assert made.accumulator.append_many("t", [(None, b"v")], waited=True)[1] == 1
    made.accumulator.waiting = 0
    made.append("t", b"v")


def test_room_tells_whether_a_record_fits(bench: Make) -> None:
    """If room() says that a record fits, append() accepts it."""
    made = bench(batch_size=1000, buffer_memory=5000, max_record_bytes=5000)
    size = 5000
    while not made.accumulator.has_memory(size):
        size -= 1
    assert size > 4800
    made.append("t", b"x" * size)
    assert not made.accumulator.has_memory(size)


def test_a_closed_accumulator_refuses_records(bench: Make) -> None:
    """Accepted records stay until their batch is done."""
    made = bench()
    made.append("t", b"v")
    made.accumulator.close()
    with pytest.raises(Closed):
        made.append("t", b"v")
    with pytest.raises(Closed):
        made.accumulator.append_many("t", [(None, b"v")])
    assert len(made.opened[0]) == 1


def test_records_can_be_refused_for_a_while(bench: Make) -> None:
    """Between two transactions no record is accepted, also through a method that was kept."""
    made = bench()
    append = made.accumulator.append
    append("t", b"v")
    made.accumulator.refuse(KafkaError("not now"))
    for refused in (
        lambda: append("t", b"v"),
        lambda: made.accumulator.append_waited("t", b"v"),
        lambda: made.accumulator.append_many("t", [(None, b"v")]),
        lambda: append("another", b"v"),
        made.accumulator.check_accepts,
    ):
        with pytest.raises(KafkaError, match="not now") as raised:
            refused()
        assert raised.value is not made.accumulator.refusal, "each caller gets a copy"
    made.accumulator.waiting = 1
    with pytest.raises(KafkaError, match="not now"):
        append("t", b"v")
    made.accumulator.waiting = 0
    made.accumulator.refuse(None)
    append("t", b"v")
    assert len(made.opened[0]) == 2


def test_metadata_that_arrives_while_records_are_refused_opens_no_way_around(bench: Make) -> None:
    """The accumulator remembers the last topic, which is then not checked again."""
    made = bench(0)
    made.accumulator.refuse(KafkaError("not now"))
    made.accumulator.set_route("u", 1, [0], lambda slot: made.owner)
    with pytest.raises(KafkaError, match="not now"):
        made.accumulator.append("u", b"v")


def test_records_of_an_unknown_topic_wait_in_order(bench: Make, core: SimpleNamespace) -> None:
    """When the metadata arrives they keep their order, partition and age."""
    asked: list[str] = []
    made = bench(0, on_unknown_topic=asked.append)
    deliveries = [
        made.append("new", b"%d" % n, b"key" if n % 2 else None, 2 if n % 5 == 0 else None)
        for n in range(40)
    ]
    assert asked == ["new"]
    assert {d.partition for d in deliveries} == {-1}
    (pending,) = made.accumulator.pending("new")
    assert len(pending) == 40
    made.accumulator.set_route("new", 3, range(3), lambda slot: made.owner)
    assert made.accumulator.pending("new") == ()
    for n, delivery in enumerate(deliveries):
        if n % 5 == 0:
            assert delivery.partition == 2
        elif n % 2:
            assert delivery.partition == core.partition_for_key(b"key", 3)
    for batch in made.opened:
        values = [int(value) for _, value, _, _ in batch.records()]
        assert values == sorted(values)
        assert batch.created == pending.created
    assert made.append("new", b"later", partition=2).partition == 2
    assert sum(len(b) for b in made.opened) == 41


def test_waiting_records_take_buffer_memory(bench: Make) -> None:
    """Records of an unknown topic are within buffer_memory, and moving them takes no more."""
    made = bench(0, batch_size=1000, buffer_memory=8000, max_record_bytes=8000)
    count = 0
    with pytest.raises(BufferFull):  # noqa: PT012
        while True:
            made.append("new", b"x" * 90, b"%d" % count)
            count += 1
    assert len(made.accumulator.pending("new")) == 8
    assert 7000 < made.accumulator.used_bytes <= 8000
    made.accumulator.set_route("new", 1, [0], lambda slot: made.owner)
    assert sum(len(b) for b in made.opened) == count
    for batch in made.opened:
        batch.complete(0)
    assert made.accumulator.used_bytes == 0


def test_waiting_records_fail_together(bench: Make) -> None:
    """If the topic does not exist its records fail, and their memory is freed."""
    made = bench(0)
    deliveries = [made.append("new", b"v") for _ in range(3)]
    assert made.accumulator.fail_pending("new", UnknownTopicOrPartition("no such topic")) == 3
    assert made.accumulator.used_bytes == 0
    for delivery in deliveries:
        with pytest.raises(UnknownTopicOrPartition, match="no such topic"):
            delivery.result()
    assert made.append("new", b"v").partition == -1


def test_a_waiting_record_for_a_partition_that_does_not_exist_fails_alone(bench: Make) -> None:
    """The other records are appended."""
    made = bench(0)
    good, bad = made.append("new", b"v", partition=0), made.append("new", b"v", partition=9)
    made.accumulator.set_route("new", 1, [0], lambda slot: made.owner)
    assert good.partition == 0
    assert isinstance(bad.exception(), UnknownTopicOrPartition)


@pytest.mark.parametrize("partition", [9, None])
def test_moving_waiting_records_reports_the_memory_that_it_frees(
    bench: Make, partition: int | None
) -> None:
    """Calls that wait for memory are told, even if every record is refused."""
    freed: list[int] = []
    made = bench(0, on_memory_freed=lambda: freed.append(made.accumulator.used_bytes))
    for _ in range(3):
        made.append("new", b"x" * 300, partition=partition)
    held = made.accumulator.used_bytes
    made.accumulator.waiting = 1
    made.accumulator.set_route("new", 1, [0], lambda slot: made.owner)
    assert freed == [made.accumulator.used_bytes]  # once, and after the records took memory
    assert (freed == [0]) == (partition == 9)
    assert held > 900


def test_a_forgotten_topic_waits_again(bench: Make) -> None:
    """A deleted topic may be recreated."""
    made = bench(2)
    made.append("t", b"v", b"k")
    made.accumulator.forget_route("t")
    assert made.append("t", b"v", b"k").partition == -1
    made.accumulator.set_route("t", 2, [0, 1], lambda slot: made.owner)
    assert made.append("t", b"v", b"k").partition >= 0


def test_taking_the_open_batch_ends_its_filling(bench: Make) -> None:
    """The sender takes a batch whose linger has ended; the next record opens another batch."""
    made = bench()
    made.append("t", b"v")
    slot = made.route.slots[0]
    assert slot.take_open() is made.opened[0]
    assert slot.take_open() is None
    made.append("t", b"v")
    assert [len(b) for b in made.opened] == [1, 1]
    assert made.owner.full == []


def test_an_owner_that_fails_is_heard(bench: Make) -> None:
    """An exception of the sender must not get lost on the way through C."""
    made = bench()

    def fail(batch: object) -> None:
        raise KafkaError("owner")

    made.owner.batch_opened = fail
    with pytest.raises(KafkaError, match="owner"):
        made.append("t", b"v")


@pytest.mark.parametrize(
    "settings", [{"batch_size": -1}, {"buffer_memory": 0}, {"max_record_bytes": 0}]
)
def test_sizes_that_make_no_sense_are_refused(bench: Make, settings: dict[str, int]) -> None:
    """In C they would be taken for huge sizes."""
    with pytest.raises(ValueError, match="sizes in bytes"):
        bench(1, **settings)


NO_PARTITIONS = [(-1, ValueError), (2**31, ValueError), (2**63, ValueError), (2**64, ValueError)]
NO_PARTITIONS += [(-(2**63) - 1, ValueError), (0.0, TypeError), (float("nan"), TypeError)]
NO_PARTITIONS += [("0", TypeError), (True, TypeError)]  # type: ignore[list-item]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("partition", "error"), NO_PARTITIONS)
def test_a_partition_that_cannot_be_is_refused_at_the_call(
    bench: Make, known: bool, partition: object, error: type[Exception]
) -> None:
    """Regression: before the metadata a number above int32 was accepted.

    It then failed the placement of all waiting records.
    """
    made = bench(2 if known else 0)
    for call in (
        lambda: made.append("t", b"v", partition=partition),
        lambda: made.accumulator.append_many("t", [(None, b"v")], partition),
    ):
        with pytest.raises(error, match="partition"):
            call()
    assert made.accumulator.used_bytes == 0
    assert made.accumulator.pending("t") == ()


@pytest.mark.parametrize("timestamp", [-1, 2**63, 2**64, -(2**63) - 1])
def test_a_timestamp_that_cannot_be_is_refused_at_the_call(bench: Make, timestamp: int) -> None:
    """Kafka's timestamps are int64 and not negative."""
    made = bench(1)
    for call in (
        lambda: made.append("t", b"v", timestamp_ms=timestamp),
        lambda: made.accumulator.append_many("t", [(None, b"v", None, timestamp)]),
    ):
        with pytest.raises(ValueError, match="timestamp_ms"):
            call()
    assert made.accumulator.used_bytes == 0
    assert made.append("t", b"v", timestamp_ms=2**63 - 1).timestamp_ms == 2**63 - 1


def test_a_record_that_cannot_be_placed_fails_alone(bench: Make) -> None:
    """Regression: records after it in the same batch never had an outcome."""
    told: list[tuple[str, Exception]] = []
    refused: list[object] = []

    def bug(where: str, error: Exception) -> Exception:
        told.append((where, error))
        return KafkaError(where)

    made = bench(0, on_bug=bug, on_refused=refused.append)
    deliveries = [made.append("t", b"v", partition=n % 2) for n in range(6)]

    class Broken:
        def batch_opened(self, batch: object) -> None:
            raise ZeroDivisionError("a bug")

        def batch_full(self, batch: object) -> None: ...

    made.accumulator.set_route(
        "t", 2, [0, 1], lambda slot: Broken() if slot.partition else made.owner
    )
    assert [delivery.done() for delivery in deliveries] == [False, True] * 3
    assert {type(error) for _, error in told} == {ZeroDivisionError}
    assert all(isinstance(d.exception(), KafkaError) for d in deliveries[1::2])
    assert len(refused) == len(told) == 3
    (batch,) = made.opened
    batch.complete(7)
    assert [delivery.result().offset for delivery in deliveries[::2]] == [7, 8, 9]
    assert made.accumulator.used_bytes == 0


def test_a_full_batch_that_nobody_takes_fails_and_the_next_record_does_not(bench: Make) -> None:
    """Regression: the error went to the next record's caller, and nobody took the full batch."""
    made = bench(1, batch_size=300, on_bug=lambda where, error: KafkaError(where))

    def broken(batch: object) -> None:
        raise ZeroDivisionError("a bug")

    made.owner.batch_full = broken
    deliveries = [made.append("t", b"x" * 100) for _ in range(5)]
    failed = [isinstance(each.exception(), KafkaError) for each in deliveries if each.done()]
    assert failed == [True] * 4
    assert not deliveries[-1].done()


def test_what_fails_when_there_is_room_keeps_no_batch_from_its_end(bench: Make) -> None:
    """Regression: the waiters of the batch were never woken."""
    told: list[str] = []

    def broken() -> None:
        raise ZeroDivisionError("a bug")

    def bug(where: str, error: Exception) -> Exception:
        told.append(where)
        return error

    made = bench(1, on_memory_freed=broken, on_bug=bug)
    delivery = made.append("t", b"v")
    made.accumulator.waiting = 1
    assert made.opened[0].complete(0)
    assert delivery.result().offset == 0
    assert told == ["on_memory_freed"]
    assert made.accumulator.used_bytes == 0
