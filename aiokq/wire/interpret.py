"""The reference codec: reads and writes the fields of a message class one by one.

Tests compare this codec with the functions that `aiokq.wire.compile` generates, so this codec
shares no code with these functions. It is slow; `aiokq.wire.codec` uses it for message types that a
process rarely uses.
Source: Kafka protocol guide, KIP-482.
"""

from __future__ import annotations

import struct
import uuid
from typing import Final, TypeVar, cast

from aiokq.core.errors import ProtocolError
from aiokq.core.files import FileRange
from aiokq.wire.fields import Buffer, Field
from aiokq.wire.primitives import FieldNotSupported
from aiokq.wire.struct import NO_TAGS, Message, Struct

__all__ = ["decode", "encode"]

M = TypeVar("M", bound=Message)

FORMATS: Final = {
    "i8": ">b",
    "i16": ">h",
    "i32": ">i",
    "i64": ">q",
    "u16": ">H",
    "u32": ">I",
    "f64": ">d",
    "boolean": ">?",
}


def decode(cls: type[M], data: Buffer, version: int, position: int = 0) -> M:
    """Decode a message as `aiokq.wire.decode` does; record data is a view of `data`, too.

    Raises:
        ProtocolError: the version is not supported, or the bytes are not such a message.
    """
    reader = _Reader(memoryview(data), position, cls, version)
    message = reader.struct(cls)
    reader.check(reader.position == len(reader.data), "bytes after the message")
    return cast("M", message)


def encode(message: Message, version: int) -> bytes:
    """Encode a message as `aiokq.wire.encode_bytes` does, but accept and read ranges of files.

    Raises:
        ProtocolError: the version is not supported, or a value does not fit its field.
    """
    if not message.supports(version):
        raise ProtocolError(f"no version {version}", api=message.NAME, version=version)
    return _Writer(type(message), version).struct(message)


