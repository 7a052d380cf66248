"""Key and trust stores: reads keys and certificates from PEM files and text, and from PKCS12 files.

`KeyMaterial` and certificates are held in memory; `contexts.py` gives them to OpenSSL.

Source: Kafka `DefaultSslEngineFactory.java`.
"""

from __future__ import annotations

import os
import shlex
import ssl
from typing import TYPE_CHECKING, Final

from aiokq.connection.tls.certificate import Certificate
from aiokq.connection.tls.pem import certificates_in, key_in
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.regular_files import open_regular

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

    from aiokq.connection.tls.tls_settings import TlsSettings

__all__ = ["KeyMaterial", "read_file", "read_key_store", "read_trust_store"]

_MAX_BYTES: Final = 16 * 1024 * 1024
"""Length of the longest file that is read."""

_JKS: Final = b"\xfe\xed\xfe\xed"
_JCEKS: Final = b"\xce\xce\xce\xce"


class KeyMaterial(NamedTuple):
    """A private key with its certificates.

    Attributes:
        certificates: DER forms, the key's own certificate first.
        key: the private key as PEM text.
        password: password of the key; None if the key is not encrypted.
    """

    certificates: tuple[bytes, ...]
    key: str
    password: str | None

    def __repr__(self) -> str:
        return f"KeyMaterial({len(self.certificates)} certificates)"

    @property
    def chain(self) -> str:
        """The certificates as PEM text."""
        return "".join(map(ssl.DER_cert_to_PEM_cert, self.certificates))


def read_key_store(settings: TlsSettings) -> KeyMaterial | None:
    """Read the key and its certificates; return None if no key store is set.

    Raises:
        ConfigError: a file cannot be read, its content does not match its store type, it has no
            usable key or certificate, a password is missing or wrong, or the package cryptography
            is missing, which PKCS12 needs.
    """
    if settings.keystore_key is not None:
        assert settings.keystore_certificate_chain is not None  # checked by TlsSettings.check
        name = "ssl.keystore.certificate.chain"
        try:
            certificates = certificates_in(settings.keystore_certificate_chain)
            name = "ssl.keystore.key"
            return _pem_key(settings, certificates, settings.keystore_key)
        except ValueError as error:
            raise settings.error(name, error) from None
    path = settings.keystore_location
    if path is None:
        return None
    data = read_file(settings, "ssl.keystore.location", path)
    if settings.keystore_type.upper() != "PEM":
        return _pkcs12_key(settings, path, data)
    name = "ssl.keystore.location"
    try:
        text = _text(data)
        certificates = certificates_in(text)
        if settings.key_location is not None:
            name, path = "ssl.key.location", settings.key_location
            text = _text(read_file(settings, name, path))
        return _pem_key(settings, certificates, text)
    except ValueError as error:
        raise settings.error(name, f"{path!r}: {error}") from None


def read_trust_store(settings: TlsSettings) -> tuple[bytes, ...] | None:
    """Read the DER forms of the trusted certificates; return None if no trust store is set.

    Raises:
        ConfigError: a file cannot be read, its content does not match its store type, it has no
            certificates, its password is wrong, or the package cryptography is missing, which
            PKCS12 needs.
    """
    if settings.truststore_certificates is not None:
        try:
            return tuple(certificates_in(settings.truststore_certificates))
        except ValueError as error:
            raise settings.error("ssl.truststore.certificates", error) from None
    path = settings.truststore_location
    if path is None:
        return None
    name = "ssl.truststore.location"
    data = read_file(settings, name, path)
    if settings.truststore_type.upper() != "PEM":
        return _pkcs12_certificates(settings, path, data)
    try:
        return tuple(certificates_in(_text(data)))
    except ValueError as error:
        raise settings.error(name, f"{path!r}: {error}") from None


