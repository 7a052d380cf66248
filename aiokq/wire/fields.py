"""Field specifiers, with which message classes declare their fields.

A message class lists its fields as Kafka's JSON definitions do::

    class FetchPartition(Struct):
        partition: int = i32()
        current_leader_epoch: int = i32(since=9, default=-1, ignorable=True)

Every specifier returns a `Field` at run time, but its declared return type is the type of the
field's values. A type checker therefore accepts the annotation, and sees that each field has a
default.
The defaults are Kafka's: zero, false, the empty string, bytes or array, the zero uuid, and null for
records. Only tagged structs differ (see `struct`).

Common arguments:

- ``since``, ``until``: first and last message version that has the field (inclusive).
- ``nullable_since``: first version in which the field may be `None`.
- ``default``: Kafka's explicit default, if it is not the default of the type.
- ``tag``: number of a tagged field (KIP-482), which only flexible versions have.
- ``ignorable``: whether versions without the field silently drop a value other than the default. If
  false, encoding such a value raises `FieldNotSupported`.

Source: Kafka `clients/src/main/resources/common/message/README.md`, KIP-482.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import (
    TYPE_CHECKING,
    Final,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from aiokq.core.files import FileRange
from aiokq.core.types import Buffer

if TYPE_CHECKING:
    from aiokq.wire.struct import Struct

__all__ = [
    "ALWAYS",
    "ZERO_UUID",
    "Buffer",
    "Field",
    "Fragment",
    "Kind",
    "Records",
    "array",
    "boolean",
    "bytes_",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "records",
    "string",
    "struct",
    "u16",
    "u32",
    "uuid_",
]

Fragment: TypeAlias = bytes | bytearray | memoryview | FileRange
"""One piece of an encoded message: a buffer, or a range of an open file to send from disk."""

Records: TypeAlias = bytes | bytearray | memoryview | FileRange | Sequence[Fragment] | None
"""Value of a records field. Encoding takes all these types, decoding returns a view or `None`."""

Kind: TypeAlias = Literal[
    "i8", "i16", "i32", "i64", "u16", "u32", "f64", "boolean", "uuid",
    "string", "bytes", "records", "struct", "array",
]  # fmt: skip

ALWAYS: Final = 32767
"""The ``until`` of a field that was never removed.

