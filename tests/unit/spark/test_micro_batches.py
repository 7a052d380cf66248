"""MicroBatchPlanner: which offsets a streaming query may read next, and which it logs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from aiokq import TopicPartition
from aiokq.spark.data_loss import DataLoss
from aiokq.spark.latest_offsets import LatestOffsets, OffsetSnapshot
from aiokq.spark.micro_batches import BatchLimit, MicroBatchPlanner
from aiokq.spark.offset_reader import Ends, Partitions
from aiokq.spark.offsets import OffsetMap, PartitionOffsets, SourceOffset
from aiokq.spark.options import ReadOptions

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID = UUID(int=1)
ALL = BatchLimit(everything=True)


def options(**given: str) -> ReadOptions:
    return ReadOptions.parse(
        {"kafka.bootstrap.servers": "host:9092", "subscribe": "t", **given}, streaming=True
    )


class Cluster(LatestOffsets):
    """Simulated cluster, in which the test sets the ends of the logs."""

    def __init__(self) -> None:
        self.ends: PartitionOffsets = {T0: 0}
        self.starts: PartitionOffsets = {}
        self.id = ID
        self.away = False

    def ask(self, timeout: float | None = None) -> OffsetSnapshot:
        partitions = Partitions(dict.fromkeys(self.ends, 0), {"t": self.id})
        return OffsetSnapshot(partitions, dict(self.ends), dict(self.starts))

    def latest(self) -> OffsetSnapshot | None:
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
    """A query that advances batch by batch, as Spark would run it."""

    def __init__(self, initial: PartitionOffsets | None = None, **given: str) -> None:
        self.time = 1000.0
        self.cluster = Cluster()
        self.progress = MicroBatchPlanner(options(**given), lambda: self.time, self.cluster)
        first = {T0: 0} if initial is None else initial
        self.offset = SourceOffset(first, first, {"t": ID}).to_map()

    def next(self, wanted: BatchLimit = ALL) -> PartitionOffsets | None:
        """Return the end of the next batch; None if there is none."""
        end = self.progress.next_end(self.offset, wanted)
        if end == self.offset:
            return None
        self.offset = end
        return SourceOffset.parse(end).positions

    def read(self, start: OffsetMap, end: OffsetMap) -> list[tuple[int, int, int]]:
        """Return the ranges of a batch between two offsets."""
        return [(r.partition, r.start, r.stop) for r in self.progress.ranges(start, end)]


BEGUN = "__aiokq_initial__.t"


def test_where_the_query_began_is_written_down_until_something_was_read() -> None:
    """Spark runs the first batch even if it is empty, and logs its end."""
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
    """Any other text would be a batch, even one without the embedded start of the query."""
    query = Query({T0: 7})
    query.cluster.ends = {T0: 9}
    query.next()

    assert query.next() is None
    assert query.offset[BEGUN] == {"0": 7}


def test_the_first_batch_is_read_from_where_the_query_began() -> None:
    """After a crash in it Spark passes a new "latest" as its start."""
    query = Query({T0: 7})
    query.cluster.ends = {T0: 9}
    query.next()
    now = SourceOffset({T0: 20}, {T0: 20}, {"t": ID}).to_map()

    assert query.read(now, query.offset) == [(0, 7, 9)]


@pytest.mark.parametrize("starting", ["latest", '{"t":{"0":-1}}'])
def test_a_first_batch_of_the_jvm_connector_from_the_end_is_not_passed_over(starting: str) -> None:
    """Only that connector knows the start: the records of the batch would be skipped silently."""
    query = Query({T0: 9}, startingOffsets=starting)
    planned = {"t": {"0": 9}}

    with pytest.raises(DataLoss, match="INITIAL_OFFSET_UNKNOWN"):
        query.read(query.offset, planned)

    tolerant = Query({T0: 9}, startingOffsets=starting, failOnDataLoss="false")
    assert tolerant.read(tolerant.offset, planned) == []


def test_a_first_batch_of_the_jvm_connector_from_the_beginning_is_read() -> None:
    """The offset of "earliest" can be looked up again."""
    query = Query({T0: 0}, startingOffsets="earliest")
    query.cluster.ends = {T0: 12}

    assert query.read(query.offset, {"t": {"0": 9}}) == [(0, 0, 9)]


def test_a_first_batch_before_there_was_a_topic_reads_nothing_again() -> None:
    """Regression: no topic matched the pattern, and after a crash the start seemed unknown."""
    query = Query({T0: 7}, startingOffsets="latest")
    query.cluster.ends = {T0: 9}

    assert query.read(query.offset, {}) == []
    assert query.read({}, SourceOffset({T0: 9}, topic_ids={"t": ID}).to_map()) == [(0, 0, 9)]


def test_a_first_batch_after_a_start_without_topics_begins_with_the_topic() -> None:
    """Regression: after a crash in it the end did not contain the start, which is DataLoss."""
    query = Query({}, startingOffsets="latest")
    query.cluster.ends = {T0: 9}
    assert query.next() == {T0: 9}
    now = SourceOffset({T0: 20}, {T0: 20}, {"t": ID}).to_map()

    assert query.read(now, query.offset) == [(0, 0, 9)]


def test_an_offset_that_is_run_again_as_a_batch_reads_nothing() -> None:
    """Spark runs a batch if the texts differ, even if only the embedded start does."""
    query = Query({T0: 7})
    query.cluster.ends = {T0: 9}
    query.next()

    assert query.read(dict(reversed(query.offset.items())), query.offset) == []


def test_an_offset_of_the_jvm_connector_is_left_alone_until_there_is_more() -> None:
    """It has no topic ids; adding them would cause a batch without rows."""
    query = Query()
    query.offset = {"t": {"0": 9}}
    query.cluster.ends = {T0: 9}

    assert query.next() is None
    query.cluster.ends = {T0: 10}
    assert query.next() == {T0: 10}
    assert "__aiokq_topic_id__.t" in query.offset


def started(**given: str) -> Query:
    """Return a query after its first batch."""
    query = Query(**given)
    query.next()
    return query


def test_a_limit_is_kept_by_each_batch_until_all_is_read() -> None:
    """maxOffsetsPerTrigger."""
    query = started(maxOffsetsPerTrigger="10")
    query.cluster.ends = {T0: 25}

    assert [query.next(BatchLimit(max_rows=10)) for _ in range(4)] == [
        {T0: 10},
        {T0: 20},
        {T0: 25},
        None,
    ]


def test_everything_is_everything_whatever_the_options_say() -> None:
    """Trigger.Once asks for everything."""
    query = started(maxOffsetsPerTrigger="10", minOffsetsPerTrigger="5")
    query.cluster.ends = {T0: 25}

    assert query.next(ALL) == {T0: 25}


def test_too_few_records_wait_for_more_but_not_forever() -> None:
    """Spark's limits have no delay, and no combination of minimum and maximum."""
    query = started(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="7", maxTriggerDelay="60s")
    limit = BatchLimit(max_rows=7)
    query.cluster.ends = {T0: 1}
    assert query.next(limit) == {T0: 1}  # the first batch does not wait
    query.cluster.ends = {T0: 5}
    assert query.next(limit) is None
    query.cluster.ends = {T0: 10}
    assert query.next(limit) == {T0: 8}
    assert query.next(limit) is None
    query.time += 60

    assert query.next(limit) == {T0: 10}


