"""What recorded producers and consumers share: where operations go, and offsets of calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from aiokq.testing.history import Offset, Operation

if TYPE_CHECKING:
    from aiokq import OffsetAndMetadata

P = TypeVar("P", bound=tuple[str, int])

__all__ = ["Headers", "ManyRecord", "Recording", "recorded_offsets"]

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
"""Headers of a record, as `Producer.send` takes them."""
ManyRecord: TypeAlias = (
    tuple[object, bytes]
    | tuple[object, bytes, Headers | None]
    | tuple[object, bytes, Headers | None, int | None]
)
"""A record, as `Producer.send_many` takes it."""


class Recording(Protocol):
    """A history in the making: `Recorder`."""

    clock: Callable[[], float]

    def add(self, operation: Operation) -> None:
        """Add an operation."""
        ...


def recorded_offsets(offsets: Mapping[P, int | OffsetAndMetadata]) -> tuple[Offset, ...]:
    """Return offsets by partition as those of a history."""
    return tuple(
        Offset(topic, partition, offset if isinstance(offset, int) else offset.offset)
        for (topic, partition), offset in offsets.items()
    )
