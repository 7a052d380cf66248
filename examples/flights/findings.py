"""Results of the Spark job, and whether the counts of its steps agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypedDict

from .delays import Delay
from .lake import Loaded
from .windows import Streamed


class Group(TypedDict, total=False):
    """The value of a key: the parts of the key, and `aggregates.DELAYS`.

    `worst` and `mean_delay` are missing if no flight arrived.
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
"""Groups by key."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of one run.

    Attributes:
        routes: delays by route and hour, from a batch over the files.
        days: delays by airport and day, from a batch over the files.
        routes_topic: `routes` as read back from its topic: the last record of each key.
        days_topic: delays by airport and day as the stream wrote them, read back.
        routes_records: records of this run in the topic of `routes`.
        days_records: records of this run in the topic of `days`.
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
        """Return name, count and expected count of each check.

        Args:
            acknowledged: number of records acknowledged to the producers.
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
    """Return the number of flights of all keys."""
    return sum(delay["flights"] for delay in results.values())


def differing(one: Results, other: Results) -> int:
    """Return the number of keys that have different delays or are in only one of the results."""
    return sum(one.get(key) != other.get(key) for key in {*one, *other})


def busiest(routes: Results) -> list[str]:
    """Return the names of the routes, those with most flights first."""
    flights: dict[str, int] = defaultdict(int)
    for delay in routes.values():
        flights[delay["route"]] += delay["flights"]
    return sorted(flights, key=lambda name: (-flights[name], name))


def mean(delay: Group) -> float:
    """Return the mean delay in minutes."""
    return delay["minutes"] / delay["arrived"]
