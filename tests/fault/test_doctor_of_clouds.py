"""`aiokq doctor` on servers that behave as the Kafkas of clouds do: what is wrong is named.

Names of hosts lead to this machine; nothing leaves it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cryptography")

from aiokq import EmbeddedCluster
from aiokq.cli.app import execute
from aiokq.cli.session import Session
from aiokq.connection.network import TcpNetwork, system_environment
from aiokq.connection.sasl.oauth_token import OAuthToken
from aiokq.core.environment import Address
from tests.peers.pki import Pki, context_of
from tests.peers.ports import free_ports

CONFLUENT = "pkc-12345.eu-central-1.aws.confluent.cloud"
MSK = "b-1.demo.abc123.c2.kafka.eu-central-1.amazonaws.com"
EVENT_HUBS = "shop.servicebus.windows.net"
GOOGLE = "bootstrap.demo.europe-west3.managedkafka.shop.cloud.goog"
PORTS = {CONFLUENT: 9092, MSK: 9098, EVENT_HUBS: 9093, GOOGLE: 9092}
CONNECTION = f"Endpoint=sb://{EVENT_HUBS}/;SharedAccessKeyName=n;SharedAccessKey=S3CR3T"
STRING = {"sasl.plain.username": "$ConnectionString", "sasl.plain.password": CONNECTION}


class LocalNames(TcpNetwork):
    """A network in which each name leads to one port of this machine."""

    def __init__(self, ports: dict[str, int]) -> None:
        self._ports = ports

    async def resolve(self, host: str, port: int) -> list[Address]:
        return [Address("127.0.0.1", self._ports.get(host, port))]


class Doctor:
    """Runs the command; every name of `PORTS` leads to one server."""

    def __init__(self, directory: Path, pki: Pki) -> None:
        self.directory = directory
        self.pki = pki
        (directory / "authority.pem").write_text(pki.trusted)

    def __call__(
        self, host: str, port: int, capture: Any, **settings: str
    ) -> tuple[int, dict[str, dict[str, str]]]:
        """Return the exit code, and the checks of the cluster by name."""
        environment = system_environment()
        session = Session()
        session.environment = dataclasses.replace(
            environment, network=LocalNames(dict.fromkeys(PORTS, port))
        )
        properties = {
            "bootstrap.servers": f"{host}:{PORTS[host]}",
            "security.protocol": "SASL_SSL",
            "ssl.cafile": str(self.directory / "authority.pem"),
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        file = self.directory / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        capture.readouterr()
        try:
            code = execute(["doctor", "--json", "--config", str(file)], session)
        finally:
            environment.offload.close()
        out, err = capture.readouterr()
        assert "S3CR3T" not in out + err
        assert "Traceback" not in err
        return code, {check["check"]: check for check in json.loads(out)}

    @contextlib.contextmanager
    def service(self, host: str, mechanism: str, **settings: str) -> Iterator[int]:
        """Run a broker with the certificate of a host, and one mechanism; yield its port."""
        store = self.pki.issue("node", host, "127.0.0.1").write(self.directory, "node")
        (port,) = free_ports(1)
        every = {
            "listeners": f"SASL_SSL://127.0.0.1:{port}",
            "advertised.listeners": f"SASL_SSL://{host}:{PORTS[host]}",
            "inter.broker.listener.name": "SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "connection.failed.authentication.delay.ms": "10",
            "sasl.enabled.mechanisms": mechanism,
            **settings,
        }
        users = None if mechanism == "OAUTHBEARER" else {"KEY": "S3CR3T"}
        with EmbeddedCluster(settings=every, users=users):
            yield port


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    for name in [name for name in os.environ if name.startswith(("KAFKA_", "AWS_"))]:
        monkeypatch.delenv(name)
    return Doctor(tmp_path, Pki())


@contextlib.contextmanager
def closing(context: ssl.SSLContext | None) -> Iterator[int]:
    """Run a server that closes each connection: at once, or after the first request in TLS."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                if context is not None:
                    connection.settimeout(5)
                    with context.wrap_socket(connection, server_side=True) as secured:
                        secured.recv(1000)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def test_an_api_key_of_confluent_cloud_logs_in(doctor: Doctor, capfd: Any) -> None:
    with doctor.service(CONFLUENT, "PLAIN") as port:
        login = {"sasl_plain_username": "KEY", "sasl_plain_password": "S3CR3T"}
        code, checks = doctor(CONFLUENT, port, capfd, **login)
        assert code == 0, checks
        assert checks["cloud"]["detail"].startswith("Confluent Cloud: ")
        assert checks["bootstrap"]["status"] == checks["metadata"]["status"] == "ok"
        code, checks = doctor(CONFLUENT, port, capfd, **{**login, "sasl_plain_username": "OTHER"})
        assert code == 1
        assert "failed step: credentials" in checks["bootstrap"]["detail"]
        assert "an API key belongs to one cluster" in checks["bootstrap"]["fix"]


