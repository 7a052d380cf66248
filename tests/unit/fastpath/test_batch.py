"""Batch: its encoding, and the ways in which it ends."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from aiokq.core.errors import KafkaError, NotLeaderOrFollower, RecordTooLarge
from aiokq.records import compression
from tests import cores

Make = Callable[..., object]

RECORDS = [
    (b"k1", b"v1", [("h", b"x"), ("n", None)], 1000),
    (None, b"v2", [], 999),
    (b"", None, [], 5000),
    (b"k" * 200, b"v" * 20_000, [("ü", b"")], 1001),
]


def fill(made: object) -> object:
    for key, value, headers, timestamp in RECORDS:
        made.append("t", value, key, 0, timestamp, headers)
    return made.opened[0]


def test_another_implementation_reads_what_was_written(bench: Make) -> None:
    """aiokafka checks the CRC and decodes every field."""
    batch = fill(bench(batch_size=100_000))
    other = DefaultRecordBatch(bytes(batch.stamp(77, 5, 42, transactional=True)))
    assert other.validate_crc()
    assert (other.producer_id, other.producer_epoch, other.base_sequence) == (77, 5, 42)
    assert other.is_transactional
    assert other.max_timestamp == batch.max_timestamp_ms == 5000
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in other] == [
        (n, timestamp, key, value, headers)
        for n, (key, value, headers, timestamp) in enumerate(RECORDS)
    ]


def test_the_header_says_what_is_inside(bench: Make) -> None:
    """Each field of the layout in KIP-98."""
    batch = fill(bench(batch_size=100_000))
    data = bytes(batch.stamp(1, 2, 3))
    fields = struct.unpack_from(">qiibIhiqqqhii", data)
    assert fields[:4] == (0, len(data) - 12, -1, 2)
    assert fields[5:] == (0, 3, 1000, 5000, 1, 2, 3, 4)
    assert len(data) == batch.size
    assert batch.data == data


def test_stamping_again_alike_gives_the_same_memory(bench: Make) -> None:
    """The same bytes are resent until a field changes."""
    batch = fill(bench(batch_size=100_000))
    assert batch.stamp(1, 2, 3) is batch.stamp(1, 2, 3)


def test_stamping_anew_changes_three_fields_and_the_crc_in_other_memory(bench: Make) -> None:
    """After an epoch bump an earlier request may still hold the old bytes."""
    batch = fill(bench(batch_size=100_000))
    first = batch.stamp(1, 2, 3)
    before = bytes(first)
    second = bytes(batch.stamp(9, 8, 7))
    assert bytes(first) == before
    changed = {n for n in range(len(before)) if before[n] != second[n]}
    assert changed <= {*range(17, 21), *range(43, 57)}
    assert DefaultRecordBatch(second).validate_crc()


def test_what_is_stamped_cannot_be_written_to(bench: Make) -> None:
    """A transport gets the batch's own memory."""
    batch = fill(bench(batch_size=100_000))
    assert batch.stamp().readonly
    assert batch.payload().readonly


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_compressed_batch_takes_less_room(bench: Make, codec: int) -> None:
    """The raw records are freed as soon as the compressed ones exist."""
    made = bench(batch_size=100_000)
    batch = fill(made)
    reserved = made.accumulator.used_bytes
    compressed = compression.compress(codec, bytes(batch.payload()))
    batch.seal(codec, compressed)
    assert made.accumulator.used_bytes == 61 + len(compressed) < reserved
    data = bytes(batch.stamp())
    assert len(data) == 61 + len(compressed)
    assert data[22] & 7 == codec
    assert DefaultRecordBatch(data).validate_crc()
    with pytest.raises(ValueError, match="freed"):
        batch.payload()
    with pytest.raises(ValueError, match="freed"):
        batch.records()
    batch.complete(0)
    assert made.accumulator.used_bytes == 0


@pytest.mark.parametrize("arguments", [(1, None), (0, b"x"), (8, b"x"), (-1, b"x")])
def test_a_codec_comes_with_its_bytes(bench: Make, arguments: tuple[int, bytes | None]) -> None:
    """Readers would reject a batch whose codec does not match its bytes."""
    batch = fill(bench(batch_size=100_000))
    with pytest.raises(ValueError, match="codec"):
        batch.seal(*arguments)


def test_a_sealed_batch_takes_no_more_records(bench: Make) -> None:
    """Sealing detaches a batch from its slot."""
    made = bench()
    made.append("t", b"v")
    made.opened[0].seal()
    made.append("t", b"v")
    assert [len(b) for b in made.opened] == [1, 1]
    assert made.opened[0].sealed
    assert not made.opened[1].sealed
    with pytest.raises(RuntimeError, match="already sealed"):
        made.opened[0].seal()


def test_a_done_batch_holds_nothing(bench: Make) -> None:
    """Memory, bytes and reservation are released; its outcome is kept."""
    made = bench()
    delivery = made.append("t", b"v")
    batch = made.opened[0]
    batch.stamp()
    assert batch.complete(10) is True
    assert batch.done
    assert bytes(batch.data) == b""
    assert made.accumulator.used_bytes == batch.reserved_bytes == 0
    assert batch.complete(20) is False
    assert batch.fail(KafkaError("late")) is False
    assert delivery.result().offset == 10
    with pytest.raises(RuntimeError, match="already completed or failed"):
        batch.stamp()


