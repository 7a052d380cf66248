"""Run rounds of fuzzing: `make torture FAULTS=fuzz HOURS=2 SEED=1`.

Rounds of two minutes, each with the next number as its seed. Each fuzzes all listeners of a broker
process, then clients of aiokq with a hostile broker; with HOURS, every tenth round, from the first
on, also fuzzes the inputs and HTTP of the gateway. The output is a line for each of these. A round
with a violation is reported with its seed and its directory, which is kept; the exit code is then
1.

- `--seconds 120 --seed 1`: one round; the same seed gives the same bytes.
- `--only sasl,secure`: only these kinds (`plain`, `tls`, `mutual`, `sasl`, `secure`, `reauth`,
  `client`, `gateway`).
- `--seed 1 --plan sasl/17`: what one connection of a round did.
- `--show sasl/17`: print the plan of a connection.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fault.fuzz.plans import KINDS, make_plan
from tests.fault.fuzz.round import Outcome, raise_limits, run_round

CLIENT, GATEWAY = "client", "gateway"
ROUND_SECONDS = 120.0


def fuzz_broker(options: argparse.Namespace, seed: int, directory: Path) -> Outcome:
    kinds = [kind for kind in KINDS if kind in options.only]
    return asyncio.run(
        run_round(
            directory,
            seed=seed,
            seconds=options.seconds or ROUND_SECONDS,
            kinds=kinds,
            connections=options.connections,
            plans=options.plan,
        )
    )


def fuzz_client(seconds: float, seed: int, least: int = 0) -> Outcome:
    """Fuzz clients in a process of their own, whose memory is measured."""
    command = [sys.executable, "-m", "tests.fault.fuzz.clients"]
    done = subprocess.run(
        [*command, "--seconds", str(seconds), "--seed", str(seed), "--least", str(least)],
        capture_output=True,
        text=True,
        timeout=seconds * 2 + 300,
    )
    if not done.stdout:
        return Outcome(seed, {}, [f"exit code {done.returncode}: {done.stderr[-3000:]}"])
    told = json.loads(done.stdout)
    return Outcome(seed, told["numbers"], told["violations"])


def fuzz_gateway(seed: int) -> Outcome:
    """Run the tests of hostile programs at a gateway process; they take four minutes."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--timeout=900", "-m", ""]
    files = ["tests/fault/test_gateway_hostile.py", "tests/fault/test_gateway_misuse.py"]
    done = subprocess.run([*command, *files], capture_output=True, text=True)
    violations = [] if done.returncode == 0 else [done.stdout[-5000:]]
    return Outcome(seed, {"gateway": done.stdout.strip().splitlines()[-1]}, violations)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fault.fuzz")
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=0.0, help="one round of this length")
    parser.add_argument("--seed", type=int, default=None, help="of the first round")
    parser.add_argument("--only", default="", help="kinds, separated by commas")
    parser.add_argument("--plan", action="append", default=[], help="KIND/NUMBER")
    parser.add_argument("--show", default="", help="KIND/NUMBER")
    parser.add_argument("--connections", type=int, default=12, help="at a time, for each kind")
    parser.add_argument("--directory", type=Path, default=None, help="for what is kept")
    options = parser.parse_args()
    known = (*KINDS, CLIENT, GATEWAY)
    options.only = options.only.split(",") if options.only else list(known)
    for name in options.only:
        if name not in known:
            parser.error(f"there is no kind {name!r}: {', '.join(known)}")
    seed = options.seed if options.seed is not None else int(time.time())
    if options.show:
        kind, _, number = options.show.partition("/")
        for step in make_plan(seed, kind, int(number)).steps:
            print(step)
        return 0
    raise_limits()
    root = options.directory or Path(tempfile.mkdtemp(prefix="aiokq-fuzz-"))
    deadline = time.monotonic() + options.hours * 3600
    print(f"seeds from {seed}, directory {root}, kinds: {', '.join(options.only)}", flush=True)
    failed: list[int] = []
    count = 0
    while True:
        directory = root / f"seed-{seed}"
        outcomes = []
        if any(kind in options.only for kind in KINDS):
            outcomes.append(fuzz_broker(options, seed, directory))
        if CLIENT in options.only and not options.plan:
            outcomes.append(fuzz_client(min(options.seconds or 30.0, 60.0), seed))
        if GATEWAY in options.only and options.hours and count % 10 == 0:
            outcomes.append(fuzz_gateway(seed))
        count += 1
        for outcome in outcomes:
            result = "ok" if not outcome.violations else "FAILED"
            print(time.strftime("%H:%M:%S"), f"seed {seed}: {result}, {outcome.numbers}")
            for violation in outcome.violations:
                print(f"  - {violation[:4000]}")
        sys.stdout.flush()
        if any(outcome.violations for outcome in outcomes):
            failed.append(seed)
            print(f"  kept in {directory}", flush=True)
        else:
            shutil.rmtree(directory, ignore_errors=True)
        if time.monotonic() >= deadline:
            break
        seed += 1
    print(f"{count} rounds, {len(failed)} with violations {failed or ''}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
