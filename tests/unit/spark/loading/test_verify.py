"""Verification: missing, duplicated and unexpected rows are reported, one line each."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
from pyarrow import parquet

from aiokq import TopicPartition
from aiokq.errors import ConfigError
from aiokq.spark.loading.checkpoint import BatchOffsets
from aiokq.spark.loading.options import OptionError
from aiokq.spark.loading.verify import Verification, verify_load
from tests.unit.spark.loading.worlds import World, options, records


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two batches of two partitions, each with 20 good and 10 bad records per partition."""
    world = World(options(tmp_path / "out"))
    world.load(0)
    world.load(1)
    return world


def verified(world: World) -> Verification:
    # The log is not read: every offset has a record.
    return verify_load(world.options.root, kafka={"bootstrap.servers": "127.0.0.1:1"})


@pytest.mark.parametrize("format_", ["parquet", "delta", "iceberg"])
def test_a_sound_target_is_sound(tmp_path: Path, format_: str) -> None:
    """Dead letters count as well."""
    world = World(options(tmp_path / "out", format=format_))
    world.load(0)
    world.load(1)

    found = verified(world)

    assert found.problems == []
    assert found == Verification(
        batches=2, rows=80, dead_letters=40, offsets=120, gaps=0, problems=[], notes=[]
    )


def test_rows_of_a_table_that_are_there_twice_are_told(tmp_path: Path) -> None:
    """As after a job that wrote the same files again."""
    deltalake = pytest.importorskip("deltalake")
    world = World(options(tmp_path / "out", format="delta"))
    world.load(0)
    table = deltalake.DeltaTable(str(world.options.root))
    deltalake.write_deltalake(table, table.to_pyarrow_table(), mode="append")

    problems = verified(world).problems

    assert "batch 0: t-0 has 40 rows, but 20 rows in the manifest" in problems
    assert "batch 0: t-0 has 20 rows more than once" in problems


def test_a_file_that_is_gone_or_cut_is_told(world: World) -> None:
    """The file is named."""
    first, second = sorted(world.options.root.glob("batch_id=*/*.parquet"))
    first.unlink()
    os.truncate(second, 50)

    problems = verified(world).problems

    assert any(str(first) in problem for problem in problems)
    assert any(str(second) in problem for problem in problems)
    assert "batch 0: t-0 has no rows, but 20 rows in the manifest" in problems


def test_rows_of_a_file_are_compared_by_record(world: World) -> None:
    """A duplicated row does not make up for a missing one."""
    path = next(world.options.root.glob("batch_id=0/*.parquet"))
    rows = parquet.ParquetFile(path).read()
    parquet.write_table(rows.take([0, 0, *range(2, len(rows))]), path)

    problems = verified(world).problems
    assert [each for each in problems if " bytes, " not in each] == [
        "batch 0: t-0 has 1 rows more than once"
    ]


