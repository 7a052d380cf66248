"""aiokq.spark.redaction: which options a session hides."""

from __future__ import annotations

import logging
import re
from types import SimpleNamespace

import pytest

from aiokq import ClusterSettings
from aiokq.spark import redaction
from aiokq.spark.options import ReadOptions
from aiokq.spark.write_options import WriteOptions


class Conf(dict):
    def set(self, name, value):
        self[name] = value


def session(**settings):
    return SimpleNamespace(conf=Conf({name.replace("_", "."): v for name, v in settings.items()}))


def test_a_session_hides_more_than_before():
    """Calling it again changes nothing."""
    spark = session()
    redaction.redact_secrets(spark)
    found = spark.conf[redaction.SETTING]
    assert found == f"(?:(?i)url)|{redaction.PATTERN}"
    redaction.redact_secrets(spark)
    assert spark.conf[redaction.SETTING] == found
    spark.conf[redaction.SETTING] = "mine"
    redaction.redact_secrets(spark)
    assert spark.conf[redaction.SETTING] == f"(?:mine)|{redaction.PATTERN}"


def test_the_pattern_has_every_setting_that_is_a_secret():
    """A new secret of the client must be hidden, too."""
    secrets = {
        name
        for name, field in ClusterSettings.model_fields.items()
        if "SecretStr" in str(field.annotation)
    }
    assert {"sasl_jaas_config", "ssl_keystore_key", "ssl_key_password"} <= secrets
    for name in secrets:
        for option in (f"kafka.{name}", f"kafka.{name.replace('_', '.')}"):
            assert re.search(redaction.PATTERN, option), option


def test_what_spark_shows_by_default_is_warned_of(caplog: pytest.LogCaptureFixture):
    redaction._warn_once.cache_clear()
    names = ["kafka.ssl.keystore.key", "kafka.sasl.jaas.config", "kafka.SSL_KEYSTORE_KEY"]
    with caplog.at_level(logging.WARNING, "aiokq.spark"):
        redaction.warn_of_shown_secrets(names)
        redaction.warn_of_shown_secrets(names)
        redaction.warn_of_shown_secrets(["kafka.sasl.passphrase", redaction.REDACTED])
    assert [record.args[0] for record in caplog.records] == [names[0], names[2]]
    redaction._warn_once.cache_clear()


def test_options_are_not_in_a_repr():
    """A reader is an attribute of a task, which a traceback or a log may show."""
    given = {
        "kafka.bootstrap.servers": "h:1",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.plain.username": "u",
        "kafka.sasl.plain.password": "S3CR3T",
    }
    read = ReadOptions.parse({**given, "subscribe": "t"}, streaming=False)
    written = WriteOptions.parse({**given, "topic": "t"}, streaming=False)
    assert "S3CR3T" not in f"{read!r} {written!r}"
