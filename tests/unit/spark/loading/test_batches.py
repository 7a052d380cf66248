"""Batches: each record is loaded once, for every reader, wherever a load dies."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

pytest.importorskip("pyspark")
import aiokq.spark.loading.batches as batches_module
import aiokq.spark.loading.checkpoint as checkpoint_module
import aiokq.spark.loading.manifest as manifest_module
import aiokq.spark.loading.target as target_module
from aiokq import TopicPartition
from aiokq.errors import ConfigError
from aiokq.spark.loading.batches import Batches
from aiokq.spark.loading.checkpoint import BatchOffsets, Checkpoint
from aiokq.spark.loading.delta_table import DeltaTable
from aiokq.spark.loading.failures import LoadFailed
from aiokq.spark.loading.iceberg_table import IcebergTable
from aiokq.spark.loading.manifest import Manifests
from aiokq.spark.loading.parquet_table import ParquetTable
from aiokq.spark.loading.tables import Found
from aiokq.spark.loading.task_files import ROWS, TaskSpec, write
from aiokq.spark.offsets import SourceOffset
from tests.unit.spark.loading.readers import FORMATS, READERS, by_dataset, check, expected
from tests.unit.spark.loading.worlds import Crash, World, crashing, options, records


@pytest.mark.parametrize("format_", FORMATS)
def test_a_batch_is_there_once_with_its_dead_letters(tmp_path: Path, format_: str) -> None:
    """Without a crash, and when Spark runs a finished batch again."""
    world = World(options(tmp_path / "out", format=format_))

    first = world.load(0)
    world.load(1)
    again = world.load(1)

    check(world, 2)
    assert world.runs == 2
    assert (first.rows, first.dead, again.batch) == (40, 20, 1)
    letters = ds.dataset(world.options.dead_letter_root, format="parquet").to_table().to_pylist()
    assert {(row["value"], row["error"][:16]) for row in letters} == {(b"bad", "not JSON: Expect")}


MOMENTS: dict[str, tuple[object, str, bool]] = {
    "before the files are whole": (batches_module, "_keep_only", True),
    "before the manifest": (Manifests, "prepare", True),
    "after the manifest": (Manifests, "prepare", False),
    "before the rows are seen": (ParquetTable, "publish", True),
    "after the rows are seen": (ParquetTable, "publish", False),
    "before it is published": (Manifests, "publish", True),
    "after it is published": (Manifests, "publish", False),
    "at the end": (Batches, "store", False),
}
TABLES = {"parquet": ParquetTable, "delta": DeltaTable, "iceberg": IcebergTable}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("format_", FORMATS)
def test_a_load_that_dies_at_any_moment_goes_on_exactly_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str, moment: str
) -> None:
    """Two crashes at the same step; in between no reader sees a record twice either."""
    world = World(options(tmp_path / "out", format=format_))
    world.load(0)
    owner, name, before = MOMENTS[moment]
    owner = TABLES[format_] if owner is ParquetTable else owner
    for _ in range(2):
        with monkeypatch.context() as patched:
            call: Callable[..., object] = getattr(owner, name)
            patched.setattr(owner, name, crashing(call, before=before))
            try:
                world.load(1)
            except Crash:
                seen = READERS[format_][-1](world.options.root)
                assert len(set(seen)) == len(seen)

    world.load(1)

    check(world, 2)
    assert not list((world.options.root / "_aiokq_temporary").iterdir())
    assert sorted(p.name for p in (world.options.root / "_aiokq_manifest").iterdir()) == [
        "0.json",
        "1.json",
    ]


def test_what_a_batch_stands_on_is_on_the_disk_before_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: Spark's offsets were not synced, so after a power failure it planned others."""
    world = World(options(tmp_path / "out"))
    world.load(0)
    checkpoint = world.target.checkpoint.directory
    (checkpoint / "offsets").mkdir()
    for path in ("metadata", ".metadata.crc", "offsets/1", "offsets/.1.crc"):
        if not (checkpoint / path).exists():
            (checkpoint / path).write_text("v1")
    synced: list[str] = []
    for name in ("sync_file", "sync_directory"):
        monkeypatch.setattr(
            checkpoint_module, name, lambda path: synced.append(str(path.relative_to(checkpoint)))
        )
    at: list[int] = []
    prepare = Manifests.prepare
    monkeypatch.setattr(
        Manifests,
        "prepare",
        lambda self, manifest: (at.append(len(synced)), prepare(self, manifest)),
    )

    world.load(1)

    assert at == [len(synced)]
    assert set(synced) == {
        *("metadata", ".metadata.crc", ".", "offsets"),
        *("offsets/1", "offsets/.1.crc"),
    }


