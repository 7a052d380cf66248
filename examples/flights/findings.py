"""What the Spark job found, and whether the counts of its steps agree; nothing is computed here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypedDict

from .delays import Delay
from .lake import Loaded
from .windows import Streamed


class Group(TypedDict, total=False):
    """The value of a key: what the key is made of, and `aggregates.DELAYS`.

    There is no `worst` and no `mean_delay` where nobody arrived.
    """

    route: str
    hour: int
    airport: str
    day: str
    flights: int
    arrived: int
    minutes: int
    worst: int
    mean_delay: float


Results: TypeAlias = "Mapping[str, Group]"
"""By key."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Of one run.

    Attributes:
        routes: delays by route and hour, by a batch over the files.
        days: delays by airport and day, likewise.
        routes_topic: `routes` as read back from its topic: the last record of each key.
        days_topic: delays by airport and day as the stream wrote them, read back.
        routes_records: records of this run in the topic of `routes`.
        days_records: in that of `days`.
    """

    loaded: Loaded
    streamed: Streamed
    routes: Results
    days: Results
    routes_topic: Results
    days_topic: Results
    routes_records: int
    days_records: int

    def checks(
        self, acknowledged: int, by_route: Mapping[str, Delay]
    ) -> list[tuple[str, int, int]]:
        """What was counted, and what it has to be.

        Args:
            acknowledged: records, by the producers.
            by_route: delays as the members of the group counted them.
        """
        return [
            ("records that the load told of", self.loaded.told, acknowledged),
            ("rows in the Parquet files", self.loaded.rows, acknowledged),
            ("places in the log they come from", self.loaded.distinct, acknowledged),
            ("flights in all routes and hours", total(self.routes), acknowledged),
            ("flights in all days, by the batch", total(self.days), acknowledged),
            ("flights that the stream read", self.streamed.rows, acknowledged),
            ("flights in all days, by the stream", total(self.days_topic), acknowledged),
            ("flights behind the watermark", self.streamed.late, 0),
            ("days that batch and stream differ in", differing(self.days, self.days_topic), 0),
            ("keys read back that differ", differing(self.routes, self.routes_topic), 0),
            ("routes that differ from the group's", self._routes_differing(by_route), 0),
        ]

    def _routes_differing(self, by_route: Mapping[str, Delay]) -> int:
        mine: dict[str, Delay] = defaultdict(Delay)
        for delay in self.routes.values():
            route = mine[delay["route"].replace("-", " - ")]
            route.flights += delay["flights"]
            route.arrived += delay["arrived"]
            route.total_minutes += delay["minutes"]
            route.worst_minutes = max(route.worst_minutes, delay.get("worst", 0))
        return sum(mine.get(name) != by_route.get(name) for name in {*mine, *by_route})


def total(results: Results) -> int:
    """Flights of all keys."""
    return sum(delay["flights"] for delay in results.values())


def differing(one: Results, other: Results) -> int:
    """Keys whose delays differ, or that only one of them has."""
    return sum(one.get(key) != other.get(key) for key in {*one, *other})


def busiest(routes: Results) -> list[str]:
    """The names of the routes, those with the most flights first."""
    flights: dict[str, int] = defaultdict(int)
    for delay in routes.values():
        flights[delay["route"]] += delay["flights"]
    return sorted(flights, key=lambda name: (-flights[name], name))


def mean(delay: Group) -> float:
    """Minutes."""
    return delay["minutes"] / delay["arrived"]
