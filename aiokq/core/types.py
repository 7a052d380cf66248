"""Owns the small values every layer names things with; no behaviour and no I/O.

`Record`, `RecordMetadata` and the like are native: aiokq.fastpath has them.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from aiokq.core import limits
from aiokq.core.frozen import frozen

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes that are passed on without a copy."""

OWN_MEMBER_PREFIX: Final = "aiokq-"
"""How member ids of this library begin where members name themselves (KIP-848, KIP-1082)."""


class TopicPartition(NamedTuple):
    """A partition of a topic; any `(topic, partition)` tuple is equal to it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def of(cls, value: TopicPartition | tuple[str, int]) -> TopicPartition:
        """One of what people give for it.

        Raises:
            TypeError: it is no (topic, partition).
            ValueError: the number is no partition's.
        """
        if (
            not isinstance(value, tuple)
            or len(value) != 2
            or not isinstance(value[0], str)
            or not isinstance(value[1], int)
            or isinstance(value[1], bool)
        ):
            raise TypeError(
                f"{value!r} is no partition: write (topic, number), as in ('orders', 0)"
            )
        limits.partition(value[1], f"partition of {value[0]!r}")
        return cls(*value)


@frozen
class OffsetAndMetadata:
    """What a group commits for a partition.

    Attributes:
        offset: of the next record to read.
        metadata: any text the committer wants kept with it.
        leader_epoch: of the last record read, for truncation detection (KIP-320).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


@frozen
class OffsetAndTimestamp:
    """The first record at or after a time.

    Attributes:
        offset: of that record.
        timestamp_ms: of that record, milliseconds since the epoch.
        leader_epoch: of that record, if the broker says.
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int | None = None


@frozen
class GroupMetadata:
    """Which member of which group, for fenced commits (Kafka's ConsumerGroupMetadata).

    Attributes:
        generation: of the classic protocol, the member epoch of the modern one; -1 outside one.
        member_id: "" outside a group.
        group_instance_id: set for static members.
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@frozen
class TopicFilter:
    """Which topics to subscribe to: two regular expressions that must match whole names.

    Attributes:
        include: topics to take.
        exclude: topics to leave out of those, if given.
    """

    include: str
    exclude: str | None = None
