"""Exceptions of deserializers, and references to them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from aiokq.consumer.batch import RecordBatch
from aiokq.consumer.batch_checks import count_remaining
from aiokq.consumer.batch_progress import BatchProgress
from aiokq.consumer.deserializers import MakeDeserializer, record_deserializer
from aiokq.consumer.settings import ConsumerSettings
from aiokq.fastpath import crc32c
from aiokq.fastpath.consume import Cursor, Record
from aiokq.records.codecs import RecordCodecs
from aiokq.records.record import RawRecord, encode_batch


class PoisonError(Exception):
    """Raised by the deserializers of these tests."""


def nothing(record: Record) -> None:
    """Called for each error; does nothing."""


def made(deserializer: Any) -> MakeDeserializer:
    make = record_deserializer(ConsumerSettings(value_deserializer=deserializer))
    assert make is not None
    return make


def batch_of(values: list[bytes], deserializer: Any) -> RecordBatch[Any]:
    records = [RawRecord(offset, 1, None, value) for offset, value in enumerate(values)]
    data = memoryview(encode_batch(records, crc32c=crc32c))
    end = len(values)

    def cursor(start: int, stop: int | None) -> Cursor:
        codecs = RecordCodecs(crc32c)
        return Cursor("t", 0, data, start_offset=start, stop_offset=stop, codecs=codecs)

    return RecordBatch(
        "t",
        0,
        0,
        size=len(data),
        progress=BatchProgress(0, end),
        cursor=cursor,
        count=lambda start, stop: count_remaining(cursor(start, stop)).records,
        records=end,
        deserializer=made(deserializer),
    )


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("kind", [PoisonError, StopIteration])
def test_an_exception_of_a_deserializer_is_in_no_reference_cycle(kind: type[Exception]) -> None:
    """A cycle would keep each failing record and its frames until garbage collection."""

    held: list[weakref.ref[Any]] = []

    def bad(data: bytes) -> None:
        work = {data}
        held.append(weakref.ref(work))
        raise kind

    deserialize = made(bad)(nothing)
    try:
        deserialize(Record("t", 0, 1, 0, value=b"x"))
    except (PoisonError, RuntimeError):
        pass
    assert held[0]() is None


@pytest.mark.usefixtures("no_collector")
def test_a_batch_that_stopped_at_an_error_is_in_no_reference_cycle() -> None:
    """A cycle would keep the fetched bytes, to which a batch refers."""

    def bad(data: bytes) -> None:
        raise PoisonError

    batch = batch_of([b"a", b"b"], bad)
    try:
        _ = batch.records
    except PoisonError:
        gone = weakref.ref(bad)
    del batch, bad
    assert gone() is None


def test_one_exception_raised_again_and_again_has_the_note_of_the_last_record() -> None:
    """Each record used to add another note to an exception object that is raised repeatedly."""
    error = PoisonError()
    error.add_note("its own")

    def bad(data: bytes) -> None:
        raise error

    deserialize = made(bad)(nothing)
    for offset in range(3):
        with pytest.raises(PoisonError):
            deserialize(Record("t", 0, offset, 0, value=b"x"))
    note = "deserializing the record at offset 2 of t-0; reading continues without it"
    assert error.__notes__ == ["its own", note]
