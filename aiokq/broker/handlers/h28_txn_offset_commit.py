"""TxnOffsetCommit (28), versions 0-5: commit the offsets of a group as part of a transaction.

The offsets are pending until the transaction ends. The partition of `__consumer_offsets` that
coordinates the group must be in the transaction; from version 5 on, this request adds it (KIP-890).
If the request has a member id, the member is validated (KIP-447).

Errors of a partition: COORDINATOR_LOAD_IN_PROGRESS (COORDINATOR_NOT_AVAILABLE in request versions 0
and 1), COORDINATOR_NOT_AVAILABLE, CONCURRENT_TRANSACTIONS, FENCED_INSTANCE_ID,
GROUP_AUTHORIZATION_FAILED, ILLEGAL_GENERATION, INVALID_GROUP_ID, INVALID_PRODUCER_EPOCH,
INVALID_PRODUCER_ID_MAPPING, INVALID_REQUEST (an empty transactional id), INVALID_TXN_STATE
(TRANSACTION_ABORTABLE in request versions 4 and 5), NOT_COORDINATOR, OFFSET_METADATA_TOO_LARGE,
TOPIC_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, UNKNOWN_MEMBER_ID,
UNKNOWN_SERVER_ERROR (the records are larger than the coordinator's log accepts),
UNKNOWN_TOPIC_OR_PARTITION.

v2  leader epochs    v3  members, flexible    v4  TRANSACTION_ABORTABLE    v5  adds the partition
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.append_errors import coordinator_error
from aiokq.broker.coordinator.shard import TransactionalProducer
from aiokq.broker.handlers.decisions import Decisions
from aiokq.broker.handlers.group_calls import check_group_id
from aiokq.broker.handlers.transaction_admission import TransactionRules, join_transaction
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import (
    BrokerError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    UnknownTopicOrPartition,
)
from aiokq.wire.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Admission, Configs, Groups, Topics
    from aiokq.broker.handlers.call import Call

FIRST_WITH_LOAD_IN_PROGRESS: Final = 2
FIRST_WITH_TRANSACTION_ABORTABLE: Final = 4
FIRST_THAT_ADDS_PARTITIONS: Final = 5

PARTITIONS_AT_ONCE: Final = 512
"""Number of partitions whose offsets are committed before other tasks run."""


async def handle(
    topics: Topics,
    admission: Admission,
    groups: Groups,
    configs: Configs,
    request: TxnOffsetCommitRequest,
    call: Call,
) -> TxnOffsetCommitResponse:
    """Commit the offsets of permitted partitions that exist, and refuse the other partitions."""
    codes = await _refusals(topics, request, call)
    wanted = request.topics
    offsets: dict[tuple[str, int], TxnOffsetCommitRequestPartition] = {}
    for topic in wanted:
        async for each in call.each(topic.partitions):
            if (topic.name, each.partition_index) not in codes:
                offsets[topic.name, each.partition_index] = each
    if offsets:
        try:
            await _join(topics, admission, groups, configs, request, call)
            await _commit(groups, request, call, offsets, codes)
        except BrokerError as error:
            kind: BrokerError | type[BrokerError] = error
            if (
                isinstance(error, CoordinatorLoadInProgress)
                and call.version < FIRST_WITH_LOAD_IN_PROGRESS
            ):
                kind = CoordinatorNotAvailable  # the error in versions 0 and 1
            code = kind.code
            async for place in call.each(offsets):
                codes.setdefault(place, code)
    response = TxnOffsetCommitResponse()
    async for topic in call.each(wanted):
        answers = [
            TxnOffsetCommitResponsePartition(
                partition_index=each.partition_index,
                error_code=codes[topic.name, each.partition_index],
            )
            async for each in call.each(topic.partitions)
        ]
        response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers))
    return response


async def _refusals(
    topics: Topics, request: TxnOffsetCommitRequest, call: Call
) -> dict[tuple[str, int], int]:
    """Return the error codes of the partitions whose offsets cannot be committed."""
    codes: dict[tuple[str, int], int] = {}
    try:
        call.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        call.authorize(Operation.READ, ResourceType.GROUP, request.group_id)
    except BrokerError as error:
        code = error.code
        for topic in request.topics:
            async for each in call.each(topic.partitions):
                codes[topic.name, each.partition_index] = code
        return codes
    permits = Decisions(call, Operation.READ, ResourceType.TOPIC)
    for topic in request.topics:
        for each in topic.partitions:
            try:
                permits.check(topic.name)
                if topics.partition(topic.name, each.partition_index) is None:
                    raise UnknownTopicOrPartition()
            except BrokerError as error:
                codes[topic.name, each.partition_index] = error.code
            if call.pace.spend():
                await call.pace.next()
    return codes


async def _commit(
    groups: Groups,
    request: TxnOffsetCommitRequest,
    call: Call,
    offsets: dict[tuple[str, int], TxnOffsetCommitRequestPartition],
    codes: dict[tuple[str, int], int],
) -> None:
    """Write the offsets of partitions, and add the error codes to `codes`.

    Very many offsets are written in parts, so that other tasks run in between.

    Raises:
        BrokerError: see `CoordinatorRuntime.write` and `GroupShard.commit_transactional_offsets`.
            Partitions without a code were not written.
    """
    producer = TransactionalProducer(request.producer_id, request.producer_epoch)
    places = list(offsets)
    for begin in range(0, len(places), PARTITIONS_AT_ONCE):
        part: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for place in places[begin : begin + PARTITIONS_AT_ONCE]:
            part.setdefault(place[0], []).append(offsets[place])
        request.topics = [
            TxnOffsetCommitRequestTopic(name=name, partitions=partitions)
            for name, partitions in part.items()
        ]
        response = await groups.write(
            request.group_id,
            lambda shard, instant: shard.commit_transactional_offsets(
                request, call.version, instant
            ),
            producer=producer,
        )
        for answered in response.topics:
            for partition in answered.partitions:
                codes[answered.name, partition.partition_index] = partition.error_code
                call.counters.offsets_committed += not partition.error_code
        if call.pace.spend(PARTITIONS_AT_ONCE if len(places) > PARTITIONS_AT_ONCE else 1):
            await call.pace.next()


async def _join(
    topics: Topics,
    admission: Admission,
    groups: Groups,
    configs: Configs,
    request: TxnOffsetCommitRequest,
    call: Call,
) -> None:
    """Ensure that the group's partition is in the transaction.

    From version 5 on, the partition is added if it is not in the transaction.

    Raises:
        BrokerError: see `join_transaction`.
        InvalidGroupId: the group id is empty.
    """
    check_group_id(request.group_id)
    tp = await groups.partition_of(request.group_id)
    partition = topics.partition(tp.topic, tp.partition)
    if partition is None:
        raise NotCoordinator()
    producer = TransactionalProducer(request.producer_id, request.producer_epoch)
    version = call.version
    rules = TransactionRules(
        version >= FIRST_THAT_ADDS_PARTITIONS, version >= FIRST_WITH_TRANSACTION_ABORTABLE
    )
    try:
        await join_transaction(
            admission,
            configs,
            partition,
            request.transactional_id,
            producer,
            rules,
            call.counters,
        )
    except BrokerError as error:
        raise coordinator_error(error) from error
