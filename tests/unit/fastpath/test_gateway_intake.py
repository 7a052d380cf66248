"""Inputs of the gateway, on real sockets: both builds."""

from __future__ import annotations

import ast
import contextlib
import errno
import gc
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aiokq.fastpath import gateway
from aiokq.fastpath.gateway import pure_intake
from aiokq.fastpath.gateway.pure_intake import RESERVE
from aiokq.fastpath.gateway.values import NAME_BYTES
from aiokq.gateway.inputs import InputSocket
from aiokq.gateway.settings_tables import InputSettings
from tests import cores
from tests.forking import LIMIT, fork, in_child, needs_fork
from tests.gateway_messages import encode

OVERHEAD = gateway.Pool.MESSAGE_OVERHEAD
STREAMS = ["unix_stream", "tcp"]
TRANSPORTS = ["unix_datagram", *STREAMS]


def until(ready: Callable[[], object], what: str = "", seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.002)


def open_files() -> Counter[str]:
    """Return what the descriptors of this process refer to."""
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing
            found[os.readlink(f"/proc/self/fd/{name}")] += 1
    return found


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def sockets_of_this_process() -> set[int]:
    """Return the descriptors of this process that are sockets."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                found.add(int(name))
    return found


class Input:
    """An input with its socket, and a pool whose topic "t" is registered."""

    def __init__(
        self,
        core: SimpleNamespace,
        path: Path,
        transport: str,
        max_bytes: int,
        beside: Input | None = None,
        **options: Any,
    ) -> None:
        self.core = core
        self.pool = core.Pool(max_bytes) if beside is None else beside.pool
        self.slot = self.pool.register(b"t")
        self.transport = transport
        self.address: Any = str(path / f"{os.getpid()}-{id(self)}.sock")
        if transport == "tcp":
            self.socket = socket.create_server(("127.0.0.1", 0))
            self.address = self.socket.getsockname()
        else:
            kind = socket.SOCK_DGRAM if transport == "unix_datagram" else socket.SOCK_STREAM
            self.socket = socket.socket(socket.AF_UNIX, kind)
            self.socket.bind(self.address)
            if kind == socket.SOCK_STREAM:
                self.socket.listen(128)
        self.intake = core.Intake(self.pool, self.socket.fileno(), transport, **options)
        self.clients: list[socket.socket] = []

    def start(self) -> Input:
        self.intake.start()
        return self

    def connect(self) -> socket.socket:
        if self.transport == "tcp":
            client = socket.create_connection(self.address)
        else:
            kind = socket.SOCK_DGRAM if self.transport == "unix_datagram" else socket.SOCK_STREAM
            client = socket.socket(socket.AF_UNIX, kind)
            client.connect(self.address)
        client.settimeout(20)
        self.clients.append(client)
        return client

    def received(self, count: int) -> None:
        until(lambda: self.pool.counts().received >= count, f"{count} messages received")
        assert self.pool.counts().received == count

    def values(self) -> list[bytes]:
        found = []
        while (taken := self.pool.take(self.slot)) is not None:
            found += [taken.message(n).value for n in range(taken.count)]
            self.pool.release(taken.count, taken.charge)
        return found

    def discarded(self) -> dict[str, int]:
        counts = self.pool.counts()
        return {name: n for name, n in zip(gateway.REASONS, counts.discarded, strict=True) if n}

    def close(self) -> None:
        self.intake.stop()
        self.pool.close()
        self.socket.close()
        for client in self.clients:
            client.close()


FRESH_SECONDS = 0.3
"""Time that `stop(drain_ms=2000)` of a TCP input gives a new connection for its first message."""

PROGRAM = f"""
import socket, sys, time
message, port, sent, late = bytes.fromhex(sys.argv[1]), int(sys.argv[2]), 0, 0
try:
    while True:
        began = time.monotonic()
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(message)
        if time.monotonic() - began < {FRESH_SECONDS}:
            sent += 1
        else:
            late += 1
        client.close()
except OSError:
    print(sent, late)
