"""`aiokq broker --secure DIR` as a process: its first start, later starts, and a renewal."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import aiokq
from aiokq.core.jaas import CLIENT_MODULES, SCRAM, jaas_text, login_module
from aiokq.core.properties import format_properties, parse_properties
from aiokq.errors import BootstrapFailed, ClusterAuthorization, KafkaError

pytest.importorskip("cryptography")


class Running:
    """A running broker: its line of JSON, and what it has written to standard error."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, errors.read_text()
        self.info = json.loads(line)
        self.process = process
        self.errors = errors

    @property
    def client_file(self) -> Path:
        return Path(self.info["client_config"])


@contextmanager
def broker(directory: Path, *arguments: str) -> Iterator[Running]:
    errors = directory.parent / f"{directory.name}.err"
    command = [sys.executable, "-m", "aiokq", "broker", "--secure", str(directory), "--json"]
    with errors.open("w") as file:
        process = subprocess.Popen(
            [*command, "--port", "0", *arguments], stdout=subprocess.PIPE, stderr=file, text=True
        )
    try:
        running = Running(process, errors)
        yield running
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stdout is not None
        process.stdout.close()
    assert password(running.client_file) not in errors.read_text()
    assert "Traceback" not in errors.read_text()


def values(path: Path) -> dict[str, str]:
    return parse_properties(path.read_text())


def password(path: Path) -> str:
    text = values(path)["sasl.jaas.config"]
    return login_module("sasl.jaas.config", text, CLIENT_MODULES).options["password"]


def client(path: Path) -> aiokq.Cluster:
    return aiokq.Cluster(settings=aiokq.ClusterSettings.from_properties(path))


async def test_the_administrator_gets_in_and_nobody_else(tmp_path):
    """The second start has the same users and the same data."""
    directory = tmp_path / "secure"
    with broker(directory) as running:
        file = running.client_file
        first = file.read_text()
        async with client(file) as cluster, cluster.admin() as admin:
            await admin.create_topics("t", raise_errors=True)
            async with cluster.producer() as producer:
                assert (await producer.send("t", b"v")).offset == 0
        guessed = tmp_path / "guessed.properties"
        others = {"sasl.jaas.config": values(file)["sasl.jaas.config"].replace('d="', 'd="x')}
        guessed.write_text(format_properties({**values(file), **others}))
        with pytest.raises(BootstrapFailed, match="invalid credentials"):
            async with client(guessed):
                pass
        with pytest.raises(KafkaError):
            async with aiokq.Cluster(values(file)["bootstrap.servers"], bootstrap_timeout_ms=2000):
                pass
    for path in directory.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        if path.parent == directory and path.is_file():
            assert mode == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    with broker(directory) as running:
        assert password(running.client_file) in first
        async with client(running.client_file) as cluster:
            consumer = cluster.consumer("t", auto_offset_reset="earliest")
            async with consumer:
                assert (await consumer.getone()).value == b"v"


async def test_a_user_that_the_administrator_adds_gets_in(tmp_path):
    """The listener offers one mechanism; a credential for another one would be of no use."""
    with broker(tmp_path / "secure") as running:
        secret = tmp_path / "alice.password"
        secret.write_text("wonderland")
        added = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "aiokq", "users", "add", "alice", "--password-file", str(secret),
             "--config", str(running.client_file)],
            capture_output=True,
            text=True,
        )  # fmt: skip
        assert (added.returncode, added.stdout) == (0, "alice: SCRAM-SHA-512 set\n"), added.stderr
        own = values(running.client_file)
        own["sasl.jaas.config"] = jaas_text(SCRAM, {"username": "alice", "password": "wonderland"})
        file = tmp_path / "alice.properties"
        file.write_text(format_properties(own))
        async with client(file) as cluster, cluster.admin() as admin:
            with pytest.raises(ClusterAuthorization):
                await admin.describe_acls()
        audit = running.errors.read_text()
        assert "aiokq.audit.change: user changed: principal=User:admin" in audit
        assert 'item="alice: SCRAM-SHA-512 set"' in audit
        assert "aiokq.audit.denial: operation denied: principal=User:alice" in audit


def certificate(address: str, authority: Path) -> str:
    host, _, port = address.rpartition(":")
    assert host
    return ssl.get_server_certificate((host, int(port)), ca_certs=str(authority))


def test_a_renewed_certificate_is_taken_up_by_a_running_broker(tmp_path):
    directory = tmp_path / "secure"
    with broker(directory, "--set", "allow.unsecured.tokens=false") as running:
        address = running.info["bootstrap_servers"]
        before = certificate(address, directory / "ca.pem")
        done = subprocess.run(
            [sys.executable, "-m", "aiokq", "broker", "--secure", str(directory), "--renew"],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert "broker.pem" in done.stdout
        deadline = 60
        while certificate(address, directory / "ca.pem") == before:
            deadline -= 1
            assert deadline, "the former certificate is still in use"
            subprocess.run(["sleep", "0.25"], check=True)


def test_a_client_is_told_what_it_needs_without_the_password(tmp_path):
    directory = tmp_path / "secure"
    command = [sys.executable, "-m", "aiokq", "broker", "--secure", str(directory), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "listens on 127.0.0.1:" in line
    told = err[err.index("A client needs:") :].splitlines()[1:4]
    assert "127.0.0.1:" in told[0]
    assert "user admin" in told[1]
    assert str(directory / "client.properties") in told[1]
    assert str(directory / "ca.pem") in told[2]
    assert password(directory / "client.properties") not in line + out + err
    assert "ANYONE" not in err
    assert "NOT enforced" not in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--renew",), "--renew needs --secure"),
        (("--secure", "DIR", "--data-dir", "x"), "exclude each other"),
        (("--secure", "DIR", "--config", os.devnull), "exclude each other"),
    ],
)
def test_options_that_do_not_go_together_are_one_line_and_exit_code_2(tmp_path, arguments, words):
    given = [str(tmp_path / "secure") if one == "DIR" else one for one in arguments]
    done = subprocess.run(
        [sys.executable, "-m", "aiokq", "broker", *given], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "secure").exists()
