"""Delays per carrier and per route, kept while records stream by."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field


@dataclass(slots=True)
class Delay:
    """Flights, how many of them arrived, and the sum and the worst of their delays in minutes."""

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

    def merge(self, other: Delay) -> None:
        self.flights += other.flights
        self.arrived += other.arrived
        self.total_minutes += other.total_minutes
        self.worst_minutes = max(self.worst_minutes, other.worst_minutes)

    @property
    def mean_minutes(self) -> float:
        return self.total_minutes / self.arrived if self.arrived else 0.0


@dataclass(slots=True)
class Statistics:
    """What one consumer has seen: delays, and how often each row of the file came by."""

    rows: int
    by_carrier: defaultdict[str, Delay] = field(default_factory=lambda: defaultdict(Delay))
    by_route: defaultdict[str, Delay] = field(default_factory=lambda: defaultdict(Delay))
    keyless: int = 0
    records: int = 0
    value_bytes: int = 0
    seen: bytearray = field(init=False)

    def __post_init__(self) -> None:
        self.seen = bytearray(self.rows)

    def add(self, key: bytes | None, value: bytes) -> None:
        flight = json.loads(value)
        row = flight["row"]
        self.seen[row] = min(255, self.seen[row] + 1)
        self.records += 1
        self.value_bytes += len(value)
        self.keyless += key is None
        delay = flight["arr_delay"]
        self.by_carrier[flight["carrier"]].add(delay)
        self.by_route[f"{flight['origin']} - {flight['dest']}"].add(delay)

    def merge(self, other: Statistics) -> None:
        for row, times in enumerate(other.seen):
            if times:
                self.seen[row] = min(255, self.seen[row] + times)
        self.records += other.records
        self.value_bytes += other.value_bytes
        self.keyless += other.keyless
        for name, delay in other.by_carrier.items():
            self.by_carrier[name].merge(delay)
        for name, delay in other.by_route.items():
            self.by_route[name].merge(delay)

    @property
    def missing(self) -> int:
        return self.seen.count(0)

    @property
    def doubled(self) -> int:
        return sum(times > 1 for times in self.seen)
