"""Options of `aiokq gateway` and its commands: the file, the addresses and the spool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["HttpPort", "SpoolDirectory", "TcpPort", "TomlFile", "UnixDatagram", "UnixStream"]

TomlFile = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="Configuration of the gateway (TOML).", show_default=False
    ),
]
UnixDatagram = Annotated[
    str | None,
    typer.Option(
        "--unix-datagram", metavar="PATH", help="A UNIX datagram socket.", show_default=False
    ),
]
UnixStream = Annotated[
    str | None,
    typer.Option("--unix-stream", metavar="PATH", help="A UNIX stream socket.", show_default=False),
]
TcpPort = Annotated[
    int | None,
    typer.Option(
        "--tcp",
        metavar="PORT",
        min=0,
        max=65535,
        help="A TCP port on 127.0.0.1.",
        show_default=False,
    ),
]
HttpPort = Annotated[
    int | None,
    typer.Option(
        "--http",
        metavar="PORT",
        min=0,
        max=65535,
        help="The port of the HTTP interface on 127.0.0.1.",
        show_default=False,
    ),
]
SpoolDirectory = Annotated[
    str | None,
    typer.Option(
        "--spool",
        metavar="DIR",
        help="A directory that holds messages until they are delivered.",
        show_default=False,
    ),
]
