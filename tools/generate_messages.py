"""Generator of first drafts of message files from Kafka's JSON definitions; used to add an API.

    python tools/generate_messages.py DescribeLogDirs              # aiokq/wire/describe_log_dirs.py
    python tools/generate_messages.py --module group_records OffsetCommitKey OffsetCommitValue
    python tools/generate_messages.py --exports [--check]          # lists and headlines

An API is named without `Request` or `Response`; both are written to one file. With `--module` the
names are schemas that are not requests (contents of records, the consumer protocol). `--exports`
writes `aiokq/wire/__init__.pyi` and the tables between the markers in `catalog.py` from the
existing files, and the headlines of those files from `api_purposes.py`; with `--check` it writes
nothing, and the exit code is 1 if a file is out of date.

The definitions are read from `.cache/kafka`, which `make kafka` fills. An existing file is
overwritten only with `--force`: drafts are committed and then maintained by hand, and
`tests/unit/wire/test_definitions.py` compares every field with the JSON.

A nested struct keeps Kafka's name, unless another exported struct has that name or the name is
unclear without its message. Such a struct gets the name of the API as a prefix
(`FetchLeaderIdAndEpoch`). If request and response have different structs of the same name, the
struct of the response gets the name of its message as a prefix.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

from tools import kafka_schema
from tools.api_purposes import headline_of
from tools.kafka_schema import Definition, snake_case, versions

ROOT = Path(__file__).resolve().parent.parent
WIRE = ROOT / "aiokq" / "wire"
MACHINERY = {
    "__init__",
    "catalog",
    "codec",
    "compile",
    "decode_source",
    "encode_source",
    "fields",
    "frames",
    "interpret",
    "primitives",
    "produced",
    "source",
    "struct",
    "versions",
}

GENERIC = {
    "Assignment",
    "Endpoint",
    "Listener",
    "Member",
    "Node",
    "OpData",
    "PartitionResponse",
    "PartitionResult",
    "TopicMetadata",
    "TopicPartition",
    "TopicPartitions",
    "TopicResponse",
    "TopicResult",
    "Topic",
    "ValueData",
}
"""Struct names that are unclear outside their message, and therefore get a prefix."""

CHOSEN = {
    ("ClientQuotaRecord", "EntityData"): "ClientQuotaEntityData",
    ("DescribeGroupsResponse", "DescribedGroup"): "DescribedGroup",
}
"""Class names by message and struct that override the rules."""

KINDS = {
    "bool": ("boolean", "bool"),
    "bytes": ("bytes_", "bytes"),
    "float64": ("f64", "float"),
    "int16": ("i16", "int"),
    "int32": ("i32", "int"),
    "int64": ("i64", "int"),
    "int8": ("i8", "int"),
    "records": ("records", "Records"),
    "string": ("string", "str"),
    "uint16": ("u16", "int"),
    "uint32": ("u32", "int"),
    "uuid": ("uuid_", "uuid.UUID"),
}


class Draft:
    """A message file: the classes of an API or of a few related schemas."""

    def __init__(self, messages: list[Definition], names: dict[tuple[str, str], str]) -> None:
        self.messages = messages
        self.names = names  # (message, Kafka's struct name) to class name
        self.specifiers: set[str] = set()
        self.bases: set[str] = set()
        self.classes: list[str] = []
        self.written: set[str] = set()

    def source(self, headline: str) -> str:
        """Return the text of the module."""
        for message in self.messages:
            self._message(message)
        imports = ["from __future__ import annotations", ""]
        if "uuid_" in self.specifiers:
            imports += ["import uuid", ""]
        if "records" in self.specifiers:
            self.specifiers.add("Records")
        fields = ", ".join(sorted(self.specifiers))
        if fields:
            imports.append(f"from aiokq.wire.fields import {fields}")
        imports.append(f"from aiokq.wire.struct import {', '.join(sorted(self.bases))}")
        exported = ", ".join(f'"{name}"' for name in sorted(self.written))
        parts = [f'"""{headline}"""', "\n".join(imports), f"__all__ = [{exported}]", *self.classes]
        return "\n\n".join(parts) + "\n"

    def _message(self, message: Definition) -> None:
        structs = kafka_schema.structs_of(message)
        for name in _dependencies_first(message, structs):
            self._struct(message, name, structs[name])
        self._top(message)

    def _struct(self, message: Definition, name: str, fields: list[Definition]) -> None:
        title = self.names[message["name"], name]
        if title in self.written:
            return
        self.bases.add("Struct")
        first = " and ".join(self._places(message, name))
        body = _docstring(first, [f"Source: `{message['name']}.json`, struct `{name}`."])
        self._class(title, "Struct", body, message, fields)

    def _places(self, message: Definition, struct: str) -> list[str]:
        """Return the fields of the message that hold a struct."""
        places = []
        for owner, field in kafka_schema.fields_of(message):
            if field["type"].removeprefix("[]") == struct:
                word = "element" if field["type"].startswith("[]") else "value"
                owner = self.names[message["name"], owner]
                places.append(f"{word} of `{owner}.{snake_case(field['name'])}`")
        places[0] = places[0][0].upper() + places[0][1:]
        return places

    def _top(self, message: Definition) -> None:
        name = message["name"]
        bounds = versions(message["validVersions"])
        assert bounds is not None
        flexible = versions(message.get("flexibleVersions", "none"))
        constants = []
        kind = message["type"]
        if kind == "response":
            base = f"Response, request={name.removesuffix('Response')}Request"
            self.bases.add("Response")
            title = f"Response to `{name.removesuffix('Response')}Request`."
        else:
            if kind == "request":
                base = f'Request["{name.removesuffix("Request")}Response"]'
                self.bases.add("Request")
                constants.append(f"API_KEY = {message['apiKey']}")
                title = f"Request of the {name.removesuffix('Request')} API."
            else:
                base = "Message"
                self.bases.add("Message")
                title = {
                    "coordinator-key": "Key of a coordinator's record.",
                    "coordinator-value": "Value of a coordinator's record.",
                    "metadata": "Record of the cluster's metadata.",
                }.get(kind, "Schema that is embedded in messages or records.")
            unstable = bool(message.get("latestVersionUnstable"))
            constants.append(f'NAME = "{name.removesuffix("Request")}"')
            constants.append(f"MIN_VERSION = {bounds[0]}")
            constants.append(f"MAX_VERSION = {(bounds[1] or 0) - unstable}")
            if unstable:
                constants.append(f"UNSTABLE_VERSION = {bounds[1]}")
            if flexible is not None:
                constants.append(f"FLEXIBLE_SINCE = {flexible[0]}")
            if kind in ("coordinator-key", "coordinator-value", "metadata"):
                constants.append(f"RECORD_TYPE = {message['apiKey']}")
        body = _docstring(title, [*message["notes"], f"Source: `{name}.json`."])
        if constants:
            body += "\n\n" + "\n".join(constants)
        self._class(name, base, body, message, message["fields"])

    def _class(
        self, title: str, base: str, body: str, message: Definition, fields: list[Definition]
    ) -> None:
        lines = [body]
        for field in fields:
            lines.append(
                "\n" + self._field(message, field)
                if field is fields[0]
                else self._field(message, field)
            )
        self.classes.append(
            f"\nclass {title}({base}):\n" + textwrap.indent("\n".join(lines), "    ")
        )
        self.written.add(title)

    def _field(self, message: Definition, field: Definition) -> str:
        kafka_type = field["type"]
        element = kafka_type.removeprefix("[]")
        is_array, is_struct = kafka_type != element, element not in KINDS
        if is_struct:
            of = hint = self.names[message["name"], element]
        else:
            of, hint = KINDS[element]
        arguments, specifier = [], of
        self.specifiers.add("array" if is_array else "struct" if is_struct else of)
        if is_array:
            specifier, hint = "array", f"list[{hint}]"
            arguments.append(of)
            if not is_struct:
                self.specifiers.add(of)
        elif is_struct:
            specifier = "struct"
            arguments.append(of)
        arguments += self._versions(message, field)
        tagged = field.get("tag") is not None
        nullable = "nullableVersions" in field
        if (nullable and kafka_type != "records") or (is_struct and not is_array and tagged):
            hint += " | None"
        default = _default(field, is_struct and not is_array)
        if default is not None:
            arguments.append(f"default={default}")
        if tagged:
            arguments.append(f"tag={field['tag']}")
        if field.get("ignorable") in (True, "true"):
            arguments.append("ignorable=True")
        line = f"{snake_case(field['name'])}: {hint} = {specifier}({', '.join(arguments)})"
        return f"{line}\n{_docstring(field.get('about', 'Not described.'))}\n"

    def _versions(self, message: Definition, field: Definition) -> list[str]:
        last = versions(message["validVersions"])
        assert last is not None
        bounds = versions(field.get("versions") or field["taggedVersions"])
        assert bounds is not None
        since, until = bounds
        arguments = []
        if since > 0:
            arguments.append(f"since={since}")
        if until is not None and until < (last[1] or 0):
            arguments.append(f"until={until}")
        nullable = versions(field.get("nullableVersions", "none"))
        if nullable is not None and field["type"] != "records":
            arguments.append(f"nullable_since={nullable[0]}")
        return arguments


def _default(field: Definition, is_struct: bool) -> str | None:
    """Return the source of an explicit default that differs from the type's default."""
    if is_struct or "default" not in field:
        return None
    default, kind = field["default"], field["type"]
    if default in (None, "null"):
        return "None"
    if kind == "bool":
        return "True" if default in (True, "true") else None
    if kind.startswith(("int", "uint")):
        number = int(str(default), 0)
        return None if number == 0 else str(number)
    if kind == "string":
        return json.dumps(default) if default else None
    raise ValueError(f"default {default!r} of {field['name']} ({kind})")


