"""The module of the gateway's clients: what it loads, what it exports, and what it refuses."""

from __future__ import annotations

import copy
import math
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiokq.gateway import client
from aiokq.gateway.client import (
    AsyncGatewayClient,
    GatewayAway,
    GatewayClient,
    MessageTooLarge,
    PathTooLong,
)

CLIENTS = [GatewayClient, AsyncGatewayClient]


def modules_after(statement: str) -> set[str]:
    code = f"{statement}; import sys; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_client_loads_nothing_else_of_aiokq() -> None:
    """A program that runs for 50 ms must not load a Kafka client to write one message."""
    loaded = modules_after("from aiokq.gateway.client import GatewayClient")
    ours = {name for name in loaded if name.startswith("aiokq")}
    assert ours - {"aiokq", "aiokq._version", "aiokq.gateway"} == {
        name for name in ours if name.startswith("aiokq.gateway.client")
    }
    assert not loaded & {"asyncio", "pydantic", "dataclasses", "inspect", "typer", "uvloop"}
    more = modules_after("from aiokq.gateway.client import AsyncGatewayClient")
    assert {name for name in more if name.startswith("aiokq")} - ours == {
        "aiokq.gateway.client.asynchronous"
    }


def test_every_exported_name_is_there() -> None:
    """Also the one that is loaded on its first use."""
    assert client.__all__ == sorted(client.__all__, key=lambda name: (name.islower(), name))
    for name in client.__all__:
        assert getattr(client, name) is not None
    assert set(client.__all__) <= set(dir(client))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        client.Nothing  # noqa: B018


def test_the_header_is_beside_the_package() -> None:
    """What the guide tells C programmers to type."""
    assert Path(client.get_include(), "aiokq_gateway.h").is_file()


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("port", ["9691", 9691.0, True])
def test_a_port_is_an_int(kind: Callable[..., object], port: object) -> None:
    with pytest.raises(TypeError, match=f"the port is {port!r}, and must be an int"):
        kind(tcp=port)


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "exactly one of unix_datagram, unix_stream and tcp"),
        ({"unix_datagram": "/a", "tcp": 1}, "exactly one of"),
        ({"tcp": 0}, "port is 0"),
        ({"tcp": 65536}, "port is 65536"),
        ({"tcp": 1, "host": "example.org"}, "must be an IP address"),
        ({"unix_stream": ""}, "empty"),
        ({"unix_stream": "/a\0b"}, "NUL"),
        ({"tcp": 1, "send_buffer_bytes": 2**31}, "send_buffer_bytes is 2147483648"),
        ({"tcp": 1, "timeout": 0}, "timeout is 0"),
        ({"tcp": 1, "timeout": float("nan")}, "timeout is nan"),
        ({"tcp": 1, "when_unavailable": "ignore"}, "one of raise, drop, wait"),
        ({"tcp": 1, "send_buffer_bytes": 0}, "must be from 1 to"),
    ],
)
def test_wrong_arguments_are_refused_at_once(
    kind: Callable[..., object], arguments: dict[str, Any], text: str
) -> None:
    """Not by the first message, hours later."""
    with pytest.raises(ValueError, match=text):
        kind(**arguments)


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_path_is_as_long_as_an_address_holds(kind: Callable[..., object]) -> None:
    """Python says "AF_UNIX path too long", and only when it connects."""
    kind(unix_stream="/" + "x" * 106)
    kind(unix_datagram=Path("/run/gateway.sock"))
    with pytest.raises(PathTooLong, match="has 108 bytes; an address of a UNIX socket holds 107"):
        kind(unix_datagram="/" + "ä" * 53 + "x")


@pytest.mark.parametrize("timeout", [math.inf, 1e300])
def test_a_thread_may_wait_for_another_without_a_limit(tmp_path: Path, timeout: float) -> None:
    """Regression: OverflowError."""
    has_lock = threading.Event()

    def work() -> None:
        with given._lock:
            has_lock.set()
            time.sleep(0.05)

    with GatewayClient(unix_stream=tmp_path / "none", timeout=timeout) as given:
        other = threading.Thread(target=work)
        other.start()
        has_lock.wait()
        with pytest.raises(GatewayAway):
            given.send("t", b"v")
        other.join()


def test_errors_survive_pickling() -> None:
    """Errors of worker processes are pickled."""
    away = pickle.loads(pickle.dumps(GatewayAway("gone", 2)))
    assert (str(away), away.errno) == ("gone", 2)
    large = copy.copy(MessageTooLarge("large", size=3, limit=2))
    assert (str(large), large.size, large.limit) == ("large", 3, 2)


def test_a_client_that_never_sent_has_no_socket() -> None:
    """A program may make its client long before the gateway runs, and need not close it."""
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    one = GatewayClient(tcp=1)
    after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert before == after
    assert one.counts().connects == 0
    assert one.last_error is None
