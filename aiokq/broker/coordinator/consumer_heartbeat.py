"""One heartbeat of one member: from the request to the records and the answer.

Owns no state: it reads the group's image, and what it decides becomes true by replaying its
records.

Source: Kafka ``GroupMetadataManager.consumerGroupHeartbeat`` (4.2). Expressions are resolved here
and now, where Kafka resolves them in another thread and tells the member at a later heartbeat; and
whenever topics have changed, where Kafka waits for ten seconds: matching takes microseconds.
"""

from __future__ import annotations

import base64
import logging
from dataclasses import dataclass, replace
from typing import Any, Final

from aiokq.assign.server_model import Partitions
from aiokq.broker.coordinator.consumer_context import ConsumerContext
from aiokq.broker.coordinator.consumer_image import GroupImage, subscribed_names
from aiokq.broker.coordinator.consumer_leave import static_member_or_fenced
from aiokq.broker.coordinator.consumer_member import (
    JOIN_EPOCH,
    NO_PARTITIONS,
    ConsumerMember,
    partitions_of,
)
from aiokq.broker.coordinator.consumer_reconcile import Target, reconcile
from aiokq.broker.coordinator.consumer_records import (
    current_assignment_record,
    epoch_record,
    member_record,
    member_tombstones,
    partition_metadata_tombstone,
    regex_record,
    regex_tombstone,
    sorted_partitions,
    target_record,
)
from aiokq.broker.coordinator.consumer_regex import ResolvedRegex, resolve
from aiokq.broker.coordinator.consumer_target import preferred_assignor, target_assignment
from aiokq.broker.coordinator.consumer_topics import Subscriptions, metadata_hash
from aiokq.broker.coordinator.group import Caller, GroupType
from aiokq.broker.coordinator.records import CoordinatorRecord
from aiokq.core.errors import (
    FencedMemberEpoch,
    GroupMaxSizeReached,
    InvalidRegularExpression,
    UnreleasedInstanceId,
)
from aiokq.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)

__all__ = ["Beat", "Heartbeat"]

logger = logging.getLogger("aiokq.broker.coordinator")

MEMBER_ID_BYTES: Final = 16


@dataclass(slots=True)
class Beat:
    """What a heartbeat came to.

    Attributes:
        member: as it is once the records are replayed.
        reconciled: whether the member's epoch, state or partitions changed.
        replaced: the member id that it had as a static member before.
    """

    member: ConsumerMember
    reconciled: bool
    replaced: str | None
    records: list[CoordinatorRecord]
    response: ConsumerGroupHeartbeatResponse


