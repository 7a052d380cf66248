"""`aiokq cluster configs` and `alter`: dynamic settings of one broker, or of all (KIP-226)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.admin_command import AdminCall, admin_command
from aiokq.cli.altered_configs import altered_json
from aiokq.cli.options import Assignments, Deletions, ValidateOnly, at_most, required_changes
from aiokq.cli.output import Json
from aiokq.core import limits

if TYPE_CHECKING:
    from aiokq.admin.client import Admin
    from aiokq.admin.config_types import ConfigEntry, ConfigResource

__all__ = ["alter", "configs"]

ALL = "all brokers"

Broker = Annotated[
    int | None,
    typer.Argument(
        metavar="[BROKER]",
        min=0,
        callback=at_most(limits.INT32_MAX),
        help="Node id of a broker; without it, the settings of all brokers.",
        show_default=False,
    ),
]


@admin_command
def configs(
    call: AdminCall,
    broker: Broker = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="Show also settings that are not dynamic, and defaults."),
    ] = False,
) -> None:
    """Show the dynamic settings of a broker, or of all brokers, and where each value comes from."""
    if every and broker is None:
        raise typer.BadParameter("--all needs the node id of a broker")

    async def run(admin: Admin) -> None:
        [described] = (await admin.describe_configs(_resource(broker))).values()
        if described.error is not None:
            raise described.error
        entries = sorted(described.entries.values(), key=lambda entry: entry.name)
        shown = [entry for entry in entries if every or _is_dynamic(entry)]
        if call.out.as_json:
            found: dict[str, Json] = {
                entry.name: {
                    "value": entry.value,
                    "source": entry.source.name.lower(),
                    "read_only": entry.read_only,
                }
                for entry in shown
            }
            call.out.document({"broker": broker, "configs": found})
            return
        rows = [
            (
                entry.name,
                "(secret)" if entry.sensitive else entry.value,
                entry.source.name.lower(),
                "no" if entry.read_only else "yes",
            )
            for entry in shown
        ]
        call.out.table(("config", "value", "source", "dynamic"), rows)

    call.run(run)


def _is_dynamic(entry: ConfigEntry) -> bool:
    from aiokq.admin.config_types import ConfigSource

    return entry.source in (
        ConfigSource.DYNAMIC_BROKER_CONFIG,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    )


@admin_command
def alter(
    call: AdminCall,
    broker: Broker = None,
    assignments: Assignments = None,
    deletions: Deletions = None,
    dry_run: ValidateOnly = False,
) -> None:
    """Set or delete dynamic settings of a broker, or of all brokers, without a restart."""
    changes = required_changes(assignments, deletions)
    name = ALL if broker is None else f"broker {broker}"

    async def run(admin: Admin) -> None:
        altered = await admin.alter_configs({_resource(broker): changes}, validate_only=dry_run)
        [result] = altered.values()
        outcome = altered_json(call.out, name, result.error, dry_run=dry_run)
        if call.out.as_json:
            call.out.document({"broker": broker, **outcome})

    call.run(run)


def _resource(broker: int | None) -> ConfigResource:
    from aiokq.admin.config_types import ConfigResource, ConfigResourceType

    return ConfigResource(ConfigResourceType.BROKER, "" if broker is None else str(broker))
