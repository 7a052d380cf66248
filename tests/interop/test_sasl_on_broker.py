"""Other clients log in to aiokq's broker: mechanism by client and protocol, and wrong credentials.

OAUTHBEARER has signed tokens here, which the program gives to the client. The broker takes the keys
from a file on one listener, and from an authorization server on the other. In
`test_oidc_on_broker.py`, clients get their tokens from such a server.
`tests/peers/login_table.py` has the table.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("jwt")

from aiokq import Admin, BootstrapFailed, Cluster, EmbeddedCluster, ScramUpsertion
from tests.peers import authorization_server, go_client
from tests.peers.apache_kafka import java_command, run_tool, why_absent
from tests.peers.authorization_server import AuthorizationServer
from tests.peers.login_table import CELLS, CLIENTS, MECHANISMS, PROTOCOLS, Shown
from tests.peers.pki import Pki

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # kafka-python leaves sockets open, which a later test would be blamed for.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_numbers = itertools.count()
USERS = {"alice": 'alice=,"secret', "bob": "bob-secret"}


class Broker(NamedTuple):
    """A running broker with a listener of each protocol, and what clients need to reach it.

    Attributes:
        authority: PEM file of the authority that signed the broker's certificate.
        tokens: signs the tokens that the broker accepts.
        others: signs tokens that it does not accept, as a stranger with the same names would.
    """

    kafka: EmbeddedCluster
    authority: str
    tokens: AuthorizationServer
    others: AuthorizationServer

    def server(self, protocol: str) -> str:
        return self.kafka.bootstrap_servers_of(protocol)


class Login(NamedTuple):
    """What a client uses to log in.

    Attributes:
        signer: signs the token; by default the server whose tokens the broker accepts.
    """

    broker: Broker
    protocol: str
    mechanism: str
    user: str = "alice"
    password: str = USERS["alice"]
    signer: AuthorizationServer | None = None

    @property
    def token(self) -> str:
        tokens = self.broker.tokens
        return (self.signer or tokens).token(self.user, iss=tokens.url)

    @property
    def server(self) -> str:
        return self.broker.server(self.protocol)

    @property
    def authority(self) -> str | None:
        """The file of the trusted authority; None without TLS."""
        return self.broker.authority if self.protocol == "SASL_SSL" else None


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("broker")
    pki = Pki()
    (directory / "authority.pem").write_text(pki.trusted)
    # kafka-python and Java take RSA and EC; RSA is what most brokers have.
    node = pki.issue("node", "localhost", "127.0.0.1", uses_rsa=True).write(directory, "node")
    with AuthorizationServer() as tokens, AuthorizationServer() as others:
        tokens.save_keys(directory / "keys.json")
        keys = {
            "SASL_PLAINTEXT": (directory / "keys.json").as_uri(),
            "SASL_SSL": tokens.keys_url,
        }
        settings = {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0,DEV://127.0.0.1:0",
            "listener.security.protocol.map": (
                "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,DEV:SASL_PLAINTEXT"
            ),
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(node),
            "listener.name.dev.oauthbearer.allow.unsecured.tokens": "true",
            "connection.failed.authentication.delay.ms": "50",
        }
        for protocol in PROTOCOLS:
            prefix = f"listener.name.{protocol.lower()}.oauthbearer.sasl.oauthbearer."
            settings[f"{prefix}jwks.endpoint.url"] = keys[protocol]
            settings[f"{prefix}expected.audience"] = authorization_server.AUDIENCE
            settings[f"{prefix}expected.issuer"] = tokens.url
        with EmbeddedCluster(users=USERS, settings=settings) as running:
            yield Broker(running, str(directory / "authority.pem"), tokens, others)


def librdkafka(login: Login) -> None:
    """Write and read one record; raise an error if the login fails."""
    from confluent_kafka import Consumer, KafkaException, Producer

    settings: dict[str, Any] = {
        "bootstrap.servers": login.server,
        "security.protocol": login.protocol,
        "sasl.mechanism": login.mechanism,
    }
    if login.authority:
        settings["ssl.ca.location"] = login.authority
    if login.mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (login.token, time.time() + 600)
    else:
        settings |= {"sasl.username": login.user, "sasl.password": login.password}
    errors: list[object] = []
    topic = f"sasl-{next(_numbers)}"
    producer = Producer({**settings, "error_cb": errors.append, "message.timeout.ms": 5000})
    producer.produce(topic, b"v")
    left = producer.flush(8)
    if any("authentication" in str(error).lower() for error in errors):
        raise KafkaException(errors[0])
    assert not left, errors
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(20)
    assert message is not None
    assert message.value() == b"v"
    consumer.close()


def aiokafka(login: Login) -> None:
    """Write one record; raise an error if the login fails."""
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.errors import UnknownTopicOrPartitionError

    class Tokens(AbstractTokenProvider):
        async def token(self) -> str:
            return login.token

    settings: dict[str, Any] = (
        {"sasl_oauth_token_provider": Tokens()}
        if login.mechanism == "OAUTHBEARER"
        else {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
    )
    if login.authority:
        settings["ssl_context"] = ssl.create_default_context(cafile=login.authority)

    async def main() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=login.server,
            security_protocol=login.protocol,
            sasl_mechanism=login.mechanism,
            **settings,
        )
        try:
            await producer.start()
            topic = f"sasl-{next(_numbers)}"
            for _ in range(20):  # aiokafka does not wait for a topic that is being created
                try:
                    await producer.send_and_wait(topic, b"v")
                    break
                except UnknownTopicOrPartitionError:
                    await asyncio.sleep(0.1)
            else:
                await producer.send_and_wait(topic, b"v")
        finally:
            await producer.stop()

    asyncio.run(main())


def kafka_python(login: Login) -> None:
    """Write one record; raise an error if the login fails."""
    from kafka import KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):
        def token(self) -> str:
            return login.token

    settings: dict[str, Any] = (
        {"sasl_oauth_token_provider": Tokens()}
        if login.mechanism == "OAUTHBEARER"
        else {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
    )
    if login.authority:
        settings["ssl_cafile"] = login.authority
    producer = KafkaProducer(
        bootstrap_servers=login.server,
        security_protocol=login.protocol,
        sasl_mechanism=login.mechanism,
        max_block_ms=8000,
        bootstrap_timeout_ms=3000,
        **settings,
    )
    producer.send(f"sasl-{next(_numbers)}", b"v").get(10)
    producer.close()


def franz_go(login: Login) -> None:
    """Write and read one record; raise an error if the login fails."""
    reason = go_client.why_absent()
    if reason is not None:
        pytest.skip(f"FRANZ-GO IS NOT TESTED: {reason}")
    topic = f"sasl-{next(_numbers)}"
    go_client.run_go_client(
        Server=login.server,
        Topic=topic,
        Group=topic,
        Mechanism=login.mechanism,
        User=login.user,
        Password=login.password,
        Token=login.token,
        Authority=login.authority or "",
    )


def own(login: Login) -> None:
    """Write and read one record; raise an error if the login fails."""
    settings: dict[str, Any] = (
        {"sasl_oauth_token_provider": lambda: login.token}
        if login.mechanism == "OAUTHBEARER"
        else {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
    )
    if login.authority:
        settings["ssl_cafile"] = login.authority

    async def main() -> None:
        topic = f"sasl-{next(_numbers)}"
        async with Cluster(
            login.server,
            security_protocol=login.protocol,
            sasl_mechanism=login.mechanism,
            **settings,
        ) as cluster:
            async with cluster.producer() as producer:
                await producer.send(topic, b"v")
            async with cluster.consumer(topic, auto_offset_reset="earliest") as consumer:
                async for record in consumer:
                    assert record.value == b"v"
                    return

    asyncio.run(main())


LOG_IN = {
    "librdkafka": librdkafka,
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
    "franz-go": franz_go,
    "aiokq": own,
}
CASES = [
    (client, mechanism, protocol)
    for mechanism in MECHANISMS
    for client in CLIENTS
    for protocol in PROTOCOLS
    if client != "Java" and isinstance(CELLS[mechanism, client], Shown)
]


@pytest.mark.parametrize(("client", "mechanism", "protocol"), CASES)
def test_a_client_logs_in_by_a_mechanism(
    broker: Broker, client: str, mechanism: str, protocol: str
) -> None:
    """The password has characters that SCRAM and JAAS escape."""
    LOG_IN[client](Login(broker, protocol, mechanism))


def fails_to_log_in(client: str, login: Login) -> None:
    """Check that a client raises an error because the broker has refused its login.

    Some clients only tell that there is no broker, so the broker's counters decide.
    """
    counters = login.broker.kafka.node.counters
    logins, failed = dict(counters.logins), counters.failed_logins[login.mechanism]
    told = r"(?i)auth|bootstrap|brokers|connect|timeout|metadata"
    with pytest.raises(Exception, match=told):
        LOG_IN[client](login)
    assert counters.failed_logins[login.mechanism] > failed
    assert dict(counters.logins) == logins


@pytest.mark.parametrize(
    ("client", "mechanism"),
    [case[:2] for case in CASES if case[1] != "OAUTHBEARER" and case[2] == "SASL_PLAINTEXT"],
)
@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_a_client_with_a_wrong_password_gets_an_error_of_authentication(
    broker: Broker, client: str, mechanism: str, user: str
) -> None:
    """Also a user that does not exist."""
    protocol = "SASL_SSL" if user == "alice" else "SASL_PLAINTEXT"
    fails_to_log_in(client, Login(broker, protocol, mechanism, user, "wrong"))


@pytest.mark.parametrize(
    ("client", "protocol"),
    [
        (client, protocol)
        for client, mechanism, protocol in CASES
        # aiokafka does not see the refusal of a token, and goes on asking for ever.
        if mechanism == "OAUTHBEARER" and client != "aiokafka"
    ],
)
def test_a_token_that_somebody_else_signed_logs_nobody_in(
    broker: Broker, client: str, protocol: str
) -> None:
    """All of its names are right: user, audience, issuer and key id."""
    fails_to_log_in(client, Login(broker, protocol, "OAUTHBEARER", signer=broker.others))


def test_an_unsigned_token_logs_in_only_where_a_setting_allows_it(broker: Broker) -> None:
    token = authorization_server.unsecured("alice", 600)

    async def main(listener: str) -> None:
        async with Admin(
            broker.server(listener),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=lambda: token,
        ) as admin:
            await admin.list_topics()

    asyncio.run(main("DEV"))
    with pytest.raises(BootstrapFailed, match="invalid_token"):
        asyncio.run(main("SASL_PLAINTEXT"))


REASON = why_absent()
LOGIN = {
    "PLAIN": 'plain.PlainLoginModule required username="{user}" password="{password}";',
    "SCRAM-SHA-256": 'scram.ScramLoginModule required username="{user}" password="{password}";',
    "SCRAM-SHA-512": 'scram.ScramLoginModule required username="{user}" password="{password}";',
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule required;",
}


def client_file(path: Path, login: Login) -> str:
    """Write the settings of a client of Java; return the path of the file."""
    password = login.password.replace('"', '\\"')
    module = LOGIN[login.mechanism].format(user=login.user, password=password)
    text = (
        f"security.protocol={login.protocol}\nsasl.mechanism={login.mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{module}\n"
        "request.timeout.ms=10000\ndefault.api.timeout.ms=15000\n"
    )
    if login.authority:
        text += f"ssl.truststore.type=PEM\nssl.truststore.location={login.authority}\n"
    if login.mechanism == "OAUTHBEARER":
        text += (
            "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer."
            "OAuthBearerLoginCallbackHandler\n"
            f"sasl.oauthbearer.token.endpoint.url={token_file(path, login).as_uri()}\n"
        )
    file = path / f"java-{next(_numbers)}.properties"
    file.write_text(text.replace("\\", "\\\\"))
    return str(file)


def token_file(path: Path, login: Login) -> Path:
    """Write a token where Java's client finds it."""
    file = path / "token"
    file.write_text(login.token)
    return file


