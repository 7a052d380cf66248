"""The harness itself: properties of time, network and seeds on which the simulations rely.

tests/unit/core/test_files.py runs the tests of the real disk with the simulated one.
"""

# ruff: noqa: ASYNC110, PT012  these tests are about loops that poll

from __future__ import annotations

import asyncio
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from aiokq.core.environment import Address
from tests.sim.harness.loop import SimDeadlock, SimLivelock, SimTimeout
from tests.sim.harness.network import Always
from tests.sim.harness.simulation import Simulation, SimulationFailed, run
from tests.sim.harness.transport import HIGH_WATER, WINDOW, Wire

SERVER = "10.0.0.1"
CLIENT = "10.0.0.2"


class Stream(asyncio.Protocol):
    """Records the callbacks that it gets."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.received = bytearray()
        self.events: list[str] = []
        self.lost: Exception | None = None
        self.closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> bool | None:
        self.events.append("eof")
        return None

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.lost = exc
        self.closed.set()


class Echo(Stream):
    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Buffered(asyncio.BufferedProtocol):
    """Reads through a buffer of seven bytes."""

    def __init__(self) -> None:
        self.buffer = bytearray(7)
        self.received = bytearray()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]
        if len(self.received) == 70:
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(1, self.transport.resume_reading)


async def pair(world: Simulation, server=Stream, client=Stream) -> tuple[Stream, Stream, Wire]:
    """Return the protocols of a connected client and server, and their wire."""
    accepted: list[Stream] = []

    def accept() -> Stream:
        accepted.append(server())
        return accepted[-1]

    await world.network.at(SERVER).listen(Always(accept), None, 9092)
    _, protocol = await world.network.at(CLIENT).connect(client, Address(SERVER, 9092))
    return protocol, accepted[0], world.network.wires[-1]


# -- time ----------------------------------------------------------------------------------


def test_time_jumps_to_the_next_timer():
    """Testing an hour of retries takes no real time."""

    async def main(world: Simulation) -> list[float]:
        times = [world.clock.monotonic()]
        await asyncio.sleep(3599)
        times.append(world.clock.monotonic())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await asyncio.get_running_loop().create_future()
        times.append(world.clock.monotonic())
        return times

    outcome = run(1, main)
    assert outcome.value == [0.0, 3599.0, 3599.5]
    assert outcome.duration == 3599.5


def test_timestamps_follow_the_virtual_time():
    """Record timestamps and timers must agree."""

    async def main(world: Simulation) -> int:
        start = world.clock.timestamp_ms()
        await asyncio.sleep(1.5)
        return world.clock.timestamp_ms() - start

    assert run(1, main).value == 1500


def test_a_deadlock_is_raised_and_names_the_waiting_tasks():
    """Otherwise the test suite would hang without a message."""

    async def main(world: Simulation) -> None:
        async def stuck() -> None:
            await asyncio.get_running_loop().create_future()

        asyncio.create_task(stuck(), name="the stuck one")  # noqa: RUF006
        await asyncio.get_running_loop().create_future()

    with pytest.raises(SimDeadlock, match="the stuck one at stuck"):
        run(1, main)


def test_an_endless_loop_without_time_is_raised():
    """It finds retries without backoff, which real time would hide."""

    async def main(world: Simulation) -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(SimLivelock):
        run(1, main)


def test_a_run_that_takes_too_much_virtual_time_is_raised():
    """A client that retries for ever does not deadlock."""

    async def main(world: Simulation) -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(SimTimeout):
        run(1, main, limit=100)


def test_an_unnoticed_failure_fails_the_run():
    """Simulations must find tasks that fail unnoticed."""

    async def main(world: Simulation) -> None:
        async def fail() -> None:
            raise ValueError("unseen")

        asyncio.create_task(fail())  # noqa: RUF006
        await asyncio.sleep(1)

    with pytest.raises(SimulationFailed, match="unseen"):
        run(1, main)


def test_the_executor_runs_inline():
    """A thread would finish at a random moment."""

    async def main(world: Simulation) -> list[str]:
        loop = asyncio.get_running_loop()
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)
        return [await loop.run_in_executor(None, "x".upper)]

    assert run(1, main).value == ["X"]


def test_tasks_are_cancelled_in_the_same_order_in_every_run():
    """asyncio keeps tasks in sets, whose order depends on addresses."""

    async def main(world: Simulation) -> list[int]:
        ended: list[int] = []

        async def child(number: int) -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended.append(number)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1), asyncio.TaskGroup() as group:
                for number in range(50):
                    group.create_task(child(number))
        return ended

    garbage = [object() for _ in range(1000)]
    first = run(1, main).value
    del garbage
    assert run(1, main).value == first


# -- network -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_complete_and_in_order_in_any_segments(seed: int):
    """TCP guarantees nothing else; frames must not depend on segment sizes."""
    payload = random.Random(seed).randbytes(3_000_000)

    async def main(world: Simulation) -> bytes:
        client, server, _ = await pair(world)
        client.transport.writelines([payload[:10], payload[10:2_000_000], payload[2_000_000:]])
        client.transport.close()
        await server.closed.wait()
        assert server.events[-2:] == ["eof", "lost"]
        assert server.lost is None
        return bytes(server.received)

    assert run(seed, main).value == payload


def test_a_buffered_protocol_reads_through_its_own_buffer_and_can_pause():
    """The connection layer reads this way."""

    async def main(world: Simulation) -> None:
        client, server, _ = await pair(world, server=Buffered)
        client.transport.write(bytes(range(100)))
        await asyncio.sleep(0.5)
        assert len(server.received) == 70
        await asyncio.sleep(1)
        assert server.received == bytes(range(100))

    run(3, main)


def test_a_reader_that_stops_pauses_the_writer():
    """Without backpressure a slow consumer would make the broker's memory grow."""

    async def main(world: Simulation) -> None:
        client, server, _ = await pair(world)
        server.transport.pause_reading()
        client.transport.write(bytes(WINDOW + HIGH_WATER + 1))
        await asyncio.sleep(60)
        assert client.events == ["made", "pause"]
        assert client.transport.get_write_buffer_size() == HIGH_WATER + 1
        assert not server.received
        server.transport.resume_reading()
        await asyncio.sleep(1)
        assert client.events == ["made", "pause", "resume"]
        assert len(server.received) == WINDOW + HIGH_WATER + 1

    run(1, main)


