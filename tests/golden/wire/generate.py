"""Let Apache Kafka's own classes encode every message in every version, into frames.txt.

    make kafka && python -m tests.golden.wire.generate

Each message is `tests.property.wire.messages.filled`: something in every field. 4.2.0 encodes the
versions that it has, 3.9.1 those that 4.0 dropped. Needs Java 17 and the jars in `.cache/kafka`.
"""

from __future__ import annotations

import base64
import json
import subprocess
import uuid
from pathlib import Path

from aiokq.wire.struct import Message, Struct
from tests.property.wire.messages import filled, in_version, pairs
from tools import kafka_schema
from tools.kafka_schema import CACHE, Definition, versions

HERE = Path(__file__).parent
FRAMES = HERE / "frames.txt"


def as_json(message: Struct, name: str, definition: Definition, version: int) -> dict[str, object]:
    """Return a message as Kafka's JSON converters read it, with the fields of the version."""
    values: dict[str, object] = {}
    its_fields = kafka_schema.structs_of(definition)[name]
    for field, its in zip(message.__fields__, its_fields, strict=True):
        value = getattr(message, field.name)
        if not field.in_version(version) or (field.tag is not None and field.is_default(value)):
            continue
        element = its["type"].removeprefix("[]")
        key = its["name"][0].lower() + its["name"][1:]
        if isinstance(value, list):
            values[key] = [plain(item, element, definition, version) for item in value]
        else:
            values[key] = plain(value, element, definition, version)
    return values


def plain(value: object, name: str, definition: Definition, version: int) -> object:
    """Return a value as JSON has it: bytes and uuids in base64."""
    if isinstance(value, Struct):
        return as_json(value, name, definition, version)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, uuid.UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    return value


def encode(lines: list[str], classpath: str) -> list[str]:
    """Run the Java program on lines of messages."""
    command = ["java", "-cp", classpath, str(HERE / "EncodeFrames.java")]
    done = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout.splitlines()


def main() -> None:
    """Write frames.txt."""
    definitions = kafka_schema.load()
    new = kafka_schema.valid_versions()
    recent, dropped = [], []
    for cls, version in pairs():
        message = in_version(filled(cls), version, flexible=cls.is_flexible(version))
        assert isinstance(message, Message)
        definition = definitions[cls.__name__]
        values = as_json(message, cls.__name__, definition, version)
        line = f"{cls.__name__} {version} {json.dumps(values)}"
        first = versions(new[cls.__name__])
        assert first is not None
        (dropped if version < first[0] else recent).append(line)
    libs = [str(jar) for jar in sorted((CACHE / "libs").glob("*.jar"))]
    frames = encode(recent, ":".join(libs))
    frames += encode(dropped, ":".join([str(CACHE / kafka_schema.OLD), *libs]))
    head = (
        "# Encoded by Apache Kafka 4.2.0 (3.9.1 where 4.0 dropped the version); see generate.py.\n"
    )
    FRAMES.write_text(head + "\n".join(sorted(frames)) + "\n")


if __name__ == "__main__":
    main()
