"""TransactionRequests: creates and sends the requests of a transactional producer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from aiokq.cluster.targets import Coordinator, CoordinatorKind
from aiokq.core.errors import KafkaError, OperationNotAttempted, UnsupportedVersion, error_for
from aiokq.producer.transactions.coordinator_requests import CoordinatorRequests
from aiokq.producer.transactions.error_kinds import ErrorKind, kind_of_code, may_be_carried_out
from aiokq.wire.add_offsets_to_txn import AddOffsetsToTxnRequest
from aiokq.wire.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from aiokq.wire.end_txn import EndTxnRequest
from aiokq.wire.init_producer_id import InitProducerIdRequest
from aiokq.wire.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.core.types import GroupMetadata, OffsetAndMetadata, TopicPartition
    from aiokq.producer.idempotence import ProducerId
    from aiokq.producer.values import ProducerValues

__all__ = ["TransactionRequests"]

NO_PRODUCER: Final = (-1, -1)

FIRST_INIT_WITH_PRODUCER: Final = 3
FIRST_OFFSETS_WITH_MEMBER: Final = 3
NEWEST_CLIENT_ADD_PARTITIONS: Final = 3
NEWEST_END_WITHOUT_BUMP: Final = 4
NEWEST_OFFSETS_WITHOUT_ADDITION: Final = 4

GRAVITY: Final = (
    ErrorKind.RETRY,
    ErrorKind.FIND,
    ErrorKind.ABORT,
    ErrorKind.FINISHED,
    ErrorKind.INVALID,
)


class TransactionRequests:
    """Sends the requests of one transactional id.

    Each method repeats its request after retriable errors until its `timeout` is over; without this
    argument, until `max_block_ms` is over. The methods raise the errors of
    `CoordinatorRequests.send`.
    """

    def __init__(self, settings: ProducerValues, engine: ClusterEngine) -> None:
        assert settings.transactional_id is not None
        self._id = settings.transactional_id
        self._timeout_ms = settings.transaction_timeout_ms
        self._timeout = settings.max_block
        self._send = CoordinatorRequests(settings, engine).send
        self._coordinator = Coordinator(CoordinatorKind.TRANSACTION, self._id)

    async def initialize(
        self, producer: ProducerId | None, *, timeout: float | None = None
    ) -> tuple[int, int]:
        """Send InitProducerId; return the new producer id and epoch.

        Args:
            producer: the current id and epoch; the request makes this epoch invalid. None if the
                producer has no id yet.
            timeout: seconds for all attempts together; None for `max_block_ms`.
        """

        def make(version: int) -> InitProducerIdRequest:
            if producer is not None and version < FIRST_INIT_WITH_PRODUCER:
                # The request has no fields for id and epoch. The broker would therefore give a
                # new epoch even to a fenced producer, and so fence the producer's successor.
                raise UnsupportedVersion(
                    "the broker is older than 2.5 and cannot give this producer another epoch, "
                    "which it needs after a request that failed or was not answered",
                    api="InitProducerId",
                )
            producer_id, epoch = producer or NO_PRODUCER
            return InitProducerIdRequest(
                transactional_id=self._id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
            )

        response = await self._send(
            make,
            InitProducerIdRequest,
            self._coordinator,
            lambda answer: _error(answer.error_code, "InitProducerId"),
            timeout=self._timeout if timeout is None else timeout,
        )
        return response.producer_id, response.producer_epoch

    async def add_partitions(
        self,
        producer: ProducerId,
        partitions: Collection[TopicPartition],
        *,
        on_lost: Callable[[], None],
    ) -> None:
        """Add partitions to the transaction.

        Args:
            on_lost: called for each attempt that failed, but may have been carried out.
        """
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for tp in partitions:
            topics.setdefault(tp.topic, AddPartitionsToTxnTopic(name=tp.topic)).partitions.append(
                tp.partition
            )

        def make(version: int) -> AddPartitionsToTxnRequest:
            return AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=list(topics.values()),
            )

        await self._send(
            make,
            AddPartitionsToTxnRequest,
            self._coordinator,
            _error_of_partitions,
            timeout=self._timeout,
            newest=NEWEST_CLIENT_ADD_PARTITIONS,
            on_lost=on_lost,
        )

    async def add_offsets(
        self,
        producer: ProducerId,
        group_id: str,
        *,
        timeout: float,
        on_lost: Callable[[], None],
    ) -> None:
        """Add the offsets of a group to the transaction.

        Args:
            timeout: seconds, for all attempts.
            on_lost: called for each attempt that failed, but may have been carried out.
        """

        def make(version: int) -> AddOffsetsToTxnRequest:
            return AddOffsetsToTxnRequest(
                transactional_id=self._id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                group_id=group_id,
            )

        await self._send(
            make,
            AddOffsetsToTxnRequest,
            self._coordinator,
            lambda answer: _error(answer.error_code, "AddOffsetsToTxn"),
            timeout=timeout,
            group_id=group_id,
            on_lost=on_lost,
        )

    async def commit_offsets(
        self,
        producer: ProducerId,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: GroupMetadata,
        *,
        adds: bool,
        timeout: float,
        on_lost: Callable[[], None],
    ) -> int:
        """Commit offsets as part of the transaction; return the number of attempts.

        Args:
            adds: whether the request also adds the offsets to the transaction.
            timeout: seconds, for all attempts.
            on_lost: called for each attempt that failed, but may have been carried out.
        """
        attempts = 0
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for tp, offset in offsets.items():
            topic = topics.setdefault(tp.topic, TxnOffsetCommitRequestTopic(name=tp.topic))
            epoch = offset.leader_epoch
            topic.partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=tp.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=-1 if epoch is None else epoch,
                    committed_metadata=offset.metadata,
                )
            )

        def make(version: int) -> TxnOffsetCommitRequest:
            nonlocal attempts
            attempts += 1
            request = TxnOffsetCommitRequest(
                transactional_id=self._id,
                group_id=member.group_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                topics=list(topics.values()),
            )
            if version < FIRST_OFFSETS_WITH_MEMBER:
                if member.member_id:
                    # The request has no field for the member, so a removed member could
                    # overwrite the offsets of its successor.
                    raise UnsupportedVersion(
                        "the broker is older than 2.5 and does not check the member of a group "
                        "whose offsets are part of a transaction: send_offsets(offsets, group_id)",
                        api="TxnOffsetCommit",
                    )
            else:
                request.generation_id = member.generation
                request.member_id = member.member_id
                request.group_instance_id = member.group_instance_id
            return request

        await self._send(
            make,
            TxnOffsetCommitRequest,
            Coordinator(CoordinatorKind.GROUP, member.group_id),
            _error_of_offsets,
            timeout=timeout,
            newest=None if adds else NEWEST_OFFSETS_WITHOUT_ADDITION,
            group_id=member.group_id,
            on_lost=on_lost,
        )
        return attempts

    async def end(
        self,
        producer: ProducerId,
        *,
        committed: bool,
        bumps: bool,
        timeout: float,
        on_lost: Callable[[], None] | None = None,
        attempting: Callable[[], None] | None = None,
    ) -> tuple[int, int] | None:
        """Send EndTxn; return the producer id and epoch in the response.

        The result is None if the response contains no producer id, or if `bumps` is False.

        Args:
            bumps: whether the coordinator is to bump the epoch.
            timeout: seconds, for all attempts.
            on_lost: called for each attempt that failed, but may have been carried out.
            attempting: called before each attempt; its exceptions propagate.
        """

        def make(version: int) -> EndTxnRequest:
            if attempting is not None:
                attempting()
            return EndTxnRequest(
                transactional_id=self._id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                committed=committed,
            )

        response = await self._send(
            make,
            EndTxnRequest,
            self._coordinator,
            lambda answer: _error(answer.error_code, "EndTxn"),
            timeout=timeout,
            newest=None if bumps else NEWEST_END_WITHOUT_BUMP,
            on_lost=on_lost,
        )
        if not bumps or response.producer_id < 0:
            return None
        return response.producer_id, response.producer_epoch


def _error(code: int, api: str) -> KafkaError | None:
    if not code:
        return None
    error = error_for(code, api=api)
    error.may_have_been_written = may_be_carried_out(code)
    return error


def _error_of_partitions(response: AddPartitionsToTxnResponse) -> KafkaError | None:
    """Return the gravest error of the partitions; None if no partition has an error."""
    return _gravest(
        "AddPartitionsToTxn",
        [
            (partition.partition_error_code, topic.name)
            for topic in response.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        ],
    )


def _error_of_offsets(response: TxnOffsetCommitResponse) -> KafkaError | None:
    return _gravest(
        "TxnOffsetCommit",
        [
            (partition.error_code, topic.name)
            for topic in response.topics
            for partition in topic.partitions
        ],
    )


def _gravest(api: str, answers: Sequence[tuple[int, str]]) -> KafkaError | None:
    """Return the error whose kind comes last in `GRAVITY`; None if no answer has an error.

    A refusal comes after retriable errors in `GRAVITY`, because a retry would hide the refusal.
    OPERATION_NOT_ATTEMPTED is returned only if there is no other error, because it only says that
    the broker refused another partition.
    """
    failed = [answer for answer in answers if answer[0]]
    if not failed:
        return None
    refused = [answer for answer in failed if answer[0] != OperationNotAttempted.code]
    code, topic = max(
        refused or failed, key=lambda answer: GRAVITY.index(kind_of_code(api, answer[0]))
    )
    error = error_for(code, topic_partition=topic, api=api)
    error.may_have_been_written = any(may_be_carried_out(code) for code, _ in failed)
    return error
