"""`aiokq topics`: list, describe, create, delete and alter topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.examples import examples
from aiokq.cli.options import AsJson, BootstrapServers, ConfigFile
from aiokq.cli.output import Json, Output, error_json
from aiokq.cli.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokq.admin.client import Admin
    from aiokq.admin.config_types import ConfigDescription
    from aiokq.admin.topics import TopicDescription

__all__ = ["topics"]

topics = typer.Typer(no_args_is_help=True, help="List, describe, create, delete and alter topics.")

Names = Annotated[
    list[str], typer.Argument(metavar="TOPIC", help="Names of topics.", show_default=False)
]


# -- list


@topics.command(
    "list", epilog=examples("aiokq topics list -b 127.0.0.1:9092", "aiokq topics list --json")
)
def list_topics(
    ctx: typer.Context,
    internal: Annotated[
        bool, typer.Option("--internal", help="List Kafka's own as well (__consumer_offsets).")
    ] = False,
    as_json: AsJson = False,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """List the topics of a cluster with the number of their partitions."""
    session: Session = ctx.obj
    out = Output(as_json=as_json)
    session.run(_list(session.admin(bootstrap_servers, config), out, internal=internal))


async def _list(admin: Admin, out: Output, *, internal: bool) -> None:
    async with admin:
        found = await admin.list_topics(internal=internal)
    if out.as_json:
        out.document(
            [
                {
                    "name": topic.name,
                    "topic_id": str(topic.topic_id),
                    "partitions": topic.partitions,
                    "internal": topic.internal,
                }
                for topic in found.values()
            ]
        )
    else:
        out.table(("topic", "partitions"), [(t.name, t.partitions) for t in found.values()])


# -- describe


@topics.command(
    epilog=examples("aiokq topics describe orders", "aiokq topics describe orders --all-configs")
)
def describe(
    ctx: typer.Context,
    names: Names,
    all_configs: Annotated[
        bool, typer.Option("--all-configs", help="Show the configs that have their defaults too.")
    ] = False,
    as_json: AsJson = False,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Show topics with their partitions, replicas and the configs that were set."""
    session: Session = ctx.obj
    out = Output(as_json=as_json)
    admin = session.admin(bootstrap_servers, config)
    session.run(_describe(admin, out, _once(names), all_configs=all_configs))
    raise typer.Exit(out.exit_code)


async def _describe(admin: Admin, out: Output, names: list[str], *, all_configs: bool) -> None:
    async with admin:
        described = await admin.describe_topics(names)
        there = [name for name in names if described[name].error is None]
        configs = {}
        if there:
            found = await admin.describe_configs(there)
            configs = {resource.name: each for resource, each in found.items()}
    documents: list[Json] = []
    for name in names:
        topic, of_topic = described[name], configs.get(name)
        error = topic.error or (None if of_topic is None else of_topic.error)
        if error is not None:
            out.problem(name, error)
        shown = {} if of_topic is None else _configs(of_topic, everything=all_configs)
        if out.as_json:
            documents.append(_topic_json(topic, shown))
        elif topic.error is None:
            _print_topic(out, topic, shown)
    if out.as_json:
        out.document(documents)


def _configs(description: ConfigDescription, *, everything: bool) -> dict[str, str | None]:
    from aiokq.admin.config_types import ConfigSource

    return {
        name: "(hidden)" if entry.sensitive else entry.value
        for name, entry in sorted(description.entries.items())
        if everything or entry.source is ConfigSource.TOPIC_CONFIG
    }


def _topic_json(topic: TopicDescription, configs: Mapping[str, str | None]) -> Json:
    return {
        "name": topic.name,
        "topic_id": str(topic.topic_id),
        "internal": topic.internal,
        "partitions": [
            {
                "partition": p.partition,
                "leader": p.leader,
                "leader_epoch": p.leader_epoch,
                "replicas": p.replicas,
                "isr": p.isr,
                "offline": p.offline,
            }
            for p in topic.partitions
        ],
        "configs": dict(configs),
        "error": error_json(topic.error),
    }


def _print_topic(out: Output, topic: TopicDescription, configs: Mapping[str, str | None]) -> None:
    kind = ", internal" if topic.internal else ""
    count = len(topic.partitions)
    out.line(f"{topic.name}: {count} partition{'s'[: count != 1]}, id {topic.topic_id}{kind}")
    for name, value in configs.items():
        out.line(f"  {name}={'' if value is None else value}")
    out.table(
        ("partition", "leader", "epoch", "replicas", "isr", "offline"),
        [
            (
                p.partition,
                p.leader if p.leader >= 0 else None,
                p.leader_epoch,
                *(",".join(map(str, nodes)) or None for nodes in (p.replicas, p.isr, p.offline)),
            )
            for p in topic.partitions
        ],
    )


# -- create and delete


