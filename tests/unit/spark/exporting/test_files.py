"""The files of an export, and their rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from aiokq.errors import ConfigError
from aiokq.spark.exporting.columns import ExportColumns
from aiokq.spark.exporting.files import ParquetFiles


def write(path: Path, first: int, rows: int, row_group_size: int | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"n": pa.array(range(first, first + rows), pa.int64())})
    parquet.write_table(table, path, row_group_size=row_group_size)


def numbers(files: ParquetFiles, begin: tuple[int, int] = (0, 0)) -> list[int]:
    return [n for piece in files.pieces(begin) for n in piece.batch.column("n").to_pylist()]


def find(*sources: object, columns: ExportColumns | None = None) -> ParquetFiles:
    return ParquetFiles.find([str(source) for source in sources], columns or ExportColumns())


def test_files_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """If batch_id=10 came before batch_id=9, the last value of a key would be an old one."""
    for batch in (10, 9, 2):
        write(tmp_path / f"batch_id={batch}" / "part-0.parquet", batch, 1)
    assert numbers(find(tmp_path)) == [2, 9, 10]
    assert numbers(find(f"{tmp_path}/**/*.parquet")) == [2, 9, 10]
    assert numbers(find(tmp_path / "batch_id=9", tmp_path)) == [9, 2, 10]


def test_what_a_load_has_not_finished_is_left_out(tmp_path: Path) -> None:
    """The rows of an unfinished batch are also in the batch that replaces it."""
    write(tmp_path / "batch_id=0" / "part-0.parquet", 0, 1)
    write(tmp_path / "_temporary" / "part-0.parquet", 1, 1)
    write(tmp_path / ".hidden.parquet", 1, 1)
    (tmp_path / "_SUCCESS").touch()
    assert numbers(find(tmp_path)) == [0]


def test_columns_of_the_path_are_columns(tmp_path: Path) -> None:
    """Spark keeps partition columns only in names of directories."""
    write(tmp_path / "date=2026-01-31" / "a.parquet", 0, 1)
    write(tmp_path / "date=2026-02-01" / "a.parquet", 1, 1)
    files = find(tmp_path)
    assert files.columns.fields == ("n", "date")
    days = [value for piece in files.pieces() for value in piece.batch.column("date").to_pylist()]
    assert days == ["2026-01-31", "2026-02-01"]
    loaded = tmp_path / "batch_id=0" / "date=x"
    write(loaded / "a.parquet", 2, 1)
    assert find(tmp_path / "batch_id=0").columns.fields == ("n", "date")


def test_a_load_by_topic_and_date_is_restored_as_records(tmp_path: Path) -> None:
    """Regression: the date in the directory name turned each record into JSON with base64."""
    table = pa.table({"key": [b"k"], "value": [b"v"], "partition": [0], "offset": [0]})
    batch = tmp_path / "batch_id=0"
    for path in (batch / "topic=orders" / "date=2026-01-31", tmp_path / "region=EU"):
        path.mkdir(parents=True)
        parquet.write_table(table, path / "part-0.parquet")
    for source in (batch, batch / "topic=orders", f"{batch}/**/*.parquet"):
        columns = find(source).columns
        assert (columns.key, columns.value, columns.fields) == ("key", "value", None)
    assert find(batch, columns=ExportColumns(fields=())).columns.fields is not None
    assert find(tmp_path / "region=EU" / "part-0.parquet").columns.value == "value"
    (tmp_path / "all").mkdir()
    (tmp_path / "region=EU").rename(tmp_path / "all" / "region=EU")
    other = find(tmp_path / "all").columns
    assert other.fields == ("key", "value", "partition", "offset", "region")


def test_a_file_that_is_named_in_two_ways_is_exported_once(tmp_path: Path) -> None:
    """Regression: its rows were sent twice, without an error."""
    write(tmp_path / "lake" / "0.parquet", 0, 3)
    (tmp_path / "link").symlink_to("lake")

    files = find(tmp_path / "lake", f"{tmp_path}/lake/../lake", tmp_path / "link")

    assert numbers(files) == [0, 1, 2]


def test_names_of_directories_are_read_as_spark_writes_them(tmp_path: Path) -> None:
    """Regression: records had the city "S%C3%A3o Paulo".

    Spark also writes a directory name for null that other readers do not know.
    """
    for number, city in enumerate(["S%C3%A3o Paulo", "a%2Fb", "__HIVE_DEFAULT_PARTITION__"]):
        write(tmp_path / f"city={city}" / f"{number}.parquet", number, 1)

    files = find(tmp_path)

    found = [row for piece in files.pieces() for row in piece.batch.to_pylist()]
    assert sorted(found, key=lambda row: row["n"]) == [
        {"n": 0, "city": "São Paulo"},
        {"n": 1, "city": "a/b"},
        {"n": 2, "city": None},
    ]


@pytest.mark.parametrize("begin", [(0, 0), (0, 1), (0, 6), (0, 7), (0, 10), (1, 3), (1, 10)])
def test_an_export_goes_on_in_the_middle(tmp_path: Path, begin: tuple[int, int]) -> None:
    """From within a row group, its end, or the end of a file, each later row comes once."""
    write(tmp_path / "0.parquet", 0, 10, row_group_size=3)
    write(tmp_path / "1.parquet", 10, 10, row_group_size=4)
    files = find(tmp_path)
    assert files.rows == 20
    assert numbers(files, begin) == list(range(begin[0] * 10 + begin[1], 20))
    seen = []
    for piece in files.pieces(begin, rows=2):
        seen += piece.batch.column("n").to_pylist()
        assert piece.batch.column("n")[0].as_py() == piece.file * 10 + piece.first
        assert piece.until - piece.first == piece.batch.num_rows <= 2
    assert seen == numbers(files, begin)


def test_rows_of_a_megabyte_make_small_pieces(tmp_path: Path) -> None:
    """Ten thousand such rows in one piece would be ten gigabytes."""
    table = pa.table({"v": pa.array([bytes(1 << 20)] * 16)})
    parquet.write_table(table, tmp_path / "a.parquet")
    sizes = [piece.batch.num_rows for piece in find(tmp_path).pieces()]
    assert sum(sizes) == 16
    assert max(sizes) <= 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "there is no such file or directory"),
        ("*.parquet", "no Parquet file in it"),
        ("", "no Parquet file in it"),
    ],
)
def test_nothing_to_export_is_an_error(tmp_path: Path, name: str, message: str) -> None:
    """A script with a wrong path must not believe that it has exported."""
    with pytest.raises(ConfigError, match=message):
        find(f"{tmp_path}/{name}")
    with pytest.raises(ConfigError, match="no Parquet file"):
        find()


@pytest.mark.parametrize("content", [b"", b"PAR1 this is none"])
def test_a_file_that_is_no_parquet_is_named(tmp_path: Path, content: bytes) -> None:
    """Spark leaves empty files behind when it is killed."""
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(ConfigError, match=r"a\.parquet: cannot be read as Parquet"):
        find(tmp_path)


def test_a_file_without_a_column_is_named_before_anything_is_sent(tmp_path: Path) -> None:
    """The schema may change from one file to the next."""
    write(tmp_path / "0.parquet", 0, 1)
    parquet.write_table(pa.table({"m": [1]}), tmp_path / "1.parquet")
    with pytest.raises(ConfigError, match=r"1\.parquet: there is no column 'n'; there are m"):
        find(tmp_path)


def test_a_file_that_is_gone_meanwhile_is_named(tmp_path: Path) -> None:
    """A file may be deleted while the export reads it."""
    write(tmp_path / "0.parquet", 0, 1)
    files = find(tmp_path)
    (tmp_path / "0.parquet").unlink()
    with pytest.raises(ConfigError, match=r"0\.parquet: cannot be read"):
        list(files.pieces())
