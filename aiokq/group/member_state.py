"""What a member is set to and where it stands, the same words for both protocols. Owns values."""

from __future__ import annotations

from enum import Enum
from typing import Final

from aiokq.core.frozen import frozen

__all__ = ["JOIN_SLACK", "OUTSIDE", "MemberConfig", "MemberState"]

JOIN_SLACK: Final = 5.0
"""Seconds that a join may take beyond the rebalance timeout, as in Java: the coordinator answers
when the rebalance ends, and an answer that comes a little late is still the answer."""

OUTSIDE: Final = -1
"""Generation of who is in no group."""


@frozen
class MemberConfig:
    """The settings of a member; times in seconds.

    Attributes:
        instance_id: set for static members (KIP-345).
        rack: of the client, for assignment by rack (KIP-881).
        request_timeout: for every request but joins and syncs.
        remote_assignor: of the consumer protocol; None leaves it to the broker.
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
    """Where a member stands."""

    OUT = "in no group"
    PREPARING = "partitions are being given up, then it joins"
    JOINING = "asks to be a member"
    ASSIGNING = "leads the group: needs the topics' partitions to assign them"
    SYNCING = "waits for its assignment"
    SETTLING = "a member; partitions are being taken or given up"
    STABLE = "a member with its assignment"
    LEAVING = "says goodbye"
    FAILED = "refused for good"
