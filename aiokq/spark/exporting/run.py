"""The export itself: pieces of files, in their order, to a producer, and on to the journal."""

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
from aiokq.spark.exporting.columns import ExportColumns
from aiokq.spark.exporting.failures import ExportFailed
from aiokq.spark.exporting.files import ParquetFiles, Piece
from aiokq.spark.exporting.journal import Acknowledged, Destination, Journal, checksum
from aiokq.spark.exporting.records import Row, rows
from aiokq.spark.exporting.unjournaled_rows import Place, UnjournaledRows, producer_of
from aiokq.spark.exporting.verify import Checked, check

__all__ = ["ExportProgress", "Exported", "export"]

PIECES: Final = 8
"""At most so many are on their way."""

DRAIN: Final = 10.0
"""Seconds that accepted records have when an export is interrupted, or fails."""


@dataclass(frozen=True)
class ExportProgress:
    """How far an export is.

    Attributes:
        total: rows of all files.
        done: rows that are acknowledged, those of earlier runs among them.
        columns: what becomes of which column, in words.
    """

    total: int
    done: int
    columns: str


@dataclass(frozen=True)
class Exported:
    """What an export has done.

    Attributes:
        files: so many.
        rows: of all files; all of them are acknowledged.
        resumed: rows of these that earlier runs had sent.
        size: bytes of keys and values that this run sent.
        partitions: records for each partition.
        created: whether the topic was.
        checked: what the log has, where that was asked for.
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
        """Whether the log has all rows, as they were; None if it was not looked at."""
        found = self.checked
        return None if found is None else found.rows == self.rows and found.intact is True


@dataclass(frozen=True)
class _Sent:
    """A piece on its way.

    Attributes:
        rows: that are sent, with their numbers in the piece.
        found: places of the others, which an earlier run had sent.
        checksum: of all rows.
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

    At least once, in the order of the rows, by an idempotent producer. A run that is killed and
    begun again writes all rows again; with `resume` it goes on behind the last piece (10,000 rows,
    4 MiB) that was noted as acknowledged, and of the eight that were on their way it sends what is
    not in the log: so no row is there twice, but for these:

    - those of the first piece of a run, if it was killed before that was acknowledged;
    - what the broker appends only after the next run has looked for it, which is what it had
      received and not yet worked on, or not yet replicated;
    - up to eight pieces, if the producer is not idempotent (``acks=1``), if the one that was killed
      had begun anew with another id after an error, or if the run that goes on is killed, too,
      before it is eight pieces on.

    A run that ends by itself, also by an error or a cancellation, notes what is acknowledged.

    Args:
        cluster: open.
        sources: files, directories, and patterns with ``*`` and ``**``.
        columns: what becomes of which column; what it does not say is chosen by the files' columns
            (see `ExportColumns.of`).
        producer: settings of the producer by name (``{"compression_type": "zstd"}``); those that it
            shares with the cluster are the cluster's.
        create: how to make the topic where there is none; its name is not looked at.
        resume: a file to keep what is done in.
        verify: read the topic back, and count.
        told: called with the progress: at the beginning, and after each piece.

    Raises:
        ConfigError: no file, a column that is missing or of a wrong type, a setting that loses
            acknowledgements, or `resume` is of another export.
        UnknownTopicOrPartition: there is no such topic, and `create` was not given.
        ExportFailed: a row was not accepted or not delivered; the file and the row are named.
        KafkaError: the cluster cannot be reached, or refuses.
        OSError: the file of `resume` cannot be written.
    """
    given = [sources] if isinstance(sources, str | Path) else list(sources)
    sender = cluster.producer(**(producer or {}))  # type: ignore[arg-type]
    if sender.settings.acks == 0:
        raise ConfigError("acks=0: an export counts acknowledgements; leave it at all, or set 1")
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
    """The topic as it is, and whether it was made for this."""
    async with cluster.admin() as admin:
        # By name: a producer that asks for it may make the broker create it.
        described = (await admin.describe_topics([topic]))[topic]
        created = False
        if isinstance(described.error, UnknownTopicOrPartition):
            if create is None:
                raise UnknownTopicOrPartition(
                    f"there is no topic {topic}: create it first, or let the export do it"
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
    """What the run before had on its way, and is there."""
    if journal.producer_id < 0 or journal.done.rows == files.rows:
        return UnjournaledRows()
    topic, id_ = journal.destination.topic, journal.producer_id
    return await UnjournaledRows.find(cluster, topic, id_, journal.ends())


class _Sending:
    """Pieces on their way: made in a thread, accepted and awaited on the loop, noted in order."""

    def __init__(
        self,
        cluster: Cluster,
        files: ParquetFiles,
        topic: str,
        journal: Journal,
        arrived: UnjournaledRows,
        told: Callable[[ExportProgress], None] | None,
    ) -> None:
        self.size = 0
        self.found = 0
        self._cluster = cluster
        self._arrived = arrived
        # Until it is known by whom a row was written, no more than a piece is on its way.
        self._unknown = journal.is_kept
        self._files = files
        self._topic = topic
        self._journal = journal
        self._told = told
        self._words = files.columns.describe()
        self._sent: deque[_Sent] = deque()

    async def run(self, producer: Producer, reader: ThreadPoolExecutor) -> None:
        """Until all rows are acknowledged.

        Raises:
            ExportFailed, ConfigError, KafkaError, OSError: as `export`.
        """
        loop = asyncio.get_running_loop()
        pieces = self._files.pieces(self._journal.position)
        self._tell()
        following = loop.run_in_executor(reader, _next, pieces, self._files.columns)
        try:
            while (made := await following) is not None:
                # The next one is made while this one waits for room, or is being sent.
                following = loop.run_in_executor(reader, _next, pieces, self._files.columns)
                await self._accept(producer, *made)
                while self._is_to_wait():
                    await self._settle()
            while self._sent:
                await self._settle()
        finally:
            following.cancel()
            # What was accepted has its chance, and is noted.
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
        # Rows that follow each other and have the same partition go in one call.
        for partition, group in groupby(missing, key=lambda n: made[n].partition):
            numbers = list(group)
            records = [made[n].record for n in numbers]
            try:
                if partition is not None and partition < 0:
                    raise ConfigError("there is none below 0")
                deliveries.append(await producer.send_many(self._topic, records, partition))
            except (KafkaError, ValueError) as error:
                if isinstance(error, RecordTooLarge):
                    # Refused here: the largest is too large.
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
        """Wait for the oldest piece, and note it."""
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
        self._tell()
        if self._unknown and delivered:
            await self._note_producer(Place(delivered[0].partition, delivered[0].offset))

    async def _note_producer(self, place: Place) -> None:
        """Whose records this run's are; once."""
        self._unknown = False
        id_ = await producer_of(self._cluster, self._topic, place)
        if id_ >= 0:
            self._journal.note_producer(id_)

    def _tell(self) -> None:
        if self._told is not None:
            done = self._journal.done.rows
            self._told(ExportProgress(self._files.rows, done, self._words))

    def _where(self, piece: Piece, begin: int, end: int, partition: int | None = None) -> str:
        """Rows of a piece, for a person; the first of a file is row 1."""
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
    """Bytes of key and value."""
    key, value = row.record[:2]
    return len(key or b"") + len(value or b"")


def _next(pieces: Iterator[Piece], columns: ExportColumns) -> tuple[Piece, list[Row], int] | None:
    """The next piece, its records, and the sum of their checksums."""
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
