"""PEM text: finds certificates and private keys in it.

In settings, PEM text is often one line, with blanks or the characters ``\\n`` instead of line
breaks. Such text is accepted, too.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from aiokq.core.named_tuple import NamedTuple

__all__ = ["PemKey", "certificates_in", "key_in"]

_BLOCK: Final = re.compile(
    r"-----BEGIN ([A-Z0-9 ]+)-----([^-]*(?:-(?!----)[^-]*)*)-----END \1-----"
)
_BEGIN: Final = re.compile(r"-----BEGIN [A-Z0-9 ]+-----")
_HEADER: Final = re.compile(r"^[\w-]+:.*$", re.M)

_CERTIFICATES: Final = ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")


class PemKey(NamedTuple):
    """A private key in PEM.

    Attributes:
        text: the PEM text, with line breaks.
        is_encrypted: whether a password is needed.
    """

    text: str
    is_encrypted: bool

    def __repr__(self) -> str:
        return f"PemKey(is_encrypted={self.is_encrypted})"


def certificates_in(text: str) -> list[bytes]:
    """Return the DER forms of all certificates, in order.

    Raises:
        ValueError: there is no certificate, or one is incomplete.
    """
    found: list[bytes] = []
    for kind, body in _blocks(text):
        if kind in _CERTIFICATES:
            try:
                found.append(base64.b64decode("".join(body.split()), validate=True))
            except binascii.Error:
                raise ValueError("a certificate is not valid base64") from None
    if not found:
        raise ValueError("it has no '-----BEGIN CERTIFICATE-----'")
    return found


def key_in(text: str) -> PemKey:
    """Return the only private key.

    Raises:
        ValueError: there is no private key or more than one, or the key is incomplete.
    """
    keys = [(kind, body) for kind, body in _blocks(text) if kind.endswith("PRIVATE KEY")]
    if not keys:
        raise ValueError("it has no '-----BEGIN PRIVATE KEY-----'")
    if len(keys) > 1:
        raise ValueError(f"it has {len(keys)} private keys, and must have one")
    ((kind, body),) = keys
    headers = _HEADER.findall(body)
    lines = [f"-----BEGIN {kind}-----"]
    if headers:  # OpenSSL's older key format, whose headers need line breaks
        lines += [line.strip() for line in body.strip().splitlines()]
    else:
        packed = "".join(body.split())
        lines += [packed[at : at + 64] for at in range(0, len(packed), 64)]
    lines.append(f"-----END {kind}-----\n")
    is_encrypted = kind.startswith("ENCRYPTED") or any("ENCRYPTED" in line for line in headers)
    return PemKey("\n".join(lines), is_encrypted)


def _blocks(text: str) -> list[tuple[str, str]]:
    text = text.replace("\\n", "\n").replace("\r\n", "\n")
    blocks = _BLOCK.findall(text)
    if len(blocks) != len(_BEGIN.findall(text)):
        raise ValueError("it is cut off: a '-----BEGIN' has no '-----END' of its kind")
    return blocks
