"""`aiokq broker` as a process: its output, exit codes, durability over a kill, hostile sockets."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aiokq import wire
from aiokq.broker.embedded import EmbeddedCluster
from aiokq.core.errors import ConfigError
from aiokq.fastpath import crc32c
from aiokq.records.record import RawRecord, encode_batch
from tests.peers.broker_process import BrokerProcess, broker_process

COMMAND = [sys.executable, "-m", "aiokq", "broker"]
HUGE = "9" * 5000  # `int` refuses more than 4300 digits
OVERRIDES = "max.connections.per.ip.overrides"
VOTERS = "controller.quorum.voters"
SERVERS = "controller.quorum.bootstrap.servers"
FORBIDDEN = (
    *("pydantic", "typer", "rich", "prometheus_client", "pyarrow", "click", "argparse", "gettext"),
    "aiokq.broker.option_parser",
    "aiokq.broker.metadata.earlier.migration",
    "aiokq.broker.metadata.earlier.private_file",
    "aiokq.broker.metadata.log.covered_segments",
    "aiokq.broker.metadata.start.found_partitions",
    "lz4",
    "zstandard",
    "cramjam",
)
"""Modules that a start with a new directory does not need."""


def run(*arguments: str, timeout: float = 20, **options) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; the arguments must make it end early."""
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=timeout, **options
    )


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the only line on stderr, which must not be a traceback."""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


_sockets: list[socket.socket] = []


@pytest.fixture(autouse=True)
def _close_sockets():
    """Close the sockets of the `Client`s that a test opens."""
    yield
    while _sockets:
        _sockets.pop().close()


class Client:
    """A client with a blocking socket that sends and receives whole frames."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        _sockets.append(self.socket)

    def ask(self, request, version):
        parts = wire.encode_request(request, version=version, correlation_id=1, client_id="t")
        self.socket.sendall(b"".join(bytes(part) for part in parts))
        size = struct.unpack(">i", self.receive(4))[0]
        return wire.decode_response(type(request).RESPONSE, self.receive(size), version)[1]

    def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("closed")
            data += part
        return data

    def closed_by_broker(self, seconds: float = 10) -> bool:
        self.socket.settimeout(seconds)
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def metadata(self, *topics: str):
        names = [wire.MetadataRequestTopic(name=name) for name in topics]
        return self.ask(wire.MetadataRequest(topics=names), 9)

    def produce(self, topic: str, count: int, **header) -> tuple[int, int]:
        records = [RawRecord(n, 1, b"k", b"v") for n in range(count)]
        data = encode_batch(records, crc32c=crc32c, **header)
        response = self.ask(
            wire.ProduceRequest(
                acks=-1,
                timeout_ms=1000,
                topic_data=[
                    wire.TopicProduceData(
                        name=topic,
                        partition_data=[wire.PartitionProduceData(index=0, records=data)],
                    )
                ],
            ),
            9,
        )
        result = response.responses[0].partition_responses[0]
        return result.error_code, result.base_offset

    def end_offset(self, topic: str) -> int:
        asked = wire.ListOffsetsPartition(partition_index=0, timestamp=-1)
        response = self.ask(
            wire.ListOffsetsRequest(
                replica_id=-1, topics=[wire.ListOffsetsTopic(name=topic, partitions=[asked])]
            ),
            5,
        )
        return response.topics[0].partitions[0].offset


@pytest.fixture
def broker(tmp_path):
    with broker_process(tmp_path / "data") as running:
        yield running


# The line and the end


