"""ProducerSettings: Kafka's names, ranges and rules between settings."""

from __future__ import annotations

import copy
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest

from aiokq import Cluster, Producer
from aiokq.core.errors import ConfigError, ConfigWarning
from aiokq.core.limits import INT32_MAX
from aiokq.producer.settings import ProducerSettings


def test_defaults_are_kafka_s_but_for_the_documented_ones() -> None:
    """Users who know Kafka know the defaults."""
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
    """An explicit value is used as it is; the default linger is shortened for awaited records."""
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


@pytest.mark.parametrize("given", [2, "some", "7", True, None, 1.0, [1]])
def test_other_acks_are_refused(given: Any) -> None:
    """INVALID_REQUIRED_ACKS is detected without a broker, with one message for all values."""
    with pytest.raises(ConfigError) as caught:
        ProducerSettings(acks=given)
    assert str(caught.value) == f"acks: must be 0, 1, -1 or 'all', not {given!r}"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"delivery_timeout_ms": INT32_MAX},
        {"delivery_timeout_ms": INT32_MAX, "linger_ms": 100},
    ],
)
def test_a_derived_timeout_is_not_above_its_own_maximum(given: dict[str, Any]) -> None:
    """Kafka adds linger.ms and request.timeout.ms, up to the largest int, which is the maximum."""
    settings = ProducerSettings(request_timeout_ms=INT32_MAX, **given)
    assert settings.delivery_timeout_ms == INT32_MAX


@pytest.mark.parametrize(
    "conflict",
    [{"acks": 1}, {"acks": 0}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}],
)
def test_idempotence_gives_way_unless_it_was_asked_for(conflict: dict[str, Any]) -> None:
    """As in Java: if it is unset it is disabled, if it is set there is a conflict."""
    settings = ProducerSettings(**conflict)
    assert not settings.enable_idempotence
    assert "enable_idempotence" not in settings.explicit
    assert not ProducerSettings(enable_idempotence=False, **conflict).enable_idempotence
    with pytest.raises(ConfigError, match="enable_idempotence conflicts with"):
        ProducerSettings(enable_idempotence=True, **conflict)


def test_idempotence_comes_back_when_an_override_removes_the_conflict() -> None:
    """A default that was disabled is not an explicit value."""
    assert ProducerSettings(acks=1).with_overrides(acks="all").enable_idempotence


def test_a_linger_beyond_the_default_raises_the_delivery_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As in Java, an unset delivery_timeout_ms is raised until it covers a request."""
    with caplog.at_level(logging.WARNING):
        settings = ProducerSettings(linger_ms=100_000)
    assert settings.delivery_timeout_ms == 130_000
    assert "delivery_timeout_ms" in caplog.text


DELIVERY = {"delivery_timeout_ms": 2000}


def _limits(settings: ProducerSettings) -> tuple[float, int, int, int]:
    held = settings.timeouts
    assert settings.linger_ms == held.linger_ms
    assert settings.delivery_timeout_ms == held.delivery_timeout_ms
    assert settings.max_block_ms == held.max_block_ms
    return held.linger_ms, held.request_timeout_ms, held.delivery_timeout_ms, held.max_block_ms


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ({}, (5, 30_000, 120_000, 60_000)),
        ({"delivery_timeout_ms": 2000}, (5, 997, 2000, 2000)),
        ({"delivery_timeout_ms": 8}, (2, 100, 8, 8)),
        ({"delivery_timeout_ms": 1}, (0.25, 100, 1, 1)),
        ({"delivery_timeout_ms": 90_000}, (5, 30_000, 90_000, 60_000)),
        ({**DELIVERY, "linger_ms": 1000}, (1000, 500, 2000, 2000)),
        ({**DELIVERY, "linger_ms": 1990}, (1990, 100, 2000, 2000)),
        ({**DELIVERY, "request_timeout_ms": 1500}, (5, 1500, 2000, 2000)),
        ({**DELIVERY, "request_timeout_ms": 1998}, (2, 1998, 2000, 2000)),
        ({**DELIVERY, "request_timeout_ms": 2000}, (0, 2000, 2000, 2000)),
        ({**DELIVERY, "max_block_ms": 9000}, (5, 997, 2000, 9000)),
        ({**DELIVERY, "linger_ms": 0, "request_timeout_ms": 2000}, (0, 2000, 2000, 2000)),
    ],
)
def test_what_is_not_set_gives_way_to_a_delivery_timeout_that_is(
    given: dict[str, Any], limits: tuple[float, int, int, int]
) -> None:
    """Regression: delivery_timeout_ms=2000 alone was rejected because of the other defaults."""
    settings = ProducerSettings(**given)
    assert _limits(settings) == limits
    assert settings.explicit == given.keys()
    shown = repr(settings)
    assert f"produce_request_timeout_ms={limits[1]}" in shown
    assert f"max_block_ms={limits[3]}" in shown
    # Requests other than Produce use the setting itself.
    assert settings.request_timeout_ms == given.get("request_timeout_ms", 30_000)


def test_every_way_of_setting_a_delivery_timeout_counts(tmp_path: Path) -> None:
    """A keyword, settings=, the environment and a file; later values adjust the others again."""
    expected = (5, 997, 2000, 2000)
    base = ProducerSettings(delivery_timeout_ms=2000)
    assert _limits(Producer(delivery_timeout_ms=2000).settings) == expected
    assert _limits(Producer(settings=base, acks=1).settings) == expected
    environ = {"KAFKA_DELIVERY_TIMEOUT_MS": "2000"}
    assert _limits(ProducerSettings.from_env(environ=environ)) == expected
    path = tmp_path / "producer.properties"
    path.write_text("delivery.timeout.ms=2000\n")
    assert _limits(ProducerSettings.from_properties(path)) == expected
    assert _limits(pickle.loads(pickle.dumps(base))) == expected
    assert _limits(copy.deepcopy(base)) == expected
    again = Producer(settings=base, linger_ms=400, max_block_ms=60_000).settings
    assert _limits(again) == (400, 800, 2000, 60_000)
    assert _limits(base.with_overrides(delivery_timeout_ms=120_000)) == (5, 30_000, 120_000, 60_000)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"linger_ms": 2000},
            "linger_ms=2000 leaves no time to send within delivery_timeout_ms=2000: "
            "lower linger_ms, or raise delivery_timeout_ms",
        ),
        (
            {"request_timeout_ms": 2001},
            "delivery_timeout_ms=2000 is below request_timeout_ms=2001: raise "
            "delivery_timeout_ms to 2001 or more, or lower request_timeout_ms",
        ),
        (
            {"linger_ms": 500, "request_timeout_ms": 1600},
            "delivery_timeout_ms=2000 is below linger_ms=500 + request_timeout_ms=1600: raise "
            "delivery_timeout_ms to 2100, or lower the other two",
        ),
    ],
)
def test_timeouts_that_were_set_and_contradict_each_other_are_refused(
    given: dict[str, Any], said: str
) -> None:
    """The error names only explicit settings, and what to do."""
    with pytest.raises(ConfigError) as caught:
        ProducerSettings(delivery_timeout_ms=2000, **given)
    assert caught.value.message == said


def test_a_cluster_s_request_timeout_is_no_conflict_of_its_producers() -> None:
    """It limits requests of all clients, while Produce has a limit of the producer's own."""
    cluster = Cluster(request_timeout_ms=20_000, client_id="shop")
    settings = cluster.producer(delivery_timeout_ms=2000).settings
    assert _limits(settings) == (5, 997, 2000, 2000)
    assert (settings.request_timeout_ms, settings.client_id) == (20_000, "shop")
    assert settings.of_cluster == {"request_timeout_ms", "client_id"}
    assert _limits(settings.with_overrides(acks=1)) == (5, 997, 2000, 2000)
    with pytest.raises(ConfigError, match="below request_timeout_ms=3000"):
        settings.with_overrides(request_timeout_ms=3000)
    shorter = Cluster(request_timeout_ms=300).producer(delivery_timeout_ms=2000)
    assert _limits(shorter.settings) == (5, 300, 2000, 2000)
    longer = Cluster(request_timeout_ms=150_000).producer()
    assert _limits(longer.settings) == (5, 150_000, 150_005, 60_000)


