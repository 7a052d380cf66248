"""`ReplayingLoad`: loads a shard by replaying each record of its log.

`transaction.loading` is faster where a record replaces all earlier records with the same key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.shard import NO_PRODUCER
from aiokq.core.errors import ProtocolError

if TYPE_CHECKING:
    from aiokq.broker.coordinator.record import CoordinatorRecord
    from aiokq.broker.coordinator.shard import Shard
    from aiokq.core.types import Buffer

__all__ = ["RECORDS_PER_TURN", "ReplayingLoad"]


RECORDS_PER_TURN: Final = 64
"""The number of records replayed before other tasks run: about two milliseconds of work."""


class ReplayingLoad:
    """A `ShardLoad` that replays each record into the shard.

    A record that cannot be decoded is skipped, so that only its entry is lost. If the load failed,
    all entries of the partition would be unavailable.

    Args:
        decode: returns the record of a key and value; None for an unknown type, which is ignored.
        unreadable: called with the offset and the error of a record that cannot be decoded.
    """

    records_per_turn: Final = RECORDS_PER_TURN

    def __init__(
        self,
        shard: Shard,
        decode: Callable[[Buffer | None, Buffer | None], CoordinatorRecord | None],
        unreadable: Callable[[int, ProtocolError], None],
    ) -> None:
        self._shard = shard
        self._decode = decode
        self._unreadable = unreadable

    def add(
        self,
        offset: int,
        key: Buffer | None,
        value: Buffer | None,
        producer_id: int = NO_PRODUCER,
    ) -> None:
        """Decode and replay a record; see `ShardLoad`."""
        try:
            record = self._decode(key, value)
        except ProtocolError as error:
            self._unreadable(offset, error)
            return
        if record is not None:
            self._shard.replay(record, offset=offset, producer_id=producer_id)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Pass a marker to the shard; see `ShardLoad`."""
        self._shard.end_transaction(producer_id, committed=committed)

    def finish(self) -> Iterator[None]:
        """Do nothing: `add` has replayed every record."""
        return iter(())
