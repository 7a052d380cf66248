"""IcebergTable: an Iceberg table by `pyiceberg`, no jar; the extra ``iceberg``.

A batch is one snapshot, whose properties note query and batch: one that is there already is not
appended again. A batch is held in memory while it is appended.
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
"""The name of a catalog that has none; a property ``name`` gives it another."""

OF_IDENTITY: Final = ("name", "type", "py-catalog-impl", "uri", "warehouse", "prefix", "glue.id")
"""Properties that say which catalog it is. Others say how to reach it, and many are secrets."""

SYNCED: Final = "aiokq.spark.loading.synced_io"

_PASSWORD: Final = re.compile(r"(?<=://)([^/@:]*):[^/@]*@")

QUERY: Final = "aiokq.query-id"
BATCH: Final = "aiokq.batch-id"


def catalog_identity(properties: Mapping[str, str]) -> dict[str, str] | None:
    """Which catalog it is, by the properties that are given and those of pyiceberg's own settings.

    Those are ``.pyiceberg.yaml`` and variables such as ``PYICEBERG_CATALOG__AIOKQ__URI``. There is
    no secret in it.

    Returns:
        None for the one in SQLite within the target.
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
    """An Iceberg table; made, with its namespace, if it is not there.

    Args:
        root: of the load; without properties of a catalog, one in SQLite and the table are in it.
        name: ``namespace.name``; None for ``aiokq.load``.
        properties: of the catalog.
        schema: of the rows.
        partition_by: topic itself, and the day of the timestamp.
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
            # As it is: pyiceberg takes what is encoded for the names of directories.
            "warehouse": f"file://{root}",
        }
        if _is_local(self._properties.get("warehouse", "")):
            # Only here it is known that there is a disk to wait for.
            self._properties.setdefault("py-io-impl", f"{SYNCED}.SyncedFileIO")
        self._schema = schema
        self._partition_by = partition_by
        self._table: pyiceberg.table.Table | None = None

    def check(self) -> None:
        """See `Table.check`; it can have all that a schema can say."""

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
        # Of all columns pyiceberg notes the least and the largest value, as Python has them.
        batches = map(with_times_within_calendar, rows_of(manifest, rows))
        found = pa.Table.from_batches(batches, self._schema)
        note = {QUERY: manifest.query, BATCH: str(manifest.batch)}
        try:
            table.append(found, snapshot_properties=note)
        except (CommitFailedException, CommitStateUnknownException, ValueError) as error:
            raise LoadFailed(f"{self._name}: the Iceberg table refuses a batch: {error}") from error

    def find(self, manifests: Sequence[Manifest]) -> Iterator[Found]:
        """See `Table.find`; the table as a whole."""
        table = self._opened(make=False)
        if table is None:
            yield nothing_found(manifests, f"there is no Iceberg table {self._name}")
            return
        yield found_in(
            manifests, lambda: table.scan(selected_fields=POSITION).to_arrow(), self._name
        )

    def _opened(self, *, make: bool) -> pyiceberg.table.Table | None:
        """The table; if it is not there it is made, or None.

        Raises:
            OptionError: the catalog refuses.
        """
        if self._table is not None:
            return self._table
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError

        try:
            # By its own name a catalog is known to others who use it.
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
        # With its partitions at once: whoever is killed between leaves none.
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
        """Whether a snapshot says so; the newest first, for that is nearly always the one."""
        for snapshot in reversed(table.metadata.snapshots):
            summary = snapshot.summary
            if summary is not None and summary.get(QUERY) == manifest.query:
                return int(summary.get(BATCH) or -1) >= manifest.batch
        return False
