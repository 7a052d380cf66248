"""The settings of TLS and SASL in effect on a listener, and what is refused."""

from __future__ import annotations

import pytest

from aiokq.broker.config.listener_security import ListenerSettings
from aiokq.broker.config.security_settings import SecuritySettings, prefixed_setting
from aiokq.broker.config.settings import SETTINGS, broker_settings
from aiokq.core.errors import ConfigError

SECURITY = "org.apache.kafka.common.security"
PLAIN = f"{SECURITY}.plain.PlainLoginModule"
SCRAM = f"{SECURITY}.scram.ScramLoginModule"
OAUTHBEARER = f"{SECURITY}.oauthbearer.OAuthBearerLoginModule"
USERS = f'{PLAIN} required username="admin" password="adm" user_admin="adm" user_bob="s3cr3t";'

MECHANISMS = "sasl.enabled.mechanisms"


def listener(
    given: dict[str, object], name: str = "SASL_SSL", protocol: str | None = None
) -> ListenerSettings:
    return ListenerSettings(name, protocol or name, broker_settings(given))


def refused(given: dict[str, object], name: str = "SASL_SSL", protocol: str | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        listener(given, name, protocol)
    assert "s3cr3t" not in str(caught.value)
    return caught.value.message


def test_the_longest_prefix_comes_first():
    given = {
        MECHANISMS: "SCRAM-SHA-256,SCRAM-SHA-512",
        "connections.max.reauth.ms": "1",
        "listener.name.outer.connections.max.reauth.ms": "2",
        "listener.name.outer.scram-sha-512.connections.max.reauth.ms": "3",
    }
    outer = listener(given, "OUTER", "SASL_SSL")
    inner = listener(given, "INNER", "SASL_PLAINTEXT")
    assert outer.max_reauth_ms("SCRAM-SHA-512") == 3
    assert outer.max_reauth_ms("SCRAM-SHA-256") == 2
    assert inner.max_reauth_ms("SCRAM-SHA-512") == 1
    name = "connections.max.reauth.ms"
    assert outer.spelled(name, "SCRAM-SHA-512").endswith(f"outer.scram-sha-512.{name}")
    assert outer.spelled(name, "SCRAM-SHA-256") == f"listener.name.outer.{name}"
    assert inner.spelled(name, "SCRAM-SHA-256") == name
    assert inner.spelled("ssl.client.auth") == "listener.name.inner.ssl.client.auth"


def test_a_limit_below_zero_is_none():
    given = {MECHANISMS: "SCRAM-SHA-256", "connections.max.reauth.ms": "-1"}
    assert listener(given).max_reauth_ms("SCRAM-SHA-256") == 0


@pytest.mark.parametrize(
    ("protocol", "tls", "sasl"),
    [("SSL", True, False), ("SASL_SSL", True, True), ("SASL_PLAINTEXT", False, True)],
)
def test_a_protocol_has_tls_or_sasl_or_both(protocol, tls, sasl):
    found = listener({MECHANISMS: "SCRAM-SHA-256"}, "L", protocol)
    assert (found.uses_tls, found.uses_sasl) == (tls, sasl)
    assert found.mechanisms == (("SCRAM-SHA-256",) if sasl else ())


def test_on_sasl_ssl_only_the_listener_asks_for_certificates():
    given = {MECHANISMS: "SCRAM-SHA-256", "ssl.client.auth": "required"}
    assert listener(given).client_auth == "none"
    assert listener(given, "SSL").client_auth == "required"
    assert listener({**given, "listener.name.ssl.ssl.client.auth": "none"}, "SSL").client_auth == (
        "none"
    )
    given["listener.name.sasl_ssl.ssl.client.auth"] = "requested"
    assert listener(given).client_auth == "requested"
    assert listener(given).tls_values()["ssl.client.auth"] == "requested"


def test_the_values_of_tls_are_those_of_the_listener():
    given = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/all.pem",
        "listener.name.ssl.ssl.keystore.location": "/one.pem",
    }
    values = listener(given, "SSL").tls_values()
    assert values["ssl.keystore.location"] == "/one.pem"
    assert values["ssl.keystore.type"] == "PEM"
    assert values["ssl.truststore.location"] is None
    assert values.keys() == {name for name in SETTINGS if name.startswith("ssl.")}


