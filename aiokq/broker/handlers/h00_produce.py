"""Produce (0), versions 3-13, 0-2 with `legacy`: append record batches to partitions.

The batch of each partition is appended or refused independently of other batches. With acks=all the
response waits until the high watermark has passed the batches, at most for the request's timeout.
With acks=1 and acks=all it also waits for the leader's flush policy, without a timeout. With acks=0
there is no response, and an error closes the connection. Versions 0-2 are always advertised;
without the broker setting `legacy`, each partition of such a request gets UNSUPPORTED_VERSION. With
`legacy`, records in message formats 0 and 1 are accepted and stored in format 2.

Errors of a partition: CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER,
REQUEST_TIMED_OUT, MESSAGE_TOO_LARGE, INVALID_TOPIC_EXCEPTION, RECORD_LIST_TOO_LARGE,
NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND, INVALID_REQUIRED_ACKS,
TOPIC_AUTHORIZATION_FAILED, INVALID_TIMESTAMP, UNSUPPORTED_VERSION, OUT_OF_ORDER_SEQUENCE_NUMBER,
INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
KAFKA_STORAGE_ERROR, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD, UNKNOWN_TOPIC_ID,
TRANSACTION_ABORTABLE. `transaction_admission` lists the errors of transactional batches.

v1   throttle time            v7   zstd                  v10  leaders (KIP-951)
v2   append time              v8   errors of records     v11  TRANSACTION_ABORTABLE
v3   format v2, transactions  v9   flexible              v12  adds partitions to transactions
v5   log start offset                                    v13  topic ids
"""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokq.broker.coordinator.shard import TransactionalProducer
from aiokq.broker.handlers.decisions import Decisions
from aiokq.broker.handlers.transaction_admission import TransactionRules, join_transaction
from aiokq.broker.log.appending import prepare_append
from aiokq.broker.log.producer_state import Origin
from aiokq.broker.log.validation import (
    InvalidRecords,
    InvalidTimestamps,
    produced_headers,
)
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.broker.replica.admission import Preparation, admit
from aiokq.broker.response_errors import count_errors
from aiokq.connection.request_context import CloseConnection
from aiokq.connection.turn import APPENDED_BYTES_PER_TURN, BATCHES_PER_REQUEST
from aiokq.core.errors import (
    BrokerError,
    InvalidRecord,
    InvalidRequiredAcks,
    TransactionalIdAuthorization,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from aiokq.core.named_tuple import NamedTuple
from aiokq.records.header import HEADER_SIZE, TRANSACTIONAL_MASK, read_header
from aiokq.records.record import RawRecord, encode_batch
from aiokq.wire.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokq.broker.handlers.areas import Admission, Configs, Host, Topics
    from aiokq.broker.handlers.call import Call
    from aiokq.broker.log.appending import PreparedAppend
    from aiokq.broker.log.config import LogConfig
    from aiokq.broker.replica.partition import Partition
    from aiokq.connection.turn import Turn
    from aiokq.core.counters import BrokerCounters
    from aiokq.core.types import TopicPartition
    from aiokq.records.header import BatchHeader

FIRST_V2_VERSION: Final = 3
FIRST_WITH_TRANSACTION_ABORTABLE: Final = 11
FIRST_THAT_ADDS_PARTITIONS: Final = 12
FIRST_WITH_TOPIC_IDS: Final = 13
MAGIC_POSITION: Final = 16
ATTRIBUTES_POSITION: Final = 22  # the low byte of the attributes

NO_ANSWER_POSSIBLE: Final = "a batch sent with acks=0 was refused"

ADMIN_CLIENT_ID: Final = "__admin_client"
"""The only client id that may write to internal topics, by Kafka's convention."""


Joining: TypeAlias = "dict[TransactionalProducer, list[TopicPartition]]"
"""For each producer, the partitions that may have to be added to the producer's transaction."""


class _Appended(NamedTuple):
    """A batch that was appended, and the response to send when the batch may be acknowledged."""

    partition: Partition
    end_offset: int
    leader_epoch: int
    response: PartitionProduceResponse


class _Permits(NamedTuple):
    """The decisions about the topics and transactional ids that the client may write to."""

    topic: Decisions
    transactional_id: Decisions


async def handle(
    topics: Topics,
    admission: Admission,
    configs: Configs,
    host: Host,
    turn: Turn,
    request: ProduceRequest,
    call: Call,
) -> ProduceResponse | None:
    """Append each partition's batch. A refused batch does not affect other batches."""
    # Hot path, measured by benchmarks/raw_load.py.
    refused = False
    batches = 0
    share = turn.share(APPENDED_BYTES_PER_TURN)
    permits = _Permits(
        Decisions(call, Operation.WRITE, ResourceType.TOPIC),
        Decisions(call, Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
    )
    denial = _denial_of_transaction(request, permits)
    joining: Joining = {}
    if (
        denial is None
        and call.version >= FIRST_THAT_ADDS_PARTITIONS
        and request.transactional_id is not None
    ):
        joining = await _joining(topics, request, call, permits)
    answered = []
    appended: list[_Appended] = []
    for topic in request.topic_data:
        responses = []
        for data in topic.partition_data:
            try:
                if denial is not None:
                    raise denial()
                done = await _append(
                    topics,
                    admission,
                    configs,
                    host,
                    request,
                    topic,
                    data,
                    call,
                    permits,
                    joining,
                )
                appended.append(done)
                response = done.response
            except BrokerError as error:
                refused = True
                response = refusal(data.index, error)
            responses.append(response)
            batches += 1
            nbytes = 0 if data.records is None else len(data.records)
            if share.spend(int(batches % BATCHES_PER_REQUEST == 0), nbytes):
                await share.next()
        answered.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=responses
            )
        )
    if request.acks == 0:
        if refused:
            # With acks=0, no response can carry the error, but closing the connection makes the
            # client refresh its metadata. Other errors are counted when their response is sent;
            # these are counted here, because no response is sent.
            count_errors(call.counters.errors, ProduceResponse(responses=answered))
            raise CloseConnection(NO_ANSWER_POSSIBLE)
        return None
    deadline = asyncio.get_running_loop().time() + request.timeout_ms / 1000
    # All batches were appended before the first wait, so that they can share a flush.
    for partition, end_offset, epoch, response in appended:
        try:
            await partition.commits.acknowledged(end_offset, request.acks, epoch, deadline)
        except BrokerError as error:
            response.error_code, response.error_message = error.code, error.message
            response.base_offset = response.log_append_time_ms = response.log_start_offset = -1
    return ProduceResponse(responses=answered)


