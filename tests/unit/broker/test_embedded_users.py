"""`EmbeddedCluster(users=, authenticate=)`: who can log in, and what becomes of credentials."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest

from aiokq import (
    Admin,
    Cluster,
    EmbeddedCluster,
    ExpiringLogin,
    OAuthToken,
    Principal,
    ScramUpsertion,
    wire,
)
from aiokq.core.errors import AuthenticationFailed, BootstrapFailed, ConfigError

USERS = {"alice": "alice-secret", "bob": "bob-secret"}
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
FAST = {"connection.failed.authentication.delay.ms": "1"}


async def works(settings: dict[str, str]) -> None:
    """Produce and consume a record as a client with these settings."""
    async with Cluster(**settings) as cluster:
        async with cluster.producer() as producer:
            metadata = await producer.send("t", b"v")
        async with cluster.consumer("t", auto_offset_reset="earliest") as consumer:
            async for record in consumer:
                if record.offset == metadata.offset:
                    assert record.value == b"v"
                    return


async def refused(settings: dict[str, str], **changed: str) -> None:
    """A client with these settings must get an error of authentication."""
    with pytest.raises((AuthenticationFailed, BootstrapFailed)) as error:
        async with Admin(**{**settings, **changed}) as admin:
            await admin.list_topics(timeout=5)
    found = [error.value, error.value.__cause__, *getattr(error.value, "errors", {}).values()]
    assert any(isinstance(one, AuthenticationFailed) for one in found) or "Authentic" in str(
        error.value
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_users_log_in_and_others_do_not(mechanism: str) -> None:
    """By each mechanism, with the right password only."""
    async with EmbeddedCluster(users=USERS, settings=FAST) as kafka:
        for name in USERS:
            await works(kafka.client_settings(name, mechanism=mechanism))
        settings = kafka.client_settings("alice", mechanism=mechanism)
        await refused(settings, sasl_plain_password="bob-secret")
        await refused(settings, sasl_plain_username="carol")
        assert set(kafka.node.counters.logins) == {mechanism}


async def test_a_function_that_was_cancelled_refuses_one_login_only() -> None:
    """It awaits a task of its own that something has cancelled.

    Regression: the listener ended, and with it the connections of all clients.
    """

    async def authenticate(mechanism: str, listener: str, name: str, secret: str) -> str:
        if name == "mallory":
            lookup = asyncio.create_task(asyncio.sleep(60))
            lookup.cancel()
            await lookup
        return name

    async with EmbeddedCluster(authenticate=authenticate, settings=FAST) as kafka:
        settings = {
            "bootstrap_servers": kafka.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "alice",
            "sasl_plain_password": "x",
        }
        async with Cluster(**settings) as cluster, cluster.producer() as producer:
            await producer.send("t", b"before")
            await refused(settings, sasl_plain_username="mallory")
            await producer.send("t", b"after")
        await works(settings)


async def test_a_client_without_a_login_is_not_served() -> None:
    """The only listener has SASL."""
    async with EmbeddedCluster(users=USERS, settings=FAST) as kafka:
        with pytest.raises(Exception, match=r"(?i)sasl|closed|metadata"):
            async with Cluster(kafka.bootstrap_servers, bootstrap_timeout_ms=2000):
                pass


async def test_the_principal_of_a_session_is_its_user() -> None:
    """ACLs and quotas name it."""
    async with EmbeddedCluster(users=USERS) as kafka:
        seen = set()
        admit = kafka.node.gate.admit

        class Watching(type(kafka.node.gate)):
            __slots__ = ()

            def admit(self, connection, api_and_version, nbytes):
                seen.add((str(connection.session.principal), api_and_version >> 16))
                return super().admit(connection, api_and_version, nbytes)

        kafka.node.gate.__class__ = Watching
        assert admit is not None
        await works(kafka.client_settings("bob"))
        assert {principal for principal, key in seen if key in (0, 1, 3)} == {"User:bob"}
        assert {key for principal, key in seen if principal == "User:ANONYMOUS"} == {17, 18, 36}


async def test_credentials_are_stored_once_and_follow_the_password(tmp_path) -> None:
    """A restart with the same users writes nothing; another password replaces the old one."""

    async def end_offset(users):
        async with EmbeddedCluster(users=users, data_dir=tmp_path / "data", settings=FAST) as kafka:
            for name in users:
                await works(kafka.client_settings(name))
            stored = kafka.node.storage.metadata.image.principals.scram_credentials
            return dict(stored)

    first = await end_offset(USERS)
    assert set(first) == {(name, number) for name in USERS for number in (1, 2)}
    assert await end_offset(USERS) == first
    changed = await end_offset({"alice": "other"})
    assert changed["alice", 1].stored_key != first["alice", 1].stored_key
    assert changed["bob", 1] == first["bob", 1]  # a user that is left out keeps its credential
    async with EmbeddedCluster(users=USERS, data_dir=tmp_path / "data", settings=FAST) as kafka:
        await refused(kafka.client_settings("alice"), sasl_plain_password="other")


async def test_a_reset_keeps_users_also_those_that_clients_have_added() -> None:
    """Clients stay connected, and log in anew, too."""
    async with EmbeddedCluster(users=USERS, settings=FAST) as kafka:
        settings = kafka.client_settings("alice")
        async with Admin(**settings) as admin:
            await admin.alter_user_scram_credentials(
                ScramUpsertion("carol", "carol-secret"), raise_errors=True
            )
            await kafka.reset()
            assert set(await admin.describe_user_scram_credentials()) == {"alice", "bob", "carol"}
        carol = {
            **settings,
            "sasl_plain_username": "carol",
            "sasl_plain_password": "carol-secret",
        }
        await works(carol)
        await works(kafka.client_settings("bob"))


async def test_a_snapshot_has_the_users_and_a_restored_cluster_knows_them(tmp_path) -> None:
    """With its own users next to them; PLAIN has only its own."""
    async with EmbeddedCluster(users=USERS, settings=FAST) as kafka:
        await works(kafka.client_settings("alice"))
        await kafka.snapshot(tmp_path / "copy")
    async with EmbeddedCluster(
        users={"dave": "dave-secret"}, restore_from=tmp_path / "copy", settings=FAST
    ) as kafka:
        dave = kafka.client_settings("dave")
        await works(dave)
        alice = {**dave, "sasl_plain_username": "alice", "sasl_plain_password": "alice-secret"}
        await works(alice)
        await refused(alice, sasl_mechanism="PLAIN")


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_callers_function_decides(is_async: bool) -> None:
    """For names that `users` lacks."""
    asked = []

    def authenticate(mechanism, listener, name, secret):
        asked.append((mechanism, listener, name, secret))
        return Principal.user(f"dept-{name}") if secret == "open sesame" else None

    async def authenticate_later(*arguments):
        await asyncio.sleep(0.01)
        return authenticate(*arguments)

    async with EmbeddedCluster(
        users=USERS, authenticate=authenticate_later if is_async else authenticate, settings=FAST
    ) as kafka:
        settings = kafka.client_settings("alice", mechanism="PLAIN")
        await works(settings)
        assert asked == []
        await works({**settings, "sasl_plain_username": "x", "sasl_plain_password": "open sesame"})
        assert ("PLAIN", "SASL_PLAINTEXT", "x", "open sesame") in asked
        await refused(settings, sasl_plain_username="x", sasl_plain_password="wrong")


async def test_clients_log_in_again_while_they_work() -> None:
    """`connections.max.reauth.ms` of 1 s: nothing is lost, and every session is renewed."""
    settings = {**FAST, "connections.max.reauth.ms": "1000"}
    async with EmbeddedCluster(users=USERS, settings=settings) as kafka:
        async with (
            Cluster(**kafka.client_settings("alice")) as cluster,
            cluster.producer(linger_ms=0) as producer,
        ):
            loop = asyncio.get_running_loop()
            end = loop.time() + 3
            offsets = []
            while loop.time() < end:
                offsets.append((await producer.send("t", b"v")).offset)
                await asyncio.sleep(0.01)
        assert offsets == list(range(len(offsets)))
        assert kafka.node.counters.failed_logins == {}


async def test_a_token_of_the_callers_function_and_mechanisms_by_settings() -> None:
    """OAUTHBEARER needs no keys if the caller checks tokens."""
    settings = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512"}
    async with EmbeddedCluster(users=USERS, settings=settings) as kafka:
        await works(kafka.client_settings("alice", mechanism="SCRAM-SHA-512"))
        with pytest.raises(ConfigError, match="SCRAM-SHA-256"):
            kafka.client_settings("alice")
    async with EmbeddedCluster(authenticate=lambda *arguments: None) as kafka:
        security = kafka.node.servers.configured.security["SASL_PLAINTEXT"]
        assert security.mechanisms == ("PLAIN", "OAUTHBEARER")


async def sends_for_a_while(client: dict[str, object]) -> None:
    """Send records for some seconds; nothing may be lost or refused."""
    async with Cluster(**client) as cluster, cluster.producer(linger_ms=0) as producer:
        loop = asyncio.get_running_loop()
        end = loop.time() + 3.5
        offsets = []
        while loop.time() < end:
            offsets.append((await producer.send("t", b"v")).offset)
            await asyncio.sleep(0.01)
    assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize("by", ["ExpiringLogin", "connections.max.reauth.ms"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
async def test_a_session_of_the_callers_function_ends(by: str, mechanism: str) -> None:
    """At the time that the function says, or after the time of the setting; then it is renewed."""
    asked = []

    def authenticate(mechanism, listener, name, secret):
        asked.append((mechanism, name, secret))
        if by == "ExpiringLogin":
            return ExpiringLogin("alice", time.time() + 1.5)
        return "alice"

    settings = FAST if by == "ExpiringLogin" else {**FAST, by: "1500"}
    async with EmbeddedCluster(authenticate=authenticate, settings=settings) as kafka:
        client: dict[str, object] = {
            "bootstrap_servers": kafka.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
        }
        if mechanism == "PLAIN":
            client |= {"sasl_plain_username": "alice", "sasl_plain_password": "secret"}
        else:
            client["sasl_oauth_token_provider"] = lambda: OAuthToken("a.good.token")
        await sends_for_a_while(client)
        logins = kafka.node.counters.logins
        assert logins[f"{mechanism} again"] >= 2
        assert kafka.node.counters.failed_logins == {}
    secrets = {
        "PLAIN": ("PLAIN", "alice", "secret"),
        "OAUTHBEARER": ("OAUTHBEARER", "", "a.good.token"),
    }
    assert set(asked) == {secrets[mechanism]}


async def test_a_client_that_does_not_log_in_again_is_closed() -> None:
    """After the end of its session, it is served nothing."""

    def authenticate(*arguments):
        return ExpiringLogin("alice", time.time() + 0.3)

    async with EmbeddedCluster(authenticate=authenticate, settings=FAST) as kafka:
        host, _, port = kafka.bootstrap_servers.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))

        async def ask(request, version):
            fragments = wire.encode_request(
                request, version=version, correlation_id=1, client_id="c"
            )
            writer.write(b"".join(map(bytes, fragments)))
            frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            return wire.decode_response(type(request).RESPONSE, memoryview(frame), version)[1]

        await ask(wire.SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = wire.SaslAuthenticateRequest(auth_bytes=b"\0alice\0x")
        assert 0 < (await ask(token, 2)).session_lifetime_ms <= 300
        assert (await ask(wire.MetadataRequest(topics=[]), 9)).cluster_id
        await asyncio.sleep(0.4)
        with pytest.raises(asyncio.IncompleteReadError):
            await ask(wire.MetadataRequest(topics=[]), 9)
        writer.close()


@pytest.mark.parametrize(
    "arguments",
    [
        {"users": ["alice"]},
        {"users": {"alice": ""}},
        {"users": {"": "secret"}},
        {"users": {"alice": "sec\0ret"}},
        {"users": {"alice": b"secret"}},
        {"users": {5: "secret"}},
        {"users": {"alice": "\ud800"}},
        {"users": USERS, "settings": {"listeners": "PLAINTEXT://127.0.0.1:0"}},
        {"authenticate": "alice"},
    ],
)
def test_wrong_arguments_are_refused_without_a_password_in_the_message(arguments) -> None:
    """When the cluster is created."""
    with pytest.raises(ConfigError) as error:
        EmbeddedCluster(**arguments)
    assert "secret" not in str(error.value)


async def test_settings_of_clients_are_of_known_users() -> None:
    """Without users, a client needs the address only."""
    async with EmbeddedCluster() as kafka:
        assert kafka.client_settings() == {
            "bootstrap_servers": kafka.bootstrap_servers,
            "security_protocol": "PLAINTEXT",
        }
        with pytest.raises(ConfigError, match="no 'alice'"):
            kafka.client_settings("alice")
    async with EmbeddedCluster(users=USERS) as kafka:
        with pytest.raises(ConfigError, match="no 'carol'"):
            kafka.client_settings("carol")
        with pytest.raises(ConfigError, match="GSSAPI"):
            kafka.client_settings("alice", mechanism="GSSAPI")
        assert "secret" not in repr(kafka)


async def test_a_cluster_without_users_loads_no_mechanism() -> None:
    """Its start must stay as fast as it is."""
    code = (
        "import asyncio, sys, aiokq\n"
        "async def main():\n"
        "    async with aiokq.EmbeddedCluster() as kafka: pass\n"
        "asyncio.run(main())\n"
        "found = [m for m in sys.modules if m.startswith('aiokq.broker.security.authentication')]\n"
        "wanted = ['jwt', 'cryptography', 'aiokq.core.jaas', 'aiokq.connection.sasl.plain']\n"
        "print(found, [m for m in wanted if m in sys.modules])\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert out.decode().strip() == "[] []"
