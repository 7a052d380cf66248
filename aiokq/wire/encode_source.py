"""Generator of the Python source of encoders, including the checks of values."""

from __future__ import annotations

from typing import cast

from aiokq.wire import primitives
from aiokq.wire.fields import Field
from aiokq.wire.source import CODES, Source, has_records
from aiokq.wire.struct import Struct

__all__ = ["EncodeSource"]


class EncodeSource(Source):
    """The source of an encoder.

    In the generated functions `q` is the list of small parts and `w` its `append` method, `f` the
    list of fragments, `v` a length or count, `x` a value that may be null, `s` encoded bytes, `k`
    the number of elements so far.
    """

    verb = "encode"
    # Parts are joined step by step, because the last join of all of them would take long.
    before_yield = "q[j:] = [b''.join(q[j:])]; j += 1; "

    def body(self) -> None:
        name = self.cls.__name__
        self.names["ENCODE_ERRORS"] = primitives.ENCODE_ERRORS
        self.names["ONE"] = tuple(bytes((value,)) for value in range(128))
        self.records = has_records(self.cls)
        self.lines = ["def encode(o):"]
        self.put("q = []; w = q.append")
        if self.records:
            self.put("f = []")
        if self.in_steps:
            self.put("j = 0")  # number of parts that are joined
        self.begin_steps()
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
        """Add a value to the pending run; the code `x` is for a zero byte and takes no value."""
        self.run.append((code, value))

    def flush(self) -> None:
        """Generate one pack call for the pending run of fixed-width values."""
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
        """Generate code to write a struct; its last fields may stay in the pending run."""
        for field in cls.__fields__:
            if not field.in_version(self.at.version) and not field.ignorable:
                self.refuse(field, f"{o}.{field.name}")
        for field in self.fields(cls):
            self.field(field, f"{o}.{field.name}", level)
        if not self.at.flexible:
            self.refuse_tags(o)
            return
        tagged = self.tagged(cls)
        conditions = [self.is_left_out(field, f"{o}.{field.name}") for field in tagged]
        conditions.append(f"not {o}.unknown_tags")
        run = list(self.run)
        with self.indented(f"if {' and '.join(conditions)}:"):
            self.give("x", "")
            self.flush()
        with self.indented("else:"):
            self.run = run
            self.flush()
            self.put(f"{self.tags(cls)}({o}, w)")

    def is_left_out(self, field: Field, value: str) -> str:
        """Return a Python expression that is true if a tagged field is left out."""
        return "False" if field.says_null else self.is_default(field, value)

    def is_default(self, field: Field, value: str) -> str:
        """Return a Python expression that is true if a field has its default value."""
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
        """Generate the check, for a version without `field`, that `value` is the default."""
        self.put(
            f"if not ({self.is_default(field, value)}): {self.primitive('unsupported')}"
            f"({self.cls.NAME!r}, {self.at.version}, {field.name!r})"
        )

    def refuse_tags(self, o: str) -> None:
        """Generate a check that `o` has no unknown tags, for versions without tagged fields."""
        self.put(
            f"if {o}.unknown_tags: {self.primitive('unsupported')}"
            f"({self.cls.NAME!r}, {self.at.version}, 'unknown_tags')"
        )

    def field(self, field: Field, value: str, level: int) -> None:
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
        """Generate code that writes the pending run and the length or count in `v`.

        In flexible versions `v` is one more than the length or count.
        """
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
        """Generate code that writes a string, bytes or records."""
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
        cls = cast("type[Struct]", field.of)
        inner = f"o{level + 1}"
        self.flush()
        self.put(f"{inner} = {value}")
        if field.nullable_in(self.at.version):
            with self.indented(f"if {inner} is None:"):
                self.put(r"w(b'\x00')" if field.says_null else r"w(b'\xff')")
            with self.indented("else:"):
                self.put(r"w(b'\x01')")
                self.struct(cls, inner, level + 1)
                self.flush()
            return
        self.struct(cls, inner, level + 1)

    def array(self, field: Field, value: str, level: int) -> None:
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
                self.step()
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
                self.step()

    def tags(self, cls: type[Struct]) -> str:
        """Generate a function that writes the tagged fields of a struct; return its name."""
        if not self.tagged(cls):
            return self.primitive("write_tags")
        name = f"write_tags_{cls.__name__}"
        if name in self.names:
            return name
        self.names[name] = None  # reserved: the generated source defines the function
        with self.function(f"def {name}(o, w_outer):"):
            self.put("known = {}")
            for field in self.tagged(cls):
                value = f"o.{field.name}"
                with self.indented(f"if not ({self.is_left_out(field, value)}):"):
                    self.put("q = []; w = q.append")
                    self.field(field, value, 0)
                    self.flush()
                    self.put(f"known[{field.tag}] = b''.join(q)")
            self.put(f"w_outer({self.primitive('tagged_section')}(known, o.unknown_tags))")
        return name
