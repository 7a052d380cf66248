"""The settings that change while a broker runs: which they are, and which value is in effect."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from aiokq.broker.config.dynamic_settings import (
    DYNAMIC_SETTINGS,
    STORE_SETTINGS,
    DynamicSettings,
    effective_settings,
    is_dynamic,
    parse_dynamic,
)
from aiokq.broker.config.kafka_settings import is_of_kafka, is_sensitive, kafka_type
from aiokq.broker.config.settings import SETTINGS, broker_settings
from aiokq.broker.metadata.configs.topic_configs import TOPIC_CONFIGS
from aiokq.core.errors import ConfigError

GOLDEN = json.loads(
    (Path(__file__).parents[3] / "golden" / "metadata" / "decisions.json").read_text()
)


def test_they_are_kafkas_except_those_that_this_broker_does_not_use() -> None:
    """A setting that Kafka 4.2 can change must be changed here, or be on this list."""
    missing = GOLDEN["dynamic_settings"].keys() - DYNAMIC_SETTINGS
    prefixes = ("ssl.", "sasl.", "remote.", "log.local.retention.")
    assert GOLDEN["dynamic_settings"].keys() >= DYNAMIC_SETTINGS
    assert {name for name in missing if not name.startswith(prefixes)} == {
        "background.threads",  # Kafka's pools of threads
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "config.providers",  # Java classes
        "metric.reporters",
        "principal.builder.class",
        "listener.security.protocol.map",
        "listeners",
    }


def test_they_are_in_the_table_and_none_is_of_one_broker_only() -> None:
    """All may be set for the cluster, so no resource needs another list."""
    assert SETTINGS.keys() >= DYNAMIC_SETTINGS
    assert {GOLDEN["dynamic_settings"][name] for name in DYNAMIC_SETTINGS} == {"cluster-wide"}


def test_every_default_of_a_topics_setting_can_change() -> None:
    """That is the first of the settings that a topic's setting defaults to."""
    assert {row.server[0] for row in TOPIC_CONFIGS.values() if row.server} <= DYNAMIC_SETTINGS


def test_a_brokers_own_value_comes_before_the_clusters_and_both_before_the_static_one() -> None:
    """KIP-226."""
    static = broker_settings({"log.roll.ms": 4, "log.retention.ms": 4, "max.connections": 4})
    effective = effective_settings(
        static, {"log.roll.ms": "5", "log.retention.ms": "5"}, {"log.retention.ms": "6"}
    )
    settings = effective.settings
    assert settings.max_connections == 4
    assert settings.log_roll_ms == 5
    assert settings.log_retention_ms == 6
    assert settings.explicit == static.explicit
    assert effective_settings(static, {}, {}).settings is static


def test_what_cannot_take_effect_is_left_out() -> None:
    """Apache Kafka may have stored it; the broker starts nevertheless."""
    static = broker_settings({})
    effective = effective_settings(
        static, {"num.io.threads": "5", "log.roll.ms": "x"}, {"log.roll.ms": "7"}
    )
    assert effective.settings.log_roll_ms == 7
    assert (effective.cluster, effective.own) == ({}, {"log.roll.ms": "7"})
    assert effective.refused_cluster.keys() == {"num.io.threads", "log.roll.ms"}
    assert effective.refused_own == {}


def test_listeners_have_a_limit_of_their_own() -> None:
    """A listener's name may have any case in the setting."""
    static = broker_settings({"listener.name.plaintext.max.connections": 5})
    name = "listener.name.internal.max.connections"
    effective = effective_settings(static, {name: "6"}, {})
    assert dict(effective.settings.listener_max_connections) == {"PLAINTEXT": 5, "INTERNAL": 6}
    assert is_dynamic(name)
    assert not is_dynamic("listener.name.internal.ssl.client.auth")
    assert not is_dynamic("listener.name..max.connections")
    with pytest.raises(ConfigError, match=r"listener\.name\.internal\.max\.connections must be"):
        parse_dynamic(name, "-1")


