"""Times within the calendar that readers have. Which column they are of, others know.

Whoever writes microseconds where Kafka has milliseconds has records of the year 50,000.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["within_calendar"]

FIRST: Final = -62_135_596_800_000_000
"""The beginning of the year 1, in microseconds since 1970; Python's and SQL's calendars have it."""

LAST: Final = 253_402_300_799_999_999
"""The end of the year 9999."""


def within_calendar(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Timestamps in microseconds, but for those before the year 1 or after 9999: its ends."""
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    whole = times.cast(pa.int64())
    bounded = pc.max_element_wise(whole, FIRST, skip_nulls=False)
    return pc.min_element_wise(bounded, LAST, skip_nulls=False).cast(times.type)
