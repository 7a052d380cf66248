"""`python -m benchmarks [SUITE ...]`: runs suites, prints tables, writes benchmarks/results."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rich.console import Console

from benchmarks import report
from benchmarks.suites import (
    broker,
    clients,
    gateway,
    groups,
    log_load,
    logs,
    micro,
    security,
    spark,
    tls,
    transactions,
)

SUITES = (
    "mock",
    "embedded",
    "sizes",
    "broker",
    "log",
    "groups",
    "transactions",
    "tls",
    "security",
    "gateway",
    "spark",
    "micro",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", choices=[*SUITES, []], help="default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument(
        "--megabytes",
        type=int,
        help=f"raw load a round; default: broker {broker.MEGABYTES}, log {log_load.MEGABYTES}",
    )
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    console = Console()
    chosen = options.suites or SUITES
    with console.status("measuring") as status:
        for suite in chosen:
            match suite:
                case "mock":
                    made = clients.against_mock(options.records, options.rounds, status.update)
                case "embedded":
                    made = clients.against_embedded(options.records, options.rounds, status.update)
                case "sizes":
                    made = clients.by_size(options.records, options.rounds, status.update)
                case "broker":
                    made = broker.under_raw_load(options.megabytes, options.rounds, status.update)
                case "log":
                    made = logs.logs(options.megabytes, options.rounds, status.update)
                case "groups":
                    made = groups.groups(options.rounds, status.update)
                case "transactions":
                    made = transactions.transactions(
                        options.records // 2, options.rounds, status.update
                    )
                case "tls":
                    made = tls.against_apache(options.records, options.rounds, status.update)
                case "security":
                    made = security.security(options.rounds, status.update)
                case "gateway":
                    made = gateway.gateways(options.records, options.rounds, status.update)
                case "spark":
                    made = spark.spark(2 * options.records, options.rounds, status.update)
                case _:
                    made = micro.micro(status.update)
            for section in made:
                section.suite, section.when = suite, time.strftime("%Y-%m-%d")
                report.show(console, section)
            # After each suite: a later one that fails, or Ctrl-C, does not lose the measured ones.
            report.write(made, options.output, SUITES)
    console.print(f"Written to {options.output}/README.md and beside it.")


if __name__ == "__main__":
    main()