def _denial_of_transaction(
    request: ProduceRequest, permits: _Permits
) -> Callable[[], BrokerError] | None:
    """Return the error of all batches if one is transactional and its transactional id is denied.

    A transactional batch without a transactional id is denied, too. Returns None if no batch is
    transactional, or if the client may use the transactional id.
    """
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = memoryview(b"" if data.records is None else data.records)  # type: ignore[arg-type]
            if not _is_transactional(records):
                continue
            if request.transactional_id is None:
                return functools.partial(
                    TransactionalIdAuthorization,
                    "a transactional batch without a transactional id",
                )
            try:
                permits.transactional_id.check(request.transactional_id)
            except BrokerError as error:
                return type(error)
            return None  # one check is enough, because a request has one transactional id
    return None


async def _append(
    topics: Topics,
    admission: Admission,
    configs: Configs,
    host: Host,
    request: ProduceRequest,
    topic: TopicProduceData,
    data: PartitionProduceData,
    call: Call,
    permits: _Permits,
    joining: Joining,
) -> _Appended:
    """Append one partition's batch, after the checks in Kafka's order."""
    # Hot path, measured by benchmarks/micro/produce.py.
    version = call.version
    records = memoryview(b"" if data.records is None else data.records)  # type: ignore[arg-type]
    if version < FIRST_V2_VERSION and not configs.settings.legacy:
        raise UnsupportedVersion(
            f"Produce version {version}, which has message formats 0 and 1, is served only with "
            "the broker setting legacy=true"
        )
    transactional = _is_transactional(records)
    permits.topic.check(_name(topics, topic, version))
    if request.acks not in (-1, 0, 1):
        raise InvalidRequiredAcks(f"acks must be -1, 0 or 1, not {request.acks}")
    partition = _find(topics, topic, data.index, version)
    if version < FIRST_V2_VERSION:
        records = await _convert_up(host, records)
        headers = produced_headers(records, FIRST_V2_VERSION)
    else:
        headers = produced_headers(records, version)
    now_ms = host.clock.timestamp_ms()
    by_admin = call.client_id == ADMIN_CLIENT_ID
    prepared: PreparedAppend | None = None
    config: LogConfig | None = None
    while True:
        if transactional:
            await _join_transaction(
                admission, configs, partition, headers[0], request, version, joining, call.counters
            )
        preparation = admit(partition, headers[0], request.acks, now_ms, by_admin=by_admin)
        if preparation is not Preparation.OFF_THE_LOOP:
            result = partition.append(records, headers, now_ms=now_ms)
            break
        if prepared is not None and config is partition.topic.config:
            result = partition.append_prepared(prepared)
            break
        config = partition.topic.config
        prepared = await host.offload.run(
            functools.partial(
                prepare_append,
                records,
                headers,
                config,
                now_ms=now_ms,
                origin=Origin.CLIENT,
                crc32c=host.crc32c,
            )
        )
        # While the batch was prepared, the topic may have been deleted, its settings may have
        # changed, or replicas may have left the ISR.
        partition = _find(topics, topic, data.index, version)
    counters = call.counters
    if not result.duplicate:
        counters.batches_appended += len(headers)
        counters.records_appended += headers[0].count
        counters.record_bytes_appended += len(records)
    response = PartitionProduceResponse(
        index=data.index,
        error_code=0,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
    )
    return _Appended(partition, result.last_offset + 1, partition.leader_epoch, response)


