"""Owns how bytes become a user's object, and the record that then stands for the native one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from aiokq.consumer.values import ConsumerValues
    from aiokq.fastpath import Record

__all__ = ["DeserializedRecord", "Deserializer", "Headers", "record_deserializer"]

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
"""Record headers: names with values, in order; a name may come twice."""

K = TypeVar("K")
V = TypeVar("V")


@runtime_checkable
class Deserializer(Protocol):
    """A deserializer that wants to know the topic and the headers, as Kafka's interface does."""

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> object:
        """The object that `data` stands for. What it raises reaches whoever reads."""
        ...


@dataclass(slots=True)
class DeserializedRecord(Generic[K, V]):
    """A record whose key or value a deserializer has made; else as `Record`."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: K | None
    value: V | None
    headers: Headers
    leader_epoch: int


_Plain: TypeAlias = Callable[[str, Headers, bytes], object]


def record_deserializer(
    settings: ConsumerValues,
) -> Callable[[Record], DeserializedRecord[object, object]] | None:
    """What is made of each record; None if there are no deserializers: it stays as it is.

    A null stays None without asking the deserializer.
    """
    key = _with_context(settings.key_deserializer)
    value = _with_context(settings.value_deserializer)
    if key is None and value is None:
        return None

    def deserialize(record: Record) -> DeserializedRecord[object, object]:
        topic, headers = record.topic, record.headers
        new_key: object = record.key
        new_value: object = record.value
        try:
            if key is not None and record.key is not None:
                new_key = key(topic, headers, record.key)
            if value is not None and record.value is not None:
                new_value = value(topic, headers, record.value)
        except Exception as error:
            error.add_note(
                f"deserializing the record at offset {record.offset} of "
                f"{topic}-{record.partition}; reading on begins with the record after it"
            )
            raise
        return DeserializedRecord(
            topic,
            record.partition,
            record.offset,
            record.timestamp_ms,
            record.timestamp_type,
            new_key,
            new_value,
            headers,
            record.leader_epoch,
        )

    return deserialize


def _with_context(deserializer: Deserializer | Callable[[bytes], object] | None) -> _Plain | None:
    if deserializer is None:
        return None
    if isinstance(deserializer, Deserializer):
        return deserializer.deserialize
    plain = deserializer

    def deserialize(topic: str, headers: Headers, data: bytes) -> object:
        return plain(data)

    return deserialize
