"""Writes batches to the newest segment of a log, and rolls the log to a new segment.

A write takes effect completely or not at all: after a failed write its bytes are cut off,
immediately or by the recovery at the next start. Producers and leader epochs are handled by
``partition_log``.

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
    """Writes to the newest segment of one partition's log."""

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
        """Apply changed topic settings."""
        self._config = config
        self.segments_changed()

    def segments_changed(self) -> None:
        """Compute the roll limits again, after a change of the newest segment or the settings."""
        self._limits = self._roll_limits()

    def is_full(self, placed: PlacedAppend, now_ms: int) -> bool:
        """Whether a new segment is needed before the batches are written."""
        return self._segments.active.should_roll(
            placed.size, placed.max_timestamp_ms, placed.next_offset - 1, now_ms, self._limits
        )

    def is_idle(self, now_ms: int) -> bool:
        """Whether the newest segment should roll because of its age; see ``Segment.is_idle``.

        Raises:
            ColdRead: the segment's first timestamp has to be read from the disk first.
            OSError, CorruptRecord: the segment cannot be read.
        """
        return self._segments.active.is_idle(now_ms, self._limits)

    def write(self, placed: PlacedAppend) -> None:
        """Write batches to the end of the newest segment, all or none, and index them.

        Raises:
            KafkaStorage: the disk failed.
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
        """Cut off the bytes of a failed write, which was not acknowledged."""
        try:
            segment.cut_tail()
        except OSError as second:
            logger.error(
                "the bytes of a failed append could not be cut off; recovery removes them "
                "partition=%s path=%s append=%s truncate=%s",
                self._topic_partition,
                segment.path(file_names.LOG),
                error,
                second,
            )

    def roll(self, base_offset: int, now_ms: int, *, before: Callable[[], None]) -> None:
        """Finish the newest segment and continue with a new one.

        Args:
            before: called after the old segment is finished and before the new segment is created;
                writes the producer snapshot.

        Raises:
            KafkaStorage: the disk failed, or the old segment is damaged.
        """
        old = self._segments.active
        try:
            old.seal()
            before()
            segment = self.new_segment(base_offset, now_ms)
        except (OSError, CorruptRecord) as error:
            raise self._refused("new segment not created", error) from error
        self._segments.append(segment)
        old.release()
        self.segments_changed()
        logger.debug("rolled partition=%s base_offset=%d", self._topic_partition, base_offset)

    def new_segment(self, base_offset: int, now_ms: int) -> Segment:
        """Create an empty segment, which is not yet in the list of segments. Raises OSError."""
        segment = self.unopened_segment(base_offset, now_ms)
        segment.create(preallocate=self._config.segment_bytes if self._config.preallocate else 0)
        return segment

    def unopened_segment(self, base_offset: int, now_ms: int) -> Segment:
        """Return a segment whose files are not created yet."""
        return Segment(
            self._files, self._directory, base_offset, config=self._config, now_ms=now_ms
        )

    def _roll_limits(self) -> RollLimits:
        name = f"{self._topic_partition}-{self._segments.active.base_offset}"
        return RollLimits.of(self._config, name)

    def _refused(self, what: str, error: OSError | CorruptRecord, path: str = "") -> KafkaStorage:
        return self._disk.refused(self._topic_partition, what, error, path)
