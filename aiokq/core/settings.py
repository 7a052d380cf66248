"""`Settings`, the base class of client settings: keywords, environment variables, property files.

Subclasses are in cluster, producer, consumer and admin. The broker's settings are a plain
class, because importing pydantic would delay its start by 90 ms. Tests:
tests/unit/core/test_settings.py.
"""

from __future__ import annotations

import importlib
import os
import types
import typing
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from aiokq.core.config_providers import resolve_variables
from aiokq.core.errors import ConfigError, ConfigWarning
from aiokq.core.nearest_name import nearest_name
from aiokq.core.properties import parse_properties
from aiokq.core.setting_rules import Rules, split_list
from aiokq.core.utf8 import check_text, check_utf8

JAVA_ONLY: Final[Mapping[str, str]] = {
    "auto.include.jmx.reporter": "see aiokq.metrics",
    "client.dns.lookup": "all addresses of a name are tried",
    "enable.metrics.push": "see aiokq.metrics",
    "interceptor.classes": "pass interceptors=",
    "key.deserializer": "pass a deserializer to the consumer",
    "key.serializer": "pass a serializer to the producer",
    "metric.reporters": "see aiokq.metrics",
    "metrics.num.samples": "see aiokq.metrics",
    "metrics.recording.level": "see aiokq.metrics",
    "metrics.sample.window.ms": "see aiokq.metrics",
    "partitioner.class": "pass partitioner=",
    "receive.buffer.bytes": "the system sizes the buffers of sockets",
    "sasl.client.callback.handler.class": "Java classes cannot be loaded",
    "sasl.login.callback.handler.class": "Java classes cannot be loaded",
    "sasl.kerberos.kinit.cmd": "the system's Kerberos library renews tickets",
    "sasl.kerberos.min.time.before.relogin": "the system's Kerberos library renews tickets",
    "sasl.kerberos.ticket.renew.jitter": "the system's Kerberos library renews tickets",
    "sasl.kerberos.ticket.renew.window.factor": "the system's Kerberos library renews tickets",
    "sasl.login.class": "Java classes cannot be loaded",
    "sasl.oauthbearer.clock.skew.seconds": "only brokers check tokens",
    "sasl.oauthbearer.expected.audience": "only brokers check tokens",
    "sasl.oauthbearer.expected.issuer": "only brokers check tokens",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "only brokers check tokens",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "only brokers check tokens",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "only brokers check tokens",
    "sasl.oauthbearer.jwks.endpoint.url": "only brokers check tokens",
    "sasl.oauthbearer.jwt.validator.class": "only brokers check tokens",
    "sasl.oauthbearer.scope.claim.name": "only brokers check tokens",
    "sasl.oauthbearer.sub.claim.name": "only brokers check tokens",
    "security.providers": "pass ssl_context=",
    "send.buffer.bytes": "the system sizes the buffers of sockets",
    "ssl.engine.factory.class": "pass ssl_context=",
    "ssl.keymanager.algorithm": "OpenSSL has one",
    "ssl.provider": "TLS is OpenSSL's",
    "ssl.secure.random.implementation": "random numbers are OpenSSL's",
    "ssl.trustmanager.algorithm": "OpenSSL has one",
    "value.deserializer": "pass a deserializer to the consumer",
    "value.serializer": "pass a serializer to the producer",
}
"""Settings that only Java clients have or that name Java classes.

In a property file these settings are ignored with a warning, which ends with the text here.
"""

_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer."
_NO_EFFECT: Final[Mapping[str, frozenset[str]]] = {
    "sasl.login.callback.handler.class": frozenset(
        f"{_OAUTH}{package}OAuthBearerLoginCallbackHandler" for package in ("", "secured.")
    ),
}
"""Values that tell a Java client to do what aiokq does anyway, so that no warning is needed."""

OF_OTHER_CLIENTS: Final[Mapping[str, str]] = {
    "retries": "requests with a retriable error are retried until default.api.timeout.ms is over",
}
"""Settings that only some of aiokq's clients have, and that the other clients accept in files.

If a property file has such a setting, a client without the setting ignores it with a warning. The
warning ends with the text here, which describes how the client behaves instead.
"""

NOT_YET: Final[Mapping[str, str]] = {
    "share.": "aiokq has no share groups",
    "ssl.crl": "aiokq does not check the revocation of certificates (CRL, OCSP)",
    "transaction.two.phase.commit.enable": "aiokq has no two-phase commit (KIP-939)",
}
"""Names and prefixes of Kafka settings that aiokq does not support yet, and the reasons.

A setting whose name begins with a key raises ConfigError, because a client that ignored it would
not behave as requested. The error suggests no similar name.
"""