def test_a_batch_that_could_not_be_made_visible_is_by_the_same_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: its rows were in place; a repeat always failed with "no load has made it"."""
    world = World(options(tmp_path / "out"))
    batches = world.batches()
    offsets = BatchOffsets({TopicPartition("t", 0): 0}, {TopicPartition("t", 0): 30})
    frame = [records("t", 0, 0, 30)]
    with world.target.opened({}):
        with monkeypatch.context() as patched:
            patched.setattr(Manifests, "publish", crashing(Manifests.publish, before=True))
            with pytest.raises(Crash):
                batches.store(0, "query", offsets, frame)
        manifest = batches.store(0, "query", offsets, frame)

    assert (world.runs, manifest.rows) == (1, 20)
    assert by_dataset(world.options.root) == [row for row in expected(1) if row[1] == 0]


@pytest.mark.parametrize("partition_by", [(), ("date",)], ids=["whole", "by date"])
@pytest.mark.parametrize("format_", FORMATS)
def test_a_time_that_no_calendar_has_does_not_stop_a_load(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    format_: str,
    partition_by: tuple[str, ...],
) -> None:
    """Regression: microseconds written as milliseconds made each table reject the batch."""

    def far(topic: str, partition: int, first: int, until: int) -> pa.RecordBatch:
        found = records(topic, partition, first, until)
        index = found.schema.get_field_index("timestamp")
        times = found.column(index).cast(pa.int64()).to_pylist()
        times[0], times[1] = 1_700_000_000_000_000_000, -(2**62)
        column = pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        return found.set_column(index, found.schema.field(index), column)

    monkeypatch.setattr("tests.unit.spark.loading.worlds.records", far)
    world = World(options(tmp_path / "out", format=format_, partition_by=partition_by))
    world.load(0)
    world.load(1)

    table = everything(world)
    assert not table.problems
    assert len(table.positions) == 80
    if format_ == "parquet" and partition_by:
        dates = {path.parent.name for path in world.options.root.rglob("*.parquet")}
        assert {"date=9999-12-31", "date=0001-01-01"} < dates


def everything(world: World) -> Found:
    """Return all that readers of the table see."""
    found = list(world.batches()._table.find(list(world.target.manifests.all())))
    problems = [problem for each in found for problem in each.problems]
    return Found((), pa.concat_tables([each.positions for each in found]), problems)


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("name", ["a b", "ü=x"])
def test_names_of_directories_are_taken_as_they_are(
    tmp_path: Path, format_: str, name: str
) -> None:
    """Regression: an Iceberg table was written to a directory beside the target, named a%20b."""
    world = World(options(tmp_path / name / "out", format=format_))
    world.load(0)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_a_table_that_is_gone_is_not_made_anew(tmp_path: Path, format_: str) -> None:
    """A new table would have later batches only, and nobody would notice the loss."""
    world = World(options(tmp_path / "out", format=format_))
    world.load(0)
    if format_ == "delta":
        shutil.rmtree(world.options.root / "_delta_log")
    else:
        (world.options.root / "catalog.db").unlink()

    with pytest.raises(LoadFailed, match="the table of the load no longer exists"):
        world.load(1)


def test_rows_are_in_directories_of_topic_and_date(tmp_path: Path) -> None:
    """Partition columns are in names of directories and not in the files, as in Spark."""
    world = World(options(tmp_path / "out", partition_by=("topic", "date"), rows_per_file=4))

    manifest = world.load(0)

    places = {file.path.rpartition("/")[0] for file in manifest.files}
    assert places == {f"topic=t/date=1970-01-0{day}" for day in (1, 2, 3)}
    assert max(file.rows for file in manifest.files) == 4
    frame = pd.read_parquet(world.options.root)
    assert sorted(zip(frame["partition"], frame["offset"], strict=True)) == [
        (p, n) for _, p, n in expected(1)
    ]
    assert set(frame["date"]) == {"1970-01-01", "1970-01-02", "1970-01-03"}
    document = json.loads((world.options.root / "_aiokq_manifest" / "0.json").read_text())
    assert document["partitions"]["t"]["1"] == {
        "from": 0,
        "until": 30,
        "rows": 20,
        "dead_letters": 10,
    }
    assert document["query_id"] == "query"


def test_a_batch_of_other_offsets_is_not_taken_for_the_same(tmp_path: Path) -> None:
    """A checkpoint from a backup would otherwise skip what the batch has now."""
    world = World(options(tmp_path / "out"))
    world.load(0)

    with pytest.raises(LoadFailed, match="batch 0 was loaded before with other offsets"):
        world.load(0, size=31)


def test_a_batch_without_rows_makes_no_directory(tmp_path: Path) -> None:
    """A batch of control records only has a manifest, but no directory."""
    world = World(options(tmp_path / "out"))

    manifest = world.load(0, size=0)

    assert manifest.rows == 0
    assert not (world.options.root / "batch_id=0").exists()
    assert world.target.manifests.published(0) == manifest


def test_a_directory_of_others_is_left_alone(tmp_path: Path) -> None:
    """A typing error must not mix a load with other data, or delete them."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    world = World(options(tmp_path / "out"))

    with pytest.raises(ConfigError, match="the directory has other files"):
        world.load(0)

    assert [p.name for p in (tmp_path / "out").iterdir() if p.suffix == ".txt"] == ["mine.txt"]


