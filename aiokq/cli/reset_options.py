"""Options of `aiokq groups reset` and `rewind`, and files of offsets.

Option names and the format of the file are those of Kafka's `kafka-consumer-groups.sh`.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from aiokq.cli.time_format import TIME_SYNTAX, parse_time
from aiokq.core import limits
from aiokq.core.numbers import parse_number
from aiokq.core.options import argument, option

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiokq.admin.group_reset import ResetTo
    from aiokq.core.types import TopicPartition

__all__ = ["ResetOptions", "check_given", "named_partitions", "offsets_file", "target"]


@dataclass(frozen=True)
class ResetOptions:
    """Groups, partitions and new offsets of `aiokq groups reset` and `rewind`."""

    group_ids: tuple[str, ...] = field(
        default=(), metadata=argument("[GROUP]...", help="Group ids.")
    )
    all_groups: bool = field(
        default=False,
        metadata=option("--all-groups", help="All groups of consumers in the cluster."),
    )
    topics: tuple[str, ...] = field(
        default=(),
        metadata=option(
            "--topic",
            metavar="TOPIC[:P,...]",
            help="A topic, or some of its partitions; repeatable.",
            show_default=False,
        ),
    )
    all_topics: bool = field(
        default=False,
        metadata=option("--all-topics", help="All partitions with a committed offset."),
    )
    to_earliest: bool = field(
        default=False, metadata=option("--to-earliest", help="To the beginning of each log.")
    )
    to_latest: bool = field(
        default=False, metadata=option("--to-latest", help="To the end of each log.")
    )
    to_current: bool = field(
        default=False,
        metadata=option(
            "--to-current", help="To the committed offset; to the end if there is none."
        ),
    )
    to_offset: int | None = field(
        default=None,
        metadata=option(
            "--to-offset",
            minimum=0,
            maximum=limits.INT64_MAX,
            metavar="N",
            help="To this offset.",
        ),
    )
    shift_by: int | None = field(
        default=None,
        metadata=option(
            "--shift-by",
            maximum=limits.INT64_MAX,
            metavar="N",
            help="N offsets forward, or back if negative.",
        ),
    )
    to_datetime: str | None = field(
        default=None,
        metadata=option(
            "--to-datetime", metavar="TIME", help="To the first record at or after a time."
        ),
    )
    by_duration: str | None = field(
        default=None,
        metadata=option(
            "--by-duration",
            metavar="PnDTnHnMnS",
            help="To the first record at or after a time, given as an age.",
        ),
    )
    from_file: Path | None = field(
        default=None,
        metadata=option(
            "--from-file",
            metavar="FILE",
            help="To the offsets in a file with lines topic,partition,offset.",
        ),
    )
    export: bool = field(
        default=False,
        metadata=option(
            "--export", help="Print the new offsets as lines for --from-file, not a table."
        ),
    )
    dry_run: bool = field(
        default=False,
        metadata=option(
            "--dry-run", help="Show what would be done; the default without --execute."
        ),
    )
    execute: bool = field(default=False, metadata=option("--execute", help="Make the changes."))


def target(options: ResetOptions, now_ms: int) -> ResetTo | None:
    """Return the target that the options name; None if they name no target, as with --from-file.

    Raises:
        typer.BadParameter: the options name several targets, or a text is not a time or a duration.
    """
    from aiokq.admin.group_reset import ResetTo

    given: list[ResetTo] = []
    if options.to_earliest:
        given.append(ResetTo.earliest())
    if options.to_latest:
        given.append(ResetTo.latest())
    if options.to_current:
        given.append(ResetTo.current())
    if options.to_offset is not None:
        given.append(ResetTo.offset(options.to_offset))
    if options.shift_by is not None:
        given.append(ResetTo.shift(options.shift_by))
    if options.to_datetime is not None:
        given.append(ResetTo.timestamp(parse_time(options.to_datetime, now_ms)))
    if (duration := options.by_duration) is not None:
        if duration[:1] not in ("P", "p"):
            raise typer.BadParameter(f"{duration!r} is not a duration: write PT1H, P7D ...")
        given.append(ResetTo.timestamp(parse_time(duration, now_ms)))
    if len(given) > 1:
        raise typer.BadParameter(f"{_WHERE_TO}, not several")
    return given[0] if given else None


_WHERE_TO: Final = (
    "no new position is given: give one of --to-earliest, --to-latest, --to-current, "
    f"--to-offset, --shift-by, --to-datetime ({TIME_SYNTAX}), --by-duration, --from-file"
)


def check_given(options: ResetOptions, where: ResetTo | None) -> None:
    """Check that the options give exactly one target of the reset, and the partitions to reset.

    Args:
        where: the result of `target`.

    Raises:
        typer.BadParameter: an option is missing, or contradicts another.
    """
    if options.from_file is not None:
        if where is not None or options.topics or options.all_topics:
            raise typer.BadParameter(
                "--from-file names the offsets and the partitions: give no other "
                "position and no topics"
            )
        if options.all_groups:
            raise typer.BadParameter("--from-file needs group ids, not --all-groups")
        return
    if where is None:
        raise typer.BadParameter(_WHERE_TO)
    if bool(options.topics) == options.all_topics:
        raise typer.BadParameter("no topics are named: give either --topic or --all-topics")


def named_partitions(texts: Iterable[str]) -> list[str | TopicPartition]:
    """Return topics and partitions written as `orders` or `orders:0,1`.

    Raises:
        typer.BadParameter: a text is not of this form.
    """
    from aiokq.core.types import TopicPartition

    named: list[str | TopicPartition] = []
    for text in texts:
        topic, colon, numbers = text.partition(":")
        if not topic:
            raise typer.BadParameter(f"{text!r} is neither TOPIC nor TOPIC:0,1")
        if not colon:
            named.append(topic)
            continue
        for number in numbers.split(","):
            try:
                partition = parse_number(number, limits.INT32_MAX)
            except ValueError as error:
                raise typer.BadParameter(
                    f"{text[:80]!r} is neither TOPIC nor TOPIC:0,1: partition {error}"
                ) from None
            named.append(TopicPartition(topic, partition))
    return named


def offsets_file(path: Path, group_id: str) -> dict[TopicPartition, int]:
    """Return the offsets in a CSV file of lines ``[group,]topic,partition,offset``.

    Lines of other groups are skipped.

    Raises:
        typer.BadParameter: the file cannot be read, a line is not of this form, a partition has two
            different offsets, or the group has no offsets.
    """
    from aiokq.core.types import TopicPartition

    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise typer.BadParameter(f"cannot read --from-file {path}: {reason}") from None
    found: dict[TopicPartition, int] = {}
    for line, fields in enumerate(csv.reader(text.splitlines()), 1):
        if not any(field.strip() for field in fields):
            continue
        if len(fields) not in (3, 4):
            raise _bad_line(path, line)
        *group, topic, partition_text, offset_text = map(str.strip, fields)
        try:
            partition = parse_number(partition_text, limits.INT32_MAX)
            offset = parse_number(offset_text, limits.INT64_MAX)
        except ValueError:
            raise _bad_line(path, line) from None
        if not topic:
            raise _bad_line(path, line)
        if group not in ([], [group_id]):
            continue
        tp = TopicPartition(topic, partition)
        if found.setdefault(tp, offset) != offset:
            raise typer.BadParameter(f"--from-file {path}, line {line}: {tp} occurs twice")
    if not found:
        raise typer.BadParameter(f"--from-file {path} has no offsets of group {group_id!r}")
    return found


def _bad_line(path: Path, line: int) -> typer.BadParameter:
    return typer.BadParameter(
        f"--from-file {path}, line {line}: must be topic,partition,offset or "
        "group,topic,partition,offset"
    )
