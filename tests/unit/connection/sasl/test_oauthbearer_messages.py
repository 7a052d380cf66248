"""OAUTHBEARER messages: what is rendered can be parsed, and hostile messages are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokq.connection.sasl import oauthbearer_messages
from aiokq.connection.sasl.oauthbearer_messages import (
    ClientFirst,
    OAuthMessageError,
    Refusal,
    check_extensions,
    is_token,
)

TOKENS = st.from_regex(r"[-_~+/.a-zA-Z0-9]+=*", fullmatch=True)
NAMES = st.text(st.characters(exclude_characters="\0\1", exclude_categories=["Cs"]))
KEYS = st.from_regex(r"[A-Za-z]+", fullmatch=True).filter(lambda key: key != "auth")
VALUES = st.from_regex(r"[\x21-\x7E \t\r\n]+", fullmatch=True)


def test_the_message_of_kafka() -> None:
    message = ClientFirst("a.b.c", extensions={"logicalCluster": "lkc-1"}).render()
    assert message == b"n,,\x01auth=Bearer a.b.c\x01logicalCluster=lkc-1\x01\x01"
    assert ClientFirst("a.b.c").render() == b"n,,\x01auth=Bearer a.b.c\x01\x01"


@given(TOKENS, NAMES, st.dictionaries(KEYS, VALUES))
def test_every_message_is_read_back(token: str, authzid: str, extensions: dict[str, str]) -> None:
    sent = ClientFirst(token, authzid, extensions)
    assert ClientFirst.parse(sent.render()) == sent


def test_the_scheme_is_read_in_any_case() -> None:
    assert ClientFirst.parse(b"n,,\x01auth=bEaReR   t\x01\x01").token == "t"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"y,,\x01auth=Bearer t\x01\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic t\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer t u\x01\x01",
        b"n,,\x01auth=Bearer t\x01",
        b"n,,\x01auth=Bearer t\x01auth=Bearer u\x01\x01",
        b"n,,\x01auth=Bearer t\x01k=v\x01k=w\x01\x01",
        b"n,,\x01auth=Bearer t\x01k1=v\x01\x01",
        b"n,,\x01auth=Bearer t\x01k=\x01\x01",
        b"n,,\x01auth=Bearer t\x01\x01more",
        b"n,a=,\x01auth=Bearer t\x01\x01",
        b"n,a=x=,\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,,\x01auth=Bearer " + b"t" * 65_536 + b"\x01\x01",
    ],
)
def test_malformed_messages(message: bytes) -> None:
    with pytest.raises(OAuthMessageError):
        ClientFirst.parse(message)


def test_a_long_message_is_refused_before_it_is_examined(monkeypatch) -> None:
    """Anybody may send one; the longest token that a broker examines has half the length."""
    longest = b"n,,\x01auth=Bearer " + b"t" * 65_518 + b"\x01\x01"
    assert len(longest) == 65_536
    assert len(ClientFirst.parse(longest).token) == 65_518
    monkeypatch.setattr(oauthbearer_messages, "_CLIENT_FIRST", None)
    with pytest.raises(OAuthMessageError, match="too long"):
        ClientFirst.parse(longest + b"\x01")


@given(st.binary() | st.from_regex(rb"n,,\x01(auth=Bearer [a-z ]*\x01|[a-z]*=[a-z]*\x01)*\x01"))
def test_any_bytes_are_parsed_or_refused(message: bytes) -> None:
    for kind in (ClientFirst, Refusal):
        try:
            kind.parse(message)
        except OAuthMessageError:
            pass


@pytest.mark.parametrize("token", ["", "a b", "a\n", "=", "a=b", "ä", "a\x01"])
def test_what_is_no_token_is_not_sent(token: str) -> None:
    assert not is_token(token)
    with pytest.raises(OAuthMessageError) as caught:
        ClientFirst(token).render()
    assert not token.strip("=") or token not in str(caught.value)


@pytest.mark.parametrize(
    "extensions", [{"auth": "x"}, {"k1": "x"}, {"": "x"}, {"k": ""}, {"k": "\1"}]
)
def test_extensions_are_checked(extensions: dict[str, str]) -> None:
    with pytest.raises(OAuthMessageError):
        check_extensions(extensions)


def test_refusals() -> None:
    told = Refusal.parse(
        b'{"status":"insufficient_scope", "scope":"s", "openid-configuration":"u"}'
    )
    assert told == Refusal("insufficient_scope", "s", "u")
    assert Refusal.parse(told.render()) == told
    assert Refusal("invalid_token").render() == b'{"status":"invalid_token"}'
    for message in (b"", b"[]", b"{}", b'{"status":1}', b"[" * 100_000, b"\xff"):
        with pytest.raises(OAuthMessageError):
            Refusal.parse(message)


def test_the_token_is_not_shown() -> None:
    assert "hidden" not in repr(ClientFirst("hidden", "a", {"k": "hidden"}))
