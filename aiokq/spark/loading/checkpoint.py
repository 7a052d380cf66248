"""Checkpoint of a streaming query: the files that a load reads and relies on.

Spark does not sync the files. `sync` syncs the files that a batch relies on, and `mend` deletes
files that a power failure has left empty.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

from aiokq.errors import ConfigError
from aiokq.spark.durable_files import sync_directory, sync_file
from aiokq.spark.offsets import PartitionOffsets, SourceOffset

__all__ = ["BatchOffsets", "Checkpoint"]

logger = logging.getLogger("aiokq.spark")


@dataclass(frozen=True)
class BatchOffsets:
    """The offsets that one batch of the query reads.

    Attributes:
        first: first offset to read, by partition.
        until: offset after the last offset, by partition.
    """

    first: PartitionOffsets
    until: PartitionOffsets


class Checkpoint:
    """The checkpoint directory of a query. The directory need not exist."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def query_id(self) -> str | None:
        """Return the id of the query; None if it never ran.

        Raises:
            ConfigError: the file is damaged.
        """
        path = self.directory / "metadata"
        try:
            return str(json.loads(path.read_text(encoding="utf-8"))["id"])
        except FileNotFoundError:
            return None
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{path}: not the metadata of a Spark query: {error!r}") from error

    def batch(self, number: int) -> BatchOffsets:
        """Return the offsets of a batch, which Spark logs before it runs the batch.

        Raises:
            ConfigError: the checkpoint has no such batch, or the offsets in it are damaged.
        """
        end = self._offset(number)
        if end is None:
            raise ConfigError(f"{self.directory}: the checkpoint has no batch {number}")
        before = self._offset(number - 1) if number > 0 else None
        begun = end.initial or {} if before is None else before.positions
        again: set[str] = set()
        if before is not None:
            ids = before.topic_ids
            again = {topic for topic, id_ in end.topic_ids.items() if ids.get(topic, id_) != id_}
        # The first offset of an added partition or a recreated topic is taken to be 0, even if the
        # log starts later.
        first = {tp: 0 if tp.topic in again else begun.get(tp, 0) for tp in end.positions}
        return BatchOffsets(first, end.positions)

    def last(self) -> int | None:
        """Return the number of the last batch that is done; None if there is none."""
        return max((int(path.name) for path in self._numbered("commits")), default=None)

    def positions(self) -> PartitionOffsets | None:
        """Return the end of the last batch that is done; None if there is none."""
        last = self.last()
        offset = None if last is None else self._offset(last)
        return None if offset is None else offset.positions

    def is_committed(self, number: int) -> bool:
        """Whether Spark has logged that a batch is done."""
        return (self.directory / "commits" / str(number)).exists()

    def sync(self, number: int) -> None:
        """Sync the files that Spark wrote before it began to run a batch."""
        for name in ("metadata", f"offsets/{number}"):
            path = self.directory / name
            # Hadoop's local file system keeps a checksum file beside each file.
            for each in (path, _checksum(path)):
                if each.exists():
                    sync_file(each)
            if path.parent.is_dir():
                sync_directory(path.parent)

    def mend(self) -> None:
        """Delete the empty files that a power failure has left for the last batches.

        Spark does not start a query with empty files. Spark repeats a batch whose file is deleted;
        the load skips a repeated batch that has a manifest.
        """
        for kind in ("commits", "offsets"):
            for last in sorted(self._numbered(kind), key=lambda path: int(path.name), reverse=True):
                if last.stat().st_size:
                    break
                logger.warning("deleting an empty checkpoint file path=%s", last)
                _checksum(last).unlink(missing_ok=True)
                last.unlink()

    def _offset(self, number: int) -> SourceOffset | None:
        path = self.directory / "offsets" / str(number)
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path}: {error}") from error
        if len(lines) != 3 or lines[0] != "v1":
            raise ConfigError(
                f"{path}: not the offsets of a query with one source; is this another checkpoint?"
            )
        try:
            return SourceOffset.parse(json.loads(lines[2]))
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from error

    def _numbered(self, kind: str) -> list[Path]:
        directory = self.directory / kind
        if not directory.is_dir():
            return []
        return [path for path in directory.iterdir() if path.name.isdigit()]


def _checksum(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")
