"""What a client's connections do on a bad network, over real sockets and on both event loops."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aiokq import wire
from aiokq.connection.node import Node, Purpose
from aiokq.connection.options import ConnectionOptions
from aiokq.connection.security import security
from aiokq.core.errors import AuthenticationFailed, ConnectionLost, ProtocolError, RequestTimeout
from tests.fault.proxy import FaultProxy
from tests.fault.support import LoopFactory, both_loops, client_tls, node_at, run, server_tls
from tests.peers.scripted import ScriptedCluster, ScriptedTopic
from tests.peers.wrong import listener

QUICK = ConnectionOptions(
    request_timeout=5.0, setup_timeout=1.0, reconnect_backoff=0.02, reconnect_backoff_max=0.1
)


def metadata() -> wire.MetadataRequest:
    return wire.MetadataRequest(topics=None)


@asynccontextmanager
async def behind_a_proxy(
    options: ConnectionOptions = QUICK,
) -> AsyncIterator[tuple[ScriptedCluster, FaultProxy, Node]]:
    async with (
        ScriptedCluster() as kafka,
        FaultProxy("127.0.0.1", kafka[1].port) as proxy,
        node_at("127.0.0.1", proxy.port, options) as node,
    ):
        kafka.topics["orders"] = ScriptedTopic(leaders=[1] * 200)
        yield kafka, proxy, node


@both_loops
def test_a_reset_connection_fails_its_requests_and_is_made_anew(
    loop_factory: LoopFactory,
) -> None:
    """A firewall drops the connection: requests in flight fail, and the next request succeeds."""

    async def main() -> None:
        async with behind_a_proxy() as (_, proxy, node):
            await node.request(metadata())
            proxy.stall()
            connection = await node.connection(Purpose.CONTROL)
            pending = [connection.send(metadata()) for _ in range(5)]
            await asyncio.sleep(0.05)
            proxy.cut()
            for outcome in await asyncio.gather(*pending, return_exceptions=True):
                assert isinstance(outcome, ConnectionLost)
            proxy.resume()
            await node.request(metadata())
            assert proxy.accepted == 2

    run(loop_factory, main)


@both_loops
def test_responses_that_come_byte_by_byte_are_whole(loop_factory: LoopFactory) -> None:
    """Single bytes are the worst possible segmentation, here in both directions."""

    async def main() -> None:
        async with behind_a_proxy() as (_, proxy, node):
            proxy.to_client.piece = proxy.to_server.piece = 1
            response = await node.request(metadata())
            assert len(response.topics[0].partitions) == 200

    run(loop_factory, main)


@both_loops
def test_a_response_cut_in_the_middle_is_a_lost_connection(loop_factory: LoopFactory) -> None:
    """The broker dies while it responds: half a response is no response."""

    async def main() -> None:
        async with behind_a_proxy() as (_, proxy, node):
            await node.request(metadata())
            proxy.to_client.limit = proxy.to_client.passed + 1000
            with pytest.raises(ConnectionLost):
                await node.request(metadata())
            proxy.to_client.limit = None
            await node.request(metadata())

    run(loop_factory, main)


@both_loops
def test_a_half_open_connection_is_found_by_the_deadline(loop_factory: LoopFactory) -> None:
    """The broker's machine is gone without a FIN: TCP alone would wait for fifteen minutes."""

    async def main() -> None:
        async with behind_a_proxy() as (_, proxy, node):
            await node.request(metadata())
            proxy.half_open()
            started = time.monotonic()
            with pytest.raises(RequestTimeout, match=r"within 0\.3 s"):
                await node.request(metadata(), timeout=0.3)
            assert 0.25 < time.monotonic() - started < 2.0
            await node.request(metadata())

    run(loop_factory, main)


@both_loops
def test_a_slow_handshake_is_given_more_time_each_try(loop_factory: LoopFactory) -> None:
    """On a bad network the first attempt times out; a later one has twice the time (KIP-601)."""

    async def main() -> None:
        options = ConnectionOptions(
            setup_timeout=0.2, setup_timeout_max=5.0, reconnect_backoff=0.01
        )
        async with behind_a_proxy(options) as (_, proxy, node):
            proxy.to_client.delay = 0.5
            with pytest.raises(ConnectionLost, match="no answer within"):
                await node.request(metadata())
            for _ in range(3):
                try:
                    await node.request(metadata())
                    break
                except ConnectionLost:
                    continue
            else:
                pytest.fail("the time allowed does not grow")

    run(loop_factory, main)


@both_loops
def test_large_requests_pass_a_slow_line_whole(loop_factory: LoopFactory) -> None:
    """Megabytes pass in pieces of 4,000 bytes: writes block, and nothing is lost or mixed up."""

    async def main() -> None:
        async with behind_a_proxy() as (kafka, proxy, node):
            kafka[1].on(wire.ProduceRequest, wire.ProduceResponse())
            proxy.to_server.piece = 4000
            connection = await node.connection(Purpose.PRODUCE)
            bodies = [bytes([n]) * 700_000 for n in range(6)]
            futures = []
            for body in bodies:
                data = wire.PartitionProduceData(index=0, records=body)
                topic = wire.TopicProduceData(name="orders", partition_data=[data])
                futures.append(
                    connection.send(
                        wire.ProduceRequest(acks=1, topic_data=[topic]), timeout=20, version=9
                    )
                )
                await connection.drain()
            await asyncio.gather(*futures)
            seen = [
                bytes(request.topic_data[0].partition_data[0].records)  # type: ignore[arg-type]
                for request in kafka[1].seen_of(wire.ProduceRequest)
            ]
            assert seen == bodies

    run(loop_factory, main)


