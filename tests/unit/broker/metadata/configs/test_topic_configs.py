"""The table of topic configs."""

from __future__ import annotations

import pytest

from aiokq.broker.config.settings import SETTINGS, broker_settings
from aiokq.broker.log.config import LogConfig
from aiokq.broker.metadata.configs.topic_configs import (
    TOPIC_CONFIGS,
    check_topic_configs,
    config_text,
    log_config,
)
from aiokq.core.errors import ConfigError, InvalidConfiguration

DEFAULTS = broker_settings()


def test_the_table_and_the_typed_settings_have_the_same_names() -> None:
    """A row without a field would be accepted and ignored."""
    fields = set(LogConfig._fields)
    assert {row.field for row in TOPIC_CONFIGS.values()} == fields
    assert list(TOPIC_CONFIGS) == sorted(TOPIC_CONFIGS)
    for row in TOPIC_CONFIGS.values():
        assert row.doc.endswith(".")
        assert all(name in SETTINGS for name in row.server), row.name


def test_a_topic_without_settings_has_kafkas_defaults() -> None:
    """The defaults come from the server's settings, which default to Kafka's values."""
    assert log_config({}, DEFAULTS) == LogConfig()


def test_a_topics_own_settings_come_before_the_servers() -> None:
    """Of the server's settings, the finer unit comes before the coarser."""
    server = broker_settings({"log.retention.hours": "2", "log.segment.bytes": "2000000"})
    assert log_config({}, server).retention_ms == 7_200_000
    assert log_config({"retention.ms": "5"}, server).retention_ms == 5
    assert log_config({}, server).segment_bytes == 2_000_000
    finer = broker_settings({"log.retention.hours": "2", "log.retention.minutes": "1"})
    assert log_config({}, finer).retention_ms == 60_000
    finest = broker_settings({"log.retention.minutes": "1", "log.retention.ms": "-1"})
    assert log_config({}, finest).retention_ms == -1
    assert log_config({}, broker_settings({"log.retention.hours": "-1"})).retention_ms == -1
    assert log_config({}, broker_settings({"log.roll.hours": "1"})).segment_ms == 3_600_000


@pytest.mark.parametrize(
    "name", ["log.roll.ms", "log.roll.jitter.ms", "log.flush.interval.ms", "log.retention.bytes"]
)
def test_a_servers_default_is_no_value_that_a_topic_may_not_have(name: str) -> None:
    """With 0 ms a log would have a segment per batch, and with jitter would never roll."""
    with pytest.raises(ConfigError, match=f"{name} must be at least"):
        broker_settings({name: "-5"})


def test_values_are_typed() -> None:
    """Lists, booleans and ratios have the types that the code uses."""
    config = log_config(
        {
            "cleanup.policy": "compact, delete",
            "preallocate": "true",
            "min.cleanable.dirty.ratio": "0.25",
            "compression.type": "zstd",
        },
        DEFAULTS,
    )
    assert config.cleanup_policy == ("compact", "delete")
    assert config.compacted
    assert config.preallocate is True
    assert config.min_cleanable_dirty_ratio == 0.25
    assert config_text(config, "cleanup.policy") == "compact,delete"
    assert config_text(config, "preallocate") == "true"
    assert config_text(config, "min.cleanable.dirty.ratio") == "0.25"
    assert config_text(config, "retention.bytes") == "-1"


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("retention.mss", "1", "did you mean retention.ms"),
        ("retention.ms", "soon", "of type long"),
        ("retention.ms", "-2", "at least -1"),
        ("segment.bytes", "1000", "at least 1048576"),
        ("segment.bytes", str(2**31), "at most"),
        ("cleanup.policy", "shrink", "compact, delete"),
        ("cleanup.policy", "delete,", "compact, delete"),
        ("compression.type", "brotli", "one of"),
        ("compression.gzip.level", "0", "1 to 9, or -1"),
        ("compression.zstd.level", "23", "at most 22"),
        ("min.cleanable.dirty.ratio", "1.5", "at most 1"),
        ("preallocate", "yes", "boolean"),
        ("message.timestamp.type", "createtime", "CreateTime"),
        ("segment.ms", None, "must not be null"),
        ("remote.storage.enable", "true", "Unknown topic config"),
    ],
)
def test_what_kafka_refuses_is_refused(name: str, value: str | None, complaint: str) -> None:
    """INVALID_CONFIG names the config and the valid values."""
    with pytest.raises(InvalidConfiguration, match=complaint) as caught:
        check_topic_configs({name: value})
    assert caught.value.code == 40
    assert name in caught.value.message


def test_a_lag_below_its_minimum_is_a_conflict() -> None:
    """A record could be neither compacted nor kept."""
    with pytest.raises(InvalidConfiguration, match="conflict"):
        check_topic_configs({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"})


def test_given_settings_are_kept_as_given() -> None:
    """DescribeConfigs returns them unchanged."""
    given = {"retention.ms": " 100 ", "cleanup.policy": "compact"}
    assert check_topic_configs(given) == {"retention.ms": "100", "cleanup.policy": "compact"}


def test_an_error_about_a_long_value_fits_in_a_response() -> None:
    """Regression: the connection was closed, and the client repeated its request."""
    with pytest.raises(InvalidConfiguration) as caught:
        check_topic_configs({"retention.ms": "0" * 32_760 + "x"})
    assert len(caught.value.message) < 2000
