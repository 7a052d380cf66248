"""Consumer: the public class for reading records.

lifecycle.py creates, starts and closes the parts that the class uses.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self, TypeVar

from aiokq.cluster.constructor_settings import standalone_settings
from aiokq.cluster.loop_binding import refuse_pickling
from aiokq.cluster.partition_arguments import checked_partition
from aiokq.consumer.batch import RecordBatch
from aiokq.consumer.consumer_coordinator import ConsumerCoordinator
from aiokq.consumer.health import ConsumerHealth
from aiokq.consumer.lifecycle import CLOSE_WITHIN, ConsumerLifecycle
from aiokq.consumer.positions import PartitionState, Start
from aiokq.consumer.reader import BatchStream
from aiokq.consumer.streams import Stream
from aiokq.consumer.subscription import Mode, Partition, Subscription
from aiokq.consumer.values import ConsumerValues
from aiokq.core import limits
from aiokq.core.errors import ConfigError
from aiokq.core.supervisor import warn_unclosed
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

    from aiokq.cluster.engine import ClusterEngine
    from aiokq.consumer.overrides import ConsumerOverrides
    from aiokq.consumer.rebalance_handlers import RebalanceHandler
    from aiokq.consumer.settings import ConsumerSettings
    from aiokq.core.environment import Environment

__all__ = ["Consumer", "Partition"]

logger = logging.getLogger("aiokq.consumer")

P = TypeVar("P", bound=tuple[str, int])
"""The type of partition keys; a type variable, because the key type of a Mapping is invariant."""


class Consumer:
    """Reads records from Kafka.

    `async with Consumer("orders", bootstrap_servers="host:9092") as consumer:` connects to the
    cluster; `cluster.consumer("orders")` shares an existing Cluster. Read with
    `async for record in consumer`.

    Records are fetched in advance while the application processes earlier records. The position
    moves when a record is delivered: a cancelled wait loses nothing, and after `break` another loop
    continues with the next record. Only one task may read at a time; to read in several tasks, use
    `streams(n)`. If a second task reads while the first task waits for a record, the second task
    gets a RuntimeError. If a second task begins an `async for` loop while the first task processes
    a record of its own loop, the first task gets the error after its current chunk of fetched
    records. `async for` ends when `close()` is called.

    An error of one partition is raised once; reading then continues with the other partitions. If
    the next batch of a partition cannot be read, for example because it is corrupt, the partition
    waits for `seek()`; `position()` returns the offset at which reading stopped. After an
    authorization error, the consumer tries again. A record for which a deserializer raises an error
    counts as delivered, and reading continues after it; the exception has the record as received in
    its attribute `record`. If a subscribed topic does not exist, the consumer logs a warning and
    waits for the topic. For an assigned partition that does not exist, `UnknownTopicOrPartition` is
    raised every `default_api_timeout_ms`.

    With a `group_id` the partitions are shared among the members of the group, and reading starts
    at the group's committed offsets. In a rebalance, an eager assignor (the default) revokes all
    partitions of a member. A cooperative assignor and the consumer protocol revoke only the
    partitions that the new assignment lacks. Before another member gets the partitions, the
    consumer waits for the records that are being processed, commits the offsets
    (`enable_auto_commit`), and calls `on_revoked`.

    The handlers `on_assigned`, `on_revoked` and `on_lost` may be coroutine functions. Each call may
    take at most a third of the rebalance timeout. Exceptions of handlers are raised to the reader.

    `subscribe`, `add_topic`, `assign` and `unsubscribe` may be called before `start`. Methods that
    read, pause, seek, commit or query the cluster raise `Closed` before `start` and after `close`,
    and `WrongLoop` on another event loop.

    Args:
        topics: topics to subscribe to, or one TopicFilter; without them call `subscribe` or
            `assign`.
        settings: a settings object to start from; defaults if not given.
        on_assigned: called with newly assigned partitions before any of their records is delivered;
            it may call seek().
        on_revoked: called with partitions that are revoked; it may call commit().
        on_lost: called with partitions that were lost, which another member may own already. If it
            is not given, `on_revoked` is called.
        **overrides: single settings, by Kafka's names in snake_case.

    Raises:
        ConfigError: a setting is unknown, out of range, or contradicts another; an address is given
            instead of a topic; a handler is given without a `group_id`.
        InvalidTopic: a name is not valid for a topic.
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
        self._lifecycle = ConsumerLifecycle(
            self._settings, self._subscription, _engine, _environment
        )
        self._engine = self._lifecycle.engine
        self._group = self._lifecycle.group
        self._pipeline = self._lifecycle.pipeline
        self._positions = self._pipeline.positions
        self._sources = self._pipeline.sources
        self._reader = self._pipeline.reader(self._sources.main)
        self._queries = self._lifecycle.queries
        self._handle(on_assigned, on_revoked, on_lost)

    @property
    def settings(self) -> ConsumerSettings:
        """The settings in effect."""
        return self._settings.settings

    async def start(self) -> None:
        """Bind to the running loop, and wait for the first metadata of the cluster and the topics.

        Does not wait for topics that do not exist. Does nothing if the consumer is already started.

        Raises:
            BootstrapFailed: no bootstrap server responded within bootstrap_timeout_ms.
            ConfigError: `bootstrap_servers` is not set.
            Closed: the consumer was closed, or the shared Cluster is closed or not started.
            WrongLoop: the consumer was started on another loop.
        """
        await self._lifecycle.start()

    async def close(self, timeout: float = CLOSE_WITHIN) -> None:
        """End reading, and close fetch sessions and connections.

        May be called again and concurrently.

        `async for` loops end; other waiting calls raise `Closed`. In a group, `close` waits for the
        records that other tasks are processing, commits finished records (`enable_auto_commit`),
        and leaves the group. The last record of the calling task counts as finished, unless an
        exception is being handled. With ``ack_mode="explicit"``, `close` does not wait for
        records: unacknowledged records are delivered again. Cancellation does not stop closing.
        In a forked child, `close` does nothing.

        Args:
            timeout: the maximum seconds to wait for records, commit and leave the group. Tasks and
                sockets may need a few more seconds to end.

        Raises:
            WrongLoop: the consumer was started on another loop.
        """
        limits.seconds(timeout)
        await self._lifecycle.close(timeout)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()  # close() reads the current exception from sys.exc_info()

    def __del__(self) -> None:
        lifecycle: ConsumerLifecycle | None = getattr(self, "_lifecycle", None)
        if lifecycle is not None and lifecycle.open and not lifecycle.binding.forked:
            warn_unclosed(self)

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self)

    def __repr__(self) -> str:
        state = "open" if self._lifecycle.started else "new"
        if self._lifecycle.closed:
            state = "closed"
        return f"<Consumer {self._settings.client_id!r} {state}>"

    def __aiter__(self) -> AsyncIterator[Record]:
        self._check_readable()
        return self._reader.stream()

    def __anext__(self) -> Awaitable[Record]:
        self._check_readable()
        return self._reader.next()

    async def getone(self, *partitions: Partition) -> Record:
        """Return the next record; with `partitions`, the next record of these partitions.

        Raises:
            Closed: the consumer was closed.
            RuntimeError: another task is reading, or streams of this consumer are open.
            ConfigError: nothing is subscribed to, or a given partition is not assigned.
            KafkaError: a partition cannot be read (raised once, then other partitions are read), or
                the membership in the group has ended.
            Exception: a deserializer or a rebalance handler raised this error.
        """
        self._check_readable()
        return await self._reader.one(self._assigned_of(partitions))

    async def getmany(
        self,
        *partitions: Partition,
        timeout: float = 0.0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[Record]]:
        """Return buffered records by partition, in offset order; {} if none arrives in time.

        Args:
            partitions: the partitions to read; all by default.
            timeout: seconds to wait for the first record.
            max_records: the maximum number of records; default `max_poll_records`.

        Raises:
            Closed: the consumer was closed.
            RuntimeError: another task is reading, or streams of this consumer are open.
            ConfigError: nothing is subscribed to, or a given partition is not assigned;
                `max_records` is out of range.
            KafkaError: a partition cannot be read (raised once, then other partitions are read), or
                the membership in the group has ended.
            Exception: a deserializer or a rebalance handler raised this error.
        """
        self._check_readable()
        limits.seconds(timeout)
        limit = self._settings.max_poll_records
        if max_records is not None:
            limit = limits.count(max_records, "max_records", error=ConfigError)
        return await self._reader.many(self._assigned_of(partitions), timeout, limit)

    def batches(self) -> BatchStream:
        """Return an iterator over batches of records, for `async for`.

        A batch has `topic`, `partition`, `len()`, `next_offset` and `to_arrow(columns)`; iterate
        over it for its records. It contains at most the data that one fetch returns for a partition
        (`max_partition_fetch_bytes`, or one batch of the log if that is larger). The position moves
        to the end of a batch when the batch is delivered. If an error stops the reading of a batch,
        the position is the `next_offset` of the batch, which is after the records that count as
        delivered. The next batches then contain the remaining records, unless the application
        continues to read the same batch.

        Each step raises the errors of `getone`. After `close()`, the loop ends instead of raising
        `Closed`.

        Raises:
            Closed: the consumer was closed.
            RuntimeError: streams of this consumer are open.
            ConfigError: nothing is subscribed to.
        """
        self._check_readable()
        return BatchStream(self._reader)

    def streams(self, count: int) -> list[Stream]:
        """Return `count` streams, for one task each; every partition is in exactly one of them.

        The consumer itself cannot be read until all streams are closed.

        Raises:
            ConfigError: `count` is out of range; there are streams already.
        """
        self._lifecycle.check_open()
        sources = self._sources.divide(count)
        close = self._pipeline.close_stream
        return [
            Stream(self._pipeline.reader(source), close, self._lifecycle.binding)
            for source in sources
        ]

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
        """Subscribe to all partitions of these topics, and replace an earlier subscription.

        Topics need not exist yet. New partitions, and new topics that match, are read from their
        beginning, unless the setting `new_partitions` is "auto_offset_reset".

        Args:
            topics: names, one TopicFilter, or a compiled regular expression as for `pattern`.
            pattern: a regular expression that must match the complete topic name; given instead of
                `topics`.
            regex: a regular expression in RE2's syntax, which the broker evaluates (Java's
                SubscriptionPattern); given instead of `topics`, in groups of the consumer protocol.
            on_assigned, on_revoked, on_lost: handlers that replace the earlier handlers; a handler
                that is not given is kept. See the class.

        Raises:
            ConfigError: partitions are assigned; no topic is given; names and patterns are given
                together; an address is given instead of a topic; a pattern cannot be compiled;
                `regex` is given without a group or with the classic protocol; a handler is given
                without a `group_id`.
            InvalidTopic: a name is not valid for a topic.
            TypeError: a topic, `regex` or a handler has the wrong type.
        """
        self._lifecycle.check_declaring()
        if regex is not None and (
            self._group is None or self._settings.group_protocol == "classic"
        ):
            raise ConfigError(
                "regex= is evaluated by the broker, in a group of the consumer protocol: set "
                "group_id and group_protocol='consumer', or use pattern="
            )
        self._handle(on_assigned, on_revoked, on_lost)
        self._subscription.subscribe(topics, pattern, regex)
        if self._lifecycle.started:
            self._pipeline.discovery.follow()

    def add_topic(self, topic: str, partition: int | None = None) -> None:
        """Read a topic, or a single partition, in addition to the current subscription.

        In a group, a topic's partitions are shared by the members. A single partition is not
        shared: this consumer reads it regardless of the other members, and no rebalance affects it.
        The offset of a single partition is committed with the other offsets; if several consumers
        read the partition, the last commit applies.

        Raises:
            ConfigError: an address is given instead of a topic; or `partition` is not given, and a
                pattern is subscribed to or partitions were passed to assign().
            InvalidTopic: the name is not valid for a topic.
            TypeError: the topic is not a str, or the partition is not an int.
            ValueError: the partition is out of range.
        """
        self._lifecycle.check_declaring()
        if partition is None:
            self._subscription.add_topic(topic)
        else:
            self._subscription.add_partition((topic, partition))
        if self._lifecycle.started:
            self._pipeline.discovery.follow()

    def unsubscribe(self) -> None:
        """End the subscription or assignment; a member leaves its group."""
        self._lifecycle.check_declaring()
        self._subscription.clear()
        if self._lifecycle.started:
            self._pipeline.discovery.follow()

    def subscription(self) -> frozenset[str]:
        """Return the topics subscribed to by name; with a pattern, the topics of the assignment."""
        if self._subscription.mode is Mode.TOPICS:
            return self._subscription.names
        if self._subscription.topics_wanted:
            return frozenset(state.tp.topic for state in list(self._positions))
        return frozenset()

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Read exactly these partitions; partitions that were assigned before keep their positions.

        Raises:
            ConfigError: topics are subscribed to, or an address is given instead of a topic.
            TypeError: a value is not a partition.
            ValueError: a partition number is out of range.
            InvalidTopic: a name is not valid for a topic.
        """
        self._lifecycle.check_declaring()
        self._subscription.assign([checked_partition(tp) for tp in partitions])
        if self._lifecycle.started:
            self._pipeline.discovery.follow()

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions, including paused partitions."""
        return self._positions.partitions

    def pause(self, *partitions: Partition) -> None:
        """Stop delivering records of these partitions until `resume`; fetched records are kept."""
        for state in self._states(partitions):
            self._pipeline.pause(state)

    def resume(self, *partitions: Partition) -> None:
        """Deliver records of these partitions again."""
        for state in self._states(partitions):
            self._pipeline.resume(state)

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return frozenset(state.tp for state in list(self._positions) if state.paused)

    def seek(self, partition: Partition, offset: int) -> None:
        """Set the position of a partition.

        Raises:
            ConfigError: the partition is not assigned; the offset is out of range.
            TypeError: the offset is not an int.
        """
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise TypeError(
                f"an offset must be an int, not {offset!r}: seek_to_beginning() and seek_to_end() "
                "go to the start and the end of the log, offsets_for_times() finds the offset of "
                "a time"
            )
        limits.offset(offset, error=ConfigError)
        (state,) = self._states([partition])
        self._pipeline.seek(state, offset)

    async def seek_to_beginning(self, *partitions: Partition, timeout: float | None = None) -> None:
        """Set the positions of these partitions (all by default) to the log start offset.

        Args:
            timeout: seconds; default `default_api_timeout_ms`. A timeout or a cancellation ends
                only the wait: the positions are still set as soon as possible.

        Raises:
            RequestTimeout: a position was not found in time; the cause says why.
            UnknownTopicOrPartition: a partition did not exist within the timeout.
            KafkaError: the lookup failed with an error that is not retriable.
            ConfigError: a partition is not assigned.
        """
        await self._seek_to(Start.EARLIEST, partitions, timeout)

    async def seek_to_end(self, *partitions: Partition, timeout: float | None = None) -> None:
        """Set the positions to the high watermark; with read_committed, to the last stable offset.

        The arguments and errors are those of `seek_to_beginning`.
        """
        await self._seek_to(Start.LATEST, partitions, timeout)

    async def position(self, partition: Partition, *, timeout: float | None = None) -> int:
        """Return the offset of the next record to deliver; wait until it is known.

        Args:
            timeout: seconds; default `default_api_timeout_ms`.

        Raises:
            RequestTimeout: the position was not found in time; the cause says why.
            UnknownTopicOrPartition: the partition did not exist within the timeout.
            NoOffsetForPartition: there is no committed offset, and auto_offset_reset is "none".
            KafkaError: the lookup failed with an error that is not retriable.
            ConfigError: the partition is not assigned.
        """
        limits.optional_seconds(timeout)
        (state,) = self._states([partition])
        await self._pipeline.await_positions([state], timeout)
        return state.settled_position

    async def commit(
        self,
        offsets: Mapping[P, int | OffsetAndMetadata] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets, and wait for the result.

        Args:
            offsets: for each partition, the offset of the next record to consume. By default, the
                offsets after all delivered records, including a record that is being processed;
                with ``ack_mode="explicit"``, the offsets of the first unacknowledged records.
            timeout: seconds; default `default_api_timeout_ms`.

        Raises:
            CommitFailed: some offsets were refused. Its attribute `errors` says why, and `lost`
                names the partitions that another member may own now. Offsets are also refused for a
                partition that has been missing from the cluster for 5 s (Java retries until its
                timeout), and for a topic that was deleted and created again (`UnknownTopicId`).
            RequestTimeout: no result in time; the commit may have succeeded.
            KafkaError: the request failed with an error that is not retriable.
            ConfigError: there is no `group_id`; an offset is out of range.
        """
        limits.optional_seconds(timeout)
        await self._in_group("commit()").commit(offsets, timeout)

    def commit_nowait(
        self, offsets: Mapping[P, int | OffsetAndMetadata] | None = None
    ) -> asyncio.Future[None]:
        """Commit offsets in the background.

        An error of the commit is raised when the returned future is awaited. Commits are sent in
        the order of the calls.

        Raises:
            ConfigError: there is no `group_id`; an offset is out of range.
        """
        return self._in_group("commit_nowait()").begin_commit(offsets)

    def ack(self, item: Record | RecordBatch[Record]) -> None:
        """Acknowledge a record or a batch, in any order. Needs ``ack_mode="explicit"``.

        Records of `batches()` are acknowledged with their batch, `ack(batch)`. Acknowledging a
        single record of a batch has no effect, and logs a warning once. If reading a batch stopped
        at an error, the batch is acknowledged up to its `next_offset`. For a record that could not
        be deserialized, pass the attribute `record` of the exception.

        A commit without explicit offsets ends at the first unacknowledged record of each partition.
        Acknowledging has no effect if the record was acknowledged before, if its partition was
        revoked or lost, or if its topic was deleted, even if the topic was created again.

        Raises:
            ConfigError: there is no `group_id`, or `ack_mode` is "implicit".
            TypeError: `item` is neither a record nor a batch.
        """
        self._in_group("ack()").ack(item)

    async def committed(self, partition: Partition, *, timeout: float | None = None) -> int | None:
        """Return the group's committed offset of a partition; None if there is none.

        Raises:
            RequestTimeout: no response in time; the cause says why.
            BrokerError: the coordinator refused the request, for example with GroupAuthorization.
            ConfigError: there is no `group_id`.
        """
        limits.optional_seconds(timeout)
        tp = checked_partition(partition)
        found = await self._in_group("committed()").committed([tp], timeout)
        stored = found[tp]
        return None if stored is None else stored.offset

    async def seek_to_committed(self, *partitions: Partition, timeout: float | None = None) -> None:
        """Set the positions of these partitions (all by default) to the committed offsets.

        If a partition has no committed offset, `auto_offset_reset` applies.

        Args:
            timeout: seconds; default `default_api_timeout_ms`. A timeout or a cancellation ends
                only the wait: the positions are still set as soon as possible.

        Raises:
            RequestTimeout: a position was not found in time; the cause says why.
            UnknownTopicOrPartition: a partition did not exist within the timeout.
            NoOffsetForPartition: there is no committed offset, and auto_offset_reset is "none".
            KafkaError: the lookup failed with an error that is not retriable.
            ConfigError: there is no `group_id`; a partition is not assigned.
        """
        self._in_group("seek_to_committed()")
        await self._seek_to(Start.COMMITTED, partitions, timeout)

    def group_metadata(self) -> GroupMetadata:
        """Return the identity of the group member, to commit offsets in a producer's transaction.

        The result's `outside_group` is True while the consumer has subscribed, but is not a member
        of its group.

        Raises:
            ConfigError: there is no `group_id`.
        """
        return self._group_of("group_metadata()").group_metadata()

    def offsets_for_transaction(
        self,
    ) -> tuple[Mapping[TopicPartition, OffsetAndMetadata], GroupMetadata]:
        """Return the offsets that `commit()` would commit, and the group metadata.

        Pass both to `Transaction.send_offsets`.

        Raises:
            ConfigError: there is no `group_id`; `enable_auto_commit` is on, so that offsets would
                also be committed outside of the transaction; or the consumer is read in several
                streams without ``ack_mode="explicit"``, so that it is not known which records
                belong to the transaction.
            CommitFailed: partitions were lost or revoked while their records were being processed,
                or the consumer has subscribed, has offsets to commit, and is not a member of its
                group; abort the transaction.
            Closed: the consumer is not started, or closed.
            WrongLoop: called on another event loop than the consumer's, or in a forked process.
        """
        self._lifecycle.check_open()
        group = self._group_of("offsets_for_transaction()")
        if self._settings.auto_commit:
            raise ConfigError(
                "the consumer commits automatically, also outside of the transaction: create it "
                "with enable_auto_commit=False"
            )
        if self._sources.split and self._settings.ack_mode != "explicit":
            raise ConfigError(
                "the consumer is read in several streams: create it with ack_mode='explicit', and "
                "acknowledge the records that belong to the transaction"
            )
        return group.offsets_for_transaction()

    def lag(self, partition: Partition) -> int | None:
        """Return the number of offsets from the position to the end of the visible records.

        The end is the high watermark, or the last stable offset with read_committed, as of the
        latest fetch response. The result is None before the first response, or while the position
        is unknown.
        """
        (state,) = self._positions.named([partition])
        return state.lag(committed_only=self._settings.committed_only)

    def highwater(self, partition: Partition) -> int | None:
        """Return the high watermark as of the latest fetch response; None before the first one."""
        (state,) = self._positions.named([partition])
        return state.high_watermark if state.high_watermark >= 0 else None

    def last_stable_offset(self, partition: Partition) -> int | None:
        """Return the last stable offset as of the latest fetch response; None before the first."""
        (state,) = self._positions.named([partition])
        return state.last_stable_offset if state.last_stable_offset >= 0 else None

    def last_poll_timestamp(self, partition: Partition) -> int | None:
        """Return the time of the latest fetch response in ms since 1970; None before the first."""
        (state,) = self._positions.named([partition])
        return state.fetched_at_ms

    async def topics(self, *, timeout: float | None = None) -> frozenset[str]:
        """Return the names of all topics that this client may see.

        Raises:
            RequestTimeout: no response in time; the cause says why.
            AuthenticationFailed, BootstrapFailed: no broker can be used.
        """
        limits.optional_seconds(timeout)
        self._lifecycle.check_open()
        return await self._queries.topics(timeout)

    def partitions_for_topic(self, topic: str) -> frozenset[int] | None:
        """Return the known partitions of a topic; the topic need not be subscribed to.

        The result is None if the topic is unknown. In that case its metadata is requested, and a
        later call may return the partitions; `await cluster.refresh(topic)` waits for the response.

        Raises:
            InvalidTopic: the name is not valid for a topic.
        """
        self._lifecycle.check_open()
        return self._queries.partitions(topic)

    async def beginning_offsets(
        self, partitions: Iterable[Partition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition.

        Raises:
            RequestTimeout: no response in time; the cause says why.
            UnknownTopicOrPartition: a topic did not exist within the timeout; raised immediately if
                the topic exists without the partition.
            KafkaError: the error of the first partition whose lookup failed.
        """
        limits.optional_seconds(timeout)
        self._lifecycle.check_open()
        return await self._queries.ends(partitions, "earliest", timeout)

    async def end_offsets(
        self, partitions: Iterable[Partition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the high watermark of each partition; with read_committed, the last stable offset.

        Raises: the errors of `beginning_offsets`.
        """
        limits.optional_seconds(timeout)
        self._lifecycle.check_open()
        return await self._queries.ends(partitions, "latest", timeout)

    async def offsets_for_times(
        self, timestamps: Mapping[P, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return offset and timestamp of each partition's first record at or after a time.

        The value is None for a partition whose records all have earlier timestamps.

        Args:
            timestamps: for each partition, a time in milliseconds since 1970.

        Raises: the errors of `beginning_offsets`; ConfigError if a time is out of range; TypeError
        if a time is not an int.
        """
        limits.optional_seconds(timeout)
        self._lifecycle.check_open()
        return await self._queries.times(timestamps, timeout)

    def health(self) -> ConsumerHealth:
        """Return the present state of partitions, brokers and group membership."""
        return self._lifecycle.health()

    async def _seek_to(
        self, start: Start, partitions: Sequence[Partition], timeout: float | None
    ) -> None:
        limits.optional_seconds(timeout)
        self._lifecycle.check_open()
        states = self._states(partitions) if partitions else list(self._positions)
        for state in states:
            self._pipeline.reset(state, start)
        await self._pipeline.await_positions(states, timeout)

    def _states(self, partitions: Iterable[Partition]) -> list[PartitionState]:
        self._lifecycle.check_open()
        return self._positions.named(partitions)

    def _assigned_of(self, partitions: Sequence[Partition]) -> frozenset[TopicPartition]:
        return frozenset(state.tp for state in self._states(partitions)) if partitions else _NONE

    def _check_readable(self) -> None:
        self._lifecycle.check_open()
        if self._sources.split:
            raise RuntimeError("the streams of this consumer are open: close them first")
        if self._group is not None:
            self._group.asked()
        if self._subscription.empty:
            raise ConfigError(
                "nothing is subscribed to: name topics in Consumer(...), or call subscribe() or "
                "assign()"
            )

    def _in_group(self, call: str) -> ConsumerCoordinator:
        self._lifecycle.check_open()
        return self._group_of(call)

    def _group_of(self, call: str) -> ConsumerCoordinator:
        if self._group is None:
            raise ConfigError(
                f"{call} needs a group that keeps the offsets: set group_id, or keep the "
                "positions yourself, by position() and seek()"
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
