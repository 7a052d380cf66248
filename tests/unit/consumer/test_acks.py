"""The low watermark of records that are finished in any order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from aiokq.consumer.acks import Acks
from aiokq.consumer.batch import RecordBatch
from aiokq.consumer.handover import Handover
from aiokq.core.types import TopicPartition

TP = TopicPartition("t", 0)


@dataclass
class Handed:
    offset: int
    topic: str = "t"
    partition: int = 0


def batch_of(base: int, end: int) -> RecordBatch[Any]:
    return RecordBatch[Any](
        "t", 0, base, size=1, handover=Handover(base, end), cursor=None, records=3,
        deserializer=None,
    )  # type: ignore[arg-type]  # fmt: skip


@pytest.fixture
def changes() -> list[None]:
    return []


@pytest.fixture
def acks(changes: list[None]) -> Any:
    return Acks(lambda: changes.append(None))


def test_the_first_record_in_work_holds_the_rest_back(acks: Any, changes: list[None]) -> None:
    """Committing past it would lose it in a crash."""
    records = [Handed(offset) for offset in (3, 5, 9)]
    for record in records:
        acks.handed(record)
    acks.done(records[1])
    assert acks.first_open(TP) == 3
    acks.done(records[0])
    assert acks.first_open(TP) == 9
    acks.done(records[2])
    assert acks.first_open(TP) is None
    assert len(changes) == 3


def test_twice_or_too_late_is_harmless(acks: Any, changes: list[None]) -> None:
    """A worker may end after its partition went to another member."""
    record = Handed(1)
    acks.handed(record)
    acks.done(record)
    acks.done(record)
    acks.done(Handed(7, partition=3))
    assert len(changes) == 1


def test_reading_that_goes_back_begins_anew(acks: Any) -> None:
    """What was open comes again, and must not count as later than what comes before it."""
    for offset in (5, 6, 2):
        acks.handed(Handed(offset))
    assert acks.first_open(TP) == 2
    acks.done(Handed(2))
    assert acks.first_open(TP) is None


def test_a_partition_that_goes_is_forgotten(acks: Any, changes: list[None]) -> None:
    """Whoever waits for its records has nothing to wait for."""
    acks.handed(Handed(5))
    acks.forget(TP)
    acks.forget(TP)
    assert acks.first_open(TP) is None
    assert len(changes) == 1


def test_the_first_record_of_a_batch_is_not_the_batch(acks: Any) -> None:
    """Its offset is that of the batch, and what is behind it was committed."""
    batch = batch_of(3, 6)
    acks.handed_batch(batch)
    acks.done(Handed(3))
    assert acks.first_open(TP) == 3
    acks.done(batch)
    assert acks.first_open(TP) is None


def test_a_record_of_a_batch_in_work_is_told_to_be_acknowledged_with_it(
    acks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Each record was acknowledged, nothing was committed, and nothing said why."""
    acks.handed_batch(batch_of(3, 6))
    for offset in (3, 4, 5):
        acks.done(Handed(offset))
    acks.done(Handed(6))
    assert acks.first_open(TP) == 3
    [line] = caplog.messages
    assert "ack(batch) has" in line
    assert "offset=3" in line
