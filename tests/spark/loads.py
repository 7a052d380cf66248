"""Options for the tests of `aiokq spark load`, and readers of its directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from aiokq.spark import LoadOptions
from tests.spark.streams import Row
from tests.spark.topics import Topics

Position = tuple[int, int]


def options(topics: Topics, topic: str, to: Path, /, **changes: Any) -> LoadOptions:
    """Return options of a load of all records that exist now."""
    given: dict[str, Any] = {
        "to": to,
        "topics": (topic,),
        "kafka": {"bootstrap.servers": topics.bootstrap_servers},
        "available_now": True,
    }
    return LoadOptions(**(given | changes))


def seen(root: Path) -> list[Position]:
    """Return what a reader of the directory sees that does not know manifests."""
    table = ds.dataset(root, format="parquet", partitioning="hive").to_table()
    return sorted((row["partition"], row["offset"]) for row in table.to_pylist())


def rows(root: Path) -> list[Row]:
    """Return the same records, with their values."""
    table = ds.dataset(root, format="parquet", partitioning="hive").to_table()
    return [(row["partition"], row["offset"], row["value"].decode()) for row in table.to_pylist()]


def sent(partitions: int, records: int) -> list[Position]:
    """Return the positions of all records of filled topics."""
    return [(p, n) for p in range(partitions) for n in range(records)]