async def _join_transaction(
    admission: Admission,
    configs: Configs,
    partition: Partition,
    header: BatchHeader,
    request: ProduceRequest,
    version: int,
    joining: Joining,
    counters: BrokerCounters,
) -> None:
    """Ensure that the partition is in the transaction of a batch.

    The function does not await after the last check, so the caller may append immediately.

    Raises:
        BrokerError: see `join_transaction`, and from version 12 on `ProducerState.check_start`.
    """
    assert request.transactional_id is not None
    adds = version >= FIRST_THAT_ADDS_PARTITIONS
    producer = TransactionalProducer(header.producer_id, header.producer_epoch)
    await join_transaction(
        admission,
        configs,
        partition,
        request.transactional_id,
        producer,
        TransactionRules(adds, version >= FIRST_WITH_TRANSACTION_ABORTABLE),
        counters,
        joining.get(producer, ()),
    )
    if adds:
        partition.log.producers.check_start(header)


async def _joining(
    topics: Topics, request: ProduceRequest, call: Call, permits: _Permits
) -> Joining:
    """Return, for each producer, the partitions in which a batch may begin a transaction.

    The partitions are added to the transaction together, before the first of these batches is
    appended.
    """
    found: Joining = {}
    version, pace = call.version, call.pace
    for topic in request.topic_data:
        for data in topic.partition_data:
            if pace.spend():
                await pace.next()
            records = memoryview(b"" if data.records is None else data.records)  # type: ignore[arg-type]
            if not _is_transactional(records):
                continue
            try:
                permits.topic.check(_name(topics, topic, version))
                partition = _find(topics, topic, data.index, version)
                header = read_header(records)
                producer = TransactionalProducer(header.producer_id, header.producer_epoch)
                producers = partition.log.producers
                producers.check_epoch(*producer)
                if not producers.in_transaction(*producer) and not producers.is_unverified(
                    header.producer_id
                ):
                    found.setdefault(producer, []).append(partition.name)
            except BrokerError:
                continue  # `_append` finds the error again and reports it
    return found


def _is_transactional(records: memoryview) -> bool:
    """Return whether the first batch is transactional; later checks refuse malformed batches."""
    return (
        len(records) >= HEADER_SIZE
        and records[MAGIC_POSITION] == 2
        and records[ATTRIBUTES_POSITION] & TRANSACTIONAL_MASK != 0
    )


def _name(topics: Topics, topic: TopicProduceData, version: int) -> str:
    """Return the name of a requested topic.

    Raises:
        UnknownTopicId: no topic has the id.
    """
    if version < FIRST_WITH_TOPIC_IDS:
        return topic.name
    found = topics.by_id(topic.topic_id)
    if found is None:
        raise UnknownTopicId()
    return found.name


def _find(topics: Topics, topic: TopicProduceData, index: int, version: int) -> Partition:
    if version >= FIRST_WITH_TOPIC_IDS:
        found = topics.by_id(topic.topic_id)
        if found is None:
            raise UnknownTopicId()
        partition = found.partition(index)
    else:
        partition = topics.partition(topic.name, index)
    if partition is None:
        raise UnknownTopicOrPartition()
    return partition


def refusal(index: int, error: BrokerError) -> PartitionProduceResponse:
    """Return the response for a partition whose batch was refused."""
    response = PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        error_message=error.message,
    )
    if isinstance(error, InvalidRecords | InvalidTimestamps):
        response.record_errors = [
            BatchIndexAndErrorMessage(
                batch_index=record.index, batch_index_error_message=record.message
            )
            for record in error.record_errors
        ]
    return response


async def _convert_up(host: Host, records: memoryview) -> memoryview:
    """Convert a message set of format 0 or 1 to one batch of format 2.

    The offsets in the set are numbered again from 0, because old producers write 0 everywhere.

    Raises:
        InvalidRecord: the set has no complete message.
        CorruptRecord: the set has no complete header, or a message is malformed, or its CRC-32 is
            wrong.
        RecordTooLarge: the decompressed content of a wrapper message is too large.
        UnsupportedCompressionType: a wrapper message has an unknown codec, or zstd.
    """
    from aiokq.records.legacy import decode_message_set

    def convert() -> bytes:
        numbered = (
            RawRecord(index, message.timestamp_ms, message.key, message.value)
            for index, message in enumerate(decode_message_set(records))
        )
        codec = read_header(records).codec
        try:
            return encode_batch(numbered, crc32c=host.crc32c, codec=codec)
        except ValueError:
            raise InvalidRecord("the message set contains no complete message") from None

    return memoryview(await host.offload.run(convert))
