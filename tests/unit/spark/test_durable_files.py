"""Files that a table's commit names are synced before the commit, for each kind of table."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from aiokq.spark.loading.manifest import Manifests
from tests.unit.spark.loading.worlds import World, options


class Disk:
    """Records which files and directories are synced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # By inode, because files are renamed afterwards.
        self.synced: set[int] = set()
        fsync = os.fsync

        def noted(descriptor: int) -> None:
            fsync(descriptor)
            self.synced.add(os.fstat(descriptor).st_ino)

        monkeypatch.setattr(os, "fsync", noted)

    def lost(self, root: Path, pattern: str) -> list[Path]:
        """Return files that a power failure would lose now, or whose names it would lose."""
        found = [
            path
            for path in root.rglob(pattern)
            if not any(part.startswith("_aiokq") for part in path.relative_to(root).parts)
        ]
        assert found
        names = {
            each for path in found for each in (path, *path.parents) if each.is_relative_to(root)
        }
        return sorted(names - {root} - self._with_synced_names(names))

    def _with_synced_names(self, names: set[Path]) -> set[Path]:
        return {
            name
            for name in names
            if self._is_synced(name.parent) and (name.is_dir() or self._is_synced(name))
        }

    def _is_synced(self, path: Path) -> bool:
        return path.stat().st_ino in self.synced


def before(call: Callable[..., Any], look: Callable[[], None]) -> Callable[..., Any]:
    """Return a function that calls `look` first."""

    def looked(*given: Any, **named: Any) -> Any:
        look()
        return call(*given, **named)

    return looked


@pytest.mark.parametrize("partition_by", [(), ("topic", "date")], ids=["whole", "partitioned"])
def test_a_delta_commit_names_files_that_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition_by: tuple[str, ...]
) -> None:
    """Regression: after a power failure the log named empty files, and the table was unreadable."""
    deltalake = pytest.importorskip("deltalake")
    world = World(options(tmp_path / "out", format="delta", partition_by=partition_by))
    root = world.options.root
    disk = Disk(monkeypatch)
    looks: list[list[Path]] = []
    commit = deltalake.DeltaTable.create_write_transaction
    monkeypatch.setattr(
        deltalake.DeltaTable,
        "create_write_transaction",
        before(commit, lambda: looks.append(disk.lost(root, "*.parquet"))),
    )
    monkeypatch.setattr(
        Manifests,
        "publish",
        before(Manifests.publish, lambda: looks.append(disk.lost(root, "*.json"))),
    )

    world.load(0)
    world.load(1)

    assert looks == [[]] * 4


@pytest.mark.parametrize("partition_by", [(), ("topic", "date")], ids=["whole", "partitioned"])
def test_an_iceberg_commit_names_files_that_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition_by: tuple[str, ...]
) -> None:
    """Regression: the catalog was synced, but not the metadata and rows that it named."""
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    world = World(options(tmp_path / "out", format="iceberg", partition_by=partition_by))
    root = world.options.root
    disk = Disk(monkeypatch)
    looks: list[list[Path]] = []
    commit = sql.Session.commit

    def look() -> None:
        if list(root.rglob("*.metadata.json")):
            for pattern in ("*.metadata.json", "*.avro", "*.parquet"):
                if list(root.rglob(f"aiokq/**/{pattern}")):
                    looks.append(disk.lost(root / "aiokq", pattern))

    monkeypatch.setattr(sql.Session, "commit", before(commit, look))

    world.load(0)
    world.load(1)

    assert len(looks) >= 6
    assert not any(looks)


def test_a_catalog_with_files_elsewhere_keeps_the_io_it_was_given(tmp_path: Path) -> None:
    """Nothing is known about an object store; the user's choice is used."""
    from aiokq.spark.loading.iceberg_table import IcebergTable

    def properties(**given: str) -> dict[str, str]:
        return IcebergTable(tmp_path, None, given, None, ())._properties

    assert "py-io-impl" not in properties(type="rest", uri="http://c", warehouse="s3://lake")
    assert "py-io-impl" not in properties(type="rest", uri="http://c")
    assert properties(type="sql", warehouse="/lake")["py-io-impl"].endswith("SyncedFileIO")
    assert properties(warehouse="file:///lake", **{"py-io-impl": "own"})["py-io-impl"] == "own"
