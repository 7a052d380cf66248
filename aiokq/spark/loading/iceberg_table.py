"""IcebergTable: an Iceberg table written by `pyiceberg`, without Java; needs the extra ``iceberg``.

A batch is one snapshot. The properties of the snapshot contain query id and batch number, so that a
batch is not appended twice. While a batch is appended, all its rows are in memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from aiokq.spark.loading.failures import LoadFailed
from aiokq.spark.loading.manifest import Manifest
from aiokq.spark.loading.options import OptionError, PartitionColumn
from aiokq.spark.loading.tables import (
    POSITION,
    Found,
    found_in,
    nothing_found,
    rows_of,
    with_times_within_calendar,
)

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyiceberg.catalog
    import pyiceberg.table

__all__ = ["IcebergTable", "catalog_identity"]

CATALOG: Final = "aiokq"
"""Default name of the catalog."""

OF_IDENTITY: Final = ("name", "type", "py-catalog-impl", "uri", "warehouse", "prefix", "glue.id")
"""Properties that identify a catalog.

The other properties are about access to the catalog, and many of them are secrets.
"""

SYNCED: Final = "aiokq.spark.loading.synced_io"

_PASSWORD: Final = re.compile(r"(?<=://)([^/@:]*):[^/@]*@")

QUERY: Final = "aiokq.query-id"
BATCH: Final = "aiokq.batch-id"


def catalog_identity(properties: Mapping[str, str]) -> dict[str, str] | None:
    """Return the identity of a catalog, from the given properties and pyiceberg's configuration.

    pyiceberg's configuration is ``.pyiceberg.yaml`` and variables such as
    ``PYICEBERG_CATALOG__AIOKQ__URI``. The result has no secrets.

    Returns:
        None for the SQLite catalog in the target.
    """
    if not properties:
        return None
    from pyiceberg.utils.config import Config

    name = properties.get("name", CATALOG)
    found = {**(Config().get_catalog_config(name) or {}), **properties, "name": name}
    return {
        key: _PASSWORD.sub(r"\1@", str(found[key]))
        for key in OF_IDENTITY
        if found.get(key) is not None
    }


def _is_local(warehouse: str) -> bool:
    return bool(warehouse) and urlsplit(warehouse).scheme in ("", "file")


class IcebergTable:
    """An Iceberg table, created together with its namespace if it does not exist.

    Args:
        root: directory of the load. If `properties` is empty, a SQLite catalog and the table are
            created in this directory.
        name: ``namespace.name``; None for ``aiokq.load``.
        properties: properties of the catalog.
        schema: schema of the rows.
        partition_by: partition columns: topic, date (the day of the timestamp), or both.
    """

    def __init__(
        self,
        root: Path,
        name: str | None,
        properties: Mapping[str, str],
        schema: pa.Schema,
        partition_by: Sequence[PartitionColumn],
    ) -> None:
        self._name = name or "aiokq.load"
        self._properties = dict(properties) or {
            "type": "sql",
            "uri": f"sqlite:///{root / 'catalog.db'}",
            # The path is not percent-encoded, because pyiceberg does not decode it.
            "warehouse": f"file://{root}",
        }
        if _is_local(self._properties.get("warehouse", "")):
            # Only a local warehouse needs syncing.
            self._properties.setdefault("py-io-impl", f"{SYNCED}.SyncedFileIO")
        self._schema = schema
        self._partition_by = partition_by
        self._table: pyiceberg.table.Table | None = None

    def check(self) -> None:
        """See `Table.check`; Iceberg supports every type that a schema can express."""

    def is_there(self) -> bool:
        """See `Table.is_there`."""
        return self._opened(make=False) is not None

    def publish(self, manifest: Manifest, rows: Path) -> None:
        """See `Table.publish`."""
        import pyarrow as pa
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

        table = self._opened(make=True)
        assert table is not None
        table.refresh()
        if self._has(table, manifest):
            return
        # pyiceberg computes the minimum and maximum of each column as Python objects, which can
        # only represent the years 1 to 9999.
        batches = map(with_times_within_calendar, rows_of(manifest, rows))
        found = pa.Table.from_batches(batches, self._schema)
        note = {QUERY: manifest.query, BATCH: str(manifest.batch)}
        try:
            table.append(found, snapshot_properties=note)
        except (CommitFailedException, CommitStateUnknownException, ValueError) as error:
            raise LoadFailed(f"{self._name}: the Iceberg table refused a batch: {error}") from error

    def find(self, manifests: Sequence[Manifest]) -> Iterator[Found]:
        """See `Table.find`; yields one `Found` for all batches."""
        table = self._opened(make=False)
        if table is None:
            yield nothing_found(manifests, f"there is no Iceberg table {self._name}")
            return
        yield found_in(
            manifests, lambda: table.scan(selected_fields=POSITION).to_arrow(), self._name
        )

    def _opened(self, *, make: bool) -> pyiceberg.table.Table | None:
        """Return the table. If it does not exist, create it if `make` is true, else return None.

        Raises:
            OptionError: the catalog cannot be reached, or refuses a request.
        """
        if self._table is not None:
            return self._table
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError

        try:
            # `name` is the name of the catalog, not a property of pyiceberg.
            others = {key: value for key, value in self._properties.items() if key != "name"}
            catalog = load_catalog(self._properties.get("name", CATALOG), **others)
            try:
                self._table = catalog.load_table(self._name)
            except NoSuchTableError:
                self._table = self._made(catalog) if make else None
        except (OSError, ValueError, RuntimeError) as error:
            raise OptionError("catalog", f"{self._name}: {error}") from error
        return self._table

    def _made(self, catalog: pyiceberg.catalog.Catalog) -> pyiceberg.table.Table:
        from pyiceberg.transforms import DayTransform, IdentityTransform

        catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        # Table and partition columns are created in one transaction, so that a kill cannot leave a
        # table without partition columns.
        with catalog.create_table_transaction(self._name, self._schema) as made:
            if self._partition_by:
                with made.update_spec() as spec:
                    for column in self._partition_by:
                        if column == "topic":
                            spec.add_field("topic", IdentityTransform(), "topic_id")
                        else:
                            spec.add_field("timestamp", DayTransform(), "date")
        return catalog.load_table(self._name)

    def _has(self, table: pyiceberg.table.Table, manifest: Manifest) -> bool:
        """Whether the newest snapshot of the query has at least the batch number of `manifest`."""
        for snapshot in reversed(table.metadata.snapshots):
            summary = snapshot.summary
            if summary is not None and summary.get(QUERY) == manifest.query:
                return int(summary.get(BATCH) or -1) >= manifest.batch
        return False
