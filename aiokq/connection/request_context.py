"""Owns what a request handler is given and gives back; no sockets."""

from __future__ import annotations

import enum
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiokq.wire import Fragment

__all__ = ["CloseConnection", "RequestContext", "RequestHandler", "Session", "SessionState"]

logger = logging.getLogger("aiokq.connection")


class CloseConnection(Exception):
    """Raised by a handler: close this connection, without an answer.

    Where Kafka says so: an API or version that is not supported, an error with acks=0.
    """


class SessionState(enum.Enum):
    """How far the client of a connection has logged in."""

    READY = "the client is authenticated, or its listener requires no authentication"
    HANDSHAKE = "the client has not named a SASL mechanism yet"
    AUTHENTICATE = "the client has named its mechanism and is being authenticated"
    EXPIRED = "the session is over, and the client has to authenticate again (KIP-368)"


class Session:
    """What is known of a client, as long as its connection lasts; handlers write it.

    Attributes:
        software_name: from ApiVersions, "" before.
        software_version: likewise.
        principal: who it logged in as; `None` without authentication.
        sasl: state of a login under way; its owner is the handler of SaslAuthenticate.
        state: decides which requests are admitted.
    """

    __slots__ = ("principal", "sasl", "software_name", "software_version", "state")

    def __init__(self) -> None:
        self.software_name = ""
        self.software_version = ""
        self.principal: str | None = None
        self.sasl: object | None = None
        self.state = SessionState.READY


class RequestContext:
    """Where a request came from. One per connection, as it handles one request at a time.

    Attributes:
        connection_id: unique in this server.
        peer: address of the client, "host:port".
        peer_host: its host alone.
        listener: name of the listener it came to.
        session: what is known of the client.
        mute_until: the loop's time until which nothing more is read from this connection; set by
            handlers that throttle (KIP-219), checked after the response is sent.
        connected: whether the client is still there.
    """

    __slots__ = (
        "_disconnect_callbacks",
        "connected",
        "connection_id",
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
        self.session = Session()
        self.mute_until = 0.0
        self.connected = True
        self._disconnect_callbacks: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        return f"<RequestContext {self.connection_id} of {self.peer} on {self.listener}>"

    def on_disconnect(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the client is gone; at once if it is. It must not raise."""
        if self.connected:
            self._disconnect_callbacks.append(callback)
        else:
            callback()

    def disconnected(self) -> None:
        """The client is gone: tell who wants to know."""
        self.connected = False
        callbacks, self._disconnect_callbacks = self._disconnect_callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                logger.exception("disconnect callback failed: callback=%r", callback)


class RequestHandler(Protocol):
    """What a server is for."""

    def handle(
        self, context: RequestContext, frame: memoryview
    ) -> Awaitable[Sequence[Fragment] | None]:
        """Answer one request.

        Args:
            context: where it came from.
            frame: the request without its size; writable, and the handler's own.

        Returns:
            The response with its size in front, as `wire.encode_response` gives it; `None` for a
            request that is not answered.

        Raises:
            CloseConnection: the connection is to be closed.
            ProtocolError: the request is malformed; likewise, and logged as a warning.
            Anything else is a bug in the handler: logged, and the connection closed.
        """
        ...
