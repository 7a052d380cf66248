"""Start of brokers beside Apache Kafka, empty and with many logs; in suite `log`."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from benchmarks.log_startup import RECORDS, AiokqBroker, ApacheBroker, Startup
from benchmarks.report import Section
from benchmarks.suites.targets import AIOKQ, APACHE, Target
from tests.peers.apache_kafka import why_absent

PARTITIONS: Final = 1000
EMPTY: Final = "new"
CLEAN: Final = f"{PARTITIONS:,} partitions, stopped"
KILLED: Final = f"{PARTITIONS:,} partitions, killed"
MANY_PARTITIONS: Final = 10_000
MANY_TOPICS: Final[dict[str, int]] = {
    f"{MANY_PARTITIONS:,} partitions of one topic": 1,
    f"{MANY_PARTITIONS:,} topics": MANY_PARTITIONS,
}
"""Number of topics in each directory with `MANY_PARTITIONS`."""
MANY_RECORDS: Final = 1
"""Records appended to each of `MANY_PARTITIONS` at a time: few, because these rows show the cost of
partitions and not that of recovering records.
"""
MANY_APACHE_ROUNDS: Final = 1
"""Starts of Apache Kafka with `MANY_PARTITIONS` in each state; each takes a minute of CPU time. Its
preallocated index files are sparse: 200 GB in size, less than 1 GB on the disk.
"""
TARGET_ACCEPTS: Final = 0.150
TARGET_MEGABYTES: Final = 40.0
TARGET_READY: Final = 2.0

KINDS: Final[dict[str, type[AiokqBroker | ApacheBroker]]] = {
    AIOKQ: AiokqBroker,
    APACHE: ApacheBroker,
}


def start(rounds: int, progress: Callable[[str], None]) -> tuple[Section, list[Target]]:
    """Return a table with a row per state of the directory, and the targets.

    The brokers take turns.
    """
    kinds = KINDS if why_absent() is None else {AIOKQ: KINDS[AIOKQ]}
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    with ExitStack() as stack:

        def directory() -> str:
            return stack.enter_context(tempfile.TemporaryDirectory(prefix="aiokq-startup-"))

        filled = {}
        many: dict[tuple[str, str], Startup] = {}
        for name, kind in kinds.items():
            progress(f"start: filling {PARTITIONS:,} partitions of {name}")
            filled[name] = Startup(kind(directory()))
            filled[name].fill(PARTITIONS)
            for shape, topics in MANY_TOPICS.items():
                progress(f"start: filling {shape} of {name}")
                many[name, shape] = Startup(kind(directory()), MANY_RECORDS)
                many[name, shape].fill(MANY_PARTITIONS, topics)
        for number in range(rounds):
            for (name, shape), startup in many.items():
                if name == APACHE and number >= MANY_APACHE_ROUNDS:
                    continue
                for how, then_kill in (("stopped", True), ("killed", False)):
                    state = f"{shape}, {how}"
                    progress(f"start, round {number + 1} of {rounds}: {state}, {name}")
                    measured = startup.measure(then_kill=then_kill)
                    found.setdefault((name, state), []).append(measured)
            for state in (EMPTY, CLEAN, KILLED):
                for name, kind in kinds.items():
                    progress(f"start, round {number + 1} of {rounds}: {state}, {name}")
                    startup = Startup(kind(directory())) if state == EMPTY else filled[name]
                    measured = startup.measure(then_kill=state != KILLED)
                    found.setdefault((name, state), []).append(measured)
    section = Section(
        "log-start",
        f"Start, also with {PARTITIONS:,} and {MANY_PARTITIONS:,} partitions",
        f"From exec, on both cores, page cache warm. New: an empty directory, for {APACHE} one "
        f"that was just formatted. {PARTITIONS:,} partitions of 1 KB records; killed: {RECORDS} "
        f"were appended to each before, behind every checkpoint ({MANY_RECORDS} to each of "
        f"{MANY_PARTITIONS:,} partitions). Ready means that each partition's leader answers. "
        "Memory is resident then, and CPU time was spent until then. "
        f"Median of {rounds} interleaved starts; of {MANY_APACHE_ROUNDS} for {APACHE} with "
        f"{MANY_PARTITIONS:,} partitions. Targets: a new directory accepts within "
        f"{1000 * TARGET_ACCEPTS:.0f} ms and takes at most {TARGET_MEGABYTES:g} MB; {PARTITIONS:,} "
        f"partitions are ready within {TARGET_READY:g} s after a clean stop.",
        ("directory", "aiokq accepts", "ready", "memory", "CPU")
        + ("Apache Kafka accepts", "ready", "memory", "CPU"),
        unit="seconds until ready",
    )
    states = [EMPTY, CLEAN, KILLED]
    states += [f"{shape}, {how}" for shape in MANY_TOPICS for how in ("stopped", "killed")]
    for state in states:
        row = [state]
        for name in KINDS:
            each = found.get((name, state))
            if each is None:
                row += ["not measured", "", "", ""]
                continue
            ready = _median(each, "ready_seconds")
            row.append(f"{_median(each, 'accepts_seconds'):.2f} s")
            row.append("" if state == EMPTY else f"{ready:.2f} s")
            row.append(f"{_median(each, 'resident_bytes') / 1e6:.0f} MB")
            row.append(f"{_median(each, 'cpu_seconds'):.2f} s")
            section.bars.append((f"{name}, {state}", ready))
        section.rows.append(row)
    accepts = _median(found[AIOKQ, EMPTY], "accepts_seconds")
    megabytes = _median(found[AIOKQ, EMPTY], "resident_bytes") / 1e6
    ready = _median(found[AIOKQ, CLEAN], "ready_seconds")
    return section, [
        Target.within("start to accepting, new directory", TARGET_ACCEPTS, accepts),
        Target.at_most("memory then, new directory", TARGET_MEGABYTES, megabytes, "MB"),
        Target.within(f"{PARTITIONS:,} partitions open, clean stop", TARGET_READY, ready),
    ]


def _median(found: list[dict[str, float]], name: str) -> float:
    return statistics.median(figures[name] for figures in found)