"""
"""A program that sends each message over a connection of its own, and prints how many it sent: in
the time that an ending input gives it, and later because the machine was busy.
"""


class Writer:
    """A program that writes to an input all the time."""

    def __init__(self, given: Input) -> None:
        self._socket = given.connect()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        data = encode(value=b"x" * 100) * 100_000
        with contextlib.suppress(OSError):
            while True:
                self._socket.sendall(data)

    def end(self) -> None:
        self._socket.close()
        self._thread.join(20)
        assert not self._thread.is_alive()


@pytest.fixture
def inputs(core: SimpleNamespace, tmp_path: Path) -> Iterator[Any]:
    made: list[Input] = []

    def make(transport: str, max_bytes: int = 1 << 22, **options: Any) -> Input:
        made.append(Input(core, tmp_path, transport, max_bytes, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


# ---------------------------------------------------------------- all transports


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_messages_arrive_in_order(inputs: Any, transport: str) -> None:
    given = inputs(transport).start()
    client = given.connect()
    for n in range(500):
        client.send(encode(value=b"%d" % n))
    given.received(500)
    assert given.values() == [b"%d" % n for n in range(500)]
    counts = given.intake.counts()
    assert (counts.received, counts.malformed, counts.running, counts.error) == (500, 0, True, 0)
    assert counts.received_bytes == given.pool.counts().received_bytes


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_discards_are_counted_by_input(inputs: Any, transport: str) -> None:
    given = inputs(transport, 4096, max_message_bytes=2000).start()
    client = given.connect()
    bad = [encode(flags=1), encode(api_key=9), encode(version=1), encode(b"no name")]
    for data in (
        *bad,
        encode(value=b"v" * 1900),
        encode(value=b"v" * 1900),
        encode(value=b"v" * 1900),
    ):
        client.send(data)
    given.received(7)
    assert given.discarded() == {
        "malformed": 1,
        "unsupported_api_key": 1,
        "unsupported_version": 1,
        "bad_topic": 1,
        "no_memory": 1,
    }
    counts = given.intake.counts()
    assert (counts.malformed, counts.api_key, counts.api_version, counts.no_memory) == (1, 1, 1, 1)
    transports = {sample.transport for sample in given.pool.samples() if sample.reason == 0}
    assert transports == {gateway.TRANSPORTS.index(transport)}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_stopping_twice_and_never_starting(inputs: Any, transport: str) -> None:
    given = inputs(transport)
    given.intake.stop()
    given.start()
    assert given.intake.counts().running
    with pytest.raises(RuntimeError):
        given.intake.start()
    given.intake.stop()
    given.intake.stop(drain_ms=2000)
    assert not given.intake.counts().running


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_the_kernel_holds_is_read_before_the_end(inputs: Any, transport: str) -> None:
    given = inputs(transport)
    client = given.connect()
    for n in range(8):
        client.send(encode(value=b"%d" % n))
    given.start()
    given.intake.stop(drain_ms=2000)
    assert given.values() == [b"%d" % n for n in range(8)]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_blocking_input_loses_nothing(inputs: Any, transport: str) -> None:
    given = inputs(transport, 20 * (100 + OVERHEAD), when_full="block").start()
    client = given.connect()
    sent = [b"%d" % n + b"." * 96 for n in range(1000)]
    sender = threading.Thread(target=lambda: [client.sendall(encode(value=v)) for v in sent])
    sender.start()
    until(lambda: given.pool.counts().received == 20)
    time.sleep(0.05)
    assert given.pool.counts().received == 20
    found: list[bytes] = []
    until(lambda: found.extend(given.values()) or len(found) == 1000)
    sender.join()
    assert found == sent
    assert given.discarded() == {}
    assert given.intake.counts().blocked_ms >= 20


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_blocked_input_can_be_stopped(inputs: Any, transport: str) -> None:
    """What it has read is stored, although there is no room."""
    given = inputs(transport, 2 * (1 + OVERHEAD), when_full="block")
    client = given.connect()
    for n in range(6):
        client.send(encode(value=b"%d" % n))
    given.start()
    until(lambda: given.pool.counts().received == 2)
    time.sleep(0.02)
    given.intake.stop()
    assert given.values() == [b"%d" % n for n in range(6)]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_blocked_input_that_drains_keeps_the_limit(inputs: Any, transport: str) -> None:
    """Regression: it stored whatever came within a second, although there was no room."""
    given = inputs(transport, 1 << 20, when_full="block").start()
    client = given.connect()

    def send() -> None:
        with contextlib.suppress(OSError):
            for _ in range(1200):
                client.sendall(encode(value=b"x" * 50_000))

    sender = threading.Thread(target=send)
    sender.start()
    until(lambda: given.pool.counts().received == (1 << 20) // (50_000 + OVERHEAD))
    given.intake.stop(drain_ms=2000)
    given.socket.close()
    sender.join()
    # Beyond the limit it stores the read of a connection, or two bursts of datagrams.
    beyond = 2 * 64 * 50_100 if transport == "unix_datagram" else 1 << 18
    assert given.pool.counts().used_bytes <= (1 << 20) + beyond + 50_100


@pytest.mark.parametrize("transport", STREAMS)
def test_a_blocked_input_that_drains_waits_for_room(inputs: Any, transport: str) -> None:
    given = inputs(transport, 100_000, when_full="block")
    for n in range(4):
        given.connect().sendall(encode(value=bytes([n]) * 60_000))
    given.start()
    until(lambda: given.pool.counts().received == 1)
    stop = threading.Thread(target=given.intake.stop, kwargs={"drain_ms": 2000})
    stop.start()
    found: list[bytes] = []
    until(lambda: found.extend(given.values()) or not stop.is_alive())
    found += given.values()
    assert sorted(found) == [bytes([n]) * 60_000 for n in range(4)]


def test_an_input_that_waits_has_woken_the_loop(core: SimpleNamespace) -> None:
    """Regression: it waited for memory before it told the loop what to take."""
    read, write = os.pipe()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    pool = core.Pool(3 * (1 + OVERHEAD), wake_fd=write)
    slot = pool.register(b"t")
    intake = core.Intake(pool, ours.fileno(), "unix_datagram", when_full="block")
    for n in range(6):
        theirs.send(encode(value=b"%d" % n))
    intake.start()
    found = []
    while len(found) < 6:
        assert len(os.read(read, 64)) == 8
        pool.due()
        while (taken := pool.take(slot)) is not None:
            found += [taken.message(n).value for n in range(taken.count)]
            pool.release(taken.count, taken.charge)
    assert found == [b"%d" % n for n in range(6)]
    intake.stop()
    for fd in (read, write):
        os.close(fd)
    ours.close()
    theirs.close()


def test_an_input_that_waits_goes_on_when_its_topic_holds_less(core: SimpleNamespace) -> None:
    """It does not wait for the outcome of the messages that were taken."""
    pool = core.Pool(100_000, topic_share=1)
    slot = pool.register(b"t")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        theirs.settimeout(20)
        intake = core.Intake(pool, ours.fileno(), "unix_datagram", when_full="block")
        intake.start()
        message = encode(value=bytes(1000))
        sending = threading.Thread(target=lambda: [theirs.send(message) for _ in range(100)])
        sending.start()
        most = 50_000 // (1000 + OVERHEAD)
        until(lambda: pool.counts().received == most)
        assert (intake.counts().received, pool.counts().held) == (most, most)
        taken = []
        while (one := pool.take(slot)) is not None:
            taken.append(one)
        until(lambda: pool.counts().received > most + 20)
        while pool.counts().received < 100:
            while (one := pool.take(slot)) is not None:
                taken.append(one)
            while taken:
                one = taken.pop()
                pool.release(one.count, one.charge)
        sending.join(20)
        intake.stop()
    assert sum(pool.counts().discarded) == 0
    pool.close()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_message_larger_than_the_pool_blocks_nothing(inputs: Any, transport: str) -> None:
    given = inputs(transport, 1000, when_full="block").start()
    client = given.connect()
    client.sendall(encode(value=b"x" * 2000))
    client.sendall(encode(value=b"next"))
    given.received(2)
    assert given.values() == [b"next"]
    assert given.discarded() == {"no_memory": 1}


def test_several_inputs_fill_one_pool(core: SimpleNamespace, tmp_path: Path) -> None:
    """Nothing is lost or doubled while senders, inputs and the taker run at full speed."""
    made = [Input(core, tmp_path, transport, 1 << 26) for transport in TRANSPORTS]
    pool = made[0].pool
    for other in made[1:]:
        other.intake = core.Intake(pool, other.socket.fileno(), other.transport)
    try:
        for one in made:
            one.start()
        senders = []
        count, each = 6, 3000
        for n in range(count):
            client = made[n % 3].connect()

            def send(client: socket.socket = client, n: int = n) -> None:
                for at in range(each):
                    client.sendall(encode(value=b"%d %d" % (n, at), key=b"k" * (at % 3)))

            senders.append(threading.Thread(target=send))
        for sender in senders:
            sender.start()
        found: list[bytes] = []
        until(lambda: found.extend(made[0].values()) or len(found) >= count * each)
        for sender in senders:
            sender.join()
        assert len(found) == count * each
        for n in range(count):
            own = [int(value.split()[1]) for value in found if value.startswith(b"%d " % n)]
            assert own == list(range(each))
        counts = pool.counts()
        assert (counts.held, counts.used_bytes, sum(counts.discarded)) == (0, 0, 0)
    finally:
        for one in made:
            one.close()


def test_wrong_arguments(core: SimpleNamespace) -> None:
    pool = core.Pool(1000)
    with pytest.raises(ValueError, match="transport 'udp'"):
        core.Intake(pool, 0, "udp")
    with pytest.raises(ValueError, match="when_full"):
        core.Intake(pool, 0, "tcp", when_full="drop")
    with pytest.raises(ValueError, match="does not know the user"):
        core.Intake(pool, 0, "tcp", allowed_uids=[0])
    for options in (
        {"max_message_bytes": 0},
        {"max_connections": 0},
        {"idle_ms": -1},
        {"idle_when_full_ms": -1},
    ):
        with pytest.raises(ValueError):
            core.Intake(pool, 0, "tcp", **options)


@pytest.mark.parametrize(
    ("transport", "options"),
    [
        *((transport, {}) for transport in TRANSPORTS),
        *((transport, {"allowed_uids": [0]}) for transport in TRANSPORTS if transport != "tcp"),
    ],
)
def test_a_socket_that_is_none_ends_the_thread_with_its_error(
    core: SimpleNamespace, transport: str, options: dict[str, Any]
) -> None:
    open_before = open_files()
    read, write = os.pipe()
    pool = core.Pool(1000, wake_fd=write)
    intake = core.Intake(pool, read, transport, **options)
    intake.start()
    until(lambda: not intake.counts().running)
    assert intake.counts().error == errno.ENOTSOCK
    assert os.read(read, 8)
    intake.stop()
    os.close(read)
    os.close(write)
    assert open_files() <= open_before


def test_an_input_in_garbage_is_stopped_before_its_pool_is_freed(core: SimpleNamespace) -> None:
    """The collector clears the objects of a cycle in any order."""
    for _ in range(20):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        pool = core.Pool(1 << 20)
        cycle: list[Any] = [core.Intake(pool, ours.fileno(), "unix_datagram")]
        cycle[0].start()
        cycle += [pool, cycle]
        theirs.send(encode())
        if not core.COMPILED:
            cycle[0].stop()  # Python's thread itself holds its input
        del cycle, pool
        gc.collect()
        ours.close()
        theirs.close()


def test_an_input_at_the_end_of_the_interpreter(core: SimpleNamespace) -> None:
    """Regression: each pool and input wrote an error to stderr, because the module os was gone."""
    code = """
import socket
from aiokq.fastpath.gateway import Intake, Pool
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
pool = Pool(1000)
intake = Intake(pool, ours.fileno(), "unix_datagram")
intake.start()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "AIOKQ_PURE": "0" if core.COMPILED else "1"},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


