"""Settings of Kafka that are not in the broker's own table, and the values that are refused.

Most have no meaning for this broker (`num.io.threads`) and are accepted. A value that asks for
something that this broker cannot do is refused, because the user would believe that it is in
effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from aiokq.broker.config.kafka_setting_names import KAFKA_SETTING_TYPES
from aiokq.broker.config.setting import Setting, SettingValue
from aiokq.core.errors import ConfigError

__all__ = ["accept"]


class _Only(NamedTuple):
    """The accepted values of a setting, and the missing feature that other values need."""

    values: tuple[SettingValue, ...]
    missing: str


def _plug_in(what: str, *values: str) -> _Only:
    return _Only(("", *values), f"{what} are Java classes, which this broker cannot load")


_UNLIMITED: Final = 2**31 - 1
_LIMITED: Final[dict[str, _Only]] = {
    "alter.config.policy.class.name": _plug_in("policies"),
    "authorizer.class.name": _Only(("",), "this broker has no access control"),
    "client.quota.callback.class": _plug_in("quota callbacks"),
    "config.providers": _Only(("",), "this broker has no config providers"),
    "controller.quorum.auto.join.enable": _Only(
        (False,), "this broker must be the only voter of its quorum"
    ),
    "create.topic.policy.class.name": _plug_in("policies"),
    "delegation.token.secret.key": _Only(("",), "this broker has no delegation tokens"),
    "group.share.enable": _Only((False,), "this broker has no share groups"),
    "kafka.metrics.reporters": _plug_in("metrics reporters"),
    "max.connection.creation.rate": _Only(
        (_UNLIMITED,), "this broker does not limit the rate of new connections"
    ),
    "metric.reporters": _plug_in(
        "metrics reporters", "org.apache.kafka.common.metrics.JmxReporter"
    ),
    "offsets.topic.compression.codec": _Only((0,), "this broker does not compress offsets"),
    "principal.builder.class": _plug_in(
        "principal builders",
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    ),
    "remote.log.storage.system.enable": _Only((False,), "this broker has no tiered storage"),
    "replica.selector.class": _plug_in("replica selectors"),
    "security.providers": _plug_in("security providers"),
    "ssl.engine.factory.class": _plug_in("TLS engines"),
    "transaction.two.phase.commit.enable": _Only(
        (False,), "this broker has no two-phase commit of transactions"
    ),
    "unstable.api.versions.enable": _Only((False,), "this broker has no unstable API versions"),
    "unstable.feature.versions.enable": _Only(
        (False,), "this broker has no unstable feature versions"
    ),
}

_REBALANCE_PROTOCOLS: Final = "group.coordinator.rebalance.protocols"

_PER_LISTENER: Final = (
    "connections.max.reauth.ms",
    "max.connection.creation.rate",
    "num.network.threads",
    "principal.builder.class",
)
"""Settings that may have the prefix `listener.name.<name>.`.

`ssl.*`, `sasl.*` and `<mechanism>.sasl.*` may have the prefix, too, and also `max.connections`,
which `BrokerSettings` reads.
"""


_ELSEWHERE: Final = {
    "port": "use listeners, --port, or port= of EmbeddedCluster",
    "host.name": "use listeners, or --host",
    "zookeeper.connect": "Kafka 4 has no ZooKeeper; remove it",
}
"""Advice for settings that Kafka 4 does not have."""


def _is_of_kafka(name: str, *, of_listener: bool) -> bool:
    if not of_listener:
        return name in KAFKA_SETTING_TYPES
    if name in _PER_LISTENER or name.startswith(("ssl.", "sasl.")):
        return name in KAFKA_SETTING_TYPES
    mechanism, dot, rest = name.partition(".sasl.")
    return bool(mechanism and dot) and f"sasl.{rest}" in KAFKA_SETTING_TYPES


def accept(
    spelled: str, name: str, value: object, *, of_listener: bool, known: Iterable[str]
) -> None:
    """Check a setting that is not in the broker's own table.

    Args:
        spelled: the name as the user wrote it.
        name: the name with `.` between words, without `listener.name.<name>.`.
        value: text or a Python value.
        of_listener: whether `spelled` has the prefix `listener.name.<name>.`.
        known: the names in the broker's own table.

    Raises:
        ConfigError: Kafka 4.2 has no broker setting of this name; or the value is of the wrong
            type, or asks for something that this broker cannot do.
    """
    if not _is_of_kafka(name, of_listener=of_listener):
        if name in _ELSEWHERE:
            raise ConfigError(f"{name} is not a setting of this broker: {_ELSEWHERE[name]}")
        every = dict.fromkeys([*known, *KAFKA_SETTING_TYPES])
        raise ConfigError.unknown(f"unknown broker setting {spelled!r}", name, every)
    # The table has no names that begin with a SASL mechanism. The values of these settings may be
    # secrets.
    kind = KAFKA_SETTING_TYPES.get(name, "password")
    is_secret = kind == "password"
    if is_secret:
        kind = "string"
    if value is None or value == "null":
        return
    parsed = Setting(spelled, "", kind, None, "").parse(value)
    if name == _REBALANCE_PROTOCOLS:
        _check_rebalance_protocols(str(parsed))
    only = _LIMITED.get(name)
    if only is not None and parsed not in only.values:
        usual = only.values[-1]
        instead = "remove it" if usual == "" else f"remove it, or set {_text(usual)}"
        shown = "..." if is_secret else _text(parsed)
        raise ConfigError(f"{spelled}={shown}: {only.missing}; {instead}")


def _check_rebalance_protocols(text: str) -> None:
    protocols = {part.strip().lower() for part in text.split(",")}
    if "share" in protocols:
        raise ConfigError(
            f"{_REBALANCE_PROTOCOLS}={text}: this broker has no share groups; remove share"
        )
    if not {"classic", "consumer"} <= protocols:
        raise ConfigError(
            f"{_REBALANCE_PROTOCOLS}={text}: this broker always serves classic and consumer "
            "groups; name both protocols"
        )


def _text(value: SettingValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
