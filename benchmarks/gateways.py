"""A gateway in a process of its own, and the C programs that write to it."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiokq
from aiokq.gateway.client import get_include
from benchmarks.servers import compile_package, resident_bytes
from benchmarks.watch import cpu_seconds

SOURCE: Final = Path(__file__).parent / "contenders" / "gateway_load.c"
POLL_SECONDS: Final = 0.02


def compiled_load(directory: Path) -> Path:
    """Compile gateway_load.c, the senders and the bare loop."""
    program = directory / "gateway_load"
    command = ["gcc", "-O2", "-Wall", "-Wextra", f"-I{get_include()}", str(SOURCE)]
    subprocess.run([*command, "-o", str(program)], check=True)
    return program


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """A running gateway.

    Attributes:
        addresses: what each kind of sender connects to: "datagram", "stream" (paths), "tcp" (port).
        config: its configuration file.
    """

    pid: int
    port: int
    addresses: Mapping[str, str]
    config: Path

    @property
    def cpu_seconds(self) -> float:
        """The CPU time used so far by all threads."""
        return cpu_seconds(self.pid)

    @property
    def resident_bytes(self) -> int:
        """The resident memory."""
        return resident_bytes(self.pid)

    def connection(self) -> http.client.HTTPConnection:
        """Return a connection to the HTTP interface."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def wait(self, reached: Callable[[dict[str, Any]], bool], *, timeout: float) -> None:
        """Wait until `reached` returns true for /accounting/json.

        Raises:
            TimeoutError: it did not within `timeout` seconds, or messages were discarded.
        """
        until = time.monotonic() + timeout
        connection = self.connection()
        try:
            while True:
                numbers = asked(connection, "/accounting/json")
                if reached(numbers):
                    return
                if time.monotonic() > until or any(numbers["discarded"].values()):
                    del numbers["topics"]
                    raise TimeoutError(f"the gateway has {numbers}")
                time.sleep(POLL_SECONDS)
        finally:
            connection.close()

    def wait_for(self, name: str, messages: int, *, timeout: float = 300) -> None:
        """Wait until a number of /accounting/json is at least `messages`."""
        self.wait(lambda numbers: int(numbers[name]) >= messages, timeout=timeout)


def asked(connection: http.client.HTTPConnection, path: str) -> dict[str, Any]:
    """Return a report in JSON."""
    connection.request("GET", path)
    document: dict[str, Any] = json.loads(connection.getresponse().read())
    return document


@contextmanager
def gateway(bootstrap: str, options: str = "") -> Iterator[GatewayProcess]:
    """Run `aiokq gateway` with an input of each kind, which block while the pool is full.

    Args:
        options: further tables of the configuration file.
    """
    compile_package(Path(aiokq.__file__).parent)
    with tempfile.TemporaryDirectory(prefix="aiokq-bench-") as name:
        directory = Path(name)
        config = directory / "gateway.toml"
        lines = ["[kafka]", f'bootstrap_servers = "{bootstrap}"', "[http]", "port = 0"]
        for kind in ("datagram", "stream"):
            lines += ["[[inputs]]", f'type = "unix_{kind}"', f'path = "{directory / kind}"']
            lines += ['when_full = "block"']
        lines += ["[[inputs]]", 'type = "tcp"', "port = 0", 'when_full = "block"', options]
        config.write_text("\n".join(lines))
        command = [sys.executable, "-m", "aiokq", "gateway", "--config", str(config), "--json"]
        log = directory / "log"
        with log.open("w") as logged:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=logged, text=True)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the gateway did not start: {log.read_text()}")
            ready = json.loads(line)
            addresses = {
                one["type"].removeprefix("unix_"): one["address"].rpartition(":")[2]
                for one in ready["inputs"]
            }
            port = int(ready["http"].rpartition(":")[2])
            yield GatewayProcess(process.pid, port, addresses, config)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:  # the broker is away, and messages wait for it
                process.kill()
                process.wait()
            process.stdout.close()
