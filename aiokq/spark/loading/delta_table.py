"""DeltaTable: a Delta table by `deltalake`, no jar; the extra ``delta``.

A batch is one commit, which notes query and batch as the table's own application transaction: a
batch that is there already is not written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from aiokq.spark.loading.failures import LoadFailed
from aiokq.spark.loading.manifest import Manifest
from aiokq.spark.loading.options import PartitionColumn
from aiokq.spark.loading.tables import POSITION, Found, rows_of, with_date

if TYPE_CHECKING:
    import deltalake
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["DeltaTable"]

Codec: TypeAlias = Literal["UNCOMPRESSED", "SNAPPY", "GZIP", "LZ4", "ZSTD"]


class DeltaTable:
    """A Delta table in a directory; made with the first rows.

    Args:
        schema: of the rows.
        partition_by: of the table.
        compression: of its files; None for none.
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
        self._partition_by = list(partition_by)
        self._compression = cast("Codec", (compression or "uncompressed").upper())

    def publish(self, manifest: Manifest, rows: Path) -> None:
        """See `Table.publish`."""
        import deltalake
        import pyarrow as pa
        from deltalake.exceptions import DeltaError

        table = self._open()
        if table is not None:
            last = table.transaction_version(manifest.query)
            if last is not None and last >= manifest.batch:
                return
        dated = "date" in self._partition_by
        schema = self._schema.append(pa.field("date", pa.date32())) if dated else self._schema
        batches = rows_of(manifest, rows)
        reader = pa.RecordBatchReader.from_batches(
            schema, (with_date(batch) if dated else batch for batch in batches)
        )
        note = deltalake.Transaction(manifest.query, manifest.batch)
        try:
            deltalake.write_deltalake(
                str(self._root),
                reader,
                mode="append",
                partition_by=list[str](self._partition_by) or None,
                writer_properties=deltalake.WriterProperties(compression=self._compression),
                commit_properties=deltalake.CommitProperties(app_transactions=[note]),
            )
        except DeltaError as error:
            raise LoadFailed(f"{self._root}: the Delta table refuses a batch: {error}") from error

    def find(self, manifests: Sequence[Manifest]) -> Iterator[Found]:
        """See `Table.find`; the table as a whole."""
        table = self._open()
        if table is None:
            import pyarrow as pa

            empty = pa.table({name: [] for name in POSITION})
            yield Found(manifests, empty, ["there is no Delta table"])
            return
        yield Found(manifests, table.to_pyarrow_table(columns=list(POSITION)))

    def _open(self) -> deltalake.DeltaTable | None:
        import deltalake

        if not deltalake.DeltaTable.is_deltatable(str(self._root)):
            return None
        return deltalake.DeltaTable(str(self._root))
