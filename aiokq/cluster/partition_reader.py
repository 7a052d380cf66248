"""`PartitionReader`, which fetches once or reads a range of offsets without a consumer.

The reader has no position, fetch sessions or buffers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from aiokq.cluster.denials import name_denial
from aiokq.cluster.metadata import ZERO_ID, BrokerInfo
from aiokq.cluster.offsets import (
    IsolationLevel,
    OffsetSpec,
    isolation_level_code,
    list_offsets,
    no_such_partition,
    offset_spec,
)
from aiokq.cluster.partition_records import PartitionRecords
from aiokq.cluster.reducer_inputs import LeaderHint
from aiokq.connection.lazy_connection import DedicatedConnection
from aiokq.connection.node import Node
from aiokq.core.error_base import KafkaError
from aiokq.core.errors import (
    Closed,
    LeaderNotAvailable,
    NoOffsetForPartition,
    OffsetOutOfRange,
    ProtocolError,
    RequestTimeout,
    UnknownTopicId,
    raise_for,
)
from aiokq.core.types import OffsetAndTimestamp, TopicPartition
from aiokq.fastpath import crc32c
from aiokq.records.codecs import RecordCodecs
from aiokq.wire.fetch import (
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine

__all__ = ["DEFAULT_FETCH_BYTES", "PartitionReader"]

TOPIC_IDS_SINCE: Final = 13
DEFAULT_FETCH_BYTES: Final = 1024 * 1024
"""Kafka's default of ``max.partition.fetch.bytes``."""
READ_COMMITTED: Final = 1
READ_WAIT_MS: Final = 500
"""Milliseconds the broker may hold a fetch at the end of the log while `read` waits for records."""


