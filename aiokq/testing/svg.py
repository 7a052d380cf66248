"""Draws the operations of anomalies as an SVG document, which needs no other file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from aiokq.testing.anomalies import Anomaly
from aiokq.testing.history import (
    EndTransaction,
    ObservedOffsets,
    Offsets,
    Operation,
    Outcome,
    Poll,
    Send,
)
from aiokq.testing.picture import Layout, label_of

__all__ = ["svg"]

CHARACTER = 7.5
"""Width of a character in pixels."""
LINE = 34
BOX = 22
TEXT = 18
MARGIN = 16

COLORS: dict[type[Operation], str] = {
    Send: "#cfe2ff",
    Poll: "#d1e7dd",
    EndTransaction: "#fff3cd",
    Offsets: "#e2d9f3",
    ObservedOffsets: "#e2d9f3",
}
OTHER = "#e9ecef"

STYLE = """
text { font: 12px monospace; fill: #212529 }
.kind { font-weight: bold }
.axis, .why { fill: #6c757d }
.tick { stroke: #dee2e6 }
.edge { fill: none; stroke: #b02a37; marker-end: url(#arrow) }
.transaction { fill: none; stroke: #6c757d; stroke-dasharray: 2 3 }
"""

ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
    'markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" fill="#b02a37"/></marker></defs>'
)


def svg(headline: str, anomalies: Sequence[Anomaly]) -> str:
    """Return an SVG document with the pictures of anomalies, one below the other.

    A lane has the operations of a client, a group or a partition. Each operation is a box, which is
    dashed if the operation failed or its outcome is unknown. An arrow leads from a send to a poll
    of the record, from a send to a send of another transaction with a higher offset in the same
    partition, or from a commit of offsets to a read of the offsets. A dotted line leads from an
    operation to the end of its transaction.
    Times count from the first operation of the anomaly.
    """
    shapes = [_text(MARGIN, MARGIN + TEXT, headline, "kind")]
    width, y = MARGIN * 2 + len(headline) * CHARACTER, MARGIN + 2.0 * TEXT
    for anomaly in anomalies:
        verdict = "condemned" if anomaly.kind.condemned else "reported"
        title = f"{anomaly.kind} ({verdict}): {anomaly.message}"
        shapes.append(_text(MARGIN, y + TEXT, title, "kind"))
        shapes.append(_text(MARGIN, y + 2 * TEXT, anomaly.kind.definition, "why"))
        longest = max(len(title), len(anomaly.kind.definition)) * CHARACTER + 2 * MARGIN
        y += 2.5 * TEXT
        picture = _Picture(anomaly.operations, y)
        shapes += picture.shapes()
        width, y = max(width, longest, picture.right), picture.bottom + TEXT
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{y:.0f}">',
            f"<style>{STYLE}</style>",
            ARROW,
            '<rect width="100%" height="100%" fill="white"/>',
            *shapes,
            "</svg>",
            "",
        ]
    )


class _Picture:
    """The picture of one anomaly; the upper edge of the picture is at `top`, in pixels."""

    def __init__(self, operations: Sequence[Operation], top: float) -> None:
        self._operations = operations
        self._layout = layout = Layout(operations)
        self._top = top
        self._left = MARGIN + (max(map(len, self._names()), default=0) + 2) * CHARACTER
        self._lane = {
            id(each): number for number, (_, line) in enumerate(layout.lines) for each in line
        }
        self._axis = top + len(layout.lines) * LINE
        self.right = self._left + (layout.columns[-1] + 12) * CHARACTER + MARGIN
        self.bottom = self._axis + 2 * TEXT

    def _names(self) -> list[str]:
        return [name for name, _ in self._layout.lines]

    def shapes(self) -> Iterator[str]:
        if not self._operations:
            return
        yield from self._time_axis()
        before = None
        for number, name in enumerate(self._names()):
            if name != before:
                yield _text(MARGIN, self._top + number * LINE + BOX * 0.7, name)
            before = name
        for operation in self._operations:
            yield from self._box(operation)
        for first, second, style in _edges(self._operations):
            yield self._edge(first, second, style)

    def _time_axis(self) -> Iterator[str]:
        taken = -1.0
        first = self._layout.times[0]
        for time, column in zip(self._layout.times, self._layout.columns, strict=False):
            x = self._left + column * CHARACTER
            yield f'<path class="tick" d="M{x:.0f} {self._top:.0f}V{self._axis:.0f}"/>'
            label = f"+{time - first:g}"
            if x > taken:
                yield _text(x, self._axis + TEXT, label, "axis")
                taken = x + (len(label) + 1) * CHARACTER

    def _box(self, operation: Operation) -> Iterator[str]:
        x, y, width = self._place(operation)
        fine = getattr(operation, "outcome", Outcome.OK) is Outcome.OK
        dashed = "" if fine else ' stroke-dasharray="4 2"'
        color = COLORS.get(type(operation), OTHER)
        yield (
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{BOX}" rx="3" '
            f'fill="{color}" stroke="#495057"{dashed}/>'
        )
        yield _text(x + CHARACTER, y + BOX * 0.7, label_of(operation))

    def _place(self, operation: Operation) -> tuple[float, float, float]:
        first, last = self._layout.span(operation)
        y = self._top + self._lane[id(operation)] * LINE
        return self._left + first * CHARACTER, y, (last - first) * CHARACTER

    def _edge(self, first: Operation, second: Operation, style: str) -> str:
        x, y, width = self._place(first)
        x2, y2, width2 = self._place(second)
        if y == y2:  # an arc above the lane
            start, end = x + width / 2, x2 + width2 / 2
            return (
                f'<path class="{style}" d="M{start:.0f} {y:.0f}C{start:.0f} {y - 12:.0f} '
                f'{end:.0f} {y - 12:.0f} {end:.0f} {y:.0f}"/>'
            )
        start, end = (y + BOX, y2) if y < y2 else (y, y2 + BOX)
        return (
            f'<path class="{style}" d="M{x + width / 2:.0f} {start:.0f}L{x2 + width2 / 2:.0f} '
            f'{end:.0f}"/>'
        )


def _edges(operations: Sequence[Operation]) -> Iterator[tuple[Operation, Operation, str]]:
    """Yield the pairs of operations that depend on each other, with the style of the line."""
    for first in operations:
        for second in operations:
            if first is second:
                continue
            if _leads_to(first, second):
                yield first, second, "edge"
            elif isinstance(second, EndTransaction) and _txn(first) == second.txn:
                yield first, second, "transaction"


def _txn(operation: Operation) -> str | None:
    """Return the transaction of a send, poll or commit of offsets; None for other operations."""
    return operation.txn if isinstance(operation, Send | Poll | Offsets) else None


def _leads_to(first: Operation, second: Operation) -> bool:
    """Return whether the picture has a line from `first` to `second`.

    A send leads to each poll that returned its record, and to sends of other transactions with
    higher offsets in the same partition. A commit of offsets leads to each observation of one of
    these offsets.
    """
    match first, second:
        case Send(), Poll():
            return any(
                (first.topic, first.value) == (record.topic, record.value)
                for record in second.records
            )
        case Send(), Send():
            return (
                (first.topic, first.partition) == (second.topic, second.partition)
                and first.txn != second.txn
                and first.offset is not None
                and second.offset is not None
                and first.offset < second.offset
            )
        case Offsets(), ObservedOffsets():
            return first.group == second.group and bool(set(first.offsets) & set(second.offsets))
    return False


def _text(x: float, y: float, text: str, style: str = "") -> str:
    shown = escape(
        "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    )
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{kind}>{shown}</text>'
