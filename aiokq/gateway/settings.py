"""GatewaySettings: the configuration of a gateway, from a TOML file or from arguments.

The file's errors name the file, the line and the nearest option. Nothing here opens a socket or
reads a file other than the configuration. Tests: tests/unit/gateway/test_settings.py.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from aiokq import ClusterSettings, ProducerSettings
from aiokq.errors import ConfigError
from aiokq.gateway.sizes import ByteSize, Mode, largest_log_line, lines_of
from aiokq.gateway.sizes import Path as OptionPath

__all__ = [
    "BatchingSettings",
    "CombinedSettings",
    "CompressionSettings",
    "DeadLettersSettings",
    "DebugSettings",
    "DeliverySettings",
    "DiscardsSettings",
    "GatewaySettings",
    "HttpSettings",
    "InputSettings",
    "LimitsSettings",
    "PoolSettings",
    "RateLimitSettings",
    "SpoolSettings",
    "TABLES",
    "TopicRules",
    "TopicSettings",
]

Milliseconds: TypeAlias = Annotated[int, Field(ge=0, le=2**31 - 1)]
Count: TypeAlias = Annotated[int, Field(ge=1, le=2**31 - 1)]
MessageBytes: TypeAlias = Annotated[ByteSize, Field(ge=1, le=2**30)]

DeadLetterReason: TypeAlias = Literal[
    "bad_topic",
    "no_partition",
    "error_ack",
    "attempt_limit",
    "autocreate_failed",
    "too_long",
    "shutdown",
]

LARGEST_DATAGRAM: Final = 16 * 1024 * 1024

OF_GATEWAY: Final[Mapping[str, str]] = {
    "allow_auto_create_topics": "set `autocreate` in [delivery]",
    "bootstrap_timeout_ms": "a gateway starts without Kafka",
    "buffer_memory": "set `max_bytes` in [pool]",
    "compression_type": "set it in [compression], or in [topics.NAME.compression]",
    "compression_type_by_topic": "set it in [topics.NAME.compression]",
    "compression_gzip_level": "set `level` in [compression]",
    "compression_lz4_level": "set `level` in [compression]",
    "compression_zstd_level": "set `level` in [compression]",
    "compression_min_bytes": "set `min_bytes` in [compression]",
    "compression_max_ratio": "set `max_ratio` in [compression]",
    "linger_ms": "the gateway batches: set `time_ms` in [batching]",
    "linger_when_awaited": "the gateway batches: set `time_ms` in [batching]",
    "partitioner": "messages choose the partition",
    "partitioner_ignore_keys": "messages choose the partition",
    "key_serializer": "messages are bytes already",
    "value_serializer": "messages are bytes already",
    "interceptors": "they are Python objects",
    "transactional_id": "a gateway writes without transactions",
    "transaction_timeout_ms": "a gateway writes without transactions",
    "ssl_context": "it is a Python object: set the files, such as `ssl_ca_location`",
}
"""Client settings that [kafka] refuses, with what to do instead."""

BRUCE_ONLY: Final = (
    "error_table",
    "max_failed_delivery_attempts",
    "pause_initial_ms",
    "pause_max_doublings",
    "min_pause_ms",
    "dispatcher_restart_max_delay_ms",
    "produce_request_data_limit",
    "message_max_bytes",
    "replication_timeout_ms",
)
"""Options of [delivery] that only the engine `bruce` has."""


class _Section(BaseModel):
    """A table of the file: frozen, without unknown options."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )


