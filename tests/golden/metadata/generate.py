"""Let Apache Kafka's own serde encode samples of every metadata record, into records.txt.

    make kafka && python -m tests.golden.metadata.generate

Needs Java 17 and the jars in `.cache/kafka`.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.golden.metadata.samples import samples
from tests.golden.wire.generate import as_json
from tools import kafka_schema
from tools.kafka_schema import CACHE

HERE = Path(__file__).parent
RECORDS = HERE / "records.txt"


def main() -> None:
    """Write records.txt."""
    definitions = kafka_schema.load()
    heads, lines = [], []
    for label, version, message in samples():
        values = as_json(message, message.NAME, definitions[message.NAME], version)
        heads.append(f"{message.NAME} {version} {label}")
        lines.append(f"{message.NAME} {version} {json.dumps(values)}")
    jars = ":".join(str(jar) for jar in sorted((CACHE / "libs").glob("*.jar")))
    done = subprocess.run(
        ["java", "-cp", jars, str(HERE / "EncodeRecords.java")],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    encoded = [f"{head} {data}" for head, data in zip(heads, done.stdout.split(), strict=True)]
    title = "# Encoded by MetadataRecordSerde of Apache Kafka 4.2.0; see generate.py.\n"
    RECORDS.write_text(title + "\n".join(encoded) + "\n")


if __name__ == "__main__":
    main()
