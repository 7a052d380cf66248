"""`aiokq spark load`: topics to Parquet, Delta, Iceberg. Its options; the run is loading.py's."""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, cast

import typer

from aiokq.cli.options import AsJson, BootstrapServers, ConfigFile
from aiokq.cli.output import Output
from aiokq.cli.session import Session
from aiokq.cli.starts import AtTime, parse_start

if TYPE_CHECKING:
    from aiokq.spark.loading.options import PartitionColumn

__all__ = ["load"]


class TargetFormat(StrEnum):
    """Of `--format`."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


class Values(StrEnum):
    """Of `--value-format`."""

    BYTES = "bytes"
    TEXT = "text"
    JSON = "json"
    AVRO = "avro"


class Codec(StrEnum):
    """Of `--compression`."""

    ZSTD = "zstd"
    SNAPPY = "snappy"
    GZIP = "gzip"
    LZ4 = "lz4"
    NONE = "none"


WHAT = "What to load"
VALUES = "Values"
FILES = "Files"
RUN = "Run"

Topics = Annotated[
    list[str] | None,
    typer.Argument(metavar="TOPIC", help="Names of topics.", show_default=False),
]
To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="DIR",
        help="The directory to load to; delta://DIR and iceberg://DIR say the format, too.",
        show_default=False,
    ),
]
Format = Annotated[
    TargetFormat | None,
    typer.Option("--format", help="Of the target. Default: parquet.", show_default=False),
]
TopicsPattern = Annotated[
    str | None,
    typer.Option(
        "--topics-pattern",
        metavar="REGEX",
        help="All topics whose whole name matches, later ones too; instead of names.",
        rich_help_panel=WHAT,
        show_default=False,
    ),
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        "-f",
        metavar="START",
        help="Where a new load begins: beginning, end, a time (see `aiokq consume --help`), or "
        'offsets as JSON: {"orders": {"0": 23}}. One that goes on goes on where it was.',
        rich_help_panel=WHAT,
    ),
]
Headers = Annotated[
    bool, typer.Option("--headers", help="Load headers, too.", rich_help_panel=WHAT)
]
ReadCommitted = Annotated[
    bool,
    typer.Option(
        "--read-committed",
        help="Leave out records of open and aborted transactions.",
        rich_help_panel=WHAT,
    ),
]
SkipLost = Annotated[
    bool,
    typer.Option(
        "--fail-on-data-loss/--skip-lost",
        help="Whether records that are gone before they were loaded end the load.",
        rich_help_panel=WHAT,
    ),
]
ValueFormat = Annotated[
    Values,
    typer.Option("--value-format", help="What values are.", rich_help_panel=VALUES),
]
ValueSchema = Annotated[
    str | None,
    typer.Option(
        "--value-schema",
        metavar="FILE|WORDS",
        help="Of json: a file with a JSON Schema or Spark's JSON, or words as in 'id bigint, name "
        "string'; of avro: a file with an Avro schema.",
        rich_help_panel=VALUES,
        show_default=False,
    ),
]
ConfluentPrefix = Annotated[
    bool,
    typer.Option(
        "--confluent-prefix",
        help="Values begin with the five bytes of a schema registry: skip them.",
        rich_help_panel=VALUES,
    ),
]
DeadLetter = Annotated[
    str | None,
    typer.Option(
        "--dead-letter",
        metavar="DIR",
        help="Where records go whose value cannot be decoded. Default: beside the target, "
        "DIR-dead-letter.",
        rich_help_panel=VALUES,
        show_default=False,
    ),
]
PartitionBy = Annotated[
    str | None,
    typer.Option(
        "--partition-by",
        metavar="topic,date",
        help="Directories by topic, by date (UTC), or both.",
        rich_help_panel=FILES,
        show_default=False,
    ),
]
Compression = Annotated[
    Codec, typer.Option("--compression", help="Of the files.", rich_help_panel=FILES)
]
RowsPerFile = Annotated[
    int | None,
    typer.Option("--rows-per-file", min=1, metavar="N", help="At most.", rich_help_panel=FILES),
]
Table = Annotated[
    str | None,
    typer.Option(
        "--table",
        metavar="NAMESPACE.NAME",
        help="Of Iceberg.",
        rich_help_panel=FILES,
        show_default=False,
    ),
]
Catalog = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog",
        metavar="NAME=VALUE",
        help="A property of the Iceberg catalog, name among them; repeatable. Default: SQLite in "
        "the target.",
        rich_help_panel=FILES,
        show_default=False,
    ),
]
AvailableNow = Annotated[
    bool,
    typer.Option(
        "--available-now/--follow",
        help="End when all is loaded that was there at the start, or go on until Ctrl-C.",
        rich_help_panel=RUN,
    ),
]
Every = Annotated[
    float,
    typer.Option(
        "--every",
        min=0,
        metavar="SECONDS",
        help="From one batch to the next.",
        rich_help_panel=RUN,
    ),
]
RecordsPerBatch = Annotated[
    int,
    typer.Option("--records-per-batch", min=1, metavar="N", help="About.", rich_help_panel=RUN),
]
CheckpointDirectory = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="Of the query. Default: within the target.",
        rich_help_panel=RUN,
        show_default=False,
    ),
]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify",
        help="At the end, count the rows in the files against the manifests, and these against "
        "the log; exit code 1 if they differ. Without topics: only that.",
        rich_help_panel=RUN,
    ),
]
Master = Annotated[
    str,
    typer.Option("--master", metavar="URL", help="Of Spark.", rich_help_panel=RUN),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="NAME=VALUE",
        help="A setting of Spark; repeatable.",
        rich_help_panel=RUN,
        show_default=False,
    ),
]


def load(
    ctx: typer.Context,
    to: To,
    topics: Topics = None,
    topics_pattern: TopicsPattern = None,
    start: From = "beginning",
    headers: Headers = False,
    committed: ReadCommitted = False,
    fail_on_data_loss: SkipLost = True,
    target_format: Format = None,
    value_format: ValueFormat = Values.BYTES,
    value_schema: ValueSchema = None,
    confluent_prefix: ConfluentPrefix = False,
    dead_letter: DeadLetter = None,
    partition_by: PartitionBy = None,
    compression: Compression = Codec.ZSTD,
    rows_per_file: RowsPerFile = None,
    table: Table = None,
    catalog: Catalog = None,
    available_now: AvailableNow = False,
    every: Every = 10.0,
    records_per_batch: RecordsPerBatch = 1_000_000,
    checkpoint: CheckpointDirectory = None,
    master: Master = "local[*]",
    conf: SparkConf = None,
    verify: Verify = False,
    as_json: AsJson = False,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Load topics to a directory of Parquet files (or a Delta or Iceberg table), exactly once.

    On and on until Ctrl-C, which ends it after the batch at work, or with --available-now until
    all is loaded that was there. Whatever ends it, the same command goes on where it was, and each
    record is in the files once, for whatever reads them: pyarrow, pandas, Spark, DuckDB.

    Each batch is a directory DIR/batch_id=N, which appears at once when it is whole, with a
    manifest of offsets, counts and files in DIR/_aiokq_manifest.
    """
    from aiokq.cli.loading import Loading, document, kafka_options, refused
    from aiokq.cli.verifying import Verifying
    from aiokq.spark.loading.options import LoadOptions

    session: Session = ctx.obj
    out = Output(as_json=as_json)
    kafka = kafka_options(bootstrap_servers, config)
    named = _named(catalog, "--catalog")
    verifying = Verifying(out, to, kafka, dead_letter, checkpoint, table, named)
    if verify and not topics and topics_pattern is None:
        found = verifying()
        if as_json:
            out.document(verifying.document(found))
        else:
            verifying.print(found)
        raise typer.Exit(out.exit_code)
    starting, timestamp_ms = _starting(start, session.now_ms())
    with refused(usage=True):
        options = LoadOptions(
            to=to,
            topics=tuple(dict.fromkeys(topics or ())),
            topics_pattern=topics_pattern,
            format=None if target_format is None else target_format.value,
            kafka=kafka,
            starting=starting,
            starting_timestamp_ms=timestamp_ms,
            available_now=available_now,
            every=every,
            records_per_batch=records_per_batch,
            partition_by=_columns(partition_by),
            compression=compression.value,
            rows_per_file=rows_per_file,
            value_format=value_format.value,
            value_schema=value_schema,
            confluent_prefix=confluent_prefix,
            headers=headers,
            read_committed=committed,
            dead_letter=dead_letter,
            checkpoint=checkpoint,
            fail_on_data_loss=fail_on_data_loss,
            table=table,
            catalog=named,
        )
    quiet = logging.getLogger("aiokq").level >= logging.CRITICAL
    loading = Loading(options, out, master, _named(conf, "--conf"), quiet=quiet)
    summary = loading()
    recounted = verifying() if verify else None
    if as_json:
        verification = {} if recounted is None else {"verification": verifying.document(recounted)}
        out.document(document(summary) | verification)
    else:
        loading.print(summary)
        if recounted is not None:
            verifying.print(recounted)
    loading.end()
    raise typer.Exit(out.exit_code)


def _starting(text: str, now_ms: int) -> tuple[str, int | None]:
    """`--from` as offsets in Spark's words, or as a time."""
    if text.lstrip().startswith("{"):
        return text, None
    start = parse_start(text, now_ms)
    if isinstance(start, AtTime):
        return "earliest", start.timestamp_ms
    if isinstance(start, str):
        return {"beginning": "earliest", "end": "latest"}[start], None
    raise typer.BadParameter(
        f"--from {text}: partitions have offsets of their own: write beginning, end, a time, or "
        'offsets as JSON: {"orders": {"0": 23}}'
    )


def _columns(text: str | None) -> tuple[PartitionColumn, ...]:
    """Checked by LoadOptions, which names the option."""
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    return cast("tuple[PartitionColumn, ...]", tuple(names))


def _named(pairs: list[str] | None, flag: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in pairs or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{flag} takes NAME=VALUE, not {text!r}")
        found[name] = value
    return found
