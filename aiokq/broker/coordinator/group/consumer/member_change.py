"""A change of one member and its consequences for the group, as records.

A `MemberChange` reads the image of the group and does not change it: the records take effect when
they are replayed.

Source: Kafka ``GroupMetadataManager.consumerGroupHeartbeat`` (4.2). Kafka resolves regular
expressions in another thread, at most every ten seconds. aiokq resolves them immediately, and again
whenever topics have changed, because matching takes microseconds.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from aiokq.assign.server_model import Partitions
from aiokq.broker.coordinator.group.consumer.context import ConsumerContext
from aiokq.broker.coordinator.group.consumer.image import GroupImage, subscribed_names
from aiokq.broker.coordinator.group.consumer.member import NO_PARTITIONS, ConsumerMember
from aiokq.broker.coordinator.group.consumer.reconciliation import Target, reconcile
from aiokq.broker.coordinator.group.consumer.records import (
    current_assignment_record,
    epoch_record,
    member_record,
    member_tombstones,
    partition_metadata_tombstone,
    regex_record,
    regex_tombstone,
    target_record,
)
from aiokq.broker.coordinator.group.consumer.regex import ResolvedRegex, resolve
from aiokq.broker.coordinator.group.consumer.subscribed_topics import Subscriptions, metadata_hash
from aiokq.broker.coordinator.group.consumer.target_assignment import (
    preferred_assignor,
    target_assignment,
)
from aiokq.broker.coordinator.group.group import GroupType
from aiokq.broker.coordinator.record import CoordinatorRecord
from aiokq.core.errors import GroupMaxSizeReached, InvalidRegularExpression

__all__ = ["MemberChange", "new_member_id"]

logger = logging.getLogger("aiokq.broker.coordinator")

MEMBER_ID_BYTES: Final = 16


def new_member_id(context: ConsumerContext) -> str:
    """Return a new member id, in Kafka's form of UUIDs."""
    # An id with a leading "-" would look like an option on command lines.
    while True:
        made = context.random.randbytes(MEMBER_ID_BYTES)
        text = base64.urlsafe_b64encode(made).decode().rstrip("=")
        if not text.startswith("-"):
            return text


