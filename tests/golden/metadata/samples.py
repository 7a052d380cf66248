"""Samples of every metadata record in every version, for the bytes of Kafka's serde."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

from aiokq.broker.metadata.image.record_codec import RECORD_CLASSES
from aiokq.wire.fields import Field
from aiokq.wire.struct import Message, Struct
from tests.property.wire.messages import filled, in_version, versions

EMPTY: dict[str, object] = {"array": [], "string": "", "bytes": b""}
LOWEST = {"i8": -(2**7), "i16": -(2**15), "i32": -(2**31), "i64": -(2**63), "u16": 2**16 - 1}


def samples() -> Iterator[tuple[str, int, Message]]:
    """Yield the label, version and content of each sample.

    filled: something in every field. default: no tagged field is present. null: every field that
    may be null is. empty: every array and text is present and empty. extreme: limits of integers,
    and lengths that take several bytes.
    """
    for cls in RECORD_CLASSES.values():
        made: dict[str, Struct] = {
            "filled": filled(cls),
            "default": cls(),
            "null": with_(cls, null),
            "empty": with_(cls, lambda field, value: EMPTY.get(field.kind, value)),
            "extreme": with_(cls, extreme),
        }
        for version in versions(cls):
            for label, sample in made.items():
                message = in_version(sample, version, flexible=True)
                assert isinstance(message, Message)
                yield label, version, message


def with_(cls: type[Struct], change: Callable[[Field, object], object]) -> Struct:
    """Return a filled message with changed fields."""
    message = filled(cls)
    for field in cls.__fields__:
        setattr(message, field.name, change(field, getattr(message, field.name)))
    return message


def null(field: Field, value: object) -> object:
    """Return None for a field that may be null."""
    return value if field.nullable_since is None else None


def extreme(field: Field, value: object) -> object:
    """Return a value at a limit."""
    if field.kind == "array" and not isinstance(field.of, type):
        return [largest(str(field.of))] * 130
    if field.kind == "array":
        assert isinstance(field.of, type)
        return [with_(field.of, extreme)]
    return largest(field.kind)


def largest(kind: str) -> object:
    """Return a value of a kind that takes many bytes."""
    if kind in LOWEST:
        return LOWEST[kind]
    return {
        "boolean": True,
        "bytes": bytes(range(256)),
        "f64": -1.5e300,
        "string": "ä" * 130,
        "uuid": uuid.UUID(int=2**128 - 1),
    }[kind]
