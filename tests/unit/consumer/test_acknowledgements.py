"""Acknowledgements in any order, and the offset that may be committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from aiokq.consumer.acknowledgements import Acknowledgements
from aiokq.consumer.batch import RecordBatch
from aiokq.consumer.batch_progress import BatchProgress
from aiokq.core.types import TopicPartition

TP = TopicPartition("t", 0)


@dataclass
class Handed:
    offset: int
    topic: str = "t"
    partition: int = 0
    timestamp_ms: int = 1


def batch_of(base: int, end: int) -> RecordBatch[Any]:
    return RecordBatch[Any](
        "t", 0, base, size=1, progress=BatchProgress(base, end), cursor=None, count=None, records=3,
        deserializer=None,
    )  # type: ignore[arg-type]  # fmt: skip


@pytest.fixture
def changes() -> list[None]:
    return []


@pytest.fixture
def acks(changes: list[None]) -> Any:
    return Acknowledgements(lambda: changes.append(None))


def test_the_first_unacknowledged_record_limits_the_commit(acks: Any, changes: list[None]) -> None:
    """Committing beyond an unacknowledged record would lose the record in a crash."""
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


def test_a_repeated_or_late_acknowledgement_is_harmless(acks: Any, changes: list[None]) -> None:
    """A worker may finish after its partition was assigned to another member."""
    record = Handed(1)
    acks.handed(record)
    acks.done(record)
    acks.done(record)
    acks.done(Handed(7, partition=3))
    assert len(changes) == 1


def test_records_delivered_again_replace_later_ones(acks: Any) -> None:
    """Records delivered again must not count as later than earlier offsets."""
    for offset in (5, 6, 2):
        acks.handed(Handed(offset))
    assert acks.first_open(TP) == 2
    acks.done(Handed(2))
    assert acks.first_open(TP) is None


def test_a_revoked_partition_is_forgotten(acks: Any, changes: list[None]) -> None:
    """Tasks that wait for records of the partition are woken."""
    acks.handed(Handed(5))
    acks.forget(TP)
    acks.forget(TP)
    assert acks.first_open(TP) is None
    assert len(changes) == 1


def test_the_first_record_of_a_batch_is_not_the_batch(acks: Any) -> None:
    """The record has the batch's base offset; acknowledging it committed the whole batch."""
    batch = batch_of(3, 6)
    acks.handed_batch(batch)
    acks.done(Handed(3))
    assert acks.first_open(TP) == 3
    acks.done(batch)
    assert acks.first_open(TP) is None


def test_acknowledging_a_record_of_a_batch_logs_how_to_acknowledge_the_batch(
    acks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Each record of a batch was acknowledged; nothing was committed, and nothing was logged."""
    acks.handed_batch(batch_of(3, 6))
    for offset in (3, 4, 5):
        acks.done(Handed(offset))
    acks.done(Handed(6))
    assert acks.first_open(TP) == 3
    [line] = caplog.messages
    assert "call ack(batch)" in line
    assert "offset=3" in line


class TestRecreatedTopic:
    """Records of the old topic are acknowledged while those of the new topic are processed."""

    @pytest.fixture
    def topics(self) -> dict[TopicPartition, UUID]:
        return {TP: UUID(int=1)}

    @pytest.fixture
    def acks(self, topics: dict[TopicPartition, UUID]) -> Acknowledgements:
        return Acknowledgements(lambda: None, topics.__getitem__)

    def test_old_records_do_not_acknowledge_new_ones(self, acks: Any, topics: Any) -> None:
        """Otherwise a crash would lose the new topic's record."""
        old, new = Handed(5), Handed(5, timestamp_ms=2)
        acks.handed(old)
        acks.forget(TP)
        topics[TP] = UUID(int=2)
        acks.handed(new)
        acks.done(old)
        assert acks.first_open(TP) == 5
        acks.done(new)
        assert acks.first_open(TP) is None

    def test_unacknowledged_old_records_do_not_block_commits(self, acks: Any, topics: Any) -> None:
        """The handler of the old record may have failed."""
        acks.handed(Handed(5))
        acks.forget(TP)
        topics[TP] = UUID(int=2)
        new = Handed(5, timestamp_ms=2)
        acks.handed(new)
        acks.done(new)
        assert acks.first_open(TP) is None

    def test_records_that_look_the_same_are_acknowledged_once_each(
        self, acks: Any, topics: Any
    ) -> None:
        """A topic restored from a copy has the timestamps of the old topic."""
        acks.handed(Handed(5))
        acks.forget(TP)
        topics[TP] = UUID(int=2)
        acks.handed(Handed(5))
        acks.done(Handed(5))
        assert acks.first_open(TP) == 5
        acks.done(Handed(5))
        assert acks.first_open(TP) is None

    def test_records_of_the_same_topic_are_recognised_again(self, acks: Any) -> None:
        """After a seek, or a reassignment of the partition, the record is the same."""
        acks.handed(Handed(5))
        acks.forget(TP)
        acks.handed(Handed(5))
        acks.done(Handed(5))
        assert acks.first_open(TP) is None

    def test_batches_are_compared_by_identity(self, acks: Any, topics: Any) -> None:
        """A batch of the new topic may have the same offsets."""

        old, new = batch_of(3, 6), batch_of(3, 6)
        acks.handed_batch(old)
        acks.forget(TP)
        topics[TP] = UUID(int=2)
        acks.handed_batch(new)
        acks.done(old)
        assert acks.first_open(TP) == 3
        acks.done(new)
        assert acks.first_open(TP) is None
