"""The messages of OAUTHBEARER, parsed and rendered, for both ends.

The client sends `ClientFirst`. The broker answers with an empty message if it accepts the token,
and with the JSON text of a `Refusal` if not. The client answers a refusal with `REFUSAL_SEEN`.

If a name occurs twice in a message, Kafka's parser takes the last value, but `ClientFirst.parse`
refuses the message.
No error and no `repr` contains a token or the value of an extension.

Source: RFC 7628 section 3, KIP-342; Kafka ``OAuthBearerClientInitialResponse.java``,
``OAuthBearerSaslServer.java``.
Tests: ``tests/unit/connection/sasl/test_oauthbearer_messages.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Final, Self

from aiokq.core.frozen import frozen

__all__ = [
    "REFUSAL_SEEN",
    "ClientFirst",
    "OAuthMessageError",
    "Refusal",
    "check_extensions",
    "is_token",
]

REFUSAL_SEEN: Final = b"\x01"
"""The client's answer to a refusal; the broker then answers with error 58."""

MAX_BYTES: Final = 64 * 1024
"""Length of the longest client-first message that is parsed; twice that of the longest token."""

MAX_REFUSAL_BYTES: Final = 16384
"""Length of the longest refusal that is parsed."""

_NAME: Final = r"(?:[^=,\x00\x01]|=2C|=3D)+"
_KEY: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7E \t\r\n]+")
_PAIRS: Final = rf"(?:{_KEY.pattern}={_VALUE.pattern}\x01)*"
_CLIENT_FIRST: Final = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>{_PAIRS})\x01")
_TOKEN: Final = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
_AUTH: Final = re.compile(rf"[Bb][Ee][Aa][Rr][Ee][Rr] +(?P<token>{_TOKEN.pattern})")


class OAuthMessageError(ValueError):
    """A message, token or extension violates the grammar of OAUTHBEARER."""


@frozen
class ClientFirst:
    """The client's message with its token.

    Attributes:
        token: the bearer token.
        authzid: the principal to act as; empty for the principal of the token.
        extensions: further names and values for the broker (KIP-342).
    """

    token: str = field(repr=False)
    authzid: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, message: bytes) -> Self:
        """Return the parts of a message. Raises OAuthMessageError."""
        if len(message) > MAX_BYTES:
            raise OAuthMessageError("the client-first message is too long")
        try:
            found = _CLIENT_FIRST.fullmatch(bytes(message).decode())
        except UnicodeDecodeError:
            found = None
        if found is None:
            raise OAuthMessageError("the client-first message is malformed")
        pairs = [
            (pair.partition("=")[0], pair.partition("=")[2])
            for pair in found["pairs"].split("\x01")[:-1]
        ]
        values = dict(pairs)
        if len(values) < len(pairs):
            raise OAuthMessageError("a name occurs twice in the client-first message")
        auth = _AUTH.fullmatch(values.pop("auth", ""))
        if auth is None:
            raise OAuthMessageError("the client-first message has no bearer token")
        authzid = (found["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
        return cls(auth["token"], authzid, values)

    def render(self) -> bytes:
        """Return the encoded message.

        Raises:
            OAuthMessageError: the token or an extension cannot be sent.
        """
        if not is_token(self.token):
            raise OAuthMessageError("the token has characters that bearer tokens cannot have")
        check_extensions(self.extensions)
        authzid = self.authzid.replace("=", "=3D").replace(",", "=2C")
        header = f"n,a={authzid}," if authzid else "n,,"
        more = "".join(f"{name}={value}\x01" for name, value in self.extensions.items())
        return f"{header}\x01auth=Bearer {self.token}\x01{more}\x01".encode()


def is_token(text: str) -> bool:
    """Return whether a text has the form of a bearer token."""
    return _TOKEN.fullmatch(text) is not None


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Check names and values of extensions.

    Raises:
        OAuthMessageError: a name or a value cannot be sent; the error contains only the name.
    """
    for name, value in extensions.items():
        if name == "auth" or not _KEY.fullmatch(name):
            raise OAuthMessageError(
                f"{name!r} cannot be the name of a SASL extension: it must have letters only, and "
                "not be 'auth'"
            )
        if not _VALUE.fullmatch(value):
            raise OAuthMessageError(f"the value of the SASL extension {name!r} must be ASCII text")


@frozen
class Refusal:
    """The broker's reason for refusing a token.

    Attributes:
        status: the error code, such as "invalid_token" or "insufficient_scope".
        scope: the scope that the token lacks, if the broker names it.
        openid_configuration: address of the configuration of the authorization server, if named.
    """

    status: str
    scope: str | None = None
    openid_configuration: str | None = None

    @classmethod
    def parse(cls, message: bytes) -> Self:
        """Return the parts of a message. Raises OAuthMessageError."""
        try:
            if len(message) > MAX_REFUSAL_BYTES:
                raise ValueError
            parts = json.loads(bytes(message))
            texts = {
                name: value
                for name, value in parts.items()
                if name in ("status", "scope", "openid-configuration") and isinstance(value, str)
            }
            status = texts["status"]
        except (ValueError, KeyError, AttributeError, RecursionError):
            raise OAuthMessageError("the broker's answer to the token is malformed") from None
        return cls(status, texts.get("scope"), texts.get("openid-configuration"))

    def render(self) -> bytes:
        """Return the encoded message."""
        parts = {"status": self.status}
        if self.scope is not None:
            parts["scope"] = self.scope
        if self.openid_configuration is not None:
            parts["openid-configuration"] = self.openid_configuration
        return json.dumps(parts, separators=(",", ":")).encode()
