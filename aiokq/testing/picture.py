"""A picture of a few operations in text: a line per process, time from left to right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from aiokq.testing.history import (
    EndTransaction,
    Final,
    LastStable,
    ObservedOffsets,
    Offsets,
    Operation,
    Outcome,
    Poll,
    Send,
)

__all__ = ["picture"]

SHOWN_RECORDS = 3


def picture(operations: Sequence[Operation]) -> list[str]:
    """Return the lines of the picture.

    Columns are the distinct times of the operations in order; they show order, not length. An
    operation lasts from `[` to `]`.
    """
    times = sorted({time for each in operations for time in (each.start, each.end)})
    rows: dict[str, list[Operation]] = defaultdict(list)
    for operation in sorted(operations, key=lambda each: (each.start, each.end)):
        rows[_row(operation)].append(operation)
    lines: list[tuple[str, list[Operation]]] = []
    for name, row in rows.items():
        for line in _without_overlap(row):
            lines.append((name, line))
    place = {time: number for number, time in enumerate(times)}
    columns = [0] * (len(times) + 1)
    cells = [
        (place[each.start], place[each.end], f"[{_label(each)}]")
        for _, line in lines
        for each in line
    ]
    for number in range(len(times)):
        columns[number + 1] = columns[number] + 2
        for first, last, label in cells:
            if last == number or first == last == number:
                columns[number + 1] = max(columns[number + 1], columns[first] + len(label) + 1)
    width = max(len(name) for name, _ in lines)
    return [f"{name:<{width}} {_draw(line, place, columns)}" for name, line in lines]


def _draw(line: Sequence[Operation], place: dict[float, int], columns: Sequence[int]) -> str:
    text = ""
    for each in line:
        first, last = columns[place[each.start]], columns[place[each.end] + 1]
        text = text.ljust(first)
        label = _label(each)
        text += f"[{label.ljust(max(last - first - 3, len(label)), '-')}]"
    return text


def _without_overlap(row: Sequence[Operation]) -> list[list[Operation]]:
    lines: list[list[Operation]] = []
    for operation in row:
        for line in lines:
            if line[-1].end < operation.start:
                line.append(operation)
                break
        else:
            lines.append([operation])
    return lines


def _row(operation: Operation) -> str:
    if isinstance(operation, Final | LastStable):
        return f"{operation.topic}-{operation.partition}"
    if isinstance(operation, ObservedOffsets):
        return operation.group
    return getattr(operation, "process", "")


def _label(operation: Operation) -> str:
    match operation:
        case Send():
            at = "" if operation.offset is None else f"@{operation.offset}"
            txn = "" if operation.txn is None else f" {operation.txn}"
            return f"send {operation.value}{at}{txn}{_mark(operation.outcome)}"
        case Poll():
            shown = " ".join(f"{r.value}@{r.offset}" for r in operation.records[:SHOWN_RECORDS])
            more = " ..." if len(operation.records) > SHOWN_RECORDS else ""
            return f"poll {shown}{more}"
        case EndTransaction():
            word = "commit" if operation.commit else "abort"
            return f"{word} {operation.txn}{_mark(operation.outcome)}"
        case Offsets():
            shown = " ".join(str(o.offset) for o in operation.offsets[:SHOWN_RECORDS])
            return f"offsets {shown}{_mark(operation.outcome)}"
        case ObservedOffsets():
            return "group " + " ".join(str(o.offset) for o in operation.offsets[:SHOWN_RECORDS])
        case LastStable():
            return f"last stable {operation.offset}"
        case Final():
            return f"stable {operation.last_stable_offset} end {operation.end_offset}"
        case _:
            return type(operation).__name__.lower()


def _mark(outcome: Outcome) -> str:
    return {Outcome.OK: "", Outcome.FAILED: " failed", Outcome.UNKNOWN: " ?"}[outcome]
