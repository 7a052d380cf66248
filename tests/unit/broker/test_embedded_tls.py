"""EmbeddedCluster(ssl_context=...), with aiokq's own clients."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

import aiokq
from aiokq import errors
from tests.peers.pki import Pki, context_of


def of_a_server(
    pki: Pki, directory: Path, client_auth: ssl.VerifyMode = ssl.CERT_NONE
) -> ssl.SSLContext:
    context = context_of(pki.issue(), pki.trusted, directory, server=True)
    context.verify_mode = client_auth
    return context


def trusting(pki: Pki) -> dict[str, str]:
    return {"ssl_truststore_type": "PEM", "ssl_truststore_certificates": pki.trusted}


async def sent(**settings: Any) -> int:
    async with (
        aiokq.Cluster(**settings) as cluster,
        cluster.producer(enable_idempotence=False) as producer,
    ):
        return (await producer.send("t", b"v")).offset


async def test_the_only_listener_has_tls(tmp_path: Path) -> None:
    pki = Pki()
    async with aiokq.EmbeddedCluster(ssl_context=of_a_server(pki, tmp_path)) as kafka:
        settings = kafka.client_settings()
        assert settings["security_protocol"] == "SSL"
        assert await sent(**settings, **trusting(pki)) == 0


async def test_users_log_in_over_tls(tmp_path: Path) -> None:
    pki = Pki()
    async with aiokq.EmbeddedCluster(
        ssl_context=of_a_server(pki, tmp_path), users={"alice": "pw"}
    ) as kafka:
        settings = kafka.client_settings("alice", mechanism="PLAIN")
        assert settings["security_protocol"] == "SASL_SSL"
        assert await sent(**settings, **trusting(pki)) == 0


async def test_clients_are_named_by_their_certificates(tmp_path: Path) -> None:
    pki = Pki()
    context = of_a_server(pki, tmp_path, ssl.CERT_REQUIRED)
    rules = {"ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/"}
    acls = ["User:alice Allow All Topic:*"]
    async with aiokq.EmbeddedCluster(ssl_context=context, settings=rules, acls=acls) as kafka:
        settings = {**kafka.client_settings(), **trusting(pki)}

        def of(name: str) -> dict[str, str]:
            one = pki.issue(name)
            return {
                "ssl_keystore_type": "PEM",
                "ssl_keystore_key": one.key,
                "ssl_keystore_certificate_chain": one.chain,
            }

        await kafka.create_topic("t")
        assert await sent(**settings, **of("alice")) == 0
        with pytest.raises(errors.TopicAuthorization, match="DESCRIBE on TOPIC:t"):
            await sent(**settings, **of("bob"))
        with pytest.raises(errors.KafkaError):
            await sent(**settings, request_timeout_ms=1000, bootstrap_timeout_ms=1000)


async def test_a_certificate_that_is_loaded_later_counts_for_new_connections(
    tmp_path: Path,
) -> None:
    former, later = Pki(), Pki()
    context = of_a_server(former, tmp_path)
    async with aiokq.EmbeddedCluster(ssl_context=context) as kafka:
        settings = kafka.client_settings()
        assert await sent(**settings, **trusting(former)) == 0
        context.load_cert_chain(later.issue().write(tmp_path, "later"))
        assert await sent(**settings, **trusting(later)) == 1


async def test_the_context_of_a_listener_cannot_be_replaced_by_settings(tmp_path: Path) -> None:
    pki = Pki()
    async with aiokq.EmbeddedCluster(ssl_context=of_a_server(pki, tmp_path)) as kafka:
        settings = kafka.client_settings()
        one = pki.issue()
        async with aiokq.Admin(**settings, **trusting(pki)) as admin:
            with pytest.raises(errors.InvalidRequest, match="given as ssl_context"):
                await admin.alter_configs(
                    {
                        aiokq.ConfigResource(aiokq.ConfigResourceType.BROKER, "0"): {
                            "listener.name.ssl.ssl.keystore.type": "PEM",
                            "listener.name.ssl.ssl.keystore.key": one.key,
                            "listener.name.ssl.ssl.keystore.certificate.chain": one.chain,
                        }
                    },
                    raise_errors=True,
                )


def test_settings_of_a_listener_named_ssl_that_are_not_of_tls() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    given = {
        "listener.name.ssl.max.connections": "10",
        "listener.name.ssl.ssl.principal.mapping.rules": "DEFAULT",
    }
    assert aiokq.EmbeddedCluster(ssl_context=context, settings=given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ssl_context": "cert.pem"}, "must be an ssl.SSLContext or None, not 'cert.pem'"),
        ({"ssl_context": ssl.create_default_context()}, "is one of a client"),
        (
            {"settings": {"listeners": "PLAINTEXT://127.0.0.1:0"}},
            "ssl_context needs a listener with TLS",
        ),
        (
            {"settings": {"ssl_keystore_location": "node.pem"}},
            "ssl_context and ssl.keystore.location exclude each other",
        ),
        (
            {"settings": {"listener.name.ssl.ssl.client.auth": "required"}},
            "ssl_context and listener.name.ssl.ssl.client.auth exclude each other",
        ),
        (
            {"settings": {"listeners": "SSL://127.0.0.1:0"}, "users": {"alice": "pw"}},
            "need a listener with SASL",
        ),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    given = {"ssl_context": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), **arguments}
    with pytest.raises(errors.ConfigError, match=message):
        aiokq.EmbeddedCluster(**given)
