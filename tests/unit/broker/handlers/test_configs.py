"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: settings, their sources and changes."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aiokq import wire
from aiokq.broker.config.authorizer_settings import OF_THE_AUTHORIZER, STANDARD_AUTHORIZER
from aiokq.broker.config.dynamic_settings import DYNAMIC_SETTINGS
from aiokq.broker.config.settings import SETTINGS
from tests.unit.broker.harness import Broker, batch

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


async def describe(broker, name, *keys, kind=TOPIC, version=4, **options):
    request = wire.DescribeConfigsRequest(
        resources=[
            wire.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
            )
        ],
        **options,
    )
    [result] = (await broker.ask(request, version)).results
    return result


async def alter(broker, name, *changes, kind=TOPIC, version=1, validate_only=False):
    request = wire.IncrementalAlterConfigsRequest(
        resources=[
            wire.IncrementalAlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    wire.IncrementalAlterConfigsAlterableConfig(
                        name=key, config_operation=operation, value=value
                    )
                    for key, operation, value in changes
                ],
            )
        ],
        validate_only=validate_only,
    )
    [response] = (await broker.ask(request, version)).responses
    return response.error_code, response.error_message


async def replace(broker, name, configs, *, kind=TOPIC, version=2, validate_only=False):
    request = wire.AlterConfigsRequest(
        resources=[
            wire.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    wire.AlterConfigsAlterableConfig(name=key, value=value)
                    for key, value in configs.items()
                ],
            )
        ],
        validate_only=validate_only,
    )
    [response] = (await broker.ask(request, version)).responses
    return response.error_code


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topics_settings_say_where_they_come_from(version):
    """The source is the topic, the broker or Kafka's default."""
    async with Broker(log_retention_ms=5000) as broker:
        await broker.create("t", max_message_bytes=2000)
        result = await describe(broker, "t", version=version, include_synonyms=True)
        configs = {config.name: config for config in result.configs}
        own = configs["max.message.bytes"]
        assert (own.value, own.config_source) == ("2000", 1)
        assert [(s.name, s.value, s.source) for s in own.synonyms] == [
            ("max.message.bytes", "2000", 1),
            ("message.max.bytes", "1048588", 5),
        ]
        static = configs["retention.ms"]
        assert (static.value, static.config_source) == ("5000", 4)
        default = configs["cleanup.policy"]
        assert (default.value, default.config_source) == ("delete", 5)
        if version >= 3:
            assert own.config_type == 3
            assert configs["preallocate"].config_type == 1


async def test_only_the_settings_that_are_named_are_told():
    """They have documentation if the request asks for it."""
    async with Broker() as broker:
        await broker.create("t")
        result = await describe(broker, "t", "retention.ms", include_documentation=True)
        [config] = result.configs
        assert config.name == "retention.ms"
        assert config.documentation
        [config] = (await describe(broker, "t", "retention.ms")).configs
        assert config.documentation is None
        assert config.synonyms == []


async def test_a_brokers_settings_are_all_there():
    """Those that the broker reads only at its start are read-only."""
    async with Broker(num_partitions=7) as broker:
        result = await describe(broker, "0", kind=BROKER)
        configs = {config.name: config for config in result.configs}
        assert (configs["num.partitions"].value, configs["num.partitions"].config_source) == (
            "7",
            4,
        )
        assert configs["node.id"].value == "0"
        without_effect = {name for name, row in SETTINGS.items() if not row.has_effect}
        changing = {config.name for config in result.configs if not config.read_only}
        assert changing == DYNAMIC_SETTINGS - without_effect


async def test_the_settings_of_single_listeners_are_there_without_secrets():
    """As in Kafka; `aiokq users` looks up the mechanisms."""
    prefix = "listener.name.plaintext."
    given = {
        f"{prefix}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        f"{prefix}plain.sasl.jaas.config": 'PlainLoginModule required user_a="secret";',
        f"{prefix}ssl.key.password": "secret",
        # Kafka does not know the types of these.
        f"{prefix}oauthbearer.sasl.oauthbearer.expected.audience": "secret",
        f"{prefix}oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "https://a.example/?secret",
    }
    async with Broker(**given) as broker:
        result = await describe(broker, "0", kind=BROKER, include_synonyms=True)
        configs = {config.name: config for config in result.configs}
        assert len(configs) == len(result.configs)
        mechanisms = configs[f"{prefix}sasl.enabled.mechanisms"]
        assert mechanisms.value == "PLAIN,SCRAM-SHA-512"
        assert (mechanisms.config_source, mechanisms.read_only) == (4, True)
        for name in list(given)[1:]:
            assert (configs[name].value, configs[name].is_sensitive) == (None, True)
            assert configs[name].config_type == (0 if ".oauthbearer." in name else 9)
        assert not configs[f"{prefix}ssl.key.password"].read_only
        assert "secret" not in str(result)


