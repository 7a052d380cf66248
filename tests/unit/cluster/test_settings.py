"""ClusterSettings: defaults, validation, and no credentials in representations."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

import aiokq
from aiokq.cluster.connection_settings import connection_options, tls_contexts
from aiokq.cluster.settings import ClusterSettings
from aiokq.cluster.values import ClusterValues
from aiokq.connection.network import system_environment
from aiokq.core.errors import ConfigError
from tests.peers.pki import Pki


def test_defaults_are_kafkas():
    """Users of the Java client expect its defaults."""
    settings = ClusterSettings()
    assert settings.request_timeout_ms == 30_000
    assert settings.metadata_max_age_ms == 300_000
    assert (settings.retry_backoff_ms, settings.retry_backoff_max_ms) == (100, 1_000)
    assert (settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms) == (50, 1_000)
    assert settings.socket_connection_setup_timeout_ms == 10_000
    assert settings.socket_connection_setup_timeout_max_ms == 30_000
    assert settings.default_api_timeout_ms == 60_000
    assert settings.security_protocol == "PLAINTEXT"
    assert settings.metadata_recovery_strategy == "rebootstrap"


def test_bootstrap_servers_are_checked_at_once():
    """An invalid port is a configuration error, not a connection error."""
    with pytest.raises(ConfigError, match=r"bootstrap_servers: .*'abc' is not a port"):
        ClusterSettings(bootstrap_servers="localhost:abc")


def test_an_unknown_setting_names_the_nearest():
    """Ignored misspellings would go unnoticed."""
    with pytest.raises(ConfigError, match=r"request_timeout_ms"):
        ClusterSettings(requst_timeout_ms=1)


@pytest.mark.parametrize(
    "make",
    [
        lambda given: aiokq.Cluster(given),
        lambda given: aiokq.Producer(given),
        lambda given: aiokq.Admin(given),
        lambda given: aiokq.Consumer(given),
        lambda given: aiokq.Consumer("orders", bootstrap_servers=given),
        lambda given: ClusterSettings(bootstrap_servers=given),
    ],
)
def test_a_dict_of_dotted_settings_is_refused_with_the_keywords_to_use(
    make: Callable[[object], object],
):
    """Users of other clients pass a dict; the error must not contain its passwords."""
    with pytest.raises(ConfigError, match="settings are keywords, with") as it:
        make({"bootstrap.servers": "h:1", "sasl.password": "secret"})
    assert "secret" not in str(it.value)


@pytest.mark.parametrize(
    "make", [aiokq.Producer, lambda given: ClusterSettings(bootstrap_servers=given)]
)
def test_settings_in_a_list_of_addresses_are_not_shown(make: Callable[[object], object]):
    with pytest.raises(ConfigError, match="settings are keywords, with") as it:
        make([{"bootstrap.servers": "h:1", "sasl.password": "secret"}])
    assert "secret" not in str(it.value)


def test_a_setting_of_a_union_type_has_one_error():
    """There was an error per type: '... valid string, not 5; ssl_context: Input should be ..., not
    5'.
    """
    with pytest.raises(ConfigError) as caught:
        ClusterSettings(ssl_context=5)
    assert str(caught.value).count("ssl_context: ") == 1


@pytest.mark.parametrize("given", [5, [1], {"h:1"}, b"h:1", ("h:1", None)])
def test_an_invalid_bootstrap_address_is_refused_with_the_expected_form(given: object) -> None:
    """[1] gave two errors: one for the list and one for its item."""
    with pytest.raises(ConfigError) as caught:
        aiokq.Producer(given)
    assert str(caught.value) == (
        f"bootstrap_servers: must be 'host:port' or a list of such addresses, not {given!r}"
    )


def test_a_cluster_in_place_of_its_address_is_refused_with_the_attribute_to_use() -> None:
    """A likely mistake with an EmbeddedCluster."""
    with pytest.raises(ConfigError, match=r"pass the \.bootstrap_servers of the EmbeddedCluster"):
        aiokq.Producer(aiokq.EmbeddedCluster())


def test_the_query_of_a_token_endpoint_is_in_no_representation():
    """It may have a secret, such as the key of a function in a cloud."""
    settings = ClusterSettings(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url="http://idp/token?code=s3cret",
        sasl_oauthbearer_allowed_urls=("http://idp/token?code=s3cret",),
        sasl_oauthbearer_client_credentials_client_id="me",
        sasl_oauthbearer_client_credentials_client_secret="x",
    )
    assert "s3cret" not in repr(settings) + str(settings) + repr(ClusterValues.of(settings))


def test_the_password_is_in_no_representation():
    """Settings appear in logs and tracebacks."""
    settings = ClusterSettings(
        security_protocol="sasl_plaintext",
        sasl_plain_username="me",
        sasl_plain_password="s3cret",
    )
    assert settings.security_protocol == "SASL_PLAINTEXT"
    assert "s3cret" not in repr(settings) + str(settings) + str(settings.model_dump())
    with pytest.raises(ConfigError) as caught:
        ClusterSettings(sasl_plain_password=["s3cret"])
    assert "s3cret" not in str(caught.value)


def test_an_unsupported_mechanism_names_the_supported_ones():
    """'Invalid' alone would not help the user."""
    with pytest.raises(ConfigError, match=r"'NTLM' is not supported; supported: PLAIN"):
        ClusterSettings(sasl_mechanism="NTLM")


@pytest.mark.parametrize(
    ("overrides", "fix"),
    [
        ({"ssl_cafile": "ca.pem"}, "security_protocol='SSL'"),
        ({"sasl_plain_username": "me"}, "security_protocol='SASL_PLAINTEXT'"),
        (
            {"sasl_plain_username": "me", "security_protocol": "SSL"},
            "security_protocol='SASL_SSL'",
        ),
        ({"security_protocol": "SASL_SSL"}, "sasl_plain_username and sasl_plain_password"),
        (
            {
                "security_protocol": "SSL",
                "ssl_context": ssl.create_default_context(),
                "ssl_cafile": "ca.pem",
            },
            "exclude each other",
        ),
        ({"security_protocol": "SSL", "ssl_keyfile": "key.pem"}, "needs ssl_certfile"),
        ({"ssl_keystore_location": "k.p12"}, "security_protocol='SSL'"),
        (
            {"security_protocol": "SSL", "ssl_cafile": "a", "ssl_truststore_location": "b"},
            "ssl_cafile and ssl_truststore_location exclude each other",
        ),
        (
            {"security_protocol": "SSL", "ssl_certfile": "a", "ssl_keystore_key": "b"},
            "ssl_certfile and ssl_keystore_key exclude each other",
        ),
        ({"security_protocol": "SSL", "ssl_truststore_type": "BKS"}, "PKCS12"),
        ({"retry_backoff_ms": 500, "retry_backoff_max_ms": 100}, "raise it to 500"),
        ({"security_protocol": "TLS"}, "PLAINTEXT"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(overrides: dict[str, object], fix: str):
    """A credential that is ignored or sent unencrypted is worse than an error."""
    with pytest.raises(ConfigError) as caught:
        ClusterSettings(**overrides)
    assert fix in str(caught.value)


def test_a_larger_initial_backoff_raises_the_maximum():
    """Setting only retry_backoff_ms=2000 must work although the default maximum is 1000."""
    assert ClusterSettings(retry_backoff_ms=2_000).retry_backoff_ms == 2_000


def test_from_env_reads_kafkas_names():
    """Containers are configured by their environment."""
    settings = ClusterSettings.from_env(
        environ={"KAFKA_BOOTSTRAP_SERVERS": "a:1,b:2", "KAFKA_CLIENT_ID": "me"}
    )
    assert [str(a) for a in settings.bootstrap_addresses] == ["a:1", "b:2"]
    assert settings.client_id == "me"


def test_connection_options_are_in_seconds():
    """The settings are in milliseconds, as in Kafka."""
    options = connection_options(
        ClusterValues.given({"request_timeout_ms": 1_500, "connections_max_idle_ms": 2_000}),
        system_environment(),
    )
    assert (options.request_timeout, options.max_idle) == (1.5, 2.0)
    assert options.security.ssl_context is None


def test_a_given_ssl_context_is_used_unchanged():
    """A context given by the user replaces the ssl_* settings."""
    context = ssl.create_default_context()
    settings = ClusterSettings(security_protocol="SSL", ssl_context=context)
    assert tls_contexts(ClusterValues.of(settings)).context is context


def test_ssl_check_hostname_can_be_turned_off():
    """Certificates of test clusters often have other host names."""
    settings = ClusterSettings(security_protocol="SSL", ssl_check_hostname=False)
    context = tls_contexts(ClusterValues.of(settings)).context
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_a_missing_certificate_file_is_named():
    """'No such file' alone does not name the setting that is wrong."""
    settings = ClusterSettings(security_protocol="SSL", ssl_cafile="/nowhere/ca.pem")
    with pytest.raises(ConfigError, match=r"ssl_cafile: '/nowhere/ca.pem'"):
        tls_contexts(ClusterValues.of(settings))
    settings = ClusterSettings(security_protocol="SSL", ssl_certfile="/nowhere/cert.pem")
    with pytest.raises(ConfigError, match=r"ssl_certfile: '/nowhere/cert.pem'"):
        tls_contexts(ClusterValues.of(settings))


def test_kafkas_names_of_stores_make_a_context(tmp_path: Path):
    """Text and PKCS12 stores; errors name the settings as they are written here."""
    pki = Pki()
    identity = pki.issue("alice", "alice.example")
    (tmp_path / "trust.p12").write_bytes(pki.trust_store("changeit"))
    settings = ClusterSettings(
        security_protocol="SSL",
        ssl_truststore_type="pkcs12",
        ssl_truststore_location=str(tmp_path / "trust.p12"),
        ssl_truststore_password="changeit",
        ssl_keystore_type="PEM",
        ssl_keystore_key=identity.encrypted_key("hunter2"),
        ssl_keystore_certificate_chain=identity.chain,
        ssl_key_password="hunter2",
        ssl_enabled_protocols="TLSv1.2",
        ssl_endpoint_identification_algorithm="",
    )
    tls = tls_contexts(ClusterValues.of(settings))
    assert tls.context.maximum_version is ssl.TLSVersion.TLSv1_2
    assert not tls.context.check_hostname
    assert len(tls.context.get_ca_certs()) == 1
    assert tls.expires_at is not None
    assert "hunter2" not in repr(settings)
    assert "PRIVATE KEY" not in repr(settings)
    with pytest.raises(ConfigError, match="set ssl_key_password"):
        tls_contexts(ClusterValues.of(settings.model_copy(update={"ssl_key_password": None})))


def test_a_jks_store_is_refused_with_the_command_that_converts_it(tmp_path: Path):
    """Java 8 wrote such stores."""
    path = tmp_path / "client.jks"
    path.write_bytes(bytes.fromhex("feedfeed00000002"))
    settings = ClusterSettings(
        security_protocol="SSL",
        ssl_keystore_location=str(path),
        ssl_keystore_password="changeit",
    )
    with pytest.raises(ConfigError, match="keytool -importkeystore") as caught:
        tls_contexts(ClusterValues.of(settings))
    assert "ssl_keystore_type=PKCS12" in caught.value.message


def test_javas_settings_of_tls_do_not_hurt_without_tls(tmp_path: Path):
    """Files for Java often have them in any case."""
    path = tmp_path / "client.properties"
    path.write_text("ssl.endpoint.identification.algorithm=\nssl.enabled.protocols=TLSv1.2\n")
    settings = ClusterSettings.from_properties(path)
    assert settings.ssl_endpoint_identification_algorithm == ""
    assert settings.ssl_enabled_protocols == ("TLSv1.2",)
