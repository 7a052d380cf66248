"""aiokq.broker.process: the limit on descriptors."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from aiokq.broker import process


def test_it_takes_all_the_descriptors_it_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the usual soft limit of 1024 the thousandth client would be rejected."""
    limits = [(1024, 524_288)]
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda which, pair: limits.append(pair))
    process._raise_descriptor_limit()
    assert limits[-1] == (524_288, 524_288)
    process._raise_descriptor_limit()
    assert len(limits) == 2


def test_a_system_that_refuses_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS reports "unlimited" but grants 10,240; the broker starts all the same."""

    def refuse(which: int, pair: tuple[int, int]) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    process._raise_descriptor_limit()


def test_an_empty_data_dir_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Regression: the error did not say which path was empty."""
    assert process.main(["--port", "0", "--data-dir", ""]) == process.BAD_ARGUMENTS
    assert "--data-dir: the path is empty" in capsys.readouterr().err


WITH_FEW_DESCRIPTORS = """
import resource, sys
from aiokq.broker import process
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
sys.exit(process.main(["--port", "0"]))
"""


@pytest.mark.parametrize("limit", [8, 10, 12, 14])
def test_too_few_descriptors_end_the_start_with_one_line(limit: int) -> None:
    """Regression: uvloop raised further errors when the loop that had not started was closed."""
    done = subprocess.run(
        [sys.executable, "-c", WITH_FEW_DESCRIPTORS, str(limit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("aiokq broker: too few file descriptors: ")
    assert "ulimit -n" in line
