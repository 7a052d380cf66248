"""`aiokq cluster`: describe a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.admin_command import AdminCall, admin_command
from aiokq.cli.output import Output

if TYPE_CHECKING:
    from aiokq.admin.client import Admin

__all__ = ["cluster"]


@admin_command
def cluster(
    call: AdminCall,
    fenced: Annotated[
        bool,
        typer.Option(
            "--fenced", help="List brokers that are registered but out of service (Kafka 4.0)."
        ),
    ] = False,
) -> None:
    """Describe the cluster: its id, its controller and its brokers."""
    call.run(lambda admin: _describe(admin, call.out, fenced=fenced))


async def _describe(admin: Admin, out: Output, *, fenced: bool) -> None:
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
