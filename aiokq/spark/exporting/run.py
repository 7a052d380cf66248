"""The export: reads pieces of files in order, sends them, and notes acknowledged pieces."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from aiokq import (
    Cluster,
    Deliveries,
    NewTopic,
    Producer,
    RecordMetadata,
    TopicPartition,
)
from aiokq.errors import (
    ConfigError,
    DeliveryFailed,
    KafkaError,
    RecordTooLarge,
    UnknownTopicOrPartition,
)
from aiokq.spark.checksums import checksum
from aiokq.spark.exporting.columns import ExportColumns
from aiokq.spark.exporting.failures import ExportFailed
from aiokq.spark.exporting.files import ParquetFiles, Piece
from aiokq.spark.exporting.journal import Acknowledged, Destination, Journal
from aiokq.spark.exporting.records import Row, rows
from aiokq.spark.exporting.unjournaled_rows import Place, UnjournaledRows, producer_of
from aiokq.spark.exporting.verify import Checked, check

__all__ = ["ExportProgress", "Exported", "export"]

PIECES: Final = 8
"""Maximum number of pieces in flight."""

DRAIN: Final = 10.0
"""Seconds for accepted records to be acknowledged when an export is interrupted or fails."""


@dataclass(frozen=True)
class ExportProgress:
    """Progress of an export.

    Attributes:
        total: number of rows of all files.
        done: number of acknowledged rows, including those of earlier runs.
        columns: text that says which column becomes which part of a record.
    """

    total: int
    done: int
    columns: str


@dataclass(frozen=True)
class Exported:
    """Result of an export.

    Attributes:
        files: number of files.
        rows: number of rows of all files, all acknowledged.
        resumed: number of these rows that earlier runs had sent.
        size: bytes of keys and values that this run sent.
        partitions: number of records by partition.
        created: whether the export created the topic.
        checked: result of the verification; None if it was not requested.
    """

    files: int
    rows: int
    resumed: int
    size: int
    partitions: dict[int, int]
    created: bool
    checked: Checked | None

    @property
    def verified(self) -> bool | None:
        """Whether the log has all rows unchanged; None if it was not read back."""
        found = self.checked
        return None if found is None else found.rows == self.rows and found.intact is True


@dataclass(frozen=True)
class _Sent:
    """A piece in flight.

    Attributes:
        rows: rows that this run sends, with their numbers in the piece.
        found: positions of the other rows, which an earlier run had sent.
        checksum: sum of the checksums of all rows.
    """

    piece: Piece
    rows: list[tuple[int, Row]]
    found: list[Place]
    deliveries: list[Deliveries]
    checksum: int


async def export(
    cluster: Cluster,
    sources: str | Path | Sequence[str | Path],
    topic: str,
    *,
    columns: ExportColumns | None = None,
    producer: Mapping[str, object] | None = None,
    create: NewTopic | None = None,
    resume: Path | None = None,
    verify: bool = False,
    told: Callable[[ExportProgress], None] | None = None,
) -> Exported:
    """Write the rows of Parquet files to a topic.

    Rows are written at least once, in their order, by an idempotent producer. If a run is killed,
    the next run writes all rows again, unless `resume` is given. With `resume`, the next run
    continues after the last piece (up to 10,000 rows or 4 MiB) that was noted as acknowledged. Up
    to eight later pieces may have been in flight; of these, the next run sends only the rows that
    are not in the log. So no row is in the log twice, with these exceptions:

    - rows of the first piece of a run that was killed before that piece was acknowledged;
    - rows that the broker appends after the next run has looked for them, because it had received
      but not yet processed or replicated them;
    - rows of up to eight pieces, if the producer is not idempotent (``acks=1``), if the producer of
      the killed run had taken a new id after an error, or if the resumed run is killed as well
      before it has written eight pieces.

    A run that ends on its own, even by an error or a cancellation, notes what is acknowledged.

    Args:
        cluster: a started cluster.
        sources: files, directories, and patterns with ``*`` and ``**``.
        columns: which column becomes which part of a record; `ExportColumns.of` chooses the columns
            of parts that are not given.
        producer: settings of the producer by name (``{"compression_type": "zstd"}``); settings that
            it shares with the cluster are the cluster's.
        create: how to create the topic if it does not exist; its name is ignored.
        resume: file to keep the journal in.
        verify: read the topic back and compare it with the rows.
        told: function that is called with the progress at the start and after each piece.

    Raises:
        ConfigError: there is no file, a column is missing or of a wrong type, ``acks`` is 0,
            another setting of the producer is refused, or `resume` belongs to another export.
        UnknownTopicOrPartition: the topic does not exist, and `create` was not given.
        ExportFailed: a row was not accepted or not delivered; the error names file and row.
        KafkaError: the cluster cannot be reached, or refuses a request.
        OSError: the file of `resume` cannot be written.
    """
    given = [sources] if isinstance(sources, str | Path) else list(sources)
    sender = cluster.producer(**(producer or {}))  # type: ignore[arg-type]
    if sender.settings.acks == 0:
        raise ConfigError(
            "acks=0 is not possible, because an export needs acknowledgements; use all or 1"
        )
    with ThreadPoolExecutor(1, "aiokq export") as reader:
        loop = asyncio.get_running_loop()
        files = await loop.run_in_executor(
            reader, ParquetFiles.find, given, columns or ExportColumns()
        )
        destination, created = await _destination(cluster, topic, create)
        journal = Journal.open(resume, files, destination)
        try:
            arrived = await _arrived(cluster, journal, files)
            sending = _Sending(cluster, files, topic, journal, arrived, told)
            if journal.done.rows < files.rows:
                await sender.start()
                await sending.run(sender, reader)
        finally:
            journal.close()
    done = journal.done
    return Exported(
        files=len(files.files),
        rows=done.rows,
        resumed=journal.before + sending.found,
        size=sending.size,
        partitions={
            partition: sum(last - first + 1 for first, last in ranges)
            for partition, ranges in sorted(done.offsets.items())
        },
        created=created,
        checked=await check(cluster, journal.destination, done) if verify else None,
    )


async def _destination(
    cluster: Cluster, topic: str, create: NewTopic | None
) -> tuple[Destination, bool]:
    """Return the destination, and whether the topic was created for this export."""
    async with cluster.admin() as admin:
        # The topic is described first, because a metadata request of the producer might create it.
        described = (await admin.describe_topics([topic]))[topic]
        created = False
        if isinstance(described.error, UnknownTopicOrPartition):
            if create is None:
                raise UnknownTopicOrPartition(
                    f"there is no topic {topic}: create it first, or let the export create it"
                ) from described.error
            wanted = NewTopic(
                topic,
                create.num_partitions,
                create.replication_factor,
                create.assignments,
                create.configs,
            )
            await admin.create_topics(wanted, raise_errors=True)
            described = (await admin.describe_topics([topic], raise_errors=True))[topic]
            created = True
        elif described.error is not None:
            raise described.error
        places = [TopicPartition(topic, each.partition) for each in described.partitions]
        ends = await admin.list_offsets(dict.fromkeys(places, "latest"), raise_errors=True)
        cluster_id = (await admin.describe_cluster()).cluster_id
    starts = {place.partition: ends[place].offset for place in places}
    return Destination(cluster_id, topic, described.topic_id, starts), created


async def _arrived(cluster: Cluster, journal: Journal, files: ParquetFiles) -> UnjournaledRows:
    """Return the rows that the previous run had in flight and that are in the log."""
    if journal.producer_id < 0 or journal.done.rows == files.rows:
        return UnjournaledRows()
    topic, id_ = journal.destination.topic, journal.producer_id
    return await UnjournaledRows.find(cluster, topic, id_, journal.ends())


class _Sending:
    """The pieces in flight, which are read in a thread, sent on the loop, and noted in order."""

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
        # Until the producer id of this run is noted, only one piece is in flight.
        self._unknown = journal.is_kept
        self._files = files
        self._topic = topic
        self._journal = journal
        self._on_progress = on_progress
        self._words = files.columns.describe()
        self._sent: deque[_Sent] = deque()

    async def run(self, producer: Producer, reader: ThreadPoolExecutor) -> None:
        """Send rows until all are acknowledged.

        Raises:
            ExportFailed: a row was not accepted or not delivered.
            ConfigError: a file has changed, or is damaged.
            OSError: the journal cannot be written.
        """
        loop = asyncio.get_running_loop()
        pieces = self._files.pieces(self._journal.position)
        self._report_progress()
        following = loop.run_in_executor(reader, _next, pieces, self._files.columns)
        try:
            while (made := await following) is not None:
                # The next piece is read while this one waits for buffer memory or is sent.
                following = loop.run_in_executor(reader, _next, pieces, self._files.columns)
                await self._accept(producer, *made)
                while self._is_to_wait():
                    await self._settle()
            while self._sent:
                await self._settle()
        finally:
            following.cancel()
            # Accepted records get some time to be acknowledged, and the acknowledged pieces are
            # noted.
            await producer.close(DRAIN)
            while self._sent and _done(self._sent[0]) and not _failure(self._sent[0]):
                await self._settle()

    def _is_to_wait(self) -> bool:
        if not self._sent:
            return False
        return self._unknown or len(self._sent) == PIECES or _done(self._sent[0])

    async def _accept(self, producer: Producer, piece: Piece, made: list[Row], total: int) -> None:
        deliveries: list[Deliveries] = []
        places = [self._arrived.take(row) for row in made]
        missing = [n for n, place in enumerate(places) if place is None]
        # Consecutive rows with the same partition go in one call.
        for partition, group in groupby(missing, key=lambda n: made[n].partition):
            numbers = list(group)
            records = [made[n].record for n in numbers]
            try:
                if partition is not None and partition < 0:
                    raise ConfigError("a partition number cannot be negative")
                deliveries.append(await producer.send_many(self._topic, records, partition))
            except (KafkaError, ValueError) as error:
                if isinstance(error, RecordTooLarge):
                    # The producer refused the whole call, because at least the largest of its
                    # records is too large.
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
        """Wait for the oldest piece to be acknowledged, and note it."""
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
        self._journal.add(piece.file, piece.until, acknowledged)
        self.size += sum(_size(row) for _, row in sent.rows)
        self.found += len(sent.found)
        self._report_progress()
        if self._unknown and delivered:
            await self._note_producer(Place(delivered[0].partition, delivered[0].offset))

    async def _note_producer(self, place: Place) -> None:
        """Note the producer id of this run, once."""
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
        return ExportFailed(f"{where}: {words}; {done:,} of {total:,} rows are acknowledged")


def _words(error: BaseException | None) -> str:
    message = error.message if isinstance(error, KafkaError) else str(error)
    return message or repr(error)


def _size(row: Row) -> int:
    """Return the size of key and value together, in bytes."""
    key, value = row.record[:2]
    return len(key or b"") + len(value or b"")


def _next(pieces: Iterator[Piece], columns: ExportColumns) -> tuple[Piece, list[Row], int] | None:
    """Return the next piece, its records, and the sum of their checksums; None at the end."""
    piece = next(pieces, None)
    if piece is None:
        return None
    made = list(rows(piece.batch, columns))
    return piece, made, sum(checksum(*row.record[:2]) for row in made)


def _done(sent: _Sent) -> bool:
    return all(deliveries.done() for deliveries in sent.deliveries)


def _failure(sent: _Sent) -> bool:
    return any(
        delivery.exception() is not None
        for deliveries in sent.deliveries
        for delivery in deliveries[:]
    )
