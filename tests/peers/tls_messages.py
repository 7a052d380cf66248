"""First messages of TLS clients, and what hostile clients send behind them at once."""

from __future__ import annotations

import contextlib
import os
import ssl
from typing import Final

__all__ = [
    "CHANGE_CIPHER_SPEC",
    "certificate_announced",
    "first_message",
    "message_start",
    "record",
    "retry_wanted",
]

CHANGE_CIPHER_SPEC: Final = b"\x14\x03\x03\x00\x01\x01"


def record(payload: bytes) -> bytes:
    """Return a TLS record with handshake messages."""
    return b"\x16\x03\x03" + len(payload).to_bytes(2, "big") + payload


def message_start(kind: int, size: int) -> bytes:
    """Return the first 20 bytes of a handshake message that announces a size."""
    return bytes([kind]) + size.to_bytes(3, "big") + bytes(16)


def first_message(newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED) -> bytes:
    """Return the first message of OpenSSL as a client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = newest
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def retry_wanted() -> bytes:
    """Return a ClientHello of TLS 1.3 without a key share, so that the server asks for a second."""

    def extension(number: int, data: bytes) -> bytes:
        return number.to_bytes(2, "big") + len(data).to_bytes(2, "big") + data

    extensions = (
        extension(43, b"\x02\x03\x04")  # supported_versions: TLS 1.3
        + extension(10, b"\x00\x02\x00\x17")  # supported_groups: secp256r1
        + extension(13, b"\x00\x04\x04\x03\x08\x04")  # signature_algorithms
        + extension(51, b"\x00\x00")  # key_share: none
    )
    body = (
        b"\x03\x03"
        + os.urandom(32)
        + b"\x20"
        + os.urandom(32)  # session id
        + b"\x00\x02\x13\x01"  # TLS_AES_128_GCM_SHA256
        + b"\x01\x00"
        + len(extensions).to_bytes(2, "big")
        + extensions
    )
    return record(b"\x01" + len(body).to_bytes(3, "big") + body)


def certificate_announced() -> bytes:
    """Return a ClientHello of TLS 1.2, and the start of a Certificate message of 100,000 bytes.

    A server that asks for certificates allocates the announced size.
    """
    return first_message(ssl.TLSVersion.TLSv1_2) + record(message_start(11, 100_000))