async def test_a_setting_of_a_listener_has_that_of_the_broker_as_its_synonym():
    """As in Kafka; also the limits of the listener's connections."""
    prefix = "listener.name.plaintext."
    given = {f"{prefix}max.connections": "9", "max.connections": "20"}
    given |= {f"{prefix}scram-sha-256.connections.max.reauth.ms": "5000"}
    async with Broker(**given) as broker:
        result = await describe(broker, "0", kind=BROKER, include_synonyms=True)
        configs = {config.name: config for config in result.configs}
        assert len(configs) == len(result.configs)

    def synonyms(name: str) -> list[tuple[str, str, int]]:
        return [(one.name, one.value, one.source) for one in configs[name].synonyms]

    name = f"{prefix}max.connections"
    assert (configs[name].value, configs[name].read_only) == ("9", False)
    assert synonyms(name) == [
        (name, "9", 4),
        ("max.connections", "20", 4),
        ("max.connections", "2147483647", 5),
    ]
    assert synonyms("max.connections") == synonyms(name)[1:]
    name = f"{prefix}scram-sha-256.connections.max.reauth.ms"
    assert synonyms(name) == [(name, "5000", 4), ("connections.max.reauth.ms", "0", 5)]


@pytest.mark.parametrize("authorizer", [STANDARD_AUTHORIZER, None])
async def test_the_settings_of_the_authorizer_are_shown_without_their_values(authorizer):
    """If they are given: Kafka does not know them, and so treats them as secrets."""
    # Without an authorizer, every client may do everything.
    given = {"authorizer.class.name": authorizer} if authorizer else {}
    async with Broker(
        **given, **dict(zip(OF_THE_AUTHORIZER, ("User:ANONYMOUS", "true"), strict=True))
    ) as broker:
        result = await describe(broker, "0", kind=BROKER, include_synonyms=True)
        configs = {config.name: config for config in result.configs}
        for name in OF_THE_AUTHORIZER:
            config = configs[name]
            assert (config.value, config.is_sensitive, config.config_type) == (None, True, 0)
            assert (config.config_source, config.read_only) == (4, True)
            [synonym] = config.synonyms
            assert (synonym.name, synonym.value, synonym.source) == (name, None, 4)
        assert "ANONYMOUS" not in str(result)
    async with Broker() as broker:
        result = await describe(broker, "0", kind=BROKER)
        assert not {config.name for config in result.configs} & set(OF_THE_AUTHORIZER)


async def test_a_broker_says_where_it_is_and_what_it_stores_where():
    """Clients look these names up even if the values were not given with `--set`."""
    async with Broker(directories=["/a", "/b"]) as broker:
        result = await describe(broker, "0", kind=BROKER, include_synonyms=True)
        configs = {config.name: config for config in result.configs}
        told = {
            "node.id": ("0", 3),
            "broker.id": ("0", 3),
            "process.roles": ("broker,controller", 7),
            "listeners": ("PLAINTEXT://127.0.0.1:0", 7),
            "advertised.listeners": ("PLAINTEXT://127.0.0.1:0", 7),
            "listener.security.protocol.map": ("PLAINTEXT:PLAINTEXT", 2),
            "log.dirs": ("/a,/b", 7),
        }
        for name, (value, kind) in told.items():
            config = configs[name]
            assert (config.value, config.config_type, config.config_source) == (value, kind, 4)
            assert [s.value for s in config.synonyms] == [value]
        assert len(configs) == len(result.configs)  # each name only once


async def test_a_setting_without_effect_is_not_shown():
    """Clients would rely on a value that they read there."""
    async with Broker() as broker:
        names = {config.name for config in (await describe(broker, "0", kind=BROKER)).configs}
        without = {name for name, row in SETTINGS.items() if not row.has_effect}
        assert without == {
            "early.start.listeners",
            "unclean.leader.election.enable",
        }
        assert names.isdisjoint(without)
        assert names >= set(SETTINGS) - without - set(OF_THE_AUTHORIZER)


