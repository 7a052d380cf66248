"""Where a stream begins, and what its batch reads between two offsets, by what is there now.

Pure. Says what is lost: topics made anew, partitions deleted, records aged out.
"""

from __future__ import annotations

from aiokq import TopicPartition
from aiokq.spark.data_loss import Losses
from aiokq.spark.offset_reader import Ends, Partitions
from aiokq.spark.offsets import PartitionOffsets, SourceOffset
from aiokq.spark.planning import OffsetRange

__all__ = ["beginning", "stream_ranges"]


def beginning(positions: PartitionOffsets, ends: Ends, losses: Losses) -> PartitionOffsets:
    """Where a new query begins: nowhere beyond the ends of its logs.

    Raises:
        ConfigError: an offset that was asked for is beyond, and losses are errors.
    """
    for tp, position in sorted(positions.items()):
        if position > ends.ends[tp]:
            losses.beyond_the_end(tp, position, ends.ends[tp])
    return {tp: min(position, ends.ends[tp]) for tp, position in positions.items()}


def stream_ranges(
    begun: SourceOffset, until: SourceOffset, partitions: Partitions, ends: Ends, losses: Losses
) -> list[OffsetRange]:
    """The ranges between two offsets, cut to what is there where losses are tolerated.

    Args:
        partitions: those that exist now.
        ends: of the logs, of those among them that the batch is about.

    Raises:
        DataLoss: as `losses` has it.

    Source: Spark `KafkaOffsetReaderAdmin.getOffsetRangesFromResolvedOffsets`.
    """
    gone = (begun.positions.keys() - until.positions.keys()) | (
        until.positions.keys() - partitions.leaders.keys()
    )
    added = until.positions.keys() - begun.positions.keys()
    if lost := added & gone:
        losses.no_initial_offset(lost)
    if lost := gone - added:
        losses.deleted(lost)
    again = _made_again(begun, until, partitions, losses)
    ranges: list[OffsetRange] = []
    for tp in sorted(until.positions.keys() - gone):
        if _replaced(tp.topic, until, partitions):
            # The next batch begins at this end, sees another id, and reads the topic from its
            # beginning: what is read of it here would be read twice.
            continue
        start = ends.starts[tp]
        if tp in added:
            if start != 0:
                losses.added_late(tp, start)
        elif tp.topic not in again:
            start = _not_aged_out(tp, begun.positions[tp], ends.starts, losses)
        stop = until.positions[tp]
        if stop < start and tp.topic not in again:
            # What aged out is told; the rest is a log that became shorter.
            if begun.positions.get(tp, start) > stop:
                losses.changed(tp, start, stop)
            continue
        if stop > ends.ends[tp]:
            if tp.topic not in again:
                losses.unreadable(tp, max(ends.ends[tp], start), stop)
            stop = ends.ends[tp]
        if start < stop:
            topic_id = partitions.topic_ids.get(tp.topic)
            ranges.append(OffsetRange(*tp, start, stop, topic_id, partitions.leaders[tp]))
    return ranges


def _made_again(
    begun: SourceOffset, until: SourceOffset, partitions: Partitions, losses: Losses
) -> set[str]:
    """Topics that are others than they were, by their ids; where those are known."""
    again: set[str] = set()
    for topic in sorted({tp.topic for tp in until.positions}):
        known = [
            ids[topic]
            for ids in (begun.topic_ids, until.topic_ids, partitions.topic_ids)
            if topic in ids
        ]
        if len(set(known)) > 1:
            losses.topic_recreated(topic, known[0], known[-1])
            again.add(topic)
    return again


def _replaced(topic: str, until: SourceOffset, partitions: Partitions) -> bool:
    """Whether a topic is another than it was when the end of the batch was asked for."""
    id_ = until.topic_ids.get(topic)
    return id_ is not None and partitions.topic_ids.get(topic, id_) != id_


def _not_aged_out(
    tp: TopicPartition, start: int, log_starts: PartitionOffsets, losses: Losses
) -> int:
    if start >= log_starts[tp]:
        return start
    losses.start_reset(tp, start, log_starts[tp])
    return log_starts[tp]
