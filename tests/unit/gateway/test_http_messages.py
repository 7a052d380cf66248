"""What handlers see of HTTP requests, and what they answer."""

from __future__ import annotations

import json

import h11
import pytest

from aiokq.gateway.http_messages import Refusal, Request, as_json, request_of


def parse(data: bytes) -> Request:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data + b"\r\n\r\n")
    event = connection.next_event()
    assert isinstance(event, h11.Request)
    return request_of(event)


def test_the_parts_of_a_request():
    found = parse(
        b"POST /msg_debug/add_topic/web%2elog?a=1&a=2&b= HTTP/1.1\r\nHost: [::1]:9690\r\n"
        b"X-One:  two \t\r\nx-one: three\r\nContent-Length: 12\r\nAuthorization: Bearer \xff"
    )
    assert (found.method, found.path) == ("POST", "/msg_debug/add_topic/web.log")
    assert found.query == {"a": "1", "b": ""}
    assert found.headers["host"] == "[::1]:9690"
    assert found.headers["x-one"] == "two, three"
    assert found.headers["authorization"].encode("utf-8", "surrogateescape") == b"Bearer \xff"
    assert found.length == 12


HOST = b"\r\nHost: localhost"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/2.0" + HOST, 505),
        (b"GET http://localhost/ HTTP/1.1" + HOST, 400),
        (b"GET * HTTP/1.1" + HOST, 400),
        (b"GET / HTTP/1.1" + HOST + b"\r\nAuthorization: Bearer 1" * 2, 400),
    ],
)
def test_what_is_not_accepted_is_refused(head: bytes, status: int):
    with pytest.raises(Refusal) as caught:
        parse(head)
    assert caught.value.response.status == status


def test_a_document():
    answer = as_json({"a": "\u00e9"}, 409)
    assert (answer.status, answer.type) == (409, "application/json; charset=utf-8")
    assert json.loads(answer.body) == {"a": "\u00e9"}


def test_a_refusal_says_its_status():
    assert Refusal(404).response.body == b"404: Not Found\n"
    assert Refusal(405, "", {"Allow": "GET"}).response.headers == {"Allow": "GET"}
