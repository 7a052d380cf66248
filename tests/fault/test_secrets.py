"""A search for secrets: every way to log in, working and failing, and all that is shown of it.

Shown are logs at DEBUG (of clients, broker, gateway, asyncio), warnings, errors with tracebacks,
reprs, pages of the gateway, and what `aiokq doctor` prints. Each secret is looked for as it is, and
in the forms in which it is sent.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("jwt")

from cryptography.hazmat.primitives.serialization import PrivateFormat

from aiokq import Cluster, ClusterSettings, EmbeddedCluster, ScramUpsertion, errors
from aiokq.admin.config_types import ConfigResource, ConfigResourceType
from aiokq.cli.app import execute
from tests.peers import authorization_server
from tests.peers.authorization_server import AuthorizationServer
from tests.peers.pki import Identity, Pki

USER = "anna"
PASSWORD = 'p4ssw0rd-MARK="x'
WRONG = "wr0ng-MARK"
NEW = "ch4nged-MARK"
STORE = "st0re-MARK"
KEY_PASSWORD = "k3y-MARK"
LIMITS = {"bootstrap_timeout_ms": 3000, "request_timeout_ms": 3000}
MODULE = "org.apache.kafka.common.security"
OAUTH = "listener.name.tokens.oauthbearer.sasl.oauthbearer"


class World:
    """A broker with a listener for each kind of login, and the files of its clients."""

    def __init__(self, directory: Path, server: AuthorizationServer) -> None:
        self.directory = directory
        self.server = server
        self.pki = Pki()
        self.client: Identity = self.pki.issue(USER, uses_rsa=True)
        self.assertion_key: Identity = self.pki.issue("assertion", uses_rsa=True)
        self.authority = self._file("authority.pem", self.pki.trusted)
        self.store = str(directory / "client.p12")
        Path(self.store).write_bytes(self.client.pkcs12(STORE))
        self.key_file = self._file(
            "assertion.key", self.assertion_key.key_as(PrivateFormat.PKCS8, KEY_PASSWORD)
        )
        server.client_key = self.assertion_key.private_key.public_key()
        self.token = server.token()
        self.token_file = self._file("token", self.token)
        node = self.pki.issue("node", "localhost", "127.0.0.1")
        settings = {
            "listeners": "LOGIN://127.0.0.1:0,TOKENS://127.0.0.1:0,MUTUAL://127.0.0.1:0",
            "listener.security.protocol.map": "LOGIN:SASL_SSL,TOKENS:SASL_SSL,MUTUAL:SSL",
            "inter.broker.listener.name": "LOGIN",
            "listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.login.plain.sasl.jaas.config": jaas(
                "plain.PlainLoginModule", **{f"user_{USER}": PASSWORD}
            ),
            f"{OAUTH}.jwks.endpoint.url": server.keys_url,
            f"{OAUTH}.expected.audience": authorization_server.AUDIENCE,
            "listener.name.mutual.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": node.encrypted_key(KEY_PASSWORD),
            "ssl.key.password": KEY_PASSWORD,
            "ssl.keystore.certificate.chain": node.chain,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority,
            "connection.failed.authentication.delay.ms": "10",
        }
        self.kafka = EmbeddedCluster(settings=settings)
        self.node = node

    def _file(self, name: str, text: str) -> str:
        path = self.directory / name
        path.write_text(text)
        return str(path)

    def secrets(self) -> dict[str, str]:
        """Return what must not be shown, by a name that may be."""
        secret = authorization_server.CLIENT_SECRET
        found = {
            "password": PASSWORD,
            "wrong password": WRONG,
            "changed password": NEW,
            "store password": STORE,
            "key password": KEY_PASSWORD,
            "client secret": secret,
            "token": self.token,
        }
        for name, value in list(found.items()):
            found[f"{name} in base64"] = base64.b64encode(value.encode()).decode().rstrip("=")
            found[f"{name} in a form"] = quote_plus(value)
            found[f"{name} in JSON"] = json.dumps(value)[1:-1]
            found[f"{name} in a repr"] = repr(value)[1:-1]
        login = f"{authorization_server.CLIENT_ID}:{secret}"
        found["authorization"] = base64.b64encode(login.encode()).decode()
        for name, identity in {"client": self.client, "node": self.node}.items():
            lines = identity.key.splitlines()
            found[f"private key of the {name}"] = lines[len(lines) // 2]
        return found

    def address(self, listener: str) -> dict[str, Any]:
        protocol = "SSL" if listener == "MUTUAL" else "SASL_SSL"
        return {
            "bootstrap_servers": self.kafka.bootstrap_servers_of(listener),
            "security_protocol": protocol,
            "ssl_cafile": self.authority,
            **LIMITS,
        }

    def ways(self) -> Iterator[tuple[str, dict[str, Any], bool]]:
        """Yield name, settings, and whether the login works."""
        login, tokens, mutual = map(self.address, ("LOGIN", "TOKENS", "MUTUAL"))
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            plain = {**login, "sasl_mechanism": mechanism, "sasl_plain_username": USER}
            yield mechanism, {**plain, "sasl_plain_password": PASSWORD}, True
            yield f"{mechanism}, wrong", {**plain, "sasl_plain_password": WRONG}, False
            kind = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
            for password, wrong in ((PASSWORD, ""), (WRONG, ", wrong")):
                text = jaas(kind, username=USER, password=password)
                settings = {**login, "sasl_mechanism": mechanism, "sasl_jaas_config": text}
                yield f"{mechanism} in JAAS{wrong}", settings, not wrong
        plain = {**login, "sasl_mechanism": "PLAIN"}
        broken = jaas("plain.PlainLoginModule", username=USER, password=PASSWORD)[:-2]
        yield "JAAS without an end", {**plain, "sasl_jaas_config": broken}, False
        yield "JAAS of nothing", {**plain, "sasl_jaas_config": f'"{PASSWORD}"'}, False
        other = jaas("plain.PlainLoginModule", user=USER, password=PASSWORD)
        yield "JAAS without a user", {**plain, "sasl_jaas_config": other}, False
        oauth = {**tokens, "sasl_mechanism": "OAUTHBEARER"}
        yield "a provider", {**oauth, "sasl_oauth_token_provider": lambda: self.token}, True
        not_a_token = {**oauth, "sasl_oauth_token_provider": lambda: f"{WRONG} {self.token}"}
        yield "a provider, wrong", not_a_token, False
        other_end = {**oauth, "sasl_oauth_token_provider": lambda: self.token[:-8] + "A" * 8}
        yield "a provider, other signature", other_end, False
        file = Path(self.token_file).as_uri()
        of_file = {"sasl_oauthbearer_token_endpoint_url": file}
        of_file["sasl_oauthbearer_allowed_urls"] = file
        yield "a file", {**oauth, **of_file}, True
        client = {
            **oauth,
            "sasl_oauthbearer_token_endpoint_url": self.server.url,
            "sasl_oauthbearer_client_credentials_client_id": authorization_server.CLIENT_ID,
        }
        name = "sasl_oauthbearer_client_credentials_client_secret"
        yield "client credentials", {**client, name: authorization_server.CLIENT_SECRET}, True
        yield "client credentials, wrong", {**client, name: WRONG}, False
        assertion = {
            **oauth,
            "sasl_oauthbearer_token_endpoint_url": self.server.url,
            "sasl_oauthbearer_jwt_retriever_class": "JwtBearerJwtRetriever",
            "sasl_oauthbearer_assertion_private_key_file": self.key_file,
            "sasl_oauthbearer_assertion_claim_aud": self.server.url,
            "sasl_oauthbearer_assertion_claim_iss": authorization_server.CLIENT_ID,
            "sasl_oauthbearer_assertion_claim_sub": authorization_server.CLIENT_ID,
        }
        name = "sasl_oauthbearer_assertion_private_key_passphrase"
        yield "an assertion", {**assertion, name: KEY_PASSWORD}, True
        yield "an assertion, wrong", {**assertion, name: WRONG}, False
        del mutual["ssl_cafile"]
        mutual |= {"ssl_truststore_type": "PEM", "ssl_truststore_certificates": self.pki.trusted}
        pem = {
            **mutual,
            "ssl_keystore_type": "PEM",
            "ssl_keystore_certificate_chain": self.client.chain,
        }
        encrypted = {**pem, "ssl_keystore_key": self.client.encrypted_key(KEY_PASSWORD)}
        yield "a key as text", {**pem, "ssl_keystore_key": self.client.key}, True
        yield "an encrypted key", {**encrypted, "ssl_key_password": KEY_PASSWORD}, True
        yield "an encrypted key, wrong", {**encrypted, "ssl_key_password": WRONG}, False
        yield "a broken key", {**pem, "ssl_keystore_key": self.client.key[:-60]}, False
        store = {**mutual, "ssl_keystore_type": "PKCS12", "ssl_keystore_location": self.store}
        yield "a store", {**store, "ssl_keystore_password": STORE}, True
        yield "a store, wrong", {**store, "ssl_keystore_password": WRONG}, False


def jaas(module: str, **options: str) -> str:
    words = " ".join(
        f'{name}="{value}"'
        for name, value in ((n, v.replace('"', '\\"')) for n, v in options.items())
    )
    return f"{MODULE}.{module} required {words};"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with AuthorizationServer() as server:
        made = World(tmp_path_factory.mktemp("secrets"), server)
        with made.kafka:
            asyncio.run(add_user(made))
            yield made


async def add_user(world: World) -> None:
    settings = {**world.address("LOGIN"), "sasl_mechanism": "PLAIN"}
    settings |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    async with Cluster(**settings) as cluster, cluster.admin() as admin:
        added = [
            ScramUpsertion(USER, PASSWORD, mechanism)
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        ]
        await admin.alter_user_scram_credentials(
            [*added, ScramUpsertion("otto", NEW)], raise_errors=True
        )


async def use(settings: dict[str, Any], shown: list[str]) -> None:
    """Log in, write a record, and note the reprs of what was made on the way."""
    checked = ClusterSettings(**settings)
    shown += [repr(checked), str(checked), repr(checked.model_dump())]
    cluster = Cluster(settings=checked)
    shown.append(repr(cluster))
    async with cluster, cluster.producer() as producer, cluster.admin() as admin:
        shown.append(f"{producer!r} {admin!r} {cluster.__dict__!r} {producer.__dict__!r}")
        await producer.send("secrets", b"v")


def all_of(error: BaseException) -> str:
    """Return all that an error shows: text, repr, attributes, traceback, causes."""
    told = [str(error), repr(error), repr(getattr(error, "__dict__", {}))]
    told += traceback.format_exception(error)
    return "\n".join(told)


def found_in(world: World, text: str) -> list[str]:
    return [name for name, secret in world.secrets().items() if secret in text]


WAYS = (
    *(
        f"{mechanism}{how}"
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
        for how in ("", ", wrong", " in JAAS", " in JAAS, wrong")
    ),
    *("JAAS without an end", "JAAS of nothing", "JAAS without a user"),
    *("a provider", "a provider, wrong", "a provider, other signature", "a file"),
    *("client credentials", "client credentials, wrong", "an assertion", "an assertion, wrong"),
    *("a key as text", "an encrypted key", "an encrypted key, wrong", "a broken key"),
    *("a store", "a store, wrong"),
)
"""The names of `World.ways`."""


def test_every_way_is_searched(world: World) -> None:
    assert tuple(name for name, _, _ in world.ways()) == WAYS


@pytest.mark.parametrize("way", WAYS)
def test_nothing_shows_a_secret(
    world: World,
    way: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name in [name for name in os.environ if name.startswith("KAFKA_")]:
        monkeypatch.delenv(name)
    settings, works = next(rest for name, *rest in world.ways() if name == way)
    shown: list[str] = []
    caplog.set_level(logging.DEBUG)
    for logger in ("aiokq", "asyncio"):
        caplog.set_level(logging.DEBUG, logger)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            asyncio.run(use(settings, shown), debug=True)
        except (errors.KafkaError, ValueError) as error:
            shown.append(all_of(error))
            is_in = False
        else:
            is_in = True
        assert is_in == works, shown[-1]
        if all(isinstance(value, str | int) for value in settings.values()):
            shown += doctor(settings, works, tmp_path, capfd)
    shown += [f"{one.message} {one.source!r}" for one in caught]
    shown.append(caplog.text)
    shown += [repr(record.__dict__) for record in caplog.records]
    out, err = capfd.readouterr()
    text = "\n".join([*shown, out, err])
    assert "security_protocol" in text or "sasl_jaas_config" in text
    assert found_in(world, text) == []


def doctor(
    settings: dict[str, Any], works: bool, directory: Path, capfd: pytest.CaptureFixture[str]
) -> list[str]:
    """Return what `aiokq doctor` prints for these settings."""
    file = directory / "client.properties"
    lines = []
    for name, value in settings.items():
        escaped = str(value).replace("\\", "\\\\").replace("\n", "\\n")
        lines.append(f"{name.replace('_', '.')}={escaped}\n")
    file.write_text("".join(lines))
    capfd.readouterr()
    code = execute(["doctor", "--config", str(file)])
    out, err = capfd.readouterr()
    assert (code == 0) == works, out + err
    return [out, err]


def test_the_broker_shows_no_secret_of_its_own(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Its reprs, and the answers to DescribeConfigs and DescribeUserScramCredentials."""

    async def main() -> str:
        settings = {**world.address("LOGIN"), "sasl_mechanism": "PLAIN"}
        settings |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
        async with Cluster(**settings) as cluster, cluster.admin() as admin:
            node = ConfigResource(ConfigResourceType.BROKER, "0")
            configs = await admin.describe_configs(node, include_synonyms=True)
            users = await admin.describe_user_scram_credentials()
            return f"{configs!r} {users!r}"

    caplog.set_level(logging.DEBUG)
    text = asyncio.run(main(), debug=True)
    assert USER in text
    node = world.kafka.node
    text += f"{world.kafka!r} {node!r} {node.settings!r} {vars(node)!r} {caplog.text}"
    assert found_in(world, text) == []


