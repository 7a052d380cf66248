"""One member of a classic group: who it is, what it supports, and which answers it waits for.

Owns nothing of the group.

Source: Kafka ``ClassicGroupMember.java``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from aiokq.wire.describe_groups import DescribedGroupMember
from aiokq.wire.group_records import MemberMetadata

if TYPE_CHECKING:
    from aiokq.broker.coordinator.outcome import Deferred
    from aiokq.wire.join_group import JoinGroupRequestProtocol, JoinGroupResponse
    from aiokq.wire.sync_group import SyncGroupResponse

__all__ = ["ClassicMember", "Protocol", "protocols_of"]


class Protocol(NamedTuple):
    """An assignor that a member supports, with what it says to it: its subscription."""

    name: str
    metadata: bytes


def protocols_of(requested: Iterable[JoinGroupRequestProtocol]) -> tuple[Protocol, ...]:
    """The protocols of a request in the member's order of preference, each name once."""
    by_name: dict[str, Protocol] = {}
    for protocol in requested:
        by_name.setdefault(protocol.name, Protocol(protocol.name, protocol.metadata))
    return tuple(by_name.values())


@dataclass(slots=True, eq=False)
class ClassicMember:
    """One member.

    Attributes:
        group_instance_id: its lasting name, if it is a static member (KIP-345).
        protocols: what it supports, most wanted first.
        assignment: what the leader gave it in the generation that is stable.
        joining: the answer its JoinGroup waits for; `syncing` its SyncGroup.
        is_new: it has never been told of a generation, so it cannot heartbeat yet.
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
    def lives_without_heartbeat(self) -> bool:
        """Whether it may be silent: its connection waits for an answer of ours.

        A new member's join is not proof enough, as nobody notices when its client leaves.
        """
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """What it says to a protocol that it supports.

        Raises:
            KeyError: it does not support it, which an elected protocol rules out.
        """
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        raise KeyError(protocol_name)

    def vote(self, candidates: Collection[str]) -> str:
        """The candidate it wants most."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)

    def stored(self, protocol_name: str | None, assignment: bytes) -> MemberMetadata:
        """Itself as the log keeps it."""
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
        """Itself as DescribeGroups shows it; without subscription where no protocol is elected."""
        return DescribedGroupMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            member_metadata=b"" if protocol_name is None else self.metadata(protocol_name),
            member_assignment=self.assignment,
        )
