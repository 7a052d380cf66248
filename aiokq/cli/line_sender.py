"""LineSender: one run of `aiokq produce`, from the first line to the last acknowledgement."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiokq.cli.input_lines import LineFormat, read_lines
from aiokq.cli.line_results import LineResults
from aiokq.cli.output import OutputClosed
from aiokq.cli.record_options import ProduceOptions

if TYPE_CHECKING:
    from aiokq.client.cluster import Cluster
    from aiokq.fastpath.produce import Delivery
    from aiokq.producer.producer import Producer
    from aiokq.producer.settings import ProducerSettings

__all__ = ["LineSender"]

DRAIN: Final = 10.0
"""Seconds in which accepted records may still be delivered after Ctrl-C or a failure."""

PATIENCE: Final = 5.0
"""Seconds between two checks whether the oldest unacknowledged line is still the same."""


@dataclass(frozen=True)
class _Sent:
    """A line in flight: its number, the number of bytes in key and value, and its Delivery."""

    number: int
    size: int
    delivery: Delivery


class LineSender:
    """Sends lines as records, and passes the outcome of each line to `results`.

    The outcomes of sent records are passed in the order of their lines. The failure of a line that
    cannot become a record is passed at once, possibly before the outcomes of earlier lines.

    Args:
        cluster: a cluster that is not started; the call starts and closes it.
        settings: settings of the producer, without settings of the cluster.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings,
        options: ProduceOptions,
        lines: LineFormat,
        results: LineResults,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._options = options
        self._lines = lines
        self._results = results
        self._pending: deque[_Sent] = deque()
        self._broken: OutputClosed | None = None
        self._watch: asyncio.TimerHandle | None = None

    async def __call__(self) -> None:
        loop = asyncio.get_running_loop()
        started: float | None = None
        async with self._cluster:
            producer = self._cluster.producer(settings=self._settings)
            await producer.start()
            try:
                await self._check_partition(producer)
                started = loop.time()
                self._watch = loop.call_later(PATIENCE, self._look, 0)
                await self._send(producer)
            finally:
                # After an interruption or a failure, close() delivers the accepted records. The
                # records are counted even if a signal interrupts close().
                try:
                    await producer.close(DRAIN)
                finally:
                    if self._watch is not None:
                        self._watch.cancel()
                    if started is not None:
                        self._results.seconds = loop.time() - started
                    self._settle()

    async def _check_partition(self, producer: Producer) -> None:
        """Check topic and partition before the first line, so that an error is reported once."""
        from aiokq.core.errors import UnknownTopicOrPartition

        topic, partition = self._options.topic, self._options.partition
        there = await producer.partitions_for(topic)
        if partition is not None and partition not in there:
            raise UnknownTopicOrPartition(
                f"{topic} has no partition {partition}: it has 0 to {max(there)}"
            )

    async def _send(self, producer: Producer) -> None:
        number = 0
        async for lines in read_lines(producer.settings.max_request_size):
            for line in lines:
                number += 1
                await self._accept(producer, number, line)
            if self._pending:
                # The next line may be typed much later: print the outcomes when they are known.
                self._pending[-1].delivery.add_done_callback(self._answered)
            else:
                self._results.complain()
            if self._broken is not None:
                raise self._broken
        await self._finish(producer)
        self._results.interrupted = False

    async def _accept(self, producer: Producer, number: int, line: bytes) -> None:
        from aiokq.core.errors import RecordTooLarge

        to = self._options
        try:
            key, value = self._lines.record(line)
            delivery = await producer.enqueue(
                to.topic, value, key, to.partition, None, to.headers or None
            )
        except (ValueError, RecordTooLarge) as error:
            self._results.fail(number, error)
        else:
            size = len(key or b"") + len(value or b"")
            self._pending.append(_Sent(number, size, delivery))

    def _answered(self, _: object) -> None:
        """Print the outcomes of a portion of lines; called when its last line has an outcome."""
        try:
            self._settle()
            self._results.complain()
            self._results.out.flush()
        except OutputClosed as error:
            self._broken = error  # the task that reads the lines raises the error

    async def _finish(self, producer: Producer) -> None:
        """Wait until every record has an outcome, and count the records."""
        from aiokq.core.errors import DeliveryFailed

        try:
            await producer.flush()
        except DeliveryFailed:
            pass  # each failed record is reported by its Delivery
        self._settle()

    def _settle(self) -> None:
        """Count records in the order of their lines, up to the first without an outcome."""
        pending = self._pending
        while pending and pending[0].delivery.done():
            sent = pending.popleft()
            error = sent.delivery.exception()
            if error is not None:
                self._results.fail(sent.number, error)
            else:
                self._results.deliver(sent.delivery.result(), sent.size)

    def _look(self, oldest: int) -> None:
        """Print a message if the oldest unacknowledged line is the same as at the previous check.

        A producer retries for two minutes by default; without a message, the user would not know
        why the command prints nothing. After the message, no further check follows.

        Args:
            oldest: number of the oldest unacknowledged line at the previous check; 0 for none.
        """
        waiting = 0
        for sent in self._pending:
            if not sent.delivery.done():
                waiting = sent.number
                break
        if waiting and waiting == oldest:
            self._results.out.note(self._trouble(waiting))
        else:
            loop = asyncio.get_running_loop()
            self._watch = loop.call_later(PATIENCE, self._look, waiting)

    def _trouble(self, number: int) -> str:
        health = self._cluster.health()
        known = [f"{tp}: {name}" for tp, name in health.partitions_failed.items()]
        known += [f"broker {node}: {reason}" for node, reason in health.brokers_down.items()]
        limit = f"delivery_timeout_ms={self._settings.delivery_timeout_ms}"
        why = f" ({'; '.join(known)})" if known else ""
        return (
            f"aiokq produce: line {number} waits for its acknowledgement{why}: retries end after "
            f"{limit}; Ctrl-C stops now and prints the last error"
        )
