"""Options that several `aiokq transactions` commands share."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["NodeId", "Partition", "Topic", "TransactionalIds"]

TransactionalIds = Annotated[
    list[str],
    typer.Argument(metavar="TRANSACTIONAL_ID", help="Transactional ids.", show_default=False),
]
Topic = Annotated[
    str, typer.Option("--topic", metavar="TOPIC", help="The topic.", show_default=False)
]
Partition = Annotated[
    int,
    typer.Option("--partition", metavar="P", min=0, help="The partition.", show_default=False),
]
NodeId = Annotated[
    int | None,
    typer.Option(
        "--broker-id",
        metavar="ID",
        min=0,
        help="Ask this broker about its replicas; default: the leaders.",
        show_default=False,
    ),
]
