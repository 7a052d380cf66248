"""PEM text in the forms in which people give it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives import serialization

from aiokq.connection.tls.pem import certificates_in, key_in
from tests.peers.pki import Pki

IDENTITY = Pki(intermediate=True).issue()


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", " "),
        lambda text: text.replace("\n", "\\n"),
        lambda text: text.replace("\n", ""),
        lambda text: "Bag Attributes\n    friendlyName: kafka\n" + text + "the end",
    ],
    ids=["lines", "windows", "blanks", "escaped", "packed", "text around"],
)
def test_line_breaks_and_text_around_do_not_matter(change: Callable[[str], str]) -> None:
    """Property files and environment variables often have one line."""
    text = change(IDENTITY.key + IDENTITY.chain)
    assert certificates_in(text)[0] == IDENTITY.der
    assert len(certificates_in(text)) == 2
    assert key_in(text).text.strip() == IDENTITY.key.strip()


def test_an_encrypted_key_is_recognised_in_both_formats() -> None:
    """Otherwise OpenSSL would ask for the password on the terminal."""
    assert not key_in(IDENTITY.key).is_encrypted
    assert key_in(IDENTITY.encrypted_key("secret")).is_encrypted
    older = IDENTITY.key_as(serialization.PrivateFormat.TraditionalOpenSSL, "secret")
    assert "Proc-Type" in older
    assert key_in(older).is_encrypted
    assert "Proc-Type: 4,ENCRYPTED\n" in key_in(older).text


def test_a_key_is_in_no_repr() -> None:
    """Reprs are logged."""
    assert "PRIVATE" not in repr(key_in(IDENTITY.key))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no '-----BEGIN CERTIFICATE"),
        (IDENTITY.key, "has no '-----BEGIN CERTIFICATE"),
        (IDENTITY.chain[:-10], "cut off"),
        (IDENTITY.chain[:300], "cut off"),
        ("-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----", "base64"),
    ],
)
def test_text_without_complete_certificates_is_refused(text: str, reason: str) -> None:
    """A file that is half written must not count as a shorter chain."""
    with pytest.raises(ValueError, match=reason):
        certificates_in(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (IDENTITY.chain, "has no '-----BEGIN PRIVATE KEY"),
        (IDENTITY.key * 2, "has 2 private keys"),
        (IDENTITY.key[:-10], "cut off"),
    ],
)
def test_text_without_exactly_one_key_is_refused(text: str, reason: str) -> None:
    """Kafka demands one key, too."""
    with pytest.raises(ValueError, match=reason):
        key_in(text)
