"""GatheredDeliveries: the Deliveries of records that were appended one by one or by `new_batch`."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, overload

from aiokq.core.errors import DeliveryFailed, KafkaError
from aiokq.core.types import TopicPartition
from aiokq.producer.deliveries import Deliveries

if TYPE_CHECKING:
    from aiokq.fastpath.produce import Delivery, RecordMetadata

__all__ = ["GatheredDeliveries"]


class GatheredDeliveries(Deliveries):
    """A list of Delivery objects; awaiting the list awaits the objects in order."""

    __slots__ = ("_each",)

    def __init__(self, deliveries: Iterable[Delivery]) -> None:
        self._each = list(deliveries)

    def __len__(self) -> int:
        return len(self._each)

    @overload
    def __getitem__(self, index: int) -> Delivery: ...
    @overload
    def __getitem__(self, index: slice) -> list[Delivery]: ...
    def __getitem__(self, index: int | slice) -> Delivery | list[Delivery]:
        return self._each[index]

    def done(self) -> bool:
        return all(delivery.done() for delivery in self._each)

    def __await__(self) -> Generator[object, None, list[RecordMetadata]]:
        return self._wait().__await__()

    def __repr__(self) -> str:
        return f"<Deliveries of {len(self._each)} records>"

    async def _wait(self) -> list[RecordMetadata]:
        metadata: list[RecordMetadata] = []
        errors: list[KafkaError | None] = []
        partitions: dict[TopicPartition, None] = {}
        for delivery in self._each:
            try:
                metadata.append(await delivery)
                errors.append(None)
            except KafkaError as error:
                errors.append(error)
                partitions[TopicPartition(delivery.topic, delivery.partition)] = None
        failed = [error for error in errors if error is not None]
        if failed:
            raise DeliveryFailed(len(failed), errors, list(partitions)) from failed[0]
        return metadata
