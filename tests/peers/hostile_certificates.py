"""Certificates that a server must not let in, or that would be expensive to check carelessly."""

from __future__ import annotations

import datetime
import functools
import math
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

__all__ = ["DAY", "Issuer", "chain_of", "issue", "large_rsa_key", "slow_chain", "write"]

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

DAY = datetime.timedelta(days=1)


@dataclass
class Issuer:
    """A certificate with its key, and the certificates between it and the root."""

    key: Key
    certificate: x509.Certificate
    above: list[x509.Certificate] = field(default_factory=list)


def issue(
    issuer: Issuer | None,
    name: str = "mallory",
    *,
    key: Key | None = None,
    authority: bool = False,
    begin: datetime.timedelta = -DAY,
    end: datetime.timedelta = DAY,
    purposes: tuple[ObjectIdentifier, ...] = (ExtendedKeyUsageOID.CLIENT_AUTH,),
    alternatives: tuple[str, ...] = (),
) -> Issuer:
    """Issue a certificate.

    Args:
        issuer: None for a certificate that is signed with its own key.
        begin, end: its validity, from now on.
        alternatives: host names, which may be none.
    """
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begin)
        .not_valid_after(now + end)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if not authority:
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    if alternatives:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(each) for each in alternatives]),
            critical=False,
        )
    signer = key if issuer is None else issuer.key
    above = [] if issuer is None else [issuer.certificate, *issuer.above]
    return Issuer(key, builder.sign(signer, hashes.SHA256()), above)


def chain_of(length: int, root: Issuer) -> Issuer:
    """Issue a certificate with `length` authorities between it and the root."""
    for number in range(length):
        root = issue(root, f"authority {number}", authority=True, end=DAY / 2)
    return issue(root)


def slow_chain(issuer: Issuer, nbytes: int) -> Issuer:
    """Issue a certificate with many small ones above it, each of which is slow to read.

    Its key is a compressed point of a curve on which OpenSSL needs half a millisecond to compute
    the other coordinate. No signature is valid.

    Args:
        nbytes: the size of all those certificates.
    """
    identity = issue(issuer)
    curve = ec.generate_private_key(ec.SECP224R1()).public_key()
    point = curve.public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint
    )
    ecdsa_with_sha256 = _der(0x30, bytes.fromhex("06082a8648ce3d040302"))
    public_key_on_secp224r1 = _der(0x30, bytes.fromhex("06072a8648ce3d020106052b81040021"))
    time = _der(0x17, b"260101000000Z")
    body = _der(
        0x30,
        _der(2, b"\1"),  # serial number
        ecdsa_with_sha256,
        _der(0x30),  # no names
        _der(0x30, time, time),
        _der(0x30),
        _der(0x30, public_key_on_secp224r1, _der(3, b"\0" + point)),
    )
    encoded = _der(0x30, body, ecdsa_with_sha256, _der(3, b"\0\0"))
    small = x509.load_der_x509_certificate(encoded)
    count = nbytes // len(encoded)
    return Issuer(identity.key, identity.certificate, [*[small] * count, *identity.above])


def _der(tag: int, *parts: bytes) -> bytes:
    """Return a value in DER, of less than 256 bytes."""
    body = b"".join(parts)
    size = bytes([len(body)]) if len(body) < 128 else bytes([0x81, len(body)])
    return bytes([tag]) + size + body


def write(identity: Issuer, path: Path) -> Path:
    """Write a PEM file with the key and all certificates but the root's."""
    pem = serialization.Encoding.PEM
    key = identity.key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    certificates = [identity.certificate, *identity.above[:-1]]
    path.write_bytes(key + b"".join(each.public_bytes(pem) for each in certificates))
    return path


@functools.cache
def large_rsa_key(bits: int = 16_384) -> rsa.RSAPrivateKey:
    """Return an RSA key whose two factors have several prime factors each.

    The formulas hold for such factors, too, and primes of 1,024 bits are found in milliseconds.
    Primes of 8,192 bits take minutes.
    """
    primes: list[int] = []
    while len(primes) < bits // 1024:
        numbers = rsa.generate_private_key(65537, 2048).private_numbers()
        primes += [numbers.p, numbers.q]
    half = len(primes) // 2
    p, q = math.prod(primes[:half]), math.prod(primes[half:])
    order_p = math.lcm(*(each - 1 for each in primes[:half]))
    order_q = math.lcm(*(each - 1 for each in primes[half:]))
    d = pow(65537, -1, math.lcm(order_p, order_q))
    numbers = rsa.RSAPrivateNumbers(
        p=p,
        q=q,
        d=d,
        dmp1=d % order_p,
        dmq1=d % order_q,
        iqmp=pow(q, -1, p),
        public_numbers=rsa.RSAPublicNumbers(65537, p * q),
    )
    return numbers.private_key(unsafe_skip_rsa_key_validation=True)
