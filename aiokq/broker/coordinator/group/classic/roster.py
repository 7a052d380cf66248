"""The members of a classic group, its leader, and the protocols that the members share.

This module depends neither on the group's state nor on its timers.

Source: Kafka ``ClassicGroup.java``.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from aiokq.core.errors import (
    FencedInstanceId,
    ProtocolError,
    RebalanceInProgress,
    UnknownMemberId,
)
from aiokq.wire.codec import decode
from aiokq.wire.consumer_protocol import ConsumerProtocolSubscription
from aiokq.wire.join_group import JoinGroupResponse
from aiokq.wire.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aiokq.broker.coordinator.group.classic.member import ClassicMember, Protocol
    from aiokq.broker.coordinator.outcome import Deferred

__all__ = ["ClassicRoster"]

logger = logging.getLogger("aiokq.broker.coordinator")

_VERSION_SIZE: Final = 2


class ClassicRoster:
    """The members of one group.

    Attributes:
        leader_id: the id of the member that computes the assignment; None without members.
        members: the members by member id, in the order in which the ids were added.
        static_members: the member ids of static members by instance id.
        pending_joins: member ids that were sent with MEMBER_ID_REQUIRED, and that no client has
            joined with yet.
        pending_syncs: the ids of members that have not sent SyncGroup in this generation yet.
    """

    def __init__(self, group_id: str) -> None:
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_joins: dict[str, None] = {}
        self.pending_syncs: dict[str, None] = {}
        self._group_id = group_id
        self._joining = 0
        self._supporters: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(list(self.members.values()))

    def add(self, member: ClassicMember, joining: Deferred[JoinGroupResponse] | None) -> None:
        """Add a member; the first member becomes the leader."""
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._supporters.update(protocol.name for protocol in member.protocols)
        self.set_joining(member, joining)
        self.pending_joins.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member id.

        If the member was the leader, the first of the other members becomes the leader.
        """
        member = self.members.pop(member_id, None)
        if member is not None:
            self._withdraw(member)
            self._joining -= member.joining is not None
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
        if self.is_leader(member_id):
            self.leader_id = next(iter(self.members), None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)

    def update(
        self,
        member: ClassicMember,
        protocols: tuple[Protocol, ...],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        joining: Deferred[JoinGroupResponse] | None,
    ) -> None:
        """Update a member with the fields of its new JoinGroup."""
        self._withdraw(member)
        member.protocols = protocols
        self._supporters.update(protocol.name for protocol in protocols)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self.set_joining(member, joining)

    def _withdraw(self, member: ClassicMember) -> None:
        for protocol in member.protocols:
            self._supporters[protocol.name] -= 1
            if not self._supporters[protocol.name]:
                del self._supporters[protocol.name]

    def replace_static(self, group_instance_id: str, new_member_id: str) -> ClassicMember:
        """Give a static member a new member id; its pending requests get FENCED_INSTANCE_ID."""
        old_member_id = self.static_members[group_instance_id]
        member = self.members.pop(old_member_id)
        self.complete_join(
            member, JoinGroupResponse(error_code=FencedInstanceId.code, member_id=old_member_id)
        )
        self.complete_sync(member, SyncGroupResponse(error_code=FencedInstanceId.code))
        self.pending_syncs.pop(old_member_id, None)
        member.member_id = new_member_id
        member.is_new = False
        self.members[new_member_id] = member
        if self.is_leader(old_member_id):
            self.leader_id = new_member_id
        self.static_members[group_instance_id] = new_member_id
        return member

    def named(self, member_id: str, group_instance_id: str | None) -> ClassicMember:
        """Return the member that a request names.

        Raises:
            UnknownMemberId: there is no such member.
            FencedInstanceId: the instance id belongs to another member id now.
        """
        if group_instance_id is not None:
            present = self.static_members.get(group_instance_id)
            if present is None:
                raise UnknownMemberId()
            if present != member_id:
                logger.info(
                    "static member fenced: group=%s instance=%s member=%s by=%s",
                    self._group_id,
                    group_instance_id,
                    member_id,
                    present,
                )
                raise FencedInstanceId()
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId()
        return member

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def elect_leader(self) -> bool:
        """If the leader has not joined, elect a member that has joined.

        Return False if no member has joined.
        """
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.joining is not None:
            return True
        for member in self.members.values():
            if member.joining is not None:
                logger.info(
                    "leader did not join in time: group=%s leader=%s now=%s",
                    self._group_id,
                    self.leader_id,
                    member.member_id,
                )
                self.leader_id = member.member_id
                return True
        return False

    @property
    def joining(self) -> int:
        """The number of members with a pending JoinGroup."""
        return self._joining

    @property
    def all_have_joined(self) -> bool:
        return self._joining == len(self.members) and not self.pending_joins

    @property
    def rebalance_timeout(self) -> float:
        """The longest rebalance timeout of all members, in seconds."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0) / 1000

    def set_joining(
        self, member: ClassicMember, joining: Deferred[JoinGroupResponse] | None
    ) -> None:
        """Set the pending response of a member's JoinGroup.

        An earlier JoinGroup that is pending gets REBALANCE_IN_PROGRESS: the client has abandoned
        that request, but every request must be completed.
        """
        superseded, member.joining = member.joining, joining
        self._joining += (joining is not None) - (superseded is not None)
        if superseded is not None and joining is not None:
            superseded.complete(
                JoinGroupResponse(error_code=RebalanceInProgress.code, member_id=member.member_id)
            )

    def set_syncing(self, member: ClassicMember, syncing: Deferred[SyncGroupResponse]) -> None:
        """Set the pending response of a member's SyncGroup.

        An earlier SyncGroup that is pending gets REBALANCE_IN_PROGRESS.
        """
        superseded, member.syncing = member.syncing, syncing
        if superseded is not None:
            superseded.complete(SyncGroupResponse(error_code=RebalanceInProgress.code))

    def complete_join(self, member: ClassicMember, response: JoinGroupResponse) -> None:
        """Answer the member's pending JoinGroup, if there is one."""
        joining = member.joining
        if joining is not None:
            self.set_joining(member, None)
            joining.complete(response)

    def complete_sync(self, member: ClassicMember, response: SyncGroupResponse) -> bool:
        """Answer the member's pending SyncGroup; return False if there is none."""
        syncing, member.syncing = member.syncing, None
        return syncing is not None and syncing.complete(response)

    def share_a_protocol(self, protocols: Iterable[Protocol]) -> bool:
        """Whether at least one of these protocols is supported by all members."""
        return any(self._supporters[protocol.name] == len(self.members) for protocol in protocols)

    def elect_protocol(self) -> str:
        """Return the protocol with the most votes among the protocols that all members support.

        In a tie, the protocol that got the first vote wins.
        """
        candidates = {name for name, n in self._supporters.items() if n == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def subscribed_topics(self, protocol_name: str | None) -> frozenset[str] | None:
        """Return the topics that members subscribe to; None if a subscription cannot be read.

        Only the fields of version 0 are read; all later versions begin with these fields.
        """
        topics: set[str] = set()
        try:
            for member in self.members.values():
                metadata = member.metadata(protocol_name)
                subscription = decode(
                    ConsumerProtocolSubscription, metadata, 0, _VERSION_SIZE, exact=False
                )
                topics.update(subscription.topics)
        except (ProtocolError, KeyError) as error:
            logger.warning(
                "subscriptions cannot be read: group=%s protocol=%s error=%s",
                self._group_id,
                protocol_name,
                error,
            )
            return None
        return frozenset(topics)
