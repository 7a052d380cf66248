"""`failure`: an error of TLS that this package has found, and not OpenSSL."""

from __future__ import annotations

import ssl

__all__ = ["failure"]


def failure(text: str) -> ssl.SSLError:
    """Return an error with the attributes that those of OpenSSL have.

    An SSLError that Python code creates has no attribute `reason`.
    """
    error = ssl.SSLError(ssl.SSL_ERROR_SSL, text)
    error.reason = ""
    return error
