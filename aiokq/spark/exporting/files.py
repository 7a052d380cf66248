"""Finds the Parquet files of an export, puts them in order, and reads their rows in pieces."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import unquote

from aiokq.errors import ConfigError
from aiokq.spark.exporting.columns import ExportColumns

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["PIECE_BYTES", "PIECE_ROWS", "ParquetFiles", "Piece"]

Constants: TypeAlias = "dict[str, str | None]"
"""Values of the columns in a file's path, by column name; None for null."""

PIECE_ROWS: Final = 10_000
PIECE_BYTES: Final = 4 << 20
"""Limits of a piece of an export: maximum rows, and approximate maximum bytes."""

NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Value that represents null in names of directories; other values are percent-encoded."""

LOADED_BATCH: Final = "batch_id"
"""Name in the directories ``batch_id=N`` of `aiokq spark load`; the name is not a column."""


@dataclass(frozen=True)
class ParquetFile:
    """One Parquet file.

    Attributes:
        rows: number of rows, from the footer.
        size: size of the file in bytes.
        content: uncompressed size of the file's columns in bytes.
        constants: columns whose value is in the path (``date=2026-01-31/part-0.parquet``).
        names: columns of the file, followed by the columns of the path.
    """

    path: Path
    rows: int
    size: int
    names: tuple[str, ...]
    content: int = 0
    constants: Constants = field(default_factory=dict)


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of one file.

    Attributes:
        file: number of the file, in the order of the export.
        first: number of the first row in the file, from 0.
    """

    file: int
    first: int
    batch: pa.RecordBatch

    @property
    def until(self) -> int:
        """The number of the row after the last row of the piece, counted like `first`."""
        return self.first + int(self.batch.num_rows)


class ParquetFiles:
    """All files of an export.

    Attributes:
        files: the files, in the order of the given sources. Files of one directory or pattern are
            ordered by path, with numbers in the path compared by value.
        columns: the columns that become the parts of a record.
    """

    def __init__(self, files: Sequence[ParquetFile], columns: ExportColumns) -> None:
        self.files = tuple(files)
        self.columns = columns

    @classmethod
    def find(cls, sources: Sequence[str | Path], columns: ExportColumns) -> ParquetFiles:
        """Find the files and read their schemas.

        Args:
            sources: files, directories, and shell patterns with ``**``. Of a directory, the files
                ``*.parquet`` at any depth are taken. Names that begin with "_" or "." are skipped
                there, as in Spark.

        Raises:
            ConfigError: there are no files, a file cannot be read, a column is missing or has a
                wrong type, `columns` gives both value and fields, or pyarrow is not installed.
        """
        if find_spec("pyarrow") is None:
            raise ConfigError("Parquet is read by pyarrow: pip install 'aiokq[arrow]'")
        found: dict[Path, ParquetFile] = {}
        for source in sources:
            for path, constants in _paths(source):
                if (place := path.resolve()) not in found:
                    found[place] = _look(path, constants)
        if not found:
            raise ConfigError("there is no Parquet file to export")
        files = list(found.values())
        mapping = columns.of(files[0].names, files[0].constants)
        for file in files:
            mapping.check(_schema(file.path), str(file.path), file.constants)
        return cls(files, mapping)

    @property
    def rows(self) -> int:
        """Number of rows of all files."""
        return sum(file.rows for file in self.files)

    @property
    def content(self) -> int:
        """Uncompressed size of the columns of all files, in bytes."""
        return sum(file.content for file in self.files)

    def pieces(
        self, begin: tuple[int, int] = (0, 0), rows: int = PIECE_ROWS, size: int = PIECE_BYTES
    ) -> Iterator[Piece]:
        """Yield the rows in pieces, starting with a given row.

        Args:
            begin: number of the first file, and number of the first row in the file.
            rows: maximum number of rows of a piece.
            size: approximate maximum size of a piece, in bytes.

        Raises:
            ConfigError: a file has changed, or is damaged.
        """
        for number in range(begin[0], len(self.files)):
            yield from self._of(number, begin[1] if number == begin[0] else 0, rows, size)

    def _of(self, number: int, skip: int, rows: int, size: int) -> Iterator[Piece]:
        import pyarrow as pa
        from pyarrow import parquet

        file = self.files[number]
        wanted = [name for name in self.columns.used if name not in file.constants]
        try:
            with parquet.ParquetFile(file.path) as opened:
                row = 0
                for group in range(opened.metadata.num_row_groups):
                    group_rows = opened.metadata.row_group(group).num_rows
                    if row + group_rows <= skip:
                        row += group_rows
                        continue
                    for batch in opened.iter_batches(
                        rows, row_groups=[group], columns=wanted, use_threads=False
                    ):
                        for piece in _cut(batch, max(0, skip - row), size):
                            first = row + piece[0]
                            yield Piece(number, first, _with_constants(piece[1], file.constants))
                        row += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise ConfigError(f"{file.path}: cannot be read: {error}") from error


