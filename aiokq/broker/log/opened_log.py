"""The result of ``recovery``, from which a ``PartitionLog`` is created."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiokq.broker.log.config import LogConfig
    from aiokq.broker.log.disk_trouble import DiskTrouble
    from aiokq.broker.log.leader_epochs import LeaderEpochs
    from aiokq.broker.log.open_files import OpenFiles
    from aiokq.broker.log.producer_state import ProducerState
    from aiokq.broker.log.segment import Segment
    from aiokq.core.files import Files
    from aiokq.core.types import TopicPartition
    from aiokq.records.header import Checksum

__all__ = ["OpenedLog"]


class OpenedLog(NamedTuple):
    """A partition's log on disk after recovery.

    Attributes:
        directory: path of the log's directory.
        segments: the segments, oldest first; at least one.
        high_watermark: the high watermark in the checkpoint; it may lie outside the log.
        forget_behind: lowers the checkpoints of a partition to an offset, durably; called before a
            truncation, in any thread. All logs of a directory share the callable.
        lower_log_start: lowers the log start checkpoint of a partition to an offset, durably;
            called after a truncation, in any thread.
        changed: whether a clean shutdown has to write anything.
    """

    topic_partition: TopicPartition
    directory: str
    files: Files
    config: LogConfig
    crc32c: Checksum
    segments: Sequence[Segment]
    producers: ProducerState
    epochs: LeaderEpochs
    log_start_offset: int
    high_watermark: int
    forget_behind: Callable[[TopicPartition, int], None]
    lower_log_start: Callable[[TopicPartition, int], None]
    changed: bool
    disk: DiskTrouble
    open_files: OpenFiles
