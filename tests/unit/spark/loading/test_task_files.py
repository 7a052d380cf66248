"""Files of a task: all columns, limited sizes, and temporary names that readers ignore."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
from pyarrow import parquet

from aiokq import TopicPartition
from aiokq.spark.loading.failures import LoadFailed
from aiokq.spark.loading.task_files import (
    DEAD_LETTERS,
    OPEN_FILES,
    ROWS,
    PartitionCount,
    TaskReport,
    TaskSpec,
    write,
)
from aiokq.spark.loading.values import RecordDecoder, text_reader
from tests.unit.spark.loading.worlds import records

HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)


def written(tmp_path: Path, batches: list[pa.RecordBatch], **given: object) -> TaskReport:
    directories = {kind: str(tmp_path / kind) for kind in (ROWS, DEAD_LETTERS)}
    for directory in directories.values():
        Path(directory).mkdir()
    return write(TaskSpec(directories=directories, **given), iter(batches))  # type: ignore[arg-type]


def read(tmp_path: Path, report: TaskReport, kind: str = ROWS) -> pa.Table:
    paths = [tmp_path / kind / f"{f.path}.unfinished" for f in report.files if f.kind == kind]
    return pa.concat_tables([parquet.ParquetFile(path).read() for path in paths])


def test_values_are_left_as_they_are_with_their_headers(tmp_path: Path) -> None:
    """A null value, too: such a record is a tombstone."""
    batch = records("t", 0, 0, 2).append_column(
        pa.field("headers", HEADERS), pa.array([[{"key": "h", "value": b"v"}], None], HEADERS)
    )

    table = read(tmp_path, written(tmp_path, [batch], headers=True))

    assert table.column_names == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    ]
    assert table.column("headers").to_pylist() == [[{"key": "h", "value": b"v"}], None]
    assert table.drop_columns("headers").to_batches()[0].equals(records("t", 0, 0, 2))
    assert not list(tmp_path.rglob("*.parquet"))


def test_text_that_is_no_utf_8_is_put_aside(tmp_path: Path) -> None:
    """With the reason, and with the original key and value."""
    batch = records("t", 0, 0, 3).set_column(
        1, "value", pa.array([b"a", b"\xff", None], pa.binary())
    )

    report = written(tmp_path, [batch], decoder=RecordDecoder(pa.string(), text_reader))

    assert read(tmp_path, report).column("value").to_pylist() == ["a", None]
    (letter,) = read(tmp_path, report, DEAD_LETTERS).to_pylist()
    assert (letter["offset"], letter["value"]) == (1, b"\xff")
    assert letter["error"] == "not UTF-8: invalid start byte at byte 0"
    assert report.counts == {TopicPartition("t", 0): PartitionCount(rows=2, dead=1)}


def test_files_end_where_they_are_full(tmp_path: Path) -> None:
    """Also across the batches in which rows arrive."""
    batches = [records("t", 0, n * 7, n * 7 + 7) for n in range(5)]

    report = written(tmp_path, batches, rows_per_file=10)

    assert [file.rows for file in report.files] == [10, 10, 10, 5]
    assert read(tmp_path, report).column("offset").to_pylist() == list(range(35))


def test_no_directory_is_called_as_what_readers_take_for_null(tmp_path: Path) -> None:
    """Spark and pyarrow would read the topic of its records as null."""
    with pytest.raises(ValueError, match="topic __HIVE_DEFAULT_PARTITION__ cannot be a directory"):
        written(tmp_path, [records("__HIVE_DEFAULT_PARTITION__", 0, 0, 3)], partition_by=("topic",))


def test_a_disk_that_is_full_is_called_by_name(tmp_path: Path) -> None:
    """pyarrow's "Error writing bytes to file" does not say which directory is full."""
    directory = tmp_path / "rows"
    directory.mkdir()
    (directory / "part-00000-0-0.parquet.unfinished").symlink_to("/dev/full")
    spec = TaskSpec({ROWS: str(directory)}, compression=None)

    with pytest.raises(LoadFailed) as caught:
        write(spec, iter([records("t", 0, 0, 100)]))

    assert caught.value.message == (
        f"{directory}: No space left on device; free some space, and the same call "
        "continues the load"
    )


def test_many_days_do_not_hold_many_files_open(tmp_path: Path) -> None:
    """Old topics have thousands of days; a closed file is followed by another one."""
    days = 2 * OPEN_FILES
    batches = [records("t", 0, 0, 10 * days), records("t", 1, 0, 10 * days)]

    report = written(tmp_path, batches, partition_by=("date",))

    assert {file.path.split("/")[0] for file in report.files} >= {"date=1970-01-01"}
    assert len(report.files) == 2 * days
    assert sum(file.rows for file in report.files) == 20 * days
