"""RequestContext and RequestHandler: the interface between a server and its request handlers."""

from __future__ import annotations

import enum
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from aiokq.connection.principal import ANONYMOUS

if TYPE_CHECKING:
    from aiokq.connection.loop_time import LoopTime
    from aiokq.connection.principal import Principal
    from aiokq.wire import Fragment
    from aiokq.wire.struct import Response

__all__ = [
    "CloseConnection",
    "LoginHandler",
    "RequestContext",
    "RequestHandler",
    "Session",
    "SessionState",
]

logger = logging.getLogger("aiokq.connection")


class CloseConnection(Exception):
    """Raised by a handler to close the connection, usually without a response.

    Kafka closes the connection for an unsupported API or version, and for an error with acks=0. A
    failed login is answered after a delay, which slows down guesses of passwords.

    Attributes:
        response: the response that is sent before the connection is closed; None for no response.
        answer: the encoded response; the dispatcher sets it.
        delay: seconds to wait before the answer and the close. During the delay, the connection is
            not read and holds no memory of requests.
    """

    def __init__(
        self, reason: str, *, response: Response | None = None, delay: float = 0.0
    ) -> None:
        super().__init__(reason)
        self.response = response
        self.answer: Sequence[Fragment] | None = None
        self.delay = delay


class SessionState(enum.Enum):
    """The state of a connection's authentication."""

    READY = "the client is authenticated, or its listener requires no authentication"
    HANDSHAKE = "the client has sent neither ApiVersions nor SaslHandshake yet"
    MECHANISM = "the client knows the API versions, and has to name its SASL mechanism"
    AUTHENTICATE = "the client has named its mechanism and is being authenticated"
    EXPIRED = "the session is over, and the client has to authenticate again (KIP-368)"


_READY: Final = SessionState.READY


class Session:
    """Data that handlers store about a client while the connection is open.

    Attributes:
        software_name: the client's name from its ApiVersions request; "" before that request.
        software_version: the client's version from its ApiVersions request; "" before that request.
        principal: the client's principal; `ANONYMOUS` before the login, or without authentication.
        state: state of the authentication, which determines the requests that are admitted. The
            gate changes READY to EXPIRED at the first request after `expires_at`.
        expires_at: the loop's time at which the session ends unless the client authenticates again
            (KIP-368); None for no end.
        mechanism: name of the SASL mechanism of the last login; "" before the first login.
        reauthenticated_at: the loop's time at which the last re-authentication began; None before
            the first one.
        sasl: the login in progress, owned by the handlers of SaslHandshake and SaslAuthenticate.
        sends_tokens: whether the frames of the login in progress are tokens without the header of a
            request, as after version 0 of SaslHandshake.
    """

    __slots__ = (
        "expires_at",
        "mechanism",
        "principal",
        "reauthenticated_at",
        "sasl",
        "sends_tokens",
        "software_name",
        "software_version",
        "state",
    )

    def __init__(self) -> None:
        self.software_name = ""
        self.software_version = ""
        self.principal: Principal = ANONYMOUS
        self.state = _READY
        self.expires_at: float | None = None
        self.mechanism = ""
        self.reauthenticated_at: float | None = None
        self.sasl: object | None = None
        self.sends_tokens = False


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
        loop_time: counts the time of the loop that the connection takes; None while no quota
            depends on it.
        quota_answers: the quotas that the user's function has returned for the client, by key;
            owned by `CallerQuotas`. None before the first answer.
        connected: whether the client is still connected.
        on_login: called when the first login of the connection is complete; None without SASL.
    """

    __slots__ = (
        "_disconnect_callbacks",
        "connected",
        "connection_id",
        "is_tls",
        "listener",
        "loop_time",
        "mute_until",
        "on_login",
        "peer",
        "peer_host",
        "quota_answers",
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
        self.loop_time: LoopTime | None = None
        self.quota_answers: dict[str, tuple[Hashable, object]] | None = None
        self.connected = True
        self.on_login: Callable[[], object] | None = None
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
        self.on_login = None
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
            CloseConnection: the connection must be closed; see its attributes.
            ProtocolError: the request is malformed; the connection is closed, with a warning.
            Exception: a bug in the handler; it is logged, and the connection is closed.
        """
        ...


class LoginHandler(Protocol):
    """Handles requests of connections before their login, without waiting."""

    def __call__(self, context: RequestContext, frame: memoryview) -> Sequence[Fragment] | None:
        """Handle one request.

        Args:
            context: the connection of the request.
            frame: the request without its size.

        Returns:
            The response with its size in front. None if `RequestHandler.handle` must handle the
            request; the call has then changed nothing.

        Raises:
            CloseConnection, ProtocolError, Exception: see `RequestHandler.handle`.
        """
        ...
