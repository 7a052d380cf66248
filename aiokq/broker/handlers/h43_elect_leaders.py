"""ElectLeaders (43), versions 0-2: elect the preferred or another live replica as leader.

No election can change a leader, because this node is the only live broker. The response has an
error for each partition. If the request is for all partitions, partitions that have a leader are
left out.

Errors of a partition: UNKNOWN_TOPIC_OR_PARTITION, PREFERRED_LEADER_NOT_AVAILABLE,
ELIGIBLE_LEADERS_NOT_AVAILABLE, ELECTION_NOT_NEEDED.

Errors of the request, repeated for each partition: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST.
KIP-183, KIP-460.

v1  election type, and an error for the whole request   v2  flexible

Source: Kafka ``ReplicationControlManager.electLeaders``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import (
    BrokerError,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidRequest,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from aiokq.wire.elect_leaders import (
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiokq.broker.handlers.areas import Topics
    from aiokq.broker.handlers.call import Call

PREFERRED: Final = 0
UNCLEAN: Final = 1
FIRST_WITH_REQUEST_ERROR: Final = 1


async def handle(topics: Topics, request: ElectLeadersRequest, call: Call) -> ElectLeadersResponse:
    """Return the reason why no election is needed or possible, for each partition."""
    try:
        call.authorize(Operation.ALTER, ResourceType.CLUSTER)
    except BrokerError as denial:
        return await _refuse_all(request, denial, call)
    if request.election_type not in (PREFERRED, UNCLEAN):
        return await _refuse_all(
            request, InvalidRequest(f"Unknown election type {request.election_type}"), call
        )
    response = ElectLeadersResponse(error_code=0)
    for topic, partitions in _asked(topics, request):
        result = ReplicaElectionResult(topic=topic)
        for partition in partitions:
            if call.pace.spend():
                await call.pace.next()
            error = _elect(topics, topic, partition, request.election_type)
            if request.topic_partitions is None and isinstance(error, ElectionNotNeeded):
                continue
            result.partition_result.append(_result(partition, error))
        response.replica_election_results.append(result)
    return response


def _asked(topics: Topics, request: ElectLeadersRequest) -> Iterator[tuple[str, list[int]]]:
    if request.topic_partitions is None:
        for topic in topics.sorted():
            yield topic.name, list(range(len(topic.partitions)))
    else:
        for asked in request.topic_partitions:
            yield asked.topic, asked.partitions


def _elect(topics: Topics, name: str, index: int, election_type: int) -> BrokerError:
    topic = topics.get(name)
    if topic is None:
        return UnknownTopicOrPartition(f"No such topic as {name}")
    partition = topic.partition(index)
    if partition is None:
        return UnknownTopicOrPartition(f"No such partition as {name}-{index}")
    if partition.leader >= 0:
        return ElectionNotNeeded()
    if election_type == PREFERRED:
        return PreferredLeaderNotAvailable()
    return EligibleLeadersNotAvailable()


async def _refuse_all(
    request: ElectLeadersRequest, error: BrokerError, call: Call
) -> ElectLeadersResponse:
    """Return `error` for each partition, and for the whole request if the version has that field.

    Kafka also returns the error in both places.
    """
    response = ElectLeadersResponse(
        error_code=error.code if call.version >= FIRST_WITH_REQUEST_ERROR else 0
    )
    for asked in request.topic_partitions or ():
        result = ReplicaElectionResult(topic=asked.topic)
        response.replica_election_results.append(result)
        for index in asked.partitions:
            result.partition_result.append(_result(index, error))
            if call.pace.spend():
                await call.pace.next()
    return response


def _result(partition: int, error: BrokerError) -> ElectLeadersPartitionResult:
    return ElectLeadersPartitionResult(
        partition_id=partition, error_code=error.code, error_message=error.message
    )
