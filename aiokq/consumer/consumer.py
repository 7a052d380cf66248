"""Consumer: the public face; subscriptions in, records out.

What is behind it, fetch_pipeline.py ties together.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVar

from aiokq.cluster.constructor_settings import standalone_settings
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.loop_binding import LoopBinding, refuse_pickling, warn_unclosed
from aiokq.consumer.batch import RecordBatch
from aiokq.consumer.cluster_queries import ClusterQueries
from aiokq.consumer.consumer_coordinator import ConsumerCoordinator
from aiokq.consumer.fetch_pipeline import FetchPipeline
from aiokq.consumer.health import ConsumerHealth
from aiokq.consumer.positions import PartitionState, Start
from aiokq.consumer.reader import BatchStream
from aiokq.consumer.streams import Stream
from aiokq.consumer.subscription import Mode, Partition, Subscription, checked_partition
from aiokq.consumer.values import ConsumerValues
from aiokq.core import limits
from aiokq.core.errors import Closed, ConfigError, copy_error
from aiokq.core.supervisor import Supervisor, shielded
from aiokq.core.types import (
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicFilter,
    TopicPartition,
)
from aiokq.fastpath.consume import Record

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from aiokq.consumer.overrides import ConsumerOverrides
    from aiokq.consumer.rebalance_handlers import RebalanceHandler
    from aiokq.consumer.settings import ConsumerSettings
    from aiokq.core.environment import Environment

__all__ = ["Consumer", "Partition"]

logger = logging.getLogger("aiokq.consumer")

P = TypeVar("P", bound=tuple[str, int])
"""Keys of a Mapping are invariant: a dict of TopicPartitions is none of a union with tuples."""

CLOSE_TIMEOUT: Final = 5.0
"""Seconds that a consumer's tasks may take to end once they are cancelled."""

CLOSE_WITHIN: Final = 30.0
"""Seconds that finishing, committing and leaving the group may take, as in Java."""


