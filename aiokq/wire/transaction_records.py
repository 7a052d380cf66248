"""Schemas of the transaction records, all versions."""

from __future__ import annotations

from aiokq.wire.fields import array, i8, i16, i32, i64, string
from aiokq.wire.struct import Message, Struct

__all__ = ["EndTxnMarker", "PartitionsSchema", "TransactionLogKey", "TransactionLogValue"]


class TransactionLogKey(Message):
    """Key of the record of a transactional id.

    Source: `TransactionLogKey.json`.
    """

    NAME = "TransactionLogKey"
    MIN_VERSION = 0
    MAX_VERSION = 0
    RECORD_TYPE = 0

    transactional_id: str = string()
    """The transactional id of the transaction."""


class PartitionsSchema(Struct):
    """Element of `TransactionLogValue.transaction_partitions`.

    Source: `TransactionLogValue.json`, struct `PartitionsSchema`.
    """

    topic: str = string()
    """The name of a topic with partitions in the transaction."""

    partition_ids: list[int] = array(i32)
    """The ids of the topic's partitions that are in the transaction."""


class TransactionLogValue(Message):
    """Value of the record of a transactional id: its producer and its transaction.

    Version 1 is the first flexible version. Later changes should only add or remove tagged fields,
    because an older Kafka cannot read a newer version (KIP-915).

    Source: `TransactionLogValue.json`.
    """

    NAME = "TransactionLogValue"
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_SINCE = 1
    RECORD_TYPE = 0

    producer_id: int = i64()
    """Producer id in use by the transactional id."""

    previous_producer_id: int = i64(since=1, default=-1, tag=0)
    """Producer id used by the last committed transaction."""

    next_producer_id: int = i64(since=1, default=-1, tag=1)
    """Latest producer ID sent to the producer for the given transactional id."""

    producer_epoch: int = i16()
    """Epoch associated with the producer id."""

    next_producer_epoch: int = i16(since=1, default=-1, tag=3)
    """Epoch of `next_producer_id`."""

    transaction_timeout_ms: int = i32()
    """The transaction timeout, in milliseconds from the start of the transaction."""

    transaction_status: int = i8()
    """The state of the transaction, a number of Kafka's TransactionState."""

    transaction_partitions: list[PartitionsSchema] | None = array(
        PartitionsSchema, nullable_since=0
    )
    """Partitions involved in the transaction."""

    transaction_last_update_timestamp_ms: int = i64()
    """When the transaction was last updated, in milliseconds since the Unix epoch."""

    transaction_start_timestamp_ms: int = i64()
    """When the transaction was started, in milliseconds since the Unix epoch."""

    client_transaction_version: int = i16(since=1, tag=2)
    """The transaction version used by the client."""


class EndTxnMarker(Message):
    """Value of a control record that ends a transaction.

    Source: `EndTxnMarker.json`.
    """

    NAME = "EndTxnMarker"
    MIN_VERSION = 0
    MAX_VERSION = 0

    coordinator_epoch: int = i32()
    """The coordinator's epoch when it wrote the marker."""