def _cut(batch: pa.RecordBatch, skip: int, size: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows after the first `skip` in slices of about `size` bytes.

    Each slice comes with the number of its first row in the batch.
    """
    rows = max(1, batch.num_rows * size // max(1, batch.nbytes))
    for start in range(skip, batch.num_rows, rows):
        yield start, batch.slice(start, rows)


def _with_constants(batch: pa.RecordBatch, constants: Constants) -> pa.RecordBatch:
    import pyarrow as pa

    for name, value in constants.items():
        if name not in batch.schema.names:
            batch = batch.append_column(
                name, pa.repeat(pa.scalar(value, pa.string()), batch.num_rows)
            )
    return batch


def _paths(source: str | Path) -> Iterator[tuple[Path, Constants]]:
    """Yield the files of one source, each with the columns in its path below the source."""
    path = Path(source)
    if path.is_dir():
        paths = [each for each in path.rglob("*.parquet") if _is_visible(each.relative_to(path))]
        root = path
    elif path.exists():
        paths, root = [path], path.parent
    else:
        text = str(source)
        fixed = re.split(r"[*?\[]", text, maxsplit=1)[0]
        if fixed == text:
            raise ConfigError(f"{text}: there is no such file or directory")
        root = Path(fixed).parent if not fixed.endswith("/") else Path(fixed)
        paths = []
        for each in map(Path, glob.glob(text, recursive=True)):
            if each.is_dir():
                paths += [p for p in each.rglob("*.parquet") if _is_visible(p.relative_to(each))]
            else:
                paths.append(each)
    if not paths:
        raise ConfigError(f"{source}: there is no Parquet file in it")
    for each in sorted(set(paths), key=_by_numbers):
        yield each, _constants(each.relative_to(root).parts[:-1])


def _constants(directories: Sequence[str]) -> Constants:
    """Return the columns in directory names such as ``city=S%C3%A3o``.

    Source: Spark, ExternalCatalogUtils.unescapePathName.
    """
    named = (part.partition("=") for part in directories)
    found = {unquote(name): value for name, equals, value in named if equals}
    found.pop(LOADED_BATCH, None)
    return {name: None if value == NO_VALUE else unquote(value) for name, value in found.items()}


def _is_visible(path: Path) -> bool:
    return not any(part.startswith(("_", ".")) for part in path.parts)


def _by_numbers(path: Path) -> list[tuple[int, str]]:
    """Return a sort key by which batch_id=10 comes after batch_id=9."""
    parts = re.split(r"(\d+)", str(path))
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _look(path: Path, constants: Constants) -> ParquetFile:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        metadata = parquet.read_metadata(path)
        names = metadata.schema.to_arrow_schema().names
        size = path.stat().st_size
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(f"{path}: cannot be read as Parquet: {error}") from error
    path_columns = {name: value for name, value in constants.items() if name not in names}
    groups = range(metadata.num_row_groups)
    content = sum(metadata.row_group(number).total_byte_size for number in groups)
    return ParquetFile(
        path, metadata.num_rows, size, (*names, *path_columns), content, path_columns
    )


def _schema(path: Path) -> pa.Schema:
    from pyarrow import parquet

    return parquet.read_schema(path)
