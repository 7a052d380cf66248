"""Generator of the Python source of decoders, including all checks of untrusted bytes."""

from __future__ import annotations

import struct
from typing import cast

from aiokq.wire import primitives
from aiokq.wire.fields import Field
from aiokq.wire.source import CODES, SIZES, Source, has_records, least_size
from aiokq.wire.struct import Struct

__all__ = ["DecodeSource"]


class DecodeSource(Source):
    """The source of a decoder.

    In the generated functions `b` is the data, `n` its length, `p` the position, `v` a length or
    count, `e` the end of a slice, `t` the number of tagged fields, `o`, `o1`, ... the structs being
    filled, `k` the number of elements so far.
    """

    verb = "decode"

    def body(self) -> None:
        name = self.cls.__name__
        self.names["DECODE_ERRORS"] = primitives.DECODE_ERRORS
        self.names["object_new"] = object.__new__
        self.records = has_records(self.cls)
        self.lines = ["def decode(b, p, exact=True):"]
        if self.records:
            # Records are views of the frame, so all fields are read through a view.
            self.put("b = memoryview(b)")
        else:
            # Slicing `bytes` is fastest. Without records, no decoded value refers to the frame, so
            # the frame may be copied.
            self.put("if type(b) is not bytes: b = bytes(b)")
        self.put("n = len(b)")
        self.begin_steps()
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
        """Add a format character, and the target of its value, to the pending run."""
        self.run.append((code, target))

    def flush(self) -> None:
        """Generate one unpack call for the pending run of fixed-width values."""
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
        """Generate code to read a struct into `o`; its last fields may stay in the pending run."""
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
        """Generate code that reads a length or count into `v`.

        Returns:
            1 if the generated code has to subtract 1 from `v` (compact lengths), else 0.
        """
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
        """Generate code that reads a string, bytes or records.

        Args:
            call: whether `target` is a function that takes the value, instead of an attribute.
        """
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
        cls = cast("type[Struct]", field.of)
        inner = f"o{level + 1}"
        if field.nullable_in(self.at.version):
            self.take("b", "v")
            self.flush()
            null = "v == 0" if field.says_null else "v < 0"
            with self.indented(f"if {null}:"):
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
        """Generate code that reads the `v` elements of an array."""
        at, of = self.at, field.of
        is_struct = isinstance(of, type)
        kind = "struct" if is_struct else cast("str", of)
        if kind in CODES:
            # The count needs no check, because unpacking fails if bytes are missing.
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
            self.step()

    def int_arrays(self, code: str, method: str) -> str:
        name = f"{method}_many_{code.replace('?', 'B_')}"
        self.names.setdefault(name, primitives.IntArrays(code, method))
        return name

    def tags(self, cls: type[Struct]) -> str:
        """Generate a function that reads the tagged fields of a struct; return its name."""
        if not self.tagged(cls):
            return self.primitive("read_tags")
        name = f"read_tags_{cls.__name__}"
        if name in self.names:
            return name
        self.names[name] = None  # reserved: the generated source defines the function
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
