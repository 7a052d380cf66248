"""The interface for callbacks when this node begins or stops leading a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiokq.broker.replica.partition import Partition

__all__ = ["LeadershipListener"]


class LeadershipListener(Protocol):
    """Callbacks for the partitions that this node leads; coordinators implement them.

    The callbacks run on the node's loop and must not block. ``elected`` is called before the node
    serves the first request as the partition's leader. When a coordinator starts, it also calls its
    own ``elected`` for each partition that this node already leads.

    Source: Kafka's `GroupCoordinator.onElection`, `onResignation`.
    """

    def elected(self, partition: Partition) -> None:
        """Handle that this node leads `partition` in a new leader epoch."""

    def resigned(self, partition: Partition) -> None:
        """Handle that this node does not lead `partition` any more.

        The partition was deleted, its log directory failed, or another node leads it now. Also
        called if the log of a partition that this node did not lead was deleted or failed.
        """
