"""`aiokq consume`: print the records of topics."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.options import BootstrapServers, ConfigFile
from aiokq.cli.output import Output
from aiokq.cli.records import Format, Parts, formatter, unescaped
from aiokq.cli.session import Session
from aiokq.cli.starts import Start, parse_start, start_offsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokq.client.cluster import Cluster
    from aiokq.consumer.consumer import Consumer
    from aiokq.consumer.settings import ConsumerSettings
    from aiokq.core.errors import RequestTimeout
    from aiokq.core.types import TopicPartition
    from aiokq.fastpath import Record

__all__ = ["consume"]

PORTION = 500
"""Records that are printed before the position is looked at again."""

GLANCE = 0.2
"""Seconds after which a reader that waits looks whether the end was reached: offsets that hold
nothing to hand over (transaction markers, compacted records) move the position silently."""


def consume(
    ctx: typer.Context,
    topics: Annotated[
        list[str], typer.Argument(metavar="TOPIC", help="Names of topics.", show_default=False)
    ],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            "-f",
            metavar="START",
            help="Where to start: beginning, end, an offset, -N or a time, see above.",
        ),
    ] = "beginning",
    partitions: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", min=0, metavar="N", help="Only this partition; repeatable."
        ),
    ] = None,
    max_messages: Annotated[
        int | None,
        typer.Option("--max-messages", "-n", min=1, metavar="N", help="End after so many records."),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow/--until-end",
            help="Wait for more records, or end where each partition ended at the start.",
        ),
    ] = True,
    output_format: Annotated[
        Format,
        typer.Option(
            "--format",
            "-o",
            help="text escapes what is unprintable; json has everything; raw is the bytes.",
        ),
    ] = Format.TEXT,
    keys: Annotated[bool, typer.Option("--keys", "-k", help="Print keys (text, raw).")] = False,
    headers: Annotated[bool, typer.Option("--headers", help="Print headers (text).")] = False,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="Print timestamps, in UTC (text).")
    ] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Print topic, partition and offset (text).")
    ] = False,
    separator: Annotated[
        str,
        typer.Option(
            "--separator",
            metavar="TEXT",
            help="Between what is printed of a record (text, raw). Default: a tab.",
            show_default=False,
        ),
    ] = "\\t",
    committed: Annotated[
        bool,
        typer.Option(
            "--read-committed", help="Leave out records of open and aborted transactions."
        ),
    ] = False,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Print the records of topics.

    From the beginning, and on and on until Ctrl-C, unless told otherwise. In text, bytes that are
    no UTF-8 are printed as \\xNN and control characters are escaped.

    START is beginning, end, an offset, -N for the last N offsets of each partition, or a time:
    2026-01-31T12:00:00Z (local time without the Z), @MS for milliseconds since 1970, or PT1H for an
    hour ago.
    """
    session: Session = ctx.obj
    if partitions and len(set(topics)) > 1:
        raise typer.BadParameter("--partition goes with one topic: give only one")
    parts = Parts(keys, headers, timestamps, offsets, unescaped(separator))
    if output_format is Format.RAW and (headers or timestamps or offsets):
        raise typer.BadParameter(
            "raw prints values, and keys with --keys: for headers, timestamps and offsets use "
            "--format text or json"
        )
    wanted = _Wanted(
        topics=tuple(dict.fromkeys(topics)),
        partitions=frozenset(partitions or ()),
        start=parse_start(start, _now_ms(session)),
        limit=max_messages,
        follow=follow,
    )
    from aiokq.cli.settings import client_settings, own_settings
    from aiokq.cluster.settings import ClusterSettings
    from aiokq.consumer.settings import ConsumerSettings

    settings = client_settings(
        ConsumerSettings,
        bootstrap_servers,
        config,
        isolation_level="read_committed" if committed else None,
    )
    # Reading a topic must not create it, whatever the cluster allows.
    shared = client_settings(
        ClusterSettings, bootstrap_servers, config, allow_auto_create_topics=False
    )
    out = Output()
    run = _Consume(
        session.cluster(shared),
        own_settings(settings),
        wanted,
        out,
        formatter(output_format, parts),
    )
    session.run(run())


def _now_ms(session: Session) -> int:
    if session.environment is not None:
        return session.environment.clock.timestamp_ms()
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class _Wanted:
    """What to read, and when to end."""

    topics: tuple[str, ...]
    partitions: frozenset[int]
    start: Start
    limit: int | None
    follow: bool


