"""Appends and fetches beside Apache Kafka, by record size, partitions and cache; in suite `log`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final, NamedTuple

from benchmarks import servers
from benchmarks.report import Section
from benchmarks.suites.raw import Rate, raw_load
from benchmarks.suites.targets import AIOKQ, APACHE, Target
from tests.peers.apache_kafka import why_absent

MEGABYTES: Final = 128
"""Default amount of each case, round and broker."""

RECORD_BYTES: Final = {"100 B": 100, "1 KB": 1024, "100 KB": 100 * 1024}
PARTITIONS: Final = (1, 50)
ACTIONS: Final = ("produce", "hot", "cold")
DELETE_DELAY_MS: Final = "100"
"""Logs of one measurement are deleted before the next ones are written."""

TARGET_SIZE: Final = "1 KB"
TARGET_IN: Final = 3.0
TARGET_OUT: Final = 1.0
TARGET_CPU: Final = 5.0
"""Target for the ratio of Apache Kafka's CPU time per GB produced to aiokq's."""


class Case(NamedTuple):
    """The size of the records and the number of partitions of one measurement."""

    size: str
    partitions: int


CASES: Final = [Case(size, partitions) for size in RECORD_BYTES for partitions in PARTITIONS]


class Load:
    """The results of the rounds, for each available broker."""

    def __init__(self, brokers: dict[str, servers.Server], megabytes: int) -> None:
        self._brokers = brokers
        self._megabytes = megabytes
        self._found: dict[tuple[str, Case, str], list[Rate]] = {}

    def round(self, number: int, progress: Callable[[str], None]) -> None:
        """Run each case on each broker, in alternating order; round 0 is the warm-up."""
        turn = list(self._brokers.items())
        for case in CASES:
            for name, server in turn if number % 2 else reversed(turn):
                progress(f"round {number}: {case.size}, {case.partitions}, {name}")
                measured = raw_load(
                    server,
                    *ACTIONS,
                    "delete",
                    topic="load",
                    megabytes=self._megabytes if number else self._megabytes // 2,
                    record_bytes=RECORD_BYTES[case.size],
                    partitions=case.partitions,
                )
                for action, rate in measured.items() if number else ():
                    self._found.setdefault((name, case, action), []).append(rate)

    def rates(self, case: Case, action: str) -> list[Rate | None]:
        """Return the rates of aiokq and Apache Kafka; None if not measured."""
        found = (self._found.get((name, case, action)) for name in (AIOKQ, APACHE))
        return [None if rates is None else Rate.median(rates) for rates in found]

    def row(self, case: Case, action: str) -> list[str]:
        """Return the cells of a row: the rates of both brokers, their ratio, and the CPU of both.

        The last cell is the share of the time that the load was busy with aiokq.
        """
        ours, theirs = self.rates(case, action)
        assert ours is not None
        busy = f"{100 * ours.load_busy:.0f} %"
        if theirs is None:
            return [f"{ours.megabytes:,.0f}", "not measured", "", f"{ours.cpu:.2f}", "", busy]
        return [
            f"{ours.megabytes:,.0f}",
            f"{theirs.megabytes:,.0f}",
            f"{ours.megabytes / theirs.megabytes:.1f}",
            f"{ours.cpu:.2f}",
            f"{theirs.cpu:.2f}",
            busy,
        ]

    def targets(self) -> Iterator[Target]:
        """Yield the targets for 1 KB records, with the results."""
        for case in CASES:
            if case.size != TARGET_SIZE:
                continue
            where = f"{case.size}, {case.partitions} partition{'s'[: case.partitions - 1]}"
            ours, theirs = self.rates(case, "produce")
            if ours is None or theirs is None:
                continue
            yield Target.ratio(f"MB/s appended, {where}", TARGET_IN, ours[0] / theirs[0])
            yield Target.share(f"CPU per GB appended, {where}", TARGET_CPU, theirs.cpu / ours.cpu)
            for cache in ("hot", "cold"):
                ours, theirs = self.rates(case, cache)
                assert ours is not None
                assert theirs is not None
                name = f"MB/s fetched, {cache}, {where}"
                yield Target.ratio(name, TARGET_OUT, ours[0] / theirs[0])


def load(
    megabytes: int | None, rounds: int, progress: Callable[[str], None]
) -> tuple[list[Section], list[Target]]:
    """Return the tables of appends and fetches, and the targets.

    Both brokers run all the time, and each is idle while the other is under load.
    """
    megabytes = megabytes or MEGABYTES
    with ExitStack() as stack:
        delay = f"log.segment.delete.delay.ms={DELETE_DELAY_MS}"
        brokers = {AIOKQ: stack.enter_context(servers.embedded("--set", delay))}
        if why_absent() is None:
            brokers[APACHE] = stack.enter_context(
                servers.apache(log_segment_delete_delay_ms=DELETE_DELAY_MS)
            )
        found = Load(brokers, megabytes)
        for number in range(rounds + 1):
            found.round(number, progress)
        memory = {name: server.resident_bytes for name, server in brokers.items()}
    what = (
        "One node, pre-encoded batches of up to 128 KB, a batch a request, 8 requests in flight on "
        f"one connection, {megabytes} MB a case and round; broker bound to one core, load to the "
        f"other. Median of {rounds} interleaved rounds behind a warm-up of half the size. CPU: the "
        "broker's seconds per GB. Load: the share of the time that the load was busy with aiokq."
    )
    resident = ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in memory.items())
    columns = ("aiokq MB/s", "Apache Kafka MB/s", "ratio", "aiokq CPU", "Apache Kafka CPU", "load")
    append = Section(
        "log-append",
        "Appends to a log",
        f"{what} Memory that the page cache takes was touched before, for both: that costs what "
        f"the machine's host asks, not the broker. Resident memory after all rounds: {resident}. "
        f"Targets at {TARGET_SIZE}: {TARGET_IN:g} x Apache Kafka's MB/s, a fifth of its CPU.",
        ("records", "partitions", *columns),
        unit="MB/s appended",
    )
    fetch = Section(
        "log-fetch",
        "Fetches from a log",
        f"{what} The log that was just appended; the load walks batch headers. Cold: synced, and "
        f"dropped from the page cache. Target at {TARGET_SIZE}: {TARGET_OUT:g} x Apache Kafka's "
        "MB/s.",
        ("records", "partitions", "cache", *columns),
        unit="MB/s fetched, page cache hot",
    )
    for case in CASES:
        append.rows.append([case.size, str(case.partitions), *found.row(case, "produce")])
        for cache in ("hot", "cold"):
            fetch.rows.append([case.size, str(case.partitions), cache, *found.row(case, cache)])
        for section, action in ((append, "produce"), (fetch, "hot")):
            for name, rate in zip((AIOKQ, APACHE), found.rates(case, action), strict=True):
                if rate is not None:
                    label = f"{name}, {case.size}, {case.partitions}"
                    section.bars.append((label, rate.megabytes))
    return [append, fetch], list(found.targets())
