"""The plan of a repair: which parts of a damaged metadata log can be kept. Nothing is changed.

Tests: ``tests/unit/broker/metadata/stopped_broker/test_log_repair.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aiokq.broker.log import file_names
from aiokq.broker.log.corruption import batches_behind
from aiokq.broker.metadata.log.metadata_reader import MetadataDamaged, MetadataReader
from aiokq.broker.metadata.log.snapshot_file import SnapshotId
from aiokq.broker.metadata.stopped_broker.cut_records import LostRecord, cut_records
from aiokq.core.frozen import frozen
from aiokq.records.header import HEADER_SIZE, read_header

if TYPE_CHECKING:
    from aiokq.broker.metadata.log.metadata_reader import MetadataState
    from aiokq.core.files import Files
    from aiokq.records.header import BatchHeader, Checksum

__all__ = ["Correction", "RepairPlan", "Rest"]


@frozen
class Correction:
    """A batch that gets another leader epoch; its checksum stays, as it does not cover the epoch.

    Attributes:
        path: path of the segment.
        position: byte position of the batch in the segment.
        offset: base offset of the batch.
        old, new: the epoch that the batch has, and the epoch that it must have.
    """

    path: str
    position: int
    offset: int
    old: int
    new: int


@frozen
class Rest:
    """The part of a segment that continues the newest snapshot; a bad batch is before it.

    Attributes:
        base: base offset of the segment.
        offset: offset of the first record of the rest.
        position: byte position of the rest in the segment.
    """

    base: int
    offset: int
    position: int


class RepairPlan(MetadataReader):
    """Reads the log as it would be after a repair.

    Attributes:
        dropped: snapshots that are set aside.
        rest: the part of a segment with which the repaired log begins; earlier segments are set
            aside. None if the beginning of the log stays as it is.
        cut: base offset of a segment, and the position where it is cut; later segments are set
            aside. None for no cut.
        epochs: the right epoch of each batch with a wrong epoch, by base offset of the segment and
            position in the segment.
        damages: the damages, in the order in which they were found.
    """

    def __init__(self, files: Files, directory: str, crc32c: Checksum) -> None:
        super().__init__(files, directory, crc32c)
        self.dropped: set[SnapshotId] = set()
        self.rest: Rest | None = None
        self.cut: tuple[int, int] | None = None
        self.epochs: dict[tuple[int, int], int] = {}
        self.damages: list[MetadataDamaged] = []

    def path(self, base: int) -> str:
        """Return the path of a segment."""
        return file_names.segment_file(self.directory, base, file_names.LOG)

    def later(self) -> list[int]:
        """Return the base offsets of the segments that are set aside because of the cut.

        The segment of the cut is one of them only if it is cut at its first byte.
        """
        if self.cut is None:
            return []
        base, position = self.cut
        return [one for one in super()._bases() if one > base or (one == base and not position)]

    def earlier(self) -> list[int]:
        """Return the base offsets of the segment that has the `rest`, and of those before it."""
        if self.rest is None:
            return []
        return [one for one in super()._bases() if one <= self.rest.base]

    def shortened(self) -> tuple[str, int] | None:
        """Return path and new size of the segment that the cut shortens; None if there is none."""
        if self.cut is None or not self.cut[1]:
            return None
        base, position = self.cut
        is_replaced = self.rest is not None and self.rest.base == base
        return None if is_replaced else (self.path(base), position)

    def newest(self) -> str | None:
        """Return the path of the newest segment; None if there is none."""
        bases = self._bases()
        return self.path(bases[-1]) if bases else None

    def extent(self, rest: Rest) -> tuple[str, int, int | None]:
        """Return the path of the segment with a rest, and where the rest begins and ends in it."""
        return self._extent(rest.offset)

    def make(self) -> MetadataState:
        """Find the part of the log that can be kept; return its state.

        Raises:
            KafkaStorage, OSError: see ``read``.
        """
        while True:
            try:
                return self.read()
            except MetadataDamaged as damage:
                self.damages.append(damage)
                self._avoid(damage)

    def corrections(self) -> list[Correction]:
        """Return the batches that stay in the log and get another epoch."""
        found = []
        for (base, position), epoch in sorted(self.epochs.items()):
            if self.cut is not None and (base, position) >= self.cut:
                continue
            if self.rest is not None and (base, position) < (self.rest.base, self.rest.position):
                continue
            file = self._files.open(self.path(base), writable=False)
            try:
                header = read_header(file.pread(HEADER_SIZE, position))
            finally:
                file.close()
            found.append(
                Correction(
                    self.path(base), position, header.base_offset, header.leader_epoch, epoch
                )
            )
        return found

    def _segment(self, base: int) -> int:
        """Return the base offset that a segment of the repaired log has before the repair.

        The repair changes the base offset only of a segment that is cut to its rest; see `Rest`.

        Args:
            base: base offset of the segment in the repaired log.
        """
        return self.rest.base if self.rest is not None and base == self.rest.offset else base

    def _epoch(self, base: int, position: int, header: BatchHeader) -> int:
        return self.epochs.get((self._segment(base), position), header.leader_epoch)

    def _snapshots(self) -> list[SnapshotId]:
        return [one for one in super()._snapshots() if one not in self.dropped]

    def _bases(self) -> list[int]:
        removed = {*self.later(), *self.earlier()}
        bases = [one for one in super()._bases() if one not in removed]
        return bases if self.rest is None else [self.rest.offset, *bases]

    def _extent(self, base: int) -> tuple[str, int, int | None]:
        rest, start = self.rest, 0
        if rest is not None and base == rest.offset:
            base, start = rest.base, rest.position
        end = self.cut[1] if self.cut is not None and self.cut[0] == base else None
        return self.path(base), start, end

    def _avoid(self, damage: MetadataDamaged) -> None:
        """Change the plan so that a damaged part is corrected or left out."""
        if damage.snapshot is not None:
            self.dropped.add(damage.snapshot)
            self.cut = self.rest = None
            return
        place = self._segment(damage.base), damage.position
        if damage.epoch is not None and place not in self.epochs:
            self.epochs[place] = damage.epoch
            return
        snapshot, rest, base = damage.state.snapshot, self.rest, damage.base
        if (
            snapshot is not None
            and damage.offset < snapshot.end_offset
            and self.cut is None
            and rest is None
        ):
            self.rest = self._behind(damage, snapshot.end_offset)
            if self.rest is not None:
                return
        if rest is not None and base == rest.offset:
            base = rest.base
            if damage.position == rest.position:
                self.rest, self.cut = None, (base, 0)
                return
        self.cut = base, damage.position

    def _behind(self, damage: MetadataDamaged, end_offset: int) -> Rest | None:
        """Return the part of a damaged segment that continues the snapshot, or None.

        Args:
            damage: a bad batch before ``end_offset``.
            end_offset: end offset of the snapshot.
        """
        file = self._files.open(self.path(damage.base), writable=False)
        try:
            for position, header in batches_behind(
                file, damage.position + 1, file.size(), damage.offset, self._crc32c
            ):
                if header.next_offset > end_offset:
                    continues = header.base_offset <= end_offset
                    return Rest(damage.base, header.base_offset, position) if continues else None
        finally:
            file.close()
        return None

    def cut_records(self, end_offset: int) -> Iterator[LostRecord]:
        """Yield the records that are cut off, from offset ``end_offset`` on."""
        if self.cut is None:
            return
        base, position = self.cut
        places = [(base, position)] if position else []
        expected = end_offset
        for base, start in (*places, *((one, 0) for one in self.later())):
            file = self._files.open(self.path(base), writable=False)
            try:
                for one in cut_records(file, start, expected, self._crc32c):
                    if one.last_offset is None or one.last_offset >= end_offset:
                        yield one
                    expected = max(expected, one.offset + 1, (one.last_offset or 0) + 1)
            finally:
                file.close()