class PartitionReader:
    """Reads partitions of one cluster over dedicated connections.

    A broker answers the requests of a connection in order. On a shared connection, a fetch that
    waits for records would therefore delay the short requests of other clients.
    """

    def __init__(self, engine: ClusterEngine) -> None:
        self._engine = engine
        self._connections: dict[int, DedicatedConnection] = {}
        self._codecs = RecordCodecs(crc32c)

    async def fetch(
        self,
        tp: TopicPartition,
        offset: int,
        max_bytes: int = DEFAULT_FETCH_BYTES,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        min_bytes: int = 1,
        max_wait_ms: int = 0,
        stop: int | None = None,
        timeout: float | None = None,
    ) -> PartitionRecords:
        """Fetch once from an offset.

        Args:
            offset: offset of the first record to return.
            max_bytes: the maximum number of bytes to fetch. The first batch is returned even if it
                is larger (KIP-74).
            min_bytes: number of bytes at which the broker responds before ``max_wait_ms`` has
                passed.
            max_wait_ms: milliseconds the broker may wait for records at the end of the log.
            stop: return no record at or after this offset.
            timeout: seconds, retries included; default ``default_api_timeout_ms``.

        Raises:
            OffsetOutOfRange: the offset is not in the log.
            UnknownTopicOrPartition: the topic did not exist within the timeout. Raised immediately
                if the topic has no such partition.
            RequestTimeout: no leader answered within the timeout; the cause is the last error.
            KafkaError: another error that a retry cannot solve, such as TopicAuthorization.
        """
        self._engine.bind()
        level = isolation_level_code(isolation_level)
        fetch = _Fetch(tp, offset, max_bytes, level, min_bytes, max_wait_ms, stop)
        return await self._fetch(fetch, timeout)

    async def _fetch(self, fetch: _Fetch, timeout: float | None) -> PartitionRecords:
        """Fetch, and retry for at most `timeout` seconds; raise errors that are not retriable."""
        engine = self._engine
        if timeout is None:
            timeout = engine.settings.default_api_timeout
        last_error: KafkaError | None = None
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                backoff = engine.new_backoff()
                while True:
                    try:
                        records = await self._fetch_once(fetch)
                    except KafkaError as error:
                        if not error.retriable:
                            raise
                        last_error = error
                    else:
                        if records is not None:
                            return records
                        continue
                    engine.counters.retries["Fetch"] += 1
                    await asyncio.sleep(backoff.next())
        except TimeoutError as error:
            if not limit.expired():
                raise
            if fetch.tp.topic not in engine.metadata.topics:
                raise engine.topics.error(fetch.tp.topic, timeout) from error
            raise RequestTimeout(
                f"nothing could be fetched within {timeout:.3g} s"
                + (f": {last_error}" if last_error is not None else ""),
                api="Fetch",
                topic_partition=fetch.tp,
            ) from (last_error or error)

    async def _fetch_once(self, fetch: _Fetch) -> PartitionRecords | None:
        """Ask the partition's leader once, and report the outcome to the engine.

        Returns:
            The records; None if the broker cut off the first batch. `fetch.max_bytes` is then
            increased, so that the next attempt fetches the whole batch.
        """
        engine = self._engine
        response: FetchResponse | None = None
        data: FetchPartitionData | None = None
        epoch = None
        try:
            node, topic_id = await self._leader(fetch)
            epoch = engine.metadata.leader_epoch(fetch.tp)
            response = await self._ask(node, fetch, epoch, topic_id)
            data = _only_partition(response, fetch.tp)
            _raise_for_partition(data, fetch)
        except KafkaError as error:
            name_denial(engine, error)
            if error.retriable and error.refresh_metadata:
                hint = leader_hint(response, data)
                engine.partition_failed(fetch.tp, error, leader_epoch=epoch, hint=hint)
            raise
        engine.partition_ok(fetch.tp)
        fetch.topic_id = topic_id
        records = PartitionRecords(
            fetch.tp,
            fetch.offset,
            data,
            codecs=self._codecs,
            committed_only=fetch.isolation_level == READ_COMMITTED,
            stop=fetch.stop,
        )
        needed = records.cursor().partial_batch_bytes
        if records.next_offset > fetch.offset or needed <= fetch.max_bytes:
            return records
        # Brokers before KIP-74 cut off a batch that is larger than `max_bytes`.
        fetch.max_bytes = needed
        return None

    def read(
        self,
        tp: TopicPartition,
        start: OffsetSpec,
        stop: OffsetSpec | None = None,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        max_bytes: int = DEFAULT_FETCH_BYTES,
        timeout: float | None = None,
    ) -> AsyncGenerator[PartitionRecords, None]:
        """Yield the records from ``start`` to ``stop``, as one `PartitionRecords` per fetch.

        The next fetch, if there is one, is in flight while the caller processes an object. The
        ``next_offset`` of an object is the offset at which the next object begins; the last
        ``next_offset`` is ``stop``. An object may have no records, because control batches, aborted
        transactions and compaction leave gaps.

        Args:
            start: first offset, or the name of a special offset, such as "earliest".
            stop: the offset at which to end, which is not read, or the name of a special offset;
                None for the current end of the log. If ``stop`` is beyond that end, the read waits
                for records.
            max_bytes: the maximum number of bytes of one fetch.
            timeout: seconds for each fetch to succeed; default ``default_api_timeout_ms``.

        Raises:
            UnknownTopicId: the topic was deleted and created again after the first fetch.
            KafkaError: a fetch, or the lookup of ``start`` or ``stop``, failed; see `fetch` and
                `offsets`.
        """
        self._engine.bind()
        return self._read(tp, start, stop, isolation_level, max_bytes, timeout)

    async def _read(
        self,
        tp: TopicPartition,
        start: OffsetSpec,
        stop: OffsetSpec | None,
        isolation_level: IsolationLevel,
        max_bytes: int,
        timeout: float | None,
    ) -> AsyncGenerator[PartitionRecords, None]:
        position = await self._resolve(tp, start, isolation_level, timeout)
        end = await self._resolve(tp, "latest" if stop is None else stop, isolation_level, timeout)

        level = isolation_level_code(isolation_level)
        topic_id = ZERO_ID

        async def outcome(offset: int) -> PartitionRecords | KafkaError:
            nonlocal topic_id
            fetch = _Fetch(tp, offset, max_bytes, level, 1, READ_WAIT_MS, end, topic_id)
            try:
                records = await self._fetch(fetch, timeout)
            except KafkaError as error:
                return error
            topic_id = fetch.topic_id
            return records

        ahead: asyncio.Task[PartitionRecords | KafkaError] | None = None
        try:
            while position < end:
                if ahead is None:
                    ahead = self._engine.spawn(outcome(position), f"read {tp}")
                # asyncio.wait is used because closing the cluster cancels the task, and must not
                # cancel the caller.
                await asyncio.wait([ahead])
                if ahead.cancelled():
                    raise Closed("the cluster was closed during the read")
                fetched, ahead = ahead.result(), None
                if isinstance(fetched, KafkaError):
                    raise fetched
                position = fetched.next_offset
                if position < end:
                    # The next fetch is started, so that the broker reads while the caller decodes.
                    ahead = self._engine.spawn(outcome(position), f"read {tp}")
                if position > fetched.offset:
                    yield fetched
        finally:
            if ahead is not None:
                ahead.cancel()

    async def offsets(
        self,
        partitions: Iterable[TopicPartition],
        timestamp: OffsetSpec,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Look up offsets by timestamp; all leaders are asked concurrently.

        Args:
            timestamp: milliseconds since the epoch, for the first record at or after that time; or
                "earliest", "latest", "max_timestamp" (the record with the greatest timestamp).
            isolation_level: with "read_committed", "latest" is the last stable offset; otherwise it
                is the high watermark.
            timeout: seconds; default ``default_api_timeout_ms``.

        Returns:
            The offset of each partition; None if there is no such offset, for example because all
            records have earlier timestamps.

        Raises:
            ConfigError: ``timestamp`` or ``isolation_level`` is not a valid value.
            KafkaError: the lookup failed for at least one partition.
        """
        engine = self._engine
        engine.bind()
        outcomes = await list_offsets(
            engine,
            dict.fromkeys(partitions, offset_spec(timestamp)),
            isolation_level=isolation_level,
            timeout=engine.settings.default_api_timeout if timeout is None else timeout,
        )
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for tp, outcome in outcomes.items():
            if isinstance(outcome, KafkaError):
                raise outcome
            found[tp] = outcome
        return found

    async def _resolve(
        self,
        tp: TopicPartition,
        spec: OffsetSpec,
        isolation_level: IsolationLevel,
        timeout: float | None,
    ) -> int:
        if isinstance(spec, int) and spec >= 0:
            return spec
        found = await self.offsets([tp], spec, isolation_level=isolation_level, timeout=timeout)
        offset = found[tp]
        if offset is None:
            raise NoOffsetForPartition(f"{tp} has no {spec} offset", topic_partition=tp)
        return offset.offset

    async def _leader(self, fetch: _Fetch) -> tuple[Node, UUID]:
        engine, tp = self._engine, fetch.tp
        topic = await engine.topic(tp.topic, create=False)
        if tp.partition not in topic.partitions:
            await engine.refresh([tp.topic])
            topic = await engine.topic(tp.topic, create=False)
            if tp.partition not in topic.partitions:
                raise no_such_partition(tp, len(topic.partitions))
        if ZERO_ID not in (fetch.topic_id, topic.topic_id) and fetch.topic_id != topic.topic_id:
            raise _topic_recreated(tp)
        node = engine.leader_node(tp)
        if node is None:
            engine.refresher.soon([tp.topic])
            raise LeaderNotAvailable(topic_partition=tp)
        return node, topic.topic_id

    async def _ask(self, node: Node, fetch: _Fetch, epoch: int, topic_id: UUID) -> FetchResponse:
        dedicated = self._connections.get(node.node_id)
        if dedicated is None:
            dedicated = self._connections[node.node_id] = node.dedicated("read")
        connection = await dedicated.get()
        await node.ready()
        version = connection.version_for(FetchRequest)
        if topic_id == ZERO_ID:
            version = min(version, TOPIC_IDS_SINCE - 1)
        timeout = self._engine.settings.request_timeout + fetch.max_wait_ms / 1000
        return await connection.request(
            fetch.message(epoch, topic_id), version=version, timeout=timeout
        )


class _Fetch:
    """The parameters of one fetch.

    Attributes:
        topic_id: the id of the topic to read. The id is zero before the first fetch. That fetch
            accepts any topic with the name, and sets the id. Later fetches fail if the topic was
            recreated.
    """

    __slots__ = (
        "isolation_level",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "offset",
        "stop",
        "topic_id",
        "tp",
    )

    def __init__(
        self,
        tp: TopicPartition,
        offset: int,
        max_bytes: int,
        isolation_level: int,
        min_bytes: int,
        max_wait_ms: int,
        stop: int | None,
        topic_id: UUID = ZERO_ID,
    ) -> None:
        self.tp = tp
        self.offset = offset
        self.max_bytes = max_bytes
        self.isolation_level = isolation_level
        self.min_bytes = min_bytes
        self.max_wait_ms = max_wait_ms
        self.stop = stop
        self.topic_id = topic_id

    def message(self, leader_epoch: int, topic_id: UUID) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=self.isolation_level,
            topics=[
                FetchTopic(
                    topic=self.tp.topic,
                    topic_id=topic_id,
                    partitions=[
                        FetchPartition(
                            partition=self.tp.partition,
                            current_leader_epoch=leader_epoch,
                            fetch_offset=self.offset,
                            partition_max_bytes=self.max_bytes,
                        )
                    ],
                )
            ],
        )


def _only_partition(response: FetchResponse, tp: TopicPartition) -> FetchPartitionData:
    raise_for(response.error_code, api="Fetch", topic_partition=tp)
    if not response.responses or not response.responses[0].partitions:
        raise ProtocolError("the response does not have the requested partition", api="Fetch")
    return response.responses[0].partitions[0]


def _raise_for_partition(data: FetchPartitionData, fetch: _Fetch) -> None:
    message = None
    if data.error_code == OffsetOutOfRange.code:
        message = (
            f"offset {fetch.offset} is not in the log; Cluster.offsets() returns the start and "
            "the end of the log ('earliest' and 'latest')"
        )
    raise_for(data.error_code, message, api="Fetch", topic_partition=fetch.tp)


def _topic_recreated(tp: TopicPartition) -> UnknownTopicId:
    error = UnknownTopicId(
        f"{tp.topic} was deleted and created again while it was read: the offsets belong to the "
        "old topic",
        api="Fetch",
        topic_partition=tp,
    )
    error.retriable = False
    return error


def leader_hint(
    response: FetchResponse | None, data: FetchPartitionData | None
) -> LeaderHint | None:
    """Return the new leader that a Fetch response names (KIP-951); None if it names no leader."""
    if response is None or data is None or data.current_leader is None:
        return None
    leader = data.current_leader
    if leader.leader_id < 0:
        return None
    broker = next(
        (
            BrokerInfo(b.node_id, b.host, b.port, b.rack)
            for b in response.node_endpoints
            if b.node_id == leader.leader_id
        ),
        None,
    )
    return LeaderHint(leader.leader_id, leader.leader_epoch, broker)
