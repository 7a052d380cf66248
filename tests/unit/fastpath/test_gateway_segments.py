"""Finished segments of the gateway's pool are used again: both builds keep the bytes apart."""

from __future__ import annotations

import gc
import random
import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

from tests.forking import in_child, needs_fork
from tests.gateway_messages import encode

MIB = 1 << 20
COUNT = 500  # messages of 400 bytes: more than a mapping of 64 KiB, in a pool of 16 MiB


class Held:
    """Messages that were taken, as columns, and what they are to be."""

    def __init__(self, taken: Any, expected: list[tuple[bytes, bytes]]) -> None:
        self.count, self.charge = taken.count, taken.charge
        self.expected = expected
        columns = taken.columns()
        self.values, self.keys = columns["value"], columns.get("key")

    def check(self) -> None:
        for n, (key, value) in enumerate(self.expected):
            assert self._cell(self.values, n) == value
            assert (b"" if self.keys is None else self._cell(self.keys, n)) == key

    @staticmethod
    def _cell(column: Any, n: int) -> bytes:
        _, offsets, data = column
        first, end = memoryview(offsets).cast("i")[n : n + 2]
        return bytes(data[first:end])


def block(number: int, count: int = COUNT) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Messages of the topic "t" of which no two are equal; and their keys and values."""
    cells = [(b"k%d" % number, b"%08d-%08d-" % (number, n) + b"v" * 382) for n in range(count)]
    return b"".join(encode(b"t", value, key) for key, value in cells), cells


def take(pool: Any, slot: int, expected: list[tuple[bytes, bytes]]) -> list[Held]:
    """Take what is due, which is to be `expected`."""
    found = []
    while (taken := pool.take(slot)) is not None:
        found.append(Held(taken, expected[: taken.count]))
        del expected[: taken.count]
    assert not expected
    return found


def test_the_bytes_of_what_is_held_stay(core: SimpleNamespace) -> None:
    """Views of messages stay as they are, in whatever order others are given back."""
    pool = core.Pool(16 * MIB)
    slot = pool.register(b"t")
    chosen = random.Random(17)
    held: deque[Held] = deque()
    for number in range(120):
        data, cells = block(number, chosen.choice([1, 30, COUNT, 2 * COUNT]))
        assert pool.feed(data) == len(data)
        held += take(pool, slot, cells)
        while len(held) > 12:
            held.rotate(chosen.randrange(len(held)))
            one = held.popleft()
            one.check()
            pool.release(one.count, one.charge)
        if chosen.randrange(20) == 0:  # the pool is empty, and its spare segments are given back
            for one in held:
                one.check()
                pool.release(one.count, one.charge)
            held.clear()
    for one in held:
        one.check()
    assert not sum(pool.counts().discarded)
    pool.close()


def test_views_outlive_the_pool(core: SimpleNamespace) -> None:
    pool = core.Pool(16 * MIB)
    slot = pool.register(b"t")
    held = []
    for number in range(20):
        data, cells = block(number)
        pool.feed(data)
        held += take(pool, slot, cells)
        if number % 2:
            one = held.pop(0)
            pool.release(one.count, one.charge)
    one = data = None
    pool.close()
    half = len(held) // 2
    for kept in held[half:]:
        kept.check()
    kept = None
    del held[half:]
    del pool
    gc.collect()
    for kept in held:
        kept.check()
    kept = None
    ended = threading.Thread(target=held.clear)  # the last references end in another thread
    ended.start()
    ended.join()


@needs_fork
def test_a_forked_child_gives_back_only_its_own(core: SimpleNamespace) -> None:
    """A child ends its copies of what was taken; those of the parent stay, and go on."""
    pool = core.Pool(16 * MIB)
    slot = pool.register(b"t")
    held: list[Held] = []
    for number in range(10):
        data, cells = block(number)
        pool.feed(data)
        held += take(pool, slot, cells)
    spare = held.pop(0)
    pool.release(spare.count, spare.charge)
    del spare

    def child() -> int:
        for one in held:
            one.check()
        count = len(held)
        held.clear()
        return count

    assert in_child(child) == str(len(held))
    for number in range(10, 20):
        data, cells = block(number)
        pool.feed(data)
        held += take(pool, slot, cells)
    for one in held:
        one.check()
    pool.close()
