"""Ranges of a stream's batches, and the losses that are reported."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest

from aiokq import TopicPartition
from aiokq.errors import ConfigError
from aiokq.spark.data_loss import DataLoss, Losses
from aiokq.spark.offset_reader import Ends, Partitions
from aiokq.spark.offsets import PartitionOffsets, SourceOffset
from aiokq.spark.stream_ranges import beginning, stream_ranges

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = UUID(int=1), UUID(int=2)


def ranges(
    begun: PartitionOffsets,
    until: PartitionOffsets,
    *,
    starts: PartitionOffsets | None = None,
    ends: PartitionOffsets | None = None,
    ids: tuple[UUID | None, UUID | None, UUID | None] = (OLD, OLD, OLD),
    fail: bool = True,
) -> list[tuple[int, int, int]]:
    """Return the ranges; by default the log has all records."""
    there = dict.fromkeys(until, 0) if starts is None else starts
    before, after, now = ({"t": id_} if id_ else {} for id_ in ids)
    found = stream_ranges(
        SourceOffset(begun, topic_ids=before),
        SourceOffset(until, topic_ids=after),
        Partitions(dict.fromkeys(there, 0), now),
        Ends(there, dict(until) if ends is None else ends),
        Losses(fail),
    )
    return [(r.partition, r.start, r.stop) for r in found]


def test_what_lies_between_is_read() -> None:
    """Partitions that did not move are left out."""
    assert ranges({T0: 5, T1: 7}, {T0: 9, T1: 7}) == [(0, 5, 9)]


def test_a_partition_that_was_added_is_read_from_its_beginning() -> None:
    """Records written before the query noticed the partition belong to the query."""
    assert ranges({T0: 5}, {T0: 5, T1: 3}) == [(1, 0, 3)]


def test_a_query_begins_at_the_ends_of_its_logs_at_the_latest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An offset beyond the end would stay in the checkpoint, and always fail the first batch."""
    ends = Ends({T0: 0, T1: 0}, {T0: 5, T1: 5})
    assert beginning({T0: 5, T1: 2}, ends, Losses(True)) == {T0: 5, T1: 2}

    with pytest.raises(ConfigError, match=r"option startingOffsets: t-0 ends at 5, before 6"):
        beginning({T0: 6, T1: 2}, ends, Losses(True))
    with caplog.at_level(logging.WARNING):
        assert beginning({T0: 6, T1: 2}, ends, Losses(False)) == {T0: 5, T1: 2}
    assert "t-0" in caplog.text


LOST = [
    pytest.param(
        {"begun": {T0: 5}, "until": {T0: 9}, "starts": {T0: 7}},
        "START_OFFSET_RESET",
        [(0, 7, 9)],
        id="aged out",
    ),
    pytest.param(
        {"begun": {T0: 5}, "until": {T0: 9}, "starts": {T0: 20}, "ends": {T0: 30}},
        "START_OFFSET_RESET",
        [],
        id="all of it aged out",
    ),
    pytest.param(
        {"begun": {T0: 5}, "until": {T0: 2}},
        "PARTITION_OFFSET_CHANGED",
        [],
        id="log became shorter",
    ),
    pytest.param(
        {"begun": {T0: 5}, "until": {T0: 9}, "ends": {T0: 7}},
        "COULD_NOT_READ_OFFSET_RANGE",
        [(0, 5, 7)],
        id="end cut off",
    ),
    pytest.param(
        {"begun": {T0: 5, T1: 5}, "until": {T0: 9}},
        "PARTITIONS_DELETED",
        [(0, 5, 9)],
        id="partition deleted",
    ),
    pytest.param(
        {"begun": {T0: 5}, "until": {T0: 9}, "starts": {}},
        "PARTITIONS_DELETED",
        [],
        id="topic deleted since the batch was planned",
    ),
    pytest.param(
        {"begun": {}, "until": {T0: 9}, "starts": {}},
        "INITIAL_OFFSET_NOT_FOUND",
        [],
        id="added and deleted",
    ),
    pytest.param(
        {"begun": {T0: 5}, "until": {T0: 5, T1: 9}, "starts": {T0: 0, T1: 4}},
        "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
        [(1, 4, 9)],
        id="added late",
    ),
    pytest.param(
        {"begun": {T0: 5}, "until": {T0: 3}, "ids": (OLD, NEW, NEW)},
        "TOPIC_RECREATED",
        [(0, 0, 3)],
        id="made again",
    ),
    pytest.param(
        {"begun": {T0: 5}, "until": {T0: 9}, "ids": (OLD, NEW, NEW)},
        "TOPIC_RECREATED",
        [(0, 0, 9)],
        id="made again and grown further than before",
    ),
    pytest.param(
        {"begun": {T0: 5}, "until": {T0: 9}, "ends": {T0: 2}, "ids": (OLD, OLD, NEW)},
        "TOPIC_RECREATED",
        [],
        id="made again since the batch was planned",
    ),
]


@pytest.mark.parametrize(("case", "reason", "left"), LOST)
def test_a_loss_is_an_error_or_a_warning(
    case: dict[str, object],
    reason: str,
    left: list[tuple[int, int, int]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With failOnDataLoss the query ends, without it the query reads what is left."""
    with pytest.raises(DataLoss, match=reason):
        ranges(**case)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        assert ranges(**case, fail=False) == left  # type: ignore[arg-type]
    assert reason in caplog.text


def test_what_took_a_topics_place_is_read_by_the_batch_that_ends_in_it() -> None:
    """The previous batch, whose end has the old id, must not read it as well."""
    again = [
        ranges({T0: 5}, {T0: 9}, ends={T0: 12}, ids=(OLD, OLD, NEW), fail=False),
        ranges({T0: 9}, {T0: 12}, ids=(OLD, NEW, NEW), fail=False),
        ranges({T0: 12}, {T0: 14}, ids=(NEW, NEW, NEW), fail=False),
    ]

    assert again == [[], [(0, 0, 12)], [(0, 12, 14)]]


def test_topics_without_ids_are_compared_by_offsets_alone() -> None:
    """Checkpoints of the JVM connector and old brokers have no topic ids."""
    assert ranges({T0: 5}, {T0: 9}, ids=(None, OLD, OLD)) == [(0, 5, 9)]
    assert ranges({T0: 5}, {T0: 9}, ids=(None, None, None)) == [(0, 5, 9)]
