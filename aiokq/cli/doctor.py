"""`aiokq doctor`: check installation, cluster and log directories, one line per check."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.error_text import FAILED, one_line
from aiokq.cli.options import AsJson, BootstrapServers, ConfigFile
from aiokq.cli.output import Output
from aiokq.cli.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aiokq.cli.installation_checks import Check
    from aiokq.cluster.settings import ClusterSettings

__all__ = ["doctor"]

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(
    ctx: typer.Context,
    as_json: AsJson = False,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    broker_config: Annotated[
        Path | None,
        typer.Option(
            "--broker-config",
            metavar="FILE",
            help="Also check the log directories that this properties file of a node names, such "
            "as Kafka's server.properties.",
            exists=True,
            dir_okay=False,
            rich_help_panel="Node",
            show_default=False,
        ),
    ] = None,
    data_dirs: Annotated[
        list[str] | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help="Also check this log directory of a node; repeatable. The first one has the "
            "metadata log.",
            rich_help_panel="Node",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Check this installation, and also a cluster and a node's log directories if they are named.

    Each check prints a line with ok, warn (it works, with a drawback) or fail (exit code 1), and
    advice. Log directories are only read; a broker may be running.
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
    if broker_config is not None or data_dirs:
        for check in _directories(broker_config, data_dirs or []):
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
    from aiokq.cli.clouds import cloud_checks, cloud_of
    from aiokq.cli.cluster_checks import ClusterChecks
    from aiokq.cli.error_text import reason
    from aiokq.cli.installation_checks import Check, Status
    from aiokq.core.errors import ConfigError

    cloud = cloud_of(settings)
    if cloud is not None:
        for check in cloud_checks(settings, cloud):
            report(check)
    try:
        reach = ClusterChecks(session, settings, cloud)
    except ConfigError as error:  # for example, the library of a cloud is not installed
        report(Check("settings", Status.FAIL, reason(error)))
        return
    try:
        async for check in reach.checks():
            report(check)
    finally:
        reach.close()


def _directories(config: Path | None, data_dirs: list[str]) -> Iterator[Check]:
    from aiokq.cli.directory_checks import directory_checks
    from aiokq.cli.node_settings import NodeOptions, node_of
    from aiokq.core.files import OsFiles

    node = node_of(NodeOptions(config=config, data_dirs=tuple(data_dirs)), of_kafka=True)
    return directory_checks(OsFiles(), node.directories, node.metadata_directory)


def _in_environment() -> bool:
    return bool(os.environ.get("KAFKA_BOOTSTRAP_SERVERS"))


def _line(check: Check, *, coloured: bool) -> str:
    status = f"{check.status.value:<4}"
    if coloured:
        status = typer.style(status, fg=COLOURS[check.status.value])
    fix = f" -> {check.fix}" if check.fix else ""
    return f"{status}  {check.name}: {one_line(check.detail)}{fix}"