def _docstring(first: str, rest: list[str] = []) -> str:  # noqa: B006  # never changed
    paragraphs = [textwrap.fill(_clean(text), 90) for text in [first, *rest]]
    text = "\n\n".join(paragraphs)
    return f'"""{text}\n"""' if "\n" in text else f'"""{text}"""'


def _clean(text: str) -> str:
    text = re.sub(r"\s+", " ", text).strip().replace("\\", "\\\\")
    return text if text.endswith((".", ":", "!", '."')) else text + "."


def _dependencies_first(message: Definition, structs: dict[str, list[Definition]]) -> list[str]:
    order: list[str] = []

    def visit(fields: list[Definition]) -> None:
        for field in fields:
            name = field["type"].removeprefix("[]")
            if name in structs and name not in order:
                visit(structs[name])
                order.append(name)

    visit(message["fields"])
    return order


def _base(message: str) -> str:
    return re.sub(r"(Request|Response|Key|Value)$", "", message)


def _prefixed(base: str, name: str) -> str:
    """Prefix the API's name, without repeating the part that both names share."""
    if name.startswith(base):
        return name
    for size in range(min(len(base), len(name)), 3, -1):
        if base.endswith(name[:size]):
            return base + name[size:]
    return base + name


def class_names(messages: list[Definition], taken: Counter[str]) -> dict[tuple[str, str], str]:
    """Choose the class name of each nested struct.

    Args:
        taken: for each struct name, the number of message files and APIs that use it.
    """
    names: dict[tuple[str, str], str] = {}
    shapes: dict[str, object] = {}
    for message in messages:
        for struct, fields in kafka_schema.structs_of(message).items():
            title = struct
            if (taken[struct] > 1 or struct in GENERIC) and struct != message["name"]:
                title = _prefixed(_base(message["name"]), struct)
            shape = [
                {key: field[key] for key in sorted(field.keys() - {"about", "entityType"})}
                for field in fields
            ]
            if shapes.setdefault(title, shape) != shape:
                title = _prefixed(message["name"], struct)
            names[message["name"], struct] = CHOSEN.get((message["name"], struct), title)
    return names


