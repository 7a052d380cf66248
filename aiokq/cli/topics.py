"""`aiokq topics`: list, create, describe, delete."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from aiokq.admin.client import Admin
from aiokq.admin.settings import AdminSettings
from aiokq.cli.options import AsJson, BootstrapServers, ConfigFile, run, settings_of
from aiokq.cli.output import print_json, print_table
from aiokq.core.errors import ConfigError
from aiokq.core.types import TopicPartition

__all__ = ["app"]

app = typer.Typer(help="List, create, describe and delete topics.", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC...")]


@app.command("list")
def list_topics(
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    internal: Annotated[bool, typer.Option(help="Kafka's own topics too.")] = False,
    json: AsJson = False,
) -> None:
    """List the topics of the cluster."""

    async def main() -> None:
        async with Admin(settings=settings_of(AdminSettings, bootstrap_servers, config)) as admin:
            topics = sorted((await admin.list_topics(internal=internal)).items())
        if json:
            print_json(
                [
                    {"name": name, "topic_id": topic.topic_id, "partitions": topic.partitions}
                    for name, topic in topics
                ]
            )
        else:
            print_table(
                ("topic", "partitions", "id"),
                [(name, topic.partitions, topic.topic_id) for name, topic in topics],
            )

    run(main())


@app.command("create")
def create_topics(
    topics: Names,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    partitions: Annotated[int, typer.Option(help="-1 takes the broker's default.")] = -1,
    replication_factor: Annotated[int, typer.Option(help="-1 takes the broker's default.")] = -1,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A topic setting; may be repeated."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Create topics."""

    async def main() -> None:
        configs = _configs(assignments or [])
        async with Admin(settings=settings_of(AdminSettings, bootstrap_servers, config)) as admin:
            created = await admin.create_topics(
                topics,
                num_partitions=partitions,
                replication_factor=replication_factor,
                configs=configs or None,
                raise_errors=True,
            )
        if json:
            print_json(
                [
                    {"name": t.name, "topic_id": t.topic_id, "partitions": t.num_partitions}
                    for t in created.values()
                ]
            )
        else:
            for topic in created.values():
                typer.echo(f"created {topic.name} with {topic.num_partitions} partition(s)")

    run(main())


@app.command("describe")
def describe_topics(
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC...]")] = None,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Describe topics with their partitions; all of them if none is named."""

    async def main() -> None:
        async with Admin(settings=settings_of(AdminSettings, bootstrap_servers, config)) as admin:
            described = await admin.describe_topics(topics or None, raise_errors=True)
            wanted: dict[TopicPartition, Literal["latest"]] = {
                TopicPartition(topic.name, partition.partition): "latest"
                for topic in described.values()
                for partition in topic.partitions
            }
            ends = await admin.list_offsets(wanted)
        end_offsets = {partition: found.offset for partition, found in ends.items()}
        rows = [
            {
                "topic": topic.name,
                "partition": partition.partition,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "end_offset": end_offsets.get(TopicPartition(topic.name, partition.partition)),
            }
            for topic in described.values()
            for partition in topic.partitions
        ]
        if json:
            print_json(rows)
        else:
            columns = list(rows[0]) if rows else ["topic"]
            print_table(columns, [list(row.values()) for row in rows])

    run(main())


@app.command("delete")
def delete_topics(
    topics: Names,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: AsJson = False,
) -> None:
    """Delete topics with all their records."""
    if not yes and not json:
        typer.confirm(f"Delete {', '.join(topics)} and all records in them?", abort=True)

    async def main() -> None:
        async with Admin(settings=settings_of(AdminSettings, bootstrap_servers, config)) as admin:
            await admin.delete_topics(topics, raise_errors=True)
        if json:
            print_json([{"name": name} for name in topics])
        else:
            for name in topics:
                typer.echo(f"deleted {name}")

    run(main())


def _configs(assignments: list[str]) -> dict[str, str | int | float | bool | None]:
    configs: dict[str, str | int | float | bool | None] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"--set takes NAME=VALUE, not {assignment!r}")
        configs[name] = value
    return configs
