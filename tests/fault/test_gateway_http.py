"""The gateway's HTTP interface: who may use it, and what its probes and metrics say."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import re
import socket
import time
from pathlib import Path

import aiohttp
import pytest

from aiokq.errors import Closed, ConfigError
from aiokq.gateway import Gateway
from aiokq.gateway.http_messages import Refusal, Request, Response
from aiokq.gateway.http_server import MOST_CONNECTIONS, MOST_UNSENT, HttpServer
from tests.fault.gateway_support import LIMIT, Rig, balanced, configuration, directory, message, rig

WITH_HTTP = {"http": {"port": 0}}


async def ask(
    r: Rig, method: str, path: str, headers: dict[str, str] | None = None
) -> tuple[int, str]:
    assert r.gateway.http is not None
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, r.gateway.http.where + path, headers=headers) as response,
    ):
        return response.status, await response.text()


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"Host": "evil.example"}, "the header Host must name this machine\n"),
        ({"Origin": "http://evil.example"}, "a page of another site may not change the gateway\n"),
    ],
)
async def test_a_page_in_a_browser_cannot_change_anything(headers: dict[str, str], text: str):
    """A page may send a POST to 127.0.0.1, with the Host or the Origin of its own server."""
    async with rig(WITH_HTTP) as r:
        assert await ask(r, "POST", "/reload", headers) == (403, text)


async def test_a_reload_without_a_file_is_refused_in_words():
    async with rig(WITH_HTTP) as r:
        status, body = await ask(r, "POST", "/reload")
        assert status == 409
        assert json.loads(body) == {
            "error": "this gateway was started without a configuration file"
        }
        assert (await ask(r, "GET", "/reload"))[0] == 405


async def test_a_token_is_required_where_one_is_set():
    with directory() as path:
        file = path / "token"
        file.write_text("0123456789abcdef\n")
        async with rig({"http": {"port": 0, "token_file": str(file)}}) as r:
            assert (await ask(r, "GET", "/accounting/json"))[0] == 401
            wrong = {"Authorization": "Bearer 0123456789abcdeX"}
            assert (await ask(r, "GET", "/accounting/json", wrong))[0] == 401
            right = {"Authorization": "Bearer 0123456789abcdef"}
            assert (await ask(r, "GET", "/accounting/json", right))[0] == 200


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("short", "the token has fewer than 16 bytes"),
        ("x" * 5000, "the token has more than 4096 bytes"),
        (None, "is no regular file"),
    ],
)
async def test_what_is_no_token_is_refused(tmp_path: Path, token: str | None, reason: str):
    if token is None:
        os.mkfifo(tmp_path / "token")
    else:
        (tmp_path / "token").write_text(token)
    with directory() as path:
        http = {"port": 0, "token_file": str(tmp_path / "token")}
        with pytest.raises(ConfigError, match=reason):
            async with Gateway(configuration(path, {"http": http})):
                pass


async def test_the_gateway_is_ready_while_its_inputs_are_open_with_or_without_kafka():
    with directory() as path:
        async with Gateway(
            configuration(path, {"http": {"port": 0}, "delivery": {"shutdown_max_delay_ms": 100}})
        ) as gateway:
            r = Rig(None, None, gateway, path)  # type: ignore[arg-type]
            status, body = await ask(r, "GET", "/readyz")
            assert status == 200
            ready = json.loads(body)
            assert (ready["ready"], ready["kafka_reachable"]) == (True, False)
            assert ready["inputs"] == [one.where for one in gateway.inputs]
            assert (await ask(r, "GET", "/healthz"))[0] == 200


async def test_metrics_have_topics_that_exist_as_labels():
    async with rig(WITH_HTTP) as r:
        await r.send(message("orders", b"v"), message("made-up", b"v"), b"bad")
        await r.settled(3)
        status, body = await ask(r, "GET", "/metrics")
        assert status == 200
        lines = set(body.splitlines())
        assert 'aiokq_gateway_received_total{topic="orders"} 1.0' in lines
        assert 'aiokq_gateway_received_total{topic=""} 2.0' in lines
        assert 'aiokq_gateway_acked_total{topic="orders"} 1.0' in lines
        assert 'aiokq_gateway_discarded_total{reason="bad_topic",topic=""} 1.0' in lines
        assert 'aiokq_client_records_sent_total{client="aiokq-gateway"} 1.0' in lines
        assert "made-up" not in body


async def test_a_gateway_is_closed_once_and_not_started_again():
    """Two tasks may close it at the same time, and each gets the numbers at the end."""
    async with rig() as r:
        await r.send(*[message("orders", b"v")] * 100)
        await r.until(lambda: r.gateway.snapshot().total.received == 100)
        first, second = await asyncio.gather(*[close() for close in [r.gateway.close] * 2])
        assert first is second
        assert first.total.acked == 100
        with pytest.raises(Closed, match="was started or closed already"):
            await r.gateway.start()


async def test_a_gateway_that_was_not_started_can_be_closed():
    with directory() as path:
        gateway = Gateway(configuration(path))
        assert gateway.snapshot().total.received == 0
        assert (await gateway.close()).total.received == 0


async def test_a_port_in_use_ends_the_start_and_leaves_nothing_open():
    with directory() as path, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        http = {"port": taken.getsockname()[1]}
        with pytest.raises(ConfigError, match="address already in use"):
            async with Gateway(configuration(path, {"http": http})):
                pass
        assert list(path.iterdir()) == []
        await asyncio.sleep(0)
        assert {task.get_name() for task in asyncio.all_tasks()} == {
            task.get_name() for task in [asyncio.current_task()] if task is not None
        }


async def broken() -> None:
    raise ValueError("secret")


async def test_a_gateway_of_which_a_part_has_failed_answers_without_the_error():
    """/healthz needs no token; the log has the error."""
    async with rig(WITH_HTTP) as r:
        r.gateway._spawn(broken(), "broken")
        await r.until(lambda: r.gateway.failed is not None)
        assert await ask(r, "GET", "/healthz") == (503, '{"status": "failed"}\n')
        assert (await ask(r, "GET", "/metrics"))[0] == 200
        assert (await ask(r, "GET", "/accounting/json"))[0] == 200


@pytest.mark.parametrize("extra", [{}, {"dead_letters": {"topic": "dead"}}])
@pytest.mark.parametrize("when", ["before", "while it closes"])
async def test_a_gateway_of_which_a_part_fails_is_closed(when: str, extra: dict[str, object]):
    """With messages that have no outcome: they are counted, and sockets and threads end."""
    with directory() as path:
        values = {**WITH_HTTP, **extra, "delivery": {"shutdown_max_delay_ms": 10_000}}
        gateway = Gateway(configuration(path, values))
        await gateway.start()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
            opened.connect(f"{path}/datagram")
            opened.send(message("orders", b"v"))
        async with asyncio.timeout(LIMIT):
            while not gateway.snapshot().total.received:  # noqa: ASYNC110  of another thread
                await asyncio.sleep(0.01)
            if when == "before":
                gateway._spawn(broken(), "broken")
                await asyncio.sleep(0)
            closing = asyncio.create_task(gateway.close())
            if when != "before":
                await asyncio.sleep(0.3)
                gateway._spawn(broken(), "broken")
            final = await closing
        balanced(final)
        assert final.total.document()["discarded"] == {"shutdown": 1}
        assert not any(one.counts().running for one in gateway.inputs)
        assert all(one.socket.socket.fileno() == -1 for one in gateway.inputs)
        assert gateway.cluster.closed
        assert gateway.http is not None
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", gateway.http.port), timeout=1)


async def test_connections_that_send_nothing_take_no_place_from_others():
    """Thousands of them, some with half of a request: the oldest make room for new ones."""
    async with rig(WITH_HTTP) as r:
        assert r.gateway.http is not None
        loop = asyncio.get_running_loop()
        opened = []
        try:
            for n in range(3 * MOST_CONNECTIONS):
                one = socket.socket()
                opened.append(one)
                one.setblocking(False)
                await loop.sock_connect(one, ("127.0.0.1", r.gateway.http.port))
                if n % 3 == 0:
                    await loop.sock_sendall(one, b"GET /accounting/json HTTP/1.1\r\nHos")
                if n % 100 == 0:
                    assert (await ask(r, "GET", "/healthz"))[0] == 200
            assert (await ask(r, "GET", "/healthz"))[0] == 200
            http = r.gateway.http
            await r.until(lambda: http._server.connections <= MOST_CONNECTIONS)
        finally:
            for one in opened:
                one.close()


async def test_an_input_with_all_its_connections_is_a_warning():
    one = {"type": "tcp", "port": 0, "max_connections": 2}
    async with rig({**WITH_HTTP, "inputs": [one]}) as r:
        first, _, third = (r.socket("tcp") for _ in range(3))
        third.sendall(message("orders", b"waits"))
        await r.until(lambda: r.gateway.inputs[0].counts().connections == 2)
        status, body = await ask(r, "GET", "/readyz")
        assert status == 200
        assert "has max_connections (2) connections; further ones wait until one is " in body
        assert "is closed or idle for 10 s" in body
        assert r.gateway.snapshot().total.received == 0
        first.close()
        assert (await r.settled(1)).total.acked == 1


async def test_idle_connections_make_room_for_others(caplog):
    """One program that opens all connections and does nothing keeps no other from sending."""
    one = {"type": "tcp", "port": 0, "max_connections": 20, "idle_when_full_ms": 100}
    async with rig({**WITH_HTTP, "inputs": [one]}) as r:
        held = [r.socket("tcp") for _ in range(20)]
        await r.until(lambda: r.gateway.inputs[0].counts().connections == 20)
        for n in range(5):
            await r.send(message("orders", b"%d" % n), kind="tcp")
        assert (await r.settled(5)).total.acked == 5
        _, text = await ask(r, "GET", "/metrics")
        name = "aiokq_gateway_input_closed_connections_total"
        count = re.search(rf'{name}{{[^}}]*reason="displaced"[^}}]*}} ([0-9.]+)', text)
        assert count is not None
        displaced = r.gateway.inputs[0].counts().displaced
        assert 1 <= float(count[1]) <= displaced <= 5
        await r.until(lambda: "others waited for their places" in caplog.text)
        assert sum(opened.recv(1) == b"" for opened in held[:displaced]) == displaced


async def test_the_head_of_a_request_has_a_time_limit():
    """Of the first request and of a later one; a byte now and then does not extend it."""
    async with rig(WITH_HTTP) as r:
        assert r.gateway.http is not None
        r.gateway.http._server.head_seconds = 0.4

        async def drip(*before: bytes) -> float:
            reader, writer = await asyncio.open_connection("127.0.0.1", r.gateway.http.port)
            for one in before:
                writer.write(one)
                await reader.readuntil(b"ok")
            began = asyncio.get_running_loop().time()
            with contextlib.suppress(OSError):
                for byte in b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + bytes(1000):
                    writer.write(bytes([byte]))
                    await writer.drain()
                    if reader.at_eof():
                        break
                    await asyncio.sleep(0.02)
            writer.close()
            return asyncio.get_running_loop().time() - began

        whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for before in ((), (whole,), (whole, whole)):
            assert 0.2 < await drip(*before) < 5
        async with aiohttp.ClientSession() as session:  # one that asks stays open
            for _ in range(6):
                async with session.get(r.gateway.http.where + "/healthz") as response:
                    assert response.status == 200
                await asyncio.sleep(0.1)
            assert r.gateway.http._server.connections == 1


async def raw(r: Rig, *parts: bytes, pause: float = 0.0) -> bytes:
    """Send bytes on a connection of their own, close its sending side, and return the answers."""
    assert r.gateway.http is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", r.gateway.http.port)
    for part in parts:
        writer.write(part)
        await asyncio.sleep(pause)
    with contextlib.suppress(OSError):  # it was closed
        writer.write_eof()
    async with asyncio.timeout(LIMIT):
        found = await reader.read()
    writer.close()
    return found


GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def test_requests_in_pieces_together_and_with_bodies():
    async with rig(WITH_HTTP) as r:
        whole = GET + GET.replace(b"GET", b"HEAD") + GET.replace(b"healthz", b"nope")
        answers = await raw(r, *(bytes([byte]) for byte in whole))
        first, second, third = answers.split(b"HTTP/1.1 ")[1:]
        assert first.startswith(b"200 OK\r\n")
        assert first.endswith(b'{"status": "ok"}\n')
        assert b"Content-Length: 17\r\n" in second
        assert second.endswith(b"\r\n\r\n")
        assert third.startswith(b"404 Not Found\r\n")
        post = b"POST /metadata_update HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n"
        answers = await raw(r, post, b"GET /", GET, pause=0.05)
        assert [one[:3] for one in answers.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200"]
        expects = post.replace(b"5\r\n", b"5\r\nExpect: 100-continue\r\n")
        answers = await raw(r, expects, b"12345", pause=0.05)
        assert [one[:3] for one in answers.split(b"HTTP/1.1 ")[1:]] == [b"100", b"200"]
        chunked = GET.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert (await raw(r, chunked + b"2\r\nab\r\n0\r\n\r\n", GET)).count(b"200 OK") == 2
        assert (await raw(r, *[GET] * 500)).count(b"200 OK") == 500
        last = await raw(r, GET.replace(b"\r\n\r\n", b"\r\nConnection: Close\r\n\r\n"), GET)
        assert last.count(b"200 OK") == 1


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400"),
        (b"\r\n\r\n", b"400"),
        (b"GET /healthz\r\n\r\n", b"400"),
        (GET.replace(b"GET", b"G@T"), b"400"),
        (GET.replace(b"HTTP/1.1", b"FTP/1.1"), b"400"),
        (GET.replace(b"healthz", b"\xff"), b"400"),
        (GET.replace(b"Host: localhost", b"X: 1"), b"400"),
        (GET.replace(b"Host: localhost", b"Host: localhost\r\nHost: a"), b"400"),
        (GET.replace(b"Host: localhost", b"Host: localhost\nHost: a"), b"400"),
        (GET.replace(b"Host: localhost", b"Host: localhost\r\nX : 1"), b"400"),
        (GET.replace(b"Host: localhost", b"Host: localhost\r\nX: \0"), b"400"),
        (GET.replace(b"\r\n\r\n", b"\r\nContent-Length: -1\r\n\r\n"), b"400"),
        (GET.replace(b"\r\n\r\n", b"\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n"), b"400"),
        (
            GET.replace(b"\r\n\r\n", b"\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"),
            b"400",
        ),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000, b"431"),
        (GET.replace(b"\r\n\r\n", b"\r\nContent-Length: 70000\r\n\r\n"), b"413"),
        (
            GET.replace(
                b"\r\n\r\n",
                b"\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 70_000,
            ),
            b"413",
        ),
        (GET.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: gzip\r\n\r\n"), b"501"),
        (GET.replace(b"GET /healthz", b"HEAD *"), b"400"),
        (
            GET.replace(b"GET", b"HEAD").replace(
                b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n"
            ),
            b"400",
        ),
        (GET.replace(b"GET", b"PUT"), b"405"),
    ],
)
async def test_what_is_no_request_is_refused_and_not_read_on(sent: bytes, status: bytes):
    async with rig(WITH_HTTP) as r:
        answers = (await raw(r, sent, GET, pause=0.05)).split(b"HTTP/1.1 ")[1:]
        assert answers[0][:3] == status
        assert len(answers) == (2 if status == b"405" else 1)
        assert (await ask(r, "GET", "/healthz"))[0] == 200


async def test_a_body_of_very_many_chunks_lets_other_tasks_run():
    """64 KB in chunks of one byte are 64,000 parts, which take a second."""
    answered = []

    def answer(request: Request) -> Response:
        answered.append(request)
        return Refusal(404).response

    server = HttpServer(answer, lambda work, name: work.close())
    await server.start("127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"1\r\nx\r\n" * 60_000 + b"0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
        response = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n"))
        gc.collect()
        gc.disable()
        longest, last = 0.0, time.thread_time()
        while not response.done():
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now
        gc.enable()
        assert (await response).startswith(b"HTTP/1.1 404 ")
        assert longest < 0.1
        writer.write_eof()
        await reader.read()  # the second request is answered, then the connection is closed
        assert [request.method for request in answered] == ["POST", "GET"]
        writer.close()
    finally:
        await server.close(1.0)


async def test_requests_that_take_long_let_other_tasks_run():
    """Such as 16 reports of many topics, which a program requests at once."""

    def answer(request: Request) -> Response:
        until = time.thread_time() + 0.015
        while time.thread_time() < until:
            pass
        return Refusal(404).response

    server = HttpServer(answer, lambda work, name: work.close())
    await server.start("127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 16)
        writer.write_eof()
        answers = asyncio.ensure_future(reader.read())
        longest, last = 0.0, time.thread_time()
        while not answers.done():
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now
        assert (await answers).count(b"HTTP/1.1 404 ") == 16
        assert longest < 0.1
        writer.close()
    finally:
        await server.close(1.0)


async def test_a_program_that_does_not_read_its_answers_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
):
    """It holds at most one answer that was not sent, and only for some time."""
    monkeypatch.setattr("aiokq.gateway.http_server.WRITE_SECONDS", 0.5)
    async with rig(WITH_HTTP) as r:
        assert r.gateway.http is not None
        http = r.gateway.http
        page = GET.replace(b"/healthz", b"/")
        with socket.create_connection(("127.0.0.1", http.port)) as deaf:
            deaf.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(3000):
                    deaf.send(page)
            await r.until(lambda: http._server.connections == 1)
            assert (await ask(r, "GET", "/healthz"))[0] == 200
            await r.until(lambda: http._server.connections == 0)


async def test_a_shutdown_does_not_wait_for_a_program_that_does_not_read_its_answers(
    monkeypatch: pytest.MonkeyPatch,
):
    """Regression: HTTP took a second more than the time of the shutdown."""
    monkeypatch.setattr("aiokq.gateway.http.SHUTDOWN_SECONDS", 3600)
    values = {**WITH_HTTP, "delivery": {"shutdown_max_delay_ms": 100}}
    async with rig(values) as r:
        assert r.gateway.http is not None
        http = r.gateway.http
        page = GET.replace(b"/healthz", b"/")
        with socket.create_connection(("127.0.0.1", http.port)) as deaf:
            deaf.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(3000):
                    deaf.send(page)
            await r.until(lambda: any(one.unsent for one in http._server._open))
            async with asyncio.timeout(LIMIT):
                await r.gateway.close()
            assert http._server.connections == 0


async def test_large_answers_that_nobody_reads_take_limited_memory():
    """Regression: 256 connections that did not read reports of many topics took hundreds of MB."""
    body = bytes(8 << 20)  # more than the system takes
    server = HttpServer(lambda request: Response(200, body), lambda work, name: work.close())
    await server.start("127.0.0.1", 0)
    loop = asyncio.get_running_loop()
    try:
        with contextlib.ExitStack() as stack:
            deaf = []
            for _ in range(8):
                deaf.append(
                    stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
                )
                deaf[-1].setblocking(False)
                deaf[-1].sendall(GET)
                await asyncio.sleep(0.05)
                assert sum(one.unsent for one in server._open) <= MOST_UNSENT
            assert 0 < server.connections < 8
            read = 0
            async with asyncio.timeout(LIMIT):
                while read < len(body):  # the last program has its answer
                    read += len(await loop.sock_recv(deaf[-1], 1 << 20))
    finally:
        await server.close(1.0)


async def test_a_path_of_any_bytes_is_text_in_reports():
    with directory() as path:
        name = os.fsdecode(os.fsencode(path) + b"/\xff")
        async with Gateway(bootstrap_servers="127.0.0.1:1", unix_stream=name, http=0) as gateway:
            gateway.inputs[0].intake.stop()
            r = Rig(None, None, gateway, path)  # type: ignore[arg-type]
            status, body = await ask(r, "GET", "/readyz")
            assert status == 503
            assert json.loads(body)["reasons"] == [f"the input {path}/\\xff does not run"]


async def test_a_port_that_is_in_use_is_refused_and_left_free():
    async with rig(WITH_HTTP) as r:
        assert r.gateway.http is not None
        with directory() as path:
            taken = configuration(path, {"http": {"port": r.gateway.http.port}})
            with pytest.raises(ConfigError, match="HTTP on "):
                await Gateway(taken).start()
        assert (await ask(r, "GET", "/healthz"))[0] == 200
