"""Compiles (message class, version) into encode and decode functions; owns the generated source.

The source is straight-line Python: a run of fixed-width fields, the length prefix behind it and
the count of tagged fields become one call of a precompiled `struct.Struct`, an array of integers
one unpack, nested structs are inlined, record data stays a view of the frame. It is compiled on
first use (about a millisecond) and registered with `linecache`, so that tracebacks and debuggers
show it.

Safety is in the generator, not in the messages: every slice end is compared with the end of the
frame, every count with the bytes left over the least size of an element, every varint is bounded,
and whatever goes wrong leaves as `ProtocolError`. `aiokq.wire.interpret` is the oracle for all.
"""

from __future__ import annotations

import linecache
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol, TypeAlias, cast

from aiokq.core.errors import ProtocolError
from aiokq.wire import primitives
from aiokq.wire.fields import Buffer, Field, Fragment
from aiokq.wire.struct import NO_TAGS, Message, Struct

__all__ = ["decoder", "encoder", "has_records", "least_size", "source_of"]


class Decoder(Protocol):
    """Reads a message from a position; to the end of the data, unless told that more may follow."""

    def __call__(self, data: Buffer, position: int, exact: bool = True, /) -> Message:
        """Return the message; raises `ProtocolError`."""


Encoder: TypeAlias = Callable[[Message], list[Fragment]]

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
"""Format characters of the fixed-width kinds; a uuid is fixed as well, but no number."""

SIZES: Final[Mapping[str, int]] = {
    kind: struct.calcsize(">" + code) for kind, code in CODES.items()
}


class Context(NamedTuple):
    """Version that is compiled, and whether it is flexible."""

    version: int
    flexible: bool


def least_size(kind: str, of: object, at: Context) -> int:
    """Return the fewest bytes that a value of a kind takes, as element of an array or field."""
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
    """Return the fewest bytes that a struct takes in a version."""
    size = 1 if at.flexible else 0
    for field in cls.__fields__:
        if field.in_version(at.version) and field.tag is None:
            nullable = field.kind == "struct" and field.nullable_in(at.version)
            size += 1 if nullable else least_size(field.kind, field.of, at)
    return size


def has_records(cls: type[Struct]) -> bool:
    """Tell whether a message holds record data, so that its frame is kept and referred to."""
    for field in cls.__fields__:
        if field.kind == "records":
            return True
        if isinstance(field.of, type) and has_records(field.of):
            return True
    return False


def decoder(cls: type[Message], version: int) -> Decoder:
    """Compile the decoder of a message version."""
    return cast("Decoder", _DecodeSource(cls, version).compile())


def encoder(cls: type[Message], version: int) -> Encoder:
    """Compile the encoder of a message version."""
    return cast("Encoder", _EncodeSource(cls, version).compile())


def source_of(cls: type[Message], version: int) -> str:
    """Return the generated source of both directions, to be read by people."""
    return _EncodeSource(cls, version).source() + "\n\n" + _DecodeSource(cls, version).source()


