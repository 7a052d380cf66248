"""Produce (0), the fast path: requests whose batches are all stored without conversion.

Almost all requests are of this kind. Such a request is decoded, checked, appended and answered in
one iteration of the event loop. A request takes the fast path with all of its batches or not at
all. Every request that is not ordinary is left unchanged to `h00_produce`.

A request is ordinary if it is not larger than `APPENDED_BYTES_PER_TURN`, `fastpath.read_produced`
can read it, `admit` lets every batch be stored unchanged, and every partition acknowledges
immediately. Nothing is awaited between the check of the in-sync replicas and the response, so
acks=all needs no second check.

A transactional batch is ordinary if the log has the producer's open transaction, or if the
transaction coordinator can add the partition to the transaction at once. The addition requires
request version 12 or later, and no authorizer. All partitions of a request are added together,
before the first append.

The gate authorizes the client last, when the request is known to be ordinary, so that no request is
authorized on both paths. This module refuses the batches that the client may not write.

Tests: tests/unit/broker/handlers/test_ordinary_produce.py, tests/property/test_ordinary_produce.py.
"""

# Hot path, measured by benchmarks/raw_load.py. The code uses few objects: the records of the
# previous request have filled the processor's caches, so the first use of each object is a cache
# miss.

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokq.broker.coordinator.shard import TransactionalProducer
from aiokq.broker.handlers.h00_produce import (
    FIRST_THAT_ADDS_PARTITIONS,
    NO_ANSWER_POSSIBLE,
    refusal,
)
from aiokq.broker.log.appending import OrdinaryAppend
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.broker.replica.admission import admit
from aiokq.connection.request_context import CloseConnection
from aiokq.connection.turn import APPENDED_BYTES_PER_TURN
from aiokq.core.errors import BrokerError
from aiokq.fastpath.broker import read_produced
from aiokq.records.header import BatchHeader
from aiokq.wire.frames import decode_request_header, encode_response
from aiokq.wire.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from aiokq.wire.produced import AppendedBatch, encode_appended

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiokq.broker.gate import Gate
    from aiokq.broker.handlers.areas import Admission, Topics
    from aiokq.broker.handlers.h00_produce import Joining
    from aiokq.broker.log.appending import AppendResult
    from aiokq.broker.replica.partition import Partition
    from aiokq.connection.request_context import RequestContext
    from aiokq.core.clock import Clock
    from aiokq.core.counters import BrokerCounters
    from aiokq.fastpath.broker import ProducedBatch
    from aiokq.wire.fields import Fragment

TopicAppends: TypeAlias = "tuple[str | bytes, list[tuple[Partition, OrdinaryAppend]]]"
"""A topic by the name or id in the request, and the appends to its partitions."""

PermittedAppends: TypeAlias = (
    "tuple[str | bytes, Sequence[tuple[Partition | _DeniedPartition, OrdinaryAppend]]]"
)
"""TopicAppends with a `_DeniedPartition` in place of each partition that may not be written."""

PRODUCE: Final = 0

_header: Final = tuple.__new__


class _DeniedPartition:
    """A partition to which the client may not write: it refuses every append."""

    __slots__ = ("_refusal", "index")

    def __init__(self, index: int, refusal: type[BrokerError]) -> None:
        self.index = index
        self._refusal = refusal

    def append_prepared(self, append: OrdinaryAppend) -> AppendResult:
        raise self._refusal


