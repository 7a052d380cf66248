"""What a client does with one message, step by step, on a scripted socket."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Generator, Sequence
from typing import Any, cast

import pytest

from aiokq.gateway.client import ClientClosed, GatewayAway, MessageTooLarge, QueueFull
from aiokq.gateway.client.address import Address
from aiokq.gateway.client.connection import Connection, Policy, Wait

MESSAGE = b"m" * 40


class Scripted:
    """A socket whose `send` answers what a script says: a number of bytes, or an error number."""

    def __init__(self, *answers: int | OSError, connected: bool = True) -> None:
        self.answers = list(answers)
        self.connected = connected
        self.closed = False
        self.written = b""

    def send(self, data: bytes, flags: int) -> int:
        answer = self.answers.pop(0) if self.answers else len(data)
        if isinstance(answer, OSError):
            raise answer
        self.written += bytes(data[:answer])
        return answer

    def recv(self, size: int, flags: int) -> bytes:
        raise BlockingIOError

    def getsockopt(self, level: int, option: int) -> int:
        return 0 if option == socket.SO_ERROR else 4640

    def getpeername(self) -> str:
        if not self.connected:
            raise OSError(errno.ENOTCONN, "not connected")
        return "gateway"

    def close(self) -> None:
        self.closed = True


def failed(number: int) -> OSError:
    return OSError(number, "scripted")


def connection(
    kind: str, sockets: Sequence[Scripted | int], policy: Policy = "wait", timeout: float = 60
) -> Connection:
    """A connection whose sockets, or errors of connecting, are those of a script."""
    given: dict[str, Any] = {"unix_datagram": None, "unix_stream": None, "tcp": None}
    given[kind] = 9 if kind == "tcp" else "/run/gateway.sock"
    address = Address(**given, host="127.0.0.1", send_buffer_bytes=None)
    left = list(sockets)

    class ScriptedAddress:
        datagram, tcp, text = address.datagram, address.tcp, address.text

        def open(self) -> tuple[Scripted, int]:
            one = left.pop(0)
            if isinstance(one, int):
                return Scripted(), one
            return one, 0 if one.connected else errno.EINPROGRESS

    return Connection(cast(Address, ScriptedAddress()), policy, timeout)


def run(steps: Generator[Wait, None, bool], waits: list[Wait]) -> bool:
    """Run without waiting; `waits` gets what was asked for."""
    while True:
        try:
            waits.append(next(steps))
        except StopIteration as end:
            return bool(end.value)


def later(seconds: float = 60) -> float:
    return time.monotonic() + seconds


def test_a_full_queue_is_waited_for_at_the_socket() -> None:
    """The system wakes the sender; there is no polling."""
    opened = Scripted(BlockingIOError(), BlockingIOError())
    one = connection("unix_datagram", [opened])
    waits: list[Wait] = []
    assert run(one.send(MESSAGE, later()), waits)
    assert [wait.writable for wait in waits] == [opened, opened]
    assert one.counts().sent == one.counts().connects == 1


def test_a_system_without_memory_is_asked_again_later() -> None:
    """The socket counts as writable meanwhile: waiting for that would be a busy loop."""
    opened = Scripted(failed(errno.ENOBUFS), failed(errno.ENOMEM))
    one = connection("unix_datagram", [opened])
    waits: list[Wait] = []
    assert run(one.send(MESSAGE, later()), waits)
    assert waits == [Wait(0.001, None), Wait(0.002, None)]
    assert not opened.closed


def test_attempts_to_connect_become_rarer() -> None:
    """Ten programs that wait for a gateway must not use a core."""
    opened = Scripted()
    one = connection("unix_stream", [*[errno.ENOENT] * 9, opened])
    waits: list[Wait] = []
    assert run(one.send(MESSAGE, later()), waits)
    pauses = [wait.seconds for wait in waits]
    assert pauses == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.05, 0.05, 0.05]
    assert opened.written == MESSAGE


@pytest.mark.parametrize("policy", ["raise", "drop", "wait"])
def test_a_message_that_finds_the_connection_closed_is_sent_whole_on_a_new_one(
    policy: Policy,
) -> None:
    """The first part is discarded by the gateway that ended, so the message is not doubled."""
    first = Scripted(40, 10, failed(errno.EPIPE))
    second = Scripted()
    one = connection("unix_stream", [first, second], policy)
    assert run(one.send(MESSAGE, later()), [])
    assert run(one.send(MESSAGE, later()), [])
    assert first.closed
    assert second.written == MESSAGE
    assert one.counts().connects == 2


def test_a_wait_that_is_given_up_in_a_message_closes_the_connection() -> None:
    """What a cancelled task, or an exception of a signal handler, does."""
    opened = Scripted(10, BlockingIOError())
    one = connection("unix_stream", [opened])
    steps = one.send(MESSAGE, later())
    assert next(steps).writable is cast(Any, opened)
    steps.close()
    assert opened.closed
    assert one.counts().raised["cancelled"] == 1


def test_a_wait_that_is_given_up_between_messages_keeps_the_connection() -> None:
    """Nothing was written."""
    opened = Scripted(BlockingIOError())
    one = connection("unix_stream", [opened])
    steps = one.send(MESSAGE, later())
    next(steps)
    steps.close()
    assert not opened.closed


def test_a_port_that_does_not_answer_is_waited_for_once() -> None:
    """A program that drops messages would wait for each of them."""
    opened = Scripted(connected=False)
    one = connection("tcp", [opened], "drop")
    waits: list[Wait] = []
    assert run(one.send(MESSAGE, later(0)), waits) is False
    assert opened.closed
    assert run(one.send(MESSAGE, later()), waits) is False  # the script has no other socket
    assert waits == []
    assert one.counts().dropped == {"away": 2, "queue_full": 0}


def test_errors_say_what_the_system_said() -> None:
    """A wrong permission looks like a gateway that is away, unless the error tells."""
    one = connection("unix_datagram", [errno.EACCES, errno.EAGAIN], "raise")
    with pytest.raises(GatewayAway, match="Permission denied") as caught:
        run(one.send(MESSAGE, later()), [])
    assert caught.value.errno == errno.EACCES
    assert one.last_error is caught.value
    with pytest.raises(QueueFull):
        run(one.send(MESSAGE, later()), [])


def test_a_datagram_that_is_too_large_is_no_failure_of_the_socket() -> None:
    """The next message uses the same socket."""
    opened = Scripted(failed(errno.EMSGSIZE))
    one = connection("unix_datagram", [opened], "drop")
    with pytest.raises(MessageTooLarge, match="at most 4608") as caught:
        run(one.send(MESSAGE, later()), [])
    assert (caught.value.size, caught.value.limit) == (40, 4608)
    assert run(one.send(MESSAGE, later()), [])
    assert one.counts().connects == 1


def test_who_waits_ends_when_the_client_is_closed() -> None:
    """A program that ends must not wait for the gateway."""
    one = connection("unix_stream", [errno.ENOENT])
    steps = one.send(MESSAGE, later())
    next(steps)
    one.closed = True
    with pytest.raises(ClientClosed):
        next(steps)
