"""A local Spark session, or the reason why Spark cannot run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
MASTER = "local[2]"
JVM = {
    "spark.driver.memory": "1g",
    # In a run of a minute, the second compiler does not pay off.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
JAVA = 17
NO_JAVA = (
    f"Spark needs Java {JAVA} or newer: install it (Debian: apt-get install default-jre-headless) "
    "or set JAVA_HOME"
)


def why_absent() -> str | None:
    """Return in one line why Spark cannot run here; None if it can."""
    for package in ("pyspark", "pyarrow", "numpy"):
        if find_spec(package) is None:
            return f"{package} is not installed: pip install 'aiokq[spark]'"
    if find_spec("matplotlib") is None:
        return "matplotlib, for the plot, is not installed: pip install matplotlib"
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    except OSError:
        return NO_JAVA
    version = re.search(r'version "(\d+)', told)
    return None if version is not None and int(version[1]) >= JAVA else NO_JAVA


@contextmanager
def spark_session(scratch: Path) -> Iterator[SparkSession]:
    """Yield a session on two cores, and stop it at the end.

    Args:
        scratch: directory for Spark's files during the session.
    """
    from pyspark.sql import SparkSession

    # Spark's workers import this package and aiokq with the interpreter of this process.
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master(MASTER).appName("flights")
    settings = {
        **JVM,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Grouping gives only a few thousand groups.
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "local"),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    # Spark's warnings at the start do not matter here. Errors are raised in this process.
    with _no_stderr():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def _no_stderr() -> Iterator[None]:
    """Redirect stderr to the null device; a JVM started in the block inherits it."""
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
