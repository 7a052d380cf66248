"""Damaged bytes at the end of a log: their backup, and the search for valid batches in them."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from aiokq.broker.log import file_names
from aiokq.core.errors import CorruptRecord
from aiokq.core.files import File, Files
from aiokq.records.header import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MIN_LENGTH,
    BatchHeader,
    Checksum,
    read_header,
    verify_crc,
)

if TYPE_CHECKING:
    from aiokq.broker.log.segment_check import BadBatch
    from aiokq.core.types import TopicPartition

logger = logging.getLogger("aiokq.broker.log")

_WINDOW: Final = 4 * 1024 * 1024
_MAGIC_AT: Final = 16
_START: Final = struct.Struct(">qi")
_OFFSET_SPAN: Final = 2**31


def last_sound_offset(
    file: File, position: int, end: int, expected: int, crc32c: Checksum
) -> int | None:
    """Return the last offset of the last valid v2 batch between two positions, or None."""
    last: int | None = None
    for _, header in batches_behind(file, position, end, expected, crc32c):
        last = header.last_offset
    return last


def batches_behind(
    file: File, position: int, end: int, expected: int, crc32c: Checksum
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each valid v2 batch between two positions.

    Because lengths may be damaged, every byte outside a valid batch is tried as the beginning of a
    batch. A batch is recognized by its magic, its length, its CRC, and a base offset that is at
    least ``expected`` and less than ``expected`` + 2**31.
    """
    while position + HEADER_SIZE <= end:
        window = file.pread(min(_WINDOW, end - position), position)
        at = 0
        while True:
            magic = window.find(b"\x02", at + _MAGIC_AT)
            if magic < 0 or magic - _MAGIC_AT + HEADER_SIZE > len(window):
                break
            at = magic - _MAGIC_AT
            offset, length = _START.unpack_from(window, at)
            if (
                expected <= offset < expected + _OFFSET_SPAN
                and MIN_LENGTH[2] <= length <= end - position - at - LOG_OVERHEAD
            ):
                header = _batch_at(file, position + at, crc32c)
                if header is not None:
                    yield position + at, header
                    at += header.size
                    if at >= len(window):
                        break
                    continue
            at += 1
        # a batch that begins in the last bytes of the window is found in the next window
        position += max(at, len(window) - HEADER_SIZE + 1)


def _batch_at(file: File, position: int, crc32c: Checksum) -> BatchHeader | None:
    """Return the header of the batch at a position; None if the batch is not valid."""
    try:
        header = read_header(file.pread(HEADER_SIZE, position))
    except CorruptRecord:
        return None
    if not verify_crc(file.pread(header.size, position), header, crc32c):
        return None
    return header


def is_torn(file: File, position: int, end: int, expected: int) -> bool:
    """Whether the bytes between two positions look like the incomplete beginning of one batch.

    Args:
        expected: the offset that follows the valid batches before ``position``.
    """
    head = file.pread(min(_MAGIC_AT + 1, end - position), position)
    if len(head) < LOG_OVERHEAD:
        return _START.pack(expected, 0)[: min(len(head), 8)] == head[:8]
    offset: int
    length: int
    offset, length = _START.unpack_from(head)
    if len(head) > _MAGIC_AT and head[_MAGIC_AT] not in MIN_LENGTH:
        return False
    return offset >= expected and length + LOG_OVERHEAD > end - position


def only_zeros(file: File, position: int, end: int) -> bool:
    """Whether all bytes between two positions are zero, as after some power cuts."""
    for start in range(position, end, _WINDOW):
        data = file.pread(min(_WINDOW, end - start), start)
        if data.count(0) != len(data):
            return False
    return True


def keep_aside(files: Files, file: File, path: str, position: int, end: int) -> str:
    """Copy the bytes between two positions to a new file beside ``path``; return the new path.

    The copy is durable on return, so that the caller may remove these bytes from the original.
    """
    kept = unused_name(files, f"{path}{file_names.CORRUPT}{position}")
    copy = files.open(kept, exclusive=True)
    try:
        for start in range(position, end, _WINDOW):
            copy.pwritev([file.pread(min(_WINDOW, end - start), start)], start - position)
        copy.sync()
    finally:
        copy.close()
    files.sync_dir(path.rpartition("/")[0])
    return kept


def unused_name(files: Files, path: str) -> str:
    """Return ``path``, with a number appended if it exists, so that no earlier copy is lost."""
    name, number = path, 1
    while files.exists(name):
        number += 1
        name = f"{path}-{number}"
    return name


class Damage:
    """Backs up the damaged bytes of one log before they are removed, and reports them."""

    def __init__(
        self, files: Files, directory: str, name: TopicPartition, crc32c: Checksum
    ) -> None:
        self._files = files
        self._directory = directory
        self._name = name
        self._crc32c = crc32c

    def keep_end(self, file: File, path: str, bad: BadBatch) -> None:
        """Back up the bytes from a bad batch to the end of the file; the caller cuts them off.

        They are not backed up if they are only zeros, or only an unfinished batch.
        """
        position, end = bad.position, file.size()
        lost = last_sound_offset(file, position, end, bad.expected, self._crc32c)
        trash = ""
        if lost is None and is_torn(file, position, end, bad.expected):
            trash = "torn tail"
        elif lost is None and only_zeros(file, position, end):
            trash = "zeros"
        if trash:
            logger.warning(
                "removing %s partition=%s file=%s position=%d bytes=%d next_offset=%d",
                trash,
                self._name,
                path,
                position,
                end - position,
                bad.expected,
            )
            return
        kept = keep_aside(self._files, file, path, position, end)
        logger.error(
            "corrupt batch, log truncated partition=%s file=%s position=%d reason=%r"
            " lost_offsets=%s bytes=%d kept=%s",
            self._name,
            path,
            position,
            bad.reason,
            offsets_text(bad.expected, lost),
            end - position,
            kept,
        )

    def set_segments_aside(self, bases: Sequence[int]) -> None:
        """Rename the ``.log`` files of segments, and remove the other files of these segments.

        Empty ``.log`` files are removed, too. The changes are durable on return.

        Args:
            bases: base offsets of the segments.
        """
        files = self._files
        for base in bases:
            path = file_names.segment_file(self._directory, base, file_names.LOG)
            size = files.stat_size(path)
            if size:
                file = files.open(path)
                try:
                    lost = last_sound_offset(file, 0, size, base, self._crc32c)
                finally:
                    file.close()
                kept = unused_name(files, f"{path}{file_names.CORRUPT}0")
                files.rename(path, kept)
                logger.error(
                    "log truncated, later segment renamed partition=%s file=%s lost_offsets=%s "
                    "bytes=%d kept=%s",
                    self._name,
                    path,
                    offsets_text(base, lost),
                    size,
                    kept,
                )
            for suffix in file_names.SEGMENT_SUFFIXES:
                path = file_names.segment_file(self._directory, base, suffix)
                if files.exists(path):
                    files.remove(path)
        if bases:
            files.sync_dir(self._directory)


def offsets_text(first: int, last: int | None) -> str:
    """Format a range of offsets for a log line; ``last`` is None if it is not known."""
    return f"{first}-{last}" if last is not None else f"{first}-?"
