"""`aiokq spark export`: write Parquet files to a topic; `export_run` runs the export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.model_options import Given, with_models
from aiokq.cli.options import AsJson, Assignments, BootstrapServers, ConfigFile, named_values
from aiokq.cli.output import Output
from aiokq.cli.session import Session
from aiokq.core.errors import ConfigError
from aiokq.spark.exporting.columns import ExportColumns

if TYPE_CHECKING:
    from aiokq import NewTopic

__all__ = ["export"]

TOPIC = "Topic"
RUN = "Run"

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...",
        help="Parquet files, directories of them (also those of `aiokq spark load`), and patterns "
        "in quotes, with * and **.",
        show_default=False,
    ),
]
To = Annotated[
    str,
    typer.Option("--to", metavar="TOPIC", help="The topic to write to.", show_default=False),
]
Create = Annotated[
    bool,
    typer.Option("--create", help="Create the topic if it does not exist.", rich_help_panel=TOPIC),
]
Partitions = Annotated[
    int | None,
    typer.Option(
        "--partitions",
        min=1,
        metavar="N",
        help="Partitions of a new topic. Default: the broker's.",
        rich_help_panel=TOPIC,
        show_default=False,
    ),
]
ReplicationFactor = Annotated[
    int | None,
    typer.Option(
        "--replication-factor",
        min=1,
        metavar="N",
        help="Copies of each partition of a new topic. Default: the broker's.",
        rich_help_panel=TOPIC,
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
        rich_help_panel=RUN,
        show_default=False,
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="FILE",
        help="Keep the progress in FILE: the same command continues an interrupted run, and writes "
        "nothing after a complete one.",
        rich_help_panel=RUN,
        show_default=False,
    ),
]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify",
        help="Read the topic back at the end: exit code 1 if a row is missing or different.",
        rich_help_panel=RUN,
    ),
]


@with_models
def export(
    ctx: typer.Context,
    sources: Sources,
    to: To,
    given: Given[ExportColumns],
    create: Create = False,
    partitions: Partitions = None,
    replication_factor: ReplicationFactor = None,
    assignments: Assignments = None,
    compression_type: CompressionType = None,
    resume: Resume = None,
    verify: Verify = False,
    as_json: AsJson = False,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Write the rows of Parquet files to a topic in their order, and wait for acknowledgements.

    Rows that are Kafka records, as `aiokq spark load` writes them, become the original records:
    key, value, headers and timestamp. The value of other rows is the JSON of all their columns.

    Delivery is at least once. A repeated run writes all rows again; with --resume it writes only
    rows that are not in the log. After a kill at most the first 10,000 rows of a run, and the rows
    in flight, may be in the log twice; up to 80,000 if the producer is not idempotent (acks=1), if
    it got another producer id after an error, or if the resumed run is also killed before it has
    sent 80,000 rows. No Java and no Spark are needed.
    """
    from aiokq.cli.export_run import ExportRun
    from aiokq.cli.settings import client_settings
    from aiokq.cluster.settings import ClusterSettings
    from aiokq.producer.settings import ProducerSettings

    if given["value"] is not None and given["fields"] is not None:
        raise typer.BadParameter("--value-column and --value-columns exclude each other")
    columns = given.build(
        fields=_listed(given["fields"]), header_columns=_headers(given["header_columns"])
    )
    new = _new_topic(to, create, partitions, replication_factor, assignments)
    session: Session = ctx.obj
    try:
        settings = client_settings(
            ProducerSettings, bootstrap_servers, config, compression_type=compression_type
        )
    except ConfigError as error:
        found, _, problem = error.message.partition("compression_type: ")
        if compression_type is None or found:
            raise
        raise typer.BadParameter(f"--compression-type: {problem}") from None
    cluster = session.cluster(client_settings(ClusterSettings, bootstrap_servers, config))
    out = Output(as_json=as_json)
    exporting = ExportRun(cluster, settings, sources, to, columns, out)
    exporting.run(session, create=new, resume=resume, verify=verify)
    raise typer.Exit(out.exit_code)


def _new_topic(
    name: str,
    create: bool,
    partitions: int | None,
    replication_factor: int | None,
    assignments: list[str] | None,
) -> NewTopic | None:
    from aiokq.admin.topics import NewTopic

    if not create:
        for option, value in (
            ("--partitions", partitions),
            ("--replication-factor", replication_factor),
            ("--set", assignments),
        ):
            if value:
                raise typer.BadParameter(
                    f"{option} applies only to a new topic: give --create as well"
                )
        return None
    return NewTopic(
        name,
        partitions or -1,
        replication_factor or -1,
        configs=dict(named_values(assignments, "--set")),
    )


def _listed(names: str | None) -> tuple[str, ...] | None:
    """Return the comma-separated names; () for none and for "*", which stand for all columns."""
    if names is None:
        return None
    found = tuple(name.strip() for name in names.split(",") if name.strip())
    return () if found == ("*",) else found


def _headers(given: list[str] | None) -> dict[str, str]:
    found = dict(named_values(given, "--header-column", "NAME=COLUMN"))
    for name, column in found.items():
        if not column:
            raise typer.BadParameter(f"--header-column needs NAME=COLUMN, not {name + '='!r}")
    return found
