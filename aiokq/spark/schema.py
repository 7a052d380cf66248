"""The columns of Kafka records, in Spark's words and in Arrow's, and which of them are wanted.

Column pruning does not reach a Python source: a schema given by the user, or the option
``columns``, chooses columns instead. The JVM connector has one fixed schema, the same as this one
whole. The schema that rows to be written must have is the sink's.
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
"""Name to type as `DataType.simpleString()` writes it, in order.

Source: Spark `KafkaRecordToRowConverter.kafkaSchema`.
"""
NULLABLE: Final = frozenset({"key", "value", HEADERS})

_BY_LOWER: Final = {name.lower(): name for name in COLUMNS}


def ddl(columns: Sequence[str]) -> str:
    """The schema of these columns, as Spark's schema language has it."""
    return ", ".join(f"{name} {COLUMNS[name]}" for name in columns)


def default_columns(include_headers: bool) -> tuple[str, ...]:
    """All columns, the headers only if wanted."""
    return tuple(name for name in COLUMNS if include_headers or name != HEADERS)


def parse_columns(text: str) -> tuple[str, ...]:
    """The option ``columns``: names, comma separated.

    Raises:
        ConfigError: a column that records do not have, one named twice, or none.
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
        raise ConfigError(f"option columns: it names no column; {_known()}")
    return tuple(names)


def _known() -> str:
    return "there are " + ", ".join(COLUMNS)


def check_columns(columns: Sequence[str] | None, schema: StructType) -> None:
    """The option ``columns`` and the frame's schema say the same.

    Raises:
        ConfigError: both are given, and differ.
    """
    names = [field.name for field in schema.fields]
    if columns is not None and [name.lower() for name in names] != [c.lower() for c in columns]:
        raise ConfigError(
            f"option columns asks for {', '.join(columns)}, the schema given for "
            f"{', '.join(names)}: give one of the two"
        )


class Projection:
    """Which columns are read, in which order, and called what.

    Args:
        schema: of the frame; the user's or that of `ddl`.

    Raises:
        ConfigError: a column that records do not have, or of another type.
    """

    def __init__(self, schema: StructType) -> None:
        columns: list[str] = []
        for field in schema.fields:
            name = _BY_LOWER.get(field.name.lower())
            if name is None:
                raise ConfigError(
                    f"the schema asks for a column {field.name!r}, which Kafka's records do not "
                    f"have; {_known()}"
                )
            kind = field.dataType.simpleString()
            if kind != COLUMNS[name]:
                raise ConfigError(
                    f"the schema asks for {field.name} as {kind}, it is {COLUMNS[name]}: "
                    "read it so, and cast it in the frame"
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
        """The schema that Spark compares the first batch's with, exactly."""
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
        """A batch of `columns` in exactly that schema; nothing is copied."""
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
    """Headers whose keys may be null: they never are, but Spark's schema says so."""
    import pyarrow as pa

    kind = _headers_type()
    pairs = headers.values
    pairs = pa.StructArray.from_arrays(
        [pairs.field(0), pairs.field(1)], fields=list(kind.value_type)
    )
    return pa.Array.from_buffers(
        kind, len(headers), headers.buffers()[:2], offset=headers.offset, children=[pairs]
    )