class Heartbeat:
    """The steps of one heartbeat."""

    def __init__(
        self,
        image: GroupImage,
        context: ConsumerContext,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        timestamp_ms: int,
        *,
        topics_changed: bool,
    ) -> None:
        """`topics_changed`: topics may have changed since the group was last looked at."""
        self._image = image
        self._context = context
        self._request = request
        self._caller = caller
        self._timestamp_ms = timestamp_ms
        self._topics_changed = topics_changed
        self._records: list[CoordinatorRecord] = []
        self._replaced: str | None = None
        """The member id whose static member this request takes over."""
        self._regexes: dict[str, ResolvedRegex] = image.regexes
        self._owned: Partitions | None = (
            None if request.topic_partitions is None else partitions_of(request.topic_partitions)
        )

    def run(self) -> Beat:
        """Take the heartbeat.

        Raises:
            BrokerError: of the code for the member: 25, 81, 82, 110, 111, 128.
        """
        member = self._find_member()
        updated = self._updated(member)
        is_new = self._replaced is None and updated.member_id not in self._image.members
        if is_new or updated is not member:
            self._records.append(member_record(self._image.group_id, updated))
        names_changed = updated.topic_names != member.topic_names
        regex_changed = updated.topic_regex != member.topic_regex
        members = self._members_with(updated)
        matches_changed = self._resolve(members, regex_changed=regex_changed)
        epoch = self._group_epoch(
            members, changed=names_changed or regex_changed or matches_changed
        )
        subscriptions = Subscriptions(self._context.topics, self._regexes)
        target = self._target(updated, members, epoch, subscriptions)
        reconciled = updated
        moved = False
        if names_changed or regex_changed or not updated.is_reconciled_to(target.epoch):
            reconciled = reconcile(
                updated,
                target,
                wanted=subscriptions.of(updated),
                owner_of=self._image.owner_of,
                owned=self._owned,
                subscription_changed=names_changed or regex_changed,
            )
            moved = reconciled != updated
        if moved:
            self._records.append(current_assignment_record(self._image.group_id, reconciled))
            logger.debug(
                "member reconciles: group=%s member=%s epoch=%d state=%s",
                self._image.group_id,
                reconciled.member_id,
                reconciled.member_epoch,
                reconciled.state.name,
            )
        return Beat(
            reconciled,
            moved,
            self._replaced,
            self._records,
            self._response(member, reconciled),
        )

    # Who it is

    def _find_member(self) -> ConsumerMember:
        request = self._request
        joins = request.member_epoch == JOIN_EPOCH
        existing = self._image.static_member(request.instance_id)
        self._check_room(existing)
        member_id = request.member_id or self._new_member_id()
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

    def _check_room(self, existing: ConsumerMember | None) -> None:
        most = self._context.settings.group_consumer_max_size
        if (
            len(self._image.members) >= most
            and existing is None  # a static member that comes back takes nobody's place
            and self._request.member_id not in self._image.members
        ):
            raise GroupMaxSizeReached(
                f"The consumer group has reached its maximum capacity of {most} members."
            )

    def _new_member_id(self) -> str:
        # As Kafka writes its UUIDs. Command lines take a leading "-" for an option.
        while True:
            made = self._context.random.randbytes(MEMBER_ID_BYTES)
            text = base64.urlsafe_b64encode(made).decode().rstrip("=")
            if not text.startswith("-"):
                return text

    def _take_over(self, existing: ConsumerMember, member_id: str) -> ConsumerMember:
        """A static member joins that was here before: it takes over all that is left of itself."""
        group_id, instance_id = self._image.group_id, self._request.instance_id
        if not existing.is_away:
            raise UnreleasedInstanceId(
                f"Static member {member_id} with instance id {instance_id} cannot join the group "
                f"because the instance id is owned by {existing.member_id} member."
            )
        member = replace(existing, member_id=member_id, member_epoch=0, previous_member_epoch=0)
        self._replaced = existing.member_id
        self._records += member_tombstones(group_id, existing.member_id)
        self._records += [
            member_record(group_id, member),
            target_record(group_id, member_id, self._image.target(existing.member_id)),
            current_assignment_record(group_id, member),
        ]
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
        # The answer that gave it the newer epoch may have been lost. Then it has nothing yet of
        # what that gave, and nothing any more of what that took.
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

    # What it wants

    def _updated(self, member: ConsumerMember) -> ConsumerMember:
        """The member with what the request says; null stands for what has not changed.

        The very same member, where nothing has: as in nearly every heartbeat.
        """
        request, caller = self._request, self._caller
        names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
        changes: dict[str, Any] = {}
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

    def _members_with(self, updated: ConsumerMember) -> dict[str, ConsumerMember]:
        if self._image.members.get(updated.member_id) is updated:
            return self._image.members
        members = dict(self._image.members)
        if self._replaced is not None:
            del members[self._replaced]
        members[updated.member_id] = updated
        return members

    def _resolve(self, members: dict[str, ConsumerMember], *, regex_changed: bool) -> bool:
        """Look at the expressions, if there is reason to; whether any matches other topics."""
        if not regex_changed and not self._topics_changed:
            return False
        used = {member.topic_regex for member in members.values()} - {""}
        known, group_id = self._image.regexes, self._image.group_id
        changed = False
        self._regexes = {}
        for regex in sorted(used):
            old = known.get(regex)
            if old is not None and not self._topics_changed:
                self._regexes[regex] = old
                continue
            try:
                match = self._context.compile_regex(regex)
            except InvalidRegularExpression:
                if old is None:
                    raise
                # It was good where it was taken: what it matched there is all we know.
                self._regexes[regex] = old
                continue
            topics = resolve(match, self._context.topics.names())
            if old is not None and old.topics == topics:
                self._regexes[regex] = old
                continue
            self._regexes[regex] = found = ResolvedRegex(topics, self._timestamp_ms)
            self._records.append(regex_record(group_id, regex, found))
            changed = True
        for regex in sorted(known.keys() - used):
            self._records.append(regex_tombstone(group_id, regex))
            changed = True
        return changed

    # What that means for the group

    def _group_epoch(self, members: dict[str, ConsumerMember], *, changed: bool) -> int:
        """The group epoch, one higher if the target assignment has to be computed again."""
        image = self._image
        bump = changed or image.epoch == 0
        if not bump and not self._topics_changed:
            return image.epoch
        if image.has_partition_metadata:
            self._records.append(partition_metadata_tombstone(image.group_id))
        names = subscribed_names(members.values(), self._regexes)
        hashed = metadata_hash(names, self._context.topics)
        if not bump and hashed == image.metadata_hash:
            return image.epoch
        epoch = image.epoch + 1
        self._records.append(epoch_record(image.group_id, epoch, hashed))
        logger.info(
            "group changed: group=%s epoch=%d members=%d", image.group_id, epoch, len(members)
        )
        return epoch

    def _target(
        self,
        updated: ConsumerMember,
        members: dict[str, ConsumerMember],
        epoch: int,
        subscriptions: Subscriptions,
    ) -> Target:
        image = self._image
        if epoch <= image.assignment_epoch:
            return Target(image.assignment_epoch, image.target(self._replaced or updated.member_id))
        targets = image.targets
        if self._replaced is not None:
            targets = dict(targets)
            targets[updated.member_id] = targets.pop(self._replaced, NO_PARTITIONS)
        assignors = self._context.assignors
        assignor = assignors[preferred_assignor(members.values(), assignors)]
        found, records = target_assignment(
            image.group_id, epoch, members, targets, subscriptions, assignor
        )
        self._records += records
        self._context.rebalances[GroupType.CONSUMER.value] += 1
        return Target(epoch, found[updated.member_id])

    # The answer

    def _response(
        self, before: ConsumerMember, member: ConsumerMember
    ) -> ConsumerGroupHeartbeatResponse:
        request = self._request
        # Who sends all it can send has lost track, and is told all.
        full = (
            request.rebalance_timeout_ms != -1
            and self._owned is not None
            and (
                request.subscribed_topic_names is not None
                or request.subscribed_topic_regex is not None
            )
        )
        told = full or request.member_epoch == JOIN_EPOCH or member.assigned != before.assigned
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self._context.heartbeat_interval_ms(self._image.group_id),
            assignment=_assignment(member.assigned) if told else None,
        )


def _assignment(partitions: Partitions) -> ConsumerGroupHeartbeatAssignment:
    return ConsumerGroupHeartbeatAssignment(
        topic_partitions=[
            ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in sorted_partitions(partitions)
        ]
    )
