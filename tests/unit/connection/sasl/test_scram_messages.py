"""SCRAM messages: what is rendered can be parsed, and hostile messages are refused."""

from __future__ import annotations

import base64
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokq.connection.sasl.scram_messages import (
    ClientFinal,
    ClientFirst,
    ScramMessageError,
    ServerFinal,
    ServerFirst,
    auth_message,
)

MESSAGES = (ClientFirst, ServerFirst, ClientFinal, ServerFinal)
NONCES = st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters=","), min_size=1
)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


def test_the_messages_of_the_rfc() -> None:
    """The exchange of RFC 7677."""
    first = ClientFirst("user", "rOprNGfwEbeRWgbNEkqO")
    assert first.render() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    answer = (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    challenge = ServerFirst.parse(answer)
    assert challenge.nonce == "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert (len(challenge.salt), challenge.iterations) == (16, 4096)
    assert challenge.render() == answer
    final = ClientFinal(challenge.nonce)
    assert final.signed == "c=biws,r=" + challenge.nonce
    assert auth_message(first, challenge, final) == (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO," + answer + b"," + final.signed.encode()
    )
    end = ServerFinal.parse(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert end.error is None
    assert end.render() == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(
    ("name", "rendered"),
    [("a,b", b"n=a=2Cb"), ("a=b", b"n=a=3Db"), ("=2C", b"n==3D2C"), ("=3D,", b"n==3D3D=2C")],
)
def test_commas_and_equals_signs_in_names(name: str, rendered: bytes) -> None:
    """A name is escaped once, and read back as it was."""
    message = ClientFirst(name, "n").render()
    assert message == b"n,," + rendered + b",r=n"
    assert ClientFirst.parse(message).name == name


@given(name=NAMES, nonce=NONCES, authzid=st.just("") | NAMES)
def test_every_client_first_message_is_read_back(name: str, nonce: str, authzid: str) -> None:
    sent = ClientFirst(name, nonce, authzid, {"tokenauth": "true"})
    seen = ClientFirst.parse(sent.render())
    assert (seen.name, seen.nonce, seen.authzid) == (name, nonce, authzid)
    assert seen.extensions == {"tokenauth": "true"}
    assert seen.signed == sent.signed
    assert seen.header == sent.header


@given(nonce=NONCES, salt=st.binary(), iterations=st.integers(0, 2**31))
def test_every_challenge_is_read_back(nonce: str, salt: bytes, iterations: int) -> None:
    seen = ServerFirst.parse(ServerFirst(nonce, salt, iterations).render())
    assert (seen.nonce, seen.salt, seen.iterations) == (nonce, salt, iterations)


@given(nonce=NONCES, proof=st.binary(), signature=st.binary())
def test_proofs_and_signatures_are_read_back(nonce: str, proof: bytes, signature: bytes) -> None:
    seen = ClientFinal.parse(ClientFinal(nonce, proof).render())
    assert (seen.nonce, seen.proof, seen.channel) == (nonce, proof, b"n,,")
    assert ServerFinal.parse(ServerFinal(signature).render()).signature == signature


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"y,,n=a,r=b",
        b"p=tls-unique,,n=a,r=b",
        b"n,,m=must,n=a,r=b",
        b"n,,n=a,r=b,m=must",
        b"n,,n=,r=b",
        b"n,,n=a,r=",
        b"n,,n=a=2D,r=b",
        b"n,,n=a=,r=b",
        b"n,,n=a\0,r=b",
        b"n,,n=a,r=b c",
        b"n,,n=a,r=b,1=2",
        b"n,a=,n=a,r=b",
        b"n,,r=b,n=a",
        b"n,,n=a,r=b\n",
        b"n,,n=\xff,r=b",
        b"n,,n=a,r=" + b"b" * 4096,
    ],
)
def test_malformed_client_first_messages(message: bytes) -> None:
    with pytest.raises(ScramMessageError):
        ClientFirst.parse(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"r=a,s=YQ==",
        b"r=a,s=YQ=,i=1",
        b"r=a,s=Y,i=1",
        b"r=a,s=YQ==,i=-1",
        b"r=a,s=YQ==,i=1e9",
        b"r=a,s=YQ==,i=" + b"9" * 11,
        b"r=a,s=YQ==,i=\xd9\xa1",
        b"m=x,r=a,s=YQ==,i=1",
        b"e=other-error",
    ],
)
def test_malformed_challenges(message: bytes) -> None:
    with pytest.raises(ScramMessageError):
        ServerFirst.parse(message)


@pytest.mark.parametrize(
    "message", [b"", b"c=biws,r=a", b"c=biws,r=a,p=?", b"c=biws,p=YQ==", b"c=biws,r=a,p=YQ==,x=y"]
)
def test_malformed_client_final_messages(message: bytes) -> None:
    with pytest.raises(ScramMessageError):
        ClientFinal.parse(message)


def test_base64_is_whole_groups_of_four_with_padding_at_the_end() -> None:
    """As the grammar of RFC 5802 says, for all texts of up to nine characters of each kind."""
    grammar = re.compile("(?:A{4})*(?:A{2}==|A{3}=)?")
    for size in range(10):
        for characters in itertools.product("A=", repeat=size):
            text = "".join(characters)
            message = f"c=biws,r=a,p={text}".encode()
            if grammar.fullmatch(text):
                assert ClientFinal.parse(message).proof == base64.b64decode(text, validate=True)
            else:
                with pytest.raises(
                    ScramMessageError, match="the client-final message is malformed"
                ):
                    ClientFinal.parse(message)


def test_an_error_of_the_server() -> None:
    """Kafka's brokers send error 58 instead, but others follow the RFC."""
    assert ServerFinal.parse(b"e=invalid-proof").error == "invalid-proof"
    for message in (b"", b"v=?", b"e=", b"v=YQ==e=x"):
        with pytest.raises(ScramMessageError):
            ServerFinal.parse(message)


@given(st.binary() | st.from_regex(rb"(n,,|)[nrsicpve]=[ -~]{0,9},[nrsicpve]=[ -~]{0,9}"))
def test_any_bytes_are_parsed_or_refused(message: bytes) -> None:
    for kind in MESSAGES:
        try:
            kind.parse(message)
        except ScramMessageError:
            pass


def test_a_long_message_is_refused_at_once() -> None:
    for kind in MESSAGES:
        with pytest.raises(ScramMessageError):
            kind.parse(b"n,,n=" + b"a" * 20_000 + b",r=b")


def test_no_repr_has_a_secret() -> None:
    shown = repr(ServerFirst.parse(b"r=ab,s=c2FsdA==,i=4096")) + repr(
        ClientFinal.parse(b"c=biws,r=ab,p=cHJvb2Y=")
    )
    shown += repr(ServerFinal.parse(b"v=c2lnbmF0dXJl"))
    for secret in ("salt", "c2FsdA", "proof", "cHJvb2Y", "signature=b", "c2lnbmF0dXJl"):
        assert secret not in shown
