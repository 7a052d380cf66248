"""Arguments and options that several commands of `aiokq transactions` share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from aiokq.cli.options import at_most, once
from aiokq.core import limits

__all__ = [
    "NodeId",
    "Partition",
    "TerminatedId",
    "Topic",
    "TransactionalId",
    "TransactionalIdOptions",
    "TransactionalIds",
    "one_id",
    "wanted_ids",
]

TransactionalIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="TRANSACTIONAL_ID", help="Transactional ids.", show_default=False),
]
TransactionalIdOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--transactional-id",
        metavar="ID",
        help="A transactional id, as kafka-transactions takes it; repeatable.",
        show_default=False,
    ),
]
TransactionalId = Annotated[
    str | None,
    typer.Argument(metavar="TRANSACTIONAL_ID", help="The transactional id.", show_default=False),
]
TerminatedId = Annotated[
    str | None,
    typer.Option(
        "--transactional-id",
        "--transactionalId",
        metavar="ID",
        help="The transactional id, as kafka-transactions takes it.",
        show_default=False,
    ),
]
Topic = Annotated[
    str, typer.Option("--topic", metavar="TOPIC", help="The topic.", show_default=False)
]
Partition = Annotated[
    int,
    typer.Option(
        "--partition",
        metavar="P",
        min=0,
        callback=at_most(limits.INT32_MAX),
        help="The partition.",
        show_default=False,
    ),
]
NodeId = Annotated[
    int | None,
    typer.Option(
        "--broker-id",
        metavar="ID",
        min=0,
        callback=at_most(limits.INT32_MAX),
        help="Broker whose replicas are queried. Default: the leaders of the partitions.",
        show_default=False,
    ),
]


def wanted_ids(arguments: Iterable[str | None], named: Iterable[str | None]) -> list[str]:
    """Return the transactional ids given as arguments and by --transactional-id, each once.

    Raises:
        typer.BadParameter: no id is given.
    """
    ids = once([each for each in (*arguments, *named) if each is not None])
    if not ids:
        raise typer.BadParameter("give a TRANSACTIONAL_ID, or --transactional-id ID")
    return ids


def one_id(argument: str | None, named: str | None) -> str:
    """Return the transactional id, given as an argument or by --transactional-id.

    Raises:
        typer.BadParameter: no id is given, or two different ids are given.
    """
    first, *others = wanted_ids((argument,), (named,))
    if others:
        raise typer.BadParameter(f"give one transactional id, not {first} and {others[0]}")
    return first
