"""`aiokq broker` with several listeners, and with the configuration file of Apache Kafka."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from aiokq import wire
from aiokq.broker.config.kafka_setting_names import KAFKA_SETTING_TYPES
from aiokq.broker.embedded import EmbeddedCluster
from aiokq.core.errors import ConfigError
from aiokq.core.properties import parse_properties
from tests.fault.test_broker_process import COMMAND, Client, one_line, run
from tests.peers.broker_process import broker_process

ROOT = Path(__file__).resolve().parents[2]
KAFKAS_FILE = ROOT / "tests/peers/kafka-4.2.0-server.properties"
WITHOUT_EFFECT = [
    "num.network.threads",
    "num.io.threads",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
]
TWO = (
    "--set",
    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
    "--set",
)


@pytest.fixture(autouse=True)
def _close_sockets():
    """Close the sockets of the `Client`s that a test opens."""
    from tests.fault import test_broker_process as process

    yield
    while process._sockets:
        process._sockets.pop().close()


def test_each_listener_gives_its_own_address(tmp_path):
    """Clients inside and outside a container network need different addresses."""
    with broker_process(
        tmp_path / "data", *TWO, "listeners=PLAINTEXT://127.0.0.1:0,INNER://[::1]:0"
    ) as broker:
        addresses = broker.info["listeners"]
        assert addresses["PLAINTEXT"] == broker.bootstrap_servers
        for name, host in (("PLAINTEXT", "127.0.0.1"), ("INNER", "::1")):
            port = int(addresses[name].rsplit(":", 1)[1])
            client = Client(f"{host}:{port}")
            assert [(b.host, b.port) for b in client.metadata("t").brokers] == [(host, port)]
            found = client.ask(wire.FindCoordinatorRequest(coordinator_keys=["g"]), 4)
            assert [(c.host, c.port) for c in found.coordinators] == [(host, port)]
            described = client.ask(wire.DescribeClusterRequest(), 0)
            assert [(b.host, b.port) for b in described.brokers] == [(host, port)]


def test_the_line_has_every_listener(tmp_path):
    """Scripts read the address that follows "listens on"."""
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", *TWO, "listeners=PLAINTEXT://127.0.0.1:1,INNER://127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    process.terminate()
    process.communicate(timeout=10)
    assert line.startswith("aiokq broker 0 listens on 127.0.0.1:")
    assert ", INNER://127.0.0.1:" in line


def test_a_second_listener_whose_port_is_in_use_fails_the_start(tmp_path):
    """A broker that started without it would look healthy, but not be reachable for all."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        data = str(tmp_path / "data")
        listeners = f"listeners=PLAINTEXT://127.0.0.1:0,INNER://127.0.0.1:{port}"
        done = run("--data-dir", data, "--profile", "kafka", *TWO, listeners)
        assert done.returncode == 1
        assert f"port {port} is in use on 127.0.0.1" in one_line(done)
        assert "change the listener INNER" in one_line(done)
    again = run("--data-dir", data, "--profile", "kafka", "--host", "192.0.2.1", "--port", "0")
    assert "192.0.2.1 is not an address" in again.stderr  # the directory is not in use any more


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("process.roles=broker", "process.roles=broker"),
        ("zookeeper.connect=localhost:2181", "zookeeper.connect is not a setting of this broker"),
        ("listeners=SSL://127.0.0.1:0", "set it to one of SSL"),
        ("listeners=PLAINTEXT://0.0.0.0:0", "advertised.listeners"),
        ("controller.quorum.voters=2@other:9093", "controller.quorum.voters"),
        ("authorizer.class.name=a.B", "authorizer.class.name"),
        ("num.io.thread=3", "did you mean num.io.threads"),
    ],
)
def test_what_this_broker_cannot_be_is_one_line_and_exit_code_2(setting, words):
    """The broker opens and writes nothing before it rejects the setting."""
    done = run("--set", setting)
    assert done.returncode == 2
    assert words in one_line(done)


def test_a_listener_has_a_limit_of_its_own(tmp_path):
    """The third client of a listener with a limit of two is refused."""
    with broker_process(
        tmp_path / "data",
        *("--set", "socket.send.buffer.bytes=65536", "--set", "socket.listen.backlog.size=7"),
        *("--set", "listener.name.inner.max.connections=2"),
        *TWO,
        "listeners=PLAINTEXT://127.0.0.1:0,INNER://127.0.0.1:0",
    ) as broker:
        inner = broker.info["listeners"]["INNER"]
        clients = [Client(inner), Client(inner)]
        for client in clients:
            client.metadata("t")
        assert Client(inner).closed_by_broker()
        Client(broker.bootstrap_servers).metadata("t")


# The configuration file of Apache Kafka


