"""RecordDelivery: the methods of a DeliveryEngine that the producer's transactions call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiokq.core.errors import KafkaError

__all__ = ["RecordDelivery"]


class RecordDelivery(Protocol):
    """Accepts, sends and fails the records of a producer."""

    @property
    def is_settled(self) -> bool:
        """Whether every accepted record has an outcome."""
        ...

    def accept(self, refusal: KafkaError | None) -> None:
        """Accept records if `refusal` is None; otherwise refuse them with `refusal`.

        A refusal also fails the calls that wait to append a record.
        """

    def hurry(self) -> None:
        """Send batches without lingering, until `relax` is called."""

    def relax(self) -> None:
        """Undo one `hurry`."""

    async def flush(self) -> None:
        """Send without lingering, and wait until every record accepted so far has an outcome."""

    def fail_unsent(self, error: KafkaError) -> None:
        """Fail, with `error`, the records that are not in flight."""

    async def answered(self) -> None:
        """Wait until each batch that exists now is delivered or has failed."""

    def offer_all(self) -> None:
        """Offer each queue that has a ready batch to the sender of its leader."""

    def restart_sequences(self) -> None:
        """Restart the sequence numbers of all partitions at 0, because the epoch has changed."""

    def forget_failures(self) -> None:
        """Forget the failures that nobody observed, because the transaction reports them."""
