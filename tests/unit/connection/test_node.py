"""The connections to one broker: shared attempts, backoff, addresses and state changes."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from aiokq import wire
from aiokq.connection.node import Node, NodeDown, NodeUp, Purpose
from aiokq.connection.options import ConnectionOptions
from aiokq.core.errors import Closed, ConnectionLost
from tests.peers.scripted import Close, Delay, ScriptedCluster, Silence
from tests.sim.harness.network import Always
from tests.sim.harness.simulation import Simulation, run
from tests.unit.connection.support import BROKER, RawServer, client, metadata, one_broker

FAST = ConnectionOptions(reconnect_backoff=0.1, reconnect_backoff_max=1.0)


def test_all_waiters_share_one_attempt() -> None:
    """A thousand tasks need a broker at once: one connection is made."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (world, kafka, node):
            waiters = [asyncio.create_task(node.connection(Purpose.PRODUCE)) for _ in range(1000)]
            connections = set(await asyncio.gather(*waiters))
            assert len(connections) == 1
            assert world.counters.connections_opened == 1
            assert kafka[1].connections == 1

    run(1, main)


def test_a_cancelled_waiter_does_not_cancel_the_attempt_for_others() -> None:
    """One caller times out; the others get the connection from the same attempt."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (world, _, node):
            first = asyncio.create_task(node.connection(Purpose.CONTROL))
            second = asyncio.create_task(node.connection(Purpose.CONTROL))
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            assert not (await second).closed
            assert world.counters.connections_opened == 1

    run(1, main)


def test_a_failed_attempt_without_waiters_is_not_an_unretrieved_exception() -> None:
    """All callers were cancelled before the attempt failed; asyncio must not log the exception."""

    async def main(simulation: Simulation) -> None:
        async with client(simulation) as world:
            node = world.node(BROKER, 9092)
            waiter = asyncio.create_task(node.connection(Purpose.CONTROL))
            await asyncio.sleep(0)
            waiter.cancel()
            await asyncio.sleep(1)
            assert isinstance(node.last_error, ConnectionLost)
            await node.close()

    run(1, main)


def test_produce_and_control_requests_use_separate_connections() -> None:
    """A Produce request that waits for replicas must not delay Metadata requests."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (_, kafka, node):
            produce = await node.connection(Purpose.PRODUCE)
            kafka[1].script(wire.MetadataRequest, Delay(5.0, wire.MetadataResponse()))
            slow = produce.send(metadata())
            await asyncio.sleep(0.01)
            await asyncio.wait_for(node.request(metadata()), 1.0)
            assert node.connected(Purpose.PRODUCE) is produce
            assert node.connected(Purpose.CONTROL) is not produce
            await slow

    run(1, main)


def test_attempts_to_connect_to_a_dead_broker_back_off() -> None:
    """While a broker is down for a minute, the backoff doubles up to the maximum."""

    async def main(simulation: Simulation) -> None:
        async with client(simulation) as world:
            node = world.node(BROKER, 9092, options=FAST)
            times = []
            while world.loop.time() < 60:
                with pytest.raises(ConnectionLost, match=r"10\.0\.0\.1:9092"):
                    await node.connection(Purpose.CONTROL)
                times.append(world.loop.time())
            gaps = [b - a for a, b in itertools.pairwise(times)]
            assert gaps[0] < 0.15
            assert all(0.8 <= gap <= 1.02 for gap in gaps[5:])
            assert 55 <= len(times) <= 80
            assert len(world.states) == 1  # the broker goes down once, not eighty times
            await node.close()

    run(1, main)


def test_a_broker_that_closes_after_the_handshake_is_not_retried_in_a_loop() -> None:
    """On a SASL listener, or on a broker at its connection limit, connecting succeeds but each
    request fails.
    """

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, FAST) as (world, kafka, node):
            kafka[1].on(wire.MetadataRequest, Close())
            while world.loop.time() < 60:
                with pytest.raises(ConnectionLost):
                    await node.request(metadata())
            assert world.counters.connections_opened < 80

    run(1, main)