@topics.command(
    epilog=examples(
        "aiokq topics create orders --partitions 3",
        "aiokq topics create clicks --set retention.ms=86400000 --set compression.type=zstd",
    )
)
def create(
    ctx: typer.Context,
    names: Names,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, metavar="N", help="How many. Default: the broker decides."
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            min=1,
            metavar="N",
            help="Copies of each partition. Default: the broker decides.",
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A topic config by Kafka's name; repeatable."
        ),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="A topic that exists already is no error.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the cluster check it; create nothing.")
    ] = False,
    as_json: AsJson = False,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Create topics."""
    from aiokq.admin.topics import NewTopic

    configs = _assignments(assignments or [])
    new = [
        NewTopic(
            name,
            -1 if partitions is None else partitions,
            -1 if replication_factor is None else replication_factor,
            configs=configs,
        )
        for name in _once(names)
    ]
    session: Session = ctx.obj
    out = Output(as_json=as_json)

    async def run(admin: Admin) -> None:
        from aiokq.core.errors import TopicExists

        async with admin:
            created = await admin.create_topics(new, validate_only=dry_run)
        done = "could be created" if dry_run else "created"
        documents: list[Json] = []
        for name, topic in created.items():
            exists = if_not_exists and isinstance(topic.error, TopicExists)
            error = None if exists else topic.error
            documents.append(
                {
                    "name": name,
                    "created": topic.error is None and not dry_run,
                    "topic_id": None if topic.error else str(topic.topic_id),
                    "partitions": None if topic.error else topic.num_partitions,
                    "replication_factor": None if topic.error else topic.replication_factor,
                    "error": error_json(error),
                }
            )
            if error is not None:
                out.problem(name, error)
            elif not out.as_json:
                out.line(f"{name}: {'exists already' if exists else done}")
        if out.as_json:
            out.document(documents)

    session.run(run(session.admin(bootstrap_servers, config)))
    raise typer.Exit(out.exit_code)


@topics.command(epilog=examples("aiokq topics delete orders clicks --yes"))
def delete(
    ctx: typer.Context,
    names: Names,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask first, as is done on a terminal.")
    ] = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="A topic that does not exist is no error.")
    ] = False,
    as_json: AsJson = False,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Delete topics with all their records."""
    import sys

    session: Session = ctx.obj
    out = Output(as_json=as_json)
    admin = session.admin(bootstrap_servers, config)
    wanted = _once(names)
    if not yes and sys.stdin.isatty():
        typer.confirm(
            f"Delete {', '.join(wanted)} with all records for good?", abort=True, err=True
        )

    async def run() -> None:
        from aiokq.core.errors import UnknownTopicOrPartition

        async with admin:
            deleted = await admin.delete_topics(wanted)
        documents: list[Json] = []
        for name in wanted:
            error = deleted[name].error
            absent = if_exists and isinstance(error, UnknownTopicOrPartition)
            failure = None if absent else error
            documents.append({"name": name, "deleted": error is None, "error": error_json(failure)})
            if failure is not None:
                out.problem(name, failure)
            elif not out.as_json:
                out.line(f"{name}: {'does not exist' if absent else 'deleted'}")
        if out.as_json:
            out.document(documents)

    session.run(run())
    raise typer.Exit(out.exit_code)


# -- alter


@topics.command(
    epilog=examples(
        "aiokq topics alter orders --partitions 6",
        "aiokq topics alter orders --set retention.ms=3600000 --delete cleanup.policy",
    )
)
def alter(
    ctx: typer.Context,
    names: Names,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            min=1,
            metavar="N",
            help="Grow to so many. Keys go to other partitions from then on.",
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Set a topic config by Kafka's name; repeatable."
        ),
    ] = None,
    deletions: Annotated[
        list[str] | None,
        typer.Option(
            "--delete", metavar="NAME", help="Give a topic config its default again; repeatable."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the cluster check it; change nothing.")
    ] = False,
    as_json: AsJson = False,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Add partitions to topics, and set or delete their configs."""
    changes: dict[str, str | None] = dict(_assignments(assignments or []))
    for name in deletions or []:
        if name in changes:
            raise typer.BadParameter(f"{name} is given to both --set and --delete")
        changes[name] = None
    if partitions is None and not changes:
        raise typer.BadParameter("nothing to alter: give --partitions, --set or --delete")
    session: Session = ctx.obj
    out = Output(as_json=as_json)
    wanted = _once(names)

    async def run(admin: Admin) -> None:
        documents: dict[str, dict[str, Json]] = {
            name: {"name": name, "partitions_error": None, "configs_error": None} for name in wanted
        }
        done = "could be altered" if dry_run else "altered"
        failed: set[str] = set()
        async with admin:
            if partitions is not None:
                grown = await admin.create_partitions(
                    dict.fromkeys(wanted, partitions), validate_only=dry_run
                )
                for name, error in grown.errors.items():
                    documents[name]["partitions_error"] = error_json(error)
                    out.problem(f"{name}: partitions", error)
                    failed.add(name)
            if changes:
                altered = await admin.alter_configs(
                    dict.fromkeys(wanted, changes), validate_only=dry_run
                )
                for resource, error in altered.errors.items():
                    documents[resource.name]["configs_error"] = error_json(error)
                    out.problem(f"{resource.name}: configs", error)
                    failed.add(resource.name)
        if out.as_json:
            out.document(list(documents.values()))
            return
        for name in wanted:
            if name not in failed:
                out.line(f"{name}: {done}")

    session.run(run(session.admin(bootstrap_servers, config)))
    raise typer.Exit(out.exit_code)


def _assignments(texts: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"--set takes NAME=VALUE, not {text!r}")
        found[name] = value
    return found


def _once(names: list[str]) -> list[str]:
    return list(dict.fromkeys(names))
