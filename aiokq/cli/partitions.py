"""`aiokq partitions`: elect leaders, reassign replicas, list reassignments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.admin_command import AdminCall, admin_command
from aiokq.cli.help_text import examples
from aiokq.cli.output import Json, Output, error_json
from aiokq.cli.reset_options import named_partitions
from aiokq.core import limits
from aiokq.core.numbers import parse_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiokq.admin.client import Admin
    from aiokq.admin.placement import ElectionType, LeaderElected, Reassignment
    from aiokq.core.errors import KafkaError
    from aiokq.core.types import TopicPartition

__all__ = ["partitions"]

partitions = typer.Typer(
    no_args_is_help=True, help="Elect leaders, and move partitions to other brokers."
)

Named = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC[:PARTITION]",
        help="A topic, or partitions of it (orders:0,1). Default: all.",
        show_default=False,
    ),
]


@partitions.command(
    epilog=examples("aiokq partitions elect", "aiokq partitions elect orders:0 --unclean --json")
)
@admin_command
def elect(
    call: AdminCall,
    named: Named = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Let any live replica become leader of a partition without a leader; records "
            "that this replica lacks are lost.",
        ),
    ] = False,
) -> None:
    """Elect the preferred replica, or with --unclean any live replica, as leader of partitions."""
    kind: ElectionType = "unclean" if unclean else "preferred"

    async def run(admin: Admin) -> None:
        wanted = await _expanded(admin, named)
        _show(call.out, await admin.elect_leaders(wanted, election_type=kind), unclean=unclean)

    call.run(run)


def _show(out: Output, elected: Mapping[TopicPartition, LeaderElected], *, unclean: bool) -> None:
    from aiokq.core.errors import ElectionNotNeeded

    documents: list[Json] = []
    for tp, outcome in elected.items():
        as_it_was = isinstance(outcome.error, ElectionNotNeeded)
        error = None if as_it_was else outcome.error
        documents.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "elected": outcome.error is None,
                "error": error_json(error),
            }
        )
        if error is not None:
            out.problem(str(tp), error)
        elif not out.as_json:
            unchanged = "already has " + ("a leader" if unclean else "its preferred leader")
            out.line(f"{tp}: {unchanged if as_it_was else 'leader elected'}")
    if out.as_json:
        out.document(documents)


@partitions.command(
    epilog=examples(
        "aiokq partitions reassign orders:0=1,2,3 orders:1=2,3,1",
        "aiokq partitions reassign --cancel orders:0",
    )
)
@admin_command
def reassign(
    call: AdminCall,
    assignments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC:PARTITION=BROKER[,BROKER...]",
            help="New brokers of a partition, the preferred leader first.",
            show_default=False,
        ),
    ] = None,
    cancel: Annotated[
        list[str] | None,
        typer.Option(
            "--cancel", metavar="TOPIC:PARTITION", help="Cancel a reassignment; repeatable."
        ),
    ] = None,
) -> None:
    """Move partitions to other brokers; records are copied after the command ends."""
    wanted = _assigned(assignments or [], cancel or [])

    async def run(admin: Admin) -> None:
        done = await admin.alter_partition_reassignments(wanted)
        documents: list[Json] = []
        for tp, outcome in done.items():
            documents.append(_document(tp, outcome.error))
            if outcome.error is not None:
                call.out.problem(str(tp), outcome.error)
            elif not call.out.as_json:
                call.out.line(f"{tp}: {'cancelled' if wanted[tp] is None else 'reassigned'}")
        if call.out.as_json:
            call.out.document(documents)

    call.run(run)


def _document(tp: TopicPartition, error: KafkaError | None) -> Json:
    return {"topic": tp.topic, "partition": tp.partition, "error": error_json(error)}


@partitions.command(
    epilog=examples("aiokq partitions reassignments", "aiokq partitions reassignments orders")
)
@admin_command
def reassignments(call: AdminCall, named: Named = None) -> None:
    """List partitions that are being moved to other brokers."""

    async def run(admin: Admin) -> None:
        found = await admin.list_partition_reassignments(await _expanded(admin, named))
        _list(call.out, found)

    call.run(run)


def _list(out: Output, found: Mapping[TopicPartition, Reassignment]) -> None:
    if out.as_json:
        out.document(
            [
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "replicas": each.replicas,
                    "adding": each.adding_replicas,
                    "removing": each.removing_replicas,
                }
                for tp, each in sorted(found.items())
            ]
        )
        return
    out.table(
        ("topic", "partition", "replicas", "adding", "removing"),
        [
            (
                tp.topic,
                tp.partition,
                _ids(each.replicas),
                _ids(each.adding_replicas),
                _ids(each.removing_replicas),
            )
            for tp, each in sorted(found.items())
        ],
    )


def _ids(brokers: Sequence[int]) -> str | None:
    return ",".join(map(str, brokers)) or None


async def _expanded(admin: Admin, named: list[str] | None) -> list[TopicPartition] | None:
    """Return the named partitions, and all partitions of the named topics.

    Returns None, which means all partitions, if nothing is named.
    """
    from aiokq.core.types import TopicPartition

    if not named:
        return None
    wanted = named_partitions(named)
    topics = [each for each in wanted if isinstance(each, str)]
    described = await admin.describe_topics(topics, raise_errors=True) if topics else {}
    found: list[TopicPartition] = []
    for each in wanted:
        if isinstance(each, str):
            found += [TopicPartition(each, p.partition) for p in described[each].partitions]
        else:
            found.append(each)
    return list(dict.fromkeys(found))


def _assigned(assignments: list[str], cancel: list[str]) -> dict[TopicPartition, list[int] | None]:
    """Return for each partition the new replicas (broker ids); None cancels a reassignment.

    Raises:
        typer.BadParameter: nothing is given, or a text cannot be parsed.
    """
    if not assignments and not cancel:
        raise typer.BadParameter("give TOPIC:PARTITION=BROKER[,BROKER...], or --cancel")
    wanted: dict[TopicPartition, list[int] | None] = {}
    for text in assignments:
        name, equals, brokers = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text[:80]!r} is not TOPIC:PARTITION=BROKER[,BROKER...]")
        try:
            ids = [parse_number(part.strip(), limits.INT32_MAX) for part in brokers.split(",")]
        except ValueError as error:
            raise typer.BadParameter(
                f"{text[:80]!r} is not TOPIC:PARTITION=BROKER[,BROKER...]: broker {error}"
            ) from None
        for tp in _only_partitions(name):
            wanted[tp] = list(ids)
    for text in cancel:
        for tp in _only_partitions(text):
            wanted[tp] = None
    return wanted


def _only_partitions(text: str) -> list[TopicPartition]:
    found = named_partitions([text])
    if any(isinstance(each, str) for each in found):
        raise typer.BadParameter(f"{text!r} names no partition: write TOPIC:PARTITION")
    return [each for each in found if not isinstance(each, str)]
