"""The values of `Consumer.health()`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiokq.consumer.positions import Stage
from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from aiokq.cluster.events import LoopStalled
    from aiokq.consumer.positions import PartitionState

__all__ = [
    "BrokerHealth",
    "ConsumerHealth",
    "GroupHealth",
    "PartitionHealth",
    "partition_health",
]


@frozen
class PartitionHealth:
    """The state of one assigned partition.

    Attributes:
        position: offset of the next record to deliver; None while it is unknown.
        lag: the number of offsets from the position to the end of the visible records; None while
            it is unknown. See `Consumer.lag`.
        state: "fetching", "paused", "resetting", "validating" or "parked" (an error was raised
            for the partition, and it waits for seek()).
        node: the node id of the broker that the partition is read from; None if there is none.
        buffered_bytes: bytes that were fetched and not delivered.
        fetched_ago: seconds since the latest fetch response for the partition; None before the
            first.
        error: why the partition is parked, or why its last request was refused; None otherwise.
    """

    position: int | None
    lag: int | None
    state: str
    node: int | None
    buffered_bytes: int
    fetched_ago: float | None
    error: str | None


@frozen
class BrokerHealth:
    """The state of the fetches from one broker.

    Attributes:
        partitions: the number of partitions read from the broker.
        in_flight: whether a request waits for its response.
        error: why the last request failed; None after a success.
    """

    partitions: int
    in_flight: bool
    error: str | None


@frozen
class GroupHealth:
    """The state of a consumer's group membership.

    Attributes:
        member_id: the id of the member; "" while it has none.
        generation: the generation of the group, or the member's epoch; -1 outside the group.
        state: "stable"; "joining", "syncing", "assigning", "settling" or "preparing" in a
            rebalance; "out", "leaving" or "failed".
        joined: whether the consumer is a member of the group, or needs no membership because it
            only assigns partitions manually. False also if heartbeats have had no response for
            `session_timeout_ms`: other members may then own the partitions of this member.
        heartbeat_ago: seconds since the coordinator's last successful response; None before the
            first and after leaving the group.
        pending_commits: the number of partitions with finished records that are not committed.
        commit_error: why the last automatic commit or `commit_nowait()` failed; None after a
            success.
        error: why the consumer is not a member, or why the coordinator rejects it; None otherwise.
    """

    group_id: str
    member_id: str
    generation: int
    state: str
    joined: bool
    heartbeat_ago: float | None
    pending_commits: int
    commit_error: str | None
    error: str | None = None


@frozen
class ConsumerHealth:
    """The state of a consumer at one moment.

    Attributes:
        ok: whether the consumer is open, no partition has an error or lacks a broker, the brokers
            answered the last requests, all topics subscribed to by name exist, and `group.joined`
            is true, if there is a group.
        buffered_bytes: bytes of memory that fetched data occupies.
        missing_topics: topics subscribed to by name that do not exist.
        group: the state of the group membership; None without a group.
        stalled: the last report that the event loop was blocked for `loop_stall_ms` or longer, with
            the stack of the blocking code; heartbeats and fetches stopped meanwhile. None if there
            is no report.
    """

    ok: bool
    partitions: Mapping[TopicPartition, PartitionHealth]
    brokers: Mapping[int, BrokerHealth]
    buffered_bytes: int
    missing_topics: frozenset[str]
    group: GroupHealth | None = None
    stalled: LoopStalled | None = None


def partition_health(
    state: PartitionState, now_ms: int, *, committed_only: bool
) -> PartitionHealth:
    name = state.stage.name.lower()
    if state.paused and state.stage is Stage.FETCHING:
        name = "paused"
    return PartitionHealth(
        position=position if (position := state.settled_position) >= 0 else None,
        lag=state.lag(committed_only=committed_only),
        state=name,
        node=state.node if state.node >= 0 else None,
        buffered_bytes=sum(chunk.size for chunk in list(state.chunks)),
        fetched_ago=None if state.fetched_at_ms is None else (now_ms - state.fetched_at_ms) / 1000,
        error=None if state.error is None else str(state.error),
    )
