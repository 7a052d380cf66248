"""Owns the options that several commands have, so that they read the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["AsJson", "BootstrapServers", "ConfigFile"]

BootstrapServers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        metavar="HOST:PORT,...",
        help="Brokers to find the cluster by. Default: the variable KAFKA_BOOTSTRAP_SERVERS.",
        rich_help_panel="Cluster",
        show_default=False,
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Client settings as Java properties (security.protocol=SSL); they win over the "
        "environment.",
        rich_help_panel="Cluster",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