async def test_an_empty_list_of_names_means_all():
    """In Kafka an empty list means the same as null."""
    async with Broker() as broker:
        await broker.create("t")
        request = wire.DescribeConfigsRequest(
            resources=[
                wire.DescribeConfigsResource(
                    resource_type=TOPIC, resource_name="t", configuration_keys=[]
                )
            ]
        )
        [result] = (await broker.ask(request, 4)).results
        assert len(result.configs) == len((await describe(broker, "t")).configs)


async def test_synonyms_of_a_topics_setting_begin_with_the_one_of_the_same_unit():
    """`log.retention.hours` alone would look as if 168 were the value of `retention.ms`."""
    async with Broker(log_retention_minutes=7) as broker:
        await broker.create("t")
        [plain] = (await describe(broker, "t", "retention.ms", include_synonyms=True)).configs
        assert (plain.value, plain.synonyms) == ("420000", [])
    async with Broker(log_retention_ms=60_000) as broker:
        await broker.create("t", retention_ms=5)
        [own] = (await describe(broker, "t", "retention.ms", include_synonyms=True)).configs
        assert [(s.name, s.value, s.source) for s in own.synonyms] == [
            ("retention.ms", "5", 1),
            ("log.retention.ms", "60000", 4),
            ("log.retention.hours", "168", 5),
        ]


@pytest.fixture
def quiet_logger():
    """A logger of aiokq that no other test uses."""
    made = logging.getLogger("aiokq.test.quiet")
    yield made
    made.setLevel(logging.NOTSET)


async def test_loggers_are_told_and_changed_by_kafkas_levels(quiet_logger):
    """A logger has a level of its own or inherits one; only loggers of aiokq are returned."""
    async with Broker() as broker:
        result = await describe(broker, "0", kind=LOGGER)
        levels = {config.name: config.value for config in result.configs}
        assert levels[quiet_logger.name] == levels["aiokq"]
        assert all(name.split(".")[0] == "aiokq" for name in levels)
        for word, level in (("TRACE", 5), ("WARN", 30), ("FATAL", 50)):
            change = (quiet_logger.name, SET, word)
            assert await alter(broker, "0", change, kind=LOGGER) == (0, None)
            assert quiet_logger.level == level
            [told] = (await describe(broker, "0", quiet_logger.name, kind=LOGGER)).configs
            assert (told.value, told.config_source, told.read_only) == (word, 6, False)
        change = (quiet_logger.name, DELETE, None)
        assert await alter(broker, "0", change, kind=LOGGER) == (0, None)
        assert quiet_logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("name", "operation", "value", "code"),
    [
        ("aiokq.test.quiet", SET, "LOUD", 40),
        ("aiokq.test.quiet", SET, "info", 40),
        ("aiokq.test.absent", SET, "INFO", 40),
        ("root", SET, "INFO", 40),
        ("", SET, "INFO", 40),
        ("aiokq.test.quiet", APPEND, "INFO", 42),
        ("aiokq.test.quiet", SUBTRACT, "INFO", 42),
    ],
)
async def test_a_wrong_change_of_loggers_changes_none(quiet_logger, name, operation, value, code):
    """All changes of a request are validated before the first is made."""
    async with Broker() as broker:
        first = ("aiokq.broker", SET, "FATAL")
        before = logging.getLogger("aiokq.broker").level
        found, _ = await alter(broker, "0", first, (name, operation, value), kind=LOGGER)
        assert found == code
        assert logging.getLogger("aiokq.broker").level == before
        assert await alter(broker, "0", first, kind=LOGGER, validate_only=True) == (0, None)
        assert logging.getLogger("aiokq.broker").level == before
        assert (await alter(broker, "7", first, kind=LOGGER))[0] == 42


@pytest.fixture
def audit_loggers(caplog):
    """The loggers of the audit log, as a process with an audit log sets them."""
    loggers = [logging.getLogger(name) for name in ("aiokq", "aiokq.audit", "aiokq.audit.change")]
    before = [each.level for each in loggers]
    loggers[0].setLevel(logging.INFO)
    for each in loggers[1:]:
        each.setLevel(logging.NOTSET)
    yield loggers
    for each, level in zip(loggers, before, strict=True):
        each.setLevel(level)


