"""Task of a load: writes the rows of Arrow batches to Parquet files in a temporary directory.

The task decodes values, counts rows by partition, and writes undecodable records as dead letters.
Readers ignore the temporary names; the driver makes the files of a batch visible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from pyspark import TaskContext

from aiokq import TopicPartition
from aiokq.spark.durable_files import sync_file
from aiokq.spark.loading.failures import unwritable
from aiokq.spark.loading.options import NO_VALUE
from aiokq.spark.loading.timestamp_bounds import within_calendar

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyarrow import parquet

    from aiokq.spark.loading.values import ValueDecoder

__all__ = [
    "DEAD_LETTERS",
    "ROWS",
    "UNFINISHED",
    "Kind",
    "PartitionCount",
    "TaskReport",
    "TaskSpec",
    "WrittenFile",
    "dead_letter_schema",
    "schema",
    "write",
]

Kind: TypeAlias = Literal["rows", "dead-letters"]
ROWS: Final[Kind] = "rows"
DEAD_LETTERS: Final[Kind] = "dead-letters"
UNFINISHED: Final = ".unfinished"
"""Suffix of unfinished files, so that patterns such as ``**/*.parquet`` do not find them."""

ROW_GROUP: Final = 131_072
"""Maximum number of rows in a row group."""

MEMORY: Final = 64 * 2**20
"""Bytes of buffered rows at which a task writes the rows."""

OPEN_FILES: Final = 32
"""Maximum number of open files of a task.

The least recently used file is finished before another file is opened.
"""


@dataclass(frozen=True)
class TaskSpec:
    """Instructions for the tasks of a batch.

    Attributes:
        directories: existing directories, by kind of file.
        partition_by: columns (``topic``, ``date``) whose values become directories.
        compression: compression of Parquet; None for no compression.
        rows_per_file: maximum number of rows in a file; None for no maximum.
        headers: whether rows have the column ``headers``.
        decoder: decoder of values; None to leave them unchanged.
    """

    directories: Mapping[Kind, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    compression: str | None = "zstd"
    rows_per_file: int | None = None
    headers: bool = False
    decoder: ValueDecoder | None = None


@dataclass(frozen=True)
class PartitionCount:
    """Number of rows and dead letters of a partition in a task."""

    rows: int = 0
    dead: int = 0


@dataclass(frozen=True)
class WrittenFile:
    """A file that a task has finished.

    Attributes:
        path: final path relative to the directory of its kind, with slashes.
        rows: number of rows.
        size: size of the file in bytes.
    """

    kind: Kind
    path: str
    rows: int
    size: int


@dataclass(frozen=True)
class TaskReport:
    """The files that a task, or all tasks of a batch, wrote, and the rows of each partition."""

    files: Sequence[WrittenFile]
    counts: Mapping[TopicPartition, PartitionCount]


def schema(spec: TaskSpec) -> pa.Schema:
    """Return the schema of rows in files; columns that become directories are left out."""
    import pyarrow as pa

    binary = pa.field("value", pa.binary())
    fields = [
        pa.field("key", pa.binary()),
        binary if spec.decoder is None else spec.decoder.field,
        *_position(),
    ]
    if spec.headers:
        fields.append(_headers())
    return pa.schema([field for field in fields if field.name not in spec.partition_by])


def dead_letter_schema(spec: TaskSpec) -> pa.Schema:
    """Return the schema of dead letters: the original record and the error."""
    import pyarrow as pa

    fields = [pa.field("key", pa.binary()), pa.field("value", pa.binary()), *_position()]
    if spec.headers:
        fields.append(_headers())
    return pa.schema([*fields, pa.field("error", pa.string())])


def _position() -> list[pa.Field]:
    import pyarrow as pa

    return [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]


def _headers() -> pa.Field:
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return pa.field("headers", pa.list_(pa.field("element", header)))


def write(spec: TaskSpec, batches: Iterator[pa.RecordBatch]) -> TaskReport:
    """Write the rows of a task; called in a worker.

    Raises:
        LoadFailed: a file cannot be written, for example because the disk is full.
    """
    files = _Files(spec)
    counts: dict[TopicPartition, PartitionCount] = {}
    try:
        for batch in batches:
            _take(spec, batch, files, counts)
        return TaskReport(files.finish(), counts)
    finally:
        files.close()


def _take(
    spec: TaskSpec,
    batch: pa.RecordBatch,
    files: _Files,
    counts: dict[TopicPartition, PartitionCount],
) -> None:
    import pyarrow as pa

    table = pa.Table.from_batches([batch])
    dead: pa.Table | None = None
    if spec.decoder is not None:
        decoded = spec.decoder.decode(batch.column("value"))
        if decoded.errors:
            numbers = pa.array(decoded.errors.keys(), pa.int64())
            dead = table.take(numbers)
            dead = dead.append_column("error", pa.array(decoded.errors.values(), pa.string()))
        index = table.column_names.index("value")
        table = table.set_column(index, spec.decoder.field, decoded.values)
        if decoded.errors:
            table = table.filter(_all_but(len(table), decoded.errors))
    _count(table, counts, dead=False)
    files.add(ROWS, table)
    if dead is not None:
        _count(dead, counts, dead=True)
        files.add(DEAD_LETTERS, dead)


def _all_but(rows: int, numbers: Mapping[int, str]) -> pa.Array:
    import pyarrow as pa

    return pa.array([number not in numbers for number in range(rows)], pa.bool_())


def _count(table: pa.Table, counts: dict[TopicPartition, PartitionCount], *, dead: bool) -> None:
    grouped = table.group_by(["topic", "partition"]).aggregate([("offset", "count")])
    for row in grouped.to_pylist():
        tp = TopicPartition(row["topic"], row["partition"])
        rows, before = row["offset_count"], counts.get(tp, PartitionCount())
        counts[tp] = (
            PartitionCount(before.rows, before.dead + rows)
            if dead
            else PartitionCount(before.rows + rows, before.dead)
        )


class _Files:
    """The open and finished files of a task, by kind and directory."""

    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec
        self._open: dict[tuple[Kind, str], _File] = {}
        self._finished: list[WrittenFile] = []
        self._number = 0
        context = TaskContext.get()
        # Two attempts at a task may run at the same time, so names contain the number of the
        # attempt.
        self._name = (
            "part-00000-0"
            if context is None
            else f"part-{context.partitionId():05d}-{context.attemptNumber()}"
        )
        self._schemas = {ROWS: schema(spec), DEAD_LETTERS: dead_letter_schema(spec)}

    def add(self, kind: Kind, table: pa.Table) -> None:
        """Add rows to the files of their directories."""
        if kind == DEAD_LETTERS or not self._spec.partition_by:
            self._add(kind, "", table)
        else:
            for place, part in _placed(table, self._spec.partition_by):
                self._add(kind, place, part)
        held = sum(file.held for file in self._open.values())
        if held > MEMORY:
            for file in self._open.values():
                file.flush()

    def finish(self) -> list[WrittenFile]:
        """Finish and sync the open files; return all files of the task."""
        for key in list(self._open):
            self._end(key)
        return self._finished

    def close(self) -> None:
        """Close the files that a failure has left open."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _add(self, kind: Kind, place: str, table: pa.Table) -> None:
        table = table.select(self._schemas[kind].names).cast(self._schemas[kind])
        limit = self._spec.rows_per_file
        while len(table):
            file = self._file(kind, place)
            room = len(table) if limit is None else limit - file.rows
            file.add(table.slice(0, room))
            table = table.slice(room)
            if file.rows == limit:
                self._end((kind, place))

    def _file(self, kind: Kind, place: str) -> _File:
        key = (kind, place)
        file = self._open.pop(key, None)
        if file is None:
            if len(self._open) >= OPEN_FILES:
                self._end(next(iter(self._open)))
            name = f"{self._name}-{self._number}.parquet"
            self._number += 1
            path = f"{place}/{name}" if place else name
            root = Path(self._spec.directories[kind])
            file = _File(root, path, self._schemas[kind], self._spec.compression)
        # Files in the dict are ordered by last use.
        self._open[key] = file
        return file

    def _end(self, key: tuple[Kind, str]) -> None:
        file = self._open.pop(key)
        size = file.finish()
        self._finished.append(WrittenFile(key[0], file.path, file.rows, size))


class _File:
    """A Parquet file that is being written, in row groups."""

    def __init__(self, root: Path, path: str, schema: pa.Schema, compression: str | None) -> None:
        from pyarrow import parquet

        self.path = path
        self.rows = 0
        self.held = 0
        self._held_rows = 0
        self._held: list[pa.Table] = []
        self._schema = schema
        self._root = root
        self._place = root / (path + UNFINISHED)
        with self._writing():
            # Only the driver creates the root directory, because a worker that outlives its load
            # must not recreate the directory.
            for parent in reversed(self._place.relative_to(root).parents):
                if parent != Path("."):
                    (root / parent).mkdir(exist_ok=True)
            self._writer: parquet.ParquetWriter | None = parquet.ParquetWriter(
                str(self._place),
                schema,
                compression=compression or "none",
                # Without checksums, readers would not notice damage within a page.
                write_page_checksum=True,
            )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise unwritable(self._root, error) from error

    def add(self, table: pa.Table) -> None:
        self.rows += len(table)
        self._held_rows += len(table)
        self.held += table.nbytes
        self._held.append(table)
        if self._held_rows >= ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows."""
        if not self._held:
            return
        import pyarrow as pa

        table = pa.concat_tables(self._held)
        self._held.clear()
        self.held = self._held_rows = 0
        assert self._writer is not None
        with self._writing():
            self._writer.write_table(table, row_group_size=ROW_GROUP)

    def finish(self) -> int:
        """Finish and sync the file; return its size in bytes."""
        self.flush()
        self.close()
        with self._writing():
            sync_file(self._place)
            return self._place.stat().st_size

    def close(self) -> None:
        """Close the file without writing the buffered rows."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with self._writing():
                writer.close()


def _placed(table: pa.Table, columns: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Yield each directory with its rows, for example ``topic=orders/date=2026-01-31``.

    Dates are in UTC.
    """
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    keys: list[pa.ChunkedArray] = []
    for column in columns:
        if column == "date":
            times = within_calendar(table.column("timestamp"))
            keys.append(pc.strftime(times, format="%Y-%m-%d"))
        else:
            keys.append(table.column(column).cast(pa.string()))
    prefixes = [
        pc.binary_join_element_wise(name + "=", key, "")
        for name, key in zip(columns, keys, strict=True)
    ]
    places = pc.binary_join_element_wise(*prefixes, "/") if len(prefixes) > 1 else prefixes[0]
    parts = len(columns)
    for place in pc.unique(places).to_pylist():
        if place.count("/") >= parts:
            # The name of the topic has a slash. Brokers refuse such names. Without this check, the
            # file could be outside of the target.
            raise ValueError(f"a topic whose name is a path cannot be a directory: {place!r}")
        if f"topic={NO_VALUE}" in place.split("/"):
            raise ValueError(f"topic {NO_VALUE} cannot be a directory: readers take it for null")
        yield place, table.filter(pc.equal(places, place))
