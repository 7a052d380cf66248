"""Output of `aiokq groups reset` and `rewind`: a table, JSON, or lines for --from-file."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiokq.cli.options import NOT_DONE
from aiokq.cli.output import Json, Output, error_json

if TYPE_CHECKING:
    from aiokq.admin.group_types import GroupOffsetReset
    from aiokq.admin.results import Results
    from aiokq.core.types import TopicPartition

__all__ = ["print_resets"]


def print_resets(
    out: Output,
    moved: Mapping[str, Results[TopicPartition, GroupOffsetReset]],
    *,
    done: bool,
    by_group: bool,
    export: bool,
) -> None:
    """Print the offsets that were set, or would be set.

    Args:
        by_group: whether the group is printed with each partition.
        export: whether CSV lines for --from-file are printed instead of a table.
    """
    resets = [(group_id, tp, each) for group_id in moved for tp, each in moved[group_id].items()]
    for group_id, tp, each in resets:
        if each.error is not None:
            out.problem(f"{group_id}: {tp}", each.error)
    if out.as_json:
        out.document([_json(*reset, done=done) for reset in resets])
        return
    named = [
        ((group_id,) if by_group else (), tp, each)
        for group_id, tp, each in resets
        if each.error is None
    ]
    if export:
        for group, tp, each in named:
            out.line(_csv((*group, *tp, each.offset)))
    else:
        out.table(
            (*(("group",) if by_group else ()), "topic", "partition", "previous", "offset"),
            [(*group, *tp, each.previous, each.offset) for group, tp, each in named],
        )
    _notes(out, moved, done=done)


def _notes(
    out: Output,
    moved: Mapping[str, Results[TopicPartition, GroupOffsetReset]],
    *,
    done: bool,
) -> None:
    for group_id, results in moved.items():
        clipped = [str(tp) for tp, each in results.items() if each.clipped]
        if clipped:
            prefix = f"{group_id}: " if len(moved) > 1 else ""
            out.note(
                f"{prefix}requested offset is outside the log, set to the log's start or end: "
                f"{', '.join(clipped)}"
            )
        if not results:
            out.note(f"group {group_id!r} has no committed offsets to reset")
    if not done:
        out.note(NOT_DONE)


def _json(group_id: str, tp: TopicPartition, each: GroupOffsetReset, *, done: bool) -> Json:
    return {
        "group": group_id,
        "topic": tp.topic,
        "partition": tp.partition,
        "previous": each.previous,
        "offset": each.offset,
        "clipped": each.clipped,
        "committed": done and each.error is None,
        "error": error_json(each.error),
    }


def _csv(fields: tuple[object, ...]) -> str:
    """Return one line of CSV; a group id may contain commas and quotes."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()
