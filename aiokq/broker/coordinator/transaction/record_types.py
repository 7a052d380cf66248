"""The records of `__transaction_state`, and their conversion from and to `TransactionMetadata`.

Source: Kafka ``TransactionLog.scala``, ``TransactionLogKey.json``, ``TransactionLogValue.json``.
"""

from __future__ import annotations

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
from aiokq.wire.transaction_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

if TYPE_CHECKING:
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

STATUS_OFFSET: Final = 16
"""The position of the state in each version of the value."""

_HEAD: Final = struct.Struct(">hqhib")  # version, producer id, epoch, timeout, state
_TIMES: Final = struct.Struct(">qq")
_INT16: Final = struct.Struct(">h")
_INT64: Final = struct.Struct(">q")
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION, _NEXT_EPOCH = range(4)  # tags
_STATES: Final = tuple(TransactionState)
_NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()

_API: Final = "TransactionLogValue"

_reported: set[int] = set()


def record_of(metadata: TransactionMetadata) -> CoordinatorRecord:
    """Return the record that stores the metadata."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(partition)
    partitions = None
    if metadata.state is not TransactionState.EMPTY:
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in topics.items()
        ]
    return CoordinatorRecord(
        TransactionLogKey(transactional_id=metadata.transactional_id),
        TransactionLogValue(
            producer_id=metadata.producer_id,
            previous_producer_id=metadata.previous_producer_id,
            next_producer_id=metadata.next_producer_id,
            producer_epoch=metadata.producer_epoch,
            transaction_timeout_ms=metadata.timeout_ms,
            transaction_status=metadata.state,
            transaction_partitions=partitions,
            transaction_last_update_timestamp_ms=metadata.updated_ms,
            transaction_start_timestamp_ms=metadata.started_ms,
            client_transaction_version=metadata.client_version,
        ),
    )


def tombstone(transactional_id: str) -> CoordinatorRecord:
    """Return the record that removes a transactional id."""
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None)


def metadata_of(transactional_id: str, value: TransactionLogValue) -> TransactionMetadata:
    """Return the metadata that a record stores; `decode_record` has checked the value."""
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

    A value of version 1 without partitions, as of most ids while a log is loaded, is read here,
    which takes a tenth of the time of the codec; the codec reads all others.

    Raises:
        ProtocolError: the bytes are not a value of a known version.
    """
    # hot: see `loading.TransactionLoad`
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
        transaction_version: the level of the feature; with level 0, values have no tagged fields.
    """
    key, value = record
    encoded_key = encode_prefixed(key, key.MIN_VERSION)
    if value is None:
        return encoded_key, None
    assert isinstance(value, TransactionLogValue)
    if transaction_version < FLEXIBLE_VERSION:
        value = TransactionLogValue(
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            transaction_timeout_ms=value.transaction_timeout_ms,
            transaction_status=value.transaction_status,
            transaction_partitions=value.transaction_partitions,
            transaction_last_update_timestamp_ms=value.transaction_last_update_timestamp_ms,
            transaction_start_timestamp_ms=value.transaction_start_timestamp_ms,
        )
        return encoded_key, encode_prefixed(value, value.MIN_VERSION)
    return encoded_key, encode_prefixed(value, FLEXIBLE_VERSION)


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
    decoded_key = decode_prefixed(TransactionLogKey, key)
    if value is None:
        return CoordinatorRecord(decoded_key, None)
    return CoordinatorRecord(decoded_key, _decode_value(value))


def _decode_value(value: Buffer) -> TransactionLogValue:
    decoded = decode_prefixed(TransactionLogValue, value)
    if decoded.transaction_status not in TransactionState.__members__.values():
        status = decoded.transaction_status
        raise ProtocolError(f"unknown transaction status {status}", api=_API, offset=0)
    return decoded
