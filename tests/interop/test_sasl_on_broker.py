"""Other clients log in to aiokq's broker: mechanism by client, and wrong credentials.

Empty cells: librdkafka, aiokafka and kafka-python have OAUTHBEARER by a token of the caller only,
which is the unsecured token here; Java makes it itself.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import time

import pytest

from aiokq import Admin, Cluster, EmbeddedCluster, ScramUpsertion
from tests.peers.apache_kafka import run_tool, why_absent

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # kafka-python leaves sockets open, which a later test would be blamed for.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_numbers = itertools.count()
USERS = {"alice": 'alice=,"secret', "bob": "bob-secret"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
LISTENER = "listener.name.sasl_plaintext."


@pytest.fixture(scope="module")
def kafka():
    settings = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{LISTENER}oauthbearer.allow.unsecured.tokens": "true",
        "connection.failed.authentication.delay.ms": "50",
    }
    with EmbeddedCluster(users=USERS, settings=settings) as running:
        yield running


def unsecured_token(name: str = "alice", lifetime: float = 600) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    now = time.time()
    return f"{part({'alg': 'none'})}.{part({'sub': name, 'iat': now, 'exp': now + lifetime})}."


def librdkafka(server: str, mechanism: str, user: str, password: str) -> None:
    """Write and read one record; raise an error if the login fails."""
    from confluent_kafka import Consumer, KafkaException, Producer

    settings = {
        "bootstrap.servers": server,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (unsecured_token(user), time.time() + 600)
    else:
        settings |= {"sasl.username": user, "sasl.password": password}
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


def aiokafka(server: str, mechanism: str, user: str, password: str) -> None:
    """Write one record; raise an error if the login fails."""
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.errors import UnknownTopicOrPartitionError

    class Tokens(AbstractTokenProvider):
        async def token(self) -> str:
            return unsecured_token(user)

    settings = (
        {"sasl_oauth_token_provider": Tokens()}
        if mechanism == "OAUTHBEARER"
        else {"sasl_plain_username": user, "sasl_plain_password": password}
    )

    async def main() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=server,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
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


def kafka_python(server: str, mechanism: str, user: str, password: str) -> None:
    """Write one record; raise an error if the login fails."""
    from kafka import KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):
        def token(self) -> str:
            return unsecured_token(user)

    settings = (
        {"sasl_oauth_token_provider": Tokens()}
        if mechanism == "OAUTHBEARER"
        else {"sasl_plain_username": user, "sasl_plain_password": password}
    )
    producer = KafkaProducer(
        bootstrap_servers=server,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        max_block_ms=8000,
        bootstrap_timeout_ms=3000,
        **settings,
    )
    producer.send(f"sasl-{next(_numbers)}", b"v").get(10)
    producer.close()


def own(server: str, mechanism: str, user: str, password: str) -> None:
    """Write and read one record; raise an error if the login fails."""

    async def main() -> None:
        topic = f"sasl-{next(_numbers)}"
        async with Cluster(
            server,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=password,
        ) as cluster:
            async with cluster.producer() as producer:
                await producer.send(topic, b"v")
            async with cluster.consumer(topic, auto_offset_reset="earliest") as consumer:
                async for record in consumer:
                    assert record.value == b"v"
                    return

    asyncio.run(main())


CLIENTS = {
    "librdkafka": librdkafka,
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
    "aiokq": own,
}
CELLS = [
    (client, mechanism)
    for client in CLIENTS
    for mechanism in MECHANISMS
    if (client, mechanism) != ("aiokq", "OAUTHBEARER")  # tested with the client's own providers
]


@pytest.mark.parametrize(("client", "mechanism"), CELLS)
def test_a_client_logs_in_by_a_mechanism(kafka, client, mechanism):
    """The password has characters that SCRAM and JAAS escape."""
    CLIENTS[client](kafka.bootstrap_servers, mechanism, "alice", USERS["alice"])


@pytest.mark.parametrize(
    ("client", "mechanism"), [cell for cell in CELLS if cell[1] != "OAUTHBEARER"]
)
@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_a_client_with_a_wrong_password_gets_an_error_of_authentication(
    kafka, client, mechanism, user
):
    """Also a user that does not exist."""
    with pytest.raises(Exception, match=r"(?i)auth|bootstrap|brokers|connect|timeout|metadata"):
        CLIENTS[client](kafka.bootstrap_servers, mechanism, user, "wrong")


REASON = why_absent()
LOGIN = {
    "PLAIN": 'plain.PlainLoginModule required username="{user}" password="{password}";',
    "SCRAM-SHA-256": 'scram.ScramLoginModule required username="{user}" password="{password}";',
    "SCRAM-SHA-512": 'scram.ScramLoginModule required username="{user}" password="{password}";',
    "OAUTHBEARER": (
        'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{user}";'
    ),
}


def client_file(path, mechanism: str, user: str, password: str):
    login = LOGIN[mechanism].format(user=user, password=password.replace('"', '\\"'))
    text = (
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{login}\n"
        "request.timeout.ms=10000\ndefault.api.timeout.ms=15000\n"
    )
    if mechanism == "OAUTHBEARER":
        text += (
            "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer."
            "internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler\n"
        )
    file = path / f"{mechanism}-{user}.properties"
    file.write_text(text.replace("\\", "\\\\"))
    return str(file)


def java(kafka, tool: str, file: str, *arguments: str):
    return run_tool(
        tool, "--bootstrap-server", kafka.bootstrap_servers, "--command-config", file, *arguments
    )


@pytest.mark.kafka
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_java_logs_in_by_a_mechanism(kafka, tmp_path, mechanism):
    """Kafka's tools, and a refusal by its own exception."""
    good = client_file(tmp_path, mechanism, "alice", USERS["alice"])
    done = java(kafka, "TopicCommand", good, "--create", "--topic", f"java-{next(_numbers)}")
    assert done.returncode == 0, done.stdout + done.stderr
    if mechanism != "OAUTHBEARER":
        bad = client_file(tmp_path, mechanism, "alice", "wrong")
        done = java(kafka, "TopicCommand", bad, "--list")
        assert done.returncode != 0
        assert "SaslAuthenticationException" in done.stdout + done.stderr


