"""Kafka's own message definitions, read from its jars and merged.

`kafka-clients-4.2.0.jar` has the newest versions, and `kafka-clients-3.9.1.jar` the versions that
Kafka 4.0 removed. `load()` merges the two, so that one definition covers all versions. The records
of `__consumer_offsets` and `__transaction_state` come from the coordinator jars, and the records of
`__cluster_metadata` from the metadata jar, if these jars are present.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "kafka"
NEW, OLD = Path("libs/kafka-clients-4.2.0.jar"), Path("old/kafka-clients-3.9.1.jar")
RECORDS = (
    Path("libs/kafka-group-coordinator-4.2.0.jar"),
    Path("libs/kafka-transaction-coordinator-4.2.0.jar"),
    Path("libs/kafka-metadata-4.2.0.jar"),
)

Definition = dict[str, Any]


def missing(cache: Path = CACHE) -> list[Path]:
    """Return the missing jars of the client library; the other jars are optional."""
    return [cache / name for name in (NEW, OLD) if not (cache / name).exists()]


def load(cache: Path = CACHE) -> dict[str, Definition]:
    """Return every definition by name, including the versions that only 3.9.1 has.

    Raises:
        FileNotFoundError: a jar of the client library is missing.
    """
    definitions = _read(cache / NEW)
    for name in RECORDS:
        if (cache / name).exists():
            definitions |= _read(cache / name)
    for name, old in _read(cache / OLD).items():
        new = definitions.get(name)
        if new is not None and "fields" in new:
            _merge(new, old)
    return definitions


def valid_versions(cache: Path = CACHE) -> dict[str, str]:
    """Return the version range of each message in the newest jars alone."""
    definitions = _read(cache / NEW)
    for name in RECORDS:
        if (cache / name).exists():
            definitions |= _read(cache / name)
    return {name: definition["validVersions"] for name, definition in definitions.items()}


def fields_of(definition: Definition) -> Iterator[tuple[str, Definition]]:
    """Yield each field with the name of the struct it belongs to, depth first."""
    yield from _walk(definition["name"], definition["fields"])
    for struct in definition.get("commonStructs", ()):
        yield from _walk(struct["name"], struct["fields"])


def structs_of(definition: Definition) -> dict[str, list[Definition]]:
    """Return the fields of the message and of every nested struct, by Kafka's struct name."""
    structs = {definition["name"]: definition["fields"]}
    structs |= {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", ())}
    for _, field in fields_of(definition):
        if "fields" in field:
            structs[field["type"].removeprefix("[]")] = field["fields"]
    return structs


def versions(text: str) -> tuple[int, int | None] | None:
    """Parse a version range: `3+` has no end, `none` is `None`."""
    if text == "none":
        return None
    first, _, last = text.partition("-")
    if first.endswith("+"):
        return int(first[:-1]), None
    return int(first), int(last or first)


def snake_case(name: str) -> str:
    """Turn Kafka's field name into an attribute name (`ThrottleTimeMs` is `throttle_time_ms`)."""
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def _walk(owner: str, fields: list[Definition]) -> Iterator[tuple[str, Definition]]:
    for field in fields:
        yield owner, field
        if "fields" in field:
            yield from _walk(field["type"].removeprefix("[]"), field["fields"])


def _read(jar: Path) -> dict[str, Definition]:
    definitions = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"common/(message|metadata)/\w+\.json", name):
                text = archive.read(name).decode()
                definition = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
                definition["notes"] = _notes(text)
                definitions[definition["name"]] = definition
    return definitions


def _notes(text: str) -> list[str]:
    """Return the comments in front of the first field, one paragraph each."""
    paragraphs = [""]
    # The comments are before or after `"fields"`, but always before the first field.
    for line in text.partition("{")[2].partition("{")[0].splitlines():
        comment = re.match(r"\s*//\s?(.*)", line)
        if comment is None:
            continue
        said = comment[1].strip()
        if not said or re.match(r"((Starting )?[Ii]n )?[Vv]ersions? \d", said):
            paragraphs.append("")
        paragraphs[-1] = f"{paragraphs[-1]} {said}".strip()
    return [paragraph for paragraph in paragraphs if paragraph]


def _merge(new: Definition, old: Definition) -> None:
    """Add to a 4.2 definition the versions and fields that only 3.9 has."""
    bounds_new, bounds_old = versions(new["validVersions"]), versions(old["validVersions"])
    if bounds_new is None or bounds_old is None:
        return
    new["validVersions"] = f"{min(bounds_new[0], bounds_old[0])}-{bounds_new[1]}"
    _merge_fields(new["fields"], old["fields"])
    commons = {struct["name"]: struct for struct in new.get("commonStructs", ())}
    for struct in old.get("commonStructs", ()):
        if struct["name"] in commons:
            _merge_fields(commons[struct["name"]]["fields"], struct["fields"])


def _merge_fields(new: list[Definition], old: list[Definition]) -> None:
    present = {field["name"]: field for field in new}
    position = 0
    for field in old:
        match = present.get(field["name"])
        if match is None:
            new.insert(position, field)
            position += 1
            continue
        position = new.index(match) + 1
        if "fields" in match and "fields" in field:
            _merge_fields(match["fields"], field["fields"])
