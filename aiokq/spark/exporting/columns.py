"""ExportColumns: the columns of Parquet files that become the parts of a record."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from aiokq.core.options import option
from aiokq.errors import ConfigError
from aiokq.spark.exporting.failures import ColumnError

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["KAFKA_COLUMNS", "ExportColumns"]

KAFKA_COLUMNS: Final = frozenset(
    ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
)
"""Columns of Spark's Kafka source."""

PARTITION_DATE: Final = "date"
"""Column in the directory names of a load that is partitioned by date.

It repeats the day of the column ``timestamp``, so it is not part of the original record.
"""

_COLUMNS: Final = "Columns"


@dataclass(frozen=True)
class ExportColumns:
    """The columns that become key, value, headers, timestamp and partition of a record.

    Bytes and text are sent unchanged (text as UTF-8), other types as JSON. If no column is given
    for a part of the record, `of` chooses the column.
    """

    key: str | None = field(
        default=None,
        metadata=option(
            "--key-column",
            metavar="COLUMN",
            help="Column of the key: bytes and text unchanged, other types as JSON. Default: no "
            "key; for Kafka records, their key.",
            panel=_COLUMNS,
            show_default=False,
        ),
    )
    value: str | None = field(
        default=None,
        metadata=option(
            "--value-column",
            metavar="COLUMN",
            help="Column of the value: bytes and text unchanged, other types as JSON. A null value "
            "deletes the record's key in a compacted topic.",
            panel=_COLUMNS,
            show_default=False,
        ),
    )
    fields: tuple[str, ...] | None = field(
        default=None,
        metadata=option(
            "--value-columns",
            metavar="COLUMN,...",
            help="Columns whose JSON object is the value, instead of --value-column. Default: all; "
            "Kafka records keep their value.",
            panel=_COLUMNS,
            show_default=False,
            typed=str,
        ),
    )
    """An empty tuple means all columns. `of` describes the meaning of None."""
    headers: str | None = field(
        default=None,
        metadata=option(
            "--headers-column",
            metavar="COLUMN",
            help="Column of all headers: a list of key and value, as in Spark's Kafka source.",
            panel=_COLUMNS,
            show_default=False,
        ),
    )
    header_columns: Mapping[str, str] = field(
        default_factory=dict,
        metadata=option(
            "--header-column",
            "-H",
            metavar="NAME=COLUMN",
            help="Column of a header; repeatable. A row with null in the column does not get the "
            "header.",
            panel=_COLUMNS,
            show_default=False,
            typed=list[str],
            before="headers",
        ),
    )
    timestamp: str | None = field(
        default=None,
        metadata=option(
            "--timestamp-column",
            metavar="COLUMN",
            help="Column of the timestamp: a timestamp, a date, or milliseconds. Default: now; for "
            "Kafka records, their timestamp. The topic's retention counts from it.",
            panel=_COLUMNS,
            show_default=False,
        ),
    )
    """A timestamp without a zone is in UTC; milliseconds count from 1970. A row with null, or with
    Kafka's value for no timestamp (-1), gets the time of sending."""
    partition: str | None = field(
        default=None,
        metadata=option(
            "--partition-column",
            metavar="COLUMN",
            help="Column of the partition number. Default: by the key.",
            panel=_COLUMNS,
            show_default=False,
        ),
    )
    """If the value of a row is null, the partition is chosen by the key."""

    def of(self, names: Sequence[str], constants: Collection[str] = ()) -> ExportColumns:
        """Return these columns, completed for files with the columns `names`.

        If `value` or `fields` is given, nothing is added. Otherwise the files decide. If all their
        columns are columns of Kafka records, ``value`` among them, each row becomes the original
        record with key, value, headers and timestamp; the files may also have the column ``date``
        in their path, which `aiokq spark load` writes. For other files, the value is the JSON of
        all columns.

        Args:
            constants: columns in the path of the files; a subset of `names`.

        Raises:
            ConfigError: value and fields are both given.
        """
        if self.value is not None and self.fields is not None:
            raise ConfigError(
                "the value is either one column or the JSON of several columns, not both"
            )
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
        """The names of all columns to read, without duplicates."""
        return list(dict.fromkeys(name for _, names in self._by_field() for name in names))

    def _by_field(self) -> Iterator[tuple[str, Iterable[str]]]:
        """Yield each field with the columns that it names."""
        for field_name in ("key", "value", "headers", "timestamp", "partition"):
            name = getattr(self, field_name)
            yield field_name, () if name is None else (name,)
        yield "fields", self.fields or ()
        yield "header_columns", self.header_columns.values()

    def check(self, schema: pa.Schema, file: str, constants: Collection[str] = ()) -> None:
        """Check that a file has the columns, with suitable types.

        Args:
            constants: columns in the path of the file.

        Raises:
            ConfigError: a column is missing or has a wrong type; the error names file and column.
        """
        for field_name, names in self._by_field():
            for name in names:
                if name not in schema.names and name not in constants:
                    there = ", ".join([*schema.names, *constants])
                    raise ColumnError(
                        field_name, file, f"there is no column {name!r}; there are {there}"
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
                    what,
                    file,
                    f"column {column!r} is {kind}; the column of the {what} must be {wanted}",
                )

    def describe(self) -> str:
        """Return a description of the columns as text, for the user."""
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
