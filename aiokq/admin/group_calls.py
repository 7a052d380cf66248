"""GroupCalls: Admin's methods on groups; what each does is in the module of its area."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from aiokq.admin import group_import as imports
from aiokq.admin import group_lag as lags
from aiokq.admin import group_listing as listings
from aiokq.admin import group_members as members
from aiokq.admin import group_offsets, group_reset, group_rewind, groups
from aiokq.admin.group_import import GroupOffsetImported
from aiokq.admin.group_listing import GroupListings
from aiokq.admin.group_offsets import GroupsLike
from aiokq.admin.group_reset import ResetToLike
from aiokq.admin.group_types import (
    GroupDeleted,
    GroupDescription,
    GroupLag,
    GroupOffsetAltered,
    GroupOffsetDeleted,
    GroupOffsetReset,
    GroupOffsets,
    MemberRemoved,
)
from aiokq.admin.results import Results
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.offsets import IsolationLevel
from aiokq.core.arguments import list_argument, mapping_argument, str_argument, str_list_argument
from aiokq.core.types import OffsetAndMetadata, TopicPartition

__all__ = ["GroupCalls"]


class GroupCalls(ABC):
    """What an `Admin` does with consumer groups, of both protocols.

    The coordinators of the groups are found together and asked at the same time; a group whose
    coordinator moves, loads or does not answer is asked for again. What is said in `Admin` about
    results, ``timeout`` and errors holds here.
    """

    @abstractmethod
    def _check(self, timeout: float | None) -> ClusterEngine:
        """The engine, if this may be used here and now."""

    async def list_groups(
        self,
        *,
        states: str | Iterable[str] = (),
        types: str | Iterable[str] = (),
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> GroupListings:
        """All groups of the cluster, by id; every broker lists those it coordinates.

        Args:
            states: only those in one of these, as in "Stable" or "Empty" (Kafka 2.6).
            types: only those of one of these: "Classic", "Consumer" ... (Kafka 3.8).
            raise_errors: raise the error of the first broker that could not be asked. Otherwise
                they are in ``.errors``, and the groups of these brokers are missing.
        """
        found = await listings.list_groups(
            self._check(timeout), states=states, types=types, timeout=timeout
        )
        return found.raise_for_errors() if raise_errors else found

    async def describe_groups(
        self,
        group_ids: str | Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[str, GroupDescription]:
        """Describe groups with their members: state, assignor, coordinator, who owns what.

        Args:
            include_authorized_operations: tell what this client may do with each (Kafka 2.3).

        Returns:
            By group id; the error is GroupIdNotFound, GroupAuthorization ...
        """
        results = await groups.describe_groups(
            self._check(timeout),
            str_list_argument(group_ids, "group_ids", "['billing', 'audit']"),
            include_authorized_operations=include_authorized_operations,
            timeout=timeout,
        )
        return results.raise_for_errors() if raise_errors else results

    async def delete_groups(
        self,
        group_ids: str | Iterable[str],
        *,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[str, GroupDeleted]:
        """Delete groups with their offsets; a group must have no members.

        Returns:
            By group id; the error is GroupNotEmpty, GroupIdNotFound ...
        """
        results = await groups.delete_groups(
            self._check(timeout),
            str_list_argument(group_ids, "group_ids", "['billing', 'audit']"),
            timeout=timeout,
        )
        return results.raise_for_errors() if raise_errors else results

    async def remove_members(
        self,
        group_id: str,
        member_ids: str | Iterable[str] | None = (),
        *,
        group_instance_ids: str | Iterable[str] = (),
        reason: str | None = None,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[str, MemberRemoved]:
        """Remove members from a group; their partitions go to the others at once.

        For those that are gone and whose session has not ended, static members above all. One that
        is alive joins again by itself.

        Args:
            member_ids: as `describe_groups` tells them; None for all members.
            group_instance_ids: of static members, instead or as well.
            reason: for the broker's log (Kafka 3.2; classic protocol only).

        Returns:
            By what was given; the error is UnknownMemberId, FencedInstanceId ...

        Raises:
            GroupIdNotFound: there is no such group.
        """
        results = await members.remove_members(
            self._check(timeout),
            str_argument(group_id, "group_id"),
            None
            if member_ids is None
            else str_list_argument(member_ids, "member_ids", "['id-1', 'id-2']"),
            group_instance_ids=str_list_argument(
                group_instance_ids, "group_instance_ids", "['host-1', 'host-2']"
            ),
            reason=reason,
            timeout=timeout,
        )
        return results.raise_for_errors() if raise_errors else results

    # -- offsets

    async def list_group_offsets(
        self,
        group_ids: GroupsLike,
        *,
        require_stable: bool = False,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[str, GroupOffsets]:
        """What groups have committed, whatever their state.

        Args:
            group_ids: a group, several, or for each the partitions wanted (None: all).
            require_stable: wait for open transactions that commit offsets (KIP-447).

        Returns:
            By group id. A group that does not exist has committed nothing, and is no error.
        """
        results = await group_offsets.list_group_offsets(
            self._check(timeout), group_ids, require_stable=require_stable, timeout=timeout
        )
        return results.raise_for_errors() if raise_errors else results

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
        | Mapping[tuple[str, int], OffsetAndMetadata | int],
        *,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[TopicPartition, GroupOffsetAltered]:
        """Commit offsets for a group that has no members; one that does not exist is made.

        Args:
            offsets: of the next record to read, per partition. Whether the log has them is not
                looked at: `reset_group_offsets` does that.

        Returns:
            By partition; the error is GroupNotEmpty, UnknownTopicOrPartition ...
        """
        mapping_argument(offsets, "offsets", "{('orders', 0): 1000}")
        results = await group_offsets.alter_group_offsets(
            self._check(timeout),
            str_argument(group_id, "group_id"),
            {
                TopicPartition.of(tp): OffsetAndMetadata(offset)
                if isinstance(offset, int)
                else offset
                for tp, offset in offsets.items()
            },
            timeout=timeout,
        )
        return results.raise_for_errors() if raise_errors else results

    async def delete_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | Iterable[tuple[str, int]],
        *,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[TopicPartition, GroupOffsetDeleted]:
        """Delete committed offsets, of topics that no member of the group is subscribed to.

        Returns:
            By partition; the error is GroupSubscribedToTopic, UnknownTopicOrPartition,
            GroupIdNotFound ...
        """
        results = await group_offsets.delete_group_offsets(
            self._check(timeout),
            str_argument(group_id, "group_id"),
            [
                TopicPartition.of(tp)
                for tp in list_argument(partitions, "partitions", "[('orders', 0)]")
            ],
            timeout=timeout,
        )
        return results.raise_for_errors() if raise_errors else results

    async def reset_group_offsets(
        self,
        group_id: str,
        to: ResetToLike | Mapping[TopicPartition, ResetToLike],
        partitions: Iterable[str | TopicPartition] | None = None,
        *,
        dry_run: bool = False,
        live: bool = False,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[TopicPartition, GroupOffsetReset]:
        """Commit where a group that has no members shall go on, computed from the logs.

        Args:
            to: "earliest", "latest", "current", or a `ResetTo`: an offset, a time, a duration back,
                a shift; for all partitions, or one for each. An offset outside the log becomes the
                end nearest to it.
            partitions: topics, or single partitions; None for all that the group has committed.
            dry_run: compute only.
            live: with dry_run: for a group that has members, as `rewind_group` would do it.

        Returns:
            By partition, with the offset before and after.

        Raises:
            GroupNotEmpty: the group has members.
            UnknownTopicOrPartition: a topic given by name does not exist.
        """
        results = await group_reset.reset_group_offsets(
            self._check(timeout),
            str_argument(group_id, "group_id"),
            to,
            partitions,
            dry_run=dry_run,
            live=live,
            timeout=timeout,
        )
        return results.raise_for_errors() if raise_errors else results

    async def rewind_group(
        self,
        group_id: str,
        to: ResetToLike | Mapping[TopicPartition, ResetToLike],
        partitions: Iterable[str | TopicPartition] | None = None,
        *,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[TopicPartition, GroupOffsetReset]:
        """Have a group go on from other offsets, also while its members are at work.

        Its members are taken out, the offsets are committed, and the members join again, within
        about a heartbeat interval, and resume there. Until then they may still hand out records
        from where they were; what they commit of these is refused. No record at or after the new
        offset is skipped. Partitions that are not named go on from what is committed.

        Members of other makes in a classic group are taken out as well. Such a group is held by
        this client until a member is back, so that it is not empty, and takes no commit from
        outside: for 30 s at most, after which a warning is logged.

        Args:
            to: an offset, a `datetime` with its zone (the first record at or after it),
                "earliest", "latest", or a `ResetTo`; for all partitions, or one for each. Shifts
                and "current" count from what is committed when this is called.
            partitions: topics, or single partitions; None for all that the group has committed.

        Returns:
            By partition, with the offset before and the one that it resumes from. The error is
            CommitFailed where it has another offset before a member is back: another rewind was
            later, or this client could not hold the group; RequestTimeout where the time was over
            before a member was back, so that the offset that is committed may yet be undone.

        Raises:
            ForeignMembers: the group speaks the consumer protocol, and some of its members are
                not aiokq's, or still speak the classic one.
            GroupMaxSizeReached: a classic group has no room for this client.
            RequestTimeout: it could not be done in time.
        """
        results = await group_rewind.rewind_group(
            self._check(timeout),
            str_argument(group_id, "group_id"),
            to,
            partitions,
            timeout=timeout,
        )
        return results.raise_for_errors() if raise_errors else results

    async def import_group_offsets(
        self,
        groups: Mapping[str, Mapping[TopicPartition, int]],
        *,
        overwrite: bool = False,
        clip: bool = False,
        dry_run: bool = False,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[tuple[str, TopicPartition], GroupOffsetImported]:
        """Commit offsets that groups had elsewhere, for groups that have no members here.

        `aiokq groups import-zookeeper` reads them from ZooKeeper or from a dump of it.

        Args:
            groups: by group id and partition the offset of the next record to read.
            overwrite: replace what a group has committed here; otherwise that is kept.
            clip: an offset outside the log becomes the end nearest to it; otherwise it is an error.
            dry_run: look only.

        Returns:
            By group id and partition; the error is OffsetOutOfRange, UnknownTopicOrPartition,
            GroupNotEmpty ...
        """
        results = await imports.import_group_offsets(
            self._check(timeout),
            groups,
            overwrite=overwrite,
            clip=clip,
            dry_run=dry_run,
            timeout=timeout,
        )
        return results.raise_for_errors() if raise_errors else results

    async def group_lag(
        self,
        group_ids: str | Iterable[str],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[str, GroupLag]:
        """How far groups are behind the ends of the logs, by partition, with who owns each.

        Args:
            isolation_level: with "read_committed", the end is the last stable offset.
        """
        results = await lags.group_lag(
            self._check(timeout),
            str_list_argument(group_ids, "group_ids", "['billing', 'audit']"),
            isolation_level=isolation_level,
            timeout=timeout,
        )
        return results.raise_for_errors() if raise_errors else results
