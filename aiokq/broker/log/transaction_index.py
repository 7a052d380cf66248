"""The ``.txnindex`` of a segment: the aborted transactions whose markers are in the segment.

A consumer with ``read_committed`` discards the records of these transactions. All entries are kept
in memory, 32 bytes each, because they are few; most segments have no entries and no file. Unlike in
the other indexes, missing entries cannot be detected from the length of the log, so the file of a
finished segment is synced with its records.

Source: Kafka ``TransactionIndex.java``, ``AbortedTxn.java``.
Tests: ``tests/unit/broker/log/test_transaction_index.py``.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final

from aiokq.broker.log.index import IndexCorrupt
from aiokq.core.files import File, Files
from aiokq.core.named_tuple import NamedTuple

__all__ = ["AbortedTransaction", "TransactionIndex"]

_VERSION: Final = 0
_ENTRY: Final = struct.Struct(">hqqqq")
_COLUMNS: Final = 4


class AbortedTransaction(NamedTuple):
    """An aborted transaction.

    Attributes:
        first_offset: offset of the first record.
        last_offset: offset of the abort marker.
        last_stable_offset: the log's last stable offset when the marker was written: the start of
            the oldest transaction that was still open, or the offset after the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions of one segment, in the order of their markers."""

    ENTRY: Final = _ENTRY.size

    __slots__ = ("_base", "_columns", "_cut", "_files", "_synced", "_written", "path")

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self.path = path
        self._files = files
        self._base = base_offset
        self._columns: array[int] = array("q")
        # The number of entries in the file, and the number of durable entries. They are not flags,
        # because entries may be appended while another thread syncs the file.
        self._written = self._synced = 0
        self._cut = False  # whether the file still has entries that were removed from memory

    def __len__(self) -> int:
        return len(self._columns) // _COLUMNS

    def create(self) -> None:
        """Start with an empty index; the next flush overwrites the file."""
        self._columns = array("q")
        self._written = self._synced = 0
        self._cut = self._files.exists(self.path)

    def load(self) -> None:
        """Read the file; without a file the index is empty.

        Raises:
            IndexCorrupt: the file is malformed or belongs to another segment.
        """
        try:
            data = self._files.read_bytes(self.path)
        except FileNotFoundError:
            self.create()
            return
        if len(data) % self.ENTRY:
            raise IndexCorrupt(f"{self.path} has {len(data)} bytes, not a multiple of {self.ENTRY}")
        columns = array("q")
        last = self._base - 1
        for version, *entry in _ENTRY.iter_unpack(data):
            found = AbortedTransaction(*entry)
            if version != _VERSION:
                raise IndexCorrupt(f"{self.path} has an entry of unknown version {version}")
            if not 0 <= found.first_offset <= found.last_offset or found.last_offset <= last:
                raise IndexCorrupt(f"{self.path} has {found} after offset {last}")
            last = found.last_offset
            columns.extend(entry)
        self._columns = columns
        # Loaded entries are durable: if a segment was not synced, its index is not loaded, but
        # rebuilt by the recovery.
        self._written = self._synced = len(self)
        self._cut = False

    def append(self, transaction: AbortedTransaction) -> None:
        """Add a transaction whose marker was appended to the segment."""
        self._columns.extend(transaction)

    def cut(self, end_offset: int) -> TransactionIndex:
        """Return an index of the markers before ``end_offset``; its file is not written yet."""
        index = TransactionIndex(self._files, self.path, self._base)
        for entry in self.entries():
            if entry.last_offset < end_offset:
                index.append(entry)
        index._cut = True
        return index

    def entries(self) -> list[AbortedTransaction]:
        """Return the aborted transactions in the order of their markers."""
        columns = self._columns
        return [
            AbortedTransaction(*columns[at : at + _COLUMNS])
            for at in range(0, len(columns), _COLUMNS)
        ]

    def collect(self, offset: int, upper_bound: int, into: list[AbortedTransaction]) -> bool:
        """Add to ``into`` the transactions that overlap a range of offsets.

        The range is from ``offset`` to before ``upper_bound``. A transaction extends from its first
        record to its marker.

        Returns:
            True if no later segment can have such a transaction.
        """
        columns = self._columns
        for at in range(0, len(columns), _COLUMNS):
            if columns[at + 2] >= offset and columns[at + 1] < upper_bound:
                into.append(AbortedTransaction(*columns[at : at + _COLUMNS]))
            if columns[at + 3] >= upper_bound:
                return True
        return False

    def flush(self) -> None:
        """Write the entries that the file lacks, and cut off entries that were removed."""
        entries = self.entries()
        if len(entries) == self._written and not self._cut:
            return
        file = self._files.open(self.path, create=True)
        try:
            position = self._written * self.ENTRY
            new = b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries[self._written :])
            if new:
                file.pwritev([new], position)
            if file.size() != position + len(new):
                file.truncate(position + len(new))
        finally:
            file.close()
        self._written = len(entries)
        self._cut = False

    @property
    def needs_sync(self) -> bool:
        """Whether some entries are not durable."""
        return self._synced != len(self)

    def begin_sync(self) -> list[File]:
        """Write new entries; return the files to sync: the open file, or none if it is durable.

        From now on the file counts as durable; ``redo_sync`` undoes this.

        Raises:
            OSError: the file cannot be written; it still has to be synced.
        """
        self.flush()
        if self._synced == self._written:
            return []
        file = self._files.open(self.path)
        self._synced = self._written
        return [file]

    def redo_sync(self) -> None:
        """Mark the file for another sync, because the last one may have failed."""
        self._synced = 0

    def sync(self) -> None:
        """Write new entries and sync the file, but not its directory entry.

        An empty index is not synced.
        """
        for file in self.begin_sync():
            file.sync()
            file.close()
