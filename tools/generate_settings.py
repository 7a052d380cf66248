"""Generator of the modules that type and check settings without importing the pydantic models.

``python tools/generate_settings.py [--check]`` reads `aiokq/<package>/settings.py` and writes two
modules beside it. In `overrides.py`, `ProducerOverrides` has one optional key per field of
`ProducerSettings`, with its type and description, so that editors complete
``Producer(linger_ms=...)``. In `values.py`, `ProducerValues` has the table by which such keywords
are checked. With ``--check`` nothing is written, and the exit code is 1 if a file is out of date.
"""

from __future__ import annotations

import argparse
import ast
import collections.abc
import copy
import importlib
import subprocess
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from annotated_types import Ge, Le
from pydantic import AfterValidator, BeforeValidator, SecretStr
from pydantic.fields import FieldInfo

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from aiokq.core.settings import is_list  # noqa: E402  from this checkout

PACKAGES = ("cluster", "producer", "consumer", "admin")
BASE = "Settings"


class _Secrets(ast.NodeTransformer):
    """Replaces SecretStr by another type."""

    def __init__(self, instead: str) -> None:
        self.instead = instead

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.parse(self.instead, mode="eval").body if node.id == "SecretStr" else node


class Source:
    """The source of a package's settings class."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.path = ROOT / "aiokq" / package / "settings.py"
        self.module = ast.parse(self.path.read_text())
        (self.tree,) = (
            node
            for node in self.module.body
            if isinstance(node, ast.ClassDef) and node.name == f"{package.title()}Settings"
        )
        module = importlib.import_module(f"aiokq.{package}.settings")
        self.fields = getattr(module, self.tree.name).model_fields

    @property
    def parent(self) -> str | None:
        """The package whose settings class is the base of this one."""
        bases = [ast.unparse(base) for base in self.tree.bases]
        return next((p for p in PACKAGES if f"{p.title()}Settings" in bases), None)

    def own_fields(self, secret: str) -> Iterator[tuple[str, ast.expr]]:
        """Yield name and type of each field declared here, without Annotated and its metadata.

        Args:
            secret: the type to write instead of SecretStr.
        """
        for node in self.tree.body:
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            if node.target.id not in self.fields:
                continue  # ClassVar, private attribute
            kind = node.annotation
            if isinstance(kind, ast.Subscript) and ast.unparse(kind.value).endswith("Annotated"):
                assert isinstance(kind.slice, ast.Tuple)
                kind = kind.slice.elts[0]
            yield node.target.id, _Secrets(secret).visit(copy.deepcopy(kind))

    def imports_for(self, names: set[str]) -> list[str]:
        """Return the import lines that the written module needs for `names`."""
        lines: list[str] = []
        for node in ast.walk(self.module):
            if isinstance(node, ast.Import):
                lines += [
                    ast.unparse(ast.Import([alias]))
                    for alias in node.names
                    if (alias.asname or alias.name.split(".")[0]) in names
                ]
            elif isinstance(node, ast.ImportFrom):
                lines += [
                    ast.unparse(ast.ImportFrom(node.module, [alias], node.level))
                    for alias in node.names
                    if (alias.asname or alias.name) in names
                ]
        here = f"aiokq.{self.package}.settings"
        for node in self.module.body:
            targets: list[ast.expr] = []
            if isinstance(node, ast.Assign):
                targets = node.targets
            elif isinstance(node, ast.AnnAssign):
                targets = [node.target]
            defined = [t.id for t in targets if isinstance(t, ast.Name)]
            if isinstance(node, ast.ClassDef):
                defined = [node.name]
            lines += [f"from {here} import {name}" for name in defined if name in names]
        return lines


def names_in(fields: Iterable[tuple[str, ast.expr]]) -> set[str]:
    return {node.id for _, kind in fields for node in ast.walk(kind) if isinstance(node, ast.Name)}


def render_overrides(source: Source) -> str:
    """Return the text of overrides.py."""
    fields = list(source.own_fields("str | SecretStr"))
    parent = source.parent
    inherited = set(Source(parent).fields) if parent else set()
    name = f"{source.package.title()}Overrides"
    lines = [
        f'"""{name}: the settings of {source.tree.name} as typed keywords; no behaviour.',
        "",
        "Generated by tools/generate_settings.py from settings.py; do not edit.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        *source.imports_for(names_in(fields)),
        *([] if parent else ["from typing import TypedDict"]),
        *([f"from aiokq.{parent}.overrides import {parent.title()}Overrides"] if parent else []),
        "",
        "",
        f"class {name}({parent.title() + 'Overrides' if parent else 'TypedDict'}, total=False):",
        f'    """The fields of {source.tree.name} as keywords; they override the settings."""',
        "",
    ]
    for field, kind in fields:
        if field in inherited:
            continue  # only the default differs: the type is the parent's
        lines.append(f"    {field}: {ast.unparse(kind)}")
        if description := source.fields[field].description:
            text = textwrap.wrap(" ".join(description.split()), 90)
            text[0] = f'"""{text[0]}'
            text[-1] += '"""' if len(text) == 1 else ""
            lines += [f"    {line}" for line in text] + (['    """'] if len(text) > 1 else [])
    return "\n".join(lines) + "\n"


