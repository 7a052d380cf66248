"""LatestOffsets: how often the cluster is asked, and how long an outage is tolerated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any
from uuid import UUID

import pytest

from aiokq import TopicPartition
from aiokq.errors import (
    BootstrapFailed,
    ConnectionLost,
    KafkaError,
    LeaderNotAvailable,
    TopicAuthorization,
    UnknownTopicOrPartition,
)
from aiokq.spark import latest_offsets
from aiokq.spark.latest_offsets import LatestOffsets, OffsetSnapshot
from aiokq.spark.micro_batches import BatchLimit, MicroBatchPlanner
from aiokq.spark.offset_reader import Ends, Partitions
from aiokq.spark.offsets import PartitionOffsets, SourceOffset
from aiokq.spark.options import ReadOptions

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID = UUID(int=1)


def options(**given: str) -> ReadOptions:
    return ReadOptions.parse(
        {"kafka.bootstrap.servers": "host:9092", "subscribe": "t", **given}, streaming=True
    )


class Client:
    """Simulated client whose answers the test chooses."""

    def __init__(self, answer: Callable[[], OffsetSnapshot]) -> None:
        self.answer = answer
        self.asked = 0
        self.cluster: Any = self

    def admin(self) -> None:
        return None

    def run(self, coroutine: Coroutine[Any, Any, OffsetSnapshot]) -> OffsetSnapshot:
        coroutine.close()
        self.asked += 1
        return self.answer()


class TimedLatestOffsets(LatestOffsets):
    def __init__(self, client: Client, **given: str) -> None:
        self.time = 1000.0
        self._client = client
        super().__init__(options(**given), lambda: self.time, self.wait)

    def wait(self, seconds: float) -> None:
        self.time += seconds

    @property
    def client(self) -> Any:
        return self._client


EMPTY = OffsetSnapshot(Partitions({T0: 0}), {T0: 0}, {})


def test_ends_are_asked_for_ten_times_a_second_while_nothing_comes() -> None:
    """Spark itself asks ninety times a second."""
    client = Client(lambda: EMPTY)
    asked = TimedLatestOffsets(client)
    for _ in range(900):
        asked.latest()
        asked.time += 1 / 90

    assert 100 <= client.asked <= 160


def test_an_outage_is_waited_for_until_a_deadline() -> None:
    """The deadline is fetchOffset.numRetries times the client's timeout; then the query fails."""

    def away() -> OffsetSnapshot:
        raise ConnectionLost("nobody there", may_have_been_written=False)

    asked = TimedLatestOffsets(
        Client(away), **{"fetchOffset.numRetries": "2", "kafka.default.api.timeout.ms": "4000"}
    )
    for _ in range(10):
        assert asked.latest() is None
        asked.time += 0.9
    asked.time += 2

    with pytest.raises(ConnectionLost):
        asked.latest()


def test_an_outage_that_ends_in_time_is_forgotten() -> None:
    """The next outage has the whole deadline again."""
    answers: list[OffsetSnapshot | KafkaError] = []

    def answer() -> OffsetSnapshot:
        value = answers.pop(0)
        if isinstance(value, KafkaError):
            raise value
        return value

    lost = ConnectionLost("nobody there", may_have_been_written=False)
    asked = TimedLatestOffsets(Client(answer))
    for _ in range(3):
        answers += [lost, EMPTY]
        assert asked.latest() is None
        asked.time += 150
        assert asked.latest() == EMPTY
        asked.time += 2


