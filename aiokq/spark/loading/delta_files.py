"""DeltaFiles: the data files of one batch for a Delta table, written and synced before its commit.

`deltalake` writes files and commits them in one call, and waits for no disk: after a power cut the
log could name files that are empty. So it writes to a table of its own in the temporary directory,
with partitions and statistics, and its files are moved from there. The commit is not here.
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
    """Of a Delta log.

    Source: Delta transaction log protocol, Add File.
    """

    path: str
    size: int
    partitionValues: dict[str, str | None]
    modificationTime: int
    stats: str


class DeltaFiles:
    """The files of one batch.

    Args:
        staged: a directory to write them to, on the file system of the table.
    """

    def __init__(self, staged: Path) -> None:
        self._staged = staged

    def write(
        self, rows: pa.RecordBatchReader, partition_by: Sequence[str], compression: Codec
    ) -> deltalake.DeltaTable:
        """Write them; as a table, whose schema it is.

        Raises:
            DeltaError: rows that no Delta table can have.
        """
        import deltalake

        # Of a process that was killed before its commit.
        shutil.rmtree(self._staged, ignore_errors=True)
        deltalake.write_deltalake(
            str(self._staged),
            rows,
            partition_by=list(partition_by) or None,
            writer_properties=deltalake.WriterProperties(compression=compression),
        )
        return deltalake.DeltaTable(str(self._staged))

    def move(self, root: Path, name: str) -> list[AddAction | RemoveAction]:
        """Move them to a table, where nobody reads them before they are committed.

        Args:
            root: of the table.
            name: how names of files go on: the same again for the same batch, so that those of a
                process that was killed before its commit are written over.
        """
        from deltalake.transaction import AddAction

        actions: list[AddAction | RemoveAction] = []
        numbers: Counter[Path] = Counter()
        changed: set[Path] = set()
        for add in self._added():
            # Names of directories are encoded once for the disk, and once more for the log.
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
        """What the log of the table in the temporary directory has, in the order of its names."""
        found: list[_Added] = []
        for path in sorted((self._staged / LOG).glob("*.json")):
            for line in path.read_text(encoding="utf-8").splitlines():
                document = json.loads(line)
                if "add" in document:
                    found.append(document["add"])
        return sorted(found, key=lambda add: add["path"])
