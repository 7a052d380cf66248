"""Serializer: the interface of serializers; plain callables are accepted as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from aiokq.core.types import Buffer

__all__ = ["Headers", "Serialize", "Serializer", "serialize_with"]

Headers: TypeAlias = Sequence[tuple[str, Buffer | None]]
"""Record headers: (name, value) pairs in order; a name may occur twice."""

Serialize: TypeAlias = Callable[[str, Headers | None, object], "Buffer | None"]
"""A function of (topic, headers, object) that returns bytes, or None for null."""


@runtime_checkable
class Serializer(Protocol):
    """A serializer that also receives the topic and the headers, as Kafka's own serializers do."""

    def serialize(self, topic: str, headers: Headers | None, data: object) -> Buffer | None:
        """Return the bytes of `data`, which is not None; return None to write a null.

        An exception propagates to the caller of send.
        """
        ...


def serialize_with(serializer: Serializer | Callable[[object], Buffer | None]) -> Serialize:
    """Return a function of (topic, headers, object) that calls a Serializer or a plain callable.

    None is not passed to the serializer and stays null, as with deserializers: most records have
    no key, and a tombstone must not become the text "null".
    """
    if isinstance(serializer, Serializer):
        full = serializer.serialize
        return lambda topic, headers, data: None if data is None else full(topic, headers, data)
    plain = serializer
    return lambda topic, headers, data: None if data is None else plain(data)
