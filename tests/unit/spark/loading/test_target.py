"""Ownership of a target: it belongs to the load that began there."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from aiokq.spark.loading import directory_lock
from aiokq.spark.loading.directory_lock import DirectoryLock, Held
from aiokq.spark.loading.iceberg_table import catalog_identity
from aiokq.spark.loading.manifest import Manifest
from aiokq.spark.loading.options import OptionError
from aiokq.spark.loading.target import Target
from tests.forking import LivingChild, needs_fork


def test_a_load_that_never_began_binds_nobody(tmp_path: Path) -> None:
    """Regression: after a schema that Spark refused, the corrected load was refused as another."""
    target = Target(tmp_path / "out", None)
    with target.opened({"value_schema": "id bignt"}):
        pass
    with target.opened({"value_schema": "id bigint"}):
        pass
    assert target.identity() == {"value_schema": "id bigint"}


def test_a_load_that_began_is_gone_on_with_by_the_same_options_only(tmp_path: Path) -> None:
    """Offsets are planned, even if no batch is done."""
    target = Target(tmp_path / "out", None)
    with target.opened({"value_schema": "id bigint"}):
        (target.root / "_aiokq_checkpoint" / "offsets").mkdir()
    with pytest.raises(OptionError, match="was loaded with"), target.opened({"value_schema": "x"}):
        pass
    with target.opened({"value_schema": "id bigint"}):
        pass


def test_directories_that_are_made_for_a_load_outlive_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the target existed, but not its checkpoint elsewhere; no load could continue."""
    synced: list[Path] = []
    monkeypatch.setattr(directory_lock, "sync_directory", synced.append)
    target = Target(tmp_path / "a" / "out", tmp_path / "b" / "dead", tmp_path / "c" / "query")

    for _ in range(2):
        with target.opened({}):
            pass

    assert set(synced) == {tmp_path, *(tmp_path / name for name in "abc")}
    assert len(synced) == 6


def test_two_new_loads_with_one_checkpoint_are_kept_apart(tmp_path: Path) -> None:
    """Regression: Spark ran both as one query, and each had only some of the batches."""
    shared = tmp_path / "query"
    first = Target(tmp_path / "a", None, shared)
    second = Target(tmp_path / "b", None, tmp_path / "." / "query")
    with first.opened({"topics": ["t"]}):
        with (
            pytest.raises(
                OptionError, match=rf"query: another load \(process {os.getpid()} on "
            ) as caught,
            second.opened({"topics": ["t"]}),
        ):
            pass
        assert caught.value.option == "checkpoint"
    with second.opened({"topics": ["t"]}):
        pass


def test_the_checkpoint_within_a_target_is_not_lent(tmp_path: Path) -> None:
    """Given as --checkpoint of another load, while the load it belongs to is running."""
    first = Target(tmp_path / "a", None)
    second = Target(tmp_path / "b", None, tmp_path / "a" / "_aiokq_checkpoint")
    with (
        first.opened({"topics": ["t"]}),
        pytest.raises(OptionError, match="another load") as caught,
        second.opened({"topics": ["t"]}),
    ):
        pass
    assert caught.value.option == "checkpoint"


def test_two_new_loads_with_one_directory_of_dead_letters_are_kept_apart(tmp_path: Path) -> None:
    """Regression: two loads started at the same moment both took the directory."""
    first = Target(tmp_path / "a", tmp_path / "dead")
    second = Target(tmp_path / "b", tmp_path / "dead")
    with (
        first.opened({"topics": ["t"]}),
        pytest.raises(OptionError, match="another load") as caught,
        second.opened({"topics": ["t"]}),
    ):
        pass
    assert caught.value.option == "dead_letter"


def test_a_lock_goes_with_the_process_that_holds_it(tmp_path: Path) -> None:
    """After SIGKILL the next load needs no cleanup; while the holder lives, the error names it."""
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from pathlib import Path\n"
            "from aiokq.spark.loading.directory_lock import DirectoryLock\n"
            "lock = DirectoryLock(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)",
            str(tmp_path),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Held) as caught:
            DirectoryLock(tmp_path)
        assert caught.value.holder == f"process {holder.pid} on {socket.gethostname()}"
    finally:
        holder.kill()
        holder.communicate()
    DirectoryLock(tmp_path).close()


