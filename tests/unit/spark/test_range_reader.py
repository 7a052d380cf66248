"""Reads of ranges in a worker: order, read-ahead, and lost records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from aiokq import TopicPartition
from aiokq.errors import CorruptRecord, OffsetOutOfRange, RequestTimeout
from aiokq.spark import range_reader
from aiokq.spark.data_loss import DataLoss
from aiokq.spark.options import ReadOptions
from aiokq.spark.planning import OffsetRange
from aiokq.spark.worker import LoopThread

PIECE = 10
"""Number of offsets per fetch."""


@dataclass
class Columns:
    offsets: list[int]

    def __len__(self) -> int:
        return len(self.offsets)

    def to_arrow(self) -> list[int]:
        return self.offsets


class Records:
    """Records of one fetch; offsets stand for rows."""

    def __init__(self, partition: int, offset: int, next_offset: int, size: int) -> None:
        self.partition, self.offset, self.next_offset, self.size = (
            partition,
            offset,
            next_offset,
            size,
        )
        self.exhausted = False

    def cursor(self) -> Records:
        return self

    def columns(self, names: tuple[str, ...], max_bytes: int) -> Columns:
        self.exhausted = True
        return Columns([self.partition * 1000 + n for n in range(self.offset, self.next_offset)])


class Cluster:
    """Simulated logs, with a count of fetches."""

    def __init__(self, log: range, *, piece_bytes: int = 100, topic_id: int = 1) -> None:
        self.log = log
        self.piece_bytes = piece_bytes
        self.fetched: list[tuple[int, int]] = []
        self.failure: Exception | None = None
        self.metadata = SimpleNamespace(
            topic=lambda name: SimpleNamespace(topic_id=UUID(int=topic_id))
        )

    async def fetch(
        self, tp: TopicPartition, offset: int, max_bytes: int, *, stop: int, **_: Any
    ) -> Records:
        if self.failure is not None:
            raise self.failure
        if not self.log.start <= offset <= self.log.stop:
            raise OffsetOutOfRange("not in the log")
        self.fetched.append((tp.partition, offset))
        end = min(offset + PIECE, stop, self.log.stop)
        return Records(tp.partition, offset, end, self.piece_bytes)

    async def offsets(self, tp: TopicPartition, end: str, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(offset=self.log.start if end == "earliest" else self.log.stop)


@pytest.fixture(scope="module")
def thread() -> LoopThread:
    return LoopThread()


@pytest.fixture
def cluster(thread: LoopThread, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(range(100))
    client = SimpleNamespace(cluster=made, thread=thread, submit=thread.submit)
    monkeypatch.setattr(range_reader, "worker_client", lambda kafka: client)
    return made


def read(*ranges: OffsetRange, **options: str) -> Iterator[list[int]]:
    projection: Any = SimpleNamespace(columns=("offset",), batch=lambda batch: batch)
    parsed = ReadOptions.parse(
        {"kafka.bootstrap.servers": "host:9092", "subscribe": "t", **options}, streaming=False
    )
    return range_reader.read_ranges(ranges, parsed, projection)  # type: ignore[return-value]


def rows(*ranges: OffsetRange, **options: str) -> list[int]:
    return [row for batch in read(*ranges, **options) for row in batch]


def part(partition: int, start: int, stop: int) -> OffsetRange:
    return OffsetRange("t", partition, start, stop, UUID(int=1), 0)


def test_ranges_come_in_their_order_whatever_is_fetched_first(cluster: Cluster) -> None:
    """A repeated task must return the same rows in the same order."""
    ranges = [part(n, n, 95) for n in range(9)]

    assert rows(*ranges) == [n * 1000 + offset for n in range(9) for offset in range(n, 95)]


def test_a_partition_far_behind_does_not_fetch_without_bounds(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that Spark does not take yet must not accumulate in the worker."""
    cluster.piece_bytes = range_reader.FETCH_BYTES
    batches = read(*(part(n, 0, 100) for n in range(30)))
    taken = [next(batches) for _ in range(2)]

    for _ in range(50):  # the loop thread does all it may
        cluster_busy = len(cluster.fetched)
        _settle(cluster)
        if len(cluster.fetched) == cluster_busy:
            break
    fetched_bytes = len(cluster.fetched) * cluster.piece_bytes
    batches.close()  # type: ignore[attr-defined]

    assert len(taken) == 2
    assert (
        fetched_bytes <= range_reader.AHEAD_BYTES + (range_reader.WINDOW + 2) * cluster.piece_bytes
    )


def _settle(cluster: Cluster) -> None:
    """Let the loop thread run all ready callbacks."""
    range_reader.worker_client({}).thread.run(_nothing())


async def _nothing() -> None:
    return None


def test_a_reader_that_is_closed_early_ends_its_fetches(cluster: Cluster) -> None:
    """LIMIT takes one batch; the worker continues with other tasks."""
    batches = read(part(0, 0, 100))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    _settle(cluster)
    fetched = len(cluster.fetched)
    _settle(cluster)

    assert len(cluster.fetched) == fetched


def test_an_error_of_a_fetch_is_raised_where_the_rows_are_taken(cluster: Cluster) -> None:
    """The task must not hang."""
    cluster.failure = RequestTimeout("nobody there: see security_protocol")

    with pytest.raises(RequestTimeout, match=r"nobody there: see kafka\.security\.protocol"):
        rows(part(0, 0, 100), part(1, 0, 100))


