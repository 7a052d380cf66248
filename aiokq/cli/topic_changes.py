"""`aiokq topics create`, `delete` and `alter`, and their output."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.admin_command import AdminCall, admin_command
from aiokq.cli.options import (
    Assignments,
    Deletions,
    IfExists,
    TopicNames,
    ValidateOnly,
    Yes,
    at_most,
    config_changes,
    named_values,
    once,
)
from aiokq.cli.output import Json, Output, error_json
from aiokq.core import limits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiokq.admin.client import Admin
    from aiokq.core.errors import KafkaError

__all__ = ["alter", "create", "delete"]


def _partitions(text: str) -> object:
    return typer.Option(
        "--partitions", "-p", min=1, callback=at_most(limits.INT32_MAX), metavar="N", help=text
    )


class _Outcomes:
    """The outcome of a command for each topic.

    Errors are printed as they occur. `print` then prints a line for each topic without an error, or
    one JSON document.
    """

    def __init__(self, out: Output, names: Iterable[str]) -> None:
        self._out = out
        self._documents: dict[str, dict[str, Json]] = {name: {"name": name} for name in names}
        self._said: dict[str, str] = {}
        self._failed: set[str] = set()

    def add(self, name: str, **members: Json) -> None:
        """Add fields to the topic's JSON object."""
        self._documents[name] |= members

    def fail(self, name: str, error: KafkaError | None, *, part: str = "") -> None:
        """Add `error` to the topic's JSON object, and print the error if there is one.

        Args:
            part: the part of the topic that failed, "partitions" or "configs"; "" for the topic.
        """
        self.add(name, **{f"{part}_error" if part else "error": error_json(error)})
        if error is not None:
            self._failed.add(name)
            self._out.problem(f"{name}: {part}" if part else name, error)

    def say(self, name: str, text: str) -> None:
        """Set the text that is printed if the topic has no errors."""
        self._said[name] = text

    def print(self) -> None:
        """Print the results in the order of the names."""
        if self._out.as_json:
            self._out.document(list(self._documents.values()))
            return
        for name in self._documents:
            if name in self._said and name not in self._failed:
                self._out.line(f"{name}: {self._said[name]}")


@admin_command
def create(
    call: AdminCall,
    names: TopicNames,
    partitions: Annotated[
        int | None, _partitions("Number of partitions. Default: the broker decides.")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            min=1,
            callback=at_most(limits.INT16_MAX),
            metavar="N",
            help="Copies of each partition. Default: the broker decides.",
        ),
    ] = None,
    assignments: Assignments = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="An existing topic is not an error.")
    ] = False,
    dry_run: ValidateOnly = False,
) -> None:
    """Create topics."""
    from aiokq.admin.topics import NewTopic

    configs = dict(named_values(assignments, "--set"))
    new = [
        NewTopic(
            name,
            -1 if partitions is None else partitions,
            -1 if replication_factor is None else replication_factor,
            configs=configs,
        )
        for name in once(names)
    ]

    async def run(admin: Admin) -> None:
        from aiokq.core.errors import TopicExists

        created = await admin.create_topics(new, validate_only=dry_run)
        outcomes = _Outcomes(call.out, created)
        for name, topic in created.items():
            there = topic.error is None
            exists = if_not_exists and isinstance(topic.error, TopicExists)
            outcomes.add(
                name,
                created=there and not dry_run,
                topic_id=str(topic.topic_id) if there else None,
                partitions=topic.num_partitions if there else None,
                replication_factor=topic.replication_factor if there else None,
            )
            outcomes.fail(name, None if exists else topic.error)
            done = "could be created" if dry_run else "created"
            outcomes.say(name, "already exists" if exists else done)
        outcomes.print()

    call.run(run)


@admin_command
def delete(
    call: AdminCall,
    names: TopicNames,
    yes: Yes = False,
    if_exists: IfExists = False,
) -> None:
    """Delete topics with all their records."""
    wanted = once(names)
    if not yes and sys.stdin.isatty():
        typer.confirm(
            f"Delete {', '.join(wanted)} with all records permanently?", abort=True, err=True
        )

    async def run(admin: Admin) -> None:
        from aiokq.core.errors import UnknownTopicOrPartition

        deleted = await admin.delete_topics(wanted)
        outcomes = _Outcomes(call.out, wanted)
        for name in wanted:
            error = deleted[name].error
            absent = if_exists and isinstance(error, UnknownTopicOrPartition)
            outcomes.add(name, deleted=error is None)
            outcomes.fail(name, None if absent else error)
            outcomes.say(name, "does not exist" if absent else "deleted")
        outcomes.print()

    call.run(run)


@admin_command
def alter(
    call: AdminCall,
    names: TopicNames,
    partitions: Annotated[
        int | None,
        _partitions(
            "New, larger number of partitions. Records with a key then go to "
            "other partitions than before."
        ),
    ] = None,
    assignments: Assignments = None,
    deletions: Deletions = None,
    dry_run: ValidateOnly = False,
) -> None:
    """Add partitions to topics, and set or delete their configs."""
    changes = config_changes(assignments, deletions)
    if partitions is None and not changes:
        raise typer.BadParameter("nothing to alter: give --partitions, --set or --delete")
    wanted = once(names)

    async def run(admin: Admin) -> None:
        outcomes = _Outcomes(call.out, wanted)
        for name in wanted:
            outcomes.add(name, partitions_error=None, configs_error=None)
            outcomes.say(name, "could be altered" if dry_run else "altered")
        if partitions is not None:
            counts = dict.fromkeys(wanted, partitions)
            grown = await admin.create_partitions(counts, validate_only=dry_run)
            for name, error in grown.errors.items():
                outcomes.fail(name, error, part="partitions")
        if changes:
            altered = await admin.alter_configs(
                dict.fromkeys(wanted, changes), validate_only=dry_run
            )
            for resource, error in altered.errors.items():
                outcomes.fail(resource.name, error, part="configs")
        outcomes.print()

    call.run(run)
