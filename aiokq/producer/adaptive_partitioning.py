"""AdaptivePartitioning: chooses the next partition for records without a key.

The `Accumulator` calls `choose` when it first gets the metadata of a topic, when the chosen
partition has lost its leader, and when it has appended batch_size bytes of records without a key to
the chosen partition.

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
"""Result of `choose`: the `Accumulator` chooses a partition at random, with equal weights."""


class AdaptivePartitioning:
    """Chooses partitions at random; the longer a partition's queue, the lower its weight.

    `choose` examines all partitions of the topic; the method is not called for each record.

    Args:
        queues_of: returns the queues of a topic by partition.
        stalled: given a node id, returns for how many seconds batches have waited since the last
            request to this broker; 0 if no batch waits.
        availability_timeout: `choose` avoids the partitions of a broker while `stalled` returns
            more than this number of seconds; 0 turns this off.
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
        """Return the partition for the next records without a key.

        The result is UNIFORM if all queues have the same length and no leader is stalled, or if
        the leader of each partition is stalled or missing.
        """
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
