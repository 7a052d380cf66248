"""PartitionMap: chooses the broker and the partition of messages, from one metadata snapshot.

An AnyPartition message gets a broker first: the leader of the next partition in a shuffled list of
the usable partitions, so that each broker gets messages in proportion to the partitions it leads.
The partition of the message is chosen when a request is built, in turn among the partitions that
the broker leads. A partition is usable if it has a leader that the metadata knows. Tests:
tests/unit/gateway/bruce/test_partitions.py.

Source: Bruce's design document, "Batching" and "Final partition selection".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from array import array as Array

    from aiokq import ClusterMetadata, TopicInfo

from array import array

__all__ = ["PartitionMap", "TopicPartitions"]


class TopicPartitions:
    """The partitions of one topic, and the partition to use next.

    Attributes:
        leaders: the node id of the leader of each partition; -1 if the partition is not usable.
        usable: a byte per partition: 1 if it is usable.
    """

    def __init__(self, leaders: tuple[int, ...], random: random.Random) -> None:
        self.leaders = leaders
        self.usable = bytes(leader >= 0 for leader in leaders)
        self._cycle = [partition for partition, leader in enumerate(leaders) if leader >= 0]
        random.shuffle(self._cycle)
        self._next = 0
        self._of_broker: dict[int, list[int]] = {}
        for partition, leader in enumerate(leaders):
            if leader >= 0:
                self._of_broker.setdefault(leader, []).append(partition)
        self._next_of_broker = dict.fromkeys(self._of_broker, 0)

    @property
    def any_usable(self) -> bool:
        return bool(self._cycle)

    def next_broker(self) -> int:
        """Return the broker for the next batch of AnyPartition messages."""
        partition = self._cycle[self._next]
        self._next = (self._next + 1) % len(self._cycle)
        return self.leaders[partition]

    def spread(self, rows: memoryview) -> dict[int, memoryview]:
        """Choose a broker for each of many AnyPartition messages; return the rows by broker."""
        cycle = self._cycle
        if len(rows) == 1 or len(self._of_broker) == 1:
            broker = self.leaders[cycle[self._next]]
            self._next = (self._next + len(rows)) % len(cycle)
            return {broker: rows}
        parts: dict[int, list[Sequence[int]]] = {}
        for offset in range(min(len(cycle), len(rows))):
            leader = self.leaders[cycle[(self._next + offset) % len(cycle)]]
            parts.setdefault(leader, []).append(rows[offset :: len(cycle)])
        self._next = (self._next + len(rows)) % len(cycle)
        return {leader: memoryview(_merged(each)) for leader, each in parts.items()}

    def next_partition(self, broker: int) -> int | None:
        """Return the partition for the AnyPartition messages of the broker's next request.

        None if the broker leads no usable partition of the topic.
        """
        partitions = self._of_broker.get(broker)
        if not partitions:
            return None
        at = self._next_of_broker[broker]
        self._next_of_broker[broker] = (at + 1) % len(partitions)
        return partitions[at]


def _merged(parts: list[Sequence[int]]) -> Array[int]:
    return array("i", parts[0] if len(parts) == 1 else sorted(chain.from_iterable(parts)))


class PartitionMap:
    """The partitions of each topic that messages were sent to, as they were when first needed."""

    def __init__(self, metadata: ClusterMetadata, random: random.Random) -> None:
        self._random = random
        self._topics: dict[str, TopicPartitions] = {}
        self._metadata = metadata
        self.extend(metadata)

    def extend(self, metadata: ClusterMetadata) -> None:
        """Find further topics in this snapshot from now on; topics found earlier do not change."""
        self._metadata = metadata

    def topic(self, name: str) -> TopicPartitions | None:
        """Return the partitions of a topic; None if it is not known, or may have been deleted."""
        found = self._topics.get(name)
        if found is None:
            leaders = _leaders(self._metadata, self._metadata.topics.get(name))
            if leaders is None:
                return None
            found = self._topics[name] = TopicPartitions(leaders, self._random)
        return found

    def differs(self, metadata: ClusterMetadata) -> bool:
        """Return whether a snapshot has other leaders for a topic that was found.

        A topic that is missing from the snapshot, without an error, does not count. It may exist:
        the metadata omits topics that were not used for a long time.
        """
        for name, topic in self._topics.items():
            info = metadata.topics.get(name)
            if info is None:
                if name in metadata.topic_errors:
                    return True
            elif _leaders(metadata, info) != topic.leaders:
                return True
        return False

    def names(self) -> list[str]:
        """Return the topics that were found."""
        return list(self._topics)


def _leaders(metadata: ClusterMetadata, info: TopicInfo | None) -> tuple[int, ...] | None:
    if info is None or info.error_code or not info.partitions:
        return None
    leaders = [-1] * (max(info.partitions) + 1)
    for number, partition in info.partitions.items():
        if partition.leader in metadata.brokers:
            leaders[number] = partition.leader
    return tuple(leaders)
