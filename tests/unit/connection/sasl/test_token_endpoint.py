"""Requests for tokens to a server that really runs."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest

from aiokq.connection.sasl import token_endpoint
from aiokq.connection.sasl.token_endpoint import (
    EndpointTokens,
    Form,
    HttpLimits,
    bearer_form,
    check_url,
    client_credentials_form,
)
from aiokq.core.clock import SystemClock
from aiokq.core.errors import AuthenticationFailed, ConfigError, ConnectionLost
from aiokq.core.offload import ThreadOffload

LIMITS = HttpLimits(connect=2.0, read=0.3, backoff=0.01, backoff_total=0.1)
GOOD = (200, json.dumps({"access_token": "t", "expires_in": 100}))


class Server:
    """An authorization server with scripted answers: status and body, or seconds of silence."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, str] | float] = []
        self.seen: list[tuple[dict[str, str], str]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                owner.seen.append((dict(self.headers), self.rfile.read(size).decode()))
                answer = owner.answers.pop(0) if owner.answers else GOOD
                if isinstance(answer, float):
                    time.sleep(answer)
                    answer = GOOD
                self.send_response(answer[0])
                if 300 <= answer[0] < 400:
                    self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.send_header("Content-Length", str(len(answer[1].encode())))
                self.end_headers()
                self.wfile.write(answer[1].encode())

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}/token"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    made = Server()
    thread = threading.Thread(target=made.http.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.http.shutdown()
    thread.join()
    made.http.server_close()


async def fetch(server: Server, form: Form | None = None, limits: HttpLimits = LIMITS):
    offload = ThreadOffload(1)
    asked = form or client_credentials_form("me", "s3cret", "kafka", urlencode=False)
    try:
        return await EndpointTokens(
            server.url,
            lambda: asked,
            offload=offload,
            clock=SystemClock(),
            limits=limits,
            secrets=("s3cret",),
        ).fetch()
    finally:
        offload.close()


async def test_client_credentials(server: Server) -> None:
    """The secret is in a header, the scope in the body. An opaque token ends as the answer says."""
    token = await fetch(server)
    assert token.value == "t"
    assert token.expires_at is not None
    assert 95 < token.expires_at - time.time() <= 100
    ((headers, body),) = server.seen
    assert body == "grant_type=client_credentials&scope=kafka"
    assert headers["Authorization"] == "Basic " + base64.b64encode(b"me:s3cret").decode()
    assert headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert headers["Accept"] == "application/json"


async def test_bearer_assertions(server: Server) -> None:
    await fetch(server, bearer_form("a.b.c", "x y"))
    ((headers, body),) = server.seen
    assert "Authorization" not in headers
    assert parse_qs(body) == {
        "grant_type": ["urn:ietf:params:oauth:grant-type:jwt-bearer"],
        "assertion": ["a.b.c"],
        "scope": ["x y"],
    }


def test_id_and_secret_are_encoded_if_told_to() -> None:
    """The standard alphabet of base64 is used in either case (KAFKA-14496)."""
    form = client_credentials_form("a b", "c/?", "d e", urlencode=True)
    login = form.headers["Authorization"].removeprefix("Basic ")
    assert base64.b64decode(login) == b"a+b:c%2F%3F"
    assert form.body == "grant_type=client_credentials&scope=d+e"
    assert client_credentials_form("a", "b", None, urlencode=False).body == (
        "grant_type=client_credentials"
    )


async def test_an_id_token_is_taken_if_there_is_no_other(server: Server) -> None:
    server.answers = [(201, '{"id_token": " t2 ", "access_token": ""}')]
    assert (await fetch(server)).value == "t2"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 501])
async def test_a_refusal_is_not_repeated(server: Server, status: int) -> None:
    """The error has the server's reason, and never the secret."""
    told = {"error": "invalid_client", "error_description": "s3cret is wrong\n"}
    server.answers = [(status, json.dumps(told))]
    with pytest.raises(
        AuthenticationFailed, match=rf"answered {status}: invalid_client - \*"
    ) as it:
        await fetch(server)
    assert len(server.seen) == 1
    assert "s3cret" not in str(it.value)
    assert it.value.__cause__ is None
    assert it.value.__suppress_context__


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_an_error_of_the_server_is_repeated(server: Server, status: int) -> None:
    server.answers = [(status, "?"), (status, '["?"]')]
    assert (await fetch(server)).value == "t"
    assert len(server.seen) == 3


async def test_repetitions_end(server: Server) -> None:
    server.answers = [(503, "{}")] * 50
    with pytest.raises(ConnectionLost, match="answered 503"):
        await fetch(server)
    assert 3 <= len(server.seen) <= 5


async def test_a_server_that_is_silent_is_left(server: Server) -> None:
    server.answers = [0.6, 0.6]
    with pytest.raises(ConnectionLost, match="cannot be reached: timed out"):
        await fetch(server)