def test_memory_that_a_transport_still_holds_is_not_used_again(bench: Make) -> None:
    """The view of a finished batch may wait in a socket's buffer.

    The block pool must not overwrite it.
    """
    made = bench(batch_size=1024)
    for _ in range(20):
        made.append("t", b"a" * 100)
    first = made.opened[0].stamp()
    before = bytes(first)
    made.opened[0].complete(0)
    for _ in range(60):
        made.append("t", b"b" * 100)
    assert bytes(first) == before


def test_the_records_come_back_for_a_split(bench: Make) -> None:
    """The records are unchanged, whether from the raw or from the decompressed payload."""
    made = bench(batch_size=100_000)
    batch = fill(made)
    payload = bytes(batch.payload())
    assert batch.records() == [(k, v, list(h), t) for k, v, h, t in RECORDS]
    batch.seal(1, compression.compress(1, payload))
    assert batch.records(payload) == [(k, v, list(h), t) for k, v, h, t in RECORDS]


def test_a_split_moves_the_deliveries(bench: Make) -> None:
    """After MESSAGE_TOO_LARGE: smaller batches of the same age, which the Deliveries follow."""
    made = bench()
    deliveries = [made.append("t", b"%d" % n, timestamp_ms=n) for n in range(9)]
    batch = made.opened[0]
    batch.stamp(1, 0, 0)
    parts = cores.split(made.accumulator, batch)
    assert batch.done
    assert [len(part) for part in parts] == [5, 4]
    assert {part.created for part in parts} == {batch.created}
    parts[1].complete(100)
    parts[0].complete(50)
    assert [d.result().offset for d in deliveries] == [50, 51, 52, 53, 54, 100, 101, 102, 103]
    assert [d.result().timestamp_ms for d in deliveries] == list(range(9))
    assert made.accumulator.used_bytes == 0
    assert [len(b) for b in made.opened] == [1 * 9]


def test_a_split_reports_the_memory_that_it_frees(bench: Make) -> None:
    """Calls that wait for memory are told: the batch may hold more than its records need."""
    freed: list[int] = []
    made = bench(on_memory_freed=lambda: freed.append(made.accumulator.used_bytes))
    for _ in range(9):
        made.append("t", b"x")
    made.accumulator.waiting = 1
    cores.split(made.accumulator, made.opened[0])
    assert freed == [0]


def test_splitting_twice_still_finds_every_delivery(bench: Make) -> None:
    """A Delivery follows its record over any number of moves."""
    made = bench()
    deliveries = [made.append("t", b"x") for _ in range(8)]
    pieces = [made.opened[0]]
    for _ in range(3):
        pieces = [part for piece in pieces for part in cores.split(made.accumulator, piece)]
    assert [len(p) for p in pieces] == [1] * 8
    for n, piece in enumerate(pieces):
        piece.complete(10 * n)
    assert [d.result().offset for d in deliveries] == [10 * n for n in range(8)]


def test_forward_wants_a_target_per_record(bench: Make) -> None:
    """A delivery without a target would wait forever."""
    made = bench()
    delivery = made.append("t", b"x")
    made.append("t", b"y")
    with pytest.raises(ValueError, match="1 targets for 2 records"):
        made.opened[0].forward([delivery])


def test_a_batch_of_its_own_is_outside_the_slot(bench: Make) -> None:
    """new_batch() serves splits, and batches built by hand."""
    made = bench()
    slot = made.route.slots[0]
    batch, deliveries = made.accumulator.new_batch(slot, [(b"k", b"v", [], 5)] * 3)
    assert slot.batch is None
    assert (batch.slot, len(batch), len(deliveries)) == (slot, 3, 3)
    batch.complete(7)
    assert [d.result().offset for d in deliveries] == [7, 8, 9]
    with pytest.raises(ValueError, match="at least one record"):
        made.accumulator.new_batch(slot, [])


def test_a_batch_of_its_own_has_a_limit(bench: Make) -> None:
    """A batch larger than a request is rejected, and its memory released."""
    made = bench(batch_size=500, max_record_bytes=1000)
    with pytest.raises(RecordTooLarge, match="a batch of 1000 bytes"):
        made.accumulator.new_batch(made.route.slots[0], [(None, b"x" * 300, [], 0)] * 5)
    assert made.accumulator.used_bytes == 0
    made.append("t", b"still works")


def test_a_failed_batch_of_its_own_leaves_no_memory(bench: Make) -> None:
    """Its memory is not kept for later batches, which have batch_size bytes."""
    made = bench(batch_size=1000, max_record_bytes=2_000_000)
    tracemalloc.start()
    try:
        for _ in range(10):
            with pytest.raises(RecordTooLarge):
                made.accumulator.new_batch(
                    made.route.slots[0], [(None, b"x" * 1000, [], 0)] * 2_100
                )
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_failures_nobody_saw_are_counted(bench: Make) -> None:
    """flush() reports them, except failures that were retrieved."""
    made = bench()
    deliveries = [made.append("t", b"x") for _ in range(5)]
    batch = made.opened[0]
    assert batch.unobserved == 0
    batch.fail(NotLeaderOrFollower("gone"))
    assert batch.unobserved == 5
    deliveries[1].exception()
    deliveries[1].exception()
    with pytest.raises(NotLeaderOrFollower):
        deliveries[2].result()
    assert batch.unobserved == 3


def test_batches_and_deliveries_are_not_made_by_hand(core: SimpleNamespace) -> None:
    """Without an accumulator they would crash."""
    for kind in (core.Batch, core.Delivery, core.Deliveries):
        with pytest.raises(TypeError):
            kind()
