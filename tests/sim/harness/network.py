"""MemoryNetwork: machines connected in memory, with faults on demand and no real sockets.

`network.at("10.0.0.2")` is the core.environment.Network of a program on that machine. Latency and
jitter derive from the simulation's seed; segments of a connection stay in order.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random as random_module
import socket
import ssl as ssl_module
import time
from collections.abc import Callable
from typing import TypeVar

from aiokq.connection.strangers import Strangers
from aiokq.connection.turn import Turn
from aiokq.core.environment import Acceptor, Address, SocketOptions
from tests.sim.harness.loop import SimLoop
from tests.sim.harness.trace import Trace
from tests.sim.harness.transport import SEGMENT, MemoryTransport, Wire

P = TypeVar("P", bound=asyncio.BaseProtocol)

LOOPBACK = "127.0.0.1"
WILDCARDS = (None, "", "0.0.0.0", "::")
FIRST_FREE_PORT = 40_000


class MemoryListener:
    """A listening port of one machine."""

    def __init__(
        self,
        network: MemoryNetwork,
        host: str,
        port: int,
        address: str | None,
        acceptor: Acceptor,
    ) -> None:
        self._network = network
        self.host = host
        """The machine."""
        self.address = address
        """The address that the listener is bound to; None for all addresses of the machine."""
        self._port = port
        self.acceptor = acceptor
        self._serving = False

    @property
    def port(self) -> int:
        return self._port

    @property
    def hosts(self) -> tuple[str, ...]:
        return ("0.0.0.0" if self.address is None else self.address,)

    def accepts(self, address: str) -> bool:
        return self._serving and (self.address is None or self.address == address)

    async def start_serving(self) -> None:
        await asyncio.sleep(0)
        self._serving = True

    def close(self) -> None:
        self._network._unlisten(self)

    async def wait_closed(self) -> None:
        await asyncio.sleep(0)


class MemoryNetwork:
    """All machines and the connections between them.

    Args:
        latency: (minimum, maximum) seconds for a segment.
        bytes_per_second: limit for each direction of a connection; None for no limit.
    """

    def __init__(
        self,
        loop: SimLoop,
        random: random_module.Random,
        trace: Trace,
        *,
        latency: tuple[float, float] = (0.0001, 0.001),
        bytes_per_second: float | None = None,
    ) -> None:
        self.loop = loop
        self.trace = trace
        self.latency = latency
        self.bytes_per_second = bytes_per_second
        self.wires: list[Wire] = []
        """Connections of which at least one end is open, oldest first."""
        self.scarce: Callable[[], bool] = lambda: False
        """Whether the accepting programs are short of file descriptors."""
        self._random = random
        self._names: dict[str, list[str]] = {"localhost": [LOOPBACK]}
        self._listeners: dict[tuple[str, int], list[MemoryListener]] = {}
        self._numbers = 0
        self._next_port = FIRST_FREE_PORT
        self._partitions: list[tuple[frozenset[str], frozenset[str] | None]] = []
        self._healed: asyncio.Future[None] | None = None
        self._slow: dict[str, float] = {}
        self._refused: dict[tuple[str, int | None], None] = {}
        self._unresolvable: dict[str, int | None] = {}

    def at(self, host: str = LOOPBACK) -> HostNetwork:
        """Return the network as seen from the machine with the address `host`."""
        return HostNetwork(self, host)

    def name(self, name: str, *addresses: str) -> None:
        """Let a name resolve to these addresses."""
        self._names[name] = list(addresses)

    # -- faults ----------------------------------------------------------------------------

    def partition(self, hosts: str | list[str], others: str | list[str] | None = None) -> None:
        """Let nothing pass between `hosts` and `others` (default: all other hosts).

        As with TCP, segments sent meanwhile arrive after heal().
        """
        self._partitions.append((_hosts(hosts), None if others is None else _hosts(others)))
        self.trace.add("net.partition", f"{hosts} | {others or 'all'}")

    def heal(self) -> None:
        """End all partitions, delays, refusals and failures of name resolution."""
        self.trace.add("net.heal", "")
        self._partitions.clear()
        self._slow.clear()
        self._refused.clear()
        self._unresolvable.clear()
        for wire in self.wires:
            for end in (wire.client, wire.server):
                if end.flight:
                    self.loop.call_later(self._latency(), end.land)
        if self._healed is not None:
            healed, self._healed = self._healed, None
            healed.set_result(None)

    def delay_host(self, host: str, seconds: float) -> None:
        """Delay every segment from or to a machine by `seconds` more."""
        self._slow[host] = seconds

    def refuse(self, host: str, port: int | None = None) -> None:
        """Refuse new connections to a machine, even if a program listens there."""
        self._refused[(host, port)] = None

    def fail_resolve(self, name: str, times: int | None = None) -> None:
        """Let the next `times` resolutions of a name fail; all if None."""
        self._unresolvable[name] = times

    def kill(self, host: str) -> None:
        """Kill the processes of a machine: their peers' connections are reset."""
        self.trace.add("net.kill", host)
        self._vanish(host, reset=True)

    def power_off(self, host: str) -> None:
        """Turn a machine off: its peers get no reset, and their connections stay half-open."""
        self.trace.add("net.off", host)
        self._vanish(host, reset=False)

    def connections(self, host: str | None = None, port: int | None = None) -> list[Wire]:
        """Return the open connections from or to a machine, or to a port of a server."""
        return [
            wire
            for wire in self.wires
            if (host is None or host in wire.hosts) and (port is None or wire.server_port == port)
        ]

    # -- called by transports ----------------------------------------------------------------

    def delay(self, wire: Wire, size: int) -> float:
        """Return the seconds that the next segment takes."""
        extra = sum(self._slow.get(host, 0.0) for host in dict.fromkeys(wire.hosts))
        if self.bytes_per_second is not None:
            extra += size / self.bytes_per_second
        return self._latency() + extra

    def segment_size(self) -> int:
        """Return a random segment size: the result must not depend on how the bytes are split."""
        return self._random.choice((SEGMENT, SEGMENT, self._random.randint(1, SEGMENT)))

    def forget(self, wire: Wire) -> None:
        if not wire.open and wire in self.wires:
            self.wires.remove(wire)

    def separated(self, a: str, b: str) -> bool:
        """Whether a partition separates two machines."""
        if a == b:
            return False
        for some, others in self._partitions:
            for x, y in ((a, b), (b, a)):
                if x in some and (y not in some if others is None else y in others):
                    return True
        return False

    # -- inside ----------------------------------------------------------------------------

    def _latency(self) -> float:
        return self._random.uniform(*self.latency)

    def _vanish(self, host: str, *, reset: bool) -> None:
        for listeners in [v for (h, _), v in self._listeners.items() if h == host]:
            for listener in list(listeners):
                listener.close()
        for wire in self.connections(host):
            for end, machine in ((wire.client, wire.hosts[0]), (wire.server, wire.hosts[1])):
                if machine == host:
                    if reset and not end.lost:
                        end._transmit("reset", 0)
                    end._vanish()
            if not reset:
                wire.dropped = True
            self.forget(wire)

    def _listen(self, listener: MemoryListener) -> None:
        self._listeners.setdefault((listener.host, listener.port), []).append(listener)
        self.trace.add("net.listen", f"{listener.host}:{listener.port}")

    def _unlisten(self, listener: MemoryListener) -> None:
        listeners = self._listeners.get((listener.host, listener.port), [])
        if listener in listeners:
            listeners.remove(listener)
            self.trace.add("net.unlisten", f"{listener.host}:{listener.port}")

    def _bound(self, host: str, port: int) -> list[MemoryListener]:
        return self._listeners.get((host, port), [])

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port - 1

    def _listener_for(self, host: str, address: Address) -> MemoryListener | None:
        if any(key in self._refused for key in ((host, None), (host, address.port))):
            return None
        return next(
            (ln for ln in self._bound(host, address.port) if ln.accepts(address.host)), None
        )

    async def _until_joined(self, a: str, b: str) -> None:
        while self.separated(a, b):
            if self._healed is None:
                self._healed = self.loop.create_future()
            await asyncio.shield(self._healed)