def test_a_topic_made_again_does_not_hide_what_others_have() -> None:
    """Regression: a negative backlog was subtracted from others, and a batch waited 15 minutes."""
    query = Query({T0: 0, T1: 0}, minOffsetsPerTrigger="5")
    query.cluster.ends = {T0: 9, T1: 0}
    query.next(BatchLimit())
    query.cluster.ends, query.cluster.id = {T0: 0, T1: 5}, UUID(int=2)

    assert query.next(BatchLimit()) == {T0: 0, T1: 5}


def test_available_now_reads_to_where_the_logs_ended_and_no_further() -> None:
    """Later records and partitions are not read, and the last few records are not left."""
    query = Query(maxOffsetsPerTrigger="10", minOffsetsPerTrigger="10")
    query.cluster.ends = {T0: 15}
    query.progress.freeze()
    query.cluster.ends = {T0: 99, T1: 5}

    assert [query.next(BatchLimit(max_rows=10)) for _ in range(3)] == [{T0: 10}, {T0: 15}, None]


def test_an_empty_partition_that_is_added_makes_no_batch() -> None:
    """The JVM connector runs a batch without rows."""
    query = started()
    query.cluster.ends, query.cluster.starts = {T0: 0, T1: 0}, {T1: 0}

    assert query.next() is None
    query.cluster.ends = {T0: 0, T1: 3}
    assert query.next() == {T0: 0, T1: 3}


def test_an_end_before_the_start_is_believed_only_when_it_lasts() -> None:
    """A new leader may know less for a moment; fetchOffset's retries last three seconds."""
    query = started()
    query.cluster.ends = {T0: 9}
    query.next()
    query.cluster.ends = {T0: 4}
    assert query.next() is None
    query.time += 3

    assert query.next() == {T0: 4}


def test_an_end_before_the_start_of_a_topic_made_again_is_believed_at_once() -> None:
    """Its topic id shows that it will not recover."""
    query = started()
    query.cluster.ends = {T0: 9}
    query.next()
    query.cluster.ends, query.cluster.id = {T0: 4}, UUID(int=2)

    assert query.next() == {T0: 4}


def test_a_topic_made_again_that_has_come_as_far_is_read() -> None:
    """Regression: its ends were logged under the old id, and nothing seemed to be left to read."""
    query = started(failOnDataLoss="false")
    query.cluster.ends = {T0: 9}
    query.next()
    before = query.offset
    assert query.next() is None

    query.cluster.id = UUID(int=2)

    assert query.next() == {T0: 9}
    assert query.read(before, query.offset) == [(0, 0, 9)]
    assert query.next() is None


def test_a_cluster_that_does_not_answer_makes_no_batch() -> None:
    """An error would end the query, because Spark does not retry."""
    query = started()
    query.cluster.ends, query.cluster.away = {T0: 9}, True
    assert query.next() is None
    query.cluster.away = False

    assert query.next() == {T0: 9}


def test_the_ends_of_the_logs_are_reported() -> None:
    """For sources[].latestOffset in the query's progress."""
    query = started(maxOffsetsPerTrigger="10")
    query.cluster.ends = {T0: 25}
    query.next(BatchLimit(max_rows=10))

    assert query.progress.reported() == {"t": {"0": 25}}
