"""Listeners with TLS: who gets in, and what the broker says of itself."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

import aiokq
from aiokq.broker.gate import Gate
from aiokq.connection.principal import Principal
from aiokq.connection.request_context import RequestContext
from aiokq.connection.tls.principal_rules import PrincipalRules
from aiokq.errors import AuthenticationFailed, ConfigError, KafkaError
from tests.peers.pki import Pki
from tests.peers.ports import free_ports


class Files:
    """The files of a broker, of a client that it trusts, and of a stranger."""

    def __init__(self, directory: Path) -> None:
        pki, other = Pki(), Pki()
        node = pki.issue("node", "localhost", "127.0.0.1")
        client, stranger = pki.issue("carol"), other.issue("carol")
        self.authority = directory / "ca.pem"
        self.authority.write_text(pki.trusted)
        self.node = directory / "node.pem"
        self.node.write_text(node.key + node.chain)
        self.ends = int(client.certificates[0].not_valid_after_utc.timestamp())
        self.clients = {}
        for name, identity in (("client", client), ("stranger", stranger)):
            self.clients[name] = directory / f"{name}.pem"
            self.clients[name].write_text(identity.key + identity.chain)

    def settings(self, **more: object) -> dict[str, object]:
        return {
            "listeners": "SSL://127.0.0.1:0,LOCAL://127.0.0.1:0",
            "listener.security.protocol.map": "SSL:SSL,LOCAL:PLAINTEXT",
            "inter.broker.listener.name": "LOCAL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.node),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def cluster(self, servers: str, name: str | None) -> aiokq.Cluster:
        own = {} if name is None else {"ssl_certfile": str(self.clients[name])}
        return aiokq.Cluster(
            servers,
            security_protocol="SSL",
            ssl_cafile=str(self.authority),
            bootstrap_timeout_ms=2000,
            **own,
        )


@pytest.fixture
def files(tmp_path) -> Files:
    return Files(tmp_path)


async def produced(cluster: aiokq.Cluster) -> int:
    async with cluster, cluster.producer() as producer:
        return (await producer.send("t", b"v")).offset


async def test_clients_trust_the_certificate_of_a_listener(files):
    async with aiokq.EmbeddedCluster(settings=files.settings()) as kafka:
        assert await produced(files.cluster(kafka.bootstrap_servers, None)) == 0
        with pytest.raises(KafkaError):
            await produced(aiokq.Cluster(kafka.bootstrap_servers, bootstrap_timeout_ms=500))


async def test_a_certificate_of_the_client_may_be_required(files):
    settings = files.settings(ssl_client_auth="required")
    async with aiokq.EmbeddedCluster(settings=settings) as kafka:
        assert await produced(files.cluster(kafka.bootstrap_servers, "client")) == 0
        for name in ("stranger", None):
            with pytest.raises(KafkaError):
                await produced(files.cluster(kafka.bootstrap_servers, name))


async def test_a_client_tells_when_its_certificate_expires(files):
    """So that an alert can fire before brokers refuse the client."""
    settings = files.settings(ssl_client_auth="required")
    async with aiokq.EmbeddedCluster(settings=settings) as kafka:
        for name, ends in (("client", files.ends), (None, 0)):
            cluster = files.cluster(kafka.bootstrap_servers, name)
            with contextlib.suppress(KafkaError):  # without a certificate
                await produced(cluster)
            assert cluster._engine.counters.certificate_expiry_timestamp_seconds.read() == ends


async def test_the_principal_is_that_of_the_certificate(files):
    settings = files.settings(ssl_client_auth="required")
    async with aiokq.EmbeddedCluster(settings=settings) as kafka:
        seen = set()

        class Noted(Gate):
            __slots__ = ()

            def admit(self, connection: RequestContext, api_and_version: int, nbytes: int) -> bool:
                seen.add((connection.listener, connection.session.principal))
                return super().admit(connection, api_and_version, nbytes)

        kafka.node.gate.__class__ = Noted
        await produced(files.cluster(kafka.bootstrap_servers, "client"))
    assert seen == {("SSL", Principal.parse("User:CN=carol"))}


async def test_a_certificate_without_a_principal_is_in_the_audit_log(files, monkeypatch, caplog):
    """Nobody reads the lines of closed connections, which are debug lines."""

    def name_of(rules, distinguished_name):
        raise AuthenticationFailed(f"no rule applies to {distinguished_name!r}")

    monkeypatch.setattr(PrincipalRules, "name_of", name_of)
    settings = files.settings(ssl_client_auth="required")
    async with aiokq.EmbeddedCluster(settings=settings) as kafka:
        with caplog.at_level("WARNING", "aiokq.audit.login"), pytest.raises(KafkaError):
            await produced(files.cluster(kafka.bootstrap_servers, "client"))
    [line] = [one for one in caplog.records if one.name == "aiokq.audit.login"]
    assert line.audit == {
        "event": "login failed",
        "host": "127.0.0.1",
        "listener": "SSL",
        "mechanism": "SSL",
        "reason": "no rule applies to 'CN=carol'",
    }


async def test_registration_and_settings_name_the_protocol(files):
    async with aiokq.EmbeddedCluster(settings=files.settings()) as kafka:
        servers = kafka.node.servers
        assert servers.protocol_map == "SSL:SSL,LOCAL:PLAINTEXT"
        assert [one.security_protocol for one in servers.endpoint_records()] == [1, 0]
        assert [servers.authenticates(name) for name in ("SSL", "LOCAL")] == [False, False]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ssl_keystore_location": None}, "needs a key store"),
        ({"ssl_keystore_location": "/does/not/exist"}, "/does/not/exist"),
        ({"ssl_keystore_type": "JKS"}, "ssl.keystore"),
        ({"ssl_principal_mapping_rules": "RULE:(/x/"}, "ssl.principal.mapping.rules"),
    ],
)
async def test_stores_that_cannot_be_used_end_the_start(files, changes, words):
    """A listener without TLS in place of one with it would be the worst outcome."""
    settings = {name: value for name, value in files.settings(**changes).items() if value}
    with pytest.raises(ConfigError, match=words.replace(".", r"\.")):
        async with aiokq.EmbeddedCluster(settings=settings):
            pass


async def test_no_secret_is_described(tmp_path, caplog):
    """DescribeConfigs answers every client that may see the settings."""
    files = Files(tmp_path)
    key = files.node.read_text()
    settings = files.settings(
        ssl_keystore_location=None,
        ssl_keystore_key=key[: key.index("-----BEGIN CERTIFICATE")],
        ssl_keystore_certificate_chain=key[key.index("-----BEGIN CERTIFICATE") :],
        ssl_truststore_location=None,
        ssl_truststore_certificates=files.authority.read_text(),
        listener_name_local_plain_sasl_jaas_config="s3cr3t",
    )
    settings = {name: value for name, value in settings.items() if value is not None}
    with caplog.at_level("DEBUG"):
        async with (
            aiokq.EmbeddedCluster(settings=settings) as kafka,
            files.cluster(kafka.bootstrap_servers, None) as cluster,
            cluster.admin() as admin,
        ):
            resource = aiokq.ConfigResource(aiokq.ConfigResourceType.BROKER, "0")
            described = (await admin.describe_configs(resource, include_synonyms=True))[resource]
            settings_in_effect = kafka.node.settings
    found = described.entries
    secrets = {name for name, one in found.items() if one.sensitive}
    assert {"ssl.keystore.key", "ssl.key.password", "sasl.jaas.config"} <= secrets
    assert all(found[name].value is None for name in secrets)
    text = repr(found) + caplog.text + repr(settings_in_effect)
    assert "s3cr3t" not in text
    assert "PRIVATE KEY" not in text


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
@pytest.mark.parametrize("address", ["0.0.0.0", "[::]"])
async def test_a_broker_does_not_start_if_passwords_could_be_read_on_the_network(
    mechanism: str, address: str
):
    """The message names the setting that allows it. The listener is not left open."""
    if address == "[::]" and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    (port,) = free_ports(1)
    settings = {
        "listeners": f"OPEN://{address}:{port},LOCAL://127.0.0.1:0",
        "advertised.listeners": f"OPEN://127.0.0.1:{port},LOCAL://127.0.0.1:0",
        "listener.security.protocol.map": "OPEN:SASL_PLAINTEXT,LOCAL:PLAINTEXT",
        "inter.broker.listener.name": "LOCAL",
        "sasl.enabled.mechanisms": mechanism,
        "listener.name.open.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
        ),
        "sasl.oauthbearer.jwks.endpoint.url": "https://id.example.com/keys",
    }
    with pytest.raises(ConfigError) as caught:
        async with aiokq.EmbeddedCluster(settings=settings):
            pass
    assert "listener.name.open.allow.credentials.without.tls=true" in str(caught.value)
    assert "listens beyond this machine" in str(caught.value)
    with socket.create_server(("127.0.0.1", port)):
        pass


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


async def test_unsigned_tokens_of_other_machines_are_warned_of(caplog):
    """Whoever can reach the listener can log in as a super user, so it is said at every start."""
    settings = {
        "listeners": "TOKENS://0.0.0.0:0,LOCAL://127.0.0.1:0",
        "advertised.listeners": "TOKENS://127.0.0.1:0,LOCAL://127.0.0.1:0",
        "listener.security.protocol.map": "TOKENS:SASL_PLAINTEXT,LOCAL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "LOCAL",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "allow.unsecured.tokens": "true",
        "allow.credentials.without.tls": "true",
    }
    async with aiokq.EmbeddedCluster(settings=settings):
        pass
    said = [one.getMessage() for one in caplog.records if "not signed" in one.getMessage()]
    assert len(said) == 1
    assert "listener TOKENS accepts tokens that are not signed" in said[0]
    caplog.clear()
    async with aiokq.EmbeddedCluster(settings=settings, authenticate=lambda *arguments: None):
        pass
    assert "not signed" not in caplog.text