@needs_fork
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_forked_child_leaves_the_input_alone(inputs: Any, transport: str) -> None:
    given = inputs(transport).start()
    client = given.connect()
    client.send(encode(value=b"1"))
    given.received(1)

    def child() -> str:
        given.intake.stop(drain_ms=2000)
        given.pool.close()
        del given.intake, given.pool
        return "done"

    intake, pool = given.intake, given.pool
    assert in_child(child) == "done"
    assert intake.counts().running
    client.send(encode(value=b"2"))
    until(lambda: pool.counts().received == 2)


@needs_fork
@pytest.mark.parametrize("transport", STREAMS)
def test_clients_notice_the_end_of_a_process_whose_child_lives(inputs: Any, transport: str) -> None:
    """Regression: the child held the connections, and programs wrote what nobody read."""
    given = inputs(transport)
    said, say = os.pipe()
    lives, end = os.pipe()
    parent = fork()
    if parent == 0:
        signal.alarm(LIMIT)
        try:
            os.close(end)
            made = Input(
                SimpleNamespace(Pool=type(given.pool), Intake=type(given.intake)),
                Path("/tmp"),
                transport,
                1 << 20,
            )
            made.start()
            os.write(say, repr(made.address).encode() + b"\n")
            made.received(2)
            if fork() == 0:
                signal.alarm(LIMIT)
                os.write(say, b"forked\n")
                os.read(lives, 1)
                os.write(say, b"alive\n")
                os._exit(0)
            signal.pause()
        finally:
            os._exit(1)
    os.close(say)
    os.close(lives)
    with open(said, "rb") as lines:
        given.address = ast.literal_eval(lines.readline().decode())
        clients = [given.connect() for _ in range(2)]
        for client in clients:
            client.sendall(encode())
        assert lines.readline() == b"forked\n"
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        for client in clients:
            assert client.recv(1) == b""
        if transport != "tcp":
            os.unlink(given.address)
            with pytest.raises(BrokenPipeError):
                client.sendall(encode())
        os.close(end)
        assert lines.readline() == b"alive\n"


@needs_fork
@pytest.mark.parametrize("transport", STREAMS)
def test_a_fork_while_connections_are_accepted_and_closed(inputs: Any, transport: str) -> None:
    """The child has no connection, also if the fork is at the moment of an accept or a close."""
    given = inputs(transport)
    before = sockets_of_this_process()
    given.start()
    kind, address = ("AF_INET" if transport == "tcp" else "AF_UNIX"), given.address
    program = (
        "import socket\n"
        "while True:\n"
        f"    with socket.socket(socket.{kind}) as client:\n"
        f"        client.connect({address!r})\n"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as client:
        try:
            for n in range(50):
                until(lambda n=n: given.intake.counts().accepted > 10 * n)
                assert in_child(lambda: sockets_of_this_process() - before) == "set()"
        finally:
            client.kill()


@pytest.mark.parametrize("transport", STREAMS)
def test_a_connection_that_another_descriptor_still_holds(inputs: Any, transport: str) -> None:
    """Such as that of a child between vfork() and exec().

    Regression: the poller named the closed connection again, whose memory was freed.
    """
    given = inputs(transport).start()
    clients = [given.connect() for _ in range(20)]
    for client in clients:
        client.sendall(encode(value=b"before"))
    given.received(20)
    copies = [os.dup(fd) for fd in sockets_of_this_process()]
    for client in clients:
        client.shutdown(socket.SHUT_WR)
    until(lambda: given.intake.counts().connections == 0)
    spent = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - spent < 0.1
    for n in range(50):
        given.connect().sendall(encode(value=b"%d" % n))
    given.received(70)
    assert given.discarded() == {}
    for fd in copies:
        os.close(fd)


@pytest.mark.parametrize("transport", ["unix_datagram", "unix_stream"])
def test_stopping_in_two_threads_at_once(inputs: Any, transport: str) -> None:
    """Regression: both joined the thread, and one of them never returned."""

    def stop(given: Input, barrier: threading.Barrier) -> None:
        barrier.wait()
        given.intake.stop(drain_ms=2000)
        running.append(given.intake.counts().running)

    running: list[bool] = []
    for n in range(20):
        arguments = (inputs(transport).start(), threading.Barrier(2))
        for _ in range(2):
            threading.Thread(target=stop, args=arguments, daemon=True).start()
        until(lambda n=n: len(running) == 2 * (n + 1), "both calls returned")
    assert running == [False] * 40


def test_an_input_that_was_not_initialized(core: SimpleNamespace) -> None:
    """Regression: the process ended with SIGSEGV."""
    intake = core.Intake.__new__(core.Intake)
    with pytest.raises((RuntimeError, AttributeError)):
        intake.counts()
    with pytest.raises((RuntimeError, AttributeError)):
        intake.start()


# ---------------------------------------------------------------- datagrams


def test_datagrams_that_are_no_messages(inputs: Any) -> None:
    """Points 6 and 7: zero bytes, 2 bytes, and sizes that differ from the datagram."""
    given = inputs("unix_datagram").start()
    client = given.connect()
    for data in (b"", b"ab", encode(size=3), encode(size=-1), encode() + encode(), encode()[:-1]):
        client.send(data)
    client.send(encode(value=b"next"))
    given.received(7)
    assert given.discarded() == {"malformed": 6}
    assert given.values() == [b"next"]


def test_a_truncated_datagram_is_malformed(inputs: Any) -> None:
    """Point 10: 65,536 bytes pass, 70,000 do not, with a valid prefix neither."""
    given = inputs("unix_datagram").start()
    client = given.connect()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
    client.send(encode(value=b"x" * (65536 - len(encode()))))
    client.send(encode(value=b"x" * 70_000))
    whole = encode(value=b"x" * (65536 - len(encode())))
    client.send(whole + b"y")
    client.send(encode(value=b"next"))
    given.received(4)
    assert given.discarded() == {"malformed": 2}
    assert [len(value) for value in given.values()] == [65536 - len(encode()), 4]


@pytest.mark.parametrize("limit", [40, 1000, 200_000])
def test_other_limits_of_datagrams(inputs: Any, limit: int) -> None:
    given = inputs("unix_datagram", max_message_bytes=limit).start()
    client = given.connect()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 19)
    size = min(limit, 150_000) - len(encode())
    for n in range(5):
        client.send(encode(value=bytes([n]) * size))
    if limit < 150_000:
        client.send(encode(value=b"x" * (size + 1)))
        given.received(6)
        assert given.discarded() == {"malformed": 1}
    given.received(6 if limit < 150_000 else 5)
    assert given.values() == [bytes([n]) * size for n in range(5)]


@pytest.mark.parametrize(
    ("uids", "allowed"), [([], False), ([os.getuid() + 1], False), ([os.getuid()], True)]
)
def test_users_of_datagrams(inputs: Any, uids: list[int], allowed: bool) -> None:
    given = inputs("unix_datagram", allowed_uids=uids).start()
    client = given.connect()
    for n in range(100):
        client.send(encode(value=b"%d" % n))
    given.received(100)
    assert len(given.values()) == (100 if allowed else 0)
    assert given.discarded() == ({} if allowed else {"not_allowed": 100})
    assert given.intake.counts().not_allowed == (0 if allowed else 100)


# ---------------------------------------------------------------- streams


@pytest.mark.parametrize("transport", STREAMS)
def test_a_message_byte_by_byte_and_a_thousand_at_once(inputs: Any, transport: str) -> None:
    """Point 12."""
    given = inputs(transport).start()
    client = given.connect()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    for byte in encode(value=b"slow", key=b"key"):
        client.send(bytes([byte]))
        time.sleep(0.0005)
    client.sendall(b"".join(encode(value=b"%d" % n) for n in range(1000)))
    given.received(1001)
    assert given.values() == [b"slow", *(b"%d" % n for n in range(1000))]
    assert given.pool.counts().partial_bytes == 0


