"""Owns how a user's object becomes bytes: one call shape out of the two that are accepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from aiokq.core.types import Buffer

__all__ = ["Headers", "Serialize", "Serializer", "serialize_with"]

Headers: TypeAlias = Sequence[tuple[str, Buffer | None]]
"""Record headers: names with values, in order; a name may come twice."""

Serialize: TypeAlias = Callable[[str, Headers | None, object], "Buffer | None"]
"""(topic, headers, object) to bytes; None to None."""


@runtime_checkable
class Serializer(Protocol):
    """A serializer that wants to know the topic and the headers, as Kafka's own interface does."""

    def serialize(self, topic: str, headers: Headers | None, data: object) -> Buffer | None:
        """The bytes of `data`, which is not None; None writes a null.

        What it raises reaches the caller of send.
        """
        ...


def serialize_with(serializer: Serializer | Callable[[object], Buffer | None]) -> Serialize:
    """A serializer of either shape as one of (topic, headers, object).

    A null stays null without asking it, as for deserializers: most records have no key, and what
    deletes one must not become the text "null".
    """
    if isinstance(serializer, Serializer):
        full = serializer.serialize
        return lambda topic, headers, data: None if data is None else full(topic, headers, data)
    plain = serializer
    return lambda topic, headers, data: None if data is None else plain(data)
