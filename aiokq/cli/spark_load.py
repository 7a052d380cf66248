"""`aiokq spark load`: load topics to Parquet, Delta or Iceberg; `load_run` runs the load."""

from __future__ import annotations

import logging
from typing import Annotated, cast

import typer

from aiokq.cli.model_options import Given, with_models
from aiokq.cli.options import AsJson, BootstrapServers, ConfigFile, named_values
from aiokq.cli.output import Output
from aiokq.cli.session import Session
from aiokq.cli.start_positions import AtTime, parse_start
from aiokq.spark.loading.options import LoadOptions, PartitionColumn

__all__ = ["load"]


RUN = "Run"

Verify = Annotated[
    bool,
    typer.Option(
        "--verify",
        help="At the end, compare the rows in the files with the manifests, and the manifests with "
        "the log; exit code 1 if they differ. Without topics: verify only.",
        rich_help_panel=RUN,
    ),
]
Master = Annotated[
    str,
    typer.Option("--master", metavar="URL", help="Master URL of Spark.", rich_help_panel=RUN),
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


@with_models
def load(
    ctx: typer.Context,
    given: Given[LoadOptions],
    master: Master = "local[*]",
    conf: SparkConf = None,
    verify: Verify = False,
    as_json: AsJson = False,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Load topics to a directory of Parquet files (or a Delta or Iceberg table), exactly once.

    The load runs until Ctrl-C, which ends it after the current batch. With --available-now, the
    load runs until the records that existed at the start are loaded. The same command continues a
    load, however it ended. Every reader (pyarrow, pandas, Spark, DuckDB) finds each record in the
    files once.

    Each batch of Parquet files is a directory DIR/batch_id=N, which appears when the batch is
    complete. Each batch has a manifest of its offsets, counts and files in DIR/_aiokq_manifest.
    """
    from aiokq.cli.load_run import LoadRun, document, kafka_options, refused
    from aiokq.cli.load_verification import LoadVerification

    session: Session = ctx.obj
    out = Output(as_json=as_json)
    kafka = kafka_options(bootstrap_servers, config)
    catalog = dict(named_values(given["catalog"], "--catalog"))
    verifying = LoadVerification(
        out,
        given["to"],
        kafka,
        given["dead_letter"],
        given["checkpoint"],
        given["table"],
        catalog,
    )
    if verify and not given["topics"] and given["topics_pattern"] is None:
        found = verifying()
        if as_json:
            out.document(verifying.document(found))
        else:
            verifying.print(found)
        raise typer.Exit(out.exit_code)
    starting, timestamp_ms = _starting(given["starting"], session.now_ms())
    with refused(usage=True):
        options = given.build(
            kafka=kafka,
            catalog=catalog,
            starting=starting,
            starting_timestamp_ms=timestamp_ms,
            partition_by=_columns(given["partition_by"]),
        )
    quiet = logging.getLogger("aiokq").level >= logging.CRITICAL
    loading = LoadRun(options, out, master, dict(named_values(conf, "--conf")), quiet=quiet)
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
    """Convert `--from` to starting offsets in Spark's syntax, and a timestamp in ms or None."""
    if text.lstrip().startswith("{"):
        return text, None
    start = parse_start(text, now_ms)
    if isinstance(start, AtTime):
        return "earliest", start.timestamp_ms
    if isinstance(start, str):
        return {"beginning": "earliest", "end": "latest"}[start], None
    raise typer.BadParameter(
        f"--from {text}: each partition has its own offsets: write beginning, end, a time, or "
        'offsets as JSON: {"orders": {"0": 23}}'
    )


def _columns(text: str | None) -> tuple[PartitionColumn, ...]:
    """Return the names unchecked; LoadOptions checks them and names the option in its error."""
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    return cast("tuple[PartitionColumn, ...]", tuple(names))
