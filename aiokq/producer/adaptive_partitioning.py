"""AdaptivePartitioning: chooses the next partition for records without a key.

The `Accumulator` calls `choose` for the first record without a key, and whenever it has appended
batch_size bytes of such records to one partition.

Source: KIP-794; Kafka `BuiltInPartitioner.updatePartitionLoadStats`, `RecordAccumulator.ready`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from aiokq.producer.partition_queue import PartitionQueue

__all__ = ["AdaptivePartitioning"]

UNIFORM = -1
"""Result of `choose` that leaves the choice, with equal weights, to the `Accumulator`."""


class AdaptivePartitioning:
    """Chooses partitions at random; the longer a partition's queue, the lower its weight.

    `choose` is called once per batch_size bytes of records without a key, not once per record. It
    looks at all partitions of the topic.

    Args:
        queues_of: returns the queues of a topic by partition.
        stalled: returns for how many seconds nothing was sent to a broker although batches wait for
            it.
        availability_timeout: seconds after which the partitions of a stalled broker are not
            chosen; 0 means that they may always be chosen.
    """

    def __init__(
        self,
        queues_of: Callable[[str], Mapping[int, PartitionQueue]],
        stalled: Callable[[int], float],
        random: random.Random,
        availability_timeout: float,
    ) -> None:
        self._queues_of = queues_of
        self._stalled = stalled
        self._random = random
        self._availability_timeout = availability_timeout

    def choose(self, topic: str) -> int:
        """Return the partition for the next records; -1 leaves the choice to the `Accumulator`."""
        timeout = self._availability_timeout
        queues = self._queues_of(topic)
        partitions: list[int] = []
        waiting: list[int] = []
        silent: dict[int, bool] = {}
        for partition, queue in queues.items():
            leader = queue.leader
            if leader < 0:
                continue
            if timeout:
                if leader not in silent:
                    silent[leader] = self._stalled(leader) > timeout
                if silent[leader]:
                    continue
            partitions.append(partition)
            waiting.append(queue.waiting)
        if not partitions:
            return UNIFORM
        most = max(waiting)
        if most == min(waiting):
            if True not in silent.values():
                return UNIFORM
            return self._random.choice(partitions)
        weights = [most + 1 - count for count in waiting]
        return self._random.choices(partitions, weights)[0]
