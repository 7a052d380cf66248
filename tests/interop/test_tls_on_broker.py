"""Other clients reach aiokq's broker over TLS: one-way and with certificates, and are refused."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aiokq import Cluster, EmbeddedCluster
from tests.peers import go_client
from tests.peers.apache_kafka import run_tool, why_absent
from tests.peers.pki import Identity, Pki

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # kafka-python leaves sockets open, which a later test would be blamed for.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_numbers = itertools.count()
_REASON = why_absent()


class Secured(NamedTuple):
    """A broker with TLS that asks for certificates, and files for its clients."""

    kafka: EmbeddedCluster
    directory: Path
    pki: Pki

    @property
    def server(self) -> str:
        return self.kafka.bootstrap_servers

    @property
    def authority(self) -> str:
        return str(self.directory / "authority.pem")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("tls")
    pki = Pki(intermediate=True)
    (directory / "authority.pem").write_text(pki.trusted)
    store = pki.issue("node", "localhost", "127.0.0.1", uses_rsa=True).write(directory, "node")
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "inter.broker.listener.name": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "authority.pem"),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+)$/$1/U",
    }
    with EmbeddedCluster(settings=settings) as kafka:
        yield Secured(kafka, directory, pki)


@pytest.fixture
def alice(secured: Secured) -> Identity:
    return secured.pki.issue("alice", "alice.example")


def files(secured: Secured, identity: Identity) -> tuple[str, str, str]:
    """Return the paths of a certificate chain, of its key, and of both."""
    name = f"client-{next(_numbers)}"
    chain, key = (secured.directory / f"{name}.{kind}" for kind in ("pem", "key"))
    chain.write_text(identity.chain)
    key.write_text(identity.key)
    return str(chain), str(key), str(identity.write(secured.directory, f"{name}-both"))


def librdkafka(secured: Secured, identity: Identity) -> None:
    from confluent_kafka import Consumer, Producer

    chain, key, _ = files(secured, identity)
    settings: dict[str, Any] = {
        "bootstrap.servers": secured.server,
        "security.protocol": "SSL",
        "ssl.ca.location": secured.authority,
        "ssl.certificate.location": chain,
        "ssl.key.location": key,
    }
    topic = f"tls-{next(_numbers)}"
    errors: list[object] = []
    producer = Producer({**settings, "message.timeout.ms": 4000, "error_cb": errors.append})
    producer.produce(topic, b"v" * 100_000)
    assert producer.flush(8) == 0, errors
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(20)
    assert message is not None
    assert message.value() == b"v" * 100_000
    consumer.close()


def aiokafka(secured: Secured, identity: Identity) -> None:
    from aiokafka import AIOKafkaProducer

    async def main() -> None:
        context = ssl.create_default_context(cafile=secured.authority)
        context.load_cert_chain(files(secured, identity)[2])
        producer = AIOKafkaProducer(
            bootstrap_servers=secured.server, security_protocol="SSL", ssl_context=context
        )
        try:
            await producer.start()
            await producer.send_and_wait(f"tls-{next(_numbers)}", b"v" * 100_000)
        finally:
            await producer.stop()

    asyncio.run(main())


def kafka_python(secured: Secured, identity: Identity) -> None:
    from kafka import KafkaProducer

    chain, key, _ = files(secured, identity)
    producer = KafkaProducer(
        bootstrap_servers=secured.server,
        security_protocol="SSL",
        ssl_cafile=secured.authority,
        ssl_certfile=chain,
        ssl_keyfile=key,
        max_block_ms=8000,
        bootstrap_timeout_ms=3000,
    )
    producer.send(f"tls-{next(_numbers)}", b"v" * 100_000).get(10)
    producer.close()


def franz_go(secured: Secured, identity: Identity) -> None:
    reason = go_client.why_absent()
    if reason is not None:
        pytest.skip(f"FRANZ-GO IS NOT TESTED: {reason}")
    chain, key, _ = files(secured, identity)
    topic = f"tls-{next(_numbers)}"
    go_client.run_go_client(
        Server=secured.server,
        Topic=topic,
        Group=topic,
        Authority=secured.authority,
        Certificate=chain,
        Key=key,
    )


def own(secured: Secured, identity: Identity) -> None:
    async def main() -> None:
        topic = f"tls-{next(_numbers)}"
        async with Cluster(
            secured.server,
            security_protocol="SSL",
            ssl_truststore_type="PEM",
            ssl_truststore_location=secured.authority,
            ssl_keystore_type="PEM",
            ssl_keystore_key=identity.key,
            ssl_keystore_certificate_chain=identity.chain,
            bootstrap_timeout_ms=3000,
        ) as cluster:
            async with cluster.producer() as producer:
                await producer.send(topic, b"v" * 100_000)
            async with cluster.consumer(topic, auto_offset_reset="earliest") as consumer:
                async for record in consumer:
                    assert record.value == b"v" * 100_000
                    return

    asyncio.run(main())


def java(secured: Secured, identity: Identity, kind: str = "PEM") -> None:
    if kind == "PEM":
        store = files(secured, identity)[2]
        stores = (
            f"ssl.keystore.type=PEM\nssl.keystore.location={store}\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={secured.authority}\n"
        )
    else:
        number = next(_numbers)
        keys = secured.directory / f"keys-{number}.p12"
        trust = secured.directory / f"trust-{number}.p12"
        keys.write_bytes(identity.pkcs12("changeit"))
        trust.write_bytes(secured.pki.trust_store("changeit"))
        stores = (
            f"ssl.keystore.type=PKCS12\nssl.keystore.location={keys}\n"
            f"ssl.keystore.password=changeit\nssl.truststore.password=changeit\n"
            f"ssl.truststore.type=PKCS12\nssl.truststore.location={trust}\n"
        )
    file = secured.directory / f"java-{next(_numbers)}.properties"
    file.write_text(
        f"security.protocol=SSL\nrequest.timeout.ms=10000\ndefault.api.timeout.ms=15000\n{stores}"
    )
    topic = f"tls-{next(_numbers)}"
    done = run_tool(
        "TopicCommand",
        *("--bootstrap-server", secured.server, "--command-config", str(file)),
        *("--create", "--topic", topic),
    )
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)


CLIENTS = {
    "librdkafka": librdkafka,
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
    "franz-go": franz_go,
    "aiokq": own,
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_with_a_certificate_writes_and_reads(
    secured: Secured, alice: Identity, client: str
) -> None:
    """100 kB span several TLS records; librdkafka closes and opens connections on the way."""
    CLIENTS[client](secured, alice)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("who", ["stranger", "expired", "without a rule"])
def test_a_client_whose_certificate_is_not_accepted_is_refused(
    secured: Secured, client: str, who: str
) -> None:
    """An unknown authority, the end of the validity, and a name that no mapping rule matches."""
    identity = {
        "stranger": lambda: Pki("stranger").issue("alice", "a.example"),
        "expired": lambda: secured.pki.issue("alice", "a.example", days=-1),
        "without a rule": lambda: secured.pki.issue("Alice 2", "a.example"),
    }[who]()
    # franz-go says only "EOF" of a connection that is closed after the handshake.
    words = r"(?i)ssl|connect|certificate|bootstrap|broker|assert|EOF"
    with pytest.raises(Exception, match=words):
        CLIENTS[client](secured, identity)


@pytest.mark.kafka
@pytest.mark.skipif(_REASON is not None, reason=str(_REASON))
@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_java_comes_in_with_a_certificate(secured: Secured, alice: Identity, kind: str) -> None:
    """With the stores that Java's users have."""
    java(secured, alice, kind)


