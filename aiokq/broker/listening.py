"""The servers of a node, one per listener, and the addresses that the node advertises."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Final

from aiokq.broker.config.listeners import (
    LOCALHOST,
    PROTOCOLS,
    Endpoint,
    ListenerFailed,
    is_loopback,
    limits_of_hosts,
    named_hosts,
)
from aiokq.broker.config.roles import controller_addresses
from aiokq.connection.connection_counts import ConnectionCounts
from aiokq.connection.quota_windows import QuotaWindow
from aiokq.connection.server import Server
from aiokq.connection.server_limits import RequestBudgets, ServerLimits
from aiokq.connection.server_security import PLAINTEXT_SERVER, ServerSecurity
from aiokq.connection.strangers import Strangers
from aiokq.core.environment import SocketOptions
from aiokq.core.errors import ConfigError
from aiokq.core.host_addresses import addresses_of
from aiokq.core.named_tuple import NamedTuple
from aiokq.wire.registration_records import BrokerEndpoint, ControllerEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from aiokq.broker.config.listener_security import ListenerSettings
    from aiokq.broker.config.listeners import Listeners
    from aiokq.broker.config.setting import SettingValue
    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.connection.connection_rates import HostRates
    from aiokq.connection.request_context import LoginHandler, RequestContext, RequestHandler
    from aiokq.connection.tls.tls_contexts import ChangedStores, TlsContexts
    from aiokq.connection.tls.tls_settings import TlsSettings
    from aiokq.connection.turn import Turn
    from aiokq.core.counters import BrokerCounters
    from aiokq.core.environment import Environment
    from aiokq.core.offload import Offload
    from aiokq.wire import Fragment

__all__ = ["NodeServers"]

logger = logging.getLogger("aiokq.broker")


class _Opened(NamedTuple):
    endpoint: Endpoint
    server: Server


class _Stores(NamedTuple):
    """Changed keys and certificates of a listener.

    Attributes:
        listener: the settings of the listener after the change.
        tls: the contexts of the listener, made from the former settings.
        values: the settings of TLS after the change, by Kafka's names.
    """

    listener: ListenerSettings
    tls: TlsContexts
    values: dict[str, SettingValue]

    def prepare(self) -> ChangedStores:
        """Make a context from the changed stores; see `TlsContexts.prepare`."""
        return self.tls.prepare(_tls_settings(self.listener))


class NodeServers:
    """The servers of a node, one per listener, opened together.

    ``bind`` is called before the node opens its log directories, because the node registers its
    ports in the metadata. Clients can connect after ``serve``.

    Args:
        listeners: addresses to listen on and to advertise.
        settings: limits of connections, and options of sockets.

    Attributes:
        configured: the listeners as they were given; their ports may be 0.
    """

    def __init__(self, listeners: Listeners, settings: BrokerSettings) -> None:
        self.configured = listeners
        self._settings = settings
        self._opened: list[_Opened] = []
        self._counts: ConnectionCounts | None = None
        self._host_rates: HostRates | None = None
        self._own_name = ""
        # Addresses by host name, for the names in `max.connections.per.ip.overrides`.
        self._addresses: Mapping[str, Sequence[str]] = {}
        # For each listener: in `_stores` the TLS settings in use; in `_prepared` a new context that
        # is not in use yet, with its settings.
        self._stores: dict[str, dict[str, SettingValue]] = {}
        self._prepared: dict[str, tuple[dict[str, SettingValue], ChangedStores]] = {}

    async def bind(
        self,
        environment: Environment,
        counters: BrokerCounters,
        *,
        turn: Turn,
        max_frame_bytes: int,
        failed: Callable[[RequestContext, str, str], None] | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Bind the port of every listener, or of none.

        Args:
            counters: the node's metrics.
            turn: the node's limit of requests per event loop iteration.
            max_frame_bytes: the largest request that the gate admits.
            failed: called with the connection, "SSL" and the reason if the TLS handshake of a
                client fails, or no mapping rule applies to its certificate.
            on_failure: called if a server fails; its listener then serves no clients any more.

        Raises:
            ListenerFailed: a port cannot be bound, for example because it is in use.
            ConfigError: a listener that other machines can reach would send passwords or tokens
                without TLS, the key store or trust store of a listener cannot be used, or a host of
                `max.connections.per.ip.overrides` is unknown.
        """
        if not all(one.host for one in self.configured.advertised.values()):
            # The lookup runs in an executor, because it may query a name server.
            self._own_name = await environment.offload.run(socket.getfqdn)
        names = named_hosts(self._settings)
        if names:
            self._addresses = await environment.offload.run(addresses_of, names)
        for unknown in sorted(names - self._addresses.keys()):
            raise ConfigError(
                f"max.connections.per.ip.overrides: the host {unknown} is unknown: use its address"
            )
        limits = _limits(self._settings, max_frame_bytes, self._addresses)
        sockets = _socket_options(self._settings)
        listeners = self.configured
        counts = ConnectionCounts(
            limits,
            now=environment.clock.monotonic,
            protected=listeners.protected,
        )
        counts.rates.hosts = self._host_rates
        self._counts = counts
        budgets = RequestBudgets.divided(
            limits.queued_max_request_bytes,
            has_logins=any(one.uses_sasl for one in listeners.security.values()),
        )
        # Each PLAINTEXT or protected listener gets a `Strangers` object of its own, so that new
        # connections to this listener do not wait for unauthenticated connections to others.
        strangers = Strangers(turn, environment.clock.monotonic, environment.clock.thread_time)
        shared = listeners.security.keys() - listeners.protected
        try:
            for endpoint in listeners.opened:
                server = Server(
                    environment.network,
                    _host_to_bind(endpoint),
                    endpoint.port,
                    _NOT_SERVING,
                    clock=environment.clock,
                    counters=counters,
                    limits=limits,
                    listener=endpoint.name,
                    turn=turn,
                    counts=counts,
                    budgets=budgets,
                    sockets=sockets,
                    strangers=strangers if endpoint.name in shared else None,
                    security=server_security(
                        listeners.security.get(endpoint.name), environment.offload, failed
                    ),
                    on_failure=on_failure,
                )
                try:
                    await server.bind()
                except OSError as error:
                    raise ListenerFailed.of(endpoint, error) from error
                self._opened.append(_Opened(endpoint, server))
                security = listeners.security.get(endpoint.name)
                if security is not None and _is_reachable(server):
                    security.check_reachable()
        except BaseException:
            await self.close(drain=0)
            raise

    async def serve(self, handler: RequestHandler, login_handler: LoginHandler) -> None:
        """Accept connections at every listener, or at none; ``bind`` must be called before.

        Args:
            handler: handles the requests.
            login_handler: handles requests that clients send before their login, without waiting.

        Raises:
            ListenerFailed: a listener cannot accept connections, for example because another
                program listens on its port.
        """
        try:
            for endpoint, server in self._opened:
                server.handler = handler
                server.login_handler = login_handler
                try:
                    await server.start()
                except OSError as error:
                    raise ListenerFailed.of(endpoint, error) from error
        except BaseException:
            await self.close(drain=0)
            raise

    def limit_hosts(self, rates: HostRates | None) -> None:
        """Apply changed quotas of new connections; None for no quotas."""
        self._host_rates = rates
        if self._counts is not None:
            self._counts.rates.hosts = rates

    def measure_loop_time(self, wanted: bool) -> None:
        """Let connections count the loop time that they use, or stop counting."""
        for one in self._opened:
            one.server.measures_loop_time = wanted

    def limit_connections(self, settings: BrokerSettings) -> bool:
        """Apply changed limits on the numbers of connections and on the rates of new connections.

        Other settings are ignored.

        Returns:
            True if `max.connections.per.ip.overrides` has host names whose addresses are unknown.
            Their limits do not apply until `find_hosts` has looked up the names.
        """
        self._settings = settings
        if self._counts is not None:
            self._counts.limit(_limits(settings, 0, self._addresses))
        return not named_hosts(settings) <= self._addresses.keys()

    async def find_hosts(self, offload: Offload) -> None:
        """Look up the host names in `max.connections.per.ip.overrides`; apply their limits."""
        names = named_hosts(self._settings)
        found = await offload.run(addresses_of, names)
        self._addresses = {**self._addresses, **found}  # another call may have changed it
        for unknown in sorted(names - self._addresses.keys()):
            logger.warning(
                "host is unknown: setting=max.connections.per.ip.overrides host=%s", unknown
            )
        self.limit_connections(self._settings)

    async def prepare_stores(
        self, settings: BrokerSettings, listeners: Iterable[str], offload: Offload
    ) -> None:
        """Check changed keys and certificates, before `change_stores` uses them.

        Args:
            settings: the settings of the broker after the change.
            listeners: the names of the listeners whose settings are changed, in capitals.
            offload: reads files outside the loop.

        Raises:
            ConfigError: a listener does not exist or has no TLS, or its new key store or trust
                store cannot be used.
        """
        for name in listeners:
            security = self.configured.security.get(name)
            if security is None or not security.uses_tls:
                raise ConfigError(f"this broker has no listener {name} with TLS")
        for stores in self._changed_stores(settings):
            prepared = await offload.run(stores.prepare)
            self._prepared[stores.listener.name] = stores.values, prepared

    def change_stores(self, settings: BrokerSettings) -> None:
        """Use changed keys and certificates for new connections.

        A listener whose new stores cannot be used keeps its stores; a warning is logged.
        """
        for stores in self._changed_stores(settings):
            name = stores.listener.name
            values, prepared = self._prepared.pop(name, ({}, None))
            if prepared is None or values != stores.values:
                try:
                    prepared = stores.prepare()
                except ConfigError as error:
                    logger.warning(
                        "changed TLS settings not taken up, the former ones stay in use: "
                        "listener=%s error=%s",
                        name,
                        error.message,
                    )
                    continue
            stores.tls.change(prepared)
            self._stores[name] = stores.values

    def _changed_stores(self, settings: BrokerSettings) -> Iterator[_Stores]:
        for endpoint, server in self._opened:
            security, tls = self.configured.security.get(endpoint.name), server.security.tls
            if security is None or tls is None:
                continue
            listener = security.with_stores(settings)
            values = listener.tls_values()
            if values != self._stores.setdefault(endpoint.name, security.tls_values()):
                yield _Stores(listener, tls, values)

    async def close(self, drain: float | None = None) -> None:
        """Close all listeners and their connections. Idempotent.

        Args:
            drain: maximum number of seconds to wait for requests in progress; None for the default
                of `ServerLimits`.
        """
        opened, self._opened = self._opened, []
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (ServerLimits().drain if drain is None else drain)
        failure: BaseException | None = None
        for one in opened:
            one.server.stop()
        for one in opened:
            left = 0.0 if failure is not None else max(deadline - loop.time(), 0.0)
            try:
                await one.server.close(left)
            except BaseException as error:  # noqa: BLE001 - raised when all servers are closed
                failure = failure or error
        if failure is not None:
            raise failure

    def advertised(self, listener: str | None) -> Endpoint | None:
        """Return the advertised address of a listener; None if the listener is not advertised.

        Args:
            listener: the listener's name; None for the inter-broker listener.
        """
        endpoint = self.configured.advertised.get(listener or self.configured.inter_broker)
        if endpoint is None:
            return None
        host = endpoint.host or self._own_name
        return Endpoint(endpoint.name, host, endpoint.port or self._port(endpoint.name))

    def all_advertised(self) -> list[Endpoint]:
        """Return the advertised addresses, in the order of `listeners`."""
        names = (one.name for one in self.configured.opened)
        return [found for name in names if (found := self.advertised(name)) is not None]

    def opened(self) -> list[Endpoint]:
        """Return the open listeners with their actual ports, even if the setting has port 0."""
        return [one._replace(port=self._port(one.name)) for one in self.configured.opened]

    def open_to_others(self) -> list[Endpoint]:
        """Return the listeners that have a socket on an address that is not a loopback address."""
        return [one for one, server in self._opened if _is_reachable(server)]

    def warn_of_exposure(self) -> None:
        """Log a warning if clients on other machines can connect without authentication.

        Log another warning for each listener that accepts unsigned tokens of such clients, and for
        each that advertises a loopback address to such clients. The warnings depend on the open
        sockets, because a host name in `listeners` may resolve to a loopback address.
        """
        opened = self.open_to_others()
        anonymous = [one for one in opened if not self.authenticates(one.name)]
        if anonymous:
            hosts = dict.fromkeys(one.host or "all addresses" for one in anonymous)
            logger.warning(
                "listening on %s: ANYONE who can reach this machine may read, write and delete "
                "every topic; there is no authentication",
                ", ".join(hosts),
            )
        for one in opened:
            security = self.configured.security.get(one.name)
            if security is not None and security.accepts_unsecured_tokens:
                logger.warning(
                    "listener %s accepts tokens that are not signed (allow.unsecured.tokens): "
                    "ANYONE who can reach this machine may log in with any name",
                    one.name,
                )
            advertised = self.advertised(one.name)
            if advertised is not None and is_loopback(advertised.host):
                logger.warning(
                    "listener %s accepts clients of other machines, but advertises %s, which is "
                    "their own machine: set advertised.listeners, or --advertise HOST[:PORT] for "
                    "the first listener",
                    one.name,
                    advertised.address,
                )

    def authenticates(self, listener: str) -> bool:
        """Return whether all clients of a listener must authenticate, by SASL or a certificate."""
        security = self.configured.security.get(listener)
        return security is not None and (security.uses_sasl or security.client_auth == "required")

    def listening(self) -> list[Endpoint]:
        """Return the open listeners, then the listeners for controllers, which are not open."""
        return [*self.opened(), *self.configured.controllers]

    def endpoint_records(self) -> list[BrokerEndpoint]:
        """Return the advertised listeners as the broker registers them."""
        return [
            BrokerEndpoint(
                name=one.name,
                host=one.host,
                port=one.port,
                security_protocol=self._protocol_number(one.name),
            )
            for one in self.all_advertised()
        ]

    def controller_records(self) -> list[ControllerEndpoint]:
        """Return the listeners for controllers as the controller registers them."""
        return [
            ControllerEndpoint(
                name=one.name,
                host=one.host,
                port=one.port,
                security_protocol=self._protocol_number(one.name),
            )
            for one in controller_addresses(self.configured)
        ]

    @property
    def protocol_map(self) -> str:
        """The security protocol of each listener, as in `listener.security.protocol.map`."""
        every = (*self.configured.opened, *self.configured.controllers)
        return ",".join(f"{one.name}:{self.configured.protocol(one.name)}" for one in every)

    def _protocol_number(self, listener: str) -> int:
        return PROTOCOLS.index(self.configured.protocol(listener))

    def _port(self, listener: str) -> int:
        for endpoint, server in self._opened:
            if endpoint.name == listener:
                return server.port
        return next(one.port for one in self.configured.opened if one.name == listener)


