"""Manifest of a batch: its offsets and files, as one JSON file.

A manifest has two states. *Prepared* (``<batch>.json.prepared``): all files of the batch are
complete in the temporary directory. From now on the batch is completed in any case; if the process
is killed, the next load completes it. *Published* (``<batch>.json``): the rows and the dead letters
of the batch are visible to readers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiokq import TopicPartition
from aiokq.errors import ConfigError
from aiokq.spark.durable_files import sync_directory, write_atomically
from aiokq.spark.offsets import PartitionOffsets

__all__ = [
    "LoadedFile",
    "LoadedPartition",
    "Manifest",
    "Manifests",
]

VERSION: Final = 1
PREPARED: Final = ".prepared"


@dataclass(frozen=True)
class LoadedFile:
    """A file of a batch.

    Attributes:
        path: path relative to the directory of the batch, with slashes.
        rows: number of rows.
        size: size of the file in bytes.
    """

    path: str
    rows: int
    size: int


@dataclass(frozen=True)
class LoadedPartition:
    """The part of a batch that comes from one partition.

    Attributes:
        first: first offset.
        until: offset after the last offset.
        rows: number of records in the files.
        dead: number of records whose value could not be decoded.
    """

    first: int
    until: int
    rows: int = 0
    dead: int = 0


@dataclass(frozen=True)
class Manifest:
    """Manifest of one batch.

    Attributes:
        batch: number of the batch.
        query: id of the streaming query, as in its checkpoint.
        partitions: offsets and counts by partition.
        files: files with records; empty if there were none.
        dead_letters: files with records that could not be decoded.
        temporary: name of the temporary directory to which the files were written.
    """

    batch: int
    query: str
    partitions: Mapping[TopicPartition, LoadedPartition]
    files: Sequence[LoadedFile] = ()
    dead_letters: Sequence[LoadedFile] = ()
    temporary: str = ""

    @property
    def rows(self) -> int:
        """Number of records in the files."""
        return sum(file.rows for file in self.files)

    @property
    def dead(self) -> int:
        """Number of records in the dead letters."""
        return sum(file.rows for file in self.dead_letters)

    @property
    def size(self) -> int:
        """Size of the files with records, in bytes."""
        return sum(file.size for file in self.files)

    def covers(self, first: PartitionOffsets, until: PartitionOffsets) -> bool:
        """Whether the batch has exactly these offsets."""
        return {tp: (p.first, p.until) for tp, p in self.partitions.items()} == {
            tp: (first[tp], until[tp]) for tp in until
        }

    def to_json(self) -> str:
        """Return the manifest as JSON, ordered by topic and partition."""
        topics: dict[str, dict[str, dict[str, int]]] = {}
        for tp, loaded in sorted(self.partitions.items()):
            topics.setdefault(tp.topic, {})[str(tp.partition)] = {
                "from": loaded.first,
                "until": loaded.until,
                "rows": loaded.rows,
                "dead_letters": loaded.dead,
            }
        document = {
            "version": VERSION,
            "query_id": self.query,
            "batch_id": self.batch,
            "rows": self.rows,
            "dead_letters": self.dead,
            "bytes": self.size,
            "partitions": topics,
            "files": [_file(file) for file in self.files],
            "dead_letter_files": [_file(file) for file in self.dead_letters],
            "temporary": self.temporary,
        }
        return json.dumps(document, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: bytes, path: Path) -> Manifest:
        """Parse the contents of a manifest file.

        Raises:
            ConfigError: `text` is not a manifest, or has another version.
        """
        try:
            document = json.loads(text)
            if document["version"] != VERSION:
                raise ConfigError(
                    f"{path}: manifest version {document['version']}, expected {VERSION}: it "
                    "was written by a newer aiokq"
                )
            return cls(
                batch=int(document["batch_id"]),
                query=str(document["query_id"]),
                partitions={
                    TopicPartition(topic, int(number)): LoadedPartition(
                        *(int(p[name]) for name in ("from", "until", "rows", "dead_letters"))
                    )
                    for topic, partitions in document["partitions"].items()
                    for number, p in partitions.items()
                },
                files=tuple(_read_file(file) for file in document["files"]),
                dead_letters=tuple(_read_file(file) for file in document["dead_letter_files"]),
                temporary=document["temporary"],
            )
        except ConfigError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{path}: not a manifest: {error!r}") from error


def _file(file: LoadedFile) -> dict[str, str | int]:
    return {"path": file.path, "rows": file.rows, "bytes": file.size}


def _read_file(document: Mapping[str, str | int]) -> LoadedFile:
    return LoadedFile(str(document["path"]), int(document["rows"]), int(document["bytes"]))


@dataclass(frozen=True)
class Manifests:
    """The manifests of a target, read from disk at each call.

    The methods that read manifests raise ConfigError if a manifest is damaged.

    Args:
        directory: directory of the manifests, created by `prepare`.
    """

    directory: Path

    def published(self, batch: int) -> Manifest | None:
        """Return the manifest of a batch; None if it is not published."""
        return self._read(self.directory / f"{batch}.json")

    def prepared(self) -> list[Manifest]:
        """Return the manifests that are not published yet, ordered by batch number."""
        names = self.directory.glob(f"*.json{PREPARED}")
        found = (self._read(path) for path in names)
        return sorted((m for m in found if m is not None), key=lambda m: m.batch)

    def all(self) -> Iterator[Manifest]:
        """Return all published manifests, ordered by batch number."""
        return self._of(sorted(self._numbers()))

    def latest(self) -> Iterator[Manifest]:
        """Return the published manifests, with the highest batch number first."""
        return self._of(sorted(self._numbers(), reverse=True))

    def _numbers(self) -> Iterator[int]:
        names = (path.stem for path in self.directory.glob("*.json"))
        return (int(name) for name in names if name.isdigit())

    def _of(self, batches: Iterable[int]) -> Iterator[Manifest]:
        return (m for m in map(self.published, batches) if m is not None)

    def prepare(self, manifest: Manifest) -> None:
        """Write the manifest as prepared; after a crash, the next load completes the batch."""
        if not self.directory.is_dir():
            self.directory.mkdir(parents=True)
            sync_directory(self.directory.parent)
        write_atomically(self._prepared_path(manifest.batch), manifest.to_json())

    def is_prepared(self, batch: int) -> bool:
        """Whether a batch is prepared but not published."""
        return self._prepared_path(batch).exists()

    def publish(self, manifest: Manifest) -> None:
        """Mark a prepared manifest as published; called when the batch's rows are visible."""
        self._prepared_path(manifest.batch).rename(self.directory / f"{manifest.batch}.json")
        sync_directory(self.directory)

    def _prepared_path(self, batch: int) -> Path:
        return self.directory / f"{batch}.json{PREPARED}"

    def _read(self, path: Path) -> Manifest | None:
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return None
        return Manifest.from_json(text, path)
