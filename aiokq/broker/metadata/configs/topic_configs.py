"""The topic settings: names, types, ranges, units, descriptions and server defaults in one table.

The broker's own settings are in ``config.settings``; ``log.config.LogConfig`` has a topic's values.
Settings of tiered storage, which is not supported, are refused as unknown.

Source: Kafka ``TopicConfig.java``, ``LogConfig.java``, ``ServerTopicConfigSynonyms.java``.
Tests: ``tests/unit/broker/metadata/configs/test_topic_configs.py``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Final

from aiokq.broker.config.setting import Setting, SettingValue, java_text, shortened
from aiokq.broker.config.settings import BrokerSettings
from aiokq.broker.log.config import LogConfig
from aiokq.core.errors import ConfigError, InvalidConfiguration

__all__ = [
    "TOPIC_CONFIGS",
    "TopicConfig",
    "check_topic_configs",
    "config_text",
    "log_config",
    "served_configs",
    "server_text",
]

logger = logging.getLogger("aiokq.broker")

MOST_CHARACTERS: Final = 1000
"""Maximum number of characters of the reason in an error message.

A longer reason is cut off, because the message must be shorter than 32 KiB.
"""

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
_DEFAULTS: Final = LogConfig()


class TopicConfig(Setting):
    """One row of ``TOPIC_CONFIGS``.

    Attributes:
        server: names of the broker settings with the default value; the first one that has a
            value applies.
        unit: unit of the value; "" if it has none.
    """

    __slots__ = ("server", "unit")

    def __init__(
        self,
        name: str,
        field: str,
        kind: str,
        default: SettingValue,
        doc: str,
        at_least: float | None,
        at_most: float | None,
        choices: tuple[str, ...],
        *,
        server: tuple[str, ...],
        unit: str,
    ) -> None:
        super().__init__(name, field, kind, default, doc, at_least, at_most, choices)
        self.server = server
        self.unit = unit


def _row(
    name: str,
    kind: str,
    doc: str,
    *server: str,
    at_least: float | None = None,
    at_most: float | None = None,
    choices: tuple[str, ...] = (),
    unit: str = "",
) -> TopicConfig:
    field = name.replace(".", "_")
    value = getattr(_DEFAULTS, field)
    default: SettingValue = ",".join(value) if isinstance(value, tuple) else value
    return TopicConfig(
        name,
        field,
        kind,
        default,
        doc,
        at_least,
        at_most,
        choices,
        server=server,
        unit=unit,
    )


_ROWS: Final = (
    _row(
        "cleanup.policy",
        "list",
        "How the log is bounded: `delete` removes old segments by time and size, `compact` "
        "keeps the newest record of each key, or both. If empty, everything is kept.",
        "log.cleanup.policy",
        choices=("compact", "delete"),
    ),
    _row(
        "compression.gzip.level",
        "int",
        "gzip level of batches that the broker compresses: 1 to 9; -1 for the library's default.",
        "compression.gzip.level",
        at_least=-1,
        at_most=9,
    ),
    _row(
        "compression.lz4.level",
        "int",
        "lz4 level of batches that the broker compresses.",
        "compression.lz4.level",
        at_least=1,
        at_most=17,
    ),
    _row(
        "compression.type",
        "string",
        "Compression codec of stored batches; `producer` keeps the producer's codec. With any "
        "other value, the broker compresses the batches that arrive with a different codec.",
        "compression.type",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    _row(
        "compression.zstd.level",
        "int",
        "zstd level of batches that the broker compresses.",
        "compression.zstd.level",
        at_least=-131072,
        at_most=22,
    ),
    _row(
        "delete.retention.ms",
        "long",
        "How long tombstones and transaction markers are kept after they were first compacted.",
        "log.cleaner.delete.retention.ms",
        at_least=0,
        unit="ms",
    ),
    _row(
        "file.delete.delay.ms",
        "long",
        "How long the files of a deleted segment are kept under the suffix `.deleted`.",
        "log.segment.delete.delay.ms",
        at_least=0,
        unit="ms",
    ),
    _row(
        "flush.messages",
        "long",
        "Number of unflushed records at which the log is flushed to disk.",
        "log.flush.interval.messages",
        at_least=1,
        unit="records",
    ),
    _row(
        "flush.ms",
        "long",
        "Maximum time until an appended record is flushed to disk.",
        "log.flush.interval.ms",
        at_least=0,
        unit="ms",
    ),
    _row(
        "follower.replication.throttled.replicas",
        "list",
        "Replicas that are throttled as followers, as partition:broker pairs or `*`.",
    ),
    _row(
        "index.interval.bytes",
        "int",
        "Bytes appended between two entries of the offset index.",
        "log.index.interval.bytes",
        at_least=0,
        unit="bytes",
    ),
    _row(
        "leader.replication.throttled.replicas",
        "list",
        "Replicas that are throttled as leaders, as partition:broker pairs or `*`.",
    ),
    _row(
        "max.compaction.lag.ms",
        "long",
        "Age at which a record must be compacted.",
        "log.cleaner.max.compaction.lag.ms",
        at_least=1,
        unit="ms",
    ),
    _row(
        "max.message.bytes",
        "int",
        "Maximum size of a record batch, after compression.",
        "message.max.bytes",
        at_least=0,
        unit="bytes",
    ),
    _row(
        "message.timestamp.after.max.ms",
        "long",
        "Maximum time by which a CreateTime may be after the broker's clock.",
        "log.message.timestamp.after.max.ms",
        at_least=0,
        unit="ms",
    ),
    _row(
        "message.timestamp.before.max.ms",
        "long",
        "Maximum time by which a CreateTime may be before the broker's clock.",
        "log.message.timestamp.before.max.ms",
        at_least=0,
        unit="ms",
    ),
    _row(
        "message.timestamp.type",
        "string",
        "Timestamp of a record: the producer's (CreateTime) or the time of the append "
        "(LogAppendTime).",
        "log.message.timestamp.type",
        choices=("CreateTime", "LogAppendTime"),
    ),
    _row(
        "min.cleanable.dirty.ratio",
        "double",
        "Uncompacted part of the log, from 0 to 1, above which the log is compacted.",
        "log.cleaner.min.cleanable.ratio",
        at_least=0,
        at_most=1,
    ),
    _row(
        "min.compaction.lag.ms",
        "long",
        "Age below which a record is not compacted.",
        "log.cleaner.min.compaction.lag.ms",
        at_least=0,
        unit="ms",
    ),
    _row(
        "min.insync.replicas",
        "int",
        "Replicas that must be in sync for acks=all.",
        "min.insync.replicas",
        at_least=1,
    ),
    _row(
        "preallocate",
        "boolean",
        "Allocate the file of a new segment in full; the unused rest is cut off when the log "
        "rolls.",
        "log.preallocate",
    ),
    _row(
        "retention.bytes",
        "long",
        "Size of a partition's log above which its oldest segments are deleted; -1 for no limit.",
        "log.retention.bytes",
        at_least=-1,
        unit="bytes",
    ),
    _row(
        "retention.ms",
        "long",
        "Age of the newest record of a segment at which the segment is deleted; -1 for never.",
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
        at_least=-1,
        unit="ms",
    ),
    _row(
        "segment.bytes",
        "int",
        "Size at which the log rolls to a new segment.",
        "log.segment.bytes",
        at_least=1_048_576,
        unit="bytes",
    ),
    _row(
        "segment.index.bytes",
        "int",
        "Maximum size of an index file of a segment.",
        "log.index.size.max.bytes",
        at_least=4,
        unit="bytes",
    ),
    _row(
        "segment.jitter.ms",
        "long",
        "Maximum time subtracted from segment.ms, so that logs do not roll together.",
        "log.roll.jitter.ms",
        "log.roll.jitter.hours",
        at_least=0,
        unit="ms",
    ),
    _row(
        "segment.ms",
        "long",
        "Age at which the log rolls to a new segment: by the timestamps of the segment's "
        "records, or by the clock if nothing is appended.",
        "log.roll.ms",
        "log.roll.hours",
        at_least=1,
        unit="ms",
    ),
    _row(
        "unclean.leader.election.enable",
        "boolean",
        "Elect a replica that is not in sync if no in-sync replica is left.",
        "unclean.leader.election.enable",
    ),
)

_REPLICAS: Final = r"\*|(\d+:\d+(\s*,\s*\d+:\d+)*)?"

TOPIC_CONFIGS: Final[Mapping[str, TopicConfig]] = {row.name: row for row in _ROWS}
"""Every topic setting by Kafka's name."""


