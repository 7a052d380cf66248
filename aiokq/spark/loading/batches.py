"""Batches of a load. Each becomes visible as a whole, even if a process dies before the last step.

1. Tasks write all files of the batch to a temporary directory.
2. The manifest is written as prepared. From now on the batch is completed in any case.
3. The dead letters become visible by a rename. Then the rows become visible, by a rename or by the
   table's own transaction.
4. The manifest is published.

If the load is killed before step 2, Spark runs the batch again with the same offsets. If the load
is killed after step 2, the next load completes the batch, and skips the batch when Spark runs it
again.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokq.spark.durable_files import sync_directory
from aiokq.spark.loading.checkpoint import BatchOffsets
from aiokq.spark.loading.failures import LoadFailed
from aiokq.spark.loading.manifest import LoadedFile, LoadedPartition, Manifest
from aiokq.spark.loading.tables import Table
from aiokq.spark.loading.target import Target
from aiokq.spark.loading.task_files import (
    DEAD_LETTERS,
    ROWS,
    UNFINISHED,
    Kind,
    PartitionCount,
    TaskReport,
    TaskSpec,
)
from aiokq.spark.loading.task_source import write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Batches", "batch_directory", "move"]

BATCH: Final = "batch_id="

Run: TypeAlias = "Callable[[DataFrame, TaskSpec], TaskReport]"


def batch_directory(batch: int) -> str:
    return f"{BATCH}{batch}"


class Batches:
    """The batches of one query.

    Args:
        target: the opened target.
        spec: instructions for the tasks, without the directories, which `store` adds.
        run: function that writes a DataFrame in Spark tasks.
    """

    def __init__(
        self, target: Target, table: Table, spec: TaskSpec, run: Run = write_files
    ) -> None:
        self._target = target
        self._table = table
        self._spec = spec
        self._run = run

    def recover(self) -> list[Manifest]:
        """Complete the batches that are prepared but not published, and return their manifests.

        A load that was killed or failed leaves such batches.

        Raises:
            LoadFailed: the table no longer exists, so the load would recreate it without earlier
                batches; or a batch cannot be made visible.
            OSError: a directory or a manifest cannot be renamed.
        """
        if any(m.files for m in self._target.manifests.latest()) and not self._table.is_there():
            raise LoadFailed(
                f"{self._target.root}: the table of the load no longer exists: load to "
                "another directory"
            )
        prepared = self._target.manifests.prepared()
        for manifest in prepared:
            self._finish(manifest)
        return prepared

    def store(self, batch: int, query: str, offsets: BatchOffsets, frame: DataFrame) -> Manifest:
        """Load a batch, unless it was loaded before; return its manifest.

        Args:
            frame: the records of the batch, with the columns of format("aiokq").

        Raises:
            LoadFailed: the batch was loaded by another query or with other offsets, or cannot be
                made visible.
            OSError: files of the batch cannot be written.
            PySparkException: a task has failed.
        """
        if self._target.manifests.is_prepared(batch):
            # An earlier attempt of this process could not complete the batch, for example because
            # the disk was full.
            self.recover()
        known = self._target.manifests.published(batch)
        if known is not None:
            if not known.covers(offsets.first, offsets.until) or known.query != query:
                raise LoadFailed(
                    f"{self._target.root}: batch {batch} was loaded before with other offsets: the "
                    "checkpoint is older than the target, as after a restore or power failure; "
                    "load to another directory"
                )
            return known
        name = f"{batch}-{uuid.uuid4().hex[:12]}"
        directories = self._directories(name)
        for directory in directories.values():
            directory.mkdir(parents=True)
        spec = replace(self._spec, directories={k: str(d) for k, d in directories.items()})
        try:
            report = self._run(frame, spec)
            for kind, directory in directories.items():
                _keep_only(directory, [file.path for file in report.files if file.kind == kind])
            self._target.sync_temporary()
            # Spark's offset log is synced before the manifest is written, because Spark could
            # otherwise plan other offsets for this batch number after a power failure.
            self._target.checkpoint.sync(batch)
            manifest = _manifest(batch, query, offsets, report, name)
            self._target.manifests.prepare(manifest)
        except BaseException:
            # The files are deleted, because their space may be needed if the disk is full.
            if not self._target.manifests.is_prepared(batch):
                _remove(directories)
            raise
        self._finish(manifest)
        return manifest

    def _directories(self, name: str) -> dict[Kind, Path]:
        directories: dict[Kind, Path] = {ROWS: self._target.temporary(name) / ROWS}
        dead = self._target.temporary_dead_letters(name)
        if dead is not None:
            directories[DEAD_LETTERS] = dead / DEAD_LETTERS
        return directories

    def _finish(self, manifest: Manifest) -> None:
        directories = self._directories(manifest.temporary)
        if manifest.dead_letters:
            assert self._target.dead_letters is not None
            move(
                directories[DEAD_LETTERS],
                self._target.dead_letters / batch_directory(manifest.batch),
            )
        if manifest.files:
            self._table.publish(manifest, directories[ROWS])
        self._target.manifests.publish(manifest)
        _remove(directories)


def _remove(directories: Mapping[Kind, Path]) -> None:
    for directory in directories.values():
        shutil.rmtree(directory.parent, ignore_errors=True)


def move(source: Path, goal: Path) -> None:
    """Move a directory to its visible path `goal`; do nothing if it was moved before.

    Raises:
        LoadFailed: both directories exist, so the move would replace `goal`.
    """
    if source.exists() or not goal.exists():
        if goal.exists():
            raise LoadFailed(
                f"{goal}: the directory exists, but no load has created it: move it away"
            )
        source.rename(goal)
        sync_directory(goal.parent)


def _keep_only(directory: Path, paths: Sequence[str]) -> None:
    """Give files their final names, and delete files of attempts that were not committed."""
    wanted = {directory / (path + UNFINISHED) for path in paths}
    for path in sorted(directory.rglob(f"*{UNFINISHED}")):
        if path not in wanted:
            path.unlink()
    for path in wanted:
        path.rename(path.with_name(path.name.removesuffix(UNFINISHED)))
    parents = sorted({path for path in directory.rglob("*") if path.is_dir()}, reverse=True)
    for parent in parents:
        if any(parent.iterdir()):
            sync_directory(parent)
        else:
            parent.rmdir()
    sync_directory(directory)
    sync_directory(directory.parent)


def _manifest(
    batch: int, query: str, offsets: BatchOffsets, report: TaskReport, temporary: str
) -> Manifest:
    nothing = PartitionCount()
    partitions = {
        tp: LoadedPartition(
            offsets.first[tp],
            until,
            report.counts.get(tp, nothing).rows,
            report.counts.get(tp, nothing).dead,
        )
        for tp, until in offsets.until.items()
    }
    files: dict[Kind, list[LoadedFile]] = {ROWS: [], DEAD_LETTERS: []}
    for file in report.files:
        files[file.kind].append(LoadedFile(file.path, file.rows, file.size))
    return Manifest(
        batch, query, partitions, tuple(files[ROWS]), tuple(files[DEAD_LETTERS]), temporary
    )
