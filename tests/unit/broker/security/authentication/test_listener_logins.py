"""aiokq.broker.security.authentication.listener_logins: settings become mechanisms."""

from __future__ import annotations

import asyncio
import sys

import pytest

from aiokq.broker.config.listeners import configured_listeners
from aiokq.broker.config.settings import broker_settings
from aiokq.broker.security.authentication.exchange import ExchangeFailed
from aiokq.broker.security.authentication.listener_logins import LoginResources, listener_logins
from aiokq.connection.principal import Principal
from aiokq.connection.request_context import RequestContext
from aiokq.core.errors import ConfigError
from aiokq.core.offload import InlineOffload

NOW = 1_700_000_000
CONTEXT = RequestContext(1, "", "", "A")


class Clock:
    def timestamp_ms(self) -> int:
        return NOW * 1000

    def monotonic(self) -> float:
        return 0.0


def logins(settings, *, authenticate=None):
    every = {
        "listeners": "A://127.0.0.1:0,B://127.0.0.1:0,P://127.0.0.1:0",
        "listener.security.protocol.map": "A:SASL_PLAINTEXT,B:SASL_PLAINTEXT,P:PLAINTEXT",
        "inter.broker.listener.name": "P",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        **settings,
    }
    own = authenticate is not None
    security = configured_listeners(broker_settings(every), own_check=own).security
    resources = LoginResources(dict, dict, b"secret", Clock(), InlineOffload(), authenticate)
    return listener_logins(security, resources)


def jaas(**users):
    options = " ".join(f'{name}="{value}"' for name, value in users.items())
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {options};"


async def plain(login, name, password):
    exchange = login.mechanisms["PLAIN"](CONTEXT)
    await exchange.respond(f"\0{name}\0{password}".encode())
    return exchange.outcome.principal.name


async def test_each_listener_has_its_mechanisms_and_users():
    """Also its own `connections.max.reauth.ms`, which may differ between mechanisms."""
    found, keys = logins(
        {
            "listener.name.a.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.a.plain.sasl.jaas.config": jaas(
                username="broker", password="x", user_alice="1", user_="2", user_bob="3"
            ),
            "connections.max.reauth.ms": "5000",
            "listener.name.a.plain.connections.max.reauth.ms": "1000",
        }
    )
    assert keys == ()
    assert {name: list(one.mechanisms) for name, one in found.items()} == {
        "A": ["PLAIN", "SCRAM-SHA-512"],
        "B": ["SCRAM-SHA-256"],
    }
    assert found["A"].max_reauth_ms == {"PLAIN": 1000, "SCRAM-SHA-512": 5000}
    assert found["B"].max_reauth_ms == {"SCRAM-SHA-256": 5000}
    assert await plain(found["A"], "alice", "1") == "alice"
    assert await plain(found["A"], "bob", "3") == "bob"
    for name, password in [("broker", "x"), ("alice", "3"), ("", "2")]:
        with pytest.raises(ExchangeFailed):
            await plain(found["A"], name, password)


async def test_the_callers_function_is_asked_for_other_users_and_for_tokens():
    """Users in the settings have their passwords."""
    asked = []

    async def authenticate(mechanism, listener, name, secret):
        asked.append((mechanism, name))
        return Principal("Robot", "r") if secret == "good" else None

    found, _ = logins(
        {
            "listener.name.a.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            "listener.name.a.plain.sasl.jaas.config": jaas(user_alice="1"),
        },
        authenticate=authenticate,
    )
    assert await plain(found["A"], "alice", "1") == "alice"
    with pytest.raises(ExchangeFailed):
        await plain(found["A"], "alice", "good")
    assert await plain(found["A"], "carol", "good") == "r"
    exchange = found["A"].mechanisms["OAUTHBEARER"](CONTEXT)
    assert await exchange.respond(b"n,,\x01auth=Bearer good\x01\x01") == b""
    assert str(exchange.outcome.principal) == "Robot:r"
    assert asked == [("PLAIN", "carol"), ("OAUTHBEARER", "")]


async def test_signed_tokens_have_the_rules_of_the_settings(tmp_path):
    """Per listener and mechanism."""
    pytest.importorskip("jwt")
    from tests.unit.broker.security.authentication.token_makers import jwk, key_set, rsa_key, token

    file = tmp_path / "keys.json"
    file.write_bytes(key_set(jwk(rsa_key(), "k")))
    prefix = "listener.name.a.oauthbearer.sasl.oauthbearer."
    found, keys = logins(
        {
            "listener.name.a.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}jwks.endpoint.url": file.as_uri(),
            f"{prefix}expected.audience": "kafka, other",
            f"{prefix}expected.issuer": "https://issuer",
            f"{prefix}sub.claim.name": "client",
            f"{prefix}clock.skew.seconds": "5",
        }
    )

    tasks = []
    for each in keys:
        each.start(lambda work, name: tasks.append(asyncio.get_running_loop().create_task(work)))

    async def answer(**claims):
        exchange = found["A"].mechanisms["OAUTHBEARER"](CONTEXT)
        good = {"aud": "kafka", "iss": "https://issuer", "client": "c", "sub": None, **claims}
        text = token(**good)
        answer = await exchange.respond(f"n,,\x01auth=Bearer {text}\x01\x01".encode())
        return answer, exchange.outcome and exchange.outcome.principal.name

    assert await answer() == (b"", "c")
    for claims in (
        {"aud": "x"},
        {"iss": "https://x"},
        {"client": None, "sub": "c"},
        {"exp": NOW - 5, "iat": NOW - 50},
    ):
        refusal, name = await answer(**claims)
        assert (b"invalid_token" in refusal, name) == (True, None)
    assert await answer(exp=NOW - 4, iat=NOW - 50) == (b"", "c")


async def test_unsecured_tokens_have_the_options_of_the_login_module():
    """Kafka's own validator for development."""
    from tests.unit.broker.security.authentication.test_unsecured_tokens import token

    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    found, _ = logins(
        {
            "listener.name.a.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.a.oauthbearer.allow.unsecured.tokens": "true",
            "listener.name.a.oauthbearer.sasl.jaas.config": (
                f'{module} required unsecuredValidatorRequiredScope="write";'
            ),
        }
    )
    exchange = found["A"].mechanisms["OAUTHBEARER"](CONTEXT)
    refusal = await exchange.respond(f"n,,\x01auth=Bearer {token()}\x01\x01".encode())
    assert b"insufficient_scope" in refusal
    good = token(scope="write")
    assert await exchange.respond(f"n,,\x01auth=Bearer {good}\x01\x01".encode()) == b""


def test_a_missing_library_says_what_to_install(monkeypatch):
    """PyJWT is needed for signed tokens only."""
    name = "aiokq.broker.security.authentication."
    monkeypatch.setitem(sys.modules, "jwt", None)
    monkeypatch.delitem(sys.modules, f"{name}signed_tokens", raising=False)
    monkeypatch.delitem(sys.modules, f"{name}token_keys", raising=False)
    with pytest.raises(ConfigError, match=r"aiokq\[oauthbearer\]"):
        logins(
            {
                "listener.name.a.sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "https://issuer/keys",
            }
        )


def test_wrong_addresses_of_keys_end_the_start():
    """The message names the setting as it was given."""
    pytest.importorskip("jwt")
    with pytest.raises(ConfigError, match=r"listener\.name\.a\.oauthbearer\.sasl\.oauthbearer"):
        logins(
            {
                "listener.name.a.sasl.enabled.mechanisms": "OAUTHBEARER",
                "listener.name.a.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "file:///no",
            }
        )
