"""OffsetMap and KeptBatches: both builds agree, and never access memory outside their input."""

from __future__ import annotations

import random

import pytest

from aiokq.fastpath import crc32c
from aiokq.records.header import DELETE_HORIZON_MASK, iter_headers, read_header, verify_crc
from aiokq.records.record import RawRecord, encode_batch, iter_records
from tests.cores import cores

CORES = cores()
NAMES = ["compiled" if core.COMPILED else "pure" for core in CORES]
SECRET = bytes(range(16))


def keeper(core, offsets, **options):  # type: ignore[no-untyped-def]
    defaults = {
        "now_ms": 1000,
        "horizon_ms": 5000,
        "upper_offset": -1,
        "producers": {},
        "index_interval_bytes": 200,
        "room": 1 << 16,
    }
    return core.KeptBatches(offsets, **{**defaults, **options})


def some_batches(rng: random.Random, count: int) -> bytes:
    data, offset = b"", 0
    for _ in range(count):
        size = rng.randrange(1, 9)
        records = [
            RawRecord(
                offset + n,
                rng.randrange(2000) if rng.random() < 0.8 else -1,
                None if rng.random() < 0.1 else b"k%d" % rng.randrange(12),
                None if rng.random() < 0.3 else rng.randbytes(rng.randrange(200)),
                [("h", b"1")] if rng.random() < 0.2 else [],
            )
            for n in range(size)
            if n == 0 or rng.random() < 0.9
        ]
        attributes = DELETE_HORIZON_MASK if rng.random() < 0.2 else 0
        data += encode_batch(
            records,
            crc32c=crc32c,
            base_offset=offset,
            timestamp_type=int(rng.random() < 0.2),
            attributes=attributes,
            producer_id=rng.randrange(-1, 3),
            base_sequence=rng.randrange(5),
            producer_epoch=0,
        )
        offset += size
    return data


@pytest.mark.parametrize("seed", range(100))
def test_both_builds_keep_the_same_bytes_and_notes(seed: int) -> None:
    """Each build is the oracle of the other."""
    rng = random.Random(seed)
    data = some_batches(rng, 60)
    start, latest = rng.randrange(60), rng.choice((None, rng.randrange(200)))
    upper = rng.choice([h.next_offset for h in iter_headers(data)])
    producers = {n: rng.choice([h.last_offset for h in iter_headers(data)]) for n in range(3)}
    results = []
    for core in CORES:
        offsets = core.OffsetMap(64, 60, SECRET)
        walk = offsets.index(data, 0, start)
        keys = {b"k%d" % n: offsets.get(b"k%d" % n) for n in range(14)}
        if latest is not None:
            offsets.latest_offset = latest
        kept = keeper(core, offsets, upper_offset=upper, producers=producers, room=2048)
        kept.begin_segment(7)
        at, out, notes, state = 0, b"", [], 2
        while state == 2:
            at, state = kept.keep(data, at)
            if state == 2 and not kept.used:
                kept.reserve(kept.room * 2)
            out += bytes(kept.filled())
            notes += kept.clear()
        results.append(
            (
                walk,
                len(offsets),
                keys,
                (at, state),
                out,
                notes,
                kept.read,
                kept.kept,
                kept.keyless,
                kept.batches,
                kept.position,
                kept.max_timestamp_ms,
                kept.max_timestamp_offset,
            )
        )
    for result in results:
        for mine, other in zip(result, results[0], strict=True):
            assert mine == other
    position = 0
    for header in iter_headers(results[0][4]):
        part = results[0][4][position : position + header.size]
        assert verify_crc(part, header, crc32c)
        assert len(list(iter_records(part, header))) == header.count
        position += header.size
    assert position == len(results[0][4])


@pytest.mark.parametrize("core", CORES, ids=NAMES)
def test_a_map_holds_as_many_keys_as_it_may_and_no_more(core) -> None:  # type: ignore[no-untyped-def]
    """A full map must say so, and still find its keys."""
    offsets = core.OffsetMap(100, 90, SECRET)
    keys = [b"%d" % n for n in range(100)]
    assert [offsets.put(key, n) for n, key in enumerate(keys)] == [True] * 90 + [False] * 10
    assert len(offsets) == 90
    assert offsets.put(keys[5], 1000)
    assert [offsets.get(key) for key in keys] == [
        1000 if n == 5 else n if n < 90 else -1 for n in range(100)
    ]
    with pytest.raises(ValueError):
        core.OffsetMap(1, 1, SECRET)
    with pytest.raises(ValueError):
        core.OffsetMap(10, 5, b"short")


@pytest.mark.parametrize("core", CORES, ids=NAMES)
def test_a_map_that_was_closed_is_not_touched_again(core) -> None:  # type: ignore[no-untyped-def]
    """Its memory may be in use elsewhere by then."""
    offsets = core.OffsetMap(100, 90, SECRET)
    offsets.put(b"a", 1)
    block = keeper(core, offsets)
    offsets.close()
    offsets.close()
    assert len(offsets) == 0
    data = some_batches(random.Random(1), 2)
    for use in (
        lambda: offsets.put(b"a", 2),
        lambda: offsets.get(b"a"),
        lambda: offsets.index(data, 0, 0),
        lambda: block.keep(data, 0),
    ):
        with pytest.raises(RuntimeError, match="closed"):
            use()


