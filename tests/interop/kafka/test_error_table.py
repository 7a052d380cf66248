"""The table of error codes, compared with the Errors enum in the jar it was generated from."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LIBS = ROOT / ".cache/kafka/libs"


@pytest.mark.kafka
def test_the_table_is_what_kafkas_jar_says():
    """A hand-edited flag would change what is retried until the next generation."""
    if shutil.which("java") is None or not any(LIBS.glob("kafka-clients-*.jar")):
        pytest.skip("needs java and the jars that `make kafka` fetches")
    done = subprocess.run(
        [sys.executable, "tools/generate_error_codes.py", f"{LIBS}/*", "--check"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
