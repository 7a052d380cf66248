"""Rate of log recovery beside Apache Kafka's log: a part of the suite `log`."""

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
from benchmarks.suites.targets import AIOKQ, APACHE, Target
from benchmarks.touched import touch
from tests.peers.apache_kafka import why_absent

MEGABYTES: Final = 600
PURE_MEGABYTES: Final = 100
PURE: Final = "aiokq, pure"
BATCH_KILOBYTES: Final = (16, 128)
TARGET_GIGABYTES: Final = 1.0


def recovery(rounds: int, progress: Callable[[str], None]) -> tuple[Section, list[Target]]:
    """Return a table with a row per batch size, and the targets.

    aiokq and Apache Kafka recover the same files in turn, the pure build smaller files.
    """
    section = Section(
        "log-recovery",
        "Recovery of a log after a kill",
        f"{MEGABYTES} MB of 1 KB records ({PURE_MEGABYTES} MB for the pure build), no recovery "
        "point, page cache warm: every CRC checked, all indexes made, each in a new process whose "
        f"start is not counted; {APACHE}: its own log class, on the same files. Stall: the longest "
        "that a loop stood still beside it, which asks every millisecond. Median of "
        f"{rounds} interleaved rounds. Target: {TARGET_GIGABYTES:g} GB/s.",
        ("batches", "aiokq GB/s", "pure GB/s", "Apache Kafka GB/s", "stall", "peak memory"),
        unit="GB/s",
    )
    apache = why_absent() is None
    rate = "gigabytes_per_second"
    targets = []
    for kilobytes in BATCH_KILOBYTES:
        found: dict[str, list[dict[str, float]]] = {AIOKQ: [], PURE: [], APACHE: []}
        with tempfile.TemporaryDirectory(prefix="aiokq-recovery-") as place:
            large, small = Path(place) / "a" / "measured-0", Path(place) / "b" / "measured-0"
            for directory, megabytes in ((large, MEGABYTES), (small, PURE_MEGABYTES)):
                progress(f"recovery: filling, {kilobytes} KB batches")
                touch(megabytes * 1_000_000)
                size = ("--megabytes", str(megabytes), "--batch-bytes", str(1024 * kilobytes))
                _run("fill", str(directory), *size)
            for number in range(rounds):
                progress(f"recovery, {kilobytes} KB batches, round {number + 1} of {rounds}")
                found[AIOKQ] += _run("recover", str(large))
                if apache:
                    found[APACHE] += _run("recover", str(large), "--apache")
                found[PURE] += _run("recover", str(small), pure=True)
        section.rows.append(
            [f"{kilobytes} KB"]
            + [
                f"{_median(found[who], rate):.1f}" if found[who] else "not measured"
                for who in (AIOKQ, PURE, APACHE)
            ]
            + [
                f"{1000 * _median(found[AIOKQ], 'longest_stall_seconds'):.0f} ms",
                f"{_median(found[AIOKQ], 'peak_bytes') / 1e6:.0f} MB",
            ]
        )
        for who in (AIOKQ, APACHE):
            if found[who]:
                section.bars.append((f"{who}, {kilobytes} KB", _median(found[who], rate)))
        figure = f"recovery, {kilobytes} KB batches"
        speed = _median(found[AIOKQ], rate)
        targets.append(Target.at_least(figure, TARGET_GIGABYTES, speed, "GB/s"))
    return section, targets


def _run(*arguments: str, pure: bool = False) -> list[dict[str, float]]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.log_recovery", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"AIOKQ_PURE": str(int(pure))},
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _median(found: list[dict[str, float]], name: str) -> float:
    return statistics.median(figures[name] for figures in found)
