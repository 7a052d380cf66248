"""ProducerSettings: Kafka's names, ranges and rules between settings."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from aiokq.core.errors import ConfigError, ConfigWarning
from aiokq.producer.settings import ProducerSettings


def test_defaults_are_kafka_s_but_for_the_documented_ones() -> None:
    """Whoever knows Kafka knows what to expect."""
    settings = ProducerSettings()
    assert settings.acks == -1
    assert settings.enable_idempotence
    assert settings.batch_size == 128 * 1024
    assert settings.linger_ms == 5
    assert settings.buffer_memory == 32 * 1024 * 1024
    assert settings.max_request_size == 1024 * 1024
    assert settings.delivery_timeout_ms == 120_000
    assert settings.max_block_ms == 60_000
    assert settings.max_in_flight_requests_per_connection == 5
    assert settings.retries == 2**31 - 1
    assert settings.compression_type == "none"


def test_a_linger_that_was_given_holds_for_awaited_records() -> None:
    """What was set is done; the default is cut short where it is of no use."""
    assert not ProducerSettings().lingers_when_awaited
    assert not ProducerSettings(acks=1).lingers_when_awaited
    assert ProducerSettings(linger_ms=5).lingers_when_awaited
    assert ProducerSettings(linger_ms=5).with_overrides(acks=1).lingers_when_awaited
    assert ProducerSettings.from_env(environ={"KAFKA_LINGER_MS": "5"}).lingers_when_awaited
    assert not ProducerSettings(linger_ms=5, linger_when_awaited=False).lingers_when_awaited
    assert ProducerSettings(linger_when_awaited=True).lingers_when_awaited


@pytest.mark.parametrize(
    ("given", "number"), [(0, 0), (1, 1), (-1, -1), ("all", -1), ("1", 1), ("-1", -1), ("ALL", -1)]
)
def test_acks_takes_every_spelling(given: Any, number: int) -> None:
    """0, 1, -1 and 'all', also as text from the environment."""
    assert ProducerSettings(acks=given).acks == number
    assert ProducerSettings(acks=given).required_acks == number


@pytest.mark.parametrize("given", [2, "some", True, None])
def test_other_acks_are_refused(given: Any) -> None:
    """INVALID_REQUIRED_ACKS is found before a broker says so."""
    with pytest.raises(ConfigError, match="acks"):
        ProducerSettings(acks=given)


@pytest.mark.parametrize(
    "conflict",
    [{"acks": 1}, {"acks": 0}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}],
)
def test_idempotence_gives_way_unless_it_was_asked_for(conflict: dict[str, Any]) -> None:
    """As in Java: unset it turns itself off, set it is a conflict."""
    settings = ProducerSettings(**conflict)
    assert not settings.enable_idempotence
    assert "enable_idempotence" not in settings.explicit
    assert not ProducerSettings(enable_idempotence=False, **conflict).enable_idempotence
    with pytest.raises(ConfigError, match="enable_idempotence conflicts with"):
        ProducerSettings(enable_idempotence=True, **conflict)


def test_idempotence_comes_back_when_an_override_removes_the_conflict() -> None:
    """What was turned off by itself was never given."""
    assert ProducerSettings(acks=1).with_overrides(acks="all").enable_idempotence


def test_delivery_timeout_holds_a_request(caplog: pytest.LogCaptureFixture) -> None:
    """As in Java: explicitly too short is an error, else it is raised."""
    with pytest.raises(ConfigError, match="raise it to 30005"):
        ProducerSettings(delivery_timeout_ms=1000)
    with caplog.at_level(logging.WARNING):
        settings = ProducerSettings(linger_ms=100_000)
    assert settings.delivery_timeout_ms == 130_000
    assert "delivery_timeout_ms" in caplog.text


def test_transactions_are_refused_in_words() -> None:
    """A setting that cannot be kept must not be ignored."""
    with pytest.raises(ConfigError, match="not supported yet"):
        ProducerSettings(transactional_id="tx")


@pytest.mark.parametrize(
    "bad",
    [
        {"compression_type": "zip"},
        {"compression_gzip_level": 0},
        {"compression_gzip_level": 10},
        {"compression_lz4_level": 18},
        {"compression_zstd_level": 23},
        {"compression_type_by_topic": "orders=zstd"},
        {"compression_type_by_topic": {"orders": "zip"}},
        {"batch_size": -1},
        {"buffer_memory": 0},
        {"linger_ms": -1},
        {"retries": 2**31},
        {"max_in_flight_requests_per_connection": 0},
        {"partitioner": 5},
        {"value_serializer": 5},
    ],
)
def test_what_is_out_of_range_is_refused(bad: dict[str, Any]) -> None:
    """Kafka's ranges."""
    with pytest.raises(ConfigError, match=next(iter(bad))):
        ProducerSettings(**bad)


def test_an_unknown_name_suggests_the_nearest() -> None:
    """Typing linger must not mean the default."""
    with pytest.raises(ConfigError, match="did you mean linger_ms"):
        ProducerSettings(linger=5)


def test_codecs_by_topic_come_from_text_too() -> None:
    """KAFKA_COMPRESSION_TYPE_BY_TOPIC is a string."""
    settings = ProducerSettings.from_env(
        environ={"KAFKA_COMPRESSION_TYPE_BY_TOPIC": "orders:zstd, clicks:lz4", "KAFKA_ACKS": "all"}
    )
    assert settings.compression_type_by_topic == {"orders": "zstd", "clicks": "lz4"}


def test_levels_are_those_of_the_codec() -> None:
    """KIP-390; a codec without levels has none."""
    settings = ProducerSettings(compression_gzip_level=9, compression_zstd_level=-5)
    assert [settings.compression_level(codec) for codec in range(5)] == [None, 9, None, 9, -5]


def test_the_serializer_classes_of_a_java_file_warn_and_are_ignored(tmp_path: Path) -> None:
    """Every Java producer's file names two: taking the class name for a serializer refused it."""
    path = tmp_path / "producer.properties"
    path.write_text("key.serializer=org.apache.X\nvalue.serializer=org.apache.X\nlinger.ms=7\n")
    with pytest.warns(ConfigWarning, match=r"serializer is ignored: pass a serializer"):
        settings = ProducerSettings.from_properties(path)
    assert settings.linger_ms == 7
    assert settings.key_serializer is None
