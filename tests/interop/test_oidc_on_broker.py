"""An authorization server issues tokens, and aiokq's broker verifies them with the server's keys.

Clients get their tokens from the server by themselves. While they are connected, the keys change,
the server fails, and tokens end.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("jwt")

from aiokq import BrokerDown, Cluster, EmbeddedCluster, errors
from aiokq.broker.security.authentication import token_keys
from tests.peers import authorization_server
from tests.peers.apache_kafka import java_command, why_absent
from tests.peers.authorization_server import CLIENT_ID, CLIENT_SECRET, JWT_BEARER
from tests.peers.login_table import ASSERTION, CELLS, CLIENTS, CREDENTIALS, PROTOCOLS, Shown
from tests.peers.pki import Pki

_numbers = itertools.count()
REASON = why_absent()
KAFKA_OAUTH = "org.apache.kafka.common.security.oauthbearer"
SHORT = 2
"""Life of a token, in seconds, in the tests of sessions."""
SHORT_OF_JAVA = 4
"""The same for Java, which refreshes a token after 80 to 85 % of its life.

If the token has ended before that, because the machine is busy, Java waits for ten seconds and has
no session meanwhile (``ExpiringCredentialRefreshingLogin.java``). With tokens of two seconds, this
happened in each run beside two other busy processes.
"""


class Oidc(NamedTuple):
    """A broker, and what clients need to reach it.

    Attributes:
        server: the server whose tokens the broker takes.
        key: PEM file of the private key of the clients.
        authority: PEM file of the authority that signed the broker's certificate.
    """

    kafka: EmbeddedCluster
    server: authorization_server.AuthorizationServer
    key: Path
    authority: Path

    def settings(
        self, way: str = CREDENTIALS, protocol: str = "SASL_PLAINTEXT", **changes: Any
    ) -> dict[str, Any]:
        """Return settings of our client."""
        way_settings: dict[str, Any] = (
            {
                "sasl_oauthbearer_client_credentials_client_id": CLIENT_ID,
                "sasl_oauthbearer_client_credentials_client_secret": CLIENT_SECRET,
            }
            if way == CREDENTIALS
            else {
                "sasl_oauthbearer_jwt_retriever_class": "JwtBearerJwtRetriever",
                "sasl_oauthbearer_assertion_private_key_file": str(self.key),
                "sasl_oauthbearer_assertion_claim_aud": self.server.url,
                "sasl_oauthbearer_assertion_claim_iss": CLIENT_ID,
                "sasl_oauthbearer_assertion_claim_sub": CLIENT_ID,
            }
        )
        return {
            "bootstrap_servers": self.kafka.bootstrap_servers_of(protocol),
            "security_protocol": protocol,
            **({"ssl_cafile": str(self.authority)} if protocol == "SASL_SSL" else {}),
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": self.server.url,
            **way_settings,
            **changes,
        }

    def with_token(self, token: str, **changes: Any) -> dict[str, Any]:
        """Return settings of our client with a token that it does not request."""
        return {
            "bootstrap_servers": self.kafka.bootstrap_servers_of("SASL_PLAINTEXT"),
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": lambda: token,
            **changes,
        }

    def librdkafka(
        self, way: str = CREDENTIALS, protocol: str = "SASL_PLAINTEXT"
    ) -> dict[str, Any]:
        """Return settings of librdkafka."""
        way_settings = (
            {
                "sasl.oauthbearer.client.id": CLIENT_ID,
                "sasl.oauthbearer.client.secret": CLIENT_SECRET,
            }
            if way == CREDENTIALS
            else {
                "sasl.oauthbearer.grant.type": JWT_BEARER,
                "sasl.oauthbearer.assertion.private.key.file": str(self.key),
                "sasl.oauthbearer.assertion.algorithm": "RS256",
                "sasl.oauthbearer.assertion.claim.aud": self.server.url,
                "sasl.oauthbearer.assertion.claim.iss": CLIENT_ID,
                "sasl.oauthbearer.assertion.claim.sub": CLIENT_ID,
            }
        )
        return {
            "bootstrap.servers": self.kafka.bootstrap_servers_of(protocol),
            "security.protocol": protocol,
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.server.url,
            **way_settings,
        }

    def java(
        self,
        directory: Path,
        way: str,
        tool: str,
        *arguments: str,
        protocol: str = "SASL_PLAINTEXT",
    ) -> list[str]:
        """Return the command of a tool of Kafka that logs in with a token of the server."""
        values = {
            "security.protocol": protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{KAFKA_OAUTH}.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{KAFKA_OAUTH}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": self.server.url,
            # Otherwise a token is used for a minute at least.
            "sasl.login.refresh.min.period.seconds": "0",
            "sasl.login.refresh.buffer.seconds": "0",
            "request.timeout.ms": "10000",
        }
        if way == CREDENTIALS:
            values["sasl.oauthbearer.client.credentials.client.id"] = CLIENT_ID
            values["sasl.oauthbearer.client.credentials.client.secret"] = CLIENT_SECRET
        else:
            values |= {
                "sasl.oauthbearer.jwt.retriever.class": f"{KAFKA_OAUTH}.JwtBearerJwtRetriever",
                "sasl.oauthbearer.assertion.private.key.file": str(self.key),
                "sasl.oauthbearer.assertion.claim.aud": self.server.url,
                "sasl.oauthbearer.assertion.claim.iss": CLIENT_ID,
                "sasl.oauthbearer.assertion.claim.sub": CLIENT_ID,
            }
        file = directory / f"java-{next(_numbers)}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        command = java_command(
            tool if "." in tool else f"org.apache.kafka.tools.{tool}",
            *("--bootstrap-server", self.kafka.bootstrap_servers_of(protocol)),
            *("--command-config", str(file)),
            *arguments,
        )
        allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
        command[1:1] = [f"{allowed}.urls={self.server.url}", f"{allowed}.files={self.key}"]
        return command


@pytest.fixture(scope="module")
def oidc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oidc]:
    directory = tmp_path_factory.mktemp("keys")
    pki = Pki()
    client = pki.issue("client", uses_rsa=True)
    key, authority = directory / "client.key", directory / "authority.pem"
    key.write_text(client.key)
    authority.write_text(pki.trusted)
    node = pki.issue("node", "localhost", "127.0.0.1", uses_rsa=True).write(directory, "node")
    with (
        authorization_server.AuthorizationServer() as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        server.client_key = client.private_key.public_key()
        # The broker asks the server for unknown keys every ten seconds at most.
        patch.setattr(token_keys, "SECONDS_BETWEEN_FETCHES", 0.2)
        settings = broker_settings(server, *PROTOCOLS) | {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(node),
        }
        with EmbeddedCluster(settings=settings) as kafka:
            yield Oidc(kafka, server, key, authority)


def broker_settings(
    server: authorization_server.AuthorizationServer, *protocols: str, **more: str
) -> dict[str, object]:
    """Return settings of a broker with a listener of each protocol."""
    of_tokens = {
        "jwks.endpoint.url": server.keys_url,
        "expected.audience": authorization_server.AUDIENCE,
        "expected.issuer": server.url,
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return {
        "listeners": ",".join(f"{protocol}://127.0.0.1:0" for protocol in protocols),
        "inter.broker.listener.name": protocols[0],
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "connection.failed.authentication.delay.ms": "50",
        **{
            f"listener.name.{protocol.lower()}.oauthbearer.sasl.oauthbearer.{name}": value
            for protocol in protocols
            for name, value in of_tokens.items()
        },
    }


def new_topic() -> str:
    return f"oidc-{next(_numbers)}"


async def write(settings: dict[str, Any], topic: str) -> int:
    """Log in on a new connection and write a record; return its offset."""
    async with Cluster(**settings) as cluster, cluster.producer() as producer:
        return (await producer.send(topic, b"v")).offset


async def read(settings: dict[str, Any], topic: str, count: int) -> list[bytes]:
    async with (
        asyncio.timeout(30),
        Cluster(**settings) as cluster,
        cluster.consumer(topic, auto_offset_reset="earliest") as consumer,
    ):
        return [bytes((await consumer.getone()).value) for _ in range(count)]


def own(oidc: Oidc, way: str, protocol: str, topic: str) -> None:
    asyncio.run(write(oidc.settings(way, protocol), topic))


def librdkafka(oidc: Oidc, way: str, protocol: str, topic: str) -> None:
    from confluent_kafka import Producer

    failures: list[object] = []
    producer = Producer(
        {
            **oidc.librdkafka(way, protocol),
            "error_cb": failures.append,
            "message.timeout.ms": 8000,
        }
    )
    producer.produce(topic, b"v")
    assert producer.flush(10) == 0, failures


LOG_IN = {"aiokq": own, "librdkafka": librdkafka}


@pytest.mark.parametrize(
    ("client", "way"),
    [
        (client, way)
        for way in (CREDENTIALS, ASSERTION)
        for client in CLIENTS
        if client != "Java" and isinstance(CELLS[way, client], Shown)
    ],
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_client_gets_its_tokens_from_the_server(
    oidc: Oidc, client: str, way: str, protocol: str
) -> None:
    """By its secret, and by an assertion that it signs."""
    topic, before = new_topic(), oidc.server.count
    LOG_IN[client](oidc, way, protocol, topic)
    assert oidc.server.count == before + 1
    assert asyncio.run(read(oidc.settings(), topic, 1)) == [b"v"]


@pytest.mark.kafka
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize(
    ("way", "protocol"),
    [
        (CREDENTIALS, "SASL_PLAINTEXT"),
        # A start of Java takes seconds: one is enough for each commit.
        pytest.param(CREDENTIALS, "SASL_SSL", marks=pytest.mark.full),
        pytest.param(ASSERTION, "SASL_PLAINTEXT", marks=pytest.mark.full),
        pytest.param(ASSERTION, "SASL_SSL", marks=pytest.mark.full),
    ],
)
def test_java_gets_its_tokens_from_the_server(
    oidc: Oidc, tmp_path: Path, way: str, protocol: str
) -> None:
    """By OAuthBearerLoginModule with Kafka's own callback handler."""
    topic = new_topic()
    created = ("--create", "--topic", topic)
    command = oidc.java(tmp_path, way, "TopicCommand", *created, protocol=protocol)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("changes", "claims", "told"),
    [
        (
            {"sasl_oauthbearer_client_credentials_client_secret": "guessed"},
            {},
            "answered 401: invalid_client",
        ),
        ({}, {"aud": "somebody else"}, "invalid_token"),
        ({}, {"iss": "somebody else"}, "invalid_token"),
        ({}, {"nbf": 4_000_000_000}, "invalid_token"),
        ({}, {"sub": ""}, "invalid_token"),
    ],
)
async def test_who_is_refused_is_told_why(
    oidc: Oidc,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    claims: dict[str, Any],
    told: str,
) -> None:
    """By the server for a wrong secret, by the broker for the token of another service."""
    token = oidc.server.token
    monkeypatch.setattr(oidc.server, "token", lambda: token(**claims))
    settings = oidc.settings(bootstrap_timeout_ms=5000, **changes)
    with pytest.raises(errors.BootstrapFailed, match=told) as failure:
        await write(settings, new_topic())
    assert "guessed" not in str(failure.value)