@pytest.mark.parametrize("name", ["aiokq.audit", "aiokq.audit.change", "aiokq.audit.denial"])
@pytest.mark.parametrize("change", [(SET, "FATAL"), (DELETE, None)])
async def test_the_audit_log_cannot_be_silenced_by_a_request(audit_loggers, name, change):
    """Who may alter the cluster's configs could end the record of what he does."""
    logging.getLogger("aiokq.audit.denial")
    async with Broker() as broker:
        code, message = await alter(broker, "0", (name, *change), kind=LOGGER)
        assert (code, "audit log" in message) == (40, True)
        assert audit_loggers[2].isEnabledFor(logging.INFO)
        assert name in {c.name for c in (await describe(broker, "0", kind=LOGGER)).configs}


async def test_the_audit_log_keeps_its_level_if_all_loggers_get_quieter(audit_loggers, caplog):
    """The change itself is in the audit log, before it has an effect."""
    root, audit, change = audit_loggers
    async with Broker() as broker:
        assert await alter(broker, "0", ("aiokq", SET, "FATAL"), kind=LOGGER) == (0, None)
        assert root.level == logging.CRITICAL
        assert change.isEnabledFor(logging.INFO)
        [line] = [each for each in caplog.records if each.name == "aiokq.audit.change"]
        assert line.audit["event"] == "log level changed"
        assert line.audit["item"] == "aiokq FATAL"
        assert await alter(broker, "0", ("aiokq", DELETE, None), kind=LOGGER) == (0, None)
        assert audit.level == logging.NOTSET
        caplog.clear()
        quieter = ("aiokq", SET, "ERROR")
        assert (await alter(broker, "0", quieter, kind=LOGGER, validate_only=True))[0] == 0
        assert not [each for each in caplog.records if each.name == "aiokq.audit.change"]


async def list_resources(broker, *types, version=1):
    request = wire.ListConfigResourcesRequest(resource_types=list(types))
    response = await broker.ask(request, version)
    assert response.error_code == 0
    return [(r.resource_type, r.resource_name) for r in response.config_resources]


async def test_what_has_settings_is_listed_by_type():
    """Without a type all types are listed; groups only if they have configs."""
    async with Broker() as broker:
        await broker.create("b")
        await broker.create("a")
        change = ("consumer.session.timeout.ms", SET, "50000")
        assert await alter(broker, "g", change, kind=GROUP) == (0, None)
        everything = [(GROUP, "g"), (LOGGER, "0"), (BROKER, "0"), (TOPIC, "a"), (TOPIC, "b")]
        assert await list_resources(broker) == everything
        assert await list_resources(broker, TOPIC, GROUP) == [
            (GROUP, "g"),
            (TOPIC, "a"),
            (TOPIC, "b"),
        ]
        assert await list_resources(broker, CLIENT_METRICS) == []
        assert await list_resources(broker, version=0) == []
        refused = await broker.ask(wire.ListConfigResourcesRequest(resource_types=[TOPIC, 3]), 1)
        assert (refused.error_code, refused.config_resources) == (35, [])


async def test_unknown_resources_are_refused():
    """UNKNOWN_TOPIC_OR_PARTITION for a topic, INVALID_REQUEST for another broker or type."""
    async with Broker() as broker:
        assert (await describe(broker, "absent")).error_code == 3
        assert (await describe(broker, "5", kind=BROKER)).error_code == 42
        assert (await describe(broker, "x", kind=BROKER)).error_code == 42
        assert (await describe(broker, "no/name")).error_code == 17
        assert (await describe(broker, "", kind=LOGGER)).error_code == 42
        assert (await describe(broker, "5", kind=LOGGER)).error_code == 42
        assert (await describe(broker, "", kind=GROUP)).error_code == 42
        assert (await describe(broker, "metrics", kind=CLIENT_METRICS)).error_code == 42


