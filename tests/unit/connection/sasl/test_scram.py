"""The client's side of SCRAM: it proves the password, and verifies the broker."""

from __future__ import annotations

import asyncio
import base64
import traceback

import pytest

from aiokq.connection.sasl.scram import MOST_ITERATIONS_TAKEN, Scram, ScramCredential, scram
from aiokq.connection.sasl.scram_formulas import (
    SCRAM_MECHANISMS,
    is_proof_of,
    keys_of_password,
    server_signature,
)
from aiokq.connection.sasl.scram_messages import (
    ClientFinal,
    ClientFirst,
    ServerFinal,
    ServerFirst,
    auth_message,
)
from aiokq.core.errors import AuthenticationFailed, ConfigError
from aiokq.core.offload import InlineOffload

NONCE = "rOprNGfwEbeRWgbNEkqO"
KAFKAS = (
    b"r=rOprNGfwEbeRWgbNEkqOvktu69dr682wpcgygbl4ek52d,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    b"c=biws,r=rOprNGfwEbeRWgbNEkqOvktu69dr682wpcgygbl4ek52d,"
    b"p=wac4LZlo5mlXBxu7h/I86+7OrBA2zZOX01YC+tRFNXc=",
    b"v=dDTA3hWqhPUqnXijso5Hsn4rshBW9OgmIrc8lhbNqSg=",
)
"""The messages after the first one of a login at Apache Kafka 4.2.0."""


class Counting(InlineOffload):
    """An offload that counts the computations."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    async def run(self, fn, *args):
        self.count += 1
        await asyncio.sleep(0)
        return fn(*args)


def client(mechanism: str = "SCRAM-SHA-256", user: str = "rfc", password: str = "pencil") -> Scram:
    return scram(mechanism, user, password, InlineOffload(), nonce=lambda: NONCE)("host")


class Broker:
    """A broker that knows one credential."""

    def __init__(self, mechanism: str, password: str, *, iterations: int = 4096) -> None:
        self.mechanism = SCRAM_MECHANISMS[mechanism]
        self.iterations = iterations
        self.keys = keys_of_password(self.mechanism, password, b"salt", iterations)

    async def log_in(self, mechanism: Scram) -> bool:
        """Return whether the proof is right; raise what the client raises."""
        first = ClientFirst.parse(await mechanism.start())
        challenge = ServerFirst(first.nonce + "more", b"salt", self.iterations)
        message = await mechanism.step(challenge.render())
        assert message is not None
        final = ClientFinal.parse(message)
        signed = auth_message(first, challenge, final)
        proven = is_proof_of(self.mechanism, self.keys.stored_key, signed, final.proof)
        signature = server_signature(self.mechanism, self.keys.server_key, signed)
        assert await mechanism.step(ServerFinal(signature).render()) is None
        return proven


async def test_the_messages_are_those_of_a_login_at_apache_kafka() -> None:
    mechanism = client()
    assert mechanism.name == "SCRAM-SHA-256"
    assert await mechanism.start() == b"n,,n=rfc,r=" + NONCE.encode()
    assert await mechanism.step(KAFKAS[0]) == KAFKAS[1]
    assert await mechanism.step(KAFKAS[2]) is None


@pytest.mark.parametrize("name", SCRAM_MECHANISMS)
@pytest.mark.parametrize("user", ["anna", "a=b,c", "jörg"])
async def test_both_mechanisms_log_in(name: str, user: str) -> None:
    broker = Broker(name, "geheim", iterations=8192)
    assert await broker.log_in(scram(name, user, "geheim", InlineOffload())("host"))


async def test_a_wrong_password_is_noticed_on_both_sides() -> None:
    """The broker's signature is made with another key, so the client would refuse the broker."""
    with pytest.raises(AuthenticationFailed, match="impostor"):
        await Broker("SCRAM-SHA-256", "geheim").log_in(client(password="falsch"))


@pytest.mark.parametrize(
    ("challenge", "told"),
    [
        (b"r=other,s=YQ==,i=4096", "nonce"),
        (b"r=" + NONCE.encode() + b",s=YQ==,i=4096", "nonce"),
        (b"r=" + NONCE.encode() + b"x,s=YQ==,i=4095", "4095 iterations"),
        (b"r=" + NONCE.encode() + b"x,s=YQ==,i=0", "0 iterations"),
        (b"r=" + NONCE.encode() + b"x,s=YQ==,i=1000001", "1000001 iterations"),
        (b"r=" + NONCE.encode() + b"x,s=YQ==,i=9999999999", "9999999999 iterations"),
        (b"v=YQ==", "malformed"),
        (b"", "malformed"),
        (b"\xff", "malformed"),
    ],
)
async def test_a_hostile_challenge_is_refused(challenge: bytes, told: str) -> None:
    """Nothing is computed for it, and the password appears nowhere."""
    offload = Counting()
    mechanism = scram("SCRAM-SHA-256", "rfc", "pencil", offload, nonce=lambda: NONCE)("host")
    await mechanism.start()
    with pytest.raises(AuthenticationFailed, match=told) as caught:
        await mechanism.step(challenge)
    assert offload.count == 0
    assert "pencil" not in "".join(traceback.format_exception(caught.value))
    assert MOST_ITERATIONS_TAKEN == 1_000_000


@pytest.mark.parametrize(
    ("final", "told"),
    [
        (b"v=" + base64.b64encode(bytes(32)), "impostor"),
        (b"v=", "impostor"),
        (b"e=invalid-proof", "invalid-proof"),
        (b"", "malformed"),
        (KAFKAS[0], "malformed"),
    ],
)
async def test_a_broker_that_does_not_know_the_credential_is_refused(
    final: bytes, told: str
) -> None:
    mechanism = client()
    await mechanism.start()
    await mechanism.step(KAFKAS[0])
    with pytest.raises(AuthenticationFailed, match=told):
        await mechanism.step(final)


async def test_the_keys_are_computed_once_for_all_connections() -> None:
    """Ten connections are opened together; later logins compute nothing."""
    offload = Counting()
    factory = scram("SCRAM-SHA-256", "rfc", "geheim", offload)
    broker = Broker("SCRAM-SHA-256", "geheim")
    async with asyncio.TaskGroup() as tasks:
        for _ in range(10):
            tasks.create_task(broker.log_in(factory("host")))
    assert offload.count == 1
    await broker.log_in(factory("host"))
    assert offload.count == 1


async def test_few_keys_are_kept() -> None:
    """A broker that sends a new salt each time fills no memory."""
    offload = Counting()
    credential = ScramCredential("SCRAM-SHA-256", "rfc", "geheim", offload)
    for n in range(20):
        await credential.keys(b"%d" % n, 4096)
    assert len(credential._keys) == 8
    await credential.keys(b"19", 4096)
    assert offload.count == 20


async def test_nonces_differ() -> None:
    factory = scram("SCRAM-SHA-512", "rfc", "geheim", InlineOffload())
    messages = {await factory("host").start() for _ in range(100)}
    assert len(messages) == 100
    assert all(len(message) >= 40 for message in messages)


@pytest.mark.parametrize(("user", "password"), [("", "x"), ("x", ""), ("a\0b", "x")])
def test_what_it_cannot_carry_is_refused_when_configured(user: str, password: str) -> None:
    with pytest.raises(ConfigError, match="sasl_plain_"):
        scram("SCRAM-SHA-256", user, password, InlineOffload())


def test_nothing_shows_the_password() -> None:
    credential = ScramCredential("SCRAM-SHA-256", "rfc", "pencil", InlineOffload())
    assert "pencil" not in repr(credential) + repr(Scram(credential, "n"))
