"""Executors in which a package is not installed, while the driver has it."""

from __future__ import annotations

from pathlib import Path

WITHOUT_AIOKQ = """
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "aiokq":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

# What Spark starts in an executor: these have no aiokq, the driver and its planners do.
if "pyspark.daemon" in sys.orig_argv and "pyspark.worker" in sys.orig_argv:
    sys.meta_path.insert(0, NotInstalled())
"""


def hide_aiokq(home: Path) -> Path:
    """Return a directory that hides aiokq from executors when it is on their PYTHONPATH."""
    hidden = home / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(WITHOUT_AIOKQ)
    return hidden
