"""Gauges of a node's partitions and log directories.

Tests: ``tests/unit/broker/metadata/publisher/test_publisher.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokq.broker.storage import Storage
    from aiokq.core.counters import BrokerCounters

__all__ = ["StorageGauges"]


class StorageGauges:
    """Gauges whose values are computed when the metrics are read.

    Args:
        storage: returns the open storage of the node, or None while the node is not open. While the
            result is None, the gauges are 0 or have no values.
    """

    def __init__(self, storage: Callable[[], Storage | None]) -> None:
        self._storage = storage

    def add_to(self, counters: BrokerCounters) -> None:
        """Make the gauges part of a node's metrics."""
        counters.partitions.add_source(self._partitions)
        counters.offline_partitions.add_source(self._offline_partitions)
        counters.offline_log_directories.add_source(self._offline_directories)
        counters.log_bytes.add_source(self._log_sizes)

    def _partitions(self) -> int:
        storage = self._storage()
        if storage is None:
            return 0
        return sum(len(topic.partitions) for topic in list(storage.topics))

    def _offline_partitions(self) -> int:
        storage = self._storage()
        if storage is None:
            return 0
        topics = list(storage.topics)
        return sum(bool(one.offline_replicas) for topic in topics for one in topic.partitions)

    def _offline_directories(self) -> int:
        storage = self._storage()
        return 0 if storage is None else len(storage.directories.offline)

    def _log_sizes(self) -> dict[tuple[str, ...], int]:
        storage = self._storage()
        if storage is None:
            return {}
        return {
            (log.topic_partition.topic, str(log.topic_partition.partition)): log.size_bytes
            for log in storage.directories.logs()
        }
