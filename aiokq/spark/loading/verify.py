"""Verification of a load: compares its files with the manifests, and the manifests with the log.

Nothing is written. Rows are identified by topic, partition and offset, so that a missing record is
noticed even if another record is there twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from aiokq import Cluster, TopicPartition
from aiokq.errors import ConfigError, KafkaError, UnknownTopicOrPartition
from aiokq.spark.loading.iceberg_table import catalog_identity
from aiokq.spark.loading.manifest import LoadedPartition, Manifest
from aiokq.spark.loading.options import FORMATS, LoadFormat, LoadOptions, OptionError
from aiokq.spark.loading.parquet_table import find_files
from aiokq.spark.loading.table_factory import require_extras, table_of
from aiokq.spark.loading.tables import Found, Table
from aiokq.spark.loading.target import LOAD, Identity, Target
from aiokq.spark.worker import worker_client

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from aiokq.spark.options import IsolationLevel

__all__ = ["Verification", "verify_load"]


@dataclass(frozen=True)
class Verification:
    """Result of a verification.

    Attributes:
        batches: number of published batches.
        rows: number of rows in the files.
        dead_letters: number of rows in the files of dead letters.
        offsets: number of offsets of all batches.
        gaps: number of offsets without a row or dead letter, such as offsets of control records, of
            records in aborted transactions, and of records that compaction has removed.
        problems: errors, one line each.
        notes: findings that are not errors, one line each, such as offsets that cannot be compared
            with the log because retention has deleted the records.
    """

    batches: int
    rows: int
    dead_letters: int
    offsets: int
    gaps: int
    problems: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def sound(self) -> bool:
        """Whether there are no problems."""
        return not self.problems


def verify_load(
    to: str | Path,
    *,
    kafka: Mapping[str, str],
    dead_letter: str | Path | None = None,
    checkpoint: str | Path | None = None,
    table: str | None = None,
    catalog: Mapping[str, str] | None = None,
) -> Verification:
    """Compare the rows of a target with its manifests, and the manifests with the log.

    Args:
        to: the target, as given to `load`. Options of the load that are not arguments here are read
            from the target.
        dead_letter: directory of dead letters; default: as for the load.
        checkpoint: checkpoint of the load; default: within the target. If there is no checkpoint,
            the loss of the newest batch together with its manifest is not noticed.
        kafka: settings of the client by Kafka's names. The log is read where offsets have no rows.

    Raises:
        ConfigError: nothing was ever loaded to `to`, a manifest is damaged, or an extra is missing.
        OptionError: `to` was loaded with another catalog, or the catalog cannot be reached.
        LoadFailed: the Delta table cannot be read.
        BootstrapFailed: the cluster cannot be reached.
    """
    import pyarrow as pa

    given = LoadOptions(
        to=to, topics_pattern=".*", value_format="text", checkpoint=checkpoint, kafka=kafka
    )
    identity = Target.of(given).identity()
    if identity is None:
        raise ConfigError(f"{given.root}: no load has written to the directory")
    if identity.get("format") not in FORMATS or "read_committed" not in identity:
        raise ConfigError(f"{given.root / LOAD}: the file is damaged")
    loaded = cast("str | None", identity.get("dead_letter"))
    # If the target and the dead letters were copied together, the recorded directory may be
    # missing. The default directory, beside the target, has the copy.
    there = loaded if loaded is not None and Path(loaded).is_dir() else None
    given = replace(given, dead_letter=dead_letter or there)
    target = Target.of(given)
    options = replace(
        given,
        format=cast("LoadFormat", identity["format"]),
        table=table or cast("str | None", identity.get("table")),
        catalog=catalog or {},
    )
    require_extras(options)
    _check_catalog(options, identity)
    isolation: IsolationLevel = (
        "read_committed" if identity["read_committed"] else "read_uncommitted"
    )
    found = table_of(options, pa.schema([]))
    return _verified(target, found, kafka, isolation)


def _check_catalog(options: LoadOptions, identity: Identity) -> None:
    """Check that the catalog is the catalog of the load."""
    given, loaded = catalog_identity(options.catalog), identity.get("catalog")
    if given != loaded:
        of = json.dumps(loaded) if loaded else "the catalog within the target"
        raise OptionError(
            "catalog",
            f"{options.root} was loaded with {of}: give "
            + ("its properties" if loaded else "none"),
        )


def _verified(
    target: Target, table: Table, kafka: Mapping[str, str], isolation_level: IsolationLevel
) -> Verification:
    # The checkpoint is read before the manifests, because a running load publishes the manifest of
    # a batch before Spark logs the batch as done.
    done = target.checkpoint.last()
    manifests = list(target.manifests.all())
    problems = [
        f"batch {m.batch} is complete, but not published: the next load publishes it"
        for m in target.manifests.prepared()
    ]
    problems += _chain(manifests)
    again = _made_again(manifests)
    notes = [
        f"batch {batch}: {tp} starts at 0 again, because the topic was recreated; earlier batches "
        "of the partition cannot be compared with the log"
        for tp, batch in again.items()
    ]
    newest = manifests[-1].batch if manifests else -1
    if done is not None and done > newest:
        problems.append(
            f"{target.checkpoint.directory} has finished batch {done}, but {target.root} has "
            f"batches only to {newest}: the later batches are lost with their manifests, and no "
            "load restores them"
        )
    rows = dead = 0
    for found in table.find(manifests):
        problems += [*found.problems, *_recount(found, again, dead=False)]
        rows += len(found.positions)
    if target.dead_letters is not None and any(m.dead_letters for m in manifests):
        letters = {m.batch: (m, m.dead_letters) for m in manifests}
        for found in find_files(target.dead_letters, letters):
            problems += [*found.problems, *_recount(found, again, dead=True)]
            dead += len(found.positions)
    spans = _gaps(manifests, again)
    client = worker_client(kafka) if spans else None
    if target.checkpoint.query_id() is None:
        notes.append(
            f"{target.checkpoint.directory}: there is no checkpoint, so a loss of the newest "
            "batch cannot be detected"
        )
    if client is not None:
        asked = _Asked(client.cluster, isolation_level)
        client.run(asked.compare(spans))
        problems += asked.problems
        notes += asked.notes
    offsets = sum(p.until - p.first for m in manifests for p in m.partitions.values())
    counted = sum(p.rows + p.dead for m in manifests for p in m.partitions.values())
    return Verification(len(manifests), rows, dead, offsets, offsets - counted, problems, notes)


def _chain(manifests: Sequence[Manifest]) -> list[str]:
    """Return the problems of the sequence of batches.

    It is a problem if a manifest is missing, or if a batch of a partition does not start at the end
    of the partition's previous batch. A start at offset 0 is no problem.
    """
    problems: list[str] = []
    ends: dict[TopicPartition, int] = {}
    for number, manifest in enumerate(manifests):
        if manifest.batch != number:
            problems.append(f"batch {number} has no manifest")
            break
        for tp, loaded in manifest.partitions.items():
            if loaded.first and ends.get(tp, loaded.first) != loaded.first:
                problems.append(
                    f"batch {number}: {tp} starts at {loaded.first}, the previous batch ended at "
                    f"{ends[tp]}"
                )
            ends[tp] = loaded.until
    return problems


def _made_again(manifests: Sequence[Manifest]) -> dict[TopicPartition, int]:
    """Return the number of the last batch that starts at offset 0, for each recreated partition."""
    known: set[TopicPartition] = set()
    found: dict[TopicPartition, int] = {}
    for manifest in manifests:
        for tp, loaded in manifest.partitions.items():
            if tp in known and not loaded.first:
                found[tp] = manifest.batch
            if loaded.until:
                known.add(tp)
    return found


def _recount(found: Found, again: Mapping[TopicPartition, int], *, dead: bool) -> list[str]:
    """Return the differences between rows and manifests.

    It is also a difference if an offset occurs twice, unless the topic was recreated between the
    batches.
    """
    expected: Counter[TopicPartition] = Counter()
    spans: dict[TopicPartition, tuple[int, int]] = {}
    for manifest in found.batches:
        for tp, loaded in manifest.partitions.items():
            expected[tp] += loaded.dead if dead else loaded.rows
            first, until = spans.get(tp, (loaded.first, loaded.until))
            spans[tp] = min(first, loaded.first), max(until, loaded.until)
    what = f"batch {found.batches[0].batch}" if len(found.batches) == 1 else "the table"
    problems: list[str] = []
    counted: set[TopicPartition] = set()
    for tp, rows, distinct, first, last in _counts(found.positions):
        counted.add(tp)
        begun, until = spans.get(tp, (0, 0))
        if rows != expected[tp]:
            problems.append(
                f"{what}: {tp} has {rows} rows, but {expected[tp]} rows in the manifest"
            )
        if distinct != rows and (tp not in again or len(found.batches) == 1):
            problems.append(f"{what}: {tp} has {rows - distinct} rows more than once")
        if tp in spans and not begun <= first <= last < until:
            problems.append(
                f"{what}: {tp} has offsets {first} to {last}, expected {begun} to {until - 1}"
            )
    problems += [
        f"{what}: {tp} has no rows, but {rows} rows in the manifest"
        for tp, rows in expected.items()
        if rows and tp not in counted
    ]
    return problems


def _counts(positions: pa.Table) -> list[tuple[TopicPartition, int, int, int, int]]:
    grouped = positions.group_by(["topic", "partition"]).aggregate(
        [("offset", how) for how in ("count", "count_distinct", "min", "max")]
    )
    return [
        (
            TopicPartition(row["topic"], row["partition"]),
            row["offset_count"],
            row["offset_count_distinct"],
            row["offset_min"],
            row["offset_max"],
        )
        for row in grouped.to_pylist()
    ]


def _gaps(
    manifests: Sequence[Manifest], again: Mapping[TopicPartition, int]
) -> list[tuple[TopicPartition, LoadedPartition]]:
    """Return the ranges with fewer records than offsets; dead letters count as records.

    Ranges that were loaded before a topic was recreated are left out.

    Args:
        again: for each partition of a recreated topic, the first batch after the recreation.
    """
    return [
        (tp, loaded)
        for manifest in manifests
        for tp, loaded in manifest.partitions.items()
        if loaded.rows + loaded.dead != loaded.until - loaded.first
        and manifest.batch >= again.get(tp, 0)
    ]


class _Asked:
    """Compares the log with each loaded range that has gaps; collects problems and notes."""

    def __init__(self, cluster: Cluster, isolation_level: IsolationLevel) -> None:
        self._cluster = cluster
        self._isolation_level: IsolationLevel = isolation_level
        self.problems: list[str] = []
        self.notes: list[str] = []

    async def compare(self, spans: Sequence[tuple[TopicPartition, LoadedPartition]]) -> None:
        for tp, loaded in spans:
            try:
                await self._compare(tp, loaded)
            except UnknownTopicOrPartition:
                self.notes.append(
                    f"{tp} no longer exists: gaps in its offsets cannot be compared with the log"
                )
            except KafkaError as error:
                self.problems.append(f"{tp}: the log cannot be read: {error}")

    async def _compare(self, tp: TopicPartition, loaded: LoadedPartition) -> None:
        where = f"{tp}, offsets {loaded.first} to {loaded.until - 1}"
        beginning = await self._cluster.offsets(tp, "earliest")
        start = 0 if beginning is None else beginning.offset
        rows = loaded.rows + loaded.dead
        if start > loaded.first:
            self.notes.append(
                f"{where}: {loaded.until - loaded.first - rows} offsets have no rows, and cannot "
                f"be compared with the log, which starts at {start} now"
            )
            return
        count = 0
        reading = self._cluster.read(
            tp, loaded.first, loaded.until, isolation_level=self._isolation_level
        )
        async for batch in reading:
            count += len(batch)
        if count > rows:
            self.problems.append(f"{where}: the log has {count} records, the files have {rows}")
        elif count < rows:
            self.notes.append(
                f"{where}: the log now has {count} records of the {rows} in the files: "
                "compaction has removed the others"
            )
