"""The peer at bootstrap_servers is not the expected broker: each client reports it in time.

Every peer is tested with a producer, a consumer, an admin client and the commands of `aiokq`.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import pytest

import aiokq
from aiokq import errors
from aiokq.broker.embedded import EmbeddedCluster
from aiokq.cli.app import execute
from tests.peers import wrong

LIMIT_MS = 700
"""The longest time that each client is configured to wait."""
REQUEST_MS = 400
SLACK = 6.0
"""Seconds that a busy machine may add. The default limits are 10 s and 60 s, so a client that
ignores its configured limit still fails the test.
"""

LIMITS = {
    "bootstrap_timeout_ms": LIMIT_MS,
    "request_timeout_ms": REQUEST_MS,
    "default_api_timeout_ms": LIMIT_MS,
}


class Peer(NamedTuple):
    """A peer, and a pattern of the error that the user reads."""

    serve: Callable[[], AbstractContextManager[str]]
    told: str
    at_once: bool
    """Whether waiting is pointless, so that the client must fail long before the limit."""


PEERS = {
    "a web server": Peer(wrong.web_server, "HTTP.*use the address of a Kafka listener", True),
    "another protocol": Peer(
        wrong.another_protocol, "SSH.*use the address of a Kafka listener", True
    ),
    "silence": Peer(
        wrong.silence, r"no answer .*within 0\.4 s.*not Kafka.*another security_protocol", False
    ),
    "a peer that resets": Peer(wrong.resetter, "security_protocol=SSL.*not Kafka", True),
    "Kafka 0.9": Peer(wrong.kafka_0_9, r"older than 0\.10 \(aiokq needs 0\.10 or newer\)", True),
    "a broker that dropped every version": Peer(
        lambda: wrong.scripted_kafka(wrong.ONLY_KAFKA_9),
        r"versions 90-99 of (Metadata|Produce), aiokq has 0-13: upgrade",
        True,
    ),
}


@pytest.fixture(params=PEERS)
def peer(request: pytest.FixtureRequest) -> Iterator[tuple[str, Peer]]:
    """Start one of the peers; yield its address and the peer."""
    chosen = PEERS[request.param]
    with chosen.serve() as address:
        yield address, chosen


async def produce(address: str) -> None:
    async with aiokq.Producer(
        address, delivery_timeout_ms=LIMIT_MS, max_block_ms=LIMIT_MS, **LIMITS
    ) as producer:
        await producer.send("orders", b"value")


async def consume(address: str) -> None:
    settings = {"auto_offset_reset": "earliest", **LIMITS}
    async with aiokq.Consumer("orders", bootstrap_servers=address, **settings) as consumer:
        await consumer.getone()


async def administer(address: str) -> None:
    async with aiokq.Admin(address, **LIMITS) as admin:
        await admin.create_topics("orders", raise_errors=True)


async def bounded(call: Awaitable[None]) -> None:
    """Turn a hang into a failure of the test."""
    async with asyncio.timeout(LIMIT_MS / 1000 + 10):
        await call


CLIENTS = {"producer": produce, "consumer": consume, "admin": administer}

COMMANDS = {
    "cluster": ("cluster",),
    "produce": ("produce", "orders", "--json"),
    "consume": ("consume", "orders", "--until-end"),
    "topics list": ("topics", "list"),
    "topics create": ("topics", "create", "orders"),
    "offsets": ("offsets", "orders"),
}


@pytest.mark.parametrize("client", CLIENTS)
async def test_entering_fails_in_time_and_says_what_to_do(
    peer: tuple[str, Peer], client: str
) -> None:
    """The error has the address, what answers there, and the remedy."""
    address, expected = peer
    began = time.monotonic()
    with pytest.raises(errors.BootstrapFailed, match=expected.told) as failure:
        await bounded(CLIENTS[client](address))
    took = time.monotonic() - began
    assert took < (SLACK if expected.at_once else LIMIT_MS / 1000 + SLACK)
    assert address in str(failure.value)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize("client", CLIENTS)
async def test_without_waiting_at_the_start_every_call_has_its_own_limit(
    peer: tuple[str, Peer], client: str
) -> None:
    """With bootstrap_timeout_ms=0 entering succeeds; the first call fails within its own limit."""
    address, expected = peer
    began = time.monotonic()
    with pytest.raises(errors.KafkaError, match=expected.told) as failure:
        await bounded(late(client, address))
    assert time.monotonic() - began < LIMIT_MS / 1000 + SLACK
    assert not isinstance(failure.value, errors.Closed)


async def late(client: str, address: str) -> None:
    limits = {**LIMITS, "bootstrap_timeout_ms": 0}
    if client == "producer":
        async with aiokq.Producer(
            address, delivery_timeout_ms=LIMIT_MS, max_block_ms=LIMIT_MS, **limits
        ) as producer:
            await producer.send("orders", b"value")
    elif client == "consumer":
        async with aiokq.Consumer(bootstrap_servers=address, **limits) as consumer:
            await consumer.beginning_offsets([("orders", 0)])
    else:
        async with aiokq.Admin(address, **limits) as admin:
            await admin.list_topics()


def told_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the limits in the environment, with a line to produce, and remove all other settings."""
    for name in [name for name in os.environ if name.startswith("KAFKA_")]:
        monkeypatch.delenv(name)
    for name, limit in LIMITS.items():
        monkeypatch.setenv(f"KAFKA_{name.upper()}", str(limit))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"value\n")))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_ends_with_one_line(
    peer: tuple[str, Peer],
    command: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The exit code is 1; the line says what to do, and nothing else is printed."""
    address, expected = peer
    told_by_environment(monkeypatch)
    began = time.monotonic()
    code = execute([*COMMANDS[command], "--bootstrap-servers", address])
    took = time.monotonic() - began
    out, err = capsys.readouterr()
    assert code == 1
    assert re.search(expected.told, err), err
    assert address in err
    assert err.startswith("aiokq: ")
    assert err.count("\n") == 1
    assert out == ""
    assert took < (SLACK if expected.at_once else LIMIT_MS / 1000 + SLACK)


def test_doctor_calls_it_a_failure_and_says_what_to_check(
    peer: tuple[str, Peer],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Error messages refer users to this command."""
    address, expected = peer
    told_by_environment(monkeypatch)
    code = execute(["doctor", "--bootstrap-servers", address])
    out, err = capsys.readouterr()
    assert (code, err) == (1, "")
    [line] = [line for line in out.splitlines() if line.startswith("fail")]
    assert address in line
    assert re.search(expected.told, line), line


def test_doctor_names_the_tls_handshake_if_the_listener_has_no_tls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: it named the TCP connection, which had succeeded. The broker sends no byte."""
    told_by_environment(monkeypatch)
    config = tmp_path / "client.properties"
    with EmbeddedCluster() as kafka:
        config.write_text(f"bootstrap.servers={kafka.bootstrap_servers}\nsecurity.protocol=SSL\n")
        assert execute(["doctor", "--config", str(config)]) == 1
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("fail")]
    assert "[failed step: TLS handshake]" in line
    assert "this listener may not use TLS" in line


@pytest.mark.parametrize(
    ("protocol", "step"), [("PLAINTEXT", "ApiVersions"), ("SSL", "TLS handshake")]
)
def test_doctor_names_the_step_in_which_a_silent_peer_is(
    protocol: str,
    step: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: it named the TCP connection, which had succeeded, and a firewall."""
    told_by_environment(monkeypatch)
    config = tmp_path / "client.properties"
    with wrong.silence() as address:
        config.write_text(
            f"bootstrap.servers={address}\nsecurity.protocol={protocol}\n"
            "socket.connection.setup.timeout.ms=500\n"
        )
        assert execute(["doctor", "--config", str(config)]) == 1
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("fail")]
    assert f"[failed step: {step}]" in line
    assert "firewall" not in line


