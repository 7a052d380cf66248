"""One open connection: pipelining, deadlines, cancelled requests, and all ways to close."""

from __future__ import annotations

import asyncio
from random import Random
from unittest.mock import Mock

import pytest

from aiokq import wire
from aiokq.connection.framing import FIRST_STEP_BYTES
from aiokq.connection.node import Purpose
from aiokq.connection.options import ConnectionOptions
from aiokq.connection.sasl.authentication import SaslSession
from aiokq.connection.session_renewal import SessionRenewal
from aiokq.core.errors import (
    Closed,
    ConnectionLost,
    ProtocolError,
    RequestTimeout,
    UnsupportedVersion,
)
from tests.peers.scripted import Close, Delay, Raw, Silence
from tests.sim.harness.simulation import Simulation, run
from tests.unit.connection.support import BROKER, metadata, one_broker, produce


def named(cluster_id: str) -> wire.MetadataResponse:
    return wire.MetadataResponse(cluster_id=cluster_id)


def test_requests_are_pipelined_and_answered_in_order() -> None:
    """Five requests are sent before the first response; each gets its own response."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (_, kafka, node):
            connection = await node.connection(Purpose.CONTROL)
            kafka[1].script(wire.MetadataRequest, *(named(f"c{n}") for n in range(5)))
            futures = [connection.send(metadata()) for _ in range(5)]
            assert connection.in_flight == 5
            assert [(await f).cluster_id for f in futures] == ["c0", "c1", "c2", "c3", "c4"]
            assert connection.in_flight == 0

    run(1, main)


def test_a_cancelled_wait_drops_only_its_own_response() -> None:
    """The response to a cancelled request still arrives and must not go to the next request."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (_, kafka, node):
            connection = await node.connection(Purpose.CONTROL)
            kafka[1].script(wire.MetadataRequest, Delay(1.0, named("late")), named("next"))
            first = connection.send(metadata())
            second = connection.send(metadata())
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(first, 0.1)
            assert (await second).cluster_id == "next"
            assert not connection.closed

    run(1, main)


def test_a_request_past_its_deadline_closes_the_connection() -> None:
    """A hung broker sends no later responses either, so the other requests fail too."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (world, kafka, node):
            connection = await node.connection(Purpose.CONTROL)
            kafka[1].script(wire.MetadataRequest, Silence())
            started = world.loop.time()
            late = connection.send(metadata(), timeout=2.0)
            behind = connection.send(metadata(), timeout=60.0)
            with pytest.raises(RequestTimeout, match=r"no answer from .* within 2 s") as caught:
                await late
            assert caught.value.origin == "client"
            assert (caught.value.api, caught.value.node) == ("Metadata", 1)
            with pytest.raises(ConnectionLost, match="Metadata was not answered"):
                await behind
            assert 2.0 <= world.loop.time() - started < 2.1
            assert connection.closed

    run(1, main)


def test_a_shorter_deadline_after_a_longer_one_is_kept() -> None:
    """The timer set for the first request must not delay the timeout of the second."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (world, kafka, node):
            connection = await node.connection(Purpose.CONTROL)
            kafka[1].script(wire.MetadataRequest, Silence())
            started = world.loop.time()
            first = connection.send(metadata(), timeout=60.0)
            with pytest.raises(RequestTimeout):
                await connection.send(metadata(), timeout=1.0)
            assert world.loop.time() - started < 1.1
            with pytest.raises(ConnectionLost):
                await first

    run(1, main)


def test_a_response_in_time_removes_the_deadline() -> None:
    """Deadlines of completed requests must not close a connection that is reused."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (_, _, node):
            connection = await node.connection(Purpose.CONTROL)
            for _ in range(20):
                await connection.request(metadata(), timeout=1.0)
                await asyncio.sleep(0.9)
            assert not connection.closed

    run(1, main)


def test_a_lost_connection_fails_everything_in_flight_with_its_own_error() -> None:
    """The broker dies: each request fails with an error that names its API and says that the
    request may have been processed.
    """

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (_, kafka, node):
            connection = await node.connection(Purpose.PRODUCE)
            kafka[1].script(wire.MetadataRequest, Silence())
            futures = [connection.send(metadata()) for _ in range(3)]
            await asyncio.sleep(0.1)
            simulation.network.kill(BROKER)
            errors = await asyncio.gather(*futures, return_exceptions=True)
            assert [type(e) for e in errors] == [ConnectionLost] * 3
            assert len(set(map(id, errors))) == 3
            assert all(e.may_have_been_written for e in errors)
            with pytest.raises(ConnectionLost, match="was not sent") as caught:
                connection.send(metadata())
            assert caught.value.may_have_been_written is False

    run(1, main)


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (Raw(b"\0\0\0\x08" + (77).to_bytes(4, "big") + b"\0\0\0\0"), "correlation id 77"),
        (Raw((2**30).to_bytes(4, "big")), "above the limit"),
        (Raw(b"\xff\xff\xff\xff"), "negative size"),
        (Raw(b"\0\0\0\0"), "no correlation id"),
    ],
)
def test_an_invalid_response_closes_the_connection_and_is_described(raw: Raw, error: str) -> None:
    """After an invalid response, perhaps of a broken proxy, no later response can be trusted."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (_, kafka, node):
            connection = await node.connection(Purpose.CONTROL)
            kafka[1].script(wire.MetadataRequest, raw)
            with pytest.raises(ConnectionLost, match=error):
                await connection.request(metadata())
            assert isinstance(connection.error, ProtocolError)
            assert isinstance(node.last_error, ProtocolError)

    run(1, main)


