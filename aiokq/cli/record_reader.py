"""RecordReader: one run of `aiokq consume`, from the lookup of partitions to the last record."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from aiokq.cli.output import Output
from aiokq.cli.record_options import ReadOptions
from aiokq.cli.start_positions import start_offsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokq.client.cluster import Cluster
    from aiokq.consumer.consumer import Consumer
    from aiokq.consumer.settings import ConsumerSettings
    from aiokq.core.errors import RequestTimeout
    from aiokq.core.types import TopicPartition
    from aiokq.fastpath.consume import Record

__all__ = ["RecordReader"]

PORTION: Final = 500
"""Maximum number of records that are taken from the consumer and printed at a time."""

GLANCE: Final = 0.2
"""Maximum number of seconds between two checks whether the end was reached.

It is not enough to wait for records: the position also moves past transaction markers and removed
records, which do not wake the reader.
"""


class RecordReader:
    """Reads and prints the records that the options select.

    Args:
        cluster: a cluster that is not started; the call starts and closes it.
        settings: settings of the consumer, without settings of the cluster.
        line: function that returns the bytes to print for a record, with a line feed.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        wanted: ReadOptions,
        out: Output,
        line: Callable[[Record], bytes],
    ) -> None:
        self._cluster = cluster
        # By default, if retention deletes records before they are read, reading continues after the
        # deleted records.
        explicit = "auto_offset_reset" in settings.explicit
        self._settings = (
            settings if explicit else settings.with_overrides(auto_offset_reset="earliest")
        )
        if wanted.group is not None and wanted.start == "end":
            self._settings = settings.with_overrides(auto_offset_reset="latest")
        self._wanted = wanted
        self._out = out
        self._line = line
        self._patience = cluster.settings.default_api_timeout
        self._printed = 0
        self._leaderless: set[TopicPartition] = set()

    async def __call__(self) -> None:
        wanted = self._wanted
        async with self._cluster:
            partitions = await self._partitions()
            if wanted.group is not None:
                async with self._cluster.consumer(
                    *wanted.topics, settings=self._settings
                ) as member:
                    await self._follow(member)
                return
            # A subscription includes partitions that are added later; an assignment does not.
            subscribes = wanted.follow and not wanted.partitions
            consumer = self._cluster.consumer(
                *(wanted.topics if subscribes else ()), settings=self._settings
            )
            async with consumer:
                if subscribes:
                    await self._cluster.refresh(*wanted.topics)
                    partitions = sorted(consumer.assignment() | set(partitions))
                else:
                    consumer.assign(partitions)
                if wanted.follow:
                    await self._start_at_possible_offsets(consumer, partitions)
                    await self._follow(consumer)
                else:
                    await self._until_end(consumer, partitions)

    async def _partitions(self) -> list[TopicPartition]:
        """Return all partitions to read.

        The admin client looks up the partitions, because a consumer would wait for missing topics.
        """
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
                    f"there is no topic {name!r}; `aiokq topics list` shows the topics"
                )
            if topic.error is not None:
                raise topic.error
            there = {p.partition for p in topic.partitions}
            if missing := sorted(wanted.partitions - there):
                raise UnknownTopicOrPartition(
                    f"{name} has no partition {missing[0]}: it has 0 to {max(there, default=0)}"
                )
            found += [TopicPartition(name, n) for n in sorted(wanted.partitions or there)]
            self._leaderless |= {
                TopicPartition(name, p.partition) for p in topic.partitions if p.leader < 0
            }
        return found

    def _moved(self, tp: TopicPartition, offset: int, first: int, end: int) -> None:
        self._out.note(
            f"aiokq consume: {tp} has the offsets {first} to {end - 1}: reading from {offset}"
            if end > first
            else f"aiokq consume: {tp} is empty: reading from {offset}"
        )

    async def _follow(self, consumer: Consumer) -> None:
        while not self._done:
            found = await consumer.getmany(timeout=60.0, max_records=self._portion)
            for records in found.values():
                self._print(records)
            self._out.flush()

    async def _start(
        self, consumer: Consumer, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Seek to the requested start in each partition; return the start offsets."""
        starts = await start_offsets(consumer, partitions, self._wanted.start, self._moved)
        for tp, offset in starts.items():
            consumer.seek(tp, offset)
        return starts

    async def _start_at_possible_offsets(
        self, consumer: Consumer, partitions: list[TopicPartition]
    ) -> None:
        """Seek to the start; at "beginning" or "end", do not wait for partitions without a leader.

        The consumer then seeks in these partitions as soon as they have a leader.
        """
        from aiokq.core.errors import RequestTimeout

        start = self._wanted.start
        led, rest = self._by_leader(partitions)
        if start not in ("beginning", "end"):
            # The start offset is requested from the leader, so wait for the leaders.
            led, rest = partitions, []
        await self._start(consumer, led)
        if rest:
            seek = consumer.seek_to_beginning if start == "beginning" else consumer.seek_to_end
            with contextlib.suppress(RequestTimeout):
                await seek(*rest, timeout=0.0)

    def _by_leader(
        self, partitions: list[TopicPartition]
    ) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Return partitions with and without a leader; print a note if some have no leader."""
        rest = [tp for tp in partitions if tp in self._leaderless]
        if rest:
            self._out.note(
                f"aiokq consume: no broker leads {', '.join(map(str, rest))} now (offline, or "
                "electing a leader): waiting for a leader"
            )
        return [tp for tp in partitions if tp not in self._leaderless], rest

    async def _until_end(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Print all records of partitions with a leader before waiting for the other partitions."""
        from aiokq.core.errors import LeaderNotAvailable, RequestTimeout

        for some in self._by_leader(partitions):
            if not some or self._done:
                continue
            consumer.assign(some)
            try:
                starts = await self._start(consumer, some)
            except RequestTimeout as error:
                if not isinstance(error.__cause__, LeaderNotAvailable):
                    raise
                which = [tp for tp in some if tp == error.__cause__.topic_partition]
                raise _offline((which or some)[0], self._patience) from None
            await self._read_to_ends(consumer, starts)

    async def _read_to_ends(self, consumer: Consumer, starts: dict[TopicPartition, int]) -> None:
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
            # A consumer waits for brokers without a limit, but --until-end needs a limit.
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


def _offline(tp: TopicPartition, seconds: float) -> RequestTimeout:
    """Return the error for a partition without a leader."""
    from aiokq.core.errors import RequestTimeout

    return RequestTimeout(
        f"nothing of {tp} was read, because the partition had no leader for {seconds:g} s "
        f"(default_api_timeout_ms): `aiokq topics describe {tp.topic}` shows the offline "
        "replicas, and the logs of their brokers the reason"
    )


def _stalled(consumer: Consumer, tp: TopicPartition, seconds: float) -> RequestTimeout:
    """Return the error for a partition whose remaining records do not arrive."""
    from aiokq.core.errors import RequestTimeout

    health = consumer.health()
    of_tp = health.partitions[tp]
    of_broker = None if of_tp.node is None else health.brokers.get(of_tp.node)
    reason = of_tp.error or (of_broker.error if of_broker else None) or f"it is {of_tp.state}"
    return RequestTimeout(
        f"no records of {tp} arrived for {seconds:g} s (default_api_timeout_ms) before its end "
        f"was reached: {reason}"
    )