def test_a_corrupt_batch_ends_the_task_behind_the_rows_before_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns end before the corrupt batch, so another call is needed to raise its error."""

    def columns(self: Records, names: tuple[str, ...], max_bytes: int) -> Columns:
        if self.offset == 0:
            self.offset = 5
            return Columns([0, 1, 2, 3, 4])
        raise CorruptRecord("checksum")

    monkeypatch.setattr(Records, "columns", columns)
    batches = read(part(0, 0, 10))

    assert next(batches) == [0, 1, 2, 3, 4]
    with pytest.raises(CorruptRecord):
        next(batches)


def test_a_start_that_aged_out_since_it_was_planned(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Either an error, or the records that are left."""
    cluster.log = range(40, 100)

    with pytest.raises(DataLoss, match="START_OFFSET_RESET"):
        rows(part(0, 5, 60))
    with caplog.at_level(logging.WARNING):
        assert rows(part(0, 5, 60), failOnDataLoss="false") == list(range(40, 60))
        assert rows(part(0, 5, 30), failOnDataLoss="false") == []
    assert "START_OFFSET_RESET" in caplog.text


def test_a_leader_that_does_not_know_the_offset_yet_is_asked_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: it was reported as a loss, and the query ended or skipped the rest."""
    fetch, refusals = cluster.fetch, [OffsetOutOfRange("not yet")] * 2

    async def late(tp: TopicPartition, offset: int, *given: Any, **named: Any) -> Records:
        if offset == PIECE and refusals:
            raise refusals.pop()
        return await fetch(tp, offset, *given, **named)

    monkeypatch.setattr(cluster, "fetch", late)
    monkeypatch.setattr(range_reader, "AGAIN", 0.001)

    assert rows(part(0, 0, 30), failOnDataLoss="false") == list(range(30))
    assert not caplog.records

    refusals += [OffsetOutOfRange("never")] * 1_000_000
    with pytest.raises(DataLoss, match="COULD_NOT_READ_OFFSET_RANGE"):
        rows(part(0, 0, 30), **{"kafkaConsumer.pollTimeoutMs": "50"})


async def test_a_task_that_takes_its_time_is_no_loss(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: an empty fetch after minutes of processing ended the range early."""
    clock = 1000.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock)
    monkeypatch.setattr(range_reader, "AGAIN", 0.0)
    options = ReadOptions.parse(
        {"kafka.bootstrap.servers": "host:9092", "subscribe": "t", "failOnDataLoss": "false"},
        streaming=False,
    )
    fetching = range_reader._Fetching(cast("Any", cluster), options)
    offsets: list[int] = []
    cluster.log = range(PIECE)  # a new leader does not know the rest yet
    async for records in fetching.batches(part(0, 0, 20)):
        offsets.append(records.next_offset)
        clock += 600.0
        monkeypatch.setattr(cluster, "fetch", behind_once(cluster))

    assert offsets == [10, 20]
    assert not caplog.records


def behind_once(cluster: Cluster) -> Any:
    """Make the first fetch return nothing."""
    fetch = Cluster.fetch

    async def behind(*given: Any, **named: Any) -> Records:
        found = await fetch(cluster, *given, **named)
        cluster.log = range(100)
        return found

    return behind


def test_a_log_that_became_shorter_since_it_was_planned(cluster: Cluster) -> None:
    """The start of the range is now beyond the end of the log."""
    cluster.log = range(20)

    with pytest.raises(DataLoss, match="PARTITION_OFFSET_CHANGED"):
        rows(part(0, 50, 60))
    assert rows(part(0, 50, 60), failOnDataLoss="false") == []


def test_a_log_that_ends_before_the_range_is_not_waited_for_forever(cluster: Cluster) -> None:
    """kafkaConsumer.pollTimeoutMs limits the time without new records."""
    cluster.log = range(15)
    patience = {"kafkaConsumer.pollTimeoutMs": "50"}

    with pytest.raises(DataLoss, match="COULD_NOT_READ_OFFSET_RANGE"):
        rows(part(0, 0, 30), **patience)
    assert rows(part(0, 0, 30), failOnDataLoss="false", **patience) == list(range(15))


def test_a_topic_made_again_since_it_was_planned(cluster: Cluster) -> None:
    """Its records are others, though the offsets fit; a later batch reads all of them."""
    cluster.metadata.topic = lambda name: SimpleNamespace(topic_id=UUID(int=2))

    with pytest.raises(DataLoss, match="TOPIC_RECREATED"):
        rows(part(0, 0, 10))
    assert rows(part(0, 0, 10), failOnDataLoss="false") == []


def test_what_was_compressed_well_does_not_become_one_batch(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a fetch of a megabyte became a batch of a gigabyte."""
    asked: list[int] = []

    def columns(self: Records, names: tuple[str, ...], max_bytes: int) -> Columns:
        asked.append(max_bytes)
        self.offset += 5
        self.exhausted = self.offset == self.next_offset
        return Columns(list(range(self.offset - 5, self.offset)))

    monkeypatch.setattr(Records, "columns", columns)

    assert list(read(part(0, 0, 10))) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert asked == [range_reader.COLUMNS_BYTES] * 2
