"""Server: a listener and its connections, from accepting to closing.

`connection_quotas` decides which connections may stay; the handler processes requests. The embedded
broker and the scripted peers of the tests use this server.

Source: Kafka `SocketServer.scala` (one request of a connection at a time, muting,
connection limits).
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from aiokq.connection.accepted_connection import AcceptedConnection
from aiokq.connection.connection_counts import ConnectionCounts
from aiokq.connection.connection_quotas import ConnectionQuotas
from aiokq.connection.frame_pool import FramePool
from aiokq.connection.framing import RECEIVE_BUFFER_BYTES
from aiokq.connection.request_context import (
    CloseConnection,
    LoginHandler,
    RequestContext,
    RequestHandler,
    Session,
)
from aiokq.connection.server_limits import RequestBudgets, ServerLimits
from aiokq.connection.server_security import PLAINTEXT_SERVER, ServerSecurity
from aiokq.connection.strangers import Strangers
from aiokq.connection.turn import Turn
from aiokq.core import forks
from aiokq.core.background import BackgroundTask, BackgroundWork
from aiokq.core.environment import SocketOptions
from aiokq.core.errors import Closed, ProtocolError
from aiokq.core.supervisor import Supervisor
from aiokq.core.user_errors import is_for_caller
from aiokq.core.warning_backoff import WarningBackoff

if TYPE_CHECKING:
    from aiokq.connection.tls.tls_contexts import TlsContexts
    from aiokq.connection.transport import FrameTransport
    from aiokq.core.clock import Clock
    from aiokq.core.counters import BrokerCounters
    from aiokq.core.environment import Address, Listener, Network

__all__ = [
    "CloseConnection",
    "RequestContext",
    "RequestHandler",
    "Server",
    "ServerLimits",
    "Session",
]

logger = logging.getLogger("aiokq.connection")

_ABORT_TIMEOUT: Final = 1.0
"""Maximum seconds to wait for transports to close after they were aborted."""


class _Inherited:
    """Tells the connections of a server about forks; `forks.watch` for each would take longer."""

    __slots__ = ("__weakref__", "_connections")

    def __init__(self, connections: Mapping[AcceptedConnection, None]) -> None:
        self._connections = connections
        forks.watch(self)

    def forget(self) -> None:
        """Let the connections close their copies of sockets; see `forks.Inherited`."""
        # If this child forks, its own child calls this method again and must close nothing: the
        # numbers of these descriptors may then belong to other files.
        connections, self._connections = self._connections, {}
        for connection in connections:
            connection.forget()


class Server:
    """Accepts connections and passes their requests to a handler.

    Args:
        network: network to listen on.
        host: address to listen on; `None` for all.
        port: port to listen on; 0 for a free port.
        handler: handles the requests.
        clock: clock for latencies and for the intervals between log lines.
        counters: the broker's counters.
        limits: limits of clients; None for the defaults.
        security: TLS and SASL of the server.
        listener: name of the listener, for handlers and logs.
        turn: limits the requests that begin in one iteration of the event loop, for all servers of
            the node; None for a limit of this server alone.
        counts: the node's connection counts, shared by its servers; None for counts of this server
            alone.
        budgets: memory for requests, shared by the node's servers; None for memory of this server
            alone.
        sockets: options of the listening sockets; None for the defaults.
        strangers: limits the loop's time for unauthenticated connections, for all servers of the
            node; None for a limit of this server alone.
        on_failure: called once if a task of the server fails because of a bug. The server then
            serves no clients any more.

    Attributes:
        handler: handles the requests. May be replaced before `start`.
        login_handler: handles requests before the login without waiting, so that these connections
            need no task; None if `handler` handles them.
        strangers: see the argument.
        budget: memory for the requests of clients that have logged in, or that need no login.
        login_budget: memory for the requests of clients that have not logged in yet.
        measures_loop_time: whether connections count the loop's time that they use. May change
            while the server runs.
    """

    def __init__(
        self,
        network: Network,
        host: str | None,
        port: int,
        handler: RequestHandler,
        *,
        clock: Clock,
        counters: BrokerCounters,
        limits: ServerLimits | None = None,
        security: ServerSecurity = PLAINTEXT_SERVER,
        listener: str = "PLAINTEXT",
        turn: Turn | None = None,
        counts: ConnectionCounts | None = None,
        budgets: RequestBudgets | None = None,
        sockets: SocketOptions | None = None,
        strangers: Strangers | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.handler = handler
        self.login_handler: LoginHandler | None = None
        self.turn = turn or Turn()
        self.strangers = strangers or Strangers(self.turn, clock.monotonic, clock.thread_time)
        self.clock = clock
        self.counters = counters
        self.limits = limits or ServerLimits()
        self.budget, self.login_budget = budgets or RequestBudgets.divided(
            self.limits.queued_max_request_bytes, has_logins=security.sasl
        )
        self.measures_loop_time = False
        self._quotas = ConnectionQuotas(
            counts or ConnectionCounts(self.limits, now=clock.monotonic),
            counters,
            now=clock.monotonic,
            listener=listener,
        )
        self.idle = self._quotas.idle
        self.supervisor = Supervisor(f"server {listener}", on_failure=on_failure)
        self._network = network
        self._host = host
        self._port = port
        self.security = security
        self._name = listener
        self._sockets = sockets or SocketOptions()
        self._listener: Listener | None = None
        self._connections: dict[AcceptedConnection, None] = {}
        self._inherited = _Inherited(self._connections)
        self._next_id = 0
        self._background = BackgroundWork(counters, clock.monotonic)
        # Connections for which `_check` raised an error, with the time of the next check.
        self._failing: dict[AcceptedConnection, tuple[float, BackgroundTask]] = {}
        self._complaints = WarningBackoff(clock.monotonic)
        self._closing = False
        self._emptied: asyncio.Future[None] | None = None
        # All readers of this server share one buffer, except on Windows; see FrameReader.
        self._pool = FramePool()
        self._scratch = None if sys.platform == "win32" else bytearray(RECEIVE_BUFFER_BYTES)

    @property
    def port(self) -> int:
        """The port number; valid after `bind`."""
        assert self._listener is not None
        return self._listener.port

    @property
    def hosts(self) -> Sequence[str]:
        """The numeric addresses that the server listens on; valid after `bind`."""
        assert self._listener is not None
        return self._listener.hosts

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    async def bind(self) -> None:
        """Reserve the port. Clients cannot connect before `start`.

        Raises:
            OSError: the port is in use, the address is not local, or the host is unknown.
            Closed: the server was closed, possibly during this call.
        """
        listener = await self._network.listen(
            self,
            self._host,
            self._port,
            tls=self.security.contexts,
            sockets=self._sockets,
            start_serving=False,
        )
        if self._closing:  # the server was closed before it had a listener
            listener.close()
            await listener.wait_closed()
            raise Closed("the server was closed while it started")
        self._listener = listener

    async def start(self) -> None:
        """Listen for connections; bind the port first if `bind` was not called.

        Raises:
            OSError: the port is in use, the address is not local, or the host is unknown.
            Closed: the server was closed, possibly during this call.
        """
        await self.supervisor.start()
        try:
            if self._listener is None:
                await self.bind()
            assert self._listener is not None
            await self._listener.start_serving()
            if self._closing:
                raise Closed("the server was closed while it started")
        except BaseException:
            await self.supervisor.close()
            if self._listener is not None:
                self._listener.close()
                await self._listener.wait_closed()
            raise
        self.supervisor.spawn(self._sweep(), name="sweep")
        if self.security.tls is not None:
            self.supervisor.spawn(self._renew(self.security.tls), name="renew certificates")

    def stop(self) -> None:
        """Stop accepting; close each connection after its current request. May be called twice."""
        self._closing = True
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.stop()

    async def close(self, drain: float | None = None) -> None:
        """Stop accepting, finish the requests that are being handled, and close all connections.

        May be called twice and concurrently.

        Args:
            drain: seconds to wait for requests that are being handled; after this time they are
                cancelled. None for `ServerLimits.drain`.
        """
        self.stop()
        try:
            await self._wait_empty(self.limits.drain if drain is None else drain)
        finally:
            await self.supervisor.close(timeout=_ABORT_TIMEOUT)
            for connection in list(self._connections):
                connection.transport.fail(Closed("the server is closing"))
            await self._wait_empty(_ABORT_TIMEOUT)
            if self._listener is not None:
                await self._listener.wait_closed()

    # The listener calls the following public methods.

    def accept(
        self, peer: Address, *, make_room: Callable[[], bool] | None
    ) -> FrameTransport | None:
        """Admit or refuse a connection; return the transport of an admitted connection, else None.

        Args:
            peer: address of the client.
            make_room: closes a file or an idle connection of the process, and returns False if
                there is none. If enough descriptors are free, `make_room` is None.
        """
        host = f"[{peer.host}]" if ":" in peer.host else peer.host
        name = str(peer)
        if self._closing or not self._quotas.admit(name, host, make_room):
            return None
        self._next_id += 1
        context = RequestContext(self._next_id, name, host, self._name)
        self.security.prepare(context)
        connection = AcceptedConnection(self, context, self._scratch, self._pool)
        self._connections[connection] = None
        if self.security is not PLAINTEXT_SERVER:
            self._quotas.stranger(connection)
        return connection.transport

    def refused(self, peer: Address) -> None:
        """Count and log an accepted connection that is closed before it begins.

        The reason is that too many connections wait to begin, or that a descriptor is needed.
        """
        self._quotas.refuse(
            str(peer), "too many connections wait to begin, or a descriptor is needed"
        )

    @property
    def leaving(self) -> int:
        """The number of idle connections that `make_room` aborted and whose sockets are still open.

        Context: any thread.
        """
        return self._quotas.leaving

    def idle_since(self, behind: int) -> float | None:
        """Return the loop's time at which one idle connection became idle.

        See `ConnectionQuotas.idle_since`.

        Context: any thread.
        """
        return self._quotas.idle_since(behind)

    def make_room(self) -> bool:
        """Close an idle connection; return False if none can be closed.

        See `ConnectionQuotas.make_room`.
        """
        return self._quotas.make_room()

    # The connections call the following public methods.

    def forget(self, connection: AcceptedConnection) -> None:
        """Remove a connection that has ended."""
        del self._connections[connection]
        self._failing.pop(connection, None)
        self._quotas.leave(connection, connection.context.peer_host)
        if not self._connections and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def known(self, connection: AcceptedConnection) -> None:
        """Record that a client has completed its TLS handshake and its login."""
        self._quotas.known(connection)

    def login_ended(self, peer: str, reason: str) -> None:
        """Count and log a connection that exceeded a limit before its login."""
        self._quotas.note_login(peer, reason)

    def complain(self, api: str, peer: str, error: BaseException) -> None:
        """Log that a connection is closed because of its client's input or a bug in the handler.

        The first failure of each kind is logged immediately. Later failures are logged at growing
        intervals with a count, so that a client that sends garbage in a loop cannot fill the disk.

        Args:
            api: name of the API, as part of the kind; "none" for input that is not a request.
        """
        bug = None if isinstance(error, ProtocolError) else error
        level, times = self._complaints.note((api, bug is None))
        if bug is not None and level == logging.WARNING:
            level = logging.ERROR
        logger.log(
            level,
            "%s: peer=%s api=%s error=%s times=%d",
            "closing connection" if bug is None else "handler failed, closing connection",
            peer,
            api,
            error,
            times,
            exc_info=bug,
        )

    async def _sweep(self) -> None:
        """Periodically close idle and stalled connections, and let the quotas log their counts."""
        limits = self.limits
        durations = [limits.read_stall, *([limits.max_idle] if limits.max_idle else [])]
        if self.security is not PLAINTEXT_SERVER:
            durations.append(self.security.handshake_timeout)
        interval = min(max(min(durations) / 4, 0.05), 30.0)
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(interval)
            now = loop.time()
            for connection in list(self._connections):
                self._check(connection, now)
            self._quotas.report()

    async def _renew(self, tls: TlsContexts) -> None:
        """Load changed keys and certificates, and warn before the certificate expires."""
        remove = self.counters.certificate_expiry_timestamp_seconds.add_source(
            lambda: {} if tls.expires_at is None else {(self._name,): tls.expires_at}
        )
        task = self._background.task(f"renewal of certificates of listener {self._name}")
        try:
            while True:
                try:
                    await tls.current(self.clock, self.security.offload)
                except BaseException as error:
                    # The former certificate stays in use, also if `cryptography` panics.
                    if is_for_caller(error):
                        raise
                    await asyncio.sleep(task.failed(error))
                else:
                    task.succeeded()
                    await asyncio.sleep(tls.pause(self.clock))
        finally:
            remove()

    def _check(self, connection: AcceptedConnection, now: float) -> None:
        retry_at, task = self._failing.get(connection, (now, None))
        if now < retry_at:
            return
        try:
            connection.check(now)
        except Exception as error:  # noqa: BLE001 - the other connections are still checked
            task = task or self._background.task("sweep of connections")
            self._failing[connection] = now + task.failed(error), task
        else:
            self._failing.pop(connection, None)

    async def _wait_empty(self, timeout: float) -> None:
        if not self._connections:
            return
        if self._emptied is None or self._emptied.done():
            self._emptied = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._emptied)  # other callers may wait for this future, too
        except TimeoutError:
            if self._connections:
                logger.warning(
                    "connections still open: listener=%s count=%d after=%.1fs",
                    self._name,
                    len(self._connections),
                    timeout,
                )
