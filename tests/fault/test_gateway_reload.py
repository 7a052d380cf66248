"""Reload of the configuration while messages arrive: nothing is lost, doubled or reordered."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import functools
import gc
import json
import os
import socket
import stat
import threading
import time
import urllib.error
import urllib.request
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import aiokq
from aiokq.errors import ConfigError
from aiokq.fastpath.gateway import TOO_LONG, UNCLEAN_DISCONNECT, Intake
from aiokq.gateway import Gateway, input_set, inputs, metrics
from aiokq.gateway.accounting import Snapshot
from aiokq.gateway.http_server import HttpServer
from aiokq.gateway.input_set import InputSet
from aiokq.gateway.inputs import OpenInput
from aiokq.gateway.settings_tables import InputSettings
from tests.fault.gateway_support import (
    LIMIT,
    balanced,
    directory,
    message,
    records_of,
    values_of,
)

BASE = """\
[batching]
time_ms = 1
[delivery]
engine = "{engine}"
shutdown_max_delay_ms = {delay}
[kafka]
bootstrap_servers = "{servers}"
client_id = "{client}"
[http]
port = {http}
"""
DATAGRAM = """\
[[inputs]]
type = "unix_datagram"
path = "{path}/datagram"
mode = "{mode}"
max_message_bytes = {limit}
"""
STREAM = """\
[[inputs]]
type = "unix_stream"
path = "{path}/stream"
"""


class Running:
    """A gateway with a file, and the options in the file."""

    def __init__(self, path: Path, servers: str) -> None:
        self.path = path
        self.file = path / "gateway.toml"
        self.options: dict[str, Any] = {
            "engine": "producer",
            "delay": 20_000,
            "servers": servers,
            "client": "first",
            "http": 0,
            "mode": "0222",
            "limit": 60_000,
            "path": path,
        }
        self.base = BASE
        self.inputs = [DATAGRAM]
        self.gateway: Gateway

    def write(self, **options: Any) -> None:
        self.options |= options
        parts = (self.base, *self.inputs)
        self.file.write_text("".join(part.format(**self.options) for part in parts))

    async def reload(self, **options: Any) -> list[str]:
        self.write(**options)
        return await self.gateway.reload()

    async def settled(self, received: int) -> Snapshot:
        async with asyncio.timeout(LIMIT):
            while True:
                snapshot = self.gateway.snapshot()
                balanced(snapshot)
                if snapshot.total.received >= received and not snapshot.total.in_flight:
                    return snapshot
                await asyncio.sleep(0.01)

    def ask(self, path: str, method: str = "GET") -> tuple[int, dict[str, Any]]:
        assert self.gateway.http is not None
        request = urllib.request.Request(self.gateway.http.where + path, method=method)
        try:
            with urllib.request.urlopen(request, timeout=LIMIT) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


class Sender:
    """A thread that writes numbered messages to the datagram input, until it is stopped."""

    def __init__(self, path: Path, partition: int) -> None:
        self.partition = partition
        self.sent = 0
        self._path = path
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Sender:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
            opened.connect(f"{self._path}/datagram")
            while not self._stop.is_set():
                opened.send(message("orders", b"%d" % self.sent, partition_key=self.partition))
                self.sent += 1
                if self.sent % 50 == 0:
                    time.sleep(0.002)


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[tuple[Running, aiokq.EmbeddedCluster]]:
    with directory() as path:
        async with aiokq.EmbeddedCluster() as kafka:
            await create(kafka)
            made = Running(path, kafka.bootstrap_servers)
            made.write()
            made.gateway = Gateway(made.file)
            async with made.gateway:
                yield made, kafka


async def create(kafka: aiokq.EmbeddedCluster) -> None:
    async with aiokq.Admin(kafka.bootstrap_servers) as admin:
        await admin.create_topics([aiokq.NewTopic("orders", 3)])


async def check_order(servers: str, *senders: Sender) -> None:
    """Check that each message of each sender is there once, in order."""
    records = await records_of(servers, "orders")
    for sender in senders:
        found = [one.value for one in records if one.partition == sender.partition]
        assert found == [b"%d" % n for n in range(sender.sent)]


async def test_inputs_are_added_changed_and_removed_under_traffic():
    async with running() as (r, kafka):
        with Sender(r.path, 0) as sender:
            await asyncio.sleep(0.1)
            r.inputs.append(STREAM)
            assert await r.reload() == ["inputs"]
            with socket.socket(socket.AF_UNIX) as stream:
                stream.connect(f"{r.path}/stream")
                await asyncio.to_thread(stream.sendall, message("orders", b"s", partition_key=1))
                for n in range(10):
                    await r.reload(limit=50_000 + n, mode=f"02{n % 2}2")
                    mode = stat.S_IMODE(os.stat(r.path / "datagram").st_mode)
                    assert mode == int(f"02{n % 2}2", 8)
                    await asyncio.sleep(0.03)
                # What the kernel has is read before the input ends.
                data = message("orders", b"last", partition_key=1) * 1000
                await asyncio.to_thread(stream.sendall, data)
                r.inputs.remove(STREAM)
                assert await r.reload() == ["inputs"]
                assert not (r.path / "stream").exists()
        snapshot = await r.settled(sender.sent + 1001)
        assert snapshot.total.acked == sender.sent + 1001
        await check_order(kafka.bootstrap_servers, sender)
        assert [one.type for one in r.gateway.inputs] == ["unix_datagram"]


async def test_another_cluster_object_keeps_the_order_under_traffic():
    """A changed setting of [kafka] needs a new Cluster; the old one delivers first."""
    async with running() as (r, kafka):
        with Sender(r.path, 0) as first, Sender(r.path, 1) as second:
            for n in range(8):
                await asyncio.sleep(0.1)
                before = r.gateway.cluster
                assert await r.reload(client=f"client-{n}") == ["kafka"]
                assert r.gateway.cluster is not before
                assert before.closed
        snapshot = await r.settled(first.sent + second.sent)
        assert snapshot.total.acked == first.sent + second.sent
        await check_order(kafka.bootstrap_servers, first, second)


@pytest.mark.parametrize("engine", ["producer", "bruce"])
async def test_clients_are_replaced_while_kafka_stops_and_starts(engine: str):
    """Messages that failed go to the next client, in order, also if a reload was refused before."""
    with directory() as path:
        data = path / "data"
        kafka = aiokq.EmbeddedCluster(data_dir=data)
        await kafka.start()
        await create(kafka)
        servers = kafka.bootstrap_servers
        port = int(servers.rpartition(":")[2])
        r = Running(path, servers)
        r.base = BASE.replace("[delivery]\n", "[delivery]\n{quick}")
        quick = "pause_initial_ms = 100\nmin_pause_ms = 50\n" if engine == "bruce" else ""
        r.write(engine=engine, quick=quick, delay=1500)
        r.gateway = Gateway(r.file)
        async with r.gateway:
            with Sender(r.path, 0) as first, Sender(r.path, 1) as second:
                for n in range(3):
                    await kafka.close()
                    await asyncio.sleep(0.2)
                    reload = asyncio.create_task(r.reload(client=f"away-{n}"))
                    await asyncio.sleep(0.2 + n)  # in the last round, the reload gives up
                    kafka = aiokq.EmbeddedCluster(data_dir=data, port=port)
                    await kafka.start()
                    with contextlib.suppress(ConfigError):
                        await reload
                    assert await r.reload(client=f"back-{n}") == ["kafka"]
            snapshot = await r.settled(first.sent + second.sent)
            assert snapshot.total.acked == first.sent + second.sent
        if engine == "producer":
            assert snapshot.total.possible_duplicates == 0
            await check_order(servers, first, second)
        else:
            found = {(one.partition, one.value) for one in await records_of(servers, "orders")}
            assert found == {
                (s.partition, b"%d" % n) for s in (first, second) for n in range(s.sent)
            }
        await kafka.close()


async def test_the_engine_can_change_under_traffic():
    async with running() as (r, kafka):
        with Sender(r.path, 0) as sender:
            for n in range(4):
                await asyncio.sleep(0.1)
                engine = ("bruce", "producer")[n % 2]
                assert await r.reload(engine=engine) == ["delivery.engine"]
        snapshot = await r.settled(sender.sent)
        assert snapshot.total.acked == sender.sent
        await check_order(kafka.bootstrap_servers, sender)


async def test_counters_do_not_decrease_when_client_and_engine_are_replaced():
    """The counts of the old ones were forgotten, as if the gateway had been started again."""
    async with running() as (r, _):

        async def counters() -> dict[str, int]:
            _, found = await asyncio.to_thread(r.ask, "/counters/json")
            return {one["name"]: one["value"] for one in found["counters"]}

        await r.reload(engine="bruce")
        with Sender(r.path, 0) as sender:
            await asyncio.sleep(0.3)
        await r.settled(sender.sent)
        r.gateway.engine.counters.pauses_started += 1  # type: ignore[attr-defined]
        before = await counters()
        assert before["RouterThreadStartPause"] == 1
        for options in ({"client": "second"}, {"engine": "producer"}, {"client": "third"}):
            await r.reload(**options)
            after = await counters()
            assert {name for name in before if after[name] < before[name]} == set()
            before = after
        assert before["ConnectorConnectSuccess"] >= 3
        assert before["RouterThreadStartPause"] == 1


async def test_the_metrics_of_the_client_do_not_decrease_when_it_is_replaced():
    """Regression: those of the new client began with zero."""

    def counters(r: Running) -> dict[str, float]:
        found = {}
        for line in metrics.exposition(r.gateway).decode().splitlines():
            name, value = line.rsplit(" ", 1)
            kind = name.partition("{")[0].rpartition("_")[2]
            if line.startswith("aiokq_client_") and kind in ("total", "count", "sum", "bucket"):
                found[name] = float(value)
        return found

    async with running() as (r, _):
        with Sender(r.path, 0) as sender:
            await asyncio.sleep(0.1)
        await r.settled(sender.sent)
        before = counters(r)
        sent = 'aiokq_client_records_sent_total{client="%s"}'
        assert before[sent % "first"] == sender.sent
        for client in ("second", "first", "second"):
            await r.reload(client=client)
            await r.gateway.cluster.refresh("orders")
            after = counters(r)
            assert {name for name in before if after.get(name, 0) < before[name]} == set()
            before = after
        assert before[sent % "first"] == sender.sent
        assert before['aiokq_client_connections_opened_total{client="second"}'] >= 2
        # One object for each client id, and the client in use.
        assert len(r.gateway.clients) == 3


async def test_the_largest_message_of_engine_bruce_can_change():
    async with running() as (r, _):
        limit = "[delivery]\nmessage_max_bytes = {largest}\n"
        r.base = BASE.replace("[delivery]\n", limit)
        await r.reload(engine="bruce", largest=2000)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
            opened.connect(f"{r.path}/datagram")
            opened.send(message("orders", bytes(5000)))
            opened.send(message("orders", b"small"))
            snapshot = await r.settled(2)
            assert snapshot.total.acked == 1
            assert snapshot.total.discarded[TOO_LONG] == 1
            assert await r.reload(largest=10_000) == ["delivery.message_max_bytes"]
            opened.send(message("orders", bytes(5000)))
            snapshot = await r.settled(3)
        assert snapshot.total.acked == 2


async def test_the_rate_of_dead_letters_can_change():
    async with running() as (r, _):
        r.base += '[dead_letters]\ntopic = "dead"\nmax_per_s = {rate}\n'
        r.write(rate=3)
        await r.gateway.close()  # a table that is added needs a restart
        async with Gateway(r.file) as r.gateway:
            pool, letters = r.gateway.pool, r.gateway.dead_letters
            pool.feed(message("no/name", b"v") * 50)
            assert len(pool.refused()) == 3
            assert letters.grant(50) == 3
            assert await r.reload(rate=20) == ["dead_letters"]
            pool.feed(message("no/name", b"v") * 50)
            assert len(pool.refused()) == 20
            assert letters.grant(50) == 20


async def test_messages_go_to_other_brokers_after_the_reload():
    async with running() as (r, kafka), aiokq.EmbeddedCluster() as other:
        await create(other)
        with Sender(r.path, 0) as sender:
            await asyncio.sleep(0.2)
            await r.reload(servers=other.bootstrap_servers)
            await asyncio.sleep(0.2)
        snapshot = await r.settled(sender.sent)
        assert snapshot.total.acked == sender.sent
        old = values_of(await records_of(kafka.bootstrap_servers, "orders"))
        new = values_of(await records_of(other.bootstrap_servers, "orders"))
        assert old
        assert new
        assert old + new == [b"%d" % n for n in range(sender.sent)]


async def test_other_brokers_are_refused_while_the_old_ones_acknowledge_nothing():
    """The messages under way belong to the old brokers: nothing changes, and it is said."""
    async with running() as (r, kafka):
        with Sender(r.path, 0) as sender:
            await asyncio.sleep(0.1)
            await kafka.close()
            await asyncio.sleep(0.2)
            with pytest.raises(ConfigError, match="not delivered within"):
                await r.reload(servers="127.0.0.1:1", delay=500)
        status, ready = await asyncio.to_thread(r.ask, "/readyz")
        assert (status, ready["ready"]) == (200, True)
        assert "not delivered" in json.dumps(ready)
        snapshot = r.gateway.snapshot()
        balanced(snapshot)
        assert snapshot.total.received == sender.sent
        assert not snapshot.total.document()["discarded"]


@pytest.mark.parametrize(
    "wrong",
    [
        "[nonsense]\n",
        '[[inputs]]\ntype = "tcp"\nport = {busy}\n',
        '[pool]\nmax_bytes = "1 MiB"\n',
        '[[inputs]]\ntype = "unix_stream"\npath = "/no/such/directory/s"\n',
        "another type",
    ],
)
async def test_a_file_that_does_not_check_changes_nothing_and_says_so(wrong: str):
    async with running() as (r, kafka):
        with socket.create_server(("127.0.0.1", 0)) as busy, Sender(r.path, 0) as sender:
            port = busy.getsockname()[1]
            settings, inputs = r.gateway.settings, r.gateway.inputs
            r.write(client="other", limit=1000)
            text = r.file.read_text() + wrong.format(busy=port)
            if wrong == "another type":  # the error said that another process listens there
                text = r.file.read_text().replace("unix_datagram", "unix_stream")
            r.file.write_text(text)
            status, answer = await asyncio.to_thread(r.ask, "/reload", "POST")
            assert status == 409
            assert ("its type has changed" in answer["error"]) is (wrong == "another type")
            assert r.gateway.settings is settings
            assert r.gateway.inputs is inputs
            _, ready = await asyncio.to_thread(r.ask, "/readyz")
            _, page = await asyncio.to_thread(r.ask, "/status/json")
            for shown in (ready["warnings"], page["problems"]["warnings"]):
                assert f"the configuration was not reloaded: {answer['error']}" in shown
            r.write(client="first", limit=60_000)
            status, answer = await asyncio.to_thread(r.ask, "/reload", "POST")
            assert (status, answer) == (200, {"changed": []})
            assert r.gateway.reload_error is None
        await r.settled(sender.sent)
        await check_order(kafka.bootstrap_servers, sender)


async def test_http_moves_to_another_port_and_answers_the_request():
    async with running() as (r, _):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        old = r.gateway.http
        assert old is not None
        r.write(http=port)
        status, answer = await asyncio.to_thread(r.ask, "/reload", "POST")
        assert (status, answer) == (200, {"changed": ["http"]})
        assert r.gateway.http is not old
        assert r.gateway.http is not None
        assert r.gateway.http.port == port
        assert (await asyncio.to_thread(r.ask, "/accounting/json"))[0] == 200
        async with asyncio.timeout(LIMIT):
            while True:
                try:
                    socket.create_connection(("127.0.0.1", old.port), timeout=1).close()
                except OSError:
                    break
                await asyncio.sleep(0.05)


async def test_http_takes_another_host_at_the_same_port():
    """It was refused, because the port was in use by the gateway itself. A later error of the
    reload lets it listen as before.
    """
    async with running() as (r, _):
        assert r.gateway.http is not None
        old, port = r.gateway.http, r.gateway.http.port
        (r.path / "token").write_text("0123456789abcdef")
        r.base = BASE + 'host = "{host}"\n{more}'
        wrong = (
            '[[inputs]]\ntype = "unix_datagram"\npath = "{path}/datagram"\nowner = "nobody-here"\n'
        )
        r.inputs = [wrong]
        token = f'token_file = "{r.path}/token"\n'
        r.write(http=port, host="0.0.0.0", more=token)
        status, answer = await asyncio.to_thread(r.ask, "/reload", "POST")
        assert (status, answer) == (409, {"error": "there is no user 'nobody-here'"})
        assert r.gateway.http is old
        assert (await asyncio.to_thread(r.ask, "/accounting/json"))[0] == 200
        r.inputs = [DATAGRAM]
        r.write()
        status, answer = await asyncio.to_thread(r.ask, "/reload", "POST")
        assert (status, answer) == (200, {"changed": ["http"]})
        assert r.gateway.http.address == ("0.0.0.0", port)
        assert (await asyncio.to_thread(r.ask, "/healthz"))[0] == 200
        with pytest.raises(urllib.error.HTTPError, match="401"):
            await asyncio.to_thread(
                urllib.request.urlopen, f"http://127.0.0.1:{port}/accounting/json", timeout=LIMIT
            )
        assert await r.reload(host="127.0.0.1", more="") == ["http"]
        assert (await asyncio.to_thread(r.ask, "/accounting/json"))[0] == 200


async def test_a_cancelled_reload_ends_its_change(monkeypatch: pytest.MonkeyPatch):
    """Otherwise an input that was stopped for its new options would stay stopped."""
    async with running() as (r, kafka):
        stopped, go_on = asyncio.Event(), asyncio.Event()
        stop = InputSet._stopped

        async def slowly(self: InputSet, inputs: list[OpenInput]) -> None:
            await stop(self, inputs)
            stopped.set()
            await go_on.wait()

        monkeypatch.setattr(InputSet, "_stopped", slowly)
        r.inputs.append(STREAM)
        reload = asyncio.create_task(r.reload(mode="0220"))
        async with asyncio.timeout(LIMIT):
            await stopped.wait()
        reload.cancel()
        await asyncio.sleep(0.05)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await reload
        monkeypatch.setattr(InputSet, "_stopped", stop)
        assert [one.type for one in r.gateway.inputs] == ["unix_datagram", "unix_stream"]
        assert all(one.counts().running for one in r.gateway.inputs)
        assert r.gateway.settings.inputs[0].mode == 0o220
        with Sender(r.path, 0) as sender:
            await asyncio.sleep(0.05)
        await r.settled(sender.sent)
        await check_order(kafka.bootstrap_servers, sender)


@pytest.mark.parametrize("fails", ["new input", "changed input"])
@pytest.mark.parametrize("engine", ["producer", "bruce"])
async def test_an_input_that_cannot_be_started_changes_nothing_and_ends_nothing(
    fails: str, engine: str, monkeypatch: pytest.MonkeyPatch
):
    """The system has no descriptor or no thread left; a reload by signal may not end a gateway."""
    async with running() as (r, kafka):
        lacks = [True]

        def lacking() -> None:
            if lacks[0]:
                lacks[0] = False
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        class Limited:
            def __init__(self, *arguments: Any, **options: Any) -> None:
                self._intake = Intake(*arguments, **options)
                self.stop, self.counts = self._intake.stop, self._intake.counts

            def start(self) -> None:
                lacking()
                self._intake.start()

        change = input_set._changed

        async def limited(one: OpenInput, settings: InputSettings) -> None:
            if lacks[0]:
                one.intake.stop()  # as `change` does without a thread
            lacking()
            await change(one, settings)

        with Sender(r.path, 0) as sender:
            before = r.gateway.settings
            if fails == "new input":
                monkeypatch.setattr(input_set, "Intake", Limited)
            else:
                monkeypatch.setattr(input_set, "_changed", limited)
            r.inputs.append(STREAM)
            r.write(mode="0220", engine=engine)
            r.gateway.reload_soon()
            async with asyncio.timeout(LIMIT):
                while r.gateway.reload_error is None:
                    assert r.gateway.failed is None
                    await asyncio.sleep(0.01)
            assert "open files" in r.gateway.reload_error
            assert r.gateway.settings.inputs == before.inputs
            assert [one.type for one in r.gateway.inputs] == ["unix_datagram"]
            assert all(one.counts().running for one in r.gateway.inputs)
            assert stat.S_IMODE(os.stat(r.path / "datagram").st_mode) == 0o222
            assert not (r.path / "stream").exists()
            # The same file works when there is room again.
            await r.gateway.reload()
            assert r.gateway.reload_error is None
            assert all(one.counts().running for one in r.gateway.inputs)
        assert len(r.gateway.inputs) == 2
        await r.settled(sender.sent)
        await check_order(kafka.bootstrap_servers, sender)


async def test_connections_stay_open_while_the_options_of_their_input_change():
    """Half a message, too; other users may send only on new connections."""
    stream = STREAM.format(path="{path}") + "idle_ms = 60000\n"
    async with running() as (r, _):
        r.inputs.append(stream)
        await r.reload()
        sent = message("orders", b"v")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(r.path / "stream"))
            client.sendall(sent + sent[:-1])
            await r.settled(1)
            r.inputs[-1] = stream + 'max_message_bytes = 5000\nwhen_full = "discard"\n'
            assert await r.reload() == ["inputs"]
            client.sendall(sent[-1:] + sent)
            await r.settled(3)
            r.inputs[-1] = stream + f"allowed_users = [{os.getuid()}]\n"
            assert await r.reload() == ["inputs"]
            assert await asyncio.to_thread(client.recv, 1) == b""
        assert r.gateway.snapshot().total.discarded[UNCLEAN_DISCONNECT] == 0


async def test_the_counts_of_closed_inputs_stay_in_the_totals_and_their_memory_does_not():
    async with running() as (r, _):
        for n in range(3):
            r.inputs.append(STREAM)
            await r.reload()
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(r.path / "stream"))
                client.sendall(message("orders", b"v")[:-1])
            await r.settled(n + 1)
            closed = weakref.ref(r.gateway.inputs[-1].socket)
            r.inputs.pop()
            await r.reload()
            totals = r.gateway.input_totals()
            assert totals["unix_stream"].unclean_disconnects == n + 1
            gc.collect()
            # The thread that has ended the input may refer to it a moment longer.
            async with asyncio.timeout(LIMIT):
                while closed() is not None:  # noqa: ASYNC110  no event tells
                    await asyncio.sleep(0.01)


async def test_the_counters_of_an_input_go_on_when_its_users_change():
    """Regression: the new reader of the socket began with zero."""

    def received(r: Running) -> list[bytes]:
        name = b"aiokq_gateway_input_received_total{"
        return [
            line.split()[-1]
            for line in metrics.exposition(r.gateway).splitlines()
            if line.startswith(name) and b"stream" in line
        ]

    async with running() as (r, _):
        stream = STREAM.format(path="{path}")
        r.inputs.append(stream)
        await r.reload()
        for count in (1, 2, 3):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(r.path / "stream"))
                client.sendall(message("orders", b"v"))
                await r.settled(count)
            assert received(r) == [b"%d.0" % count]
            r.inputs[-1] = stream + f"allowed_users = [{', '.join([str(os.getuid())] * count)}]\n"
            assert await r.reload() == ["inputs"]
            assert received(r) == [b"%d.0" % count]


async def test_a_system_without_descriptors_refuses_a_reload(monkeypatch: pytest.MonkeyPatch):
    def refused(*arguments: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async with running() as (r, _):
        with monkeypatch.context() as patch:
            patch.setattr(inputs, "_carries", lambda size, raised: refused())
            with pytest.raises(ConfigError, match="open files"):
                await r.reload(mode="0220")
        assert await r.gateway.reload() == ["inputs"]


@pytest.mark.parametrize("limits", [(4_000_000, 500_000), (500_000, 4_000_000)])
async def test_a_reload_that_fails_after_the_switch_keeps_only_the_tables_of_the_switch(
    limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch
):
    """Regression: the dead letters were those of the new file. With a lower limit, the new engine
    discarded large messages of the old inputs, even after a reload with the old file.
    """
    change = input_set._changed

    async def limited(one: OpenInput, settings: InputSettings) -> None:
        if one.type == "unix_stream" and settings.limit == limits[1]:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        await change(one, settings)

    async def send(r: Running) -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(r.path / "stream"))
            value = bytes(max(limits) * 3 // 4)
            await asyncio.to_thread(client.sendall, message("large", value))

    async with running() as (r, kafka):
        async with aiokq.Admin(kafka.bootstrap_servers) as admin:
            configs = {"max.message.bytes": "8000000"}
            await admin.create_topics([aiokq.NewTopic("large", 1, configs=configs)])
        await r.gateway.close()
        r.base += '[dead_letters]\ntopic = "{dead}"\nreasons = ["too_long"]\n'
        r.inputs.append(STREAM + "max_message_bytes = {large}\n")
        r.write(dead="old", large=limits[0])
        async with Gateway(r.file) as r.gateway:
            with monkeypatch.context() as patch:
                patch.setattr(input_set, "_changed", limited)
                with pytest.raises(ConfigError, match="open files"):
                    await r.reload(client="second", dead="new", large=limits[1])
            assert r.gateway.cluster.settings.client_id == "second"
            assert r.gateway.dead_letters._topic == "old"
            if limits[0] == max(limits):
                await send(r)
                assert (await r.settled(1)).total.acked == 1
            # Only the limit differs from what is in use.
            assert await r.reload(dead="old", large=max(limits)) == (
                [] if limits[0] == max(limits) else ["inputs"]
            )
            before = r.gateway.snapshot().total.acked
            await send(r)
            assert (await r.settled(before + 1)).total.acked == before + 1
            assert await r.reload(dead="new") == ["dead_letters"]
            assert r.gateway.dead_letters._topic == "new"


async def test_an_engine_is_replaced_only_for_larger_messages():
    async with running() as (r, _):
        r.inputs.append(STREAM + "max_message_bytes = {large}\n")
        await r.reload(large=2_000_000)
        engine = r.gateway.engine
        for large in (1_500_000, 2_000_000):
            assert await r.reload(large=large) == ["inputs"]
            assert r.gateway.engine is engine
        await r.reload(large=3_000_000)
        assert r.gateway.engine is not engine
        assert r.gateway.engine.max_message_bytes >= 3_000_000


async def test_the_counts_of_an_input_stay_after_a_reload_that_fails(
    monkeypatch: pytest.MonkeyPatch,
):
    """Regression: an input that begins again after the failure has counts of its own."""

    async def limited(one: OpenInput, settings: InputSettings) -> None:
        one.intake.stop()  # as `change` does without a thread
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async with running() as (r, _):
        r.inputs.append(STREAM)
        await r.reload()
        for count in (1, 2):
            with socket.socket(socket.AF_UNIX) as opened:
                opened.connect(f"{r.path}/stream")
                opened.sendall(b"\0\0")
            await r.settled(count)
            if count == 1:
                with monkeypatch.context() as patch:
                    patch.setattr(input_set, "_changed", limited)
                    r.inputs[-1] = STREAM + "idle_ms = 60000\n"
                    with pytest.raises(ConfigError, match="open files"):
                        await r.reload()
            assert r.gateway.input_totals()["unix_stream"].unclean_disconnects == count


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        port: int = opened.getsockname()[1]
        return port


async def write_to_both(r: Running, port: int) -> list[socket.socket]:
    """Write a message and a half to the TCP and the UNIX stream input."""
    clients = [socket.socket(socket.AF_UNIX), socket.socket()]
    for client, address in zip(clients, [f"{r.path}/stream", ("127.0.0.1", port)], strict=True):
        client.settimeout(LIMIT)
        client.connect(address)
        client.sendall(message("orders", b"whole") + message("orders", b"half")[:-1])
    return clients


@pytest.mark.parametrize("fails", ["before", "after"])
async def test_what_programs_write_to_new_inputs_is_counted_when_the_reload_fails(
    fails: str, monkeypatch: pytest.MonkeyPatch
):
    """Regression: the sockets were closed unread, or the totals did not have what was received.

    The reload fails before or after the new inputs are read.
    """
    clients: list[socket.socket] = []
    guarded: list[int] = []
    port = free_port()
    refuse = inputs._refuse_connections

    def refuse_connections(listening: socket.socket) -> None:
        guarded.append(listening.getsockname()[1])
        refuse(listening)

    monkeypatch.setattr(inputs, "_refuse_connections", refuse_connections)
    async with running() as (r, kafka):

        async def failing(*arguments: object) -> None:
            if clients:
                return  # the input that did not change is read as before
            clients.extend(await write_to_both(r, port))
            if fails == "after":
                await r.settled(2)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        if fails == "before":
            monkeypatch.setattr(r.gateway.delivery, "switch", failing)
        else:
            monkeypatch.setattr(input_set, "_changed", failing)
        r.inputs += [STREAM, f'[[inputs]]\ntype = "tcp"\nport = {port}\n']
        with pytest.raises(ConfigError, match="open files"):
            await r.reload(client="second", mode="0220" if fails == "after" else "0222")
        # No program can write more without an error, and all that was written is counted.
        assert guarded == [port]
        assert not (r.path / "stream").exists()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
        for client in clients:
            assert await asyncio.to_thread(client.recv, 1) == b""
            client.close()
        snapshot = await r.settled(4)
        assert snapshot.total.acked == 2
        assert snapshot.total.discarded[UNCLEAN_DISCONNECT] == 2
        totals = r.gateway.input_totals()
        assert totals["unix_stream"].unclean_disconnects == 1
        assert totals["tcp"].unclean_disconnects == 1
        assert len(r.gateway.inputs) == 1
        found = await records_of(kafka.bootstrap_servers, "orders")
        assert values_of(found) == [b"whole", b"whole"]


async def test_the_counters_of_an_input_have_what_a_reader_of_a_failed_reload_received(
    monkeypatch: pytest.MonkeyPatch,
):
    """Regression: other users need another reader, whose counts were dropped with it."""
    async with running() as (r, _):
        r.inputs += [STREAM, STREAM.replace("/stream", "/another")]
        await r.reload()
        started: list[Any] = []

        class Limited:
            def __init__(self, *arguments: Any, **options: Any) -> None:
                self._intake = Intake(*arguments, **options)
                self.stop, self.counts = self._intake.stop, self._intake.counts

            def start(self) -> None:
                started.append(self)
                if len(started) == 2:
                    with socket.socket(socket.AF_UNIX) as client:
                        client.connect(str(r.path / "stream"))
                        client.sendall(message("orders", b"v")[:-1])
                    end = time.monotonic() + LIMIT
                    while not started[0].counts().unclean_disconnects:
                        assert time.monotonic() < end
                        time.sleep(0.01)
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                self._intake.start()

        monkeypatch.setattr(input_set, "Intake", Limited)
        users = f"allowed_users = [{os.getuid()}]\n"
        r.inputs = [DATAGRAM, *(one + users for one in r.inputs[1:])]
        with pytest.raises(ConfigError, match="open files"):
            await r.reload()
        assert r.gateway.input_totals()["unix_stream"].unclean_disconnects == 1
        assert [one.sums().unclean_disconnects for one in r.gateway.inputs] == [0, 1, 0]
        assert all(one.counts().running for one in r.gateway.inputs)


async def test_an_input_that_cannot_refuse_connections_is_logged_once_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Regression: nobody learned that connections of the last moment were lost."""

    def refused(listening: socket.socket) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(inputs, "_refuse_connections", refused)
    async with running() as (r, _):
        before = list(r.inputs)
        for host in ("127.0.0.1", "127.0.0.2"):
            r.inputs.append(f'[[inputs]]\ntype = "tcp"\nhost = "{host}"\nport = {free_port()}\n')
        await r.reload()
        r.inputs = before
        await r.reload()
        assert r.gateway.unguarded_ends == 2
        assert b"aiokq_gateway_unguarded_ends_total 2.0" in metrics.exposition(r.gateway)
        assert caplog.text.count("connections are not refused") == 1


