"""Reads and writes histories as JSON lines, in the format of docs/reference/histories.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from typing import IO, TypeAlias

from aiokq.testing.history import (
    Assign,
    Copy,
    EndTransaction,
    Final,
    Isolation,
    LastStable,
    ObservedOffsets,
    Offset,
    Offsets,
    Operation,
    Outcome,
    Poll,
    Polled,
    Seek,
    Send,
)

__all__ = ["HistoryError", "from_json", "read_history", "to_json", "write_history"]

Fields: TypeAlias = "Mapping[str, object]"

NAMES: Mapping[type[Operation], str] = {
    Send: "send",
    EndTransaction: "end",
    Poll: "poll",
    Assign: "assign",
    Seek: "seek",
    Offsets: "offsets",
    ObservedOffsets: "observed-offsets",
    LastStable: "last-stable",
    Copy: "copy",
    Final: "final",
}


class HistoryError(ValueError):
    """A line is not an operation of a history, or a value does not identify a record."""


def to_json(operation: Operation) -> str:
    """Return an operation as a line of JSON, without the line feed."""
    fields: dict[str, object] = {"op": NAMES[type(operation)]}
    fields.update((name, value) for name, value in operation._asdict().items() if value is not None)
    return json.dumps(fields, separators=(",", ":"))


def from_json(line: str | bytes) -> Operation:
    """Return the operation in a line of JSON.

    Raises:
        HistoryError: the line has no operation, or a field is missing or has a wrong type.
    """
    try:
        fields = json.loads(line)
        return _READERS[fields.pop("op")](fields)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise HistoryError(f"{type(error).__name__}: {error} in {line[:200]!r}") from error


def read_history(source: str | PathLike[str] | Iterable[str]) -> Iterator[Operation]:
    """Yield the operations in a file, given by its path, or in an iterable of lines.

    Empty lines are skipped. An unfinished last line, which a killed recorder leaves, is skipped if
    it is not the first line.

    Raises:
        HistoryError: a line is not an operation; the message has the number of the line.
    """
    if isinstance(source, str | PathLike):
        with open(source, encoding="utf-8") as file:
            try:
                yield from read_history(file)
            except UnicodeDecodeError as error:
                raise HistoryError(f"the file is not UTF-8: {error}") from error
        return
    lines = iter(source)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield from_json(line)
        except HistoryError as error:
            if not line.endswith("\n") and number > 1 and next(lines, None) is None:
                return
            raise HistoryError(f"line {number}: {error}") from error


def write_history(history: Iterable[Operation], output: IO[str]) -> None:
    """Write one line per operation."""
    output.writelines(to_json(operation) + "\n" for operation in history)


def _send(f: dict[str, object]) -> Send:
    f["outcome"] = Outcome(str(f["outcome"]))
    send = Send(**f)  # type: ignore[arg-type]
    if not isinstance(send.value, str) or not isinstance(send.topic, str):
        raise TypeError("value and topic are strings")
    if send.offset is not None and (
        not isinstance(send.offset, int) or not isinstance(send.partition, int)
    ):
        raise TypeError("an offset is an integer and needs a partition")
    return send


def _end(f: dict[str, object]) -> EndTransaction:
    f["outcome"] = Outcome(str(f["outcome"]))
    end = EndTransaction(**f)  # type: ignore[arg-type]
    if not isinstance(end.commit, bool):
        raise TypeError("commit is true or false")
    return end


def _poll(f: dict[str, object]) -> Poll:
    f["isolation"] = Isolation(str(f.get("isolation", Isolation.READ_COMMITTED)))
    f["records"] = tuple(
        Polled(*record)
        for record in f["records"]  # type: ignore[attr-defined]
    )
    return Poll(**f)  # type: ignore[arg-type]


def _assign(f: dict[str, object]) -> Assign:
    f["partitions"] = tuple(
        (topic, partition)
        for topic, partition in f.get("partitions", ())  # type: ignore[attr-defined]
    )
    return Assign(**f)  # type: ignore[arg-type]


def _with_offsets(f: dict[str, object]) -> dict[str, object]:
    f["offsets"] = tuple(
        Offset(*offset)
        for offset in f["offsets"]  # type: ignore[attr-defined]
    )
    return f


def _offsets(f: dict[str, object]) -> Offsets:
    f["outcome"] = Outcome(str(f["outcome"]))
    return Offsets(**_with_offsets(f))  # type: ignore[arg-type]


def _seek(f: dict[str, object]) -> Seek:
    seek = Seek(**f)  # type: ignore[arg-type]
    if seek.offset is not None and not isinstance(seek.offset, int):
        raise TypeError("an offset is an integer")
    return seek


def _observed(f: dict[str, object]) -> ObservedOffsets:
    observed = ObservedOffsets(**_with_offsets(f))  # type: ignore[arg-type]
    if not isinstance(observed.all_commits, bool):
        raise TypeError("all_commits is true or false")
    return observed


_READERS: Mapping[str, Callable[[dict[str, object]], Operation]] = {
    "send": _send,
    "end": _end,
    "poll": _poll,
    "assign": _assign,
    "seek": _seek,
    "offsets": _offsets,
    "observed-offsets": _observed,
    "last-stable": lambda f: LastStable(**f),  # type: ignore[arg-type]
    "copy": lambda f: Copy(**f),  # type: ignore[arg-type]
    "final": lambda f: Final(**f),  # type: ignore[arg-type]
}
