"""ClientHello: collects the first message of a TLS client, without OpenSSL.

A server makes the TLS object only when the message is complete. Until then, a connection holds only
the bytes that it has sent, whatever length it announces. OpenSSL would allocate up to 128 KiB.

With TLS 1.3 a server may answer with a HelloRetryRequest. The client then sends a second
ClientHello, which is collected in the same way, or an alert, which is left to OpenSSL.

Source: RFC 8446 sections 4, 4.1.4, 5 and 5.1.
"""

from __future__ import annotations

import hashlib
from typing import Final

__all__ = ["MAX_HELLO_BYTES", "ClientHello", "NotTls", "is_retry_request"]

MAX_HELLO_BYTES: Final = 32 * 1024
"""Maximum size of a ClientHello, including the headers of its TLS records.

Most have less than 2 KB. The largest have a session ticket that contains a certificate chain.
"""

_CHANGE_CIPHER_SPEC: Final = 20
_ALERT: Final = 21
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_RECORD_HEADER: Final = 5
_MESSAGE_HEADER: Final = 4
_ALERT_BYTES: Final = 2
_MAX_RECORD: Final = 16 * 1024

_RETRY_RANDOM: Final = hashlib.sha256(b"HelloRetryRequest").digest()
"""The random value of a ServerHello that is a HelloRetryRequest."""

_RANDOM: Final = slice(11, 43)
"""Where the random value of a ServerHello is in the first record of a server."""


def is_retry_request(sent: bytes) -> bool:
    """Return whether a server's first bytes are a HelloRetryRequest."""
    return sent[_RANDOM] == _RETRY_RANDOM


class NotTls(ValueError):
    """The bytes are not the first message of a TLS client."""


class ClientHello:
    """The bytes that a client has sent before its first or second ClientHello is complete.

    Args:
        is_second: whether the message answers a HelloRetryRequest. The client may then send
            ChangeCipherSpec first, for middleboxes, or an alert in place of the message.

    Attributes:
        received: the bytes of the message, and any bytes after it.
        end: where the last complete record of the message ends in `received`.
    """

    __slots__ = ("_is_second", "_name", "_payload", "_start", "_wanted", "end", "received")

    def __init__(self, *, is_second: bool = False) -> None:
        self._is_second = is_second
        self._name = "second ClientHello" if is_second else "first TLS message"
        self.received = bytearray()
        self._start = b""  # the first bytes of the message, no more than its header
        self._wanted = 0  # length of the message in bytes; 0 until its header has arrived
        self._payload = 0  # number of bytes of the message in the records before `end`
        self.end = 0

    def feed(self, data: bytes | memoryview) -> bool:
        """Add received bytes; return whether the message, or an alert, is complete.

        Raises:
            NotTls: the bytes are not TLS, or the message is too large.
        """
        received = self.received
        received += data
        while True:
            begin = self.end
            header = received[begin : begin + _RECORD_HEADER]
            kind = header[0] if header else _HANDSHAKE
            skipped = self._is_second and kind == _CHANGE_CIPHER_SPEC
            is_alert = self._is_second and kind == _ALERT
            if (kind != _HANDSHAKE and not skipped and not is_alert) or (
                len(header) > 1 and header[1] != 3
            ):
                raise NotTls(
                    "the client does not answer HelloRetryRequest with a ClientHello"
                    if self._is_second
                    else "the client does not speak TLS"
                )
            if len(header) < _RECORD_HEADER:
                return False
            size = int.from_bytes(header[3:], "big")
            if not 0 < size <= (_ALERT_BYTES if is_alert else _MAX_RECORD):
                raise NotTls(f"a TLS record of the client has an invalid size of {size} bytes")
            begin += _RECORD_HEADER
            if not self._wanted and kind == _HANDSHAKE:
                self._read_header(bytes(received[begin : begin + min(size, _MESSAGE_HEADER)]))
            if begin + size > MAX_HELLO_BYTES:
                raise NotTls(f"the client's {self._name} is too large")
            if begin + size > len(received):
                return False
            self.end = begin + size
            if is_alert:
                return True
            if skipped:
                continue
            if not self._wanted:  # the record is shorter than the header of the message
                self._start += received[begin : begin + size]
            self._payload += size
            if self._wanted and self._payload >= self._wanted:
                if self._payload > self._wanted:  # a client must wait for the server's answer
                    raise NotTls(f"a record has more than the client's {self._name}")
                return True

    def _read_header(self, part: bytes) -> None:
        start = (self._start + part)[:_MESSAGE_HEADER]
        if start and start[0] != _CLIENT_HELLO:
            raise NotTls(f"the client's {self._name} is not a ClientHello")
        if len(start) == _MESSAGE_HEADER:
            wanted = _MESSAGE_HEADER + int.from_bytes(start[1:], "big")
            if wanted > MAX_HELLO_BYTES:
                raise NotTls(f"the client's {self._name} announces {wanted} bytes")
            self._wanted = wanted
