"""Which column of a row becomes what of a record; pure but for the names in its errors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from aiokq.errors import ConfigError
from aiokq.spark.exporting.failures import ColumnError
from aiokq.spark.exporting.json_text import documents, plain_texts

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["KAFKA_COLUMNS", "ExportColumns", "Headers", "Row", "rows"]

Headers = list[tuple[str, bytes | None]]

KAFKA_COLUMNS: Final = frozenset(
    ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
)
"""Those of Spark's Kafka source, and so of what `aiokq spark load` writes."""

NO_TIME: Final = -1
"""In milliseconds, what a record of Kafka's has that has no time; no producer may send it."""

PARTITION_DATE: Final = "date"
"""What a load by date adds in names of directories; the record has it as its timestamp."""


@dataclass(frozen=True)
class Row:
    """A record to be: what `Producer.send_many` takes, and where it goes."""

    record: tuple[bytes | None, bytes | None, Headers | None, int | None]
    partition: int | None


@dataclass(frozen=True)
class ExportColumns:
    """Which columns become what.

    Bytes and text are taken as they are (text as UTF-8); any other type as the JSON of it. What is
    not said is chosen by `of`.

    Args:
        key: column of the key.
        value: column of the value.
        fields: instead, columns whose JSON object is the value; none named: all there are.
        headers: column of headers, as Spark's Kafka source has it: a list of (key, value).
        header_columns: headers by name, each from a column; null is no header.
        timestamp: column of the time: a timestamp (without a zone it is UTC), a date, or a whole
            number of milliseconds since 1970. Null and -1, which is what records without a time
            have, are the time of the sending.
        partition: column of the number of the partition; null: by the key.
    """

    key: str | None = None
    value: str | None = None
    fields: tuple[str, ...] | None = None
    headers: str | None = None
    header_columns: Mapping[str, str] = field(default_factory=dict)
    timestamp: str | None = None
    partition: str | None = None

    def of(self, names: Sequence[str], constants: Collection[str] = ()) -> ExportColumns:
        """Complete, for files with these columns.

        Rows of Kafka records (`KAFKA_COLUMNS` and no others, but for the date of a load that is
        partitioned by it) become what they were: key, value, headers and time. The value of any
        other row is the JSON of all of its columns.

        Args:
            constants: those of the names that the files' path has.

        Raises:
            ConfigError: value and fields are both given.
        """
        if self.value is not None and self.fields is not None:
            raise ConfigError("the value is one column, or the JSON of several: not both")
        given = self
        chosen = self.value is not None or self.fields is not None
        own = set(names) - ({PARTITION_DATE} & set(constants))
        if not chosen and "value" in names and own <= KAFKA_COLUMNS:
            there = {name: name for name in names}
            given = replace(
                self,
                value="value",
                key=self.key or there.get("key"),
                headers=self.headers or (there.get("headers") if not self.header_columns else None),
                timestamp=self.timestamp or there.get("timestamp"),
            )
        elif not self.fields and self.value is None:
            given = replace(self, fields=tuple(names))
        return given

    @property
    def used(self) -> list[str]:
        """The columns to read, each once."""
        return list(dict.fromkeys(name for _, names in self._by_option() for name in names))

    def _by_option(self) -> Iterator[tuple[str, Iterable[str]]]:
        """The columns that each field names."""
        for option in ("key", "value", "headers", "timestamp", "partition"):
            name = getattr(self, option)
            yield option, () if name is None else (name,)
        yield "fields", self.fields or ()
        yield "header_columns", self.header_columns.values()

    def check(self, schema: pa.Schema, file: str, constants: Collection[str] = ()) -> None:
        """Whether a file has what is needed.

        Args:
            constants: columns that the file's path has.

        Raises:
            ConfigError: a column is missing, or of a wrong type; the file and the column are named.
        """
        for option, names in self._by_option():
            for name in names:
                if name not in schema.names and name not in constants:
                    there = ", ".join([*schema.names, *constants])
                    raise ColumnError(
                        option, file, f"there is no column {name!r}; there are {there}"
                    )
        for what, column, fits, wanted in (
            ("headers", self.headers, _is_headers, "array<struct<key:string,value:binary>>"),
            ("timestamp", self.timestamp, _is_time, "timestamp, date or bigint (milliseconds)"),
            ("partition", self.partition, _is_whole, "a whole number"),
        ):
            if column is None:
                continue
            kind = schema.field(column).type if column in schema.names else "string (of the path)"
            if isinstance(kind, str) or not fits(kind):
                raise ColumnError(
                    what, file, f"column {column!r} is {kind}; a column of the {what} is {wanted}"
                )

    def describe(self) -> str:
        """In words, for who runs it."""
        if self.value is not None:
            value = f"value: {self.value}"
        else:
            fields = self.fields or ()
            shown = ", ".join(fields[:4]) + (f" and {len(fields) - 4} more" if fields[4:] else "")
            value = f"value: JSON of {shown}"
        parts = [f"key: {self.key or 'none'}", value]
        if self.headers is not None:
            parts.append(f"headers: {self.headers}")
        parts += [f"header {name}: {column}" for name, column in self.header_columns.items()]
        if self.timestamp is not None:
            parts.append(f"timestamp: {self.timestamp}")
        if self.partition is not None:
            parts.append(f"partition: {self.partition}")
        return "; ".join(parts)


