"""Interface of a shard: the state machine of one partition of a coordinator.

Source: Kafka ``CoordinatorShard.java``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.broker.coordinator.record import CoordinatorRecord
    from aiokq.broker.coordinator.timers import Instant
    from aiokq.core.errors import ProtocolError
    from aiokq.core.types import Buffer

__all__ = ["NO_PRODUCER", "Shard", "ShardLoad", "TransactionalProducer"]

NO_PRODUCER: Final = -1
"""The producer id of a record that belongs to no transaction."""


class TransactionalProducer(NamedTuple):
    """The id and epoch of a producer that uses transactions."""

    producer_id: int
    producer_epoch: int


class ShardLoad(Protocol):
    """The load of one shard. It receives the records of the log in order.

    Attributes:
        records_per_turn: the number of records to add before other tasks run.
    """

    @property
    def records_per_turn(self) -> int: ...

    def add(self, offset: int, key: Buffer | None, value: Buffer | None, producer_id: int) -> None:
        """Add the next record of the log.

        Args:
            producer_id: the producer in whose transaction the record was written, or `NO_PRODUCER`.
        """
        ...

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Add the next marker of the log, which ends a producer's transaction."""
        ...

    def finish(self) -> Iterator[None]:
        """Complete the load; yield after each step, so that the caller can let other tasks run."""
        ...


class Shard(Protocol):
    """The state of one partition, during one leadership of this node.

    A shard has no access to the log or the event loop. For a request that may change state, the
    runtime calls a method of the shard, which returns an `Outcome`. The runtime appends the records
    of the outcome, passes each record to `replay`, and then sends the response. `replay` also
    rebuilds the state when the log is loaded. Only `replay` and `end_transaction` may change
    durable state, unless the outcome has `replay` False. The runtime calls no other method of the
    shard between an outcome and the replay of its records.
    """

    def __len__(self) -> int:
        """Return the number of entries (groups or transactional ids)."""
        ...

    def load(self, unreadable: Callable[[int, ProtocolError], None]) -> ShardLoad:
        """Begin to load the log into this shard, which is empty.

        Args:
            unreadable: called with the offset and the error of each record that is skipped because
                it cannot be decoded.
        """
        ...

    def replay(
        self, record: CoordinatorRecord, *, offset: int, producer_id: int = NO_PRODUCER
    ) -> None:
        """Apply a record that is in the log.

        Args:
            offset: the record's offset in the partition.
            producer_id: the producer in whose transaction the record was written. Such a record is
                pending until `end_transaction` is called for the producer. `NO_PRODUCER` for a
                record outside a transaction.
        """
        ...

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply the marker that ends a producer's transaction in this partition.

        The records replayed for the producer take effect, or are dropped if the transaction was
        aborted.
        """
        ...

    def loaded(self, instant: Instant) -> None:
        """Start timers; called after the whole log was replayed, before the first request."""
        ...

    def unloaded(self) -> None:
        """End the work of the shard, because the leadership has ended.

        Requests that the shard does not answer fail with NOT_COORDINATOR.
        """
        ...
