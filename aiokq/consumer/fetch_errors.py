"""The table of actions for the error codes of a partition in a Fetch response."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from aiokq.core.errors import (
    ERROR_CLASSES,
    BrokerNotAvailable,
    CorruptRecord,
    FencedLeaderEpoch,
    InconsistentTopicId,
    InvalidRecord,
    KafkaStorage,
    LeaderNotAvailable,
    ListenerNotFound,
    NotLeaderOrFollower,
    OffsetMovedToTieredStorage,
    OffsetNotAvailable,
    OffsetOutOfRange,
    RecordTooLarge,
    ReplicaNotAvailable,
    RequestTimeout,
    TopicAuthorization,
    UnknownLeaderEpoch,
    UnknownServer,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
    UnsupportedVersion,
)

__all__ = ["FETCH_ACTIONS", "FetchAction", "fetch_action"]


class FetchAction(Enum):
    """The reaction to a fetch error of a partition."""

    RETRY = "pause, then ask the same broker again, because the broker needs time"
    REFRESH = "request metadata, then pause, because the leader or the topic's id has changed"
    RESET = "reset the position by auto_offset_reset, because the position is outside the log"
    RAISE = "raise the error to the reader and retry after a pause, because access may be granted"
    PARK = (
        "raise the error to the reader and stop fetching until the position is set or reset, "
        "because a retry would fail"
    )


FETCH_ACTIONS: Final[Mapping[int, FetchAction]] = MappingProxyType(
    {
        OffsetOutOfRange.code: FetchAction.RESET,
        CorruptRecord.code: FetchAction.PARK,
        InvalidRecord.code: FetchAction.PARK,
        RecordTooLarge.code: FetchAction.PARK,
        UnsupportedCompressionType.code: FetchAction.PARK,
        UnsupportedForMessageFormat.code: FetchAction.PARK,
        UnsupportedVersion.code: FetchAction.PARK,
        TopicAuthorization.code: FetchAction.RAISE,
        UnknownTopicOrPartition.code: FetchAction.REFRESH,
        UnknownTopicId.code: FetchAction.REFRESH,
        InconsistentTopicId.code: FetchAction.REFRESH,
        LeaderNotAvailable.code: FetchAction.REFRESH,
        BrokerNotAvailable.code: FetchAction.REFRESH,
        NotLeaderOrFollower.code: FetchAction.REFRESH,
        ReplicaNotAvailable.code: FetchAction.REFRESH,
        ListenerNotFound.code: FetchAction.REFRESH,
        KafkaStorage.code: FetchAction.REFRESH,
        FencedLeaderEpoch.code: FetchAction.REFRESH,
        UnknownLeaderEpoch.code: FetchAction.RETRY,
        OffsetNotAvailable.code: FetchAction.RETRY,
        OffsetMovedToTieredStorage.code: FetchAction.RETRY,
        RequestTimeout.code: FetchAction.RETRY,
        UnknownServer.code: FetchAction.RETRY,
    }
)
"""Error codes and their actions.

Source: Kafka's FetchCollector.handleInitializeErrors.
"""


def fetch_action(code: int) -> FetchAction:
    """Return the action for an error code.

    For a code that is not in the table, the action is RAISE if the code belongs to a known error
    that is not retriable, and REFRESH otherwise.
    """
    action = FETCH_ACTIONS.get(code)
    if action is not None:
        return action
    known = ERROR_CLASSES.get(code)
    return FetchAction.REFRESH if known is None or known.retriable else FetchAction.RAISE
