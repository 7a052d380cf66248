"""`export`: finds the files, the topic and the journal, then sends the rows with sending.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from aiokq import (
    Cluster,
    NewTopic,
    TopicPartition,
)
from aiokq.errors import (
    ConfigError,
    UnknownTopicOrPartition,
)
from aiokq.spark.exporting.columns import ExportColumns
from aiokq.spark.exporting.files import ParquetFiles
from aiokq.spark.exporting.journal import Destination, Journal
from aiokq.spark.exporting.sending import ExportProgress, Sending
from aiokq.spark.exporting.transactions import (
    ExportTransactions,
    OpenTransaction,
    catch_up,
    producer_settings,
    timeout_of,
)
from aiokq.spark.exporting.unjournaled_rows import UnjournaledRows
from aiokq.spark.exporting.verify import Checked, check

__all__ = ["ExportProgress", "Exported", "export"]


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
        """Whether the log has all rows unchanged; None if the verification was not requested."""
        found = self.checked
        return None if found is None else found.rows == self.rows and found.intact is True


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
    transactions: ExportTransactions | None = None,
    told: Callable[[ExportProgress], None] | None = None,
) -> Exported:
    """Write the rows of Parquet files to a topic.

    With `resume` and `transactions`, each transaction also commits the position after its rows.
    Then no row is lost, and ``read_committed`` consumers see no row twice.

    Without `transactions`, rows are written at least once. Without `resume`, the next run writes
    all rows again. With `resume`, the next run continues after the last piece (up to 10,000 rows or
    4 MiB) that was noted as acknowledged. It does not send rows of later pieces that are already in
    the log. So no row is in the log twice, with these exceptions:

    - rows of the first piece of a run that was killed before that piece was acknowledged;
    - rows that the broker had received when the run was killed, but appends only after the next run
      has searched the log for them;
    - rows of up to eight pieces, if the producer is not idempotent (``acks=1``), if the producer of
      the killed run had taken a new id after an error, or if the resumed run is also killed before
      it has written eight pieces.

    A run that ends on its own, even by an error or a cancellation, notes the acknowledged pieces in
    order, up to the first piece that is not acknowledged.

    Args:
        cluster: a started cluster.
        sources: files, directories, and patterns with ``*`` and ``**``.
        columns: the columns that become the parts of a record. If no column is given for a part,
            `ExportColumns.of` chooses the column.
        producer: settings of the producer by name (``{"compression_type": "zstd"}``); settings of
            the Cluster are refused.
        create: partitions, replicas and configuration with which to create the topic if it does not
            exist; the name in `create` is ignored.
        resume: file of the journal, with which a later run can continue the export.
        verify: whether to read the topic back and compare it with the rows.
        transactions: limits of the transactions; None to write without transactions.
        told: function that is called with the progress at the start and after each piece, or after
            each transaction.

    Raises:
        ConfigError: there is no file, a column is missing or of a wrong type, ``acks`` is 0,
            another setting of the producer is refused, `resume` belongs to another export, or a
            transaction would last longer than the producer or the brokers allow.
        UnknownTopicOrPartition: the topic does not exist, and `create` was not given.
        ExportFailed: a row was not accepted or not delivered; the error names file and row.
        KafkaError: the cluster cannot be reached, or refuses a request.
        OSError: the file of `resume` cannot be written.
    """
    given = [sources] if isinstance(sources, str | Path) else list(sources)
    settings = dict(producer or {})
    if cluster.producer(**settings).settings.acks == 0:  # type: ignore[arg-type]
        raise ConfigError(
            "acks=0 is not possible, because an export needs acknowledgements; use all or 1"
        )
    with ThreadPoolExecutor(1, "aiokq export") as reader:
        loop = asyncio.get_running_loop()
        files = await loop.run_in_executor(
            reader, ParquetFiles.find, given, columns or ExportColumns()
        )
        timeout_ms = 0
        if transactions is not None:
            wanted = settings.get("transaction_timeout_ms")
            timeout_ms = await timeout_of(
                cluster, transactions, files, None if wanted is None else int(str(wanted))
            )
        destination, created = await _destination(cluster, topic, create)
        journal = Journal.open(resume, files, destination, transactional=transactions is not None)
        try:
            if transactions is not None:
                settings = producer_settings(settings, journal, timeout_ms)
            sender = cluster.producer(**settings)  # type: ignore[arg-type]
            arrived = UnjournaledRows()
            if journal.done.rows < files.rows:
                if transactions is None:
                    arrived = await _arrived(cluster, journal)
                await sender.start()
            sending = Sending(cluster, files, topic, journal, arrived, told)
            try:
                if transactions is not None and journal.done.rows < files.rows:
                    if journal.is_kept:
                        await catch_up(cluster, journal, transactions, timeout_ms)
                    sending.use(OpenTransaction(sender, journal, transactions), transactions)
                if journal.done.rows < files.rows:
                    await sending.run(sender, reader)
            finally:
                await sender.close(0)
        finally:
            journal.close()
    done = journal.done
    checked = None
    if verify:
        committed = transactions is not None
        checked = await check(cluster, journal.destination, done, committed=committed)
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
        checked=checked,
    )


async def _destination(
    cluster: Cluster, topic: str, create: NewTopic | None
) -> tuple[Destination, bool]:
    """Return the destination, and whether the topic was created for this export."""
    async with cluster.admin() as admin:
        # The topic is described first, because a metadata request of the producer might create it,
        # if the brokers create topics automatically.
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


async def _arrived(cluster: Cluster, journal: Journal) -> UnjournaledRows:
    """Return the rows that the previous run had in flight and that are in the log."""
    if journal.producer_id < 0:
        return UnjournaledRows()
    topic, id_ = journal.destination.topic, journal.producer_id
    return await UnjournaledRows.find(cluster, topic, id_, journal.ends())