@pytest.mark.kafka
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_kafka_configs_adds_describes_and_deletes_a_user(kafka, tmp_path):
    """A user that Kafka's tool adds logs in at once, with our client and with Java's."""
    admin = client_file(tmp_path, "PLAIN", "alice", USERS["alice"])
    entity = ("--entity-type", "users", "--entity-name", "carol")
    command = "kafka.admin.ConfigCommand"
    done = java(
        kafka, command, admin, *entity, "--alter",
        "--add-config", "SCRAM-SHA-256=[iterations=8192,password=carol-secret]",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    described = java(kafka, command, admin, *entity, "--describe")
    assert "SCRAM-SHA-256=iterations=8192" in described.stdout, described.stdout
    own(kafka.bootstrap_servers, "SCRAM-SHA-256", "carol", "carol-secret")
    carol = client_file(tmp_path, "SCRAM-SHA-256", "carol", "carol-secret")
    assert java(kafka, "TopicCommand", carol, "--list").returncode == 0
    done = java(kafka, command, admin, *entity, "--alter", "--delete-config", "SCRAM-SHA-256")
    assert done.returncode == 0, done.stdout + done.stderr
    with pytest.raises(Exception, match=r"(?i)auth"):
        own(kafka.bootstrap_servers, "SCRAM-SHA-256", "carol", "carol-secret")


@pytest.mark.kafka
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_java_logs_in_as_a_user_of_our_admin_client(kafka, tmp_path):
    """The salted password of our client is that of Java."""

    async def main() -> None:
        settings = kafka.client_settings("alice", mechanism="SCRAM-SHA-512")
        async with Admin(**settings) as admin:
            await admin.alter_user_scram_credentials(
                ScramUpsertion("dave", "dave-secret", "SCRAM-SHA-512", 5000), raise_errors=True
            )

    asyncio.run(main())
    dave = client_file(tmp_path, "SCRAM-SHA-512", "dave", "dave-secret")
    done = java(kafka, "TopicCommand", dave, "--list")
    assert done.returncode == 0, done.stdout + done.stderr
