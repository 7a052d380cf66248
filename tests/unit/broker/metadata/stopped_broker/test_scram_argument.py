"""Values of `--add-scram`: credentials as Kafka derives them, and errors that tell no secret."""

from __future__ import annotations

import base64
import hashlib
import hmac
import random

import pytest

from aiokq.broker.metadata.stopped_broker.scram_argument import parse_scram_argument
from aiokq.core.errors import ConfigError
from aiokq.wire.principal_records import UserScramCredentialRecord


def parsed(text: str, seed: int = 0) -> UserScramCredentialRecord:
    return parse_scram_argument(text, random.Random(seed))


def test_the_keys_are_those_of_the_rfc() -> None:
    """RFC 7677 gives the keys' effect: the signature of the server in its example exchange."""
    found = parsed(
        "SCRAM-SHA-256=[name=user,password=pencil,salt=W22ZaJ0SNY7soEsUEjb6gQ==,iterations=4096]"
    )
    first = "n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    server = f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    message = f"{first},{server},c=biws,r={nonce}".encode()
    signature = hmac.digest(found.server_key, message, "sha256")
    assert base64.b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert (found.name, found.mechanism, found.iterations) == ("user", 1, 4096)


def test_a_salted_password_gives_the_keys_of_its_password() -> None:
    """Who has only the salted password can give that."""
    salted = hashlib.pbkdf2_hmac("sha512", b"alice-secret", b"salty", 5000)
    text = base64.b64encode(salted).decode()
    assert parsed(
        f'SCRAM-SHA-512=[name=alice,salt="c2FsdHk=",saltedpassword={text},iterations=5000]'
    ) == parsed("SCRAM-SHA-512=[name=alice,salt=c2FsdHk,password=alice-secret,iterations=5000]")


def test_a_missing_salt_is_random() -> None:
    """Equal passwords must not have equal keys."""
    text = "SCRAM-SHA-256=[name=alice,password=alice-secret]"
    one, other = parsed(text), parsed(text, seed=1)
    assert len(one.salt) == 20
    assert one.salt != other.salt
    assert one.stored_key != other.stored_key


def test_quotes_and_equals_signs_belong_to_values() -> None:
    """Only one pair of quotes around a value is removed, as in Kafka."""
    plain = parsed("SCRAM-SHA-256=[name=a,password=b=c,salt=c2FsdHk=]")
    assert plain == parsed(' SCRAM-SHA-256=[name="a",password="b=c",salt="c2FsdHk="] ')
    assert plain != parsed('SCRAM-SHA-256=[name=a,password=""b=c"",salt="c2FsdHk="]')
    assert parsed("SCRAM-SHA-256=[name=a,password=b,,]", 7) == parsed(
        "SCRAM-SHA-256=[name=a,password=b]", 7
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hush", "no equals sign"),
        ("", "no equals sign"),
        ("PLAIN=[name=a,password=hush]", "'PLAIN' is not supported"),
        ("SCRAM-SHA-256=name=a,password=hush", "square brackets"),
        ("SCRAM-SHA-256=[", "square brackets"),
        ("SCRAM-SHA-256=[]", "no equals sign"),
        ("SCRAM-SHA-256=[password=hush]", "no name"),
        ("SCRAM-SHA-256=[name=a]", "needs password or saltedpassword"),
        ("SCRAM-SHA-256=[name=a,password=]", "empty"),
        ('SCRAM-SHA-256=[name=a,salt=c2FsdHk,saltedpassword=""]', "needs password or"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=aHVzaA==]", "needs the salt"),
        ("SCRAM-SHA-256=[name=a,salt=c2FsdHk,saltedpassword=hush!]", "saltedpassword .* base64"),
        ("SCRAM-SHA-256=[name=a,salt=hush!,password=hush]", "salt .* not base64"),
        ("SCRAM-SHA-256=[name=a,salt=hüsh,password=hush]", "salt .* not base64"),
        ("SCRAM-SHA-256=[name=a,password=x,hush]", "a comma cannot be given"),
        ("SCRAM-SHA-256=[name=a,password=x,hush=1]", "unknown part"),
        ("SCRAM-SHA-256=[name=a,password=hush,iterations=4095]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=hush,iterations=16385]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=hush,iterations=-1]", "iterations .* invalid"),
        ("SCRAM-SHA-256=[name=a,password=hush\udce4]", "not valid UTF-8"),
    ],
)
def test_malformed_values_are_refused_without_their_secrets(text: str, message: str) -> None:
    """Messages end up in logs and in terminals that others see."""
    with pytest.raises(ConfigError, match=message) as caught:
        parsed(text)
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None or "iterations" in text
