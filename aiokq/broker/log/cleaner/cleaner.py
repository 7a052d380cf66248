"""Runs of the log cleaner. A run compacts one log, one group of segments after the other.

The compacted copy of a group is written off the loop, and replaces the originals on the loop. The
copy is durable under ``.swap`` before readers use it, and the originals are durably renamed before
the copy gets its final name. So after a crash the log has either the originals or the copy.

Source: Kafka ``LogCleaner.java``, KIP-58, KIP-354, KIP-534.
Tests: ``tests/unit/broker/log/test_cleaner_run.py``, ``test_cleaner_crash.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple

from aiokq.broker.log.cleaner.cleaned_transactions import CleanedTransactions
from aiokq.broker.log.cleaner.group_rewriter import GroupRewriter, group_segments
from aiokq.broker.log.cleaner.log_to_clean import LogToClean
from aiokq.broker.log.cleaner.log_view import LogView
from aiokq.broker.log.cleaner.manager import LogCleanerManager
from aiokq.broker.log.cleaner.offset_map import build_offset_map, new_offset_map
from aiokq.broker.log.cleaner.statistics import Statistics
from aiokq.broker.log.cleaner.throttle import Throttle
from aiokq.broker.log.disk_trouble import is_full
from aiokq.core.errors import KafkaError, KafkaStorage
from aiokq.core.supervisor import shielded

if TYPE_CHECKING:
    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.log.cold_reads import ColdReads
    from aiokq.broker.log.directory import LogDirectory
    from aiokq.broker.log.partition_log import PartitionLog
    from aiokq.core.counters import BrokerCounters
    from aiokq.core.environment import Environment
    from aiokq.fastpath.broker import OffsetMap

__all__ = ["LogCleaner"]

Ts = TypeVarTuple("Ts")
R = TypeVar("R")

logger = logging.getLogger("aiokq.broker.log")

STEP: Final = 4 * 1024 * 1024
"""A step ends when it has read and written this many bytes, or fewer if the run is throttled.

