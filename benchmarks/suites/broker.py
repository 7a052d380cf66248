"""The embedded broker beside Apache Kafka under the same raw load (`benchmarks/raw_load.py`)."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

from benchmarks import servers
from benchmarks.report import Section
from benchmarks.rounds import CLIENT_CORE, bind_to_core
from tests.peers.apache_kafka import why_absent

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


def _raw(action: str, server: servers.Server, topic: str, megabytes: int) -> tuple[float, float]:
    """MB/s and the broker's CPU seconds per GB."""
    command = [sys.executable, "-m", "benchmarks.raw_load", action, "--bootstrap"]
    command += [server.bootstrap, "--topic", topic, "--megabytes", str(megabytes)]
    before = server.cpu_seconds
    result = subprocess.run(
        command, capture_output=True, text=True, preexec_fn=bind_to_core(CLIENT_CORE)
    )
    if result.returncode:
        raise RuntimeError(result.stderr)
    measured = json.loads(result.stdout)
    gigabytes = measured["bytes"] / 1e9
    return 1e3 * gigabytes / measured["seconds"], (server.cpu_seconds - before) / gigabytes


def raw_load(megabytes: int, rounds: int, progress: Callable[[str], None]) -> list[Section]:
    """Both brokers run at once, each idle while the other is loaded."""
    section = Section(
        "broker",
        "Brokers under raw load",
        f"One node, 4 partitions, pre-encoded 128 KB batches of 1 KB records, {megabytes} MB a "
        f"round, 8 requests in flight; fetch walks batch headers. Median of {rounds} interleaved "
        "rounds; broker bound to one core, load to the other. Start: until it accepts.",
        COLUMNS,
        unit="MB/s produced",
    )
    with ExitStack() as stack:
        brokers = {"aiokq": stack.enter_context(servers.embedded())}
        reason = why_absent()
        if reason is None:
            brokers["Apache Kafka 4.2"] = stack.enter_context(servers.apache())
        else:
            section.conditions += f" Apache Kafka was not measured: {reason}."
        time.sleep(2)
        idle = {name: server.resident_bytes for name, server in brokers.items()}
        figures: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for round_number in range(rounds):
            for name, server in brokers.items():
                topic = f"raw-{round_number}"
                for action in ("produce", "fetch"):
                    progress(f"round {round_number + 1} of {rounds}: {name}, {action}")
                    measured = _raw(action, server, topic, megabytes)
                    figures.setdefault((name, action), []).append(measured)
        for name, server in brokers.items():
            medians = []
            for action in ("produce", "fetch"):
                rates, costs = zip(*figures[name, action], strict=True)
                medians += [statistics.median(rates), statistics.median(costs)]
            section.rows.append(
                [name]
                + [
                    f"{medians[0]:,.0f}",
                    f"{medians[1]:.2f}",
                    f"{medians[2]:,.0f}",
                    f"{medians[3]:.2f}",
                ]
                + [f"{1000 * server.start_seconds:,.0f} ms"]
                + [f"{idle[name] / 1e6:.0f} MB", f"{server.resident_bytes / 1e6:.0f} MB"]
            )
            section.bars.append((name, medians[0]))
    return [section]
