"""A public key infrastructure for tests, made in this process in milliseconds."""

from __future__ import annotations

import datetime
import ipaddress
import itertools
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Identity", "Pki"]

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Identity:
    """A private key and its certificates, in every form that aiokq and Kafka take."""

    def __init__(self, key: Key, chain: list[x509.Certificate]) -> None:
        self.private_key = key
        self.certificates = chain

    @property
    def chain(self) -> str:
        """The certificates as PEM text, the own one first."""
        pem = serialization.Encoding.PEM
        return "".join(each.public_bytes(pem).decode() for each in self.certificates)

    @property
    def der(self) -> bytes:
        """The own certificate."""
        return self.certificates[0].public_bytes(serialization.Encoding.DER)

    @property
    def key(self) -> str:
        """The private key as PEM text (PKCS#8)."""
        return self.key_as(serialization.PrivateFormat.PKCS8)

    def key_as(self, form: serialization.PrivateFormat, password: str | None = None) -> str:
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        return self.private_key.private_bytes(serialization.Encoding.PEM, form, encryption).decode()

    def encrypted_key(self, password: str) -> str:
        return self.key_as(serialization.PrivateFormat.PKCS8, password)

    def pkcs12(self, password: str, *, with_chain: bool = True) -> bytes:
        """A key store."""
        return pkcs12.serialize_key_and_certificates(
            b"kafka",
            self.private_key,
            self.certificates[0],
            list(reversed(self.certificates[1:])) if with_chain else None,
            serialization.BestAvailableEncryption(password.encode()),
        )

    def write(self, directory: Path, name: str) -> Path:
        """Write a PEM file with key and certificates, as Java takes it."""
        path = directory / f"{name}.pem"
        path.write_text(self.key + self.chain)
        return path


class Pki:
    """A root, an authority below it, and the certificates that the authority issues."""

    _serial = itertools.count(1)

    def __init__(self, name: str = "aiokq tests", *, intermediate: bool = False) -> None:
        self._key: Key = _new_key()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.root = self._sign(subject, subject, self._key, self._key, authority=True)
        self._signer = self.root
        self._above: list[x509.Certificate] = []
        if intermediate:
            key = _new_key()
            below = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} below")])
            self._signer = self._sign(below, subject, key, self._key, authority=True)
            self._key = key
            self._above = [self._signer]

    @property
    def trusted(self) -> str:
        """The root as PEM text."""
        return self.root.public_bytes(serialization.Encoding.PEM).decode()

    def trust_store(self, password: str) -> bytes:
        """The root as a PKCS12 trust store."""
        return pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(self.root, b"root")],
            serialization.BestAvailableEncryption(password.encode()),
        )

    def issue(
        self,
        name: str | x509.Name = "localhost",
        *alternatives: str,
        days: float = 30,
        uses_rsa: bool = False,
    ) -> Identity:
        """Issue a certificate.

        Args:
            name: common name, or a whole name.
            alternatives: host names and addresses; "localhost" and "127.0.0.1" if there are none.
            days: days until the certificate expires; negative if it has expired.
        """
        key: Key = rsa.generate_private_key(65537, 2048) if uses_rsa else _new_key()
        if isinstance(name, str):
            name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        own = self._sign(
            name,
            self._signer.subject,
            key,
            self._key,
            alternatives=alternatives or ("localhost", "127.0.0.1"),
            days=days,
        )
        return Identity(key, [own, *self._above])

    def _sign(
        self,
        subject: x509.Name,
        issuer: x509.Name,
        key: Key,
        signer: Key,
        *,
        alternatives: tuple[str, ...] = (),
        authority: bool = False,
        days: float = 30,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        begin = now - datetime.timedelta(days=60)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(next(self._serial))
            .not_valid_before(begin)
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if alternatives:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(each) for each in alternatives]),
                critical=False,
            ).add_extension(
                x509.ExtendedKeyUsage(
                    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
                ),
                critical=False,
            )
        return builder.sign(signer, hashes.SHA256())


def context_of(
    identity: Identity | None, trusted: str | None, directory: Path, *, server: bool
) -> ssl.SSLContext:
    """Return a context by Python's own means, as other programs make it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    if trusted is not None:
        context.load_verify_locations(cadata=trusted)
    if identity is not None:
        context.load_cert_chain(identity.write(directory, f"own-{id(identity)}"))
    return context


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
