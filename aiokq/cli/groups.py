"""`aiokq groups`: the command group, `list` and `describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.admin_command import AdminCall, admin_command
from aiokq.cli.group_changes import delete, reset, rewind
from aiokq.cli.group_configs import alter, configs
from aiokq.cli.group_import import import_zookeeper
from aiokq.cli.help_text import examples
from aiokq.cli.options import GroupIds, ReadCommitted, once
from aiokq.cli.output import Json, Output, error_json

if TYPE_CHECKING:
    from aiokq.admin.client import Admin
    from aiokq.admin.group_types import GroupDescription, GroupLag, MemberDescription, PartitionLag
    from aiokq.core.types import TopicPartition

__all__ = ["groups"]

groups = typer.Typer(
    no_args_is_help=True,
    help="List, describe, alter, reset, rewind and delete consumer groups; import from ZooKeeper.",
)


@groups.command(
    "list",
    epilog=examples("aiokq groups list", "aiokq groups list --state stable --type consumer --json"),
)
@admin_command
def list_groups(
    call: AdminCall,
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only groups in this state (Stable, Empty, ...); repeatable.",
        ),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="Only groups of this type (Classic, Consumer); repeatable.",
        ),
    ] = None,
) -> None:
    """List the groups of a cluster, from all of its brokers."""
    call.run(lambda admin: _list(admin, call.out, states or [], types or []))


async def _list(admin: Admin, out: Output, states: list[str], types: list[str]) -> None:
    found = await admin.list_groups(states=states, types=types)
    for node, error in found.errors.items():
        out.problem(f"broker {node}", error)
    if out.as_json:
        out.document(
            [
                {
                    "group": group.group_id,
                    "state": group.state,
                    "type": group.type,
                    "protocol_type": group.protocol_type,
                    "coordinator": group.coordinator,
                }
                for group in found.values()
            ]
        )
    else:
        out.table(
            ("group", "state", "type", "protocol type", "coordinator"),
            [
                (g.group_id, g.state, g.type, g.protocol_type or None, g.coordinator)
                for g in found.values()
            ],
        )


@groups.command(
    epilog=examples(
        "aiokq groups describe billing",
        "aiokq groups describe billing audit --members",
        "aiokq groups describe billing --json | jq '.[0].lag'",
    )
)
@admin_command
def describe(
    call: AdminCall,
    group_ids: GroupIds,
    members: Annotated[
        bool,
        typer.Option("--members", help="Show a line per member instead of a line per partition."),
    ] = False,
    committed: ReadCommitted = False,
) -> None:
    """Show the state of groups, and the owner and the lag of each partition."""
    wanted = once(group_ids)
    call.run(lambda admin: _describe(admin, call.out, wanted, members=members, committed=committed))


async def _describe(
    admin: Admin, out: Output, group_ids: list[str], *, members: bool, committed: bool
) -> None:
    found = await admin.group_lag(
        group_ids, isolation_level="read_committed" if committed else "read_uncommitted"
    )
    for group_id, lag in found.items():
        if lag.error is not None:
            out.problem(group_id, lag.error)
        for tp, partition in lag.partitions.items():
            if partition.error is not None:
                out.problem(f"{group_id}: {tp}", partition.error)
    if out.as_json:
        out.document([_group_json(lag) for lag in found.values()])
        return
    for lag in found.values():
        if lag.error is None:
            _print_group(out, lag, members=members)


def _print_group(out: Output, lag: GroupLag, *, members: bool) -> None:
    group = lag.group
    count = len(group.members)
    facts = [
        str(group.state),
        f"{count} member{'s'[: count != 1]}",
        f"lag {'unknown' if lag.total is None else lag.total}",
        f"{str(group.type).lower()} protocol",
    ]
    if group.assignor:
        facts.append(f"assignor {group.assignor}")
    if group.coordinator is not None:
        facts.append(f"coordinator {group.coordinator.node_id} ({group.coordinator.address})")
    out.line(f"{group.group_id}: {', '.join(facts)}")
    if members:
        _print_members(out, group)
    else:
        out.table(
            ("topic", "partition", "committed", "end", "lag", "member", "host", "client"),
            [_partition_row(each) for each in lag.partitions.values()],
        )


def _partition_row(partition: PartitionLag) -> tuple[object, ...]:
    member = partition.member
    return (
        *partition.topic_partition,
        None if partition.committed is None else partition.committed.offset,
        partition.log_end,
        partition.lag,
        *(
            (None, None, None)
            if member is None
            else (member.member_id, member.host, member.client_id)
        ),
    )


def _print_members(out: Output, group: GroupDescription) -> None:
    out.table(
        ("member", "instance", "host", "client", "partitions", "assignment"),
        [
            (
                member.member_id,
                member.group_instance_id,
                member.host,
                member.client_id,
                len(member.assignment),
                _ranges(member.assignment) or None,
            )
            for member in group.members
        ],
    )


def _ranges(partitions: tuple[TopicPartition, ...]) -> str:
    """Return partitions as text, grouped by topic: `orders:0,1 clicks:3`."""
    topics: dict[str, list[str]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(str(number))
    return " ".join(f"{topic}:{','.join(numbers)}" for topic, numbers in topics.items())


def _group_json(lag: GroupLag) -> Json:
    group = lag.group
    return {
        "group": group.group_id,
        "state": str(group.state),
        "type": str(group.type),
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "coordinator": None if group.coordinator is None else group.coordinator.node_id,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": [_member_json(member) for member in group.members],
        "partitions": [
            {
                "topic": partition.topic_partition.topic,
                "partition": partition.topic_partition.partition,
                "committed": None if partition.committed is None else partition.committed.offset,
                "metadata": None if partition.committed is None else partition.committed.metadata,
                "end": partition.log_end,
                "lag": partition.lag,
                "member": None if partition.member is None else partition.member.member_id,
                "error": error_json(partition.error),
            }
            for partition in lag.partitions.values()
        ],
        "lag": lag.total,
        "error": error_json(lag.error),
    }


def _member_json(member: MemberDescription) -> Json:
    return {
        "member": member.member_id,
        "instance": member.group_instance_id,
        "client": member.client_id,
        "host": member.host,
        "rack": member.rack,
        "epoch": member.member_epoch,
        "subscription": list(member.subscription),
        "subscription_regex": member.subscription_regex,
        "assignment": _partitions_json(member.assignment),
        "target_assignment": None
        if member.target_assignment is None
        else _partitions_json(member.target_assignment),
    }


def _partitions_json(partitions: tuple[TopicPartition, ...]) -> Json:
    return [{"topic": topic, "partition": number} for topic, number in partitions]


groups.command(
    epilog=examples("aiokq groups configs billing", "aiokq groups configs billing audit --json")
)(configs)
groups.command(
    epilog=examples(
        "aiokq groups alter billing --set consumer.session.timeout.ms=60000",
        "aiokq groups alter billing --delete consumer.session.timeout.ms",
    )
)(alter)

groups.command(
    "reset",
    epilog=examples(
        "aiokq groups reset billing --to-earliest --all-topics",
        "aiokq groups reset billing --topic orders:0,1 --to-offset 1000 --execute",
        "aiokq groups reset billing --topic orders --shift-by -100 --execute",
        "aiokq groups reset billing --all-topics --to-datetime 2026-01-31T12:00:00Z --execute",
        "aiokq groups reset billing --all-topics --by-duration PT1H --execute",
        "aiokq groups reset billing --all-topics --to-current --export > offsets.csv",
        "aiokq groups reset billing --from-file offsets.csv --execute",
        "aiokq groups reset --all-groups --topic orders --to-earliest --execute",
    ),
)(reset)
groups.command(
    "rewind",
    epilog=examples(
        "aiokq groups rewind billing --to-earliest --topic orders --execute",
        "aiokq groups rewind billing --all-topics --by-duration PT1H --execute",
    ),
)(rewind)
groups.command(
    epilog=examples(
        "aiokq groups delete billing audit --yes", "aiokq groups delete billing --topic orders"
    )
)(delete)
groups.command(
    "import-zookeeper",
    epilog=examples(
        "aiokq groups import-zookeeper offsets.txt",
        "aiokq groups import-zookeeper offsets.txt --group billing --execute",
        "aiokq groups import-zookeeper --zookeeper zk1:2181,zk2:2181/kafka --execute",
    ),
)(import_zookeeper)
