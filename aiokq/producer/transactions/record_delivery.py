"""RecordDelivery: the delivery of a producer's records, as its transactions control it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiokq.core.errors import KafkaError

__all__ = ["RecordDelivery"]


class RecordDelivery(Protocol):
    """The delivery of the producer's records."""

    def accept(self, refusal: KafkaError | None) -> None:
        """Accept records, or refuse them with this error, also those whose calls wait."""

    def hurry(self) -> None:
        """Send batches without lingering, until `relax` is called."""

    def relax(self) -> None:
        """Undo one `hurry`."""

    async def settle(self) -> None:
        """Wait until each accepted record is delivered or has failed, without lingering."""

    def fail_unsent(self, error: KafkaError) -> None:
        """Fail the records that are not in flight."""

    async def answered(self) -> None:
        """Wait until each record that was in a batch is delivered or has failed."""

    def offer_all(self) -> None:
        """Offer the queues that have batches to their senders."""

    def restart_sequences(self) -> None:
        """Number all batches from 0 again, because the epoch has changed."""

    def forget_failures(self) -> None:
        """Forget the failures that nobody observed, because the transaction reports them."""
