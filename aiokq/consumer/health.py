"""Owns what a consumer tells of its own state: plain frozen values, made when asked for."""

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
    """One assigned partition.

    Attributes:
        position: offset of the next record to hand over; None while it is not known.
        lag: records up to the end that readers see; None if not known yet.
        state: "fetching", "paused", "resetting", "validating" or "parked" (an error was raised
            for it, and it waits for seek()).
        node: broker that it is read from; None if there is none now.
        buffered_bytes: fetched, and not handed over.
        fetched_ago: seconds since a broker last answered about it; None if none did yet.
        error: why it is not fetched now, if there is a reason.
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
    """The fetches from one broker.

    Attributes:
        partitions: how many are read from it.
        in_flight: whether it has been asked and has not answered.
        error: why the last request failed; None after an answer.
    """

    partitions: int
    in_flight: bool
    error: str | None


@frozen
class GroupHealth:
    """A consumer in its group.

    Attributes:
        member_id: "" before the group has given one.
        generation: of the group, or the member's epoch; -1 outside.
        state: "stable"; "joining", "syncing", "assigning", "settling" or "preparing" in a
            rebalance; "out", "leaving" or "failed".
        joined: the group knows this member; true as well if it needs to know none. False when no
            heartbeat was answered for `session_timeout_ms`: others may have its partitions.
        heartbeat_ago: seconds since the coordinator last answered; None if it never did.
        pending_commits: partitions with finished records that are not committed.
        commit_error: why the last automatic commit failed; None after a success.
        error: why this is no member, or the coordinator does not take it; None while all is well.
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
    """A consumer at one moment.

    Attributes:
        ok: it is open, no partition has an error or lacks a broker, the brokers answered last time,
            and the group knows it.
        buffered_bytes: memory of what was fetched ahead.
        missing_topics: subscribed to by name, and not there.
        group: None without a group.
        stalled: the last time that the event loop ran nothing for `loop_stall_ms` and longer, with
            the stack that held it up: heartbeats and fetches stood still too. None if it never did.
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
    """What there is to tell of a partition."""
    name = state.stage.name.lower()
    if state.paused and state.stage is Stage.FETCHING:
        name = "paused"
    return PartitionHealth(
        position=state.position if state.position >= 0 else None,
        lag=state.lag(committed_only=committed_only),
        state=name,
        node=state.node if state.node >= 0 else None,
        buffered_bytes=sum(chunk.size for chunk in list(state.chunks)),
        fetched_ago=None if state.fetched_at_ms is None else (now_ms - state.fetched_at_ms) / 1000,
        error=None if state.error is None else str(state.error),
    )