It is the largest API version that fits in a request header (int16).
"""

ZERO_UUID: Final = uuid.UUID(int=0)
"""The uuid of all zeros, with which Kafka represents an absent uuid, such as an unknown topic id.
"""

T = TypeVar("T")
S = TypeVar("S", bound="Struct")


class Field:
    """One field of a struct, for all versions.

    Attributes:
        name: attribute name, set when the class is created.
        kind: wire type of the field.
        of: for a struct, its class; for an array, the struct class or the kind of its elements.
        default: value of the field if a message does not set it, or if an encoded message lacks it.
            `None` if the field is null by default, or if it is a tagged struct that is absent by
            default. If the default is `list` or a struct class, each message gets a new instance.
    """

    __slots__ = (
        "default",
        "ignorable",
        "kind",
        "name",
        "nullable_since",
        "of",
        "since",
        "tag",
        "until",
    )

    def __init__(
        self,
        kind: Kind,
        default: object,
        *,
        since: int = 0,
        until: int | None = None,
        nullable_since: int | None = None,
        tag: int | None = None,
        ignorable: bool = False,
        of: type[Struct] | Kind | None = None,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.default = default
        self.since = since
        self.until = ALWAYS if until is None else until
        self.nullable_since = nullable_since
        self.tag = tag
        self.ignorable = ignorable
        self.of = of

    def in_version(self, version: int) -> bool:
        """Return whether messages of this version have the field."""
        return self.since <= version <= self.until

    def nullable_in(self, version: int) -> bool:
        """Return whether the field may be null in this version."""
        return self.nullable_since is not None and version >= self.nullable_since

    @property
    def says_null(self) -> bool:
        """Whether the field is a tagged struct that may be null.

        The encoder never omits such a field: it writes null as the byte 0, because Kafka reads an
        absent field as a struct with default values. The decoders of aiokq read an absent field as
        null.
        """
        return self.kind == "struct" and self.tag is not None and self.nullable_since is not None

    @property
    def fresh_default(self) -> bool:
        """Whether the default is mutable, so that each message needs its own object."""
        return self.default is list or (self.kind == "struct" and self.default is not None)

    def make_default(self) -> object:
        """Return the default value: a new object if the default is mutable."""
        return cast("Callable[[], object]", self.default)() if self.fresh_default else self.default

    def is_default(self, value: object) -> bool:
        """Return whether `value` is the default of the field.

        For a tagged struct that is not nullable, `None` counts as the default, and so does a struct
        whose fields all have their defaults.
        """
        if (
            self.kind == "struct"
            and self.tag is not None
            and value is not None
            and self.default is None
        ):
            return not self.nullable_in(ALWAYS) and value == cast("Callable[[], object]", self.of)()
        return value == self.make_default()

    def __repr__(self) -> str:
        until = "+" if self.until == ALWAYS else f"-{self.until}"
        return f"<Field {self.name or '?'}: {self.kind} {self.since}{until}>"


class _Integer(Protocol):
    def __call__(
        self,
        *,
        since: int = 0,
        until: int | None = None,
        default: int = 0,
        tag: int | None = None,
        ignorable: bool = False,
    ) -> int: ...


def _integer(kind: Kind) -> _Integer:
    def specifier(
        *,
        since: int = 0,
        until: int | None = None,
        default: int = 0,
        tag: int | None = None,
        ignorable: bool = False,
    ) -> int:
        field = Field(kind, default, since=since, until=until, tag=tag, ignorable=ignorable)
        return cast("int", field)

    return specifier


i8: Final = _integer("i8")
i16: Final = _integer("i16")
i32: Final = _integer("i32")
i64: Final = _integer("i64")
u16: Final = _integer("u16")
u32: Final = _integer("u32")


def f64(*, since: int = 0, default: float = 0.0) -> float:
    """Declare a double-precision number (IEEE 754)."""
    return cast("float", Field("f64", default, since=since))


def boolean(
    *,
    since: int = 0,
    until: int | None = None,
    default: bool = False,
    tag: int | None = None,
    ignorable: bool = False,
) -> bool:
    """Declare a boolean: one byte, zero for false, any other value for true."""
    field = Field("boolean", default, since=since, until=until, tag=tag, ignorable=ignorable)
    return cast("bool", field)


def uuid_(
    *,
    since: int = 0,
    until: int | None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> uuid.UUID:
    """Declare a uuid: 16 bytes, which are all zero if there is no uuid."""
    field = Field("uuid", ZERO_UUID, since=since, until=until, tag=tag, ignorable=ignorable)
    return cast("uuid.UUID", field)


@overload
def string(
    *,
    since: int = 0,
    until: int | None = None,
    default: str = "",
    tag: int | None = None,
    ignorable: bool = False,
) -> str: ...
@overload
def string(
    *,
    nullable_since: int,
    since: int = 0,
    until: int | None = None,
    default: str | None = "",
    tag: int | None = None,
    ignorable: bool = False,
) -> str | None: ...
def string(
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    default: str | None = "",
    tag: int | None = None,
    ignorable: bool = False,
) -> str | None:
    """Declare a UTF-8 string of at most 32,767 bytes."""
    field = Field(
        "string",
        default,
        since=since,
        until=until,
        nullable_since=nullable_since,
        tag=tag,
        ignorable=ignorable,
    )
    return cast("str | None", field)


@overload
def bytes_(
    *, since: int = 0, until: int | None = None, tag: int | None = None, ignorable: bool = False
) -> bytes: ...
@overload
def bytes_(
    *,
    nullable_since: int,
    since: int = 0,
    until: int | None = None,
    default: bytes | None = b"",
    tag: int | None = None,
    ignorable: bool = False,
) -> bytes | None: ...
def bytes_(
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    default: bytes | None = b"",
    tag: int | None = None,
    ignorable: bool = False,
) -> bytes | None:
    """Declare a byte string; decoding copies it out of the frame."""
    field = Field(
        "bytes",
        default,
        since=since,
        until=until,
        nullable_since=nullable_since,
        tag=tag,
        ignorable=ignorable,
    )
    return cast("bytes | None", field)


def records(*, since: int = 0, nullable_since: int = 0) -> Records:
    """Declare record batches. Decoding does not copy the batches; encoding copies short batches."""
    return cast("Records", Field("records", None, since=since, nullable_since=nullable_since))


@overload
def struct(of: type[S], *, since: int = 0, until: int | None = None) -> S: ...
@overload
def struct(
    of: type[S],
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> S | None: ...
def struct(
    of: type[S],
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> S | None:
    """Declare a nested struct.

    A nullable struct defaults to `None`. A tagged struct that is not nullable also defaults to
    `None`, which means that it is absent; Kafka's own classes use a struct with default fields
    instead.
    """
    field = Field(
        "struct",
        None if tag is not None or nullable_since is not None else of,
        since=since,
        until=until,
        nullable_since=nullable_since,
        tag=tag,
        ignorable=ignorable,
        of=of,
    )
    return cast("S | None", field)


@overload
def array(
    of: Callable[..., T],
    *,
    since: int = 0,
    until: int | None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> list[T]: ...
@overload
def array(
    of: Callable[..., T],
    *,
    nullable_since: int,
    since: int = 0,
    until: int | None = None,
    default: type[list[object]] | None = list,
    tag: int | None = None,
    ignorable: bool = False,
) -> list[T] | None: ...
def array(
    of: Callable[..., T],
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    default: type[list[object]] | None = list,
    tag: int | None = None,
    ignorable: bool = False,
) -> list[T] | None:
    """Declare an array; `of` is a struct class, or the specifier of the elements, such as `i32`."""
    # A struct class is used as it is; a specifier is called to get the kind of the elements.
    element = of if isinstance(of, type) else cast("Field", of()).kind
    field = Field(
        "array",
        default,
        since=since,
        until=until,
        nullable_since=nullable_since,
        tag=tag,
        ignorable=ignorable,
        of=cast("type[Struct] | Kind", element),
    )
    return cast("list[T] | None", field)