class OrdinaryProduce:
    """The handler of ordinary Produce requests.

    Attributes:
        appended: number of batches that the last request appended.
    """

    __slots__ = ("_admission", "_clock", "_counters", "_gate", "_topics", "appended")

    def __init__(
        self,
        topics: Topics,
        admission: Admission,
        clock: Clock,
        gate: Gate,
        counters: BrokerCounters,
    ) -> None:
        self._topics = topics
        self._admission = admission
        self._clock = clock
        self._gate = gate
        self._counters = counters
        self.appended = 0

    def answer(self, context: RequestContext, frame: memoryview) -> list[Fragment] | None:
        """Append the batches of an ordinary request; append nothing for any other request.

        Returns:
            The encoded response, which is empty for acks=0; None if the request is not ordinary.

        Raises:
            CloseConnection: a batch sent with acks=0 was refused.
        """
        self.appended = 0
        if len(frame) > APPENDED_BYTES_PER_TURN:
            return None
        request = read_produced(frame)
        if request is None:
            return None
        version, correlation_id, transactional_id, acks, topics = request
        joining: Joining = {}
        ordinary = self._appends(topics, acks, version, joining, transactional_id)
        if ordinary is None or (joining and not self._join(transactional_id, joining)):
            return None
        appends: Sequence[PermittedAppends] = ordinary
        if self._gate.authorizer is not None:
            appends = self._permitted(context, ordinary, transactional_id)
        counters = self._counters
        answers: list[tuple[str | bytes, list[AppendedBatch]]] = []
        refused: dict[tuple[int, int], PartitionProduceResponse] = {}
        batches = records = nbytes = 0
        for name, of_topic in appends:
            appended: list[AppendedBatch] = []
            answers.append((name, appended))
            for partition, append in of_topic:
                try:
                    result = partition.append_prepared(append)
                except BrokerError as error:
                    counters.errors[error.name] += 1
                    # Keep the response, not the error. The error's traceback refers to this stack
                    # frame, so only garbage collection would free the memory of the request.
                    refused[len(answers) - 1, len(appended)] = refusal(partition.index, error)
                    appended.append((partition.index, -1, -1))
                    continue
                if not result.duplicate:
                    batches += 1
                    records += append.count
                    nbytes += append.size
                appended.append((partition.index, result.base_offset, result.log_start_offset))
        self.appended = batches
        counters.batches_appended += batches
        counters.records_appended += records
        counters.record_bytes_appended += nbytes
        throttle_ms = 0
        if self._gate.quotas is not None:
            client_id = decode_request_header(frame).client_id
            throttle_ms = self._gate.throttle_ms(
                context, PRODUCE, client_id, len(frame), answered=acks != 0
            )
        if acks == 0:
            if refused:
                raise CloseConnection(NO_ANSWER_POSSIBLE)
            return []
        if refused:
            response = _response(answers, refused)
            response.throttle_time_ms = throttle_ms
            return encode_response(response, version=version, correlation_id=correlation_id)
        return [encode_appended(version, correlation_id, answers, throttle_ms)]

    def _appends(
        self,
        topics: Sequence[tuple[str | bytes, Sequence[ProducedBatch]]],
        acks: int,
        version: int,
        joining: Joining,
        transactional_id: str | None,
    ) -> list[TopicAppends] | None:
        """Return the appends of a request; None if the request is not ordinary.

        Partitions that must be added to a transaction before the append are put into `joining`.
        """
        registry = self._topics
        now_ms = self._clock.timestamp_ms()
        appends: list[TopicAppends] = []
        for name, batches in topics:
            if isinstance(name, str):
                topic = registry.get(name)
            else:
                topic = registry.by_id(uuid.UUID(bytes=name))
            if topic is None:
                return None
            of_topic: list[tuple[Partition, OrdinaryAppend]] = []
            appends.append((name, of_topic))
            for index, records, fields in batches:
                partition = topic.partition(index)
                if partition is None:
                    return None
                header = _header(BatchHeader, fields)
                try:
                    if admit(partition, header, acks, now_ms) is not None:
                        return None
                except BrokerError:  # `h00_produce` finds the error again and reports it
                    return None
                if partition.commits_late(acks):
                    return None
                if header.is_transactional and (
                    transactional_id is None
                    or not _is_expected(partition, header, version, joining)
                ):
                    return None
                of_topic.append((partition, OrdinaryAppend(records, header, now_ms)))
        return appends

    def _join(self, transactional_id: str | None, joining: Joining) -> bool:
        """Add the partitions in `joining` to the transaction, if nothing has to be awaited.

        With an authorizer nothing is added, because the client is authorized later. Nothing is
        added either if the request has no transactional id, or batches of several producers.

        Returns:
            Whether the partitions were added.
        """
        if not transactional_id or len(joining) > 1 or self._gate.authorizer is not None:
            return False
        [(producer, partitions)] = joining.items()
        return self._admission.add_now(transactional_id, producer, partitions)

    def _permitted(
        self,
        context: RequestContext,
        appends: Sequence[TopicAppends],
        transactional_id: str | None,
    ) -> list[PermittedAppends]:
        """Authorize the transactional id, then the topics.

        If a batch is transactional and the transactional id is denied, all batches are denied. Each
        partition that the client may not write is replaced by a `_DeniedPartition`.
        """
        gate = self._gate
        transaction = PRODUCE, Operation.WRITE, ResourceType.TRANSACTIONAL_ID
        topic = PRODUCE, Operation.WRITE, ResourceType.TOPIC
        every = [each for _, of_topic in appends for each in of_topic]
        denied: type[BrokerError] | None = None
        if transactional_id is not None and any(append.is_transactional for _, append in every):
            permitted = gate.authorize(context, *transaction, (transactional_id,))
            if not permitted:
                gate.denied(context, *transaction, transactional_id)
                denied = gate.row(*transaction).refusal
        names = set() if denied else {partition.topic.name for partition, _ in every}
        permitted = gate.authorize(context, *topic, names)
        refusal = gate.row(*topic).refusal
        for name in names:
            if name not in permitted:
                gate.denied(context, *topic, name)

        def permit(partition: Partition) -> Partition | _DeniedPartition:
            if denied is not None:
                return _DeniedPartition(partition.index, denied)
            if partition.topic.name not in permitted:
                return _DeniedPartition(partition.index, refusal)
            return partition

        return [
            (name, [(permit(partition), append) for partition, append in of_topic])
            for name, of_topic in appends
        ]


