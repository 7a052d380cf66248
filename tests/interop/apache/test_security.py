"""TLS and SASL PLAIN against Apache Kafka: good credentials work, bad ones give a clear error."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import aiokq
from aiokq import errors
from aiokq.cli.app import execute
from aiokq.cluster.events import BrokerDown
from tests.peers import certificates
from tests.peers.apache_kafka import ApacheKafka, apache_kafka, why_absent

pytestmark = pytest.mark.kafka

LOGIN = {"sasl_plain_username": "anna", "sasl_plain_password": "only-anna-knows"}
LISTENERS = {
    "TLS": "SSL",
    "MISNAMED": "SSL",
    "MUTUAL": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "SHORT": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
}
SESSION_MS = 1200
"""Milliseconds for which a login is valid at the listener SHORT."""
LIMIT_MS = 1500
"""Timeout in milliseconds of the clients that are rejected."""


class Secured(NamedTuple):
    """A node of Apache Kafka with a listener of every kind, and the credentials for them."""

    kafka: ApacheKafka
    trusted: str
    """Certificate file of the authority that signed the node's certificate."""
    stranger: str
    """Certificate file of another authority."""
    client: certificates.Identity

    def settings(self, listener: str, **changes: Any) -> dict[str, Any]:
        """Return settings of a client that the listener accepts; a change to None removes one."""
        protocol = LISTENERS.get(listener, "PLAINTEXT")
        settings: dict[str, Any] = {
            "bootstrap_servers": self.address(listener),
            "security_protocol": protocol,
        }
        if "SSL" in protocol:
            settings["ssl_cafile"] = self.trusted
        if "SASL" in protocol:
            settings |= LOGIN
        if listener == "MUTUAL":
            settings["ssl_certfile"] = str(self.client.certificate)
            settings["ssl_keyfile"] = str(self.client.key)
        settings |= changes
        return {name: value for name, value in settings.items() if value is not None}

    def address(self, listener: str) -> str:
        ports = {"PLAINTEXT": self.kafka.ports[1], **self.kafka.listener_ports[1]}
        return f"127.0.0.1:{ports[listener]}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    reason = why_absent() or certificates.why_absent()
    if reason is not None:
        pytest.skip(f"APACHE KAFKA IS NOT TESTED: {reason}")
    directory = tmp_path_factory.mktemp("tls")
    authority = certificates.Authority(directory / "ours")
    stranger = certificates.Authority(directory / "theirs", "somebody else")
    node = authority.issue("node", ["DNS:localhost", "IP:127.0.0.1"])
    misnamed = authority.issue("misnamed", ["DNS:kafka.example.com"])
    login = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'user_{LOGIN["sasl_plain_username"]}="{LOGIN["sasl_plain_password"]}";'
    )
    properties = {
        "ssl_keystore_type": "PEM",
        "ssl_keystore_location": str(node.together),
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": str(authority.certificate),
        "listener_name_misnamed_ssl_keystore_location": str(misnamed.together),
        "listener_name_misnamed_ssl_keystore_type": "PEM",
        "listener_name_mutual_ssl_client_auth": "required",
        "sasl_enabled_mechanisms": "PLAIN",
        "listener_name_short_plain_connections_max_reauth_ms": str(SESSION_MS),
        **{
            f"listener_name_{name}_plain_sasl_jaas_config": login
            for name in ("sasl", "short", "both")
        },
    }
    with apache_kafka(1, listeners=LISTENERS, **properties) as kafka:
        client = authority.issue("client", ["DNS:client"])
        yield Secured(kafka, str(authority.certificate), str(stranger.certificate), client)


# -- accepted


@pytest.mark.parametrize(
    "listener",
    ["BOTH", *(pytest.param(each, marks=pytest.mark.full) for each in ("TLS", "MUTUAL", "SASL"))],
)
async def test_producer_consumer_and_admin_are_let_in(
    secured: Secured, topic: str, listener: str
) -> None:
    """Each has its own connections; values of 300 kB span many TLS records."""
    settings = secured.settings(listener)
    values = [b"%d" % n for n in range(200)] + [bytes([n]) * 300_000 for n in range(4)]
    async with aiokq.Admin(**settings) as admin:
        await admin.create_topics(topic, raise_errors=True)
        described = await admin.describe_cluster()
        # The listener advertises itself, so the client stays on it.
        assert [f"{b.host}:{b.port}" for b in described.brokers] == [secured.address(listener)]
    async with aiokq.Producer(**settings) as producer:
        metas = await (await producer.send_many(topic, [(None, value) for value in values]))
        assert [meta.offset for meta in metas] == list(range(len(values)))
    async with (
        asyncio.timeout(30),
        aiokq.Consumer(topic, **settings, auto_offset_reset="earliest") as consumer,
    ):
        assert [(await consumer.getone()).value for _ in values] == values


