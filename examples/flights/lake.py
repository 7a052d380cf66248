"""The flights as Parquet files, loaded by `aiokq spark load` and counted by pyarrow."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .spark_session import JVM, MASTER


@dataclass(frozen=True, slots=True)
class Loaded:
    """Counts of the loaded files.

    Attributes:
        told: number of records in the summary of `aiokq spark load`.
        rows: number of rows in the files, counted by pyarrow.
        distinct: number of different positions (partition and offset) of these rows.
    """

    told: int
    rows: int
    distinct: int
    files: int
    size: int


def load(bootstrap: str, topic: str, starts: Mapping[int, int], target: Path) -> Loaded:
    """Run the command on the records of the topic from `starts` on.

    Args:
        starts: first offset of each partition.
        target: a directory that does not exist yet.
    """
    offsets = {topic: {str(partition): offset for partition, offset in starts.items()}}
    command = [sys.executable, "-m", "aiokq", "spark", "load", topic, "--to", str(target)]
    command += ["--from", json.dumps(offsets), "--available-now", "--json"]
    command += ["--master", MASTER]
    for name, value in JVM.items():
        command += ["--conf", f"{name}={value}"]
    result = subprocess.run([*command, "-b", bootstrap], stdout=subprocess.PIPE, text=True)
    if result.returncode:
        raise SystemExit("aiokq spark load failed")
    return _count(target, json.loads(result.stdout))


def _count(target: Path, summary: Mapping[str, int]) -> Loaded:
    import pyarrow.dataset as arrow  # type: ignore[import-untyped]

    places = arrow.dataset(target, format="parquet").to_table(columns=["partition", "offset"])
    return Loaded(
        told=summary["rows"],
        rows=places.num_rows,
        distinct=places.group_by(["partition", "offset"]).aggregate([]).num_rows,
        files=summary["files"],
        size=summary["bytes"],
    )
