"""Filter pushdown: filters on topic, partition, offset and timestamp limit the fetched records.

Pushdown is opt-in, because Spark refuses readers that take filters if
``spark.sql.python.filterPushdown.enabled`` is not set. Spark's own connector has no pushdown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from aiokq.spark.batch_reader import KafkaBatchReader
from aiokq.spark.planning import OffsetRange

__all__ = ["PushdownReader"]

Narrow: TypeAlias = Callable[[OffsetRange], OffsetRange | None]
"""Function that returns the part of a range that a filter selects, or None if no offset matches."""


class PushdownReader(KafkaBatchReader):
    """Batch reader that takes filters.

    Filters on ``topic`` and ``partition`` (``=`` and ``in``) exclude partitions, and comparisons of
    ``offset`` shorten ranges. Filters ``timestamp >=`` and ``timestamp >`` move the start to the
    first record with such a timestamp. Spark applies the timestamp filters again, because
    timestamps in a log may decrease.
    """

    _narrowing: tuple[Narrow, ...] = ()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters that the reader can apply; return the filters that Spark must apply."""
        left: list[Filter] = []
        for item in filters:
            since = _since_ms(item)
            if since is not None:
                self._since_ms = max(since, self._since_ms or 0)
            narrow = _narrow(item)
            if narrow is None:
                left.append(item)
            else:
                self._narrowing = (*self._narrowing, narrow)
        return left

    def _narrowed(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        for narrow in self._narrowing:
            ranges = [left for part in ranges if (left := narrow(part)) is not None]
        return ranges


def _narrow(item: Filter) -> Narrow | None:
    """Return the function that applies a filter to a range; None if the filter is not supported."""
    match item:
        case IsNotNull(("topic" | "partition" | "offset" | "timestamp",)):
            return lambda part: part  # these columns are never null
        case EqualTo(("topic",), str(topic)):
            return lambda part: part if part.topic == topic else None
        case EqualTo(("partition",), int(number)):
            return lambda part: part if part.partition == number else None
        case In(("topic",), topics):
            return lambda part: part if part.topic in topics else None
        case In(("partition",), numbers):
            return lambda part: part if part.partition in numbers else None
        case EqualTo(("offset",), int(offset)):
            return lambda part: _between(part, offset, offset + 1)
        case GreaterThanOrEqual(("offset",), int(offset)):
            return lambda part: _between(part, offset, part.stop)
        case GreaterThan(("offset",), int(offset)):
            return lambda part: _between(part, offset + 1, part.stop)
        case LessThan(("offset",), int(offset)):
            return lambda part: _between(part, part.start, offset)
        case LessThanOrEqual(("offset",), int(offset)):
            return lambda part: _between(part, part.start, offset + 1)
    return None


def _between(part: OffsetRange, start: int, stop: int) -> OffsetRange | None:
    start, stop = max(start, part.start), min(stop, part.stop)
    return replace(part, start=start, stop=stop) if start < stop else None


def _since_ms(item: Filter) -> int | None:
    """Return the least timestamp that a filter can select, in milliseconds since 1970.

    The result is None if the filter gives no such bound.
    """
    match item:
        case GreaterThanOrEqual(("timestamp",), datetime() as time) | GreaterThan(
            ("timestamp",), datetime() as time
        ):
            # A time without a zone is in the session's time zone, which is not known here.
            return None if time.tzinfo is None else math.floor(time.timestamp() * 1000)
    return None
