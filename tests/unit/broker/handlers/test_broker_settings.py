"""Dynamic settings of brokers: changed by requests, in effect at once, kept, and described."""

from __future__ import annotations

import asyncio

import pytest

from aiokq import wire
from aiokq.broker.config.settings import SETTINGS
from aiokq.wire.cluster_metadata_records import ConfigRecord
from tests.unit.broker.handlers.test_configs import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    SUBTRACT,
    alter,
    describe,
    replace,
)
from tests.unit.broker.harness import Broker, batch

OWN, CLUSTER, STATIC, DEFAULT = 2, 3, 4, 5
"""Kafka's codes of the sources of a broker's value."""


async def set_(broker, resource, name, value, **options):
    return await alter(broker, resource, (name, SET, value), kind=BROKER, **options)


async def entry(broker, resource, name):
    """Return value, source and synonyms of a broker's setting."""
    result = await describe(broker, resource, name, kind=BROKER, include_synonyms=True)
    [found] = result.configs
    synonyms = [(s.name, s.value, s.source) for s in found.synonyms]
    return found.value, found.config_source, synonyms


async def test_a_default_of_topics_takes_effect_at_once_and_outlives_the_node():
    """Topics have it unless they have a value of their own."""
    large = batch(value=b"x" * 500)
    async with Broker() as broker:
        await broker.create("t")
        await broker.create("own", max_message_bytes=10_000)
        assert await set_(broker, "", "message.max.bytes", "300") == (0, None)
        assert (await broker.produce("t", large)).error_code == 10
        assert (await broker.produce("own", large)).error_code == 0
        await broker.create("new")
        assert (await broker.produce("new", large)).error_code == 10
        assert await set_(broker, "0", "message.max.bytes", "1000") == (0, None)
        assert (await broker.produce("t", large)).error_code == 0
        assert await alter(broker, "0", ("message.max.bytes", DELETE, None), kind=BROKER) == (
            0,
            None,
        )
        assert (await broker.produce("t", large)).error_code == 10
        files = broker.files
    async with Broker(files) as broker:
        assert (await broker.produce("t", large)).error_code == 10
        assert (await broker.produce("own", large)).error_code == 0
        assert await alter(broker, "", ("message.max.bytes", DELETE, None), kind=BROKER) == (
            0,
            None,
        )
        assert (await broker.produce("t", large)).error_code == 0


async def test_values_are_told_with_all_their_sources():
    """The broker's own value comes first, then the cluster's, the static and the default."""
    async with Broker(log_retention_hours=3) as broker:
        await broker.create("t")
        name = "log.retention.ms"
        assert await entry(broker, "0", name) == (None, DEFAULT, [])
        assert await set_(broker, "", name, "5000") == (0, None)
        assert await set_(broker, "0", name, "7000") == (0, None)
        rest = [("log.retention.hours", "3", STATIC), ("log.retention.hours", "168", DEFAULT)]
        sources = [(name, "7000", OWN), (name, "5000", CLUSTER), *rest]
        assert await entry(broker, "0", name) == ("7000", OWN, sources)
        assert await entry(broker, "", name) == ("5000", CLUSTER, [(name, "5000", CLUSTER)])
        [of_topic] = (await describe(broker, "t", "retention.ms", include_synonyms=True)).configs
        assert (of_topic.value, of_topic.config_source) == ("7000", OWN)
        assert [(s.name, s.value, s.source) for s in of_topic.synonyms] == sources
        assert await entry(broker, "0", "log.retention.hours") == ("3", STATIC, rest)


