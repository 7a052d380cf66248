"""Security: the TLS and SASL configuration of a client's connections."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from aiokq.core.errors import AuthenticationFailed, ConfigError, ConnectionLost, KafkaError
from aiokq.core.frozen import frozen

if TYPE_CHECKING:
    from aiokq.connection.sasl.mechanism import MechanismFactory
    from aiokq.connection.tls.tls_contexts import TlsContexts

__all__ = ["PLAINTEXT", "SECURITY_PROTOCOLS", "Security", "security", "tls_error"]

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@frozen
class Security:
    """The TLS and SASL configuration of a client's connections.

    Attributes:
        tls: gives the contexts of TLS connections; `None` for plain TCP.
        mechanism: returns the SASL mechanism for a connection. Without SASL, `mechanism` is `None`.
        prepare: obtains what `mechanism` needs, such as a token, before the timeout of a connection
            attempt begins; `None` if `mechanism` needs nothing.
        server_hostname: host name for the check of the certificate and for SASL; `None` for the
            name that the client connects to.
    """

    tls: TlsContexts | None = None
    mechanism: MechanismFactory | None = None
    prepare: Callable[[], Awaitable[object]] | None = None
    server_hostname: str | None = None

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        """The current context of TLS connections; `None` for plain TCP."""
        return None if self.tls is None else self.tls.context

    @property
    def protocol(self) -> str:
        """The value of Kafka's `security_protocol`."""
        name = "PLAINTEXT" if self.tls is None else "SSL"
        return name if self.mechanism is None else f"SASL_{name}"


PLAINTEXT: Final = Security()


def security(
    security_protocol: str = "PLAINTEXT",
    *,
    ssl_context: ssl.SSLContext | TlsContexts | None = None,
    mechanism: MechanismFactory | None = None,
    prepare: Callable[[], Awaitable[object]] | None = None,
) -> Security:
    """Return the `Security` for the given settings.

    Args:
        security_protocol: one of `SECURITY_PROTOCOLS`.
        ssl_context: context for SSL and SASL_SSL, or a `TlsContexts`; None for the default context,
            which trusts the system's certificate authorities.
        mechanism: returns the SASL mechanism for a connection; required for SASL_PLAINTEXT and
            SASL_SSL.
        prepare: obtains what `mechanism` needs, such as a token, before a connection attempt.

    Raises:
        ConfigError: the protocol is unknown, `mechanism` is missing, or an argument does not belong
            to the protocol.
    """
    if security_protocol not in SECURITY_PROTOCOLS:
        known = ", ".join(SECURITY_PROTOCOLS)
        raise ConfigError(f"security_protocol={security_protocol!r} is not one of {known}")
    uses_tls = security_protocol.endswith("SSL")
    uses_sasl = security_protocol.startswith("SASL_")
    if ssl_context is not None and not uses_tls:
        wanted = "SASL_SSL" if uses_sasl else "SSL"
        raise ConfigError(
            f"an ssl_context is given, but security_protocol is {security_protocol}: set {wanted}"
        )
    if uses_sasl and mechanism is None:
        raise ConfigError(f"security_protocol={security_protocol} needs a sasl_mechanism")
    if mechanism is not None and not uses_sasl:
        wanted = "SASL_SSL" if uses_tls else "SASL_PLAINTEXT"
        raise ConfigError(
            f"SASL is set up, but security_protocol is {security_protocol}: set {wanted}"
        )
    tls = None
    if uses_tls:
        # Imported here, because most clients use no TLS, and each module delays their start.
        from aiokq.connection.tls.tls_contexts import TlsContexts

        if ssl_context is None:
            ssl_context = ssl.create_default_context()
        tls = (
            TlsContexts.fixed(ssl_context)
            if isinstance(ssl_context, ssl.SSLContext)
            else ssl_context
        )
    return Security(tls, mechanism, prepare)


def tls_error(error: ssl.SSLError, peer: str) -> KafkaError:
    """Return the error for a failed TLS handshake, with advice.

    If this side does not accept the peer's certificate, or the peer refuses the handshake, the
    error is `AuthenticationFailed`, because a retry does not help.
    """
    result: KafkaError
    if isinstance(error, ssl.SSLCertVerificationError):
        result = AuthenticationFailed(
            f"the certificate of {peer} is not accepted: {error.verify_message}; give the "
            "authority that signed it (ssl_cafile, ssl_truststore_location or ssl_context), and "
            "connect by a name that it is issued for",
            node=peer,
        )
    elif error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"):
        result = ConnectionLost(
            f"{peer} does not speak TLS: set security_protocol=PLAINTEXT (or SASL_PLAINTEXT), or "
            "use the broker's SSL port",
            may_have_been_written=False,
        )
    elif error.reason is not None and (
        "ALERT" in error.reason or "CERTIFICATE_REQUIRED" in error.reason
    ):
        result = AuthenticationFailed(
            f"{peer} refused the TLS handshake ({error.reason}); if it demands a client"
            " certificate, give one (ssl_certfile, ssl_keystore_location or ssl_context)",
            node=peer,
        )
    else:
        result = ConnectionLost(
            f"the TLS handshake with {peer} failed: {error.reason or error}",
            may_have_been_written=False,
        )
    result.__cause__ = error
    return result
