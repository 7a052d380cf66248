"""`aiokq produce`: send each line of standard input as a record; `line_sender` sends the lines."""

from __future__ import annotations

import typer

from aiokq.cli.error_text import FAILED
from aiokq.cli.model_options import Given, with_models
from aiokq.cli.options import BootstrapServers, ConfigFile, named_values
from aiokq.cli.output import Output
from aiokq.cli.record_options import ProduceOptions
from aiokq.cli.records import unescaped
from aiokq.cli.session import Session

__all__ = ["produce"]


@with_models
def produce(
    ctx: typer.Context,
    given: Given[ProduceOptions],
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Send the lines of standard input as records, and wait for all acknowledgements.

    At the end of the input, or at Ctrl-C, the command first delivers the lines that it has read.
    If lines could not be delivered, the exit code is 1, and at most 10 messages on stderr show the
    failed lines, the cause and advice.
    """
    from aiokq.cli.input_lines import LineFormat
    from aiokq.cli.line_results import LineResults
    from aiokq.cli.line_sender import LineSender
    from aiokq.cli.settings import client_settings, own_settings
    from aiokq.cluster.settings import ClusterSettings
    from aiokq.producer.settings import ProducerSettings

    session: Session = ctx.obj
    options = given.build(
        headers=tuple(
            (name, value.encode("utf-8", "surrogateescape"))
            for name, value in named_values(given["headers"], "--header")
        )
    )
    separator, null = options.key_separator, options.null_marker
    lines = LineFormat(
        separator=None if separator is None else unescaped(separator).encode(),
        null=None if null is None else null.encode(),
    )
    if lines.separator == b"":
        raise typer.BadParameter("--key-separator is empty: leave it out, or give a text")
    settings = client_settings(
        ProducerSettings, bootstrap_servers, config, compression_type=options.compression_type
    )
    cluster = session.cluster(client_settings(ClusterSettings, bootstrap_servers, config))
    results = LineResults(
        options.topic, Output(as_json=options.as_json), show_offsets=options.offsets
    )
    try:
        session.run(LineSender(cluster, own_settings(settings), options, lines, results)())
    finally:
        results.print_summary()
    raise typer.Exit(FAILED if results.failed else 0)
