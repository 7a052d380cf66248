"""Owns the connections to one broker: which there are, when they are tried, and whether it is up.

Which node to ask, and what its loss means, is the cluster's business. No node knows of another: a
dead one delays nobody.

Source: KIP-144 (reconnect backoff), KIP-601 (setup timeout), KIP-302 (all addresses), KIP-219.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from aiokq.connection.backoff import Backoff
from aiokq.connection.frame_pool import FramePool
from aiokq.connection.handshake import ClosedOnApiVersions, open_connection, too_old
from aiokq.connection.lazy_connection import DedicatedConnection, LazyConnection
from aiokq.core.errors import (
    AuthenticationFailed,
    Closed,
    ConnectionLost,
    KafkaError,
    RequestTimeout,
    copy_error,
)
from aiokq.core.frozen import frozen
from aiokq.core.observable_map import ObservableMap

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aiokq.connection.connection import Connection
    from aiokq.connection.options import ConnectionOptions
    from aiokq.core.counters import ClientCounters
    from aiokq.core.environment import Address, Environment
    from aiokq.core.outages import Outages
    from aiokq.core.supervisor import Supervisor
    from aiokq.wire import Request, Response

__all__ = ["DedicatedConnection", "Node", "NodeDown", "NodeState", "NodeUp", "Purpose"]

logger = logging.getLogger("aiokq.connection")

R = TypeVar("R", bound="Response")

# Kafka's clients may give up for good on wrong credentials; ours ask again this seldom, as somebody
# may put the broker right, and as locked accounts come from clients that ask often.
_REFUSED_BACKOFF: Final = 10.0


class Purpose(Enum):
    """What a shared connection is for; each has a socket of its own."""

    PRODUCE = "produce"
    """Produce requests only: they may wait for replicas, and carry megabytes."""
    CONTROL = "control"
    """Short requests: metadata, offsets, coordinator lookups, admin."""


@frozen
class NodeUp:
    """A connection was made, handshake included."""

    node_id: int
    host: str
    port: int


@frozen
class NodeDown:
    """An attempt failed, or a connection was lost that this end did not close."""

    node_id: int
    host: str
    port: int
    reason: KafkaError


NodeState: TypeAlias = NodeUp | NodeDown


class Node:
    """One broker, by id and address; negative ids are bootstrap addresses.

    Args:
        node_id: of the broker.
        host: name or address it advertises.
        port: and its port.
        options: for its connections.
        environment: network, clock and chance.
        supervisor: of whoever owns the node; attempts are its children.
        counters: the client's.
        state: where ups and downs are emitted, under the node id; one may serve many nodes. Only
            changes are emitted.
        on_throttle: called with the node and seconds when the broker asks for silence.
        pool: memory for large responses; one may serve many nodes.
        outages: logs that it cannot be reached, and that it can again; None for a node whose
            failures mean nothing that is not told of others.
        spoken: addresses that have spoken Kafka; one set may serve many nodes. From then on,
            closing on ApiVersions is passing trouble: it restarts, or a proxy stands before it.

    Attributes:
        last_error: why the last attempt failed or the last connection was lost; `None` after a
            success.
    """

    def __init__(
        self,
        node_id: int,
        host: str,
        port: int,
        *,
        options: ConnectionOptions,
        environment: Environment,
        supervisor: Supervisor,
        counters: ClientCounters,
        state: ObservableMap[int, NodeState] | None = None,
        on_throttle: Callable[[Node, float], None] | None = None,
        pool: FramePool | None = None,
        outages: Outages | None = None,
        spoken: set[Address] | None = None,
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.supervisor = supervisor
        self.state: ObservableMap[int, NodeState] = ObservableMap() if state is None else state
        self.last_error: KafkaError | None = None
        self.throttle_until = 0.0
        self._options = options
        self._environment = environment
        self._counters = counters
        self._on_throttle = on_throttle
        self._pool = FramePool() if pool is None else pool
        self._backoff = Backoff(
            options.reconnect_backoff, options.reconnect_backoff_max, environment.random
        )
        self._setup = Backoff(options.setup_timeout, options.setup_timeout_max, environment.random)
        self._retry_at = 0.0
        self._outages = outages
        self._introduced = False
        """It was told that it is up."""
        self._up: bool | None = None
        self._closed = False
        self._closed_on_api_versions = 0
        self._spoken: set[Address] = set() if spoken is None else spoken
        self._last_address: Address | None = None
        self._shared = {purpose: LazyConnection(self, purpose.value) for purpose in Purpose}
        self._dedicated: dict[DedicatedConnection, None] = {}
        self._open: dict[Connection, None] = {}
        self._attempts: set[asyncio.Timeout] = set()
        """Attempts that wait for their time or for an answer; ended when the broker moves."""

    def __repr__(self) -> str:
        state = {None: "not tried", True: "up", False: "down"}[self._up]
        return f"<Node {self.name} at {self.host}:{self.port}, {state}>"

    # -- what is known of it

    @property
    def name(self) -> int | str:
        """Its id; "host:port" for a bootstrap address."""
        return self.node_id if self.node_id >= 0 else f"{self.host}:{self.port}"

    @property
    def up(self) -> bool | None:
        """Whether the last that was heard of it was good; `None` if it was never tried."""
        return self._up

    @property
    def in_flight(self) -> int:
        """Requests in flight on all its connections."""
        return sum(connection.in_flight for connection in self._open)

    @property
    def backing_off(self) -> float:
        """Seconds until the next attempt may begin; 0 if it may now."""
        return max(0.0, self._retry_at - asyncio.get_running_loop().time())

    def connected(self, purpose: Purpose) -> Connection | None:
        """The open shared connection, without opening one."""
        connection = self._shared[purpose].current
        return None if connection is None or connection.retiring else connection

    # -- using it

    async def connection(self, purpose: Purpose) -> Connection:
        """The shared connection for a purpose, opened if there is none.

        All who wait share one attempt. It begins when the backoff from the last failure is over.

        Raises:
            ConnectionLost: the attempt failed; every address is named.
            AuthenticationFailed, UnsupportedVersion, ProtocolError, BrokerError: the broker cannot
                be used as configured; raised at once while the node backs off from that.
            Closed: the node was closed.
        """
        return await self._shared[purpose].get()

    def dedicated(self, name: str) -> DedicatedConnection:
        """A connection of the caller's own, opened when first used; the caller closes it."""
        dedicated = DedicatedConnection(self, name)
        self._dedicated[dedicated] = None
        return dedicated

    async def request(self, message: Request[R], *, timeout: float | None = None) -> R:
        """Send a short request on the CONTROL connection.

        Args:
            message: the request.
            timeout: seconds for the answer, once connected; default `request_timeout_ms`.

        Raises:
            KafkaError: as `connection` and `Connection.request`.
        """
        connection = await self.connection(Purpose.CONTROL)
        await self.ready()
        return await connection.request(message, timeout=timeout)

    def throttled(self, milliseconds: float) -> None:
        """The broker asked for that long a silence (KIP-219)."""
        seconds = milliseconds / 1000
        until = asyncio.get_running_loop().time() + seconds
        self._counters.throttle_seconds += seconds
        self.throttle_until = max(self.throttle_until, until)
        if self._on_throttle is not None:
            self._on_throttle(self, seconds)

    async def ready(self) -> None:
        """Wait until the silence that the broker asked for is over."""
        await self._wait_until(lambda: self.throttle_until)

    def update(self, host: str, port: int) -> None:
        """The broker has this address now; if it moved, its connections are made anew."""
        if (host, port) == (self.host, self.port):
            return
        before = f"{self.host}:{self.port}"
        if self._outages is not None:
            self._outages.moved(before, f"{host}:{port}")
        self.host = host
        self.port = port
        self._introduced = False
        self._last_address = None
        self._retry_at = 0.0
        self._backoff.reset()
        self._setup.reset()
        for slot in (*self._shared.values(), *self._dedicated):
            slot.reset("the broker moved")
        now = asyncio.get_running_loop().time()
        attempts, self._attempts = self._attempts, set()  # each is ended once
        for attempt in attempts:
            attempt.reschedule(now)
        logger.info("broker moved: node=%s from=%s to=%s:%s", self.name, before, host, port)

    def shut(self) -> None:
        """Begin to close, without waiting for the end of it."""
        self._closed = True
        for slot in (*self._shared.values(), *self._dedicated):
            slot.shut("closed by this client")

    async def close(self) -> None:
        """Close all connections and give up attempts; waiters get `Closed`. Harmless twice."""
        self.shut()  # all at once, then one by one
        for slot in (*self._shared.values(), *self._dedicated):
            await slot.close()

    # -- for its slots

    def release(self, dedicated: DedicatedConnection) -> None:
        """A dedicated connection was closed."""
        self._dedicated.pop(dedicated, None)

    def refusal(self) -> KafkaError | None:
        """The error to raise without an attempt, if there should not be one."""
        if self._closed:
            return Closed(f"connections to node {self.name} are closed")
        error = self.last_error
        if error is not None and not error.retriable and self.backing_off:
            return copy_error(error)
        return None

    async def connect(self, purpose: str) -> Connection:
        """One attempt: wait out the backoff, resolve the name, try each address.

        When the broker moves meanwhile, the attempt begins again, at once and there.

        Raises:
            KafkaError: none worked.
        """
        while True:
            host, port = self.host, self.port
            try:
                connection = await self._unless_moved(self._attempt(host, port))
            except KafkaError:
                if (host, port) == (self.host, self.port):
                    raise
                continue  # it moved just then
            if connection is None:
                continue
            if self._closed:
                await connection.close("the node was closed")
                raise Closed(f"connections to node {self.name} are closed")
            if (host, port) == (self.host, self.port):
                break
            await connection.close("the broker moved")
        self._succeeded(connection)
        logger.debug("connected: node=%s for=%s peer=%s", self.name, purpose, connection)
        return connection

    # -- inside

    async def _unless_moved(self, attempt: Coroutine[Any, Any, Connection]) -> Connection | None:
        """What an attempt gives; None if it was ended because the broker moved."""
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._attempts.add(limit)
                try:
                    return await attempt
                finally:
                    self._attempts.discard(limit)
        except TimeoutError:
            if not limit.expired():
                raise
            return None

    async def _attempt(self, host: str, port: int) -> Connection:
        await self._wait_until(lambda: self._retry_at)
        try:
            return await self._try_addresses(host, port)
        except KafkaError as error:
            self._counters.connections_failed += 1
            if (host, port) == (self.host, self.port):
                self._failed(error)
            raise

    @staticmethod
    async def _wait_until(when: Callable[[], float]) -> None:
        """Sleep until the loop's time is `when()`, which may move meanwhile."""
        loop = asyncio.get_running_loop()
        while True:
            remaining = when() - loop.time()
            if remaining <= 0:
                return
            await asyncio.sleep(remaining)

    async def _try_addresses(self, host: str, port: int) -> Connection:
        """A connection to the first address that works; else an error that names all of them."""
        try:
            addresses = await self._environment.network.resolve(host, port)
        except OSError as error:
            raise ConnectionLost(
                f"unknown host {host!r} ({error.strerror or error}); check the name in"
                " bootstrap_servers, or what the broker has in advertised.listeners",
                node=self.name,
                may_have_been_written=False,
            ) from error
        if self._last_address in addresses:
            # One that failed comes last this time, one that worked first.
            start = addresses.index(self._last_address) + (1 if self._up is False else 0)
            addresses = addresses[start:] + addresses[:start]
        timeout = self._setup.next()
        reasons: list[str] = []
        failure: KafkaError | None = None
        for address in addresses:
            self._last_address = address
            try:
                async with asyncio.timeout(timeout):
                    connection = await open_connection(
                        address,
                        self._options,
                        host=host,
                        name=self.name,
                        environment=self._environment,
                        counters=self._counters,
                        on_throttle=lambda seconds: self.throttled(seconds * 1000),
                        pool=self._pool,
                    )
                self._spoken.add(address)
                return connection
            except TimeoutError as error:
                # Of a request in the handshake, which tells its own limit; else of all of it.
                told = error.message if isinstance(error, RequestTimeout) else None
                reasons.append(
                    f"{address}: {told or f'no answer within {timeout:.3g} s'}:"
                    " a firewall, not Kafka, or a listener of another security_protocol"
                )
            except ClosedOnApiVersions as error:
                self._closed_on_api_versions += 1
                reasons.append(f"{address}: {error.message}")
                if self._closed_on_api_versions > len(addresses) and not (
                    self._spoken.intersection(addresses)
                ):
                    failure = too_old(self.name)
            except KafkaError as error:
                reasons.append(f"{address}: {error.message}")
                if not error.retriable:
                    failure = error
                if isinstance(error, AuthenticationFailed):
                    break  # the next address has the same users, and may lock them out
        if failure is not None:
            raise failure
        where = f"{host}:{port}"
        raise ConnectionLost(
            # Each address with its reason, but not an address that says nothing new.
            f"cannot connect to {where}: "
            + "; ".join(r.removeprefix(f"{where}: ") for r in reasons),
            node=self.name,
            may_have_been_written=False,
        )

    def _succeeded(self, connection: Connection) -> None:
        # The backoff goes on until a request is answered: a broker may shake hands and hang up.
        self._setup.reset()
        self._retry_at = 0.0
        self._closed_on_api_versions = 0
        self.last_error = None
        self._open[connection] = None
        self._counters.connections_opened += 1
        self._counters.connections.value += 1
        if not self._up:
            self._up = True
            self.state.emit(self.node_id, NodeUp(self.node_id, self.host, self.port))
        connection.on_proven = self._proven
        connection.on_close(self._connection_closed)

    def _proven(self) -> None:
        """A request was answered: a broker may well shake hands, and hang up then."""
        told = self._outages is not None and self._outages.reached(f"{self.host}:{self.port}")
        known, self._introduced = self._introduced or told, True
        if not known:
            logger.info("node up: node=%s address=%s:%s", self.name, self.host, self.port)

    def _connection_closed(self, connection: Connection) -> None:
        self._open.pop(connection, None)
        self._counters.connections.value -= 1
        if connection.proven:
            self._backoff.reset()
        error = connection.error
        # Of a broker that goes down all connections are lost; that is one failure.
        if error is not None and not isinstance(error, Closed) and self._up:
            self._failed(error)

    def _failed(self, error: KafkaError) -> None:
        """Remember the failure, put off the next attempt, and tell who watches."""
        self.last_error = error
        self._counters.errors[getattr(error, "name", type(error).__name__)] += 1
        delay = self._backoff.next()
        if not error.retriable:
            delay = max(delay, _REFUSED_BACKOFF)
        self._retry_at = max(self._retry_at, asyncio.get_running_loop().time() + delay)
        if self._closed:
            return
        if self._outages is not None:
            self._outages.unreachable(self.name, f"{self.host}:{self.port}", error, retry_in=delay)
        if self._up is not False:
            self._up = False
            self.state.emit(self.node_id, NodeDown(self.node_id, self.host, self.port, error))
        if self._outages is None:
            logger.debug("node failed: node=%s retry_in=%.3fs error=%s", self.name, delay, error)