class _Source:
    """Source being written: lines, indentation, names it refers to, a pending fixed-width run."""

    verb: str

    def __init__(self, cls: type[Message], version: int) -> None:
        self.cls = cls
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
        """Write a line that opens a block, and the lines inside it one deeper."""
        self.put(line)
        self.depth += 1
        yield
        self.depth -= 1

    @contextmanager
    def function(self, line: str) -> Iterator[None]:
        """Write a separate function: the slow branch for tagged fields."""
        lines, depth, run = self.lines, self.depth, self.run
        self.lines, self.depth, self.run = [line], 1, []
        yield
        self.functions.append(self.lines)
        self.lines, self.depth, self.run = lines, depth, run

    def name(self, prefix: str, value: object) -> str:
        """Return the global name of an object, one name for the same object."""
        for known, held in self.names.items():
            if held is value and known.startswith(prefix):
                return known
        made = f"{prefix}{len(self.names)}"
        self.names[made] = value
        return made

    def primitive(self, name: str) -> str:
        """Return the name of a function of `aiokq.wire.primitives`."""
        self.names[name] = getattr(primitives, name)
        return name

    def packer(self, form: str, method: str) -> str:
        """Return the name of a bound method of a `struct.Struct`, one per format."""
        made = f"{method}_{form.replace('?', 'B_')}"
        if made not in self.names:
            self.names[made] = getattr(struct.Struct(">" + form), method)
        return made

    def class_name(self, cls: type[Struct]) -> str:
        """Return the name of a struct class."""
        self.names[cls.__name__] = cls
        return cls.__name__

    def fields(self, cls: type[Struct]) -> Iterator[Field]:
        """Yield the fields that the version has, without tagged ones."""
        return (f for f in cls.__fields__ if f.in_version(self.at.version) and f.tag is None)

    def tagged(self, cls: type[Struct]) -> list[Field]:
        """Return the tagged fields that the version has."""
        return [f for f in cls.__fields__ if f.in_version(self.at.version) and f.tag is not None]

    def body(self) -> None:
        """Write the main function."""
        raise NotImplementedError

    def source(self) -> str:
        """Return the whole source."""
        self.body()
        return "\n\n\n".join("\n".join(lines) for lines in [*self.functions, self.lines]) + "\n"

    def compile(self) -> object:
        """Compile the source and return its main function."""
        source = self.source()
        filename = f"<aiokq.wire {self.verb} {self.cls.__name__} v{self.at.version}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        exec(compile(source, filename, "exec"), self.names)
        return self.names[self.verb]

    def default(self, field: Field) -> str:
        """Return the expression of a field's default."""
        if field.default is list:
            return "[]"
        if field.fresh_default:
            return f"{self.class_name(cast('type[Struct]', field.of))}()"
        if isinstance(field.default, uuid.UUID):
            return self.name("UUID", field.default)
        return repr(field.default)


