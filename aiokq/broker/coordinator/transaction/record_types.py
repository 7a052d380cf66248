"""The records of `__transaction_state`, and their conversion from and to `TransactionMetadata`.

Source: Kafka ``TransactionLog.scala``, ``TransactionLogKey.json``, ``TransactionLogValue.json``.
"""

from __future__ import annotations

import functools
import logging
import struct
from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.record import CoordinatorRecord
from aiokq.broker.coordinator.transaction.states import TransactionState
from aiokq.broker.coordinator.transaction.transaction_metadata import TransactionMetadata
from aiokq.core.errors import ProtocolError
from aiokq.core.types import TopicPartition
from aiokq.records.header import NO_PRODUCER_ID
from aiokq.wire.codec import decode_prefixed, encode_prefixed
from aiokq.wire.primitives import unsigned
from aiokq.wire.transaction_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiokq.core.types import Buffer

__all__ = [
    "STATUS_OFFSET",
    "decode_metadata",
    "decode_record",
    "encode_record",
    "metadata_of",
    "record_of",
    "tombstone",
]

logger = logging.getLogger("aiokq.broker.coordinator")

FLEXIBLE_VERSION: Final = 1
"""The version of the value that has tagged fields."""

LONGEST_ID: Final = 2**15 - 1
"""The maximum number of bytes of a transactional id in a key."""

FEW_PARTITIONS: Final = 64
"""Transactions with at most this many partitions have their encoded partitions cached."""

STATUS_OFFSET: Final = 16
"""The byte position of the state in a value, the same in all versions."""

_HEAD: Final = struct.Struct(">hqhib")  # version, producer id, epoch, timeout, state
_TIMES: Final = struct.Struct(">qq")
_TAGGED_INT64: Final = struct.Struct(">bbq")
_TAGGED_INT16: Final = struct.Struct(">bbh")
_KEY: Final = struct.Struct(">hh")
_INT16: Final = struct.Struct(">h")
_INT64: Final = struct.Struct(">q")
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION, _NEXT_EPOCH = range(4)  # tags
_STATES: Final = tuple(TransactionState)
_NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()

_API: Final = "TransactionLogValue"

_reported: set[int] = set()


def record_of(metadata: TransactionMetadata) -> CoordinatorRecord:
    """Return the record that stores the metadata."""
    return CoordinatorRecord(metadata.transactional_id, metadata)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


def tombstone(transactional_id: str) -> CoordinatorRecord:
    """Return the record that removes a transactional id."""
    return CoordinatorRecord(transactional_id, None)


def metadata_of(transactional_id: str, value: TransactionLogValue) -> TransactionMetadata:
    """Return the metadata that a record stores; `_decode_value` has checked the value."""
    return TransactionMetadata(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        TransactionState(value.transaction_status),
        frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        value.transaction_start_timestamp_ms,
        value.transaction_last_update_timestamp_ms,
        value.client_transaction_version,
        value.previous_producer_id,
        value.next_producer_id,
    )


def decode_metadata(transactional_id: str, value: bytes) -> TransactionMetadata:
    """Return the metadata that an encoded value stores.

    Most values in a log that is loaded have version 1 and no partitions. This function decodes them
    itself, in a tenth of the time of the codec. The codec decodes all other values.

    Raises:
        ProtocolError: the bytes are not a value of a known version.
    """
    # Hot path: `loading.TransactionLoad` calls this function for each transactional id.
    try:
        version, producer_id, epoch, timeout_ms, status = _HEAD.unpack_from(value)
        updated_ms, started_ms = _TIMES.unpack_from(value, 18)
        if version == FLEXIBLE_VERSION and value[17] <= 1 and 0 <= status < len(_STATES):
            previous_id = next_id = NO_PRODUCER_ID
            client_version = 0
            left, at = value[34], 35
            last = -1
            while left and at < len(value):
                tag, size = value[at], value[at + 1]
                at += 2
                if tag <= last:
                    break
                if tag == _PREVIOUS_ID and size == 8:
                    (previous_id,) = _INT64.unpack_from(value, at)
                elif tag == _NEXT_ID and size == 8:
                    (next_id,) = _INT64.unpack_from(value, at)
                elif tag == _CLIENT_VERSION and size == 2:
                    (client_version,) = _INT16.unpack_from(value, at)
                elif tag != _NEXT_EPOCH or size != 2:
                    break
                left, last, at = left - 1, tag, at + size
            if not left and at == len(value):
                return TransactionMetadata(
                    transactional_id,
                    producer_id,
                    epoch,
                    timeout_ms,
                    _STATES[status],
                    _NO_PARTITIONS,
                    started_ms,
                    updated_ms,
                    client_version,
                    previous_id,
                    next_id,
                )
    except (struct.error, IndexError):
        pass
    return metadata_of(transactional_id, _decode_value(value))


