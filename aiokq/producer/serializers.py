"""Owns how a user's object becomes bytes: one call shape out of the two that are accepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from aiokq.core.types import Buffer

__all__ = ["Headers", "Serialize", "Serializer", "serialize_with"]

Headers: TypeAlias = Sequence[tuple[str, Buffer | None]]
"""Record headers: names with values, in order; a name may come twice."""

Serialize: TypeAlias = Callable[[str, Headers | None, object], "Buffer | None"]
"""(topic, headers, object) to bytes."""


@runtime_checkable
class Serializer(Protocol):
    """A serializer that wants to know the topic and the headers, as Kafka's own interface does."""

    def serialize(self, topic: str, headers: Headers | None, data: object) -> Buffer | None:
        """The bytes of `data`; None writes a null. What it raises reaches the caller of send."""
        ...


def serialize_with(serializer: Serializer | Callable[[object], Buffer | None]) -> Serialize:
    """A serializer of either shape as one of (topic, headers, object)."""
    if isinstance(serializer, Serializer):
        return serializer.serialize
    plain = serializer

    def serialize(topic: str, headers: Headers | None, data: object) -> Buffer | None:
        return plain(data)

    return serialize
