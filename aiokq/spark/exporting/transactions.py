"""Transactions of an export: their limits, and the journal line that each of them commits.

If the journal is in a file, each transaction also writes its journal line to the ledger topic
(ledger_topic.py). After a kill, the next run reads the last committed transaction from the ledger.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiokq import Cluster, ConfigResource, ConfigResourceType, Producer
from aiokq.errors import ClusterAuthorization, ConfigError
from aiokq.spark.exporting.files import PIECE_BYTES, PIECE_ROWS, ParquetFiles
from aiokq.spark.exporting.journal import Acknowledged, Journal
from aiokq.spark.ledger_topic import LEDGER_TOPIC, PARTITION, LedgerTopic

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ExportTransactions", "OpenTransaction", "catch_up", "timeout_of"]

MAXIMUM: Final = "transaction.max.timeout.ms"
ROWS_PER_SECOND: Final = 5_000
BYTES_PER_SECOND: Final = 5_000_000
"""Rates for a cautious estimate of the duration of an export in one transaction (`atomic`)."""

MARGIN: Final = 30.0
"""Seconds allowed from a transaction's timeout until the coordinator has aborted the transaction.

By default, Kafka's coordinator looks for expired transactions every 10 seconds.
"""


@dataclass(frozen=True)
class ExportTransactions:
    """Limits of the transactions of an export; the first limit that is reached ends a transaction.

    Args:
        rows: maximum number of rows of a transaction.
        size: maximum bytes of keys and values; a single row may exceed the maximum.
        seconds: seconds from the beginning of a transaction after which no more rows are added.
        atomic: whether to write all rows in one transaction, without limits.
        ledger_topic: the compacted topic to which each transaction of a resumable export writes its
            position; created if it does not exist.

    Raises:
        ConfigError: a limit is not a number, or out of range.
    """

    rows: int = 100_000
    size: int = 64 << 20
    seconds: float = 10.0
    atomic: bool = False
    ledger_topic: str = LEDGER_TOPIC

    def __post_init__(self) -> None:
        for name, number in (("rows", self.rows), ("size", self.size)):
            if type(number) is not int or number < 1:
                raise ConfigError(f"{name} must be a whole number from 1, not {number!r}")
        if type(self.seconds) not in (int, float) or not 0 <= self.seconds < math.inf:
            raise ConfigError(f"seconds must be a finite number from 0, not {self.seconds!r}")

    @property
    def piece(self) -> tuple[int, int]:
        """Maximum rows and bytes of a piece; a piece of this size fits in a transaction."""
        if self.atomic:
            return PIECE_ROWS, PIECE_BYTES
        return min(PIECE_ROWS, self.rows), min(PIECE_BYTES, self.size)


async def timeout_of(
    cluster: Cluster, given: ExportTransactions, files: ParquetFiles, timeout_ms: int | None
) -> int:
    """Return the transaction timeout for the producer, in milliseconds.

    Args:
        timeout_ms: the timeout that the user has set; None for the default.

    Raises:
        ConfigError: a transaction would last longer than allowed.
        KafkaError: the settings of the brokers cannot be read.
    """
    default = 60_000 if timeout_ms is None else timeout_ms
    if not given.atomic:
        if given.seconds * 1000 >= default:
            raise ConfigError(
                f"a transaction of {given.seconds:g} s does not fit in transaction_timeout_ms="
                f"{default}: lower the time limit, or raise the timeout"
            )
        return default
    maximum = await _maximum(cluster)
    allowed = default if maximum is None else maximum if timeout_ms is None else timeout_ms
    if maximum is not None and allowed > maximum:
        raise ConfigError(
            f"transaction_timeout_ms={allowed} is more than the brokers allow: {MAXIMUM}={maximum}"
        )
    needed = seconds_for(files)
    if needed * 1000 > allowed:
        name = "transaction_timeout_ms" if maximum != allowed else f"{MAXIMUM} of the brokers"
        raise ConfigError(
            f"{files.rows:,} rows of {files.content:,} bytes may take {needed:,.0f} s, and {name} "
            f"allows {allowed / 1000:g} s for one transaction: raise it, or write in several "
            "transactions, which a resumed export also writes once"
        )
    return allowed


def seconds_for(files: ParquetFiles) -> float:
    """Return a cautious estimate of the duration of the export of all rows, in seconds."""
    return files.rows / ROWS_PER_SECOND + files.content / BYTES_PER_SECOND


async def _maximum(cluster: Cluster) -> int | None:
    """Return the longest transaction timeout that all brokers allow, in milliseconds.

    The result is None if the brokers do not report the maximum, or refuse the request.
    """
    async with cluster.admin() as admin:
        brokers = (await admin.describe_cluster()).brokers
        resources = [
            ConfigResource(ConfigResourceType.BROKER, str(broker.node_id)) for broker in brokers
        ]
        try:
            found = await admin.describe_configs(resources, raise_errors=True)
        except ClusterAuthorization:
            return None
    values = [found[each].entries[MAXIMUM].value for each in resources]
    return min((int(value) for value in values if value is not None), default=None)


async def catch_up(
    cluster: Cluster, journal: Journal, given: ExportTransactions, timeout_ms: int
) -> None:
    """Add the export's last committed transaction to the journal, if the journal lacks it.

    The producer must have been started, because its start ends an open transaction of a killed run.
    The ledger topic is created if it does not exist.

    Raises:
        ConfigError: the journal lacks more than one transaction, or has a later transaction than
            the ledger; or the ledger topic is not compacted.
        KafkaError: the ledger cannot be read.
        OSError: the journal cannot be written.
    """
    mine = _key(journal)
    last: bytes | None = None
    topic = LedgerTopic(given.ledger_topic, "--ledger-topic")
    async for key, value in topic.added(cluster, timeout_ms / 1000 + MARGIN):
        if key == mine:
            last = value
    if last is not None:
        journal.add_line(json.loads(last))
        journal.before = journal.done.rows


def _key(journal: Journal) -> bytes:
    return f"export {journal.export_id}".encode()


class OpenTransaction:
    """The transactions of one run, one after the other; each begins with its first rows."""

    def __init__(
        self,
        producer: Producer,
        journal: Journal,
        given: ExportTransactions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._producer = producer
        self._journal = journal
        self._given = given
        self._clock = clock
        self._began: float | None = None
        self._rows = self._size = 0
        self._position = (0, 0)
        self._acknowledged = Acknowledged()

    def has_room(self, rows: int, size: int) -> bool:
        """Whether more rows fit in the open transaction; True if no transaction is open."""
        if self._began is None or self._given.atomic:
            return True
        return (
            self._rows + rows <= self._given.rows
            and self._size + size <= self._given.size
            and self._clock() - self._began < self._given.seconds
        )

    async def begin(self, rows: int, size: int) -> None:
        """Count rows that are about to be sent; begin a transaction if no transaction is open."""
        if self._began is None:
            await self._producer.begin_transaction()
            self._began = self._clock()
        self._rows += rows
        self._size += size

    def add(self, file: int, until: int, acknowledged: Acknowledged) -> None:
        """Add acknowledged rows, which `commit` notes; must be called in the order of the rows."""
        self._position = (file, until)
        self._acknowledged.add(acknowledged)

    async def commit(self) -> None:
        """Commit the rows, then note the rows and the position after them in the journal.

        If the journal is in a file, the position is part of the transaction. All rows must be
        acknowledged. Does nothing if no transaction is open.

        Raises:
            TransactionAborted: nothing of the transaction is visible.
            CommitOutcomeUnknown: no response showed whether the transaction was committed; a
                resumed run reads the outcome from the ledger.
            ProducerFenced: another run of this export was started, or the transaction timeout has
                passed.
            OSError: the journal cannot be written.
        """
        if self._began is None:
            return
        line = self._journal.line(*self._position, self._acknowledged)
        if self._journal.is_kept:
            value = json.dumps(line, separators=(",", ":")).encode()
            await self._producer.enqueue(
                self._given.ledger_topic, value, key=_key(self._journal), partition=PARTITION
            )
        await self._producer.commit_transaction()
        self._forget()
        self._journal.add_line(json.loads(json.dumps(line)))

    def _forget(self) -> None:
        self._began = None
        self._rows = self._size = 0
        self._acknowledged = Acknowledged()

    async def abort(self) -> None:
        """Abort the open transaction, if there is one."""
        if self._began is not None:
            self._began = None
            await self._producer.abort_transaction()


def producer_settings(
    given: Mapping[str, object], journal: Journal, timeout_ms: int
) -> dict[str, object]:
    """Return the settings of the producer of a transactional export."""
    return {
        **given,
        "transactional_id": f"aiokq-export-{journal.export_id}",
        "transaction_timeout_ms": timeout_ms,
    }
