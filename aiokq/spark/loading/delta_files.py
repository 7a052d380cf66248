"""DeltaFiles: the data files of one batch of a Delta table, written and synced before the commit.

`deltalake` writes and commits files in one call, without syncing the files. After a power failure
the Delta log could name empty files. Therefore `deltalake` writes the files to a staged table in
the temporary directory, and this module syncs the files and moves them to the table. delta_table.py
makes the commit.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypedDict
from urllib.parse import unquote

from aiokq.spark.durable_files import sync_directory, sync_file

if TYPE_CHECKING:
    import deltalake
    import pyarrow as pa  # type: ignore[import-untyped]
    from deltalake.transaction import AddAction, RemoveAction

__all__ = ["LOG", "Codec", "DeltaFiles"]

Codec: TypeAlias = Literal["UNCOMPRESSED", "SNAPPY", "GZIP", "LZ4", "ZSTD"]

LOG: Final = "_delta_log"


class _Added(TypedDict):
    """The `add` action of a Delta log.

    Source: Delta transaction log protocol, Add File.
    """

    path: str
    size: int
    partitionValues: dict[str, str | None]
    modificationTime: int
    stats: str


class DeltaFiles:
    """Writes the data files of one batch, and moves them to a Delta table.

    Args:
        staged: directory to which the files are first written, on the file system of the table.
    """

    def __init__(self, staged: Path) -> None:
        self._staged = staged

    def write(
        self, rows: pa.RecordBatchReader, partition_by: Sequence[str], compression: Codec
    ) -> deltalake.DeltaTable:
        """Write the files as a staged table, and return the table.

        Raises:
            DeltaError: a Delta table cannot have these rows.
        """
        import deltalake

        # The directory may have files of a process that was killed before its commit.
        shutil.rmtree(self._staged, ignore_errors=True)
        deltalake.write_deltalake(
            str(self._staged),
            rows,
            partition_by=list(partition_by) or None,
            writer_properties=deltalake.WriterProperties(compression=compression),
        )
        return deltalake.DeltaTable(str(self._staged))

    def move(self, root: Path, name: str) -> list[AddAction | RemoveAction]:
        """Move the files to a table, where readers ignore them until they are committed.

        Args:
            root: directory of the table.
            name: suffix of the file names, equal in all attempts at a batch, so that the files of a
                process that was killed before its commit are replaced.
        """
        from deltalake.transaction import AddAction

        actions: list[AddAction | RemoveAction] = []
        numbers: Counter[Path] = Counter()
        changed: set[Path] = set()
        for add in self._added():
            # Directory names are percent-encoded on disk, and once more in the Delta log.
            path = Path(unquote(add["path"]))
            goal = path.parent / f"part-{numbers[path.parent]:05d}-{name}.parquet"
            numbers[path.parent] += 1
            sync_file(self._staged / path)
            for parent in reversed(goal.parents):
                if not (root / parent).is_dir():
                    (root / parent).mkdir()
                    changed.add((root / parent).parent)
            os.replace(self._staged / path, root / goal)
            changed.add((root / goal).parent)
            actions.append(
                AddAction(
                    path=goal.as_posix(),
                    size=add["size"],
                    partition_values=add["partitionValues"],
                    modification_time=add["modificationTime"],
                    data_change=True,
                    stats=add["stats"],
                )
            )
        for directory in changed:
            sync_directory(directory)
        return actions

    def _added(self) -> list[_Added]:
        """Return the add actions in the log of the staged table, ordered by path."""
        found: list[_Added] = []
        for path in sorted((self._staged / LOG).glob("*.json")):
            for line in path.read_text(encoding="utf-8").splitlines():
                document = json.loads(line)
                if "add" in document:
                    found.append(document["add"])
        return sorted(found, key=lambda add: add["path"])
