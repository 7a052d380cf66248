"""The permission matrix on Apache Kafka: the committed recording is what it answers.

With AIOKQ_RECORD=1 the recording is written anew.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from aiokq import wire
from tests.peers import permission_matrix as matrix
from tests.peers.apache_kafka import ApacheKafka, apache_kafka, why_absent

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def guarded() -> Iterator[ApacheKafka]:
    """A node with StandardAuthorizer, whose own connections are those of a super user."""
    reason = why_absent()
    if reason is not None:
        pytest.skip(f"APACHE KAFKA IS NOT TESTED: {reason}")
    with apache_kafka(1, listeners={"SASL": "SASL_PLAINTEXT"}, **matrix.settings()) as kafka:
        yield kafka


class Remote:
    """Apache Kafka, with a blocking connection for each client."""

    def __init__(self, kafka: ApacheKafka) -> None:
        self._kafka = kafka
        self._sockets: dict[str, socket.socket] = {}
        self.texts = {
            str(kafka.directory): "DIRECTORY",
            **{f":{port}": ":PORT" for port in _ports(kafka)},
        }

    async def settled(self) -> None:
        await asyncio.sleep(0.05)

    async def ask(self, user: str, request: Any, version: int) -> Any:
        attempts = 600 if user == matrix.ADMIN and user not in self._sockets else 2
        for _ in range(attempts):
            try:
                return self._exchange(self._connected(user), request, version)
            except ConnectionRefusedError:  # the listener opens a moment after the first one
                await self.settled()
            except (ConnectionError, EOFError):
                self._sockets.pop(user).close()
        return None

    def _connected(self, user: str) -> socket.socket:
        if user not in self._sockets:
            anonymous = user == matrix.ANONYMOUS
            node = matrix.NODE_ID
            port = (
                self._kafka.ports[node] if anonymous else self._kafka.listener_ports[node]["SASL"]
            )
            made = socket.create_connection(("127.0.0.1", port), 30)
            made.settimeout(60)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not anonymous:
                shaken = self._exchange(made, wire.SaslHandshakeRequest(mechanism="PLAIN"), 1)
                assert shaken.error_code == 0
                login = f"\0{user}\0{matrix.PASSWORD}".encode()
                done = self._exchange(made, wire.SaslAuthenticateRequest(auth_bytes=login), 1)
                assert done.error_code == 0, (user, done.error_message)
            self._sockets[user] = made
        return self._sockets[user]

    @staticmethod
    def _exchange(connection: socket.socket, request: Any, version: int) -> Any:
        fragments = wire.encode_request(
            request, version=version, correlation_id=7, client_id=matrix.CLIENT_ID
        )
        connection.sendall(b"".join(fragments))  # type: ignore[arg-type]  # no FileRange
        (size,) = struct.unpack(">i", _read(connection, 4))
        frame = memoryview(bytearray(_read(connection, size)))
        return wire.decode_response(type(request).RESPONSE, frame, version)[1]

    def close(self) -> None:
        for each in self._sockets.values():
            each.close()


def _ports(kafka: ApacheKafka) -> list[int]:
    node = matrix.NODE_ID
    return [
        kafka.ports[node],
        kafka.controller_ports[node],
        *kafka.listener_ports[node].values(),
    ]


def _read(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            raise EOFError("the connection was closed")
        found += part
    return found


async def _served(peer: Remote) -> dict[int, tuple[int, int]]:
    request = wire.ApiVersionsRequest(client_software_name="c", client_software_version="1")
    response = await peer.ask(matrix.ADMIN, request, 3)
    served = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    from aiokq.broker.handlers import APIS

    both = {}
    for key, (low, high) in served.items():
        if key in APIS:
            low, high = max(low, APIS[key].min_version), min(high, APIS[key].max_version)
            both[key] = (max(low, 3) if key == 0 else low, high)
    return both


@pytest.mark.full
@pytest.mark.timeout(600)
async def test_apache_kafka_answers_as_recorded(guarded: ApacheKafka) -> None:
    peer = Remote(guarded)
    try:
        await matrix.prepare(peer)
        found = await matrix.run(peer, await _served(peer))
    finally:
        peer.close()
    if os.environ.get("AIOKQ_RECORD"):
        matrix.write_recording(found)
    recorded = matrix.recording()
    assert recorded.keys() == found.keys()
    assert list(matrix.all_differences(recorded, found)) == []
