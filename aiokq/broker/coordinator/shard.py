"""What the runtime requires of a shard: the state machine of one partition of a coordinator.

Source: Kafka ``CoordinatorShard.java``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from aiokq.broker.coordinator.record import CoordinatorRecord
    from aiokq.broker.coordinator.timers import Instant

__all__ = ["NO_PRODUCER", "Shard", "TransactionalProducer"]

NO_PRODUCER: Final = -1
"""The producer id of a record that belongs to no transaction."""


class TransactionalProducer(NamedTuple):
    """The producer on whose behalf records are written as part of its transaction."""

    producer_id: int
    producer_epoch: int


class Shard(Protocol):
    """The state of one partition, during one leadership of this node.

    A shard knows neither log nor loop. Requests call methods of its own that return an `Outcome`;
    the runtime appends the outcome's records, gives each to `replay`, and then answers. The same
    `replay` rebuilds the state when the log is loaded, so durable state changes nowhere else.
    The runtime calls nothing else between an outcome and the replay of its records.
    """

    def __len__(self) -> int:
        """The number of entries (groups, transactional ids), for the log line about loading."""
        ...

    def replay(
        self, record: CoordinatorRecord, *, offset: int, producer_id: int = NO_PRODUCER
    ) -> None:
        """Apply a record that is in the log.

        Args:
            offset: the record's offset in the partition.
            producer_id: the producer in whose transaction the record was written: it is pending
                until `end_transaction` is called for that producer.
        """
        ...

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply the marker that ends a producer's transaction in this partition.

        The records replayed for the producer take effect, or are dropped if it was aborted.
        """
        ...

    def loaded(self, instant: Instant) -> None:
        """The whole log has been replayed and requests follow: start timers."""
        ...

    def unloaded(self) -> None:
        """This node no longer coordinates the partition: cancel timers, answer waiting requests.

        Answers that a shard leaves open are failed with NOT_COORDINATOR by the runtime.
        """
        ...