A run can be stopped between two steps.
"""


class LogCleaner:
    """Compacts the logs of one node. Used on the node's loop.

    Args:
        settings: returns the settings in effect, which may change while the broker runs.
        directories: returns the log directories that are online.
        swapped: called when a copy has replaced its originals; schedules the removal of their
            files.
    """

    def __init__(
        self,
        environment: Environment,
        settings: Callable[[], BrokerSettings],
        directories: Callable[[], list[LogDirectory]],
        *,
        swapped: Callable[[], None],
        cold_reads: ColdReads,
        counters: BrokerCounters,
    ) -> None:
        self._environment = environment
        self._settings = settings
        self._swapped = swapped
        self._counters = counters
        self._manager = LogCleanerManager(environment.clock, directories, counters, cold_reads)
        self._throttle = Throttle(
            lambda: settings().log_cleaner_io_max_bytes_per_second, environment.clock.monotonic
        )

    async def clean_all(self) -> None:
        """Compact all logs that are due, the dirtiest first.

        Raises:
            KafkaStorage: a log could not be compacted, because its disk failed or has no space for
                the copy; all other logs that are due were tried.
        """
        self._manager.resume()
        refused: KafkaStorage | None = None
        more = True
        while more:
            try:
                more = await self.clean_dirtiest() is not None
            except KafkaStorage as error:
                refused = error  # the log is postponed, or its directory is offline
        if refused is not None:
            raise refused

    async def clean_dirtiest(self) -> Statistics | None:
        """Compact the dirtiest log; return the statistics of the run, or None if no log is due.

        If segments or the whole log were deleted meanwhile, the statistics are empty or cover only
        a part of the log. If a batch is damaged or the cleaner fails, the statistics are empty.

        Raises:
            KafkaStorage: the disk failed or is full; the log is unchanged or partly compacted.
        """
        chosen = await self._manager.take_dirtiest()
        if chosen is None:
            return None
        directory, to_clean = chosen
        log = to_clean.log
        start = log.segments[0].base_offset
        try:
            return await self._clean(directory, to_clean)
        except KafkaStorage:
            self._manager.put_off(log)
            raise
        except KafkaError as error:
            logger.error(
                "log is no longer compacted, because a batch is damaged partition=%s error=%s",
                log.topic_partition,
                error.message,
            )
            self._manager.mark_uncleanable(log)
        except OSError as error:
            shorter = log.is_closed or log.segments[0].base_offset != start
            if shorter and isinstance(error, FileNotFoundError):
                # segments were deleted by retention or DeleteRecords, or the topic was deleted
                logger.info("compaction abandoned partition=%s: %s", log.topic_partition, error)
            else:
                self._manager.put_off(log)
                raise self._refused(directory, log, error) from error
        except Exception:
            logger.exception(
                "log is no longer compacted, because the cleaner failed partition=%s",
                log.topic_partition,
            )
            self._manager.mark_uncleanable(log)
        finally:
            self._manager.give_back(log)
        return Statistics()

    def _refused(self, directory: LogDirectory, log: PartitionLog, error: OSError) -> KafkaStorage:
        name = log.topic_partition
        if is_full(error):  # the log can still be read and appended to, so only compaction waits
            return KafkaStorage(
                f"{name} not compacted: {error.strerror}; free space on the disk for a copy of a "
                "segment",
                topic_partition=name,
            )
        return directory.disk.refused(name, "not compacted", error, log.directory)

    async def _clean(self, directory: LogDirectory, chosen: LogToClean) -> Statistics:
        environment, settings, log = self._environment, self._settings(), chosen.log
        threads = max(1, settings.log_cleaner_threads)
        clock = environment.clock
        began = clock.monotonic()
        await self._settle(log)  # an earlier run may have failed to rename its segments
        view = LogView.of(
            log,
            chosen.first_dirty_offset,
            chosen.upper_offset,
            now_ms=clock.timestamp_ms(),
            buffer_bytes=settings.log_cleaner_io_buffer_size // threads // 2,
        )
        statistics = Statistics()
        secret = environment.secure_random.getrandbits(128).to_bytes(16, "little")
        offsets = await self._off_loop(
            new_offset_map,
            settings.log_cleaner_dedupe_buffer_size // threads,
            settings.log_cleaner_io_buffer_load_factor,
            _dirty_count(view),
            secret,
        )
        try:
            await self._advance(build_offset_map(environment.files, view, offsets, statistics))
            statistics.map_fill = len(offsets) / max(1, _dirty_count(view))
            cleaned_to = min(offsets.latest_offset + 1, view.upper_offset)
            # A full map may cover only the first part of the last segment. The records after that
            # part are kept.
            view = view._replace(
                segments=tuple(one for one in view.segments if one.base_offset < cleaned_to)
            )
            await self._off_loop(_make_durable, environment, view, log.recovery_point)
            whole = await self._copy_groups(log, view, offsets, statistics)
        finally:
            await self._off_loop(offsets.close)  # freeing the memory takes long
        statistics.seconds = clock.monotonic() - began
        # If the log was deleted meanwhile, another log may have its name.
        if whole and directory.logs.get(log.topic_partition) is log:
            checkpoint = directory.checkpoints.cleaned_offsets
            checkpoint.note(log.topic_partition, cleaned_to)
            await self._off_loop(directory.save, checkpoint)
        self._count(statistics)
        logger.info("compacted partition=%s %s", log.topic_partition, statistics)
        return statistics

    async def _copy_groups(
        self, log: PartitionLog, view: LogView, offsets: OffsetMap, statistics: Statistics
    ) -> bool:
        """Copy and swap each group of segments.

        Returns False if the log was closed, or a swap was no longer possible.
        """
        files = self._environment.files
        transactions = CleanedTransactions(view.aborted)
        groups = await self._off_loop(group_segments, files, view)
        horizon_ms = await self._off_loop(_legacy_horizon, self._environment, view)
        for group in groups:
            if log.is_closed:  # its paths may belong to another log by now
                return False
            rewriter = await self._off_loop(
                GroupRewriter, files, view, group, offsets, transactions, statistics, horizon_ms
            )
            done = False
            try:
                await self._advance(rewriter.rewrite())
                done = log.swap_segments(rewriter.cleaned, [one.segment for one in group])
            finally:
                if not done and rewriter.cleaned not in log.segments:
                    await self._off_loop(rewriter.discard)
            if not done:
                return False
            self._swapped()
            await self._settle(log)
        return True

    async def _settle(self, log: PartitionLog) -> None:
        """Rename swapped segments to their final names.

        Called before the next copy is written, which may need the same ``.swap`` names.
        """
        if log.is_settled:
            return
        sync_dir = self._environment.files.sync_dir
        # First make the renaming of the originals durable: after a power cut they must not exist
        # beside the copy.
        await self._off_loop(sync_dir, log.directory)
        log.settle_segments()
        await self._off_loop(sync_dir, log.directory)

    async def _advance(self, steps: Generator[int, None, None]) -> None:
        """Run a generator to its end, off the loop, at the rate that the throttle allows."""
        try:
            more = True
            while more:
                portion = self._throttle.portion(STEP)
                size, more = await self._off_loop(_run_steps, steps, portion)
                await self._throttle.spent(size)
        finally:
            steps.close()

    async def _off_loop(self, work: Callable[[*Ts], R], *args: *Ts) -> R:
        """Run a step off the loop, shielded, because the files are in use until the step ends."""
        return await shielded(self._environment.offload.run(work, *args), name="compact a log")

    def _count(self, statistics: Statistics) -> None:
        counters = self._counters
        counters.cleaner_runs += 1
        counters.cleaner_seconds += statistics.seconds
        counters.cleaner_bytes_read += statistics.bytes_read
        counters.cleaner_bytes_written += statistics.bytes_written
        counters.cleaner_bytes_freed += max(0, statistics.size_before - statistics.bytes_written)
        counters.cleaner_records_read += statistics.records_read
        counters.cleaner_records_removed += statistics.records_read - statistics.records_kept


def _dirty_count(view: LogView) -> int:
    return max(0, view.upper_offset - view.first_dirty_offset)


def _make_durable(environment: Environment, view: LogView, recovery_point: int) -> None:
    """Sync segments that are not durable, and their directory, before the cleaner removes records.

    Without the sync, a power cut could remove the newest record of a key whose older records the
    cleaner has removed.
    """
    files = environment.files
    for segment in view.segments:
        if segment.next_offset > recovery_point:
            file = files.open(segment.path)
            try:
                file.sync()
            finally:
                file.close()
    files.sync_dir(view.directory)


def _legacy_horizon(environment: Environment, view: LogView) -> int:
    """Return the horizon of v0 and v1 tombstones, in milliseconds since the Unix epoch.

    A segment whose last write was at or before the horizon loses these tombstones. The horizon is
    delete.retention.ms before the last write of the newest segment that an earlier run cleaned; 0
    if there is no such segment.
    """
    clean = [one for one in view.segments if one.next_offset <= view.first_dirty_offset]
    if not clean:
        return 0
    return environment.files.modified_ms(clean[-1].path) - view.config.delete_retention_ms


def _run_steps(steps: Generator[int, None, None], portion: int) -> tuple[int, bool]:
    """Process at least ``portion`` bytes, or all that are left.

    Returns:
        The number of processed bytes, and whether steps may remain.
    """
    size = 0
    for step in steps:
        size += step
        if size >= portion:
            return size, True
    return size, False
