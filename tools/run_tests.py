"""Runner of the test tiers, one after another, each with a time budget.

`make test` is a smoke test of every tier; `make interop` and `make torture` are the full matrices.
A tier over its budget is reported but does not fail, because time depends on the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAST = ["tests/unit", "tests/property", "tests/sim"]
PARALLEL = ["-n", "2", "--dist", "worksteal"]
"""Two processes for tests that share nothing: no sockets, and only files of their own."""
BY_FILE = ["-n", "2", "--dist", "loadfile"]
"""Two processes for tests that mostly wait; the tests of one file share its servers.

The files that take longest begin first (`tests/longest_first.py`).
"""
WAITING = ["-n", "4", "--dist", "loadfile"]
"""Four processes, for two cores, where most of the time is spent waiting for other programs."""


@dataclass(frozen=True)
class Tier:
    name: str
    budget_s: int
    paths: list[str]
    arguments: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)


SMOKE = [
    Tier("unit, property, sim (compiled)", 180, FAST, [*PARALLEL, "-m", "not torture"]),
    Tier(
        "unit, property, sim (pure)",
        120,
        FAST,
        [*PARALLEL, "-m", "not torture and not build_independent"],
        {"AIOKQ_PURE": "1"},
    ),
    Tier("fault", 240, ["tests/fault"], [*BY_FILE, "-m", "not torture"]),
    Tier(
        "interop",
        360,
        ["tests/interop", "tests/examples"],
        [*WAITING, "-m", "not torture and not full"],
    ),
    Tier("spark", 240, ["tests/spark"], [*BY_FILE, "-m", "not torture and not full"]),
]
INTEROP = [
    Tier("interop", 1800, ["tests/interop", "tests/examples"], ["-m", "not torture"]),
    Tier("spark", 1800, ["tests/spark"], ["-m", "not torture"]),
]
LONG = {"AIOKQ_HYPOTHESIS_PROFILE": "torture"}
TORTURE = [
    Tier("unit, property, sim (compiled)", 3600, FAST, [*PARALLEL, "--timeout=3600"], LONG),
    Tier(
        "unit, property, sim (pure)",
        3600,
        FAST,
        [*PARALLEL, "--timeout=3600"],
        {**LONG, "AIOKQ_PURE": "1"},
    ),
    Tier("fault", 3600, ["tests/fault"], ["--timeout=3600"], LONG),
    # Inputs, pool and spool of the gateway are compiled; processes of it run in Python, too.
    Tier(
        "fault: gateway (pure)",
        1800,
        [
            str(path.relative_to(ROOT))
            for path in sorted(ROOT.glob("tests/fault/test_gateway_*.py"))
        ],
        [*BY_FILE, "-m", "not torture and not build_independent"],
        {"AIOKQ_PURE": "1"},
    ),
    Tier("interop", 3600, ["tests/interop", "tests/examples"], ["--timeout=3600"], LONG),
    Tier("spark", 3600, ["tests/spark"], ["--timeout=3600"], LONG),
]
SUITES = {"smoke": SMOKE, "interop": INTEROP, "torture": TORTURE}


def main() -> int:
    tiers = SUITES[sys.argv[1]]
    environment = {**os.environ}
    if "CI" in environment:
        environment.setdefault("AIOKQ_REQUIRE_COMPILED", "1")
    # With it, each process of each tier would compile all tests again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    rows: list[tuple[str, str, float, float, int]] = []
    for tier in tiers:
        print(f"\n=== {tier.name} (budget {tier.budget_s} s)", flush=True)
        paths = [path for path in tier.paths if (ROOT / path).exists()]
        started, used = time.monotonic(), cpu_seconds()
        tier_environment = {**environment, **tier.environment}
        if tier.environment.get("AIOKQ_PURE"):
            tier_environment.pop("AIOKQ_REQUIRE_COMPILED", None)
        result = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *paths, *tier.arguments, *sys.argv[2:]],
            cwd=ROOT,
            env=tier_environment,
        )
        rows.append(
            (
                tier.name,
                "passed" if result.returncode == 0 else f"FAILED (exit {result.returncode})",
                time.monotonic() - started,
                cpu_seconds() - used,
                tier.budget_s,
            )
        )
    print("\ntier                                result        time      CPU   budget")
    for name, outcome, seconds, cpu, budget in rows:
        late = "  over budget" if seconds > budget else ""
        print(f"{name:<35} {outcome:<12} {seconds:5.0f} s  {cpu:5.0f} s  {budget:5} s{late}")
    return int(any(outcome != "passed" for _, outcome, *_ in rows))


def cpu_seconds() -> float:
    """Return the CPU time of the tiers so far, with all processes that have been waited for."""
    times = os.times()
    return times.children_user + times.children_system


if __name__ == "__main__":
    sys.exit(main())
