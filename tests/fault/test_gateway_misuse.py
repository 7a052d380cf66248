"""A Gateway that is used where it does not belong: typed errors, and nothing of it changes."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aiokq.errors import Closed, ConfigError, KafkaError, WrongLoop
from aiokq.fastpath.gateway import Intake, Pool
from aiokq.fastpath.gateway.values import SHUTDOWN
from aiokq.gateway import Gateway, input_set, inputs
from aiokq.gateway.accounting import Accounting
from tests.fault.gateway_support import (
    LIMIT,
    balanced,
    configuration,
    directory,
    message,
    rig,
    values_of,
)
from tests.forking import LivingChild, in_child, needs_fork

Call = Callable[[Gateway], Coroutine[Any, Any, object]]


def _sync(name: str) -> Call:
    async def call(gateway: Gateway) -> object:
        return getattr(gateway, name)()

    return call


async def _measures(gateway: Gateway) -> object:
    return gateway.measures(Accounting(Pool(1)).snapshot())


CALLS: dict[str, Call] = {
    "start": lambda gateway: gateway.start(),
    "close": lambda gateway: gateway.close(),
    "reload": lambda gateway: gateway.reload(),
    "run_until": lambda gateway: gateway.run_until(asyncio.Event()),
    "snapshot": _sync("snapshot"),
    "problems": _sync("problems"),
    "measures": _measures,
    "update_metadata": _sync("update_metadata"),
}


def outcome(call: Call, gateway: Gateway) -> BaseException | None:
    """Make a call on a loop of this thread; return what it raises."""

    async def limited() -> None:
        async with asyncio.timeout(LIMIT):
            await call(gateway)

    try:
        asyncio.run(limited())
    except BaseException as error:
        return error
    return None


async def test_calls_on_another_loop_are_refused_and_the_gateway_works_on() -> None:
    async with rig() as r:
        await r.send(message("orders", b"before"))
        await r.settled(1)
        found: dict[str, BaseException | None] = {}

        def misuse() -> None:
            for name, call in CALLS.items():
                found[name] = outcome(call, r.gateway)

        thread = threading.Thread(target=misuse)
        thread.start()
        await asyncio.to_thread(thread.join, LIMIT)
        assert {name: type(error) for name, error in found.items()} == dict.fromkeys(
            CALLS, WrongLoop
        )
        assert "run_coroutine_threadsafe" in str(found["close"])
        with pytest.raises(WrongLoop, match="outside any event loop"):
            await asyncio.to_thread(r.gateway.snapshot)

        # The way that the error names.
        loop = asyncio.get_running_loop()

        def properly() -> object:
            return asyncio.run_coroutine_threadsafe(CALLS["snapshot"](r.gateway), loop).result(5)

        await asyncio.to_thread(properly)
        await r.send(message("orders", b"after"))
        await r.settled(2)
        assert values_of(await r.records("orders")) == [b"before", b"after"]


@needs_fork
async def test_a_forked_child_is_refused_and_leaves_the_gateway_alone() -> None:
    """The child has the parent's sockets, but not its threads; the pool may be locked for good."""
    async with rig({"http": {"port": 0}}) as r:
        await r.send(message("orders", b"before"))
        await r.settled(1)
        gateway = r.gateway

        def misuse() -> object:
            found = {}
            for name, call in CALLS.items():
                coro = call(gateway)
                try:
                    coro.send(None)
                except KafkaError as error:
                    found[name] = type(error).__name__
                except BaseException as error:
                    found[name] = repr(error)
            leave = gateway.__aexit__(None, None, None)
            try:
                leave.send(None)
            except StopIteration:
                found["aexit"] = "nothing"
            return found

        assert in_child(misuse) == str({**dict.fromkeys(CALLS, "WrongLoop"), "aexit": "nothing"})
        assert all(one.counts().running for one in gateway.inputs)
        await r.send(message("orders", b"after"))
        await r.settled(2)


@needs_fork
async def test_a_forked_child_does_not_hold_the_addresses_of_the_gateway() -> None:
    """Regression: programs could connect to the child, and no other gateway could start."""
    with directory() as path:
        async with Gateway(configuration(path, {"http": {"port": 0}})) as gateway:
            ports = [one.socket.port for one in gateway.inputs if one.type == "tcp"]
            assert gateway.http is not None
            ports.append(gateway.http.port)
            child = LivingChild().__enter__()
        try:
            for port in ports:
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", port or 0)).close()
            values = {
                "inputs": [{"type": "tcp", "port": ports[0]}],
                "http": {"port": ports[1]},
            }
            async with Gateway(configuration(path, values)) as another:
                assert all(one.counts().running for one in another.inputs)
        finally:
            child.__exit__()


