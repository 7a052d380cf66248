"""Schemas of the records that store and end transactions, in all versions."""

from __future__ import annotations

from aiokq.wire.fields import array, i8, i16, i32, i64, string
from aiokq.wire.struct import Message, Struct

__all__ = ["EndTxnMarker", "PartitionsSchema", "TransactionLogKey", "TransactionLogValue"]


class TransactionLogKey(Message):
    """Key of the record that stores the state of a transactional id.

    Source: `TransactionLogKey.json`.
    """

    NAME = "TransactionLogKey"
    MIN_VERSION = 0
    MAX_VERSION = 0
    RECORD_TYPE = 0

    transactional_id: str = string()
    """The transactional id that has the state."""


class PartitionsSchema(Struct):
    """Partitions of one topic: an element of `TransactionLogValue.transaction_partitions`.

    Source: `TransactionLogValue.json`, struct `PartitionsSchema`.
    """

    topic: str = string()
    """The name of a topic with partitions in the transaction."""

    partition_ids: list[int] = array(i32)
    """The ids of the topic's partitions that are in the transaction."""


class TransactionLogValue(Message):
    """Value of the record that stores the state of a transactional id: its producer and
    transaction.

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
    """The producer id that the transactional id uses."""

    previous_producer_id: int = i64(since=1, default=-1, tag=0)
    """The producer id of the last committed transaction, or -1."""

    next_producer_id: int = i64(since=1, default=-1, tag=1)
    """The latest producer id that the coordinator sent to the producer, or -1."""

    producer_epoch: int = i16()
    """The epoch of `producer_id`."""

    next_producer_epoch: int = i16(since=1, default=-1, tag=3)
    """The epoch of `next_producer_id`, or -1."""

    transaction_timeout_ms: int = i32()
    """The maximum duration of the transaction, in milliseconds from its start."""

    transaction_status: int = i8()
    """The state of the transaction, as numbered in Kafka's TransactionState."""

    transaction_partitions: list[PartitionsSchema] | None = array(
        PartitionsSchema, nullable_since=0
    )
    """The partitions in the transaction; null if the state is Empty."""

    transaction_last_update_timestamp_ms: int = i64()
    """When the transaction last changed, in milliseconds since the Unix epoch."""

    transaction_start_timestamp_ms: int = i64()
    """When the transaction was started, in milliseconds since the Unix epoch."""

    client_transaction_version: int = i16(since=1, tag=2)
    """The transaction version that the client uses."""


class EndTxnMarker(Message):
    """Value of a control record that ends a transaction.

    Source: `EndTxnMarker.json`.
    """

    NAME = "EndTxnMarker"
    MIN_VERSION = 0
    MAX_VERSION = 0

    coordinator_epoch: int = i32()
    """The epoch of the transaction coordinator that wrote the marker."""