def test_the_backoff_is_reset_after_a_success() -> None:
    """After a long outage and a recovery, the next failure is retried soon."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, FAST) as (world, kafka, node):
            await kafka[1].stop()
            for _ in range(8):
                with pytest.raises(ConnectionLost):
                    await node.request(metadata())
            await kafka[1].start()
            await node.request(metadata())
            assert node.last_error is None
            await kafka[1].stop()
            await asyncio.sleep(0.01)
            assert 0 < node.backing_off <= 0.12
            assert [type(s) for s in world.states] == [NodeDown, NodeUp, NodeDown]

    run(1, main)


def test_one_dead_node_never_delays_another() -> None:
    """aiokafka connects under one lock, so the connect timeout of a dead broker delayed all
    requests.
    """

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (world, _, alive):
            simulation.network.partition("10.0.0.7")
            dead = world.node("10.0.0.7", 9092, node_id=2)
            waiting = asyncio.create_task(dead.request(metadata()))
            await asyncio.sleep(0)
            started = world.loop.time()
            await alive.request(metadata())
            assert world.loop.time() - started < 0.1
            with pytest.raises(ConnectionLost, match=r"TCP connection: no answer .* firewall"):
                await waiting
            await dead.close()

    run(1, main)


def test_all_addresses_of_a_name_are_tried() -> None:
    """localhost resolves to ::1 first, but the broker listens only on 127.0.0.1."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (world, kafka, _):
            simulation.network.name("kafka.example", "10.0.0.2", "10.0.0.3", BROKER)
            node = world.node("kafka.example", kafka[1].port, node_id=3)
            await node.request(metadata())
            first = world.network.connections("10.0.0.9")
            # The address that worked is tried first the next time.
            await (await node.connection(Purpose.CONTROL)).close()
            await node.request(metadata())
            assert world.counters.connections_failed == 0
            assert len(first) == 1
            await node.close()

    run(1, main)


def test_an_error_names_every_address_and_what_was_wrong_with_it() -> None:
    """Two addresses fail for two reasons; the error must name both."""

    async def main(simulation: Simulation) -> None:
        network = simulation.network
        network.name("kafka.example", "10.0.0.2", "10.0.0.3")
        await network.at("10.0.0.3").listen(Always(lambda: RawServer(None)), None, 9092)
        async with client(simulation) as world:
            node = world.node("kafka.example", 9092, node_id=-1)
            with pytest.raises(ConnectionLost) as caught:
                await node.request(metadata())
            text = str(caught.value)
            assert "10.0.0.2:9092: Connect" in text
            assert "10.0.0.3:9092: the peer closed the connection on ApiVersions" in text
            assert caught.value.node == "kafka.example:9092"
            await node.close()

    run(1, main)


def test_the_error_for_an_unknown_host_is_readable() -> None:
    """A typo in bootstrap_servers."""

    async def main(simulation: Simulation) -> None:
        async with client(simulation) as world:
            node = world.node("kafak.example", 9092)
            with pytest.raises(ConnectionLost, match=r"unknown host 'kafak\.example'.*bootstrap"):
                await node.request(metadata())
            await node.close()

    run(1, main)


def test_the_setup_timeout_grows_with_failures() -> None:
    """KIP-601: a slow network gets more time with each attempt, up to the maximum."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (world, kafka, node):
            kafka[1].on(wire.ApiVersionsRequest, Silence())
            lasted = []
            for _ in range(4):
                await asyncio.sleep(2)
                started = world.loop.time()
                with pytest.raises(ConnectionLost):
                    await node.request(metadata())
                lasted.append(world.loop.time() - started)
            assert 8 <= lasted[0] <= 12.1
            assert 16 <= lasted[1] <= 24.1
            assert all(24 <= seconds <= 30.1 for seconds in lasted[2:])

    run(1, main)


def test_state_changes_are_reported_once_with_the_reason() -> None:
    """When a killed broker loses three connections, there is one NodeDown, and later one NodeUp."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (world, kafka, node):
            dedicated = node.dedicated("fetch")
            await asyncio.gather(
                node.connection(Purpose.PRODUCE), node.connection(Purpose.CONTROL), dedicated.get()
            )
            assert node.up
            await kafka[1].stop()
            await asyncio.sleep(0.5)
            assert node.up is False
            await kafka[1].start()
            await node.request(metadata())
            up, down, again = world.states
            assert up == again == NodeUp(1, BROKER, kafka[1].port)
            assert isinstance(down, NodeDown)
            assert "closed by the peer" in str(down.reason)
            assert world.counters.errors == {"ConnectionLost": 1}
            await dedicated.close()

    run(1, main)


