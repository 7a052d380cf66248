"""The systemd units of the gateway, and a gateway that gets its sockets as systemd passes them."""

from __future__ import annotations

import asyncio
import configparser
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

import aiokq
from aiokq.gateway import GatewaySettings
from aiokq.gateway.client import GatewayClient, QueueFull, encode
from tests.fault.gateway_support import ROOT, Process, directory, records_of, values_of
from tests.peers.ports import free_ports

pytestmark = pytest.mark.build_independent

UNITS = ROOT / "aiokq" / "gateway" / "systemd"
LIMIT = 30.0


def everything(text: str) -> str:
    """Return a file with all lines that are shipped as comments in effect."""
    lines = []
    for line in text.splitlines():
        rest = line.removeprefix("#")
        lines.append(rest if rest[:1].isalpha() or rest.startswith("[") else line)
    return "\n".join(lines)


def unit(name: str, text: str | None = None) -> configparser.ConfigParser:
    """Read a unit; several values of one name are lines of one value."""

    class Several(dict[str, object]):
        def __setitem__(self, key: str, value: object) -> None:
            if key in self and isinstance(value, list):
                self[key].extend(value)  # type: ignore[attr-defined]
            else:
                super().__setitem__(key, value)

    parser = configparser.ConfigParser(dict_type=Several, strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string((UNITS / name).read_text() if text is None else text)
    return parser


def listens(text: str) -> list[tuple[str, str]]:
    """Return type and address of each socket of a socket unit, in its order."""
    found = []
    for line in text.splitlines():
        name, _, address = line.partition("=")
        if name == "ListenDatagram":
            found.append(("unix_datagram", address))
        elif name == "ListenStream":
            found.append(("unix_stream" if address.startswith("/") else "tcp", address))
    return found


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="UNITS ARE NOT VERIFIED: no systemd-analyze"
)
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    """An option that systemd does not know is ignored, and only its log says so."""
    for name in ("aiokq-gateway.service", "aiokq-gateway.socket"):
        text = everything((UNITS / name).read_text())
        (tmp_path / name).write_text(text.replace("/usr/bin/aiokq", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", *map(str, sorted(tmp_path.iterdir()))],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")


async def activated(path: Path, *options: str) -> Process:
    """Start a gateway by systemd-socket-activate, which waits for the first message."""
    return Process(
        await asyncio.create_subprocess_exec(
            "systemd-socket-activate",
            # It passes on no other variables.
            *("-E", f"PYTHONPATH={ROOT}", "-E", f"AIOKQ_PURE={os.environ.get('AIOKQ_PURE', '0')}"),
            *options,
            *(sys.executable, "-m", "aiokq", "gateway"),
            *("--config", str(path / "gateway.toml"), "--json"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    )


async def connected(kind: str, address: str) -> socket.socket:
    """Connect to a socket as soon as somebody listens."""
    family = socket.AF_INET if kind == "tcp" else socket.AF_UNIX
    form = socket.SOCK_DGRAM if kind == "unix_datagram" else socket.SOCK_STREAM
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(LIMIT):
        while True:
            opened = socket.socket(family, form)
            try:
                opened.connect((host, int(port)) if kind == "tcp" else address)
                return opened
            except OSError:
                opened.close()
                await asyncio.sleep(0.02)


@pytest.mark.skipif(
    shutil.which("systemd-socket-activate") is None,
    reason="SOCKETS OF SYSTEMD ARE NOT TESTED: no systemd-socket-activate (apt install systemd)",
)
@pytest.mark.parametrize("kinds", [["unix_datagram"], ["unix_stream", "tcp"]])
async def test_systemd_passes_the_sockets(kinds: list[str]) -> None:
    """The first message starts the gateway; the sockets outlive it, with what was written."""
    with directory() as path:
        async with aiokq.EmbeddedCluster() as kafka:
            async with aiokq.Admin(kafka.bootstrap_servers) as admin:
                await admin.create_topics([aiokq.NewTopic("orders", 1)])
            (port,) = free_ports(1)
            where = {
                "unix_datagram": f"{path}/datagram",
                "unix_stream": f"{path}/stream",
                "tcp": f"127.0.0.1:{port}",
            }
            lines = [f'kafka.bootstrap_servers = "{kafka.bootstrap_servers}"']
            options = ["--datagram"] if kinds == ["unix_datagram"] else []
            for kind in kinds:
                options += ["--listen", where[kind]]
                place = f"port = {port}" if kind == "tcp" else f'path = "{where[kind]}"'
                lines += ["[[inputs]]", f'type = "{kind}"', place]
            (path / "gateway.toml").write_text("\n".join(lines))
            process = await activated(path, *options)
            try:
                with contextlib.ExitStack() as stack:
                    senders = [
                        stack.enter_context(await connected(kind, where[kind])) for kind in kinds
                    ]
                    for sender in senders:
                        sender.sendall(encode("orders", b"first"))
                    await process.started()
                    await arrived(kafka.bootstrap_servers, [b"first"] * len(kinds))
                    for sender in senders:
                        sender.sendall(encode("orders", b"second"))
                    await arrived(kafka.bootstrap_servers, [b"first", b"second"] * len(kinds))
                    process.signal(signal.SIGTERM)
                    assert await process.ended() == 0
                # The files are systemd's.
                files = {os.path.basename(where[kind]) for kind in kinds if kind != "tcp"}
                assert files <= set(os.listdir(path))
            finally:
                await process.kill()


@pytest.mark.parametrize("change", [str, everything], ids=["as shipped", "all inputs"])
def test_each_socket_of_the_unit_has_an_input_in_the_file(tmp_path: Path, change: object) -> None:
    """A gateway refuses a socket of systemd for which it has no input."""
    assert callable(change)
    file = tmp_path / "gateway.toml"
    file.write_text(change((UNITS / "gateway.toml").read_text()))
    settings = GatewaySettings.load(file)
    inputs = [(one.type, one.where) for one in settings.inputs]
    assert inputs == listens(change((UNITS / "aiokq-gateway.socket").read_text()))
    assert len(inputs) == (1 if change is str else 3)
    service = unit("aiokq-gateway.service")["Service"]
    assert int(service["TimeoutStopSec"]) * 1000 >= 2 * settings.delivery.shutdown_max_delay_ms
    assert unit("aiokq-gateway.socket")["Socket"]["PassCredentials"] == "yes"  # `allowed_users`
    assert service["Type"] == "notify"
    source = (ROOT / "aiokq" / "fastpath" / "gateway" / "intake.h").read_text()
    (priority,) = re.findall(r"#define AIOKQ_PRIORITY \((-[0-9]+)\)", source)
    assert service["LimitNICE"] == priority  # else the threads keep the priority of the process


class Owner(NamedTuple):
    """What systemd is for the gateway: it owns the sockets, and starts the process."""

    file: Path
    sockets: Sequence[socket.socket]

    @contextlib.asynccontextmanager
    async def started(self) -> AsyncIterator[Process]:
        """Start the gateway with the sockets from descriptor 3 on."""
        script = (
            "import os, sys\n"
            "numbers = [int(number) for number in sys.argv[1].split(',')]\n"
            "moved = [os.dup2(number, 100 + n) for n, number in enumerate(numbers)]\n"
            "for n, number in enumerate(moved):\n"
            "    os.dup2(number, 3 + n)\n"
            "    os.close(number)\n"
            "os.environ['LISTEN_PID'] = str(os.getpid())\n"
            "os.environ['LISTEN_FDS'] = str(len(moved))\n"
            "os.environ['LISTEN_FDNAMES'] = ':'.join(['aiokq-gateway.socket'] * len(moved))\n"
            "os.execv(sys.executable, [sys.executable, '-m', 'aiokq', 'gateway', *sys.argv[2:]])\n"
        )
        numbers = [one.fileno() for one in self.sockets]
        process = Process(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", script, ",".join(map(str, numbers))),
                *("--config", str(self.file), "--json"),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                pass_fds=numbers,
            )
        )
        try:
            await process.started()
            yield process
        finally:
            await process.kill()


@contextlib.asynccontextmanager
async def owner(path: Path, bootstrap_servers: str) -> AsyncIterator[Owner]:
    """Open the sockets of the shipped socket unit, and write the shipped file, both in `path`."""
    (port,) = free_ports(1)

    def moved(name: str) -> str:
        text = everything((UNITS / name).read_text()).replace("/run/aiokq", str(path))
        text = text.replace("127.0.0.1:9092", bootstrap_servers).replace("9691", str(port))
        return text.replace("port = 9690", "port = 0")

    with contextlib.ExitStack() as stack:
        sockets = []
        for kind, address in listens(moved("aiokq-gateway.socket")):
            family = socket.AF_INET if kind == "tcp" else socket.AF_UNIX
            form = socket.SOCK_DGRAM if kind == "unix_datagram" else socket.SOCK_STREAM
            opened = stack.enter_context(socket.socket(family, form))
            opened.bind(("127.0.0.1", port) if kind == "tcp" else address)
            if form == socket.SOCK_STREAM:
                opened.listen(512)
            sockets.append(opened)
        (path / "gateway.toml").write_text(moved("gateway.toml"))
        yield Owner(path / "gateway.toml", sockets)


def fill(client: GatewayClient, name: str) -> list[bytes]:
    """Send until the kernel's queue is full; return the values that it has."""
    values: list[bytes] = []
    with pytest.raises(QueueFull):  # noqa: PT012
        while True:
            value = b"%s %d" % (name.encode(), len(values))
            client.send("orders", value)
            values.append(value)
    return values


async def suspend(process: Process) -> None:
    """Stop a process, and wait until none of its threads runs."""
    process.signal(signal.SIGSTOP)
    tasks = Path(f"/proc/{process.ready['pid']}/task")

    def states() -> set[str]:
        return {(one / "stat").read_text().rpartition(")")[2].split()[0] for one in tasks.iterdir()}

    async with asyncio.timeout(LIMIT):
        while states() != {"T"}:  # noqa: ASYNC110  another process
            await asyncio.sleep(0.01)


async def arrived(bootstrap_servers: str, expected: Sequence[bytes]) -> None:
    """Wait until the topic has exactly these values."""
    found: list[bytes | None] = []
    async with asyncio.timeout(LIMIT):
        while len(found) < len(expected):
            await asyncio.sleep(0.1)
            found = values_of(await records_of(bootstrap_servers, "orders"))
    assert sorted(value or b"" for value in found) == sorted(expected)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
async def test_what_the_kernel_holds_survives_the_gateway(end: signal.Signals) -> None:
    """Restarted, or killed at once: the next gateway reads what programs wrote meanwhile.

    A stopped process reads nothing, so the test knows what only the kernel has.
    """
    with directory() as path:
        async with aiokq.EmbeddedCluster() as kafka:
            async with aiokq.Admin(kafka.bootstrap_servers) as admin:
                await admin.create_topics([aiokq.NewTopic("orders", 1)])
            async with owner(path, kafka.bootstrap_servers) as systemd:
                with (
                    GatewayClient(unix_datagram=str(path / "gateway.sock")) as client,
                    GatewayClient(unix_stream=str(path / "gateway.stream")) as stream,
                ):
                    async with systemd.started() as process:
                        client.send("orders", b"first")
                        await arrived(kafka.bootstrap_servers, [b"first"])
                        await suspend(process)
                        queued = fill(client, "queued")
                        process.signal(end)
                        process.signal(signal.SIGCONT)
                        await process.ended()
                    # Nobody is there; a new connection waits in the backlog, with its messages.
                    if end == signal.SIGTERM:
                        queued += fill(client, "between")
                    assert stream.send("orders", b"from the backlog")
                    async with systemd.started() as process:
                        expected = [b"first", *queued, b"from the backlog"]
                        await arrived(kafka.bootstrap_servers, expected)
                        client.send("orders", b"last")
                        await arrived(kafka.bootstrap_servers, [*expected, b"last"])
                        process.signal(signal.SIGTERM)
                        assert await process.ended() == 0
                assert client.counts().connects == 1
                assert (path / "gateway.sock").exists()
                assert len(queued) >= 5


async def test_messages_of_a_stream_that_nobody_read_are_delivered_by_the_next_gateway() -> None:
    """TCP and UNIX connections that the kernel accepted, and no gateway has seen."""
    with directory() as path:
        async with aiokq.EmbeddedCluster() as kafka:
            async with aiokq.Admin(kafka.bootstrap_servers) as admin:
                await admin.create_topics([aiokq.NewTopic("orders", 1)])
            async with owner(path, kafka.bootstrap_servers) as systemd:
                for opened in systemd.sockets[1:]:
                    with socket.socket(opened.family, opened.type) as sender:
                        sender.connect(opened.getsockname())
                        sender.sendall(encode("orders", b"%d" % opened.family))
                async with systemd.started():
                    await arrived(
                        kafka.bootstrap_servers,
                        [b"%d" % opened.family for opened in systemd.sockets[1:]],
                    )
