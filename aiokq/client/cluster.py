"""`Cluster`, the entry point for one Kafka cluster: creates producers, consumers, admin clients.

Metadata and connections are kept by `ClusterEngine`. Each kind of client is imported when the first
client of that kind is created, because few programs use all kinds.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Literal,
    Never,
    NoReturn,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    Unpack,
)

from aiokq.client.health import ClusterHealth, cluster_health
from aiokq.cluster.constructor_settings import child_settings, standalone_settings
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.event_stream import EventStream
from aiokq.cluster.loop_binding import refuse_pickling
from aiokq.cluster.metadata import ClusterMetadata
from aiokq.cluster.offsets import IsolationLevel, OffsetSpec, offset_spec
from aiokq.cluster.partition_reader import DEFAULT_FETCH_BYTES
from aiokq.cluster.partition_records import PartitionRecords
from aiokq.cluster.targets import Coordinator, Leader, Role, Target
from aiokq.cluster.values import ClusterValues
from aiokq.core import limits
from aiokq.core.counters import ClientCounters
from aiokq.core.errors import ConfigError, RequestTimeout
from aiokq.core.supervisor import warn_unclosed
from aiokq.core.types import OffsetAndTimestamp, TopicFilter, TopicPartition
from aiokq.wire import Request, Response

if TYPE_CHECKING:
    from aiokq.admin.client import Admin
    from aiokq.admin.overrides import AdminOverrides
    from aiokq.admin.settings import AdminSettings
    from aiokq.client.process.handler_calls import Handler
    from aiokq.client.process.options import Guarantee, OrderBy, ProcessReport
    from aiokq.client.registry import Registry
    from aiokq.cluster.overrides import ClusterOverrides
    from aiokq.cluster.settings import ClusterSettings
    from aiokq.consumer.consumer import Consumer
    from aiokq.consumer.overrides import ConsumerOverrides
    from aiokq.consumer.rebalance_handlers import RebalanceHandler
    from aiokq.consumer.settings import ConsumerSettings
    from aiokq.core.environment import Environment
    from aiokq.producer.batch_builder import BatchBuilder
    from aiokq.producer.overrides import ProducerOverrides
    from aiokq.producer.produce_once import ProduceOnce, ProduceResult
    from aiokq.producer.producer import Producer
    from aiokq.producer.settings import ProducerSettings

__all__ = ["Cluster", "PartitionLike"]

P = TypeVar("P", bound=tuple[str, int])
R = TypeVar("R", bound=Response)

PartitionLike: TypeAlias = TopicPartition | tuple[str, int]
"""A partition of a topic, or a plain ``(topic, partition)`` tuple."""

NodeLike: TypeAlias = int | Literal["any", "controller"] | PartitionLike | Target
"""The receiver of a request: a node id, "any", "controller", a `Target`, or a partition.

