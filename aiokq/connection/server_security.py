"""`ServerSecurity`: the TLS and SASL configuration of a server and the first state of its sessions.

The broker builds one for each listener. The handlers do the SASL exchange.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiokq.connection.principal import ANONYMOUS, Principal
from aiokq.connection.request_context import RequestContext, SessionState
from aiokq.core.errors import AuthenticationFailed
from aiokq.core.frozen import frozen

if TYPE_CHECKING:
    import asyncio

    from aiokq.connection.tls.tls_contexts import TlsContexts
    from aiokq.core.offload import Offload

__all__ = ["PLAINTEXT_SERVER", "ServerSecurity"]

_HANDSHAKE: Final = SessionState.HANDSHAKE


@frozen
class ServerSecurity:
    """The authentication that a server requires before it handles requests.

    Attributes:
        tls: gives the contexts of the connections; None without TLS.
        sasl: whether clients must log in by SASL, which then gives the principal.
        principal_of: returns the principal of a client with TLS but without SASL. The argument is
            the DER form of the client's certificate, or None if the client has no certificate.
        handshake_timeout: seconds from the accept until TLS and SASL must be complete
            (`handshake.timeout.ms`).
        offload: reads changed certificates outside the loop; None to read them on the loop.
        failed: called with the connection, "SSL" and the reason if a TLS handshake fails, or no
            mapping rule applies to the certificate.
    """

    tls: TlsContexts | None = None
    sasl: bool = False
    principal_of: Callable[[bytes | None], Principal] = lambda certificate: ANONYMOUS
    handshake_timeout: float = 30.0
    offload: Offload | None = None
    failed: Callable[[RequestContext, str, str], None] | None = None

    @property
    def contexts(self) -> Callable[[], ssl.SSLContext] | None:
        """A function that returns the TLS context of the next connection; None without TLS."""
        tls = self.tls
        return None if tls is None else lambda: tls.context

    def prepare(self, context: RequestContext) -> None:
        """Set the session state of a new connection, before its transport exists."""
        context.is_tls = self.tls is not None
        if self.sasl:
            context.session.state = _HANDSHAKE

    def connected(self, context: RequestContext, transport: asyncio.Transport) -> None:
        """Set the principal of a client whose TLS handshake is complete.

        Raises:
            AuthenticationFailed: no mapping rule applies to the client's certificate.
        """
        if self.tls is None or self.sasl:
            return
        tls_object: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        assert tls_object is not None
        try:
            context.session.principal = self.principal_of(tls_object.getpeercert(binary_form=True))
        except AuthenticationFailed as error:
            if self.failed is not None:
                self.failed(context, "SSL", str(error.args[0]))
            raise

    def handshake_failed(self, context: RequestContext, error: BaseException | None) -> None:
        """Report a handshake that failed with an error of TLS; ignore other errors."""
        if self.failed is None or not isinstance(error, ssl.SSLError):
            return
        if isinstance(error, ssl.SSLCertVerificationError):
            reason = f"the certificate was refused: {error.verify_message}"
        else:
            reason = (error.reason or str(error.strerror)).lower().replace("_", " ")
        self.failed(context, "SSL", f"TLS handshake failed: {reason}")


PLAINTEXT_SERVER = ServerSecurity()
"""A server without TLS and SASL."""
