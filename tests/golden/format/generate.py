"""Let Apache Kafka's `kafka-storage format` format directories, into formats.json.

    make kafka && python -m tests.golden.format.generate

For each case, the file has the options, and either the files that Kafka wrote, with their
permissions and their bytes in hex, or the last line that it printed when it refused. Needs Java 17
and the jars in `.cache/kafka`.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tools.kafka_schema import CACHE

FORMATS = Path(__file__).parent / "formats.json"
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
NODE = 5

ALICE = 'SCRAM-SHA-256=[name=alice,password=alice-secret,salt="c2FsdHk=",iterations=5000]'
BOB = 'SCRAM-SHA-512=[name=bob,salt="N3E=",saltedpassword="YCE="]'
CARL = 'SCRAM-SHA-512=[name=carl,salt=c2FsdHk,password="größe=1"]'

CASES: dict[str, dict[str, Any]] = {
    "static": {
        "release": "4.0",
        "features": {"transaction.version": 2, "eligible.leader.replicas.version": 0},
    },
    "static-of-aiokq": {
        "release": "4.0-IV3",
        "features": {"transaction.version": 0, "eligible.leader.replicas.version": 1},
    },
    "static-newest": {
        "features": {
            "metadata.version": 29,
            "transaction.version": 2,
            "share.version": 1,
            "streams.version": 1,
        },
    },
    "static-oldest": {"release": "3.3"},
    "static-users": {"release": "3.5.1", "scram": [ALICE, BOB]},
    "static-apart": {
        "release": "4.0",
        "features": {"transaction.version": 0, "eligible.leader.replicas.version": 1},
        "metadata_directory": "m",
    },
    "standalone": {
        "release": "4.0",
        "features": {"transaction.version": 0, "eligible.leader.replicas.version": 1},
        "standalone": True,
    },
    "standalone-features": {
        "release": "4.2",
        "features": {
            "kraft.version": 1,
            "transaction.version": 1,
            "group.version": 0,
            "share.version": 0,
            "streams.version": 1,
        },
        "standalone": True,
        "scram": [CARL, ALICE, BOB, ALICE],
    },
    "standalone-apart": {
        "release": "3.9",
        "standalone": True,
        "metadata_directory": "m",
    },
    "refused-feature": {"features": {"foo.version": 1}},
    "refused-level": {"features": {"group.version": 2}},
    "refused-negative-level": {"features": {"group.version": -1}},
    "refused-dependency": {
        "release": "3.9",
        "features": {"eligible.leader.replicas.version": 1},
    },
    "refused-unstable": {"features": {"metadata.version": 30}},
    "refused-unknown-level": {"features": {"metadata.version": 6}},
    "refused-release": {"release": "3.2"},
    "refused-twice": {"release": "4.0", "features": {"metadata.version": 25}},
    "refused-static-voters": {"features": {"kraft.version": 0}, "standalone": True},
    "refused-dynamic-voters": {"features": {"kraft.version": 1}},
    "refused-old-users": {"release": "3.5-IV1", "scram": [ALICE]},
    "refused-mechanism": {"scram": ["SCRAM-SHA-1=[name=a,password=b]"]},
    "refused-brackets": {"scram": ["SCRAM-SHA-256=name=a,password=b"]},
    "refused-no-name": {"scram": ["SCRAM-SHA-256=[password=b]"]},
    "refused-no-password": {"scram": ["SCRAM-SHA-256=[name=a]"]},
    "refused-no-salt": {"scram": ['SCRAM-SHA-256=[name=a,saltedpassword="YCE="]']},
    "refused-empty-password": {"scram": ["SCRAM-SHA-256=[name=a,password=]"]},
    "refused-comma": {"scram": ["SCRAM-SHA-256=[name=a,password=b,c]"]},
    "refused-part": {"scram": ["SCRAM-SHA-256=[name=a,password=b,c=d]"]},
    "refused-few-iterations": {"scram": ["SCRAM-SHA-256=[name=a,password=b,iterations=4095]"]},
    "refused-many-iterations": {"scram": ["SCRAM-SHA-512=[name=a,password=b,iterations=16385]"]},
    "refused-no-number": {"scram": ["SCRAM-SHA-512=[name=a,password=b,iterations=x]"]},
    "refused-no-base64": {"scram": ["SCRAM-SHA-512=[name=a,password=b,salt=*]"]},
}


def main() -> None:
    """Write formats.json."""
    formats = {}
    for name, options in CASES.items():
        with tempfile.TemporaryDirectory() as root:
            formats[name] = {"options": options, **_formatted(Path(root), options)}
    FORMATS.write_text(json.dumps(formats, indent=1, ensure_ascii=False) + "\n")


def _formatted(root: Path, options: dict[str, Any]) -> dict[str, Any]:
    lines = [
        "process.roles=broker,controller",
        f"node.id={NODE}",
        "listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller.listener.names=CONTROLLER",
        f"log.dirs={root}/logs/b,{root}/logs/a",
    ]
    standalone = options.get("standalone", False)
    lines.append(
        "controller.quorum.bootstrap.servers=localhost:9093"
        if standalone
        else f"controller.quorum.voters={NODE}@localhost:9093"
    )
    if "metadata_directory" in options:
        lines.append(f"metadata.log.dir={root}/logs/{options['metadata_directory']}")
    properties = root / "server.properties"
    properties.write_text("\n".join(lines) + "\n")
    command = ["java", "-Dfile.encoding=UTF-8", "-Dsun.jnu.encoding=UTF-8"]
    command += ["-cp", f"{CACHE / 'libs'}/*", "kafka.tools.StorageTool", "format"]
    command += ["--config", str(properties), "--cluster-id", CLUSTER]
    command += ["--standalone"] if standalone else []
    command += ["--release-version", options["release"]] if "release" in options else []
    for feature, level in options.get("features", {}).items():
        command += ["--feature", f"{feature}={level}"]
    for credential in options.get("scram", ()):
        command += ["--add-scram", credential]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
    )
    if done.returncode:
        errors = [
            line for line in done.stderr.splitlines() if line and not line.startswith(("\t", "["))
        ]
        return {"refused": errors[-1]}
    files = {
        str(path.relative_to(root / "logs")): {
            "mode": f"{path.stat().st_mode & 0o777:o}",
            "hex": path.read_bytes().hex(),
        }
        for path in sorted((root / "logs").rglob("*"))
        if path.is_file()
    }
    return {"files": files}


if __name__ == "__main__":
    main()