@pytest.mark.parametrize("transport", STREAMS)
def test_a_large_message_arrives_in_parts(inputs: Any, transport: str) -> None:
    given = inputs(transport, 1 << 25, max_message_bytes=1 << 24).start()
    client = given.connect()
    value = os.urandom(5_000_000)
    data = encode(value=value)
    client.sendall(data[:3_000_000])
    until(lambda: given.pool.counts().partial_bytes >= 2_900_000)
    assert given.pool.counts().used_bytes <= 2 * 3_000_000 + 64
    client.sendall(data[3_000_000:] + encode(value=b"next"))
    given.received(2)
    assert given.values() == [value, b"next"]
    counts = given.pool.counts()
    assert (counts.partial_bytes, counts.used_bytes) == (0, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc has the numbers")
@pytest.mark.parametrize("transport", STREAMS)
def test_a_busy_stream_does_not_wake_the_thread_for_each_message(
    inputs: Any, transport: str
) -> None:
    """A program that writes each message by itself costs a few wake-ups in a millisecond."""
    given = inputs(transport, 1 << 25).start()
    if not given.core.COMPILED:
        pytest.skip("the pure core reads at once")
    client = given.connect()
    message = encode(value=b"x" * 100)
    for _ in range(20_000):
        client.send(message)
    given.received(20_000)
    assert switches() < 20_000 / 5


def switches() -> int:
    """How often the thread of an input has waited."""
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().strip() == "aiokq-gateway":
            for line in (task / "status").read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches:"):
                    return int(line.split()[1])
    raise AssertionError("no thread of an input runs")


@pytest.mark.parametrize("transport", STREAMS)
@pytest.mark.parametrize("size", [3, 0, -1, -(1 << 31), 1005, (1 << 31) - 1])
def test_a_size_that_cannot_be_closes_the_connection(
    inputs: Any, transport: str, size: int
) -> None:
    """Point 13, which ended Dory: messages before it in the same write are delivered."""
    given = inputs(transport, max_message_bytes=1000).start()
    client = given.connect()
    client.sendall(encode(value=b"first") + struct.pack(">i", size) + b"rest")
    assert client.recv(1) == b""
    given.received(2)
    assert given.discarded() == {"malformed": 1}
    other = given.connect()
    other.sendall(encode(value=b"second"))
    given.received(3)
    assert given.values() == [b"first", b"second"]
    assert given.intake.counts().connections == 1


@pytest.mark.parametrize("transport", STREAMS)
def test_a_malformed_message_leaves_the_connection_open(inputs: Any, transport: str) -> None:
    """Point 14."""
    given = inputs(transport).start()
    client = given.connect()
    client.sendall(encode(flags=9) + struct.pack(">i", 4) + encode(value=b"next"))
    given.received(3)
    assert given.discarded() == {"malformed": 2}
    assert given.values() == [b"next"]


@pytest.mark.parametrize("transport", STREAMS)
@pytest.mark.parametrize("size", [1, 3, 4, 20, 30])
def test_a_half_message_before_the_end(inputs: Any, transport: str, size: int) -> None:
    """Point 15."""
    given = inputs(transport).start()
    client = given.connect()
    client.sendall(encode(value=b"whole") + encode(value=b"half")[:size])
    client.close()
    given.received(2)
    assert given.discarded() == {"unclean_disconnect": 1}
    (sample,) = given.pool.samples()
    assert sample.reason == gateway.UNCLEAN_DISCONNECT
    assert sample.transport == gateway.TRANSPORTS.index(transport)
    assert sample.data == encode(value=b"half")[:size]
    until(lambda: given.intake.counts().connections == 0)
    counts = given.pool.counts()
    assert counts.partial_bytes == 0
    assert given.values() == [b"whole"]


@pytest.mark.parametrize("transport", STREAMS)
def test_a_connection_closed_at_every_byte(inputs: Any, transport: str) -> None:
    given = inputs(transport).start()
    data = encode(value=b"value", key=b"key", partition_key=1)
    for size in range(len(data) + 1):
        client = given.connect()
        client.sendall(data[:size])
        if size % 2:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    given.received(len(data))
    assert given.discarded() == {"unclean_disconnect": len(data) - 1}
    assert given.values() == [b"value"]
    until(lambda: given.intake.counts().connections == 0)


@pytest.mark.parametrize("transport", STREAMS)
def test_a_large_message_without_room_is_skipped(inputs: Any, transport: str) -> None:
    given = inputs(transport, 100_000, max_message_bytes=1 << 24).start()
    client = given.connect()
    for n in range(3):
        client.sendall(encode(value=b"x" * 1_000_000) + encode(value=b"%d" % n))
    given.received(6)
    assert given.discarded() == {"no_memory": 3}
    assert given.values() == [b"0", b"1", b"2"]
    counts = given.pool.counts()
    assert (counts.used_bytes, counts.partial_bytes) == (0, 0)


@pytest.mark.parametrize("transport", STREAMS)
def test_half_messages_leave_half_of_the_pool_to_others(inputs: Any, transport: str) -> None:
    """Regression: a program that sent halves of messages and waited cost all others their messages.

    A single large message may still use the whole pool.
    """
    given = inputs(transport, 1_000_000, max_message_bytes=1 << 20).start()
    lone = given.connect()
    lone.sendall(encode(value=b"l" * 900_000)[:-1])
    until(lambda: given.pool.counts().partial_bytes > 800_000)
    lone.sendall(b"l")
    found: list[bytes] = []
    until(lambda: found.extend(given.values()) or found, "the large message")
    assert [value[:1] for value in found] == [b"l"]
    hostile = [given.connect() for _ in range(30)]
    half = encode(value=bytes(200_000))[:100_000]
    for client in hostile:
        client.sendall(half)
    good = given.connect()
    sent = [b"%03d" % n * 300 for n in range(300)]
    good.sendall(b"".join(encode(value=value) for value in sent))
    found.clear()
    until(lambda: found.extend(given.values()) or len(found) == 300, "the good messages")
    assert found == sent
    counts = given.pool.counts()
    assert 0 < counts.partial_bytes <= 500_000
    for client in hostile:
        client.close()
    until(lambda: given.pool.counts().partial_bytes == 0)
    assert set(given.discarded()) == {"no_memory", "unclean_disconnect"}


def test_half_messages_cannot_block_a_blocking_input_for_good(inputs: Any) -> None:
    """They fill the pool, and none of them could be completed."""
    given = inputs("unix_stream", 100_000, when_full="block", max_message_bytes=1 << 20).start()
    clients = [given.connect() for _ in range(6)]
    messages = [encode(value=bytes([n]) * 60_000) for n in range(6)]
    for client, message in zip(clients, messages, strict=True):
        client.sendall(message[:40_000])
    time.sleep(0.05)
    rest = [
        threading.Thread(target=client.sendall, args=(message[40_000:],))
        for client, message in zip(clients, messages, strict=True)
    ]
    for thread in rest:
        thread.start()
    found: list[bytes] = []
    until(lambda: found.extend(given.values()) or len(found) == 6, "all messages")
    for thread in rest:
        thread.join()
    assert sorted(found) == [bytes([n]) * 60_000 for n in range(6)]
    assert given.pool.counts().used_bytes == 0


@pytest.mark.parametrize("transport", STREAMS)
def test_half_messages_of_blocking_inputs_leave_half_of_the_pool_to_others(
    inputs: Any, transport: str
) -> None:
    """Regression: they took all of it, and each waited for memory that the others held.

    Nobody completes them: their connections are closed after `partial_ms`, and what was sent
    completely on other connections meanwhile is not lost.

    The half messages are larger than the pool. Those that may be in it at once, and all complete
    messages, are not: so nothing depends on when they are taken, or on the speed of a thread.
    """
    options = {"when_full": "block", "max_message_bytes": 1 << 21}
    given = inputs(transport, 2_000_000, **options, partial_ms=400).start()
    second = inputs("unix_stream", 0, beside=given, **options, partial_ms=400).start()
    beside = inputs("unix_stream", 0, beside=given).start()
    half = encode(value=bytes(150_000))[:75_000]
    hostile = [one.connect() for one in (given, second) for _ in range(20)]
    for client in hostile:
        client.setblocking(False)
        assert client.send(half) == len(half)
    whole = [encode(value=b"w%d" % n + bytes(50_000)) for n in range(3)]
    given.connect().sendall(b"".join(whole))
    good = beside.connect()
    sent = [b"%03d" % n * 200 for n in range(200)]
    most = 0
    for value in sent:
        good.sendall(encode(value=value))
        most = max(most, given.pool.counts().partial_bytes)
    found: list[bytes] = []
    # Half messages beyond half of the pool have their turns of 400 ms one after the other.
    until(lambda: found.extend(given.values()) or len(found) == 203, "all whole messages", 80)
    assert [value for value in found if len(value) == 600] == sent
    assert [value[:2] for value in found if len(value) > 600] == [b"w0", b"w1", b"w2"]
    assert most <= 1_700_000  # beside the beginnings of others, one may grow
    until(lambda: given.pool.counts().partial_bytes == 0, "the end of the half messages", 80)
    for client in hostile:
        client.setblocking(True)
        assert client.recv(1) == b""
    closed = given.intake.counts().partial_closed + second.intake.counts().partial_closed
    assert closed == 40
    assert given.discarded() == {"unclean_disconnect": 40}
    given.intake.change(**options)  # a slow machine may take longer than 400 ms
    given.connect().sendall(encode(value=b"l" * 1_900_000))
    found.clear()
    until(lambda: found.extend(given.values()) or found, "a message as large as the pool")


@pytest.mark.parametrize("when_full", ["discard", "block"])
@pytest.mark.parametrize("transport", STREAMS)
def test_a_message_that_no_pool_could_hold_takes_no_memory(
    inputs: Any, transport: str, when_full: str
) -> None:
    """Regression: a blocking input collected all of it before it discarded the message."""
    options = {"when_full": when_full, "max_message_bytes": 1 << 30}
    given = inputs(transport, 1 << 20, **options).start()
    client = given.connect()
    size = 20 << 20
    client.sendall(encode(value=b"before") + struct.pack(">i", size))
    most = 0
    for _ in range((size - 4) // 131_068):
        client.sendall(bytes(131_068))
        most = max(most, given.pool.counts().partial_bytes)
    client.sendall(bytes((size - 4) % 131_068) + encode(value=b"after"))
    given.received(3)
    assert most <= 1 << 20
    assert given.discarded() == {"no_memory": 1}
    assert given.values() == [b"before", b"after"]
    largest = (1 << 20) - OVERHEAD - 1
    client.sendall(encode(value=b"l" * largest))
    given.received(4)
    assert given.discarded() == {"no_memory": 1}
    assert len(given.values()[0]) == largest


@pytest.mark.parametrize("transport", STREAMS)
def test_the_number_of_connections_is_limited(inputs: Any, transport: str) -> None:
    """Further ones wait with what they have sent, even if they are closed; the thread sleeps."""
    given = inputs(transport, max_connections=3).start()
    clients = [given.connect() for _ in range(3)]
    until(lambda: given.intake.counts().accepted == 3)
    descriptors = len(os.listdir("/proc/self/fd"))
    for n in range(20):
        waiting = given.connect()
        waiting.sendall(encode(value=b"%d" % n))
        waiting.close()
    clients[0].sendall(encode(value=b"first"))
    given.received(1)
    spent = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - spent < 0.1
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert given.intake.counts()[8:11] == (3, 3, 0)
    clients[0].close()
    given.received(21)
    assert given.values() == [b"first", *(b"%d" % n for n in range(20))]
    until(lambda: given.intake.counts().connections == 2)
    assert given.intake.counts().refused == 0
    given.connect().sendall(encode(value=b"again"))
    given.received(22)


@pytest.mark.parametrize("transport", STREAMS)
def test_connections_that_wait_are_read_before_the_end(inputs: Any, transport: str) -> None:
    given = inputs(transport, max_connections=1).start()
    given.connect()
    until(lambda: given.intake.counts().accepted == 1)
    for n in range(100):
        given.connect().sendall(encode(value=b"%d" % n))
    given.intake.stop(drain_ms=2000)
    given.received(100)


@pytest.mark.parametrize("transport", STREAMS)
def test_an_idle_connection_makes_room(inputs: Any, transport: str) -> None:
    """It is the one without data for the longest time, and not inside of a message."""
    given = inputs(transport, max_connections=4, idle_when_full_ms=300).start()
    half, busy, idle, later = (given.connect() for _ in range(4))
    half.sendall(encode(value=b"half")[:10])
    later.sendall(encode(value=b"later"))
    until(lambda: given.intake.counts()[8:10] == (4, 4))
    waiting = given.connect()
    waiting.sendall(encode(value=b"waiting"))
    end = time.monotonic() + 20
    while given.intake.counts().displaced == 0:
        assert time.monotonic() < end
        busy.sendall(encode(value=b"busy"))
        time.sleep(0.01)
    assert idle.recv(1) == b""
    half.sendall(encode(value=b"half")[10:])
    until(lambda: given.intake.counts().accepted == 5)
    found: list[bytes] = []
    until(lambda: found.extend(given.values()) or b"half" in found)
    assert set(found) == {b"half", b"busy", b"later", b"waiting"}
    counts = given.intake.counts()
    assert (counts.displaced, counts.connections, counts.idle_closed) == (1, 4, 0)
    assert given.discarded() == {}
    # Many that wait get their places one after the other, as others become idle.
    for n in range(12):
        given.connect().sendall(encode(value=b"%d" % n))
    found.clear()
    until(lambda: found.extend(given.values()) or len(found) == 12)
    assert sorted(map(int, found)) == list(range(12))
    assert given.intake.counts().displaced >= 9


def test_a_displaced_connection_loses_nothing(inputs: Any) -> None:
    """A write that succeeded arrives, even if the connection is given up at the same moment."""
    given = inputs("unix_stream", max_connections=2, idle_when_full_ms=1).start()
    sent = [0] * 4

    def send(number: int) -> None:
        source = random.Random(number)
        client = given.connect()
        for n in range(150):
            time.sleep(source.choice((0, 0.002, 0.01)))
            while True:
                try:
                    client.sendall(encode(value=b"%d %d" % (number, n)))
                    break
                except BrokenPipeError:
                    client = given.connect()
            sent[number] += 1

    threads = [threading.Thread(target=send, args=(number,)) for number in range(len(sent))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sent == [150] * 4
    given.received(600)
    arrived = [tuple(map(int, value.split())) for value in given.values()]
    for number in range(len(sent)):
        assert [n for sender, n in arrived if sender == number] == list(range(150))
    assert given.intake.counts().displaced > 2
    assert given.discarded() == {}


def limit_with(count: int) -> int:
    """Return an RLIMIT_NOFILE that leaves descriptors for `count` more connections."""
    needed = max(int(name) for name in os.listdir("/proc/self/fd")) + 2 + count
    limit = needed
    while limit - min(RESERVE, limit // 8) < needed:
        limit += 1
    return limit


@needs_fork
def test_an_idle_connection_gives_its_descriptor(inputs: Any) -> None:
    """If the system has none for a connection that waits."""
    given = inputs("unix_stream")

    def child() -> str:
        made = Input(
            SimpleNamespace(Pool=type(given.pool), Intake=type(given.intake)),
            Path("/tmp"),
            "unix_stream",
            1 << 20,
            idle_when_full_ms=50,
        )
        made.start()
        idle = made.connect()
        until(lambda: made.intake.counts().accepted == 1)
        waiting = socket.socket(socket.AF_UNIX)
        limit = limit_with(1)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        fill = []
        try:
            while True:
                fill.append(os.dup(0))
        except OSError:
            pass
        waiting.connect(made.address)
        waiting.sendall(encode())
        made.received(1)
        ended = idle.recv(1)
        for fd in fill:
            os.close(fd)
        made.close()
        os.unlink(made.address)
        return f"{made.intake.counts().displaced} {ended!r}"

    assert in_child(child) == "1 b''"


# ---------------------------------------------------------------- changes


@pytest.mark.parametrize("transport", STREAMS)
def test_other_options_leave_connections_and_half_messages_alone(
    inputs: Any, transport: str
) -> None:
    given = inputs(transport, max_message_bytes=1000).start()
    first, second = given.connect(), given.connect()
    whole = encode(value=b"half")
    first.sendall(whole[:-2])
    second.sendall(encode(value=b"whole"))
    given.received(1)
    for idle_ms in range(1000, 1010):
        given.intake.change(max_message_bytes=1000, idle_ms=idle_ms, max_connections=2)
    assert given.intake.counts().running
    first.sendall(whole[-2:])
    given.received(2)
    waiting = given.connect()
    waiting.sendall(encode(value=b"third"))
    time.sleep(0.05)
    given.received(2)  # there is no place for it
    given.intake.change(max_message_bytes=100)
    given.received(3)
    second.sendall(encode(value=b"x" * 200))
    until(lambda: given.discarded() == {"malformed": 1}, "a message above the new limit")
    assert given.values() == [b"whole", b"half", b"third"]
    assert given.intake.counts().accepted == 3
    given.intake.change(idle_ms=20)
    until(lambda: given.intake.counts().idle_closed == 2)
    assert "unclean_disconnect" not in given.discarded()


def test_other_options_of_datagrams(inputs: Any) -> None:
    given = inputs("unix_datagram", max_message_bytes=100).start()
    client = given.connect()
    client.send(encode(value=b"x" * 200))
    until(lambda: given.discarded() == {"malformed": 1})
    given.intake.change(max_message_bytes=1000)
    client.send(encode(value=b"x" * 200))
    given.received(2)
    assert given.values() == [b"x" * 200]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_input_that_waits_for_room_takes_other_options(inputs: Any, transport: str) -> None:
    """It stores what it has read, and goes on."""
    given = inputs(transport, 1 << 12, when_full="block").start()
    client = given.connect()
    client.settimeout(0.3)
    with contextlib.suppress(TimeoutError):
        for _ in range(5000):
            client.send(encode(value=b"x" * 500))
    assert not given.discarded()
    given.intake.change(when_full="discard")
    until(lambda: given.discarded().get("no_memory"), "a discarded message")


def test_an_input_that_does_not_run_takes_no_options(inputs: Any) -> None:
    given = inputs("unix_stream")
    with pytest.raises(RuntimeError, match="does not run"):
        given.intake.change(idle_ms=1)
    given.start()
    with pytest.raises(ValueError, match="when_full"):
        given.intake.change(when_full="never")
    given.intake.change(idle_ms=1)
    given.intake.stop()
    with pytest.raises(RuntimeError, match="does not run"):
        given.intake.change(idle_ms=1)


@pytest.mark.parametrize("transport", STREAMS)
def test_a_change_of_an_input_whose_socket_was_closed_stops_it(inputs: Any, transport: str) -> None:
    """Regression: the compiled form raised nothing, and left the connections open and unread."""
    given = inputs(transport).start()
    client = given.connect()
    until(lambda: given.intake.counts().connections == 1)
    given.socket.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        given.intake.change(idle_ms=1)
    counts = given.intake.counts()
    assert (counts.running, counts.connections, counts.error) == (False, 0, errno.EBADF)
    assert client.recv(1) == b""
    with pytest.raises(RuntimeError, match="does not run"):
        given.intake.change(idle_ms=1)
    given.intake.stop()


@pytest.mark.parametrize("transport", STREAMS)
def test_changing_and_stopping_in_two_threads_at_once(inputs: Any, transport: str) -> None:
    for _ in range(20):
        given = inputs(transport).start()
        given.connect()

        def change(given: Any = given) -> None:
            with contextlib.suppress(RuntimeError):
                for _ in range(10):
                    given.intake.change(idle_ms=1000)

        changing = threading.Thread(target=change)
        changing.start()
        given.intake.stop(drain_ms=2000)
        changing.join(20)
        assert not changing.is_alive()
        assert not given.intake.counts().running
        assert given.intake.counts().connections == 0


def test_the_end_of_an_input_loses_nothing_that_a_program_could_write(inputs: Any) -> None:
    """Its last write fails, and all before it are received."""
    for run in range(5):
        given = inputs("unix_stream", 1 << 26).start()
        clients = [given.connect() for _ in range(4)]
        sent = [0] * len(clients)

        def write(n: int, clients: Any = clients, sent: Any = sent) -> None:
            data = encode(value=b"x" * 100)
            with contextlib.suppress(OSError):
                while True:
                    clients[n].sendall(data)
                    sent[n] += 1
                    time.sleep(0)

        writers = [threading.Thread(target=write, args=(n,)) for n in range(len(clients))]
        for writer in writers:
            writer.start()
        time.sleep(0.02 + 0.005 * run)
        given.intake.stop(drain_ms=2000)
        for writer in writers:
            writer.join(20)
            assert not writer.is_alive()
        assert given.intake.counts().received == sum(sent)
        assert not given.discarded()


def test_an_incomplete_message_of_another_input_has_a_limit_in_time(
    inputs: Any, core: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: without `partial_ms`, it had one only if its own input waited for it."""
    if core.Intake is not pure_intake.Intake:
        pytest.skip("30 seconds; test_gateway_fuzz.py has this test for the compiled form")
    monkeypatch.setattr(pure_intake, "CROWDED_SECONDS", 0.4)
    options = {"when_full": "block", "max_message_bytes": 1_000_000}
    given = inputs("unix_stream", 1_000_000, **options).start()
    for size in (560_000, 300_000):
        given.connect().sendall(encode(value=bytes(900_000))[:size])
        time.sleep(0.2)  # the second one is read beyond half of the pool
    other = Input(core, tmp_path, "unix_stream", 0, given, **options).start()
    other.connect().sendall(encode(value=b"x") * 3)
    until(lambda: other.intake.counts().received == 3)
    assert given.intake.counts().partial_closed > 0
    other.intake.stop()
    other.socket.close()
    for client in other.clients:
        client.close()


def test_programs_that_connect_while_an_input_ends_are_counted(inputs: Any) -> None:
    """Regression: while one program wrote all the time, what others wrote for a second was lost.

    The socket is as one of systemd: it takes connections to the end.
    """
    given = inputs("tcp").start()
    writers = [Writer(given) for _ in range(3)]
    until(lambda: given.intake.counts().connections == 3)
    ending = threading.Thread(target=given.intake.stop, kwargs={"drain_ms": 2000})
    ending.start()
    other = bytearray(encode())
    other[7] = 9  # a version of its own, so that it is counted apart
    sent = late = 0
    while ending.is_alive():
        began = time.monotonic()
        with socket.create_connection(given.address) as client, contextlib.suppress(OSError):
            client.sendall(other)
        if time.monotonic() - began < FRESH_SECONDS:
            sent += 1
        else:  # this thread had to wait, and the input did not
            late += 1
        ending.join(0.05)
    waiting = 0
    given.socket.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            given.socket.accept()[0].close()
            waiting += 1  # it came in the last round, and is for the next process
    assert sent <= given.pool.counts().versions.get(9, 0) + waiting <= sent + late
    for writer in writers:
        writer.end()


@pytest.mark.parametrize("attempt", range(3))
def test_no_message_is_lost_while_a_tcp_input_ends(inputs: Any, attempt: int) -> None:
    """Regression: until the socket was closed, the system took connections that nobody read."""
    given = inputs("tcp", 1 << 26).start()
    settings = InputSettings(type="tcp", port=0)
    command = [sys.executable, "-S", "-c", PROGRAM, encode().hex(), str(given.address[1])]
    programs = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(6)]
    until(lambda: given.intake.counts().accepted > 500)
    InputSocket(settings, given.socket, passed=False).refuse_more()
    given.intake.stop(drain_ms=2000)
    time.sleep(0.05)  # the socket is closed by another thread, which may have to wait
    given.socket.close()
    printed = [program.communicate(timeout=60)[0].split() for program in programs]
    sent, late = (sum(int(numbers[n]) for numbers in printed) for n in (0, 1))
    # A program may have got an error for a message that was read.
    assert sent <= given.pool.counts().received <= sent + late + len(programs)
    assert not given.discarded()


def test_a_handshake_that_is_not_complete_is_waited_for(inputs: Any) -> None:
    """Regression: the system had dropped its last segment, because the queue was full.

    The program is connected, its data was sent, and the system sends it again after 200 ms.
    """
    given = inputs("tcp")
    # The system holds the last segment back until data comes; the queue has room for one.
    given.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 60)
    given.socket.listen(0)
    clients = [given.connect() for _ in range(2)]
    for client in clients:
        client.sendall(encode())
    InputSocket(InputSettings(type="tcp", port=0), given.socket, passed=False).refuse_more()
    given.start().intake.stop(drain_ms=60_000)
    given.received(2)


def test_an_input_ends_in_its_time_although_programs_write_all_the_time(inputs: Any) -> None:
    """A second call limits the time of the first, which would take minutes here."""
    given = inputs("tcp", 1 << 26).start()
    writers = [Writer(given) for _ in range(3)]
    until(lambda: given.intake.counts().connections == 3)
    ending = threading.Thread(target=given.intake.stop, kwargs={"drain_ms": 600_000})
    ending.start()
    time.sleep(0.1)  # so that it is the first call
    given.intake.stop(drain_ms=100)
    ending.join(20)
    assert not ending.is_alive()
    for writer in writers:
        writer.end()


class Gate:
    """A lock that is given in the order of the calls, once there are `calls` of them."""

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._order: list[int] = []
        self._changed = threading.Condition()

    @property
    def waiting(self) -> int:
        return len(self._order)

    def __enter__(self) -> None:
        own = threading.get_ident()
        with self._changed:
            self._order.append(own)
            self._calls -= 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._calls <= 0 and self._order[0] == own)

    def __exit__(self, *_: object) -> None:
        with self._changed:
            del self._order[0]
            self._changed.notify_all()


def test_a_second_stop_limits_the_first_before_that_has_begun(tmp_path: Path) -> None:
    """Regression: without the compiled core, the first one forgot the limit of the second."""
    given = Input(cores.core("pure"), tmp_path, "tcp", 1 << 26).start()
    gate = given.intake._ending = Gate(2)
    writer = Writer(given)
    until(lambda: given.intake.counts().connections == 1)
    first, second = (
        threading.Thread(target=given.intake.stop, kwargs={"drain_ms": ms}) for ms in (600_000, 100)
    )
    first.start()
    until(lambda: gate.waiting == 1)
    second.start()
    for thread in (first, second):
        thread.join(20)
        assert not thread.is_alive()
    writer.end()
    given.close()


def test_a_socket_of_systemd_keeps_what_comes_for_the_next_process(inputs: Any) -> None:
    given = inputs("tcp").start()
    settings = InputSettings(type="tcp", port=0)
    InputSocket(settings, given.socket, passed=True).refuse_more()
    given.intake.stop(drain_ms=2000)
    given.connect().sendall(encode())
    after = given.core.Intake(given.pool, given.socket.fileno(), "tcp")
    after.start()
    given.received(1)
    after.stop()


def test_a_program_that_has_connected_can_send_while_a_tcp_input_ends(inputs: Any) -> None:
    """Regression: its connection was closed before its first message came."""
    given = inputs("tcp").start()
    client = given.connect()
    # The time for a first message is a part of the time in which an input ends.
    ending = threading.Thread(target=given.intake.stop, kwargs={"drain_ms": 100_000})
    ending.start()
    time.sleep(0.03)
    client.sendall(encode())
    ending.join(20)
    given.received(1)


def test_the_end_of_an_input_reads_all_connections_in_turns(inputs: Any) -> None:
    """Regression: while a program wrote all the time, others were read only once."""
    given = inputs("tcp", 1 << 26, max_message_bytes=1 << 20)
    writers = [Writer(given) for _ in range(3)]
    message = bytearray(encode(value=bytes(500_000)))
    message[7] = 9  # a version of its own, so that it is counted apart
    sending = threading.Thread(target=given.connect().sendall, args=(message,))
    sending.start()
    time.sleep(0.2)  # the kernel has the data of all
    given.start()
    ending = threading.Thread(target=given.intake.stop, kwargs={"drain_ms": 600_000})
    ending.start()
    until(lambda: given.pool.counts().versions == {9: 1})
    given.intake.stop(drain_ms=100)
    for thread in (ending, sending):
        thread.join(20)
        assert not thread.is_alive()
    for writer in writers:
        writer.end()


def test_an_input_ends_although_programs_connect_all_the_time(inputs: Any) -> None:
    given = inputs("tcp").start()
    ended = threading.Event()
    data = encode(value=b"x" * 100)

    def connect() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError), socket.create_connection(given.address, 5) as client:
                client.sendall(data)

    programs = [threading.Thread(target=connect) for _ in range(3)]
    for program in programs:
        program.start()
    until(lambda: given.intake.counts().accepted > 20)
    given.intake.stop(drain_ms=2000)
    ended.set()
    for program in programs:
        program.join(20)
        assert not program.is_alive()
    counts = given.pool.counts()
    assert counts.received == counts.held + sum(counts.discarded)


# ---------------------------------------------------------------- names


def test_time_without_room_counts_once(inputs: Any) -> None:
    """Regression: each change of the options extended the limits by all of this time."""
    given = inputs("unix_stream", 1 << 12, when_full="block", idle_ms=100).start()
    client = given.connect()
    for _ in range(8):
        client.sendall(encode(value=b"x" * 500))
    until(lambda: given.pool.counts().received == 7)
    time.sleep(0.5)
    found: list[bytes] = []
    until(lambda: found.extend(given.values()) or len(found) == 8)
    for _ in range(60):
        given.intake.change(when_full="block", idle_ms=100)
        time.sleep(0.002)
    until(lambda: given.intake.counts().idle_closed == 1, "an idle connection is closed", 15)


def test_time_without_room_does_not_extend_the_limits_of_what_is_read_afterwards(
    inputs: Any,
) -> None:
    """Regression: a connection that was read after the wait, but before the next check of the
    limits, was closed as much later as the input had waited.
    """
    given = inputs("unix_stream", 1 << 12, when_full="block", idle_ms=200).start()
    first, second, third = (given.connect() for _ in range(3))
    large = encode(value=b"x" * 500)
    first.sendall(large * 8)
    until(lambda: given.pool.counts().received == 7)
    second.sendall(large * 8)  # both are read in the iteration after the first wait
    third.sendall(encode(value=b"last"))
    found: list[bytes] = given.values()
    until(lambda: given.pool.counts().received > 12)
    time.sleep(4)
    began = time.monotonic()
    until(lambda: found.extend(given.values()) or len(found) == 17)
    until(lambda: given.intake.counts().idle_closed == 3)
    assert time.monotonic() - began < 3


@needs_fork
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_program_that_makes_names_up_loses_only_its_own(inputs: Any, transport: str) -> None:
    """While Kafka is away, names are bounded: they could not be told from topics that exist.

    Programs are told apart by the process that the kernel names, or by the connection.
    """
    given = inputs(transport, 400_000).start()  # 156 names
    client = given.connect()
    for n in range(20):
        client.sendall(encode(b"rare-%d" % n))
    given.received(20)

    def flood() -> None:
        opened = given.connect()
        for n in range(3000):
            opened.sendall(encode(b"made-up-%d" % n))

    assert in_child(flood) == "None"
    given.received(3020)
    for n in range(20):
        client.sendall(encode(b"new-%d" % n))
    given.received(3040)
    real = [b"%s-%d" % (kind, n) for kind in (b"rare", b"new") for n in range(20)]
    assert [name for name in real if not given.pool.waits(name)] == []
    assert given.discarded() == {"bad_topic": 3040 - given.pool.counts().names}
    assert given.pool.counts().names == 400_000 // (2 * NAME_BYTES)


@pytest.mark.parametrize("transport", STREAMS)
def test_idle_connections_are_closed(inputs: Any, transport: str) -> None:
    given = inputs(transport, idle_ms=150).start()
    idle, busy = given.connect(), given.connect()
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        busy.sendall(encode())
        time.sleep(0.01)
    assert idle.recv(1) == b""
    counts = given.intake.counts()
    assert (counts.idle_closed, counts.connections) == (1, 1)
    assert given.discarded() == {}


def test_an_idle_connection_that_is_closed_loses_nothing(inputs: Any) -> None:
    """A write that succeeded arrives, even if the connection is closed at the same moment."""
    given = inputs("unix_stream", idle_ms=5).start()
    sent = [0] * 4

    def send(number: int) -> None:
        source = random.Random(number)
        client = given.connect()
        for n in range(150):
            time.sleep(source.choice((0, 0.004, 0.007, 0.012)))
            while True:
                try:
                    client.sendall(encode(value=b"%d %d" % (number, n)))
                    break
                except BrokenPipeError:
                    client = given.connect()
            sent[number] += 1

    threads = [threading.Thread(target=send, args=(number,)) for number in range(len(sent))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sent == [150] * 4
    given.received(600)
    assert given.intake.counts().idle_closed > 2
    assert given.discarded() == {}


@needs_fork
@pytest.mark.parametrize("transport", STREAMS)
def test_a_process_that_was_stopped_loses_nothing_that_was_written_meanwhile(
    inputs: Any, transport: str
) -> None:
    """Regression: it closed the connections as too old, with what the kernel had of them."""
    given = inputs(transport)

    def child() -> object:
        made = Input(
            SimpleNamespace(Pool=type(given.pool), Intake=type(given.intake)),
            Path("/tmp"),
            transport,
            1 << 20,
            idle_ms=200,
            partial_ms=200,
        )
        made.start()
        half, idle = made.connect(), made.connect()
        whole = encode(value=b"whole")
        half.sendall(whole[:10])
        until(lambda: made.pool.counts().partial_bytes and made.intake.counts().accepted == 2)
        stopped = os.getpid()
        helper = fork()
        if helper == 0:
            os.kill(stopped, signal.SIGSTOP)
            time.sleep(0.8)
            half.sendall(whole[10:])
            idle.sendall(encode(value=b"idle"))
            os.kill(stopped, signal.SIGCONT)
            os._exit(0)
        os.waitpid(helper, 0)
        until(lambda: made.pool.counts().received == 2)
        found = sorted(made.values()), made.discarded()
        made.close()
        if transport != "tcp":
            os.unlink(made.address)
        return found

    assert in_child(child) == "([b'idle', b'whole'], {})"


@pytest.mark.parametrize("transport", STREAMS)
def test_half_sent_messages_have_a_time_limit(inputs: Any, transport: str) -> None:
    given = inputs(transport, partial_ms=150).start()
    slow, quiet = given.connect(), given.connect()
    quiet.sendall(encode(value=b"x"))
    data = encode(value=b"slow" * 100)
    sent = 0
    closed = False
    while not closed:
        try:
            sent += slow.send(data[sent : sent + 1])
        except OSError:
            closed = True
        time.sleep(0.005)
        assert sent < len(data)
    counts = given.intake.counts()
    assert (counts.partial_closed, counts.idle_closed, counts.connections) == (1, 0, 1)
    assert given.discarded() == {"unclean_disconnect": 1}


@pytest.mark.parametrize("uids", [[], [os.getuid() + 1], [os.getuid()]])
def test_users_of_connections(inputs: Any, uids: list[int]) -> None:
    given = inputs("unix_stream", allowed_uids=uids).start()
    client = given.connect()
    if os.getuid() in uids:
        client.sendall(encode())
        given.received(1)
    else:
        assert client.recv(1) == b""
        assert given.intake.counts().refused == 1


def test_an_input_that_ends_accepts_all_connections_although_their_users_are_refused(
    inputs: Any,
) -> None:
    """Regression: after 64 of them it took the others, perhaps of allowed users, for none."""
    given = inputs("unix_stream", allowed_uids=[])
    given.socket.listen(1000)
    for _ in range(600):
        given.connect()
    given.start().intake.stop(drain_ms=20_000)
    counts = given.intake.counts()
    assert (counts.accepted, counts.refused) == (0, 600)


@needs_fork
def test_without_descriptors_connections_wait(inputs: Any) -> None:
    """They have sent their messages already: a refusal would lose them, and nobody would count."""
    given = inputs("unix_stream")

    def child() -> str:
        made = Input(
            SimpleNamespace(Pool=type(given.pool), Intake=type(given.intake)),
            Path("/tmp"),
            "unix_stream",
            1 << 20,
        )
        made.start()
        first = made.connect()
        until(lambda: made.intake.counts().accepted == 1)
        waiting = [socket.socket(socket.AF_UNIX) for _ in range(4)]
        limit = limit_with(len(waiting))  # room for all of them once `fill` is closed
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        fill = []
        try:
            while True:
                fill.append(os.dup(0))
        except OSError:
            pass
        for client in waiting:
            client.connect(made.address)
            client.sendall(encode())
        spent = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - spent < 0.1
        first.sendall(encode())  # the other connections are read
        made.received(1)
        for fd in fill:
            os.close(fd)
        made.received(5)
        made.close()
        os.unlink(made.address)
        return f"{made.intake.counts().accepted} {made.intake.counts().refused}"

    assert in_child(child) == "5 0"


@needs_fork
def test_connections_leave_descriptors_to_others(inputs: Any) -> None:
    """The spool needs them for its files, and the client of Kafka for connections."""
    given = inputs("unix_stream")

    def child() -> str:
        made = Input(
            SimpleNamespace(Pool=type(given.pool), Intake=type(given.intake)),
            Path("/tmp"),
            "unix_stream",
            1 << 20,
        )
        made.start()
        clients = [socket.socket(socket.AF_UNIX) for _ in range(150)]
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        limit = highest + 60
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        end = time.monotonic() + 1
        seen = 0
        for client in clients:
            client.setblocking(False)
            while time.monotonic() < end:
                try:
                    client.connect(made.address)
                    break
                except BlockingIOError:  # the queue of the kernel is full
                    time.sleep(0.01)
                if seen != made.intake.counts().accepted:
                    seen, end = made.intake.counts().accepted, time.monotonic() + 1
        while time.monotonic() < end:
            time.sleep(0.1)
            if seen != made.intake.counts().accepted:
                seen, end = made.intake.counts().accepted, time.monotonic() + 1
        free = 0
        try:
            while True:
                os.dup(0)
                free += 1
        except OSError:
            pass
        accepted, refused = made.intake.counts().accepted, made.intake.counts().refused
        made.close()
        if 0 < accepted < 150 and not refused and abs(free - limit // 8) <= 2:
            return "ok"
        return f"{free} left of {limit}, {accepted} accepted, {refused} refused"

    assert in_child(child) == "ok"


@needs_fork
def test_the_end_of_an_input_leaves_descriptors_to_others(inputs: Any) -> None:
    given = inputs("unix_stream")

    def child() -> str:
        made = Input(
            SimpleNamespace(Pool=type(given.pool), Intake=type(given.intake)),
            Path("/tmp"),
            "unix_stream",
            1 << 20,
            max_connections=1,
        )
        made.start()
        made.connect()
        until(lambda: made.intake.counts().accepted == 1)
        for _ in range(100):
            made.connect().sendall(encode())
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        limit = highest + highest // 6 + 20
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        ending = threading.Thread(target=made.intake.stop, kwargs={"drain_ms": 60_000})
        ending.start()
        taken: set[int] = set()
        while ending.is_alive():
            # The input looks for the lowest free descriptor, so the test itself opens none.
            taken.update(fd for fd in range(limit - limit // 8 + 1, limit) if is_open(fd))
        received = made.pool.counts().received
        made.close()
        os.unlink(made.address)
        return f"{received} received, {sorted(taken)} taken"

    assert in_child(child) == "100 received, [] taken"


def test_thousands_of_connections(inputs: Any) -> None:
    given = inputs("unix_stream", max_connections=1000).start()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip(f"only {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    try:
        clients = [given.connect() for _ in range(900)]
        for n, client in enumerate(clients):
            client.sendall(encode(value=b"%d" % n)[:-1])
        for n, client in enumerate(clients):
            client.sendall((b"%d" % n)[-1:])
        given.received(900)
        assert sorted(map(int, given.values())) == list(range(900))
        for client in clients:
            client.close()
        until(lambda: given.intake.counts().connections == 0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
