"""The printed report of the Spark job: a table of delays, and the counts of the steps."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from .delays import Delay
from .findings import Findings, Results, busiest, mean

ROUTES = 10
HOURS = (6, 8, 10, 12, 14, 16, 18, 20)


def delays_table(routes: Results) -> Table:
    """Return the mean delays of the busiest routes by hour."""
    table = Table(
        title="Mean arrival delay in minutes, by the hour of the scheduled departure",
        title_justify="left",
    )
    table.add_column("route")
    for hour in HOURS:
        table.add_column(f"{hour}:00", justify="right")
    for name in busiest(routes)[:ROUTES]:
        cells = []
        for hour in HOURS:
            delay = routes.get(f"{name}/{hour}")
            cells.append("-" if delay is None or not delay["arrived"] else f"{round(mean(delay))}")
        table.add_row(name.replace("-", " - "), *cells)
    return table


def report(
    console: Console, findings: Findings, acknowledged: int, by_route: Mapping[str, Delay]
) -> bool:
    """Print the tables; return whether all counts are as expected."""
    console.print(delays_table(findings.routes_topic))
    checks = findings.checks(acknowledged, by_route)
    table = Table(title="Counts of the Spark job", title_justify="left", show_header=False)
    table.add_column("what")
    table.add_column("count", justify="right")
    for what, found, wanted in checks:
        shown = f"{found:,}"
        table.add_row(what, shown if found == wanted else f"[bold red]{shown}, not {wanted:,}[/]")
    console.print(table)
    loaded, streamed = findings.loaded, findings.streamed
    console.print(
        f"{loaded.rows:,} rows in {loaded.files} Parquet files ({loaded.size / 1e6:.1f} MB); "
        f"{len(findings.routes_topic):,} routes and hours, {findings.routes_records:,} records; "
        f"{len(findings.days_topic):,} days of airports, written {findings.days_records:,} times "
        f"by {streamed.batches} micro-batches, {streamed.forgotten:,} of them over by the "
        "watermark: the last record of a key counts."
    )
    exact = all(found == wanted for _, found, wanted in checks)
    console.print(
        "[bold green]The same flights in the log, in the files, in the batch and in the stream.[/]"
        if exact
        else "[bold red]The counts of the Spark job differ.[/]"
    )
    return exact
