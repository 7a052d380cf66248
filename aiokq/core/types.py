"""Small value types that all layers use, without behaviour or I/O.

`Record`, `RecordMetadata` and similar types are in aiokq.fastpath.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from aiokq.core import limits
from aiokq.core.frozen import frozen

Buffer: TypeAlias = bytes | bytearray | memoryview
"""A bytes-like object."""

OWN_MEMBER_PREFIX: Final = "aiokq-"
"""Prefix of the member ids that aiokq generates (KIP-848, KIP-1082).

The rewind of a group with members (admin/group_rewind.py) recognizes aiokq's members by the prefix.
"""


class TopicPartition(NamedTuple):
    """A partition of a topic; equal to the plain tuple `(topic, partition)`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def of(cls, value: TopicPartition | tuple[str, int]) -> TopicPartition:
        """Return `value` as a TopicPartition.

        Raises:
            TypeError: `value` is not (topic, partition).
            ValueError: the number is not a valid partition.
        """
        if (
            not isinstance(value, tuple)
            or len(value) != 2
            or not isinstance(value[0], str)
            or not isinstance(value[1], int)
            or isinstance(value[1], bool)
        ):
            raise TypeError(
                f"{value!r} is not a partition: write (topic, number), as in ('orders', 0)"
            )
        limits.partition(value[1], f"partition of {value[0]!r}")
        return cls(*value)


@frozen
class OffsetAndMetadata:
    """An offset that a group commits for a partition.

    Attributes:
        offset: offset of the next record to read.
        metadata: any text to store with the offset.
        leader_epoch: leader epoch of the last record read, for truncation detection (KIP-320); None
            if unknown.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


@frozen
class OffsetAndTimestamp:
    """The result of an offset lookup.

    Attributes:
        offset: offset of the first record whose timestamp is at or after the requested time, or the
            requested special offset, such as the high watermark for "latest".
        timestamp_ms: timestamp of the record in milliseconds since 1970; -1 if the broker returns
            none, as for "earliest" and "latest".
        leader_epoch: leader epoch of the record; None if the broker does not return it.
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int | None = None


@frozen
class GroupMetadata:
    """A member of a group, for fenced commits (Kafka's ConsumerGroupMetadata).

    Attributes:
        generation: generation in the classic protocol, member epoch in the consumer protocol; -1
            outside a group.
        member_id: id of the member; may be "" outside a group.
        group_instance_id: id of a static member (`group.instance.id`); None for other members.
        outside_group: whether `Consumer.group_metadata` was called while the consumer had
            subscribed and was not a member of its group. `Transaction.send_offsets` refuses offsets
            with such metadata.
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    outside_group: bool = False


@frozen
class TopicFilter:
    """The topics to subscribe to, by two regular expressions that must match whole names.

    Attributes:
        include: pattern of the topics to subscribe to.
        exclude: pattern of the topics to leave out; None to leave out no topic.
    """

    include: str
    exclude: str | None = None
