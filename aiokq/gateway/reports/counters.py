"""The counter report, with the counter names that monitoring scripts for Bruce and Dory read.

The set of names never changes while a gateway runs, and no counter decreases. A counter whose event
cannot happen in this gateway has the value 0, because the scripts fail if a counter is missing.
Tests: tests/unit/gateway/test_counter_report.py.
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokq.fastpath.gateway import (
    API_KEY,
    API_VERSION,
    ATTEMPT_LIMIT,
    AUTOCREATE_FAILED,
    BAD_TOPIC,
    ERROR_ACK,
    MALFORMED,
    NO_MEMORY,
    NO_PARTITION,
    NOT_ALLOWED,
    RATE_LIMIT,
    SHUTDOWN,
    TOO_LONG,
)
from aiokq.gateway.inputs import InputTotals

if TYPE_CHECKING:
    from aiokq.gateway.accounting import Totals
    from aiokq.metrics import HasClientCounters

__all__ = ["COUNTERS", "ClientCounts", "Counter", "CounterSource", "counter_values"]

FILE: Final = "/".join(Path(__file__).parts[-4:])


class ClientCounts(NamedTuple):
    """Counts of a gateway's client; `plus` adds those of another client, which a reload created.

    Attributes:
        errors: numbers of errors by name.
    """

    batches_sent: int = 0
    connections_failed: int = 0
    connections_opened: int = 0
    metadata_refreshes: int = 0
    metadata_requests: int = 0
    errors: Mapping[str, int] = MappingProxyType({})

    @classmethod
    def of(cls, client: HasClientCounters) -> ClientCounts:
        """Return the current counts of a client."""
        found = client.counters
        return cls(
            found.batches_sent,
            found.connections_failed,
            found.connections_opened,
            found.metadata_refreshes,
            found.requests.get("Metadata", 0),
            dict(found.errors),
        )

    def plus(self, other: ClientCounts) -> ClientCounts:
        """Return the sums of two clients."""
        return ClientCounts(
            self.batches_sent + other.batches_sent,
            self.connections_failed + other.connections_failed,
            self.connections_opened + other.connections_opened,
            self.metadata_refreshes + other.metadata_refreshes,
            self.metadata_requests + other.metadata_requests,
            collections.Counter(self.errors) + collections.Counter(other.errors),
        )


class CounterSource(NamedTuple):
    """The counts from which the counters are computed, all of one moment.

    Attributes:
        client: counts of the client, with those of the clients before it.
        inputs: counts of the inputs, added up by transport.
        pauses: numbers of begun and of ended pauses of all brokers.
        http: numbers of HTTP requests, of read reports, and of errors.
    """

    total: Totals
    client: ClientCounts
    inputs: Mapping[str, InputTotals]
    pauses: tuple[int, int]
    http: Mapping[str, int]
    unread_windows: int
    metadata_changes: int
    metadata_failures: int


class Counter(NamedTuple):
    """A counter of the report.

    Attributes:
        line: the line of this file that declares the counter.
        meaning: description of the counted event; "" if it cannot happen in this gateway.
    """

    name: str
    meaning: str
    line: int
    value: Callable[[CounterSource], int]

    @property
    def location(self) -> str:
        return f"[{FILE}, {self.line}]"


COUNTERS: Final[list[Counter]] = []


def _counter(name: str, meaning: str, value: Callable[[CounterSource], int]) -> None:
    COUNTERS.append(Counter(name, meaning, sys._getframe(1).f_lineno, value))


def counter_values(source: CounterSource) -> Iterator[tuple[Counter, int]]:
    """Yield all counters with their values."""
    for counter in COUNTERS:
        yield counter, counter.value(source)


def _discarded(reason: int) -> Callable[[CounterSource], int]:
    return lambda source: source.total.discarded[reason]


def _client(attribute: str) -> Callable[[CounterSource], int]:
    def value(source: CounterSource) -> int:
        found: int = getattr(source.client, attribute)
        return found

    return value


def _error(name: str) -> Callable[[CounterSource], int]:
    return lambda source: source.client.errors.get(name, 0)


def _http(name: str) -> Callable[[CounterSource], int]:
    return lambda source: source.http.get(name, 0)


def _input(transport: str, attribute: str) -> Callable[[CounterSource], int]:
    def value(source: CounterSource) -> int:
        found: int = getattr(source.inputs.get(transport, InputTotals()), attribute)
        return found

    return value


# ------------------------------------------------------------ messages

_counter("MsgCreate", "Messages received.", lambda source: source.total.received)
_counter(
    "MsgDestroy",
    "Messages with an outcome: MsgCreate - MsgDestroy messages are in flight.",
    lambda source: source.total.received - source.total.in_flight,
)
_counter("MsgUnprocessedDestroy", "", lambda source: 0)
_counter("AckOk", "Messages acknowledged by Kafka.", lambda source: source.total.acked)
_counter(
    "PossibleDuplicateMsg",
    "Messages that were sent again although they may have been written.",
    lambda source: source.total.possible_duplicates,
)
_counter(
    "DeadLetterMsg",
    "Messages written to the dead-letter topic.",
    lambda source: source.total.dead_lettered,
)
_counter("ReplayedMsg", "Messages replayed from the spool.", lambda source: source.total.replayed)

# ------------------------------------------------------------ discards

_counter("InputThreadDiscardMsgMalformed", "Malformed messages.", _discarded(MALFORMED))
_counter(
    "InputThreadDiscardMsgUnsupportedApiKey",
    "Messages with an unsupported API key.",
    _discarded(API_KEY),
)
_counter(
    "InputThreadDiscardMsgUnsupportedVersion",
    "Messages with an unsupported version.",
    _discarded(API_VERSION),
)
_counter(
    "InputThreadDiscardMsgNoMem", "Messages for which the pool had no room.", _discarded(NO_MEMORY)
)
_counter(
    "InputThreadDiscardMsgNotAllowed",
    "Messages of users who are not allowed.",
    _discarded(NOT_ALLOWED),
)
_counter("DiscardBadTopicMsgOnRoute", "Messages of bad topics.", _discarded(BAD_TOPIC))
_counter("DiscardBadTopicOnReroute", "", lambda source: 0)
_counter("DiscardDeletedTopicMsg", "", lambda source: 0)
_counter("DiscardDueToRateLimit", "Messages above a rate limit.", _discarded(RATE_LIMIT))
_counter("DiscardLongMsg", "Messages that are too long.", _discarded(TOO_LONG))
_counter(
    "DiscardNoAvailablePartition",
    "Messages of topics without a usable partition.",
    _discarded(NO_PARTITION),
)
_counter("DiscardNoAvailablePartitionOnReroute", "", lambda source: 0)
_counter("DiscardNoLongerAvailableTopicMsg", "", lambda source: 0)
_counter(
    "DiscardOnTopicAutocreateFail",
    "Messages of topics that could not be created.",
    _discarded(AUTOCREATE_FAILED),
)
_counter(
    "DiscardOnFailedDeliveryAttemptLimit",
    "Messages whose delivery failed too often.",
    _discarded(ATTEMPT_LIMIT),
)
_counter(
    "ConnectorGotDiscardAck", "Messages discarded for the error of a broker.", _discarded(ERROR_ACK)
)
_counter("DiscardOnShutdown", "Messages discarded at the end.", _discarded(SHUTDOWN))
_counter(
    "NoDiscardQuery",
    "Windows of the discard report in which nobody read the reports.",
    lambda source: source.unread_windows,
)

# ------------------------------------------------------------ inputs

for _name, _transport in (("UnixStream", "unix_stream"), ("Tcp", "tcp")):
    _counter(
        f"{_name}InputUncleanDisconnect",
        f"Connections of {_transport} inputs that ended inside of a message.",
        _input(_transport, "unclean_disconnects"),
    )
    _counter(f"{_name}InputInvalidSizeField", "", lambda source: 0)
    _counter(f"{_name}InputMsgBodyTooLarge", "", lambda source: 0)
    _counter(f"{_name}InputSocketError", "", lambda source: 0)
    _counter(
        f"{_name}InputConnectionRefused",
        f"Connections that {_transport} inputs refused.",
        _input(_transport, "refused"),
    )
_counter("StreamClientWorkerStdException", "", lambda source: 0)
_counter("StreamClientWorkerUnknownException", "", lambda source: 0)

# ------------------------------------------------------------ errors of brokers

for _name, _code in (
    ("AckErrorBrokerNotAvailable", "BROKER_NOT_AVAILABLE"),
    ("AckErrorClusterAuthorizationFailed", "CLUSTER_AUTHORIZATION_FAILED"),
    ("AckErrorCorruptMessage", "CORRUPT_MESSAGE"),
    ("AckErrorInvalidConfig", "INVALID_CONFIG"),
    ("AckErrorInvalidFetchSize", "INVALID_FETCH_SIZE"),
    ("AckErrorInvalidRecord", "INVALID_RECORD"),
    ("AckErrorInvalidRequest", "INVALID_REQUEST"),
    ("AckErrorInvalidRequiredAcks", "INVALID_REQUIRED_ACKS"),
    ("AckErrorInvalidTimestamp", "INVALID_TIMESTAMP"),
    ("AckErrorInvalidTopicException", "INVALID_TOPIC_EXCEPTION"),
    ("AckErrorKafkaStorage", "KAFKA_STORAGE_ERROR"),
    ("AckErrorLeaderNotAvailable", "LEADER_NOT_AVAILABLE"),
    ("AckErrorMessageSizeTooLarge", "MESSAGE_TOO_LARGE"),
    ("AckErrorNetworkException", "NETWORK_EXCEPTION"),
    ("AckErrorNotController", "NOT_CONTROLLER"),
    ("AckErrorNotEnoughReplicas", "NOT_ENOUGH_REPLICAS"),
    ("AckErrorNotEnoughReplicasAfterAppend", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
    ("AckErrorNotLeaderForPartition", "NOT_LEADER_OR_FOLLOWER"),
    ("AckErrorOffsetOutOfRange", "OFFSET_OUT_OF_RANGE"),
    ("AckErrorPolicyViolation", "POLICY_VIOLATION"),
    ("AckErrorRecordListTooLarge", "RECORD_LIST_TOO_LARGE"),
    ("AckErrorReplicaNotAvailable", "REPLICA_NOT_AVAILABLE"),
    ("AckErrorRequestTimedOut", "REQUEST_TIMED_OUT"),
    ("AckErrorTopicAuthorizationFailed", "TOPIC_AUTHORIZATION_FAILED"),
    ("AckErrorUnknown", "UNKNOWN_SERVER_ERROR"),
    ("AckErrorUnknownTopicOrPartition", "UNKNOWN_TOPIC_OR_PARTITION"),
    ("AckErrorUnsupportedForMessageFormat", "UNSUPPORTED_FOR_MESSAGE_FORMAT"),
    ("AckErrorUnsupportedVersion", "UNSUPPORTED_VERSION"),
):
    _counter(_name, f"Errors {_code} of brokers.", _error(_code))
_counter("AckErrorNone", "Record batches acknowledged by a broker.", _client("batches_sent"))

# ------------------------------------------------------------ connections to brokers

_counter(
    "ConnectorConnectFail", "Connections that could not be opened.", _client("connections_failed")
)
_counter("ConnectorConnectSuccess", "Connections opened.", _client("connections_opened"))
_counter("ConnectorSocketBrokerClose", "Connections lost.", _error("ConnectionLost"))
_counter("ConnectorSocketTimeout", "Requests without a response in time.", _error("RequestTimeout"))
for _name in (
    "ConnectorSocketError",
    "ConnectFailOnTryGetMetadata",
    "MetadataResponseReadLostTcpConnection",
    "MetadataResponseReadTimeout",
    "MetadataResponseRead1LostTcpConnection",
    "MetadataResponseRead1TimedOut",
    "MetadataResponseRead2LostTcpConnection",
    "MetadataResponseRead2TimedOut",
    "MetadataResponseRead2UnexpectedEnd",
    "ReadMetadataResponse2Fail",
    "SendMetadataRequestFail",
    "SendMetadataRequestLostTcpConnection",
    "ConnectorTruncateLongTimeout",
):
    _counter(_name, "", lambda source: 0)
_counter("RouterThreadStartPause", "Pauses of all brokers begun.", lambda source: source.pauses[0])
_counter("RouterThreadFinishPause", "Pauses of all brokers ended.", lambda source: source.pauses[1])

# ------------------------------------------------------------ metadata

_counter("GetMetadataSuccess", "Metadata responses.", _client("metadata_requests"))
_counter(
    "GetMetadataFail",
    "Times at which metadata could not be requested from any broker.",
    lambda source: source.metadata_failures,
)
_counter("InitialGetMetadataFail", "", lambda source: 0)
_counter("MetadataUpdated", "Metadata responses applied.", _client("metadata_refreshes"))
_counter(
    "MetadataChangedOnRefresh",
    "Metadata responses that changed the metadata.",
    lambda source: source.metadata_changes,
)
for _name in (
    "BadMetadataContent",
    "BadMetadataResponse",
    "BadMetadataResponseSize",
    "MetadataHasEmptyBrokerList",
    "MetadataHasEmptyTopicList",
    "MetadataResponseBadBrokerHostLen",
    "MetadataResponseBadBrokerPort",
    "MetadataResponseBadTopicNameLen",
    "MetadataResponseHasExtraJunk",
    "MetadataResponseInvalidLeaderNodeId",
    "MetadataResponseNegativeBrokerCount",
    "MetadataResponseNegativeBrokerNodeId",
    "MetadataResponseNegativeCaughtUpReplicaNodeId",
    "MetadataResponseNegativePartitionCaughtUpReplicaCount",
    "MetadataResponseNegativePartitionCount",
    "MetadataResponseNegativePartitionId",
    "MetadataResponseNegativePartitionReplicaCount",
    "MetadataResponseNegativeReplicaNodeId",
    "MetadataResponseNegativeTopicCount",
    "MetadataSanityCheckFail",
    "ShortMetadataResponse",
    "TopicHasNoAvailablePartitions",
):
    _counter(_name, "", lambda source: 0)

# ------------------------------------------------------------ responses and batches

_counter("BadProduceResponse", "Responses that cannot be read.", _error("ProtocolError"))
for _name in (
    "BadKafkaResponseSize",
    "BadProduceResponseSize",
    "BugAllTopicsEmpty",
    "BugDispatchBatchOutOfRangeIndex",
    "BugDispatchMsgOutOfRangeIndex",
    "BugGetAckWaitQueueOutOfRangeIndex",
    "BugMsgListMultipleTopics",
    "BugMsgSetEmpty",
    "BugMultiPartitionGroupEmpty",
    "BugProduceRequestEmpty",
    "CorrelationIdMismatch",
    "MsgSetCompressionError",
    "ProduceResponseBadPartitionCount",
    "ProduceResponseBadTopicCount",
    "ProduceResponseBadTopicNameLength",
    "ProduceResponseShortPartitionList",
    "ProduceResponseShortTopicList",
    "ProduceResponseUnexpectedPartition",
    "ProduceResponseUnexpectedTopic",
):
    _counter(_name, "", lambda source: 0)

# ------------------------------------------------------------ HTTP

_counter("MongooseHttpRequest", "HTTP requests.", _http("requests"))
for _name, _report in (
    ("MongooseGetServerInfoRequest", "server_info"),
    ("MongooseGetCountersRequest", "counters"),
    ("MongooseGetDiscardsRequest", "discards"),
    ("MongooseGetMetadataFetchTimeRequest", "metadata_fetch_time"),
    ("MongooseGetQueueStatsRequest", "queues"),
):
    _counter(_name, f"Requests of /{_report}.", _http(_report))
_counter("MongooseStdException", "HTTP requests that failed.", _http("errors"))
for _name in ("MongooseEventLog", "MongooseUnknownException", "MongooseUrlDecodeError"):
    _counter(_name, "", lambda source: 0)
