"""Interleaved rounds: in each round every contender runs once, in a process of its own.

Rates on a shared machine vary by a third from minute to minute. Contenders therefore take turns,
the median over the rounds counts, and only ratios inside one run should be quoted.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

# Clients are bound to one core and servers to another, so that they do not compete for CPU time.
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
    """The results of one contender's rounds; rates are in records per second of wall time."""

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
        """Half the difference of the fastest and the slowest round, divided by the median."""
        return (max(self.rates) - min(self.rates)) / 2 / self.rate if self.rates else float("nan")


def bind_to_core(core: int) -> Callable[[], None] | None:
    """Return a `preexec_fn` that binds a process to one core; None if the system cannot."""
    if not hasattr(os, "sched_setaffinity") or core >= (os.cpu_count() or 1):
        return None
    return lambda: os.sched_setaffinity(0, {core})


def run_once(contender: Contender, bootstrap: str, *, timeout: float) -> dict[str, float]:
    """Run a contender once. It prints one JSON object: records, seconds, cpu_seconds."""
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
    """Run every contender once per round; the order rotates by one each round."""
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
