"""GatewaySettings: the configuration of a gateway, from a TOML file or from arguments.

Errors name the file and the line, and for an unknown option the nearest known one. Nothing here
opens a socket or reads a file other than the configuration. Tests:
tests/unit/gateway/test_settings.py.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import Field, ValidationError

from aiokq import ClusterSettings, ProducerSettings
from aiokq.errors import ConfigError
from aiokq.gateway.settings_errors import Places, error_texts, table_name
from aiokq.gateway.settings_tables import (
    DEFAULT_BATCHING,
    BatchingSettings,
    CombinedSettings,
    CompressionSettings,
    DeadLettersSettings,
    DebugSettings,
    DeliverySettings,
    DiscardsSettings,
    HttpSettings,
    InputSettings,
    LimitsSettings,
    PoolSettings,
    RateLimitSettings,
    Section,
    SpoolSettings,
    TopicRules,
    TopicSettings,
    check_client,
)
from aiokq.gateway.sizes import Path as OptionPath
from aiokq.gateway.sizes import largest_log_line, lines_of

__all__ = ["GatewaySettings"]

_NO_FILE: Final = Places("", {})

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
    "ssl_context": "it is a Python object: set the files, such as `ssl_cafile`",
}
"""Client settings that [kafka] refuses, with what to do instead."""

OF_BRUCE: Final = ClusterSettings.model_fields.keys() | {"acks"}
"""Client settings that the engine `bruce` uses; it has no Producer."""


class GatewaySettings(Section):
    """The configuration of a gateway.

    Raises:
        ConfigError: `load` or `of` found an option that is unknown, wrong, or contradicts another.
    """

    kafka: Mapping[str, Any] = Field(default_factory=dict, repr=False)
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
    """When messages are sent: a batch is sent at the first limit that it reaches, or earlier if the
    pool is nearly full of messages that wait in batches. Without this table, `time_ms` is 10 and
    `bytes` is 128 KiB."""
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
    """Files for messages. Without this table, messages are in memory only."""
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
        return cls.read(path)[0]

    @classmethod
    def read(cls, path: str | Path) -> tuple[Self, Places]:
        """Return the settings of a TOML file as `load` does, and the places of its options."""
        try:
            text = Path(path).read_bytes().decode("utf-8")
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
        except UnicodeDecodeError:
            raise ConfigError(f"cannot read {path}: it is not UTF-8 text") from None
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            found = re.fullmatch(r"(.*) \(at line ([0-9]+), column [0-9]+\)", str(error))
            where, what = (path, error) if found is None else (f"{path}:{found[2]}", found[1])
            raise ConfigError(f"{where}: {what}") from error
        place = Places(str(path), lines_of(text))
        return cls.checked(values, place), place

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
            ConfigError: a value is wrong, or contradicts another value.
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
            # A topic that sets a limit inherits the other limits of the file, but not the mode.
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
    def checked(cls, values: Mapping[str, Any], place: Places = _NO_FILE) -> Self:
        """Return settings made from values as in a file.

        Args:
            place: the places of the options in the file, for errors.

        Raises:
            ConfigError: an option is unknown, wrong, or contradicts another.
        """
        try:
            settings = cls(**values)
        except ValidationError as error:
            raise ConfigError("\n".join(error_texts(error, place, cls))) from None
        settings._check_kafka(place)
        settings._check_together(place)
        return settings

    def _check_kafka(self, place: Places) -> None:
        for name, given in self.kafka.items():
            where = place.of(("kafka", name))
            if _has_nul(given):
                raise ConfigError(f"{where}[kafka] `{name}` must not have a NUL character")
            if name in OF_GATEWAY:
                raise ConfigError(f"{where}[kafka] has no {name!r}: {OF_GATEWAY[name]}")
            if name not in ProducerSettings.model_fields:
                path, value = _whole_name(name, self.kafka[name])
                try:
                    check_client({".".join(path): value})
                except ConfigError as error:  # it suggests a setting
                    where = place.of(("kafka", *path))
                    raise ConfigError(f"{where}[kafka] {error.message}") from None
            elif self.delivery.engine == "bruce" and name not in OF_BRUCE:
                raise ConfigError(
                    f"{where}[kafka] `{name}` belongs to the engine producer: remove it, or set "
                    'engine = "producer" in [delivery]'
                )
        try:
            check_client(self.kafka)
        except ConfigError as error:
            where = place.of(("kafka", *self._wrong_setting(error)))
            raise ConfigError(f"{where}[kafka] {error.message}") from None

    def _wrong_setting(self, refusal: ConfigError) -> tuple[str, ...]:
        """Return the path of the first [kafka] setting that alone causes `refusal` or a part of it.

        The path is () if only a combination of settings causes the error. Each setting is checked
        alone. An error of this check counts only if `refusal` contains its text, because a setting
        that is refused alone may be valid together with others: a SASL protocol needs a password.
        """
        for name, value in self.kafka.items():
            try:
                check_client({name: value})
            except ConfigError as error:
                if error.message in refusal.message:
                    return (name,)
        return ()

    def _check_together(self, place: Places) -> None:
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
        self._check_ports(place)
        self._check_paths(place)

    def _check_ports(self, place: Places) -> None:
        """Raise ConfigError if two parts of the gateway would listen at one port."""
        used: list[tuple[str, int, str]] = []
        for index, one in enumerate(self.inputs):
            if one.port:
                name, path = f"[[inputs]] #{index + 1}", ("inputs", index, "port")
                _check_free(used, one.host, one.port, name, place.of(path))
        if self.http is not None and self.http.port:
            where = place.of(("http", "port"))
            _check_free(used, self.http.host, self.http.port, "[http]", where)

    def _check_paths(self, place: Places) -> None:
        """Raise ConfigError if two parts of the gateway would create one path."""
        used: dict[Sequence[str], str] = {}
        for path, option, given in self.created_paths():
            name = table_name(path)
            parts = PurePosixPath(given).parts[1:]
            if parts in used:
                raise ConfigError(
                    f"{place.of((*path, option))}{name} `{option}`: {given} is given twice: it is "
                    f"that of {used[parts]}, too"
                )
            used[parts] = name

    def created_paths(self) -> Iterable[tuple[OptionPath, str, str]]:
        """Yield the paths that the gateway creates: their table, option and value."""
        for index, one in enumerate(self.inputs):
            if one.path is not None:
                yield ("inputs", index), "path", one.path
        if self.spool is not None:
            yield ("spool",), "path", self.spool.path
        if self.discards.log_path is not None:
            yield ("discards",), "log_path", self.discards.log_path
        if self.debug.directory is not None:
            yield ("debug",), "directory", self.debug.directory

    def _check_discard_log(self, place: Places) -> None:
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


def _has_nul(value: object) -> bool:
    """Return whether a text, or a text in a list or table, has a NUL character."""
    if isinstance(value, Mapping):
        return any(map(_has_nul, (*value, *value.values())))
    if isinstance(value, list | tuple):
        return any(map(_has_nul, value))
    return isinstance(value, str) and "\0" in value


def _check_free(
    used: list[tuple[str, int, str]], host: str, port: int, name: str, where: str
) -> None:
    """Add an address to those in use; raise ConfigError if one of them has the same port."""
    for other_host, other_port, other in used:
        if port == other_port and _overlap(host, other_host):
            raise ConfigError(
                f"{where}{name} `port`: {host}:{port} is given twice: {other} listens at "
                f"{other_host}:{other_port}"
            )
    used.append((host, port, name))


def _overlap(host: str, other: str) -> bool:
    """Return whether only one socket can listen at a port of both hosts."""
    return any(
        one.version == two.version and (one == two or one.is_unspecified or two.is_unspecified)
        for one in _addresses(host)
        for two in _addresses(other)
    )


def _addresses(host: str) -> Iterator[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Yield the addresses of a host; none for a name that the system would have to look up."""
    for text in {"": ("0.0.0.0", "::"), "localhost": ("127.0.0.1", "::1")}.get(host, (host,)):
        with contextlib.suppress(ValueError):
            yield ipaddress.ip_address(text)


def _whole_name(name: str, value: object) -> tuple[list[str], object]:
    """Return the parts and the value of a setting whose name has dots, as in Java.

    TOML reads such a name as nested tables: `bootstrap.servers` is `servers` in `bootstrap`.
    """
    path = [name]
    while isinstance(value, Mapping) and value:
        part, value = next(iter(value.items()))
        path.append(str(part))
    return path, value


_NO_TOPIC: Final = TopicSettings()
