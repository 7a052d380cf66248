"""A segment written by the log cleaner: filled block by block, synced, then renamed into place.

Its files end in ``.cleaned`` while it is written and in ``.swap`` while it replaces the originals.
Afterwards they have the names of an ordinary segment. ``cleaner.group_rewriter`` writes its
content.

Source: Kafka ``Cleaner.cleanSegments``, ``UnifiedLog.createNewCleanedSegment``.
Tests: ``tests/unit/broker/log/test_cleaner.py``, ``test_cleaner_crash.py``.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiokq.broker.log import file_names
from aiokq.broker.log.segment import Segment

__all__ = ["CleanedSegment"]


class CleanedSegment(Segment):
    """The compacted copy of adjacent segments."""

    __slots__ = ()

    def note_copied(
        self, size: int, notes: Iterable[tuple[int, int, int, int]], largest: tuple[int, int]
    ) -> None:
        """Count ``size`` bytes of batches that were written to the file, and index them.

        Args:
            notes: index entries: last offset and position of a batch, the largest
                timestamp so far, and the last offset of the batch that has this timestamp.
            largest: the largest timestamp up to the end of these batches, and its offset.
        """
        for last_offset, position, timestamp_ms, offset in notes:
            self._index.append(last_offset, position)
            self._time_index.maybe_append(timestamp_ms, offset)
        self._max_timestamp = largest
        self.size += size

    def finish_copy(self, next_offset: int) -> None:
        """Finish the segment and sync all its files, but not the directory that contains them.

        Raises:
            OSError: the disk failed.
        """
        self.next_offset = next_offset
        self.seal()
        self.sync(finished=True)

    def rename(self, suffix: str) -> None:
        """Rename the files to end in ``suffix``. The call may be repeated after an error."""
        for kind in file_names.SEGMENT_SUFFIXES:
            path = self.path(kind)
            if self._files.exists(path):
                self._files.rename(path, path.removesuffix(self._suffix) + suffix)
        self._suffix = suffix
        self._index.path = self.path(file_names.INDEX)
        self._time_index.path = self.path(file_names.TIME_INDEX)
        self.transactions.path = self.path(file_names.TXN_INDEX)

    def remove(self) -> None:
        """Remove the files of a copy that has not replaced its originals.

        This also works if an error in `rename` left some files with the suffix ``.cleaned`` and
        others with ``.swap``.

        After a crash, the next start would use the ``.swap`` files if there were no ``.cleaned``
        file. Therefore the ``.cleaned`` files are removed last. If there is no ``.cleaned`` file,
        the ``.log.swap`` is first renamed to ``.log.cleaned``.

        Raises:
            OSError: the disk failed, and files may remain; or the directory could not be synced.
        """
        failure: OSError | None = None
        swapped, cleaned = self._existing(file_names.SWAP), self._existing(file_names.CLEANED)
        if swapped and not cleaned:
            log = swapped[0].removesuffix(file_names.SWAP) + file_names.CLEANED
            try:
                self._files.rename(swapped[0], log)
                swapped, cleaned = swapped[1:], [log]
                self._files.sync_dir(self._directory)
            except OSError as error:
                failure = error
        for path in swapped:
            self._files.remove(path)
        if swapped and failure is None:
            try:
                self._files.sync_dir(self._directory)
            except OSError as error:
                failure = error
        for path in cleaned:
            self._files.remove(path)
        if failure is not None:
            # All files are removed in spite of the error. But the order of the removals is not
            # durable: a power cut could still leave ``.swap`` files without a ``.cleaned`` file.
            raise failure

    def _existing(self, suffix: str) -> list[str]:
        """Return the paths of the copy's files with a suffix, the ``.log`` first."""
        paths = [
            file_names.segment_file(self._directory, self.base_offset, kind) + suffix
            for kind in file_names.SEGMENT_SUFFIXES
        ]
        return [path for path in paths if self._files.exists(path)]