class InputSettings(_Section):
    """A socket that programs write to."""

    type: Literal["unix_datagram", "unix_stream", "tcp"]
    """Kind of socket."""
    name: str | None = None
    """Name of the socket in `FileDescriptorName` of a systemd socket unit."""
    path: str | None = None
    """Absolute path of a UNIX socket."""
    host: str = "127.0.0.1"
    """Loopback address of a TCP input."""
    port: Annotated[int, Field(ge=0, le=65535)] | None = None
    """Port of a TCP input; 0 for a free port."""
    mode: Mode | None = None
    """Permissions of the socket file in octal digits; by default, those of the umask."""
    owner: str | int | None = None
    """User, by name or number, who gets the socket file."""
    group: str | int | None = None
    """Group, by name or number, that gets the socket file."""
    allowed_users: tuple[str | int, ...] | None = None
    """Users whose connections or datagrams are accepted; by default, all users."""
    max_message_bytes: MessageBytes | None = None
    """Largest message; by default, 64 KiB for datagrams and 2 MiB for streams."""
    allow_large_datagrams: bool = False
    """Whether `max_message_bytes` may require that senders raise their SO_SNDBUF."""
    when_full: Literal["discard", "block"] = "discard"
    """What happens while the pool is full: discard messages, or stop reading this input."""
    max_connections: Count = 1024
    """Largest number of open connections of a stream input."""
    idle_ms: Milliseconds = 0
    """Time after which a connection without data is closed; 0 for never."""
    partial_message_ms: Milliseconds = 30_000
    """Time that a connection may take to send the rest of a message; 0 for any time."""

    @property
    def limit(self) -> int:
        """The largest message, in bytes."""
        if self.max_message_bytes is not None:
            return self.max_message_bytes
        return 64 * 1024 if self.type == "unix_datagram" else 2 * 1024 * 1024

    @property
    def where(self) -> str:
        """The address, as a text for people."""
        return f"{self.host}:{self.port}" if self.type == "tcp" else str(self.path)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.type == "tcp":
            if self.port is None:
                raise ValueError("an input of type tcp needs `port`")
            for option in ("path", "mode", "owner", "group", "allowed_users"):
                if getattr(self, option) is not None:
                    raise ValueError(f"an input of type tcp has no `{option}`")
            try:
                loopback = ipaddress.ip_address(self.host).is_loopback
            except ValueError:
                loopback = False
            if not loopback:
                raise ValueError(f"`host` is {self.host!r}, and must be a loopback address")
        else:
            if self.port is not None:
                raise ValueError(f"an input of type {self.type} has `path`, not `port`")
            if not self.path:
                raise ValueError(f"an input of type {self.type} needs `path`")
            if not self.path.startswith("/"):
                raise ValueError(f"`path` is {self.path!r}, and must be absolute")
            if len(self.path.encode(errors="surrogateescape")) > 107:
                raise ValueError("`path` has more than 107 bytes, the limit of UNIX sockets")
        if self.type == "unix_datagram":
            if self.limit > LARGEST_DATAGRAM:
                raise ValueError("`max_message_bytes` of datagrams is at most 16 MiB")
            for option in ("max_connections", "idle_ms", "partial_message_ms"):
                if option in self.model_fields_set:
                    raise ValueError(f"an input of type unix_datagram has no `{option}`")
        elif self.allow_large_datagrams:
            raise ValueError(f"an input of type {self.type} has no `allow_large_datagrams`")
        return self


class HttpSettings(_Section):
    """The HTTP interface."""

    host: str = "127.0.0.1"
    """Address to listen on. An address that is not loopback needs `token_file`."""
    port: Annotated[int, Field(ge=0, le=65535)] = 9690
    """Port; 0 for a free port."""
    token_file: str | None = None
    """File with the token that each request has to send as `Authorization: Bearer TOKEN`."""

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.loopback and self.token_file is None:
            raise ValueError(
                f"`host` is {self.host!r}, which others can reach: it needs `token_file`"
            )
        return self


class PoolSettings(_Section):
    """The memory that holds messages until their outcome is known."""

    max_bytes: Annotated[ByteSize, Field(ge=64 * 1024, le=2**40)] = 128 * 1024 * 1024
    """Largest size of all held messages, with their overhead."""


