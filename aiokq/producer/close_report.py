"""CloseReport: the numbers of delivered, failed and unsent records of a closed producer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition

__all__ = ["CloseReport"]


@frozen
class CloseReport:
    """The outcomes of all records that a producer accepted.

    Each record counts as `delivered`, `failed` or `unsent`.

    Attributes:
        delivered: number of acknowledged records; with acks=0, the number of records that were
            written to a connection.
        failed: number of records that failed, without the records in `unsent`. Reasons are, for
            example, that a broker refused the record, that the record was not acknowledged within
            delivery_timeout_ms, or that the topic does not exist.
        unsent: number of records that failed because close() ran out of time or was cancelled, or
            because a bug or a cancellation has ended the tasks of the producer. Their Deliveries
            raise `Closed`, and `Closed.may_have_been_written` is True if a broker may have appended
            the record.
        unsent_by_partition: `unsent` per partition; partition -1 counts the records of a topic
            whose partitions were unknown.
    """

    delivered: int = 0
    failed: int = 0
    unsent: int = 0
    unsent_by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every record was delivered."""
        return not self.failed and not self.unsent
