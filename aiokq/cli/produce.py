"""`aiokq produce`: each line of standard input becomes a record, and each is acknowledged."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.failures import FAILED, explain
from aiokq.cli.lines import read_lines
from aiokq.cli.options import BootstrapServers, ConfigFile
from aiokq.cli.output import Output, OutputClosed
from aiokq.cli.records import unescaped
from aiokq.cli.session import Session

if TYPE_CHECKING:
    from aiokq.fastpath import Delivery
    from aiokq.producer.producer import Producer

__all__ = ["produce"]

COMPLAINTS = 10
"""Lines whose failure is told one by one; the others are counted."""

DRAIN = 10.0
"""Seconds that accepted records have after Ctrl-C."""


def produce(
    ctx: typer.Context,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False)
    ],
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            "-K",
            metavar="TEXT",
            help="What stands before it in a line is the key ('\\\\t' for a tab). "
            "Default: lines have no key.",
            show_default=False,
        ),
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option(
            "--header", "-H", metavar="NAME=VALUE", help="A header of every record; repeatable."
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition",
            "-p",
            min=0,
            metavar="N",
            help="Where all records go. Default: by key, or evenly without one.",
            show_default=False,
        ),
    ] = None,
    compression_type: Annotated[
        str | None,
        typer.Option(
            "--compression-type",
            "-z",
            metavar="CODEC",
            help="none, gzip, snappy, lz4 or zstd. Default: none.",
            show_default=False,
        ),
    ] = None,
    null_marker: Annotated[
        str | None,
        typer.Option(
            "--null-marker",
            metavar="TEXT",
            help="A key or value that is this text is null; a null value deletes its key in a "
            "compacted topic.",
            show_default=False,
        ),
    ] = None,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Print topic-partition@offset of each record.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary, and offsets, as JSON lines.")
    ] = False,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Send each line of standard input as a record, and wait for its acknowledgement.

    Ends at the end of the input, or by Ctrl-C; what was read until then is delivered first. Lines
    that could not be delivered are named, and make the exit code 1.
    """
    from aiokq.cli.settings import client_settings
    from aiokq.producer.producer import Producer
    from aiokq.producer.settings import ProducerSettings

    session: Session = ctx.obj
    lines = _Lines(
        separator=None if key_separator is None else unescaped(key_separator).encode(),
        null=None if null_marker is None else null_marker.encode(),
    )
    if lines.separator == b"":
        raise typer.BadParameter("--key-separator is empty: leave it out, or give a text")
    pairs = [_header(text) for text in headers or []]
    settings = client_settings(
        ProducerSettings, bootstrap_servers, config, compression_type=compression_type
    )
    out = Output(as_json=as_json)
    run = _Produce(
        Producer(settings=settings, _environment=session.environment),
        out,
        topic,
        partition,
        pairs,
        lines,
        show_offsets=offsets,
    )
    try:
        session.run(run())
    finally:
        run.print_summary()
    raise typer.Exit(FAILED if run.failed else 0)


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"--header takes NAME=VALUE, not {text!r}")
    return name, value.encode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class _Lines:
    """How a line is taken apart."""

    separator: bytes | None
    null: bytes | None

    def record(self, line: bytes) -> tuple[bytes | None, bytes | None]:
        """Key and value.

        Raises:
            ValueError: it has no separator.
        """
        key: bytes | None = None
        value: bytes | None = line
        if self.separator is not None:
            before, found, after = line.partition(self.separator)
            if not found:
                raise ValueError("there is no key separator in it")
            key, value = before, after
        if self.null is not None:
            key = None if key == self.null else key
            value = None if value == self.null else value
        return key, value