class DeliverySettings(_Section):
    """How messages are delivered."""

    engine: Literal["producer", "bruce"] = "producer"
    """`producer` writes idempotently and in order; `bruce` follows the design of Bruce."""
    shutdown_max_delay_ms: Milliseconds = 30_000
    """Time that a shutdown may take to deliver the held messages."""
    autocreate: bool = False
    """Whether topics that do not exist are created."""
    autocreate_with: Literal["metadata", "create_topics"] = "metadata"
    """`metadata` leaves the creation to the brokers' auto.create.topics.enable."""
    autocreate_partitions: Count | None = None
    """Partitions of created topics; needs `autocreate_with = "create_topics"`."""
    autocreate_replication_factor: Annotated[int, Field(ge=1, le=32767)] | None = None
    """Replicas of created topics; needs `autocreate_with = "create_topics"`."""
    autocreate_timeout_ms: Milliseconds = 20_000
    """Time after which messages of a topic that was not created are discarded."""
    error_table: Literal["seed", "bruce-2016", "dory", "modern"] | None = None
    """Engine `bruce`: what an error code means for a message."""
    max_failed_delivery_attempts: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """Engine `bruce`: a message is discarded when more attempts have failed."""
    pause_initial_ms: Milliseconds | None = None
    """Engine `bruce`: base of the delay after an error that pauses delivery."""
    pause_max_doublings: Annotated[int, Field(ge=0, le=16)] | None = None
    """Engine `bruce`: how often the base of the delay is doubled."""
    min_pause_ms: Milliseconds | None = None
    """Engine `bruce`: shortest pause."""
    dispatcher_restart_max_delay_ms: Milliseconds | None = None
    """Engine `bruce`: time for which a pause waits for outstanding responses."""
    produce_request_data_limit: ByteSize | None = None
    """Engine `bruce`: largest data of a Produce request; 0 for one message per request."""
    message_max_bytes: MessageBytes | None = None
    """Engine `bruce`: largest message set before compression, as message.max.bytes of brokers."""
    replication_timeout_ms: Milliseconds | None = None
    """Engine `bruce`: time that a broker has for the acknowledgements of the replicas."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.engine == "producer":
            for option in BRUCE_ONLY:
                if getattr(self, option) is not None:
                    raise ValueError(
                        f"`{option}` belongs to the engine bruce: remove it, or set "
                        'engine = "bruce"'
                    )
        if self.autocreate_with == "metadata":
            for option in ("autocreate_partitions", "autocreate_replication_factor"):
                if getattr(self, option) is not None:
                    raise ValueError(f'`{option}` needs autocreate_with = "create_topics"')
        return self


class BatchingSettings(_Section):
    """When the messages of a topic are sent. A batch is sent at the first limit that it reaches."""

    mode: Literal["per_topic", "combined", "off"] = "per_topic"
    """`off` sends each message at once. `combined` is of the engine `bruce`, see [combined]."""
    time_ms: Milliseconds | None = None
    """Largest age of a message in a batch."""
    messages: Count | None = None
    """Largest number of messages in a batch."""
    bytes: Annotated[ByteSize, Field(ge=1)] | None = None
    """Largest size of the keys and values in a batch."""


DEFAULT_BATCHING: Final = BatchingSettings(time_ms=10, bytes=128 * 1024)


class CombinedSettings(_Section):
    """Batches of messages of several topics; only the engine `bruce` has them."""

    time_ms: Milliseconds | None = None
    """Largest age of a message in a combined batch."""
    messages: Count | None = None
    """Largest number of messages in a combined batch."""
    bytes: Annotated[ByteSize, Field(ge=1)] | None = None
    """Largest size of the keys and values in a combined batch."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.time_ms is None and self.messages is None and self.bytes is None:
            raise ValueError("combined batches need one of `time_ms`, `messages` and `bytes`")
        return self


