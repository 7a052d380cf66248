"""aiokq.broker.process: the limit on descriptors."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aiokq.broker import process


@pytest.mark.usefixtures("own_process_state")
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
