"""Table: where the rows of a batch become visible, and how they are found there again."""

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
"""The columns that say which record a row is."""


@dataclass(frozen=True)
class Found:
    """Rows that a reader of the table sees.

    Attributes:
        batches: that they should be all rows of.
        positions: with the columns `POSITION`.
        problems: what is wrong, but for the rows.
    """

    batches: Sequence[Manifest]
    positions: pa.Table
    problems: Sequence[str] = ()


def found_in(
    manifests: Sequence[Manifest], read: Callable[[], pa.Table], name: str | Path
) -> Found:
    """The rows of a table, or why it cannot be read."""
    import pyarrow as pa

    try:
        return Found(manifests, read())
    except (OSError, pa.ArrowException) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        return nothing_found(manifests, f"{name}: the table cannot be read: {reason}")


def nothing_found(manifests: Sequence[Manifest], problem: str) -> Found:
    """No rows, and why."""
    import pyarrow as pa

    return Found(manifests, pa.table({name: [] for name in POSITION}), [problem])


class Table(Protocol):
    """A kind of target."""

    def check(self) -> None:
        """Before anything is loaded: it can have such rows.

        Raises:
            OptionError: it cannot.
        """

    def is_there(self) -> bool:
        """Whether it has been made; what is no more than its directory always has."""

    def publish(self, manifest: Manifest, rows: Path) -> None:
        """Make the rows of a batch visible, all at once, unless they are already.

        Args:
            rows: the directory with the files of the manifest; gone if they were moved before.
        """

    def find(self, manifests: Sequence[Manifest]) -> Iterator[Found]:
        """What readers see.

        Args:
            manifests: all that are published.
        """


def rows_of(manifest: Manifest, rows: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a batch, from its temporary files."""
    from pyarrow import parquet

    for file in manifest.files:
        with parquet.ParquetFile(rows / file.path) as reader:
            yield from reader.iter_batches()


def with_date(batch: pa.RecordBatch) -> pa.RecordBatch:
    """With a column of the day of each record's timestamp, in UTC."""
    import pyarrow as pa

    # Days since 1970 is how both have it.
    times = within_calendar(batch.column("timestamp")).cast(pa.timestamp("us"))
    return batch.append_column(pa.field("date", pa.date32()), times.cast(pa.date32(), safe=False))


def with_times_within_calendar(batch: pa.RecordBatch) -> pa.RecordBatch:
    """With timestamps that Python has."""
    index = batch.schema.get_field_index("timestamp")
    times = within_calendar(batch.column(index))
    return batch.set_column(index, batch.schema.field(index), times)