async def test_a_datagram_input_is_no_input_whose_connections_are_not_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Regression: it was counted as one."""

    def refused(one: inputs.InputSocket) -> None:
        raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))

    monkeypatch.setattr(inputs.InputSocket, "refuse_more", refused)
    async with running() as (r, _):
        await r.gateway.close()
        assert r.gateway.unguarded_ends == 0
    assert caplog.text.count("datagrams are not refused") == 1


class Ends:
    """How long inputs may read at their end. The first of them waits until its time is limited."""

    def __init__(self) -> None:
        self.limits: list[int] = []
        self.waits = threading.Event()
        self.hurried = threading.Event()


class Noting:
    """An input that notes how long it may read at its end."""

    def __init__(self, ends: Ends, *arguments: Any, **options: Any) -> None:
        self._ends = ends
        self._intake = Intake(*arguments, **options)
        self.start, self.counts = self._intake.start, self._intake.counts

    def stop(self, *, drain_ms: int = 0) -> None:
        ends = self._ends
        ends.limits.append(drain_ms)
        if len(ends.limits) == 1:
            ends.waits.set()
            assert ends.hurried.wait(LIMIT)
        else:
            ends.hurried.set()
        self._intake.stop(drain_ms=drain_ms)


async def test_the_end_of_the_inputs_is_a_part_of_the_time_of_the_shutdown(
    monkeypatch: pytest.MonkeyPatch,
):
    """Regression: the inputs took one to three seconds, whatever `shutdown_max_delay_ms` was; so
    did those that a reload ended at the same time.
    """
    ends = Ends()
    monkeypatch.setattr(input_set, "Intake", functools.partial(Noting, ends))
    async with running() as (r, _):
        r.inputs.append(STREAM)
        await r.reload(delay=1000)
        r.inputs.pop()
        reload = asyncio.create_task(r.reload())
        await asyncio.to_thread(ends.waits.wait, LIMIT)
        await r.gateway.close()
        assert await reload == ["inputs"]
    first, *others = ends.limits
    assert 1000 < first <= 2000
    assert others
    assert max(others) <= 450  # half of what is not kept for closing


async def test_a_locked_directory_does_not_stop_the_loop():
    """Regression: a program that had locked the directory of a new socket stopped everything for a
    second.
    """
    async with running() as (r, _):
        directory = os.open(r.path, os.O_RDONLY)
        fcntl.flock(directory, fcntl.LOCK_EX)
        r.inputs.append(STREAM)
        reload = asyncio.create_task(r.reload())
        longest = 0.0
        while not reload.done():
            begun = time.monotonic()
            await asyncio.sleep(0.001)
            longest = max(longest, time.monotonic() - begun)
        os.close(directory)
        assert await reload == ["inputs"]
        assert longest < 0.5


@pytest.mark.parametrize("delayed", ["input", "http"])
async def test_a_shutdown_does_not_wait_for_what_a_reload_opens(
    delayed: str, monkeypatch: pytest.MonkeyPatch
):
    """Regression: nor for a lock that a program holds, nor for the name of a host."""
    monkeypatch.setattr(inputs, "LOCK_SECONDS", 3600)
    begun = asyncio.Event()

    async def unanswered(*given: Any, **options: Any) -> None:
        begun.set()
        await asyncio.sleep(3600)

    async with running() as (r, _):
        directory = os.open(r.path, os.O_RDONLY)
        fcntl.flock(directory, fcntl.LOCK_EX)
        if delayed == "http":
            monkeypatch.setattr(HttpServer, "start", unanswered)
            reload = asyncio.create_task(r.reload(http=free_port()))
        else:
            monkeypatch.setattr(input_set, "open_input_soon", _noting(begun))
            r.inputs.append(STREAM)
            reload = asyncio.create_task(r.reload())
        async with asyncio.timeout(LIMIT):
            await begun.wait()
            await r.gateway.close()
        os.close(directory)
        with pytest.raises(ConfigError, match="is shutting down; nothing was changed"):
            await reload


def _noting(begun: asyncio.Event) -> Any:
    async def open_input_soon(settings: InputSettings) -> Any:
        begun.set()
        return await inputs.open_input_soon(settings)

    return open_input_soon


async def test_a_signal_before_the_start_or_after_the_end_is_only_logged(
    caplog: pytest.LogCaptureFixture,
):
    async with running() as (r, _):
        Gateway(r.file).reload_soon()
        assert "not reloaded" in caplog.text
        caplog.clear()
        await r.gateway.close()
        r.gateway.reload_soon()
        assert "not reloaded" in caplog.text
