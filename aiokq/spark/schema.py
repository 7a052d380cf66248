"""Columns of Kafka records, as Spark and Arrow types, and the selection of columns to read.

Spark does not tell Python sources which columns a query uses, so the user selects columns by a
schema or by the option ``columns``. write_options.py has the schema of rows to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from aiokq.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql.types import StructType

__all__ = [
    "COLUMNS",
    "HEADERS",
    "Projection",
    "check_columns",
    "ddl",
    "default_columns",
    "parse_columns",
]

HEADERS: Final = "headers"
COLUMNS: Final[dict[str, str]] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key:string,value:binary>>",
}
"""All columns in order: name, and type in the form of `DataType.simpleString()`.

Source: Spark `KafkaRecordToRowConverter.kafkaSchema`.
"""
NULLABLE: Final = frozenset({"key", "value", HEADERS})

_BY_LOWER: Final = {name.lower(): name for name in COLUMNS}


def ddl(columns: Sequence[str]) -> str:
    """Return the schema of these columns in Spark's DDL."""
    return ", ".join(f"{name} {COLUMNS[name]}" for name in columns)


def default_columns(include_headers: bool) -> tuple[str, ...]:
    """Return the names of all columns; ``headers`` only if `include_headers`."""
    return tuple(name for name in COLUMNS if include_headers or name != HEADERS)


def parse_columns(text: str) -> tuple[str, ...]:
    """Parse the option ``columns``: names, comma separated.

    Raises:
        ConfigError: a column does not exist, a column is named twice, or the list is empty.
    """
    names: list[str] = []
    for name in (part.strip() for part in text.split(",") if part.strip()):
        column = _BY_LOWER.get(name.lower())
        if column is None:
            raise ConfigError(f"option columns: records have no {name!r}; {_known()}")
        if column in names:
            raise ConfigError(f"option columns: {column!r} is named twice")
        names.append(column)
    if not names:
        raise ConfigError(f"option columns: the list is empty; {_known()}")
    return tuple(names)


def _known() -> str:
    return "the columns are " + ", ".join(COLUMNS)


def check_columns(columns: Sequence[str] | None, schema: StructType) -> None:
    """Check that the option ``columns`` and the schema of the frame agree.

    Raises:
        ConfigError: both are given, and differ.
    """
    names = [field.name for field in schema.fields]
    if columns is not None and [name.lower() for name in names] != [c.lower() for c in columns]:
        raise ConfigError(
            f"option columns names {', '.join(columns)}, but the given schema has "
            f"{', '.join(names)}: give either the option or the schema"
        )


class Projection:
    """The selected columns, their order and their names in the frame.

    Args:
        schema: schema of the frame, given by the user or made by `ddl`.

    Raises:
        ConfigError: a column does not exist in records, has another type, or is given twice.
    """

    def __init__(self, schema: StructType) -> None:
        columns: list[str] = []
        for field in schema.fields:
            name = _BY_LOWER.get(field.name.lower())
            if name is None:
                raise ConfigError(
                    f"the schema has a column {field.name!r}, but Kafka's records do not have "
                    f"this column; {_known()}"
                )
            kind = field.dataType.simpleString()
            if kind != COLUMNS[name]:
                raise ConfigError(
                    f"the schema has {field.name} as {kind}, but the column is {COLUMNS[name]}: "
                    f"read it as {COLUMNS[name]}, and cast it in the frame"
                )
            if name in columns:
                raise ConfigError(f"the schema has the column {field.name!r} twice")
            columns.append(name)
        self.columns = tuple(columns)
        self.names = tuple(field.name for field in schema.fields)
        self.nullable = tuple(field.nullable for field in schema.fields)
        self._schema: pa.Schema | None = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_schema": None}

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of the batches; Spark requires exactly this schema."""
        if self._schema is None:
            import pyarrow as pa

            kinds = {
                "key": pa.binary(),
                "value": pa.binary(),
                "topic": pa.string(),
                "partition": pa.int32(),
                "offset": pa.int64(),
                "timestamp": pa.timestamp("us", tz="UTC"),
                "timestampType": pa.int32(),
                HEADERS: _headers_type(),
            }
            self._schema = pa.schema(
                [
                    pa.field(name, kinds[column], nullable=nullable)
                    for name, column, nullable in zip(
                        self.names, self.columns, self.nullable, strict=True
                    )
                ]
            )
        return self._schema

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of `columns` with exactly `arrow_schema`, without copying its data."""
        import pyarrow as pa

        arrays = [
            _as_spark_has_it(array) if column == HEADERS else array
            for column, array in zip(self.columns, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)


def _headers_type() -> pa.DataType:
    import pyarrow as pa

    pair = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return pa.list_(pa.field("element", pair))


def _as_spark_has_it(headers: pa.Array) -> pa.Array:
    """Return headers with keys declared nullable, as in Spark's schema."""
    import pyarrow as pa

    kind = _headers_type()
    pairs = headers.values
    pairs = pa.StructArray.from_arrays(
        [pairs.field(0), pairs.field(1)], fields=list(kind.value_type)
    )
    return pa.Array.from_buffers(
        kind, len(headers), headers.buffers()[:2], offset=headers.offset, children=[pairs]
    )