def test_it_prints_one_line_once_it_accepts_and_stops_with_0():
    """Scripts wait for that line; SIGTERM and Ctrl-C are both a clean shutdown."""
    for number in (signal.SIGTERM, signal.SIGINT):
        process = subprocess.Popen(
            [*COMMAND, "--port", "0", "--profile", "dev"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        line = process.stdout.readline()
        assert line.startswith("aiokq broker 0 listens on 127.0.0.1:")
        assert "ephemeral" in line
        address = line.split(" listens on ")[1].split()[0]
        Client(address).metadata("t")
        process.send_signal(number)
        rest, errors = process.communicate(timeout=10)
        assert (process.returncode, rest, errors) == (0, "", "")


def test_an_ephemeral_broker_leaves_nothing_behind(tmp_path):
    """Test suites start thousands of ephemeral brokers."""
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    info = json.loads(process.stdout.readline())
    assert info["ephemeral"] is True
    assert info["data_dir"] is None
    Client(info["bootstrap_servers"]).metadata("t")
    assert list(tmp_path.iterdir()) != []
    process.terminate()
    process.communicate(timeout=10)
    assert list(tmp_path.iterdir()) == []


def test_the_json_line_says_what_a_program_needs(tmp_path):
    """The line has the address, ids and directory."""
    with broker_process(tmp_path / "data", "--profile", "dev", "--node-id", "3") as broker:
        assert broker.info["node_id"] == 3
        assert broker.info["profile"] == "dev"
        assert broker.info["data_dir"] == str(tmp_path / "data")
        assert broker.info["pid"] == broker.process.pid
        assert len(str(broker.info["cluster_id"])) == 22


def run_briefly(*arguments: str, terminal: bool = False) -> tuple[str, str]:
    """Start the broker, stop it once it accepts connections, and return its stdout and stderr."""
    ours, theirs = os.openpty() if terminal else os.pipe()
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", *arguments],
        stdin=theirs if terminal else subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(ours, 4096)
    process.terminate()
    _, errors = process.communicate(timeout=20)
    os.close(ours)
    assert process.returncode == 0
    return line.decode(), errors


def test_the_profile_is_dev_where_nothing_is_kept():
    """With Kafka's defaults a group would wait 3 s for its first record."""
    line, errors = run_briefly()
    assert "listens on" in line
    assert errors == (
        "aiokq broker: profile dev, because nothing is kept; --profile kafka has Kafka's defaults\n"
    )
    assert "profile dev, because nothing is kept" in run_briefly(terminal=True)[1]


def test_the_profile_of_a_new_directory_depends_on_the_terminal(tmp_path):
    """A user at a terminal tries the broker out; a service gets Kafka's defaults."""
    typed = run_briefly("--data-dir", str(tmp_path / "typed"), terminal=True)[1]
    assert "profile dev, because the broker runs at a terminal with a new data directory" in typed
    service = run_briefly("--set", f"log.dirs={tmp_path / 'service'}")[1]
    assert (
        "profile kafka, because the broker does not run at a terminal; --profile dev has" in service
    )


def test_the_profile_of_a_directory_in_use_is_kafka(tmp_path):
    """A directory with data is no trial any more."""
    directory = ["--data-dir", str(tmp_path / "a"), "--data-dir", str(tmp_path / "b")]
    run_briefly("--profile", "dev", *directory)
    (tmp_path / "c").mkdir()
    again = run_briefly(*directory, "--data-dir", str(tmp_path / "c"), terminal=True)[1]
    assert "profile kafka, because the data directory is not new" in again


def test_the_profile_with_a_settings_file_is_kafka(tmp_path):
    """A settings file is a sign of a deployment."""
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\n")
    errors = run_briefly("--config", str(file), terminal=True)[1]
    assert "profile kafka, because --config is given" in errors


def test_a_profile_that_is_named_needs_no_reason(tmp_path):
    """The line that explains the profile is for users who did not choose one."""
    assert run_briefly("--profile", "kafka", "--data-dir", str(tmp_path))[1] == ""
    line, errors = run_briefly("--json")
    info = json.loads(line)
    assert (info["profile"], info["profile_reason"]) == ("dev", "nothing is kept")
    assert errors == ""


def test_nothing_heavy_is_imported_to_start(tmp_path):
    """pydantic and typer would take too much of the 150 ms from exec to accepting."""
    code = (
        "import asyncio, sys, signal, os\n"
        "from aiokq.broker import process\n"
        "from aiokq.broker.node import BrokerNode\n"
        "async def stop(self, event):\n"
        "    print([name for name in sys.argv[1].split(',') if name in sys.modules])\n"
        "BrokerNode.run_until = stop\n"
        "sys.exit(process.main(['--port', '0', '--data-dir', sys.argv[2]]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, ",".join(FORBIDDEN), str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_metrics_are_served_on_a_port_of_their_own(tmp_path):
    """Prometheus scrapes this port; the server is imported only when the port is set."""
    import urllib.request

    with broker_process(tmp_path / "data", "--metrics-port", "0") as broker:
        Client(broker.bootstrap_servers).metadata("t")
        url = f"http://127.0.0.1:{broker.info['metrics_port']}/metrics"
        with urllib.request.urlopen(url, timeout=10) as response:
            text = response.read().decode()
    assert 'aiokq_broker_requests_total{api="Metadata",broker="0"} 1.0' in text
    assert 'aiokq_broker_partitions{broker="0"} 1.0' in text


# Bad arguments and bad environments


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "num.partition=4"], "did you mean num.partitions?"),
        (["--set", "num.partitions=0"], "num.partitions must be at least 1"),
        (["--set", "num.partitions"], "NAME=VALUE"),
        (["--config", "/absent/file"], "/absent/file"),
        (["--host", "0.0.0.0"], "--advertise"),
        (["--advertise", "0.0.0.0"], "wildcard"),
        (["--advertise", "host:port"], "HOST[:PORT]"),
        (["--advertise", "::1"], "[::1]:9092"),
        (["--advertise", "a host"], "HOST[:PORT]"),
        (["--node-id", "-1"], "the node id must be 0 to"),
        (["--port", "x"], "the port must be 0 to 65535"),
        (["--profile", "prod"], "--help"),
        (["--override", "num.partitions=4"], "use --set NAME=VALUE"),
        (["server.properties"], "use --config FILE"),
        (["--absent"], "--help"),
        (["--port", HUGE], "the port must be 0 to 65535"),
        (["--node-id", HUGE], "the node id must be 0 to"),
        (["--metrics-port", "1_0"], "the port must be 0 to 65535"),
        (["--set", "num.partitions=1_0"], "num.partitions must be of type int, not '1_0'"),
        (["--set", f"num.partitions={HUGE}"], "num.partitions must be of type int"),
        (["--set", f"listeners=PLAINTEXT://:{HUGE}"], "must be between 0 and 65535"),
        (["--advertise", f"a:{HUGE}"], "HOST[:PORT]"),
        (["--advertise", "a" * 40_000], "--advertise"),
        (["--advertise", "a,b"], "HOST[:PORT]"),
        (["--host", "a..b"], "'a..b' is not a host name"),
        (["--host", "a" * 64], "is not a host name"),
        (["--host", "\udce9"], "is not a host name"),
        (["--set", "listeners=PLAINTEXT://a..b:0"], "listeners: 'a..b' is not a host name"),
        (["--set", f"{OVERRIDES}=127.0.0.1:{HUGE}"], "address:count"),
        (["--set", f"{OVERRIDES}=127.0.0.1:3000000000"], "from 0 to 2147483647"),
        (["--set", f"{VOTERS}={HUGE}@h:9093", "--node-id", "1"], f"{VOTERS}: the id"),
        (["--set", f"{VOTERS}=1@h:{HUGE}", "--node-id", "1"], f"{VOTERS}: the port"),
        (["--set", f"{SERVERS}=h:{HUGE}"], f"{SERVERS}: the port"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_bad_setting_is_one_line_and_exit_code_2(arguments, words):
    """There is no traceback, and nothing is started."""
    done = run("--port", "0", *arguments)
    assert done.returncode == 2
    assert words in one_line(done)
    assert len(one_line(done)) < 400  # a long value is shortened
    assert done.stdout == ""


def test_a_settings_file_that_is_no_text_says_so(tmp_path):
    """Such a file may be a key store given in place of the properties."""
    path = tmp_path / "broker.properties"
    path.write_bytes(b"\xff\xfe\x00")
    done = run("--port", "0", "--config", str(path))
    assert done.returncode == 2
    assert f"{path} is not UTF-8" in one_line(done)


def test_a_settings_file_in_latin_1_names_the_byte_and_the_line(tmp_path):
    """Java reads properties as Latin-1, so a file of Kafka's may be."""
    path = tmp_path / "broker.properties"
    path.write_bytes("num.partitions=3\n# café\n".encode("latin-1"))
    done = run("--port", "0", "--config", str(path))
    assert done.returncode == 2
    assert f"{path} is not UTF-8: byte 0xe9 in line 2" in one_line(done)


@pytest.mark.parametrize("escape", ["\\u0000", "\\ud800"])
def test_a_directory_that_no_path_can_name_is_refused(tmp_path, escape):
    """The file system would raise a ValueError, which is not an OSError."""
    path = tmp_path / "broker.properties"
    path.write_text(f"log.dirs={tmp_path}/a{escape}b\n")
    done = run("--port", "0", "--config", str(path))
    assert done.returncode == 2
    assert "log.dirs: " in one_line(done)
    assert "cannot be the path of a directory" in one_line(done)


def test_a_directory_whose_name_is_not_utf_8_is_printed_as_it_is(tmp_path):
    """A path on Linux is bytes."""
    data = os.fsencode(tmp_path) + b"/caf\xe9"
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", "--data-dir", data],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
    )
    line = process.stdout.readline()
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 0
    assert b"(data in " + data + b")" in line


def test_an_invalid_ipv6_zone_is_one_line_without_the_error_number():
    """The resolver accepts the address, and binding the socket fails."""
    done = run("--port", "0", "--host", "fe80::1%no-such-zone")
    assert done.returncode == 1
    assert "fe80::1%no-such-zone" in one_line(done)
    assert "[Errno" not in one_line(done)


def test_help_is_there_without_typer():
    """The broker is the one command that parses its arguments without typer."""
    done = run("--help")
    assert done.returncode == 0
    for flag in ("--port", "--data-dir", "--node-id", "--profile", "--set", "--config",
                 "--host", "--advertise", "--metrics-port", "--json"):  # fmt: skip
        assert flag in done.stdout


def test_a_port_in_use_says_so(broker, tmp_path):
    """The exit code is 1, and the line says what to do."""
    port = broker.bootstrap_servers.rsplit(":", 1)[1]
    done = run("--port", port, "--data-dir", str(tmp_path / "other"))
    assert done.returncode == 1
    assert f"port {port} is in use" in one_line(done)


def test_an_address_of_another_machine_says_so(tmp_path):
    """The usual cause is a typing error in --host."""
    done = run("--port", "0", "--host", "192.0.2.1", "--data-dir", str(tmp_path))
    assert done.returncode == 1
    assert "192.0.2.1 is not an address of this machine" in done.stderr.splitlines()[-1]


def test_an_unknown_host_says_so():
    """The resolver's error number alone would not help."""
    done = run("--port", "0", "--host", "no-such-host.invalid")
    assert done.returncode == 1
    assert "no-such-host.invalid" in done.stderr.splitlines()[-1]
    assert "--host" in done.stderr.splitlines()[-1]


def test_a_metrics_port_in_use_says_so(broker):
    """The message names the metrics port, because the broker's own port is free."""
    port = broker.bootstrap_servers.rsplit(":", 1)[1]
    done = run("--port", "0", "--metrics-port", port)
    assert done.returncode == 1
    assert f"--metrics-port {port} is in use" in one_line(done)


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_ipv6_address_is_printed_as_clients_take_it(host):
    """Without brackets readers could not tell the port from the address."""
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", "--host", host, "--json"], stdout=subprocess.PIPE, text=True
    )
    try:
        info = json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.communicate(timeout=10)
    address, port = info["bootstrap_servers"].rsplit(":", 1)
    assert address == "[::1]"
    assert port.isdecimal()