def test_dead_letters_of_two_loads_are_kept_apart(tmp_path: Path) -> None:
    """Batches have the same numbers: those of the second load would count as done."""
    World(options(tmp_path / "a", dead_letter=tmp_path / "dead")).load(0)

    with pytest.raises(
        ConfigError, match=r"dead_letter: .* has the dead letters of another load \(.*/a\)"
    ):
        World(options(tmp_path / "b", dead_letter=tmp_path / "dead")).load(0)


def test_two_loads_to_one_directory_are_refused(tmp_path: Path) -> None:
    """Both would run the same batches, and each would delete the other's temporary files."""
    world = World(options(tmp_path / "out"))
    other = World(options(tmp_path / "out"))

    with (
        world.target.opened({"topics": ["t"]}),
        pytest.raises(ConfigError, match=r"another load .* is using it"),
        other.target.opened({"topics": ["t"]}),
    ):
        pass


def test_a_target_of_another_load_is_refused_by_the_name_of_the_option(tmp_path: Path) -> None:
    """Otherwise half of the files would have other columns or other topics."""
    world = World(options(tmp_path / "out"))
    world.load(0)

    with (
        pytest.raises(ConfigError, match=r'topics: .* was loaded with \["t"\], not \["u"\]'),
        world.target.opened({"topics": ["u"]}),
    ):
        pass


def test_a_directory_that_no_load_has_made_is_not_taken_for_a_batch(tmp_path: Path) -> None:
    """Regression: the rows of the batch were discarded as if they had been moved already."""
    world = World(options(tmp_path / "out"))
    world.load(0)
    (world.options.root / "batch_id=1").mkdir()
    (world.options.root / "batch_id=1" / "mine").write_text("mine")

    with pytest.raises(LoadFailed, match=r"batch_id=1: .* exists, but no load has created it"):
        world.load(1)
    (world.options.root / "batch_id=1" / "mine").unlink()
    (world.options.root / "batch_id=1").rmdir()
    world.load(1)

    check(world, 2)


def test_a_power_cut_leaves_no_manifest_without_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of the directories are synced before the manifest names them."""
    world = World(options(tmp_path / "out"))
    synced: list[str] = []
    for module in (batches_module, target_module, manifest_module):
        monkeypatch.setattr(module, "sync_directory", lambda path: synced.append(path.name))

    world.load(0)

    at = synced.index("_aiokq_manifest")
    before, letters = synced[:at], world.options.dead_letter_root.name
    assert before.count("rows") == before.count("dead-letters") == 1
    assert before.count("_aiokq_temporary") == 2
    assert "out" in before[before.index("_aiokq_temporary") :]
    assert letters in before[before.index("_aiokq_temporary") :]


def test_a_target_that_is_older_than_its_checkpoint_is_refused(tmp_path: Path) -> None:
    """A target restored from a backup lacks later batches, which nobody would notice."""
    world = World(options(tmp_path / "out"))
    world.load(0)
    commits = world.target.checkpoint.directory / "commits"
    commits.mkdir()
    for batch in (0, 1):
        (commits / str(batch)).write_text("v1\n{}")

    with pytest.raises(
        ConfigError, match=r"is at batch 1, .* has batches to 0, as after a restore"
    ):
        world.load(1)


def test_offsets_of_a_checkpoint_that_are_damaged_are_refused_by_name(tmp_path: Path) -> None:
    """Regression: bytes that are not text ended in a traceback."""
    path = tmp_path / "offsets" / "0"
    path.parent.mkdir()
    for damaged in (b"\xff\xfe", b"v1\n{}\nnone", b"v1\n{}\n[]", b"v9\n{}\n{}"):
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"offsets/0: "):
            Checkpoint(tmp_path).batch(0)


def test_a_topic_that_was_made_again_is_read_from_its_beginning(tmp_path: Path) -> None:
    """Regression: the manifest's batch began at the end of the old topic, after its own end."""
    checkpoint = Checkpoint(tmp_path)
    (tmp_path / "offsets").mkdir()
    t, u = TopicPartition("t", 0), TopicPartition("u", 0)
    for batch, (ends, id_) in enumerate((({t: 100, u: 7}, 1), ({t: 5, u: 9}, 2))):
        offset = SourceOffset(ends, None, {"t": UUID(int=id_), "u": UUID(int=9)}).to_map()
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(offset)}")

    assert checkpoint.batch(1).first == {t: 0, u: 7}
    assert checkpoint.batch(1).until == {t: 5, u: 9}


def test_a_topic_whose_name_is_a_path_makes_no_directory(tmp_path: Path) -> None:
    """A broker that is not Kafka's may return any topic name; files could end up anywhere."""
    (tmp_path / "rows").mkdir()
    spec = TaskSpec({ROWS: str(tmp_path / "rows")}, partition_by=("topic",))

    with pytest.raises(ValueError, match=r"cannot be a directory: 'topic=../../../evil'"):
        write(spec, iter([records("../../../evil", 0, 0, 3)]))

    assert [path.name for path in tmp_path.rglob("*")] == ["rows"]
