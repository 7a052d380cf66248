"""Journal of an export: the acknowledged rows and their offsets, optionally kept in a file.

Each line of the file is a JSON document. The first line has the source and the destination of the
export. Each further line is an acknowledged piece, a committed transaction, or the producer id of a
run. An incomplete last line is ignored.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final
from uuid import UUID

from aiokq.core.forks import Descriptor
from aiokq.errors import ConfigError
from aiokq.spark.durable_files import sync_directory
from aiokq.spark.exporting.files import ParquetFiles
from aiokq.spark.exporting.unjournaled_rows import Place

if TYPE_CHECKING:
    from aiokq import RecordMetadata

__all__ = ["Acknowledged", "Destination", "Journal"]

VERSION: Final = 1


@dataclass(frozen=True)
class Destination:
    """Cluster and topic of an export; a resumed run must use the same cluster and topic.

    Attributes:
        starts: log end offset of each partition when the export began.
    """

    cluster_id: str | None
    topic: str
    topic_id: UUID
    starts: Mapping[int, int]


@dataclass
class Acknowledged:
    """Acknowledged rows and their offsets.

    Attributes:
        rows: number of rows.
        checksum: sum of the checksums of the rows.
        offsets: for each partition, contiguous ranges of offsets in the order in which the rows
            were noted; a range is a list of first and last offset.
    """

    rows: int = 0
    checksum: int = 0
    offsets: dict[int, list[list[int]]] = field(default_factory=dict)

    @classmethod
    def of(cls, delivered: Iterable[RecordMetadata | Place], total: int) -> Acknowledged:
        """Return the summary of delivered records, given the sum of their checksums."""
        places = sorted((metadata.partition, metadata.offset) for metadata in delivered)
        found = cls(len(places), total)
        for partition, offset in places:
            _extend(found.offsets.setdefault(partition, []), offset, offset)
        return found

    def add(self, other: Acknowledged) -> None:
        self.rows += other.rows
        self.checksum += other.checksum
        for partition, ranges in other.offsets.items():
            mine = self.offsets.setdefault(partition, [])
            for first, last in ranges:
                _extend(mine, first, last)


def _extend(ranges: list[list[int]], first: int, last: int) -> None:
    if ranges and ranges[-1][1] + 1 == first:
        ranges[-1][1] = last
    else:
        ranges.append([first, last])


class Journal:
    """Journal of one export.

    Attributes:
        done: all acknowledged rows, of this run and of earlier runs.
        before: number of the acknowledged rows that earlier runs have sent.
        position: number of the file, and number of the row in the file, at which to continue.
        destination: the destination, with the log end offsets when the first run began.
        producer_id: last producer id that an earlier run noted; -1 if no id was noted.
        export_id: id of a transactional export, equal in all runs; None for other exports.
        transactions: number of committed transactions that are noted.
    """

    def __init__(self, destination: Destination, *, transactional: bool = False) -> None:
        self.destination = destination
        self.export_id = uuid.uuid4().hex if transactional else None
        self.transactions = 0
        self.done = Acknowledged()
        self.before = 0
        self.position = (0, 0)
        self.producer_id = -1
        self._file: IO[bytes] | None = None

    @classmethod
    def open(
        cls,
        path: Path | None,
        files: ParquetFiles,
        destination: Destination,
        *,
        transactional: bool = False,
    ) -> Journal:
        """Start a journal, or continue the journal in a file.

        Args:
            path: path of the file; None to keep the journal in memory only.
            transactional: whether the rows are written in transactions.

        Raises:
            ConfigError: the file belongs to another export, is in use, is not a journal, or cannot
                be opened.
            OSError: the file cannot be written.
        """
        journal = cls(destination, transactional=transactional)
        if path is not None:
            try:
                journal._file = open(path, "a+b")  # noqa: SIM115  closed by close()
                sync_directory(path.absolute().parent)
            except OSError as error:
                raise ConfigError(
                    f"{path}: the progress cannot be written: {error.strerror}"
                ) from error
            try:
                journal._load(path, files)
            except BaseException:
                journal.close()
                raise
        return journal

    def add(self, file: int, until: int, acknowledged: Acknowledged) -> None:
        """Note the next rows of a file as acknowledged, up to but not including row `until`.

        Raises:
            OSError: the file cannot be written.
        """
        self._note(file, until, acknowledged)
        self._write({"file": file, "until": until, **asdict(acknowledged)})

    def line(self, file: int, until: int, acknowledged: Acknowledged) -> dict[str, object]:
        """Return the journal line of the next transaction, for `add_line`.

        Args:
            file: number of the file with the last row of the transaction.
            until: number of the row after the last row of the transaction.
        """
        number = self.transactions + 1
        return {"transaction": number, "file": file, "until": until, **asdict(acknowledged)}

    def add_line(self, line: Mapping[str, object]) -> None:
        """Note a committed transaction and sync the file.

        If the newest noted transaction has the same number, nothing is done.

        Raises:
            ConfigError: the journal lacks an earlier transaction, or has a later transaction.
            OSError: the file cannot be written.
        """
        number = line["transaction"]
        if number == self.transactions:
            return
        assert isinstance(number, int)
        if number != self.transactions + 1:
            raise ConfigError(
                f"the progress has {self.transactions} transactions, and the cluster has committed "
                f"{number}: "
                + (
                    "it is an old copy of the file; give the newest one"
                    if number > self.transactions
                    else "the file belongs to another cluster, or the ledger topic has lost records"
                )
            )
        self._take(line)
        self._write(line)
        self._sync()

    @property
    def is_kept(self) -> bool:
        """Whether the journal is kept in a file."""
        return self._file is not None

    def note_producer(self, producer_id: int) -> None:
        """Note the producer id, by which the next run finds the records of this run after a kill.

        Raises:
            OSError: the file cannot be written.
        """
        self._write({"producer_id": producer_id})

    def ends(self) -> dict[int, int]:
        """Return the offset after the noted rows, by partition.

        For a partition without noted rows, return its log end offset when the export began.
        """
        behind = {p: ranges[-1][1] + 1 for p, ranges in self.done.offsets.items()}
        return {**self.destination.starts, **behind}

    def close(self) -> None:
        """Sync and close the file."""
        if self._file is not None:
            try:
                self._sync()
            finally:
                self._file.close()
                self._file = None

    def _sync(self) -> None:
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def _take(self, line: Mapping[str, Any]) -> None:
        offsets = {int(p): ranges for p, ranges in line["offsets"].items()}
        acknowledged = Acknowledged(line["rows"], line["checksum"], offsets)
        self._note(line["file"], line["until"], acknowledged)
        self.transactions = line.get("transaction", 0)

    def _note(self, file: int, until: int, acknowledged: Acknowledged) -> None:
        self.done.add(acknowledged)
        self.position = (file, until)

    def _write(self, document: Mapping[str, object]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(document, separators=(",", ":")).encode() + b"\n")
            self._file.flush()

    def _load(self, path: Path, files: ParquetFiles) -> None:
        assert self._file is not None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._descriptor = Descriptor(self._file.fileno())
        except BlockingIOError as error:
            raise ConfigError(f"{path}: another export is using this file") from error
        self._file.seek(0)
        written = self._file.read()
        whole = written[: written.rfind(b"\n") + 1]
        head = _head(files, self.destination, self.export_id)
        if not whole:
            if written and not written.startswith(b'{"aiokq_export"'):
                raise ConfigError(f"{path}: not the progress of an export")
            self._file.truncate(0)
            self._write(head)
            return
        try:
            first, *lines = map(json.loads, whole.splitlines())
            self._check(path, first, head)
            self.export_id = first.get("export_id")
            starts = {int(partition): offset for partition, offset in first["starts"].items()}
            for line in lines:
                if "producer_id" in line:
                    self.producer_id = line["producer_id"]
                    continue
                self._take(line)
        except ConfigError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{path}: not the progress of an export: {error!r}") from error
        # A line that was cut off is removed, so that the next line is not appended to it.
        self._file.truncate(len(whole))
        here = self.destination
        self.destination = Destination(here.cluster_id, here.topic, here.topic_id, starts)
        self.before = self.done.rows

    def _check(self, path: Path, found: dict[str, object], head: Mapping[str, object]) -> None:
        """Check that the file belongs to this export."""
        reasons = {
            "aiokq_export": "of another version of aiokq",
            "cluster_id": "of an export to another cluster",
            "topic": f"of an export to topic {found.get('topic')}",
            "topic_id": "of a topic that has been deleted and created again",
            "columns": "of an export of other columns",
            "files": "of other files, or the files have changed",
        }
        if (found.get("export_id") is None) != (self.export_id is None):
            how = "without" if self.export_id is not None else "with"
            raise ConfigError(
                f"{path}: the progress is of an export {how} transactions; export as before, or "
                "give another file to export all rows again"
            )
        for name, reason in reasons.items():
            if found.get(name) != head[name]:
                raise ConfigError(
                    f"{path}: the progress is {reason}; give another file, or delete {path} to "
                    "export all rows again"
                )


def _head(
    files: ParquetFiles, destination: Destination, export_id: str | None
) -> dict[str, object]:
    each: Sequence[list[object]] = [[str(f.path), f.rows, f.size] for f in files.files]
    columns = json.loads(json.dumps(asdict(files.columns)))
    return {
        "aiokq_export": VERSION,
        "cluster_id": destination.cluster_id,
        "topic": destination.topic,
        "topic_id": str(destination.topic_id),
        "starts": {str(p): offset for p, offset in destination.starts.items()},
        "columns": columns,
        "files": list(each),
        **({} if export_id is None else {"export_id": export_id}),
    }
