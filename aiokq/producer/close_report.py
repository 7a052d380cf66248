"""Owns what close() says about the records of a producer's life."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition

__all__ = ["CloseReport"]


@frozen
class CloseReport:
    """What became of all records that a producer accepted; the three numbers add up to that.

    Attributes:
        delivered: acknowledged (with acks=0: written to a socket).
        failed: failed before the end: by a broker's refusal, by delivery_timeout_ms, or as the
            topic does not exist.
        unsent: given up by close(), as its time was over; their Deliveries raise `Closed`, and
            say in `may_have_been_written` whether a broker may have them.
        unsent_by_partition: the same per partition; -1 where a topic's partitions were unknown.
    """

    delivered: int = 0
    failed: int = 0
    unsent: int = 0
    unsent_by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every record was delivered."""
        return not self.failed and not self.unsent