def test_a_delivery_timeout_of_nothing_is_refused() -> None:
    """No record could be delivered; in Kafka it is possible only with request.timeout.ms=0."""
    with pytest.raises(ConfigError, match="delivery_timeout_ms"):
        ProducerSettings(delivery_timeout_ms=0)


@pytest.mark.parametrize(
    ("conflict", "named"),
    [
        ({"acks": 1}, "acks=1"),
        ({"enable_idempotence": False}, "enable_idempotence=False"),
        ({"retries": 0}, "retries=0"),
        ({"max_in_flight_requests_per_connection": 6}, "max_in_flight_requests_per_connection=6"),
    ],
)
def test_a_transactional_id_needs_idempotence(conflict, named) -> None:
    """Idempotence would turn itself off, and the transaction could lose or repeat records."""
    with pytest.raises(ConfigError, match=f"transactional_id conflicts with .*{named}"):
        ProducerSettings(transactional_id="tx", **conflict)
    assert ProducerSettings(transactional_id="tx").transactional_id == "tx"


def test_an_empty_transactional_id_is_refused() -> None:
    """Brokers refuse it only when the producer starts."""
    with pytest.raises(ConfigError, match="at least one character"):
        ProducerSettings(transactional_id="")


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
    """A mistyped linger must not silently mean the default."""
    with pytest.raises(ConfigError, match="did you mean linger_ms"):
        ProducerSettings(linger=5)
    with pytest.raises(ConfigError, match="did you mean transaction_timeout_ms"):
        ProducerSettings(transaction_timeout=5)


def test_two_phase_commit_is_not_supported() -> None:
    """The error was "aiokq has no transactions", which is false."""
    with pytest.raises(ConfigError) as refused:
        ProducerSettings(transaction_two_phase_commit_enable=True)
    assert refused.value.message == (
        "transaction_two_phase_commit_enable is not supported yet: aiokq has no two-phase commit "
        "(KIP-939)"
    )


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
    """Regression: each Java producer's file names two classes, and was rejected."""
    path = tmp_path / "producer.properties"
    path.write_text("key.serializer=org.apache.X\nvalue.serializer=org.apache.X\nlinger.ms=7\n")
    with pytest.warns(ConfigWarning, match=r"serializer is ignored: pass a serializer"):
        settings = ProducerSettings.from_properties(path)
    assert settings.linger_ms == 7
    assert settings.key_serializer is None


def test_a_warning_about_timeouts_is_given_once(caplog: pytest.LogCaptureFixture) -> None:
    """`producer.settings` is built on each access, which must not repeat the warning."""
    with caplog.at_level(logging.WARNING):
        producer = Producer("h:1", linger_ms=100_000)
        assert producer.settings.delivery_timeout_ms == 130_000
        assert producer.settings is producer.settings
    assert caplog.text.count("delivery_timeout_ms raised") == 1
