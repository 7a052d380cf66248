"""Limit: where a read starts or ends, by offset or by time; and limits that contradict.

Pure: what a limit is in offsets of the log is asked by lookup.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from aiokq.errors import ConfigError
from aiokq.spark.offsets import (
    EARLIEST,
    LATEST,
    PartitionOffsets,
    parse_partition_offsets,
    parse_partition_timestamps,
    partitions_text,
)

__all__ = ["ByOffset", "ByTime", "ByTimeEach", "Limit", "check_batch_limits", "parse_limit"]


@dataclass(frozen=True)
class ByOffset:
    """Offsets for each partition, -2 and -1 for the ends of the log; or one end for all."""

    offsets: PartitionOffsets | Literal[-2, -1]


@dataclass(frozen=True)
class ByTime:
    """The first record at or after a time, of all partitions; milliseconds since the epoch."""

    timestamp_ms: int


@dataclass(frozen=True)
class ByTimeEach:
    """The same, with a time for each partition."""

    timestamps_ms: PartitionOffsets


Limit: TypeAlias = ByOffset | ByTime | ByTimeEach


def parse_limit(
    given: Mapping[str, str], which: Literal["starting", "ending"], default: Literal[-2, -1]
) -> Limit:
    """From the options, their names in lower case; of several the first in Spark's order counts.

    Raises:
        ConfigError: it is not of the form of its option.
    """
    if (text := given.get(f"{which}timestamp")) is not None:
        try:
            return ByTime(int(text.strip()))
        except ValueError:
            raise ConfigError(f"Expected a single long value, got {text.strip()}") from None
    if (text := given.get(f"{which}offsetsbytimestamp")) is not None:
        return ByTimeEach(parse_partition_timestamps(text.strip()))
    text = given.get(f"{which}offsets")
    if text is None:
        return ByOffset(default)
    match text.strip().lower():
        case "latest":
            return ByOffset(LATEST)
        case "earliest":
            return ByOffset(EARLIEST)
        case _:
            return ByOffset(parse_partition_offsets(text.strip()))


def check_batch_limits(starting: Limit, ending: Limit) -> None:
    """A batch begins and ends where records are.

    Raises:
        ConfigError: it would not, or would end before it begins.
    """
    if isinstance(starting, ByOffset):
        if starting.offsets == LATEST:
            raise ConfigError("starting offset can't be latest for batch queries on Kafka")
        if isinstance(starting.offsets, dict):
            for tp, offset in starting.offsets.items():
                if offset == LATEST:
                    raise ConfigError(
                        f"startingOffsets for {tp} can't be latest for batch queries on Kafka"
                    )
    if isinstance(ending, ByOffset):
        if ending.offsets == EARLIEST:
            raise ConfigError("ending offset can't be earliest for batch queries on Kafka")
        if isinstance(ending.offsets, dict):
            for tp, offset in ending.offsets.items():
                if offset == EARLIEST:
                    raise ConfigError(
                        f"ending offset for {tp} can't be earliest for batch queries on Kafka"
                    )
    match starting, ending:
        case ByOffset(dict() as first), ByOffset(dict() as last):
            _check_order(first, last, "offset")
        case ByTimeEach(first), ByTimeEach(last):
            _check_order(first, last, "timestamp")


def _check_order(first: PartitionOffsets, last: PartitionOffsets, kind: str) -> None:
    if first.keys() != last.keys():
        raise ConfigError(
            "The specified start offset and end offset should have the same topic-partitions.\n"
            f"Topic-partitions for start offset: {partitions_text(first)}, topic-partitions for "
            f"end offset: {partitions_text(last)}."
        )
    for tp, start in first.items():
        # The ends of the log are negative, and compare with nothing.
        if start > last[tp] >= 0 <= start:
            raise ConfigError(
                f"The specified start {kind} {start} is greater than the end {kind} {last[tp]} "
                f"for topic {tp.topic} partition {tp.partition}."
            )
