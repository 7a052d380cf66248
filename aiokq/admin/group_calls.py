"""GroupCalls: the methods of Admin on groups. Other modules, such as `groups`, send requests."""

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
    """Methods of `Admin` on groups of the classic and the consumer protocol.

    Requests to the coordinators of several groups are sent concurrently. The request for a group is
    retried if its coordinator moved, is loading or did not respond. Results, ``timeout`` and errors
    are as described in `Admin`.
    """

    @abstractmethod
    def _check(self, timeout: float | None) -> ClusterEngine:
        """Return the engine; raise Closed or WrongLoop if the object cannot be used."""

    async def list_groups(
        self,
        *,
        states: str | Iterable[str] = (),
        types: str | Iterable[str] = (),
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> GroupListings:
        """Return the groups of the cluster, by id; every broker lists the groups it coordinates.

        Args:
            states: only groups in these states, such as "Stable" or "Empty" (Kafka 2.6).
            types: only groups of these types: "Classic", "Consumer" ... (Kafka 3.8).
            raise_errors: raise the error of the first broker that failed. If False, errors are in
                ``.errors``, and the groups of the failed brokers are missing.
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
        """Describe groups with their members: state, assignor, coordinator, assignments.

        Args:
            include_authorized_operations: include the operations that this client is authorized to
                perform (Kafka 2.3).

        Returns:
            Results by group id; errors are GroupIdNotFound, GroupAuthorization ...
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
        """Delete groups without members, and their offsets.

        Returns:
            Results by group id; errors are GroupNotEmpty, GroupIdNotFound ...
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
        """Remove members from a group, so that the group need not wait for their session timeouts.

        The call is meant for members that are gone but whose session has not expired, mainly static
        members. A live member rejoins by itself.

        Args:
            member_ids: member ids as returned by `describe_groups`; None for all members.
            group_instance_ids: ids of static members, instead of or in addition to member ids.
            reason: text for the broker's log (Kafka 3.2; classic protocol only).

        Returns:
            Results by member id, or by the given instance id; errors are UnknownMemberId,
            FencedInstanceId ...

        Raises:
            GroupIdNotFound: the group does not exist.
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

    async def list_group_offsets(
        self,
        group_ids: GroupsLike,
        *,
        require_stable: bool = False,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[str, GroupOffsets]:
        """Return the committed offsets of groups in any state.

        Args:
            group_ids: a group id, several group ids, or a mapping of each group id to its
                partitions (None for all partitions).
            require_stable: wait for the end of open transactions that commit offsets (KIP-447).

        Returns:
            Results by group id. A group that does not exist has no offsets and no error.
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
        """Commit offsets for a group without members; the group is created if it does not exist.

        Args:
            offsets: for each partition, the next offset to consume. The offsets may be outside the
                log; `reset_group_offsets` would move them to the log's start or end.

        Returns:
            Results by partition; errors are GroupNotEmpty, UnknownTopicOrPartition ...
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
        """Delete committed offsets of topics to which no member of the group is subscribed.

        Returns:
            Results by partition; errors are GroupSubscribedToTopic, UnknownTopicOrPartition,
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
        """Compute new offsets from the logs, and commit them for a group without members.

        Args:
            to: "earliest", "latest", "current", or a `ResetTo`: an offset, a time, a duration
                before the call, or a shift. One target applies to all partitions; a mapping has a
                target per partition. An offset outside the log is moved to the log's start or end.
            partitions: topics, or single partitions; None for all with a committed offset.
            dry_run: compute without committing.
            live: with dry_run, compute also for a group with members, as `rewind_group` would.

        Returns:
            Results by partition, with the previous and the new offset.

        Raises:
            GroupNotEmpty: the group has members; not raised if `dry_run` and `live` are set.
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
        """Change the offsets of a group while its members consume.

        The call removes the members and commits the offsets. The members rejoin and resume from the
        new offsets within about a heartbeat interval. Until then, members may still return records
        from their old positions; the coordinator refuses their commits for these records. No record
        at or after the new offset is skipped. Other partitions resume at their committed offsets.

        Members of other clients in a classic group are removed, too. This client stays in a classic
        group as a member until another member has rejoined, because an empty group would accept the
        commits of removed members. If no other member joins within 30 s, this client leaves the
        group and logs a warning.

        Args:
            to: an offset, a timezone-aware `datetime` (selects the first record at or after this
                time), "earliest", "latest", or a `ResetTo`; one target for all partitions, or a
                mapping with a target per partition. Shifts and "current" are relative to the
                offsets committed at the time of the call.
            partitions: topics, or single partitions; None for all with a committed offset.

        Returns:
            Results by partition, with the previous offset and the offset to resume from. The error
            is CommitFailed if the offset was changed after this client was removed from the group
            and before a member rejoined. The error is RequestTimeout if the timeout expired before
            a member rejoined; the committed offset may still be overwritten then.

        Raises:
            ForeignMembers: the group uses the consumer protocol, and some members are not aiokq's
                or still use the classic protocol.
            GroupMaxSizeReached: a classic group has its maximum size, so that this client cannot
                join.
            RequestTimeout: the rewind was not completed in time.
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
        """Commit offsets from another system for groups that have no members in this cluster.

        `aiokq groups import-zookeeper` reads offsets from ZooKeeper or from a dump of ZooKeeper.

        Args:
            groups: for each group id, a map of partition to the next offset to consume.
            overwrite: replace offsets that are committed in this cluster; by default, they are
                kept.
            clip: move an offset outside the log to the log's start or end; by default, an offset
                outside the log is an error.
            dry_run: check without committing.

        Returns:
            Results by group id and partition; errors are OffsetOutOfRange, UnknownTopicOrPartition,
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
        """Return the lag of groups by partition, with the owner of each partition.

        Args:
            isolation_level: with "read_committed", lag is counted up to the last stable offset,
                otherwise up to the high watermark.
        """
        results = await lags.group_lag(
            self._check(timeout),
            str_list_argument(group_ids, "group_ids", "['billing', 'audit']"),
            isolation_level=isolation_level,
            timeout=timeout,
        )
        return results.raise_for_errors() if raise_errors else results
