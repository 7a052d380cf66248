"""Owns which partition records without a key go to next; counting their bytes is native.

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
"""Leaves the choice to the core: any partition that has a leader."""


class AdaptivePartitioning:
    """Gives more to partitions whose leader keeps up: the longer a queue, the less likely.

    Asked once for each batch_size bytes of records without a key, not for each record; it looks at
    all partitions of the topic.

    Args:
        queues_of: returns the queues of a topic by partition.
        stalled: returns the seconds for which a broker has been sent nothing although batches wait.
        availability_timeout: seconds after which a broker that takes nothing is left out; 0 never.
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
        """The partition whose turn it is, or -1 for any that has a leader."""
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
