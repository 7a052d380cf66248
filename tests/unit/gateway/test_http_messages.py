"""Heads of HTTP requests, and responses as bytes."""

from __future__ import annotations

import json

import pytest

from aiokq.gateway.http_messages import Refusal, Response, as_json, parse_head

HOST = b"\r\nHost: localhost"


def test_the_parts_of_a_request():
    found = parse_head(
        b"POST /msg_debug/add_topic/web%2elog?a=1&a=2&b= HTTP/1.1\r\nHost: [::1]:9690\r\n"
        b"X-One:  two \t\r\nx-one: three\r\nContent-Length: 12\r\nAuthorization: Bearer \xff"
    )
    assert (found.method, found.path) == ("POST", "/msg_debug/add_topic/web.log")
    assert found.query == {"a": "1", "b": ""}
    assert found.headers["host"] == "[::1]:9690"
    assert found.headers["x-one"] == "two, three"
    assert found.headers["authorization"].encode("utf-8", "surrogateescape") == b"Bearer \xff"
    assert (found.length, found.keeps_alive) == (12, True)


@pytest.mark.parametrize(
    ("head", "keeps"),
    [
        (b"GET / HTTP/1.1" + HOST, True),
        (b"GET / HTTP/1.1" + HOST + b"\r\nConnection: Close", False),
        (b"GET / HTTP/1.0", False),
        (b"GET / HTTP/1.0\r\nConnection: Keep-Alive", True),
    ],
)
def test_whether_the_connection_stays_open(head: bytes, keeps: bool):
    assert parse_head(head).keeps_alive == keeps


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"", 400),
        (b"GET /" + HOST, 400),
        (b"GET  / HTTP/1.1" + HOST, 400),
        (b"GET / HTTP/1.1 " + HOST, 400),
        (b"GET / HTTP/2.0" + HOST, 505),
        (b"GET / FTP/1.1" + HOST, 400),
        (b"G@T / HTTP/1.1" + HOST, 400),
        (b"GET http://localhost/ HTTP/1.1" + HOST, 400),
        (b"GET * HTTP/1.1" + HOST, 400),
        (b"GET /\xff HTTP/1.1" + HOST, 400),
        (b"GET / HTTP/1.1", 400),
        (b"GET / HTTP/1.1" + HOST + HOST, 400),
        (b"GET / HTTP/1.1" + HOST + b"\r\nNo colon", 400),
        (b"GET / HTTP/1.1" + HOST + b"\r\nName : value", 400),
        (b"GET / HTTP/1.1" + HOST + b"\r\n folded: value", 400),
        (b"GET / HTTP/1.1" + HOST + b"\r\nX: \0", 400),
        (b"GET / HTTP/1.1" + HOST + b"\r\nX: a\nHost: b", 400),
        (b"GET / HTTP/1.1" + HOST + b"\r\nContent-Length: -1", 400),
        (b"GET / HTTP/1.1" + HOST + b"\r\nContent-Length: 1" * 2, 400),
        (b"GET / HTTP/1.1" + HOST + b"\r\nContent-Length: " + b"9" * 5000, 400),
        (b"GET / HTTP/1.1" + HOST + b"\r\nTransfer-Encoding: chunked", 411),
    ],
)
def test_what_is_not_correct_is_refused(head: bytes, status: int):
    with pytest.raises(Refusal) as caught:
        parse_head(head)
    assert caught.value.response.status == status


def test_a_response_as_bytes():
    answer = as_json({"a": "\u00e9"}, 409)
    head, _, body = answer.encoded(head_only=False, keeps_alive=True).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 409 Conflict"
    assert {
        b"Content-Type: application/json; charset=utf-8",
        b"Content-Length: %d" % len(body),
        b"Connection: keep-alive",
        b"Cache-Control: no-store",
        b"X-Content-Type-Options: nosniff",
    } <= set(lines)
    assert json.loads(body) == {"a": "\u00e9"}
    short = Response(200, b"body").encoded(head_only=True, keeps_alive=False)
    assert short.endswith(b"\r\n\r\n")
    assert b"Content-Length: 4" in short
    assert b"Connection: close" in short
