"""The state of a classic group: rebalance phase, generation, members, and log records.

Source: Kafka ``ClassicGroup.java``.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.group.classic.member import ClassicMember, Protocol
from aiokq.broker.coordinator.group.classic.roster import ClassicRoster
from aiokq.broker.coordinator.group.classic.states import PERMITTED_TRANSITIONS, ClassicState
from aiokq.broker.coordinator.group.group import GroupType
from aiokq.broker.coordinator.record import CoordinatorRecord
from aiokq.core.counters import CounterBy
from aiokq.wire.describe_groups import DescribedGroup
from aiokq.wire.group_records import GroupMetadataKey, GroupMetadataValue
from aiokq.wire.join_group import JoinGroupResponse, JoinGroupResponseMember

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping

    from aiokq.broker.config.settings import BrokerSettings

__all__ = ["CONSUMER_PROTOCOL_TYPE", "ClassicGroupState"]

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of consumers, whose subscriptions the broker can read."""

NO_TIMESTAMP: Final = -1

MAX_NAME_IN_MEMBER_ID: Final = 1000
"""The maximum number of characters of the client or instance id in a member id.

A member id with a longer name could exceed 32,767 bytes, the limit of a string in messages and
records.
"""


class ClassicGroupState:
    """The state of one group of the classic protocol.

    Attributes:
        state: empty, in a phase of a rebalance, stable, or dead.
        previous_state: the state before the last change.
        state_timestamp_ms: the time of the last change of state; None if unknown.
        generation: the number of the current generation, which commits and heartbeats carry.
        protocol_type_or_none: the protocol type of the members; None for a simple group, which
            only has offsets.
        protocol_name: the elected assignor; None before the first election and without members.
        roster: the members.
    """

    def __init__(
        self,
        group_id: str,
        *,
        settings: BrokerSettings,
        rng: random.Random,
        rebalances: CounterBy | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        self.group_id = group_id
        self.settings = settings
        self.state = ClassicState.EMPTY
        self.previous_state = ClassicState.DEAD
        self.state_timestamp_ms = timestamp_ms
        self.generation = 0
        self.protocol_type_or_none: str | None = None
        self.protocol_name: str | None = None
        self.roster = ClassicRoster(group_id)
        self._random = rng
        self._rebalances = CounterBy() if rebalances is None else rebalances
        self._subscribed: frozenset[str] | None = None
        self._logged: GroupMetadataValue | None = None

    @property
    def type(self) -> GroupType:
        return GroupType.CLASSIC

    @property
    def protocol_type(self) -> str:
        return self.protocol_type_or_none or ""

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def members_count(self) -> int:
        return len(self.roster)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to the topic.

        True if the subscriptions of consumers are unknown; False if the members are not consumers.
        """
        if self._subscribed is None:
            return self.protocol_type_or_none == CONSUMER_PROTOCOL_TYPE
        return topic in self._subscribed

    def transition_to(self, state: ClassicState, timestamp_ms: int) -> None:
        """Change the state.

        Raises:
            RuntimeError: the transition is not permitted, which is a bug.
        """
        if state not in PERMITTED_TRANSITIONS[self.state]:
            raise RuntimeError(
                f"group {self.group_id}: transition from {self.state.name} to {state.name} is "
                "not permitted"
            )
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = timestamp_ms

    def begin_generation(self, timestamp_ms: int) -> None:
        """Increment the generation, elect a protocol, and read the subscriptions.

        A group without members becomes empty.
        """
        self.generation += 1
        self.roster.pending_syncs.clear()
        if len(self.roster):
            self._rebalances[self.type.value] += 1
            self.protocol_name = self.roster.elect_protocol()
            self.transition_to(ClassicState.COMPLETING_REBALANCE, timestamp_ms)
        else:
            self.protocol_name = None
            self.transition_to(ClassicState.EMPTY, timestamp_ms)
        self.note_subscriptions()

    def note_subscriptions(self) -> None:
        """Store the topics that the members subscribe to, if the members are consumers."""
        self._subscribed = None
        if self.protocol_type_or_none == CONSUMER_PROTOCOL_TYPE:
            self._subscribed = self.roster.subscribed_topics(self.protocol_name)

    def supports(self, protocol_type: str, protocols: Iterable[Protocol]) -> bool:
        """Whether a member with this protocol type and these protocols can join."""
        if self.is_empty:
            return bool(protocol_type) and any(True for _ in protocols)
        return self.protocol_type_or_none == protocol_type and self.roster.share_a_protocol(
            protocols
        )

    def new_member_id(self, client_id: str, group_instance_id: str | None) -> str:
        """Return a new member id: the instance id, or else the client id, followed by a UUID."""
        unique = uuid.UUID(int=self._random.getrandbits(128), version=4)
        called = client_id if group_instance_id is None else group_instance_id
        return f"{called[:MAX_NAME_IN_MEMBER_ID]}-{unique}"

    def joined(self, member_id: str) -> JoinGroupResponse:
        """Return the JoinGroup response of a member; the leader also gets the list of members."""
        members = []
        if self.roster.is_leader(member_id):
            members = [
                JoinGroupResponseMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    metadata=member.metadata(self.protocol_name),
                )
                for member in self.roster
            ]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type_or_none,
            protocol_name=self.protocol_name,
            leader=self.roster.leader_id or "",
            member_id=member_id,
            members=members,
        )

    def describe(self) -> DescribedGroup:
        """Return the group for DescribeGroups, with subscriptions only if the group is stable."""
        stable = self.state is ClassicState.STABLE
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state.value,
            protocol_type=self.protocol_type,
            protocol_data=self.protocol_name or "" if stable else "",
            members=[
                member.described(self.protocol_name if stable else None) for member in self.roster
            ],
        )

    def record(self, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
        """Return the record of the group's current state, with these assignments by member id."""
        return self._stored(
            GroupMetadataValue(
                protocol_type=self.protocol_type,
                generation=self.generation,
                protocol=self.protocol_name,
                leader=self.roster.leader_id,
                members=[
                    member.stored(self.protocol_name, assignments.get(member.member_id, b""))
                    for member in self.roster
                ],
            )
        )

    def logged(self, record: CoordinatorRecord) -> None:
        """Keep the record that was appended for the group; `record_renamed` uses it."""
        assert isinstance(record.value, GroupMetadataValue)
        self._logged = record.value

    def record_renamed(self, old_member_id: str, new_member_id: str) -> CoordinatorRecord | None:
        """Return a copy of the group's newest record, with a new member id for a static member.

        Without the new member id, a coordinator that loads the log would fence the static member.

        Returns:
            The copy; None if there is no record, or if the record does not have the old member id.
        """
        value = self._logged
        if value is None or all(member.member_id != old_member_id for member in value.members):
            return None
        renamed = replace(
            value,
            leader=new_member_id if value.leader == old_member_id else value.leader,
            members=[
                replace(member, member_id=new_member_id)
                if member.member_id == old_member_id
                else member
                for member in value.members
            ],
        )
        return CoordinatorRecord(GroupMetadataKey(group=self.group_id), renamed)

    def empty_record(self) -> CoordinatorRecord:
        """Return the record of a new group, before its first generation."""
        return self._stored(
            GroupMetadataValue(protocol_type="", generation=0, protocol=None, leader=None)
        )

    def _stored(self, value: GroupMetadataValue) -> CoordinatorRecord:
        since = self.state_timestamp_ms
        value.current_state_timestamp = NO_TIMESTAMP if since is None else since
        return CoordinatorRecord(GroupMetadataKey(group=self.group_id), value)

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the record that removes the group."""
        return [CoordinatorRecord(GroupMetadataKey(group=self.group_id), None)]

    def restore(self, value: GroupMetadataValue) -> None:
        """Set the state of a new group from a record."""
        self._logged = value
        self.generation = value.generation
        self.protocol_name = value.protocol
        since = value.current_state_timestamp
        self.state_timestamp_ms = None if since == NO_TIMESTAMP else since
        for stored in value.members:
            timeout_ms = stored.rebalance_timeout
            member = ClassicMember(
                stored.member_id,
                stored.group_instance_id,
                stored.client_id,
                stored.client_host,
                stored.session_timeout if timeout_ms == -1 else timeout_ms,
                stored.session_timeout,
                value.protocol_type,
                (Protocol(value.protocol or "", stored.subscription),),
                assignment=stored.assignment,
            )
            self.roster.add(member, None)
        self.roster.leader_id = value.leader
        self.protocol_type_or_none = value.protocol_type or None
        # A record with members is written only when their assignment is complete.
        self.state = ClassicState.STABLE if value.members else ClassicState.EMPTY
        self.note_subscriptions()