def check_topic_configs(
    configs: Mapping[str, str | None], settings: BrokerSettings | None = None
) -> dict[str, str]:
    """Check settings against ``TOPIC_CONFIGS``; return the values to store.

    Args:
        settings: the settings in effect on the broker, which determine the compaction lags that
            ``configs`` does not set; None uses Kafka's defaults.

    Raises:
        InvalidConfiguration: an unknown name, a missing or invalid value, or a minimum compaction
            lag above the maximum.
    """
    checked: dict[str, str] = {}
    values: dict[str, SettingValue] = {}
    for name, text in configs.items():
        row = TOPIC_CONFIGS.get(name)
        if row is None:
            unknown = f"Unknown topic config name: {name}"
            raise InvalidConfiguration(ConfigError.unknown(unknown, name, TOPIC_CONFIGS).message)
        if text is None:
            raise InvalidConfiguration(f"topic config {name} must not be null")
        values[name] = _parse(row, text)
        checked[name] = text.strip()
    low, high = (
        values.get(row.name, row.default if settings is None else _server_default(row, settings))
        for row in (TOPIC_CONFIGS["min.compaction.lag.ms"], TOPIC_CONFIGS["max.compaction.lag.ms"])
    )
    if isinstance(low, int) and isinstance(high, int) and low > high:
        raise InvalidConfiguration(
            f"conflict: min.compaction.lag.ms {low} is above max.compaction.lag.ms {high}"
        )
    return checked


