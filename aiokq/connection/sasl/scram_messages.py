"""The messages of SCRAM, parsed and rendered, for both ends.

``ClientFirst`` and ``ClientFinal`` come from the client, ``ServerFirst`` and ``ServerFinal`` from
the broker. A parsed message keeps the received text, because proofs and signatures are computed
over this text.

Kafka's brokers compute proofs over a text that they render again from the parsed parts. They
therefore refuse a proof if the client-final message has an extension, and may refuse it if the
client-first message has several extensions, because they do not keep the order of extensions.
Clients must not send such messages. Unlike Kafka's parser, this one accepts names that are not
ASCII, and refuses the mandatory extension ``m=``, which Kafka leaves out of the signed text.

No error contains a part of a message. No `repr` contains a salt, a proof or a signature.

Source: RFC 5802 sections 5 and 7; Kafka ``ScramMessages.java``, ``ScramFormatter.java``.
Tests: ``tests/unit/connection/sasl/test_scram_messages.py``.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Final, Self

from aiokq.core.frozen import frozen

__all__ = [
    "ClientFinal",
    "ClientFirst",
    "ScramMessageError",
    "ServerFinal",
    "ServerFirst",
    "auth_message",
]

MAX_BYTES: Final = 4096
"""Length in bytes of the longest message that is parsed, including the name of the user.

