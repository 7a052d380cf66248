"""RequestContext and RequestHandler: the interface between a server and its request handlers."""

from __future__ import annotations

import enum
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from aiokq.connection.principal import ANONYMOUS

if TYPE_CHECKING:
    from aiokq.connection.principal import Principal
    from aiokq.wire import Fragment

__all__ = ["CloseConnection", "RequestContext", "RequestHandler", "Session", "SessionState"]

logger = logging.getLogger("aiokq.connection")


class CloseConnection(Exception):
    """Raised by a handler to close the connection without a response.

    Kafka does so for an unsupported API or version, and for an error with acks=0.
    """


class SessionState(enum.Enum):
    """The state of a connection's authentication."""

    READY = "the client is authenticated, or its listener requires no authentication"
    HANDSHAKE = "the client has not named a SASL mechanism yet"
    AUTHENTICATE = "the client has named its mechanism and is being authenticated"
    EXPIRED = "the session is over, and the client has to authenticate again (KIP-368)"


class Session:
    """Data that handlers store about a client while the connection is open.

    Attributes:
        software_name: the client's name from its ApiVersions request; "" before that request.
        software_version: the client's version from its ApiVersions request; "" before that request.
        principal: who the client is; `ANONYMOUS` before the login, or without authentication.
        sasl: state of a SASL exchange, owned by the handler of SaslAuthenticate.
        state: state of the authentication, which determines the requests that are admitted.
    """

    __slots__ = ("principal", "sasl", "software_name", "software_version", "state")

    def __init__(self) -> None:
        self.software_name = ""
        self.software_version = ""
        self.principal: Principal = ANONYMOUS
        self.sasl: object | None = None
        self.state = SessionState.READY


class RequestContext:
    """The connection that requests come from, as handlers see it.

    There is one object per connection. A connection handles one request at a time.

    Attributes:
        connection_id: number of the connection on its listener, for logs.
        peer: address of the client, "host:port".
        peer_host: host of the client's address, in brackets if it is IPv6.
        listener: name of the listener that accepted the connection.
        is_tls: whether the connection is encrypted.
        session: the client's software, principal and state of authentication.
        mute_until: the loop's time until which this connection is not read. Handlers that throttle
            (KIP-219) set it, and the connection checks it after the response is sent.
        connected: whether the client is still connected.
    """

    __slots__ = (
        "_disconnect_callbacks",
        "connected",
        "connection_id",
        "is_tls",
        "listener",
        "mute_until",
        "peer",
        "peer_host",
        "session",
    )

    def __init__(self, connection_id: int, peer: str, peer_host: str, listener: str) -> None:
        self.connection_id = connection_id
        self.peer = peer
        self.peer_host = peer_host
        self.listener = listener
        self.is_tls = False
        self.session = Session()
        self.mute_until = 0.0
        self.connected = True
        self._disconnect_callbacks: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        return f"<RequestContext {self.connection_id} of {self.peer} on {self.listener}>"

    def on_disconnect(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the client disconnects, or now if it has disconnected."""
        if self.connected:
            self._disconnect_callbacks.append(callback)
        else:
            callback()

    def disconnected(self) -> None:
        """Call the callbacks once, because the client has disconnected."""
        self.connected = False
        callbacks, self._disconnect_callbacks = self._disconnect_callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                logger.exception("disconnect callback failed: callback=%r", callback)


class RequestHandler(Protocol):
    """Handles the requests that a server receives."""

    def handle(
        self, context: RequestContext, frame: memoryview
    ) -> Awaitable[Sequence[Fragment] | None]:
        """Handle one request.

        Args:
            context: the connection of the request.
            frame: the request without its size; writable, and owned by the handler.

        Returns:
            The response with its size in front, as from `wire.encode_response`; `None` for a
            request that has no response.

        Raises:
            CloseConnection: the connection must be closed.
            ProtocolError: the request is malformed; the connection is closed, with a warning.
            Exception: a bug in the handler; it is logged, and the connection is closed.
        """
        ...