def served_configs(topic: str, configs: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a topic that this broker can apply, and log the other settings.

    Apache Kafka may have stored settings that this broker does not know, or values that this broker
    does not allow. They stay in the metadata.
    """
    served: dict[str, str] = {}
    for name, text in configs.items():
        row = TOPIC_CONFIGS.get(name)
        if row is None:
            logger.info("setting of Apache Kafka has no effect topic=%s name=%s", topic, name)
            continue
        try:
            _parse(row, text)
        except InvalidConfiguration as error:
            logger.warning("invalid setting ignored topic=%s error=%s", topic, error.message)
        else:
            served[name] = text
    return served


def log_config(configs: Mapping[str, str], settings: BrokerSettings) -> LogConfig:
    """Return the complete typed settings of a topic: its own, and the server's defaults.

    Raises:
        InvalidConfiguration: a value of the topic is invalid.
    """
    fields: dict[str, object] = {}
    for name, row in TOPIC_CONFIGS.items():
        text = configs.get(name)
        value = _server_default(row, settings) if text is None else _parse(row, text)
        if row.kind == "list":
            value_list = str(value or "").split(",")
            fields[row.field] = tuple(item.strip() for item in value_list if item.strip())
        else:
            fields[row.field] = value
    return LogConfig(**fields)  # type: ignore[arg-type]  # each value has its field's type


def config_text(config: LogConfig, name: str) -> str:
    """Return the value of a setting as shown to clients. Raises KeyError for an unknown name."""
    value = getattr(config, TOPIC_CONFIGS[name].field)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return java_text(value)
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _server_default(row: TopicConfig, settings: BrokerSettings) -> SettingValue:
    for name in row.server:
        value = settings.value_of(name)
        if value is None:
            continue
        return _in_ms(name, value)
    return row.default


def server_text(name: str, text: str) -> str:
    """Return the text of a broker setting's value, in ms if the setting is in hours or minutes."""
    if name.endswith((".hours", ".minutes")) and text.strip().isdigit():
        return str(_in_ms(name, int(text)))
    return text


def _in_ms(name: str, value: SettingValue) -> SettingValue:
    if isinstance(value, int) and value >= 0 and not isinstance(value, bool):
        if name.endswith(".hours"):
            return value * _HOUR_MS
        if name.endswith(".minutes"):
            return value * _MINUTE_MS
    return value


def _parse(row: TopicConfig, text: str) -> SettingValue:
    try:
        value = row.parse(text)
        if row.name == "compression.gzip.level" and value == 0:
            raise ConfigError(f"{row.name} must be 1 to 9, or -1, not 0")
        if row.name.endswith(".throttled.replicas") and not re.fullmatch(_REPLICAS, text.strip()):
            raise ConfigError(f"{row.name} must be `*`, or a list of partition:broker pairs")
        return value
    except ConfigError as error:
        raise InvalidConfiguration(
            f"invalid value {shortened(repr(text))} for topic config {row.name}: "
            f"{error.message[:MOST_CHARACTERS]}"
        ) from None
