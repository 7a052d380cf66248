"""`Source`: the base class of the generators that write the Python source of codecs.

Its subclasses generate decoders (`aiokq.wire.decode_source`) and encoders
(`aiokq.wire.encode_source`). `least_size` returns the minimum sizes of values, with which decoders
check the number of elements of an array.
"""

from __future__ import annotations

import linecache
import struct
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, cast

from aiokq.core.errors import ProtocolError
from aiokq.core.named_tuple import NamedTuple
from aiokq.wire import primitives
from aiokq.wire.fields import Field
from aiokq.wire.struct import NO_TAGS, Message, Struct

__all__ = [
    "CODES",
    "ELEMENTS_PER_STEP",
    "SIZES",
    "Context",
    "Source",
    "has_records",
    "least_size",
]

ELEMENTS_PER_STEP: Final = 32
"""Number of structs or strings after which a codec that works in steps yields."""

CODES: Final[Mapping[str, str]] = {
    "i8": "b",
    "i16": "h",
    "i32": "i",
    "i64": "q",
    "u16": "H",
    "u32": "I",
    "f64": "d",
    "boolean": "?",
}
"""`struct` format characters of the number kinds, all of fixed width."""

SIZES: Final[Mapping[str, int]] = {
    kind: struct.calcsize(">" + code) for kind, code in CODES.items()
}


class Context(NamedTuple):
    """The message version that is compiled, and whether it is flexible."""

    version: int
    flexible: bool


def least_size(kind: str, of: object, at: Context) -> int:
    """Return the minimum encoded size, in bytes, of a field or array element."""
    if kind in SIZES:
        return SIZES[kind]
    if kind == "uuid":
        return 16
    if kind == "struct":
        return least_struct_size(cast("type[Struct]", of), at)
    if at.flexible:
        return 1
    return 2 if kind == "string" else 4


def least_struct_size(cls: type[Struct], at: Context) -> int:
    """Return the minimum encoded size of a struct, in bytes."""
    size = 1 if at.flexible else 0
    for field in cls.__fields__:
        if field.in_version(at.version) and field.tag is None:
            nullable = field.kind == "struct" and field.nullable_in(at.version)
            size += 1 if nullable else least_size(field.kind, field.of, at)
    return size


def has_records(cls: type[Struct]) -> bool:
    """Return whether a message has a records field, which is decoded as a view of its frame."""
    for field in cls.__fields__:
        if field.kind == "records":
            return True
        if isinstance(field.of, type) and has_records(field.of):
            return True
    return False


class Source(ABC):
    """The Python source of a codec while it is generated.

    Attributes:
        names: the objects to which the source refers, by name.
        run: the pending run of fixed-width values, as pairs of format character and expression. The
            next flush generates one call of `struct` for the run.
        in_steps: whether the function is a generator that yields after some elements of arrays.
    """

    verb: str
    before_yield = ""
    """Statements that a codec in steps executes before it yields, each with a semicolon."""

    def __init__(self, cls: type[Message], version: int, *, in_steps: bool = False) -> None:
        self.cls = cls
        self.in_steps = in_steps
        self.at = Context(version, cls.is_flexible(version))
        self.lines: list[str] = []
        self.functions: list[list[str]] = []
        self.depth = 1
        self.names: dict[str, object] = {"NO_TAGS": NO_TAGS, "ProtocolError": ProtocolError}
        self.run: list[tuple[str, str]] = []

    def put(self, line: str) -> None:
        """Write a line at the current depth."""
        self.lines.append("    " * self.depth + line)

    @contextmanager
    def indented(self, line: str) -> Iterator[None]:
        """Write a line that opens a block; indent the lines that the `with` block writes."""
        self.put(line)
        self.depth += 1
        yield
        self.depth -= 1

    @contextmanager
    def function(self, line: str) -> Iterator[None]:
        """Write a separate function: `line` is the `def`, and the `with` block writes the body."""
        lines, depth, run, in_steps = self.lines, self.depth, self.run, self.in_steps
        self.lines, self.depth, self.run, self.in_steps = [line], 1, [], False
        yield
        self.functions.append(self.lines)
        self.lines, self.depth, self.run, self.in_steps = lines, depth, run, in_steps

    def begin_steps(self) -> None:
        """Write the first lines of a generator, if the codec is one."""
        if self.in_steps:
            self.put("k = 0")
            self.put("if k: yield")  # makes the function a generator even without arrays

    def step(self) -> None:
        """Write code that counts an element, and yields after `ELEMENTS_PER_STEP` elements."""
        if self.in_steps:
            self.put("k += 1")
            self.put(f"if not k % {ELEMENTS_PER_STEP}: {self.before_yield}yield")

    def name(self, prefix: str, value: object) -> str:
        """Return a global name for an object: always the same name for one object and prefix."""
        for known, held in self.names.items():
            if held is value and known.startswith(prefix):
                return known
        made = f"{prefix}{len(self.names)}"
        self.names[made] = value
        return made

    def primitive(self, name: str) -> str:
        """Make a function of `aiokq.wire.primitives` available to the source; return its name."""
        self.names[name] = getattr(primitives, name)
        return name

    def packer(self, form: str, method: str) -> str:
        """Make a `struct.Struct` method for a format available to the source; return its name."""
        made = f"{method}_{form.replace('?', 'B_')}"
        if made not in self.names:
            self.names[made] = getattr(struct.Struct(">" + form), method)
        return made

    def class_name(self, cls: type[Struct]) -> str:
        """Make a struct class available to the source; return its name."""
        self.names[cls.__name__] = cls
        return cls.__name__

    def fields(self, cls: type[Struct]) -> Iterator[Field]:
        """Yield the untagged fields of the version."""
        return (f for f in cls.__fields__ if f.in_version(self.at.version) and f.tag is None)

    def tagged(self, cls: type[Struct]) -> list[Field]:
        """Return the tagged fields of the version."""
        return [f for f in cls.__fields__ if f.in_version(self.at.version) and f.tag is not None]

    @abstractmethod
    def body(self) -> None:
        """Generate the main function."""

    def source(self) -> str:
        """Generate and return the whole source."""
        self.body()
        return "\n\n\n".join("\n".join(lines) for lines in [*self.functions, self.lines]) + "\n"

    def compile(self) -> object:
        """Compile the source and return its main function."""
        source = self.source()
        steps = " in steps" if self.in_steps else ""
        filename = f"<aiokq.wire {self.verb} {self.cls.__name__} v{self.at.version}{steps}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        exec(compile(source, filename, "exec"), self.names)
        return self.names[self.verb]

    def default(self, field: Field) -> str:
        """Return a Python expression for the default of a field."""
        if field.default is list:
            return "[]"
        if field.fresh_default:
            return f"{self.class_name(cast('type[Struct]', field.of))}()"
        if isinstance(field.default, uuid.UUID):
            return self.name("UUID", field.default)
        return repr(field.default)
