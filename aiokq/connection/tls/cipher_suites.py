"""Cipher suites: translates Java's names, which Kafka's settings use, to OpenSSL's names."""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from typing import Final

__all__ = ["TLS_13_SUITES", "choose_suites"]

TLS_13_SUITES: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
)
"""The suites of TLS 1.3 that OpenSSL enables by default; Java's and OpenSSL's names are equal."""

_NAME: Final = re.compile(
    r"TLS_(ECDHE_ECDSA|ECDHE_RSA|DHE_RSA|RSA)_WITH_"
    r"(?:(AES_128|AES_256)_(GCM|CBC)_(SHA|SHA256|SHA384)|CHACHA20_POLY1305_SHA256)"
)


def choose_suites(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Let a context use the named cipher suites only.

    As in Java, a version of TLS without a named suite is turned off.

    Args:
        names: Java's or OpenSSL's names; if empty, the context is not changed.

    Raises:
        ValueError: a name is unknown, or the suites cannot be chosen.
    """
    if not names:
        return
    newest = [name for name in names if name in TLS_13_SUITES]
    older = [_openssl_name(name) for name in names if name not in TLS_13_SUITES]
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError:
            raise ValueError(f"OpenSSL has none of the suites {', '.join(older)}") from None
        known = {cipher["name"] for cipher in context.get_ciphers()}
        if missing := [name for name in older if name not in known]:
            raise ValueError(f"OpenSSL has no suite {missing[0]}")
        if not newest:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if newest and set(newest) != set(TLS_13_SUITES):
        choose = getattr(context, "set_ciphersuites", None)  # since Python 3.15
        if choose is None:
            raise ValueError(
                "this version of Python cannot choose among the suites of TLS 1.3: name all of "
                f"{', '.join(TLS_13_SUITES)}, or none of them, which turns TLS 1.3 off"
            )
        choose(":".join(newest))


def _openssl_name(name: str) -> str:
    found = _NAME.fullmatch(name)
    if found is None:
        if name.startswith("TLS_") or not re.fullmatch(r"[A-Z0-9-]+", name):
            raise ValueError(f"{name!r} is not a cipher suite that OpenSSL has")
        return name
    exchange, cipher, mode, digest = found.groups()
    parts = [] if exchange == "RSA" else [exchange.replace("_", "-")]
    if cipher is None:
        parts.append("CHACHA20-POLY1305")
    else:
        parts.append(cipher.replace("_", ""))
        if mode == "GCM":
            parts.append("GCM")
        parts.append(digest)
    return "-".join(parts)
