"""Delays per carrier and per route, updated as records arrive."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .crew import Report


@dataclass(slots=True)
class Delay:
    """Number of flights, number of arrivals, and sum and maximum of their delays in minutes."""

    flights: int = 0
    arrived: int = 0
    total_minutes: int = 0
    worst_minutes: int = 0

    def add(self, minutes: int | None) -> None:
        self.flights += 1
        if minutes is not None:
            self.arrived += 1
            self.total_minutes += minutes
            self.worst_minutes = max(self.worst_minutes, minutes)

    @property
    def mean_minutes(self) -> float:
        return self.total_minutes / self.arrived if self.arrived else 0.0


@dataclass(slots=True)
class Statistics:
    """Delays of the flights so far, and how often each row of the file occurred."""

    rows: int
    by_carrier: defaultdict[str, Delay] = field(default_factory=lambda: defaultdict(Delay))
    by_route: defaultdict[str, Delay] = field(default_factory=lambda: defaultdict(Delay))
    keyless: int = 0
    records: int = 0
    value_bytes: int = 0
    seen: bytearray = field(init=False)

    def __post_init__(self) -> None:
        self.seen = bytearray(self.rows)

    def add(self, report: Report) -> None:
        self.seen[report.row] = min(255, self.seen[report.row] + 1)
        self.records += 1
        self.value_bytes += report.value_bytes
        self.keyless += report.keyless
        self.by_carrier[report.carrier].add(report.delay)
        self.by_route[report.route].add(report.delay)

    @property
    def missing(self) -> int:
        return self.seen.count(0)

    @property
    def doubled(self) -> int:
        return sum(times > 1 for times in self.seen)
