"""Deliveries: the type that `send_many`, `send_columns` and `send_batch` return, as a protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Protocol, overload, runtime_checkable

if TYPE_CHECKING:
    from aiokq.fastpath.produce import Delivery, RecordMetadata

__all__ = ["Deliveries"]


@runtime_checkable
class Deliveries(Awaitable["list[RecordMetadata]"], Protocol):
    """The outcomes of one call of `send_many`, `send_columns` or `send_batch`, in input order.

    Supports `len()`, indexing and iteration. Awaiting the object returns a list of RecordMetadata.
    If a record failed, the `await` raises DeliveryFailed, whose `errors` has an entry per record:
    the error, or None for a delivered record. Deliveries is a protocol because several classes
    implement it; isinstance() works.
    """

    __slots__ = ()

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, index: int) -> Delivery: ...
    @overload
    def __getitem__(self, index: slice) -> list[Delivery]: ...

    def done(self) -> bool:
        """Return whether the outcome of every record is known."""
        ...

    def __await__(self) -> Generator[object, None, list[RecordMetadata]]: ...
