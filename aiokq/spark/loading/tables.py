"""Table: the protocol of a table that a load writes, and functions for its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from aiokq.spark.loading.manifest import Manifest
from aiokq.spark.loading.timestamp_bounds import within_calendar

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = [
    "POSITION",
    "Found",
    "Table",
    "found_in",
    "nothing_found",
    "rows_of",
    "with_date",
    "with_times_within_calendar",
]

POSITION: Final = ("topic", "partition", "offset")
"""The columns that identify a record."""


@dataclass(frozen=True)
class Found:
    """Rows that a reader of the table sees.

    Attributes:
        batches: the manifests of the batches to which the rows should belong.
        positions: table with the columns `POSITION`.
        problems: problems other than wrong rows, such as unreadable files, one line each.
    """

    batches: Sequence[Manifest]
    positions: pa.Table
    problems: Sequence[str] = ()


def found_in(
    manifests: Sequence[Manifest], read: Callable[[], pa.Table], name: str | Path
) -> Found:
    """Return the rows of a table, or the reason why the table cannot be read."""
    import pyarrow as pa

    try:
        return Found(manifests, read())
    except (OSError, pa.ArrowException) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        return nothing_found(manifests, f"{name}: the table cannot be read: {reason}")


def nothing_found(manifests: Sequence[Manifest], problem: str) -> Found:
    """Return a `Found` without rows, and with the reason as its problem."""
    import pyarrow as pa

    return Found(manifests, pa.table({name: [] for name in POSITION}), [problem])


class Table(Protocol):
    """A table that a load writes."""

    def check(self) -> None:
        """Check before a load that the table can hold the load's rows.

        Raises:
            OptionError: the table cannot hold the rows.
        """

    def is_there(self) -> bool:
        """Whether the table exists; always true for a plain directory.

        Raises:
            LoadFailed: the table cannot be read.
            OptionError: the catalog cannot be reached, or refuses a request.
        """

    def publish(self, manifest: Manifest, rows: Path) -> None:
        """Make all rows of a batch visible in one step, unless they are visible already.

        Args:
            rows: directory of the manifest's files; missing if the directory was moved before.

        Raises:
            LoadFailed: the table cannot be read, or does not accept the rows.
            OptionError: the catalog cannot be reached, or refuses a request.
        """

    def find(self, manifests: Sequence[Manifest]) -> Iterator[Found]:
        """Yield the rows that readers see.

        Args:
            manifests: all published manifests.

        Raises:
            LoadFailed: the table cannot be read.
            OptionError: the catalog cannot be reached, or refuses a request.
        """


def rows_of(manifest: Manifest, rows: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch from its temporary files."""
    from pyarrow import parquet

    for file in manifest.files:
        with parquet.ParquetFile(rows / file.path) as reader:
            yield from reader.iter_batches()


def with_date(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with a column for the day of each record's timestamp, in UTC."""
    import pyarrow as pa

    # The cast gives the day in UTC, because date32 and timestamps both count from 1970 in UTC.
    times = within_calendar(batch.column("timestamp")).cast(pa.timestamp("us"))
    return batch.append_column(pa.field("date", pa.date32()), times.cast(pa.date32(), safe=False))


def with_times_within_calendar(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with its timestamps limited to the years 1 to 9999."""
    index = batch.schema.get_field_index("timestamp")
    times = within_calendar(batch.column(index))
    return batch.set_column(index, batch.schema.field(index), times)
