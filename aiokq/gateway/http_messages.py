"""HTTP messages of the gateway: the requests and responses of handlers.

h11 parses and writes the bytes (http_server.py). The reports need neither the bodies of requests
nor responses in parts, so this module has neither. Tests: tests/unit/gateway/test_http_messages.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote

import h11

__all__ = ["Refusal", "Request", "Response", "as_json", "request_of"]

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json; charset=utf-8"


class Request(NamedTuple):
    """The head of a request.

    Attributes:
        path: the path, without escapes.
        query: the parameters; the first one of a name counts.
        headers: values by lower-case name; several lines of a name are joined by ", ".
        length: `Content-Length` of the body in bytes; 0 without it.
        parameter: the last part of the path, if the handler was added for a path with "/*" at the
            end; else "".
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    length: int
    parameter: str = ""


class Response(NamedTuple):
    """A response; `headers` are the headers other than Content-Type and Content-Length."""

    status: int
    body: bytes
    type: str = TEXT
    headers: Mapping[str, str] = {}


def as_json(document: object, status: int = 200) -> Response:
    """Return a response with a JSON document."""
    return Response(status, json.dumps(document).encode() + b"\n", JSON)


class Refusal(Exception):
    """Raised to answer a request with an error.

    Attributes:
        response: the answer.
    """

    def __init__(self, status: int, text: str = "", headers: Mapping[str, str] | None = None):
        super().__init__(text)
        text = text or f"{status}: {HTTPStatus(status).phrase}\n"
        self.response = Response(status, text.encode(errors="replace"), TEXT, headers or {})


def request_of(event: h11.Request) -> Request:
    """Return the `Request` for a request head.

    Raises:
        Refusal: the gateway does not accept the HTTP version, the target or a header.
    """
    if event.http_version not in (b"1.1", b"1.0"):
        raise Refusal(505)
    if not event.target.startswith(b"/"):
        raise Refusal(400, "the target of the request is not a path\n")
    headers: dict[str, str] = {}
    for name, value in event.headers:
        key, text = name.decode("ascii"), value.decode("utf-8", "surrogateescape")
        if key in headers and key == "authorization":
            raise Refusal(400, f"the header {key} is there twice\n")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    path, _, query = event.target.decode("ascii").partition("#")[0].partition("?")
    parameters: dict[str, str] = {}
    for parameter, text in parse_qsl(query, keep_blank_values=True):
        parameters.setdefault(parameter, text)
    return Request(
        event.method.decode("ascii"),
        unquote(path),
        parameters,
        headers,
        int(headers.get("content-length", "0")),  # h11 has checked it
    )
