"""Settings of Apache Kafka that have no effect here, or are rejected with a reason."""

from __future__ import annotations

import pytest

from aiokq.broker.config.kafka_setting_names import KAFKA_SETTING_TYPES
from aiokq.broker.config.settings import SETTINGS, broker_settings
from aiokq.core.errors import ConfigError


def test_the_table_has_kafkas_names_and_few_of_ours():
    """A name that Kafka does not have would mislead users who move to Kafka."""
    assert set(SETTINGS) - set(KAFKA_SETTING_TYPES) == {
        "admin.listener.name",
        "allow.credentials.without.tls",
        "allow.everyone.if.no.acl.found",  # of Kafka's StandardAuthorizer
        "allow.unsecured.tokens",
        "handshake.timeout.ms",
        "legacy",
        "max.transactional.ids",
        "sasl.oauthbearer.allowed.urls",
        "super.users",  # of Kafka's StandardAuthorizer
    }


def test_the_table_has_kafkas_types():
    """A password of another type would be shown to clients."""
    for name, row in SETTINGS.items():
        if name in KAFKA_SETTING_TYPES and "password" in (row.kind, KAFKA_SETTING_TYPES[name]):
            assert row.kind == KAFKA_SETTING_TYPES[name]


def test_settings_without_use_are_accepted_and_named():
    """The order is that of the file, so that users can compare the two."""
    settings = broker_settings(
        {
            "num.network.threads": "3",
            "num.partitions": "2",
            "listener.name.plaintext.num.network.threads": "5",
            "listener.name.plaintext.oauthbearer.sasl.login.class": "org.Login",
            "unclean.leader.election.enable": "true",
            "ssl.keymanager.algorithm": "SunX509",
        }
    )
    assert settings.without_effect == (
        "num.network.threads",
        "listener.name.plaintext.num.network.threads",
        "listener.name.plaintext.oauthbearer.sasl.login.class",
        "unclean.leader.election.enable",
        "ssl.keymanager.algorithm",
    )
    assert settings.num_partitions == 2
    assert broker_settings({"num.partitions": "2"}).without_effect == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("super.users", "User:admin"),
        ("allow.everyone.if.no.acl.found", "true"),
        ("metrics.jmx.exclude", "kafka.server:.*"),
        ("config.providers.env.class", "org.apache.kafka.common.config.provider.EnvVarProvider"),
        ("metrics.context.site", "b"),
        ("rlmm.config.remote.log.metadata.topic.replication.factor", "1"),
        ("rsm.config.dir", "/tiered"),
    ],
)
def test_settings_that_only_a_plug_in_reads_have_no_effect(name, value):
    """They were "unknown broker setting"; Kafka ignores them, too, without the plug-in."""
    assert broker_settings({name: value}).without_effect == (name,)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("zookeeper.connection.timeout.ms", "Kafka 4 has no ZooKeeper"),
        ("advertised.host.name", "use advertised.listeners"),
        ("inter.broker.protocol.version", "Kafka 4 has removed it"),
        ("password.encoder.secret", "Kafka 4 has removed it"),
        ("ssl.crl.location", "revocation"),
    ],
)
def test_a_setting_of_older_versions_of_kafka_is_refused_with_advice(name, advice):
    """The nearest name would be another setting."""
    with pytest.raises(ConfigError, match=advice) as caught:
        broker_settings({name: "1"})
    assert caught.value.message.startswith(f"{name} is not a setting of this broker: ")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("num.network.thread", "num.network.threads"),
        ("socket.send.buffer.byte", "socket.send.buffer.bytes"),
        ("transaction.state.log.min.isrs", "transaction.state.log.min.isr"),
        ("super.user", "super.users"),
    ],
)
def test_a_slip_is_refused_with_the_name_that_was_meant(name, meant):
    """Kafka ignores unknown names."""
    with pytest.raises(ConfigError, match=f"did you mean {meant}"):
        broker_settings({name: "1"})


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.plaintext.num.partitions",
        "listener.name.plaintext.ssl.slip",
        "listener.name.plaintext.sasl.mechanism.inter.broker.protocols",
        "listener.name.plaintext.plain.ssl.client.auth",
        "listener.name.x",
    ],
)
def test_not_every_setting_goes_with_a_listener(name):
    """Kafka accepts settings of sockets and security with a listener prefix, and no others."""
    with pytest.raises(ConfigError, match="unknown broker setting"):
        broker_settings({name: "1"})


def test_a_value_of_another_type_is_refused_also_where_it_has_no_effect():
    """The value would be invalid in Kafka."""
    with pytest.raises(ConfigError, match=r"num\.io\.threads must be of type int"):
        broker_settings({"num.io.threads": "many"})


@pytest.mark.parametrize(
    ("name", "harmless", "asking"),
    [
        ("remote.log.storage.system.enable", "false", "true"),
        ("replica.selector.class", "", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
        ("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter", "a.Reporter"),
        ("offsets.topic.compression.codec", "0", "1"),
        ("transaction.two.phase.commit.enable", "false", "true"),
        ("group.coordinator.rebalance.protocols", "classic,consumer", "classic"),
        (
            "group.coordinator.rebalance.protocols",
            "classic,consumer,streams",
            "classic,consumer,share",
        ),
        ("controller.quorum.auto.join.enable", "false", "true"),
        ("delegation.token.secret.key", "", "secret"),
    ],
)
def test_what_cannot_be_had_here_is_refused_by_name(name, harmless, asking):
    """If they were ignored, users would believe that they have an effect."""
    assert broker_settings({name: harmless}).without_effect == (name,)
    with pytest.raises(ConfigError, match="this broker") as caught:
        broker_settings({name: asking})
    assert name in caught.value.message


def test_a_secret_does_not_stand_in_the_message():
    """Messages end up in logs."""
    with pytest.raises(ConfigError) as caught:
        broker_settings({"delegation.token.secret.key": "hush"})
    assert "hush" not in caught.value.message


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in KAFKA_SETTING_TYPES
        if name.startswith(("transaction.", "transactional.", "producer.id.", "add.partitions."))
    ],
)
def test_settings_of_transactions_have_an_effect_or_are_named_as_without_one(name):
    """Timeouts need no check at intervals here, a log is read in parts of one size, and a batch
    that waits for markers is woken by them."""
    without = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "transaction.state.log.load.buffer.size",
        "transaction.two.phase.commit.enable",
        "add.partitions.to.txn.retry.backoff.ms",
    }
    value = "false" if name == "transaction.two.phase.commit.enable" else "1"
    if name == "transaction.partition.verification.enable":
        value = "false"
    assert broker_settings({name: value}).without_effect == ((name,) if name in without else ())
    assert (name in SETTINGS) != (name in without)
