"""Appends and fetches beside Apache Kafka, by record size, partitions and cache: of suite `log`."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks import servers
from benchmarks.report import Section
from benchmarks.rounds import CLIENT_CORE, bind_to_core
from tests.peers.apache_kafka import why_absent

RECORD_BYTES: Final = {"100 B": 100, "1 KB": 1024, "100 KB": 100 * 1024}
PARTITIONS: Final = (1, 50)
DELETE_DELAY_MS: Final = "100"
"""Logs of one measurement are off the disk before the next one's are on it."""

AIOKQ: Final = "aiokq"
APACHE: Final = "Apache Kafka"

Figures = dict[tuple[str, str, int, str], list[tuple[float, float]]]
"""MB/s and CPU seconds per GB of each round, by broker, record size, partitions and action."""


def load(megabytes: int, rounds: int, progress: Callable[[str], None]) -> list[Section]:
    """Both brokers run at once, each idle while the other is loaded."""
    figures: Figures = {}
    memory: dict[str, int] = {}
    with ExitStack() as stack:
        delay = f"log.segment.delete.delay.ms={DELETE_DELAY_MS}"
        brokers = {AIOKQ: stack.enter_context(servers.embedded("--set", delay))}
        if why_absent() is None:
            brokers[APACHE] = stack.enter_context(
                servers.apache(log_segment_delete_delay_ms=DELETE_DELAY_MS)
            )
        for name, server in brokers.items():  # the JVM compiles what it has run often
            progress(f"warming up: {name}")
            list(_measure(server, "1 KB", 4, megabytes))
        for number in range(rounds):
            turn = list(brokers.items())
            for size, partitions in _cases():
                for name, server in turn if number % 2 else reversed(turn):
                    progress(f"round {number + 1} of {rounds}: {size}, {partitions}, {name}")
                    for action, measured in _measure(server, size, partitions, megabytes):
                        figures.setdefault((name, size, partitions, action), []).append(measured)
        memory = {name: server.resident_bytes for name, server in brokers.items()}
    what = (
        f"One node, pre-encoded batches of up to 128 KB, a batch a request, 8 in flight, "
        f"{megabytes} MB a round; broker bound to one core, load to the other. CPU: the broker's "
        f"seconds per GB. Median of {rounds} interleaved rounds."
    )
    resident = ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in memory.items())
    append = Section(
        "log-append",
        "Appends to a log",
        f"{what} Resident memory of the broker after all rounds: {resident}.",
        ("records", "partitions", "aiokq MB/s", "Apache Kafka MB/s", "ratio")
        + ("aiokq CPU", "Apache Kafka CPU"),
    )
    fetch = Section(
        "log-fetch",
        "Fetches from a log",
        f"{what} The log that was just appended; the load walks batch headers. Cold: synced, and "
        "dropped from the page cache.",
        ("records", "partitions", "cache", "aiokq MB/s", "Apache Kafka MB/s", "ratio")
        + ("aiokq CPU", "Apache Kafka CPU"),
    )
    for size, partitions in _cases():
        case = (size, partitions)
        append.rows.append([size, str(partitions), *_row(figures, *case, "produce")])
        for cache in ("hot", "cold"):
            fetch.rows.append([size, str(partitions), cache, *_row(figures, *case, cache)])
    return [append, fetch]


def _cases() -> Iterator[tuple[str, int]]:
    for size in RECORD_BYTES:
        for partitions in PARTITIONS:
            yield size, partitions


def _measure(
    server: servers.Server, size: str, partitions: int, megabytes: int
) -> Iterator[tuple[str, tuple[float, float]]]:
    """A topic filled, read twice and deleted: what was done, MB/s and CPU seconds per GB."""
    arguments = ["--record-bytes", str(RECORD_BYTES[size]), "--partitions", str(partitions)]
    arguments += ["--megabytes", str(megabytes), "--topic", "load"]
    try:
        yield "produce", _raw("produce", server, arguments)
        yield "hot", _raw("fetch", server, arguments)
        _drop_from_cache(server)
        yield "cold", _raw("fetch", server, arguments)
    finally:
        _load("delete", server, arguments)
        os.sync()  # nobody pays for what another has left to be written


def _raw(action: str, server: servers.Server, arguments: list[str]) -> tuple[float, float]:
    before = server.cpu_seconds
    measured = _load(action, server, arguments)
    gigabytes = measured["bytes"] / 1e9
    return 1e3 * gigabytes / measured["seconds"], (server.cpu_seconds - before) / gigabytes


def _load(action: str, server: servers.Server, arguments: list[str]) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.raw_load", action]
    done = subprocess.run(
        [*command, "--bootstrap", server.bootstrap, *arguments],
        capture_output=True,
        text=True,
        preexec_fn=bind_to_core(CLIENT_CORE),
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def _drop_from_cache(server: servers.Server) -> None:
    """What is read next comes from the disk; only what is written already can be dropped."""
    os.sync()
    for path in Path(server.directory).rglob("load-*/*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _row(figures: Figures, size: str, partitions: int, action: str) -> list[str]:
    """Rates of both, their ratio, CPU of both."""
    medians = {
        name: tuple(statistics.median(values) for values in zip(*found, strict=True))
        for name in (AIOKQ, APACHE)
        if (found := figures.get((name, size, partitions, action)))
    }
    ours = medians[AIOKQ]
    if APACHE not in medians:
        return [f"{ours[0]:,.0f}", "not measured", "", f"{ours[1]:.2f}", ""]
    theirs = medians[APACHE]
    return [
        f"{ours[0]:,.0f}",
        f"{theirs[0]:,.0f}",
        f"{ours[0] / theirs[0]:.1f}",
        f"{ours[1]:.2f}",
        f"{theirs[1]:.2f}",
    ]