def encode_record(
    record: CoordinatorRecord, transaction_version: int
) -> tuple[bytes, bytes | None]:
    """Return key and value as Kafka writes them.

    Args:
        transaction_version: the finalized level of ``transaction.version``; with level 0, values
            have no tagged fields.

    Raises:
        ProtocolError: a field does not fit its type.
    """
    transactional_id, metadata = record
    assert isinstance(transactional_id, str)
    encoded_id = transactional_id.encode()
    if len(encoded_id) > LONGEST_ID:
        raise ProtocolError(f"transactional id of {len(encoded_id)} bytes", api=_API, offset=0)
    key = b"%b%b" % (_KEY.pack(TransactionLogKey.RECORD_TYPE, len(encoded_id)), encoded_id)
    if metadata is None:
        return key, None
    assert isinstance(metadata, TransactionMetadata)
    if transaction_version < FLEXIBLE_VERSION:
        return key, encode_prefixed(_first_value_of(metadata), TransactionLogValue.MIN_VERSION)
    return key, _encode_value(metadata)


def _encode_value(metadata: TransactionMetadata) -> bytes:
    """Return the metadata as a record value of version 1, ten times as fast as the codec."""
    # Hot path, measured by benchmarks/micro/transactions.py.
    (
        _,
        producer_id,
        epoch,
        timeout_ms,
        state,
        partitions,
        started_ms,
        updated_ms,
        client_version,
        previous_id,
        next_id,
        _,
    ) = metadata
    out = bytearray(_HEAD.pack(FLEXIBLE_VERSION, producer_id, epoch, timeout_ms, state))
    if state is TransactionState.EMPTY:
        out.append(0)  # null
    else:
        few = len(partitions) <= FEW_PARTITIONS
        out += (_remembered_partitions if few else _encode_partitions)(partitions)
    out += _TIMES.pack(updated_ms, started_ms)
    tagged = (previous_id != NO_PRODUCER_ID) + (next_id != NO_PRODUCER_ID) + (client_version != 0)
    out.append(tagged)
    if previous_id != NO_PRODUCER_ID:
        out += _TAGGED_INT64.pack(_PREVIOUS_ID, 8, previous_id)
    if next_id != NO_PRODUCER_ID:
        out += _TAGGED_INT64.pack(_NEXT_ID, 8, next_id)
    if client_version:
        out += _TAGGED_INT16.pack(_CLIENT_VERSION, 2, client_version)
    return bytes(out)


def _encode_partitions(partitions: frozenset[TopicPartition]) -> bytes:
    """Return the partitions as an array of topics."""
    topics = _by_topic(partitions)
    out = bytearray(unsigned(len(topics) + 1))
    for topic, indexes in topics.items():
        name = topic.encode()
        out += unsigned(len(name) + 1)
        out += name
        out += unsigned(len(indexes) + 1)
        out += struct.pack(f">{len(indexes)}i", *indexes)
        out.append(0)  # no tagged fields
    return bytes(out)


_remembered_partitions: Final = functools.lru_cache(maxsize=256)(_encode_partitions)
"""`_encode_partitions` with a cache.

The transactions of a producer usually have the same partitions.
"""


def _first_value_of(metadata: TransactionMetadata) -> TransactionLogValue:
    """Return the metadata as a record value of version 0."""
    partitions = None
    if metadata.state is not TransactionState.EMPTY:
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=indexes)
            for topic, indexes in _by_topic(metadata.partitions).items()
        ]
    return TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=metadata.updated_ms,
        transaction_start_timestamp_ms=metadata.started_ms,
    )


def decode_record(key: Buffer | None, value: Buffer | None) -> CoordinatorRecord | None:
    """Return the record of a key and value; None for an unknown type, which is logged once.

    Raises:
        ProtocolError: the bytes are not a valid record of `__transaction_state`.
    """
    if key is None or len(key) < 2:
        raise ProtocolError("coordinator record without a key", api="CoordinatorRecord", offset=0)
    number = int.from_bytes(bytes(key[:2]), "big", signed=True)
    if number != TransactionLogKey.RECORD_TYPE:
        if number not in _reported:
            _reported.add(number)
            logger.warning("transaction records of an unknown type are ignored: type=%d", number)
        return None
    transactional_id = decode_prefixed(TransactionLogKey, key).transactional_id
    if value is None:
        return CoordinatorRecord(transactional_id, None)
    return CoordinatorRecord(transactional_id, metadata_of(transactional_id, _decode_value(value)))


def _decode_value(value: Buffer) -> TransactionLogValue:
    decoded = decode_prefixed(TransactionLogValue, value)
    if decoded.transaction_status not in TransactionState.__members__.values():
        status = decoded.transaction_status
        raise ProtocolError(f"unknown transaction status {status}", api=_API, offset=0)
    return decoded
