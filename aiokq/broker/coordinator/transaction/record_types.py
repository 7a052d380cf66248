"""The records of `__transaction_state`, and their conversion from and to `TransactionMetadata`.

Source: Kafka ``TransactionLog.scala``, ``TransactionLogKey.json``, ``TransactionLogValue.json``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.record import CoordinatorRecord
from aiokq.broker.coordinator.transaction.states import TransactionState
from aiokq.broker.coordinator.transaction.transaction_metadata import TransactionMetadata
from aiokq.core.errors import ProtocolError
from aiokq.core.types import TopicPartition
from aiokq.wire.codec import decode_prefixed, encode_prefixed
from aiokq.wire.transaction_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

if TYPE_CHECKING:
    from aiokq.core.types import Buffer

__all__ = ["decode_record", "encode_record", "metadata_of", "record_of", "tombstone"]

logger = logging.getLogger("aiokq.broker.coordinator")

FLEXIBLE_VERSION: Final = 1
"""The version of the value that has tagged fields."""

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
    decoded = decode_prefixed(TransactionLogValue, value)
    if decoded.transaction_status not in TransactionState.__members__.values():
        status = decoded.transaction_status
        raise ProtocolError(f"unknown transaction status {status}", api=_API, offset=0)
    return CoordinatorRecord(decoded_key, decoded)
