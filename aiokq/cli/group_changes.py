"""`aiokq groups reset`, `rewind` and `delete`, and the output of `delete`."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from aiokq.cli.admin_command import AdminCall, admin_command
from aiokq.cli.model_options import Given, with_models
from aiokq.cli.options import GroupIds, IfExists, Yes, executing, once
from aiokq.cli.output import Json, Output, error_json
from aiokq.cli.reset_options import (
    ResetOptions,
    check_given,
    named_partitions,
    offsets_file,
    target,
)
from aiokq.cli.reset_output import print_resets

if TYPE_CHECKING:
    from aiokq.admin.client import Admin
    from aiokq.admin.group_reset import ResetToLike
    from aiokq.admin.group_types import GroupOffsetReset
    from aiokq.admin.results import Results
    from aiokq.core.types import TopicPartition

    Resets: TypeAlias = Results[TopicPartition, GroupOffsetReset]

__all__ = ["delete", "reset", "rewind"]

Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC[:P,...]",
        help="A topic, or some of its partitions; repeatable.",
        show_default=False,
    ),
]


@admin_command
@with_models
def reset(call: AdminCall, given: Given[ResetOptions]) -> None:
    """Set the committed offsets of a group without members.

    Give the new position by an option such as --to-earliest, and the partitions by --topic or
    --all-topics. Or give the partitions and their offsets in a file by --from-file.
    An offset outside the log is moved to the log's start or end.

    TIME is 2026-01-31T12:00:00Z (local time without the Z), or @MS for milliseconds since 1970.
    """
    _move(call, given.build(), live=False)


@admin_command
@with_models
def rewind(call: AdminCall, given: Given[ResetOptions]) -> None:
    """Set the committed offsets of a group, also while it has members.

    The members are removed, the offsets are committed, and the members join again, within about a
    heartbeat interval. Until then, the members may still process records, but their commits are
    refused.

    Give the new position by an option such as --to-earliest, and the partitions by --topic or
    --all-topics. Or give the partitions and their offsets in a file by --from-file.
    An offset outside the log is moved to the log's start or end.

    TIME is 2026-01-31T12:00:00Z (local time without the Z), or @MS for milliseconds since 1970.
    """
    _move(call, given.build(), live=True)


def _move(call: AdminCall, options: ResetOptions, *, live: bool) -> None:
    """Set the offsets of groups without members; if `live` is true, also of groups with members."""
    if bool(options.group_ids) == options.all_groups:
        raise typer.BadParameter("no groups are named: give either group ids or --all-groups")
    if options.export and call.out.as_json:
        raise typer.BadParameter("--export and --json exclude each other")
    where = target(options, call.session.now_ms())
    check_given(options, where)
    partitions = named_partitions(options.topics) or None
    files: dict[str, dict[TopicPartition, ResetToLike]] = {}
    if (path := options.from_file) is not None:
        files = {group_id: {**offsets_file(path, group_id)} for group_id in options.group_ids}
    doing = executing(dry_run=options.dry_run, execute=options.execute)

    async def move(admin: Admin, group_id: str) -> Resets:
        to = files[group_id] if where is None else where
        if live and doing:
            return await admin.rewind_group(group_id, to, partitions)
        return await admin.reset_group_offsets(
            group_id, to, partitions, dry_run=not doing, live=live
        )

    async def run(admin: Admin) -> None:
        wanted = list(options.group_ids)
        by_group = options.all_groups or len(wanted) > 1
        if options.all_groups:
            wanted = await _consumers(call.out, admin)
        if by_group:
            moved = await _each(call.out, admin, wanted, move)
        else:
            moved = {wanted[0]: await move(admin, wanted[0])}
        print_resets(call.out, moved, done=doing, by_group=by_group, export=options.export)

    call.run(run)


async def _consumers(out: Output, admin: Admin) -> list[str]:
    """Return the ids of consumer groups, without groups of Connect or of type Streams or Share."""
    found = await admin.list_groups()
    for node, error in found.errors.items():
        out.problem(f"broker {node}", error)
    return [
        group.group_id
        for group in found.values()
        if group.type not in _OTHER_TYPES and group.protocol_type in ("", "consumer")
    ]


_OTHER_TYPES: Final = ("Share", "Streams")


async def _each(
    out: Output,
    admin: Admin,
    group_ids: list[str],
    move: Callable[[Admin, str], Awaitable[Resets]],
) -> dict[str, Resets]:
    """Call `move` for each group in turn; print an error, and continue with the next group."""
    from aiokq.core.errors import KafkaError

    moved: dict[str, Resets] = {}
    for group_id in group_ids:
        try:
            moved[group_id] = await move(admin, group_id)
        except KafkaError as error:
            out.problem(group_id, error)
    return moved


@admin_command
def delete(
    call: AdminCall,
    group_ids: GroupIds,
    topics: Topics = None,
    yes: Yes = False,
    if_exists: IfExists = False,
) -> None:
    """Delete groups without members; with --topic, only committed offsets of these topics."""
    wanted = once(group_ids)
    partitions = named_partitions(topics or [])
    if not yes and sys.stdin.isatty():
        what = "offsets of groups" if partitions else "groups"
        typer.confirm(f"Delete {what} {', '.join(wanted)} permanently?", abort=True, err=True)
    if partitions:
        call.run(lambda a: _delete_offsets(a, call.out, wanted, partitions, if_exists=if_exists))
    else:
        call.run(lambda a: _delete_groups(a, call.out, wanted, if_exists=if_exists))


async def _delete_groups(
    admin: Admin, out: Output, group_ids: list[str], *, if_exists: bool
) -> None:
    from aiokq.core.errors import GroupIdNotFound

    deleted = await admin.delete_groups(group_ids)
    documents: list[Json] = []
    for group_id, result in deleted.items():
        error = result.error
        documents.append({"group": group_id, "deleted": error is None, "error": error_json(error)})
        if error is None:
            said = "deleted"
        elif if_exists and isinstance(error, GroupIdNotFound):
            said = "does not exist"
        else:
            out.problem(group_id, error)
            continue
        if not out.as_json:
            out.line(f"{group_id}: {said}")
    if out.as_json:
        out.document(documents)


async def _delete_offsets(
    admin: Admin,
    out: Output,
    group_ids: list[str],
    partitions: list[str | TopicPartition],
    *,
    if_exists: bool,
) -> None:
    from aiokq.core.errors import GroupIdNotFound, KafkaError

    listed = await admin.list_group_offsets(group_ids)
    documents: list[Json] = []
    for group_id, group in listed.items():
        chosen = _chosen(list(group.offsets), partitions)
        error = group.error
        if error is None and not chosen and not if_exists:
            error = GroupIdNotFound(f"group {group_id!r} has no offsets of these topics")
        if error is not None:
            out.problem(group_id, error)
            continue
        try:
            deleted = await admin.delete_group_offsets(group_id, chosen)
        except KafkaError as refused:  # continue: the outcomes of other groups are still printed
            out.problem(group_id, refused)
            continue
        for tp, result in deleted.items():
            documents.append(
                {
                    "group": group_id,
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "deleted": result.error is None,
                    "error": error_json(result.error),
                }
            )
            if result.error is not None:
                out.problem(f"{group_id}: {tp}", result.error)
            elif not out.as_json:
                out.line(f"{group_id}: {tp} deleted")
    if out.as_json:
        out.document(documents)


def _chosen(
    committed: list[TopicPartition], partitions: list[str | TopicPartition]
) -> list[TopicPartition]:
    """Return the partitions of `committed` that `partitions` names, directly or by their topic."""
    named = set(partitions)
    return [tp for tp in committed if tp in named or tp.topic in named]