def test_close_flushes_and_abort_does_not():
    """A clean shutdown must not lose the last response."""

    async def main(world: Simulation) -> None:
        client, server, _ = await pair(world)
        client.transport.write(bytes(WINDOW * 2))
        client.transport.close()
        client.transport.write(b"after close")
        await server.closed.wait()
        assert len(server.received) == WINDOW * 2

        client, server = await another(world, server)
        client.transport.write(bytes(WINDOW * 2))
        client.transport.abort()
        await server.closed.wait()
        assert isinstance(server.lost, ConnectionResetError)
        assert len(server.received) <= WINDOW
        assert client.lost is None

    async def another(world: Simulation, old: Stream) -> tuple[Stream, Stream]:
        accepted: list[Stream] = []
        await world.network.at(SERVER).listen(
            Always(lambda: accepted.append(Stream()) or accepted[-1]), None, 9093
        )
        _, client = await world.network.at(CLIENT).connect(Stream, Address(SERVER, 9093))
        return client, accepted[0]

    run(1, main)


def test_writing_to_a_peer_that_closed_is_a_reset():
    """A kernel responds with a reset to data for a closed socket."""

    async def main(world: Simulation) -> None:
        class Stays(Stream):
            def eof_received(self) -> bool | None:
                return True

        client, server, _ = await pair(world, client=Stays)
        server.transport.close()
        await asyncio.sleep(1)
        assert not client.closed.is_set()
        client.transport.write(b"anyone?")
        await client.closed.wait()
        assert isinstance(client.lost, ConnectionResetError)

    run(1, main)


