"""`aiokq cluster`: describe a cluster; change features and settings; unregister brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.cluster_configs import alter, configs
from aiokq.cli.cluster_features import features
from aiokq.cli.cluster_quorum import quorum
from aiokq.cli.cluster_unregister import unregister
from aiokq.cli.help_text import examples
from aiokq.cli.options import AsJson, BootstrapServers, ConfigFile
from aiokq.cli.output import Output
from aiokq.cli.session import Session

if TYPE_CHECKING:
    from aiokq.admin.client import Admin

__all__ = ["cluster"]

cluster = typer.Typer()


@cluster.callback(
    invoke_without_command=True,
    epilog=examples("aiokq cluster -b kafka1:9092,kafka2:9092 --json", "aiokq cluster quorum"),
)
def describe(
    ctx: typer.Context,
    fenced: Annotated[
        bool,
        typer.Option(
            "--fenced", help="List brokers that are registered but out of service (Kafka 4.0)."
        ),
    ] = False,
    as_json: AsJson = False,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Describe the cluster: its id, its controller and its brokers."""
    if ctx.invoked_subcommand is not None:
        if fenced or as_json or bootstrap_servers is not None or config is not None:
            raise typer.BadParameter(f"give options after the word {ctx.invoked_subcommand}")
        return
    session: Session = ctx.obj
    out = Output(as_json=as_json)
    session.run(_describe(session.admin(bootstrap_servers, config), out, fenced=fenced))


async def _describe(admin: Admin, out: Output, *, fenced: bool) -> None:
    async with admin:
        found = await admin.describe_cluster(include_fenced_brokers=fenced)
    if out.as_json:
        out.document(
            {
                "cluster_id": found.cluster_id,
                "controller_id": found.controller_id,
                "brokers": [
                    {
                        "node_id": broker.node_id,
                        "host": broker.host,
                        "port": broker.port,
                        "rack": broker.rack,
                        "fenced": broker.fenced,
                    }
                    for broker in found.brokers
                ],
            }
        )
        return
    controller = found.controller_id if found.controller_id >= 0 else "none"
    out.line(f"cluster {found.cluster_id or '(without an id)'}, controller {controller}")
    columns = ["broker", "host", "port", "rack"]
    rows = [[b.node_id, b.host, b.port, b.rack] for b in found.brokers]
    if fenced:
        columns.append("state")
        for row, broker in zip(rows, found.brokers, strict=True):
            row.append("fenced" if broker.fenced else "in service")
    out.table(columns, rows)


cluster.command(epilog=examples("aiokq cluster quorum", "aiokq cluster quorum --json"))(quorum)
cluster.command(
    epilog=examples(
        "aiokq cluster features",
        "aiokq cluster features --release-version 4.2",
        "aiokq cluster features --upgrade metadata.version=4.2-IV1 --execute",
        "aiokq cluster features --downgrade metadata.version=4.1-IV1 --execute",
    )
)(features)
cluster.command(
    epilog=examples("aiokq cluster unregister 3", "aiokq cluster unregister 3 --execute")
)(unregister)
cluster.command(
    epilog=examples(
        "aiokq cluster configs", "aiokq cluster configs 1", "aiokq cluster configs 1 --all --json"
    )
)(configs)
cluster.command(
    epilog=examples(
        "aiokq cluster alter --set log.retention.ms=86400000",
        "aiokq cluster alter 1 --set log.cleaner.threads=2 --dry-run",
        "aiokq cluster alter 1 --delete log.cleaner.threads",
    )
)(alter)