async def test_a_new_topic_is_told_with_dynamic_defaults():
    """CreateTopics returns the settings that the topic has."""
    async with Broker() as broker:
        assert await set_(broker, "", "log.segment.bytes", "2000000") == (0, None)
        response = await broker.ask(
            wire.CreateTopicsRequest(
                topics=[wire.CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
            ),
            7,
        )
        [topic] = response.topics
        [found] = [one for one in topic.configs if one.name == "segment.bytes"]
        assert (found.value, found.config_source) == ("2000000", CLUSTER)


async def test_all_dynamic_settings_of_the_cluster_are_listed():
    """A new cluster begins with the setting that eligible leader replicas need."""
    async with Broker(min_insync_replicas=1) as broker:
        assert await set_(broker, "", "log.roll.ms", "9000") == (0, None)
        configs = (await describe(broker, "", kind=BROKER)).configs
        assert [(one.name, one.value, one.read_only, one.config_type) for one in configs] == [
            ("min.insync.replicas", "1", False, 3),
            ("log.roll.ms", "9000", False, 5),
        ]
        assert {one.config_source for one in configs} == {CLUSTER}


async def test_min_insync_replicas_is_one_for_the_cluster():
    """While eligible leader replicas are on, as in Kafka."""
    name = "min.insync.replicas"
    async with Broker() as broker:
        await broker.create("t")
        assert await set_(broker, "0", name, "2") == (
            40,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        )
        code, message = await alter(broker, "", (name, DELETE, None), kind=BROKER)
        assert (code, message) == (
            40,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        )
        assert await replace(broker, "", {}, kind=BROKER) == 40
        assert await set_(broker, "", name, "2") == (0, None)
        [found] = (await describe(broker, "t", name)).configs
        assert (found.value, found.config_source) == ("2", CLUSTER)
        assert broker.node.topics.get("t").config.min_insync_replicas == 2


async def test_looking_only_changes_nothing():
    """Tools find out whether a change would be accepted."""
    async with Broker() as broker:
        assert await set_(broker, "", "log.roll.ms", "9000", validate_only=True) == (0, None)
        assert (await set_(broker, "", "log.roll.ms", "x", validate_only=True))[0] == 42
        assert broker.node.settings.log_roll_ms is None


async def test_lists_are_changed_in_part():
    """A list without a dynamic value starts from Kafka's default."""
    async with Broker() as broker:
        change = ("log.cleanup.policy", APPEND, "compact")
        assert await alter(broker, "", change, kind=BROKER) == (0, None)
        assert broker.node.settings.log_cleanup_policy == "delete,compact"
        change = ("log.cleanup.policy", SUBTRACT, "delete")
        assert await alter(broker, "", change, kind=BROKER) == (0, None)
        assert broker.node.settings.log_cleanup_policy == "compact"
        change = ("log.roll.ms", APPEND, "5")
        assert (await alter(broker, "", change, kind=BROKER))[0] == 40


async def test_all_settings_are_replaced_by_the_older_api():
    """AlterConfigs removes what it does not name."""
    async with Broker() as broker:
        assert await set_(broker, "0", "log.roll.ms", "9000") == (0, None)
        assert await replace(broker, "0", {"log.retention.ms": "5"}, kind=BROKER) == 0
        settings = broker.node.settings
        assert (settings.log_roll_ms, settings.log_retention_ms) == (None, 5)


def cleaners():
    """Return the names of the running tasks of the log cleaner."""
    names = [task.get_name() for task in asyncio.all_tasks()]
    return sorted(name.partition(": ")[2] for name in names if "log cleaner" in name)


async def test_cleaner_threads_and_connection_limits_change():
    """Both have users that are told of a change."""
    async with Broker(log_cleaner_threads=2) as broker:
        assert cleaners() == ["log cleaner 0", "log cleaner 1"]
        assert await set_(broker, "0", "log.cleaner.threads", "3") == (0, None)
        assert cleaners() == ["log cleaner 0", "log cleaner 1", "log cleaner 2"]
        assert await set_(broker, "", "max.connections", "7") == (0, None)
        assert broker.node.servers._settings.max_connections == 7
        name = "listener.name.plaintext.max.connections"
        assert await set_(broker, "", name, "5") == (0, None)
        assert dict(broker.node.servers._settings.listener_max_connections) == {"PLAINTEXT": 5}
        assert await entry(broker, "0", name) == ("5", CLUSTER, [(name, "5", CLUSTER)])


@pytest.mark.parametrize("resource", ["", "0"])
@pytest.mark.parametrize("name", ["num.partitions", "num.io.threads", "ssl.client.auth"])
async def test_what_the_broker_reads_at_its_start_is_refused(resource, name):
    """INVALID_REQUEST, as Kafka answers for settings that are not dynamic."""
    async with Broker() as broker:
        code, message = await set_(broker, resource, name, "5")
        assert code == 42
        assert message.startswith(f"Cannot update these configs dynamically: Set({name})")
        # kafka-reassign-partitions removes throttles that nobody has set
        change = ("leader.replication.throttled.rate", DELETE, None)
        assert await alter(broker, resource, change, kind=BROKER) == (0, None)


async def test_every_setting_that_may_change_can_be_set_to_its_default():
    """None is refused for want of a user."""
    async with Broker() as broker:
        result = await describe(broker, "0", kind=BROKER)
        for config in result.configs:
            default = SETTINGS[config.name].default if config.name in SETTINGS else None
            if config.read_only or default is None:
                continue
            text = str(default).lower() if isinstance(default, bool) else str(default)
            assert await set_(broker, "", config.name, text) == (0, None), config.name


async def test_what_kafka_stored_is_told_without_secrets():
    """The settings have no effect here, and each can be removed."""
    stored = {
        "num.io.threads": ("9", 3, False),
        "listener.name.x.ssl.key.password": (None, 9, True),
        "my.own.setting": (None, 0, True),
        "unclean.leader.election.enable": ("true", 1, False),
    }
    values = {
        "listener.name.x.ssl.key.password": "secret",
        "my.own.setting": "secret",
    }
    async with Broker() as broker:
        broker.node.storage.metadata.append(
            *(
                ConfigRecord(
                    resource_type=BROKER,
                    resource_name="",
                    name=name,
                    value=values.get(name, value),
                )
                for name, (value, _, _) in stored.items()
            )
        )
        files = broker.files
    async with Broker(files) as broker:
        for resource in ("", "0"):
            for name, (value, kind, is_sensitive) in stored.items():
                [found] = (await describe(broker, resource, name, kind=BROKER)).configs
                assert (found.value, found.config_type, found.is_sensitive) == (
                    value,
                    kind,
                    is_sensitive,
                )
                assert found.config_source == CLUSTER
                assert found.read_only == (not name.startswith(("unclean", "listener")))
        for name in stored:
            change = (name, DELETE, None)
            assert await alter(broker, "", change, kind=BROKER) == (0, None)
        [left] = (await describe(broker, "", kind=BROKER)).configs
        assert left.name == "min.insync.replicas"


async def test_a_static_setting_without_effect_is_said(caplog):
    """A dynamic value stays in effect whatever the next start is given."""
    async with Broker(min_insync_replicas=1) as broker:
        files = broker.files
    assert "has no effect" not in caplog.text
    async with Broker(files, min_insync_replicas=2) as broker:
        assert broker.node.settings.min_insync_replicas == 1
    assert "setting=min.insync.replicas given=2 in_effect=1" in caplog.text
