"""The command line as processes with pipes and signals, on a broker in this process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aiokq import EmbeddedCluster

SECONDS = 20


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedCluster() as kafka:
        yield kafka.bootstrap_servers


def environment(servers: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    clean.pop("PYTHONUNBUFFERED", None)  # output is buffered by default
    return clean | {"KAFKA_BOOTSTRAP_SERVERS": servers}


def aiokq(servers: str, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "aiokq", *arguments],
        input=stdin,
        capture_output=True,
        timeout=SECONDS,
        env=environment(servers),
    )


@contextmanager
def running(servers: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "aiokq", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(servers),
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def ending(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out, err


def test_what_goes_in_comes_out(servers: str, topic: str):
    """A pipe from `seq` to `wc` through a topic of three partitions."""
    assert aiokq(servers, "topics", "create", topic, "--partitions", "3").returncode == 0
    numbers = [str(number).encode() for number in range(20_000)]
    done = aiokq(servers, "produce", topic, "-z", "lz4", "--json", stdin=b"\n".join(numbers))
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["delivered"] == 20_000
    done = aiokq(servers, "consume", topic, "--until-end")
    assert (done.returncode, done.stderr) == (0, b"")
    assert sorted(done.stdout.split(), key=int) == numbers
    done = aiokq(servers, "offsets", topic, "--json")
    assert sum(partition["latest"] for partition in json.loads(done.stdout)) == 20_000


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_reader_that_follows_ends_quietly(
    servers: str, topic: str, number: signal.Signals, code: int
):
    """Ctrl-C is the normal way to end it."""
    aiokq(servers, "produce", topic, stdin=b"first\n")
    with running(servers, "consume", topic) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        aiokq(servers, "produce", topic, stdin=b"second\n")
        assert process.stdout.readline() == b"second\n"
        process.send_signal(number)
        assert ending(process) == (code, b"", b"")


def test_a_reader_that_follows_takes_new_partitions(servers: str, topic: str, tmp_path: Path):
    """Partitions are added to the topic while the command runs."""
    aiokq(servers, "produce", topic, stdin=b"first\n")
    config = tmp_path / "client.properties"
    config.write_text("metadata.max.age.ms=200\n")
    with running(servers, "consume", topic, "--offsets", "--config", str(config)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{topic}-0@0\tfirst\n".encode()
        aiokq(servers, "topics", "alter", topic, "--partitions", "2")
        aiokq(servers, "produce", topic, "--partition", "1", stdin=b"new\n")
        assert process.stdout.readline() == f"{topic}-1@0\tnew\n".encode()
        process.send_signal(signal.SIGINT)
        assert ending(process)[0] == 130


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_a_writer_had_read_is_delivered_when_it_is_interrupted(
    servers: str, topic: str, number: signal.Signals, code: int
):
    """Ctrl-C ends the input; records of earlier lines are delivered."""
    with running(servers, "produce", topic, "--offsets") as process:
        assert process.stdin is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        # It reports the interruption at once, not when the next line is typed.
        assert process.stdout is not None
        assert process.stdout.readline() == f"{topic}-0@0\n".encode()
        assert process.stdout.readline() == f"{topic}-0@1\n".encode()
        process.send_signal(number)
        done, out, err = ending(process)
    assert (done, err) == (code, b"")
    assert out.startswith(b"2 records (6 bytes) delivered")


def test_a_reader_of_the_output_that_leaves_ends_the_command_quietly(servers: str, topic: str):
    """`aiokq consume orders | head -1`."""
    aiokq(servers, "produce", topic, stdin=b"line\n" * 100_000)
    command = f"{sys.executable} -m aiokq consume {topic} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, timeout=SECONDS, env=environment(servers)
    )
    assert (done.returncode, done.stdout, done.stderr) == (141, b"line\n", b"")


def test_a_full_disk_is_one_line(servers: str, topic: str):
    """`aiokq consume orders > file` on a disk that has no room."""
    aiokq(servers, "produce", topic, stdin=b"line\n")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "aiokq", "consume", topic, "--until-end"],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=SECONDS,
            env=environment(servers),
        )
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1
    assert b"No space left" in done.stderr


def test_the_broker_is_listed_and_dispatched(servers: str):
    """The broker has a parser of its own; the options may precede its name."""
    assert b" broker " in aiokq(servers, "--help").stdout
    for arguments in (("broker", "--help"), ("-v", "broker", "--help")):
        done = aiokq(servers, *arguments)
        assert done.returncode == 0
        assert b"--data-dir" in done.stdout


def quick(tmp_path: Path) -> tuple[str, str]:
    path = tmp_path / "quick.properties"
    path.write_text("bootstrap.timeout.ms=1500\n")
    return "--config", str(path)


def test_nothing_that_listens_is_one_line_within_the_configured_time(tmp_path: Path):
    """`doctor` reports it at once."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        began = time.monotonic()
        done = aiokq(address, "topics", "list", *quick(tmp_path))
        assert time.monotonic() - began < 8
        assert done.returncode == 1
        assert done.stderr.count(b"\n") == 1
        assert b"Connection refused" in done.stderr
        done = aiokq(address, "doctor", "--json")
        assert done.returncode == 1
        assert json.loads(done.stdout)[-1]["status"] == "fail"


def test_a_port_that_is_not_kafkas_is_one_line(tmp_path: Path):
    """A web server listens on the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1000)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        for command in (("cluster",), ("doctor",), ("consume", "t"), ("produce", "t")):
            done = aiokq(address, *command, *quick(tmp_path))
            text = done.stderr + done.stdout
            assert done.returncode == 1
            assert b"Traceback" not in text
            assert b"HTTP" in text or b"Kafka" in text
        server.shutdown(socket.SHUT_RDWR)


def test_doctor_finds_the_broker(servers: str):
    """Every check of the cluster is ok."""
    done = aiokq(servers, "doctor", "--json")
    checks = {check["check"]: check for check in json.loads(done.stdout)}
    assert checks["bootstrap"]["status"] == checks["metadata"]["status"] == "ok"
