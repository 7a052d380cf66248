"""Statistics of a run of the log cleaner."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Statistics"]


@dataclass(slots=True)
class Statistics:
    """Statistics of one run over one log.

    Attributes:
        segments: number of cleaned segments.
        merged_segments: number of segments that replaced them.
        indexed_records: records that the first pass read.
        records_read: records that the second pass read.
        records_kept: records that the second pass wrote.
        keyless_records: removed records that had no key.
        bytes_read: bytes that the two passes read, in total.
        size_before: bytes of the cleaned segments before the run.
        seconds: duration of the run.
        map_fill: number of keys in the offset map, divided by the number of offsets in the dirty
            part: 0 to 1.
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
