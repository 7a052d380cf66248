"""Run each command of kafka-python's admin CLI once against one node; print one JSON line each.

    python -m tests.peers.kafka_python_admin HOST:PORT NODE_ID PREFIX LOG_DIR

The commands are those of `python -m kafka.admin`, run in one process. The names of topics and
groups that they create begin with PREFIX. A line is
{"part": "all", "operation": NAME, "answer": ANSWER}, the answer {"code": EXIT, "output": ...}, with
the output parsed if it is JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from kafka import KafkaProducer
from kafka.cli.admin import run_cli

PATIENCE = 60.0
SEEN: dict[str, Callable[[str, str], bool]] = {
    "topics list": lambda text, prefix: f"{prefix}one" in text and f"{prefix}two" in text,
    "partitions describe": lambda text, _: text.count("partition_index") == 5,
    "configs describe, modified": lambda text, _: "5000000" in text,
}
"""Commands that show earlier changes, which Kafka's broker learns of with a delay."""
LISTINGS = ("topics list", "groups list", "configs list, groups", "transactions list")
BROKER_CONFIGS = (
    "node.id", "broker.id", "process.roles", "log.dirs", "listeners", "advertised.listeners",
    "listener.security.protocol.map", "num.partitions", "group.initial.rebalance.delay.ms",
    "broker.rack", "auto.create.topics.enable", "log.retention.hours",
)  # fmt: skip


def commands(node: str, prefix: str, log_dir: str) -> Iterator[tuple[str, list[str]]]:
    """Return names and arguments, in an order in which each command finds what it needs."""
    one, two, absent, group = (f"{prefix}{name}" for name in ("one", "two", "absent", "group"))

    def command(text: str, *more: str, called: str | None = None) -> tuple[str, list[str]]:
        return called or text, [*text.split(), *more]

    topic = ("-r", "topic", "-n", one)
    yield command("topics create", "-t", one, "--num-partitions", "3", "--replication-factor", "1")
    # The records are of 1970. Otherwise a broker that has run for some minutes may delete them.
    yield command("configs alter", *topic, "-c", "retention.ms=-1", called="configs alter, keep")
    yield command("topics create", "-t", two, called="topics create, defaults")
    yield command("topics create", "-t", one, called="topics create, again")
    yield command("topics create", "-t", f"{prefix}no/name", called="topics create, no name")
    yield command("topics list")
    yield command("topics describe", "-t", one)
    yield command("topics describe", "-t", absent, called="topics describe, absent")
    yield command("partitions create", "-p", f"{two}:2")
    yield command("partitions create", "-p", f"{one}:2", called="partitions create, fewer")
    yield command("partitions describe", "-t", one, "-t", two)
    yield command("partitions describe", "-t", absent, called="partitions describe, absent")
    yield command(
        "partitions describe", "-t", one, "--response-partition-limit", "2",
        called="partitions describe, a page",
    )  # fmt: skip
    for spec in ("earliest", "latest", "max-timestamp", "earliest-local", "latest-tiered", "5"):
        yield command(
            "partitions list-offsets", "-t", one, "-s", spec, called=f"list-offsets, {spec}"
        )
    yield command("partitions delete-records", "-r", f"{one}:0:2")
    yield command(
        "partitions delete-records", "-r", f"{one}:1:400", called="delete-records, beyond"
    )
    for kind in ("preferred", "unclean"):
        elect = ("partitions elect-leaders", "--election-type", kind)
        yield command(*elect, "-t", one, called=f"elect-leaders, {kind}")
        yield command(*elect, "-t", one, "--no-raise-errors", called=f"elect-leaders, {kind}, told")
        yield command(
            *elect, "-p", f"{one}:9", "-p", f"{absent}:0", "--no-raise-errors",
            called=f"elect-leaders, {kind}, absent",
        )  # fmt: skip
    yield command(
        "partitions alter-reassignments", "-r", f"{one}:0={node}", "-r", f"{one}:1=99",
        "-r", f"{one}:2=cancel", "-r", f"{absent}:0={node}",
    )  # fmt: skip
    yield command("partitions list-reassignments")
    yield command(
        "partitions list-reassignments", "-p", f"{one}:0", called="list-reassignments, one"
    )
    yield command("configs describe", *topic)
    yield command("configs describe", *topic, "-c", "retention.ms", called="configs describe, one")
    yield command("configs describe", "-r", "topic", "-n", absent, called="configs, absent topic")
    named = [word for name in BROKER_CONFIGS for word in ("-c", name)]
    yield command("configs describe", "-r", "broker", "-n", node, *named, called="configs, broker")
    yield command(
        "configs describe", "-r", "broker", "-n", node, "--static", *named,
        called="configs, broker, static",
    )  # fmt: skip
    yield command("configs describe", "-r", "group", "-n", group, called="configs, group")
    yield command("configs alter", *topic, "-c", "retention.ms=100000")
    yield command(
        "configs alter", *topic, "-c", "cleanup.policy=add(compact)", called="configs add"
    )
    yield command(
        "configs alter", *topic, "-c", "retention.ms=x", called="configs alter, no number"
    )
    yield command(
        "configs alter", *topic, "-c", "segment.ms=5000000", "--force-alter",
        called="configs alter, replacing",
    )  # fmt: skip
    yield command("configs describe", *topic, "--modified", called="configs describe, modified")
    yield command("configs reset", *topic, "-c", "segment.ms")
    yield command("configs list", "-r", "broker", "-r", "broker_logger")
    yield command("configs list", "-r", "group", called="configs list, groups")
    yield command("groups alter-offsets", "-g", group, "-o", f"{one}:0:2", "-o", f"{one}:1:1")
    yield command("groups list-offsets", "-g", group)
    yield command("groups reset-offsets", "-g", group, "-s", "latest")
    yield command("groups reset-offsets", "-g", group, "--shift-by", "-1", called="groups shift")
    yield command("groups describe", "-g", group)
    yield command("groups describe", "-g", absent, called="groups describe, absent")
    yield command("groups list")
    yield command("groups delete-offsets", "-g", group, "-p", f"{one}:1")
    yield command("groups remove-members", "-g", group, "-m", "nobody")
    yield command("groups delete", "-g", group)
    yield command("groups delete", "-g", absent, called="groups delete, absent")
    yield command("cluster describe")
    yield command("cluster describe-features")
    yield command("cluster describe-log-dirs", "--topic", one)
    yield command("cluster alter-log-dirs", "-a", f"{one}:0:{node}={log_dir}")
    yield command("cluster describe-quorum")
    yield command("cluster broker-version", "--broker", node)
    yield command("cluster api-versions")
    yield command("cluster update-features", "-f", "no.such.feature=1")
    yield command("acls describe")
    yield command(
        "acls create", "--principal", "User:a", "--operation", "read", "--resource-type", "topic",
        "--resource-name", one,
    )  # fmt: skip
    yield command("acls delete")
    yield command("users describe-scram-credentials")
    yield command("transactions list")
    yield command("transactions describe-producers", "-t", one, "-p", "0")
    yield command("topics delete", "-t", one)
    yield command("topics delete", "-t", absent, called="topics delete, absent")