def test_addresses_and_names():
    """Protocols ask their transport for the peer's address."""

    async def main(world: Simulation) -> None:
        client, server, _ = await pair(world)
        assert client.transport.get_extra_info("peername") == (SERVER, 9092)
        assert server.transport.get_extra_info("peername")[0] == CLIENT
        assert client.transport.get_extra_info("socket") is None
        network = world.network.at(CLIENT)
        world.network.name("kafka", "10.0.0.1", "10.0.0.9")
        assert await network.resolve("kafka", 1) == [
            Address("10.0.0.1", 1),
            Address("10.0.0.9", 1),
        ]
        with pytest.raises(socket.gaierror):
            await network.resolve("nowhere", 1)
        world.network.fail_resolve("kafka", times=1)
        with pytest.raises(socket.gaierror):
            await network.resolve("kafka", 1)
        assert len(await network.resolve("kafka", 1)) == 2

    run(1, main)


def test_refused_taken_and_foreign_addresses_are_os_errors():
    """They are the errors of a user's first mistakes."""

    async def main(world: Simulation) -> None:
        here = world.network.at(SERVER)
        with pytest.raises(ConnectionRefusedError):
            await here.connect(Stream, Address("127.0.0.1", 9092))
        listener = await here.listen(Always(Stream), "127.0.0.1", 0)
        await here.connect(Stream, Address("127.0.0.1", listener.port))
        with pytest.raises(ConnectionRefusedError):  # it listens on the loopback interface only
            await world.network.at(CLIENT).connect(Stream, Address(SERVER, listener.port))
        with pytest.raises(OSError, match="in use"):
            await here.listen(Always(Stream), None, listener.port)
        with pytest.raises(OSError, match="assign"):
            await here.listen(Always(Stream), "10.9.9.9", 0)
        listener.close()
        await listener.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await here.connect(Stream, Address("127.0.0.1", listener.port))

    run(1, main)


def test_a_partition_holds_bytes_and_connects_until_it_heals():
    """TCP retransmits: data is delayed but neither lost nor reordered."""

    async def main(world: Simulation) -> None:
        client, server, _ = await pair(world)
        for number in range(20):
            client.transport.write(bytes([number]))
            if number == 10:
                world.network.partition(SERVER)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await world.network.at(CLIENT).connect(Stream, Address(SERVER, 9092))
        assert len(server.received) < 20
        client.transport.write(bytes([20]))
        world.network.heal()
        client.transport.write(bytes([21]))
        await asyncio.sleep(1)
        assert server.received == bytes(range(22))
        await world.network.at(CLIENT).connect(Stream, Address(SERVER, 9092))

    for seed in range(5):
        run(seed, main)


def test_a_partition_can_lie_between_two_machines_only():
    """The client reaches one broker but not the other."""

    async def main(world: Simulation) -> None:
        network = world.network
        network.partition(CLIENT, SERVER)
        assert network.separated(CLIENT, SERVER)
        assert network.separated(SERVER, CLIENT)
        assert not network.separated(CLIENT, "10.0.0.3")
        network.heal()
        network.partition(SERVER)
        assert network.separated("10.0.0.3", SERVER)
        assert not network.separated(SERVER, SERVER)

    run(1, main)


def test_a_cut_connection_is_reset_at_both_ends():
    """For example when a router has lost its state."""

    async def main(world: Simulation) -> None:
        client, server, wire = await pair(world)
        wire.cut()
        await asyncio.gather(client.closed.wait(), server.closed.wait())
        assert isinstance(client.lost, ConnectionResetError)
        assert isinstance(server.lost, ConnectionResetError)
        assert not world.network.connections()

    run(1, main)


def test_a_dropped_connection_is_silent():
    """Only the application's own timeout notices a half-open connection."""

    async def main(world: Simulation) -> None:
        client, server, wire = await pair(world, server=Echo)
        client.transport.write(b"heard")
        await asyncio.sleep(1)
        assert client.received == b"heard"
        wire.drop()
        client.transport.write(b"lost")
        await asyncio.sleep(600)
        assert client.received == b"heard"
        assert not client.closed.is_set()
        assert not server.closed.is_set()

    run(1, main)


