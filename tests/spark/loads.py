"""What the tests of `aiokq spark load` ask for, and what a reader of its directory sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from aiokq.spark import LoadOptions
from tests.spark.topics import Topics

Position = tuple[int, int]


def options(topics: Topics, topic: str, to: Path, /, **changes: Any) -> LoadOptions:
    """Of a load of all that is there now."""
    given: dict[str, Any] = {
        "to": to,
        "topics": (topic,),
        "kafka": {"bootstrap.servers": topics.bootstrap_servers},
        "available_now": True,
    }
    return LoadOptions(**(given | changes))


def seen(root: Path) -> list[Position]:
    """What a reader of the directory sees, who knows nothing of manifests."""
    table = ds.dataset(root, format="parquet", partitioning="hive").to_table()
    return sorted((row["partition"], row["offset"]) for row in table.to_pylist())


def sent(partitions: int, records: int) -> list[Position]:
    """Of topics that were filled."""
    return [(p, n) for p in range(partitions) for n in range(records)]