def _is_expected(partition: Partition, header: BatchHeader, version: int, joining: Joining) -> bool:
    """Whether a batch continues the producer's open transaction in the partition, or may begin one.

    If the batch may begin a transaction there, the partition is put into `joining`.
    """
    producers = partition.log.producers
    producer_id, producer_epoch = header.producer_id, header.producer_epoch
    adds = version >= FIRST_THAT_ADDS_PARTITIONS
    continues = producers.in_transaction(producer_id, producer_epoch)
    if not continues and (not adds or producers.is_unverified(producer_id)):
        return False
    if adds:
        try:
            producers.check_epoch(producer_id, producer_epoch)
            producers.check_start(header)
        except BrokerError:  # `h00_produce` finds the error again and reports it
            return False
    if not continues:
        producer = TransactionalProducer(producer_id, producer_epoch)
        joining.setdefault(producer, []).append(partition.name)
    return True


def _response(
    answers: Sequence[tuple[str | bytes, Sequence[AppendedBatch]]],
    refused: Mapping[tuple[int, int], PartitionProduceResponse],
) -> ProduceResponse:
    """Return the response to a request of which at least one batch was refused."""
    response = ProduceResponse(responses=[])
    for number, (name, appended) in enumerate(answers):
        of_topic = TopicProduceResponse(partition_responses=[])
        if isinstance(name, str):
            of_topic.name = name
        else:
            of_topic.topic_id = uuid.UUID(bytes=name)
        response.responses.append(of_topic)
        for at, (index, base_offset, log_start_offset) in enumerate(appended):
            of_topic.partition_responses.append(
                refused.get((number, at))
                or PartitionProduceResponse(
                    index=index,
                    error_code=0,
                    base_offset=base_offset,
                    log_start_offset=log_start_offset,
                )
            )
    return response
