"""`Struct` and the base classes of messages: how message classes are created.

A struct is a mutable class with slots. The class body declares its fields with the specifiers of
`aiokq.wire.fields`. Type checkers and the functions of `dataclasses` (`fields`, `replace`,
`asdict`) treat a struct as a dataclass. The `dataclass` decorator is not used, because it takes
half a millisecond per class, and a broker, which starts in 150 ms, loads some two hundred classes.
The metaclass here takes microseconds per class. The `__init__` of a class is compiled only when
several instances of the class have been created.
"""

from __future__ import annotations

import dataclasses
import linecache
from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    ClassVar,
    Final,
    Generic,
    NoReturn,
    TypeVar,
    cast,
    dataclass_transform,
)

from aiokq.core.named_tuple import OBJECTS_WITHOUT_CONSTRUCTOR
from aiokq.wire.fields import Field

__all__ = ["NO_TAGS", "Message", "Request", "Response", "Struct", "StructType"]


class _NoTags(dict[int, bytes]):
    """The read-only empty dictionary that all structs without unknown tags share.

    It is a subclass of `dict`, because a `MappingProxyType` cannot be copied or pickled.
    """

    __slots__ = ()

    def _read_only(self, *_: object) -> NoReturn:
        raise TypeError("NO_TAGS is shared: assign a dictionary to unknown_tags instead")

    __setitem__ = setdefault = update = __ior__ = _read_only

    def __reduce__(self) -> str:
        """Return the name of the shared instance, for copying and pickling."""
        return "NO_TAGS"


NO_TAGS: Final[Mapping[int, bytes]] = _NoTags()
"""The value of `Struct.unknown_tags` if there are no unknown tags; shared and read-only."""


_created: Final[dict[type, int]] = {}
"""For each class whose `__init__` is not compiled: the number of instances created so far."""


def _dataclass_field(factory: Callable[[], object]) -> dataclasses.Field[object]:
    # The cast is needed because typeshed declares that `field()` returns a value of the field, not
    # a `Field`.
    return cast("dataclasses.Field[object]", dataclasses.field(default_factory=factory))


class _DataclassFields:
    """Descriptor of `__dataclass_fields__`, which `dataclasses.replace` and `asdict` read."""

    def __get__(self, instance: object, owner: StructType) -> dict[str, dataclasses.Field[object]]:
        made: dict[str, dataclasses.Field[object]] = {
            field.name: _dataclass_field(field.make_default) for field in owner.__fields__
        }
        made["unknown_tags"] = _dataclass_field(lambda: NO_TAGS)
        for name, entry in made.items():
            entry.name = name
            entry.type = owner.__annotations__.get(name, "Mapping[int, bytes]")
            # `dataclasses.fields` returns only entries with this mark, which `dataclass` would set.
            entry._field_type = dataclasses._FIELD  # type: ignore[attr-defined]
        return made


class _DataclassParams:
    """Parameters that `pprint` reads; `repr` is False, because `Struct` has its own `__repr__`."""

    repr = False


_DATACLASS_PARAMS: Final = _DataclassParams()


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """Metaclass of structs: turns the specifiers of a class body into slots and `__fields__`."""

    __fields__: tuple[Field, ...]

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, object],
        **options: object,
    ) -> StructType:
        """Create the class.

        Raises:
            TypeError: both the class and a base class have fields; Kafka's structs do not extend
                each other.
        """
        fields: list[Field] = []
        for key, value in namespace.items():
            if isinstance(value, Field):
                value.name = key
                fields.append(value)
        for field in fields:
            del namespace[field.name]
        for base in bases:
            if fields and isinstance(base, StructType) and base.__fields__:
                raise TypeError(f"{name} would inherit the fields of {base.__name__}")
        if "__slots__" not in namespace:
            namespace["__slots__"] = tuple(field.name for field in fields)
        namespace["__fields__"] = tuple(fields)
        return super().__new__(mcs, name, bases, namespace, **options)


