"""The settings that can change while the broker runs: names, checks, and the values in effect.

A dynamic value for this broker takes precedence over a dynamic value for all brokers, and both take
precedence over the static value with which the broker was started. The keys and certificates of a
listener can change for one broker only, with the listener's prefix. A request to change any other
setting of Kafka is refused, because this broker does not use it or reads it only at its start.

Source: Kafka ``DynamicBrokerConfig.scala``, ``LogCleaner.java``, ``SocketServer.scala``; KIP-226.
Tests: ``tests/unit/broker/config/test_dynamic_settings.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from aiokq.broker.config.listeners import limits_of_hosts
from aiokq.broker.config.setting import SettingValue
from aiokq.broker.config.settings import (
    PER_LISTENER,
    SETTINGS,
    BrokerSettings,
    check_gzip_level,
    setting_name,
)
from aiokq.core.errors import ConfigError
from aiokq.core.named_tuple import NamedTuple

__all__ = [
    "DYNAMIC_SETTINGS",
    "STORE_SETTINGS",
    "DynamicSettings",
    "Effective",
    "base_name",
    "check_effective",
    "effective_settings",
    "is_dynamic",
    "is_store",
    "listener_of_store",
    "parse_dynamic",
]

logger = logging.getLogger("aiokq.broker")

DYNAMIC_SETTINGS: Final = frozenset(
    (
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "log.cleaner.delete.retention.ms",
        "log.cleaner.max.compaction.lag.ms",
        "log.cleaner.min.cleanable.ratio",
        "log.cleaner.min.compaction.lag.ms",
        "log.cleanup.policy",
        "log.flush.interval.messages",
        "log.flush.interval.ms",
        "log.index.interval.bytes",
        "log.index.size.max.bytes",
        "log.message.timestamp.after.max.ms",
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.type",
        "log.preallocate",
        "log.retention.bytes",
        "log.retention.ms",
        "log.roll.jitter.ms",
        "log.roll.ms",
        "log.segment.bytes",
        "log.segment.delete.delay.ms",
        "message.max.bytes",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "producer.id.expiration.ms",
        "transaction.partition.verification.enable",
    )
)
"""Kafka's names of the settings that can change.

The settings in `PER_LISTENER` can change both with and without the prefix `listener.name.NAME.`.
"""

STORE_SETTINGS: Final = frozenset(
    (
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    )
)
"""Kafka's names of the settings of a listener's keys and certificates.

