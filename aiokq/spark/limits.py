"""Parses the options that limit a read: where the read starts, and where it ends.

This module does no I/O; offset_reader.py looks up the offsets of the limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from aiokq import TopicPartition
from aiokq.errors import ConfigError
from aiokq.spark.offsets import (
    EARLIEST,
    LATEST,
    MAX_OFFSET,
    PartitionOffsets,
    parse_partition_offsets,
    parse_partition_timestamps,
    partitions_text,
)
from aiokq.spark.option_values import of_option

__all__ = [
    "ByOffset",
    "ByTime",
    "ByTimeEach",
    "Limit",
    "check_batch_limits",
    "parse_limit",
    "starts_at_an_end",
]


@dataclass(frozen=True)
class ByOffset:
    """Offsets by partition, or an offset for all partitions; -2 is earliest, -1 is latest."""

    offsets: PartitionOffsets | Literal[-2, -1]


@dataclass(frozen=True)
class ByTime:
    """The first record of each partition at or after a timestamp, in milliseconds since 1970."""

    timestamp_ms: int


@dataclass(frozen=True)
class ByTimeEach:
    """The first record of each partition at or after the partition's timestamp, in milliseconds."""

    timestamps_ms: PartitionOffsets


Limit: TypeAlias = ByOffset | ByTime | ByTimeEach


def parse_limit(
    given: Mapping[str, str], which: Literal["starting", "ending"], default: Literal[-2, -1]
) -> Limit:
    """Return the limit that the options give, or `default`.

    As in Spark, a single timestamp takes precedence over timestamps by partition, and timestamps
    take precedence over offsets.

    Args:
        given: options by lower-case names.

    Raises:
        ConfigError: an option is malformed, or a number in it is out of range.
    """
    if (text := given.get(f"{which}timestamp")) is not None:
        try:
            time = int(text.strip())
            if time > MAX_OFFSET:
                raise ValueError(time)
        except ValueError:
            raise ConfigError(
                f"option {which}Timestamp: Expected a single long value, got {text.strip()}"
            ) from None
        with of_option(f"{which}Timestamp"):
            return ByTime(_not_negative(time))
    if (text := given.get(f"{which}offsetsbytimestamp")) is not None:
        with of_option(f"{which}OffsetsByTimestamp"):
            times = parse_partition_timestamps(text.strip())
            return ByTimeEach({tp: _not_negative(time, tp) for tp, time in times.items()})
    text = given.get(f"{which}offsets")
    if text is None:
        return ByOffset(default)
    match text.strip().lower():
        case "latest":
            return ByOffset(LATEST)
        case "earliest":
            return ByOffset(EARLIEST)
        case _:
            with of_option(f"{which}Offsets"):
                offsets = parse_partition_offsets(text.strip())
                for tp, offset in offsets.items():
                    if offset < EARLIEST:
                        raise ConfigError(
                            f"{offset} of {tp} is not an offset (-1 is latest, -2 is earliest)"
                        )
                return ByOffset(offsets)


def _not_negative(timestamp_ms: int, tp: TopicPartition | None = None) -> int:
    """Return the timestamp; refuse negative values, which are special in ListOffsets."""
    if timestamp_ms < 0:
        where = "" if tp is None else f" of {tp}"
        raise ConfigError(
            f"the timestamp {timestamp_ms}{where} is before 1970: it cannot be negative"
        )
    return timestamp_ms


def check_batch_limits(starting: Limit, ending: Limit) -> None:
    """Check the limits of a batch query against each other.

    Raises:
        ConfigError: the batch would start at latest, end at earliest, or end before its start; or
            both limits list partitions, and the lists differ.
    """
    if isinstance(starting, ByOffset):
        with of_option("startingOffsets"):
            _check_not(LATEST, starting, "starting offset", "startingOffsets", "latest")
    if isinstance(ending, ByOffset):
        with of_option("endingOffsets"):
            _check_not(EARLIEST, ending, "ending offset", "ending offset", "earliest")
    match starting, ending:
        case ByOffset(dict() as first), ByOffset(dict() as last):
            with of_option("endingOffsets"):
                _check_order(first, last, "offset")
        case ByTimeEach(first), ByTimeEach(last):
            with of_option("endingOffsetsByTimestamp"):
                _check_order(first, last, "timestamp")


def _check_not(end: int, limit: ByOffset, of_all: str, of_one: str, word: str) -> None:
    if limit.offsets == end:
        raise ConfigError(f"{of_all} can't be {word} for batch queries on Kafka")
    if isinstance(limit.offsets, dict):
        for tp, offset in limit.offsets.items():
            if offset == end:
                raise ConfigError(f"{of_one} for {tp} can't be {word} for batch queries on Kafka")


def _check_order(first: PartitionOffsets, last: PartitionOffsets, kind: str) -> None:
    if first.keys() != last.keys():
        raise ConfigError(
            "The specified start offset and end offset should have the same topic-partitions.\n"
            f"Topic-partitions for start offset: {partitions_text(first)}, topic-partitions for "
            f"end offset: {partitions_text(last)}."
        )
    for tp, start in first.items():
        # Negative values mean the start or the end of the log, and cannot be compared.
        if start > last[tp] >= 0 <= start:
            raise ConfigError(
                f"The specified start {kind} {start} is greater than the end {kind} {last[tp]} "
                f"for topic {tp.topic} partition {tp.partition}."
            )


def starts_at_an_end(starting: Limit) -> bool:
    """Whether the limit is "latest" for any partition."""
    if not isinstance(starting, ByOffset):
        return False
    if isinstance(starting.offsets, dict):
        return LATEST in starting.offsets.values()
    return starting.offsets == LATEST
