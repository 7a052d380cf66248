"""Checks of batches that a follower fetched from the leader and writes unchanged.

The leader has accepted the batches and set their offsets and leader epochs. The follower checks
that they continue its log, that their CRCs match, and that their leader epochs do not decrease and
are not newer than the leader's.

Source: Kafka ``UnifiedLog.appendAsFollower``.
Tests: ``tests/unit/broker/log/test_follower_append.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from aiokq.broker.log.appending import PlacedAppend
from aiokq.broker.log.segment_check import offset_error
from aiokq.core.errors import CorruptRecord
from aiokq.core.named_tuple import NamedTuple
from aiokq.records.control import EndTransactionMarker, read_marker
from aiokq.records.header import NO_TIMESTAMP, BatchHeader, Checksum, verify_crc

if TYPE_CHECKING:
    from aiokq.core.types import TopicPartition

__all__ = ["LeaderBatches", "UnexpectedAppendOffset", "leader_batches"]

_RELATIVE_MAX: Final = 2**31 - 1
"""The largest difference between an offset and its segment's base offset."""


class UnexpectedAppendOffset(CorruptRecord):
    """CORRUPT_MESSAGE (2): the first batch of a follower's append begins below the log end offset.

    Attributes:
        first_offset: base offset of the first batch.
        last_offset: last offset of the last batch.
    """

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class LeaderBatches(NamedTuple):
    """Batches of the leader that are written in one call, into one segment.

    Attributes:
        placed: the batches to write.
        epochs: leader epochs that begin in these batches, each with its first offset.
    """

    placed: PlacedAppend
    epochs: Sequence[tuple[int, int]]


def leader_batches(
    name: TopicPartition,
    data: memoryview,
    headers: Sequence[BatchHeader],
    *,
    end_offset: int,
    latest_epoch: int,
    leader_epoch: int,
    segment_bytes: int,
    crc32c: Checksum,
) -> list[LeaderBatches]:
    """Check the leader's batches, and divide them into groups; each group is written in one call.

    All batches are checked before the first is written.

    Args:
        data: the batches, one after the other; bytes after the last header's batch are ignored.
        headers: headers of the batches in ``data``.
        end_offset: log end offset.
        latest_epoch: the newest leader epoch in the log.
        leader_epoch: leader epoch of the leader that sent the batches; a batch must not have a
            newer epoch.
        segment_bytes: maximum bytes per group, unless a single batch is larger.

    Raises:
        UnexpectedAppendOffset: the first batch begins before ``end_offset``.
        CorruptRecord: a batch overlaps the previous batch, has a wrong CRC, or has a leader epoch
            that is older than the previous batch's or newer than ``leader_epoch``.
    """
    expected, epoch, position = end_offset, latest_epoch, 0
    if headers and headers[0].base_offset < end_offset:
        raise UnexpectedAppendOffset(
            f"batch at offset {headers[0].base_offset} from the leader of {name}: base offset"
            f" {headers[0].base_offset}, expected {end_offset}",
            headers[0].base_offset,
            headers[-1].last_offset,
        )
    for header in headers:
        reason = offset_error(header, expected, expected)
        if not reason and not verify_crc(data[position : position + header.size], header, crc32c):
            reason = "CRC mismatch"
        if not reason and header.magic >= 2 and header.leader_epoch >= 0:
            if not epoch <= header.leader_epoch <= leader_epoch:
                reason = f"leader epoch {header.leader_epoch} is outside {epoch}..{leader_epoch}"
            epoch = header.leader_epoch
        if reason:
            raise CorruptRecord(
                f"batch at offset {header.base_offset} from the leader of {name}: {reason}"
            )
        expected = header.next_offset
        position += header.size
    return list(_runs(data, headers, end_offset, latest_epoch, segment_bytes))


def _runs(
    data: memoryview,
    headers: Sequence[BatchHeader],
    end_offset: int,
    latest_epoch: int,
    segment_bytes: int,
) -> Iterator[LeaderBatches]:
    position = begin = 0
    run: list[BatchHeader] = []
    for header in headers:
        size = position - begin
        if run and (
            size + header.size > segment_bytes or header.last_offset - end_offset > _RELATIVE_MAX
        ):
            yield _placed(data[begin:position], run, latest_epoch)
            end_offset, latest_epoch = run[-1].next_offset, _latest(run, latest_epoch)
            begin, run = position, []
        run.append(header)
        position += header.size
    if run:
        yield _placed(data[begin:position], run, latest_epoch)


def _latest(headers: Sequence[BatchHeader], epoch: int) -> int:
    return max([epoch, *(header.leader_epoch for header in headers if header.magic >= 2)])


def _marker(batch: memoryview, header: BatchHeader) -> EndTransactionMarker | None:
    try:
        return read_marker(batch, header)
    except CorruptRecord:
        # The CRC of the batch matches, so the leader has the same malformed marker. The batch is
        # stored, but the marker is not applied, as in a recovery.
        return None


def _placed(data: memoryview, headers: Sequence[BatchHeader], latest_epoch: int) -> LeaderBatches:
    batches: list[tuple[int, int, int]] = []
    produced: list[tuple[BatchHeader, EndTransactionMarker | None]] = []
    epochs: list[tuple[int, int]] = []
    position, max_timestamp_ms = 0, NO_TIMESTAMP
    for header in headers:
        batch = data[position : position + header.size]
        position += header.size
        batches.append((header.last_offset, header.size, header.max_timestamp_ms))
        max_timestamp_ms = max(max_timestamp_ms, header.max_timestamp_ms)
        if header.magic >= 2 and header.leader_epoch > latest_epoch:
            latest_epoch = header.leader_epoch
            epochs.append((latest_epoch, header.base_offset))
        if header.has_producer_id:
            marker = _marker(batch, header) if header.is_control else None
            if marker is not None or not header.is_control:
                produced.append((header, marker))
    return LeaderBatches(
        PlacedAppend(
            [data[:position]],
            batches,
            position,
            headers[-1].next_offset,
            max_timestamp_ms,
            produced,
        ),
        epochs,
    )
