"""Sending: sends the rows of an export, and notes acknowledged rows in the journal.

Pieces are read in a thread, sent on the event loop, and noted in order; with transactions, they are
noted after the commit. run.py prepares and ends an export.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from aiokq import Cluster, Deliveries, Producer, RecordMetadata
from aiokq.errors import ConfigError, DeliveryFailed, KafkaError, RecordTooLarge
from aiokq.spark.checksums import checksum
from aiokq.spark.exporting.columns import ExportColumns
from aiokq.spark.exporting.failures import ExportFailed
from aiokq.spark.exporting.files import PIECE_BYTES, PIECE_ROWS, ParquetFiles, Piece
from aiokq.spark.exporting.journal import Acknowledged, Journal
from aiokq.spark.exporting.records import Row, rows
from aiokq.spark.exporting.transactions import ExportTransactions, OpenTransaction
from aiokq.spark.exporting.unjournaled_rows import Place, UnjournaledRows, producer_of

__all__ = ["ExportProgress", "Sending"]

PIECES: Final = 8
"""Maximum number of pieces in flight."""

DRAIN: Final = 10.0
"""Maximum seconds to wait for acknowledgements of accepted records when an export ends early."""


@dataclass(frozen=True)
class ExportProgress:
    """Progress of an export.

    Attributes:
        total: number of rows of all files.
        done: number of acknowledged or committed rows, including the rows of earlier runs.
        columns: description of the columns that become the parts of a record, as text.
    """

    total: int
    done: int
    columns: str


@dataclass(frozen=True)
class _Sent:
    """A piece in flight.

    Attributes:
        rows: rows that this run sends, with their numbers in the piece.
        found: partition and offset of the rows that an earlier run sent.
        checksum: sum of the checksums of all rows.
    """

    piece: Piece
    rows: list[tuple[int, Row]]
    found: list[Place]
    deliveries: list[Deliveries]
    checksum: int


class Sending:
    """Sender of the pieces of an export.

    Attributes:
        size: bytes of the keys and values that this run has sent and that are acknowledged.
        found: number of rows that an earlier run had sent, and that this run only noted.
    """

    def __init__(
        self,
        cluster: Cluster,
        files: ParquetFiles,
        topic: str,
        journal: Journal,
        arrived: UnjournaledRows,
        on_progress: Callable[[ExportProgress], None] | None,
    ) -> None:
        self.size = 0
        self.found = 0
        self._cluster = cluster
        self._arrived = arrived
        # If the journal is in a file, only one piece is in flight until this run has looked up its
        # producer id in the log.
        self._unknown = journal.is_kept
        self._files = files
        self._topic = topic
        self._journal = journal
        self._on_progress = on_progress
        self._words = files.columns.describe()
        self._sent: deque[_Sent] = deque()
        self._transaction: OpenTransaction | None = None
        self._piece = (PIECE_ROWS, PIECE_BYTES)

    def use(self, transaction: OpenTransaction, given: ExportTransactions) -> None:
        """Write in transactions, with the limits `given`."""
        self._transaction = transaction
        self._piece = given.piece
        # The next run reads the position of this run from the ledger. It does not need this run's
        # producer id, so several pieces may be in flight before that id is known.
        self._unknown = False

    async def run(self, producer: Producer, reader: ThreadPoolExecutor) -> None:
        """Send rows until all are acknowledged, and close the producer.

        Raises:
            ExportFailed: a row was not accepted or not delivered.
            ConfigError: a file has changed, or is damaged.
            KafkaError: a transaction could not be begun or committed; see `OpenTransaction.commit`.
            OSError: the journal cannot be written.
        """
        loop = asyncio.get_running_loop()
        pieces = _made(
            self._files.pieces(self._journal.position, *self._piece),
            self._files.columns,
            None if self._transaction is None else self._piece[1],
        )
        self._report_progress()
        following = loop.run_in_executor(reader, next, pieces, None)
        try:
            while (made := await following) is not None:
                # The next piece is read while this piece waits for buffer memory or is sent.
                following = loop.run_in_executor(reader, next, pieces, None)
                await self._make_room(made[1])
                await self._accept(producer, *made)
                while self._is_to_wait():
                    await self._settle()
            await self._settle_all()
        except BaseException as error:
            await self._abort(error)
            raise
        finally:
            following.cancel()
            # The producer waits up to DRAIN for acknowledgements. Then the acknowledged pieces are
            # noted.
            await producer.close(DRAIN)
            while self._sent and _done(self._sent[0]) and not _failure(self._sent[0]):
                await self._settle()

    async def _settle_all(self) -> None:
        """Wait for all pieces to be acknowledged, and commit them if there is a transaction."""
        while self._sent:
            await self._settle()
        if self._transaction is not None:
            await self._transaction.commit()
            self._report_progress()

    async def _make_room(self, rows_: Sequence[Row]) -> None:
        """Begin a transaction for the next rows, unless the rows fit in the open transaction.

        If the rows do not fit, the open transaction is committed first. An export without
        transactions does nothing here.
        """
        if self._transaction is None:
            return
        rows, size = len(rows_), sum(map(_size, rows_))
        if not self._transaction.has_room(rows, size):
            await self._settle_all()
        await self._transaction.begin(rows, size)

    async def _abort(self, error: BaseException) -> None:
        if self._transaction is None:
            return
        # The pieces of the aborted transaction must not be noted in the journal.
        self._sent.clear()
        try:
            await self._transaction.abort()
        except KafkaError as failure:
            error.add_note(f"the transaction could not be aborted: {failure!r}")

    def _is_to_wait(self) -> bool:
        if not self._sent:
            return False
        return self._unknown or len(self._sent) == PIECES or _done(self._sent[0])

    async def _accept(self, producer: Producer, piece: Piece, made: list[Row], total: int) -> None:
        deliveries: list[Deliveries] = []
        places = [self._arrived.take(row) for row in made]
        missing = [n for n, place in enumerate(places) if place is None]
        # Consecutive rows with the same partition are sent in one call.
        for partition, group in groupby(missing, key=lambda n: made[n].partition):
            numbers = list(group)
            records = [made[n].record for n in numbers]
            try:
                if partition is not None and partition < 0:
                    raise ConfigError("a partition number cannot be negative")
                deliveries.append(await producer.send_many(self._topic, records, partition))
            except (KafkaError, ValueError) as error:
                if isinstance(error, RecordTooLarge):
                    # The producer refused the whole call, because at least the largest record is
                    # too large.
                    at = max(numbers, key=lambda n: _size(made[n]))
                    limit = producer.settings.max_request_size
                    words = f"a record of {_size(made[at]):,} bytes; max_request_size is {limit:,}"
                    raise self._failed(self._where(piece, at, at + 1), words) from error
                where = self._where(piece, numbers[0], numbers[-1] + 1, partition)
                raise self._failed(where, _words(error)) from error
        found = [place for place in places if place is not None]
        rows_ = [(n, made[n]) for n in missing]
        self._sent.append(_Sent(piece, rows_, found, deliveries, total))

    async def _settle(self) -> None:
        """Wait for the oldest piece, and note it in the journal or add it to the transaction."""
        sent = self._sent[0]
        delivered: list[RecordMetadata] = []
        for deliveries in sent.deliveries:
            try:
                delivered += await deliveries
            except DeliveryFailed as failed:
                number = next(
                    number for number, error in enumerate(failed.errors) if error is not None
                )
                error = failed.errors[number]
                at, row = sent.rows[len(delivered) + number]
                words = _words(error)
                if isinstance(error, RecordTooLarge):
                    words = f"a record of {_size(row):,} bytes: {words}"
                raise self._failed(
                    self._where(sent.piece, at, at + 1, row.partition), words
                ) from error
        self._sent.popleft()
        piece = sent.piece
        acknowledged = Acknowledged.of([*delivered, *sent.found], sent.checksum)
        self.size += sum(_size(row) for _, row in sent.rows)
        if self._transaction is not None:
            self._transaction.add(piece.file, piece.until, acknowledged)
            return
        self._journal.add(piece.file, piece.until, acknowledged)
        self.found += len(sent.found)
        self._report_progress()
        if self._unknown and delivered:
            await self._note_producer(Place(delivered[0].partition, delivered[0].offset))

    async def _note_producer(self, place: Place) -> None:
        """Read the producer id of this run from a record at `place`, and note it in the journal."""
        self._unknown = False
        id_ = await producer_of(self._cluster, self._topic, place)
        if id_ >= 0:
            self._journal.note_producer(id_)

    def _report_progress(self) -> None:
        if self._on_progress is not None:
            done = self._journal.done.rows
            self._on_progress(ExportProgress(self._files.rows, done, self._words))

    def _where(self, piece: Piece, begin: int, end: int, partition: int | None = None) -> str:
        """Return the path and the numbers of some rows, for an error message.

        The first row of a file is row 1.
        """
        path = self._files.files[piece.file].path
        first, last = piece.first + begin + 1, piece.first + end
        rows_ = f"row {first}" if first == last else f"rows {first} to {last}"
        return f"{path}, {rows_}" + ("" if partition is None else f", partition {partition}")

    def _failed(self, where: str, words: str) -> ExportFailed:
        done, total = self._journal.done.rows, self._files.rows
        how = "acknowledged" if self._transaction is None else "committed"
        return ExportFailed(f"{where}: {words}; {done:,} of {total:,} rows are {how}")


def _words(error: BaseException | None) -> str:
    message = error.message if isinstance(error, KafkaError) else str(error)
    return message or repr(error)


def _size(row: Row) -> int:
    """Return the size of key and value together, in bytes."""
    key, value = row.record[:2]
    return len(key or b"") + len(value or b"")


def _made(
    pieces: Iterator[Piece], columns: ExportColumns, limit: int | None
) -> Iterator[tuple[Piece, list[Row], int]]:
    """Yield each piece with its records and the sum of the records' checksums.

    Args:
        limit: maximum bytes of the keys and values of a piece; a single row may exceed the limit.
            None for no limit.
    """
    for piece in pieces:
        made = list(rows(piece.batch, columns))
        for first, part in _parts(made, limit):
            found = Piece(piece.file, piece.first + first, piece.batch.slice(first, len(part)))
            yield found, part, sum(checksum(*row.record[:2]) for row in part)


def _parts(made: list[Row], limit: int | None) -> Iterator[tuple[int, list[Row]]]:
    """Yield the rows in parts of limited size, each with the number of its first row."""
    first = size = 0
    for number, row in enumerate(made if limit is not None else ()):
        if limit is not None and number > first and size + _size(row) > limit:
            yield first, made[first:number]
            first, size = number, 0
        size += _size(row)
    yield first, made[first:]


def _done(sent: _Sent) -> bool:
    return all(deliveries.done() for deliveries in sent.deliveries)


def _failure(sent: _Sent) -> bool:
    return any(
        delivery.exception() is not None
        for deliveries in sent.deliveries
        for delivery in deliveries[:]
    )
