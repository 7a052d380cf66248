"""LoadOptions: the options of a load, checked as far as possible without a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from aiokq.core import limits
from aiokq.core.options import argument, option
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
"""Value that represents null in names of partition directories."""

NEEDS_SCHEMA: Final = ("json", "avro")


class OptionError(ConfigError):
    """An option of a load is refused.

    Attributes:
        option: name of a field of `LoadOptions`, or ``cluster`` if the target was loaded from
            another cluster. On the command line, ``rows_per_file`` is the option
            ``--rows-per-file``, for example.
        problem: the message without the option.
    """

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"{option}: {problem}")
        self.option = option
        self.problem = problem


_WHAT: Final = "What to load"
_VALUES: Final = "Values"
_FILES: Final = "Files"
_RUN: Final = "Run"


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Topics, target and format of a load: the argument of `load` and the options of the command.

    Raises:
        OptionError: an option is refused, or contradicts another option.
    """

    to: str | Path = field(
        metadata=option(
            "--to",
            metavar="DIR",
            help="Directory to load to; delta://DIR and iceberg://DIR also set the format.",
            show_default=False,
        )
    )
    """The directory has to be on this machine, or shared by all executors under the same path."""
    topics: tuple[str, ...] = field(default=(), metadata=argument("TOPIC", help="Names of topics."))
    topics_pattern: str | None = field(
        default=None,
        metadata=option(
            "--topics-pattern",
            metavar="REGEX",
            help="All topics whose full name matches, also those created later; instead of names.",
            panel=_WHAT,
            show_default=False,
        ),
    )
    starting: str = field(
        default="earliest",
        metadata=option(
            "--from",
            "-f",
            metavar="START",
            help="Start of a new load: beginning, end, a time (see `aiokq consume --help`), or "
            'offsets as JSON: {"orders": {"0": 23}}. A repeated load continues after its last '
            "batch.",
            panel=_WHAT,
            typed=str,
            default="beginning",
        ),
    )
    """earliest, latest, or offsets as JSON, as in ``{"orders": {"0": 23, "1": -2}}``."""
    starting_timestamp_ms: int | None = None
    """Used instead of `starting`: a new load starts with the first record at or after this time, in
    milliseconds since 1970."""
    headers: bool = field(
        default=False, metadata=option("--headers", help="Load headers as well.", panel=_WHAT)
    )
    read_committed: bool = field(
        default=False,
        metadata=option(
            "--read-committed",
            help="Leave out records of open and aborted transactions.",
            panel=_WHAT,
        ),
    )
    fail_on_data_loss: bool = field(
        default=True,
        metadata=option(
            "--fail-on-data-loss/--skip-lost",
            help="What the load does if records were deleted before it read them: fail, or "
            "continue without them.",
            panel=_WHAT,
        ),
    )
    format: LoadFormat | None = field(
        default=None,
        metadata=option(
            "--format", help="Format of the target. Default: parquet.", show_default=False
        ),
    )
    value_format: ValueFormat = field(
        default="bytes",
        metadata=option("--value-format", help="Format of the record values.", panel=_VALUES),
    )
    """bytes are loaded unchanged; text has to be UTF-8; json and avro need `value_schema`."""
    value_schema: str | Path | None = field(
        default=None,
        metadata=option(
            "--value-schema",
            metavar="FILE|WORDS",
            help="Schema of json values: a file with a JSON Schema or Spark's JSON, or a text such "
            "as 'id bigint, name string'; of avro values: a file with an Avro schema.",
            panel=_VALUES,
            show_default=False,
        ),
    )
    confluent_prefix: bool = field(
        default=False,
        metadata=option(
            "--confluent-prefix",
            help="Skip the five bytes of a schema registry before each value.",
            panel=_VALUES,
        ),
    )
    dead_letter: str | Path | None = field(
        default=None,
        metadata=option(
            "--dead-letter",
            metavar="DIR",
            help="Directory for records whose value cannot be decoded. Default: DIR-dead-letter, "
            "beside the target.",
            panel=_VALUES,
            show_default=False,
        ),
    )
    partition_by: tuple[PartitionColumn, ...] = field(
        default=(),
        metadata=option(
            "--partition-by",
            metavar="topic,date",
            help="Partition columns of the table; for Parquet, directories within each batch. The "
            "date is that of the record's timestamp, in UTC.",
            panel=_FILES,
            show_default=False,
            typed=str,
        ),
    )
    compression: Compression = field(
        default="zstd",
        metadata=option("--compression", help="Compression of the files.", panel=_FILES),
    )
    rows_per_file: int | None = field(
        default=None,
        metadata=option(
            "--rows-per-file",
            metavar="N",
            help="Maximum number of rows in a file.",
            panel=_FILES,
            minimum=1,
            maximum=limits.INT64_MAX,
        ),
    )
    table: str | None = field(
        default=None,
        metadata=option(
            "--table",
            metavar="NAMESPACE.NAME",
            help="Name of the Iceberg table.",
            panel=_FILES,
            show_default=False,
        ),
    )
    catalog: Mapping[str, str] = field(
        default_factory=dict,
        metadata=option(
            "--catalog",
            metavar="NAME=VALUE",
            help="A property of the Iceberg catalog, or its name; repeatable. Default: SQLite in "
            "the target.",
            panel=_FILES,
            show_default=False,
            typed=list[str],
        ),
    )
    available_now: bool = field(
        default=False,
        metadata=option(
            "--available-now/--follow",
            help="End after the records that exist at the start, or continue until Ctrl-C.",
            panel=_RUN,
        ),
    )
    every: float = field(
        default=10.0,
        metadata=option(
            "--every",
            metavar="SECONDS",
            help="Time from one batch to the next.",
            panel=_RUN,
            minimum=0,
            maximum=limits.MAX_SECONDS,
        ),
    )
    records_per_batch: int | None = field(
        default=1_000_000,
        metadata=option(
            "--records-per-batch",
            metavar="N",
            help="Approximate number of records in a batch.",
            panel=_RUN,
            minimum=1,
            maximum=limits.INT64_MAX,
        ),
    )
    """None for no limit; PySpark 4.1 never has a limit. A batch may be larger, because each
    partition with new records adds at least one record."""
    checkpoint: str | Path | None = field(
        default=None,
        metadata=option(
            "--checkpoint",
            metavar="DIR",
            help="Checkpoint directory of the query. Default: within the target.",
            panel=_RUN,
            show_default=False,
        ),
    )
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of the client by Kafka's names, such as ``{"bootstrap.servers": "host:9092"}``."""

    def __post_init__(self) -> None:
        if isinstance(self.topics, str):
            raise OptionError("topics", f"must be a tuple of names, such as ({self.topics!r},)")
        if bool(self.topics) == (self.topics_pattern is not None):
            raise OptionError("topics", "give either names of topics or a pattern")
        for topic in self.topics:
            # Spark's option would split the name at a comma and strip blanks.
            if TOPIC.fullmatch(topic) is None or topic in (".", ".."):
                raise OptionError("topics", f"{topic!r} is not a topic name")
        self._check_pattern()
        self._check_target()
        self._check_numbers()
        self._check_values()
        if self.rows_per_file is not None and self.target_format != "parquet":
            raise OptionError("rows_per_file", "only format parquet has this option")
        for column in self.partition_by:
            if column not in get_args(PartitionColumn):
                raise OptionError("partition_by", f"{column!r} is neither topic nor date")
        in_directories = self.target_format == "parquet" and "topic" in self.partition_by
        if in_directories and NO_VALUE in self.topics:
            # Only Parquet has this limit. Readers of Delta and Iceberg take the topic's name from
            # the table's metadata, not from the name of the directory.
            raise OptionError(
                "partition_by",
                f"readers interpret the directory of topic {NO_VALUE} as null; leave out topic",
            )
        if len(set(self.partition_by)) < len(self.partition_by):
            raise OptionError("partition_by", "a column is named twice")
        if self.compression not in get_args(Compression):
            raise OptionError(
                "compression", f"{self.compression!r} is not one of {_of(Compression)}"
            )

    def _check_pattern(self) -> None:
        if self.topics_pattern is not None:
            if not self.topics_pattern.strip():
                raise OptionError("topics_pattern", "the pattern is empty, and matches no topic")
            try:
                re.compile(self.topics_pattern)
            except re.error as error:
                raise OptionError(
                    "topics_pattern",
                    f"{self.topics_pattern!r} is not a regular expression: {error}",
                ) from error

    def _check_target(self) -> None:
        scheme, path = _split(self.to)
        if scheme not in ("", "file", *FORMATS):
            raise OptionError(
                "to",
                f"{self.to}: a directory is needed, of this machine or shared by all executors "
                f"(delta://DIR and iceberg://DIR also set the format); a load to {scheme}:// is "
                "not supported",
            )
        if not path or not self.root.name:
            raise OptionError("to", "the name of a directory is missing")
        for name in ("checkpoint", "dead_letter"):
            directory = getattr(self, name)
            if directory is not None and _split(directory)[0] not in ("", "file"):
                raise OptionError(
                    name,
                    f"{directory}: a directory is needed, of this machine or shared by all "
                    "executors",
                )
        self._check_nested()
        if self.target_format != "parquet" and set("%?#") & set(str(self.root)):
            # Delta and Iceberg interpret the path as a URI, in which these characters are special.
            raise OptionError("to", f"{self.root}: the path of a table must not contain % ? or #")
        if self.format is not None and self.format not in FORMATS:
            raise OptionError("format", f"{self.format!r} is not one of {_of(LoadFormat)}")
        if scheme in FORMATS and self.format not in (None, scheme):
            raise OptionError(
                "format",
                f"{self.format} contradicts the target {self.to}, whose format is {scheme}",
            )
        if (self.table is not None or self.catalog) and self.target_format != "iceberg":
            raise OptionError(
                "catalog" if self.catalog else "table", "only format iceberg has this option"
            )
        if self.target_format == "iceberg" and self.table is not None and "." not in self.table:
            raise OptionError("table", f"{self.table!r}: write NAMESPACE.NAME")

    def _check_nested(self) -> None:
        """Check that readers of one directory do not also read files of another directory."""
        given = [
            (name, _directory(directory))
            for name in ("checkpoint", "dead_letter")
            if (directory := getattr(self, name)) is not None
        ]
        for name, directory in given:
            if directory == self.root:
                raise OptionError(name, f"{directory}: the target needs a directory of its own")
            if directory.is_relative_to(self.root):
                below = directory.relative_to(self.root).parts[0]
                if not below.startswith((".", "_")):
                    raise OptionError(
                        name,
                        f"{directory}: readers of the target {self.root} would also read "
                        f"{directory}; give a directory elsewhere",
                    )
        if self.dead_letter is not None and self.root.is_relative_to(self.dead_letter_root):
            raise OptionError(
                "dead_letter",
                f"{self.dead_letter_root}: readers of this directory would also read the target "
                f"{self.root}; give a directory elsewhere",
            )
        if len({directory for _, directory in given}) < len(given):
            raise OptionError(
                "dead_letter", f"{given[0][1]}: this is the checkpoint's directory; give another"
            )

    def _check_numbers(self) -> None:
        for name in ("records_per_batch", "rows_per_file"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(name, f"{value}: must be at least 1")
        if self.every < 0:
            raise OptionError("every", f"{self.every:g}: must be 0 seconds or more")
        if self.starting_timestamp_ms is not None and self.starting_timestamp_ms < 0:
            raise OptionError(
                "starting_timestamp_ms", f"{self.starting_timestamp_ms}: must be 0 or more"
            )

    def _check_values(self) -> None:
        if self.value_format not in get_args(ValueFormat):
            raise OptionError(
                "value_format", f"{self.value_format!r} is not one of {_of(ValueFormat)}"
            )
        if self.value_format in NEEDS_SCHEMA and self.value_schema is None:
            raise OptionError("value_schema", f"value format {self.value_format} needs a schema")
        if self.value_format not in NEEDS_SCHEMA and self.value_schema is not None:
            raise OptionError(
                "value_schema",
                f"value format {self.value_format} has no schema; only json and avro have one",
            )
        if self.value_format == "bytes" and self.confluent_prefix:
            raise OptionError("confluent_prefix", "values of format bytes are loaded unchanged")
        if self.value_format == "bytes" and self.dead_letter is not None:
            raise OptionError(
                "dead_letter",
                "values of format bytes are not decoded, so there are no dead letters",
            )

    @property
    def target_format(self) -> LoadFormat:
        """The format that `format` or `to` names; Parquet if neither names one."""
        scheme, _ = _split(self.to)
        for known in FORMATS:
            if known in (self.format, scheme):
                return known  # type: ignore[no-any-return]  # get_args has no types
        return "parquet"

    @property
    def root(self) -> Path:
        """The absolute path of the target directory."""
        return _directory(self.to)

    @property
    def dead_letter_root(self) -> Path:
        """The absolute path of the directory for dead letters."""
        if self.dead_letter is None:
            return self.root.with_name(f"{self.root.name}-dead-letter")
        return _directory(self.dead_letter)

    @property
    def checkpoint_root(self) -> Path | None:
        """The absolute path of the checkpoint; None for the checkpoint within the target."""
        return None if self.checkpoint is None else _directory(self.checkpoint)

    def read_options(self) -> dict[str, str]:
        """Return the options for format("aiokq")."""
        options = {f"kafka.{name}": value for name, value in self.kafka.items()}
        if self.topics_pattern is not None:
            options["subscribePattern"] = _anchored(self.topics_pattern)
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


def _anchored(pattern: str) -> str:
    """Return the pattern, anchored so that it matches whole names; inline flags stay in front."""
    flags, rest = re.findall(r"^((?:\(\?[a-zA-Z]+\))*)(.*)", pattern, re.S)[0]
    return f"{flags}^(?:{rest})$"


def _split(to: str | Path) -> tuple[str, str]:
    found = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", str(to))
    return ("", str(to)) if found is None else (found[1].lower(), found[2])


def _directory(given: str | Path) -> Path:
    return Path(_split(given)[1]).expanduser().absolute()


def _of(kind: object) -> str:
    return ", ".join(get_args(kind))
