"""Owns the runs of compaction: one log after the other, off the loop in steps, swapped in on it.

What a crash leaves at any moment is the old segments or the new one: the copy is durable under
``.swap`` before a reader sees it, the originals' names are durably gone before it gets theirs.

Source: Kafka ``LogCleaner.scala``, KIP-58, KIP-354, KIP-534.
Tests: ``tests/unit/broker/log/test_cleaner_run.py``, ``test_cleaner_crash.py``.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple

from aiokq.broker.log.cleaner.choice import LogToClean, dirtiest, log_to_clean
from aiokq.broker.log.cleaner.indexing import build_offset_map, offset_map
from aiokq.broker.log.cleaner.rewriting import GroupRewriter, group_segments
from aiokq.broker.log.cleaner.statistics import Statistics
from aiokq.broker.log.cleaner.throttle import Throttle
from aiokq.broker.log.cleaner.transactions import CleanedTransactions
from aiokq.broker.log.cleaner.views import LogView
from aiokq.broker.log.index import IndexesToRebuild
from aiokq.core.errors import CorruptRecord, KafkaError, KafkaStorage
from aiokq.core.supervisor import shielded

if TYPE_CHECKING:
    from aiokq.broker.log.directory import LogDirectory
    from aiokq.broker.log.partition_log import PartitionLog
    from aiokq.broker.log.segment import Segment
    from aiokq.broker.settings import BrokerSettings
    from aiokq.core.counters import BrokerCounters
    from aiokq.core.environment import Environment
    from aiokq.core.types import TopicPartition
    from aiokq.fastpath import OffsetMap

__all__ = ["LogCleaner"]

Ts = TypeVarTuple("Ts")
R = TypeVar("R")

logger = logging.getLogger("aiokq.broker.log")

_FULL: Final = frozenset({errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)})

STEP: Final = 4 * 1024 * 1024
"""Bytes read and written between two looks at whether to stop: some 10 ms in the executor."""


class LogCleaner:
    """Compacts the logs of one node. Used from its loop.

    Args:
        directories: the log directories that can be used now.
        swapped: called when segments were let go, whose files are to be removed some time.
        repair: makes the damaged indexes of a segment again; by default that is left to others.
        counters: of the node.
    """

    def __init__(
        self,
        environment: Environment,
        settings: BrokerSettings,
        directories: Callable[[], list[LogDirectory]],
        *,
        swapped: Callable[[], None],
        counters: BrokerCounters,
        repair: Callable[[Segment], Awaitable[None]] | None = None,
    ) -> None:
        self._environment = environment
        self._settings = settings
        self._directories = directories
        self._swapped = swapped
        self._counters = counters
        self._repair = repair
        self._damaged: list[Segment] = []
        self._busy: set[TopicPartition] = set()
        # logs with a batch that is not sound: nothing of them is lost, and nothing cleaned
        self._unsound: dict[TopicPartition, PartitionLog] = {}
        self._throttle = Throttle(
            lambda: settings.log_cleaner_io_max_bytes_per_second, environment.clock.monotonic
        )

    async def clean_all(self) -> None:
        """Compact the logs that need it, the dirtiest first, until none does.

        Raises:
            KafkaStorage: the disk refused.
        """
        while await self.clean_dirtiest() is not None:
            pass

    async def clean_dirtiest(self) -> Statistics | None:
        """Compact the log that needs it most; None if none does.

        Raises:
            KafkaStorage: the disk refused; the log is as it was, or as far cleaned as it came.
        """
        chosen = self._choose()
        while self._damaged and self._repair is not None:
            await self._repair(self._damaged.pop())
            if not self._damaged:
                chosen = self._choose()
        if chosen is None:
            return None
        directory, log = chosen
        name = log.log.topic_partition
        self._busy.add(name)
        try:
            return await self._clean(directory, log)
        except CorruptRecord as error:
            logger.error(
                "log is not compacted any more, a batch is not sound partition=%s error=%s",
                name,
                error.message,
            )
            self._unsound[name] = log.log
            return Statistics()
        except FileNotFoundError as error:
            # Retention or DeleteRecords was faster, or the topic is gone.
            logger.info("compaction given up partition=%s: %s", name, error)
            return Statistics()
        except OSError as error:
            if error.errno in _FULL:  # what is there can be read and written on: it waits
                raise KafkaStorage(
                    f"{name} not compacted: {error.strerror}, a copy of a segment needs room",
                    topic_partition=name,
                ) from error
            raise directory.disk.refused(name, "not compacted", error, log.log.directory) from error
        finally:
            self._busy.discard(name)

    # --- what is cleaned

    def _candidates(self) -> Iterator[tuple[LogDirectory, LogToClean]]:
        now_ms = self._environment.clock.timestamp_ms()
        for directory in self._directories():
            for name, log in list(directory.logs.items()):
                if not log.config.compacted or log.failed or name in self._busy:
                    continue
                if self._unsound.get(name) is log:
                    continue
                try:
                    yield (
                        directory,
                        log_to_clean(log, directory.checkpoints.cleaned_offsets.get(name), now_ms),
                    )
                except IndexesToRebuild as wanted:
                    self._damaged.append(wanted.segment)
                except (OSError, KafkaError) as error:
                    logger.warning("log not looked at partition=%s error=%s", name, error)

    def _choose(self) -> tuple[LogDirectory, LogToClean] | None:
        self._damaged.clear()
        found = [(directory, candidate) for directory, candidate in self._candidates()]
        live = {id(log) for d in self._directories() for log in d.logs.values()}
        self._unsound = {n: log for n, log in self._unsound.items() if id(log) in live}
        self._counters.uncleanable_partitions.value = len(self._unsound)
        self._counters.cleaner_dirty_percent.value = int(
            100 * max((candidate.dirty_ratio for _, candidate in found), default=0)
        )
        chosen = dirtiest(candidate for _, candidate in found)
        return next((pair for pair in found if pair[1] is chosen), None)

    # --- a run

    async def _clean(self, directory: LogDirectory, chosen: LogToClean) -> Statistics:
        environment, settings, log = self._environment, self._settings, chosen.log
        threads = max(1, settings.log_cleaner_threads)
        clock = environment.clock
        began = clock.monotonic()
        view = LogView.of(
            log,
            chosen.first_dirty_offset,
            chosen.upper_offset,
            now_ms=clock.timestamp_ms(),
            buffer_bytes=settings.log_cleaner_io_buffer_size // threads // 2,
        )
        statistics = Statistics()
        secret = environment.random.getrandbits(128).to_bytes(16, "little")
        offsets = await self._off_loop(
            offset_map,
            settings.log_cleaner_dedupe_buffer_size // threads,
            settings.log_cleaner_io_buffer_load_factor,
            _dirty_count(view),
            secret,
        )
        await self._advance(build_offset_map(environment.files, view, offsets, statistics))
        statistics.map_fill = len(offsets) / max(1, _dirty_count(view))
        cleaned_to = min(offsets.latest_offset + 1, view.upper_offset)
        # a map that was full ends within a segment, whose other records stay
        view = view._replace(
            segments=tuple(one for one in view.segments if one.base_offset < cleaned_to)
        )
        # Were a newer record of a key still to be lost, the older one must not go.
        await self._off_loop(_make_durable, environment, view, log.recovery_point)
        whole = await self._copy_groups(log, view, offsets, statistics)
        statistics.seconds = clock.monotonic() - began
        # Deleted meanwhile, there may be another log of the name, of which nothing is cleaned.
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
        """Copy group by group, each swapped in at once; False if the log has changed meanwhile."""
        files = self._environment.files
        transactions = CleanedTransactions(view.aborted)
        groups = await self._off_loop(group_segments, files, view)
        horizon_ms = await self._off_loop(_legacy_horizon, self._environment, view)
        for group in groups:
            if log.is_closed:  # its paths may be another log's by now
                return False
            rewriter = GroupRewriter(
                files,
                view,
                group,
                offsets,
                transactions,
                statistics,
                legacy_horizon_ms=horizon_ms,
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
            # Were the originals back after a power cut, beside what took their place...
            await self._off_loop(files.sync_dir, log.directory)
            log.settle_segment(rewriter.cleaned)
            rewriter.cleaned.release()
            await self._off_loop(files.sync_dir, log.directory)
        return True

    async def _advance(self, steps: Generator[int, None, None]) -> None:
        """Run a generator to its end, off the loop, as fast as it may go."""
        try:
            more = True
            while more:
                portion = self._throttle.portion(STEP)
                size, more = await self._off_loop(_run_steps, steps, portion)
                await self._throttle.spent(size)
        finally:
            steps.close()

    async def _off_loop(self, work: Callable[[*Ts], R], *args: *Ts) -> R:
        """A step that is begun is finished: nobody else may use its files meanwhile."""
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
    files = environment.files
    unsynced = [one for one in view.segments if one.next_offset > recovery_point]
    for segment in unsynced:
        file = files.open(segment.path)
        try:
            file.sync()
        finally:
            file.close()
    if unsynced:
        files.sync_dir(view.directory)


def _legacy_horizon(environment: Environment, view: LogView) -> int:
    """Legacy segments written before this keep no tombstones: delete.retention.ms before the
    newest segment that an earlier run cleaned."""
    clean = [one for one in view.segments if one.next_offset <= view.first_dirty_offset]
    if not clean:
        return 0
    return environment.files.modified_ms(clean[-1].path) - view.config.delete_retention_ms


def _run_steps(steps: Generator[int, None, None], portion: int) -> tuple[int, bool]:
    """Advance by some bytes; how many it were, and whether there is more."""
    size = 0
    for step in steps:
        size += step
        if size >= portion:
            return size, True
    return size, False