def test_a_directory_in_use_says_so(broker):
    """Two brokers on one log would destroy it."""
    done = run("--port", "0", "--data-dir", str(broker.data_dir))
    assert done.returncode == 1
    assert "in use" in one_line(done)


def test_an_embedded_cluster_on_a_port_in_use_says_so():
    """This happens when a test suite with a fixed port runs twice at once."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} is in use"), EmbeddedCluster(port=port):
            pass


def test_another_nodes_directory_is_refused(tmp_path):
    """Replicas are identified by their node ids."""
    with broker_process(tmp_path / "data", "--node-id", "2"):
        pass
    done = run("--port", "0", "--data-dir", str(tmp_path / "data"), "--node-id", "5")
    assert done.returncode == 1
    assert "node 2, not 5" in one_line(done)
    with broker_process(tmp_path / "data") as broker:
        assert broker.info["node_id"] == 2


def respect_modes():
    """Before exec, drop root's right to ignore file modes, so that they bind root as well."""
    if os.geteuid() == 0:
        pr_capbset_drop, cap_dac_override = 24, 1
        assert ctypes.CDLL(None).prctl(pr_capbset_drop, cap_dac_override, 0, 0, 0) == 0


def test_a_read_only_directory_says_so(tmp_path):
    """A mounted volume with wrong permissions is the usual case."""
    directory = tmp_path / "data"
    directory.mkdir(mode=0o500)
    done = run("--port", "0", "--data-dir", str(directory), preexec_fn=respect_modes)
    assert done.returncode == 1
    assert "writable" in one_line(done)


