"""LoadSummary, the result of a load, and LoadProgress, which a load reports after each batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiokq.spark.loading.manifest import Manifest

__all__ = ["LoadProgress", "LoadSummary", "Loaded", "TopicLoad"]


@dataclass(frozen=True)
class TopicLoad:
    """Number of records loaded from a topic, and number of records that could not be decoded."""

    rows: int = 0
    dead_letters: int = 0


@dataclass(frozen=True)
class LoadProgress:
    """Progress of a load, reported at its start and after each batch.

    Attributes:
        batch: number of the batch; None before the first.
        offsets: number of offsets that this run has completed.
        total: number of offsets that this run has to load, counted at its start; None if the run
            continues until it is stopped.
        rows: number of records that this run has loaded.
    """

    batch: int | None
    offsets: int
    total: int | None
    rows: int


@dataclass(frozen=True)
class LoadSummary:
    """Result of one run of a load.

    Attributes:
        to: target directory.
        query: id of the streaming query; None if it never ran.
        batches: number of loaded batches, including batches of an earlier run that this run
            completed.
        rows: number of rows in the files of these batches.
        dead_letters: number of records whose value could not be decoded.
        files: number of files with rows.
        size: size of these files in bytes.
        seconds: duration of the run in seconds, without the start of Spark.
        topics: counts by topic.
        interrupted: whether the run was stopped; with ``available_now``, whether it was stopped
            before it had loaded all records that existed at its start.
    """

    to: Path
    query: str | None
    batches: int = 0
    rows: int = 0
    dead_letters: int = 0
    files: int = 0
    size: int = 0
    seconds: float = 0.0
    topics: Mapping[str, TopicLoad] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def rate(self) -> float:
        """Records per second, including dead letters."""
        return (self.rows + self.dead_letters) / self.seconds if self.seconds else 0.0

    @classmethod
    def of(
        cls, to: Path, query: str | None, loaded: Loaded, seconds: float, *, interrupted: bool
    ) -> LoadSummary:
        """Return the summary of the batches that a run has loaded."""
        return cls(
            to=to,
            query=query,
            batches=loaded.batches,
            rows=loaded.rows,
            dead_letters=loaded.dead_letters,
            files=loaded.files,
            size=loaded.size,
            seconds=seconds,
            topics=dict(sorted(loaded.topics.items())),
            interrupted=interrupted,
        )


class Loaded:
    """Sums over the batches that a run has loaded.

    Attributes:
        last: number of the last batch.
        offsets: number of offsets of all batches.
    """

    def __init__(self) -> None:
        self.last: int | None = None
        self.batches = 0
        self.offsets = 0
        self.rows = 0
        self.dead_letters = 0
        self.files = 0
        self.size = 0
        self.topics: dict[str, TopicLoad] = {}

    def add(self, manifest: Manifest) -> None:
        """Add the next batch; a batch that Spark runs again is ignored."""
        if self.last is not None and manifest.batch <= self.last:
            return
        self.last = manifest.batch
        self.batches += 1
        self.rows += manifest.rows
        self.dead_letters += manifest.dead
        self.files += len(manifest.files)
        self.size += manifest.size
        for tp, part in manifest.partitions.items():
            self.offsets += part.until - part.first
            before = self.topics.get(tp.topic, TopicLoad())
            self.topics[tp.topic] = TopicLoad(
                before.rows + part.rows, before.dead_letters + part.dead
            )
