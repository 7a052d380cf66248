"""MemberConfig and MemberState: values that both protocols use."""

from __future__ import annotations

from enum import Enum
from typing import Final

from aiokq.core.frozen import frozen

__all__ = ["JOIN_SLACK", "OUTSIDE", "MemberConfig", "MemberState"]

JOIN_SLACK: Final = 5.0
"""Seconds that a join may take beyond the rebalance timeout, as in Java.

The coordinator answers at the end of the rebalance, and a slightly late response is still valid.
"""

OUTSIDE: Final = -1
"""The generation of a member that is in no group."""


@frozen
class MemberConfig:
    """The settings of a member; times in seconds.

    Attributes:
        instance_id: the instance id of a static member (KIP-345).
        rack: the rack of the client, for rack-aware assignment (KIP-881).
        request_timeout: the timeout of all requests except joins and syncs.
        remote_assignor: the broker's assignor to use with the consumer protocol; None for the
            default.
    """

    group_id: str
    instance_id: str | None
    session_timeout: float
    rebalance_timeout: float
    heartbeat_interval: float
    request_timeout: float
    rack: str | None = None
    remote_assignor: str | None = None


class MemberState(Enum):
    """The state of a group member in the client, from subscription to leaving the group."""

    OUT = "not in a group"
    PREPARING = "revoking or losing partitions, before joining or leaving the group"
    JOINING = "joining the group"
    ASSIGNING = "leading the group, and waiting for the partitions of the topics to assign"
    SYNCING = "waiting for the assignment"
    SETTLING = "a member that is taking or revoking partitions"
    STABLE = "a member that owns its assignment"
    LEAVING = "leaving the group"
    FAILED = "refused with an error that a retry does not resolve"