def test_a_file_in_place_of_the_directory_says_so(tmp_path):
    """--data-dir is the path of a file."""
    path = tmp_path / "file"
    path.write_text("x")
    done = run("--port", "0", "--data-dir", str(path))
    assert done.returncode == 1
    assert f"{path} is a file" in one_line(done)
    done = run("--port", "0", "--data-dir", str(path / "below"))
    assert done.returncode == 1
    assert "is inside a file" in one_line(done)


def test_a_corrupt_metadata_log_stops_the_start(tmp_path):
    """Starting without it would lose topics."""
    with broker_process(tmp_path / "data") as broker:
        Client(broker.bootstrap_servers).metadata("a", "b")
    log = tmp_path / "data" / "__cluster_metadata-0" / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[150] ^= 1
    log.write_bytes(content)
    done = run("--port", "0", "--data-dir", str(tmp_path / "data"))
    assert done.returncode == 1
    assert "is damaged at byte" in one_line(done)
    assert "aiokq log repair" in one_line(done)
    assert log.read_bytes() == content


def test_listening_to_others_warns_loudly(tmp_path):
    """The broker has no authentication."""
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", "--host", "0.0.0.0", "--advertise", "127.0.0.1", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    info = json.loads(process.stdout.readline())
    response = Client(info["bootstrap_servers"]).metadata()
    assert [b.host for b in response.brokers] == ["127.0.0.1"]
    process.terminate()
    _, errors = process.communicate(timeout=10)
    assert "ANYONE" in errors


