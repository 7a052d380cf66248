"""Owns the end of a log, where batches are written: the newest segment, and the way to the next.

A write counts whole or not at all: what a failed one left in the file is cut off, at once or by the
recovery at the next start. Knows no producers or epochs.

Source: Kafka ``LocalLog.java``. Tests: ``tests/unit/broker/log/test_partition_log.py``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aiokq.broker.log import file_names
from aiokq.broker.log.rolling import RollLimits
from aiokq.broker.log.segment import Segment
from aiokq.core.errors import CorruptRecord, KafkaStorage

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokq.broker.log.appending import PlacedAppend
    from aiokq.broker.log.config import LogConfig
    from aiokq.broker.log.disk_trouble import DiskTrouble
    from aiokq.broker.log.segments import Segments
    from aiokq.core.files import Files
    from aiokq.core.types import TopicPartition

__all__ = ["LogWriter"]

logger = logging.getLogger("aiokq.broker.log")


class LogWriter:
    """The end of one partition's log."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: str,
        *,
        files: Files,
        config: LogConfig,
        segments: Segments,
        disk: DiskTrouble,
    ) -> None:
        self._topic_partition = topic_partition
        self._directory = directory
        self._files = files
        self._segments = segments
        self._disk = disk
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        """Take over changed topic settings."""
        self._config = config
        self.segments_changed()

    def segments_changed(self) -> None:
        """The newest segment is another one."""
        self._limits = self._roll_limits()

    def is_full(self, placed: PlacedAppend, now_ms: int) -> bool:
        """Whether a new segment has to be begun first."""
        return self._segments.active.should_roll(
            placed.size, placed.max_timestamp_ms, placed.next_offset - 1, now_ms, self._limits
        )

    def is_idle(self, now_ms: int) -> bool:
        """Whether the newest segment is as old as segment.ms allows, and nothing was appended.

        Raises:
            OSError: the disk refused.
        """
        return self._limits.is_idle(self._segments.active, now_ms)

    def write(self, placed: PlacedAppend) -> None:
        """Write batches behind the others, all or none, and note where they are.

        Raises:
            KafkaStorage: the disk refused.
        """
        segment = self._segments.active
        try:
            segment.write(placed.buffers)
        except OSError as error:
            self._undo(segment, error)
            raise self._refused("append failed", error, segment.path(file_names.LOG)) from error
        for last_offset, size, max_timestamp_ms in placed.batches:
            segment.note_batch(last_offset, size, max_timestamp_ms)

    def _undo(self, segment: Segment, error: OSError) -> None:
        """Cut off whatever part of a write reached the file: nobody was told of it."""
        try:
            segment.cut_tail()
        except OSError as second:
            logger.error(
                "part of a failed append stays until recovery partition=%s path=%s append=%s"
                " truncate=%s",
                self._topic_partition,
                segment.path(file_names.LOG),
                error,
                second,
            )

    def roll(self, base_offset: int, now_ms: int, *, before: Callable[[], None]) -> None:
        """Go on to a new segment.

        Args:
            before: called when the old one is finished, to write what belongs to its end.

        Raises:
            KafkaStorage: the disk refused; the next append tries again.
        """
        old = self._segments.active
        try:
            old.seal()
            before()
            segment = self.new_segment(base_offset, now_ms)
        except (OSError, CorruptRecord) as error:
            raise self._refused("no new segment", error) from error
        self._segments.append(segment)
        old.release()
        self.segments_changed()
        logger.debug("rolled partition=%s base_offset=%d", self._topic_partition, base_offset)

    def new_segment(self, base_offset: int, now_ms: int) -> Segment:
        """Return a new empty segment, which is not yet in the list. Raises OSError."""
        segment = self.unopened_segment(base_offset, now_ms)
        segment.create(preallocate=self._config.segment_bytes if self._config.preallocate else 0)
        return segment

    def unopened_segment(self, base_offset: int, now_ms: int) -> Segment:
        """Return a segment whose files are still to be created."""
        return Segment(
            self._files,
            self._directory,
            base_offset,
            index_interval_bytes=self._config.index_interval_bytes,
            index_bytes=self._config.segment_index_bytes,
            now_ms=now_ms,
        )

    def _roll_limits(self) -> RollLimits:
        name = f"{self._topic_partition}-{self._segments.active.base_offset}"
        return RollLimits.of(self._config, name)

    def _refused(self, what: str, error: OSError | CorruptRecord, path: str = "") -> KafkaStorage:
        return self._disk.refused(self._topic_partition, what, error, path)
