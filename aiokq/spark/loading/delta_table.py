"""DeltaTable: a Delta table written by `deltalake`, without Java; needs the extra ``delta``.

A batch is one commit, which carries query id and batch number as an application transaction, so
that a batch is not committed twice. Its files are synced before the commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from aiokq.spark.durable_files import sync_directory, sync_file
from aiokq.spark.loading.delta_files import LOG, Codec, DeltaFiles
from aiokq.spark.loading.failures import LoadFailed
from aiokq.spark.loading.manifest import Manifest
from aiokq.spark.loading.options import OptionError, PartitionColumn
from aiokq.spark.loading.tables import (
    POSITION,
    Found,
    found_in,
    nothing_found,
    rows_of,
    with_date,
)

if TYPE_CHECKING:
    import deltalake
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["DeltaTable"]

STAGED: Final = "delta"

OF_WRITERS: Final = (
    "delta.generationExpression",
    "delta.identity.start",
    "delta.invariants",
    "delta.columnMapping.physicalName",
)
"""Keys of column metadata that writers must obey; `_check` refuses tables with such metadata."""


class DeltaTable:
    """A Delta table in a directory; the first batch with rows creates the table.

    Args:
        schema: schema of the rows.
        partition_by: partition columns of the table.
        compression: compression of the files; None for no compression.
    """

    def __init__(
        self,
        root: Path,
        schema: pa.Schema,
        partition_by: Sequence[PartitionColumn],
        compression: str | None,
    ) -> None:
        self._root = root
        self._schema = schema
        self._partition_by = list[str](partition_by)
        self._compression = cast("Codec", (compression or "uncompressed").upper())

    def check(self) -> None:
        """See `Table.check`. Delta refuses times of day, and names that differ only in case."""
        import deltalake

        try:
            deltalake.Schema.from_arrow(self._schema)
        except Exception as error:  # deltalake raises plain Exception
            raise OptionError(
                "value_schema", f"not supported by Delta: {_first_line(error)}"
            ) from error

    def is_there(self) -> bool:
        """See `Table.is_there`."""
        return self._open() is not None

    def publish(self, manifest: Manifest, rows: Path) -> None:
        """See `Table.publish`."""
        import deltalake
        from deltalake.exceptions import DeltaError

        table = self._open()
        if table is not None:
            last = table.transaction_version(manifest.query)
            if last is not None and last >= manifest.batch:
                # An earlier process may have been killed after the commit, before the sync.
                self._sync_log(table.version(), table.version())
                return
        try:
            files = DeltaFiles(rows.with_name(STAGED))
            written = files.write(self._read(manifest, rows), self._partition_by, self._compression)
            schema = written.schema()
            if table is None:
                table = deltalake.DeltaTable.create(
                    str(self._root), schema, mode="ignore", partition_by=self._partition_by or None
                )
                self._sync_log(0, table.version())
            self._check(table, written)
            before = table.version()
            table.create_write_transaction(
                files.move(self._root, f"{manifest.query}-{manifest.batch}"),
                "append",
                schema,
                self._partition_by or None,
                commit_properties=deltalake.CommitProperties(
                    app_transactions=[deltalake.Transaction(manifest.query, manifest.batch)]
                ),
            )
            table.update_incremental()
            self._sync_log(before + 1, table.version())
        except DeltaError as error:
            raise LoadFailed(
                f"{self._root}: the Delta table refused a batch: {_first_line(error)}"
            ) from error

    def find(self, manifests: Sequence[Manifest]) -> Iterator[Found]:
        """See `Table.find`; yields one `Found` for all batches."""
        table = self._open()
        if table is None:
            yield nothing_found(manifests, "there is no Delta table")
            return
        yield found_in(
            manifests, lambda: table.to_pyarrow_table(columns=list(POSITION)), self._root
        )

    def _open(self) -> deltalake.DeltaTable | None:
        import deltalake
        from deltalake.exceptions import DeltaError

        if not deltalake.DeltaTable.is_deltatable(str(self._root)):
            return None
        try:
            return deltalake.DeltaTable(str(self._root))
        except DeltaError as error:
            raise LoadFailed(
                f"{self._root}: the Delta table cannot be read: {_first_line(error)}"
                + self._advice()
            ) from error

    def _advice(self) -> str:
        """Return advice if a power failure has left the newest commit incomplete, otherwise ""."""
        commits = [each for each in (self._root / LOG).glob("*.json") if each.stem.isdigit()]
        newest = max(commits, default=None)
        if newest is None or _is_whole(newest):
            return ""
        return (
            f"; {newest} is incomplete, as after a power failure: move it away, and the same call "
            "repeats the commit if the load made it"
        )

    def _read(self, manifest: Manifest, rows: Path) -> pa.RecordBatchReader:
        import pyarrow as pa

        batches = rows_of(manifest, rows)
        if "date" not in self._partition_by:
            return pa.RecordBatchReader.from_batches(self._schema, batches)
        schema = self._schema.append(pa.field("date", pa.date32()))
        return pa.RecordBatchReader.from_batches(schema, map(with_date, batches))

    def _check(self, table: deltalake.DeltaTable, written: deltalake.DeltaTable) -> None:
        """Check that the files fit the table, which other writers may have changed."""
        theirs = {field.name: field for field in table.schema().fields}
        configuration = table.metadata().configuration
        wrong = [name for name in configuration if name.startswith("delta.constraints.")]
        if configuration.get("delta.enableRowTracking") == "true":
            wrong.append("delta.enableRowTracking")
        wrong += [
            f"{name}: {key}"
            for name, field in theirs.items()
            for key in OF_WRITERS
            if key in field.metadata
        ]
        for field in written.schema().fields:
            other = theirs.pop(field.name, None)
            if other is None or other.type != field.type or not other.nullable:
                wrong.append(f"{field.name} is not {field.type}")
        wrong += [f"{name} may not be null" for name, field in theirs.items() if not field.nullable]
        if table.metadata().partition_columns != self._partition_by:
            wrong.append(f"partitioned by {table.metadata().partition_columns}")
        if wrong:
            raise LoadFailed(
                f"{self._root}: the Delta table has been changed, and rows of the load no longer "
                f"fit: {', '.join(wrong)}"
            )

    def _sync_log(self, first: int, last: int) -> None:
        """Sync the commits of all writers from version `first` to `last`."""
        log = self._root / LOG
        names = ["_last_checkpoint"]
        for version in range(first, last + 1):
            names += [f"{version:020d}.json", f"{version:020d}.checkpoint.parquet"]
        for name in names:
            if (log / name).exists():
                sync_file(log / name)
        sync_directory(log)
        sync_directory(self._root)


def _first_line(error: Exception) -> str:
    """Return the message without Rust's backtrace."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def _is_whole(commit: Path) -> bool:
    try:
        for line in commit.read_text(encoding="utf-8").splitlines():
            json.loads(line)
    except (OSError, ValueError):
        return False
    return True
