"""LoadOptions: what a load is asked for, checked as far as that needs nobody else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from aiokq.errors import ConfigError

__all__ = [
    "Compression",
    "FORMATS",
    "NO_VALUE",
    "LoadFormat",
    "LoadOptions",
    "OptionError",
    "PartitionColumn",
    "ValueFormat",
]

LoadFormat: TypeAlias = Literal["parquet", "delta", "iceberg"]
ValueFormat: TypeAlias = Literal["bytes", "text", "json", "avro"]
Compression: TypeAlias = Literal["zstd", "snappy", "gzip", "lz4", "none"]
PartitionColumn: TypeAlias = Literal["topic", "date"]

FORMATS: Final = get_args(LoadFormat)
TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""In the name of a directory, what readers take for null."""

NEEDS_SCHEMA: Final = ("json", "avro")


class OptionError(ConfigError):
    """An option of a load is refused.

    Attributes:
        option: a field of `LoadOptions`; ``rows_per_file`` is ``--rows-per-file`` on the command
            line.
        problem: the message without it.
    """

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"{option}: {problem}")
        self.option = option
        self.problem = problem


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """What to load, where to, and how.

    Attributes:
        to: the directory to load to; ``delta://DIR`` is the same with ``format``. It has to be on
            this machine, or shared by all executors under the same path.
        topics: to load; or `topics_pattern`.
        topics_pattern: a regular expression that the whole name matches; topics that are made
            later belong to it, too.
        format: of the target.
        kafka: how to reach the cluster, by Kafka's names, as
            ``{"bootstrap.servers": "host:9092"}``.
        starting: where a new load begins: earliest, latest, or offsets as JSON, as in
            ``{"orders": {"0": 23, "1": -2}}``. One that goes on goes on where it was.
        starting_timestamp_ms: where a new load begins: with the first record at or after this
            time. Instead of `starting`.
        available_now: end when all is loaded that was there at the start. Else it goes on until
            it is stopped.
        every: seconds between the beginnings of two batches.
        records_per_batch: at most so many; about, for each partition has at least one.
        partition_by: of topic and date (of the record's timestamp, in UTC); directories within
            each batch.
        compression: of the files.
        rows_per_file: at most so many; None for no limit.
        value_format: what values are. bytes are left as they are; text has to be UTF-8; json and
            avro need `value_schema`.
        value_schema: a file with a schema, or a schema in Spark's words (``id bigint, name
            string``); of json: JSON Schema, Spark's JSON or words; of avro: an Avro schema.
        confluent_prefix: values begin with the five bytes of a schema registry, which are skipped.
        headers: load those of records, too.
        read_committed: leave out records of open and aborted transactions.
        dead_letter: a directory for records whose values could not be decoded; ``<to>-dead-letter``
            if not given.
        checkpoint: the directory of the query's checkpoint; within the target if not given.
        fail_on_data_loss: whether records that are gone before they were loaded end the load.
        table: of Iceberg, ``namespace.name``.
        catalog: properties of an Iceberg catalog; one in SQLite within the target if empty.

    Raises:
        OptionError: one is refused, or contradicts another.
    """

    to: str | Path
    topics: tuple[str, ...] = ()
    topics_pattern: str | None = None
    format: LoadFormat | None = None
    kafka: Mapping[str, str] = field(default_factory=dict)
    starting: str = "earliest"
    starting_timestamp_ms: int | None = None
    available_now: bool = False
    every: float = 10.0
    records_per_batch: int | None = 1_000_000
    partition_by: tuple[PartitionColumn, ...] = ()
    compression: Compression = "zstd"
    rows_per_file: int | None = None
    value_format: ValueFormat = "bytes"
    value_schema: str | Path | None = None
    confluent_prefix: bool = False
    headers: bool = False
    read_committed: bool = False
    dead_letter: str | Path | None = None
    checkpoint: str | Path | None = None
    fail_on_data_loss: bool = True
    table: str | None = None
    catalog: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.topics, str):
            raise OptionError("topics", f"give ({self.topics!r},), a tuple of names")
        if bool(self.topics) == (self.topics_pattern is not None):
            raise OptionError("topics", "name topics, or give a pattern: one of the two")
        for topic in self.topics:
            # A comma would make two of it, and blanks would go.
            if TOPIC.fullmatch(topic) is None or topic in (".", ".."):
                raise OptionError("topics", f"{topic!r} is no name of a topic")
        self._check_pattern()
        self._check_target()
        self._check_numbers()
        self._check_values()
        if self.rows_per_file is not None and self.target_format != "parquet":
            raise OptionError("rows_per_file", "the files of a table are its own affair")
        for column in self.partition_by:
            if column not in get_args(PartitionColumn):
                raise OptionError("partition_by", f"{column!r} is neither topic nor date")
        in_directories = self.target_format == "parquet" and "topic" in self.partition_by
        if in_directories and NO_VALUE in self.topics:
            # Of a table the name is in its log, whatever the directory is called.
            raise OptionError(
                "partition_by",
                f"a directory of topic {NO_VALUE} is read as one of no topic; leave topic out",
            )
        if len(set(self.partition_by)) < len(self.partition_by):
            raise OptionError("partition_by", "a column is named twice")
        if self.compression not in get_args(Compression):
            raise OptionError("compression", f"{self.compression!r} is none of {_of(Compression)}")

    def _check_pattern(self) -> None:
        if self.topics_pattern is not None:
            if not self.topics_pattern.strip():
                raise OptionError("topics_pattern", "it is empty: no topic has such a name")
            try:
                re.compile(self.topics_pattern)
            except re.error as error:
                raise OptionError(
                    "topics_pattern", f"{self.topics_pattern!r} is no regular expression: {error}"
                ) from error

    def _check_target(self) -> None:
        scheme, path = _split(self.to)
        if scheme not in ("", "file", *FORMATS):
            raise OptionError(
                "to",
                f"{self.to}: a directory is needed, of this machine or shared by all executors "
                f"(delta://DIR and iceberg://DIR say the format); {scheme}:// cannot be loaded to",
            )
        if not path or not self.root.name:
            raise OptionError("to", "which directory?")
        for option in ("checkpoint", "dead_letter"):
            directory = getattr(self, option)
            if directory is not None and _split(directory)[0] not in ("", "file"):
                raise OptionError(
                    option,
                    f"{directory}: a directory is needed, of this machine or shared by all "
                    "executors",
                )
        self._check_nested()
        if self.target_format != "parquet" and set("%?#") & set(str(self.root)):
            # For a table it is an address: half of it would be elsewhere.
            raise OptionError("to", f"{self.root}: a table's path must have none of % ? #")
        if self.format is not None and self.format not in FORMATS:
            raise OptionError("format", f"{self.format!r} is none of {_of(LoadFormat)}")
        if scheme in FORMATS and self.format not in (None, scheme):
            raise OptionError("format", f"{self.format}, but the target {self.to} says {scheme}")
        if (self.table is not None or self.catalog) and self.target_format != "iceberg":
            raise OptionError("catalog" if self.catalog else "table", "only format iceberg has one")
        if self.target_format == "iceberg" and self.table is not None and "." not in self.table:
            raise OptionError("table", f"{self.table!r}: write NAMESPACE.NAME")

    def _check_nested(self) -> None:
        """Whoever reads one of the directories reads nothing of another."""
        given = [
            (option, _directory(directory))
            for option in ("checkpoint", "dead_letter")
            if (directory := getattr(self, option)) is not None
        ]
        for option, directory in given:
            if directory == self.root:
                raise OptionError(option, f"{directory}: the target needs a directory of its own")
            if directory.is_relative_to(self.root):
                name = directory.relative_to(self.root).parts[0]
                if not name.startswith((".", "_")):
                    raise OptionError(
                        option,
                        f"{directory}: whoever reads the target {self.root} would read it, too; "
                        "give one elsewhere",
                    )
        if self.dead_letter is not None and self.root.is_relative_to(self.dead_letter_root):
            raise OptionError(
                "dead_letter",
                f"{self.dead_letter_root}: whoever reads it would read the target {self.root}, "
                "too; give one elsewhere",
            )
        if len({directory for _, directory in given}) < len(given):
            raise OptionError("dead_letter", f"{given[0][1]}: it is the checkpoint's directory")

    def _check_numbers(self) -> None:
        for name in ("records_per_batch", "rows_per_file"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(name, f"{value}: at least 1")
        if self.every < 0:
            raise OptionError("every", f"{self.every:g}: seconds, 0 or more")
        if self.starting_timestamp_ms is not None and self.starting_timestamp_ms < 0:
            raise OptionError("starting_timestamp_ms", f"{self.starting_timestamp_ms}: 0 or more")

    def _check_values(self) -> None:
        if self.value_format not in get_args(ValueFormat):
            raise OptionError(
                "value_format", f"{self.value_format!r} is none of {_of(ValueFormat)}"
            )
        if self.value_format in NEEDS_SCHEMA and self.value_schema is None:
            raise OptionError("value_schema", f"values as {self.value_format} need a schema")
        if self.value_format not in NEEDS_SCHEMA and self.value_schema is not None:
            raise OptionError(
                "value_schema",
                f"values as {self.value_format} have none, only those as json and avro",
            )
        if self.value_format == "bytes" and self.confluent_prefix:
            raise OptionError("confluent_prefix", "values as bytes are left as they are")
        if self.value_format == "bytes" and self.dead_letter is not None:
            raise OptionError("dead_letter", "values as bytes are not decoded, so none can be bad")

    @property
    def target_format(self) -> LoadFormat:
        """Said by `format` or by `to`; Parquet where neither does."""
        scheme, _ = _split(self.to)
        for known in FORMATS:
            if known in (self.format, scheme):
                return known  # type: ignore[no-any-return]  # get_args has no types
        return "parquet"

    @property
    def root(self) -> Path:
        """The target's directory, absolute."""
        return _directory(self.to)

    @property
    def dead_letter_root(self) -> Path:
        """The directory of dead letters, absolute."""
        if self.dead_letter is None:
            return self.root.with_name(f"{self.root.name}-dead-letter")
        return _directory(self.dead_letter)

    @property
    def checkpoint_root(self) -> Path | None:
        """The directory of the checkpoint, absolute; None for that within the target."""
        return None if self.checkpoint is None else _directory(self.checkpoint)

    def read_options(self) -> dict[str, str]:
        """For format("aiokq")."""
        options = {f"kafka.{name}": value for name, value in self.kafka.items()}
        if self.topics_pattern is not None:
            options["subscribePattern"] = _of_whole_names(self.topics_pattern)
        else:
            options["subscribe"] = ",".join(self.topics)
        if self.starting_timestamp_ms is not None:
            options["startingTimestamp"] = str(self.starting_timestamp_ms)
            options["startingOffsetsByTimestampStrategy"] = "latest"
        else:
            options["startingOffsets"] = self.starting
        if self.read_committed:
            options["kafka.isolation.level"] = "read_committed"
        options["includeHeaders"] = str(self.headers).lower()
        options["failOnDataLoss"] = str(self.fail_on_data_loss).lower()
        return options


def _of_whole_names(pattern: str) -> str:
    """Spark's option is content with a part of a name; flags stand before all else."""
    flags, rest = re.findall(r"^((?:\(\?[a-zA-Z]+\))*)(.*)", pattern, re.S)[0]
    return f"{flags}^(?:{rest})$"


def _split(to: str | Path) -> tuple[str, str]:
    found = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", str(to))
    return ("", str(to)) if found is None else (found[1].lower(), found[2])


def _directory(given: str | Path) -> Path:
    return Path(_split(given)[1]).expanduser().absolute()


def _of(kind: object) -> str:
    return ", ".join(get_args(kind))