class Struct(metaclass=StructType):
    """A struct of the wire protocol, for all versions; its arguments are keyword-only.

    Attributes:
        unknown_tags: the received tagged fields that the class does not define, by tag. Encoding
            writes them unchanged.
    """

    __slots__ = ("unknown_tags",)

    __fields__: ClassVar[tuple[Field, ...]] = ()
    __dataclass_fields__ = _DataclassFields()
    __dataclass_params__ = _DATACLASS_PARAMS

    if TYPE_CHECKING:
        # This line tells type checkers the default of the argument `unknown_tags`. At run time, a
        # slot cannot have a default.
        unknown_tags: Mapping[int, bytes] = NO_TAGS

    def __init__(self, **values: object) -> None:
        """Set the given fields to their values, and the other fields to their defaults."""
        cls = type(self)
        created = _created[cls] = _created.get(cls, 0) + 1
        if created <= OBJECTS_WITHOUT_CONSTRUCTOR and _assign(self, values):
            return
        _created.pop(cls, None)
        cls.__init__ = _compile_init(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        """Compare type, fields and unknown tags."""
        if type(other) is not type(self):
            return NotImplemented
        return (
            all(
                getattr(self, field.name) == getattr(other, field.name) for field in self.__fields__
            )
            and self.unknown_tags == other.unknown_tags
        )

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __reduce__(self) -> tuple[object, ...]:
        """Support copying and pickling; records that are a view of a frame cannot be pickled."""
        values = {field.name: getattr(self, field.name) for field in self.__fields__}
        return _restore, (type(self), values, dict(self.unknown_tags))

    def __repr__(self) -> str:
        """Show the fields that differ from their defaults; for bytes and records, only the length.

        Bytes may contain payloads and credentials, which must not appear in logs or tracebacks.
        """
        shown = []
        for field in self.__fields__:
            value = getattr(self, field.name)
            if field.kind in ("bytes", "records"):
                if value is not None and len(value):
                    shown.append(f"{field.name}=<{_length(value)} bytes>")
            elif not field.is_default(value):
                shown.append(f"{field.name}={value!r}")
        if self.unknown_tags:
            shown.append(f"unknown_tags={sorted(self.unknown_tags)}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _restore(cls: type[Struct], values: dict[str, object], tags: dict[int, bytes]) -> Struct:
    return cls(unknown_tags=tags or NO_TAGS, **values)


def _length(value: object) -> int:
    if isinstance(value, list | tuple):
        return sum(len(part) for part in value)
    return len(cast("bytes", value))


def _assign(struct: Struct, values: Mapping[str, object]) -> bool:
    """Set the fields as `__init__` does; return False if a name in `values` is not a parameter."""
    given = 0
    for field in struct.__fields__:
        if field.name in values:
            given += 1
            setattr(struct, field.name, values[field.name])
        else:
            setattr(struct, field.name, field.make_default())
    if "unknown_tags" in values:
        given += 1
    struct.unknown_tags = cast("Mapping[int, bytes]", values.get("unknown_tags", NO_TAGS))
    return given == len(values)


def _compile_init(cls: StructType) -> Callable[..., None]:
    """Compile the `__init__` of a struct; it creates a new object for each mutable default."""
    names: dict[str, object] = {"NO_TAGS": NO_TAGS, "MISSING": dataclasses.MISSING}
    parameters, body = [], []
    for field in cls.__fields__:
        name = field.name
        if field.default is list:
            parameters.append(f"{name}=MISSING")
            body.append(f" self.{name} = [] if {name} is MISSING else {name}")
        elif field.fresh_default:
            names[f"new_{name}"] = field.default
            parameters.append(f"{name}=MISSING")
            body.append(f" self.{name} = new_{name}() if {name} is MISSING else {name}")
        else:
            names[f"default_{name}"] = field.default
            parameters.append(f"{name}=default_{name}")
            body.append(f" self.{name} = {name}")
    parameters.append("unknown_tags=NO_TAGS")
    body.append(" self.unknown_tags = unknown_tags")
    source = f"def __init__(self, *, {', '.join(parameters)}):\n" + "\n".join(body) + "\n"
    filename = f"<aiokq.wire init {cls.__module__}.{cls.__qualname__}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    exec(compile(source, filename, "exec"), names)
    init = cast("Callable[..., None]", names["__init__"])
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


class Message(Struct):
    """A struct that is not nested.

    It is a request, a response, the key or value of a record, or data of the consumer protocol.

    Attributes:
        NAME: Kafka's name of the API if the message is a request or response, otherwise of the
            schema.
        MIN_VERSION: oldest version that can be encoded and decoded.
        MAX_VERSION: newest version that Kafka has released.
        UNSTABLE_VERSION: newest version that Kafka has not released. It can be decoded and encoded,
            but must not be advertised or negotiated. `None` if there is no such version.
        FLEXIBLE_SINCE: first version with compact lengths and tagged fields (KIP-482).
            `None` if there is no such version.
        RECORD_TYPE: type number of a coordinator record or cluster metadata record; `None` for
            other messages.
    """

    __slots__ = ()

    NAME: ClassVar[str]
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    UNSTABLE_VERSION: ClassVar[int | None] = None
    FLEXIBLE_SINCE: ClassVar[int | None] = None
    RECORD_TYPE: ClassVar[int | None] = None

    @classmethod
    def supports(cls, version: int) -> bool:
        """Return whether a version can be encoded and decoded."""
        return cls.MIN_VERSION <= version <= (cls.UNSTABLE_VERSION or cls.MAX_VERSION)

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Return whether a version has compact lengths and tagged fields."""
        return cls.FLEXIBLE_SINCE is not None and version >= cls.FLEXIBLE_SINCE


class Response(Message):
    """Base class of responses. A response class is declared with its request class.

    For example: ``class XResponse(Response, request=XRequest)``.

    Attributes:
        API_KEY: key of the API.
    """

    __slots__ = ()

    API_KEY: ClassVar[int]

    def __init_subclass__(cls, *, request: type[Request[Response]]) -> None:
        """Copy key, name and versions from the request class; set the `RESPONSE` of that class."""
        super().__init_subclass__()
        request.RESPONSE = cls
        cls.API_KEY = request.API_KEY
        cls.NAME = request.NAME
        cls.MIN_VERSION = request.MIN_VERSION
        cls.MAX_VERSION = request.MAX_VERSION
        cls.UNSTABLE_VERSION = request.UNSTABLE_VERSION
        cls.FLEXIBLE_SINCE = request.FLEXIBLE_SINCE


R = TypeVar("R", bound=Response, covariant=True)


class Request(Message, Generic[R]):
    """Base class of requests, generic in the response class.

    Attributes:
        API_KEY: key of the API, as in the request header.
        RESPONSE: class of the response.
    """

    __slots__ = ()

    API_KEY: ClassVar[int]
    RESPONSE: ClassVar[type[Response]]
