"""Draws a few operations as text, with time from left to right.

`Layout` computes the places of the operations, also for svg.py.
"""

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

__all__ = ["Layout", "label_of", "picture"]

SHOWN_RECORDS = 3


class Layout:
    """The places of operations in a picture, in characters.

    Each distinct start or end time has a column, in ascending order. A column is as wide as the
    labels need; its width does not show a duration.

    Attributes:
        lines: for each line, its name and its operations, which do not overlap. The name is a
            process, a partition or a group.
        times: the distinct times, ascending.
        columns: the position of the column of each time, and the end of the last column.
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.times = sorted({time for each in operations for time in (each.start, each.end)})
        rows: dict[str, list[Operation]] = defaultdict(list)
        for operation in sorted(operations, key=lambda each: (each.start, each.end)):
            rows[_row(operation)].append(operation)
        self.lines = [(name, line) for name, row in rows.items() for line in _without_overlap(row)]
        self._place = {time: number for number, time in enumerate(self.times)}
        self.columns = columns = [0] * (len(self.times) + 1)
        cells = [
            (self._place[each.start], self._place[each.end], len(label_of(each)) + 3)
            for _, line in self.lines
            for each in line
        ]
        for number in range(len(self.times)):
            columns[number + 1] = columns[number] + 2
            for first, last, width in cells:
                if last == number:
                    columns[number + 1] = max(columns[number + 1], columns[first] + width)

    def span(self, operation: Operation) -> tuple[int, int]:
        """Return the positions at which an operation begins and ends."""
        first, last = self._place[operation.start], self._place[operation.end]
        return self.columns[first], self.columns[last + 1] - 1


def picture(operations: Sequence[Operation]) -> list[str]:
    """Return the lines of the picture. Each operation is drawn from `[` to `]`."""
    layout = Layout(operations)
    width = max(len(name) for name, _ in layout.lines)
    return [f"{name:<{width}} {_draw(line, layout)}" for name, line in layout.lines]


def _draw(line: Sequence[Operation], layout: Layout) -> str:
    text = ""
    for each in line:
        first, last = layout.span(each)
        label = label_of(each)
        text = text.ljust(first) + f"[{label.ljust(max(last - first - 2, len(label)), '-')}]"
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


def label_of(operation: Operation) -> str:
    match operation:
        case Send():
            at = "" if operation.offset is None else f"@{operation.offset}"
            txn = "" if operation.txn is None else f" {operation.txn}"
            return f"send {operation.value}{at}{txn}{_mark(operation.outcome)}"
        case Poll():
            shown = " ".join(f"{r.value}@{r.offset}" for r in operation.records[:SHOWN_RECORDS])
            more = " ..." if len(operation.records) > SHOWN_RECORDS else ""
            txn = "" if operation.txn is None else f" {operation.txn}"
            return f"poll {shown}{more}{txn}"
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