def test_what_is_advertised_is_what_clients_are_told(tmp_path):
    """Clients cannot use the inner address if they reach the broker through a port mapping."""
    with broker_process(tmp_path / "data", "--advertise", "kafka.example:19092") as broker:
        assert broker.bootstrap_servers == "kafka.example:19092"


def test_settings_come_from_file_and_flags_and_flags_win(tmp_path):
    """--config holds the settings of many brokers, --set those of one."""
    config = tmp_path / "broker.properties"
    config.write_text("# a comment\nnum.partitions=3\nmessage.max.bytes: 5000\n")
    with broker_process(
        tmp_path / "data", "--config", str(config), "--set", "num.partitions=2"
    ) as broker:
        response = Client(broker.bootstrap_servers).metadata("t")
        assert len(response.topics[0].partitions) == 2


# Kills


def restart(broker: BrokerProcess, number: int = signal.SIGKILL) -> Client:
    broker.stop(number)
    broker.start()
    return Client(broker.bootstrap_servers)


def test_topics_ids_settings_and_records_survive_a_kill(broker):
    """What the broker acknowledged survives the death of its process."""
    client = Client(broker.bootstrap_servers)
    before = client.metadata("t")
    topic_id = (
        Client(broker.bootstrap_servers)
        .ask(wire.MetadataRequest(topics=[wire.MetadataRequestTopic(name="t")]), 12)
        .topics[0]
        .topic_id
    )
    assert before.topics[0].error_code == 0
    for expected in range(0, 50, 5):
        assert client.produce("t", 5) == (0, expected)
    client = restart(broker)
    after = client.ask(wire.MetadataRequest(topics=None), 12)
    assert [(t.name, t.topic_id) for t in after.topics] == [("t", topic_id)]
    assert after.topics[0].partitions[0].leader_epoch == 1  # records might be lost
    assert client.end_offset("t") == 50
    assert client.produce("t", 5) == (0, 50)


