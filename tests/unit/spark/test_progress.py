"""Progress: what a streaming query may read next, and what it writes down."""

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
from aiokq.spark import watermarks
from aiokq.spark.data_loss import DataLoss
from aiokq.spark.lookup import Ends, Partitions
from aiokq.spark.offsets import OffsetMap, PartitionOffsets, SourceOffset
from aiokq.spark.options import ReadOptions
from aiokq.spark.progress import Progress, Wanted
from aiokq.spark.watermarks import Latest, Watermarks

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID = UUID(int=1)
ALL = Wanted(everything=True)


def options(**given: str) -> ReadOptions:
    return ReadOptions.parse(
        {"kafka.bootstrap.servers": "host:9092", "subscribe": "t", **given}, streaming=True
    )


class Cluster(Watermarks):
    """Logs whose ends a test sets, in place of the cluster."""

    def __init__(self) -> None:
        self.ends: PartitionOffsets = {T0: 0}
        self.starts: PartitionOffsets = {}
        self.id = ID
        self.away = False

    def ask(self, timeout: float | None = None) -> Latest:
        partitions = Partitions(dict.fromkeys(self.ends, 0), {"t": self.id})
        return Latest(partitions, dict(self.ends), dict(self.starts))

    def latest(self) -> Latest | None:
        return None if self.away else self.ask()

    @property
    def client(self) -> Any:
        return self

    cluster: Any = property(lambda self: self)

    def admin(self) -> None:
        return None

    def answer(self, question: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        question(self).close()
        return self.ask().partitions, Ends(dict.fromkeys(self.ends, 0), self.ends)


class Query:
    """A query that goes on batch by batch, as Spark would have it."""

    def __init__(self, initial: PartitionOffsets | None = None, **given: str) -> None:
        self.time = 1000.0
        self.cluster = Cluster()
        self.progress = Progress(options(**given), lambda: self.time, self.cluster)
        first = {T0: 0} if initial is None else initial
        self.offset = SourceOffset(first, first, {"t": ID}).to_map()

    def next(self, wanted: Wanted = ALL) -> PartitionOffsets | None:
        """The end of the next batch; None if there is none."""
        end = self.progress.next_end(self.offset, wanted)
        if end == self.offset:
            return None
        self.offset = end
        return SourceOffset.parse(end).positions

    def read(self, start: OffsetMap, end: OffsetMap) -> list[tuple[int, int, int]]:
        """What a batch between two offsets reads."""
        return [(r.partition, r.start, r.stop) for r in self.progress.ranges(start, end)]


BEGUN = "__aiokq_initial__.t"


def test_where_the_query_began_is_written_down_until_something_was_read() -> None:
    """Spark runs the first batch even if it is empty, and writes its end down."""
    query = Query({T0: 7})
    query.cluster.ends = {T0: 7}
    assert query.next() is None
    assert query.offset[BEGUN] == {"0": 7}
    query.cluster.ends = {T0: 9}
    query.next()
    assert query.offset[BEGUN] == {"0": 7}
    query.cluster.ends = {T0: 11}
    query.next()

    assert query.offset == SourceOffset({T0: 11}, None, {"t": ID}).to_map()


def test_nothing_new_gives_the_offset_back_as_it_was() -> None:
    """Any other text would be a batch: also without what is embedded in the first one."""
    query = Query({T0: 7})
    query.cluster.ends = {T0: 9}
    query.next()

    assert query.next() is None
    assert query.offset[BEGUN] == {"0": 7}


def test_the_first_batch_is_read_from_where_the_query_began() -> None:
    """After a crash in it Spark says that it starts where "latest" is by now."""
    query = Query({T0: 7})
    query.cluster.ends = {T0: 9}
    query.next()
    now = SourceOffset({T0: 20}, {T0: 20}, {"t": ID}).to_map()

    assert query.read(now, query.offset) == [(0, 7, 9)]


@pytest.mark.parametrize("starting", ["latest", '{"t":{"0":-1}}'])
def test_a_first_batch_of_the_jvm_connector_from_the_end_is_not_passed_over(starting: str) -> None:
    """Only it knows where it began: what it planned would be skipped, without a word."""
    query = Query({T0: 9}, startingOffsets=starting)
    planned = {"t": {"0": 9}}

    with pytest.raises(DataLoss, match="INITIAL_OFFSET_UNKNOWN"):
        query.read(query.offset, planned)

    tolerant = Query({T0: 9}, startingOffsets=starting, failOnDataLoss="false")
    assert tolerant.read(tolerant.offset, planned) == []


def test_a_first_batch_of_the_jvm_connector_from_the_beginning_is_read() -> None:
    """Where that is can be found out again."""
    query = Query({T0: 0}, startingOffsets="earliest")
    query.cluster.ends = {T0: 12}

    assert query.read(query.offset, {"t": {"0": 9}}) == [(0, 0, 9)]


def test_a_first_batch_before_there_was_a_topic_reads_nothing_again() -> None:
    """A pattern that nothing matched: after a crash in it the beginning seemed to be unknown."""
    query = Query({T0: 7}, startingOffsets="latest")
    query.cluster.ends = {T0: 9}

    assert query.read(query.offset, {}) == []
    assert query.read({}, SourceOffset({T0: 9}, topic_ids={"t": ID}).to_map()) == [(0, 0, 9)]


def test_an_offset_that_is_run_again_as_a_batch_reads_nothing() -> None:
    """Where the texts differ Spark runs it, also when where the query began is still in it."""
    query = Query({T0: 7})
    query.cluster.ends = {T0: 9}
    query.next()

    assert query.read(dict(reversed(query.offset.items())), query.offset) == []


def test_an_offset_of_the_jvm_connector_is_left_alone_until_there_is_more() -> None:
    """It has no ids; adding them would be a batch without rows."""
    query = Query()
    query.offset = {"t": {"0": 9}}
    query.cluster.ends = {T0: 9}

    assert query.next() is None
    query.cluster.ends = {T0: 10}
    assert query.next() == {T0: 10}
    assert "__aiokq_topic_id__.t" in query.offset


def started(**given: str) -> Query:
    """A query past its first batch."""
    query = Query(**given)
    query.next()
    return query


def test_a_limit_is_kept_by_each_batch_until_all_is_read() -> None:
    """maxOffsetsPerTrigger."""
    query = started(maxOffsetsPerTrigger="10")
    query.cluster.ends = {T0: 25}

    assert [query.next(Wanted(max_rows=10)) for _ in range(4)] == [
        {T0: 10},
        {T0: 20},
        {T0: 25},
        None,
    ]


def test_everything_is_everything_whatever_the_options_say() -> None:
    """Trigger.Once asks for that."""
    query = started(maxOffsetsPerTrigger="10", minOffsetsPerTrigger="5")
    query.cluster.ends = {T0: 25}

    assert query.next(ALL) == {T0: 25}


def test_too_few_records_wait_for_more_but_not_forever() -> None:
    """Spark's limits have no delay, and no pair of a smallest and a largest: both are here."""
    query = started(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="7", maxTriggerDelay="60s")
    limit = Wanted(max_rows=7)
    query.cluster.ends = {T0: 1}
    assert query.next(limit) == {T0: 1}  # the first batch waits for nothing
    query.cluster.ends = {T0: 5}
    assert query.next(limit) is None
    query.cluster.ends = {T0: 10}
    assert query.next(limit) == {T0: 8}
    assert query.next(limit) is None
    query.time += 60

    assert query.next(limit) == {T0: 10}


def test_available_now_reads_to_where_the_logs_ended_and_no_further() -> None:
    """Neither what comes later, nor partitions added later; and the last few are not left."""
    query = Query(maxOffsetsPerTrigger="10", minOffsetsPerTrigger="10")
    query.cluster.ends = {T0: 15}
    query.progress.freeze()
    query.cluster.ends = {T0: 99, T1: 5}

    assert [query.next(Wanted(max_rows=10)) for _ in range(3)] == [{T0: 10}, {T0: 15}, None]


def test_an_empty_partition_that_is_added_makes_no_batch() -> None:
    """The JVM connector runs one without rows."""
    query = started()
    query.cluster.ends, query.cluster.starts = {T0: 0, T1: 0}, {T1: 0}

    assert query.next() is None
    query.cluster.ends = {T0: 0, T1: 3}
    assert query.next() == {T0: 0, T1: 3}


def test_an_end_before_the_start_is_believed_only_when_it_lasts() -> None:
    """A new leader may know less for a moment; three seconds are fetchOffset's retries."""
    query = started()
    query.cluster.ends = {T0: 9}
    query.next()
    query.cluster.ends = {T0: 4}
    assert query.next() is None
    query.time += 3

    assert query.next() == {T0: 4}


def test_an_end_before_the_start_of_a_topic_made_again_is_believed_at_once() -> None:
    """Its id says that this is not for a moment."""
    query = started()
    query.cluster.ends = {T0: 9}
    query.next()
    query.cluster.ends, query.cluster.id = {T0: 4}, UUID(int=2)

    assert query.next() == {T0: 4}


def test_a_cluster_that_does_not_answer_makes_no_batch() -> None:
    """An error would end the query: Spark does not try again."""
    query = started()
    query.cluster.ends, query.cluster.away = {T0: 9}, True
    assert query.next() is None
    query.cluster.away = False

    assert query.next() == {T0: 9}


def test_the_ends_of_the_logs_are_reported() -> None:
    """For sources[].latestOffset of the query's progress."""
    query = started(maxOffsetsPerTrigger="10")
    query.cluster.ends = {T0: 25}
    query.next(Wanted(max_rows=10))

    assert query.progress.reported() == {"t": {"0": 25}}


# -- watermarks


class Client:
    """A client whose requests give what a test wants."""

    def __init__(self, answer: Callable[[], Latest]) -> None:
        self.answer = answer
        self.asked = 0
        self.cluster: Any = self

    def admin(self) -> None:
        return None

    def run(self, coroutine: Coroutine[Any, Any, Latest]) -> Latest:
        coroutine.close()
        self.asked += 1
        return self.answer()


class TimedWatermarks(Watermarks):
    def __init__(self, client: Client, **given: str) -> None:
        self.time = 1000.0
        self._client = client
        super().__init__(options(**given), lambda: self.time, self.wait)

    def wait(self, seconds: float) -> None:
        self.time += seconds

    @property
    def client(self) -> Any:
        return self._client


EMPTY = Latest(Partitions({T0: 0}), {T0: 0}, {})


def test_ends_are_asked_for_ten_times_a_second_while_nothing_comes() -> None:
    """Spark asks ninety times a second."""
    client = Client(lambda: EMPTY)
    asked = TimedWatermarks(client)
    for _ in range(900):
        asked.latest()
        asked.time += 1 / 90

    assert 100 <= client.asked <= 160


def test_an_outage_is_waited_for_until_a_deadline() -> None:
    """fetchOffset.numRetries times the client's own limit; then the query ends, saying why."""

    def away() -> Latest:
        raise ConnectionLost("nobody there", may_have_been_written=False)

    asked = TimedWatermarks(
        Client(away), **{"fetchOffset.numRetries": "2", "kafka.default.api.timeout.ms": "4000"}
    )
    for _ in range(10):
        assert asked.latest() is None
        asked.time += 0.9
    asked.time += 2

    with pytest.raises(ConnectionLost):
        asked.latest()


def test_an_outage_that_ends_in_time_is_forgotten() -> None:
    """The next one has the whole deadline again."""
    answers: list[Latest | KafkaError] = []

    def answer() -> Latest:
        value = answers.pop(0)
        if isinstance(value, KafkaError):
            raise value
        return value

    lost = ConnectionLost("nobody there", may_have_been_written=False)
    asked = TimedWatermarks(Client(answer))
    for _ in range(3):
        answers += [lost, EMPTY]
        assert asked.latest() is None
        asked.time += 150
        assert asked.latest() == EMPTY
        asked.time += 2


class Logs:
    """What a lookup finds out: logs from one offset to another, which a test may change."""

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


def asking(logs: Logs, monkeypatch: pytest.MonkeyPatch, **given: str) -> TimedWatermarks:
    """Watermarks that ask these logs."""
    client = Client(lambda: EMPTY)
    monkeypatch.setattr(client, "run", asyncio.run)
    monkeypatch.setattr(watermarks, "Lookup", logs)
    return TimedWatermarks(client, **given)


def test_a_partition_that_was_added_while_the_query_was_down_keeps_to_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of it came in one batch: where it begins was asked of those only that came later."""
    asked = asking(Logs(p0=range(20), p1=range(100, 1100)), monkeypatch)
    progress = Progress(options(maxOffsetsPerTrigger="100"), lambda: asked.time, asked)
    start = SourceOffset({T0: 10}, topic_ids={"t": ID}).to_map()

    end = SourceOffset.parse(progress.next_end(start, Wanted(max_rows=100)))

    assert end.positions == {T0: 11, T1: 199}


def test_where_an_added_partition_begins_is_asked_until_it_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new partition has no leader for a moment: its beginning was never asked for again."""
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
    """It asks once, at its start: a moment without a leader ended the whole run."""
    logs = Logs(p0=range(20))
    asked = asking(logs, monkeypatch)
    Progress(options(), lambda: asked.time, asked).freeze()
    asked.time += 2
    asked.latest()

    assert logs.timeouts == [None, watermarks.ASK_TIMEOUT]


def test_an_outage_while_a_batch_is_planned_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its end is logged by then, and what the planner raises ends the query."""
    logs = Logs(p0=range(20))
    lost = ConnectionLost("nobody there", may_have_been_written=False)
    logs.refusals += [lost, UnknownTopicOrPartition("deleted just now"), lost]
    asked = asking(logs, monkeypatch)
    progress = Progress(options(), lambda: asked.time, asked)
    start, end = ({"t": {"0": at}} for at in (5, 9))

    ranges = progress.ranges(start, end)

    assert [(r.partition, r.start, r.stop) for r in ranges] == [(0, 5, 9)]
    assert not logs.refusals
    logs.refusals += [lost] * 10_000
    with pytest.raises(ConnectionLost):
        progress.ranges(start, end)
    assert 180 < asked.time - 1000 < 200


def test_a_group_that_cannot_be_told_ends_no_query(caplog: pytest.LogCaptureFixture) -> None:
    """What the query did is in its checkpoint; Spark ends it by whatever commit() raises."""

    class Away(TimedWatermarks):
        @property
        def client(self) -> Any:
            raise BootstrapFailed([("host:9092", "refused")])

    progress = Progress(options(commitGroup="g"), watermarks=Away(Client(lambda: EMPTY)))

    progress.commit({"t": {"0": 9}})

    assert "offsets were not committed group_id=g" in caplog.text


def test_a_refusal_ends_the_query_at_once() -> None:
    """Waiting does not give permission."""

    def refused() -> Latest:
        raise TopicAuthorization("not yours")

    with pytest.raises(TopicAuthorization):
        TimedWatermarks(Client(refused)).latest()


def test_where_a_query_begins_is_asked_for_once() -> None:
    """Spark asks twice at its start: the second "latest" was later than the end of the batch."""
    ends = iter((7, 9))

    def answer() -> Any:
        positions = {T0: next(ends)}
        return SourceOffset(positions, positions, {"t": ID})

    progress = Progress(options(), watermarks=TimedWatermarks(Client(answer)))

    assert (
        progress.initial()
        == progress.initial()
        == SourceOffset({T0: 7}, {T0: 7}, {"t": ID}).to_map()
    )
