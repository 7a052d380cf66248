"""Translation of kafka.* options: each is used, refused by name, or logged as ineffective."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from aiokq.cluster.connection_settings import tls_contexts
from aiokq.cluster.sasl_login import sasl_login
from aiokq.cluster.values import ClusterValues
from aiokq.errors import ConfigError
from aiokq.spark import security
from aiokq.spark.options import CONSUMER_OPTIONS
from aiokq.spark.security import (
    cluster_settings,
    in_kafkas_words,
    named_as_options,
    producer_settings,
    warn_of_unused,
)
from tests.peers.pki import Pki

SERVERS = {"bootstrap.servers": "a:1,b:2"}
PLAIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="alice" password="se\\"cret;";'
)


def test_names_of_a_cluster_are_taken_and_those_of_other_clients_left() -> None:
    """One set of options serves connections, producer and consumer."""
    settings = cluster_settings(
        {**SERVERS, "request.timeout.ms": "5000", "linger.ms": "7", "max.poll.records": "9"}
    )

    assert settings.bootstrap_servers == ("a:1", "b:2")
    assert settings.request_timeout_ms == 5000


def test_names_of_a_producer_are_taken_without_those_of_its_cluster() -> None:
    """Clients of a cluster may not set its options."""
    given = {**SERVERS, "linger.ms": "7", "acks": "all", "client.id": "job"}

    assert producer_settings(given) == {"linger_ms": "7", "acks": "all"}


def test_a_short_delivery_timeout_goes_with_a_short_request_timeout() -> None:
    """They are checked against each other, though they belong to two sets of settings."""
    given = {**SERVERS, "delivery.timeout.ms": "3000", "request.timeout.ms": "1000"}

    assert producer_settings(given) == {"delivery_timeout_ms": "3000"}


def test_a_bad_value_is_told_by_the_options_name() -> None:
    """Users of 'kafka.request.timeout.ms' do not know request_timeout_ms."""
    with pytest.raises(ConfigError, match=r"kafka\.request\.timeout\.ms"):
        cluster_settings({**SERVERS, "request.timeout.ms": "soon"})
    with pytest.raises(ConfigError, match=r"^kafka\.acks: must be 0"):
        producer_settings({**SERVERS, "acks": "some"})


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    """An ignored option would be noticed in production only."""
    with pytest.raises(ConfigError, match=r"'kafka\.request\.timeout': did you mean kafka\.requ"):
        cluster_settings({**SERVERS, "request.timeout": "1"})


def test_what_only_java_needs_has_no_effect_and_is_said_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A job that moves from the JVM connector keeps its options."""
    with caplog.at_level(logging.WARNING, "aiokq.spark"):
        cluster_settings({**SERVERS, "receive.buffer.bytes": "65536"})

    assert "kafka.receive.buffer.bytes has no effect" in caplog.text


@pytest.mark.parametrize("name", ["ssl.provider", "security.providers", "sasl.login.class"])
def test_what_cannot_be_kept_is_refused(name: str) -> None:
    """A user who chose an implementation must not silently get another one."""
    with pytest.raises(ConfigError, match=name):
        cluster_settings({**SERVERS, name: "x"})


