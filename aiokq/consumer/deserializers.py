"""Deserializers, which convert keys and values, and the record that contains the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Protocol,
    TypeAlias,
    TypeVar,
    runtime_checkable,
)

from aiokq.core.user_errors import passable

if TYPE_CHECKING:
    from aiokq.consumer.values import ConsumerValues
    from aiokq.fastpath.consume import Record

__all__ = [
    "Deserialize",
    "DeserializedRecord",
    "Deserializer",
    "Headers",
    "MakeDeserializer",
    "deserializer_of",
    "record_deserializer",
]

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
"""Record headers: names with values, in order; a name may occur several times."""

K = TypeVar("K")
V = TypeVar("V")


@runtime_checkable
class Deserializer(Protocol):
    """A deserializer that also receives the topic and the headers, as in Kafka's interface."""

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> object:
        """Return the object for `data`. Exceptions are raised to the reader."""
        ...


@dataclass(slots=True)
class DeserializedRecord(Generic[K, V]):
    """A record with a deserialized key or value; its other fields are those of `Record`."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: K | None
    value: V | None
    headers: Headers
    leader_epoch: int


_NOTE: Final = "deserializing the record at offset "
_CONTINUES: Final = "; reading continues without it"

_Plain: TypeAlias = Callable[[str, Headers, bytes], object]

Deserialize: TypeAlias = Callable[["Record"], DeserializedRecord[Any, Any]]
"""Type of functions that convert a fetched record to the record for the user."""

MakeDeserializer: TypeAlias = Callable[[Callable[["Record"], None]], Deserialize]
"""Type of functions that make a deserializer.

Such a function takes a callback. The deserializer calls the callback with a record before it raises
an error for that record.
"""


def record_deserializer(settings: ConsumerValues) -> MakeDeserializer | None:
    """Return a function that makes record deserializers; None if the settings have no deserializer.

    A null key or value stays None, and the deserializer is not called for it. An exception of a
    deserializer gets a note, and an attribute `record` with the record as received. A
    CancelledError is replaced by a RuntimeError, because a synchronous call cannot be cancelled.
    """
    return deserializer_of(settings.key_deserializer, settings.value_deserializer, _CONTINUES)


def deserializer_of(
    key: Deserializer | Callable[[bytes], object] | None,
    value: Deserializer | Callable[[bytes], object] | None,
    after: str = "",
) -> MakeDeserializer | None:
    """Return a function that makes record deserializers from `key` and `value`.

    The result is None if both are None. The deserializers are described at `record_deserializer`.

    Args:
        after: text at the end of an exception's note, about what happens to the record.
    """
    if key is None and value is None:
        return None
    return partial(_record_deserializer, _with_context(key), _with_context(value), after)


def _record_deserializer(
    key: _Plain | None, value: _Plain | None, after: str, failed: Callable[[Record], None]
) -> Deserialize:
    # Hot path, once per record; measured by benchmarks/micro/consumer.py.
    def deserialize(record: Record) -> DeserializedRecord[object, object]:
        topic, headers = record.topic, record.headers
        new_key: object = record.key
        new_value: object = record.value
        try:
            if key is not None and record.key is not None:
                new_key = key(topic, headers, record.key)
            if value is not None and record.value is not None:
                new_value = value(topic, headers, record.value)
        except BaseException as error:  # noqa: BLE001  raised again
            failed(record)
            raise _described(error, record, after)  # noqa: B904  it has its own cause
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


def _described(error: BaseException, record: Record, after: str) -> BaseException:
    """Return the exception to raise for a record, with a note and the record as received.

    The caller must not store the exception in a local variable: the variable and the traceback
    would form a reference cycle.
    """
    raised = passable(error, "a deserializer")
    # A deserializer may raise the same exception object again: only the newest note is kept.
    notes = [note for note in getattr(raised, "__notes__", ()) if not note.startswith(_NOTE)]
    place = f"{record.topic}-{record.partition}"
    notes.append(f"{_NOTE}{record.offset} of {place}{after}")
    raised.__dict__["__notes__"] = notes
    raised.__dict__["record"] = record
    return raised


def _with_context(deserializer: Deserializer | Callable[[bytes], object] | None) -> _Plain | None:
    if deserializer is None:
        return None
    if isinstance(deserializer, Deserializer):
        return deserializer.deserialize
    plain = deserializer

    def deserialize(topic: str, headers: Headers, data: bytes) -> object:
        return plain(data)

    return deserialize