@pytest.mark.parametrize("mirrored", ["error_description", "error"])
def test_a_server_that_returns_the_secret_does_not_show_it(
    world: World, mirrored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of an authorization server is a part of ours."""
    secret = authorization_server.CLIENT_SECRET
    answer = {"error": "invalid_client", mirrored: f"{secret} is not known"}
    monkeypatch.setattr(world.server, "_answer", lambda authorization, body: (400, answer))
    (settings,) = [one for name, one, _ in world.ways() if name == "client credentials"]
    with pytest.raises(errors.BootstrapFailed) as failure:
        asyncio.run(use(settings, []))
    assert "is not known" in str(failure.value)
    assert found_in(world, all_of(failure.value)) == []


PAGES = (
    *("/", "/healthz", "/readyz", "/metrics", "/server_info", "/counters", "/discards", "/queues"),
    *("/metadata_fetch_time", "/accounting/json", "/server_info/json"),
)


@pytest.mark.parametrize("password", [PASSWORD, WRONG])
def test_a_gateway_shows_no_secret(
    world: World,
    password: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Its check of a file, its pages and logs, and its reprs; also when the login is refused."""
    import aiohttp

    from aiokq.gateway import Gateway

    settings = {**world.address("LOGIN"), "sasl_mechanism": "SCRAM-SHA-256"}
    settings |= {"sasl_plain_username": USER, "sasl_plain_password": password}
    del settings["bootstrap_timeout_ms"]  # a gateway starts without Kafka
    file = tmp_path / "gateway.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    stream = json.dumps(str(tmp_path / "stream"))
    lines += ["[[inputs]]", 'type = "unix_stream"', f"path = {stream}"]
    file.write_text("\n".join(["[kafka]", *lines]) + "\n")
    caplog.set_level(logging.DEBUG)
    assert execute(["gateway", "check", str(file)]) == 0

    async def main() -> list[str]:
        shown = []
        async with Gateway(file, http=0) as gateway, aiohttp.ClientSession() as session:
            shown += [repr(gateway), repr(gateway.settings), repr(vars(gateway))]
            await asyncio.sleep(0.5)  # the login is tried
            assert gateway.http is not None
            for page in PAGES:
                async with session.get(gateway.http.where + page) as answer:
                    shown.append(await answer.text())
        return shown

    shown = asyncio.run(main())
    out, err = capfd.readouterr()
    text = "\n".join([*shown, out, err, caplog.text])
    assert str(file) in text
    assert found_in(world, text) == []