These settings can change only with the prefix `listener.name.NAME.`, and only for one broker.
"""

_LISTENER_PREFIX: Final = "listener.name."
_CLEANER_THREADS: Final = "log.cleaner.threads"
_OVERRIDES: Final = "max.connections.per.ip.overrides"

_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_NO_VALUES: Final[Mapping[str, SettingValue]] = MappingProxyType({})


def is_dynamic(name: str) -> bool:
    """Whether a setting can change while the broker runs."""
    return name in DYNAMIC_SETTINGS or _listener(name) is not None


def base_name(name: str) -> str:
    """Return the name of a setting without `listener.name.NAME.`, if it has this prefix."""
    if name.startswith(_LISTENER_PREFIX):
        return name[len(_LISTENER_PREFIX) :].partition(".")[2]
    return name


def _listener(name: str) -> str | None:
    """Return NAME of `listener.name.NAME.*`, in capitals.

    None if the setting is in neither `PER_LISTENER` nor `STORE_SETTINGS`.
    """
    if not name.startswith(_LISTENER_PREFIX):
        return None
    listener, _, base = name[len(_LISTENER_PREFIX) :].partition(".")
    known = base in PER_LISTENER or base in STORE_SETTINGS
    return listener.upper() if listener and known else None


def listener_of_store(name: str) -> str | None:
    """Return the listener of a setting in `STORE_SETTINGS`, in capitals; None for any other."""
    return _listener(name) if base_name(name) in STORE_SETTINGS else None


def is_store(name: str) -> bool:
    """Whether a setting is in `STORE_SETTINGS` and has the prefix of a listener."""
    return listener_of_store(name) is not None


def parse_dynamic(name: str, text: str) -> SettingValue:
    """Return the typed value of a dynamic setting.

    Args:
        name: a name for which `is_dynamic` is true.

    Raises:
        ConfigError: the value is of the wrong type, out of range, malformed or empty.
    """
    row = SETTINGS[base_name(name)].renamed(name) if _listener(name) else SETTINGS[name]
    value = row.parse(text)
    if value is None:
        raise ConfigError(f"{name} must not be empty")
    if name == _OVERRIDES:
        limits_of_hosts(BrokerSettings(max_connections_per_ip_overrides=value))
    check_gzip_level(name, value)
    if name == _CLEANER_THREADS and value == 0:
        raise ConfigError("Log cleaner threads should be at least 1")
    return value


class Effective(NamedTuple):
    """The settings in effect, and which dynamic values are valid or refused.

    Attributes:
        settings: the settings in effect.
        cluster: the valid dynamic values for all brokers, by Kafka's names.
        own: the valid dynamic values for this broker, by Kafka's names.
        refused_cluster, refused_own: for each setting whose stored value is refused, the reason.
    """

    settings: BrokerSettings
    cluster: Mapping[str, str]
    own: Mapping[str, str]
    refused_cluster: Mapping[str, str]
    refused_own: Mapping[str, str]


def effective_settings(
    static: BrokerSettings, cluster: Mapping[str, str], own: Mapping[str, str]
) -> Effective:
    """Return the settings that result from static and dynamic values.

    A dynamic value that this broker cannot use is refused, without an error: Apache Kafka may have
    stored it, and the broker must still start.

    Args:
        static: the settings with which the broker was started.
        cluster: the stored dynamic values for all brokers, by Kafka's names.
        own: the stored dynamic values for this broker, by Kafka's names.
    """
    fields: dict[str, object] = {}
    listeners = {base: dict(_pairs(static, base)) for base in PER_LISTENER}
    stores: dict[str, dict[str, SettingValue]] = {}
    used: tuple[dict[str, str], dict[str, str]] = {}, {}
    unused: tuple[dict[str, str], dict[str, str]] = {}, {}
    for configs, valid, refused in zip((cluster, own), used, unused, strict=True):
        for name, text in configs.items():
            if not is_dynamic(name):
                refused[name] = "this broker does not use it, or reads it at its start"
                continue
            if configs is cluster and is_store(name):
                refused[name] = "it can be set for one broker only"
                continue
            try:
                value = parse_dynamic(name, text)
            except ConfigError as error:
                refused[name] = error.message
                continue
            valid[name] = text
            listener = _listener(name)
            if listener is None:
                fields[SETTINGS[name].field] = value
            elif base_name(name) in STORE_SETTINGS:
                stores.setdefault(listener, {})[base_name(name)] = value
            else:
                assert isinstance(value, int)
                listeners[base_name(name)][listener] = value
    if any(used):
        for base, field in PER_LISTENER.items():
            fields[field] = tuple(listeners[base].items())
        if stores:
            former = static.listener_settings
            merged = {name: {**former.get(name, {}), **new} for name, new in stores.items()}
            fields["listener_settings"] = MappingProxyType({**former, **merged})
        static = BrokerSettings(**{**vars(static), **fields})
    return Effective(static, *used, *unused)


def check_effective(before: BrokerSettings, after: BrokerSettings) -> None:
    """Check a change of settings against the limits that depend on the previous values.

    Raises:
        ConfigError: the number of cleaner threads would be less than half of the previous number,
            rounded down, or more than twice the previous number.
    """
    threads, now = after.log_cleaner_threads, before.log_cleaner_threads
    if threads < now // 2:
        raise ConfigError(
            f"Log cleaner threads cannot be reduced to less than half the current value {now}"
        )
    if threads > now * 2:
        raise ConfigError(
            f"Log cleaner threads cannot be increased to more than double the current value {now}"
        )


class DynamicSettings:
    """The settings in effect on a node. Used from the node's loop only.

    The metadata publisher calls ``apply``. Code that uses a setting that may change reads `current`
    each time, or adds a listener.

    Attributes:
        static: the settings with which the node was started.
        current: the settings in effect.
        cluster: the valid dynamic values for all brokers, by Kafka's names.
        own: the valid dynamic values for this broker, by Kafka's names.
        stored_cluster, stored_own: the stored dynamic values for all brokers and for this broker,
            valid or refused.
        listeners: called with the names of settings after their values in effect have changed.
    """

    def __init__(self, static: BrokerSettings) -> None:
        self.static = self.current = static
        self.cluster = self.own = _NONE
        self.stored_cluster = self.stored_own = _NONE
        self.listeners: list[Callable[[frozenset[str]], None]] = []

    def overridden(self) -> dict[str, tuple[SettingValue, SettingValue]]:
        """Return the settings whose value in effect differs from the value given at the start.

        Returns:
            For each of these settings, the value given at the start and the value in effect.
        """
        return {
            name: (given, value)
            for name in sorted(self.static.explicit & DYNAMIC_SETTINGS)
            if (given := self.static.value_of(name)) != (value := self.current.value_of(name))
        }

    def apply(self, cluster: Mapping[str, str], own: Mapping[str, str]) -> frozenset[str]:
        """Replace the dynamic settings; return the names whose values in effect have changed.

        If there are such names, `listeners` are called with them. A warning is logged for each
        refused value that is new.
        """
        known_cluster, known_own = self.stored_cluster, self.stored_own
        self.stored_cluster, self.stored_own = dict(cluster), dict(own)
        before = self.current
        effective = effective_settings(self.static, cluster, own)
        self.current, self.cluster, self.own = effective.settings, effective.cluster, effective.own
        _warn("all", known_cluster, cluster, effective.refused_cluster)
        _warn("this", known_own, own, effective.refused_own)
        changed = _changed(before, self.current)
        if changed:
            logger.info("dynamic settings changed: settings=%s", ",".join(sorted(changed)))
            for listener in self.listeners:
                listener(changed)
        return changed


def _warn(
    brokers: str, known: Mapping[str, str], stored: Mapping[str, str], refused: Mapping[str, str]
) -> None:
    """Log a warning for each refused value that is new or has changed.

    Args:
        brokers: the brokers for which the values are stored, "all" or "this".
        known: the values that were stored before.
        stored: the values that are stored now.
        refused: for each setting whose stored value is refused, the reason.
    """
    for name, reason in refused.items():
        if known.get(name) != stored[name]:
            logger.warning(
                "dynamic setting has no effect: setting=%s brokers=%s reason=%s",
                name,
                brokers,
                reason,
            )


def _changed(before: BrokerSettings, after: BrokerSettings) -> frozenset[str]:
    if before is after:
        return frozenset()
    names = {name for name in DYNAMIC_SETTINGS if before.value_of(name) != after.value_of(name)}
    for base in PER_LISTENER:
        were, are = dict(_pairs(before, base)), dict(_pairs(after, base))
        for listener in were.keys() | are.keys():
            if were.get(listener) != are.get(listener):
                names.add(setting_name(f"{_LISTENER_PREFIX}{listener}.{base}"))
    for listener in before.listener_settings.keys() | after.listener_settings.keys():
        former = before.listener_settings.get(listener, _NO_VALUES)
        latter = after.listener_settings.get(listener, _NO_VALUES)
        names.update(
            setting_name(f"{_LISTENER_PREFIX}{listener}.{base}")
            for base in STORE_SETTINGS
            if former.get(base) != latter.get(base)
        )
    return frozenset(names)


def _pairs(settings: BrokerSettings, base: str) -> tuple[tuple[str, int], ...]:
    """Return the listeners that have a value of their own for a limit.

    The result has a pair for each of these listeners: its name in capitals, and the value.
    """
    pairs: tuple[tuple[str, int], ...] = getattr(settings, PER_LISTENER[base])
    return pairs
