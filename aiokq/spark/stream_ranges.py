"""Computes where a stream starts and which ranges a batch reads, within the offsets of the log.

Recreated topics, deleted partitions and records deleted by retention are reported as losses. This
module does no I/O.
"""

from __future__ import annotations

from aiokq import TopicPartition
from aiokq.spark.data_loss import Losses
from aiokq.spark.offset_reader import Ends, Partitions
from aiokq.spark.offsets import PartitionOffsets, SourceOffset
from aiokq.spark.planning import OffsetRange

__all__ = ["beginning", "stream_ranges"]


def beginning(positions: PartitionOffsets, ends: Ends, losses: Losses) -> PartitionOffsets:
    """Return the start positions of a new query.

    Without ``failOnDataLoss``, a position beyond the end of a partition's log becomes that end.

    Raises:
        ConfigError: a requested offset is beyond the end, and ``failOnDataLoss`` is true.
    """
    for tp, position in sorted(positions.items()):
        if position > ends.ends[tp]:
            losses.beyond_the_end(tp, position, ends.ends[tp])
    return {tp: min(position, ends.ends[tp]) for tp, position in positions.items()}


def stream_ranges(
    begun: SourceOffset, until: SourceOffset, partitions: Partitions, ends: Ends, losses: Losses
) -> list[OffsetRange]:
    """Return the ranges of a batch, limited to the offsets that the log has.

    Args:
        begun: start offset of the batch.
        until: end offset of the batch.
        partitions: the partitions that exist now.
        ends: start and end offsets of the existing partitions of the batch.

    Raises:
        DataLoss: records are gone, and ``failOnDataLoss`` is true.

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
            # The topic was recreated after `until` was determined. The next batch finds the new
            # topic id and reads the topic from its start; records read now would be read twice.
            continue
        start = ends.starts[tp]
        if tp in added:
            if start != 0:
                losses.added_late(tp, start)
        elif tp.topic not in again:
            start = _not_aged_out(tp, begun.positions[tp], ends.starts, losses)
        stop = until.positions[tp]
        if stop < start and tp.topic not in again:
            # Records deleted by retention are reported above. If the batch starts after its end,
            # the log has become shorter, which is reported here.
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
    """Report and return the recreated topics; topics whose ids are unknown are left out."""
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
    """Whether a topic was recreated after the end of the batch was determined."""
    id_ = until.topic_ids.get(topic)
    return id_ is not None and partitions.topic_ids.get(topic, id_) != id_


def _not_aged_out(
    tp: TopicPartition, start: int, log_starts: PartitionOffsets, losses: Losses
) -> int:
    if start >= log_starts[tp]:
        return start
    losses.start_reset(tp, start, log_starts[tp])
    return log_starts[tp]
