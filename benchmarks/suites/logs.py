"""What a log costs: appends, fetches, recovery, start with many of them, compaction.

Each figure is of a process of its own; the same logs are given to Apache Kafka where it is there.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable

from benchmarks.report import Section
from benchmarks.suites.compaction import compaction
from benchmarks.suites.log_load import load
from tests.peers.apache_kafka import why_absent

RECOVERED_MEGABYTES = 2000
PARTITIONS = 1000


def _run(module: str, *arguments: str, pure: bool = False) -> dict[str, float]:
    environment = os.environ | {"AIOKQ_PURE": str(int(pure))}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def logs(megabytes: int, rounds: int, progress: Callable[[str], None]) -> list[Section]:
    """Appends and fetches of so many megabytes, recovery, start-up, compaction."""
    return [
        *load(megabytes, rounds, progress),
        _recovery(rounds, progress),
        _start(rounds, progress),
        compaction(rounds, progress),
    ]


def _recovery(rounds: int, progress: Callable[[str], None]) -> Section:
    section = Section(
        "log-recovery",
        "Recovery of a log after a kill",
        f"{RECOVERED_MEGABYTES / 1000:.0f} GB of 1 KB records, no recovery point, page cache warm: "
        "every CRC checked, all indexes made. Stall: the longest that a loop stood still beside "
        "it, which asks every millisecond. Apache Kafka: its own log class on the same files, "
        f"JVM start not counted. Median of {rounds} rounds.",
        ("batches", "aiokq GB/s", "pure GB/s", "Apache Kafka GB/s", "stall", "peak memory"),
    )
    kafka = ["--kafka"] if why_absent() is None else []
    for kilobytes in (16, 64, 128):
        found: list[dict[str, float]] = []
        pure: list[dict[str, float]] = []
        arguments = ["--megabytes", str(RECOVERED_MEGABYTES)]
        arguments += ["--batch-bytes", str(1024 * kilobytes)]
        for number in range(rounds):
            progress(f"recovery, {kilobytes} KB batches, round {number + 1} of {rounds}")
            found.append(_run("benchmarks.log_recovery", *arguments, *kafka))
            pure.append(_run("benchmarks.log_recovery", *arguments, pure=True))
        rate = "gigabytes_per_second"
        section.rows.append(
            [
                f"{kilobytes} KB",
                f"{_median(found, rate):.1f}",
                f"{_median(pure, rate):.1f}",
                f"{_median(found, 'kafka_' + rate):.1f}" if kafka else "not measured",
                f"{1000 * _median(found, 'longest_stall_seconds'):.0f} ms",
                f"{_median(found, 'peak_bytes') / 1e6:.0f} MB",
            ]
        )
    return section


def _start(rounds: int, progress: Callable[[str], None]) -> Section:
    section = Section(
        "log-start",
        f"Start with {PARTITIONS:,} partitions",
        f"`aiokq broker` on a directory of {PARTITIONS:,} partitions with 10 records each, from "
        f"exec; ready means that each has a leader. Median of {rounds} starts.",
        ("stopped", "accepts", "ready", "memory"),
    )
    for name, arguments in (("clean", []), ("killed", ["--killed"])):
        progress(f"start, {name}")
        figures = _run(
            "benchmarks.log_startup",
            *("--partitions", str(PARTITIONS), "--rounds", str(rounds), *arguments),
        )
        section.rows.append(
            [
                name,
                f"{figures['accepts_seconds']:.2f} s",
                f"{figures['ready_seconds']:.2f} s",
                f"{figures['resident_bytes'] / 1e6:.0f} MB",
            ]
        )
    return section


def _median(found: list[dict[str, float]], name: str) -> float:
    return statistics.median(figures[name] for figures in found)
