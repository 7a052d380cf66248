"""`aiokq groups reset`, `rewind` and `delete`: what changes groups, and what became of each part.

Option names are those of Kafka's `kafka-consumer-groups.sh --reset-offsets`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from aiokq.cli.options import AsJson, BootstrapServers, ConfigFile
from aiokq.cli.output import Json, Output, error_json
from aiokq.cli.session import Session
from aiokq.cli.times import TIME_SYNTAX, parse_time
from aiokq.cli.topic_changes import once

if TYPE_CHECKING:
    from aiokq.admin.client import Admin
    from aiokq.admin.group_reset import ResetTo
    from aiokq.admin.group_types import GroupOffsetReset
    from aiokq.admin.results import Results
    from aiokq.core.types import TopicPartition

__all__ = ["Topics", "delete", "executing", "named_partitions", "reset", "rewind"]

Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC[:P,...]",
        help="A topic, or some of its partitions; repeatable.",
        show_default=False,
    ),
]

NOT_DONE: Final = "dry run, nothing was changed: add --execute to do it"


def executing(*, dry_run: bool, execute: bool) -> bool:
    """Whether to do it: only if told to, as Kafka's tool does.

    Raises:
        typer.BadParameter: told both.
    """
    if dry_run and execute:
        raise typer.BadParameter("--dry-run and --execute exclude each other")
    return execute


# -- reset, rewind


def _moving(doc: str, *, live: bool) -> Callable[..., None]:
    """The command that moves a group without members, or one at work: they have one syntax."""

    def command(
        ctx: typer.Context,
        group_id: Annotated[
            str, typer.Argument(metavar="GROUP", help="Group id.", show_default=False)
        ],
        topics: Topics = None,
        all_topics: Annotated[
            bool, typer.Option("--all-topics", help="All partitions that the group has committed.")
        ] = False,
        to_earliest: Annotated[
            bool, typer.Option("--to-earliest", help="To the beginning of each log.")
        ] = False,
        to_latest: Annotated[
            bool, typer.Option("--to-latest", help="To the end of each log.")
        ] = False,
        to_current: Annotated[
            bool,
            typer.Option("--to-current", help="To what is committed; to the end where nothing is."),
        ] = False,
        to_offset: Annotated[
            int | None, typer.Option("--to-offset", min=0, metavar="N", help="To this offset.")
        ] = None,
        shift_by: Annotated[
            int | None,
            typer.Option("--shift-by", metavar="N", help="By N offsets forward; back if negative."),
        ] = None,
        to_datetime: Annotated[
            str | None,
            typer.Option(
                "--to-datetime", metavar="TIME", help="To the first record at or after a time."
            ),
        ] = None,
        by_duration: Annotated[
            str | None,
            typer.Option(
                "--by-duration", metavar="PnDTnHnMnS", help="To the first record so long ago."
            ),
        ] = None,
        dry_run: Annotated[
            bool,
            typer.Option("--dry-run", help="Show what it would do; so it is without --execute."),
        ] = False,
        execute: Annotated[bool, typer.Option("--execute", help="Do it.")] = False,
        as_json: AsJson = False,
        bootstrap_servers: BootstrapServers = None,
        config: ConfigFile = None,
    ) -> None:
        session: Session = ctx.obj
        target = _target(
            to_earliest=to_earliest,
            to_latest=to_latest,
            to_current=to_current,
            to_offset=to_offset,
            shift_by=shift_by,
            to_datetime=to_datetime,
            by_duration=by_duration,
            now_ms=session.now_ms(),
        )
        if bool(topics) == all_topics:
            raise typer.BadParameter("for what? give either --topic or --all-topics")
        partitions = None if all_topics else named_partitions(topics or [])
        out = Output(as_json=as_json)
        doing = executing(dry_run=dry_run, execute=execute)

        async def run(admin: Admin) -> None:
            async with admin:
                if live and doing:
                    results = await admin.rewind_group(group_id, target, partitions)
                else:
                    results = await admin.reset_group_offsets(
                        group_id, target, partitions, dry_run=not doing, live=live
                    )
            _print_resets(out, group_id, results, done=doing)

        session.run(run(session.admin(bootstrap_servers, config)))
        raise typer.Exit(out.exit_code)

    command.__doc__ = doc
    return command


_WHERE: Final = """

    Say to where, and for what: --topic or --all-topics. An offset outside the log becomes the end
    nearest to it.

    TIME is 2026-01-31T12:00:00Z (local time without the Z), or @MS for milliseconds since 1970.
    """

reset = _moving("Set where a group that has no members goes on." + _WHERE, live=False)

rewind = _moving(
    """Set where a group goes on, also while its members are at work.

    They are taken out, the offsets are committed, and they join again, within about a heartbeat
    interval. What they commit of records that they still hand out meanwhile is refused."""
    + _WHERE,
    live=True,
)


def _target(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    now_ms: int,
) -> ResetTo:
    from aiokq.admin.group_reset import ResetTo

    given: list[ResetTo] = []
    if to_earliest:
        given.append(ResetTo.earliest())
    if to_latest:
        given.append(ResetTo.latest())
    if to_current:
        given.append(ResetTo.current())
    if to_offset is not None:
        given.append(ResetTo.offset(to_offset))
    if shift_by is not None:
        given.append(ResetTo.shift(shift_by))
    if to_datetime is not None:
        given.append(ResetTo.timestamp(parse_time(to_datetime, now_ms)))
    if by_duration is not None:
        if by_duration[:1] not in ("P", "p"):
            raise typer.BadParameter(f"{by_duration!r} is no duration: write PT1H, P7D ...")
        given.append(ResetTo.timestamp(parse_time(by_duration, now_ms)))
    if len(given) != 1:
        raise typer.BadParameter(
            "to where? give one of --to-earliest, --to-latest, --to-current, --to-offset, "
            f"--shift-by, --to-datetime ({TIME_SYNTAX}), --by-duration"
            + (", not several" if given else "")
        )
    return given[0]


def named_partitions(texts: list[str]) -> list[str | TopicPartition]:
    """What `--topic` names: `orders`, or `orders:0,1`.

    Raises:
        typer.BadParameter: the numbers are none.
    """
    from aiokq.core.types import TopicPartition

    named: list[str | TopicPartition] = []
    for text in texts:
        topic, colon, numbers = text.partition(":")
        if not colon:
            named.append(topic)
            continue
        for number in numbers.split(","):
            if not number.isdecimal() or int(number) >= 2**31:
                raise typer.BadParameter(f"--topic takes TOPIC or TOPIC:0,1, not {text!r}")
            named.append(TopicPartition(topic, int(number)))
    return named


def _print_resets(
    out: Output, group_id: str, results: Results[TopicPartition, GroupOffsetReset], *, done: bool
) -> None:
    for tp, error in results.errors.items():
        out.problem(f"{group_id}: {tp}", error)
    if out.as_json:
        documents: list[Json] = [
            {
                "group": group_id,
                "topic": tp.topic,
                "partition": tp.partition,
                "previous": each.previous,
                "offset": each.offset,
                "clipped": each.clipped,
                "committed": done and each.error is None,
                "error": error_json(each.error),
            }
            for tp, each in results.items()
        ]
        out.document(documents)
        return
    out.table(
        ("topic", "partition", "previous", "offset"),
        [(*tp, each.previous, each.offset) for tp, each in results.items() if each.error is None],
    )
    clipped = [str(tp) for tp, each in results.items() if each.clipped]
    if clipped:
        out.note(
            f"set to the nearest end of the log, as it has no such offset: {', '.join(clipped)}"
        )
    if not done:
        out.note(NOT_DONE)


# -- delete


def delete(
    ctx: typer.Context,
    group_ids: Annotated[
        list[str], typer.Argument(metavar="GROUP", help="Group ids.", show_default=False)
    ],
    topics: Topics = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask first, as is done on a terminal.")
    ] = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="A group that does not exist is no error.")
    ] = False,
    as_json: AsJson = False,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Delete groups that have no members; with --topic only their offsets of these topics."""
    session: Session = ctx.obj
    out = Output(as_json=as_json)
    wanted = once(group_ids)
    partitions = named_partitions(topics or [])
    admin = session.admin(bootstrap_servers, config)
    if not yes and sys.stdin.isatty():
        what = "offsets of groups" if partitions else "groups"
        typer.confirm(f"Delete {what} {', '.join(wanted)} for good?", abort=True, err=True)
    deletion = _delete_offsets if partitions else _delete_groups
    session.run(deletion(admin, out, wanted, partitions, if_exists=if_exists))
    raise typer.Exit(out.exit_code)


async def _delete_groups(
    admin: Admin,
    out: Output,
    group_ids: list[str],
    partitions: list[str | TopicPartition],
    *,
    if_exists: bool,
) -> None:
    from aiokq.core.errors import GroupIdNotFound

    async with admin:
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
    from aiokq.core.errors import GroupIdNotFound

    documents: list[Json] = []
    async with admin:
        for group_id in group_ids:
            committed = await admin.list_group_offsets(group_id, raise_errors=True)
            chosen = _chosen(list(committed[group_id].offsets), partitions)
            if not chosen and not if_exists:
                error = GroupIdNotFound(f"group {group_id!r} has no offsets of these topics")
                out.problem(group_id, error)
            deleted = await admin.delete_group_offsets(group_id, chosen)
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
    """Of what is named that which is committed."""
    named = set(partitions)
    return [tp for tp in committed if tp in named or tp.topic in named]
