"""The embedded broker beside Apache Kafka under the same raw load (`benchmarks/raw_load.py`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

from benchmarks import servers
from benchmarks.report import Section
from benchmarks.suites.raw import Rate, raw_load
from tests.peers.apache_kafka import why_absent

MEGABYTES = 384
"""A round and broker, if nothing else is asked for: seconds for either."""

ACTIONS = ("produce", "hot", "delete")
MEASURED = ACTIONS[:2]
DELETE_DELAY_MS = "100"
"""Logs of one measurement are out of the page cache before the next one's are in it: a cache that
grows takes memory that the machine's host has to find first, which is then what is measured."""

COLUMNS = (
    "broker",
    "produce MB/s",
    "CPU s/GB in",
    "fetch MB/s",
    "CPU s/GB out",
    "start",
    "memory idle",
    "memory loaded",
)


def under_raw_load(
    megabytes: int | None, rounds: int, progress: Callable[[str], None]
) -> list[Section]:
    """Both brokers run at once, each idle while the other is loaded."""
    megabytes = megabytes or MEGABYTES
    section = Section(
        "broker",
        "Brokers under raw load",
        f"One node, 4 partitions, pre-encoded 128 KB batches of 1 KB records, {megabytes} MB a "
        f"round, 8 requests in flight; fetch walks batch headers, page cache hot. Median of "
        f"{rounds} interleaved rounds behind one that is not counted; broker bound to one core, "
        "load to the other. A topic is deleted once it was measured. Start: until it accepts, on "
        "both cores.",
        COLUMNS,
        unit="MB/s produced",
    )
    with ExitStack() as stack:
        delay = f"log.segment.delete.delay.ms={DELETE_DELAY_MS}"
        brokers = {"aiokq": stack.enter_context(servers.embedded("--set", delay))}
        reason = why_absent()
        if reason is None:
            brokers["Apache Kafka 4.2"] = stack.enter_context(
                servers.apache(log_segment_delete_delay_ms=DELETE_DELAY_MS)
            )
        else:
            section.conditions += f" Apache Kafka was not measured: {reason}."
        time.sleep(2)
        idle = {name: server.resident_bytes for name, server in brokers.items()}
        found: dict[str, list[dict[str, Rate]]] = {name: [] for name in brokers}
        for number in range(rounds + 1):
            turn = list(brokers.items())
            for name, server in turn if number % 2 else reversed(turn):
                progress(f"round {number} of {rounds}: {name}" if number else f"warm-up: {name}")
                measured = raw_load(server, *ACTIONS, topic=f"raw-{number}", megabytes=megabytes)
                if number:
                    found[name].append(measured)
        busy = 0.0
        for name, server in brokers.items():
            produced, fetched = (
                Rate.median([each[action] for each in found[name]]) for action in MEASURED
            )
            busy = max(busy, produced.load_busy)
            section.rows.append(
                [name, f"{produced.megabytes:,.0f}", f"{produced.cpu:.2f}"]
                + [f"{fetched.megabytes:,.0f}", f"{fetched.cpu:.2f}"]
                + [f"{1000 * server.start_seconds:,.0f} ms"]
                + [f"{idle[name] / 1e6:.0f} MB", f"{server.resident_bytes / 1e6:.0f} MB"]
            )
            section.bars.append((name, produced.megabytes))
    section.conditions += f" While it produced, the load was busy for {100 * busy:.0f} % at most."
    return [section]
