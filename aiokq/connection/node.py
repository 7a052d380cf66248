"""Node: the connections to one broker, with the backoff and the state of the broker.

The cluster decides which node receives a request, and how to react to the loss of a node. Nodes are
independent: an unreachable node does not delay requests to other nodes.

Source: KIP-144 (reconnect backoff), KIP-601 (setup timeout), KIP-302 (all addresses), KIP-219.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from aiokq.connection.backoff import Backoff
from aiokq.connection.finalized_features import NO_FEATURES
from aiokq.connection.frame_pool import FramePool
from aiokq.connection.handshake import ClosedOnApiVersions, open_connection, too_old
from aiokq.connection.lazy_connection import DedicatedConnection, LazyConnection
from aiokq.core.errors import (
    AuthenticationFailed,
    Closed,
    ConnectionLost,
    KafkaError,
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

# Minimum backoff in seconds after an error that is not retriable. Java's clients do not
# retry after wrong credentials. aiokq retries, because the broker may be corrected. The delay is
# long, because frequent attempts can lock an account.
_REFUSED_BACKOFF: Final = 10.0


class Purpose(Enum):
    """Purpose of a shared connection; there is one shared connection for each purpose."""

    PRODUCE = "produce"
    """Produce requests only, because they may wait for replicas and carry megabytes."""
    CONTROL = "control"
    """Short requests, such as Metadata, ListOffsets, FindCoordinator and admin requests."""


@frozen
class NodeUp:
    """Event: the node became reachable, because a connection completed its handshake."""

    node_id: int
    host: str
    port: int


@frozen
class NodeDown:
    """Event: the node became unreachable, because an attempt failed or a connection was lost."""

    node_id: int
    host: str
    port: int
    reason: KafkaError


NodeState: TypeAlias = NodeUp | NodeDown


class Node:
    """One broker, identified by its id and address; negative ids are bootstrap addresses.

    Args:
        node_id: id of the broker.
        host: advertised name or address.
        port: advertised port.
        options: options of the node's connections.
        environment: network, clock and random numbers.
        supervisor: runs the connection attempts; belongs to the node's owner.
        counters: the client's counters.
        state: map in which NodeUp and NodeDown are emitted under the node id when the state
            changes; may be shared by many nodes.
        on_throttle: called with the node and seconds when the broker throttles the client.
        pool: memory for large responses; may be shared by many nodes.
        outages: logs when the node becomes unreachable and reachable. None if the node's failures
            need no log line of their own, because the failures of other nodes are logged.
        spoken: addresses that have completed a handshake; may be shared by many nodes. If such
            an address closes a connection on ApiVersions, the failure counts as temporary: the
            broker may be restarting, or may be down behind a proxy.

    Attributes:
        last_error: error of the last failed attempt or lost connection; `None` after a success.
        finalized_features: the newest levels that the broker has named.
        throttle_until: the loop's time until which the broker throttles the client.
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
        self.finalized_features = NO_FEATURES
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
        """Whether a log line has reported the node as up."""
        self._up: bool | None = None
        self._closed = False
        self._closed_on_api_versions = 0
        self._spoken: set[Address] = set() if spoken is None else spoken
        self._last_address: Address | None = None
        self._shared = {purpose: LazyConnection(self, purpose.value) for purpose in Purpose}
        self._dedicated: dict[DedicatedConnection, None] = {}
        self._open: dict[Connection, None] = {}
        self._attempts: set[asyncio.Timeout] = set()
        """Attempts that wait for a backoff or a response; interrupted when the broker moves."""

    def __repr__(self) -> str:
        state = {None: "not tried yet", True: "up", False: "down"}[self._up]
        return f"<Node {self.name} at {self.host}:{self.port}, {state}>"

    @property
    def name(self) -> int | str:
        """The node id; "host:port" for a bootstrap address."""
        return self.node_id if self.node_id >= 0 else f"{self.host}:{self.port}"

    @property
    def up(self) -> bool | None:
        """True after a NodeUp, False after a NodeDown, None before the first attempt has ended."""
        return self._up

    @property
    def in_flight(self) -> int:
        """The number of requests in flight on all connections of the node."""
        return sum(connection.in_flight for connection in self._open)

    @property
    def backing_off(self) -> float:
        """The seconds until the next attempt may begin; 0 if the backoff is over."""
        return max(0.0, self._retry_at - asyncio.get_running_loop().time())

    def connected(self, purpose: Purpose) -> Connection | None:
        """Return the shared connection if it is open and not retiring, else None."""
        connection = self._shared[purpose].current
        return None if connection is None or connection.retiring else connection

    async def connection(self, purpose: Purpose) -> Connection:
        """Return the shared connection for a purpose, opening it if necessary.

        All callers share one attempt, which begins when the backoff from the last failure is over.

        Raises:
            ConnectionLost: the attempt failed; the message has the error of each address, or of the
                name resolution.
            AuthenticationFailed, UnsupportedVersion, ProtocolError, BrokerError: the broker cannot
                be used with this configuration; raised without an attempt while the node backs off
                from such an error.
            Closed: the node was closed.
        """
        return await self._shared[purpose].get()

    def dedicated(self, name: str) -> DedicatedConnection:
        """Create a connection that only the caller uses; it is opened on first use.

        The caller closes the connection.
        """
        dedicated = DedicatedConnection(self, name)
        self._dedicated[dedicated] = None
        return dedicated

    async def request(self, message: Request[R], *, timeout: float | None = None) -> R:
        """Send a short request on the CONTROL connection and wait for the response.

        Args:
            message: the request.
            timeout: seconds to wait for the response; default `request_timeout_ms`. The time
                begins when the node is connected and its throttle time is over.

        Raises:
            KafkaError: an error of `connection` or of `Connection.request`.
        """
        connection = await self.connection(Purpose.CONTROL)
        await self.ready()
        return await connection.request(message, timeout=timeout)

    def throttled(self, milliseconds: float) -> None:
        """Record that the broker throttles the client for `milliseconds` (KIP-219)."""
        seconds = milliseconds / 1000
        until = asyncio.get_running_loop().time() + seconds
        self._counters.throttle_seconds += seconds
        self.throttle_until = max(self.throttle_until, until)
        if self._on_throttle is not None:
            self._on_throttle(self, seconds)

    @property
    def is_throttling(self) -> bool:
        """Whether the broker throttles the client now."""
        return self.throttle_until > asyncio.get_running_loop().time()

    async def ready(self) -> None:
        """Wait until the throttle time of the broker is over."""
        await self._wait_until(lambda: self.throttle_until)

    def update(self, host: str, port: int) -> None:
        """Set the broker's address; if it has changed, reset the connections and attempts."""
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
        attempts, self._attempts = self._attempts, set()  # so that each attempt is interrupted once
        for attempt in attempts:
            attempt.reschedule(now)
        logger.info("broker moved: node=%s from=%s to=%s:%s", self.name, before, host, port)

    def shut(self) -> None:
        """Start to close all connections and cancel all attempts, without waiting."""
        self._closed = True
        for slot in (*self._shared.values(), *self._dedicated):
            slot.shut("closed by this client")

    async def close(self) -> None:
        """Close all connections and cancel attempts; waiters get `Closed`. May be called twice."""
        self.shut()  # starts to close all connections at the same time
        for slot in (*self._shared.values(), *self._dedicated):
            await slot.close()

    # The connections call the following public methods.

    def release(self, dedicated: DedicatedConnection) -> None:
        """Remove a dedicated connection that was closed."""
        self._dedicated.pop(dedicated, None)

    def refusal(self) -> KafkaError | None:
        """Return the error to raise without an attempt, or None if an attempt may begin."""
        if self._closed:
            return Closed(f"connections to node {self.name} are closed")
        error = self.last_error
        if error is not None and not error.retriable and self.backing_off:
            return copy_error(error)
        return None

    async def connect(self, purpose: str) -> Connection:
        """Make one attempt: wait for the end of the backoff, resolve the name, try each address.

        If the broker moves during the attempt, the attempt restarts immediately with the new
        address.

        Raises:
            KafkaError: no address worked.
            Closed: the node was closed.
        """
        while True:
            host, port = self.host, self.port
            try:
                connection = await self._unless_moved(self._attempt(host, port))
            except KafkaError:
                if (host, port) == (self.host, self.port):
                    raise
                continue  # the broker has just moved
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

    async def _unless_moved(self, attempt: Coroutine[Any, Any, Connection]) -> Connection | None:
        """Await an attempt and return its result; None if the broker moved during the attempt."""
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
        """Sleep until the loop's time reaches `when()`, which may change during the sleep."""
        loop = asyncio.get_running_loop()
        while True:
            remaining = when() - loop.time()
            if remaining <= 0:
                return
            await asyncio.sleep(remaining)

    async def _try_addresses(self, host: str, port: int) -> Connection:
        """Connect to the first address that works.

        Raises:
            ConnectionLost: the host is unknown, or no address worked; the message has the error of
                each address.
            KafkaError: no address worked, and the error of an address is not retriable; or the SASL
                mechanism has no credentials.
        """
        if self._options.security.prepare is not None:
            await self._options.security.prepare()
        try:
            addresses = await self._environment.network.resolve(host, port)
        except OSError as error:
            raise ConnectionLost(
                f"unknown host {host!r} ({error.strerror or error}); check the name in "
                "bootstrap_servers, or advertised.listeners of the broker",
                node=self.name,
                may_have_been_written=False,
            ) from error
        if self._last_address in addresses:
            # The last address tried comes last if the node is down, else first.
            start = addresses.index(self._last_address) + (1 if self._up is False else 0)
            addresses = addresses[start:] + addresses[:start]
        timeout = self._setup.next()
        reasons: list[str] = []
        failure: KafkaError | None = None
        for address in addresses:
            self._last_address = address
            try:
                connection = await open_connection(
                    address,
                    self._options,
                    host=host,
                    name=self.name,
                    timeout=timeout,
                    environment=self._environment,
                    counters=self._counters,
                    on_throttle=lambda seconds: self.throttled(seconds * 1000),
                    pool=self._pool,
                    supervisor=self.supervisor,
                )
                self._spoken.add(address)
                return connection
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
                    break  # all addresses share the accounts, and retries may lock an account
        if failure is not None:
            raise failure
        where = f"{host}:{port}"
        raise ConnectionLost(
            # The error of each address; an address that equals `where` is not repeated.
            f"cannot connect to {where}: "
            + "; ".join(r.removeprefix(f"{where}: ") for r in reasons),
            node=self.name,
            may_have_been_written=False,
        )

    def _succeeded(self, connection: Connection) -> None:
        # The backoff is not reset, because a broker may close the connection after a handshake.
        self._setup.reset()
        self._retry_at = 0.0
        self._closed_on_api_versions = 0
        self.last_error = None
        if connection.finalized_features.epoch >= self.finalized_features.epoch:
            self.finalized_features = connection.finalized_features
        self._open[connection] = None
        self._counters.connections_opened += 1
        self._counters.connections.value += 1
        if not self._up:
            self._up = True
            self.state.emit(self.node_id, NodeUp(self.node_id, self.host, self.port))
        connection.on_proven = self._proven
        connection.on_close(self._connection_closed)

    def _proven(self) -> None:
        """Log that the node is up, unless a log line has reported this already.

        Called when the first request after the handshake is answered.
        """
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
        # A broker that shuts down loses all its connections together. The losses count as one
        # failure.
        if error is not None and not isinstance(error, Closed) and self._up:
            self._failed(error)

    def _failed(self, error: KafkaError) -> None:
        """Record a failure, start the backoff, and emit NodeDown if the state changed."""
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