@pytest.mark.parametrize("core", CORES, ids=NAMES)
def test_keys_of_any_length_and_content_are_told_apart(core) -> None:  # type: ignore[no-untyped-def]
    """Also the empty key, and keys that differ in a trailing zero."""
    keys = [bytes(n) for n in range(40)] + [b"\x01" + bytes(n) for n in range(40)]
    offsets = core.OffsetMap(200, 150, SECRET)
    for n, key in enumerate(keys):
        assert offsets.put(key, n)
    assert [offsets.get(key) for key in keys] == list(range(80))


@pytest.mark.parametrize("core", CORES, ids=NAMES)
def test_a_full_map_ends_before_the_batch_that_does_not_fit(core) -> None:  # type: ignore[no-untyped-def]
    """Later batches are not in the map, so latest_offset must not include them."""
    batches = [
        encode_batch(
            [RawRecord(3 * b + n, 1, b"%d-%d" % (b, n), b"v") for n in range(3)], crc32c=crc32c
        )
        for b in range(3)
    ]
    offsets = core.OffsetMap(10, 5, SECRET)
    at, state, read = offsets.index(b"".join(batches), 0, 0)
    assert (at, state, read) == (len(batches[0]), core.WALK_FULL, 3)
    assert offsets.latest_offset == 2


@pytest.mark.parametrize("core", CORES, ids=NAMES)
def test_damage_anywhere_in_a_batch_is_found(core) -> None:  # type: ignore[no-untyped-def]
    """Whether the checksum is valid or not, nothing after the batch's end is read."""
    batch = encode_batch(
        [RawRecord(n, 1, b"key%d" % n, b"value", [("h", b"x")]) for n in range(3)], crc32c=crc32c
    )
    behind = batch + bytes(64)
    for position in range(8, len(batch)):
        for mask in (0x01, 0x80, 0xFF):
            damaged = bytearray(behind)
            damaged[position] ^= mask
            offsets = core.OffsetMap(10, 9, SECRET)
            _, state, _ = offsets.index(damaged[: len(batch)], 0, 0)
            assert state != core.WALK_END or 8 <= position < 16  # not covered: length, epoch
            for flags in (core.WALK_ONE | core.WALK_TRUSTED, core.WALK_TRUSTED):
                offsets.index(damaged, 0, 0, flags)
                kept = keeper(core, offsets)
                at, state = kept.keep(damaged, 0, flags)
                assert at <= len(damaged)
                assert state in (0, 1, 2, 3)


@pytest.mark.parametrize("core", CORES, ids=NAMES)
def test_batches_that_need_more_are_left_to_the_caller(core) -> None:  # type: ignore[no-untyped-def]
    """Compressed, transactional, control and legacy batches."""
    plain = encode_batch([RawRecord(0, 1, b"a", b"1")], crc32c=crc32c)
    offsets = core.OffsetMap(10, 9, SECRET)
    from aiokq.records.legacy import Message, encode_message_set

    for other in (
        encode_batch([RawRecord(1, 1, b"a", b"1")], crc32c=crc32c, codec=1),
        encode_batch([RawRecord(1, 1, b"a", b"1")], crc32c=crc32c, attributes=0x10),
        encode_batch([RawRecord(1, 1, b"a", b"1")], crc32c=crc32c, attributes=0x20),
        encode_message_set([Message(1, 1, b"a", b"1")], 1),
    ):
        data = plain + other
        assert offsets.index(data, 0, 0)[:2] == (len(plain), core.WALK_OTHER)
        assert keeper(core, offsets).keep(data, 0) == (len(plain), core.WALK_OTHER)


@pytest.mark.parametrize("core", CORES, ids=NAMES)
def test_an_incomplete_batch_is_the_end(core) -> None:  # type: ignore[no-untyped-def]
    """A piece of a file may end anywhere; the rest comes with the next piece."""
    batch = encode_batch([RawRecord(0, 1, b"a", b"1")], crc32c=crc32c)
    offsets = core.OffsetMap(10, 9, SECRET)
    for length in range(len(batch)):
        assert offsets.index(batch[:length], 0, 0) == (0, core.WALK_END, 0)
        assert keeper(core, offsets).keep(batch[:length], 0) == (0, core.WALK_END)
    with pytest.raises(ValueError) if core.COMPILED else pytest.raises(AssertionError):
        offsets.index(batch, len(batch) + 1, 0)
        raise AssertionError


@pytest.mark.parametrize("core", CORES, ids=NAMES)
def test_a_batch_made_elsewhere_finds_room_or_is_told(core) -> None:  # type: ignore[no-untyped-def]
    """If it does not fit, the buffer must be written first and the batch added again."""
    offsets = core.OffsetMap(10, 9, SECRET)
    batch = encode_batch([RawRecord(4, 9, b"a", b"1")], crc32c=crc32c)
    kept = keeper(core, offsets, room=2 * len(batch))
    kept.begin_segment(0)
    assert [kept.put(batch, 4, 9) for _ in range(3)] == [True, True, False]
    assert bytes(kept.filled()) == batch * 2
    kept.clear()
    assert kept.used == 0
    assert kept.position == 2 * len(batch)
    assert kept.put(batch, 4, 9)
    assert read_header(kept.filled()).base_offset == 4
    assert (kept.max_timestamp_ms, kept.max_timestamp_offset) == (9, 4)
