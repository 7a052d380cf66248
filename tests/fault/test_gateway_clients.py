"""The gateway's clients beside a gateway that stops, is slow, is killed and comes back."""

from __future__ import annotations

import _thread
import asyncio
import collections
import contextlib
import functools
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import uvloop

from aiokq.gateway.client import (
    AsyncGatewayClient,
    ClientClosed,
    GatewayAway,
    GatewayClient,
    MessageTooLarge,
    QueueFull,
    blocking,
)
from tests.forking import fork, in_child, needs_fork
from tests.peers.gateway_reader import Reader, decode, split
from tests.peers.ports import free_ports

pytestmark = pytest.mark.build_independent

TRANSPORTS = ("unix_datagram", "unix_stream", "tcp")
STREAMS = ("unix_stream", "tcp")
LARGE = 4 << 20
"""Bytes that no socket buffer takes at once."""


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def run(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(main)

    return run


@contextlib.contextmanager
def alarm(handler: Callable[[], None], seconds: float) -> Iterator[None]:
    """Run `handler` as a signal handler every `seconds`."""
    before = signal.signal(signal.SIGALRM, lambda number, frame: handler())
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def nowhere(transport: str, directory: Path) -> dict[str, Any]:
    """An address at which nobody listens."""
    if transport == "tcp":
        return {"tcp": free_ports(1)[0]}
    return {transport: str(directory / "gateway.sock")}


def fill(client: GatewayClient) -> int:
    """Send until the queue is full; return the number of messages.

    TCP takes a part of the last message.
    """
    for count in range(100_000):
        try:
            client.send("t", b"%d" % count)
        except QueueFull:
            return count
    raise AssertionError("the queue has no end")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_messages_arrive_over_every_transport(transport: str, tmp_path: Path) -> None:
    """Both kinds of message, in the order of the calls."""
    with Reader(transport, tmp_path) as reader, GatewayClient(**reader.address) as client:
        reader.read()
        assert client.send("orders", b"v", key=b"k", partition_key=-1, timestamp_ms=5)
        for n in range(9):
            client.send("orders", b"%d" % n)
        first, *rest = reader.messages(10)
        assert first == (b"orders", b"v", b"k", 2**32 - 1, 5)
        assert [one.value for one in rest] == [b"%d" % n for n in range(9)]
        counts = client.counts()
        assert (counts.sent, counts.connects) == (10, 1)
        assert counts.sent_bytes == 28 + 4 + 6 + 2 + 9 * (28 + 6 + 1)
        assert set(counts.dropped.values()) == set(counts.raised.values()) == {0}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_messages_of_asyncio_arrive_over_every_transport(
    transport: str, tmp_path: Path, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    """Tasks share a client; every call returns after the kernel took its message."""

    async def main() -> None:
        with Reader(transport, tmp_path) as reader:
            reader.read()
            async with AsyncGatewayClient(
                **reader.address, when_unavailable="wait", timeout=20
            ) as client:
                done = await asyncio.gather(*(client.send("t", b"%d" % n) for n in range(500)))
                assert all(done)
                values = [one.value for one in await asyncio.to_thread(reader.messages, 500)]
                assert values == [b"%d" % n for n in range(500)]

    run(main())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_program_chooses_what_happens_while_the_gateway_is_away(
    transport: str, tmp_path: Path
) -> None:
    """Raise at once, drop and count, or wait until a deadline."""
    address = nowhere(transport, tmp_path)
    with GatewayClient(**address) as client:
        with pytest.raises(GatewayAway, match=r"no gateway at .*: (No such file|Connection ref)"):
            client.send("t", b"v")
        assert client.counts().raised["away"] == 1
    with GatewayClient(**address, when_unavailable="drop") as client:
        assert [client.send("t", b"v") for _ in range(3)] == [False, False, False]
        assert client.counts().dropped == {"away": 3, "queue_full": 0}
        assert isinstance(client.last_error, GatewayAway)
        assert client.last_error.errno is not None
    with GatewayClient(**address, when_unavailable="wait", timeout=0.3) as client:
        begun = time.monotonic()
        with pytest.raises(GatewayAway):
            client.send("t", b"v")
        assert 0.29 < time.monotonic() - begun < 5


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_who_waits_gets_through_when_the_gateway_starts(transport: str, tmp_path: Path) -> None:
    """A program that starts before the gateway loses nothing."""
    address = nowhere(transport, tmp_path)
    with GatewayClient(**address, when_unavailable="wait", timeout=20) as client:
        sender = threading.Thread(target=client.send, args=("t", b"early"))
        sender.start()
        time.sleep(0.05)
        with Reader(transport, tmp_path, int(address.get("tcp", 0))) as reader:
            reader.read()
            sender.join()
            assert reader.messages(1)[0].value == b"early"


@pytest.mark.parametrize("transport", ["unix_datagram", "unix_stream"])
def test_a_full_queue_is_no_failure_of_the_connection(transport: str, tmp_path: Path) -> None:
    """The gateway is slow: nothing is written in part, and the connection stays."""
    with Reader(transport, tmp_path) as reader, GatewayClient(**reader.address) as client:
        sent = fill(client)
        assert sent > 0
        dropping = client.counts().raised["queue_full"]
        assert dropping == 1
        reader.read()
        reader.wait_for(lambda: len(reader.connections) > 0)
        while True:
            try:
                client.send("t", b"last")
                break
            except QueueFull:
                time.sleep(0.01)
        values = [one.value for one in reader.messages(sent + 1)]
        assert values == [*(b"%d" % n for n in range(sent)), b"last"]
        assert client.counts().connects == 1


@pytest.mark.parametrize("transport", ["unix_datagram", "unix_stream"])
def test_who_waits_gets_through_when_the_queue_has_room(transport: str, tmp_path: Path) -> None:
    """The kernel wakes the sender; nothing is lost or doubled."""
    with (
        Reader(transport, tmp_path) as reader,
        GatewayClient(**reader.address, when_unavailable="wait", timeout=20) as client,
        GatewayClient(**reader.address) as other,
    ):
        sent = fill(other)
        sender = threading.Thread(target=client.send, args=("t", b"waited"))
        sender.start()
        time.sleep(0.05)
        reader.read()
        sender.join()
        assert b"waited" in [one.value for one in reader.messages(sent + 1)]


@pytest.mark.parametrize("policy", ["raise", "drop", "wait"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_client_connects_to_a_gateway_that_was_restarted(
    transport: str, policy: Any, tmp_path: Path
) -> None:
    """Also a message that finds the old connection closed is sent, whatever the policy."""
    first = Reader(transport, tmp_path)
    first.read()
    with GatewayClient(**first.address, when_unavailable=policy, timeout=10) as client:
        client.send("t", b"before")
        first.messages(1)
        first.close()
        with Reader(transport, tmp_path, first.port) as second:
            second.read()
            for n in range(3):
                assert client.send("t", b"after %d" % n)
            values = [one.value for one in second.messages(3)]
            assert values == [b"after %d" % n for n in range(3)]
            assert client.counts().connects == 2


@pytest.mark.parametrize("transport", STREAMS)
def test_messages_of_threads_never_mix(transport: str, tmp_path: Path) -> None:
    """A stream takes large messages in pieces, while other threads want to send."""
    with (
        Reader(transport, tmp_path) as reader,
        GatewayClient(**reader.address, when_unavailable="wait", timeout=60) as client,
    ):
        reader.read()

        def work(number: int) -> None:
            for n in range(30):
                client.send(f"t{number}", b"%d:" % n + b"x" * (n * 9001 % 200_000))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = reader.messages(120)
        for number in range(4):
            values = [one.value for one in found if one.topic == b"t%d" % number]
            assert [int(value.split(b":")[0]) for value in values] == list(range(30))
        assert client.counts().connects == 1


@pytest.mark.parametrize("policy", ["raise", "drop", "wait"])
@pytest.mark.parametrize("transport", STREAMS)
def test_a_message_that_was_written_in_part_ends_its_connection(
    transport: str, policy: Any, tmp_path: Path
) -> None:
    """The next message would be taken for the rest of it."""
    with (
        Reader(transport, tmp_path) as reader,
        GatewayClient(**reader.address, when_unavailable=policy, timeout=0.3) as client,
    ):
        if policy == "drop":
            assert client.send("t", bytes(LARGE * 4)) is False
            assert client.counts().dropped["queue_full"] == 1
        else:
            with pytest.raises(QueueFull, match="did not take the rest of a message in"):
                client.send("t", bytes(LARGE * 4))
        reader.read()
        client.send("t", b"clean")
        reader.wait_for(lambda: any(reader.by_connection()))
        *parts, clean = reader.connections
        assert all(split(bytes(part)) == ([], bytes(part)) for part in parts)
        assert decode(bytes(clean)).value == b"clean"


@pytest.mark.parametrize("transport", STREAMS)
def test_an_exception_of_a_signal_handler_leaves_no_half_message(
    transport: str, tmp_path: Path
) -> None:
    """Ctrl-C in the middle of a large message, which the program survives."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    with (
        Reader(transport, tmp_path) as reader,
        GatewayClient(**reader.address, timeout=20) as client,
    ):
        with pytest.raises(KeyboardInterrupt), alarm(interrupt, 0.1):
            client.send("t", bytes(LARGE * 4))
        assert client.counts().raised["cancelled"] == 1
        reader.read()
        client.send("t", b"clean")
        reader.wait_for(lambda: any(reader.by_connection()))
        assert decode(bytes(reader.connections[-1])).value == b"clean"


@pytest.mark.parametrize("call", ["send", "close"])
def test_an_exception_of_a_signal_handler_leaves_no_lock(call: str, tmp_path: Path) -> None:
    """A signal arrives at each instruction of `send` and `close`, and its handler raises.

    Regression: a handler that raised just after the lock was acquired left the lock held, and each
    message of other threads waited for `timeout` seconds.
    """

    class Interrupted(Exception):
        pass

    def handler(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    # A missing key makes the signal pending without a call in `trace`, after which Python would run
    # the handler there: the handler runs where Python looks for signals next in the traced code.
    pending = collections.defaultdict[int, None](
        functools.partial(_thread.interrupt_main, signal.SIGALRM)
    )

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename != blocking.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                sys.settrace(None)  # the handler would run in the next call of `trace`
                _ = pending[instruction]
        return trace

    def is_free() -> None:
        free.append(client._lock.acquire(blocking=False))
        if free[-1]:
            client._lock.release()

    before_handler = signal.signal(signal.SIGALRM, handler)
    before_trace = sys.gettrace()
    instruction = interrupted = left = 0
    free: list[bool] = []
    try:
        with Reader("unix_datagram", tmp_path) as reader:
            reader.read()
            while left <= 0:  # until there is no such instruction
                instruction += 1
                with GatewayClient(**reader.address, when_unavailable="drop") as client:
                    client.send("t", b"first")
                    left = instruction
                    sys.settrace(trace)
                    try:
                        if call == "send":
                            client.send("t", b"second")
                        else:
                            client.close()
                        sys.settrace(before_trace)  # runs the handler of the last instructions
                    except Interrupted:
                        interrupted += 1
                    thread = threading.Thread(target=is_free)
                    thread.start()
                    thread.join()
                    assert free.pop(), f"the lock is held after instruction {instruction}"
    finally:
        sys.settrace(before_trace)
        signal.signal(signal.SIGALRM, before_handler)
    assert interrupted == instruction - 1 > 20


def test_a_signal_handler_may_send_while_its_thread_is_sending(tmp_path: Path) -> None:
    """Without a check, the thread would wait for itself."""
    with (
        Reader("unix_stream", tmp_path) as reader,
        GatewayClient(**reader.address, when_unavailable="drop", timeout=1) as client,
    ):
        nested: list[bool] = []
        errors: list[str] = []

        def handler() -> None:
            nested.append(client.send("t", b"nested"))
            errors.append(str(client.last_error))

        with alarm(handler, 0.05):
            begun = time.monotonic()
            assert client.send("t", bytes(LARGE)) is False
        assert time.monotonic() - begun < 5
        assert nested
        assert not any(nested)
        assert all("a signal handler has interrupted" in error for error in errors)


@pytest.mark.parametrize("policy", ["raise", "drop", "wait"])
def test_a_signal_handler_may_send_at_any_moment_of_a_send(policy: Any, tmp_path: Path) -> None:
    """At each line of `send`, its message is sent whole, or refused at once.

    Regression: just before and after the message, the thread waited for itself.
    """

    def nested() -> None:
        try:
            done.append(client.send("t", b"nested"))
        except QueueFull:
            done.append(False)
        if not done[-1]:
            assert "a signal handler has interrupted" in str(client.last_error)

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if Path(frame.f_code.co_filename).parent != Path(blocking.__file__).parent:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                nested()  # Python traces nothing meanwhile
        return trace

    done: list[bool] = []
    with (
        Reader("unix_stream", tmp_path) as reader,
        GatewayClient(**reader.address, when_unavailable=policy, timeout=5) as client,
    ):
        reader.read()
        outer = 0
        while len(done) == outer:  # until there is no such line
            outer += 1
            left = outer
            before = sys.gettrace()
            sys.settrace(trace)
            try:
                assert client.send("t", bytes(300_000))
            finally:
                sys.settrace(before)
        values = [one.value for one in reader.messages(outer + sum(done))]
        assert values.count(bytes(300_000)) == outer
        assert values.count(b"nested") == sum(done) > 0
        assert client.counts().connects == 1


def test_a_signal_handler_closes_the_client_that_its_thread_uses(tmp_path: Path) -> None:
    """The message is completed, and then the socket is closed."""
    with Reader("unix_stream", tmp_path) as reader:
        client = GatewayClient(**reader.address, timeout=20)

        def close() -> None:
            client.close()
            reader.read()

        with alarm(close, 0.1):
            assert client.send("t", bytes(LARGE))
        assert len(reader.messages(1)[0].value) == LARGE
        reader.wait_for(lambda: reader.ended == 1)
        with pytest.raises(ClientClosed):
            client.send("t", b"v")


@needs_fork
def test_a_signal_handler_may_fork_while_its_thread_is_sending(tmp_path: Path) -> None:
    """The message is the parent's. The child goes on with a connection of its own."""
    with (
        Reader("unix_stream", tmp_path) as reader,
        GatewayClient(**reader.address, timeout=20) as client,
    ):
        children: list[int] = []

        def handler() -> None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            children.append(fork())
            if children[0]:
                reader.read()

        sent = False
        try:
            with contextlib.suppress(GatewayAway), alarm(handler, 0.1):
                sent = client.send("t", bytes(LARGE))
            if children == [0]:
                os._exit(0 if not sent and client.send("t", b"child") else 1)
        finally:
            if children == [0]:
                os._exit(2)
        assert sent
        assert os.waitpid(children[0], 0)[1] == 0
        assert sorted(len(one.value) for one in reader.messages(2)) == [5, LARGE]


@needs_fork
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_forked_child_opens_a_socket_of_its_own(transport: str, tmp_path: Path) -> None:
    """Parent and child on one stream would mix their messages."""
    with Reader(transport, tmp_path) as reader, GatewayClient(**reader.address) as client:
        reader.read()
        client.send("t", b"parent 1")
        reader.messages(1)

        def child() -> str:
            client.send("t", b"child")
            counts = client.counts()
            return f"{counts.sent} {counts.connects}"

        assert in_child(child) == "1 1"
        client.send("t", b"parent 2")
        reader.messages(3)
        found = sorted([one.value for one in each] for each in reader.by_connection())
        parents = [b"parent 1", b"parent 2"]
        if transport == "unix_datagram":
            assert found == [[b"child"], *([value] for value in parents)]
        else:
            assert found == [[b"child"], parents]
        assert client.counts().connects == 1


@needs_fork
def test_a_child_does_not_wait_for_a_thread_of_its_parent(tmp_path: Path) -> None:
    """The thread that had the lock at the fork does not exist in the child."""
    with (
        Reader("unix_stream", tmp_path) as reader,
        GatewayClient(**reader.address, timeout=20) as client,
    ):
        sender = threading.Thread(target=client.send, args=("t", bytes(LARGE)))
        sender.start()
        time.sleep(0.1)  # the thread waits in the middle of its message
        said = in_child(lambda: client.send("t", b"child"))
        assert said == "True"
        reader.read()
        sender.join()
        assert sorted(len(one.value) for one in reader.messages(2)) == [5, LARGE]


def test_a_datagram_that_is_too_large_names_the_limit(tmp_path: Path) -> None:
    """EMSGSIZE alone does not say what would fit."""
    with Reader("unix_datagram", tmp_path) as reader:
        reader.read()
        with GatewayClient(**reader.address) as client:
            with pytest.raises(MessageTooLarge, match="give send_buffer_bytes") as caught:
                client.send("t", bytes(16 << 20))
            limit = caught.value.limit
            assert client.counts().raised["too_large"] == 1
            client.send("t", bytes(limit - 29))
            with pytest.raises(MessageTooLarge):
                client.send("t", bytes(limit - 28))
        with GatewayClient(**reader.address, send_buffer_bytes=4608) as client:
            with pytest.raises(MessageTooLarge) as caught:
                client.send("t", bytes(60_000))
            assert caught.value.limit < 10_000
        assert len(reader.messages(1)[0].value) == limit - 29


def test_close_ends_the_wait_of_another_thread(tmp_path: Path) -> None:
    """A program that ends must not wait for a gateway that is away."""
    client = GatewayClient(
        unix_stream=str(tmp_path / "nobody"), when_unavailable="wait", timeout=60
    )
    raised: list[BaseException] = []

    def work() -> None:
        try:
            client.send("t", b"v")
        except ClientClosed as error:
            raised.append(error)

    sender = threading.Thread(target=work)
    sender.start()
    time.sleep(0.05)
    client.close()
    client.close()
    sender.join(5)
    assert raised
    with pytest.raises(ClientClosed):
        client.send("t", b"v")


def test_asyncio_goes_on_while_the_queue_is_full(
    tmp_path: Path, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    """A blocking send would stop all other tasks of the program."""

    async def main() -> None:
        with Reader("unix_datagram", tmp_path) as reader:
            async with AsyncGatewayClient(
                **reader.address, when_unavailable="wait", timeout=20
            ) as client:
                sends = asyncio.gather(*(client.send("t", b"%d" % n) for n in range(100)))
                for _ in range(20):
                    await asyncio.sleep(0.005)
                assert not sends.done()
                assert 0 < client.counts().sent < 100
                reader.read()
                assert await sends == [True] * 100
                values = [one.value for one in await asyncio.to_thread(reader.messages, 100)]
                assert values == [b"%d" % n for n in range(100)]

    run(main())


def test_asyncio_has_the_same_policies(
    tmp_path: Path, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    """Raise, drop and count, wait until a deadline."""

    async def main() -> None:
        path = str(tmp_path / "nobody")
        async with AsyncGatewayClient(unix_stream=path) as client:
            with pytest.raises(GatewayAway):
                await client.send("t", b"v")
        async with AsyncGatewayClient(unix_stream=path, when_unavailable="drop") as client:
            assert await client.send("t", b"v") is False
            assert client.counts().dropped["away"] == 1
        async with AsyncGatewayClient(
            unix_stream=path, when_unavailable="wait", timeout=0.2
        ) as client:
            with pytest.raises(GatewayAway):
                await client.send("t", b"v")
        with pytest.raises(ClientClosed):
            await client.send("t", b"v")

    run(main())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_cancelled_send_leaves_no_half_message(
    transport: str, tmp_path: Path, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    """A CancelledError means that the message was not sent; the next one begins clean."""

    async def main() -> None:
        with Reader(transport, tmp_path) as reader:
            async with AsyncGatewayClient(
                **reader.address, when_unavailable="wait", timeout=30
            ) as client:
                count, size = (200, 1000) if transport == "unix_datagram" else (5, LARGE)
                sends = [asyncio.ensure_future(client.send("t", bytes(size))) for _ in range(count)]
                await asyncio.sleep(0.1)
                sent = client.counts().sent
                assert sent < count
                for one in sends:
                    one.cancel()
                ends = await asyncio.gather(*sends, return_exceptions=True)
                assert ends.count(True) == sent
                assert sum(isinstance(end, asyncio.CancelledError) for end in ends) == count - sent
                assert client.counts().raised["cancelled"] == count - sent
                reader.read()
                await client.send("t", b"clean")
                await asyncio.to_thread(
                    reader.wait_for, lambda: any(b"clean" in data for data in reader.connections)
                )
                assert len(reader.messages(sent + 1)) == sent + 1
                assert decode(bytes(reader.connections[-1])).value == b"clean"

    run(main())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_one_client_may_serve_several_runs_of_asyncio(transport: str, tmp_path: Path) -> None:
    """A program that calls asyncio.run once per job."""
    with Reader(transport, tmp_path) as reader:
        reader.read()
        client = AsyncGatewayClient(**reader.address, when_unavailable="wait", timeout=20)

        async def main() -> None:
            await asyncio.gather(*(client.send("t", bytes(1000)) for _ in range(50)))

        asyncio.run(main())
        asyncio.run(main())
        asyncio.run(client.close())
        reader.messages(100)


def test_a_program_that_does_not_ignore_sigpipe_survives(tmp_path: Path) -> None:
    """Python ignores SIGPIPE, unless the program restores it, as filters do."""
    reader = Reader("unix_stream", tmp_path)
    reader.read()
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        with GatewayClient(**reader.address, when_unavailable="drop") as client:
            client.send("t", b"v")
            reader.messages(1)
            reader.close()
            os.unlink(tmp_path / "gateway.sock")
            assert client.send("t", b"v") is False
    finally:
        signal.signal(signal.SIGPIPE, before)


def test_a_full_backlog_is_a_full_queue(tmp_path: Path) -> None:
    """The gateway accepts no connections for a moment, for example because it is stopped."""
    path = str(tmp_path / "gateway.sock")
    with socket.socket(socket.AF_UNIX) as listening, contextlib.ExitStack() as stack:
        listening.bind(path)
        listening.listen(0)
        with pytest.raises(QueueFull, match="too many connections wait"):  # noqa: PT012
            for _ in range(10):
                stack.enter_context(GatewayClient(unix_stream=path)).send("t", b"v")