# -- A broker of 2016


@pytest.fixture
def kafka_0_10() -> Iterator[str]:
    """A broker with only ApiVersions and Metadata of the APIs that a current client needs."""
    with wrong.scripted_kafka(wrong.ONLY_0_10) as address:
        yield address


@pytest.mark.parametrize(
    ("client", "api", "told"),
    [
        ("producer", "Produce", r"older than 0\.11.*upgrade the broker"),
        ("consumer", "ListOffsets", r"ListOffsets 0.*upgrade the broker"),
        ("admin", "CreateTopics", r"CreateTopics: it is older than the feature needs"),
    ],
)
async def test_a_broker_too_old_for_a_call_is_named_as_such_at_once(
    kafka_0_10: str, client: str, api: str, told: str
) -> None:
    """A client can be entered; an unsupported call fails at once instead of waiting."""
    began = time.monotonic()
    with pytest.raises(errors.UnsupportedVersion, match=told) as failure:
        await bounded(CLIENTS[client](kafka_0_10))
    assert time.monotonic() - began < SLACK
    assert failure.value.api == api
    assert not failure.value.retriable


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("produce", r"older than 0\.11.*upgrade the broker"),
        ("consume", r"ListOffsets 0.*upgrade the broker"),
        ("topics create", r"CreateTopics: it is older than the feature needs"),
        ("offsets", r"ListOffsets 0.*upgrade the broker"),
    ],
)
def test_a_command_that_a_broker_is_too_old_for_says_so(
    kafka_0_10: str,
    command: str,
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It prints one line and exits with code 1."""
    told_by_environment(monkeypatch)
    code = execute([*COMMANDS[command], "--bootstrap-servers", kafka_0_10])
    _, err = capsys.readouterr()
    assert code == 1
    assert err.count("\n") == 1
    assert re.search(told, err), err
