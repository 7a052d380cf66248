"""`aiokq spark load` as a process: signals, and executors with missing packages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.spark.conftest import ROOT, why_absent
from tests.spark.executors import hide_aiokq
from tests.spark.loads import seen
from tests.spark.streams import PATIENCE, wait_for
from tests.spark.topics import Topics

# On a busy machine Spark may take a minute to start.
pytestmark = [pytest.mark.timeout(900), pytest.mark.full]


@contextmanager
def loading(
    topics: Topics, topic: str, target: Path, *options: str, path: str = ""
) -> Iterator[subprocess.Popen[str]]:
    """Start the command in a process group of its own."""
    reason = why_absent()
    if reason is not None:
        pytest.skip(f"SPARK IS NOT TESTED: {reason}")
    process = subprocess.Popen(
        [sys.executable, "-m", "aiokq", "spark", "load", topic, "--to", str(target), *options],
        cwd=ROOT,
        env={
            **os.environ,
            "KAFKA_BOOTSTRAP_SERVERS": topics.bootstrap_servers,
            "PYTHONPATH": path,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_command_after_its_batch(
    topics: Topics, topic: str, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """A terminal sends Ctrl-C to all processes; workers that died of it would abort the batch.

    A supervisor sends SIGTERM to the command only.
    """
    topics.create(topic)
    topics.fill(topic, 100)
    target = tmp_path / "out"
    given = ("--json", "--every", "0", "--records-per-batch", "1", "--verify")
    with loading(topics, topic, target, *given) as process:
        second = target / "_aiokq_manifest" / "1.json"
        wait_for(lambda: second.exists() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        send = os.killpg if number == signal.SIGINT else os.kill
        send(process.pid, number)
        out, err = process.communicate(timeout=PATIENCE)

    assert (process.returncode, err) == (
        code,
        "aiokq: ending after this batch; press Ctrl-C again to end now\n",
    )
    summary = json.loads(out)
    assert summary["rows"] == len(seen(target)) < 100
    assert summary["verification"]["sound"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_all_processes_while_spark_starts_is_a_line(
    topics: Topics, topic: str, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """It must neither be reported as a failed JVM start nor wait until the JVM has started."""
    topics.create(topic)
    topics.fill(topic, 3)
    target = tmp_path / "out"
    with loading(topics, topic, target) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_for(lambda: process.poll() is not None or children.read_text().strip())
        jvm = children.read_text().split()
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=PATIENCE)

    assert (process.returncode, out, err) == (
        code,
        "",
        "aiokq: ended before the load began; the same command continues the load\n",
    )
    assert not [pid for pid in jvm if "java" in _command(pid)]
    with loading(topics, topic, target, "--available-now", "--json") as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, json.loads(out)["rows"]) == (0, 3), err


def _command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except FileNotFoundError:
        return ""


def test_an_executor_without_the_package_is_one_line(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    """The error says what to install where; then the same command continues."""
    topics.create(topic)
    topics.fill(topic, 3)
    target = tmp_path / "out"
    hidden = hide_aiokq(tmp_path)

    with loading(topics, topic, target, "--available-now", path=str(hidden)) as process:
        out, err = process.communicate(timeout=PATIENCE)

    assert (process.returncode, out) == (1, "")
    assert err == (
        "aiokq: an executor has no package aiokq: pip install 'aiokq[spark]' for the Python of "
        "the executors (PYSPARK_PYTHON)\n"
    )
    with loading(topics, topic, target, "--available-now", "--json") as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out)["rows"] == len(seen(target)) == 3
