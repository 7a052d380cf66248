"""LoadSummary: what a load has done; and what it tells while it is at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiokq.spark.loading.manifest import Manifest

__all__ = ["LoadProgress", "LoadSummary", "Loaded", "TopicLoad"]


@dataclass(frozen=True)
class TopicLoad:
    """What was loaded of a topic: records, and those that could not be decoded."""

    rows: int = 0
    dead_letters: int = 0


@dataclass(frozen=True)
class LoadProgress:
    """Told after each batch.

    Attributes:
        batch: its number.
        offsets: that are done by this run.
        total: offsets that were there at its start; None if it does not end there.
        rows: that this run has loaded.
    """

    batch: int | None
    offsets: int
    total: int | None
    rows: int


@dataclass(frozen=True)
class LoadSummary:
    """What one run of a load has done.

    Attributes:
        to: the directory.
        query: id of the streaming query; None if it never ran.
        batches: that it has loaded, also those it found nearly done.
        rows: in the files of these batches.
        dead_letters: records whose value could not be decoded.
        files: with rows.
        size: bytes of these files.
        seconds: from the start of the query to its end.
        topics: by name.
        interrupted: it was stopped before all was loaded that was there at its start.
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
        """Records a second."""
        return (self.rows + self.dead_letters) / self.seconds if self.seconds else 0.0

    @classmethod
    def of(
        cls, to: Path, query: str | None, loaded: Loaded, seconds: float, *, interrupted: bool
    ) -> LoadSummary:
        """Of the batches that a run has loaded."""
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
    """Sums of the batches that a run has loaded; of none of them more is kept.

    Attributes:
        last: number of the last one.
        offsets: that they span.
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
        """The next one; one that Spark runs again, as it does not know that it is done, is one."""
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