def test_a_retry_over_a_kill_is_still_recognised(broker):
    """The sequence numbers are in the log, so they survive with it."""
    client = Client(broker.bootstrap_servers)
    client.metadata("t")
    request = wire.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    producer_id = client.ask(request, 4).producer_id
    header = {"producer_id": producer_id, "producer_epoch": 0}
    assert client.produce("t", 3, base_sequence=0, **header) == (0, 0)
    client = restart(broker)
    assert client.produce("t", 3, base_sequence=0, **header) == (0, 0)
    assert client.produce("t", 1, base_sequence=3, **header) == (0, 3)
    assert client.produce("t", 1, base_sequence=9, **header)[0] == 45
    assert client.ask(request, 4).producer_id > producer_id


def test_a_deleted_topic_stays_deleted_over_a_kill(broker):
    """A new topic of that name is empty."""
    client = Client(broker.bootstrap_servers)
    client.metadata("t")
    client.produce("t", 5)
    client.ask(wire.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 4)
    client = restart(broker)
    assert client.ask(wire.MetadataRequest(topics=None), 12).topics == []
    client.metadata("t")
    assert client.end_offset("t") == 0
    client = restart(broker)
    assert client.end_offset("t") == 0


def test_a_torn_tail_is_cut_off_and_the_log_goes_on(broker):
    """Recovery removes a torn batch whole, because it was never acknowledged."""
    client = Client(broker.bootstrap_servers)
    client.metadata("t")
    client.produce("t", 5)
    broker.stop(signal.SIGKILL)
    log = broker.data_dir / "t-0" / "00000000000000000000.log"
    sound = log.read_bytes()
    log.write_bytes(sound + sound[:40])
    broker.start()
    client = Client(broker.bootstrap_servers)
    assert client.end_offset("t") == 5
    assert client.produce("t", 1) == (0, 5)


def test_after_a_clean_stop_epochs_stay(broker):
    """A clean shutdown loses nothing, so there is no reason for a new leader epoch."""
    Client(broker.bootstrap_servers).metadata("t")
    Client(broker.bootstrap_servers).produce("t", 1)
    client = restart(broker, signal.SIGTERM)
    assert client.metadata("t").topics[0].partitions[0].leader_epoch == 0


def test_partitions_that_no_topic_owns_are_set_aside_not_deleted(tmp_path):
    """Somebody may have put them there and want them back."""
    with broker_process(tmp_path / "data") as broker:
        Client(broker.bootstrap_servers).metadata("ours")
    directory = tmp_path / "data" / "foreign-0"
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(b"precious")
    with broker_process(tmp_path / "data") as broker:
        [topic] = Client(broker.bootstrap_servers).ask(wire.MetadataRequest(topics=None), 9).topics
        assert topic.name == "ours"
    [stray] = (tmp_path / "data").glob("foreign-0.*-stray")
    assert (stray / "00000000000000000000.log").read_bytes() == b"precious"


