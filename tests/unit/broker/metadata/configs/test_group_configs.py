"""Configs of single groups: limits, durability, and the values that members get."""

from __future__ import annotations

import pytest

from aiokq.broker.config.settings import SETTINGS, broker_settings
from aiokq.broker.metadata.configs.group_configs import GROUP_CONFIGS
from aiokq.core.errors import InvalidConfiguration, InvalidRequest, KafkaStorage
from tests.unit.broker.metadata.metadata_logs import memory
from tests.unit.broker.metadata.metadata_logs import opened as opened_log
from tests.unit.broker.metadata.world import PublishedGroups, changes_on

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def opened(files=None, **settings):
    files = files or memory()
    log = opened_log(files)
    settings = broker_settings(settings)
    groups = PublishedGroups(settings)
    groups.load(log.image)
    groups.alter = changes_on(log, groups, settings).alter_group_configs
    return groups, files, log


def test_every_row_names_settings_of_the_broker():
    """Otherwise only the first heartbeat would reveal a typing error in the table."""
    for row in GROUP_CONFIGS.values():
        assert {row.server, row.least, row.most} <= SETTINGS.keys()
        assert row.doc.endswith(".")


async def test_a_group_has_its_own_value_or_the_brokers():
    """A longer timeout for one group must not apply to the others."""
    configs, _, _ = opened()
    await configs.alter("slow", lambda _: {SESSION: " 60000"})
    assert configs.group_configs.session_timeout_ms("slow") == 60_000
    assert configs.group_configs.session_timeout_ms("other") == 45_000
    assert configs.group_configs.heartbeat_interval_ms("slow") == 5_000
    assert configs.group_configs.given("slow") == {SESSION: "60000"}


async def test_settings_outlive_a_restart_and_what_was_taken_back_does_not():
    """Group configs are in the metadata log, like those of topics."""
    configs, files, _ = opened()
    await configs.alter("a", lambda _: {SESSION: "60000", HEARTBEAT: "6000"})
    await configs.alter("b", lambda _: {SESSION: "50000"})
    await configs.alter("b", lambda _: {})
    again, _, log = opened(files)
    assert again.group_configs.given("a") == {SESSION: "60000", HEARTBEAT: "6000"}
    assert again.group_configs.given("b") == {}
    assert list(log.image.group_configs()) == ["a"]


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"consumer.session.timeout": "50000"}, "Unknown group config name"),
        ({SESSION: "soon"}, "must be of type int"),
        ({SESSION: "44999"}, "group.consumer.min.session.timeout.ms"),
        ({SESSION: "60001"}, "group.consumer.max.session.timeout.ms"),
        ({HEARTBEAT: "4999"}, "group.consumer.min.heartbeat.interval.ms"),
        ({HEARTBEAT: "15001"}, "group.consumer.max.heartbeat.interval.ms"),
    ],
)
async def test_values_beyond_the_brokers_limits_are_refused(configs, words):
    """A session timeout of a millisecond would fence every member at once."""
    of_groups, _, _ = opened()
    with pytest.raises(InvalidConfiguration, match=words):
        await of_groups.alter("g", lambda _: configs)
    assert of_groups.group_configs.given("g") == {}


async def test_a_session_is_longer_than_the_interval_of_its_heartbeats():
    """Otherwise a member would be fenced although it sends heartbeats as told."""
    configs, _, _ = opened(
        group_consumer_min_session_timeout_ms=1000, group_consumer_max_heartbeat_interval_ms=60_000
    )
    with pytest.raises(InvalidConfiguration, match=f"{SESSION} must be greater than {HEARTBEAT}"):
        await configs.alter("g", lambda _: {SESSION: "5000"})
    with pytest.raises(InvalidConfiguration, match="must be greater"):
        await configs.alter("g", lambda _: {HEARTBEAT: "45000"})


async def test_a_group_without_a_name_has_no_settings():
    """As in Kafka, the default of all groups is the broker's setting."""
    configs, _, _ = opened()
    with pytest.raises(InvalidRequest):
        await configs.alter("", lambda _: {SESSION: "50000"})


async def test_a_change_that_is_only_looked_at_or_not_written_changes_nothing():
    """A change with validate_only or a failed write must have no effect."""
    configs, _, log = opened()
    await configs.alter("g", lambda _: {SESSION: "50000"}, validate_only=True)
    assert configs.group_configs.given("g") == {}
    log.close()
    with pytest.raises(KafkaStorage):
        await configs.alter("g", lambda _: {SESSION: "50000"})
    assert configs.group_configs.session_timeout_ms("g") == 45_000
