"""Owns the ``.txnindex`` of a segment: the aborted transactions whose markers lie in it.

What a reader of committed records has to leave out follows from it. There are few, so all are kept
in memory, 32 bytes each; most segments have none, and no file. Unlike the other two indexes nobody
sees from the log's length that entries are missing, so the file is synced with the records.

Source: Kafka ``TransactionIndex.java``, ``AbortedTxn.java``.
Tests: ``tests/unit/broker/log/test_transaction_index.py``.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final, NamedTuple

from aiokq.broker.log.index import IndexCorrupt
from aiokq.core.files import File, Files

__all__ = ["AbortedTransaction", "TransactionIndex"]

_VERSION: Final = 0
_ENTRY: Final = struct.Struct(">hqqqq")
_COLUMNS: Final = 4


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted.

    Attributes:
        first_offset: of its first record.
        last_offset: of the marker that aborted it.
        last_stable_offset: of the log when the marker was written: where the oldest transaction
            that was still open began, or else the offset behind the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions of one segment, by the offset of their markers, which rise."""

    ENTRY: Final = _ENTRY.size

    __slots__ = ("_base", "_columns", "_cut", "_files", "_synced", "_written", "path")

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self.path = path
        self._files = files
        self._base = base_offset
        self._columns: array[int] = array("q")
        # Entries that are in the file, and that are durable. Numbers, no flags: a sync in another
        # thread must not hide what is appended meanwhile.
        self._written = self._synced = 0
        self._cut = False  # the file has entries that are gone

    def __len__(self) -> int:
        return len(self._columns) // _COLUMNS

    def create(self) -> None:
        """Begin empty, whatever the file holds."""
        self._columns = array("q")
        self._written = self._synced = 0
        self._cut = self._files.exists(self.path)

    def load(self) -> None:
        """Read the file; none is an empty index.

        Raises:
            IndexCorrupt: it is not what an index of this segment looks like.
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
                raise IndexCorrupt(f"{self.path} has an entry of version {version}")
            if not 0 <= found.first_offset <= found.last_offset or found.last_offset <= last:
                raise IndexCorrupt(f"{self.path} has {found} behind offset {last}")
            last = found.last_offset
            columns.extend(entry)
        self._columns = columns
        # What is read was synced: recovery makes the index of any other segment anew.
        self._written = self._synced = len(self)
        self._cut = False

    def append(self, transaction: AbortedTransaction) -> None:
        """The marker of a transaction was appended to the segment."""
        self._columns.extend(transaction)

    def cut(self, end_offset: int) -> TransactionIndex:
        """An index of the markers before ``end_offset``; its next flush writes all of the file."""
        index = TransactionIndex(self._files, self.path, self._base)
        for entry in self.entries():
            if entry.last_offset < end_offset:
                index.append(entry)
        index._cut = True
        return index

    def entries(self) -> list[AbortedTransaction]:
        """All of them."""
        columns = self._columns
        return [
            AbortedTransaction(*columns[at : at + _COLUMNS])
            for at in range(0, len(columns), _COLUMNS)
        ]

    def collect(self, offset: int, upper_bound: int, into: list[AbortedTransaction]) -> bool:
        """Add those with records from ``offset`` on and before ``upper_bound``.

        Returns:
            Whether that is all: no marker behind this segment can be of such a transaction.
        """
        columns = self._columns
        for at in range(0, len(columns), _COLUMNS):
            if columns[at + 2] >= offset and columns[at + 1] < upper_bound:
                into.append(AbortedTransaction(*columns[at : at + _COLUMNS]))
            if columns[at + 3] >= upper_bound:
                return True
        return False

    def flush(self) -> None:
        """Write what is not in the file yet, and cut what is no longer there."""
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
        """Whether it has entries that are not durable."""
        return self._synced != len(self)

    def begin_sync(self) -> list[File]:
        """The file, if it has to be synced, as it is written now.

        Raises:
            OSError: it cannot be written; it is still to be synced.
        """
        self.flush()
        if self._synced == self._written:
            return []
        file = self._files.open(self.path)
        self._synced = self._written
        return [file]

    def redo_sync(self) -> None:
        """What ``begin_sync`` gave may not be durable."""
        self._synced = 0

    def sync(self) -> None:
        """Make it durable, but for the file's name; an empty one needs not be."""
        for file in self.begin_sync():
            file.sync()
            file.close()
