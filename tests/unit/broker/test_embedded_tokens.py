"""OAUTHBEARER on a running broker: keys of a server or a file, sessions that end with a token."""

from __future__ import annotations

import asyncio
import time

import pytest

pytest.importorskip("jwt")

from aiokq import EmbeddedCluster, wire
from aiokq.core.errors import ConfigError
from tests.unit.broker.security.authentication.test_key_source import server
from tests.unit.broker.security.authentication.token_makers import jwk, key_set, rsa_key, token

PREFIX = "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer."


def settings(url: str, **more: str) -> dict[str, object]:
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "connection.failed.authentication.delay.ms": "1",
        f"{PREFIX}jwks.endpoint.url": url,
        **more,
    }


def fresh(key=None, lifetime: float = 60, **claims: object) -> str:
    now = int(time.time())
    return token(key, iat=now, exp=now + lifetime, **claims)


class Client:
    """A connection that sends one request at a time."""

    def __init__(self, kafka: EmbeddedCluster) -> None:
        self.host, _, port = kafka.bootstrap_servers.rpartition(":")
        self.port = int(port)

    async def __aenter__(self) -> Client:
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.writer.close()

    async def ask(self, request, version):
        fragments = wire.encode_request(request, version=version, correlation_id=1, client_id="x")
        self.writer.write(b"".join(map(bytes, fragments)))
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        frame = await self.reader.readexactly(size)
        return wire.decode_response(type(request).RESPONSE, frame, version)[1]

    async def log_in(self, text: str):
        shaken = await self.ask(wire.SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        assert shaken.error_code == 0
        message = f"n,,\x01auth=Bearer {text}\x01\x01".encode()
        return await self.ask(wire.SaslAuthenticateRequest(auth_bytes=message), 2)


async def test_a_token_signed_with_a_key_of_a_server_logs_in_until_it_ends() -> None:
    """Then only another login is handled, with a new token of the same principal."""
    keys = key_set(jwk(rsa_key(), "k"))
    with server(keys=(200, {}, keys)) as url:
        async with EmbeddedCluster(settings=settings(f"{url}/keys")) as kafka, Client(kafka) as one:
            answer = await one.log_in(fresh(lifetime=2))
            assert (answer.error_code, answer.auth_bytes) == (0, b"")
            assert 0 < answer.session_lifetime_ms <= 2000
            assert (await one.ask(wire.MetadataRequest(topics=[]), 9)).cluster_id
            await asyncio.sleep(2.1)
            again = await one.log_in(fresh())
            assert again.error_code == 0
            assert again.session_lifetime_ms > 50_000
            assert (await one.ask(wire.MetadataRequest(topics=[]), 9)).cluster_id
            async with Client(kafka) as other:
                refused = await other.log_in(fresh(rsa_key(1)))
                assert (refused.error_code, refused.auth_bytes) == (
                    0,
                    b'{"status":"invalid_token"}',
                )
                seen = wire.SaslAuthenticateRequest(auth_bytes=b"\x01")
                assert (await other.ask(seen, 2)).error_code == 58
            async with Client(kafka) as late:
                await late.log_in(fresh(lifetime=1))
                await asyncio.sleep(1.1)
                with pytest.raises(asyncio.IncompleteReadError):
                    await late.ask(wire.MetadataRequest(topics=[]), 9)


async def test_keys_of_a_file_may_change_while_the_broker_runs(tmp_path) -> None:
    """A key that is removed counts no more after a second."""
    file = tmp_path / "keys.json"
    file.write_bytes(key_set(jwk(rsa_key(), "k")))
    async with EmbeddedCluster(settings=settings(file.as_uri())) as kafka:
        async with Client(kafka) as client:
            assert (await client.log_in(fresh())).auth_bytes == b""
        file.write_bytes(key_set(jwk(rsa_key(1), "k")))
        await asyncio.sleep(1.2)
        async with Client(kafka) as client:
            assert b"invalid_token" in (await client.log_in(fresh())).auth_bytes
        async with Client(kafka) as client:
            assert (await client.log_in(fresh(rsa_key(1)))).auth_bytes == b""


async def test_a_missing_file_ends_the_start() -> None:
    """And leaves nothing behind."""
    with pytest.raises(ConfigError, match="there is no file"):
        async with EmbeddedCluster(settings=settings("file:///nowhere/keys.json")):
            pass
