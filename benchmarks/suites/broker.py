"""The embedded broker beside Apache Kafka under the same raw load (`benchmarks/raw_load.py`)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

from benchmarks import servers
from benchmarks.report import Section
from benchmarks.suites.raw import Rate, raw_load
from tests.peers.apache_kafka import why_absent

MEGABYTES: Final = 1536
"""Default amount that is produced and fetched at a time."""

ACTIONS: Final = ("produce", "hot", "delete")
MEASURED: Final = ACTIONS[:2]
DELETE_DELAY_MS: Final = "100"
"""Short, so that the logs of one measurement leave the page cache before the next logs are written.
Otherwise the cache would grow, and the time that the host of a virtual machine needs to provide
memory for it would be measured.
"""

PASSES: Final = ("started", "in use")
"""Passes on a broker that was just started, and on the same broker in use: Apache Kafka's code is
compiled while it runs, and then uses half the CPU time.
"""

COLUMNS: Final = (
    "broker",
    "produce MB/s",
    "CPU s/GB in",
    "fetch MB/s",
    "CPU s/GB out",
    "start",
    "memory idle",
    "memory loaded",
)

Broker = Callable[[], AbstractContextManager[servers.Server]]


@dataclass(frozen=True, slots=True)
class Measured:
    """The results of one broker."""

    rates: dict[tuple[str, str], list[Rate]] = field(default_factory=dict)
    """By pass and action."""
    start_seconds: list[float] = field(default_factory=list)
    idle_bytes: list[float] = field(default_factory=list)
    loaded_bytes: list[float] = field(default_factory=list)

    def round(self, server: servers.Server, megabytes: int) -> None:
        """Measure one broker that was just started."""
        time.sleep(2)
        self.start_seconds.append(server.start_seconds)
        self.idle_bytes.append(server.resident_bytes)
        for each in PASSES:
            topic = each.replace(" ", "-")
            found = raw_load(server, *ACTIONS, topic=topic, megabytes=megabytes)
            for action in MEASURED:
                self.rates.setdefault((each, action), []).append(found[action])
        self.loaded_bytes.append(server.resident_bytes)

    def row(self, name: str, each: str) -> list[str]:
        """Return the medians of a pass."""
        produced, fetched = (Rate.median(self.rates[each, action]) for action in MEASURED)
        return [
            f"{name}, {each}",
            f"{produced.megabytes:,.0f}",
            f"{produced.cpu:.2f}",
            f"{fetched.megabytes:,.0f}",
            f"{fetched.cpu:.2f}",
            f"{1000 * statistics.median(self.start_seconds):,.0f} ms",
            f"{statistics.median(self.idle_bytes) / 1e6:.0f} MB",
            f"{statistics.median(self.loaded_bytes) / 1e6:.0f} MB",
        ]


def under_raw_load(
    megabytes: int | None, rounds: int, progress: Callable[[str], None]
) -> list[Section]:
    """Run the suite; each round restarts the brokers, one after the other."""
    megabytes = megabytes or MEGABYTES
    section = Section(
        "broker",
        "Brokers under raw load",
        f"One node, 4 partitions, pre-encoded 128 KB batches of 1 KB records, {megabytes} MB at a "
        "time, 8 requests in flight; fetch walks batch headers, page cache hot. A broker that was "
        f"just started, and the same again when it has been in use. Median of {rounds} rounds, in "
        "each of which the brokers run one after the other; broker bound to one core, load to the "
        "other. A topic is deleted once it was measured. Start: until it accepts, on both cores.",
        COLUMNS,
        unit="MB/s produced",
    )
    delay = f"log.segment.delete.delay.ms={DELETE_DELAY_MS}"
    brokers: dict[str, Broker] = {"aiokq": lambda: servers.embedded("--set", delay)}
    reason = why_absent()
    if reason is None:
        brokers["Apache Kafka 4.2"] = lambda: servers.apache(
            log_segment_delete_delay_ms=DELETE_DELAY_MS
        )
    else:
        section.conditions += f" Apache Kafka was not measured: {reason}."
    measured = {name: Measured() for name in brokers}
    for number in range(rounds):
        turn = list(brokers.items())
        for name, broker in turn if number % 2 else reversed(turn):
            progress(f"round {number + 1} of {rounds}: {name}")
            with broker() as server:
                measured[name].round(server, megabytes)
    busy = 0.0
    for each in PASSES:
        for name, found in measured.items():
            produced = found.rates[each, "produce"]
            busy = max(busy, Rate.median(produced).load_busy)
            section.rows.append(found.row(name, each))
            section.bars.append((f"{name}, {each}", Rate.median(produced).megabytes))
    section.conditions += f" While it produced, the load was busy for {100 * busy:.0f} % at most."
    return [section]
