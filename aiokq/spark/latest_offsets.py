"""Latest offsets of the partitions of a stream, cached briefly, with retries during outages.

While no records arrive, Spark requests the latest offset 90 times a second, so results are reused
for up to a tenth of a second. Spark ends the query if the source raises an error, so failed
requests are retried until a deadline.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from aiokq.errors import (
    BootstrapFailed,
    ConnectionLost,
    KafkaError,
    RequestTimeout,
    UnknownTopicOrPartition,
)
from aiokq.spark.offset_reader import OffsetReader, Partitions
from aiokq.spark.offsets import PartitionOffsets
from aiokq.spark.options import ReadOptions
from aiokq.spark.worker import WorkerClient, worker_client

__all__ = ["OffsetSnapshot", "LatestOffsets"]

logger = logging.getLogger("aiokq.spark")

T = TypeVar("T")

BUSY_INTERVAL: Final = 0.05
"""Seconds for which offsets are reused while records arrive."""
IDLE_INTERVAL: Final = 0.1
"""Seconds for which offsets are reused while no records arrive."""
IDLE_AFTER: Final = 5.0
"""Seconds without new records after which the stream counts as idle."""
TOPICS_INTERVAL: Final = 1.0
"""Seconds for which partitions and topic ids are reused."""
ASK_TIMEOUT: Final = 5.0
"""Timeout of each request in `LatestOffsets.latest`, in seconds."""


@dataclass(frozen=True)
class OffsetSnapshot:
    """The result of one lookup by `LatestOffsets`.

    Attributes:
        partitions: the partitions of the query.
        ends: the latest offset of each partition, see `OffsetReader.log_ends`.
        starts: log start offset of each partition when the partition was first seen. If the query
            has no position for a partition, the partition's backlog counts from this offset.
    """

    partitions: Partitions
    ends: PartitionOffsets
    starts: PartitionOffsets


class LatestOffsets:
    """Lookup of the partitions of a streaming query and of their latest offsets.

    Args:
        options: options of the query.
        now: clock in seconds, replaced by tests.
        pause: function that sleeps for a number of seconds, replaced by tests.
    """

    def __init__(
        self,
        options: ReadOptions,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._now = now
        self._pause = pause
        self._partitions: Partitions | None = None
        self._partitions_asked = 0.0
        self._starts: PartitionOffsets = {}
        self._known: OffsetSnapshot | None = None
        self._asked = 0.0
        self._moved = 0.0
        self._failing: float | None = None

    @property
    def client(self) -> WorkerClient:
        """The client of this process.

        Raises:
            BootstrapFailed: no bootstrap address answered; the message has the reason for each
                address.
            ConfigError: a ``kafka.*`` option is unknown, or out of range.
        """
        return worker_client(self._options.kafka)

    def latest(self) -> OffsetSnapshot | None:
        """Return the latest offsets, at most a tenth of a second old.

        Returns:
            None if the lookup failed and the deadline has not passed.

        Raises:
            KafkaError: the cluster refused the request, or the deadline has passed. The deadline
                is ``fetchOffset.numRetries`` times ``fetchOffset.retryIntervalMs`` after the first
                failure. If no broker responds, ``kafka.default.api.timeout.ms`` is added to the
                interval.
        """
        now = self._now()
        idle = now - self._moved > IDLE_AFTER
        if (
            self._known is not None
            and self._failing is None
            and now - self._asked < (IDLE_INTERVAL if idle else BUSY_INTERVAL)
        ):
            return self._known
        try:
            latest = self.ask(ASK_TIMEOUT)
        except KafkaError as error:
            self._tolerate(error)
            return None
        self._failing = None
        return latest

    def ask(self, timeout: float | None = None) -> OffsetSnapshot:
        """Request the latest offsets from the cluster.

        Args:
            timeout: seconds for each request, retries included; None for
                ``kafka.default.api.timeout.ms``.

        Raises:
            KafkaError: a request to the cluster failed.
        """
        client = self.client
        before = self._known
        latest = client.run(self._latest(OffsetReader(client.cluster, self._options, timeout)))
        self._asked = self._now()
        if before is None or latest.ends != before.ends:
            self._moved = self._asked
        self._known = latest
        return latest

    async def _latest(self, offset_reader: OffsetReader) -> OffsetSnapshot:
        now = self._now()
        partitions = self._partitions
        if partitions is None or now - self._partitions_asked > TOPICS_INTERVAL:
            partitions = await offset_reader.partitions(
                missing_ok=not self._options.fail_on_data_loss
            )
            self._partitions = partitions
            self._partitions_asked = now
        there = partitions.leaders.keys()
        try:
            # The first call looks up the starts of all partitions, because the query has no
            # position for partitions that were added while it was down.
            starts = {tp: start for tp, start in self._starts.items() if tp in there}
            if added := there - starts.keys():
                starts |= await offset_reader.log_starts(added)
            self._starts = starts
            ends = await offset_reader.log_ends(there)
        except UnknownTopicOrPartition:
            self._partitions = None
            raise
        return OffsetSnapshot(partitions, ends, starts)

    def answer(self, question: Callable[[OffsetReader], Coroutine[Any, Any, T]]) -> T:
        """Return the result of the lookup `question`; retry the lookup until the deadline.

        Raises:
            KafkaError: the cluster refused the request, or the deadline has passed. See `latest`
                for the deadline.
        """
        while True:
            try:
                client = self.client
                found = client.run(question(OffsetReader(client.cluster, self._options)))
            except KafkaError as error:
                self._tolerate(error)
                self._pause(IDLE_INTERVAL)
            else:
                self._failing = None
                return found

    def _tolerate(self, error: KafkaError) -> None:
        """Raise `error` if it is not temporary, or if requests have failed for too long."""
        if not error.retriable and not isinstance(error, _AWAY):
            raise error
        now = self._now()
        if self._failing is None:
            self._failing = now
            logger.warning("offsets could not be fetched, retrying error=%s", error)
        options = self._options
        limit = options.fetch_offset_retry_interval_ms / 1000
        if isinstance(error, _AWAY):
            limit += self.default_api_timeout
        limit *= options.fetch_offset_num_retries
        if now - self._failing >= limit:
            raise error

    @property
    def default_api_timeout(self) -> float:
        """``kafka.default.api.timeout.ms`` in seconds."""
        return float(self._options.kafka.get("default.api.timeout.ms", "60000")) / 1000


_AWAY: Final = (ConnectionLost, RequestTimeout, BootstrapFailed)
"""Errors that are raised when no broker responds; other retriable errors come from a response."""