@pytest.mark.parametrize("column", ["key", "value", "timestamp"])
@pytest.mark.parametrize("partition_by", [(), ("topic", "date")], ids=["whole", "partitioned"])
def test_damage_within_a_page_is_told(
    tmp_path: Path, column: str, partition_by: tuple[str, ...]
) -> None:
    """Regression: files with damaged keys and values were "sound", as only offsets were read."""
    world = World(options(tmp_path / "out", partition_by=partition_by, compression="none"))
    world.load(0)
    path = next(world.options.root.rglob("*.parquet"))
    with parquet.ParquetFile(path) as file:
        group = file.metadata.row_group(0)
        chunk = next(
            group.column(n)
            for n in range(group.num_columns)
            if group.column(n).path_in_schema.split(".")[0] == column
        )
    with path.open("r+b") as damaged:
        # The last byte of the column's data.
        at = (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size
        damaged.seek(at - 1)
        byte = damaged.read(1)[0]
        damaged.seek(at - 1)
        damaged.write(bytes([byte ^ 0x10]))

    found = verified(world)

    assert [each for each in found.problems if str(path) in each]


@pytest.mark.parametrize("how", ["gone", "cut"])
@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_a_table_that_cannot_be_read_is_told(tmp_path: Path, format_: str, how: str) -> None:
    """Regression: the verification ended in a traceback of pyarrow."""
    world = World(options(tmp_path / "out", format=format_))
    world.load(0)
    root = world.options.root
    path = next(p for p in root.rglob("*.parquet") if "_aiokq_temporary" not in p.parts)
    path.unlink() if how == "gone" else os.truncate(path, 50)

    problems = verified(world).problems

    name = root if format_ == "delta" else "aiokq.load"
    assert any(problem.startswith(f"{name}: the table cannot be read: ") for problem in problems)
    assert "batch 0: t-0 has no rows, but 20 rows in the manifest" in problems


def test_a_file_of_another_size_is_told(world: World) -> None:
    """It may have the same rows, but it is not the file that the load has written."""
    path = next(world.options.root.glob("batch_id=0/*.parquet"))
    size = path.stat().st_size
    rows = parquet.ParquetFile(path).read()
    parquet.write_table(rows, path, compression="none")

    assert verified(world).problems == [
        f"{path}: {path.stat().st_size} bytes, but {size} bytes in the manifest"
    ]


def test_what_no_manifest_knows_is_told(world: World) -> None:
    """Readers of the directory would see it."""
    root = world.options.root
    shutil.copytree(root / "batch_id=1", root / "batch_id=7")
    file = next((root / "batch_id=0").iterdir())
    shutil.copy(file, file.with_name("more.parquet"))

    assert verified(world).problems == [
        f"{root}/batch_id=7: no manifest has this batch",
        f"{root}/batch_id=0/more.parquet: the manifest does not name this file",
    ]


def test_batches_that_do_not_follow_each_other_are_told(world: World) -> None:
    """The offsets between them are in no file."""
    path = world.options.root / "_aiokq_manifest" / "1.json"
    document = json.loads(path.read_text())
    document["partitions"]["t"]["0"]["from"] = 29
    document["partitions"]["t"]["0"]["until"] = 59
    path.write_text(json.dumps(document))

    assert "batch 1: t-0 starts at 29, the previous batch ended at 30" in verified(world).problems
    (world.options.root / "_aiokq_manifest" / "0.json").unlink()
    assert "batch 0 has no manifest" in verified(world).problems


def test_a_newest_batch_that_is_gone_with_its_manifest_is_told(world: World) -> None:
    """Regression: the target was reported as sound, though no load would restore the batch."""
    root = world.options.root
    commits = world.target.checkpoint.directory / "commits"
    commits.mkdir()
    for batch in (0, 1):
        (commits / str(batch)).write_text("v1\n{}")
    assert verified(world).problems == []
    shutil.rmtree(root / "batch_id=1")
    shutil.rmtree(world.options.dead_letter_root / "batch_id=1")
    (root / "_aiokq_manifest" / "1.json").unlink()

    (problem,) = verified(world).problems

    assert f"has finished batch 1, but {root} has batches only to 0" in problem


def test_without_the_checkpoint_nobody_can_tell_whether_the_newest_batch_is_there(
    tmp_path: Path,
) -> None:
    """The checkpoint is where --checkpoint says."""
    world = World(options(tmp_path / "out", checkpoint=tmp_path / "checkpoint"))
    world.load(0)

    (note,) = verified(world).notes

    assert f"{world.options.root}/_aiokq_checkpoint: there is no checkpoint" in note
    found = verify_load(
        world.options.root,
        kafka={"bootstrap.servers": "127.0.0.1:1"},
        checkpoint=tmp_path / "checkpoint",
    )
    assert found.notes == []


def test_dead_letters_are_looked_for_where_the_load_put_them(tmp_path: Path) -> None:
    """Regression: without --dead-letter their files were expected beside the target."""
    world = World(options(tmp_path / "out", dead_letter=tmp_path / "dead"))
    world.load(0)

    found = verified(world)

    assert (found.problems, found.dead_letters) == ([], 20)


def test_a_target_that_was_moved_with_its_dead_letters_is_sound(world: World) -> None:
    """Regression: they were expected in their former directory."""
    moved = world.options.root.with_name("moved")
    world.options.root.rename(moved)
    world.options.dead_letter_root.rename(moved.with_name("moved-dead-letter"))

    found = verify_load(moved, kafka={"bootstrap.servers": "127.0.0.1:1"})

    assert (found.problems, found.dead_letters) == ([], 40)


@pytest.mark.parametrize("format_", ["parquet", "delta"])
def test_a_topic_that_was_made_again_is_no_damage(tmp_path: Path, format_: str) -> None:
    """Regression: a load with --skip-lost continues, but later verifications called it damaged."""
    world = World(options(tmp_path / "out", format=format_, value_format="text", value_schema=None))
    world.load(0)
    tp = TopicPartition("t", 0)
    with world.target.opened(world.target.identity() or {}):
        world.batches().store(1, "query", BatchOffsets({tp: 0}, {tp: 9}), [records("t", 0, 0, 9)])

    found = verified(world)

    assert found.problems == []
    (note,) = found.notes
    assert note.startswith("batch 1: t-0 starts at 0 again, because the topic was recreated")


def test_a_directory_without_a_load_is_refused(tmp_path: Path) -> None:
    """An empty result must not look like a sound target."""
    with pytest.raises(ConfigError, match="no load has written to the directory"):
        verify_load(tmp_path, kafka={})


def test_a_damaged_manifest_is_refused_by_name(world: World) -> None:
    """It must not count as missing."""
    path = world.options.root / "_aiokq_manifest" / "1.json"
    whole = json.loads(path.read_text())
    for damaged in (
        b"{}",
        b"\xff\xfe",
        b"[]",
        json.dumps(whole | {"batch_id": "x"}).encode(),
        json.dumps(whole | {"partitions": {"t": {"0": {"from": "x"}}}}).encode(),
        json.dumps(whole | {"files": [{"path": "x", "rows": "y", "bytes": 1}]}).encode(),
    ):
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"1\.json: not a manifest"):
            verified(world)