class CompressionSettings(_Section):
    """How batches are compressed."""

    type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    """Codec."""
    level: Annotated[int, Field(ge=-131072, le=22)] | None = None
    """Level of gzip, lz4 or zstd; the codec's default if not set."""
    min_bytes: Annotated[ByteSize, Field(le=2**31 - 1)] = 0
    """Batches with fewer bytes are sent uncompressed."""
    max_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Batches whose compressed size divided by their size is larger are sent uncompressed."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.level is not None:
            if self.type in ("none", "snappy"):
                raise ValueError(f"compression of type {self.type} has no `level`")
            try:
                _check_client({f"compression_{self.type}_level": self.level})
            except ConfigError as error:
                raise ValueError(f"`level`: {error.message}") from None
        return self


class RateLimitSettings(_Section):
    """Largest number of messages of a topic in a time; the others are discarded."""

    interval_ms: Annotated[int, Field(ge=1, le=2**31 - 1)]
    """Length of a window. The first window of a topic begins with its first message."""
    max_messages: Annotated[int, Field(ge=0, le=2**31 - 1)]
    """Messages of a topic that are accepted in a window."""


class LimitsSettings(_Section):
    """Limits of messages."""

    max_message_bytes: MessageBytes | None = None
    """Largest size of key and value; larger messages are discarded."""


class DeadLettersSettings(_Section):
    """A topic for messages that could not be delivered."""

    topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
    """Name of the topic, which must exist."""
    reasons: tuple[DeadLetterReason, ...] = get_args(DeadLetterReason)
    """Reasons for which a message is written there instead of being discarded."""


class DiscardsSettings(_Section):
    """Reports and log of discarded messages."""

    report_interval_s: Annotated[int, Field(ge=1, le=7 * 24 * 3600)] = 600
    """Length of the windows of the discard report."""
    sample_bytes: Annotated[ByteSize, Field(le=1024 * 1024)] = 256
    """Number of bytes of a discarded message that reports show."""
    log_lines: bool = True
    """Whether the process logs, at most every 30 seconds, how many messages it discarded."""
    log_path: str | None = None
    """File with a line for each message that is discarded, or that may be written twice."""
    log_max_file_bytes: ByteSize = 32 * 1024 * 1024
    """Size at which this file is renamed to PATH.MILLISECONDS, and a new one begun."""
    log_max_archive_bytes: ByteSize = 256 * 1024 * 1024
    """Largest size of all renamed files; the oldest are deleted."""
    log_max_prefix_bytes: Annotated[ByteSize, Field(le=2**31 - 1)] = 2048
    """Number of bytes of each key and value that are written."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.log_path is None:
            return self
        if 0 < self.log_max_archive_bytes < self.log_max_file_bytes:
            raise ValueError(
                f"`log_max_archive_bytes` is {self.log_max_archive_bytes}, and must be 0 or at "
                f"least log_max_file_bytes = {self.log_max_file_bytes}"
            )
        if not self.log_path.startswith("/"):
            raise ValueError(f"`log_path` is {self.log_path!r}, and must be absolute")
        return self


class DebugSettings(_Section):
    """Files with the messages of single topics, which are chosen over HTTP."""

    directory: str | None = None
    """Absolute path of the directory of the files; without it no topic can be chosen."""
    time_limit_s: Annotated[int, Field(ge=1, le=2**31 - 1)] = 3600
    """Time after which debugging ends by itself."""
    max_bytes: ByteSize = 2 * 1024**3
    """Size of the files, together, at which debugging ends by itself."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.directory is not None and not self.directory.startswith("/"):
            raise ValueError(f"`directory` is {self.directory!r}, and must be absolute")
        return self


