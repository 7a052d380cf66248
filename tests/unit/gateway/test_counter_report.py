"""The counter report: the names that monitoring scripts for Bruce and Dory look up."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from aiokq.core.counters import ClientCounters
from aiokq.gateway.accounting import Totals
from aiokq.gateway.inputs import InputTotals
from aiokq.gateway.reports.counters import COUNTERS, ClientCounts, CounterSource, counter_values

TEXT = """
MsgUnprocessedDestroy NoDiscardQuery MetadataHasEmptyTopicList MetadataHasEmptyBrokerList
BugDispatchBatchOutOfRangeIndex BugDispatchMsgOutOfRangeIndex TopicHasNoAvailablePartitions
MetadataSanityCheckFail InitialGetMetadataFail GetMetadataFail StreamClientWorkerStdException
StreamClientWorkerUnknownException MetadataResponseBadTopicNameLen
MetadataResponseBadBrokerHostLen MetadataResponseNegativeCaughtUpReplicaNodeId
MetadataResponseNegativePartitionCaughtUpReplicaCount MetadataResponseNegativeReplicaNodeId
MetadataResponseNegativePartitionReplicaCount MetadataResponseInvalidLeaderNodeId
MetadataResponseNegativePartitionId MetadataResponseNegativePartitionCount
MetadataResponseNegativeTopicCount MetadataResponseBadBrokerPort
MetadataResponseNegativeBrokerNodeId MetadataResponseNegativeBrokerCount ShortMetadataResponse
MetadataResponseHasExtraJunk BadMetadataContent BadMetadataResponseSize BadMetadataResponse
ProduceResponseBadPartitionCount ProduceResponseBadTopicNameLength ProduceResponseBadTopicCount
BadKafkaResponseSize BugGetAckWaitQueueOutOfRangeIndex ProduceResponseUnexpectedTopic
ProduceResponseUnexpectedPartition ProduceResponseShortPartitionList ProduceResponseShortTopicList
CorrelationIdMismatch BadProduceResponseSize BadProduceResponse BugAllTopicsEmpty
BugMsgListMultipleTopics BugMsgSetEmpty BugMultiPartitionGroupEmpty BugProduceRequestEmpty
MsgSetCompressionError ConnectorTruncateLongTimeout UnixStreamInputUncleanDisconnect
TcpInputUncleanDisconnect TcpInputInvalidSizeField TcpInputMsgBodyTooLarge
UnixStreamInputInvalidSizeField UnixStreamInputMsgBodyTooLarge ConnectFailOnTryGetMetadata
ConnectorConnectFail ConnectorSocketBrokerClose ConnectorSocketError ConnectorSocketTimeout
MetadataResponseReadLostTcpConnection MetadataResponseReadTimeout SendMetadataRequestFail
SendMetadataRequestLostTcpConnection UnixStreamInputSocketError TcpInputSocketError
MetadataResponseRead1LostTcpConnection MetadataResponseRead1TimedOut
MetadataResponseRead2LostTcpConnection MetadataResponseRead2TimedOut
MetadataResponseRead2UnexpectedEnd ReadMetadataResponse2Fail MongooseUrlDecodeError
MongooseStdException MongooseUnknownException MsgCreate MsgDestroy GetMetadataSuccess
AckOk PossibleDuplicateMsg RouterThreadStartPause RouterThreadFinishPause MetadataUpdated
"""

READ = re.findall(r"\w+", TEXT)
"""What check_bruce_counters.py and check_dory_counters.py look up, and what operators watch."""


def source(**values: Any) -> CounterSource:
    given: dict[str, Any] = {
        "total": Totals(),
        "client": ClientCounts(),
        "inputs": {},
        "pauses": (0, 0),
        "http": {},
        "unread_windows": 0,
        "metadata_changes": 0,
        "metadata_failures": 0,
        **values,
    }
    return CounterSource(**given)


def values(given: CounterSource) -> dict[str, int]:
    return {counter.name: value for counter, value in counter_values(given)}


def test_every_name_that_the_scripts_look_up_is_there_once():
    names = [counter.name for counter in COUNTERS]
    assert len(names) == len(set(names))
    assert set(READ) <= set(names)
    assert any(name.startswith("AckError") for name in names)


def test_every_counter_is_a_number_before_anything_has_happened():
    found = values(source())
    assert set(found.values()) == {0}
    assert all(type(value) is int for value in found.values())


def test_messages_in_flight_are_created_and_not_destroyed():
    total = Totals()
    total.received, total.acked, total.in_flight = 10, 6, 3
    total.possible_duplicates = 2
    found = values(source(total=total))
    assert found["MsgCreate"] - found["MsgDestroy"] == 3
    assert (found["AckOk"], found["PossibleDuplicateMsg"]) == (6, 2)


def test_counters_come_from_client_inputs_engine_and_http():
    client = ClientCounters("test")
    client.errors["NOT_LEADER_OR_FOLLOWER"] += 2
    client.requests["Metadata"] += 5
    client.metadata_refreshes = 4
    found = values(
        source(
            client=ClientCounts.of(SimpleNamespace(counters=client)),
            inputs={
                "tcp": InputTotals(3, 1),
                "unix_stream": InputTotals(),
                "unix_datagram": InputTotals(),
            },
            pauses=(7, 6),
            http={"requests": 9, "discards": 1},
            unread_windows=8,
        )
    )
    assert found["AckErrorNotLeaderForPartition"] == 2
    assert found["GetMetadataSuccess"] == 5
    assert found["MetadataUpdated"] == 4
    assert found["TcpInputUncleanDisconnect"] == 3
    assert found["UnixStreamInputUncleanDisconnect"] == 0
    assert found["RouterThreadStartPause"] == 7
    assert found["RouterThreadFinishPause"] == 6
    assert found["MongooseHttpRequest"] == 9
    assert found["MongooseGetDiscardsRequest"] == 1
    assert found["NoDiscardQuery"] == 8


def test_locations_name_the_line_of_the_declaration():
    location = COUNTERS[0].location
    assert location.startswith("[aiokq/gateway/reports/counters.py, ")
    assert len({counter.line for counter in COUNTERS}) > 20
