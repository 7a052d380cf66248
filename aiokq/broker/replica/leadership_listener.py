"""The callbacks of a coordinator for the partitions that this node leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiokq.broker.replica.partition import Partition

__all__ = ["LeadershipListener"]


class LeadershipListener(Protocol):
    """Callbacks of a coordinator for the partitions that this node leads.

    They are called on the node's loop and must not block. ``elected`` is called before the first
    request to the partition's new leader is served. When the coordinator starts, ``elected`` is
    called for each partition that this node leads already.

    Source: Kafka's `GroupCoordinator.onElection`, `onResignation`.
    """

    def elected(self, partition: Partition) -> None:
        """Handle that this node has become the leader of `partition`, in its `leader_epoch`."""

    def resigned(self, partition: Partition) -> None:
        """Handle the end of this node's leadership of `partition`, which serves no more requests.

        The partition was deleted, its directory failed, or another node leads it now.
        """
