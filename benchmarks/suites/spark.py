"""Spark: aiokq's source and sink beside Spark's own Kafka connector, in one session.

Both run in turns, on Apache Kafka and then on aiokq's broker. Brokers, JVM and Python workers share
the machine without binding to cores, as Spark usually does.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from benchmarks import servers
from benchmarks.contenders.spark import PARTITIONS
from benchmarks.report import Section

ROOT = Path(__file__).resolve().parents[2]
CONNECTOR = ROOT / ".cache" / "connector"
TIMEOUT = 1800.0
BATCHES = 8
NAMES = {"aiokq": "aiokq", "kafka": "Spark's connector"}
BROKERS: tuple[tuple[str, Callable[[], AbstractContextManager[servers.Server]]], ...] = (
    ("Apache Kafka", lambda: servers.apache(bind=False)),
    ("aiokq's broker", lambda: servers.embedded(bind=False)),
)

Figures = dict[tuple[str, str], list[dict[str, Any]]]
"""Figures by measurement and format."""


def spark(records: int, rounds: int, progress: Callable[[str], None]) -> list[Section]:
    """Run all measurements.

    Raises:
        RuntimeError: Spark's own connector is missing, or the session fails.
    """
    if not (CONNECTOR / ".complete").exists():
        raise RuntimeError("Spark's own connector is not in .cache/connector: run `make connector`")
    cores = os.cpu_count() or 1
    measured: dict[str, Figures] = {}
    by_cores: dict[int, Figures] = {}
    for name, server in BROKERS:
        with server() as running:
            tell = _named(progress, name)
            wanted = ("rates", "shapes", "micro")
            measured[name] = _run(running.bootstrap, cores, records, rounds, wanted, tell)
            if name == BROKERS[-1][0]:
                by_cores[cores] = measured[name]
                for number in range(1, cores):
                    tell = _named(progress, f"{name}, {number} of {cores} cores")
                    by_cores[number] = _run(
                        running.bootstrap, number, records, rounds, ("full",), tell
                    )
    return [
        _rates(measured, records, rounds),
        _micro_batches(measured, rounds),
        _shapes(measured, by_cores, rounds),
    ]


def _named(progress: Callable[[str], None], name: str) -> Callable[[str], None]:
    return lambda text: progress(f"{name}: {text}")


def _run(
    bootstrap: str,
    cores: int,
    records: int,
    rounds: int,
    what: tuple[str, ...],
    progress: Callable[[str], None],
) -> Figures:
    """Run one Spark session, and return its figures."""
    command = [sys.executable, "-m", "benchmarks.contenders.spark", "--bootstrap", bootstrap]
    command += ["--connector", str(CONNECTOR), "--cores", str(cores), "--rounds", str(rounds)]
    command += ["--records", str(records), "--batches", str(BATCHES), "--what", *what]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    figures: Figures = defaultdict(list)
    progress("Spark starts")
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
            # In a POSIX session of its own: its processes are Spark and the Python workers, and
            # their CPU time is measured.
            start_new_session=True,
        )
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                if line.startswith("{"):
                    figure = json.loads(line)
                    progress(f"{figure['what']}, {NAMES[figure['format']]}")
                    figures[figure["what"], figure["format"]].append(figure)
        if process.wait(TIMEOUT):
            errors.seek(0)
            raise RuntimeError("\n".join(errors.read().strip().splitlines()[-20:]))
    return figures


def _rate(figures: Figures, what: str, format_: str) -> float:
    rates = [figure["rows"] / figure["seconds"] for figure in figures[what, format_]]
    return float(statistics.median(rates))


def _spread(figures: Figures, what: str, format_: str) -> float:
    rates = [figure["rows"] / figure["seconds"] for figure in figures[what, format_]]
    return float((max(rates) - min(rates)) / 2 / statistics.median(rates))


def _cpu(figures: Figures, what: str, format_: str) -> float:
    """Return the CPU microseconds per row."""
    each = [1e6 * figure["cpu_seconds"] / figure["rows"] for figure in figures[what, format_]]
    return float(statistics.median(each))


def _rates(measured: dict[str, Figures], records: int, rounds: int) -> Section:
    section = Section(
        "spark",
        "Spark beside its own Kafka connector",
        f"{records:,} records of 16-byte keys and 100-byte values in 4 partitions, "
        f"local[{os.cpu_count()}], reads into noop: full is all columns, pruned the values "
        "(`columns` here, `select` there). CPU is that of driver, JVM and Python workers, the "
        f"broker left out. Median of {rounds} interleaved rounds after one that warms up.",
        (
            "what",
            "aiokq rows/s",
            "connector rows/s",
            "x connector",
            "CPU us/row",
            "connector",
            "+-",
        ),
        unit="rows/s",
    )
    for what in ("full", "pruned", "write"):
        for broker, figures in measured.items():
            ours, theirs = (_rate(figures, what, format_) for format_ in NAMES)
            cpu = [f"{_cpu(figures, what, format_):.2f}" for format_ in NAMES]
            spread = max(_spread(figures, what, format_) for format_ in NAMES)
            row = [f"{what}, {broker}", f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.2f}"]
            section.rows.append([*row, *cpu, f"{100 * spread:.0f} %"])
            section.bars += [
                (f"aiokq, {what}, {broker}", ours),
                (f"connector, {what}, {broker}", theirs),
            ]
    return section


def _micro_batches(measured: dict[str, Figures], rounds: int) -> Section:
    section = Section(
        "spark-micro-batch",
        "Spark: a micro-batch of one record",
        f"noop sink, checkpoint on disk; milliseconds, median of {rounds} queries of {BATCHES} "
        "batches each, after the first three. Add batch: from planning the tasks to the end of "
        "the last; logs: the query's write-ahead and commit logs.",
        ("source", "micro-batch", "x connector", "add batch", "logs", "latest offset", "the rest"),
        unit="ms",
    )
    for broker, figures in measured.items():
        total: dict[str, float] = {}
        for format_ in reversed(NAMES):
            batches = [b for figure in figures["micro", format_] for b in figure["batches"]]

            def median(*names: str, batches: list[dict[str, int]] = batches) -> float:
                return statistics.median(sum(b.get(n, 0) for n in names) for b in batches)

            named = ("addBatch",), ("walCommit", "commitOffsets"), ("latestOffset",)
            parts = [median(*names) for names in named]
            total[format_] = median("triggerExecution")
            row = [f"{NAMES[format_]}, {broker}", f"{total[format_]:.0f}"]
            row += [f"{total[format_] / total['kafka']:.2f}", *(f"{part:.0f}" for part in parts)]
            section.rows.append([*row, f"{total[format_] - sum(parts):.0f}"])
            section.bars.append((f"{NAMES[format_]}, {broker}", total[format_]))
    return section


def _shapes(measured: dict[str, Figures], by_cores: dict[int, Figures], rounds: int) -> Section:
    section = Section(
        "spark-shapes",
        "Spark: rows/s against partitions, rows and cores",
        "All columns into noop; by partitions a quarter of the records; by rows the first of the "
        f"topic of 4 partitions. Median of {rounds} interleaved rounds after one that warms up.",
        (
            "read",
            "aiokq rows/s",
            "connector rows/s",
            "x connector",
            "aiokq: x the time of the first",
        ),
    )
    for broker, figures in measured.items():
        first = 0.0
        for what in _in_order(figures):
            ours, theirs = (_rate(figures, what, format_) for format_ in NAMES)
            label = what if what != "full" else f"{figures[what, 'aiokq'][0]['rows']:,} rows"
            times = ""
            if what.endswith(" partitions"):
                first = first or ours
                times = f"{first / ours:.2f}"
            section.rows.append(
                [f"{label}, {broker}", *(f"{rate:,.0f}" for rate in (ours, theirs))]
                + [f"{ours / theirs:.2f}", times]
            )
    for cores, figures in sorted(by_cores.items()):
        ours, theirs = (_rate(figures, "full", format_) for format_ in NAMES)
        label = f"{cores} core{'s' if cores > 1 else ''}, {BROKERS[-1][0]}"
        section.rows.append([label, f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.2f}", ""])
    return section


def _in_order(figures: Figures) -> list[str]:
    by_rows = [what for what, format_ in figures if what.endswith(" rows") and format_ == "aiokq"]
    return [f"{number} partitions" for number in PARTITIONS] + [*by_rows, "full"]