def exported() -> dict[str, list[str]]:
    """Return the public classes of each message file that exists."""
    found = {}
    for path in sorted(WIRE.glob("*.py")):
        if path.stem in MACHINERY:
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                found[path.stem] = sorted(ast.literal_eval(node.value))
    return found


STUB_HEAD = '''\
"""Types of what aiokq.wire exports. Generated by tools/generate_messages.py; do not edit."""

'''


def exports() -> dict[Path, str]:
    """Return the texts of `__init__.pyi`, `catalog.py` and the message files in `aiokq/wire`.

    Of a message file, only the headline is replaced.
    """
    modules = exported()
    headlines = {}
    rows = []
    for module, names in modules.items():
        lines = textwrap.wrap(" ".join(names), 80)
        quoted = "".join(f'        "{line} "\n' for line in lines)
        rows.append(f'    "{module}": (\n{quoted}    ),')
    apis = []
    for module in modules:
        file = WIRE / f"{module}.py"
        text = file.read_text()
        for request, key, name in re.findall(
            r'class (\w+)\(Request\[.*?API_KEY = (\d+)\s+NAME = "(\w+)"', text, re.DOTALL
        ):
            apis.append((int(key), f'    {key}: ("{name}", "{module}", "{request}"),'))
            rest = text.partition("\n")[2]
            headlines[file] = f'"""{headline_of(name, int(key))}"""\n{rest}'
    path = WIRE / "catalog.py"
    catalog = _replaced(path.read_text(), "modules", rows)
    catalog = _replaced(catalog, "apis", [row for _, row in sorted(apis)])
    texts = {path: catalog, WIRE / "__init__.pyi": _stub(modules)}
    return {path: _formatted(text, path) for path, text in texts.items()} | headlines


