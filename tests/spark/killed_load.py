"""Driver process that loads, and that a test kills together with its JVM at a chosen point.

Takes one argument, JSON: ``options`` of the load; ``at``, one of `POINTS`; ``from``: the first
batch at which it dies. The point "offset log" is before Spark logs what a batch reads.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from aiokq.spark import AiokqDataSource, LoadOptions, load
from aiokq.spark.loading.batches import Batches
from aiokq.spark.loading.manifest import Manifests
from aiokq.spark.loading.parquet_table import ParquetTable
from aiokq.spark.loading.session import spark_session
from tests.spark.dying import DRIVER, DyingDataSource, kill_driver

POINTS: dict[str, tuple[type, str, bool]] = {
    "sink": (Batches, "store", True),
    "manifest": (Manifests, "prepare", True),
    "rows": (ParquetTable, "publish", True),
    "publish": (Manifests, "publish", True),
    "commit log": (Batches, "store", False),
}
"""Class and method, and whether the process dies before or after the call."""

SMALL = {
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def main(given: str) -> None:
    os.environ[DRIVER] = str(os.getpid())
    order = json.loads(given)
    point, first = order.get("at"), order.get("from", 0)
    if point in POINTS:
        kind, name, before = POINTS[point]
        setattr(kind, name, _dying(getattr(kind, name), first, before=before))
    named = order["options"]
    options = LoadOptions(**{**named, "topics": tuple(named["topics"])})
    with spark_session("killed", master="local[2,4]", conf=SMALL) as spark:
        if point == "offset log":
            spark.dataSource.register(DyingDataSource)
            _read_by_dying(order)
        load(options, spark=spark)


def _dying(call: Callable[..., object], first: int, *, before: bool) -> Callable[..., object]:
    seen: list[object] = []

    def die(*args: Any) -> object:
        seen.append(args)
        dies = len(seen) > first
        if dies and before:
            kill_driver()
        result = call(*args)
        if dies:
            kill_driver()
        return result

    return die


def _read_by_dying(order: dict[str, Any]) -> None:
    """Read through format("dying"), which is told when to die."""
    read_options = LoadOptions.read_options
    die = {"at": "latestOffset", "how": "killgroup", "from": order["offset"], "once": order["once"]}

    def with_death(self: LoadOptions) -> dict[str, str]:
        return {**read_options(self), "_die": json.dumps(die)}

    LoadOptions.read_options = with_death  # type: ignore[method-assign]
    AiokqDataSource.name = DyingDataSource.name  # type: ignore[method-assign]


if __name__ == "__main__":
    main(sys.argv[1])