class SpoolSettings(_Section):
    """Files that hold messages until their outcome is known, so that a restart loses none."""

    path: str
    """Absolute path of the directory. Its last part is created; only one gateway may use it."""
    max_bytes: Annotated[ByteSize, Field(ge=64 * 1024, le=2**50)] = 1024 * 1024 * 1024
    """Largest size of all files with messages. `when_full` of an input says what happens then."""
    segment_bytes: Annotated[ByteSize, Field(ge=4096, le=2**30)] = 16 * 1024 * 1024
    """Size of a file; a file is deleted when all of its messages have an outcome."""
    fsync: Literal["never", "interval", "each"] = "never"
    """When messages are written to the disk: `each` before they are accepted."""
    fsync_interval_ms: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1000
    """Time between two writes to the disk with `interval`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.path.startswith("/"):
            raise ValueError(f"`path` is {self.path!r}, and must be absolute")
        if 2 * self.segment_bytes > self.max_bytes:
            raise ValueError("`segment_bytes` is at most half of `max_bytes`")
        return self


class TopicSettings(_Section):
    """What is different for one topic: options that are not given are those of the whole file."""

    batching: BatchingSettings = BatchingSettings()
    """As in [batching]."""
    compression: CompressionSettings | None = None
    """As in [compression]; replaces the whole table."""
    rate_limit: RateLimitSettings | Literal["unlimited"] | None = None
    """As in [rate_limit]; "unlimited" removes the limit."""
    max_message_bytes: MessageBytes | None = None
    """Largest size of key and value; larger messages are discarded."""
    empty_key: Literal["null", "empty"] | None = None
    """What an empty key becomes; null by default."""
    empty_value: Literal["null", "empty"] | None = None
    """What an empty value becomes; empty by default, because null deletes in a compacted topic."""


class TopicRules(_Section):
    """The options in force for one topic."""

    batching: BatchingSettings
    compression: CompressionSettings
    rate_limit: RateLimitSettings | None
    max_message_bytes: int | None
    empty_key_null: bool
    empty_value_null: bool


class GatewaySettings(_Section):
    """The configuration of a gateway.

    Raises:
        ConfigError: `load` or `of` found an option that is unknown, wrong, or contradicts another.
    """

    kafka: Mapping[str, Any] = Field(default_factory=dict)
    """Client settings by their names."""
    inputs: tuple[InputSettings, ...] = ()
    """The sockets that programs write to."""
    http: HttpSettings | None = None
    """The HTTP interface. Without this table there is no HTTP."""
    pool: PoolSettings = PoolSettings()
    """The memory that holds messages until their outcome is known."""
    delivery: DeliverySettings = DeliverySettings()
    """How messages are delivered."""
    batching: BatchingSettings = DEFAULT_BATCHING
    """When messages are sent: a batch is sent at the first limit that it reaches. Without this
    table, `time_ms` is 10 and `bytes` is 128 KiB."""
    combined: CombinedSettings | None = None
    """Combined batches of the engine `bruce`."""
    compression: CompressionSettings = CompressionSettings()
    """How batches are compressed."""
    rate_limit: RateLimitSettings | None = None
    """Rate limit of each topic."""
    limits: LimitsSettings = LimitsSettings()
    """Limits of messages."""
    dead_letters: DeadLettersSettings | None = None
    """A topic for messages that could not be delivered; without the table they are discarded."""
    discards: DiscardsSettings = DiscardsSettings()
    """Reports and log of discarded messages."""
    debug: DebugSettings = DebugSettings()
    """Files with the messages of single topics."""
    spool: SpoolSettings | None = None
    """Files for messages; None to hold messages in memory only."""
    empty_key: Literal["null", "empty"] = "null"
    """What an empty key becomes."""
    empty_value: Literal["null", "empty"] = "empty"
    """What an empty value becomes."""
    topics: Mapping[str, TopicSettings] = Field(default_factory=dict)
    """Options of single topics."""

    SHORT: ClassVar[Mapping[str, str]] = {
        "unix_datagram": "path",
        "unix_stream": "path",
        "tcp": "port",
    }

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the settings of a TOML file.

        Raises:
            ConfigError: the file cannot be read, is not TOML, or an option is wrong. The message
                names the file, the line and, for an unknown option, the nearest one.
        """
        try:
            text = Path(path).read_bytes().decode("utf-8")
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"cannot read {path}: it is not UTF-8 text") from error
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            found = re.fullmatch(r"(.*) \(at line ([0-9]+), column [0-9]+\)", str(error))
            where, what = (path, error) if found is None else (f"{path}:{found[2]}", found[1])
            raise ConfigError(f"{where}: {what}") from error
        return cls.checked(values, source=str(path), lines=lines_of(text))

    @classmethod
    def of(
        cls,
        base: Self | None = None,
        *,
        bootstrap_servers: str | Sequence[str] | None = None,
        unix_datagram: str | None = None,
        unix_stream: str | None = None,
        tcp: int | None = None,
        http: int | None = None,
        spool: str | None = None,
    ) -> Self:
        """Return settings with the values of arguments.

        Args:
            base: settings to start from, such as those of a file; defaults if not given.
            bootstrap_servers: replaces the servers of `base`.
            unix_datagram: path of an input, in addition to those of `base`.
            unix_stream: path of an input, in addition to those of `base`.
            tcp: port of an input, in addition to those of `base`.
            http: port of the HTTP interface; replaces the port of `base`.
            spool: directory of the spool; replaces the directory of `base`.

        Raises:
            ConfigError: a value is wrong, or contradicts another.
        """
        values = {} if base is None else {name: getattr(base, name) for name in base.explicit}
        if bootstrap_servers is not None:
            values["kafka"] = {**values.get("kafka", {}), "bootstrap_servers": bootstrap_servers}
        given = {"unix_datagram": unix_datagram, "unix_stream": unix_stream, "tcp": tcp}
        more = [
            {"type": kind, cls.SHORT[kind]: value}
            for kind, value in given.items()
            if value is not None
        ]
        if more:
            values["inputs"] = [*values.get("inputs", ()), *more]
        if http is not None:
            old = values.get("http")
            kept = {} if old is None else {n: getattr(old, n) for n in old.model_fields_set}
            values["http"] = {**kept, "port": http}
        if spool is not None:
            had = values.get("spool")
            kept = {} if had is None else {n: getattr(had, n) for n in had.model_fields_set}
            values["spool"] = {**kept, "path": spool}
        return cls.checked(values)

    @property
    def explicit(self) -> frozenset[str]:
        """The names of the tables and options that were given."""
        return frozenset(self.model_fields_set)

    def of_topic(self, topic: str) -> TopicRules:
        """Return the options in force for a topic."""
        own = self.topics.get(topic, _NO_TOPIC)
        batching = own.batching
        given = {name: getattr(batching, name) for name in batching.model_fields_set}
        if given:
            # A topic that sets one limit keeps the other limits of the file, but no mode "off".
            batching = self.batching.model_copy(update={"mode": "per_topic", **given})
        else:
            batching = self.batching
        key = own.empty_key or self.empty_key
        value = own.empty_value or self.empty_value
        limits = [self.limits.max_message_bytes, own.max_message_bytes]
        rate = self.rate_limit if own.rate_limit is None else own.rate_limit
        return TopicRules(
            batching=batching,
            compression=own.compression or self.compression,
            rate_limit=None if rate == "unlimited" else rate,
            max_message_bytes=limits[1] if limits[1] is not None else limits[0],
            empty_key_null=key == "null",
            empty_value_null=value == "null",
        )

    @classmethod
    def checked(
        cls,
        values: Mapping[str, Any],
        *,
        source: str = "",
        lines: Mapping[OptionPath, int] | None = None,
    ) -> Self:
        """Return settings made from values as in a file.

        Args:
            source: name of the file, for errors.
            lines: the lines of its tables and options.

        Raises:
            ConfigError: an option is unknown, wrong, or contradicts another.
        """
        place = _Places(source, lines or {})
        try:
            settings = cls(**values)
        except ValidationError as error:
            raise ConfigError("\n".join(_texts(error, place))) from None
        settings._check_kafka(place)
        settings._check_together(place)
        return settings

    def _check_kafka(self, place: _Places) -> None:
        for name, value in self.kafka.items():
            where = place.of(("kafka", name))
            if name in OF_GATEWAY:
                raise ConfigError(f"{where}[kafka] has no {name!r}: {OF_GATEWAY[name]}")
            if name not in ProducerSettings.model_fields:
                near = _nearest(name, ProducerSettings.model_fields)
                raise ConfigError(f"{where}[kafka] has no setting {name!r}{near}")
            if self.delivery.engine == "bruce" and name not in ClusterSettings.model_fields:
                continue
            try:
                _check_client({name: value})
            except ConfigError as error:
                raise ConfigError(f"{where}[kafka] {error.message}") from None
        try:
            _check_client(self.kafka)
        except ConfigError as error:
            raise ConfigError(f"{place.of(('kafka',))}[kafka] {error.message}") from None

    def _check_together(self, place: _Places) -> None:
        self._check_discard_log(place)
        bruce = self.delivery.engine == "bruce"
        if self.combined is not None and not bruce:
            raise ConfigError(
                f"{place.of(('combined',))}[combined] belongs to the engine bruce: remove it, or "
                'set engine = "bruce" in [delivery]'
            )
        for path, batching in self._batchings():
            where = f"{place.of((*path, 'mode'))}[{'.'.join(path)}] `mode`"
            if batching.mode == "combined" and not bruce:
                raise ConfigError(
                    f'{where} = "combined" belongs to the engine bruce: use "per_topic", or set '
                    'engine = "bruce" in [delivery]'
                )
            if batching.mode == "combined" and self.combined is None:
                raise ConfigError(f'{where} = "combined" needs a table [combined]')
        for topic in ("", *self.topics):
            batching = self.of_topic(topic).batching
            limits = (batching.time_ms, batching.messages, batching.bytes)
            if batching.mode == "per_topic" and limits == (None, None, None):
                path = ("topics", topic, "batching") if topic else ("batching",)
                raise ConfigError(
                    f"{place.of(path)}[{'.'.join(path)}] needs one of `time_ms`, `messages` and "
                    '`bytes`, or mode = "off"'
                )
        seen: set[tuple[str, str]] = set()
        for index, one in enumerate(self.inputs):
            address = ("tcp" if one.type == "tcp" else "unix", one.where)
            if address in seen and one.port != 0:
                raise ConfigError(
                    f"{place.of(('inputs', index))}[[inputs]] {one.where} is given twice"
                )
            seen.add(address)

    def _check_discard_log(self, place: _Places) -> None:
        discards = self.discards
        largest = max([one.limit for one in self.inputs], default=0)
        least = 2 * largest_log_line(min(discards.log_max_prefix_bytes, largest))
        if discards.log_path is not None and discards.log_max_file_bytes < least:
            where = place.of(("discards", "log_max_file_bytes"))
            raise ConfigError(
                f"{where}[discards] `log_max_file_bytes` is {discards.log_max_file_bytes}, and two "
                f"lines may need {least} bytes: raise it, or lower `log_max_prefix_bytes`"
            )

    def _batchings(self) -> Iterable[tuple[tuple[str, ...], BatchingSettings]]:
        yield ("batching",), self.batching
        for name, topic in self.topics.items():
            yield ("topics", name, "batching"), topic.batching