def test_mechanisms_are_those_of_the_listener_and_each_counts_once():
    given = {
        MECHANISMS: "PLAIN",
        f"listener.name.sasl_ssl.{MECHANISMS}": "SCRAM-SHA-512, SCRAM-SHA-256,SCRAM-SHA-512",
    }
    assert listener(given).mechanisms == ("SCRAM-SHA-512", "SCRAM-SHA-256")


@pytest.mark.parametrize("text", ["", " , "])
def test_a_listener_with_sasl_has_mechanisms(text):
    assert "is empty" in refused({MECHANISMS: text})


def test_kerberos_is_refused_by_name():
    assert "Kafka's default" in refused({})
    assert "Kerberos" in refused({MECHANISMS: "PLAIN,GSSAPI"})


@pytest.mark.parametrize("name", ["plain", "SCRAM-SHA-1", "DIGEST-MD5", "SCRAM-SHA-256-PLUS"])
def test_other_mechanisms_are_refused_by_name(name):
    """The names of mechanisms have a case in Kafka."""
    assert repr(name) in refused({MECHANISMS: f"SCRAM-SHA-256,{name}"})


def test_plain_has_its_users_in_its_login_module():
    found = listener({MECHANISMS: "PLAIN", "listener.name.sasl_ssl.plain.sasl.jaas.config": USERS})
    assert found.modules["PLAIN"].options["user_bob"] == "s3cr3t"
    assert "s3cr3t" not in repr(found) + repr(found.modules)


def test_plain_without_a_login_module_is_refused_with_the_name_of_the_setting():
    """Kafka would look for a JAAS file of the JVM."""
    message = refused({MECHANISMS: "PLAIN"})
    assert "listener.name.sasl_ssl.plain.sasl.jaas.config=" in message
    assert "user_NAME" in message
    for unused in ("sasl.jaas.config", "listener.name.sasl_ssl.sasl.jaas.config"):
        message = refused({MECHANISMS: "PLAIN", unused: USERS})
        assert f"{unused} has no effect" in message


def test_scram_needs_no_login_module():
    given = {MECHANISMS: "SCRAM-SHA-256"}
    assert listener(given).modules == {}
    given["listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config"] = f"{SCRAM} required;"
    assert listener(given).modules["SCRAM-SHA-256"].options == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{SCRAM} required;", "not the login module of PLAIN"),
        (f"{USERS} {USERS}", "2 login modules"),
        (f"{PLAIN} required user_bob=s3cr3t", "semicolon"),
        ("com.example.Module required user_bob=s3cr3t;", "com.example.Module"),
        ("com.sun.security.auth.module.Krb5LoginModule required;", "Krb5LoginModule"),
    ],
)
def test_a_login_module_that_does_not_fit_is_refused(text, words):
    name = "listener.name.sasl_ssl.plain.sasl.jaas.config"
    message = refused({MECHANISMS: "PLAIN", name: text})
    assert message.startswith(name)
    assert words in message


def test_the_login_module_of_a_mechanism_that_is_not_enabled_is_not_read():
    name = "listener.name.sasl_ssl.plain.sasl.jaas.config"
    assert listener({MECHANISMS: "SCRAM-SHA-256", name: "?"}).modules == {}


def test_oauthbearer_without_keys_is_refused():
    """Apache Kafka 4.2 then accepts tokens of anyone (CVE-2026-110985)."""
    message = refused({MECHANISMS: "OAUTHBEARER"})
    prefix = "listener.name.sasl_ssl.oauthbearer."
    assert f"{prefix}sasl.oauthbearer.jwks.endpoint.url" in message
    assert f"{prefix}allow.unsecured.tokens=true" in message
    for name in ("sasl.oauthbearer.jwks.endpoint.url", f"{prefix}allow.unsecured.tokens"):
        value = "true" if name.endswith("tokens") else "https://id.example.com/keys"
        found = listener({MECHANISMS: "OAUTHBEARER", name: value})
        assert found.accepts_unsecured_tokens == name.endswith("tokens")
    both = {"allow.unsecured.tokens": True, f"{prefix}sasl.oauthbearer.jwks.endpoint.url": "x"}
    assert "only one of" in refused({MECHANISMS: "OAUTHBEARER", **both})


