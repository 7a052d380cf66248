"""A reader of gateway messages, in the place of a gateway: it keeps what each connection sent."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

LIMIT = 20.0
"""Seconds until something that does not arrive fails a test."""


class Received(NamedTuple):
    """The fields of a message."""

    topic: bytes
    value: bytes
    key: bytes
    partition_key: int | None
    timestamp_ms: int


def decode(message: bytes) -> Received:
    """Decode one whole message; fails if it is malformed."""
    size, api_key, version, flags = struct.unpack_from(">ihhh", message)
    assert (size, version, flags) == (len(message), 0, 0), message[:80]
    assert api_key in (256, 257)
    at, partition_key = 10, None
    if api_key == 257:
        (partition_key,) = struct.unpack_from(">I", message, at)
        at += 4
    (length,) = struct.unpack_from(">h", message, at)
    topic = message[at + 2 : at + 2 + length]
    at += 2 + length
    timestamp_ms, length = struct.unpack_from(">qi", message, at)
    key = message[at + 12 : at + 12 + length]
    at += 12 + length
    (length,) = struct.unpack_from(">i", message, at)
    value = message[at + 4 : at + 4 + length]
    assert at + 4 + length == len(message)
    return Received(topic, value, key, partition_key, timestamp_ms)


def split(data: bytes) -> tuple[list[Received], bytes]:
    """Decode the whole messages of a stream, and return the rest."""
    found = []
    while len(data) >= 4:
        (size,) = struct.unpack_from(">i", data)
        assert size >= 28, data[:80]
        if len(data) < size:
            break
        found.append(decode(data[:size]))
        data = data[size:]
    return found, data


def whole(data: bytearray) -> int:
    """Return the number of whole messages of a stream."""
    count = at = 0
    while at + 4 <= len(data):
        at += int(struct.unpack_from(">i", data, at)[0])
        count += at <= len(data)
    return count


class Reader:
    """Listens on one transport, and reads in a thread of its own once `read` is called.

    Attributes:
        connections: the bytes of each connection, in the order in which they were accepted; for
            datagrams, one list element per datagram.
        ended: number of connections that their programs have closed.
    """

    def __init__(self, transport: str, directory: Path, port: int = 0) -> None:
        self.transport = transport
        self.directory = directory
        self.connections: list[bytearray] = []
        self.ended = 0
        self._accepted: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._stopped = False
        path = str(directory / "gateway.sock")
        if transport == "tcp":
            self.socket = socket.socket()
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind(("127.0.0.1", port))
            self.address: dict[str, str | int] = {"tcp": self.socket.getsockname()[1]}
        else:
            Path(path).unlink(missing_ok=True)
            kind = socket.SOCK_DGRAM if transport == "unix_datagram" else socket.SOCK_STREAM
            self.socket = socket.socket(socket.AF_UNIX, kind)
            self.socket.bind(path)
            self.address = {transport: path}
        if transport != "unix_datagram":
            self.socket.listen(64)

    @property
    def port(self) -> int:
        return int(self.address.get("tcp", 0))

    def read(self) -> None:
        """Begin to read."""
        target = self._datagrams if self.transport == "unix_datagram" else self._accept
        self._start(target)

    def messages(self, count: int) -> list[Received]:
        """Wait for `count` whole messages of all connections, and return them."""
        self.wait_for(lambda: sum(map(whole, list(self.connections))) >= count)
        found = [one for each in self.by_connection() for one in each]
        assert len(found) == count
        return found

    def by_connection(self) -> list[list[Received]]:
        """The whole messages of each connection."""
        return [split(bytes(data))[0] for data in list(self.connections)]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        limit = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < limit, [len(data) for data in self.connections]
            time.sleep(0.005)

    def close(self) -> None:
        """End as a killed gateway does."""
        self._stopped = True
        for one in (self.socket, *self._accepted):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in (self.socket, *self._accepted):
            one.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _datagrams(self) -> None:
        while not self._stopped:
            data = self.socket.recv(1 << 24)
            if data:
                self.connections.append(bytearray(data))

    def _accept(self) -> None:
        while not self._stopped:
            try:
                accepted = self.socket.accept()[0]
            except OSError:
                return
            self._accepted.append(accepted)
            data = bytearray()
            self.connections.append(data)
            self._start(self._stream, accepted, data)

    def _stream(self, accepted: socket.socket, data: bytearray) -> None:
        with contextlib.suppress(OSError):
            while piece := accepted.recv(1 << 16):
                data += piece
            self.ended += 1
