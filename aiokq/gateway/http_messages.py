"""HTTP messages of the gateway: the head of a request, and responses as bytes.

Only what the reports need: no body of a request is used, and no response is sent in parts. What two
programs could understand differently is refused. Tests: tests/unit/gateway/test_http_messages.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote

__all__ = ["Refusal", "Request", "Response", "as_json", "parse_head"]

_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET: Final = re.compile(rb"/[\x21-\x7e]*")
_VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_LENGTH: Final = re.compile(rb"[0-9]{1,9}")

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json; charset=utf-8"


class Request(NamedTuple):
    """The head of a request.

    Attributes:
        path: the path, without escapes.
        query: the parameters; the first one of a name counts.
        headers: by names in small letters; several lines of a name are joined by ", ".
        length: number of bytes of the body.
        keeps_alive: whether the connection may stay open after the response.
        parameter: the part of the path that a handler for several paths stands for.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    length: int
    keeps_alive: bool
    parameter: str = ""


class Response(NamedTuple):
    """A response; `headers` are those beside type and length of the body."""

    status: int
    body: bytes
    type: str = TEXT
    headers: Mapping[str, str] = {}

    def encoded(self, *, head_only: bool, keeps_alive: bool) -> bytes:
        """Return the bytes to send.

        Args:
            head_only: whether the request was HEAD.
            keeps_alive: whether the connection stays open.
        """
        lines = [
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}",
            f"Date: {formatdate(usegmt=True)}",
            f"Content-Type: {self.type}",
            f"Content-Length: {len(self.body)}",
            f"Connection: {'keep-alive' if keeps_alive else 'close'}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            *(f"{name}: {value}" for name, value in self.headers.items()),
        ]
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        return head if head_only else head + self.body


def as_json(document: object, status: int = 200) -> Response:
    """Return a response with a JSON document."""
    return Response(status, json.dumps(document).encode(), JSON)


class Refusal(Exception):
    """A request that is answered with an error.

    Attributes:
        response: the answer.
    """

    def __init__(self, status: int, text: str = "", headers: Mapping[str, str] | None = None):
        super().__init__(text)
        text = text or f"{status}: {HTTPStatus(status).phrase}\n"
        self.response = Response(status, text.encode(errors="replace"), TEXT, headers or {})


def parse_head(data: bytes) -> Request:
    """Read the head of a request, without the empty line at its end.

    Raises:
        Refusal: it is not correct, or has a body whose length is not known.
    """
    first, *lines = data.split(b"\r\n")
    method, target, version = _request_line(first)
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        value = value.strip(b" \t")
        if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise Refusal(400, "a header is not correct\n")
        key, text = name.decode().lower(), value.decode("utf-8", "surrogateescape")
        if key in headers and key in ("host", "content-length", "authorization"):
            raise Refusal(400, f"the header {key} is there twice\n")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    if version == b"HTTP/1.1" and "host" not in headers:
        raise Refusal(400, "the header Host is missing\n")
    if "transfer-encoding" in headers:
        raise Refusal(411, "a body must have a Content-Length\n")
    length = headers.get("content-length", "0").encode("utf-8", "surrogateescape")
    if not _LENGTH.fullmatch(length):
        raise Refusal(400, "Content-Length is not correct\n")
    path, _, query = target.decode("ascii").partition("?")
    wishes = headers.get("connection", "").lower()
    keeps_alive = "close" not in wishes if version == b"HTTP/1.1" else "keep-alive" in wishes
    parameters: dict[str, str] = {}
    for parameter, text in parse_qsl(query, keep_blank_values=True):
        parameters.setdefault(parameter, text)
    return Request(method.decode(), unquote(path), parameters, headers, int(length), keeps_alive)


def _request_line(line: bytes) -> tuple[bytes, bytes, bytes]:
    parts = line.split(b" ")
    if len(parts) != 3:
        raise Refusal(400, "the first line of the request is not correct\n")
    method, target, version = parts
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise Refusal(505 if version.startswith(b"HTTP/") else 400)
    if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(target):
        raise Refusal(400, "the first line of the request is not correct\n")
    return method, target.partition(b"#")[0], version