class _Produce:
    """One run of the command.

    Attributes:
        delivered: records that were acknowledged.
        failed: lines that were not delivered.
    """

    def __init__(
        self,
        producer: Producer,
        out: Output,
        topic: str,
        partition: int | None,
        headers: list[tuple[str, bytes]],
        lines: _Lines,
        *,
        show_offsets: bool,
    ) -> None:
        self._producer = producer
        self._out = out
        self._topic = topic
        self._partition = partition
        self._headers = headers or None
        self._lines = lines
        self._show_offsets = show_offsets
        self._pending: deque[tuple[int, int, Delivery]] = deque()
        self._started: float | None = None
        self._seconds = 0.0
        self._interrupted = True
        self._broken: OutputClosed | None = None
        self.delivered = 0
        self.failed = 0
        self._bytes = 0

    async def __call__(self) -> None:
        from aiokq.core.errors import UnknownTopicOrPartition

        producer = self._producer
        await producer.start()
        try:
            # Before the first line, so that a wrong topic is one error and not one per line.
            there = await producer.partitions_for(self._topic)
            if self._partition is not None and self._partition not in there:
                raise UnknownTopicOrPartition(
                    f"{self._topic} has no partition {self._partition}: it has 0 to {max(there)}"
                )
            self._started = time.monotonic()
            number = 0
            async for lines in read_lines(producer.settings.max_request_size):
                for line in lines:
                    number += 1
                    await self._accept(number, line)
                if self._pending:
                    # Nothing may be typed for a while: tell of these when they are through.
                    self._pending[-1][2].add_done_callback(self._answered)
                if self._broken is not None:
                    raise self._broken
            await self._finish()
            self._interrupted = False
        finally:
            # Interrupted or failed: what was accepted has its chance, and is accounted for.
            await producer.close(DRAIN)
            self._settle()
            if self._started is not None:
                self._seconds = time.monotonic() - self._started

    def print_summary(self) -> None:
        """What was delivered, if the topic was ever reached."""
        if self._started is None:
            return
        if self.failed > COMPLAINTS:
            self._out.note(f"aiokq: and {self.failed - COMPLAINTS} more lines failed")
        if self._out.as_json:
            self._out.json_line(
                {
                    "topic": self._topic,
                    "delivered": self.delivered,
                    "failed": self.failed,
                    "bytes": self._bytes,
                    "seconds": round(self._seconds, 3),
                    "interrupted": self._interrupted,
                }
            )
        else:
            failed = f", {self.failed} failed" if self.failed else ""
            plural = "" if self.delivered == 1 else "s"
            self._out.line(
                f"{self.delivered} record{plural} ({self._bytes} bytes) delivered to "
                f"{self._topic} in {self._seconds:.2f} s{failed}"
            )
        self._out.flush()

    async def _accept(self, number: int, line: bytes) -> None:
        from aiokq.core.errors import RecordTooLarge

        try:
            key, value = self._lines.record(line)
            delivery = await self._producer.enqueue(
                self._topic, value, key, self._partition, None, self._headers
            )
        except ValueError as error:
            self._fail(number, str(error))
        except RecordTooLarge as error:
            self._fail(number, explain(error))
        else:
            self._pending.append((number, len(key or b"") + len(value or b""), delivery))

    def _answered(self, _: object) -> None:
        """The last record of a portion has its answer. Context: a callback of the loop."""
        try:
            self._settle()
            self._out.flush()
        except OutputClosed as error:
            self._broken = error  # raised with the next portion, where somebody catches it

    async def _finish(self) -> None:
        """Until the last record has its answer, telling of each as it comes."""
        from aiokq.core.errors import DeliveryFailed

        try:
            await self._producer.flush()
        except DeliveryFailed:
            pass  # each of its records is told of by itself
        self._settle()

    def _settle(self) -> None:
        """Account for the records whose answer has come, in the order of their lines."""
        pending = self._pending
        while pending and pending[0][2].done():
            number, size, delivery = pending.popleft()
            error = delivery.exception()
            if error is not None:
                self._fail(number, _text(error))
                continue
            self.delivered += 1
            self._bytes += size
            if self._show_offsets:
                self._print_offset(delivery)

    def _print_offset(self, delivery: Delivery) -> None:
        metadata = delivery.result()
        if self._out.as_json:
            self._out.json_line(
                {
                    "topic": metadata.topic,
                    "partition": metadata.partition,
                    "offset": metadata.offset,
                    "timestamp_ms": metadata.timestamp_ms,
                }
            )
        else:
            self._out.line(f"{metadata.topic}-{metadata.partition}@{metadata.offset}")

    def _fail(self, number: int, reason: str) -> None:
        self.failed += 1
        if self.failed <= COMPLAINTS:
            self._out.note(f"aiokq: line {number}: {reason}")


def _text(error: BaseException) -> str:
    from aiokq.core.errors import KafkaError

    return explain(error) if isinstance(error, KafkaError) else repr(error)
