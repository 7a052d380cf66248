"""Rate of log compaction beside Apache Kafka's cleaner: a part of the suite `log`."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.report import Section
from benchmarks.suites.targets import AIOKQ, APACHE
from benchmarks.touched import touch
from tests.peers.apache_kafka import why_absent

PURE: Final = "aiokq, pure"
PURE_PART: Final = 12
"""Factor by which the log of the pure build is smaller."""

LOGS: Final = (
    ("1 KB records, 16 KB batches", 160, ("--record-bytes", "1024")),
    ("130 B records, 16 KB batches", 40, ("--record-bytes", "130")),
    ("130 B records, one a batch", 12, ("--record-bytes", "130", "--batch-bytes", "130")),
    ("1 KB records, 16 KB batches, zstd", 48, ("--record-bytes", "1024", "--codec", "zstd")),
)
"""The name, the megabytes and the further `fill` options of each log."""


def compaction(rounds: int, progress: Callable[[str], None]) -> Section:
    """Return a table with a row per log.

    aiokq and Apache Kafka clean the same log in turn, the pure build a smaller log.
    """
    section = Section(
        "log-compaction",
        "Compaction",
        "Each key written four times on average, page cache warm. MB/s of the log as it lies on "
        "disk, which both cleaners read twice; each cleans a copy before, in the same process. "
        f"Stall: the longest that a loop stood still beside the run. {APACHE}: its own Cleaner "
        f"class. Logs of {', '.join(str(megabytes) for _, megabytes, _ in LOGS)} MB before zstd, "
        f"of a {PURE_PART}th for the pure build. Median of {rounds} interleaved rounds.",
        ("log", "aiokq MB/s", "pure MB/s", "Apache Kafka MB/s", "stall", "peak memory"),
        unit="MB/s",
    )
    rate = "megabytes_per_second"
    for name, megabytes, arguments in LOGS:
        found: dict[str, list[dict[str, float]]] = {AIOKQ: [], PURE: [], APACHE: []}
        with tempfile.TemporaryDirectory(prefix="aiokq-compaction-") as place:
            large, small = Path(place) / "a", Path(place) / "b"
            progress(f"compaction: filling, {name}")
            _run("fill", large, "--megabytes", str(megabytes), *arguments)
            _run("fill", small, "--megabytes", str(megabytes // PURE_PART), *arguments)
            for number in range(rounds):
                progress(f"compaction, {name}, round {number + 1} of {rounds}")
                touch(2 * megabytes * 1_000_000)
                found[AIOKQ] += _run("clean", large)
                if why_absent() is None:
                    touch(2 * megabytes * 1_000_000)
                    found[APACHE] += _run("clean", large, "--apache")
                found[PURE] += _run("clean", small, pure=True)
        section.rows.append(
            [name]
            + [
                f"{_median(found[who], rate):.0f}" if found[who] else "not measured"
                for who in (AIOKQ, PURE, APACHE)
            ]
            + [
                f"{_median(found[AIOKQ], 'longest_stall_ms'):.0f} ms",
                f"{_median(found[AIOKQ], 'peak_bytes') / 1e6:.0f} MB",
            ]
        )
        for who in (AIOKQ, APACHE):
            if found[who]:
                section.bars.append((f"{who}, {name}", _median(found[who], rate)))
    return section


def _run(
    action: str, directory: Path, *arguments: str, pure: bool = False
) -> list[dict[str, float]]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.log_compaction", action, str(directory), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"AIOKQ_PURE": str(int(pure))},
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _median(found: list[dict[str, float]], name: str) -> float:
    return statistics.median(figures[name] for figures in found)