class Logs:
    """Simulated offset reader, whose logs a test may change."""

    def __init__(self, **logs: range) -> None:
        self.logs = {TopicPartition("t", int(name[1:])): log for name, log in logs.items()}
        self.refusals: list[KafkaError] = []
        self.timeouts: list[float | None] = []

    def __call__(self, cluster: Any, options: ReadOptions, timeout: float | None = None) -> Logs:
        self.timeouts.append(timeout)
        return self

    async def partitions(self, *, missing_ok: bool = False) -> Partitions:
        return Partitions(dict.fromkeys(self.logs, 0), {"t": ID})

    async def log_starts(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        if self.refusals:
            raise self.refusals.pop()
        return {tp: self.logs[tp].start for tp in partitions}

    async def ends(self, partitions: Iterable[TopicPartition]) -> Ends:
        tps = list(partitions)
        return Ends(await self.log_starts(tps), await self.log_ends(tps))

    async def log_ends(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        return {tp: self.logs[tp].stop for tp in partitions}


def asking(logs: Logs, monkeypatch: pytest.MonkeyPatch, **given: str) -> TimedLatestOffsets:
    """Return LatestOffsets that ask these logs."""
    client = Client(lambda: EMPTY)
    monkeypatch.setattr(client, "run", asyncio.run)
    monkeypatch.setattr(latest_offsets, "OffsetReader", logs)
    return TimedLatestOffsets(client, **given)


def test_a_partition_that_was_added_while_the_query_was_down_keeps_to_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: its records came in one batch, because its log start was not looked up."""
    asked = asking(Logs(p0=range(20), p1=range(100, 1100)), monkeypatch)
    progress = MicroBatchPlanner(options(maxOffsetsPerTrigger="100"), lambda: asked.time, asked)
    start = SourceOffset({T0: 10}, topic_ids={"t": ID}).to_map()

    end = SourceOffset.parse(progress.next_end(start, BatchLimit(max_rows=100)))

    assert end.positions == {T0: 11, T1: 199}


def test_where_an_added_partition_begins_is_asked_until_it_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: a new partition has no leader at first, and its start was not looked up again."""
    logs = Logs(p0=range(20))
    asked = asking(logs, monkeypatch)
    asked.latest()
    logs.logs[T1] = range(7, 9)
    logs.refusals.append(LeaderNotAvailable("not yet"))
    asked.time += 2
    assert asked.latest() is None

    latest = asked.latest()

    assert latest is not None
    assert latest.starts == {T0: 0, T1: 7}
    del logs.logs[T1]
    asked.time += 2
    latest = asked.latest()
    assert latest is not None
    assert latest.starts == {T0: 0}


def test_available_now_waits_for_its_brokers_as_long_as_a_client_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: the query asks once at its start, and a moment without a leader ended the run."""
    logs = Logs(p0=range(20))
    asked = asking(logs, monkeypatch)
    MicroBatchPlanner(options(), lambda: asked.time, asked).freeze()
    asked.time += 2
    asked.latest()

    assert logs.timeouts == [None, latest_offsets.ASK_TIMEOUT]


def test_an_outage_while_a_batch_is_planned_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of the batch is logged by then, and an error of the planner ends the query."""
    logs = Logs(p0=range(20))
    lost = ConnectionLost("nobody there", may_have_been_written=False)
    logs.refusals += [lost, UnknownTopicOrPartition("deleted just now"), lost]
    asked = asking(logs, monkeypatch)
    progress = MicroBatchPlanner(options(), lambda: asked.time, asked)
    start, end = ({"t": {"0": at}} for at in (5, 9))

    ranges = progress.ranges(start, end)

    assert [(r.partition, r.start, r.stop) for r in ranges] == [(0, 5, 9)]
    assert not logs.refusals
    logs.refusals += [lost] * 10_000
    with pytest.raises(ConnectionLost):
        progress.ranges(start, end)
    assert 180 < asked.time - 1000 < 200


def test_a_group_that_cannot_be_told_ends_no_query(caplog: pytest.LogCaptureFixture) -> None:
    """The checkpoint has the progress; Spark would end the query if commit() raised."""

    class Away(TimedLatestOffsets):
        @property
        def client(self) -> Any:
            raise BootstrapFailed([("host:9092", "refused")])

    progress = MicroBatchPlanner(
        options(commitGroup="g"), latest_offsets=Away(Client(lambda: EMPTY))
    )

    progress.commit({"t": {"0": 9}})

    assert "offsets were not committed group_id=g" in caplog.text


def test_a_refusal_ends_the_query_at_once() -> None:
    """Waiting does not give permission."""

    def refused() -> OffsetSnapshot:
        raise TopicAuthorization("not yours")

    with pytest.raises(TopicAuthorization):
        TimedLatestOffsets(Client(refused)).latest()


def test_where_a_query_begins_is_asked_for_once() -> None:
    """Regression: Spark asks twice, and the second "latest" was after the end of the batch."""
    ends = iter((7, 9))

    def answer() -> Any:
        positions = {T0: next(ends)}
        return SourceOffset(positions, positions, {"t": ID})

    progress = MicroBatchPlanner(options(), latest_offsets=TimedLatestOffsets(Client(answer)))

    assert (
        progress.initial()
        == progress.initial()
        == SourceOffset({T0: 7}, {T0: 7}, {"t": ID}).to_map()
    )
