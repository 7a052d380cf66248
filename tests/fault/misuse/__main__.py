"""Run rounds for some hours: `make torture FAULTS=misuse HOURS=2 SEED=1`.

Each round runs in a process of its own (`round.py`), with the next number as its seed. The output
is a summary line per round and totals at the end. A round with a violation is reported with its
seed, its plan, the end of the broker's log and its directory, which is kept; the exit code is
then 1.

To run one seed again: `python -m tests.fault.misuse --seed N --rounds 1`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fault.misuse.plan import KINDS

ROUND_WITHIN = 1200.0
"""Seconds that a round may take; a round that hangs ends itself earlier (`round.HARD_LIMIT`)."""
LOG_TAIL = 40


class Report:
    """Totals over rounds."""

    def __init__(self) -> None:
        self.rounds = 0
        self.failed: list[int] = []
        self.kinds: Counter[str] = Counter()
        self.met: Counter[str] = Counter()
        self.states: Counter[str] = Counter()
        self.sums: Counter[str] = Counter()
        self.began = time.monotonic()

    def add(self, seed: int, result: dict[str, Any] | None) -> str:
        """Add a round's result to the totals; return the round's summary line."""
        self.rounds += 1
        if result is None:
            self.failed.append(seed)
            return f"seed {seed}: FAILED, no result: it crashed or hung"
        counts: dict[str, int] = result["counts"]
        kinds = {kind: count for kind, count in counts.items() if kind in KINDS}
        self.kinds.update(kinds)
        self.met.update({what: count for what, count in counts.items() if what not in KINDS})
        self.states.update(result["states"])
        for name in ("records", "handed", "commits", "broker_starts", "seconds"):
            self.sums[name] += result[name]
        outcome = "ok"
        if result["violations"]:
            self.failed.append(seed)
            outcome = f"FAILED, {len(result['violations'])} violations"
        return (
            f"seed {seed}: {outcome}, {result['seconds']:.0f} s, {result['records']} records "
            f"({result['states']['acknowledged']} acknowledged, "
            f"{result['states']['failed']} failed, {result['states']['refused']} refused), "
            f"{result['handed']} handed over, "
            f"{result['broker_starts']} broker starts, "
            + (", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())) or "no faults")
        )

    def lines(self) -> list[str]:
        """Return the totals as lines of text."""
        minutes = (time.monotonic() - self.began) / 60
        found = [
            "",
            f"{self.rounds} rounds in {minutes:.0f} minutes, {len(self.failed)} with violations"
            + (f": seeds {', '.join(map(str, self.failed))}" if self.failed else ""),
            f"{self.sums['records']} records given to producers: "
            + ", ".join(f"{count} {state}" for state, count in self.states.items()),
            f"{self.sums['handed']} handed over to groups, {self.sums['commits']} commits seen, "
            f"{self.sums['broker_starts']} starts of brokers",
            "faults and misuse: "
            + ", ".join(f"{kind} {self.kinds[kind]}" for kind in KINDS if self.kinds[kind]),
        ]
        if self.met:
            found.append("met: " + ", ".join(f"{what} {n}" for what, n in sorted(self.met.items())))
        return found


def run_round(seed: int, directory: Path, arguments: Sequence[str] = ()) -> dict[str, Any] | None:
    """Run a round in a process of its own, with its output in `round.log`; return its result.

    None if the round left no result or hung; the log then has the stacks of its threads.
    """
    directory.mkdir(parents=True)
    command = [sys.executable, "-m", "tests.fault.misuse.round", str(seed), str(directory)]
    with (directory / "round.log").open("w") as log:
        process = subprocess.Popen(
            [*command, *arguments], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.wait(ROUND_WITHIN)
        except subprocess.TimeoutExpired:
            log.write(f"given up after {ROUND_WITHIN} s\n")
        finally:
            with_all = process.poll() is None
            process.kill()
            process.wait()
            if with_all or process.returncode not in (0, 1):
                _end_session(process.pid)
    result = directory / "result.json"
    return json.loads(result.read_text()) if result.exists() else None


def _end_session(leader: int) -> None:
    """Kill the round's process group, such as a broker that outlived its round."""
    try:
        os.killpg(leader, 9)
    except ProcessLookupError:
        pass


def report_failure(seed: int, directory: Path, result: dict[str, Any] | None) -> None:
    """Print all that is needed to investigate a failed round."""
    print(f"\n!!! seed {seed} violated an invariant; kept in {directory}", flush=True)
    print(f"!!! again: {sys.executable} -m tests.fault.misuse --seed {seed} --rounds 1")
    for violation in result["violations"] if result else []:
        print(f"  - {violation}")
    text = (directory / "round.log").read_text(errors="replace")
    print("\n".join(text.split("\n{\n")[0].splitlines()[-200:]))
    log = directory / "broker.log"
    if log.exists():
        print(f"--- the end of {log}")
        print("\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL:]))
    print("", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fault.misuse")
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=0, help="so many, instead of hours")
    parser.add_argument("--seed", type=int, default=None, help="of the first round")
    parser.add_argument("--without", default="", help="kinds left out, separated by commas")
    parser.add_argument("--only", default="", help="kinds alone, separated by commas")
    parser.add_argument("--directory", type=Path, default=None, help="for what is kept")
    options = parser.parse_args()
    for name in filter(None, f"{options.without},{options.only}".split(",")):
        if name not in KINDS:
            parser.error(f"there is no kind {name!r}: {', '.join(KINDS)}")
    seed = options.seed if options.seed is not None else int(time.time())
    root = options.directory or Path(tempfile.mkdtemp(prefix="aiokq-misuse-"))
    left_out = options.without or ("all but " + options.only if options.only else "nothing")
    print(f"seeds from {seed}, directory {root}, left out: {left_out}", flush=True)
    arguments = [f"--without={options.without}", f"--only={options.only}"]
    report = Report()
    deadline = time.monotonic() + options.hours * 3600
    try:
        while report.rounds < options.rounds if options.rounds else time.monotonic() < deadline:
            directory = root / f"seed-{seed}"
            result = run_round(seed, directory, arguments)
            print(time.strftime("%H:%M:%S"), report.add(seed, result), flush=True)
            if result is None or result["violations"]:
                report_failure(seed, directory, result)
            else:
                shutil.rmtree(directory, ignore_errors=True)
            seed += 1
    except KeyboardInterrupt:
        print("stopped")
    print("\n".join(report.lines()), flush=True)
    if options.directory is None and not report.failed:
        shutil.rmtree(root, ignore_errors=True)
    return int(bool(report.failed) or not report.rounds)


if __name__ == "__main__":
    sys.exit(main())
