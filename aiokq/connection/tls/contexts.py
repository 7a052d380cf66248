"""Makes SSL contexts of clients and servers from `TlsSettings`."""

from __future__ import annotations

import logging
import ssl
from typing import Final

from aiokq.connection.tls.cipher_suites import choose_suites
from aiokq.connection.tls.key_loading import load_key
from aiokq.connection.tls.stores import KeyMaterial, read_key_store, read_trust_store
from aiokq.connection.tls.tls_settings import TlsSettings
from aiokq.core.named_tuple import NamedTuple

__all__ = ["Made", "client_context", "server_context"]

logger = logging.getLogger("aiokq.connection")

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_OLD_VERSIONS: Final = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1")
_PROTOCOLS: Final = ("TLS", *_VERSIONS)

_VERIFY_MODES: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class Made(NamedTuple):
    """A context, and the key material that was loaded into it."""

    context: ssl.SSLContext
    material: KeyMaterial | None


def client_context(settings: TlsSettings) -> Made:
    """Return a context for connections to brokers.

    Without a trust store, the system's certificate authorities are trusted.

    Raises:
        ConfigError: a setting is not valid, or a file cannot be used.
    """
    settings.check()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_host
    _trust(context, settings, ssl.Purpose.SERVER_AUTH)
    return _finished(context, settings)


def server_context(settings: TlsSettings) -> Made:
    """Return a context for a listener.

    Raises:
        ConfigError: a setting is not valid, a file cannot be used, there is no key store, or the
            listener asks for client certificates without a trust store.
    """
    settings.check()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    client_auth = settings.client_auth.lower()
    context.verify_mode = _VERIFY_MODES[client_auth]
    if context.verify_mode is ssl.CERT_NONE:
        context.num_tickets = 1
    else:
        # A ticket would admit a client whose certificate has expired since the full handshake.
        context.num_tickets = 0
        if not settings.has_truststore:
            # Without a trust store, Kafka trusts all public certificate authorities, so anybody
            # with a public certificate can log in.
            raise settings.error(
                "ssl.client.auth",
                f"{client_auth!r} needs {settings.spelled('ssl.truststore.location')} with the "
                "authorities of the clients' certificates",
            )
        _trust(context, settings, ssl.Purpose.CLIENT_AUTH)
    made = _finished(context, settings)
    if made.material is None:
        raise settings.error("ssl.keystore.location", "a listener with TLS needs a key store")
    return made


def _trust(context: ssl.SSLContext, settings: TlsSettings, purpose: ssl.Purpose) -> None:
    trusted = read_trust_store(settings)
    if trusted is None:
        context.load_default_certs(purpose)
        return
    # As in Java, each certificate of the store is trusted, even if it is not a root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=b"".join(trusted))
    except ssl.SSLError as error:
        name = "ssl.truststore.location"
        if settings.truststore_certificates is not None:
            name = "ssl.truststore.certificates"
        raise settings.error(name, f"it cannot be used: {error.reason or error}") from None


def _finished(context: ssl.SSLContext, settings: TlsSettings) -> Made:
    """Set versions, cipher suites and key.

    Raises:
        ConfigError: a setting is not valid, or the key cannot be used.
    """
    _set_versions(context, settings)
    try:
        choose_suites(context, settings.cipher_suites)
    except ValueError as error:
        raise settings.error("ssl.cipher.suites", error) from None
    if context.minimum_version > context.maximum_version:
        raise settings.error(
            "ssl.cipher.suites",
            f"the suites fit no version of {settings.spelled('ssl.enabled.protocols')}",
        )
    material = read_key_store(settings)
    if material is None:
        return Made(context, None)
    name = "ssl.keystore.location"
    if settings.keystore_key is not None:
        name = "ssl.keystore.key"
    try:
        load_key(context, material)
    except ssl.SSLError as error:
        raise settings.error(name, _key_error(settings, material, error)) from None
    except OSError as error:
        raise settings.error(name, error.strerror or error) from error
    return Made(context, material)


def _key_error(settings: TlsSettings, material: KeyMaterial, error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the private key is not the key of the first certificate"
    if material.password is not None:
        return (
            f"the private key cannot be decrypted with {settings.spelled('ssl.key.password')}: "
            f"{error.reason or 'wrong password'}"
        )
    return f"key or certificate cannot be used: {error.reason or error}"


def _set_versions(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if settings.protocol not in _PROTOCOLS:
        raise settings.error(
            "ssl.protocol", f"{settings.protocol!r} is not one of {', '.join(_PROTOCOLS)}"
        )
    names = settings.enabled_protocols
    if not names:  # as in Java: all versions up to that of ssl.protocol
        names = ("TLSv1.2",) if settings.protocol == "TLSv1.2" else tuple(_VERSIONS)
    spelled = settings.spelled("ssl.enabled.protocols")
    for name in names:
        if name not in (*_VERSIONS, *_OLD_VERSIONS):
            raise settings.error(
                "ssl.enabled.protocols", f"{name!r} is not one of {', '.join(_VERSIONS)}"
            )
    if old := [name for name in names if name in _OLD_VERSIONS]:
        logger.warning("%s: %s is insecure and stays off, as in Java 17", spelled, ", ".join(old))
    versions = [_VERSIONS[name] for name in names if name in _VERSIONS]
    if not versions:
        raise settings.error("ssl.enabled.protocols", f"enable one of {', '.join(_VERSIONS)}")
    context.minimum_version = min(versions)
    context.maximum_version = max(versions)
