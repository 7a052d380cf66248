"""A private certificate authority and its certificates, for `aiokq broker --secure`.

This module needs the package cryptography, and is imported only to make certificates.

Tests: ``tests/unit/broker/test_secure_directory.py``.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from aiokq.core.named_tuple import NamedTuple

__all__ = ["Authority", "IssuedCertificate", "issue", "issued_certificate", "new_authority"]

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 90

EARLIER: Final = datetime.timedelta(hours=1)
"""Certificates become valid this long before they are made, because clocks differ."""

LONGEST_NAME: Final = 64
"""Maximum number of characters of a common name (RFC 5280, appendix A)."""


class Authority(NamedTuple):
    """A certificate authority, as PEM text.

    Attributes:
        key: its private key, unencrypted PKCS#8.
        certificate: its certificate.
    """

    key: bytes
    certificate: bytes

    def __repr__(self) -> str:
        return "<Authority>"


class IssuedCertificate(NamedTuple):
    """The names, expiry and issuer check of a certificate.

    Attributes:
        names: the host names and addresses in the certificate.
        expires_ms: the end of its validity, in milliseconds since 1970; 0 if it has no names.
        issuer_matches: whether the authority has signed it.
    """

    names: frozenset[str]
    expires_ms: int
    issuer_matches: bool


def new_authority(now_ms: int) -> Authority:
    """Return a new authority, valid for ten years."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "aiokq certificate authority")])
    public = key.public_key()
    certificate = (
        _builder(name, name, public, now_ms, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(_key_text(key), certificate.public_bytes(serialization.Encoding.PEM))


def issue(authority: Authority, names: Sequence[str], now_ms: int) -> bytes:
    """Return a new private key, its certificate and the authority's certificate, as PEM text.

    The certificate is valid for 90 days.

    Args:
        names: host names and numeric addresses, at least one.

    Raises:
        ValueError: the authority's key cannot be read, or does not belong to its certificate.
    """
    signer = serialization.load_pem_private_key(authority.key, password=None)
    own = x509.load_pem_x509_certificate(authority.certificate)
    if not isinstance(signer, ec.EllipticCurvePrivateKey) or signer.public_key() != (
        own.public_key()
    ):
        raise ValueError("the key of the authority does not belong to its certificate")
    key = ec.generate_private_key(ec.SECP256R1())
    short = next((name for name in names if len(name) <= LONGEST_NAME), "aiokq")
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, short)])
    certificate = (
        _builder(subject, own.subject, key.public_key(), now_ms, CERTIFICATE_DAYS)
        .add_extension(x509.SubjectAlternativeName(list(map(_general_name, names))), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(
            # A broker is also a client of other brokers.
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            critical=False,
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    own_text = certificate.public_bytes(serialization.Encoding.PEM)
    return _key_text(key) + own_text + authority.certificate


def issued_certificate(text: bytes, authority: bytes) -> IssuedCertificate:
    """Return the names, expiry and issuer check of the first certificate in a PEM text.

    Args:
        authority: the certificate of the authority.

    Raises:
        ValueError: a text has no certificate.
    """
    certificate = x509.load_pem_x509_certificates(text)[0]
    own = x509.load_pem_x509_certificate(authority)
    try:
        certificate.verify_directly_issued_by(own)
        matches = True
    except Exception:  # noqa: BLE001 - the library raises several kinds of errors
        matches = False
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return IssuedCertificate(frozenset(), 0, matches)
    names = [*found.get_values_for_type(x509.DNSName)]
    names += map(str, found.get_values_for_type(x509.IPAddress))
    expires = certificate.not_valid_after_utc.timestamp() * 1000
    return IssuedCertificate(frozenset(names), int(expires), matches)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now_ms: int,
    days: int,
) -> x509.CertificateBuilder:
    now = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_text(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,  # the format that Kafka reads
        serialization.NoEncryption(),
    )