def test_stores_as_text_need_no_file_on_the_executors() -> None:
    """In options PEM is often one line. The contexts are made where the client runs."""
    pki = Pki()
    identity = pki.issue("spark", "spark.example")
    settings = cluster_settings(
        {
            **SERVERS,
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": pki.trusted.replace("\n", " "),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": identity.key.replace("\n", " "),
            "ssl.keystore.certificate.chain": identity.chain.replace("\n", "\\n"),
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert "PRIVATE" not in repr(settings)
    tls = tls_contexts(ClusterValues.of(settings))
    assert len(tls.context.get_ca_certs()) == 1
    assert not tls.context.check_hostname
    assert tls.expires_at is not None


def test_errors_about_stores_name_the_options(tmp_path: Path) -> None:
    """Also the options that the error says to set."""
    store = tmp_path / "client.jks"
    store.write_bytes(bytes.fromhex("feedfeed00000002"))
    kafka = {
        **SERVERS,
        "security.protocol": "SSL",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": "hunter2",
    }
    settings = cluster_settings(kafka)
    with pytest.raises(ConfigError, match="keytool") as caught, named_as_options(kafka):
        tls_contexts(ClusterValues.of(settings))
    assert "kafka.ssl.keystore.location: " in caught.value.message
    assert "kafka.ssl.keystore.type=PKCS12" in caught.value.message
    assert "hunter2" not in caught.value.message


def test_a_jaas_line_gives_user_and_password() -> None:
    """As all of Kafka's documentation shows."""
    settings = cluster_settings(
        {
            **SERVERS,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": PLAIN,
        }
    )

    login = sasl_login(settings)
    assert (login.username, login.password) == ("alice", 'se"cret;')
    assert "cret" not in repr(settings)


def test_credentials_without_sasl_are_refused_by_the_options_name() -> None:
    """They would not be used, and the connection would not be what the user asked for."""
    with pytest.raises(ConfigError, match=r"kafka\.sasl\.jaas\.config has no effect"):
        cluster_settings({**SERVERS, "sasl.jaas.config": PLAIN})


@pytest.mark.parametrize("shade", ["", "kafkashaded."])
def test_all_mechanisms_are_read_from_kafkas_options(shade: str) -> None:
    """Databricks puts "kafkashaded." in front of the names of Kafka's classes."""
    scram = shade + PLAIN.replace("plain.Plain", "scram.Scram")
    given = {**SERVERS, "security.protocol": "SASL_SSL"}
    settings = cluster_settings(
        {**given, "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": scram}
    )
    assert sasl_login(settings).username == "alice"
    settings = cluster_settings(
        {
            **given,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{shade}org.apache.kafka.common.security.oauthbearer."
            'OAuthBearerLoginModule required clientId="me" clientSecret="hidden" scope="s";',
            "sasl.oauthbearer.token.endpoint.url": "https://idp.example.com/token",
            "sasl.login.callback.handler.class": f"{shade}org.apache.kafka.common.security."
            "oauthbearer.secured.OAuthBearerLoginCallbackHandler",
            "sasl.login.refresh.window.factor": "0.7",
        }
    )
    request = sasl_login(settings).request
    assert request == ("https://idp.example.com/token", "me", "hidden", "s")
    assert settings.sasl_login_refresh_window_factor == 0.7


def test_a_jaas_line_for_another_mechanism_is_refused() -> None:
    """The error names the option, and does not repeat the password, because logs keep messages."""
    given = {**SERVERS, "security.protocol": "SASL_SSL", "sasl.jaas.config": PLAIN}
    with pytest.raises(ConfigError, match=r"kafka\.sasl\.jaas\.config has PlainLogin") as caught:
        cluster_settings({**given, "sasl.mechanism": "SCRAM-SHA-512"})
    assert "cret" not in str(caught.value)


def test_a_cloud_is_chosen_by_its_name() -> None:
    """Functions cannot be options."""
    given = {**SERVERS, "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    settings = cluster_settings({**given, "sasl.oauth.token.provider": "aws_msk_iam"})
    assert sasl_login(settings).provider == "aws_msk_iam"
    with pytest.raises(ConfigError, match=r"kafka\.sasl\.oauth\.token\.provider must be"):
        cluster_settings({**given, "sasl.oauth.token.provider": "my.Provider"})


def test_a_topic_called_as_a_setting_keeps_its_name() -> None:
    """The name of a missing topic must be the one that was requested."""
    text = "there is no topic 'client_id': client_id-0 and client_id-1; see client_id"

    assert in_kafkas_words(text, {}) == (
        "there is no topic 'client_id': client_id-0 and client_id-1; see kafka.client.id"
    )


def test_what_a_consumer_would_obey_and_a_read_does_not_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Ignored options would be tuned in vain. Options of a producer may be for the sink."""
    security._warn_once.cache_clear()
    given = ("max.poll.records", "check.crcs", "isolation.level", "linger.ms", "client.id")

    with caplog.at_level(logging.WARNING, "aiokq.spark"):
        for _ in range(2):
            warn_of_unused(dict.fromkeys(given, "1"), CONSUMER_OPTIONS)

    assert caplog.messages == [
        "option kafka.max.poll.records has no effect in aiokq",
        "option kafka.check.crcs has no effect in aiokq",
    ]