@pytest.mark.parametrize("begin", [b"X: ", b"Content-Length: 1000\r\n\r\n"], ids=["header", "body"])
async def test_a_server_that_sends_a_byte_now_and_then_is_left(
    server: Server, monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    """Each byte comes in time; all logins would wait for this answer."""
    monkeypatch.setattr(token_endpoint, "LONGEST", 0.4)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\n" + begin)
                for _ in range(100):
                    connection.sendall(b"x")
                    time.sleep(0.05)

        thread = threading.Thread(target=answer)
        thread.start()
        server.url = f"http://127.0.0.1:{listening.getsockname()[1]}/token"
        began = time.monotonic()
        with pytest.raises(ConnectionLost, match=r"more than 0\.4 s|timed out"):
            await fetch(server)
        assert time.monotonic() - began < 3
        thread.join()


async def test_a_tls_handshake_that_goes_on_and_on_is_left(server: Server) -> None:
    """The time for connecting is that of the whole handshake."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.recv(4096)
                connection.sendall(b"\x16\x03\x03\x3f\xff")  # the head of a long record
                for _ in range(100):
                    connection.sendall(b"\x02")
                    time.sleep(0.05)

        thread = threading.Thread(target=answer)
        thread.start()
        server.url = f"https://127.0.0.1:{listening.getsockname()[1]}/token"
        began = time.monotonic()
        with pytest.raises(ConnectionLost, match="timed out"):
            await fetch(server, limits=HttpLimits(0.4, 9.0, 0.01, 0.0))
        assert time.monotonic() - began < 3
        thread.join()


async def test_a_server_that_is_down_is_named(server: Server) -> None:
    server.url = "http://127.0.0.1:1/token"
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1/token cannot be reached: .*refused"):
        await fetch(server)


async def test_a_proxy_gets_no_secret_in_clear_text(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """http is allowed on this machine only, and a proxy is elsewhere."""
    proxy = Server()
    thread = threading.Thread(target=proxy.http.serve_forever, args=(0.01,))
    thread.start()
    try:
        monkeypatch.delenv("no_proxy")
        monkeypatch.setenv("http_proxy", proxy.url)
        assert (await fetch(server)).value == "t"
    finally:
        proxy.http.shutdown()
        thread.join()
        proxy.http.server_close()
    assert len(server.seen) == 1
    assert proxy.seen == []


async def test_the_query_of_the_address_is_not_shown(server: Server) -> None:
    """It may have a secret, such as the key of a function in a cloud."""
    server.url += "?code=hidden"
    for answer in ((401, "{}"), (503, "{}"), (200, ""), (200, "[]"), 0.6):
        server.answers = [answer] * 9
        with pytest.raises((AuthenticationFailed, ConnectionLost), match="/token") as caught:
            await fetch(server, limits=HttpLimits(2.0, 0.3, 0.01, 0.0))
        assert "hidden" not in str(caught.value)
    with pytest.raises(ConfigError, match="http://idp/token would") as refused:
        check_url("s", "http://idp/token?code=hidden", ())
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirection_is_not_followed(server: Server, status: int) -> None:
    """Another address would get the secret."""
    server.answers = [(status, "")]
    with pytest.raises(AuthenticationFailed, match=f"answered {status}"):
        await fetch(server)


@pytest.mark.parametrize(
    "body",
    [
        "{}",
        "[]",
        "no JSON",
        "[" * 100_000,
        '{"access_token": 1}',
        '{"access_token": "two words"}',
        '{"access_token": "' + "x" * (1 << 20) + '"}',
    ],
)
async def test_an_answer_without_a_token_is_an_error(server: Server, body: str) -> None:
    server.answers = [(200, body)]
    with pytest.raises(AuthenticationFailed) as caught:
        await fetch(server)
    assert "two words" not in str(caught.value)


@pytest.mark.parametrize("seconds", ["100", 100.0])
async def test_the_life_of_a_token_in_other_forms(server: Server, seconds: object) -> None:
    server.answers = [(200, json.dumps({"access_token": "t", "expires_in": seconds}))]
    token = await fetch(server)
    assert token.expires_at is not None
    assert 95 < token.expires_at - time.time() <= 100


@pytest.mark.parametrize("seconds", [None, True, -1, "soon", [], "1" * 5000])
async def test_a_life_that_is_no_number_is_not_known(server: Server, seconds: object) -> None:
    server.answers = [(200, json.dumps({"access_token": "t", "expires_in": seconds}))]
    token = await fetch(server)
    assert token.expires_at is None or token.expires_at > time.time() + 1e8


@pytest.mark.parametrize(
    "url",
    [
        "https://idp.example.com/token",
        "http://localhost:8080/t",
        "http://127.0.0.1/t",
        "http://[::1]/t",
    ],
)
def test_addresses_that_need_no_permission(url: str) -> None:
    check_url("url", url, ())


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://idp.example.com/token", "clear text"),
        ("http://localhost.example.com/token", "clear text"),
        ("file:///etc/passwd", "names a file"),
        ("file://host/etc/passwd", "file:///PATH"),
        ("file:relative", "file:///PATH"),
        ("ftp://example.com/", "https, http or file"),
        ("idp.example.com", "https, http or file"),
        ("https:///token", "no host"),
        ("https://me:hidden@example.com/", "must not have a user name"),
        ("https://example.com:port/", "not a URL"),
        ("https://[::1/", "not a URL"),
        ("https://example.com/\r\nHost: x", "characters"),
    ],
)
def test_addresses_that_are_refused(url: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        check_url("url", url, ("http://idp.example.com/", "https://example.com/"))
    assert "hidden" not in str(caught.value)


def test_a_permission_is_for_the_whole_address() -> None:
    check_url("url", "http://idp.example.com/token", ["http://idp.example.com/token"])
    check_url("url", "file:///run/token", ["file:///run/token"])
