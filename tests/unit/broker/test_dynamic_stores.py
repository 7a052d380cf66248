"""Keys and certificates of a listener that change by IncrementalAlterConfigs, as in Kafka."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

import aiokq
from aiokq.connection.tls.certificate import Certificate
from aiokq.errors import InvalidRequest, KafkaError
from tests.peers.pki import Identity, Pki

PREFIX = "listener.name.ssl.ssl."
OWN = aiokq.ConfigResource(aiokq.ConfigResourceType.BROKER, "0")
ALL = aiokq.ConfigResource(aiokq.ConfigResourceType.BROKER, "")


class Site:
    """A broker with a listener with TLS, and one without for its administrator."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.pki = Pki()
        self.node = self.pki.issue("node", "localhost", "127.0.0.1")
        self.data = directory / "data"
        self.authority = directory / "ca.pem"
        self.authority.write_text(self.pki.trusted)

    def settings(self, **more: object) -> dict[str, object]:
        settings = {
            "listeners": "SSL://127.0.0.1:0,LOCAL://127.0.0.1:0",
            "listener.security.protocol.map": "SSL:SSL,LOCAL:PLAINTEXT",
            "inter.broker.listener.name": "LOCAL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.node.write(self.directory, "node")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        return {name: value for name, value in settings.items() if value is not None}

    @asynccontextmanager
    async def running(self, **more: object) -> AsyncIterator[Running]:
        async with aiokq.EmbeddedCluster(
            settings=self.settings(**more), data_dir=self.data
        ) as kafka:
            ports = {one.name: one.port for one in kafka.node.servers.opened()}
            async with (
                aiokq.Cluster(f"127.0.0.1:{ports['LOCAL']}") as cluster,
                cluster.admin() as admin,
            ):
                yield Running(self, kafka, admin, ports["SSL"])


class Running:
    def __init__(
        self, site: Site, kafka: aiokq.EmbeddedCluster, admin: aiokq.Admin, port: int
    ) -> None:
        self.site = site
        self.kafka = kafka
        self.admin = admin
        self.port = port

    async def alter(
        self,
        *,
        resource: aiokq.ConfigResource = OWN,
        validate_only: bool = False,
        **changes: object,
    ) -> None:
        """Change settings of the listener; `keystore_location` is `ssl.keystore.location`."""
        named = {PREFIX + name.replace("_", "."): value for name, value in changes.items()}
        await self.admin.alter_configs(
            {resource: named},  # type: ignore[dict-item]
            validate_only=validate_only,
            raise_errors=True,
        )

    async def shown(self, identity: Identity | None = None) -> bytes:
        """Return the certificate that the listener shows; the client may have one, too."""
        context = ssl.create_default_context(cadata=self.site.pki.trusted)
        if identity is not None:
            context.load_cert_chain(identity.write(self.site.directory, "client"))

        def connect() -> bytes:
            with (
                socket.create_connection(("127.0.0.1", self.port), timeout=10) as sock,
                context.wrap_socket(sock, server_hostname="localhost") as tls,
            ):
                # ApiVersions, version 0: TLS 1.3 reports a refused certificate only to a reader.
                tls.sendall(bytes.fromhex("0000000b 0012 0000 00000001 0001 61"))
                if not tls.recv(1):
                    raise ConnectionResetError
                found = tls.getpeercert(binary_form=True)
                assert found is not None
                return found

        return await asyncio.to_thread(connect)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_another_key_store_is_shown_at_once_and_after_a_restart(site: Site) -> None:
    """Connections that are open go on."""
    renewed = site.pki.issue("node", "localhost", "127.0.0.1")
    path = str(renewed.write(site.directory, "renewed"))
    async with site.running() as one:
        async with (
            aiokq.Cluster(
                f"localhost:{one.port}",
                security_protocol="SSL",
                ssl_cafile=str(site.authority),
            ) as cluster,
            cluster.producer() as producer,
        ):
            await producer.send("t", b"1")
            assert await one.shown() == site.node.der
            await one.alter(keystore_location=path)
            assert await one.shown() == renewed.der
            await producer.send("t", b"2")
        described = await one.admin.describe_configs(OWN)
        found = described[OWN].entries[PREFIX + "keystore.location"]
        assert (found.value, found.read_only) == (path, False)
    async with site.running() as one:
        assert await one.shown() == renewed.der
        await one.alter(keystore_location=None)
        assert await one.shown() == site.node.der


async def test_a_key_as_text_is_taken_and_described_to_nobody(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """It is stored in the metadata as Kafka stores it, in files of mode 0600."""
    renewed = site.pki.issue("node", "localhost", "127.0.0.1")
    with caplog.at_level("DEBUG"):
        async with site.running(
            ssl_keystore_location=str(site.node.write(site.directory, "node"))
        ) as one:
            # The text and the location of the static settings exclude each other.
            with pytest.raises(InvalidRequest, match="exclude each other"):
                await one.alter(keystore_key=renewed.key, keystore_certificate_chain=renewed.chain)
            assert await one.shown() == site.node.der
    text = {
        "ssl_keystore_key": site.node.key,
        "ssl_keystore_certificate_chain": site.node.chain,
        "ssl_keystore_location": None,
    }
    with caplog.at_level("DEBUG"):
        async with site.running(**text) as one:
            await one.alter(keystore_key=renewed.key, keystore_certificate_chain=renewed.chain)
            assert await one.shown() == renewed.der
            entries = (await one.admin.describe_configs(OWN, include_synonyms=True))[OWN].entries
    for name in ("keystore.key", "keystore.certificate.chain"):
        found = entries[PREFIX + name]
        assert found.sensitive
        assert found.value is None
    body = renewed.key.splitlines()[1]
    assert body not in repr(entries)
    assert body not in caplog.text
    assert "PRIVATE KEY" not in caplog.text


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "a missing file": ({"keystore_location": "/does/not/exist"}, "/does/not/exist"),
    "a FIFO": ({"keystore_location": "{fifo}"}, "a FIFO is where a regular file belongs"),
    "a device": ({"truststore_location": "/dev/zero"}, "a device is where a regular file belongs"),
    "a text that is no path": ({"keystore_location": "a\0b"}, "is not a path"),
    "a file without a key": ({"keystore_location": "{ca}"}, "PRIVATE KEY"),
    "a lost alternative name": ({"keystore_location": "{less}"}, "lacks an alternative name"),
    "another name": ({"keystore_location": "{other}"}, "CN=other"),
    "a type that is none": ({"keystore_type": "BKS"}, "BKS"),
    "a store of another type": ({"keystore_type": "PKCS12"}, "password"),
    "a password that PEM has not": ({"keystore_password": "s3cr3t"}, "PEM has no store password"),
    "a trust store without certificates": ({"truststore_location": "{empty}"}, "truststore"),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("validate_only", [False, True])
async def test_a_store_that_cannot_be_used_is_refused_and_the_old_one_kept(
    site: Site, kind: str, validate_only: bool
) -> None:
    """INVALID_REQUEST, as in Kafka; nothing is stored."""
    empty = site.directory / "empty.pem"
    empty.write_text("nothing")
    fifo = site.directory / "fifo"
    os.mkfifo(fifo)  # reading it would wait for a writer
    paths = {
        "{fifo}": str(fifo),
        "{ca}": str(site.authority),
        "{other}": str(site.pki.issue("other", "localhost").write(site.directory, "other")),
        "{empty}": str(empty),
        "{less}": str(site.pki.issue("node", "localhost").write(site.directory, "less")),
    }
    changes, words = REFUSED[kind]
    changes = {name: paths.get(str(value), value) for name, value in changes.items()}
    async with site.running() as one:
        with pytest.raises(InvalidRequest, match="Invalid dynamic configuration") as refused:
            await one.alter(validate_only=validate_only, **changes)
        assert words in refused.value.message
        assert "s3cr3t" not in refused.value.message
        assert await one.shown() == site.node.der
        entries = (await one.admin.describe_configs(OWN))[OWN].entries
        assert not any(name.startswith(PREFIX) for name in entries)


async def test_validate_only_changes_nothing(site: Site) -> None:
    renewed = site.pki.issue("node", "localhost", "127.0.0.1")
    path = str(renewed.write(site.directory, "renewed"))
    async with site.running() as one:
        await one.alter(keystore_location=path, validate_only=True)
        assert await one.shown() == site.node.der


@pytest.mark.parametrize(
    ("resource", "name", "words"),
    [
        (ALL, PREFIX + "keystore.location", "at default cluster level, broker id must be"),
        (OWN, "ssl.keystore.location", "only per-listener using the listener prefix"),
        (ALL, "ssl.truststore.location", "only per-listener using the listener prefix"),
        (OWN, PREFIX + "client.auth", "Cannot update these configs dynamically"),
        (OWN, PREFIX + "enabled.protocols", "Cannot update these configs dynamically"),
        (OWN, "listener.name.local.ssl.keystore.location", "no listener LOCAL with TLS"),
        (OWN, "listener.name.other.ssl.keystore.location", "no listener OTHER with TLS"),
    ],
)
async def test_where_a_store_cannot_be_set(
    site: Site, resource: aiokq.ConfigResource, name: str, words: str
) -> None:
    path = str(site.node.write(site.directory, "node"))
    async with site.running() as one:
        with pytest.raises(InvalidRequest, match=words):
            await one.admin.alter_configs({resource: {name: path}}, raise_errors=True)
        assert await one.shown() == site.node.der


async def test_another_trust_store_decides_about_new_clients(site: Site) -> None:
    """A client of the former authority keeps its connection, and cannot connect again."""
    other = Pki("another authority")
    path = site.directory / "other-ca.pem"
    path.write_text(other.trusted)
    alice, bob = site.pki.issue("alice", "a.example"), other.issue("bob", "b.example")
    async with site.running(ssl_client_auth="required") as one:
        await one.shown(alice)
        with pytest.raises(OSError):
            await one.shown(bob)
        await one.alter(truststore_location=str(path))
        await one.shown(bob)
        with pytest.raises(OSError):
            await one.shown(alice)


async def test_a_trust_store_cannot_be_added(site: Site) -> None:
    """Kafka's rule; before, the listener may have trusted everybody."""
    none = {"ssl_truststore_location": None, "ssl_truststore_type": None}
    async with site.running(**none) as one:
        with pytest.raises(InvalidRequest, match="Cannot add SSL truststore"):
            await one.alter(truststore_type="PEM", truststore_location=str(site.authority))


async def test_a_stored_path_without_a_file_leaves_the_static_store_in_use(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker must start; the warning says which listener it is."""
    renewed = site.pki.issue("node", "localhost", "127.0.0.1")
    path = renewed.write(site.directory, "renewed")
    async with site.running() as one:
        await one.alter(keystore_location=str(path))
    path.unlink()
    with caplog.at_level("WARNING", "aiokq.broker"):
        async with site.running() as one:
            assert await one.shown() == site.node.der
    assert "changed TLS settings not taken up" in caplog.text
    assert str(path) in caplog.text


async def test_the_files_of_a_changed_store_are_watched(site: Site) -> None:
    renewed, again = (site.pki.issue("node", "localhost", "127.0.0.1") for _ in range(2))
    path = renewed.write(site.directory, "renewed")
    async with site.running() as one:
        await one.alter(keystore_location=str(path))
        tls = one.kafka.node.servers._opened[0].server.security.tls
        assert tls is not None
        assert tls.expires_at == Certificate.of(renewed.der).not_after
        path.write_text(again.key + again.chain)
        assert tls.renew()
        assert await one.shown() == again.der


async def test_a_client_without_permission_changes_nothing(site: Site) -> None:
    """ALTER_CONFIGS of the cluster is asked before any file is read."""
    denied: list[str] = []

    def authorize(principal: object, host: str, operation: object, resource: object) -> bool:
        if getattr(operation, "name", "") == "ALTER_CONFIGS":
            denied.append(str(resource))
            return False
        return True

    async with aiokq.EmbeddedCluster(settings=site.settings(), authorize=authorize) as kafka:
        ports = {one.name: one.port for one in kafka.node.servers.opened()}
        async with (
            aiokq.Cluster(f"127.0.0.1:{ports['LOCAL']}") as cluster,
            cluster.admin() as admin,
        ):
            with pytest.raises(KafkaError) as refused:
                await admin.alter_configs(
                    {OWN: {PREFIX + "keystore.location": "/does/not/exist"}}, raise_errors=True
                )
    assert denied
    assert "/does/not/exist" not in str(refused.value)
