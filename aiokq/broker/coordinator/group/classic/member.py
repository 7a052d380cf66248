"""One member of a classic group: its identity, its protocols, and its pending responses.

Source: Kafka ``ClassicGroupMember.java``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiokq.core.named_tuple import NamedTuple
from aiokq.wire.describe_groups import DescribedGroupMember
from aiokq.wire.group_records import MemberMetadata

if TYPE_CHECKING:
    from aiokq.broker.coordinator.outcome import Deferred
    from aiokq.wire.join_group import JoinGroupRequestProtocol, JoinGroupResponse
    from aiokq.wire.sync_group import SyncGroupResponse

__all__ = ["ClassicMember", "Protocol", "protocols_of"]


class Protocol(NamedTuple):
    """An assignor that a member supports, and the member's subscription in that assignor's form."""

    name: str
    metadata: bytes


def protocols_of(requested: Iterable[JoinGroupRequestProtocol]) -> tuple[Protocol, ...]:
    """Return the protocols of a JoinGroup in order of preference, without repeated names."""
    by_name: dict[str, Protocol] = {}
    for protocol in requested:
        by_name.setdefault(protocol.name, Protocol(protocol.name, protocol.metadata))
    return tuple(by_name.values())


@dataclass(slots=True, eq=False)
class ClassicMember:
    """One member of a classic group.

    Attributes:
        group_instance_id: the instance id of a static member (KIP-345).
        protocols: the supported protocols, in order of preference.
        assignment: the member's encoded assignment.
        joining: the pending response to the member's JoinGroup.
        syncing: the pending response to the member's SyncGroup.
        is_new: whether the member's first JoinGroup is pending. Until the response, the client
            cannot send heartbeats.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    joining: Deferred[JoinGroupResponse] | None = None
    syncing: Deferred[SyncGroupResponse] | None = None
    is_new: bool = False

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def needs_no_heartbeat(self) -> bool:
        """Whether the session cannot expire now, because a request of the member is pending.

        The first join of a new member does not count: its client may have disconnected unnoticed.
        """
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the subscription for a protocol.

        Raises:
            KeyError: the member does not support the protocol.
        """
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        raise KeyError(protocol_name)

    def vote(self, candidates: Collection[str]) -> str:
        """Return the candidate that the member prefers."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)

    def stored(self, protocol_name: str | None, assignment: bytes) -> MemberMetadata:
        """Return the member in the form of the log record."""
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol_name),
            assignment=assignment,
        )

    def described(self, protocol_name: str | None) -> DescribedGroupMember:
        """Return the member for DescribeGroups; without a protocol, its subscription is empty."""
        return DescribedGroupMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            member_metadata=b"" if protocol_name is None else self.metadata(protocol_name),
            member_assignment=self.assignment,
        )