async def test_new_keys_are_fetched_when_a_token_names_one(oidc: Oidc) -> None:
    """The broker refreshes its keys once in an hour otherwise."""
    topic = new_topic()
    await write(oidc.settings(), topic)
    before = oidc.server.keys_count
    oidc.server.rotate()
    await asyncio.sleep(0.3)
    await write(oidc.settings(), topic)
    assert oidc.server.keys_count == before + 1
    await write(oidc.settings(), topic)
    assert oidc.server.keys_count == before + 1


async def test_the_last_keys_stay_while_the_server_is_down(oidc: Oidc) -> None:
    """Tokens of known keys log in; those of unknown keys do so as soon as the server is back."""
    topic = new_topic()
    await write(oidc.settings(), topic)
    oidc.server.keys_status = 503
    try:
        await asyncio.sleep(0.3)
        await write(oidc.settings(), topic)
        oidc.server.rotate()
        with pytest.raises(errors.BootstrapFailed, match="invalid_token"):
            await write(oidc.settings(), topic)
    finally:
        oidc.server.keys_status = 200
    await asyncio.sleep(0.3)
    await write(oidc.settings(), topic)


async def test_a_withdrawn_key_counts_until_the_next_refresh(oidc: Oidc) -> None:
    """Then a token that it has signed logs nobody in."""
    refresh = {"jwks_endpoint_refresh_ms": "500"}
    async with EmbeddedCluster(
        settings=broker_settings(oidc.server, "SASL_PLAINTEXT", **refresh)
    ) as kafka:
        other = oidc._replace(kafka=kafka)
        token = oidc.server.token()
        settings = other.with_token(token)
        await write(settings, new_topic())
        oidc.server.rotate()
        oidc.server.withdraw()
        await asyncio.sleep(1)
        with pytest.raises(errors.BootstrapFailed, match="invalid_token"):
            await write(settings, new_topic())
        await write(other.settings(), new_topic())


