"""Each program in examples/ runs as its documentation says, and prints what it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from examples.flights.spark_session import why_absent

ROOT = Path(__file__).resolve().parents[2]

EXPECTED = {
    "quickstart": "read b'hello 2' at 2",
    "producing": "in bulk: 5000 acknowledged",
    "processing": "invoices: 1000",
    "consuming": "in parallel: 1000",
    "web_service": "50 of 50 orders placed",
    "blocking_code": "[b'0', b'1', b'2', b'3', b'4']",
    "watching": "TopicAdded",
}


def run(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def test_every_example_is_run_here() -> None:
    """A new example that nobody lists here would rot unseen."""
    programs = {path.stem for path in (ROOT / "examples").glob("*.py")} - {"__init__"}
    assert programs == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_example_prints_what_it_promises(name: str) -> None:
    """A reader copies an example that no longer works."""
    result = run(f"examples/{name}.py")
    assert result.returncode == 0, result.stderr
    assert EXPECTED[name] in result.stdout
    assert not result.stderr


def test_four_languages_write_through_the_gateway() -> None:
    """A message that a language encodes wrongly is missing in Kafka, and nobody is told."""
    result = run("-m", "examples.gateway", timeout=110)
    assert result.returncode == 0, result.stdout + result.stderr
    assert not result.stderr
    absent = [line for line in result.stdout.splitlines() if "is left out" in line]
    for language in ("Python", "C", "Shell", "Node"):
        arrived = f"{language:<6} 200 records"
        assert arrived in result.stdout or any(one.startswith(language) for one in absent)
    assert "records are in Kafka, each of them once" in result.stdout
    if absent:
        pytest.skip(f"NOT ALL LANGUAGES ARE TESTED: {', '.join(absent)}")


def test_the_flights_job_proves_that_none_are_lost_or_doubled() -> None:
    """What `make run` does until Spark, on the first ten thousand flights: one member is killed."""
    result = run("-m", "examples.flights", "--limit", "10000", "--without-spark", timeout=110)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Member 2 is killed" in result.stdout
    assert "None lost, none doubled" in result.stdout


@pytest.mark.full
@pytest.mark.timeout(900)  # starts two JVMs: on a busy machine each takes a minute
def test_the_flights_job_goes_on_into_spark(tmp_path: Path) -> None:
    """All that `make run` does, on the first two thousand flights."""
    output = ("--output", str(tmp_path / "spark"))
    result = run("-m", "examples.flights", "--limit", "2000", *output, timeout=800)
    assert result.returncode == 0, result.stdout + result.stderr
    words = " ".join(result.stdout.split())
    reason = why_absent()
    if reason is not None:
        assert f"The part with Spark is left out: {reason}" in words
        pytest.skip(f"SPARK IS NOT TESTED: {reason}")
    assert "The same flights in the log, in the files, in the batch and in the stream" in words
    assert (tmp_path / "spark" / "delays.svg").read_text().startswith("<?xml")
