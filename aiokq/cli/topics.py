"""`aiokq topics` and its commands `list` and `describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.admin_command import AdminCall, admin_command
from aiokq.cli.help_text import examples
from aiokq.cli.options import TopicNames, once
from aiokq.cli.output import Json, Output, error_json
from aiokq.cli.topic_changes import alter, create, delete

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokq.admin.client import Admin
    from aiokq.admin.config_types import ConfigDescription
    from aiokq.admin.topics import TopicDescription

__all__ = ["topics"]

topics = typer.Typer(no_args_is_help=True, help="List, describe, create, delete and alter topics.")


@topics.command(
    "list", epilog=examples("aiokq topics list -b 127.0.0.1:9092", "aiokq topics list --json")
)
@admin_command
def list_topics(
    call: AdminCall,
    internal: Annotated[
        bool, typer.Option("--internal", help="Also list internal topics (__consumer_offsets).")
    ] = False,
) -> None:
    """List the topics of a cluster with the number of their partitions."""
    call.run(lambda admin: _list(admin, call.out, internal=internal))


async def _list(admin: Admin, out: Output, *, internal: bool) -> None:
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


@topics.command(
    epilog=examples("aiokq topics describe orders", "aiokq topics describe orders --all-configs")
)
@admin_command
def describe(
    call: AdminCall,
    names: TopicNames,
    all_configs: Annotated[
        bool, typer.Option("--all-configs", help="Show configs with default values as well.")
    ] = False,
) -> None:
    """Show topics with their partitions, replicas and the configs that were set."""
    call.run(lambda admin: _describe(admin, call.out, once(names), all_configs=all_configs))


async def _describe(admin: Admin, out: Output, names: list[str], *, all_configs: bool) -> None:
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


topics.command(
    epilog=examples(
        "aiokq topics create orders --partitions 3",
        "aiokq topics create clicks --set retention.ms=86400000 --set compression.type=zstd",
    )
)(create)
topics.command(epilog=examples("aiokq topics delete orders clicks --yes"))(delete)
topics.command(
    epilog=examples(
        "aiokq topics alter orders --partitions 6",
        "aiokq topics alter orders --set retention.ms=3600000 --delete cleanup.policy",
    )
)(alter)