def test_a_manifest_of_a_newer_version_is_called_so(world: World) -> None:
    """After a downgrade the manifest is not damaged."""
    path = world.options.root / "_aiokq_manifest" / "1.json"
    path.write_text('{"version": 2}')
    with pytest.raises(ConfigError, match=r"1\.json: manifest version 2, expected 1: it was"):
        verified(world)


def test_a_damaged_description_of_the_load_is_refused_by_name(world: World) -> None:
    """Regression: the error was a KeyError."""
    path = world.options.root / "_aiokq_load.json"
    for damaged in (b"{}", b"[]", b"\xff", b'{"format": "csv", "read_committed": false}'):
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"_aiokq_load\.json: the file is damaged"):
            verified(world)


def test_a_table_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """Regression: a misspelt --table created a table without columns, and broke the next load."""
    catalogs = pytest.importorskip("pyiceberg.catalog")
    world = World(options(tmp_path / "out", format="iceberg"))
    world.load(0)

    found = verify_load(
        world.options.root, kafka={"bootstrap.servers": "127.0.0.1:1"}, table="no.such"
    )

    assert "there is no Iceberg table no.such" in found.problems
    root = world.options.root
    catalog = catalogs.load_catalog(
        "aiokq", type="sql", uri=f"sqlite:///{root}/catalog.db", warehouse=root.as_uri()
    )
    assert catalog.list_namespaces() == [("aiokq",)]


def test_the_table_of_another_catalog_is_not_recounted(tmp_path: Path) -> None:
    """Regression: a verification without the load's catalog said "there is no table"."""
    pytest.importorskip("pyiceberg")
    world = World(options(tmp_path / "out", format="iceberg"))
    world.load(0)
    root = world.options.root

    with pytest.raises(OptionError, match="with the catalog within the target: give none"):
        verify_load(root, kafka={}, catalog={"type": "sql", "uri": "sqlite:///:memory:"})
    path = root / "_aiokq_load.json"
    document = json.loads(path.read_text()) | {"catalog": {"name": "prod"}}
    path.write_text(json.dumps(document))
    with pytest.raises(OptionError, match=r'with {"name": "prod"}: give its properties'):
        verify_load(root, kafka={})


def test_a_catalog_has_the_name_that_others_know_it_by(tmp_path: Path) -> None:
    """Regression: a property "name" was passed twice; in SQL catalogs it is part of the key."""
    catalogs = pytest.importorskip("pyiceberg.catalog")
    uri, warehouse = f"sqlite:///{tmp_path}/prod.db", str(tmp_path / "lake")
    given = {"name": "prod", "type": "sql", "uri": uri, "warehouse": warehouse}
    world = World(options(tmp_path / "out", format="iceberg", catalog=given))

    world.load(0)

    catalog = catalogs.load_catalog("prod", type="sql", uri=uri, warehouse=warehouse)
    assert catalog.list_tables("aiokq") == [("aiokq", "load")]
