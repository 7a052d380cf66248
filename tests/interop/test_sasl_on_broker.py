"""Other clients log in to aiokq's broker: mechanism by client and protocol, and wrong credentials.

OAUTHBEARER has tokens of the program here, which are not signed; `test_oidc_on_broker.py` has those
of a server. `tests/peers/login_table.py` has the table.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aiokq import Admin, Cluster, EmbeddedCluster, ScramUpsertion
from tests.peers import go_client
from tests.peers.apache_kafka import run_tool, why_absent
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
    """A running broker with a listener of each protocol, and what clients need to reach it."""

    kafka: EmbeddedCluster
    authority: str
    """PEM file of the authority that signed the broker's certificate."""

    def server(self, protocol: str) -> str:
        return self.kafka.bootstrap_servers_of(protocol)


class Login(NamedTuple):
    """What a client uses to log in."""

    broker: Broker
    protocol: str
    mechanism: str
    user: str = "alice"
    password: str = USERS["alice"]

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
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(node),
        **{
            f"listener.name.{protocol.lower()}.oauthbearer.allow.unsecured.tokens": "true"
            for protocol in PROTOCOLS
        },
        "connection.failed.authentication.delay.ms": "50",
    }
    with EmbeddedCluster(users=USERS, settings=settings) as running:
        yield Broker(running, str(directory / "authority.pem"))


def unsecured_token(name: str = "alice", lifetime: float = 600) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    now = time.time()
    return f"{part({'alg': 'none'})}.{part({'sub': name, 'iat': now, 'exp': now + lifetime})}."


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
        settings["oauth_cb"] = lambda _: (unsecured_token(login.user), time.time() + 600)
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
            return unsecured_token(login.user)

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
            return unsecured_token(login.user)

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
        Token=unsecured_token(login.user),
        Authority=login.authority or "",
    )


def own(login: Login) -> None:
    """Write and read one record; raise an error if the login fails."""
    settings: dict[str, Any] = (
        {"sasl_oauth_token_provider": lambda: unsecured_token(login.user)}
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
    with pytest.raises(Exception, match=r"(?i)auth|bootstrap|brokers|connect|timeout|metadata"):
        LOG_IN[client](Login(broker, protocol, mechanism, user, "wrong"))


REASON = why_absent()
LOGIN = {
    "PLAIN": 'plain.PlainLoginModule required username="{user}" password="{password}";',
    "SCRAM-SHA-256": 'scram.ScramLoginModule required username="{user}" password="{password}";',
    "SCRAM-SHA-512": 'scram.ScramLoginModule required username="{user}" password="{password}";',
    "OAUTHBEARER": (
        'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{user}";'
    ),
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
            "internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler\n"
        )
    file = path / f"java-{next(_numbers)}.properties"
    file.write_text(text.replace("\\", "\\\\"))
    return str(file)


def java(login: Login, path: Path, tool: str, *arguments: str) -> Any:
    """Run a tool of Kafka; return what it has printed."""
    file = client_file(path, login)
    command = ("--bootstrap-server", login.server, "--command-config", file)
    return run_tool(tool, *command, *arguments)


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
    if mechanism != "OAUTHBEARER":
        done = java(login._replace(password="wrong"), tmp_path, "TopicCommand", "--list")
        assert done.returncode != 0
        assert "SaslAuthenticationException" in done.stdout + done.stderr


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
