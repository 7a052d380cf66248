"""Writers without Spark and without a broker: refusals, messages, and early ends."""

from __future__ import annotations

import logging
import pickle
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import pytest

from aiokq import RecordColumns, TopicPartition
from aiokq.errors import ConfigError, DeliveryFailed, NotEnoughReplicas, RecordTooLarge
from aiokq.spark.worker import LoopThread, loop_thread

pa = pytest.importorskip("pyarrow")
types = pytest.importorskip("pyspark.sql.types")

from aiokq.spark import sink  # noqa: E402  it imports pyspark
from aiokq.spark.sink import (  # noqa: E402  it imports pyspark
    KafkaBatchWriter,
    KafkaStreamWriter,
    Written,
    _Feed,
    batch_writer,
    stream_writer,
)
from aiokq.spark.write_rows import Chunk  # noqa: E402

if TYPE_CHECKING:
    from aiokq import Producer

OPTIONS = {"kafka.bootstrap.servers": "broker:9092", "topic": "t"}
SCHEMA = types.StructType().add("value", types.BinaryType())


class Outcome:
    """A Delivery that is done or not."""

    def __init__(self, error: Exception | None = None, done: bool = True) -> None:
        self.error = error
        self.known = done

    def done(self) -> bool:
        return self.known

    def __await__(self):  # type: ignore[no-untyped-def]
        if self.error is not None:
            raise self.error
        return None
        yield


class Taking:
    """A producer that accepts records until it is told to refuse."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = list(outcomes)
        self.taken: list[tuple[str, int]] = []
        self.refusal: Exception | None = None

    async def send_columns(self, topic: str, columns: RecordColumns) -> list[Outcome]:
        if self.refusal is not None:
            raise self.refusal
        self.taken.append((topic, len(columns)))
        return [self.outcomes.pop(0)] * len(columns)


def feed(producer: Taking) -> _Feed:
    return _Feed(cast("Producer", producer))


def chunk(rows: int, topic: str = "t") -> Chunk:
    offsets = b"".join(n.to_bytes(4, sys.byteorder) for n in range(rows + 1))
    return Chunk(topic, RecordColumns(rows, value=(None, offsets, b"v" * rows)))


def test_an_overwrite_is_refused_for_batches_only() -> None:
    """For a stream it is the output mode "complete", which appends all rows again."""
    with pytest.raises(
        ConfigError, match=r"Save mode Overwrite not allowed for Kafka.*\.mode\(.append.\)"
    ):
        batch_writer(OPTIONS, SCHEMA, True)

    assert isinstance(stream_writer(OPTIONS, SCHEMA, True), KafkaStreamWriter)


def test_writers_and_what_tasks_tell_go_to_other_processes() -> None:
    """Spark creates a writer in one process and calls it in others."""
    writer = pickle.loads(pickle.dumps(batch_writer(OPTIONS, SCHEMA, False)))

    assert isinstance(writer, KafkaBatchWriter)
    assert pickle.loads(pickle.dumps(Written(7))) == Written(7)


def test_what_was_written_is_told_also_of_a_failed_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A log takes nothing back, so the driver's log names the rows."""
    writer = stream_writer(OPTIONS, SCHEMA, False)

    with caplog.at_level(logging.DEBUG, "aiokq.spark"):
        writer.commit([Written(3), Written(4)], 1)
        writer.abort([Written(3), None], 2)
        batch_writer(OPTIONS, SCHEMA, False).abort([None])

    assert caplog.messages == [
        "batch 1: wrote 7 rows",
        "batch 2 failed; 3 rows were written",
        "the write failed; 0 rows were written and stay in the log",
    ]


async def test_chunks_go_in_one_after_another() -> None:
    """Otherwise the rows of a partition would change their order."""
    producer = Taking(Outcome(), Outcome(done=False))

    await feed(producer).accept([chunk(2), chunk(1, "u")])

    assert producer.taken == [("t", 2), ("u", 1)]


async def test_a_task_ends_soon_after_a_record_was_not_delivered() -> None:
    """Otherwise hours of rows would be written after a missing one."""
    producer = Taking(Outcome(NotEnoughReplicas("too few")), Outcome())
    task = feed(producer)
    await task.accept([chunk(1)])

    with pytest.raises(NotEnoughReplicas) as caught:
        await task.accept([chunk(1)])

    assert caught.value.__notes__ == ["while writing to topic 't'"]
    assert len(producer.taken) == 1


def test_a_row_that_is_too_large_is_told_by_the_names_of_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Users of kafka.max.request.size do not know max_request_size."""
    producer = Taking()
    producer.refusal = RecordTooLarge(
        "record 1 has 2000000 bytes, more than the 1048576 that max_request_size and "
        "buffer_memory allow"
    )
    thread = loop_thread()
    lent: list[object] = []

    @contextmanager
    def lend(kafka: Mapping[str, str]) -> Iterator[tuple[LoopThread, Taking]]:
        lent.append(kafka)
        yield thread, producer

    monkeypatch.setattr(sink, "lent_producer", lend)
    batch = pa.record_batch({"value": pa.array([b"a", b"b"])})

    with pytest.raises(RecordTooLarge) as caught:
        batch_writer(OPTIONS, SCHEMA, False).write(iter([batch]))

    assert caught.value.message == (
        "record 1 has 2000000 bytes, more than the 1048576 that kafka.max.request.size and "
        "kafka.buffer.memory allow"
    )
    assert caught.value.__notes__ == ["while writing 2 rows to topic 't'"]
    assert lent == [{"bootstrap.servers": "broker:9092"}]


async def test_a_refused_row_is_told_with_its_topic() -> None:
    """Python's message for a bad header names no topic."""
    producer = Taking()
    producer.refusal = TypeError("a header's name is str, not NoneType")

    with pytest.raises(TypeError) as caught:
        await feed(producer).accept([chunk(2)])

    assert caught.value.__notes__ == ["while writing 2 rows to topic 't'"]


def test_rows_that_were_not_delivered_are_told_in_the_words_of_a_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Spark job has no Delivery that could be awaited."""

    class Failing(Taking):
        async def flush(self) -> None:
            error = NotEnoughReplicas("too few")
            raise DeliveryFailed(2, [error, error], [TopicPartition("t", 0)])

    @contextmanager
    def lend(kafka: Mapping[str, str]) -> Iterator[tuple[LoopThread, Taking]]:
        yield loop_thread(), Failing(Outcome(done=False))

    monkeypatch.setattr(sink, "lent_producer", lend)
    batch = pa.record_batch({"value": pa.array([b"a", b"b"])})

    with pytest.raises(DeliveryFailed, match="2 records not delivered to t-0; the first") as caught:
        batch_writer(OPTIONS, SCHEMA, False).write(iter([batch]))

    assert "Delivery " not in str(caught.value)
    assert str(caught.value).endswith(
        "written rows stay in the log, and are written again if Spark retries the task"
    )