class MemberChange:
    """One change of a member of a consumer group, with the records that make the change.

    The steps of the change are the public methods, called in the order in which they are defined.

    Attributes:
        records: the records of the steps so far.
        replaced: the previous member id of a static member that joins again; None for every other
            change.
        member: the member as it will be after ``records`` are replayed.
        reconciled: whether the member's epoch, state or partitions changed.
        subscription_changed: whether the member's subscription changed.
        epoch: the group epoch after the steps so far.
        topics_version: the `TopicView.version` on which the change is based.
    """

    def __init__(
        self,
        image: GroupImage,
        context: ConsumerContext,
        timestamp_ms: int,
        *,
        topics_version: int,
        topics_changed: bool,
        describable: Callable[[frozenset[str]], Collection[str]],
    ) -> None:
        """Begin a change of a group.

        Args:
            topics_changed: whether topics may have changed since the last change of the group.
            describable: selects the topics that the sender of the request may describe.
        """
        self.topics_version = topics_version
        self.records: list[CoordinatorRecord] = []
        self.replaced: str | None = None
        self.member: ConsumerMember
        self.reconciled = False
        self.subscription_changed = False
        self.epoch = image.epoch
        self._image = image
        self._context = context
        self._timestamp_ms = timestamp_ms
        self._topics_changed = topics_changed
        self._describable = describable
        self._regexes: dict[str, ResolvedRegex] = image.regexes
        self._members: dict[str, ConsumerMember] = image.members

    def check_capacity(self, member_id: str, existing: ConsumerMember | None) -> None:
        """Refuse a new member if the group is full.

        Args:
            existing: the static member that joins again, if any; it already counts as a member.

        Raises:
            GroupMaxSizeReached: the group is full.
        """
        most = self._context.settings.group_consumer_max_size
        if (
            len(self._image.members) >= most
            and existing is None
            and member_id not in self._image.members
        ):
            raise GroupMaxSizeReached(
                f"The consumer group has reached its maximum capacity of {most} members."
            )

    def take_over(self, existing: ConsumerMember, member_id: str) -> ConsumerMember:
        """Give a static member a new member id.

        The member keeps its subscription, its partitions and its target assignment.
        """
        group_id = self._image.group_id
        member = replace(existing, member_id=member_id, member_epoch=0, previous_member_epoch=0)
        self.replaced = existing.member_id
        self.records += member_tombstones(group_id, existing.member_id)
        self.records += [
            member_record(group_id, member),
            target_record(group_id, member_id, self._image.target(existing.member_id)),
            current_assignment_record(group_id, member),
        ]
        return member

    def update(self, member: ConsumerMember, updated: ConsumerMember) -> None:
        """Update the member; the group gets a new epoch if the assignment has to be recomputed.

        Args:
            member: the member before the change.
            updated: the member after the change; the same object if nothing changed.

        Raises:
            InvalidRegularExpression: the subscribed expression is invalid.
        """
        self.member = updated
        is_new = self.replaced is None and updated.member_id not in self._image.members
        if is_new or updated is not member:
            self.records.append(member_record(self._image.group_id, updated))
        self._members = self._members_with(updated)
        names_changed = updated.topic_names != member.topic_names
        regex_changed = updated.topic_regex != member.topic_regex
        self.subscription_changed = names_changed or regex_changed
        matches_changed = self._resolve(regex_changed=regex_changed)
        self.epoch = self._group_epoch(changed=self.subscription_changed or matches_changed)

    def _members_with(self, updated: ConsumerMember) -> dict[str, ConsumerMember]:
        if self._image.members.get(updated.member_id) is updated:
            return self._image.members
        members = dict(self._image.members)
        if self.replaced is not None:
            members.pop(self.replaced, None)
        members[updated.member_id] = updated
        return members

    def _resolve(self, *, regex_changed: bool) -> bool:
        """Resolve expressions if they or the topics changed; return whether a result changed."""
        if not regex_changed and not self._topics_changed:
            return False
        used = {member.topic_regex for member in self._members.values()} - {""}
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
                # Another broker accepted the expression, perhaps because google-re2 is installed
                # there. Keep the topics that matched on that broker.
                self._regexes[regex] = old
                continue
            matched = resolve(match, self._context.topics.names())
            topics = frozenset(self._describable(matched))
            if old is not None and old.topics == topics:
                self._regexes[regex] = old
                continue
            self._regexes[regex] = found = ResolvedRegex(topics, self._timestamp_ms)
            self.records.append(regex_record(group_id, regex, found))
            changed = True
        for regex in sorted(known.keys() - used):
            self.records.append(regex_tombstone(group_id, regex))
            changed = True
        return changed

    def _group_epoch(self, *, changed: bool) -> int:
        """Return the group epoch, incremented if the target assignment has to be recomputed."""
        image = self._image
        bump = changed or image.epoch == 0
        if not bump and not self._topics_changed:
            return image.epoch
        if image.has_partition_metadata:
            self.records.append(partition_metadata_tombstone(image.group_id))
        names = subscribed_names(self._members.values(), self._regexes)
        hashed = metadata_hash(names, self._context.topics)
        if not bump and hashed == image.metadata_hash:
            return image.epoch
        epoch = image.epoch + 1
        self.records.append(epoch_record(image.group_id, epoch, hashed))
        logger.info(
            "group changed: group=%s epoch=%d members=%d",
            image.group_id,
            epoch,
            len(self._members),
        )
        return epoch

    def reconcile(self, owned: Partitions | None) -> None:
        """Move the member one step towards its target assignment.

        If the group epoch is newer than the target assignment, the assignment is recomputed first.

        Args:
            owned: the partitions that the member reports as its own; None if the request does not
                list them.

        Raises:
            FencedMemberEpoch: the member's state was written by a newer version; the member has to
                join again.
        """
        subscriptions = Subscriptions(self._context.topics, self._regexes)
        target = self._target(subscriptions)
        updated = self.member
        if not self.subscription_changed and updated.is_reconciled_to(target.epoch):
            return
        self.member = reconcile(
            updated,
            target,
            wanted=subscriptions.of(updated),
            owner_of=self._image.owner_of,
            owned=owned,
            subscription_changed=self.subscription_changed,
        )
        self.reconciled = self.member != updated
        if self.reconciled:
            self.records.append(current_assignment_record(self._image.group_id, self.member))
            logger.debug(
                "member reconciles: group=%s member=%s epoch=%d state=%s",
                self._image.group_id,
                self.member.member_id,
                self.member.member_epoch,
                self.member.state.name,
            )

    def _target(self, subscriptions: Subscriptions) -> Target:
        image, updated, epoch = self._image, self.member, self.epoch
        if epoch <= image.assignment_epoch:
            return Target(image.assignment_epoch, image.target(self.replaced or updated.member_id))
        targets = image.targets
        if self.replaced is not None:
            targets = dict(targets)
            targets[updated.member_id] = targets.pop(self.replaced, NO_PARTITIONS)
        assignors = self._context.assignors
        assignor = assignors[preferred_assignor(self._members.values(), assignors)]
        found, records = target_assignment(
            image.group_id, epoch, self._members, targets, subscriptions, assignor
        )
        self.records += records
        self._context.rebalances[GroupType.CONSUMER.value] += 1
        return Target(epoch, found[updated.member_id])
