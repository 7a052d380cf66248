"""Translation of the ``kafka.*`` options to settings of a client.

This module refuses options that are unknown, or that aiokq does not support. `REFUSED` in
options.py lists options that are refused for reads, and `REFUSED` in write_options.py lists options
that are refused for writes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from aiokq import AdminSettings, ClusterSettings, ConsumerSettings, ProducerSettings
from aiokq.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = [
    "cluster_settings",
    "in_kafkas_words",
    "named_as_options",
    "producer_settings",
    "warn_of_unused",
]

logger = logging.getLogger("aiokq.spark")

NO_EFFECT: Final = frozenset(
    {
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "enable.metrics.push",
        "key.deserializer",
        "key.serializer",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.oauthbearer.jwt.validator.class",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "send.buffer.bytes",
        "ssl.keymanager.algorithm",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "value.deserializer",
        "value.serializer",
    }
)
"""Kafka options that can be ignored without harm; a warning is logged once for each option."""

JAVA_ONLY: Final[Mapping[str, str]] = {
    "interceptor.classes": "",
    "bootstrap.controllers": "set kafka.bootstrap.servers",
    "partitioner.class": "Java classes cannot be loaded: records with a key are partitioned as by "
    "Kafka, unless a column 'partition' names the partition",
    "sasl.client.callback.handler.class": "Java classes cannot be loaded",
    "sasl.login.callback.handler.class": "Java classes cannot be loaded",
    "sasl.login.class": "Java classes cannot be loaded",
    "security.providers": "Java classes cannot be loaded",
    "ssl.engine.factory.class": "Java classes cannot be loaded",
    "ssl.provider": "Java classes cannot be loaded",
}
"""Options that aiokq cannot support and must not ignore, each with a text for the error."""

OBJECTS: Final = frozenset({"ssl_context"})
"""Settings that are objects. Options are text, so these settings cannot be options."""

LOGIN_HANDLERS: Final = frozenset(
    f"{shade}org.apache.kafka.common.security.oauthbearer.{package}OAuthBearerLoginCallbackHandler"
    for shade in ("", "kafkashaded.")
    for package in ("", "secured.")
)
"""Values of `sasl.login.callback.handler.class` that are accepted and ignored.

They name Java's handlers for the OAUTHBEARER login, which aiokq implements itself.
"""

_SETTINGS_OF: Final[Mapping[str, str]] = {
    "ssl_cafile": "ssl.truststore.location",
    "ssl_certfile": "ssl.keystore.location",
    "ssl_password": "ssl.key.password",
}
"""Maps settings to the Kafka options from which they may come; used in error messages."""


def cluster_settings(kafka: Mapping[str, str]) -> ClusterSettings:
    """Return the settings of a Cluster, without the settings of consumers and producers.

    Args:
        kafka: options by Kafka's names, such as ``bootstrap.servers``.

    Raises:
        ConfigError: an option is unknown, out of range, contradicts another option, or needs Java.
    """
    _check(kafka)
    values: dict[str, object] = dict(_named(kafka, ClusterSettings))
    try:
        return ClusterSettings(**values)  # type: ignore[arg-type]  # the class checks the values
    except ConfigError as error:
        raise ConfigError(in_kafkas_words(str(error), kafka)) from None


def producer_settings(kafka: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a producer, without the settings of its Cluster.

    Args:
        kafka: options by Kafka's names, such as ``linger.ms``.

    Returns:
        values as given, by the names of `aiokq.ProducerSettings`.

    Raises:
        ConfigError: an option is unknown, out of range, contradicts another option, or needs Java.
    """
    _check(kafka)
    of_cluster = ClusterSettings.model_fields
    given = _named(kafka, ProducerSettings)
    values = {name: value for name, value in given.items() if name not in of_cluster}
    # The request timeout is included, because the producer's timeouts are checked against it.
    request = {n: given[n] for n in ("request_timeout_ms",) if n in given}
    try:
        ProducerSettings(**(values | request))  # type: ignore[arg-type]  # the class checks them
    except ConfigError as error:
        raise ConfigError(in_kafkas_words(str(error), kafka)) from None
    return values


def _named(kafka: Mapping[str, str], settings: type[BaseModel]) -> dict[str, str]:
    known = settings.model_fields
    return {
        name.replace(".", "_"): value
        for name, value in kafka.items()
        if name.replace(".", "_") in known
    }


def _check(kafka: Mapping[str, str]) -> None:
    for name in kafka:
        if name.replace(".", "_") in _known():
            continue
        if name in NO_EFFECT:
            _warn_once(name)
            continue
        if name == "sasl.login.callback.handler.class" and kafka[name] in LOGIN_HANDLERS:
            continue
        if name in JAVA_ONLY:
            why = f": {JAVA_ONLY[name]}" if JAVA_ONLY[name] else ""
            raise ConfigError(f"Kafka option '{name}' is not supported{why}")
        names = [known.replace("_", ".") for known in _known()]
        options = [f"kafka.{each}" for each in (*names, *NO_EFFECT)]
        raise ConfigError.unknown(f"there is no option 'kafka.{name}'", f"kafka.{name}", options)


def warn_of_unused(kafka: Mapping[str, str], used: frozenset[str]) -> None:
    """Log a warning, once in this process, for each consumer setting that has no effect.

    Settings of producers are not logged, because an application that also writes may use one set of
    options for reading and writing.

    Args:
        used: names of the settings that have an effect.
    """
    for name in kafka:
        setting = name.replace(".", "_")
        if (
            name not in used
            and setting in ConsumerSettings.model_fields
            and setting not in ClusterSettings.model_fields
            and setting not in ProducerSettings.model_fields
        ):
            _warn_once(name)


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    kinds: Iterable[type[BaseModel]] = (
        ClusterSettings,
        ProducerSettings,
        ConsumerSettings,
        AdminSettings,
    )
    return frozenset(name for kind in kinds for name in kind.model_fields) - OBJECTS


@lru_cache(maxsize=256)
def _warn_once(name: str) -> None:
    logger.warning("option kafka.%s has no effect in aiokq", name)


@contextmanager
def named_as_options(kafka: Mapping[str, str]) -> Iterator[None]:
    """In errors that the block raises, replace names of settings with names of options.

    For example, ``max_request_size`` becomes ``kafka.max.request.size``.

    Args:
        kafka: the options from which the client was created, by Kafka's names.

    Raises:
        KafkaError: the error of the block, with a changed message.
    """
    try:
        yield
    except KafkaError as error:
        error.args = (in_kafkas_words(error.message, kafka), *error.args[1:])
        raise


def in_kafkas_words(text: str, kafka: Mapping[str, str]) -> str:
    """Return a message in which names of settings are replaced with names of Kafka options."""

    def name(found: re.Match[str]) -> str:
        setting = found[0]
        origin = _SETTINGS_OF.get(setting, "")
        return "kafka." + (origin if origin in kafka else setting.replace("_", "."))

    # Settings of one word are matched only at the start of a message, because they may be plain
    # words elsewhere. A name in quotes or with a partition number is not replaced, because it is
    # the name of a topic.
    inside = [rf"(?<!')\b{n}\b(?!'|-[0-9])" for n in sorted(_known()) if "_" in n]
    first = [rf"^{n}(?=: )" for n in sorted(_known()) if "_" not in n]
    return re.sub("|".join(inside + first), name, text)
