"""`VerifiedChains`: the expiry of the certificates of clients that may resume a session.

OpenSSL verifies a client's certificate in a full handshake only. TLS 1.3 resumes no session on a
listener that asks for certificates, because such a listener sends no tickets. TLS 1.2 resumes
sessions by tickets and from OpenSSL's cache, and Python can turn off only the tickets. Therefore a
client may resume a session only while the chain of its last full handshake is valid.

Tests: tests/unit/connection/tls/test_verified_chains.py, tests/fault/test_tls_faults.py.
"""

from __future__ import annotations

import hashlib
import ssl
import time
from typing import Any, Final

from aiokq.connection.tls.certificate import Certificate
from aiokq.connection.tls.failure import failure

__all__ = ["MAX_CERTIFICATES", "VerifiedChains"]

MAX_CERTIFICATES: Final = 10_000
"""Maximum number of clients' certificates that are remembered.

The client of a forgotten certificate has to do a full handshake.
"""


class VerifiedChains:
    """The expiry times of clients' certificate chains."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends: dict[bytes, int] = {}

    def check(self, tls: ssl.SSLObject) -> None:
        """With TLS 1.2, remember when the client's certificate chain expires.

        If the session was resumed, check that the chain has not expired. With TLS 1.3, or without
        a certificate, do nothing.

        Args:
            tls: a server's object whose handshake is complete, and which asked for a certificate.

        Raises:
            ssl.SSLError: the certificate chain has expired, is not remembered, or cannot be read.
        """
        if tls.version() == "TLSv1.3":
            return
        own = tls.getpeercert(binary_form=True)
        if own is None:  # the client has no certificate, which the listener does not require
            return
        key = hashlib.sha256(own).digest()
        if not tls.session_reused:
            self._ends.pop(key, None)
            try:
                ends = [Certificate.of(each).not_after for each in _chain(tls, own)]
            except ValueError as error:  # OpenSSL accepts it, but `Certificate` cannot read it
                raise failure(f"a certificate of the client cannot be read: {error}") from None
            self._ends[key] = min(ends)
            if len(self._ends) > MAX_CERTIFICATES:
                del self._ends[next(iter(self._ends))]
            return
        end = self._ends.get(key)
        if end is None:
            raise failure("the client's session is too old: it must do a full handshake")
        # OpenSSL, too, checks the validity of certificates by the system's clock.
        if time.time() > end:
            raise failure("the client's certificate has expired since its session began")


def _chain(tls: ssl.SSLObject, own: bytes) -> list[bytes]:
    """Return the DER forms of the certificates that OpenSSL has verified."""
    if hasattr(tls, "get_verified_chain"):  # public since Python 3.13
        return [own, *tls.get_verified_chain()]
    inner: Any = tls._sslobj  # type: ignore[attr-defined]
    import _ssl

    form: int = _ssl.ENCODING_DER
    return [own, *(each.public_bytes(form) for each in inner.get_verified_chain() or ())]