def server_security(
    settings: ListenerSettings | None,
    offload: Offload,
    failed: Callable[[RequestContext, str, str], None] | None = None,
) -> ServerSecurity:
    """Return the `ServerSecurity` of a listener.

    Args:
        settings: the listener's settings of TLS and SASL; None for PLAINTEXT.
        offload: reads changed certificates outside the loop.
        failed: called with the connection, "SSL" and the reason if the TLS handshake of a client
            fails, or no mapping rule applies to its certificate.

    Raises:
        ConfigError: a key store, a trust store or a principal mapping rule cannot be used.
    """
    if settings is None:
        return PLAINTEXT_SERVER
    timeout = settings.value("handshake.timeout.ms")
    assert isinstance(timeout, int)
    if not settings.uses_tls:
        return ServerSecurity(sasl=True, handshake_timeout=timeout / 1000)
    from aiokq.connection.tls.contexts import server_context
    from aiokq.connection.tls.principal_rules import PrincipalRules
    from aiokq.connection.tls.tls_contexts import TlsContexts

    if settings.ssl_context is not None:
        tls = TlsContexts.fixed(settings.ssl_context)
    else:
        tls = TlsContexts(server_context, _tls_settings(settings), f"listener {settings.name}")
    rules = "ssl.principal.mapping.rules"
    return ServerSecurity(
        tls=tls,
        sasl=settings.uses_sasl,
        principal_of=PrincipalRules(
            str(settings.value(rules)), settings.spelled(rules)
        ).principal_of,
        handshake_timeout=timeout / 1000,
        offload=offload,
        failed=failed,
    )


