"""Interleaved rounds: every contender runs in a process of its own, one after another, again.

Rates on a shared machine move by a third from minute to minute. So contenders take turns, the
median over the rounds counts, and only ratios inside one run are to be quoted.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

# Clients are bound to one core and servers to another, so that neither takes the other's time.
CLIENT_CORE = 0
SERVER_CORE = 1


@dataclass(frozen=True, slots=True)
class Contender:
    """One line of a table: a module of benchmarks.contenders and its arguments."""

    label: str
    module: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Result:
    """What the rounds of one contender gave. Rates in records per second of wall time."""

    label: str
    rates: list[float] = field(default_factory=list)
    cpu_ns: list[float] = field(default_factory=list)
    failure: str | None = None

    @property
    def rate(self) -> float:
        return statistics.median(self.rates) if self.rates else float("nan")

    @property
    def cpu_ns_per_record(self) -> float:
        return statistics.median(self.cpu_ns) if self.cpu_ns else float("nan")

    @property
    def spread(self) -> float:
        """Half the distance between the fastest and the slowest round, over the median."""
        return (max(self.rates) - min(self.rates)) / 2 / self.rate if self.rates else float("nan")


def bind_to_core(core: int) -> Callable[[], None] | None:
    """A `preexec_fn` that binds a process to one core, where the system can."""
    if not hasattr(os, "sched_setaffinity") or core >= (os.cpu_count() or 1):
        return None
    return lambda: os.sched_setaffinity(0, {core})


def run_once(contender: Contender, bootstrap: str, *, timeout: float) -> dict[str, float]:
    """Runs a contender once. It prints one JSON object: records, seconds, cpu_seconds."""
    module = f"benchmarks.contenders.{contender.module}"
    command = [sys.executable, "-m", module, "--bootstrap", bootstrap, *contender.arguments]
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout,
        preexec_fn=bind_to_core(CLIENT_CORE),
        env={**os.environ, **dict(contender.environment)},
    )
    if result.returncode:
        raise RuntimeError(result.stderr.strip().splitlines()[-1] if result.stderr else "failed")
    measured: dict[str, float] = json.loads(result.stdout.strip().splitlines()[-1])
    return measured


def run_rounds(
    contenders: Sequence[Contender],
    bootstrap: str,
    rounds: int,
    *,
    timeout: float = 180.0,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Result]:
    """Every contender once per round, in an order that turns by one each round."""
    results = {contender.label: Result(contender.label) for contender in contenders}
    for round_number in range(rounds):
        turn = round_number % len(contenders)
        for contender in [*contenders[turn:], *contenders[:turn]]:
            result = results[contender.label]
            if result.failure:
                continue
            progress(f"round {round_number + 1} of {rounds}: {contender.label}")
            try:
                measured = run_once(contender, bootstrap, timeout=timeout)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                result.failure = str(error)
                continue
            result.rates.append(measured["records"] / measured["seconds"])
            result.cpu_ns.append(1e9 * measured["cpu_seconds"] / measured["records"])
    return list(results.values())
