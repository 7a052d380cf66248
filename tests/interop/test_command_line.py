"""The client commands of `aiokq` against a broker: what they print, and how they fail."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from aiokq.broker.embedded import EmbeddedCluster
from aiokq.cli.app import app

_numbers = itertools.count()


@pytest.fixture(scope="module")
def kafka():
    with EmbeddedCluster() as running:
        yield running


@pytest.fixture
def topic():
    return f"cli-{next(_numbers)}"


@pytest.fixture
def command(kafka):
    """Run a command in this process, against the broker unless told otherwise."""

    def run(*arguments: str, stdin: bytes | None = None, bootstrap: str | None = None):
        address = bootstrap or kafka.bootstrap_servers
        return CliRunner().invoke(app, [*arguments, "--bootstrap-servers", address], input=stdin)

    return run


def test_topics_are_created_listed_described_and_deleted(command, topic):
    """The first minutes of everybody."""
    created = command("topics", "create", topic, "--partitions", "3", "--set", "retention.ms=5")
    assert created.exit_code == 0, created.output
    assert f"created {topic} with 3 partition(s)" in created.output
    listed = json.loads(command("topics", "list", "--json").stdout)
    assert {"name": topic, "partitions": 3} in [
        {"name": t["name"], "partitions": t["partitions"]} for t in listed
    ]
    described = json.loads(command("topics", "describe", topic, "--json").stdout)
    assert [(p["partition"], p["leader"], p["end_offset"]) for p in described] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
    ]
    assert topic in command("topics", "describe", topic).output
    assert command("topics", "delete", topic, "--yes").exit_code == 0
    assert topic not in command("topics", "list").output


def test_lines_are_produced_and_consumed(command, topic):
    """Each line a record, in order, with keys where a separator says so."""
    lines = b"".join(b"k%d:value %d\n" % (n, n) for n in range(100))
    produced = command("produce", topic, "--key-separator", ":", "-z", "zstd", stdin=lines)
    assert produced.exit_code == 0, produced.output
    assert "100 record(s) acknowledged" in produced.output
    consumed = command("consume", topic, "--offset", "earliest", "--exit-at-end")
    assert consumed.stdout.splitlines() == [f"value {n}" for n in range(100)]
    some = command("consume", topic, "--partition", "0", "--offset", "7", "-n", "2", "--json")
    records = [json.loads(line) for line in some.stdout.splitlines()]
    assert [(r["offset"], r["key"], r["value"]) for r in records] == [
        (7, "k7", "value 7"),
        (8, "k8", "value 8"),
    ]


def test_bytes_that_are_no_text_come_as_base64_in_json(command, topic):
    """JSON has no bytes."""
    command("produce", topic, stdin=b"\xff\xfe\n")
    consumed = command("consume", topic, "--offset", "earliest", "-e", "--json")
    record = json.loads(consumed.stdout)
    assert record["value_base64"] == "//4="
    assert record["key"] is None


def test_errors_are_one_line_with_an_exit_code(command, topic):
    """1 where the cluster refuses, 2 where the arguments do."""
    command("topics", "create", topic)
    again = command("topics", "create", topic)
    assert again.exit_code == 1
    assert "TOPIC_ALREADY_EXISTS" in again.output
    bad = command("topics", "create", f"{topic}-x", "--set", "retention.mz=1")
    assert bad.exit_code == 1
    assert "did you mean retention.ms?" in bad.output
    assert command("consume", topic, "--offset", "7").exit_code == 2
    assert command("consume", topic, "--offset", "soon").exit_code == 2
    assert command("topics", "create", "x", "--set", "retention.ms").exit_code == 2
    assert command("produce", topic, "-z", "brotli", stdin=b"x\n").exit_code == 2


def test_settings_come_from_a_file_and_the_command_line_wins(kafka, command, topic, tmp_path):
    """As Java's tools take --command-config."""
    config = tmp_path / "client.properties"
    config.write_text(f"bootstrap.servers={kafka.bootstrap_servers}\nclient.id=from-file\n")
    listed = CliRunner().invoke(app, ["topics", "list", "--config", str(config)])
    assert listed.exit_code == 0, listed.output
    config.write_text("bootstrap.server=x\n")
    wrong = command("topics", "list", "--config", str(config))
    assert wrong.exit_code == 2
    assert "bootstrap_servers" in wrong.output.replace(".", "_")


def test_doctor_looks_at_the_installation_and_the_cluster(command):
    """What a bug report needs."""
    well = command("doctor", "--json")
    assert well.exit_code == 0, well.output
    checks = {check["check"]: check for check in json.loads(well.stdout)}
    assert checks["core"]["ok"]
    assert checks["brokers"]["found"].startswith("0 at 127.0.0.1:")
    alone = CliRunner().invoke(app, ["doctor", "--json"], env={"KAFKA_BOOTSTRAP_SERVERS": ""})
    assert "cluster" not in {check["check"] for check in json.loads(alone.stdout)}


def test_module_and_help_work_as_a_program():
    """`python -m aiokq` is what the console script is."""
    done = subprocess.run(
        [sys.executable, "-m", "aiokq", "--help"], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0
    for name in ("topics", "produce", "consume", "doctor", "broker"):
        assert name in done.stdout
    done = subprocess.run(
        [sys.executable, "-m", "aiokq", "absent"], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 2