def java(login: Login, path: Path, tool: str, *arguments: str) -> Any:
    """Run a tool of Kafka; return what it has printed."""
    file = client_file(path, login)
    words = ("--bootstrap-server", login.server, "--command-config", file, *arguments)
    if login.mechanism != "OAUTHBEARER":
        return run_tool(tool, *words)
    command = java_command(f"org.apache.kafka.tools.{tool}", *words)
    allowed, token = "-Dorg.apache.kafka.sasl.oauthbearer.allowed", path / "token"
    command[1:1] = [f"{allowed}.urls={token.as_uri()}", f"{allowed}.files={token}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.kafka
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize(
    ("mechanism", "protocol"),
    [
        # A start of Java takes seconds: one mechanism over TLS is enough for each commit.
        pytest.param(
            mechanism,
            protocol,
            marks=[pytest.mark.full]
            if protocol == "SASL_SSL" and mechanism != "SCRAM-SHA-512"
            else [],
        )
        for mechanism in MECHANISMS
        for protocol in PROTOCOLS
    ],
)
def test_java_logs_in_by_a_mechanism(
    broker: Broker, tmp_path: Path, mechanism: str, protocol: str
) -> None:
    """Kafka's tools, and a refusal by its own exception."""
    login = Login(broker, protocol, mechanism)
    done = java(login, tmp_path, "TopicCommand", "--create", "--topic", f"java-{next(_numbers)}")
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = login._replace(password="wrong", signer=broker.others)
    done = java(wrong, tmp_path, "TopicCommand", "--list")
    assert done.returncode != 0
    assert "SaslAuthenticationException" in done.stdout + done.stderr


@pytest.mark.kafka
@pytest.mark.full
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_java_logs_in_by_its_own_unsigned_token_where_a_setting_allows_it(
    broker: Broker, tmp_path: Path
) -> None:
    """Java's client makes such tokens for development."""
    oauth = "org.apache.kafka.common.security.oauthbearer"
    file = tmp_path / "java.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={oauth}.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="alice";\n'
        "sasl.login.callback.handler.class="
        f"{oauth}.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler\n"
    )
    words = ("--bootstrap-server", broker.server("DEV"), "--command-config", str(file), "--list")
    done = run_tool("TopicCommand", *words)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.kafka
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_kafka_configs_adds_describes_and_deletes_a_user(broker: Broker, tmp_path: Path) -> None:
    """A user that Kafka's tool adds logs in at once, with our client and with Java's."""
    admin = Login(broker, "SASL_PLAINTEXT", "PLAIN")
    carol = Login(broker, "SASL_PLAINTEXT", "SCRAM-SHA-256", "carol", "carol-secret")
    entity = ("--entity-type", "users", "--entity-name", "carol")
    command = "kafka.admin.ConfigCommand"
    done = java(
        admin, tmp_path, command, *entity, "--alter",
        "--add-config", "SCRAM-SHA-256=[iterations=8192,password=carol-secret]",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    described = java(admin, tmp_path, command, *entity, "--describe")
    assert "SCRAM-SHA-256=iterations=8192" in described.stdout, described.stdout
    own(carol)
    assert java(carol, tmp_path, "TopicCommand", "--list").returncode == 0
    deletion = ("--alter", "--delete-config", "SCRAM-SHA-256")
    done = java(admin, tmp_path, command, *entity, *deletion)
    assert done.returncode == 0, done.stdout + done.stderr
    with pytest.raises(Exception, match=r"(?i)auth"):
        own(carol)


@pytest.mark.kafka
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_java_logs_in_as_a_user_of_our_admin_client(broker: Broker, tmp_path: Path) -> None:
    """The salted password of our client is that of Java."""

    async def main() -> None:
        settings = broker.kafka.client_settings("alice", mechanism="SCRAM-SHA-512")
        async with Admin(**settings) as admin:
            await admin.alter_user_scram_credentials(
                ScramUpsertion("dave", "dave-secret", "SCRAM-SHA-512", 5000), raise_errors=True
            )

    asyncio.run(main())
    dave = Login(broker, "SASL_PLAINTEXT", "SCRAM-SHA-512", "dave", "dave-secret")
    done = java(dave, tmp_path, "TopicCommand", "--list")
    assert done.returncode == 0, done.stdout + done.stderr