async def test_sessions_end_with_their_tokens_and_nothing_is_lost(
    oidc: Oidc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producer, consumer and admin log in again on their connections, also with a new key."""
    monkeypatch.setattr(oidc.server, "life", SHORT)
    topic, before = new_topic(), oidc.server.count
    logins = oidc.kafka.node.counters.logins
    renewed = logins["OAUTHBEARER again"]
    loop = asyncio.get_running_loop()
    received: list[int] = []
    lost: list[BrokerDown] = []
    latest = 0.0
    async with (
        asyncio.timeout(60),
        Cluster(**oidc.settings()) as cluster,
        cluster.admin() as admin,
        cluster.producer(linger_ms=1) as producer,
        cluster.consumer(
            topic, group_id=topic, auto_offset_reset="earliest", fetch_max_wait_ms=300
        ) as consumer,
        asyncio.TaskGroup() as tasks,
    ):
        began = loop.time()

        async def consume() -> None:
            async for record in consumer:
                if not record.value:
                    break
                received.append(int(record.value))

        async def watch() -> None:
            async for event in cluster.events():
                if isinstance(event, BrokerDown):
                    lost.append(event)

        async def beat() -> None:
            nonlocal latest
            while True:
                due = loop.time() + 0.005
                await asyncio.sleep(0.005)
                latest = max(latest, loop.time() - due)

        consuming = tasks.create_task(consume())
        watching, beating = tasks.create_task(watch()), tasks.create_task(beat())
        count, is_rotated = 0, False
        while oidc.server.count < before + 5:
            values = [(None, b"%d" % (count + n)) for n in range(20)]
            await (await producer.send_many(topic, values))
            count += len(values)
            await admin.describe_cluster()
            if not is_rotated and oidc.server.count == before + 2:
                await asyncio.to_thread(oidc.server.rotate)
                is_rotated = True
            await asyncio.sleep(0.01)
        await producer.send(topic, b"")
        await consuming
        watching.cancel()
        beating.cancel()
        took = loop.time() - began
    assert received == list(range(count))
    assert logins["OAUTHBEARER again"] > renewed
    # The renewal begins at 95 % of the session at the latest. While the loop does not run, a
    # session can end before its renewal, and the broker closes the connection.
    assert lost == [] or latest > 0.03 * SHORT
    # The connections share a token. A renewal may request one while it is being refreshed.
    assert oidc.server.count - before <= 2 + 2 * took / (0.8 * SHORT)


@pytest.mark.full
def test_sessions_of_librdkafka_end_with_their_tokens_and_nothing_is_lost(
    oidc: Oidc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It requests new tokens in the background."""
    from confluent_kafka import Producer

    monkeypatch.setattr(oidc.server, "life", SHORT)
    topic, before = new_topic(), oidc.server.count
    failures: list[object] = []
    producer = Producer({**oidc.librdkafka(), "error_cb": failures.append, "linger.ms": 0})
    ends, count, is_rotated = time.monotonic() + 60, 0, False
    while oidc.server.count < before + 4 and time.monotonic() < ends:
        producer.produce(topic, b"%d" % count)
        count += 1
        producer.poll(0.01)
        if not is_rotated and oidc.server.count == before + 2:
            oidc.server.rotate()
            is_rotated = True
    assert producer.flush(30) == 0, failures
    assert oidc.server.count >= before + 4, failures
    monkeypatch.undo()
    assert asyncio.run(read(oidc.settings(), topic, count)) == [b"%d" % n for n in range(count)]


@pytest.mark.kafka
@pytest.mark.full
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_sessions_of_java_end_with_their_tokens_and_nothing_is_lost(
    oidc: Oidc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refreshes tokens in the background, and logs in again before a request."""
    monkeypatch.setattr(oidc.server, "life", SHORT_OF_JAVA)
    topic, before = new_topic(), oidc.server.count
    command = oidc.java(tmp_path, CREDENTIALS, "ConsoleProducer", "--topic", topic)
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdin is not None
    try:
        ends, count, is_rotated = time.monotonic() + 60, 0, False
        while oidc.server.count < before + 4 and time.monotonic() < ends and process.poll() is None:
            process.stdin.write(f"{count}\n")
            process.stdin.flush()
            count += 1
            time.sleep(0.05)
            if not is_rotated and oidc.server.count == before + 2:
                oidc.server.rotate()
                is_rotated = True
        told, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert "Exception" not in told, told
    assert oidc.server.count >= before + 4, told
    monkeypatch.undo()
    assert asyncio.run(read(oidc.settings(), topic, count)) == [b"%d" % n for n in range(count)]
