"""`aiokq spark`: the command group; each command has a module of its own."""

from __future__ import annotations

import typer

from aiokq.cli.help_text import examples
from aiokq.cli.spark_export import export
from aiokq.cli.spark_load import load

__all__ = ["spark"]

spark = typer.Typer(
    no_args_is_help=True,
    help="Load topics to files by Spark, exactly once, and export files to topics. Loading needs "
    "`pip install 'aiokq\\[spark]'` and "
    "Java 17 or newer.",
)
spark.command(
    epilog=examples(
        "aiokq spark load orders --to lake/orders --available-now",
        "aiokq spark load --topics-pattern 'orders.*' --to lake/orders --partition-by topic,date",
        "aiokq spark load orders --to lake/orders --value-format json --value-schema "
        "'id bigint, amount double'",
        "aiokq spark load orders --to delta://lake/orders --every 60",
        "aiokq spark load --to lake/orders --verify",
    )
)(load)
spark.command(
    epilog=examples(
        "aiokq spark export lake/orders --to orders-copy --create --partitions 6 --verify",
        "aiokq spark export flights.parquet --to flights --key-column tailnum "
        "--resume flights.done",
        "aiokq spark export lake/orders --to orders --transactional --resume orders.done",
        "aiokq spark export 'lake/**/*.parquet' --to amounts --key-column id --value-columns "
        "id,amount -z zstd",
    )
)(export)
