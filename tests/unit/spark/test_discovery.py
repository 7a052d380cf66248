"""pyspark_aiokq: Spark finds the module where it looks for sources, even in an editable install."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

# As Spark does in pyspark/sql/worker/lookup_data_sources.py.
LOOK = (
    "import importlib, pkgutil\n"
    "names = [i.name for i in pkgutil.iter_modules() if i.name.startswith('pyspark_')]\n"
    "print(*(importlib.import_module(name).DefaultSource.name() for name in names))"
)


def test_spark_finds_the_source_away_from_the_checkout(tmp_path: Path) -> None:
    """With the import hook of an editable install Spark did not find the format."""
    try:
        importlib.metadata.distribution("aiokq")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("aiokq is not installed, only on the path")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        [sys.executable, "-c", LOOK],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "aiokq" in found.stdout.split()
