"""`aiokq produce`: each line of standard input becomes a record, and each is acknowledged.

Its options; the sending itself is sending.py's.
"""

from __future__ import annotations

from typing import Annotated

import typer

from aiokq.cli.failures import FAILED
from aiokq.cli.lines import LineFormat
from aiokq.cli.options import BootstrapServers, ConfigFile
from aiokq.cli.output import Output
from aiokq.cli.records import unescaped
from aiokq.cli.sending import Destination, Sending
from aiokq.cli.session import Session
from aiokq.cli.tally import Tally

__all__ = ["produce"]

Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False)
]
KeySeparator = Annotated[
    str | None,
    typer.Option(
        "--key-separator",
        "-K",
        metavar="TEXT",
        help="What stands before it in a line is the key ('\\t' for a tab). "
        "Default: lines have no key.",
        show_default=False,
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header", "-H", metavar="NAME=VALUE", help="A header of every record; repeatable."
    ),
]
Partition = Annotated[
    int | None,
    typer.Option(
        "--partition",
        "-p",
        min=0,
        metavar="N",
        help="Where all records go. Default: by key, or evenly without one.",
        show_default=False,
    ),
]
CompressionType = Annotated[
    str | None,
    typer.Option(
        "--compression-type",
        "-z",
        metavar="CODEC",
        help="none, gzip, snappy, lz4 or zstd. Default: none.",
        show_default=False,
    ),
]
NullMarker = Annotated[
    str | None,
    typer.Option(
        "--null-marker",
        metavar="TEXT",
        help="A key or value that is this text is null; a null value deletes its key in a "
        "compacted topic.",
        show_default=False,
    ),
]
Offsets = Annotated[
    bool, typer.Option("--offsets", help="Print topic-partition@offset of each record.")
]
AsJsonLines = Annotated[
    bool, typer.Option("--json", help="Print the summary, and offsets, as JSON lines.")
]


def produce(
    ctx: typer.Context,
    topic: Topic,
    key_separator: KeySeparator = None,
    headers: Headers = None,
    partition: Partition = None,
    compression_type: CompressionType = None,
    null_marker: NullMarker = None,
    offsets: Offsets = False,
    as_json: AsJsonLines = False,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Send each line of standard input as a record, and wait for its acknowledgement.

    Ends at the end of the input, or by Ctrl-C; what was read until then is delivered first. Lines
    that could not be delivered are named with the cause and what to do, and make the exit code 1.
    """
    from aiokq.cli.settings import client_settings, own_settings
    from aiokq.cluster.settings import ClusterSettings
    from aiokq.producer.settings import ProducerSettings

    session: Session = ctx.obj
    lines = LineFormat(
        separator=None if key_separator is None else unescaped(key_separator).encode(),
        null=None if null_marker is None else null_marker.encode(),
    )
    if lines.separator == b"":
        raise typer.BadParameter("--key-separator is empty: leave it out, or give a text")
    destination = Destination(topic, partition, [_header(text) for text in headers or []])
    settings = client_settings(
        ProducerSettings, bootstrap_servers, config, compression_type=compression_type
    )
    cluster = session.cluster(client_settings(ClusterSettings, bootstrap_servers, config))
    tally = Tally(topic, Output(as_json=as_json), show_offsets=offsets)
    try:
        session.run(Sending(cluster, own_settings(settings), destination, lines, tally)())
    finally:
        tally.print_summary()
    raise typer.Exit(FAILED if tally.failed else 0)


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"--header takes NAME=VALUE, not {text!r}")
    return name, value.encode("utf-8", "surrogateescape")