# Hostile and unlucky clients


def resident_mib(pid: int) -> float:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
        struct.pack(">i", -5) + bytes(10),
        struct.pack(">i", 2**31 - 1) + bytes(10),
        struct.pack(">i", 6) + struct.pack(">hhh", 3, 9, 0),
        struct.pack(">i", 10) + struct.pack(">hhih", 3, 9, 1, 30000),
        struct.pack(">i", 12) + struct.pack(">hhih", 500, 0, 1, 0) + b"xx",
    ],
    ids=["http", "tls", "negative", "huge", "short", "client id", "api key"],
)
def test_what_is_not_kafka_is_disconnected(broker, data):
    """Clients that speak Kafka are still served."""
    client = Client(broker.bootstrap_servers)
    client.socket.sendall(data)
    assert client.closed_by_broker()
    assert Client(broker.bootstrap_servers).metadata("t").topics[0].error_code == 0


def test_counts_that_promise_more_than_the_frame_allocate_nothing(broker):
    """A frame of thirty bytes claims to hold two billion topics."""
    before = resident_mib(broker.process.pid)
    for key, version in ((3, 1), (0, 3), (1, 4), (19, 2)):
        client = Client(broker.bootstrap_servers)
        body = struct.pack(">hhih", key, version, 1, -1) + b"\x7f\xff\xff\xff" * 6
        client.socket.sendall(struct.pack(">i", len(body)) + body)
        assert client.closed_by_broker()
    assert resident_mib(broker.process.pid) - before < 20


def test_half_sent_frames_hold_no_memory_of_their_promised_size(broker):
    """A hundred connections announce 100 MB each and send one byte."""
    before = resident_mib(broker.process.pid)
    clients = [Client(broker.bootstrap_servers) for _ in range(100)]
    for client in clients:
        client.socket.sendall(struct.pack(">i", 100_000_000) + b"x")
    time.sleep(0.3)
    assert Client(broker.bootstrap_servers).metadata("t").topics[0].error_code == 0
    assert resident_mib(broker.process.pid) - before < 100


def test_a_client_that_sends_byte_by_byte_is_served(broker):
    """A slow client is not a broken one."""
    client = Client(broker.bootstrap_servers)
    parts = wire.encode_request(
        wire.MetadataRequest(topics=None), version=9, correlation_id=1, client_id="slow"
    )
    for byte in b"".join(bytes(part) for part in parts):
        client.socket.sendall(bytes([byte]))
    (size,) = struct.unpack(">i", client.receive(4))
    client.receive(size)


def test_a_client_that_reads_nothing_does_not_fill_the_brokers_memory(broker):
    """It requests a thousand fetches of 10 MB each and reads no response."""
    client = Client(broker.bootstrap_servers)
    client.metadata("t")
    records = [RawRecord(n, 1, b"k", b"x" * 1000) for n in range(900)]
    data = encode_batch(records, crc32c=crc32c)
    for _ in range(12):
        partition = wire.PartitionProduceData(index=0, records=data)
        topic = wire.TopicProduceData(name="t", partition_data=[partition])
        client.ask(wire.ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]), 9)
    before = resident_mib(broker.process.pid)
    asked = wire.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000_000)
    request = wire.FetchRequest(
        max_wait_ms=0, min_bytes=1, topics=[wire.FetchTopic(topic="t", partitions=[asked])]
    )
    parts = wire.encode_request(request, version=11, correlation_id=1, client_id="deaf")
    frame = b"".join(bytes(part) for part in parts)
    deaf = Client(broker.bootstrap_servers)
    deaf.socket.settimeout(2)
    try:
        for _ in range(1000):
            deaf.socket.sendall(frame)
    except TimeoutError:
        pass  # the broker has stopped reading, as it should
    time.sleep(0.3)
    assert Client(broker.bootstrap_servers).metadata("t").topics[0].error_code == 0
    assert resident_mib(broker.process.pid) - before < 60
    deaf.socket.close()
