"""`aiokq spark export`: write Parquet files to a topic; `export_run` runs the export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.model_options import Given, with_models
from aiokq.cli.options import (
    AsJson,
    Assignments,
    BootstrapServers,
    ConfigFile,
    at_most,
    named_values,
)
from aiokq.cli.output import Output
from aiokq.cli.session import Session
from aiokq.core import limits
from aiokq.core.errors import ConfigError
from aiokq.spark.exporting.columns import ExportColumns

if TYPE_CHECKING:
    from aiokq import NewTopic
    from aiokq.spark.exporting.transactions import ExportTransactions

__all__ = ["export"]

TOPIC = "Topic"
RUN = "Run"
TRANSACTIONS = "Transactions"

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
        callback=at_most(limits.INT32_MAX),
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
        callback=at_most(limits.INT16_MAX),
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

Transactional = Annotated[
    bool,
    typer.Option(
        "--transactional",
        help="Write in transactions: readers with read_committed see the rows of a transaction "
        "together, and with --resume each row once, also after a kill.",
        rich_help_panel=TRANSACTIONS,
    ),
]
Atomic = Annotated[
    bool,
    typer.Option(
        "--atomic",
        help="Write all rows in one transaction. Refused if they may take longer than "
        "transaction.max.timeout.ms of the brokers.",
        rich_help_panel=TRANSACTIONS,
    ),
]
TransactionRows = Annotated[
    int | None,
    typer.Option(
        "--transaction-rows",
        min=1,
        callback=at_most(limits.INT64_MAX),
        metavar="N",
        help="Rows of a transaction at most. Default: 100000.",
        rich_help_panel=TRANSACTIONS,
        show_default=False,
    ),
]
TransactionBytes = Annotated[
    int | None,
    typer.Option(
        "--transaction-bytes",
        min=1,
        callback=at_most(limits.INT64_MAX),
        metavar="N",
        help="Bytes of keys and values of a transaction at most. Default: 67108864.",
        rich_help_panel=TRANSACTIONS,
        show_default=False,
    ),
]
TransactionSeconds = Annotated[
    float | None,
    typer.Option(
        "--transaction-seconds",
        min=0.001,
        callback=at_most(limits.MAX_SECONDS),
        metavar="SECONDS",
        help="Time after which a transaction is committed. Default: 10.",
        rich_help_panel=TRANSACTIONS,
        show_default=False,
    ),
]
LedgerTopic = Annotated[
    str | None,
    typer.Option(
        "--ledger-topic",
        metavar="TOPIC",
        help="The compacted topic to which transactions write the progress of --resume; created "
        "if it does not exist. Default: aiokq-spark-ledger.",
        rich_help_panel=TRANSACTIONS,
        show_default=False,
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
    transactional: Transactional = False,
    atomic: Atomic = False,
    transaction_rows: TransactionRows = None,
    transaction_bytes: TransactionBytes = None,
    transaction_seconds: TransactionSeconds = None,
    ledger_topic: LedgerTopic = None,
    as_json: AsJson = False,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Write the rows of Parquet files to a topic in their order, and wait for acknowledgements.

    Rows that are Kafka records, as `aiokq spark load` writes them, become the original records:
    key, value, headers and timestamp. The value of other rows is the JSON of all their columns.

    Delivery is at least once. A repeated run writes all rows again; with --resume it continues
    the interrupted run. After a kill, rows that were in flight may be in the log twice. The first
    10,000 rows may also be there twice if the run was killed before they were acknowledged. Up to
    80,000 rows may be there twice if the producer is not idempotent (acks=1), if it got another
    producer id after an error, or if the resumed run is also killed before it has sent 80,000 rows.
    With --transactional and --resume, readers with read_committed see each row once. No Java and no
    Spark are needed.
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
    transactions = _transactions(
        transactional,
        atomic,
        rows=transaction_rows,
        size=transaction_bytes,
        seconds=transaction_seconds,
        ledger_topic=ledger_topic,
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
    exporting.run(session, create=new, resume=resume, verify=verify, transactions=transactions)
    raise typer.Exit(out.exit_code)


def _transactions(
    transactional: bool, atomic: bool, **given: int | float | str | None
) -> ExportTransactions | None:
    """Return the options of the transactions; None to write without transactions."""
    from aiokq.spark.exporting.transactions import ExportTransactions

    values = {name: value for name, value in given.items() if value is not None}
    named = {"size": "--transaction-bytes", "ledger_topic": "--ledger-topic"}
    for name in values:
        option = named.get(name, f"--transaction-{name}")
        if not transactional and not atomic:
            raise typer.BadParameter(f"{option} applies only to transactions: give --transactional")
        if atomic and name != "ledger_topic":
            raise typer.BadParameter(f"{option} and --atomic exclude each other")
    if not transactional and not atomic:
        return None
    return ExportTransactions(atomic=atomic, **values)  # type: ignore[arg-type]


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
    """Return comma-separated names as a tuple; () for "" and "*", which mean all columns.

    Returns None for None.
    """
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