@pytest.mark.parametrize("version", range(2))
async def test_changes_take_effect_at_once_and_outlive_the_node(version):
    """The new limit applies to the next batch."""
    async with Broker() as broker:
        await broker.create("t")
        assert (await broker.produce("t", batch(value=b"x" * 500))).error_code == 0
        change = ("max.message.bytes", SET, "300")
        assert await alter(broker, "t", change, version=version) == (0, None)
        assert (await broker.produce("t", batch(value=b"x" * 500))).error_code == 10
        files = broker.files
    async with Broker(files) as broker:
        assert (await broker.produce("t", batch(value=b"x" * 500))).error_code == 10
        assert await alter(broker, "t", ("max.message.bytes", DELETE, None)) == (0, None)
        assert (await broker.produce("t", batch(value=b"x" * 500))).error_code == 0


async def test_lists_are_changed_in_part():
    """APPEND and SUBTRACT start from the default if the topic has no value."""
    async with Broker() as broker:
        await broker.create("t")
        topic = broker.node.topics.get("t")
        await alter(broker, "t", ("cleanup.policy", APPEND, "compact"))
        assert topic.configs["cleanup.policy"] == "delete,compact"
        await alter(broker, "t", ("cleanup.policy", APPEND, "compact"))
        assert topic.configs["cleanup.policy"] == "delete,compact"
        await alter(broker, "t", ("cleanup.policy", SUBTRACT, "delete"))
        assert topic.config.cleanup_policy == ("compact",)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.mz", SET, "1")], 40),
        ([("retention.ms", SET, "x")], 40),
        ([("retention.ms", SET, None)], 42),
        ([("retention.ms", APPEND, "1")], 40),
        ([("retention.ms", 9, "1")], 42),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], 42),
        ([("segment.bytes", SET, "2000000"), ("retention.ms", SET, "x")], 40),
    ],
)
async def test_a_bad_change_changes_nothing(changes, code):
    """The changes of a resource are made all together or not at all."""
    async with Broker() as broker:
        await broker.create("t")
        found, message = await alter(broker, "t", *changes)
        assert found == code
        assert message
        assert broker.node.topics.get("t").configs == {}


async def test_validate_only_changes_nothing():
    """This holds for AlterConfigs and IncrementalAlterConfigs."""
    async with Broker() as broker:
        await broker.create("t")
        change = ("retention.ms", SET, "5")
        assert await alter(broker, "t", change, validate_only=True) == (0, None)
        assert await replace(broker, "t", {"retention.ms": "5"}, validate_only=True) == 0
        assert broker.node.topics.get("t").configs == {}


async def test_settings_of_a_running_broker_cannot_be_changed():
    """INVALID_REQUEST says what to do instead; an empty change is no error."""
    async with Broker() as broker:
        code, message = await alter(broker, "0", ("num.partitions", SET, "2"), kind=BROKER)
        assert code == 42
        assert "Set(num.partitions)" in message
        assert "--set" in message
        assert await alter(broker, "0", ("num.partitions", DELETE, None), kind=BROKER) == (0, None)
        assert (await alter(broker, "", ("num.partitions", SET, "2"), kind=BROKER))[0] == 42
        assert (await alter(broker, "7", ("num.partitions", SET, "2"), kind=BROKER))[0] == 42
        assert (await alter(broker, "absent", ("retention.ms", SET, "2")))[0] == 3


@pytest.mark.parametrize("version", range(3))
async def test_the_old_way_resets_what_it_does_not_name(version):
    """AlterConfigs replaces all configs of the topic."""
    async with Broker() as broker:
        await broker.create("t", retention_ms=5, segment_bytes=2_000_000)
        assert await replace(broker, "t", {"retention.ms": "7"}, version=version) == 0
        assert broker.node.topics.get("t").configs == {"retention.ms": "7"}
        assert await replace(broker, "t", {"retention.ms": "x"}, version=version) == 40
        assert await replace(broker, "absent", {}, version=version) == 3
        assert await replace(broker, "0", {}, kind=BROKER, version=version) == 0
        assert await replace(broker, "0", {"a": "b"}, kind=BROKER, version=version) == 42


async def test_a_resource_named_twice_is_42():
    """The order of the two would be undefined."""
    async with Broker() as broker:
        await broker.create("t")
        resource = wire.AlterConfigsResource(resource_type=TOPIC, resource_name="t")
        request = wire.AlterConfigsRequest(resources=[resource, resource])
        assert [r.error_code for r in (await broker.ask(request, 1)).responses] == [42, 42]


