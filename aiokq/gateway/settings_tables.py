"""The tables of a gateway's configuration, each with its options and their limits.

Nothing here opens a socket or reads a file. Tests: tests/unit/gateway/test_settings.py.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from aiokq import ProducerSettings
from aiokq.errors import ConfigError
from aiokq.gateway.sizes import ByteSize, Mode

__all__ = [
    "BatchingSettings",
    "CombinedSettings",
    "CompressionSettings",
    "DEFAULT_BATCHING",
    "DeadLettersSettings",
    "DebugSettings",
    "DeliverySettings",
    "DiscardsSettings",
    "HttpSettings",
    "InputSettings",
    "LARGEST_ID",
    "LimitsSettings",
    "PoolSettings",
    "RateLimitSettings",
    "Section",
    "SpoolSettings",
    "TABLES",
    "TOPIC_TABLES",
    "TopicRules",
    "TopicSettings",
    "check_client",
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
LARGEST_ID: Final = 2**32 - 2
"""The largest number of a user or group."""


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


class Section(BaseModel):
    """A table of the file: frozen, without unknown options."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )

    @field_validator("*")
    @classmethod
    def _check_text(cls, value: object) -> object:
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, str) and "\0" in one:
                raise ValueError("must not have a NUL character")
        return value


class InputSettings(Section):
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
    """Owner of the socket file: name or number of a user."""
    group: str | int | None = None
    """Group of the socket file: name or number of a group."""
    allowed_users: tuple[str | int, ...] | None = None
    """Users whose connections or datagrams are accepted; by default, all users."""
    max_message_bytes: MessageBytes | None = None
    """Largest message; by default, 64 KiB for datagrams and 2 MiB for streams."""
    allow_large_datagrams: bool = False
    """Whether `max_message_bytes` may require that senders raise their SO_SNDBUF."""
    when_full: Literal["discard", "block"] = "discard"
    """What happens while the pool is full, or a topic has its share of it: discard messages, or
    stop reading this input."""
    max_connections: Count = 1024
    """Largest number of open connections of a stream input; further ones wait."""
    idle_ms: Milliseconds = 0
    """Time after which a connection without data is closed; 0 for never."""
    idle_when_full_ms: Milliseconds = 10_000
    """Time after which a connection without data is closed if another one waits for its place; 0
    for never."""
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
        """The address as text: a path, or host and port."""
        return f"{self.host}:{self.port}" if self.type == "tcp" else str(self.path)

    @field_validator("owner", "group", "allowed_users")
    @classmethod
    def _check_ids(cls, value: object) -> object:
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, int) and not 0 <= one <= LARGEST_ID:
                raise ValueError(f"there is no user or group {one}")
        return value

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
            for option in ("max_connections", "idle_ms", "idle_when_full_ms", "partial_message_ms"):
                if option in self.model_fields_set:
                    raise ValueError(f"an input of type unix_datagram has no `{option}`")
        elif self.allow_large_datagrams:
            raise ValueError(f"an input of type {self.type} has no `allow_large_datagrams`")
        return self


class HttpSettings(Section):
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


class PoolSettings(Section):
    """The memory that holds messages until their outcome is known."""

    max_bytes: Annotated[ByteSize, Field(ge=64 * 1024, le=2**40)] = 128 * 1024 * 1024
    """Largest size of all held messages, with their overhead."""


class DeliverySettings(Section):
    """The delivery of messages: engine, retries and shutdown."""

    engine: Literal["producer", "bruce"] = "producer"
    """`producer` writes idempotently and in order; `bruce` follows the design of Bruce."""
    shutdown_max_delay_ms: Milliseconds = 30_000
    """Time that a shutdown may take: the inputs are read to their end, and messages delivered."""
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
    """Engine `bruce`: what an error code means for a message; `modern` if not set."""
    max_failed_delivery_attempts: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """Engine `bruce`: a message is discarded when more than this number of attempts have failed; 5
    if not set."""
    pause_initial_ms: Milliseconds | None = None
    """Engine `bruce`: base of the delay after an error that pauses delivery; 5000 if not set."""
    pause_max_doublings: Annotated[int, Field(ge=0, le=16)] | None = None
    """Engine `bruce`: how often the base of the delay is doubled; 4 if not set."""
    min_pause_ms: Milliseconds | None = None
    """Engine `bruce`: shortest pause; 5000 if not set."""
    dispatcher_restart_max_delay_ms: Milliseconds | None = None
    """Engine `bruce`: time for which a restart of the dispatchers waits for outstanding responses;
    5000 if not set."""
    produce_request_data_limit: ByteSize | None = None
    """Engine `bruce`: largest data of a Produce request, 0 for one message per request; 1 MiB if
    not set."""
    message_max_bytes: MessageBytes | None = None
    """Engine `bruce`: largest message set before compression; should not exceed the brokers'
    message.max.bytes; 1000000 if not set."""
    replication_timeout_ms: Milliseconds | None = None
    """Engine `bruce`: time that a broker has for the acknowledgements of the replicas; 10000 if not
    set."""

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


class BatchingSettings(Section):
    """The limits of batches. A batch is sent at the first limit that it reaches.

    It is sent earlier if an eighth of the pool or less is free, and the messages that wait in
    batches use at least as much.
    """

    mode: Literal["per_topic", "combined", "off"] = "per_topic"
    """`off` sends each message at once. `combined` needs the engine `bruce`, see [combined]."""
    time_ms: Milliseconds | None = None
    """Largest age of a message in a batch."""
    messages: Count | None = None
    """Largest number of messages in a batch."""
    bytes: Annotated[ByteSize, Field(ge=1)] | None = None
    """Largest size of the keys and values in a batch."""