def test_delays_refusals_and_killed_machines():
    """Tests of recovery use these faults."""

    async def main(world: Simulation) -> None:
        client, server, _ = await pair(world)
        world.network.delay_host(SERVER, 5)
        client.transport.write(b"slow")
        await asyncio.sleep(4)
        assert not server.received
        await asyncio.sleep(2)
        assert server.received == b"slow"
        world.network.refuse(SERVER)
        with pytest.raises(ConnectionRefusedError):
            await world.network.at(CLIENT).connect(Stream, Address(SERVER, 9092))
        world.network.heal()
        world.kill(SERVER)
        await client.closed.wait()
        assert isinstance(client.lost, ConnectionResetError)
        assert not server.closed.is_set()
        with pytest.raises(ConnectionRefusedError):
            await world.network.at(CLIENT).connect(Stream, Address(SERVER, 9092))

    run(1, main)


def test_a_powered_off_machine_leaves_half_open_connections():
    """No machine is left that could send a reset."""

    async def main(world: Simulation) -> None:
        client, _, _ = await pair(world)
        world.power_cut(SERVER)
        client.transport.write(b"anyone?")
        await asyncio.sleep(600)
        assert not client.closed.is_set()

    run(1, main)


def test_a_raising_protocol_loses_its_connection_and_is_reported():
    """As in asyncio, the connection does not stay open after a failed callback."""

    class Broken(Stream):
        def data_received(self, data: bytes) -> None:
            raise ValueError("broken protocol")

    async def main(world: Simulation) -> None:
        client, server, _ = await pair(world, server=Broken)
        client.transport.write(b"x")
        await asyncio.gather(client.closed.wait(), server.closed.wait())
        assert isinstance(server.lost, ValueError)
        assert isinstance(client.lost, ConnectionResetError)

    with pytest.raises(SimulationFailed, match="broken protocol"):
        run(1, main)


def test_a_cancelled_connect_leaves_no_connection():
    """When several addresses are tried concurrently, the slower attempts are cancelled."""

    async def main(world: Simulation) -> None:
        accepted: list[Stream] = []
        await world.network.at(SERVER).listen(
            Always(lambda: accepted.append(Stream()) or accepted[-1]), None, 9092
        )
        connecting = asyncio.create_task(
            world.network.at(CLIENT).connect(Stream, Address(SERVER, 9092))
        )
        while not accepted:
            await asyncio.sleep(0.00001)
        connecting.cancel()
        await accepted[0].closed.wait()
        assert not world.network.connections()

    run(1, main)


# -- seeds ---------------------------------------------------------------------------------


async def busy(world: Simulation) -> int:
    """Let several clients use an echo server while random connections are cut."""
    await world.network.at(SERVER).listen(Always(Echo), None, 9092)
    echoed = 0

    async def talk(number: int) -> None:
        nonlocal echoed
        environment = world.environment(f"10.0.1.{number}")
        for _ in range(5):
            _, protocol = await environment.network.connect(Stream, Address(SERVER, 9092))
            protocol.transport.write(environment.random.randbytes(2000))
            await asyncio.sleep(environment.random.random())
            echoed += len(protocol.received)
            protocol.transport.close()

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(talk(number))
        for _ in range(5):
            await asyncio.sleep(world.random.random())
            if wires := world.network.connections():
                world.random.choice(wires).cut()
    return echoed


def test_a_run_depends_only_on_its_seed():
    """A failure must be reproducible."""
    first, second, other = run(7, busy), run(7, busy), run(8, busy)
    assert first.value == second.value
    assert str(first.trace) == str(second.trace)
    assert first.trace.digest() != other.trace.digest()
    assert first.trace.of("net.cut")


def test_the_run_does_not_depend_on_the_process():
    """Hashes of strings differ between processes: this finds sets of strings in the harness."""
    code = "from tests.sim.test_harness import busy, run; print(run(7, busy).trace.digest())"
    digests = [
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
            env=os.environ | {"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert digests[0] == digests[1] == run(7, busy).trace.digest() + "\n"


def test_the_real_network_is_out_of_reach():
    """Otherwise a test could use the real network and pass by chance."""

    async def main(world: Simulation) -> None:
        loop = asyncio.get_running_loop()
        for call in (
            loop.getaddrinfo("localhost", 1),
            loop.create_connection(Stream, "localhost", 1),
            loop.create_server(Stream, "localhost", 1),
        ):
            with pytest.raises(RuntimeError, match=r"environment\.network"):
                await call

    run(1, main)
