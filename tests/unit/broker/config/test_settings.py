"""aiokq.broker.config.settings: the table, profiles, and the errors of wrong settings."""

from __future__ import annotations

import pytest

from aiokq.broker.config.setting import java_text
from aiokq.broker.config.settings import (
    PROFILES,
    SETTINGS,
    BrokerSettings,
    broker_settings,
    log_directories,
)
from aiokq.core.errors import ConfigError


def test_every_setting_has_a_meaning_and_a_default_within_its_own_range():
    """A default out of its own range would make every start fail."""
    for setting in SETTINGS.values():
        assert setting.doc.endswith(".")
        assert setting.parse(setting.default) == setting.default


def test_every_profile_is_within_range_and_kafka_changes_nothing():
    """A wrong name in a profile would fail at each start with it."""
    assert PROFILES["kafka"] == {}
    for profile, values in PROFILES.items():
        settings = broker_settings(profile=profile)
        assert settings.profile == profile
        assert settings.explicit == frozenset(values)
        for name, value in values.items():
            assert settings.value_of(name) == value


def test_text_becomes_the_type_of_the_setting():
    """--set gives text for every type."""
    settings = broker_settings(
        {
            "num.partitions": "4",
            "auto.create.topics.enable": "FALSE",
            "log.cleaner.min.cleanable.ratio": "0.25",
            "log.cleanup.policy": "compact, delete",
            "log.retention.ms": "-1",
            "group.consumer.migration.policy": "UPGRADE",
        }
    )
    assert settings.num_partitions == 4
    assert settings.auto_create_topics_enable is False
    assert settings.log_cleaner_min_cleanable_ratio == 0.25
    assert settings.log_cleanup_policy == "compact, delete"
    assert settings.log_retention_ms == -1
    assert settings.group_consumer_migration_policy == "upgrade"  # Kafka ignores its case
    assert "num.partitions" in settings.explicit


def test_underscores_serve_as_dots():
    """EmbeddedCluster(settings={"num_partitions": 3}) is natural in Python."""
    assert broker_settings({"num_partitions": 3}).num_partitions == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("num.partitions", "num_partitions"),
        ("num.io.threads", " num.io_threads"),
        ("listener.name.A.max.connections", "listener.name.a.max.connections"),
    ],
)
def test_a_setting_in_two_spellings_is_refused(one, other):
    """Regression: the last one won."""
    with pytest.raises(ConfigError, match="two spellings of one broker setting") as caught:
        broker_settings({one: 1, other: 2})
    assert repr(one) in caught.value.message
    assert repr(other) in caught.value.message


def test_an_unknown_name_is_told_the_nearest_one():
    """A mistyped name must be refused."""
    with pytest.raises(ConfigError, match=r"did you mean num\.partitions\?"):
        broker_settings({"num.partition": "4"})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("num.partitions", "0", "at least 1"),
        ("num.partitions", "many", "type int"),
        ("num.partitions", True, "type int"),
        ("num.partitions", None, "must not be null"),
        ("message.max.bytes", str(2**31), "at most"),
        ("compression.type", "brotli", "one of"),
        ("log.cleanup.policy", "delete,keep", "one of"),
        ("auto.create.topics.enable", "yes", "type boolean"),
        # Java reads no underscores in numbers; Python does.
        ("num.partitions", "1_0", "type int"),
        ("log.retention.ms", "1_000", "type long"),
        ("log.cleaner.min.cleanable.ratio", "0_0.5", "type double"),
        # Python converts no text of more than 4300 digits, and no such number to text.
        ("num.partitions", "9" * 5000, "type int"),
        ("num.partitions", 10**5000, "at most"),
        ("num.partitions", -(10**5000), "at least"),
        ("log.cleaner.min.cleanable.ratio", 10**5000, "type double"),
    ],
    ids=lambda value: str(value)[:40] if not isinstance(value, int) else "",
)
def test_a_bad_value_is_refused_with_its_name_and_what_is_allowed(name, value, words):
    """Otherwise a value out of range fails much later."""
    with pytest.raises(ConfigError, match=words) as caught:
        broker_settings({name: value})
    assert name in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("text", ["7", "+7", " 7 ", "0" * 500 + "7"])
