"""LogCleanerManager: chooses the log to compact next.

The manager also lists the logs that cannot be chosen: logs in compaction, postponed logs, and
uncleanable logs.

Source: Kafka ``LogCleanerManager.java``. Tests: ``tests/unit/broker/log/test_cleaner_manager.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from aiokq.broker.log.cleaner.log_to_clean import LogToClean, log_to_clean, never_compacted
from aiokq.broker.log.disk_load import ColdRead, DiskLoad
from aiokq.core.errors import KafkaError
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.broker.log.cold_reads import ColdReads
    from aiokq.broker.log.directory import LogDirectory
    from aiokq.broker.log.partition_log import PartitionLog
    from aiokq.core.clock import Clock
    from aiokq.core.counters import BrokerCounters
    from aiokq.core.types import TopicPartition

__all__ = ["LogCleanerManager"]

logger = logging.getLogger("aiokq.broker.log")

AT_ONCE: Final = 256
"""The number of logs and segments that are examined before other tasks of the loop may run."""


MOST_LOOKS: Final = 4
"""The maximum number of times that `take_dirtiest` loads timestamps and examines all logs again.

A log may need two loads, one after the other; more are needed if logs were added or timestamps were
evicted meanwhile.
"""


class _Place(NamedTuple):
    directory: LogDirectory
    name: TopicPartition
    log: PartitionLog


class LogCleanerManager:
    """Chooses which of a node's logs is compacted next. Used on the node's loop.

    Args:
        directories: returns the log directories that are online.
    """

    def __init__(
        self,
        clock: Clock,
        directories: Callable[[], list[LogDirectory]],
        counters: BrokerCounters,
        cold_reads: ColdReads,
    ) -> None:
        self._clock = clock
        self._directories = directories
        self._counters = counters
        self._cold_reads = cold_reads
        self._choosing = asyncio.Lock()
        self._busy: set[TopicPartition] = set()
        self._uncleanable: dict[TopicPartition, PartitionLog] = {}
        self._put_off: dict[TopicPartition, PartitionLog] = {}

    async def take_dirtiest(self) -> tuple[LogDirectory, LogToClean] | None:
        """Reserve and return the dirtiest log that is due; None if no log is due.

        ``give_back`` ends the reservation. A log whose timestamps are still missing after
        ``MOST_LOOKS`` loads is not chosen before the next call.
        """
        async with self._choosing:
            due, loads = await self._look_at_all()
            for _ in range(MOST_LOOKS):
                if not loads:
                    break
                await self._cold_reads.load(loads)
                due, loads = await self._look_at_all()
            due.sort(key=lambda pair: pair[1].dirty_ratio)
            while due:
                place, _ = due.pop()
                now = self._look_at(place, loads)  # the log may have changed since
                if now is not None and now.is_due:
                    self._busy.add(place.name)
                    return place.directory, now
            return None

    def give_back(self, log: PartitionLog) -> None:
        """End the reservation of a log that ``take_dirtiest`` returned."""
        self._busy.discard(log.topic_partition)

    def mark_uncleanable(self, log: PartitionLog) -> None:
        """Exclude a log from compaction until a restart; its records are kept."""
        self._uncleanable[log.topic_partition] = log
        self._count_uncleanable()

    def put_off(self, log: PartitionLog) -> None:
        """Exclude a log from compaction until ``resume``."""
        self._put_off[log.topic_partition] = log

    def resume(self) -> None:
        """Permit the compaction of the logs that ``put_off`` has excluded."""
        self._put_off.clear()

    def _places(self) -> Iterator[_Place]:
        for directory in self._directories():
            for name, log in list(directory.logs.items()):
                yield _Place(directory, name, log)

    async def _look_at_all(self) -> tuple[list[tuple[_Place, LogToClean]], list[DiskLoad]]:
        """Return the logs that are due, and the disk loads needed before others can be examined."""
        due: list[tuple[_Place, LogToClean]] = []
        loads: list[DiskLoad] = []
        dirtiest, delay_ms, looked_at = 0.0, 0, 0
        for place in list(self._places()):
            if not place.log.config.compacted:
                continue
            found = self._look_at(place, loads)
            if found is not None:
                dirtiest = max(dirtiest, found.dirty_ratio)
                delay_ms = max(delay_ms, found.delay_ms)
                if found.is_due:
                    due.append((place, found))
            looked_at += 1 + len(place.log.segments)
            if looked_at >= AT_ONCE:
                looked_at = 0
                await asyncio.sleep(0)
        self._count_uncleanable()
        self._counters.cleaner_dirty_percent.value = int(100 * dirtiest)
        self._counters.cleaner_max_delay_seconds.value = delay_ms // 1000
        return due, loads

    def _look_at(self, place: _Place, loads: list[DiskLoad]) -> LogToClean | None:
        directory, name, log = place
        if (
            directory.logs.get(name) is not log
            or log.is_closed
            or log.is_truncating
            or log.failed
            or not log.config.compacted
            or name in self._busy
            or self._uncleanable.get(name) is log
            or self._put_off.get(name) is log
        ):
            return None
        cleaned = directory.checkpoints.cleaned_offsets.get(name)
        try:
            return log_to_clean(log, cleaned, self._clock.timestamp_ms())
        except ColdRead as cold:
            loads += cold.loads
        except (OSError, KafkaError) as error:
            logger.error("log is no longer compacted partition=%s error=%s", name, error)
            self.mark_uncleanable(log)
        return None

    def _count_uncleanable(self) -> None:
        live = {n: log for n, log in self._uncleanable.items() if not log.is_closed}
        self._uncleanable = live
        self._counters.uncleanable_partitions.value = len(live)
        self._counters.uncleanable_bytes.value = sum(
            never_compacted(log, directory.checkpoints.cleaned_offsets.get(name))
            for directory, name, log in self._places()
            if live.get(name) is log
        )