_NO_TOPIC: Final = TopicSettings()


def _check_client(values: Mapping[str, Any]) -> None:
    """Raise ConfigError if client settings are wrong."""
    ProducerSettings(**values)


class _Places:
    """The texts with which errors name a place in the file."""

    def __init__(self, source: str, lines: Mapping[OptionPath, int]) -> None:
        self._source = source
        self._lines = lines

    def of(self, path: OptionPath) -> str:
        """Return "FILE:LINE: " for an option, or for the nearest table that has a line."""
        if not self._source:
            return ""
        for end in range(len(path), 0, -1):
            line = self._lines.get(path[:end])
            if line is not None:
                return f"{self._source}:{line}: "
        return f"{self._source}: "


def _texts(error: ValidationError, place: _Places) -> Iterable[str]:
    """Yield one text per error, in the order of the file's options."""
    for one in error.errors(include_url=False):
        if any(isinstance(one["input"], dict) is unlikely for unlikely in _unlikely(one["loc"])):
            continue
        path = tuple(step for step in one["loc"] if step not in _BRANCHES)
        where = place.of(path)
        table = _table(path[:-1])
        name = path[-1] if path else ""
        if one["type"] == "extra_forbidden":
            near = _nearest(str(name), _options(path[:-1]))
            what = f"{table} has no option" if table else "there is no table or option"
            yield f"{where}{what} {str(name)!r}{near}"
        elif one["type"] == "missing":
            yield f"{place.of(path[:-1])}{table} needs the option {str(name)!r}"
        elif one["type"] == "value_error" and _model_at(path) is not None:
            text = _message(one["msg"])
            named = re.search("`([a-z_]+)`", text)
            where = where if named is None else place.of((*path, named[1]))
            yield f"{where}{_table(path)} {text}"
        else:
            yield f"{where}{table + ' ' if table else ''}`{name}`: {_message(one['msg'])}"