class _DecodeSource(_Source):
    """Source of a decoder.

    In the generated functions `b` is the data, `n` its length, `p` the position, `v` a length or
    count, `e` the end of a slice, `t` the number of tagged fields, `o`, `o1`, ... the structs being
    filled.
    """

    verb = "decode"

    def body(self) -> None:
        name = self.cls.__name__
        self.names["DECODE_ERRORS"] = primitives.DECODE_ERRORS
        self.names["object_new"] = object.__new__
        self.records = has_records(self.cls)
        self.lines = ["def decode(b, p, exact=True):"]
        if self.records:
            # Records are views of the frame, so the frame is read through a view throughout.
            self.put("b = memoryview(b)")
        else:
            # Bytes are the fastest to slice; the frame is not kept.
            self.put("if type(b) is not bytes: b = bytes(b)")
        self.put("n = len(b)")
        with self.indented("try:"):
            self.put(f"o = object_new({self.class_name(self.cls)})")
            self.struct(self.cls, "o", 0)
            self.flush()
            fail = self.primitive("fail")
            self.put(f"if p != n and exact: {fail}(f'{{n - p}} bytes after the message')")
            self.put("return o")
        with self.indented("except DECODE_ERRORS as error:"):
            self.put(
                f"raise ProtocolError(f'malformed {name}: {{error}}', api={self.cls.NAME!r}, "
                f"version={self.at.version}, offset=p) from error"
            )

    def take(self, code: str, target: str) -> None:
        """Add a value to the run of fixed-width values."""
        self.run.append((code, target))

    def flush(self) -> None:
        """Write the pending run as one unpack."""
        if not self.run:
            return
        form = "".join(code for code, _ in self.run)
        targets = [target for _, target in self.run]
        self.run = []
        if form == "B":
            self.put(f"{targets[0]} = b[p]; p += 1")
            return
        size = struct.calcsize(">" + form)
        left = ", ".join(targets) + ("," if len(targets) == 1 else "")
        self.put(f"{left} = {self.packer(form, 'unpack_from')}(b, p); p += {size}")

    def struct(self, cls: type[Struct], o: str, level: int) -> None:
        """Write the reading of a struct into `o`; may leave a pending run."""
        for field in self.fields(cls):
            self.field(field, f"{o}.{field.name}", level)
        absent = [
            field
            for field in cls.__fields__
            if field.tag is not None or not field.in_version(self.at.version)
        ]
        if self.at.flexible:
            self.take("B", "t")
            self.flush()
        for field in absent:
            self.put(f"{o}.{field.name} = {self.default(field)}")
        self.put(f"{o}.unknown_tags = NO_TAGS")
        if self.at.flexible:
            self.put(f"if t: p = {self.tags(cls)}(b, p - 1, n, {o})")

    def field(self, field: Field, target: str, level: int) -> None:
        """Write the reading of one field."""
        kind, at = field.kind, self.at
        if kind in CODES:
            self.take(CODES[kind], target)
        elif kind == "uuid":
            self.take("16s", "x")
            self.flush()
            self.put(f"{target} = {self.uuid('x')}")
        elif kind == "struct":
            self.nested(field, target, level)
        elif kind == "array":
            self.array(field, target, level)
        else:
            self.sized(kind, target, field.name, nullable=field.nullable_in(at.version))

    def uuid(self, raw: str) -> str:
        return f"{self.primitive('make_uuid')}({raw})"

    def prefix(self, code: str) -> int:
        """Write the reading of a length or count into `v`; returns what to subtract from it."""
        if self.at.flexible:
            self.take("B", "v")
            self.flush()
            self.put(f"if v > 127: v, p = {self.primitive('uvarint_more')}(b, p, v)")
            return 1
        self.take(code, "v")
        self.flush()
        return 0

    def sized(
        self, kind: str, target: str, name: str, *, nullable: bool, call: bool = False
    ) -> None:
        """Write the reading of a string, bytes or records."""
        bias = self.prefix("h" if kind == "string" else "i")
        piece = "b[p:e]"
        if kind == "string":
            piece = "str(b[p:e], 'utf-8')" if self.records else "b[p:e].decode()"
        elif kind == "bytes" and self.records:
            piece = "bytes(b[p:e])"
        store = f"{target}({piece})" if call else f"{target} = {piece}"
        null = f"{target}(None)" if call else f"{target} = None"
        fail = self.primitive("fail")
        minus = " - 1" if bias else ""
        if kind == "string" and bias:
            self.put(f"if v > 32768: {fail}(f'{name}: string of {{v - 1}} bytes')")
        if nullable:
            with self.indented("if not v:" if bias else "if v == -1:"):
                self.put(null)
            with self.indented("else:"):
                self.put(f"e = p + v{minus}")
                self.put(f"if not p <= e <= n: {fail}(f'{name}: {{v{minus}}} bytes of {{n - p}}')")
                self.put(f"{store}; p = e")
            return
        self.put(f"e = p + v{minus}")
        self.put(f"if not p <= e <= n: {fail}(f'{name}: {{v{minus}}} bytes of {{n - p}}')")
        self.put(f"{store}; p = e")

    def nested(self, field: Field, target: str, level: int) -> None:
        """Write the reading of a struct that is a field."""
        cls = cast("type[Struct]", field.of)
        inner = f"o{level + 1}"
        if field.nullable_in(self.at.version):
            self.take("b", "v")
            self.flush()
            with self.indented("if v < 0:"):
                self.put(f"{target} = None")
            with self.indented("else:"):
                self.put(f"{target} = {inner} = object_new({self.class_name(cls)})")
                self.struct(cls, inner, level + 1)
                self.flush()
            return
        self.flush()
        self.put(f"{target} = {inner} = object_new({self.class_name(cls)})")
        self.struct(cls, inner, level + 1)

    def array(self, field: Field, target: str, level: int) -> None:
        """Write the reading of an array."""
        nullable = field.nullable_in(self.at.version)
        bias = self.prefix("i")
        fail = self.primitive("fail")
        if bias:
            self.put("v -= 1")
        if nullable:
            with self.indented("if v == -1:"):
                self.put(f"{target} = None")
            with self.indented("else:"):
                self.elements(field, target, level, fail)
            return
        self.elements(field, target, level, fail)

    def elements(self, field: Field, target: str, level: int, fail: str) -> None:
        """Write the reading of `v` elements."""
        at, of = self.at, field.of
        is_struct = isinstance(of, type)
        kind = "struct" if is_struct else cast("str", of)
        if kind in CODES:
            # No check of the count: unpacking fails by itself where bytes are missing.
            unpack = self.int_arrays(CODES[kind], "unpack_from")
            self.put(f"{target} = [*{unpack}[v](b, p)]; p += v * {SIZES[kind]}")
            return
        least = least_size(kind, of, at)
        if least:
            left = "n - p" if least == 1 else f"(n - p) // {least}"
            self.put(
                f"if not 0 <= v <= {left}: "
                f"{fail}(f'{field.name}: {{v}} elements in {{n - p}} bytes')"
            )
        else:
            self.put(f"if v: {fail}(f'{field.name}: {{v}} elements of no size')")
        if kind == "uuid":
            self.put(
                f"{target} = [{self.uuid('b[i:i + 16]')} for i in range(p, p + v * 16, 16)]; "
                "p += v * 16"
            )
            return
        add = f"add{level + 1}"
        self.put(f"{target} = l = []; {add} = l.append")
        with self.indented("for _ in range(v):"):
            if is_struct:
                cls, inner = cast("type[Struct]", of), f"o{level + 1}"
                self.put(f"{inner} = object_new({self.class_name(cls)}); {add}({inner})")
                self.struct(cls, inner, level + 1)
                self.flush()
            else:
                self.sized(kind, add, field.name, nullable=False, call=True)

    def int_arrays(self, code: str, method: str) -> str:
        name = f"{method}_many_{code.replace('?', 'B_')}"
        self.names.setdefault(name, primitives.IntArrays(code, method))
        return name

    def tags(self, cls: type[Struct]) -> str:
        """Write the function that reads the tagged fields of a struct; returns its name."""
        if not self.tagged(cls):
            return self.primitive("read_tags")
        name = f"read_tags_{cls.__name__}"
        if name in self.names:
            return name
        self.names[name] = None  # taken: a definition in the source replaces it
        uvarint, fail = self.primitive("uvarint"), self.primitive("fail")
        unknown = self.primitive("read_unknown")
        with self.function(f"def {name}(b, p, n, o):"):
            self.put("count, p = uvarint(b, p)")
            self.put(
                f"if count > (n - p) // 2: {fail}(f'{{count}} tagged fields in {{n - p}} bytes')"
            )
            self.put("kept = {}; seen = set()")
            with self.indented("for _ in range(count):"):
                self.put(f"tag, p = {uvarint}(b, p)")
                self.put(f"size, p = {uvarint}(b, p)")
                word = "if"
                for field in self.tagged(cls):
                    with self.indented(f"{word} tag == {field.tag}:"):
                        self.put(f"if tag in seen: {fail}('tagged field {field.tag} twice')")
                        self.put("seen.add(tag); stop = p + size")
                        self.field(field, f"o.{field.name}", 0)
                        self.flush()
                        self.put(
                            f"if p != stop: {fail}('{field.name}: tagged field of another size')"
                        )
                    word = "elif"
                with self.indented("else:"):
                    self.put(f"p = {unknown}(b, p, n, kept, tag, size)")
            self.put("if kept: o.unknown_tags = kept")
            self.put("return p")
        return name


