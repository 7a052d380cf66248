"""The servers of the benchmarks, each in a process of its own."""

from __future__ import annotations

import compileall
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiokq
from benchmarks.rounds import SERVER_CORE
from benchmarks.watch import cpu_seconds
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.mock_cluster import mock_cluster

MEMORY = "/dev/shm"
"""Where Linux keeps files in memory."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: address, process (for CPU time and memory), and start-up time.

    Attributes:
        directory: directory that contains its logs, at any depth; empty if it has none.
        ports: ports of its further listeners, by name.
    """

    bootstrap: str
    pid: int
    start_seconds: float
    directory: str = ""
    ports: Mapping[str, int] = field(default_factory=dict)

    @property
    def cpu_seconds(self) -> float:
        """The CPU time used by the process so far, user and system, all threads."""
        return cpu_seconds(self.pid)

    @property
    def resident_bytes(self) -> int:
        """The resident memory of the process."""
        return resident_bytes(self.pid)


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _bind(pid: int) -> None:
    """Bind a process that could use both cores during its start to the servers' core."""
    subprocess.run(["taskset", "-a", "-c", "-p", str(SERVER_CORE), str(pid)], capture_output=True)


def compile_package(package: Path) -> None:
    """Compile a package to byte code, as an installation does.

    With PYTHONDONTWRITEBYTECODE, which containers set, a checkout would be compiled at each start.
    """
    compileall.compile_dir(package, quiet=1)


@contextmanager
def mock() -> Iterator[Server]:
    """Run librdkafka's mock cluster, which does little, so that the client is the limit."""
    started = time.perf_counter()
    with mock_cluster() as bootstrap:
        yield Server(bootstrap, 0, time.perf_counter() - started)


@contextmanager
def embedded(*arguments: str, bind: bool = True) -> Iterator[Server]:
    """Run `aiokq broker` with Kafka's defaults and its log in a temporary directory."""
    compile_package(Path(aiokq.__file__).parent)
    with tempfile.TemporaryDirectory(prefix="aiokq-bench-") as directory:
        command = [sys.executable, "-m", "aiokq", "broker", "--port", "0", "--json"]
        command += ["--profile", "kafka", "--data-dir", directory]
        command += ["--set", "num.partitions=4", *arguments]
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.perf_counter() - started
        if bind:
            _bind(process.pid)
        try:
            yield Server(json.loads(line)["bootstrap_servers"], process.pid, seconds, directory)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)
            process.stdout.close()


def memory_directory(free_bytes: int) -> str | None:
    """Return the directory of files in memory if it has so much room, else None."""
    if os.path.isdir(MEMORY) and shutil.disk_usage(MEMORY).free >= free_bytes:
        return MEMORY
    return None


@contextmanager
def apache(
    *,
    bind: bool = True,
    listeners: Mapping[str, str] | None = None,
    parent: str | None = None,
    **properties: str,
) -> Iterator[Server]:
    """Run Apache Kafka 4.2 with one node and four partitions per topic.

    Args:
        listeners: more listeners, name to security protocol.
        parent: directory of its temporary directory; the system's if None.
    """
    with tempfile.TemporaryDirectory(prefix="aiokq-bench-kafka-", dir=parent) as directory:
        cluster = ApacheKafka(
            Path(directory),
            1,
            optimised=True,
            listeners=listeners,
            num_partitions="4",
            **properties,
        )
        try:
            cluster.start()
            cluster.stop_node(1)
            started = time.perf_counter()
            cluster.start_node(1)
            seconds = time.perf_counter() - started
            pid = cluster.processes[1].pid
            if bind:
                _bind(pid)
            ports = cluster.listener_ports[1]
            yield Server(cluster.bootstrap_servers, pid, seconds, directory, ports)
        finally:
            cluster.stop()