def test_classes_of_kafka_that_check_credentials_are_accepted_and_no_others():
    name = "sasl.server.callback.handler.class"
    validator = f"{SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler"
    prefix = "listener.name.sasl_ssl."
    given = {
        MECHANISMS: "OAUTHBEARER,PLAIN",
        f"{prefix}plain.sasl.jaas.config": USERS,
        "sasl.oauthbearer.jwks.endpoint.url": "https://id.example.com/keys",
        f"{prefix}oauthbearer.{name}": validator,
    }
    listener(given)
    listener({**given, name: "com.example.Handler"})  # Kafka does not read it without a prefix
    for mechanism, value in (("plain", validator), ("oauthbearer", "com.example.Handler")):
        message = refused({**given, f"{prefix}{mechanism}.{name}": value})
        assert value in message
        assert "Java classes" in message


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_secrets_are_not_sent_in_the_clear_to_other_machines(mechanism):
    given = {
        MECHANISMS: f"SCRAM-SHA-256,{mechanism}",
        "listener.name.l.plain.sasl.jaas.config": USERS,
        "sasl.oauthbearer.jwks.endpoint.url": "https://id.example.com/keys",
    }
    listener(given, "L", "SASL_SSL").check_reachable()
    with pytest.raises(ConfigError, match=r"listener\.name\.l\.allow\.credentials\.without\.tls"):
        listener(given, "L", "SASL_PLAINTEXT").check_reachable()
    given["allow.credentials.without.tls"] = "true"
    listener(given, "L", "SASL_PLAINTEXT").check_reachable()


def test_scram_may_be_used_without_tls():
    listener({MECHANISMS: "SCRAM-SHA-256"}, "L", "SASL_PLAINTEXT").check_reachable()


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("ssl.client.auth", "ssl.client.auth"),
        ("plain.sasl.jaas.config", "sasl.jaas.config"),
        ("oauthbearer.sasl.oauthbearer.clock.skew.seconds", "sasl.oauthbearer.clock.skew.seconds"),
        ("scram-sha-512.connections.max.reauth.ms", "connections.max.reauth.ms"),
        ("oauthbearer.allow.unsecured.tokens", "allow.unsecured.tokens"),
        ("plain.ssl.client.auth", None),
        ("gssapi.sasl.jaas.config", None),
        ("PLAIN.sasl.jaas.config", None),
        ("oauthbearer.sasl.oauthbearer.slip", None),
        ("sasl.mechanism.inter.broker.protocol", None),
        ("connection.failed.authentication.delay.ms", None),
        ("num.partitions", None),
    ],
)
def test_names_with_the_prefix_of_a_listener(name, base):
    assert prefixed_setting(name) == base


def test_every_secret_is_of_type_password():
    for field in SecuritySettings.__annotations__:
        row = SETTINGS[field.replace("_", ".")]
        secret = row.name.endswith((".password", ".keystore.key", ".chain", ".certificates"))
        assert (row.kind == "password") == (secret or row.name == "sasl.jaas.config")


@pytest.mark.parametrize("value", ["s3cr3t\udcff", 5, True, b"s3cr3t", ["s3cr3t"]])
def test_the_error_of_a_secret_does_not_show_it(value):
    with pytest.raises(ConfigError) as caught:
        broker_settings({"ssl.key.password": value})
    assert "s3cr3t" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_program_that_checks_passwords_and_tokens_itself_needs_no_users_and_keys():
    """`EmbeddedCluster(authenticate=)`."""
    settings = broker_settings({MECHANISMS: "PLAIN,OAUTHBEARER"})
    found = ListenerSettings("SASL_SSL", "SASL_SSL", settings, own_check=True)
    assert found.modules == {"PLAIN": ("PlainLoginModule", "required", {})}
    assert not found.accepts_unsecured_tokens