class Consumer:
    """Reads records from Kafka.

    `async with Consumer("orders", bootstrap_servers="host:9092") as consumer:` opens a cluster of
    its own; `cluster.consumer("orders")` shares one. Then `async for record in consumer`.

    Records are fetched ahead while others are being worked on. A position moves where a record is
    handed over: a cancelled wait loses nothing, and after `break` another loop goes on with the
    next record. One task reads at a time, another is refused with a RuntimeError: while the first
    waits, or the first at the end of the chunk in hand; for several use `streams(n)`. `async for`
    ends when `close()` is called meanwhile.

    An error about one partition is raised once, and the others go on when reading is taken up
    again: where it cannot mend itself, as with a corrupt batch, that partition waits for `seek()`
    (`position()` tells where it stands). What a deserializer raises counts as its record, handed
    over and in work: reading goes on behind it. The error has the record as it was received, as
    `record`. A topic that is subscribed to and does not exist is waited
    for, and logged; a partition that was assigned and does not exist is raised as
    `UnknownTopicOrPartition` each `default_api_timeout_ms`.

    With a `group_id` the members of the group share the partitions, and it keeps the offsets:
    reading goes on where the group committed. A rebalance gives up only what is taken away. What is
    being worked on is finished first, then committed, then `on_revoked` is called, and only then
    another member gets the partition.

    Args:
        topics: to subscribe to, or one TopicFilter; `subscribe` and `assign` come later otherwise.
        settings: to start from; defaults if not given.
        on_assigned: called with partitions that the group gave, before any record of them is handed
            over; a seek() in it counts.
        on_revoked: called with those that are given up; a commit() in it works.
        on_lost: called with those that were lost, when another member may own them already;
            `on_revoked` if not given. Handlers may be coroutine functions, and have a third of the
            rebalance timeout. What they raise is raised to the reader.
        **overrides: single settings, by Kafka's names in snake_case.

    Raises:
        ConfigError: a setting is unknown, out of range, or contradicts another; an address is
            given where a topic belongs.
    """

    def __init__(
        self,
        *topics: str | TopicFilter,
        settings: ConsumerSettings | None = None,
        on_assigned: RebalanceHandler | None = None,
        on_revoked: RebalanceHandler | None = None,
        on_lost: RebalanceHandler | None = None,
        _values: ConsumerValues | None = None,
        _engine: ClusterEngine | None = None,
        _environment: Environment | None = None,
        **overrides: Unpack[ConsumerOverrides],
    ) -> None:
        self._settings = _values or standalone_settings(ConsumerValues, settings, overrides)
        self._subscription = Subscription()
        if topics:
            self._subscription.subscribe(topics, None)
        self._owns_engine = _engine is None
        self._engine = _engine or ClusterEngine(self._settings, _environment)
        self._binding = LoopBinding("this Consumer")
        self._supervisor = Supervisor(
            f"consumer {self._settings.client_id}", on_failure=self._on_internal_failure
        )
        self._group: ConsumerCoordinator | None = None
        if self._settings.group_id is not None:
            self._group = ConsumerCoordinator(
                self._settings, self._engine, self._subscription, self._supervisor
            )
        self._handle(on_assigned, on_revoked, on_lost)
        self._pipeline = FetchPipeline(
            self._settings,
            self._engine,
            self._subscription,
            self._supervisor,
            self._binding,
            None if self._group is None else self._group.stored,
            None if self._group is None else self._group.acks,
        )
        self._positions = self._pipeline.positions
        self._sources = self._pipeline.sources
        self._reader = self._pipeline.reader(self._sources.main)
        self._queries = ClusterQueries(self._settings, self._engine)
        self._started = False
        self._failure: Closed | None = None
        self._closing: asyncio.Future[None] | None = None
        self._leaving = False

    # -- lifecycle

    @property
    def settings(self) -> ConsumerSettings:
        """The settings in force."""
        return self._settings.settings

    async def start(self) -> None:
        """Bind to the running loop and wait for the first metadata, of the cluster and the topics.

        Topics that do not exist are not waited for. Harmless if started.

        Raises:
            BootstrapFailed: no bootstrap server answered within bootstrap_timeout_ms.
            Closed: it was closed.
            WrongLoop: it was started on another loop.
        """
        self._binding.bind()
        if self._closing is not None:
            raise self._pipeline.closed_error()
        if self._started:
            return
        if not self._owns_engine:
            self._engine.bind()
        try:
            if self._owns_engine:
                await self._engine.start()
            # Closed meanwhile, the supervisor takes no start.
            await self._supervisor.start()
            self._started = True
            if self._group is None:
                self._pipeline.start()
            else:
                self._group.start(self._pipeline)
            if not self._subscription.empty:
                discovery = self._pipeline.discovery
                discovery.follow()
                await discovery.settled(self._settings.bootstrap_timeout_ms / 1000)
        except BaseException:
            await self.close()
            raise

    async def close(self, timeout: float = CLOSE_WITHIN) -> None:
        """End all reading, fetch sessions and connections. Harmless twice and concurrently.

        `async for` loops end; other calls that wait raise `Closed`. In a group records that other
        tasks work on are waited for, what is finished is committed, then the group is left; the
        record that this task had last counts as finished, unless an exception is being handled.
        With ``ack_mode="explicit"`` nothing is waited for: what is not acknowledged by now comes
        again. Cancelling it does not stop it. In a forked child it does nothing.

        Args:
            timeout: seconds that this may take, also if the coordinator is gone; a few more for
                tasks and sockets to end.
        """
        limits.seconds(timeout)
        if self._binding.forked:
            return
        self._binding.check_bound()
        if self._closing is not None:
            await asyncio.shield(self._closing)
            return
        self._closing = asyncio.get_running_loop().create_future()
        # Also in a `finally`, on the way of an exception out of the work.
        normal = sys.exc_info()[0] is None
        steps = self._shut_down(self._closing, timeout, normal, asyncio.current_task())
        await shielded(steps, name="close consumer")

    async def _shut_down(
        self,
        closing: asyncio.Future[None],
        timeout: float,
        normal: bool,
        by: asyncio.Task[Any] | None,
    ) -> None:
        # Each part is closed though one before it failed.
        async with AsyncExitStack() as stack:
            stack.callback(closing.set_result, None)
            if self._owns_engine:
                stack.push_async_callback(self._engine.close)
            stack.push_async_callback(self._supervisor.close, CLOSE_TIMEOUT)
            stack.push_async_callback(self._pipeline.close)
            stack.callback(self._queries.close)
            self._sources.close()
            if self._group is not None and self._started:
                stack.push_async_callback(self._group.disconnect)
                if self._failure is None:
                    # on_revoked is called, which may commit.
                    self._leaving = True
                    stack.callback(setattr, self, "_leaving", False)
                    await self._group.close(timeout, normal=normal, by=by)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()  # sees the exception, if there is one

    def __del__(self) -> None:
        if getattr(self, "_started", False) and self._closing is None and not self._binding.forked:
            warn_unclosed(self)

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self)

    def __repr__(self) -> str:
        state = "open" if self._started else "new"
        if self._closing is not None:
            state = "closed"
        return f"<Consumer {self._settings.client_id!r} {state}>"

    # -- reading

    def __aiter__(self) -> AsyncIterator[Record]:
        self._check_readable()
        return self._reader.stream()

    def __anext__(self) -> Awaitable[Record]:
        self._check_readable()
        return self._reader.next()

    async def getone(self, *partitions: Partition) -> Record:
        """The next record, of certain partitions if some are named.

        Raises:
            Closed: the consumer was closed.
            RuntimeError: another task is reading.
            KafkaError: what went wrong with a partition; raised once, then the others go on.
        """
        self._check_readable()
        return await self._reader.one(self._assigned_of(partitions))

    async def getmany(
        self,
        *partitions: Partition,
        timeout: float = 0.0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[Record]]:
        """What was fetched, by partition and in order; {} if there is nothing.

        Args:
            partitions: only of these; of all if none is named.
            timeout: seconds to wait for the first record.
            max_records: at most so many; default `max_poll_records`.

        Raises:
            Closed: the consumer was closed.
            RuntimeError: another task is reading.
            KafkaError: as `getone`.
        """
        self._check_readable()
        limits.seconds(timeout)
        limit = self._settings.max_poll_records
        if max_records is not None:
            limit = limits.count(max_records, "max_records", error=ConfigError)
        return await self._reader.many(self._assigned_of(partitions), timeout, limit)

    def batches(self) -> BatchStream:
        """Records in the portions they were fetched in, for `async for batch in`.

        A batch has `topic`, `partition`, `len()`, `next_offset` and `to_arrow(columns)`, and is
        iterated for its records. It holds at most what one fetch brings of a partition
        (`max_partition_fetch_bytes`, or one batch of the log if that is larger); the position moves
        behind it when it is handed over. Where reading it stops at an error it counts up to there,
        and the next batch is its rest, unless the same batch is read on.

        Raises (each step): as `getone`.
        """
        self._check_readable()
        return BatchStream(self._reader)

    def streams(self, count: int) -> list[Stream]:
        """So many streams, for a task each; every partition is in exactly one of them.

        Until all of them are closed the consumer itself cannot be read.

        Raises:
            ConfigError: fewer than one; there are streams already.
        """
        self._check_open()
        sources = self._sources.divide(count)
        close = self._pipeline.close_stream
        return [Stream(self._pipeline.reader(source), close, self._binding) for source in sources]

    # -- what is read

    def subscribe(
        self,
        topics: Iterable[str | TopicFilter] | str | TopicFilter | re.Pattern[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        regex: str | None = None,
        on_assigned: RebalanceHandler | None = None,
        on_revoked: RebalanceHandler | None = None,
        on_lost: RebalanceHandler | None = None,
    ) -> None:
        """Read all partitions of these topics, in place of those subscribed to before.

        Topics need not exist yet. New partitions, and new topics that match, are read from their
        beginning when they come up (setting `new_partitions`).

        Args:
            topics: names, one TopicFilter, or a compiled regular expression as `pattern`.
            pattern: instead: a regular expression that has to match the whole name.
            regex: instead: one in RE2's syntax, which the broker evaluates; for the consumer
                protocol of groups (Java's SubscriptionPattern).
            on_assigned, on_revoked, on_lost: handlers in place of those given before, see the
                class; one that is left out stays.

        Raises:
            ConfigError: partitions are assigned; nothing or several kinds are subscribed to; an
                address is given where a topic belongs.
            InvalidTopic: a name that cannot be a topic's.
        """
        self._check_declaring()
        if regex is not None and (
            self._group is None or self._settings.group_protocol == "classic"
        ):
            raise ConfigError(
                "regex= is evaluated by the broker, in a group of the consumer protocol: set "
                "group_id and group_protocol='consumer', or use pattern="
            )
        self._handle(on_assigned, on_revoked, on_lost)
        self._subscription.subscribe(topics, pattern, regex)
        if self._started:
            self._pipeline.discovery.follow()

    def add_topic(self, topic: str, partition: int | None = None) -> None:
        """Read one more topic, or one more partition, beside what is read already.

        With a group, the topic's partitions are shared by its members. A single partition is not:
        this consumer reads it whatever the others do, no rebalance touches it, and its offsets are
        committed with the others (of several consumers that read it, the last commit counts).

        Raises:
            ConfigError: a pattern is subscribed to, or partitions were given to assign().
            InvalidTopic: a name that cannot be a topic's.
            TypeError: what is no partition.
        """
        self._check_declaring()
        if partition is None:
            self._subscription.add_topic(topic)
        else:
            self._subscription.add_partition((topic, partition))
        if self._started:
            self._pipeline.discovery.follow()

    def unsubscribe(self) -> None:
        """Read nothing any more."""
        self._check_declaring()
        self._subscription.clear()
        if self._started:
            self._pipeline.discovery.follow()

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to: named, or found by a pattern."""
        if self._subscription.mode is Mode.TOPICS:
            return self._subscription.names
        if self._subscription.topics_wanted:
            return frozenset(state.tp.topic for state in list(self._positions))
        return frozenset()

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Read exactly these partitions; positions of those read before are kept.

        Raises:
            ConfigError: topics are subscribed to.
            TypeError: what is no partition.
        """
        self._check_declaring()
        self._subscription.assign([checked_partition(tp) for tp in partitions])
        if self._started:
            self._pipeline.discovery.follow()

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return self._positions.partitions

    def pause(self, *partitions: Partition) -> None:
        """Hand over nothing of these until `resume`; what was fetched is kept."""
        for state in self._states(partitions):
            self._pipeline.pause(state)

    def resume(self, *partitions: Partition) -> None:
        """Hand over what comes of these again."""
        for state in self._states(partitions):
            self._pipeline.resume(state)

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(state.tp for state in list(self._positions) if state.paused)

    # -- positions

    def seek(self, partition: Partition, offset: int) -> None:
        """Go on with this offset.

        Raises:
            ConfigError: the partition is not assigned; a negative offset.
            TypeError: the offset is no number.
        """
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise TypeError(
                f"an offset is an int, not {offset!r}: seek_to_beginning() and seek_to_end() go to "
                "the ends of the log, offsets_for_times() finds the offset of a time"
            )
        limits.offset(offset, error=ConfigError)
        (state,) = self._states([partition])
        self._pipeline.seek(state, offset)

    async def seek_to_beginning(self, *partitions: Partition, timeout: float | None = None) -> None:
        """Go to the first record of these partitions, of all if none is named.

        Args:
            timeout: seconds for finding it; default `default_api_timeout_ms`. When it is over, or
                the call is cancelled, the partitions still go there as soon as they can.

        Raises:
            RequestTimeout, UnknownTopicOrPartition: as `position`.
            ConfigError: a partition is not assigned.
        """
        await self._seek_to(Start.EARLIEST, partitions, timeout)

    async def seek_to_end(self, *partitions: Partition, timeout: float | None = None) -> None:
        """Go behind the last record; with read_committed, behind the last that is decided.

        Args, Raises: as `seek_to_beginning`.
        """
        await self._seek_to(Start.LATEST, partitions, timeout)

    async def position(self, partition: Partition, *, timeout: float | None = None) -> int:
        """Offset of the next record to hand over; waits until it is known.

        Args:
            timeout: seconds; default `default_api_timeout_ms`.

        Raises:
            RequestTimeout: not in time; the cause says what was in the way.
            UnknownTopicOrPartition: the partition did not come to exist in time.
            NoOffsetForPartition: there is none, and auto_offset_reset is "none".
            ConfigError: the partition is not assigned.
        """
        limits.optional_seconds(timeout)
        (state,) = self._states([partition])
        await self._pipeline.await_positions([state], timeout)
        return state.position

    # -- what a group stores

    async def commit(
        self,
        offsets: Mapping[P, int | OffsetAndMetadata] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Store with the group where to go on, and wait until it is done.

        Args:
            offsets: of the next record to read, per partition. By default behind every record that
                was handed over, the one being worked on included; with ``ack_mode="explicit"`` up
                to the first that is not acknowledged.
            timeout: seconds; default `default_api_timeout_ms`.

        Raises:
            CommitFailed: some were refused; `errors` says why, `lost` which partitions are another
                member's now. A partition that the cluster has not had for 5 s is refused, where
                Java asks until its time is over; so are offsets of a topic that was deleted and
                created again meanwhile (`UnknownTopicId`).
            RequestTimeout: not in time; it may have worked.
            ConfigError: there is no `group_id`.
        """
        limits.optional_seconds(timeout)
        await self._in_group("commit()").commit(offsets, timeout)

    def commit_nowait(
        self, offsets: Mapping[P, int | OffsetAndMetadata] | None = None
    ) -> asyncio.Future[None]:
        """The same, begun and not waited for.

        A failure is logged, and raised where the result is awaited. Commits go out in the order in
        which they were begun.

        Raises:
            ConfigError: there is no `group_id`.
        """
        return self._in_group("commit_nowait()").begin_commit(offsets)

    def ack(self, item: Record | RecordBatch[Record]) -> None:
        """This record is finished, or this batch; in any order. Needs ``ack_mode="explicit"``.

        Records that were read by `batches()` are finished with their batch: `ack(batch)`; given one
        by one they have no effect, which is logged once. A batch whose reading stopped at an error
        is finished up to there. A record that did not deserialize is acknowledged by its error's
        `record`.

        What is committed is the offset of the first record of a partition that is not finished.
        Harmless twice, for a partition that is another member's by now, and for a topic that was
        deleted: if another one has its name, no record of that is finished by this.

        Raises:
            ConfigError: there is no `group_id`, or records are finished without it.
        """
        self._in_group("ack()").ack(item)

    async def committed(self, partition: Partition, *, timeout: float | None = None) -> int | None:
        """Where the group goes on in a partition; None if nothing is stored.

        Raises:
            RequestTimeout: not in time; the cause says what was in the way.
            BrokerError: refused, GroupAuthorization for one.
            ConfigError: there is no `group_id`.
        """
        limits.optional_seconds(timeout)
        tp = checked_partition(partition)
        found = await self._in_group("committed()").committed([tp], timeout)
        stored = found[tp]
        return None if stored is None else stored.offset

    async def seek_to_committed(self, *partitions: Partition, timeout: float | None = None) -> None:
        """Go to what the group has stored for these partitions, for all if none is named.

        Where it has nothing, `auto_offset_reset` says where to go.

        Args:
            timeout: seconds, as `seek_to_beginning`.

        Raises:
            RequestTimeout: as `position`.
            ConfigError: there is no `group_id`; a partition is not assigned.
        """
        self._in_group("seek_to_committed()")
        await self._seek_to(Start.COMMITTED, partitions, timeout)

    def group_metadata(self) -> GroupMetadata:
        """Who commits for the group now: for offsets in a producer's transaction.

        Raises:
            ConfigError: there is no `group_id`.
        """
        return self._group_of("group_metadata()").metadata

    # -- how far it is

    def lag(self, partition: Partition) -> int | None:
        """Records between the position and the end that this consumer sees, as of the last
        response of a broker; None before there is one."""
        (state,) = self._positions.named([partition])
        return state.lag(committed_only=self._settings.committed_only)

    def highwater(self, partition: Partition) -> int | None:
        """End of what is replicated, as of the last response; None before there is one."""
        (state,) = self._positions.named([partition])
        return state.high_watermark if state.high_watermark >= 0 else None

    def last_stable_offset(self, partition: Partition) -> int | None:
        """End of what is decided by transactions, as of the last response; None before."""
        (state,) = self._positions.named([partition])
        return state.last_stable_offset if state.last_stable_offset >= 0 else None

    def last_poll_timestamp(self, partition: Partition) -> int | None:
        """When a broker last answered about it, in ms since 1970; None if none did yet."""
        (state,) = self._positions.named([partition])
        return state.fetched_at_ms

    # -- what the cluster has

    async def topics(self, *, timeout: float | None = None) -> frozenset[str]:
        """Names of all topics that this client may see.

        Raises:
            RequestTimeout: no answer in time; the cause says why.
        """
        limits.optional_seconds(timeout)
        self._check_open()
        return await self._queries.topics(timeout)

    def partitions_for_topic(self, topic: str) -> frozenset[int] | None:
        """The partitions of a topic, which need not be subscribed to, as far as it is known.

        None if it is not known: then the cluster is asked for it, and a later call may know
        (`await cluster.refresh(topic)` waits for the answer).

        Raises:
            InvalidTopic: a name that cannot be a topic's.
        """
        self._check_open()
        return self._queries.partitions(topic)

    async def beginning_offsets(
        self, partitions: Iterable[Partition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Offset of the first record of each.

        Raises:
            RequestTimeout: not in time; the cause says what was in the way.
            UnknownTopicOrPartition: a topic did not come to exist in time; at once if it exists,
                and does not have the partition.
            KafkaError: of the first partition that has an error.
        """
        limits.optional_seconds(timeout)
        self._check_open()
        return await self._queries.ends(partitions, "earliest", timeout)

    async def end_offsets(
        self, partitions: Iterable[Partition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Offset behind the last record of each; with read_committed, the last that is decided.

        Raises: as `beginning_offsets`.
        """
        limits.optional_seconds(timeout)
        self._check_open()
        return await self._queries.ends(partitions, "latest", timeout)

    async def offsets_for_times(
        self, timestamps: Mapping[P, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time, for each partition; None where all are older.

        Args:
            timestamps: milliseconds since 1970.

        Raises: as `beginning_offsets`; ConfigError for what is no time.
        """
        limits.optional_seconds(timeout)
        self._check_open()
        return await self._queries.times(timestamps, timeout)

    def health(self) -> ConsumerHealth:
        """What is believed of the partitions and brokers right now."""
        works = self._started and self._closing is None and self._failure is None
        group = None
        if self._group is not None and self._started:
            group = self._group.health()
        return self._pipeline.health(works=works, group=group)

    # -- inside

    async def _seek_to(
        self, start: Start, partitions: Sequence[Partition], timeout: float | None
    ) -> None:
        limits.optional_seconds(timeout)
        self._check_open()
        states = self._states(partitions) if partitions else list(self._positions)
        for state in states:
            self._pipeline.reset(state, start)
        await self._pipeline.await_positions(states, timeout)

    def _states(self, partitions: Iterable[Partition]) -> list[PartitionState]:
        self._check_open()
        return self._positions.named(partitions)

    def _assigned_of(self, partitions: Sequence[Partition]) -> frozenset[TopicPartition]:
        return frozenset(state.tp for state in self._states(partitions)) if partitions else _NONE

    def _check_open(self) -> None:
        self._binding.check()
        if not self._started or (self._closing is not None and not self._leaving):
            raise self._pipeline.closed_error()
        if self._failure is not None:
            raise copy_error(self._failure)

    def _check_declaring(self) -> None:
        """As `_check_open`, but harmless before the start: it is then that this takes effect."""
        self._binding.check_bound()
        if self._started:
            self._check_open()
        elif self._closing is not None:
            raise self._pipeline.closed_error()

    def _check_readable(self) -> None:
        self._check_open()
        if self._sources.split:
            raise RuntimeError("this consumer is read by its streams: close them first")
        if self._group is not None:
            self._group.asked()
        if self._subscription.empty:
            raise ConfigError(
                "nothing is subscribed to: name topics in Consumer(...), or call subscribe() or "
                "assign()"
            )

    def _on_internal_failure(self, error: BaseException) -> None:
        if isinstance(error, Closed):
            failure = error  # the cluster has ended under it
        else:
            failure = Closed(f"the consumer failed: {error!r}")
            failure.__cause__ = error
        self._failure = failure
        self._pipeline.fail(failure)

    def _in_group(self, call: str) -> ConsumerCoordinator:
        self._check_open()
        return self._group_of(call)

    def _group_of(self, call: str) -> ConsumerCoordinator:
        if self._group is None:
            raise ConfigError(
                f"{call} needs a group that keeps the offsets: set group_id, or keep positions of "
                "your own, by position() and seek()"
            )
        return self._group

    def _handle(
        self,
        on_assigned: RebalanceHandler | None,
        on_revoked: RebalanceHandler | None,
        on_lost: RebalanceHandler | None,
    ) -> None:
        if self._group is not None:
            self._group.handlers.set(on_assigned, on_revoked, on_lost)
        elif not (on_assigned is None and on_revoked is None and on_lost is None):
            raise ConfigError(
                "on_assigned, on_revoked and on_lost are called in rebalances of a group: set "
                "group_id, or leave them out"
            )


_NONE: frozenset[TopicPartition] = frozenset()