def _tls_settings(listener: ListenerSettings) -> TlsSettings:
    from aiokq.connection.tls.tls_settings import TlsSettings

    return TlsSettings.from_kafka(listener.tls_values(), listener.spelled, keeps_identity=True)


class _NotServing:
    """The handler of a server that does not accept connections yet."""

    async def handle(self, context: RequestContext, frame: memoryview) -> Sequence[Fragment] | None:
        raise AssertionError("the node does not serve requests yet")


_NOT_SERVING: Final = _NotServing()


def _is_reachable(server: Server) -> bool:
    """Return whether a server has a socket that other machines can reach."""
    return not all(map(is_loopback, server.hosts))


def _host_to_bind(endpoint: Endpoint) -> str | None:
    if endpoint.host.lower() == LOCALHOST:
        return "127.0.0.1"  # localhost may also mean ::1, where port 0 would give another port
    return None if endpoint.host in ("", "*", "0.0.0.0") else endpoint.host


def _limits(
    settings: BrokerSettings, max_frame_bytes: int, addresses: Mapping[str, Sequence[str]]
) -> ServerLimits:
    queued = settings.queued_max_request_bytes
    return ServerLimits(
        max_frame_bytes=max_frame_bytes,
        max_login_frame_bytes=settings.sasl_server_max_receive_size,
        failed_login_delay=settings.connection_failed_authentication_delay_ms / 1000,
        queued_max_request_bytes=2**63 - 1 if queued < 0 else queued,
        max_connections=settings.max_connections,
        max_connections_per_ip=settings.max_connections_per_ip,
        max_connections_of_host=limits_of_hosts(settings, addresses),
        max_connections_of_listener=dict(settings.listener_max_connections),
        max_connection_creation_rate=settings.max_connection_creation_rate,
        max_connection_creation_rate_of_listener=dict(
            settings.listener_max_connection_creation_rates
        ),
        rate_window=QuotaWindow(
            settings.quota_window_num, settings.quota_window_size_seconds * 1000
        ),
        max_idle=max(settings.connections_max_idle_ms, 0) / 1000,
    )


def _socket_options(settings: BrokerSettings) -> SocketOptions:
    send, receive = settings.socket_send_buffer_bytes, settings.socket_receive_buffer_bytes
    return SocketOptions(
        backlog=settings.socket_listen_backlog_size,
        send_buffer=None if send < 0 else send,
        receive_buffer=None if receive < 0 else receive,
    )
