"""The journal of an export: what it notes, and how an export continues from it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from pyarrow import parquet

from aiokq import RecordMetadata
from aiokq.errors import ConfigError
from aiokq.spark.checksums import checksum
from aiokq.spark.exporting.columns import ExportColumns
from aiokq.spark.exporting.files import ParquetFiles
from aiokq.spark.exporting.journal import Acknowledged, Destination, Journal
from tests.forking import LivingChild, needs_fork

HERE = Destination("cluster", "orders", UUID(int=1), {0: 5})


@pytest.fixture
def files(tmp_path: Path) -> ParquetFiles:
    parquet.write_table(pa.table({"n": [1, 2, 3]}), tmp_path / "a.parquet")
    return ParquetFiles.find([tmp_path / "a.parquet"], ExportColumns())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "progress"


def places(*offsets: tuple[int, int]) -> list[RecordMetadata]:
    return [RecordMetadata("orders", partition, offset, 0) for partition, offset in offsets]


def test_offsets_are_kept_as_ranges() -> None:
    """A hundred million rows must not take a hundred million numbers."""
    found = Acknowledged.of(places((0, 5), (1, 0), (0, 6), (0, 9)), 3)
    found.add(Acknowledged.of(places((0, 10), (1, 1)), 4))
    assert found.offsets == {0: [[5, 6], [9, 10]], 1: [[0, 1]]}
    assert (found.rows, found.checksum) == (6, 7)


def test_checksums_tell_keys_values_and_nothing_apart() -> None:
    """Swapped keys and values differ, and so do empty and null ones."""
    parts = (None, b"", b"a", b"b", b"ab")
    assert len({checksum(key, value) for key in parts for value in parts}) == len(parts) ** 2


def test_an_export_goes_on_where_it_was(path: Path, files: ParquetFiles) -> None:
    """After a kill during the piece after the second one, only the file is left."""
    first = Journal.open(path, files, HERE)
    first.add(0, 1, Acknowledged.of(places((0, 5)), 10))
    first.add(0, 2, Acknowledged.of(places((0, 6)), 20))
    first.close()
    later = Journal.open(path, files, replace(HERE, starts={0: 7}))
    assert later.position == (0, 2)
    assert (later.done.rows, later.before, later.done.checksum) == (2, 2, 30)
    assert later.done.offsets == {0: [[5, 6]]}
    assert later.destination.starts == {0: 5}
    later.add(0, 3, Acknowledged.of(places((0, 7)), 1))
    later.close()
    done = Journal.open(path, files, HERE)
    assert done.done.rows == 3
    done.close()


def test_the_producer_of_the_last_run_is_known(path: Path, files: ParquetFiles) -> None:
    """Its records in flight are recognized by the producer id, after the noted offsets."""
    first = Journal.open(path, files, HERE)
    assert (first.producer_id, first.is_kept) == (-1, True)
    first.add(0, 1, Acknowledged.of(places((0, 5), (1, 3)), 10))
    first.note_producer(4711)
    first.close()
    later = Journal.open(path, files, HERE)
    assert later.producer_id == 4711
    assert later.ends() == {0: 6, 1: 4}
    assert (later.position, later.done.rows) == ((0, 1), 2)
    later.note_producer(4712)
    later.close()
    last = Journal.open(path, files, HERE)
    assert last.producer_id == 4712
    last.close()


def test_the_name_of_a_new_file_outlives_a_power_cut(
    path: Path, files: ParquetFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the contents were synced but not the file's name, and all rows were resent."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    Journal.open(path, files, HERE).close()
    assert path.parent.stat().st_ino in synced


@pytest.mark.parametrize("left", [1, 10, 30])
def test_a_line_that_was_cut_off_was_not_written(
    path: Path, files: ParquetFiles, left: int
) -> None:
    """After a crash in the middle of a line the next lines must not be appended to half a line."""
    journal = Journal.open(path, files, HERE)
    journal.add(0, 1, Acknowledged.of(places((0, 5)), 10))
    whole = path.read_bytes()
    journal.add(0, 2, Acknowledged.of(places((0, 6)), 20))
    journal.close()
    path.write_bytes(path.read_bytes()[: len(whole) + left])
    again = Journal.open(path, files, HERE)
    assert again.position == (0, 1)
    again.add(0, 2, Acknowledged.of(places((0, 8)), 1))
    again.close()
    assert path.read_bytes().count(b"\n") == 3
    last = Journal.open(path, files, HERE)
    assert last.position == (0, 2)
    last.close()


def test_a_first_line_that_was_cut_off_is_begun_again(path: Path, files: ParquetFiles) -> None:
    """The export was killed while it wrote the first line."""
    Journal.open(path, files, HERE).close()
    path.write_bytes(path.read_bytes()[:40])
    Journal.open(path, files, HERE).close()
    assert path.read_bytes().endswith(b"\n")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cluster_id": "other"}, "another cluster"),
        ({"topic": "clicks"}, "topic orders"),
        ({"topic_id": UUID(int=2)}, "deleted and created again"),
    ],
)
def test_progress_of_another_export_is_refused(
    path: Path, files: ParquetFiles, change: dict[str, object], reason: str
) -> None:
    """Rows that were written to another topic would count as done."""
    Journal.open(path, files, HERE).close()
    with pytest.raises(ConfigError, match=f"the progress is .*{reason}") as caught:
        Journal.open(path, files, replace(HERE, **change))
    assert "ConfigError(" not in str(caught.value)


def test_other_files_and_columns_are_another_export(path: Path, files: ParquetFiles) -> None:
    """With another file or another key column the row numbers stand for other records."""
    Journal.open(path, files, HERE).close()
    with pytest.raises(ConfigError, match="other columns"):
        Journal.open(path, ParquetFiles(files.files, ExportColumns(key="n", value="n")), HERE)
    changed = [replace(files.files[0], size=1)]
    with pytest.raises(ConfigError, match="other files, or the files have changed"):
        Journal.open(path, ParquetFiles(changed, files.columns), HERE)


@pytest.mark.parametrize("content", [b"hello\n", b"[]\n", b"{}\n", b"no line", b'{"a":1}\n{}\n'])
def test_what_is_no_progress_is_not_written_over(
    path: Path, files: ParquetFiles, content: bytes
) -> None:
    """A typing error such as --resume data.parquet must not overwrite the file."""
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="progress"):
        Journal.open(path, files, HERE)
    assert path.read_bytes() == content


def test_two_exports_do_not_share_a_file(path: Path, files: ParquetFiles) -> None:
    """Two exports started by cron would both write all rows."""
    first = Journal.open(path, files, HERE)
    with pytest.raises(ConfigError, match="another export is using this file"):
        Journal.open(path, files, HERE)
    first.close()


@needs_fork
def test_the_file_is_not_kept_by_a_forked_child(files: ParquetFiles, path: Path) -> None:
    """Regression: a forked child that outlived an export kept the lock."""
    journal = Journal.open(path, files, HERE)
    with LivingChild():
        with pytest.raises(ConfigError, match="another export"):
            Journal.open(path, files, HERE)
        journal.close()
        Journal.open(path, files, HERE).close()