def _stub(modules: dict[str, list[str]]) -> str:
    imports: dict[str, list[str]] = {}
    for node in ast.parse((WIRE / "__init__.py").read_text()).body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("aiokq.wire."):
            imports[str(node.module)] = [a.name for a in node.names if a.name != "MODULES"]
    imports |= {f"aiokq.wire.{module}": names for module, names in modules.items()}
    lines = [f"from {module} import {', '.join(names)}\n" for module, names in imports.items()]
    exported = sorted(name for names in imports.values() for name in names)
    listed = "".join(f'    "{name}",\n' for name in exported)
    return f"{STUB_HEAD}{''.join(lines)}\n__all__ = [\n{listed}]\n"


def _replaced(text: str, marker: str, lines: list[str]) -> str:
    begin, end = f"# begin generated {marker}", f"# end generated {marker}"
    head, found, rest = text.partition(begin)
    if not found:
        sys.exit(f"catalog.py has no marker {begin!r}")
    tail = rest.partition(end)[2]
    indent = head.rpartition("\n")[2]
    return f"{head}{begin}\n" + "\n".join(lines) + f"\n{indent}{end}{tail}"


def _formatted(text: str, path: Path) -> str:
    """Return `text` formatted for `make lint`: imports sorted, lines wrapped."""
    for command in (["check", "--fix", "--quiet", "--select", "I"], ["format"]):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(path), "-"],
            input=text,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    return text


def write_exports() -> None:
    """Write the generated stub and tables."""
    for path, text in exports().items():
        path.write_text(text)


def check_exports() -> int:
    """Name the generated files that are out of date; return 1 if there are any, else 0."""
    stale = [
        path for path, text in exports().items() if not path.exists() or path.read_text() != text
    ]
    for path in stale:
        print(f"{path.relative_to(ROOT)} is out of date: run tools/generate_messages.py --exports")
    return 1 if stale else 0


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="APIs, or schemas with --module")
    parser.add_argument("--module", help="file (without .py) that takes the given schemas")
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    parser.add_argument("--exports", action="store_true", help="write the lists of what there is")
    parser.add_argument("--check", action="store_true", help="compare the lists, write nothing")
    options = parser.parse_args()
    if options.check:
        sys.exit(check_exports())
    if not options.names:
        write_exports()
        return
    definitions = kafka_schema.load()
    if options.module:
        groups = {options.module: options.names}
    else:
        groups = {snake_case(name): [f"{name}Request", f"{name}Response"] for name in options.names}
    here = {name for names in groups.values() for name in names}
    used: dict[str, set[str]] = {}
    for module, names in exported().items():
        if module not in groups:
            for name in names:
                used.setdefault(name, set()).add(module)
    for name in here:
        for struct in kafka_schema.structs_of(definitions[name]):
            used.setdefault(struct, set()).add(_base(name))
    taken = Counter({struct: len(users) for struct, users in used.items()})
    for module, names in groups.items():
        path = WIRE / f"{module}.py"
        if path.exists() and not options.force:
            sys.exit(f"{path} exists; --force overwrites it")
        messages = [definitions[name] for name in names]
        if options.module:
            headline = f"Schemas of the {module.replace('_', ' ')}, all versions."
        else:
            headline = headline_of(_base(names[0]), messages[0]["apiKey"])
        draft = Draft(messages, class_names(messages, taken))
        path.write_text(draft.source(headline))
        subprocess.run(["ruff", "format", "-q", str(path)], check=True)
        print(path.relative_to(ROOT))
    if options.exports:
        write_exports()


if __name__ == "__main__":
    main()
