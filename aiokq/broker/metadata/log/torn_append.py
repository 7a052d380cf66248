"""Distinguishes an append that a kill or power cut left incomplete from damage to durable records.

Each append is synced before the next one, so only the last append of a log can be incomplete. The
first append of an epoch may have two batches: the control batch with the ``LeaderChangeMessage``,
and a batch of data. Each other append has one batch. After a power cut, the file may have grown
only in part, and any sector of the append may have its old content. After the old end of the file,
the old content is zeros.

`metadata_reader` finds the bad bytes.

Tests: ``tests/unit/broker/metadata/log/test_torn_appends.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from aiokq.broker.log.corruption import batches_behind
from aiokq.records.header import HEADER_SIZE, LENGTH_OFFSET, LOG_OVERHEAD, BatchHeader, Checksum

if TYPE_CHECKING:
    from aiokq.core.files import File

__all__ = ["is_torn_append", "may_be_durable"]

SECTOR: Final = 512
"""Size in bytes of a sector, which a disk writes completely or not at all."""

MAGIC_END: Final = LOG_OVERHEAD + 5
"""End of the fields base offset, length, epoch and magic. If one of these fields is wrong, the
header is misread.
"""

LARGEST_FIRST_CONTROLS: Final = 3
"""Number of records in the control batch that begins a new log with ``kraft.version`` 1."""


def is_torn_append(
    file: File,
    position: int,
    size: int,
    *,
    header: BatchHeader | None,
    is_sound: bool,
    expected: int,
    epoch: int,
    crc32c: Checksum,
) -> bool:
    """Whether the bytes from ``position`` on can be an incomplete append.

    Args:
        position: end of the last whole batch of the log.
        size: size of the file.
        header: header of the batch at ``position``; None if it cannot be read.
        is_sound: whether the checksum of that batch matches. If so, only the base offset is wrong,
            because the checksum does not cover it.
        expected: the base offset that a batch at ``position`` must have.
        epoch: leader epoch of the last whole batch.
    """
    behind = list(batches_behind(file, position + 1, size, expected, crc32c))
    if behind and not _is_second_batch(*behind[0], size, expected, epoch):
        return False
    if is_sound:
        assert header is not None
        is_last = behind or position + header.size == size
        return (is_last or header.leader_epoch > epoch) and _lacks_offset(file, position, expected)
    if not behind and (header is None or position + header.size >= size):
        return True
    # The batch at `position` does not reach to the end of the file, or its length is wrong. The
    # batch was torn only if one of its sectors is missing.
    if behind:
        first_end = behind[0][0]
    else:
        assert header is not None
        first_end = position + max(header.size, HEADER_SIZE)
    missing = list(_missing_sectors(file, position, first_end, size, expected))
    if not missing:
        return False
    if behind or missing[0] < position + MAGIC_END:
        return True
    # The sector with the length of this batch was written. As the file continues after this batch,
    # the torn append has a second batch. Only an append that begins an epoch has two batches.
    assert header is not None
    return header.leader_epoch > epoch


def may_be_durable(
    file: File, position: int, size: int, *, header: BatchHeader | None, expected: int
) -> bool:
    """Whether the torn tail can be an append that was complete, and became damaged later.

    Args:
        position, size, header, expected: see `is_torn_append`.
    """
    if size - position < HEADER_SIZE or (header is not None and position + header.size > size):
        return False
    return not any(True for _ in _missing_sectors(file, position, size, size, expected))


def _is_second_batch(
    position: int, header: BatchHeader, size: int, expected: int, epoch: int
) -> bool:
    """Whether a batch is the second one of the first append of an epoch, and the last of the log.

    In its epoch, only the control batch with the ``LeaderChangeMessage`` precedes this batch.
    """
    controls = header.base_offset - expected
    return (
        position + header.size == size
        and header.leader_epoch > epoch
        and (controls == 1 or (controls == LARGEST_FIRST_CONTROLS and not expected))
    )


def _lacks_offset(file: File, position: int, expected: int) -> bool:
    """Whether a batch with a valid checksum lacks the sector in which it begins.

    The checksum does not cover the first two fields, base offset and length. If the sector has only
    bytes of these fields, the batch can have a valid checksum although the sector was not written.
    An unwritten sector reads as zeros. The length is right nevertheless if all bytes of the length
    that belong to the sector are 0.
    """
    left = -position % SECTOR
    known = expected.to_bytes(LENGTH_OFFSET, "big")
    return (
        0 < left < LOG_OVERHEAD
        and any(known[:left])
        and not any(file.pread(left, position))
        and file.pread(LENGTH_OFFSET, position)[left:] == known[left:]
    )


def _missing_sectors(file: File, start: int, end: int, size: int, expected: int) -> Iterator[int]:
    """Yield the positions of the unwritten sectors between ``start`` and ``end``.

    A batch begins at ``start``, and the bytes of the first sector before ``start`` are ignored. The
    first sector is not yielded if nothing shows whether it was written. This is so if it ends
    inside the base offset or the length of the batch, and contains only zeros of the base offset
    ``expected``.
    """
    known = expected.to_bytes(LENGTH_OFFSET, "big")
    first = start
    while first < min(end, size):
        after = min(first - first % SECTOR + SECTOR, size)
        shows = first > start or after - first >= LOG_OVERHEAD or any(known[: after - first])
        if shows and not any(file.pread(after - first, first)):
            yield first
        first = after
