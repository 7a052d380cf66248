"""Fixtures of the core's tests: both builds, and an accumulator with an owner."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from aiokq.core.types import Buffer
from aiokq.fastpath.produce import Accumulator, Batch, Route
from aiokq.records import compression
from tests import cores


class Owner:
    """Records the calls of a Slot to its owner."""

    def __init__(self) -> None:
        self.opened: list[Batch] = []
        self.full: list[Batch] = []

    def batch_opened(self, batch: Batch) -> None:
        self.opened.append(batch)

    def batch_full(self, batch: Batch) -> None:
        self.full.append(batch)


class Bench:
    """An accumulator, topic "t" with its partitions, and the owner of all its slots."""

    def __init__(self, core: SimpleNamespace, partitions: int, **settings: object) -> None:
        defaults = {"batch_size": 16384, "buffer_memory": 1 << 20, "max_record_bytes": 1 << 20}
        self.accumulator: Accumulator = core.Accumulator(**{**defaults, **settings})
        self.owner = Owner()
        self.append = self.accumulator.append
        if partitions:
            self.accumulator.set_route("t", partitions, range(partitions), lambda slot: self.owner)

    @property
    def route(self) -> Route:
        route = self.accumulator.route("t")
        assert route is not None
        return route

    @property
    def opened(self) -> list[Batch]:
        return self.owner.opened


class FixedClock:
    """A clock that returns the same time for every record, as in a simulation."""

    def __init__(self, timestamp_ms: int = 1_700_000_000_000) -> None:
        self.now = timestamp_ms

    def monotonic(self) -> float:
        return self.now / 1000

    def timestamp_ms(self) -> int:
        return self.now


class Codecs:
    """The codecs passed to cursors, without legacy formats."""

    def decompress(self, codec: int, data: memoryview, limit: int) -> bytes:
        return compression.decompress(codec, data, limit)

    def upconvert(self, data: memoryview) -> bytes:
        raise AssertionError("no legacy batch expected")


@pytest.fixture(params=cores.NAMES)
def core(request: pytest.FixtureRequest) -> SimpleNamespace:
    """The core: once compiled and once pure."""
    return cores.core(request.param)


@pytest.fixture
def bench(core: SimpleNamespace) -> Callable[..., Bench]:
    """A factory: bench(partitions=1, **settings) returns a Bench."""
    return lambda partitions=1, **settings: Bench(core, partitions, **settings)


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def codecs() -> Codecs:
    return Codecs()


@pytest.fixture
def encode(core: SimpleNamespace) -> Callable[..., bytes]:
    """A factory: encode(records, base_offset=0, **stamp) returns a batch as a broker serves it."""

    def make(
        records: list[tuple[object, ...]],
        *,
        base_offset: int = 0,
        leader_epoch: int = 3,
        codec: int = 0,
        **stamp: object,
    ) -> bytes:
        made = Bench(core, 1, batch_size=1 << 20, buffer_memory=1 << 24)
        made.accumulator.append_many("t", records)
        (batch,) = made.opened
        if codec:
            batch.seal(codec, compression.compress(codec, bytes(batch.payload())))
        data = bytearray(batch.stamp(**stamp))
        data[0:8] = base_offset.to_bytes(8, "big")
        data[12:16] = leader_epoch.to_bytes(4, "big")
        return bytes(data)

    return make


@pytest.fixture
def cursor(core: SimpleNamespace, codecs: Codecs) -> Callable[..., object]:
    """A factory: cursor(data, start_offset=0, **options) returns a Cursor over partition t-0."""

    def make(data: Buffer, start_offset: int = 0, **options: object) -> object:
        return core.Cursor("t", 0, data, start_offset=start_offset, **{"codecs": codecs, **options})

    return make