def test_the_stores_of_a_listener_are_of_one_broker() -> None:
    """Kafka's names; a static value of the listener and that of all listeners come after them."""
    assert {
        name for name, mode in GOLDEN["dynamic_settings"].items() if mode == "per-broker"
    } >= STORE_SETTINGS
    static = broker_settings(
        {"listener.name.a.ssl.keystore.location": "1", "listener.name.a.ssl.client.auth": "none"}
    )
    location, kind = "listener.name.a.ssl.keystore.location", "listener.name.b.ssl.keystore.type"
    effective = effective_settings(static, {location: "2"}, {location: "3", kind: "PEM"})
    of_a, of_b = (effective.settings.listener_settings[name] for name in "AB")
    assert dict(of_a) == {"ssl.keystore.location": "3", "ssl.client.auth": "none"}
    assert dict(of_b) == {"ssl.keystore.type": "PEM"}
    assert effective.refused_cluster == {location: "it can be set for one broker only"}
    assert not is_dynamic("ssl.keystore.location")
    settings = DynamicSettings(static)
    assert settings.apply({}, {location: "3", kind: "PEM"}) == {location, kind}
    assert settings.apply({}, {kind: "PEM"}) == {location}
    assert settings.apply({}, {}) == {kind}


def test_users_learn_which_values_have_changed(caplog: pytest.LogCaptureFixture) -> None:
    """A value that stays the same needs no work."""
    caplog.set_level(logging.INFO, "aiokq.broker")
    settings = DynamicSettings(broker_settings({"log.roll.ms": 4}))
    told: list[frozenset[str]] = []
    settings.listeners.append(told.append)
    assert settings.apply({"log.roll.ms": "4"}, {}) == frozenset()
    settings.apply(
        {"log.roll.ms": "5", "listener.name.a.max.connections": "1", "num.io.threads": "2"}, {}
    )
    assert settings.current.log_roll_ms == 5
    assert settings.stored_cluster["num.io.threads"] == "2"
    assert "num.io.threads" not in settings.cluster
    settings.apply({"num.io.threads": "2"}, {"log.roll.ms": "5"})
    settings.apply({}, {})
    assert settings.current is settings.static
    names = {"log.roll.ms", "listener.name.a.max.connections"}
    assert told == [names, {"listener.name.a.max.connections"}, {"log.roll.ms"}]
    warnings = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert warnings == [
        "dynamic setting has no effect: setting=num.io.threads brokers=all reason=this broker "
        "does not use it, or reads it at its start"
    ]


def test_a_refused_value_of_all_brokers_and_one_of_this_broker_are_told_apart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Both may be stored under one name, and only one of them may be new or invalid."""
    settings = DynamicSettings(broker_settings({}))

    def warned(cluster: dict[str, str], own: dict[str, str]) -> list[tuple[str, str]]:
        caplog.clear()
        settings.apply(cluster, own)
        return [(str(one.args[0]), str(one.args[1])) for one in caplog.records if one.args]

    name = "log.roll.ms"
    assert warned({name: "x"}, {name: "7"}) == [(name, "all")]
    assert warned({name: "y"}, {name: "7"}) == [(name, "all")]
    assert warned({name: "y"}, {name: "y"}) == [(name, "this")]
    assert warned({name: "z"}, {name: "y"}) == [(name, "all")]
    assert warned({name: "z"}, {name: "y"}) == []


def test_what_was_given_at_the_start_may_be_without_effect() -> None:
    """The node says so, because the user expects the value."""
    settings = DynamicSettings(broker_settings({"log.roll.ms": 4, "log.retention.ms": 4}))
    settings.apply({"log.roll.ms": "5", "log.retention.ms": "4", "message.max.bytes": "9"}, {})
    assert settings.overridden() == {"log.roll.ms": (4, 5)}


@pytest.mark.parametrize(
    ("name", "kind", "secret"),
    [
        ("log.roll.ms", "long", False),
        ("leader.replication.throttled.rate", "long", False),
        ("listener.name.a.max.connections", "int", False),
        ("listener.name.a.ssl.keystore.password", "password", True),
        ("listener.name.a.plain.sasl.jaas.config", "password", True),
        ("listener.name.a.scram-sha-256.connections.max.reauth.ms", "long", False),
        ("listener.name.a.oauthbearer.sasl.oauthbearer.expected.audience", None, True),
        ("super.users", None, True),
        ("my.own.setting", None, True),
    ],
)
def test_a_stored_value_that_may_be_a_secret_is_not_told(
    name: str, kind: str | None, secret: bool
) -> None:
    """Apache Kafka may have stored passwords; those of unknown settings it does not show either."""
    assert (kafka_type(name), is_sensitive(name)) == (kind, secret)
    assert is_of_kafka(name) == (kind is not None or ".oauthbearer." in name)