def stores(secured: Secured, form: str, directory: Path) -> dict[str, Any]:
    """Return settings with stores by Kafka's names; `openssl` makes the PKCS12 store."""
    chain, key = secured.client.certificate, secured.client.key
    own: dict[str, Any] = {
        "text": {
            "ssl_keystore_type": "PEM",
            "ssl_keystore_key": key.read_text(),
            "ssl_keystore_certificate_chain": chain.read_text(),
        },
        "PEM": {
            "ssl_keystore_type": "PEM",
            "ssl_keystore_location": str(secured.client.together),
        },
        "PKCS12": {
            "ssl_keystore_type": "PKCS12",
            "ssl_keystore_location": str(directory / "client.p12"),
            "ssl_keystore_password": "changeit",
        },
    }[form]
    if form == "PKCS12":
        subprocess.run(
            ["openssl", "pkcs12", "-export", "-in", chain, "-inkey", key]
            + ["-out", directory / "client.p12", "-passout", "pass:changeit"],
            check=True,
        )
    return secured.settings(
        "MUTUAL",
        ssl_cafile=None,
        ssl_certfile=None,
        ssl_keyfile=None,
        ssl_truststore_type="PEM",
        ssl_truststore_certificates=Path(secured.trusted).read_text(),
        **own,
    )


@pytest.mark.parametrize(
    "form", ["text", *(pytest.param(each, marks=pytest.mark.full) for each in ("PEM", "PKCS12"))]
)
async def test_stores_by_kafkas_names_are_accepted(
    secured: Secured, topic: str, form: str, tmp_path: Path
) -> None:
    """The listener demands a certificate."""
    settings = stores(secured, form, tmp_path)
    async with aiokq.Producer(**settings) as producer:
        assert (await producer.send(topic, b"v")).offset == 0


