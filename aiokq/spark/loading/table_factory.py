"""Creation of a load's table, and a check of the packages that the formats need."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from aiokq.errors import ConfigError
from aiokq.spark.loading.delta_table import DeltaTable
from aiokq.spark.loading.iceberg_table import IcebergTable
from aiokq.spark.loading.options import LoadOptions
from aiokq.spark.loading.parquet_table import ParquetTable
from aiokq.spark.loading.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["codec_of", "require_extras", "table_of"]

EXTRAS = {"delta": "deltalake", "iceberg": "pyiceberg", "avro": "fastavro"}
"""Package that each format of a target or of values needs; the extra is named like the format."""


def require_extras(options: LoadOptions) -> None:
    """Check that the packages that the formats need are installed.

    Raises:
        ConfigError: an extra is missing.
    """
    for option, format_ in (
        ("format", options.target_format),
        ("value_format", options.value_format),
    ):
        package = EXTRAS.get(format_)
        if package is not None and importlib.util.find_spec(package) is None:
            raise ConfigError(
                f"{option} {format_} needs {package}: pip install 'aiokq[spark,{format_}]'"
            )


def codec_of(options: LoadOptions) -> str | None:
    """Return the compression of the files; None for no compression."""
    return None if options.compression == "none" else options.compression


def table_of(options: LoadOptions, schema: pa.Schema) -> Table:
    """Return the table of a load.

    Args:
        schema: schema of the rows.
    """
    match options.target_format:
        case "delta":
            return DeltaTable(options.root, schema, options.partition_by, codec_of(options))
        case "iceberg":
            return IcebergTable(
                options.root, options.table, options.catalog, schema, options.partition_by
            )
    return ParquetTable(options.root)
