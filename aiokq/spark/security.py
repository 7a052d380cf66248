"""The ``kafka.*`` options as settings of a client: Kafka's names to ours, none silently lost.

Java's ways of giving credentials are translated in credentials.py. Which options a reader refuses,
in Spark's words, is in options.py, those of a writer in write_options.py.
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
from aiokq.spark.credentials import sasl_settings, tls_settings

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

TRANSLATED: Final = frozenset(
    {
        "sasl.jaas.config",
        "ssl.endpoint.identification.algorithm",
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
    }
)

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
        "send.buffer.bytes",
        "ssl.enabled.protocols",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "transaction.timeout.ms",
        "value.deserializer",
        "value.serializer",
    }
)
"""Kafka's, and harmless to leave out; said once."""

JAVA_ONLY: Final[Mapping[str, str]] = {
    "interceptor.classes": "",
    "bootstrap.controllers": "give kafka.bootstrap.servers",
    "partitioner.class": "Java classes cannot be loaded: records with a key are placed as Kafka "
    "does it, and a column 'partition' places them otherwise",
    "sasl.client.callback.handler.class": "Java classes cannot be loaded",
    "sasl.login.callback.handler.class": "Java classes cannot be loaded",
    "sasl.login.class": "Java classes cannot be loaded",
    "security.providers": "Java classes cannot be loaded",
    "ssl.cipher.suites": "the system's OpenSSL chooses the ciphers",
    "ssl.engine.factory.class": "Java classes cannot be loaded",
    "ssl.provider": "Java classes cannot be loaded",
}
"""What they ask for cannot be had, and leaving it out would not be harmless."""

NOT_YET: Final[Mapping[str, str]] = {
    "sasl.kerberos.": "of SASL there is PLAIN",
    "sasl.login.": "of SASL there is PLAIN",
    "sasl.oauthbearer.": "of SASL there is PLAIN",
}
"""How names begin that Kafka has and this library has not."""

_SETTINGS_OF: Final[Mapping[str, str]] = {
    "sasl_plain_username": "sasl.jaas.config",
    "sasl_plain_password": "sasl.jaas.config",
    "ssl_cafile": "ssl.truststore.location",
    "ssl_certfile": "ssl.keystore.location",
    "ssl_password": "ssl.key.password",
}
"""The option that a setting may have come from, for messages."""


def cluster_settings(kafka: Mapping[str, str]) -> ClusterSettings:
    """Settings of a Cluster from ``kafka.*`` options; those of a consumer or producer are left out.

    Args:
        kafka: by Kafka's names, as in ``bootstrap.servers``.

    Raises:
        ConfigError: an option is unknown, out of range, contradicts another, or is Java's alone;
            it is named.
    """
    _check(kafka)
    values: dict[str, object] = dict(_named(kafka, ClusterSettings))
    values |= sasl_settings(kafka) | tls_settings(kafka)
    try:
        return ClusterSettings(**values)  # type: ignore[arg-type]  # checked by itself
    except ConfigError as error:
        raise ConfigError(in_kafkas_words(str(error), kafka)) from None


def producer_settings(kafka: Mapping[str, str]) -> dict[str, str]:
    """The settings of a producer among ``kafka.*`` options, without those of its Cluster.

    Args:
        kafka: by Kafka's names, as in ``linger.ms``.

    Returns:
        by the names of `aiokq.ProducerSettings`; values as they were given.

    Raises:
        ConfigError: as `cluster_settings`.
    """
    _check(kafka)
    of_cluster = ClusterSettings.model_fields
    given = _named(kafka, ProducerSettings)
    values = {name: value for name, value in given.items() if name not in of_cluster}
    # The timeouts of the two are checked against each other.
    request = {n: given[n] for n in ("request_timeout_ms",) if n in given}
    try:
        ProducerSettings(**(values | request))  # type: ignore[arg-type]  # checked by itself
    except ConfigError as error:
        raise ConfigError(in_kafkas_words(str(error), kafka)) from None
    return values


def _named(kafka: Mapping[str, str], settings: type[BaseModel]) -> dict[str, str]:
    known = settings.model_fields
    return {
        name.replace(".", "_"): value
        for name, value in kafka.items()
        if name.replace(".", "_") in known and name not in TRANSLATED
    }


def _check(kafka: Mapping[str, str]) -> None:
    for name in kafka:
        if name.replace(".", "_") in _known() or name in TRANSLATED:
            continue
        if name in NO_EFFECT:
            _warn_once(name)
            continue
        if name in JAVA_ONLY:
            why = f": {JAVA_ONLY[name]}" if JAVA_ONLY[name] else ""
            raise ConfigError(f"Kafka option '{name}' is not supported{why}")
        for start, instead in NOT_YET.items():
            if name.startswith(start):
                raise ConfigError(f"Kafka option '{name}' is not supported: {instead}")
        names = [known.replace("_", ".") for known in _known()]
        options = [f"kafka.{each}" for each in (*names, *TRANSLATED, *NO_EFFECT)]
        raise ConfigError.unknown(f"there is no option 'kafka.{name}'", f"kafka.{name}", options)


def warn_of_unused(kafka: Mapping[str, str], used: frozenset[str]) -> None:
    """Say of settings of a consumer that they have no effect, once.

    Those of a producer are left alone: who writes as well has one set of options for both.

    Args:
        used: the names of those that have one.
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
    # What is no text cannot be an option.
    return frozenset(name for kind in kinds for name in kind.model_fields) - {"ssl_context"}


@lru_cache(maxsize=256)
def _warn_once(name: str) -> None:
    logger.warning("option kafka.%s has no effect in aiokq", name)


@contextmanager
def named_as_options(kafka: Mapping[str, str]) -> Iterator[None]:
    """What fails in here says "kafka.max.request.size" where the client says max_request_size.

    Args:
        kafka: the options that the client was made of, by Kafka's names.

    Raises:
        KafkaError: the same object, in the words of whoever gave the options.
    """
    try:
        yield
    except KafkaError as error:
        error.args = (in_kafkas_words(error.message, kafka), *error.args[1:])
        raise


def in_kafkas_words(text: str, kafka: Mapping[str, str]) -> str:
    """A message about settings as one about options."""

    def name(found: re.Match[str]) -> str:
        setting = found[0]
        origin = _SETTINGS_OF.get(setting, "")
        return "kafka." + (origin if origin in kafka else setting.replace("_", "."))

    # Names of one word are words: they are names where a message begins with one. In quotes, or
    # with a partition, stands the name of a topic.
    inside = [rf"(?<!')\b{n}\b(?!'|-[0-9])" for n in sorted(_known()) if "_" in n]
    first = [rf"^{n}(?=: )" for n in sorted(_known()) if "_" not in n]
    return re.sub("|".join(inside + first), name, text)