@pytest.mark.parametrize("with_tls", [True, False])
def test_a_namespace_without_kafka_closes_connections(
    doctor: Doctor, capfd: Any, with_tls: bool
) -> None:
    """At once, or when a request of Kafka arrives."""
    identity = doctor.pki.issue("node", EVENT_HUBS)
    context = context_of(identity, None, doctor.directory, server=True) if with_tls else None
    with closing(context) as port:
        code, checks = doctor(EVENT_HUBS, port, capfd, **STRING)
    assert code == 1
    assert checks["cloud"]["status"] == "ok"
    assert checks["bootstrap"]["status"] == "fail"
    assert "the tier Basic has no Kafka" in checks["bootstrap"]["fix"]


def test_a_connection_string_that_is_refused(doctor: Doctor, capfd: Any) -> None:
    with doctor.service(EVENT_HUBS, "PLAIN") as port:
        code, checks = doctor(EVENT_HUBS, port, capfd, **STRING)
    assert code == 1
    assert "failed step: credentials" in checks["bootstrap"]["detail"]
    assert "Send or Listen" in checks["bootstrap"]["fix"]


def botocore(monkeypatch: pytest.MonkeyPatch, credentials: Any) -> None:
    session = ModuleType("botocore.session")
    found = SimpleNamespace(get_credentials=lambda: credentials)
    session.get_session = lambda: found  # type: ignore[attr-defined]
    package = ModuleType("botocore")
    package.__spec__ = SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "botocore", package)
    monkeypatch.setitem(sys.modules, "botocore.session", session)


IAM = {"sasl_mechanism": "OAUTHBEARER", "sasl.oauth.token.provider": "aws_msk_iam"}


def test_a_missing_extra_is_named(
    doctor: Doctor, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is connected."""
    monkeypatch.setitem(sys.modules, "botocore", None)
    code, checks = doctor(MSK, 1, capfd, **IAM)
    assert code == 1
    assert "pip install 'aiokq[aws]'" in checks["settings"]["detail"]
    assert "bootstrap" not in checks


def test_missing_credentials_are_named(
    doctor: Doctor, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    botocore(monkeypatch, None)
    code, checks = doctor(MSK, 1, capfd, **IAM)
    assert code == 1
    assert "there is no token of AWS" in checks["token"]["detail"]
    assert "AWS_PROFILE" in checks["token"]["fix"]
    assert "bootstrap" not in checks


def test_a_port_of_msk_that_offers_scram(
    doctor: Doctor, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Port 9096 behind a name of the service: the token is not sent."""
    frozen = SimpleNamespace(access_key="A", secret_key="S3CR3T", token=None)
    botocore(monkeypatch, SimpleNamespace(get_frozen_credentials=lambda: frozen))
    with doctor.service(MSK, "SCRAM-SHA-512") as port:
        code, checks = doctor(MSK, port, capfd, **IAM)
    assert code == 1
    assert checks["token"]["status"] == "ok"
    assert "failed step: SASL mechanism" in checks["bootstrap"]["detail"]
    assert "9098 IAM, 9096 SCRAM" in checks["bootstrap"]["fix"]


def test_a_port_that_is_not_the_services(doctor: Doctor, capfd: Any) -> None:
    """Both are said: what the settings lack, and what the connection says."""
    with closing(None) as port:
        login = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "KEY"}
        login["sasl_plain_password"] = "S3CR3T"
        code, checks = doctor(MSK, port, capfd, **login)
    assert code == 1
    assert "SASL_SSL with SCRAM-SHA-512 is on port 9096" in checks["cloud"]["detail"]
    assert "use port 9096" in checks["cloud"]["fix"]
    assert checks["bootstrap"]["status"] == "fail"


def test_a_token_that_google_refuses(
    doctor: Doctor, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service account has no role; the broker of the test takes other tokens."""
    from aiokq.connection.sasl.clouds import google

    class Tokens:
        def __init__(self, **_: object) -> None:
            pass

        async def fetch(self) -> OAuthToken:
            return OAuthToken("e30.e30.S3CR3T", None)

    monkeypatch.setattr(google, "ManagedKafkaTokens", Tokens)
    settings = {"listener.name.sasl_ssl.oauthbearer.allow.unsecured.tokens": "true"}
    with doctor.service(GOOGLE, "OAUTHBEARER", **settings) as port:
        login = {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl.oauth.token.provider": "google_managed_kafka",
        }
        code, checks = doctor(GOOGLE, port, capfd, **login)
    assert code == 1
    assert checks["token"]["status"] == "ok"
    assert "failed step: credentials" in checks["bootstrap"]["detail"]
    assert "Managed Kafka Client" in checks["bootstrap"]["fix"]