DEFAULT_BATCHING: Final = BatchingSettings(time_ms=10, bytes=128 * 1024)


class CombinedSettings(Section):
    """Limits of batches with messages of several topics, for the engine `bruce` only."""

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


class CompressionSettings(Section):
    """The compression of batches."""

    type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    """Codec."""
    level: Annotated[int, Field(ge=-131072, le=22)] | None = None
    """Level of gzip, lz4 or zstd; the codec's default if not set."""
    min_bytes: Annotated[ByteSize, Field(le=2**31 - 1)] = 0
    """Batches with fewer bytes are sent uncompressed."""
    max_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Largest ratio of compressed to uncompressed size; other batches are sent uncompressed."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.level is not None:
            if self.type in ("none", "snappy"):
                raise ValueError(f"compression of type {self.type} has no `level`")
            try:
                check_client({f"compression_{self.type}_level": self.level})
            except ConfigError as error:
                raise ValueError(f"`level`: {error.message}") from None
        return self


class RateLimitSettings(Section):
    """A limit on the messages of a topic per window of time; further messages are discarded."""

    interval_ms: Annotated[int, Field(ge=1, le=2**31 - 1)]
    """Length of a window. The first window of a topic begins with its first message."""
    max_messages: Annotated[int, Field(ge=0, le=2**31 - 1)]
    """Messages of a topic that are accepted in a window."""


class LimitsSettings(Section):
    """Limits of messages."""

    max_message_bytes: MessageBytes | None = None
    """Largest size of key and value; larger messages are discarded."""


class DeadLettersSettings(Section):
    """A topic for messages that could not be delivered."""

    topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
    """Name of the topic, which must exist."""
    reasons: tuple[DeadLetterReason, ...] = get_args(DeadLetterReason)
    """Reasons for which a message is written to this topic instead of being discarded."""
    max_per_s: Annotated[int, Field(ge=0, le=2**31 - 1)] = 1000
    """Largest number of dead letters per second for messages that are too long, or whose topic does
    not exist or could not be created; 0 for no limit. Further such messages are discarded."""


class DiscardsSettings(Section):
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
    """Size at which the log is renamed to PATH.MILLISECONDS, and a new file is begun."""
    log_max_archive_bytes: ByteSize = 256 * 1024 * 1024
    """Largest size of all renamed files; the oldest are deleted."""
    log_max_prefix_bytes: Annotated[ByteSize, Field(le=2**31 - 1)] = 2048
    """Number of bytes of each key and value that are written to the log."""

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


class DebugSettings(Section):
    """Debug files with the messages of topics that are chosen over HTTP."""

    directory: str | None = None
    """Absolute path of the directory of the files; without it no topic can be chosen."""
    time_limit_s: Annotated[int, Field(ge=1, le=2**31 - 1)] = 3600
    """Time after which debugging ends by itself."""
    max_bytes: ByteSize = 2 * 1024**3
    """Total size of the files at which debugging ends by itself."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.directory is not None and not self.directory.startswith("/"):
            raise ValueError(f"`directory` is {self.directory!r}, and must be absolute")
        return self


class SpoolSettings(Section):
    """Files that hold messages until their outcome is known, so that a restart loses none."""

    path: str
    """Absolute path of the directory. Its last part is created; only one gateway may use it."""
    max_bytes: Annotated[ByteSize, Field(ge=64 * 1024, le=2**50)] = 1024 * 1024 * 1024
    """Total size of the files with messages at which `when_full` of the inputs applies."""
    segment_bytes: Annotated[ByteSize, Field(ge=4096, le=2**30)] = 16 * 1024 * 1024
    """Size of a file; a file is deleted when all of its messages have an outcome."""
    fsync: Literal["never", "interval", "each"] = "never"
    """When messages are synced to the disk; with `each`, before they are accepted."""
    fsync_interval_ms: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1000
    """Time between two syncs with `interval`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.path.startswith("/"):
            raise ValueError(f"`path` is {self.path!r}, and must be absolute")
        if 2 * self.segment_bytes > self.max_bytes:
            raise ValueError("`segment_bytes` is at most half of `max_bytes`")
        return self


class TopicSettings(Section):
    """Options of one topic; options that are not given have the values of the whole file."""

    batching: BatchingSettings = BatchingSettings()
    """As in [batching]."""
    compression: CompressionSettings | None = None
    """As in [compression]; replaces the whole table."""
    rate_limit: RateLimitSettings | Literal["unlimited"] | None = None
    """As in [rate_limit]; "unlimited" removes the limit."""
    max_message_bytes: MessageBytes | None = None
    """Largest size of key and value; larger messages are discarded."""
    empty_key: Literal["null", "empty"] | None = None
    """What an empty key becomes; by default, `empty_key` of the whole file."""
    empty_value: Literal["null", "empty"] | None = None
    """What an empty value becomes; by default, `empty_value` of the whole file. In a compacted
    topic, null deletes the key."""


class TopicRules(Section):
    """The options in force for one topic."""

    batching: BatchingSettings
    compression: CompressionSettings
    rate_limit: RateLimitSettings | None
    max_message_bytes: int | None
    empty_key_null: bool
    empty_value_null: bool


def check_client(values: Mapping[str, Any]) -> None:
    """Raise ConfigError if client settings are wrong."""
    ProducerSettings(**values)


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
"""The models of the tables, by name. The model of an array or table of tables is that of its
elements.
"""


TOPIC_TABLES: Final[Mapping[str, type[BaseModel]]] = {
    "batching": BatchingSettings,
    "compression": CompressionSettings,
    "rate_limit": RateLimitSettings,
}
"""The models of the tables of one topic."""