class _Reader:
    """A reader of one message, with its data, position and version."""

    def __init__(self, data: memoryview, position: int, cls: type[Message], version: int) -> None:
        self.data = data
        self.position = position
        self.cls = cls
        self.version = version
        self.flexible = cls.is_flexible(version)
        self.check(cls.supports(version), f"no version {version}")

    def check(self, condition: bool, otherwise: str) -> None:
        if not condition:
            raise ProtocolError(
                otherwise, api=self.cls.NAME, version=self.version, offset=self.position
            )

    def take(self, size: int) -> memoryview:
        self.check(0 <= size <= len(self.data) - self.position, f"{size} bytes are missing")
        taken = self.data[self.position : self.position + size]
        self.position += size
        return taken

    def number(self, kind: str) -> int | float | bool:
        form = FORMATS[kind]
        (value,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return cast("int | float | bool", value)

    def uvarint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                self.check(value < 2**32, "varint of more than 32 bits")
                return value
        self.check(False, "varint of more than 5 bytes")
        return 0

    def length(self, kind: str) -> int:
        """Read and return a length or count; -1 for null."""
        if self.flexible:
            return self.uvarint() - 1
        return cast("int", self.number(kind))

    def struct(self, cls: type[Struct]) -> Struct:
        values: dict[str, object] = {}
        for field in cls.__fields__:
            if field.in_version(self.version) and field.tag is None:
                values[field.name] = self.field(field)
        if self.flexible:
            self.tags(cls, values)
        return cls(**values)

    def tags(self, cls: type[Struct], values: dict[str, object]) -> None:
        known = {f.tag: f for f in cls.__fields__ if f.in_version(self.version)}
        unknown: dict[int, bytes] = {}
        seen = set()
        for _ in range(self.uvarint()):
            tag, size = self.uvarint(), self.uvarint()
            self.check(tag not in seen, f"tagged field {tag} occurs twice")
            seen.add(tag)
            end = self.position + size
            field = known.get(tag)
            if field is None:
                unknown[tag] = bytes(self.take(size))
            else:
                values[field.name] = self.field(field)
                self.check(self.position == end, f"tagged field {tag} of another size")
        values["unknown_tags"] = unknown or NO_TAGS

    def field(self, field: Field) -> object:
        nullable = field.nullable_in(self.version)
        if field.kind == "array":
            return self.array(field, nullable)
        if field.kind == "struct":
            if nullable:
                mark = self.number("i8")
                if mark == 0 if field.says_null else mark < 0:
                    return None
            return self.struct(cast("type[Struct]", field.of))
        return self.value(field.kind, nullable)

    def array(self, field: Field, nullable: bool) -> list[object] | None:
        count = self.length("i32")
        if count == -1 and nullable:
            return None
        self.check(count >= 0, f"{count} elements")
        elements: list[object] = []
        for _ in range(count):
            before = self.position
            if isinstance(field.of, type):
                elements.append(self.struct(field.of))
            else:
                elements.append(self.value(cast("str", field.of), False))
            self.check(self.position > before, "elements of no size")
        return elements

    def value(self, kind: str, nullable: bool) -> object:
        if kind in FORMATS:
            return self.number(kind)
        if kind == "uuid":
            return uuid.UUID(bytes=bytes(self.take(16)))
        length = self.length("i16" if kind == "string" else "i32")
        if length == -1 and nullable:
            return None
        self.check(kind != "string" or length <= 32767, f"string of {length} bytes")
        taken = self.take(length)
        if kind == "records":
            return taken
        if kind == "bytes":
            return bytes(taken)
        try:
            return str(taken, "utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolError(str(error), api=self.cls.NAME, version=self.version) from error


class _Writer:
    """A writer of messages of one class and version."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self.cls = cls
        self.version = version
        self.flexible = cls.is_flexible(version)

    def wrong(self, detail: str) -> ProtocolError:
        return ProtocolError(detail, api=self.cls.NAME, version=self.version)

    def uvarint(self, value: int) -> bytes:
        out = b""
        while value > 127:
            out += bytes([value % 128 + 128])
            value //= 128
        return out + bytes([value])

    def number(self, kind: str, value: object) -> bytes:
        try:
            return struct.pack(FORMATS[kind], value)
        except struct.error as error:
            raise self.wrong(f"{value!r} is not of kind {kind}") from error

    def length(self, kind: str, length: int) -> bytes:
        """Return an encoded length or count; `length` is -1 for null."""
        return self.uvarint(length + 1) if self.flexible else self.number(kind, length)

    def struct(self, value: Struct) -> bytes:
        out = b""
        tagged: dict[int, bytes] = dict(value.unknown_tags)
        for field in value.__fields__:
            held = getattr(value, field.name)
            if not field.in_version(self.version):
                if not field.ignorable and not field.is_default(held):
                    raise FieldNotSupported(
                        f"{field.name} is set", api=self.cls.NAME, version=self.version
                    )
            elif field.tag is None:
                out += self.field(field, held)
            elif field.says_null or not field.is_default(held):
                if field.tag in tagged:
                    raise self.wrong(f"unknown_tags holds tag {field.tag} of a known field")
                tagged[field.tag] = self.field(field, held)
        if not self.flexible:
            if tagged:
                raise FieldNotSupported(
                    "unknown_tags is set", api=self.cls.NAME, version=self.version
                )
            return out
        out += self.uvarint(len(tagged))
        for tag in sorted(tagged):
            out += self.uvarint(tag) + self.uvarint(len(tagged[tag])) + tagged[tag]
        return out

    def field(self, field: Field, value: object) -> bytes:
        nullable = field.nullable_in(self.version)
        if value is None and not nullable:
            raise self.wrong(f"{field.name} is null")
        if field.kind == "array":
            return self.array(field, cast("list[object] | None", value))
        if field.kind == "struct":
            if value is None:
                return self.number("i8", 0 if field.says_null else -1)
            mark = self.number("i8", 1) if nullable else b""
            return mark + self.struct(cast("Struct", value))
        return self.value(field.kind, value)

    def array(self, field: Field, values: list[object] | None) -> bytes:
        if values is None:
            return self.length("i32", -1)
        # The parts are joined at the end, because appending to a bytes object copies it.
        parts = [self.length("i32", len(values))]
        for value in values:
            if isinstance(field.of, type):
                parts.append(self.struct(cast("Struct", value)))
            else:
                parts.append(self.value(cast("str", field.of), value))
        return b"".join(parts)

    def value(self, kind: str, value: object) -> bytes:
        if kind in FORMATS:
            return self.number(kind, value)
        if kind == "uuid":
            return cast("uuid.UUID", value).bytes
        width = "i16" if kind == "string" else "i32"
        if value is None:
            return self.length(width, -1)
        data = cast("str", value).encode() if kind == "string" else _joined(value)
        if kind == "string" and len(data) > 32767:
            raise self.wrong(f"string of {len(data)} bytes")
        return self.length(width, len(data)) + data


def _joined(value: object) -> bytes:
    """Return the bytes of record data: one fragment or several, in memory or in a file."""
    if isinstance(value, (list, tuple)):
        return b"".join(_joined(piece) for piece in value)
    if isinstance(value, FileRange):
        return value.read()
    return bytes(cast("bytes", value))
