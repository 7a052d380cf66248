"""`aiokq groups configs` and `alter`: show and change the configs of groups (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.cli.admin_command import AdminCall, admin_command
from aiokq.cli.altered_configs import altered_json
from aiokq.cli.options import Assignments, Deletions, GroupIds, ValidateOnly, once, required_changes
from aiokq.cli.output import Json, Output, error_json

if TYPE_CHECKING:
    from aiokq.admin.client import Admin
    from aiokq.admin.config_types import ConfigResource

__all__ = ["alter", "configs"]


@admin_command
def configs(call: AdminCall, group_ids: GroupIds) -> None:
    """Show the settings of groups, and whether each value is the group's own or the broker's."""
    wanted = once(group_ids)
    call.run(lambda admin: _describe(admin, call.out, wanted))


async def _describe(admin: Admin, out: Output, group_ids: list[str]) -> None:
    from aiokq.admin.config_types import ConfigSource

    found = await admin.describe_configs(_resources(group_ids))
    documents: list[Json] = []
    rows: list[tuple[object, ...]] = []
    for resource, described in found.items():
        document: dict[str, Json] = {"group": resource.name}
        document["error"] = error_json(described.error)
        if described.error is not None:
            out.problem(resource.name, described.error)
        entries = sorted(described.entries.values(), key=lambda entry: entry.name)
        document["configs"] = {
            entry.name: {"value": entry.value, "own": entry.source is ConfigSource.GROUP_CONFIG}
            for entry in entries
        }
        documents.append(document)
        rows += [
            (
                resource.name,
                entry.name,
                entry.value,
                "group" if entry.source is ConfigSource.GROUP_CONFIG else "broker",
            )
            for entry in entries
        ]
    if out.as_json:
        out.document(documents)
    else:
        out.table(("group", "config", "value", "set for"), rows)


@admin_command
def alter(
    call: AdminCall,
    group_ids: GroupIds,
    assignments: Assignments = None,
    deletions: Deletions = None,
    dry_run: ValidateOnly = False,
) -> None:
    """Set or delete settings of groups. A group need not exist yet."""
    changes = required_changes(assignments, deletions)
    wanted = once(group_ids)

    async def run(admin: Admin) -> None:
        altered = await admin.alter_configs(
            dict.fromkeys(_resources(wanted), changes), validate_only=dry_run
        )
        documents: list[Json] = [
            {
                "group": resource.name,
                **altered_json(call.out, resource.name, result.error, dry_run=dry_run),
            }
            for resource, result in altered.items()
        ]
        if call.out.as_json:
            call.out.document(documents)

    call.run(run)


def _resources(group_ids: list[str]) -> list[ConfigResource]:
    from aiokq.admin.config_types import ConfigResource, ConfigResourceType

    return [ConfigResource(ConfigResourceType.GROUP, group_id) for group_id in group_ids]