async def test_changes_made_at_the_same_time_are_all_kept():
    """Regression: both started from the same configs, so the second undid the first."""
    async with Broker() as broker:
        await broker.create("t")
        inline = broker.node.environment.offload.run

        async def slow(fn, *args):
            await asyncio.sleep(0)
            return await inline(fn, *args)

        broker.node.environment.offload.run = slow
        await asyncio.gather(
            alter(broker, "t", ("retention.ms", 0, "5")),
            alter(broker, "t", ("segment.bytes", 0, "1048576")),
        )
        assert broker.node.topics.get("t").configs == {
            "retention.ms": "5",
            "segment.bytes": "1048576",
        }


SESSION = "consumer.session.timeout.ms"


async def test_a_groups_settings_are_changed_and_shown_with_their_source():
    """Regression: `kafka-configs --entity-type groups` failed."""
    async with Broker(group_consumer_session_timeout_ms=50_000) as broker:
        result = await describe(broker, "g", kind=GROUP, include_synonyms=True)
        assert result.error_code == 0
        found = {config.name: config for config in result.configs}
        assert set(found) == {SESSION, "consumer.heartbeat.interval.ms"}
        assert (found[SESSION].value, found[SESSION].config_source) == ("50000", 5)
        assert [(s.name, s.value, s.source) for s in found[SESSION].synonyms] == [
            (SESSION, "50000", 5)
        ]
        assert await alter(broker, "g", (SESSION, SET, "60000"), kind=GROUP) == (0, None)
        [config] = (await describe(broker, "g", SESSION, kind=GROUP, include_synonyms=True)).configs
        assert (config.value, config.config_source, config.read_only) == ("60000", 8, False)
        assert [(s.name, s.value, s.source) for s in config.synonyms] == [
            (SESSION, "60000", 8),
        ]
        assert await alter(broker, "g", (SESSION, DELETE, None), kind=GROUP) == (0, None)
        [config] = (await describe(broker, "g", SESSION, kind=GROUP)).configs
        assert (config.value, config.config_source) == ("50000", 5)


async def test_the_older_request_replaces_a_groups_settings():
    """Configs that the request does not name are reset, as for topics."""
    async with Broker() as broker:
        await alter(broker, "g", ("consumer.heartbeat.interval.ms", SET, "6000"), kind=GROUP)
        assert await replace(broker, "g", {SESSION: "60000"}, kind=GROUP) == 0
        assert broker.node.group_configs.given("g") == {SESSION: "60000"}


async def test_a_groups_settings_are_checked():
    """INVALID_CONFIG for values; INVALID_REQUEST for an empty group name or a non-list."""
    async with Broker() as broker:
        assert (await alter(broker, "g", (SESSION, SET, "1"), kind=GROUP))[0] == 40
        assert (await alter(broker, "g", ("share.session.timeout.ms", SET, "1"), kind=GROUP))[
            0
        ] == 40
        assert (await alter(broker, "g", (SESSION, APPEND, "1"), kind=GROUP))[0] == 40
        assert (await alter(broker, "", (SESSION, SET, "50000"), kind=GROUP))[0] == 42
        assert (await describe(broker, "", kind=GROUP)).error_code == 42


async def test_a_log_directory_that_is_not_utf8_is_described_with_a_replacement():
    """Regression: DescribeConfigs and DescribeLogDirs closed the connection of the client."""
    async with Broker(directories=("/\udcff", "/\udcfe"), log_dir="/\udcff") as broker:
        values = {
            entry.name: entry.value for entry in (await describe(broker, "0", kind=BROKER)).configs
        }
        assert values["log.dirs"] == r"/\udcff,/\udcfe"
        assert values["log.dir"] == r"/\udcff"
        response = await broker.ask(wire.DescribeLogDirsRequest(topics=None), 4)
        assert [one.log_dir for one in response.results] == [r"/\udcff", r"/\udcfe"]
        for directory in broker.node.log_directories:
            directory.disk.refused(None, "sync failed", OSError(5, "I/O error"))
        response = await broker.ask(
            wire.CreateTopicsRequest(
                topics=[wire.CreatableTopic(name="t", num_partitions=1, replication_factor=1)],
                timeout_ms=1000,
            ),
            7,
        )
        assert response.topics[0].error_code == 56
        assert r"/\udcff is offline" in response.topics[0].error_message