class HostNetwork:
    """core.environment.Network for the programs of one machine."""

    def __init__(self, network: MemoryNetwork, host: str) -> None:
        self._network = network
        self.host = host

    async def resolve(self, host: str, port: int) -> list[Address]:
        network = self._network
        await asyncio.sleep(network._latency())
        if host in network._unresolvable:
            times = network._unresolvable[host]
            if times is not None:
                network._unresolvable[host] = times - 1
                if times <= 1:
                    del network._unresolvable[host]
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        if host in network._names:
            return [Address(address, port) for address in network._names[host]]
        if _is_address(host):
            return [Address(host, port)]
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def connect(
        self,
        factory: Callable[[], P],
        address: Address,
        *,
        ssl: ssl_module.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, P]:
        network = self._network
        _refuse_tls(ssl)
        machine = self.host if address.host == LOOPBACK else address.host
        await network._until_joined(self.host, machine)
        await asyncio.sleep(network._latency())
        listener = network._listener_for(machine, address)
        if listener is None:
            await asyncio.sleep(network._latency())
            raise ConnectionRefusedError(
                errno.ECONNREFUSED, f"Connect call failed ('{address.host}', {address.port})"
            )
        own = LOOPBACK if address.host == LOOPBACK else self.host
        network._numbers += 1
        wire = Wire(
            network,
            network._numbers,
            (self.host, machine),
            ((own, network._free_port()), (address.host, address.port)),
        )
        network.wires.append(wire)
        network.trace.add("net.connect", str(wire))
        accepted = listener.acceptor.accept(
            Address(own, wire.client.names[0][1]),
            make_room=listener.acceptor.make_room if network.scarce() else None,
        )
        wire.server._connect(asyncio.Protocol() if accepted is None else accepted)
        if accepted is None:
            wire.server.close()
        try:
            await asyncio.sleep(network._latency())
            await network._until_joined(self.host, machine)
        except asyncio.CancelledError:
            wire.client.abort()
            raise
        if wire.client.lost:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        protocol = factory()
        wire.client._connect(protocol)
        transport: MemoryTransport = wire.client
        return transport, protocol

    async def listen(
        self,
        acceptor: Acceptor,
        host: str | None,
        port: int,
        *,
        tls: Callable[[], ssl_module.SSLContext] | None = None,
        sockets: SocketOptions | None = None,
        start_serving: bool = True,
    ) -> MemoryListener:
        network = self._network
        _refuse_tls(tls)
        await asyncio.sleep(0)
        address: str | None = None
        if host not in WILDCARDS:
            assert host is not None
            addresses = network._names.get(host, [host])
            address = addresses[0]
            if address not in (self.host, LOOPBACK):
                raise _os_error(errno.EADDRNOTAVAIL, f"{host}:{port}")
        port = port or network._free_port()
        for other in network._bound(self.host, port):
            if address is None or other.address is None or other.address == address:
                raise _os_error(errno.EADDRINUSE, f"{host}:{port}")
        listener = MemoryListener(network, self.host, port, address, acceptor)
        network._listen(listener)
        if start_serving:
            await listener.start_serving()
        return listener


class Always:
    """Accepts every connection with a protocol from `factory`."""

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._factory = factory
        self.strangers = Strangers(Turn(), time.monotonic)

    def accept(
        self, peer: Address, *, make_room: Callable[[], bool] | None
    ) -> asyncio.BaseProtocol:
        return self._factory()

    leaving = 0

    def refused(self, peer: Address) -> None: ...

    def idle_since(self, behind: int) -> None:
        return None

    def make_room(self) -> bool:
        return False


def _refuse_tls(context: object) -> None:
    if context is not None:
        raise ValueError("the simulated network has no TLS: use a plaintext listener")


def _is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return True
    return False


def _hosts(hosts: str | list[str]) -> frozenset[str]:
    return frozenset([hosts] if isinstance(hosts, str) else hosts)


def _os_error(number: int, what: str) -> OSError:
    return OSError(number, f"{os.strerror(number)}: {what}")