def render_values(source: Source) -> str:
    """Return the text of values.py."""
    fields = list(source.own_fields("str"))
    parent = source.parent
    inherited = set(Source(parent).fields) if parent else set()
    model, rules = source.tree.name, f"{source.package.title()}Rules"
    package = source.package
    if not (source.path.with_name("rules.py")).exists():
        assert parent is not None
        rules = ""
    base = f"{parent.title()}Values" if parent else "Values"
    used: set[tuple[str, str]] = {
        (f"aiokq.{parent}.values" if parent else "aiokq.core.values", base)
    }
    if rules:
        used.add((f"aiokq.{package}.rules", rules))
    rows = []
    for name, _ in fields:
        row = row_of(source.fields[name], f"{model}.{name}")
        used |= row.imports
        rows.append(f"        {name!r}: {row.text},")
    lines = [
        f'"""{package.title()}Values: the settings of {model} as frozen values, without pydantic.',
        "",
        "`TABLE` contains the check of each keyword argument.",
        "",
        "Generated by tools/generate_settings.py from settings.py; do not edit.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        f"from typing import TYPE_CHECKING{', ClassVar' if rows else ''}",
        *(f"from {module} import {name}" for module, name in sorted(used) if module != "builtins"),
        "if TYPE_CHECKING:",
        *(
            f"    {line}"
            for line in sorted(
                {
                    *source.imports_for(names_in(fields) - {name for _, name in used}),
                    *(["from collections.abc import Mapping"] if rows else []),
                    f"from aiokq.{package}.settings import {model}",
                }
            )
        ),
        "",
        "",
        f"class {package.title()}Values({rules + ', ' if rules else ''}{base}):",
        f'    """The settings of {model} as frozen values."""',
        "",
        *(f"    {name}: {ast.unparse(kind)}" for name, kind in fields if name not in inherited),
    ]
    if rows:
        spread = [f"        **{base}.TABLE,"] if parent else []
        lines += ["", "    TABLE: ClassVar[Mapping[str, Row]] = {", *spread, *rows, "    }"]
    lines += [
        "",
        "    @staticmethod",
        f"    def model() -> type[{model}]:",
        f"        from aiokq.{package}.settings import {model}",
        "",
        f"        return {model}",
        "",
        "    @property",
        f"    def settings(self) -> {model}:",
        '        """The values as a settings model. The first access imports pydantic."""',
        "        return self._as(self.model())",
    ]
    return "\n".join(lines) + "\n"


@dataclass
class RowText:
    """The source of one row of a table, and its imports."""

    text: str
    imports: set[tuple[str, str]]


