"""Who is in a classic group: members, the leader among them, and what they all support.

Owns membership and votes; not the group's state, its timers, or what a rebalance does.

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
        leader_id: the member that assigns; None as long as there is no member.
        members: by member id, in the order they came; `static_members` member ids by instance id.
        pending_joins: member ids that were given out (79) and have not joined yet.
        pending_syncs: members that have not asked for the assignment of this generation yet.
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

    # who comes and goes

    def add(self, member: ClassicMember, joining: Deferred[JoinGroupResponse] | None) -> None:
        """Take in a member; the first one leads until somebody else must."""
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._supporters.update(protocol.name for protocol in member.protocols)
        self.set_joining(member, joining)
        self.pending_joins.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Forget a member, pending or not; the next one leads if it led."""
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
        """Take over what a member says when it joins again."""
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
        """Give a static member a new member id; who still waits under the old one is fenced."""
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
        """The member that a request names.

        Raises:
            UnknownMemberId: there is none.
            FencedInstanceId: somebody else is this static member now.
        """
        if group_instance_id is not None:
            present = self.static_members.get(group_instance_id)
            if present is None:
                raise UnknownMemberId()
            if present != member_id:
                logger.info(
                    "static member is fenced: group=%s instance=%s member=%s by=%s",
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

    # who leads

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def elect_leader(self) -> bool:
        """See to it that the leader is somebody who has joined; False if nobody has."""
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

    # what they wait for

    @property
    def joining(self) -> int:
        """How many members wait for the answer to their join."""
        return self._joining

    @property
    def all_have_joined(self) -> bool:
        return self._joining == len(self.members) and not self.pending_joins

    @property
    def rebalance_timeout(self) -> float:
        """Seconds that the slowest member may take to join again."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0) / 1000

    def set_joining(
        self, member: ClassicMember, joining: Deferred[JoinGroupResponse] | None
    ) -> None:
        """Note the answer a join waits for.

        One that waits already is superseded: its client has given it up, and asks anew. Nobody is
        there to read its answer, but what waits for it must end.
        """
        superseded, member.joining = member.joining, joining
        self._joining += (joining is not None) - (superseded is not None)
        if superseded is not None and joining is not None:
            superseded.complete(
                JoinGroupResponse(error_code=RebalanceInProgress.code, member_id=member.member_id)
            )

    def set_syncing(self, member: ClassicMember, syncing: Deferred[SyncGroupResponse]) -> None:
        """Note the answer a sync waits for; one that waits already is superseded likewise."""
        superseded, member.syncing = member.syncing, syncing
        if superseded is not None:
            superseded.complete(SyncGroupResponse(error_code=RebalanceInProgress.code))

    def complete_join(self, member: ClassicMember, response: JoinGroupResponse) -> None:
        """Answer a member's join, if it waits for one."""
        joining = member.joining
        if joining is not None:
            self.set_joining(member, None)
            joining.complete(response)

    def complete_sync(self, member: ClassicMember, response: SyncGroupResponse) -> bool:
        """Answer a member's sync; False if it waits for none."""
        syncing, member.syncing = member.syncing, None
        return syncing is not None and syncing.complete(response)

    # what they support

    def share_a_protocol(self, protocols: Iterable[Protocol]) -> bool:
        """Whether all members support one of these."""
        return any(self._supporters[protocol.name] == len(self.members) for protocol in protocols)

    def elect_protocol(self) -> str:
        """The protocol most members want of those that all support; of equals the first named."""
        candidates = {name for name, n in self._supporters.items() if n == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def subscribed_topics(self, protocol_name: str | None) -> frozenset[str] | None:
        """The topics that the members want by this protocol; None if that cannot be read.

        Read is the prefix that version 0 has, so that newer versions stay readable.
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
