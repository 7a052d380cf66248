"""`aiokq gateway` as a process, with its commands: check, status, reload, send."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import threading
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import aiokq
from aiokq.cli import gateway_commands
from aiokq.errors import KafkaError
from tests.fault.gateway_support import (
    ROOT,
    Process,
    directory,
    gateway_process,
    message,
    records_of,
    values_of,
)

FILE = """
[kafka]
bootstrap_servers = "{servers}"
[[inputs]]
type = "unix_datagram"
path = "{path}/datagram"
[[inputs]]
type = "unix_stream"
path = "{path}/stream"
[http]
port = {port}
[batching]
time_ms = 20
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def text_at(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        text: str = answer.read().decode()
        return text


class Setup:
    def __init__(self, kafka: aiokq.EmbeddedCluster, process: Process, file: Path) -> None:
        self.kafka = kafka
        self.process = process
        self.file = file


@contextlib.asynccontextmanager
async def setup() -> AsyncIterator[Setup]:
    with directory() as path:
        async with aiokq.EmbeddedCluster() as kafka:
            servers = kafka.bootstrap_servers
            async with aiokq.Admin(servers) as admin:
                await admin.create_topics([aiokq.NewTopic("orders", 1)])
            file = path / "gateway.toml"
            file.write_text(FILE.format(servers=servers, path=path, port=free_port()))
            async with gateway_process("--config", str(file)) as process:
                await process.started()
                yield Setup(kafka, process, file)


async def command(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "aiokq",
        "gateway",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    async with asyncio.timeout(30):
        out, err = await process.communicate(stdin)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def status(file: Path) -> dict[str, int]:
    code, out, err = await command("status", "--config", str(file), "--json")
    assert code == 0, err
    document: dict[str, int] = json.loads(out)
    return document


async def test_messages_are_sent_by_the_command_and_shown_by_status():
    """send with values and with lines, to two inputs; status as a table and as JSON."""
    async with setup() as s:
        file = str(s.file)
        code, _, err = await command("send", "orders", "--config", file, stdin=b"a\nb\n")
        assert (code, err) == (0, "2 messages sent\n")
        stream = str(s.file.parent / "stream")
        code, _, err = await command(
            "send",
            "orders",
            "c",
            "d",
            "--key",
            "k",
            "--partition-key",
            "7",
            "--unix-stream",
            stream,
        )
        assert (code, err) == (0, "2 messages sent\n")
        async with asyncio.timeout(20):
            while (await status(s.file))["acked"] < 4:  # noqa: ASYNC110  another process
                await asyncio.sleep(0.05)
        code, out, _ = await command("status", "--config", file)
        assert code == 0
        assert out.splitlines()[1].split() == ["orders", "4", "4", "0", "0", "0"]
        records = await records_of(s.kafka.bootstrap_servers, "orders")
        assert values_of(records) == [b"a", b"b", b"c", b"d"]
        assert [record.key for record in records] == [None, None, b"k", b"k"]
        s.process.signal(signal.SIGINT)
        assert await s.process.ended() == 0


async def test_the_ready_line_names_inputs_and_http():
    async with setup() as s:
        ready = s.process.ready
        assert [one["type"] for one in ready["inputs"]] == ["unix_datagram", "unix_stream"]
        assert ready["http"].startswith("http://127.0.0.1:")
        assert ready["engine"] == "producer"


async def test_reload_changes_what_can_change_at_once_and_refuses_the_rest():
    async with setup() as s:
        text = s.file.read_text()
        s.file.write_text(text + "[rate_limit]\ninterval_ms = 60000\nmax_messages = 1\n")
        code, out, _ = await command("reload", "--config", str(s.file))
        assert (code, out) == (0, "reloaded; changed: rate_limit\n")
        await command("send", "orders", "--config", str(s.file), stdin=b"1\n2\n3\n")
        async with asyncio.timeout(20):
            while (await status(s.file))["received"] < 3:  # noqa: ASYNC110  another process
                await asyncio.sleep(0.05)
        assert (await status(s.file))["discarded"] == {"rate_limit": 2}
        s.file.write_text(text + '[pool]\nmax_bytes = "1 MiB"\n')
        code, _, err = await command("reload", "--config", str(s.file))
        assert code == 1
        assert "pool: changed in the file, and only a restart can change it" in err
        s.file.write_text(text + "[nonsense]\n")
        code, _, err = await command("reload", "--config", str(s.file))
        assert code == 1
        assert "there is no table or option 'nonsense'" in err
        assert "nonsense" in await asyncio.to_thread(text_at, s.process.ready["http"] + "/readyz")
        s.process.signal(signal.SIGHUP)
        await command("send", "orders", "--config", str(s.file).replace("x", "x"), stdin=b"")
        s.process.signal(signal.SIGTERM)
        assert await s.process.ended() == 0
        assert "there is no table or option 'nonsense'" in await s.process.errors()


async def test_reload_says_where_to_look_if_it_has_no_answer_in_time(
    monkeypatch: pytest.MonkeyPatch,
):
    """A change of [kafka] waits for deliveries, for as long as the file says, and so does the
    command; but not for a process that does not answer at all.
    """
    monkeypatch.setattr(gateway_commands, "ALIVE_SECONDS", 0.1)
    monkeypatch.setattr(gateway_commands, "HTTP_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(KafkaError, match=r"not answered within 0\.2 s.*see /readyz"):
            await asyncio.to_thread(gateway_commands.reload, http=port)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "is no HTTP interface of a gateway"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "is no HTTP interface of a gateway"),
        (b"HTTP/1.1 200 OK\r\n\r\n[1]", "is no HTTP interface of a gateway"),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", "it has no '(topics|changed)'"),
    ],
)
@pytest.mark.parametrize("name", ["status", "reload"])
def test_commands_say_that_another_program_answers(name: str, answer: bytes, text: str):
    """Regression: they ended with a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as other:

        def serve() -> None:
            accepted, _ = other.accept()
            with accepted:
                accepted.recv(65536)
                accepted.sendall(answer)

        serving = threading.Thread(target=serve)
        serving.start()
        with pytest.raises(KafkaError, match=text):
            getattr(gateway_commands, name)(http=other.getsockname()[1])
        serving.join()


async def test_a_log_that_takes_no_line_does_not_keep_the_process_from_its_end():
    """Regression: it waited for the thread that opens the FIFO, for which there is no reader."""
    with directory() as path:
        file = path / "gateway.toml"
        log = f'[discards]\nlog_path = "{path}/fifo"\n'
        file.write_text(FILE.format(servers="127.0.0.1:1", path=path, port=free_port()) + log)
        os.mkfifo(path / "fifo")
        async with gateway_process("--config", str(file)) as process:
            await process.started()
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.connect(f"{path}/datagram")
                sender.send(b"malformed")
            await asyncio.sleep(0.5)
            process.signal(signal.SIGTERM)
            assert await process.ended() == 0


async def test_check_says_what_is_wrong_with_a_file(tmp_path: Path):
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text(FILE.format(servers="h:1", path="/run", port=1))
    bad.write_text(FILE.format(servers="h:1", path="/run", port=1).replace("time_ms", "tim_ms"))
    code, out, _ = await command("check", str(good))
    assert (code, out) == (0, f"{good}: correct; 2 inputs, engine producer\n")
    code, _, err = await command("check", str(bad))
    assert code == 1
    assert f"{bad}:13: [batching] has no option 'tim_ms': did you mean 'time_ms'?" in err


@pytest.mark.parametrize("name", ["status", "reload"])
async def test_commands_say_how_to_find_a_gateway(name: str):
    code, _, err = await command(name)
    assert code == 2
    assert "give --http PORT, or --config FILE" in err
    code, _, err = await command(name, "--http", str(free_port()))
    assert code == 1
    assert "no gateway answers at http://127.0.0.1:" in err


async def test_a_socket_that_systemd_passes_keeps_its_datagrams_over_a_kill():
    """The queue belongs to the socket, which outlives the gateway."""
    with directory() as path:
        async with aiokq.EmbeddedCluster() as kafka:
            async with aiokq.Admin(kafka.bootstrap_servers) as admin:
                await admin.create_topics([aiokq.NewTopic("orders", 1)])
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as owned:
                owned.bind(f"{path}/datagram")
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                    sender.connect(f"{path}/datagram")
                    await _run_with(owned, path, kafka, sender, b"1", kill=True)
                    sender.send(message("orders", b"2"))  # nobody reads the socket now
                    await _run_with(owned, path, kafka, sender, b"3", kill=False)
            found = await records_of(kafka.bootstrap_servers, "orders")
            assert values_of(found) == [b"1", b"2", b"3"]
            assert (path / "datagram").exists()


async def test_systemd_is_told_when_the_inputs_are_open_and_when_they_close():
    """`Type=notify`: a reload before that would come before its handler. SIGHUP ends nothing."""
    with directory() as path, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(f"{path}/notify")
        notified.settimeout(30)
        process = Process(
            await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "aiokq", "gateway", "--bootstrap-servers", "127.0.0.1:1"),
                *("--unix-datagram", f"{path}/datagram", "--json"),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=ROOT,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "NOTIFY_SOCKET": f"{path}/notify",
                },
            )
        )
        try:
            assert await asyncio.to_thread(notified.recv, 100) == b"READY=1"
            assert (path / "datagram").exists()
            process.signal(signal.SIGHUP)  # there is no file to read again
            process.signal(signal.SIGTERM)
            assert await asyncio.to_thread(notified.recv, 100) == b"STOPPING=1"
            assert await process.ended() == 0
        finally:
            await process.kill()


async def _run_with(
    owned: socket.socket,
    path: Path,
    kafka: aiokq.EmbeddedCluster,
    sender: socket.socket,
    value: bytes,
    *,
    kill: bool,
) -> None:
    """Run a gateway on a passed socket, as systemd does, until it has delivered `value`."""
    arguments = [
        "--bootstrap-servers",
        kafka.bootstrap_servers,
        "--unix-datagram",
        f"{path}/datagram",
        "--json",
    ]
    script = (
        "import os, sys\n"
        f"os.dup2({owned.fileno()}, 3)\n"
        "os.set_inheritable(3, True)\n"
        "os.environ['LISTEN_PID'] = str(os.getpid())\n"
        "os.environ['LISTEN_FDS'] = '1'\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'aiokq', 'gateway', *sys.argv[1:]])\n"
    )
    process = Process(
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            script,
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            pass_fds=[owned.fileno()],
        )
    )
    try:
        await process.started()
        sender.send(message("orders", value))
        async with asyncio.timeout(20):
            while value not in values_of(await records_of(kafka.bootstrap_servers, "orders")):  # noqa: ASYNC110  another process
                await asyncio.sleep(0.05)
        if kill:
            await process.kill()
        else:
            process.signal(signal.SIGTERM)
            assert await process.ended() == 0
    finally:
        await process.kill()
