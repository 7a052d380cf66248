"""Deliveries: what `send_many` and `send_batch` return."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Protocol, overload, runtime_checkable

if TYPE_CHECKING:
    from aiokq.fastpath.produce import Delivery, RecordMetadata

__all__ = ["Deliveries"]


@runtime_checkable
class Deliveries(Awaitable["list[RecordMetadata]"], Protocol):
    """The outcomes of one `send_many` or `send_batch`, in input order.

    `len()`, indexing, iteration. Awaiting gives a list of RecordMetadata; if any record failed it
    raises DeliveryFailed, whose `errors` has an entry per record, None where it was delivered.
    A protocol, as there are several classes of them: isinstance() holds for each.
    """

    __slots__ = ()

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, index: int) -> Delivery: ...
    @overload
    def __getitem__(self, index: slice) -> list[Delivery]: ...

    def done(self) -> bool:
        """Whether the outcome of every record is known."""
        ...

    def __await__(self) -> Generator[object, None, list[RecordMetadata]]: ...
