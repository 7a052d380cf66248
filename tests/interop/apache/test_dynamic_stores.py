"""Kafka's kafka-configs exchanges the keys and certificates of a listener on both brokers.

The same commands are run against Apache Kafka and `aiokq broker`: they succeed or fail alike, and
the listener presents the same certificate after each of them.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509

from tests.peers.apache_kafka import apache_kafka, run_tool, why_absent
from tests.peers.broker_process import broker_process
from tests.peers.pki import Identity, Pki

REASON = why_absent()
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
    pytest.mark.timeout(600),  # a start of Java may take many seconds
]

PREFIX = "listener.name.external.ssl."
TAKEN_UP_SECONDS = 10.0
"""Apache Kafka answers the request before the node has replayed the record."""


class Files(NamedTuple):
    """The stores of the listener; all but the first are given while the broker runs."""

    directory: Path
    first: Identity
    second: Identity
    other_name: Identity
    pki: Pki

    def path(self, name: str) -> str:
        return str(self.directory / f"{name}.pem")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    directory = tmp_path_factory.mktemp("stores")
    pki = Pki()
    found = Files(
        directory,
        pki.issue("node", uses_rsa=True),
        pki.issue("node", uses_rsa=True),
        pki.issue("somebody", uses_rsa=True),
        pki,
    )
    for name in ("first", "second", "other_name"):
        identity: Identity = getattr(found, name)
        (directory / f"{name}.pem").write_text(identity.key + identity.chain)
    (directory / "second.p12").write_bytes(found.second.pkcs12("changeit"))
    (directory / "trust.pem").write_text(pki.trusted)
    (directory / "broken.pem").write_text("no certificate")
    return found


class Node(NamedTuple):
    """A broker with a plain listener and one with TLS."""

    plain: str
    port: int


@pytest.fixture(
    params=[pytest.param("Apache Kafka", marks=pytest.mark.full), "aiokq"], scope="module"
)
def node(
    request: pytest.FixtureRequest, files: Files, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    stores = {f"{PREFIX}keystore.type": "PEM", f"{PREFIX}keystore.location": files.path("first")}
    if request.param == "Apache Kafka":
        properties = {name.replace(".", "_"): value for name, value in stores.items()}
        with apache_kafka(1, listeners={"EXTERNAL": "SSL"}, **properties) as kafka:
            yield Node(kafka.bootstrap_servers, kafka.listener_ports[1]["EXTERNAL"])
        return
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,EXTERNAL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:SSL",
        "node.id": "1",
        **stores,
    }
    arguments = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    with broker_process(tmp_path_factory.mktemp("data"), *arguments) as broker:
        addresses = broker.info["listeners"]
        assert isinstance(addresses, dict)
        yield Node(addresses["PLAINTEXT"], int(addresses["EXTERNAL"].rpartition(":")[2]))


def configs(node: Node, *arguments: str) -> tuple[bool, str]:
    """Run kafka-configs for the node; return whether it succeeded, and its output."""
    done = run_tool(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", node.plain, "--entity-type", "brokers", "--entity-name", "1"),
        *arguments,
    )
    return done.returncode == 0, done.stdout + done.stderr


def altered(node: Node, directory: Path, values: dict[str, str]) -> tuple[bool, str]:
    """Set values of the listener together, from a file."""
    file = directory / "changes.properties"
    file.write_text("".join(f"{PREFIX}{name}={value}\n" for name, value in values.items()))
    return configs(node, "--alter", "--add-config-file", str(file))


def serial(node: Node) -> int:
    """Return the serial number of the certificate that the listener presents."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", node.port), 10) as plain,
        context.wrap_socket(plain) as tls,
    ):
        der = tls.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


def eventually(found: Callable[[], int], expected: int) -> None:
    deadline = time.monotonic() + TAKEN_UP_SECONDS
    while found() != expected:
        assert time.monotonic() < deadline, (found(), expected)
        time.sleep(0.1)


def serial_of(identity: Identity) -> int:
    return x509.load_pem_x509_certificate(identity.chain.encode()).serial_number


def test_a_key_store_is_exchanged_while_the_broker_runs(node: Node, files: Files) -> None:
    first, second = serial_of(files.first), serial_of(files.second)
    assert serial(node) == first

    # Refused, and nothing changes: no file, no store, another name, a trust store where there was
    # none, and a setting without the listener. (Apache Kafka stores `ssl.client.auth` of a listener
    # that is changed in this way, aiokq refuses it.)
    for values in (
        {"keystore.location": files.path("absent")},
        {"keystore.location": files.path("broken")},
        {"keystore.location": files.path("other_name")},
        {"truststore.type": "PEM", "truststore.location": files.path("trust")},
    ):
        ok, output = altered(node, files.directory, values)
        assert not ok, output
    change = f"ssl.keystore.location={files.path('second')}"
    ok, output = configs(node, "--alter", "--add-config", change)
    assert not ok, output
    assert serial(node) == first

    ok, output = altered(node, files.directory, {"keystore.location": files.path("second")})
    assert ok, output
    eventually(lambda: serial(node), second)
    ok, output = configs(node, "--describe")
    assert ok, output
    assert f"{PREFIX}keystore.location={files.path('second')}" in output

    ok, output = configs(node, "--alter", "--delete-config", f"{PREFIX}keystore.location")
    assert ok, output
    eventually(lambda: serial(node), first)


def test_a_store_of_another_type_with_its_password(node: Node, files: Files) -> None:
    """No answer has the password."""
    values = {
        "keystore.type": "PKCS12",
        "keystore.location": str(files.directory / "second.p12"),
        "keystore.password": "wrong",
        "key.password": "wrong",
    }
    ok, output = altered(node, files.directory, values)
    assert not ok, output
    assert serial(node) == serial_of(files.first)
    values |= {"keystore.password": "changeit", "key.password": "changeit"}
    ok, output = altered(node, files.directory, values)
    assert ok, output
    eventually(lambda: serial(node), serial_of(files.second))
    ok, output = configs(node, "--describe", "--all")
    assert ok, output
    assert "changeit" not in output
    # Apache Kafka 4.2 describes a listener's settings as they were at its start, without this one.
    shown = re.findall(rf"{PREFIX}keystore\.password=(\S*) sensitive=(\w+)", output)
    assert set(shown) <= {("null", "true")}
    ok, output = configs(
        node, "--alter", "--delete-config", ",".join(f"{PREFIX}{name}" for name in values)
    )
    assert ok, output
    eventually(lambda: serial(node), serial_of(files.first))
