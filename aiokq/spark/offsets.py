"""Offsets of a query: their JSON form, and the division of a limit among partitions; no I/O.

The offset of a query is a map of topic to partition to offset. This is the form of the JVM
connector, so checkpoints of that connector can be read. Two kinds of entries are not topics:

- ``__aiokq_initial__.<topic>`` is an entry in the end offset of the first batch, and holds the
  start offset of the query. After a crash in this batch Spark requests the start again, and
  "latest" would then be another offset. If the query started without a partition,
  ``__aiokq_initial__.`` is an empty map.
- ``__aiokq_topic_id__.<topic>`` holds the topic's id, as two integers. The id shows that a topic
  was deleted and created again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from uuid import UUID

from aiokq import TopicPartition
from aiokq.errors import ConfigError

__all__ = [
    "EARLIEST",
    "LATEST",
    "OffsetMap",
    "PartitionOffsets",
    "SourceOffset",
    "parse_partition_offsets",
    "parse_partition_timestamps",
    "parse_partitions",
    "partitions_text",
    "prorated",
]

PartitionOffsets: TypeAlias = dict[TopicPartition, int]
OffsetMap: TypeAlias = dict[str, dict[str, int]]
"""An offset as Spark stores it: a map of topic to partition (a string) to offset."""

LATEST: Final = -1
EARLIEST: Final = -2
MAX_OFFSET: Final = 2**63 - 1

INITIAL: Final = "__aiokq_initial__."
TOPIC_ID: Final = "__aiokq_topic_id__."


@dataclass(frozen=True)
class SourceOffset:
    """A parsed offset of a query.

    Attributes:
        positions: offset of the next record to read, by partition.
        initial: start of the query; None in offsets after the end of the first batch.
        topic_ids: ids of the topics when the offset was determined; empty if the brokers have no
            topic ids.
    """

    positions: PartitionOffsets
    initial: PartitionOffsets | None = None
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)

    @property
    def unread(self) -> bool:
        """Whether this offset is the start of the query."""
        return self.positions == self.initial

    @classmethod
    def parse(cls, offset: Mapping[str, Mapping[str, int]]) -> SourceOffset:
        """Return the offset that Spark has stored for this source, or for the JVM connector.

        Raises:
            ConfigError: the value is not a map of topic to partition to offset.
        """
        positions: PartitionOffsets = {}
        initial: PartitionOffsets | None = None
        ids: dict[str, UUID] = {}
        try:
            for topic, partitions in offset.items():
                if topic.startswith(TOPIC_ID):
                    high, low = partitions["0"] % 2**64, partitions["1"] % 2**64
                    ids[topic.removeprefix(TOPIC_ID)] = UUID(int=high << 64 | low)
                    continue
                target, name = positions, topic
                if topic.startswith(INITIAL):
                    target = initial = {} if initial is None else initial
                    name = topic.removeprefix(INITIAL)
                for partition, position in partitions.items():
                    target[TopicPartition(name, int(partition))] = int(position)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                'the offset in the checkpoint is not of the form {"topic":{"0":23}}: '
                + json.dumps(offset)
            ) from error
        return cls(positions, initial, ids)

    def to_map(self) -> OffsetMap:
        """Return the form that Spark stores and compares; equal offsets give equal JSON."""
        out: OffsetMap = {}
        for topic, id_ in self.topic_ids.items():
            out[TOPIC_ID + topic] = {"0": _signed(id_.int >> 64), "1": _signed(id_.int % 2**64)}
        for tp, offset in self.positions.items():
            out.setdefault(tp.topic, {})[str(tp.partition)] = offset
        if self.initial == {}:
            out[INITIAL] = {}
        for tp, offset in (self.initial or {}).items():
            out.setdefault(INITIAL + tp.topic, {})[str(tp.partition)] = offset
        return {topic: dict(sorted(out[topic].items(), key=_number)) for topic in sorted(out)}


def _number(item: tuple[str, int]) -> int:
    return int(item[0])


def _signed(half: int) -> int:
    """Return 64 bits as a signed integer, because the JVM has no unsigned integers."""
    return half - 2**64 if half >= 2**63 else half


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))


def parse_partitions(text: str) -> tuple[TopicPartition, ...]:
    """Parse the option ``assign``: ``{"topicA":[0,1]}``.

    Raises:
        ConfigError: the text is not JSON of this form.
    """
    try:
        return tuple(
            sorted(
                TopicPartition(topic, _int(partition))
                for topic, partitions in json.loads(text).items()
                for partition in partitions
            )
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f'Expected e.g. {{"topicA":[0,1],"topicB":[0,1]}}, got {text}') from error


def parse_partition_offsets(text: str) -> PartitionOffsets:
    """Parse the options ``startingOffsets`` and ``endingOffsets``: ``{"topicA":{"0":23,"1":-1}}``.

    Raises:
        ConfigError: the text is not JSON of this form.
    """
    return _partition_numbers(text, '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}')


def parse_partition_timestamps(text: str) -> PartitionOffsets:
    """Parse the options ``...OffsetsByTimestamp``: ``{"topicA":{"0":123456789}}``, in milliseconds.

    Raises:
        ConfigError: the text is not JSON of this form.
    """
    return _partition_numbers(
        text,
        '{"topicA": {"0": 123456789, "1": 123456789},\n"topicB": {"0": 123456789, "1": 123456789}}',
    )


def _partition_numbers(text: str, example: str) -> PartitionOffsets:
    try:
        return {
            TopicPartition(topic, int(partition)): _int(number)
            for topic, partitions in json.loads(text).items()
            for partition, number in partitions.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"Expected e.g. {example}, got {text}") from error


def _int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not an integer")
    if not -MAX_OFFSET <= value <= MAX_OFFSET:
        raise ValueError(f"{value} has more than 64 bits")
    return value


def prorated(limit: int, start: PartitionOffsets, end: PartitionOffsets) -> PartitionOffsets:
    """Return ``end``, reduced to about ``limit`` offsets in proportion to the backlogs.

    Each partition with a backlog gets at least one offset, so that no partition is left out. The
    sum may therefore exceed the limit, by at most one offset for each partition.

    Args:
        start: position of each partition; a partition of ``end`` that is missing here keeps its
            end.

    Source: Spark `KafkaMicroBatchStream.rateLimit`.
    """
    sizes = {tp: end[tp] - start[tp] for tp in end if tp in start and end[tp] > start[tp]}
    total = sum(sizes.values())
    if total == 0:
        return dict(end)
    limited = dict(end)
    for tp, size in sizes.items():
        share = limit * (size / total)
        share = math.ceil(share) if share < 1 else math.floor(share)
        limited[tp] = min(end[tp], start[tp] + int(share))
    return limited
