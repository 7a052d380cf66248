"""How fast logs are compacted, beside Apache Kafka's cleaner: a part of the suite `log`."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable

from benchmarks.report import Section
from tests.peers.apache_kafka import why_absent

LOGS = (
    ("1 KB records, 16 KB batches", 500, ("--record-bytes", "1024")),
    ("130 B records, 16 KB batches", 200, ("--record-bytes", "130")),
    ("130 B records, one a batch", 60, ("--record-bytes", "130", "--batch-bytes", "130")),
    ("1 KB records, 16 KB batches, zstd", 200, ("--record-bytes", "1024", "--codec", "zstd")),
)


def compaction(rounds: int, progress: Callable[[str], None]) -> Section:
    """One section: a row per log."""
    section = Section(
        "log-compaction",
        "Compaction",
        "Each key written four times on average, page cache warm. MB/s of the log as it lies on "
        "disk, which both cleaners read twice. Stall: the longest that a loop stood still beside "
        "the run. Apache Kafka: its own Cleaner class on a copy, JVM start not counted. "
        f"Median of {rounds} rounds.",
        ("log", "aiokq MB/s", "pure MB/s", "Apache Kafka MB/s", "stall", "peak memory"),
    )
    apache = why_absent() is None
    for name, megabytes, arguments in LOGS:
        found: dict[str, list[dict[str, float]]] = {}
        for number in range(rounds):
            progress(f"compaction, {name}, round {number + 1} of {rounds}")
            size = ("--megabytes", str(megabytes))
            for result in _run(*size, *arguments, *(["--apache"] if apache else [])):
                found.setdefault(str(result["who"]), []).append(result)
            small = ("--megabytes", str(max(megabytes // 20, 1)))
            for result in _run(*small, *arguments, pure=True):
                found.setdefault(str(result["who"]), []).append(result)
        rate = "megabytes_per_second"
        section.rows.append(
            [
                name,
                f"{_median(found['aiokq'], rate):.0f}",
                f"{_median(found['aiokq, pure'], rate):.0f}",
                f"{_median(found['Apache Kafka'], rate):.0f}" if apache else "not measured",
                f"{_median(found['aiokq'], 'longest_stall_ms'):.0f} ms",
                f"{_median(found['aiokq'], 'peak_bytes') / 1e6:.0f} MB",
            ]
        )
    return section


def _run(*arguments: str, pure: bool = False) -> list[dict[str, float]]:
    environment = os.environ | {"AIOKQ_PURE": str(int(pure))}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.log_compaction", *arguments],
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _median(found: list[dict[str, float]], name: str) -> float:
    return statistics.median(figures[name] for figures in found)