class _Consume:
    """One run of the command."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        wanted: _Wanted,
        out: Output,
        line: Callable[[Record], bytes],
    ) -> None:
        self._cluster = cluster
        # Records that retention removes while we read are no reason to end.
        explicit = "auto_offset_reset" in settings.explicit
        self._settings = (
            settings if explicit else settings.with_overrides(auto_offset_reset="earliest")
        )
        self._wanted = wanted
        self._out = out
        self._line = line
        self._patience = cluster.settings.default_api_timeout
        self._printed = 0

    async def __call__(self) -> None:
        wanted = self._wanted
        async with self._cluster:
            partitions = await self._partitions()
            # Of a subscription new partitions are read as well; of an assignment not.
            subscribes = wanted.follow and not wanted.partitions
            consumer = self._cluster.consumer(
                *(wanted.topics if subscribes else ()), settings=self._settings
            )
            async with consumer:
                if subscribes:
                    for topic in wanted.topics:
                        await consumer.partitions_for_topic(topic)
                    partitions = sorted(consumer.assignment() | set(partitions))
                else:
                    consumer.assign(partitions)
                starts = await start_offsets(consumer, partitions, wanted.start, self._moved)
                for tp, offset in starts.items():
                    consumer.seek(tp, offset)
                if wanted.follow:
                    await self._follow(consumer)
                else:
                    await self._until_end(consumer, starts)

    async def _partitions(self) -> list[TopicPartition]:
        """All partitions to be read; asked at once, as a consumer would wait for the topic."""
        from aiokq.core.errors import UnknownTopicOrPartition
        from aiokq.core.types import TopicPartition

        wanted = self._wanted
        async with self._cluster.admin() as admin:
            described = await admin.describe_topics(wanted.topics)
        found = []
        for name in wanted.topics:
            topic = described[name]
            if isinstance(topic.error, UnknownTopicOrPartition):
                raise UnknownTopicOrPartition(
                    f"there is no topic {name!r}; `aiokq topics list` shows what there is"
                )
            if topic.error is not None:
                raise topic.error
            there = {p.partition for p in topic.partitions}
            if missing := sorted(wanted.partitions - there):
                raise UnknownTopicOrPartition(
                    f"{name} has no partition {missing[0]}: it has 0 to {max(there, default=0)}"
                )
            found += [TopicPartition(name, n) for n in sorted(wanted.partitions or there)]
        return found

    def _moved(self, tp: TopicPartition, offset: int, first: int, end: int) -> None:
        self._out.note(
            f"aiokq consume: {tp} has the offsets {first} to {end - 1}: it is read from {offset}"
            if end > first
            else f"aiokq consume: {tp} is empty: it is read from {offset}"
        )

    async def _follow(self, consumer: Consumer) -> None:
        while not self._done:
            found = await consumer.getmany(timeout=60.0, max_records=self._portion)
            for records in found.values():
                self._print(records)
            self._out.flush()

    async def _until_end(self, consumer: Consumer, starts: dict[TopicPartition, int]) -> None:
        ends = await consumer.end_offsets(starts)
        unfinished = {tp for tp, start in starts.items() if start < ends[tp]}
        consumer.pause(*(starts.keys() - unfinished))
        positions = dict(starts)
        loop = asyncio.get_running_loop()
        moved_at = loop.time()
        while unfinished and not self._done:
            found = await consumer.getmany(timeout=GLANCE, max_records=self._portion)
            for tp, records in found.items():
                self._print([record for record in records if record.offset < ends[tp]])
            self._out.flush()
            for tp in list(unfinished):
                position = await consumer.position(tp)
                if position != positions[tp]:
                    positions[tp], moved_at = position, loop.time()
                if position >= ends[tp]:
                    unfinished.remove(tp)
                    consumer.pause(tp)
            # A consumer waits for brokers without end; who asked for an end wants one.
            if unfinished and loop.time() - moved_at > self._patience:
                raise _stalled(consumer, min(unfinished), self._patience)

    @property
    def _done(self) -> bool:
        return self._wanted.limit is not None and self._printed >= self._wanted.limit

    @property
    def _portion(self) -> int:
        limit = self._wanted.limit
        return PORTION if limit is None else min(PORTION, limit - self._printed)

    def _print(self, records: list[Record]) -> None:
        self._printed += len(records)
        self._out.raw(b"".join(map(self._line, records)))


def _stalled(consumer: Consumer, tp: TopicPartition, seconds: float) -> RequestTimeout:
    """The error of a partition whose rest does not come, with what is known of it."""
    from aiokq.core.errors import RequestTimeout

    health = consumer.health()
    of_tp = health.partitions[tp]
    of_broker = None if of_tp.node is None else health.brokers.get(of_tp.node)
    reason = of_tp.error or (of_broker.error if of_broker else None) or f"it is {of_tp.state}"
    return RequestTimeout(
        f"nothing of {tp} came for {seconds:g} s, and it ends later: {reason} "
        "(default_api_timeout_ms)"
    )