def read_file(settings: TlsSettings, name: str, path: str) -> bytes:
    """Return the content of a file.

    The files of a listener must be regular files, because an administrator can name them in a
    request: reading a FIFO or a device may never end.

    Raises:
        ConfigError: the file cannot be read, or is too large.
    """
    try:
        opened: str | int = path
        if settings.keeps_identity:
            opened, _ = open_regular(path, os.O_RDONLY)
        with open(opened, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise settings.error(name, f"{path!r}: {error.strerror or error}") from error
    except ValueError:  # a NUL character, or half of a surrogate pair
        raise settings.error(name, f"{path!r} is not a path") from None
    if len(data) > _MAX_BYTES:
        raise settings.error(name, f"{path!r} has more than {_MAX_BYTES:,} bytes")
    return data


def _text(data: bytes) -> str:
    """Return the content of a PEM file.

    Raises:
        ValueError: the file is a binary key store, such as JKS or PKCS12.
    """
    if data.startswith((_JKS, _JCEKS)) or data[:2] in (b"\x30\x82", b"\x30\x80"):
        raise ValueError("it is not PEM but a key store: set its type to PKCS12 or JKS")
    return data.decode("latin-1")  # other text may surround the certificates


def _pem_key(settings: TlsSettings, certificates: list[bytes], text: str) -> KeyMaterial:
    key = key_in(text)
    _check_certificates(certificates)
    if key.is_encrypted and settings.key_password is None:
        raise ValueError(
            f"the private key is encrypted: set {settings.spelled('ssl.key.password')}"
        )
    password = settings.key_password if key.is_encrypted else None
    return KeyMaterial(tuple(certificates), key.text, password)


def _check_certificates(certificates: list[bytes]) -> None:
    for der in certificates:
        Certificate.of(der)


def _pkcs12_key(settings: TlsSettings, path: str, data: bytes) -> KeyMaterial:
    name = "ssl.keystore"
    found = _load_pkcs12(settings, name, path, data, settings.keystore_password)
    from cryptography.hazmat.primitives import serialization

    if found.key is None or found.cert is None:
        raise settings.error(f"{name}.location", f"{path!r} has no private key with a certificate")
    key = found.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    der = serialization.Encoding.DER
    others = [each.certificate.public_bytes(der) for each in found.additional_certs]
    chain = _in_order(found.cert.certificate.public_bytes(der), others)
    return KeyMaterial(chain, key, None)


def _pkcs12_certificates(settings: TlsSettings, path: str, data: bytes) -> tuple[bytes, ...]:
    name = "ssl.truststore"
    found = _load_pkcs12(settings, name, path, data, settings.truststore_password)
    from cryptography.hazmat.primitives import serialization

    der = serialization.Encoding.DER
    certificates = [each.certificate.public_bytes(der) for each in found.additional_certs]
    if found.cert is not None:
        certificates.append(found.cert.certificate.public_bytes(der))
    if not certificates:
        raise settings.error(f"{name}.location", f"{path!r} has no certificates")
    return tuple(certificates)


def _load_pkcs12(
    settings: TlsSettings, name: str, path: str, data: bytes, password: str | None
) -> PKCS12KeyAndCertificates:
    location = f"{name}.location"
    if data.startswith((_JKS, _JCEKS)):
        kind = "JKS" if data.startswith(_JKS) else "JCEKS"
        target = f"{os.path.splitext(path)[0]}.p12"
        raise settings.error(
            location,
            f"{path!r} is a store of Java's format {kind}, which cannot be read. Convert it: "
            f"keytool -importkeystore -srckeystore {shlex.quote(path)} -srcstoretype {kind} "
            f"-destkeystore {shlex.quote(target)} -deststoretype PKCS12, and set "
            f"{settings.spelled(f'{name}.type')}=PKCS12 and "
            f"{settings.spelled(location)}={target}",
        )
    if data.lstrip().startswith(b"-----BEGIN"):
        raise settings.error(
            location, f"{path!r} is PEM: set {settings.spelled(f'{name}.type')}=PEM"
        )
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise settings.error(
            location,
            f"{path!r}: PKCS12 needs the package cryptography (pip install 'aiokq[tls]')",
        ) from None
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        raise settings.error(
            location,
            f"{path!r} cannot be read as PKCS12 with {settings.spelled(f'{name}.password')}: "
            f"{error}",
        ) from None


def _in_order(own: bytes, others: list[bytes]) -> tuple[bytes, ...]:
    """Return the chain from `own` to its authority; `others` have any order, as in PKCS12."""
    chain = [own]
    left = {Certificate.of(der).subject: der for der in others}
    while (issuer := left.pop(Certificate.of(chain[-1]).issuer, None)) is not None:
        chain.append(issuer)
    return tuple(chain)
