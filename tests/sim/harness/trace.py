"""The record of the events in a simulation; runs with equal traces are considered the same."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple


class TraceEvent(NamedTuple):
    """An event with its time in virtual seconds."""

    time: float
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.time:12.6f} {self.kind:<12} {self.text}"


class Trace:
    """Events in the order in which they happened."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.events: list[TraceEvent] = []

    def add(self, kind: str, text: str) -> None:
        self.events.append(TraceEvent(self._now(), kind, text))

    def of(self, kind: str) -> list[str]:
        """Return the texts of the events of one kind."""
        return [event.text for event in self.events if event.kind == kind]

    def digest(self) -> str:
        """Return a hash that is equal for equal traces."""
        return hashlib.sha256(str(self).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.events)

    def __str__(self) -> str:
        return "\n".join(map(str, self.events))
