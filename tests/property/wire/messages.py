"""Hypothesis strategies for wire messages: any message of a class, in all its versions."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Iterator

from hypothesis import strategies as st

from aiokq import wire
from aiokq.wire.catalog import MODULES
from aiokq.wire.fields import Field
from aiokq.wire.struct import NO_TAGS, Message, Struct

INTEGERS = {
    "i8": st.integers(-(2**7), 2**7 - 1),
    "i16": st.integers(-(2**15), 2**15 - 1),
    "i32": st.integers(-(2**31), 2**31 - 1),
    "i64": st.integers(-(2**63), 2**63 - 1),
    "u16": st.integers(0, 2**16 - 1),
    "u32": st.integers(0, 2**32 - 1),
}
VALUES: dict[str, st.SearchStrategy[object]] = {
    **INTEGERS,
    "f64": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "uuid": st.uuids() | st.just(wire.ZERO_UUID),
    "string": st.text(max_size=6) | st.just("ä" * 100),
    "bytes": st.binary(max_size=6) | st.just(bytes(300)),
    "records": st.binary(max_size=6) | st.just(bytes(range(256)) * 8),
}
TAGS = st.just(NO_TAGS) | st.dictionaries(
    st.integers(100, 2**31), st.binary(max_size=4) | st.just(bytes(200)), max_size=2
)


def message_classes() -> list[type[Message]]:
    """Return every class that is encoded by itself."""
    names = [name for names in MODULES.values() for name in names.split()]
    classes = [getattr(wire, name) for name in names]
    return [cls for cls in classes if issubclass(cls, Message)]


def versions(cls: type[Message]) -> range:
    """Return every version of a message, an unreleased one included."""
    return range(cls.MIN_VERSION, (cls.UNSTABLE_VERSION or cls.MAX_VERSION) + 1)


def pairs() -> Iterator[tuple[type[Message], int]]:
    """Yield every message with each of its versions."""
    for cls in message_classes():
        for version in versions(cls):
            yield cls, version


@functools.cache
def structs(cls: type[Struct]) -> st.SearchStrategy[Struct]:
    """Draw a struct with any value in every field, whatever the version."""
    values = {field.name: _field(field) for field in cls.__fields__}
    return st.builds(cls, unknown_tags=TAGS, **values)


def _field(field: Field) -> st.SearchStrategy[object]:
    of = field.of
    if field.kind == "array":
        element = structs(of) if isinstance(of, type) else VALUES[str(of)]
        strategy: st.SearchStrategy[object] = st.lists(element, max_size=2)
    elif field.kind == "struct":
        assert isinstance(of, type)
        strategy = structs(of)
    else:
        strategy = VALUES[field.kind]
    default = st.builds(field.make_default)
    nothing = st.none() if field.nullable_since is not None else default
    return default | strategy | nothing


def in_version(message: Struct, version: int, *, flexible: bool) -> Struct:
    """Return what is left of a message in a version: the message that decoding has to give."""
    values: dict[str, object] = {}
    for field in message.__fields__:
        value = getattr(message, field.name)
        if not field.in_version(version):
            value = field.make_default()
        elif value is None and not field.nullable_in(version) and field.tag is None:
            # Null where this version has no null: something else that fits.
            value = field.make_default()
            if value is None:
                value = {"string": "", "bytes": b"", "array": []}.get(field.kind, b"")
                if isinstance(field.of, type) and field.kind == "struct":
                    value = field.of()
        if isinstance(value, Struct):
            value = in_version(value, version, flexible=flexible)
            if field.tag is not None and field.is_default(value):
                value = field.make_default()
        elif isinstance(value, list):
            value = [
                in_version(item, version, flexible=flexible) if isinstance(item, Struct) else item
                for item in value
            ]
        values[field.name] = value
    tags = message.unknown_tags if flexible else NO_TAGS
    return type(message)(unknown_tags=tags, **values)


def filled(cls: type[Struct], seed: int = 1, *, structs_in_arrays: int = 2) -> Struct:
    """Return a message with something in every field, the same for the same seed."""
    values: dict[str, object] = {}
    for field in cls.__fields__:
        seed = seed * 31 + 7
        values[field.name] = _filling(field, seed, structs_in_arrays)
    return cls(**values)


def _filling(field: Field, seed: int, structs_in_arrays: int) -> object:
    of = field.of
    if field.kind == "struct":
        assert isinstance(of, type)
        return filled(of, seed, structs_in_arrays=structs_in_arrays)
    if field.kind == "array":
        if isinstance(of, type):
            return [
                filled(of, seed + index, structs_in_arrays=structs_in_arrays)
                for index in range(structs_in_arrays)
            ]
        return [_value(str(of), seed + index) for index in range(3)]
    return _value(field.kind, seed)


def _value(kind: str, seed: int) -> object:
    if kind in INTEGERS:
        return seed % {"i8": 127, "i16": 100, "u16": 65535}.get(kind, 2**20)
    if kind == "f64":
        return seed / 8
    if kind == "boolean":
        return bool(seed % 2)
    if kind == "uuid":
        return __import__("uuid").UUID(int=seed)
    if kind == "string":
        return f"text-{seed % 1000}"
    return b"bytes-%d" % (seed % 1000)


def copied(message: Struct, **changes: object) -> Struct:
    """Return a copy with other values in some fields."""
    return dataclasses.replace(copy.copy(message), **changes)
