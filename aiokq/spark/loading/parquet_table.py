"""ParquetTable: a directory of Parquet files, with a subdirectory per batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aiokq.spark.loading.batches import batch_directory, move
from aiokq.spark.loading.manifest import LoadedFile, Manifest
from aiokq.spark.loading.tables import POSITION, Found

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["ParquetTable", "find_files"]


class ParquetTable:
    """A directory in which a batch becomes visible by a rename of its subdirectory.

    Args:
        root: directory of the table.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def check(self) -> None:
        """See `Table.check`; Parquet supports every type that a schema can express."""

    def is_there(self) -> bool:
        """See `Table.is_there`."""
        return True

    def publish(self, manifest: Manifest, rows: Path) -> None:
        """See `Table.publish`."""
        move(rows, self._root / batch_directory(manifest.batch))

    def find(self, manifests: Sequence[Manifest]) -> Iterator[Found]:
        """See `Table.find`; yields a `Found` for each batch and for unknown directories."""
        yield from find_files(self._root, {m.batch: (m, m.files) for m in manifests})


def find_files(
    root: Path, batches: dict[int, tuple[Manifest, Sequence[LoadedFile]]]
) -> Iterator[Found]:
    """Yield the positions of the rows in each batch directory, and the problems found there.

    Args:
        batches: for each batch number, the manifest and the expected files.
    """
    import pyarrow as pa

    known = {batch_directory(number) for number, (_, files) in batches.items() if files}
    strange = [path.name for path in sorted(root.glob("batch_id=*")) if path.name not in known]
    nothing = pa.table({"topic": pa.array([], pa.string()), "partition": pa.array([], pa.int32()),
                        "offset": pa.array([], pa.int64())})  # fmt: skip
    if strange:
        problems = [f"{root / name}: no manifest has this batch" for name in strange]
        yield Found((), nothing, problems)
    for number, (manifest, files) in batches.items():
        directory = root / batch_directory(number)
        problems = []
        tables = [nothing]
        wanted = {directory / file.path: file for file in files}
        for path, file in wanted.items():
            try:
                size = path.stat().st_size
                table = _positions(path, directory)
            except (OSError, pa.ArrowException) as error:
                problems.append(f"{path}: {_first_line(error)}")
                continue
            if size != file.size:
                problems.append(f"{path}: {size} bytes, but {file.size} bytes in the manifest")
            if len(table) != file.rows:
                problems.append(f"{path}: {len(table)} rows, but {file.rows} rows in the manifest")
            tables.append(table)
        problems += [
            f"{path}: the manifest does not name this file"
            for path in sorted(directory.rglob("*.parquet"))
            if path not in wanted
        ]
        yield Found((manifest,), pa.concat_tables(tables), problems)


def _positions(path: Path, directory: Path) -> pa.Table:
    """Return topic, partition and offset of the records in a file.

    All columns are read, so that the page checksums show any damage.
    """
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetFile(path, page_checksum_verification=True) as file:
        there = [name for name in POSITION if name in file.schema_arrow.names]
        found = [batch.select(there) for batch in file.iter_batches()]
        table = pa.Table.from_batches(found, pa.schema([file.schema_arrow.field(n) for n in there]))
    if "topic" not in there:
        parts = dict(part.split("=", 1) for part in path.relative_to(directory).parts[:-1])
        table = table.append_column("topic", pa.array([parts["topic"]] * len(table), pa.string()))
    return table.select(POSITION)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