def run(bootstrap: str, arguments: list[str]) -> dict[str, object]:
    """Run a command; return its exit code and its output."""
    printed, complained = io.StringIO(), io.StringIO()
    # The JSON output of this command fails, because it has an id of a type that JSON lacks.
    written = "raw" if arguments[:2] == ["partitions", "describe"] else "json"
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complained):
        code = run_cli(["-b", bootstrap, "--format", written, *arguments])
    text = printed.getvalue().strip()
    try:
        output = json.loads(text)
    except ValueError:
        output = text.splitlines()
    return {"code": code, "output": output}


def _mine(listed: Any, prefix: str) -> Any:
    """Return a listing without what others created on a shared broker."""
    if isinstance(listed, dict):
        return {name: _mine(each, prefix) for name, each in listed.items()}
    if not isinstance(listed, list):
        return listed
    names = ("group_id", "transactional_id")
    return [
        each
        for each in listed
        if (
            any(str(each.get(name, "")).startswith(prefix) for name in names)
            if isinstance(each, dict)
            else str(each).startswith(prefix)
        )
    ]


def _wait_for_groups(bootstrap: str, prefix: str) -> None:
    """Wait until groups work: Kafka creates their topic on first use, then loads coordinators."""
    deadline = time.monotonic() + PATIENCE
    while run(bootstrap, ["groups", "list-offsets", "-g", f"{prefix}any"])["code"]:
        _pause(deadline)


def _pause(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError("the broker did not come to it")
    time.sleep(0.05)


def main() -> None:
    bootstrap, node, prefix, log_dir = sys.argv[1:]
    logging.disable()
    _wait_for_groups(bootstrap, prefix)
    produced = False
    deadline = time.monotonic() + PATIENCE
    for name, arguments in commands(node, prefix, log_dir):
        if not produced and arguments[:2] == ["partitions", "list-offsets"]:
            producer = KafkaProducer(bootstrap_servers=bootstrap)
            for number in range(9):
                producer.send(
                    f"{prefix}one", b"v", key=b"k", partition=number % 3, timestamp_ms=10 + number
                ).get(30)
            producer.close()
            produced = True
        answer = run(bootstrap, arguments)
        while (shown := SEEN.get(name)) is not None and not shown(json.dumps(answer), prefix):
            _pause(deadline)
            answer = run(bootstrap, arguments)
        if name in LISTINGS and answer["code"] == 0:
            answer["output"] = _mine(answer["output"], prefix)
        print(json.dumps({"part": "all", "operation": name, "answer": answer}), flush=True)


if __name__ == "__main__":
    main()