def test_the_file_of_apache_kafka_starts_a_broker_with_other_ports(tmp_path):
    """Only ports and directory differ, because brokers on one machine cannot share them."""
    process = subprocess.Popen(
        [
            *(*COMMAND, "--config", str(KAFKAS_FILE), "--host", "127.0.0.1", "--port", "0"),
            *("--advertise", "127.0.0.1", "--data-dir", str(tmp_path / "data")),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    address = line.split(" listens on ")[1].split()[0]
    assert line.startswith("aiokq broker 1 listens on 127.0.0.1:")
    assert [b.node_id for b in Client(address).metadata("t").brokers] == [1]
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    (told,) = [line for line in errors.splitlines() if "without effect" in line]
    assert told == (
        "aiokq broker: accepted, without effect on this broker: "
        + ", ".join(WITHOUT_EFFECT)
        + "; not opened, because this node is the only voter: CONTROLLER://:9093"
    )


def started(*arguments: str) -> tuple[str, str]:
    """Start a broker and stop it; return its line and what it wrote to stderr."""
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    process.terminate()
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    return line, errors


def test_a_port_given_beside_the_file_of_apache_kafka_is_the_one_that_clients_get(tmp_path):
    """The file advertises localhost:9092, which may be the port of another broker."""
    with broker_process(
        tmp_path / "data", "--config", str(KAFKAS_FILE), "--host", "127.0.0.1"
    ) as broker:  # it gives --port 0
        host, port = broker.bootstrap_servers.split(":")
        assert host == "localhost"
        assert port != "9092"
        [told] = Client(broker.bootstrap_servers).metadata("t").brokers
        assert (told.host, told.port) == ("localhost", int(port))
        assert broker.info["not_opened"] == ["CONTROLLER"]
        assert broker.info["not_opened_endpoints"] == ["CONTROLLER://:9093"]


def test_the_guide_shows_what_the_file_of_apache_kafka_prints(tmp_path):
    """Users compare the two; the guide left out the warnings and the profile."""
    data = str(tmp_path / "data")
    line, errors = started("--config", str(KAFKAS_FILE), "--port", "0", "--data-dir", data)
    printed = (line + errors).replace(data, "/tmp/kraft-combined-logs").splitlines()
    guide = (ROOT / "docs/guides/command-line.md").read_text()
    start = "$ aiokq broker --config server.properties\n"
    shown = guide.split(start)[1].split("\n```")[0].splitlines()
    assert shown[2].startswith("aiokq broker 1 listens on ")  # stdout, between lines of stderr

    def comparable(lines: list[str]) -> list[str]:
        """Leave out the times and the port, which are different in each run."""
        text = "\n".join(sorted(re.sub(r"^[-0-9]+ [:,0-9]+ ", "", one) for one in lines))
        return re.sub(r"localhost:[0-9]+", "localhost:9092", text).splitlines()

    assert comparable(printed) == comparable(shown)


def test_a_port_that_is_advertised_on_purpose_stays_and_the_line_has_the_open_one():
    """A port mapping may forward the advertised port to the open one."""
    advertised = ("--set", "advertised.listeners=PLAINTEXT://kafka.example:19092")
    line, _ = started("--port", "0", *advertised)
    assert line.startswith("aiokq broker 0 listens on kafka.example:19092 (bound to PLAINTEXT://")
    assert "(bound to PLAINTEXT://127.0.0.1:" in line
    line, _ = started("--port", "0")
    assert "bound to" not in line


def test_localhost_is_not_open_to_others():
    """A warning that is wrong teaches users to ignore it."""
    line, errors = started("--set", "listeners=PLAINTEXT://localhost:0", "--json")
    assert json.loads(line)["bootstrap_servers"].startswith("localhost:")
    assert json.loads(line)["not_opened"] == json.loads(line)["not_opened_endpoints"] == []
    assert errors == ""


ALL_ADDRESSES = (*TWO, "listeners=PLAINTEXT://:0,INNER://:0", "--set")
INNER_LOCAL = "PLAINTEXT://kafka.example:0,INNER://LOCALHOST:0"


@pytest.mark.parametrize(
    ("arguments", "listeners"),
    [
        (("--config", str(KAFKAS_FILE), "--port", "0"), ["PLAINTEXT"]),
        (("--host", "0.0.0.0", "--port", "0", "--advertise", "127.0.0.1"), ["PLAINTEXT"]),
        (("--host", "0.0.0.0", "--port", "0", "--advertise", "kafka.example"), []),
        (("--host", "127.0.0.1", "--port", "0", "--advertise", "localhost"), []),
        ((*ALL_ADDRESSES, f"advertised.listeners={INNER_LOCAL}"), ["INNER"]),
        ((*ALL_ADDRESSES, "advertised.listeners=PLAINTEXT://kafka.example:0"), []),
    ],
)
def test_a_listener_for_other_machines_that_advertises_localhost_warns(
    tmp_path, arguments, listeners
):
    """Their clients connect to the broker once, and then to a broker on their own machine."""
    _, errors = started(*arguments, "--data-dir", str(tmp_path / "data"))
    warnings = [line for line in errors.splitlines() if "which is their own machine" in line]
    assert [line.split("listener ")[1].split()[0] for line in warnings] == listeners
    for line in warnings:
        assert "advertises 127.0.0.1:" in line or "advertises localhost:" in line.lower()
        assert "--advertise HOST[:PORT]" in line


INSIDE = """
import fcntl, json, socket, struct, subprocess, sys
with socket.socket() as one:  # bring up lo
    fcntl.ioctl(one, 0x8914, struct.pack("16sh14x", b"lo", 0x41))
process = subprocess.Popen(
    [sys.executable, "-m", "aiokq", "broker", "--json", "--config", sys.argv[1]],
    stdout=subprocess.PIPE, text=True,
)
info = json.loads(process.stdout.readline())
from tests.fault.test_broker_process import Client
client = Client("localhost:9092")
info["brokers"] = [(b.node_id, b.host, b.port) for b in client.metadata("t").brokers]
info["produced"] = client.produce("t", 3)
client.socket.close()
with socket.socket() as other:
    info["controller"] = other.connect_ex(("127.0.0.1", 9093))
process.terminate()
info["exit"] = process.wait(20)
print(json.dumps(info))
"""


def isolated() -> list[str] | None:
    """Return a command prefix for namespaces with own ports and /tmp; None if not permitted."""
    if shutil.which("unshare") is None or ROOT.is_relative_to(tempfile.gettempdir()):
        return None
    command = ["unshare", "--map-root-user", "--net", "--mount", "sh", "-c"]
    command += ['mount -t tmpfs tmpfs /tmp && exec "$@"', "sh"]
    allowed = subprocess.run([*command, "true"], capture_output=True)
    return command if allowed.returncode == 0 else None


def test_the_file_of_apache_kafka_starts_a_broker_unchanged():
    """Namespaces give the broker a network and a /tmp of its own, where its ports are free."""
    command = isolated()
    if command is None:
        pytest.skip("needs the right to make namespaces")
    done = subprocess.run(
        [*command, sys.executable, "-c", INSIDE, str(KAFKAS_FILE)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": "/tmp"},
    )
    assert done.returncode == 0, done.stderr
    info = json.loads(done.stdout)
    assert info["bootstrap_servers"] == "localhost:9092"
    assert info["brokers"] == [[1, "localhost", 9092]]
    assert (info["node_id"], info["log_dirs"]) == (1, ["/tmp/kraft-combined-logs"])
    assert info["without_effect"] == WITHOUT_EFFECT
    assert info["profile"] == "kafka"
    assert info["produced"] == [0, 0]
    assert info["controller"] != 0  # nothing listens on 9093
    assert info["exit"] == 0


ONE_ROLE = {
    "broker": {"node.id": "2", "listeners": "PLAINTEXT://localhost:9092"},
    "controller": {"listeners": "CONTROLLER://:9093"},
}
"""Where the files of Apache Kafka for nodes with one role differ from its `server.properties`."""


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_the_files_of_apache_kafka_for_one_role_are_refused_for_the_role(tmp_path, role):
    """The error was about listeners, and did not say that the role is the reason."""
    given = parse_properties(KAFKAS_FILE.read_text())
    given |= {"process.roles": role, **ONE_ROLE[role]}
    given["advertised.listeners"] = given["listeners"].replace("//:", "//localhost:")
    if role == "controller":
        del given["inter.broker.listener.name"]
    file = tmp_path / f"{role}.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    done = run("--config", str(file), "--data-dir", str(tmp_path / "data"))
    assert done.returncode == 2
    with pytest.raises(ConfigError) as embedded:
        EmbeddedCluster(settings={n: v for n, v in given.items() if n != "log.dirs"})
    for message in (one_line(done), embedded.value.message):
        assert f"process.roles={role}: " in message
        assert "set process.roles=broker,controller" in message
        assert "listeners=PLAINTEXT://:9092,CONTROLLER://:9093" in message


def test_a_voter_on_another_host_is_refused_before_anything_is_opened(tmp_path):
    """The id alone was compared, and a second cluster of one node began."""
    voters = "controller.quorum.voters=1@elsewhere:9093"
    done = run("--config", str(KAFKAS_FILE), "--set", voters, "--data-dir", str(tmp_path / "data"))
    assert done.returncode == 2
    assert "1@elsewhere:9093 is not this node" in one_line(done)
    assert not (tmp_path / "data").exists()


def test_the_help_tells_the_defaults_with_and_without_listeners():
    """The defaults of the address options are the listeners of --config, if it has them."""
    text = " ".join(run("--help").stdout.split())
    assert "address of the first listener (default: that in the setting listeners, else 127" in text
    assert "free one (default: that in the setting listeners, else 9092)" in text
    assert "that in the setting advertised.listeners, else the listener's own address" in text


def test_the_file_of_apache_kafka_has_nothing_but_settings_of_kafka():
    """The file that the tests above use must contain only settings that Kafka accepts."""
    assert set(parse_properties(KAFKAS_FILE.read_text())) <= set(KAFKA_SETTING_TYPES)