def test_a_number_is_read_as_java_reads_it(text):
    """Files of Apache Kafka must keep their meaning."""
    assert broker_settings({"num.partitions": text}).num_partitions == 7


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\udcff", r"'\\udcff' is not valid UTF-8"),
        ("x" * 32768, "32,768 bytes, of which a response can hold 32,767"),
        ("é" * 16384, "32,768 bytes"),
    ],
    ids=["surrogate", "long", "long in UTF-8"],
)
@pytest.mark.parametrize("name", ["broker.rack", "listeners", "max.connections.per.ip.overrides"])
def test_a_text_that_no_response_can_hold_is_refused(name, text, words):
    """Regression: every Metadata and DescribeConfigs request closed its connection."""
    with pytest.raises(ConfigError, match=f"^{name}.* {words}" if "bytes" in words else words):
        broker_settings({name: text})


def test_a_text_that_no_response_has_may_be_anything():
    """A secret is not shown to clients, and a path need not be UTF-8."""
    broker_settings({"ssl.keystore.key": "x" * 40000, "broker.rack": "x" * 32767})
    paths = log_directories(broker_settings({"log.dirs": "/\udcff"}))
    assert paths == ["/\udcff"]


@pytest.mark.parametrize("path", ["a\0b", "a\ud800b"])
def test_a_log_directory_that_no_path_can_name_is_refused(path):
    """`os` raises a ValueError for it, which is not an OSError."""
    for name in ("log.dirs", "log.dir"):
        with pytest.raises(ConfigError, match=rf"^{name}: '.*' cannot be the path"):
            log_directories(broker_settings({name: f"/good,/{path}"}))


def test_a_setting_that_is_an_argument_elsewhere_says_where():
    """Kafka had `port` and `zookeeper.connect` for years."""
    with pytest.raises(ConfigError, match="--port"):
        broker_settings({"port": "9092"})
    with pytest.raises(ConfigError, match="has no ZooKeeper"):
        broker_settings({"zookeeper.connect": "localhost:2181"})


def test_log_dirs_are_paths_between_commas():
    """As in Kafka's server.properties; --data-dir wins over them."""
    settings = broker_settings({"log.dirs": "/a, /b ,"})
    assert log_directories(settings) == ["/a", "/b"]
    assert log_directories(broker_settings()) == []
    assert log_directories(broker_settings({"log.dir": "/c"})) == ["/c"]
    assert log_directories(broker_settings({"log.dir": "/c", "log.dirs": "/a"})) == ["/a"]


def test_an_unknown_profile_is_refused():
    """The profiles are dev and kafka."""
    with pytest.raises(ConfigError, match="dev"):
        broker_settings(profile="prod")


def test_null_is_a_value_where_kafka_has_it():
    """log.retention.ms unset falls back to minutes and hours."""
    assert BrokerSettings().log_retention_ms is None
    assert broker_settings({"log.retention.ms": ""}).log_retention_ms is None


def test_gzip_has_no_level_0() -> None:
    """Kafka refuses it, too; the range alone would allow it."""
    with pytest.raises(ConfigError, match="1 to 9, or -1, not 0"):
        broker_settings({"compression.gzip.level": 0})
    assert broker_settings({"compression.gzip.level": -1}).compression_gzip_level == -1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (0.5, "0.5"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9999999.9, "9999999.9"),
        (1e7, "1.0E7"),
        (123456789.5, "1.234567895E8"),
        (-12345678.0, "-1.2345678E7"),
        (1e16, "1.0E16"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (5e-324, "4.9E-324"),
    ],
)
def test_numbers_are_written_as_java_writes_them(value: float, text: str) -> None:
    """Kafka's tools show a value as the broker sends it. The texts are those of Java 25."""
    assert java_text(value) == text
