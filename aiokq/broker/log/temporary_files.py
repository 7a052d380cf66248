"""Temporary files that a crash leaves: the next start finishes or undoes the interrupted change.

The change is a cleaning, a deletion, the replacement of a file, or the split of a segment, which
only Apache Kafka does. Files of a split are handled like the files of a cleaning.

A cleaning writes its result as ``.cleaned`` and renames it to ``.swap`` file by file, beginning
with the segment of the largest base offset. It then renames the originals to ``.deleted`` and
removes the suffix ``.swap``. Therefore:

- A ``.swap`` file is incomplete if there is a ``.cleaned`` file with the same or a lower base
  offset. All originals exist, so the ``.swap`` file is removed. The ``.cleaned`` files are removed
  later: without them, the ``.swap`` file would look complete after another crash.
- All other ``.swap`` files are complete. Their originals are the segments from the base offset of
  the first ``.swap`` file to the end of the last ``.swap`` file. The originals are removed, and
  then the ``.swap`` files get their final names.

If these steps are interrupted, the next start continues them.

Source: Kafka ``LogLoader.load``, ``removeTempFilesAndCollectSwapFiles``.
Tests: ``tests/unit/broker/log/test_temporary_files.py``.
"""

from __future__ import annotations

import logging
from typing import Final

from aiokq.broker.log import file_names
from aiokq.broker.log.batch_reading import walk_headers
from aiokq.core.files import Files
from aiokq.core.named_tuple import NamedTuple

__all__ = ["settle_temporary_files"]

logger = logging.getLogger("aiokq.broker.log")

_SUFFIXES: Final = (*file_names.SEGMENT_SUFFIXES, file_names.SNAPSHOT)


class _Found(NamedTuple):
    """A file of a segment, with a temporary suffix at the end of its name.

    Attributes:
        base_offset: base offset of the segment.
        kind: the suffix before the temporary suffix, such as ``.log``.
    """

    name: str
    base_offset: int
    kind: str


def settle_temporary_files(files: Files, directory: str) -> None:
    """Finish or undo interrupted changes; on return no file has a temporary suffix.

    Raises:
        OSError: the disk failed.
        CorruptRecord: a ``.swap`` file is damaged.
    """
    found = files.listdir(directory)
    if not any(name.endswith(file_names.TEMPORARY_SUFFIXES) for name in found):
        return
    cleaned = _with_suffix(found, file_names.CLEANED)
    least = min((file.base_offset for file in cleaned), default=None)
    swaps: list[_Found] = []
    for file in _with_suffix(found, file_names.SWAP):
        if least is not None and file.base_offset >= least:
            logger.info(
                "undoing an interrupted compaction directory=%s file=%s", directory, file.name
            )
            files.remove(f"{directory}/{file.name}")
        else:
            swaps.append(file)
    for name in found:
        if name.endswith((file_names.CLEANED, file_names.DELETED, file_names.TEMPORARY)):
            files.remove(f"{directory}/{name}")
    if swaps:
        _remove_replaced(files, directory, swaps)
        # Without the sync, a power cut could leave the originals beside the renamed copy.
        files.sync_dir(directory)
        for file in swaps:
            path = f"{directory}/{file.name}"
            files.rename(path, path.removesuffix(file_names.SWAP))
        logger.info(
            "completed an interrupted compaction directory=%s base_offsets=%s",
            directory,
            sorted({file.base_offset for file in swaps}),
        )
    files.sync_dir(directory)


def _with_suffix(found: list[str], suffix: str) -> list[_Found]:
    files = []
    for name in found:
        if name.endswith(suffix):
            parsed = file_names.parse_segment_file(name.removesuffix(suffix))
            if parsed is not None:
                files.append(_Found(name, *parsed))
    return files


def _remove_replaced(files: Files, directory: str, swaps: list[_Found]) -> None:
    """Remove the remaining originals of the swapped segments."""
    logs = [file for file in swaps if file.kind == file_names.LOG]
    if not logs:
        return  # the ``.log`` files have their final names already
    first = min(file.base_offset for file in logs)
    end = max(_next_offset(files, directory, file) for file in logs)
    for name in files.listdir(directory):
        parsed = file_names.parse_segment_file(name)
        if parsed is not None and parsed[1] in _SUFFIXES and first <= parsed[0] < end:
            files.remove(f"{directory}/{name}")


def _next_offset(files: Files, directory: str, swap: _Found) -> int:
    """Return the offset after a swapped segment's last batch; at least base offset plus one."""
    end = swap.base_offset + 1
    file = files.open(f"{directory}/{swap.name}", writable=False)
    try:
        for _, header in walk_headers(file, 0, file.size()):
            end = max(end, header.next_offset)
    finally:
        file.close()
    return end
