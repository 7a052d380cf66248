"""ParquetTable: a directory of Parquet files, one directory a batch."""

from __future__ import annotations

from pathlib import Path

from aiokq.spark.loading.batches import batch_directory, move
from aiokq.spark.loading.manifest import Manifest

__all__ = ["ParquetTable"]


class ParquetTable:
    """Rows become visible by a rename of their directory.

    Args:
        root: the directory that readers are given.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def publish(self, manifest: Manifest, rows: Path) -> None:
        """See `Table.publish`."""
        move(rows, self._root / batch_directory(manifest.batch))