def row_of(field: FieldInfo, name: str) -> RowText:
    """Return the row of a model's field.

    Raises:
        TypeError: the table cannot express the field.
    """
    imports = {("aiokq.core.values", "Row")}

    def named(item: type | Callable[..., object]) -> str:
        imports.add((item.__module__, item.__qualname__))
        return item.__qualname__

    optional, kind, arguments = kind_of(field.annotation, name)
    imports.add(("aiokq.core.values", kind))
    default = field.get_default(call_default_factory=True, validated_data={})
    parts = [kind, repr(default)]
    if optional:
        parts.append("optional=True")
    for key, value in arguments.items():
        if key == "types":
            assert isinstance(value, list)
            parts.append(f"types=({', '.join(map(named, value))},)")
        else:
            parts.append(f"{key}={value!r}")
    if is_list(field.annotation):
        parts.append("splits=True")
    if not field.repr and kind != "secret":
        parts.append("hidden=True")
    for constraint in field.metadata:
        if isinstance(constraint, Ge):
            parts.append(f"at_least={constraint.ge!r}")
        elif isinstance(constraint, Le):
            parts.append(f"at_most={constraint.le!r}")
        elif isinstance(constraint, BeforeValidator):
            parts.append(f"before={named(constraint.func)}")
        elif isinstance(constraint, AfterValidator):
            parts.append(f"after={named(constraint.func)}")
        elif getattr(constraint, "allow_inf_nan", None) is not False:  # the table never allows them
            raise TypeError(f"{name}: no row of a table can say {constraint!r}")
    return RowText(f"Row({', '.join(parts)})", imports)


def kind_of(annotation: object, name: str) -> tuple[bool, str, dict[str, object]]:
    """Return whether a type includes None, the kind of its row, and further arguments of the row.

    Raises:
        TypeError: no kind expresses the type.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    union = arguments if origin in (typing.Union, types.UnionType) else (annotation,)
    optional = type(None) in union
    branches = [branch for branch in union if branch is not type(None)]
    if len(branches) == 1:
        (only,) = branches
        origin, arguments = typing.get_origin(only), typing.get_args(only)
        plain = {bool: "boolean", int: "integer", float: "real", str: "text", SecretStr: "secret"}
        if only in plain:
            return optional, plain[only], {}
        if origin is Literal:
            return optional, "choice", {"choices": arguments}
        if origin is collections.abc.Mapping and typing.get_origin(arguments[1]) is Literal:
            choices = typing.get_args(arguments[1])
            return optional, "choice_by_name", {"choices": choices}
        if origin is tuple and arguments[1:] == (...,):
            return (
                optional,
                "instances",
                {"types": list(typing.get_args(arguments[0])) or [arguments[0]]},
            )
    if branches == [str, collections.abc.Sequence[str]]:
        return optional, "text_or_texts", {}
    classes = [each for each in branches if isinstance(each, type) and not typing.get_origin(each)]
    callables = [each for each in branches if typing.get_origin(each) is collections.abc.Callable]
    if len(classes) + len(callables) == len(branches):
        more = {"takes_callables": True} if callables else {}
        return optional, "instance", {"types": classes} | more
    raise TypeError(f"{name}: no kind of a table for {annotation}")


def formatted(text: str, path: Path) -> str:
    for command in (["check", "--fix", "--quiet", "--select", "I"], ["format"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(path), "-"],
            input=text,
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        text = done.stdout
    return text


def stale(*, write: bool = False) -> list[Path]:
    """Return the files that are out of date; write them if `write`."""
    found = []
    for package in PACKAGES:
        if not (ROOT / "aiokq" / package / "settings.py").exists():
            continue
        source = Source(package)
        for name, render in (("overrides.py", render_overrides), ("values.py", render_values)):
            path = source.path.with_name(name)
            text = formatted(render(source), path)
            if not path.exists() or path.read_text() != text:
                found.append(path)
                if write:
                    path.write_text(text)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    found = stale(write=not arguments.check)
    for path in found:
        print(f"{path.relative_to(ROOT)}: {'stale' if arguments.check else 'written'}")
    return 1 if arguments.check and found else 0


if __name__ == "__main__":
    sys.exit(main())
