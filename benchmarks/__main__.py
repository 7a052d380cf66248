"""`python -m benchmarks [SUITE ...]`: runs suites, prints tables, writes benchmarks/results."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rich.console import Console

from benchmarks import report
from benchmarks.suites import broker, clients, groups, logs, micro

SUITES = ("mock", "embedded", "broker", "log", "groups", "micro")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", choices=[*SUITES, []], help="default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--megabytes", type=int, default=512, help="raw load a round")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    console = Console()
    chosen = options.suites or SUITES
    sections: list[report.Section] = []
    with console.status("measuring") as status:
        if "mock" in chosen:
            sections += clients.against_mock(options.records, options.rounds, status.update)
        if "embedded" in chosen:
            sections += clients.against_embedded(options.records, options.rounds, status.update)
        if "broker" in chosen:
            sections += broker.raw_load(options.megabytes, options.rounds, status.update)
        if "log" in chosen:
            sections += logs.logs(options.megabytes, options.rounds, status.update)
        if "groups" in chosen:
            sections += groups.groups(options.rounds, status.update)
        if "micro" in chosen:
            sections += micro.micro(status.update)
    for section in sections:
        report.show(console, section)
    when = time.strftime("%Y-%m-%d")
    report.write(sections, options.output, when)
    console.print(f"Written to {options.output}/README.md and beside it.")


if __name__ == "__main__":
    main()
