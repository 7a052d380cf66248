"""Options of several commands, and checks and conversions of their values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

__all__ = [
    "NOT_DONE",
    "AsJson",
    "Assignments",
    "BootstrapServers",
    "ConfigFile",
    "Deletions",
    "DryRun",
    "Execute",
    "GroupIds",
    "IfExists",
    "MetadataDirectory",
    "ReadCommitted",
    "TopicNames",
    "ValidateOnly",
    "Yes",
    "at_most",
    "config_changes",
    "executing",
    "named_values",
    "once",
    "required_changes",
]

BootstrapServers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        metavar="HOST:PORT,...",
        help="Addresses of brokers to find the cluster. Default: the variable "
        "KAFKA_BOOTSTRAP_SERVERS.",
        rich_help_panel="Cluster",
        show_default=False,
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Client settings as Java properties (security.protocol=SSL); they override the "
        "environment.",
        rich_help_panel="Cluster",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


TopicNames = Annotated[
    list[str], typer.Argument(metavar="TOPIC", help="Names of topics.", show_default=False)
]
GroupIds = Annotated[
    list[str], typer.Argument(metavar="GROUP", help="Group ids.", show_default=False)
]
ReadCommitted = Annotated[
    bool,
    typer.Option(
        "--read-committed", help="Treat the start of the first open transaction as the end."
    ),
]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes",
        "-y",
        help="Do not ask for confirmation. Without a terminal the command never asks.",
    ),
]
IfExists = Annotated[bool, typer.Option("--if-exists", help="Missing items are not an error.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A config, by Kafka's name; repeatable."),
]
Deletions = Annotated[
    list[str] | None,
    typer.Option("--delete", metavar="NAME", help="Reset a config to its default; repeatable."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done; the default without --execute.")
]
ValidateOnly = Annotated[
    bool, typer.Option("--dry-run", help="Let the cluster validate the change without applying it.")
]
Execute = Annotated[bool, typer.Option("--execute", help="Make the changes.")]
NOT_DONE: Final = "dry run, nothing was changed: add --execute to make the changes"

MetadataDirectory = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="The log directory with the metadata log: metadata.log.dir, or the first one in "
        "log.dirs.",
        exists=True,
        file_okay=False,
        show_default=False,
    ),
]


def at_most(maximum: float) -> Callable[[Any], Any]:
    """Return an option's callback, which refuses numbers above `maximum` or below `-maximum`.

    The option could have the maximum as `max`, but then its help would show all the digits.
    """

    def checked(given: Any) -> Any:
        for number in given if isinstance(given, list | tuple) else [given]:
            if number is not None and not abs(number) <= maximum:  # NaN is refused, too
                limit = f"at least -{maximum}" if number < 0 else f"at most {maximum}"
                raise typer.BadParameter(f"must be {limit}")
        return given

    return checked


def executing(*, dry_run: bool, execute: bool) -> bool:
    """Return True if --execute is given; without it nothing changes, as in Kafka's tools.

    Raises:
        typer.BadParameter: both options are given.
    """
    if dry_run and execute:
        raise typer.BadParameter("--dry-run and --execute exclude each other")
    return execute


def named_values(
    texts: list[str] | None, flag: str, form: str = "NAME=VALUE"
) -> list[tuple[str, str]]:
    """Return the names and values of a repeatable option; a value may be empty.

    Raises:
        typer.BadParameter: a text is not NAME=VALUE; the message shows `form`.
    """
    found: list[tuple[str, str]] = []
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{flag} needs {form}, not {text!r}")
        found.append((name, value))
    return found


def config_changes(
    assignments: list[str] | None, deletions: list[str] | None
) -> dict[str, str | None]:
    """Return a map of config name to new value from `--set` and `--delete`; None deletes a config.

    Raises:
        typer.BadParameter: a text is not NAME=VALUE, or both options name the same config.
    """
    changes: dict[str, str | None] = dict(named_values(assignments, "--set"))
    for name in deletions or []:
        if name in changes:
            raise typer.BadParameter(f"{name} is given to both --set and --delete")
        changes[name] = None
    return changes


def required_changes(
    assignments: list[str] | None, deletions: list[str] | None
) -> dict[str, str | None]:
    """Return the result of `config_changes`, which must contain at least one change.

    Raises:
        typer.BadParameter: there is no change; or see `config_changes`.
    """
    changes = config_changes(assignments, deletions)
    if not changes:
        raise typer.BadParameter("nothing to alter: give --set or --delete")
    return changes


def once(names: list[str]) -> list[str]:
    """Return each name once, in the order given."""
    return list(dict.fromkeys(names))
