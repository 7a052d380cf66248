"""SCRAM, OAUTHBEARER and re-authentication against Apache Kafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import aiokq
from aiokq import errors
from aiokq.cluster.events import BrokerDown
from tests.peers import authorization_server
from tests.peers.apache_kafka import ApacheKafka, apache_kafka, why_absent
from tests.peers.authorization_server import AuthorizationServer, unsecured

pytestmark = pytest.mark.kafka

USER, PASSWORD = "anna", "only-anna-knows"
SESSION_MS = 2000
"""Milliseconds for which a login is valid at the listeners with short sessions."""
SCRAM_256, SCRAM_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
LISTENERS = {
    **dict.fromkeys(("SCRAM", "SHORTSCRAM", "SHORTPLAIN", "UNSECURED", "SIGNED"), "SASL_PLAINTEXT"),
    **dict.fromkeys(("SCRAMTLS", "UNSECUREDTLS", "SIGNEDTLS"), "SASL_SSL"),
}
_SECURITY = "org.apache.kafka.common.security"
_OAUTH = f"{_SECURITY}.oauthbearer"


class Secured(NamedTuple):
    """A node of Apache Kafka, and the server whose tokens its listener SIGNED accepts."""

    kafka: ApacheKafka
    server: AuthorizationServer
    authority: str
    """PEM file of the authority that signed the node's certificate."""
    client_key: str
    """PEM file of the key with which the client signs assertions."""

    def settings(self, listener: str, mechanism: str, **changes: Any) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap_servers": f"127.0.0.1:{self.kafka.listener_ports[1][listener]}",
            "security_protocol": LISTENERS[listener],
            "sasl_mechanism": mechanism,
        }
        if listener.endswith("TLS"):
            settings["ssl_cafile"] = self.authority
        if mechanism != "OAUTHBEARER":
            settings |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
        elif listener.startswith("SIGNED"):
            settings |= {
                "sasl_oauthbearer_token_endpoint_url": self.server.url,
                "sasl_oauthbearer_client_credentials_client_id": authorization_server.CLIENT_ID,
                "sasl_oauthbearer_client_credentials_client_secret": (
                    authorization_server.CLIENT_SECRET
                ),
            }
        return settings | changes

    def given(self) -> dict[str, Any]:
        """Return settings with which the program gives signed tokens to the client."""
        return {
            "sasl_oauthbearer_client_credentials_client_id": None,
            "sasl_oauthbearer_client_credentials_client_secret": None,
            "sasl_oauthbearer_token_endpoint_url": None,
            "sasl_oauth_token_provider": self.server.token,
        }

    def assertion(self) -> dict[str, Any]:
        """Return settings with which the client signs an assertion instead of having a secret."""
        return {
            "sasl_oauthbearer_client_credentials_client_id": None,
            "sasl_oauthbearer_client_credentials_client_secret": None,
            "sasl_oauthbearer_jwt_retriever_class": "JwtBearerJwtRetriever",
            "sasl_oauthbearer_assertion_private_key_file": self.client_key,
            "sasl_oauthbearer_assertion_claim_aud": self.server.url,
            "sasl_oauthbearer_assertion_claim_iss": authorization_server.CLIENT_ID,
            "sasl_oauthbearer_assertion_claim_sub": authorization_server.CLIENT_ID,
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    reason = why_absent() or authorization_server.why_absent()
    if reason is not None:
        pytest.skip(f"APACHE KAFKA IS NOT TESTED: {reason}")
    from tests.peers.pki import Pki

    directory = tmp_path_factory.mktemp("keys")
    keys = directory / "jwks.json"
    pki = Pki()
    node = pki.issue("node", "localhost", "127.0.0.1", uses_rsa=True).write(directory, "node")
    client = pki.issue("client", uses_rsa=True)
    (directory / "client.key").write_text(client.key)
    (directory / "authority.pem").write_text(pki.trusted)
    scram, plain, oauth = (
        f"{_SECURITY}.scram.ScramLoginModule required;",
        f'{_SECURITY}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
        f"{_OAUTH}.OAuthBearerLoginModule required;",
    )
    properties = {
        "listener.name.shortplain.plain.sasl.jaas.config": plain,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(node),
    }
    for listener in ("scram", "scramtls", "shortscram"):
        name = f"listener.name.{listener}"
        properties[f"{name}.sasl.enabled.mechanisms"] = f"{SCRAM_256},{SCRAM_512}"
        properties[f"{name}.scram-sha-256.sasl.jaas.config"] = scram
        properties[f"{name}.scram-sha-512.sasl.jaas.config"] = scram
    for listener in ("unsecured", "unsecuredtls", "signed", "signedtls"):
        name = f"listener.name.{listener}"
        properties[f"{name}.sasl.enabled.mechanisms"] = "OAUTHBEARER"
        properties[f"{name}.oauthbearer.sasl.jaas.config"] = oauth
    for mechanism in ("shortscram.scram-sha-256", "shortscram.scram-sha-512", "shortplain.plain"):
        properties[f"listener.name.{mechanism}.connections.max.reauth.ms"] = str(SESSION_MS)
    properties["listener.name.shortplain.sasl.enabled.mechanisms"] = "PLAIN"
    for listener in ("signed", "signedtls"):
        signed = f"listener.name.{listener}.oauthbearer.sasl"
        properties |= {
            f"{signed}.server.callback.handler.class": (
                f"{_OAUTH}.OAuthBearerValidatorCallbackHandler"
            ),
            f"{signed}.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            f"{signed}.oauthbearer.expected.audience": authorization_server.AUDIENCE,
        }
    allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
    server = AuthorizationServer()
    server.client_key = client.private_key.public_key()
    server.save_keys(keys)  # Kafka reads them when it starts
    with (
        server,
        apache_kafka(
            1,
            listeners=LISTENERS,
            format_arguments=[
                word
                for mechanism in (SCRAM_256, SCRAM_512)
                for word in ("--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]")
            ],
            java_options=[f"{allowed}.urls={keys.as_uri()}", f"{allowed}.files={keys}"],
            **properties,
        ) as kafka,
    ):
        yield Secured(
            kafka, server, str(directory / "authority.pem"), str(directory / "client.key")
        )


ASSERTION = "OAUTHBEARER by JWT bearer"
GIVEN = "OAUTHBEARER with tokens of the program"
WAYS = [
    ("SCRAM", SCRAM_256),
    ("SCRAM", SCRAM_512),
    ("UNSECURED", "OAUTHBEARER"),
    ("SIGNED", "OAUTHBEARER"),
    ("SIGNED", ASSERTION),
    ("SIGNED", GIVEN),
    *(
        pytest.param(*way, marks=pytest.mark.full)
        for way in (
            ("SCRAMTLS", SCRAM_256),
            ("UNSECUREDTLS", "OAUTHBEARER"),
            ("SIGNEDTLS", "OAUTHBEARER"),
            ("SIGNEDTLS", ASSERTION),
            ("SIGNEDTLS", GIVEN),
        )
    ),
    ("SCRAMTLS", SCRAM_512),
]


def _provider() -> str:
    return unsecured(USER, 3600)


def _given(listener: str) -> dict[str, Any]:
    given = listener.startswith("UNSECURED")
    return {"sasl_oauth_token_provider": _provider} if given else {}


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
async def test_producer_consumer_and_admin_log_in(
    secured: Secured, topic: str, listener: str, mechanism: str
) -> None:
    changes = _given(listener)
    if mechanism == ASSERTION:
        mechanism, changes = "OAUTHBEARER", secured.assertion()
    elif mechanism == GIVEN:
        mechanism, changes = "OAUTHBEARER", secured.given()
    settings = secured.settings(listener, mechanism, **changes)
    async with aiokq.Admin(**settings) as admin:
        await admin.create_topics(topic, raise_errors=True)
    async with aiokq.Producer(**settings) as producer:
        assert (await producer.send(topic, b"v")).offset == 0
    async with (
        asyncio.timeout(30),
        aiokq.Consumer(topic, **settings, auto_offset_reset="earliest") as consumer,
    ):
        assert (await consumer.getone()).value == b"v"


@pytest.mark.parametrize(
    ("listener", "mechanism", "changes", "told"),
    [
        ("SCRAM", SCRAM_256, {"sasl_plain_password": "guessed"}, "invalid credentials"),
        ("SCRAM", SCRAM_512, {"sasl_plain_username": "otto"}, "invalid credentials"),
        ("SCRAM", "PLAIN", {"sasl_plain_password": "guessed"}, "does not offer PLAIN"),
        (
            "UNSECURED",
            "OAUTHBEARER",
            {"sasl_oauth_token_provider": lambda: "guessed"},
            "invalid_token|invalid credentials",
        ),
        (
            "SIGNED",
            "OAUTHBEARER",
            {"sasl_oauthbearer_client_credentials_client_secret": "guessed"},
            "answered 401: invalid_client",
        ),
    ],
)
async def test_who_is_refused_is_told_why_and_in_time(
    secured: Secured, listener: str, mechanism: str, changes: dict[str, Any], told: str
) -> None:
    """The error has the remedy, and never the password. No other mechanism is tried."""
    settings = secured.settings(listener, mechanism, bootstrap_timeout_ms=5000, **changes)
    began = time.monotonic()
    with pytest.raises(errors.BootstrapFailed, match=told) as failure:
        async with aiokq.Producer(**settings):
            pass
    assert "guessed" not in str(failure.value)
    assert time.monotonic() - began < 4, "it went on trying"


async def test_a_token_for_another_audience_is_refused(secured: Secured) -> None:
    """The broker sends its reason as JSON, and the client answers 01 to get the error."""
    secured.server.audience = "somebody else"
    try:
        with pytest.raises(errors.BootstrapFailed, match="invalid_token"):
            async with aiokq.Producer(**secured.settings("SIGNED", "OAUTHBEARER")):
                pass
    finally:
        secured.server.audience = authorization_server.AUDIENCE


class Renewed:
    """A provider whose tokens live for two seconds; it may fail."""

    def __init__(self) -> None:
        self.count = 0
        self.fails = False

    async def token(self) -> str:
        if self.fails:
            raise RuntimeError("no token today")
        self.count += 1
        return unsecured(USER, SESSION_MS / 1000)


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [("SHORTPLAIN", "PLAIN"), ("SHORTSCRAM", SCRAM_512), ("UNSECURED", "OAUTHBEARER")],
)
async def test_sessions_are_renewed_under_load_and_nothing_is_lost(
    secured: Secured, topic: str, listener: str, mechanism: str
) -> None:
    """Producer, consumer with a group, and admin, for several sessions, on the same connections."""
    settings = secured.settings(listener, mechanism)
    provider = Renewed()
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = provider
    received: list[int] = []
    lost: list[BrokerDown] = []
    async with (
        asyncio.timeout(60),
        aiokq.Cluster(**settings) as cluster,
        cluster.admin() as admin,
        cluster.producer(linger_ms=1) as producer,
        cluster.consumer(
            topic,
            group_id=f"{topic}-group",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=300,
        ) as consumer,
        asyncio.TaskGroup() as tasks,
    ):

        async def consume() -> None:
            async for record in consumer:
                if not record.value:
                    break
                received.append(int(record.value))

        async def watch() -> None:
            async for event in cluster.events():
                if isinstance(event, BrokerDown):
                    lost.append(event)

        consuming = tasks.create_task(consume())
        watching = tasks.create_task(watch())
        count = 0
        ends = time.monotonic() + 4 * SESSION_MS / 1000
        while time.monotonic() < ends:
            values = [(None, b"%d" % (count + n)) for n in range(50)]
            await (await producer.send_many(topic, values))
            count += len(values)
            await admin.describe_cluster()
        await producer.send(topic, b"")
        await consuming
        watching.cancel()
    assert received == list(range(count))
    assert lost == []
    if mechanism == "OAUTHBEARER":
        assert 4 <= provider.count <= 10


async def test_a_provider_that_fails_leaves_connections_until_their_token_ends(
    secured: Secured, topic: str
) -> None:
    provider = Renewed()
    settings = secured.settings("UNSECURED", "OAUTHBEARER", sasl_oauth_token_provider=provider)
    async with asyncio.timeout(60), aiokq.Producer(**settings, linger_ms=0) as producer:
        await producer.send(topic, b"0")
        provider.fails = True
        ends = time.monotonic() + SESSION_MS / 1000 * 0.5
        while time.monotonic() < ends:
            await producer.send(topic, b"1")
        await asyncio.sleep(2)
        waiting = producer.send_nowait(topic, b"2")
        await asyncio.sleep(2)
        assert not waiting.done()
        provider.fails = False
        assert (await waiting).offset > 0
