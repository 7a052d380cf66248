"""The arguments of `Transaction.send_offsets`, validated and converted."""

from __future__ import annotations

from collections.abc import Mapping

from aiokq.cluster.partition_arguments import checked_offsets
from aiokq.core.errors import CommitFailed, UnknownMemberId
from aiokq.core.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from aiokq.producer.transactions.transaction import OffsetSource, P

__all__ = ["offsets_and_member"]


def offsets_and_member(
    offsets: OffsetSource | Mapping[P, int | OffsetAndMetadata],
    group: GroupMetadata | str | None,
) -> tuple[Mapping[TopicPartition, OffsetAndMetadata], GroupMetadata]:
    """Return the offsets to commit, and the member of the group that commits them.

    Raises:
        ConfigError: the consumer's offsets cannot be part of a transaction, or an offset or leader
            epoch is out of range.
        CommitFailed: the consumer is outside its group, or has lost partitions whose records it has
            returned.
        TypeError: an argument is missing, or has the wrong type.
    """
    if not isinstance(offsets, Mapping):
        if getattr(offsets, "offsets_for_transaction", None) is None:
            raise TypeError(
                "send_offsets() takes a consumer, or offsets by partition and the consumer's "
                f"group_metadata(), not {offsets!r}"
            )
        if group is not None:
            raise TypeError("send_offsets(consumer) takes no second argument")
        return offsets.offsets_for_transaction()
    if isinstance(group, str):
        group = GroupMetadata(group)
    if not isinstance(group, GroupMetadata) or not group.group_id:
        raise TypeError(
            "send_offsets(offsets, group_metadata) needs the consumer's group_metadata(), or the "
            "id of a group without members"
        )
    wanted = checked_offsets(offsets)
    if group.outside_group and wanted:
        # The coordinator accepts offsets without a generation from any client (KIP-447), and would
        # overwrite the offsets of the partitions' new owner.
        errors = {tp: UnknownMemberId(topic_partition=tp) for tp in wanted}
        raise CommitFailed(errors, frozenset(errors), api="TxnOffsetCommit")
    return wanted, group