_BRANCHES: Final = frozenset({"str", "int", "RateLimitSettings", "literal['unlimited']"})
"""Steps in the places of pydantic's errors that name a branch of a union, not an option."""


def _unlikely(path: Sequence[str | int]) -> Iterable[bool]:
    """Yield, for each branch of a union in `path`, whether the branch is wrong for tables."""
    for step in path:
        if step == "literal['unlimited']":
            yield True
        elif step == "RateLimitSettings":
            yield False


def _message(text: str) -> str:
    text = text.removeprefix("Value error, ")
    return text[:1].lower() + text[1:]


def _table(path: Sequence[str | int]) -> str:
    """Return a table as in the file, such as [topics.orders] or [[inputs]] #2."""
    if not path:
        return ""
    if isinstance(path[-1], int):
        return f"[[{'.'.join(map(str, path[:-1]))}]] #{path[-1] + 1}"
    return f"[{'.'.join(map(str, path))}]"


def _model_at(path: Sequence[str | int]) -> type[BaseModel] | None:
    """Return the model of the table at `path`; None if there is no such table."""
    if not path:
        return GatewaySettings
    model, rest = TABLES.get(str(path[0])), path[1:]
    if model is TopicSettings:
        if len(rest) < 2:
            return model
        model, rest = _TOPIC_TABLES.get(str(rest[1])), rest[2:]
    elif model is InputSettings:
        rest = rest[1:]
    return None if rest else model


TABLES: Final[Mapping[str, type[BaseModel]]] = {
    "inputs": InputSettings,
    "http": HttpSettings,
    "pool": PoolSettings,
    "delivery": DeliverySettings,
    "batching": BatchingSettings,
    "combined": CombinedSettings,
    "compression": CompressionSettings,
    "rate_limit": RateLimitSettings,
    "limits": LimitsSettings,
    "dead_letters": DeadLettersSettings,
    "discards": DiscardsSettings,
    "debug": DebugSettings,
    "spool": SpoolSettings,
    "topics": TopicSettings,
}
"""The models of the tables, by name; of an array or a table of tables, the model of its elements.
"""


_TOPIC_TABLES: Final[Mapping[str, type[BaseModel]]] = {
    "batching": BatchingSettings,
    "compression": CompressionSettings,
    "rate_limit": RateLimitSettings,
}
"""The models of the tables of one topic."""


def _options(path: Sequence[str | int]) -> Iterable[str]:
    model = _model_at(path)
    return () if model is None else model.model_fields


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name.lower().replace("-", "_").replace(".", "_"), [*known], 1)
    return f": did you mean {near[0]!r}?" if near else ""