def test_the_announced_size_of_a_response_allocates_little() -> None:
    """A broker that announced 100 MB and sent nothing more took 100 MB of each connection."""

    async def main(simulation: Simulation) -> None:
        options = ConnectionOptions(request_timeout=1.0)
        async with one_broker(simulation, options) as (_, kafka, node):
            connection = await node.connection(Purpose.CONTROL)
            announced = options.max_frame_bytes.to_bytes(4, "big")
            kafka[1].script(wire.MetadataRequest, Raw(announced + bytes(100)))
            answer = connection.send(metadata())
            await asyncio.sleep(0.5)
            reader = connection.transport.reader
            assert reader.mid_frame
            assert reader.allocated == 100
            assert len(reader.get_buffer()) == FIRST_STEP_BYTES - 100
            with pytest.raises(RequestTimeout):
                await answer
            await connection.wait_closed()
            assert not reader.mid_frame

    run(1, main)


def test_a_malformed_response_fails_its_request_with_the_decoding_error() -> None:
    """The frame is valid, the message is not; other requests in flight fail with ConnectionLost."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (_, kafka, node):
            connection = await node.connection(Purpose.CONTROL)
            kafka[1].script(
                wire.MetadataRequest,
                lambda request, call: Raw(
                    b"\0\0\0\x05" + call.header.correlation_id.to_bytes(4, "big") + b"\xff"
                ),
            )
            first, second = connection.send(metadata()), connection.send(metadata())
            with pytest.raises(ProtocolError) as caught:
                await first
            assert caught.value.api == "Metadata"
            with pytest.raises(ConnectionLost, match="malformed"):
                await second

    run(1, main)


@pytest.mark.parametrize("where", ["decode", "throttle"])
def test_a_bug_while_a_response_is_decoded_reaches_the_caller(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The request is no longer pending at that point, so without an error its caller would hang."""

    def bug(*args: object) -> None:
        raise ZeroDivisionError("bug")

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (_, _, node):
            connection = await node.connection(Purpose.CONTROL)
            if where == "decode":
                monkeypatch.setattr(connection._protocol, "decode", bug)
            else:
                monkeypatch.setattr("aiokq.connection.connection.throttle_seconds", bug)
            first, second = connection.send(metadata()), connection.send(metadata())
            async with asyncio.timeout(5):
                with pytest.raises(ZeroDivisionError):
                    await first
                with pytest.raises(ConnectionLost):
                    await second
            assert connection.closed

    run(1, main)


def test_a_broker_that_closes_fails_what_is_pending() -> None:
    """A broker closes the connection on an API that it does not accept."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (_, kafka, node):
            await node.request(metadata())
            connection = await node.connection(Purpose.CONTROL)
            kafka[1].script(wire.MetadataRequest, Close())
            with pytest.raises(ConnectionLost, match="closed by the peer"):
                await connection.request(metadata())

    run(1, main)


def test_a_close_on_the_first_request_hints_at_sasl() -> None:
    """A SASL listener responds to ApiVersions and closes the connection on any other request."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (_, kafka, node):
            kafka[1].on(wire.MetadataRequest, Close())
            with pytest.raises(ConnectionLost, match="security_protocol=SASL_PLAINTEXT"):
                await node.request(metadata())
            kafka[1].on(wire.MetadataRequest, Silence())
            connection = await node.connection(Purpose.CONTROL)
            with pytest.raises(RequestTimeout):
                await connection.request(metadata(), timeout=1.0)
            assert "SASL" not in str(connection.error)  # a timeout is not a reason for the hint

    run(1, main)


def test_closing_fails_pending_requests_and_is_idempotent() -> None:
    """The application exits while requests are in flight: none may wait for ever."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (_, kafka, node):
            connection = await node.connection(Purpose.CONTROL)
            kafka[1].script(wire.MetadataRequest, Silence())
            pending = connection.send(metadata())
            await asyncio.gather(connection.close(), connection.close())
            with pytest.raises(ConnectionLost, match="closed by this client"):
                await pending
            assert isinstance(connection.error, Closed)
            assert node.up  # the client closed the connection, so the broker is not marked down

    run(1, main)


def test_closing_does_not_wait_for_a_peer_that_reads_nothing() -> None:
    """With a megabyte unsent to a machine that is off, close() takes one second."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (world, _, node):
            connection = await node.connection(Purpose.PRODUCE)
            simulation.network.power_off(BROKER)
            for _ in range(4):
                connection.send_no_reply(produce(1_000_000))
            started = world.loop.time()
            await connection.close()
            assert world.loop.time() - started <= 1.1
            assert connection.closed

    run(1, main)