@needs_fork
def test_a_lock_is_not_kept_by_a_forked_child(tmp_path: Path) -> None:
    """Regression: a worker that outlived its load kept the lock.

    A worker that exits must not release it.
    """
    lock = DirectoryLock(tmp_path)
    with LivingChild():
        pass
    with pytest.raises(Held):
        DirectoryLock(tmp_path)
    with LivingChild():
        lock.close()
        DirectoryLock(tmp_path).close()


def test_a_checkpoint_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """Regression: the error was a traceback, or named the target."""
    (tmp_path / "file").touch()
    target = Target(tmp_path / "out", None, tmp_path / "file" / "query")
    with pytest.raises(OptionError, match="Not a directory") as caught, target.opened({}):
        pass
    assert caught.value.option == "checkpoint"


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"token": "renewed", "s3.secret-access-key": "x"}, True),
        ({"uri": "postgresql://me:other@db/catalog"}, True),
        ({"uri": "postgresql://me:secret@db2/catalog"}, False),
        ({"warehouse": "/lake2"}, False),
        ({"name": "prod"}, False),
        ({"type": "rest"}, False),
    ],
    ids=str,
)
def test_another_catalog_is_another_load(
    tmp_path: Path, changes: dict[str, str], same: bool
) -> None:
    """Half of the batches would be in the table of each catalog. No secret is stored."""
    pytest.importorskip("pyiceberg")
    given = {"type": "sql", "uri": "postgresql://me:secret@db/catalog", "warehouse": "/lake"}
    target = Target(tmp_path / "out", None)
    with target.opened({"catalog": catalog_identity(given | {"token": "s3cr3t"})}):
        (target.root / "_aiokq_checkpoint" / "offsets").mkdir()
    kept = (target.root / "_aiokq_load.json").read_text()
    assert "secret" not in kept
    assert "s3cr3t" not in kept

    refused = contextlib.nullcontext() if same else pytest.raises(OptionError, match="was loaded")
    with refused as caught, target.opened({"catalog": catalog_identity(given | changes)}):
        pass
    assert same or caught.value.option == "catalog"


def test_a_catalog_of_pyicebergs_own_settings_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address may come from an environment variable, and change there."""
    pytest.importorskip("pyiceberg")
    assert catalog_identity({}) is None
    monkeypatch.setenv("PYICEBERG_CATALOG__AIOKQ__URI", "http://one")
    assert catalog_identity({"type": "rest"}) == {
        "name": "aiokq",
        "type": "rest",
        "uri": "http://one",
    }


def test_empty_files_that_a_power_cut_left_in_a_checkpoint_are_taken_away(tmp_path: Path) -> None:
    """Spark refuses to start with them ("Incomplete log file")."""
    target = Target(tmp_path / "out", None)
    checkpoint = target.checkpoint.directory
    for kind in ("offsets", "commits"):
        (checkpoint / kind).mkdir(parents=True)
        for name in ("0", ".0.crc"):
            (checkpoint / kind / name).write_text('v1\n{}\n{"t":{"0":1}}')
        for name in ("1", ".1.crc"):
            (checkpoint / kind / name).touch()
    # Of a batch of the same half minute, whose offsets were synced.
    (checkpoint / "offsets" / "1").write_text('v1\n{}\n{"t":{"0":2}}')
    for kind in ("offsets", "commits"):
        (checkpoint / kind / "2").touch()
    (checkpoint / "metadata").write_text('{"id": "query"}')
    (target.root / "_aiokq_load.json").write_text('{"topics": ["t"]}')
    target.manifests.prepare(Manifest(1, "query", {}))

    with target.opened({"topics": ["t"]}):
        left = {str(p.relative_to(checkpoint)) for p in checkpoint.rglob("*") if p.is_file()}

    assert left == {
        *("_aiokq_load.lock", "metadata"),
        *("offsets/1", "offsets/.1.crc"),
        *("offsets/0", "offsets/.0.crc", "commits/0", "commits/.0.crc"),
    }