def rows(batch: pa.RecordBatch, columns: ExportColumns) -> Iterator[Row]:
    """The rows of a batch as records, in their order."""
    nothing = [None] * batch.num_rows
    keys = nothing if columns.key is None else _bytes(batch.column(columns.key))
    values: Sequence[bytes | None]
    if columns.value is not None:
        values = _bytes(batch.column(columns.value))
    else:
        values = documents([(name, batch.column(name)) for name in columns.fields or ()])
    times = nothing if columns.timestamp is None else _times(batch.column(columns.timestamp))
    partitions = (
        nothing if columns.partition is None else batch.column(columns.partition).to_pylist()
    )
    for key, value, headers, time, partition in zip(
        keys, values, _all_headers(batch, columns), times, partitions, strict=True
    ):
        yield Row((key, value, headers, time), partition)


def _bytes(column: pa.Array) -> list[bytes | None]:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _bytes(column.dictionary_decode())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        values: list[bytes | None] = column.to_pylist()
        return values
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_string(kind):
        return _bytes(column.cast(pa.binary()))
    if pa.types.is_large_string(kind):
        return _bytes(column.cast(pa.large_binary()))
    return plain_texts(column)


def _times(column: pa.Array) -> list[int | None]:
    return [None if time == NO_TIME else time for time in _milliseconds(column)]


def _milliseconds(column: pa.Array) -> list[int | None]:
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    kind = column.type
    if pa.types.is_date(kind):
        column = column.cast(pa.timestamp("ms"))
    elif pa.types.is_timestamp(kind) and kind.unit != "ms":
        # As numbers: a cast of a time in a zone would look the zone up.
        whole = column.cast(pa.int64())
        divisor = {"us": 1000, "ns": 1_000_000}.get(kind.unit)
        if divisor is None:
            column = pc.multiply(whole, 1000)
        else:
            values: list[int | None] = whole.to_pylist()
            return [None if value is None else value // divisor for value in values]
    milliseconds: list[int | None] = column.cast(pa.int64()).to_pylist()
    return milliseconds


def _all_headers(batch: pa.RecordBatch, columns: ExportColumns) -> Sequence[Headers | None]:
    found: list[Headers | None] = [None] * batch.num_rows
    if columns.headers is not None:
        found = [
            None if each is None else [(header["key"], header["value"]) for header in each]
            for each in batch.column(columns.headers).to_pylist()
        ]
    for name, column in columns.header_columns.items():
        for number, value in enumerate(_bytes(batch.column(column))):
            if value is not None:
                found[number] = [*(found[number] or ()), (name, value)]
    return found


def _is_headers(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    types = {field.name: field.type for field in kind.value_type}
    return (
        set(types) == {"key", "value"}
        and bool(pa.types.is_string(types["key"]))
        and bool(pa.types.is_binary(types["value"]))
    )


def _is_time(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_int64(kind))


def _is_whole(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind))