@both_loops
def test_nothing_listening_is_said_with_the_address(loop_factory: LoopFactory) -> None:
    """The broker is not running."""

    async def main() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            async with node_at("127.0.0.1", port, QUICK) as node:
                with pytest.raises(ConnectionLost, match=f"127.0.0.1:{port}.*refused|Connect"):
                    await node.request(metadata())

    run(loop_factory, main)


@both_loops
def test_a_name_that_no_resolver_knows_is_said_in_words(loop_factory: LoopFactory) -> None:
    """RFC 6761 reserves .invalid: it never resolves."""

    async def main() -> None:
        async with node_at("kafka.invalid", 9092, QUICK) as node:
            with pytest.raises(ConnectionLost, match=r"unknown host 'kafka\.invalid'"):
                await node.request(metadata())
        async with node_at("a" * 64 + ".example", 9092, QUICK) as node:
            with pytest.raises(ConnectionLost, match="unknown host"):
                await node.request(metadata())

    run(loop_factory, main)


@both_loops
def test_localhost_works_where_only_ipv4_listens(loop_factory: LoopFactory) -> None:
    """localhost resolves to ::1 first on many machines; the broker listens on 127.0.0.1."""

    async def main() -> None:
        async with ScriptedCluster() as kafka, node_at("localhost", kafka[1].port) as node:
            await node.request(metadata())

    run(loop_factory, main)


@both_loops
def test_a_web_server_is_called_by_its_name(loop_factory: LoopFactory) -> None:
    """bootstrap_servers has the port of the admin page."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with node_at("127.0.0.1", port, QUICK) as node:
            with pytest.raises(ProtocolError, match="HTTP"):
                await node.request(metadata())
        server.close()

    run(loop_factory, main)


# -- TLS


@asynccontextmanager
async def over_tls(options: ConnectionOptions) -> AsyncIterator[Node]:
    async with ScriptedCluster(ssl=server_tls()) as kafka:
        kafka.topics["orders"] = ScriptedTopic(leaders=[1] * 5000)
        async with node_at("localhost", kafka[1].port, options) as node:
            yield node


@both_loops
def test_tls_works_with_large_responses(loop_factory: LoopFactory) -> None:
    """Large frames pass through TLS records."""

    async def main() -> None:
        options = ConnectionOptions(security=security("SSL", ssl_context=client_tls()))
        async with over_tls(options) as node:
            for _ in range(3):
                response = await node.request(metadata())
                assert len(response.topics[0].partitions) == 5000

    run(loop_factory, main)


@both_loops
def test_a_certificate_nobody_vouches_for_is_an_authentication_error(
    loop_factory: LoopFactory,
) -> None:
    """A self-signed certificate without ssl_cafile: a retry would not help."""

    async def main() -> None:
        options = ConnectionOptions(
            security=security("SSL", ssl_context=client_tls(trusting=False))
        )
        async with over_tls(options) as node:
            with pytest.raises(AuthenticationFailed, match="ssl_cafile"):
                await node.request(metadata())

    run(loop_factory, main)


@both_loops
def test_a_listener_that_wants_a_certificate_of_ours_says_so(loop_factory: LoopFactory) -> None:
    """With TLS 1.3 the client has completed its handshake before the refusal comes as an alert."""
    demanding = server_tls()
    demanding.verify_mode = ssl.CERT_REQUIRED

    def refuse(connection: socket.socket) -> None:
        with demanding.wrap_socket(
            connection, server_side=True, do_handshake_on_connect=False
        ) as encrypted:
            with pytest.raises(ssl.SSLError):
                encrypted.do_handshake()
            encrypted.shutdown(socket.SHUT_WR)
            while socket.socket.recv(encrypted, 1000):
                pass

    async def main() -> None:
        options = ConnectionOptions(security=security("SSL", ssl_context=client_tls()))
        with listener(refuse) as address:
            host, _, port = address.rpartition(":")
            async with node_at(host, int(port), options) as node:
                with pytest.raises(AuthenticationFailed, match="ssl_certfile"):
                    await node.request(metadata())

    run(loop_factory, main)


@both_loops
def test_a_plaintext_client_on_a_tls_port_is_told(loop_factory: LoopFactory) -> None:
    """security_protocol is missing: the TLS server sends an alert or closes the connection."""

    async def main() -> None:
        async with over_tls(QUICK) as node:
            with pytest.raises((ProtocolError, ConnectionLost), match="security_protocol=SSL"):
                await node.request(metadata())

    run(loop_factory, main)


@both_loops
def test_a_tls_client_on_a_plaintext_port_is_told(loop_factory: LoopFactory) -> None:
    """The plaintext listener closes the connection on the ClientHello."""

    async def main() -> None:
        options = ConnectionOptions(
            security=security("SSL", ssl_context=client_tls()), setup_timeout=2.0
        )
        async with ScriptedCluster() as kafka, node_at("localhost", kafka[1].port, options) as node:
            with pytest.raises(ConnectionLost, match="security_protocol=PLAINTEXT"):
                await node.request(metadata())

    run(loop_factory, main)
