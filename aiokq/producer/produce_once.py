"""ProduceOnce: single Produce requests without retries, for `Cluster.produce`.

A Producer retries: its PartitionQueues send a batch again after an error. This module does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakKeyDictionary

from aiokq.cluster.denials import name_denial
from aiokq.cluster.metadata import ZERO_ID, BrokerInfo
from aiokq.cluster.reducer_inputs import LeaderHint
from aiokq.connection.node import Purpose
from aiokq.core import limits
from aiokq.core.errors import (
    ConfigError,
    ConnectionLost,
    KafkaError,
    LeaderNotAvailable,
    ProtocolError,
    RequestTimeout,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
    UnsupportedVersion,
    error_for,
)
from aiokq.core.frozen import frozen
from aiokq.core.offload import FAST_CODEC_THRESHOLD, GZIP_THRESHOLD
from aiokq.core.types import TopicPartition
from aiokq.fastpath.produce import Accumulator, Batch, Slot, build_batch
from aiokq.producer.batch_builder import BatchBuilder
from aiokq.producer.rules import acks_as_number
from aiokq.records.compression import GZIP, NONE, ZSTD, compress
from aiokq.wire.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

if TYPE_CHECKING:
    from uuid import UUID

    from aiokq.cluster.engine import ClusterEngine
    from aiokq.connection.connection import Connection
    from aiokq.connection.node import Node

__all__ = ["ProduceOnce", "ProduceResult"]

P = TypeVar("P", bound=tuple[str, int])

FIRST_WITH_BATCHES_V2: Final = 3
FIRST_WITH_ZSTD: Final = 7
FIRST_WITH_TOPIC_IDS: Final = 13


@frozen
class ProduceResult:
    """The broker's answer for one partition of a Produce request.

    Attributes:
        error: why the batch was refused, with the broker's message; None if the batch was appended.
            If `error.may_have_been_written` is True, the batch may be in the log nevertheless.
        base_offset: offset of the first record; -1 if the batch was refused.
        log_append_time_ms: when the broker appended the records, if the topic has LogAppendTime;
            else -1.
        log_start_offset: the log start offset of the partition; -1 if the response lacks it.
        record_errors: the records because of which the batch was refused: their indexes in the
            batch, with a message or None (KIP-467). The other records may be sent again.
    """

    error: KafkaError | None
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: Mapping[int, str | None]


class ProduceOnce:
    """Sends single Produce requests on the shared produce connections of a cluster."""

    def __init__(self, engine: ClusterEngine) -> None:
        self._engine = engine
        # Kafka's format limits a batch and a record to INT32_MAX bytes. The caller limits the
        # memory.
        self._accumulator = Accumulator(
            batch_size=limits.INT32_MAX,
            buffer_memory=limits.INT64_MAX,
            max_record_bytes=limits.INT32_MAX,
        )
        self._turns: WeakKeyDictionary[Node, asyncio.Lock] = WeakKeyDictionary()
        """Calls for a node send their requests in the order in which they acquire its lock."""

    async def produce(
        self,
        batches: Mapping[P, BatchBuilder],
        *,
        node: int | TopicPartition,
        acks: object,
        timeout_ms: int | None,
        timeout: float | None,
    ) -> dict[P, ProduceResult]:
        """Send one request; the arguments and errors are those of `Cluster.produce`."""
        engine = self._engine
        engine.bind()
        required_acks = _acks(acks)
        seconds = engine.settings.request_timeout if timeout is None else timeout
        broker_ms = (
            int(seconds * 1000) if timeout_ms is None else limits.count(timeout_ms, "timeout_ms", 0)
        )
        builders = _checked(batches)
        receiver = self._receiver(node)
        built = {tp: self._build(tp, builder) for tp, builder in builders.items()}
        deadline = engine.now() + seconds
        limit = asyncio.timeout(seconds)
        connection: Connection | None = None
        response: ProduceResponse | None = None
        try:
            async with limit:
                connection, future, names = await self._send(
                    receiver, builders, built, required_acks, broker_ms, deadline
                )
                if future is None:
                    await connection.drain()
                else:
                    response = await future
        except TimeoutError as error:
            if not limit.expired():
                raise
            if connection is not None and required_acks == 0:
                # The connection expects no response, so it would not notice that the broker hangs.
                connection.abort(
                    ConnectionLost(f"closed: {receiver.name} read nothing for {seconds:g} s")
                )
            raise RequestTimeout(
                f"no response within {seconds:.3g} s",
                api="Produce",
                node=receiver.node_id,
                may_have_been_written=connection is not None,
            ) from (receiver.last_error or error)
        except ConnectionLost as error:
            for tp in built:
                engine.partition_failed(tp, error)
            raise
        except ProtocolError as error:
            if connection is None or error.may_have_been_written:
                raise
            # The broker has answered, so it may have appended the batches.
            raise ProtocolError(
                error.message, api="Produce", node=receiver.node_id, may_have_been_written=True
            ) from error
        except asyncio.CancelledError:
            if connection is not None:
                # Later requests use another connection, because on this connection their responses
                # would come after the response that nobody awaits.
                connection.retire()
            raise
        finally:
            for batch in built.values():
                batch.complete(-1)  # frees the memory
        if response is None:
            return {}
        results = self._results(receiver, built, response, names)
        return {key: results[TopicPartition(*key)] for key in batches}

    def _receiver(self, node: int | TopicPartition) -> Node:
        engine = self._engine
        if not isinstance(node, TopicPartition):
            return engine.node(limits.count(node, "node", 0))
        leader = engine.leader_node(node)
        if leader is not None:
            return leader
        if engine.metadata.partition(node) is None:
            raise UnknownTopicOrPartition(
                f"the metadata lacks {node}: call refresh({node.topic!r}) first",
                topic_partition=node,
            )
        raise LeaderNotAvailable(f"{node} has no leader", topic_partition=node)

    def _build(self, tp: TopicPartition, builder: BatchBuilder) -> Batch:
        return build_batch(
            self._accumulator,
            Slot(*tp),
            builder.parts,
            self._engine.environment.clock.timestamp_ms(),
            builder.size(),
        )

    async def _send(
        self,
        node: Node,
        builders: Mapping[TopicPartition, BatchBuilder],
        built: Mapping[TopicPartition, Batch],
        acks: int,
        timeout_ms: int,
        deadline: float,
    ) -> tuple[Connection, asyncio.Future[ProduceResponse] | None, Mapping[UUID, str]]:
        """Seal the batches and send the request on the node's connection.

        Returns:
            The connection; the future of the response, None with acks=0; and the topics' names by
            id.
        """
        turn = self._turns.get(node)
        if turn is None:
            turn = self._turns[node] = asyncio.Lock()
        async with turn:
            # The next call for the node waits until this request is sent, so that requests keep
            # their order.
            for tp, builder in builders.items():
                await self._seal(builder, built[tp])
            connection = await node.connection(Purpose.PRODUCE)
            await node.ready()
            version = self._version(node, connection, builders)
            request, version, names = self._request(built, acks, timeout_ms, version)
            if acks == 0:
                connection.send_no_reply(request, version=version)
                return connection, None, names
            remaining = max(0.0, deadline - self._engine.now())
            return connection, connection.send(request, timeout=remaining, version=version), names

    async def _seal(self, builder: BatchBuilder, batch: Batch) -> None:
        """Compress and seal a batch, as `BatchSealer` does for a Producer."""
        compression = builder.compression
        codec = compression.codec
        if codec == NONE:
            batch.seal()
            return
        payload = batch.payload()
        if batch.size < (GZIP_THRESHOLD if codec == GZIP else FAST_CODEC_THRESHOLD):
            data = compress(codec, payload, compression.level)
        else:
            offload = self._engine.environment.offload
            data = await offload.run(compress, codec, payload, compression.level)
        max_ratio = compression.max_ratio
        if max_ratio is not None and len(data) > max_ratio * len(payload):
            batch.seal()
        else:
            batch.seal(codec, data)

    @staticmethod
    def _version(
        node: Node, connection: Connection, builders: Mapping[TopicPartition, BatchBuilder]
    ) -> int:
        version = connection.version_for(ProduceRequest)
        if version < FIRST_WITH_BATCHES_V2:
            raise UnsupportedVersion(
                "the broker is older than 0.11 and does not support record batches of version 2",
                api="Produce",
                node=node.node_id,
            )
        if version < FIRST_WITH_ZSTD and any(
            builder.compression.codec == ZSTD for builder in builders.values()
        ):
            raise UnsupportedCompressionType(
                f"zstd needs Produce version {FIRST_WITH_ZSTD}, the broker has {version} (older "
                "than 2.1)",
                api="Produce",
                node=node.node_id,
            )
        return version

    def _request(
        self, built: Mapping[TopicPartition, Batch], acks: int, timeout_ms: int, version: int
    ) -> tuple[ProduceRequest, int, Mapping[UUID, str]]:
        engine = self._engine
        metadata = engine.metadata
        topics: dict[str, TopicProduceData] = {}
        for tp, batch in built.items():
            data = topics.get(tp.topic)
            if data is None:
                info = metadata.topics.get(tp.topic)
                engine.watched_topics.used(tp.topic, engine.now())
                data = topics[tp.topic] = TopicProduceData(
                    name=tp.topic,
                    topic_id=ZERO_ID if info is None else info.topic_id,
                    partition_data=[],
                )
            data.partition_data.append(
                PartitionProduceData(index=tp.partition, records=batch.stamp())
            )
        names: dict[UUID, str] = {}
        if version >= FIRST_WITH_TOPIC_IDS:
            names = {data.topic_id: topic for topic, data in topics.items()}
            if ZERO_ID in names:  # a topic is unknown, or the brokers have no ids
                version = FIRST_WITH_TOPIC_IDS - 1
        request = ProduceRequest(
            transactional_id=None,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=list(topics.values()),
        )
        return request, version, names

    def _results(
        self,
        node: Node,
        built: Mapping[TopicPartition, Batch],
        response: ProduceResponse,
        names: Mapping[UUID, str],
    ) -> dict[TopicPartition, ProduceResult]:
        answers: dict[tuple[str, int], PartitionProduceResponse] = {}
        for topic in response.responses:
            name = topic.name or names.get(topic.topic_id, "")
            for partition in topic.partition_responses:
                answers[name, partition.index] = partition
        return {tp: self._result(node, tp, answers.get(tp), response) for tp in built}

    def _result(
        self,
        node: Node,
        tp: TopicPartition,
        answer: PartitionProduceResponse | None,
        response: ProduceResponse,
    ) -> ProduceResult:
        if answer is None:
            missing = ProtocolError(
                f"the broker's response does not mention {tp}",
                api="Produce",
                node=node.node_id,
                topic_partition=tp,
                may_have_been_written=True,
            )
            return ProduceResult(missing, -1, -1, -1, {})
        error: KafkaError | None = None
        if answer.error_code:
            error = error_for(
                answer.error_code,
                answer.error_message,
                api="Produce",
                node=node.node_id,
                topic_partition=tp,
            )
            name_denial(self._engine, error)
            self._engine.partition_failed(tp, error, hint=_hint(answer, response))
        else:
            self._engine.partition_ok(tp)
        return ProduceResult(
            error,
            answer.base_offset if error is None else -1,
            answer.log_append_time_ms,
            answer.log_start_offset,
            {
                record.batch_index: record.batch_index_error_message
                for record in answer.record_errors
            },
        )


def _acks(acks: object) -> int:
    try:
        number = acks_as_number(acks)
    except ValueError as error:
        raise ConfigError(f"acks {error}") from None
    assert isinstance(number, int)
    return number


def _checked(
    batches: Mapping[P, BatchBuilder],
) -> dict[TopicPartition, BatchBuilder]:
    if not batches:
        raise ConfigError("there is no batch to produce")
    checked: dict[TopicPartition, BatchBuilder] = {}
    for key, builder in batches.items():
        tp = TopicPartition.of(key)
        if not isinstance(builder, BatchBuilder):
            raise TypeError(f"the batch of {tp} is {builder!r}, not a BatchBuilder")
        if not len(builder):
            raise ConfigError(f"the batch of {tp} is empty: append records to it first")
        builder.close()
        checked[tp] = builder
    return checked


def _hint(answer: PartitionProduceResponse, response: ProduceResponse) -> LeaderHint | None:
    """Return the new leader, if the response names it (KIP-951)."""
    leader = answer.current_leader
    if leader is None or leader.leader_id < 0:
        return None
    broker = next(
        (
            BrokerInfo(node.node_id, node.host, node.port, node.rack)
            for node in response.node_endpoints
            if node.node_id == leader.leader_id
        ),
        None,
    )
    return LeaderHint(leader.leader_id, leader.leader_epoch, broker)