class _EncodeSource(_Source):
    """Source of an encoder.

    In the generated functions `q` is the list of small parts and `w` its append, `f` the list of
    fragments, `v` a length or count, `x` a value that may be null, `s` encoded bytes.
    """

    verb = "encode"

    def body(self) -> None:
        name = self.cls.__name__
        self.names["ENCODE_ERRORS"] = primitives.ENCODE_ERRORS
        self.names["ONE"] = tuple(bytes((value,)) for value in range(128))
        self.records = has_records(self.cls)
        self.lines = ["def encode(o):"]
        self.put("q = []; w = q.append")
        if self.records:
            self.put("f = []")
        with self.indented("try:"):
            self.struct(self.cls, "o", 0)
            self.flush()
            if self.records:
                self.put("if q: f.append(b''.join(q))")
                self.put("return f")
            else:
                self.put("return [b''.join(q)]")
        self.put("except ProtocolError: raise")
        with self.indented("except ENCODE_ERRORS as error:"):
            self.put(
                f"raise ProtocolError(f'cannot encode {name}: {{error}}', api={self.cls.NAME!r}, "
                f"version={self.at.version}) from error"
            )

    def give(self, code: str, value: str) -> None:
        """Add a value to the run of fixed-width values; `x` is a zero byte and has no value."""
        self.run.append((code, value))

    def flush(self) -> None:
        """Write the pending run as one pack."""
        if not self.run:
            return
        form = "".join(code for code, _ in self.run)
        values = [value for _, value in self.run if value]
        self.run = []
        if not values:
            self.put(f"w({bytes(len(form))!r})")
            return
        self.put(f"w({self.packer(form, 'pack')}({', '.join(values)}))")

    def struct(self, cls: type[Struct], o: str, level: int) -> None:
        """Write the writing of a struct; may leave a pending run."""
        for field in cls.__fields__:
            if not field.in_version(self.at.version) and not field.ignorable:
                self.refuse(field, f"{o}.{field.name}")
        for field in self.fields(cls):
            self.field(field, f"{o}.{field.name}", level)
        if not self.at.flexible:
            self.refuse_tags(o)
            return
        tagged = self.tagged(cls)
        conditions = [self.is_default(field, f"{o}.{field.name}") for field in tagged]
        conditions.append(f"not {o}.unknown_tags")
        run = list(self.run)
        with self.indented(f"if {' and '.join(conditions)}:"):
            self.give("x", "")
            self.flush()
        with self.indented("else:"):
            self.run = run
            self.flush()
            self.put(f"{self.tags(cls)}({o}, w)")

    def is_default(self, field: Field, value: str) -> str:
        """Return the test that a field has its default value."""
        if field.default is list:
            return f"{value} == []"
        if field.kind == "struct" and field.default is None:
            if field.tag is None or field.nullable_since is not None:
                return f"{value} is None"
            empty = self.name("EMPTY", cast("type[Struct]", field.of)())
            return f"({value} is None or {value} == {empty})"
        if field.default is None:
            return f"{value} is None"
        if field.fresh_default:
            return f"{value} == {self.name('EMPTY', field.make_default())}"
        return f"{value} == {self.default(field)}"

    def refuse(self, field: Field, value: str) -> None:
        """Write the check that a field absent in this version holds its default."""
        self.put(
            f"if not ({self.is_default(field, value)}): {self.primitive('unsupported')}"
            f"({self.cls.NAME!r}, {self.at.version}, {field.name!r})"
        )

    def refuse_tags(self, o: str) -> None:
        """Write the check that a version without tagged fields is given none."""
        self.put(
            f"if {o}.unknown_tags: {self.primitive('unsupported')}"
            f"({self.cls.NAME!r}, {self.at.version}, 'unknown_tags')"
        )

    def field(self, field: Field, value: str, level: int) -> None:
        """Write the writing of one field."""
        kind = field.kind
        if kind in CODES:
            self.give(CODES[kind], value)
        elif kind == "uuid":
            self.give("16s", f"{value}.int.to_bytes(16, 'big')")
        elif kind == "struct":
            self.nested(field, value, level)
        elif kind == "array":
            self.array(field, value, level)
        else:
            self.sized(kind, value, nullable=field.nullable_in(self.at.version))

    def prefix(self, code: str, *, text: bool = False) -> None:
        """Write `v` as length prefix behind the pending run; one more in flexible versions."""
        if not self.at.flexible:
            self.give(code, "v")
            self.flush()
            return
        many = self.primitive("string_prefix" if text else "unsigned")
        if not self.run:
            self.put(f"w(ONE[v] if v < 128 else {many}(v))")
            return
        run = list(self.run)
        with self.indented("if v < 128:"):
            self.give("B", "v")
            self.flush()
        with self.indented("else:"):
            self.run = run
            self.flush()
            self.put(f"w({many}(v))")

    def sized(self, kind: str, value: str, *, nullable: bool) -> None:
        """Write the writing of a string, bytes or records."""
        text, plus = kind == "string", " + 1" if self.at.flexible else ""
        code, null = "h" if text else "i", "0" if self.at.flexible else "-1"
        length = f"{self.primitive('records_length')}(s)" if kind == "records" else "len(s)"
        convert = "x.encode()" if text else "x"
        if nullable:
            self.put(f"x = {value}")
            self.put(f"if x is None: s = b''; v = {null}")
            self.put(f"else: s = {convert}; v = {length}{plus}")
        else:
            self.put(f"s = {convert.replace('x', value, 1) if text else value}; v = {length}{plus}")
        self.prefix(code, text=text)
        if kind == "records":
            self.put(f"{self.primitive('put_records')}(q, f, s, v{' - 1' if plus else ''})")
        else:
            self.put("w(s)")

    def nested(self, field: Field, value: str, level: int) -> None:
        """Write the writing of a struct that is a field."""
        cls = cast("type[Struct]", field.of)
        inner = f"o{level + 1}"
        self.flush()
        self.put(f"{inner} = {value}")
        if field.nullable_in(self.at.version):
            with self.indented(f"if {inner} is None:"):
                self.put(r"w(b'\xff')")
            with self.indented("else:"):
                self.put(r"w(b'\x01')")
                self.struct(cls, inner, level + 1)
                self.flush()
            return
        self.struct(cls, inner, level + 1)

    def array(self, field: Field, value: str, level: int) -> None:
        """Write the writing of an array."""
        x = f"x{level}"
        nullable, flexible = field.nullable_in(self.at.version), self.at.flexible
        self.put(f"{x} = {value}")
        if nullable:
            self.put(f"if {x} is None: v = {0 if flexible else -1}; {x} = ()")
            self.put(f"else: v = len({x}){' + 1' if flexible else ''}")
        else:
            self.put(f"v = len({x}){' + 1' if flexible else ''}")
        self.prefix("i")
        if isinstance(field.of, type):
            inner = f"o{level + 1}"
            with self.indented(f"for {inner} in {x}:"):
                self.struct(field.of, inner, level + 1)
                self.flush()
            return
        kind = cast("str", field.of)
        if kind in CODES:
            name = f"pack_many_{CODES[kind].replace('?', 'B_')}"
            self.names.setdefault(name, primitives.IntArrays(CODES[kind], "pack"))
            self.put(f"if {x}: w({name}[len({x})](*{x}))")
        elif kind == "uuid":
            self.put(f"for s in {x}: w(s.int.to_bytes(16, 'big'))")
        else:
            with self.indented(f"for x in {x}:"):
                self.sized(kind, "x", nullable=False)

    def tags(self, cls: type[Struct]) -> str:
        """Write the function that writes the tagged fields of a struct; returns its name."""
        if not self.tagged(cls):
            return self.primitive("write_tags")
        name = f"write_tags_{cls.__name__}"
        if name in self.names:
            return name
        self.names[name] = None  # taken: a definition in the source replaces it
        with self.function(f"def {name}(o, w_outer):"):
            self.put("known = {}")
            for field in self.tagged(cls):
                value = f"o.{field.name}"
                with self.indented(f"if not ({self.is_default(field, value)}):"):
                    self.put("q = []; w = q.append")
                    self.field(field, value, 0)
                    self.flush()
                    self.put(f"known[{field.tag}] = b''.join(q)")
            self.put(f"w_outer({self.primitive('tagged_section')}(known, o.unknown_tags))")
        return name