OF_LIBRDKAFKA: Final[Mapping[str, str]] = {
    "compression.codec": "compression.type",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.max.bytes": "max.request.size",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.password": "sasl.plain.password",
    "sasl.username": "sasl.plain.username",
    "socket.timeout.ms": "request.timeout.ms",
    "ssl.ca.location": "ssl.cafile",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.certfile",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keyfile",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.keystore.path": "ssl.keystore.location",
    "ssl.truststore.path": "ssl.truststore.location",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}
"""Names of settings in librdkafka and other clients, and the settings of aiokq that mean the same.

The error for such a name suggests the setting that means the same, even if the name of another
setting is more similar.
"""


class Settings(Rules, BaseModel):
    """Frozen settings with Kafka's property names in snake_case and Kafka's units.

    Strings are accepted for numbers, booleans and (comma-separated) lists, so that values from the
    environment and from files need no conversion.

    Raises:
        ConfigError: a name is unknown (the nearest name is suggested) or a value is invalid.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    FILES: ClassVar[frozenset[str]] = frozenset()
    """Names of the settings that are file paths. File paths need not be valid UTF-8."""

    _of_cluster: frozenset[str] = PrivateAttr(default_factory=frozenset)

    def __init__(self, **values: object) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _config_error(type(self), error) from None

    @property
    def explicit(self) -> frozenset[str]:
        """The names of the settings that were given; other values are defaults or derived."""
        return frozenset(self.model_fields_set)

    @property
    def of_cluster(self) -> frozenset[str]:
        """The names of the settings that were given to the Cluster that this client shares."""
        return self._of_cluster

    def with_overrides(self, **values: object) -> Self:
        """Return a copy in which `values` replace settings; all settings are validated again."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**(given | {"_of_cluster": self._of_cluster - values.keys()} | values))

    @classmethod
    def from_env(
        cls, prefix: str = "KAFKA_", *, environ: Mapping[str, str] | None = None, **values: object
    ) -> Self:
        """Return settings from environment variables such as KAFKA_LINGER_MS.

        Other variables with the prefix, such as KAFKA_HEAP_OPTS, are ignored. A variable whose name
        is similar to a setting's causes a ConfigWarning.

        Args:
            environ: the variables; None for os.environ.
            values: settings that override the environment.

        Raises:
            ConfigError: a value is invalid, or a name in `values` is unknown.
        """
        found: dict[str, object] = {}
        for variable, text in (os.environ if environ is None else environ).items():
            if not variable.startswith(prefix):
                continue
            name = variable[len(prefix) :].lower()
            if name in cls.model_fields:
                found[name] = text
            elif near := nearest_name(name, cls.model_fields):
                warnings.warn(
                    f"{variable} is ignored: did you mean {prefix}{near.upper()}?",
                    ConfigWarning,
                    stacklevel=2,
                )
        return cls(**(found | values))

    @classmethod
    def from_properties(cls, path: str | os.PathLike[str], **values: object) -> Self:
        """Return settings from a Java property file.

        The settings in `JAVA_ONLY`, and those in `OF_OTHER_CLIENTS` that this class does not have,
        are ignored with a ConfigWarning. If the file names config providers, its values may have
        variables such as `${env:NAME}`.

        Args:
            values: settings that override the file.

        Raises:
            ConfigError: the file cannot be read, a name is unknown or a value is invalid.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            # The error has all bytes of the file, which may contain a password.
            raise ConfigError(f"cannot read settings from {os.fspath(path)}: {error}") from None
        try:
            given = resolve_variables(parse_properties(text))
        except ConfigError as error:
            raise ConfigError(f"{os.fspath(path)}: {error.message}") from None
        found: dict[str, object] = {}
        for java_name, value in given.items():
            name = java_name.replace(".", "_")
            instead = JAVA_ONLY.get(java_name)
            if value in _NO_EFFECT.get(java_name, ()):
                continue
            if instead is None and name in cls.model_fields:
                found[name] = value
            elif instead is not None or (instead := OF_OTHER_CLIENTS.get(java_name)) is not None:
                warnings.warn(
                    f"{os.fspath(path)}: {java_name} is ignored: {instead}",
                    ConfigWarning,
                    stacklevel=2,
                )
            else:
                raise ConfigError(
                    f"{os.fspath(path)}: " + unknown_setting(java_name, _java_names(cls))
                )
        return cls(**(found | values))

    @model_validator(mode="before")
    @classmethod
    def _split_lists(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values
        split = dict(values)
        for name, value in values.items():
            field = cls.model_fields.get(name)
            if isinstance(value, str) and field is not None and is_list(field.annotation):
                split[name] = split_list(value)
            elif isinstance(value, bool) and field is not None and _is_number(field.annotation):
                split[name] = _Flag(value)  # pydantic would convert True to 1
        return split

    @field_validator("*")
    @classmethod
    def _check_texts(cls, value: object, info: ValidationInfo) -> object:
        """Refuse text that a request cannot hold; otherwise, encoding the request would fail."""
        if info.field_name in cls.FILES:
            return value
        if isinstance(value, SecretStr):
            check_utf8(value.get_secret_value())
        elif isinstance(value, str):
            check_text(value)
        elif isinstance(value, Mapping | list | tuple):
            for each in value:
                if isinstance(each, str):
                    check_text(each)
        return value

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls, values: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Check the settings together; `_of_cluster` is not a setting and is removed first."""
        of_cluster: frozenset[str] = frozenset()
        if isinstance(values, dict):
            values = dict(values)
            of_cluster = values.pop("_of_cluster", of_cluster)
        settings = validate(values)
        settings._of_cluster = of_cluster
        settings._check_together()
        return settings


