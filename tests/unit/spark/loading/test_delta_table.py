"""A Delta table: its commits, wherever a load dies, and changes made by others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
from aiokq.spark.loading.delta_table import DeltaTable
from aiokq.spark.loading.failures import LoadFailed
from aiokq.spark.loading.options import OptionError
from tests.unit.spark.loading.readers import by_delta, check, expected
from tests.unit.spark.loading.worlds import Crash, World, crashing, options


def committed_unsynced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[World, Path]:
    """Return a load that died before its second commit was synced, and that commit."""
    pytest.importorskip("deltalake")
    world = World(options(tmp_path / "out", format="delta"))
    world.load(0)
    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "_sync_log", crashing(DeltaTable._sync_log, before=True))
        with pytest.raises(Crash):
            world.load(1)
    return world, max((world.options.root / "_delta_log").glob("*.json"))


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_delta_load_that_dies_at_the_commit_leaves_no_unreferenced_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """Its files are already in the table's directory; the repeated batch replaces them."""
    deltalake = pytest.importorskip("deltalake")
    world = World(options(tmp_path / "out", format="delta", partition_by=("topic", "date")))
    world.load(0)
    for _ in range(2):
        with monkeypatch.context() as patched:
            commit = deltalake.DeltaTable.create_write_transaction
            died = crashing(commit, before=before)
            patched.setattr(deltalake.DeltaTable, "create_write_transaction", died)
            with contextlib.suppress(Crash):
                world.load(1)

    world.load(1)

    check(world, 2)
    table = deltalake.DeltaTable(str(world.options.root))
    known = {Path(unquote(uri)).name for uri in table.file_uris()}
    assert {path.name for path in world.options.root.rglob("*.parquet")} == known
    assert len(table.partitions()) == 6


def test_a_delta_commit_that_a_power_cut_emptied_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit's name was synced, but neither its contents nor the manifest."""
    world, commit = committed_unsynced(tmp_path, monkeypatch)
    commit.write_bytes(b"")

    world.load(1)

    check(world, 2)


def test_a_delta_log_that_cannot_be_read_is_a_line(tmp_path: Path) -> None:
    """Regression: it was a traceback of two languages, without advice."""
    pytest.importorskip("deltalake")
    world = World(options(tmp_path / "out", format="delta"))
    world.load(0)
    log = sorted((world.options.root / "_delta_log").glob("*.json"))
    log[-1].write_bytes(log[-1].read_bytes()[:100])

    with pytest.raises(LoadFailed, match="the Delta table cannot be read: ") as caught:
        world.load(1)

    assert "\n" not in caught.value.message
    assert f"; {log[-1]} is incomplete, as after a power failure: move it" in caught.value.message


def test_a_half_written_commit_that_is_moved_away_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user follows the advice of the message; the batch had no manifest yet."""
    world, commit = committed_unsynced(tmp_path, monkeypatch)
    commit.write_bytes(commit.read_bytes()[:100])
    with pytest.raises(LoadFailed, match="move it away"):
        world.load(1)
    commit.rename(tmp_path / "away")

    world.load(1)

    check(world, 2)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda t: t.alter.add_constraint({"few": "offset < 9"}), "delta.constraints.few"),
        (lambda t: t.delete(), None),
        (lambda t: t.alter.set_table_properties({"delta.appendOnly": "true"}), None),
    ],
    ids=["constraint", "deleted rows", "append only"],
)
def test_a_delta_table_that_others_change_is_gone_on_with_where_rows_fit(
    tmp_path: Path, change: Callable[[Any], object], problem: str | None
) -> None:
    """What `deltalake` checks for rows that it writes is also checked before this commit."""
    deltalake = pytest.importorskip("deltalake")
    world = World(options(tmp_path / "out", format="delta"))
    world.load(0)
    table = deltalake.DeltaTable(str(world.options.root))
    if problem is not None:
        table.delete()
    change(table)

    if problem is None:
        world.load(1)
        assert set(expected(2)) - set(expected(1)) <= set(by_delta(world.options.root))
        return
    with pytest.raises(LoadFailed, match=problem):
        world.load(1)


def test_a_delta_table_says_before_the_load_what_it_cannot_have(tmp_path: Path) -> None:
    """Regression: a time of day was refused only after the batch was complete."""
    pytest.importorskip("deltalake")
    for kind in (pa.time64("us"), pa.struct([("a", pa.int8()), ("A", pa.int8())])):
        table = DeltaTable(tmp_path, pa.schema([pa.field("value", kind)]), (), None)
        with pytest.raises(OptionError, match="value_schema: not supported by Delta"):
            table.check()
    DeltaTable(tmp_path, pa.schema([pa.field("value", pa.int64())]), (), None).check()