def test_dedicated_connections_block_only_their_owner() -> None:
    """A waiting fetch delays neither Metadata requests nor another consumer's fetch."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (_, kafka, node):
            one, two = node.dedicated("fetch"), node.dedicated("fetch")
            kafka[1].script(wire.MetadataRequest, Delay(30.0, wire.MetadataResponse()))
            slow = asyncio.create_task(one.request(metadata(), timeout=60))
            await asyncio.sleep(0.1)
            await asyncio.wait_for(two.request(metadata()), 1)
            await asyncio.wait_for(node.request(metadata()), 1)
            assert node.in_flight == 1
            await one.close()
            with pytest.raises(ConnectionLost):
                await slow
            with pytest.raises(Closed):
                await one.get()
            await two.request(metadata())

    run(1, main)


def test_a_throttle_delays_the_next_request_of_the_node() -> None:
    """KIP-219: the broker does not read from a throttled connection, so requests would time out."""

    async def main(simulation: Simulation) -> None:
        heard: list[tuple[Node, float]] = []
        async with one_broker(simulation) as (world, kafka, _):
            node = world.node(
                BROKER, kafka[1].port, on_throttle=lambda n, seconds: heard.append((n, seconds))
            )
            kafka[1].script(wire.MetadataRequest, wire.MetadataResponse(throttle_time_ms=3000))
            await node.request(metadata())
            started = world.loop.time()
            await node.request(metadata())
            assert 3.0 <= world.loop.time() - started < 3.1
            assert heard == [(node, 3.0)]
            assert world.counters.throttle_seconds == 3.0
            await node.close()

    run(1, main)


def test_a_broker_that_moved_is_followed() -> None:
    """The broker's address changes: old connections are closed, new ones use the new address."""

    async def main(simulation: Simulation) -> None:
        other = "10.0.0.5"
        async with (
            one_broker(simulation) as (world, kafka, node),
            ScriptedCluster(environment=simulation.environment(other), host=other) as moved,
        ):
            old = await node.connection(Purpose.CONTROL)
            await node.connection(Purpose.PRODUCE)
            node.update(BROKER, kafka[1].port)
            assert not old.closed
            node.update(other, moved[1].port)
            await node.request(metadata())
            await asyncio.sleep(0.1)
            assert old.closed
            assert kafka[1].connections == 0
            assert moved[1].connections == 1
            assert all(isinstance(state, NodeUp) for state in world.states)

    run(1, main)


def test_a_broker_that_moves_during_an_attempt_is_tried_at_its_new_address() -> None:
    """The attempt to connect to the old address is restarted, and the caller does not notice."""

    async def main(simulation: Simulation) -> None:
        other = "10.0.0.5"
        async with (
            one_broker(simulation) as (_, kafka, node),
            ScriptedCluster(environment=simulation.environment(other), host=other) as moved,
        ):
            attempt = asyncio.create_task(node.connection(Purpose.CONTROL))
            await asyncio.sleep(0.0005)
            node.update(other, moved[1].port)
            assert not (await attempt).closed
            await node.request(metadata())
            await asyncio.sleep(0.1)
            assert moved[1].connections == 1
            assert kafka[1].connections == 0

    run(1, main)


@pytest.mark.parametrize("silent", [False, True])
def test_an_attempt_at_an_old_address_ends_when_the_broker_moves(silent: bool) -> None:
    """The attempt must not wait for a long backoff or for the timeout of the old machine."""

    async def main(simulation: Simulation) -> None:
        other = "10.0.0.5"
        options = ConnectionOptions(
            reconnect_backoff=60.0, reconnect_backoff_max=60.0, setup_timeout=60.0
        )
        async with (
            one_broker(simulation, options) as (world, kafka, node),
            ScriptedCluster(environment=simulation.environment(other), host=other) as moved,
        ):
            if silent:
                kafka[1].on(wire.ApiVersionsRequest, Silence())
            else:
                node.update(BROKER, 1)
                with pytest.raises(ConnectionLost, match=f"{BROKER}:1"):
                    await node.connection(Purpose.CONTROL)
                assert node.backing_off > 40
            attempt = asyncio.create_task(node.connection(Purpose.CONTROL))
            await asyncio.sleep(1)
            assert not attempt.done()
            start = world.loop.time()
            for turns in (0, 1, 2, 3):  # the broker moves while the attempt is cancelled
                node.update(f"10.0.1.{turns}", 1)
                for _ in range(turns):
                    await asyncio.sleep(0)
            node.update(other, moved[1].port)
            assert not (await attempt).closed
            assert world.loop.time() - start < 1
            assert world.counters.connections_failed == (0 if silent else 1)
            await asyncio.sleep(0.1)
            assert kafka[1].connections == 0

    run(1, main)


def test_closing_ends_attempts_and_waiters() -> None:
    """Waiters get Closed at once."""

    async def main(simulation: Simulation) -> None:
        simulation.network.partition(BROKER)
        async with client(simulation) as world:
            node = world.node(BROKER, 9092)
            waiter = asyncio.create_task(node.connection(Purpose.CONTROL))
            await asyncio.sleep(1)
            await asyncio.gather(node.close(), node.close())
            with pytest.raises(Closed):
                await waiter
            with pytest.raises(Closed):
                await node.request(metadata())
            with pytest.raises(Closed):
                await node.dedicated("late").get()

    run(1, main)


def test_closing_leaves_nothing_open() -> None:
    """All sockets and tasks, including a dedicated connection that was never closed."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (world, _, node):
            await node.connection(Purpose.PRODUCE)
            await node.dedicated("fetch").get()
            await node.request(metadata())
            await node.close()
            await asyncio.sleep(0.1)
            assert simulation.network.connections(BROKER) == []
            assert world.counters.connections.read() == 0
            assert all(isinstance(state, NodeUp) for state in world.states)

    run(1, main)
