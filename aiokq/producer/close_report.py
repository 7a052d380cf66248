"""CloseReport: what became of the records of a producer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition

__all__ = ["CloseReport"]


@frozen
class CloseReport:
    """What became of all records that a producer accepted: `delivered`, `failed` or `unsent`.

    Attributes:
        delivered: acknowledged (with acks=0: written to a socket).
        failed: failed before close() ran out of time: refused by a broker, past
            delivery_timeout_ms, or sent to a topic that does not exist.
        unsent: given up because close() ran out of time or was cancelled, or because of a bug in
            aiokq. Their Deliveries raise `Closed`, whose `may_have_been_written` tells whether a
            broker may have appended them.
        unsent_by_partition: `unsent` per partition; partition -1 has the records of a topic whose
            partitions were unknown.
    """

    delivered: int = 0
    failed: int = 0
    unsent: int = 0
    unsent_by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every record was delivered."""
        return not self.failed and not self.unsent