class _Flag:
    """Wrapper of a bool that was passed for a number.

    Pydantic refuses the wrapper, and its error shows the bool.
    """

    def __init__(self, value: bool) -> None:
        self._value = value

    def __repr__(self) -> str:
        return repr(self._value)


def unknown_setting(name: str, known: Iterable[str]) -> str:
    """Return the text of the ConfigError for the name of an unknown setting."""
    java_name = name.lower().replace("_", ".")
    for start, what in NOT_YET.items():
        if java_name.startswith(start):
            return f"{name} is not supported yet: {what}"
    by_java_name = {each.replace("_", "."): each for each in known}
    near = by_java_name.get(OF_LIBRDKAFKA.get(java_name, "")) or nearest_name(
        name, by_java_name.values()
    )
    hint = f": did you mean {near}?" if near else ""
    return f"there is no setting {name!r}{hint}"


def _relatives() -> list[type[Settings]]:
    """Return the settings classes of all clients, for the texts of errors.

    The classes are imported by name, because they are in higher layers. All of them are imported,
    so that an error text does not depend on the modules that the program has imported.
    """
    return [
        getattr(importlib.import_module(f"aiokq.{package}.settings"), f"{package.title()}Settings")
        for package in ("admin", "cluster", "consumer", "producer")
    ]


def _java_names(cls: type[Settings]) -> list[str]:
    return [name.replace("_", ".") for name in cls.model_fields]


def _config_error(cls: type[Settings], error: ValidationError) -> ConfigError:
    lines = []
    # Messages by setting. For a union, pydantic returns one message per branch; these are joined.
    expected: dict[str, list[str]] = {}
    items = error.errors(include_url=False, include_context=True, include_input=True)
    for item in items:
        if item["loc"]:
            expected.setdefault(str(item["loc"][0]), []).append(item["msg"])
    for item in items:
        path = [str(part) for part in item["loc"]]
        name = path[0] if path else ""
        if item["type"] == "extra_forbidden":
            owners = sorted(other.__name__ for other in _relatives() if name in other.model_fields)
            lines.append(
                f"{name!r} is a setting of {owners[0]}, not of {cls.__name__}"
                if owners
                else unknown_setting(name, cls.model_fields)
            )
            continue
        cause = item.get("ctx", {}).get("error")
        field = cls.model_fields.get(name)
        if isinstance(cause, Exception):
            text = str(cause)
        else:
            text, *others = dict.fromkeys(expected.get(name, [item["msg"]]))
            text += "".join(f", or {other.removeprefix('Input should ')}" for other in others)
            if field is not None and field.repr:
                text += f", not {item['input']!r}"
        line = f"{name}: {text}" if name else text
        if line not in lines:
            lines.append(line)
    return ConfigError("; ".join(lines))


def _is_number(annotation: object) -> bool:
    """Return whether a type accepts numbers but not bools."""
    return annotation in (int, float) or annotation == int | None


def is_list(annotation: object) -> bool:
    """Return whether a type accepts several values but not a plain str."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        branches = typing.get_args(annotation)
        return str not in branches and any(map(is_list, branches))
    if origin is typing.Annotated:
        return is_list(typing.get_args(annotation)[0])
    kind = origin if origin is not None else annotation
    return isinstance(kind, type) and issubclass(kind, _LIST_TYPES) and kind not in (str, bytes)


_LIST_TYPES = (tuple, list, set, frozenset, Sequence)
