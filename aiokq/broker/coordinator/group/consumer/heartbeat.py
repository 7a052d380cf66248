"""Handles one ConsumerGroupHeartbeat: makes a `MemberChange`, and returns the response.

Source: Kafka ``GroupMetadataManager.consumerGroupHeartbeat`` (4.2).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from aiokq.assign.server_model import Partitions
from aiokq.broker.coordinator.group.consumer.context import ConsumerContext
from aiokq.broker.coordinator.group.consumer.image import GroupImage
from aiokq.broker.coordinator.group.consumer.member import JOIN_EPOCH, ConsumerMember, partitions_of
from aiokq.broker.coordinator.group.consumer.member_change import MemberChange, new_member_id
from aiokq.broker.coordinator.group.consumer.records import sorted_partitions
from aiokq.broker.coordinator.group.consumer.removal import static_member_or_fenced
from aiokq.broker.coordinator.group.group import Caller
from aiokq.core.errors import FencedMemberEpoch, UnreleasedInstanceId
from aiokq.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)

__all__ = ["Heartbeat"]

logger = logging.getLogger("aiokq.broker.coordinator")


class Heartbeat:
    """Handles one ConsumerGroupHeartbeat request of a member.

    Attributes:
        change: the `MemberChange` that this heartbeat makes to its member and group; collects the
            records.
    """

    def __init__(
        self,
        image: GroupImage,
        context: ConsumerContext,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        change: MemberChange,
    ) -> None:
        self.change = change
        self._image = image
        self._context = context
        self._request = request
        self._caller = caller
        self._owned: Partitions | None = (
            None if request.topic_partitions is None else partitions_of(request.topic_partitions)
        )

    def run(self) -> ConsumerGroupHeartbeatResponse:
        """Update the member from the request, reconcile its assignment, and return the response.

        Afterwards, `change` has the records to write.
        """
        member = self._find_member()
        self.change.update(member, self._updated(member))
        self.change.reconcile(self._owned)
        return self._response(member, self.change.member)

    def _find_member(self) -> ConsumerMember:
        request = self._request
        joins = request.member_epoch == JOIN_EPOCH
        existing = self._image.static_member(request.instance_id)
        self.change.check_capacity(request.member_id, existing)
        member_id = request.member_id or new_member_id(self._context)
        if request.instance_id is None or (joins and existing is None):
            if joins:
                member = self._image.members.get(member_id) or ConsumerMember(member_id)
                self._log_join(member)
            else:
                member = self._image.member(member_id)
        elif joins:
            assert existing is not None
            return self._take_over(existing, member_id)
        else:
            member = static_member_or_fenced(self._image, request.instance_id, member_id)
        self._check_epoch(member)
        return member

    def _take_over(self, existing: ConsumerMember, member_id: str) -> ConsumerMember:
        """Handle a static member that joins again.

        If the existing member uses the consumer protocol, it must have left before, with the epoch
        -2. If it uses the classic protocol, this is not required, because such a static member
        sends no request when it leaves.
        """
        if existing.classic is None and not existing.is_away:
            raise UnreleasedInstanceId(
                f"Static member {member_id} with instance id {self._request.instance_id} cannot "
                f"join the group because the instance id is owned by {existing.member_id} member."
            )
        member = self.change.take_over(existing, member_id)
        self._log_join(member, replaced=existing.member_id)
        return member

    def _check_epoch(self, member: ConsumerMember) -> None:
        received, known = self._request.member_epoch, member.member_epoch
        if received in (JOIN_EPOCH, known):
            return
        if received > known:
            raise FencedMemberEpoch(
                f"The consumer group member has a greater member epoch ({received}) than the one "
                f"known by the group coordinator ({known}). The member must abandon all its "
                "partitions and rejoin."
            )
        # The response with the newer epoch may have been lost. The previous epoch is therefore
        # accepted if the member owns only partitions that are still assigned to it.
        if received != member.previous_member_epoch or not self._owns_at_most(member.assigned):
            raise FencedMemberEpoch(
                f"The consumer group member has a smaller member epoch ({received}) than the one "
                f"known by the group coordinator ({known}). The member must abandon all its "
                "partitions and rejoin."
            )

    def _owns_at_most(self, assigned: Partitions) -> bool:
        return self._owned is not None and all(
            partitions <= assigned.get(topic_id, frozenset())
            for topic_id, partitions in self._owned.items()
        )

    def _log_join(self, member: ConsumerMember, *, replaced: str | None = None) -> None:
        logger.info(
            "member joins: group=%s member=%s%s%s",
            self._image.group_id,
            member.member_id,
            f" instance_id={self._request.instance_id}" if self._request.instance_id else "",
            f" replaces={replaced}" if replaced else "",
        )

    def _updated(self, member: ConsumerMember) -> ConsumerMember:
        """Return the member updated from the request; a null field of the request changes nothing.

        If nothing changed, as in nearly every heartbeat, return the same object.
        """
        request, caller = self._request, self._caller
        names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
        changes: dict[str, Any] = {} if member.classic is None else {"classic": None}
        for field, value in (
            ("client_id", caller.client_id),
            ("client_host", caller.client_host),
            ("instance_id", request.instance_id),
            ("rack_id", request.rack_id),
            ("server_assignor", request.server_assignor),
            ("topic_names", None if names is None else frozenset(names)),
            ("topic_regex", request.subscribed_topic_regex),
            ("rebalance_timeout_ms", None if timeout_ms == -1 else timeout_ms),
        ):
            if value is not None and value != getattr(member, field):
                changes[field] = value
        return replace(member, **changes) if changes else member

    def _response(
        self, before: ConsumerMember, member: ConsumerMember
    ) -> ConsumerGroupHeartbeatResponse:
        request = self._request
        # A request with all fields gets the whole assignment. A client sends such a request for
        # example after a lost response.
        full = (
            request.rebalance_timeout_ms != -1
            and self._owned is not None
            and (
                request.subscribed_topic_names is not None
                or request.subscribed_topic_regex is not None
            )
        )
        changed = full or request.member_epoch == JOIN_EPOCH or member.assigned != before.assigned
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self._context.heartbeat_interval_ms(self._image.group_id),
            assignment=_assignment(member.assigned) if changed else None,
        )


def _assignment(partitions: Partitions) -> ConsumerGroupHeartbeatAssignment:
    return ConsumerGroupHeartbeatAssignment(
        topic_partitions=[
            ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in sorted_partitions(partitions)
        ]
    )
