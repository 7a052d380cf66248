"""The client's side of GSSAPI, with a library in the place of gssapi."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aiokq.connection.sasl.gssapi import KerberosTickets, gssapi
from aiokq.core.errors import AuthenticationFailed
from aiokq.core.offload import InlineOffload


class Context:
    """A security context: "AP-REQ" is answered by "AP-REP"; wrapped messages begin with "W"."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.complete = False

    def step(self, token: bytes | None = None) -> bytes | None:
        if token is None:
            return b"AP-REQ"
        if token != b"AP-REP":
            raise RuntimeError("a token\nthat is wrong")
        self.complete = True
        return None

    def unwrap(self, message: bytes) -> SimpleNamespace:
        if message[:1] != b"W":
            raise RuntimeError("not wrapped")
        return SimpleNamespace(message=message[1:])

    def wrap(self, message: bytes, encrypt: bool) -> SimpleNamespace:
        assert not encrypt
        return SimpleNamespace(message=b"W" + message)


class Library:
    """The names of gssapi that are used."""

    NameType = SimpleNamespace(hostbased_service="host", kerberos_principal="principal")
    MechType = SimpleNamespace(kerberos="krb5")
    RequirementFlag = SimpleNamespace(
        mutual_authentication=2, replay_detection=4, out_of_sequence_detection=8, integrity=32
    )

    def __init__(self) -> None:
        self.contexts: list[Context] = []

    def Name(self, text: str, kind: str) -> str:
        return f"{kind}:{text}"

    def Credentials(self, **options: Any) -> dict[str, Any]:
        if options["name"] == "principal:nobody":
            raise RuntimeError("no keys")
        return options

    def SecurityContext(self, **options: Any) -> Context:
        self.contexts.append(Context(**options))
        return self.contexts[-1]


def client(domain_name: str | None = None, **arguments: Any) -> tuple[Any, Library]:
    library = Library()
    tickets = KerberosTickets("kafka", library=library, **arguments)
    return gssapi(tickets, InlineOffload(), domain_name=domain_name)("broker.example"), library


async def test_the_messages_of_kafka() -> None:
    """AP-REQ, an empty message, and the choice of no layer with an empty authorization id."""
    mechanism, library = client()
    assert mechanism.name == "GSSAPI"
    assert await mechanism.start() == b"AP-REQ"
    (context,) = library.contexts
    assert context.options["name"] == "host:kafka@broker.example"
    assert context.options["flags"] == 46
    assert context.options["creds"] is None
    assert await mechanism.step(b"AP-REP") == b""
    assert await mechanism.step(b"W\x07\x01\x00\x00") == b"W\x01\0\0\0"
    assert await mechanism.step(b"") is None


async def test_a_keytab_is_used_without_touching_the_tickets_of_kinit() -> None:
    mechanism, library = client("alias.example", principal="me@EXAMPLE", keytab="/k")
    await mechanism.start()
    options = library.contexts[0].options
    assert options["name"] == "host:kafka@alias.example"
    assert options["creds"]["name"] == "principal:me@EXAMPLE"
    assert options["creds"]["store"]["client_keytab"] == "/k"
    assert options["creds"]["store"]["ccache"].startswith("MEMORY:")


async def test_no_client_gets_the_tickets_of_an_earlier_one() -> None:
    """The Kerberos library keeps the tickets of a client that is gone, under the cache's name.

    Regression: the name had the address of an object, which another object gets later.
    """
    used = []
    for _ in range(20):
        mechanism, library = client(keytab="/k")
        await mechanism.start()
        await mechanism.start()
        caches = {context.options["creds"]["store"]["ccache"] for context in library.contexts}
        assert len(caches) == 1  # the tickets serve all connections of a client
        used += caches
        del mechanism, library
    assert len(set(used)) == 20


async def test_missing_tickets_are_named() -> None:
    mechanism, _ = client(principal="nobody")
    with pytest.raises(AuthenticationFailed, match=r"no keys; check the tickets \(klist\)"):
        await mechanism.start()


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([b"?"], "a token that is wrong"),
        ([b"AP-REP", b"?"], "not wrapped"),
        ([b"AP-REP", b"W"], "security layer"),
        ([b"AP-REP", b"W\x06\0\0\0"], "security layer"),
        ([b"AP-REP", b"W\x01\0\0\0\0"], "security layer"),
        ([b"AP-REP", b"W\x01\0\0\0", b"more"], "after the last"),
    ],
)
async def test_wrong_messages_of_the_broker(messages: list[bytes], told: str) -> None:
    mechanism, _ = client()
    await mechanism.start()
    *good, last = messages
    for message in good:
        await mechanism.step(message)
    with pytest.raises(AuthenticationFailed, match=told):
        await mechanism.step(last)