@pytest.mark.kafka
@pytest.mark.skipif(_REASON is not None, reason=str(_REASON))
def test_java_names_the_failure_of_the_handshake(secured: Secured) -> None:
    """An alert, not only a lost connection."""
    with pytest.raises(RuntimeError, match="SslAuthenticationException"):
        java(secured, Pki("stranger").issue("alice", "a.example"))


def test_connections_live_through_a_renewal(secured: Secured, alice: Identity) -> None:
    """Records are written without an error while the broker's certificate is replaced."""
    store = secured.directory / "node.pem"

    async def main() -> None:
        topic = f"tls-{next(_numbers)}"
        async with (
            Cluster(
                secured.server,
                security_protocol="SSL",
                ssl_cafile=secured.authority,
                ssl_certfile=files(secured, alice)[2],
            ) as cluster,
            cluster.producer() as producer,
        ):
            await producer.send(topic, b"v")
            renewed = secured.pki.issue("node", "localhost", "127.0.0.1", uses_rsa=True)
            store.write_text(renewed.key)  # half written
            end = time.monotonic() + 6
            while time.monotonic() < end:
                await producer.send(topic, b"v" * 1000)
                await asyncio.sleep(0.01)
            store.write_text(renewed.key + renewed.chain)
            while True:
                await producer.send(topic, b"v" * 1000)
                await asyncio.sleep(0.05)
                host, _, port = secured.server.rpartition(":")
                context = ssl.create_default_context(cafile=secured.authority)
                context.load_cert_chain(files(secured, alice)[2])
                _, writer = await asyncio.open_connection(host, int(port), ssl=context)
                shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
                writer.close()
                if shown == renewed.der:
                    break

    asyncio.run(asyncio.wait_for(main(), 40))
