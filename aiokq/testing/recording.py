"""Types and functions that RecordedProducer and RecordedConsumer share."""

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
    """The members of `Recorder` that recorded producers and consumers use."""

    clock: Callable[[], float]

    def add(self, operation: Operation) -> None:
        """Add an operation to the history."""
        ...


def recorded_offsets(offsets: Mapping[P, int | OffsetAndMetadata]) -> tuple[Offset, ...]:
    """Convert the argument `offsets` of a commit to the `Offset` tuples of a history."""
    return tuple(
        Offset(topic, partition, offset if isinstance(offset, int) else offset.offset)
        for (topic, partition), offset in offsets.items()
    )
