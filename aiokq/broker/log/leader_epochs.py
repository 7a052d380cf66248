"""The leader epochs of one log and their file, ``leader-epoch-checkpoint``.

An entry has the offset at which an epoch began; the epoch ends where the next epoch begins. A
follower uses the end offsets to find where its log diverges from the leader's log (KIP-101,
KIP-279). A consumer uses the end offsets to detect a truncation of the log (KIP-320).

Source: Kafka ``LeaderEpochFileCache.java``. Tests: ``tests/unit/broker/log/test_leader_epochs.py``.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from aiokq.broker.log import file_names
from aiokq.broker.log.checkpoint_file import replace_text
from aiokq.broker.log.config import INT_MAX, LONG_MAX
from aiokq.core.errors import CorruptRecord
from aiokq.core.files import File, Files
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.numbers import parse_number

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1
_VERSION: Final = "0"

SECTOR: Final = 512
"""Bytes at the beginning of a file that a disk writes completely or not at all."""


class EpochEntry(NamedTuple):
    """A leader epoch and the offset at which it began."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The leader epochs of one log, oldest first; epochs and offsets rise strictly.

    Methods that read or write the file may raise OSError.
    """

    __slots__ = ("_entries", "_files", "_path", "_size", "_synced", "_written")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._entries: list[EpochEntry] = []
        self._written: list[EpochEntry] | None = None  # entries in the file; None if unknown
        self._size: int | None = None  # size of the file; None if unknown
        self._synced = True

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All leader epochs, oldest first."""
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int:
        """The newest epoch; -1 if there is none."""
        return self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    def load(self, *, clean: bool = False) -> None:
        """Read the file.

        Args:
            clean: whether the file is durable, as after a clean shutdown.

        Raises:
            FileNotFoundError: the file is missing.
            CorruptRecord: the file is malformed.
        """
        data = self._files.read_bytes(self._path)
        lines = data.decode("utf-8", "replace").split("\n")
        try:
            if lines[0] != _VERSION:
                raise ValueError(f"unknown version {lines[0]!r}")
            count = parse_number(lines[1], INT_MAX)
            rows = [line.split() for line in lines[2 : 2 + count]]
            entries = [
                EpochEntry(parse_number(epoch, INT_MAX), parse_number(start, LONG_MAX))
                for epoch, start in rows
            ]
            if len(entries) != count:
                raise ValueError(f"{len(entries)} entries, but the count is {count}")
            if len(lines) == 2 + count:
                raise ValueError("the last entry may be cut off")
            if any(lines[2 + count :]):
                raise ValueError(f"more than {count} entries")
        except (ValueError, IndexError) as error:
            raise CorruptRecord(f"{self._path} is malformed: {error}") from error
        self._entries = []
        for entry in entries:
            self._insert(*entry)
        self._written = entries
        self._size = len(data)
        self._synced = clean

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Add ``epoch`` with its ``start_offset``, and write the file.

        Newer epochs, and epochs that begin at or after ``start_offset``, are removed, because they
        have no records or date from before a truncation.

        Returns:
            False if nothing was added: ``epoch`` is negative, or is the newest epoch already.

        Raises:
            OSError: the file cannot be written; the entries are unchanged.
        """
        before = list(self._entries)
        if epoch < 0 or not self._insert(epoch, start_offset):
            return False
        try:
            self.write()
        except OSError:
            self._entries = before  # otherwise a retry would not write the file
            raise
        return True

    def note(self, epoch: int, start_offset: int) -> None:
        """Add an epoch as ``assign`` does, but do not write the file; recovery writes it later."""
        if epoch >= 0:
            self._insert(epoch, start_offset)

    def _insert(self, epoch: int, start_offset: int) -> bool:
        if self._entries and self._entries[-1].epoch == epoch:
            return False
        while self._entries and (
            self._entries[-1].epoch >= epoch or self._entries[-1].start_offset >= start_offset
        ):
            self._entries.pop()
        self._entries.append(EpochEntry(epoch, start_offset))
        return True

    def epoch_for_offset(self, offset: int) -> int:
        """Return the leader epoch in which ``offset`` was written; -1 if unknown."""
        at = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[at - 1].epoch if at else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the newest known epoch up to ``epoch``, and the offset at which that epoch ended.

        The newest of all known epochs ends at ``log_end_offset``. Returns (-1, -1) if ``epoch`` is
        -1 or newer than all known epochs, or if no epochs are known. If ``epoch`` is older than all
        known epochs, returns ``epoch`` and the start offset of the oldest known epoch.
        """
        if epoch == UNDEFINED_EPOCH or not self._entries:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self._entries[-1].epoch:
            return epoch, log_end_offset
        at = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if at == len(self._entries):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if at == 0:
            return epoch, self._entries[0].start_offset
        return self._entries[at - 1].epoch, self._entries[at].start_offset

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove epochs that begin at or after ``end_offset``, and write the file.

        A missing file is not created if no entries remain: a new log has no such file.
        """
        self.cut(end_offset)
        if self._entries or self._files.exists(self._path):
            self.write()

    def cut(self, end_offset: int) -> None:
        """Remove epochs as ``truncate_from_end`` does, without writing the file."""
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        if kept != self._entries:
            self._entries = kept

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs that end at or before ``start_offset``, and write the file.

        The entry of an epoch that began before ``start_offset`` and ends after it is changed to
        begin at ``start_offset``.
        """
        at = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if at:
            first = EpochEntry(self._entries[at - 1].epoch, start_offset)
            self._replace([first, *self._entries[at:]])

    def clear(self) -> None:
        """Remove all entries, and write the file."""
        self._replace([])

    def _replace(self, entries: list[EpochEntry]) -> None:
        if entries != self._entries:
            self._entries = entries
            self.write()

    def write(self) -> None:
        """Write the file if its content differs.

        The file is synced with the records (``begin_sync``). If the new content is not shorter and
        fits one sector, the file is overwritten in place, because a rename over an old file is
        slow on ext4: 5 ms per log at the start after a kill.
        """
        if self._written == self._entries:
            return
        self._synced = False
        rows = [f"{entry.epoch} {entry.start_offset}" for entry in self._entries]
        lines = [_VERSION, str(len(rows)), *rows]
        data = "".join(f"{line}\n" for line in lines).encode()
        in_place = self._size is not None and self._size <= len(data) <= SECTOR
        self._written = self._size = None
        if in_place:
            file = self._files.open(self._path)
            try:
                file.pwritev([data], 0)
            finally:
                file.close()
        else:
            replace_text(self._files, self._path, lines)
        self._written = list(self._entries)
        self._size = len(data)

    def begin_sync(self) -> list[File]:
        """Return the files to sync: the open file, or none if the file is synced already.

        From now on the file counts as synced; ``redo_sync`` undoes this.

        The file is synced with the records, because a recovery takes the epochs of records before
        the recovery point from this file. Without the sync, a power cut could bring back an older
        version of the file, which would look valid.

        Raises:
            OSError: the file cannot be opened; it still has to be synced.
        """
        if self._synced:
            return []
        file = self._files.open(self._path)
        self._synced = True
        return [file]

    def redo_sync(self) -> None:
        """Mark the file for another sync, because the last one may have failed."""
        self._synced = False


def read_latest_epoch(files: Files, directory: str) -> int:
    """Return the newest leader epoch in a partition's directory; -1 without a valid epoch file.

    A missing or damaged file is rebuilt when the log is opened.

    Raises:
        OSError: the disk failed.
    """
    epochs = LeaderEpochs(files, f"{directory}/{file_names.LEADER_EPOCHS}")
    try:
        epochs.load()
    except (FileNotFoundError, CorruptRecord):
        return UNDEFINED_EPOCH
    return epochs.latest_epoch
