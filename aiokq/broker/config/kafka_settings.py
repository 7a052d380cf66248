"""Settings of Kafka that are not in the broker's own table, and the values that are refused.

Most of these settings, such as `num.io.threads`, have no meaning for this broker and are accepted.
A value is refused if this broker cannot do what the value requests, because otherwise the user
would believe that the value is in effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aiokq.broker.config.kafka_setting_names import KAFKA_SETTING_TYPES
from aiokq.broker.config.setting import Setting, SettingValue
from aiokq.core.errors import ConfigError
from aiokq.core.named_tuple import NamedTuple

__all__ = ["accept", "is_of_kafka", "is_sensitive", "kafka_type"]


class _Only(NamedTuple):
    """The accepted values of a setting, and the missing feature that other values need."""

    values: tuple[SettingValue, ...]
    missing: str


def _plug_in(what: str, *values: str) -> _Only:
    return _Only(("", *values), f"{what} are Java classes, which this broker cannot load")


_LIMITED: Final[dict[str, _Only]] = {
    "alter.config.policy.class.name": _plug_in("policies"),
    "client.quota.callback.class": _plug_in("quota callbacks"),
    "controller.quorum.auto.join.enable": _Only(
        (False,), "this broker must be the only voter of its quorum"
    ),
    "create.topic.policy.class.name": _plug_in("policies"),
    "delegation.token.secret.key": _Only(("",), "this broker has no delegation tokens"),
    "group.share.enable": _Only((False,), "this broker has no share groups"),
    "kafka.metrics.reporters": _plug_in("metrics reporters"),
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
    "sasl.oauthbearer.jwt.validator.class": _plug_in(
        "validators of tokens",
        "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
    ),
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

_LISTENER_PREFIX: Final = "listener.name."

_LIMITS_OF_CONNECTIONS: Final = ("max.connections", "max.connection.creation.rate")

DYNAMIC_ONLY: Final = {
    "follower.replication.throttled.rate": "long",
    "leader.replication.throttled.rate": "long",
    "replica.alter.log.dirs.io.max.bytes.per.second": "long",
}
"""Settings, with their types, that Kafka accepts only as dynamic settings, not in a file."""

_PER_LISTENER: Final = (
    "connections.max.reauth.ms",
    "num.network.threads",
    "principal.builder.class",
)
"""Settings that may have the prefix `listener.name.<name>.`.

`ssl.*`, `sasl.*`, `<mechanism>.sasl.*`, `max.connections` and `max.connection.creation.rate` may
have the prefix, too, but are not listed here. `broker_settings` itself reads the last two, and
those settings of TLS and SASL that `prefixed_setting` knows.
"""


_PER_MECHANISM: Final = (
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
)
"""Settings whose types Kafka also knows after `listener.name.<name>.<mechanism>.`.

Others, such as `sasl.oauthbearer.jwks.endpoint.url`, may have this prefix, too, but then count as
unknown.
"""

_READ_BY_PLUG_INS: Final = {
    "metrics.jmx.exclude": "string",
    "metrics.jmx.include": "string",
}
"""Settings, with their types, that KafkaConfig does not declare and that only a plug-in reads.

The plug-in is the JMX reporter. A node of Kafka without the JMX reporter also ignores the settings.
"""

_PLUG_IN_PREFIXES: Final = ("config.providers.", "metrics.context.", "rlmm.config.", "rsm.config.")
"""Prefixes of settings that only config providers, metrics reporters and tiered storage read."""

_REMOVED: Final = "Kafka 4 has removed it; remove it"
_ELSEWHERE: Final = {
    "advertised.host.name": "use advertised.listeners, or --advertise",
    "advertised.port": "use advertised.listeners, or --advertise",
    "auto.include.jmx.reporter": _REMOVED,
    "broker.id.generation.enable": _REMOVED,
    "control.plane.listener.name": _REMOVED,
    "delegation.token.master.key": _REMOVED,
    "host.name": "use listeners, or --host",
    "inter.broker.protocol.version": _REMOVED,
    "log.message.downconversion.enable": _REMOVED,
    "log.message.format.version": _REMOVED,
    "log.message.timestamp.difference.max.ms": (
        "use log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms"
    ),
    "port": "use listeners, --port, or port= of EmbeddedCluster",
    "reserved.broker.max.id": _REMOVED,
}
_ELSEWHERE_PREFIXES: Final = {
    "password.encoder.": _REMOVED,
    "ssl.crl": "the revocation of certificates (CRL, OCSP) is not checked; remove it",
    "zookeeper.": "Kafka 4 has no ZooKeeper; remove it",
}
"""Advice by the prefix of a setting that Kafka 4 does not have, for the error message."""


def _advice(name: str) -> str | None:
    for prefix, advice in _ELSEWHERE_PREFIXES.items():
        if name.startswith(prefix):
            return advice
    return _ELSEWHERE.get(name)


def is_of_kafka(name: str) -> bool:
    """Whether Kafka 4.2 has a broker setting of this name; a listener's prefix is allowed."""
    if name in DYNAMIC_ONLY:
        return True
    if name.startswith(_LISTENER_PREFIX):
        base = _without_mechanism(_base_name(name))
        return _is_of_kafka(base, of_listener=True) or base in _LIMITS_OF_CONNECTIONS
    return _is_of_kafka(name, of_listener=False)


def kafka_type(name: str) -> str | None:
    """Return Kafka's type of a broker setting; None if Kafka does not know the type."""
    if not name.startswith(_LISTENER_PREFIX):
        return KAFKA_SETTING_TYPES.get(name) or DYNAMIC_ONLY.get(name)
    base = _without_mechanism(_base_name(name))
    return KAFKA_SETTING_TYPES.get(base) or DYNAMIC_ONLY.get(base)


def is_sensitive(name: str) -> bool:
    """Whether the value of a setting may be a secret.

    As in Kafka, the value of an unknown setting is treated as a secret.
    """
    return kafka_type(name) in (None, "password")


def _base_name(name: str) -> str:
    """Return the name of a listener's setting without `listener.name.NAME.`."""
    return name[len(_LISTENER_PREFIX) :].partition(".")[2]


def _without_mechanism(base: str) -> str:
    """Return a listener's setting without a mechanism, if it is one of `_PER_MECHANISM`."""
    return next((one for one in _PER_MECHANISM if base.endswith(f".{one}")), base)


def _is_of_kafka(name: str, *, of_listener: bool) -> bool:
    if not of_listener:
        known = name in KAFKA_SETTING_TYPES or name in _READ_BY_PLUG_INS
        return known or name.startswith(_PLUG_IN_PREFIXES)
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
        if advice := _advice(name):
            raise ConfigError(f"{name} is not a setting of this broker: {advice}")
        every = dict.fromkeys([*known, *KAFKA_SETTING_TYPES, *_READ_BY_PLUG_INS])
        raise ConfigError.unknown(f"unknown broker setting {spelled!r}", name, every)
    # Settings whose names begin with a SASL mechanism or the prefix of a plug-in are in no table.
    # Their values may be secrets, so these settings count as passwords.
    kind = KAFKA_SETTING_TYPES.get(name) or _READ_BY_PLUG_INS.get(name, "password")
    is_secret = kind == "password"
    if is_secret:
        kind = "string"
    if value is None or value == "null":
        return
    parsed = Setting(spelled, "", kind, None, "", has_effect=False).parse(value)
    if name == _REBALANCE_PROTOCOLS:
        _check_rebalance_protocols(str(parsed))
    _, of_mechanism, rest = name.partition(".sasl.")
    only = _LIMITED.get(f"sasl.{rest}" if of_listener and of_mechanism else name)
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