def test_an_ended_connection_leaves_no_timer_behind() -> None:
    """The connection ended in the same iteration of the loop in which the handshake completed. Its
    idle timer and login timer kept it in memory for up to nine minutes or the session lifetime.
    """

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (world, _, node):

            async def timers() -> int:
                await asyncio.sleep(0.1)  # let the data in flight arrive
                return len(world.loop.timers())

            before = await timers()
            connection = await node.connection(Purpose.CONTROL)
            connection.abort(ConnectionLost("reset"))
            await connection.wait_closed()
            SessionRenewal(connection, Mock(), Random(1), None).begin(SaslSession(0.0, 3600.0))
            connection.ready()
            assert await timers() == before
            connection = await node.connection(Purpose.CONTROL)
            await connection.close()
            assert await timers() == before

    run(1, main)


def test_drain_waits_for_a_slow_peer() -> None:
    """A sender that awaits drain() buffers about a megabyte, not all of its data."""

    async def main(simulation: Simulation) -> None:
        simulation.network.bytes_per_second = 1_000_000
        async with one_broker(simulation) as (_, kafka, node):
            kafka[1].on(wire.ProduceRequest, None)
            kafka[1].versions[0] = (9, 9)
            connection = await node.connection(Purpose.PRODUCE)
            most = 0
            for _ in range(10):
                connection.send_no_reply(produce(500_000))
                await connection.drain()
                most = max(most, connection.transport.unsent)
            assert most <= 1_100_000
            await asyncio.sleep(20)
            assert len(kafka[1].seen_of(wire.ProduceRequest)) == 10

    run(1, main)


def test_drain_ends_with_the_connection() -> None:
    """The peer dies while a sender waits in drain()."""

    async def main(simulation: Simulation) -> None:
        simulation.network.bytes_per_second = 100_000
        async with one_broker(simulation) as (_, _, node):
            connection = await node.connection(Purpose.PRODUCE)
            connection.send_no_reply(produce(5_000_000))
            draining = asyncio.create_task(connection.drain())
            await asyncio.sleep(1)
            assert not draining.done()
            simulation.network.kill(BROKER)
            with pytest.raises(ConnectionLost):
                await draining

    run(1, main)


def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    """The client closes first, because a request would fail if the broker closed the idle
    connection.
    """

    async def main(simulation: Simulation) -> None:
        options = ConnectionOptions(max_idle=10.0)
        async with one_broker(simulation, options) as (_, kafka, node):
            connection = await node.connection(Purpose.CONTROL)
            for _ in range(4):
                await asyncio.sleep(8)
                await connection.request(metadata())
            kafka[1].script(wire.MetadataRequest, Delay(25.0, named("slow")))
            assert (await connection.request(metadata())).cluster_id == "slow"
            await asyncio.sleep(21)
            assert connection.closed
            assert "idle" in str(connection.error)
            assert node.up
            assert kafka[1].connections == 0

    run(1, main)


def test_the_newest_version_that_both_sides_have_is_used() -> None:
    """An old broker, a newer one, and one without a common version."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (_, kafka, node):
            kafka[1].versions[3] = (0, 4)
            kafka[1].versions[0] = (3, 99)
            kafka[1].versions[1] = (90, 99)
            del kafka[1].versions[75]
            connection = await node.connection(Purpose.CONTROL)
            assert connection.version_for(wire.MetadataRequest) == 4
            assert connection.version_for(wire.ProduceRequest) == wire.ProduceRequest.MAX_VERSION
            with pytest.raises(UnsupportedVersion, match="versions 90-99"):
                connection.version_for(wire.FetchRequest)
            with pytest.raises(UnsupportedVersion, match="does not have DescribeTopicPartitions"):
                connection.send(wire.DescribeTopicPartitionsRequest())
            await connection.request(metadata())
            assert kafka[1].seen[-1].version == 4

    run(1, main)


def test_requests_bytes_and_connections_are_counted() -> None:
    """The metrics have requests, latency and bytes per API, and the number of open connections."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (world, _, node):
            for _ in range(3):
                await node.request(metadata())
            counters = world.counters
            assert counters.requests == {"ApiVersions": 1, "Metadata": 3}
            assert counters.request_seconds["Metadata"].count == 3
            assert counters.request_seconds["Metadata"].sum > 0
            assert counters.bytes_sent > 60
            assert counters.bytes_received > 60
            assert (counters.connections.read(), counters.connections_opened) == (1, 1)
            await node.close()
            assert counters.connections.read() == 0

    run(1, main)


def test_the_response_to_a_cancelled_request_is_counted_as_received() -> None:
    """With short timeouts, the metrics showed less traffic than the network."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (world, kafka, node):
            connection = await node.connection(Purpose.CONTROL)
            before = world.counters.bytes_received
            kafka[1].script(wire.MetadataRequest, Delay(0.1, named("late")))
            connection.send(metadata()).cancel()
            await asyncio.sleep(1.0)
            assert world.counters.bytes_received > before

    run(1, main)
