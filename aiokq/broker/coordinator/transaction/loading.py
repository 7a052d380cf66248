"""`TransactionLoad`: loads a shard of transactions from the last record of each transactional id.

A record replaces all earlier records of the same transactional id, so most records of the log are
replaced. Only the last record of each transactional id is decoded. For each transactional id, the
last replaced record in a prepared state is kept encoded, and `TransactionShard.ended_partitions`
decodes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from aiokq.broker.coordinator.transaction.record_types import (
    STATUS_OFFSET,
    decode_metadata,
    decode_record,
)
from aiokq.broker.coordinator.transaction.states import PREPARED_STATES, TransactionState
from aiokq.core.errors import ProtocolError
from aiokq.wire.codec import decode_prefixed
from aiokq.wire.transaction_records import TransactionLogKey

if TYPE_CHECKING:
    from aiokq.broker.coordinator.transaction.transaction_metadata import TransactionMetadata
    from aiokq.core.types import Buffer

__all__ = ["TransactionLoad"]

IDS_PER_STEP: Final = 128
"""The number of transactional ids decoded in one step of `finish`, in about a millisecond."""

_KEY: Final = b"\0\0"  # the record type of the key
_VERSIONS: Final = (b"\0\0", b"\0\1")
_SHORTEST_VALUE: Final = 34  # bytes before the tagged fields in version 1, without partitions


class _LoadedShard(Protocol):
    """The part of `TransactionShard` that a load fills."""

    def restore(self, metadata: TransactionMetadata, prepared: bytes | None) -> None: ...

    def restored(self, end_offset: int) -> None: ...


class TransactionLoad:
    """A `ShardLoad` that puts only the last record of each transactional id into the shard.

    Args:
        unreadable: called with the offset and the error of a record that cannot be decoded. The
            record is skipped; see `ReplayingLoad`.
    """

    records_per_turn: Final = 512
    """The number of records to add before other tasks run: about a millisecond of work."""

    def __init__(
        self, shard: _LoadedShard, unreadable: Callable[[int, ProtocolError], None]
    ) -> None:
        self._shard = shard
        self._unreadable = unreadable
        self._end_offset = 0
        self._latest: dict[bytes, tuple[int, bytes | None]] = {}
        """Offset and value of the last record of each key."""
        self._prepared: dict[bytes, bytes] = {}
        """For each key, the last replaced value in a prepared state."""

    def add(self, offset: int, key: Buffer | None, value: Buffer | None, producer_id: int) -> None:
        """Add the next record of the log; see `ShardLoad`."""
        # Hot path: a load calls this method for each record, and may find several records for each
        # of 100,000 transactional ids.
        key = b"" if key is None else bytes(key)
        value = None if value is None else bytes(value)
        if key[:2] != _KEY or not (
            value is None
            or (
                value[:2] in _VERSIONS
                and len(value) >= _SHORTEST_VALUE
                and value[STATUS_OFFSET] <= TransactionState.COMPLETE_ABORT
            )
        ):
            try:
                if decode_record(key, value) is None:
                    return  # a record of an unknown type is ignored
            except ProtocolError as error:
                self._unreadable(offset, error)
                return
        self._end_offset = offset + 1
        latest = self._latest
        before = latest.get(key)
        if before is not None:
            replaced = before[1]
            if replaced is not None and replaced[STATUS_OFFSET] in PREPARED_STATES:
                self._prepared[key] = replaced
        latest[key] = offset, value

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Do nothing: no transaction writes to this log."""

    def finish(self) -> Iterator[None]:
        """Decode the last records and put them into the shard, in steps."""
        shard, prepared = self._shard, self._prepared
        for number, (key, (offset, value)) in enumerate(self._latest.items(), 1):
            try:
                transactional_id = _id_of(key)
                if value is not None:
                    shard.restore(decode_metadata(transactional_id, value), prepared.get(key))
            except ProtocolError as error:
                self._unreadable(offset, error)
            if number % IDS_PER_STEP == 0:
                yield
        shard.restored(self._end_offset)
        self._latest.clear()
        self._prepared.clear()


def _id_of(key: bytes) -> str:
    """Return the transactional id of an encoded key.

    Raises:
        ProtocolError: the key is malformed.
    """
    if int.from_bytes(key[2:4]) == len(key) - 4:
        try:
            return key[4:].decode()
        except UnicodeDecodeError:
            pass
    return decode_prefixed(TransactionLogKey, key).transactional_id
