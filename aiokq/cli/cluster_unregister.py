"""`aiokq cluster unregister`: remove the registration of a broker that was stopped for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.admin_command import AdminCall, admin_command
from aiokq.cli.options import NOT_DONE, DryRun, Execute, at_most, executing
from aiokq.core import limits

if TYPE_CHECKING:
    from aiokq.admin.client import Admin

__all__ = ["unregister"]


@admin_command
def unregister(
    call: AdminCall,
    broker: Annotated[
        int,
        typer.Argument(
            metavar="BROKER",
            min=0,
            callback=at_most(limits.INT32_MAX),
            help="Node id of the broker.",
            show_default=False,
        ),
    ],
    dry_run: DryRun = False,
    execute: Execute = False,
) -> None:
    """Remove the registration of a broker that was stopped for good (KRaft).

    Partitions keep the broker among their replicas. First move these partitions to other brokers
    with `aiokq partitions reassign`. If the broker starts again, it registers itself again.
    """
    do_it = executing(dry_run=dry_run, execute=execute)

    async def run(admin: Admin) -> None:
        state = None
        if do_it:
            await admin.unregister_broker(broker)
        else:
            state = await _state(admin, broker)
        if call.out.as_json:
            call.out.document({"node_id": broker, "state": state, "executed": do_it})
        elif do_it:
            call.out.line(f"broker {broker}: unregistered")
        else:
            call.out.line(f"broker {broker}: {_SAID[state]}")
            call.out.line(NOT_DONE)

    call.run(run)


_SAID = {
    "in service": "in service: stop it before it is unregistered",
    "fenced": "registered and out of service: can be unregistered",
    None: "not in service; the cluster cannot show whether the broker is registered",
}


async def _state(admin: Admin, broker: int) -> str | None:
    """Return the state of a broker, "in service" or "fenced"; None if the state is unknown.

    The state is unknown if the broker is not in service and the cluster cannot list fenced brokers.
    The broker may then be fenced, or not registered.

    Raises:
        BrokerIdNotRegistered: the broker is not registered.
    """
    from aiokq.core.errors import BrokerIdNotRegistered, UnsupportedVersion

    lists_fenced = True
    try:
        found = await admin.describe_cluster(include_fenced_brokers=True)
    except UnsupportedVersion:
        lists_fenced = False
        found = await admin.describe_cluster()
    for each in found.brokers:
        if each.node_id == broker:
            return "fenced" if each.fenced else "in service"
    if lists_fenced:
        raise BrokerIdNotRegistered(f"broker {broker} is not registered")
    return None
