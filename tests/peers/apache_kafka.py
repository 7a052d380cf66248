"""Apache Kafka 4.2 in KRaft mode, one node or several, as processes of their own.

`make kafka` puts its jars into .cache/kafka/libs. Each node is broker and controller at once.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.peers.java_command import EARLIER, LIBS, ROOT, SHELL, STREAMS, java_command
from tests.peers.java_tools import run_tool
from tests.peers.ports import free_ports

__all__ = [
    "LIBS",
    "ROOT",
    "SHELL",
    "START_SECONDS",
    "STREAMS",
    "ApacheKafka",
    "apache_kafka",
    "java_command",
    "random_id",
    "run_tool",
    "why_absent",
    "why_earlier_is_absent",
    "why_streams_are_absent",
]

START_SECONDS = 180.0
"""Seconds until a node must have started; on an idle machine it takes three."""


def why_absent() -> str | None:
    """Return the reason why Apache Kafka cannot be started here, None if it can."""
    if shutil.which("java") is None:
        return "no Java: `make kafka` installs it on Debian"
    if not (LIBS / ".complete").exists():
        return "Apache Kafka's jars are not in .cache/kafka/libs: run `make kafka`"
    return None


def why_streams_are_absent() -> str | None:
    """Return the reason why Kafka Streams and Connect cannot be started, None if they can."""
    if not (STREAMS / ".complete").exists():
        return "the jars of Kafka Streams are not in .cache/kafka/streams: run `make kafka`"
    return why_absent()


def why_earlier_is_absent(release: str) -> str | None:
    """Return the reason why an earlier release of Kafka cannot be started, None if it can."""
    if not (EARLIER / release / ".complete").exists():
        return f"the jars of Kafka {release} are not in .cache/kafka/earlier: run `make kafka`"
    return why_absent()


def random_id() -> str:
    """Return a random UUID in Kafka's form that does not look like a command-line option."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")


class ApacheKafka:
    """A cluster in a directory; each node can be stopped, killed, paused and started again.

    Args:
        listeners: more listeners of each node, name to security protocol; `listener_ports` has
            their ports by node and name. Brokers use plaintext among each other.
        release: the release of Kafka that runs; None for that in `LIBS`.
        format_arguments: further arguments of `kafka-storage format`, such as `--add-scram`.
        java_options: further options of the JVM, such as system properties.
        properties: properties of every node, with `_` for `.`.
    """

    def __init__(
        self,
        directory: Path,
        nodes: int = 1,
        *,
        heap: str = "1G",
        optimised: bool = False,
        listeners: Mapping[str, str] | None = None,
        release: str | None = None,
        format_arguments: Sequence[str] = (),
        java_options: Sequence[str] = (),
        **properties: str,
    ) -> None:
        self.directory = directory
        self.format_arguments = tuple(format_arguments)
        self.java_options = tuple(java_options)
        self.release = release
        self.heap = heap
        self.optimised = optimised
        self.listeners = dict(listeners or {})
        self.properties = {key.replace("_", "."): value for key, value in properties.items()}
        free = iter(free_ports((2 + len(self.listeners)) * nodes))
        self.ports = {node: next(free) for node in range(1, nodes + 1)}
        self.controller_ports = {node: next(free) for node in self.ports}
        self.listener_ports = {
            node: {name: next(free) for name in self.listeners} for node in self.ports
        }
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def configuration(self, node: int) -> str:
        replicas = min(3, len(self.ports))
        voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in self.controller_ports.items())
        ports = {"PLAINTEXT": self.ports[node], **self.listener_ports[node]}
        advertised = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
        controller = f"CONTROLLER://127.0.0.1:{self.controller_ports[node]}"
        protocols = {"CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT", **self.listeners}
        settings = {
            "process.roles": "broker,controller",
            "node.id": node,
            "broker.rack": f"rack-{node}",
            "controller.quorum.voters": voters,
            "listeners": ",".join([*advertised, controller]),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in protocols.items()
            ),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": self.directory / f"node-{node}",
            "offsets.topic.replication.factor": replicas,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.num.partitions": 4,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "broker.session.timeout.ms": 6000,
            **self.properties,
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())

    def start(self) -> None:
        """Format and start every node; return when all accept connections."""
        self.format()
        for node in self.ports:
            self.start_node(node, wait=False)
        for node in self.ports:
            self.wait_until_accepting(node)

    def format(self) -> None:
        """Format the first node with Kafka's tool, and copy its files."""
        for node in self.ports:
            self._properties_path(node).write_text(self.configuration(node))
        first, *others = self.ports
        arguments = ("format", "-t", random_id(), "-c", str(self._properties_path(first)))
        arguments += self.format_arguments
        formatted = run_tool("kafka.tools.StorageTool", *arguments)
        if formatted.returncode:
            raise RuntimeError(f"Apache Kafka refuses its settings:\n{formatted.stderr}")
        for node in others:
            directory = self.directory / f"node-{node}"
            shutil.copytree(self.directory / f"node-{first}", directory)
            meta = directory / "meta.properties"
            own = {"node.id": str(node), "directory.id": random_id()}
            lines = meta.read_text().splitlines()
            meta.write_text(
                "".join(
                    f"{name}={own.get(name, value)}\n"
                    for name, equals, value in (line.partition("=") for line in lines)
                    if equals
                )
            )

    def _properties_path(self, node: int) -> Path:
        return self.directory / f"node-{node}.properties"

    def start_node(self, node: int, *, wait: bool = True) -> None:
        with open(self.directory / f"node-{node}.out", "ab") as output:
            self.processes[node] = subprocess.Popen(
                java_command(
                    "kafka.Kafka",
                    str(self._properties_path(node)),
                    heap=self.heap,
                    optimised=self.optimised,
                    release=self.release,
                ),
                stdout=output,
                stderr=output,
                env={**os.environ, "JDK_JAVA_OPTIONS": " ".join(self.java_options)},
            )
        if wait:
            self.wait_until_accepting(node)

    def wait_until_accepting(self, node: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.processes[node].poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.ports[node]), 1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        output = (self.directory / f"node-{node}.out").read_text()[-4000:]
        raise RuntimeError(f"Apache Kafka's node {node} does not accept connections:\n{output}")

    def stop_node(
        self, node: int, signal_number: int = signal.SIGTERM, *, seconds: float = 30
    ) -> None:
        """End a node cleanly, or at once with SIGKILL or if it runs for `seconds` longer."""
        process = self.processes.pop(node)
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal_number)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def pause_node(self, node: int) -> None:
        os.kill(self.processes[node].pid, signal.SIGSTOP)

    def resume_node(self, node: int) -> None:
        os.kill(self.processes[node].pid, signal.SIGCONT)

    def stop(self) -> None:
        for node in list(self.processes):
            self.stop_node(node, signal.SIGKILL)


@contextmanager
def apache_kafka(
    nodes: int = 1,
    *,
    listeners: Mapping[str, str] | None = None,
    format_arguments: Sequence[str] = (),
    java_options: Sequence[str] = (),
    **properties: str,
) -> Iterator[ApacheKafka]:
    """Run a cluster of Apache Kafka in a temporary directory while the block runs."""
    with tempfile.TemporaryDirectory(prefix="aiokq-apache-kafka-") as directory:
        cluster = ApacheKafka(
            Path(directory),
            nodes,
            listeners=listeners,
            format_arguments=format_arguments,
            java_options=java_options,
            **properties,
        )
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
