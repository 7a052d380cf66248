"""Limits of timestamps: the years 1 to 9999, which readers can represent.

Timestamps outside these limits occur, for example if a producer writes microseconds in place of
milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["within_calendar"]

FIRST: Final = -62_135_596_800_000_000
"""Start of the year 1, the first year in Python and in SQL, in microseconds since 1970."""

LAST: Final = 253_402_300_799_999_999
"""End of the year 9999, in microseconds since 1970."""


def within_calendar(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return timestamps in microseconds, limited to the years 1 to 9999."""
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    whole = times.cast(pa.int64())
    bounded = pc.max_element_wise(whole, FIRST, skip_nulls=False)
    return pc.min_element_wise(bounded, LAST, skip_nulls=False).cast(times.type)
