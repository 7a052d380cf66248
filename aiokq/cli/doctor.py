"""`aiokq doctor`: check this installation and the connection to a cluster, one line per check."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer

from aiokq.cli.error_text import FAILED, one_line
from aiokq.cli.options import AsJson, BootstrapServers, ConfigFile
from aiokq.cli.output import Output
from aiokq.cli.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokq.cli.installation_checks import Check
    from aiokq.cluster.settings import ClusterSettings

__all__ = ["doctor"]

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(
    ctx: typer.Context,
    as_json: AsJson = False,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Check this installation and, with bootstrap servers, the connection to a cluster.

    Each check prints a line with ok, warn (it works, with a drawback) or fail (exit code 1), and
    what to do.
    """
    from aiokq.cli.installation_checks import Status, installation

    session: Session = ctx.obj
    out = Output(as_json=as_json)
    checks: list[Check] = []

    def report(check: Check) -> None:
        checks.append(check)
        if not as_json:
            out.line(_line(check, coloured=out.terminal))
            out.flush()

    for check in installation():
        report(check)
    if bootstrap_servers is not None or config is not None or _in_environment():
        from aiokq.cli.settings import client_settings
        from aiokq.cluster.settings import ClusterSettings

        settings = client_settings(ClusterSettings, bootstrap_servers, config)
        session.run(_cluster(session, settings, report))
    if as_json:
        out.document(
            [
                {"check": c.name, "status": c.status.value, "detail": c.detail, "fix": c.fix}
                for c in checks
            ]
        )
    raise typer.Exit(FAILED if any(c.status is Status.FAIL for c in checks) else 0)


async def _cluster(
    session: Session, settings: ClusterSettings, report: Callable[[Check], None]
) -> None:
    from aiokq.cli.cluster_checks import ClusterChecks

    reach = ClusterChecks(session, settings)
    try:
        async for check in reach.checks():
            report(check)
    finally:
        reach.close()


def _in_environment() -> bool:
    return bool(os.environ.get("KAFKA_BOOTSTRAP_SERVERS"))


def _line(check: Check, *, coloured: bool) -> str:
    status = f"{check.status.value:<4}"
    if coloured:
        status = typer.style(status, fg=COLOURS[check.status.value])
    fix = f" -> {check.fix}" if check.fix else ""
    return f"{status}  {check.name}: {one_line(check.detail)}{fix}"
