"""The gateway's HTTP interface: who may use it, and what its probes and metrics say."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import aiohttp
import pytest

from aiokq.errors import Closed, ConfigError
from aiokq.gateway import Gateway
from aiokq.gateway.http import MOST_CONNECTIONS
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


async def test_a_short_token_is_refused(tmp_path: Path):
    (tmp_path / "token").write_text("short")
    with directory() as path:
        http = {"port": 0, "token_file": str(tmp_path / "token")}
        with pytest.raises(ConfigError, match="the token has fewer than 16 bytes"):
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
        assert await ask(r, "GET", "/healthz") == (503, '{"status": "failed"}')
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
            runner = r.gateway.http._runner
            assert runner is not None
            assert runner.server is not None
            await r.until(lambda: len(runner.server.connections) <= MOST_CONNECTIONS)
        finally:
            for one in opened:
                one.close()


async def test_a_port_that_is_in_use_is_refused_and_left_free():
    async with rig(WITH_HTTP) as r:
        assert r.gateway.http is not None
        with directory() as path:
            taken = configuration(path, {"http": {"port": r.gateway.http.port}})
            with pytest.raises(ConfigError, match="HTTP on "):
                await Gateway(taken).start()
        assert (await ask(r, "GET", "/healthz"))[0] == 200
