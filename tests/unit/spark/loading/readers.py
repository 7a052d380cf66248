"""Readers of each kind of target, which show what users see in it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow.dataset as ds
import pytest

from tests.unit.spark.loading.worlds import World

Position = tuple[str, int, int]


def expected(batches: int, *, dead: bool = False) -> list[Position]:
    """Return the records that were sent, the good or the bad ones."""
    return sorted(
        ("t", p, n) for p in range(2) for n in range(30 * batches) if (n % 3 == 2) is dead
    )


def by_dataset(root: Path) -> list[Position]:
    table = ds.dataset(root, format="parquet", partitioning="hive").to_table()
    rows = table.select(["topic", "partition", "offset"]).to_pylist()
    return sorted((row["topic"], row["partition"], row["offset"]) for row in rows)


def by_pandas(root: Path) -> list[Position]:
    frame = pd.read_parquet(root)
    return sorted(zip(frame["topic"], frame["partition"], frame["offset"], strict=True))


def by_duckdb(root: Path) -> list[Position]:
    duckdb = pytest.importorskip("duckdb")
    query = f"select topic, partition, \"offset\" from '{root}/**/*.parquet'"
    return sorted(duckdb.connect().execute(query).fetchall())


def by_delta(root: Path) -> list[Position]:
    deltalake = pytest.importorskip("deltalake")
    rows = deltalake.DeltaTable(str(root)).to_pyarrow_table().to_pylist()
    return sorted((row["topic"], row["partition"], row["offset"]) for row in rows)


def by_iceberg(root: Path) -> list[Position]:
    catalogs = pytest.importorskip("pyiceberg.catalog")
    catalog = catalogs.load_catalog(
        "aiokq", type="sql", uri=f"sqlite:///{root}/catalog.db", warehouse=root.as_uri()
    )
    rows = catalog.load_table("aiokq.load").scan().to_arrow().to_pylist()
    return sorted((row["topic"], row["partition"], row["offset"]) for row in rows)


READERS = {
    "parquet": [by_dataset, by_pandas, by_duckdb],
    "delta": [by_delta],
    "iceberg": [by_iceberg],
}
FORMATS = list(READERS)


def check(world: World, batches: int) -> None:
    """Check that every reader sees each good record once, and each bad one as a dead letter."""
    for read in READERS[world.options.target_format]:
        assert read(world.options.root) == expected(batches), read.__name__
    assert by_dataset(world.options.dead_letter_root) == expected(batches, dead=True)