A broker parses a message of a client before its login, at up to a microsecond for each byte.
"""

_NAME: Final = r"(?=[^,\x00])[^=,\x00]*(?:=(?:2C|3D)[^=,\x00]*)*"
_PRINTABLE: Final = r"[\x21-\x2B\x2D-\x7E]+"
_BASE64: Final = r"[A-Za-z0-9+/]*={0,2}"
"""Also matches texts whose length is no multiple of 4, which `_decoded` refuses."""

_EXTENSIONS: Final = r"(?:,(?!m=)[A-Za-z]+=[^,\x00]+)*"
_EXTENSIONS_BEFORE_PROOF: Final = r"(?:,(?!m=|p=[^,]*\Z)[A-Za-z]+=[^,\x00]+)*"
"""Matches no proof at the end of the message, which would otherwise also match as an extension."""

_CLIENT_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST: Final = re.compile(
    rf"r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,10}}){_EXTENSIONS}"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<unproven>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS_BEFORE_PROOF})"
    rf",p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL: Final = re.compile(
    rf"(?:e=(?P<error>[^=,\x00]+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}"
)


class ScramMessageError(ValueError):
    """A message violates the grammar of SCRAM."""


@frozen
class ClientFirst:
    """The client's first message, with the name of the user.

    Attributes:
        name: the user's name, or the id of a delegation token.
        nonce: random text of the client.
        authzid: the user to act as; empty for the user that logs in.
        extensions: names and values in their order, such as ``tokenauth=true``.
        bare: the received text of the signed part; empty for a message that was not received.
    """

    name: str
    nonce: str
    authzid: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)
    bare: str = field(default="", repr=False)

    @classmethod
    def parse(cls, message: bytes) -> Self:
        """Return the parts of a message. Raises ScramMessageError."""
        found = _parsed(_CLIENT_FIRST, message, "client-first")
        extensions = found["extensions"]
        pairs = (pair.split("=", 1) for pair in extensions[1:].split(",")) if extensions else ()
        return cls(
            _unescaped(found["name"]),
            found["nonce"],
            _unescaped(found["authzid"] or ""),
            dict(pairs),
            found["bare"],
        )

    @property
    def signed(self) -> str:
        """The signed part of the message: all but the GS2 header."""
        if self.bare:
            return self.bare
        extensions = "".join(f",{name}={value}" for name, value in self.extensions.items())
        return f"n={_escaped(self.name)},r={self.nonce}{extensions}"

    @property
    def header(self) -> str:
        """The GS2 header: no channel binding, and `authzid`."""
        return f"n,a={_escaped(self.authzid)}," if self.authzid else "n,,"

    def render(self) -> bytes:
        """Return the encoded message."""
        return (self.header + self.signed).encode()


@frozen
class ServerFirst:
    """The broker's answer to the first message: nonce, salt and iteration count.

    Attributes:
        nonce: the client's nonce, continued by random text of the broker.
        salt: the salt of the credential.
        iterations: the number of PBKDF2 iterations. The caller has to limit it.
        text: the received text; empty for a message that was not received.
    """

    nonce: str
    salt: bytes = field(repr=False)
    iterations: int
    text: str = field(default="", repr=False)

    @classmethod
    def parse(cls, message: bytes) -> Self:
        """Return the parts of a message. Raises ScramMessageError."""
        found = _parsed(_SERVER_FIRST, message, "server-first")
        return cls(
            found["nonce"],
            _decoded(found["salt"], "server-first"),
            int(found["iterations"]),
            found.string,
        )

    @property
    def signed(self) -> str:
        """The signed text: the whole message."""
        if self.text:
            return self.text
        salt = base64.b64encode(self.salt).decode()
        return f"r={self.nonce},s={salt},i={self.iterations}"

    def render(self) -> bytes:
        """Return the encoded message."""
        return self.signed.encode()


@frozen
class ClientFinal:
    """The client's proof that it knows the password.

    Attributes:
        nonce: the nonce of the server-first message.
        proof: the proof; empty before it is computed.
        channel: the header of the client-first message.
        unproven: the received text of the signed part; empty for a message that was not received.
    """

    nonce: str
    proof: bytes = field(default=b"", repr=False)
    channel: bytes = b"n,,"
    unproven: str = field(default="", repr=False)

    @classmethod
    def parse(cls, message: bytes) -> Self:
        """Return the parts of a message. Raises ScramMessageError."""
        found = _parsed(_CLIENT_FINAL, message, "client-final")
        return cls(
            found["nonce"],
            _decoded(found["proof"], "client-final"),
            _decoded(found["channel"], "client-final"),
            found["unproven"],
        )

    @property
    def signed(self) -> str:
        """The signed part of the message: all but the proof."""
        if self.unproven:
            return self.unproven
        return f"c={base64.b64encode(self.channel).decode()},r={self.nonce}"

    def render(self) -> bytes:
        """Return the encoded message."""
        return f"{self.signed},p={base64.b64encode(self.proof).decode()}".encode()


@frozen
class ServerFinal:
    """The broker's proof that it knows the credential, or an error.

    Attributes:
        signature: the broker's signature; empty if there is an error.
        error: the error of RFC 5802, such as "invalid-proof"; None if the client is accepted.
            Kafka's brokers send an error code in SaslAuthenticate instead.
    """

    signature: bytes = field(repr=False)
    error: str | None = None

    @classmethod
    def parse(cls, message: bytes) -> Self:
        """Return the parts of a message. Raises ScramMessageError."""
        found = _parsed(_SERVER_FINAL, message, "server-final")
        return cls(_decoded(found["signature"] or "", "server-final"), found["error"])

    def render(self) -> bytes:
        """Return the encoded message."""
        if self.error is not None:
            return f"e={self.error}".encode()
        return f"v={base64.b64encode(self.signature).decode()}".encode()


def auth_message(first: ClientFirst, challenge: ServerFirst, final: ClientFinal) -> bytes:
    """Return the text that client and broker sign."""
    return f"{first.signed},{challenge.signed},{final.signed}".encode()


def _parsed(pattern: re.Pattern[str], message: bytes, name: str) -> re.Match[str]:
    if len(message) > MAX_BYTES:
        raise ScramMessageError(f"the {name} message has {len(message)} bytes")
    try:
        found = pattern.fullmatch(bytes(message).decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise ScramMessageError(f"the {name} message is malformed")
    return found


def _decoded(text: str, name: str) -> bytes:
    """Return the bytes of a text that matches `_BASE64`. Raises ScramMessageError."""
    if len(text) % 4:
        raise ScramMessageError(f"the {name} message is malformed")
    return binascii.a2b_base64(text)


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
