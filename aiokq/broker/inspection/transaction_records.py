"""Records of `__transaction_state` as the JSON of ``kafka-dump-log --transaction-log-decoder``.

Source: Kafka ``DumpLogSegments.scala``, and the generated ``CoordinatorRecordJsonConverters``.
Tests: ``tests/unit/broker/inspection/test_transaction_records.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aiokq.broker.inspection.metadata_records import record_data
from aiokq.core.errors import ProtocolError
from aiokq.wire.codec import decode_prefixed
from aiokq.wire.transaction_records import TransactionLogKey, TransactionLogValue

if TYPE_CHECKING:
    from aiokq.core.types import Buffer
    from aiokq.records.record import RawRecord

__all__ = ["transaction_entry"]

DELETED: Final = "<DELETE>"
"""The payload that Kafka's tool prints for a tombstone."""


def transaction_entry(record: RawRecord) -> dict[str, Any]:
    """Return key and payload of a record of `__transaction_state`, as a part of its dump entry.

    For a record that cannot be decoded, the result has only the reason, under ``error``.
    """
    try:
        kind = _number(record.key)
        if kind != TransactionLogKey.RECORD_TYPE:
            raise ProtocolError(f"unknown record type {kind}", api="TransactionLogKey")
        assert record.key is not None
        key = decode_prefixed(TransactionLogKey, record.key)
        shown: dict[str, Any] = {"key": {"type": str(kind), "data": record_data(key)}}
        if record.value is None:
            return shown | {"payload": DELETED}
        version = _number(record.value)
        value = record_data(decode_prefixed(TransactionLogValue, record.value), version)
    except ProtocolError as error:
        return {"error": f"record at offset {record.offset}: {error.message}"}
    return shown | {"payload": {"version": str(version), "data": value}}


def _number(data: Buffer | None) -> int:
    """Return the number with which a key or value begins: its record type, or its version.

    Raises:
        ProtocolError: there is no number.
    """
    if data is None or len(data) < 2:
        raise ProtocolError("a key or value is too short", api="TransactionLogKey")
    return int.from_bytes(bytes(data[:2]), "big", signed=True)
