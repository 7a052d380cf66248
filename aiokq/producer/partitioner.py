"""Partitioner: the protocol of custom partitioners; `Accumulator` has the default partitioner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from aiokq.core.types import Buffer

__all__ = ["Choose", "PartitionFunction", "Partitioner", "choose_with"]

PartitionFunction: TypeAlias = Callable[[bytes | None, list[int], list[int]], int | None]
"""A function of (key, all partitions, partitions with a leader) that returns a partition or None.

None leaves the choice to the default partitioner. The partitioners of aiokafka and kafka-python
have this signature.
"""

Choose: TypeAlias = Callable[
    [str, "Buffer | None", "Buffer | None", Sequence[int], Sequence[int]], int | None
]
"""The signature of a bound `Partitioner.partition`."""


@runtime_checkable
class Partitioner(Protocol):
    """Chooses the partition of each record that was sent without a partition.

    It runs on the event loop once per record: it must be quick and must not block.
    """

    def partition(
        self,
        topic: str,
        key: Buffer | None,
        value: Buffer | None,
        partitions: Sequence[int],
        available: Sequence[int],
    ) -> int | None:
        """Return the partition for one record.

        Args:
            topic: the record's topic.
            key: the key after serialization.
            value: the value after serialization.
            partitions: all partitions of the topic, ascending; never empty.
            available: the partitions that have a leader, according to the metadata; may be empty.

        Returns:
            A member of `partitions`, or None for the default partitioner. The default partitioner
            applies murmur2 to the key, as Kafka's Java client does, unless partitioner_ignore_keys
            is set. Records without a key get one partition for batch_size bytes, then another
            partition (KIP-480, KIP-794).
        """
        ...


def choose_with(partitioner: Partitioner | PartitionFunction) -> Choose:
    """Return a `Choose` function that calls a Partitioner or a PartitionFunction."""
    if isinstance(partitioner, Partitioner):
        return partitioner.partition
    plain = partitioner

    def choose(
        topic: str,
        key: Buffer | None,
        value: Buffer | None,
        partitions: Sequence[int],
        available: Sequence[int],
    ) -> int | None:
        data = key if key is None or isinstance(key, bytes) else bytes(key)
        return plain(data, list(partitions), list(available))

    return choose
