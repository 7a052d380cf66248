"""The values of `--from`, and the lookup of the start offset of each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import typer

from aiokq.cli.time_format import TIME_SYNTAX, parse_time
from aiokq.core import limits
from aiokq.core.numbers import parse_number

if TYPE_CHECKING:
    from aiokq.consumer.consumer import Consumer
    from aiokq.core.types import TopicPartition

__all__ = ["AtOffset", "AtTime", "FromEnd", "Start", "parse_start", "start_offsets"]


@dataclass(frozen=True)
class AtOffset:
    """A start at the same offset in each partition."""

    offset: int


@dataclass(frozen=True)
class FromEnd:
    """A start before the end of each partition; `offsets` is the distance from the end."""

    offsets: int


@dataclass(frozen=True)
class AtTime:
    """A start at the first record at or after a time, given in ms since 1970."""

    timestamp_ms: int


Start: TypeAlias = Literal["beginning", "end"] | AtOffset | FromEnd | AtTime


def parse_start(text: str, now_ms: int) -> Start:
    """Parse the text of `--from`.

    Raises:
        typer.BadParameter: the text is not a value that `--from` accepts.
    """
    lowered = text.lower()
    if lowered in ("beginning", "earliest"):
        return "beginning"
    if lowered in ("end", "latest"):
        return "end"
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit():
        try:
            number = parse_number(digits, limits.INT64_MAX)
        except ValueError:
            raise typer.BadParameter(f"--from {text[:40]}: there is no such offset") from None
        return FromEnd(number) if text.startswith("-") else AtOffset(number)
    if not text[:1].isdigit() and text[:1] not in ("@", "P", "p"):
        raise typer.BadParameter(
            f"--from {text!r}: write beginning, end, an offset, -N for the last N, or a time: "
            f"{TIME_SYNTAX}"
        )
    return AtTime(parse_time(text, now_ms))


async def start_offsets(
    consumer: Consumer,
    partitions: Iterable[TopicPartition],
    start: Start,
    moved: Callable[[TopicPartition, int, int, int], None],
) -> dict[TopicPartition, int]:
    """Return the start offset of each partition.

    Args:
        moved: called for each partition if the offset of an `AtOffset` is outside the partition's
            log. The arguments are the partition, the start offset, and the first and the end offset
            of the log.

    Raises:
        KafkaError: the offsets could not be looked up.
    """
    wanted = list(partitions)
    if start == "beginning":
        return await consumer.beginning_offsets(wanted)
    ends = await consumer.end_offsets(wanted)
    if start == "end":
        return ends
    if isinstance(start, AtTime):
        found = await consumer.offsets_for_times(dict.fromkeys(wanted, start.timestamp_ms))
        return {tp: ends[tp] if at is None else at.offset for tp, at in found.items()}
    beginnings = await consumer.beginning_offsets(wanted)
    offsets = {}
    for tp in wanted:
        first, end = beginnings[tp], ends[tp]
        if isinstance(start, FromEnd):
            offsets[tp] = max(first, end - start.offsets)
            continue
        offsets[tp] = min(max(start.offset, first), end)
        if offsets[tp] != start.offset:
            moved(tp, offsets[tp], first, end)
    return offsets
