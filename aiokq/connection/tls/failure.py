"""TLS errors that this package raises, not OpenSSL."""

from __future__ import annotations

import ssl

__all__ = ["ClosedInHandshake", "failure"]


class ClosedInHandshake(ConnectionResetError):
    """The peer closed the connection in the TLS handshake; its listener may not use TLS."""


def failure(text: str) -> ssl.SSLError:
    """Return an SSLError with the attributes of OpenSSL's errors.

    An SSLError that Python code creates has no attribute `reason`.
    """
    error = ssl.SSLError(ssl.SSL_ERROR_SSL, text)
    error.reason = ""
    return error
