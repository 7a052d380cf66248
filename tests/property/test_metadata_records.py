"""Any metadata record survives writing and reading; damaged bytes raise typed errors only."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from aiokq.broker.metadata.image.record_codec import (
    RECORD_CLASSES,
    UnknownMetadataRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from aiokq.core.errors import CorruptRecord
from aiokq.wire.struct import Message
from tests.property.wire.messages import in_version, structs, versions

RECORDS = st.sampled_from(
    [(cls, version) for cls in RECORD_CLASSES.values() for version in versions(cls)]
).flatmap(lambda pair: st.tuples(structs(pair[0]), st.just(pair[1])))


def encoded(record: Message, version: int) -> tuple[Message, bytes]:
    """Return what a record is in a version, and its value."""
    known = in_version(record, version, flexible=True)
    assert isinstance(known, Message)
    return known, encode_metadata_record(known, version)


@given(RECORDS)
def test_a_record_is_the_same_after_writing_and_reading(pair: tuple[Message, int]) -> None:
    """Unknown tagged fields included, which a newer Kafka may have written."""
    record, value = encoded(*pair)
    assert decode_metadata_record(value) == record
    assert encode_metadata_record(decode_metadata_record(value), pair[1]) == value


@given(RECORDS, st.data())
def test_a_cut_value_is_corrupt(pair: tuple[Message, int], data: st.DataObject) -> None:
    """No record is the beginning of another value of its type and version."""
    _, value = encoded(*pair)
    end = data.draw(st.integers(0, len(value) - 1))
    with contextlib.suppress(CorruptRecord):
        decode_metadata_record(value[:end])
        raise AssertionError(f"{value[:end]!r} was read")


@given(RECORDS, st.data())
def test_a_flipped_byte_raises_typed_errors_only(
    pair: tuple[Message, int], data: st.DataObject
) -> None:
    """A start must end with a message, not with a traceback."""
    _, value = encoded(*pair)
    damaged = bytearray(value)
    at = data.draw(st.integers(0, len(value) - 1))
    damaged[at] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(CorruptRecord, UnknownMetadataRecord):
        decode_metadata_record(bytes(damaged))
