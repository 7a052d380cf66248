"""PySpark 4.1 and 4.2: the core of the Spark tests on each, and what the older one refuses.

The versions are fetched from the package index once, each into a directory of its own in .cache;
everything else comes from the environment that runs the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark.errors import PySparkException

from aiokq.spark.stream_reader import HAS_LIMITS
from tests.spark.conftest import ROOT
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORE = (
    "test_batch_read",
    "test_batch_write",
    "test_stream_read",
    "test_stream_write",
    Path(__file__).stem,
)


def installed(version: str) -> Path:
    """Return the directory with the newest PySpark of a version."""
    directory = ROOT / ".cache" / f"pyspark-{version}"
    complete = directory / ".complete"
    if not complete.exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade"]
        command += ["--target", str(directory), f"pyspark=={version}.*"]
        subprocess.run(command, check=True)
        complete.touch()
    return directory


@pytest.mark.torture
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("version", ["4.1", "4.2"])
def test_another_version_passes_the_core_of_the_tests(version: str, tmp_path: Path) -> None:
    """Spark's interface for sources changes with each release without notice."""
    paths = [str(ROOT / "tests" / "spark" / f"{name}.py") for name in CORE]
    command = [sys.executable, "-m", "pytest", "-q", *paths, "-m", "not torture and not full"]
    command += ["-p", "no:cacheprovider", f"--basetemp={tmp_path / version}", "--timeout=900"]
    python_path = os.pathsep.join([str(installed(version)), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": python_path, "AIOKQ_PYSPARK": version}

    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)

    assert result.returncode == 0, result.stdout[-20_000:]
    assert " passed" in result.stdout


@pytest.mark.skipif("AIOKQ_PYSPARK" not in os.environ, reason="any version will do")
def test_the_version_is_the_one_that_is_meant() -> None:
    """With another version on the path these tests would prove nothing."""
    assert pyspark.__version__.startswith(os.environ["AIOKQ_PYSPARK"] + ".")


@pytest.mark.skipif(HAS_LIMITS, reason="PySpark 4.2 and newer have limits")
@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger"])
def test_what_an_older_version_lacks_is_refused_by_name(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path, option: str
) -> None:
    """If it were ignored, a first batch could have years of records."""
    topics.create(topic)
    frame = (
        spark.readStream.format("aiokq")
        .option("kafka.bootstrap.servers", topics.bootstrap_servers)
        .options(**{"subscribe": topic, option: "10"})
        .load()
    )
    checkpoint = str(tmp_path / "checkpoint")

    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)

    with pytest.raises(PySparkException) as caught:
        writer.start().awaitTermination(60)

    text = f"option {option} needs PySpark 4.2 or newer, this is {pyspark.__version__}"
    assert text in str(caught.value)
