"""Result type and checks that the transaction coordinator's decisions about requests share.

Source: KIP-98, Kafka ``TransactionCoordinator.scala``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.core.errors import InvalidPidMapping, ProducerFenced
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.broker.coordinator.shard import TransactionalProducer
    from aiokq.broker.coordinator.transaction.transaction_metadata import TransactionMetadata

__all__ = ["Decision", "NeedsProducerId", "fenced", "known", "needed"]


class NeedsProducerId(Exception):
    """An operation needs a producer id; the caller reserves one and runs the operation again."""


class Decision(NamedTuple):
    """The decision about a request: the metadata to write, and the producer to return."""

    after: TransactionMetadata | None
    """The metadata to write; None if nothing changes."""
    producer: TransactionalProducer
    """The producer id and epoch of the response."""


def needed(spare_id: int | None) -> int:
    """Return the new producer id that the caller has reserved.

    Raises:
        NeedsProducerId: the caller has not reserved a producer id.
    """
    if spare_id is None:
        raise NeedsProducerId
    return spare_id


def known(
    current: TransactionMetadata | None, transactional_id: str, producer_id: int
) -> TransactionMetadata:
    """Return the metadata of a transactional id, if it has this producer id.

    Raises:
        InvalidPidMapping: the transactional id has another producer id, or none.
    """
    if current is None:
        raise InvalidPidMapping(f"{transactional_id} has no producer id")
    if current.producer_id != producer_id:
        raise InvalidPidMapping(
            f"the producer id of {transactional_id} is {current.producer_id}, not {producer_id}"
        )
    return current


def fenced(producer: TransactionalProducer, current: TransactionMetadata) -> ProducerFenced:
    """Return the error of a producer that does not have the current epoch."""
    return ProducerFenced(
        f"the epoch of {current.transactional_id} is {current.producer_epoch}, not "
        f"{producer.producer_epoch}"
    )
