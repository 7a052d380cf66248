"""What the SASL settings say together: credentials, token sources, and contradictions."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from aiokq.cluster.sasl_login import KerberosLogin, TokenRequest, retriever, sasl_login
from aiokq.cluster.sasl_mechanism import sasl_mechanism
from aiokq.cluster.settings import ClusterSettings
from aiokq.cluster.values import ClusterValues
from aiokq.connection.network import system_environment
from aiokq.core.errors import ConfigError

PACKAGE = "org.apache.kafka.common.security."
SCRAM = PACKAGE + 'scram.ScramLoginModule required username="me" password="s3cret";'
PLAIN = PACKAGE + 'plain.PlainLoginModule required username="me" password="s3cret";'
OAUTH = PACKAGE + (
    'oauthbearer.OAuthBearerLoginModule required clientId="me" clientSecret="s3cret" '
    'scope="s" extension_logicalCluster="lkc-1";'
)
KERBEROS = (
    'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/k" '
    'principal="me@EXAMPLE.COM";'
)
URL = "https://idp.example.com/token"


def given(**settings: Any) -> dict[str, Any]:
    return {"security_protocol": "SASL_SSL"} | settings


def oauth(**settings: Any) -> dict[str, Any]:
    return given(sasl_mechanism="OAUTHBEARER") | {
        f"sasl_{name}": value for name, value in settings.items()
    }


CREDENTIALS = {
    "oauthbearer_client_credentials_client_id": "me",
    "oauthbearer_client_credentials_client_secret": "s3cret",
}


def provider() -> str:
    return "t"


@pytest.mark.parametrize("kind", ["values", "model"])
@pytest.mark.parametrize(
    ("mechanism", "text"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("scram-sha-512", SCRAM)]
)
def test_java_s_text_gives_user_and_password(kind: str, mechanism: str, text: str) -> None:
    settings = given(sasl_mechanism=mechanism, sasl_jaas_config=text)
    made = ClusterValues.given(settings) if kind == "values" else ClusterSettings(**settings)
    login = sasl_login(made)
    assert (login.username, login.password) == ("me", "s3cret")
    assert "s3cret" not in repr(made) + repr(login)
    assert "s3cret" not in str(ClusterSettings(**settings).model_dump())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_each_mechanism_is_built(mechanism: str) -> None:
    values = ClusterValues.given(
        given(sasl_mechanism=mechanism, sasl_plain_username="me", sasl_plain_password="s3cret")
    )
    factory, prepare = sasl_mechanism(values, system_environment(), None)
    assert factory("host").name == mechanism
    assert prepare is None


async def test_a_provider_of_tokens() -> None:
    values = ClusterValues.given(
        oauth(oauth_token_provider=provider, oauthbearer_extensions="a=1, b=2")
    )
    environment = system_environment()
    factory, prepare = sasl_mechanism(values, environment, None)
    assert prepare is not None
    mechanism = factory("host")
    assert mechanism.name == "OAUTHBEARER"
    assert await mechanism.start() == b"n,,\x01auth=Bearer t\x01a=1\x01b=2\x01\x01"
    environment.offload.close()


def test_a_token_request_from_settings_or_from_java_s_text() -> None:
    """Settings override the options of the login module, as in Kafka."""
    expected = TokenRequest(URL, "me", "s3cret", "s")
    plain = ClusterValues.given(
        oauth(oauthbearer_token_endpoint_url=URL, oauthbearer_scope="s", **CREDENTIALS)
    )
    assert sasl_login(plain).request == expected
    java = ClusterValues.given(oauth(oauthbearer_token_endpoint_url=URL, jaas_config=OAUTH))
    assert sasl_login(java).request == expected
    assert sasl_login(java).extensions == {"logicalCluster": "lkc-1"}
    both = oauth(oauthbearer_token_endpoint_url=URL, jaas_config=OAUTH, oauthbearer_scope="mine")
    assert sasl_login(ClusterValues.given(both)).request == expected._replace(scope="mine")
    assert "s3cret" not in repr(sasl_login(java)) + repr(sasl_login(java).request)
    sasl_mechanism(java, system_environment(), None)


async def test_a_file_with_a_token(tmp_path: Any) -> None:
    path = tmp_path / "my token"
    path.write_text("t\n")
    url = path.as_uri()
    with pytest.raises(ConfigError, match="sasl_oauthbearer_allowed_urls"):
        ClusterValues.given(oauth(oauthbearer_token_endpoint_url=url))
    values = ClusterValues.given(
        oauth(oauthbearer_token_endpoint_url=url, oauthbearer_allowed_urls=url)
    )
    environment = system_environment()
    factory, _ = sasl_mechanism(values, environment, None)
    assert b"Bearer t\x01" in await factory("host").start()
    environment.offload.close()


def test_kafkas_names_of_classes() -> None:
    for name, expected in {
        "DefaultJwtRetriever": "ClientCredentialsJwtRetriever",
        PACKAGE + "oauthbearer.ClientCredentialsJwtRetriever": "ClientCredentialsJwtRetriever",
    }.items():
        settings = oauth(
            oauthbearer_token_endpoint_url=URL,
            oauthbearer_jwt_retriever_class=name,
            **CREDENTIALS,
        )
        assert retriever(ClusterValues.given(settings)) == expected
    settings = oauth(
        oauthbearer_token_endpoint_url=URL,
        oauthbearer_jwt_retriever_class=PACKAGE + "oauthbearer.JwtBearerJwtRetriever",
        oauthbearer_assertion_file="/run/assertion",
    )
    values = ClusterValues.given(settings)
    assert retriever(values) == "JwtBearerJwtRetriever"
    sasl_mechanism(values, system_environment(), None)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (given(sasl_mechanism="SCRAM-SHA-256"), "SCRAM-SHA-256 needs sasl_plain_username"),
        (given(sasl_jaas_config=SCRAM), "set sasl_mechanism to SCRAM-SHA-256 or SCRAM-SHA-512"),
        (
            given(sasl_mechanism="OAUTHBEARER", sasl_jaas_config=PLAIN),
            "set sasl_mechanism to PLAIN",
        ),
        (given(sasl_jaas_config=PLAIN, sasl_plain_username="me"), "exclude each other"),
        (given(sasl_jaas_config=PLAIN.replace("username", "user")), "no username"),
        (given(sasl_jaas_config="s3cret"), "sasl_jaas_config: a login module must begin"),
        (
            given(
                sasl_mechanism="SCRAM-SHA-256",
                sasl_jaas_config=SCRAM.replace(";", ' tokenauth="true";'),
            ),
            "delegation tokens",
        ),
        (
            given(
                sasl_plain_username="me",
                sasl_plain_password="s3cret",
                sasl_oauth_token_provider=provider,
            ),
            "set sasl_mechanism='OAUTHBEARER'",
        ),
        (oauth(), "needs sasl_oauth_token_provider or sasl_oauthbearer_token_endpoint_url"),
        (oauth(oauth_token_provider=5), "must be a function, an object with a method token"),
        (oauth(oauth_token_provider=provider, plain_password="s3cret"), "has no effect"),
        (
            oauth(oauth_token_provider=provider, oauthbearer_token_endpoint_url=URL),
            "exclude each other",
        ),
        (oauth(oauthbearer_token_endpoint_url=URL), "client_credentials_client_id"),
        (
            oauth(oauthbearer_token_endpoint_url="http://idp/token", **CREDENTIALS),
            "sasl_oauthbearer_allowed_urls",
        ),
        (
            oauth(
                oauthbearer_token_endpoint_url=URL,
                oauthbearer_jwt_retriever_class="my.Retriever",
            ),
            "must be one of DefaultJwtRetriever",
        ),
        (
            oauth(
                oauthbearer_token_endpoint_url=URL,
                oauthbearer_jwt_retriever_class="FileJwtRetriever",
            ),
            "does not fit the URL",
        ),
        (
            oauth(
                oauthbearer_token_endpoint_url=URL,
                oauthbearer_jwt_retriever_class="JwtBearerJwtRetriever",
            ),
            "assertion_private_key_file or",
        ),
        (oauth(oauth_token_provider=provider, oauthbearer_extensions="s3cret"), "NAME=VALUE"),
        (oauth(oauth_token_provider=provider, oauthbearer_extensions="auth=s3cret"), "'auth'"),
        (
            oauth(
                oauth_token_provider=provider,
                jaas_config=OAUTH.replace("clientId", "unsecuredLoginStringClaim_sub"),
            ),
            "unsecured tokens",
        ),
        (
            {"sasl_jaas_config": PLAIN},
            "sasl_jaas_config has no effect with security_protocol=PLAINTEXT",
        ),
        (
            {"sasl_oauth_token_provider": provider},
            "sasl_oauth_token_provider has no effect with security_protocol=PLAINTEXT",
        ),
        (given(sasl_mechanism="NTLM"), "'NTLM' is not supported"),
        (given(sasl_mechanism="GSSAPI"), "needs sasl_kerberos_service_name"),
        (
            given(
                sasl_mechanism="GSSAPI",
                sasl_kerberos_service_name="kafka",
                sasl_jaas_config=KERBEROS.replace("keyTab", "keytab"),
            ),
            "useKeyTab and no keyTab",
        ),
        (
            given(
                sasl_mechanism="GSSAPI",
                sasl_kerberos_service_name="kafka",
                sasl_jaas_config=KERBEROS.replace("principal", "ticketCache"),
            ),
            "KRB5CCNAME",
        ),
    ],
)
def test_contradictions_are_refused_without_the_secret(settings: dict[str, Any], told: str) -> None:
    for make in (ClusterValues.given, lambda given: ClusterSettings(**given)):
        with pytest.raises(ConfigError, match=told) as caught:
            make(settings)
        assert "s3cret" not in str(caught.value)


def test_kerberos_from_settings_or_from_java_s_text() -> None:
    settings = given(sasl_mechanism="GSSAPI", sasl_kerberos_service_name="kafka")
    login = sasl_login(ClusterValues.given(settings | {"sasl_jaas_config": KERBEROS}))
    assert login.kerberos == KerberosLogin("kafka", "me@EXAMPLE.COM", "/k")
    ours = {"sasl_kerberos_principal": "me@EXAMPLE.COM", "sasl_kerberos_keytab": "/k"}
    assert sasl_login(ClusterValues.given(settings | ours)) == login
    assert sasl_login(ClusterValues.given(settings)).kerberos == KerberosLogin("kafka", None, None)


def test_a_provider_is_not_shown() -> None:
    """A partial function shows its arguments."""
    given = oauth(oauth_token_provider=functools.partial(str, "s3cret"))
    made = ClusterValues.given(given)
    assert "s3cret" not in repr(made) + repr(ClusterSettings(**given)) + repr(made.settings)


def test_a_cloud_needs_an_address_and_its_library() -> None:
    values = ClusterValues.given(oauth(oauth_token_provider="azure_event_hubs"))
    with pytest.raises(ConfigError, match="needs bootstrap_servers"):
        sasl_mechanism(values, system_environment(), None)
    with pytest.raises(ConfigError, match="or one of aws_msk_iam"):
        ClusterValues.given(oauth(oauth_token_provider="aws"))


def test_settings_from_the_environment_and_from_a_file(tmp_path: Any) -> None:
    """A client file of Kafka is read as it is."""
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={OAUTH}\n"
        f"sasl.oauthbearer.token.endpoint.url={URL}\n"
        f"sasl.login.callback.handler.class={PACKAGE}oauthbearer.secured."
        "OAuthBearerLoginCallbackHandler\n"
        "sasl.login.refresh.buffer.seconds=30\n"
    )
    settings = ClusterSettings.from_properties(path)
    assert sasl_login(settings).request == TokenRequest(URL, "me", "s3cret", "s")
    assert settings.sasl_login_refresh_buffer_seconds == 30
    environ = {
        "KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
        "KAFKA_SASL_PLAIN_USERNAME": "me",
        "KAFKA_SASL_PLAIN_PASSWORD": "s3cret",
    }
    login = sasl_login(ClusterSettings.from_env(environ=environ))
    assert (login.username, login.password) == ("me", "s3cret")