@pytest.mark.full
@pytest.mark.parametrize("listener", ["MUTUAL", "BOTH"])
def test_the_command_line_takes_its_security_from_a_file(
    secured: Secured, topic: str, listener: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file of --config has Java's property names, and may also have the address."""
    config = tmp_path / "client.properties"
    lines = {n.replace("_", "."): value for n, value in secured.settings(listener).items()}
    config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    assert execute(["topics", "create", topic, "--config", str(config)]) == 0
    assert execute(["topics", "list", "--config", str(config)]) == 0
    out, err = capsys.readouterr()
    assert topic in out
    assert err == ""


@pytest.mark.full
async def test_a_certificate_of_another_name_is_taken_when_told_to(
    secured: Secured, topic: str
) -> None:
    """ssl_check_hostname=False, as for port forwarding."""
    settings = secured.settings("MISNAMED", ssl_check_hostname=False)
    async with aiokq.Producer(**settings) as producer:
        assert (await producer.send(topic, b"v")).offset == 0


@pytest.mark.full
async def test_logins_that_expire_are_renewed_under_way(secured: Secured, topic: str) -> None:
    """KIP-368: the broker closes expired sessions; the clients renew theirs and lose nothing."""
    settings = secured.settings("SHORT")
    received: list[int] = []
    lost: list[BrokerDown] = []
    async with (
        asyncio.timeout(40),
        aiokq.Cluster(**settings) as cluster,
        cluster.producer(linger_ms=1) as producer,
        cluster.consumer(topic, auto_offset_reset="earliest", fetch_max_wait_ms=300) as consumer,
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
            assert (await producer.send(topic, b"%d" % count)).offset == count
            count += 1
            await asyncio.sleep(0.01)
        await producer.send(topic, b"")
        await consuming
        watching.cancel()
    assert received == list(range(count))
    assert lost == []


# -- rejected


class Refusal(NamedTuple):
    """A client's mistake, and what its error must say."""

    listener: str
    changes: dict[str, Any]
    told: str
    cause: type[errors.KafkaError]


def _plain(protocol: str = "PLAINTEXT") -> dict[str, Any]:
    nothing = ("ssl_cafile", "sasl_plain_username", "sasl_plain_password")
    return {"security_protocol": protocol, **dict.fromkeys(nothing)}


REFUSALS = {
    "wrong password": Refusal(
        "SASL",
        {"sasl_plain_password": "guessed"},
        "[Cc]heck the credentials",
        errors.AuthenticationFailed,
    ),
    "unknown user": Refusal(
        "SASL",
        {"sasl_plain_username": "otto"},
        "[Cc]heck the credentials",
        errors.AuthenticationFailed,
    ),
    "wrong password over TLS": Refusal(
        "BOTH",
        {"sasl_plain_password": "guessed"},
        "[Cc]heck the credentials",
        errors.AuthenticationFailed,
    ),
    "an authority that is not known": Refusal(
        "TLS", {"ssl_cafile": None}, "ssl_cafile", errors.AuthenticationFailed
    ),
    "another authority": Refusal(
        "BOTH", {"ssl_cafile": "stranger"}, "ssl_cafile", errors.AuthenticationFailed
    ),
    "a certificate of another host": Refusal(
        "MISNAMED", {}, "by a name that it is issued for", errors.AuthenticationFailed
    ),
    "no certificate where one is wanted": Refusal(
        "MUTUAL",
        {"ssl_certfile": None, "ssl_keyfile": None},
        "ssl_certfile",
        errors.AuthenticationFailed,
    ),
    "plaintext to a TLS listener": Refusal(
        "TLS", _plain(), "security_protocol=SSL", errors.KafkaError
    ),
    "TLS to a plaintext listener": Refusal(
        "PLAINTEXT",
        {"security_protocol": "SSL", "ssl_cafile": "trusted"},
        "security_protocol=PLAINTEXT",
        errors.KafkaError,
    ),
    "no login where one is wanted": Refusal(
        "SASL", _plain(), "security_protocol=SASL_PLAINTEXT", errors.KafkaError
    ),
    "a login where none is taken": Refusal(
        "PLAINTEXT",
        {"security_protocol": "SASL_PLAINTEXT", **LOGIN},
        "security_protocol=PLAINTEXT",
        errors.KafkaError,
    ),
    "a login in plaintext to a TLS listener": Refusal(
        "BOTH",
        {"security_protocol": "SASL_PLAINTEXT", "ssl_cafile": None},
        "security_protocol=.*SASL_SSL",
        errors.KafkaError,
    ),
}


@pytest.fixture(params=REFUSALS)
def refused(request: pytest.FixtureRequest, secured: Secured) -> tuple[dict[str, Any], Refusal]:
    """Settings with one of the mistakes, and the mistake."""
    chosen = REFUSALS[request.param]
    files = {"stranger": secured.stranger, "trusted": secured.trusted}
    changes = {name: files.get(value, value) for name, value in chosen.changes.items()}
    limits = {"bootstrap_timeout_ms": LIMIT_MS, "request_timeout_ms": 1000}
    return secured.settings(chosen.listener, **changes, **limits), chosen


@pytest.mark.parametrize(
    "client",
    ["producer", *(pytest.param(each, marks=pytest.mark.full) for each in ("consumer", "admin"))],
)
async def test_who_is_refused_is_told_why_and_in_time(
    refused: tuple[dict[str, Any], Refusal], topic: str, client: str
) -> None:
    """The error has the remedy and the address, and never the password."""
    settings, expected = refused
    entered = {
        "producer": lambda: aiokq.Producer(**settings),
        "consumer": lambda: aiokq.Consumer(topic, **settings),
        "admin": lambda: aiokq.Admin(**settings),
    }[client]()
    began = time.monotonic()
    with pytest.raises(errors.BootstrapFailed, match=expected.told) as failure:
        await entered.start()
    await entered.close()
    assert time.monotonic() - began < LIMIT_MS / 1000 + 1
    assert settings["bootstrap_servers"] in str(failure.value)
    assert "guessed" not in str(failure.value)
    assert isinstance(failure.value.__cause__, expected.cause)
    if expected.cause is errors.AuthenticationFailed:
        assert time.monotonic() - began < LIMIT_MS / 1000, "it went on trying"


@pytest.mark.full
def test_a_refused_command_ends_with_one_line(
    refused: tuple[dict[str, Any], Refusal],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The exit code is 1."""
    settings, expected = refused
    config = tmp_path / "client.properties"
    lines = {name.replace("_", "."): value for name, value in settings.items()}
    config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    assert execute(["topics", "list", "--config", str(config)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert re.search(expected.told, err), err
    assert "guessed" not in err
