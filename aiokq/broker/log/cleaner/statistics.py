"""Owns what one run of the cleaner did, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Statistics"]


@dataclass(slots=True)
class Statistics:
    """One run over one log.

    Attributes:
        segments: that were cleaned; merged_segments is what became of them.
        indexed_records: of the dirty part, which were put into the offset map.
        records_read: of the whole cleaned part; keyless_records of them had no key and went.
        bytes_read: by both passes.
        size_before: bytes of what was cleaned.
        seconds: from the choice of the log until its last segment was swapped in.
        map_fill: part of the offset map that was used, 0 to 1.
    """

    segments: int = 0
    merged_segments: int = 0
    indexed_records: int = 0
    records_read: int = 0
    records_kept: int = 0
    keyless_records: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    size_before: int = 0
    seconds: float = 0.0
    map_fill: float = 0.0

    def __str__(self) -> str:
        return (
            f"segments={self.segments}->{self.merged_segments}"
            f" records={self.records_read}->{self.records_kept}"
            f" bytes={self.size_before}->{self.bytes_written}"
            f" keyless={self.keyless_records} map={self.map_fill:.0%} seconds={self.seconds:.3f}"
        )