A request for a partition is sent to the leader of the partition.
"""


class _Child(Protocol):
    async def close(self) -> object: ...


class Cluster:
    """A Kafka cluster, with metadata and connections that all its clients share.

    ``async with Cluster("host:9092") as cluster:`` waits for the first metadata, at most
    ``bootstrap_timeout_ms``. Producers, consumers and admin clients made from the cluster have
    ``async with`` blocks of their own. `close` first closes the clients that are still open:
    consumers, then producers (which deliver the records they accepted), then admin clients.

    The constructor uses no event loop; `start` and ``async with`` bind the cluster to the running
    loop. Methods that send requests raise `Closed` before `start` and after `close`, and
    `WrongLoop` on another event loop.

    Args:
        bootstrap_servers: "host:port"; several addresses are separated by commas or passed as a
            list.
        settings: settings to start from; defaults if not given.
        **overrides: single settings, by Kafka's names in snake_case.

    Raises:
        ConfigError: a setting is unknown, out of range, or contradicts another.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        /,
        *beside: Never,
        settings: ClusterSettings | None = None,
        _environment: Environment | None = None,
        **overrides: Unpack[ClusterOverrides],
    ) -> None:
        self._settings = standalone_settings(
            ClusterValues, settings, overrides, bootstrap_servers, beside
        )
        self._engine = ClusterEngine(self._settings, _environment)
        self._consumers: weakref.WeakSet[_Child] = weakref.WeakSet()
        self._producers: weakref.WeakSet[_Child] = weakref.WeakSet()
        self._admins: weakref.WeakSet[_Child] = weakref.WeakSet()
        self._produce_once: ProduceOnce | None = None

    async def start(self) -> None:
        """Bind the cluster to the running loop, and wait for the first metadata if there is none.

        If ``bootstrap_timeout_ms`` is 0, the call does not wait. If the first call fails or is
        cancelled, the cluster is closed.

        Raises:
            BootstrapFailed: no address answered with metadata within ``bootstrap_timeout_ms``; the
                error names each address with its reason. Raised immediately if a broker refused the
                credentials, or if every address failed with an error that a retry cannot solve.
            ConfigError: ``bootstrap_servers`` is not set.
            Closed: the cluster was closed.
            WrongLoop: the cluster was started on another loop.
        """
        await self._engine.start()

    async def close(self) -> None:
        """Close the clients of this cluster that are still open, then all connections.

        May be called more than once and concurrently. Pending calls fail with `Closed`. If `close`
        is cancelled, it still closes all clients, but producers discard the records they have not
        delivered. In a forked child `close` does nothing, because the sockets are the parent's.

        Raises:
            WrongLoop: the cluster was started on another loop.
            Exception: the first error that closing a client raised; raised after everything is
                closed.
        """
        if self._engine.forked:
            return
        self._engine.check_loop()
        failure: Exception | None = None
        cancelled: asyncio.CancelledError | None = None
        self._engine.ending = True
        try:
            for children in (self._consumers, self._producers, self._admins):
                for child in list(children):
                    try:
                        # After a cancellation, the remaining clients are closed in the same order,
                        # and each close is cancelled at its first wait.
                        async with asyncio.timeout(None if cancelled is None else 0):
                            await child.close()
                    except asyncio.CancelledError as error:
                        cancelled = error
                    except Exception as error:  # noqa: BLE001  raised below, when all are closed
                        if cancelled is None:
                            failure = failure or error
        finally:
            await self._engine.close()
        if cancelled is not None:
            raise cancelled
        if failure is not None:
            raise failure

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is not None and engine.started and not engine.forked:
            warn_unclosed(self)

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self)

    def __repr__(self) -> str:
        servers = ",".join(self._settings.bootstrap_servers)
        state = "open" if self._engine.started else "closed" if self._engine.closed else "new"
        return f"<Cluster {servers} {state}>"

    @property
    def settings(self) -> ClusterSettings:
        """The settings in force."""
        return self._settings.settings

    @property
    def closed(self) -> bool:
        """Whether the cluster is closed; False while `close` closes clients.

        Context: any thread.
        """
        return self._engine.closed

    @property
    def metadata(self) -> ClusterMetadata:
        """The latest metadata: the brokers, and the topics in use. The object is immutable."""
        return self._engine.metadata

    @property
    def counters(self) -> ClientCounters:
        """The counters of this cluster and of all clients made from it; see `aiokq.metrics`."""
        return self._engine.counters

    def events(self, *, limit: int = 10_000) -> EventStream:
        """Return a stream of typed events: first the latest event of each key, then new events.

        The key of an event (`Event.key`) identifies its subject, for example a partition.

        Args:
            limit: the maximum number of queued events. If the queue is full, the oldest event is
                dropped and counted.
        """
        return self._engine.events(limit=limit)

    def health(self) -> ClusterHealth:
        """Return the current state of brokers, partitions and metadata. Context: any thread."""
        return cluster_health(self._engine)

    @property
    def registry(self) -> Registry:
        """A read-only view of the cluster as Kafka's tree of nodes in ZooKeeper, with watches."""
        from aiokq.client.registry import Registry

        return Registry(self._engine)

    async def refresh(self, *topics: str, timeout: float | None = None) -> ClusterMetadata:
        """Request new metadata and return it.

        Args:
            topics: topics that the new metadata must cover; by default all topics in use.
            timeout: seconds, retries included; default ``default_api_timeout_ms``.

        Raises:
            UnknownTopicOrPartition: a topic did not exist within the timeout.
            RequestTimeout: no broker returned metadata within the timeout.
            TopicAuthorization, InvalidTopic: the brokers refused a topic; raised immediately.
            BrokerError: a topic had another error until the timeout.
            AuthenticationFailed, BootstrapFailed: no broker can be used.
        """
        limits.optional_seconds(timeout)
        engine = self._engine
        engine.bind()
        loop = asyncio.get_running_loop()
        total = engine.settings.default_api_timeout if timeout is None else timeout
        deadline = loop.time() + total
        for topic in topics:
            await engine.topic(topic, timeout=max(0.0, deadline - loop.time()), create=False)
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                await engine.refresh([*topics] if topics else None)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise RequestTimeout(
                f"no broker returned metadata within {total:.3g} s", api="Metadata"
            ) from (engine.last_error or error)
        return engine.metadata

    def producer(
        self, *, settings: ProducerSettings | None = None, **overrides: Unpack[ProducerOverrides]
    ) -> Producer:
        """Return a producer that shares this cluster's metadata and connections.

        Raises:
            ConfigError: a setting is unknown, out of range, contradicts another, or is a setting of
                the Cluster.
            Closed, WrongLoop: the Cluster is closed, or was started on another loop.
        """
        from aiokq.producer.producer import Producer
        from aiokq.producer.values import ProducerValues

        self._engine.check_declaring()
        values = child_settings(ProducerValues, self._settings, settings, dict(overrides))
        producer = Producer(_values=values, _engine=self._engine)
        self._producers.add(producer)
        return producer

    def consumer(
        self,
        *topics: str | TopicFilter,
        settings: ConsumerSettings | None = None,
        on_assigned: RebalanceHandler | None = None,
        on_revoked: RebalanceHandler | None = None,
        on_lost: RebalanceHandler | None = None,
        **overrides: Unpack[ConsumerOverrides],
    ) -> Consumer:
        """Return a consumer that shares this cluster's metadata; it fetches on its own connections.

        Args:
            topics: topics and filters to subscribe to.
            on_assigned, on_revoked, on_lost: called in rebalances of the group; see `Consumer`.

        Raises:
            ConfigError: a setting is unknown, out of range, contradicts another, or is a setting of
                the Cluster; an address is given instead of a topic; a handler is given without a
                `group_id`.
            InvalidTopic: a name is not valid for a topic.
            Closed, WrongLoop: the Cluster is closed, or was started on another loop.
        """
        from aiokq.consumer.consumer import Consumer
        from aiokq.consumer.values import ConsumerValues

        self._engine.check_declaring()
        values = child_settings(ConsumerValues, self._settings, settings, dict(overrides))
        consumer = Consumer(
            *topics,
            _values=values,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
            _engine=self._engine,
        )
        self._consumers.add(consumer)
        return consumer

    def admin(
        self, *, settings: AdminSettings | None = None, **overrides: Unpack[AdminOverrides]
    ) -> Admin:
        """Return an admin client that shares this cluster's metadata and connections.

        Raises:
            ConfigError: a setting is unknown, out of range, contradicts another, or is a setting of
                the Cluster.
            Closed, WrongLoop: the Cluster is closed, or was started on another loop.
        """
        from aiokq.admin.client import Admin
        from aiokq.admin.values import AdminValues

        self._engine.check_declaring()
        values = child_settings(AdminValues, self._settings, settings, dict(overrides))
        admin = Admin(_values=values, _engine=self._engine)
        self._admins.add(admin)
        return admin

    async def process(
        self,
        topics: Sequence[str] | str,
        handler: Handler,
        *,
        group_id: str,
        guarantee: Guarantee = "exactly_once",
        batch: bool = False,
        concurrency: int = 1,
        order_by: OrderBy = "partition",
        output: Cluster | None = None,
        group_instance_id: str | None = None,
        transaction_timeout_ms: int = 10_000,
        commit_interval_ms: int = 100,
        max_records: int = 10_000,
        retries: int = 0,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1_000,
        dead_letter_topic: str | None = None,
        stop: asyncio.Event | None = None,
        consumer_settings: Mapping[str, object] | None = None,
        producer_settings: Mapping[str, object] | None = None,
    ) -> ProcessReport:
        """Handle each record of topics, and write what the handler returns.

        ::

            async def totals(record):
                return aiokq.Outgoing("totals", record.value, key=record.key)

            await cluster.process(["orders"], totals, group_id="billing")

        With ``guarantee="exactly_once"``, results and offsets are committed together, in
        transactions. A handler may run more than once for a record; the results of the earlier runs
        are then discarded. Exactly-once applies to the results only, not to other effects of the
        handler. The call ends when it is cancelled, when `stop` is set, or on SIGTERM if the
        program does not handle SIGTERM. On `stop` and SIGTERM, the records that are being handled
        are finished and committed first.

        Args:
            topics: the topics to read.
            handler: called with each record, or with each batch if `batch` is set; a function or a
                coroutine function. It returns None, an `Outgoing`, or a list or an async iterator
                of `Outgoing` objects.
            group_id: the group whose members share the partitions, and whose offsets are committed.
            guarantee: "exactly_once" or "at_least_once". With "at_least_once", results may be
                written again after a failure.
            concurrency: the maximum number of handlers that run at the same time.
            order_by: whether records are handled in order per "partition" or per "key".
            output: the cluster that gets the results, only with at_least_once.
            group_instance_id: makes the member static; a restarted member also has the same
                transactional id as before.
            transaction_timeout_ms: time after which the broker aborts a transaction. After a crash,
                `read_committed` readers wait for that abort. Handlers may take four fifths of this
                time.
            commit_interval_ms, max_records: a commit is made after this time, or with this number
                of records, whichever comes first; and before partitions are revoked.
            retries: the maximum number of further calls of the handler for a record after the first
                call has raised an error. The pause before a call grows from `retry_backoff_ms` to
                `retry_backoff_max_ms`.
            dead_letter_topic: gets the records for which all calls raised an error, or whose
                results were refused; without it, the error is raised.
            stop: ends the call when set, after the records that are being handled. A handler that
                never waits may be called for up to seven records more.
            consumer_settings, producer_settings: further settings of the consumer and the producer.

        Returns:
            ProcessReport: the numbers of records, results, commits, aborts and dead letters.

        Raises:
            ConfigError: an option is wrong.
            TypeError: `handler` is not callable, or a number is not an int.
            ProducerFenced: another call with the same transactional id was started, or a
                transaction took longer than `transaction_timeout_ms`, for example because no broker
                was reachable. Raised only with `group_instance_id`, or with a transactional id in
                `producer_settings`; otherwise the producer is replaced.
            RequestTimeout: the handlers of a transaction took longer than four fifths of
                `transaction_timeout_ms`.
            CommitOutcomeUnknown: no coordinator answered whether the last transaction is committed.
                A new call reads the committed offsets, and repeats the transaction only if it was
                not committed.
            Exception: the exception that the handler raised.
        """
        from aiokq.client.process.options import ProcessOptions, topics_of
        from aiokq.client.process.run import run

        self._engine.check_declaring()
        return await run(
            self.consumer,
            (self if output is None else output).producer,
            self._engine,
            topics_of(topics),
            handler,
            ProcessOptions(
                guarantee,
                batch,
                concurrency,
                order_by,
                transaction_timeout_ms,
                commit_interval_ms,
                max_records,
                retries,
                retry_backoff_ms,
                retry_backoff_max_ms,
                dead_letter_topic,
            ),
            group_id=group_id,
            group_instance_id=group_instance_id,
            same_cluster=output is None or output is self,
            stop=stop,
            consumer_overrides=consumer_settings or {},
            producer_overrides=producer_settings or {},
        )

    async def request(
        self,
        message: Request[R],
        *,
        node: NodeLike = "any",
        timeout: float | None = None,
    ) -> R:
        """Send any request of `aiokq.wire` and wait for its response.

        Error codes inside the response are not checked. The request is sent on the connection that
        all clients share for short requests. A request that waits long at the broker therefore
        delays the requests of other clients.

        Args:
            message: the request. It is sent in the newest common version of client and broker that
                has all fields that are set in the request.
            node: a node id, "any", "controller", or a partition, whose leader gets the request.
            timeout: seconds; default ``default_api_timeout_ms``.

        Raises:
            RequestTimeout: no response within the timeout; the cause is the last error.
            ConnectionLost: the connection was lost before the response, or no broker has this node
                id.
            FieldNotSupported: no common version has all fields that are set in the request.
            UnsupportedVersion, ProtocolError, AuthenticationFailed: the broker cannot be used.
            TypeError: `message` is not a request.
            ConfigError: `node` is a string other than "any" and "controller".
        """
        limits.optional_seconds(timeout)
        if not isinstance(message, Request):
            raise TypeError(f"{message!r} is not a request; request classes are in aiokq.wire")
        target: int | Target
        if isinstance(node, str):
            if node not in {role.value for role in Role}:
                raise ConfigError(
                    f"node={node!r}: must be a node id, 'any', 'controller', or a partition"
                )
            target = Role(node)
        elif isinstance(node, tuple):
            target = Leader(TopicPartition.of(node))
        elif isinstance(node, Role | Leader | Coordinator):
            target = node
        else:
            target = limits.count(node, "node", 0)
        return await self._engine.request(message, node=target, timeout=timeout)

    def create_batch(
        self,
        *,
        max_bytes: int = 1_048_576,
        compression_type: str = "none",
        compression_level: int | None = None,
        compression_max_ratio: float | None = None,
    ) -> BatchBuilder:
        """Return an empty batch for `produce`, to be filled with records or rows of columns.

        Args:
            max_bytes: the largest size of the batch before compression.
            compression_type: none, gzip, snappy, lz4 or zstd.
            compression_level: a level of that type; None for its default.
            compression_max_ratio: the batch is sent uncompressed if the compressed size of its
                records exceeds their size multiplied by this number; None to always send the batch
                compressed.

        Raises:
            ConfigError: the type or the level does not exist, or the ratio is not from 0 to 1.
            ValueError: `max_bytes` is not from 0 to 2**31 - 1.
        """
        from aiokq.producer.batch_builder import BatchBuilder, BatchCompression
        from aiokq.records.compression import check_level, codec_id

        codec = codec_id(compression_type)
        if compression_level is not None:
            limits.whole(
                compression_level,
                "compression_level",
                -(2**31),
                limits.INT32_MAX,
                error=ConfigError,
            )
            check_level(codec, compression_level)
        if compression_max_ratio is not None:
            limits.share(compression_max_ratio, "compression_max_ratio", error=ConfigError)
        limits.count(max_bytes, "max_bytes", 0)
        return BatchBuilder(
            max_bytes, BatchCompression(codec, compression_level, compression_max_ratio)
        )

    async def produce(
        self,
        batches: Mapping[P, BatchBuilder],
        *,
        node: int | PartitionLike,
        acks: Literal[0, 1, -1, "all"] = "all",
        timeout_ms: int | None = None,
        timeout: float | None = None,
    ) -> dict[P, ProduceResult]:
        """Send one Produce request, without retries and without a producer.

        ::

            batch = cluster.create_batch(compression_type="zstd")
            batch.append(b"value", key=b"key")
            results = await cluster.produce({("orders", 0): batch}, node=("orders", 0))
            if results["orders", 0].error is not None: ...

        The batches are closed and can be passed again. They have no producer id, so a batch that
        is sent twice may be written twice. Several calls may run at the same time: requests to the
        same broker are sent in the order of the calls, on the connection that all clients share for
        Produce requests. Long compression runs in the executor, and later requests to the broker
        wait for it. If a call is cancelled after its request was sent, its batches may still be
        written, even after the batches of later calls, because later calls use another connection.

        Args:
            batches: a batch for each partition, made by `create_batch`.
            node: a node id, or a partition, whose leader in `metadata` gets the request.
            acks: as the setting of the producer: 0, 1, -1 or "all".
            timeout_ms: how long the broker may wait for the replicas; default: `timeout`.
            timeout: seconds for the connection, the request and the response; default
                ``request_timeout_ms``.

        Returns:
            The result for each partition; an empty dict with acks=0. A refused batch raises no
            exception: `ProduceResult.error` says why the batch was refused, and
            `ProduceResult.record_errors` names the records.

        Raises:
            RequestTimeout: no response within the timeout.
            ConnectionLost: the connection could not be opened or was lost before the response, or
                no broker has this node id.
            ProtocolError: the response cannot be decoded.
            UnsupportedVersion, UnsupportedCompressionType: the broker is too old for the batches.
            AuthenticationFailed: the broker cannot be used.
            UnknownTopicOrPartition, LeaderNotAvailable: `node` is a partition that is not in the
                metadata, or has no leader.
            ConfigError: `batches` or a batch is empty, or `acks` is not valid.
            TypeError: a batch is not a BatchBuilder, or a key of `batches` is not a partition.
            Closed: the Cluster is not started, or closed.
            WrongLoop: the call was made outside of the loop that the Cluster was started on.

        Source: KIP-467 (record errors), KIP-516 (topic ids), KIP-951 (new leaders).
        """
        limits.optional_seconds(timeout)
        if self._produce_once is None:
            from aiokq.producer.produce_once import ProduceOnce

            self._produce_once = ProduceOnce(self._engine)
        return await self._produce_once.produce(
            batches,
            node=TopicPartition.of(node) if isinstance(node, tuple) else node,
            acks=acks,
            timeout_ms=timeout_ms,
            timeout=timeout,
        )

    async def fetch(
        self,
        partition: PartitionLike,
        offset: int,
        max_bytes: int = DEFAULT_FETCH_BYTES,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        max_wait_ms: int = 0,
        stop: int | None = None,
        timeout: float | None = None,
    ) -> PartitionRecords:
        """Fetch once from an offset of a partition, without a consumer.

        Args:
            partition: topic and partition.
            offset: offset of the first record to return.
            max_bytes: the maximum number of bytes to fetch; the first batch is returned whatever
                its size.
            isolation_level: "read_committed" leaves out records of aborted and open transactions.
            max_wait_ms: milliseconds the broker may wait for records at the end of the log.
            stop: return no record at or after this offset.
            timeout: seconds, retries included; default ``default_api_timeout_ms``.

        Returns:
            The records (none at the end of the log), and ``next_offset``, the offset to fetch next.

        Raises:
            OffsetOutOfRange: the offset is not in the log.
            UnknownTopicOrPartition: the topic did not exist within the timeout. Raised immediately
                if the topic has no such partition.
            RequestTimeout: no leader answered within the timeout; the cause is the last error.
        """
        limits.offset(offset)
        limits.count(max_bytes, "max_bytes", 0)
        limits.count(max_wait_ms, "max_wait_ms", 0)
        if stop is not None:
            limits.offset(stop, "stop")
        limits.optional_seconds(timeout)
        return await self._engine.reader.fetch(
            TopicPartition.of(partition),
            offset,
            max_bytes,
            isolation_level=isolation_level,
            max_wait_ms=max_wait_ms,
            stop=stop,
            timeout=timeout,
        )

    def read(
        self,
        partition: PartitionLike,
        start: OffsetSpec = "earliest",
        stop: OffsetSpec | None = None,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        max_bytes: int = DEFAULT_FETCH_BYTES,
        timeout: float | None = None,
    ) -> AsyncGenerator[PartitionRecords, None]:
        """Read a range of offsets of a partition in batches, without a consumer.

        ``async for batch in cluster.read(("orders", 0), 0, 100):`` yields exactly the records with
        offsets from 0 to 99. The ``next_offset`` of a batch is the offset after the batch. A batch
        may be empty, because control batches, aborted transactions and compaction leave gaps.

        Args:
            partition: topic and partition.
            start: first offset, "earliest" or "latest" (or Kafka's -2 and -1).
            stop: the first offset that is not read; None for the current end of the log. If the
                offset is after the end of the log, the read waits for records.
            isolation_level: "read_committed" leaves out records of aborted and open transactions.
            max_bytes: see `fetch`.
            timeout: seconds for each fetch to succeed; default ``default_api_timeout_ms``.

        Raises:
            UnknownTopicId: the topic was deleted and created again after the first fetch.
            KafkaError: a fetch, or the lookup of ``start`` or ``stop``, failed; see `fetch` and
                `offsets`.
        """
        for spec in (start, stop):
            if spec is not None:
                offset_spec(spec)
        limits.count(max_bytes, "max_bytes", 0)
        limits.optional_seconds(timeout)
        return self._engine.reader.read(
            TopicPartition.of(partition),
            start,
            stop,
            isolation_level=isolation_level,
            max_bytes=max_bytes,
            timeout=timeout,
        )

    async def offsets(
        self,
        partition: PartitionLike,
        timestamp: OffsetSpec,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        timeout: float | None = None,
    ) -> OffsetAndTimestamp | None:
        """Look up an offset of a partition by timestamp; `Admin.list_offsets` looks up many.

        Args:
            partition: topic and partition.
            timestamp: milliseconds since the epoch, for the first record at or after that time;
                "earliest" or "latest" for the start or the end of the log (``timestamp_ms`` of the
                result is -1); "max_timestamp" for the record with the greatest timestamp. Kafka's
                numbers for these three (-2, -1, -3), and -4 to -6 for tiered logs, are accepted
                too.
            isolation_level: with "read_committed", "latest" is the last stable offset.
            timeout: seconds; default ``default_api_timeout_ms``.

        Returns:
            Offset and timestamp; None if there is no such offset, for example because all records
            have earlier timestamps.

        Raises:
            UnknownTopicOrPartition: the topic did not exist within the timeout. Raised immediately
                if the topic has no such partition.
            RequestTimeout: no leader answered within the timeout; the cause is the last error.
            UnsupportedVersion: the broker does not know this special timestamp.
            ConfigError: ``timestamp`` or ``isolation_level`` is not valid.
        """
        tp = TopicPartition.of(partition)
        limits.optional_seconds(timeout)
        found = await self._engine.reader.offsets(
            [tp], timestamp, isolation_level=isolation_level, timeout=timeout
        )
        return found[tp]