@needs_fork
async def test_a_forked_child_does_not_hold_connections_of_http() -> None:
    """Regression: programs did not notice the end of the gateway as long as the child lived."""
    loop = asyncio.get_running_loop()
    with directory() as path, socket.socket() as program:
        program.setblocking(False)
        async with Gateway(configuration(path, {"http": {"port": 0}})) as gateway:
            assert gateway.http is not None
            await loop.sock_connect(program, ("127.0.0.1", gateway.http.port))
            await loop.sock_sendall(program, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            answer = await loop.sock_recv(program, 1 << 16)
            assert answer.startswith(b"HTTP/1.1 200")
            child = LivingChild().__enter__()
        try:
            async with asyncio.timeout(LIMIT):
                while await loop.sock_recv(program, 1 << 16):
                    pass
        finally:
            child.__exit__()


@needs_fork
async def test_a_forked_child_does_not_hold_the_lock_of_the_spool() -> None:
    """Regression: no gateway could start with the spool until the child had ended."""
    with directory() as path:
        values = configuration(path, {"spool": {"path": f"{path}/spool"}})
        async with Gateway(values):
            child = LivingChild().__enter__()
        try:
            async with Gateway(values) as another:
                assert all(one.counts().running for one in another.inputs)
        finally:
            child.__exit__()


async def test_a_gateway_is_started_once_and_closed_any_number_of_times() -> None:
    with directory() as path:
        gateway = Gateway(configuration(path))
        for name in ("run_until", "problems", "measures", "update_metadata"):
            with pytest.raises(Closed, match="not started"):
                await CALLS[name](gateway)
        with pytest.raises(ConfigError, match="without a configuration file"):
            await gateway.reload()
        assert gateway.snapshot().total.received == 0
        first = asyncio.ensure_future(gateway.start())
        with pytest.raises(Closed, match="create a new one"):
            await asyncio.gather(first, gateway.start())
        await first
        with pytest.raises(Closed, match="create a new one"):
            await gateway.start()
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with opened:
            opened.connect(f"{path}/datagram")
            opened.send(b"x")
            async with asyncio.timeout(LIMIT):
                while not gateway.snapshot().total.received:  # noqa: ASYNC110  a thread's count
                    await asyncio.sleep(0.01)
        snapshots = await asyncio.gather(*(gateway.close() for _ in range(5)))
        assert all(one is snapshots[0] for one in snapshots)
        assert await gateway.close() is snapshots[0]
        balanced(snapshots[0])
        assert snapshots[0].total.received == 1
        for name in ("start", "run_until"):
            with pytest.raises(Closed):
                await CALLS[name](gateway)
        assert await asyncio.to_thread(gateway.snapshot) is snapshots[0]
        assert sorted(one.name for one in path.iterdir()) == []


async def test_a_gateway_that_was_closed_before_its_start_stays_closed() -> None:
    with directory() as path:
        gateway = Gateway(configuration(path))
        assert (await gateway.close()).total.received == 0
        with pytest.raises(Closed, match="create a new one"):
            await gateway.start()
        assert not list(path.iterdir())


async def test_a_refused_start_leaves_the_datagrams_of_a_passed_socket_in_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """systemd starts the gateway again, and that one reads them."""
    with (
        directory() as path,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as owned,
        socket.socket() as busy,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
    ):
        where = f"{path}/passed"
        owned.bind(where)
        owned.setblocking(False)
        sender.connect(where)
        sent = message("orders", b"v")
        for _ in range(4):
            sender.send(sent)
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        passed = os.dup(owned.fileno())
        monkeypatch.setattr(inputs, "LISTEN_FDS_START", passed)
        monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
        monkeypatch.setenv("LISTEN_FDS", "1")
        values = {
            "inputs": [{"type": "unix_datagram", "path": where}],
            "http": {"port": busy.getsockname()[1]},
        }
        gateway = Gateway(configuration(path, values))
        with pytest.raises(ConfigError, match="HTTP on"):
            await gateway.start()
        assert gateway.snapshot().total.received == 0
        for _ in range(4):
            assert owned.recv(1000) == sent


async def test_a_start_without_a_thread_for_its_last_input_discards_what_it_has_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first input is read when the second fails: its messages are counted."""
    begun: list[Intake] = []

    def lacking(*args: Any, **options: Any) -> Intake:
        if begun:
            until = time.monotonic() + 10
            while begun[0].counts().received < 1 and time.monotonic() < until:
                time.sleep(0.01)
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        begun.append(Intake(*args, **options))
        return begun[0]

    monkeypatch.setattr(input_set, "Intake", lacking)
    with (
        directory() as path,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as owned,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
    ):
        where = f"{path}/passed"
        owned.bind(where)
        sender.connect(where)
        sender.send(message("orders", b"v"))
        monkeypatch.setattr(inputs, "LISTEN_FDS_START", os.dup(owned.fileno()))
        monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
        monkeypatch.setenv("LISTEN_FDS", "1")
        values = {
            "inputs": [
                {"type": "unix_datagram", "path": where},
                {"type": "unix_stream", "path": f"{path}/stream"},
            ]
        }
        gateway = Gateway(configuration(path, values))
        with pytest.raises(ConfigError, match="an input cannot be read"):
            await gateway.start()
        total = gateway.snapshot().total
        assert (total.received, total.in_flight) == (1, 0)
        assert total.discarded[SHUTDOWN] == 1


async def test_an_error_while_messages_are_passed_on_fails_the_gateway() -> None:
    """asyncio would log it, and the messages would wait for ever."""
    async with rig() as r:

        def accept(topic: object, taken: object) -> None:
            raise MemoryError

        r.gateway.engine.accept = accept  # type: ignore[method-assign]
        await r.send(message("orders", b"v"))
        with pytest.raises(Closed, match="the gateway has failed"):
            async with asyncio.timeout(10):
                await r.gateway.run_until(asyncio.Event())
        assert isinstance(r.gateway.failed, MemoryError)


@pytest.mark.parametrize("name", ["_enter", "_send_ready"])
async def test_an_error_in_the_callbacks_of_the_engine_bruce_fails_the_gateway(name: str) -> None:
    """Regression: asyncio logged it, and the messages had no outcome."""
    async with rig({"delivery": {"engine": "bruce", "shutdown_max_delay_ms": 500}}) as r:

        def fail(*arguments: object) -> None:
            raise MemoryError

        setattr(r.gateway.engine, name, fail)
        await r.send(message("orders", b"v"))
        with pytest.raises(Closed, match="the gateway has failed"):
            async with asyncio.timeout(10):
                await r.gateway.run_until(asyncio.Event())
        assert isinstance(r.gateway.failed, MemoryError)
        delattr(r.gateway.engine, name)


async def test_an_error_in_the_callbacks_of_the_spool_fails_the_gateway() -> None:
    with directory() as path:
        async with rig({"spool": {"path": f"{path}/spool"}}) as r:
            spool = r.gateway.spool
            assert spool is not None

            def take_change() -> None:
                raise MemoryError

            spool._take_change = take_change
            await r.send(message("orders", b"v"))
            with pytest.raises(Closed, match="the gateway has failed"):
                async with asyncio.timeout(10):
                    await r.gateway.run_until(asyncio.Event())
            assert isinstance(r.gateway.failed, MemoryError)
            del spool._take_change  # the messages stay in the files


async def test_many_inputs_that_wait_for_room_end_together() -> None:
    """Regression: each waits for a second, and a few threads stopped them one after the other."""
    with directory() as path:
        values = {
            "pool": {"max_bytes": 64 * 1024},
            "delivery": {"shutdown_max_delay_ms": 0},
            "inputs": [
                {"type": "unix_stream", "path": f"{path}/{n}", "when_full": "block"}
                for n in range(50)
            ],
        }
        async with Gateway(configuration(path, values)) as gateway:
            clients = []
            for n in range(50):
                clients.append(socket.socket(socket.AF_UNIX))
                clients[n].connect(f"{path}/{n}")
                clients[n].sendall(message("orders", b"x" * 2000) * 2)
            async with asyncio.timeout(LIMIT):
                while gateway.pool.counts().used_bytes < 50_000:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            begun = time.monotonic()
            await gateway.close()
            assert time.monotonic() - begun < 4
        for client in clients:
            client.close()


async def test_a_start_that_is_refused_leaves_nothing() -> None:
    """The second gateway on the same sockets, and one whose last part cannot be opened."""
    async with rig({"http": {"port": 0}}) as r:
        with pytest.raises(ConfigError):
            await Gateway(configuration(r.path)).start()
        assert r.gateway.http is not None
        with directory() as path:
            values = {"http": {"port": r.gateway.http.port}, "spool": {"path": f"{path}/spool"}}
            for _ in range(2):  # the spool is free again
                refused = Gateway(configuration(path, values))
                with pytest.raises(ConfigError, match="HTTP on"):
                    await refused.start()
                assert [one.name for one in path.iterdir()] == ["spool"]
        await r.send(message("orders", b"v"))
        await r.settled(1)
